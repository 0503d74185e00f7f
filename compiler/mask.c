/* mask.c -- the traced mask: its leaves, what a value depends on, and values
 * as linear combinations. */
#include "mask.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

Mask *mask_new(Ctx *c)
{
    Mask *m = ctx_alloc(c, sizeof *m);

    m->ctx = c;
    m->g = graph_new(c, "mask", 0);
    return m;
}

static void leaf_name(char out[48], const Leaf *l)
{
    const char *side = l->side == SIDE_I ? "i" : "j";
    char back[16] = "";

    if (l->back)
        snprintf(back, sizeof back, " - %d", l->back);
    switch (l->kind) {
    case LEAF_CONSTANT: snprintf(out, 48, "%s", l->name); break;
    case LEAF_TOKEN:
        snprintf(out, 48, "%.28s[%s%s]", l->name, side, back);
        break;
    case LEAF_CUMSUM:
        snprintf(out, 48, "%.28s_cumsum[%s%.9s]", l->name, side, back);
        break;
    case LEAF_POSITION: snprintf(out, 48, "%s", side); break;
    case LEAF_SCORE: snprintf(out, 48, "the score"); break;
    }
}

static bool same_leaf(const Leaf *a, const Leaf *b)
{
    return a->kind == b->kind && a->side == b->side && a->back == b->back
        && !strcmp(a->name, b->name);
}

Ref mask_leaf(Mask *m, LeafKind kind, int side, const char *name, int back)
{
    Leaf l = { .kind = kind, .side = side, .back = back };
    char text[48];

    snprintf(l.name, sizeof l.name, "%s", name);
    for (int n = 0; n < m->g->nin; n++) {
        if (same_leaf(&m->leaf[n], &l))
            return m->g->in[n].node;
        if (!strcmp(m->leaf[n].name, name))
            l.sign = m->leaf[n].sign;
    }
    if (m->g->nin == MAX_INPUTS)
        graph_refuse(m->g, ERR_USER, m->g->line, NULL, "the mask reads more "
                     "than %d values (%s)", MAX_INPUTS, name);
    leaf_name(text, &l);
    m->leaf[m->g->nin] = l;
    return m->g->in[graph_input(m->g, text, "")].node;
}

void mask_declare_sign(Mask *m, const char *name, int sign)
{
    for (int n = 0; n < m->g->nin; n++)
        if (!strcmp(m->leaf[n].name, name))
            m->leaf[n].sign = sign;
}

bool mask_reads(const Mask *m, const char *name)
{
    for (int n = 0; n < m->g->nin; n++)
        if (!strcmp(m->leaf[n].name, name))
            return true;
    return false;
}

/* ---- what a value depends on ---- */

static void grow(Mask *m)
{
    uint32_t cap = m->g->cap;

    if (cap <= m->cap)
        return;
    m->traits = ctx_grow(m->ctx, m->traits, m->cap, cap);
    m->mark = ctx_grow(m->ctx, m->mark, m->cap, cap);
    m->value = ctx_grow(m->ctx, m->value, m->cap * sizeof *m->value,
                        cap * sizeof *m->value);
    m->cap = cap;
}

static uint8_t leaf_traits(const Leaf *l)
{
    uint8_t side = l->kind == LEAF_SCORE ? SIDES : (uint8_t)l->side;

    if (l->kind == LEAF_POSITION)
        return side | HAS_POSITION;
    return l->kind == LEAF_CUMSUM ? side | HAS_CUMSUM : side;
}

int mask_traits(Mask *m, Ref r)
{
    grow(m);
    for (; m->traits_len < m->g->len; m->traits_len++) {
        const Node *n = &m->g->n[m->traits_len];
        uint8_t t = 0;
        for (int i = 0; i < 4; i++)
            t |= m->traits[n->a[i]];
        if (n->op == OP_input)
            t = leaf_traits(&m->leaf[n->index]);
        if (n->op == OP_exp && t & (HAS_POSITION | HAS_CUMSUM))
            t |= HOT;
        m->traits[m->traits_len] = t;
    }
    return m->traits[r];
}

void mask_reach(Mask *m, Ref r)
{
    grow(m);
    memset(m->mark, 0, m->cap);
    m->mark[r] = 1;
    for (; r > 0; r--)
        for (int i = 0; m->mark[r] && i < 4; i++)
            m->mark[m->g->n[r].a[i]] = 1;
    m->mark[0] = 0;
}

Ref mask_image(Mask *m, MaskImage *x, Graph *g, Ref root,
               Ref (*leaf)(void *ud, const Leaf *l), void *ud)
{
    mask_reach(m, root);
    if (root >= x->len) {
        x->of = ctx_grow(m->ctx, x->of, x->len * sizeof *x->of,
                         m->g->cap * sizeof *x->of);
        x->len = m->g->cap;
    }
    for (Ref r = 1; r <= root; r++) {
        const Node *n = &m->g->n[r];
        if (!m->mark[r] || x->of[r])
            continue;
        Ref a[4] = { x->of[n->a[0]], x->of[n->a[1]], x->of[n->a[2]], 0 };
        g->line = n->line;
        x->of[r] = n->op == OP_input ? leaf(ud, &m->leaf[n->index])
                                     : node_copy(g, n, a);
    }
    return x->of[root];
}

static Ref mirror_leaf(Mask *m, const Node *n)
{
    const Leaf l = m->leaf[n->index];

    if (!l.side)
        return 0;
    return mask_leaf(m, l.kind, SIDES - l.side, l.name, l.back);
}

Ref mask_rebuild(Mask *m, Ref root, Ref from, Ref to)
{
    Ref *map = ctx_alloc(m->ctx, (root + 1) * sizeof *map);
    int32_t line = m->g->line;

    mask_reach(m, root);
    for (Ref r = 1; r <= root; r++) {
        if (!m->mark[r])
            continue;
        const Node n = m->g->n[r];
        Ref a[4] = { map[n.a[0]], map[n.a[1]], map[n.a[2]], map[n.a[3]] };
        m->g->line = n.line;
        if (r == from)
            map[r] = to;
        else if (n.op == OP_input)
            map[r] = from ? r : mirror_leaf(m, &n);
        else
            map[r] = node_copy(m->g, &n, a);
        if (!map[r])
            map[r] = r;
    }
    m->g->line = line;
    return map[root];
}

/* ---- linear combinations ---- */

static void add_part(Mask *m, Linear *l, Ref atom, Ref coef)
{
    for (int i = 0; i < l->n; i++)
        if (l->part[i].atom == atom) {
            coef = op2(m->g, OP_add, l->part[i].coef, coef);
            l->part[i].coef = coef;
            if (is_num(m->g, coef, 0))
                l->part[i] = l->part[--l->n];
            return;
        }
    if (l->n == MAX_PARTS)
        graph_refuse(m->g, ERR_USER, m->g->n[atom].line, NULL, "the mask adds "
                     "up more than %d terms in one place", MAX_PARTS);
    l->part[l->n++] = (Part){ atom, coef };
}

/* Shared sub-expressions make trees of a graph, and long ones recursion deep:
 * keep count. */
void mask_work(Mask *m)
{
    if (++m->work > MAX_WORK || m->g->len > MAX_MASK_NODES)
        graph_refuse(m->g, ERR_LIMIT, 0, NULL, "the mask is too large to "
                     "factor");
}

static void add_scaled(Mask *m, Linear *l, Ref r, Ref scale)
{
    Graph *g = m->g;
    const Node n = g->n[r];
    bool free_a = !(mask_traits(m, n.a[0]) & SIDES);
    bool free_b = !(mask_traits(m, n.a[1]) & SIDES);

    mask_work(m);
    if (!(mask_traits(m, r) & SIDES)) {
        l->rest = op2(g, OP_add, l->rest, op2(g, OP_mul, scale, r));
    } else if (n.op == OP_add || n.op == OP_sub) {
        add_scaled(m, l, n.a[0], scale);
        if (n.op == OP_sub)
            scale = op1(g, OP_neg, scale);
        add_scaled(m, l, n.a[1], scale);
    } else if (n.op == OP_neg) {
        add_scaled(m, l, n.a[0], op1(g, OP_neg, scale));
    } else if (n.op == OP_mul && (free_a || free_b)) {
        add_scaled(m, l, n.a[free_a], op2(g, OP_mul, scale, n.a[!free_a]));
    } else if (n.op == OP_div && free_b) {
        add_scaled(m, l, n.a[0], op2(g, OP_div, scale, n.a[1]));
    } else {
        add_part(m, l, r, scale);
    }
}

void linear(Mask *m, Ref r, Linear *out)
{
    out->n = 0;
    out->rest = num(m->g, 0);
    add_scaled(m, out, r, num(m->g, 1));
}

Ref linear_ref(Mask *m, const Linear *l)
{
    Ref r = l->rest;

    for (int i = 0; i < l->n; i++)
        r = op2(m->g, OP_add, r,
                op2(m->g, OP_mul, l->part[i].atom, l->part[i].coef));
    return r;
}

/* ---- polynomials ---- */

enum { MAX_TERMS = 48, MAX_DEGREE = 8, MAX_OPERATIONS = 200 };
typedef struct Monomial { double c; int degree; Ref of[MAX_DEGREE]; } Monomial;
typedef struct Polynomial {
    bool whole;                         /* no term was too many */
    int n;
    Monomial term[MAX_TERMS];
} Polynomial;

static void add_term(Polynomial *p, const Monomial *t)
{
    int i = 0;

    while (i < p->n && (p->term[i].degree != t->degree
                        || memcmp(p->term[i].of, t->of, sizeof t->of)))
        i++;
    if (i == MAX_TERMS) {
        p->whole = false;
    } else if (i < p->n) {
        p->term[i].c += t->c;
    } else {
        p->term[p->n++] = *t;
    }
}

/* p += scale x q */
static void add_product(Polynomial *p, const Polynomial *x,
                        const Polynomial *q, double scale)
{
    for (int i = 0; i < x->n * q->n; i++) {
        Monomial t = x->term[i / q->n];
        const Monomial *by = &q->term[i % q->n];
        t.c *= scale * by->c;
        p->whole &= t.degree + by->degree <= MAX_DEGREE;
        for (int k = 0; p->whole && k < by->degree; k++) {
            int at = t.degree++;
            for (; at > 0 && t.of[at - 1] > by->of[k]; at--)
                t.of[at] = t.of[at - 1];
            t.of[at] = by->of[k];
        }
        if (p->whole)
            add_term(p, &t);
    }
    p->whole &= x->whole && q->whole;
}

/* *left: of how many operations, still. */
static Polynomial *polynomial(Mask *m, Ref r, int *left)
{
    const Node n = m->g->n[r];
    Polynomial *p = ctx_alloc(m->ctx, sizeof *p), *a = NULL, *b = NULL;
    Polynomial one = { true, 1, { { 1, 0, { 0 } } } };
    bool minus = n.op == OP_sub || n.op == OP_neg;

    p->whole = --*left >= 0;
    if (!p->whole)
        return p;
    if (n.op == OP_div)
        b = polynomial(m, n.a[1], left);
    bool divides = b && b->n == 1 && !b->term[0].degree;
    bool two = n.op == OP_add || n.op == OP_sub || n.op == OP_mul;
    if (two || n.op == OP_neg || n.op == OP_square || divides)
        a = polynomial(m, n.a[0], left);
    if (two)
        b = polynomial(m, n.a[1], left);
    if (n.op == OP_num) {
        add_product(p, &one, &one, n.num);
    } else if (n.op == OP_neg || divides) {
        add_product(p, a, &one, divides ? 1 / b->term[0].c : -1);
    } else if (n.op == OP_mul || n.op == OP_square) {
        add_product(p, a, n.op == OP_mul ? b : a, 1);
    } else if (two) {
        add_product(p, a, &one, 1);
        add_product(p, b, &one, minus ? -1 : 1);
    } else {
        one.term[0].degree = 1;
        one.term[0].of[0] = r;
        add_term(p, &one.term[0]);
    }
    return p;
}

bool mask_opposite(Mask *m, Ref a, Ref b)
{
    int left = MAX_OPERATIONS;
    const Polynomial *x = polynomial(m, a, &left);
    const Polynomial *y = polynomial(m, b, &left);
    Polynomial *sum = ctx_alloc(m->ctx, sizeof *sum);
    Polynomial one = { true, 1, { { 1, 0, { 0 } } } };
    double most = 0;

    sum->whole = true;
    add_product(sum, x, &one, 1);
    for (int i = 0; i < x->n; i++)
        most = fmax(most, fabs(x->term[i].c));
    add_product(sum, y, &one, 1);
    for (int i = 0; i < sum->n; i++)
        if (fabs(sum->term[i].c) > 1e-12 * most)
            return false;
    return sum->whole;
}

int mask_index(Mask *m, Ref r, int64_t *back)
{
    Linear l;

    linear(m, r, &l);
    const Node *rest = &m->g->n[l.rest];
    if (l.n != 1 || !is_num(m->g, l.part[0].coef, 1) || rest->op != OP_num
        || fabs(rest->num) > 1e6 || rest->num != floor(rest->num))
        return 0;
    const Node *n = &m->g->n[l.part[0].atom];
    if (n->op != OP_input || m->leaf[n->index].kind != LEAF_POSITION)
        return 0;
    *back = -(int64_t)rest->num;
    return m->leaf[n->index].side;
}
