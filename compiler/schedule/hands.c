/* hands.c -- whether roles hand buffers over: what one leaves another finds
 * behind a wait, and tells of having read it.
 */
#include "schedule.h"

/* Whether the instruction leaves a tile where one of the buffer was loaded. */
static bool overwrites(const Schedule *s, const KInst *k, int b)
{
    bool any = false;
    for (int i = 0; i < k->nout; i++)
        any |= s->value[k->out[i]].buffer == b
            && lies_over_loaded(s, k->out[i]);
    return any;
}

/* Whether the role ahead leaves something in the buffer, which is its own, and
 * no other block's, or holds what was loaded. */
static bool leaves_ahead(const Schedule *s, const KInst *k, int b)
{
    bool any = overwrites(s, k, b);
    bool own = s->buffer[b].writer == KR_AHEAD && !is_filled_by_both(s, b);
    for (int i = 0; i < k->nout; i++)
        any |= own && s->value[k->out[i]].buffer == b;
    return any;
}

/* Whether the matrix role, at that instruction, has waited for what the role
 * ahead made behind its own wait for the buffer, and behind what it left there.
 */
static bool is_found_ahead(const Schedule *s, int at, int b)
{
    uint32_t told = 0, waited = 0;
    bool open = false;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->role == KR_AHEAD) {
            bool leaves = leaves_ahead(s, k, b);
            open |= leaves || k->wait_full >> b & 1;
            told = leaves ? 0 : told;
            told |= open ? k->post_full : 0;
        }
        if (k->role == KR_MATRIX && i <= at)
            waited |= k->wait_full;
    }
    return s->row_axis && s->buffer[b].uses == 1 && told & waited;
}

/* Whether the instruction finds such a tile. */
static bool finds_overwritten(const Schedule *s, const KInst *k, int b)
{
    bool any = false;
    for (int i = 0; i < k->nin; i++)
        any |= s->value[k->in[i]].buffer == b && lies_over_loaded(s, k->in[i]);
    return any;
}

const char *hands_fault(const Schedule *s)
{
    for (int b = 0; b < s->nbuffers; b++)
        for (int role = 0; role < NKROLES && !is_internal(&s->buffer[b]);
             role++) {
            bool writes = s->buffer[b].writer == role, open = false;
            for (int i = 0; i < s->ninsts; i++) {
                const KInst *k = &s->inst[i];
                if (k->role != role
                    || (!writes && !(s->buffer[b].readers & 1u << role)))
                    continue;
                open |= (writes ? k->wait_empty : k->wait_full) >> b & 1;
                bool uses = overwrites(s, k, b);
                for (int j = 0; j < (writes ? k->nout : k->nin); j++)
                    uses |= s->value[(writes ? k->out : k->in)[j]].buffer == b;
                if (uses && !writes && role == KR_MATRIX
                    && (!open || finds_overwritten(s, k, b)))
                    open = is_found_ahead(s, i, b);
                if (uses && !open)
                    return ctx_format(s->c, "a buffer that is used unasked"
                                            " (%d)", b);
                open &= !((writes ? k->post_full : k->post_empty) >> b & 1);
            }
            if (open && !(role == KR_AHEAD && !writes
                          && !tells_empty(s, role, b) && is_told_by_way(s, b)))
                return ctx_format(s->c, "a buffer that is not handed on"
                                        " (%d)", b);
        }
    return NULL;
}
