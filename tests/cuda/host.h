/* host.h -- a block of a GPU on the host: what numbers.cuh and warp.cuh take
 * from CUDA, for the sources that cuda_tiles prints as plain C++. Threads are
 * fibers, which take turns at barriers and where a warp acts together; what
 * they do wrong there is said, and counted in `faults`. What is not inline is
 * in host.cc, a library that all of them share.
 *
 * Compiled with -fsanitize=thread, and without its library, each access to
 * memory is looked at, too: two threads must not meet at a place between two
 * barriers, nor two blocks in a launch, if one writes; and pieces of 4, 8 and
 * 16 bytes are to start at multiples of that.
 *
 * No header of C++ is included: those of C take it a tenth of a second.
 */
#ifndef HOST
#define HOST
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern "C" {
float exp2f(float), expf(float), log2f(float), sqrtf(float), sinf(float),
      cosf(float), floorf(float), rintf(float), fabsf(float),
      fmaf(float, float, float), fmaxf(float, float), fminf(float, float),
      copysignf(float, float);
}

#define __device__
#define __global__
#define __grid_constant__
#define __shared__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define NO_UNROLL
#define UNROLL_TWICE
#define UNROLL_FOUR
#define UNROLL_EIGHT
#define UNROLL
#define PLAIN __attribute__((no_sanitize("thread")))

struct Index { int x; };
struct alignas(8) float2 { float x, y; };
extern volatile Index threadIdx, blockIdx, gridDim;
extern int faults;

void fault(const char *what);

enum { ARENA = 1 << 18, WARP_SIZE = 32 };

/* f(ud) by all threads of each block, whose shared memory begins as NaN. */
void launch(long grid, int threads, char *arena, void (*f)(void *), void *ud);

/* A type without its const. */
template<class T> struct Bare { typedef T type; };
template<class T> struct Bare<const T> { typedef T type; };

PLAIN inline void atomicMin(unsigned long long *p, unsigned long long x)
{
    *p = x < *p ? x : *p;
}
void __syncthreads();

/* ---- numbers ---- */

PLAIN inline float bits(unsigned x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}
PLAIN inline unsigned bits_of(float x)
{
    unsigned y;
    memcpy(&y, &x, sizeof y);
    return y;
}
PLAIN inline float exp2_(float x) { return exp2f(x); }
PLAIN inline float log2_(float x) { return log2f(x); }
PLAIN inline float log2_normal_(float x) { return log2f(x); }
PLAIN inline float __fsqrt_rn(float x) { return sqrtf(x); }
PLAIN inline float __frsqrt_rn(float x) { return 1 / sqrtf(x); }
PLAIN inline float __fdividef(float a, float b) { return a / b; }
PLAIN inline float inverse_(float x) { return 1 / x; }
PLAIN inline float quotient_(float a, float b) { return a / b; }
float half_to_float(unsigned short h);
unsigned short float_to_half(float x);
PLAIN inline unsigned to_bf16(float x)
{
    const unsigned u = bits_of(x);
    return x == x ? (u + 0x7fff + (u >> 16 & 1)) >> 16 : 0x7fff;
}
PLAIN inline unsigned pack(float2 x)
{
    return to_bf16(x.x) | to_bf16(x.y) << 16;
}
PLAIN inline unsigned to_tf32(float x)
{
    return x - x == 0 ? (bits_of(x) + 0x1000) & 0xffffe000 : bits_of(x);
}
#define __sinf sinf
#define __cosf cosf
template<class T> PLAIN inline T min(T a, T b) { return a < b ? a : b; }
template<class T> PLAIN inline T max(T a, T b) { return a > b ? a : b; }

/* ---- what a warp does together ---- */

enum Together { UP, XOR, OF, SUM, ANY, TF32_STEP, BF16_STEP, TILES, ORDER };

/* What a thread brings to an act of its warp. */
struct Part {
    Together act;
    int by;
    float x;
    float *c;
    unsigned a[4], b[2];
};
float together(Part *part);

PLAIN inline int thread_here() { return threadIdx.x; }
PLAIN inline int blocks_here() { return gridDim.x; }
PLAIN inline int fresh(int x) { return x; }
template<class T> PLAIN inline T *global(T *p) { return p; }
PLAIN inline float lane_up(float x, int by)
{
    Part p = { UP, by, x };
    return together(&p);
}
/* What two floats hold of it. */
PLAIN inline double lane_up(double x, int by)
{
    const float high = (float)x, low = (float)(x - high);
    const float up = lane_up(high, by);
    return (double)up + lane_up(low, by);
}
PLAIN inline float lane_xor(float x, int by)
{
    Part p = { XOR, by, x };
    return together(&p);
}
template<int W> PLAIN inline float lane_of(float x, int i)
{
    Part p = { OF, (int)threadIdx.x % 32 / W * W + i, x };
    return together(&p);
}
template<int W> PLAIN inline float lane_sum(float x)
{
    Part p = { SUM, W, x };
    return together(&p);
}
PLAIN inline bool warp_any(bool x)
{
    Part p = { ANY, 0, (float)x };
    return together(&p) != 0;
}
PLAIN inline void __syncwarp()
{
    Part p = { ORDER };
    together(&p);
}
PLAIN inline void mma_tf32(float c[4], const unsigned a[4], unsigned b0,
                           unsigned b1)
{
    Part p = { TF32_STEP, 0, 0, c, { a[0], a[1], a[2], a[3] }, { b0, b1 } };
    together(&p);
}
PLAIN inline void mma_bf16(float c[4], const unsigned a[4], unsigned b0,
                           unsigned b1)
{
    Part p = { BF16_STEP, 0, 0, c, { a[0], a[1], a[2], a[3] }, { b0, b1 } };
    together(&p);
}
/* by: whether transposed; b: the row, as a lane's part holds a piece of it. */
struct alignas(16) Row { unsigned x[4]; };
typedef const char *Shared;
PLAIN inline Shared shared_at(const void *p) { return (Shared)p; }
template<bool TURNED> inline void load_tiles(unsigned x[4], Shared row)
{
    Part p = { TILES, TURNED };
    const Row own = *(const Row *)row;
    memcpy(p.a, own.x, 16);
    together(&p);
    memcpy(x, p.a, 16);
}

/* ---- copies ---- */

template<class P> inline void copy_ahead(P *to, const P *from)
{
    *to = *from;
}
inline void copy_commit() {}
template<class P> inline void store_last(P *to, P x) { *to = x; }
template<class P> inline P load_last(const P *from) { return *from; }
inline void let_follow() {}
inline void follow() {}
template<int LEFT> inline void copy_wait() {}
#endif
