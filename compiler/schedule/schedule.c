/* schedule.c -- the passes in order. */
#include "schedule.h"

/* A warp each for the roles that are not the matrix role; those make up a
 * warpgroup, whose threads need few registers. */
static void deal_roles(Schedule *s)
{
    int few = s->resident > 1 ? 48 : 56;
    int threads = (s->groups + 1) * s->target->group * s->target->warp;
    int each = s->target->regs / s->resident / threads / s->target->reg_step
             * s->target->reg_step;
    for (int i = 0; i < s->ninsts; i++)
        s->warps[s->inst[i].role] = s->inst[i].role == KR_MATRIX
            ? (uint8_t)(s->groups * s->target->group) : 1;
    s->regs[0] = few;
    s->regs[1] = s->groups < 2 ? each < 216 ? each : 216
               : each + (each - few) / s->groups / s->target->reg_step
                 * s->target->reg_step;
}

/* Each turn takes less shared memory, and then fewer registers; where two are
 * to be on a multiprocessor there is but one. */
static Schedule *attempt(Ctx *c, const KernelWish *w, const Schedule *like)
{
    enum { TURNS = 6 };
    Schedule *s = ctx_alloc(c, sizeof *s);
    for (int i = 0; i < (like->resident > 1 ? 1 : 2 * TURNS); i++) {
        int less = i % TURNS;
        *s = *like;
        s->share = less > 0;
        s->rings = less > 1;
        s->direct = less > 2;
        s->leave = less > 3;
        s->sink = less > 4;
        s->narrow = i >= TURNS;
        if (!schedule_select(s, w))
            return s;
        s->large = true;
        if (!schedule_buffers(s))
            continue;
        deal_roles(s);
        schedule_together(s);
        schedule_shorten(s);
        schedule_sync(s);
        s->why = schedule_check(s);
        if (!s->why || s->narrow)
            return s;
        i = TURNS - 1;
    }
    return s;
}

/* Whether states take so many registers that ptxas has been seen to spill. */
static bool is_heavy(const Schedule *s)
{
    enum { MANY = 64 };
    bool heavy = false;
    for (int i = 0; i < s->ninsts; i++)
        heavy |= s->inst[i].op == K_BEGIN && s->inst[i].nout
              && fragment_regs(s, &s->value[s->inst[i].out[0]]) > MANY;
    return heavy;
}

/* A walk is a chain: many short ones at once fill the machine, two on a
 * multiprocessor hide each other's waits. What does not fit otherwise is cut
 * into as few slices as do. */
static Schedule *best_attempt(Ctx *c, const KernelWish *w, Schedule *like)
{
    int axis = schedule_slice_axis(like);
    int most = axis ? like->g->axis[axis].size / TILE_COLS : 1;
    bool walk = like->kind != K_TOKEN;
    Schedule *plain = NULL;
    for (like->resident = walk ? 2 : 1; like->resident; like->resident--)
        for (int i = 1; i <= most; i++) {
            bool short_walks = walk && (like->resident > 1 || w->few);
            like->slices = short_walks ? most + 1 - i : i;
            like->slice_axis = like->slices > 1 ? axis : 0;
            if (most % like->slices)
                continue;
            Schedule *s = attempt(c, w, like);
            if (!s->why && !is_heavy(s))
                return s;
            if (!plain || (plain->why && (!s->why || s->slices == 1)))
                plain = s;
        }
    return plain;
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
    return s->why ? s : best_attempt(c, w, s);
}
