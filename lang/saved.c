/* saved.c -- the forward pass of a joint plan on its own, and what it leaves
 * for the backward one.
 */
#include "bind.h"

/* The joint plan, if it goes by chunks and its backend runs the two passes
 * one at a time: a GPU those of its own tensors. */
PlanEntry *saving_plan(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    const Backend *backend = call_backend(c, a, &b->call);
    PlanEntry *e;
    bool copied = backend->keep && !b->call.on_device;

    if (v->step->mask || plan_chunk(a) == 0 || !backend->kept || copied)
        return NULL;
    e = plan_for(c, v, b->call.size, plan_chunk(a), true, backend);
    return e->plan->g->chunk && e->plan->split > 0 ? e : NULL;
}

/* The call of that plan; on the CPU it needs no more than b has. */
static Call saving_call(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    return b->call.on_device ? joint_call(c, v, a, b) : b->call;
}

int64_t saved_bytes(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    PlanEntry *e = saving_plan(c, v, a, b);

    if (!e)
        return 0;
    Call call = saving_call(c, v, a, b);
    return e->backend->kept(c, e->program, e->plan, &call);
}

int64_t run_saved(Ctx *c, Variant *v, const Args *a, const Bound *b,
                  Stored room)
{
    PlanEntry *e = saving_plan(c, v, a, b);
    int64_t bytes = 0;

    if (!e) {
        Args serial = *a;
        serial.serial = true;
        run_bound(c, v, &serial, b);
        return 0;
    }
    Call call = saving_call(c, v, a, b);
    if (room.at)
        bytes = e->backend->kept(c, e->program, e->plan, &call);
    if (bytes > room.bytes)
        return bytes;
    ctx_doing(c, mode_name[a->mode], v->step->name);
    call.to = e->plan->split;
    call.kept = room.at;
    e->backend->run(c, e->program, e->plan, &call);
    return bytes;
}
