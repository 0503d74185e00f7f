/* decays.cuh -- decays per key in kernels that are printed from a schedule
 * (print_decays.c): sums along a chunk, and products under them. After
 * gates.cuh.
 *
 * **Sums** are float32 in shared memory, RANKS rows a token, K + 8 numbers from
 * the next; there are RANKS rows of zeros, or of what a scan begins with,
 * before the first and as many of zeros behind the last. An address of sums is
 * that of token 0's first row.
 */
constexpr int CHUNK_WARPS = CHUNK_ROWS / 16;    /* that have rows of a chunk */

template<int K> INLINE u32 sum_row(u32 sums, int i)
{
    return sums + 4 * (K + 8) * i;
}
template<int C> INLINE void load_sums(float (&x)[C], u32 a)
{
    if (C == 1)
        x[0] = load1(a);
    else
        UNROLL for (int e = 0; e < C; e += 2) {
            const float2 v = load2(a + 4 * e);
            x[e] = v.x;
            x[e + (C > 1)] = v.y;
        }
}
template<int C> INLINE void store_sums(u32 a, const float (&x)[C])
{
    if (C == 1)
        store1(a, x[0]);
    else
        UNROLL for (int e = 0; e < C; e += 2)
            store2(a + 4 * e, x[e], x[e + (C > 1)]);
}
/* What lies in a chunk's rows becomes its sums, from the first on, or BACK from
 * the last: COLUMNS from `col` on, which a warpgroup has at once, C a lane and
 * 16 rows a warp. The last sums go to `last`, where it is not 0. */
constexpr int MOST_COLUMNS = 128;
template<int K, int COLUMNS, bool BACK>
INLINE void scan_columns(u32 at, u32 last, int col, const Lane &l)
{
    static_assert(COLUMNS <= MOST_COLUMNS, "four a lane");
    constexpr int C = COLUMNS > 64 ? 4 : COLUMNS > 32 ? 2 : 1;
    const bool here = (COLUMNS == 32 * C || l.lane * C < COLUMNS)
                   && l.warp < CHUNK_WARPS;
    const u32 first = at + 4 * (col + l.lane * C);
    const u32 own = sum_row<K>(first, 16 * l.warp);
    float x[16][C], before[C];
    if (here) {
        UNROLL for (int n = 0; n < 16; n++)
            load_sums<C>(x[n], sum_row<K>(own, n));
        UNROLL for (int n = 1; n < 16; n++)
            UNROLL for (int e = 0; e < C; e++)
                x[BACK ? 15 - n : n][e] += x[BACK ? 16 - n : n - 1][e];
        store_sums<C>(own, x[BACK ? 0 : 15]);
    }
    warpgroup_sync();
    UNROLL for (int e = 0; e < C; e++)
        before[e] = 0;
    UNROLL for (int w = 0; w < CHUNK_WARPS; w++)
        if (here && (BACK ? w > l.warp : w < l.warp)) {
            float all[C];
            load_sums<C>(all, sum_row<K>(first, 16 * w));
            UNROLL for (int e = 0; e < C; e++)
                before[e] += all[e];
        }
    warpgroup_sync();
    if (!here)
        return;
    UNROLL for (int n = 0; n < 16; n++) {
        UNROLL for (int e = 0; e < C; e++)
            x[n][e] += before[e];
        store_sums<C>(sum_row<K>(own, n), x[n]);
    }
    if (last && l.warp == CHUNK_WARPS - 1)
        store_sums<C>(last + 4 * (col + l.lane * C), x[15]);
    const float zero[C] = { 0 };
    UNROLL for (int i = 1; i <= RANKS; i++)
        if (l.warp == 0)
            store_sums<C>(sum_row<K>(first, -i), zero);
    if (l.warp == CHUNK_WARPS - 1)
        store_sums<C>(sum_row<K>(first, CHUNK_ROWS), zero);
}
/* The same of this warpgroup's SHARE columns. One that is alone, ahead of those
 * that have the states, has all there are, and few registers: more than
 * MOST_COLUMNS are taken two a lane. */
template<int K, int SHARE, bool BACK>
INLINE void scan_rows(u32 at, u32 last, int col, const Lane &l)
{
    constexpr int EACH = SHARE > MOST_COLUMNS ? 64 : SHARE;
    constexpr int REST = SHARE % EACH;
    NO_UNROLL for (int k = 0; k < SHARE - REST; k += EACH)
        scan_columns<K, EACH, BACK>(at, last, col + k, l);
    if constexpr (REST > 0)
        scan_columns<K, REST, BACK>(at, last, col + SHARE - REST, l);
}

/* Gates of tokens, which lie ROW bytes apart; of its columns COL. */
template<int ROW, int COL> struct Gates { u32 at; int rows; };
/* Of a token and the C columns from `col` on; behind the end `none`. */
template<int C, int ROW, int COL>
INLINE void gates_at(float (&g)[C], const Gates<ROW, COL> &of, int row, int col,
                     float none)
{
    UNROLL for (int e = 0; e < C; e++)
        g[e] = row >= of.rows ? none : e && !COL ? g[0]
             : load1(of.at + ROW * row + COL * (col + e));
}
/* The same for all tokens: `of` a column. */
template<class Of> struct Same { Of of; int rows; };
template<class Of> INLINE Same<Of> same_gates(Of of, int rows)
{
    return { of, rows };
}
template<int C, class Of>
INLINE void gates_at(float (&g)[C], const Same<Of> &of, int row, int col,
                     float none)
{
    UNROLL for (int e = 0; e < C; e++)
        g[e] = row >= of.rows ? none : of.of(col + e);
}
/* s, and then x; an angle is kept small, as x is, so that no sum loses what it
 * adds. */
template<bool WRAP, bool MOST> INLINE float gone_on(float gate, float s,
                                                    float x)
{
    return WRAP ? wrap_(s + x) : MOST ? max_(gate + s, x) : gate * s + x;
}
/* The same with gates: s = gate s + x, from `begin` on; or, WRAP, without,
 * modulo 2 pi; or, MOST, s = max(gate + s, x), of `rows` tokens. A lane has its
 * rows in registers, 64 columns of the warpgroup at a time: sums from the
 * warp's first row on and the gates' products, of which the last lie in the
 * first two of its rows for the warps behind. Without ROWS the last sums are
 * all that is wanted. */
template<int K, int SHARE, bool BACK, bool WRAP = false, bool MOST = false,
         bool ROWS = true, class Of, class Begin>
INLINE void gated_rows(u32 at, const Of &gates, Begin begin, u32 last,
                       int col0, const Lane &l, int rows = CHUNK_ROWS)
{
    constexpr int PIECE = SHARE > 64 ? 64 : SHARE, C = PIECE > 32 ? 2 : 1;
    NO_UNROLL for (int col = col0; col < col0 + SHARE; col += PIECE) {
        const int k = col + l.lane * C;
        const bool here = ((SHARE % PIECE == 0 && PIECE == 32 * C)
                        || (l.lane * C < PIECE && k < col0 + SHARE))
                       && l.warp < CHUNK_WARPS;
        const u32 first = at + 4 * k, own = sum_row<K>(first, 16 * l.warp);
        float x[16][C], g[16][C], before[C];
        if (here) {
            UNROLL for (int e = 0; e < C; e++)
                before[e] = before_at(begin, k + e);
            UNROLL for (int n = 0; n < 16; n++) {
                if (!WRAP)
                    gates_at(g[n], gates, 16 * l.warp + n, k,
                             MOST ? 0.f : 1.f);
                load_sums<C>(x[n], sum_row<K>(own, n));
                UNROLL for (int e = 0; e < C && MOST; e++)
                    x[n][e] = 16 * l.warp + n < rows ? x[n][e]
                                                     : bits(0xff800000);
                UNROLL for (int e = 0; e < C && WRAP; e++)
                    x[n][e] = wrap_(x[n][e]);
            }
            UNROLL for (int n = 1; n < 16; n++) {
                const int m = BACK ? 15 - n : n, b = BACK ? m + 1 : m - 1;
                UNROLL for (int e = 0; e < C; e++) {
                    x[m][e] = gone_on<WRAP, MOST>(g[m][e], x[b][e], x[m][e]);
                    if (!WRAP)
                        g[m][e] = MOST ? g[m][e] + g[b][e] : g[m][e] * g[b][e];
                }
            }
            store_sums<C>(own, x[BACK ? 0 : 15]);
            if (!WRAP)
                store_sums<C>(sum_row<K>(own, 1), g[BACK ? 0 : 15]);
            UNROLL for (int e = 0; e < C && WRAP; e++)
                before[e] = wrap_(before[e]);
            UNROLL for (int i = 1; i <= RANKS; i++)
                if (ROWS && !BACK && l.warp == 0)
                    store_sums<C>(sum_row<K>(first, -i), before);
        }
        warpgroup_sync();
        if (!ROWS && l.warp != CHUNK_WARPS - 1)
            continue;
        UNROLL for (int i = 0; i < CHUNK_WARPS; i++) {
            const int w = BACK ? CHUNK_WARPS - 1 - i : i;
            if (here && (BACK ? w > l.warp : w < l.warp)) {
                float sum[C], through[C];
                load_sums<C>(sum, sum_row<K>(first, 16 * w));
                if (!WRAP)
                    load_sums<C>(through, sum_row<K>(first, 16 * w + 1));
                UNROLL for (int e = 0; e < C; e++)
                    before[e] = gone_on<WRAP, MOST>(through[e], before[e],
                                                    sum[e]);
            }
        }
        if (ROWS)
            warpgroup_sync();
        if (here) {
            UNROLL for (int n = ROWS ? 0 : 15; n < 16; n++) {
                UNROLL for (int e = 0; e < C; e++)
                    x[n][e] = gone_on<WRAP, MOST>(g[n][e], before[e], x[n][e]);
                if (ROWS)
                    store_sums<C>(sum_row<K>(own, n), x[n]);
            }
            if (last && !BACK && l.warp == CHUNK_WARPS - 1)
                store_sums<C>(last + 4 * k, x[15]);
            const float zero[C] = { 0 };
            if (ROWS && l.warp == CHUNK_WARPS - 1)
                store_sums<C>(sum_row<K>(first, CHUNK_ROWS), zero);
        }
    }
}

/* ---- products ---- */

/* Elements (i, k) and (i, k + 1) of a tile of tokens; (i, k) and (i + 1, k); of
 * a block of 16 rows and columns, or of its transpose, what a lane has as a
 * factor: rows l / 4 and 8 more, by columns 2 (l % 4) and 8 more. */
#ifdef ELEMENT_F32
INLINE float one_at(u32 tile, int i, int k)
{
    return load1(place_of(tile, CHUNK_ROWS, i, k));
}
INLINE Two pair_of(u32 tile, int i, int k)
{
    const float2 v = load2(place_of(tile, CHUNK_ROWS, i, k));
    return { v.x, v.y };
}
INLINE void read_block(Two (&x)[4], u32 tile, int row, int col, const Lane &l)
{
    UNROLL for (int n = 0; n < 4; n++)
        x[n] = pair_of(tile, row + (l.lane >> 2) + n % 2 * 8,
                       col + n / 2 * 8 + l.col);
}
/* By columns, and then by rows. */
INLINE void read_across(Two (&x)[4], u32 tile, int row, int col, const Lane &l)
{
    UNROLL for (int n = 0; n < 4; n++) {
        const int r = row + n % 2 * 8 + l.col;
        const int c = col + n / 2 * 8 + (l.lane >> 2);
        x[n] = { one_at(tile, r, c), one_at(tile, r + 1, c) };
    }
}
/* d += c z: 16 rows by 8 columns, over 16. */
INLINE void block_product(float *d, const Two (&c)[4], const float2 *z)
{
    UNROLL for (int h = 0; h < 2; h++)
        product_exact(d, { c[2 * h].x, c[2 * h + 1].x, c[2 * h].y,
                           c[2 * h + 1].y }, { z[h].x, z[h].y });
}
constexpr float CUT_TWICE = 0.f;
#else
INLINE float one_at(u32 tile, int i, int k)
{
    const u32 v = word_of(tile, i, k);
    return k & 1 ? high(v) : low(v);
}
INLINE u32 pair_of(u32 tile, int i, int k) { return word_of(tile, i, k); }
constexpr float CUT_TWICE = 2 * LOG2_CUT;
#endif
#ifdef ELEMENT_F16
/* The same; c's numbers are such of tf32, which has a float's exponents. */
INLINE void block_product(float *d, const u32 (&c)[4], const float2 *z)
{
    UNROLL for (int h = 0; h < 2; h++) {
        const u32 p = c[2 * h], q = c[2 * h + 1];
        const u32 a[4] = { bits_of(low(p)), bits_of(low(q)), bits_of(high(p)),
                           bits_of(high(q)) };
        u32 large[2], small[2];
        cut(large[0], small[0], z[h].x);
        cut(large[1], small[1], z[h].y);
        product8(d, a, small);
        product8(d, a, large);
    }
}
#endif
#if defined ELEMENT_F16 || defined ELEMENT_F32
#define DECAYED_TF32                    /* whatever is decayed */
constexpr bool ALL_TF32 = true;
#else
constexpr bool ALL_TF32 = false;
#endif

/* What a lane names to ldmatrix for the block of 16 rows and columns of a
 * tile that begins there. */
INLINE u32 block_at(u32 tile, int row, int col, const Lane &l)
{
    const int r = row + (l.lane & 15);
    return tile + (col >> 6) * (128 * CHUNK_ROWS) + r * 128
         + ((((col >> 3 & 7) + (l.lane >> 4)) ^ (r & 7)) * 16);
}
#ifndef ELEMENT_F32
INLINE void read_block(u32 (&x)[4], u32 tile, int row, int col, const Lane &l)
{
    ldmatrix(block_at(tile, row, col, l), x);
}
INLINE void read_across(u32 (&x)[4], u32 tile, int row, int col, const Lane &l)
{
    ldmatrix_t(block_at(tile, row, col, l), x);
}
#endif
/* Whether some of these columns decay over block `block` of 16 tokens by more
 * than what a factor of a product may grow by. */
template<int K>
INLINE bool forgets(u32 sums, int block, int col, int cols, const Lane &l)
{
    bool yes = false;
    for (int k = l.lane; k < cols; k += 32)
        yes |= load1(sum_row<K>(sums, 16 * block - 1) + 4 * (col + k))
             - load1(sum_row<K>(sums, 16 * block + 15) + 4 * (col + k)) > 60.f;
    return __any_sync(~0u, yes);
}
/* The block on the diagonal pair by pair: no exponent is above 0. */
template<int K, int N>
INLINE void pairs_of_scores(float *d, u32 a, u32 b, u32 ga, u32 gb, int strict,
                            int first, const Lane &l)
{
    float sum[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    NO_UNROLL for (int k = 0; k < K; k += 2)
        UNROLL for (int e = 0; e < 8; e++) {
            const int i = l.row + 8 * (e >> 1 & 1);
            const int j = 16 * l.warp + 8 * (e >> 2) + l.col + (e & 1);
            const Two u = pair_of(a, i, k), v = pair_of(b, j, k);
            const float2 p = load2(sum_row<K>(ga, i) + 4 * k);
            const float2 q = load2(sum_row<K>(gb, j) + 4 * k);
            if (token(i) >= token(j) + strict)
                sum[e] += low(u) * low(v) * exp2_((p.x - q.x) * LOG2E)
                        + high(u) * high(v) * exp2_((p.y - q.y) * LOG2E);
        }
    UNROLL for (int s = 0; s < N / 8; s++)
        UNROLL for (int e = 0; e < 8; e++)
            if (first + s == l.warp)
                d[8 * s + e] = sum[e];
}
/* Of each of SUMS: d[i][j] = sum over k of a[i][k] b[j][k] exp(ga[i][k] -
 * gb[j][k]) where j counts for i, else 0: 2 N columns, blocks of 16 from
 * `first` on. A warp has 16 rows, decayed from the sum before them; what they
 * meet is decayed to there. The block on the diagonal is in tf32, a lane's two
 * columns next to each other: a step's are taken as 0 2 4 6 1 3 5 7; those
 * below it are in bfloat16, where elements are. Of the warp's blocks the first
 * BELOW are such, and the next, if there is one, is on the diagonal: where
 * nothing branches between them, one's exponentials are made while another's
 * products are.
 */
template<int K, int N, int BELOW, int SUMS>
INLINE void scores_of_warp(float *const (&d)[SUMS], const u32 (&a)[SUMS],
                           const u32 (&b)[SUMS], const u32 (&ga)[SUMS], u32 gb,
                           int first, const Lane &l)
{
    constexpr int BLOCKS = BELOW < N / 8 ? BELOW + 1 : BELOW;
    const int row = l.row & 15;
    const u32 start = sum_row<K>(gb, 16 * l.warp - 1) + 4 * l.col;
    NO_UNROLL for (int k = 0; k < K; k += 16) {
        Two u[SUMS][4];
        float2 from[2], x[SUMS][4], own[4];
        UNROLL for (int i = 0; i < SUMS; i++)
            if (i == 0 || a[i] != a[i - 1])
                read_block(u[i], a[i], 16 * l.warp, k, l);
            else
                UNROLL for (int n = 0; n < 4; n++)
                    u[i][n] = u[i - 1][n];
        UNROLL for (int n = 0; n < 4; n++) {
            if (n % 2 == 0)
                from[n / 2] = times_log2e(load2(start + 4 * k + 16 * n));
            float2 f;
            UNROLL for (int i = 0; i < SUMS; i++) {
                if (i == 0 || ga[i] != ga[i - 1]) {
                    const float2 g = load2(sum_row<K>(ga[i], l.row + n % 2 * 8)
                                           + 4 * (k + n / 2 * 8 + l.col));
                    f = decay_from(g, from[n / 2]);
                    if (ga[i] == gb)
                        own[n] = g;
                }
                x[i][n] = { low(u[i][n]) * f.x, high(u[i][n]) * f.y };
            }
        }
        UNROLL for (int s = 0; s < BLOCKS; s++) {
            const int block = first + s;
            const bool exact = ALL_TF32 || s == BELOW;
            const float up = exact ? CUT_TWICE : 0.f;
            float2 to[4], y[4];
            UNROLL for (int n = 0; n < 4; n++)
                to[n] = decay_to({ from[n / 2].x + up, from[n / 2].y + up },
                    s == BELOW && ga[0] == gb ? own[n]
                    : load2(sum_row<K>(gb, 16 * block + row + n % 2 * 8)
                            + 4 * (k + n / 2 * 8 + l.col)));
            UNROLL for (int i = 0; i < SUMS; i++) {
                Two v[4];
                if (i == 0 || b[i] != b[i - 1]) {
                    if (s == BELOW && b[i] == a[0])
                        UNROLL for (int n = 0; n < 4; n++)
                            v[n] = u[0][n];
                    else
                        read_block(v, b[i], 16 * block, k, l);
                    UNROLL for (int n = 0; n < 4; n++)
                        y[n] = { low(v[n]) * to[n].x, high(v[n]) * to[n].y };
                }
#ifdef ELEMENT_F32
                const Two c[4] = { { x[i][0].x, x[i][0].y },
                                   { x[i][1].x, x[i][1].y },
                                   { x[i][2].x, x[i][2].y },
                                   { x[i][3].x, x[i][3].y } };
                UNROLL for (int h = 0; h < 2; h++) {
                    const float2 z[2] = { y[h], y[h + 2] };
                    block_product(d[i] + 8 * s + 4 * h, c, z);
                }
#else
                if (exact) {
                    UNROLL for (int n = 0; n < 4; n += 2) {
                        const float2 p = x[i][n], q = x[i][n + 1];
                        const u32 c[4] = { bits_of(p.x), bits_of(q.x),
                                           bits_of(p.y), bits_of(q.y) };
                        UNROLL for (int h = 0; h < 2; h++) {
                            const u32 z[2] = { bits_of(y[n + h].x),
                                               bits_of(y[n + h].y) };
                            product8(d[i] + 8 * s + 4 * h, c, z);
                        }
                    }
                } else {
                    u32 c[4];
                    UNROLL for (int n = 0; n < 4; n++)
                        c[n] = pack_wide(x[i][n].x, x[i][n].y);
                    UNROLL for (int h = 0; h < 2; h++) {
                        const u32 z[2] = { pack_wide(y[h].x, y[h].y),
                                           pack_wide(y[h + 2].x, y[h + 2].y) };
                        product16(d[i] + 8 * s + 4 * h, c, z);
                    }
                }
#endif
            }
        }
    }
}
template<int K, int N, int BELOW, int SUMS>
INLINE void scores_of_warps(int below, float *const (&d)[SUMS],
                            const u32 (&a)[SUMS], const u32 (&b)[SUMS],
                            const u32 (&ga)[SUMS], u32 gb, int first,
                            const Lane &l)
{
    if (below >= BELOW)
        scores_of_warp<K, N, BELOW>(d, a, b, ga, gb, first, l);
    else if constexpr (BELOW > 0)
        scores_of_warps<K, N, BELOW - 1>(below, d, a, b, ga, gb, first, l);
}
/* The same from column `col` on, as many blocks below the diagonal as the warp
 * has; one that has none at all is done. */
template<int K, int N, int SUMS>
INLINE void decayed_scores(float *const (&d)[SUMS], const u32 (&a)[SUMS],
                           const u32 (&b)[SUMS], const u32 (&ga)[SUMS],
                           const int (&strict)[SUMS], u32 gb, int col,
                           const Lane &l)
{
    constexpr int MOST = N / 8 < CHUNK_WARPS ? N / 8 : CHUNK_WARPS - 1;
    const int first = col / 16;
    UNROLL for (int i = 0; i < SUMS; i++)
        UNROLL for (int e = 0; e < N; e++)
            d[i][e] = 0;
    if (first > l.warp || l.warp >= CHUNK_WARPS)
        return;
    scores_of_warps<K, N, MOST>(uniform(l.warp - first), d, a, b, ga, gb, first,
                                l);
    UNROLL for (int i = 0; i < SUMS; i++)
        UNROLL for (int e = 0; e < N; e++)
            if (token(l.row + e / 2 % 2 * 8)
                < token(col + e / 4 * 8 + l.col + e % 2) + strict[i])
                d[i][e] = 0;
    if (first + N / 8 > l.warp && forgets<K>(gb, l.warp, 0, K, l))
        UNROLL for (int i = 0; i < SUMS; i++)
            pairs_of_scores<K, N>(d[i], a[i], b[i], ga[i], gb, strict[i], first,
                                  l);
}

/* Two numbers as the sums of two of bfloat16. */
INLINE void split(u32 &high, u32 &low, float x, float y)
{
    high = pack_wide(x, y);
    low = pack_wide(x - bits(high << 16), y - bits(high & 0xffff0000u));
}
/* Of a block on the diagonal of scores, as rows of a product, what counts.
 * LATER: its rows are later than its columns. */
#ifdef ELEMENT_F32
INLINE Two where_(bool one, bool two, Two x)
{
    return { one ? x.x : 0.f, two ? x.y : 0.f };
}
INLINE Two negated(Two x) { return { -x.x, -x.y }; }
#else
INLINE u32 where_(bool one, bool two, u32 x)
{
    return x & ((one ? 0xffffu : 0u) | (two ? 0xffff0000u : 0u));
}
INLINE u32 negated(u32 x) { return x ^ 0x80008000u; }
#endif
template<bool LATER>
INLINE void mask_block(Two (&p)[4], int strict, const Lane &l)
{
    UNROLL for (int n = 0; n < 4; n++) {
        const int row = (l.row & 15) + n % 2 * 8, col = l.col + n / 2 * 8;
        const int i = token(row), j = token(col), k = token(col + 1);
        const bool one = LATER ? i >= j + strict : j >= i + strict;
        const bool two = LATER ? i >= k + strict : k >= i + strict;
        p[n] = where_(one, two, p[n]);
    }
}
/* Of sums under decays N terms: scores, what those meet and its decays; whether
 * a token itself does not count; a number, and its size of that of its sum's
 * first term. */
template<int N> struct Terms {
    u32 p[N], x[N], gx[N];
    int strict[N];
    float scale[N], size[N];
};
/* How each term is, four bits a term: it decays as the one before it; and so
 * what it meets is that one's; the number of the sum that it is of, a new one's
 * terms behind those of the sum before. */
enum : u32 { AS_BEFORE = 1, MEETS_AS_BEFORE = 2, SUM_SHIFT = 2 };
constexpr bool is_as_before(u32 how, int i, u32 bit)
{
    return how >> 4 * i & bit;
}
constexpr int sum_of(u32 how, int i) { return how >> (4 * i + SUM_SHIFT) & 3; }
constexpr int first_of(u32 how, int sum)
{
    return sum_of(how, 0) >= sum ? 0 : sum_of(how, 1) >= sum ? 1
         : sum_of(how, 2) >= sum ? 2 : sum_of(how, 3) >= sum ? 3 : 4;
}
/* Terms of one sum that have nothing in common: one after another. */
constexpr bool are_apart(u32 how, int terms)
{
    return terms > 1 && !sum_of(how, terms - 1)
        && !(how & (AS_BEFORE | MEETS_AS_BEFORE) * 0x1111u);
}
template<class T, int N> INLINE T one_of(const T (&all)[N], int at)
{
    T x = all[0];
    UNROLL for (int i = 1; i < N; i++)
        x = at == i ? all[i] : x;
    return x;
}
template<int N> INLINE Terms<1> term(const Terms<N> &t, int at)
{
    return { { one_of(t.p, at) }, { one_of(t.x, at) }, { one_of(t.gx, at) },
             { one_of(t.strict, at) }, { one_of(t.scale, at) },
             { one_of(t.size, at) } };
}
/* The block on the diagonal pair by pair. */
template<int K, int N, bool LATER>
INLINE void pairs_of_sums(float *d, const Terms<1> &of, u32 gd, int col,
                          const Lane &l)
{
    NO_UNROLL for (int t = 16 * l.warp; t < 16 * l.warp + 16; t++)
        UNROLL for (int h = 0; h < 2; h++) {
            const int row = l.row + 8 * h;
            const int i = LATER ? row : t, j = LATER ? t : row;
            const float s = token(i) < token(j) + of.strict[0] ? 0.f
                          : of.scale[0] * one_at(of.p[0], i, j);
            UNROLL for (int e = 0; e < N / 4; e++) {
                const int k = col + 8 * e + l.col;
                const Two u = pair_of(of.x[0], t, k);
                const float2 a = load2(sum_row<K>(LATER ? gd : of.gx[0], i)
                                       + 4 * k);
                const float2 b = load2(sum_row<K>(LATER ? of.gx[0] : gd, j)
                                       + 4 * k);
                d[4 * e + 2 * h] += s * low(u)
                    * exp2_(min_(a.x - b.x, 0.f) * LOG2E);
                d[4 * e + 2 * h + 1] += s * high(u)
                    * exp2_(min_(a.y - b.y, 0.f) * LOG2E);
            }
        }
}
/* Of a term's scores what a warp's rows have of a block of 16 tokens. */
template<bool LATER, int N>
INLINE void block_of_scores(Two (&c)[4], const Terms<N> &t, int i, int block,
                            const Lane &l)
{
    if (LATER) {
        read_block(c, t.p[i], 16 * l.warp, 16 * block, l);
    } else {
        Two v[4];
        read_across(v, t.p[i], 16 * block, 16 * l.warp, l);
        c[0] = v[0];
        c[1] = v[2];
        c[2] = v[1];
        c[3] = v[3];
    }
    if (block == l.warp)
        mask_block<LATER>(c, t.strict[i], l);
    UNROLL for (int n = 0; n < 4; n++)
        c[n] = t.scale[i] < 0 ? negated(c[n]) : c[n];
}
/* d += what a warp's rows meet in a block of 16 tokens, decayed to, or from,
 * `end`: the sum there, times log2 e, by columns. */
template<int K, int N, bool LATER, u32 HOW, int SUMS, int TERMS>
INLINE void add_block(float *const (&d)[SUMS], const Terms<TERMS> &t, int block,
                      const float (&end)[N / 4], int col, const Lane &l)
{
    const float out = LATER ? LOG2E : -LOG2E;
    Two c[TERMS][4];
    UNROLL for (int i = 0; i < TERMS; i++)
        block_of_scores<LATER>(c[i], t, i, block, l);
    UNROLL for (int s = 0; s < N / 8; s++) {
        float2 f[4];
#ifdef DECAYED_TF32
        float2 z[4];
#else
        u32 high_part[4], low_part[4];
#endif
        UNROLL for (int i = 0; i < TERMS; i++) {
            const int sum = sum_of(HOW, i);
            UNROLL for (int n = 0; n < 4 && !is_as_before(HOW, i, AS_BEFORE);
                        n++) {
                const u32 at = sum_row<K>(t.gx[i], 16 * block + n % 2 * 8
                                          + l.col)
                    + 4 * (col + 16 * s + n / 2 * 8 + (l.lane >> 2));
                f[n] = { exp2_(fmaf(-out, load1(at), end[2 * s + n / 2])),
                         exp2_(fmaf(-out, load1(sum_row<K>(at, 1)),
                                    end[2 * s + n / 2])) };
            }
            if (!is_as_before(HOW, i, MEETS_AS_BEFORE)) {
                Two u[4];
                read_across(u, t.x[i], 16 * block, col + 16 * s, l);
#ifdef DECAYED_TF32
                UNROLL for (int n = 0; n < 4; n++)
                    z[n] = { low(u[n]) * (f[n].x * t.size[i]),
                             high(u[n]) * (f[n].y * t.size[i]) };
            }
            UNROLL for (int n = 0; n < 4; n += 2)
                block_product(d[sum] + 8 * s + 2 * n, c[i], z + n);
#else
                UNROLL for (int n = 0; n < 4; n++)
                    split(high_part[n], low_part[n],
                          low(u[n]) * (f[n].x * t.size[i]),
                          high(u[n]) * (f[n].y * t.size[i]));
            }
            UNROLL for (int n = 0; n < 4; n += 2) {
                product16(d[sum] + 8 * s + 2 * n, c[i], high_part + n);
                product16(d[sum] + 8 * s + 2 * n, c[i], low_part + n);
            }
#endif
        }
    }
}
/* Each of SUMS: d[r][k] = sum over its terms, and tokens t, of p x[t][k]
 * exp(...), 2 N columns from `col` on, p being the scores' p[r][t] and the
 * exponent gd[r][k] - gx[t][k], for t that count for r, where rows are LATER;
 * else p[t][r], gx[t][k] - gd[r][k], for t for which r counts. A warp has 16
 * rows; what they meet is decayed to, or from, the sum `gb` before them, or at
 * their end, and they from, or to there. What is decayed is two numbers of
 * bfloat16, or of tf32: what a token adds to the gradient of its gate is the
 * difference of two such sums. */
template<int K, int N, bool LATER, u32 HOW, int SUMS, int TERMS>
INLINE void decayed_sums(float *const (&d)[SUMS], const Terms<TERMS> &terms,
                         u32 gd, u32 gb, int col, const Lane &l)
{
    UNROLL for (int i = 0; i < SUMS; i++)
        UNROLL for (int e = 0; e < N; e++)
            d[i][e] = 0;
    if (l.warp >= CHUNK_WARPS)
        return;
    const bool pairs = forgets<K>(gb, l.warp, col, 2 * N, l);
    const u32 anchor = sum_row<K>(gb, 16 * l.warp + (LATER ? -1 : 15));
    float end[N / 4];
    UNROLL for (int s = 0; s < N / 4; s++)
        end[s] = (LATER ? LOG2E : -LOG2E)
               * load1(anchor + 4 * (col + 8 * s + (l.lane >> 2)));
    NO_UNROLL for (int block = LATER ? 0 : l.warp;
                   block <= (LATER ? l.warp : CHUNK_WARPS - 1); block++)
        if (block == l.warp && pairs)
            continue;
        else if (are_apart(HOW, TERMS))
            NO_UNROLL for (int i = 0; i < TERMS; i++)
                add_block<K, N, LATER, 0>(d, term(terms, i), block, end, col,
                                          l);
        else
            add_block<K, N, LATER, HOW>(d, terms, block, end, col, l);
    UNROLL for (int e = 0; e < N / 4; e++) {
        const u32 k = 4 * (col + 8 * e + l.col);
        const float2 to = times_log2e(load2(anchor + k));
        UNROLL for (int h = 0; h < 2; h++) {
            const float2 g = load2(sum_row<K>(gd, l.row + 8 * h) + k);
            const float2 f = LATER ? decay_from(g, to) : decay_to(to, g);
            UNROLL for (int i = 0; i < SUMS; i++) {
                const float size = abs_(terms.scale[first_of(HOW, i)]);
                d[i][4 * e + 2 * h] *= f.x * size;
                d[i][4 * e + 2 * h + 1] *= f.y * size;
            }
        }
    }
    UNROLL for (int sum = 0; sum < SUMS; sum++) {
        const int last = sum + 1 < SUMS ? first_of(HOW, sum + 1) : TERMS;
        NO_UNROLL for (int i = first_of(HOW, sum); i < last && pairs; i++)
            pairs_of_sums<K, N, LATER>(d[sum], term(terms, i), gd, col, l);
    }
}
/* The same, PARTS of the columns one after another: the text is as much
 * shorter. Those made so far move on in their registers. */
template<int K, int N, bool LATER, u32 HOW, int PARTS, int SUMS, int TERMS>
INLINE void decayed_parts(float *const (&d)[SUMS], const Terms<TERMS> &terms,
                          u32 gd, u32 gb, int col, const Lane &l)
{
    constexpr int EACH = N / PARTS;
    float part[SUMS][EACH], *to[SUMS];
    UNROLL for (int i = 0; i < SUMS; i++) {
        to[i] = part[i];
        UNROLL for (int e = 0; e < N; e++)
            d[i][e] = 0;
    }
    NO_UNROLL for (int at = 0; at < PARTS; at++) {
        decayed_sums<K, EACH, LATER, HOW, SUMS>(to, terms, gd, gb,
                                                col + 2 * EACH * at, l);
        UNROLL for (int i = 0; i < SUMS; i++)
            UNROLL for (int e = 0; e < N; e++)
                d[i][e] = e < N - EACH ? d[i][e + EACH]
                                       : part[i][e - (N - EACH)];
    }
}
