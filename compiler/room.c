/* room.c -- how large each value of a graph is, and room for it. */
#include "eval.h"

#include <string.h>

static AxisSet axes_of(const Eval *e, Ref r)
{
    return e->g->n[r].axes;
}

int32_t eval_extent(const Eval *e, Ref r, int axis)
{
    return axis == AX_I || axis == AX_J ? e->rows : e->ext[r][axis];
}

int64_t eval_count(const Eval *e, Ref r)
{
    int64_t n = 1;

    for (AxisSet s = axes_of(e, r); s; s &= s - 1)
        n *= eval_extent(e, r, lowest(s));
    return n;
}

enum { MAX_TILE = 1 << 28 };

/* The extent of one axis of a node, as its operands have it. */
static int32_t operand_extent(const Eval *e, const Node *n, int ax)
{
    int32_t ext = 0;

    for (int i = 0; i < 4; i++) {
        Ref a = n->a[i];
        if (!(axes_of(e, a) & AXIS(ax)))
            continue;
        if (ext && ext != e->ext[a][ax])
            fail(e->c, n->line, "%s: axis '%s' has %d entries on one side "
                 "and %d on the other", op_info[n->op].name,
                 e->g->axis[ax].name, ext, e->ext[a][ax]);
        ext = e->ext[a][ax];
    }
    return ext;
}

static int32_t node_extent(const Eval *e, const Node *n, int ax)
{
    const int32_t *a = e->ext[n->a[0]], *b = e->ext[n->a[1]];
    AxisSet sa = axes_of(e, n->a[0]), sb = axes_of(e, n->a[1]);

    if (ax == AX_I || ax == AX_J)
        return e->ext[0][ax];
    if (n->op == OP_input || n->op == OP_state)
        return e->ext[0][ax];
    if (n->op == OP_cat && n->over == AXIS(ax))
        return (sa & n->over ? a[ax] : 1) + (sb & n->over ? b[ax] : 1);
    if (n->op == OP_part && n->over == AXIS(ax))
        return (int32_t)n->num;
    if (n->op == OP_unit || n->op == OP_count)
        return e->ext[0][ax];
    if (n->op == OP_relabel && n->index == ax)
        return a[lowest(n->over)];
    if ((n->op == OP_dup || n->op == OP_pairsum) && n->index == ax)
        return e->ext[0][ax];
    if (n->op == OP_col && ax > AX_J && ax < AX_DIM)
        return a[ax - AX_J];
    if (n->op == OP_row && ax < AX_J)
        return a[ax + AX_J];
    return operand_extent(e, n, ax);
}

static void check_node(const Eval *e, const Node *n)
{
    if (n->op == OP_select && n->index >= e->ext[n->a[0]][lowest(n->over)])
        fail(e->c, n->line, "entry %d of axis '%s', which has %d",
             n->index + 1, e->g->axis[lowest(n->over)].name,
             e->ext[n->a[0]][lowest(n->over)]);
    if (n->op == OP_part && (n->num < 1 || n->index + n->num
                             > e->ext[n->a[0]][lowest(n->over)]))
        fail(e->c, n->line, "entries %d to %d of axis '%s', which has %d",
             n->index + 1, (int)(n->index + n->num),
             e->g->axis[lowest(n->over)].name,
             e->ext[n->a[0]][lowest(n->over)]);
    for (AxisSet s = n->over; s && n->op != OP_cat; s &= s - 1)
        operand_extent(e, n, lowest(s));
}

static void size_node(Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    int64_t count = 1;

    check_node(e, n);
    for (AxisSet s = n->axes; s; s &= s - 1) {
        int ax = lowest(s);
        int32_t ext = node_extent(e, n, ax);
        if (ext <= 0)
            fail(e->c, n->line, "axis '%s' has no size",
                 e->g->axis[ax].name);
        e->ext[r][ax] = ext;
        count *= ext;
        if (count > MAX_TILE)
            fail_code(e->c, ERR_LIMIT, "%s: a value of axes %s is too large",
                      e->g->name, axes_text(e->g, n->axes));
    }
    e->val[r] = ctx_alloc(e->c, (size_t)count * sizeof(double));
}

static void mark_live(Eval *e)
{
    const Graph *g = e->g;

    graph_live(g, e->live);
    for (int i = 0; i < g->nst; i++)
        e->live[g->st[i].node] = 1;
}

Eval *eval_new(Ctx *c, const Graph *g, const int32_t size[NAXES], int rows)
{
    Eval *e = ctx_alloc(c, sizeof *e);

    e->c = c;
    e->g = g;
    e->rows = rows;
    e->live = ctx_alloc(c, g->len);
    e->val = ctx_alloc(c, g->len * sizeof *e->val);
    e->ext = ctx_alloc(c, g->len * sizeof *e->ext);
    mark_live(e);
    for (int ax = 0; ax < NAXES; ax++)  /* of node 0: each axis's own size */
        e->ext[0][ax] = g->axis[ax].size ? g->axis[ax].size : size[ax];
    e->ext[0][AX_I] = e->ext[0][AX_J] = rows;
    e->val[0] = ctx_alloc(c, sizeof(double));
    for (Ref r = 1; r < g->len; r++)
        if (e->live[r])
            size_node(e, r);
    return e;
}

typedef struct Extents { const Graph *g; int32_t (*ext)[NAXES]; } Extents;

static void find_extents(Ctx *own, void *ud)
{
    Extents *x = ud;
    int32_t size[NAXES] = { 0 };
    Eval *e = eval_new(own, x->g, size, 1);

    memcpy(x->ext, e->ext, x->g->len * sizeof *x->ext);
}

/* What eval_new finds; its memory is given back. */
const int32_t (*graph_extents(Ctx *c, const Graph *g))[NAXES]
{
    Extents x = { g, ctx_alloc(c, g->len * sizeof *x.ext) };
    Ctx *own = ctx_like(c);

    if (!own)
        fail_code(c, ERR_MEMORY, "out of memory");
    own->file = c->file;
    bool ok = ctx_protect(own, find_extents, &x);
    c->err = own->err;
    ctx_free(own);
    if (!ok)
        ctx_rethrow(c);
    return (const int32_t (*)[NAXES])x.ext;
}
