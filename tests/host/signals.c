/* signals.c -- a host's handlers are as they were once kernels are compiled:
 * NVRTC takes their place meanwhile, and puts them back in a way of its own. */
#include <lua.h>
#include <lauxlib.h>
#include <lualib.h>

#include <signal.h>

#include "host.h"

static const char script[] =
    "require 'flin'.stdlib.linear:compile { K = 16, V = 16 }";

static volatile sig_atomic_t came;

static void on_signal(int sig)
{
    came = sig;
}

/* Waits are to end when it comes: no SA_RESTART. */
static void check_kept(int sig)
{
    struct sigaction a;

    CHECK(sigaction(sig, NULL, &a) == 0);
    CHECK(a.sa_handler == on_signal && !(a.sa_flags & SA_RESTART));
    CHECK(sigismember(&a.sa_mask, SIGALRM) == 1);
    raise(sig);
    CHECK(came == sig);
}

int main(void)
{
    struct sigaction mine = { .sa_handler = on_signal };
    lua_State *L = luaL_newstate();

    luaL_openlibs(L);
    luaL_requiref(L, "flin", luaopen_flin, 0);
    lua_settop(L, 0);
    sigaddset(&mine.sa_mask, SIGALRM);
    CHECK(sigaction(SIGINT, &mine, NULL) == 0);
    CHECK(sigaction(SIGTERM, &mine, NULL) == 0);
    if (luaL_dostring(L, script) != LUA_OK)
        printf("skip: %s\n", lua_tostring(L, -1));
    check_kept(SIGINT);
    check_kept(SIGTERM);
    lua_close(L);
    return report();
}
