/* collect.c -- sums whose terms share a factor.
 *
 * What a gate gets is a sum of products of an operand with what that operand
 * gets: q dq - k dk. It arrives in pieces, one from each product that the gate
 * was in, between others. Collected, each gradient is multiplied once, when it
 * is whole; its pieces need not be held until the sum is made.
 */
#include "collect.h"

enum { MOST_FACTORS = 8 };

typedef struct Factors { Ref r[MOST_FACTORS]; int n; } Factors;

/* A graph whose nodes from `from` on are gradients: others are whole. */
typedef struct Sums { Graph *g; Ref from; } Sums;

static bool is_token_matrix(const Graph *g, Ref r)
{
    AxisSet s = g->n[r].axes;

    return s & DIM_AXES && s & (AXIS(AX_I) | AXIS(AX_J));
}

/* ---- what a view shows ---- */

Ref view_of(Graph *g, int op, Ref x)
{
    int other = op == OP_row ? OP_col : OP_row;

    return g->n[x].op == other ? g->n[x].a[0] : op1(g, op, x);
}

/* A view of what is made of two is made of their views; 0: it is no such. */
static Ref view_pushed(Graph *g, Ref r)
{
    const Node n = g->n[r], x = g->n[n.a[0]];

    if (n.op != OP_row && n.op != OP_col)
        return 0;
    if (x.op == OP_neg)
        return op1(g, OP_neg, view_of(g, n.op, x.a[0]));
    if (x.op != OP_add && x.op != OP_sub && x.op != OP_mul)
        return 0;
    Ref a = view_of(g, n.op, x.a[0]), b = view_of(g, n.op, x.a[1]);
    return op2(g, x.op, a, b);
}

/* x (p + q) as x p + x q, whose terms are matrices; 0: it is no such. */
static Ref distributed(Graph *g, Ref r)
{
    const Node n = g->n[r];

    for (int i = 0; i < 2 && n.op == OP_mul; i++) {
        const Node s = g->n[n.a[i]];
        Ref x = n.a[1 - i];
        if ((s.op != OP_add && s.op != OP_sub)
            || !is_token_matrix(g, s.a[0]) || !is_token_matrix(g, s.a[1]))
            continue;
        Ref p = op2(g, OP_mul, x, s.a[0]), q = op2(g, OP_mul, x, s.a[1]);
        return op2(g, s.op, p, q);
    }
    return 0;
}

/* ---- factors ---- */

static void list_factors(const Sums *s, Ref r, Factors *f)
{
    const Node *n = &s->g->n[r];

    if (n->op == OP_mul && r >= s->from && f->n < MOST_FACTORS - 2) {
        list_factors(s, n->a[0], f);
        list_factors(s, n->a[1], f);
    } else if (f->n < MOST_FACTORS) {
        f->r[f->n++] = r;
    }
}

/* r less one of its factors, which may be a product, too; 0: it is none. */
static Ref without(const Sums *s, Ref r, Ref factor)
{
    const Node n = s->g->n[r];

    if (n.op != OP_mul || r <= factor || r < s->from)
        return 0;
    for (int i = 0; i < 2; i++)
        if (n.a[i] == factor)
            return n.a[1 - i];
    for (int i = 0; i < 2; i++) {
        Ref rest = i && n.a[0] == n.a[1] ? 0 : without(s, n.a[i], factor);
        if (rest)
            return op2(s->g, OP_mul, n.a[1 - i], rest);
    }
    return 0;
}

/* A matrix that is in both products and has all of their axes. */
static Ref common_factor(const Sums *s, Ref a, Ref b)
{
    const Graph *g = s->g;
    Factors f = { .n = 0 }, h = { .n = 0 };

    if (g->n[a].op != OP_mul || g->n[b].op != OP_mul || a < s->from
        || b < s->from)
        return 0;
    list_factors(s, a, &f);
    list_factors(s, b, &h);
    for (int i = 0; i < f.n; i++)
        for (int k = 0; k < h.n; k++)
            if (f.r[i] == h.r[k] && g->n[f.r[i]].axes == g->n[a].axes
                && g->n[a].axes == g->n[b].axes)
                return f.r[i];
    return 0;
}

/* ---- sums ---- */

/* a + b, or a - b, for a product b that has a factor in common with a term of
 * a; 0: it has none. */
static Ref collect(const Sums *s, Ref a, Ref b, bool minus)
{
    Graph *g = s->g;
    const Node n = g->n[a];
    Ref x = 0, f;

    if (n.op == OP_neg) {
        x = collect(s, n.a[0], b, !minus);
        return x ? op1(g, OP_neg, x) : 0;
    }
    if (n.op == OP_add || n.op == OP_sub) {
        if ((x = collect(s, n.a[0], b, minus)))
            return op2(g, n.op, x, n.a[1]);
        x = collect(s, n.a[1], b, minus != (n.op == OP_sub));
        return x ? op2(g, n.op, n.a[0], x) : 0;
    }
    if ((f = common_factor(s, a, b))) {
        Ref p = without(s, a, f), q = without(s, b, f);
        return op2(g, OP_mul, f, op2(g, minus ? OP_sub : OP_add, p, q));
    }
    if ((x = view_pushed(g, a)) || (x = distributed(g, a)))
        return collect(s, x, b, minus);
    return 0;
}

static Ref add_signed(Graph *g, Ref a, Ref b, bool minus)
{
    return op2(g, minus ? OP_sub : OP_add, a, b);
}

/* The same for a sum b, of which a term has such a factor. */
static Ref collect_all(const Sums *s, Ref a, Ref b, bool minus)
{
    Graph *g = s->g;
    const Node n = g->n[b];
    Ref x;

    if (n.op == OP_neg)
        return collect_all(s, a, n.a[0], !minus);
    for (int i = 0; i < 2 && (n.op == OP_add || n.op == OP_sub); i++) {
        bool one = minus != (i == 1 && n.op == OP_sub);
        bool other = minus != (i == 0 && n.op == OP_sub);
        if (!(x = collect_all(s, a, n.a[i], one)))
            continue;
        Ref both = collect_all(s, x, n.a[1 - i], other);
        return both ? both : add_signed(g, x, n.a[1 - i], other);
    }
    if (n.op == OP_add || n.op == OP_sub)
        return 0;
    if ((x = collect(s, a, b, minus)))
        return x;
    if ((x = view_pushed(g, b)) || (x = distributed(g, b)))
        return collect_all(s, a, x, minus);
    return 0;
}

/* ---- sums of sums ---- */

/* scale sum_k x y, less if minus; scale 0: 1. */
typedef struct Term { Ref scale, sum; bool minus; } Term;

static bool is_sum(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];

    return r >= g->forward && n->op == OP_dot && n->over & DIM_AXES;
}

static Term term_of(const Graph *g, Ref r)
{
    bool minus = g->n[r].op == OP_neg;
    Term t = { 0, minus ? g->n[r].a[0] : r, minus };
    const Node *n = &g->n[t.sum];

    for (int i = 0; i < 2 && n->op == OP_mul; i++)
        if (is_sum(g, n->a[i])) {
            t.scale = n->a[1 - i];
            t.sum = n->a[i];
            break;
        }
    return t;
}

/* The gradient that is made so of two; 0: there is none. */
static Ref find_made(const Graph *g, int op, Ref a, Ref b)
{
    for (Ref r = g->len - 1; r >= g->forward; r--) {
        const Node *n = &g->n[r];
        if (n->op == op && ((n->a[0] == a && n->a[1] == b)
                            || (op_is(op, COMM) && n->a[0] == b
                                && n->a[1] == a)))
            return r;
    }
    return 0;
}

static Ref find_scaled(const Graph *g, Ref scale, Ref x)
{
    return scale ? find_made(g, OP_mul, scale, x) : x;
}

/* x (p + q), or with the signs that these have. */
static Ref join_terms(Graph *g, const Term *a, const Term *b)
{
    const Node n = g->n[a->sum], m = g->n[b->sum];
    bool differ = a->minus != b->minus, minus = a->minus;

    if (!is_sum(g, a->sum) || !is_sum(g, b->sum) || n.over != m.over)
        return 0;
    for (int i = 0; i < 4; i++) {
        Ref x = n.a[i / 2], s = 0;
        Ref p = find_scaled(g, a->scale, n.a[1 - i / 2]);
        Ref q = find_scaled(g, b->scale, m.a[1 - i % 2]);
        if (x != m.a[i % 2] || !p || !q)
            continue;
        s = find_made(g, differ ? OP_sub : OP_add, p, q);
        if (!s && differ && (s = find_made(g, OP_sub, q, p)))
            minus = !minus;
        if (s) {
            x = dot(g, x, s, n.over);
            return minus ? op1(g, OP_neg, x) : x;
        }
    }
    return 0;
}

/* The term is added to one of a sum's. */
static Ref add_term(Graph *g, Ref a, Term t)
{
    const Node n = g->n[a];
    Ref x;

    if (n.op == OP_add || n.op == OP_sub) {
        if ((x = add_term(g, n.a[0], t)))
            return op2(g, n.op, x, n.a[1]);
        t.minus ^= n.op == OP_sub;
        x = add_term(g, n.a[1], t);
        return x ? op2(g, n.op, n.a[0], x) : 0;
    }
    Term own = term_of(g, a);
    return join_terms(g, &own, &t);
}

/* a + b, numbers a token: of sums over keys of one matrix times each of two, of
 * which some operand gets the sum, that times the matrix; 0: they are not. */
static Ref add_sums(Graph *g, Ref a, Ref b)
{
    AxisSet axes = g->n[a].axes;

    return axes && !(axes & DIM_AXES) && g->n[b].axes == axes
         ? add_term(g, a, term_of(g, b)) : 0;
}

Ref add_collected(Graph *g, Ref from, Ref a, Ref b)
{
    const Sums s = { g, from };
    Ref x = is_token_matrix(g, a) && g->n[a].axes == g->n[b].axes
          ? collect_all(&s, a, b, false) : add_sums(g, a, b);

    return x ? x : op2(g, OP_add, a, b);
}

Ref sum_of_terms(Graph *g, Ref x, AxisSet over)
{
    const AxisSet tokens = AXIS(AX_I) | AXIS(AX_J);
    Ref terms = over & tokens && is_token_matrix(g, x) ? distributed(g, x) : 0;

    if (!terms)
        return sum(g, x, over);
    const Node n = g->n[terms];
    Ref a = sum_of_terms(g, n.a[0], over), b = sum_of_terms(g, n.a[1], over);
    return op2(g, n.op, a, b);
}
