/* measure.c -- flin.clock, and how fast this machine copies. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lang.h"

enum { COPY_BYTES = 1 << 26, COPY_RUNS = 7, COPY_THREADS = 256 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int flin_clock(lua_State *L)
{
    lua_pushnumber(L, now());
    return 1;
}

typedef struct Copy { char *from, *to; size_t bytes; } Copy;

static void *copy_part(void *ud)
{
    Copy *c = ud;

    memcpy(c->to, c->from, c->bytes);
    return NULL;
}

/* All parts at once; those that no thread is to be had for, one by one. */
static void copy_all(Copy *part, int n)
{
    pthread_t thread[COPY_THREADS];
    int started = 0;

    while (started < n - 1
           && !pthread_create(&thread[started], NULL, copy_part,
                              &part[started]))
        started++;
    for (int i = started; i < n; i++)
        copy_part(&part[i]);
    while (started > 0)
        pthread_join(thread[--started], NULL);
}

static double best_copy(Copy *part, int n)
{
    double best = 0;

    for (int i = 0; i < COPY_RUNS; i++) {
        double start = now();
        copy_all(part, n);
        double rate = 2.0 * COPY_BYTES / (now() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

/* flin._copy_rate(threads): bytes a second, read and written, 0: all cores.
 * The best of several: a floor is not to be too low. */
static int copy_rate(lua_State *L)
{
    lua_Integer n = luaL_checkinteger(L, 1);
    char *from = malloc(2 * (size_t)COPY_BYTES);
    Copy part[COPY_THREADS];

    if (n <= 0)
        n = sysconf(_SC_NPROCESSORS_ONLN);
    n = n < 1 ? 1 : n > COPY_THREADS ? COPY_THREADS : n;
    if (!from)
        lang_no_memory(L, "out of memory");
    memset(from, 1, 2 * (size_t)COPY_BYTES);
    for (lua_Integer i = 0; i < n; i++) {
        size_t at = COPY_BYTES / (size_t)n * (size_t)i;
        size_t end = i + 1 < n ? COPY_BYTES / (size_t)n * (size_t)(i + 1)
                               : COPY_BYTES;
        part[i] = (Copy){ from + at, from + COPY_BYTES + at, end - at };
    }
    lua_pushnumber(L, best_copy(part, (int)n));
    free(from);
    return 1;
}

void measure_open(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "clock", flin_clock }, { "_copy_rate", copy_rate }, { NULL, NULL }
    };

    luaL_setfuncs(L, functions, 0);
}
