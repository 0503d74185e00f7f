/* parts_call.c -- a variant's call as those of several others: what they are,
 * their memory, and what is kept for the way back.
 */
#include "parts_call.h"

#include <string.h>

#include "plan_view.h"
#include "shared.h"

/* ---- programs ---- */

typedef struct NewParts {
    Graph *const *step;
    int n;
    LayerProgram *p;
} NewParts;

static void new_parts(Ctx *c, void *ud)
{
    NewParts *n = ud;
    LayerProgram *p = ctx_alloc(c, sizeof *p);
    size_t many = (size_t)n->n;

    p->parts = ctx_alloc(c, sizeof *p->parts);
    p->parts->n = n->n;
    p->parts->part = ctx_alloc(c, many * sizeof *p->parts->part);
    p->joints = ctx_alloc(c, sizeof *p->joints);
    p->variant = ctx_alloc(c, many * sizeof *p->variant);
    p->row = ctx_alloc(c, many * sizeof *p->row);
    p->rows = ctx_alloc(c, many * sizeof *p->rows);
    p->passes = ctx_alloc(c, many * sizeof *p->passes);
    for (int i = 0; i < n->n; i++) {
        p->parts->part[i].step = n->step[i];
        if (!n->step[i])
            continue;
        p->variant[i] = ctx_alloc(c, sizeof **p->variant);
        p->variant[i]->ctx = c;
        p->variant[i]->step = n->step[i];
    }
    n->p = p;
}

LayerProgram *parts_program(Ctx *c, Variant *v, Graph *const *step, int n)
{
    NewParts all = { step, n, NULL };

    if (v->programs)
        return v->programs;
    if (!ctx_protect(v->ctx, new_parts, &all)) {
        c->err = v->ctx->err;
        ctx_rethrow(c);
    }
    for (int i = 0; i < n; i++)
        if (all.p->variant[i])
            all.p->variant[i]->shared = shared_retain(v->shared);
    return v->programs = all.p;
}

void parts_release(Variant *v)
{
    for (LayerProgram *p = v->programs; p; p = p->next)
        for (int i = 0; i < p->parts->n; i++)
            if (p->variant[i])
                plan_views_free(p->variant[i]);
    layer_release(v);
}

/* ---- tensors ---- */

Array array_of(const Given *g)
{
    Array v = { .data = g->data, .dtype = g->dtype, .rank = g->rank };

    for (int i = 0; i < g->rank; i++) {
        v.ax[i] = i;
        v.n[i] = g->shape[i];
        v.st[i] = g->stride[i];
    }
    return v;
}

void place_given(Given *g, const Array *v)
{
    g->data = v->data;
    g->dtype = v->dtype;
    memcpy(g->stride, v->st, sizeof g->stride);
}

Array room_like(Lay *k, const Array *v, DType d)
{
    Array own = *v;

    make_room(k, &own, d, false);
    return own;
}

Given given_input(const Lay *k, int i)
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

Given given_y(const Lay *k)
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

Given all_heads(Lay *k, const Given *g, DType d, Array *v)
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

Given spread_heads(Lay *k, const Given *v, Array *own)
{
    if (v->shape[2] == k->b->call.heads)
        return *v;
    Given all = all_heads(k, v, v->dtype, own);
    Array from = by_heads(k, v);
    k->realm->move(k, own, &from, false);
    return all;
}

void gather_heads(Lay *k, const Given *to, const Array *own, bool add)
{
    Array all = by_heads(k, to);
    bool shared = to->shape[2] != k->b->call.heads;

    if (shared && !add)
        k->realm->zero(k, &all);
    k->realm->move(k, &all, own, add || shared);
}

/* ---- a part's call ---- */

Sub *parts_begin(Lay *k, int at, Mode mode)
{
    Sub *s = k->sub;
    const Args *a = k->args;

    s->p = &k->p->parts->part[at];
    s->v = k->p->variant[at];
    s->saved = k->stored[at];
    s->args = (Args){ .mode = mode, .cu = a->cu, .ncu = a->ncu,
                      .device_cu = a->device_cu, .chunk = a->chunk,
                      .threads = a->threads, .serial = a->serial,
                      .validate = -1, .part = true, .unread = a->unread,
                      .backend = a->backend };
    memset(&s->d, 0, sizeof s->d);
    return s;
}

void parts_bind(Lay *k, Sub *s)
{
    bind_call(k->c, s->p->step, &s->args, &s->bound);
    s->bound.call.stream = k->b->call.stream;
    s->bound.call.staged = k->b->call.staged;
}

/* ---- calls ---- */

static Lay *lay_of(Ctx *c, const PartsCall *how, Variant *v, const Args *a,
                   const Bound *b, const Adjoint *d)
{
    Lay *k = ctx_alloc(c, sizeof *k);

    *k = (Lay){ .c = c, .v = v, .g = v->step, .step = v->step, .args = a,
                .b = b, .d = d, .realm = b->call.on_device ? &realm_gpu
                                                           : &realm_host,
                .p = how->program(c, v) };
    k->sub = ctx_alloc(c, sizeof *k->sub);
    k->stored = ctx_alloc(c, (size_t)k->p->parts->n * sizeof *k->stored);
    return k;
}

static Lay *lay_saving(Ctx *c, const PartsCall *how, Variant *v,
                       const Args *a, const Bound *b)
{
    Args *forward = ctx_alloc(c, sizeof *forward);

    *forward = *a;
    forward->mode = M_FORWARD;
    Lay *k = lay_of(c, how, v, forward, b, NULL);
    k->keep = true;
    return k;
}

void parts_forward(Ctx *c, const PartsCall *how, Variant *v, const Args *a,
                   const Bound *b)
{
    layer_there(lay_of(c, how, v, a, b, NULL), how->run);
}

void parts_backward(Ctx *c, const PartsCall *how, Variant *v, const Args *a,
                    const Bound *b, const Adjoint *d)
{
    Lay *k = lay_of(c, how, v, a, b, d);

    find_left(k);
    k->keep = k->left;
    layer_there(k, how->run);
}

int64_t parts_saved(Ctx *c, const PartsCall *how, Variant *v, const Args *a,
                    const Bound *b)
{
    return !b->call.on_device ? 0
         : gpu_layer_room(lay_saving(c, how, v, a, b), how->run).kept;
}

int64_t parts_run_saved(Ctx *c, const PartsCall *how, Variant *v,
                        const Args *a, const Bound *b, Stored room)
{
    Lay *k = lay_saving(c, how, v, a, b);
    int64_t bytes = gpu_layer_room(k, how->run).kept;

    if (bytes > room.bytes)
        return bytes;
    k->kept_at = room.at;
    layer_there(k, how->run);
    return bytes;
}

uint64_t parts_mark(const Variant *v, const Args *a, const Bound *b)
{
    const int64_t x[] = { a->chunk, a->serial, v->turned, v->step->len };
    uint64_t h = hash_bytes(3, x, sizeof x);

    h = hash_bytes(h, v->step->name, strlen(v->step->name));
    return hash_bytes(h, b->call.size, sizeof b->call.size);
}

void parts_prepare(Ctx *c, const PartsCall *how, Variant *v, const Args *a,
                   const Bound *b)
{
    Lay *k = lay_of(c, how, v, a, b, a->mode == M_BACKWARD
                    ? all_gradients(c, v->step, a, b) : NULL);

    k->dry = true;
    if (b->call.on_device)
        gpu_layer(k, how->run);
    else
        how->run(k);
    if (a->mode != M_BACKWARD)
        return;
    Args *alone = ctx_alloc(c, sizeof *alone);  /* it runs forward alone */
    *alone = *a;
    alone->mode = M_FORWARD;
    parts_prepare(c, how, v, alone, b);
    if (!b->call.on_device)
        return;
    Lay *saving = lay_saving(c, how, v, a, b);   /* and what it keeps, too */
    saving->dry = true;
    gpu_layer(saving, how->run);
}

/* A backward call's kernel runs forward alone, too, and from what is left. */
int64_t parts_workspace(Ctx *c, const PartsCall *how, Variant *v,
                        const Args *a, const Bound *b, const Adjoint *d)
{
    if (!b->call.on_device)
        return 0;
    Args alone = *a;
    alone.mode = M_FORWARD;
    int64_t most = gpu_layer_bytes(lay_of(c, how, v, &alone, b, NULL),
                                   how->run);
    Lay *k = d ? lay_of(c, how, v, a, b, d) : NULL;
    bool left = d && d->stored.bytes
             && d->stored.bytes == parts_saved(c, how, v, a, b);
    if (left) {
        LayerRoom saving = gpu_layer_room(lay_saving(c, how, v, a, b),
                                          how->run);
        most = saving.rest > most ? saving.rest : most;
        k->keep = k->left = true;
    }
    int64_t back = !k ? 0 : left ? gpu_layer_room(k, how->run).rest
                                 : gpu_layer_bytes(k, how->run);
    return back > most ? back : most;
}

const PlanEntry *parts_plan(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    (void)c;
    (void)v;
    (void)a;
    (void)b;
    return NULL;
}
