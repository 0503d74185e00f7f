/* wait.c -- while something runs: Ctrl-C stops it, and after a second the
 * terminal says for how long it has been at it.
 */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "repl.h"

/* Presses of Ctrl-C after which the program itself ends: a script may be
 * stuck, and so may something at the prompt. */
enum { SCRIPT_PRESSES = 2, PROMPT_PRESSES = 5 };

static volatile sig_atomic_t presses, allowed = SCRIPT_PRESSES;
static lua_State *running;

static void on_interrupt(int sig)
{
    sandbox_wake(running);
    if (++presses >= allowed - 1)
        signal(sig, SIG_DFL);
}

/* The state ends: there is nothing left to be stopped but the program. */
static int disarm(lua_State *L)
{
    (void)L;
    signal(SIGINT, SIG_DFL);
    return 0;
}

void interrupt_open(lua_State *L)
{
    lua_newuserdatauv(L, 0, 0);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, disarm);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    lua_setfield(L, LUA_REGISTRYINDEX, "flin.interrupt");
}

bool interrupt_taken(void)
{
    return presses > 0;
}

void interrupt_patient(void)
{
    allowed = PROMPT_PRESSES;
}

/* ---- progress ---- */

/* The clock when the work in hand began, in milliseconds; the seconds that are
 * shown (0: none). Polled by any thread. */
static _Atomic(long) began, shown;
static _Atomic(const char *) doing;

static long milliseconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Polled by what takes long: compilations and calls. */
static void show_progress(void)
{
    long spent = (milliseconds() - atomic_load(&began)) / 1000;
    long was = atomic_load(&shown);
    const char *what = atomic_load(&doing);
    char line[128];

    if (spent < 1 || spent == was || !isatty(STDERR_FILENO)
        || !atomic_compare_exchange_strong(&shown, &was, spent))
        return;
    int n = snprintf(line, sizeof line, "\r\033[K%s%s%ld s (Ctrl-C stops)\r",
                     what ? what : "", what ? ": " : "", spent);
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return;                         /* nobody to be told */
}

void progress_clear(void)
{
    if (atomic_exchange(&shown, 0)
        && write(STDERR_FILENO, "\r\033[K", 4) < 0)
        return;
}

void progress(const char *what)
{
    progress_clear();
    atomic_store(&doing, what);
    atomic_store(&began, milliseconds());
}

/* ---- both ---- */

/* Polled while a script runs and by what it calls. */
static bool asked(void *ud)
{
    (void)ud;
    return presses > 0;
}

/* Lua runs: what took long is over, unless it is many calls that have one
 * name. */
static void on_lua(void)
{
    if (!atomic_load(&doing))
        progress(NULL);
}

void interrupt_arm(lua_State *L)
{
    struct sigaction act = { .sa_handler = on_interrupt };

    if (presses)                        /* it may have cut a write short */
        clearerr(stdout);
    presses = 0;
    running = L;
    progress(NULL);
    sigaction(SIGINT, &act, NULL);
    sandbox_interrupt(L, asked, NULL);
    sandbox_progress(L, on_lua, show_progress);
}
