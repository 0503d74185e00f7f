/* first.cuh -- products of matrices that are rounded, in the first 16 rows of
 * a sequence: what the rounding has cut off; or, with gates per key, a diagonal
 * without it. After gates.cuh.
 *
 * A matrix's cut lies as two-byte pairs, 16 rows of 64 columns a piece of
 * 2 KiB, swizzled like a tile.
 */

INLINE u32 cut_place(u32 cut, int i, int k)
{
    return cut + (k >> 6) * 2048 + piece_of(i, k >> 3 & 7) + (k & 7) * 2;
}
/* Of row i, columns k and k + 1. */
INLINE void store_cut(u32 cut, int i, int k, bool real, float x, float y)
{
    const u32 p = pack(x, y);
    const u32 rest = pack(x - low(p), y - high(p));
    store1(cut_place(cut, i, k), bits(real ? rest : 0));
}
INLINE void add_step(float (&d)[8], const u32 (&x)[2], const u32 (&y)[2])
{
    const u32 a[4] = { x[0] << 16, x[1] << 16, x[0] & 0xffff0000u,
                       x[1] & 0xffff0000u };
    UNROLL for (int n = 0; n < 2; n++) {
        const u32 b[2] = { y[n] << 16, y[n] & 0xffff0000u };
        product8(d + 4 * n, a, b);
    }
}
/* a's cut times b and a times b's cut, over columns [from, to); CUT_A, CUT_B:
 * whether there is one. A warp does it, its lanes each for their part of a
 * fragment's first 16 rows and columns. */
template<int CUT_A, int CUT_B>
INLINE void first_products(u32 at, u32 a, u32 cut_a, u32 b, u32 cut_b,
                           int from, int to, const Lane &l)
{
    float d[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    const int lane = fresh(l.lane), row = lane & 15;
    NO_UNROLL for (int k4 = from; k4 < to; k4 += 32)
        UNROLL for (int k = k4; k < k4 + 32; k += 8) {
            const u32 whole = (k >> 6) * 8192 + piece_of(row, k >> 3 & 7);
            u32 x[2], y[2], cut[2];
            if (CUT_A) {
                ldmatrix2(cut_place(cut_a, row, k), cut);
                ldmatrix2(b + whole, y);
                add_step(d, cut, y);
            }
            if (CUT_B) {
                ldmatrix2(a + whole, x);
                ldmatrix2(cut_place(cut_b, row, k), cut);
                add_step(d, x, cut);
            }
        }
    UNROLL for (int i = 0; i < 4; i++)
        store2(at + 256 * i + 8 * lane, d[2 * i], d[2 * i + 1]);
}
/* To the fragment of such a product; PAIRED: two blocks had half of the
 * columns each. */
template<bool PAIRED, int N>
INLINE void add_first(float (&d)[N], u32 at, const Lane &l)
{
    const int lane = fresh(l.lane);
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int half = 0; half <= PAIRED; half++) {
            const float2 x = load2(at + 1024 * half + 256 * i + 8 * lane);
            d[2 * i] += x.x;
            d[2 * i + 1] += x.y;
        }
}
/* The diagonal of a product's first 16 rows: so many warps have summed up each
 * row, each for its columns. */
template<int WARPS>
INLINE void put_diagonal(float (&d)[32], u32 at, const Lane &l)
{
    const int lane = fresh(l.lane), row = lane >> 2;
    if (row >> 1 == (lane & 3))
        UNROLL for (int half = 0; half < 2; half++) {
            float sum = 0;
            UNROLL for (int w = 0; w < WARPS; w++)
                sum += load1(at + 64 * w + 32 * half + 4 * row);
            if (row & 1)
                d[6 * half + 1] = sum;
            else
                d[6 * half] = sum;
        }
}
