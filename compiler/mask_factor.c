/* mask_factor.c -- a mask as a sum of products, or what couples i and j.
 *
 * A value is expanded into terms row(i) * col(j) * exp(linear combination).
 * No logarithm is ever taken, so signs and zeros stay factors; exponentials
 * are only merged, so that cumulative sums meet as differences.
 */
#include "mask.h"

#include <math.h>
#include <string.h>

typedef struct Term { Ref row, col; Linear e; } Term;
typedef struct Terms { int n; Term *t; } Terms;

/* ---- refusals ---- */

/* Four points at which node r is not of rank 1; false if none is found. */
static bool find_minor(Mask *m, Ref r, const Region *at, int p[4],
                       double side[2])
{
    for (int i = 1; i < 8; i++)
        for (int j = 0; j < i; j++) {
            int a = i + 2, b = i + 3, c = j, d = j + 1;
            if (!region_has(at, a, c) || !region_has(at, b, d)
                || !region_has(at, a, d) || !region_has(at, b, c))
                continue;
            side[0] = mask_number(m, r, a, c, 1) * mask_number(m, r, b, d, 1);
            side[1] = mask_number(m, r, b, c, 1) * mask_number(m, r, a, d, 1);
            int q[4] = { a, c, b, d };
            memcpy(p, q, sizeof q);
            if (fabs(side[0] - side[1]) > 1e-3 * fabs(side[0]))
                return true;
        }
    return false;
}

static const char *const ways = "use exp(c[i] - c[j]) for a decay, or mode = "
    "\"quadratic\"";

static const char *const documents = "give the call the documents' ends, "
    "cu_seqlens = {0, 5, 12}: what is masked is then not computed; or mode = "
    "\"quadratic\"";

/* Whether r compares what an input has at i with what it has at j. */
static bool compares_documents(const Mask *m, Ref r)
{
    const Node *n = &m->g->n[r];
    const Node *a = &m->g->n[n->a[0]], *b = &m->g->n[n->a[1]];

    if (n->op != OP_eq || a->op != OP_input || b->op != OP_input)
        return false;
    const Leaf *x = &m->leaf[a->index], *y = &m->leaf[b->index];
    return x->kind == LEAF_TOKEN && y->kind == LEAF_TOKEN
        && x->side != y->side && !strcmp(x->name, y->name);
}

/* The region's value is `value`; r, a part of it, does not factor. */
static _Noreturn void couples(Mask *m, const MaskPath *p, Ref r)
{
    const char *text = expr_text(m->g, r), *witness = "";
    int line = m->g->n[r].line, at[4];
    double side[2];

    if (find_minor(m, p->value, &p->at, at, side))
        witness = ctx_format(m->ctx, "\n  L(%d,%d)*L(%d,%d) = %.4g, "
                             "L(%d,%d)*L(%d,%d) = %.4g (equal for a factor "
                             "of rank 1)", at[0], at[1], at[2], at[3],
                             side[0], at[2], at[1], at[0], at[3], side[1]);
    graph_refuse(m->g, ERR_USER, line, compares_documents(m, r) ? documents
                 : ways, "mask does not factor: %s couples i and j%s", text,
                 witness);
}

static _Noreturn void overflows(Mask *m, Ref atom, Ref wi, Ref wj)
{
    const char *u = expr_text(m->g, atom);

    graph_refuse(m->g, ERR_USER, m->g->n[atom].line, ctx_format(m->ctx, "what "
                 "grows must enter as a difference, as in exp(%s - ...): "
                 "apart, its factors overflow", u), "mask does not factor: %s "
                 "enters with %s in i and %s in j", u, expr_text(m->g, wi),
                 expr_text(m->g, wj));
}

/* ---- expansion ---- */

static Terms none(Mask *m, int cap)
{
    Terms t = { 0, ctx_alloc(m->ctx, (size_t)(cap ? cap : 1) * sizeof *t.t) };
    return t;
}

/* A value that i alone, j alone or neither decides. */
static Terms single(Mask *m, Ref r)
{
    Ref one = num(m->g, 1);
    bool col = mask_traits(m, r) & SIDE_J;
    Terms t = none(m, 1);

    t.n = 1;
    t.t[0] = (Term){ .row = col ? one : r, .col = col ? r : one };
    t.t[0].e.rest = num(m->g, 0);
    return t;
}

static Terms append(Mask *m, Terms a, Terms b, Ref r)
{
    Terms t = none(m, a.n + b.n);

    if (a.n + b.n > MAX_PRODUCTS)
        graph_refuse(m->g, ERR_USER, m->g->n[r].line, NULL, "the mask is a sum "
                     "of more than %d products", MAX_PRODUCTS);
    memcpy(t.t, a.t, (size_t)a.n * sizeof *t.t);
    memcpy(t.t + a.n, b.t, (size_t)b.n * sizeof *t.t);
    t.n = a.n + b.n;
    return t;
}

/* a + scale * b */
static Linear combine(Mask *m, const Linear *a, const Linear *b, double scale)
{
    Graph *g = m->g;
    Linear l;
    Ref r = op2(g, OP_mul, linear_ref(m, b), num(g, scale));

    linear(m, op2(g, OP_add, linear_ref(m, a), r), &l);
    return l;
}

/* x * y, or x / y */
static Term times(Mask *m, const Term *x, const Term *y, bool divide)
{
    int op = divide ? OP_div : OP_mul;
    Term t = { op2(m->g, op, x->row, y->row), op2(m->g, op, x->col, y->col),
               combine(m, &x->e, &y->e, divide ? -1 : 1) };
    return t;
}

static Terms product(Mask *m, Terms a, Terms b, bool divide, Ref r)
{
    Terms t = none(m, 0);

    for (int x = 0; x < a.n; x++)
        for (int y = 0; y < b.n; y++) {
            Terms one = none(m, 1);
            one.t[one.n++] = times(m, &a.t[x], &b.t[y], divide);
            t = append(m, t, one, r);
        }
    return t;
}

static Terms expand(Mask *m, const MaskPath *p, Ref r);

/* exp of a sum: each part of it belongs to i or to j. */
static Terms expand_exp(Mask *m, const MaskPath *p, Ref r)
{
    Terms t = single(m, num(m->g, 1));
    Linear *e = &t.t[0].e;

    linear(m, m->g->n[r].a[0], e);
    for (int n = 0; n < e->n; n++)
        if ((mask_traits(m, e->part[n].atom) & SIDES) == SIDES)
            couples(m, p, e->n == 1 ? r : e->part[n].atom);
    return t;
}

/* cos(x + y) = cos x cos y - sin x sin y; sin alike. */
static Terms expand_angle(Mask *m, const MaskPath *p, Ref r)
{
    Graph *g = m->g;
    const Node n = g->n[r];
    Linear l, half[2] = { { .n = 0 }, { .n = 0 } };
    Ref x[2][2];

    linear(m, n.a[0], &l);
    half[0].rest = l.rest;
    half[1].rest = num(g, 0);
    for (int k = 0; k < l.n; k++) {
        int side = mask_traits(m, l.part[k].atom) & SIDES;
        if (side == SIDES)
            couples(m, p, r);
        Linear *h = &half[side == SIDE_J];
        h->part[h->n++] = l.part[k];
    }
    for (int k = 0; k < 2; k++) {
        x[k][0] = op1(g, OP_cos, linear_ref(m, &half[k]));
        x[k][1] = op1(g, OP_sin, linear_ref(m, &half[k]));
    }
    bool sine = n.op == OP_sin;
    Ref a = op2(g, OP_mul, x[0][sine], x[1][0]);
    Ref b = op2(g, OP_mul, x[0][!sine], x[1][1]);
    if (!sine)
        b = op1(g, OP_neg, b);
    return append(m, expand(m, p, a), expand(m, p, b), r);
}

/* The terms where cond holds (or does not), zero elsewhere. */
static Terms gate(Mask *m, Terms t, Ref cond, bool holds)
{
    bool col = mask_traits(m, cond) & SIDE_J;
    Ref zero = num(m->g, 0);

    for (int n = 0; n < t.n; n++) {
        Ref *x = col ? &t.t[n].col : &t.t[n].row;
        *x = op3(m->g, OP_where, cond, holds ? *x : zero, holds ? zero : *x);
    }
    return t;
}

static Terms expand_one(Mask *m, const MaskPath *p, Ref r)
{
    const Node n = m->g->n[r];
    Terms a = expand(m, p, n.a[0]);
    Term *t = a.t;

    if (n.op == OP_neg) {
        for (int k = 0; k < a.n; k++)
            t[k].row = op1(m->g, OP_neg, t[k].row);
        return a;
    }
    if (a.n != 1)
        couples(m, p, r);
    t->row = op1(m->g, n.op, t->row);   /* abs, sign: of each factor */
    t->col = op1(m->g, n.op, t->col);
    if (n.op == OP_sign)
        linear(m, num(m->g, 0), &t->e);
    return a;
}

static Terms expand_two(Mask *m, const MaskPath *p, Ref r)
{
    const Node n = m->g->n[r];
    Terms a = expand(m, p, n.a[0]), b = expand(m, p, n.a[1]);

    if (n.op == OP_mul)
        return product(m, a, b, false, r);
    if (n.op == OP_div) {
        if (b.n != 1)
            couples(m, p, r);
        return product(m, a, b, true, r);
    }
    for (int k = 0; n.op == OP_sub && k < b.n; k++)
        b.t[k].row = op1(m->g, OP_neg, b.t[k].row);
    return append(m, a, b, r);
}

static Terms expand_where(Mask *m, const MaskPath *p, Ref r)
{
    const Node n = m->g->n[r];

    if ((mask_traits(m, n.a[0]) & SIDES) == SIDES)
        couples(m, p, n.a[0]);
    return append(m, gate(m, expand(m, p, n.a[1]), n.a[0], true),
                  gate(m, expand(m, p, n.a[2]), n.a[0], false), r);
}

static Terms expand(Mask *m, const MaskPath *p, Ref r)
{
    int traits = mask_traits(m, r);
    Terms a;

    mask_work(m);
    if ((traits & SIDES) != SIDES && !(traits & HOT))
        return single(m, r);
    switch (m->g->n[r].op) {
    case OP_add: case OP_sub: case OP_mul: case OP_div:
        return expand_two(m, p, r);
    case OP_neg: case OP_abs: case OP_sign: return expand_one(m, p, r);
    case OP_square:
        a = expand(m, p, m->g->n[r].a[0]);
        return product(m, a, a, false, r);
    case OP_exp: return expand_exp(m, p, r);
    case OP_cos: case OP_sin:
        if ((traits & SIDES) == SIDES)
            return expand_angle(m, p, r);
        break;
    case OP_where: return expand_where(m, p, r);
    default: break;
    }
    if ((traits & SIDES) == SIDES)
        couples(m, p, r);
    return single(m, r);
}

/* ---- from terms to products ---- */

/* Takes atom and coefficient out of the list, if it is there. */
static bool take(Linear *l, Ref atom, Ref *coef)
{
    for (int n = 0; n < l->n; n++)
        if (l->part[n].atom == atom) {
            *coef = l->part[n].coef;
            l->part[n] = l->part[--l->n];
            return true;
        }
    return false;
}

static void multiply_exp(Mask *m, Ref *x, Ref atom, Ref coef)
{
    Ref e = op1(m->g, OP_exp, op2(m->g, OP_mul, atom, coef));
    *x = op2(m->g, OP_mul, *x, e);
}

/* Differences become decays, the rest of i's stays in the exponent. */
static void split_exponent(Mask *m, Linear e, Product *p)
{
    Linear extra = { .n = 0, .rest = e.rest };
    Ref zero = num(m->g, 0);

    while (e.n) {
        Part x = e.part[--e.n];
        int traits = mask_traits(m, x.atom);
        bool is_i = traits & SIDE_I;
        Ref twin = mask_rebuild(m, x.atom, 0, 0), w = zero;
        bool found = take(&e, twin, &w);
        Ref wi = is_i ? x.coef : w, wj = is_i ? w : x.coef;
        Ref ui = is_i ? x.atom : twin, uj = is_i ? twin : x.atom;
        if (found && mask_opposite(m, wi, wj)) {
            if (p->ndecays == MAX_DECAYS)
                graph_refuse(m->g, ERR_USER, m->g->n[ui].line, NULL, "more "
                             "than %d differences in one exponent", MAX_DECAYS);
            p->decay[p->ndecays++] = (Decay){ ui, wi };
            continue;
        }
        if (traits & HAS_CUMSUM || (found && traits & HAS_POSITION))
            overflows(m, ui, wi, wj);
        if (wi != zero)
            extra.part[extra.n++] = (Part){ ui, wi };
        if (wj != zero)
            multiply_exp(m, &p->col, uj, wj);
    }
    p->extra = linear_ref(m, &extra);
}

/* In the order of their u, so that equal sets look equal. */
static void sort_decays(Product *p)
{
    for (int a = 1; a < p->ndecays; a++)
        for (int b = a; b > 0 && p->decay[b].u < p->decay[b - 1].u; b--) {
            Decay d = p->decay[b];
            p->decay[b] = p->decay[b - 1];
            p->decay[b - 1] = d;
        }
}

static bool same_shape(const Product *a, const Product *b)
{
    return !a->value && !b->value && a->lo == b->lo && a->hi == b->hi
        && a->extra == b->extra && a->ndecays == b->ndecays
        && !memcmp(a->decay, b->decay, (size_t)a->ndecays * sizeof *a->decay);
}

static void add_product(Mask *m, const Product *p)
{
    for (int n = 0; n < m->nproducts; n++) {
        Product *old = &m->product[n];
        if (!same_shape(old, p))
            continue;
        if (old->row == p->row)
            old->col = op2(m->g, OP_add, old->col, p->col);
        else if (old->col == p->col)
            old->row = op2(m->g, OP_add, old->row, p->row);
        else
            continue;
        return;
    }
    if (m->nproducts == MAX_PRODUCTS)
        graph_refuse(m->g, ERR_USER, m->g->line, NULL, "the mask is a sum of "
                     "more than %d products", MAX_PRODUCTS);
    m->product[m->nproducts++] = *p;
}

/* x where the region's own bounds of i (or j) hold. */
static Ref bounded(Mask *m, Ref x, const Region *at, int var)
{
    Graph *g = m->g;
    Ref zero = num(g, 0);
    Ref t = mask_leaf(m, LEAF_POSITION, var == VAR_I ? SIDE_I : SIDE_J, "",
                      0);
    Ref lo = num(g, (double)at->lo[var]), hi = num(g, (double)at->hi[var]);

    if (at->lo[var] > 0)
        x = op3(g, OP_where, op2(g, OP_lt, t, lo), zero, x);
    if (at->hi[var] < REGION_INF / 2)
        x = op3(g, OP_where, op2(g, OP_le, t, hi), x, zero);
    return x;
}

/* An exponential in a tap must hold sums as differences too. */
static void check_tap(Mask *m, Ref value)
{
    Product none_yet;
    Linear e, sides;

    mask_reach(m, value);
    uint8_t *need = ctx_alloc(m->ctx, value + 1);
    memcpy(need, m->mark, value + 1);
    for (Ref r = 1; r <= value; r++) {
        if (!need[r] || m->g->n[r].op != OP_exp
            || !(mask_traits(m, r) & HAS_CUMSUM))
            continue;
        linear(m, m->g->n[r].a[0], &e);
        sides = (Linear){ .rest = e.rest };
        for (int n = 0; n < e.n; n++)
            if ((mask_traits(m, e.part[n].atom) & SIDES) != SIDES)
                sides.part[sides.n++] = e.part[n];
        none_yet = (Product){ .col = num(m->g, 1) };
        split_exponent(m, sides, &none_yet);
    }
}

static void add_tap(Mask *m, const MaskPath *p)
{
    Product tap = { .lo = p->at.lo[VAR_DISTANCE],
                    .hi = p->at.hi[VAR_DISTANCE] };
    int line = m->g->n[p->value].line;

    if (tap.hi > MAX_BACK)
        graph_refuse(m->g, ERR_USER, line, ctx_format(m->ctx, "a band may "
                     "reach back %d tokens at most; let the mask decay "
                     "instead, or go over all pairs: mode = \"quadratic\"",
                     MAX_BACK), "mask does not factor: a band of i - j up to "
                     "%lld", (long long)tap.hi);
    check_tap(m, p->value);
    tap.value = bounded(m, p->value, &p->at, VAR_I);
    tap.value = bounded(m, tap.value, &p->at, VAR_J);
    tap.row = tap.col = tap.extra = num(m->g, 0);
    if (m->nproducts == MAX_PRODUCTS)
        graph_refuse(m->g, ERR_USER, line, NULL, "the mask is a sum of more "
                     "than %d products", MAX_PRODUCTS);
    m->product[m->nproducts++] = tap;
}

enum { MAX_STRIDE = 16 };               /* each remainder is a state */

/* A remainder in which i and j meet; 0: there is none. */
static Ref find_stride(Mask *m, Ref value, Remainder *of)
{
    mask_reach(m, value);
    for (Ref r = 1; r <= value; r++)
        if (m->mark[r] && m->g->n[r].op == OP_mod
            && (mask_traits(m, r) & SIDES) == SIDES
            && mask_remainder(m, r, of))
            return r;
    return 0;
}

static void add_piece(Mask *m, const MaskPath *p);

/* (wi i + wj j + rest) % n is (wi r + rest + wj j) % n, where i % n is r. */
static void add_strided(Mask *m, const MaskPath *p, Ref meets,
                        const Remainder *of)
{
    Graph *g = m->g;
    Ref n = num(g, (double)of->n), zero = num(g, 0);
    Ref i = mask_leaf(m, LEAF_POSITION, SIDE_I, "", 0);
    Ref j = mask_leaf(m, LEAF_POSITION, SIDE_J, "", 0);

    if (of->n > MAX_STRIDE)
        graph_refuse(m->g, ERR_USER, g->n[meets].line, ctx_format(m->ctx,
                     "each remainder is a state: up to %d; or go over all "
                     "pairs, mode = \"quadratic\"", MAX_STRIDE), "mask does "
                     "not factor: a stride of %lld", (long long)of->n);
    for (int64_t r = 0; r < of->n; r++) {
        MaskPath one = *p;
        Ref at = op2(g, OP_eq, op2(g, OP_mod, i, n), num(g, (double)r));
        Ref rest = num(g, (double)(of->wi * r + of->rest));
        Ref left = op2(g, OP_add, rest, op2(g, OP_mul, j,
                                            num(g, (double)of->wj)));
        Ref value = mask_rebuild(m, p->value, meets,
                                 op2(g, OP_mod, left, n));
        one.value = op3(g, OP_where, at, value, zero);
        add_piece(m, &one);
    }
}

static void add_piece(Mask *m, const MaskPath *p)
{
    Remainder of;
    Ref meets;

    if (is_num(m->g, p->value, 0))
        return;
    if (p->at.hi[VAR_DISTANCE] < REGION_INF / 2) {
        add_tap(m, p);
        return;
    }
    if (p->at.lo[VAR_DISTANCE] > MAX_BACK)
        graph_refuse(m->g, ERR_USER, m->g->n[p->value].line, ctx_format(m->ctx,
                     "a mask may begin %d tokens back at most", MAX_BACK),
                     "mask does not factor: it begins at i - j = %lld",
                     (long long)p->at.lo[VAR_DISTANCE]);
    meets = find_stride(m, p->value, &of);
    if (meets) {
        add_strided(m, p, meets, &of);
        return;
    }
    Terms t = expand(m, p, p->value);
    for (int n = 0; n < t.n; n++) {
        Product new = { .row = bounded(m, t.t[n].row, &p->at, VAR_I),
                        .col = bounded(m, t.t[n].col, &p->at, VAR_J),
                        .lo = p->at.lo[VAR_DISTANCE], .hi = REGION_INF };
        if (is_num(m->g, new.row, 0) || is_num(m->g, new.col, 0))
            continue;
        split_exponent(m, t.t[n].e, &new);
        sort_decays(&new);
        add_product(m, &new);
    }
}

static void factor(Mask *m)
{
    mask_pieces(m);
    for (int n = 0; n < m->npieces; n++)
        add_piece(m, &m->piece[n]);
    if (!m->nproducts && !m->whole)
        graph_refuse(m->g, ERR_USER, 0, NULL, "the mask is zero everywhere");
    mask_probe(m);
}

static bool factor_both(Mask *m, Refusal *no, Mask **above)
{
    if (setjmp(no->end))
        return false;
    m->g->no = no;
    factor(m);
    *above = m->whole ? mask_above(m) : NULL;
    if (*above)
        factor(*above);
    else if (!m->nproducts)
        graph_refuse(m->g, ERR_USER, 0, NULL, "the mask is zero everywhere");
    return true;
}

bool mask_factor(Mask *m, Mask **above, Error *why)
{
    Refusal *no = ctx_alloc(m->ctx, sizeof *no);
    bool factors = factor_both(m, no, above);

    m->g->no = NULL;
    if (factors && *above)
        (*above)->g->no = NULL;
    if (!factors) {
        *above = NULL;
        *why = no->why;
    }
    return factors;
}

void mask_factor_endless(Mask *m, const MaskPath *piece)
{
    MaskPath endless = *piece;

    endless.at.hi[VAR_DISTANCE] = REGION_INF;
    m->nproducts = 0;
    add_piece(m, &endless);
}

/* ---- in words ---- */

static char *decay_text(Mask *m, const Product *p)
{
    Buf b = { .ctx = m->ctx };

    buf_printf(&b, "%s", p->ndecays ? "exp(" : "none");
    for (int n = 0; n < p->ndecays; n++) {
        Ref u = p->decay[n].u, w = p->decay[n].w;
        Ref e = op2(m->g, OP_sub, u, mask_rebuild(m, u, 0, 0));
        buf_printf(&b, "%s%s", n ? " + " : "",
                   expr_text(m->g, op2(m->g, OP_mul, e, w)));
    }
    buf_printf(&b, "%s", p->ndecays ? ")" : "");
    return b.s;
}

char *product_text(Mask *m, const Product *p, const char *part)
{
    if (!strcmp(part, "decay"))
        return decay_text(m, p);
    if (!strcmp(part, "band")) {
        if (p->hi < REGION_INF / 2)
            return ctx_format(m->ctx, p->lo == p->hi ? "i - j == %d"
                              : "%d <= i - j <= %d", (int)p->lo, (int)p->hi);
        return ctx_format(m->ctx, "i - j >= %d", (int)p->lo);
    }
    if (p->value)
        return expr_text(m->g, !strcmp(part, "row") ? p->value
                         : num(m->g, 1));
    if (strcmp(part, "row"))
        return expr_text(m->g, p->col);
    return expr_text(m->g, op2(m->g, OP_mul, p->row,
                               op1(m->g, OP_exp, p->extra)));
}
