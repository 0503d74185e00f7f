/* choose.c -- the choice of kernels: shortest path, the best of all ways. */
#include "choose.h"

#include <string.h>

/* What has been stored, and what may still be to pay: `rest` never says more
 * than the cheapest way on costs. */
typedef struct Place {
    Set have;
    int64_t price, rest;
    int from, column;
    int queued;                         /* where in the queue, from 1; 0: not */
} Place;

typedef struct Paths {
    Ctx *ctx;
    const Choice *c;
    Place *place;
    int n, limit;
    int *hash, cap;
    int *queue, nqueue;                 /* the nearest first: a heap */
    int64_t most;                       /* what costs as much is not wanted */
    Set always;                         /* what every answer stores */
    int64_t share[MAX_TENSORS];         /* of these: storing it, and its part
                                           of a column at least */
    int64_t *left, *part;               /* of the columns' prices */
    Set *needs, *makes;                 /* of each column: what is stored
                                           before; what of use it makes */
    int64_t tries;
    int64_t bound;                      /* no way costs less: that of the place
                                           that is being left */
} Paths;

/* What every column loads that makes t. */
static Set needed_for(const Choice *c, int t)
{
    Set s = { { UINT64_MAX, UINT64_MAX, UINT64_MAX } };
    bool made = false;

    for (int i = 0; i < c->ncolumns; i++)
        if (set_has(&c->column[i].makes, t)) {
            Set other = set_minus(s, &c->column[i].loads);
            s = set_minus(s, &other);
            made = true;
        }
    return made ? s : (Set){ 0 };
}

/* What every answer stores: what is required, and what it takes to make it. */
static Set stored_always(const Choice *c)
{
    Set s = c->required, before, needs;

    do {
        before = s;
        for (int t = 0; t < c->ntensors; t++)
            if (set_has(&before, t)) {
                needs = needed_for(c, t);
                s = set_union(s, &needs);
            }
    } while (!set_equal(&s, &before));
    return s;
}

/* t's share grows by what is left of the price of each column that makes it,
 * or by an even part of that. */
static void raise_share(Paths *p, int t, bool even)
{
    const Choice *c = p->c;
    int64_t most = INT64_MAX;

    for (int i = 0; i < c->ncolumns; i++) {
        int64_t part = even ? p->part[i] : p->left[i];
        if (set_has(&c->column[i].makes, t) && part < most)
            most = part;
    }
    if (most == INT64_MAX)              /* nobody makes it: no answer */
        return;
    for (int i = 0; i < c->ncolumns; i++)
        if (set_has(&c->column[i].makes, t))
            p->left[i] -= most;
    p->share[t] += most;
}

/* Such that the shares of what a column makes come to its price at most: then
 * those of what is not made yet are no more than the columns that are to make
 * it. */
static void find_shares(Paths *p)
{
    const Choice *c = p->c;

    for (int i = 0; i < c->ncolumns; i++) {
        int n = 0;
        for (int t = 0; t < c->ntensors; t++)
            n += set_has(&c->column[i].makes, t) && set_has(&p->always, t);
        p->left[i] = c->column[i].price;
        p->part[i] = p->left[i] / (n ? n : 1);
    }
    for (int even = 1; even >= 0; even--)
        for (int t = 0; t < c->ntensors; t++)
            if (set_has(&p->always, t))
                raise_share(p, t, even);
    for (int t = 0; t < c->ntensors; t++)
        if (set_has(&p->always, t))
            p->share[t] += c->store[t];
}

static int64_t rest_of(const Paths *p, const Set *have)
{
    int64_t rest = 0;

    for (int t = 0; t < p->c->ntensors; t++)
        if (!set_has(have, t))
            rest += p->share[t];
    return rest;
}

/* Ties by number: the same input gives the same answer. */
static bool nearer(const Paths *p, int a, int b)
{
    int64_t x = p->place[a].price + p->place[a].rest;
    int64_t y = p->place[b].price + p->place[b].rest;

    return x < y || (x == y && a < b);
}

static void put(Paths *p, int slot, int at)
{
    p->queue[slot - 1] = at;
    p->place[at].queued = slot;
}

/* The place has come nearer, or is new: up it goes. */
static void raise(Paths *p, int at)
{
    int slot = p->place[at].queued;

    if (!slot)
        slot = ++p->nqueue;
    for (; slot > 1 && nearer(p, at, p->queue[slot / 2 - 1]); slot /= 2)
        put(p, slot, p->queue[slot / 2 - 1]);
    put(p, slot, at);
}

/* Takes the nearest out of the queue; -1: it is empty. */
static int nearest(Paths *p)
{
    int first, last, slot = 1;

    if (!p->nqueue)
        return -1;
    first = p->queue[0];
    last = p->queue[--p->nqueue];
    p->place[first].queued = 0;
    if (first == last)
        return first;
    for (int next; (next = 2 * slot) <= p->nqueue; slot = next) {
        if (next < p->nqueue
            && nearer(p, p->queue[next], p->queue[next - 1]))
            next++;
        if (!nearer(p, p->queue[next - 1], last))
            break;
        put(p, slot, p->queue[next - 1]);
    }
    put(p, slot, last);
    return first;
}

static int find_place(Paths *p, const Set *s)
{
    uint64_t h = s->w[0] * 0x9e3779b97f4a7c15u ^ s->w[1] * 0xc2b2ae3d27d4eb4fu
               ^ s->w[2] * 0x165667b19e3779f9u;

    for (h ^= h >> 31;; h++) {
        int *slot = &p->hash[h & (uint64_t)(p->cap - 1)];
        if (!*slot) {
            if (p->n == p->limit)
                return -1;
            p->place[p->n] = (Place){ .have = *s, .price = INT64_MAX,
                                      .rest = rest_of(p, s) };
            *slot = ++p->n;
        }
        if (set_equal(&p->place[*slot - 1].have, s))
            return *slot - 1;
    }
}

/* Of use later is what some column loads or what is required. */
static void find_uses(Paths *p)
{
    const Choice *c = p->c;
    Set use = c->required;

    for (int i = 0; i < c->ncolumns; i++) {
        p->needs[i] = set_union(c->column[i].loads, &c->column[i].after);
        use = set_union(use, &p->needs[i]);
    }
    for (int i = 0; i < c->ncolumns; i++) {
        Set other = set_minus(c->column[i].makes, &use);
        p->makes[i] = set_minus(c->column[i].makes, &other);
    }
}

/* Column i, run at `at`, with what it has made stored in s, for this price;
 * `rest` as of what it makes of what is required. */
typedef struct Step { int at, i, nfree; int64_t rest; int free[MAX_TENSORS]; }
    Step;

/* Each choice of what else to store: the first n of step->free. */
static bool store_some(Paths *p, const Step *step, int n, Set s, int64_t price)
{
    if (price + step->rest >= p->most)
        return true;
    if (++p->tries > (int64_t)p->limit * 256)
        return false;
    if (n) {
        int t = step->free[n - 1];
        if (!store_some(p, step, n - 1, s, price))
            return false;
        set_add(&s, t);
        return store_some(p, step, n - 1, s, price + p->c->store[t]);
    }
    if (set_equal(&s, &p->place[step->at].have))
        return true;
    int to = find_place(p, &s);
    if (to < 0)
        return false;
    if (price < p->place[to].price) {
        p->place[to].price = price;
        p->place[to].from = step->at;
        p->place[to].column = step->i;
        raise(p, to);
    }
    return true;
}

/* Of what is not stored always each subset. */
static bool run_column(Paths *p, int at, int i)
{
    Set s = p->place[at].have, fresh = set_minus(p->makes[i], &s);
    int64_t price = p->place[at].price + p->c->column[i].price;
    Step step = { .at = at, .i = i, .rest = p->place[at].rest };

    for (int w = 0; w < MAX_TENSORS / 64; w++)
        for (uint64_t left = fresh.w[w]; left; left &= left - 1) {
            int t = 64 * w + __builtin_ctzll(left);
            if (!set_has(&p->always, t)) {
                step.free[step.nfree++] = t;
                continue;
            }
            set_add(&s, t);
            price += p->c->store[t];
            step.rest -= p->share[t];
        }
    return store_some(p, &step, step.nfree, s, price);
}

static bool makes_more(const Paths *p, int at, int i)
{
    const Set *have = &p->place[at].have;

    return set_within(&p->needs[i], have) && !set_within(&p->makes[i], have);
}

/* The place where all that is required is stored, by the cheapest way; -1:
 * there is none that costs less than p->most; -2: too many places. */
static int search(Paths *p)
{
    Set none = { 0 };
    int at = find_place(p, &none);

    p->place[at].price = 0;
    raise(p, at);
    while ((at = nearest(p)) >= 0) {
        if (set_within(&p->c->required, &p->place[at].have))
            return at;
        p->bound = p->place[at].price + p->place[at].rest;
        ctx_poll(p->ctx);
        for (int i = 0; i < p->c->ncolumns; i++)
            if (makes_more(p, at, i) && !run_column(p, at, i))
                return -2;
    }
    return -1;
}

bool choose_dp(Ctx *ctx, const Choice *c, const Answer *start, int limit,
               Answer *out)
{
    Paths *p = ctx_alloc(ctx, sizeof *p);
    uint8_t *chosen = ctx_alloc(ctx, (size_t)c->ncolumns + 1);
    int at;

    *p = (Paths){ .ctx = ctx, .c = c, .limit = limit, .cap = 4,
                  .most = start ? start->price : INT64_MAX,
                  .always = stored_always(c) };
    while (p->cap < 2 * limit)
        p->cap *= 2;
    p->hash = ctx_alloc(ctx, (size_t)p->cap * sizeof *p->hash);
    p->place = ctx_alloc(ctx, (size_t)limit * sizeof *p->place);
    p->queue = ctx_alloc(ctx, (size_t)limit * sizeof *p->queue);
    p->left = ctx_alloc(ctx, (size_t)c->ncolumns * sizeof *p->left);
    p->part = ctx_alloc(ctx, (size_t)c->ncolumns * sizeof *p->part);
    p->needs = ctx_alloc(ctx, (size_t)c->ncolumns * sizeof *p->needs);
    p->makes = ctx_alloc(ctx, (size_t)c->ncolumns * sizeof *p->makes);
    find_uses(p);
    find_shares(p);
    at = search(p);
    if (at == -1 && start) {            /* nothing is cheaper */
        *out = *start;
        out->solver = SOLVER_DP;
        out->optimal = true;
        out->bound = (double)out->price;
        return true;
    }
    out->bound = (double)p->bound;
    if (at < 0)
        return false;
    for (int i = at; p->place[i].price > 0; i = p->place[i].from)
        chosen[p->place[i].column] = 1;
    out->solver = SOLVER_DP;
    out->optimal = true;
    out->bound = (double)p->place[at].price;
    return choice_check(ctx, c, chosen, out, NULL)
        && out->price == p->place[at].price;
}

/* ---- all together ---- */

/* Where there are more, the shortest path is not looked for on. */
enum { PLACES = 65536 };

double answer_gap(const Answer *a)
{
    double gap = 1 - a->bound / (double)a->price;

    if (a->optimal)
        return 0;
    return a->bound < 0 || a->price <= 0 ? -1 : gap > 0 ? gap : 0;
}

bool choose(Ctx *ctx, const Choice *c, const Answer *start, Answer *out)
{
    Answer better;

    if (!choose_greedy(ctx, c, NULL, out)) {
        if (!start)
            return choose_dp(ctx, c, NULL, PLACES, out);
        out->price = INT64_MAX;
    }
    if (start && choose_greedy(ctx, c, start, &better)
        && better.price <= out->price)
        *out = better;
    if (choose_glpk(ctx, c, out, 2.0, &better))
        *out = better;
    if (out->optimal)
        return true;
    if (choose_dp(ctx, c, out, PLACES, &better))
        *out = better;
    else if (better.bound > out->bound)
        out->bound = better.bound;
    return true;
}
