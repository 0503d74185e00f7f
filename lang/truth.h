/* truth.h -- a variant's own Lua function, run on numbers. */
#ifndef FLIN_TRUTH_H
#define FLIN_TRUTH_H

#include "run.h"

/* Keeps what a run of the function at `f` needs in the variant, whose trace is
 * `t`. */
void truth_keep(lua_State *L, int variant, int f, const Tracer *t);

/* Lua error where the step at f, run on numbers, is not its trace, or an input
 * is there for nothing. `at`: where the step begins. */
void step_compare(lua_State *L, int variant, int f, const Tracer *t, Place at);

/* Computes what the call r wants by the variant's function; false: there is
 * none that can, and the interpreter of its trace is to. */
bool truth_run(lua_State *L, Run *r);
/* The call of a mask's trace has run: y again, as the mask's function says;
 * of many tokens, some are compared, and a difference is a Lua error. Nothing
 * of what is no mask. */
void mask_reference(lua_State *L, Run *r);
/* A gradient is that of the trace: Lua error where the variant's function is
 * not its trace at some of the tokens of the call r, which goes backward. */
void truth_hold(lua_State *L, Run *r);
void mask_hold(lua_State *L, Run *r);   /* of a mask */

#endif
