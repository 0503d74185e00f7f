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
 * for each `each` of the others, which are summed: by `slices` threads, which
 * are neighbours where `along`. A thread has `wide` entries, neighbours in both
 * tensors (`same`: in `from` one for all). With mul, x / n is the upper half
 * of x mul, shifted. */
struct Move {
    char *to;
    const char *from;
    i64 count, each, n[DIMS], ts[DIMS], fs[DIMS];
    u32 mul[DIMS], shift[DIMS];
    int outer, dims, to_type, from_type, add, wide, same, slices, along, pad;
};

INLINE i64 quotient(const Move &m, i64 x, int d)
{
    const u32 high = (u32)((u64)(u32)x * m.mul[d] >> 32);
    return m.mul[d] ? high >> m.shift[d] : x / m.n[d];
}

INLINE i64 from_place(const Move &m, i64 y)
{
    i64 at = 0;
    for (int d = m.dims - 1; d > m.outer; d--) {
        const i64 next = quotient(m, y, d);
        at += (y - next * m.n[d]) * m.fs[d];
        y = next;
    }
    return m.dims > m.outer ? at + y * m.fs[m.outer] : at;
}

/* What slice `slice` has of the entries from `from` on. */
template<int N> INLINE void sum_slice(const Move &m, float *sum, i64 from,
                                      int slice)
{
    UNROLL
    for (int i = 0; i < N; i++)
        sum[i] = 0;
    UNROLL_FOUR
    for (i64 y = slice; y < m.each; y += m.slices) {
        const i64 at = from + from_place(m, y);
        float x[N];
        if (N > 1 && m.same) {
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

/* Slices' sums, in their order, at the first. part: [slices, columns]. */
template<int N> INLINE void add_slices(const Move &m, float *part, float *sum,
                                       int slice, int column)
{
    const int columns = 256 / m.slices;
    float *const own = part + (slice * columns + column) * N;
    for (int half = m.slices / 2; half; half /= 2) {
        __syncthreads();
        if (slice >= half && slice < 2 * half)
            UNROLL
            for (int i = 0; i < N; i++)
                own[i] = sum[i];
        __syncthreads();
        if (slice < half)
            UNROLL
            for (int i = 0; i < N; i++)
                sum[i] += own[half * columns * N + i];
    }
}

/* N entries of the result a thread, or a slice of what is summed in them:
 * neighbours next to each other. */
template<int N> INLINE void move_by(const Move &m, float *part)
{
    const int columns = 256 / m.slices, me = threadIdx.x;
    const int slice = m.along ? me % m.slices : me / columns;
    const int column = m.along ? me / m.slices : me % columns;
    const i64 count = m.count / N, step = (i64)gridDim.x * columns;
    for (i64 x0 = (i64)blockIdx.x * columns; x0 < count; x0 += step) {
        const bool is = x0 + column < count;
        i64 to = 0, from = 0, left = (is ? x0 + column : 0) * N;
        for (int d = m.outer - 1; d > 0; d--) {
            const i64 next = quotient(m, left, d), i = left - next * m.n[d];
            to += i * m.ts[d];
            from += i * m.fs[d];
            left = next;
        }
        if (m.outer) {
            to += left * m.ts[0];
            from += left * m.fs[0];
        }
        float sum[N];
        sum_slice<N>(m, sum, from, slice);
        if (m.slices > 1)
            add_slices<N>(m, part, sum, slice, column);
        if (!is || slice)
            continue;
        if (m.add) {
            float old[N];
            load_all<N>(old, m.to, m.to_type, to);
            UNROLL
            for (int i = 0; i < N; i++)
                sum[i] += old[i];
        }
        store_all<N>(m.to, m.to_type, to, sum);
    }
}

/* Slices take 4 KiB of shared memory. */
extern __shared__ char arena[];
INLINE void move(const Move &m)
{
    if (m.wide == 4)
        move_by<4>(m, (float *)arena);
    else
        move_by<1>(m, (float *)arena);
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
