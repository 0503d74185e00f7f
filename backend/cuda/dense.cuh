/* dense.cuh -- moves and plain products of whole tensors. After warp.cuh. */
enum { DIMS = 12 };
enum { F32, BF16, F16, F64 };
extern __shared__ char arena[];

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

/* Entries as they are counted: `count` of the first `outer` dimensions, and
 * for each `each` of the others, which are summed. */
struct Move {
    char *to;
    const char *from;
    i64 count, each, n[DIMS], ts[DIMS], fs[DIMS];
    int outer, dims, to_type, from_type, add, pad;
};

INLINE i64 from_place(const Move &m, i64 y)
{
    i64 at = 0;
    for (int d = m.dims - 1; d >= m.outer; d--) {
        const i64 next = y / m.n[d];
        at += (y - next * m.n[d]) * m.fs[d];
        y = next;
    }
    return at;
}

/* Of entry x: where it is, and where what is summed for it begins. */
INLINE void entry_place(const Move &m, i64 x, i64 &to, i64 &from)
{
    to = from = 0;
    for (int d = m.outer - 1; d >= 0; d--) {
        const i64 next = x / m.n[d], i = x - next * m.n[d];
        to += i * m.ts[d];
        from += i * m.fs[d];
        x = next;
    }
}
INLINE void put_entry(const Move &m, i64 to, float sum)
{
    if (m.add)
        sum += load(m.to, m.to_type, to);
    store(m.to, m.to_type, to, sum);
}

/* A thread an entry of the result: neighbours next to each other. */
INLINE void move(const Move &m)
{
    const i64 step = (i64)gridDim.x * 256;
    for (i64 x = (i64)blockIdx.x * 256 + threadIdx.x; x < m.count; x += step) {
        i64 to, from;
        entry_place(m, x, to, from);
        float sum = 0;
        for (i64 y = 0; y < m.each; y++)
            sum += load(m.from, m.from_type, from + from_place(m, y));
        put_entry(m, to, sum);
    }
}

/* Where each is a sum of many: a block has 32 entries next to each other, a
 * lane each, of which each of its warps has every 32nd summand. */
enum { SUM_WARPS = 32, SUM_AHEAD = 4 };
INLINE float sum_share(const Move &m, i64 from, int warp)
{
    const bool even = m.from_type == F32 && m.dims == m.outer + 1;
    const i64 stride = SUM_WARPS * m.fs[m.outer];
    float sum = 0;
    i64 y = warp;
    if (even) {
        const float *p = (const float *)m.from + from + y * m.fs[m.outer];
        for (; y + (SUM_AHEAD - 1) * SUM_WARPS < m.each;
             y += SUM_AHEAD * SUM_WARPS, p += SUM_AHEAD * stride) {
            float x[SUM_AHEAD];
            UNROLL for (int i = 0; i < SUM_AHEAD; i++)
                x[i] = p[i * stride];
            UNROLL for (int i = 0; i < SUM_AHEAD; i++)
                sum += x[i];
        }
    }
    for (; y < m.each; y += SUM_WARPS)
        sum += load(m.from, m.from_type, from + from_place(m, y));
    return sum;
}
INLINE void sum_up(const Move &m)
{
    float (*part)[LANES + 1] = (float (*)[LANES + 1])arena;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    for (i64 first = (i64)blockIdx.x * LANES; first < m.count;
         first += (i64)gridDim.x * LANES) {
        i64 to, from;
        entry_place(m, first + lane, to, from);
        part[warp][lane] = first + lane < m.count ? sum_share(m, from, warp)
                                                  : 0.f;
        __syncthreads();
        const float sum = lane_sum<LANES>(part[lane][warp]);
        entry_place(m, first + warp, to, from);
        if (lane == 0 && first + warp < m.count)
            put_entry(m, to, sum);
        __syncthreads();
    }
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
