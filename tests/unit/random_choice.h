/* random_choice.h -- random graphs and the kernels that one could have. */
#ifndef FLIN_RANDOM_CHOICE_H
#define FLIN_RANDOM_CHOICE_H

#include "../../compiler/choose.h"

static uint32_t draw(uint64_t *s, uint32_t n)
{
    *s = *s * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((*s >> 33) % n);
}

/* n nodes, each with operands among those before it; columns are single
 * nodes and clusters, convex or not, so that some wait for one another. */
static Choice *random_choice(Ctx *c, int n, int clusters, uint64_t seed)
{
    Choice *k = ctx_alloc(c, sizeof *k);
    Column *col = ctx_alloc(c, (size_t)(n + clusters) * sizeof *col);
    int64_t *store = ctx_alloc(c, (size_t)n * sizeof *store);
    Set needs[16] = { { { 0 } } }, used = { { 0 } };

    for (int i = 0; i < n; i++) {
        store[i] = draw(&seed, 40);
        for (int p = 0; i && p < 2; p++) {
            int from = (int)draw(&seed, (uint32_t)i);
            set_add(&needs[i], from);
            set_add(&used, from);
        }
    }
    for (int i = 0; i < n + clusters; i++) {
        Set s = { { 0 } }, loads = { { 0 } };
        if (i < n)
            set_add(&s, i);
        for (int size = 2 + (int)draw(&seed, 4); i >= n && size > 0; size--)
            set_add(&s, (int)draw(&seed, (uint32_t)n));
        for (int x = 0; x < n; x++)
            if (set_has(&s, x)) {
                loads = set_union(loads, &needs[x]);
                col[i].price += 20 + draw(&seed, 30);
            }
        if (i >= n)
            col[i].price = col[i].price * (30 + draw(&seed, 60)) / 100;
        col[i].makes = s;
        col[i].loads = set_minus(loads, &s);
    }
    for (int i = 0; i < n; i++)
        if (!set_has(&used, i) || draw(&seed, 8) == 0)
            set_add(&k->required, i);
    if (draw(&seed, 4) == 0)            /* a pass that waits for another */
        for (int i = 0; i < n + clusters; i++)
            if (!set_has(&col[i].makes, 0) && n > 2
                && set_has(&col[i].makes, n - 1))
                set_add(&col[i].after, 0);
    if (draw(&seed, 2))
        set_add(&k->required, 0);
    for (int i = 0; i < n + clusters; i++)
        if (set_has(&col[i].after, 0))
            set_add(&k->required, 0);
    *k = (Choice){ n, n + clusters, store, k->required, col };
    return k;
}

#endif
