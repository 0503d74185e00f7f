/* ramps.c -- sums of what all tokens have the same of, before a plan is cut: no
 * scan, but how many tokens there are so far, times it. Element by element they
 * are made where they are read.
 */
#include "schedule.h"

/* Tokens of the chunk up to each; all of them. */
static Ref count_tokens(Graph *g)
{
    return op1(g, OP_cumsum, num(g, 1));
}

static Ref wrapped(Graph *g, bool wraps, Ref x)
{
    return wraps ? op1(g, OP_wrap, x) : x;
}

/* A sum without gates, from a state on, of a vector that all tokens have. */
static bool is_ramp(const Graph *g, const Node *n)
{
    return n->op == OP_scan && !n->a[0] && n->a[1] && n->a[2]
        && !(n->flags & (EXCLUSIVE | REVERSE))
        && !(g->n[n->a[1]].axes & ~DIM_AXES) && g->n[n->a[1]].axes;
}

static Ref ramp(Graph *g, const Node *n, const Ref a[4], Ref count)
{
    bool wraps = n->flags & WRAP;
    Ref each = wrapped(g, wraps, a[1]);
    return wrapped(g, wraps, op2(g, OP_add, a[2],
                                 op2(g, OP_mul, count, each)));
}

const Plan *plan_ramps(Ctx *c, const Plan *p)
{
    Graph *g = graph_copy(c, p->g);
    Ref *image = ctx_alloc(c, p->g->len * sizeof *image);
    bool any = false;
    for (Ref r = 1; r < p->g->len; r++) {
        const Node n = p->g->n[r];
        const Node of = p->g->n[n.op == OP_last ? n.a[0] : r];
        Ref a[4];
        bool same = true;
        for (int i = 0; i < 4; i++) {
            a[i] = image[of.a[i]];
            same &= a[i] == of.a[i];
        }
        if (is_ramp(p->g, &of)) {
            Ref count = count_tokens(g);
            image[r] = ramp(g, &of, a, n.op == OP_last
                            ? op1(g, OP_last, count) : count);
            any = true;
            continue;
        }
        for (int i = 0; i < 4 && n.op == OP_last; i++) {
            a[i] = image[n.a[i]];
            same = i ? same && a[i] == n.a[i] : a[i] == n.a[i];
        }
        image[r] = same ? r : node_copy(g, &n, a);
    }
    for (int i = 0; i < g->nout; i++)
        g->out[i].node = image[g->out[i].node];
    for (int i = 0; i < g->nst; i++)
        g->st[i].next = image[g->st[i].next];
    return any ? plan_renewed(p, g, image, 1) : p;
}
