/* plan_show.c -- v:plan: as a table, as text, or drawn. */
#include <stdio.h>
#include <string.h>

#include "../compiler/scores.h"
#include "bind.h"
#include "plan_view.h"

enum { USUAL_SIZE = 64, USUAL_TOKENS = 8192 };

static const char *text_option(lua_State *L, int arg, const char *name,
                               const char *usual)
{
    if (!lua_istable(L, arg) || raw_field(L, arg, name) == LUA_TNIL)
        return usual;
    return luaL_tolstring(L, -1, NULL);
}

/* What v:plan shows. */
typedef struct Showing {
    Variant *v;
    int way;                            /* of a mask of two directions; or -1 */
    PlanView ask, *w;
} Showing;

static void find(Ctx *c, void *ud)
{
    Showing *s = ud;

    s->w = plan_find(c, s->way < 0 ? s->v
                     : s->v->runs->part(c, s->v, s->way),
                     &s->ask);
}

static void draw_dot(Ctx *c, void *ud)
{
    Showing *s = ud;

    if (s->w->dot.len)
        return;
    s->w->dot.ctx = c;
    plan_dot(s->w, &s->w->dot);
}

/* draw_plan.lua's drawing, which asks for the table. */
static int draw_svg(lua_State *L)
{
    lua_getfield(L, LUA_REGISTRYINDEX, FLIN_OWN);
    lua_getfield(L, -1, "picture");
    lua_getfield(L, -1, "plan");
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_call(L, 2, 1);
    return 1;
}

const Machine *machine_option(lua_State *L, const char *what, int arg,
                              const char *usual)
{
    const char *name = text_option(L, arg, "machine", usual);
    const Machine *m = machine_named(name);

    if (!m)
        lang_fail(L, machine_names(), "%s: there is no machine '%s'", what,
                  name);
    return m;
}

static int plan_of_layer(lua_State *L, Variant *v)
{
    bool backward = option_flag(L, "plan", 2, "backward");

    if (strcmp(text_option(L, 2, "format", "table"), "table"))
        lang_fail(L, NULL, "plan: %s is a layer: its plan is not drawn yet",
                  v->step->name);
    layer_show_plan(L, v, machine_option(L, "plan", 2, "h200"), backward);
    plan_be(L);
    return 1;
}

/* ---- sums by states, or over pairs of tokens, or in blocks ---- */

static const char *way_beside(const Scores *s)
{
    return s->window ? "blocks" : "quadratic";
}

/* What the option `mode` asks for, or the definition. */
static Way way_of_plan(lua_State *L, const Variant *v)
{
    const char *mode = text_option(L, 2, "mode", NULL);

    if (!mode)
        return v->way;
    const char *beside = way_beside(v->step->scores);
    if (strcmp(mode, "linear") && strcmp(mode, beside))
        lang_fail(L, "leave it out for the cheaper", "plan: mode is \"linear\""
                  " or \"%s\", not %s", beside, mode);
    return *mode == 'l' ? WAY_STATES : WAY_PAIRS;
}

/* Which calls of a window in blocks go by states all the same: rings go round
 * by the number of tokens before, which the device alone knows. */
static const char *by_states_still(lua_State *L, const Variant *v)
{
    const Scores *s = v->step->scores;

    if (!s->rest)
        return "; with states given or asked for: by states";
    long long all = s->width + scores_ring_tokens(s, v->step->axis[s->ring_axis]
                                                  .size);
    return lua_pushfstring(L, "\nwith states given: the first %I tokens of a "
        "sequence by states; all, where it has fewer than %I, or its states are"
        " written over; gradients of states: by states",
        (LUAI_UACINT)s->width, (LUAI_UACINT)all);
}

/* Says on the table on top what both ways take, and why this one is shown. Of
 * a window pairs and blocks give final states, too. */
static void say_ways(lua_State *L, const Variant *v, const PairsAsk *ask,
                     Way asked, bool pairs, double by_states, double by_pairs)
{
    const Scores *s = v->step->scores;
    const char *how = s->window ? "in blocks" : "over pairs";

    lua_pushstring(L, pairs ? way_beside(s) : "linear");
    lua_setfield(L, -2, "mode");
    lua_newtable(L);
    lua_pushnumber(L, by_states);
    lua_setfield(L, -2, "linear");
    lua_pushnumber(L, by_pairs);
    lua_setfield(L, -2, way_beside(s));
    lua_setfield(L, -2, "ways");
    lua_getfield(L, -1, "text");
    int top = lua_gettop(L);
    const char *why = asked != WAY_CHEAPER ? "as asked for" : "which is less";
    const char *but = !pairs || asked != WAY_CHEAPER ? ""
        : s->window ? by_states_still(L, v)
        : s->ring_axis ? "; with states given: by states"
        : "; with states given or asked for: by states";
    char text[400];
    snprintf(text, sizeof text, "\nof B %d, T %d, H %d: by states %.3g ns a "
             "token and head, %s %.3g: %s, %s%s\n", (int)ask->batch,
             (int)ask->tokens, (int)ask->heads, 1e9 * by_states, how,
             1e9 * by_pairs, pairs ? how : "by states", why, but);
    lua_settop(L, top);
    lua_pushstring(L, text);
    lua_concat(L, 2);
    lua_setfield(L, -2, "text");
}

static int plan_of_sums(lua_State *L, Variant *v, const PlanView *view,
                        const char *format)
{
    PairsAsk ask = { .view = *view,
                     .batch = option_int(L, "plan", 2, "B", 1),
                     .tokens = option_int(L, "plan", 2, "T", USUAL_TOKENS),
                     .heads = option_int(L, "plan", 2, "H", view->m->walks) };
    Way asked = way_of_plan(L, v);
    double states, pairs;

    plan_weigh(v, &ask, &states, &pairs);
    bool over = asked == WAY_PAIRS || (asked == WAY_CHEAPER && pairs < states);
    if (*format != 't' && over)
        lang_fail(L, "mode = \"linear\"", "plan: one over pairs of tokens, or "
                  "in blocks, is not drawn");
    if (over) {
        plan_push_pairs(L, v, &ask);
    } else {
        Showing *s = lua_newuserdatauv(L, sizeof *s, 0);
        *s = (Showing){ .v = v, .way = -1, .ask = *view };
        protect(L, v->ctx, find, s);
        if (*format != 't') {
            protect(L, s->w->ctx, draw_dot, s);
            lua_pushlstring(L, s->w->dot.s, s->w->dot.len);
            return 1;
        }
        plan_push(L, s->w);
    }
    say_ways(L, v, &ask, asked, over, states, pairs);
    return 1;
}

/* A mask over all pairs of tokens. */
static int plan_of_mask(lua_State *L, Variant *v, const PlanView *view,
                        Args *args)
{
    const char *type = text_option(L, 2, "dtype", "bfloat16");
    MaskAsk ask = { .pairs = { .view = *view,
        .batch = option_int(L, "plan", 2, "B", 1),
        .tokens = option_int(L, "plan", 2, "T", USUAL_TOKENS),
        .heads = option_int(L, "plan", 2, "H", view->m->walks) } };

    pairs_options(L, "plan", 2, args);
    ask.element = !strcmp(type, "float32") ? 4
                : !strcmp(type, "bfloat16") || !strcmp(type, "float16") ? 2 : 0;
    if (!ask.element)
        lang_fail(L, "float32, bfloat16 or float16", "plan: dtype = %s", type);
    ask.cache = args->cache;
    ask.way = args->way;
    plan_push_mask(L, v, &ask);
    return 1;
}

static int variant_plan(lua_State *L)
{
    static const char *const also[] = { "chunk", "backend", "threads",
        "backward", "machine", "format", "from", "mode", "B", "T", "H",
        "dtype", "cache", "way" };
    Variant *v = variant_check(L, 1);
    Args args = { 0 };

    lua_settop(L, 2);
    if (v->step->layer)
        return plan_of_layer(L, v);
    const char *format = text_option(L, 2, "format", "table");
    if (!strcmp(format, "svg"))
        return draw_svg(L);
    Showing *s = lua_newuserdatauv(L, sizeof *s, 0);
    *s = (Showing){ .v = v };
    check_options(L, "plan", v->step, 2, also, v->step->mask ? 14
                  : v->step->scores ? 11 : 7);
    run_options(L, "plan", 2, &args);
    sizes_arg(L, "plan", v->step, 2, USUAL_SIZE, s->ask.size);
    s->ask.asked = args.chunk;
    s->ask.backward = option_flag(L, "plan", 2, "backward");
    s->ask.m = machine_option(L, "plan", 2, "cpu");
    s->way = way_arg(L, "plan", 2, v);
    if (s->way < 0 && v->step->mask && s->ask.m->arch && *format == 't')
        return plan_of_mask(L, v, &s->ask, &args);
    if (s->way < 0)
        refuse_pairs(L, v, "plan");
    if (strcmp(format, "dot") && strcmp(format, "table"))
        lang_fail(L, "formats: table, dot, svg", "plan: there is no format "
                  "'%s'", format);
    if (v->step->scores && s->ask.m->arch)
        return plan_of_sums(L, v, &s->ask, format);
    protect(L, v->ctx, find, s);
    if (*format == 't') {
        plan_push(L, s->w);
        return 1;
    }
    protect(L, s->w->ctx, draw_dot, s);
    lua_pushlstring(L, s->w->dot.s, s->w->dot.len);
    return 1;
}

void plan_methods(lua_State *L)
{
    lua_pushcfunction(L, variant_plan);
    lua_setfield(L, -2, "plan");
}
