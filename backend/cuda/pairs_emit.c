/* pairs_emit.c -- a mask over all pairs of tokens as CUDA C++: what a pair of
 * each piece is worth, and how that changes, for the loops of pairs.cuh,
 * pairs_plain.cuh, pairs_ways.cuh and pairs_entries.cuh.
 */
#include "pairs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "source.h"

typedef struct Text {
    Ctx *c;
    Buf *b;
    Mask *m;
    const PairsShape *shape;
    PairLeaves leaves;
    int piece[MAX_PATHS], n;            /* those that are not left out */
    Ref of[MAX_PATHS][MAX_INPUTS];      /* of piece k: d value / d leaf */
    bool raw, flat, slopes;
    PairFirst first;
} Text;

#define PUT(t, ...) buf_printf((t)->b, __VA_ARGS__)

/* ---- leaves ---- */

static bool same_sum(const Leaf *a, const Leaf *b)
{
    return a->kind == LEAF_CUMSUM && b->kind == LEAF_CUMSUM
        && !strcmp(a->name, b->name);
}

static void add_leaf(const Mask *m, PairLeaves *p, int leaf)
{
    const Leaf *l = &m->leaf[leaf];
    int n = p->n++;

    if (p->n == PAIR_LEAVES)
        fail(m->ctx, 0, "on a GPU a mask over all pairs may read %d values of "
             "tokens", PAIR_LEAVES - 1);
    p->leaf[n] = leaf;
    p->base[n] = -1;
    if (l->kind != LEAF_CUMSUM)
        return;
    p->sum[n] = pair_by_differences(m, l->name) ? 2 : 1;
    for (int k = 0; k <= n && p->sum[n] == 2 && p->base[n] < 0; k++)
        if (same_sum(&m->leaf[p->leaf[k]], l))
            p->base[n] = k;
}

PairLeaves pair_leaves(const Mask *m)
{
    PairLeaves p = { 0 };

    for (int side = SIDE_I; side <= SIDE_J; side++)
        for (int n = 0; n < m->g->nin; n++) {
            const Leaf *l = &m->leaf[n];
            if (l->side != side || (l->kind != LEAF_TOKEN
                                    && l->kind != LEAF_CUMSUM))
                continue;
            add_leaf(m, &p, n);
            (side == SIDE_I ? p.rows++ : p.cols++);
        }
    for (int n = 0; n < m->g->nin; n++)
        if (m->leaf[n].kind == LEAF_CONSTANT) {
            add_leaf(m, &p, n);
            p.numbers++;
        }
    return p;
}

bool pair_has(const PairsShape *s, int kind)
{
    return memchr(s->kind, kind, sizeof s->kind);
}

int pair_plane(const PairsShape *s, int k)
{
    int n = 0;

    while (k-- > 0)
        n += s->kind[k] == PER_KEY ? s->key : s->kind[k] == PER_VALUE
           ? s->value : 1;
    return n;
}

/* Its place among the leaves, or -1. */
static int plane_of(const Text *t, int leaf)
{
    for (int k = 0; k < t->leaves.n; k++)
        if (t->leaves.leaf[k] == leaf)
            return k;
    return -1;
}

static const char *leaf_text(const Text *t, int leaf)
{
    const Leaf *l = &t->m->leaf[leaf];
    const PairLeaves *p = &t->leaves;
    int k = plane_of(t, leaf);

    switch (l->kind) {
    case LEAF_SCORE: return "s";
    case LEAF_POSITION: return l->side == SIDE_I ? "t.x" : "t.y";
    case LEAF_CONSTANT:
        return ctx_format(t->c, "t.number[%d]", k - p->rows - p->cols);
    case LEAF_TOKEN: case LEAF_CUMSUM:
        return l->side == SIDE_I ? ctx_format(t->c, "t.row[%d]", k)
                                 : ctx_format(t->c, "t.col[%d]", k - p->rows);
    }
    return "";
}

/* ---- values ---- */

static const char *name_of(const Text *t, Ref r)
{
    const Node *n = &t->m->g->n[r];
    Buf b = { .ctx = t->c };

    if (n->op == OP_input)
        return leaf_text(t, n->index);
    if (n->op != OP_num)
        return ctx_format(t->c, "n%u", (unsigned)r);
    if (isinf(n->num))
        buf_printf(&b, "bits(0x%x)", n->num > 0 ? 0x7f800000u : 0xff800000u);
    else
        number_text(&b, n->num);
    return b.s;
}

/* Declares what the marked nodes are. */
static void put_marked(Text *t, const uint8_t *need, Ref most)
{
    const Graph *g = t->m->g;

    for (Ref r = 1; r <= most; r++) {
        const Node *n = &g->n[r];
        const char *a[3] = { "", "", "" };
        if (!need[r] || n->op == OP_num || n->op == OP_input)
            continue;
        for (int i = 0; i < op_info[n->op].arity; i++)
            a[i] = name_of(t, n->a[i]);
        PUT(t, "const float n%u = ", (unsigned)r);
        value_text(t->b, n->op, a);
        PUT(t, ";\n");
    }
}

static void need_all(Mask *m, uint8_t *need, Ref r)
{
    mask_reach(m, r);
    for (Ref n = 1; n <= r; n++)
        need[n] |= m->mark[n];
}

static void put_value(Text *t, Ref r)
{
    uint8_t *need = ctx_alloc(t->c, t->m->g->len);

    need_all(t->m, need, r);
    put_marked(t, need, r);
    PUT(t, "return %s;\n", name_of(t, r));
}

static void put_function(Text *t, const char *head, void body(Text *, int k),
                         const char *last)
{
    PUT(t, "%s\n{\n", head);
    for (int k = 0; k < t->n; k++) {
        PUT(t, "if constexpr (P == %d) {\n", k);
        body(t, k);
        PUT(t, "}\n");
    }
    PUT(t, "%s}\n", last);
}

static void put_worth(Text *t, int k)
{
    put_value(t, t->m->piece[t->piece[k]].value);
}

static int score_leaf(const Mask *m)
{
    int n = m->g->nin - 1;

    while (n >= 0 && m->leaf[n].kind != LEAF_SCORE)
        n--;
    return n;
}

static void put_slope(Text *t, int k)
{
    int s = score_leaf(t->m);

    if (s < 0 || !t->of[k][s])
        PUT(t, "return 0.f;\n");
    else
        put_value(t, t->of[k][s]);
}

/* f(k, d value / d leaf) of planes from .. from + n - 1. */
static void put_leaves(Text *t, int k, int from, int n)
{
    Mask *m = t->m;
    uint8_t *need = ctx_alloc(t->c, m->g->len);
    Ref most = 0;

    for (int p = from; p < from + n; p++) {
        Ref r = t->of[k][t->leaves.leaf[p]];
        if (r)
            need_all(m, need, r);
        most = r > most ? r : most;
    }
    put_marked(t, need, most);
    for (int p = from; p < from + n; p++) {
        Ref r = t->of[k][t->leaves.leaf[p]];
        if (r)
            PUT(t, "f(%d, %s);\n", p - from, name_of(t, r));
    }
}

static void put_rows(Text *t, int k)
{
    put_leaves(t, k, 0, t->leaves.rows);
}
static void put_cols(Text *t, int k)
{
    put_leaves(t, k, t->leaves.rows, t->leaves.cols);
}
static void put_numbers(Text *t, int k)
{
    put_leaves(t, k, t->leaves.rows + t->leaves.cols, t->leaves.numbers);
}

static int plane_of_leaf(const Text *t, int k)
{
    return pair_plane(t->shape, k);
}
static int kind_of_leaf(const Text *t, int k) { return t->shape->kind[k]; }

/* That number of leaves 0 .. last; the last's of those behind, too. */
static void put_leaf_function(Text *t, const char *name,
                              int number(const Text *, int k), int last)
{
    last = last < 0 ? 0 : last;
    PUT(t, "INLINE int %s(int k)\n{\n", name);
    for (int k = 0; k < last; k++)
        PUT(t, "if (k == %d)\nreturn %d;\n", k, number(t, k));
    PUT(t, "return %d;\n}\n", number(t, last));
}

static void put_functions(Text *t)
{
    put_function(t, "template<int P> INLINE float pair_value(float s, "
                 "const At &t)", put_worth, "return 0.f;\n");
    put_function(t, "template<int P> INLINE float pair_slope(float s, "
                 "const At &t)", put_slope, "return 0.f;\n");
    put_function(t, "template<int P, class F> INLINE void pair_rows(float s, "
                 "const At &t, F f)", put_rows, "");
    put_function(t, "template<int P, class F> INLINE void pair_cols(float s, "
                 "const At &t, F f)", put_cols, "");
    put_function(t, "template<int P, class F> INLINE void pair_numbers(float "
                 "s, const At &t, F f)", put_numbers, "");
    PUT(t, "INLINE int leaf_sum(int k)\n{\n");
    for (int k = 0; k < t->leaves.n; k++)
        if (t->leaves.base[k] >= 0)
            PUT(t, "if (k == %d)\nreturn %d;\n", k, t->leaves.base[k]);
    PUT(t, "return -1;\n}\n");
    put_leaf_function(t, "leaf_plane", plane_of_leaf, t->leaves.n);
    put_leaf_function(t, "leaf_kind", kind_of_leaf, t->leaves.n - 1);
}

/* ---- pieces ---- */

enum { FAR = 1 << 30 };

static int bound(int64_t x)
{
    return (int)(x > FAR ? FAR : x < -FAR ? -FAR : x);
}

/* Rows for keys and values to be beside one another. */
static void put_region(Text *t, int k)
{
    const Region *r = &t->m->piece[t->piece[k]].at;

    PUT(t, "template<> struct Region<%d> {\nenum { I0 = %d, I1 = %d, J0 = %d,"
        " J1 = %d, D0 = %d, D1 = %d };\n};\n", k, bound(r->lo[VAR_I]),
        bound(r->hi[VAR_I]), bound(r->lo[VAR_J]), bound(r->hi[VAR_J]),
        bound(r->lo[VAR_DISTANCE]), bound(r->hi[VAR_DISTANCE]));
}

static void find_pieces(Text *t)
{
    Mask *m = t->m;
    int score = score_leaf(m);

    t->raw = t->flat = m->softmax;
    for (int p = 0; p < m->npieces; p++)
        if (!pair_masked(m, m->piece[p].value))
            t->piece[t->n++] = p;
    for (int k = 0; k < t->n; k++) {
        Ref value = m->piece[t->piece[k]].value;
        pair_derive(m, value, t->of[k]);
        t->raw = t->raw && score >= 0 && m->g->in[score].node == value;
        t->flat = t->flat && score >= 0
               && is_num(m->g, t->of[k][score], 1);
        for (int p = 0; p < t->leaves.n; p++)
            t->slopes = t->slopes || t->of[k][t->leaves.leaf[p]];
    }
}

PairFirst pair_first(const Mask *m)
{
    enum { TILE = 128 };
    PairFirst f = { .tiles = 1, .span = TILE };
    Reach reach;

    if (!mask_ends(m, &reach) || !reach.first || reach.first >= FAR
        || reach.width >= FAR)
        return f;
    f.keys = (int)reach.first;
    f.tiles = (f.keys + TILE - 1) / TILE;
    f.span = ((int)reach.width + TILE - 1) / TILE * TILE + f.tiles * TILE;
    return f;
}

/* ---- the source ---- */

static void put_constant(Text *t, const char *name, double x)
{
    Buf b = { .ctx = t->c };

    number_text(&b, x);
    PUT(t, "#define %s %s\n", name, b.s);
}

static int padded(int n)
{
    return (n + 63) / 64 * 64;
}

static void put_sizes(Text *t)
{
    const PairsShape *s = t->shape;
    const PairLeaves *p = &t->leaves;
    double scale = pair_scale(t->m, s->key);
    int wholes = t->n < 2 ? t->n : 2;

    PUT(t, "constexpr int KEY_SIZE = %d, VALUE_SIZE = %d, KEYS = %d, VALUES ="
        " %d;\n", s->key, s->value, padded(s->key), padded(s->value));
    PUT(t, "constexpr int ROWS = %d, COLS = %d, NUMBERS = %d, MOST_LEAVES = "
        "%d;\n", p->rows, p->cols, p->numbers, PAIR_LEAVES);
    PUT(t, "constexpr int PIECES = %d, WHOLES = %d, FAR = %d;\n", t->n,
        wholes ? wholes : 1, FAR);
    PUT(t, "constexpr bool SOFTMAX = %d, WEIGHS = %d, RAW = %d, FLAT = %d, "
        "SLOPES = %d, WHOLE = %d;\n", t->m->softmax, t->m->weighs, t->raw,
        t->flat, t->slopes, t->m->whole);
    PUT(t, "constexpr bool DQ_FLOATS = %d, DK_FLOATS = %d, DV_FLOATS = %d;\n",
        s->floats[0], s->floats[1], s->floats[2]);
    PUT(t, "constexpr int FIRST = %d, SPAN = %d, EDGES = %d;\n", t->first.keys,
        t->first.span, t->first.tiles);
    put_constant(t, "SCALE", scale);
    put_constant(t, "SLOPE", (t->raw ? scale : 1) * 1.4426950408889634);
}

static void put_hopper(Text *t)
{
    static const char *const name[] = { "forward", "keys", "queries" };
    static const char *const room[] = { "ForwardRoom", "KeyRoom",
                                        "QueryRoom" };

    for (int k = 0; k < 3; k++)
        PUT(t, "extern \"C\" __global__ void __launch_bounds__(384, 1) "
            "flin_%s(const __grid_constant__ Args a)\n{\n"
            "extern __shared__ unsigned char raw[];\n"
            "const u32 base = (shared_address(raw) + 1023) & ~1023u;\n"
            "static_assert(%s::ALL + 1024 <= 232448, \"room\");\n"
            "pairs_%s(a.a, a.q, a.k, a.v%s, base);\n}\n", name[k], room[k],
            name[k], k ? ", a.dy" : "");
}

static void put_way(Text *t)
{
    static const char *const name[] = { "keys", "queries", "values", "scores" };
    static const char *const makes[] = { "MAKES_KEYS", "MAKES_QUERIES",
                                         "MAKES_VALUES" };
    const PairsShape *s = t->shape;

    for (int k = 0; k < PAIR_KERNELS && s->own[k].own; k++) {
        const PairShape *o = &s->own[k];
        PUT(t, "extern \"C\" __global__ void __launch_bounds__(WAY_THREADS) "
            "flin_%s(const __grid_constant__ Args a)\n{\n", name[k]);
        if (s->way == BLOCKS)
            PUT(t, "way_blocks<%d, %d, %d>(a.a);\n}\n", k == PAIR_KEYS, o->own,
                o->step);
        else if (k == PAIR_SCORES)
            PUT(t, "way_scores<%d, %d, %d>(a.a);\n}\n", o->own, o->step,
                o->wide);
        else
            PUT(t, "way_product<%s, %d, %d, %d>(a.a);\n}\n", makes[k], o->own,
                o->step, o->wide);
    }
}

static void put_leaves_and_sums(Text *t)
{
    PUT(t, "extern \"C\" __global__ void __launch_bounds__(LEAF_THREADS) "
        "flin_leaves(const __grid_constant__ Leaves a)\n{\n"
        "plain_leaves(a);\n}\n");
    PUT(t, "extern \"C\" __global__ void __launch_bounds__(LEAF_THREADS) "
        "flin_sums(const __grid_constant__ Sums a)\n{\nplain_sums(a);\n}\n");
}

/* Weights for each entry. */
static void put_entries(Text *t)
{
    static const char *const name[] = { "forward", "queries", "keys" };
    int own = t->shape->entries;

    for (int k = 0; k < 3; k++)
        PUT(t, "extern \"C\" __global__ void __launch_bounds__(WAY_THREADS) "
            "flin_%s(const __grid_constant__ Args a)\n{\n"
            "way_entries<%d, %d, %d, %d>(a.a);\n}\n", name[k], k == 2, k > 0,
            own, own);
    put_leaves_and_sums(t);
}

static void put_plain(Text *t)
{
    static const char *const name[] = { "forward", "delta" };
    static const char *const body[] = { "plain_forward", "plain_delta" };

    for (int k = 0; k < 2; k++)
        PUT(t, "extern \"C\" __global__ void __launch_bounds__(PLAIN_THREADS)"
            " flin_%s(const __grid_constant__ Args a)\n{\n%s(a.a);\n}\n",
            name[k], body[k]);
    put_leaves_and_sums(t);
    if (t->first.keys)
        PUT(t, "extern \"C\" __global__ void __launch_bounds__(PLAIN_THREADS) "
            "flin_first(const __grid_constant__ Args a)\n{\n"
            "plain_first(a.a);\n}\n");
}

char *pairs_source(Ctx *c, Mask *m, const PairsShape *s)
{
    Buf raw = { .ctx = c }, b = { .ctx = c };
    Text *t = ctx_alloc(c, sizeof *t);

    *t = (Text){ .c = c, .b = &raw, .m = m, .shape = s,
                 .leaves = pair_leaves(m) };
    find_pieces(t);
    t->first = pair_first(m);
    if (s->wgmma && s->type == F16)
        PUT(t, "#define ELEMENT_F16\n");
    put_sizes(t);
    if (s->wgmma)
        PUT(t, "#include \"numbers.cuh\"\n#include \"device.cuh\"\n"
            "#include \"wgmma.cuh\"\n#include \"pairs_call.cuh\"\n"
            "#include \"pairs.cuh\"\n#include \"pairs_back.cuh\"\n"
            "struct Args { TensorMap q, k, v, dy; Pairs a; };\n");
    else
        PUT(t, "#include \"numbers.cuh\"\n#include \"warp.cuh\"\n"
            "#include \"functions.cuh\"\n#include \"dense.cuh\"\n"
            "#include \"pairs_call.cuh\"\n#include \"pairs_plain.cuh\"\n"
            "struct Args { Pairs a; };\n"
            "struct Leaves { Pairs a; LeafPlace leaf[MOST_LEAVES]; };\n"
            "struct Sums { Pairs a; LeafPlace leaf[MOST_LEAVES]; "
            "LeafSum sum[MOST_LEAVES]; };\n");
    if (s->back || s->entries)
        PUT(t, "constexpr i64 BAND = %lld;\n#include \"pairs_ways.cuh\"\n",
            (long long)pair_band(m));
    if (s->entries)
        PUT(t, "constexpr bool KEYED = %d, VALUED = %d;\n"
            "#include \"pairs_entries.cuh\"\n", pair_has(s, PER_KEY),
            pair_has(s, PER_VALUE));
    for (int k = 0; k < t->n; k++)
        put_region(t, k);
    put_functions(t);
    (s->entries ? put_entries : s->wgmma ? put_hopper : s->back ? put_way
     : put_plain)(t);
    buf_printf(&b, "// all pairs of tokens: %s\n", m->softmax ? "softmax"
               : m->weighs ? "polynomials of scores"
               : "a mask that does not factor");
    source_indent(&b, raw.s);
    return b.s;
}
