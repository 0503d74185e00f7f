/* choose.c -- the choice of kernels on random graphs: the integer program and
 * the shortest path find what brute force finds; greedy is never better; the
 * same input gives the same answer; errors inside GLPK are survived. */
#include "../../compiler/choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FLIN_NO_GLPK
#include <glpk.h>
#endif

enum { SMALL = 10000, LARGE = 20, FAULTS = 1000 };

static int bad, by_glpk;

static void complain(const char *what, int seed)
{
    printf("choose: graph %d: %s\n", seed, what);
    bad++;
}

/* ---- random graphs ---- */

static uint32_t draw(uint64_t *s, uint32_t n)
{
    *s = *s * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((*s >> 33) % n);
}

/* n nodes, each with operands among those before it; columns are single
 * nodes and clusters, convex or not, so that some wait for one another. */
static Choice *random_choice(Ctx *c, int n, int clusters, uint64_t seed)
{
    Choice *k = ctx_alloc(c, sizeof *k);
    Column *col = ctx_alloc(c, (size_t)(n + clusters) * sizeof *col);
    int64_t *store = ctx_alloc(c, (size_t)n * sizeof *store);
    Set needs[16] = { { { 0 } } }, used = { { 0 } };

    for (int i = 0; i < n; i++) {
        store[i] = draw(&seed, 40);
        for (int p = 0; i && p < 2; p++) {
            int from = (int)draw(&seed, (uint32_t)i);
            set_add(&needs[i], from);
            set_add(&used, from);
        }
    }
    for (int i = 0; i < n + clusters; i++) {
        Set s = { { 0 } }, loads = { { 0 } };
        if (i < n)
            set_add(&s, i);
        for (int size = 2 + (int)draw(&seed, 4); i >= n && size > 0; size--)
            set_add(&s, (int)draw(&seed, (uint32_t)n));
        for (int x = 0; x < n; x++)
            if (set_has(&s, x)) {
                loads = set_union(loads, &needs[x]);
                col[i].price += 20 + draw(&seed, 30);
            }
        if (i >= n)
            col[i].price = col[i].price * (30 + draw(&seed, 60)) / 100;
        col[i].makes = s;
        col[i].loads = set_minus(loads, &s);
    }
    for (int i = 0; i < n; i++)
        if (!set_has(&used, i) || draw(&seed, 8) == 0)
            set_add(&k->required, i);
    if (draw(&seed, 4) == 0)            /* a pass that waits for another */
        for (int i = 0; i < n + clusters; i++)
            if (!set_has(&col[i].makes, 0) && n > 2
                && set_has(&col[i].makes, n - 1))
                set_add(&col[i].after, 0);
    if (draw(&seed, 2))
        set_add(&k->required, 0);
    for (int i = 0; i < n + clusters; i++)
        if (set_has(&col[i].after, 0))
            set_add(&k->required, 0);
    *k = (Choice){ n, n + clusters, store, k->required, col };
    return k;
}

/* For each set of tensors to store: the cheapest way to make them all, one
 * column after another. */
static int64_t brute(const Choice *k, int64_t *best_of)
{
    uint32_t all = 1u << k->ntensors;
    uint32_t required = (uint32_t)k->required.w[0];
    int64_t best = INT64_MAX;

    for (uint32_t y = 0; y < all; y++) {
        int64_t price = 0;
        if (required & ~y)
            continue;
        for (int t = 0; t < k->ntensors; t++)
            price += y >> t & 1 ? k->store[t] : 0;
        for (uint32_t h = 0; h <= y; h++)
            best_of[h] = INT64_MAX;
        best_of[0] = price;
        for (uint32_t h = 0; h < y; h++) {
            if (h & ~y || best_of[h] >= best)
                continue;
            for (int i = 0; i < k->ncolumns; i++) {
                const Column *c = &k->column[i];
                uint32_t needs = (uint32_t)(c->loads.w[0] | c->after.w[0]);
                uint32_t to = h | ((uint32_t)c->makes.w[0] & y);
                if (!(needs & ~h) && to != h
                    && best_of[h] + c->price < best_of[to])
                    best_of[to] = best_of[h] + c->price;
            }
        }
        if (best_of[y] < best)
            best = best_of[y];
    }
    return best;
}

/* ---- one graph ---- */

typedef struct Trial { int n, clusters, seed; int64_t *room; } Trial;

static bool same(const Answer *a, const Answer *b)
{
    return a->price == b->price && a->n == b->n
        && set_equal(&a->stored, &b->stored)
        && !memcmp(a->column, b->column, (size_t)a->n * sizeof *a->column);
}

static void trial(Ctx *c, void *ud)
{
    Trial *t = ud;
    Choice *k = random_choice(c, t->n, t->clusters, (uint64_t)t->seed * 977);
    int64_t truth = brute(k, t->room);
    Answer greedy, dp, all, again;

    bool found = choose_greedy(c, k, &greedy);
    if (found && greedy.price < truth)
        complain("greedy is better than brute force", t->seed);
    if (!choose_dp(c, k, 1 << 14, &dp) || dp.price != truth)
        complain("the shortest path differs from brute force", t->seed);
    if (!choose(c, k, NULL, &all) || all.price != truth || !all.optimal)
        complain("the choice differs from brute force", t->seed);
    if (t->seed % 10 == 0 && (!choose(c, k, NULL, &again)
                              || !same(&all, &again)))
        complain("the same input gives another answer", t->seed);
    by_glpk += all.solver == SOLVER_GLPK || !found;
}

static void run_trial(int n, int clusters, int seed, int64_t *room)
{
    Ctx *c = ctx_new();
    Trial t = { n, clusters, seed, room };

    if (!ctx_protect(c, trial, &t))
        complain(c->err.message, seed);
    ctx_free(c);
}

/* ---- errors inside GLPK ---- */

#ifndef FLIN_NO_GLPK
/* Half have no variable at all, which GLPK takes for misuse; the others are
 * more than its memory may hold. Both end the process but for the hook. */
static void fault(Ctx *c, void *ud)
{
    int seed = *(int *)ud;
    Choice *k = random_choice(c, 12, seed % 2 ? 20 : 3000, (uint64_t)seed);
    Choice empty = { 0 };
    Answer greedy, out;

    if (!choose_greedy(c, k, &greedy))
        return;
    if (seed % 2 == 0)
        glp_mem_limit(1);
    if (choose_glpk(c, seed % 2 ? &empty : k, &greedy, 0.5, &out))
        complain("there was no error inside GLPK", seed);
    if (!choose_greedy(c, k, &out))
        complain("no answer after an error inside GLPK", seed);
}
#endif

int main(void)
{
    int64_t *room = malloc((1 << 12) * sizeof *room);

    for (int i = 0; i < SMALL; i++)
        run_trial(2 + i % 7, i % 13, i, room);
    for (int i = 0; i < LARGE; i++)
        run_trial(12, 20, SMALL + i, room);
#ifndef FLIN_NO_GLPK
    /* else the shortest path has answered: too many branches */
    if (by_glpk < (SMALL + LARGE) * 99 / 100)
        complain("too few are solved by the integer program", by_glpk);
    for (int i = 0; i < FAULTS; i++) {
        Ctx *c = ctx_new();
        if (!ctx_protect(c, fault, &i))
            complain(c->err.message, i);
        ctx_free(c);
    }
#endif
    free(room);
    return bad != 0;
}
