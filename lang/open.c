/* open.c -- require "flin": the flin table, from C and from stdlib/init.lua. */
#include <string.h>

#include "bind.h"
#include "concrete.h"
#include "gpu.h"
#include "io.h"
#include "plan_view.h"
#include "run.h"
#include "value.h"
#include "watch.h"

/* own.load(name, part): the embedded file as a function. A part of flin's own
 * is not where a user looks for what is wrong: the caller is. */
static int load_embedded(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    size_t n = 0;
    const char *s = stdlib_source(name, &n);

    if (!s)
        return luaL_error(L, "flin has no module '%s'", name);
    bool own = !strncmp(name, "lang/", 5);
    lua_pushfstring(L, own ? "=flin:%s" : lua_toboolean(L, 2)
                    ? "=flin:stdlib/%s.lua" : "@stdlib/%s.lua", name);
    if (sandbox_load(L, s, n, lua_tostring(L, -1)) != LUA_OK)
        return lua_error(L);
    return 1;
}

enum { NAMES_MAX = 4096 };

/* own.suggest(word, what, names): help for a word that is none of them. */
static int suggest_name(lua_State *L)
{
    const char *word = luaL_tolstring(L, 1, NULL);
    const char *what = luaL_checkstring(L, 2);

    luaL_checktype(L, 3, LUA_TTABLE);
    luaL_argcheck(L, lua_rawlen(L, 3) <= NAMES_MAX, 3, "too many names");
    int n = (int)lua_rawlen(L, 3);
    const char **list = lua_newuserdatauv(L, (size_t)n * sizeof *list + 1, 0);
    luaL_checkstack(L, n + 8, NULL);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 3, i + 1);       /* stays, so that it lives */
        list[i] = luaL_checkstring(L, -1);
    }
    suggest(L, word, what, list, n);
    return 1;
}

static void list_embedded(lua_State *L)
{
    lua_newtable(L);
    for (int i = 0; stdlib_name(i); i++) {
        lua_pushstring(L, stdlib_name(i));
        lua_rawseti(L, -2, i + 1);
    }
}

/* What flin's own Lua has beside the flin table: init.lua hands it on, and the
 * program finds it in the registry. Nothing that a script can reach has it. */
static void push_own(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "load", load_embedded }, { "suggest", suggest_name },
        { NULL, NULL }
    };

    luaL_newlib(L, functions);
    measure_own(L);
    initial_own(L);
    list_embedded(L);
    lua_setfield(L, -2, "modules");
    lua_getfield(L, LUA_REGISTRYINDEX, VARIANT_METHODS);
    lua_setfield(L, -2, "methods");
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, FLIN_OWN);
}

void tensors_open(lua_State *L)
{
    tensor_meta(L);
    tensor_arithmetic(L);
    lua_newtable(L);
    tensor_methods(L);
    tensor_reductions(L);
    tensor_ops_open(L);
    tensor_fields(L);
    lua_pop(L, 1);
    make_open(L);
    host_open(L);
    files_open(L);
}

static void values_open(lua_State *L)
{
    value_open(L);
    concrete_open(L);
    watch_open(L);
    functions_open(L);
}

/* init.lua adds methods in Lua. */
static void variants_open(lua_State *L)
{
    variant_meta(L);
    describe_methods(L);
    variant_methods(L);
    stage_methods(L);
    layer_part_methods(L);
    run_methods(L);
    backward_methods(L);
    check_methods(L);
    plan_methods(L);
    io_methods(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, VARIANT_METHODS);
    describe_fields(L);
    lua_pop(L, 1);
    variant_open(L);
}

__attribute__((visibility("default"))) int luaopen_flin(lua_State *L)
{
    luaL_checkversion(L);
    lua_newtable(L);
    tensors_open(L);
    values_open(L);
    variants_open(L);
    mask_open(L);
    pebble_open(L);
    gpu_open(L);
    measure_open(L);
    lua_pushliteral(L, FLIN_VERSION);
    lua_setfield(L, -2, "version");
    push_own(L);
    lua_pushcfunction(L, load_embedded);
    lua_pushliteral(L, "init");
    lua_call(L, 1, 1);
    lua_pushvalue(L, -3);
    lua_rotate(L, -3, -1);
    lua_call(L, 2, 0);
    return 1;
}
