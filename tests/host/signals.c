/* signals.c -- a host's handlers are as they were once kernels are compiled:
 * NVRTC takes their place meanwhile, and puts them back in a way of its own;
 * in two threads, each the other's. */
#include <lua.h>
#include <lauxlib.h>
#include <lualib.h>

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "host.h"

static const char *const script[] = {
    "require 'flin'.stdlib.linear:compile { K = 16, V = 16 }",
    "require 'flin'.stdlib.gla:compile { K = 16, V = 32 }",
};

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

static void check_all_kept(void)
{
    check_kept(SIGINT);
    check_kept(SIGTERM);
}

static void *compile(void *text)
{
    lua_State *L = luaL_newstate();

    luaL_openlibs(L);
    luaL_requiref(L, "flin", luaopen_flin, 0);
    lua_settop(L, 0);
    if (luaL_dostring(L, text) != LUA_OK)
        printf("skip: %s\n", lua_tostring(L, -1));
    lua_close(L);
    return NULL;
}

/* The second begins while the first is in NVRTC, and ends later. */
static void compile_two(void)
{
    enum { MS = 1000000 };
    pthread_t thread[2];

    for (int i = 0; i < 2; i++) {
        CHECK(!pthread_create(&thread[i], NULL, compile, (void *)script[i]));
        nanosleep(&(struct timespec){ 0, 200 * MS }, NULL);
    }
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_join(thread[i], NULL));
}

int main(void)
{
    struct sigaction mine = { .sa_handler = on_signal };

    sigaddset(&mine.sa_mask, SIGALRM);
    CHECK(sigaction(SIGINT, &mine, NULL) == 0);
    CHECK(sigaction(SIGTERM, &mine, NULL) == 0);
    compile((void *)script[0]);
    check_all_kept();
    compile_two();
    check_all_kept();
    return report();
}
