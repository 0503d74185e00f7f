/* script.c -- any text as a script in the sandbox: it may fail, no more. */
#include "lang/lang.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int run(lua_State *L)
{
    const Limits limits = { .instructions = 1000000, .memory = 64 << 20,
                            .nodes = 3000 };
    const char *s = lua_touserdata(L, 1);
    size_t n = (size_t)lua_tointeger(L, 2);

    sandbox_open(L, &limits, false);
    lua_pushnil(L);
    lua_setglobal(L, "print");
    if (sandbox_load(L, s, n, "@fuzz.lua") == LUA_OK)
        lua_pcall(L, 0, 1, 0);
    luaL_tolstring(L, -1, NULL);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    lua_State *L = luaL_newstate();

    lua_pushcfunction(L, run);
    lua_pushlightuserdata(L, (void *)(uintptr_t)data);
    lua_pushinteger(L, (lua_Integer)n);
    lua_pcall(L, 2, 0, 0);
    lua_close(L);
    return 0;
}
