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

/* A thread an entry of the result: neighbours next to each other. */
INLINE void move(const Move &m)
{
    const i64 step = (i64)gridDim.x * 256;
    for (i64 x = (i64)blockIdx.x * 256 + threadIdx.x; x < m.count; x += step) {
        i64 to = 0, from = 0, left = x;
        for (int d = m.outer - 1; d >= 0; d--) {
            const i64 next = left / m.n[d], i = left - next * m.n[d];
            to += i * m.ts[d];
            from += i * m.fs[d];
            left = next;
        }
        float sum = 0;
        for (i64 y = 0; y < m.each; y++)
            sum += load(m.from, m.from_type, from + from_place(m, y));
        if (m.add)
            sum += load(m.to, m.to_type, to);
        store(m.to, m.to_type, to, sum);
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
