/* saved.c -- the forward pass of a joint plan on its own, and what it leaves
 * for the backward one.
 */
#include "bind.h"

/* The joint plan, if it goes by chunks and its backend runs the two passes
 * one at a time. */
static PlanEntry *saving_plan(Ctx *c, Variant *v, const Args *a,
                              const Bound *b)
{
    const Backend *backend = call_backend(c, a, &b->call);
    PlanEntry *e;

    if (v->step->mask || plan_chunk(a) == 0 || !backend->kept)
        return NULL;
    e = plan_for(c, v, b->call.size, plan_chunk(a), true, backend);
    return e->plan->g->chunk && e->plan->split > 0 ? e : NULL;
}

int64_t saved_bytes(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    PlanEntry *e = saving_plan(c, v, a, b);

    return e ? e->backend->kept(e->program, &b->call) : 0;
}

void run_saved(Ctx *c, Variant *v, const Args *a, const Bound *b, void *at)
{
    PlanEntry *e = saving_plan(c, v, a, b);
    Call call = b->call;
    Args serial = *a;

    if (!e) {
        serial.serial = true;
        run_bound(c, v, &serial, b);
        return;
    }
    ctx_doing(c, mode_name[a->mode], v->step->name);
    call.to = e->plan->split;
    call.kept = at;
    e->backend->run(c, e->program, e->plan, &call);
}
