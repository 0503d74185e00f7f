/* open.c -- require "flin": the flin table, from C and from stdlib/init.lua. */
#include <string.h>

#include "bind.h"
#include "gpu.h"
#include "io.h"

/* flin._load(name): the embedded file as a function, for init.lua. */
static int load_embedded(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    size_t n = 0;
    const char *s = stdlib_source(name, &n);

    if (!s)
        return luaL_error(L, "flin has no module '%s'", name);
    lua_pushfstring(L, strchr(name, '/') ? "=flin:%s" : "@stdlib/%s.lua", name);
    if (sandbox_load(L, s, n, lua_tostring(L, -1)) != LUA_OK)
        return lua_error(L);
    return 1;
}

/* flin._suggest(word, what, names): help for a word that is none of them. */
static int suggest_name(lua_State *L)
{
    const char *word = luaL_tolstring(L, 1, NULL);
    const char *what = luaL_checkstring(L, 2);
    int n = (int)lua_rawlen(L, 3);
    const char **list = lua_newuserdatauv(L, (size_t)n * sizeof *list + 1, 0);

    luaL_checkstack(L, n + 8, NULL);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 3, i + 1);
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

__attribute__((visibility("default"))) int luaopen_flin(lua_State *L)
{
    luaL_checkversion(L);
    lua_newtable(L);
    tensor_open(L);
    value_open(L);
    variant_open(L);
    mask_open(L);
    pebble_open(L);
    gpu_open(L);
    measure_open(L);
    lua_pushliteral(L, FLIN_VERSION);
    lua_setfield(L, -2, "version");
    lua_pushcfunction(L, load_embedded);
    lua_setfield(L, -2, "_load");
    lua_pushcfunction(L, suggest_name);
    lua_setfield(L, -2, "_suggest");
    list_embedded(L);
    lua_setfield(L, -2, "_modules");
    lua_getfield(L, LUA_REGISTRYINDEX, VARIANT_METHODS);
    lua_setfield(L, -2, "_methods");
    lua_pushcfunction(L, load_embedded);
    lua_pushliteral(L, "init");
    lua_call(L, 1, 1);
    lua_pushvalue(L, -2);
    lua_call(L, 1, 0);
    return 1;
}
