/* rows.cuh -- what kernels over rows (rows.c) load, store and sum. A row is G
 * lanes wide, each of which has V entries next to each other. After
 * functions.cuh.
 */
enum { F32, BF16, F16, F64, I32, I64 };

/* Strides of batch entry (of a state: sequence), token, head, own axes. */
struct Arg { char *p; i64 sb, st, sh, sd[4]; };

template<int TYPE> INLINE float get(const char *p, i64 at)
{
    return TYPE == F32 ? ((const float *)p)[at]
         : TYPE == F64 ? (float)((const double *)p)[at]
         : TYPE == I32 ? (float)((const int *)p)[at]
         : TYPE == I64 ? (float)((const i64 *)p)[at]
         : TYPE == F16 ? half_to_float(((const u16 *)p)[at])
         : bits((u32)((const u16 *)p)[at] << 16);
}
template<int TYPE> INLINE void put(char *p, i64 at, float x)
{
    if (TYPE == F32)
        ((float *)p)[at] = x;
    else if (TYPE == F64)
        ((double *)p)[at] = x;
    else
        ((u16 *)p)[at] = TYPE == F16 ? float_to_half(x) : (u16)pack({ x, 0 });
}

/* 8 or 16 bytes. */
template<int BYTES> struct alignas(BYTES) Bytes { u32 x[BYTES / 4]; };

/* N entries as they lie in memory, which are unpacked where they are used:
 * nobody waits for them before. WHOLE: in pieces of 16 bytes, or one of 8, in
 * all of which something is. */
template<int TYPE, int N, bool WHOLE> struct Raw {
    enum { SIZE = TYPE == F32 ? 4 : 2, EACH = 16 / SIZE,
           LEN = EACH < N ? EACH : N, BYTES = LEN * SIZE < 8 ? 8 : LEN * SIZE,
           PIECES = WHOLE ? N / LEN : 1 };
    Bytes<WHOLE ? BYTES : 8> y[PIECES];
    float x[WHOLE ? 1 : N];
};

/* From place `at` on, `step` apart; those from `left` on are none, and 0. */
template<int TYPE, int N, bool WHOLE>
INLINE Raw<TYPE, N, WHOLE> fetch(const char *p, i64 at, i64 step, int left)
{
    typedef Raw<TYPE, N, WHOLE> Own;
    Own raw;
    if (!WHOLE) {
        UNROLL
        for (int i = 0; i < N; i++)
            raw.x[i] = i < left ? get<TYPE>(p, at + i * step) : 0.f;
        return raw;
    }
    UNROLL
    for (int j = 0; j < Own::PIECES; j++) {
        raw.y[j] = {};
        if (left > 0)
            raw.y[j] = *(const Bytes<WHOLE ? Own::BYTES : 8> *)
                       (p + (at + j * Own::LEN) * Own::SIZE);
    }
    return raw;
}

/* As numbers; off: zeros. */
template<int TYPE, int N, bool WHOLE>
INLINE void unpack(const Raw<TYPE, N, WHOLE> &raw, bool on, float *x)
{
    constexpr int SIZE = Raw<TYPE, N, WHOLE>::SIZE;
    constexpr int LEN = Raw<TYPE, N, WHOLE>::LEN;
    UNROLL
    for (int j = 0; j < N; j++) {
        const int i = j % LEN;
        const u32 word = WHOLE ? raw.y[WHOLE ? j / LEN : 0].x[i * SIZE / 4] : 0;
        const u32 half = word >> 16 * (i % 2) & 0xffff;
        const float y = !WHOLE ? raw.x[WHOLE ? 0 : j]
                      : TYPE == F32 ? bits(word)
                      : TYPE == F16 ? half_to_float((u16)half)
                      : bits(half << 16);
        x[j] = on ? y : 0.f;
    }
}

template<int TYPE, int N, bool WHOLE>
INLINE void load(const char *p, i64 at, i64 step, int left, float *x)
{
    unpack<TYPE, N, WHOLE>(fetch<TYPE, N, WHOLE>(p, at, step, left), true, x);
}

template<int TYPE, int N, bool WHOLE>
INLINE void store(char *p, i64 at, i64 step, int left, const float *x)
{
    constexpr int SIZE = TYPE == F32 ? 4 : 2, EACH = 16 / SIZE;
    constexpr int LEN = EACH < N ? EACH : N, BYTES = LEN * SIZE < 8 ? 8
                                                     : LEN * SIZE;
    if (!WHOLE) {
        UNROLL
        for (int i = 0; i < N; i++)
            if (i < left)
                put<TYPE>(p, at + i * step, x[i]);
        return;
    }
    UNROLL
    for (int j = 0; j < N; j += LEN) {
        Bytes<BYTES> y = {};
        UNROLL
        for (int i = 0; i < LEN; i++)
            if (TYPE == F32)
                y.x[i * SIZE / 4] = bits_of(x[j + i]);
            else if (TYPE == F16)
                y.x[i * SIZE / 4] |= (u32)float_to_half(x[j + i])
                                   << 16 * (i % 2);
            else if (i % 2 == 0)
                y.x[i * SIZE / 4] = pack({ x[j + i], LEN > 1 ? x[j + i + 1]
                                                             : 0.f });
        if (left > 0)
            *(Bytes<BYTES> *)(p + (at + j) * SIZE) = y;
    }
}

/* N entries that have M numbers each, all next to each other: x[i + N j] is
 * number j of entry i. */
template<int TYPE, int N, int M>
INLINE void load_block(const char *p, i64 at, float *x)
{
    float y[N * M];
    load<TYPE, N * M, true>(p, at, 1, N * M, y);
    UNROLL
    for (int i = 0; i < N * M; i++)
        x[i / M + i % M * N] = y[i];
}
template<int TYPE, int N, int M>
INLINE void store_block(char *p, i64 at, bool on, const float *x)
{
    float y[N * M];
    UNROLL
    for (int i = 0; i < N * M; i++)
        y[i] = x[i / M + i % M * N];
    store<TYPE, N * M, true>(p, at, 1, on ? N * M : 0, y);
}

/* Over the lanes of a row, for all of them. */
extern __shared__ char arena[];
template<int LANES_> INLINE float total(float x)
{
    if (LANES_ == 1)
        return x;
    if (LANES_ <= 32)
        return lane_sum<(LANES_ < 32 ? LANES_ : 32)>(x);
    float *part = (float *)arena, sum = 0;
    x = lane_sum<32>(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < LANES_ / 32; i++)
        sum += part[i];
    return sum;
}

/* The sequence of token t: its number, and where it is. A token of none is
 * alone in what has no tokens. */
struct Span { i64 n, start, end; };
/* Beyond what a loop over tokens counts (ROWS_MOST_TOKENS, and those read
 * before them). */
constexpr int counted = 1 << 30;
INLINE i64 within(i64 x, i64 low, i64 high)
{
    return x < low ? low : x > high ? high : x;
}
INLINE Span span_at(const i64 *ends, i64 nseq, i64 tokens, i64 b, i64 n)
{
    if (!ends)
        return { b, 0, tokens };
    const i64 start = within(ends[n], 0, tokens);
    return { n, start, within(ends[n + 1], start, tokens) };
}
INLINE Span span_of(const i64 *ends, i64 nseq, i64 tokens, i64 b, i64 t)
{
    i64 low = -1, high = nseq;          /* ends[low] <= t < ends[high] */
    if (!ends)
        return { b, 0, tokens };
    while (high - low > 1) {
        const i64 mid = low + (high - low) / 2;
        if (ends[mid] <= t)
            low = mid;
        else
            high = mid;
    }
    if (low < 0)
        return { 0, t, t };
    const Span s = span_at(ends, nseq, tokens, b, low);
    return t < s.end ? s : Span{ low, t, t };
}
