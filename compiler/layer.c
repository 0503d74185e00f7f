/* layer.c -- calls put into a layer's graph, and the graph cut into parts. */
#include "layer_cut.h"

#include <stdio.h>
#include <string.h>

/* ---- calls ---- */

int layer_order(AxisSet s, uint8_t *order)
{
    int n = 0;

    for (; s; s &= s - 1)
        order[n++] = (uint8_t)lowest(s);
    return n;
}

static LayerCall *new_call(Graph *g, const char *name, int nargs)
{
    Layer *l = g->layer;

    if (l->ncalls == MAX_CALLS)
        fail(g->ctx, g->line, "a layer calls variants and flin.conv %d times "
             "at most", MAX_CALLS);
    LayerCall *k = &l->call[l->ncalls];
    *k = (LayerCall){ .name = ctx_string(g->ctx, name), .nargs = nargs,
                      .first = l->ncalls, .line = g->line };
    k->arg = ctx_alloc(g->ctx, (size_t)nargs * sizeof *k->arg + 1);
    return k;
}

/* The call's result, of these axes. */
static Ref end_call(Graph *g, LayerCall *k, AxisSet axes)
{
    char list[NAXES * 25] = "t";

    for (; axes; axes &= axes - 1) {
        strcat(list, " ");
        strcat(list, g->axis[lowest(axes)].name);
    }
    g->layer->ncalls++;
    k->y = g->in[graph_input(g, ctx_format(g->ctx, "%.40s(...)", k->name),
                             list)].node;
    return k->y;
}

/* An axis that no value has yet, called after `name`. */
static int fresh_axis(Graph *g, const char *name)
{
    const char *word = name;

    for (int n = 2; graph_find_axis(g, word) >= 0; n++)
        word = ctx_format(g->ctx, "%.16s_%d", name, n);
    return graph_axis(g, word);
}

static void join_size(Graph *g, int ax, int32_t size, const char *who)
{
    int32_t *have = &g->axis[ax].size;

    if (size && *have && *have != size)
        fail(g->ctx, g->line, "%s fixes axis '%s' at %d, but it is %d here",
             who, g->axis[ax].name, size, *have);
    if (size)
        *have = size;
}

/* The layer's axes for those of the step. */
static void map_axes(Graph *g, LayerCall *k)
{
    const Graph *step = k->step;
    AxisSet outer = 0;

    for (int i = 0; i < step->nin; i++)
        outer |= step->in[i].axes;
    for (int ax = 0; ax < AX_DIM; ax++)
        k->axis[ax] = (uint8_t)ax;
    for (int ax = AX_DIM; ax < step->naxes; ax++) {
        const char *name = step->axis[ax].name;
        k->axis[ax] = (uint8_t)(outer & AXIS(ax) ? graph_axis(g, name)
                                                 : fresh_axis(g, name));
        join_size(g, k->axis[ax], step->axis[ax].size, step->name);
    }
}

AxisSet layer_mapped(const uint8_t axis[NAXES], AxisSet s)
{
    AxisSet to = 0;

    for (; s; s &= s - 1)
        to |= AXIS(axis[lowest(s)]);
    return to;
}

/* The call, whose step gives output o alone. */
static LayerCall *call_of(Graph *g, const Graph *step, const Ref *arg, int o)
{
    LayerCall *k = new_call(g, step->name, step->nin);

    k->step = graph_copy(g->ctx, step);
    k->step->out[0] = step->out[o];
    k->step->nout = 1;
    if (step->nout > 1)
        k->result = ctx_string(g->ctx, step->out[o].name);
    memcpy(k->arg, arg, (size_t)step->nin * sizeof *arg);
    return k;
}

static AxisSet result_axes(const LayerCall *k)
{
    const Graph *step = k->step;

    return k->heads | layer_mapped(k->axis, step->n[step->out[0].node].axes);
}

Ref layer_call(Graph *g, const Graph *step, const Ref *arg)
{
    LayerCall *k = call_of(g, step, arg, 0);

    map_axes(g, k);
    for (int i = 0; i < step->nin; i++) {
        const Node *n = &g->n[arg[i]];
        if (n->op == OP_input && g->in[n->index].index_of)
            fail_help(g->ctx, g->line, "flin.pick reads it", "%s: %s is an "
                      "index, and no number", k->name, g->in[n->index].name);
        k->heads |= n->axes & ~layer_mapped(k->axis, step->in[i].axes);
    }
    if (k->heads & (k->heads - 1))
        fail_help(g->ctx, g->line, "flin.rename, so that its arguments have "
                  "one axis beside their own", "%s: heads of several axes (%s) "
                  "are not there yet", k->name, axes_text(g, k->heads));
    return end_call(g, k, result_axes(k));
}

void layer_call_all(Graph *g, const Graph *step, const Ref *arg, Ref *y)
{
    int first = g->layer->ncalls;

    y[0] = layer_call(g, step, arg);
    for (int o = 1; o < step->nout; o++) {
        LayerCall *k = call_of(g, step, arg, o);
        k->first = first;
        k->heads = g->layer->call[first].heads;
        memcpy(k->axis, g->layer->call[first].axis, sizeof k->axis);
        y[o] = end_call(g, k, result_axes(k));
    }
}

Ref layer_conv(Graph *g, Ref x, Ref c, int taps)
{
    const Node *n = &g->n[c];
    const char *name = n->op == OP_input
        ? ctx_format(g->ctx, "conv_%.18s", g->in[n->index].name) : "conv";
    LayerCall *k = new_call(g, name, 2);

    k->arg[0] = x;
    k->arg[1] = c;
    k->taps = taps;
    graph_axis(g, ctx_format(g->ctx, "%.16s_old", g->axis[taps].name));
    return end_call(g, k, g->n[x].axes);
}

/* As a step that keeps x, and gives what it has kept. */
Ref layer_prev(Graph *g, Ref x)
{
    const Node *n = &g->n[x];
    Graph *step = graph_new(g->ctx, "prev", 0);
    const char *own = axes_text(g, n->axes);
    const char *name = n->op == OP_input && n->index < g->layer->nin
                     ? g->in[n->index].name : "x";

    step->lines = g->lines;
    step->line = g->line;
    graph_input(step, "x", ctx_format(g->ctx, "t %s", own));
    graph_state(step, name, own);
    for (int ax = AX_DIM; ax < step->naxes; ax++)
        step->axis[ax].size = g->axis[graph_find_axis(g,
                                       step->axis[ax].name)].size;
    step->st[0].next = step->in[0].node;
    graph_output(step, "y", step->st[0].node);
    return layer_call(g, step, &x);
}

/* ---- the whole as one step ---- */

/* A state of these axes, called NAME; where that is taken, NAME2 ... Of a
 * variant's state `like`: NAME_S, NAME2_S. */
static int new_state(Graph *g, const char *who, const State *like,
                     const uint8_t *order, int rank)
{
    const char *own = like ? ctx_format(g->ctx, "_%.20s", like->name) : "";
    const char *name = ctx_format(g->ctx, "%.24s%s", who, own);
    Buf axes = { .ctx = g->ctx };

    for (int n = 2; graph_find_state(g, name) >= 0; n++)
        name = ctx_format(g->ctx, "%.22s%d%s", who, n, own);
    for (int i = 0; i < rank; i++)
        buf_printf(&axes, " %s", g->axis[order[i]].name);
    buf_printf(&axes, "%s", like && like->angle ? " : angle" : "");
    return graph_state(g, name, axes.s);
}

/* Is the node's index an axis? */
bool layer_names_axis(int op)
{
    return op == OP_size || op_has(op, TO_AXIS);
}

Ref layer_copy_node(LayerCopy *k, Ref r)
{
    Node n = k->from->n[r];
    Ref a[4] = { k->map[n.a[0]], k->map[n.a[1]], k->map[n.a[2]],
                 k->map[n.a[3]] };

    if (k->axis) {
        n.over = layer_mapped(k->axis, n.over);
        if (layer_names_axis(n.op))
            n.index = k->axis[n.index];
    }
    return node_copy(k->to, &n, a);
}

/* What a state becomes has its axes, those of heads among them. */
static Ref checked(const Graph *g, const LayerCall *call, const State *st,
                   Ref next)
{
    AxisSet got = g->n[next].axes;

    if (got != st->axes)
        fail_help(g->ctx, call->line, ctx_format(g->ctx, "give each argument "
                  "that it depends on axis %s", axes_text(g, call->heads)),
                  "%s: state '%s' would have axes %s, not %s", call->name,
                  st->name, axes_text(g, got), axes_text(g, st->axes));
    return next;
}

static void put_states(Graph *g, const LayerCall *call, Ref *map)
{
    const Graph *step = call->step;
    uint8_t order[NAXES + 8];

    for (int i = 0; i < step->nst; i++) {
        const State *st = &step->st[i];
        int rank = layer_order(call->heads, order);
        for (int d = 0; d < st->rank; d++)
            order[rank++] = call->axis[st->order[d]];
        int s = new_state(g, call->name, st, order, rank);
        map[st->node] = g->st[s].node;
    }
}

/* arg: of the call, in g. map: where its step's nodes are, as far as the call
 * of another of its results has put them there. Its result. */
static Ref put_call(Graph *g, LayerCall *call, const Ref *arg, Ref *map)
{
    const Graph *step = call->step;
    LayerCopy k = { .to = g, .from = step, .axis = call->axis, .map = map };
    uint8_t *live = ctx_alloc(g->ctx, step->len);
    bool shares = call != &g->layer->call[call->first];

    for (int i = 0; i < step->nin; i++)
        k.map[step->in[i].node] = arg[i];
    if (!shares)
        put_states(g, call, map);
    graph_live(step, live);
    for (Ref r = 1; r < step->len; r++)
        if (live[r] && !k.map[r])
            k.map[r] = layer_copy_node(&k, r);
    for (int i = 0; i < step->nst && !shares; i++) {
        State *st = &g->st[call->state + i];
        st->next = checked(g, call, st, k.map[step->st[i].next]);
    }
    return k.map[step->out[0].node];
}

/* The state as a window of W tokens: entry w + 1 of what it was, and x last.
 * Entries are chosen, not weighed: what is no number stays where it is. */
static Ref put_conv(Graph *g, const LayerCall *call, Ref x, Ref c)
{
    uint8_t order[NAXES];
    int taps = call->taps, rank = layer_order(g->n[x].axes, order);

    order[rank++] = (uint8_t)taps;
    int s = new_state(g, call->name, NULL, order, rank);
    int old = graph_axis(g, ctx_format(g->ctx, "%.16s_old",
                                       g->axis[taps].name));
    Ref was = relabel(g, g->st[s].node, taps, old);
    Ref after = op2(g, OP_add, count_along(g, taps), num(g, 1));
    Ref moved = op2(g, OP_eq, count_along(g, old), after);
    Ref last = op2(g, OP_eq, after, axis_size(g, taps));
    Ref rest = sum(g, op3(g, OP_where, moved, was, num(g, 0)), AXIS(old));
    g->st[s].next = op3(g, OP_where, last, x, rest);
    return dot(g, g->st[s].next, c, AXIS(taps));
}

const LayerCall *layer_call_of(const Layer *l, Ref r)
{
    const Node *n = &l->traced->n[r];

    return n->op == OP_input && n->index >= l->nin
         ? &l->call[n->index - l->nin] : NULL;
}

Graph *layer_step(const Layer *l)
{
    const Graph *from = l->traced;
    Graph *g = graph_new(from->ctx, from->name, 0);
    LayerCopy k = { .to = g, .from = from,
               .map = ctx_alloc(from->ctx, from->len * sizeof *k.map) };
    Ref *map[MAX_CALLS];                /* of a step, by its first call */

    memcpy(g->axis, from->axis, sizeof g->axis);
    memcpy(g->in, from->in, (size_t)l->nin * sizeof *g->in);
    g->naxes = from->naxes;
    g->nin = l->nin;
    g->layer = from->layer;
    for (Ref r = 1; r < from->len; r++) {
        LayerCall *call = (LayerCall *)layer_call_of(l, r);
        g->line = from->n[r].line;
        if (!call) {
            k.map[r] = layer_copy_node(&k, r);
            continue;
        }
        Ref *arg = ctx_alloc(g->ctx, (size_t)call->nargs * sizeof *arg + 1);
        for (int i = 0; i < call->nargs; i++)
            arg[i] = k.map[call->arg[i]];
        LayerCall *first = &g->layer->call[call->first];
        call->state = call == first ? g->nst : first->state;
        if (call->taps) {
            k.map[r] = put_conv(g, call, arg[0], arg[1]);
            continue;
        }
        if (call == first)
            map[call->first] = ctx_alloc(g->ctx, call->step->len
                                                 * sizeof **map);
        k.map[r] = put_call(g, call, arg, map[call->first]);
    }
    for (int i = 0; i < g->nin; i++)
        g->in[i].node = k.map[from->in[i].node];
    graph_output(g, "y", k.map[from->out[0].node]);
    return g;
}

/* ---- cutting ---- */

typedef struct Cut {
    Ctx *c;
    const Layer *l;
    const Graph *g;
    const int32_t *size;
    uint8_t *reached, *made;            /* per node: read by what is left; in
                                           memory, for all tokens */
    LayerParts *parts;
} Cut;

/* The operand of a product with a matrix that is the same for all tokens and
 * has axes of its own; -1: r is none. */
static int weight_of(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];

    for (int i = 0; op_is(n->op, MULTIPLIES) && i < 2; i++) {
        const Node *w = &g->n[n->a[i]], *x = &g->n[n->a[1 - i]];
        if (!w->timed && x->timed && w->axes & ~x->axes)
            return i;
    }
    return -1;
}

static void reach(Cut *k, Ref r, bool made)
{
    k->reached[r] = 1;
    if (made)
        k->made[r] = 1;
}

static void reach_product(Cut *k, Ref r)
{
    const Graph *g = k->g;
    const Node *n = &g->n[r];
    int w = weight_of(g, r);

    reach(k, n->a[w], true);
    reach(k, n->a[1 - w], true);
}

/* A result of it, of several. */
static bool is_read(const Cut *k, int first)
{
    bool any = false;

    for (int i = first; i < k->l->ncalls; i++)
        any = any || (k->l->call[i].first == first
                      && k->reached[k->l->call[i].y]);
    return any;
}

/* What is read, from y on; and what of it has to be in memory. */
static void find_made(Cut *k)
{
    const Graph *g = k->g;

    reach(k, g->out[0].node, true);
    for (Ref r = g->len - 1; r > 0; r--) {
        const LayerCall *call = layer_call_of(k->l, r);
        if (!k->reached[r])
            continue;
        if (call || weight_of(g, r) >= 0)
            k->made[r] = 1;
        if (call)
            for (int i = 0; i < call->nargs; i++)
                reach(k, call->arg[i], true);
        else if (weight_of(g, r) >= 0)
            reach_product(k, r);
        else
            for (int i = 0; i < 4; i++)
                if (g->n[r].a[i])
                    reach(k, g->n[r].a[i], false);
    }
    for (int i = 0; i < k->l->ncalls; i++)
        if (k->l->call[i].first == i && !is_read(k, i))
            fail_help(k->c, k->l->call[i].line, "leave the call out, or "
                      "use its result", "%s: nothing reads its result",
                      k->l->call[i].name);
}

/* ---- numbers of a token ---- */

static const Ref SEVERAL = UINT32_MAX;

/* By which part a node would be computed, called after the node that it ends
 * in: 0, by none, or by SEVERAL. */
static Ref *find_owners(const Cut *k)
{
    const Graph *g = k->g;
    Ref *owner = ctx_alloc(k->c, g->len * sizeof *owner);

    for (Ref r = g->len - 1; r > 0; r--) {
        bool apart = layer_call_of(k->l, r) || weight_of(g, r) >= 0;
        Ref own = k->made[r] && k->reached[r] ? r : owner[r];
        for (int i = 0; i < 4 && own && !apart; i++) {
            Ref *of = &owner[g->n[r].a[i]];
            *of = *of && *of != own ? SEVERAL : own;
        }
    }
    return owner;
}

/* Numbers of a token that are made of sums of rows, and of such alone. */
static bool *find_sums(const Cut *k)
{
    const Graph *g = k->g;
    bool *sum = ctx_alloc(k->c, g->len * sizeof *sum);

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        if (!n->timed || n->axes || k->made[r] || n->op == OP_input)
            continue;
        sum[r] = n->over;
        for (int i = 0; i < 4; i++)
            sum[r] |= n->a[i] && sum[n->a[i]];
    }
    return sum;
}

/* What such a number is summed over. */
static AxisSet summed_over(const Cut *k, const bool *sum, Ref r)
{
    const Node *n = &k->g->n[r];
    AxisSet all = n->over;

    for (int i = 0; i < 4; i++)
        if (n->a[i] && sum[n->a[i]])
            all |= summed_over(k, sum, n->a[i]);
    return all;
}

/* Are the owner's rows of other axes than those it sums up? */
static bool is_foreign(const Cut *k, const bool *sum, Ref r, Ref owner)
{
    AxisSet own = k->g->n[owner].axes;

    return own && !(own & summed_over(k, sum, r));
}

/* Such a number, a norm's, say, is a value of its own where several parts read
 * it, each of which would go through the row again, or one whose own rows are
 * of other axes. */
static void share_sums(Cut *k)
{
    const Graph *g = k->g;
    const Ref *owner = find_owners(k);
    const bool *sum = find_sums(k);

    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; i < 4 && k->reached[r] && !sum[r]; i++) {
            Ref a = g->n[r].a[i];
            if (a && sum[a] && owner[a]
                && (owner[a] == SEVERAL || is_foreign(k, sum, a, owner[a])))
                k->made[a] = 1;
        }
}

/* ---- rows ---- */

/* What is computed of whole rows is a value of its own where it goes into one
 * of more axes than these have: on the way back that is summed over them, which
 * a program over the rows cannot do. */
static void share_rows(Cut *k)
{
    const Graph *g = k->g;
    AxisSet *rows = ctx_alloc(k->c, g->len * sizeof *rows);

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        bool apart = n->op == OP_input || k->made[r];
        for (int i = 0; i < 4 && k->reached[r]; i++) {
            Ref a = n->a[i];
            if (a && !k->made[a] && rows[a] && n->axes & ~rows[a])
                k->made[a] = 1;
            if (a && op_is(n->op, WHOLE_ROW))
                rows[r] |= g->n[a].axes;
            if (a && !k->made[a])
                rows[r] |= rows[a];
        }
        if (apart)
            rows[r] = 0;
    }
}

/* ---- a part's step ---- */

typedef struct Piece {
    Cut *k;
    Ref root;
    uint8_t *live;                      /* of the layer's nodes: 1 computed
                                           here, 2 read */
    LayerPart *p;
    Graph *to;
} Piece;

static void find_live(Piece *q)
{
    const Graph *g = q->k->g;

    q->live[q->root] = 1;
    for (Ref r = g->len - 1; r > 0; r--) {
        if (!q->live[r])
            continue;
        if (g->n[r].op == OP_input || (r != q->root && q->k->made[r]))
            q->live[r] = 2;
        for (int i = 0; q->live[r] == 1 && i < 4; i++)
            if (g->n[r].a[i])
                q->live[g->n[r].a[i]] = 1;
    }
}

/* The axis that the values may have for heads: nothing is summed over it, or
 * without it, which each head would do again (what is doubled is no sum); no
 * operation knows it, and they keep one beside it. */
static int find_heads(const Piece *q)
{
    const Graph *g = q->k->g;
    AxisSet may = g->n[q->root].axes, all = 0;

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        if (!q->live[r])
            continue;
        all |= n->axes;
        if (q->live[r] != 1)
            continue;
        may &= ~(n->over | (layer_names_axis(n->op) ? AXIS(n->index) : 0));
        bool sums = n->over && n->timed && n->op != OP_dup;
        for (int i = 0; sums && i < 4; i++)
            may &= n->a[i] ? g->n[n->a[i]].axes : may;
    }
    return may && all != (may & (~may + 1)) ? lowest(may) : 0;
}

static AxisSet without_heads(const LayerPart *p, AxisSet s)
{
    return s & ~(p->heads ? AXIS(p->heads) : 0);
}

/* The layer's value r as an input of the part. */
static Ref add_input(Piece *q, Ref r)
{
    const Graph *g = q->k->g;
    const Node *n = &g->n[r];
    Graph *to = q->to;

    if (to->nin == MAX_INPUTS - 1)
        fail(q->k->c, n->line, "%s: more than %d values enter one part",
             g->name, MAX_INPUTS - 1);
    Input *in = &to->in[to->nin];
    *in = (Input){ .timed = n->timed || q->p->constant, .line = n->line,
                   .axes = without_heads(q->p, n->axes) };
    if (n->op == OP_input && n->index < q->k->l->nin)
        in->index_of = g->in[n->index].index_of;
    /* a name longer than any of a user's */
    snprintf(in->name, sizeof in->name, "%s", n->op == OP_input
             && n->index < q->k->l->nin ? g->in[n->index].name
             : ctx_format(q->k->c, "value_of_the_layer_%u", r));
    in->rank = (uint8_t)layer_order(in->axes, in->order);
    q->p->in[q->p->nin++] = r;
    to->nin++;
    in->node = node_new(to, (Node){ .op = OP_input,
                                    .index = (uint16_t)(to->nin - 1) });
    return in->node;
}

static Ref add_state(Piece *q, const char *name, AxisSet axes, int line)
{
    State *st = &q->to->st[q->to->nst];

    *st = (State){ .axes = without_heads(q->p, axes), .line = line };
    snprintf(st->name, sizeof st->name, "%s", name);
    st->rank = (uint8_t)layer_order(st->axes, st->order);
    q->to->nst++;
    st->node = node_new(q->to, (Node){ .op = OP_state, .index =
                                       (uint16_t)(q->to->nst - 1) });
    return st->node;
}

/* An empty step on the layer's axes, whose sizes are fixed. */
static void new_step(Piece *q)
{
    const Graph *g = q->k->g;
    Graph *to = graph_new(q->k->c, q->p->name, 0);

    q->to = q->p->step = to;
    memcpy(to->axis, g->axis, sizeof to->axis);
    to->naxes = g->naxes;
    for (int ax = AX_DIM; ax < g->naxes; ax++)
        if (q->k->size[ax])
            to->axis[ax].size = q->k->size[ax];
    to->lines = g->lines;
    to->line = g->n[q->root].line;
    q->p->in = ctx_alloc(q->k->c, MAX_INPUTS * sizeof *q->p->in);
}

/* The nodes that are computed here, and as inputs what they read. */
static void copy_step(Piece *q)
{
    const Graph *g = q->k->g;
    LayerCopy k = { .to = q->to, .from = g,
               .map = ctx_alloc(q->k->c, g->len * sizeof *k.map) };

    for (Ref r = 1; r < g->len; r++)
        if (q->live[r] == 2)
            k.map[r] = add_input(q, r);
    for (Ref r = 1; r < g->len; r++) {
        q->to->line = g->n[r].line;
        if (q->live[r] == 1)
            k.map[r] = layer_copy_node(&k, r);
    }
    graph_output(q->to, "y", k.map[q->root]);
}

/* A convolution of W taps as W states, each x of one token earlier: by chunks.
 */
static void tap_step(Piece *q, const LayerCall *call)
{
    const Graph *g = q->k->g;
    Graph *to = q->to;
    int taps = call->taps, n = to->axis[taps].size;
    AxisSet axes = g->n[call->arg[0]].axes;

    if (axes & (axes - 1))
        q->p->heads = lowest(axes);
    if (!n)
        n = to->axis[taps].size = 1;    /* any will do */
    if (n > MAX_TAPS)
        fail(q->k->c, call->line, "conv: axis '%s' has %d taps: at most %d are "
             "possible", g->axis[taps].name, n, MAX_TAPS);
    Ref x = add_input(q, call->arg[0]), c = add_input(q, call->arg[1]);
    Ref y = op2(to, OP_mul, x, select_at(to, c, taps, n - 1));
    for (int i = 0; i < n; i++) {
        Ref before = add_state(q, ctx_format(q->k->c, "before_%d", i + 1),
                               axes, call->line);
        to->st[i].next = i ? to->st[i - 1].node : x;
        if (i + 1 < n)
            y = op2(to, OP_add, y, op2(to, OP_mul, before,
                    select_at(to, c, taps, n - 2 - i)));
    }
    q->p->taps = taps;
    graph_output(to, "y", y);
}

static LayerPart *new_part(Cut *k, Ref r)
{
    LayerParts *p = k->parts;

    p->part = ctx_grow(k->c, p->part, (size_t)p->n * sizeof *p->part,
                       (size_t)(p->n + 1) * sizeof *p->part);
    LayerPart *part = &p->part[p->n++];
    *part = (LayerPart){ .y = r, .name = k->g->name };
    for (int ax = 0; ax < NAXES; ax++)
        part->axis[ax] = (uint8_t)ax;
    return part;
}

static void add_product(Cut *k, Ref r)
{
    const Node *n = &k->g->n[r];
    LayerPart *p = new_part(k, r);
    int w = weight_of(k->g, r);

    p->in = ctx_alloc(k->c, 2 * sizeof *p->in);
    p->in[0] = n->a[1 - w];
    p->in[1] = n->a[w];
    p->nin = 2;
    p->over = n->over;
}

static void add_call(Cut *k, const LayerCall *call)
{
    Piece q = { .k = k, .root = call->y, .p = new_part(k, call->y) };

    q.p->name = call->name;
    q.p->result = call->result;
    q.p->state = call->state;
    if (call->taps) {
        new_step(&q);
        tap_step(&q, call);
        return;
    }
    q.p->step = call->step;
    memcpy(q.p->axis, call->axis, sizeof q.p->axis);
    q.p->heads = call->heads ? lowest(call->heads) : 0;
    q.p->in = call->arg;
    q.p->nin = call->nargs;
}

static void add_step(Cut *k, Ref r)
{
    Piece q = { .k = k, .root = r, .p = new_part(k, r),
                .live = ctx_alloc(k->c, k->g->len) };

    q.p->constant = !k->g->n[r].timed;
    new_step(&q);
    find_live(&q);
    q.p->heads = find_heads(&q);
    copy_step(&q);
    if (!q.p->nin)
        fail_help(k->c, k->g->n[r].line, "use a number, or a weight", "%s is "
                  "computed from neither inputs nor weights: that is not there "
                  "yet", expr_text(k->g, r));
}

LayerParts *layer_cut(Ctx *c, const Layer *l, const int32_t size[NAXES])
{
    const Graph *g = l->traced;
    Cut k = { .c = c, .l = l, .g = g, .size = size,
              .reached = ctx_alloc(c, g->len), .made = ctx_alloc(c, g->len),
              .parts = ctx_alloc(c, sizeof *k.parts) };

    find_made(&k);
    share_sums(&k);
    share_rows(&k);
    for (Ref r = 1; r < g->len; r++) {
        const LayerCall *call = layer_call_of(l, r);
        if (!k.reached[r] || !k.made[r])
            continue;
        if (call)
            add_call(&k, call);
        else if (weight_of(g, r) >= 0)
            add_product(&k, r);
        else if (g->n[r].op != OP_input && g->n[r].op != OP_num)
            add_step(&k, r);
    }
    return k.parts;
}
