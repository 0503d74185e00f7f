/* inverse.cuh -- (1 - a)^{-1} for a strictly lower 64 x 64 matrix: the delta
 * rule's solve. After device.cuh.
 *
 * a in float32 at s, in padded rows of INVERSE_LD. Blocks of 16 on the
 * diagonal by substitution, a warp each, in their place; the others in tf32:
 * with X the inverse, T its diagonal and Y X's transpose,
 *   Y[j][i] = (sum over j <= k < i of Y[j][k] a[i][k]^T) T[i]^T,
 * warp j all of row j, in registers: with the columns taken as 0 2 4 6 1 3 5 7
 * a fragment of a result is one of a left operand. */
constexpr int INVERSE_LD = 72, INVERSE_BYTES = 64 * INVERSE_LD * 4;

INLINE u32 entry(u32 s, int i, int j)
{
    return s + 4 * (i * INVERSE_LD + j);
}
INLINE u32 tf32(float x)
{
    u32 r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}
/* c += y b^T for the 16 x 16 block b. */
INLINE void product_block(float (&c)[8], const u32 (&y)[8], u32 b, int lane)
{
    const u32 at = entry(b, lane >> 2, 2 * (lane & 3));
    UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int k = 0; k < 2; k++) {
            const float2 v = load2(entry(at, 8 * n, 8 * k));
            asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
                " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(c[4 * n]), "+f"(c[4 * n + 1]), "+f"(c[4 * n + 2]),
                  "+f"(c[4 * n + 3])
                : "r"(y[4 * k]), "r"(y[4 * k + 2]), "r"(y[4 * k + 1]),
                  "r"(y[4 * k + 3]), "r"(tf32(v.x)), "r"(tf32(v.y)));
        }
}
/* The block at b: a lane a column, each entry from those above it. */
INLINE void invert_block(u32 b, int lane)
{
    float x[16];
    UNROLL for (int i = 0; i < 16; i++) {
        x[i] = i == (lane & 15) ? 1.f : 0.f;
        UNROLL for (int j = 0; j < i; j += 4) {
            const float4 a = load4(entry(b, i, j));
            x[i] = fmaf(a.x, x[j], x[i]);
            x[i] = j + 1 < i ? fmaf(a.y, x[j + 1], x[i]) : x[i];
            x[i] = j + 2 < i ? fmaf(a.z, x[j + 2], x[i]) : x[i];
            x[i] = j + 3 < i ? fmaf(a.w, x[j + 3], x[i]) : x[i];
        }
    }
    __syncwarp();
    if (lane < 16)
        UNROLL for (int i = 0; i < 16; i++)
            store1(entry(b, i, lane), x[i]);
}
/* The transpose of a 16 x 16 block, as a fragment. */
INLINE void read_block(float (&c)[8], u32 b, int lane)
{
    const u32 at = entry(b, 2 * (lane & 3), lane >> 2);
    UNROLL for (int e = 0; e < 8; e++)
        c[e] = load1(entry(at, 8 * (e >> 2) + (e & 1), 8 * (e >> 1 & 1)));
}
/* Writes the transpose of block c as block (i, j) of a tile. */
INLINE void write_block(u32 tile, const float (&c)[8], int i, int j, int lane)
{
    u32 p[4];
    pack(p, c);
    const int row = 16 * i + (lane & 7) + 8 * (lane >> 4);
    const int piece = 2 * j + (lane >> 3 & 1);
    stmatrix_t(tile + row * 128 + ((piece ^ (row & 7)) * 16), p);
}
/* The inverse goes to a tile. The warpgroup does it together; each warp has
 * written its own rows of a. */
INLINE void invert(u32 tile, u32 s, const Lane &l)
{
    u32 y[4][8];
    const int lane = fresh(l.lane);
    __syncwarp();
    invert_block(entry(s, 16 * l.warp, 16 * l.warp), lane);
    warpgroup_sync();
    UNROLL for (int i = 0; i < 4; i++) {
        float c[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
        if (i == l.warp)
            read_block(c, entry(s, 16 * i, 16 * i), lane);
        if (i > l.warp) {
            float sum[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
            u32 row[8];
            UNROLL for (int k = 0; k < i; k++)
                if (k >= l.warp)
                    product_block(sum, y[k], entry(s, 16 * i, 16 * k), lane);
            UNROLL for (int e = 0; e < 8; e++)
                row[e] = tf32(sum[e]);
            product_block(c, row, entry(s, 16 * i, 16 * i), lane);
        }
        UNROLL for (int e = 0; e < 8; e++)
            y[i][e] = tf32(c[e]);
        write_block(tile, c, i, l.warp, lane);
    }
}
