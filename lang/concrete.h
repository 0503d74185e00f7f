/* concrete.h -- a step's own function, run on numbers: one token at a time.
 *
 * What has no axes is a plain Lua number, so that == and `if` and tables take
 * it as the user's Lua does; what has axes is a userdata that computes at
 * once, in double. The function as it runs here is the truth; its trace is
 * compared with it.
 */
#ifndef FLIN_CONCRETE_H
#define FLIN_CONCRETE_H

#include "../compiler/eval.h"
#include "../compiler/layer.h"
#include "lang.h"

#define CONCRETE_META "flin.concrete"

/* A value with axes: dense, by axis number, the last fastest. */
typedef struct Numbers {
    lua_Integer run;                    /* whose axes these are */
    AxisSet axes;
    int64_t n;
    double x[];
} Numbers;

typedef struct Concrete {
    lua_Integer run;                    /* its number: each has another */
    const Graph *g;                     /* a step; NULL: a mask runs */
    int32_t size[NAXES];
    bool truths;                        /* flin.lt and its like give booleans,
                                           which count as 0 and 1 */
    bool bare;                          /* all sizes are 1: nothing has axes */
    bool quiet;                         /* print prints nothing */
    struct Watch *watch;                /* sees the run; or NULL */
    const uint8_t *prevs;               /* the state of each call of flin.prev,
                                           in their order */
    int nprevs, at_prev;
    Eval *call[MAX_CALLS];              /* of a layer: each variant's step */
    int at_call;
    double *in[MAX_INPUTS], *now[MAX_STATES], *next[MAX_STATES];
    double *out[MAX_RESULTS];
} Concrete;

/* Calls the function below its nargs arguments as lua_call does, with c the
 * run at hand; afterwards, errors or not, all is as before. */
void concrete_call(lua_State *L, Concrete *c, int nargs, int nresults);
/* The run at hand, or NULL. */
Concrete *concrete_now(lua_State *L);
/* Do comparisons give booleans? */
bool truths_given(lua_State *L);

/* Entries of these axes. */
int64_t numbers_count(const Concrete *c, AxisSet axes);

/* concrete_token.c: room for all of a step's values, in ctx. */
void concrete_room(Ctx *ctx, Concrete *c);
/* One token: from c->in and c->now to c->next and c->out, by the step's
 * function at `f`. Within concrete_call. */
void concrete_token(lua_State *L, Concrete *c, int f);

/* What functions.c leaves to this file: called with the arguments of the
 * function, of which one is of numbers with axes (or any, for prev). */
static inline Numbers *numbers_test(lua_State *L, int arg)
{
    return luaL_testudata(L, arg, CONCRETE_META);
}
bool any_numbers(lua_State *L);         /* among all arguments */
int concrete_elementwise(lua_State *L, const char *name, int op, int arity,
                         double (*value)(const double *x));
/* What keeps norms of zeros finite: beside a sum of squares, a mean of them. */
#define NORM_EPS 1e-6
#define MEAN_EPS 1e-5
typedef enum Reduction { R_SUM, R_MEAN, R_L2NORM, R_RMS_NORM,
                         R_LAYER_NORM, R_AMAX, R_LOGSUMEXP,
                         R_SOFTMAX } Reduction;
int concrete_reduce(lua_State *L, const char *name, Reduction how);
int concrete_pick(lua_State *L);
int concrete_dot(lua_State *L, bool outer);
int concrete_size(lua_State *L);
int concrete_at(lua_State *L);
int concrete_rename(lua_State *L);
int concrete_rotate(lua_State *L);
int concrete_prev(lua_State *L);

void concrete_open(lua_State *L);

/* concrete_layer.c: room for a layer's calls; those calls in a layer's run:
 * with the arguments of variant { ... } and of flin.conv. */
void layer_room(Ctx *ctx, Concrete *c);
bool layer_runs(lua_State *L);          /* is one at hand? */
int concrete_call_variant(lua_State *L);
int concrete_conv(lua_State *L);
int concrete_layer_prev(lua_State *L);
/* Lua error where forward has called less often than in its trace. */
void check_calls(lua_State *L, const Concrete *c);
/* For these: what is on top, spread over the axes where it lacks some; pops
 * it. Numbers of these axes, pushed. */
void numbers_take(lua_State *L, const Concrete *c, const char *name,
                  AxisSet axes, double *to);
void numbers_push(lua_State *L, const Concrete *c, AxisSet axes,
                  const double *x);

#endif
