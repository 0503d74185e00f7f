/* tile.cuh -- what kernels stand on whose warps all do the same
 * (print_tokens.c): tensors of any type and strides, values in shared memory or
 * in a block's own part of the workspace. After warp.cuh. The source defines
 * THREADS (a block's) and RANK (axes of a tensor besides batch, token and head)
 * first.
 */
/* ---- what the host passes ---- */

/* A tensor by element strides: batch (or sequence), token, head, its own
 * axes. Null p: absent. Head h of the call is the tensor's h / group. wide:
 * rows are whole and start at multiples of 16 bytes. */
struct Tensor { void *p; i64 sb, st, sh, sd[RANK]; int group, wide; };

/* The tensor's own head. */
INLINE int head_of(const Tensor &t, int head)
{
    return t.group == 1 ? head : head / t.group;
}

/* Where the token's elements begin. */
template<class Q> INLINE i64 at_token(const Tensor &t, const Q &q, i64 token,
                                      int head)
{
    return q.b * t.sb + token * t.st + head_of(t, head) * t.sh;
}
/* ---- numbers ---- */

struct bf16 { u16 bits; };
struct f16 { u16 bits; };

#define TID thread_here()
#define WARP (TID / LANES)
#define LANE (TID % LANES)
#define WARPS (THREADS / LANES)

INLINE float get(float x) { return x; }
INLINE float get(double x) { return (float)x; }
INLINE float get(bf16 x) { return bits((u32)x.bits << 16); }
INLINE float get(f16 x) { return half_to_float(x.bits); }

INLINE void put(float *p, float x) { *p = x; }
INLINE void put(double *p, float x) { *p = x; }
INLINE void put(f16 *p, float x) { p->bits = float_to_half(x); }
INLINE void put(bf16 *p, float x)
{
    float2 y;
    y.x = x;
    y.y = 0;
    p->bits = (u16)pack(y);
}

#include "functions.cuh"

/* The largest of neighbouring lanes' numbers, for all of them. */
template<int N> INLINE float lane_most(float x)
{
    UNROLL
    for (int by = N / 2; by; by /= 2)
        x = max_(x, lane_xor(x, by));
    return x;
}

/* Entry k of a pair-wise operation; a(k) is the operand's, `len` long. */
template<class A> INLINE float rot90(A a, int len, int k)
{
    return k & 1 ? a(k - 1) : k + 1 < len ? -a(k + 1) : 0.f;
}
template<class A> INLINE float dup(A a, int len, int k)
{
    return k / 2 < len ? a(k / 2) : 0.f;
}
template<class A> INLINE float pairsum(A a, int len, int k)
{
    return (2 * k < len ? a(2 * k) : 0.f)
         + (2 * k + 1 < len ? a(2 * k + 1) : 0.f);
}

/* ---- tensors to tiles and back ---- */

template<class T, class G> INLINE void copy1(T *to, const G *from)
{
    put(to, get(*from));
}
template<class T> INLINE void copy1(T *to, const T *from) { *to = *from; }

/* The same; AHEAD: to shared memory, and may go on behind the threads' back. */
template<bool AHEAD, class T, class G> INLINE void copy1_as(T *to,
                                                            const G *from)
{
    copy1(to, from);
}
template<bool AHEAD> INLINE void copy1_as(float *to, const float *from)
{
    if (AHEAD)
        copy_ahead(to, from);
    else
        copy1(to, from);
}

/* f(row, piece) for each of a row's PIECES, shared out among the threads. */
template<int PIECES, class F> INLINE void each_piece(int rows, F f)
{
    if (THREADS % PIECES == 0) {
        const int c = TID % PIECES;
        NO_UNROLL
        for (int r = TID / PIECES; r < rows; r += THREADS / PIECES)
            f(r, c);
        return;
    }
    for (int x = TID; x < rows * PIECES; x += THREADS)
        f(x / PIECES, x % PIECES);
}

/* Element by element, each way: rows and columns lie so far apart. */
template<class T, class G>
CALLED void copy_each(T *to, i64 tr, i64 tc, const G *from, i64 fr, i64 fc,
                      int rows, int len)
{
    int r = TID / len, c = TID % len;
    const int dr = THREADS / len, dc = THREADS % len;
    while (r < rows) {
        copy1(to + r * tr + c * tc, from + r * fr + c * fc);
        r += dr;
        c += dc;
        if (c >= len) {
            c -= len;
            r++;
        }
    }
}

/* `rows` rows of LEN columns; the tile's lie PITCH apart (a single one's less
 * than LEN), the tensor's sr, and its columns sc. AHEAD: in shared memory,
 * where the copies may go on after the call. */
template<int LEN, int PITCH, bool AHEAD, class T, class G>
CALLED void copy_in(T *tile, const G *p, i64 sr, i64 sc, int rows, bool wide)
{
    enum { EACH = 16 / sizeof(G), PIECES = (LEN + EACH - 1) / EACH,
           SAME = sizeof(T) == sizeof(G) && PITCH % EACH == 0, BATCH = 4 };
    if (wide && LEN % EACH == 0 && PITCH >= LEN) {
        const int all = rows * PIECES;
        if (SAME && AHEAD) {
            each_piece<PIECES>(rows, [&](int r, int c) {
                copy_ahead((Piece *)(tile + r * PITCH + c * EACH),
                           (const Piece *)(p + r * sr + c * EACH));
            });
            return;
        }
        for (int x = TID; x < all; x += BATCH * THREADS) {
            Piece in[BATCH];
            UNROLL
            for (int b = 0; b < BATCH; b++) {
                const int y = min(x + b * THREADS, all - 1);
                in[b] = *(const Piece *)(p + y / PIECES * sr
                                         + y % PIECES * EACH);
            }
            UNROLL
            for (int b = 0; b < BATCH; b++) {
                const int y = x + b * THREADS;
                T *to = tile + y / PIECES * PITCH + y % PIECES * EACH;
                if (y >= all)
                    break;
                if (SAME) {
                    *(Piece *)to = in[b];
                    continue;
                }
                UNROLL
                for (int e = 0; e < EACH; e++)
                    copy1(to + e, (const G *)&in[b] + e);
            }
        }
        return;
    }
    if (LEN > 1) {
        copy_each(tile, PITCH, 1, p, sr, sc, rows, LEN);
        return;
    }
    NO_UNROLL
    for (int r = TID; r < rows; r += THREADS)
        copy1(tile + r * PITCH, p + r * sr);
}
/* ---- by one warp: ROWS rows of LEN columns, which lie PITCH apart ---- */

/* AHEAD: in shared memory, where the copies may go on after the call. */
template<int ROWS, int LEN, int PITCH, bool AHEAD, class T, class G>
INLINE void warp_in(T *tile, const G *p, i64 sr, i64 sc, bool wide)
{
    enum { EACH = 16 / sizeof(G), PIECES = LEN / EACH };
    if (AHEAD && sizeof(T) == sizeof(G) && LEN % EACH == 0
        && PITCH % EACH == 0 && wide) {
        for (int x = LANE; x < ROWS * PIECES; x += LANES)
            copy_ahead((Piece *)(tile + x / PIECES * PITCH
                                 + x % PIECES * EACH),
                       (const Piece *)(p + x / PIECES * sr
                                       + x % PIECES * EACH));
        return;
    }
    NO_UNROLL
    for (int x = LANE; x < ROWS * LEN; x += LANES)
        copy1_as<AHEAD>(tile + x / LEN * PITCH + x % LEN,
                        p + x / LEN * sr + x % LEN * sc);
}
/* ---- matrices in registers: four neighbours of some rows ---- */

/* They start at a multiple of their size, or of 16 bytes. */
template<class G> struct alignas(sizeof(G) > 4 ? 16 : 4 * sizeof(G)) Four {
    G x[4];
};
template<class G> INLINE void load_four(float *x, const G *p)
{
    const Four<G> in = *(const Four<G> *)p;
    UNROLL
    for (int e = 0; e < 4; e++)
        x[e] = get(in.x[e]);
}
/* What nobody else looks at for a while. */
template<class G> INLINE void load_once(float *x, const G *p)
{
    load_four(x, p);
}
INLINE void load_once(float *x, const float *p)
{
    const Piece in = load_last((const Piece *)p);
    UNROLL
    for (int e = 0; e < 4; e++)
        x[e] = bits(in.x[e]);
}
template<class G> INLINE void store_four(G *p, const float *x)
{
    Four<G> out;
    UNROLL
    for (int e = 0; e < 4; e++)
        put(&out.x[e], x[e]);
    if (sizeof out == sizeof(Piece))
        store_last((Piece *)p, *(const Piece *)&out);
    else
        *(Four<G> *)p = out;
}
/* Numbers that are loaded at once. */
template<class T, int N> struct alignas(N * sizeof(T)) Several { T x[N]; };
/* As few words as it has. */
template<class G> INLINE void store_words(G *p, const Four<G> &x)
{
    *(Several<u32, sizeof x / 4> *)p = *(const Several<u32, sizeof x / 4> *)&x;
}
/* A thread's, from its first row on, of ROWS; WHOLE: of which no thread has
 * fewer. PITCH: rows are whole, and lie so; 0: they lie anywhere. */
template<int ROWS, bool WHOLE, int PITCH, int N, class G>
INLINE void regtile_in(float (&x)[N], const G *p, int row, int col, i64 sr,
                       i64 sc, bool wide)
{
    const int left = WHOLE ? N : ROWS - row;
    if (!WHOLE)
        UNROLL
        for (int i = 0; i < N; i++)
            x[i] = 0;
    p += row * (PITCH ? PITCH : sr) + col * sc;
    if (PITCH || wide) {
        UNROLL
        for (int i = 0; i < N; i += 4)
            if (i / 4 < left)
                load_once(x + i, p + i / 4 * (PITCH ? PITCH : sr));
    } else {
        UNROLL
        for (int i = 0; i < N; i++)
            if (i / 4 < left)
                x[i] = get(p[i / 4 * sr + i % 4 * sc]);
    }
}
/* A thread's of a row or column, as they lie in memory: two to a register where
 * they are short, which are taken apart where they are used. */
template<class G, int N, int SIZE = sizeof(G)> struct Line { G x[N]; };
template<class G, int N> struct Line<G, N, 2> { u32 x[(N + 1) / 2]; };
template<class G, int N, int SIZE>
INLINE float line_at(const Line<G, N, SIZE> &a, int i) { return get(a.x[i]); }
template<class G, int N>
INLINE float line_at(const Line<G, N, 2> &a, int i)
{
    G g;
    g.bits = (unsigned short)(a.x[i / 2] >> i % 2 * 16);
    return get(g);
}
template<class G, int N, int SIZE>
INLINE void line_put(Line<G, N, SIZE> &a, int i, G g) { a.x[i] = g; }
template<class G, int N>
INLINE void line_put(Line<G, N, 2> &a, int i, G g)
{
    a.x[i / 2] = i % 2 ? (a.x[i / 2] & 0xffff) | (u32)g.bits << 16
                       : (u32)g.bits;
}
/* Numbers that are loaded at once. */
/* From `from` on. */
template<int N, class G>
INLINE void line_in(Line<G, N> &x, const G *p, int from, i64 step, bool wide)
{
    enum { WORDS = 4 * sizeof(G) / 4 };
    p += from * step;
    if (N % 4 == 0 && wide) {
        UNROLL
        for (int i = 0; i < N / 4; i++)
            *((Several<u32, WORDS> *)x.x + i)
                = *((const Several<u32, WORDS> *)p + i);
    } else {
        UNROLL
        for (int i = 0; i < N; i++)
            line_put(x, i, p[i * step]);
    }
}
/* A thread's MINE rows, from `row` on, dealt over the PIECES lanes that have
 * the same: which row is element j; whether there is one. */
template<int PIECES, int MINE, int ROWS> INLINE int dealt_row(int row, int j)
{
    const int i = j * PIECES + LANE % PIECES;
    const int x = row + (i < MINE ? i : MINE - 1);
    return x < ROWS ? x : ROWS - 1;
}
template<int PIECES, int MINE, int ROWS> INLINE bool has_dealt(int row, int j)
{
    const int i = j * PIECES + LANE % PIECES;
    return i < MINE && row + i < ROWS;
}
template<int PIECES, int MINE, int ROWS, int N, class G>
INLINE void dealt_in(G (&x)[N], const G *p, int row, i64 step)
{
    UNROLL
    for (int j = 0; j < N; j++)
        x[j] = p[dealt_row<PIECES, MINE, ROWS>(row, j) * step];
}
/* That of its i-th row; by all lanes. */
template<int PIECES, int N> INLINE float dealt_at(const float (&x)[N], int i)
{
    return lane_of<PIECES>(x[i / PIECES], i % PIECES);
}
template<int ROWS, bool WHOLE, int PITCH, int N, class G>
INLINE void regtile_out(const float (&x)[N], G *p, int row, int col, i64 sr,
                        i64 sc, bool wide)
{
    const int left = WHOLE ? N : ROWS - row;
    p += row * (PITCH ? PITCH : sr) + col * sc;
    if (PITCH || wide) {
        UNROLL
        for (int i = 0; i < N; i += 4)
            if (i / 4 < left)
                store_four(p + i / 4 * (PITCH ? PITCH : sr), x + i);
    } else {
        UNROLL
        for (int i = 0; i < N; i++)
            if (i / 4 < left)
                put(p + i / 4 * sr + i % 4 * sc, x[i]);
    }
}
/* Adds up the lanes that have the same columns, of PIECES; one leaves them. */
template<int PIECES> INLINE void regtile_sum(const float (&x)[4], float *to)
{
    Piece out;
    UNROLL
    for (int e = 0; e < 4; e++) {
        float s = x[e];
        UNROLL
        for (int by = PIECES; by < LANES; by *= 2)
            s += lane_xor(s, by);
        ((float *)&out)[e] = s;
    }
    if (LANE < PIECES)
        *(Piece *)to = out;
}
/* The same of a number each, that of whose rows or columns lanes have alike. */
template<int PIECES, bool DOWN> INLINE void regtile_sum_one(float s, float *to,
                                                            bool leaves)
{
    s = lane_sum<DOWN ? LANES : PIECES>(s);
    if (LANE == 0 && leaves)
        *to = s;
}
template<int PARTS> INLINE float regtile_whole_one(const float *from)
{
    float s = 0;
    UNROLL
    for (int w = 0; w < PARTS; w++)
        s += from[w];
    return s;
}
/* What PARTS of them come to, each of LEN columns. */
template<int PARTS, int LEN> INLINE void regtile_whole(float (&x)[4],
                                                       const float *from)
{
    UNROLL
    for (int e = 0; e < 4; e++)
        x[e] = 0;
    UNROLL
    for (int w = 0; w < PARTS; w++) {
        const Piece part = *(const Piece *)(from + w * LEN);
        UNROLL
        for (int e = 0; e < 4; e++)
            x[e] += bits(part.x[e]);
    }
}
/* The same of rows, from `row` on, whose columns PIECES lanes have; to: what
 * the warp's columns add up to in each row. */
template<int PIECES, int ROWS, bool WHOLE, int N>
INLINE void regtile_sum_across(const float (&x)[N], int row, float *to)
{
    UNROLL
    for (int i = 0; i < N; i++) {
        const float s = lane_sum<PIECES>(x[i]);
        if (LANE % PIECES == 0 && (WHOLE || row + i < ROWS))
            to[row + i] = s;
    }
}
