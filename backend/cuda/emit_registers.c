/* emit_registers.c -- how many registers a thread of each role has. */
#include "emit.h"

bool has_wide_state(const Emit *e)
{
    const Graph *g = e->g;
    for (int i = 0; i < g->nst; i++)
        for (int ax = AX_DIM; ax < NAXES; ax++)
            if (e->serial >> i & 1 && g->st[i].axes & AXIS(ax)
                && ax != e->row_axis && g->axis[ax].size > 64)
                return true;
    return false;
}

/* What most kernels do with. ptxas is fickle: less is sometimes spilled with
 * fewer. */
static Registers usual_registers(const Emit *e)
{
    bool gated = e->ngates > 0;
    if (e->team)
        return (Registers){ 32, 64, 160 };
    if (e->joint)
        return e->nchains || e->nscores > 2 ? (Registers){ 32, 136, 208 }
                                            : (Registers){ 24, 128, 232 };
    if (e->aheads == 2)
        return !gated ? (Registers){ 40, 128, 216 }
             : e->inverse ? (Registers){ 24, 144, 200 }
                          : (Registers){ 32, 136, 208 };
    if (e->groups == 1)
        return gated ? (Registers){ 48, 216, 240 }
             : e->nchains ? (Registers){ 56, 208, 240 }
                          : (Registers){ 56, 160, 232 };
    if (gated)
        return e->inverse ? (Registers){ 32, 136, 168 }
                          : (Registers){ 32, 128, 176 };
    if (!has_wide_state(e))
        return (Registers){ 56, 104, 176 };
    if (e->inverse)
        return (Registers){ 40, 88, 192 };
    return count_rings(e) > 1 ? (Registers){ 56, 72, 192 }
                              : (Registers){ 32, 80, 200 };
}

int registers_at_start(const Emit *e)
{
    enum { ALL = 65536 / 128, STEP = 8 };
    return ALL / (1 + e->aheads + e->groups) & -STEP;
}

bool has_spilled_alone(const Emit *e)
{
    int attempt = e->groups < e->o->groups ? 1 : 2;
    return e->groups == 1 && !e->ngates && e->o->attempt >= attempt;
}

/* The same, or where that spills, the ahead role's as many as the others leave
 * of what the block starts with: no role gets more than others give back, it
 * would wait for ever. Two ahead warpgroups are left more from attempt to
 * attempt, by a state warpgroup without gates alone in the end; those that
 * invert under gates from the second attempt on, as the first helps them by its
 * text. Else the io warps have some more, last. */
Registers registers_of(const Emit *e)
{
    enum { STEP = 8, LEAST = 24, MOST = 248 };
    int all = registers_at_start(e) * (1 + e->aheads + e->groups);
    bool two = e->aheads == 2 && !e->team;
    bool later = two && !e->joint && e->ngates && e->inverse;
    int attempt = e->o->attempt - (later && e->o->attempt);
    Registers r = usual_registers(e);
    if (has_spilled_alone(e) && two)
        return (Registers){ r.io, r.ahead + STEP, r.state - 2 * STEP };
    if (!attempt || e->groups < e->o->groups)
        return r;
    if (two) {
        r.io = r.io - attempt * STEP < LEAST ? LEAST : r.io - attempt * STEP;
        r.state -= attempt * STEP;
    } else {
        r.io += attempt > 1 ? STEP : 0;
    }
    r.ahead = (all - r.io - e->groups * r.state) / e->aheads & -STEP;
    r.ahead = r.ahead < LEAST ? LEAST : r.ahead > MOST ? MOST : r.ahead;
    return r;
}
