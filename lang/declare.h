/* declare.h -- what a declaration may be: names, axes, domains. */
#ifndef FLIN_DECLARE_H
#define FLIN_DECLARE_H

#include <lua.h>

/* Lua errors, in the name of function `who`, where `name` is none that an
 * "input", "weight", "state" or "axis" may have, and where `axes`, as "t k :
 * log_decay", names axes that calls bring, or no domain that there is. */
void declared_name(lua_State *L, const char *who, const char *what,
                   const char *name);
void declared_axes(lua_State *L, const char *who, const char *field,
                   const char *name, const char *axes);

#endif
