/* infinite.c -- which values may be infinite, though every input keeps to its
 * domain: from the inputs on, which way each operation lets that through. */
#include "infinite.h"
#include "domain.h"

#include <math.h>
#include <string.h>

enum { DOWN = 1, UP = 2, BOTH = 3 };    /* -inf, inf */

static int turned(int x)
{
    return (x & DOWN ? UP : 0) | (x & UP ? DOWN : 0);
}

/* What its domain allows it to be, entry by entry; NULL: that says nothing. */
static const Domain *domain_of(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    bool own = n->op == OP_input && !g->in[n->index].index_of;
    const Domain *d = own ? domain_named(g->in[n->index].domain) : NULL;

    return d && !d->row ? d : NULL;
}

static int input(const Graph *g, Ref r)
{
    const Domain *d = domain_of(g, r);

    if (!d || g->in[g->n[r].index].mapped)
        return 0;
    return (d->broken(-INFINITY) ? 0 : DOWN) | (d->broken(INFINITY) ? 0 : UP);
}

/* A factor of which a logarithm is taken may be zero. */
static bool is_from_zero(const Graph *g, Ref r)
{
    const Domain *d = domain_of(g, r);

    return d && !d->broken(0) && d->broken(-1);
}

static int number(double x)
{
    return x == INFINITY ? UP : x == -INFINITY ? DOWN : 0;
}

/* a b c: what its operands may be; all: any of them. */
static int reach(const Graph *g, Ref r, int a, int b, int c, int all)
{
    const Node *n = &g->n[r];

    switch (n->op) {
    case OP_num: return number(n->num);
    case OP_input: return input(g, r);
    case OP_neg: return turned(a);
    case OP_sub: return a | turned(b);
    case OP_mul: return all ? BOTH : 0;
    case OP_div: return a ? BOTH : 0;
    case OP_max: return (a & b & DOWN) | (all & UP);
    case OP_min: return (all & DOWN) | (a & b & UP);
    case OP_exp: case OP_sqrt: case OP_softplus: case OP_relu: return a & UP;
    case OP_abs: case OP_square: return a ? UP : 0;
    case OP_log: return (a & UP) | (is_from_zero(g, n->a[0]) ? DOWN : 0);
    case OP_where: return b | c;
    default: return op_is(n->op, BOUNDED) ? 0
                  : all && is_contraction(n->op) ? BOTH : all;
    }
}

bool *infinite_nodes(const Graph *g)
{
    uint8_t *may = ctx_alloc(g->ctx, g->len);
    bool *found = ctx_alloc(g->ctx, g->len * sizeof *found);

    for (Ref r = 1; r < g->len; r++) {
        const Ref *a = g->n[r].a;
        may[r] = (uint8_t)reach(g, r, may[a[0]], may[a[1]], may[a[2]],
                                may[a[0]] | may[a[1]] | may[a[2]]
                                | may[a[3]]);
        found[r] = may[r];
    }
    return found;
}
