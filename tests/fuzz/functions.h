/* functions.h -- every function that the library has registered, called with
 * arguments that nobody meant (functions.lua): none may read or write memory
 * that is not its own, and all must stop when they are asked to.
 *
 * tests/unit/hostile.c draws the arguments; under libFuzzer they are the
 * fuzzer's bytes (tests/fuzz/functions.c).
 */
#ifndef FLIN_TESTS_FUNCTIONS_H
#define FLIN_TESTS_FUNCTIONS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lang/lang.h"

typedef struct Caller {
    lua_State *L;
    uint32_t (*choose)(void *ud, uint32_t n);   /* 0 .. n - 1 */
    void *ud;
    bool verbose;
    long calls, late;                   /* late: did not stop when asked */
    char name[128];                     /* of the latest call */
    double began;                       /* when the latest call did */
} Caller;

/* Seconds of the processor: that a call may take, and then take to stop. */
static const double patience = 1, grace = 4;

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool caller_asks(void *ud)
{
    const Caller *c = ud;

    return cpu_seconds() - c->began > patience;
}

static void note_late(Caller *c)
{
    double spent = cpu_seconds() - c->began;

    if (*c->name && spent > patience + grace) {
        c->late++;
        printf("%s: stopped after %.1f s\n", c->name, spent);
    }
}

/* ---- what the script calls; each has the caller as an upvalue ---- */

static Caller *up_caller(lua_State *L)
{
    return lua_touserdata(L, lua_upvalueindex(1));
}

static int caller_pick(lua_State *L)
{
    Caller *c = up_caller(L);
    lua_Integer n = luaL_checkinteger(L, 1);

    lua_pushinteger(L, n < 1 || n > 1 << 30 ? 1
                    : 1 + (lua_Integer)c->choose(c->ud, (uint32_t)n));
    return 1;
}

static int caller_tick(lua_State *L)
{
    Caller *c = up_caller(L);

    note_late(c);
    snprintf(c->name, sizeof c->name, "%s", luaL_checkstring(L, 1));
    c->calls++;
    if (c->calls % 16 == 0)
        lua_gc(L, LUA_GCCOLLECT, 0);
    c->began = cpu_seconds();
    return 0;
}

static int caller_say(lua_State *L)
{
    puts(luaL_checkstring(L, 1));
    fflush(stdout);
    return 0;
}

/* ---- a state, and rounds of calls in it ---- */

static void push_tool(Caller *c, lua_CFunction f)
{
    lua_pushlightuserdata(c->L, c);
    lua_pushcclosure(c->L, f, 1);
}

static int no_print(lua_State *L)
{
    return lua_gettop(L) * 0;
}

/* Leaves the function that makes calls on the stack. */
static int open_round(lua_State *L)
{
    Caller *c = lua_touserdata(L, 1);

    lua_pushcfunction(L, no_print);
    lua_setglobal(L, "print");
    if (luaL_loadfile(L, "tests/fuzz/functions.lua") != LUA_OK)
        return lua_error(L);
    lua_pushcfunction(L, luaopen_debug);
    lua_call(L, 0, 1);
    push_tool(c, caller_pick);
    push_tool(c, caller_tick);
    if (c->verbose)
        lua_pushcfunction(L, caller_say);
    else
        lua_pushnil(L);
    lua_call(L, 4, 1);
    return 1;
}

/* Collects all the time, so that what is not kept alive is gone. */
static bool caller_open(Caller *c)
{
    const Limits limits = { .instructions = 30000000, .memory = 256 << 20,
                            .nodes = 3000 };

    *c->name = 0;
    c->began = cpu_seconds();
    c->L = luaL_newstate();
    sandbox_open(c->L, &limits, false);
    lua_pushcfunction(c->L, open_round);
    lua_pushlightuserdata(c->L, c);
    if (lua_pcall(c->L, 1, 1, 0) != LUA_OK) {
        printf("%s\n", lua_tostring(c->L, -1));
        return false;
    }
    sandbox_interrupt(c->L, caller_asks, c);
    lua_gc(c->L, LUA_GCINC, 20, 400, 0);
    return true;
}

/* So many calls, or as many as the budget pays for. */
static void caller_run(Caller *c, int calls)
{
    sandbox_renew(c->L);
    c->began = cpu_seconds();
    lua_pushvalue(c->L, 1);
    lua_pushinteger(c->L, calls);
    lua_pcall(c->L, 1, 0, 0);
    note_late(c);
    *c->name = 0;
    lua_settop(c->L, 1);
}

static void caller_close(Caller *c)
{
    c->began = cpu_seconds();
    lua_close(c->L);
    c->L = NULL;
}

#endif
