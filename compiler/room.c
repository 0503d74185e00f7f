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

static int32_t own_length(const void *e, int ax)
{
    return ((const Eval *)e)->ext[0][ax];
}

static int32_t length_of(const void *ud, Ref r, int ax)
{
    const Eval *e = ud;

    return axes_of(e, r) & AXIS(ax) ? e->ext[r][ax] : 1;
}

static int32_t usual_length(const void *e, const Node *n, int ax)
{
    return operand_extent(e, n, ax);
}

/* Entries that are taken from an axis are there. */
static void check_entries(const Eval *e, const Node *n)
{
    int ax = lowest(n->over), len = op_has(n->op, LEN) ? (int)n->num : 1;
    int32_t ext = e->ext[n->a[0]][ax];

    if (len == 1 && n->index >= ext)
        fail(e->c, n->line, "entry %d of axis '%s', which has %d",
             n->index + 1, e->g->axis[ax].name, ext);
    if (len < 1 || n->index + len > ext)
        fail(e->c, n->line, "entries %d to %d of axis '%s', which has %d",
             n->index + 1, n->index + len, e->g->axis[ax].name, ext);
}

static void check_node(const Eval *e, const Node *n)
{
    if (op_is(n->op, MOVES) && op_has(n->op, INDEX))
        check_entries(e, n);
    for (AxisSet s = n->over; s && !op_is(n->op, JOINS); s &= s - 1)
        operand_extent(e, n, lowest(s));
}

static void size_node(Eval *e, Ref r)
{
    const Lengths l = { own_length, length_of, usual_length, e };
    const Node *n = &e->g->n[r];
    int64_t count = 1;

    check_node(e, n);
    for (AxisSet s = n->axes; s; s &= s - 1) {
        int ax = lowest(s);
        bool token = ax == AX_I || ax == AX_J;
        int32_t ext = token ? e->ext[0][ax] : node_extent(&l, n, ax);
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
