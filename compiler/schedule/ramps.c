/* ramps.c -- angles that turn by the same for all tokens, before a plan is cut:
 * no sums along the chunk, but how many tokens there are so far, times that.
 * Element by element they are made where they are read.
 */
#include "schedule.h"
#include "../cost.h"

/* A sum from a state on, modulo whole turns, of a vector that all tokens have.
 */
bool is_ramp(const Graph *g, const Node *n)
{
    return op_is(n->op, RECURS) && n->flags == WRAP && !n->a[0]
        && n->a[1] && n->a[2] && g->n[n->a[1]].axes
        && !(g->n[n->a[1]].axes & ~DIM_AXES);
}

bool is_angle_state(const Graph *g, Ref r)
{
    bool any = false;
    for (int i = 0; i < g->nst; i++)
        any |= g->st[i].node == r
            && g->n[shown_node(g, g->st[i].next)].op == OP_wrap;
    return any;
}

bool counts_tokens(const Graph *g, Ref o)
{
    const Node *n = &g->n[shown_node(g, o)];
    bool sums = op_is(n->op, RECURS) && !n->flags && !n->a[0] && n->a[1]
             && n->a[2];
    return sums && g->n[n->a[1]].op == OP_num && g->n[n->a[1]].num == 1
        && g->n[n->a[2]].op == OP_num && g->n[n->a[2]].num == 0;
}

/* The sum of which r is the last row; 0: it is none of a ramp. */
static Ref ends_ramp(const Graph *g, const Node *n)
{
    const Node *of = &g->n[n->a[0]];
    bool ends = n->a[0] && op_info[n->op].arity == 1 && !n->over && !n->flags
             && is_ramp(g, of) && n->axes == (of->axes & ~AXIS(AX_I));
    return ends ? n->a[0] : 0;
}

/* The same sum of ones from zero on: how many tokens. */
static Ref count_tokens(Graph *g, const Node *n)
{
    const Node count = { .op = n->op };
    return node_copy(g, &count, (Ref[4]){ 0, num(g, 1), num(g, 0) });
}

static Ref ramp_of(Graph *g, const Node *n, const Ref *image, Ref count)
{
    Ref each = op1(g, OP_wrap, image[n->a[1]]);
    return op1(g, OP_wrap, op2(g, OP_add, image[n->a[2]],
                               op2(g, OP_mul, count, each)));
}

static Ref counted_ramp(void *ud, Graph *g, const Node *n, const Ref a[4],
                        const Ref *image)
{
    const Graph *old = ud;
    Ref ends = ends_ramp(old, n);
    const Node of = ends ? old->n[ends] : *n;

    (void)a;
    if (!is_ramp(old, &of))
        return 0;
    Ref count = count_tokens(g, &of);
    return ramp_of(g, &of, image, !ends ? count
                                : node_copy(g, n, (Ref[4]){ count }));
}

const Plan *plan_ramps(Ctx *c, const Plan *p)
{
    return plan_rewritten(c, p, counted_ramp, p->g);
}
