/* delays.c -- delays of what is computed become computations of what is
 * delayed, before a plan is cut: a matrix of the next token's values costs no
 * more than any where it is loaded from one row further on.
 *
 * y = delay(x, 0), from the last token back, is zero at the chunk's last token.
 * Of x that is made of one matrix m, element by element and in proportion to
 * it, that is what x would be with delay(m, 0) in its place and everything else
 * a token further on; what that is at the last token makes no difference. So
 * the delay of a value that was itself delayed is the value.
 */
#include "schedule.h"
#include "../cost.h"

typedef struct Down {
    Graph *g;
    uint8_t *dear;                      /* per node: made of products */
    Ref *found;                         /* per node: its core */
    uint32_t len;                       /* of those */
    Ref core;                           /* what all else is in proportion to */
} Down;

static bool is_dear(const Down *d, Ref r)
{
    return r < d->len && d->dear[r];
}

static Ref core_of(const Down *d, Ref r);

static Ref find_core(const Down *d, Ref r)
{
    const Node *n = &d->g->n[r];
    Ref core = 0;
    int all = 0;
    bool linear = n->op == OP_add || n->op == OP_sub || n->op == OP_neg
               || n->op == OP_mul || n->op == OP_rot90 || n->op == OP_pairsum;
    for (int i = 0; i < 4 && linear; i++) {
        Ref x = is_dear(d, n->a[i]) ? core_of(d, n->a[i]) : 0;
        if (!x)
            continue;
        if (core && (core != x || n->op == OP_mul))
            return r;
        core = x;
        all++;
    }
    bool sum = n->op == OP_add || n->op == OP_sub;
    return core && (!sum || all == 2) ? core : r;
}

/* The node nearest to products through which alone r is made of them, or r. */
static Ref core_of(const Down *d, Ref r)
{
    if (!d->found[r])
        d->found[r] = find_core(d, r);
    return d->found[r];
}

/* r a token further on; at the chunk's last token 0 where it is made of the
 * core, else anything. 0: it cannot be had so. */
static Ref ahead(Down *d, Ref r)
{
    Graph *g = d->g;
    const Node n = g->n[r];
    Ref a[4] = { 0 };
    if (!(n.axes & AXIS(AX_I)))
        return r;
    if (n.op == OP_delay && !n.flags)
        return n.a[0];
    if (r == d->core || n.axes == AXIS(AX_I))
        return node_new(g, (Node){ .op = OP_delay, .flags = REVERSE,
                                   .a = { r, num(g, 0) } });
    if (!(op_info[n.op].traits & ELEMENTWISE) && n.op != OP_rot90
        && n.op != OP_pairsum && n.op != OP_dup)
        return 0;
    for (int i = 0; i < 4; i++)
        if (n.a[i] && !(a[i] = ahead(d, n.a[i])))
            return 0;
    return node_copy(g, &n, a);
}

/* What the delay is, its operand in place. */
static Ref moved(Down *d, const Node *n, Ref x)
{
    AxisSet s = n->axes;
    if (n->op != OP_delay || n->flags != REVERSE || !is_num(d->g, n->a[1], 0)
        || !(s & (s - 1)) || !is_dear(d, x))
        return 0;
    d->core = core_of(d, x);
    return d->core == x ? 0 : ahead(d, x);
}

static void find_dear(Down *d)
{
    d->dear = ctx_alloc(d->g->ctx, d->g->len);
    d->found = ctx_alloc(d->g->ctx, d->g->len * sizeof *d->found);
    d->len = d->g->len;
    for (Ref r = 1; r < d->g->len; r++) {
        const Node *n = &d->g->n[r];
        d->dear[r] = node_is_product(d->g, n) && n->axes & (n->axes - 1);
        for (int i = 0; i < 4; i++)
            d->dear[r] |= d->dear[n->a[i]];
    }
}

/* Operands of delays that go before one are what they were. */
const Plan *plan_delays_down(Ctx *c, const Plan *p)
{
    Down d = { .g = graph_copy(c, p->g) };
    Graph *g = d.g;
    Ref *image = ctx_alloc(c, p->g->len * sizeof *image);
    bool any = false;
    find_dear(&d);
    for (Ref r = 1; r < p->g->len; r++) {
        const Node n = p->g->n[r];
        Ref a[4];
        bool same = true;
        for (int i = 0; i < 4; i++) {
            a[i] = image[n.a[i]];
            same &= a[i] == n.a[i];
        }
        Ref now = moved(&d, &n, a[0]);
        any |= now != 0;
        image[r] = now ? now : same ? r : node_copy(g, &n, a);
    }
    for (int i = 0; i < g->nout; i++)
        g->out[i].node = image[g->out[i].node];
    for (int i = 0; i < g->nst; i++)
        g->st[i].next = image[g->st[i].next];
    return any ? plan_renewed(p, g, image, 1) : p;
}
