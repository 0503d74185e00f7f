/* mask_above.c -- a mask of both directions: what it says above the diagonal,
 * with i and j exchanged, is a mask below it. Its matrix is the transpose of
 * what is to be summed up there, and its step is run as that
 * (compiler/transpose.c): from the last token on, with nothing turned round.
 */
#include "mask.h"

#include <string.h>

typedef struct Above {
    Mask *from, *to;
    Ref *map;
} Above;

static Ref exchanged_leaf(const Above *w, const Leaf *l)
{
    int side = l->side == SIDE_I ? SIDE_J : l->side == SIDE_J ? SIDE_I
             : l->side;

    return mask_leaf(w->to, l->kind, side, l->name, l->back);
}

static Ref exchanged_value(Above *w, Ref root)
{
    Mask *m = w->to;

    mask_reach(w->from, root);
    for (Ref r = 1; r <= root; r++) {
        const Node n = w->from->g->n[r];
        if (!w->from->mark[r] || w->map[r])
            continue;
        Ref a[4] = { w->map[n.a[0]], w->map[n.a[1]], w->map[n.a[2]],
                     w->map[n.a[3]] };
        m->g->line = n.line;
        w->map[r] = n.op == OP_input
                  ? exchanged_leaf(w, &w->from->leaf[n.index])
                  : node_copy(m->g, &n, a);
    }
    return w->map[root];
}

static Region exchanged_region(const Region *r)
{
    Region to = *r;

    to.lo[VAR_I] = r->lo[VAR_J];
    to.hi[VAR_I] = r->hi[VAR_J];
    to.lo[VAR_J] = r->lo[VAR_I];
    to.hi[VAR_J] = r->hi[VAR_I];
    to.lo[VAR_DISTANCE] = -r->hi[VAR_DISTANCE];
    to.hi[VAR_DISTANCE] = -r->lo[VAR_DISTANCE];
    return to;
}

static void add_path(Mask *m, Region at, Ref value)
{
    if (m->npaths == MAX_TRACED)
        graph_refuse(m->g, ERR_USER, m->g->n[value].line, "compare i and j in "
                     "fewer places", "the mask falls into more than %d pieces "
                     "above the diagonal", MAX_TRACED - 1);
    m->path[m->npaths++] = (MaskPath){ at, value, 0 };
}

Mask *mask_above(Mask *m)
{
    Above w = { m, mask_new(m->ctx), NULL };
    Region rest = region_all();
    bool any = false;

    mask_upper_pieces(m);
    w.to->exchanged = true;
    w.to->g->no = m->g->no;
    w.map = ctx_alloc(m->ctx, m->g->cap * sizeof *w.map);
    for (int n = 0; n < m->npieces; n++) {
        const MaskPath *p = &m->piece[n];
        if (is_num(m->g, p->value, 0))
            continue;
        add_path(w.to, exchanged_region(&p->at), exchanged_value(&w, p->value));
        any = true;
    }
    rest.hi[VAR_DISTANCE] = 0;
    add_path(w.to, rest, num(w.to->g, 0));
    return any ? w.to : NULL;
}

/* ---- steps ---- */

char *mask_declared(const Graph *g, const Input *in)
{
    Buf b = { .ctx = g->ctx };

    buf_printf(&b, "%s", in->timed ? "t" : "");
    for (int i = 0; i < in->rank; i++)
        buf_printf(&b, " %s", g->axis[in->order[i]].name);
    buf_printf(&b, "%s%s", *in->domain ? " : " : "", in->domain);
    return b.s;
}

/* A graph of those of g's inputs that `live` says; NULL: of all. */
static Graph *with_inputs(const Graph *g, const Graph *all,
                          const uint8_t *live)
{
    Graph *s = graph_new(g->ctx, g->name, 0);

    memcpy(s->axis, g->axis, sizeof s->axis);
    s->naxes = g->naxes;
    s->lines = g->lines;
    for (int i = 0; i < g->nin; i++)
        if (!live || live[all->in[i].node])
            graph_input(s, g->in[i].name, mask_declared(g, &g->in[i]));
    return s;
}

Graph *mask_inputs(const Graph *g) { return with_inputs(g, NULL, NULL); }

/* The step of m, with the inputs that it reads. */
static Graph *step_of(Mask *m, const Graph *g)
{
    Graph *all = with_inputs(g, NULL, NULL), *s;

    m->work = 0;
    mask_step(m, all);
    uint8_t *live = ctx_alloc(m->ctx, all->len);
    graph_live(all, live);
    s = with_inputs(g, all, live);
    mask_step(m, s);
    return s;
}

void mask_ways(Mask *m, Mask *above, Graph *g)
{
    if (m->nproducts)
        m->way[0] = step_of(m, g);
    m->way[1] = step_of(above, g);
    m->way[1]->transposed = m->nproducts ? TRANSPOSED_ADDED : TRANSPOSED;
    mask_pairs(m, g);
    g->note = NULL;
}
