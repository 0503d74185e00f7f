/* affine.c -- the traced step, differentiated with respect to its states. */
#include "affine.h"

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

bool strip_decay(Graph *g, Ref *x, Ref decay)
{
    Factors f = { 0 };

    if (!decay)
        return false;
    factors(g, *x, &f);
    for (int i = 0; i < f.n; i++) {
        if (f.f[i] != decay)
            continue;
        f.f[i] = num(g, 1);
        *x = factors_product(g, &f, 0, 0);
        return true;
    }
    return false;
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

/* Of the operands of n, how many have all of these axes. */
static int with_axes(const Graph *g, const Node *n, AxisSet with)
{
    int found = 0;

    for (int i = 0; i < 2; i++)
        found += n->a[i] && !(with & ~g->n[n->a[i]].axes);
    return found;
}

/* x where the condition c comes out so, and else 0. A choice between matrices
 * is no product of vectors: each factor, and each term, is chosen. */
static Ref kept_where(Graph *g, Ref c, Ref x, bool yes)
{
    const Node n = g->n[x];
    AxisSet with = g->n[c].axes;
    Ref a[4] = { n.a[0], n.a[1] }, zero = num(g, 0);
    int found = with_axes(g, &n, with);
    bool each = n.op == OP_add || n.op == OP_sub || n.op == OP_neg
              ? found == op_info[n.op].arity
              : (n.op == OP_mul || is_contraction(n.op)) && found;

    if (is_num(g, x, 0))
        return x;
    if (with == n.axes || with & n.over || !each)
        return op3(g, OP_where, c, yes ? x : zero, yes ? zero : x);
    for (int i = 0; i < 2; i++)
        if (a[i] && !(with & ~g->n[a[i]].axes))
            a[i] = kept_where(g, c, a[i], yes);
    return node_copy(g, &n, a);
}

/* Of where(c, x, y): what is written, each side maybe 0. */
static Ref written(Graph *g, Ref c, Ref x, Ref y)
{
    Ref zero = num(g, 0);

    x = x ? x : zero;
    y = y ? y : zero;
    if (x == y || !((g->n[x].axes | g->n[y].axes) & ~g->n[c].axes))
        return either(g, c, x, y);
    return op2(g, OP_add, kept_where(g, c, x, true),
               kept_where(g, c, y, false));
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
        a->rest = written(g, n.a[0], a->rest, no->rest);
        no->rest = 0;
    }
    return add_terms(g, a, no, false, at);
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
