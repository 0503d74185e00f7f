/* transition.c -- the proof that a state's end is linear in its start, by what
 * each operation does to what is linear; see transition.h.
 */
#include "transition.h"

#include <stdio.h>
#include <string.h>

/* Of a node: free of the state and of all inputs along nu; made of such inputs
 * without the state, and zero where they are; the same, but maybe not zero
 * there; linear in the state, with free coefficients, and something written
 * added; or none of these. */
typedef enum Kind { FREE, WRITTEN, GATED, LINEAR, NEITHER } Kind;

typedef struct Finding {
    const Graph *g;
    Transition *t;
    uint8_t *kind;                      /* per node: Kind */
    bool *mixed;                        /* of the state, and contracted over
                                           kappa */
    bool *varied;                       /* multiplied by what has kappa */
    bool *moved;                        /* of the state, and more than added to
                                           what is written */
} Finding;

static bool is_kind(const Finding *f, Ref r, Kind kind)
{
    return r && f->kind[r] == kind;
}

static bool any_is(const Finding *f, const Node *n, Kind kind)
{
    bool any = false;
    for (int i = 0; i < 4; i++)
        any |= is_kind(f, n->a[i], kind);
    return any;
}

static bool has_nu(const Finding *f, Ref r)
{
    return f->g->n[r].axes >> f->t->nu & 1;
}

static bool has_kappa(const Finding *f, AxisSet s)
{
    return f->t->kappa >= 0 && s >> f->t->kappa & 1;
}

/* The operands in which the operation is linear together, as bits; 0: none. */
static unsigned linear_operands(const Finding *f, const Node *n)
{
    bool second = is_kind(f, n->a[1], LINEAR)
               || (!is_kind(f, n->a[0], LINEAR)
                   && is_kind(f, n->a[1], WRITTEN));
    if (op_is(n->op, ADDITIVE))
        return 3;
    if (op_is(n->op, MULTIPLIES))
        return second || !op_is(n->op, ADDS_UP) ? 2 : 1;
    switch (n->op) {
    case OP_mul:
        return second ? 2 : 1;
    case OP_div:
        return 1;
    case OP_where: case OP_scan:
        return 6;
    default:
        return 0;
    }
}

/* Whether what is linear in the state passes along nu as it is. */
static bool keeps_nu(const Finding *f, const Node *n)
{
    bool renames = op_has(n->op, TO_AXIS);
    return !(n->over >> f->t->nu & 1)
        && !(renames && n->index == f->t->nu);
}

/* Operands that count are linear, written or zero; the others coefficients. */
static bool is_combined(const Finding *f, const Node *n, bool of_state)
{
    unsigned of = linear_operands(f, n);
    bool holds = of && (!of_state || keeps_nu(f, n));
    for (int i = 0; i < 4 && holds; i++) {
        Ref a = n->a[i];
        bool term = is_kind(f, a, LINEAR) || is_kind(f, a, WRITTEN)
                 || is_num(f->g, a, 0);
        bool factor = !of_state || (is_kind(f, a, FREE) && !has_nu(f, a));
        holds = !a || (of >> i & 1 ? term : factor);
    }
    return holds;
}

/* Whether it might be no number where what is written is zero. */
static bool may_break(const Finding *f, const Node *n)
{
    return (n->op == OP_div && !is_kind(f, n->a[1], FREE))
        || n->op == OP_rsqrt || n->op == OP_log;
}

static Kind kind_of(const Finding *f, const Node *n)
{
    bool of_state = any_is(f, n, LINEAR);
    if (n->op == OP_state)
        return f->t->of & STATE(n->index) ? LINEAR
             : f->g->st[n->index].reverse ? NEITHER
             : n->axes >> f->t->nu & 1 ? WRITTEN : FREE;
    if (n->op == OP_input)
        return f->g->in[n->index].axes >> f->t->nu & 1 ? WRITTEN : FREE;
    if (any_is(f, n, NEITHER))
        return NEITHER;
    if (!of_state && !any_is(f, n, WRITTEN) && !any_is(f, n, GATED))
        return FREE;
    if (is_combined(f, n, of_state))
        return of_state ? LINEAR : WRITTEN;
    return of_state || may_break(f, n) ? NEITHER : GATED;
}

/* Whether entries of kappa meet on the way from the state. */
static bool mixes(const Finding *f, Ref r)
{
    const Node *n = &f->g->n[r];
    bool mixed = false;
    for (int i = 0; i < 4; i++)
        mixed |= n->a[i] && (f->mixed[n->a[i]]
              || (has_kappa(f, n->over)
                  && f->g->n[n->a[i]].states & f->t->of));
    return mixed;
}

/* Whether what the state is multiplied by differs from entry to entry of kappa.
 */
static bool varies(const Finding *f, Ref r)
{
    const Node *n = &f->g->n[r];
    bool of_state = any_is(f, n, LINEAR), varied = false;
    for (int i = 0; i < 4; i++)
        varied |= n->a[i] && (f->varied[n->a[i]]
               || (of_state && is_kind(f, n->a[i], FREE)
                   && has_kappa(f, f->g->n[n->a[i]].axes)));
    return varied;
}

static bool moves(const Finding *f, Ref r)
{
    const Node *n = &f->g->n[r];
    bool moved = n->op != OP_state && n->op != OP_add;
    for (int i = 0; i < 4; i++)
        moved |= n->a[i] && f->moved[n->a[i]];
    return is_kind(f, r, LINEAR) && (moved || (is_kind(f, n->a[0], LINEAR)
                                        && is_kind(f, n->a[1], LINEAR)));
}

/* Do other states come out the same without what is written along nu, or as
 * zero? */
static bool others_hold(const Finding *f)
{
    for (int i = 0; i < f->g->nst; i++) {
        const State *s = &f->g->st[i];
        bool written = s->axes >> f->t->nu & 1;
        if (s->reverse || f->t->of & STATE(i))
            continue;
        if (f->kind[s->next] != FREE
            && !(written && f->kind[s->next] == WRITTEN))
            return false;
    }
    return true;
}

static bool holds(Finding *f)
{
    Ref last = 0;
    bool holds = true;
    for (int i = 0; i < f->g->nst; i++)
        if (!f->g->st[i].reverse && f->g->st[i].next > last)
            last = f->g->st[i].next;
    for (Ref r = 1; r <= last; r++) {
        f->kind[r] = (uint8_t)kind_of(f, &f->g->n[r]);
        f->mixed[r] = mixes(f, r);
        f->varied[r] = varies(f, r);
        f->moved[r] = moves(f, r);
    }
    f->t->mixes = f->t->n > 1;
    f->t->varies = false;
    f->t->stays = f->t->n == 1;
    for (StateSet of = f->t->of; of; of &= of - 1) {
        Ref next = f->g->st[__builtin_ctzll(of)].next;
        f->t->mixes |= f->mixed[next];
        f->t->varies |= f->varied[next];
        f->t->stays &= !f->moved[next];
        holds &= f->kind[next] == LINEAR && has_nu(f, next);
    }
    f->t->carry = f->t->mixes ? CARRY_MATRIX : CARRY_ROWS;
    return holds && others_hold(f);
}

/* The only state that is carried forward; -1: there are none, or more. */
static int only_state(const Graph *g)
{
    int found = -1;
    for (int s = 0; s < g->nst; s++) {
        if (g->st[s].reverse)
            continue;
        if (found >= 0)
            return -1;
        found = s;
    }
    return found;
}

/* The node that is to blame, of those that what state s becomes needs. */
static Ref find_bad(const Finding *f, int s)
{
    const Graph *g = f->g;
    Ref r = g->st[s].next, found = 0;
    while (r && r != found && f->kind[r] == NEITHER) {
        found = r;
        for (int i = 0; i < 4; i++)
            if (g->n[found].a[i] && f->kind[g->n[found].a[i]] == NEITHER)
                r = g->n[found].a[i];
    }
    return found;
}

/* Matrices of the same axes; or why not. */
static const char *check_states(Ctx *c, const Graph *g, const Transition *t)
{
    for (StateSet of = t->of; of; of &= of - 1) {
        const State *s = &g->st[__builtin_ctzll(of)];
        if (s->rank != 2 || s->angle)
            return ctx_format(c, "state '%s' is no matrix", s->name);
        if (s->axes != g->st[t->state].axes)
            return ctx_format(c, "states '%s' and '%s' need each other, and "
                              "have not the same axes", g->st[t->state].name,
                              s->name);
    }
    return NULL;
}

/* With these axes. */
static bool holds_along(Finding *f, int kappa, int nu)
{
    f->t->kappa = kappa;
    f->t->nu = nu;
    if (!holds(f))
        return false;
    for (int k = 0; k < f->g->nin; k++)
        f->t->writes[k] = f->g->in[k].axes >> nu & 1;
    return true;
}

static Finding finding(Ctx *c, const Graph *g, StateSet of, Transition *t)
{
    *t = (Transition){ .of = of, .n = __builtin_popcountll(of),
                       .state = __builtin_ctzll(of), .moved = -1 };
    return (Finding){ .g = g, .t = t, .kind = ctx_alloc(c, g->len),
                      .mixed = ctx_alloc(c, g->len * sizeof(bool)),
                      .varied = ctx_alloc(c, g->len * sizeof(bool)),
                      .moved = ctx_alloc(c, g->len * sizeof(bool)) };
}

static const char *not_linear(Ctx *c, const Finding *f)
{
    const Graph *g = f->g;
    Ref bad = find_bad(f, f->t->state);

    return ctx_format(c, "what state '%s' becomes is no matrix along one of its"
                      " axes times it, plus what is written%s%s",
                      g->st[f->t->state].name, bad ? ": " : "",
                      bad ? expr_text(g, bad) : "");
}

const char *transition_of(Ctx *c, const Graph *g, StateSet of, Transition *t)
{
    Finding f = finding(c, g, of, t);
    const State *s = &g->st[t->state];
    const char *why = check_states(c, g, t);

    if (why)
        return why;
    return holds_along(&f, s->order[0], s->order[1])
        || holds_along(&f, s->order[1], s->order[0]) ? NULL
         : not_linear(c, &f);
}

const char *transition_find(Ctx *c, const Graph *g, Transition *t)
{
    int s = only_state(g);
    if (s < 0)
        return "it carries more than one state, or none";
    return transition_of(c, g, STATE(s), t);
}

const char *transition_of_rows(Ctx *c, const Graph *g, Transition *t)
{
    int s = only_state(g);
    if (s < 0 || g->st[s].rank != 1 || g->st[s].angle)
        return transition_find(c, g, t);
    Finding f = finding(c, g, STATE(s), t);
    return holds_along(&f, -1, g->st[s].order[0]) ? NULL : not_linear(c, &f);
}

/* ---- walks for what states end as ---- */

/* What r multiplies each entry of the state by; 0, where the state is not in
 * r: *told is false where that is not seen. */
static Ref factor_of(const Finding *f, Graph *g, Ref r, bool *told)
{
    const Node n = g->n[r];
    int i = is_kind(f, n.a[0], LINEAR) ? 0 : 1;
    Ref x, y;

    if (!is_kind(f, r, LINEAR))
        return 0;
    switch (n.op) {
    case OP_state:
        return num(g, 1);
    case OP_neg:
        return op1(g, OP_neg, factor_of(f, g, n.a[0], told));
    case OP_mul: case OP_div:
        x = factor_of(f, g, n.a[i], told);
        return *told ? op2(g, n.op, x, n.a[1 - i]) : 0;
    case OP_add: case OP_sub:
        x = factor_of(f, g, n.a[0], told);
        y = factor_of(f, g, n.a[1], told);
        return *told ? op2(g, n.op, x ? x : num(g, 0), y ? y : num(g, 0)) : 0;
    case OP_scan:                       /* gates exp(a), up to each token */
        *told &= !n.flags && n.a[0] && g->n[n.a[0]].op == OP_exp
              && !is_kind(f, n.a[1], LINEAR);
        x = factor_of(f, g, n.a[2], told);
        return *told ? op2(g, OP_mul, x, op1(g, OP_exp, cumsum(g,
                           g->n[n.a[0]].a[0], 0))) : 0;
    default:                            /* the same along all axes but tokens */
        *told &= op_is(n.op, MOVES) && !op_is(n.op, RENAMES)
              && !op_has(n.op, OVER | INDEX | TO_AXIS);
        x = factor_of(f, g, n.a[0], told);
        return *told ? node_copy(g, &n, (Ref[4]){ x }) : 0;
    }
}

const char *moved_name(const Graph *g, const char *of)
{
    const char *name = ctx_format(g->ctx, "%.32s_moved", of);

    for (int i = 1; graph_find_state(g, name) >= 0
                    || graph_find_input(g, name) >= 0; i++)
        name = ctx_format(g->ctx, "%.32s_moved_%d", of, i);
    return name;
}

static State *new_moved(Graph *g, const Transition *t)
{
    const State *of = &g->st[t->state];
    State *s = &g->st[g->nst];

    *s = (State){ .rank = 1, .moved_of = (int16_t)(t->state + 1) };
    snprintf(s->name, sizeof s->name, "%s", moved_name(g, of->name));
    s->order[0] = (uint8_t)(t->kappa < 0 ? t->nu : t->kappa);
    s->axes = AXIS(s->order[0]);
    s->node = node_new(g, (Node){ .op = OP_state,
                                  .index = (uint16_t)g->nst++ });
    return s;
}

/* Where the state that is carried is one of these and its M is a diagonal, and
 * not 1, the state that shows it. */
static void add_moved(Ctx *c, Graph *g, StateSet of)
{
    Transition t;
    bool told = true;

    if (transition_of_rows(c, g, &t) || t.mixes || t.stays || !(t.of & of)
        || g->nst == MAX_STATES)
        return;
    Transition own = t;
    Finding f = finding(c, g, t.of, &own);
    own.kappa = t.kappa;
    own.nu = t.nu;
    if (!holds(&f))
        return;
    Ref by = factor_of(&f, g, g->st[t.state].next, &told);
    if (!told)
        return;
    State *s = new_moved(g, &t);
    s->next = op2(g, OP_sub, op2(g, OP_mul, by,
                                 op2(g, OP_add, s->node, num(g, 1))),
                  num(g, 1));
}

int moved_state(const Graph *g)
{
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].moved_of)
            return i;
    return -1;
}

Plan *plan_moved(Ctx *c, const Plan *p)
{
    Plan *to = ctx_alloc(c, sizeof *to);

    *to = *p;
    to->g = graph_copy(c, p->g);
    add_moved(c, to->g, ~(StateSet)0);
    return to;
}

Plan *plan_ends(Ctx *c, const Plan *p)
{
    Graph *g = graph_copy(c, p->g);
    g->nout = 0;
    while (g->nst && g->st[g->nst - 1].reverse)
        g->nst--;
    add_moved(c, g, ~(StateSet)0);
    return plan_simple(g);
}

/* Marks what r needs of the kernel, and r. */
static void mark_needed(const Graph *g, const uint8_t *has, uint8_t *set,
                        Ref r)
{
    if (!r || set[r] || !has[r])
        return;
    set[r] = 1;
    for (int i = 0; i < 4; i++)
        mark_needed(g, has, set, g->n[r].a[i]);
}

/* Whether chunks only add to it, as to the gradient of a constant: none goes on
 * from another's end. */
static bool only_adds_up(const Graph *g, const State *st)
{
    const Node *next = &g->n[st->next];
    uint8_t *live = ctx_alloc(g->ctx, g->len);
    bool read = next->op != OP_add
             || (next->a[0] != st->node && next->a[1] != st->node);

    graph_live(g, live);
    for (Ref r = 1; r < g->len && !read; r++)
        for (int i = 0; i < 4; i++)
            read |= live[r] && r != st->next && g->n[r].a[i] == st->node;
    return st->reverse && !read;
}

static bool walks_matrices(const Graph *g, const Kernel *k)
{
    bool any = false;

    for (int s = 0; s < g->nst; s++)
        any |= k->states & STATE(s) && g->st[s].rank == 2
            && !only_adds_up(g, &g->st[s]);
    return any && k->kind != K_TOKEN;
}

/* g: k's own graph, and behind its `known` nodes more. */
static Kernel ends_of(const Graph *g, Ref known, const Kernel *k)
{
    Kernel to = { .kind = k->kind, .back = k->back };
    uint8_t *has = ctx_alloc(g->ctx, g->len);
    uint8_t *set = ctx_alloc(g->ctx, g->len);
    int moved = moved_state(g);

    memcpy(to.name, k->name, sizeof to.name);
    for (int i = 0; i < k->nnodes; i++)
        has[k->node[i]] = 1;
    memset(has + known, 1, g->len - known);
    for (int s = 0; s < g->nst; s++)
        if (k->states & STATE(s))
            mark_needed(g, has, set, g->st[s].next);
    if (moved >= 0 && k->states & STATE(g->st[moved].moved_of - 1))
        mark_needed(g, has, set, g->st[moved].next);
    to.node = ctx_alloc(g->ctx, g->len * sizeof *to.node);
    for (Ref r = 1; r < g->len; r++)
        if (set[r])
            to.node[to.nnodes++] = r;
    return to;
}

Plan *plan_walks_ends(const Plan *p, int **of)
{
    Ctx *c = p->g->ctx;
    Plan *to = ctx_alloc(c, sizeof *to);
    size_t n = 2 * (size_t)p->nkernels;
    Graph *g = graph_copy(c, p->g);
    StateSet walked = 0;

    for (int i = 0; i < p->nkernels; i++)
        walked |= walks_matrices(g, &p->kernel[i]) ? p->kernel[i].states : 0;
    add_moved(c, g, walked);
    *to = (Plan){ .g = g, .nkernels = p->nkernels };
    to->kernel = ctx_alloc(c, n * sizeof *to->kernel);
    *of = ctx_alloc(c, (size_t)p->nkernels * sizeof **of);
    memcpy(to->kernel, p->kernel, (size_t)p->nkernels * sizeof *p->kernel);
    for (int i = 0; i < p->nkernels; i++)
        if (walks_matrices(g, &p->kernel[i])) {
            (*of)[to->nkernels - p->nkernels] = i;
            to->kernel[to->nkernels++] = ends_of(g, p->g->len, &p->kernel[i]);
        }
    plan_finish(to);
    to->split = p->split < p->nkernels ? p->split : to->nkernels;
    return to;
}

int64_t transition_zeros(const Transition *t, const Graph *g, Call *call,
                         int64_t batch, int64_t tokens, void *data)
{
    int64_t most = 0, bytes;

    for (int i = 0; i < g->nin; i++) {
        View *v = &call->in[i];
        if (!t->writes[i] || input_is_adjoint(&g->in[i]))
            continue;
        *v = view_shared(&g->in[i], call->size, v->dtype, data, batch, tokens,
                         &bytes);
        most = bytes > most ? bytes : most;
    }
    return most;
}
