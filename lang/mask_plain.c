/* mask_plain.c -- a mask's own function, run on numbers, beside its trace.
 *
 * Lua compares a position with a number, or reads a table at one, without
 * asking anybody; so the two are compared where the function can tell one
 * position or input from another: near all numbers that it mentions.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "concrete.h"
#include "mask_trace.h"
#include "mentions.h"
#include "truth.h"

enum { GRID = 24, DATA_GRID = 12, WAYS = 8, FAR = 1 << 20, WRAPS = 50000,
       LISTED = 1 << 16, RANDOM = 150, DRAWN = 64, PAIRED = 8,
       MAX_WANTED = 160, SOLVED = 600,
       TABLES = DRAW_GIVEN + WAYS };    /* one for each way of drawing */

typedef struct Plain {
    lua_State *L;
    MaskTrace *t;
    int fn, tables;                     /* stack indices: the function, then
                                           the tables p */
    bool score;                         /* it is that of scores */
    Mentions m;
    Concrete run;
    Rng rng;
    const Mention *near;                /* what the point was chosen for */
    unsigned turn;
    double drawn[WAYS][DRAWN];
    double wanted[MAX_WANTED];          /* what something may be compared with
                                           */
    int nwanted;
} Plain;

/* ---- one point ---- */

/* Of this score; NULL: of the mask. */
static double plain_number(lua_State *L, int fn, const double *score,
                           int64_t i, int64_t j)
{
    int p = lua_gettop(L);
    double x;

    lua_pushvalue(L, fn);
    if (score)
        lua_pushnumber(L, *score);
    lua_pushinteger(L, i);
    lua_pushinteger(L, j);
    lua_pushvalue(L, p);
    lua_call(L, score ? 4 : 3, 1);
    if (lua_isboolean(L, -1))
        x = lua_toboolean(L, -1);
    else if (lua_isnumber(L, -1))
        x = lua_tonumber(L, -1);
    else
        lang_fail(L, NULL, "the mask gives a %s at i = %lld, j = %lld: not a "
                  "number", luaL_typename(L, -1), (long long)i, (long long)j);
    lua_pop(L, 1);
    return x;
}

double mask_plain(lua_State *L, int fn, int64_t i, int64_t j)
{
    return plain_number(L, fn, NULL, i, j);
}

/* A fourth power of such positions does not fit in 64 bits, where Lua's whole
 * numbers wrap: the same in floating point. */
static double plain_float(Plain *a, const double *score, int64_t i, int64_t j)
{
    lua_State *L = a->L;
    int p = lua_gettop(L);

    lua_pushvalue(L, a->fn);
    if (score)
        lua_pushnumber(L, *score);
    lua_pushnumber(L, (double)i);
    lua_pushnumber(L, (double)j);
    lua_pushvalue(L, p);
    lua_call(L, score ? 4 : 3, 1);
    double x = lua_isboolean(L, -1) ? lua_toboolean(L, -1)
                                    : lua_tonumber(L, -1);
    lua_pop(L, 1);
    return x;
}

/* Far from the first token, sums of many tokens are rounded. What is left of
 * sums that cancel, some tens at most, is rounding, too. */
static bool same_number(double a, double b, bool far)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= (far ? 1e-6 : 1e-9) * (fabs(a) + fabs(b))
                                    + 1e-13;
}

/* The line that is to blame: of a comparison that was asked as if it were true
 * or not; of the number that the point is near; of some comparison. */
static void differs(Plain *a, int64_t i, int64_t j, double got, double traced)
{
    MaskTrace *t = a->t;
    bool truth = a->run.truths && t->tracer.ncompared;
    Error e = { .code = ERR_USER, .line = a->m.line };
    const char *what = a->score ? "score" : "mask";

    if (truth)
        e.line = t->tracer.compared[0].line;
    else if (a->near && a->near->line && a->near->compared)
        e.line = a->near->line;
    snprintf(e.file, sizeof e.file, "%s", t->tracer.ctx->file);
    snprintf(e.help, sizeof e.help, "%s", truth
             ? "what flin compares is a value, and an if or and takes every "
               "value as true: use flin.where(cond, a, b)" : e.line
             ? "a comparison == of i or j with a number is never true while "
               "tracing, nor is a table read there: write i < 1, "
               "i % 4 > 0, or flin.where(flin.eq(i, 0), a, b)"
             : "the function may use nothing but its arguments and functions "
               "of flin, and must give the same each time");
    if (!e.line)
        e.line = t->first_line;
    snprintf(e.message, sizeof e.message, "the %s is not what its trace "
             "says: on numbers, %s(%lld,%lld) = %.4g, traced %.4g", what,
             a->score ? "score" : "L", (long long)i, (long long)j, got,
             traced);
    lang_raise(a->L, &e);
}

typedef struct AtPoint {
    Mask *m;
    int64_t i, j;
    unsigned draw;
    bool score, none;                   /* none: nothing asks for a score */
    double x;
} AtPoint;

static void run_at(Ctx *c, void *ud)
{
    AtPoint *a = ud;

    (void)c;
    if (a->score)
        a->none = !mask_score_at(a->m, a->i, a->j, a->draw, &a->x);
    else
        a->x = mask_at(a->m, a->i, a->j, a->draw);
}

static void compare(Plain *a, int64_t i, int64_t j, unsigned draw)
{
    lua_State *L = a->L;
    AtPoint at = { .m = a->t->mask, .i = i, .j = j, .draw = draw,
                   .score = a->score };
    double drawn;
    bool far = i >= GRID || j >= GRID;
    bool wraps = !a->m.letters && (i >= WRAPS || j >= WRAPS);

    if (i < 0 || j < 0)
        return;
    if (a->score)
        protect(L, a->t->tracer.ctx, run_at, &at);
    if (at.none)
        return;
    drawn = a->score ? mask_draw_score(at.m, i, j, draw) : 0;
    const double *score = a->score ? &drawn : NULL;
    a->run.truths = a->turn++ / 2 % 2 == 0;
    lua_pushvalue(L, a->tables + (int)draw);
    double x = plain_number(L, a->fn, score, i, j);
    protect(L, a->t->tracer.ctx, run_at, &at);
    if (!same_number(x, at.x, far)
        && !(wraps && same_number(plain_float(a, score, i, j), at.x, far)))
        differs(a, i, j, x, at.x);
    lua_pop(L, 1);
}

/* ---- points ---- */

/* With inputs of which no sum is large, then each time with others. */
static void point(Plain *a, double i, double j)
{
    unsigned other = a->m.asks ? 1 + WAYS : 1;

    if (!(i >= 0 && j >= 0 && i <= 1e12 && j <= 1e12))
        return;
    compare(a, (int64_t)i, (int64_t)j, DRAW_FAR);
    compare(a, (int64_t)i, (int64_t)j, DRAW_FAR + 1 + a->turn / 2 % other);
}

static double random_to(Plain *a, double most)
{
    return floor(exp(rng_uniform(&a->rng) * log1p(most)) - 1);
}

/* i, j and i - j at x, with others near and far. */
static void around(Plain *a, double x)
{
    const double below[] = { x, x - 1, x - 2, x / 2, 0, 1, x - 7 };
    const double above[] = { 0, 1, 2, 17, x };

    for (size_t k = 0; k < sizeof below / sizeof *below; k++)
        point(a, x, floor(below[k]));
    for (size_t k = 0; k < sizeof above / sizeof *above; k++) {
        point(a, x + above[k], x);
        point(a, x + above[k], above[k]);
    }
    point(a, x, random_to(a, x));
    point(a, x + random_to(a, FAR), x);
    double j = random_to(a, FAR);
    point(a, x + j, j);
    point(a, x, x + 1);
}

static void mentioned_points(Plain *a)
{
    const Mentions *m = &a->m;

    for (int n = 0; n < m->n; n++) {
        double x = fabs(m->at[n].x);
        a->near = &m->at[n];
        for (int d = -1; d <= 1; d++)
            around(a, floor(x) + d);
        if (x != floor(x))
            around(a, floor(x) + 2);
    }
    a->near = NULL;
    for (int n = 0; m->asks && n < m->n && n < PAIRED; n++)
        for (int o = 0; o < m->n && o < PAIRED; o++) {
            double x = fabs(m->at[n].x), y = fabs(m->at[o].x);
            a->near = &m->at[n];
            point(a, x, y);
            point(a, x + y, y);
            point(a, x, x - y);
        }
    a->near = NULL;
    for (int n = m->n; m->asks && n < a->nwanted; n++)
        around(a, fabs(a->wanted[n]));
}

/* ---- points at which what the mask computes of i and j is a number ---- */

/* Node r along i (j as it is), along j, or along both. */
typedef enum Along { ALONG_I, ALONG_J, ALONG_BOTH, NALONG } Along;
typedef struct Solve { Plain *a; Ref r; double want, i, j; Along along; } Solve;

static void go_to(Solve *s, double z, double *i, double *j)
{
    *i = s->along == ALONG_J ? s->i : s->along == ALONG_I ? z : s->j + z;
    *j = s->along == ALONG_I ? s->j : z;
}

static double value_along(Solve *s, double z)
{
    double i, j;

    go_to(s, z, &i, &j);
    return mask_number(s->a->t->mask, s->r, (int64_t)i, (int64_t)j, DRAW_FAR)
         - s->want;
}

/* By halving, where the value passes what is wanted. */
static void run_solve(Ctx *c, void *ud)
{
    Solve *s = ud;
    double lo = -1, hi = FAR;
    bool up = value_along(s, 0) < 0;

    (void)c;
    if (up == (value_along(s, hi) < 0))
        hi = lo;
    while (hi - lo > 1) {
        double mid = floor((lo + hi) / 2);
        bool below = (value_along(s, mid) < 0) == up;
        lo = below ? mid : lo;
        hi = below ? hi : mid;
    }
    go_to(s, hi, &s->i, &s->j);
}

/* Is it made of positions, by arithmetic? */
static bool of_positions(Mask *m, Ref r)
{
    int traits = mask_traits(m, r);
    int op = m->g->n[r].op;

    return traits & HAS_POSITION && !(traits & (HAS_CUMSUM | HOT))
        && op != OP_input && op != OP_lt && op != OP_le && op != OP_eq;
}

static bool reads_tokens(Mask *m, Ref r)
{
    mask_reach(m, r);
    for (Ref n = 1; n <= r; n++)
        if (m->mark[n] && m->g->n[n].op == OP_input
            && m->leaf[m->g->n[n].index].kind == LEAF_TOKEN)
            return true;
    return false;
}

/* The points at which node r is what is wanted, near the diagonal and not. */
static void solve_node(Plain *a, Ref r, double want)
{
    static const double other[] = { 0, 1, 5, 40 };

    for (int k = 0; k < 4 * NALONG; k++) {
        Solve s = { .a = a, .r = r, .want = want, .i = 4096 * other[k % 4],
                    .j = other[k % 4], .along = (Along)(k / 4) };
        protect(a->L, a->t->tracer.ctx, run_solve, &s);
        point(a, s.i, s.j);
        if (k == 0) {
            point(a, s.i, s.i);
            point(a, s.i, s.i - 1);
        }
    }
}

static void solved_points(Plain *a)
{
    Mask *m = a->t->mask;
    Ref len = m->g->len;
    int done = 0;

    for (Ref r = 1; r < len; r++) {
        if (!of_positions(m, r) || reads_tokens(m, r))
            continue;
        for (int n = 0; n < a->nwanted && done < SOLVED; n++, done++)
            solve_node(a, r, a->wanted[n]);
    }
}

/* ---- all of them ---- */

static void grid(Plain *a, int n, unsigned draw, bool whole)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < (whole ? n : i + 1); j++)
            compare(a, i, j, draw);
}

/* What something may be compared with: what is mentioned, and what two of
 * these make. */
static void choose_wanted(Plain *a)
{
    const Mentions *m = &a->m;

    for (int n = 0; n < m->n; n++)
        a->wanted[a->nwanted++] = m->at[n].x;
    for (int n = 0; n < m->n && n < PAIRED; n++)
        for (int o = 0; o <= n && a->nwanted + 2 <= MAX_WANTED; o++) {
            a->wanted[a->nwanted++] = m->at[n].x * m->at[o].x;
            a->wanted[a->nwanted++] = m->at[n].x + m->at[o].x;
        }
}

/* The numbers that inputs take, each time with one of those mentioned, and
 * what is near it or makes it, more often than the rest. */
static void choose_drawn(Plain *a)
{
    const Mentions *m = &a->m;

    for (int way = 0; way < WAYS; way++)
        for (int n = 0; n < DRAWN; n++) {
            double x = m->n ? m->at[way % m->n].x : 1;
            const double near[] = { x, x, x - 1, x + 1, -x, x / 2, 2 * x };
            bool focus = n < DRAWN / 2 || !a->nwanted;
            a->drawn[way][n] = n % 8 == 7 ? n / 8 - 2
                : focus ? near[n % 7] : a->wanted[(n + way) % a->nwanted];
        }
    a->t->mask->drawn = a->drawn[0];
    a->t->mask->ndrawn = DRAWN;
}

/* Each place of a list that the mask may read at i, at j or at i - j. */
static void listed_points(Plain *a)
{
    for (int n = 0; n <= a->m.longest + 1 && n <= LISTED; n++) {
        compare(a, n, n, DRAW_FAR);
        compare(a, n, 0, DRAW_FAR);
    }
}

static int compare_all(lua_State *L)
{
    Plain *a = lua_touserdata(L, 1);

    a->fn = 2;
    a->t->owner = 3;
    a->tables = 4;
    luaL_checkstack(L, TABLES + 20, NULL);
    for (unsigned draw = 0; draw < TABLES; draw++)
        mask_push_numbers(L, a->t, draw);
    grid(a, GRID, DRAW_SIGNED, true);
    grid(a, GRID, DRAW_POSITIVE, true);
    for (unsigned n = 0; a->m.asks && n < WAYS; n++)
        grid(a, DATA_GRID, DRAW_GIVEN + n, a->t->mask->whole);
    for (int n = 0; n < RANDOM; n++) {
        double j = random_to(a, FAR);
        point(a, j + random_to(a, FAR), j);
    }
    mentioned_points(a);
    listed_points(a);
    if (a->m.asks)
        solved_points(a);
    return 0;
}

void mask_compare(lua_State *L, MaskTrace *t, int fn, bool score)
{
    int top = lua_gettop(L);

    fn = lua_absindex(L, fn);
    Plain *a = lua_newuserdatauv(L, sizeof *a, 0);
    memset(a, 0, sizeof *a);
    a->L = L;
    a->t = t;
    a->score = score;
    a->run.quiet = true;
    rng_seed(&a->rng, 1);
    mentions_of(L, fn, &a->m);
    choose_wanted(a);
    choose_drawn(a);
    lua_pushcfunction(L, compare_all);
    lua_pushvalue(L, top + 1);
    lua_pushvalue(L, fn);
    lua_pushvalue(L, t->owner);
    int owner = t->owner;
    concrete_call(L, &a->run, 3, 0);
    t->owner = owner;
    t->mask->drawn = NULL;
    t->mask->ndrawn = 0;
    lua_settop(L, top);
}

/* ---- v:reference ---- */

enum { ALL_PAIRS = 3000000, SOME_PAIRS = 1000000,
       ENTRIES = 256 };                 /* of a token: masks, more are not
                                           looked at */

/* Beside a sum of more, numbers lie a millionth apart, and what is -inf has no
 * differences: there the trace, which adds up each difference by itself, knows
 * more than the function. */
#define LARGEST_SUM 0x1p32

typedef struct Sum {
    lua_State *L;
    Run *r;
    int fn;
    int64_t budget;                     /* pairs that a head may take */
    bool whole;                         /* all rows are written; else some are
                                           compared with what is there */
    double *x[3], *y;                   /* q, k, v: [token][entries] */
    int64_t n[3];
    bool keyed, valued;                 /* a mask for each key, value */
    int64_t masks;                      /* for so many entries */
    double *entries;                    /* of a token's input */
    Concrete run;
    Rng rng;
} Sum;

static const char *const tensors[] = { "q", "k", "v" };

static int64_t place(const Call *call, const Input *in, int i, const Seq *s,
                     int head, int64_t t)
{
    const View *v = &call->in[i];
    int64_t at = head / (call->heads / v->heads) * v->sh;

    return in->timed ? at + s->b * v->sb + (s->start + t) * v->st : at;
}

static void load_tensors(Sum *u, const Seq *s, int head)
{
    const Graph *g = u->r->v->step;
    const Call *call = &u->r->bound.call;

    for (int k = 0; k < 3; k++) {
        int i = graph_find_input(g, tensors[k]);
        const Input *in = &g->in[i];
        for (int64_t t = 0; t < s->len; t++)
            view_entries(&call->in[i], in->order, in->rank, call->size,
                         in->axes, place(call, in, i, s, head, t),
                         u->x[k] + t * u->n[k], false);
    }
}

static bool is_tensor(const char *name)
{
    for (int k = 0; k < 3; k++)
        if (!strcmp(name, tensors[k]))
            return true;
    return false;
}

/* Which key, or value, mask e is of. */
static int64_t key_of(const Sum *u, int64_t e)
{
    return u->valued ? e / u->n[2] : e;
}

static int64_t value_of(const Sum *u, int64_t e)
{
    return e % u->n[2];
}

/* Input i of token t, for mask e. */
static double number_of(Sum *u, int i, int64_t e, const Seq *s, int head,
                        int64_t t)
{
    const Graph *g = u->r->v->step;
    const Call *call = &u->r->bound.call;
    const Input *in = &g->in[i];
    int64_t at = place(call, in, i, s, head, t);
    bool key = in->axes == g->in[graph_find_input(g, "k")].axes;

    if (!in->axes)
        return view_get(&call->in[i], at);
    view_entries(&call->in[i], in->order, in->rank, call->size, in->axes, at,
                 u->entries, false);
    return u->entries[key ? key_of(u, e) : value_of(u, e)];
}

/* Pushes the table p of the call's own numbers, for mask e; gives the largest
 * sum that is read of it. */
static const double *push_call(Sum *u, int64_t e, const Seq *s, int head)
{
    lua_State *L = u->L;
    const Graph *g = u->r->v->step;

    lua_newtable(L);
    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        if (is_tensor(in->name))
            continue;
        if (in->timed)
            lua_newtable(L);
        for (int64_t t = 0; t < (in->timed ? s->len : 1); t++) {
            lua_pushnumber(L, number_of(u, i, e, s, head, t));
            if (in->timed)
                lua_rawseti(L, -2, t + 1);
        }
        lua_setfield(L, -2, in->name);
    }
    const double *far = mask_push_given(L, lua_gettop(L), (int)s->len);
    lua_remove(L, -2);
    return far;
}

/* Adds what mask e, by the function at fn and the table p on top, gives token i
 * of token j. */
static void add_token(Sum *u, int64_t e, int64_t i, int64_t j)
{
    int64_t K = u->n[1], V = u->n[2], d = value_of(u, e);
    int64_t first = u->keyed ? key_of(u, e) : 0;
    int64_t last = u->keyed ? first + 1 : K;
    const double *q = u->x[0] + i * K, *k = u->x[1] + j * K;
    const double *v = u->x[2] + j * V;
    double w = mask_plain(u->L, u->fn, i, j), dot = 0;

    if (w == 0)
        return;
    for (int64_t n = first; n < last; n++)
        dot += q[n] * k[n];
    for (int64_t n = u->valued ? d : 0; n < (u->valued ? d + 1 : V); n++)
        u->y[n] += w * dot * v[n];
}

/* y of token i of `len`, by the tables p from `tables` on. */
static void sum_row(Sum *u, int tables, int64_t i, int64_t len)
{
    const Mask *m = u->r->v->step->mask;
    int64_t last = m && m->whole ? len - 1 : i;

    memset(u->y, 0, (size_t)u->n[2] * sizeof *u->y);
    for (int64_t e = 0; e < u->masks; e++) {
        lua_pushvalue(u->L, tables + (int)e);
        for (int64_t j = 0; j <= last; j++)
            add_token(u, e, i, j);
        lua_pop(u->L, 1);
    }
}

static void compare_row(Sum *u, int64_t i, const View *y, int64_t at)
{
    const Graph *g = u->r->v->step;
    const Output *o = &g->out[0];
    double *traced = u->y + u->n[2], scale = 0;

    view_entries(y, o->order, o->rank, u->r->bound.call.size,
                 g->n[o->node].axes, at, traced, false);
    for (int64_t d = 0; d < u->n[2]; d++)
        scale = fmax(scale, fabs(traced[d]));
    for (int64_t d = 0; d < u->n[2]; d++)
        if (isfinite(traced[d]) && isfinite(u->y[d])
            && fabs(u->y[d] - traced[d]) > 1e-3 * scale)
            lang_fail(u->L, NULL, "reference: the mask is not what its trace "
                      "says: y of token %lld is %.4g, traced %.4g",
                      (long long)i, u->y[d], traced[d]);
}

static void run_poll(Ctx *c, void *ud)
{
    (void)ud;
    ctx_poll(c);
}

static void sum_head(Sum *u, const Seq *s, int head)
{
    const Graph *g = u->r->v->step;
    const Call *call = &u->r->bound.call;
    const Output *o = &g->out[0];
    const View *y = &call->out[0];
    int64_t left = u->budget;
    int tables = lua_gettop(u->L) + 1;
    const double *far[ENTRIES];

    load_tensors(u, s, head);
    for (int64_t e = 0; e < u->masks; e++)
        far[e] = push_call(u, e, s, head);
    for (int64_t n = 0; n < s->len && left > 0; n++) {
        int64_t i = u->whole ? n
            : (int64_t)(rng_uniform(&u->rng) * (double)s->len);
        int64_t at = s->b * y->sb + (s->start + i) * y->st + head * y->sh;
        protect(u->L, u->r->ctx, run_poll, NULL);
        sum_row(u, tables, i, s->len);
        bool known = true;
        for (int64_t e = 0; e < u->masks; e++)
            known = known && *far[e] <= LARGEST_SUM;
        if (!known)
            break;
        left -= (i + 1) * u->masks;
        if (u->whole)
            view_entries(y, o->order, o->rank, call->size, g->n[o->node].axes,
                         at, u->y, true);
        else
            compare_row(u, i, y, at);
    }
    lua_settop(u->L, tables - 1);
}

static int sum_all(lua_State *L)
{
    Sum *u = lua_touserdata(L, 1);
    const Call *call = &u->r->bound.call;

    u->L = L;
    u->fn = 2;
    luaL_checkstack(L, ENTRIES + 20, NULL);
    for (int64_t s = 0; s < call->nseq; s++)
        for (int head = 0; head < call->heads; head++)
            sum_head(u, &call->seq[s], head);
    return 0;
}

/* One for all entries of a token, or each of its keys, values, or both. */
static void find_masks(Sum *u)
{
    const Graph *g = u->r->v->step;
    AxisSet k = g->in[graph_find_input(g, "k")].axes;

    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        if (!in->axes || is_tensor(in->name))
            continue;
        u->keyed |= in->axes == k;
        u->valued |= in->axes != k;
    }
    u->masks = (u->keyed ? u->n[1] : 1) * (u->valued ? u->n[2] : 1);
}

static void run_room(Ctx *c, void *ud)
{
    Sum *u = ud;
    const Graph *g = u->r->v->step;
    const Call *call = &u->r->bound.call;
    int64_t most = 1;

    for (int64_t s = 0; s < call->nseq; s++)
        if (call->seq[s].len > most)
            most = call->seq[s].len;
    u->n[0] = u->n[1] = entry_count(call->size, g->n[g->in[graph_find_input(
                                        g, "k")].node].axes);
    u->n[2] = entry_count(call->size, g->n[g->out[0].node].axes);
    for (int k = 0; k < 3; k++)
        u->x[k] = ctx_alloc(c, (size_t)(most * u->n[k]) * sizeof(double));
    u->y = ctx_alloc(c, (size_t)(2 * u->n[2]) * sizeof(double));
    u->entries = ctx_alloc(c, (size_t)(u->n[1] + u->n[2]) * sizeof(double));
    find_masks(u);
}

/* The sum by the function, where y is asked for, at all pairs if `whole` and
 * if they are not too many. States are what the trace leaves; where a call
 * begins with some, which tokens were before is not known. */
static void by_function(lua_State *L, Run *r, bool whole)
{
    const Call *call = &r->bound.call;
    double pairs = 0;

    if (!r->v->masked || !r->v->has_function || call->on_device
        || (r->v->step->mask && r->v->step->mask->softmax)
        || !call->nseq || !call->heads || !call->out[0].data)
        return;
    for (int i = 0; i < r->v->step->nst; i++)
        if (r->args.state[i].given)
            return;
    for (int64_t s = 0; s < call->nseq; s++)
        pairs += 0.5 * (double)call->seq[s].len * (double)call->seq[s].len
               * call->heads;
    Sum *u = lua_newuserdatauv(L, sizeof *u, 0);
    memset(u, 0, sizeof *u);
    u->r = r;
    protect(L, r->ctx, run_room, u);
    if (u->masks > ENTRIES) {
        lua_pop(L, 1);
        return;
    }
    pairs *= (double)u->masks;
    u->whole = whole && pairs <= ALL_PAIRS;
    u->budget = u->whole ? INT64_MAX
        : SOME_PAIRS / (call->nseq * call->heads) + 1;
    rng_seed(&u->rng, 1);
    lua_pushcfunction(L, sum_all);
    lua_pushlightuserdata(L, u);
    lua_getiuservalue(L, 1, OF_FUNCTION);
    concrete_call(L, &u->run, 2, 0);
    lua_pop(L, 1);
}

void mask_reference(lua_State *L, Run *r) { by_function(L, r, true); }

/* y by the trace, in memory of its own. */
static void run_traced(Ctx *c, void *ud)
{
    Run *r = ud;
    const Graph *g = r->v->step;
    Call *call = &r->bound.call;
    const Output *o = &g->out[0];
    View *y = &call->out[0];
    int64_t n = 1, tokens = 0;

    for (int64_t s = 0; s < call->nseq; s++)
        if (call->seq[s].start + call->seq[s].len > tokens)
            tokens = call->seq[s].start + call->seq[s].len;
    *y = (View){ .dtype = F64, .heads = call->heads };
    for (int d = o->rank; d-- > 0; n *= call->size[o->order[d]])
        y->sd[d] = n;
    y->sh = n;
    y->st = n * call->heads;
    y->sb = y->st * tokens;
    y->data = ctx_alloc(c, (size_t)(y->sb * r->bound.B) * sizeof(double));
    memset(call->s1, 0, sizeof call->s1);
    if (g->mask)
        mask_run(c, g, call);
    else
        reference_run(c, g, call);
}

void mask_hold(lua_State *L, Run *r)
{
    Run *own = lua_newuserdatauv(L, sizeof *own, 0);

    *own = *r;
    protect(L, r->ctx, run_traced, own);
    by_function(L, own, false);
    lua_pop(L, 1);
}
