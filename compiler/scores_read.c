/* scores_read.c -- what a step reads of its sums, as products of scores. */
#include "affine.h"
#include "scores.h"

#include <string.h>

/* ---- which states ---- */

/* S = d S + c, d one number a token (0: 1): its logarithm in *gate. */
static bool sum_form(Graph *g, int s, Ref *gate, Ref *rest)
{
    const State *st = &g->st[s];
    Affine *a = ctx_alloc(g->ctx, sizeof *a);
    Ref d = 0, sloped = 0;

    if (st->angle || st->twin_of || st->lost_of || st->moved_of
        || !affine(g, st->next, STATE(s), false, a) || !a->n || !a->rest)
        return false;
    for (int i = 0; i < a->n; i++) {
        Ref c = a->term[i].coef ? a->term[i].coef : num(g, 1);
        if (a->term[i].over || g->n[c].axes)
            return false;
        d = d ? op2(g, OP_add, d, c) : c;
    }
    *rest = a->rest;
    *gate = 0;
    if (is_num(g, d, 1))
        return true;
    *gate = log_of(g, d, &sloped);
    return *gate && !sloped;
}

StateSet score_states(Graph *g)
{
    StateSet sums = 0, below = 0;
    Ref gate, rest;

    for (int s = 0; s < g->nst; s++)
        if (sum_form(g, s, &gate, &rest))
            sums |= STATE(s);
    for (int s = 0; s < g->nst; s++)
        below |= g->n[g->st[s].next].states & ~STATE(s);
    return sums & ~below;
}

/* ---- factors ---- */

static bool put(ScoreFactors *f, Ref x)
{
    int at = f->n;

    if (f->n == MAX_FACTORS)
        return false;
    for (; at > 0 && f->f[at - 1] > x; at--)
        f->f[at] = f->f[at - 1];
    f->f[at] = x;
    f->n++;
    return true;
}

static bool same(const ScoreFactors *a, const ScoreFactors *b)
{
    return a->n == b->n && !memcmp(a->f, b->f, (size_t)a->n * sizeof *a->f);
}

static bool renames(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];

    if (op_is(n->op, RENAMES))
        return true;
    for (int i = 0; op_is(n->op, ELEMENTWISE) && i < op_info[n->op].arity; i++)
        if (renames(g, n->a[i]))
            return true;
    return false;
}

/* The same numbers along the axis that they were named by first. */
static Ref bare(Graph *g, Ref r)
{
    const Node n = g->n[r];
    Ref a[4] = { n.a[0], n.a[1], n.a[2], n.a[3] };

    if (op_is(n.op, RENAMES))
        return bare(g, n.a[0]);
    if (!renames(g, r))
        return r;
    for (int i = 0; i < op_info[n.op].arity; i++)
        a[i] = bare(g, n.a[i]);
    return node_copy(g, &n, a);
}

/* A number is one; else with those without axes, or with those along `axis`, as
 * which a renamed one counts. */
static bool put_factor(Graph *g, ScoreTerm *t, Ref x, ScoreFactors *without,
                       ScoreFactors *with)
{
    if (g->n[x].op == OP_num) {
        t->number *= g->n[x].num;
        return true;
    }
    return put(g->n[x].axes ? with : without, x);
}

/* Of what is written or read with: per axis of the state what lies along it. */
typedef struct Sides { ScoreFactors along[4]; } Sides;

/* Which of the axes x has, by their order; -1: none, -2: several. */
static int place_in(const Graph *g, AxisSet axes, Ref x)
{
    AxisSet has = g->n[x].axes & axes;

    if (!has || has & (has - 1))
        return has ? -2 : -1;
    return __builtin_popcountll(axes & (has - 1));
}

/* Takes x apart: what has one of `kappa` goes to its side, what has `nu` to
 * value (NULL: nothing may), the rest to `plain`. */
static bool take_apart(Graph *g, ScoreTerm *t, Ref x, AxisSet kappa,
                       AxisSet nu, Sides *sides, ScoreFactors *plain,
                       ScoreFactors *value)
{
    Factors all = { 0 };

    factors(g, x, &all);
    for (int i = 0; i < all.n; i++) {
        AxisSet axes = g->n[all.f[i]].axes;
        int at = place_in(g, kappa, all.f[i]);
        Factors own = { 0 };
        if (axes & ~kappa & ~nu || at == -2 || at >= 4
            || (axes & nu && (at >= 0 || !value)))
            return false;
        if (at < 0) {
            if (!put_factor(g, t, all.f[i], plain, value ? value : plain))
                return false;
            continue;
        }
        factors(g, bare(g, all.f[i]), &own);
        for (int k = 0; k < own.n; k++)
            if (!put_factor(g, t, own.f[k], plain, &sides->along[at]))
                return false;
    }
    return true;
}

/* The one axis that all of them lie along; -1: there is none such. */
static int axis_of(const Graph *g, const ScoreFactors *f)
{
    AxisSet axes = 0;

    for (int i = 0; i < f->n; i++)
        axes |= g->n[f->f[i]].axes;
    return axes && !(axes & (axes - 1)) ? lowest(axes) : -1;
}

/* The scores along all axes are one, to a power. */
static bool one_score(const Graph *g, ScoreTerm *t, AxisSet kappa,
                      const Sides *q, const Sides *x)
{
    t->degree = __builtin_popcountll(kappa);
    if (t->degree > 4)
        return false;
    for (int k = 0; k < t->degree; k++) {
        int axis = axis_of(g, &q->along[k]);
        if (axis < 0 || axis != axis_of(g, &x->along[k])
            || !same(&q->along[k], &q->along[0])
            || !same(&x->along[k], &x->along[0]))
            return false;
        t->axis = axis;
    }
    t->q = q->along[0];
    t->x = x->along[0];
    return true;
}

/* ---- a read ---- */

typedef struct Reading {
    Graph *g;
    ScoreRead *to;
    const Term *read;
    AxisSet kappa, nu;
    Ref gate;
} Reading;

/* What the read has of the write x, which stands in a sum. */
static bool add_write(Reading *r, Ref x, bool minus)
{
    const Graph *g = r->g;
    ScoreTerm t = { .number = minus ? -1 : 1, .gate = r->gate,
                    .fresh = r->read->fresh };
    Sides q = { 0 }, k = { 0 };
    const Node n = g->n[x];

    if (n.op == OP_add || n.op == OP_sub)
        return add_write(r, n.a[0], minus)
            && add_write(r, n.a[1], minus ^ (n.op == OP_sub));
    if (n.op == OP_neg)
        return add_write(r, n.a[0], !minus);
    if (r->to->n == MAX_PARTS_READ || r->nu & (r->nu - 1)
        || (r->read->p && !take_apart(r->g, &t, r->read->p, r->kappa, 0, &q,
                                      &t.row, NULL))
        || (r->read->coef && !take_apart(r->g, &t, r->read->coef, 0, 0, &q,
                                         &t.row, NULL))
        || !take_apart(r->g, &t, x, r->kappa, r->nu, &k, &t.col, &t.value)
        || !one_score(g, &t, r->kappa, &q, &k) || (r->nu && !t.value.n))
        return false;
    r->to->term[r->to->n++] = t;
    return true;
}

static bool add_reads(Graph *g, const Term *t, ScoreRead *to)
{
    Reading r = { .g = g, .to = to, .read = t, .kappa = t->over,
                  .nu = g->st[t->state].axes & ~t->over };
    Ref rest;

    return !t->rank && sum_form(g, t->state, &r.gate, &rest)
        && add_write(&r, rest, false);
}

bool score_read(Graph *g, Ref r, StateSet sums, ScoreRead *out,
                const char **why)
{
    Affine *a = ctx_alloc(g->ctx, sizeof *a);

    a->all = true;
    memset(out, 0, sizeof *out);
    if (!affine(g, r, sums, true, a)) {
        *why = ctx_format(g->ctx, "%s %s a sum over the tokens before",
                          expr_text(g, a->bad), a->why);
        return false;
    }
    for (int i = 0; i < a->n; i++)
        if (!add_reads(g, &a->term[i], out)) {
            *why = ctx_format(g->ctx, "what %s reads of %s is no product of "
                              "one score", expr_text(g, r),
                              g->st[a->term[i].state].name);
            return false;
        }
    out->rest = a->rest;
    return a->n;
}
