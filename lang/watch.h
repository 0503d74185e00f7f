/* watch.h -- a Lua function seen from beside it, one instruction at a time:
 * which way it takes, the numbers that pass, and what it keeps.
 */
#ifndef FLIN_WATCH_H
#define FLIN_WATCH_H

#include "lang.h"

enum { MAX_PASSED = 512, MAX_KEPT = 256 };

/* One run. A trace takes one way whatever the numbers are: where `way` is
 * another for other numbers, something turns on them. */
typedef struct Watch {
    uint64_t way;                       /* of the lines of all instructions */
    bool collects;
    double passed[MAX_PASSED];          /* numbers that registers held */
    int npassed;
    const char *unsteady;               /* a function that gives another result
                                           each time was called; or NULL */
    int line;                           /* where */
    unsigned ticks;
} Watch;

/* From here on; NULL: no longer. What is passed and unsteady stays from run to
 * run until the caller clears it. A host's own hook is left alone, and then
 * nothing is seen. */
void watch(lua_State *L, Watch *w);

/* What a function has kept, by itself and in tables and coroutines that it
 * reaches: a number for each, made of what is there. */
typedef struct Kept { const char *name; uint64_t now; } Kept;
typedef struct Keeps { Kept at[MAX_KEPT]; int n; } Keeps;

/* By the Lua function at `f`. Names are Lua's, alive as long as it is. */
void keeps_of(lua_State *L, int f, Keeps *k);

/* Takes note of unsteady functions; flin's table is on top. */
void watch_open(lua_State *L);

#endif
