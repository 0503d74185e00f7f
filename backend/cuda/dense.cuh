/* dense.cuh -- moves and plain products of whole tensors. After warp.cuh. */
enum { DIMS = 12 };
enum { F32, BF16, F16, F64 };

INLINE float load(const char *p, int type, i64 at)
{
    return type == F32 ? ((const float *)p)[at]
         : type == F64 ? (float)((const double *)p)[at]
         : type == F16 ? half_to_float(((const u16 *)p)[at])
         : bits((u32)((const u16 *)p)[at] << 16);
}
INLINE void store(char *p, int type, i64 at, float x)
{
    if (type == F32)
        ((float *)p)[at] = x;
    else if (type == F64)
        ((double *)p)[at] = x;
    else
        ((u16 *)p)[at] = type == F16 ? float_to_half(x)
                                     : (u16)pack({ x, 0 });
}

struct alignas(16) FourFloats { float x[4]; };
struct alignas(8) FourShorts { u16 x[4]; };

/* N neighbours: of four, `at` and the address are multiples. */
template<int N> INLINE void load_all(float *x, const char *p, int type, i64 at)
{
    FourFloats wide = {};
    if (N == 4 && type == F32) {
        wide = *(const FourFloats *)((const float *)p + at);
    } else if (N == 4 && type != F64) {
        const FourShorts y = *(const FourShorts *)((const u16 *)p + at);
        UNROLL
        for (int i = 0; i < 4; i++)
            wide.x[i] = load((const char *)y.x, type, i);
    } else {
        UNROLL
        for (int i = 0; i < N; i++)
            wide.x[i] = load(p, type, at + i);
    }
    UNROLL
    for (int i = 0; i < N; i++)
        x[i] = wide.x[i];
}
template<int N> INLINE void store_all(char *p, int type, i64 at, const float *x)
{
    FourFloats wide = {};
    UNROLL
    for (int i = 0; i < N; i++)
        wide.x[i] = x[i];
    if (N == 4 && type == F32) {
        *(FourFloats *)((float *)p + at) = wide;
    } else if (N == 4 && type != F64) {
        FourShorts y;
        UNROLL
        for (int i = 0; i < 4; i++)
            store((char *)y.x, type, i, wide.x[i]);
        *(FourShorts *)((u16 *)p + at) = y;
    } else {
        UNROLL
        for (int i = 0; i < N; i++)
            store(p, type, at + i, wide.x[i]);
    }
}

/* Entries as they are counted: `count` of the first `outer` dimensions, and
 * for each `each` of the others, which are summed. A thread has `wide` entries,
 * neighbours in both tensors (`same`: in `from` one for all); of sums of many
 * entries a block has them. With mul, x / n is the upper half of x mul,
 * shifted. */
struct Move {
    char *to;
    const char *from;
    i64 count, each, n[DIMS], ts[DIMS], fs[DIMS];
    u32 mul[DIMS], shift[DIMS];
    int outer, dims, to_type, from_type, add, wide, same, pad;
};

CALLED i64 far_quotient(i64 x, i64 n) { return x / n; }
INLINE i64 quotient(const Move &m, i64 x, int d)
{
    const u32 high = (u32)((u64)(u32)x * m.mul[d] >> 32);
    return m.mul[d] ? high >> m.shift[d] : far_quotient(x, m.n[d]);
}

INLINE i64 from_place(const Move &m, i64 y)
{
    i64 at = 0;
    NO_UNROLL
    for (int d = m.dims - 1; d > m.outer; d--) {
        const i64 next = quotient(m, y, d);
        at += (y - next * m.n[d]) * m.fs[d];
        y = next;
    }
    return m.dims > m.outer ? at + y * m.fs[m.outer] : at;
}

/* Of entry x: where it is, and where what is summed for it begins. */
INLINE void entry_place(const Move &m, i64 x, i64 &to, i64 &from)
{
    to = from = 0;
    NO_UNROLL
    for (int d = m.outer - 1; d > 0; d--) {
        const i64 next = quotient(m, x, d), i = x - next * m.n[d];
        to += i * m.ts[d];
        from += i * m.fs[d];
        x = next;
    }
    if (m.outer) {
        to += x * m.ts[0];
        from += x * m.fs[0];
    }
}
template<int N> INLINE void put_entries(const Move &m, i64 to, float *sum)
{
    if (m.add) {
        float old[N];
        load_all<N>(old, m.to, m.to_type, to);
        UNROLL
        for (int i = 0; i < N; i++)
            sum[i] += old[i];
    }
    store_all<N>(m.to, m.to_type, to, sum);
}

/* One entry each, none of which is a sum: a thread reads all that it moves at
 * once before it waits for any. */
enum { MOVED = 2 };
template<int N> INLINE void move_each(const Move &m, i64 block, i64 blocks)
{
    const i64 count = m.count / N, step = blocks * 256;
    for (i64 x = block * 256 + threadIdx.x; x < count; x += MOVED * step) {
        i64 to[MOVED];
        float from[MOVED][N], old[MOVED][N];
        UNROLL
        for (int j = 0; j < MOVED; j++) {
            i64 at = 0;
            to[j] = -1;
            if (x + j * step >= count)
                continue;
            entry_place(m, (x + j * step) * N, to[j], at);
            load_all<N>(from[j], m.from, m.from_type, at);
            if (m.add)
                load_all<N>(old[j], m.to, m.to_type, to[j]);
        }
        UNROLL
        for (int j = 0; j < MOVED; j++) {
            if (to[j] < 0)
                continue;
            UNROLL
            for (int i = 0; i < N; i++)
                from[j][i] += m.add ? old[j][i] : 0.f;
            store_all<N>(m.to, m.to_type, to[j], from[j]);
        }
    }
}

/* As many summands of float32 are read at once. */
enum { READ_AHEAD = 4 };
INLINE i64 sum_by_fours(const Move &m, float *sum, const float *p)
{
    const i64 stride = m.fs[m.outer];
    i64 y = 0;
    for (; y + READ_AHEAD <= m.each; y += READ_AHEAD) {
        FourFloats x[READ_AHEAD];
        UNROLL
        for (int i = 0; i < READ_AHEAD; i++)
            x[i] = *(const FourFloats *)(p + (y + i) * stride);
        UNROLL
        for (int i = 0; i < 4 * READ_AHEAD; i++)
            sum[i % 4] += x[i / 4].x[i % 4];
    }
    return y;
}

template<int N> INLINE void sum_entries(const Move &m, float *sum, i64 from)
{
    const bool same = N > 1 && m.same;
    i64 y = 0;
    UNROLL
    for (int i = 0; i < N; i++)
        sum[i] = 0;
    if (N == 4 && !same && m.from_type == F32 && m.dims == m.outer + 1)
        y = sum_by_fours(m, sum, (const float *)m.from + from);
    UNROLL_FOUR
    for (; y < m.each; y++) {
        const i64 at = from + from_place(m, y);
        float x[N];
        if (same) {
            x[0] = load(m.from, m.from_type, at);
            UNROLL
            for (int i = 1; i < N; i++)
                x[i] = x[0];
        } else {
            load_all<N>(x, m.from, m.from_type, at);
        }
        UNROLL
        for (int i = 0; i < N; i++)
            sum[i] += x[i];
    }
}

/* N entries of the result a thread: neighbours next to each other. */
template<int N> INLINE void move_by(const Move &m, i64 block, i64 blocks)
{
    const i64 count = m.count / N, step = blocks * 256;
    for (i64 x = block * 256 + threadIdx.x; x < count; x += step) {
        i64 to, from;
        entry_place(m, x * N, to, from);
        float sum[N];
        sum_entries<N>(m, sum, from);
        put_entries<N>(m, to, sum);
    }
}

/* Several at once: each has so many blocks, one behind another. */
enum { MOST_MOVES = 4 };
struct Moves {
    Move m[MOST_MOVES];
    int end[MOST_MOVES], n, pad;
};
INLINE int own_move(const Moves &s, i64 &block, i64 &blocks)
{
    int i = 0;
    while (i + 1 < s.n && (int)blockIdx.x >= s.end[i])
        i++;
    const int first = i ? s.end[i - 1] : 0;
    block = (int)blockIdx.x - first;
    blocks = s.end[i] - first;
    return i;
}
INLINE void move(const Moves &s)
{
    i64 block, blocks;
    const Move &m = s.m[own_move(s, block, blocks)];
    if (m.each == 1 && !m.same && m.wide == 4)
        move_each<4>(m, block, blocks);
    else if (m.wide == 4)
        move_by<4>(m, block, blocks);
    else
        move_by<1>(m, block, blocks);
}

/* Where each is a sum of many: a block has E entries next to each other, whose
 * summands it deals out to its threads. */
extern __shared__ char arena[];
enum { SUM_THREADS = 1024, SUM_AHEAD = 4 };
template<int E> INLINE float sum_share(const Move &m, i64 from, int share)
{
    enum { SHARES = SUM_THREADS / E };
    const bool even = m.from_type == F32 && m.dims == m.outer + 1;
    const i64 stride = SHARES * m.fs[m.outer];
    float sum = 0;
    i64 y = share;
    if (even) {
        const float *p = (const float *)m.from + from + y * m.fs[m.outer];
        for (; y + (SUM_AHEAD - 1) * SHARES < m.each;
             y += SUM_AHEAD * SHARES, p += SUM_AHEAD * stride) {
            float x[SUM_AHEAD];
            UNROLL
            for (int i = 0; i < SUM_AHEAD; i++)
                x[i] = p[i * stride];
            UNROLL
            for (int i = 0; i < SUM_AHEAD; i++)
                sum += x[i];
        }
    }
    for (; y < m.each; y += SHARES)
        sum += load(m.from, m.from_type, from + from_place(m, y));
    return sum;
}
template<int E> INLINE void sum_up(const Move &m, i64 block, i64 blocks)
{
    enum { SHARES = SUM_THREADS / E };
    float (*part)[E + 1] = (float (*)[E + 1])arena;
    const int own = threadIdx.x % E, share = threadIdx.x / E;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    for (i64 first = block * E; first < m.count; first += blocks * E) {
        i64 to, from;
        entry_place(m, first + own, to, from);
        part[share][own] = first + own < m.count ? sum_share<E>(m, from, share)
                                                 : 0.f;
        __syncthreads();
        if (SHARES < LANES) {
            float sum = 0;
            if (share == 0 && first + own < m.count) {
                UNROLL
                for (int i = 0; i < SHARES; i++)
                    sum += part[i][own];
                put_entries<1>(m, to, &sum);
            }
        } else if (warp < E) {
            float sum = 0;
            UNROLL
            for (int i = 0; i < SHARES; i += LANES)
                sum += part[i + lane][warp];
            sum = lane_sum<LANES>(sum);
            entry_place(m, first + warp, to, from);
            if (lane == 0 && first + warp < m.count)
                put_entries<1>(m, to, &sum);
        }
        __syncthreads();
    }
}

INLINE void sum(const Moves &s)
{
    i64 block, blocks;
    const Move &m = s.m[own_move(s, block, blocks)];
    if (m.wide == 8)
        sum_up<8>(m, block, blocks);
    else if (m.wide == 32)
        sum_up<32>(m, block, blocks);
    else
        sum_up<128>(m, block, blocks);
}

struct Product {
    const char *a, *b;
    char *c;
    i64 m, n, k, batch, ars, acs, abs, brs, bcs, bbs, crs, cbs;
    int type, result, add, pad;
};

/* A thread an entry. */
INLINE void product(const Product &p)
{
    const i64 step = (i64)gridDim.x * 256, all = p.m * p.n * p.batch;
    for (i64 x = (i64)blockIdx.x * 256 + threadIdx.x; x < all; x += step) {
        const i64 row = x / p.n, j = x - row * p.n;
        const i64 z = row / p.m, i = row - z * p.m;
        const i64 a = z * p.abs + i * p.ars, b = z * p.bbs + j * p.bcs;
        const i64 c = z * p.cbs + i * p.crs + j;
        float sum = 0;
        for (i64 k = 0; k < p.k; k++)
            sum = fmaf(load(p.a, p.type, a + k * p.acs),
                       load(p.b, p.type, b + k * p.brs), sum);
        store(p.c, p.result, c, p.add ? sum + load(p.c, p.result, c) : sum);
    }
}
