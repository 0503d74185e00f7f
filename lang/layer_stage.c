/* layer_stage.c -- a layer's call on a GPU of tensors that the host has: on
 * copies there, whose results come back.
 */
#include <string.h>

#include "../backend/cuda/stage.h"
#include "layer_gpu.h"

Graph *copy_sized(Ctx *c, const Graph *step, const int32_t *size)
{
    Graph *g = ctx_alloc(c, sizeof *g);

    *g = *step;
    for (int ax = AX_DIM; ax < g->naxes; ax++)
        g->axis[ax].size = size[ax];
    return g;
}

typedef struct Staged {
    Variant *v;
    const Args *a;
    const Bound *b;
    const Adjoint *d;
} Staged;

static void add_state(Graph *g, Call *call, const State *like, const View *s0,
                      const View *s1)
{
    g->st[g->nst] = *like;
    call->s0[g->nst] = *s0;
    call->s1[g->nst++] = *s1;
}

static void add_result(Graph *g, Call *call, const Input *in, const View *v)
{
    Output *o = &g->out[g->nout];

    o->rank = in->rank;
    memcpy(o->order, in->order, sizeof o->order);
    call->out[g->nout++] = *v;
}

/* dy behind the inputs, gradients of inputs as results, those of states behind
 * the states. */
static void stage_gradients(Graph *g, Call *call, const Staged *s)
{
    const Graph *step = s->v->step;
    Input *dy = &g->in[g->nin];

    g->nout = 0;
    memset(call->out, 0, sizeof call->out);
    *dy = (Input){ .timed = true, .rank = step->out[0].rank };
    memcpy(dy->order, step->out[0].order, sizeof dy->order);
    if (s->d->dy[0].given)
        call->in[g->nin] = result_view(step, 0, &s->d->dy[0]);
    g->nin++;
    for (int i = 0; i < step->nin; i++) {
        View v = { 0 };
        if (s->d->dx[i].given)
            v = input_view(step, i, &s->d->dx[i]);
        add_result(g, call, &step->in[i], &v);
    }
    for (int i = 0; i < step->nst; i++) {
        View from = { 0 }, to = { 0 };
        if (s->d->dstate[i].given)
            from = state_view(step, i, &s->d->dstate[i]);
        if (s->d->ds[i].given)
            to = state_view(step, i, &s->d->ds[i]);
        add_state(g, call, &step->st[i], &from, &to);
    }
}

static void move_given(Given *g, const View *v)
{
    g->data = v->data;
    g->dtype = v->dtype;
    g->device = true;
}

static void run_staged(Ctx *c, void *ud, const Call *call)
{
    const Staged *s = ud;
    const Graph *step = s->v->step;
    Bound *b = ctx_alloc(c, sizeof *b);
    Adjoint *d = s->d ? ctx_alloc(c, sizeof *d) : NULL;

    *b = *s->b;
    b->call = *call;
    if (!d) {
        runs_of(c, s->v, s->a, b, NULL)->forward(c, s->v, s->a, b);
        return;
    }
    *d = *s->d;
    memset(b->call.out, 0, sizeof b->call.out);
    for (int i = 0; i < step->nst; i++)
        b->call.s1[i] = (View){ 0 };
    if (d->dy[0].given)
        move_given(&d->dy[0], &call->in[step->nin]);
    for (int i = 0; i < step->nin; i++)
        if (d->dx[i].given)
            move_given(&d->dx[i], &call->out[i]);
    for (int i = 0; i < step->nst; i++) {
        if (d->dstate[i].given)
            move_given(&d->dstate[i], &call->s0[step->nst + i]);
        if (d->ds[i].given)
            move_given(&d->ds[i], &call->s1[step->nst + i]);
    }
    runs_of(c, s->v, s->a, b, d)->backward(c, s->v, s->a, b, d);
}

void gpu_stage(Ctx *c, Variant *v, const Args *a, const Bound *b,
               const Adjoint *d)
{
    Staged s = { v, a, b, d };
    Call *call = ctx_alloc(c, sizeof *call);
    Graph *g = copy_sized(c, v->step, b->call.size);

    if (d && 2 * v->step->nst > MAX_STATES)
        fail_help(c, 0, "tensors on the GPU", "%s: %d states are too many to "
                  "be copied there and back", mode_name[a->mode],
                  v->step->nst);
    *call = b->call;
    call->workspace = NULL;
    if (d)
        stage_gradients(g, call, &s);
    stage_run(c, v->shared.gpu, g, call, run_staged, &s);
}
