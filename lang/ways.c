/* ways.c -- calls of masks of both directions: one scan from the first token
 * on, one from the last, and their results added up.
 *
 * Each is a variant of its own, as a layer's parts are. The second sees the
 * tokens turned round: by strides in the host's memory, where a token's may be
 * negative, and in copies on a device.
 */
#include <string.h>

#include "../compiler/mask.h"
#include "layer_gpu.h"
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

/* The tokens the other way round; of what has none, as it is. */
static Array turned(Array v, bool timed)
{
    enum { TOKENS = 1 };

    if (!timed || !v.n[TOKENS])
        return v;
    if (v.data)
        v.data = (char *)v.data + (v.n[TOKENS] - 1) * v.st[TOKENS]
               * dtype_size(v.dtype);
    v.st[TOKENS] = -v.st[TOKENS];
    return v;
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

enum { MAX_COPIES = MAX_INPUTS + 1 };
typedef struct Way {
    Lay *k;
    Sub *s;
    bool back;                          /* from the last token on */
    Array copy[MAX_COPIES];             /* that end with it */
    int ncopies;
} Way;

/* g as this direction reads it. */
static Given read_by(Way *w, Given g, bool timed)
{
    Lay *k = w->k;

    if (!w->back || !timed)
        return g;
    Array v = turned(array_of(&g), true);
    if (k->b->call.on_device) {
        Array own = room_like(k, &v, v.dtype);
        k->realm->move(k, &own, &v, false);
        w->copy[w->ncopies++] = v = own;
    }
    place_given(&g, &v);
    return g;
}

/* Where its sequences end: of those in hand from the last on. */
static const int64_t *turned_ends(const Lay *k)
{
    int64_t n = k->args->ncu;
    int64_t *cu = ctx_alloc(k->c, (size_t)n * sizeof *cu + 1);

    for (int64_t i = 0; i < n; i++)
        cu[i] = k->b->T - k->args->cu[n - 1 - i];
    return cu;
}

static void begin_way(Way *w, int at, Mode mode)
{
    Lay *k = w->k;
    Sub *s = w->s = k->sub;
    const Args *a = k->args;

    if (a->device_cu && at)
        fail_help(k->c, 0, "cu_seqlens in the host's memory", "%s: %s has two "
                  "directions, for which the ends of sequences have to be "
                  "known", mode_name[a->mode], k->step->name);
    w->back = at == 1;
    s->p = &k->p->parts->part[at];
    s->v = k->p->variant[at];
    s->saved = &k->stored[at];
    s->args = (Args){ .mode = mode, .cu = a->cu, .ncu = a->ncu,
                      .device_cu = a->device_cu, .chunk = a->chunk,
                      .threads = a->threads, .serial = a->serial,
                      .validate = -1, .part = true, .unread = a->unread,
                      .backend = a->backend };
    if (w->back && a->cu)
        s->args.cu = turned_ends(k);
    for (int i = 0; i < s->p->step->nin; i++) {
        const Input *in = &s->p->step->in[i];
        int of = graph_find_input(k->step, in->name);
        s->args.in[i] = read_by(w, given_input(k, of), in->timed);
    }
    bind_call(k->c, s->p->step, &s->args, &s->bound);
    if (s->bound.call.heads != k->b->call.heads)
        fail_help(k->c, 0, "give v as many heads as any other", "%s: %s has %d "
                  "heads, but one of its directions reads %d",
                  mode_name[a->mode], k->step->name, k->b->call.heads,
                  s->bound.call.heads);
    s->bound.call.stream = k->b->call.stream;
    s->bound.call.staged = k->b->call.staged && !w->back;
}

static void end_way(Way *w)
{
    for (int i = 0; i < w->ncopies; i++)
        drop_array(w->k, &w->copy[i]);
}

/* What is added up is rounded once more where it is narrow. */
static DType part_type(const Lay *k, DType d)
{
    return k->b->call.on_device || d == F64 ? d : F32;
}

static void run_way(Lay *k, int at, bool add)
{
    Way w = { .k = k };
    Given y = given_y(k);
    Array all = array_of(&y), own = { 0 };

    begin_way(&w, at, M_FORWARD);
    if (w.back) {
        own = room_like(k, &all, part_type(k, y.dtype));
        place_given(&y, &own);
    }
    w.s->bound.call.out[0] = result_view(w.s->p->step, 0, &y);
    k->realm->forward(k, w.s);
    end_way(&w);
    if (!w.back)
        return;
    Array back = turned(own, true);
    k->realm->move(k, &all, &back, add);
    drop_array(k, &own);
}

/* Room for what the last direction makes of the gradient of an input. */
static void take_gradient(Way *w, int i, int of, Array *own)
{
    Lay *k = w->k;
    Given *dx = &w->s->d.dx[i];

    *dx = k->d->dx[of];
    if (!dx->given || !dx->data || !w->back)
        return;
    Array all = array_of(dx);
    own[i] = room_like(k, &all, part_type(k, dx->dtype));
    place_given(dx, &own[i]);
}

static void give_gradient(Way *w, int i, Array *own)
{
    Lay *k = w->k;
    const Input *in = &w->s->p->step->in[i];
    const Graph *first = k->p->parts->part[0].step;
    bool add = first && graph_find_input(first, in->name) >= 0;

    if (!own[i].data)
        return;
    Array all = array_of(&k->d->dx[graph_find_input(k->step, in->name)]);
    Array back = turned(own[i], in->timed);
    k->realm->move(k, &all, &back, add);
    drop_array(k, &own[i]);
}

static void back_way(Lay *k, int at)
{
    Way w = { .k = k };
    Array *own = ctx_alloc(k->c, MAX_INPUTS * sizeof *own);

    begin_way(&w, at, M_BACKWARD);
    memset(&w.s->d, 0, sizeof w.s->d);
    w.s->d.dy[0] = read_by(&w, k->d->dy[0], true);
    const Graph *step = w.s->p->step;
    for (int i = 0; i < step->nin; i++)
        take_gradient(&w, i, graph_find_input(k->step, step->in[i].name), own);
    k->realm->backward(k, w.s);
    end_way(&w);
    for (int i = 0; i < step->nin; i++)
        give_gradient(&w, i, own);
}

static void run_all(Lay *k)
{
    for (int at = 0; at < k->p->parts->n; at++) {
        ctx_poll(k->c);
        if (!k->p->variant[at])
            continue;
        if (k->d)
            back_way(k, at);
        else
            run_way(k, at, k->p->variant[0] != NULL);
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

static void forward(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    layer_there(lay_of(c, v, a, b, NULL), run_all);
}

static void backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                     const Adjoint *d)
{
    layer_there(lay_of(c, v, a, b, d), run_all);
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
    if (a->mode == M_BACKWARD) {        /* it runs forward alone, too */
        Args *alone = ctx_alloc(c, sizeof *alone);
        *alone = *a;
        alone->mode = M_FORWARD;
        prepare(c, v, alone, b);
    }
}

/* A backward call's kernel runs forward alone, too. */
static int64_t workspace(Ctx *c, Variant *v, const Args *a, const Bound *b,
                         const Adjoint *d)
{
    if (!b->call.on_device)
        return 0;
    Args alone = *a;
    alone.mode = M_FORWARD;
    int64_t ahead = gpu_layer_bytes(lay_of(c, v, &alone, b, NULL), run_all);
    int64_t back = d ? gpu_layer_bytes(lay_of(c, v, a, b, d), run_all) : 0;
    return ahead > back ? ahead : back;
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
    .prepare = prepare, .release = layer_release, .plan = no_plan,
    .workspace = workspace, .forward = forward, .backward = backward,
};
