/* host.h -- what CUDA has built in, for one thread of the host: numbers.cuh,
 * tile.cuh and the sources that stand on them are then plain C++. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define HOST
#define __device__
#define __global__
#define __grid_constant__
#define __shared__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define NO_UNROLL
#define UNROLL

struct Index { int x; };
static const Index threadIdx = { 0 };
static Index blockIdx, gridDim;
static inline void __syncthreads() {}

enum { LANES = 1 };
static inline float bits(unsigned x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned bits_of(float x)
{
    unsigned y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline float exp2_(float x) { return exp2f(x); }
static inline float log2_(float x) { return log2f(x); }
static inline float half_to_float(unsigned short h)
{
    _Float16 x;
    memcpy(&x, &h, sizeof x);
    return (float)x;
}
static inline unsigned short float_to_half(float x)
{
    _Float16 h = (_Float16)x;
    unsigned short y;
    memcpy(&y, &h, sizeof y);
    return y;
}
static inline float lane_up(float x, int) { return x; }
static inline float warp_sum(float x) { return x; }
static inline bool warp_any(bool x) { return x; }
#define __sinf sinf
#define __cosf cosf
template<class T> static inline T min(T a, T b) { return a < b ? a : b; }
template<class T> static inline T max(T a, T b) { return a > b ? a : b; }
