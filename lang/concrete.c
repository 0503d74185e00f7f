/* concrete.c -- numbers with named axes, and a step's function run on them.
 *
 * Written beside the graph and its rules, not by means of them: what this file
 * computes is what traces are judged by. Only what an operation is of numbers,
 * a row of ops.def, is the same.
 */
#include <math.h>
#include <string.h>

#include "../compiler/elem.h"
#include "../compiler/eval.h"
#include "concrete.h"
#include "value.h"
#include "watch.h"

#define TRUTH_META "flin.truth"

static const char run_key = 0;          /* its address is the registry's key */

/* ---- the run at hand ---- */

Concrete *concrete_now(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &run_key);
    Concrete *c = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return c;
}

/* A script may keep what a run has made: axes of other lengths, elsewhere. */
static const char count_key = 0;

static lua_Integer new_run(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &count_key);
    lua_Integer n = lua_tointeger(L, -1) + 1;
    lua_pop(L, 1);
    lua_pushinteger(L, n);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &count_key);
    return n;
}

static void set_run(lua_State *L, Concrete *c)
{
    if (c)
        lua_pushlightuserdata(L, c);
    else
        lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &run_key);
}

bool truths_given(lua_State *L)
{
    const Concrete *c = concrete_now(L);

    return c && c->truths;
}

/* The metatable of booleans is what is at `from`. */
static void set_truths(lua_State *L, int from)
{
    lua_pushboolean(L, 1);
    lua_pushvalue(L, from);
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}

static void set_print(lua_State *L, int from)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    lua_pushliteral(L, "print");
    lua_pushvalue(L, from);
    lua_rawset(L, -3);
    lua_pop(L, 1);
}

static int print_nothing(lua_State *L)
{
    (void)L;
    return 0;
}

/* Pushes what concrete_call changes: booleans' metatable, print. */
static void push_before(lua_State *L)
{
    lua_pushboolean(L, 1);
    if (!lua_getmetatable(L, -1))
        lua_pushnil(L);
    lua_remove(L, -2);
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    lua_pushliteral(L, "print");
    lua_rawget(L, -2);
    lua_remove(L, -2);
}

void concrete_call(lua_State *L, Concrete *c, int nargs, int nresults)
{
    int at = lua_gettop(L) - nargs;
    Concrete *before = concrete_now(L);

    luaL_checkstack(L, 12, NULL);
    push_before(L);
    lua_rotate(L, at, 2);
    luaL_getmetatable(L, TRUTH_META);
    set_truths(L, lua_gettop(L));
    lua_pop(L, 1);
    if (c->quiet) {
        lua_pushcfunction(L, print_nothing);
        set_print(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    c->run = new_run(L);
    set_run(L, c);
    if (c->watch)
        watch(L, c->watch);
    int status = lua_pcall(L, nargs, nresults, 0);
    if (c->watch)
        watch(L, NULL);
    set_run(L, before);
    set_truths(L, at);
    if (c->quiet)
        set_print(L, at + 1);
    lua_remove(L, at);
    lua_remove(L, at);
    if (status != LUA_OK)
        lua_error(L);
}

/* ---- booleans as 0 and 1 ---- */

static void take_truth(lua_State *L, int arg)
{
    if (lua_isboolean(L, arg)) {
        lua_pushinteger(L, lua_toboolean(L, arg));
        lua_replace(L, arg);
    }
}

/* Upvalue: Lua's number of the operator; those of comparisons come after. */
enum { COMPARED = 100 };

static int counted(lua_State *L)
{
    int op = (int)lua_tointeger(L, lua_upvalueindex(1));

    lua_settop(L, 2);
    take_truth(L, 1);
    take_truth(L, 2);
    if (op >= COMPARED) {
        lua_pushboolean(L, lua_compare(L, 1, 2, op - COMPARED));
        return 1;
    }
    if (op == LUA_OPUNM)
        lua_settop(L, 1);
    lua_arith(L, op);
    return 1;
}

/* ---- loops over axes ---- */

static int32_t extent(const Concrete *c, int ax) { return c->size[ax]; }

int64_t numbers_count(const Concrete *c, AxisSet axes)
{
    int64_t n = 1;

    for (; axes; axes &= axes - 1)
        if (__builtin_mul_overflow(n, extent(c, lowest(axes)), &n))
            return INT64_MAX;
    return n;
}

/* What one step along the axis is among these axes; 0 where they lack it. */
static int64_t stride(const Concrete *c, AxisSet axes, int ax)
{
    return axes & AXIS(ax)
         ? numbers_count(c, axes & ~(AXIS(ax) | (AXIS(ax) - 1))) : 0;
}

/* Up to four operands side by side, along all axes of any. */
typedef struct Loop {
    int nd;
    int32_t ext[NAXES], at[NAXES];
    int64_t step[4][NAXES], off[4];
    int64_t n, rows;                    /* the innermost axis; how often */
    int64_t done;                       /* since there was a poll */
    lua_State *L;
} Loop;

static void loop_init(lua_State *L, Loop *l, const Concrete *c,
                      const AxisSet *axes, int n)
{
    AxisSet all = 0;

    memset(l, 0, sizeof *l);
    l->L = L;
    for (int i = 0; i < n; i++)
        all |= axes[i];
    l->rows = 1;
    for (int ax = 0; ax < NAXES; ax++) {
        if (!(all & AXIS(ax)))
            continue;
        for (int i = 0; i < n; i++)
            l->step[i][l->nd] = stride(c, axes[i], ax);
        l->ext[l->nd++] = extent(c, ax);
    }
    if (!l->nd)
        l->ext[l->nd++] = 1;
    l->n = l->ext[l->nd - 1];
    for (int d = 0; d < l->nd - 1; d++)
        l->rows *= l->ext[d];
    work(L, work_times((uint64_t)l->rows, (uint64_t)l->n));
}

static void loop_next(Loop *l)
{
    l->done += l->n;
    if (l->done >= WORK_PIECE) {
        l->done = 0;
        work_on(l->L);
    }
    for (int d = l->nd - 2; d >= 0; d--) {
        for (int i = 0; i < 4; i++)
            l->off[i] += l->step[i][d];
        if (++l->at[d] < l->ext[d])
            return;
        for (int i = 0; i < 4; i++)
            l->off[i] -= l->at[d] * l->step[i][d];
        l->at[d] = 0;
    }
}

/* ---- values ---- */

bool any_numbers(lua_State *L)
{
    for (int i = lua_gettop(L); i > 0; i--)
        if (lua_type(L, i) == LUA_TUSERDATA && numbers_test(L, i))
            return true;
    return false;
}

/* Of a run that is over, numbers have no sizes. */
static Concrete *run_wanted(lua_State *L)
{
    Concrete *c = concrete_now(L);

    if (!c || !c->g)
        lang_fail(L, "compute with it inside of the function", "this value "
                  "belongs to a step or a mask that has been traced already");
    return c;
}

static Numbers *push_numbers(lua_State *L, const Concrete *c, AxisSet axes)
{
    const int64_t most = (int64_t)1 << 40;
    int64_t n = numbers_count(c, axes);
    if (n > most)
        lang_no_memory(L, "a value of more than %lld numbers",
                       (long long)most);
    work(L, (uint64_t)n);
    Numbers *v = lua_newuserdatauv(L, sizeof *v + (size_t)n * sizeof *v->x, 0);

    v->run = c->run;
    v->axes = axes;
    v->n = n;
    luaL_setmetatable(L, CONCRETE_META);
    return v;
}

/* What is on top, which has no axes, becomes a plain number. */
static int settle(lua_State *L, const Concrete *c)
{
    const Numbers *v = numbers_test(L, -1);
    double x = v->x[0];

    if (!v->axes || c->bare) {
        lua_pop(L, 1);
        lua_pushnumber(L, x);
    }
    return 1;
}

void numbers_push(lua_State *L, const Concrete *c, AxisSet axes,
                  const double *x)
{
    if (!axes || c->bare) {
        lua_pushnumber(L, *x);
        return;
    }
    Numbers *v = push_numbers(L, c, axes);
    memcpy(v->x, x, (size_t)v->n * sizeof *x);
}

typedef struct Operand {
    const double *x;
    AxisSet axes;
    double number;
} Operand;

static bool is_operand(lua_State *L, int arg)
{
    return lua_type(L, arg) == LUA_TNUMBER || lua_isboolean(L, arg)
        || numbers_test(L, arg);
}

static void operand(lua_State *L, const char *name, int arg, Operand *o)
{
    const Numbers *v = numbers_test(L, arg);

    if (!is_operand(L, arg))
        check_misused(L, arg);
    if (!is_operand(L, arg))
        lang_fail(L, lua_isnil(L, arg) ? "is a name misspelled?" : NULL,
                  "%s: argument %d is %s, not a value or a number", name, arg,
                  type_text(L, arg));
    if (v && v->run != run_wanted(L)->run)
        lang_fail(L, "compute with it inside of the function", "%s: argument "
                  "%d belongs to another run of a step", name, arg);
    o->number = lua_isboolean(L, arg) ? lua_toboolean(L, arg)
                                      : lua_tonumber(L, arg);
    o->x = v ? v->x : &o->number;
    o->axes = v ? v->axes : 0;
}

/* The innermost axis of operand i of a loop. */
static Row row_of(const Loop *l, const Operand *o, int i)
{
    return (Row){ o->x + l->off[i], l->step[i][l->nd - 1] };
}

static const double zero = 0, one = 1;

int concrete_elementwise(lua_State *L, const char *name, int op, int arity,
                         double (*value)(const double *x))
{
    const Concrete *c = run_wanted(L);
    Operand o[3] = { { 0 } };
    AxisSet axes[4] = { 0 };
    Loop l;

    for (int i = 0; i < arity; i++) {
        operand(L, name, i + 1, &o[i]);
        axes[i + 1] = o[i].axes;
        axes[0] |= o[i].axes;
    }
    Numbers *y = push_numbers(L, c, axes[0]);
    loop_init(L, &l, c, axes, 4);
    for (int64_t n = 0; n < l.rows; n++, loop_next(&l)) {
        double *to = y->x + l.off[0];
        Row row[3] = { { &zero, 0 }, { &zero, 0 }, { &zero, 0 } };
        for (int i = 0; i < arity; i++)
            row[i] = row_of(&l, &o[i], i + 1);
        if (!value)
            elem_row(op, l.n, to, row[0], row[1], row[2]);
        for (int64_t k = 0; value && k < l.n; k++)
            to[k] = value((double[]){ row[0].p[k * row[0].step],
                                      row[1].p[k * row[1].step],
                                      row[2].p[k * row[2].step] });
    }
    return settle(L, c);
}

/* y of axes `to`: the sums of a * b over all other axes. */
static void add_products(lua_State *L, const Concrete *c, double *y,
                         AxisSet to, const Operand *a, const Operand *b)
{
    AxisSet axes[4] = { to, a->axes, b->axes, 0 };
    Loop l;

    loop_init(L, &l, c, axes, 4);
    memset(y, 0, (size_t)numbers_count(c, to) * sizeof *y);
    bool along = l.step[0][l.nd - 1];
    for (int64_t n = 0; n < l.rows; n++, loop_next(&l)) {
        Row p = row_of(&l, a, 1), q = row_of(&l, b, 2);
        double *sum = y + l.off[0];
        if (along)
            multiply_add(sum, p, q, l.n);
        for (int64_t k = 0; !along && k < l.n; k++)
            *sum += p.p[k * p.step] * q.p[k * q.step];
    }
}

/* ---- functions ---- */

/* The axis called `word`, one of `axes`. */
static int named_axis(lua_State *L, const Concrete *c, const char *name,
                      AxisSet axes, const char *word)
{
    int ax = word ? graph_find_axis(c->g, word) : -1;

    if (ax < 0 || !(axes & AXIS(ax)))
        lang_fail(L, NULL, "%s: there is no axis '%s' here", name,
                  word ? word : "?");
    return ax;
}

static AxisSet named_axes(lua_State *L, const Concrete *c, const char *name,
                          AxisSet axes, int arg)
{
    AxisSet s = 0;
    char word[32];
    int n;

    if (lua_isnoneornil(L, arg))
        return 0;
    for (const char *p = luaL_checkstring(L, arg);
         sscanf(p, " %31s%n", word, &n) == 1; p += n)
        s |= AXIS(named_axis(L, c, name, axes, word));
    return s;
}

/* Pushes x less its mean over these axes. */
static void push_centred(lua_State *L, const Concrete *c, Operand *x,
                         AxisSet over)
{
    Operand b = { .x = &one };
    Numbers *m = push_numbers(L, c, x->axes & ~over);
    Loop l;

    add_products(L, c, m->x, m->axes, x, &b);
    for (int64_t i = 0; i < m->n; i++)
        m->x[i] /= (double)numbers_count(c, over);
    Numbers *y = push_numbers(L, c, x->axes);
    loop_init(L, &l, c, (AxisSet[4]){ y->axes, x->axes, m->axes, 0 }, 4);
    for (int64_t row = 0; row < l.rows; row++, loop_next(&l))
        for (int64_t k = 0; k < l.n; k++)
            y->x[l.off[0] + k * l.step[0][l.nd - 1]] =
                x->x[l.off[1] + k * l.step[1][l.nd - 1]]
                - m->x[l.off[2] + k * l.step[2][l.nd - 1]];
    *x = (Operand){ .x = y->x, .axes = y->axes };
}

/* y of axes `to`: of what of a is beside `most`, exp of it summed; or, most
 * NULL, the largest. */
static void add_along(lua_State *L, const Concrete *c, Numbers *y,
                      const Operand *a, const Numbers *most)
{
    Loop l;

    loop_init(L, &l, c, (AxisSet[4]){ y->axes, a->axes, 0, 0 }, 4);
    for (int64_t i = 0; i < y->n; i++)
        y->x[i] = most ? 0 : -INFINITY;
    for (int64_t row = 0; row < l.rows; row++, loop_next(&l))
        for (int64_t k = 0; k < l.n; k++) {
            int64_t at = l.off[0] + k * l.step[0][l.nd - 1];
            double x = a->x[l.off[1] + k * l.step[1][l.nd - 1]];
            if (most)
                y->x[at] += x == most->x[at] ? 1 : exp(x - most->x[at]);
            else
                y->x[at] = max_(y->x[at], x);
        }
}

/* amax, logsumexp, softmax */
static int reduce_rows(lua_State *L, const Concrete *c, Reduction how,
                       const Operand *a, AxisSet over)
{
    Numbers *most = push_numbers(L, c, a->axes & ~over);
    Loop l;

    add_along(L, c, most, a, NULL);
    if (how == R_AMAX)
        return settle(L, c);
    Numbers *y = push_numbers(L, c, most->axes);
    add_along(L, c, y, a, most);
    for (int64_t i = 0; i < y->n; i++)
        y->x[i] = isinf(most->x[i]) ? most->x[i]
                                    : most->x[i] + log(y->x[i]);
    if (how == R_LOGSUMEXP)
        return settle(L, c);
    Numbers *z = push_numbers(L, c, a->axes);
    loop_init(L, &l, c, (AxisSet[4]){ z->axes, a->axes, y->axes, 0 }, 4);
    for (int64_t row = 0; row < l.rows; row++, loop_next(&l))
        for (int64_t k = 0; k < l.n; k++)
            z->x[l.off[0] + k * l.step[0][l.nd - 1]] =
                exp(a->x[l.off[1] + k * l.step[1][l.nd - 1]]
                    - y->x[l.off[2] + k * l.step[2][l.nd - 1]]);
    return settle(L, c);
}

/* pick(x, index, "n"): what lacks all others' axes is the same along them. */
int concrete_pick(lua_State *L)
{
    const Concrete *c = run_wanted(L);
    Operand a, index;
    Loop l;

    operand(L, "pick", 1, &a);
    operand(L, "pick", 2, &index);
    int ax = c->bare ? -1 : named_axis(L, c, "pick", a.axes,
                                       lua_tostring(L, 3));
    AxisSet over = ax < 0 ? 0 : AXIS(ax);
    int64_t n = ax < 0 ? 1 : extent(c, ax), step = stride(c, a.axes, ax);
    Numbers *y = push_numbers(L, c, (a.axes & ~over) | index.axes);
    loop_init(L, &l, c, (AxisSet[4]){ y->axes, a.axes & ~over, index.axes,
                                      0 }, 4);
    for (int d = 0, x = 0; x < NAXES; x++)      /* as they lie in a */
        if (y->axes & AXIS(x))
            l.step[1][d++] = a.axes & AXIS(x) ? stride(c, a.axes, x) : 0;
    for (int64_t row = 0; row < l.rows; row++, loop_next(&l))
        for (int64_t k = 0; k < l.n; k++) {
            double i = index.x[l.off[2] + k * l.step[2][l.nd - 1]];
            bool is = i >= 0 && i < (double)n;
            bool entry = is && i == floor(i);
            y->x[l.off[0] + k * l.step[0][l.nd - 1]] = !is ? NAN : !entry ? 0
                : a.x[l.off[1] + k * l.step[1][l.nd - 1]
                      + (int64_t)i * step];
        }
    return settle(L, c);
}

int concrete_reduce(lua_State *L, const char *name, Reduction how)
{
    const Concrete *c = run_wanted(L);
    Operand a, b = { .x = &one };
    bool norm = how != R_SUM && how != R_MEAN;

    operand(L, name, 1, &a);
    AxisSet over = named_axes(L, c, name, a.axes, 2);
    if (!over)
        over = a.axes;
    if (how >= R_AMAX)
        return reduce_rows(L, c, how, &a, over);
    if (how == R_LAYER_NORM)
        push_centred(L, c, &a, over);
    Numbers *y = push_numbers(L, c, a.axes & ~over);
    add_products(L, c, y->x, y->axes, &a, norm ? &a : &b);
    for (int64_t i = 0; how != R_SUM && how != R_L2NORM && i < y->n; i++)
        y->x[i] /= (double)numbers_count(c, over);
    if (!norm)
        return settle(L, c);
    for (int64_t i = 0; i < y->n; i++)
        y->x[i] = 1 / sqrt(y->x[i] + (how == R_L2NORM ? NORM_EPS : MEAN_EPS));
    Operand factor = { .x = y->x, .axes = y->axes };
    Numbers *z = push_numbers(L, c, a.axes);
    add_products(L, c, z->x, z->axes, &a, &factor);
    return settle(L, c);
}

int concrete_dot(lua_State *L, bool outer)
{
    const Concrete *c = run_wanted(L);
    const char *name = outer ? "outer" : "dot";
    Operand a, b;

    operand(L, name, 1, &a);
    operand(L, name, 2, &b);
    AxisSet over = outer ? 0 : named_axes(L, c, name, a.axes & b.axes, 3);
    if (!over && !outer)
        over = a.axes & b.axes;
    if (outer ? (a.axes & b.axes) != 0 : !over)
        lang_fail(L, NULL, outer ? "outer: the two share an axis"
                                 : "dot: the two share no axis");
    Numbers *y = push_numbers(L, c, (a.axes | b.axes) & ~over);
    add_products(L, c, y->x, y->axes, &a, &b);
    return settle(L, c);
}

int concrete_size(lua_State *L)
{
    const Concrete *c = run_wanted(L);
    Operand a;

    operand(L, "size", 1, &a);
    int ax = c->bare ? -1 : named_axis(L, c, "size", a.axes,
                                       lua_tostring(L, 2));
    lua_pushnumber(L, ax < 0 ? 1 : extent(c, ax));
    return 1;
}

/* Entry `from` along axis `ax`, or all of them under another name. */
static int move_axis(lua_State *L, const Concrete *c, const Operand *a, int ax,
                     int64_t from, int to)
{
    AxisSet axes = a->axes & ~AXIS(ax), inner = axes;
    int64_t step = stride(c, a->axes, ax);
    Loop l;

    Numbers *y = push_numbers(L, c, axes | (to < 0 ? 0 : AXIS(to)));
    loop_init(L, &l, c, (AxisSet[4]){ y->axes, inner, 0, 0 }, 4);
    /* the second operand goes along `to` as the value goes along `ax` */
    for (int d = 0, x = 0; x < NAXES; x++) {
        if (!(y->axes & AXIS(x)))
            continue;
        l.step[1][d++] = x == to ? step : stride(c, a->axes, x);
    }
    for (int64_t row = 0; row < l.rows; row++, loop_next(&l))
        for (int64_t k = 0; k < l.n; k++)
            y->x[l.off[0] + k * l.step[0][l.nd - 1]] =
                a->x[from * step + l.off[1] + k * l.step[1][l.nd - 1]];
    return settle(L, c);
}

int concrete_at(lua_State *L)
{
    const Concrete *c = run_wanted(L);
    Operand a;

    operand(L, "at", 1, &a);
    if (c->bare) {
        lua_settop(L, 1);
        return 1;
    }
    int ax = named_axis(L, c, "at", a.axes, lua_tostring(L, 2));
    lua_Integer i = lua_tointeger(L, 3);
    if (i < 1 || i > extent(c, ax))
        lang_fail(L, "entries are counted from 1", "at: axis '%s' has no "
                  "entry %lld", lua_tostring(L, 2), (long long)i);
    return move_axis(L, c, &a, ax, i - 1, -1);
}

int concrete_rename(lua_State *L)
{
    const Concrete *c = run_wanted(L);
    const char *word = lua_tostring(L, 3);
    Operand a;

    operand(L, "rename", 1, &a);
    if (c->bare) {
        lua_settop(L, 1);
        return 1;
    }
    int ax = named_axis(L, c, "rename", a.axes, lua_tostring(L, 2));
    int to = word ? graph_find_axis(c->g, word) : -1;
    if (to < 0 || (to != ax && a.axes & AXIS(to))
        || extent(c, to) != extent(c, ax))
        lang_fail(L, NULL, "rename: this value has no axis '%s' to be", word
                  ? word : "?");
    return move_axis(L, c, &a, ax, 0, to);
}

/* Pairs of entries along `ax` turn by the angles along `to`; what these do not
 * reach stays. */
static void turn(lua_State *L, const Concrete *c, const Operand *x,
                 const Operand *angle, int ax, int to, Numbers *y)
{
    AxisSet axes[4] = { x->axes | (angle->axes & ~AXIS(to)), x->axes,
                        angle->axes & ~AXIS(to), 0 };
    int64_t step = stride(c, x->axes, ax), by = stride(c, angle->axes, to);
    int32_t len = extent(c, ax), pairs = extent(c, to);
    int d_of = 0;
    Loop l;

    loop_init(L, &l, c, axes, 4);
    for (int d = 0, a = 0; a < NAXES; a++)
        if (axes[0] & AXIS(a)) {
            if (a == ax)
                d_of = d;
            l.step[2][d++] = axes[2] & AXIS(a) ? stride(c, angle->axes, a) : 0;
        }
    for (int64_t row = 0; row < l.rows; row++, loop_next(&l))
        for (int64_t k = 0; k < l.n; k++) {
            int64_t i = d_of == l.nd - 1 ? k : l.at[d_of];
            const double *p = x->x + l.off[1] + k * l.step[1][l.nd - 1];
            double angle_i = i / 2 < pairs
                ? angle->x[l.off[2] + k * l.step[2][l.nd - 1] + i / 2 * by]
                : 0;
            double other = i % 2 ? p[-step] : i + 1 < len ? -p[step] : 0;
            y->x[l.off[0] + k * l.step[0][l.nd - 1]] = *p * cos(angle_i)
                                                     + other * sin(angle_i);
        }
}

int single_axis(const Graph *g, AxisSet s)
{
    for (int ax = 0; s & (s - 1) && ax < NAXES; ax++)
        if (g->axis[ax].size)
            s &= ~AXIS(ax);
    return s & (s - 1) ? -1 : lowest(s);
}

int concrete_rotate(lua_State *L)
{
    const Concrete *c = run_wanted(L);
    Operand x, angle;

    lua_settop(L, 3);
    operand(L, "rotate", 1, &x);
    operand(L, "rotate", 2, &angle);
    int to = single_axis(c->g, angle.axes & ~x.axes);
    int ax = lua_isnil(L, 3) ? single_axis(c->g, x.axes & ~angle.axes)
        : named_axis(L, c, "rotate", x.axes, lua_tostring(L, 3));
    if (to < 0 || ax < 0)
        lang_fail(L, NULL, "rotate: the angle's axes do not say what turns");
    Numbers *y = push_numbers(L, c, x.axes | (angle.axes & ~AXIS(to)));
    turn(L, c, &x, &angle, ax, to, y);
    return settle(L, c);
}

/* ---- tokens ---- */

void numbers_take(lua_State *L, const Concrete *c, const char *name,
                  AxisSet axes, double *to)
{
    Operand a, b = { .x = &one };

    if (!is_operand(L, -1))
        lang_fail(L, NULL, "run on numbers, the step returns %s for %s",
                  type_text(L, lua_gettop(L)), name);
    operand(L, name, lua_gettop(L), &a);
    if (a.axes & ~axes)
        lang_fail(L, NULL, "run on numbers, the step returns a value of other "
                  "axes for %s", name);
    if (c->bare)
        *to = a.x[0];
    else
        add_products(L, c, to, axes, &a, &b);
    lua_pop(L, 1);
}

int concrete_prev(lua_State *L)
{
    Concrete *c = run_wanted(L);

    if (c->at_prev == c->nprevs)
        lang_fail(L, "call flin.prev in each token alike", "prev: run on "
                  "numbers, the step calls it more often than in its trace");
    int i = c->prevs[c->at_prev++];
    const State *st = &c->g->st[i];
    lua_settop(L, 1);
    numbers_take(L, c, st->name, st->axes, c->next[i]);
    numbers_push(L, c, st->axes, c->now[i]);
    return 1;
}

/* ---- metatables ---- */

/* Upvalue: the operation. */
static int binary(lua_State *L)
{
    int op = (int)lua_tointeger(L, lua_upvalueindex(1));

    lua_settop(L, 2);
    return concrete_elementwise(L, op_info[op].name, op, 2, NULL);
}

static int negate(lua_State *L)
{
    lua_settop(L, 1);
    return concrete_elementwise(L, "neg", OP_neg, 1, NULL);
}

static double power(const double *x) { return pow(x[0], x[1]); }

static int raise_to(lua_State *L)
{
    return concrete_elementwise(L, "^", 0, 2, power);
}

static int no_branch(lua_State *L)
{
    lang_fail(L, "use flin.where(cond, a, b)", "cannot branch on values with "
              "axes");
}

static int no_field(lua_State *L)
{
    lang_fail(L, NULL, "a value has no field or entry %s",
              luaL_tolstring(L, 2, NULL));
}

static int as_text(lua_State *L)
{
    const Numbers *v = numbers_test(L, 1);
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    luaL_addchar(&b, '{');
    for (int64_t i = 0; v && i < v->n; i++) {
        char s[40];
        snprintf(s, sizeof s, i ? ", %.6g" : "%.6g", v->x[i]);
        luaL_addstring(&b, s);
    }
    luaL_addchar(&b, '}');
    luaL_pushresult(&b);
    return 1;
}

static int concat(lua_State *L)
{
    luaL_tolstring(L, 1, NULL);
    luaL_tolstring(L, 2, NULL);
    lua_concat(L, 2);
    return 1;
}

static void add_event(lua_State *L, const char *name, lua_CFunction f, int op)
{
    lua_pushinteger(L, op);
    lua_pushcclosure(L, f, 1);
    lua_setfield(L, -2, name);
}

void concrete_open(lua_State *L)
{
    static const struct { const char *name; lua_CFunction f; int op; } of[] = {
        { "__add", binary, OP_add }, { "__sub", binary, OP_sub },
        { "__mul", binary, OP_mul }, { "__div", binary, OP_div },
        { "__mod", binary, OP_mod },
        { "__unm", negate, 0 }, { "__pow", raise_to, 0 },
        { "__lt", no_branch, 0 }, { "__le", no_branch, 0 },
        { "__eq", no_branch, 0 }, { "__index", no_field, 0 },
        { "__newindex", no_field, 0 }, { "__tostring", as_text, 0 },
        { "__concat", concat, 0 }
    }, truth[] = {
        { "__add", counted, LUA_OPADD }, { "__sub", counted, LUA_OPSUB },
        { "__mul", counted, LUA_OPMUL }, { "__div", counted, LUA_OPDIV },
        { "__mod", counted, LUA_OPMOD }, { "__pow", counted, LUA_OPPOW },
        { "__idiv", counted, LUA_OPIDIV }, { "__unm", counted, LUA_OPUNM },
        { "__lt", counted, COMPARED + LUA_OPLT },
        { "__le", counted, COMPARED + LUA_OPLE }
    };

    luaL_newmetatable(L, CONCRETE_META);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        add_event(L, of[i].name, of[i].f, of[i].op);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    luaL_newmetatable(L, TRUTH_META);
    for (size_t i = 0; i < sizeof truth / sizeof *truth; i++)
        add_event(L, truth[i].name, truth[i].f, truth[i].op);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 2);
}
