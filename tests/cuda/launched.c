/* launched.c -- whether v:plan's kernels are those that a call launches, one to
 * one: tests/cuda/launched.lua, where nothing is compiled or run (FAKE_EMPTY)
 * and so no kernel is held to the float64 step before it is used.
 *   launched [NAME [K V]]
 */
#include "../../backend/cuda/build.h"
#include "../../lang/flin.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>

/* In place of verify.c's (see the Makefile): all are right. */
const char *build_verify(Ctx *c, Gpu *g, const Build *b, const Build *forward,
                         const Plan *p)
{
    (void)c, (void)g, (void)b, (void)forward, (void)p;
    return NULL;
}

int main(int argc, char **argv)
{
    lua_State *L = luaL_newstate();
    int status;

    if (!getenv("FAKE_EMPTY")) {
        puts("skip: kernels would run unchecked");
        return 0;
    }
    luaL_openlibs(L);
    luaL_requiref(L, "flin", luaopen_flin, 0);
    status = luaL_loadfile(L, "tests/cuda/launched.lua");
    for (int i = 1; i < argc; i++)
        lua_pushstring(L, argv[i]);
    if (status != LUA_OK || lua_pcall(L, argc - 1, 0, 0) != LUA_OK) {
        printf("FAIL %s\n", luaL_tolstring(L, -1, NULL));
        return 1;
    }
    lua_close(L);
    return 0;
}
