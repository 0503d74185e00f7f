/* constants.c -- a head's constant matrices of float32, before a plan is cut.
 * Products find tiles of 16 bits, and copy engines convert nothing: such a
 * matrix is rounded where it is found, by whoever has the products. What else
 * reads it has all of it.
 */
#include "schedule.h"

typedef struct Rounding { const Graph *g; const DType *in; } Rounding;

static bool is_rounded(const Rounding *x, Ref r)
{
    const Node *n = &x->g->n[r];

    return n->op == OP_input && !x->g->in[n->index].timed
        && x->g->in[n->index].rank == 2 && x->in[n->index] == F32;
}

static Ref rounded_factors(void *ud, Graph *g, const Node *n, const Ref a[4],
                           const Ref *image)
{
    const Rounding *x = ud;
    Ref to[4] = { a[0], a[1], a[2], a[3] };
    bool any = false;

    (void)image;
    for (int i = 0; i < 2 && is_contraction(n->op) && n->a[1]; i++)
        if (is_rounded(x, n->a[i])) {
            to[i] = op1(g, OP_factor, a[i]);
            any = true;
        }
    return any ? node_copy(g, n, to) : 0;
}

const Plan *plan_constants_rounded(Ctx *c, const Plan *p, const DType *in)
{
    Rounding x = { p->g, in };

    return plan_rewritten(c, p, rounded_factors, &x);
}
