/* carry.cuh -- states at the ends of the segments that sequences are cut in.
 * After dense.cuh; CARRY_ROWS: of states, or more, a multiple of 32.
 *
 * Segments follow one another from the first to the last, or, going back, from
 * the last to the first; the one that all others follow begins as its sequence
 * does, and ends where `own` says. Each other one ends where its own says, plus
 * its transition of where it begins: of an adjoint the transition's transpose.
 */

/* A state by strides of sequence or segment, head, kappa, nu; head h of the
 * call is its h / group. */
struct Edge {
    char *p;
    i64 ss, sh, sr, sc;
    int group, type;
};
/* start, own, m: of segments, in float32; of a diagonal m has its entries, less
 * one, or, its p null, is 1. whole: of the call's sequences; its p may be null.
 * rows, cols: entries of kappa, of nu. */
struct Carry {
    Edge start, own, m, whole;
    i64 nseq;
    int segments, heads, rows, cols, back, pad;
};
enum { CARRY_THREADS = 256, CARRY_COLS = 16 };

INLINE i64 place(const Edge &t, i64 s, int head)
{
    return s * t.ss + head / t.group * t.sh;
}
/* The i-th that follows, from the one on that all others do. */
INLINE i64 segment_at(const Carry &a, i64 n, int i)
{
    return n * a.segments + (a.back ? a.segments - 1 - i : i);
}

INLINE float whole_entry(const Carry &a, i64 n, int head, int r, int c)
{
    return !a.whole.p ? 0.f
         : load(a.whole.p, a.whole.type, place(a.whole, n, head)
                                         + r * a.whole.sr + c * a.whole.sc);
}
/* A block a segment of a head: what it begins from, zero but for the first. */
INLINE void carry_begin(const Carry &a)
{
    const int head = blockIdx.x % a.heads;
    const i64 s = blockIdx.x / a.heads, n = s / a.segments;
    const bool first = s == segment_at(a, n, 0);
    const i64 to = place(a.start, s, head);
    for (int x = threadIdx.x; x < a.rows * a.cols; x += CARRY_THREADS) {
        const int r = x / a.cols, c = x % a.cols;
        store(a.start.p, F32, to + r * a.start.sr + c * a.start.sc,
              first ? whole_entry(a, n, head, r, c) : 0.f);
    }
}
/* The call's state: what the last to follow leaves. A block a head. */
INLINE void carry_end(const Carry &a)
{
    const int head = blockIdx.x % a.heads;
    const i64 n = blockIdx.x / a.heads;
    const i64 from = place(a.own, segment_at(a, n, a.segments - 1), head);
    const i64 to = place(a.whole, n, head);
    for (int x = threadIdx.x; x < a.rows * a.cols; x += CARRY_THREADS) {
        const int r = x / a.cols, c = x % a.cols;
        store(a.whole.p, a.whole.type, to + r * a.whole.sr + c * a.whole.sc,
              load(a.own.p, F32, from + r * a.own.sr + c * a.own.sc));
    }
}
/* What a transition is the end of. A block a row. Of a vector, whose transition
 * is one number, the first entry shows it. */
INLINE void carry_unit(const Carry &a)
{
    for (int x = threadIdx.x; x < a.cols; x += CARRY_THREADS)
        store(a.start.p, F32, blockIdx.x * a.start.sr + x * a.start.sc,
              x == blockIdx.x);
}

/* A block has CARRY_COLS columns of a head's states, a warp four of them, a
 * thread those of rows LANES apart: what it reads of a transition goes into
 * four sums, what it reads of a state into as many as it has rows. Transitions
 * come in strips of STRIP columns k, so many AHEAD of the one that is added, of
 * which one half of the warps has the first half: with pitches of which neither
 * rows nor columns of four meet in one bank. */
enum { TURNS = CARRY_ROWS / LANES,
       HALVES = CARRY_THREADS / LANES * 4 / CARRY_COLS, STRIP = 32,
       PITCH = STRIP + 4, STATE_PITCH = CARRY_COLS + 4, AHEAD = 4 };

/* How a transition lies, and how its strip does in shared memory: element (r,
 * k) at r * row + k * col; `across`: rows are beside one another. */
struct Layout {
    i64 row, col;
    int rows;
    bool across;
};
INLINE Layout layout_of(const Carry &a)
{
    Layout l;
    l.row = a.back ? a.m.sc : a.m.sr;
    l.col = a.back ? a.m.sr : a.m.sc;
    l.rows = a.rows;
    l.across = l.row < l.col;
    return l;
}
/* The strip that is fetched next: of the i-th segment that follows, from column
 * `from` on of its transition m; `next`: from a segment's to that of the one
 * that follows. */
struct Strips {
    const float *m;
    i64 next;
    int i, from;
};
/* Threads side by side have a line's pieces, of which there are so many. */
template<int PIECES>
INLINE void copy_lines(float *to, int pitch, const float *m, i64 stride,
                       int lines, int width)
{
    enum { SIDE_BY_SIDE = CARRY_THREADS / PIECES };
    const int first = threadIdx.x / PIECES, at = threadIdx.x % PIECES * 4;
    if (first < SIDE_BY_SIDE && at < width)
        UNROLL_FOUR for (int y = first; y < lines; y += SIDE_BY_SIDE)
            copy_ahead((Piece *)(to + y * pitch + at),
                       (const Piece *)(m + y * stride + at));
}
INLINE void fetch_strip(const Carry &a, const Layout &l, Strips &s, float *to)
{
    const float *m = s.m + s.from * l.col;
    const int most = l.rows - s.from < STRIP ? l.rows - s.from : STRIP;
    const bool any = s.i + 1 < a.segments;
    s.from += STRIP;
    if (s.from >= l.rows) {
        s.from = 0;
        s.i++;
        s.m += s.next;
    }
    if (!any)
        return;
    if (l.rows % 4) {
        const int width = l.across ? l.rows : most;
        const int lines = l.across ? most : l.rows;
        NO_UNROLL for (int x = threadIdx.x; x < lines * width;
                       x += CARRY_THREADS)
            to[x / width * (l.across ? l.rows : PITCH) + x % width] =
                m[x / width * (l.across ? l.col : l.row) + x % width];
    } else if (l.across)
        copy_lines<CARRY_ROWS / 4>(to, l.rows, m, l.col, most, l.rows);
    else
        copy_lines<STRIP / 4>(to, PITCH, m, l.row, l.rows, most);
}
/* A thread's entries of four columns. */
struct Own { float at[TURNS][4]; };

INLINE int own_row(int j) { return threadIdx.x % LANES + j * LANES; }
INLINE int own_col() { return threadIdx.x / LANES * 4 % CARRY_COLS; }
INLINE int own_half() { return threadIdx.x / LANES * 4 / CARRY_COLS; }

/* Are a row's columns one piece of memory after another? */
INLINE bool in_pieces(const Edge &t, int cols)
{
    return t.sc == 1 && t.sr % 4 == 0 && cols % 4 == 0;
}
INLINE void fetch_own(Own &o, const Carry &a, const float *from, int col)
{
    const bool pieces = in_pieces(a.own, a.cols);
    UNROLL for (int j = 0; j < TURNS; j++) {
        const int r = own_row(j);
        if (pieces && r < a.rows && col < a.cols) {
            const Piece p = *(const Piece *)(from + r * a.own.sr + col);
            UNROLL for (int c = 0; c < 4; c++)
                o.at[j][c] = bits(p.x[c]);
        } else UNROLL for (int c = 0; c < 4; c++)
            o.at[j][c] = r < a.rows && col + c < a.cols
                       ? from[r * a.own.sr + (col + c) * a.own.sc] : 0.f;
    }
}
/* What the first begins from, to the block; col: the block's first. */
INLINE void put_whole(const Carry &a, i64 n, int head, int col, float *state)
{
    NO_UNROLL for (int x = threadIdx.x; x < a.rows * CARRY_COLS;
                   x += CARRY_THREADS) {
        const int r = x / CARRY_COLS, c = x % CARRY_COLS;
        state[r * STATE_PITCH + c] = col + c < a.cols
                                   ? whole_entry(a, n, head, r, col + c) : 0.f;
    }
    __syncthreads();
}
INLINE void add_row(float sum[4], float x, const Piece &state)
{
    UNROLL for (int c = 0; c < 4; c++)
        sum[c] = fmaf(x, bits(state.x[c]), sum[c]);
}
/* Adds four of a strip's columns, from column k on, times the state's rows.
 * Rows that there are none of are the last one again. */
template<bool ACROSS>
INLINE void add_four(Own &sum, const float *strip, int rows, const float *state,
                     int k)
{
    Piece four[4];
    UNROLL for (int i = 0; i < 4; i++)
        four[i] = *(const Piece *)(state + (k + i) * STATE_PITCH);
    UNROLL for (int j = 0; j < TURNS; j++) {
        const int r = own_row(j) < rows ? own_row(j) : rows - 1;
        Piece p;
        if (ACROSS) {
            UNROLL for (int i = 0; i < 4; i++)
                p.x[i] = bits_of(strip[(k + i) * rows + r]);
        } else
            p = *(const Piece *)(strip + r * PITCH + k);
        UNROLL for (int i = 0; i < 4; i++)
            add_row(sum.at[j], bits(p.x[i]), four[i]);
    }
}
/* The same of one column. */
INLINE void add_one(Own &sum, const float *strip, const Layout &l,
                    const float *state, int k)
{
    const Piece four = *(const Piece *)(state + k * STATE_PITCH);
    UNROLL for (int j = 0; j < TURNS; j++) {
        const int r = own_row(j) < l.rows ? own_row(j) : l.rows - 1;
        add_row(sum.at[j], l.across ? strip[k * l.rows + r]
                                    : strip[r * PITCH + k], four);
    }
}
/* Adds half of a strip's columns of the transition times the state's rows. */
INLINE void add_strip(Own &sum, const float *strip, const Layout &l,
                      const float *state, int from)
{
    const int n = l.rows - from < STRIP ? l.rows - from : STRIP;
    const int begin = own_half() * (STRIP / HALVES);
    const int end = n < begin + STRIP / HALVES ? n : begin + STRIP / HALVES;
    int k = begin;
    state += from * STATE_PITCH + own_col();
    if (l.across)
        UNROLL_TWICE for (; k + 4 <= end; k += 4)
            add_four<true>(sum, strip, l.rows, state, k);
    else
        UNROLL_TWICE for (; k + 4 <= end; k += 4)
            add_four<false>(sum, strip, l.rows, state, k);
    NO_UNROLL for (; k < end; k++)
        add_one(sum, strip, l, state, k);
}
/* To the block, of a state that lies at `state`. */
INLINE void tell(const Own &sum, int rows, float *state)
{
    UNROLL for (int j = 0; j < TURNS; j++) {
        Piece p;
        UNROLL for (int c = 0; c < 4; c++)
            p.x[c] = bits_of(sum.at[j][c]);
        if (own_row(j) < rows)
            *(Piece *)(state + own_row(j) * STATE_PITCH + own_col()) = p;
    }
}
/* What lies there of the thread's entries is added. */
INLINE void add_told(Own &sum, int rows, const float *state)
{
    UNROLL for (int j = 0; j < TURNS; j++)
        if (own_row(j) < rows) {
            const Piece p = *(const Piece *)(state + own_row(j) * STATE_PITCH
                                             + own_col());
            UNROLL for (int c = 0; c < 4; c++)
                sum.at[j][c] += bits(p.x[c]);
        }
}
/* What a segment begins from, to memory. */
INLINE void leave(const Own &sum, const Carry &a, float *to, int col)
{
    const bool pieces = in_pieces(a.start, a.cols);
    UNROLL for (int j = 0; j < TURNS; j++) {
        const int r = own_row(j);
        Piece p;
        UNROLL for (int c = 0; c < 4; c++)
            p.x[c] = bits_of(sum.at[j][c]);
        if (pieces && r < a.rows && col < a.cols)
            *(Piece *)(to + r * a.start.sr + col) = p;
        UNROLL for (int c = 0; c < 4; c++)
            if (!pieces && r < a.rows && col + c < a.cols)
                to[r * a.start.sr + (col + c) * a.start.sc] = sum.at[j][c];
    }
}
/* A block has some columns of a head's states, from segment to segment. */
INLINE void carry_on(const Carry &a)
{
    const int blocks = (a.cols + CARRY_COLS - 1) / CARRY_COLS;
    const int block = blockIdx.x % blocks * CARRY_COLS, col = block + own_col();
    const int head = blockIdx.x / blocks % a.heads;
    const i64 n = blockIdx.x / blocks / a.heads;
    const bool first = own_half() == 0;
    const Layout l = layout_of(a);
    const int by = a.back ? -1 : 1;
    const i64 s = segment_at(a, n, 0);
    const float *own = (const float *)a.own.p + place(a.own, s, head);
    float *start = (float *)a.start.p + place(a.start, s, head);
    float *state = (float *)arena, *ring = state + 2 * a.rows * STATE_PITCH;
    Strips strips = { (const float *)a.m.p + place(a.m, s + by, head),
                      by * a.m.ss, 1, 0 };
    int at = 0;
    Own next = { }, sum;
    for (; at < AHEAD - 1; at++) {
        fetch_strip(a, l, strips, ring + at * l.rows * PITCH);
        copy_commit();
    }
    put_whole(a, n, head, block, state);
    if (first)
        add_told(next, a.rows, state);
    NO_UNROLL for (int i = 0; i < a.segments; i++) {
        float *was = state + i % 2 * a.rows * STATE_PITCH;
        float *is = state + (i + 1) % 2 * a.rows * STATE_PITCH;
        sum = next;
        if (first && i + 1 < a.segments)
            fetch_own(next, a, own, col);
        NO_UNROLL for (int k = 0; i > 1 && k < a.rows; k += STRIP, at++) {
            copy_wait<AHEAD - 2>();
            __syncthreads();
            fetch_strip(a, l, strips, ring + at % AHEAD * l.rows * PITCH);
            copy_commit();
            add_strip(sum, ring + (at + 1) % AHEAD * l.rows * PITCH, l, was,
                      k);
        }
        if (i > 1) {
            if (!first)
                tell(sum, a.rows, is);
            __syncthreads();
        }
        if (first) {
            if (i > 1)
                add_told(sum, a.rows, is);
            tell(sum, a.rows, is);
            leave(sum, a, start, col);
        }
        own += by * a.own.ss;
        start += by * a.start.ss;
    }
}

/* ---- of few rows ---- */

/* What a thread has of a transition: two rows of a warp's 16, and of each 16
 * columns four; so many a warp has whole while it adds those before. */
enum { SIXTEENTHS = CARRY_ROWS / 16 };
struct Held { float at[SIXTEENTHS][4][2]; };

INLINE int held_row() { return threadIdx.x / LANES * 16
                             + threadIdx.x % LANES / 4 * 2; }
INLINE int held_col() { return threadIdx.x % 4 * 4; }
/* Where row k of a state lies in shared memory: of each 16 those beside one
 * another that lanes read at once. */
INLINE int slot_of(int k)
{
    return ((k & ~15) | (k & 3) << 2 | (k >> 2 & 3)) * STATE_PITCH;
}
INLINE void fetch_held(Held &h, const Layout &l, const float *m)
{
    const int r = held_row(), col = held_col();
    if (l.across) {
        UNROLL for (int i = 0; i < SIXTEENTHS; i++)
            UNROLL for (int j = 0; j < 4; j++) {
                const float2 p =
                    *(const float2 *)(m + (16 * i + col + j) * l.col + r);
                h.at[i][j][0] = p.x;
                h.at[i][j][1] = p.y;
            }
    } else {
        UNROLL for (int i = 0; i < SIXTEENTHS; i++)
            UNROLL for (int y = 0; y < 2; y++) {
                const Piece p =
                    *(const Piece *)(m + (r + y) * l.row + 16 * i + col);
                UNROLL for (int j = 0; j < 4; j++)
                    h.at[i][j][y] = bits(p.x[j]);
            }
    }
}
/* Of two rows, half of the columns: the other half is the lane's that is so far
 * away. */
template<int COLS> INLINE void add_lanes(float (&sum)[2][16], int away)
{
    const bool upper = threadIdx.x & away;
    UNROLL for (int y = 0; y < 2; y++)
        UNROLL for (int c = 0; c < COLS; c++) {
            const float own = upper ? sum[y][COLS + c] : sum[y][c];
            const float other = upper ? sum[y][c] : sum[y][COLS + c];
            sum[y][c] = own + lane_xor(other, away);
        }
}
/* The transition's rows times the state: of each, the thread's four columns. */
INLINE void times(float (&sum)[2][16], const Held &h, const float *state)
{
    UNROLL for (int y = 0; y < 2; y++)
        UNROLL for (int c = 0; c < 16; c++)
            sum[y][c] = 0.f;
    UNROLL for (int i = 0; i < SIXTEENTHS; i++)
        UNROLL for (int j = 0; j < 4; j++) {
            const float *row = state + slot_of(16 * i + held_col() + j);
            UNROLL for (int c = 0; c < 16; c += 4) {
                const Piece p = *(const Piece *)(row + c);
                UNROLL for (int x = 0; x < 4; x++)
                    UNROLL for (int y = 0; y < 2; y++)
                        sum[y][c + x] = fmaf(h.at[i][j][y], bits(p.x[x]),
                                             sum[y][c + x]);
            }
        }
    add_lanes<8>(sum, 2);
    add_lanes<4>(sum, 1);
}
INLINE void fetch_two(float (&own)[2][4], const Carry &a, const float *from,
                      int col)
{
    const bool pieces = in_pieces(a.own, a.cols);
    UNROLL for (int y = 0; y < 2; y++) {
        const float *row = from + (held_row() + y) * a.own.sr;
        if (pieces && col < a.cols) {
            const Piece p = *(const Piece *)(row + col);
            UNROLL for (int c = 0; c < 4; c++)
                own[y][c] = bits(p.x[c]);
        } else UNROLL for (int c = 0; c < 4; c++)
            own[y][c] = col + c < a.cols ? row[(col + c) * a.own.sc] : 0.f;
    }
}
INLINE void leave_two(const float (&sum)[2][4], const Carry &a, float *to,
                      int col)
{
    const bool pieces = in_pieces(a.start, a.cols);
    UNROLL for (int y = 0; y < 2; y++) {
        float *row = to + (held_row() + y) * a.start.sr;
        Piece p;
        UNROLL for (int c = 0; c < 4; c++)
            p.x[c] = bits_of(sum[y][c]);
        if (pieces && col < a.cols)
            *(Piece *)(row + col) = p;
        UNROLL for (int c = 0; c < 4; c++)
            if (!pieces && col + c < a.cols)
                row[(col + c) * a.start.sc] = sum[y][c];
    }
}
/* The same as carry_on, of CARRY_ROWS rows, at most 16 a warp: a transition is
 * in registers, the next under way, and a state goes round by memory once. */
INLINE void carry_held(const Carry &a)
{
    const int blocks = (a.cols + CARRY_COLS - 1) / CARRY_COLS;
    const int col = blockIdx.x % blocks * CARRY_COLS + held_col();
    const int head = blockIdx.x / blocks % a.heads;
    const i64 n = blockIdx.x / blocks / a.heads;
    const bool any = held_row() < CARRY_ROWS;
    const Layout l = layout_of(a);
    const int by = a.back ? -1 : 1;
    const i64 s = segment_at(a, n, 0);
    const float *own = (const float *)a.own.p + place(a.own, s, head);
    const float *m = (const float *)a.m.p + place(a.m, s + by, head);
    float *start = (float *)a.start.p + place(a.start, s, head);
    float *state = (float *)arena;
    float next[2][4];
    Held held;
    if (any && a.segments > 2)
        fetch_held(held, l, m);
    UNROLL for (int y = 0; y < 2; y++)
        UNROLL for (int c = 0; c < 4; c++)
            next[y][c] = any && col + c < a.cols
                ? whole_entry(a, n, head, held_row() + y, col + c) : 0.f;
    NO_UNROLL for (int i = 0; i < a.segments; i++) {
        const float *was = state + i % 2 * CARRY_ROWS * STATE_PITCH;
        float *is = state + (i + 1) % 2 * CARRY_ROWS * STATE_PITCH;
        float is_own[2][4], sum[2][16];
        UNROLL for (int y = 0; y < 2; y++)
            UNROLL for (int c = 0; c < 4; c++)
                is_own[y][c] = next[y][c];
        if (any && i + 1 < a.segments)
            fetch_two(next, a, own, col);
        if (any && i > 1) {
            const Held now = held;
            m += by * a.m.ss;
            if (i + 1 < a.segments)
                fetch_held(held, l, m);
            times(sum, now, was);
            UNROLL for (int y = 0; y < 2; y++)
                UNROLL for (int c = 0; c < 4; c++)
                    is_own[y][c] += sum[y][c];
        }
        if (any) {
            UNROLL for (int y = 0; y < 2; y++) {
                Piece p;
                UNROLL for (int c = 0; c < 4; c++)
                    p.x[c] = bits_of(is_own[y][c]);
                *(Piece *)(is + slot_of(held_row() + y) + held_col()) = p;
            }
            leave_two(is_own, a, start, col);
        }
        __syncthreads();
        own += by * a.own.ss;
        start += by * a.start.ss;
    }
}

/* ---- where a transition is a diagonal ---- */

INLINE float own_entry(const Carry &a, i64 s, int head, int r, int c)
{
    return *((const float *)a.own.p + place(a.own, s, head) + r * a.own.sr
             + c * a.own.sc);
}
/* It comes less one, and is read of those alone that follow some; or is 1. */
INLINE float moved_entry(const Carry &a, i64 s, int head, int r, int c)
{
    return !a.m.p ? 1.f
         : 1.f + *((const float *)a.m.p + place(a.m, s, head) + r * a.m.sr
                   + c * a.m.sc);
}
/* A block a sequence of a head: its own, where `start` says. */
INLINE void carry_moved(const Carry &a)
{
    const int head = blockIdx.x % a.heads;
    const i64 s = blockIdx.x / a.heads;
    for (int r = threadIdx.x; r < a.rows; r += CARRY_THREADS)
        *((float *)a.start.p + place(a.start, s, head) + r * a.start.sr) =
            moved_entry(a, s, head, r, 0);
}
/* A thread has an entry of a head's states, from segment to segment, of which
 * the numbers of so many are under way at a time. */
template<int SIDE_BY_SIDE> INLINE void carry_rows(const Carry &a)
{
    const int entries = a.rows * a.cols;
    const int blocks = (entries + CARRY_THREADS - 1) / CARRY_THREADS;
    const int x = blockIdx.x % blocks * CARRY_THREADS + threadIdx.x;
    const int head = blockIdx.x / blocks % a.heads;
    const i64 n = blockIdx.x / blocks / a.heads;
    const int r = x / a.cols, c = x % a.cols;
    if (x >= entries)
        return;
    float state = whole_entry(a, n, head, r, c);
    for (int from = 0; from < a.segments; from += SIDE_BY_SIDE) {
        float own[SIDE_BY_SIDE], moved[SIDE_BY_SIDE];
        UNROLL for (int j = 0; j < SIDE_BY_SIDE; j++) {
            const int i = from + j;
            const i64 s = segment_at(a, n, i);
            own[j] = i + 1 < a.segments ? own_entry(a, s, head, r, c) : 0.f;
            moved[j] = i && i + 1 < a.segments
                     ? moved_entry(a, s, head, r, c) : 0.f;
        }
        UNROLL for (int j = 0; j < SIDE_BY_SIDE; j++) {
            if (from + j >= a.segments)
                break;
            *((float *)a.start.p + place(a.start, segment_at(a, n, from + j),
                                         head)
              + r * a.start.sr + c * a.start.sc) = state;
            state = fmaf(moved[j], state, own[j]);
        }
    }
}
