/* gates.cuh -- what the ahead warpgroups do beyond products: gates per key,
 * and angles. After device.cuh.
 */

/* ---- matrices ---- */

#ifdef ELEMENT_F16
constexpr u32 MINUS8 = 0xc800c800, HALF = 0x38003800;
#else
constexpr u32 MINUS8 = 0xc100c100, HALF = 0x3f003f00;
#endif
/* The lowest of m and of values below it: MINUS8 where there are none. Negative
 * ones are the largest as integers. */
template<int N> INLINE u32 deepest(const u32 (&x)[N], u32 m = MINUS8)
{
    UNROLL for (int i = 0; i < N; i += 2)
        m = __vimax3_u16x2(m, x[i], x[i + 1]);
    return m;
}
template<int N> INLINE void halve(u32 (&h)[N], const u32 (&x)[N])
{
    UNROLL for (int i = 0; i < N; i++)
        asm("fma.rn." ELEMENT "x2 %0, %1, %2, %3;" : "=r"(h[i]) : "r"(x[i]),
            "r"(HALF), "r"(0x80008000u));   /* sm_80 has no product */
}
/* x sigmoid(x), to 2e-4 of it; by one tanh where x >= -8, of half of x. */
template<bool DEEP> INLINE float swish(float x, float half)
{
    if (DEEP)
        return x * sigmoid_(x);
    float t;
    asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(half));
    return fmaf(half, t, half);
}
template<bool DEEP> INLINE float swish(float x)
{
    return swish<DEEP>(x, 0.5f * x);
}


/* ---- gates per key ---- */

/* The sum over a fragment's columns, once a row. */
INLINE void store_row(u32 a, float sum, const Lane &l)
{
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if ((l.lane & 3) == 0)
        store1(a, sum);
}

/* Row r of a running sum over K columns: row 0 is before the first token. */
template<int K> INLINE u32 gate_row(u32 gate, int r)
{
    return gate + 4 * (K + 8) * r;
}
/* Elements k, k + 1 ... of row i. */
template<int N> INLINE void read_line(u32 (&x)[N], u32 tile, int i, int k)
{
    const u32 a = tile + (k >> 6) * 8192 + i * 128
                + (((k >> 3 & 7) ^ (i & 7)) * 16) + (k & 7) * 2;
    if (N == 1)
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x[0]) : "r"(a)
                     : "memory");
    else
        UNROLL for (int n = 0; n < N; n += 2)
            asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(x[n]),
                         "=r"(x[n + (N > 1)]) : "r"(a + 4 * n) : "memory");
}
/* The same of a float32 matrix: tiles of 32 columns. */
INLINE u32 float_place(u32 tile, int i, int k)
{
    return tile + (k >> 5) * 8192 + i * 128
         + (((k >> 2 & 7) ^ (i & 7)) * 16) + (k & 3) * 4;
}
template<int N> INLINE void read_line(float (&x)[N], u32 tile, int i, int k)
{
    UNROLL for (int n = 0; n < N; n += 2) {
        const float2 v = load2(float_place(tile, i, k + n));
        x[n] = v.x;
        x[n + 1] = v.y;
    }
}
INLINE void read_fragment(float (&x)[32], u32 tile, const Lane &l)
{
    UNROLL for (int n = 0; n < 16; n++) {
        const float2 v = load2(float_place(tile, l.row + n % 2 * 8,
                                           n / 2 * 8 + l.col));
        x[2 * n] = v.x;
        x[2 * n + 1] = v.y;
    }
}
INLINE u32 word_of(u32 tile, int i, int k)
{
    return bits_of(load1(tile + (k >> 6) * (128 * CHUNK_ROWS) + i * 128
                         + (((k >> 3 & 7) ^ (i & 7)) * 16) + (k & 6) * 2));
}
/* Of rows i and i + 8 columns k and k + 1. */
INLINE void read_step(u32 (&x)[2], u32 tile, int i, int k)
{
    UNROLL for (int h = 0; h < 2; h++)
        x[h] = word_of(tile, i + 8 * h, k);
}
INLINE void read_step(float (&x)[4], u32 tile, int i, int k)
{
    UNROLL for (int h = 0; h < 2; h++) {
        const float2 v = load2(float_place(tile, i + 8 * h, k));
        x[2 * h] = v.x;
        x[2 * h + 1] = v.y;
    }
}
/* bfloat16 whatever the element: these operands need a float's exponents. */
INLINE u32 pack_wide(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
INLINE float2 times_log2e(float2 x) { return { x.x * LOG2E, x.y * LOG2E }; }
/* exp(from - to), `from` times log2 e. */
INLINE float2 decay_to(float2 from, float2 to)
{
    return { exp2_(fmaf(-LOG2E, to.x, from.x)),
             exp2_(fmaf(-LOG2E, to.y, from.y)) };
}
/* exp(from - to), `to` times log2 e. */
INLINE float2 decay_from(float2 from, float2 to)
{
    return { exp2_(fmaf(LOG2E, from.x, -to.x)),
             exp2_(fmaf(LOG2E, from.y, -to.y)) };
}
INLINE u32 decayed(u32 v, float2 f)
{
    return pack_wide(low(v) * f.x, high(v) * f.y);
}
/* Tensor cores cut a float's last bits off: what that takes on average is
 * added before, or its log2 to an exponent. What was bfloat16 stays that. */
constexpr float CUT = 3.5e-4f, LOG2_CUT = 5.05e-4f;
INLINE u32 tf32(float x) { return bits_of(fmaf(x, CUT, x)); }
/* 16 rows of 8 columns: a lane's row r is that of lane r < 16. */
INLINE void ldmatrix2(u32 a, u32 *r)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(a) : "memory");
}
/* c += a b in tf32, 16 x 8 by 8 x 8. */
INLINE void product8(float *c, const u32 *a, const u32 *b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
        " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* x without the bits that tensor cores cut off, and what those are: a number of
 * tf32, too, or nearly. Of an infinity nothing. */
INLINE void cut(u32 &high, u32 &low, float x)
{
    high = bits_of(x) & 0xffffe000u;
    const float rest = x - bits(high);
    low = bits_of(rest == rest ? rest : 0.f);
}
/* c += a b as good as in float32, 16 x 8 by 8 x 8. */
INLINE void product_exact(float *c, const float (&a)[4], const float (&b)[2])
{
    u32 ah[4], al[4], bh[2], bl[2];
    UNROLL for (int i = 0; i < 4; i++)
        cut(ah[i], al[i], a[i]);
    UNROLL for (int i = 0; i < 2; i++)
        cut(bh[i], bl[i], b[i]);
    product8(c, al, bh);
    product8(c, ah, bl);
    product8(c, ah, bh);
}
/* c += a b in bfloat16, 16 x 16 by 16 x 8. */
INLINE void product16(float *c, const u32 *a, const u32 *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
        " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* d[x][y][i][j] = sum over k of a[x][i][k] b[y][j][k] exp(G[i][k] - G[j][k]),
 * i >= j; the rest is anything. before: a's sums are those of the token
 * before; BEFORE: they may be. A warp has 16 rows, decayed from the sum before
 * them; b's are decayed to the end of their block of 16 (anchored), and what
 * lies between goes onto a. So no exponent is above 0 except in a warp's own
 * block: that one is worked out pair by pair where the gates are strong. It is
 * in tf32, a lane's two columns next to each other, those of a step, taken as
 * 0 2 4 6 1 3 5 7; the blocks below are in bfloat16.
 *
 * A warp's own block is LAST; TWO: or that is the one before, of another warp.
 * Then the own block is made as LAST, and goes to its place in the end, where
 * there is one too many of those below. */
template<int K, int BEFORE, int A, int B, int LAST, bool TWO>
INLINE void gated_rows(float (&d)[A * B][32], const u32 (&ta)[A],
                       const u32 (&tb)[B], const u32 (&anchored)[B],
                       u32 gate, int before, const Lane &l)
{
    const int lane = fresh(l.lane), warp = TWO ? l.warp : LAST;
    const u32 place = piece_of(lane & 15, lane >> 4);
    const u32 start = gate_row<K>(gate, 16 * warp) + 4 * l.col;
    const u32 here = gate_row<K>(gate, l.row + 1) + 4 * l.col;
    NO_UNROLL for (int k = 0; k < K; k += 16) {
        const u32 piece = (k >> 6) * 8192 + (place ^ (k >> 3 & 7) * 16);
        const u32 own = piece + 2048 * warp;
        u32 x[A][4], y[B][4];
        UNROLL for (int i = 0; i < A; i++)
            ldmatrix(ta[i] + own, x[i]);
        UNROLL for (int i = 0; i < B; i++)
            ldmatrix(tb[i] + own, y[i]);
        float2 from[2], a[A][4];
        u32 b[B][4][2];
        UNROLL for (int n = 0; n < 4; n++) {
            const u32 at = here + 4 * k + 32 * (n >> 1)
                         + 32 * (n & 1) * (K + 8);
            const float2 sum = load2(at);
            if (n % 2 == 0)
                from[n / 2] = times_log2e(load2(start + 4 * k + 16 * n));
            const float2 to = decay_to({ from[n / 2].x + 2 * LOG2_CUT,
                                         from[n / 2].y + 2 * LOG2_CUT }, sum);
            const float2 f = decay_from(BEFORE
                ? load2(at - before * 4 * (K + 8)) : sum, from[n / 2]);
            UNROLL for (int i = 0; i < A; i++)
                a[i][n] = { low(x[i][n]) * f.x, high(x[i][n]) * f.y };
            UNROLL for (int i = 0; i < B; i++) {
                b[i][n][0] = bits_of(low(y[i][n]) * to.x);
                b[i][n][1] = bits_of(high(y[i][n]) * to.y);
            }
        }
        UNROLL for (int n = 0; n < 4; n++)
            UNROLL for (int i = 0; i < A; i++) {
                const float2 p = a[i][n & 2], q = a[i][(n & 2) + 1];
                const u32 c[4] = { bits_of(p.x), bits_of(q.x), bits_of(p.y),
                                   bits_of(q.y) };
                UNROLL for (int j = 0; j < B; j++)
                    product8(d[i * B + j] + 8 * LAST + 4 * (n & 1), c,
                             b[j][n]);
            }
        UNROLL for (int u = LAST - 1; u >= 0; u--) {
            u32 c[A][4];
            UNROLL for (int n = 0; n < 4; n++) {
                float2 g = { 1.f, 1.f };
                if (u + 1 < LAST)
                    g = decay_to(from[n / 2],
                                 load2(gate_row<K>(gate, 16 * u + 16)
                                       + 4 * l.col + 4 * k + 32 * (n / 2)));
                UNROLL for (int i = 0; i < A; i++)
                    c[i][n] = pack_wide(a[i][n].x * g.x, a[i][n].y * g.y);
            }
            UNROLL for (int j = 0; j < B; j++) {
                u32 r[4];
                ldmatrix(anchored[j] + 2048 * u + piece, r);
                UNROLL for (int n = 0; n < 2; n++)
                    UNROLL for (int i = 0; i < A; i++) {
                        const u32 y[2] = { r[n], r[n + 2] };
                        product16(d[i * B + j] + 8 * u + 4 * n, c[i], y);
                    }
            }
        }
    }
    if (warp < LAST)
        UNROLL for (int x = 0; x < A * B; x++)
            UNROLL for (int e = 0; e < 8; e++)
                d[x][8 * (LAST - TWO) + e] = d[x][8 * LAST + e];
}
