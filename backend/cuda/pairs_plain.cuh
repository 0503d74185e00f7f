/* pairs_plain.cuh -- all pairs of tokens on any GPU, of any types and sizes,
 * forward: a warp has a row; what goes before and after kernels of either kind;
 * and a pair's gradients. After dense.cuh and pairs_call.cuh.
 */
enum { PLAIN_WARPS = 4, PLAIN_THREADS = 32 * PLAIN_WARPS, LEAF_THREADS = 256 };
constexpr int KEY_PARTS = (KEY_SIZE + 31) / 32;
constexpr int VALUE_PARTS = (VALUE_SIZE + 31) / 32;
extern __shared__ char arena[];

/* A sequence's row of a head. */
struct OwnRow { int head, b, len, t; i64 start, at, s; };

INLINE void find_sequence(const Pairs &a, i64 token, i64 &s)
{
    i64 end = a.nseq;
    s = 0;
    while (end - s > 1) {
        const i64 mid = s + (end - s) / 2;
        if (a.cu[mid] <= token)
            s = mid;
        else
            end = mid;
    }
}
/* The warp's; false: it has none. */
INLINE bool find_row(const Pairs &a, i64 n, OwnRow &x)
{
    const i64 token = divided(n, a.heads);
    if (token >= a.rows)
        return false;
    x.head = (int)(n - token * a.heads);
    x.b = a.cu ? 0 : (int)divided(token, a.tokens);
    x.s = x.b;
    x.start = 0;
    x.len = (int)a.tokens;
    if (a.cu) {
        find_sequence(a, token, x.s);
        x.start = a.cu[x.s];
        x.len = (int)(a.cu[x.s + 1] - a.cu[x.s]);
    }
    x.t = (int)(token - x.b * a.tokens - x.start);
    x.at = x.head * a.rows + x.b * a.tokens + x.start;
    return x.t >= 0 && x.t < x.len;
}
/* A row a warp. */
INLINE bool find_row(const Pairs &a, OwnRow &x)
{
    return find_row(a, (i64)blockIdx.x * PLAIN_WARPS + threadIdx.x / 32, x);
}
INLINE i64 row_place(const Place &p, const OwnRow &x, int t)
{
    return x.b * p.sb + (x.start + t) * p.st + x.head / p.group * p.sh;
}
/* Of a row, this lane's columns. */
template<int PARTS>
INLINE void load_row(float (&y)[PARTS], const Place &p, i64 at, int columns,
                     int lane)
{
    UNROLL for (int c = 0; c < PARTS; c++)
        y[c] = lane + 32 * c < columns ? load(p.p, p.type, at + lane + 32 * c)
                                       : 0.f;
}
template<int PARTS>
INLINE void store_row(const Place &p, i64 at, const float (&y)[PARTS],
                      int columns, float scale, int lane)
{
    UNROLL for (int c = 0; c < PARTS; c++)
        if (lane + 32 * c < columns)
            store(p.p, p.type, at + lane + 32 * c, y[c] * scale);
}
INLINE float dot_of(const Place &a, i64 at, const Place &b, i64 bt, int n)
{
    float sum = 0;
    NO_UNROLL for (int e = 0; e < n; e++)
        sum += load(a.p, a.type, at + e) * load(b.p, b.type, bt + e);
    return sum;
}
INLINE float warp_max(float x)
{
    UNROLL for (int by = 16; by; by /= 2)
        x = max_(x, lane_xor(x, by));
    return x;
}

/* A lane's pair, with the leaves of both of its tokens. Sums begin at j. */
struct PairHere {
    float row[ROWS + !ROWS], col[COLS + !COLS], number[NUMBERS + !NUMBERS];
    At t;
    bool in;
};
INLINE void find_pair(PairHere &p, const Pairs &a, const OwnRow &x, int i,
                      int j)
{
    p.in = i < x.len && j <= (WHOLE ? x.len - 1 : i);
    i = min(i, x.len - 1);
    j = min(j, WHOLE ? x.len - 1 : i);
    for (int k = 0; k < ROWS + COLS; k++) {
        const int sum = leaf_sum(k), t = k < ROWS ? i : j;
        const double base = sum < 0 ? 0 : a.leaf[sum * a.plane + x.at + j];
        const float y = (float)(a.leaf[k * a.plane + x.at + t] - base);
        if (k < ROWS)
            p.row[k < ROWS ? k : 0] = y;
        else
            p.col[k < ROWS ? 0 : k - ROWS] = y;
    }
    for (int k = 0; k < NUMBERS; k++)
        p.number[k] = (float)a.number[k * a.heads + x.head];
    p.t.i = i;
    p.t.j = j;
    p.t.x = (float)i;
    p.t.y = (float)j;
    p.t.row = p.row;
    p.t.col = p.col;
    p.t.number = p.number;
}
/* Numbers that a warp's lanes have, for all of them. */
INLINE float *shared_numbers()
{
    return (float *)arena + 32 * (threadIdx.x / 32);
}

INLINE void plain_forward(const Pairs &a)
{
    const int lane = threadIdx.x % 32;
    float *w = shared_numbers();
    float y[VALUE_PARTS] = {}, sum = 0, most = bits(0xff800000);
    OwnRow x;
    if (!find_row(a, x))
        return;
    int first = x.len, last = -1;
    columns_of<0>(x.t, x.t, first, last);
    last = min(last, WHOLE ? x.len - 1 : x.t);
    NO_UNROLL for (int from = max(first, 0); from <= last; from += 32) {
        PairHere p;
        if (!meets<0>(x.t, x.t, from, from + 31))
            continue;
        find_pair(p, a, x, x.t, from + lane);
        const bool in = from + lane <= last;
        const float s = scaled(dot_of(a.q, row_place(a.q, x, x.t), a.k,
                                     row_place(a.k, x, p.t.j), KEY_SIZE));
        const float value = value_of<MIXED>(s, p.t, x.len);
        float weight = in ? weight_of(value, s, 0.f) : 0.f, less = 1;
        if (SOFTMAX) {
            const float none = bits(0xff800000);
            const float top = max_(most, warp_max(in ? value : none));
            const float at = top == none ? 0.f : top;
            less = exp2_((most - at) * SLOPE);
            weight = in ? exp2_((value - at) * SLOPE) : 0.f;
            most = top;
        }
        sum = sum * less + lane_sum<32>(weight);
        w[lane] = weight;
        __syncwarp();
        UNROLL for (int c = 0; c < VALUE_PARTS; c++)
            y[c] *= less;
        NO_UNROLL for (int j = 0; j < 32 && from + j <= last; j++) {
            float v[VALUE_PARTS];
            load_row(v, a.v, row_place(a.v, x, from + j), VALUE_SIZE, lane);
            UNROLL for (int c = 0; c < VALUE_PARTS; c++)
                y[c] += w[j] != 0.f ? w[j] * v[c] : 0.f;
        }
        __syncwarp();
    }
    const bool none = sum == 0.f;
    if (SOFTMAX && a.lse && lane == 0)
        a.lse[x.at + x.t] = none ? bits(0x7f800000)
                                 : most * SLOPE + log2_(sum);
    const float all = SOFTMAX ? none ? 0.f : 1 / sum : 1.f;
    store_row(a.y, row_place(a.y, x, x.t), y, VALUE_SIZE, all, lane);
    if (a.again.p)
        store_row(a.again, row_place(a.again, x, x.t), y, VALUE_SIZE, all,
                  lane);
}

/* A pair backward: the weight; what the value's gradient is (without a softmax
 * that of the weight), and the score's but for the scale. */
struct PairBack { float w, g, ds; };
/* The score's, of what the value's is. */
INLINE float score_gradient(float g, float s, const At &t, int len)
{
    if (!SOFTMAX && !WEIGHS) {
        const float value = value_of<MIXED>(s, t, len);
        return value == 0.f ? 0.f : g * value;
    }
    float ds = WEIGHS ? 0.f : g;
    if (!FLAT)
        in_piece<MIXED>(t, len, [&](auto piece) {
            ds = g * pair_slope<decltype(piece)::N>(s, t);
        });
    return ds;
}
/* What leaves' gradients are multiples of. */
INLINE float leaf_gradient(float g, float s)
{
    return SOFTMAX || WEIGHS ? g : g * s;
}
INLINE PairBack back_pair(const Pairs &a, const OwnRow &x, const PairHere &p,
                          float s, float dp)
{
    PairBack y = { 0, 0, 0 };
    const float value = value_of<MIXED>(s, p.t, x.len);
    const i64 at = x.at + p.t.i;
    if (!p.in)
        return y;
    y.w = weight_of(value, s, SOFTMAX ? a.lse[at] : 0.f);
    if (SOFTMAX && y.w == 0.f)
        return y;
    y.g = SOFTMAX ? y.w * (dp - a.delta[at]) : dp;
    y.ds = score_gradient(y.g, s, p.t, x.len);
    return y;
}
/* The sum over the parts, in their order: a block for each of the first keys of
 * a sequence and head. */
INLINE void plain_first(const Pairs &a)
{
    const i64 n = blockIdx.x;
    const int key = (int)(n % FIRSTS), head = (int)(n / FIRSTS % a.heads);
    const i64 s = n / FIRSTS / a.heads, start = a.cu ? a.cu[s] : 0;
    const int len = (int)(a.cu ? a.cu[s + 1] - a.cu[s] : a.tokens);
    const i64 b = a.cu ? 0 : s;
    if (key >= len)
        return;
    for (int c = threadIdx.x; c < PART_USED; c += PLAIN_THREADS) {
        float sum = 0;
        NO_UNROLL for (int part = 0; (i64)part * SPAN < len; part++)
            sum += part_of(a, s, part, head, key)[c];
        const int of = c < KEYS ? c : c < KEYS + VALUES ? c - KEYS
                     : c - KEYS - VALUES;
        const Place &to = c < KEYS ? a.dk : a.dv;
        if (c >= KEYS + VALUES) {
            if (SLOPES)
                a.dleaf[(ROWS + of) * a.plane + head * a.rows + b * a.tokens
                        + start + key] = sum;
        } else if (to.p && of < (c < KEYS ? KEY_SIZE : VALUE_SIZE)) {
            store(to.p, to.type, b * to.sb + (start + key) * to.st
                                 + head / to.group * to.sh + of, sum);
        }
    }
}

/* Eight neighbours of 16 bits at once, by so many lanes a row. */
struct alignas(16) Eight { u32 x[4]; };
constexpr int ROW_LANES = VALUE_SIZE / 8;
constexpr bool BY_EIGHTS = VALUE_SIZE % 8 == 0 && ROW_LANES <= 32
                        && (ROW_LANES & (ROW_LANES - 1)) == 0;
INLINE bool has_eights(const Place &p)
{
    return BY_EIGHTS && (p.type == BF16 || p.type == F16)
        && (u64)p.p % 16 == 0 && p.sb % 8 == 0 && p.st % 8 == 0
        && p.sh % 8 == 0;
}
INLINE float of_eight(const Place &p, const Eight &v, int i)
{
    const u32 half = v.x[i / 2] >> 16 * (i % 2) & 0xffff;
    return p.type == F16 ? half_to_float((u16)half) : bits(half << 16);
}
/* Row n of those of the lane's group. */
INLINE void delta_by_eights(const Pairs &a, i64 n)
{
    constexpr int LANES = BY_EIGHTS ? ROW_LANES : 32;
    const int lane = threadIdx.x % LANES;
    float sum = 0;
    OwnRow x;
    const bool in = find_row(a, n, x);
    if (in) {
        const Eight y = *(const Eight *)((const u16 *)a.y.p + 8 * lane
                                         + row_place(a.y, x, x.t));
        const Eight dy = *(const Eight *)((const u16 *)a.dy.p + 8 * lane
                                          + row_place(a.dy, x, x.t));
        UNROLL for (int i = 0; i < 8; i++)
            sum += of_eight(a.y, y, i) * of_eight(a.dy, dy, i);
    }
    sum = lane_sum<LANES>(sum);
    if (in && lane == 0)
        a.delta[x.at + x.t] = sum;
}
/* Row n by a warp. */
INLINE void delta_by_warp(const Pairs &a, i64 n)
{
    const int lane = threadIdx.x % 32;
    float y[VALUE_PARTS], dy[VALUE_PARTS], sum = 0;
    OwnRow x;
    if (!find_row(a, n, x))
        return;
    load_row(y, a.y, row_place(a.y, x, x.t), VALUE_SIZE, lane);
    load_row(dy, a.dy, row_place(a.dy, x, x.t), VALUE_SIZE, lane);
    UNROLL for (int c = 0; c < VALUE_PARTS; c++)
        sum += y[c] * dy[c];
    sum = lane_sum<32>(sum);
    if (lane == 0)
        a.delta[x.at + x.t] = sum;
}

/* y . dy of each row. */
INLINE void plain_delta(const Pairs &a)
{
    const bool eights = has_eights(a.y) && has_eights(a.dy);
    const int rows = eights ? 32 / (BY_EIGHTS ? ROW_LANES : 32) : 1;
    const i64 warp = (i64)blockIdx.x * PLAIN_WARPS + threadIdx.x / 32;
    const i64 warps = (i64)gridDim.x * PLAIN_WARPS;
    NO_UNROLL for (i64 n = warp * rows; n < a.rows * a.heads; n += warps * rows)
        if (eights)
            delta_by_eights(a, n + threadIdx.x % 32
                               / (BY_EIGHTS ? ROW_LANES : 32));
        else
            delta_by_warp(a, n);
}

/* ---- leaves ---- */

/* A plane's sequence and head, a block each. */
struct LeafBlock { int plane, head, b, len; i64 start, at; };
INLINE LeafBlock leaf_block(const Pairs &a, i64 n)
{
    LeafBlock x;
    x.head = (int)(n % a.heads);
    const i64 s = n / a.heads % a.nseq;
    x.plane = (int)(n / a.heads / a.nseq);
    x.b = a.cu ? 0 : (int)s;
    x.start = a.cu ? a.cu[s] : 0;
    x.len = (int)(a.cu ? a.cu[s + 1] - a.cu[s] : a.tokens);
    x.at = x.head * a.rows + x.b * a.tokens + x.start;
    return x;
}
/* The sum of what the threads before this one bring. */
INLINE double before_here(double x)
{
    double *part = (double *)arena, sum = 0;
    __syncthreads();
    part[threadIdx.x] = x;
    __syncthreads();
    for (int i = 0; i < (int)threadIdx.x; i++)
        sum += part[i];
    return sum;
}
/* A reset, minus infinity, as a number of which sums keep their digits. */
INLINE double with_resets(float x)
{
    return x == bits(0xff800000) ? -1073741824. : x;
}
INLINE int leaf_of_plane(int plane)
{
    int k = 0;
    while (leaf_plane(k + 1) <= plane)
        k++;
    return k;
}
/* LEAVES: Pairs, and a LeafPlace for each leaf. */
template<class LEAVES> INLINE void plain_leaves(const LEAVES &all)
{
    const Pairs &a = all.a;
    const LeafBlock x = leaf_block(a, blockIdx.x);
    const int leaf = leaf_of_plane(x.plane);
    const LeafPlace &p = all.leaf[leaf];
    const i64 entry = (x.plane - leaf_plane(leaf)) * p.se;
    if (leaf >= ROWS + COLS) {
        if (threadIdx.x == 0 && blockIdx.x / a.heads % a.nseq == 0)
            a.number[(x.plane - leaf_plane(ROWS + COLS)) * a.heads + x.head]
                = load(p.p, p.type, x.head / p.group * p.sh + entry);
        return;
    }
    double *to = a.leaf + x.plane * a.plane + x.at;
    const i64 from = x.b * p.sb + x.start * p.st + x.head / p.group * p.sh
                   + entry;
    const int each = (x.len + LEAF_THREADS - 1) / LEAF_THREADS;
    const int first = threadIdx.x * each, last = min(first + each, x.len);
    double sum = 0;
    if (!p.sum) {
        for (int t = threadIdx.x; t < x.len; t += LEAF_THREADS)
            to[t] = t < p.back ? 0 : load(p.p, p.type, from
                                          + (t - p.back) * p.st);
        return;
    }
    for (int t = first; t < last; t++)
        sum += p.sum > 1 ? with_resets(load(p.p, p.type, from + t * p.st))
                         : load(p.p, p.type, from + t * p.st);
    sum = before_here(sum);
    for (int t = first; t < last; t++) {
        const float y = load(p.p, p.type, from + t * p.st);
        sum += p.sum > 1 ? with_resets(y) : y;
        to[t] = sum;
    }
}

/* What an input's leaves have, and numbers' rows: to its gradient, float32 of
 * the call's heads, a plane for each entry. */
struct LeafSum { float *to; int n, plane[MOST_LEAVES], number; };
/* What pairs have added to the gradient of a leaf; where none has a slope, what
 * compares two numbers, they have left nothing there. */
INLINE float leaf_slope(const Pairs &a, int plane, i64 at)
{
    return SLOPES ? a.dleaf[plane * a.plane + at] : 0.f;
}
INLINE int entries_of_leaf(int k)
{
    return leaf_plane(k + 1) - leaf_plane(k);
}
template<class SUMS> INLINE void plain_sums(const SUMS &all)
{
    const Pairs &a = all.a;
    const LeafBlock x = leaf_block(a, blockIdx.x);
    int n = 0, e = x.plane;
    while (e >= entries_of_leaf(all.sum[n].plane[0]))
        e -= entries_of_leaf(all.sum[n++].plane[0]);
    const LeafSum &p = all.sum[n];
    float *to = p.to + e * (p.number ? a.heads : a.plane);
    const int each = (x.len + LEAF_THREADS - 1) / LEAF_THREADS;
    const int first = threadIdx.x * each, last = min(first + each, x.len);
    double own = 0;
    if (p.number) {                     /* of all rows of the head */
        if (blockIdx.x / a.heads % a.nseq != 0)
            return;
        for (i64 t = threadIdx.x; t < a.rows; t += LEAF_THREADS)
            own += leaf_slope(a, leaf_plane(p.plane[0]) + e,
                              x.head * a.rows + t);
        const double before = before_here(own);
        if (threadIdx.x == LEAF_THREADS - 1)
            to[x.head] = (float)(before + own);
        return;
    }
    for (int t = threadIdx.x; t < x.len; t += LEAF_THREADS) {
        float sum = 0;
        for (int k = 0; k < p.n; k++) {
            const LeafPlace &l = all.leaf[p.plane[k]];
            if (!l.sum && t + l.back < x.len)
                sum += leaf_slope(a, leaf_plane(p.plane[k]) + e,
                                  x.at + t + l.back);
        }
        to[x.at + t] = sum;
    }
    for (int k = 0; k < p.n; k++) {
        const int plane = leaf_plane(p.plane[k]) + e;
        if (!all.leaf[p.plane[k]].sum)
            continue;
        /* from the last token back: thread 0 has the last ones */
        double sum = 0;
        for (int t = first; t < last; t++)
            sum += leaf_slope(a, plane, x.at + x.len - 1 - t);
        sum = before_here(sum);
        for (int t = first; t < last; t++) {
            sum += leaf_slope(a, plane, x.at + x.len - 1 - t);
            to[x.at + x.len - 1 - t] += (float)sum;
        }
        __syncthreads();
    }
}
