/* interrupts.c -- Ctrl-C stops whatever a script has begun, at once. */
#define _DEFAULT_SOURCE                 /* alarm */
#include "lang/lang.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Each takes minutes, or for ever. */
static const char *const endless[] = {
    "while true do end",
    "flin.randn { 200000000 }",
    "flin.arange(1 << 30)",
    "flin.full({ 1 << 30 }, 1)",
    "flin.stdlib.gla:random { T = 1 << 20, H = 16, K = 32, V = 32 }",
    "huge:sum()", "huge:mean()", "huge:max()", "huge:maxabs()",
    "huge:fill(2)", "huge:copy(flin.zeros(1):expand(1, 1 << 40))",
    "huge:totable()",
    "square:norm()", "square:argmax()", "square:logsumexp()",
    "square:sum_over(1)", "square:sum_over(2)",
    "square:sum_over(1, square:sum_over(2))",
    "empty:unit()", "empty:totable()", "empty:sum_over(1)",
    "flin.host.norm('rms', empty)", "flin.host.sum_rows(empty)",
    "flin.ones(1 << 13, 1 << 13):matmul(flin.ones(1 << 13, 1 << 13))",
    "local a = flin.ones(1 << 13, 1 << 13) flin.host.matmul(a, a)",
    "local t, u = {}, {}\n"
    "for i = 1, 1 << 20 do t[i] = {} end\n"
    "for i = 1, 1 << 20 do u[i] = t end\n"
    "flin.tensor(u)",
    "local v = flin.stdlib.gated_deltanet\n"
    "v:forward(v:random { T = 1 << 16, H = 8, K = 64, V = 64 })",
    "local v = flin.stdlib.gated_deltanet\n"
    "v:reference(v:random { T = 1 << 14, H = 8, K = 64, V = 64 })",
    "flin.stdlib.gated_deltanet:check { T = 1 << 14, H = 8, K = 64, V = 64 }",
    "flin.mask_values(function (i, j, p) return i < j and 0 or 1 end, 2048)",
};

static const char prelude[] =
    "local flin = require 'flin'\n"
    "local huge, empty = flin.ones(1):expand(1, 1 << 40), "
    "flin.zeros(1 << 40, 0)\n"
    "local square = flin.ones({}):expand(1, 1 << 20):expand(1, 1 << 20)\n";

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A tenth of a second after it began. */
static bool ask(void *began)
{
    return cpu_seconds() - *(double *)began > 0.1;
}

static bool stops(const char *text)
{
    enum { MOST = 3 };                  /* seconds; under sanitizers, too */
    const Limits none = { 0 };
    double began = cpu_seconds();
    lua_State *L = luaL_newstate();

    alarm(100);
    sandbox_open(L, &none, false);
    sandbox_interrupt(L, ask, &began);
    lua_pushstring(L, prelude);
    lua_pushstring(L, text);
    lua_concat(L, 2);
    const char *why = luaL_dostring(L, lua_tostring(L, -1)) != LUA_OK
                    ? lua_tostring(L, -1) : "it ended";
    double spent = cpu_seconds() - began;
    bool ok = strstr(why, "interrupted") && spent <= MOST;
    if (!ok)
        printf("%s\n  after %.1f s: %s\n", text, spent, why);
    lua_close(L);
    return ok;
}

int main(void)
{
    int n = sizeof endless / sizeof *endless, passed = 0;

    for (int i = 0; i < n; i++)
        passed += stops(endless[i]);
    printf("%d passed, %d failed\n", passed, n - passed);
    return passed != n;
}
