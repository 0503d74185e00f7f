/* rank_memory.c -- inputs, states and results of which ranks are no axes. */
#include "ranks.h"

#include <stdio.h>

/* ---- one rank each ---- */

bool states_apart(Graph *g, Ref r, int ranks, Ref *part)
{
    State *s = &g->st[g->n[r].index];
    if (g->nst + ranks > MAX_STATES || s->twin_of || s->lost_of || s->moved_of)
        return false;
    s->part_of = (int16_t)(g->n[r].index + 1);
    const State first = *s;
    part[0] = r;
    for (int i = 1; i < ranks; i++) {
        State *more = &g->st[g->nst++];
        *more = first;
        more->part = (uint8_t)i;
        snprintf(more->name, sizeof more->name, "%.40s_%u",
                 first.name, (unsigned)more->part);
        part[i] = more->node = node_new(g, (Node){ .op = OP_state, .index
                                        = (uint16_t)(g->nst - 1),
                                        .axes = first.axes });
    }
    return true;
}

bool inputs_apart(Graph *g, Ref r, int ranks, Ref *part)
{
    Input *in = &g->in[g->n[r].index];
    if (g->nin + ranks > MAX_INPUTS)
        return false;
    in->part_of = (int16_t)(g->n[r].index + 1);
    const Input first = *in;
    part[0] = r;
    for (int i = 1; i < ranks; i++) {
        Input *more = &g->in[g->nin++];
        *more = first;
        more->part = (uint8_t)i;
        snprintf(more->name, sizeof more->name, "%.40s_%u",
                 first.name, (unsigned)more->part);
        part[i] = more->node = node_new(g, (Node){ .op = OP_input, .index
                                        = (uint16_t)(g->nin - 1),
                                        .axes = first.axes });
    }
    return true;
}

/* ---- all of them, first in memory ---- */

/* The order without ranks; how many axes are left of it. */
static uint8_t drop_ranks(uint8_t order[8], uint8_t rank, AxisSet own)
{
    uint8_t n = 0;
    for (int i = 0; i < rank; i++)
        if (!(own & AXIS(order[i])))
            order[n++] = order[i];
    return n;
}

bool take_ranks(Graph *g, AxisSet own)
{
    for (int i = 0; i < g->nin; i++) {
        Input *in = &g->in[i];
        if (!(in->axes & own))
            continue;
        if (!(own & AXIS(in->order[0])) || in->rank > 2)
            return false;
        in->ranked = in->timed;
        in->axes &= ~own;
        in->rank = drop_ranks(in->order, in->rank, own);
    }
    for (int i = 0; i < g->nst; i++) {
        State *s = &g->st[i];
        if (!(s->axes & own))
            continue;
        if (!(own & AXIS(s->order[0])) || s->rank > 2)
            return false;
        s->axes &= ~own;
        s->rank = drop_ranks(s->order, s->rank, own);
    }
    for (Ref r = 1; r < g->len; r++)    /* of what is made anew, too */
        g->n[r].axes &= ~own;
    for (int i = 0; i < g->nout; i++) {
        Output *o = &g->out[i];
        o->ranked = o->rank && own & AXIS(o->order[0]);
        o->rank = drop_ranks(o->order, o->rank, own);
        if (o->rank > 1)
            return false;
    }
    return true;
}
