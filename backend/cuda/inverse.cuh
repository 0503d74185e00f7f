/* inverse.cuh -- (1 - a)^{-1} for a strictly lower 64 x 64 matrix: the delta
 * rule's solve. After gates.cuh. Where tiles are of float32, products are as
 * good.
 *
 * a in float32 at s, in padded rows of INVERSE_LD, its blocks of 16 above the
 * diagonal left out. Warp i has the block row i: T, the inverse of the block
 * on the diagonal, by substitution in registers; then, in tf32, with M[k] =
 * T a[i][k],
 *   X[i][j] = sum over j <= k < i of M[k] X[k][j],
 * each term as soon as warp k has X[k], which it leaves above the diagonal,
 * transposed: X[k][j] at (j, k), its T at (k, 3). With a left operand's
 * columns taken as 0 2 4 6 1 3 5 7, a fragment of a result is one.
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
/* c += m b for 16 x 16 blocks. b lies at `at`, or its transpose, rounded. */
template<int TRANSPOSED>
INLINE void product_block(float (&c)[8], const u32 (&m)[8], u32 at, int lane)
{
    const int g = lane >> 2, t = 2 * (lane & 3);
    UNROLL for (int k = 0; k < 2; k++)
        UNROLL for (int n = 0; n < 2; n++) {
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
            product_exact(c + 4 * n, { bits(a[0]), bits(a[1]), bits(a[2]),
                                       bits(a[3]) }, { b.x, b.y });
#else
            const u32 r[] = { TRANSPOSED ? __float_as_uint(b.x) : tf32(b.x),
                              TRANSPOSED ? __float_as_uint(b.y) : tf32(b.y) };
            product8(c + 4 * n, a, r);
#endif
        }
}
/* The inverse of one less the block at b, as a fragment. Row j is done when
 * the rows above it have been added to it; what it adds to those is zero. */
INLINE void invert_block(float (&x)[8], u32 b, int lane)
{
    const int row = lane >> 2, col = 2 * (lane & 3);
    float a[8];
    UNROLL for (int e = 0; e < 8; e += 2) {
        const int i = row + 4 * (e & 2), j = col + 2 * (e & 4);
        const float2 v = load2(entry(b, i, j));
        a[e] = v.x;
        a[e + 1] = v.y;
        x[e] = i == j ? 1.f : 0.f;
        x[e + 1] = i == j + 1 ? 1.f : 0.f;
    }
    UNROLL for (int j = 0; j < 15; j++) {
        const int half = j >> 3, of = (lane & 28) + (j & 7) / 2;
        const int from = 4 * (j & 7) + (lane & 3);
        float f[2];
        UNROLL for (int h = half; h < 2; h++)
            f[h] = __shfl_sync(~0u, a[4 * half + 2 * h + (j & 1)], of);
        UNROLL for (int e = 0; e < 8; e++)
            if (e >> 2 <= half && (e >> 1 & 1) == half) {
                const float r = __shfl_sync(~0u, x[e], from);
                UNROLL for (int h = half; h < 2; h++) {
                    const int to = (e & 5) + 2 * h;
                    x[to] = fmaf(f[h], r, x[to]);
                }
            }
    }
}
/* The transpose of a block, rounded. */
INLINE void store_block(u32 at, const float (&x)[8], int lane)
{
    const int g = lane >> 2, t = 2 * (lane & 3);
    UNROLL for (int e = 0; e < 8; e++)
        store1(entry(at, t + (e & 1) + 2 * (e & 4), g + 4 * (e & 2)),
               __uint_as_float(rounded(x[e])));
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
 * four: what the longest does, as far as a warp goes. */
INLINE void invert_row(u32 tile, u32 s, const float (&t)[8], int lane, int i)
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
                product_block<1>(x[j], m, entry(s, 16 * j, j < k ? 16 * k
                                                                 : 48), lane);
        if (k < 2 && k + 1 == i)
            UNROLL for (int j = 0; j <= k; j++)
                store_block(entry(s, 16 * j, 16 * i), x[j], lane);
    }
    UNROLL for (int j = 0; j < 4; j++)
        if (j != i)
            write_block(fresh(tile), x[j < 3 ? j : 2], i, j, fresh(lane));
}
/* The inverse goes to a tile. The warpgroup does it together; each warp i has
 * written its own rows of a. */
INLINE void invert(u32 tile, u32 s, int lane, int i)
{
    float t[8];
    warpgroup_sync();                   /* the last one's are read */
    invert_block(t, entry(s, 16 * i, 16 * i), lane);
    store_block(entry(s, 16 * i, 48), t, lane);
    write_block(tile, t, i, i, lane);
    invert_row(tile, s, t, lane, i);
}
/* The warpgroup beside it meets as often, and waits for it anyway. Where one
 * met more often, compute-sanitizer's racecheck would forget what joint_sync
 * orders between the two. */
INLINE void beside_invert()
{
    UNROLL for (int n = 0; n < 4; n++)
        warpgroup_sync();
}
