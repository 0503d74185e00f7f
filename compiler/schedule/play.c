/* play.c -- roles that wait for one another, a few items long: whether all of
 * them come to the end, each doing its instructions in the order in which they
 * are printed, those of another iteration of the loop in that iteration.
 */
#include "schedule.h"

enum { ITEMS = 8 };                     /* more than a ring has slots, and loads
                                           lag behind */

/* Each role's iteration of the loop, which of its loads that lag so far, the
 * next instruction, and how often each buffer was filled by its writer and
 * emptied by each reader. */
typedef struct Play {
    const Schedule *s;
    bool lean;                          /* all iterations are */
    int at[NKROLES], lag[NKROLES], iteration[NKROLES];
    int filled[MOST_BUFFERS], emptied[NKROLES][MOST_BUFFERS];
} Play;

/* Of a lean iteration the instruction as such an iteration has it: a slot is
 * asked for by the first that fills it then. */
static KInst as_played(const Play *p, int at)
{
    const Schedule *s = p->s;
    KInst k = s->inst[at];
    uint32_t lean = lean_buffers(s);
    if (!p->lean)
        return k;
    k.wait_full = k.lean_full;
    k.wait_empty &= lean;
    k.post_full &= lean;
    k.post_empty &= lean;
    return k;
}

static int times(const Schedule *s, const KInst *k, int b, bool writes)
{
    const int16_t *list = writes ? k->out : k->in;
    int n = 0;
    for (int i = 0; i < (writes ? k->nout : k->nin); i++) {
        bool first = true;
        for (int j = 0; j < i; j++)
            first &= list[j] != list[i];
        n += first && s->value[list[i]].buffer == b;
    }
    return s->buffer[b].uses > 1 ? n : 1;
}

static bool may_go(const Play *p, const KInst *k)
{
    const Schedule *s = p->s;
    for (int b = 0; b < s->nbuffers; b++) {
        if (k->wait_full >> b & 1
            && p->filled[b] < p->emptied[k->role][b] + times(s, k, b, false))
            return false;
        for (int r = 0; r < NKROLES && k->wait_empty >> b & 1; r++)
            if (s->buffer[b].readers & 1u << r && r != k->role
                && tells_empty(s, r, b)
                && p->filled[b] + 1 > p->emptied[r][b] + s->buffer[b].depth)
                return false;
    }
    return true;
}

/* By how many iterations of the role's loop the last is behind. */
static int last_delay(const Schedule *s, int role)
{
    int most = 0;
    for (int i = 0; i < s->ninsts; i++) {
        int delay = s->inst[i].deferred ? 1 : s->inst[i].lag;
        if (s->inst[i].role == role && delay > most)
            most = delay;
    }
    return most;
}

/* Whether the role does it in this iteration, and at this place of it. */
static bool is_done(const Play *p, const KInst *k)
{
    int item = p->iteration[k->role] - (k->deferred ? 1 : k->lag);
    return k->lag == p->lag[k->role] && item >= 0 && item < ITEMS;
}

static bool has_ended(const Play *p, int role)
{
    return p->iteration[role] == ITEMS + last_delay(p->s, role);
}

/* The role's next instruction is done; false: it waits. */
static bool step(Play *p, int role)
{
    const Schedule *s = p->s;
    while (p->at[role] < s->ninsts
           && (s->inst[p->at[role]].role != role
               || !is_done(p, &s->inst[p->at[role]])))
        p->at[role]++;
    if (p->at[role] == s->ninsts) {
        bool ends = p->lag[role] == last_delay(s, role);
        p->at[role] = 0;
        p->iteration[role] += ends;
        p->lag[role] = ends ? 0 : p->lag[role] + 1;
        return true;
    }
    const KInst played = as_played(p, p->at[role]), *k = &played;
    if (!may_go(p, k))
        return false;
    for (int b = 0; b < s->nbuffers; b++) {
        if (k->post_full >> b & 1)
            p->filled[b] += times(s, k, b, true);
        if (k->post_empty >> b & 1)
            p->emptied[role][b] += times(s, k, b, false);
    }
    p->at[role]++;
    return true;
}

const char *schedule_stuck(const Schedule *s, bool lean)
{
    Play p = { .s = s, .lean = lean };
    for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < NKROLES; r++)
            while (s->warps[r] && !has_ended(&p, r) && step(&p, r))
                any = true;
    }
    for (int r = 0; r < NKROLES; r++)
        if (s->warps[r] && !has_ended(&p, r))
            return ctx_format(s->c, "the %s role waits for ever",
                              krole_name[r]);
    return NULL;
}
