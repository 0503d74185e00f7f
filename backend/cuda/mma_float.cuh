/* mma_float.cuh -- products of tiles of float32 by mma.sync, as good as in
 * float32: each factor as the sum of two numbers of tf32. Beside tensors of
 * float16, which has no more bits, each is one. With the accumulators that
 * wgmma has. After schedule.cuh.
 *
 * A lane's two columns are next to each other: a step's are taken as
 * 0 2 4 6 1 3 5 7, of both factors.
 */

/* Of row r of the result, and both columns of a step from k on. ACROSS: the
 * contracted axis runs along the tile's rows. */
template<int ACROSS>
INLINE float2 factors_at(u32 tile, int rows, int r, int k)
{
    if (!ACROSS)
        return load2(place_of(tile, rows, r, k));
    return { load1(place_of(tile, rows, k, r)),
             load1(place_of(tile, rows, k + 1, r)) };
}
/* c += a b, 16 x 8 by 8 x 8. */
INLINE void product_float(float *c, const float (&a)[4], const float (&b)[2])
{
#ifdef ELEMENT_F16
    const u32 x[4] = { tf32(a[0]), tf32(a[1]), tf32(a[2]), tf32(a[3]) };
    const u32 y[2] = { tf32(b[0]), tf32(b[1]) };
    product8(c, x, y);
#else
    product_exact(c, a, b);
#endif
}
/* d = a b, or d += a b, or d -= a b: 64 rows from `row`, of which there are
 * HAS, 2 REGS columns from `col` on, over 16 STEPS. */
template<int ACROSS_A, int ACROSS_B, int STEPS, int ADDS, int MINUS,
         int HAS = 64, int REGS>
INLINE void multiply_tiles(float (&d)[REGS], u32 a, int rows_a, int row,
                           u32 b, int rows_b, int col)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
    const int own = lane >> 2, at = 2 * (lane & 3);
    UNROLL for (int i = 0; i < REGS && !ADDS; i++)
        d[i] = 0;
    if (HAS < 64 && 16 * warp >= HAS)
        return;
    NO_UNROLL for (int k = at; k < 16 * STEPS; k += 8) {
        const int r = row + 16 * warp + own;
        const float2 p = factors_at<ACROSS_A>(a, rows_a, r, k);
        const float2 q = factors_at<ACROSS_A>(a, rows_a, r + 8, k);
        const float sign = MINUS ? -1.f : 1.f;
        const float x[4] = { sign * p.x, sign * q.x, sign * p.y, sign * q.y };
        UNROLL for (int j = 0; j < REGS / 4; j++) {
            const float2 v = factors_at<ACROSS_B>(b, rows_b, col + 8 * j + own,
                                                  k);
            product_float(d + 4 * j, x, { v.x, v.y });
        }
    }
}
