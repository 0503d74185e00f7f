/* vmath.h -- float functions without branches, for loops that a compiler
 * turns into vectors. Included by isa.inc only, once an instruction set.
 *
 * About 2 ulp. Results below the smallest normal number may become zero;
 * infinities and NaN come out as libm's would. sin and cos hold for |x| up to
 * 1e4 and stay bounded beyond.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define FN static inline __attribute__((always_inline, unused))

FN float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

FN uint32_t to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* NaN if either is. */
FN float min_(float a, float b) { return ((a < b) | (a != a)) ? a : b; }
FN float max_(float a, float b) { return ((a > b) | (a != a)) ? a : b; }
FN float abs_(float x) { return from_bits(to_bits(x) & 0x7fffffffu); }
FN float sqrt_(float x) { return __builtin_sqrtf(x); }
FN float rsqrt_(float x) { return 1 / __builtin_sqrtf(x); }
FN float factor_(float x) { return x; }
FN float floor_(float x) { return __builtin_floorf(x); }

FN float sign_(float x)
{
    float s = (float)(x > 0) - (float)(x < 0);
    return x == x ? s : x;
}

/* 2^n p for x = n ln 2 + r, |r| <= ln 2 / 2; adding `magic` rounds to the
 * integer n, which is then the low bits of the sum, and 2^n's exponent. From
 * 88.37 on the result is infinite. */
FN float exp_(float x)
{
    const float magic = 12582912;
    float t = x > 89 ? 89 : x;
    t = t < -88 ? -88 : t;
    float z = t * 1.44269504088896341f + magic;
    float n = z - magic;
    float r = t - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.381454017e-3f;
    p = p * r + 8.368745109e-3f;
    p = p * r + 4.166839078e-2f;
    p = p * r + 1.666652040e-1f;
    p = p * r + 4.999999343e-1f;
    p = p * (r * r) + r + 1;
    float y = p * from_bits((to_bits(z) << 23) + 0x3f800000u);
    return x < -88 ? 0 : y;
}

/* log of x in [2^-126, inf): mantissa in [sqrt(1/2), sqrt(2)). */
FN float log_normal(float x)
{
    uint32_t shifted = to_bits(x) - 0x3f3504f3u;
    float e = (float)((int32_t)shifted >> 23);
    float m = from_bits((shifted & 0x007fffffu) + 0x3f3504f3u) - 1;
    float z = m * m, p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float y = p * m * z - e * 2.12194440e-4f - 0.5f * z;
    return m + y + e * 0.693359375f;
}

FN float log_(float x)
{
    const float inf = __builtin_inff();
    float y = log_normal(x);
    y = x < 1.17549435e-38f ? -inf : y;
    y = x < 0 ? __builtin_nanf("") : y;
    y = x == inf ? inf : y;
    return x == x ? y : x;
}

/* log(1 + x), 0 <= x <= 1: the correction gives back what 1 + x lost. */
FN float log1p_unit(float x)
{
    float u = 1 + x;
    return log_normal(u) + (x - (u - 1)) / u;
}

FN float sigmoid_(float x)
{
    return 1 / (1 + exp_(-x));
}

FN float softplus_(float x)
{
    float y = log1p_unit(exp_(-abs_(x)));
    y = y + (x > 0 ? x : 0);
    return x == x ? y : x;
}

FN float tanh_(float x)
{
    float a = abs_(x), z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float small = p * z * x + x;
    float large = 1 - 2 / (exp_(2 * a) + 1);
    large = x < 0 ? -large : large;
    return a < 0.625f ? small : large;
}

/* sin of x + quarter * pi / 2. */
FN float sin_shifted(float x, int quarter)
{
    const double magic = 6755399441055744.0;
    double n = (double)x * 0.63661977236758134308 + magic;
    uint64_t bits;
    memcpy(&bits, &n, sizeof bits);
    uint32_t q = (uint32_t)bits + (uint32_t)quarter;
    float r = (float)((double)x - (n - magic) * 1.57079632679489661923);
    r = r > 1 ? 1 : r;      /* where x is so large that nothing of r is left */
    r = r < -1 ? -1 : r;
    float z = r * r;
    float s = -1.9515295891e-4f;
    s = s * z + 8.3321608736e-3f;
    s = s * z - 1.6666654611e-1f;
    s = s * z * r + r;
    float c = 2.443315711809948e-5f;
    c = c * z - 1.388731625493765e-3f;
    c = c * z + 4.166664568298827e-2f;
    c = c * z * z - 0.5f * z + 1;
    float y = q & 1 ? c : s;
    return q & 2 ? -y : y;
}

/* x less the nearest multiple of 2 pi. */
FN float wrap_(float x)
{
    const double magic = 6755399441055744.0;
    double n = (double)x * 0.15915494309189533577 + magic;
    return (float)((double)x - (n - magic) * 6.28318530717958647693);
}

FN float sin_(float x) { return sin_shifted(x, 0); }
FN float cos_(float x) { return sin_shifted(x, 1); }

FN float bf16_load(uint16_t h)
{
    return from_bits((uint32_t)h << 16);
}

/* Rounds to nearest even; a NaN stays one. */
FN uint16_t bf16_store(float f)
{
    uint32_t u = to_bits(f);
    uint32_t r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    return (uint16_t)(f == f ? r : ((u >> 16) | 0x40));
}

/* The exponent is moved by a multiplication, which also makes subnormal
 * halves normal floats. */
FN float f16_load(uint16_t h)
{
    uint32_t m = (uint32_t)(h & 0x7fff) << 13;
    float f = from_bits(m + 0x38000000u);
    float tiny = from_bits(m + 0x38800000u) - 6.103515625e-05f;
    f = m < 0x00800000u ? tiny : f;
    f = m >= 0x0f800000u ? from_bits(m + 0x70000000u) : f;
    return from_bits(to_bits(f) | (uint32_t)(h & 0x8000) << 16);
}

FN uint16_t f16_store(float x)
{
    uint32_t u = to_bits(x), sign = u >> 16 & 0x8000, m = u & 0x7fffffffu;
    uint32_t half = (m + 0xfff + (m >> 13 & 1) - 0x38000000u) >> 13;
    float f = from_bits(m);
    uint32_t tiny = to_bits(f + 0.5f) - 0x3f000000u;
    half = m < 0x38800000u ? tiny : half;
    half = m >= 0x477ff000u ? 0x7c00 : half;
    half = m > 0x7f800000u ? 0x7e00 : half;
    return (uint16_t)(half | sign);
}
