/* scales.c -- where a product is scaled, before a plan is cut. What scales the
 * rows of its factor scales the product instead: the factor is then multiplied
 * as it was loaded and needs no tile of its own, nor a rounding. A number that
 * scales products scales factors that are computed instead: what is added to
 * the products is then added as they are made, in the same registers. Where
 * scores are kept beside those that are solved with, an adjoint is scaled, not
 * they once more. What scales both terms of a sum scales the sum; what is
 * scaled twice is scaled by the product. What scales the tokens of a factor of
 * scores scales these.
 */
#include "schedule.h"
#include "../cost.h"

/* A number, or one a token; those of columns stay with the scores. */
static bool is_scale(const Graph *g, Ref r)
{
    return !(g->n[r].axes & ~AXIS(AX_I));
}

static bool is_matrix(const Graph *g, Ref r)
{
    return g->n[r].axes & (g->n[r].axes - 1);
}

static Ref times(Graph *g, Ref a, Ref b)
{
    return a ? op2(g, OP_mul, a, b) : b;
}

/* The matrix of which r is `scale` times, which is 0 where it is r itself. */
static Ref unscaled(Graph *g, Ref r, Ref *scale)
{
    const Node n = g->n[r];
    for (int i = 0; i < 2 && n.op == OP_mul; i++)
        if (is_scale(g, n.a[i]) && is_matrix(g, n.a[!i])) {
            *scale = times(g, *scale, n.a[i]);
            return unscaled(g, n.a[!i], scale);
        }
    return r;
}

/* A product over no tokens, its operands in place; 0: it stays. */
static Ref scaled_product(Graph *g, const Node *n, const Ref a[4])
{
    Ref scale = 0;
    if (!is_plain_contraction(n->op) || n->over & ~DIM_AXES
        || !(n->axes & (n->axes - 1))
        || !is_matrix(g, a[0]) || !is_matrix(g, a[1]))
        return 0;
    Ref x = unscaled(g, a[0], &scale), y = unscaled(g, a[1], &scale);
    return scale ? op2(g, OP_mul, scale, dot(g, x, y, n->over)) : 0;
}

/* How often it is read, results and next states included, by what these are
 * made of. */
static int *count_readers(Ctx *c, const Graph *g)
{
    int *n = ctx_alloc(c, g->len * sizeof *n);
    for (int i = 0; i < g->nout; i++)
        n[g->out[i].node]++;
    for (int i = 0; i < g->nst; i++)
        n[g->st[i].next]++;
    for (Ref r = g->len; r-- > 1;)
        for (int i = 0; i < 4 && n[r]; i++)
            n[g->n[r].a[i]]++;
    return n;
}

/* Whether a factor is written as it is computed, so that a number more is
 * free. */
static bool is_computed(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    return is_matrix(g, r) && (is_decayed_contraction(n->op)
           || (!node_is_leaf(n) && op_is(n->op, ELEMENTWISE)));
}

/* Products that nobody else reads, or a sum of such, or such times what tokens
 * have, times a number that goes to factors; 0: one of them has none. */
static Ref scaled_within(Graph *g, Ref r, Ref number, const int *readers,
                         const Ref *image)
{
    const Node n = g->n[r];
    if (readers[r] != 1 || !is_matrix(g, r))
        return 0;
    if (n.op == OP_add || n.op == OP_sub) {
        Ref a = scaled_within(g, n.a[0], number, readers, image);
        Ref b = a ? scaled_within(g, n.a[1], number, readers, image) : 0;
        return b ? op2(g, n.op, a, b) : 0;
    }
    for (int i = 0; i < 2 && n.op == OP_mul; i++)
        if (is_scale(g, n.a[i]) && node_is_product(g, &g->n[n.a[!i]]))
            return op2(g, OP_mul, image[n.a[!i]],
                       op2(g, OP_mul, image[n.a[i]], number));
    if (!is_plain_contraction(n.op))
        return 0;
    int at = !is_computed(g, n.a[0]);
    if (!is_computed(g, n.a[at]))
        return 0;
    Node now = n;                       /* dot would take the number out */
    now.a[at] = op2(g, OP_mul, image[n.a[at]], number);
    now.a[!at] = image[n.a[!at]];
    return node_share(g, &now);
}

/* r as a number times products, written so; 0: it is none. */
static Ref scaled_factors(Graph *g, const Node *n, const int *readers,
                          const Ref *image)
{
    for (int i = 0; i < 2 && n->op == OP_mul; i++)
        if (g->n[n->a[i]].op == OP_num)
            return scaled_within(g, n->a[!i], n->a[i], readers, image);
    return 0;
}

/* A scale without its factor s, which is left out where it is all of it: 1.
 * 0: it has none. */
static Ref scale_without(Graph *g, const Graph *old, Ref r, Ref s,
                         const Ref *image)
{
    const Node n = old->n[r];
    if (r == s)
        return num(g, 1);
    for (int i = 0; i < 2 && n.op == OP_mul; i++) {
        Ref x = scale_without(g, old, n.a[i], s, image);
        if (x)
            return times(g, x, image[n.a[!i]]);
    }
    return 0;
}

/* r without its factor s, a product that nobody else reads; 0: it has none. */
static Ref without(Graph *g, const Graph *old, Ref r, Ref s,
                   const int *readers, const Ref *image)
{
    const Node n = old->n[r];
    if (n.op != OP_mul || readers[r] != 1)
        return 0;
    for (int i = 0; i < 2; i++) {
        if (!is_scale(old, n.a[i]) || !is_matrix(old, n.a[!i]))
            continue;
        Ref x = scale_without(g, old, n.a[i], s, image);
        if (x)
            return times(g, x, image[n.a[!i]]);
        x = without(g, old, n.a[!i], s, readers, image);
        if (x)
            return op2(g, OP_mul, image[n.a[i]], x);
    }
    return 0;
}

/* The sum n, both terms of which have a factor s, or one of its factors; 0:
 * they have none that is what tokens have. */
static Ref sum_without(Graph *g, const Graph *old, const Node *n, Ref s,
                       const int *readers, const Ref *image)
{
    Ref a = old->n[s].axes ? without(g, old, n->a[0], s, readers, image) : 0;
    Ref b = a ? without(g, old, n->a[1], s, readers, image) : 0;
    if (b)
        return op2(g, OP_mul, image[s], op2(g, n->op, a, b));
    for (int i = 0; i < 2 && old->n[s].op == OP_mul; i++) {
        Ref x = sum_without(g, old, n, old->n[s].a[i], readers, image);
        if (x)
            return x;
    }
    return 0;
}

/* A sum of matrices both of which are scaled by what tokens have, written as
 * the scaled sum; 0: it is none. */
static Ref scaled_sum(Graph *g, const Graph *old, const Node *n,
                      const int *readers, const Ref *image)
{
    Ref r = n->a[0];
    if ((n->op != OP_add && n->op != OP_sub) || !is_matrix(old, r))
        return 0;
    while (old->n[r].op == OP_mul) {
        int at = !is_scale(old, old->n[r].a[0]);
        if (!is_scale(old, old->n[r].a[at]))
            return 0;
        Ref x = sum_without(g, old, n, old->n[r].a[at], readers, image);
        if (x)
            return x;
        r = old->n[r].a[!at];
    }
    return 0;
}

/* A matrix that is scaled twice, scaled by the product; 0: it is none. */
static Ref scaled_once(Graph *g, const Graph *old, const Node *n,
                       const int *readers, const Ref *image)
{
    for (int i = 0; i < 2 && n->op == OP_mul; i++) {
        const Node x = old->n[n->a[!i]];
        for (int j = 0; j < 2 && x.op == OP_mul; j++)
            if (is_scale(old, n->a[i]) && readers[n->a[!i]] == 1
                && is_scale(old, x.a[j]) && is_matrix(old, x.a[!j])
                && old->n[n->a[i]].op != OP_num && old->n[x.a[j]].op != OP_num)
                return op2(g, OP_mul, op2(g, OP_mul, image[n->a[i]],
                                          image[x.a[j]]), image[x.a[!j]]);
    }
    return 0;
}

/* Whether r is never wanted as it is, but by `but`: others scale it. */
static bool is_scaled_always(const Graph *g, Ref r, Ref but)
{
    bool scaled = true;
    for (int i = 0; i < g->nout; i++)
        scaled &= g->out[i].node != r;
    for (int i = 0; i < g->nst; i++)
        scaled &= g->st[i].next != r;
    for (Ref u = 1; u < g->len; u++) {
        const Node *n = &g->n[u];
        for (int i = 0; i < 4 && u != but; i++)
            scaled &= n->a[i] != r
                   || (n->op == OP_mul && i < 2 && is_scale(g, n->a[!i])
                       && g->n[n->a[!i]].axes);
    }
    return scaled;
}

/* Scores that are computed, times rows that are loaded and scaled by what their
 * tokens have, written as scaled scores times rows as they are; 0: it is none.
 */
static Ref scaled_scores(Graph *g, const Graph *old, const Node *n,
                         const int *readers, const Ref *image)
{
    for (int i = 0; i < 2 && is_plain_contraction(n->op)
                    && n->over == AXIS(AX_J); i++) {
        const Node view = old->n[n->a[i]];
        Ref scores = n->a[!i], rows = view.a[0];
        if (shown_node(old, n->a[i]) == n->a[i] || readers[scores] != 1
            || !is_computed(old, scores)
            || old->n[scores].axes != (AXIS(AX_I) | AXIS(AX_J))
            || old->n[rows].op != OP_mul
            || !is_scaled_always(old, rows, n->a[i]))
            continue;
        for (int j = 0; j < 2; j++) {
            Ref by = old->n[rows].a[j], x = old->n[rows].a[!j];
            if (old->n[by].axes != AXIS(AX_I) || !is_matrix(old, x)
                || is_computed(old, x))
                continue;
            Node now = *n;
            now.a[!i] = op2(g, OP_mul, image[scores],
                            node_copy(g, &view, (Ref[4]){ image[by] }));
            now.a[i] = node_copy(g, &view, (Ref[4]){ image[x] });
            return node_share(g, &now);
        }
    }
    return 0;
}

/* r without the number that it is times; *number: what that was times, too. */
static Ref without_number(Graph *g, Ref r, Ref *number)
{
    const Node n = g->n[r];
    for (int i = 0; i < 2 && n.op == OP_mul; i++)
        if (g->n[n.a[i]].op == OP_num && is_matrix(g, n.a[!i])) {
            *number = times(g, *number, n.a[i]);
            return without_number(g, n.a[!i], number);
        }
    return r;
}

/* A sum over tokens of products of an input that is an adjoint, and of what is
 * times a number, or the sum is: the input is, instead. 0: it is none. */
static Ref scaled_adjoint(Graph *g, const Node *n, Ref number, const Ref a[4])
{
    for (int i = 0; i < 2 && is_plain_contraction(n->op)
                    && n->over == AXIS(AX_I); i++) {
        const Node *in = &g->n[a[i]];
        if (in->op != OP_input || !input_is_adjoint(&g->in[in->index]))
            continue;
        Ref by = number, other = without_number(g, a[!i], &by);
        if (!by)
            return 0;
        Node now = *n;                  /* dot would take the number out */
        now.a[i] = op2(g, OP_mul, a[i], by);
        now.a[!i] = other;
        return node_share(g, &now);
    }
    return 0;
}

/* The same of n, which may be a number times such a sum. */
static Ref scaled_adjoints(Graph *g, const Graph *old, const Node *n,
                           const Ref a[4], const Ref *image)
{
    for (int i = 0; i < 2 && n->op == OP_mul; i++) {
        const Node *sum = &old->n[n->a[!i]];
        if (old->n[n->a[i]].op != OP_num || !is_matrix(old, n->a[!i]))
            continue;
        Ref of[4] = { image[sum->a[0]], image[sum->a[1]] };
        return scaled_adjoint(g, sum, a[i], of);
    }
    return scaled_adjoint(g, n, 0, a);
}

typedef enum Way { SCALES_OF_ADJOINTS, SCALES_OUT, SCALES_IN, SCALES_OF_SUMS,
                   SCALES_OF_SCORES, SCALES_ONCE } Way;

typedef struct Rescaling {
    Way way;
    const Graph *old;
    const int *readers;
} Rescaling;

static Ref rescaled_node(void *ud, Graph *g, const Node *n, const Ref a[4],
                         const Ref *image)
{
    const Rescaling *x = ud;

    switch (x->way) {
    case SCALES_OF_ADJOINTS: return scaled_adjoints(g, x->old, n, a, image);
    case SCALES_OUT: return scaled_product(g, n, a);
    case SCALES_IN: return scaled_factors(g, n, x->readers, image);
    case SCALES_OF_SUMS: return scaled_sum(g, x->old, n, x->readers, image);
    case SCALES_OF_SCORES: return scaled_scores(g, x->old, n, x->readers,
                                                image);
    default: return scaled_once(g, x->old, n, x->readers, image);
    }
}

static const Plan *rescaled(Ctx *c, const Plan *p, Way way)
{
    Rescaling x = { way, p->g, count_readers(c, p->g) };

    return plan_rewritten(c, p, rescaled_node, &x);
}

/* A number times a sum over tokens of products of two inputs, of which one is
 * an adjoint: neither is computed. */
static bool scales_inputs(const Graph *g, const Node *n)
{
    bool any = false;
    for (int i = 0; i < 2 && n->op == OP_mul; i++) {
        const Node *sum = &g->n[n->a[!i]];
        bool inputs = g->n[n->a[i]].op == OP_num
                   && is_plain_contraction(sum->op)
                   && sum->over == AXIS(AX_I), adjoint = false;
        for (int j = 0; j < 2 && inputs; j++) {
            const Node *in = &g->n[sum->a[j]];
            inputs = in->op == OP_input;
            adjoint |= inputs && input_is_adjoint(&g->in[in->index]);
        }
        any |= inputs && adjoint;
    }
    return any;
}

const Plan *plan_scales_of_adjoints(Ctx *c, const Plan *p)
{
    bool any = false, solves = false;
    for (Ref r = 1; r < p->g->len; r++) {
        any |= scales_inputs(p->g, &p->g->n[r]);
        solves |= p->g->n[r].op == OP_solve;
    }
    return any && solves ? rescaled(c, p, SCALES_OF_ADJOINTS) : p;
}

const Plan *plan_scales_out(Ctx *c, const Plan *p)
{
    return rescaled(c, p, SCALES_OUT);
}

const Plan *plan_scales_in(Ctx *c, const Plan *p)
{
    return rescaled(c, p, SCALES_IN);
}

const Plan *plan_scales_joined(Ctx *c, const Plan *p)
{
    p = rescaled(c, p, SCALES_OF_SUMS);
    return rescaled(c, rescaled(c, p, SCALES_OF_SCORES), SCALES_ONCE);
}
