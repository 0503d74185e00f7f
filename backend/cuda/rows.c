/* rows.c -- steps that carry nothing but tokens before, or each entry of what
 * they do by itself: read as rows.
 */
#include "rows_emit.h"

#include <string.h>

#include "../../compiler/affine.h"
#include "../../compiler/grad.h"
#include "../../compiler/row.h"

/* ---- the step ---- */

/* Which input, how many tokens before: in rounds, as states come in any
 * order. */
static bool find_delays(Rows *p)
{
    const Graph *g = p->step;
    bool more = true;

    for (int j = 0; j < g->nst; j++)
        p->source[j] = -1;
    while (more) {
        more = false;
        for (int j = 0; j < g->nst; j++) {
            const Node *n = &g->n[g->st[j].next];
            bool state = n->op == OP_state && p->source[n->index] >= 0;
            if (p->source[j] >= 0 || (n->op != OP_input && !state))
                continue;
            p->source[j] = state ? p->source[n->index] : n->index;
            p->depth[j] = state ? p->depth[n->index] + 1 : 1;
            more = true;
        }
    }
    for (int j = 0; j < g->nst; j++) {
        if (p->source[j] < 0 || !g->in[p->source[j]].timed || g->st[j].angle
            || g->st[j].axes != g->in[p->source[j]].axes)
            return false;
        for (int i = 0; i < j; i++)
            if (p->source[i] == p->source[j] && p->depth[i] == p->depth[j])
                return false;
    }
    return true;
}

/* ---- carried states ---- */

/* What becomes of state s, where all that knows of it (`of`) is itself. */
static bool find_carried(Graph *g, int s, StateSet of, Carried *to)
{
    Affine *a = ctx_alloc(g->ctx, sizeof *a);

    *to = (Carried){ .cut = true };
    if (!affine(g, g->st[s].next, STATE(s), false, a))
        return false;
    for (int i = 0; i < a->n; i++) {
        const Term *t = &a->term[i];
        Ref c = t->coef ? t->coef : num(g, 1);
        if (t->over || t->rank || (g->n[c].states & of))
            return false;
        to->gain = to->cut ? c : op2(g, OP_add, to->gain, c);
        to->cut = false;
    }
    to->rest = a->rest;
    return !(g->n[to->gain].axes & ~g->st[s].axes)
        && !(to->rest && (g->n[to->rest].states & of));
}

/* No entry of a state meets another one. */
static bool stays_apart(const Graph *g)
{
    for (Ref r = 1; r < g->len; r++)
        if (g->n[r].states && g->n[r].op != OP_state
            && !op_is(g->n[r].op, ELEMENTWISE))
            return false;
    return true;
}

static bool walks(Ctx *c, Rows *p, Graph *g)
{
    StateSet all = 0;

    p->walk = ctx_alloc(c, (size_t)g->nst * sizeof *p->walk + 1);
    for (int j = 0; j < g->nst; j++) {
        all |= STATE(j);
        if (g->st[j].angle || g->st[j].rank > ROW_DIMS)
            return false;
    }
    if (!stays_apart(g))
        return false;
    for (int j = 0; j < g->nst; j++)
        if (!find_carried(g, j, all, &p->walk[j]))
            return false;
    p->carried = g->nst;
    p->nst = 0;
    return true;
}

/* And their adjoints. */
static bool goes_back(Ctx *c, Rows *p, Graph *g)
{
    StateSet all = 0;

    p->back = ctx_alloc(c, (size_t)p->carried * sizeof *p->back + 1);
    p->adjoint = ctx_alloc(c, (size_t)p->carried * sizeof *p->adjoint + 1);
    for (int j = 0; j < p->carried; j++) {
        p->adjoint[j] = adjoint_of_state(g, j);
        if (p->adjoint[j] < 0)
            return false;
        all |= STATE(p->adjoint[j]);
    }
    for (int j = 0; j < p->carried; j++)
        if (!find_carried(g, p->adjoint[j], all, &p->back[j]))
            return false;
    return true;
}

/* ---- axes that never meet ---- */

/* Does an operation see both, or one of them as what it is? */
static bool meet(const Graph *g, AxisSet both)
{
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        AxisSet all = n->axes | n->over;
        bool named = op_has(n->op, TO_AXIS) || op_is(n->op, PAIRS);
        for (int i = 0; i < 4; i++)
            all |= n->a[i] ? g->n[n->a[i]].axes : 0;
        if ((all & both) == both || (named && (n->over | AXIS(n->index))
                                              & both))
            return true;
    }
    return false;
}

static AxisSet renamed(AxisSet s, int from, int to)
{
    return s & AXIS(from) ? (s & ~AXIS(from)) | AXIS(to) : s;
}

static void rename_order(uint8_t *order, int rank, int from, int to)
{
    for (int d = 0; d < rank; d++)
        if (order[d] == from)
            order[d] = (uint8_t)to;
}

/* Only `over` of nodes is right afterwards: they are to be made anew. */
static void rename_axis(Graph *g, int from, int to)
{
    for (Ref r = 1; r < g->len; r++) {
        g->n[r].axes = renamed(g->n[r].axes, from, to);
        g->n[r].over = renamed(g->n[r].over, from, to);
    }
    for (int i = 0; i < g->nin; i++) {
        g->in[i].axes = renamed(g->in[i].axes, from, to);
        rename_order(g->in[i].order, g->in[i].rank, from, to);
    }
    for (int i = 0; i < g->nst; i++) {
        g->st[i].axes = renamed(g->st[i].axes, from, to);
        rename_order(g->st[i].order, g->st[i].rank, from, to);
    }
    rename_order(g->out[0].order, g->out[0].rank, from, to);
}

/* Keys and values of one size, each summed by itself, are entries of the same
 * lanes. */
static void join_axes(Graph *g)
{
    for (int a = AX_DIM; a < g->naxes; a++)
        for (int b = a + 1; b < g->naxes; b++)
            if (g->axis[a].size == g->axis[b].size
                && !meet(g, AXIS(a) | AXIS(b)))
                rename_axis(g, b, a);
}

/* The step with states as inputs. */
static Graph *without_states(Ctx *c, const Graph *from)
{
    Graph *g = graph_new(c, from->name, 0);
    Ref *map = ctx_alloc(c, from->len * sizeof *map);

    memcpy(g->axis, from->axis, sizeof g->axis);
    memcpy(g->in, from->in, sizeof g->in);
    g->naxes = from->naxes;
    g->nin = from->nin;
    g->lines = from->lines;
    for (int j = 0; j < from->nst; j++) {
        const State *st = &from->st[j];
        Input *in = &g->in[g->nin++];
        *in = (Input){ .timed = true, .axes = st->axes, .rank = st->rank,
                       .line = st->line };
        memcpy(in->order, st->order, sizeof in->order);
        memcpy(in->name, ctx_format(c, "the_state_that_is_number_%d", j), 32);
        in->name[31] = 0;
    }
    for (Ref r = 1; r < from->len; r++) {
        const Node *n = &from->n[r];
        Ref a[4] = { map[n->a[0]], map[n->a[1]], map[n->a[2]], map[n->a[3]] };
        Node as = *n;
        g->line = n->line;
        if (n->op == OP_state) {
            as.op = OP_input;
            as.index = (uint16_t)(from->nin + n->index);
        }
        map[r] = as.op == OP_input ? node_new(g, (Node){ .op = OP_input,
                                              .index = as.index })
                                   : node_copy(g, &as, a);
        if (as.op == OP_input)
            g->in[as.index].node = map[r];
    }
    for (int i = 0; i < g->nin; i++)    /* also what nothing reads */
        if (!g->in[i].node)
            g->in[i].node = node_new(g, (Node){ .op = OP_input,
                                                .index = (uint16_t)i });
    graph_output(g, "y", map[from->out[0].node]);
    memcpy(g->out[0].order, from->out[0].order,     /* dy lies as y does */
           sizeof g->out[0].order);
    return g;
}

/* The axis of rows: y's longest, else any value's. */
static void one_axis(Rows *p)
{
    const Graph *g = p->forward;
    AxisSet all = g->n[g->out[0].node].axes;

    for (Ref r = 1; r < g->len && !all; r++)
        all |= g->n[r].axes;
    p->length = 1;
    for (; all; all &= all - 1)
        if (g->axis[lowest(all)].size > p->length || !p->lanes) {
            p->lanes = AXIS(lowest(all));
            p->order[0] = (uint8_t)lowest(all);
            p->nlanes = 1;
            p->length = g->axis[lowest(all)].size;
        }
}

/* All of the widest input's, as they lie: lanes must not go over the inner
 * one's end, and sum along it with a few others. */
static bool all_axes(Rows *p)
{
    const Input *wide = NULL;
    int32_t inner;

    for (int i = 0; i < p->nin; i++)
        if (p->step->in[i].timed
            && (!wide || p->step->in[i].rank > wide->rank))
            wide = &p->step->in[i];
    if (!wide || wide->rank < 2 || wide->rank > ROW_DIMS)
        return false;
    p->lanes = 0;
    p->length = 1;
    p->nlanes = wide->rank;
    for (int d = 0; d < wide->rank; d++) {
        p->order[d] = wide->order[d];
        p->lanes |= AXIS(wide->order[d]);
        p->length *= p->step->axis[wide->order[d]].size;
    }
    inner = p->step->axis[rows_inner(p)].size;
    return inner >= 8 && inner <= 128 && !(inner & (inner - 1));
}

static int64_t registers_of(const Rows *p, const Graph *g, Ref r)
{
    int64_t n = g->n[r].axes & p->lanes ? 8 : 1;

    for (AxisSet s = g->n[r].axes & ~p->lanes; s; s &= s - 1)
        n *= axis_extent(g, r, lowest(s));
    return n;
}

/* A sum over some axes of rows is one over the inner ones. */
static bool sums_inner(const Rows *p, AxisSet left)
{
    bool inner = false;

    left &= p->lanes;
    for (int d = 0; d < p->nlanes; d++) {
        bool is = left & AXIS(p->order[d]);
        if (is && inner)
            return false;
        inner = inner || !is;
    }
    return !left || p->nlanes == 2;
}

static bool can_emit(const Rows *p, const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    bool across = n->over & p->lanes;

    if (registers_of(p, g, r) > ROW_NUMBERS)
        return false;
    if (op_is(n->op, ADDS_UP))
        return !across || sums_inner(p, n->axes);
    if (op_is(n->op, MOVES))
        return !across && !(op_has(n->op, TO_AXIS)
                            && AXIS(n->index) & p->lanes);
    if (op_is(n->op, PAIRS))
        return !op_has(n->op, TO_AXIS) && n->over == AXIS(rows_inner(p))
            && p->forward->axis[rows_inner(p)].size % 2 == 0;
    return n->op == OP_input || n->op == OP_state
        || op_is(n->op, ELEMENTWISE | CONST);
}

static bool can_emit_all(const Rows *p, const Graph *g, const uint8_t *live)
{
    for (Ref r = 1; r < g->len; r++)
        if (live[r] && !can_emit(p, g, r))
            return false;
    return true;
}

/* Of the joint graph, what gradients need. */
static uint8_t *needed(const Rows *p)
{
    uint8_t *live = ctx_alloc(p->joint->ctx, p->joint->len);

    for (int i = 0; i < p->nin + p->nst; i++)
        if (p->gradient[i])
            graph_needs(p->joint, live, p->gradient[i]);
    for (int j = 0; j < p->carried; j++) {
        graph_needs(p->joint, live, p->joint->st[j].next);
        graph_needs(p->joint, live, p->joint->st[p->adjoint[j]].next);
    }
    return live;
}

static uint8_t *used_nodes(const Rows *p)
{
    uint8_t *used = ctx_alloc(p->forward->ctx, p->forward->len);

    graph_needs(p->forward, used, p->forward->out[0].node);
    for (int j = 0; j < p->carried; j++)
        graph_needs(p->forward, used, p->forward->st[j].next);
    return used;
}

/* False: what a token adds to a constant's gradient knows of what others did.
 */
static bool find_gradients(Ctx *c, Rows *p, Graph *g)
{
    const uint8_t *used = used_nodes(p);
    int n = p->nin + p->nst, o = 1;
    StateSet known = 0;

    for (int j = 0; j < p->carried; j++)
        known |= STATE(j) | STATE(p->adjoint[j]);
    p->gradient = ctx_alloc(c, (size_t)n * sizeof *p->gradient + 1);
    for (int i = 0; i < n; i++) {
        const Input *in = &p->forward->in[i];
        Ref r = in->timed ? g->out[o].node : 0;
        o += in->timed;
        if (!used[in->node])
            continue;
        r = in->timed ? r : row_added(g, i);
        if (in->rank > ROW_DIMS || !r || (g->n[r].states & ~known))
            return false;
        p->gradient[i] = r;
    }
    return true;
}

/* States have a lane each, and a row is one warp's. */
static bool can_carry(const Rows *p)
{
    enum { WARP_ENTRIES = 256, MOST = 4 };

    for (int j = 0; j < p->carried; j++)
        if (p->step->st[j].axes & ~p->lanes)
            return false;
    return !p->carried || (p->length <= WARP_ENTRIES && p->carried <= MOST);
}

static bool can_run(const Rows *p)
{
    return p->length <= 4 * 1024 && can_carry(p)
        && can_emit_all(p, p->forward, used_nodes(p))
        && can_emit_all(p, p->joint, needed(p));
}

/* Taps and the tokens that they weigh, in eights; or many inputs, and sums for
 * those without tokens. */
static bool is_heavy(const Rows *p)
{
    enum { MANY = 32, ALL = 80 };
    const uint8_t *live = needed(p);
    int64_t all = 0;

    for (int i = 0; i < p->joint->nin; i++)
        if (!p->carried || live[p->joint->in[i].node])
            all += registers_of(p, p->joint, p->joint->in[i].node)
                 * (p->joint->in[i].timed ? 1 : 2);
    if (all > ALL)
        return true;
    for (Ref r = 1; r < p->joint->len; r++)
        if (live[r] && registers_of(p, p->joint, r) >= MANY)
            return true;
    return false;
}

/* Whether there are kernels for it. */
static bool read_step(Ctx *c, Rows *p, const int32_t size[NAXES])
{
    Graph *step = graph_sized(p->step, size);
    RowsProduct *product = ctx_alloc(c, sizeof *product);

    join_axes(step);
    p->step = step;
    p->nst = p->step->nst;
    bool delays = find_delays(p);
    if (!delays && product_find(step, product))
        p->product = product;
    p->nin = p->step->nin;
    if (rows_args(p, NULL) > ROW_ARGS || p->nin + p->nst + 1 > MAX_INPUTS
        || (!delays && !walks(c, p, step)))
        return false;
    p->forward = delays ? without_states(c, p->step) : step;
    if (!has_gradient(p->forward))
        return false;
    Graph *joint = grad(p->forward);
    p->joint = joint;
    if ((!delays && !goes_back(c, p, joint)) || !find_gradients(c, p, joint))
        return false;
    one_axis(p);
    bool can = can_run(p) || (all_axes(p) && can_run(p));
    p->heavy = can && is_heavy(p);
    return can;
}

Rows *rows_new(Ctx *c, const Graph *step, const int32_t size[NAXES])
{
    Rows *p = ctx_alloc(c, sizeof *p);

    p->step = step;
    return read_step(c, p, size) ? p : NULL;
}

bool rows_carry(const Rows *p)
{
    return p->carried;
}

int rows_kernels(const Rows *p)
{
    return p->carried ? 2 : 1;          /* what the way back begins with has
                                           been kept */
}

bool rows_multiply(const Rows *p, int32_t *k, int32_t *n)
{
    if (!p->product)
        return false;
    *k = p->product->k;
    *n = p->product->n;
    return true;
}

bool rows_adds(const Rows *p, int i)
{
    const Input *in = &p->step->in[i];

    return in->timed ? (in->axes & p->lanes) == p->lanes && p->lanes
                     : !p->product || i != p->product->w;
}

bool rows_over(const Rows *p, int i)
{
    AxisSet y = p->forward->n[p->forward->out[0].node].axes;
    bool whole = i >= 0 ? p->step->in[i].timed && rows_adds(p, i)
                        : p->lanes && (y & p->lanes) == p->lanes;

    return !p->nst && !p->carried && !p->product && whole;
}
