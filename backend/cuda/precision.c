/* precision.c -- which products must not round what they multiply to bf16.
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
#include "lower.h"

static bool constant_of(const Lowered *t, Ref r, double *x)
{
    const Node *n = &t->g->n[r];

    *x = n->op == OP_size ? t->g->axis[n->index].size : n->num;
    if (n->op == OP_num || n->op == OP_size)
        return true;
    return op_is(n->op, MOVES) && constant_of(t, n->a[0], x);
}

/* Element by element, or nearly. */
static bool is_pointwise(const Lowered *t, Ref r)
{
    int op = t->g->n[r].op;
    return op_is(op, ELEMENTWISE | PAIRS | JOINS | SHIFTS) || is_mask(op)
        || is_counted(op) || is_one_hot(op);
}

/* Whether a value is as it came in: bf16 already. */
static bool is_given(const Lowered *t, Ref r)
{
    const Node *n = &t->g->n[r];

    if (op_is(n->op, MOVES))
        return is_given(t, n->a[0]);
    return n->op == OP_input && t->o->in[n->index] == BF16;
}

/* Of the factors of a product of matrices, how many would be rounded. */
static int roundings(const Lowered *t, Ref r)
{
    const Node *n = &t->g->n[r];

    return is_decayed_contraction(n->op) ? 2
         : !is_given(t, n->a[0]) + !is_given(t, n->a[1]);
}

static bool is_score(const Node *n)
{
    return is_contraction(n->op) && n->axes & AXIS(AX_I)
        && n->axes & AXIS(AX_J);
}

static bool is_matrix_product(const Lowered *t, const Node *n)
{
    AxisSet a = t->g->n[n->a[0]].axes, b = t->g->n[n->a[1]].axes;

    return is_decayed_contraction(n->op)
        || (is_plain_contraction(n->op) && n->axes & a & ~b
                                && n->axes & b & ~a);
}

/* What r adds up or is computed from, element by element. */
static void trace(const Lowered *t, uint8_t *precision, Ref r)
{
    const Node *n = &t->g->n[r];

    if (!r || precision[r])
        return;
    precision[r] = 1;
    bool sums = op_is(n->op, ADDS_UP) && !op_is(n->op, MASKS);
    if ((sums && !is_matrix_product(t, n)) || is_pointwise(t, r)
        || op_is(n->op, MOVES))
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

static void find_precision(const Lowered *t, uint8_t *precision)
{
    const Graph *g = t->g;
    bool ratio = false;

    for (Ref r = 1; r < g->len; r++)
        ratio |= is_running_most(g->n[r].op);
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        bool runs = adds_tokens(n->op) || is_gated_scan(n->op);
        if (runs && n->flags & REVERSE && n->axes & DIM_AXES)
            trace(t, precision, n->a[is_gated_scan(n->op)]);
        precision[r] |= is_score(n) && roundings(t, r) == 2;
    }
    for (int s = 0; s < g->nst; s++)
        if (sums_up(g, &g->st[s]))
            trace(t, precision, g->st[s].next);
    for (Ref r = 1; r < g->len; r++)
        precision[r] = ratio ? 2
            : precision[r] && (!is_plain_contraction(g->n[r].op)
                                            || roundings(t, r));
}

/* ---- who reads what ---- */

enum { LEAST = 8, MANY = 1024 };

static int32_t size_of(const Lowered *t, Ref r, AxisSet s)
{
    int32_t n = 1;

    for (; s; s &= s - 1)
        n *= lowest(s) == AX_I || lowest(s) == AX_J ? t->chunk
           : t->ext[r][lowest(s)];
    return n;
}

/* Products of matrices, and sums of so many products that the roundings even
 * out. */
static bool rounds_factors(const Lowered *t, const uint8_t *precision, Ref r)
{
    const Node *n = &t->g->n[r];
    double x;

    if (t->o->tile != BF16 || precision[r] || !is_plain_contraction(n->op)
        || constant_of(t, n->a[0], &x) || constant_of(t, n->a[1], &x))
        return false;
    AxisSet a = t->g->n[n->a[0]].axes, b = t->g->n[n->a[1]].axes;
    int32_t sum = size_of(t, n->a[0], n->over & a);
    if (!n->axes)
        return a == b && a == n->over && sum >= MANY;
    return size_of(t, n->a[0], n->axes & a & ~b) >= LEAST
        && size_of(t, n->a[1], n->axes & b & ~a) >= LEAST && sum >= LEAST
        && !(n->over & ~(a & b));
}

void find_wide(const Lowered *t, uint8_t *wide)
{
    uint8_t *precision = ctx_alloc(t->c, t->g->len);

    find_precision(t, precision);
    for (Ref u = (Ref)t->g->len - 1; u > 0; u--) {
        const Node *n = &t->g->n[u];
        if (!t->has[u])
            continue;
        bool rounds = rounds_factors(t, precision, u);
        for (int i = 0; i < 4; i++)
            wide[n->a[i]] |= op_is(n->op, MOVES) ? wide[u] : !rounds;
    }
    for (int s = 0; s < t->g->nst; s++)
        if (t->k->states & STATE(s))
            wide[t->g->st[s].next] = 1;
}
