/* softmax.c -- exponentials that a result divides by their sum. As they are
 * they may be as large as a float; divided before products see them they are at
 * most 1, and what gradients divide by the sum stays as large as it is. So each
 * node is computed without some power of that sum, a number of its token: these
 * cancel, or are multiplied in where they do not.
 */
#include "schedule.h"

#include "../powers.h"

/* The plan without the sum r; p itself where there is a reason. */
static const Plan *divided_by(Ctx *c, const Plan *p, Ref r)
{
    Powers x = { .g = graph_copy(c, p->g), .old = p->g, .sum = r,
                 .of = p->g->n[p->g->n[r].a[0]].a[0] };
    powers_cancel(c, &x);
    return x.failed ? p : plan_renewed(p, x.g, x.image, 1);
}

const Plan *plan_softmax(Ctx *c, const Plan *p)
{
    for (Ref r = 1; r < p->g->len; r++) {
        if (!is_exp_sum(p->g, r))
            continue;
        const Plan *to = divided_by(c, p, r);
        if (!leaves_float16(to))
            return to;
    }
    return p;
}
