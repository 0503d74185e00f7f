/* tails.h -- rows of tiles behind a sequence's last token: who clears them, and
 * what is zero there.
 */
#ifndef FLIN_TAILS_H
#define FLIN_TAILS_H

#include "schedule.h"

/* Of a walk behind a role ahead: who loads tiles clears rows behind a
 * sequence's end. Requires the role ahead. */
void schedule_clear_loaded(Schedule *s);
/* Whether a load does; the barrier by which it is told that a tile that it
 * clears has come, and its bytes. */
static inline bool clears_loaded(const Schedule *s)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        any |= s->inst[i].clears;
    return any;
}
static inline int32_t tail_barrier(const Schedule *s)
{
    return barrier_at(s, s->nbuffers);
}
static inline int32_t tail_bytes(const Schedule *s)
{
    return clears_loaded(s) ? 8 : 0;
}
/* NULL: whoever clears what is loaded, does so as it lies in memory. */
const char *tails_fault(const Schedule *s);

/* Whether the operation makes numbers of numbers (padding.c). */
bool keeps_numbers(int op);
/* Whether what the program leaves of node r, or finds of it, is zero behind a
 * sequence's last token without being cleared there: it is made of what is. */
bool ends_in_zeros(const Schedule *s, const KInst *k, Ref r);

#endif
