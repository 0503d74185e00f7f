/* mentions.h -- the numbers that a Lua function mentions.
 *
 * Lua compares a symbolic value with a number, or reads a table at one,
 * without asking anybody: so a function is also run on numbers, and on those
 * above all that it can tell from others.
 */
#ifndef FLIN_MENTIONS_H
#define FLIN_MENTIONS_H

#include "lang.h"

enum { MAX_MENTIONS = 96 };

/* compared: == or ~= stands beside it. line: 0 where it is not known. */
typedef struct Mention { double x; int line; bool compared; } Mention;

typedef struct Mentions {
    Mention at[MAX_MENTIONS];           /* what is compared first */
    int n;
    double longest;                     /* table's last whole number */
    bool asks;                          /* something may turn on a value */
    bool letters;                       /* or on how it is written */
    int line, equality;                 /* where, an == before others;
                                           0: unknown */
} Mentions;

/* Constants of the function at `f` and of Lua functions that it reaches by
 * upvalues and globals, the numbers there, keys and lengths of tables. */
void mentions_of(lua_State *L, int f, Mentions *m);

#endif
