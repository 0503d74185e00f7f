/* functions.cuh -- element-wise functions in float32, but those of numbers.cuh.
 * After that one.
 */
INLINE float sqrt_(float a) { return sqrtf(a); }
INLINE float rsqrt_(float a) { return 1 / sqrtf(a); }
/* Small a would lose what 1 - 2 / (e^2a + 1) cancels. */
INLINE float tanh_(float a)
{
    const float s = a * a, t = 1 - 2 / (exp_(2 * a) + 1);
    const float near = a * (1 + s * (bits(0xbeaaaaab) + s *
                       (bits(0x3e088889) + s * bits(0xbd5d0dd1))));
    return abs_(a) < bits(0x3e000000) ? near : t;
}
INLINE float sigmoid_(float a) { return 1 / (1 + exp_(-a)); }
INLINE float softplus_(float a)
{
    const float e = exp_(-abs_(a));
    const float small = e * (1 - e * (bits(0x3f000000) - e * bits(0x3eaaaaab)));
    return max_(a, 0.f) + (e < bits(0x3c800000) ? small : log_(1 + e));
}
