/* carry.cuh -- states at the ends of the segments that sequences are cut in.
 * After dense.cuh.
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
/* start, own, m: of segments, in float32. whole: of the call's sequences; its p
 * may be null. rows, cols: entries of kappa, of nu. */
struct Carry {
    Edge start, own, m, whole;
    i64 nseq;
    int segments, heads, rows, cols, back, pad;
};
enum { CARRY_THREADS = 128, CARRY_COLS = 8, CARRY_ROWS = 256,
       CARRY_TILE = 4096 };
extern __shared__ char arena[];

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
/* What a transition is the end of. A block a row. */
INLINE void carry_unit(const Carry &a)
{
    for (int x = threadIdx.x; x < a.rows; x += CARRY_THREADS)
        store(a.start.p, F32, blockIdx.x * a.start.sr + x * a.start.sc,
              x == blockIdx.x);
}

/* Columns k of a transition, so many as CARRY_TILE holds of all rows, on their
 * way from memory: each thread has some, as they lie beside one another. */
struct Strip {
    float own[CARRY_TILE / CARRY_THREADS];
};
/* How a transition lies, and how its strip does in shared memory: element (r,
 * k) at r * row + k * col; `across`: rows are beside one another. */
struct Layout {
    i64 row, col;
    int rows, width, shift, strip_row, strip_col;
    bool across;
};
INLINE Layout layout_of(const Carry &a)
{
    Layout l;
    l.row = a.back ? a.m.sc : a.m.sr;
    l.col = a.back ? a.m.sr : a.m.sc;
    l.rows = a.rows;
    l.across = l.row < l.col;
    l.shift = a.rows > CARRY_THREADS ? 4 : 5;
    l.width = 1 << l.shift;
    l.strip_row = l.across ? 1 : l.width + 1;
    l.strip_col = l.across ? a.rows : 1;
    return l;
}
/* The thread's i-th element of a strip. */
INLINE int row_of(const Layout &l, int i)
{
    return l.across ? threadIdx.x + (i >> l.shift) * CARRY_THREADS
                    : (threadIdx.x >> l.shift) + i * (CARRY_THREADS >> l.shift);
}
INLINE int col_of(const Layout &l, int i)
{
    return (l.across ? i : threadIdx.x) & (l.width - 1);
}
INLINE void fetch(Strip &s, const float *m, const Layout &l, int from)
{
    UNROLL for (int i = 0; i < CARRY_TILE / CARRY_THREADS; i++) {
        const int r = row_of(l, i), k = from + col_of(l, i);
        s.own[i] = r < l.rows && k < l.rows ? m[r * l.row + k * l.col] : 0.f;
    }
}
INLINE void put(const Strip &s, float *to, const Layout &l)
{
    UNROLL for (int i = 0; i < CARRY_TILE / CARRY_THREADS; i++) {
        const int r = row_of(l, i);
        if (r < l.rows)
            to[r * l.strip_row + col_of(l, i) * l.strip_col] = s.own[i];
    }
}
/* Some columns of a segment's own end, by the thread's rows. */
struct Own {
    float at[CARRY_ROWS / CARRY_THREADS][CARRY_COLS];
};
INLINE void fetch_own(Own &o, const Carry &a, i64 s, int head, int col)
{
    const float *from = (const float *)a.own.p + place(a.own, s, head);
    UNROLL for (int j = 0; j < CARRY_ROWS / CARRY_THREADS; j++) {
        const int r = threadIdx.x + j * CARRY_THREADS;
        UNROLL for (int c = 0; c < CARRY_COLS; c++)
            o.at[j][c] = r < a.rows && col + c < a.cols
                       ? from[r * a.own.sr + (col + c) * a.own.sc] : 0.f;
    }
}
/* What the first begins from. */
INLINE void fetch_whole(Own &o, const Carry &a, i64 n, int head, int col)
{
    UNROLL for (int j = 0; j < CARRY_ROWS / CARRY_THREADS; j++) {
        const int r = threadIdx.x + j * CARRY_THREADS;
        UNROLL for (int c = 0; c < CARRY_COLS; c++)
            o.at[j][c] = r < a.rows && col + c < a.cols
                       ? whole_entry(a, n, head, r, col + c) : 0.f;
    }
}
INLINE const float *transition(const Carry &a, i64 n, int head, int i)
{
    return (const float *)a.m.p + place(a.m, segment_at(a, n, i), head);
}
/* Adds a strip's columns of the transition times the state's rows. */
INLINE void add_strip(Own &sum, const float *strip, const Layout &l,
                      const float *state, int from)
{
    const int n = l.rows - from < l.width ? l.rows - from : l.width;
    UNROLL for (int j = 0; j < CARRY_ROWS / CARRY_THREADS; j++) {
        const int r = threadIdx.x + j * CARRY_THREADS;
        if (r >= l.rows)
            continue;
        UNROLL_FOUR for (int k = 0; k < n; k++) {
            const float x = strip[r * l.strip_row + k * l.strip_col];
            UNROLL for (int c = 0; c < CARRY_COLS; c++)
                sum.at[j][c] = fmaf(x, state[(from + k) * CARRY_COLS + c],
                                    sum.at[j][c]);
        }
    }
}
/* What a segment begins from: to memory, and for the one that follows. */
INLINE void leave(const Own &sum, const Carry &a, i64 s, int head, int col,
                  float *state)
{
    float *to = (float *)a.start.p + place(a.start, s, head);
    UNROLL for (int j = 0; j < CARRY_ROWS / CARRY_THREADS; j++) {
        const int r = threadIdx.x + j * CARRY_THREADS;
        UNROLL for (int c = 0; c < CARRY_COLS; c++) {
            if (r < a.rows)
                state[r * CARRY_COLS + c] = sum.at[j][c];
            if (r < a.rows && col + c < a.cols)
                to[r * a.start.sr + (col + c) * a.start.sc] = sum.at[j][c];
        }
    }
}
/* A block has some columns of a head's states, from segment to segment; what
 * the next strip takes is on its way while one is added. */
INLINE void carry_on(const Carry &a)
{
    float *state = (float *)arena, *strip = state + 2 * CARRY_ROWS * CARRY_COLS;
    const int blocks = (a.cols + CARRY_COLS - 1) / CARRY_COLS;
    const int col = blockIdx.x % blocks * CARRY_COLS;
    const int head = blockIdx.x / blocks % a.heads;
    const i64 n = blockIdx.x / blocks / a.heads;
    const Layout l = layout_of(a);
    Own next, sum;
    Strip ahead;
    fetch_whole(next, a, n, head, col);
    for (int i = 0; i < a.segments; i++) {
        const i64 s = segment_at(a, n, i);
        const float *m = i > 1 ? transition(a, n, head, i - 1) : NULL;
        const float *follows = i > 0 && i + 1 < a.segments
                             ? transition(a, n, head, i) : NULL;
        float *was = state + i % 2 * CARRY_ROWS * CARRY_COLS;
        float *is = state + (i + 1) % 2 * CARRY_ROWS * CARRY_COLS;
        sum = next;
        if (i + 1 < a.segments)
            fetch_own(next, a, s, head, col);
        for (int k = 0; m && k < a.rows; k += l.width) {
            __syncthreads();
            put(ahead, strip, l);
            __syncthreads();
            if (k + l.width < a.rows)
                fetch(ahead, m, l, k + l.width);
            else if (follows)
                fetch(ahead, follows, l, 0);
            add_strip(sum, strip, l, was, k);
        }
        if (!m && follows)
            fetch(ahead, follows, l, 0);
        leave(sum, a, s, head, col, is);
    }
}
