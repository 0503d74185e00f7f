/* pairs_entries.cuh -- all pairs of tokens, weighed by a number for each key or
 * for each value, on any GPU: forward and back, by tiles in a block's memory.
 *
 * y and the gradients are slopes of one sum, over pairs and entries e, of
 *     L_e(i, j) a_ie b_je p_ij,    p_ij = x_i . z_j,
 * in which a and b are q and k where weights are of keys, and x and z dy and v;
 * where they are of values alone it is the other way round. Of weights of keys
 * and values x and z are one value at a time. After pairs_ways.cuh, and what
 * the source says of leaves: how many planes each has (leaf_kind), and which is
 * its first (leaf_plane).
 */
constexpr bool BOTH = KEYED && VALUED;
constexpr int W_SIZE = KEYED ? KEY_SIZE : VALUE_SIZE;
constexpr int P_ALL = KEYED ? VALUE_SIZE : KEY_SIZE, P_SIZE = BOTH ? 1 : P_ALL;
constexpr int W_LINE = W_SIZE | 1, P_LINE = P_SIZE | 1;

/* The plane of leaf k that entry e of the weighed side, c of the other, has. */
INLINE i64 entry_plane(int k, int e, int c)
{
    const int kind = leaf_kind(k);
    return leaf_plane(k) + (kind == PER_TOKEN ? 0
                            : (kind == PER_KEY) == KEYED ? e : c);
}
/* Does leaf k have a number for each entry of the weighed side? */
INLINE bool is_weighed(int k)
{
    return leaf_kind(k) == (KEYED ? PER_KEY : PER_VALUE);
}
template<bool OF_KEYS>
INLINE void find_entry(PairHere &p, const Pairs &a, const OwnRow &x, int own,
                       int other, int e, int c)
{
    int i = OF_KEYS ? other : own, j = OF_KEYS ? own : other;
    p.in = own < x.len && other < x.len && j <= (WHOLE ? x.len - 1 : i);
    i = min(i, x.len - 1);
    j = min(j, WHOLE ? x.len - 1 : i);
    UNROLL for (int k = 0; k < ROWS + COLS; k++) {
        const int sum = leaf_sum(k), t = k < ROWS ? i : j;
        const double base = sum < 0 ? 0 : a.leaf[entry_plane(sum, e, c)
                                                 * a.plane + x.at + j];
        const float y = (float)(a.leaf[entry_plane(k, e, c) * a.plane + x.at
                                       + t] - base);
        if (k < ROWS)
            p.row[k < ROWS ? k : 0] = y;
        else
            p.col[k < ROWS ? 0 : k - ROWS] = y;
    }
    UNROLL for (int k = 0; k < NUMBERS; k++)
        p.number[k] = (float)a.number[(entry_plane(ROWS + COLS + k, e, c)
                                       - leaf_plane(ROWS + COLS)) * a.heads
                                      + x.head];
    p.t.i = i;
    p.t.j = j;
    p.t.x = (float)i;
    p.t.y = (float)j;
    p.t.row = p.row;
    p.t.col = p.col;
    p.t.number = p.number;
}
INLINE float entry_weight(const PairHere &p, int len)
{
    return p.in ? value_of<MIXED>(0.f, p.t, len) : 0.f;
}
/* The mask's leaf that is the own side's n-th. */
template<bool OF_KEYS> INLINE int own_leaf(int n)
{
    return OF_KEYS ? ROWS + n : n < ROWS ? n : COLS + n;
}
/* Adds to own leaves' slopes those of g times the weight. */
template<bool OF_KEYS>
INLINE void add_slopes(float *slope, const PairHere &p, float g, int len)
{
    if (!p.in || g == 0.f)
        return;
    in_piece<MIXED>(p.t, len, [&](auto piece) {
        auto own = [&](int k, float z) { slope[k] += g * z; };
        auto number = [&](int k, float z) { slope[ROWS + k] += g * z; };
        if constexpr (OF_KEYS) {
            pair_cols<decltype(piece)::N>(0.f, p.t, own);
        } else {
            pair_rows<decltype(piece)::N>(0.f, p.t, own);
            pair_numbers<decltype(piece)::N>(0.f, p.t, number);
        }
    });
}

/* What a block has in its memory: own tokens and those that stream past, on the
 * weighed side (w) and the other (p), tiles of both, and what is summed. */
struct EntryRoom {
    float *own_w, *own_p, *row_w, *row_p, *w, *p, *d_w, *d_p, *lone;
};
template<int OWN, int STEP> INLINE EntryRoom entry_room()
{
    EntryRoom m;
    m.own_w = (float *)arena;
    m.own_p = m.own_w + OWN * W_LINE;
    m.row_w = m.own_p + OWN * P_LINE;
    m.row_p = m.row_w + STEP * W_LINE;
    m.w = m.row_p + STEP * P_LINE;
    m.p = m.w + STEP * OWN;
    m.d_w = m.p + STEP * OWN;
    m.d_p = m.d_w + OWN * W_LINE;
    m.lone = m.d_p + OWN * P_LINE;
    return m;
}

/* w_ij = the sum over e of L_e a_ie b_je, of which token n % OWN is own. */
template<bool OF_KEYS, int OWN, int STEP>
INLINE void weigh_tile(const EntryRoom &m, const Pairs &a,
                       const OwnRow &x, int from, int c)
{
    NO_UNROLL for (int n = threadIdx.x; n < STEP * OWN; n += WAY_THREADS) {
        const int t = n % OWN, s = n / OWN;
        float sum = 0;
        NO_UNROLL for (int e = 0; e < W_SIZE; e++) {
            PairHere p;
            find_entry<OF_KEYS>(p, a, x, x.t + t, from + s, e, c);
            const float weight = entry_weight(p, x.len);
            if (weight != 0.f)
                sum += weight * m.own_w[t * W_LINE + e]
                     * m.row_w[s * W_LINE + e];
        }
        m.w[n] = sum;
    }
}
/* d_e of own tokens += the sum over the streaming ones of L_e times theirs and
 * p; with BACK the slopes of leaves that have a number for each e. */
template<bool OF_KEYS, bool BACK, int OWN, int STEP>
INLINE void add_entries(const EntryRoom &m, const Pairs &a,
                        const OwnRow &x, int from, int c)
{
    constexpr int LEAVES = BACK ? OwnLeaves<OF_KEYS>::N : 0;
    NO_UNROLL for (int n = threadIdx.x; n < W_SIZE * OWN; n += WAY_THREADS) {
        const int t = n % OWN, e = n / OWN;
        float sum = 0, slope[LEAVES + !LEAVES] = {};
        NO_UNROLL for (int s = 0; s < STEP; s++) {
            PairHere p;
            find_entry<OF_KEYS>(p, a, x, x.t + t, from + s, e, c);
            const float weight = entry_weight(p, x.len);
            const float g = p.in ? m.p[s * OWN + t] * m.row_w[s * W_LINE + e]
                                 : 0.f;
            if (weight != 0.f)
                sum += weight * g;
            if constexpr (LEAVES > 0)
                add_slopes<OF_KEYS>(slope, p, g * m.own_w[t * W_LINE + e],
                                    x.len);
        }
        m.d_w[t * W_LINE + e] += sum;
        UNROLL for (int k = 0; k < LEAVES; k++) {
            const int leaf = own_leaf<OF_KEYS>(k);
            if (is_weighed(leaf) && x.t + t < x.len)
                a.dleaf[entry_plane(leaf, e, c) * a.plane + x.at + x.t + t]
                    += slope[k];
        }
    }
}
/* The slopes of other leaves: a thread has a pair, and then a token. */
template<bool OF_KEYS, int OWN, int STEP>
INLINE void add_lone(const EntryRoom &m, const Pairs &a,
                     const OwnRow &x, int from, int c)
{
    constexpr int LEAVES = OwnLeaves<OF_KEYS>::N;
    NO_UNROLL for (int n = threadIdx.x; n < STEP * OWN; n += WAY_THREADS) {
        const int t = n % OWN, s = n / OWN;
        float slope[LEAVES + !LEAVES] = {};
        NO_UNROLL for (int e = 0; e < W_SIZE; e++) {
            PairHere p;
            find_entry<OF_KEYS>(p, a, x, x.t + t, from + s, e, c);
            add_slopes<OF_KEYS>(slope, p, p.in ? m.p[n]
                                * m.own_w[t * W_LINE + e]
                                * m.row_w[s * W_LINE + e] : 0.f, x.len);
        }
        UNROLL for (int k = 0; k < LEAVES; k++)
            m.lone[k * STEP * OWN + n] = slope[k];
    }
    __syncthreads();
    NO_UNROLL for (int n = threadIdx.x; n < LEAVES * OWN; n += WAY_THREADS) {
        const int t = n % OWN, k = n / OWN, leaf = own_leaf<OF_KEYS>(k);
        float sum = 0;
        NO_UNROLL for (int s = 0; s < STEP; s++)
            sum += m.lone[(k * STEP + s) * OWN + t];
        if (!is_weighed(leaf) && x.t + t < x.len)
            a.dleaf[entry_plane(leaf, 0, c) * a.plane + x.at + x.t + t] += sum;
    }
}
/* By the threads that add. */
template<bool OF_KEYS, int OWN>
INLINE void clear_slopes(const Pairs &a, const OwnRow &x, int c)
{
    constexpr int LEAVES = OwnLeaves<OF_KEYS>::N;
    NO_UNROLL for (int n = threadIdx.x; n < W_SIZE * OWN; n += WAY_THREADS)
        UNROLL for (int k = 0; k < LEAVES; k++) {
            const int leaf = own_leaf<OF_KEYS>(k), t = n % OWN;
            if (is_weighed(leaf) && c == 0 && x.t + t < x.len)
                a.dleaf[entry_plane(leaf, n / OWN, c) * a.plane + x.at + x.t
                        + t] = 0.f;
        }
    NO_UNROLL for (int n = threadIdx.x; n < LEAVES * OWN; n += WAY_THREADS) {
        const int t = n % OWN, leaf = own_leaf<OF_KEYS>(n / OWN);
        const bool first = c == 0 || leaf_kind(leaf) != PER_TOKEN;
        if (!is_weighed(leaf) && first && x.t + t < x.len)
            a.dleaf[entry_plane(leaf, 0, c) * a.plane + x.at + x.t + t] = 0.f;
    }
}

/* OF_KEYS: the block owns keys, whose gradients and their values' it makes;
 * else queries, of which y, or with BACK their gradients. */
template<bool OF_KEYS, bool BACK, int OWN, int STEP>
INLINE void way_entries(const Pairs &a)
{
    constexpr bool MAKES_W = OF_KEYS || BACK == KEYED;
    constexpr bool MAKES_P = OF_KEYS || BACK != KEYED;
    constexpr int LEAVES = BACK ? OwnLeaves<OF_KEYS>::N : 0;
    const Place &query = a.q, &key = a.k, &value = a.v, &dy = a.dy;
    const Place &mine_w = OF_KEYS ? KEYED ? key : value : KEYED ? query : dy;
    const Place &mine_p = OF_KEYS ? KEYED ? value : key : KEYED ? dy : query;
    const Place &other_w = OF_KEYS ? KEYED ? query : dy : KEYED ? key : value;
    const Place &other_p = OF_KEYS ? KEYED ? dy : query : KEYED ? value : key;
    const EntryRoom m = entry_room<OWN, STEP>();
    OwnRow x;
    int first, last;
    if (!find_own<OWN>(a, blockIdx.x, x))
        return;
    const int to = min(x.t + OWN, x.len) - 1;
    find_others<OF_KEYS>(x, to, first, last);
    clear(m.d_w, OWN * W_LINE);
    if (BACK || KEYED)
        fetch_rows<OWN, W_SIZE, W_SIZE>(m.own_w, W_LINE, mine_w, x, x.t, 0);
    NO_UNROLL for (int c = 0; c < (BOTH ? P_ALL : 1); c++) {
        if constexpr (LEAVES > 0)
            clear_slopes<OF_KEYS, OWN>(a, x, c);
        clear(m.d_p, OWN * P_LINE);
        if (BACK || !KEYED)
            fetch_rows<OWN, P_SIZE, P_ALL>(m.own_p, P_LINE, mine_p, x, x.t, c);
        NO_UNROLL for (int from = first; from <= last; from += STEP) {
            if (!any_pair<OF_KEYS>(x.t, to, from, from + STEP - 1))
                continue;
            fetch_rows<STEP, W_SIZE, W_SIZE>(m.row_w, W_LINE, other_w, x, from,
                                             0);
            fetch_rows<STEP, P_SIZE, P_ALL>(m.row_p, P_LINE, other_p, x, from,
                                            c);
            __syncthreads();
            if constexpr (MAKES_W || LEAVES > 0)
                multiply<false, STEP, OWN>(m.p, OWN, m.row_p, P_LINE, 1,
                                           m.own_p, P_LINE, 1, P_SIZE, false);
            if constexpr (MAKES_P)
                weigh_tile<OF_KEYS, OWN, STEP>(m, a, x, from, c);
            __syncthreads();
            if constexpr (MAKES_W || LEAVES > 0)
                add_entries<OF_KEYS, BACK, OWN, STEP>(m, a, x, from, c);
            if constexpr (LEAVES > 0)
                add_lone<OF_KEYS, OWN, STEP>(m, a, x, from, c);
            if constexpr (MAKES_P)
                multiply<true, OWN, P_SIZE>(m.d_p, P_LINE, m.w, 1, OWN, m.row_p,
                                            1, P_LINE, STEP, true);
            __syncthreads();
        }
        __syncthreads();
        if constexpr (MAKES_P)
            store_rows<OWN, P_SIZE, P_ALL>(OF_KEYS ? KEYED ? a.dv : a.dk
                                           : BACK ? a.dq : a.y, m.d_p, P_LINE,
                                           x, x.t, c, 1.f);
        __syncthreads();
    }
    if constexpr (MAKES_W)
        store_rows<OWN, W_SIZE, W_SIZE>(OF_KEYS ? KEYED ? a.dk : a.dv
                                        : BACK ? a.dq : a.y, m.d_w, W_LINE, x,
                                        x.t, 0, 1.f);
}
