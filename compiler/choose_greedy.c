/* choose_greedy.c -- a choice of kernels without a proof: each requirement met
 * by the column that adds least; then, while that helps, a column comes in and
 * those that it makes idle go.
 */
#include "choose.h"

#include <string.h>

enum { MAX_CHOSEN = 2 * MAX_TENSORS, MAX_PASSES = 8 };

/* The column that makes t most cheaply beside what is chosen: its price, its
 * loads that nobody stores yet. */
static int cheapest_maker(const Choice *c, int t, const Set *stored,
                          const Set *barred)
{
    int64_t best_price = 0;
    int best = -1;

    for (int i = 0; i < c->ncolumns; i++) {
        const Column *k = &c->column[i];
        if (!set_has(&k->makes, t) || set_meets(&k->loads, barred)
            || set_meets(&k->after, barred))
            continue;
        int64_t price = k->price;
        for (int u = 0; u < c->ntensors; u++) {
            if (set_has(&k->loads, u) && !set_has(stored, u))
                price += 2 * c->store[u] + 1;
            if (set_has(&c->required, u) && set_has(&k->makes, u)
                && !set_has(stored, u))
                price -= k->price / 4;
        }
        if (best < 0 || price < best_price) {
            best = i;
            best_price = price;
        }
    }
    return best;
}

/* Makes t and, first, what its column loads. barred: being made right now. */
static bool make(const Choice *c, int t, uint8_t *chosen, Set *stored,
                 Set barred)
{
    if (set_has(stored, t))
        return true;
    set_add(&barred, t);
    int i = cheapest_maker(c, t, stored, &barred);
    if (i < 0)
        return false;
    for (int u = 0; u < c->ntensors; u++)
        if ((set_has(&c->column[i].loads, u)
             || set_has(&c->column[i].after, u))
            && !make(c, u, chosen, stored, barred))
            return false;
    chosen[i] = 1;
    *stored = set_union(*stored, &c->column[i].makes);
    return true;
}

/* ---- improving ---- */

/* Columns that are chosen, and what they come to. */
typedef struct Chosen {
    int n, column[MAX_CHOSEN];
    int64_t price;                      /* -1: they do not do */
} Chosen;

/* What is to be stored if all but column number `less` stay. */
static Set wanted_by(const Choice *c, const Chosen *s, int less)
{
    Set wanted = c->required;

    for (int i = 0; i < s->n; i++)
        if (i != less)
            wanted = set_union(wanted, &c->column[s->column[i]].loads);
    return wanted;
}

static bool idle(const Choice *c, const Chosen *s, int less)
{
    Set wanted = wanted_by(c, s, less), made = { 0 };

    for (int i = 0; i < s->n; i++)
        if (i != less)
            made = set_union(made, &c->column[s->column[i]].makes);
    return set_within(&wanted, &made);
}

/* As choice_check, for a few columns. */
static int64_t price_of(const Choice *c, const Chosen *s)
{
    Set have = { 0 }, wanted = wanted_by(c, s, -1);
    bool done[MAX_CHOSEN] = { 0 };
    int left = s->n;
    int64_t price = 0;

    for (int before = left + 1; left < before;) {
        before = left;
        for (int i = 0; i < s->n; i++) {
            const Column *k = &c->column[s->column[i]];
            if (done[i] || !set_within(&k->loads, &have)
                || !set_within(&k->after, &have))
                continue;
            done[i] = true;
            left--;
            price += k->price;
            have = set_union(have, &k->makes);
        }
    }
    for (int t = 0; t < c->ntensors; t++)
        if (set_has(&wanted, t))
            price += c->store[t];
    return left || !set_within(&wanted, &have) ? -1 : price;
}

/* Throws out what is idle, if the rest does: the dearest first. `keep` (a
 * number, or -1) stays. */
static void drop_idle(const Choice *c, Chosen *s, int keep)
{
    bool kept[MAX_CHOSEN + 1] = { 0 };

    kept[keep < 0 ? MAX_CHOSEN : keep] = true;
    s->price = price_of(c, s);
    while (s->price >= 0) {
        int worst = -1;
        for (int i = 0; i < s->n; i++)
            if (!kept[i] && (worst < 0 || c->column[s->column[i]].price
                                        > c->column[s->column[worst]].price))
                worst = i;
        if (worst < 0)
            break;
        kept[worst] = true;
        Chosen less = *s;
        less.column[worst] = less.column[--less.n];
        if (!idle(c, s, worst) || (less.price = price_of(c, &less)) < 0)
            continue;
        kept[worst] = kept[less.n];
        *s = less;
    }
}

static bool improve(const Choice *c, Chosen *s)
{
    bool better = false;

    for (int i = 0; i < c->ncolumns && s->n < MAX_CHOSEN; i++) {
        Chosen with = *s;
        with.column[with.n++] = i;
        drop_idle(c, &with, with.n - 1);
        if (with.price < 0 || with.price >= s->price)
            continue;
        *s = with;
        better = true;
    }
    return better;
}

bool choose_greedy(Ctx *ctx, const Choice *c, const Answer *start,
                   Answer *out)
{
    uint8_t *chosen = ctx_alloc(ctx, (size_t)c->ncolumns + 1);
    Set stored = { 0 };
    Chosen s = { 0 };

    for (int i = 0; start && i < start->n; i++)
        chosen[start->column[i]] = 1;
    for (int t = 0; !start && t < c->ntensors; t++)
        if (set_has(&c->required, t)
            && !make(c, t, chosen, &stored, (Set){ 0 }))
            return false;
    for (int i = 0; i < c->ncolumns; i++)
        if (chosen[i] && s.n < MAX_CHOSEN)
            s.column[s.n++] = i;
    drop_idle(c, &s, -1);
    for (int pass = 0; s.price >= 0 && pass < MAX_PASSES; pass++)
        if (!improve(c, &s))
            break;
    memset(chosen, 0, (size_t)c->ncolumns);
    for (int i = 0; i < s.n; i++)
        chosen[s.column[i]] = 1;
    out->solver = SOLVER_GREEDY;
    out->optimal = false;
    out->bound = -1;
    return choice_check(ctx, c, chosen, out, NULL);
}
