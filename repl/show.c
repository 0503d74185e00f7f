/* show.c -- -d and --check: a variant's passes, its errors. */
#include <string.h>

#include "repl.h"

bool show_dump(lua_State *L, const char *letters)
{
    lua_getfield(L, -1, "dump");
    lua_pushvalue(L, -2);
    lua_pushstring(L, letters);
    if (!call(L, 2))
        return false;
    fputs(lua_tostring(L, -1), stdout);
    lua_pop(L, 1);
    return true;
}

/* "T=300,K=64" as a table of options. */
static bool push_options(lua_State *L, const char *sizes)
{
    lua_pushfstring(L, "return {%s}", sizes);
    if (sandbox_load(L, lua_tostring(L, -1), lua_rawlen(L, -1), "=--check")
        != LUA_OK) {
        complain(lua_tostring(L, -1));
        return false;
    }
    lua_remove(L, -2);
    return call(L, 0);
}

/* float32 and its wider and narrower relations: DESIGN's section 9. */
static double tolerance(lua_State *L, int options)
{
    DType d = F32;

    if (lua_getfield(L, options, "dtype") == LUA_TSTRING)
        dtype_named(lua_tostring(L, -1), &d);
    lua_pop(L, 1);
    return d == BF16 ? 4e-3 : d == F16 ? 1e-3 : 1e-5;
}

bool show_check(lua_State *L, const char *sizes)
{
    static const char *const rows[] = { "y", "state", "step", NULL };
    int variant = lua_gettop(L), options = variant + 1;
    double limit, worst;

    if (!push_options(L, sizes))
        return false;
    limit = tolerance(L, options);
    lua_getfield(L, variant, "check");
    lua_pushvalue(L, variant);
    lua_pushvalue(L, options);
    if (!call(L, 2))
        return false;
    lua_getfield(L, variant, "name");
    printf("%s: relative RMS error against the float64 step\n",
           luaL_tolstring(L, -1, NULL));
    lua_pop(L, 2);
    for (int k = 0; rows[k]; k++) {
        if (lua_getfield(L, -1, rows[k]) == LUA_TNUMBER)
            printf("  %-6s %9.2e\n", rows[k], lua_tonumber(L, -1));
        lua_pop(L, 1);
    }
    lua_getfield(L, -1, "worst");
    worst = lua_tonumber(L, -1);
    printf("  worst  %9.2e  %s %.0e\n", worst,
           worst <= limit ? "within" : "NOT within", limit);
    lua_settop(L, variant);
    return worst <= limit;
}
