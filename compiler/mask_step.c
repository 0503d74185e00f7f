/* mask_step.c -- from factors to the step that computes the mask.
 *
 *     S = exp(g) S + outer(col k, v),     y = sum of (row q) . S
 *
 * one state S for each decay and column factor. What the mask reads may have
 * the axes of keys: then it is a mask for each of these; or of values. A band
 * that begins at i - j = 1 reads S as the token finds it; one that begins later
 * also decays and writes late.
 * What looks back by a few tokens goes through chains of previous values. What
 * looks back further, and bands, read a ring: a state with an axis of so many
 * places, a power of two, in which each token overwrites the place of the one
 * that is as many tokens older,
 *
 *     R = where(place == position mod places, x, R)
 *
 * so that a band is one read, with a weight for each place by its token's age.
 * What is computed over all pairs of tokens keeps them in such rings, too, to
 * go on token by token; behind places of their own for the first tokens of the
 * sequence, where all rows weigh these.
 */
#include "mask.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CHAINED = 24,                /* states: short chains are faster
                                           than rings */
       RING = -1,                       /* the distance of a ring's tokens */
       MAX_NAMES = 16 };

typedef struct Step {
    Mask *m;
    Graph *g;
    Ref q, k, v, y;
    AxisSet over;
    MaskImage own;                      /* a mask's value at the token's own
                                           i (or j) */
    Ref position;
    struct { Ref x, prev; const char *name; int depth; } prevs[MAX_STATES];
    struct { Ref x, sum; } sums[MAX_NAMES];
    struct { Ref x, state; bool sum; } rings[MAX_STATES];
    int nprevs, nsums, nrings;
    int64_t near;                       /* tokens back, without a ring */
    int places, axis;                   /* of the rings; places 0: none */
    int first;                          /* places of the first tokens, which
                                           stay */
    bool once;                          /* a place is written once: there are
                                           no more tokens than places */
    Ref score;                          /* of all pairs: each place's */
    Ref age;                            /* of each place's token */
    Ref inside;                         /* where it is in the band that is
                                           being weighed; 0: no such */
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

static const char *name_of(const Step *s, Ref x, int count)
{
    const Node *n = &s->g->n[x];

    return n->op == OP_input ? s->g->in[n->index].name
        : n->op == OP_state ? s->g->st[n->index].name
        : ctx_format(s->m->ctx, "%d", count);
}

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
    if (!base)
        base = name_of(s, x, s->nprevs + 1);
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

/* The token's number in its sequence, from 0. */
static Ref position(Step *s)
{
    if (!s->position) {
        s->position = new_state(s, "position", 0);
        state_of(s, s->position)->next = add(s, s->position, num(s->g, 1));
    }
    return s->position;
}

/* 1 at the token's own place. A division by a power of two is exact. */
static Ref own_place(Step *s)
{
    Graph *g = s->g;
    if (s->once)
        return op2(g, OP_eq, position(s), count_along(g, s->axis));
    Ref n = num(g, s->places - s->first);
    Ref behind = op2(g, OP_sub, position(s), num(g, s->first));
    Ref turns = op1(g, OP_floor, op2(g, OP_div, behind, n));
    if (s->first)
        turns = op2(g, OP_max, turns, num(g, 0));
    Ref place = op2(g, OP_sub, position(s), mul(s, n, turns));

    return op2(g, OP_eq, place, count_along(g, s->axis));
}

/* Says what the state keeps, for who knows all tokens (mask_window.c). */
static void note_ring(Step *s, Ref state, Ref x, bool sum)
{
    s->m->ring[s->m->nrings++] = (Ring){ (int)s->g->n[state].index, x, sum };
}

/* What a ring keeps: all but the token's own place. */
static Ref kept(Step *s)
{
    return op3(s->g, OP_where, own_place(s), num(s->g, 0), num(s->g, 1));
}

/* x of each place's token; or the sum of x over the tokens since. -inf, which
 * no sum would forget, is the largest number of which sums are finite; by
 * itself the largest number, which other places take 0 times. */
static Ref ring(Step *s, Ref x, bool sum)
{
    Graph *g = s->g;
    AxisSet axes = g->n[x].axes | AXIS(s->axis);

    if (!sum && !g->n[x].timed)
        return x;
    for (int i = 0; i < s->nrings; i++)
        if (s->rings[i].x == x && s->rings[i].sum == sum)
            return state_of(s, s->rings[i].state)->next;
    const char *name = ctx_format(s->m->ctx, sum ? "band_%s_cumsum"
                                  : "band_%s", name_of(s, x, s->nrings + 1));
    Ref st = new_state(s, name, axes);
    Ref finite = x == s->k || x == s->v ? x
        : op2(g, OP_max, x, num(g, sum ? -1e30 : -3e38));
    Ref in = mul(s, sum ? kept(s) : own_place(s), finite);
    Ref next = add(s, mul(s, kept(s), st), in);
    state_of(s, st)->next = next;
    note_ring(s, st, finite, sum);
    s->rings[s->nrings].x = x;
    s->rings[s->nrings].sum = sum;
    s->rings[s->nrings++].state = st;
    return next;
}

/* How many tokens ago each place's was. */
static Ref age(Step *s)
{
    if (!s->age) {
        Ref st = new_state(s, "band_age", AXIS(s->axis));
        Ref in = mul(s, kept(s), add(s, st, num(s->g, 1)));
        s->age = state_of(s, st)->next = in;
        note_ring(s, st, num(s->g, 1), true);
    }
    return s->age;
}

static Ref aged(Step *s, int64_t tokens)
{
    return op2(s->g, OP_eq, age(s), num(s->g, (double)tokens));
}

static Ref back(Step *s, Ref x, int64_t tokens)
{
    if (!s->g->n[x].timed)
        return x;
    if (tokens > s->near)
        return dot(s->g, aged(s, tokens), ring(s, x, false), AXIS(s->axis));
    while (tokens-- > 0)
        x = previous(s, x);
    return x;
}

static Ref running_sum(Step *s, const char *name)
{
    Ref x = input_named(s->g, name);

    for (int n = 0; n < s->nsums; n++)
        if (s->sums[n].x == x)
            return s->sums[n].sum;
    Ref st = new_state(s, ctx_format(s->m->ctx, "%s_cumsum", name),
                       s->g->n[x].axes);
    state_of(s, st)->next = add(s, st, x);
    s->sums[s->nsums].x = x;
    return s->sums[s->nsums++].sum = state_of(s, st)->next;
}

static Ref own_leaf(void *ud, const Leaf *l)
{
    Step *s = ud;

    switch (l->kind) {
    case LEAF_CONSTANT: return input_named(s->g, l->name);
    case LEAF_TOKEN: return back(s, input_named(s->g, l->name), l->back);
    case LEAF_CUMSUM: return back(s, running_sum(s, l->name), l->back);
    case LEAF_SCORE:                    /* of pairs */
    case LEAF_POSITION: return position(s);
    }
    return 0;
}

/* A function of one side (or of none), for the token as that side. */
static Ref own(Step *s, Ref root)
{
    return mask_image(s->m, &s->own, s->g, root, own_leaf, s);
}

/* ---- bands: weights at a fixed distance d = i - j, or at each place's ---- */

static Ref tap(Step *s, Ref r, int64_t d);

static const Leaf *leaf_at(const Mask *m, Ref r)
{
    const Node *n = &m->g->n[r];
    return n->op == OP_input ? &m->leaf[n->index] : NULL;
}

/* A weight is made of x only where there is a token to be weighed, so that no
 * gradient comes from elsewhere, where a weight may be infinite. */
static Ref guarded(Step *s, Ref x)
{
    if (!s->inside || s->g->n[x].op == OP_num)
        return x;
    return op3(s->g, OP_where, s->inside, x, num(s->g, 0));
}

static Ref own_inside(Step *s, Ref r)
{
    return guarded(s, own(s, r));
}

static Ref tokens_back(Step *s, int64_t d)
{
    return d == RING ? age(s) : num(s->g, (double)d);
}

/* x of j's token */
static Ref earlier(Step *s, Ref x, int64_t d)
{
    return guarded(s, d == RING ? ring(s, x, false) : back(s, x, d));
}

/* u(i) - u(i - d) */
static Ref difference(Step *s, Ref u, int64_t d)
{
    const Leaf *l = leaf_at(s->m, u);
    Ref sum = num(s->g, 0);

    if (l && l->kind == LEAF_POSITION)
        return tokens_back(s, d);
    if (!l || l->kind != LEAF_CUMSUM)
        return op2(s->g, OP_sub, own_inside(s, u), earlier(s, own(s, u), d));
    Ref x = back(s, input_named(s->g, l->name), l->back);
    if (d == RING)
        return guarded(s, ring(s, x, true));
    if (d > s->near)
        return guarded(s, dot(s->g, aged(s, d), ring(s, x, true),
                              AXIS(s->axis)));
    for (int64_t n = 0; n < d; n++)
        sum = add(s, sum, back(s, x, n));
    return guarded(s, sum);
}

/* A sum in which positions and cumulative sums of i and j meet as
 * differences: with e's coefficients a of u(i) and b of u(j),
 * a u(i) + b u(j) = (a + b) u(i) - b (u(i) - u(j)). */
static Ref tap_sum(Step *s, Linear *e, int64_t d)
{
    Mask *m = s->m;
    Ref y = own_inside(s, e->rest);

    for (int n = 0; n < e->n; n++) {
        Ref atom = e->part[n].atom, u;
        Ref exact = own(s, e->part[n].coef), c = guarded(s, exact);
        const Leaf *l = leaf_at(m, atom);
        if (!l || l->side != SIDE_J || l->kind < LEAF_CUMSUM) {
            y = add(s, y, mul(s, tap(s, atom, d), c));
            continue;
        }
        u = mask_leaf(m, l->kind, SIDE_I, l->name, l->back);
        y = op2(s->g, OP_sub, y, mul(s, difference(s, u, d), c));
        int at = 0;
        while (at < e->n && e->part[at].atom != u)
            at++;
        if (at == e->n) {
            y = add(s, y, mul(s, own_inside(s, u), c));
            continue;
        }
        /* u(i) has its turn here: what is left of it */
        Ref left = add(s, own(s, e->part[at].coef), exact);
        if (!mask_opposite(m, e->part[at].coef, e->part[n].coef))
            y = add(s, y, mul(s, own_inside(s, u), guarded(s, left)));
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
        return op2(s->g, OP_sub, position(s), tokens_back(s, d));
    if (l && l->kind == LEAF_SCORE)
        return guarded(s, s->score);
    if (!(sides & SIDE_J))
        return own_inside(s, r);
    linear(m, r, &e);
    bool scaled = e.n == 1 && e.part[0].atom != r && is_num(m->g, e.rest, 0);
    if (sides == SIDE_J && !scaled)
        return earlier(s, own(s, r), d);
    if (e.n != 1 || e.part[0].atom != r) {
        pairs_first(m, &e);
        return tap_sum(s, &e, d);
    }
    for (int i = 0; i < op_info[n.op].arity; i++)
        a[i] = tap(s, n.a[i], d);
    s->g->line = n.line;
    return node_copy(s->g, &n, a);
}

/* A weight at this distance, 0 where there is no such token. */
static Ref weight(Step *s, const Product *p, int64_t d)
{
    Graph *g = s->g;
    Ref is_there = op2(g, OP_le, tokens_back(s, d), position(s));

    if (d == RING) {
        Ref lo = num(g, (double)p->lo), hi = num(g, (double)p->hi);
        is_there = mul(s, is_there, mul(s, op2(g, OP_le, lo, age(s)),
                                        op2(g, OP_le, age(s), hi)));
    }
    s->inside = is_there;
    Ref w = tap(s, p->value, d);
    s->inside = 0;
    return op3(g, OP_where, is_there, w, num(g, 0));
}

/* The weights, the queries that they may differ by, times keys. */
static Ref weighed(Step *s, Ref w, Ref keys)
{
    if (s->g->n[w].axes & s->over)
        return dot(s->g, mul(s, w, s->q), keys, s->over);
    return mul(s, w, dot(s->g, s->q, keys, s->over));
}

/* Few tokens, each by itself. */
static void lower_taps(Step *s, const Product *p)
{
    Graph *g = s->g;

    for (int64_t d = p->lo; d <= p->hi; d++) {
        Ref w = d > 0 ? weight(s, p, d) : tap(s, p->value, d);
        if (is_num(g, w, 0))
            continue;
        Ref qk = weighed(s, w, back(s, s->k, d));
        s->y = add(s, s->y, mul(s, qk, back(s, s->v, d)));
    }
}

/* All bands in one read of the rings. */
static void lower_bands(Step *s)
{
    Graph *g = s->g;
    Ref w = num(g, 0);

    for (int n = 0; n < s->m->nproducts; n++)
        if (s->m->product[n].value)
            w = add(s, w, weight(s, &s->m->product[n], RING));
    Ref qk = weighed(s, w, ring(s, s->k, false));
    s->y = add(s, s->y, dot(g, qk, ring(s, s->v, false), AXIS(s->axis)));
}

/* ---- products ---- */

/* What the decay's exponent gained in the token that is so far back, where it
 * is a plain sum of the mask's own values; the others' part is added by
 * other_gain. */
static Ref leaf_gain(Mask *m, const Product *p, int64_t tokens)
{
    Ref e = num(m->g, 0);

    for (int n = 0; n < p->ndecays; n++) {
        const Leaf *l = leaf_at(m, p->decay[n].u);
        Ref x = num(m->g, 1);
        if (!l || l->kind < LEAF_CUMSUM)
            continue;
        if (l->kind == LEAF_CUMSUM)
            x = mask_leaf(m, LEAF_TOKEN, SIDE_I, l->name,
                          (int)tokens + l->back);
        e = op2(m->g, OP_add, e, op2(m->g, OP_mul, x, p->decay[n].w));
    }
    return e;
}

/* How many of the last p->lo tokens are taken one by one: those that extra
 * names, in which a cumulative sum of so many tokens back cancels. */
static int64_t named_tokens(const Step *s, const Product *p)
{
    Mask *m = s->m;
    int64_t most = p->lo <= s->near ? p->lo : 0;

    mask_reach(m, p->extra);
    for (int i = 0; i < m->g->nin; i++)
        if (m->mark[m->g->in[i].node] && m->leaf[i].kind == LEAF_TOKEN
            && m->leaf[i].back >= most && m->leaf[i].back < p->lo)
            most = m->leaf[i].back + 1;
    return most;
}

/* extra + the gains of the last tokens, so many. */
static Ref late_extra(Mask *m, const Product *p, int64_t tokens)
{
    Ref e = p->extra;
    Linear l;

    for (int64_t n = 0; n < tokens; n++)
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
    Ref col = own(s, p->col);
    bool of_values = s->g->n[col].axes && !(s->g->n[col].axes & s->over);
    Ref key = of_values ? s->k : mul(s, col, s->k);
    Ref value = of_values ? mul(s, col, s->v) : s->v;
    Ref write = mul(s, back(s, key, delay), back(s, value, delay));
    Ref kept = mul(s, op1(s->g, OP_exp, gain), state);

    state_of(s, state)->next = add(s, kept, write);
}

/* The exponent of what is read p->lo tokens late, from the decays of those
 * tokens on. */
static Ref late_exponent(Step *s, const Product *p)
{
    int64_t named = named_tokens(s, p);
    Ref e = own(s, late_extra(s->m, p, named));

    for (int n = 0; n < p->ndecays; n++) {
        const Leaf *l = leaf_at(s->m, p->decay[n].u);
        bool other = !l || l->kind < LEAF_CUMSUM;
        int64_t from = other ? 0 : named;
        if (from < p->lo)
            e = add(s, e, mul(s, back(s, difference(s, p->decay[n].u,
                                                    p->lo - from), from),
                              own(s, p->decay[n].w)));
    }
    return e;
}

static void lower_read(Step *s, const Product *p, Ref state)
{
    Ref e = p->lo > 0 ? late_exponent(s, p) : own(s, p->extra);
    Ref from = p->lo > 0 ? state : state_of(s, state)->next;
    Ref row = mul(s, own(s, p->row), op1(s->g, OP_exp, e));

    s->y = add(s, s->y, weighed(s, row, from));
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

/* The furthest that is looked back. */
static int64_t furthest(const Mask *m)
{
    int64_t most = 0;

    for (int n = 0; n < m->nproducts; n++) {
        const Product *p = &m->product[n];
        int64_t back = p->value ? p->hi : p->lo;
        most = back > most ? back : most;
    }
    for (int i = 0; i < m->g->nin; i++)
        most = m->leaf[i].back > most ? m->leaf[i].back : most;
    return most;
}

/* Whether a band weighs its tokens by where they are, j itself. */
static bool weighs_by_place(Mask *m)
{
    for (int n = 0; n < m->nproducts; n++) {
        mask_reach(m, m->product[n].value);
        for (int i = 0; m->product[n].value && i < m->g->nin; i++)
            if (m->mark[m->g->in[i].node] && m->leaf[i].side == SIDE_J
                && m->leaf[i].kind == LEAF_POSITION)
                return true;
    }
    return false;
}

/* How many tokens are looked back at by chains; `more` of which there are
 * beside those of k, v and what the mask reads. */
static int64_t chained(const Mask *m, int more)
{
    int chains = 2 + more;

    for (int i = 0; i < m->g->nin; i++)
        chains += m->leaf[i].back > 0 || (m->leaf[i].side == SIDE_J
            && m->leaf[i].kind != LEAF_POSITION);
    return MAX_CHAINED / chains;
}

static void make_axis(Step *s)
{
    const char *name = "band";

    for (int n = 2; graph_find_axis(s->g, name) >= 0; n++)
        name = ctx_format(s->m->ctx, "band%d", n);
    s->axis = graph_axis(s->g, name);
    s->m->ring_axis = s->axis;
    s->g->axis[s->axis].size = s->places;
}

/* A place for each token that is looked back at, unless k, v and what the mask
 * reads make short chains. */
static void make_places(Step *s)
{
    int64_t most = furthest(s->m);

    s->near = chained(s->m, weighs_by_place(s->m));
    if (most <= s->near)
        return;
    for (s->places = 1; s->places <= most;)
        s->places *= 2;
    make_axis(s);
}

static bool has_band(const Mask *m)
{
    for (int n = 0; n < m->nproducts; n++)
        if (m->product[n].value)
            return true;
    return false;
}

static Step step_on(Mask *m, Graph *g)
{
    Step s = { .m = m, .g = g };

    s.q = input_named(g, m->exchanged ? "k" : "q");
    s.k = input_named(g, m->exchanged ? "q" : "k");
    s.v = input_named(g, "v");
    s.over = g->n[s.k].axes;
    s.y = num(g, 0);
    m->ring_axis = m->nrings = 0;
    return s;
}

static Step begin_step(Mask *m, Graph *g)
{
    Step s = step_on(m, g);

    make_places(&s);
    return s;
}

void mask_step(Mask *m, Graph *g)
{
    Step s = begin_step(m, g);

    lower_products(&s);
    if (s.places && has_band(m))
        lower_bands(&s);
    else
        for (int n = 0; n < m->nproducts; n++)
            if (m->product[n].value)
                lower_taps(&s, &m->product[n]);
    graph_output(g, "y", s.y);
}

MaskState mask_state(Mask *m, Graph *g)
{
    static const char *const help = "one that is a row, a column and a decay "
        "from the diagonal on: if i < j then return 0 end return p.b[j] * "
        "exp(p.g_cumsum[i] - p.g_cumsum[j])";
    const Product *p = &m->product[0];
    MaskState of = { 0 };

    if (m->nproducts != 1 || p->value)
        fail_help(m->ctx, 0, help, "a transition has one state, but the mask "
                  "is %s", p->value ? "a band" : ctx_format(m->ctx,
                  "a sum of %d products", m->nproducts));
    if (p->lo > 0)
        fail_help(m->ctx, 0, help, "a transition is read behind its token, but "
                  "the mask begins at i - j = %lld", (long long)p->lo);
    Step s = begin_step(m, g);
    of.S = new_state(&s, "S", g->n[s.k].axes | g->n[s.v].axes);
    Ref gain = add(&s, own(&s, leaf_gain(m, p, 0)), other_gain(&s, p));
    of.D = op1(g, OP_exp, gain);
    of.kept = mul(&s, of.D, of.S);
    of.w = own(&s, p->col);
    if (is_num(g, of.w, 1))
        of.w = 0;
    of.row = mul(&s, own(&s, p->row), op1(g, OP_exp, own(&s, p->extra)));
    return of;
}

void mask_result(Graph *g, const MaskState *of, Ref next)
{
    Step s = { .g = g, .q = input_named(g, "q") };

    s.over = g->n[s.q].axes;
    g->st[g->n[of->S].index].next = next;
    graph_output(g, "y", weighed(&s, of->row, next));
}

/* ---- all pairs, token by token ---- */

/* Places for the first tokens, as many as all rows weigh; returns those of the
 * ring behind them, for the furthest token that weighs or is looked back at. 0:
 * no bound is known, or it is too far. */
static int64_t ring_places(const Mask *m, int64_t *first)
{
    int64_t ring = 1, most;
    Reach reach;

    *first = 0;
    if (!mask_ends(m, &reach))
        return 0;
    most = reach.width - 1;
    for (int i = 0; i < m->g->nin; i++)
        most = m->leaf[i].back > most ? m->leaf[i].back : most;
    while (ring <= most && ring <= MAX_CACHED)
        ring *= 2;
    *first = reach.first;
    return most < MAX_CACHED && ring + reach.first <= MAX_CACHED ? ring : 0;
}

/* Of a window a ring; else, or where that is shorter, `tokens` places. */
static void cache_places(Step *s, int64_t tokens)
{
    int64_t first, ring = ring_places(s->m, &first);

    s->once = tokens > 0 && (!ring || tokens < first + ring);
    s->first = s->once ? 0 : (int)first;
    s->places = (int)(s->once ? tokens : first + ring);
    s->near = chained(s->m, 0);
    make_axis(s);
}

/* Where in the region the pair of each place's token is. */
static Ref places_inside(Step *s, const Region *r)
{
    Graph *g = s->g;
    Ref of[] = { [VAR_I] = position(s), [VAR_DISTANCE] = age(s),
                 [VAR_J] = op2(g, OP_sub, position(s), age(s)) };
    Ref x = op2(g, OP_le, age(s), position(s));

    for (int v = 0; v < 3; v++) {
        if (r->lo[v] > 0)
            x = mul(s, x, op2(g, OP_le, num(g, (double)r->lo[v]), of[v]));
        if (r->hi[v] < REGION_INF)
            x = mul(s, x, op2(g, OP_le, of[v], num(g, (double)r->hi[v])));
    }
    return x;
}

/* What the pieces say of each place: its weight, or a softmax's logit. */
static Ref place_values(Step *s)
{
    const Mask *m = s->m;
    Ref all = num(s->g, m->softmax ? -INFINITY : 0);

    for (int p = 0; p < m->npieces; p++) {
        const MaskPath *at = &m->piece[p];
        if (pair_masked(m, at->value))
            continue;
        Ref inside = places_inside(s, &at->at);
        s->inside = inside;
        Ref x = tap(s, at->value, RING);
        s->inside = 0;
        all = op3(s->g, OP_where, inside, x, all);
    }
    return all;
}

/* 1 over the square root of how many numbers a key has, or as it is said. */
static Ref score_scale(Step *s)
{
    Graph *g = s->g;
    Ref size = num(g, 1);

    if (!s->m->softmax || s->m->scale != 0)
        return num(g, s->m->softmax ? s->m->scale : 1);
    for (int ax = 0; ax < g->naxes; ax++)
        if (s->over & AXIS(ax))
            size = mul(s, size, axis_size(g, ax));
    return op1(g, OP_rsqrt, size);
}

/* Of a row of which all is left out, 0: less than any number. */
static Ref softmax_read(Step *s, Ref logit)
{
    Graph *g = s->g;
    AxisSet band = AXIS(s->axis);
    Ref most = op2(g, OP_max, row_most(g, logit, band),
                   num(g, -FLT_MAX));
    Ref w = op1(g, OP_exp, op2(g, OP_sub, logit, most));
    Ref all = sum(g, w, band);
    Ref some = op3(g, OP_where, op2(g, OP_lt, num(g, 0), all), all,
                   num(g, 1));

    return op2(g, OP_div, dot(g, w, ring(s, s->v, false), band), some);
}

/* y, and NaN from the first token on that has no place. */
static Ref within_places(Step *s, Ref y)
{
    Graph *g = s->g;
    Ref fits = op2(g, OP_lt, position(s), num(g, s->places));

    return !s->once ? y : add(s, y, op1(g, OP_sqrt, op3(g, OP_where, fits,
                                                        num(g, 0),
                                                        num(g, -1))));
}

static void fill_cache(Mask *m, Graph *g, int64_t tokens)
{
    Step s = step_on(m, g);

    m->work = 0;
    cache_places(&s, tokens);
    Ref keys = ring(&s, s.k, false);
    if (m->softmax) {
        s.score = mul(&s, dot(s.g, s.q, keys, s.over), score_scale(&s));
        s.y = softmax_read(&s, place_values(&s));
    } else {
        Ref qk = weighed(&s, place_values(&s), keys);
        s.y = dot(s.g, qk, ring(&s, s.v, false), AXIS(s.axis));
    }
    graph_output(s.g, "y", within_places(&s, s.y));
    m->kept = s.places;
    m->limit = s.once ? s.places : 0;
    m->first = s.first;
    m->cache = s.g;
}

/* False, and no->why: there is no room for what it is made of. */
static bool new_cache(Mask *m, Graph *g, int64_t tokens, Refusal *no)
{
    if (setjmp(no->end))
        return false;
    m->g->no = g->no = no;
    fill_cache(m, g, tokens);
    return true;
}

void mask_cache(Mask *m, Graph *g, int64_t tokens)
{
    Ctx *c = m->ctx;
    Refusal *no = ctx_alloc(c, sizeof *no);
    int64_t first;

    if (m->whole) {
        m->uncached = ctx_format(c, "%s weighs tokens that are still to come: "
                                 "there is no state to step from", g->name);
        m->uncached_help = "v:forward and v:reference take whole sequences";
    } else if (!tokens && !ring_places(m, &first)) {
        m->uncached = ctx_format(c, "%s weighs all tokens before, and nothing "
                                 "says how many are to be kept", g->name);
        m->uncached_help = "flin.variant { tokens = 4096, ... } keeps that many"
            " keys and values; or end the mask: if i - j >= 4096 then return 0 "
            "end";
    } else if (!new_cache(m, g, tokens, no)) {
        m->uncached = ctx_format(c, "%s cannot go token by token: %s", g->name,
                                 no->why.message);
        m->uncached_help = "v:forward and v:reference take whole sequences";
    }
    m->g->no = g->no = NULL;
}
