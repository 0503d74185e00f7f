/* grad.c -- reverse mode: from the results back to the arguments.
 *
 * Nodes are visited from the last to the first; each hands the gradient that
 * has come in to its operands. An adjoint may lack axes of its node: it is
 * then the same along them. What saturates hands nothing on, to a factor
 * beside -inf, either.
 *
 * Between tokens i and j decays are exp(G_i - G_j): what G_i gets and what G_j
 * gets cancel where i is j, but for rounding, beside which strong gates leave
 * nothing else. Where the graph is strict those are left out.
 */
#include "grad.h"
#include "collect.h"
#include "fold.h"
#include "infinite.h"
#include "partition.h"
#include "plan.h"
#include "turn.h"

#include <string.h>

typedef struct Back {
    Graph *g;
    Ref *adj;                           /* beside the forward nodes */
    Ref *own;                           /* what is yet to be added to those */
    bool *infinite;                     /* whether that node may be */
    uint32_t len;                       /* of the forward graph */
} Back;

static AxisSet axes_of(const Back *w, Ref r)
{
    return w->g->n[r].axes;
}

/* Token axes that x lacks, given to it: its sum over them has a length that
 * only the backend knows. */
static Ref with_tokens(Graph *g, Ref x, AxisSet need)
{
    Ref zero = cumsum(g, num(g, 0), 0);

    need &= ~g->n[x].axes;
    if (need & AXIS(AX_I))
        x = op2(g, OP_add, x, zero);
    if (need & AXIS(AX_J))
        x = op2(g, OP_add, x, op1(g, OP_col, zero));
    return x;
}

/* All axes of `need`, given to x where it lacks them: what is stored has a
 * value for every element. */
static Ref with_axes(Graph *g, Ref x, AxisSet need)
{
    x = with_tokens(g, x, need);
    for (AxisSet lacks = need & DIM_AXES & ~g->n[x].axes; lacks;
         lacks &= lacks - 1) {
        Ref zero = op2(g, OP_mul, unit(g, lowest(lacks), 0), num(g, 0));
        x = op2(g, OP_add, x, zero);
    }
    return x;
}

/* x (a gradient of a value with axes `from`) summed to the axes `to`. */
static Ref reduce(Back *w, Ref x, AxisSet from, AxisSet to)
{
    AxisSet lose = from & ~to;

    return sum_of_terms(w->g, with_tokens(w->g, x, lose), lose);
}

static void add_adjoint(Back *w, Ref r, Ref x)
{
    if (!r || !x || is_num(w->g, x, 0))
        return;
    w->adj[r] = w->adj[r] ? add_collected(w->g, w->len, w->adj[r], x) : x;
}

/* The product of gradient and b, summed to a's axes. `all`: the axes that
 * take part. */
static Ref product_to(Back *w, Ref d, Ref b, AxisSet all, AxisSet to)
{
    AxisSet lose = all & ~to;

    d = with_tokens(w->g, d, lose & ~axes_of(w, b));
    return dot(w->g, d, b, lose);
}

/* Whether r's slope along operand i may be infinite. */
static bool is_steep(const Back *w, Ref r, int i)
{
    const Node *n = &w->g->n[r];

    if (is_plain_contraction(n->op))
        return w->infinite[n->a[1 - i]];
    switch (n->op) {
    case OP_mul: return w->infinite[n->a[1 - i]];
    case OP_div: return i == 1 && w->infinite[r];
    case OP_square: return w->infinite[n->a[0]];
    case OP_log: return w->infinite[r];
    default: return false;
    }
}

/* d times such a slope: none where d is none, as behind exp of -inf. */
static Ref where_any(Graph *g, Ref d, Ref product)
{
    Ref none = op2(g, OP_eq, d, num(g, 0));

    return op3(g, OP_where, none, num(g, 0), product);
}

static void back_elem(Back *w, Ref r, Ref d)
{
    const Node n = w->g->n[r];

    for (int i = 0; i < op_info[n.op].arity; i++) {
        Ref x = fold_gradient(w->g, r, i, d);
        x = is_steep(w, r, i) ? where_any(w->g, d, x) : x;
        add_adjoint(w, n.a[i], reduce(w, x, n.axes, axes_of(w, n.a[i])));
    }
}

static void back_nothing(Back *w, Ref r, Ref d)
{
    (void)w, (void)r, (void)d;
}

static void back_sum(Back *w, Ref r, Ref d)
{
    add_adjoint(w, w->g->n[r].a[0], d);
}

static void back_dot(Back *w, Ref r, Ref d)
{
    const Node n = w->g->n[r];
    AxisSet all = n.axes | n.over;

    for (int i = 0; i < 2; i++) {
        Ref to = n.a[i], by = n.a[1 - i], x;
        if (is_steep(w, r, i))
            x = reduce(w, where_any(w->g, d, op2(w->g, OP_mul, d, by)), all,
                       axes_of(w, to));
        else
            x = product_to(w, d, by, all, axes_of(w, to));
        add_adjoint(w, to, x);
    }
}

/* To the largest, in equal parts: how many these are is one more sum. */
static void back_amax(Back *w, Ref r, Ref d)
{
    Graph *g = w->g;
    const Node n = g->n[r];
    Ref is = op2(g, OP_eq, n.a[0], r);
    Ref each = op2(g, OP_div, d, sum(g, is, n.over));

    add_adjoint(w, n.a[0], op3(g, OP_where, is, each, num(g, 0)));
}

/* exp(x - y), of y alone. Where all are -inf it is 0: y is less than any finite
 * number of float32 that matters. */
static void back_lse(Back *w, Ref r, Ref d)
{
    Graph *g = w->g;
    const Node n = g->n[r];
    Ref none = op2(g, OP_lt, r, num(g, -3e38));
    Ref from = op3(g, OP_where, none, num(g, 0), r);

    add_adjoint(w, n.a[0], op2(g, OP_mul, d, op1(g, OP_exp,
                               op2(g, OP_sub, n.a[0], from))));
}

/* The three-way form with operand i taken out, over all axes but `keep`. */
static Ref gdot_without(Back *w, const Node *n, int i, Ref d, AxisSet keep)
{
    AxisSet all = n->axes | n->over;

    d = with_tokens(w->g, d, n->axes);
    return gdot(w->g, i == 0 ? d : n->a[0], i == 1 ? d : n->a[1], n->a[2],
                n->a[3], all & ~keep, n->flags & STRICT);
}

/* Of scores' adjoint what each token has with itself, whose decay is 1, or 0:
 * the form has no such scores. */
static Ref own_score(Back *w, const Node *n, Ref d)
{
    Graph *g = w->g;
    const AxisSet scores = AXIS(AX_I) | AXIS(AX_J);
    bool plain = g->strict && !(n->flags & STRICT) && n->axes == scores
              && !(axes_of(w, n->a[0]) & AXIS(AX_J))
              && !(axes_of(w, n->a[1]) & AXIS(AX_I));

    if (!plain)
        return 0;
    Ref before = dmask(g, 0, 0, 1);
    Ref own = op2(g, OP_sub, dmask(g, 0, 0, 0), before);
    return dot(g, with_tokens(g, d, scores), own, AXIS(AX_J));
}

/* What the gradient of operand i has before it is summed: its axes, and the
 * tokens of its side where it is the same for all of them. */
static AxisSet operand_side(const Back *w, const Node *n, int i)
{
    return axes_of(w, n->a[i]) | AXIS(i ? AX_J : AX_I);
}

/* The gradient of gate i (of operand i's side): what carries all of its axes,
 * times its own. Neither operand needs to, nor the result: there the product
 * is made along the gate. */
static Ref gate_gradient(Back *w, Ref r, Ref d, int gate, const Ref out[2])
{
    const Node n = w->g->n[r];
    AxisSet axes = axes_of(w, n.a[2 + gate]), from;

    for (int i = 0; i < 2; i++) {
        from = operand_side(w, &n, i);
        if (!(axes & ~from))
            return reduce(w, op2(w->g, OP_mul, n.a[i], out[i]), from, axes);
    }
    if (!(axes & ~n.axes))
        return product_to(w, d, r, n.axes, axes);
    from = operand_side(w, &n, gate) | axes;
    Ref x = gdot_without(w, &n, gate, d, from);
    return reduce(w, op2(w->g, OP_mul, n.a[gate], x), from, axes);
}

/* Handed on behind all else: sums of products stay such. */
static void add_own(Back *w, Ref to, Ref own, Ref by)
{
    Ref x = op2(w->g, OP_mul, own, by);

    x = reduce(w, x, axes_of(w, x), axes_of(w, to));
    w->own[to] = w->own[to] ? op2(w->g, OP_add, w->own[to], x) : x;
}

static void back_gdot(Back *w, Ref r, Ref d)
{
    Node n = w->g->n[r];
    Ref out[2], own = own_score(w, &n, d);

    if (own)
        n.flags |= STRICT;
    for (int i = 0; i < 2; i++) {
        AxisSet side = operand_side(w, &n, i);
        out[i] = gdot_without(w, &n, i, d, side);
        add_adjoint(w, n.a[i], reduce(w, out[i], side, axes_of(w, n.a[i])));
    }
    if (own) {
        add_own(w, n.a[0], own, view_of(w->g, OP_row, n.a[1]));
        add_own(w, n.a[1], op1(w->g, OP_col, own),
                view_of(w->g, OP_col, n.a[0]));
    }
    add_adjoint(w, n.a[2], gate_gradient(w, r, d, 0, out));
    add_adjoint(w, n.a[3], op1(w->g, OP_neg,
                               gate_gradient(w, r, d, 1, out)));
}

static void back_dmask(Back *w, Ref r, Ref d)
{
    const Node n = w->g->n[r];

    if (!n.a[0])
        return;
    if (w->g->strict && !(n.flags & STRICT))
        d = op2(w->g, OP_mul, d, dmask(w->g, 0, 0, 1));
    add_adjoint(w, n.a[0], product_to(w, d, r, n.axes, axes_of(w, n.a[0])));
    add_adjoint(w, n.a[1], op1(w->g, OP_neg,
                               product_to(w, d, r, n.axes,
                                          axes_of(w, n.a[1]))));
}

/* Whether r is something times the mask, so that its own gradient has it. */
static bool is_masked(const Graph *g, Ref r, Ref mask)
{
    const Node *n = &g->n[r];

    return r == mask || (n->op == OP_neg && is_masked(g, n->a[0], mask))
        || (n->op == OP_mul && (is_masked(g, n->a[0], mask)
                                || is_masked(g, n->a[1], mask)));
}

/* x = (1 - a)^{-1} b: db = (1 - a)^{-T} dx, da = db x^T below the diagonal. */
static void back_solve(Back *w, Ref r, Ref d)
{
    Graph *g = w->g;
    const Node n = g->n[r];
    AxisSet keep = axes_of(w, n.a[0]);

    if (n.flags & TRANS)
        fail(g->ctx, n.line, "the gradient of a gradient is not there");
    d = with_tokens(g, d, AXIS(AX_I));
    Ref db = solve(g, n.a[0], d, n.flags | TRANS);
    AxisSet ranks = keep & ROW_AXES & ~AXIS(AX_I);
    Ref below = n.flags & LATER ? later(g, ranks) : dmask(g, 0, 0, 1);
    Ref x = op1(g, OP_col, r);
    AxisSet all = axes_of(w, db) | axes_of(w, x);
    add_adjoint(w, n.a[1], reduce(w, db, n.axes, axes_of(w, n.a[1])));
    Ref da = dot(g, db, x, all & ~keep);
    if (!(n.flags & LATER && is_masked(g, n.a[0], below)))
        da = op2(g, OP_mul, da, below);
    add_adjoint(w, n.a[0], da);
}

/* Gates of rows as a row reads the state, before it decays; 0: there are none.
 */
static Ref gates_read(Graph *g, const Node *n)
{
    const Node gate = g->n[n->a[3]];
    bool sum = adds_tokens(gate.op);

    if (sum && g->n[gate.a[0]].op == OP_num)
        return 0;
    return !(n->flags & EXCLUSIVE) ? n->a[3]
         : sum ? cumsum(g, gate.a[0], gate.flags | EXCLUSIVE)
         : delay(g, n->a[3], num(g, 0), 0);
}

/* As of what it adds to b: a decayed contraction with the result. */
static void back_gsolve(Back *w, Ref r, Ref d)
{
    Graph *g = w->g;
    const Node n = g->n[r];
    Ref x = op1(g, OP_col, r), read = gates_read(g, &n);
    Ref gate = read ? op1(g, OP_col, n.a[3]) : 0;
    AxisSet row = n.axes, column = axes_of(w, x);
    Node sums = { .op = OP_gdot, .a = { n.a[0], x, read, gate },
                  .axes = row, .over = AXIS(AX_J), .flags = STRICT };

    if (n.flags & TRANS)
        fail(g->ctx, n.line, "the gradient of a gradient is not there");
    d = gsolve(g, n.a[0], with_tokens(g, d, AXIS(AX_I)), n.a[2], n.a[3],
               n.flags | TRANS);
    Ref sum = read ? gdot(g, n.a[0], x, read, gate, AXIS(AX_J), STRICT)
            : dot(g, op2(g, OP_mul, n.a[0], dmask(g, 0, 0, STRICT)), x,
                  AXIS(AX_J));
    Ref rated = op2(g, OP_mul, d, n.a[2]);
    add_adjoint(w, n.a[1], reduce(w, d, row, axes_of(w, n.a[1])));
    add_adjoint(w, n.a[2], product_to(w, d, sum, row, axes_of(w, n.a[2])));
    add_adjoint(w, n.a[0], gdot_without(w, &sums, 0, rated,
                                        axes_of(w, n.a[0])));
    if (!read)
        return;
    add_adjoint(w, read, product_to(w, rated, sum, row, axes_of(w, read)));
    Ref left = op1(g, OP_row, gdot_without(w, &sums, 1, rated, column));
    add_adjoint(w, n.a[3], op1(g, OP_neg, product_to(w, r, left, row,
                                                     axes_of(w, n.a[3]))));
}

/* ---- along the tokens ---- */

/* The row that the walk takes first. */
static Ref first_row(Graph *g, Ref x, int flags)
{
    return last_row(g, x, (flags & REVERSE) ^ REVERSE);
}

/* Of sums without the token itself those with it, where the graph has them,
 * and they are yet to hand on what comes in; or 0. */
static Ref inclusive_sums(const Back *w, Ref r)
{
    const Node *n = &w->g->n[r], *m;

    for (Ref s = r - 1; s > 0 && n->flags & EXCLUSIVE; s--) {
        m = &w->g->n[s];
        if (adds_tokens(m->op) && m->a[0] == n->a[0]
            && m->flags == (n->flags & ~EXCLUSIVE))
            return s;
    }
    return 0;
}

/* Sums without the token itself are those with it, less the token: one scan
 * back serves both. */
static void back_cumsum(Back *w, Ref r, Ref d)
{
    const Node n = w->g->n[r];
    Ref with = inclusive_sums(w, r);

    if (with) {
        add_adjoint(w, with, d);
        add_adjoint(w, n.a[0], reduce(w, op1(w->g, OP_neg, d), n.axes,
                                      axes_of(w, n.a[0])));
        return;
    }
    d = with_tokens(w->g, d, AXIS(AX_I));
    add_adjoint(w, n.a[0], reduce(w, cumsum(w->g, d, n.flags ^ REVERSE),
                                  n.axes, axes_of(w, n.a[0])));
}

/* s_i = a_i s_{i-1} + b_i (a absent: 1) or max(a_i + s_{i-1}, b_i): the
 * adjoint of s runs backwards through what each token passed on. */
static void back_scan(Back *w, Ref r, Ref d)
{
    Graph *g = w->g;
    const Node n = g->n[r];
    int flags = n.flags & REVERSE, back = flags ^ REVERSE;
    Ref before = delay(g, r, n.a[2], flags);
    Ref zero = num(g, 0), one = num(g, 1), pass = n.a[0], took = 0, l;

    if (n.op == OP_maxscan) {           /* half of equals, as max has it */
        Ref s = n.a[0] ? op2(g, OP_add, n.a[0], before) : before;
        pass = took = g->n[n.a[1]].op == OP_num ? op2(g, OP_le, n.a[1], s)
            : op3(g, OP_where, op2(g, OP_eq, n.a[1], s), num(g, 0.5),
                  op2(g, OP_lt, n.a[1], s));
    }
    d = with_tokens(g, d, AXIS(AX_I));
    if (pass) {
        Ref next = delay(g, with_tokens(g, pass, AXIS(AX_I)), zero, back);
        l = scan(g, next, d, zero, back);
    } else {
        l = cumsum(g, d, back);
    }
    Ref down = took ? op2(g, OP_mul, l, took) : l;
    Ref da = took ? down : op2(g, OP_mul, l, before);
    Ref db = took ? op2(g, OP_mul, l, op2(g, OP_sub, one, took)) : l;
    Ref ds = first_row(g, pass && !took ? op2(g, OP_mul, l, pass) : down,
                       flags);
    if (n.a[0])
        add_adjoint(w, n.a[0], reduce(w, da, n.axes, axes_of(w, n.a[0])));
    add_adjoint(w, n.a[1], reduce(w, db, n.axes, axes_of(w, n.a[1])));
    add_adjoint(w, n.a[2], reduce(w, ds, n.axes & ~AXIS(AX_I),
                                  axes_of(w, n.a[2])));
}

/* s_i = P_i s_{i-1} + b_i: the adjoint runs back through the transposes. */
static void back_matscan(Back *w, Ref r, Ref d)
{
    Graph *g = w->g;
    const Node n = g->n[r];
    int back = (n.flags & REVERSE) ^ REVERSE, row = n.index;
    int col = lowest(n.over);
    Ref next = delay(g, n.a[0], num(g, 0), back);
    Ref zero = num(g, 0), found = delay(g, r, n.a[2], n.flags & REVERSE);

    d = with_axes(g, d, AXIS(AX_I) | AXIS(row));
    Ref l = node_new(g, (Node){ .op = OP_matscan, .a = { next, d, zero },
                                .over = n.over, .index = n.index,
                                .flags = (uint8_t)(back | TRANS) });
    Ref before = relabel(g, found, row, col);
    AxisSet all = axes_of(w, l) | axes_of(w, before);
    add_adjoint(w, n.a[0], product_to(w, l, before, all,
                                      axes_of(w, n.a[0])));
    add_adjoint(w, n.a[1], reduce(w, l, n.axes, axes_of(w, n.a[1])));
    Ref passed = relabel(g, dot(g, n.a[0], l, AXIS(row)), col, row);
    add_adjoint(w, n.a[2], reduce(w, first_row(g, passed, n.flags & REVERSE),
                                  n.axes & ~AXIS(AX_I),
                                  axes_of(w, n.a[2])));
}

static void back_delay(Back *w, Ref r, Ref d)
{
    Graph *g = w->g;
    const Node n = g->n[r];
    int flags = n.flags & REVERSE;

    d = with_tokens(g, d, AXIS(AX_I));
    Ref da = delay(g, d, num(g, 0), flags ^ REVERSE);
    add_adjoint(w, n.a[0], reduce(w, da, n.axes, axes_of(w, n.a[0])));
    add_adjoint(w, n.a[1], reduce(w, first_row(g, d, flags),
                                  n.axes & ~AXIS(AX_I), axes_of(w, n.a[1])));
}

/* last takes one row: its gradient is that row, and zero elsewhere. */
static void back_last(Back *w, Ref r, Ref d)
{
    Graph *g = w->g;
    const Node n = g->n[r];

    add_adjoint(w, n.a[0], delay(g, with_tokens(g, num(g, 0), AXIS(AX_I)), d,
                                 (n.flags & REVERSE) ^ REVERSE));
}

/* ---- moves ---- */

static void back_cat(Back *w, Ref r, Ref d)
{
    Graph *g = w->g;
    const Node n = g->n[r];
    int ax = lowest(n.over);
    int32_t from = 0;

    if (!(axes_of(w, d) & n.over)) {    /* the same for all entries */
        add_adjoint(w, n.a[0], d);
        add_adjoint(w, n.a[1], d);
        return;
    }
    for (int i = 0; i < 2; i++) {
        bool whole = axes_of(w, n.a[i]) & n.over;
        int32_t len = whole ? axis_extent(g, n.a[i], ax) : 1;
        Ref x = whole ? part(g, d, ax, from, len)
                      : select_at(g, d, ax, from);
        add_adjoint(w, n.a[i], reduce(w, x, n.axes & ~n.over,
                                      axes_of(w, n.a[i]) & ~n.over));
        from += len;
    }
}

static void back_turned(Back *w, Ref r, Ref d)
{
    const Node n = w->g->n[r];

    add_adjoint(w, n.a[0], op1(w->g, n.op == OP_row ? OP_col : OP_row, d));
}

static void back_relabel(Back *w, Ref r, Ref d)
{
    const Node n = w->g->n[r];

    add_adjoint(w, n.a[0], relabel(w->g, d, n.index, lowest(n.over)));
}

static void back_select(Back *w, Ref r, Ref d)
{
    const Node n = w->g->n[r];

    add_adjoint(w, n.a[0], op2(w->g, OP_mul, d,
                               unit(w->g, lowest(n.over), n.index)));
}

static void back_rot90(Back *w, Ref r, Ref d)
{
    Graph *g = w->g;
    const Node n = g->n[r];

    if (!(axes_of(w, d) & n.over))
        d = op2(g, OP_add, d, op2(g, OP_mul, n.a[0], num(g, 0)));
    add_adjoint(w, n.a[0], op1(g, OP_neg, unary_axis(g, n.op, d,
                                                     lowest(n.over), 0)));
}

/* dup and pairsum are each other's transpose; d must have the axis. */
static void back_pairs(Back *w, Ref r, Ref d)
{
    Graph *g = w->g;
    const Node n = g->n[r];
    int from = lowest(n.over);

    if (!(axes_of(w, d) & AXIS(n.index)))
        d = op2(g, OP_add, d, op2(g, OP_mul, r, num(g, 0)));
    add_adjoint(w, n.a[0], unary_axis(g, n.op == OP_dup ? OP_pairsum : OP_dup,
                                      d, n.index, from));
}

/* y, which is x turned by an angle: that of the angle is rot90(y) d. What the
 * products of keys and queries add to it cancels, if they took the same y. */
static void back_rotation(Back *w, Ref y, const Rotation *o, Ref d)
{
    Graph *g = w->g;
    AxisSet all = axes_of(w, y);
    Ref turned = unary_axis(g, OP_rot90, y, o->axis, 0);

    if (!(axes_of(w, d) & AXIS(o->axis)))
        d = op2(g, OP_add, d, op2(g, OP_mul, o->x, num(g, 0)));
    Ref dx = unary_axis(g, OP_rot90, op2(g, OP_mul, d, o->sin), o->axis, 0);
    dx = op2(g, OP_sub, op2(g, OP_mul, d, o->cos), dx);
    add_adjoint(w, o->x, reduce(w, dx, all, axes_of(w, o->x)));
    add_adjoint(w, o->angle, product_to(w, d, op1(g, OP_factor, turned), all,
                                        axes_of(w, o->angle)));
}

static _Noreturn void back_never(Back *w, Ref r, Ref d)
{
    (void)d;
    fail(w->g->ctx, w->g->n[r].line, "%s has no gradient",
         op_info[w->g->n[r].op].name);
}

static void (*const back_of[NOPS])(Back *, Ref, Ref) = {
#define ELEM(name, arity, traits, value, ga, gb, gc) [OP_##name] = back_elem,
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    [OP_##name] = back_##back,
#include "ops.def"
};

static void back_node(Back *w, Ref r, Ref d)
{
    Rotation o;

    if (rotation_of(w->g, r, &o))
        back_rotation(w, r, &o, d);
    else
        back_of[w->g->n[r].op](w, r, d);
}

/* ---- the joint graph ---- */

int adjoint_of_state(const Graph *joint, int i)
{
    int s = 0;

    while (s < joint->nst && joint->st[s].of_state != i + 1)
        s++;
    ensure(joint, s < joint->nst, OP_state, 0);
    return s;
}

int adjoint_of_input(const Graph *joint, int i)
{
    int s = 0;

    while (s < joint->nst && joint->st[s].of_input != i + 1)
        s++;
    ensure(joint, s < joint->nst, OP_input, 0);
    return s;
}

static char *derived_name(Graph *g, const char *name)
{
    return ctx_format(g->ctx, "d_%s", name);
}

static char *axes_list(Graph *g, const uint8_t *order, int rank, bool timed)
{
    Buf b = { .ctx = g->ctx };

    buf_printf(&b, "%s", timed ? "t" : "");
    for (int i = 0; i < rank; i++)
        buf_printf(&b, " %s", g->axis[order[i]].name);
    return b.s;
}

static int adjoint_state(Graph *g, const char *name, const uint8_t *order,
                         int rank)
{
    char *own = derived_name(g, name);

    while (graph_find_state(g, own) >= 0)   /* an input and a state may share
                                               a name */
        own = ctx_format(g->ctx, "%s_", own);
    int s = graph_state(g, own, axes_list(g, order, rank, false));
    g->st[s].reverse = true;
    return s;
}

/* What comes in: results' gradients, and each state's adjoint as the next chunk
 * left it. A state and its twin are one, and have one adjoint: it comes in
 * where the twin is left, so that what it and the readers of the twin add up to
 * stays one sum. */
static void seed(Back *w, int nst, int adjoint[MAX_STATES])
{
    Graph *g = w->g;
    Turn turn[MAX_STATES];
    bool turns[MAX_STATES];
    int twin[MAX_STATES];

    for (int i = 0, room = MAX_STATES - 2 * nst - g->nin; i < nst; i++) {
        twin[i] = -1;
        if (g->st[i].twin_of)
            twin[g->st[i].twin_of - 1] = i;
        turns[i] = room >= TURN_STATES && turn_find(g, i, &turn[i]);
        room -= turns[i] ? TURN_STATES : 0;
    }
    for (int i = 0; i < nst; i++) {
        const State *s = &g->st[i];
        adjoint[i] = s->twin_of ? adjoint[s->twin_of - 1] : -1;
        if (s->twin_of || s->lost_of)
            continue;
        adjoint[i] = adjoint_state(g, s->name, s->order, s->rank);
        g->st[adjoint[i]].of_state = (int16_t)(i + 1);
    }
    for (int o = 0; o < graph_results(g); o++) {
        const Output *y = &g->out[o];
        int dy = graph_input(g, adjoint_name(g, o),
                             axes_list(g, y->order, y->rank, true));
        add_adjoint(w, y->node, g->in[dy].node);
    }
    for (int i = 0; i < nst; i++)
        if (g->st[i].next && twin[i] < 0 && adjoint[i] >= 0)
            add_adjoint(w, g->st[i].next,
                        turns[i] ? turn_adjoint(g, &turn[i], adjoint)
                                 : g->st[adjoint[i]].node);
}

/* A gradient that nobody contributed to is zero: made of what comes in, so
 * that it is known, and stored, when the others are. */
static Ref or_zero(Graph *g, Ref x, Ref in)
{
    return x ? x : op2(g, OP_lt, in, in);
}

/* dy's first entry. */
static Ref some_dy(const Back *w)
{
    Graph *g = w->g;
    Ref dy = g->in[graph_find_input(g, "dy")].node;

    for (AxisSet s = axes_of(w, dy) & DIM_AXES; s; s &= s - 1)
        dy = select_at(g, dy, lowest(s), 0);
    return dy;
}

static void results(Back *w, int nin, int nst, const int adjoint[MAX_STATES])
{
    Graph *g = w->g;

    for (int i = 0; i < nst; i++)
        if (g->st[i].twin_of)
            add_adjoint(w, g->st[g->st[i].twin_of - 1].node,
                        w->adj[g->st[i].node]);
    for (int i = 0; i < nst; i++)
        if (!g->st[i].twin_of && !g->st[i].lost_of)
            g->st[adjoint[i]].next =
                with_axes(g, or_zero(g, w->adj[g->st[i].node],
                                     g->st[adjoint[i]].node),
                          axes_of(w, g->st[i].node));
    for (int i = 0; i < nin; i++) {
        const Input *in = &g->in[i];
        Ref d = w->adj[in->node];
        if (in->timed) {
            d = with_axes(g, or_zero(g, d, some_dy(w)), axes_of(w, in->node));
            int o = graph_output(g, derived_name(g, in->name), d);
            memcpy(g->out[o].order, in->order, sizeof in->order);
            g->out[o].rank = in->rank;
            g->out[o].late = true;
        } else {
            int s = adjoint_state(g, in->name, in->order, in->rank);
            g->st[s].of_input = (int16_t)(i + 1);
            g->st[s].next = op2(g, OP_add, g->st[s].node,
                                or_zero(g, d, g->st[s].node));
        }
    }
}

bool has_gradient(const Graph *g)
{
    uint8_t *live = ctx_alloc(g->ctx, g->len);

    graph_live(g, live);
    for (Ref r = 1; r < g->len; r++)
        if (live[r] && (back_of[g->n[r].op] == back_never
                        || (is_system(g->n[r].op)
                            && g->n[r].flags & TRANS)))
            return false;
    return true;
}

/* Each state has an adjoint, and each input without t a sum. */
static void check_room(const Graph *g)
{
    int lasting = 0, states = 0;

    for (int i = 0; i < g->nin; i++)
        lasting += !g->in[i].timed;
    for (int i = 0; i < g->nst; i++)
        states += !g->st[i].twin_of && !g->st[i].lost_of;
    if (g->nst + states + lasting > MAX_STATES)
        fail_help(g->ctx, g->line, "the forward pass runs as it is",
                  "%s: its gradient carries 2 values for each of %d states "
                  "(those of flin.prev, too) and 1 for each of %d inputs "
                  "without t, and may carry %d", g->name, states, lasting,
                  MAX_STATES);
}

Graph *grad(const Graph *src)
{
    Back w = { .g = graph_sized(src, (int32_t[NAXES]){ 0 }) };
    int adjoint[MAX_STATES], nin = src->nin, nst = src->nst;
    uint32_t before;

    check_room(w.g);
    before = w.len = w.g->forward = w.g->len;
    w.adj = ctx_alloc(w.g->ctx, w.len * sizeof *w.adj);
    w.own = ctx_alloc(w.g->ctx, w.len * sizeof *w.own);
    w.infinite = infinite_nodes(w.g);
    seed(&w, nst, adjoint);
    for (Ref r = before - 1; r > 0; r--) {
        w.g->line = w.g->n[r].line;
        ctx_poll(w.g->ctx);
        add_adjoint(&w, r, w.own[r]);
        if (w.adj[r])
            back_node(&w, r, w.adj[r]);
    }
    results(&w, nin, nst, adjoint);
    w.g->forward = 0;
    return w.g;
}
