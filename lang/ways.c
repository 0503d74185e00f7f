/* ways.c -- calls of masks of both directions: one scan from the first token
 * on, one from the last, and their results added up.
 *
 * Each is a variant of its own, as a layer's parts are. The second is run as
 * the transpose M^T v of a step's y = M v, to which it adds what the first has
 * made. Its gradient is that step's: with d for the result's gradient, M d is
 * v's, and M's, of which M^T v and d say the sum d^T M^T v = v^T M d, is what
 * the step has where d comes in for v and v for the gradient of y.
 */
#include <string.h>

#include "../compiler/mask.h"
#include "layer_gpu.h"
#include "plan_view.h"
#include "shared.h"

/* ---- programs ---- */

typedef struct NewWays { Variant *v; LayerProgram *p; } NewWays;

static void new_ways(Ctx *c, void *ud)
{
    NewWays *n = ud;
    LayerProgram *p = ctx_alloc(c, sizeof *p);
    enum { WAYS = 2 };

    p->parts = ctx_alloc(c, sizeof *p->parts);
    p->parts->n = WAYS;
    p->parts->part = ctx_alloc(c, WAYS * sizeof *p->parts->part);
    p->joints = ctx_alloc(c, sizeof *p->joints);
    p->variant = ctx_alloc(c, WAYS * sizeof *p->variant);
    p->row = ctx_alloc(c, WAYS * sizeof *p->row);
    p->rows = ctx_alloc(c, WAYS * sizeof *p->rows);
    p->passes = ctx_alloc(c, WAYS * sizeof *p->passes);
    for (int w = 0; w < WAYS; w++) {
        p->parts->part[w].step = n->v->step->mask->way[w];
        if (!p->parts->part[w].step)
            continue;
        p->variant[w] = ctx_alloc(c, sizeof **p->variant);
        p->variant[w]->ctx = c;
        p->variant[w]->step = p->parts->part[w].step;
    }
    n->p = p;
}

/* One for all sizes: what depends on these is in the variants' plans. */
static LayerProgram *ways_program(Ctx *c, Variant *v)
{
    NewWays n = { v, NULL };

    if (v->programs)
        return v->programs;
    if (!ctx_protect(v->ctx, new_ways, &n)) {
        c->err = v->ctx->err;
        ctx_rethrow(c);
    }
    for (int w = 0; w < n.p->parts->n; w++)
        if (n.p->variant[w])
            n.p->variant[w]->shared = shared_retain(v->shared);
    return v->programs = n.p;
}

Variant *ways_variant(Ctx *c, Variant *v, int way)
{
    return ways_program(c, v)->variant[way];
}

static void release(Variant *v)
{
    for (LayerProgram *p = v->programs; p; p = p->next)
        for (int i = 0; i < p->parts->n; i++)
            if (p->variant[i])
                plan_views_free(p->variant[i]);
    layer_release(v);
}

/* ---- tensors ---- */

static Array array_of(const Given *g)
{
    Array v = { .data = g->data, .dtype = g->dtype, .rank = g->rank };

    for (int i = 0; i < g->rank; i++) {
        v.ax[i] = i;
        v.n[i] = g->shape[i];
        v.st[i] = g->stride[i];
    }
    return v;
}

static void place_given(Given *g, const Array *v)
{
    g->data = v->data;
    g->dtype = v->dtype;
    memcpy(g->stride, v->st, sizeof g->stride);
}

/* Room for the same in one piece. */
static Array room_like(Lay *k, const Array *v, DType d)
{
    Array own = *v;

    make_room(k, &own, d, false);
    return own;
}

/* An argument as the call has it now. */
static Given given_input(const Lay *k, int i)
{
    const Input *in = &k->step->in[i];
    const View *v = &k->b->call.in[i];
    Given g = k->args->in[i];
    int n = 0;

    g.data = v->data;
    g.dtype = v->dtype;
    g.device = k->b->call.on_device;
    if (in->timed) {
        g.stride[n++] = v->sb;
        g.stride[n++] = v->st;
    }
    g.stride[n++] = v->sh;
    for (int d = 0; d < in->rank; d++)
        g.stride[n++] = v->sd[d];
    return g;
}

static Given given_y(const Lay *k)
{
    const Output *o = &k->step->out[0];
    const View *v = &k->b->call.out[0];
    Given g = { .given = true, .data = v->data, .dtype = v->dtype,
                .device = k->b->call.on_device,
                .stride = { v->sb, v->st, v->sh } };

    g.rank = result_shape(k->step, k->b, 0, g.shape);
    for (int d = 0; d < o->rank; d++)
        g.stride[3 + d] = v->sd[d];
    return g;
}

/* ---- a direction's call ---- */

enum { AHEAD, BACK };                   /* directions */

static Sub *begin_way(Lay *k, int at, Mode mode)
{
    Sub *s = k->sub;
    const Args *a = k->args;

    s->p = &k->p->parts->part[at];
    s->v = k->p->variant[at];
    s->saved = &k->stored[at];
    s->args = (Args){ .mode = mode, .cu = a->cu, .ncu = a->ncu,
                      .device_cu = a->device_cu, .chunk = a->chunk,
                      .threads = a->threads, .serial = a->serial,
                      .validate = -1, .part = true, .unread = a->unread,
                      .backend = a->backend };
    for (int i = 0; i < s->p->step->nin; i++) {
        const Input *in = &s->p->step->in[i];
        s->args.in[i] = given_input(k, graph_find_input(k->step, in->name));
    }
    memset(&s->d, 0, sizeof s->d);
    return s;
}

static void bind_way(Lay *k, Sub *s)
{
    bind_call(k->c, s->p->step, &s->args, &s->bound);
    if (s->bound.call.heads != k->b->call.heads)
        fail_help(k->c, 0, "give v as many heads as any other", "%s: %s has %d "
                  "heads, but one of its directions reads %d",
                  mode_name[k->args->mode], k->step->name, k->b->call.heads,
                  s->bound.call.heads);
    s->bound.call.stream = k->b->call.stream;
    s->bound.call.staged = k->b->call.staged;
}

/* What is kept is of the first direction's plan: that of the second one is not
 * what runs forward. */
static void run_way(Lay *k, int at)
{
    Sub *s = begin_way(k, at, M_FORWARD);
    const Graph *step = s->p->step;
    Given y = given_y(k);
    bool keep = k->keep;

    k->keep = keep && at == AHEAD;
    bind_way(k, s);
    s->bound.call.out[0] = result_view(step, 0, &y);
    if (step->transposed == TRANSPOSED_ADDED)
        s->bound.call.in[step->nin] = s->bound.call.out[0];
    k->realm->forward(k, s);
    k->keep = keep;
}

/* ---- gradients ---- */

/* What is added up is rounded once more where it is narrow. */
static DType part_type(const Lay *k, DType d)
{
    return k->b->call.on_device || d == F64 ? d : F32;
}

/* Room for what the last direction makes of the gradient of an input, which it
 * places there. */
static void take_gradient(Lay *k, Given *dx, Array *own)
{
    if (!dx->given || !dx->data)
        return;
    Array all = array_of(dx);
    *own = room_like(k, &all, part_type(k, dx->dtype));
    place_given(dx, own);
}

/* To what the first direction has made, if it takes that input. */
static void give_gradient(Lay *k, const char *name, Array *own)
{
    const Graph *first = k->p->parts->part[AHEAD].step;
    bool add = first && graph_find_input(first, name) >= 0;

    if (!own->data)
        return;
    Array all = array_of(&k->d->dx[graph_find_input(k->step, name)]);
    k->realm->move(k, &all, own, add);
    drop_array(k, own);
}

/* From what a forward call has left, if it has. */
static void back_ahead(Lay *k)
{
    if (k->left)
        run_way(k, AHEAD);

    Sub *s = begin_way(k, AHEAD, M_BACKWARD);
    const Graph *step = s->p->step;

    bind_way(k, s);
    s->d.dy[0] = k->d->dy[0];
    for (int i = 0; i < step->nin; i++)
        s->d.dx[i] = k->d->dx[graph_find_input(k->step, step->in[i].name)];
    k->realm->backward(k, s);
}

/* A tensor with tokens as the call's heads see it: those that share one of its
 * heads along an axis of their own, not apart in memory. */
static Array by_heads(const Lay *k, const Given *g)
{
    enum { OWN = 2, SHARE };
    Array v = array_of(g);

    for (int i = v.rank++; i > SHARE; i--) {
        v.ax[i] = i;
        v.n[i] = v.n[i - 1];
        v.st[i] = v.st[i - 1];
    }
    v.ax[SHARE] = SHARE;
    v.n[SHARE] = k->b->call.heads / v.n[OWN];
    v.st[SHARE] = 0;
    return v;
}

/* Room for the same with all heads, as v and the tensor. */
static Given all_heads(Lay *k, const Given *g, DType d, Array *v)
{
    Given all = *g;
    int64_t n = 1;

    *v = by_heads(k, g);
    make_room(k, v, d, false);
    all.data = v->data;
    all.dtype = d;
    all.shape[2] = k->b->call.heads;
    for (int i = all.rank; i-- > 0; n *= all.shape[i])
        all.stride[i] = n;
    return all;
}

/* v, in the place of the gradient of y. */
static Given spread(Lay *k, const Given *v, Array *own)
{
    if (v->shape[2] == k->b->call.heads)
        return *v;
    Given all = all_heads(k, v, v->dtype, own);
    Array from = by_heads(k, v);
    k->realm->move(k, own, &from, false);
    return all;
}

/* To the gradient of v, which heads may share. */
static void gather(Lay *k, const Given *dv, const Array *own)
{
    Array to = by_heads(k, dv);
    bool shared = dv->shape[2] != k->b->call.heads;
    bool add = k->p->parts->part[AHEAD].step;

    if (shared && !add)
        k->realm->zero(k, &to);
    k->realm->move(k, &to, own, add || shared);
}

static void back_back(Lay *k)
{
    Sub *s = begin_way(k, BACK, M_BACKWARD);
    const Graph *step = s->p->step;
    Array *own = ctx_alloc(k->c, (size_t)step->nin * sizeof *own);
    Array values = { 0 }, sum = { 0 };
    int v = graph_find_input(step, "v");
    Given of = s->args.in[v];
    const Given *dv = &k->d->dx[graph_find_input(k->step, "v")];

    s->args.in[v] = k->d->dy[0];
    s->args.in[v].device = k->b->call.on_device;
    bind_way(k, s);
    s->d.dy[0] = spread(k, &of, &values);
    for (int i = 0; i < step->nin; i++) {
        s->d.dx[i] = k->d->dx[graph_find_input(k->step, step->in[i].name)];
        if (i == v)
            s->d.dx[i] = (Given){ 0 };
        take_gradient(k, &s->d.dx[i], &own[i]);
    }
    if (dv->given && dv->data) {
        Given y = all_heads(k, dv, part_type(k, dv->dtype), &sum);
        s->bound.call.out[0] = result_view(step, 0, &y);
    }
    k->realm->backward(k, s);
    drop_array(k, &values);
    for (int i = 0; i < step->nin; i++)
        give_gradient(k, step->in[i].name, &own[i]);
    if (sum.data)
        gather(k, dv, &sum);
    drop_array(k, &sum);
}

/* That of what no direction reads. */
static void clear_unread(Lay *k)
{
    for (int i = 0; i < k->step->nin; i++) {
        const Given *dx = &k->d->dx[i];
        bool read = !dx->given || !dx->data;
        for (int at = 0; at < k->p->parts->n; at++) {
            const Graph *step = k->p->parts->part[at].step;
            read |= step && graph_find_input(step, k->step->in[i].name) >= 0;
        }
        Array v = array_of(dx);
        if (!read)
            k->realm->zero(k, &v);
    }
}

static void run_all(Lay *k)
{
    if (k->d)
        clear_unread(k);
    for (int at = 0; at < k->p->parts->n; at++) {
        ctx_poll(k->c);
        if (!k->p->variant[at])
            continue;
        if (!k->d)
            run_way(k, at);
        else if (at == BACK)
            back_back(k);
        else
            back_ahead(k);
    }
}

/* ---- calls ---- */

static Lay *lay_of(Ctx *c, Variant *v, const Args *a, const Bound *b,
                   const Adjoint *d)
{
    Lay *k = ctx_alloc(c, sizeof *k);

    if (mode_steps(a->mode))
        fail_help(c, 0, "v:forward and v:reference take whole sequences", "%s: "
                  "%s weighs tokens that are still to come: there is no state "
                  "to step from", mode_name[a->mode], v->step->name);
    *k = (Lay){ .c = c, .v = v, .g = v->step, .step = v->step, .args = a,
                .b = b, .d = d, .realm = b->call.on_device ? &realm_gpu
                                                           : &realm_host,
                .p = ways_program(c, v) };
    k->sub = ctx_alloc(c, sizeof *k->sub);
    k->stored = ctx_alloc(c, (size_t)k->p->parts->n * sizeof *k->stored);
    return k;
}

static Lay *lay_saving(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    Args *forward = ctx_alloc(c, sizeof *forward);

    *forward = *a;
    forward->mode = M_FORWARD;
    Lay *k = lay_of(c, v, forward, b, NULL);
    k->keep = true;
    return k;
}

static void forward(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    layer_there(lay_of(c, v, a, b, NULL), run_all);
}

static void backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                     const Adjoint *d)
{
    Lay *k = lay_of(c, v, a, b, d);

    find_left(k);
    k->keep = k->left;
    layer_there(k, run_all);
}

static int64_t bytes_saved(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    return !b->call.on_device ? 0
         : gpu_layer_room(lay_saving(c, v, a, b), run_all).kept;
}

static int64_t forward_saving(Ctx *c, Variant *v, const Args *a,
                              const Bound *b, Stored room)
{
    Lay *k = lay_saving(c, v, a, b);
    int64_t bytes = gpu_layer_room(k, run_all).kept;

    if (bytes > room.bytes)
        return bytes;
    k->kept_at = room.at;
    layer_there(k, run_all);
    return bytes;
}

static uint64_t mark(const Variant *v, const Args *a, const Bound *b)
{
    const int64_t x[] = { a->chunk, a->serial, v->turned, v->step->len };
    uint64_t h = hash_bytes(3, x, sizeof x);

    h = hash_bytes(h, v->step->name, strlen(v->step->name));
    return hash_bytes(h, b->call.size, sizeof b->call.size);
}

static void prepare(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    Lay *k = lay_of(c, v, a, b, a->mode == M_BACKWARD
                    ? all_gradients(c, v->step, a, b) : NULL);

    k->dry = true;
    if (b->call.on_device)
        gpu_layer(k, run_all);
    else
        run_all(k);
    if (a->mode != M_BACKWARD)
        return;
    Args *alone = ctx_alloc(c, sizeof *alone);  /* it runs forward alone */
    *alone = *a;
    alone->mode = M_FORWARD;
    prepare(c, v, alone, b);
    if (!b->call.on_device)
        return;
    Lay *saving = lay_saving(c, v, a, b);   /* and what it keeps, too */
    saving->dry = true;
    gpu_layer(saving, run_all);
}

/* A backward call's kernel runs forward alone, too, and from what is left. */
static int64_t workspace(Ctx *c, Variant *v, const Args *a, const Bound *b,
                         const Adjoint *d)
{
    if (!b->call.on_device)
        return 0;
    Args alone = *a;
    alone.mode = M_FORWARD;
    int64_t most = gpu_layer_bytes(lay_of(c, v, &alone, b, NULL), run_all);
    Lay *k = d ? lay_of(c, v, a, b, d) : NULL;
    bool left = d && d->stored.bytes
             && d->stored.bytes == bytes_saved(c, v, a, b);
    if (left) {
        LayerRoom saving = gpu_layer_room(lay_saving(c, v, a, b), run_all);
        most = saving.rest > most ? saving.rest : most;
        k->keep = k->left = true;
    }
    int64_t back = !k ? 0 : left ? gpu_layer_room(k, run_all).rest
                                 : gpu_layer_bytes(k, run_all);
    return back > most ? back : most;
}

static const PlanEntry *no_plan(Ctx *c, Variant *v, const Args *a,
                                const Bound *b)
{
    (void)c;
    (void)v;
    (void)a;
    (void)b;
    return NULL;
}

const LayerRuns runs_both_ways = {
    .prepare = prepare, .release = release, .plan = no_plan,
    .workspace = workspace, .forward = forward, .backward = backward,
    .saved_bytes = bytes_saved, .run_saved = forward_saving, .mark = mark,
};
