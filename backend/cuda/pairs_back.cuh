/* pairs_back.cuh -- all pairs of tokens by tiles, backward: gradients of keys
 * and values, by tiles of keys, and of queries, by theirs, each by recomputing
 * weights from logsumexp. After pairs.cuh.
 */
/* A block's own two matrices, stages of two of the other side, and vectors:
 * TURNED: lse and delta first. */
template<bool TURNED, int OTHER, int STAGES> struct BackRoom {
    enum { VECTORS = TURNED ? (SOFTMAX ? 2 : 0) + ROWS : COLS,
           A = 0, B = A + OWN * KEYS * 2, C = B + OWN * VALUES * 2,
           D = C + STAGES * OTHER * KEYS * 2,
           VEC = D + STAGES * OTHER * VALUES * 2,
           BARRIERS = VEC + STAGES * VECTORS * OTHER * 4,
           ALL = BARRIERS + 128 };
    u32 base;
    INLINE_MEMBER u32 key(int n) const
    {
        return base + C + n * OTHER * KEYS * 2;
    }
    INLINE_MEMBER u32 value(int n) const
    {
        return base + D + n * OTHER * VALUES * 2;
    }
    INLINE_MEMBER u32 vec(int n) const
    {
        return base + VEC + n * VECTORS * OTHER * 4;
    }
    INLINE_MEMBER u32 own() const { return base + BARRIERS; }
    INLINE_MEMBER u32 landed() const { return base + BARRIERS + 8; }
    INLINE_MEMBER u32 full(int n) const { return base + BARRIERS + 16 + 8 * n; }
    INLINE_MEMBER u32 empty(int n) const
    {
        return base + BARRIERS + 16 + 8 * (STAGES + n);
    }
};

/* Of the tensors that are a block's own, and of the others. */
struct Heads { int own_key, own_value, key, value; };

/* own: keys and values, or queries and dy (TURNED: the former); the others come
 * tile by tile. Rows behind the end get a weight of 0. */
template<bool TURNED, int OTHER, int STAGES, class R>
INLINE void back_loads(const Pairs &a, const TensorMap &own_key,
                       const TensorMap &own_value, const TensorMap &key,
                       const TensorMap &value, const Heads &head,
                       const Block &x, const R &r, int lane)
{
    const Tiles<TURNED, OTHER> tiles(x);
    Ring<STAGES> ring;
    u32 tails = 0;
    if (lane == 0) {
        arrive_expecting(r.own(), OWN * (KEYS + VALUES) * 2);
        load_rows<OWN, KEYS>(r.base + R::A, own_key, r.own(), x.start + x.tile
                             * OWN, head.own_key, x.b);
        load_rows<OWN, VALUES>(r.base + R::B, own_value, r.own(), x.start
                               + x.tile * OWN, head.own_value, x.b);
    }
    for (int n = tiles.next(tiles.first); n <= tiles.last;
         n = tiles.next(n + 1), ring.next()) {
        const int first = n * OTHER, left = x.len - first;
        const bool tail = a.cu && left < OTHER;
        wait(r.empty(ring.stage), ring.phase ^ 1);
        const u32 full = r.full(ring.stage), to = tail ? r.landed() : full;
        if (lane == 0) {
            arrive_expecting(to, OTHER * (KEYS + VALUES) * 2);
            load_rows<OTHER, KEYS>(r.key(ring.stage), key, to, x.start + first,
                                   head.key, x.b);
            load_rows<OTHER, VALUES>(r.value(ring.stage), value, to, x.start
                                     + first, head.value, x.b);
        }
        u32 vec = r.vec(ring.stage);
        if (TURNED && SOFTMAX) {
            NO_UNROLL for (int t = lane; t < OTHER; t += 32) {
                const bool in = t < left;
                store1(vec + 4 * t, in ? a.lse[x.at + first + t]
                                       : bits(0x7f800000));
                store1(vec + 4 * (OTHER + t), in ? a.delta[x.at + first + t]
                                                 : 0.f);
            }
            vec += 8 * OTHER;
        }
        if (TURNED)
            load_leaves<OTHER, ROWS>(vec, a, x, 0, first, lane);
        else
            load_leaves<OTHER, COLS>(vec, a, x, ROWS, first, lane);
        if (tail) {
            wait(to, tails++ & 1);
            clear_tail<OTHER, KEYS>(r.key(ring.stage), left, lane);
            clear_tail<OTHER, VALUES>(r.value(ring.stage), left, lane);
            fence_async();
            __syncwarp();
            if (lane == 0)
                arrive(full);
        }
        if (R::VECTORS)
            arrive(full);
    }
}

/* What a warpgroup has of a pair's gradient: of its own leaves, and numbers. */
template<int LEAVES> struct Leaning {
    float leaf[2][LEAVES + !LEAVES], number[2][NUMBERS + !NUMBERS];
};

/* Scores to weights. Where the score is the value they take its place. */
template<int P, bool TURNED, int OTHER, int LEAVES, int N>
INLINE void back_weights(float (&s)[N], u32 (&p)[N / 2],
                         const Own<LEAVES> &own, const float (&lse)[2],
                         int col, u32 vec, int len, const Lane &l)
{
    constexpr int OTHERS = TURNED ? ROWS : COLS;
    constexpr bool MORE = TURNED && SOFTMAX;
    float w[N];
    each_pair<TURNED, LEAVES, OTHERS, MORE, N>(own, col, vec + 8 * MORE * OTHER,
                                               OTHER, vec, l,
        [&](int e, const At &t, const float *more) {
            const float x = scaled(s[e]);
            const float to = MORE ? more[0] : lse[e / 2 % 2];
            w[e] = weight_of(value_of<P>(x, t, len), x, to);
            if (FLAT)
                s[e] = w[e];
        });
    pack(p, w);
}

/* dp, the weights' gradients, to the scores' but for the scale (s has weights,
 * where FLAT); sums of the leaves'. */
template<int P, bool TURNED, int OTHER, int LEAVES, int N>
INLINE void back_scores(float (&s)[N], const float (&dp)[N], u32 (&p)[N / 2],
                        const Own<LEAVES> &own, const float (&lse)[2],
                        const float (&delta)[2], Leaning<LEAVES> &sum, int col,
                        u32 vec, int len, const Lane &l)
{
    constexpr int OTHERS = TURNED ? ROWS : COLS;
    constexpr bool MORE = TURNED && SOFTMAX;    /* of lse and delta */
    float ds[N];
    each_pair<TURNED, LEAVES, OTHERS, MORE ? 2 - FLAT : 0, N>(own, col,
        vec + 8 * MORE * OTHER, OTHER, vec + 4 * FLAT * OTHER, l,
        [&](int e, const At &t, const float *more) {
            const float to = MORE ? more[0] : lse[e / 2 % 2];
            const float less = MORE ? more[1 - FLAT] : delta[e / 2 % 2];
            const float x = FLAT ? 0.f : scaled(s[e]);
            float g, slope = 1;
            if (SOFTMAX || WEIGHS) {
                g = dp[e];
                if (SOFTMAX) {
                    const float w = FLAT ? s[e]
                        : weight_of(value_of<P>(x, t, len), x, to);
                    g = w * (dp[e] - less);
                }
                ds[e] = g;
                if (!FLAT) {
                    slope = 0;
                    in_piece<P>(t, len, [&](auto piece) {
                        slope = pair_slope<decltype(piece)::N>(x, t);
                    });
                    ds[e] = slope == 0.f ? 0.f : g * slope;
                }
            } else {
                const float value = value_of<P>(x, t, len);
                g = dp[e] * x;
                ds[e] = value == 0.f ? 0.f : dp[e] * value;
            }
            if (SLOPES)
                in_piece<P>(t, len, [&](auto piece) {
                    auto own_leaf = [&](int k, float d) {
                        sum.leaf[e / 2 % 2][k] += g * d;
                    };
                    auto own_number = [&](int k, float d) {
                        sum.number[e / 2 % 2][k] += g * d;
                    };
                    if constexpr (TURNED) {
                        pair_cols<decltype(piece)::N>(x, t, own_leaf);
                    } else {
                        pair_rows<decltype(piece)::N>(x, t, own_leaf);
                        pair_numbers<decltype(piece)::N>(x, t, own_number);
                    }
                });
        });
    pack(p, ds);
}

template<bool TURNED, int LEAVES>
INLINE void store_leaning(const Pairs &a, const Block &x, int row,
                          const Leaning<LEAVES> &sum, const Lane &l)
{
    if (!SLOPES)
        return;
    UNROLL for (int h = 0; h < 2; h++) {
        const bool in = l.lane % 4 == 0 && row + 8 * h < x.len;
        UNROLL for (int k = 0; k < LEAVES; k++) {
            const float all = quad_sum(sum.leaf[h][k]);
            if (in)
                a.dleaf[((TURNED ? ROWS : 0) + k) * a.plane + x.at + row
                        + 8 * h] = all;
        }
        UNROLL for (int k = 0; k < (TURNED ? 0 : NUMBERS); k++) {
            const float all = quad_sum(sum.number[h][k]);
            if (in)
                a.dleaf[(ROWS + COLS + k) * a.plane + x.at + row + 8 * h]
                    = all;
        }
    }
}

template<int N> INLINE void clear_numbers(float (&x)[N])
{
    UNROLL for (int e = 0; e < N; e++)
        x[e] = 0;
}
template<int LEAVES> INLINE void clear_leaning(Leaning<LEAVES> &sum)
{
    UNROLL for (int h = 0; h < 2; h++) {
        clear_numbers(sum.leaf[h]);
        clear_numbers(sum.number[h]);
    }
}

/* Queries that a tile of keys takes at once: what a slope needs beside a weight
 * has registers for half a tile. */
enum { KEY_PART = FLAT ? 64 : 32 };
enum { KEY_STAGES = 3, KEY_OTHER = 64, QUERY_STAGES = 3, QUERY_OTHER = 64 };
typedef BackRoom<true, KEY_OTHER, KEY_STAGES> KeyRoom;
typedef BackRoom<false, QUERY_OTHER, QUERY_STAGES> QueryRoom;

/* A part of a tile of queries: adds to dk and dv. */
template<int P>
INLINE void key_weights(float (&s)[KEY_PART / 2], u32 (&p)[KEY_PART / 4],
                        const Own<COLS> &own, int col, u32 vec, int len,
                        const Lane &l)
{
    const float zero[2] = { 0, 0 };
    back_weights<P, true, KEY_OTHER>(s, p, own, zero, col, vec, len, l);
}
template<int P>
INLINE void key_scores(float (&s)[KEY_PART / 2],
                       const float (&dp)[KEY_PART / 2],
                       u32 (&ds)[KEY_PART / 4], const Own<COLS> &own,
                       Leaning<COLS> &sum, int col, u32 vec, int len,
                       const Lane &l)
{
    const float zero[2] = { 0, 0 };
    back_scores<P, true, KEY_OTHER>(s, dp, ds, own, zero, zero, sum, col, vec,
                                    len, l);
}
template<class K, class V>
INLINE void key_part(K &dk, V &dv, const Own<COLS> &own, Leaning<COLS> &sum,
                     Operand k, Operand v, u32 tq, u32 ty, u32 vec, int part,
                     int col, int piece, int len, const Lane &l)
{
    enum { OTHER = KEY_OTHER, STEPS = KEY_PART / 16 };
    float s[KEY_PART / 2], dp[KEY_PART / 2];
    u32 p[KEY_PART / 4], ds[KEY_PART / 4];
    const Operand q = operand<0>(tq, OTHER, part * KEY_PART);
    const Operand y = operand<0>(ty, OTHER, part * KEY_PART);
    const Operand qa = operand<1>(tq, OTHER, 0), ya = operand<1>(ty, OTHER, 0);
    wgmma_fence();
    UNROLL for (int i = 0; i < KEYS / 16; i++)
        tile_product<0, 0, 0>(s, at_step<0>(k, OWN, i),
                              at_step<0>(q, OTHER, i), i > 0);
    wgmma_commit();
    UNROLL for (int i = 0; i < VALUES / 16; i++)
        tile_product<0, 0, 0>(dp, at_step<0>(v, OWN, i),
                              at_step<0>(y, OTHER, i), i > 0);
    wgmma_commit();
    wgmma_wait<1>();
    keep(s);
    if (piece == 0)
        key_weights<0>(s, p, own, col, vec, len, l);
    else if (WHOLES > 1 && piece == 1)
        key_weights<WHOLES - 1>(s, p, own, col, vec, len, l);
    else
        key_weights<MIXED>(s, p, own, col, vec, len, l);
    keep(p);
    wgmma_fence();
    UNROLL for (int i = 0; i < STEPS; i++)
        product<1>(dv, p + 4 * i, at_step<1>(ya, OTHER, part * STEPS + i), 1);
    wgmma_commit();
    wgmma_wait<1>();
    keep(dp);
    if (piece == 0)
        key_scores<0>(s, dp, ds, own, sum, col, vec, len, l);
    else if (WHOLES > 1 && piece == 1)
        key_scores<WHOLES - 1>(s, dp, ds, own, sum, col, vec, len, l);
    else
        key_scores<MIXED>(s, dp, ds, own, sum, col, vec, len, l);
    keep(ds);
    wgmma_fence();
    UNROLL for (int i = 0; i < STEPS; i++)
        product<1>(dk, ds + 4 * i, at_step<1>(qa, OTHER, part * STEPS + i), 1);
    wgmma_commit();
    wgmma_wait<0>();
    keep(p);
    keep(ds);
    keep(dv);
    keep(dk);
}

/* What a part of the rows adds to the gradients of the first keys. */
template<class K, class V>
INLINE void store_part(const Pairs &a, const Block &x, const K &dk,
                       const V &dv, const Leaning<COLS> &sum, int from,
                       const Lane &l)
{
    UNROLL for (int h = 0; h < 2; h++) {
        const int row = from + l.row + 8 * h;
        if (row >= FIRST || row >= x.len)
            continue;
        float *to = part_of(a, x.s, x.part, x.head, row);
        UNROLL for (int e = 2 * h; e < KEYS / 2; e += 4)
            *(float2 *)(to + e / 4 * 8 + l.col) = { dk[e], dk[e + 1] };
        UNROLL for (int e = 2 * h; e < VALUES / 2; e += 4)
            *(float2 *)(to + KEYS + e / 4 * 8 + l.col) = { dv[e], dv[e + 1] };
    }
    UNROLL for (int h = 0; SLOPES && h < 2; h++)
        UNROLL for (int k = 0; k < COLS; k++) {
            const int row = from + l.row + 8 * h;
            const float all = quad_sum(sum.leaf[h][k]);
            if (l.lane % 4 == 0 && row < FIRST && row < x.len)
                part_of(a, x.s, x.part, x.head, row)[KEYS + VALUES + k] = all;
        }
}

/* Keys and values: dk, dv. */
INLINE void key_products(const Pairs &a, const Block &x, const KeyRoom &r)
{
    enum { OTHER = KEY_OTHER };
    const Lane l = lane_here();
    const int team = (threadIdx.x >> 7) - 1, from = x.tile * OWN + 64 * team;
    const Tiles<true, OTHER> tiles(x);
    float dk[KEYS / 2], dv[VALUES / 2];
    Own<COLS> own;
    Leaning<COLS> sum;
    Ring<KEY_STAGES> ring;
    own.row = from + l.row;
    own_numbers(own, a, x.head);
    own_leaves(own, a, x, ROWS, 0, false);
    clear_numbers(dk);
    clear_numbers(dv);
    clear_leaning(sum);
    const Operand k = operand<0>(r.base + KeyRoom::A, OWN, 64 * team);
    const Operand v = operand<0>(r.base + KeyRoom::B, OWN, 64 * team);
    wait(r.own(), 0);
    NO_UNROLL
    for (int n = tiles.next(tiles.first); n <= tiles.last;
         n = tiles.next(n + 1), ring.next()) {
        const int piece = tiles.piece(n, 64 * team, 64), col = n * OTHER;
        wait(r.full(ring.stage), ring.phase);
        own_leaves(own, a, x, ROWS, col, true);
        NO_UNROLL for (int part = 0; part < OTHER / KEY_PART; part++)
            key_part(dk, dv, own, sum, k, v, r.key(ring.stage),
                     r.value(ring.stage), r.vec(ring.stage) + 4 * part
                     * KEY_PART, part, col + part * KEY_PART, piece, x.len, l);
        __syncwarp();
        if (l.lane == 0)
            arrive(r.empty(ring.stage));
    }
    Block y;                            /* no register holds it in the loop */
    find_keys(a, y);
    const int row = y.tile * OWN + 64 * team;
    UNROLL for (int e = 0; e < KEYS / 2; e++)
        dk[e] *= SCALE;
    if constexpr (FIRST > 0) {
        if (y.tile < EDGES)
            store_part(a, y, dk, dv, sum, row, l);
        if (y.part)
            return;
    }
    store_leaning<true>(a, y, row + l.row, sum, l);
    warpgroup_sync();
    store_rows_of<KEYS, OWN, DK_FLOATS>(a.dk, y, dk, r.base + KeyRoom::A
                                        + 8192 * team, KEY_SIZE, row, l);
    store_rows_of<VALUES, OWN, DV_FLOATS>(a.dv, y, dv, r.base + KeyRoom::B
                                          + 8192 * team, VALUE_SIZE, row, l);
}

/* Queries: dq. */
INLINE void query_products(const Pairs &a, const Block &x, const QueryRoom &r)
{
    enum { OTHER = QUERY_OTHER };
    const Lane l = lane_here();
    const int team = (threadIdx.x >> 7) - 1, from = x.tile * OWN + 64 * team;
    const Tiles<false, OTHER> tiles(x);
    float dq[KEYS / 2], lse[2] = { 0, 0 }, delta[2] = { 0, 0 };
    Own<ROWS> own;
    Leaning<ROWS> sum;
    Ring<QUERY_STAGES> ring;
    own.row = from + l.row;
    own_numbers(own, a, x.head);
    own_leaves(own, a, x, 0, 0, false);
    UNROLL for (int h = 0; SOFTMAX && h < 2; h++)
        if (own.row + 8 * h < x.len) {
            lse[h] = a.lse[x.at + own.row + 8 * h];
            delta[h] = a.delta[x.at + own.row + 8 * h];
        }
    clear_numbers(dq);
    clear_leaning(sum);
    const Operand q = operand<0>(r.base + QueryRoom::A, OWN, 64 * team);
    const Operand y = operand<0>(r.base + QueryRoom::B, OWN, 64 * team);
    wait(r.own(), 0);
    NO_UNROLL
    for (int n = tiles.next(tiles.first); n <= tiles.last;
         n = tiles.next(n + 1), ring.next()) {
        const u32 tk = r.key(ring.stage), tv = r.value(ring.stage);
        const u32 vec = r.vec(ring.stage);
        const int piece = tiles.piece(n, 64 * team, 64), col = n * OTHER;
        float s[OTHER / 2], dp[OTHER / 2];
        u32 p[OTHER / 4], ds[OTHER / 4];
        const Operand k = operand<0>(tk, OTHER, 0);
        const Operand v = operand<0>(tv, OTHER, 0);
        const Operand ka = operand<1>(tk, OTHER, 0);
        wait(r.full(ring.stage), ring.phase);
        own_leaves(own, a, x, 0, col, true);
        wgmma_fence();
        UNROLL for (int i = 0; i < KEYS / 16; i++)
            tile_product<0, 0, 0>(s, at_step<0>(q, OWN, i),
                                  at_step<0>(k, OTHER, i), i > 0);
        wgmma_commit();
        UNROLL for (int i = 0; i < VALUES / 16; i++)
            tile_product<0, 0, 0>(dp, at_step<0>(y, OWN, i),
                                  at_step<0>(v, OTHER, i), i > 0);
        wgmma_commit();
        wgmma_wait<1>();
        keep(s);
        if (FLAT) {
            if (piece == 0)
                back_weights<0, false, OTHER>(s, p, own, lse, col, vec, x.len,
                                              l);
            else if (WHOLES > 1 && piece == 1)
                back_weights<WHOLES - 1, false, OTHER>(s, p, own, lse, col,
                                                       vec, x.len, l);
            else
                back_weights<MIXED, false, OTHER>(s, p, own, lse, col, vec,
                                                  x.len, l);
        }
        wgmma_wait<0>();
        keep(dp);
        if (piece == 0)
            back_scores<0, false, OTHER>(s, dp, ds, own, lse, delta, sum, col,
                                         vec, x.len, l);
        else if (WHOLES > 1 && piece == 1)
            back_scores<WHOLES - 1, false, OTHER>(s, dp, ds, own, lse, delta,
                                                  sum, col, vec, x.len, l);
        else
            back_scores<MIXED, false, OTHER>(s, dp, ds, own, lse, delta, sum,
                                             col, vec, x.len, l);
        keep(ds);
        wgmma_fence();
        UNROLL for (int i = 0; i < OTHER / 16; i++)
            product<1>(dq, ds + 4 * i, at_step<1>(ka, OTHER, i), 1);
        wgmma_commit();
        wgmma_wait<0>();
        keep(ds);
        keep(dq);
        __syncwarp();
        if (l.lane == 0)
            arrive(r.empty(ring.stage));
    }
    UNROLL for (int e = 0; e < KEYS / 2; e++)
        dq[e] *= SCALE;
    store_leaning<false>(a, x, own.row, sum, l);
    warpgroup_sync();
    store_rows_of<KEYS, OWN, DQ_FLOATS>(a.dq, x, dq, r.base + QueryRoom::A
                                        + 8192 * team, KEY_SIZE, from, l);
}

template<class R> INLINE void begin_back(const R &r, int stages)
{
    if (threadIdx.x == 0) {
        barrier_init(r.own(), 1);
        barrier_init(r.landed(), 1);
        for (int n = 0; n < stages; n++) {
            barrier_init(r.full(n), R::VECTORS ? 33 : 1);
            barrier_init(r.empty(n), 8);
        }
        barrier_init_fence();
    }
    __syncthreads();
}

INLINE void pairs_keys(const Pairs &a, const TensorMap &mq,
                       const TensorMap &mk, const TensorMap &mv,
                       const TensorMap &my, u32 base)
{
    const KeyRoom r = { base };
    Block x;
    if (!find_keys(a, x))
        return;
    begin_back(r, KEY_STAGES);
    if (threadIdx.x < 128) {
        const Heads head = { x.head / a.k.group, x.head / a.v.group,
                             x.head / a.q.group, x.head / a.dy.group };
        fewer_registers<24>();
        if (threadIdx.x < 32)
            back_loads<true, KEY_OTHER, KEY_STAGES>(a, mk, mv, mq, my, head,
                                                    x, r, threadIdx.x);
    } else {
        more_registers<240>();
        key_products(a, x, r);
    }
}
INLINE void pairs_queries(const Pairs &a, const TensorMap &mq,
                          const TensorMap &mk, const TensorMap &mv,
                          const TensorMap &my, u32 base)
{
    const QueryRoom r = { base };
    Block x;
    if (!find_block<true>(a, x))
        return;
    begin_back(r, QUERY_STAGES);
    if (threadIdx.x < 128) {
        const Heads head = { x.head / a.q.group, x.head / a.dy.group,
                             x.head / a.k.group, x.head / a.v.group };
        fewer_registers<40>();
        if (threadIdx.x < 32)
            back_loads<false, QUERY_OTHER, QUERY_STAGES>(a, mq, my, mk, mv,
                                                         head, x, r,
                                                         threadIdx.x);
    } else {
        more_registers<232>();
        query_products(a, x, r);
    }
}
