/* schedule.cuh -- what kernels printed from a schedule stand on (print.c).
 * After device.cuh, vectors.cuh, wgmma.cuh or mma.cuh, inverse.cuh and run.cuh.
 * A tile of more than 64 columns is pieces of 64, one behind the other, as far
 * apart as it has rows.
 */
/* ---- the item in hand ---- */

constexpr int CHUNK = CHUNK_ROWS / RANKS;   /* tokens */

/* A chunk of a head: n rows from token `row` on, and where it stands among all;
 * the block's slice of an axis. */
struct Item {
    int head, n, row, seq, slice;
    int first, last;                    /* chunks that a block has of a walk:
                                           it is lean before the first */
    i64 at;
    Rows where;
};
/* Item `at` of the launch, of which there are fewer than 2^32; false: no
 * sequence has such a chunk. */
template<int SLICES>
INLINE bool find_item(const Run &run, i64 item, Item &x)
{
    const u32 at = (u32)item / SLICES;
    u32 head, chunk, piece;
    const u32 slot = divided_by(at, run.by_heads, head);
    x.slice = (int)((u32)item % SLICES);
    x.at = at;
    x.head = (int)head;
    if (run.seq) {
        const i64 s = find_sequence(run, slot, CHUNK);
        const Sequence q = sequence(run, s);
        const i64 c = slot - first_slot(run, s, CHUNK);
        x.seq = (int)s;
        x.where = rows_in(q);
        x.row = (int)(q.start + c * CHUNK);
        x.n = RANKS * (int)min(q.len - c * CHUNK, (i64)CHUNK);
        return c >= 0 && x.n > 0;
    }
    x.seq = (int)divided_by(slot, run.by_slots, chunk);
    const int b = (int)divided_by((u32)x.seq, run.by_pieces, piece);
    const int start = (int)piece * (int)run.each;
    const int len = min((int)run.tokens - start, (int)run.each);
    x.where = rows_in({ b, 0, start, len });
    x.row = start + (int)chunk * CHUNK;
    x.n = RANKS * min(len - (int)chunk * CHUNK, CHUNK);
    return x.n > 0;
}

/* A block's item number `iteration`, where it has `each` of them side by side.
 */
INLINE i64 item_of(u32 iteration, u32 each)
{
    return ((i64)(iteration / each) * gridDim.x + blockIdx.x) * each
        + iteration % each;
}

/* Sequence and head of the launch, to be walked: neighbours have a head's
 * slices. */
template<int SLICES, bool SPLIT = false>
INLINE int find_walk(const Run &run, i64 item, Item &x)
{
    i64 at = item / SLICES;
    int part = 0;
    x.slice = (int)(item % SLICES);
    if (SPLIT) {
        part = (int)((u32)at % (u32)run.parts);
        at = (u32)at / (u32)run.parts;
    }
    const i64 s = divided(at, run.heads);
    const Sequence q = sequence(run, s);
    x.head = (int)(at - s * run.heads);
    x.seq = (int)s;
    x.where = rows_in(q);
    const int chunks = chunks_of(x.where);
    x.first = SPLIT ? (int)((i64)chunks * run.bound[part] >> 12) : 0;
    x.last = SPLIT ? (int)((i64)chunks * run.bound[part + 1] >> 12) : chunks;
    return chunks;
}
/* Its chunk c. */
INLINE void find_chunk(const Run &run, int c, Item &x)
{
    x.row = x.where.start + CHUNK * c;
    x.n = rows_of(x.where, c);
    x.at = (x.seq + x.where.b * run.per_entry + x.where.start / CHUNK + c)
         * run.heads + x.head;
}

/* A ring's slot at its pos-th use. */
INLINE u32 parity(u32 pos, u32 depth) { return pos / depth & 1; }

/* The warps of a role of matrices meet: of one that is AHEAD of another, by
 * themselves. */
template<int WARPGROUPS, bool AHEAD = false> INLINE void matrix_sync()
{
    if (WARPGROUPS > 1)
        asm volatile("bar.sync %0, %1;" :: "n"(AHEAD ? 5 : 7),
                     "n"(128 * WARPGROUPS) : "memory");
    else
        warpgroup_sync();
}

/* x or nothing, whichever x is. */
INLINE float kept_(bool is, float x) { return is ? x : 0.f; }

/* ---- tiles ---- */

/* Where one of float32, in pieces of 32 columns, has column c of row r. */
INLINE u32 place_of(u32 tile, int rows, int r, int c)
{
    return tile + c / 32 * rows * 128 + r * 128
         + ((c % 32 / 4 ^ (r & 7)) * 16) + c % 4 * 4;
}

/* Columns [col, col + 16 STEPS) of 64 rows, packed as a fragment; `rows`: of
 * the tile, which may be fewer: zeros. */
#ifdef ELEMENT_F32
template<int STEPS>
INLINE void read_columns(Two *p, u32 tile, int rows, int col, const Lane &l)
{
    UNROLL for (int i = 0; i < 4 * STEPS; i++) {
        const int r = l.row + i % 2 * 8;
        const float2 v = rows < 64 && r >= rows ? float2 { 0, 0 }
            : load2(place_of(tile, rows, r, col + i / 2 * 8 + l.col));
        p[i] = { v.x, v.y };
    }
}
template<int STEPS>
INLINE void write_columns(u32 tile, const Two *p, int rows, int col,
                          const Lane &l)
{
    UNROLL for (int i = 0; i < 4 * STEPS; i++) {
        const int r = l.row + i % 2 * 8;
        if (rows >= 64 || r < rows)
            store2(place_of(tile, rows, r, col + i / 2 * 8 + l.col), p[i].x,
                   p[i].y);
    }
}
#ifdef ELEMENT_F16
INLINE float factor_(float x) { return bits(tf32(x) & 0xffffe000u); }
#else
INLINE float factor_(float x) { return x; }
#endif
#else
template<int STEPS>
INLINE void read_columns(u32 *p, u32 tile, int rows, int col, const Lane &l)
{
    UNROLL for (int k = 0; k < STEPS; k++) {
        const int c = col + 16 * k;
        if (rows >= 64 || 16 * l.warp < rows)
            ldmatrix(tile + c / 64 * rows * 128 + tile_row(l, c % 64 / 16),
                     p + 4 * k);
        else
            p[4 * k] = p[4 * k + 1] = p[4 * k + 2] = p[4 * k + 3] = 0;
    }
}
template<int STEPS>
INLINE void write_columns(u32 tile, const u32 *p, int rows, int col,
                          const Lane &l)
{
    UNROLL for (int k = 0; k < STEPS; k++) {
        const int c = col + 16 * k;
        if (rows >= 64 || 16 * l.warp < rows)
            stmatrix(tile + c / 64 * rows * 128 + tile_row(l, c % 64 / 16),
                     p + 4 * k);
    }
}
/* Rounded as it is in a tile, where products find it. */
INLINE float factor_(float x) { return low(pack(x, 0.f)); }
#endif
/* A fragment's numbers as pairs, rows from `rows` on as zeros: of few chunks,
 * by a branch. */
template<int N>
INLINE void pack_rows(Two (&p)[N], const float *x, const Lane &l, int rows)
{
    UNROLL for (int i = 0; i < N; i++)
        p[i] = two(x[2 * i], x[2 * i + 1]);
    if (rows >= 64)
        return;
    const bool first = l.row < rows, second = l.row + 8 < rows;
    UNROLL for (int i = 0; i < N; i++)
        p[i] = (i & 1 ? second : first) ? p[i] : Two {};
}
/* Two columns each, from col on, of a lane's rows: zeros where its first row is
 * not so far (`over`) behind its first column. */
template<int N> INLINE void clear_above(u32 (&p)[N], int over, int col)
{
    UNROLL for (int i = 0; i < N; i++) {
        const int past = col + i / 2 * 8 - 8 * (i & 1);
        p[i] &= (over >= past ? 0xffffu : 0) | (over > past ? 0xffff0000u : 0);
    }
}
template<int N> INLINE void pack_all(u32 (&p)[N], const float *x)
{
    UNROLL for (int i = 0; i < N; i++)
        p[i] = pack(x[2 * i], x[2 * i + 1]);
}
/* Columns from `cols` on as zeros: of few chunks, by a branch. */
template<int N>
INLINE void clear_columns(u32 (&p)[N], int cols, const Lane &l)
{
    __syncwarp();                       /* not by predicates, in all */
    UNROLL for (int i = 0; i < N; i++) {
        const int col = i / 2 * 8 + l.col;
        p[i] = col + 1 < cols ? p[i] : col < cols ? p[i] & 0xffff : 0;
    }
}
/* Scores as they are, for invert, which has its own above the diagonal. */
template<int N>
INLINE void write_wide(u32 to, const float (&x)[N], int col, const Lane &l)
{
    UNROLL for (int e = 0; e < N; e += 2)
        if ((col + e / 4 * 8) / 16 <= l.warp)
            store2(entry(to, l.row + 8 * (e / 2 % 2), col + e / 4 * 8 + l.col),
                   x[e], x[e + 1]);
}
/* Rows [rows, CHUNK_ROWS) of a tile become zeros, by all of THREADS threads. */
template<int THREADS>
INLINE void clear_tail(u32 tile, int pieces, int rows, int thread)
{
    NO_UNROLL for (int at = thread; at < pieces * 8 * CHUNK_ROWS;
                   at += THREADS)
        if (at / 8 % CHUNK_ROWS >= rows)
            clear16(tile + at * 16);
}
/* Column k of what comes before a chunk: in memory, in shared memory; zeros. */
INLINE float before_at(const float *p, int k) { return p[k]; }
INLINE float before_at(u32 p, int k) { return p ? load1(p + 4 * k) : 0.f; }
/* Of a vector that has so many, and zeros behind them. */
struct Ending { const float *p; int n; };
INLINE float before_at(const Ending &from, int k)
{
    return k < from.n ? from.p[k] : 0.f;
}
/* A tile's first token, or TOKEN: what comes before the chunk, the same for all
 * ranks. */
template<int THREADS, int TOKEN = 0, class Before>
INLINE void write_first(u32 tile, Before from, int cols, int thread)
{
    constexpr int ROW = TOKEN * RANKS;
#ifdef ELEMENT_F32
    for (int k = thread; k < cols; k += THREADS)
        UNROLL for (int row = ROW; row < ROW + RANKS; row++)
            store1(place_of(tile, CHUNK_ROWS, row, k), before_at(from, k));
#else
    for (int k = 2 * thread; k < cols; k += 2 * THREADS)
        UNROLL for (int row = ROW; row < ROW + RANKS; row++)
            store1(tile + k / 64 * (128 * CHUNK_ROWS) + 128 * row
                   + (2 * (k % 64) ^ 16 * (row % 8)),
                   bits(pack(before_at(from, k), before_at(from, k + 1))));
#endif
}

/* END: of a matrix whose columns from there on are not in memory, but zeros; 0:
 * it has none. Whether an even column `col` is before it. */
template<int END> INLINE bool has_column(int col) { return !END || col < END; }
/* The same of so many columns that are left, or of all. */
struct EveryColumn {};
INLINE bool is_within(EveryColumn, int) { return true; }
INLINE bool is_within(int cols, int col) { return col < cols; }
/* Of an odd number, of which the last has no neighbour. */
struct OddColumns { int n; };
INLINE bool is_within(OddColumns cols, int col) { return col < cols.n; }
/* Whether a column that is within has its neighbour there. */
template<class Cols> INLINE bool has_next(Cols, int) { return true; }
INLINE bool has_next(OddColumns cols, int col) { return col + 1 < cols.n; }
template<int END> INLINE bool has_next(int col)
{
    return END % 2 == 0 || col + 1 < END;
}

INLINE float element(const float *p) { return *p; }
INLINE float element(const unsigned short *p) { return low(*p); }
INLINE void put_element(float *p, float x) { *p = x; }
INLINE void put_element(unsigned short *p, float x)
{
    *p = (unsigned short)pack(x, 0.f);
}

/* Where a chunk's row is, of its first token's: RANKED, that of its rank, first
 * of a tensor's axes; else its token's, which has the first row alone. */
template<bool RANKED> INLINE i64 row_place(const Tensor &t, int row)
{
    return token(row) * t.st + (RANKED ? row % RANKS * t.sd[0] : 0);
}
template<bool RANKED> INLINE bool has_place(int row)
{
    return RANKED ? is_stored(row) : row % RANKS == 0;
}
/* From column to column. */
template<bool RANKED> INLINE i64 column_step(const Tensor &t)
{
    return t.sd[RANKED];
}
/* A fragment's number as a token's row of one rank has it. */
INLINE float of_rank(float x, int rank, const Lane &l)
{
    return __shfl_sync(~0u, x, (l.lane / 4 / RANKS * RANKS + rank) * 4
                               + l.lane % 4);
}

/* A fragment of tokens, columns from col on, to where heads' shares of a result
 * wait in float32: it is what there is of them, or (not `first`) is added. */
template<bool RANKED = false, int END = 0, int N>
INLINE void store_share(const Tensor &t, const float (&x)[N], const Item &at,
                        int col, const Lane &l, bool first)
{
    float *p = (float *)t.p + at.where.b * t.sb + head_of(t, at.head) * t.sh
             + (i64)at.row * t.st;
    UNROLL for (int e = 0; e < N; e += 2) {
        const int row = l.row + e / 2 % 2 * 8;
        float *to = p + row_place<RANKED>(t, row) + col + e / 4 * 8 + l.col;
        if (!t.p || row >= at.n || !has_place<RANKED>(row)
            || !has_column<END>(col + e / 4 * 8 + l.col))
            continue;
        if (END % 2) {                  /* rows at odd places */
            to[0] = first ? x[e] : to[0] + x[e];
            if (has_next<END>(col + e / 4 * 8 + l.col))
                to[1] = first ? x[e + 1] : to[1] + x[e + 1];
        } else if (first) {
            *(float2 *)to = { x[e], x[e + 1] };
        } else {
            add_pair(to, x[e], x[e + 1]);
        }
    }
}
/* Of t.group heads the block has each in sequence, and adds what it has of the
 * others to what the first has left: in memory; or in sum, which leaves once.
 */
template<bool RANKED = false, int END = 0, int N>
INLINE void add_share(const Tensor &t, const float (&x)[N], const Item &at,
                      int col, const Lane &l)
{
    store_share<RANKED, END>(t, x, at, col, l, at.head % t.group == 0);
}
template<bool RANKED = false, int END = 0, int N>
INLINE void sum_share(float (&sum)[N], const Tensor &t, const float (&x)[N],
                      const Item &at, int col, const Lane &l)
{
    const int turn = at.head % t.group;
    UNROLL for (int e = 0; e < N; e++)
        sum[e] = turn == 0 ? x[e] : sum[e] + x[e];
    if (turn == t.group - 1)
        store_share<RANKED, END>(t, sum, at, col, l, true);
}

/* ---- states: in memory by rows and columns ---- */

/* Number e of a thread's fragment of ROWS rows from `row` and SHARE columns
 * from `col` on: whether there is such a row, and column, and its place. */
template<int ROWS, int SHARE, int END_ROW, int END>
INLINE bool has_entry(int e, int row, int col, const Lane &l)
{
    const int r = l.row + e / 2 % 2 * 8 + e / (SHARE / 2) * 64;
    return (ROWS % 64 == 0 || r < ROWS) && has_column<END_ROW>(row + r)
        && has_column<END>(col + e % (SHARE / 2) / 4 * 8 + l.col
                           + (END % 2 ? e % 2 : 0));
}
template<int SHARE>
INLINE i64 state_place(const Tensor &t, int e, int row, int col,
                       const Lane &l)
{
    return (row + l.row + e / 2 % 2 * 8 + e / (SHARE / 2) * 64) * t.sd[0]
         + (col + e % (SHARE / 2) / 4 * 8 + l.col + e % 2) * t.sd[1];
}
template<class T, int ROWS, int SHARE, int END_ROW = 0, int END = 0, int N>
INLINE void begin_state(float (&x)[N], const Tensor &t, const Item &at,
                        int row, int col, const Lane &l)
{
    const T *p = (const T *)t.p + at.seq * t.sb + head_of(t, at.head) * t.sh;
    UNROLL for (int e = 0; e < N; e++)
        x[e] = 0.f;
    if (t.p)                            /* most calls have none */
        UNROLL for (int e = 0; e < N; e++)
            if (has_entry<ROWS, SHARE, END_ROW, END>(e, row, col, l))
                x[e] = element(p + state_place<SHARE>(t, e, row, col, l));
}
/* The same of a head's constant matrix. */
template<class T, int ROWS, int SHARE, int END_ROW = 0, int END = 0, int N>
INLINE void load_constant(float (&x)[N], const Tensor &t, const Item &at,
                          int row, int col, const Lane &l)
{
    const T *p = (const T *)t.p + head_of(t, at.head) * t.sh;
    UNROLL for (int e = 0; e < N; e++)
        x[e] = has_entry<ROWS, SHARE, END_ROW, END>(e, row, col, l)
             ? element(p + state_place<SHARE>(t, e, row, col, l)) : 0.f;
}
template<class T, int ROWS, int SHARE, int END_ROW = 0, int END = 0, int N>
INLINE void end_state(const float (&x)[N], const Tensor &t, const Item &at,
                      int row, int col, const Lane &l)
{
    T *p = (T *)t.p + at.seq * t.sb + head_of(t, at.head) * t.sh;
    if (!t.p)
        return;
    UNROLL for (int e = 0; e < N; e++)
        if (has_entry<ROWS, SHARE, END_ROW, END>(e, row, col, l))
            put_element(p + state_place<SHARE>(t, e, row, col, l), x[e]);
}

template<class T>
INLINE float begin_entry(const Tensor &t, const Item &x, int at)
{
    return t.p ? element((const T *)t.p + x.seq * t.sb
                         + head_of(t, x.head) * t.sh + at * t.sd[0]) : 0.f;
}
/* Entry `at` of what a token has, or its number, where it lies. */
template<class T>
INLINE float token_entry(const Tensor &t, const Item &x, int token, int at)
{
    return element((const T *)t.p + x.where.b * t.sb + head_of(t, x.head) * t.sh
                   + (i64)token * t.st + at * t.sd[0]);
}
template<class T>
INLINE float token_number(const Tensor &t, const Item &x, int token)
{
    return element((const T *)t.p + x.where.b * t.sb + head_of(t, x.head) * t.sh
                   + (i64)token * t.st);
}
template<class T>
INLINE void end_entry(const Tensor &t, const Item &x, int at, float v)
{
    if (t.p)
        put_element((T *)t.p + x.seq * t.sb + head_of(t, x.head) * t.sh
                    + at * t.sd[0], v);
}
template<class T> INLINE float begin_number(const Tensor &t, const Item &x)
{
    return t.p ? element((const T *)t.p + x.seq * t.sb
                         + head_of(t, x.head) * t.sh) : 0.f;
}
template<class T>
INLINE void end_number(const Tensor &t, const Item &x, float v)
{
    if (t.p)
        put_element((T *)t.p + x.seq * t.sb + head_of(t, x.head) * t.sh, v);
}

/* ---- vectors ---- */

/* The sum of PARTS vectors, at token or number `at`. */
template<int PARTS> INLINE float parts_sum(u32 from, int size, int at)
{
    float x = load1(from + 4 * at);
    UNROLL for (int i = 1; i < PARTS; i++)
        x += load1(from + 4 * (i * size + at));
    return x;
}
template<int PARTS> INLINE float2 parts_column(u32 from, int size, int at)
{
    return { parts_sum<PARTS>(from, size, at),
             parts_sum<PARTS>(from, size, at + 1) };
}
template<int PARTS> INLINE Pair parts_pair(u32 from, int lane)
{
    return { parts_sum<PARTS>(from, 64, lane),
             parts_sum<PARTS>(from, 64, lane + 32) };
}
template<class T, bool RANKED = false>
INLINE Pair input_pair(const Tensor &t, const Item &x, int lane)
{
    const T *p = (const T *)t.p + x.where.b * t.sb + head_of(t, x.head) * t.sh
               + (i64)x.row * t.st;
    const bool stored = !RANKED || is_stored(lane);
    return { stored && lane < x.n ? element(p + row_place<RANKED>(t, lane))
            : 0.f,
             stored && lane + 32 < x.n
             ? element(p + row_place<RANKED>(t, lane + 32)) : 0.f };
}
/* The tokens behind those of a chunk, each by one: one less, where the sequence
 * ends. */
INLINE Item one_behind(const Item &x)
{
    Item y = x;
    y.row++;
    y.n = min(x.n, x.where.len - RANKS * (y.row - x.where.start));
    return y;
}
/* The same of a number. */
INLINE Pair tokens_behind(const Item &x, float number, int lane)
{
    const int n = one_behind(x).n;
    return { lane < n ? number : 0.f, lane + 32 < n ? number : 0.f };
}
/* What memory has of a pair: numbers are made of it where they are used, so
 * that nobody waits for it before. */
template<class T> struct Loaded { T a, b; };
template<class T> INLINE Pair pair_of(const Loaded<T> &x)
{
    return { element(&x.a), element(&x.b) };
}
/* What a lane reads of a walk's vector of tokens: rows l and l + 32 of each
 * chunk, or so many tokens behind those. Its place is found once a walk. */
template<class T, bool RANKED = false> struct Along {
    const T *p;
    int len;                            /* of the sequence, from row l on */
    INLINE_MEMBER Along(const Tensor &t, const Item &x, int lane,
                        int behind = 0)
    {
        p = (const T *)t.p + x.where.b * t.sb + head_of(t, x.head) * t.sh
          + (i64)(x.where.start + behind) * t.st + row_place<RANKED>(t, lane);
        len = lane >= CHUNK_ROWS || (RANKED && !is_stored(lane))
            ? 0 : x.where.len - RANKS * behind - lane;
    }
    INLINE_MEMBER const T *chunk(const Tensor &t, int c) const
    {
        return p + (i64)c * (CHUNK * t.st);
    }
    /* From row l to l + 32. */
    INLINE_MEMBER i64 half(const Tensor &t) const
    {
        static_assert(RANKS <= 32, "a token's rows are of one half");
        return 32 / RANKS * t.st;
    }
    INLINE_MEMBER Loaded<T> load(const Tensor &t, int c) const
    {
        const T *from = chunk(t, c);
        const i64 left = len - (i64)CHUNK_ROWS * c;
        Loaded<T> x = {};
        if (left > 0)
            x.a = from[0];
        if (CHUNK_ROWS > 32 && left > 32)
            x.b = from[half(t)];
        return x;
    }
    /* Asks for the same in the cache. */
    INLINE_MEMBER void ask_for(const Tensor &t, int c) const
    {
        const T *from = chunk(t, c);
        const i64 left = len - (i64)CHUNK_ROWS * c;
        if (left > 0)
            ask(from);
        if (CHUNK_ROWS > 32 && left > 32)
            ask(from + half(t));
    }
};
template<class T, bool RANKED = false>
INLINE void output_pair(const Tensor &t, const Item &x, Pair v, int lane)
{
    T *p = (T *)t.p + x.where.b * t.sb + head_of(t, x.head) * t.sh
         + (i64)x.row * t.st;
    if (t.p && lane < x.n && has_place<RANKED>(lane))
        put_element(p + row_place<RANKED>(t, lane), v.a);
    if (t.p && lane + 32 < x.n && has_place<RANKED>(lane))
        put_element(p + row_place<RANKED>(t, lane + 32), v.b);
}
/* A matrix of tokens: where a lane's first number is, columns from `col` on. */
template<class T, bool RANKED>
INLINE T *lane_place(const Tensor &t, const Item &x, int col, const Lane &l)
{
    return (T *)t.p + x.where.b * t.sb + head_of(t, x.head) * t.sh
         + x.row * t.st + row_place<RANKED>(t, l.row)
         + (i64)(col + l.col) * column_step<RANKED>(t);
}
/* From a lane's first row to its second, 8 further on: of tokens, or of ranks;
 * which of them it has there. */
template<bool RANKED> INLINE i64 eight_rows(const Tensor &t)
{
    return RANKS <= 8 ? 8 / RANKS * t.st : RANKED ? 8 * t.sd[0] : 0;
}
struct TwoRows { bool has[2]; };
template<bool RANKED>
INLINE TwoRows rows_there(const Item &x, const Lane &l)
{
    const bool has = has_place<RANKED>(l.row);
    const bool more = RANKS <= 8 ? has : has_place<RANKED>(l.row + 8);
    return { { has && l.row < x.n, more && l.row + 8 < x.n } };
}
/* Two numbers that are read or written as one where columns lie side by side; a
 * lane's two rows are a multiple of 16 bytes apart. */
template<class T> struct alignas(2 * sizeof(T)) Neighbours { T x[2]; };
template<bool RANKED, class T>
INLINE bool is_paired(const Tensor &t, const T *p)
{
    return column_step<RANKED>(t) == 1 && (RANKS == 1 || t.st % 2 == 0)
        && (u64)p % sizeof(Neighbours<T>) == 0;
}
/* A fragment of tokens, and zeros where no tokens are. */
template<class T, bool RANKED = false, int END = 0, int N>
INLINE void load_matrix(float (&y)[N], const Tensor &t, const Item &x, int col,
                        const Lane &l)
{
    const T *p = lane_place<T, RANKED>(t, x, col, l);
    const T *q = p + eight_rows<RANKED>(t);
    const i64 step = column_step<RANKED>(t);
    const TwoRows rows = rows_there<RANKED>(x, l);
    if (is_paired<RANKED>(t, p)) {
        UNROLL for (int e = 0; e < N; e += 2) {
            Neighbours<T> two = { { 0, 0 } };
            const T *at = (e / 2 % 2 ? q : p) + e / 4 * 8;
            const int c = col + l.col + e / 4 * 8;
            if (rows.has[e / 2 % 2] && has_column<END>(c) && has_next<END>(c))
                two = *(const Neighbours<T> *)at;
            else if (END % 2 && rows.has[e / 2 % 2] && has_column<END>(c))
                two.x[0] = *at;
            y[e] = element(two.x);
            y[e + 1] = element(two.x + 1);
        }
        return;
    }
    float far[N];                       /* in memory: a loop is short */
    NO_UNROLL for (int e = 0; e < N; e++)
        far[e] = rows.has[e / 2 % 2] && has_column<END>(col + l.col + e / 4 * 8
                                                    + (END % 2 ? e % 2 : 0))
               ? element((e / 2 % 2 ? q : p) + (e / 4 * 8 + e % 2) * step)
               : 0.f;
    UNROLL for (int e = 0; e < N; e++)
        y[e] = far[e];
}
/* Of a matrix of 16 bits the same in pairs, not yet as numbers: what is asked
 * for early is not waited for. */
template<bool RANKED = false, int END = 0, int N>
INLINE void find_matrix(u32 (&y)[N], const Tensor &t, const Item &x, int col,
                        const Lane &l)
{
    const unsigned short *p = lane_place<unsigned short, RANKED>(t, x, col, l);
    const unsigned short *q = p + eight_rows<RANKED>(t);
    const i64 step = column_step<RANKED>(t);
    const TwoRows rows = rows_there<RANKED>(x, l);
    if (is_paired<RANKED>(t, p)) {
        UNROLL for (int e = 0; e < N; e++) {
            const unsigned short *at = (e % 2 ? q : p) + e / 2 * 8;
            const int c = col + l.col + e / 2 * 8;
            y[e] = !rows.has[e % 2] || !has_column<END>(c) ? 0
                 : has_next<END>(c) ? *(const u32 *)at : *at;
        }
        return;
    }
    u32 far[N];                         /* in memory: a loop is short */
    NO_UNROLL for (int e = 0; e < N; e++) {
        const unsigned short *at = (e % 2 ? q : p) + e / 2 * 8 * step;
        const int c = col + l.col + e / 2 * 8;
        far[e] = !rows.has[e % 2] || !has_column<END>(c) ? 0
               : has_next<END>(c) ? at[0] | (u32)at[step] << 16 : at[0];
    }
    UNROLL for (int e = 0; e < N; e++)
        y[e] = far[e];
}
/* Part `part` of what was found. */
template<class T, int N, int ALL>
INLINE void take_part(T (&y)[N], const T (&all)[ALL], int part)
{
    UNROLL for (int e = 0; e < N; e++) {
        y[e] = all[e];
        UNROLL for (int i = 1; i < ALL / N; i++)
            y[e] = part == i ? all[i * N + e] : y[e];
    }
}
/* Of what kernels keep for one another in float32, COLS numbers a token, `cols`
 * from p on; of AHEAD tokens further on, and zeros at last. */
template<int COLS, int AHEAD, int N, class Cols = EveryColumn>
INLINE void load_kept(float (&y)[N], const float *p, const Item &x,
                      const Lane &l, Cols cols = {})
{
    UNROLL for (int e = 0; e < N; e += 2) {
        const int row = l.row + e / 2 % 2 * 8;
        float2 two = { 0, 0 };
        if (row + AHEAD * RANKS < x.n && is_within(cols, e / 4 * 8 + l.col))
            two = *(const float2 *)(p + (row + AHEAD * RANKS) * COLS
                                    + e / 4 * 8 + l.col);
        y[e] = two.x;
        y[e + 1] = has_next(cols, e / 4 * 8 + l.col) ? two.y : 0.f;
    }
}
/* Two neighbours in a row of a matrix that kernels keep for one another as
 * tiles are; zeros behind the rows that the program has, and for the second
 * where it is not `both`. */
#ifdef ELEMENT_F32
INLINE Two first_of(Two x) { return { x.x, 0.f }; }
#else
INLINE u32 first_of(u32 x) { return x & 0xffff; }
#endif
INLINE Two kept_two(const float *p, int own, int rows, int row, int col,
                    int pitch, bool both = true)
{
    const Two x = own < rows ? *(const Two *)((const Element *)p
                                              + (i64)row * pitch + col)
                             : Two {};
    return both ? x : first_of(x);
}
/* To a result. */
INLINE void put_two(float *p, float x, float y) { *(float2 *)p = { x, y }; }
INLINE void put_two(unsigned short *p, float x, float y)
{
    *(u32 *)p = pack(x, y);
}
template<class T = float, bool RANKED = false, int END = 0, int N>
INLINE void store_matrix(const Tensor &t, const float (&y)[N], const Item &x,
                         int col, const Lane &l)
{
    T *p = lane_place<T, RANKED>(t, x, col, l), *q = p + eight_rows<RANKED>(t);
    const i64 step = column_step<RANKED>(t);
    const TwoRows rows = rows_there<RANKED>(x, l);
    if (!t.p)
        return;
    if (is_paired<RANKED>(t, p)) {
        UNROLL for (int e = 0; e < N; e += 2) {
            const int c = col + l.col + e / 4 * 8;
            if (rows.has[e / 2 % 2] && has_column<END>(c)) {
                T *to = (e / 2 % 2 ? q : p) + e / 4 * 8;
                if (has_next<END>(c))
                    put_two(to, y[e], y[e + 1]);
                else
                    put_element(to, y[e]);
            }
        }
        return;
    }
    float far[N];                       /* in memory: a loop is short */
    UNROLL for (int e = 0; e < N; e++)
        far[e] = y[e];
    NO_UNROLL for (int e = 0; e < N; e++)
        if (rows.has[e / 2 % 2] && has_column<END>(col + l.col + e / 4 * 8
                                               + (END % 2 ? e % 2 : 0)))
            put_element((e / 2 % 2 ? q : p) + (e / 4 * 8 + e % 2) * step,
                        far[e]);
}
/* 64 columns of a result from col on, those before `cols`, by a warp, a row
 * after another. */
template<bool RANKED>
INLINE void store_columns(const Tensor &t, u32 tile, const Item &x, int col,
                          int cols, int lane)
{
    unsigned short *p = (unsigned short *)t.p + x.where.b * t.sb
                      + head_of(t, x.head) * t.sh + x.row * t.st + col;
    for (int at = lane; at < x.n * 8; at += 32) {
        const int row = at / 8, piece = at % 8;
        const uint4 v = load16(tile + row * 128 + ((piece ^ (row & 7)) * 16));
        if (has_place<RANKED>(row) && 8 * piece < cols - col)
            *(uint4 *)(p + row_place<RANKED>(t, row) + 8 * piece) = v;
    }
}
/* The same of a tile that is kept, of rows from `row` on, COLS apart. */
template<int COLS>
INLINE void keep_columns(float *to, u32 tile, int rows, int row, int col,
                         int cols, int lane)
{
    unsigned short *p = (unsigned short *)to + (i64)row * COLS + col;
    for (int at = lane; at < rows * 8; at += 32) {
        const int r = at / 8, piece = at % 8;
        const uint4 v = load16(tile + r * 128 + ((piece ^ (r & 7)) * 16));
        if (8 * piece < cols - col)
            *(uint4 *)(p + r * COLS + 8 * piece) = v;
    }
}
/* 64 columns of a result from col on, of `cols`, of RANKS rows a token. A whole
 * chunk goes by the copy engine, to which ranks that a tensor has not lie
 * behind its end; a last one by a warp, a row after another. */
template<bool RANKED>
INLINE void store_rows(const TensorMap &m, const Tensor &t, u32 tile,
                       const Item &x, int col, int cols, int lane)
{
    if (x.n == 64) {
        if (lane == 0)
            store_ranks(&m, tile, col, x.row, x.head, x.where.b);
        return;
    }
    store_columns<RANKED>(t, tile, x, col, cols, lane);
}
/* To what kernels keep for one another in 16 bits, COLS numbers a token, `cols`
 * from p on; rows behind the end as zeros, as tiles leave them. */
template<int COLS, int N, class Cols = EveryColumn>
INLINE void keep_matrix(Element *p, const float (&y)[N], const Item &x,
                        const Lane &l, Cols cols = {})
{
    UNROLL for (int e = 0; e < N; e += 2) {
        const int row = l.row + e / 2 % 2 * 8;
        if (row < CHUNK_ROWS && is_within(cols, e / 4 * 8 + l.col))
            put_two(p + row * COLS + e / 4 * 8 + l.col, row < x.n ? y[e] : 0.f,
                    row < x.n ? y[e + 1] : 0.f);
    }
}
/* A vector of a head. */
template<class T>
INLINE float vector_at(const Tensor &t, const Item &x, int at)
{
    return element((const T *)t.p + head_of(t, x.head) * t.sh + at * t.sd[0]);
}
/* What kernels keep for one another: a vector of 64 tokens, of which those
 * behind the end may not have been written. */
INLINE Pair found_pair(const float *p, int rows, int lane)
{
    return { lane < rows ? p[lane] : 0.f,
             lane + 32 < rows ? p[lane + 32] : 0.f };
}
INLINE void keep_pair(float *p, Pair x, int lane)
{
    p[lane] = x.a;
    if (CHUNK_ROWS > 32)
        p[lane + 32] = x.b;
}
/* From the last token back, each of which counts once. */
INLINE Pair sum_back(Pair x, int lane, int rows)
{
    const bool other = lane % RANKS != RANKS - 1;
    if (lane >= rows || other)
        x.a = 0;
    if (lane + 32 >= rows || other)
        x.b = 0;
    UNROLL for (int d = 1; d < 32; d *= 2) {
        const float a = __shfl_sync(~0u, x.a, lane + d);
        const float b = __shfl_sync(~0u, x.b, lane + d);
        if (lane + d < 32) {
            x.a += a;
            x.b += b;
        }
    }
    x.a += __shfl_sync(~0u, x.b, 0);
    return x;
}
/* The same as of the last token first. */
INLINE Pair mirrored(Pair x, int lane)
{
    return { __shfl_sync(~0u, x.b, 31 - lane),
             __shfl_sync(~0u, x.a, 31 - lane) };
}
/* scanned from the last token back. */
template<bool MAX>
INLINE Pair scanned_back(Pair a, Pair b, float before, int lane, int rows)
{
    const float one = MAX ? 0.f : 1.f, none = MAX ? bits(0xff800000) : 0.f;
    if (lane >= rows)
        a.a = one, b.a = none;
    if (lane + 32 >= rows)
        a.b = one, b.b = none;
    return mirrored(scanned<MAX>(mirrored(a, lane), mirrored(b, lane), before,
                                 lane, 64), lane);
}
/* Each token's successor, `last` for the chunk's last. */
INLINE Pair delayed_back(Pair x, float last, int lane, int rows)
{
    const float a = __shfl_sync(~0u, x.a, lane + RANKS);
    const float b = __shfl_sync(~0u, x.b, lane + RANKS);
    const float m = __shfl_sync(~0u, x.b, lane % RANKS);
    return { lane < rows && lane >= rows - RANKS ? last
             : lane >= 32 - RANKS ? m : a,
             lane + 32 < rows && lane + 32 >= rows - RANKS ? last : b };
}
INLINE float warp_sum(float x)
{
    UNROLL for (int d = 16; d; d /= 2)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}
INLINE float pair_sum(Pair x, int lane, int rows)
{
    return warp_sum((lane < rows ? x.a : 0.f)
                    + (lane + 32 < rows ? x.b : 0.f));
}

/* ---- sums of a fragment ---- */

/* Its rows', of this warpgroup's columns: to vector number `part`, of SIZE. */
template<int SIZE, int N>
INLINE void put_row_sums(u32 to, int part, const float (&x)[N], const Lane &l)
{
    UNROLL for (int h = 0; h < N; h++) {
        float y = x[h] + __shfl_xor_sync(~0u, x[h], 1);
        y += __shfl_xor_sync(~0u, y, 2);
        const int row = l.row + h / 2 * 64 + h % 2 * 8;
        if (l.lane % 4 == 0 && (SIZE % 64 == 0 || row < SIZE))
            store1(to + 4 * (SIZE * part + row), y);
    }
}
/* Half of the numbers to the lane that differs by one bit, and its other half
 * to those kept: `up` has the second half. */
template<int N>
INLINE void add_halves(float (&y)[(N + 1) / 2], const float (&x)[N], int bit,
                       bool up)
{
    constexpr int HALF = (N + 1) / 2;
    UNROLL for (int i = 0; i < HALF; i++) {
        const float more = HALF + i < N ? x[HALF + i < N ? HALF + i : 0] : 0.f;
        y[i] = (up ? more : x[i]) + __shfl_xor_sync(~0u, up ? x[i] : more, bit);
    }
}
/* Its columns', of this warp's rows: vector number l.warp, of `size`. */
template<int N>
INLINE void put_column_sums(u32 to, int size, int col, const float (&x)[N],
                            const Lane &l)
{
    constexpr int HALF = (N + 1) / 2, FOURTH = (HALF + 1) / 2;
    constexpr int LEFT = (FOURTH + 1) / 2;
    const bool a = l.lane & 4, b = l.lane & 8, c = l.lane & 16;
    float half[HALF], fourth[FOURTH], y[LEFT];
    add_halves(half, x, 4, a);
    add_halves(fourth, half, 8, b);
    add_halves(y, fourth, 16, c);
    UNROLL for (int i = 0; i < LEFT; i++) {
        const int of_fourth = c * LEFT + i, of_half = b * FOURTH + of_fourth;
        const int n = a * HALF + of_half;
        if (of_fourth < FOURTH && of_half < HALF && n < N)
            store1(to + 4 * (size * l.warp + col + n / 2 * 8 + l.col + n % 2),
                   y[i]);
    }
}
INLINE void put_sum(u32 to, int part, float x, const Lane &l)
{
    x = warp_sum(x);
    if (l.lane == 0)
        store1(to + 4 * part, x);
}

/* ---- registers ---- */

/* REGS of a fragment's registers, from `at` on. */
template<int REGS, class T> INLINE T (&registers(T *x, int at))[REGS]
{
    return *(T (*)[REGS])(x + at);
}
