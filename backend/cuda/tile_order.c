/* tile_order.c -- acts in an order that needs few barriers. Between two of
 * them acts are independent; what makes only a few numbers is done as soon as
 * it can be, beside larger acts that the block waits for anyway: before them,
 * as what it reads may be free then.
 */
#include "tile.h"

#include <string.h>

/* Bytes of a tile that costs nothing to be kept for longer. */
enum { FEW = 512 };

static bool is_small(const Tiles *t, const Act *a)
{
    bool writes = false;

    for (int u = 0; u < a->n; u++) {
        const Tile *tile = &t->tile[a->use[u] / 2];
        if (a->use[u] % 2 == 0)
            continue;
        writes = true;
        if (tile->elements * dtype_size(tile->type) > FEW)
            return false;
    }
    return writes && !a->copies && !a->loads && !a->synced
        && a->when == WITHIN;
}

static bool depends(const Act *a, const Act *on)
{
    for (int u = 0; u < a->n; u++)
        for (int v = 0; v < on->n; v++)
            if (a->use[u] / 2 == on->use[v] / 2
                && (a->use[u] % 2 || on->use[v] % 2))
                return true;
    return false;
}

/* The stretch between barriers that each act is in: behind all that it
 * depends on; small acts in the first such, others not before their
 * predecessors. */
static void find_stretches(const Tiles *t, int *stretch)
{
    int now = 0;

    for (int i = 0; i < t->nacts; i++) {
        int first = 0;
        for (int k = 0; k < i; k++)
            if (stretch[k] >= first && depends(&t->act[i], &t->act[k]))
                first = stretch[k] + 1;
        if (first > now || !is_small(t, &t->act[i]))
            now = first > now ? first : now;
        stretch[i] = is_small(t, &t->act[i]) ? first : now;
    }
}

void tiles_order(Tiles *t)
{
    int *stretch = ctx_alloc(t->c, ((size_t)t->nacts + 1) * sizeof *stretch);
    Act *old = ctx_alloc(t->c, ((size_t)t->nacts + 1) * sizeof *old);
    int n = 0;

    if (t->m->chunk == 1)
        return;
    memcpy(old, t->act, (size_t)t->nacts * sizeof *old);
    find_stretches(t, stretch);
    for (int s = 0; n < t->nacts; s++)
        for (int large = 0; large < 2; large++)
            for (int i = 0; i < t->nacts; i++)
                if (stretch[i] == s && is_small(t, &old[i]) != large)
                    t->act[n++] = old[i];
}
