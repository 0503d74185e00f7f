/* inverse.cuh -- (1 - a)^{-1} for a strictly lower 64 x 64 matrix: the delta
 * rule's solve. After gates.cuh. Where tiles are of float32, products are as
 * good.
 *
 * a in float32 at s, in padded rows of INVERSE_LD, its blocks of 16 above the
 * diagonal left out. Warp i has the block row i: T, the inverse of the block
 * on the diagonal, by substitution, a lane a column; then, in tf32, with M[k] =
 * T a[i][k],
 *   X[i][j] = sum over j <= k < i of M[k] X[k][j],
 * where X[j][j] = T of warp j, each term as soon as warp k has X[k][j], which
 * it leaves above the diagonal, transposed, at (j, k); its T at (k, k). All
 * M[k] are known before the first of these: what waits for another warp is a
 * product long. With a left operand's columns taken as 0 2 4 6 1 3 5 7, a
 * fragment of a result is one.
 */
constexpr int INVERSE_LD = 72, INVERSE_BYTES = 64 * INVERSE_LD * 4;

INLINE u32 entry(u32 s, int i, int j)
{
    return s + 4 * (i * INVERSE_LD + j);
}
#ifdef ELEMENT_F32
INLINE u32 rounded(float x) { return bits_of(x); }
#else
INLINE u32 rounded(float x) { return tf32(x); }
#endif
INLINE void round_all(u32 (&to)[8], const float (&x)[8])
{
    UNROLL for (int e = 0; e < 8; e++)
        to[e] = rounded(x[e]);
}
/* c += m b for 16 x 16 blocks. b lies at `at`, or its transpose. APART: halves
 * of the sum, so that none waits for the other. */
template<int TRANSPOSED, int APART = 0>
INLINE void product_block(float (&c)[8], const u32 (&m)[8], u32 at, int lane)
{
    const int g = lane >> 2, t = 2 * (lane & 3);
    float other[8] = {};
    UNROLL for (int k = 0; k < 2; k++)
        UNROLL for (int n = 0; n < 2; n++) {
            float *to = (APART && k ? other : c) + 4 * n;
            float2 b;
            if (TRANSPOSED) {
                b = load2(entry(at, 8 * n + g, 8 * k + t));
            } else {
                b.x = load1(entry(at, 8 * k + t, 8 * n + g));
                b.y = load1(entry(at, 8 * k + t + 1, 8 * n + g));
            }
            const u32 a[] = { m[4 * k], m[4 * k + 2], m[4 * k + 1],
                              m[4 * k + 3] };
#ifdef ELEMENT_F32
            product_exact(to, { bits(a[0]), bits(a[1]), bits(a[2]),
                                bits(a[3]) }, { b.x, b.y });
#else
            const u32 r[] = { tf32(b.x), tf32(b.y) };
            product8(to, a, r);
#endif
        }
    UNROLL for (int e = 0; e < 8 && APART; e++)
        c[e] += other[e];
}
/* The inverse of one less the block at b: a lane's column of 16, twice. */
INLINE void invert_column(float (&x)[16], u32 b, int lane)
{
    UNROLL for (int i = 0; i < 16; i++)
        x[i] = i == (lane & 15) ? 1.f : 0.f;
    UNROLL for (int k = 0; k < 16; k += 4)
        UNROLL for (int i = k + 1; i < 16; i++) {
            const float4 a = load4(entry(b, i, k));
            x[i] = fmaf(a.x, x[k], x[i]);
            if (i > k + 1)
                x[i] = fmaf(a.y, x[k + 1], x[i]);
            if (i > k + 2)
                x[i] = fmaf(a.z, x[k + 2], x[i]);
            if (i > k + 3)
                x[i] = fmaf(a.w, x[k + 3], x[i]);
        }
}
/* The inverse in place of the block, transposed, and as a fragment. */
INLINE void invert_block(float (&t)[8], u32 b, int lane)
{
    const int row = lane >> 2, col = 2 * (lane & 3);
    float x[16];
    __syncwarp();
    invert_column(x, b, lane);
    __syncwarp();
    if (lane < 16)
        UNROLL for (int i = 0; i < 16; i += 2)
            store2(entry(b, lane, i), x[i], x[i + 1]);
    __syncwarp();
    UNROLL for (int e = 0; e < 8; e++)
        t[e] = load1(entry(b, col + 2 * (e & 4) + (e & 1), row + 4 * (e & 2)));
}
/* The transpose of a block. */
INLINE void store_block(u32 at, const float (&x)[8], int lane)
{
    const int g = lane >> 2, t = 2 * (lane & 3);
    UNROLL for (int e = 0; e < 8; e++)
        store1(entry(at, t + (e & 1) + 2 * (e & 4), g + 4 * (e & 2)), x[e]);
}
/* Writes block (i, j) of a tile. */
INLINE void write_block(u32 tile, const float (&x)[8], int i, int j, int lane)
{
#ifdef ELEMENT_F32
    UNROLL for (int e = 0; e < 8; e += 2)
        store2(float_place(tile, 16 * i + (lane >> 2) + 4 * (e & 2),
                           16 * j + 2 * (lane & 3) + 2 * (e & 4)), x[e],
               x[e + 1]);
#else
    u32 p[4];
    pack(p, x);
    const int row = 16 * i + (lane & 15), piece = 2 * j + (lane >> 4);
    stmatrix(tile + row * 128 + ((piece ^ (row & 7)) * 16), p);
#endif
}
/* What is left of warp i's row of blocks, T being there. The same code for all
 * four: what the longest does, as far as a warp goes. The first terms are all
 * under way at a time: where a warp has fewer it takes another block of its own
 * instead, for nothing. ready(): before the tile is written. */
template<class READY>
INLINE void invert_row(u32 tile, u32 s, const float (&t)[8], int lane, int i,
                       READY ready)
{
    float x[3][8] = {};
    u32 top[8], m[3][8];
    round_all(top, t);
    UNROLL for (int k = 0; k < 3; k++) {
        float c[8] = {};
        product_block<0>(c, top, entry(s, 16 * i, k < i ? 16 * k : 0), lane);
        round_all(m[k], c);
    }
    warpgroup_sync();
    UNROLL for (int j = 0; j < 3; j++) {
        product_block<1>(x[j], m[j], entry(s, j < i ? 16 * j : 0,
                                           j < i ? 16 * j : 0), lane);
        UNROLL for (int e = 0; e < 8; e++)
            x[j][e] = j < i ? x[j][e] : 0.f;
    }
    UNROLL for (int past = 0; past < 3; past++) {
        UNROLL for (int j = 0; j < 3 - past && past; j++)
            if (j + past < i)           /* X of the diagonal past behind it */
                product_block<1, 1>(x[j], m[j + past],
                                    entry(s, 16 * j, 16 * (j + past)), lane);
        if (past == 2)
            break;
        UNROLL for (int j = 0; j < 2 - past; j++)
            if (i == j + past + 1)      /* who is below takes it next */
                store_block(entry(s, 16 * j, 16 * i), x[j], lane);
        warpgroup_sync();
    }
    ready();
    UNROLL for (int j = 0; j < 4; j++)
        if (j != i)
            write_block(fresh(tile), x[j < 3 ? j : 2], i, j, fresh(lane));
}
/* The same with few registers: a factor at a time. */
INLINE void invert_row_few(u32 tile, u32 s, const float (&t)[8], int lane,
                           int i)
{
    float x[3][8] = {};
    u32 top[8], m[8];
    round_all(top, t);
    UNROLL for (int k = 0; k < 3; k++) {
        if (k < i) {
            float c[8] = {};
            product_block<0>(c, top, entry(s, 16 * i, 16 * k), lane);
            round_all(m, c);
        }
        warpgroup_sync();
        if (k < i)
            UNROLL for (int j = 0; j <= k; j++)
                product_block<1>(x[j], m, entry(s, 16 * j, 16 * k), lane);
        if (k < 2 && k + 1 == i)
            UNROLL for (int j = 0; j <= k; j++)
                store_block(entry(s, 16 * j, 16 * i), x[j], lane);
    }
    UNROLL for (int j = 0; j < 4; j++)
        if (j != i)
            write_block(fresh(tile), x[j < 3 ? j : 2], i, j, fresh(lane));
}
/* The inverse goes to a tile. The warpgroup does it together; each warp i has
 * written its own rows of a, or else all have met since. With few registers
 * they must meet before a is written, too: others may still read T. */
INLINE void invert_own(u32 tile, u32 s, int lane, int i)
{
    float t[8];
    invert_block(t, entry(s, 16 * i, 16 * i), lane);
    write_block(tile, t, i, i, lane);
    invert_row(tile, s, t, lane, i, [] { });
}
/* The tile is another's until ready() has been called, which comes late. */
template<class READY>
INLINE void invert_deferred(u32 tile, u32 s, int lane, int i, READY ready)
{
    float t[8];
    invert_block(t, entry(s, 16 * i, 16 * i), lane);
    invert_row(tile, s, t, lane, i, ready);
    write_block(tile, t, i, i, lane);
}
INLINE void invert_few(u32 tile, u32 s, int lane, int i)
{
    float t[8];
    invert_block(t, entry(s, 16 * i, 16 * i), lane);
    write_block(tile, t, i, i, lane);
    invert_row_few(tile, s, t, lane, i);
}
INLINE void invert(u32 tile, u32 s, int lane, int i)
{
    warpgroup_sync();
    invert_own(tile, s, lane, i);
}
/* The warpgroup beside it meets as often, and waits for it anyway. Where one
 * met more often, compute-sanitizer's racecheck would forget what joint_sync
 * orders between the two. */
INLINE void beside_invert_own()
{
    UNROLL for (int n = 0; n < 3; n++)
        warpgroup_sync();
}
INLINE void beside_invert()
{
    warpgroup_sync();
    beside_invert_own();
}
