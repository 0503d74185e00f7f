/* warp.cuh -- Ampere's instructions, and what the threads of a warp do
 * together. After numbers.cuh; with HOST defined, the includer brings all of
 * it (tests/cuda/device.h).
 */
enum { LANES = 32 };

/* 16 bytes, and what they hold. */
struct alignas(16) Piece { u32 x[4]; };

#ifndef HOST
/* ---- numbers ---- */

INLINE float half_to_float(u16 h)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(h));
    return y;
}
INLINE u16 float_to_half(float x)
{
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
INLINE u32 pack(float2 x)
{
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(x.y), "f"(x.x));
    return y;
}
INLINE u32 to_tf32(float x)
{
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

/* ---- lanes ---- */

/* This thread of the block. For the compiler another number each time: what is
 * made of one is not kept in a register over a whole walk. */
INLINE int thread_here()
{
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    __builtin_assume(t >= 0 && t < 1024);
    return t;
}

/* The grid's blocks; asked for anew, too. */
INLINE int blocks_here()
{
    int n;
    asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(n));
    return n;
}

/* x, which the compiler does not know for what it was before. */
INLINE int fresh(int x)
{
    int y;
    asm volatile("mov.b32 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

/* p, which points to global memory: compilers see that of what a kernel is
 * passed, but not in its parts. */
template<class T> INLINE T *global(T *p)
{
    __builtin_assume(__isGlobal(p));
    return p;
}

INLINE float lane_up(float x, int by)
{
    return __shfl_up_sync(0xffffffffu, x, by);
}
INLINE double lane_up(double x, int by)
{
    return __shfl_up_sync(0xffffffffu, x, by);
}
INLINE float lane_xor(float x, int by)
{
    return __shfl_xor_sync(0xffffffffu, x, by);
}
/* That of lane i of W neighbouring ones. */
template<int W> INLINE float lane_of(float x, int i)
{
    return __shfl_sync(0xffffffffu, x, i, W);
}
/* Over groups of W neighbouring lanes, for all of them. */
template<int W> INLINE float lane_sum(float x)
{
    UNROLL
    for (int by = W / 2; by; by /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}
INLINE bool warp_any(bool x) { return __any_sync(0xffffffffu, x); }

/* ---- copies ---- */

/* To shared memory, behind the threads' back. */
INLINE void copy_ahead(Piece *to, const Piece *from)
{
    asm volatile("{.reg .u64 a; .reg .u32 b; cvta.to.shared.u64 a, %0;"
        " cvt.u32.u64 b, a; cp.async.cg.shared.global [b], [%1], 16;}"
        :: "l"(to), "l"(from) : "memory");
}
INLINE void copy_ahead(float *to, const float *from)
{
    asm volatile("{.reg .u64 a; .reg .u32 b; cvta.to.shared.u64 a, %0;"
        " cvt.u32.u64 b, a; cp.async.ca.shared.global [b], [%1], 4;}"
        :: "l"(to), "l"(from) : "memory");
}
INLINE void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template<int LEFT> INLINE void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
}

/* From memory, and to it, of what nobody looks at for a while. */
INLINE Piece load_last(const Piece *from)
{
    Piece x;
    asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(x.x[0]), "=r"(x.x[1]), "=r"(x.x[2]), "=r"(x.x[3])
        : "l"(__cvta_generic_to_global(from)));
    return x;
}
INLINE void store_last(Piece *to, Piece x)
{
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
        :: "l"(__cvta_generic_to_global(to)), "r"(x.x[0]), "r"(x.x[1]),
           "r"(x.x[2]), "r"(x.x[3]) : "memory");
}

/* Of a kernel that was launched to follow closely: the next such one may begin
 * as well; from here on all that those before it do is done. */
INLINE void let_follow()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
INLINE void follow()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- products: c += a b, by all lanes ---- */

/* An address in shared memory. */
typedef u32 Shared;
INLINE Shared shared_at(const void *p)
{
    Shared at;
    asm("{.reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a;}"
        : "=r"(at) : "l"(p));
    return at;
}
/* Four tiles of 8 x 8 numbers of 16 bits: lane 8 t + r says where row r of
 * tile t is, and finds in x[t] its own pair of each. TURNED: each tile
 * transposed. */
template<bool TURNED> INLINE void load_tiles(u32 x[4], Shared row)
{
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
            " {%0,%1,%2,%3}, [%4];"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(row)
            : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16"
            " {%0,%1,%2,%3}, [%4];"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(row)
            : "memory");
}
INLINE void mma_tf32(float c[4], const u32 a[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},"
        " {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
INLINE void mma_bf16(float c[4], const u32 a[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},"
        " {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
