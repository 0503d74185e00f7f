/* shared.h -- what a Lua state has one of, for all its variants and tensors. */
#ifndef FLIN_LANG_SHARED_H
#define FLIN_LANG_SHARED_H

#include "lang.h"

/* ctx: for errors; nothing else lives in it. */
typedef struct Own {
    Shared shared;
    Ctx *ctx;
    struct Times *times;                /* measure.c's, while it listens */
} Own;

/* The state's, made when it is first wanted; as long as the state. */
Own *shared_of(lua_State *L);

/* One more reference to each; one less, and it is empty. */
Shared shared_retain(Shared s);
void shared_release(Shared *s);

#endif
