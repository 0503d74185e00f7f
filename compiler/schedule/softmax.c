/* softmax.c -- exponentials that a result divides by their sum. As they are
 * they may be as large as a float; divided before products see them they are at
 * most 1, and what gradients divide by the sum stays as large as it is. So each
 * node is computed without some power of that sum, a number of its token: these
 * cancel, or are multiplied in where they do not.
 */
#include "schedule.h"

typedef struct Softmax {
    Graph *g;                           /* grows */
    const Graph *old;
    Ref of, sum;                        /* exp(of) is summed, to that */
    Ref *image;                         /* per node of old */
    int8_t *power;                      /* of the sum, that it is without */
    bool failed;
} Softmax;

/* Node r, without so many of the sum. */
static Ref image_without(Softmax *x, Ref r, int power)
{
    Ref to = x->image[r];
    for (int i = power; i < x->power[r]; i++)
        to = op2(x->g, OP_mul, to, x->sum);
    for (int i = x->power[r]; i < power; i++)
        to = op2(x->g, OP_div, to, x->sum);
    return to;
}

/* exp(of), or that times another exponential. */
static bool is_divided(const Softmax *x, const Node *n)
{
    const Node *e = &x->old->n[n->a[0]];
    return n->op == OP_exp && (n->a[0] == x->of || (e->op == OP_add
           && (e->a[0] == x->of || e->a[1] == x->of)));
}

static bool is_sum(int op)
{
    return op_is(op, FOLDS) && op_is(op, ADDITIVE) && !op_is(op, MOVES);
}

static bool is_whole(const Softmax *x, Ref r)
{
    return x->g->n[x->image[r]].axes == x->old->n[r].axes;
}

/* Whether what n makes of images as they are is its value without some power,
 * too: where it adds tokens up each term must have none. */
static bool keeps_power(const Softmax *x, const Node *n, int *power)
{
    int a = x->power[n->a[0]], b = x->power[n->a[1]];
    bool whole = is_whole(x, n->a[0]) && (!n->a[1] || is_whole(x, n->a[1]));
    bool tokens = n->over & AXIS(AX_I);
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

static void divide(Softmax *x, Ref r)
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
    if (r == x->sum || is_divided(x, &n)) {
        x->failed |= r != x->sum && !same;
        x->power[r] = 1;
        x->image[r] = r == x->sum ? num(x->g, 1)
                                  : op2(x->g, OP_div, r, x->sum);
    }
}

/* The plan without the sum r; p itself where there is a reason. */
static const Plan *divided_by(Ctx *c, const Plan *p, Ref r)
{
    Graph *g = graph_copy(c, p->g);
    Softmax x = { .g = g, .old = p->g, .sum = r,
                  .of = p->g->n[p->g->n[r].a[0]].a[0] };
    x.image = ctx_alloc(c, p->g->len * sizeof *x.image);
    x.power = ctx_alloc(c, p->g->len);
    for (Ref i = 1; i < p->g->len; i++)
        divide(&x, i);
    for (int i = 0; i < g->nout; i++)
        g->out[i].node = image_without(&x, g->out[i].node, 0);
    for (int i = 0; i < g->nst; i++)
        g->st[i].next = image_without(&x, g->st[i].next, 0);
    return x.failed ? p : plan_renewed(p, g, x.image, 1);
}

const Plan *plan_softmax(Ctx *c, const Plan *p)
{
    for (Ref r = 1; r < p->g->len; r++) {
        const Node *n = &p->g->n[r];
        if (!is_sum(n->op) || n->axes != AXIS(AX_I)
            || p->g->n[n->a[0]].op != OP_exp)
            continue;
        const Plan *to = divided_by(c, p, r);
        if (!leaves_float16(to))
            return to;
    }
    return p;
}
