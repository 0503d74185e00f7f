/* numbers.cuh -- the types, and the numbers' functions, of every generated
 * source: first of its headers. Includes nothing.
 *
 * With HOST defined it is plain C++, whose includer brings what CUDA has built
 * in (tests/cuda/host.h).
 */
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;

#define INLINE static __device__ __forceinline__
#define CALLED static __device__ __noinline__
#define INLINE_MEMBER __device__ __forceinline__

/* Tokens [start, start + len) of batch entry b. */
struct Sequence { int b, pad; i64 start, len; };

/* What numbers are divided by, of which there are many: n, and 2^32 / n without
 * what is behind the point, or, for 1, one less. */
struct Divisor { u32 n, share; };

/* x / d.n, and what is left: the share of x is that, or one less. */
INLINE u32 divided_by(u32 x, const Divisor &d, u32 &left)
{
    const u32 least = (u32)((u64)x * d.share >> 32), rest = x - least * d.n;
    left = rest < d.n ? rest : rest - d.n;
    return least + (rest >= d.n);
}

#ifndef HOST
#define NO_UNROLL _Pragma("unroll 1")
#define UNROLL _Pragma("unroll")
#define UNROLL_TWICE _Pragma("unroll 2")
#define UNROLL_FOUR _Pragma("unroll 4")
#define UNROLL_EIGHT _Pragma("unroll 8")

/* x as a float with these bits: literals do not depend on a locale. */
INLINE float bits(u32 x) { return __uint_as_float(x); }
INLINE u32 bits_of(float x) { return __float_as_uint(x); }
INLINE float exp2_(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
INLINE float log2_(float x)
{
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* The same of numbers that are none below 2^-126. */
INLINE float log2_normal_(float x)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
INLINE float inverse_(float a)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
    return y;
}
/* a / b to 2 units in the last place, for all floats, and without a branch. */
INLINE float quotient_(float a, float b)
{
    float y;
    asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
/* NaN if either is. */
INLINE float min_(float a, float b)
{
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
INLINE float max_(float a, float b)
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
#else
INLINE float min_(float a, float b) { return a != a || a < b ? a : b; }
INLINE float max_(float a, float b) { return a != a || a > b ? a : b; }
#endif

#define LOG2E bits(0x3fb8aa3b)
#define LN2   bits(0x3f317218)
INLINE float exp_(float a) { return exp2_(a * LOG2E); }
INLINE float log_(float a) { return log2_(a) * LN2; }
INLINE float log_normal_(float a) { return log2_normal_(a) * LN2; }
INLINE float abs_(float a) { return fabsf(a); }
INLINE float sign_(float a) { return a > 0 ? 1.f : a < 0 ? -1.f : a; }
INLINE float floor_(float a) { return floorf(a); }
/* a less the nearest multiple of 2 pi, in two steps */
INLINE float wrap_(float a)
{
    const float n = rintf(a * bits(0x3e22f983));
    return fmaf(-n, bits(0x3afdaa22), fmaf(-n, bits(0x40c90000), a));
}
INLINE float sin_(float a) { return __sinf(wrap_(a)); }
INLINE float cos_(float a) { return __cosf(wrap_(a)); }
/* Of an angle that is within half a turn. */
INLINE float sin_near_(float a) { return __sinf(a); }
INLINE float cos_near_(float a) { return __cosf(a); }

/* x / n; of numbers that are small, as they mostly are, in a tenth of the
 * time. */
INLINE i64 divided(i64 x, i64 n)
{
    return (x | n) >> 31 ? x / n : (u32)x / (u32)n;
}
