/* run.h -- what calls from Lua share: run.c begins them all, backward.c has
 * the ones that run backwards.
 */
#ifndef FLIN_RUN_H
#define FLIN_RUN_H

#include "bind.h"

/* A call in progress, its memory freed with the userdata. */
typedef struct Run {
    Ctx *ctx;
    Variant *v;
    Args args;
    Bound bound;
    bool inplace;
    bool stateless;                     /* states = false: none is given, none
                                           is left behind */
    const Validation *before;           /* it ran by the function */
} Run;

/* v:METHOD(tensors, options): the second table's fields go to a copy of the
 * first, which takes its place; refuses what is in both, and what is neither.
 */
void join_options(lua_State *L, const char *what);

/* The call v:METHOD(table), checked and bound. Leaves on the stack: variant,
 * arguments, kept tensors, run, cu_seqlens; results come on top of these. */
Run *run_begin(lua_State *L, Mode mode);
/* protect, of what takes plans: plans_try. The second: ctx_protect of it. */
void protect_call(lua_State *L, Run *r, void (*f)(Ctx *c, void *ud), void *ud);
bool try_call(Run *r, void (*f)(Ctx *c, void *ud), void *ud);
void run_end(Run *r);
/* y and the final states of the call r, of mode reference: by the variant's
 * own function, where it has one. The variant is at index 1 of the stack. */
void reference_call(lua_State *L, Run *r);
/* What validation says of v:forward(arguments), growth included: a text, or
 * nil. A function of Lua. */
int run_trouble(lua_State *L);

/* The tensor at the top of the stack. A constant without axes may be a
 * number: it stands for all heads; the tensor made of it replaces it. */
Given tensor_value(lua_State *L, const char *what, const char *name,
                   bool number);
/* The table of states on top of the stack; its tensors are kept. */
void state_values(lua_State *L, const Graph *g, const char *what,
                  const char *field, Given *state);
/* What is on top lives as long as the call: in its kept tensors, at index 3 of
 * the stack. */
void keep_top(lua_State *L);
/* Pushes a new tensor, where the call's are, and says at which address. */
Tensor *push_result(lua_State *L, const Run *r, DType d, int rank,
                    const int64_t *shape, Given *g);

/* Pushes what v:backward{ saved = } takes in place of the call's arguments,
 * which are at index 2 of the stack; room: where what push_room has pushed is,
 * or 0. */
void push_saved(lua_State *L, Stored stored, int room);
/* Pushes room for what the plan stores (see run_saved), where the call's
 * tensors are. */
Stored push_room(lua_State *L, const Run *r, int64_t bytes);
void backward_methods(lua_State *L);
void backward_prepare(lua_State *L);    /* v:prepare, where it goes backwards */

#endif
