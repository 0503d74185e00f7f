/* padding.c -- axes whose size no product has: they are taken as longer, and
 * what lies behind their end is zero in every value that an instruction leaves.
 *
 * Loads find zeros there. Products, sums along the chunk and products under
 * decays leave zeros of zeros. A program of elements need not: exp makes 1 of
 * them. What it leaves is masked where it is not seen to be zero.
 */
#include "schedule.h"
#include "tails.h"
#include "../eval.h"

#include <math.h>

static int32_t next_multiple(int32_t size, int32_t of)
{
    return (size + of - 1) / of * of;
}

/* Of what the kernel computes, and finds. */
static AxisSet axes_here(const Schedule *s)
{
    const Graph *g = s->g;
    AxisSet all = 0;
    for (int i = 0; i < s->k->nnodes; i++) {
        const Node *n = &g->n[s->k->node[i]];
        all |= n->axes | n->over;
        for (int a = 0; a < 4; a++)
            all |= n->a[a] ? g->n[n->a[a]].axes : 0;
    }
    return all & DIM_AXES;
}

/* Of a node that makes pairs of single entries, or those of pairs, or is their
 * sum: the axis of entries, and that of pairs. */
static void pair_axes(const Graph *g, const Node *n, int *entries, int *pairs)
{
    int from = lowest(n->over), to = n->index;
    bool spreads = g->axis[to].size > g->axis[from].size;
    *entries = spreads ? to : from;
    *pairs = spreads ? from : to;
}

/* An axis of entries is twice as long as that of their pairs, of which an odd
 * number of entries has one more than there are. */
static void pair_extents(Schedule *s, const Node *n, int of)
{
    int entries, pairs;
    if (!op_is(n->op, PAIRS) || !op_has(n->op, TO_AXIS))
        return;
    pair_axes(s->g, n, &entries, &pairs);
    int32_t least = next_multiple((s->g->axis[entries].size + 1) / 2, of);
    if (s->extent[pairs] < least)
        s->extent[pairs] = least;
    s->extent[entries] = 2 * s->extent[pairs];
}

/* Of single tokens (`of` 1) all are as long as they are. */
void schedule_extents(Schedule *s, int of)
{
    const Graph *g = s->g;
    AxisSet here = axes_here(s);
    for (int axis = AX_DIM; axis < g->naxes; axis++)
        s->extent[axis] = next_multiple(g->axis[axis].size,
                                        here & AXIS(axis) ? of : 1);
    for (int again = 0; again < 2; again++) /* axes may share their pairs' */
        for (int i = 0; i < s->k->nnodes && of > 1; i++)
            pair_extents(s, &g->n[s->k->node[i]], of);
}

const char *extents_fault(const Schedule *s)
{
    for (int axis = AX_DIM; axis < s->g->naxes; axis++) {
        int32_t size = s->g->axis[axis].size;
        if (s->extent[axis] < size)
            return ctx_format(s->c, "%d of axis %s, of which there are %d",
                              (int)s->extent[axis], s->g->axis[axis].name,
                              (int)size);
    }
    return NULL;
}

bool may_be_longer(const Schedule *s)
{
    bool any = false;
    for (AxisSet here = axes_here(s); here; here &= here - 1) {
        int32_t size = s->g->axis[lowest(here)].size;
        any |= size % LEAST_EXTENT
            || (size > SLICE_COLS && size % SLICE_COLS);
    }
    return any;
}

bool has_padding(const Schedule *s)
{
    bool any = false;
    for (int axis = AX_DIM; axis < s->g->naxes; axis++)
        any |= is_padded(s, axis);
    return any;
}

/* ---- what is zero ---- */

/* Of a node what it is behind an axis's end: a CONSTANT; a number that entries
 * before the end have, too; or ANY. */
typedef struct Behind {
    enum { ANY, ALIKE, CONSTANT } is;
    double x;
} Behind;

static bool is_zero(Behind b)
{
    return b.is == CONSTANT && b.x == 0;
}

static Behind computed_behind(const Schedule *s, const KInst *k, Ref r,
                              int axis);

/* Whether the program leaves the node, so that its operations find it masked.
 */
static bool is_masked_there(const Schedule *s, const KInst *k, Ref r, int axis)
{
    bool left = false;
    for (int i = 0; i < k->nout; i++)
        left |= s->value[k->out[i]].node == r;
    return left && padded_axes(s, k, r) & AXIS(axis);
}

/* What the program finds is zero there. */
static Behind operand_behind(const Schedule *s, const KInst *k, Ref o, int axis)
{
    const Node *n = &s->g->n[shown_node(s->g, o)];
    if (n->op == OP_num)
        return (Behind){ CONSTANT, n->num };
    if (!(n->axes & AXIS(axis)) || counts_tokens(s->g, o))
        return (Behind){ ALIKE, 0 };
    Ref r = shown_node(s->g, o);
    return has_node(k, r) && !is_masked_there(s, k, r, axis)
         ? computed_behind(s, k, r, axis) : (Behind){ CONSTANT, 0 };
}

bool keeps_numbers(int op)
{
    return op == OP_add || op == OP_sub || op == OP_mul || op == OP_neg
        || op == OP_wrap || op == OP_sin || op == OP_cos;
}

/* Zero times a number; what is computed of constants alone. */
static Behind computed(int op, const Behind x[3])
{
    double y, v[3] = { x[0].x, x[1].x, x[2].x };
    bool all = true, numbers = keeps_numbers(op);
    for (int i = 0; i < op_info[op].arity; i++) {
        all &= x[i].is == CONSTANT;
        numbers &= x[i].is != ANY;
    }
    if ((op == OP_mul || op_is(op, MULTIPLIES)) && x[0].is && x[1].is
        && (is_zero(x[0]) || is_zero(x[1])))
        return (Behind){ CONSTANT, 0 };
    if (!all || !(op_info[op].traits & ELEMENTWISE))
        return (Behind){ numbers ? ALIKE : ANY, 0 };
    elem_row(op, 1, &y, (Row){ v, 1 }, (Row){ v + 1, 1 }, (Row){ v + 2, 1 });
    return isfinite(y) ? (Behind){ CONSTANT, y } : (Behind){ ANY, 0 };
}

/* Of pairs both entries are behind the end, but for the last of an odd number,
 * whose other one is. What is spread has its pairs by another axis, and a sum
 * of pairs may be asked for by that of their entries, which a program goes
 * over. */
static Behind pair_behind(const Schedule *s, const KInst *k, const Node *n,
                          int axis)
{
    int entries = lowest(n->over), pairs = entries, of = axis;
    if (op_has(n->op, TO_AXIS))
        pair_axes(s->g, n, &entries, &pairs);
    bool along = axis == entries || axis == pairs;
    if (along)
        of = op_is(n->op, SPREADS) ? pairs : entries;
    Behind x = operand_behind(s, k, n->a[0], of);
    bool odd = along && !op_is(n->op, SPREADS)
            && s->g->axis[entries].size % 2;
    if (!along && x.is == ALIKE)
        return x;
    return is_zero(x) && !odd ? x : (Behind){ ANY, 0 };
}

/* A node of the program, which may be a sum of its elements. */
static Behind computed_behind(const Schedule *s, const KInst *k, Ref r,
                              int axis)
{
    const Node *n = &s->g->n[r];
    Behind x[3] = { { CONSTANT, 0 }, { CONSTANT, 0 }, { CONSTANT, 0 } };
    if (op_is(n->op, PAIRS))
        return pair_behind(s, k, n, axis);
    for (int i = 0; i < 3 && i < op_info[n->op].arity; i++)
        x[i] = n->a[i] ? operand_behind(s, k, n->a[i], axis)
                       : (Behind){ ANY, 0 };
    if (op_info[n->op].arity == 1 && op_is(n->op, FOLDS | MOVES | OF_RANKS))
        return x[0];
    return op_info[n->op].arity > 3 ? (Behind){ ANY, 0 } : computed(n->op, x);
}

bool is_zero_behind(const Schedule *s, const KInst *k, Ref r, int axis)
{
    return !has_node(k, r) || is_zero(computed_behind(s, k, r, axis));
}

/* ---- masks ---- */

AxisSet padded_axes(const Schedule *s, const KInst *k, Ref r)
{
    const Node *n = &s->g->n[r];
    AxisSet space = n->axes | n->over, all = 0;
    for (int axis = AX_DIM; axis < s->g->naxes; axis++)
        if (space & AXIS(axis) && (axis == k->row || axis == k->col)
            && is_padded(s, axis))
            all |= AXIS(axis);
    return all;
}

void schedule_mask(Schedule *s)
{
    for (int n = 0; n < s->ninsts; n++) {   /* of none there is no array */
        const KInst *k = &s->inst[n];
        for (int i = 0; i < k->nout && k->op == K_MAP; i++) {
            KValue *v = &s->value[k->out[i]];
            AxisSet axes = padded_axes(s, k, v->node);
            for (; axes; axes &= axes - 1)
                v->masked |= !is_zero_behind(s, k, v->node, lowest(axes));
        }
    }
}
