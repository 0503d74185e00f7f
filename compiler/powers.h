/* powers.h -- a graph whose nodes are without a number of their token that
 * cancels in all that leaves it. */
#ifndef FLIN_POWERS_H
#define FLIN_POWERS_H

#include "ir.h"

/* What exponentials are without: `sum`, of exp(of), or, where that is not 0,
 * exp(shift). */
typedef struct Powers {
    Graph *g;                           /* grows */
    const Graph *old;
    Ref of, sum, shift;
    Ref *image;                         /* per node of old, in g */
    int8_t *power;                      /* of what it is without */
    bool failed;                        /* something has to be whole, and
                                           nothing can make it so */
} Powers;

/* Whether r is the sum of a token's exponentials. */
bool is_exp_sum(const Graph *g, Ref r);

/* Makes all images: x has g, a copy of old, and of, sum and shift. Results and
 * next states are whole, as they were, in g. */
void powers_cancel(Ctx *c, Powers *x);

/* g with exponentials that are divided by their sum as large as float32 has
 * them, whatever float64 has: exp(z) is exp(z - c) there, with c = 12 log(sum
 * exp(z / 12)), which is no less than any z, and by 12 log(n) more at most, of
 * n. What has an exponential in it that does not cancel is as it was. */
Graph *shift_exponentials(Graph *g);

#endif
