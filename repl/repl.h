/* repl.h -- what the files of the program share. */
#ifndef FLIN_REPL_H
#define FLIN_REPL_H

#include <stdio.h>

#include "lang/lang.h"

/* Ctrl-C: a first one asks the running script to stop, a second one ends the
 * program. */
void interrupt_arm(lua_State *L);
bool interrupt_taken(void);             /* since it was armed */

/* Calls the function below `nargs` arguments; any number of results. On an
 * error its message is printed and popped; false. */
bool call(lua_State *L, int nargs);
void complain(const char *message);

/* What becomes of the variant that a script returns, on top of the stack;
 * false when it failed, said on stderr. */
bool show_dump(lua_State *L, const char *letters);
bool show_check(lua_State *L, const char *sizes);
bool show_compile(lua_State *L, const char *sizes, const char *arch);

/* The interactive prompt, until the end of input. */
void prompt(lua_State *L);

#endif
