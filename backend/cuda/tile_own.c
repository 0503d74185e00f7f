/* tile_own.c -- where a chain's values lie: in an operand's place, if all have
 * looked at that, so that sums go on where they began.
 */
#include "tile.h"

/* Whether all who look at the tile have done so, but for the chain. */
static bool all_read(const Tiles *t, const Chain *k, int tile, Ref but)
{
    for (Ref r = 1; r < t->g->len; r++) {
        const Node *n = &t->g->n[r];
        if (!t->has[r] || t->done[r] || in_chain(k, r))
            continue;
        for (int i = 0; i < op_info[n->op].arity; i++)
            if (t->done[n->a[i]] && t->spot[n->a[i]].tile == tile)
                return false;
    }
    for (int s = 0; s < t->g->nst; s++) {
        Ref next = t->g->st[s].next;
        if (t->state[s] >= 0 && next != but && t->done[next]
            && t->spot[next].tile == tile)
            return false;
    }
    return true;
}

static bool is_state_tile(const Tiles *t, int tile)
{
    for (int s = 0; s < t->g->nst; s++)
        if (t->state[s] == tile)
            return true;
    return false;
}

/* Whether r may take over the tile of x, an operand that the chain reads
 * element by element. */
static bool may_take(Tiles *t, const Act *a, const Chain *k, Ref r, Ref x)
{
    double number;

    if (!x || in_chain(k, x) || constant_of(t, x, &number))
        return false;
    Spot own = tile_spot(t, r, t->spot[x].tile);
    const Tile *tile = &t->tile[own.tile];
    if (t->g->n[x].axes != t->g->n[r].axes || tile->type != F32
        || tile_type(t, r) != F32
        || !same_strides(t, r, &own, &t->spot[x]) || t->pre[x])
        return false;
    if (tile->pinned && !is_state_tile(t, own.tile))
        return false;
    for (int i = 0; i < a->n; i++)
        if (a->use[i] == own.tile * 2 + 1)
            return false;
    return all_read(t, k, own.tile, r);
}

/* Tiles that the chain reads elsewhere than at its own element, or that the
 * act's product reads, must stay. */
static bool read_elsewhere(const Tiles *t, const Chain *k, int tile)
{
    for (int c = k->also ? -2 : k->from ? -1 : 0; c < k->n; c++) {
        Ref r = c < -1 ? k->also : c < 0 ? k->from : k->node[c];
        const Node *n = &t->g->n[r];
        for (int i = 0; i < op_info[n->op].arity; i++) {
            Ref a = n->a[i];
            if (!a || !t->done[a] || t->spot[a].tile != tile)
                continue;
            Spot own = tile_spot(t, r, tile);
            if (c < 0 || !is_elementwise(t, r)
                || t->g->n[a].axes != n->axes
                || !same_strides(t, r, &own, &t->spot[a]))
                return true;
        }
    }
    return false;
}

int own_tile(Tiles *t, Act *a, const Chain *k, Ref r)
{
    for (int c = 0; c < k->n; c++) {
        Ref m = k->node[c];
        for (int i = 0; i < 3 && is_elementwise(t, m); i++) {
            Ref x = t->g->n[m].a[i];
            if (x && t->done[x] && may_take(t, a, k, r, x)
                && !read_elsewhere(t, k, t->spot[x].tile))
                return t->spot[x].tile;
        }
    }
    return tile_new(t, r, t->pre[r]);
}
