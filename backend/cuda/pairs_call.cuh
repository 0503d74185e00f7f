/* pairs_call.cuh -- what kernels of all pairs of tokens are passed, and what a
 * pair is worth. The source says that of each piece of the plane of i and j,
 * and begins with the sizes (pairs_emit.c). After numbers.cuh.
 */

/* A tensor by element strides; head h of the call is its h / group. */
struct Place { char *p; i64 sb, st, sh; int group, type; };
/* Where a leaf's numbers come from, and its gradient goes to: float32, as wide
 * as the call. se: entries apart. */
struct LeafPlace {
    const char *p;
    i64 sb, st, sh, se;
    int group, type, back, sum;
};

/* cu: ends of packed sequences, or null: `nseq` batch entries of `tokens`.
 * rows: tokens of all batch entries. leaf: a plane of heads * rows for each
 * leaf of queries, then of keys, or for each entry of one that has them;
 * `plane` numbers each. number: those of a head.
 * again: y for the way back, or null. part: what parts of the rows add to the
 * gradients of a sequence's first keys; blocks: of tiles of keys, behind which
 * are those of other parts. Of a way back that writes the scores, and what the
 * gradients of weights are: rows of `wide` numbers, of `turn` heads from `head`
 * on. */
struct Pairs {
    const i64 *cu;
    i64 nseq, tokens, rows, plane;
    int heads, pad;
    Place q, k, v, y, again, dy, dq, dk, dv;
    double *leaf, *number;
    float *lse, *delta, *dleaf, *part;
    i64 blocks;
    float *scores, *gains;
    i64 wide;
    int head, turn;
};

/* ---- which pairs there are ---- */

enum { MIXED = -1, NONE = -2 };
/* Bounds of i, j and i - j, of a piece that is not left out. */
template<int P> struct Region;

template<int P> INLINE bool has(int i, int j)
{
    using R = Region<P>;
    return (R::I0 <= 0 || i >= R::I0) && (R::I1 >= FAR || i <= R::I1)
        && (R::J0 <= 0 || j >= R::J0) && (R::J1 >= FAR || j <= R::J1)
        && (i - j >= R::D0) && (R::D1 >= FAR || i - j <= R::D1);
}
/* Columns that rows i0 .. i1 meet, and rows that columns j0 .. j1 meet: from
 * lo to hi. */
template<int P> INLINE void columns_of(int i0, int i1, int &lo, int &hi)
{
    if constexpr (P < PIECES) {
        using R = Region<P>;
        if (i1 >= R::I0 && i0 <= R::I1) {
            lo = min(lo, max((int)R::J0, i0 - R::D1));
            hi = max(hi, min((int)R::J1, i1 - R::D0));
        }
        columns_of<P + 1>(i0, i1, lo, hi);
    }
}
template<int P> INLINE void rows_of_columns(int j0, int j1, int &lo, int &hi)
{
    if constexpr (P < PIECES) {
        using R = Region<P>;
        if (j1 >= R::J0 && j0 <= R::J1) {
            lo = min(lo, max((int)R::I0, j0 + R::D0));
            hi = max(hi, min((int)R::I1, j1 + R::D1));
        }
        rows_of_columns<P + 1>(j0, j1, lo, hi);
    }
}
/* Does a piece have any of rows i0 .. i1, columns j0 .. j1? */
template<int P> INLINE bool meets(int i0, int i1, int j0, int j1)
{
    if constexpr (P == PIECES) {
        return false;
    } else {
        using R = Region<P>;
        return (i1 >= R::I0 && i0 <= R::I1 && j1 >= R::J0 && j0 <= R::J1
                && i1 - j0 >= R::D0 && i0 - j1 <= R::D1)
            || meets<P + 1>(i0, i1, j0, j1);
    }
}

/* ---- sequences in pieces ---- */

/* Of sequence s part n, of so many rows. A sequence has a slot for each
 * multiple of these in it, and one. */
struct SeqPart { i64 s, start; int b, len, n; };
template<int ROWS_OF> INLINE SeqPart find_part(const Pairs &a, i64 slot)
{
    SeqPart x;
    x.s = 0;
    if (a.cu) {
        i64 end = a.nseq;
        while (end - x.s > 1) {
            const i64 mid = x.s + (end - x.s) / 2;
            if (a.cu[mid] / ROWS_OF + mid <= slot)
                x.s = mid;
            else
                end = mid;
        }
        x.n = (int)(slot - a.cu[x.s] / ROWS_OF - x.s);
        x.start = a.cu[x.s];
        x.len = (int)(a.cu[x.s + 1] - a.cu[x.s]);
        x.b = 0;
    } else {
        x.n = (int)(slot / a.nseq);
        x.s = slot % a.nseq;
        x.b = (int)x.s;
        x.start = 0;
        x.len = (int)a.tokens;
    }
    return x;
}

/* FIRST keys of a sequence have pairs with all rows behind; others of the EDGES
 * tiles that hold these have them within the first SPAN rows. So the rows of
 * these tiles are dealt by spans, a block each, and what they add to the first
 * keys is added up behind (plain_first): of each slot, head and key PART_WIDTH
 * numbers. */
constexpr int PART_USED = KEYS + VALUES + COLS, FIRSTS = FIRST + !FIRST;
constexpr int PART_WIDTH = PART_USED + PART_USED % 2;   /* stored in pairs */
INLINE float *part_of(const Pairs &a, i64 s, int part, int head, int key)
{
    const i64 slot = a.cu ? a.cu[s] / SPAN + s + part : part * a.nseq + s;
    return a.part + ((slot * a.heads + head) * FIRST + key) * PART_WIDTH;
}

/* ---- what a pair is worth ---- */

/* Of an element: its query and key, and the leaves of both. */
struct At { int i, j; float x, y; const float *row, *col, *number; };

/* L, or the logit, for a score s; how it grows with s, and f(leaf, how with
 * that). */
template<int P> INLINE float pair_value(float s, const At &t);
template<int P> INLINE float pair_slope(float s, const At &t);
template<int P, class F> INLINE void pair_rows(float s, const At &t, F f);
template<int P, class F> INLINE void pair_cols(float s, const At &t, F f);
template<int P, class F> INLINE void pair_numbers(float s, const At &t, F f);
/* The plane of sums that leaf k takes differences of, or -1. */
INLINE int leaf_sum(int k);
/* Leaf k's first plane, behind the last's the number of all; what it has a
 * number for. */
enum { PER_TOKEN, PER_KEY, PER_VALUE };
INLINE int leaf_plane(int k);
INLINE int leaf_kind(int k);

/* Whether the sequence has both: where none is behind its query, it has the key
 * of each query. */
INLINE bool is_there(const At &t, int len)
{
    return t.i < len && (!WHOLE || t.j < len);
}
template<int P> INLINE float value_in(float s, const At &t, int len)
{
    if constexpr (P == PIECES) {
        return SOFTMAX ? bits(0xff800000) : 0.f;
    } else {
        const float rest = value_in<P + 1>(s, t, len);
        const float own = pair_value<P>(s, t);
        return has<P>(t.i, t.j) && is_there(t, len) ? own : rest;
    }
}
template<int P> INLINE float value_of(float s, const At &t, int len)
{
    if constexpr (P == MIXED)
        return value_in<0>(s, t, len);
    else
        return pair_value<P>(s, t);
}
/* f(piece) where the element is in one. */
template<int P> struct PieceOf { enum { N = P }; };
template<int P, class F> INLINE void each_in(const At &t, int len, F f)
{
    if constexpr (P < PIECES) {
        if (has<P>(t.i, t.j) && is_there(t, len))
            f(PieceOf<P>());
        else
            each_in<P + 1>(t, len, f);
    }
}
template<int P, class F> INLINE void in_piece(const At &t, int len, F f)
{
    if constexpr (P == MIXED)
        each_in<0>(t, len, f);
    else
        f(PieceOf<P>());
}

/* Is the score the value itself? Then scores are kept as products make them. */
INLINE float scaled(float s) { return RAW ? s : s * SCALE; }
INLINE float weight_of(float value, float s, float lse)
{
    if (SOFTMAX)
        return exp2_(fmaf(value, SLOPE, -lse));
    if (WEIGHS)
        return value;
    return value == 0.f ? 0.f : value * s;
}
