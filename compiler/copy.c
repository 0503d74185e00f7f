/* copy.c -- graphs again: for known sizes, or in another context, with the mask
 * and the layer that belong to them.
 */
#include "layer.h"
#include "mask.h"

#include <string.h>

/* Axis numbers, arguments and states stay what they are. */
Graph *graph_sized(const Graph *g, const int32_t size[NAXES])
{
    Graph *s = graph_new(g->ctx, g->name, g->chunk);
    Ref *map = ctx_alloc(g->ctx, g->len * sizeof *map);
    uint8_t *live = ctx_alloc(g->ctx, g->len);

    memcpy(s->axis, g->axis, sizeof s->axis);
    s->naxes = g->naxes;
    for (int i = AX_DIM; i < g->naxes; i++)
        s->axis[i].size = size[i] ? size[i] : g->axis[i].size;
    memcpy(s->in, g->in, sizeof s->in);
    memcpy(s->st, g->st, sizeof s->st);
    memcpy(s->out, g->out, sizeof s->out);
    s->nin = g->nin;
    s->nst = g->nst;
    s->nout = g->nout;
    s->note = g->note;
    s->strict = g->strict;
    s->lines = g->lines;
    graph_live(g, live);
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        bool argument = n->op == OP_input || n->op == OP_state;
        if (!live[r] && !argument)
            continue;
        Ref a[4] = { map[n->a[0]], map[n->a[1]], map[n->a[2]], map[n->a[3]] };
        s->line = n->line;
        map[r] = node_copy(s, n, a);
    }
    for (int i = 0; i < s->nin; i++)
        s->in[i].node = map[g->in[i].node];
    for (int i = 0; i < s->nst; i++) {
        s->st[i].node = map[g->st[i].node];
        s->st[i].next = map[g->st[i].next];
    }
    for (int i = 0; i < s->nout; i++)
        s->out[i].node = map[g->out[i].node];
    return s;
}

static Lines lines_copy(Ctx *c, const Lines *from)
{
    Lines l = { from->file ? ctx_string(c, from->file) : NULL, from->n,
                ctx_alloc(c, (size_t)(from->n + 1) * sizeof *l.at) };

    for (int i = 0; i < l.n; i++)
        l.at[i] = (SourceLine){ from->at[i].line,
                                ctx_string(c, from->at[i].text) };
    return l;
}

Mask *mask_copy(Ctx *c, const Mask *m)
{
    Mask *to = ctx_alloc(c, sizeof *to);

    *to = *m;
    to->ctx = c;
    to->drawn = NULL;
    to->ndrawn = 0;
    to->g = graph_copy(c, m->g);
    for (int k = 0; k < 2; k++)
        to->way[k] = m->way[k] ? graph_copy(c, m->way[k]) : NULL;
    to->cache = m->cache ? graph_copy(c, m->cache) : NULL;
    to->uncached = m->uncached ? ctx_string(c, m->uncached) : NULL;
    to->uncached_help = m->uncached_help ? ctx_string(c, m->uncached_help)
                                         : NULL;
    to->traits = ctx_grow(c, m->traits, m->cap, m->cap);
    to->mark = ctx_grow(c, m->mark, m->cap, m->cap);
    to->value = ctx_grow(c, m->value, m->cap * sizeof *m->value,
                         m->cap * sizeof *m->value);
    return to;
}

Window *window_copy(Ctx *c, const Window *w)
{
    Window *to = ctx_alloc(c, sizeof *to);

    *to = *w;
    to->within = graph_copy(c, w->within);
    to->across = graph_copy(c, w->across);
    to->kept = graph_copy(c, w->kept);
    to->sinks = w->sinks ? graph_copy(c, w->sinks) : NULL;
    to->late = w->late ? ctx_string(c, w->late) : NULL;
    to->place = w->place ? ctx_string(c, w->place) : NULL;
    if (!w->blocks.within)
        return to;
    to->blocks.within = graph_copy(c, w->blocks.within);
    to->blocks.across = graph_copy(c, w->blocks.across);
    to->blocks.packed = graph_copy(c, w->blocks.packed);
    to->blocks.places = graph_copy(c, w->blocks.places);
    if (!w->blocks.tail)
        return to;
    to->blocks.tail = graph_copy(c, w->blocks.tail);
    to->blocks.upto = graph_copy(c, w->blocks.upto);
    return to;
}

static Layer *layer_copy(Ctx *c, const Layer *l)
{
    Layer *to = ctx_alloc(c, sizeof *to);
    Graph *traced = ctx_alloc(c, sizeof *traced);

    *to = *l;
    *traced = *l->traced;
    traced->layer = NULL;               /* that is this copy */
    to->traced = graph_copy(c, traced);
    to->traced->layer = to;
    for (int i = 0; i < l->ncalls; i++) {
        LayerCall *k = &to->call[i];
        size_t bytes = (size_t)k->nargs * sizeof *k->arg;
        k->name = ctx_string(c, k->name);
        k->result = k->result ? ctx_string(c, k->result) : NULL;
        k->step = k->step ? graph_copy(c, k->step) : NULL;
        k->arg = ctx_grow(c, k->arg, bytes, bytes + 1);
    }
    return to;
}

Graph *graph_copy(Ctx *c, const Graph *g)
{
    Graph *s = ctx_alloc(c, sizeof *s);

    *s = *g;
    s->ctx = c;
    s->no = NULL;
    s->n = ctx_grow(c, g->n, g->len * sizeof *g->n, g->cap * sizeof *g->n);
    s->hash = ctx_grow(c, g->hash, g->hash_cap * sizeof *g->hash,
                       g->hash_cap * sizeof *g->hash);
    s->note = g->note ? ctx_string(c, g->note) : NULL;
    s->lines = lines_copy(c, &g->lines);
    s->mask = g->mask ? mask_copy(c, g->mask) : NULL;
    s->window = NULL;                   /* of the step as it was traced */
    s->scores = NULL;
    s->layer = g->layer ? layer_copy(c, g->layer) : NULL;
    return s;
}
