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

const Plan *plan_ramps(Ctx *c, const Plan *p)
{
    Graph *g = graph_copy(c, p->g);
    Ref *image = ctx_alloc(c, p->g->len * sizeof *image);
    bool any = false;
    for (Ref r = 1; r < p->g->len; r++) {
        const Node n = p->g->n[r];
        Ref ends = ends_ramp(p->g, &n), a[4];
        const Node of = p->g->n[ends ? ends : r];
        bool same = true;
        for (int i = 0; i < 4; i++) {
            a[i] = image[n.a[i]];
            same &= a[i] == n.a[i];
        }
        if (is_ramp(p->g, &of)) {
            Ref count = count_tokens(g, &of);
            image[r] = ramp_of(g, &of, image, !ends ? count
                                 : node_copy(g, &n, (Ref[4]){ count }));
            any = true;
        } else {
            image[r] = same ? r : node_copy(g, &n, a);
        }
    }
    for (int i = 0; i < g->nout; i++)
        g->out[i].node = image[g->out[i].node];
    for (int i = 0; i < g->nst; i++)
        g->st[i].next = image[g->st[i].next];
    return any ? plan_renewed(p, g, image, 1) : p;
}
