/* zeros.c -- zeros that have an input's axes, before a plan is cut.
 *
 * A gradient that nothing contributes to, of what is only compared (a reset, a
 * step's condition), is made of the first entry of a result's adjoint, so that
 * it is known when others are; one that a sum's operand has is the same along
 * the axis, to which zeros of that axis are added. Roles have no entry of a
 * matrix by itself: an input, less than itself, is the same zeros.
 */
#include "schedule.h"

/* As gradients are made, see grad.c. */
static bool is_zero(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    Ref a = n->a[0], b = n->a[1];

    return n->op == OP_num ? n->num == 0
         : n->op == OP_lt ? a == b
         : n->op == OP_mul ? (is_one_hot(g->n[a].op) && is_zero(g, b))
                             || (is_one_hot(g->n[b].op) && is_zero(g, a))
         : n->op == OP_add && is_zero(g, a) && is_zero(g, b);
}

/* Zeros of an input of tokens with these axes; 0: there is none. */
static Ref input_zeros(Graph *g, AxisSet axes)
{
    for (int i = 0; i < g->nin; i++)
        if (g->n[g->in[i].node].axes == axes)
            return op2(g, OP_lt, g->in[i].node, g->in[i].node);
    return 0;
}

static Ref zeros_of_input(void *ud, Graph *g, const Node *n, const Ref a[4],
                          const Ref *image)
{
    const Graph *old = ud;
    bool zero = n->op == OP_lt && n->a[0] == n->a[1];
    bool spread = n->op == OP_add && is_zero(old, n->a[1]);

    (void)image;
    if (!(n->axes & AXIS(AX_I)) || !(zero || spread))
        return 0;
    Ref zeros = input_zeros(g, n->axes);
    return zeros && spread && !is_zero(old, n->a[0])
         ? op2(g, OP_add, a[0], zeros) : zeros;
}

/* The way back begins with the same kernel. */
const Plan *plan_zeros_of_inputs(Ctx *c, const Plan *p)
{
    const Plan *to = plan_rewritten(c, p, zeros_of_input, p->g);

    return to->split == p->split ? to : p;
}
