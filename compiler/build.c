/* build.c -- nodes made: sums and products in the one form that they have.
 *
 * What does not take part in a sum is taken out of it, signs too; a sum over
 * axes that a value lacks is a product with their sizes.
 *
 * A gradient that has one number a token is a sum of what operands are times
 * what they get. Of a product of two it may be had from either side: from the
 * product of the way forward, which would be made again, or from the one that
 * the other operand's gradient needs anyway. The latter is taken.
 */
#include "ir.h"

Ref op1(Graph *g, int op, Ref a)
{
    return node_new(g, (Node){ .op = (uint8_t)op, .a = { a } });
}

Ref op2(Graph *g, int op, Ref a, Ref b)
{
    return node_new(g, (Node){ .op = (uint8_t)op, .a = { a, b } });
}

Ref op3(Graph *g, int op, Ref a, Ref b, Ref c)
{
    return node_new(g, (Node){ .op = (uint8_t)op, .a = { a, b, c } });
}

Ref axis_size(Graph *g, int axis)
{
    if (g->axis[axis].size)
        return num(g, g->axis[axis].size);
    return node_new(g, (Node){ .op = OP_size, .index = (uint16_t)axis });
}

/* a times the sizes of the axes in s: a sum over axes that a lacks. */
static Ref times_sizes(Graph *g, Ref a, AxisSet s)
{
    for (int ax = 0; ax < NAXES; ax++)
        if (s & AXIS(ax))
            a = op2(g, OP_mul, a, axis_size(g, ax));
    return a;
}

Ref sum(Graph *g, Ref a, AxisSet over)
{
    AxisSet lacks = over & ~g->n[a].axes;
    const Node n = g->n[a];

    over &= ~lacks;
    if (lacks)
        return times_sizes(g, sum(g, a, over), lacks);
    if (!over)
        return a;
    if (n.op == OP_neg)
        return op1(g, OP_neg, sum(g, n.a[0], over));
    if (n.op == OP_mul)
        return dot(g, n.a[0], n.a[1], over);
    return node_new(g, (Node){ .op = OP_sum, .a = { a }, .over = over });
}

Ref row_fold(Graph *g, int op, Ref a, AxisSet over)
{
    over &= g->n[a].axes;
    return !over ? a : node_new(g, (Node){ .op = (uint8_t)op, .a = { a },
                                           .over = over });
}

Ref row_most(Graph *g, Ref a, AxisSet over)
{
    return row_fold(g, OP_amax, a, over);
}

/* Splits x = s * y where s has none of the axes `over`, however deep in the
 * product it stands: 0 if there is none. */
static Ref free_factor(Graph *g, Ref x, AxisSet over, Ref *rest)
{
    const Node n = g->n[x];
    Ref s, inner;

    if (n.op != OP_mul)
        return 0;
    for (int i = 0; i < 2; i++)
        if (!(g->n[n.a[i]].axes & over)) {
            *rest = n.a[1 - i];
            return n.a[i];
        }
    for (int i = 0; i < 2; i++)
        if ((s = free_factor(g, n.a[i], over, &inner)) != 0) {
            *rest = op2(g, OP_mul, inner, n.a[1 - i]);
            return s;
        }
    return 0;
}

/* Is x in memory, for all tokens, as a layer runs: given, a call's result or a
 * product with a weight? */
static bool is_there(const Graph *g, Ref x)
{
    const Node *n = &g->n[x];

    return n->op == OP_input || (n->op == OP_dot
        && (!g->n[n->a[0]].timed || !g->n[n->a[1]].timed));
}

/* A layer's product with a weight reads a matrix of all tokens: is that made
 * beforehand anyway, and each token's factor s best with it? Behind the product
 * it would need a pass of its own. */
static bool is_computed_with(const Graph *g, Ref s, Ref rest, Ref weight)
{
    return g->layer && g->n[s].timed && g->n[rest].timed
        && !g->n[weight].timed && !is_there(g, rest);
}

/* ---- sums of products of sums, while gradients are made ---- */

enum { MOST_FACTORS = 8 };

typedef struct Factors { Ref r[MOST_FACTORS]; int n; } Factors;

static Ref ordered_dot(Graph *g, Ref a, Ref b, AxisSet over)
{
    return node_new(g, (Node){ .op = OP_dot, .over = over,
                               .a = { a < b ? a : b, a < b ? b : a } });
}

static bool is_dim(AxisSet s)
{
    return s && !(s & (s - 1)) && s & DIM_AXES;
}

/* sum_c (sum_k a[t k] b[k c]) y[t c]: as sum_k a[t k] (sum_c b[k c] y[t c]),
 * whose product a's gradient needs. Of two that the way forward has made the
 * older one is nearer to the inputs. */
static Ref sum_of_rows(Graph *g, Ref x, Ref y, AxisSet over)
{
    const Node n = g->n[x];
    AxisSet token = AXIS(AX_I);

    if (n.op != OP_dot || !is_dim(over) || !is_dim(n.over)
        || n.axes != (token | over) || g->n[y].axes != n.axes)
        return 0;
    for (int i = 0; i < 2; i++) {
        Ref a = n.a[i], b = n.a[1 - i];
        if (g->n[a].axes == (token | n.over) && a < g->forward
            && (y >= g->forward || a < y)
            && g->n[b].axes == (n.over | over))
            return ordered_dot(g, a, dot(g, b, y, over), n.over);
    }
    return 0;
}

/* False: there are more of them. */
static bool list_factors(const Graph *g, Ref r, Factors *f)
{
    const Node *n = &g->n[r];

    if (n->op == OP_mul)
        return list_factors(g, n->a[0], f) && list_factors(g, n->a[1], f);
    if (f->n == MOST_FACTORS)
        return false;
    f->r[f->n++] = r;
    return true;
}

/* Takes r out; false: it is none of them. */
static bool take_factor(Factors *f, Ref r)
{
    for (int i = 0; i < f->n; i++)
        if (f->r[i] == r) {
            f->r[i] = f->r[--f->n];
            return true;
        }
    return false;
}

static bool are_factors(const Graph *g, Ref r, Factors want)
{
    Factors f = { .n = 0 };
    bool same = list_factors(g, r, &f) && f.n == want.n;

    for (int i = 0; same && i < f.n; i++)
        same = take_factor(&want, f.r[i]);
    return same;
}

/* The gradient with these axes that is the product; 0: nobody gets that. */
static Ref find_product(const Graph *g, const Factors *f, AxisSet axes)
{
    for (Ref r = g->len - 1; f->n && r >= g->forward; r--)
        if (g->n[r].axes == axes && are_factors(g, r, *f))
            return r;
    return 0;
}

/* Scores x = sum_k a[i k] b[j k] times y, summed over the tokens of one side.
 * 0: x is no such. */
static Ref sum_of_scores(Graph *g, Ref x, Ref y, AxisSet over)
{
    const Node n = g->n[x];

    for (int i = 0; i < 2; i++) {
        Ref a = n.a[i], b = n.a[1 - i];
        if (g->n[a].axes == ((n.axes & ~over) | n.over)
            && g->n[b].axes == (over | n.over))
            return dot(g, a, dot(g, b, y, over), n.over);
    }
    return 0;
}

/* Products find what is given as it is, but what is computed in their factors'
 * type. */
static bool is_given(const Graph *g, Ref r)
{
    while (op_is(g->n[r].op, VIEWS))
        r = g->n[r].a[0];
    return g->n[r].op == OP_input;
}

/* Of given operands: sums from one side and from the other are of the same
 * numbers. Scores under decays per key are no such: they take more than the
 * sums that they are kept for. */
static bool are_scores(const Graph *g, Ref r, AxisSet over)
{
    const Node *n = &g->n[r];
    AxisSet side = over & ROW_AXES ? ROW_AXES : COL_AXES;

    return r < g->forward && is_plain_contraction(n->op) && is_dim(n->over)
        && is_given(g, n->a[0]) && is_given(g, n->a[1])
        && over && over == (n->axes & side)
        && n->axes & ~side && !(n->axes & DIM_AXES);
}

/* Whether the product is zero where a token meets itself. */
static bool are_strict(const Graph *g, const Factors *f)
{
    bool any = false;

    for (int i = 0; i < f->n; i++)
        any |= is_mask(g->n[f->r[i]].op) && g->n[f->r[i]].flags & STRICT;
    return any;
}

/* The sum of a b over the axes, from a product that some operand's gradient
 * needs anyway; 0: there is none. What a gate gets of a token's score with
 * itself, from either side, cancels, but for rounding, which is not that of
 * products: such sums stay. */
static Ref associate(Graph *g, Ref a, Ref b, AxisSet over)
{
    Factors all = { .n = 0 };
    Ref x = sum_of_rows(g, a, b, over);

    x = x ? x : sum_of_rows(g, b, a, over);
    if (x || !list_factors(g, a, &all) || !list_factors(g, b, &all))
        return x;
    for (int i = 0; i < all.n; i++) {
        Factors rest = all;
        if (!are_scores(g, all.r[i], over))
            continue;
        take_factor(&rest, all.r[i]);
        if (!are_strict(g, &rest))
            continue;
        Ref y = find_product(g, &rest, g->n[all.r[i]].axes);
        if (y && (x = sum_of_scores(g, all.r[i], y, over)))
            return x;
    }
    return 0;
}

/* ---- products and sums ---- */

/* Is x a sum of products of something free of `over` that has axes of its own?
 * It is larger than all that it is made of. */
static bool adds_outers(Graph *g, Ref x, AxisSet over)
{
    const Node n = g->n[x];
    Ref s, rest;

    if (n.op == OP_neg)
        return adds_outers(g, n.a[0], over);
    if (n.op == OP_add || n.op == OP_sub)
        return adds_outers(g, n.a[0], over) && adds_outers(g, n.a[1], over);
    s = free_factor(g, x, over, &rest);
    return s && g->n[s].axes & ~g->n[rest].axes & DIM_AXES;
}

/* The dot of a sum of outer products as that of each; 0: it is none. */
static Ref dot_each(Graph *g, Ref x, Ref y, AxisSet over)
{
    const Node n = g->n[x];

    if ((n.op != OP_add && n.op != OP_sub) || !adds_outers(g, x, over))
        return 0;
    return op2(g, n.op, dot(g, n.a[0], y, over), dot(g, n.a[1], y, over));
}

Ref dot(Graph *g, Ref a, Ref b, AxisSet over)
{
    AxisSet sa = g->n[a].axes & over, sb = g->n[b].axes & over;
    Ref s, rest;

    if (over & ~(sa | sb))
        return times_sizes(g, dot(g, a, b, sa | sb), over & ~(sa | sb));
    if (sa & ~sb)
        return dot(g, sum(g, a, sa & ~sb), b, sb);
    if (sb & ~sa)
        return dot(g, a, sum(g, b, sb & ~sa), sa);
    if (!over)
        return op2(g, OP_mul, a, b);
    if (g->n[a].op == OP_neg)
        return op1(g, OP_neg, dot(g, g->n[a].a[0], b, over));
    if (g->n[b].op == OP_neg)
        return op1(g, OP_neg, dot(g, a, g->n[b].a[0], over));
    if ((s = free_factor(g, a, over, &rest)) != 0
        && !is_computed_with(g, s, rest, b))
        return op2(g, OP_mul, s, dot(g, rest, b, over));
    if ((s = free_factor(g, b, over, &rest)) != 0
        && !is_computed_with(g, s, rest, a))
        return op2(g, OP_mul, s, dot(g, a, rest, over));
    if ((rest = dot_each(g, a, b, over)) != 0
        || (rest = dot_each(g, b, a, over)) != 0)
        return rest;
    if (g->forward && (rest = associate(g, a, b, over)) != 0)
        return rest;
    return ordered_dot(g, a, b, over);
}

Ref dmask(Graph *g, Ref ga, Ref gb, int strict)
{
    ensure(g, !ga == !gb, OP_dmask, ga | gb);
    return node_new(g, (Node){ .op = OP_dmask, .a = { ga, gb },
                               .flags = strict ? STRICT : 0 });
}

Ref later(Graph *g, AxisSet rank)
{
    return node_new(g, (Node){ .op = OP_later, .over = rank });
}

Ref gdot(Graph *g, Ref a, Ref b, Ref ga, Ref gb, AxisSet over, int strict)
{
    AxisSet gates = g->n[ga].axes | g->n[gb].axes;
    Ref s, rest;

    if (!(gates & DIM_AXES)) {
        Ref mask = dmask(g, ga, gb, strict);
        return op2(g, OP_mul, dot(g, a, b, over), mask);
    }
    for (int i = 0; i < 2; i++) {
        Ref x = i ? b : a;
        if (g->n[x].op == OP_neg) {
            rest = g->n[x].a[0];
            rest = gdot(g, i ? a : rest, i ? rest : b, ga, gb, over, strict);
            return op1(g, OP_neg, rest);
        }
        if ((s = free_factor(g, x, over | DIM_AXES, &rest)) != 0) {
            rest = gdot(g, i ? a : rest, i ? rest : b, ga, gb, over, strict);
            return op2(g, OP_mul, s, rest);
        }
    }
    return node_new(g, (Node){ .op = OP_gdot, .a = { a, b, ga, gb },
                               .over = over, .flags = strict ? STRICT : 0 });
}

Ref select_at(Graph *g, Ref a, int axis, int index)
{
    if (!(g->n[a].axes & AXIS(axis)))
        return a;
    return node_new(g, (Node){ .op = OP_select, .a = { a },
                               .over = AXIS(axis),
                               .index = (uint16_t)index });
}

Ref part(Graph *g, Ref a, int axis, int from, int len)
{
    ensure(g, g->n[a].axes & AXIS(axis), OP_part, a);
    return node_new(g, (Node){ .op = OP_part, .a = { a }, .num = len,
                               .over = AXIS(axis),
                               .index = (uint16_t)from });
}

Ref unit(Graph *g, int axis, int index)
{
    return node_new(g, (Node){ .op = OP_unit, .over = AXIS(axis),
                               .index = (uint16_t)index });
}

Ref count_along(Graph *g, int axis)
{
    return node_new(g, (Node){ .op = OP_count, .over = AXIS(axis) });
}

Ref relabel(Graph *g, Ref a, int from, int to)
{
    if (from == to || !(g->n[a].axes & AXIS(from)))
        return a;
    ensure(g, !(g->n[a].axes & AXIS(to)), OP_relabel, a);
    return node_new(g, (Node){ .op = OP_relabel, .a = { a },
                               .over = AXIS(from), .index = (uint16_t)to });
}

Ref unary_axis(Graph *g, int op, Ref a, int axis, int to)
{
    return node_new(g, (Node){ .op = (uint8_t)op, .a = { a },
                               .over = AXIS(axis), .index = (uint16_t)to });
}

Ref cumsum(Graph *g, Ref a, int flags)
{
    return node_new(g, (Node){ .op = OP_cumsum, .a = { a },
                               .flags = (uint8_t)flags });
}

Ref last_row(Graph *g, Ref a, int flags)
{
    return node_new(g, (Node){ .op = OP_last, .a = { a },
                               .flags = (uint8_t)flags });
}

Ref delay(Graph *g, Ref a, Ref first, int flags)
{
    return node_new(g, (Node){ .op = OP_delay, .a = { a, first },
                               .flags = (uint8_t)flags });
}

Ref cat(Graph *g, Ref a, Ref b, int axis)
{
    return node_new(g, (Node){ .op = OP_cat, .a = { a, b },
                               .over = AXIS(axis) });
}

Ref solve(Graph *g, Ref a, Ref b, int flags)
{
    return node_new(g, (Node){ .op = OP_solve, .a = { a, b },
                               .flags = (uint8_t)flags });
}

Ref gsolve(Graph *g, Ref a, Ref b, Ref rate, Ref gate, int flags)
{
    return node_new(g, (Node){ .op = OP_gsolve, .a = { a, b, rate, gate },
                               .flags = (uint8_t)flags });
}

Ref scan(Graph *g, Ref d, Ref c, Ref s0, int flags)
{
    return node_new(g, (Node){ .op = OP_scan, .a = { d, c, s0 },
                               .flags = (uint8_t)flags });
}

Ref maxscan(Graph *g, Ref d, Ref c, Ref s0)
{
    return node_new(g, (Node){ .op = OP_maxscan, .a = { d, c, s0 } });
}

Ref node_copy(Graph *g, const Node *n, const Ref a[4])
{
    if (op_is(n->op, WHOLE_ROW))
        return row_fold(g, n->op, a[0], n->over);
    switch (n->op) {
    case OP_num: return num(g, n->num);
    case OP_size: return axis_size(g, n->index);
    case OP_sum: return sum(g, a[0], n->over);
    case OP_dot: return dot(g, a[0], a[1], n->over);
    case OP_gdot:
        return gdot(g, a[0], a[1], a[2], a[3], n->over, n->flags & STRICT);
    case OP_select:
        return select_at(g, a[0], lowest(n->over), n->index);
    case OP_relabel:
        return relabel(g, a[0], lowest(n->over), n->index);
    default: break;
    }
    Node m = { .op = n->op, .flags = n->flags, .index = n->index,
               .over = n->over, .num = n->num,
               .a = { a[0], a[1], a[2], a[3] } };
    return node_new(g, m);
}

