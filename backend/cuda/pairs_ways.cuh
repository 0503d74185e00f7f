/* pairs_ways.cuh -- the way back over all pairs of tokens on any GPU, of any
 * types and sizes, in a block's memory of so many bytes (compiler/pair_ways.h).
 * What a block owns and what streams past it are in shared memory alone, and
 * come past the caches of the multiprocessor: what is moved is what is counted
 * there. After pairs_plain.cuh.
 */
enum { WAY_THREADS = 256 };
constexpr int KEY_LINE = KEY_SIZE | 1, VALUE_LINE = VALUE_SIZE | 1;

/* ---- memory ---- */

#ifndef HOST
INLINE u32 fetch_word(const void *p)
{
    u32 x;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(x)
                 : "l"(__cvta_generic_to_global(p)) : "memory");
    return x;
}
INLINE u16 fetch_half(const void *p)
{
    u16 x;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(x)
                 : "l"(__cvta_generic_to_global(p)) : "memory");
    return x;
}
#else
INLINE u32 fetch_word(const void *p) { return *(const u32 *)p; }
INLINE u16 fetch_half(const void *p) { return *(const u16 *)p; }
#endif
INLINE float fetch(const float *p) { return bits(fetch_word(p)); }

/* A number as it lies there, and what it is. */
template<int TYPE> INLINE u32 fetch_raw(const Place &p, i64 at)
{
    if (TYPE == F32)
        return fetch_word((const float *)p.p + at);
    if (TYPE == F64)
        return bits_of(load(p.p, TYPE, at));
    return fetch_half((const u16 *)p.p + at);
}
template<int TYPE> INLINE float of_raw(u32 x)
{
    return TYPE == F16 ? half_to_float((u16)x)
         : TYPE == BF16 ? bits(x << 16) : bits(x);
}
/* So many loads are under way at once in a thread. */
enum { AT_ONCE = 8 };
template<int TYPE, int N, int W, int SIZE>
INLINE void fetch_typed(float *to, int line, const Place &p, const OwnRow &x,
                        int from, int column)
{
    const i64 at = row_place(p, x, from) + column;  /* it divides */
    NO_UNROLL for (int first = threadIdx.x; first < N * W;
                   first += AT_ONCE * WAY_THREADS) {
        u32 raw[AT_ONCE];
        UNROLL for (int k = 0; k < AT_ONCE; k++) {
            const int n = first + k * WAY_THREADS, r = n / W, c = n - r * W;
            const bool in = r < N && from + r < x.len && column + c < SIZE;
            raw[k] = in ? fetch_raw<TYPE>(p, at + r * p.st + c) : 0;
        }
        UNROLL for (int k = 0; k < AT_ONCE; k++) {
            const int n = first + k * WAY_THREADS, r = n / W, c = n - r * W;
            if (r < N)
                to[r * line + c] = of_raw<TYPE>(raw[k]);
        }
    }
}
/* Columns [column, column + W) of SIZE of N tokens; 0 where there are none. */
template<int N, int W, int SIZE>
INLINE void fetch_rows(float *to, int line, const Place &p, const OwnRow &x,
                       int from, int column)
{
    if (p.type == F32)
        fetch_typed<F32, N, W, SIZE>(to, line, p, x, from, column);
    else if (p.type == BF16)
        fetch_typed<BF16, N, W, SIZE>(to, line, p, x, from, column);
    else if (p.type == F16)
        fetch_typed<F16, N, W, SIZE>(to, line, p, x, from, column);
    else
        fetch_typed<F64, N, W, SIZE>(to, line, p, x, from, column);
}
template<int N, int W, int SIZE>
INLINE void store_rows(const Place &p, const float *y, int line,
                       const OwnRow &x, int from, int column, float scale)
{
    const i64 at = row_place(p, x, from) + column;
    NO_UNROLL for (int n = threadIdx.x; n < N * W; n += WAY_THREADS) {
        const int r = n / W, c = n - r * W;
        if (from + r < x.len && column + c < SIZE)
            store(p.p, p.type, at + r * p.st + c, y[r * line + c] * scale);
    }
}
INLINE void clear(float *to, int n)
{
    for (int i = threadIdx.x; i < n; i += WAY_THREADS)
        to[i] = 0.f;
}

/* The side of the square that a thread has of M x N sums: squares enough for
 * all threads. */
template<int M, int N> struct Square {
    enum { SIDE = (M + 3) / 4 * ((N + 3) / 4) >= WAY_THREADS ? 4
                : (M + 1) / 2 * ((N + 1) / 2) >= WAY_THREADS ? 2 : 1 };
};
/* c[m][n] = or += the sum of a[m][t] b[n][t], by strides; `sparse`: where a is
 * 0 whatever b is adds nothing. */
template<bool SPARSE, int M, int N>
INLINE void multiply(float *c, int line, const float *a, int am, int at,
                     const float *b, int bn, int bt, int terms, bool add)
{
    constexpr int SIDE = Square<M, N>::SIDE;
    constexpr int ROWS_OF = (M + SIDE - 1) / SIDE;
    constexpr int COLS_OF = (N + SIDE - 1) / SIDE;
    NO_UNROLL for (int n = threadIdx.x; n < ROWS_OF * COLS_OF;
                   n += WAY_THREADS) {
        const int row = n / COLS_OF, col = n - row * COLS_OF;
        float sum[SIDE][SIDE] = {};
        const float *pa[SIDE], *pb[SIDE];
        UNROLL for (int i = 0; i < SIDE; i++) {
            pa[i] = a + min(row + i * ROWS_OF, M - 1) * am;
            pb[i] = b + min(col + i * COLS_OF, N - 1) * bn;
        }
        UNROLL_FOUR for (int t = 0; t < terms; t++) {
            float x[SIDE], y[SIDE];
            UNROLL for (int i = 0; i < SIDE; i++) {
                x[i] = pa[i][t * at];
                y[i] = pb[i][t * bt];
            }
            UNROLL for (int i = 0; i < SIDE; i++)
                UNROLL for (int j = 0; j < SIDE; j++)
                    if (!SPARSE || x[i] != 0.f)
                        sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
        }
        UNROLL for (int i = 0; i < SIDE; i++)
            UNROLL for (int j = 0; j < SIDE; j++) {
                const int m = row + i * ROWS_OF, k = col + j * COLS_OF;
                if (m < M && k < N)
                    c[m * line + k] = (add ? c[m * line + k] : 0.f) + sum[i][j];
            }
    }
}

/* ---- who has which tokens ---- */

/* The first token of block n, by parts of OWN ones and heads; false: it has
 * none. */
template<int OWN> INLINE bool find_own(const Pairs &a, i64 n, OwnRow &x)
{
    const SeqPart p = find_part<OWN>(a, n / a.turn);
    x.head = a.head + (int)(n % a.turn);
    x.s = p.s;
    x.b = p.b;
    x.len = p.len;
    x.start = p.start;
    x.at = x.head * a.rows + x.b * a.tokens + x.start;
    if (p.n < 0 || (i64)p.n * OWN >= x.len)
        return false;
    x.t = p.n * OWN;
    return true;
}
/* What streams past tokens x.t .. to. */
template<bool OF_KEYS>
INLINE void find_others(const OwnRow &x, int to, int &first, int &last)
{
    first = x.len;
    last = -1;
    if (OF_KEYS)
        rows_of_columns<0>(x.t, to, first, last);
    else
        columns_of<0>(x.t, to, first, last);
    first = max(first, OF_KEYS && !WHOLE ? x.t : 0);
    last = min(last, OF_KEYS || WHOLE ? x.len - 1 : to);
}
template<bool OF_KEYS> INLINE bool any_pair(int own, int to, int from, int end)
{
    return OF_KEYS ? meets<0>(from, end, own, to)
                   : meets<0>(own, to, from, end);
}
/* Own token `own`, streaming token `other`. */
template<bool OF_KEYS>
INLINE void find_here(PairHere &p, const Pairs &a, const OwnRow &x, int own,
                      int other)
{
    find_pair(p, a, x, OF_KEYS ? other : own, OF_KEYS ? own : other);
    p.in = p.in && own < x.len && other < x.len;
}
/* Adds to a token's leaves' gradients what pair p adds. */
template<bool OF_KEYS>
INLINE void add_leaves(float *leaf, const PairHere &p, float s, float g,
                       int len)
{
    in_piece<MIXED>(p.t, len, [&](auto piece) {
        auto own = [&](int k, float z) { leaf[k] += g * z; };
        auto number = [&](int k, float z) { leaf[ROWS + k] += g * z; };
        if constexpr (OF_KEYS) {
            pair_cols<decltype(piece)::N>(s, p.t, own);
        } else {
            pair_rows<decltype(piece)::N>(s, p.t, own);
            pair_numbers<decltype(piece)::N>(s, p.t, number);
        }
    });
}
template<bool OF_KEYS> struct OwnLeaves {
    enum { N = !SLOPES ? 0 : OF_KEYS ? COLS : ROWS + NUMBERS };
};
template<bool OF_KEYS>
INLINE void store_leaves(const Pairs &a, const OwnRow &x, const float *leaf,
                         int own)
{
    constexpr int N = OwnLeaves<OF_KEYS>::N;
    for (int n = threadIdx.x; n < N * own; n += WAY_THREADS) {
        const int t = n / (N + !N), k = n - t * N;
        const int plane = OF_KEYS ? ROWS + k : k < ROWS ? k : COLS + k;
        if (x.t + t < x.len)
            a.dleaf[plane * a.plane + x.at + x.t + t] = leaf[n];
    }
}

/* ---- blocks in fast memory: scores are formed anew ---- */

/* OF_KEYS: the block owns keys, past which queries stream; else queries. */
template<bool OF_KEYS, int OWN, int STEP> INLINE void way_blocks(const Pairs &a)
{
    constexpr int LEAVES = OwnLeaves<OF_KEYS>::N;
    float *own_k = (float *)arena, *own_v = own_k + OWN * KEY_LINE;
    float *d = own_v + OWN * VALUE_LINE, *dv = d + OWN * KEY_LINE;
    float *row_k = dv + (OF_KEYS ? OWN * VALUE_LINE : 0);
    float *row_v = row_k + STEP * KEY_LINE;
    float *s = row_v + STEP * VALUE_LINE, *dp = s + STEP * OWN;
    float *leaf = dp + STEP * OWN;
    OwnRow x;
    int first, last;
    if (!find_own<OWN>(a, blockIdx.x, x))
        return;
    const int to = min(x.t + OWN, x.len) - 1;
    const Place &mine = OF_KEYS ? a.k : a.q, &other = OF_KEYS ? a.q : a.k;
    const Place &mine_v = OF_KEYS ? a.v : a.dy, &other_v = OF_KEYS ? a.dy : a.v;
    fetch_rows<OWN, KEY_SIZE, KEY_SIZE>(own_k, KEY_LINE, mine, x, x.t, 0);
    fetch_rows<OWN, VALUE_SIZE, VALUE_SIZE>(own_v, VALUE_LINE, mine_v, x, x.t,
                                            0);
    clear(d, OWN * (KEY_LINE + (OF_KEYS ? VALUE_LINE : 0)));
    clear(leaf, OWN * LEAVES);
    find_others<OF_KEYS>(x, to, first, last);
    NO_UNROLL for (int from = first; from <= last; from += STEP) {
        if (!any_pair<OF_KEYS>(x.t, to, from, from + STEP - 1))
            continue;
        fetch_rows<STEP, KEY_SIZE, KEY_SIZE>(row_k, KEY_LINE, other, x, from,
                                             0);
        fetch_rows<STEP, VALUE_SIZE, VALUE_SIZE>(row_v, VALUE_LINE, other_v, x,
                                                 from, 0);
        __syncthreads();
        multiply<false, STEP, OWN>(s, OWN, row_k, KEY_LINE, 1, own_k, KEY_LINE,
                                   1, KEY_SIZE, false);
        multiply<false, STEP, OWN>(dp, OWN, row_v, VALUE_LINE, 1, own_v,
                                   VALUE_LINE, 1, VALUE_SIZE, false);
        __syncthreads();
        if constexpr (LEAVES > 0) {
            for (int t = threadIdx.x; t < OWN; t += WAY_THREADS)
                NO_UNROLL for (int n = 0; n < STEP; n++) {
                    PairHere p;
                    find_here<OF_KEYS>(p, a, x, x.t + t, from + n);
                    const float score = scaled(s[n * OWN + t]);
                    const PairBack y = back_pair(a, x, p, score,
                                                 dp[n * OWN + t]);
                    if (p.in)
                        add_leaves<OF_KEYS>(leaf + t * LEAVES, p, score,
                                            leaf_gradient(y.g, score), x.len);
                }
            __syncthreads();
        }
        NO_UNROLL for (int n = threadIdx.x; n < STEP * OWN; n += WAY_THREADS) {
            PairHere p;
            find_here<OF_KEYS>(p, a, x, x.t + n % OWN, from + n / OWN);
            const PairBack y = back_pair(a, x, p, scaled(s[n]), dp[n]);
            s[n] = y.w;
            dp[n] = y.ds;
        }
        __syncthreads();
        multiply<true, OWN, KEY_SIZE>(d, KEY_LINE, dp, 1, OWN, row_k, 1,
                                      KEY_LINE, STEP, true);
        if (OF_KEYS)
            multiply<true, OWN, VALUE_SIZE>(dv, VALUE_LINE, s, 1, OWN, row_v, 1,
                                            VALUE_LINE, STEP, true);
        __syncthreads();
    }
    __syncthreads();
    store_rows<OWN, KEY_SIZE, KEY_SIZE>(OF_KEYS ? a.dk : a.dq, d, KEY_LINE, x,
                                        x.t, 0, SCALE);
    if (OF_KEYS)
        store_rows<OWN, VALUE_SIZE, VALUE_SIZE>(a.dv, dv, VALUE_LINE, x, x.t, 0,
                                                1.f);
    store_leaves<OF_KEYS>(a, x, leaf, OWN);
}

/* ---- tiles: scores and weights' gradients are written, n x n ---- */

/* Whether a piece has the pair, and the sequence both tokens. */
INLINE bool is_pair(int i, int j, int len)
{
    bool in = false;
    At t = {};
    t.i = i;
    t.j = j;
    in_piece<MIXED>(t, len, [&](auto) { in = true; });
    return in && i < len && j < (WHOLE ? len : i + 1);
}
/* Where the pair's numbers are: rows of queries; of a window these begin with
 * its first key. */
INLINE i64 entry_of(const Pairs &a, const OwnRow &x, int i, int j)
{
    const i64 row = (x.head - a.head) * a.rows + x.b * a.tokens + x.start + i;
    return row * a.wide + (BAND ? j - i + a.wide - 1 : j);
}
enum { ENTRIES_AT_ONCE = 4 };
/* Products of the OWN keys with queries, or (GAINS) of their values with dy: as
 * many terms at once as are `DEPTH`. */
template<bool GAINS, int OWN, int STEP, int DEPTH>
INLINE void score_tiles(const Pairs &a, const OwnRow &x)
{
    constexpr int LINE = DEPTH | 1, SIZE = GAINS ? VALUE_SIZE : KEY_SIZE;
    constexpr bool ALL = DEPTH >= KEY_SIZE && DEPTH >= VALUE_SIZE;
    float *own = (float *)arena, *rows = own + OWN * LINE;
    float *tile = rows + STEP * LINE;
    const int to = min(x.t + OWN, x.len) - 1;
    int first, last;
    find_others<true>(x, to, first, last);
    if (ALL)
        fetch_rows<OWN, DEPTH, SIZE>(own, LINE, GAINS ? a.v : a.k, x, x.t, 0);
    NO_UNROLL for (int from = first; from <= last; from += STEP) {
        if (!any_pair<true>(x.t, to, from, from + STEP - 1))
            continue;
        NO_UNROLL for (int at = 0; at < SIZE; at += DEPTH) {
            if (!ALL)
                fetch_rows<OWN, DEPTH, SIZE>(own, LINE, GAINS ? a.v : a.k, x,
                                             x.t, at);
            fetch_rows<STEP, DEPTH, SIZE>(rows, LINE, GAINS ? a.dy : a.q, x,
                                          from, at);
            __syncthreads();
            multiply<false, STEP, OWN>(tile, OWN, rows, LINE, 1, own, LINE, 1,
                                       DEPTH, at > 0);
            __syncthreads();
        }
        NO_UNROLL for (int all = threadIdx.x; all < STEP * OWN;
                       all += ENTRIES_AT_ONCE * WAY_THREADS) {
            float s[ENTRIES_AT_ONCE];
            UNROLL for (int k = 0; k < ENTRIES_AT_ONCE; k++) {
                const int n = all + k * WAY_THREADS;
                const int i = from + n / OWN, j = x.t + n % OWN;
                s[k] = SOFTMAX && GAINS && n < STEP * OWN
                    && is_pair(i, j, x.len)
                    ? fetch(a.scores + entry_of(a, x, i, j)) : 0.f;
            }
            UNROLL for (int k = 0; k < ENTRIES_AT_ONCE; k++) {
                const int n = all + k * WAY_THREADS;
                const int i = from + n / OWN, j = x.t + n % OWN;
                if (n >= STEP * OWN || !is_pair(i, j, x.len))
                    continue;
                const i64 entry = entry_of(a, x, i, j);
                if (!GAINS) {
                    a.scores[entry] = scaled(tile[n]);
                } else if (!SOFTMAX) {
                    a.gains[entry] = tile[n];
                } else {
                    PairHere p;
                    find_here<true>(p, a, x, j, i);
                    a.gains[entry] = back_pair(a, x, p, s[k], tile[n]).g;
                }
            }
        }
        __syncthreads();
    }
    __syncthreads();
}
template<int OWN, int STEP, int DEPTH> INLINE void way_scores(const Pairs &a)
{
    OwnRow x;
    if (!find_own<OWN>(a, blockIdx.x, x))
        return;
    score_tiles<false, OWN, STEP, DEPTH>(a, x);
    score_tiles<true, OWN, STEP, DEPTH>(a, x);
}

/* What a product makes: dk and dq of the scores' gradients, dv of weights. */
enum { MAKES_KEYS, MAKES_QUERIES, MAKES_VALUES };
constexpr bool READS_SCORES = SLOPES || (SOFTMAX || WEIGHS ? !FLAT : false);
/* What was written of a pair. */
struct Entry { float s, g; bool in; };
template<int MAKES>
INLINE Entry fetch_entry(const Pairs &a, const OwnRow &x, int own, int other)
{
    constexpr bool OF_KEYS = MAKES != MAKES_QUERIES;
    const int i = OF_KEYS ? other : own, j = OF_KEYS ? own : other;
    Entry e = { 0, 0, is_pair(i, j, x.len) };
    if (!e.in)
        return e;
    const i64 entry = entry_of(a, x, i, j);
    if (MAKES == MAKES_VALUES || READS_SCORES)
        e.s = fetch(a.scores + entry);
    if (MAKES != MAKES_VALUES)
        e.g = fetch(a.gains + entry);
    return e;
}
/* What multiplies the streaming token's row. */
template<int MAKES>
INLINE float factor_of(const Pairs &a, const OwnRow &x, const Entry &e, int own,
                       int other)
{
    PairHere p;
    if (!e.in)
        return 0;
    find_here<MAKES != MAKES_QUERIES>(p, a, x, own, other);
    if (MAKES != MAKES_VALUES)
        return score_gradient(e.g, e.s, p.t, x.len);
    return weight_of(value_of<MIXED>(e.s, p.t, x.len), e.s,
                     SOFTMAX ? a.lse[x.at + p.t.i] : 0.f);
}
template<int MAKES, int OWN, int STEP, int W>
INLINE void way_product(const Pairs &a)
{
    constexpr bool OF_KEYS = MAKES != MAKES_QUERIES;
    constexpr int SIZE = MAKES == MAKES_VALUES ? VALUE_SIZE : KEY_SIZE;
    constexpr int SLICES = (SIZE + W - 1) / W;
    constexpr int LEAVES = MAKES == MAKES_VALUES ? 0 : OwnLeaves<OF_KEYS>::N;
    float *sum = (float *)arena, *rows = sum + OWN * W;
    float *by = rows + STEP * W, *leaf = by + STEP * OWN;
    const int slice = (int)(blockIdx.x % SLICES);
    OwnRow x;
    int first, last;
    if (!find_own<OWN>(a, blockIdx.x / SLICES, x))
        return;
    const int to = min(x.t + OWN, x.len) - 1;
    const Place &other = MAKES == MAKES_VALUES ? a.dy : OF_KEYS ? a.q : a.k;
    const Place &y = MAKES == MAKES_VALUES ? a.dv : OF_KEYS ? a.dk : a.dq;
    clear(sum, OWN * W);
    clear(leaf, OWN * LEAVES);
    __syncthreads();
    find_others<OF_KEYS>(x, to, first, last);
    NO_UNROLL for (int from = first; from <= last; from += STEP) {
        if (!any_pair<OF_KEYS>(x.t, to, from, from + STEP - 1))
            continue;
        fetch_rows<STEP, W, SIZE>(rows, W, other, x, from, slice * W);
        NO_UNROLL for (int all = threadIdx.x; all < STEP * OWN;
                       all += ENTRIES_AT_ONCE * WAY_THREADS) {
            Entry e[ENTRIES_AT_ONCE] = {};
            UNROLL for (int k = 0; k < ENTRIES_AT_ONCE; k++) {
                const int n = all + k * WAY_THREADS;
                if (n < STEP * OWN)
                    e[k] = fetch_entry<MAKES>(
                        a, x, x.t + (OF_KEYS ? n % OWN : n / STEP),
                        from + (OF_KEYS ? n / OWN : n % STEP));
            }
            UNROLL for (int k = 0; k < ENTRIES_AT_ONCE; k++) {
                const int n = all + k * WAY_THREADS;
                const int t = OF_KEYS ? n % OWN : n / STEP;
                const int step = OF_KEYS ? n / OWN : n % STEP;
                if (n < STEP * OWN)
                    by[step * OWN + t] = factor_of<MAKES>(a, x, e[k], x.t + t,
                                                          from + step);
            }
        }
        if constexpr (LEAVES > 0)
            for (int t = threadIdx.x; slice == 0 && t < OWN; t += WAY_THREADS)
                NO_UNROLL for (int n = 0; n < STEP; n++) {
                    const Entry e = fetch_entry<MAKES>(a, x, x.t + t, from + n);
                    PairHere p;
                    find_here<OF_KEYS>(p, a, x, x.t + t, from + n);
                    if (e.in)
                        add_leaves<OF_KEYS>(leaf + t * LEAVES, p, e.s,
                                            leaf_gradient(e.g, e.s), x.len);
                }
        __syncthreads();
        multiply<true, OWN, W>(sum, W, by, 1, OWN, rows, 1, W, STEP, true);
        __syncthreads();
    }
    __syncthreads();
    store_rows<OWN, W, SIZE>(y, sum, W, x, x.t, slice * W,
                             MAKES == MAKES_VALUES ? 1.f : SCALE);
    if (LEAVES > 0 && slice == 0)
        store_leaves<OF_KEYS>(a, x, leaf, OWN);
}
