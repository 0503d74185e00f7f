/* wgmma.cuh -- products on Hopper's tensor cores. After device.cuh.
 */

INLINE void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
INLINE void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most LEFT groups are in flight. */
template<int LEFT> INLINE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory");
}
/* Holds values in their registers up to here: ptxas has been seen to reuse
 * those of an A operand before the product had read them. */
template<int N> INLINE void keep(float (&x)[N])
{
    UNROLL for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(x[i]) :: "memory");
}
template<int N> INLINE void keep(u32 (&x)[N])
{
    UNROLL for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(x[i]) :: "memory");
}

/* A matrix in shared memory as a product's operand. Along K: the rows are
 * the result's (or B's) and K runs along them. Across: K are the rows. */
INLINE u64 descriptor(u32 a, u32 lead)
{
    return (u64)((a & 0x3ffff) >> 4) | (u64)(lead >> 4) << 16
         | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
INLINE u64 along_k(u32 a) { return descriptor(a, 0); }
INLINE u64 step_along(u64 d, int k) { return d + (k / 4) * 512 + (k % 4) * 2; }
INLINE u64 step_across(u64 d, int k) { return d + k * 128; }

#define D8(o) "+f"(d[o]), "+f"(d[o + 1]), "+f"(d[o + 2]), "+f"(d[o + 3]), \
    "+f"(d[o + 4]), "+f"(d[o + 5]), "+f"(d[o + 6]), "+f"(d[o + 7])
#define D16 D8(0), D8(8)
#define D32 D16, D8(16), D8(24)
#define D64 D32, D8(32), D8(40), D8(48), D8(56)
#define P16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define P32 P16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
    "%30,%31"
#define P64 P32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44," \
    "%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61," \
    "%62,%63"

/* d (+)= a b for one K step; ACROSS: b's K are rows. `add` 0: d is not read. */
#define WGMMA(N, REGS, D, P, A, AB, ACC, TA, TB, X, Y)                       \
template<int ACROSS> INLINE void product(float (&d)[REGS], const u32 *a,     \
                                         u64 b, int add)                     \
{                                                                            \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " ACC ", 0;\n"               \
        "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." ELEMENT "." ELEMENT\
        " {" P "}, {" A "}, " AB ", p, 1, 1, " TA ";}\n"                     \
        : D : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),  \
              "n"(ACROSS));                                                  \
}                                                                            \
template<int ACROSS> INLINE void product(float (&d)[REGS], u64 a, u64 b,     \
                                         int add)                            \
{                                                                            \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " Y ", 0;\n"                 \
        "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." ELEMENT "." ELEMENT\
        " {" P "}, " X ", p, 1, 1, 0, " TB ";}\n"                            \
        : D : "l"(a), "l"(b), "r"(add), "n"(ACROSS));                        \
}
WGMMA(32, 16, D16, P16, "%16,%17,%18,%19", "%20", "%21", "%22", "%19",
      "%16, %17", "%18")
WGMMA(64, 32, D32, P32, "%32,%33,%34,%35", "%36", "%37", "%38", "%35",
      "%32, %33", "%34")
WGMMA(128, 64, D64, P64, "%64,%65,%66,%67", "%68", "%69", "%70", "%67",
      "%64, %65", "%66")

/* All K steps of a product: STEPS of 16. */
template<int STEPS, int ACROSS, int N>
INLINE void multiply(float (&d)[N], const u32 (&a)[4 * STEPS], u64 b, int add)
{
    UNROLL for (int k = 0; k < STEPS; k++)
        product<ACROSS>(d, a + 4 * k, ACROSS ? step_across(b, k)
                                             : step_along(b, k), add || k);
}
template<int STEPS, int ACROSS, int N>
INLINE void multiply(float (&d)[N], u64 a, u64 b, int add)
{
    UNROLL for (int k = 0; k < STEPS; k++)
        product<ACROSS>(d, step_along(a, k), ACROSS ? step_across(b, k)
                                                    : step_along(b, k),
                        add || k);
}

/* ---- products of tiles ---- */

/* One K step of both operands from shared memory; TA, TB: the contracted axis
 * runs along the operand's rows; SIGN: of the product. */
#define TILE_PRODUCT(N, REGS, D, P, A, B, ADD, TA, TB, SIGN)                 \
template<int ACROSS_A, int ACROSS_B, int MINUS>                              \
INLINE void tile_product(float (&d)[REGS], u64 a, u64 b, int add)            \
{                                                                            \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " ADD ", 0;\n"               \
        "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." ELEMENT "." ELEMENT\
        " {" P "}, " A ", " B ", p, " SIGN ", 1, " TA ", " TB ";}\n"         \
        : D : "l"(a), "l"(b), "r"(add), "n"(ACROSS_A), "n"(ACROSS_B),        \
              "n"(MINUS ? -1 : 1));                                          \
}
TILE_PRODUCT(16, 8, D8(0), "%0,%1,%2,%3,%4,%5,%6,%7", "%8", "%9", "%10",
             "%11", "%12", "%13")
TILE_PRODUCT(32, 16, D16, P16, "%16", "%17", "%18", "%19", "%20", "%21")
TILE_PRODUCT(64, 32, D32, P32, "%32", "%33", "%34", "%35", "%36", "%37")
TILE_PRODUCT(128, 64, D64, P64, "%64", "%65", "%66", "%67", "%68", "%69")

/* A descriptor in halves: steps along K change the first alone. */
struct Operand { u32 at, more; };
/* Of an operand that has its result's rows (or columns) from `from` on; `rows`:
 * of its tile. */
template<int ACROSS> INLINE Operand operand(u32 tile, int rows, int from)
{
    const int piece = rows * 128;
    const u64 d = descriptor(ACROSS ? tile + from / 64 * piece + from % 64 * 2
                                    : tile + from * 128, piece);
    return { (u32)d, (u32)(d >> 32) };
}
/* WHOLE: both are added to, which is one instruction where ptxas has them in
 * uniform registers, and more than two where it has not. */
template<int ACROSS, int WHOLE = 0>
INLINE u64 at_step(Operand o, int rows, int step)
{
    const u32 more = ACROSS ? step * 2048 : step / 4 * rows * 128
                                            + step % 4 * 32;
    return WHOLE ? (o.at | (u64)o.more << 32) + more / 16
                 : o.at + more / 16 | (u64)o.more << 32;
}
/* d = a b, or d += a b, or d -= a b: 64 rows from `row`, 2 REGS columns from
 * `col` on. */
template<int ACROSS_A, int ACROSS_B, int STEPS, int ADDS, int MINUS,
         int WHOLE = 0, int REGS>
INLINE void multiply_tiles(float (&d)[REGS], u32 a, int rows_a, int row,
                           u32 b, int rows_b, int col)
{
    const Operand x = operand<ACROSS_A>(a, rows_a, row);
    const Operand y = operand<ACROSS_B>(b, rows_b, col);
    UNROLL for (int k = 0; k < STEPS; k++)
        tile_product<ACROSS_A, ACROSS_B, MINUS>(
            d, at_step<ACROSS_A, WHOLE>(x, rows_a, k),
            at_step<ACROSS_B, WHOLE>(y, rows_b, k), ADDS || k > 0);
}

/* One K step of a left factor in registers. */
#define PACKED_PRODUCT(N, REGS, D, P, A, B, ADD, TB, SIGN)                   \
template<int ACROSS, int MINUS>                                              \
INLINE void packed_product(float (&d)[REGS], const u32 *a, u64 b, int add)   \
{                                                                            \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " ADD ", 0;\n"               \
        "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." ELEMENT "." ELEMENT\
        " {" P "}, {" A "}, " B ", p, " SIGN ", 1, " TB ";}\n"               \
        : D : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),  \
              "n"(ACROSS), "n"(MINUS ? -1 : 1));                             \
}
PACKED_PRODUCT(16, 8, D8(0), "%0,%1,%2,%3,%4,%5,%6,%7", "%8,%9,%10,%11",
               "%12", "%13", "%14", "%15")
PACKED_PRODUCT(32, 16, D16, P16, "%16,%17,%18,%19", "%20", "%21", "%22", "%23")
PACKED_PRODUCT(64, 32, D32, P32, "%32,%33,%34,%35", "%36", "%37", "%38", "%39")
PACKED_PRODUCT(128, 64, D64, P64, "%64,%65,%66,%67", "%68", "%69", "%70",
               "%71")

/* The same as multiply_tiles does, of a left factor of 64 rows in registers. */
template<int ACROSS, int STEPS, int ADDS, int MINUS, int WHOLE = 0, int REGS>
INLINE void multiply_packed(float (&d)[REGS], const u32 *a, u32 b, int rows_b,
                            int col)
{
    const Operand y = operand<ACROSS>(b, rows_b, col);
    UNROLL for (int k = 0; k < STEPS; k++)
        packed_product<ACROSS, MINUS>(d, a + 4 * k,
                                      at_step<ACROSS, WHOLE>(y, rows_b, k),
                                      ADDS || k > 0);
}
