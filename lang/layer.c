/* layer.c -- what a layer's forward function calls beside a step's: variants,
 * and convolutions along tokens.
 */
#include <string.h>

#include "../compiler/layer.h"
#include "bind.h"
#include "concrete.h"
#include "value.h"

/* ---- a variant called on values ---- */

typedef struct Calling {
    Tracer *t;
    const Graph *step;
    Ref arg[MAX_INPUTS];
    Ref y[MAX_OUTPUTS];
} Calling;

bool layer_calls(lua_State *L)
{
    bool any = false;

    if (!lua_istable(L, 2))
        return false;
    if (layer_runs(L))
        return true;
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1))
        any = any || value_test(L, -1) || numbers_test(L, -1);
    return any;
}

/* The tracer of a value in the table at 2; pushes that value. */
static Tracer *find_tracer(lua_State *L, const char *name)
{
    static const char *const help = "in a step, write what it computes: S = "
        "flin.exp(x.g) * s.S + ...";
    Tracer *t = NULL;

    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1))
        if (value_test(L, -1))
            break;
    if (!value_test(L, -1))
        lang_fail(L, help, "%s: called on values in a step", name);
    find_value(L, lua_gettop(L), lua_gettop(L), &t);
    if (!t->g->layer)
        lang_fail(L, help, "%s: a variant is called on values in the forward "
                  "function of a layer, not in a step", name);
    return t;
}

static void check_names(lua_State *L, const Graph *step)
{
    const char *list[MAX_INPUTS];

    for (int i = 0; i < step->nin; i++)
        list[i] = step->in[i].name;
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
        const char *key = luaL_tolstring(L, -2, NULL);
        if (graph_find_input(step, key) < 0)
            lang_fail(L, suggest(L, key, "inputs", list, step->nin),
                      "%s: there is no input '%s'", step->name, key);
        lua_pop(L, 1);
    }
}

/* Has the value, on top, all axes of the input? Others are heads. */
static void check_axes(lua_State *L, const Calling *k, const Input *in, Ref r)
{
    const Graph *g = k->t->g, *step = k->step;
    int top = lua_gettop(L);

    for (int i = 0; i < in->rank; i++) {
        const char *word = step->axis[in->order[i]].name;
        int ax = graph_find_axis(g, word);
        if (ax >= 0 && g->n[r].axes & AXIS(ax))
            continue;
        const char *name = value_name(L, k->t, top);
        lang_fail(L, lua_pushfstring(L, "flin.rename(%s, \"from\", \"%s\") "
                  "calls an axis so", name, word), "%s: input '%s' has axis "
                  "'%s', but %s has none (axes: %s)", step->name, in->name,
                  word, name, value_axes(L, k->t, g->n[r].axes));
    }
    if (!in->timed && g->n[r].timed)
        lang_fail(L, "give it a weight, or a number", "%s: input '%s' is the "
                  "same for all tokens, but %s is not", step->name, in->name,
                  value_name(L, k->t, top));
}

/* "q = a value of axes t k, and those of heads"; pushed. */
static const char *input_help(lua_State *L, const Graph *step, const Input *in)
{
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    for (int i = 0; i < in->rank; i++) {
        luaL_addchar(&b, ' ');
        luaL_addstring(&b, step->axis[in->order[i]].name);
    }
    luaL_pushresult(&b);
    return lua_pushfstring(L, "%s = a value of axes%s%s, and that of heads",
                           in->name, in->timed ? " t" : "",
                           lua_tostring(L, -1));
}

/* Pushes it. */
static const Input *find_argument(lua_State *L, const Graph *step, int i)
{
    const Input *in = &step->in[i];

    if (raw_field(L, 2, in->name) == LUA_TNIL)
        lang_fail(L, input_help(L, step, in), "%s: input '%s' is missing",
                  step->name, in->name);
    return in;
}

static void take_argument(lua_State *L, Calling *k, int i)
{
    const Input *in = find_argument(L, k->step, i);

    k->arg[i] = value_arg(L, k->t, lua_gettop(L));
    check_axes(L, k, in, k->arg[i]);
    lua_pop(L, 1);
}

static void run_call(Ctx *c, void *ud)
{
    Calling *k = ud;

    (void)c;
    layer_call_all(k->t->g, k->step, k->arg, k->y);
}

/* The value, or of several results the table of them. like: as value_push. */
static void push_results(lua_State *L, int like, const Calling *k)
{
    const Graph *step = k->step;

    if (step->nout == 1) {
        value_push(L, like, k->t, k->y[0]);
        return;
    }
    lua_createtable(L, 0, step->nout);
    for (int o = 0; o < step->nout; o++) {
        value_push(L, like, k->t, k->y[o]);
        lua_setfield(L, -2, step->out[o].name);
    }
}

/* ---- a layer called on values: its forward function is ---- */

static int call_layer(lua_State *L, const Variant *v)
{
    enum { X = 3, W };
    Calling k = { .step = v->step };

    if (!layer_runs(L))
        k.t = find_tracer(L, v->step->name);
    lua_settop(L, 2);
    check_names(L, v->step);
    lua_newtable(L);
    lua_newtable(L);
    for (int i = 0; i < v->step->nin; i++) {
        const Input *in = find_argument(L, v->step, i);
        if (k.t)
            check_axes(L, &k, in, value_arg(L, k.t, lua_gettop(L)));
        lua_setfield(L, in->timed ? X : W, in->name);
    }
    lua_getiuservalue(L, 1, OF_FUNCTION);
    lua_insert(L, X);
    lua_call(L, 2, 1);
    return 1;
}

int layer_call_values(lua_State *L)
{
    const Variant *v = variant_check(L, 1);
    if (v->step->layer)
        return call_layer(L, v);
    if (layer_runs(L))
        return concrete_call_variant(L);
    Calling *k = lua_newuserdatauv(L, sizeof *k, 0);

    memset(k, 0, sizeof *k);
    k->step = v->step;
    k->t = find_tracer(L, v->step->name);
    int like = lua_gettop(L);
    if (v->step->mask && v->runs)
        lang_fail(L, NULL, "%s: a mask of both directions has no step: it is "
                  "not for layers", v->step->name);
    if (v->step->mask)
        lang_fail(L, "a mask that factors has a step", "%s: a mask of mode "
                  "\"quadratic\" has no step: it is not for layers",
                  v->step->name);
    check_names(L, v->step);
    for (int i = 0; i < v->step->nin; i++)
        take_argument(L, k, i);
    stamp_line(L, k->t);
    protect(L, k->t->ctx, run_call, k);
    lua_getiuservalue(L, like, 1);
    push_results(L, lua_gettop(L), k);
    return 1;
}

/* ---- convolutions ---- */

static void make_conv(Build *b)
{
    b->r = layer_conv(b->g, b->a[0], b->a[1], b->axis);
}

/* The axes of the taps c: one that x lacks, all others axes of x. */
static int taps_of(lua_State *L, Tracer *t, AxisSet x, AxisSet c)
{
    AxisSet own = c & ~x;
    const char *name = value_name(L, t, 1), *taps = value_name(L, t, 2);

    if (own && !(own & (own - 1)))
        return lowest(own);
    lang_fail(L, "taps have the axes of what they go along, and one of their "
              "own: \"k w\" for \"t k\"", own ? "conv: the taps %s (axes: %s) "
              "have more than one axis that %s lacks (axes: %s)"
              : "conv: the taps %s (axes: %s) have no axis of their own "
              "beside those of %s (axes: %s)", taps, value_axes(L, t, c), name,
              value_axes(L, t, x));
}

int flin_conv(lua_State *L)
{
    Build b = { .make = make_conv };
    Tracer *t = NULL;

    if (lua_gettop(L) != 2)
        lang_fail(L, "flin.conv(x, w.taps)", "conv: takes 2 arguments, got %d",
                  lua_gettop(L));
    if (layer_runs(L))
        return concrete_conv(L);
    int like = find_value(L, 1, 2, &t);
    if (!like || !t->g->layer)
        lang_fail(L, "in a step, flin.prev(x) is the value one token earlier",
                  "conv: convolves values in the forward function of a layer");
    for (int i = 0; i < 2; i++)
        b.a[i] = value_arg(L, t, i + 1);
    const Node *x = &t->g->n[b.a[0]], *c = &t->g->n[b.a[1]];
    if (!x->timed)
        lang_fail(L, NULL, "conv: %s is the same for every token",
                  value_name(L, t, 1));
    if (c->timed)
        lang_fail(L, "declare the taps: weight = { cq = \"k w\" }", "conv: the "
                  "taps %s differ from token to token", value_name(L, t, 2));
    b.axis = taps_of(L, t, x->axes, c->axes);
    return build_push(L, like, t, &b);
}

/* ---- the whole layer ---- */

typedef struct Whole { Variant *v; uint8_t *live; } Whole;

static void run_whole(Ctx *c, void *ud)
{
    Whole *w = ud;
    int32_t size[NAXES] = { 0 };
    Graph *traced = w->v->step, *step = layer_step(traced->layer);

    step->lines = traced->lines;
    w->v->step = step;
    w->live = ctx_alloc(c, step->len);
    graph_live(step, w->live);
    layer_cut(c, step->layer, size);
}

void layer_whole(lua_State *L, Variant *v)
{
    Whole w = { .v = v };

    v->runs = &layer_runs_by_parts;
    protect(L, v->ctx, run_whole, &w);
    for (int i = 0; i < v->step->nin; i++) {
        const Input *in = &v->step->in[i];
        if (!w.live[in->node])
            lang_fail(L, "leave it out, or use it", "%s '%s': forward does "
                      "not depend on it", in->timed ? "input" : "weight",
                      in->name);
    }
}
