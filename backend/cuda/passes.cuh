/* passes.cuh -- reductions of kernels that go along rows by passes. After
 * rows.cuh.
 */

/* No product on tensor cores is here that would round its factors. */
INLINE float factor_(float x) { return x; }

/* Over the lanes of a row, for all of them. */
template<int LANES_> INLINE float greatest(float x)
{
    UNROLL
    for (int by = (LANES_ < 32 ? LANES_ : 32) / 2; by; by /= 2)
        x = max_(x, lane_xor(x, by));
    if (LANES_ <= 32)
        return x;
    float *part = (float *)arena;
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    x = part[0];
    for (int i = 1; i < LANES_ / 32; i++)
        x = max_(x, part[i]);
    return x;
}

/* Is it no number that others can be taken from? */
INLINE bool is_endless(float x) { return !(abs_(x) < bits(0x7f800000)); }

/* log of a sum of exp: the largest so far, and the sum beside it. */
struct LogSum {
    float most = bits(0xff800000), sum = 0;

    /* Of N entries those before `left`. */
    template<int N> INLINE_MEMBER void add(const float *x, int left)
    {
        float top = most, more = 0;
        UNROLL
        for (int i = 0; i < N; i++)
            top = i < left ? max_(top, x[i]) : top;
        const float from = is_endless(top) ? 0.f : top;
        UNROLL
        for (int i = 0; i < N; i++)
            more += i < left ? exp_(x[i] - from) : 0.f;
        sum = sum * exp_(most - from) + more;
        most = top;
    }
    template<int LANES_> INLINE_MEMBER float all() const
    {
        const float top = greatest<LANES_>(most);
        const float from = is_endless(top) ? 0.f : top;
        const float s = total<LANES_>(sum * exp_(most - from));
        return is_endless(top) ? top : top + log_(s);
    }
};
