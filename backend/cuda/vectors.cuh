/* vectors.cuh -- the vector warp's: one value a token, tokens l and l + 32 at
 * lane l, and how they come. After device.cuh.
 */

struct Pair { float a, b; };

/* Inclusive sum along the chunk; rows past its end do not count, and a token
 * counts once. */
INLINE Pair running_sum(Pair x, int lane, int rows)
{
    if (lane >= rows || lane % RANKS)
        x.a = 0;
    if (lane + 32 >= rows || lane % RANKS)
        x.b = 0;
    UNROLL for (int d = 1; d < 32; d *= 2) {
        const float a = __shfl_up_sync(~0u, x.a, d);
        const float b = __shfl_up_sync(~0u, x.b, d);
        if (lane >= d) {
            x.a += a;
            x.b += b;
        }
    }
    x.b += __shfl_sync(~0u, x.a, 31);
    return x;
}
/* s = a s + b, or MAX: max(a + s, b), along the chunk, from `before` on; rows
 * past its end keep the last. */
template<bool MAX> INLINE float after(float a, float s, float b)
{
    return MAX ? max_(a + s, b) : fmaf(a, s, b);
}
template<bool MAX>
INLINE Pair scanned(Pair a, Pair b, float before, int lane, int rows)
{
    const float one = MAX ? 0.f : 1.f, none = MAX ? bits(0xff800000) : 0.f;
    if (lane >= rows)
        a.a = one, b.a = none;
    if (lane + 32 >= rows)
        a.b = one, b.b = none;
    UNROLL for (int d = 1; d < 32; d *= 2) {
        const float aa = __shfl_up_sync(~0u, a.a, d);
        const float ab = __shfl_up_sync(~0u, a.b, d);
        const float ba = __shfl_up_sync(~0u, b.a, d);
        const float bb = __shfl_up_sync(~0u, b.b, d);
        if (lane >= d) {
            b.a = after<MAX>(a.a, ba, b.a);
            b.b = after<MAX>(a.b, bb, b.b);
            a.a = MAX ? a.a + aa : a.a * aa;
            a.b = MAX ? a.b + ab : a.b * ab;
        }
    }
    Pair s;
    s.a = after<MAX>(a.a, before, b.a);
    s.b = after<MAX>(a.b, __shfl_sync(~0u, s.a, 31), b.b);
    return s;
}
/* Each token's predecessor, `before` for the first. */
INLINE Pair delayed(Pair x, float before, int lane)
{
    const float a = __shfl_up_sync(~0u, x.a, RANKS);
    const float b = __shfl_up_sync(~0u, x.b, RANKS);
    const float m = __shfl_sync(~0u, x.a, 32 - RANKS + lane % RANKS);
    Pair y;
    y.a = lane >= RANKS ? a : before;
    y.b = lane >= RANKS ? b : m;
    return y;
}
/* Of each token its value of one rank. */
INLINE Pair of_rank(Pair x, int rank, int lane)
{
    const int from = lane / RANKS * RANKS + rank;
    return { __shfl_sync(~0u, x.a, from), __shfl_sync(~0u, x.b, from) };
}
INLINE Pair shifted(Pair x, int lane)
{
    return delayed(x, 0, lane);
}
INLINE float last_row(Pair x, int rows)
{
    const float a = __shfl_sync(~0u, x.a, (rows - 1) & 31);
    const float b = __shfl_sync(~0u, x.b, (rows - 1) & 31);
    return rows > 32 ? b : a;
}
/* The ring of inputs: AHEAD chunks of 64 words. A lane reads what it wrote.
 * Two-byte elements travel in the aligned word around them. */
constexpr int AHEAD = 8, RING = AHEAD * 256;

/* What this lane reads of a tensor: tokens l and l + 32 of each chunk. */
template<int BYTES> struct Stream {
    u64 p;
    const Tensor &t;
    int len;
    INLINE_MEMBER Stream(const Tensor &tensor, int head, const Rows &s,
                         int lane, bool ranked = false) : t(tensor)
    {
        p = (u64)t.p + BYTES * token_at(t, head, s, token(lane));
        if (ranked)
            p += BYTES * (lane % RANKS) * t.sd[0];
        len = ranked && !is_stored(lane) ? 0 : s.len - lane;
    }
    /* From row l to l + 32, read anew each time: registers are few. */
    INLINE_MEMBER i64 half() const
    {
        static_assert(RANKS <= 32, "a token's rows are of one half");
        return 32 / RANKS * BYTES * fresh_wide(t.st);
    }
    INLINE_MEMBER void fetch(u32 ring, int c, int lane) const
    {
        const u32 to = ring + c % AHEAD * 256 + 4 * lane;
        const i64 h = half();
        const u64 from = p + 2 * c * h;
        if (64 * c < len)
            copy4(to, (const void *)(from & ~3ull));
        if (64 * c + 32 < len)
            copy4(to + 128, (const void *)((from + h) & ~3ull));
    }
    /* Rows past the end are 0. */
    INLINE_MEMBER Pair fetched(u32 ring, int c, int lane) const
    {
        const u32 at = ring + c % AHEAD * 256 + 4 * lane;
        Pair x = { load1(at), load1(at + 128) };
        if (BYTES == 2) {
            const u32 a = __float_as_uint(x.a), b = __float_as_uint(x.b);
            const u32 from = (u32)p + (RANKS > 16 ? (u32)half() : 0);
            x.a = (u32)p & 2 ? high(a) : low(a);
            x.b = from & 2 ? high(b) : low(b);  /* else both are the same */
        }
        if (64 * c >= len)
            x.a = 0;
        if (64 * c + 32 >= len)
            x.b = 0;
        return x;
    }
};
template<int BYTES> INLINE float constant(const Tensor &t, int head)
{
    const i64 at = head_of(t, head) * t.sh;
    if (BYTES == 4)
        return ((const float *)t.p)[at];
    return low(((const unsigned short *)t.p)[at]);
}
/* Entry k of a head's vector. */
template<int BYTES> INLINE float column(const Tensor &t, int head, int k)
{
    const i64 at = head_of(t, head) * t.sh + k * t.sd[0];
    if (BYTES == 4)
        return ((const float *)t.p)[at];
    return low(((const unsigned short *)t.p)[at]);
}
INLINE void store_pair(u32 a, Pair x, int lane)
{
    store1(a + 4 * lane, x.a);
    store1(a + 4 * lane + 128, x.b);
}
