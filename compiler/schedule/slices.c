/* slices.c -- an axis of the states whose entries have nothing to do with one
 * another in a kernel: each block of the grid has a slice of it.
 */
#include "schedule.h"
#include "../cost.h"

/* Whether the node's entries along the axis are each by themselves. */
static bool keeps_apart(const Node *n, int axis)
{
    if (n->over & AXIS(axis) || (op_has(n->op, TO_AXIS) && n->index == axis))
        return false;
    bool product = op_is(n->op, ADDS_UP | MULTIPLIES | MASKS)
                && !is_decayed_contraction(n->op);
    return op_is(n->op, ELEMENTWISE | CONST | GIVEN | OF_RANKS | VIEWS | ONE_ROW
                        | SHIFTS | RECURS)
        || adds_tokens(n->op) || product || !(n->axes & AXIS(axis));
}

static const char *entries_fault(const Schedule *s, int axis)
{
    const Graph *g = s->g;
    for (int i = 0; i < s->k->nnodes; i++)
        if (!keeps_apart(&g->n[s->k->node[i]], axis))
            return "slices of an axis that is contracted";
    return NULL;
}

const char *schedule_slice_fault(const Schedule *s, int axis, int slices)
{
    const Graph *g = s->g;
    if (slices == 1)
        return NULL;
    if (axis < AX_DIM || axis >= g->naxes || slices < 1
        || s->extent[axis] % (slices * SLICE_COLS))
        return "slices that are not of whole columns";
    return entries_fault(s, axis);
}

static bool is_found(const Schedule *s, Ref r)
{
    return s->g->n[r].op == OP_input || !schedule_computes(s, r);
}

/* What all slices find of matrices, in elements a token or row. */
static int64_t found(const Schedule *s, int axis, int slices)
{
    int64_t sum = 0;
    for (Ref r = 1; r < s->g->len; r++) {
        AxisSet dims = s->g->n[r].axes & DIM_AXES;
        bool read = false;
        for (int i = 0; i < s->k->nnodes; i++)
            for (int a = 0; a < 4; a++)
                read |= s->g->n[s->k->node[i]].a[a] == r;
        if (read && dims && is_found(s, r))
            sum += (int64_t)s->extent[highest(dims)]
                 * (dims & AXIS(axis) ? 1 : slices);
    }
    return sum;
}

static bool has_axis(const Schedule *s, int axis)
{
    bool any = false;
    for (int i = 0; i < s->k->nnodes; i++)
        any |= (s->g->n[s->k->node[i]].axes & AXIS(axis)) != 0;
    return any;
}

int schedule_slice_axis(const Schedule *s, int cols)
{
    int best = 0;
    int64_t least = 0;
    for (int axis = AX_DIM; axis < s->g->naxes; axis++) {
        int n = s->extent[axis] / cols;
        if (n < 2 || !has_axis(s, axis)
            || schedule_slice_fault(s, axis, n))
            continue;
        int64_t sum = found(s, axis, n);
        if (!best || sum <= least) {
            best = axis;
            least = sum;
        }
    }
    return best;
}

/* One that each matrix state has beside another: their rows then, transposed.
 */
int schedule_row_axis(const Schedule *s)
{
    const Graph *g = s->g;
    bool any = false;
    int best = 0;
    for (int axis = AX_DIM; axis < g->naxes; axis++)
        if (s->extent[axis] % TILE_ROWS == 0 && !entries_fault(s, axis))
            best = axis;
    for (int i = 0; i < g->nst; i++)
        any |= s->k->states & STATE(i)
            && g->n[g->st[i].node].axes & AXIS(best) & ~AXIS(0);
    return any && !g->rows ? best : 0;
}

/* ---- of kernels whose warps all do the same ---- */

static bool mixes(const Schedule *s, Ref r, int ax)
{
    const Node *n = &s->g->n[r];
    AxisSet own = n->axes, has = AXIS(ax);

    for (int i = 0; i < 4; i++)
        own |= s->g->n[n->a[i]].axes;
    return own & has && (n->over & has
                         || (op_has(n->op, TO_AXIS) && n->index == ax)
                         || (is_system(n->op)
                             && s->g->n[n->a[0]].axes & has));
}

static bool can_slice(const Schedule *s, int ax)
{
    bool carried = false;

    for (int i = 0; i < s->g->nst; i++)
        carried |= s->k->states & STATE(i)
                && s->g->st[i].axes & AXIS(ax);
    for (int i = 0; i < s->k->nnodes && carried; i++) {
        Ref r = s->k->node[i];
        carried = !mixes(s, r, ax) && (!(s->g->n[r].axes & AXIS(ax))
                  || s->ext[r][ax] == s->g->axis[ax].size);
    }
    return carried;
}

void schedule_token_slices(Schedule *s)
{
    const int32_t least = has_rows(s) ? 64 : 32;

    s->slices = 1;
    for (int ax = AX_DIM; ax < s->g->naxes; ax++) {
        int32_t size = s->g->axis[ax].size, slice = size;
        if (!can_slice(s, ax))
            continue;
        while (slice % 16 == 0 && slice / 2 >= least)
            slice /= 2;
        if (size / slice <= s->slices)
            continue;
        s->slice_axis = ax;
        s->slices = size / slice;
    }
}
