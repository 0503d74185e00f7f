/* choose_faults.c -- GLPK gone wrong. Its functions are wrapped: a price is
 * NaN or infinite, an index is wrong, memory is out, a limit is reached, an
 * answer is infeasible or has been tampered with. All of it is survived, in
 * silence, and the choice is still one that can run.
 */
#define _GNU_SOURCE
#include "random_choice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef FLIN_NO_GLPK

int main(void)
{
    printf("skip a build without GLPK\n");
    return 0;
}

#else

#include <dlfcn.h>
#include <glpk.h>
#include <unistd.h>

enum { FAULTS = 1400 };

/* What goes wrong in a call that returns a number, or in what it is given. */
typedef enum Fault {
    PRICE_NAN, PRICE_INF, PRICE_HUGE, INDEX, COEFFICIENT, MEMORY,
    SIMPLEX_LIMIT, SIMPLEX_SINGULAR, SIMPLEX_STATUS, TREE_LIMIT, TREE_FAILED,
    TREE_STATUS, VALUE_NAN, VALUE_FLIPPED, OBJECTIVE_NAN, OBJECTIVE_HIGH,
    OBJECTIVE_LOW, NFAULTS
} Fault;

/* The fault fires at the `at`-th call that it applies to; and, if it stays,
 * at all later ones. */
static struct { Fault kind; int at, calls, fired; bool on, stays; } now;

static bool fires(Fault kind)
{
    if (!now.on || now.kind != kind)
        return false;
    now.calls++;
    if (now.calls < now.at || (!now.stays && now.calls > now.at))
        return false;
    now.fired++;
    return true;
}

/* ---- GLPK's functions, wrapped ---- */

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) { \
        void *found = dlsym(RTLD_NEXT, #name); \
        memcpy(&real, &found, sizeof real); \
    }

void glp_set_obj_coef(glp_prob *lp, int j, double x)
{
    REAL(void, glp_set_obj_coef, glp_prob *, int, double)
    x = fires(PRICE_NAN) ? NAN : x;
    x = fires(PRICE_INF) ? INFINITY : x;
    real(lp, j, fires(PRICE_HUGE) ? -1e300 : x);
}

void glp_set_mat_row(glp_prob *lp, int i, int n, const int ind[],
                     const double val[])
{
    REAL(void, glp_set_mat_row, glp_prob *, int, int, const int *,
         const double *)
    if (fires(COEFFICIENT) && n > 0)
        ((double *)val)[1] = NAN;
    real(lp, fires(INDEX) ? i + 1000 : i, n, ind, val);
}

int glp_add_rows(glp_prob *lp, int n)
{
    REAL(int, glp_add_rows, glp_prob *, int)
    if (fires(MEMORY))
        glp_mem_limit(1);
    return real(lp, n);
}

int glp_simplex(glp_prob *lp, const glp_smcp *p)
{
    REAL(int, glp_simplex, glp_prob *, const glp_smcp *)
    int end = real(lp, p);
    end = fires(SIMPLEX_LIMIT) ? GLP_EITLIM : end;
    return fires(SIMPLEX_SINGULAR) ? GLP_ESING : end;
}

int glp_get_status(glp_prob *lp)
{
    REAL(int, glp_get_status, glp_prob *)
    return fires(SIMPLEX_STATUS) ? GLP_NOFEAS : real(lp);
}

int glp_intopt(glp_prob *lp, const glp_iocp *p)
{
    REAL(int, glp_intopt, glp_prob *, const glp_iocp *)
    int end = real(lp, p);
    end = fires(TREE_LIMIT) ? GLP_ETMLIM : end;
    return fires(TREE_FAILED) ? GLP_EFAIL : end;
}

int glp_mip_status(glp_prob *lp)
{
    REAL(int, glp_mip_status, glp_prob *)
    return fires(TREE_STATUS) ? GLP_NOFEAS : real(lp);
}

static double tampered(double x)
{
    x = fires(VALUE_NAN) ? NAN : x;
    return fires(VALUE_FLIPPED) ? 1 - x : x;
}

double glp_get_col_prim(glp_prob *lp, int j)
{
    REAL(double, glp_get_col_prim, glp_prob *, int)
    return tampered(real(lp, j));
}

double glp_mip_col_val(glp_prob *lp, int j)
{
    REAL(double, glp_mip_col_val, glp_prob *, int)
    return tampered(real(lp, j));
}

static double objective(double x)
{
    x = fires(OBJECTIVE_NAN) ? NAN : x;
    x = fires(OBJECTIVE_HIGH) ? 1e300 : x;
    return fires(OBJECTIVE_LOW) ? -1e300 : x;
}

double glp_get_obj_val(glp_prob *lp)
{
    REAL(double, glp_get_obj_val, glp_prob *)
    return objective(real(lp));
}

double glp_mip_obj_val(glp_prob *lp)
{
    REAL(double, glp_mip_obj_val, glp_prob *)
    return objective(real(lp));
}

/* ---- one fault ---- */

typedef struct Trial { int seed; const char *wrong; } Trial;

static void judge(Ctx *c, const Choice *k, const Answer *a, Trial *t)
{
    uint8_t *chosen = ctx_alloc(c, (size_t)k->ncolumns);
    Answer check, truth;

    for (int i = 0; i < a->n; i++)
        chosen[a->column[i]] = 1;
    if (!choice_check(c, k, chosen, &check, NULL))
        t->wrong = "the answer cannot run";
    else if (check.price != a->price)
        t->wrong = "the answer's price is wrong";
    else if (choose_dp(c, k, NULL, 1 << 14, &truth) && a->price < truth.price)
        t->wrong = "the answer is better than the best";
}

static void trial(Ctx *c, void *ud)
{
    Trial *t = ud;
    Choice *k = random_choice(c, 8, 8, (uint64_t)t->seed * 977);
    Answer greedy, out;
    bool easy = choose_greedy(c, k, NULL, &greedy);

    now.kind = (Fault)(t->seed % NFAULTS);
    now.at = 1 + t->seed / NFAULTS % 7;
    now.stays = t->seed / NFAULTS / 7 % 2;
    now.calls = 0;
    now.on = true;
    bool found = choose(c, k, NULL, &out);
    now.on = false;
    if (!found)
        t->wrong = "there is no answer";
    else if (easy && out.price > greedy.price)
        t->wrong = "the answer is worse than greedy's";
    else
        judge(c, k, &out, t);
}

/* Standard output and standard error go to a file from here on. */
static FILE *silence(int kept[2])
{
    FILE *f = tmpfile();

    fflush(stdout);
    for (int i = 0; f && i < 2; i++) {
        kept[i] = dup(1 + i);
        dup2(fileno(f), 1 + i);
    }
    return f;
}

/* How much was written meanwhile; -1: there was no file. */
static long speak(FILE *f, const int kept[2])
{
    if (!f)
        return -1;
    fflush(stdout);
    fflush(stderr);
    for (int i = 0; i < 2; i++) {
        dup2(kept[i], 1 + i);
        close(kept[i]);
    }
    fseek(f, 0, SEEK_END);
    long said = ftell(f);
    fclose(f);
    return said;
}

int main(void)
{
    static const char *wrong[FAULTS];
    int bad = 0, kept[2], fired[NFAULTS] = { 0 };
    FILE *f = silence(kept);

    for (int i = 0; i < FAULTS; i++) {
        Ctx *c = ctx_new();
        Trial t = { i, NULL };
        now.fired = 0;
        if (!ctx_protect(c, trial, &t))
            t.wrong = "the choice fails";
        now.on = false;
        wrong[i] = t.wrong;
        fired[i % NFAULTS] += now.fired > 0;
        ctx_free(c);
    }
    long said = speak(f, kept);
    for (int i = 0; i < FAULTS; i++)
        if (wrong[i] && ++bad)
            printf("choose_faults: fault %d of kind %d: %s\n", i,
                   i % NFAULTS, wrong[i]);
    if (said)
        printf("choose_faults: %ld bytes were printed\n", said);
    int all = 0, few = 0;
    for (int i = 0; i < NFAULTS; i++) {
        all += fired[i];
        few += fired[i] < 20;
    }
    if (all < 1000 || few)
        printf("choose_faults: only %d faults struck, %d kinds hardly\n", all,
               few);
    return bad || said || all < 1000 || few;
}

#endif
