/* powers.c -- exponentials whose size cancels.
 *
 * What divides by a sum of exponentials has as many of them above as below, and
 * so have its gradients: each node is some power of a number of its token times
 * what it is without, and all that leaves the graph has the power 0. So that
 * number may be any that is convenient: their sum (schedule/softmax.c), or what
 * their largest is near, without which they are too large for float32.
 */
#include "powers.h"

/* Node r, without so many of what is left out. */
static Ref image_without(Powers *x, Ref r, int power)
{
    Ref to = x->image[r];
    if (x->shift && x->power[r] != power) {
        x->failed = true;
        return to;
    }
    for (int i = power; i < x->power[r]; i++)
        to = op2(x->g, OP_mul, to, x->sum);
    for (int i = x->power[r]; i < power; i++)
        to = op2(x->g, OP_div, to, x->sum);
    return to;
}

/* exp(of), or that times another exponential. */
static bool is_divided(const Powers *x, const Node *n)
{
    const Node *e = &x->old->n[n->a[0]];
    return n->op == OP_exp && (n->a[0] == x->of || (e->op == OP_add
           && (e->a[0] == x->of || e->a[1] == x->of)));
}

static bool is_sum(int op)
{
    return op_is(op, FOLDS) && op_is(op, ADDITIVE) && !op_is(op, MOVES);
}

static bool is_whole(const Powers *x, Ref r)
{
    return x->g->n[x->image[r]].axes == x->old->n[r].axes;
}

/* Whether the number is that of the columns' token. */
static bool is_columns(const Node *n)
{
    return n->axes & AXIS(AX_J) && !(n->axes & AXIS(AX_I));
}

/* Those tokens whose numbers what n reads is without. */
static AxisSet tokens_of(const Powers *x, const Node *n)
{
    AxisSet of = 0;
    for (int i = 0; i < 4; i++)
        if (n->a[i] && x->power[n->a[i]])
            of |= AXIS(is_columns(&x->old->n[n->a[i]]) ? AX_J : AX_I);
    return of;
}

/* Whether what n makes of images as they are is its value without some power,
 * too: where it adds tokens up each term must have none. */
static bool keeps_whole(const Powers *x, const Node *n, int *power)
{
    int a = x->power[n->a[0]], b = x->power[n->a[1]];
    bool whole = is_whole(x, n->a[0]) && (!n->a[1] || is_whole(x, n->a[1]));
    bool tokens = n->over & tokens_of(x, n);
    *power = a;
    switch (n->op) {
    case OP_neg: return true;
    case OP_mul: *power = a + b; return true;
    case OP_div: *power = a - b; return true;
    case OP_add: case OP_sub: return a == b && whole;
    }
    if (is_sum(n->op))
        return !tokens && whole;
    *power = a + b;                     /* a solve contracts nothing by name */
    return op_is(n->op, MULTIPLIES) && n->over && whole && (!tokens || !*power)
        && !x->power[n->a[2]] && !x->power[n->a[3]];
}

/* A view of a token's numbers has that token's. */
static bool keeps_power(const Powers *x, const Node *n, int *power)
{
    const AxisSet rows = AXIS(AX_I), columns = AXIS(AX_J);
    AxisSet of = tokens_of(x, n), all = x->old->n[n->a[0]].axes;
    *power = x->power[n->a[0]];
    if (x->shift && op_is(n->op, VIEWS))
        return (all & (rows | columns)) != (rows | columns);
    return keeps_whole(x, n, power) && of != (rows | columns)
        && (!*power || of == (is_columns(n) ? columns : rows));
}

/* The shift is of's own: what else is in the exponent stays beside it. */
static Ref divided(Powers *x, Ref r)
{
    Ref arg = x->old->n[r].a[0];
    if (!x->shift)
        return op2(x->g, OP_div, r, x->sum);
    const Node e = x->old->n[arg];
    Ref of = op2(x->g, OP_sub, x->of, x->shift);
    if (arg != x->of)
        of = op2(x->g, OP_add, x->image[e.a[e.a[0] == x->of]], of);
    return op1(x->g, OP_exp, of);
}

static void cancel(Powers *x, Ref r)
{
    const Node n = x->old->n[r];
    Ref a[4];
    int power = 0;
    bool keeps = keeps_power(x, &n, &power), same = true;
    for (int i = 0; i < 4; i++) {
        a[i] = !n.a[i] ? 0 : keeps ? x->image[n.a[i]]
                                   : image_without(x, n.a[i], 0);
        same &= a[i] == n.a[i];
        x->failed |= n.a[i] && !keeps
                  && x->g->n[a[i]].axes != x->old->n[n.a[i]].axes;
    }
    x->power[r] = (int8_t)(keeps ? power : 0);
    x->image[r] = same ? r : node_copy(x->g, &n, a);
    if (is_divided(x, &n)) {
        x->failed |= !same;
        x->power[r] = 1;
        x->image[r] = divided(x, r);
    } else if (r == x->sum && !x->shift) {
        x->power[r] = 1;
        x->image[r] = num(x->g, 1);
    }
}

bool is_exp_sum(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    AxisSet token = g->chunk ? AXIS(AX_I) : 0;
    return is_sum(n->op) && n->axes == token && g->n[n->a[0]].op == OP_exp;
}

void powers_cancel(Ctx *c, Powers *x)
{
    Graph *g = x->g;
    x->image = ctx_alloc(c, x->old->len * sizeof *x->image);
    x->power = ctx_alloc(c, x->old->len);
    for (Ref i = 1; i < x->old->len; i++)
        cancel(x, i);
    for (int i = 0; i < g->nout; i++)
        g->out[i].node = image_without(x, g->out[i].node, 0);
    for (int i = 0; i < g->nst; i++)
        g->st[i].next = image_without(x, g->st[i].next, 0);
}

/* exp(z / 8) is finite in float32 wherever exp(z) is in float64, as exponents
 * have three bits more there; a half more is for z that rounding has made
 * larger. The largest of n is exp(-12 log(n)) then, at the least. */
static Ref shift_of(Graph *g, Ref of, AxisSet over)
{
    enum { TIMES = 12 };
    Ref small = op2(g, OP_mul, of, num(g, 1.0 / TIMES));
    Ref all = sum(g, op1(g, OP_exp, small), over);
    return op2(g, OP_mul, op1(g, OP_log, all), num(g, TIMES));
}

static Graph *without_dead(Graph *g)
{
    Graph *to = graph_sized(g, (int32_t[NAXES]){ 0 });
    to->sloped = g->sloped;
    return to;
}

Graph *shift_exponentials(Graph *g)
{
    bool any = false;
    for (Ref r = 1, len = g->len; r < len; r++) {
        if (!is_exp_sum(g, r))
            continue;
        const Node *n = &g->n[r];
        Graph *to = graph_copy(g->ctx, g);
        Powers x = { .g = to, .old = g, .sum = r, .of = g->n[n->a[0]].a[0] };
        to->line = n->line;
        x.shift = shift_of(to, x.of, n->over);
        powers_cancel(g->ctx, &x);
        any |= !x.failed;
        g = x.failed ? g : to;
    }
    return any ? without_dead(g) : g;
}
