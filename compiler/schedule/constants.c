/* constants.c -- a head's constant matrices of float32, before a plan is cut.
 * Products find tiles of 16 bits, and copy engines convert nothing: such a
 * matrix is rounded where it is found, by whoever has the products.
 */
#include "schedule.h"

typedef struct Rounding { const Graph *g; const DType *in; } Rounding;

static Ref rounded_constant(void *ud, Graph *g, const Node *n, const Ref a[4],
                            const Ref *image)
{
    const Rounding *x = ud;

    (void)image;
    if (n->op != OP_input || x->g->in[n->index].timed
        || x->g->in[n->index].rank != 2 || x->in[n->index] != F32)
        return 0;
    return op1(g, OP_factor, node_copy(g, n, a));
}

const Plan *plan_constants_rounded(Ctx *c, const Plan *p, const DType *in)
{
    Rounding x = { p->g, in };

    return plan_rewritten(c, p, rounded_constant, &x);
}
