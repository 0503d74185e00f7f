/* choose_check.c -- an answer to a choice of kernels: ordered, priced exactly.
 */
#include "choose.h"

#include <string.h>

bool choice_check(Ctx *ctx, const Choice *c, const uint8_t *chosen,
                  Answer *out, uint8_t *stuck)
{
    Set have = { 0 }, wanted = c->required, made = { 0 };
    uint8_t *left = ctx_alloc(ctx, (size_t)c->ncolumns);
    int total = 0;

    memcpy(left, chosen, (size_t)c->ncolumns);
    for (int i = 0; i < c->ncolumns; i++) {
        total += left[i];
        if (left[i]) {
            wanted = set_union(wanted, &c->column[i].loads);
            made = set_union(made, &c->column[i].makes);
        }
    }
    out->column = ctx_alloc(ctx, (size_t)(total + 1) * sizeof *out->column);
    out->n = 0;
    out->price = 0;
    out->stored = wanted;
    for (int before = -1; before < out->n;) {
        before = out->n;
        for (int i = 0; i < c->ncolumns; i++) {
            Set needs = set_union(c->column[i].loads, &c->column[i].after);
            if (!left[i] || !set_within(&needs, &have))
                continue;
            left[i] = 0;
            out->column[out->n++] = i;
            out->price += c->column[i].price;
            have = set_union(have, &c->column[i].makes);
        }
    }
    if (stuck)
        memcpy(stuck, left, (size_t)c->ncolumns);
    for (int t = 0; t < c->ntensors; t++)
        if (set_has(&wanted, t))
            out->price += c->store[t];
    return out->n == total && set_within(&wanted, &made);
}
