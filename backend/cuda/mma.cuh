/* mma.cuh -- products of tiles by mma.sync, with the accumulators that wgmma
 * has: warp w of a warpgroup has rows 16 w to 16 w + 15 of 64. After
 * device.cuh.
 */

/* c += a b: 16 x 16 by 16 x 8. */
INLINE void product_step(float *c, const u32 *a, const u32 *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." ELEMENT "." ELEMENT
        ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Row r, column c of a tile of `rows` rows; the same at a K step of an operand
 * whose first that is. ACROSS: the contracted axis runs along its rows. */
INLINE u32 cell(u32 tile, int rows, int r, int c)
{
    return tile + c / 64 * rows * 128 + r * 128
         + ((c % 64 / 8 ^ (r & 7)) * 16);
}
template<int ACROSS> INLINE u32 step_of(u32 at, int rows, int step)
{
    return ACROSS ? at + 2048 * step
                  : (at ^ 32 * (step % 4)) + step / 4 * rows * 128;
}
template<int ACROSS> INLINE void read_step(u32 at, u32 *x)
{
    if (ACROSS)
        ldmatrix_t(at, x);
    else
        ldmatrix(at, x);
}
/* What a lane names to ldmatrix: of 16 rows of the result from `from` on; of 16
 * columns. */
template<int ACROSS> INLINE u32 left_at(u32 tile, int rows, int from, int lane)
{
    const int own = lane & 15, half = lane >> 4 << 3;
    return ACROSS ? cell(tile, rows, (lane & 7) + half, from + (lane & 8))
                  : cell(tile, rows, from + own, half);
}
template<int ACROSS> INLINE u32 right_at(u32 tile, int rows, int from, int lane)
{
    const int own = lane & 15, half = lane >> 4 << 3;
    return ACROSS ? cell(tile, rows, own, from + half)
                  : cell(tile, rows, from + (lane & 7) + half, lane & 8);
}
/* Of the j-th 16 columns at that K step, `at` being the first's at the first:
 * so many columns begin at a multiple of their number, or of 64. */
template<int ACROSS> INLINE u32 right_step(u32 at, int rows, int j, int step)
{
    return ACROSS ? (at ^ 32 * (j % 4)) + j / 4 * rows * 128 + 2048 * step
                  : (at ^ 32 * (step % 4)) + step / 4 * rows * 128 + 2048 * j;
}
/* d = a b, or d += a b, or d -= a b: 64 rows from `row`, of which there are
 * HAS, 2 REGS columns from `col` on, over 16 STEPS. */
template<int ACROSS_A, int ACROSS_B, int STEPS, int ADDS, int MINUS,
         int HAS = 64, int REGS>
INLINE void multiply_tiles(float (&d)[REGS], u32 a, int rows_a, int row,
                           u32 b, int rows_b, int col)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
    const u32 left = left_at<ACROSS_A>(a, rows_a, row + 16 * warp, lane);
    const u32 right = right_at<ACROSS_B>(b, rows_b, col, lane);
    UNROLL for (int i = 0; i < REGS && !ADDS; i++)
        d[i] = 0;
    if (HAS < 64 && 16 * warp >= HAS)
        return;
    UNROLL for (int k = 0; k < STEPS; k++) {
        u32 x[4];
        read_step<ACROSS_A>(step_of<ACROSS_A>(left, rows_a, k), x);
        UNROLL for (int i = 0; i < 4 && MINUS; i++)
            x[i] ^= 0x80008000;
        UNROLL for (int j = 0; j < REGS / 8; j++) {
            u32 y[4];
            read_step<ACROSS_B>(right_step<ACROSS_B>(right, rows_b, j, k), y);
            product_step(d + 8 * j, x, y);
            product_step(d + 8 * j + 4, x, y + 2);
        }
    }
}
