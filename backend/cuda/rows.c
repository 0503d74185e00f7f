/* rows.c -- steps that carry nothing but tokens before: read as rows, compiled
 * and launched.
 */
#include "rows_emit.h"

#include <stdlib.h>
#include <string.h>

#include "../../compiler/affine.h"
#include "../../compiler/grad.h"
#include "../../compiler/row.h"
#include "build.h"
#include "dense.h"
#include "driver_entry.h"

/* By what its text depends on. */
struct RowsKernel {
    RowsKernel *next;
    uint64_t hash;
    Module *module;
    Function *f[ROW_KERNELS];
};

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
    if (rows_args(p) > ROW_ARGS || p->nin + p->nst + 1 > MAX_INPUTS
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

void rows_free(Gpu *g, Rows *p)
{
    Ctx *c = p && p->kernel ? ctx_new() : NULL;

    for (RowsKernel *k = p ? p->kernel : NULL, *next; k; k = next) {
        next = k->next;
        gpu_unload(c, g, k->module);
        free(k);
    }
    if (p)
        p->kernel = NULL;
    ctx_free(c);
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

    return in->timed && (in->axes & p->lanes) == p->lanes && p->lanes;
}

bool rows_over(const Rows *p, int i)
{
    AxisSet y = p->forward->n[p->forward->out[0].node].axes;
    bool whole = i >= 0 ? rows_adds(p, i)
                        : p->lanes && (y & p->lanes) == p->lanes;

    return !p->nst && !p->carried && !p->product && whole;
}

/* ---- a call ---- */

/* Of a block. */
static int rows_threads(const Rows *p, const RowsCall *call)
{
    RowsShape s = rows_shape(p, call);

    return s.group > 32 ? s.group : ROW_THREADS;
}

/* How tokens are dealt out: pieces of a batch entry, a power of two where
 * there are sums. */
typedef struct Deal { int64_t pieces, length, rows, blocks, grid; } Deal;

/* Of carried states: of a sequence `pieces` are blocks, in each of which there
 * are several; where sequences are few as many as fill the device, but none has
 * fewer than so many tokens. */
static Deal deal_carried(int64_t want, const Rows *p, const RowsCall *call)
{
    enum { LEAST = 2 };
    RowsScan s = rows_scan(p, call);
    int64_t all = call->B * call->heads;
    Deal d = { .pieces = 1, .length = call->T };

    if (s.serial)
        d.blocks = (all + s.groups - 1) / s.groups;
    while (!s.serial && d.pieces * all < want
           && d.pieces * 2 * s.groups * LEAST <= call->T)
        d.pieces *= 2;
    if (!s.serial) {
        d.length = (call->T + d.pieces * s.groups - 1) / (d.pieces * s.groups);
        d.blocks = d.pieces * all;
    }
    d.rows = s.serial ? all : d.blocks * s.groups;
    d.grid = d.blocks;
    if (rows_leaves(p, call))
        d.grid += (call->N * call->heads + s.groups - 1) / s.groups;
    return d;
}

int64_t rows_links(Ctx *c, const Rows *p, int64_t B, int64_t T, int units,
                   int64_t *waits)
{
    enum { RESIDENT = 2 };              /* blocks: rows_scan.c's bounds */
    RowsCall *call = ctx_alloc(c, sizeof *call);

    *call = (RowsCall){ .B = B, .T = T, .N = B, .heads = 1 };
    for (int i = 0; i < p->nin; i++)
        call->in[i].dtype = BF16;
    Deal d = deal_carried(units, p, call);
    int64_t waves = (d.blocks + RESIDENT * units - 1) / (RESIDENT * units);
    int64_t rows = d.blocks ? (B * T + d.blocks - 1) / d.blocks : 0;

    return waves * product_links(p->product, rows, waits);
}

static Deal deal_of(const Gpu *g, const Rows *p, const RowsCall *call)
{
    if (p->carried)
        return deal_carried(gpu_driver(g)->processors, p, call);
    /* threads a multiprocessor, fewer where a piece of tokens begins with what
     * others have read, or ends with sums; tokens that these are made of */
    enum { EACH = 1024, FEWER = 512, LEAST = 8 };
    RowsShape s = rows_shape(p, call);
    int threads = rows_threads(p, call);
    int64_t each = threads / s.group, most = 1;
    int64_t want = gpu_driver(g)->processors
                 * (rows_few(p, call) ? FEWER : EACH) / s.group;
    int64_t all = call->B * call->heads;
    Deal d = { .length = 1 };

    int64_t least = rows_sums(p, call) ? LEAST : 1;
    while (most * least < call->T && most * all * 3 < want * 2)
        most *= 2;
    if (!rows_few(p, call))
        most = call->T > most ? most * 2 : call->T;
    d.pieces = most ? most : 1;
    d.length = (call->T + d.pieces - 1) / d.pieces;
    d.rows = d.pieces * all;
    d.blocks = call->T ? (d.rows + each - 1) / each : 0;
    d.grid = d.blocks;
    if (rows_leaves(p, call))
        d.grid += (call->N * call->heads + each - 1) / each;
    if (!call->T && rows_sums(p, call))
        d.blocks = d.grid = (d.rows + each - 1) / each;
    return d;
}

/* device memory behind the kernel: pieces of sums, results for each head. */
typedef struct Scratch {
    int64_t sum[MAX_INPUTS], carried, adjoints, bytes;
} Scratch;

static int64_t rounded(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static Scratch scratch_of(const Rows *p, const RowsCall *call, const Deal *d)
{
    Scratch r = { .bytes = 0 };

    for (int i = 0; call->backward && i < p->nin; i++) {
        const View *v = &call->dx[i];
        bool timed = p->step->in[i].timed;
        int64_t n = rows_entries(p, i), rows = timed
                  ? call->B * call->T * call->heads : d->rows;
        if (!v->data || (timed && !rows_shared(call, v)))
            continue;
        r.sum[i] = r.bytes + 1;         /* 0: none */
        r.bytes += rounded(n * rows * 4);
    }
    r.carried = r.adjoints = r.bytes;
    if (p->carried) {
        RowsScan s = rows_scan(p, call);
        r.adjoints += call->kept ? 0 : rounded(d->blocks * s.states);
        r.bytes = r.adjoints + rounded(d->blocks * (s.adjoints + d->length
                                                    * s.kept));
    }
    return r;
}

static int64_t own_room(const Gpu *g, const Rows *p, const RowsCall *call)
{
    Deal d = deal_of(g, p, call);
    Scratch r = scratch_of(p, call, &d);

    return r.bytes;
}

static int64_t kept_states(const Gpu *g, const Rows *p, const RowsCall *call)
{
    return rounded(deal_of(g, p, call).blocks * rows_scan(p, call).states);
}

/* The call as rows see it; *own: bytes before those of the product. */
static RowsCall seen_call(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                          int64_t *own)
{
    enum { SOME = 256 };                /* no address is 0 */

    RowsCall to = *call;

    *own = 0;
    if (p->product) {
        to = product_call(c, g, p, call, SOME, 0);
        *own = own_room(g, p, &to) + SOME;
        to = product_call(c, g, p, call, *own, kept_states(g, p, call));
    }
    to.piece = p->carried ? deal_of(g, p, call).length : 0;
    return to;
}

int64_t rows_kept(Ctx *c, Gpu *g, Rows *p, const RowsCall *call)
{
    gpu_enter(c, g);
    return !p->carried ? 0 : kept_states(g, p, call)
         + (p->product ? product_bytes(p, call) : 0);
}

int64_t rows_room(Ctx *c, Gpu *g, Rows *p, const RowsCall *call)
{
    int64_t own;

    gpu_enter(c, g);
    RowsCall to = seen_call(c, g, p, call, &own);
    return !p->product ? own_room(g, p, &to)
                       : own + product_room(c, g, p, call);
}

/* ---- kernels ---- */

static const char *kernels_text(Ctx *c, const Rows *p, const RowsCall *call)
{
    return p->carried ? rows_scan_emit(c, p, call) : rows_emit(c, p, call);
}

static uint64_t hash_view(uint64_t h, const View *v, int rank)
{
    int64_t x[] = { v->data != NULL, v->dtype, v->sb, v->st, v->sh,
                    (int64_t)((uintptr_t)v->data % 16), v->heads };

    if (!v->data)
        return hash_bytes(h, x, sizeof *x);
    for (int i = 2; i < 5; i++)
        x[i] = i == 4 ? (x[i] % 8) | (x[i] != 0) << 8 : x[i] % 8;
    h = hash_bytes(h, x, sizeof x);
    for (int i = 0; i < rank; i++) {
        int64_t s = v->sd[i] <= ROW_NUMBERS ? v->sd[i]
                  : ROW_NUMBERS + v->sd[i] % 8;
        h = hash_bytes(h, &s, sizeof s);
    }
    return h;
}

/* Without tokens it goes into a room of its own first. */
static uint64_t hash_gradient(uint64_t h, const Input *in, const View *v)
{
    bool wanted = v->data != NULL;

    return in->timed ? hash_view(h, v, in->rank)
                     : hash_bytes(h, &wanted, sizeof wanted);
}

/* What the text depends on. */
static uint64_t hash_call(const Rows *p, const RowsCall *call)
{
    const Graph *g = p->step;
    uint64_t h = call->backward + (call->ends ? 3u : 1u);

    h = hash_bytes(h, &call->heads, sizeof call->heads);
    h = hash_view(h, &call->y, g->out[0].rank);
    h = hash_view(h, &call->dy, g->out[0].rank);
    for (int i = 0; i < p->nin; i++) {
        h = hash_view(h, &call->in[i], g->in[i].rank);
        h = hash_gradient(h, &g->in[i], &call->dx[i]);
        h = hash_bytes(h, &call->add[i], sizeof call->add[i]);
    }
    if (p->carried) {
        enum { LONG = 5 };              /* longer ones have one text */
        bool own = product_is_own(p, call);
        int64_t x[] = { rows_scan(p, call).serial, call->kept != 0,
                        call->piece < LONG ? call->piece : LONG,
                        own ? product_near(p, call) : 0,
                        own ? product_shared(p, call, false) : 0 };
        h = hash_bytes(h, x, sizeof x);
    }
    for (int role = ROW_S0; role < ROW_ROLES; role++)
        for (int j = 0; j < rows_states(p); j++)
            h = hash_view(h, rows_view(call, (RowsRole)role, j),
                          g->st[j].rank);
    return h;
}

typedef struct Wish {
    Gpu *g;
    Rows *p;
    const RowsCall *call;
    bool soon;                          /* it is wished for */
    RowsKernel *k;
} Wish;

/* A call's kernels, in order. */
static RowsScan kernels_of(const Rows *p, const RowsCall *call)
{
    return p->carried ? rows_scan(p, call)
         : (RowsScan){ .n = 1, .name = { "flin_rows" }, .shared = {
                       rows_shape(p, call).group > 32 ? 128 : 0 } };
}

static void find_locked(Ctx *c, void *ud)
{
    Wish *w = ud;
    RowsScan s = kernels_of(w->p, w->call);
    uint64_t hash = hash_call(w->p, w->call);

    for (w->k = w->p->kernel; w->k; w->k = w->k->next)
        if (w->k->hash == hash)
            return;
    const char *text = kernels_text(c, w->p, w->call);
    if (w->soon) {
        build_wish(c, w->g, text);
        return;
    }
    Module *m = build_module(c, w->g, text);
    RowsKernel *k = calloc(1, sizeof *k);
    if (!k) {
        module_unload(gpu_driver(w->g), m);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    *k = (RowsKernel){ w->p->kernel, hash, m, { NULL } };
    w->p->kernel = w->k = k;
    for (int i = 0; i < s.n; i++)
        k->f[i] = module_function(c, gpu_driver(w->g), m, s.name[i],
                                  s.shared[i]);
}

static RowsKernel *find_kernel(Ctx *c, Gpu *g, Rows *p, const RowsCall *call,
                               bool soon)
{
    Wish w = { g, p, call, soon, NULL };

    gpu_enter(c, g);
    gpu_locked(c, g, find_locked, &w);
    return w.k;
}

void rows_wish(Ctx *c, Gpu *g, Rows *p, const RowsCall *call)
{
    int64_t own;

    gpu_enter(c, g);
    RowsCall to = seen_call(c, g, p, call, &own);
    find_kernel(c, g, p, &to, true);
}

void rows_prepare(Ctx *c, Gpu *g, Rows *p, const RowsCall *call)
{
    int64_t own;

    gpu_enter(c, g);
    RowsCall to = seen_call(c, g, p, call, &own);
    find_kernel(c, g, p, &to, false);
    if (p->product)
        product_room(c, g, p, call);    /* finds its kernels, too */
}

/* ---- launching ---- */

/* As the source has them. */
typedef struct HostArg {
    uint64_t p;
    int64_t sb, st, sh, sd[ROW_DIMS];
} HostArg;
typedef struct HostArgs {
    uint64_t ends;
    int64_t nseq, tokens, pieces, length, rows, blocks;
    int32_t heads, pad;
    HostDivisor by_heads, by_pieces;
    uint64_t carried, adjoints;         /* what pieces make of these */
    HostArg arg[ROW_ARGS];
} HostArgs;
_Static_assert(sizeof(HostArgs) <= 4096, "what a kernel is passed");

static HostArg host_arg(const RowsCall *call, const View *v)
{
    HostArg a = { (uint64_t)(uintptr_t)v->data, v->sb, v->st,
                  v->heads == call->heads ? v->sh : 0, { 0 } };

    memcpy(a.sd, v->sd, sizeof a.sd);
    return a;
}

/* A gradient that is still to be summed: [rows, entries] of float32. */
static HostArg summed_arg(const Rows *p, const RowsCall *call, int i,
                          DevicePtr at)
{
    const Input *in = &p->step->in[i];
    HostArg a = { .p = at };
    int64_t n = 1;

    for (int d = in->rank - 1; d >= 0; d--) {
        a.sd[d] = n;
        n *= p->step->axis[in->order[d]].size;
    }
    a.sh = n;
    a.st = n * call->heads;
    a.sb = a.st * call->T;
    return a;
}

static void fill_args(HostArgs *a, const Rows *p, const RowsCall *call,
                      const Deal *d, const Scratch *r)
{
    for (int i = 0; i < p->nin; i++) {
        a->arg[rows_arg(p, ROW_IN, i)] = host_arg(call, &call->in[i]);
        a->arg[rows_arg(p, ROW_DX, i)] = r->sum[i]
            ? summed_arg(p, call, i, call->room + (DevicePtr)(r->sum[i] - 1))
            : host_arg(call, &call->dx[i]);
    }
    a->arg[rows_arg(p, ROW_Y, 0)] = host_arg(call, &call->y);
    a->arg[rows_arg(p, ROW_DY, 0)] = host_arg(call, &call->dy);
    for (int role = ROW_S0; role < ROW_ROLES; role++)
        for (int j = 0; j < rows_states(p); j++)
            a->arg[rows_arg(p, (RowsRole)role, j)] =
                host_arg(call, rows_view(call, (RowsRole)role, j));
    a->ends = call->ends;
    a->nseq = call->N;
    a->tokens = call->T;
    a->pieces = d->pieces;
    a->length = d->length;
    a->rows = d->rows;
    a->blocks = d->blocks;
    a->heads = call->heads;
    a->by_heads = cuda_divisor(call->heads);
    a->by_pieces = cuda_divisor(d->pieces);
    a->carried = call->kept ? call->kept : call->room + (DevicePtr)r->carried;
    a->adjoints = call->room + (DevicePtr)r->adjoints;
}

static void add_dim(DenseMove *m, int64_t n, int64_t ts, int64_t fs)
{
    m->n[m->rank] = n;
    m->ts[m->rank] = ts;
    m->fs[m->rank++] = fs;
}

static int64_t head_step(const RowsCall *call, const View *v)
{
    return v->heads == call->heads ? v->sh : 0;
}

/* Where input i's entries are in its tensor, and in what is summed. */
static void add_entries(DenseMove *m, const Rows *p, int i, const View *v)
{
    const Input *in = &p->step->in[i];
    int64_t n = rows_entries(p, i);

    for (int d = 0; d < in->rank; d++) {
        int64_t size = p->step->axis[in->order[d]].size;
        n /= size;
        add_dim(m, size, v->sd[d], n);
    }
}

/* Over heads. */
static void sum_heads(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                      int i, DevicePtr from)
{
    const View *v = &call->dx[i];
    int64_t n = rows_entries(p, i), row = n * call->heads;
    DenseMove m = { .to = (DevicePtr)(uintptr_t)v->data, .from = from,
                    .to_type = v->dtype, .from_type = F32 };

    add_dim(&m, call->B, v->sb, row * call->T);
    add_dim(&m, call->T, v->st, row);
    add_dim(&m, call->heads, head_step(call, v), n);
    add_entries(&m, p, i, v);
    dense_move(c, g, call->stream, &m);
}

/* Over pieces of tokens, and heads that share it. */
static void sum_pieces(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                       int i, DevicePtr from, const Deal *d)
{
    const View *v = &call->dx[i];
    int64_t n = rows_entries(p, i);
    DenseMove m = { .to = (DevicePtr)(uintptr_t)v->data, .from = from,
                    .to_type = v->dtype, .from_type = F32 };

    if (p->carried) {
        int64_t all = call->B * call->heads, pieces = all ? d->rows / all : 0;
        add_dim(&m, call->B, 0, n * pieces * call->heads);
        add_dim(&m, call->heads, head_step(call, v), n * pieces);
        add_dim(&m, pieces, 0, n);
    } else {
        add_dim(&m, call->B * d->pieces, 0, n * call->heads);
        add_dim(&m, call->heads, head_step(call, v), n);
    }
    add_entries(&m, p, i, v);
    dense_move(c, g, call->stream, &m);
}

static void sum_all(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                    const Deal *d, const Scratch *r)
{
    for (int i = 0; i < p->nin; i++) {
        DevicePtr from = call->room + (DevicePtr)(r->sum[i] - 1);
        if (!r->sum[i])
            continue;
        if (p->step->in[i].timed)
            sum_heads(c, g, p, call, i, from);
        else
            sum_pieces(c, g, p, call, i, from, d);
    }
}

static void run_kernels(Ctx *c, Gpu *g, Rows *p, const RowsCall *call)
{
    RowsKernel *k = find_kernel(c, g, p, call, false);
    const Driver *d = gpu_enter(c, g);
    RowsScan s = kernels_of(p, call);
    int threads = rows_threads(p, call);
    Deal deal = deal_of(g, p, call);
    Scratch scratch = scratch_of(p, call, &deal);
    HostArgs a = { .ends = 0 };
    void *params[] = { &a };

    if (deal.length > ROWS_MOST_TOKENS)
        fail(c, 0, "%s: %lld tokens are too many for one call: of a piece, %d",
             p->step->name, (long long)call->T, ROWS_MOST_TOKENS);
    if (deal.grid * threads > UINT32_MAX)
        fail(c, 0, "%s: %lld rows are too many for one call", p->step->name,
             (long long)deal.rows);
    fill_args(&a, p, call, &deal, &scratch);
    for (int i = 0; deal.grid && i < s.n; i++)
        kernel_queue(c, d, k->f[i], (unsigned)deal.grid, (unsigned)threads,
                     (unsigned)s.shared[i], call->stream, params,
                     i > 0 && d->arch >= 90);
    sum_all(c, g, p, call, &deal, &scratch);
}

void rows_run(Ctx *c, Gpu *g, Rows *p, const RowsCall *call)
{
    int64_t own;

    gpu_enter(c, g);
    RowsCall to = seen_call(c, g, p, call, &own);
    if (p->product)
        product_before(c, g, p, call, own, kept_states(g, p, call));
    run_kernels(c, g, p, &to);
    if (p->product)
        product_behind(c, g, p, call, own);
}
