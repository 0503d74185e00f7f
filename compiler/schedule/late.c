/* late.c -- what is found in memory to be added up along the chunk: right
 * before it is.
 */
#include "schedule.h"

#include <string.h>

/* Whether the program finds all that it reads in memory, and leaves nothing but
 * what is added up: waiting, it holds no tile. */
static bool finds_summands(const Schedule *s, const KInst *k)
{
    bool all = k->op == K_MAP && k->role == KR_MATRIX && k->nout == 1
            && s->value[k->out[0]].layout == LAY_SUMS;
    for (int i = 0; i < k->nin; i++)
        all &= s->value[k->in[i]].layout == LAY_GLOBAL;
    return all;
}

/* The instruction of its role that adds up the value; NOTHING: another is the
 * first to read it. */
static int added_at(const Schedule *s, int from, int value)
{
    for (int i = from + 1; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (has_value(k->in, k->nin, value)
            || has_value(k->out, k->nout, value))
            return k->op == K_SCAN && k->in[0] == value ? i : NOTHING;
    }
    return NOTHING;
}

/* Whether other sums, as large, are read for the last time meanwhile. */
static bool outlives_sums(const Schedule *s, int from, int at, int value)
{
    bool any = false;
    for (int v = 0; v < s->nvalues; v++) {
        const KValue *u = &s->value[v];
        int first, last;
        if (u->layout != LAY_SUMS || u->alias != NOTHING
            || value_bytes(u) != value_bytes(&s->value[value]))
            continue;
        live_interval(s, v, &first, &last);
        any |= first < from && last > from && last < at;
    }
    return any;
}

/* Until then its place is that of other sums, where shared memory is short.
 * Requires the order of instructions; values have no buffers yet. */
void schedule_late(Schedule *s)
{
    for (int i = s->ninsts - 1; i >= 0 && s->share; i--) {
        int at = finds_summands(s, &s->inst[i])
               ? added_at(s, i, s->inst[i].out[0]) : NOTHING;
        if (at == NOTHING || !outlives_sums(s, i, at, s->inst[i].out[0]))
            continue;
        KInst k = s->inst[i];
        memmove(s->inst + i, s->inst + i + 1, (size_t)(at - 1 - i) * sizeof k);
        s->inst[at - 1] = k;
    }
}
