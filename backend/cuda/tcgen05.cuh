/* tcgen05.cuh -- products on Blackwell's tensor cores, whose sums lie in tensor
 * memory: 128 lanes of 512 columns of 32 bits. A block asks for some columns;
 * an address is a lane, shifted by 16, and a column. After device.cuh.
 *
 * A product of 64 rows leaves row r in lane 32 (r / 16) + r % 16, or 16 lanes
 * further on. Warp w of a warpgroup reaches lanes 32 w to 32 w + 31, and finds
 * there its rows of a fragment, as products of registers leave them. Two
 * warpgroups have both halves of the same columns.
 *
 * One thread of a warpgroup asks for its products. They go on by themselves
 * until a barrier says that they have ended.
 */

/* By a warp: COLUMNS of tensor memory, and where they are at `to`. Waits while
 * other blocks have them. */
template<int COLUMNS> INLINE void tensor_alloc(u32 to)
{
    __syncwarp();
    asm volatile(
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n"
        "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
        :: "r"(to), "n"(COLUMNS) : "memory");
}
template<int COLUMNS> INLINE void tensor_free(u32 at)
{
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;"
                 :: "r"(at), "n"(COLUMNS) : "memory");
}
/* What this thread has done in tensor memory comes before what others do there
 * that meet it next; what others have done that it met comes before what it
 * does. */
INLINE void tensor_before()
{
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
INLINE void tensor_after()
{
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}
/* Where tensor_alloc left them. */
INLINE u32 tensor_at(u32 from)
{
    u32 at;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(at) : "r"(from) : "memory");
    return at;
}
/* The barrier is told once all that this thread has asked for has ended. */
INLINE void tensor_commit(u32 barrier)
{
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one"
                 ".shared::cluster.b64 [%0];" :: "r"(barrier) : "memory");
}
/* One K step; add: to what is there. */
INLINE void tensor_product(u32 d, u64 a, u64 b, u32 shape, int add)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;}"
        :: "r"(d), "l"(a), "l"(b), "r"(shape), "r"(add) : "memory");
}

/* ---- a fragment's numbers, by each warp ---- */

#define T4(x, o) x(d[o]), x(d[o + 1]), x(d[o + 2]), x(d[o + 3])
#define T8(x, o) T4(x, o), T4(x, o + 4)
#define T16(x, o) T8(x, o), T8(x, o + 8)
#define T32(x, o) T16(x, o), T16(x, o + 16)
#define P4 "%0,%1,%2,%3"
#define P8 P4 ",%4,%5,%6,%7"
#define P16 P8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define P32 P16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
    "%30,%31"
/* REGS numbers of a thread: 2 REGS columns. They come, and are gone, by the
 * next wait for such. */
#define TENSOR_MOVE(REGS, TIMES)                                             \
INLINE void tensor_load(float (&d)[REGS], u32 at)                            \
{                                                                            \
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x" #TIMES ".b32 {" P##REGS \
                 "}, [%" #REGS "];" : T##REGS("=f", 0) : "r"(at));           \
}                                                                            \
INLINE void tensor_store(u32 at, const float (&d)[REGS])                     \
{                                                                            \
    asm volatile("tcgen05.st.sync.aligned.16x256b.x" #TIMES ".b32 [%" #REGS  \
                 "], {" P##REGS "};" :: T##REGS("f", 0), "r"(at)             \
                 : "memory");                                                \
}
TENSOR_MOVE(4, 1)
TENSOR_MOVE(8, 2)
TENSOR_MOVE(16, 4)
TENSOR_MOVE(32, 8)
INLINE void tensor_loaded()
{
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}
INLINE void tensor_stored()
{
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}
/* What was loaded is used behind the wait. */
template<int N> INLINE void keep(float (&x)[N])
{
    UNROLL for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(x[i]) :: "memory");
}

constexpr int moved_at_once(int n)
{
    return n % 32 == 0 ? 32 : n % 16 == 0 ? 16 : n % 8 == 0 ? 8 : 4;
}
/* This warp's lanes, of an address of its warpgroup's. */
INLINE u32 own_lanes(u32 at) { return at + ((threadIdx.x >> 5 & 3) << 21); }
/* A fragment from 2 N columns, or into them: tensor_loaded and tensor_stored
 * end it. */
template<int N> INLINE void read_sums(float (&x)[N], u32 at)
{
    constexpr int EACH = moved_at_once(N);
    UNROLL for (int i = 0; i < N; i += EACH)
        tensor_load((float (&)[EACH])x[i], own_lanes(at) + 2 * i);
}
template<int N> INLINE void write_sums(u32 at, const float (&x)[N])
{
    constexpr int EACH = moved_at_once(N);
    UNROLL for (int i = 0; i < N; i += EACH)
        tensor_store(own_lanes(at) + 2 * i, (const float (&)[EACH])x[i]);
}

/* ---- products of tiles ---- */

/* Of a warpgroup: the first of its columns; the barrier that says that its
 * products have ended, and how often it did. */
struct Products { u32 sums, ended, times; };
/* Of the block's warpgroup `group`, which has EACH columns; `place`: what the
 * block's columns are, and behind it a barrier for each warpgroup. */
template<int EACH> INLINE Products products_at(u32 place, int group)
{
    return { tensor_at(place) + (group & 1) * (16 << 16) + (group >> 1) * EACH,
             place + 8 + 8 * group, 0 };
}
/* Behind this, or where warps meet between the same fences, products may be
 * asked for: all warps have written what these add to, and read what they write
 * over. */
INLINE void products_begin()
{
    tensor_before();
    warpgroup_sync();
    tensor_after();
}
INLINE void products_end(Products &t)
{
    if (threadIdx.x % 128 == 0)
        tensor_commit(t.ended);
    __syncwarp();
    wait(t.ended, t.times++ & 1);
    tensor_after();
}

/* A matrix in shared memory as an operand at a K step: wgmma's, with the bits
 * that tell it from that. */
template<int ACROSS>
INLINE u64 tensor_operand(u32 tile, int rows, int from, int step)
{
    const int piece = rows * 128;
    const u32 at = ACROSS ? tile + from / 64 * piece + from % 64 * 2
                            + step * 2048
                          : tile + from * 128 + step / 4 * piece
                            + step % 4 * 32;
    return (u64)((at & 0x3ffff) >> 4) | (u64)(piece >> 4) << 16
         | (u64)(1024 >> 4) << 32 | (u64)1 << 46 | (u64)2 << 61;
}
#ifdef ELEMENT_F16
#define TENSOR_TYPE 0
#else
#define TENSOR_TYPE 1
#endif
/* The columns from d on (+)= a b, or -= a b: 64 rows from `row`, COLS columns
 * from `col` on, over 16 STEPS. By one thread. */
template<int ACROSS_A, int ACROSS_B, int STEPS, int ADDS, int MINUS, int COLS>
INLINE void multiply_tiles(u32 d, u32 a, int rows_a, int row, u32 b,
                           int rows_b, int col)
{
    constexpr u32 SHAPE = 1 << 4 | TENSOR_TYPE << 7 | TENSOR_TYPE << 10
                        | MINUS << 13 | ACROSS_A << 15 | ACROSS_B << 16
                        | COLS / 8 << 17 | 64 / 16 << 24;
    if (threadIdx.x % 128 == 0)
        UNROLL for (int k = 0; k < STEPS; k++)
            tensor_product(d, tensor_operand<ACROSS_A>(a, rows_a, row, k),
                           tensor_operand<ACROSS_B>(b, rows_b, col, k), SHAPE,
                           ADDS || k > 0);
    __syncwarp();
}
