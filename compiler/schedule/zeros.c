/* zeros.c -- gradients that nothing contributes to, before a plan is cut.
 *
 * Those of what is only compared: a reset, a step's condition. They are made of
 * the first entry of a result's adjoint, so that they are known when others
 * are. Roles have no entry of a matrix by itself: an input of these axes, less
 * than itself, is the same zeros.
 */
#include "schedule.h"

static bool is_nothing(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];

    return is_num(g, r, 0)
        || (n->op == OP_mul && (is_num(g, n->a[0], 0) || is_num(g, n->a[1], 0)));
}

static bool is_less_than_itself(const Graph *g, const Node *n)
{
    return n->op == OP_lt ? n->a[0] == n->a[1]
         : n->op == OP_add && is_less_than_itself(g, &g->n[n->a[0]])
           && is_nothing(g, n->a[1]);
}

static Ref zeros_of_input(void *ud, Graph *g, const Node *n, const Ref a[4],
                          const Ref *image)
{
    const Graph *old = ud;

    (void)a, (void)image;
    if (!(n->axes & AXIS(AX_I)) || !is_less_than_itself(old, n))
        return 0;
    for (int i = 0; i < old->nin; i++)
        if (old->n[old->in[i].node].axes == n->axes)
            return op2(g, OP_lt, old->in[i].node, old->in[i].node);
    return 0;
}

/* The way back begins with the same kernel. */
const Plan *plan_zeros_of_inputs(Ctx *c, const Plan *p)
{
    const Plan *to = plan_rewritten(c, p, zeros_of_input, p->g);

    return to->split == p->split ? to : p;
}
