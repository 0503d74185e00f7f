/* probe.cuh -- the first entry of a tensor that breaks its domain, or row,
 * where its length is what counts. Neighbouring threads take neighbouring
 * pieces, of 16 bytes where the tensor lies so, and ask for AHEAD of them
 * before they look at one; of a row, as many lanes as cover it. After
 * warp.cuh; the source has is_row(domain), and broken(domain, numbers): a bit
 * for each that is.
 */
enum { AHEAD = 4, DIMS = 11 };
enum { F32, BF16, F16, F64, I32, I64 };

/* Entries in the order in which they are counted: n by n of them, those of a
 * row, or of what lies in one run, behind the first `outer`. */
struct Tensor {
    const char *p;
    i64 count, each;                    /* pieces, those of a run; or rows,
                                           pieces of a row */
    i64 n[DIMS], stride[DIMS];
    int outer, dims, type, domain;
    int width, lanes;                   /* entries in a piece; of a row */
    int limit, pad;                     /* an index is below it; 0: any */
};

INLINE int size_of(const Tensor &t)
{
    return t.type == F32 || t.type == I32 ? 4
         : t.type == F64 || t.type == I64 ? 8 : 2;
}

/* Where the x-th begins, of dimensions `from` to before `to`. */
INLINE i64 place(const Tensor &t, int from, int to, u64 x)
{
    i64 at = 0;
    for (int d = to - 1; d >= from; d--) {
        const u64 n = t.n[d], next = x / n;
        at += (i64)(x - next * n) * t.stride[d];
        x = next;
    }
    return at;
}

INLINE Piece piece_at(const Tensor &t, i64 at)
{
    Piece x = { { 0, 0, 0, 0 } };
    if (t.width > 1)
        return *(const Piece *)(t.p + size_of(t) * at);
    if (size_of(t) == 4) {
        x.x[0] = ((const u32 *)t.p)[at];
    } else if (size_of(t) == 8) {
        x.x[0] = ((const u32 *)t.p)[2 * at];
        x.x[1] = ((const u32 *)t.p)[2 * at + 1];
    } else {
        x.x[0] = ((const u16 *)t.p)[at];
    }
    return x;
}

INLINE float narrow(u32 low, u32 high)
{
    union { u64 u; double x; } both;
    both.u = (u64)high << 32 | low;
    return (float)both.x;
}

/* An index, or -1 where it is none. */
INLINE float index_of(const Tensor &t, i64 x)
{
    return x < 0 || (t.limit && x >= t.limit) ? -1.f : (float)x;
}

/* What the piece holds, as often as there is room. */
INLINE void unpack(const Tensor &t, const Piece &x, float y[8])
{
    UNROLL
    for (int k = 0; k < 8; k++) {
        const int i = t.width == 1 ? 0 : k;
        const u32 half = x.x[i / 2] >> 16 * (i % 2) & 0xffff;
        const u32 low = x.x[i % 2 * 2], high = x.x[i % 2 * 2 + 1];
        y[k] = t.type == F32 ? bits(x.x[i % 4])
             : t.type == I32 ? index_of(t, (int)x.x[i % 4])
             : t.type == I64 ? index_of(t, (i64)((u64)high << 32 | low))
             : t.type == F64 ? narrow(x.x[i % 2 * 2], x.x[i % 2 * 2 + 1])
             : t.type == F16 ? half_to_float((u16)half) : bits(half << 16);
    }
}

CALLED void look(const Tensor &t, i64 p, Piece x, u64 *found)
{
    float y[8];
    unpack(t, x, y);
    const u32 which = broken(t.domain, y);
    int first = 0;
    while (which && !(which >> first & 1))
        first++;
    if (which)
        atomicMin(found, (u64)p * t.width + first);
}

INLINE void entries(const Tensor &t, i64 thread, i64 threads,
                                    u64 *found)
{
    for (i64 p = thread; p < t.count; p += AHEAD * threads) {
        Piece x[AHEAD];
        UNROLL
        for (int u = 0; u < AHEAD; u++) {
            const i64 q = p + u * threads;
            const i64 run = t.outer ? (i64)((u64)q / t.each) : 0;
            if (q < t.count)
                x[u] = piece_at(t, place(t, 0, t.outer, run)
                                + (q - run * t.each) * t.width
                                * t.stride[t.outer]);
        }
        UNROLL
        for (int u = 0; u < AHEAD; u++)
            if (p + u * threads < t.count)
                look(t, p + u * threads, x[u], found);
    }
}

CALLED float squares(const Tensor &t, Piece x)
{
    float y[8], sum = 0;
    unpack(t, x, y);
    UNROLL
    for (int k = 0; k < 8; k++)
        sum += k < t.width ? y[k] * y[k] : 0;
    return sum;
}

INLINE Piece of_row(const Tensor &t, i64 row, i64 piece)
{
    return piece_at(t, place(t, 0, t.outer, row)
                    + place(t, t.outer, t.dims, piece * t.width));
}

INLINE void rows(const Tensor &t, i64 thread, i64 threads,
                                 u64 *found)
{
    const i64 mine = thread / t.lanes, step = threads / t.lanes;
    const int lane = (int)(thread % t.lanes);
    for (i64 first = 0; first < t.count; first += AHEAD * step) {
        Piece x[AHEAD];
        UNROLL
        for (int u = 0; u < AHEAD; u++)
            if (first + u * step + mine < t.count && lane < t.each)
                x[u] = of_row(t, first + u * step + mine, lane);
        UNROLL
        for (int u = 0; u < AHEAD; u++) {
            const i64 row = first + u * step + mine;
            float sum = row < t.count && lane < t.each ? squares(t, x[u]) : 0;
            for (i64 i = lane + t.lanes; row < t.count && i < t.each;
                 i += t.lanes)
                sum += squares(t, of_row(t, row, i));
            for (int by = t.lanes / 2; by; by /= 2)
                sum += lane_xor(sum, by);
            const float y[8] = { sum, sum, sum, sum, sum, sum, sum, sum };
            if (lane == 0 && row < t.count && broken(t.domain, y))
                atomicMin(found, (u64)row);
        }
    }
}

INLINE void probe(const Tensor &t, i64 thread, i64 threads, u64 *found)
{
    if (is_row(t.domain))
        rows(t, thread, threads, found);
    else
        entries(t, thread, threads, found);
}
