/* layer_fuse.c -- steps without states computed within a call's step: behind
 * the call, of its result, or before it, of its arguments; and products with
 * weights, before it.
 *
 * Within a head all of that is the token's own, so that the call's step and
 * they are one step, from which forward, backward and decoding follow as from
 * any other. Its states are the call's. Axes are the call's own, beside those
 * that a product sums over; heads may be, where nothing is summed over them.
 */
#include "layer_cut.h"

#include <stdio.h>
#include <string.h>

/* A value's part, from 1 on; 0: an argument, or none. */
static int part_of(const LayerParts *p, Ref r)
{
    for (int i = 0; i < p->n; i++)
        if (p->part[i].y == r)
            return i + 1;
    return 0;
}

static bool reads(const LayerPart *p, Ref r)
{
    for (int i = 0; i < p->nin; i++)
        if (p->in[i] == r)
            return true;
    return false;
}

/* Is it neither product nor call? */
static bool is_row(const Layer *l, const LayerPart *p)
{
    return p->step && !layer_call_of(l, p->y);
}

bool layer_is_call(const Layer *l, const LayerPart *p)
{
    return p->step && layer_call_of(l, p->y);
}

/* Does it keep tokens before, and nothing else? Such a one has to see its
 * argument as it is. */
static bool only_delays(const Graph *step)
{
    for (int i = 0; i < step->nst; i++) {
        int op = step->n[step->st[i].next].op;
        if (op != OP_input && op != OP_state)
            return false;
    }
    return true;
}

/* ---- what may be where ---- */

/* Axes that the call's step knows, as the layer's. */
static AxisSet own_axes(const LayerPart *p)
{
    AxisSet s = p->step->n[p->step->out[0].node].axes;

    for (int i = 0; i < p->step->nin; i++)
        s |= p->step->in[i].axes;
    return layer_mapped(p->axis, s);
}

static AxisSet heads_of(const LayerPart *p)
{
    return p->heads ? AXIS(p->heads) : 0;
}

/* Of the layer's nodes: 1: computed by the part, 2: read by it. */
static uint8_t *live_nodes(Ctx *c, const Graph *g, const LayerPart *p)
{
    uint8_t *live = ctx_alloc(c, g->len);

    live[p->y] = 1;
    for (Ref r = p->y; r > 0; r--) {
        if (live[r] && r != p->y && reads(p, r))
            live[r] = 2;
        for (int i = 0; live[r] == 1 && i < 4; i++)
            if (g->n[r].a[i])
                live[g->n[r].a[i]] = 1;
    }
    return live;
}

/* Has all that the row part (or product) computes and reads axes of the call's,
 * or its heads, which stay apart? */
static bool fits(Ctx *c, const Layer *l, const LayerPart *call,
                 const LayerPart *row)
{
    const Graph *g = l->traced;
    AxisSet heads = heads_of(call), all = own_axes(call) | heads | row->over;
    uint8_t *live = live_nodes(c, g, row);

    for (Ref r = 1; r <= row->y; r++) {
        const Node *n = &g->n[r];
        if (!live[r])
            continue;
        if (op_is(n->op, WHOLE_ROW)
            || (n->op == OP_input && g->in[n->index].index_of))
            return false;               /* a program over rows */
        bool named = live[r] == 1 && n->op != OP_size
                  && layer_names_axis(n->op);
        AxisSet met = n->over | (named ? AXIS(n->index) : 0);
        if (n->axes & ~all || (live[r] == 1 && met & (heads | ~all)))
            return false;
    }
    return call->nin + row->nin < MAX_INPUTS / 4;
}

/* The call that row part i may be behind: it alone reads the result, or each
 * that reads it can see the tokens before by itself. -1: there is none. */
int layer_call_before(Ctx *c, const Layer *l, const LayerParts *p, int i)
{
    const LayerPart *row = &p->part[i];

    for (int j = 0; j < i; j++) {
        const LayerPart *call = &p->part[j];
        bool may = layer_is_call(l, call) && reads(row, call->y)
                && l->traced->out[0].node != call->y;
        bool any = may && only_delays(call->step);
        for (int k = 0; may && !any && k < p->n; k++)
            may = k == i || !reads(&p->part[k], call->y);
        if (may && fits(c, l, call, row))
            return j;
    }
    return -1;
}

/* Can the call's step have the row part's value in the place of its inputs? */
static bool takes(Ctx *c, const Layer *l, const LayerPart *call,
                  const LayerPart *row)
{
    if (only_delays(call->step) || !fits(c, l, call, row))
        return false;
    for (int i = 0; i < call->nin; i++)
        if (call->in[i] == row->y
            && call->step->in[i].timed != (bool)l->traced->n[row->y].timed)
            return false;
    return true;
}

bool layer_takes(Ctx *c, const Layer *l, const LayerParts *p, int call,
                 int row)
{
    return takes(c, l, &p->part[call], &p->part[row]);
}

/* Can all calls in whose steps the part's readers are have it there, too? */
static bool may_precede(Ctx *c, const Layer *l, const LayerParts *p,
                        const uint8_t *place, int i, const LayerPart *row)
{
    Ref y = p->part[i].y;
    bool any = false;

    if (l->traced->out[0].node == y)
        return false;
    for (int j = 0; j < p->n; j++) {
        const LayerPart *by = &p->part[j];
        int call = layer_is_call(l, by) ? j : place[j] == PLACE_BEHIND
                 ? layer_call_before(c, l, p, j) : -1;
        if (!reads(by, y))
            continue;
        if (call < 0 ? place[j] != PLACE_BEFORE
                       || !may_precede(c, l, p, place, j, row)
                     : !takes(c, l, &p->part[call], row))
            return false;
        any = true;
    }
    return any;
}

bool layer_may_fuse(Ctx *c, const Layer *l, const LayerParts *p,
                    const uint8_t *place, int i, RowPlace to)
{
    const LayerPart *row = &p->part[i];

    if (to == PLACE_APART)
        return true;
    if (to == PLACE_BEFORE)
        return !layer_is_call(l, row) && may_precede(c, l, p, place, i, row);
    return is_row(l, row) && !row->constant
        && layer_call_before(c, l, p, i) >= 0;
}

/* ---- one step of several parts ---- */

typedef struct Fusing {
    Ctx *c;
    const Layer *l;
    const LayerParts *from;
    const uint8_t *before;
    const int32_t *size;
    const LayerPart *call;              /* as it was */
    int behind;                         /* the row part behind it; or -1 */
    LayerPart *p;
    Graph *to;
    uint8_t axis[NAXES];                /* the step's for each of the layer; 0:
                                           it has none */
    Ref *map;                           /* per node of the layer */
} Fusing;

/* Input of the step, of the layer's value r; the same one for the same. */
static Ref value_input(Fusing *f, Ref r, const Input *like)
{
    LayerPart *p = f->p;

    for (int i = 0; i < p->nin; i++)
        if (p->in[i] == r && f->to->in[i].timed == like->timed
            && f->to->in[i].axes == like->axes)
            return f->to->in[i].node;
    if (f->to->nin == MAX_INPUTS - 1)
        fail(f->c, like->line, "%s: more than %d values enter one part",
             f->call->name, MAX_INPUTS - 1);
    Input *in = &f->to->in[f->to->nin];
    *in = *like;
    p->in[p->nin++] = r;
    f->to->nin++;
    return in->node = node_new(f->to, (Node){ .op = OP_input, .index =
                                              (uint16_t)(f->to->nin - 1) });
}

/* The same for what a row part reads. */
static Ref row_input(Fusing *f, Ref r)
{
    const Graph *g = f->l->traced;
    const Node *n = &g->n[r];
    Input in = { .timed = n->timed, .line = n->line,
                 .axes = layer_mapped(f->axis, n->axes & ~heads_of(f->call)) };

    snprintf(in.name, sizeof in.name, "value_of_the_layer_%u", r);
    in.rank = (uint8_t)layer_order(in.axes, in.order);
    return value_input(f, r, &in);
}

static void compute_row(Fusing *f, int i);

/* A value that a row part reads, or the call. */
static Ref value(Fusing *f, Ref r)
{
    const Node *n = &f->l->traced->n[r];
    int i = part_of(f->from, r) - 1;

    if (f->map[r])
        return f->map[r];
    if (i >= 0 && f->before && f->before[i])
        compute_row(f, i);
    else if (n->op == OP_num)
        f->map[r] = num(f->to, n->num);
    else
        f->map[r] = row_input(f, r);
    return f->map[r];
}

/* Axes that a product sums over are the step's from now on. */
static void add_axes(Fusing *f, AxisSet s)
{
    const Graph *g = f->l->traced;

    for (; s; s &= s - 1) {
        int ax = lowest(s);
        const char *name = g->axis[ax].name;
        if (f->axis[ax])
            continue;
        for (int n = 2; graph_find_axis(f->to, name) >= 0; n++)
            name = ctx_format(f->c, "%.16s_%d", g->axis[ax].name, n);
        f->axis[ax] = (uint8_t)graph_axis(f->to, name);
        f->to->axis[f->axis[ax]].size = f->size[ax];
        f->p->axis[f->axis[ax]] = (uint8_t)ax;
    }
}

static void compute_row(Fusing *f, int i)
{
    const Graph *g = f->l->traced;
    const LayerPart *row = &f->from->part[i];
    uint8_t *live = live_nodes(f->c, g, row);
    LayerCopy k = { .to = f->to, .from = g, .axis = f->axis, .map = f->map };

    add_axes(f, row->over);
    for (Ref r = 1; r <= row->y; r++) {
        if (live[r] == 2)
            value(f, r);
        if (live[r] != 1 || f->map[r])
            continue;
        f->map[r] = g->n[r].op == OP_size
                  ? num(f->to, f->size[g->n[r].index])
                  : layer_copy_node(&k, r);
    }
}

/* The call's own inputs, and in the place of some what makes them. */
static void call_inputs(Fusing *f, Ref *map)
{
    const LayerPart *call = f->call;

    for (int i = 0; i < call->nin; i++) {
        const Input *in = &call->step->in[i];
        int row = part_of(f->from, call->in[i]) - 1;
        map[in->node] = row >= 0 && f->before && f->before[row]
                      ? value(f, call->in[i])
                      : value_input(f, call->in[i], in);
    }
}

/* The call's step; its result is that of its part in the layer. */
static void copy_call(Fusing *f)
{
    const Graph *step = f->call->step;
    Graph *to = f->to;
    Ref *map = ctx_alloc(f->c, step->len * sizeof *map);
    uint8_t *live = ctx_alloc(f->c, step->len);
    LayerCopy k = { .to = to, .from = step, .map = map };

    call_inputs(f, map);
    for (int i = 0; i < step->nst; i++) {
        State *st = &to->st[to->nst++];
        *st = step->st[i];
        st->node = node_new(to, (Node){ .op = OP_state,
                                        .index = (uint16_t)i });
        map[step->st[i].node] = st->node;
    }
    graph_live(step, live);
    for (Ref r = 1; r < step->len; r++)
        if (live[r] && !map[r])
            map[r] = layer_copy_node(&k, r);
    for (int i = 0; i < step->nst; i++)
        to->st[i].next = map[step->st[i].next];
    f->map[f->call->y] = map[step->out[0].node];
}

/* The step's axes, and the other way round. */
static void take_axes(Fusing *f)
{
    const Graph *step = f->call->step;

    memcpy(f->to->axis, step->axis, sizeof f->to->axis);
    f->to->naxes = step->naxes;
    for (int ax = AX_DIM; ax < step->naxes; ax++)
        f->axis[f->call->axis[ax]] = (uint8_t)ax;
}

static LayerPart fused(Fusing *f)
{
    LayerPart p = *f->call;

    f->p = &p;
    p.step = f->to = graph_new(f->c, f->call->step->name, 0);
    p.in = ctx_alloc(f->c, MAX_INPUTS * sizeof *p.in);
    p.nin = 0;
    f->map = ctx_alloc(f->c, f->l->traced->len * sizeof *f->map);
    f->to->lines = f->call->step->lines;
    take_axes(f);
    copy_call(f);
    if (f->behind >= 0) {
        p.y = f->from->part[f->behind].y;
        compute_row(f, f->behind);
    }
    graph_output(f->to, "y", f->map[p.y]);
    return p;
}

/* Is something computed before the call, in its step? */
static bool has_before(const LayerParts *p, const LayerGroup *g)
{
    const LayerPart *call = &p->part[g->part];

    for (int j = 0; g->before && j < call->nin; j++) {
        int row = part_of(p, call->in[j]) - 1;
        if (row >= 0 && g->before[row])
            return true;
    }
    return false;
}

/* Is all that reads the call's result computed in its step? */
static bool is_behind(Ctx *c, const Layer *l, const LayerParts *p,
                      const uint8_t *place, int call)
{
    bool any = false;

    for (int i = call + 1; i < p->n; i++) {
        if (!reads(&p->part[i], p->part[call].y))
            continue;
        if (place[i] != PLACE_BEHIND || layer_call_before(c, l, p, i) != call)
            return false;
        any = true;
    }
    return any;
}

/* Of parts that have the same states the last one leaves them. */
static void find_borrowers(LayerParts *p)
{
    for (int i = 0; i < p->n; i++)
        for (int j = i + 1; p->part[i].step && j < p->n; j++)
            p->part[i].borrows |= p->part[j].step && p->part[i].step->nst
                               && p->part[j].step->nst
                               && p->part[i].state == p->part[j].state;
}

LayerGroups layer_groups(Ctx *c, const Layer *l, const LayerParts *p,
                         const uint8_t *place)
{
    LayerGroups to = { .group = ctx_alloc(c, (size_t)p->n * sizeof *to.group
                                             + 1) };
    uint8_t *before = ctx_alloc(c, (size_t)p->n + 1);

    for (int i = 0; i < p->n; i++)
        before[i] = place[i] == PLACE_BEFORE;
    for (int i = 0; i < p->n; i++) {
        LayerGroup g = { .part = i, .behind = -1 };
        if (before[i] || (layer_is_call(l, &p->part[i])
                          && is_behind(c, l, p, place, i)))
            continue;
        if (place[i] == PLACE_BEHIND)
            g = (LayerGroup){ layer_call_before(c, l, p, i), i, NULL };
        if (layer_is_call(l, &p->part[g.part]))
            g.before = before;
        to.group[to.n++] = g;
    }
    return to;
}

LayerPart layer_fused(Ctx *c, const Layer *l, const LayerParts *p,
                      const LayerGroup *g, const int32_t size[NAXES])
{
    Fusing f = { .c = c, .l = l, .from = p, .before = g->before, .size = size,
                 .behind = g->behind, .call = &p->part[g->part] };

    return g->behind >= 0 || has_before(p, g) ? fused(&f) : p->part[g->part];
}

LayerParts *layer_fuse(Ctx *c, const Layer *l, const LayerParts *p,
                       const LayerGroups *g, const int32_t size[NAXES])
{
    LayerParts *to = ctx_alloc(c, sizeof *to);

    to->part = ctx_alloc(c, (size_t)g->n * sizeof *to->part + 1);
    for (int i = 0; i < g->n; i++)
        to->part[to->n++] = layer_fused(c, l, p, &g->group[i], size);
    find_borrowers(to);
    return to;
}
