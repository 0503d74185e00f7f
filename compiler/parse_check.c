/* parse_check.c -- what node_new, and those who walk a graph, take for granted
 * of a node: asked of each that is read from a text.
 */
#include "text.h"

static void need(const Text *t, const Node *n, bool ok, const char *what)
{
    if (!ok)
        fail(t->c, t->line, "%s: %s", op_info[n->op].name, what);
}

static bool is_one(AxisSet s)
{
    return s && !(s & (s - 1));
}

/* What an axis set may hold: nothing that the operand lacks. */
static void need_over(const Text *t, const Node *n, AxisSet all, bool one)
{
    need(t, n, n->over && !(n->over & ~all),
         "`over` must name axes that the operands have");
    need(t, n, !one || is_one(n->over), "`over` must name one axis");
}

/* Sizes of pairs: 2 times `half` fits into `whole`, where both are known. */
static bool pairs_fit(const Graph *g, int half, int whole)
{
    int32_t h = g->axis[half].size, w = g->axis[whole].size;

    return !h || !w || 2 * (int64_t)h <= w;
}

static int32_t extent_of(const Graph *g, Ref r, int ax)
{
    return g->n[r].axes & AXIS(ax) ? axis_extent(g, r, ax) : 0;
}

/* ---- what ops.def's rows ask; s: the operands' axes ---- */

typedef void Asks(const Text *, const Node *, const AxisSet s[4]);

static void asks_nothing(const Text *t, const Node *n, const AxisSet s[4])
{
    (void)t, (void)n, (void)s;
}

static void asks_over(const Text *t, const Node *n, const AxisSet s[4])
{
    need_over(t, n, s[0], false);
}

static void asks_common(const Text *t, const Node *n, const AxisSet s[4])
{
    need_over(t, n, s[0] & s[1], false);
}

static void asks_axis(const Text *t, const Node *n, const AxisSet s[4])
{
    (void)s;
    need_over(t, n, DIM_AXES, true);
}

static void asks_place(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_axis(t, n, s);
    need(t, n, n->index < t->g->axis[lowest(n->over)].size,
         "`index` is too large");
}

/* Ranks are joined, up to the rank axis's size. */
static void asks_joined(const Text *t, const Node *n, const AxisSet s[4])
{
    (void)s;
    need_over(t, n, ROW_AXES & ~AXIS(AX_I), true);
    int ax = lowest(n->over);
    int32_t a = extent_of(t->g, n->a[0], ax);
    int32_t b = extent_of(t->g, n->a[1], ax);
    need(t, n, (a ? a : 1) + (b ? b : 1) <= t->g->axis[ax].size,
         "longer than its axis");
}

static void asks_flag(const Text *t, const Node *n, const AxisSet s[4])
{
    (void)s;
    need(t, n, n->index < t->g->rows, "tokens have fewer rows");
}

static void asks_rank(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_flag(t, n, s);
    need(t, n, s[0] & AXIS(AX_I), "needs rows of tokens");
}

/* Of the operations that rename, take a part or pair entries. */
static void asks_along(const Text *t, const Node *n, const AxisSet s[4])
{
    need_over(t, n, s[0] & ~(AXIS(AX_I) | AXIS(AX_J)), true);
}

static void asks_entry(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_along(t, n, s);
    int32_t size = t->g->axis[lowest(n->over)].size;
    need(t, n, !size || n->index < size, "`index` is too large");
}

static void asks_part(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_along(t, n, s);
    need(t, n, n->num > 0 && n->index + n->num
               <= axis_extent(t->g, n->a[0], lowest(n->over)),
         "needs `len`, within the axis");
}

static void asks_renamed(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_along(t, n, s);
    need(t, n, n->index
         && !(AXIS(n->index) & (AXIS(AX_I) | AXIS(AX_J) | s[0])),
         "needs `to` and an axis that the operand lacks");
}

static void asks_spread(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_renamed(t, n, s);
    need(t, n, pairs_fit(t->g, lowest(n->over), n->index),
         "the axis is too short");
}

static void asks_pairs(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_renamed(t, n, s);
    need(t, n, pairs_fit(t->g, n->index, lowest(n->over)),
         "the axis is too long");
}

/* Of the operations of chunks. */
static void asks_tokens(const Text *t, const Node *n, const AxisSet s[4])
{
    (void)s;
    need(t, n, t->g->chunk, "a step has one token");
}

static void asks_rows(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_tokens(t, n, s);
    need(t, n, !(s[0] & COL_AXES), "has columns");
}

static void asks_columns(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_tokens(t, n, s);
    need(t, n, !(s[0] & ROW_AXES), "has rows");
}

static void asks_first(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_tokens(t, n, s);
    need(t, n, !(s[1] & AXIS(AX_I)), "starts from rows");
}

static void asks_start(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_tokens(t, n, s);
    need(t, n, !(s[2] & AXIS(AX_I)), "starts from rows");
}

static void asks_matrices(const Text *t, const Node *n, const AxisSet s[4])
{
    const Axis *axis = t->g->axis;

    asks_tokens(t, n, s);
    need_over(t, n, DIM_AXES, true);
    need(t, n, n->index >= AX_DIM && AXIS(n->index) != n->over
         && axis[n->index].size
         && axis[n->index].size == axis[lowest(n->over)].size,
         "needs `to`, another axis as long");
    need(t, n, !(~s[0] & (AXIS(AX_I) | AXIS(n->index) | n->over))
         && !(s[0] & (ROW_AXES | COL_AXES) & ~AXIS(AX_I)),
         "takes matrices of the token");
    need(t, n, s[0] == (AXIS(AX_I) | AXIS(n->index) | n->over)
         || highest((s[0] | s[1] | s[2]) & ~n->over) == n->index,
         "needs `to`, the last axis where matrices differ along axes");
    need(t, n, !((s[1] | s[2]) & n->over) && !(s[2] & AXIS(AX_I)),
         "has the summed axis already, or starts from rows");
}

/* One of the ranks, but in a schedule's plan. */
static void asks_ranked(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_tokens(t, n, s);
    if (n->over || !t->g->rows)
        need_over(t, n, ROW_AXES & ~AXIS(AX_I), true);
}

static void asks_gates(const Text *t, const Node *n, const AxisSet s[4])
{
    asks_tokens(t, n, s);
    need(t, n, !n->a[0] == !n->a[1], "takes two gates or none");
    need(t, n, !(s[0] & COL_AXES) && !(s[1] & ROW_AXES),
         "takes a gate of rows and one of columns");
}

static void asks_gated(const Text *t, const Node *n, const AxisSet s[4])
{
    const AxisSet both = AXIS(AX_I) | AXIS(AX_J);
    AxisSet all = s[0] | s[1] | s[2] | s[3];

    asks_tokens(t, n, s);
    need_over(t, n, all, false);
    need(t, n, !(s[2] & COL_AXES) && !(s[3] & ROW_AXES),
         "takes a gate of rows and one of columns");
    need(t, n, (all & both) == both, "needs rows and columns");
}

static void asks_solvable(const Text *t, const Node *n, const AxisSet s[4])
{
    const AxisSet both = AXIS(AX_I) | AXIS(AX_J);
    AxisSet twins = (s[0] & COL_AXES) >> AX_J;

    asks_tokens(t, n, s);
    need(t, n, (s[0] & both) == both, "needs rows and columns");
    need(t, n, !(twins & ~s[0]), "has columns without their rows");
    need(t, n, !(s[1] & COL_AXES), "the right side has columns");
    need(t, n, !(s[0] & DIM_AXES & ~s[1]), "the right side lacks axes");
    AxisSet ranks = s[0] & ROW_AXES & ~AXIS(AX_I);
    need(t, n, !(n->flags & LATER) || t->g->rows || is_one(ranks),
         "later: needs ranks along one axis");
}

static void asks_under_gates(const Text *t, const Node *n, const AxisSet s[4])
{
    const AxisSet tokens = ROW_AXES | COL_AXES, row = AXIS(AX_I);

    asks_tokens(t, n, s);
    need(t, n, (s[0] & tokens) == (row | AXIS(AX_J)),
         "takes rows and columns of tokens");
    for (int i = 1; i < 4; i++)
        need(t, n, !(s[i] & tokens & ~row) && (i == 2 || s[i] & row),
             "has no row a token");
}

static Asks *const asks_of[NOPS] = {
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    [OP_##name] = asks_##asks,
#include "ops.def"
};

/* All but those that join ranks want operands of the same ranks. */
static void check_ranks(const Text *t, const Node *n)
{
    const Graph *g = t->g;

    for (int ax = AX_R; ax < AX_DIM; ax++) {
        int32_t ext = 0;
        for (int i = 0; i < 4 && ax != AX_J; i++) {
            int32_t x = extent_of(g, n->a[i], ax);
            need(t, n, asks_of[n->op] == asks_joined || !x || !ext || x == ext,
                 "operands of different ranks");
            ext = x ? x : ext;
        }
    }
}

void text_check(const Text *t, const Node *n)
{
    AxisSet s[4];

    for (int i = 0; i < 4; i++)
        s[i] = t->g->n[n->a[i]].axes;
    check_ranks(t, n);
    if (asks_of[n->op])                 /* element-wise ones ask nothing */
        asks_of[n->op](t, n, s);
}

void text_check_size(const Text *t, Ref r)
{
    const double max_elements = 1e12;
    double count = 1;

    for (int ax = 0; ax < NAXES; ax++)
        if (t->g->n[r].axes & AXIS(ax) && t->g->axis[ax].size)
            count *= t->g->axis[ax].size;
    if (count > max_elements)
        fail(t->c, t->line, "%s: a value of %.0f elements",
             op_info[t->g->n[r].op].name, count);
}
