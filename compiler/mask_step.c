/* mask_step.c -- from factors to the step that computes the mask.
 *
 *     S = exp(g) S + outer(col k, v),     y = sum of row (q . S)
 *
 * one state S for each decay and column factor. A band that begins at i - j
 * = 1 reads S as the token finds it; one that begins later also decays and
 * writes late.
 * Taps, and all else that looks back, go through chains of previous values.
 */
#include "mask.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PREVS = 30, MAX_NAMES = 16 };

typedef struct Step {
    Mask *m;
    Graph *g;
    Ref q, k, v, y;
    AxisSet over;
    Ref *own;                           /* a mask's value at the token's own
                                           i (or j), as a node of g */
    uint32_t own_len;
    Ref position;
    struct { Ref x, prev; const char *name; int depth; } prevs[MAX_PREVS];
    struct { Ref x, sum; } sums[MAX_NAMES];
    int nprevs, nsums;
} Step;

static Ref input_named(const Graph *g, const char *name)
{
    int i = graph_find_input(g, name);

    return i < 0 ? 0 : g->in[i].node;
}

static Ref new_state(Step *s, const char *name, AxisSet axes)
{
    int n = graph_state(s->g, name, axes_text(s->g, axes));

    return s->g->st[n].node;
}

static State *state_of(Step *s, Ref node)
{
    return &s->g->st[s->g->n[node].index];
}

static Ref add(Step *s, Ref a, Ref b) { return op2(s->g, OP_add, a, b); }
static Ref mul(Step *s, Ref a, Ref b) { return op2(s->g, OP_mul, a, b); }

/* ---- what a token knows of those before it ---- */

/* x of the token before; 0 at the first. */
static Ref previous(Step *s, Ref x)
{
    const Node n = s->g->n[x];
    const char *base = NULL;
    char name[48];
    int depth = 1;

    if (!n.timed)
        return x;
    for (int i = 0; i < s->nprevs; i++) {
        if (s->prevs[i].x == x)
            return s->prevs[i].prev;
        if (s->prevs[i].prev == x) {
            base = s->prevs[i].name;
            depth = s->prevs[i].depth + 1;
        }
    }
    if (s->nprevs == MAX_PREVS)
        fail_help(s->m->ctx, n.line, "look back less far", "the mask needs "
                  "more than %d earlier values", MAX_PREVS);
    if (!base)
        base = n.op == OP_input ? s->g->in[n.index].name
            : n.op == OP_state ? s->g->st[n.index].name
            : ctx_format(s->m->ctx, "%d", s->nprevs + 1);
    if (depth > 1)
        snprintf(name, sizeof name, "prev%d_%s", depth, base);
    else
        snprintf(name, sizeof name, "prev_%s", base);
    Ref prev = new_state(s, name, n.axes);
    state_of(s, prev)->next = x;
    s->prevs[s->nprevs].x = x;
    s->prevs[s->nprevs].prev = prev;
    s->prevs[s->nprevs].name = base;
    s->prevs[s->nprevs++].depth = depth;
    return prev;
}

static Ref back(Step *s, Ref x, int64_t tokens)
{
    while (tokens-- > 0)
        x = previous(s, x);
    return x;
}

/* The token's number in its sequence, from 0. */
static Ref position(Step *s)
{
    if (!s->position) {
        s->position = new_state(s, "position", 0);
        state_of(s, s->position)->next = add(s, s->position, num(s->g, 1));
    }
    return s->position;
}

static Ref running_sum(Step *s, const char *name)
{
    Ref x = input_named(s->g, name);

    for (int n = 0; n < s->nsums; n++)
        if (s->sums[n].x == x)
            return s->sums[n].sum;
    Ref st = new_state(s, ctx_format(s->m->ctx, "%s_cumsum", name), 0);
    state_of(s, st)->next = add(s, st, x);
    s->sums[s->nsums].x = x;
    return s->sums[s->nsums++].sum = state_of(s, st)->next;
}

static Ref own_leaf(Step *s, const Leaf *l)
{
    switch (l->kind) {
    case LEAF_CONSTANT: return input_named(s->g, l->name);
    case LEAF_TOKEN: return back(s, input_named(s->g, l->name), l->back);
    case LEAF_CUMSUM: return running_sum(s, l->name);
    case LEAF_POSITION: return position(s);
    }
    return 0;
}

/* A function of one side (or of none), for the token as that side. */
static Ref own(Step *s, Ref root)
{
    Mask *m = s->m;

    mask_reach(m, root);
    if (root >= s->own_len) {
        s->own = ctx_grow(m->ctx, s->own, s->own_len * sizeof *s->own,
                          m->g->cap * sizeof *s->own);
        s->own_len = m->g->cap;
    }
    for (Ref r = 1; r <= root; r++) {
        const Node *n = &m->g->n[r];
        if (!m->mark[r] || s->own[r])
            continue;
        Ref a[4] = { s->own[n->a[0]], s->own[n->a[1]], s->own[n->a[2]], 0 };
        s->g->line = n->line;
        s->own[r] = n->op == OP_input ? own_leaf(s, &m->leaf[n->index])
            : node_copy(s->g, n, a);
    }
    return s->own[root];
}

/* ---- taps: weights at a fixed distance d = i - j ---- */

static Ref tap(Step *s, Ref r, int64_t d);

static const Leaf *leaf_at(const Mask *m, Ref r)
{
    const Node *n = &m->g->n[r];
    return n->op == OP_input ? &m->leaf[n->index] : NULL;
}

/* u(i) - u(i - d) */
static Ref difference(Step *s, Ref u, int64_t d)
{
    const Leaf *l = leaf_at(s->m, u);
    Ref sum = num(s->g, 0);

    if (l && l->kind == LEAF_POSITION)
        return num(s->g, (double)d);
    if (!l || l->kind != LEAF_CUMSUM)
        return op2(s->g, OP_sub, own(s, u), back(s, own(s, u), d));
    Ref x = input_named(s->g, l->name);
    for (int64_t n = 0; n < d; n++)
        sum = add(s, sum, back(s, x, n));
    return sum;
}

/* A sum in which positions and cumulative sums of i and j meet as
 * differences: with e's coefficients a of u(i) and b of u(j),
 * a u(i) + b u(j) = (a + b) u(i) - b (u(i) - u(j)). */
static Ref tap_sum(Step *s, Linear *e, int64_t d)
{
    Mask *m = s->m;
    Ref y = own(s, e->rest);

    for (int n = 0; n < e->n; n++) {
        Ref atom = e->part[n].atom, c = own(s, e->part[n].coef), u;
        const Leaf *l = leaf_at(m, atom);
        if (!l || l->side != SIDE_J || l->kind < LEAF_CUMSUM) {
            y = add(s, y, mul(s, tap(s, atom, d), c));
            continue;
        }
        u = mask_leaf(m, l->kind, SIDE_I, l->name, 0);
        y = op2(s->g, OP_sub, y, mul(s, difference(s, u, d), c));
        int at = 0;
        while (at < e->n && e->part[at].atom != u)
            at++;
        if (at == e->n) {
            y = add(s, y, mul(s, own(s, u), c));
            continue;
        }
        /* u(i) has its turn here: what is left of it */
        Ref left = add(s, own(s, e->part[at].coef), c);
        if (!is_num(s->g, left, 0))
            y = add(s, y, mul(s, own(s, u), left));
        e->part[at] = (Part){ num(m->g, 0), num(m->g, 0) };
    }
    return y;
}

/* Such pairs first, so that u(i) is still there. */
static void pairs_first(const Mask *m, Linear *e)
{
    for (int n = 0, first = 0; n < e->n; n++) {
        const Leaf *l = leaf_at(m, e->part[n].atom);
        if (!l || l->side != SIDE_J || l->kind < LEAF_CUMSUM)
            continue;
        Part p = e->part[first];
        e->part[first++] = e->part[n];
        e->part[n] = p;
    }
}

static Ref tap(Step *s, Ref r, int64_t d)
{
    Mask *m = s->m;
    int sides = mask_traits(m, r) & SIDES;
    const Node n = m->g->n[r];
    const Leaf *l = leaf_at(m, r);
    Ref a[4] = { 0 };
    Linear e;

    mask_work(m);
    if (l && l->kind == LEAF_POSITION && sides == SIDE_J)
        return op2(s->g, OP_sub, position(s), num(s->g, (double)d));
    if (!(sides & SIDE_J))
        return own(s, r);
    linear(m, r, &e);
    bool scaled = e.n == 1 && e.part[0].atom != r && is_num(m->g, e.rest, 0);
    if (sides == SIDE_J && !scaled)
        return back(s, own(s, r), d);
    if (e.n != 1 || e.part[0].atom != r) {
        pairs_first(m, &e);
        return tap_sum(s, &e, d);
    }
    for (int i = 0; i < op_info[n.op].arity; i++)
        a[i] = tap(s, n.a[i], d);
    s->g->line = n.line;
    return node_copy(s->g, &n, a);
}

/* Could a weight, made of earlier values, be infinite where there are none? */
static bool may_be_infinite(const Graph *g, Ref w)
{
    uint8_t *need = ctx_alloc(g->ctx, w + 1);
    bool found = false;

    need[w] = 1;
    for (Ref r = w; r > 0; r--) {
        const Node *n = &g->n[r];
        bool risky = n->op == OP_div || n->op == OP_log || n->op == OP_rsqrt;
        found |= need[r] && risky && n->states;
        for (int i = 0; need[r] && i < 4; i++)
            need[n->a[i]] = 1;
    }
    return found;
}

static void lower_taps(Step *s, const Product *p)
{
    Graph *g = s->g;

    for (int64_t d = p->lo; d <= p->hi; d++) {
        Ref w = tap(s, p->value, d), zero = num(g, 0);
        if (is_num(g, w, 0))
            continue;
        if (d > 0 && may_be_infinite(g, w))
            w = op3(g, OP_where, op2(g, OP_lt, position(s),
                                     num(g, (double)d)), zero, w);
        Ref qk = dot(g, s->q, back(s, s->k, d), s->over);
        s->y = add(s, s->y, mul(s, mul(s, w, qk), back(s, s->v, d)));
    }
}

/* ---- products ---- */

/* What the decay's exponent gained in the token that is so far back, where it
 * is a plain sum of the mask's own values; the others' part is added by
 * other_gain. */
static Ref leaf_gain(Mask *m, const Product *p, int tokens)
{
    Ref e = num(m->g, 0);

    for (int n = 0; n < p->ndecays; n++) {
        const Leaf *l = leaf_at(m, p->decay[n].u);
        Ref x = num(m->g, 1);
        if (!l || l->kind < LEAF_CUMSUM)
            continue;
        if (l->kind == LEAF_CUMSUM)
            x = mask_leaf(m, LEAF_TOKEN, SIDE_I, l->name, tokens);
        e = op2(m->g, OP_add, e, op2(m->g, OP_mul, x, p->decay[n].w));
    }
    return e;
}

/* extra + the gains of the last p->lo tokens, in which a cumulative sum of so
 * many tokens back cancels. */
static Ref late_extra(Mask *m, const Product *p)
{
    Ref e = p->extra;
    Linear l;

    for (int n = 0; n < p->lo; n++)
        e = op2(m->g, OP_add, e, leaf_gain(m, p, n));
    linear(m, e, &l);
    return linear_ref(m, &l);
}

static Ref other_gain(Step *s, const Product *p)
{
    Ref e = num(s->g, 0);

    for (int n = 0; n < p->ndecays; n++) {
        const Leaf *l = leaf_at(s->m, p->decay[n].u);
        if (!l || l->kind < LEAF_CUMSUM)
            e = add(s, e, mul(s, difference(s, p->decay[n].u, 1),
                              own(s, p->decay[n].w)));
    }
    return e;
}

static int delay_of(const Product *p)
{
    return p->lo > 1 ? (int)p->lo - 1 : 0;
}

static bool same_state(const Product *a, const Product *b)
{
    return !b->value && a->col == b->col && delay_of(a) == delay_of(b)
        && a->ndecays == b->ndecays
        && !memcmp(a->decay, b->decay, (size_t)a->ndecays * sizeof *a->decay);
}

/* S's update, which is the band's first distance less one behind: in decays,
 * too, so that no exponent takes back what another has added. */
static void lower_state(Step *s, const Product *p, Ref state)
{
    int delay = delay_of(p);
    Ref gain = add(s, own(s, leaf_gain(s->m, p, delay)),
                   back(s, other_gain(s, p), delay));
    Ref key = back(s, mul(s, own(s, p->col), s->k), delay);
    Ref write = mul(s, key, back(s, s->v, delay));
    Ref kept = mul(s, op1(s->g, OP_exp, gain), state);

    state_of(s, state)->next = add(s, kept, write);
}

static void lower_read(Step *s, const Product *p, Ref state)
{
    Ref e = own(s, p->extra), from = state_of(s, state)->next;

    if (p->lo > 0) {
        e = own(s, late_extra(s->m, p));
        for (int n = 0; n < p->lo; n++)
            e = add(s, e, back(s, other_gain(s, p), n));
        from = state;
    }
    Ref row = mul(s, own(s, p->row), op1(s->g, OP_exp, e));
    s->y = add(s, s->y, mul(s, row, dot(s->g, s->q, from, s->over)));
}

static void lower_products(Step *s)
{
    Mask *m = s->m;
    Ref state[MAX_PRODUCTS] = { 0 };
    AxisSet axes = s->g->n[s->k].axes | s->g->n[s->v].axes;
    int count = 0;

    for (int n = 0; n < m->nproducts; n++) {
        const Product *p = &m->product[n];
        for (int o = 0; o < n && !state[n]; o++)
            if (!p->value && same_state(p, &m->product[o]))
                state[n] = state[o];
        if (p->value || state[n])
            continue;
        state[n] = new_state(s, count ? ctx_format(m->ctx, "S_%d", count + 1)
                             : "S", axes);
        count++;
    }
    for (int n = 0; n < m->nproducts; n++) {
        const Product *p = &m->product[n];
        if (p->value)
            continue;
        if (!state_of(s, state[n])->next)
            lower_state(s, p, state[n]);
        lower_read(s, p, state[n]);
    }
}

void mask_step(Mask *m, Graph *g)
{
    Step s = { .m = m, .g = g };

    s.q = input_named(g, "q");
    s.k = input_named(g, "k");
    s.v = input_named(g, "v");
    s.over = g->n[s.k].axes;
    s.y = num(g, 0);
    lower_products(&s);
    for (int n = 0; n < m->nproducts; n++)
        if (m->product[n].value)
            lower_taps(&s, &m->product[n]);
    graph_output(g, "y", s.y);
}
