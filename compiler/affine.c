/* affine.c -- the traced step, differentiated with respect to its states. */
#include "affine.h"
#include "domain.h"

#include <math.h>
#include <string.h>

/* ---- factors ---- */

static void add_factor(Factors *f, Ref x)
{
    if (f->n < 32)
        f->f[f->n++] = x;
}

void factors(Graph *g, Ref x, Factors *out)
{
    const Node n = g->n[x];

    switch (out->n < 28 ? n.op : OP_none) {
    case OP_mul:
        factors(g, n.a[0], out);
        factors(g, n.a[1], out);
        return;
    case OP_neg:
        add_factor(out, num(g, -1));
        factors(g, n.a[0], out);
        return;
    case OP_div:
        if (is_num(g, n.a[0], 1))
            break;
        factors(g, n.a[0], out);
        add_factor(out, op2(g, OP_div, num(g, 1), n.a[1]));
        return;
    default: break;
    }
    add_factor(out, x);
}

Ref factors_product(Graph *g, const Factors *f, AxisSet with, AxisSet without)
{
    Ref p = 0;

    for (int i = 0; i < f->n; i++) {
        AxisSet s = g->n[f->f[i]].axes;
        if ((with && !(s & with)) || (s & without))
            continue;
        p = p ? op2(g, OP_mul, p, f->f[i]) : f->f[i];
    }
    return p;
}

/* ---- affine forms ---- */

static bool stop(Affine *a, Ref at, const char *why)
{
    a->bad = at;
    a->why = why;
    return false;
}

/* The same reading of the state, but for its coefficient. */
static bool same_read(const Term *a, const Term *b)
{
    return a->state == b->state && a->over == b->over && a->p == b->p
        && a->rank == b->rank && a->fresh == b->fresh;
}

/* Adds t, to a term that reads alike where there may be no other. */
static bool add_term(Graph *g, Affine *a, const Term *t, bool merges)
{
    for (int i = 0; i < a->n && merges; i++)
        if (same_read(&a->term[i], t)) {
            Ref *c = &a->term[i].coef;
            *c = op2(g, OP_add, *c ? *c : num(g, 1),
                     t->coef ? t->coef : num(g, 1));
            return true;
        }
    if (a->n == MAX_TERMS)
        return false;
    a->term[a->n++] = *t;
    return true;
}

/* Updates one after another double the terms: where they are too many, those
 * that read alike become one, and from then on are. Their coefficients grow:
 * of more than MOST_MERGES sums they take seconds to differentiate. */
enum { MOST_MERGES = 12 };

static bool add_terms(Graph *g, Affine *a, const Affine *b, bool minus,
                      Ref at)
{
    int merged = a->merged > b->merged ? a->merged : b->merged;
    bool many = merged || a->n + b->n > MAX_TERMS;
    bool fits = merged < MOST_MERGES;
    int own = many ? a->n : 0;
    a->merged = merged + many;
    g->line = g->n[at].line;
    a->n -= own;
    for (int i = 0; i < own; i++) {     /* in place: no more than there were */
        const Term t = a->term[i];
        add_term(g, a, &t, true);
    }
    for (int i = 0; i < b->n && fits; i++) {
        Term t = b->term[i];
        if (minus)
            t.coef = t.coef ? op1(g, OP_neg, t.coef) : num(g, -1);
        fits = add_term(g, a, &t, many);
    }
    if (!fits)
        return stop(a, at, "has too many terms in");
    if (b->rest && a->rest)
        a->rest = op2(g, minus ? OP_sub : OP_add, a->rest, b->rest);
    else if (b->rest)
        a->rest = minus ? op1(g, OP_neg, b->rest) : b->rest;
    return true;
}

static bool scale(Graph *g, Affine *a, int op, Ref e, Ref at)
{
    g->line = g->n[at].line;
    for (int i = 0; i < a->n; i++) {
        if (a->term[i].rank & g->n[e].axes)
            return stop(a, at, "uses a summed axis again over");
        Ref c = a->term[i].coef ? a->term[i].coef : num(g, 1);
        a->term[i].coef = op2(g, op, c, e);
    }
    if (a->rest)
        a->rest = op2(g, op, a->rest, e);
    return true;
}

/* A read's scalar coefficient under rank axes goes into p. */
static void close_ranks(Graph *g, Term *t)
{
    AxisSet c = t->coef ? g->n[t->coef].axes : 0;

    if (!t->rank || (c & g->st[t->state].axes))
        return;
    t->p = dot(g, t->coef ? t->coef : num(g, 1), t->p, t->rank);
    t->coef = 0;
    t->rank = 0;
}

/* Whether a read may contract these axes of the state: one of a matrix, and of
 * more axes all but one. */
static bool may_contract(const Graph *g, const Affine *a, int s, AxisSet bound)
{
    return bound && (a->all || !(bound & (bound - 1))
                     || bound != g->st[s].axes);
}

/* coef * S summed over `over`: a read, if it contracts axes of S whose factors
 * separate. */
static bool contract_state(Graph *g, Affine *a, Term *t, AxisSet over, Ref at)
{
    AxisSet bound = over & g->st[t->state].axes;
    Factors f = { 0 };

    if (!may_contract(g, a, t->state, bound))
        return stop(a, at, bound ? "contracts all axes of"
                                 : "contracts no axis of");
    if (t->coef)
        factors(g, t->coef, &f);
    t->p = factors_product(g, &f, bound, 0);
    t->coef = factors_product(g, &f, 0, bound);
    if (!t->p)
        t->p = num(g, 1);
    t->over = bound;
    t->rank |= over & ~bound;
    close_ranks(g, t);
    return true;
}

/* A read summed over more axes: what is summed over kappa lies in coef. */
static bool contract_read(Graph *g, Affine *a, Term *t, AxisSet over, Ref at)
{
    AxisSet more = over & g->st[t->state].axes & ~t->over;
    Factors f = { 0 };

    if (more && (t->rank || !may_contract(g, a, t->state, more | t->over)))
        return stop(a, at, "contracts all axes of");
    if (more) {
        factors(g, t->coef ? t->coef : num(g, 1), &f);
        Ref p = factors_product(g, &f, more, 0);
        t->p = p ? op2(g, OP_mul, t->p, p) : t->p;
        t->coef = factors_product(g, &f, 0, more);
        t->over |= more;
        over &= ~more;
    }
    if (over & t->over)
        t->coef = sum(g, t->coef ? t->coef : num(g, 1), over & t->over);
    t->rank |= over & ~t->over;
    close_ranks(g, t);
    return true;
}

static bool contract(Graph *g, Affine *a, AxisSet over, Ref at)
{
    g->line = g->n[at].line;
    for (int i = 0; i < a->n; i++) {
        Term *t = &a->term[i];
        if (t->over ? !contract_read(g, a, t, over, at)
                    : !contract_state(g, a, t, over, at))
            return false;
    }
    if (a->rest)
        a->rest = sum(g, a->rest, over);
    return true;
}

/* Of where(c, x, y): what a coefficient is, x's and y's; 0: 1. */
static Ref either(Graph *g, Ref c, Ref x, Ref y)
{
    return x == y ? x : op3(g, OP_where, c, x ? x : num(g, 1),
                            y ? y : num(g, 1));
}

/* Whether x has an axis that a term sums over: another one of that name. */
static bool meets_rank(const Graph *g, const Affine *a, Ref x)
{
    for (int i = 0; i < a->n; i++)
        if (a->term[i].rank & g->n[x].axes)
            return true;
    return false;
}

static bool is_free(const Graph *g, const Affine *a, Ref r, StateSet of)
{
    return !(g->n[r].states & of)
        || (r != a->of && a->whole & ~g->n[r].axes);
}

/* A form to be found beside a. */
static Affine *another(Graph *g, const Affine *a)
{
    Affine *b = ctx_alloc(g->ctx, sizeof *b);

    b->whole = a->whole;
    b->of = a->of;
    b->all = a->all;
    return b;
}

/* where(c, x, y): terms that both sides have are chosen between, each other
 * term stands under its own outcome. */
static bool choose(Graph *g, Affine *a, Ref at, StateSet of, bool fresh)
{
    const Node n = g->n[at];
    Affine *no = another(g, a);
    Ref zero = num(g, 0);

    if (!is_free(g, a, n.a[0], of))
        return stop(a, at, "chooses by the value of");
    if (!affine(g, n.a[1], of, fresh, a))
        return false;
    if (!affine(g, n.a[2], of, fresh, no)) {
        *a = *no;
        return false;
    }
    if (meets_rank(g, a, n.a[0]) || meets_rank(g, no, n.a[0]))
        return stop(a, at, "uses a summed axis again over");
    g->line = n.line;
    for (int i = 0; i < a->n; i++) {
        int k = 0;
        while (k < no->n && !same_read(&a->term[i], &no->term[k]))
            k++;
        Ref other = k < no->n ? no->term[k].coef : zero;
        a->term[i].coef = either(g, n.a[0], a->term[i].coef, other);
        if (k < no->n)
            no->term[k] = no->term[--no->n];
    }
    for (int k = 0; k < no->n; k++)
        no->term[k].coef = either(g, n.a[0], zero, no->term[k].coef);
    if (a->rest || no->rest) {
        a->rest = either(g, n.a[0], a->rest ? a->rest : zero,
                         no->rest ? no->rest : zero);
        no->rest = 0;
    }
    return add_terms(g, a, no, false, at);
}

static bool depends(const Graph *g, Ref r, int s)
{
    return g->n[r].states & STATE(s);
}

/* a * b or a / b, or the dot of a and b. */
static bool product(Graph *g, Affine *a, Ref at, StateSet of, bool fresh)
{
    const Node n = g->n[at];
    bool da = !is_free(g, a, n.a[0], of), db = !is_free(g, a, n.a[1], of);

    if (!da && !db) {
        a->rest = at;
        return true;
    }
    if ((da && db) || (n.op == OP_div && db))
        return stop(a, at, "is not linear in");
    if (!affine(g, da ? n.a[0] : n.a[1], of, fresh, a))
        return false;
    return scale(g, a, n.op == OP_div ? OP_div : OP_mul,
                 da ? n.a[1] : n.a[0], at)
        && (!op_is(n.op, ADDS_UP) || contract(g, a, n.over, at));
}

/* The state of the set that r is, -1: none; *fresh: as the token leaves it. */
static int whole_state(const Graph *g, Ref r, StateSet of, bool *fresh)
{
    for (; of; of &= of - 1) {
        int s = __builtin_ctzll(of);
        if (r == g->st[s].node || (*fresh && r == g->st[s].next)) {
            *fresh = r != g->st[s].node;
            return s;
        }
    }
    return -1;
}

bool affine(Graph *g, Ref r, StateSet of, bool fresh, Affine *a)
{
    const Node n = g->n[r];
    Affine *b;

    bool left = fresh;

    if (is_free(g, a, r, of)) {
        a->rest = r;
        return true;
    }
    int s = whole_state(g, r, of, &left);
    if (s >= 0) {
        a->term[a->n++] = (Term){ .state = s, .fresh = left };
        return true;
    }
    if (op_is(n.op, ADDS_UP))
        return op_is(n.op, MULTIPLIES) ? product(g, a, r, of, fresh)
             : affine(g, n.a[0], of, fresh, a) && contract(g, a, n.over, r);
    switch (n.op) {
    case OP_add: case OP_sub:
        b = another(g, a);
        if (!affine(g, n.a[1], of, fresh, b)) {
            *a = *b;
            return false;
        }
        return affine(g, n.a[0], of, fresh, a)
            && add_terms(g, a, b, n.op == OP_sub, r);
    case OP_neg:
        return affine(g, n.a[0], of, fresh, a)
            && scale(g, a, OP_mul, num(g, -1), r);
    case OP_mul: case OP_div:
        return product(g, a, r, of, fresh);
    case OP_where:
        return choose(g, a, r, of, fresh);
    default:
        return stop(a, r, op_is(n.op, ADDITIVE)
                          ? "moves the entries of" : "is not linear in");
    }
}

bool affine_read(Graph *g, Ref r, StateSet of, AxisSet whole, Affine *a)
{
    a->whole = whole;
    a->of = r;
    return affine(g, r, of, true, a);
}

/* ---- the universal form ---- */

static bool has_operand(const Graph *g, Ref r, Ref x)
{
    for (int i = 0; i < 4; i++)
        if (g->n[r].a[i] == x)
            return true;
    return false;
}

int line_of(const Graph *g, int s, Ref x)
{
    const Node *n = &g->n[x];
    uint8_t *live = ctx_alloc(g->ctx, g->len);

    if (n->op != OP_input && n->op != OP_state && n->op != OP_num)
        return n->line;
    graph_needs(g, live, g->st[s].next);
    for (Ref r = 1; r < g->len; r++)
        if (live[r] && has_operand(g, r, x))
            return g->n[r].line;
    return g->n[g->st[s].next].line;
}

bool state_note(Graph *g, int s, Ref at, const char *what)
{
    const char *text = at ? expr_text(g, at) : "the step";

    g->note = line_text(g, line_of(g, s, at ? at : g->st[s].node),
                         ctx_format(g->ctx, "%s %s %s", text, what,
                                    g->st[s].name));
    return false;
}

/* Whether it is an input that is declared from `least` to `most`. */
static bool is_within(const Graph *g, const Node *n, double least, double most)
{
    return n->op == OP_input
        && domain_within(domain_named(g->in[n->index].domain), least, most);
}

/* Whether x is provably 0 to 1. */
static bool is_unit(const Graph *g, Ref x)
{
    const Node *n = &g->n[x];

    switch (n->op) {
    case OP_num: return n->num >= 0 && n->num <= 1;
    case OP_sigmoid: case OP_lt: case OP_le: case OP_eq: return true;
    case OP_sub: return is_num(g, n->a[0], 1) && is_unit(g, n->a[1]);
    case OP_mul: case OP_min: case OP_max:
        return is_unit(g, n->a[0]) && is_unit(g, n->a[1]);
    case OP_where: return is_unit(g, n->a[1]) && is_unit(g, n->a[2]);
    default: return is_within(g, n, 0, 1);
    }
}

/* Whether x is provably not negative. */
static bool is_nonnegative(const Graph *g, Ref x)
{
    const Node *n = &g->n[x];

    if (op_info[n->op].traits & POS || is_unit(g, x))
        return true;
    switch (n->op) {
    case OP_num: return n->num >= 0;
    case OP_mul: case OP_div: case OP_add: case OP_min:
        return is_nonnegative(g, n->a[0]) && is_nonnegative(g, n->a[1]);
    case OP_max:
        return is_nonnegative(g, n->a[0]) || is_nonnegative(g, n->a[1]);
    case OP_where:
        return is_nonnegative(g, n->a[1]) && is_nonnegative(g, n->a[2]);
    default: return is_within(g, n, 0, INFINITY);
    }
}

/* Whether x is made of comparisons and numbers: it steps, and has no slope. */
static bool is_stepped(const Graph *g, Ref x)
{
    const Node *n = &g->n[x];

    switch (n->op) {
    case OP_num: case OP_lt: case OP_le: case OP_eq: return true;
    case OP_sub: case OP_mul: case OP_add: case OP_min: case OP_max:
        return is_stepped(g, n->a[0]) && is_stepped(g, n->a[1]);
    case OP_where:
        return is_stepped(g, n->a[1]) && is_stepped(g, n->a[2]);
    default: return false;
    }
}

/* The logarithm taken of an x that may be zero: its slope there is none that a
 * sum of logarithms can tell. */
static Ref log_taken(Graph *g, Ref x, Ref *sloped)
{
    if (!is_nonnegative(g, x))
        return 0;
    if (!is_stepped(g, x))
        *sloped = x;
    return op1(g, OP_log, x);
}

Ref log_of(Graph *g, Ref x, Ref *sloped)
{
    const Node n = g->n[x];
    Ref a = 0, b = 0;

    switch (n.op) {
    case OP_exp: return n.a[0];
    case OP_num:
        return n.num > 0 ? num(g, log(n.num))
             : n.num == 0 ? num(g, LOG_ZERO) : 0;
    case OP_sigmoid:
        return op1(g, OP_neg, op1(g, OP_softplus, op1(g, OP_neg, n.a[0])));
    case OP_sqrt:
        a = log_of(g, n.a[0], sloped);
        return a ? op2(g, OP_mul, a, num(g, 0.5)) : 0;
    case OP_sub:                        /* 1 - sigmoid(x) = sigmoid(-x) */
        if (is_num(g, n.a[0], 1) && g->n[n.a[1]].op == OP_sigmoid)
            return op1(g, OP_neg,
                       op1(g, OP_softplus, g->n[n.a[1]].a[0]));
        return log_taken(g, x, sloped);
    case OP_mul: case OP_div:
        a = log_of(g, n.a[0], sloped);
        b = log_of(g, n.a[1], sloped);
        return a && b ? op2(g, n.op == OP_mul ? OP_add : OP_sub, a, b) : 0;
    case OP_where:
        a = log_of(g, n.a[1], sloped);
        b = log_of(g, n.a[2], sloped);
        return a && b ? op3(g, OP_where, n.a[0], a, b) : 0;
    default: return log_taken(g, x, sloped);
    }
}

AxisSet usual_keys(const Graph *g, int s, AxisSet differ)
{
    const State *st = &g->st[s];
    AxisSet first = AXIS(st->order[0]), keys = first;
    AxisSet *of = ctx_alloc(g->ctx, g->len * sizeof *of);

    for (Ref r = 1; r < g->len && st->rank > 2; r++) {
        const Node *n = &g->n[r];
        if (!(n->states & STATE(s)) || !op_is(n->op, ADDS_UP))
            continue;
        of[r] = n->over & st->axes;
        for (int i = 0; i < 2; i++)
            of[r] |= of[n->a[i]];
        if (of[r] != st->axes && __builtin_popcount(of[r])
                                 > __builtin_popcount(keys))
            keys = of[r];
    }
    return !(differ & ~keys) ? keys : differ != st->axes ? differ : first;
}

/* Which axes the reads contract, and so which ones may decay. */
static bool choose_axes(Graph *g, int s, const Affine *a, Universal *u)
{
    AxisSet kappa = 0, all = g->st[s].axes;
    AxisSet decays = u->log_decay ? g->n[u->log_decay].axes : 0;
    bool alike = true;

    for (int i = 0; i < a->n; i++) {
        alike &= !kappa || !a->term[i].over || a->term[i].over == kappa;
        kappa |= a->term[i].over;
    }
    kappa = kappa ? kappa : usual_keys(g, s, decays);
    if (!alike || (g->st[s].rank > 1 && kappa == all))
        return state_note(g, s, u->decay, "needs both axes of");
    u->kappa = kappa;
    u->nu = all & ~kappa;
    if (decays && (decays & ~kappa || kappa & (kappa - 1)))
        return state_note(g, s, u->decay,
                          "decays another axis than it reads of");
    return true;
}

static bool find_decay(Graph *g, int s, const Affine *a, Universal *u)
{
    Ref d = 0;

    for (int i = 0; i < a->n; i++) {
        if (a->term[i].over)
            continue;
        Ref c = a->term[i].coef ? a->term[i].coef : num(g, 1);
        d = d ? op2(g, OP_add, d, c) : c;
    }
    if (!d)
        return state_note(g, s, g->st[s].next, "keeps nothing of");
    if (is_num(g, d, 1))
        return true;
    u->decay = d;
    u->log_decay = log_of(g, d, &u->sloped);
    if (!u->log_decay)
        return state_note(g, s, d, "may be negative for all that is known "
                          "(write the decay as exp(g), or declare its input "
                          "': unit' or ': positive') and scales");
    return true;
}

/* Adds b (a . S + v)^T, merging with a write of the same b. */
static bool add_write(Graph *g, int s, Universal *u, Write w, Ref at)
{
    for (int i = 0; i < u->nwrites; i++) {
        Write *o = &u->write[i];
        if (o->b != w.b || o->rank != w.rank)
            continue;
        o->a = o->a && w.a ? op2(g, OP_add, o->a, w.a) : o->a + w.a;
        o->v = o->v && w.v ? op2(g, OP_add, o->v, w.v) : o->v + w.v;
        return true;
    }
    if (u->nwrites == MAX_TERMS)
        return state_note(g, s, at, "writes too many terms to");
    u->write[u->nwrites++] = w;
    return true;
}

static Ref or_one(Graph *g, Ref x)
{
    return x ? x : num(g, 1);
}

static bool read_write(Graph *g, int s, Universal *u, const Term *t)
{
    AxisSet kappa = u->kappa, nu = u->nu;
    Factors f = { 0 };

    if (t->coef)
        factors(g, t->coef, &f);
    Ref b = factors_product(g, &f, kappa, 0);
    Ref rest = factors_product(g, &f, 0, kappa);
    if (!b || (g->n[b].axes & nu) || (rest && (g->n[rest].axes & nu)))
        return state_note(g, s, t->coef ? t->coef : t->p,
                          "scales a read by both axes of");
    Write w = { .b = b, .rank = t->rank,
                .a = op2(g, OP_mul, or_one(g, rest), t->p) };
    return add_write(g, s, u, w, b);
}

AxisSet plain_factors(Graph *g, Ref x, AxisSet kappa, AxisSet nu,
                      Factors *out)
{
    AxisSet rank = 0;
    Factors f = { 0 };

    factors(g, x, &f);
    for (int i = 0; i < f.n; i++) {
        const Node n = g->n[f.f[i]];
        if (op_is(n.op, ADDS_UP) && (n.axes & kappa) && (!nu || (n.axes & nu))
            && !rank) {
            rank = n.over;
            factors(g, n.a[0], out);
            factors(g, n.a[1], out);
        } else {
            add_factor(out, f.f[i]);
        }
    }
    return rank;
}

Ref along_all(Graph *g, Ref x, AxisSet axes)
{
    x = or_one(g, x);
    for (axes &= ~g->n[x].axes; axes; axes &= axes - 1)
        x = op2(g, OP_mul, x, op2(g, OP_le, num(g, 0),
                                  count_along(g, lowest(axes))));
    return x;
}

/* One product of the part that is free of the state. */
static bool plain_write(Graph *g, int s, Universal *u, Ref x, bool minus)
{
    AxisSet kappa = u->kappa, nu = u->nu;
    Factors h = { 0 };
    AxisSet rank = plain_factors(g, x, kappa, nu, &h);

    Ref b = factors_product(g, &h, kappa, 0);
    Ref v = factors_product(g, &h, 0, kappa);
    b = along_all(g, b, kappa);         /* under every key */
    if (g->n[b].axes & nu)
        return state_note(g, s, b, "couples the axes of");
    v = along_all(g, v, nu);
    Write w = { .b = b, .rank = rank, .v = minus ? op1(g, OP_neg, v) : v };
    return add_write(g, s, u, w, x);
}

static bool plain_writes(Graph *g, int s, Universal *u, Ref x, bool minus)
{
    const Node n = g->n[x];

    switch (n.op) {
    case OP_add: case OP_sub:
        return plain_writes(g, s, u, n.a[0], minus)
            && plain_writes(g, s, u, n.a[1], minus ^ (n.op == OP_sub));
    case OP_neg:
        return plain_writes(g, s, u, n.a[0], !minus);
    default:
        return plain_write(g, s, u, x, minus);
    }
}

/* s = max(f + s, c), either way round. */
static bool max_form(Graph *g, int s, Universal *u)
{
    const Node n = g->n[g->st[s].next];

    if (n.op != OP_max)
        return false;
    for (int i = 0; i < 2; i++) {
        Affine *a = ctx_alloc(g->ctx, sizeof *a);
        if (depends(g, n.a[1 - i], s) || !affine(g, n.a[i], STATE(s), false, a))
            continue;
        if (a->n != 1 || a->term[0].coef || a->term[0].over)
            continue;
        u->form = FORM_MAX;
        u->d = a->rest ? a->rest : num(g, 0);
        u->c = n.a[1 - i];
        return true;
    }
    return false;
}

/* An element-wise recurrence of a scalar or a vector. */
static bool scan_form(Graph *g, const Affine *a, Universal *u)
{
    Ref d = 0;

    for (int i = 0; i < a->n; i++) {
        if (a->term[i].over)
            return false;
        Ref c = or_one(g, a->term[i].coef);
        d = d ? op2(g, OP_add, d, c) : c;
    }
    u->form = d ? FORM_SCAN : FORM_DELAY;
    u->d = d && is_num(g, d, 1) ? 0 : d;
    u->c = a->rest ? a->rest : num(g, 0);
    return true;
}

/* No larger than what comes in with each token. */
static bool input_sized(const Graph *g, const State *st)
{
    for (int i = 0; i < g->nin; i++)
        if (g->in[i].timed && !(st->axes & ~g->in[i].axes))
            return true;
    return false;
}

/* An angle that goes on from what it was: a sum, less the wrap. */
static bool turned_sum(Graph *g, int s, Universal *u)
{
    Affine *a = ctx_alloc(g->ctx, sizeof *a);
    const State *st = &g->st[s];

    return st->rank < 2 && affine(g, g->n[st->next].a[0], STATE(s), false, a)
        && a->n && scan_form(g, a, u);
}

bool universal(Graph *g, int s, Universal *u)
{
    Affine *a = ctx_alloc(g->ctx, sizeof *a);
    const State *st = &g->st[s];

    memset(u, 0, sizeof *u);
    if (st->rank < 2 && max_form(g, s, u))
        return true;
    if (st->angle && turned_sum(g, s, u))
        return true;
    if (!affine(g, st->next, STATE(s), false, a))
        return state_note(g, s, a->bad, a->why);
    g->line = g->n[st->next].line;
    if ((st->rank < 2 || (!a->n && input_sized(g, st))) && scan_form(g, a, u))
        return true;
    u->form = FORM_UNIVERSAL;
    if (!find_decay(g, s, a, u) || !choose_axes(g, s, a, u))
        return false;
    for (int i = 0; i < a->n; i++)
        if (a->term[i].over && !read_write(g, s, u, &a->term[i]))
            return false;
    return !a->rest || plain_writes(g, s, u, a->rest, false);
}

/* Whether what s becomes has all of n in it, which is a matrix as s is and no
 * mere copy: no row of s could say what is written. */
static bool has_whole(Graph *g, int s, int n)
{
    Affine *a = ctx_alloc(g->ctx, sizeof *a);
    Universal *u = ctx_alloc(g->ctx, sizeof *u);
    bool whole = false;

    if (g->st[s].rank != 2 || g->st[n].axes != g->st[s].axes
        || universal(g, s, u)
        || (universal(g, n, u) && u->form != FORM_UNIVERSAL)
        || !affine(g, g->st[s].next, STATE(s) | STATE(n), false, a))
        return false;
    for (int i = 0; i < a->n; i++)
        whole |= a->term[i].state == n && !a->term[i].over;
    return whole;
}

/* Per state, those that it needs, and those that can only be had with it. */
static void find_needs(Graph *g, StateSet need[MAX_STATES])
{
    for (int s = 0; s < g->nst; s++)
        need[s] = g->n[g->st[s].next].states & ~STATE(s);
    for (int s = 0; s < g->nst; s++)
        for (int n = 0; n < g->nst; n++)
            if (n != s && g->n[g->st[s].next].states & STATE(n)
                && has_whole(g, s, n))
                need[n] |= STATE(s);
    for (int by = 0; by < g->nst; by++)
        for (int s = 0; s < g->nst; s++)
            if (need[s] & STATE(by))
                need[s] |= need[by];
}

void strata(Graph *g, Strata *out)
{
    StateSet need[MAX_STATES], done = 0;

    find_needs(g, need);
    out->n = 0;
    for (int s = 0, left = g->nst; left > 0; s = (s + 1) % g->nst) {
        StateSet with = STATE(s);
        for (int n = 0; n < g->nst; n++)
            if (need[s] & STATE(n) && need[n] & STATE(s))
                with |= STATE(n);
        if (done & with || need[s] & ~(done | with))
            continue;
        done |= with;
        out->of[out->n++] = with;
        left -= __builtin_popcountll(with);
    }
}
