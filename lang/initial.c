/* initial.c -- how constants and weights begin, and what layers make of a
 * variant's inputs before they have learned: the numbers and functions that a
 * definition gives in `initial`, and what those draw; and how long a layer's
 * axes usually are, by its `usual`.
 */
#include "bind.h"
#include "tensor.h"

#define USUAL_HELP "usual = { r = 16, k = function (size) return size.d //" \
                   " size.h end }"

static void check_entry(lua_State *L, const Graph *g, const char *what)
{
    const char *list[MAX_INPUTS];
    int n = 0;

    for (int i = 0; i < g->nin; i++)
        if (!g->layer || !g->in[i].timed)
            list[n++] = g->in[i].name;
    if (lua_type(L, -2) != LUA_TSTRING)
        lang_fail(L, "initial = { A_log = flin.initial.log_rates() }",
                  "%s: initial: names of inputs are wanted, not %s", what,
                  type_text(L, -2));
    const char *key = lua_tostring(L, -2);
    int i = graph_find_input(g, key);
    if (i < 0)
        lang_fail(L, suggest(L, key, "inputs", list, n),
                  "%s: initial: there is no input '%s'", what, key);
    if (g->layer && g->in[i].timed)
        lang_fail(L, suggest(L, key, "inputs without tokens", list, n),
                  "%s: initial: '%s' has tokens: calls give it", what, key);
    if (!lua_isfunction(L, -1) && lua_type(L, -1) != LUA_TNUMBER)
        lang_fail(L, "flin.initial has some; or function (at) return 1 / at.h "
                  "end", "%s: initial: '%s' is a number or a function, not %s",
                  what, key, type_text(L, -1));
}

static void check_usual(lua_State *L, const Graph *g, const char *what)
{
    const char *list[NAXES];
    int n = 0;

    for (int ax = AX_DIM; ax < g->naxes; ax++)
        list[n++] = g->axis[ax].name;
    if (lua_type(L, -2) != LUA_TSTRING)
        lang_fail(L, USUAL_HELP, "%s: usual: names of axes are wanted, not %s",
                  what, type_text(L, -2));
    const char *key = lua_tostring(L, -2);
    int ax = graph_find_axis(g, key);
    if (ax < 0)
        lang_fail(L, suggest(L, key, "axes", list, n),
                  "%s: usual: there is no axis '%s'", what, key);
    if (g->axis[ax].size)
        lang_fail(L, ctx_format(g->ctx, "leave one of the two out"),
                  "%s: usual: axis '%s' is %d long by `axes`", what, key,
                  (int)g->axis[ax].size);
    if (!lua_isfunction(L, -1) && !(lua_isinteger(L, -1)
                                    && lua_tointeger(L, -1) > 0))
        lang_fail(L, USUAL_HELP, "%s: usual: '%s' is a whole number from 1 on,"
                  " or a function of the other axes' sizes, not %s", what, key,
                  shown_text(L, -1));
}

/* A copy of the table in that field, each entry of which `check` takes; an
 * empty one where there is no field. */
static void keep_table(lua_State *L, int def, int variant, const char *what,
                       const char *field, const char *help, int slot,
                       void (*check)(lua_State *, const Graph *, const char *))
{
    const Variant *v = variant_check(L, variant);
    int type = lua_getfield(L, def, field);

    if (type != LUA_TNIL && type != LUA_TTABLE)
        lang_fail(L, help, "%s: %s must be a table, not %s", what, field,
                  type_text(L, -1));
    lua_newtable(L);
    for (lua_pushnil(L); type == LUA_TTABLE && lua_next(L, -3); ) {
        check(L, v->step, what);
        lua_pushvalue(L, -2);
        lua_rotate(L, -2, 1);
        lua_rawset(L, -4);
    }
    lua_setiuservalue(L, variant, slot);
    lua_pop(L, 1);
}

void initial_keep(lua_State *L, int def, int variant, const char *what)
{
    keep_table(L, def, variant, what, "initial",
               "initial = { A_log = flin.initial.log_rates() }", OF_INITIAL,
               check_entry);
    keep_table(L, def, variant, what, "usual", USUAL_HELP, OF_USUAL,
               check_usual);
}

void initial_copy(lua_State *L, int to, int from)
{
    static const int slots[] = { OF_INITIAL, OF_USUAL };

    for (int i = 0; i < 2; i++) {
        lua_getiuservalue(L, from, slots[i]);
        lua_setiuservalue(L, to, slots[i]);
    }
}

/* own.initial(v), own.usual(v): the table; nil of what has none. */
static int get_initial(lua_State *L)
{
    variant_check(L, 1);
    lua_getiuservalue(L, 1, OF_INITIAL);
    return 1;
}

static int get_usual(lua_State *L)
{
    variant_check(L, 1);
    lua_getiuservalue(L, 1, OF_USUAL);
    return 1;
}

static int uniform(lua_State *L)
{
    double from = luaL_optnumber(L, 1, 0), to = luaL_optnumber(L, 2, 1);
    double x = rng_uniform(lua_touserdata(L, lua_upvalueindex(1)));

    lua_pushnumber(L, from + (to - from) * x);
    return 1;
}

static int normal(lua_State *L)
{
    double deviation = luaL_optnumber(L, 1, 1);

    lua_pushnumber(L, deviation
                   * rng_normal(lua_touserdata(L, lua_upvalueindex(1))));
    return 1;
}

/* own.draws(seed): uniform(from, to) and normal(deviation) of one sequence. */
static int draws(lua_State *L)
{
    uint64_t seed = (uint64_t)luaL_checkinteger(L, 1);

    rng_seed(lua_newuserdatauv(L, sizeof(Rng), 0), seed);
    int r = lua_gettop(L);
    lua_pushvalue(L, r);
    lua_pushcclosure(L, uniform, 1);
    lua_pushvalue(L, r);
    lua_pushcclosure(L, normal, 1);
    return 2;
}

void initial_own(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "initial", get_initial }, { "usual", get_usual },
        { "draws", draws }, { NULL, NULL }
    };

    luaL_setfuncs(L, functions, 0);
}
