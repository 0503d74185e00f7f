/* schedule.c -- the passes in order, and the tables that they share. */
#include "schedule.h"

const Target target_sm90 = { "sm_90a", 32, 4, 65536, 8, 232448 };

const char *const layout_name[NLAYOUTS] = { "tile", "fragment", "wide",
                                            "inverse", "vector", "scalar" };
const char *const kop_name[NKOPS] = { "begin", "load", "vector", "clear",
    "product", "settle", "map", "inverse", "sync", "store", "carry", "end" };
const char *const krole_name[NKROLES] = { "load", "store", "vector", "vector2",
                                          "matrix" };

/* A warp each for the roles that are not the matrix role; those make up a
 * warpgroup, whose threads need few registers. */
static void deal_roles(Schedule *s)
{
    enum { FEW = 56 };
    int threads = (s->groups + 1) * s->target->group * s->target->warp;
    int each = s->target->regs / threads / s->target->reg_step
             * s->target->reg_step;
    for (int i = 0; i < s->ninsts; i++)
        s->warps[s->inst[i].role] = s->inst[i].role == KR_MATRIX
            ? (uint8_t)(s->groups * s->target->group) : 1;
    s->regs[0] = FEW;
    s->regs[1] = s->groups < 2 ? 216 : each + (each - FEW) / s->groups
               / s->target->reg_step * s->target->reg_step;
}

Schedule *schedule_kernel(Ctx *c, const KernelWish *w, const Target *t)
{
    Schedule *s = ctx_alloc(c, sizeof *s);
    *s = (Schedule){ .c = c, .p = w->p, .g = w->p->g, .target = t,
                     .k = &w->p->kernel[w->kernel], .tile = w->tile,
                     .wants_out = w->wants_out, .stores = w->stores };
    s->kind = s->k->kind;
    if (s->g->chunk != TILE_ROWS)
        s->why = "chunks that are not of 64 tokens";
    else if (w->tile != BF16 && w->tile != F16)
        s->why = "products of another type than 16 bits";
    if (s->why || !schedule_select(s, w) || !schedule_buffers(s))
        return s;
    deal_roles(s);
    schedule_sync(s);
    s->why = schedule_check(s);
    return s;
}
