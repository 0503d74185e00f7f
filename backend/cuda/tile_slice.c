/* tile_slice.c -- whether blocks can share a head's work along an axis: if
 * every value that has it can be computed for a part of it alone. What lacks
 * the axis is computed by each of them.
 */
#include "tile.h"

/* A share of fewer values would compute the rest too often; the rest of a
 * single token is little. */
enum { LEAST_SLICE = 32, USUAL_SLICE = 64 };

static bool mixes(const Tiles *t, Ref r, int ax)
{
    const Node *n = &t->g->n[r];
    AxisSet own = n->axes, has = AXIS(ax);

    for (int i = 0; i < 4; i++)
        own |= t->g->n[n->a[i]].axes;
    if (!(own & has))
        return false;
    if (n->over & has)
        return true;
    if (op_has(n->op, TO_AXIS) && n->index == ax)
        return true;
    return n->op == OP_solve && t->g->n[n->a[0]].axes & has;
}

static bool can_slice(const Tiles *t, int ax)
{
    for (int i = 0; i < t->k->nnodes; i++) {
        Ref r = t->k->node[i];
        const Node *n = &t->g->n[r];
        if (mixes(t, r, ax) || (n->axes & AXIS(ax)
                                && t->ext[r][ax] != t->g->axis[ax].size))
            return false;
    }
    return true;
}

/* The most that a state has of: its axis is worth sharing out. */
static bool carried_along(const Tiles *t, int ax)
{
    for (int s = 0; s < t->g->nst; s++)
        if (t->k->states & STATE(s)
            && t->g->n[t->g->st[s].node].axes & AXIS(ax))
            return true;
    return false;
}

void find_slice(Tiles *t)
{
    t->slice_axis = -1;
    t->out->blocks = 1;
    for (int ax = AX_DIM; ax < t->g->naxes; ax++) {
        int32_t size = t->g->axis[ax].size, slice = size;
        int usual = t->m->chunk > 1 ? USUAL_SLICE : LEAST_SLICE;
        if (!carried_along(t, ax) || !can_slice(t, ax))
            continue;
        while (slice % 16 == 0 && slice / 2 >= LEAST_SLICE
               && (slice > usual || size / slice < t->o->blocks))
            slice /= 2;
        if (slice == size || size / slice <= t->out->blocks)
            continue;
        t->slice_axis = ax;
        t->slice = slice;
        t->out->blocks = size / slice;
        t->out->row_axis = ax;
    }
}
