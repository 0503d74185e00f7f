/* transition.c -- the proof that a state's end is linear in its start, by what
 * each operation does to what is linear; see transition.h.
 */
#include "transition.h"

/* Of a node: free of the state and of what is written, linear in both
 * together, or neither. */
typedef enum Kind { FREE, LINEAR, NEITHER } Kind;

typedef struct Finding {
    const Graph *g;
    Transition *t;
    uint8_t *kind;                      /* per node: Kind */
    bool *mixed;                        /* linear, and contracted over kappa */
    Ref bad;                            /* the first that is neither */
} Finding;

static bool is_zero(const Finding *f, Ref r)
{
    return !r || is_num(f->g, r, 0);
}

static bool is_linear(const Finding *f, Ref r)
{
    return r && f->kind[r] == LINEAR;
}

static bool has_nu(const Finding *f, Ref r)
{
    return f->g->n[r].axes >> f->t->nu & 1;
}

/* May be a coefficient. */
static bool is_factor(const Finding *f, Ref r)
{
    return !r || (f->kind[r] == FREE && !has_nu(f, r));
}

/* Linear where the operands `of` are (or zero) and the others coefficients. */
static Kind linear_in(const Finding *f, const Node *n, unsigned of)
{
    for (int i = 0; i < 4; i++) {
        Ref a = n->a[i];
        bool holds = of >> i & 1 ? is_linear(f, a) || is_zero(f, a)
                                 : is_factor(f, a);
        if (!holds)
            return NEITHER;
    }
    return LINEAR;
}

/* One of the first two is linear, all else are coefficients. */
static Kind product(Finding *f, const Node *n)
{
    unsigned of = is_linear(f, n->a[0]) ? 1 : 2;
    return n->over >> f->t->nu & 1 ? NEITHER : linear_in(f, n, of);
}

/* Along another axis than nu. */
static Kind along(const Finding *f, const Node *n)
{
    bool nu = n->over >> f->t->nu & 1;
    if (n->op == OP_relabel || n->op == OP_dup)
        nu |= n->index == f->t->nu;
    return nu ? NEITHER : linear_in(f, n, 3);
}

/* Of a node with an operand that is linear. */
static Kind linear_kind(Finding *f, const Node *n)
{
    switch (n->op) {
    case OP_add: case OP_sub: case OP_neg: case OP_factor: case OP_col:
    case OP_row: case OP_cumsum: case OP_last: case OP_delay:
        return linear_in(f, n, 3);
    case OP_mul: case OP_dot: case OP_gdot:
        return product(f, n);
    case OP_div:
        return linear_in(f, n, 1);
    case OP_where: case OP_scan:
        return linear_in(f, n, 6);
    case OP_solve:
        return linear_in(f, n, 2);
    case OP_sum: case OP_select: case OP_part: case OP_cat: case OP_relabel:
    case OP_rot90: case OP_dup: case OP_pairsum:
        return along(f, n);
    default:
        return NEITHER;
    }
}

static Kind kind_of(Finding *f, const Node *n)
{
    Kind most = FREE;
    if (n->op == OP_state)
        return n->index == f->t->state ? LINEAR : NEITHER;
    if (n->op == OP_input)
        return f->g->in[n->index].axes >> f->t->nu & 1 ? LINEAR : FREE;
    for (int i = 0; i < 4; i++)
        if (n->a[i] && f->kind[n->a[i]] > most)
            most = f->kind[n->a[i]];
    return most == LINEAR ? linear_kind(f, n) : most;
}

/* Whether entries of kappa meet on the way from the state. */
static bool mixes(const Finding *f, Ref r)
{
    const Node *n = &f->g->n[r];
    bool mixed = false;
    for (int i = 0; i < 4; i++)
        mixed |= n->a[i] && (f->mixed[n->a[i]]
              || (n->over >> f->t->kappa & 1
                  && f->g->n[n->a[i]].states >> f->t->state & 1));
    return mixed;
}

/* With these axes. */
static bool holds(Finding *f)
{
    Ref next = f->g->st[f->t->state].next;
    f->bad = 0;
    for (Ref r = 1; r <= next; r++) {
        f->kind[r] = (uint8_t)kind_of(f, &f->g->n[r]);
        f->mixed[r] = mixes(f, r);
    }
    f->t->mixes = f->mixed[next];
    return f->kind[next] == LINEAR && has_nu(f, next);
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

/* The node that is to blame, of those that the next state needs. */
static Ref find_bad(const Finding *f)
{
    const Graph *g = f->g;
    Ref r = g->st[f->t->state].next, found = 0;
    while (r && r != found && f->kind[r] == NEITHER) {
        found = r;
        for (int i = 0; i < 4; i++)
            if (g->n[found].a[i] && f->kind[g->n[found].a[i]] == NEITHER)
                r = g->n[found].a[i];
    }
    return found;
}

const char *transition_find(Ctx *c, const Graph *g, Transition *t)
{
    Finding f = { .g = g, .t = t };
    f.kind = ctx_alloc(c, g->len);
    f.mixed = ctx_alloc(c, g->len * sizeof *f.mixed);
    *t = (Transition){ .state = only_state(g) };
    if (t->state < 0)
        return "it carries more than one state, or none";
    const State *s = &g->st[t->state];
    if (s->rank != 2 || s->angle)
        return ctx_format(c, "state '%s' is no matrix", s->name);
    for (int i = 0; i < 2; i++) {
        t->nu = s->order[1 - i];
        t->kappa = s->order[i];
        if (!holds(&f))
            continue;
        for (int k = 0; k < g->nin; k++)
            t->writes[k] = g->in[k].axes >> t->nu & 1;
        return NULL;
    }
    Ref bad = find_bad(&f);
    return ctx_format(c, "what state '%s' becomes is not linear in it and in"
                      " what is written%s%s", s->name, bad ? ": " : "",
                      bad ? expr_text(g, bad) : "");
}

Plan *plan_ends(Ctx *c, const Plan *p)
{
    Graph *g = graph_copy(c, p->g);
    g->nout = 0;
    while (g->nst && g->st[g->nst - 1].reverse)
        g->nst--;
    return plan_simple(g);
}
