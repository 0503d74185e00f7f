/* tile_precision.c -- which products must not round what they multiply to bf16.
 *
 * The gradient of a gate or an angle is a sum over the tokens behind it, of
 * terms that cancel: what is left is small beside the errors that its terms
 * have. A sum over keys or values, too, evens them out; where none is between
 * a product and such a sum, the product is computed in tf32. So are scores of
 * what rotations or gates have made of queries and keys: both would be
 * rounded, before the scores are.
 *
 * Where a maximum keeps a numerator and a denominator in range, what they have
 * in common must cancel, and near its kink a rounding takes the gradient of
 * the other side: all products are as good as float32.
 */
#include "tile.h"

/* Whether a value is as it came in: bf16 already. */
static bool is_given(const Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];

    if (is_view(n->op))
        return is_given(t, n->a[0]);
    return n->op == OP_input && t->o->in[n->index] == BF16;
}

/* Of the factors of a product of matrices, how many would be rounded. */
static int roundings(const Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];

    return n->op == OP_gdot ? 2 : !is_given(t, n->a[0]) + !is_given(t, n->a[1]);
}

static bool is_score(const Node *n)
{
    return (n->op == OP_dot || n->op == OP_gdot) && n->axes & AXIS(AX_I)
        && n->axes & AXIS(AX_J);
}

bool is_matrix_product(const Tiles *t, const Node *n)
{
    AxisSet a = t->g->n[n->a[0]].axes, b = t->g->n[n->a[1]].axes;

    return n->op == OP_gdot || (n->op == OP_dot && n->axes & a & ~b
                                && n->axes & b & ~a);
}

/* What r adds up or is computed from, element by element. */
static void trace(const Tiles *t, uint8_t *precision, Ref r)
{
    const Node *n = &t->g->n[r];

    if (!r || precision[r])
        return;
    precision[r] = 1;
    bool sums = n->op == OP_sum || n->op == OP_dot;
    if ((sums && !is_matrix_product(t, n)) || is_pointwise(t, r)
        || is_view(n->op))
        for (int i = 0; i < 4; i++)
            trace(t, precision, n->a[i]);
}

/* A constant's gradient: a sum that nobody else looks at. */
static bool sums_up(const Graph *g, const State *s)
{
    for (Ref r = 1; r < g->len && s->reverse; r++)
        for (int i = 0; i < 4; i++)
            if (g->n[r].a[i] == s->node && r != s->next)
                return false;
    return s->reverse;
}

void find_precision(const Tiles *t, uint8_t *precision)
{
    const Graph *g = t->g;
    bool ratio = false;

    for (Ref r = 1; r < g->len; r++)
        ratio |= g->n[r].op == OP_maxscan;
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        bool runs = n->op == OP_cumsum || n->op == OP_scan;
        if (runs && n->flags & REVERSE && n->axes & DIM_AXES)
            trace(t, precision, n->a[n->op == OP_scan]);
        precision[r] |= is_score(n) && roundings(t, r) == 2;
    }
    for (int s = 0; s < g->nst; s++)
        if (sums_up(g, &g->st[s]))
            trace(t, precision, g->st[s].next);
    for (Ref r = 1; r < g->len; r++)
        precision[r] = ratio ? 2 : precision[r] && (g->n[r].op != OP_dot
                                            || roundings(t, r));
}
