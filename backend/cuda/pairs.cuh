/* pairs.cuh -- all pairs of tokens by tiles, on Hopper's tensor cores: what
 * blocks share, and the way forward. No matrix of pairs is in memory. After
 * pairs_call.cuh.
 *
 * A block has 128 rows of its own and three warpgroups: one brings tiles of the
 * others' rows, two take 64 of the block's rows each. A fragment has rows of
 * the block's own; TURNED: these are keys, and queries are columns.
 *
 * Predicted, of an H200 and heads of 128: forward a tile of 128 x 128 takes
 * 1088 clocks of a warpgroup's products and 1024 of the exponentials' unit for
 * both, so two warpgroups hide one behind the other (450 to 550 TFLOP/s);
 * backward 7 products a pair in place of 5, each at about that rate.
 */
enum { OWN = 128 };                     /* rows of a block */
constexpr int WIDE = KEYS > VALUES ? KEYS : VALUES;

/* ---- the block ---- */

struct Block { int head, b, len, tile, part; i64 start, at, s; };

template<bool BACKWARDS> INLINE bool be_block(const Pairs &a, Block &x,
                                              const SeqPart &of)
{
    const int tiles = (int)((a.tokens + OWN - 1) / OWN);
    x.s = of.s;
    x.b = of.b;
    x.len = of.len;
    x.start = of.start;
    x.tile = BACKWARDS && !a.cu ? tiles - 1 - of.n : of.n;
    x.part = 0;
    x.at = x.head * a.rows + x.b * a.tokens + x.start;
    return x.tile >= 0 && x.tile * OWN < x.len;
}
/* Which tile of which sequence it has; false: none. Longer ones come first
 * where sequences are as long as each other: tiles of queries from the last,
 * of keys from the first. */
template<bool BACKWARDS> INLINE bool find_block(const Pairs &a, Block &x)
{
    const u32 block = (u32)fresh((int)blockIdx.x);
    x.head = (int)(block % (u32)a.heads);
    return be_block<BACKWARDS>(a, x, find_part<OWN>(a, block
                                                     / (u32)a.heads));
}
/* The same of keys, and, behind these, of the first tiles' other parts. */
INLINE bool find_keys(const Pairs &a, Block &x)
{
    if constexpr (FIRST > 0) {
        const i64 more = (i64)fresh((int)blockIdx.x) - a.blocks;
        if (more >= 0) {
            SeqPart of = find_part<SPAN>(a, more / a.heads / EDGES);
            const int part = of.n;
            x.head = (int)(more % a.heads);
            of.n = (int)(more / a.heads % EDGES);
            const bool has = be_block<false>(a, x, of);
            x.part = part;
            return has && part > 0 && (i64)part * SPAN < x.len;
        }
    }
    return find_block<false>(a, x);
}

/* ---- which pairs a tile has ---- */

/* Rows i0 .. i1, columns j0 .. j1: the piece that all of these pairs are in,
 * MIXED, or NONE where none of them is in any. */
template<int P> INLINE int tile_piece(int i0, int i1, int j0, int j1)
{
    if constexpr (P == PIECES) {
        return NONE;
    } else {
        using R = Region<P>;
        const bool meets = i1 >= R::I0 && i0 <= R::I1 && j1 >= R::J0
            && j0 <= R::J1 && i1 - j0 >= R::D0 && i0 - j1 <= R::D1;
        const bool whole = i0 >= R::I0 && i1 <= R::I1 && j0 >= R::J0
            && j1 <= R::J1 && i0 - j1 >= R::D0 && i1 - j0 <= R::D1;
        const int rest = tile_piece<P + 1>(i0, i1, j0, j1);
        return whole && P < WHOLES ? P : meets ? MIXED : rest;
    }
}
INLINE int tile_of_pairs(int i0, int rows, int j0, int cols, int len)
{
    const int piece = tile_piece<0>(i0, i0 + rows - 1, j0, j0 + cols - 1);
    const bool ends = i0 + rows > len || (WHOLE && j0 + cols > len);
    return piece >= 0 && ends ? MIXED : piece;
}
/* The tiles of OTHER rows that the block goes through. */
template<bool TURNED, int OTHER> struct Tiles {
    int first, last, len, own;
    INLINE_MEMBER Tiles(const Block &x)
    {
        const int from = x.tile * OWN, to = min(from + OWN, x.len) - 1;
        int lo = x.len, hi = -1;
        if (TURNED)
            rows_of_columns<0>(from, to, lo, hi);
        else
            columns_of<0>(from, to, lo, hi);
        len = x.len;
        own = from;
        first = max(lo, 0) / OTHER;
        last = hi < 0 ? -1 : min(hi, x.len - 1) / OTHER;
        if (TURNED && FIRST > 0 && x.tile < EDGES) {
            first = max(first, x.part * (SPAN / OTHER));
            last = min(last, (x.part + 1) * (SPAN / OTHER) - 1);
        }
    }
    /* Of 64 rows of the block's, or of all. */
    INLINE_MEMBER int piece(int n, int from, int rows) const
    {
        return TURNED ? tile_of_pairs(n * OTHER, OTHER, own + from, rows, len)
                      : tile_of_pairs(own + from, rows, n * OTHER, OTHER, len);
    }
    INLINE_MEMBER int next(int n) const
    {
        while (n <= last && piece(n, 0, OWN) == NONE)
            n++;
        return n;
    }
};

/* ---- pairs of a fragment ---- */

/* What a thread knows of its two rows: leaves, and in `row` where they are. */
template<int LEAVES> struct Own {
    int row;
    float leaf[2][LEAVES + !LEAVES], number[NUMBERS + !NUMBERS];
};

/* f(e, t, more) for each element of a fragment whose columns' leaves lie at
 * `vec`, `apart` of them each, and MORE vectors of columns at `first`. */
template<bool TURNED, int LEAVES, int OTHERS, int MORE, int N, class F>
INLINE void each_pair(const Own<LEAVES> &own, int col0, u32 vec, int apart,
                      u32 first, const Lane &l, F f)
{
    UNROLL for (int n = 0; n < N / 4; n++) {
        float leaf[2][OTHERS + !OTHERS], more[2][MORE + !MORE];
        UNROLL for (int k = 0; k < MORE; k++) {
            const float2 two = load2(first + 4 * (k * apart + 8 * n + l.col));
            more[0][k] = two.x;
            more[1][k] = two.y;
        }
        UNROLL for (int k = 0; k < OTHERS; k++) {
            const float2 two = load2(vec + 4 * (k * apart + 8 * n + l.col));
            leaf[0][k] = two.x;
            leaf[1][k] = two.y;
        }
        UNROLL for (int e = 0; e < 4; e++) {
            const int row = own.row + e / 2 * 8;
            const int col = col0 + 8 * n + l.col + e % 2;
            At t;
            t.i = TURNED ? col : row;
            t.j = TURNED ? row : col;
            t.x = (float)t.i;
            t.y = (float)t.j;
            t.row = TURNED ? leaf[e % 2] : own.leaf[e / 2];
            t.col = TURNED ? own.leaf[e / 2] : leaf[e % 2];
            t.number = own.number;
            f(4 * n + e, t, more[e % 2]);
        }
    }
}

/* ---- loading ---- */

template<int ROWS, int COLUMNS>
INLINE void load_rows(u32 to, const TensorMap &m, u32 full, i64 row, int head,
                      int b)
{
    NO_UNROLL for (int c = 0; c < COLUMNS / 64; c++)
        NO_UNROLL for (int h = 0; h < ROWS / 64; h++)
            load_tile(to + c * ROWS * 128 + h * 8192, &m, full, 64 * c,
                      (int)row + 64 * h, head, b);
}
/* What lies behind a sequence's end is another's. */
template<int ROWS, int COLUMNS>
INLINE void clear_tail(u32 tile, int rows, int lane)
{
    NO_UNROLL for (int c = 0; c < COLUMNS / 64; c++)
        clear_rows(tile + c * ROWS * 128, rows, ROWS, lane);
}
/* Leaves of rows of a tile, from token `from` of the sequence on. Sums begin at
 * the tile. */
INLINE double base_of(const double *leaf, const Block &x, int from)
{
    return leaf[x.at + min(from, x.len - 1)];
}
template<int OTHER, int LEAVES>
INLINE void load_leaves(u32 to, const Pairs &a, const Block &x, int first,
                        int from, int lane)
{
    NO_UNROLL for (int k = 0; k < LEAVES; k++) {
        const double *leaf = a.leaf + (first + k) * a.plane;
        const int sum = leaf_sum(first + k);
        const double base = sum >= 0
            ? base_of(a.leaf + sum * a.plane, x, from) : 0;
        NO_UNROLL for (int t = lane; t < OTHER; t += 32)
            store1(to + 4 * (k * OTHER + t), from + t < x.len
                   ? (float)(leaf[x.at + from + t] - base) : 0.f);
    }
}
/* A thread's own, as sums from the other tile's first token on. */
template<int LEAVES>
INLINE void own_leaves(Own<LEAVES> &own, const Pairs &a, const Block &x,
                       int first, int from, bool again)
{
    UNROLL for (int k = 0; k < LEAVES; k++) {
        const double *leaf = a.leaf + (first + k) * a.plane;
        const int sum = leaf_sum(first + k);
        if (again && sum < 0)
            continue;
        const double base = sum >= 0
            ? base_of(a.leaf + sum * a.plane, x, from) : 0;
        UNROLL for (int h = 0; h < 2; h++)
            own.leaf[h][k] = (float)(leaf[x.at + min(own.row + 8 * h,
                                                     x.len - 1)] - base);
    }
}
template<int LEAVES>
INLINE void own_numbers(Own<LEAVES> &own, const Pairs &a, int head)
{
    UNROLL for (int k = 0; k < NUMBERS; k++)
        own.number[k] = (float)a.number[k * a.heads + head];
}

/* ---- storing ---- */

/* A warpgroup's 64 rows, from row `from` of the sequence on, as COLUMNS numbers
 * of 16 bits by way of a tile of its own; or of 32. */
template<int COLUMNS, int ROWS, bool FLOATS, int N>
INLINE void store_rows_of(const Place &to, const Block &x, const float (&y)[N],
                          u32 tile, int columns, int from, const Lane &l)
{
    const i64 at = x.b * to.sb + (x.start + from) * to.st
                 + x.head / to.group * to.sh;
    if (!to.p)
        return;
    if (FLOATS) {
        UNROLL for (int e = 0; e < N; e += 2) {
            const int row = l.row + e / 2 % 2 * 8, col = e / 4 * 8 + l.col;
            if (from + row < x.len && col < columns)
                *(float2 *)((float *)to.p + at + row * to.st + col)
                    = { y[e], y[e + 1] };
        }
        return;
    }
    UNROLL for (int c = 0; c < COLUMNS / 64; c++) {
        u32 p[16];
        UNROLL for (int i = 0; i < 16; i++)
            p[i] = pack(y[32 * c + 2 * i], y[32 * c + 2 * i + 1]);
        write_fragment(tile + c * ROWS * 128, p, l);
    }
    __syncwarp();
    UNROLL for (int c = 0; c < COLUMNS / 64; c++)
        NO_UNROLL for (int n = l.lane; n < 128; n += 32) {
            const int row = 16 * l.warp + n / 8, piece = n % 8;
            const uint4 v = load16(tile + c * ROWS * 128
                                   + piece_of(row, piece));
            if (from + row < x.len && 64 * c + 8 * piece < columns)
                *(uint4 *)((u16 *)to.p + at + row * to.st + 64 * c + 8 * piece)
                    = v;
        }
}
/* Sums over the four lanes of a row. */
INLINE float quad_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}
INLINE float quad_max(float x)
{
    x = max_(x, __shfl_xor_sync(~0u, x, 1));
    return max_(x, __shfl_xor_sync(~0u, x, 2));
}

/* ---- forward ---- */

enum { AHEAD = 2, FORWARD_KEYS = 128 };

struct ForwardRoom {
    enum { Q = 0, K = Q + OWN * WIDE * 2, V = K + AHEAD * FORWARD_KEYS * KEYS
           * 2, VEC = V + AHEAD * FORWARD_KEYS * VALUES * 2,
           BARRIERS = VEC + AHEAD * COLS * FORWARD_KEYS * 4,
           ALL = BARRIERS + 128 };
    u32 base;
    INLINE_MEMBER u32 q() const { return base + Q; }
    INLINE_MEMBER u32 k(int n) const
    {
        return base + K + n * FORWARD_KEYS * KEYS * 2;
    }
    INLINE_MEMBER u32 v(int n) const
    {
        return base + V + n * FORWARD_KEYS * VALUES * 2;
    }
    INLINE_MEMBER u32 vec(int n) const
    {
        return base + VEC + n * COLS * FORWARD_KEYS * 4;
    }
    INLINE_MEMBER u32 own() const { return base + BARRIERS; }
    INLINE_MEMBER u32 landed() const { return base + BARRIERS + 8; }
    INLINE_MEMBER u32 full(int n, int which) const
    {
        return base + BARRIERS + 16 + 8 * (2 * n + which);
    }
    INLINE_MEMBER u32 empty(int n, int which) const
    {
        return base + BARRIERS + 16 + 16 * AHEAD + 8 * (2 * n + which);
    }
};

template<class R>
INLINE void forward_loads(const Pairs &a, const TensorMap &mq,
                          const TensorMap &mk, const TensorMap &mv,
                          const Block &x, const R &r, int lane)
{
    enum { OTHER = FORWARD_KEYS };
    const Tiles<false, OTHER> tiles(x);
    const int hk = x.head / a.k.group, hv = x.head / a.v.group;
    Ring<AHEAD> ring;
    u32 tails = 0;
    if (lane == 0) {
        arrive_expecting(r.own(), OWN * KEYS * 2);
        load_rows<OWN, KEYS>(r.q(), mq, r.own(), x.start + x.tile * OWN,
                             x.head / a.q.group, x.b);
    }
    for (int n = tiles.next(tiles.first); n <= tiles.last;
         n = tiles.next(n + 1), ring.next()) {
        const int left = x.len - n * OTHER;
        const bool tail = a.cu && left < OTHER;
        wait(r.empty(ring.stage, 0), ring.phase ^ 1);
        if (lane == 0) {
            arrive_expecting(r.full(ring.stage, 0), OTHER * KEYS * 2);
            load_rows<OTHER, KEYS>(r.k(ring.stage), mk, r.full(ring.stage, 0),
                                   x.start + n * OTHER, hk, x.b);
        }
        if (COLS) {
            load_leaves<OTHER, COLS>(r.vec(ring.stage), a, x, ROWS, n * OTHER,
                                     lane);
            arrive(r.full(ring.stage, 0));
        }
        wait(r.empty(ring.stage, 1), ring.phase ^ 1);
        const u32 to = tail ? r.landed() : r.full(ring.stage, 1);
        if (lane == 0) {
            arrive_expecting(to, OTHER * VALUES * 2);
            load_rows<OTHER, VALUES>(r.v(ring.stage), mv, to,
                                     x.start + n * OTHER, hv, x.b);
        }
        if (tail) {
            wait(to, tails++ & 1);
            clear_tail<OTHER, VALUES>(r.v(ring.stage), left, lane);
            fence_async();
            __syncwarp();
            if (lane == 0)
                arrive(r.full(ring.stage, 1));
        }
    }
}

/* Scores become weights, as the largest one is known so far; what was summed
 * before is worth `less`. */
template<int P, int N>
INLINE void forward_values(float (&s)[N], const Own<ROWS> &own, int col,
                           u32 vec, int len, const Lane &l)
{
    if (RAW && P != MIXED)
        return;
    each_pair<false, ROWS, COLS, 0, N>(own, col, vec, FORWARD_KEYS, 0, l,
        [&](int e, const At &t, const float *) {
            const float x = scaled(s[e]), y = value_of<P>(x, t, len);
            s[e] = SOFTMAX ? y : weight_of(y, x, 0.f);
        });
}
template<int N>
INLINE void softmax_step(float (&s)[N], float (&most)[2], float (&sum)[2],
                         float (&less)[2])
{
    UNROLL for (int h = 0; h < 2; h++) {
        float top = most[h];
        UNROLL for (int e = 2 * h; e < N; e += 4)
            top = max_(top, max_(s[e], s[e + 1]));
        top = quad_max(top);
        const float none = bits(0xff800000), at = top == none ? 0.f : top;
        less[h] = exp2_((most[h] - at) * SLOPE);
        most[h] = top;
        float all = 0;
        UNROLL for (int e = 2 * h; e < N; e += 4) {
            s[e] = exp2_(fmaf(s[e], SLOPE, -at * SLOPE));
            s[e + 1] = exp2_(fmaf(s[e + 1], SLOPE, -at * SLOPE));
            all += s[e] + s[e + 1];
        }
        sum[h] = sum[h] * less[h] + all;
    }
}

template<class R>
INLINE void forward_products(const Pairs &a, const Block &x, const R &r)
{
    enum { OTHER = FORWARD_KEYS };
    const Lane l = lane_here();
    const int team = (threadIdx.x >> 7) - 1, from = x.tile * OWN + 64 * team;
    const Tiles<false, OTHER> tiles(x);
    float s[OTHER / 2], o[VALUES / 2];
    float most[2] = { bits(0xff800000), bits(0xff800000) };
    float sum[2] = { 0, 0 }, less[2];
    u32 p[OTHER / 4];
    Own<ROWS> own;
    Ring<AHEAD> ring;
    int before = -1;
    own.row = from + l.row;
    own_numbers(own, a, x.head);
    own_leaves(own, a, x, 0, 0, false);
    UNROLL for (int e = 0; e < VALUES / 2; e++)
        o[e] = 0;
    const Operand q = operand<0>(r.q(), OWN, 64 * team);
    wait(r.own(), 0);
    NO_UNROLL
    for (int n = tiles.next(tiles.first); n <= tiles.last;
         n = tiles.next(n + 1), ring.next()) {
        const Operand k = operand<0>(r.k(ring.stage), OTHER, 0);
        const Operand v = operand<1>(r.v(ring.stage), OTHER, 0);
        wait(r.full(ring.stage, 0), ring.phase);
        wgmma_fence();
        UNROLL for (int i = 0; i < KEYS / 16; i++)
            tile_product<0, 0, 0>(s, at_step<0>(q, OWN, i),
                                  at_step<0>(k, OTHER, i), i > 0);
        wgmma_commit();
        wgmma_wait<0>();
        keep(s);
        keep(p);
        keep(o);
        if (before >= 0 && l.lane == 0)
            arrive(r.empty(before, 1));
        before = ring.stage;
        own_leaves(own, a, x, 0, n * OTHER, true);
        const int piece = tiles.piece(n, 64 * team, 64), col = n * OTHER;
        if (piece == 0)
            forward_values<0>(s, own, col, r.vec(ring.stage), x.len, l);
        else if (WHOLES > 1 && piece == 1)
            forward_values<WHOLES - 1>(s, own, col, r.vec(ring.stage), x.len,
                                       l);
        else
            forward_values<MIXED>(s, own, col, r.vec(ring.stage), x.len, l);
        __syncwarp();
        if (l.lane == 0)
            arrive(r.empty(ring.stage, 0));
        if (SOFTMAX) {
            softmax_step(s, most, sum, less);
            UNROLL for (int e = 0; e < VALUES / 2; e++)
                o[e] *= less[e / 2 % 2];
        }
        pack(p, s);
        keep(p);
        wait(r.full(ring.stage, 1), ring.phase);
        wgmma_fence();
        UNROLL for (int i = 0; i < OTHER / 16; i++)
            product<1>(o, p + 4 * i, at_step<1>(v, OTHER, i), 1);
        wgmma_commit();
    }
    wgmma_wait<0>();
    keep(o);
    keep(p);
    if (SOFTMAX) {
        UNROLL for (int h = 0; h < 2; h++) {
            const float all = quad_sum(sum[h]);
            const bool none = all == 0.f;
            less[h] = none ? 0.f : 1.f / all;
            if (a.lse && l.lane % 4 == 0 && own.row + 8 * h < x.len)
                a.lse[x.at + own.row + 8 * h] = none ? bits(0x7f800000)
                    : most[h] * SLOPE + log2_(all);
        }
        UNROLL for (int e = 0; e < VALUES / 2; e++)
            o[e] *= less[e / 2 % 2];
    }
    warpgroup_sync();
    store_rows_of<VALUES, OWN, false>(a.y, x, o, r.q() + 8192 * team,
                                      VALUE_SIZE, from, l);
    store_rows_of<VALUES, OWN, false>(a.again, x, o, r.q() + 8192 * team,
                                      VALUE_SIZE, from, l);
}

INLINE void pairs_forward(const Pairs &a, const TensorMap &mq,
                          const TensorMap &mk, const TensorMap &mv, u32 base)
{
    const ForwardRoom r = { base };
    Block x;
    if (!find_block<true>(a, x))
        return;
    if (threadIdx.x == 0) {
        barrier_init(r.own(), 1);
        barrier_init(r.landed(), 1);
        for (int n = 0; n < AHEAD; n++) {
            barrier_init(r.full(n, 0), COLS ? 33 : 1);
            barrier_init(r.full(n, 1), 1);
            barrier_init(r.empty(n, 0), 8);
            barrier_init(r.empty(n, 1), 8);
        }
        barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        fewer_registers<40>();
        if (threadIdx.x < 32)
            forward_loads(a, mq, mk, mv, x, r, threadIdx.x);
    } else {
        more_registers<232>();
        forward_products(a, x, r);
    }
}
