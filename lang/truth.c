/* truth.c -- a step's own function on numbers: beside its trace where it is
 * defined, and as the truth of v:reference.
 *
 * Lua compares a value with a number, reads a table at one, or asks whether it
 * is true, without asking anybody: a trace sees none of it. So the function is
 * run on inputs that are what it mentions, and what it gives is compared with
 * what its trace gives.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../compiler/domain.h"
#include "../compiler/eval.h"
#include "concrete.h"
#include "mask_trace.h"
#include "mentions.h"
#include "truth.h"
#include "value.h"
#include "watch.h"

typedef struct Keep { Variant *v; const Tracer *t; } Keep;

static void run_keep(Ctx *c, void *ud)
{
    Keep *k = ud;

    k->v->prevs = ctx_grow(c, NULL, 0, (size_t)k->t->nprevs + 1);
    memcpy(k->v->prevs, k->t->prevs, (size_t)k->t->nprevs);
    k->v->nprevs = k->t->nprevs;
}

void truth_keep(lua_State *L, int variant, int f, const Tracer *t)
{
    Keep k = { variant_check(L, variant), t };

    protect(L, k.v->ctx, run_keep, &k);
    lua_pushvalue(L, f);
    lua_setiuservalue(L, variant, OF_FUNCTION);
    k.v->has_function = true;
}

/* ---- trials: one token, by the function and by its trace ---- */

enum { USUAL = 4, LARGE = 1 << 20, MAX_WANTED = 96, PAIRED = 6, FILLS = 500,
       MIXED = 64, SOLVES = 300, MAX_SOLVED = 24, MAX_PASSING = 160,
       MAX_WAYS = 64, MAX_PINS = 6, MAX_POOL = 16, DEEPER = 1500 };

/* Inputs and states that are given numbers, by which the step goes another way
 * than usual. */
typedef struct Pins {
    int n, slot[MAX_PINS];
    double x[MAX_PINS];
} Pins;

typedef struct Trial {
    lua_State *L;
    const Variant *v;
    const Tracer *t;
    Ctx *ctx;                           /* of this alone */
    Graph *g;                           /* the step, what it has thrown away
                                           among its results */
    Eval *e;
    Concrete run;
    Mentions m;
    Place at;
    Rng rng;
    double wanted[MAX_WANTED];          /* what may be compared with */
    int nwanted, turn;
    double passing[MAX_PASSING];        /* what the step itself computes with,
                                           the same in any run */
    int npassing;
    const char *slot;                   /* that is all `value`, or NULL */
    int filled;                         /* its number, or -1 */
    bool mixed;                         /* others are what is mentioned, too */
    double value;
    bool differs;
    Watch watch;
    uint64_t way[MAX_WAYS];             /* that have been gone */
    int nways;
    Pins pins, pool[MAX_POOL];          /* now; those to go on from */
    int npool;
    double largest;                     /* of all that the trace computes */
} Trial;

/* An input, or behind these a state. */
static int slots(const Trial *a) { return a->v->step->nin + a->v->step->nst; }

static double *slot(Trial *a, int s, int64_t *n, const char **name)
{
    const Graph *g = a->v->step;
    bool input = s < g->nin;
    AxisSet axes = input ? g->in[s].axes : g->st[s - g->nin].axes;

    *name = input ? g->in[s].name : g->st[s - g->nin].name;
    for (*n = 1; axes; axes &= axes - 1)
        *n *= a->run.size[lowest(axes)];
    return input ? a->run.in[s] : a->run.now[s - g->nin];
}

static double usual(Trial *a, int s)
{
    const Graph *g = a->v->step;
    double x = rng_normal(&a->rng);

    if (s >= g->nin)
        return a->turn % 4 < 2 ? fabs(x) : x;
    if (g->in[s].index_of)
        return floor(rng_uniform(&a->rng) * a->run.size[g->in[s].index_of]);
    const Domain *d = domain_named(g->in[s].domain);
    return d->draw(d->uniform ? rng_uniform(&a->rng) : x);
}

static void give(Trial *a, int s, double z)
{
    int64_t n;
    const char *name;
    double *x = slot(a, s, &n, &name);

    for (int64_t k = 0; k < n; k++)
        x[k] = z;
}

static void draw_usual(Trial *a)
{
    const char *name;
    int64_t n;

    for (int s = 0; s < slots(a); s++) {
        double *x = slot(a, s, &n, &name);
        for (int64_t k = 0; k < n; k++)
            x[k] = usual(a, s);
    }
    for (int i = 0; i < a->pins.n; i++)
        give(a, a->pins.slot[i], a->pins.x[i]);
    a->slot = NULL;
    a->filled = -1;
    a->mixed = false;
}

/* Each entry, or all of one, as is mentioned, or a small whole number. */
static void draw_mixed(Trial *a, bool whole)
{
    const char *name;
    int64_t n;

    for (int s = 0; s < slots(a); s++) {
        double *x = slot(a, s, &n, &name);
        for (int64_t k = 0; k < n; k++) {
            double u = rng_uniform(&a->rng) * (whole ? 0.25 : 1);
            int pick = (int)(rng_uniform(&a->rng) * a->nwanted);
            x[k] = u < 0.25 ? floor(u * 20) - 1
                : u < 0.75 && a->nwanted ? a->wanted[pick] : usual(a, s);
        }
    }
    a->slot = NULL;
    a->filled = -1;
    a->mixed = true;
}

static void fill(Trial *a, int s, double z)
{
    int64_t n;

    slot(a, s, &n, &a->slot);
    give(a, s, z);
    a->value = z;
    a->filled = s;
}

/* Nodes up to `last`, of the numbers in a->run. */
static void run_trace(Ctx *c, void *ud)
{
    Trial *a = ud;
    const Graph *g = a->g;
    int64_t n;
    const char *name;

    (void)c;
    for (int s = 0; s < slots(a); s++) {
        double *x = slot(a, s, &n, &name);
        Ref r = s < g->nin ? g->in[s].node : g->st[s - g->nin].node;
        if (a->e->live[r])
            memcpy(a->e->val[r], x, (size_t)n * sizeof *x);
    }
    a->largest = 0;
    for (Ref r = 1; r < g->len; r++) {
        if (!a->e->live[r])
            continue;
        eval_node(a->e, r);
        for (int64_t k = eval_count(a->e, r); k-- > 0;)
            if (isfinite(a->e->val[r][k]))
                a->largest = fmax(a->largest, fabs(a->e->val[r][k]));
    }
}

/* What cancels leaves the rounding of what was there on the way; what is not
 * finite says nothing: exponentials are merged in a trace. But nothing rids
 * itself of an input that is no number, unless it asks. */
static bool same(const Trial *a, const double *x, Ref r, bool angle, int64_t *k)
{
    const double *y = a->e->val[r];
    int64_t n = eval_count(a->e, r);
    double scale = 0;

    for (*k = 0; *k < n; ++*k)
        if (isfinite(y[*k]))
            scale = fmax(scale, fabs(y[*k]));
    for (*k = 0; *k < n; ++*k) {
        double d = x[*k] - y[*k];
        if (angle)
            d -= 6.283185307179586 * floor(d / 6.283185307179586 + 0.5);
        if (a->slot && isnan(a->value) && isnan(y[*k]) && isfinite(x[*k]))
            return false;
        if (isfinite(x[*k]) && isfinite(y[*k])
            && fabs(d) > 1e-6 * (angle ? 1 : scale) + 1e-13 * a->largest)
            return false;
    }
    return true;
}

/* The name of a result that differs, and both numbers; NULL: none. */
static const char *difference(const Trial *a, double pair[2])
{
    const Graph *g = a->g;
    int64_t k;

    for (int n = a->v->step->nout, i = -n; i < g->nst; i++) {
        Ref r = i < 0 ? g->out[i + n].node : g->st[i].next;
        const double *x = i < 0 ? a->run.out[i + n] : a->run.next[i];
        if (same(a, x, r, i >= 0 && g->st[i].angle, &k))
            continue;
        pair[0] = x[k];
        pair[1] = a->e->val[r][k];
        return i < 0 ? g->out[i + n].name : g->st[i].name;
    }
    return NULL;
}

/* The line of the comparison whose number the slot has, else of the first. */
static int blamed_line(const Trial *a)
{
    for (int i = 0; a->slot && i < a->m.n; i++)
        if (a->m.at[i].compared && a->m.at[i].line
            && a->m.at[i].x == a->value)
            return a->m.at[i].line;
    return a->m.line;
}

static _Noreturn void fail_trial(Trial *a, const char *name,
                                 const double pair[2])
{
    lua_State *L = a->L;
    Place at = a->at;
    double other[2];
    char with[80] = "on numbers";

    a->differs = true;
    if (a->slot)
        snprintf(with, sizeof with, "with %s = %.6g", a->slot, a->value);
    if (a->run.truths && a->t->ncompared) {
        a->run.truths = false;          /* was it the truth of a value? */
        concrete_token(L, &a->run, 2);
        if (!difference(a, other)) {
            at.line = a->t->compared[0].line;
            lang_fail_at(L, at, "what flin compares is a value, and an if or "
                         "and takes every value as true: use flin.where(cond, "
                         "a, b)", "the step is not what its trace says: %s, %s"
                         " is %.4g, traced %.4g", with, name, pair[0],
                         pair[1]);
        }
    }
    int line = blamed_line(a);
    at.line = line ? line : at.line;
    lang_fail_at(L, at, line ? "a comparison == with a number is never true "
                 "while tracing, nor is a table read at a value: use flin."
                 "where(flin.eq(a, b), then, else)" : "a step may use nothing "
                 "but x, s and functions of flin, and must give the same each "
                 "time", "the step is not what its trace says: %s, %s is %.4g,"
                 " traced %.4g", with, name, pair[0], pair[1]);
}

static void fail_unsteady(Trial *a)
{
    Place at = a->at;

    a->differs = true;
    at.line = a->watch.line ? a->watch.line : at.line;
    lang_fail_at(a->L, at, "draw it before and use the number, or make it an "
                 "input", "the step calls %s, which gives another result each "
                 "time", a->watch.unsteady);
}

/* A way that has not been gone yet is one to go on from, where it is known what
 * led there. */
static void note_way(Trial *a)
{
    if (a->mixed)
        return;
    for (int i = 0; i < a->nways; i++)
        if (a->way[i] == a->watch.way)
            return;
    if (a->nways == MAX_WAYS)
        return;
    a->way[a->nways++] = a->watch.way;
    if (a->filled < 0 || a->npool == MAX_POOL || a->pins.n == MAX_PINS)
        return;
    Pins *p = &a->pool[a->npool++];
    *p = a->pins;
    p->slot[p->n] = a->filled;
    p->x[p->n++] = a->value;
}

/* Whether what was traced moves as far where each number is off by a rounding:
 * next to huge ones a difference may cancel, and a choice hang on it. */
static bool is_rounding(Trial *a, const char *of, const double pair[2])
{
    const double huge = 1e9, unit = 4e-16;
    const char *name;
    bool found = false;
    double now[2];
    int64_t n;

    for (int turn = 0; turn < 4 && a->largest > huge && !found; turn++) {
        double *kept[MAX_INPUTS + MAX_STATES];
        for (int s = 0; s < slots(a); s++) {
            double *x = slot(a, s, &n, &name);
            kept[s] = ctx_alloc(a->ctx, (size_t)n * sizeof(double));
            memcpy(kept[s], x, (size_t)n * sizeof(double));
            for (int64_t k = 0; k < n; k++)
                x[k] *= 1 + unit * (rng_uniform(&a->rng) < 0.5 ? -1 : 1);
        }
        protect(a->L, a->ctx, run_trace, a);
        name = difference(a, now);
        found = !name || (name == of && fabs(now[1] - pair[1])
                          > 0.1 * fabs(pair[0] - pair[1]));
        for (int s = 0; s < slots(a); s++) {
            double *x = slot(a, s, &n, &name);
            memcpy(x, kept[s], (size_t)n * sizeof(double));
        }
        protect(a->L, a->ctx, run_trace, a);
    }
    return found;
}

static void trial(Trial *a)
{
    double pair[2];

    a->run.truths = a->turn++ % 2 == 0;
    a->watch.way = a->watch.ticks = 0;
    protect(a->L, a->ctx, run_trace, a);
    concrete_token(a->L, &a->run, 2);
    if (a->watch.unsteady)
        fail_unsteady(a);
    const char *name = difference(a, pair);
    if (name && !is_rounding(a, name, pair))
        fail_trial(a, name, pair);
    note_way(a);
}

/* ---- which ---- */

static void choose_wanted(Trial *a)
{
    const Mentions *m = &a->m;

    for (int n = 0; n < m->n && n < MAX_WANTED / 2; n++)
        a->wanted[a->nwanted++] = m->at[n].x;
    for (int n = 0; n < m->n && n < PAIRED; n++)
        for (int o = 0; o <= n && a->nwanted + 2 <= MAX_WANTED; o++) {
            a->wanted[a->nwanted++] = m->at[n].x * m->at[o].x;
            a->wanted[a->nwanted++] = m->at[n].x + m->at[o].x;
        }
}

static bool is_in(const double *x, int n, double y)
{
    while (n-- > 0)
        if (x[n] == y)
            return true;
    return false;
}

/* Numbers that registers hold, whatever the inputs are. */
static void find_passing(Trial *a)
{
    double first[MAX_PASSED];
    int n = 0;

    for (int k = 0; k < 2; k++) {
        a->watch.npassed = 0;
        a->watch.collects = true;
        draw_usual(a);
        trial(a);
        if (k == 0) {
            n = a->watch.npassed;
            memcpy(first, a->watch.passed, (size_t)n * sizeof *first);
        }
    }
    a->watch.collects = false;
    for (int i = 0; i < n && a->npassing < MAX_PASSING; i++)
        if (is_in(a->watch.passed, a->watch.npassed, first[i])
            && !is_in(a->passing, a->npassing, first[i])
            && !is_in(a->pins.x, a->pins.n, first[i]))
            a->passing[a->npassing++] = first[i];
}

static bool is_pinned(const Trial *a, int s)
{
    for (int i = 0; i < a->pins.n; i++)
        if (a->pins.slot[i] == s)
            return true;
    return false;
}

/* States such that they count beside a term that has x in it. */
static void draw_large(Trial *a, double x)
{
    const char *name;
    int64_t n;

    for (int s = a->v->step->nin; s < slots(a); s++) {
        double *y = slot(a, s, &n, &name);
        for (int64_t k = 0; k < n && s != a->filled && !is_pinned(a, s); k++)
            y[k] *= x;
    }
}

/* Each input and state in turn is z. */
static void fill_each(Trial *a, double z, int *done, int most)
{
    const double large = 1e3;
    double x = fabs(z);

    for (int i = 0; i < a->pins.n; i++)
        x *= fmax(1, fabs(a->pins.x[i]));
    for (int s = 0; s < slots(a) && *done < most; s++) {
        if (is_pinned(a, s))
            continue;
        for (int k = 0; k < (x > large && isfinite(x) ? 2 : 1); k++) {
            draw_usual(a);
            fill(a, s, z);
            if (k)
                draw_large(a, x);
            trial(a);
            ++*done;
        }
    }
}

/* A number that is mentioned, one near it, or one from which it is made. */
static void fill_near(Trial *a, const double *wanted, int n, int most)
{
    int done = 0;

    for (int how = 0; how < 6; how++)
        for (int i = 0; i < n; i++) {
            double x = wanted[i];
            const double near[] = { x, x + 1, x - 1, -x, x / 2, 2 * x };
            fill_each(a, near[how], &done, most);
        }
}

static void fill_all(Trial *a)
{
    static const double odd[] = { NAN, INFINITY, -INFINITY };
    int done = 0;

    fill_near(a, a->passing, a->npassing, DEEPER);
    fill_near(a, a->wanted, a->nwanted, FILLS);
    for (int i = 0; i < 3; i++)
        fill_each(a, odd[i], &done, FILLS);
}

/* Where something goes another way, it may turn on more than that. */
static void fill_deeper(Trial *a)
{
    for (int i = 0; i < a->npool; i++) {
        a->pins = a->pool[i];
        find_passing(a);
        fill_near(a, a->passing, a->npassing, DEEPER);
        fill_near(a, a->wanted, a->nwanted, FILLS);
    }
    a->pins.n = 0;
}

static bool is_scalar(const Trial *a, int s)
{
    const Graph *g = a->v->step;

    return !(s < g->nin ? g->in[s].axes : g->st[s - g->nin].axes);
}

/* Two that have no axes at a time. */
static void fill_pairs(Trial *a)
{
    int done = 0, of = a->m.n < PAIRED ? a->m.n : PAIRED;

    for (int n = 0; n < of * of; n++)
        for (int s = 0; s < slots(a); s++)
            for (int o = 0; o < slots(a) && done < FILLS; o++) {
                if (o == s || n % of == n / of || !is_scalar(a, s)
                    || !is_scalar(a, o))
                    continue;
                a->pins = (Pins){ 1, { o }, { a->m.at[n / of].x } };
                draw_usual(a);
                fill(a, s, a->m.at[n % of].x);
                trial(a);
                done++;
            }
    a->pins.n = 0;
}

typedef struct Solve { Trial *a; Ref r; int slot; double want, z; } Solve;

static double node_at(Solve *s, double z)
{
    fill(s->a, s->slot, z);
    run_trace(s->a->ctx, s->a);
    return s->a->e->val[s->r][0] - s->want;
}

/* The root may be a few roundings away. */
static double nearest_root(Solve *s)
{
    double up = s->z, down = s->z, f = 1;

    for (int n = 0; n < 8 && f != 0; n++) {
        if (n % 2)
            s->z = down = nextafter(down, -INFINITY);
        else
            s->z = up = nextafter(up, INFINITY);
        f = node_at(s, s->z);
    }
    return f;
}

/* Finds the number for the slot at which node r is what is wanted, by secants;
 * z is not a number where there is none. */
static void run_solve(Ctx *c, void *ud)
{
    Solve *s = ud;
    double x0 = 0, x1 = 1, f0 = node_at(s, x0), f1 = node_at(s, x1);

    (void)c;
    s->z = f0 == 0 ? x0 : x1;
    for (int n = 0; n < 30 && f1 != 0 && f0 != 0 && f1 != f0; n++) {
        double z = x1 - f1 * (x1 - x0) / (f1 - f0);
        if (fabs(z - round(z)) < 1e-6 * (1 + fabs(z)))
            z = round(z);
        x0 = x1;
        f0 = f1;
        x1 = s->z = z;
        f1 = node_at(s, x1);
    }
    if (f0 != 0 && f1 != 0 && fabs(f1) <= 1e-9 * (1 + fabs(s->want)))
        f1 = nearest_root(s);
    if (f0 != 0 && f1 != 0)
        s->z = NAN;
}

static void solve_all(Trial *a)
{
    int done = 0;

    for (int o = a->v->step->nout; o < a->g->nout; o++)
        for (int n = 0; n < a->nwanted; n++)
            for (int i = 0; i < slots(a) && done < SOLVES; i++) {
                Solve s = { .a = a, .r = a->g->out[o].node, .slot = i,
                            .want = a->wanted[n] };
                draw_mixed(a, true);
                protect(a->L, a->ctx, run_solve, &s);
                if (isnan(s.z))
                    continue;
                fill(a, i, s.z);
                trial(a);
                done++;
            }
}

/* ---- all of them ---- */

/* The graph with numbers that the step has computed among its results: what
 * was compared may be needed by nothing. */
static void make_graph(Ctx *c, Trial *a)
{
    int some = 0;

    a->g = graph_copy(c, a->v->step);
    for (Ref r = 1; r < a->v->step->len && some < MAX_SOLVED; r++) {
        const Node *n = &a->g->n[r];
        if (!a->m.asks)
            return;
        if (n->axes || n->op == OP_num || n->op == OP_input
            || n->op == OP_state || n->op == OP_size || graph_is_root(a->g, r)
            || a->g->nout == MAX_OUTPUTS)
            continue;
        graph_output(a->g, ctx_format(c, "computed_%d", ++some), r);
    }
}

static void run_sizes(Ctx *c, void *ud)
{
    Trial *a = ud;

    if (!a->g)
        make_graph(c, a);
    a->e = eval_new(c, a->g, a->run.size, 1);
    concrete_room(c, &a->run);
}

/* What has changed in one more run does so in each. */
static void check_kept(Trial *a)
{
    lua_State *L = a->L;
    Keeps *k = lua_newuserdatauv(L, 2 * sizeof *k, 0);

    draw_usual(a);
    trial(a);
    keeps_of(L, 2, &k[0]);
    trial(a);
    keeps_of(L, 2, &k[1]);
    for (int i = 0; i < k[0].n; i++) {
        if (i < k[1].n && k[0].at[i].now == k[1].at[i].now)
            continue;
        a->differs = true;
        const char *name = k[0].at[i].name;
        lang_fail_at(L, a->at, axis_name_ok(name) ? lua_pushfstring(L, "what "
                     "goes from token to token is a state: state = { %s = "
                     "\"\" }", name) : "what goes from token to token is a "
                     "state", "the step keeps '%s' from one token to the next",
                     name);
    }
    lua_pop(L, 1);
}

static int try_all(lua_State *L)
{
    Trial *a = lua_touserdata(L, 1);
    int n = a->m.asks ? MIXED : 0;

    a->L = L;
    a->pins.n = a->npool = a->nways = a->npassing = 0;
    for (int k = 0; k < 4; k++) {
        draw_usual(a);
        trial(a);
    }
    if (a->m.asks) {
        find_passing(a);
        fill_all(a);
        fill_pairs(a);
    }
    for (int k = 0; k < n; k++) {
        draw_mixed(a, k % 2);
        trial(a);
    }
    if (a->m.asks) {
        solve_all(a);
        fill_deeper(a);
    }
    check_kept(a);
    return 0;
}

/* All that a state or an input has together: a step may ask for long axes. */
static AxisSet all_axes(const Graph *g)
{
    AxisSet axes = 0;

    for (int i = 0; i < g->nin; i++)
        axes |= g->in[i].axes;
    for (int i = 0; i < g->nst; i++)
        axes |= g->st[i].axes;
    return axes;
}

/* With sizes that say which axis is which; then, where something may turn on
 * it, with all of size 1, so that what has axes is a plain number, too: where
 * the step can be run so. */
static void try_sizes(lua_State *L, Trial *a, int f, bool bare)
{
    a->run.bare = bare;
    if (bare)
        for (int ax = 0; ax < NAXES; ax++)
            a->run.size[ax] = 1;
    else
        sizes_arg(L, "step", a->v->step, lua_gettop(L) + 1, USUAL,
                  a->run.size);
    if (entry_count(a->run.size, all_axes(a->v->step)) > LARGE)
        return;
    protect(L, a->ctx, run_sizes, a);
    lua_pushcfunction(L, try_all);
    lua_pushlightuserdata(L, a);
    lua_pushvalue(L, f);
    concrete_call(L, &a->run, 2, 0);
}

static int try_bare(lua_State *L)
{
    try_sizes(L, lua_touserdata(L, 1), 2, true);
    return 0;
}

static bool may_be_bare(const Graph *g)
{
    for (int ax = AX_DIM; ax < g->naxes; ax++)
        if (g->axis[ax].size > 1)
            return false;
    return true;
}

#define TRIAL_META "flin.trial"

static int trial_gc(lua_State *L)
{
    Trial *a = luaL_checkudata(L, 1, TRIAL_META);

    ctx_free(a->ctx);
    a->ctx = NULL;
    return 0;
}

static void check_inputs(lua_State *L, const Graph *g, Ctx *c, Place at);

void step_compare(lua_State *L, int variant, int f, const Tracer *t, Place at)
{
    int top = lua_gettop(L);
    const Variant *v = variant_check(L, variant);
    Trial *a = push_owned(L, sizeof *a, TRIAL_META, trial_gc);

    a->v = v;
    a->t = t;
    a->at = at;
    a->ctx = sandbox_ctx(L);
    a->run.g = v->step;
    a->run.prevs = v->prevs;
    a->run.nprevs = v->nprevs;
    a->run.quiet = true;
    a->run.watch = &a->watch;
    rng_seed(&a->rng, 1);
    mentions_of(L, f, &a->m);
    choose_wanted(a);
    try_sizes(L, a, f, false);
    if (a->m.asks && may_be_bare(v->step)) {
        lua_pushcfunction(L, try_bare);
        lua_pushlightuserdata(L, a);
        lua_pushvalue(L, f);
        if (lua_pcall(L, 2, 0, 0) != LUA_OK && a->differs)
            lua_error(L);
    }
    check_inputs(L, v->step, a->ctx, at);
    ctx_free(a->ctx);
    a->ctx = NULL;
    lua_settop(L, top);
}

/* ---- inputs ---- */

typedef struct Live { const Graph *g; uint8_t *live; } Live;

static void run_live(Ctx *c, void *ud)
{
    Live *l = ud;

    l->live = ctx_alloc(c, l->g->len);
    graph_live(l->g, l->live);
}

static void check_inputs(lua_State *L, const Graph *g, Ctx *c, Place at)
{
    Live l = { g, NULL };

    protect(L, c, run_live, &l);
    for (int i = 0; i < g->nin; i++)
        if (!l.live[g->in[i].node])
            lang_fail_at(L, at, lua_pushfstring(L, "x.%s is its value; or "
                         "take it out of input", g->in[i].name),
                         "input '%s': the step does not depend on it",
                         g->in[i].name);
}

/* ---- v:reference ---- */

typedef struct Truth { lua_State *L; Run *r; Concrete run; int f; } Truth;

static void move(Truth *u, const View *v, const uint8_t *order, int rank,
                 AxisSet axes, int64_t at, double *x, bool store)
{
    if (v->data || !store)
        view_entries(v, order, rank, u->run.size, axes, at, x, store);
}

static void load_inputs(Truth *u, const Seq *s, int64_t token, int head)
{
    const Graph *g = u->run.g;
    const Call *call = &u->r->bound.call;

    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        const View *v = &call->in[i];
        int64_t at = head / (call->heads / v->heads) * v->sh;
        if (in->timed)
            at += s->b * v->sb + token * v->st;
        move(u, v, in->order, in->rank, in->axes, at, u->run.in[i], false);
    }
}

static void move_states(Truth *u, int64_t seq, int head, bool store)
{
    const Graph *g = u->run.g;
    const Call *call = &u->r->bound.call;

    for (int i = 0; i < g->nst; i++) {
        const State *st = &g->st[i];
        const View *v = store ? &call->s1[i] : &call->s0[i];
        int64_t at;
        bool there = v->data && call_place(call, v, seq, -1, &at);
        if (!there && !store)
            for (int64_t k = entry_count(u->run.size, st->axes); k-- > 0;)
                u->run.now[i][k] = 0;
        else if (there)
            move(u, v, st->order, st->rank, st->axes, at + head * v->sh,
                 u->run.now[i], store);
    }
}

static void run_poll(Ctx *c, void *ud)
{
    (void)ud;
    ctx_poll(c);
}

/* What a token has left is what the next one finds. */
static void take_left(Truth *u)
{
    for (int i = 0; i < u->run.g->nst; i++) {
        double *left = u->run.next[i];
        u->run.next[i] = u->run.now[i];
        u->run.now[i] = left;
    }
}

static void run_head(Truth *u, int64_t iseq, int head)
{
    const Graph *g = u->run.g;
    const Call *call = &u->r->bound.call;
    const Seq *s = &call->seq[iseq];

    move_states(u, iseq, head, false);
    for (int64_t t = 0; t < s->len; t++) {
        if (t % 16 == 0)
            protect(u->L, u->r->ctx, run_poll, NULL);
        load_inputs(u, s, s->start + t, head);
        concrete_token(u->L, &u->run, u->f);
        for (int i = 0; i < g->nout; i++) {
            const Output *o = &g->out[i];
            const View *y = &call->out[i];
            move(u, y, o->order, o->rank, g->n[o->node].axes, s->b * y->sb
                 + (s->start + t) * y->st + head * y->sh, u->run.out[i], true);
        }
        take_left(u);
    }
    move_states(u, iseq, head, true);
}

static int run_all(lua_State *L)
{
    Truth *u = lua_touserdata(L, 1);
    const Call *call = &u->r->bound.call;

    u->L = L;
    u->f = 2;
    for (int64_t s = 0; s < call->nseq; s++)
        for (int head = 0; head < call->heads; head++)
            run_head(u, s, head);
    return 0;
}

static void run_room(Ctx *c, void *ud)
{
    Truth *u = ud;

    concrete_room(c, &u->run);
}

static Truth truth_of(Run *r)
{
    const Variant *v = r->v;
    Truth u = { .r = r, .run = { .g = v->step, .prevs = v->prevs,
                                 .nprevs = v->nprevs } };

    memcpy(u.run.size, r->bound.call.size, sizeof u.run.size);
    return u;
}

bool truth_run(lua_State *L, Run *r)
{
    const Variant *v = r->v;
    const Call *call = &r->bound.call;

    if (!v->has_function || v->masked || call->on_device)
        return false;
    Truth *u = lua_newuserdatauv(L, sizeof *u, 0);
    *u = truth_of(r);
    protect(L, r->ctx, run_room, u);
    lua_pushcfunction(L, run_all);
    lua_pushlightuserdata(L, u);
    lua_getiuservalue(L, 1, OF_FUNCTION);
    concrete_call(L, &u->run, 2, 0);
    lua_pop(L, 1);
    return true;
}

/* ---- v:reference_backward ---- */

enum { HELD = 256 };                    /* tokens, of all heads */

typedef struct Held { Trial a; Truth u; int64_t tokens; } Held;

static void hold_head(Held *h, int64_t iseq, int head)
{
    Truth *u = &h->u;
    const Seq *s = &u->r->bound.call.seq[iseq];
    double pair[2];

    move_states(u, iseq, head, false);
    for (int64_t t = 0; t < s->len && t < h->tokens; t++) {
        load_inputs(u, s, s->start + t, head);
        h->a.run = u->run;
        protect(u->L, u->r->ctx, run_trace, &h->a);
        concrete_token(u->L, &u->run, u->f);
        const char *name = difference(&h->a, pair);
        if (name)
            lang_fail(u->L, "a step may use nothing but x, s and functions of "
                      "flin, and must give the same each time",
                      "%s: the step is not what its trace says: at token "
                      "%lld, %s is %.4g, traced %.4g",
                      mode_name[M_REFERENCE_BACKWARD], (long long)t, name,
                      pair[0], pair[1]);
        take_left(u);
    }
}

static int hold_all(lua_State *L)
{
    Held *h = lua_touserdata(L, 1);
    const Call *call = &h->u.r->bound.call;

    h->u.L = h->a.L = L;
    h->u.f = 2;
    if (!call->nseq || !call->heads)
        return 0;
    h->tokens = HELD / (call->nseq * call->heads) + 2;
    for (int64_t s = 0; s < call->nseq && s < HELD; s++)
        for (int head = 0; head < call->heads && head < HELD; head++)
            hold_head(h, s, head);
    return 0;
}

static void hold_room(Ctx *c, void *ud)
{
    Held *h = ud;

    concrete_room(c, &h->u.run);
    h->a.e = eval_new(c, h->a.g, h->u.run.size, 1);
}

void truth_hold(lua_State *L, Run *r)
{
    Variant *v = r->v;

    if (!v->has_function || r->bound.call.on_device)
        return;
    if (v->masked) {
        mask_hold(L, r);
        return;
    }
    Held *h = lua_newuserdatauv(L, sizeof *h, 0);
    memset(h, 0, sizeof *h);
    h->u = truth_of(r);
    h->a.v = v;
    h->a.g = v->step;
    protect(L, r->ctx, hold_room, h);
    lua_pushcfunction(L, hold_all);
    lua_pushlightuserdata(L, h);
    lua_getiuservalue(L, 1, OF_FUNCTION);
    concrete_call(L, &h->u.run, 2, 0);
    lua_pop(L, 1);
}
