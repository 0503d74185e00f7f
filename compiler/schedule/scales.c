/* scales.c -- what scales the rows of a product's factor scales the product
 * instead, before a plan is cut: the factor is then multiplied as it was loaded
 * and needs no tile of its own, nor a rounding.
 */
#include "schedule.h"

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
    if (n->op != OP_dot || n->over & ~DIM_AXES || !(n->axes & (n->axes - 1))
        || !is_matrix(g, a[0]) || !is_matrix(g, a[1]))
        return 0;
    Ref x = unscaled(g, a[0], &scale), y = unscaled(g, a[1], &scale);
    return scale ? op2(g, OP_mul, scale, dot(g, x, y, n->over)) : 0;
}

const Plan *plan_scales_out(Ctx *c, const Plan *p)
{
    Graph *g = graph_copy(c, p->g);
    Ref *image = ctx_alloc(c, p->g->len * sizeof *image);
    bool any = false;
    for (Ref r = 1; r < p->g->len; r++) {
        const Node n = p->g->n[r];
        Ref a[4];
        bool same = true;
        for (int i = 0; i < 4; i++) {
            a[i] = image[n.a[i]];
            same &= a[i] == n.a[i];
        }
        Ref now = scaled_product(g, &n, a);
        any |= now != 0;
        image[r] = now ? now : same ? r : node_copy(g, &n, a);
    }
    for (int i = 0; i < g->nout; i++)
        g->out[i].node = image[g->out[i].node];
    for (int i = 0; i < g->nst; i++)
        g->st[i].next = image[g->st[i].next];
    return any ? plan_renewed(p, g, image, 1) : p;
}
