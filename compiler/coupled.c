/* coupled.c -- the block that states which read each other make. */
#include "coupled.h"

#include <string.h>

/* What is written under key b, before it is known in which proportions: a read
 * x of state `from`, or (-1) x itself. to: its factors, by place. */
typedef struct Item {
    Ref b, x;
    AxisSet rank;
    int from;
    bool has[MAX_BLOCK];
    double times[MAX_BLOCK];
    Factors to[MAX_BLOCK];
} Item;

typedef struct Found {
    Graph *g;
    Coupled *k;
    int m;                              /* the place that is written to */
    Item *item;
    int n;
} Found;

int coupled_place(const Coupled *k, int s)
{
    int m = 0;

    while (k->state[m] != s)
        m++;
    return m;
}

static bool refuse(const Found *f, Ref at, const char *what)
{
    return state_note(f->g, f->k->state[f->m], at, what);
}

static AxisSet axes_of(const Found *f, Ref r)
{
    return f->g->n[r].axes;
}

/* ---- items ---- */

/* The factors that are numbers are one, *times; the others, in `to`, are
 * numbers of the token, or go into *x. */
static void part_factors(const Found *f, const Factors *all, AxisSet not,
                         Factors *to, double *times, Ref *x)
{
    Graph *g = f->g;

    *times = 1;
    for (int i = 0; i < all->n; i++) {
        Ref y = all->f[i];
        if (axes_of(f, y) & not)
            *x = *x ? op2(g, OP_mul, *x, y) : y;
        else if (g->n[y].op == OP_num)
            *times *= g->n[y].num;
        else
            to->f[to->n++] = y;
    }
}

static Ref product(Graph *g, const Factors *f, double times)
{
    Ref p = num(g, times);

    for (int i = 0; i < f->n; i++)
        p = op2(g, OP_mul, p, f->f[i]);
    return p;
}

static Item *find_item(Found *f, Ref b, Ref x, AxisSet rank, int from)
{
    for (int i = 0; i < f->n; i++) {
        Item *t = &f->item[i];
        if (t->b == b && t->x == x && t->rank == rank && t->from == from)
            return t;
    }
    if (f->n == MAX_TERMS)
        return NULL;
    f->item[f->n] = (Item){ .b = b, .x = x, .rank = rank, .from = from };
    return &f->item[f->n++];
}

/* Written by what has these factors beside b and x; `rank` is summed. */
static bool add_item(Found *f, const Factors *all, Ref b, Ref x, AxisSet rank,
                     int from, Ref at)
{
    AxisSet apart = rank | f->k->nu;
    Factors to = { 0 };
    double times;

    part_factors(f, all, apart, &to, &times, &x);
    Item *t = find_item(f, b, x ? x : num(f->g, 1), rank, from);
    if (!t)
        return refuse(f, at, "writes too many terms to");
    if (t->has[f->m]) {
        Ref both = op2(f->g, OP_add, product(f->g, &t->to[f->m],
                                             t->times[f->m]),
                       product(f->g, &to, times));
        to = (Factors){ 1, { both } };
        times = 1;
    }
    t->has[f->m] = true;
    t->times[f->m] = times;
    t->to[f->m] = to;
    return true;
}

/* The product of the factors with kappa, and the others. */
static Ref take_key(const Found *f, const Factors *all, Factors *rest)
{
    AxisSet kappa = f->k->kappa;

    for (int i = 0; i < all->n; i++)
        if (!(axes_of(f, all->f[i]) & kappa))
            rest->f[rest->n++] = all->f[i];
    return factors_product(f->g, all, kappa, 0);
}

static bool add_read(Found *f, const Term *t)
{
    Factors all = { 0 }, rest = { 0 };
    Ref at = t->coef ? t->coef : t->p;

    if (t->coef)
        factors(f->g, t->coef, &all);
    Ref b = take_key(f, &all, &rest);
    for (int i = 0; i < rest.n; i++)
        if (axes_of(f, rest.f[i]) & f->k->nu)
            b = 0;
    if (!b || axes_of(f, b) & f->k->nu)
        return refuse(f, at, "scales a read by both axes of");
    return add_item(f, &rest, b, t->p, t->rank,
                    coupled_place(f->k, t->state), at);
}

static bool add_plain(Found *f, Ref x)
{
    Factors all = { 0 }, rest = { 0 };
    AxisSet rank = plain_factors(f->g, x, f->k->kappa, f->k->nu,
                                 &all);
    Ref b = take_key(f, &all, &rest);

    b = along_all(f->g, b, f->k->kappa);            /* under every key */
    if (axes_of(f, b) & f->k->nu)
        return refuse(f, b, "couples the axes of");
    Ref v = factors_product(f->g, &rest, f->k->nu, 0);
    AxisSet lacks = f->k->nu & ~(v ? axes_of(f, v) : 0);
    if (lacks)
        rest.f[rest.n++] = along_all(f->g, 0, lacks);
    return add_item(f, &rest, b, 0, rank, -1, x);
}

/* A sum's terms; times: what all of x is multiplied by. */
static bool add_plains(Found *f, Ref x, Ref times)
{
    const Node n = f->g->n[x];
    AxisSet both = f->k->kappa | f->k->nu;

    switch (n.op) {
    case OP_sub:
        return add_plains(f, n.a[0], times)
            && add_plains(f, n.a[1], op1(f->g, OP_neg, times));
    case OP_add:
        return add_plains(f, n.a[0], times) && add_plains(f, n.a[1], times);
    case OP_neg:
        return add_plains(f, n.a[0], op1(f->g, OP_neg, times));
    case OP_mul:                        /* (x + y) z */
        for (int i = 0; i < 2; i++)
            if ((axes_of(f, n.a[i]) & both) == both
                && !(axes_of(f, n.a[1 - i]) & both))
                return add_plains(f, n.a[i],
                                  op2(f->g, OP_mul, times, n.a[1 - i]));
        break;
    }
    x = op2(f->g, OP_mul, times, x);
    return is_num(f->g, x, 0) || add_plain(f, x);
}

/* ---- rows ---- */

/* A factor of every place that the item is written to is the row's. */
static void take_common(Found *f, Item *t, int first, Factors *own)
{
    for (int i = 0; i < t->to[first].n; i++) {
        Ref x = t->to[first].f[i];
        bool all = true;
        for (int m = 0; m < f->k->n && all; m++) {
            bool in = !t->has[m];
            for (int j = 0; j < t->to[m].n; j++)
                in |= t->to[m].f[j] == x;
            all = in;
        }
        if (!all)
            continue;
        own->f[own->n++] = x;
        for (int m = 0; m < f->k->n; m++)
            for (int j = 0; j < t->to[m].n; j++)
                if (t->to[m].f[j] == x) {
                    t->to[m].f[j] = t->to[m].f[--t->to[m].n];
                    break;
                }
        i--;
    }
}

static bool same_row(const CoupledRow *a, const CoupledRow *b)
{
    return a->b == b->b && a->rank == b->rank
        && !memcmp(a->to, b->to, sizeof a->to);
}

static Ref plus(Graph *g, Ref a, Ref b)
{
    return a && b ? op2(g, OP_add, a, b) : a + b;
}

static void add_row(Found *f, Item *t)
{
    Graph *g = f->g;
    Coupled *k = f->k;
    CoupledRow row = { .b = t->b, .rank = t->rank };
    Factors own = { 0 };
    int first = 0, i = 0;

    while (!t->has[first])
        first++;
    take_common(f, t, first, &own);
    double unit = t->times[first] != 0 ? t->times[first] : 1;
    for (int m = 0; m < k->n; m++)
        if (t->has[m])
            row.to[m] = product(g, &t->to[m], t->times[m] / unit);
    Ref x = op2(g, OP_mul, t->x, product(g, &own, unit));
    while (i < k->nrows && !same_row(&k->row[i], &row))
        i++;
    if (i == k->nrows)
        k->row[k->nrows++] = row;
    CoupledRow *r = &k->row[i];
    if (t->from < 0)
        r->v = plus(g, r->v, x);
    else
        r->a[t->from] = plus(g, r->a[t->from], x);
    r->reads |= t->from >= 0;
}

/* ---- the block ---- */

/* What the reads contract is kappa, and if there are none, what the
 * coefficients differ along. */
static bool choose_axes(Found *f, Affine *const form[])
{
    Coupled *k = f->k;
    const State *st = &f->g->st[k->state[0]];
    AxisSet kappa = 0, differ = 0;
    bool alike = true;
    Ref at = 0;

    for (int m = 0; m < k->n; m++)
        for (int i = 0; i < form[m]->n; i++) {
            const Term *t = &form[m]->term[i];
            alike &= !kappa || !t->over || t->over == kappa;
            kappa |= t->over;
            if (t->over || !t->coef)
                continue;
            differ |= axes_of(f, t->coef);
            at = !at || axes_of(f, t->coef) & ~kappa ? t->coef : at;
        }
    if (!alike)
        return state_note(f->g, k->state[0], 0, "reads along both axes of");
    kappa = kappa ? kappa : usual_keys(f->g, k->state[0], differ);
    if (differ & ~kappa)
        return state_note(f->g, k->state[0], at, ctx_format(
                          f->g->ctx, "differs along %s, where the step reads "
                          "along %s: it scales",
                          axes_text(f->g, differ & ~kappa),
                          axes_text(f->g, kappa)));
    k->kappa = kappa;
    k->nu = st->axes & ~kappa;
    return true;
}

static void add_kept(Found *f, const Term *t)
{
    Ref *keep = &f->k->keep[f->m][coupled_place(f->k, t->state)];

    *keep = plus(f->g, *keep, t->coef ? t->coef : num(f->g, 1));
}

static bool all_alike(const Graph *g, const Coupled *k)
{
    for (int m = 0; m < k->n; m++) {
        const State *st = &g->st[k->state[m]];
        if (st->angle || st->axes != g->st[k->state[0]].axes)
            return false;
    }
    return true;
}

/* By keys and values. */
static bool by_rows(Found *f, Affine *const form[])
{
    if (f->g->st[f->k->state[0]].rank < 2 || !choose_axes(f, form))
        return false;
    f->item = ctx_alloc(f->g->ctx, MAX_TERMS * sizeof *f->item);
    for (f->m = 0; f->m < f->k->n; f->m++) {
        const Affine *a = form[f->m];
        f->g->line = f->g->n[f->g->st[f->k->state[f->m]].next].line;
        for (int i = 0; i < a->n; i++)
            if (!a->term[i].over)
                add_kept(f, &a->term[i]);
            else if (!add_read(f, &a->term[i]))
                return false;
        if (a->rest && !add_plains(f, a->rest, num(f->g, 1)))
            return false;
    }
    for (int i = 0; i < f->n; i++)
        add_row(f, &f->item[i]);
    return true;
}

/* Each entry by itself. */
static bool by_entries(Found *f, Affine *const form[])
{
    Coupled *k = f->k;

    memset(k->keep, 0, sizeof k->keep);
    k->entries = true;
    k->nrows = 0;
    for (f->m = 0; f->m < k->n; f->m++) {
        for (int i = 0; i < form[f->m]->n; i++) {
            const Term *t = &form[f->m]->term[i];
            if (t->over && !f->g->note)
                refuse(f, t->p, "contracts, in a circle of states, what is "
                       "left of");
            if (t->over)
                return false;
            add_kept(f, t);
        }
        k->rest[f->m] = form[f->m]->rest;
    }
    return true;
}

bool coupled(Graph *g, StateSet of, Coupled *k)
{
    Found f = { .g = g, .k = k };
    Affine *form[MAX_BLOCK];
    int first = __builtin_ctzll(of);

    memset(k, 0, sizeof *k);
    k->of = of;
    for (; of && k->n < MAX_BLOCK; of &= of - 1)
        k->state[k->n++] = __builtin_ctzll(of);
    if (of || !all_alike(g, k))
        return state_note(g, first, g->st[first].next,
                          "needs a state that in turn needs");
    for (f.m = 0; f.m < k->n; f.m++) {
        Affine *a = form[f.m] = ctx_alloc(g->ctx, sizeof *a);
        if (!affine(g, g->st[k->state[f.m]].next, k->of, false, a))
            return state_note(g, __builtin_ctzll(g->n[a->bad].states & k->of),
                              a->bad, a->why);
    }
    g->note = NULL;
    return by_rows(&f, form) || by_entries(&f, form);
}

Road road_of(Graph *g, StateSet of, bool slopes, Universal *u, Coupled *k)
{
    bool alone = !(of & (of - 1));
    bool fits = alone && universal(g, __builtin_ctzll(of), u);
    char *note = g->note;

    if (fits && (!u->sloped || (g->n[u->decay].axes && !slopes)))
        return BY_FORM;
    if ((!alone || g->st[__builtin_ctzll(of)].rank > 1) && coupled(g, of, k))
        return IN_BLOCK;
    if (alone && !u->decay)
        g->note = note;
    return fits && !slopes ? BY_FORM : NO_FORM;
}
