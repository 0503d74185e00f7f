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
enum { CARRY_THREADS = 128, CARRY_COLS = 8, CARRY_ROWS = 256 };
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

/* Row r of a transition, by columns of a state. */
INLINE void add_row(const float *m, i64 step, int rows, const float *state,
                    float (&sum)[CARRY_COLS])
{
    UNROLL_FOUR for (int k = 0; k < rows; k++) {
        const float x = m[k * step];
        UNROLL for (int c = 0; c < CARRY_COLS; c++)
            sum[c] = fmaf(x, state[k * CARRY_COLS + c], sum[c]);
    }
}
/* Columns from col on of row r as segment i of those that follow one another
 * begins: was is the state as the one before does. */
INLINE void carried(const Carry &a, i64 n, int head, int i, int r, int col,
                    const float *was, float (&sum)[CARRY_COLS])
{
    const i64 before = segment_at(a, n, i - 1);
    const i64 row = a.back ? a.m.sc : a.m.sr, step = a.back ? a.m.sr : a.m.sc;
    const float *own = (const float *)a.own.p + place(a.own, before, head);
    UNROLL for (int c = 0; c < CARRY_COLS; c++)
        sum[c] = col + c >= a.cols ? 0.f
               : i == 0 ? whole_entry(a, n, head, r, col + c)
               : own[r * a.own.sr + (col + c) * a.own.sc];
    if (i > 1)
        add_row((const float *)a.m.p + place(a.m, before, head) + r * row,
                step, a.rows, was, sum);
}
/* A block has some columns of a head's states, from segment to segment. */
INLINE void carry_on(const Carry &a)
{
    float *state = (float *)arena;
    const int blocks = (a.cols + CARRY_COLS - 1) / CARRY_COLS;
    const int col = blockIdx.x % blocks * CARRY_COLS;
    const int head = blockIdx.x / blocks % a.heads;
    const i64 n = blockIdx.x / blocks / a.heads;
    for (int i = 0; i < a.segments; i++) {
        const float *was = state + i % 2 * CARRY_ROWS * CARRY_COLS;
        float *is = state + (i + 1) % 2 * CARRY_ROWS * CARRY_COLS;
        float *to = (float *)a.start.p
                  + place(a.start, segment_at(a, n, i), head);
        for (int r = threadIdx.x; r < a.rows; r += CARRY_THREADS) {
            float sum[CARRY_COLS];
            carried(a, n, head, i, r, col, was, sum);
            UNROLL for (int c = 0; c < CARRY_COLS; c++) {
                is[r * CARRY_COLS + c] = sum[c];
                if (col + c < a.cols)
                    to[r * a.start.sr + (col + c) * a.start.sc] = sum[c];
            }
        }
        __syncthreads();
    }
}
