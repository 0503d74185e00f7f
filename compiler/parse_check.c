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

/* What the operations of chunks ask of their operands' axes. */
static void check_tokens(const Text *t, const Node *n, const AxisSet s[4])
{
    const AxisSet both = AXIS(AX_I) | AXIS(AX_J);
    AxisSet all = s[0] | s[1] | s[2] | s[3], twins;
    const Graph *g = t->g;

    need(t, n, t->g->chunk, "a step has one token");
    switch (n->op) {
    case OP_col:
        need(t, n, !(all & COL_AXES), "has columns");
        break;
    case OP_row:
        need(t, n, !(all & ROW_AXES), "has rows");
        break;
    case OP_delay:
        need(t, n, !(s[1] & AXIS(AX_I)), "starts from rows");
        break;
    case OP_scan: case OP_maxscan:
        need(t, n, !(s[2] & AXIS(AX_I)), "starts from rows");
        break;
    case OP_matscan:
        need_over(t, n, DIM_AXES, true);
        need(t, n, n->index >= AX_DIM && AXIS(n->index) != n->over
             && g->axis[n->index].size
             && g->axis[n->index].size == g->axis[lowest(n->over)].size,
             "needs `to`, another axis as long");
        need(t, n, !(~s[0] & (AXIS(AX_I) | AXIS(n->index) | n->over))
             && !(s[0] & (ROW_AXES | COL_AXES) & ~AXIS(AX_I)),
             "takes matrices of the token");
        need(t, n, s[0] == (AXIS(AX_I) | AXIS(n->index) | n->over)
             || highest((s[0] | s[1] | s[2]) & ~n->over) == n->index,
             "needs `to`, the last axis where matrices differ along axes");
        need(t, n, !((s[1] | s[2]) & n->over) && !(s[2] & AXIS(AX_I)),
             "has the summed axis already, or starts from rows");
        break;
    case OP_dmask:
        need(t, n, !n->a[0] == !n->a[1], "takes two gates or none");
        need(t, n, !(s[0] & COL_AXES) && !(s[1] & ROW_AXES),
             "takes a gate of rows and one of columns");
        break;
    case OP_gdot:
        need_over(t, n, all, false);
        need(t, n, !(s[2] & COL_AXES) && !(s[3] & ROW_AXES),
             "takes a gate of rows and one of columns");
        need(t, n, (all & both) == both, "needs rows and columns");
        break;
    case OP_solve:
        twins = (s[0] & COL_AXES) >> AX_J;
        need(t, n, (s[0] & both) == both, "needs rows and columns");
        need(t, n, !(twins & ~s[0]), "has columns without their rows");
        need(t, n, !(s[1] & COL_AXES), "the right side has columns");
        need(t, n, !(s[0] & DIM_AXES & ~s[1]), "the right side lacks axes");
        break;
    }
}

static int32_t extent_of(const Graph *g, Ref r, int ax)
{
    return g->n[r].axes & AXIS(ax) ? axis_extent(g, r, ax) : 0;
}

/* Ranks are joined, up to the rank axis's size; all other operations want
 * operands of the same ranks. */
static void check_ranks(const Text *t, const Node *n)
{
    const Graph *g = t->g;

    for (int ax = AX_R; ax < AX_DIM; ax++) {
        int32_t ext = 0;
        for (int i = 0; i < 4 && ax != AX_J; i++) {
            int32_t x = extent_of(g, n->a[i], ax);
            need(t, n, n->op == OP_cat || !x || !ext || x == ext,
                 "operands of different ranks");
            ext = x ? x : ext;
        }
    }
    if (n->op != OP_cat)
        return;
    need_over(t, n, ROW_AXES & ~AXIS(AX_I), true);
    int ax = lowest(n->over);
    int32_t a = extent_of(g, n->a[0], ax), b = extent_of(g, n->a[1], ax);
    need(t, n, (a ? a : 1) + (b ? b : 1) <= g->axis[ax].size,
         "longer than its axis");
}

/* What the operations that rename, take a part or pair entries ask. */
static void check_entries(const Text *t, const Node *n, AxisSet s)
{
    const AxisSet tokens = AXIS(AX_I) | AXIS(AX_J);
    const Graph *g = t->g;

    need_over(t, n, s & ~tokens, true);
    int from = lowest(n->over), to = n->index;
    int32_t size = g->axis[from].size;
    if (n->op == OP_select)
        need(t, n, !size || n->index < size, "`index` is too large");
    if (n->op == OP_part)
        need(t, n, n->num > 0 && n->index + n->num
                   <= axis_extent(g, n->a[0], from),
             "needs `len`, within the axis");
    if (n->op == OP_select || n->op == OP_rot90 || n->op == OP_part)
        return;
    need(t, n, to && !(AXIS(to) & (tokens | s)),
         "needs `to` and an axis that the operand lacks");
    if (n->op == OP_dup)
        need(t, n, pairs_fit(g, from, to), "the axis is too short");
    if (n->op == OP_pairsum)
        need(t, n, pairs_fit(g, to, from), "the axis is too long");
}

void text_check(const Text *t, const Node *n)
{
    AxisSet s[4];

    for (int i = 0; i < 4; i++)
        s[i] = t->g->n[n->a[i]].axes;
    check_ranks(t, n);
    switch (n->op) {
    case OP_sum: case OP_amax: case OP_lse:
        need_over(t, n, s[0], false);
        break;
    case OP_dot: need_over(t, n, s[0] & s[1], false); break;
    case OP_unit:
        need_over(t, n, DIM_AXES, true);
        need(t, n, n->index < t->g->axis[lowest(n->over)].size,
             "`index` is too large");
        break;
    case OP_count: need_over(t, n, DIM_AXES, true); break;
    case OP_ofrank: case OP_isrank:
        need(t, n, n->index < t->g->rows, "tokens have fewer rows");
        need(t, n, n->op == OP_isrank || s[0] & AXIS(AX_I),
             "needs rows of tokens");
        break;
    case OP_rot90: case OP_select: case OP_part: case OP_relabel: case OP_dup:
    case OP_pairsum:
        check_entries(t, n, s[0]);
        break;
    case OP_col: case OP_row: case OP_cumsum: case OP_scan: case OP_maxscan:
    case OP_delay: case OP_last: case OP_dmask: case OP_gdot: case OP_solve:
    case OP_matscan:
        check_tokens(t, n, s);
        break;
    }
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
