/* choose.c -- the choice of kernels: exact check, shortest path. */
#include "choose.h"

#include <string.h>

bool choice_check(Ctx *ctx, const Choice *c, const uint8_t *chosen,
                  Answer *out, uint8_t *stuck)
{
    Set have = { 0 }, wanted = c->required, made = { 0 };
    uint8_t *left = ctx_alloc(ctx, (size_t)c->ncolumns);
    int total = 0;

    memcpy(left, chosen, (size_t)c->ncolumns);
    for (int i = 0; i < c->ncolumns; i++) {
        total += left[i];
        if (left[i]) {
            wanted = set_union(wanted, &c->column[i].loads);
            made = set_union(made, &c->column[i].makes);
        }
    }
    out->column = ctx_alloc(ctx, (size_t)(total + 1) * sizeof *out->column);
    out->n = 0;
    out->price = 0;
    out->stored = wanted;
    for (int before = -1; before < out->n;) {
        before = out->n;
        for (int i = 0; i < c->ncolumns; i++) {
            Set needs = set_union(c->column[i].loads, &c->column[i].after);
            if (!left[i] || !set_within(&needs, &have))
                continue;
            left[i] = 0;
            out->column[out->n++] = i;
            out->price += c->column[i].price;
            have = set_union(have, &c->column[i].makes);
        }
    }
    if (stuck)
        memcpy(stuck, left, (size_t)c->ncolumns);
    for (int t = 0; t < c->ntensors; t++)
        if (set_has(&wanted, t))
            out->price += c->store[t];
    return out->n == total && set_within(&wanted, &made);
}

/* ---- shortest path ---- */

typedef struct Place {
    Set have;                           /* stored so far */
    int64_t price;
    int from, column;
    bool done;
} Place;

typedef struct Paths {
    Ctx *ctx;
    const Choice *c;
    Place *place;
    int n, limit;
    int *hash, cap;
} Paths;

static int find_place(Paths *p, const Set *s)
{
    uint64_t h = s->w[0] * 0x9e3779b97f4a7c15u ^ s->w[1] * 0xc2b2ae3d27d4eb4fu
               ^ s->w[2] * 0x165667b19e3779f9u;

    for (h ^= h >> 31;; h++) {
        int *slot = &p->hash[h & (uint64_t)(p->cap - 1)];
        if (!*slot) {
            if (p->n == p->limit)
                return -1;
            p->place[p->n] = (Place){ .have = *s, .price = INT64_MAX };
            *slot = ++p->n;
        }
        if (set_equal(&p->place[*slot - 1].have, s))
            return *slot - 1;
    }
}

/* What may be of use later: loaded by some column or required. */
static Set useful(const Choice *c)
{
    Set s = c->required;

    for (int i = 0; i < c->ncolumns; i++) {
        s = set_union(s, &c->column[i].loads);
        s = set_union(s, &c->column[i].after);
    }
    return s;
}

/* From place `at`, column i is run and `keep` of what it makes is stored. */
static bool step_to(Paths *p, int at, int i, const Set *keep)
{
    Set s = set_union(p->place[at].have, keep);
    int to = find_place(p, &s);
    int64_t price = p->place[at].price + p->c->column[i].price;

    if (to < 0)
        return false;
    for (int t = 0; t < p->c->ntensors; t++)
        if (set_has(keep, t))
            price += p->c->store[t];
    if (price < p->place[to].price) {
        p->place[to].price = price;
        p->place[to].from = at;
        p->place[to].column = i;
    }
    return true;
}

/* Every choice of what to store of what column i makes: required ones
 * always, of the others each subset. */
static bool run_column(Paths *p, int at, int i, const Set *use)
{
    const Column *k = &p->c->column[i];
    Set needs = set_union(k->loads, &k->after), fresh, keep = { 0 };
    int free[MAX_TENSORS], n = 0;

    if (!set_within(&needs, &p->place[at].have))
        return true;
    fresh = set_minus(k->makes, &p->place[at].have);
    for (int t = 0; t < p->c->ntensors; t++) {
        if (!set_has(&fresh, t) || !set_has(use, t))
            continue;
        if (set_has(&p->c->required, t))
            set_add(&keep, t);
        else
            free[n++] = t;
    }
    if (n > 16)
        return false;
    for (uint32_t m = 0; m < 1u << n; m++) {
        Set s = keep;
        for (int b = 0; b < n; b++)
            if (m >> b & 1)
                set_add(&s, free[b]);
        if ((s.w[0] | s.w[1] | s.w[2]) && !step_to(p, at, i, &s))
            return false;
    }
    return true;
}

static int nearest(const Paths *p)
{
    int best = -1;

    for (int i = 0; i < p->n; i++)
        if (!p->place[i].done && p->place[i].price < INT64_MAX
            && (best < 0 || p->place[i].price < p->place[best].price))
            best = i;
    return best;
}

bool choose_dp(Ctx *ctx, const Choice *c, int limit, Answer *out)
{
    Paths p = { .ctx = ctx, .c = c, .limit = limit, .cap = 4 };
    uint8_t *chosen = ctx_alloc(ctx, (size_t)c->ncolumns + 1);
    Set use = useful(c), none = { 0 };
    int at;

    while (p.cap < 2 * limit)
        p.cap *= 2;
    p.hash = ctx_alloc(ctx, (size_t)p.cap * sizeof *p.hash);
    p.place = ctx_alloc(ctx, (size_t)limit * sizeof *p.place);
    p.place[find_place(&p, &none)].price = 0;
    for (;;) {
        at = nearest(&p);
        if (at < 0)
            return false;
        if (set_within(&c->required, &p.place[at].have))
            break;
        p.place[at].done = true;
        ctx_poll(ctx);
        for (int i = 0; i < c->ncolumns; i++)
            if (!run_column(&p, at, i, &use))
                return false;
    }
    for (int i = at; p.place[i].price > 0; i = p.place[i].from)
        chosen[p.place[i].column] = 1;
    out->solver = SOLVER_DP;
    out->optimal = true;
    out->bound = (double)p.place[at].price;
    return choice_check(ctx, c, chosen, out, NULL)
        && out->price == p.place[at].price;
}

/* ---- all together ---- */

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
            return choose_dp(ctx, c, 4096, out);
        out->price = INT64_MAX;
    }
    if (start && choose_greedy(ctx, c, start, &better)
        && better.price <= out->price)
        *out = better;
    if (choose_glpk(ctx, c, out, 2.0, &better))
        *out = better;
    if (!out->optimal && choose_dp(ctx, c, 2048, &better))
        *out = better;
    return true;
}
