/* scans_apart.c -- several sums of one matrix, before a plan is cut.
 *
 * Sums take the place of what they are of: a matrix of which a kernel has
 * several, averages at two rates, is the operand of one. The others are of it
 * with zeros added, a matrix of its own.
 */
#include "schedule.h"

typedef struct Apart { const Plan *p; const Graph *g; } Apart;

static bool is_scan_of_matrix(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    const AxisSet tokens = AXIS(AX_I);

    return op_is(n->op, RECURS) && !op_has(n->op, TO_AXIS)
        && !is_system(n->op) && n->axes & tokens
        && n->axes & DIM_AXES && __builtin_popcount(n->axes) == 2;
}

/* From a start on, with gates or without. */
static bool is_started_sum(const Node *n)
{
    return op_is(n->op, RECURS) && n->a[2] && !adds_tokens(n->op)
        && !is_running_most(n->op);
}

static Ref operand_of(const Graph *g, Ref r)
{
    return g->n[r].a[g->n[r].a[2] != 0];
}

static bool has(const Kernel *k, Ref r)
{
    bool any = false;

    for (int i = 0; i < k->nnodes; i++)
        any |= k->node[i] == r;
    return any;
}

static bool share_kernel(const Plan *p, Ref a, Ref b)
{
    bool any = false;

    for (int i = 0; i < p->nkernels; i++)
        any |= has(&p->kernel[i], a) && has(&p->kernel[i], b);
    return any;
}

static Ref find_node(const Graph *g, const Node *n)
{
    Ref r = 1;

    while (r < g->len && (g->n[r].op != n->op || g->n[r].flags != n->flags
                          || g->n[r].a[0] != n->a[0]
                          || g->n[r].a[1] != n->a[1]
                          || g->n[r].a[2] != n->a[2]))
        r++;
    return r < g->len ? r : 0;
}

/* How many others come first, of those that a kernel has beside it. */
static int scans_before(const Apart *x, Ref r)
{
    int n = 0;

    for (Ref u = 1; u < x->g->len; u++)
        n += u != r && is_scan_of_matrix(x->g, u)
          && (u < r || !is_started_sum(&x->g->n[u]))
          && operand_of(x->g, u) == operand_of(x->g, r)
          && share_kernel(x->p, u, r);
    return n;
}

static Ref scan_apart(void *ud, Graph *g, const Node *n, const Ref a[4],
                      const Ref *image)
{
    const Apart *x = ud;
    Ref to[4] = { a[0], a[1], a[2], a[3] };

    (void)image;
    if (!is_started_sum(n))
        return 0;
    Ref r = find_node(x->g, n);
    if (!r || !is_scan_of_matrix(x->g, r)
        || x->g->n[n->a[1]].axes != n->axes)
        return 0;
    int before = scans_before(x, r);
    for (int i = 0; i < before; i++)
        to[1] = op2(g, OP_add, to[1], op2(g, OP_lt, a[1], a[1]));
    return before ? node_copy(g, n, to) : 0;
}

const Plan *plan_scans_apart(Ctx *c, const Plan *p)
{
    Apart x = { p, p->g };

    return plan_rewritten(c, p, scan_apart, &x);
}
