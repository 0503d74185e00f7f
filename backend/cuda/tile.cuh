/* tile.cuh -- what the kernels of any plan stand on (tile_emit.c): tensors of
 * any type and strides, tiles in shared memory or in a block's own part of
 * the workspace. After warp.cuh. The source defines THREADS (a block's)
 * and RANK (axes of a tensor besides batch, token and head) first.
 */
/* ---- what the host passes ---- */

/* A tensor by element strides: batch (or sequence), token, head, its own
 * axes. Null p: absent. Head h of the call is the tensor's h / group. wide:
 * rows are whole and start at multiples of 16 bytes. */
struct Tensor { void *p; i64 sb, st, sh, sd[RANK]; int group, wide; };

/* The same for an item in hand: what of its sequence and head begins at `own`.
 */
struct Placed { void *p; i64 own, st, sh, sd[RANK]; int group, wide; };

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
template<class Q, class H> INLINE i64 at_token(const Placed &t, const Q &,
                                               i64 token, const H &)
{
    return t.own + token * t.st;
}

/* What a block knows of the item in hand, where it lies in shared memory.
 * last: chunks, of which m are done by all parts; or the chunk in hand. */
struct Item {
    i64 item, s, slot, start, len, last, m;
    int b, head, block, pad;
};

/* A number of it, read each time it is used. */
template<class T> struct Reloaded {
    const volatile T *p;
    INLINE_MEMBER operator T() const { return *p; }
};
struct ReloadedSequence { Reloaded<int> b; Reloaded<i64> start, len; };

/* The block's own part of the workspace. */
INLINE char *spill_of(const Run &run, i64 bytes)
{
    return global(run.spill) + fresh(blockIdx.x) * bytes;
}

/* Products take tiles whole: what a chunk has no tokens for begins as zeros. */
INLINE void clear(char *p, int bytes)
{
    const Piece zero = { { 0, 0, 0, 0 } };
    NO_UNROLL
    for (int at = thread_here() * (int)sizeof zero; at < bytes;
         at += THREADS * (int)sizeof zero)
        *(Piece *)(p + at) = zero;
}

/* What f makes, each time it is used. */
template<class T, class F> struct Lazy {
    F f;
    INLINE_MEMBER operator T() const { return f(); }
};
template<class T, class F> INLINE Lazy<T, F> lazy(F f)
{
    const Lazy<T, F> m = { f };
    return m;
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

/* ---- neighbours ---- */

/* What two neighbours are, computed side by side. */
struct Pair {
    float x, y;
    INLINE_MEMBER Pair(float a) : x(a), y(a) {}
    INLINE_MEMBER Pair(float a, float b) : x(a), y(b) {}
};
INLINE Pair operator+(Pair a, Pair b) { return Pair(a.x + b.x, a.y + b.y); }
INLINE Pair operator-(Pair a, Pair b) { return Pair(a.x - b.x, a.y - b.y); }
INLINE Pair operator*(Pair a, Pair b) { return Pair(a.x * b.x, a.y * b.y); }
INLINE Pair operator-(Pair a) { return Pair(-a.x, -a.y); }

INLINE Pair two_of(const float *p)
{
    const float2 x = *(const float2 *)p;
    return Pair(x.x, x.y);
}
INLINE Pair two_of(const bf16 *p)
{
    const u32 x = *(const u32 *)p;
    return Pair(bits(x << 16), bits(x & 0xffff0000));
}
template<class T> INLINE Pair two_of(const T *p)
{
    return Pair(get(p[0]), get(p[1]));
}
INLINE void put_two(float *p, Pair x)
{
    float2 y;
    y.x = x.x;
    y.y = x.y;
    *(float2 *)p = y;
}
INLINE void put_two(bf16 *p, Pair x)
{
    float2 y;
    y.x = x.x;
    y.y = x.y;
    *(u32 *)p = pack(y);
}
template<class T> INLINE void put_two(T *p, Pair x)
{
    put(p, x.x);
    put(p + 1, x.y);
}

/* STEP apart; AS_ONE: the first starts at a multiple of two. */
template<int STEP, bool AS_ONE, class T> INLINE Pair pair_at(const T *p)
{
    return STEP == 1 && AS_ONE ? two_of(p) : Pair(get(p[0]), get(p[STEP]));
}
template<int STEP, bool AS_ONE, class T> INLINE void put_pair(T *p, Pair x)
{
    if (STEP == 1 && AS_ONE) {
        put_two(p, x);
    } else {
        put(p, x.x);
        put(p + STEP, x.y);
    }
}

/* ---- tensors to tiles and back ---- */

/* What the kernel was passed, for its parts: to shared memory. */
template<class T> INLINE void copy_args(char *to, const T &from)
{
    for (int e = TID; e < (int)(sizeof(T) / sizeof(u32)); e += THREADS)
        ((u32 *)to)[e] = ((const u32 *)&from)[e];
}

/* The copy's tensors, for an item's batch entry and head. */
template<class P, class T> INLINE void place(P &to, const T &from, int b,
                                             int head)
{
    const int n = sizeof from.t / sizeof *from.t;
    for (int e = TID; e < n; e += THREADS)
        to.t[e].own = b * from.t[e].sb
                    + head_of(from.t[e], head) * from.t[e].sh;
}

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

/* A tile's rows of LEN columns as bf16. */
template<int LEN, int FROM, int TO>
CALLED void narrow(bf16 *to, const float *from, int rows)
{
    each_piece<LEN / 4>(rows, [&](int r, int c) {
        const Piece in = *(const Piece *)(from + r * FROM + 4 * c);
        u32 *p = (u32 *)(to + r * TO + 4 * c);
        UNROLL
        for (int h = 0; h < 2; h++) {
            float2 y;
            y.x = bits(in.x[2 * h]);
            y.y = bits(in.x[2 * h + 1]);
            p[h] = pack(y);
        }
    });
}

/* N neighbours, which start at a multiple of 16 bytes where WHOLE. */
template<int N, bool WHOLE, class T, class G>
INLINE void copy_some(G *to, const T *from)
{
    enum { EACH = 16 / sizeof(T) };
    if (!WHOLE || N % EACH) {
        UNROLL
        for (int e = 0; e < N; e++)
            copy1(to + e, from + e);
        return;
    }
    UNROLL
    for (int p = 0; p < N / EACH; p++) {
        const Piece in = ((const Piece *)from)[p];
        UNROLL
        for (int e = 0; e < EACH; e++)
            copy1(to + p * EACH + e, (const T *)&in + e);
    }
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
/* Pieces of 16 bytes of the tile or the tensor, whichever is the wider. */
template<class T, int N> struct alignas(N * sizeof(T)) Several { T x[N]; };
template<int LEN, int PITCH, class T, class G>
CALLED void copy_out(const T *tile, G *p, i64 sr, i64 sc, int rows, bool wide)
{
    enum { SIZE = sizeof(T) > sizeof(G) ? sizeof(T) : sizeof(G),
           EACH = 16 / SIZE, PIECES = (LEN + EACH - 1) / EACH };
    if (wide && LEN % EACH == 0 && PITCH >= LEN) {
        each_piece<PIECES>(rows, [&](int r, int c) {
            Several<G, EACH> out;
            copy_some<EACH, PITCH * sizeof(T) % 16 == 0>(out.x,
                tile + r * PITCH + c * EACH);
            *(Several<G, EACH> *)(p + r * sr + c * EACH) = out;
        });
        return;
    }
    if (LEN > 1) {
        copy_each(p, sr, sc, tile, PITCH, 1, rows, LEN);
        return;
    }
    NO_UNROLL
    for (int r = TID; r < rows; r += THREADS)
        copy1(p + r * sr, tile + r * PITCH);
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
template<int ROWS, int LEN, int PITCH, class T, class G>
INLINE void warp_out(const T *tile, G *p, i64 sr, i64 sc, bool wide)
{
    enum { SIZE = sizeof(T) > sizeof(G) ? sizeof(T) : sizeof(G),
           EACH = 16 / SIZE, PIECES = LEN / EACH };
    if (LEN % EACH == 0 && PITCH * sizeof(T) % 16 == 0 && wide) {
        for (int x = LANE; x < ROWS * PIECES; x += LANES) {
            Several<G, EACH> out;
            copy_some<EACH, true>(out.x, tile + x / PIECES * PITCH
                                         + x % PIECES * EACH);
            *(Several<G, EACH> *)(p + x / PIECES * sr + x % PIECES * EACH)
                = out;
        }
        return;
    }
    NO_UNROLL
    for (int x = LANE; x < ROWS * LEN; x += LANES)
        copy1(p + x / LEN * sr + x % LEN * sc,
              tile + x / LEN * PITCH + x % LEN);
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
/* Terms of a sum: four products, or numbers, that start so; `left`: of so
 * many. */
template<class A, class B>
INLINE float dot_four(const A *a, const B *b, int left = 4)
{
    float x[4], y[4], s = 0;
    load_four(x, a);
    load_four(y, b);
    UNROLL
    for (int e = 0; e < 4; e++)
        s += e < left ? x[e] * y[e] : 0.f;
    return s;
}
template<class A> INLINE float sum_four(const A *a, int left = 4)
{
    float x[4], s = 0;
    load_four(x, a);
    UNROLL
    for (int e = 0; e < 4; e++)
        s += e < left ? x[e] : 0.f;
    return s;
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
/* From `from` on, of SIZE. */
template<int SIZE, bool WHOLE, int N, class G>
INLINE void line_in(Line<G, N> &x, const G *p, int from, i64 step, bool wide)
{
    enum { WORDS = 4 * sizeof(G) / 4 };
    const int left = WHOLE ? N : SIZE - from;
    p += from * step;
    if (WHOLE && N % 4 == 0 && wide) {
        UNROLL
        for (int i = 0; i < N / 4; i++)
            *((Several<u32, WORDS> *)x.x + i)
                = *((const Several<u32, WORDS> *)p + i);
    } else {
        UNROLL
        for (int i = 0; i < N; i++)
            if (i < left)
                line_put(x, i, p[i * step]);
    }
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
