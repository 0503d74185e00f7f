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
enum { CARRY_THREADS = 256, CARRY_COLS = 16, CARRY_ROWS = 256 };

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

/* A block has CARRY_COLS columns of a head's states, a warp TILE rows of them,
 * or every 8 TILEth: what tensor cores leave, by twos of a row, in TF32 with
 * what that loses. Transitions come in strips of STRIP columns k, so many AHEAD
 * of the one that is added. Pitches are such that no two lanes meet in a bank.
 */
enum { TILE = 16, WARPS = CARRY_THREADS / 32, TWOS = CARRY_COLS / 8,
       TURNS = CARRY_ROWS / (WARPS * TILE), STRIP = 32, PITCH = STRIP + 4,
       ACROSS = 8, STATE_PITCH = CARRY_COLS + 8, AHEAD = 4,
       ROW_SHIFT = 6, STRIP_SHIFT = 3 };  /* pieces of a line, as powers of 2 */

/* How a transition lies, and how its strip does in shared memory: element (r,
 * k) at r * row + k * col, or r * strip_row + k * strip_col; `across`: rows are
 * beside one another. slot: floats of a strip. */
struct Layout {
    i64 row, col;
    int strip_row, strip_col, rows, strips, slot;
    bool across;
};
INLINE Layout layout_of(const Carry &a)
{
    Layout l;
    l.row = a.back ? a.m.sc : a.m.sr;
    l.col = a.back ? a.m.sr : a.m.sc;
    l.rows = a.rows;
    l.strips = (a.rows + STRIP - 1) / STRIP;
    l.slot = max(a.rows * PITCH, STRIP * (a.rows + ACROSS));
    l.across = l.row < l.col;
    l.strip_row = l.across ? 1 : PITCH;
    l.strip_col = l.across ? a.rows + ACROSS : 1;
    return l;
}
/* Strips of all transitions are counted as they are added: of the second that
 * follows, and so on. */
INLINE void fetch_strip(const Carry &a, const Layout &l, i64 n, int head,
                        int at, float *ring)
{
    const int i = at / l.strips + 1, from = at % l.strips * STRIP;
    if (i + 1 >= a.segments)
        return;
    const float *m = (const float *)a.m.p
                   + place(a.m, segment_at(a, n, i), head);
    const int most = l.rows - from < STRIP ? l.rows - from : STRIP;
    float *to = ring + at % AHEAD * l.slot;
    const int pitch = l.across ? l.strip_col : l.strip_row;
    const i64 stride = l.across ? l.col : l.row;
    const int width = l.across ? l.rows : most;
    const int lines = l.across ? most : l.rows;
    m += from * l.col;
    if (l.rows % 4) {
        for (int x = threadIdx.x; x < lines * width; x += CARRY_THREADS)
            to[x / width * pitch + x % width] =
                m[x / width * stride + x % width];
        return;
    }
    /* threads side by side have a line's pieces */
    const int shift = l.across ? ROW_SHIFT : STRIP_SHIFT;
    const int at_piece = (threadIdx.x & ((1 << shift) - 1)) * 4;
    if (at_piece < width)
        UNROLL_FOUR for (int y = threadIdx.x >> shift; y < lines;
                         y += CARRY_THREADS >> shift)
            copy_ahead((Piece *)(to + y * pitch + at_piece),
                       (const Piece *)(m + y * stride + at_piece));
}
/* A thread's entries of some columns: two of a row, two of the eighth behind
 * it, and so for each eight columns. */
struct Own { float at[TURNS][TWOS][4]; };

INLINE int tile_row(int j) { return (threadIdx.x / 32 + j * WARPS) * TILE; }
INLINE int lane_row() { return threadIdx.x % 32 / 4; }
INLINE int own_row(int j, int half)
{
    return tile_row(j) + lane_row() + 8 * half;
}
INLINE int own_col(int h) { return h * 8 + threadIdx.x % 4 * 2; }

/* Are a row's columns one piece of memory after another? */
INLINE bool in_twos(const Edge &t, int cols)
{
    return t.sc == 1 && t.sr % 4 == 0 && cols % 8 == 0;
}
INLINE void fetch_own(Own &o, const Carry &a, i64 s, int head, int col)
{
    const float *from = (const float *)a.own.p + place(a.own, s, head);
    const bool twos = in_twos(a.own, a.cols);
    UNROLL for (int j = 0; j < TURNS; j++)
    UNROLL for (int h = 0; h < TWOS; h++)
    UNROLL for (int half = 0; half < 2; half++) {
        const int r = own_row(j, half), c = col + own_col(h);
        float *to = o.at[j][h] + 2 * half;
        if (twos && r < a.rows && c < a.cols) {
            const float2 x = *(const float2 *)(from + r * a.own.sr + c);
            to[0] = x.x;
            to[1] = x.y;
        } else UNROLL for (int e = 0; e < 2; e++) {
            to[e] = r < a.rows && c + e < a.cols
                  ? from[r * a.own.sr + (c + e) * a.own.sc] : 0.f;
        }
    }
}
/* What the first begins from. */
INLINE void fetch_whole(Own &o, const Carry &a, i64 n, int head, int col)
{
    UNROLL for (int j = 0; j < TURNS; j++)
    UNROLL for (int h = 0; h < TWOS; h++)
    UNROLL for (int e = 0; e < 4; e++) {
        const int r = own_row(j, e / 2), c = col + own_col(h) + e % 2;
        o.at[j][h][e] = r < a.rows && c < a.cols
                      ? whole_entry(a, n, head, r, c) : 0.f;
    }
}
/* x, and what TF32 loses of it; nothing of an infinity. */
struct Factor { u32 big, small; };
INLINE Factor factor_of(float x)
{
    const u32 big = to_tf32(x);
    const float rest = x - bits(big);
    return { big, to_tf32(rest == rest ? rest : 0.f) };
}
/* Element (r, k) of a strip of n columns. */
INLINE float strip_at(const Layout &l, const float *strip, int n, int r, int k)
{
    return r < l.rows && k < n ? strip[r * l.strip_row + k * l.strip_col] : 0.f;
}
/* Adds eight columns of the transition, from k on, times the state's rows. */
INLINE void add_eight(float (&sum)[TWOS][4], const Layout &l,
                      const float *strip, int n, const float *state, int row,
                      int k)
{
    const int lane = lane_row(), t = k + threadIdx.x % 4;
    u32 big[4], small[4];
    UNROLL for (int e = 0; e < 4; e++) {
        const Factor f = factor_of(strip_at(l, strip, n, row + lane + e % 2 * 8,
                                            t + e / 2 * 4));
        big[e] = f.big;
        small[e] = f.small;
    }
    UNROLL for (int h = 0; h < TWOS; h++) {
        const float *at = state + t * STATE_PITCH + h * 8 + lane;
        const Factor x = factor_of(t < n ? at[0] : 0.f);
        const Factor y = factor_of(t + 4 < n ? at[4 * STATE_PITCH] : 0.f);
        mma_tf32(sum[h], small, x.big, y.big);
        mma_tf32(sum[h], big, x.small, y.small);
        mma_tf32(sum[h], big, x.big, y.big);
    }
}
/* Adds a strip's columns of the transition times the state's rows. */
INLINE void add_strip(Own &sum, const float *strip, const Layout &l,
                      const float *state, int from)
{
    const int n = l.rows - from < STRIP ? l.rows - from : STRIP;
    UNROLL for (int j = 0; j < TURNS; j++) {
        const int row = tile_row(j);
        if (row >= l.rows)
            break;
        UNROLL_TWICE for (int k = 0; k < n; k += 8)
            add_eight(sum.at[j], l, strip, n, state + from * STATE_PITCH, row,
                      k);
    }
}
/* What a segment begins from: to memory, and for the one that follows. */
INLINE void leave(const Own &sum, const Carry &a, i64 s, int head, int col,
                  float *state)
{
    float *to = (float *)a.start.p + place(a.start, s, head);
    const bool twos = in_twos(a.start, a.cols);
    UNROLL for (int j = 0; j < TURNS; j++)
    UNROLL for (int h = 0; h < TWOS; h++)
    UNROLL for (int half = 0; half < 2; half++) {
        const int r = own_row(j, half), c = col + own_col(h);
        const float *x = sum.at[j][h] + 2 * half;
        if (r >= a.rows)
            continue;
        *(float2 *)(state + r * STATE_PITCH + own_col(h)) = { x[0], x[1] };
        if (twos && c < a.cols)
            *(float2 *)(to + r * a.start.sr + c) = { x[0], x[1] };
        UNROLL for (int e = 0; e < 2; e++)
            if (!twos && c + e < a.cols)
                to[r * a.start.sr + (c + e) * a.start.sc] = x[e];
    }
}
/* A block has some columns of a head's states, from segment to segment. */
INLINE void carry_on(const Carry &a)
{
    const int blocks = (a.cols + CARRY_COLS - 1) / CARRY_COLS;
    const int col = blockIdx.x % blocks * CARRY_COLS;
    const int head = blockIdx.x / blocks % a.heads;
    const i64 n = blockIdx.x / blocks / a.heads;
    const Layout l = layout_of(a);
    float *state = (float *)arena, *ring = state + 2 * a.rows * STATE_PITCH;
    int at = 0;
    Own next, sum;
    for (; at < AHEAD - 1; at++) {
        fetch_strip(a, l, n, head, at, ring);
        copy_commit();
    }
    fetch_whole(next, a, n, head, col);
    for (int i = 0; i < a.segments; i++) {
        const i64 s = segment_at(a, n, i);
        float *was = state + i % 2 * a.rows * STATE_PITCH;
        float *is = state + (i + 1) % 2 * a.rows * STATE_PITCH;
        sum = next;
        if (i + 1 < a.segments)
            fetch_own(next, a, s, head, col);
        for (int k = 0; i > 1 && k < a.rows; k += STRIP, at++) {
            copy_wait<AHEAD - 2>();
            __syncthreads();
            fetch_strip(a, l, n, head, at, ring);
            copy_commit();
            add_strip(sum, ring + (at + 1) % AHEAD * l.slot, l, was, k);
        }
        leave(sum, a, s, head, col, is);
    }
}
