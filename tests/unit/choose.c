/* choose.c -- the choice of kernels on random graphs: the integer program and
 * the shortest path find what brute force finds; greedy is never better; the
 * same input gives the same answer. */
#include "random_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 10000, LARGE = 20 };

static int bad, by_glpk;

static void complain(const char *what, int seed)
{
    printf("choose: graph %d: %s\n", seed, what);
    bad++;
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

    bool found = choose_greedy(c, k, NULL, &greedy);
    if (found && greedy.price < truth)
        complain("greedy is better than brute force", t->seed);
    if (!choose_dp(c, k, NULL, 1 << 14, &dp) || dp.price != truth)
        complain("the shortest path differs from brute force", t->seed);
    if (found && (!choose_dp(c, k, &greedy, 1 << 14, &again)
                  || again.price != truth || !again.optimal
                  || again.bound != (double)truth))
        complain("from an answer, the path is another", t->seed);
    if (!choose_dp(c, k, &dp, 1 << 14, &again) || !same(&dp, &again))
        complain("the best answer is not proved", t->seed);
    if (!choose(c, k, NULL, &all) || all.price != truth || !all.optimal)
        complain("the choice differs from brute force", t->seed);
    if (all.bound > (double)truth + 0.5 || answer_gap(&all) != 0
        || (found && answer_gap(&greedy) >= 0))
        complain("what is said to be proved is not", t->seed);
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
#endif
    free(room);
    return bad != 0;
}
