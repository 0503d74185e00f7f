/* functions.cuh -- element-wise functions in float32, but those of numbers.cuh:
 * one definition for every target's kernels. After that one.
 */
INLINE float sqrt_(float a) { return __fsqrt_rn(a); }
INLINE float rsqrt_(float a) { return __frsqrt_rn(a); }
INLINE float sigmoid_(float a) { return inverse_(1.f + exp_(-a)); }
/* Small a would lose what 1 - e^-2a cancels. */
INLINE float tanh_(float a)
{
    const float e = exp2_(abs_(a) * (-2 * LOG2E)), s = a * a;
    const float t = (1.f - e) * inverse_(1.f + e);
    const float near = a * (1 + s * (bits(0xbeaaaaab) + s *
                       (bits(0x3e088889) + s * bits(0xbd5d0dd1))));
    return abs_(a) < bits(0x3e000000) ? near : copysignf(t, a);
}
/* log1p by its argument's rounding error, so that softplus(-20) is right */
INLINE float softplus_(float a)
{
    const float e = exp_(-abs_(a)), u = 1.f + e;
    const float l = u == 1.f ? e : log_(u) * __fdividef(e, u - 1.f);
    return max_(a, 0.f) + l;
}
