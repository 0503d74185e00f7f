/* saved.c -- the forward pass of a joint plan on its own, what it leaves for
 * the backward one, and how that one knows it.
 */
#include "../backend/cuda/pairs.h"
#include "window.h"

/* The joint plan, if it goes by chunks and its backend runs the two passes
 * one at a time: a GPU those of its own tensors. */
static PlanEntry *saving_plan(Ctx *c, Variant *v, const Args *a,
                              const Bound *b)
{
    const Backend *backend = call_backend(c, a, &b->call);
    PlanEntry *e;
    bool copied = backend->keep && !b->call.on_device;

    if (v->step->mask || v->step->layer || plan_chunk(a) == 0
        || !backend->kept || copied)
        return NULL;
    Args back = *a;
    back.mode = M_BACKWARD;
    if (window_plans(c, v, &back, b, NULL))
        return NULL;                    /* it runs both ways in one call */
    e = plan_for(c, v, b->call.size, plan_chunk(a), true, backend);
    return e->plan->g->chunk && e->plan->split > 0 ? e : NULL;
}

/* The call of that plan; on the CPU it needs no more than b has. */
static Call saving_call(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    return b->call.on_device ? joint_call(c, v, a, b) : b->call;
}

/* Of a mask over all pairs on the device: what it keeps. */
static PairsCall pairs_of(const Variant *v, const Bound *b, void *at)
{
    return (PairsCall){ .step = v->step, .call = &b->call, .kept = at };
}

static int64_t pairs_bytes(const Variant *v, const Bound *b)
{
    Bound of = *b;

    of.call.out[0].dtype = b->dtype;
    PairsCall p = pairs_of(v, &of, NULL);
    return pairs_kept(&p);
}

static int64_t pairs_run_saved(Ctx *c, Variant *v, const Args *a,
                               const Bound *b, Stored room)
{
    int64_t bytes = pairs_bytes(v, b);
    PairsCall p = pairs_of(v, b, bytes <= room.bytes ? room.at : NULL);

    if (room.at && bytes > room.bytes)
        return bytes;
    ctx_doing(c, mode_name[a->mode], v->step->name);
    pairs_run(c, v->shared.gpu, &v->pairs, &p);
    return room.at ? bytes : 0;
}

int64_t saved_bytes(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    if (on_device_pairs(v, a, b))
        return pairs_bytes(v, b);
    const LayerRuns *parts = runs_of(c, v, a, b, NULL);
    if (parts)
        return v->step->layer && layer_checkpoints(v, a) ? 0
             : parts->saved_bytes(c, v, a, b);
    PlanEntry *e = saving_plan(c, v, a, b);

    if (!e)
        return 0;
    Call call = saving_call(c, v, a, b);
    return e->backend->kept(c, e->program, e->plan, &call);
}

int64_t run_saved(Ctx *c, Variant *v, const Args *a, const Bound *b,
                  Stored room)
{
    const LayerRuns *parts = runs_of(c, v, a, b, NULL);

    if (parts && b->call.on_device && room.at)
        return parts->run_saved(c, v, a, b, room);
    if (on_device_pairs(v, a, b))
        return pairs_run_saved(c, v, a, b, room);
    PlanEntry *e = parts ? NULL : saving_plan(c, v, a, b);
    int64_t bytes = 0;

    if (!e) {
        Args serial = *a;
        serial.serial = !parts && !v->step->window;
        run_bound(c, v, &serial, b);
        return 0;
    }
    Call call = saving_call(c, v, a, b);
    if (room.at)
        bytes = e->backend->kept(c, e->program, e->plan, &call);
    if (bytes > room.bytes)
        return bytes;
    const Validation *before = validate_before(c, v, a, b, e);
    ctx_doing(c, mode_name[a->mode], v->step->name);
    call.to = e->plan->split;
    call.kept = room.at;
    call.part = room.begun ? CALL_REST : CALL_WHOLE;
    e->backend->run(c, e->program, e->plan, &call);
    validate_call(c, v, a, b, e, before);
    return bytes;
}

bool begin_saved(Ctx *c, Variant *v, const Args *a, const Bound *b,
                 Stored room, int state, View moves)
{
    PlanEntry *e = runs_of(c, v, a, b, NULL) || on_device_pairs(v, a, b) ? NULL
                 : saving_plan(c, v, a, b);

    if (!e || !b->call.on_device || !e->backend->may_begin)
        return false;
    Call call = saving_call(c, v, a, b);
    for (int i = 0; i < v->step->nst; i++)
        if (i != state)
            call.s1[i].data = NULL;
    for (int o = 0; o < v->step->nout; o++)
        call.out[o] = (View){ .dtype = y_dtype(v->step, b) };
    call.to = e->plan->split;
    call.kept = room.at;
    if (e->backend->kept(c, e->program, e->plan, &call) > room.bytes
        || !e->backend->may_begin(c, e->program, &call))
        return false;
    ctx_doing(c, "summary", v->step->name);
    call.part = CALL_BEGUN;
    call.moves = moves;
    e->backend->run(c, e->program, e->plan, &call);
    return true;
}

bool tell_ends(Ctx *c, Variant *v, const Args *a, const Bound *b, View moves)
{
    const Backend *backend = call_backend(c, a, &b->call);
    PlanEntry *e;

    if (!b->call.on_device || !backend->may_begin
        || runs_of(c, v, a, b, NULL))
        return false;
    e = plan_for(c, v, b->call.size, plan_chunk(a), false, backend);
    Call call = b->call;
    for (int o = 0; o < v->step->nout; o++)
        call.out[o] = (View){ .dtype = y_dtype(v->step, b) };
    call.in_parts = true;
    if (!e->plan->g->chunk || !backend->may_begin(c, e->program, &call))
        return false;
    const Validation *before = validate_before(c, v, a, b, e);
    ctx_doing(c, "summary", v->step->name);
    call.part = CALL_BEGUN;
    call.moves = moves;
    backend->run(c, e->program, e->plan, &call);
    validate_call(c, v, a, b, e, before);
    return true;
}

double bound_seconds(Ctx *c, Variant *v, const Args *a, const Bound *b,
                     bool both_ways)
{
    const Backend *backend = call_backend(c, a, &b->call);
    PlanEntry *e;

    if (!b->call.on_device || !backend->seconds || v->step->mask
        || runs_of(c, v, a, b, NULL))
        return 0;
    e = both_ways ? saving_plan(c, v, a, b)
        : plan_for(c, v, b->call.size, plan_chunk(a), false, backend);
    if (!e || !e->plan->g->chunk)
        return 0;
    Call call = both_ways ? saving_call(c, v, a, b) : b->call;
    return backend->seconds(c, e->program, &call);
}

double forward_seconds(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    PlanEntry *e = b->call.on_device ? saving_plan(c, v, a, b) : NULL;

    if (!e || !e->backend->seconds)
        return 0;
    Call call = saving_call(c, v, a, b);
    call.to = e->plan->split;
    return e->backend->seconds(c, e->program, &call);
}

int64_t saved_workspace(Ctx *c, Variant *v, const Args *a, const Bound *b,
                        Stored room)
{
    if (on_device_pairs(v, a, b)) {
        PairsCall p = pairs_of(v, b, room.at);
        return pairs_workspace(c, v->shared.gpu, &v->pairs, &p);
    }
    PlanEntry *e = saving_plan(c, v, a, b);

    if (!e || !e->backend->workspace)
        return 0;
    Call call = saving_call(c, v, a, b);
    call.to = e->plan->split;
    call.kept = room.at;
    return e->backend->workspace(c, e->program, e->plan, &call);
}

/* ---- notes ---- */

static uint64_t hash_word(uint64_t h, uint64_t x)
{
    return hash_bytes(h, &x, sizeof x);
}

static uint64_t hash_type(uint64_t h, const View *v)
{
    return hash_word(h, !v->data ? 0 : (uint64_t)v->heads << 8 | v->dtype);
}

static uint64_t hash_call(const Graph *g, const Bound *b)
{
    const Call *k = &b->call;
    const int64_t size[] = { b->B, b->T, b->N, k->heads, k->device_cu != NULL };
    uint64_t h = hash_bytes(0, size, sizeof size);

    for (int64_t i = 0; k->seq && i < k->nseq; i++)
        h = hash_word(hash_word(h, (uint64_t)k->seq[i].start),
                      (uint64_t)k->seq[i].len);
    for (int i = 0; i < g->nin; i++)
        h = hash_type(h, &k->in[i]);
    for (int i = 0; i < g->nst; i++)
        h = hash_type(h, &k->s0[i]);
    return h;
}

static uint64_t hash_place(uint64_t h, const void *p)
{
    return hash_word(h, (uintptr_t)p);
}

static uint64_t hash_places(const Graph *g, const Call *k, const void *at)
{
    uint64_t h = hash_place(hash_place(0, at), k->device_cu);

    for (int i = 0; i < g->nin; i++)
        h = hash_place(h, k->in[i].data);
    for (int i = 0; i < g->nst; i++)
        h = hash_place(h, k->s0[i].data);
    return h;
}

uint64_t note_plan(Ctx *c, const PlanEntry *e, const Call *call)
{
    uint64_t layout = call->on_device && e->backend->layout
                    ? e->backend->layout(c, e->program, call) : 0;

    return hash_word(e->mark, layout) | 1;
}

Note note_saved(Ctx *c, Variant *v, const Args *a, const Bound *b,
                const void *at)
{
    const LayerRuns *runs = runs_of(c, v, a, b, NULL);
    const PlanEntry *e = runs ? NULL : saving_plan(c, v, a, b);
    bool parts = runs && b->call.on_device;

    if (on_device_pairs(v, a, b))
        return (Note){ (uintptr_t)v->step->mask | 1, hash_call(v->step, b) | 1,
                       hash_places(v->step, &b->call, at) | 1 };
    if (!e && !parts)
        return (Note){ 0 };
    Call call = e ? saving_call(c, v, a, b) : b->call;
    uint64_t mark = e ? note_plan(c, e, &call) : runs->mark(v, a, b);
    return (Note){ mark | 1, hash_call(v->step, b) | 1,
                   hash_places(v->step, &b->call, at) | 1 };
}
