/* stage.c -- a step's states in stages, each of which is linear in itself once
 * those before it are known; see transition.h.
 */
#include <string.h>

#include "affine.h"
#include "transition.h"

/* What each entry of state s is multiplied by (or, of a maximum, what is added
 * to it), where that is all: else 0. */
static Ref entry_factor(Graph *g, int s, CarriedBy *carry)
{
    Universal *u = ctx_alloc(g->ctx, sizeof *u);
    Affine *a = ctx_alloc(g->ctx, sizeof *a);
    Ref d = 0;

    *carry = CARRY_ENTRIES;
    if (universal(g, s, u) && u->form != FORM_UNIVERSAL) {
        if (u->form == FORM_MAX)
            *carry = CARRY_MAX;
        return u->form == FORM_DELAY ? num(g, 0) : u->d ? u->d : num(g, 1);
    }
    if (!affine(g, g->st[s].next, STATE(s), false, a))
        return 0;
    for (int i = 0; i < a->n; i++) {
        if (a->term[i].over)
            return 0;
        Ref c = a->term[i].coef ? a->term[i].coef : num(g, 1);
        d = d ? op2(g, OP_add, d, c) : c;
    }
    return d ? d : num(g, 0);
}

/* The states that these need, without themselves. */
static StateSet needs_of(const Graph *g, StateSet of)
{
    StateSet all = of, was;

    do {
        was = all;
        for (int s = 0; s < g->nst; s++)
            if (all & STATE(s))
                all |= g->n[g->st[s].next].states;
    } while (all != was);
    return all & ~of;
}

/* The step of some states alone, nothing added. */
static void copy_states(const Graph *from, StateSet keep, Graph *to, Ref *map)
{
    uint8_t *live = ctx_alloc(to->ctx, from->len);
    int at[MAX_STATES] = { 0 };

    memcpy(to->axis, from->axis, sizeof to->axis);
    memcpy(to->in, from->in, sizeof to->in);
    to->naxes = from->naxes;
    to->nin = from->nin;
    for (int s = 0; s < from->nst; s++) {
        if (!(keep & STATE(s)))
            continue;
        at[s] = to->nst;
        to->st[to->nst++] = from->st[s];
        graph_needs(from, live, from->st[s].next);
        live[from->st[s].node] = 1;
    }
    for (int i = 0; i < from->nin; i++)
        live[from->in[i].node] = 1;
    for (Ref r = 1; r < from->len; r++) {
        Node n = from->n[r];
        Ref a[4] = { map[n.a[0]], map[n.a[1]], map[n.a[2]], map[n.a[3]] };
        if (n.op == OP_state)
            n.index = (uint16_t)at[n.index];
        to->line = 0;
        if (live[r])
            map[r] = node_copy(to, &n, a);
    }
    for (int i = 0; i < to->nin; i++)
        to->in[i].node = map[from->in[i].node];
    for (int s = 0; s < to->nst; s++) {
        to->st[s].node = map[to->st[s].node];
        to->st[s].next = map[to->st[s].next];
    }
}

static Ref first_input(const Graph *g)
{
    for (int i = 0; i < g->nin; i++)
        if (g->in[i].timed)
            return g->in[i].node;
    return g->in[0].node;
}

static void add_moved(Graph *to, int s)
{
    CarriedBy carry;
    Ref d = entry_factor(to, s, &carry);
    const char *name = moved_name(to, to->st[s].name);
    State *st = &to->st[to->nst];

    *st = to->st[s];
    st->angle = st->sum = false;
    memcpy(st->name, name, strlen(name) + 1);
    st->node = node_new(to, (Node){ .op = OP_state,
                                    .index = (uint16_t)to->nst++ });
    st->next = op2(to, carry == CARRY_MAX ? OP_add : OP_mul, d, st->node);
}

void stage_step(const Graph *g, const Stages *all, int i, Graph *to)
{
    Ref *map = ctx_alloc(to->ctx, g->len * sizeof *map);
    int first = __builtin_ctzll(all->of[i]);

    copy_states(g, all->of[i] | all->need[i], to, map);
    to->carry = all->carry[i];
    for (int s = 0; s < g->nst; s++)
        if (all->of[i] & STATE(s))
            to->stage |= STATE(graph_find_state(to, g->st[s].name));
    graph_output(to, "y", op1(to, OP_neg, first_input(to)));
    if (to->carry == CARRY_ENTRIES || to->carry == CARRY_MAX)
        add_moved(to, graph_find_state(to, g->st[first].name));
}

/* How the stage is carried; or what is in the way. */
static const char *find_carry(Ctx *c, Graph *g, Stages *all, int i)
{
    Graph *own = graph_new(c, g->name, 0);
    Transition t;

    all->carry[i] = CARRY_MATRIX;       /* as found: no state is added */
    stage_step(g, all, i, own);
    const char *why = transition_of(c, own, own->stage, &t);
    if (!why) {
        all->carry[i] = t.carry;
    } else if (__builtin_popcountll(all->of[i]) == 1) {
        int s = __builtin_ctzll(all->of[i]);
        g->note = NULL;
        if (entry_factor(g, s, &all->carry[i]))
            return NULL;
        if (g->note)
            return g->note;
    }
    return why;
}

const char *stages_find(Ctx *c, const Graph *step, Stages *out)
{
    Graph *g = graph_copy(c, step);
    Strata found;

    *out = (Stages){ 0 };
    if (!g->nst)
        return "it carries no state";
    strata(g, &found);
    for (int i = 0; i < found.n; i++) {
        out->of[i] = found.of[i];
        out->need[i] = needs_of(g, found.of[i]);
        out->n++;
        const char *why = find_carry(c, g, out, i);
        if (why)
            return why;
    }
    return NULL;
}
