/* sandbox.h -- what sandbox.c and sandbox_lib.c share. */
#ifndef FLIN_SANDBOX_H
#define FLIN_SANDBOX_H

#include <stdatomic.h>
#include <stdio.h>

#include "lang.h"

typedef struct Guard {
    lua_Alloc alloc;                    /* the allocator below this one */
    void *ud;
    Limits lim;
    size_t used;                        /* bytes of Lua */
    size_t told;                        /* of like.tally's: what the collector
                                           knows of */
    uint64_t left;                      /* instructions */
    uint64_t instruction;               /* nanoseconds, by the clock */
    uint64_t looked, sampled, used_cpu; /* nanoseconds: when the last look was;
                                           when it was last seen how much of the
                                           CPU's time was used, and how much */
    atomic_uint polls;                  /* by compilations and calls, each
                                           a piece of work; any thread */
    bool open_files;
    bool (*asked)(void *ud);
    void *asked_ud;
    void (*at_lua)(void), (*at_work)(void);     /* or NULL */
    Ctx like;                           /* what contexts are made from */
} Guard;

/* NULL: a plain Lua state, which flin neither guards nor is attached to. */
Guard *guard_of(lua_State *L);
/* Raises the error of an interrupt or a spent budget. */
void guard_check(lua_State *L, Guard *g);
/* `steps` of work done outside the VM, before it is done. */
void guard_charge(lua_State *L, uint64_t steps);

/* The hook of a guarded state. */
void sandbox_hook(lua_State *L, lua_Debug *ar);
/* Sets the hook that the state has by itself, if any. */
void sandbox_rehook(lua_State *L);

/* A fresh state gets its guard; from the second on it counts. */
Guard *guard_open(lua_State *L, const Limits *lim, bool open_files);
void guard_begin(lua_State *L, Guard *g);

#endif
