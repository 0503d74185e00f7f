/* value.h -- what value.c and functions.c share. */
#ifndef FLIN_VALUE_H
#define FLIN_VALUE_H

#include "lang.h"

/* The arguments of one builder call, and what runs it: outside of Lua, so
 * that a failure cannot jump over a C frame that Lua knows nothing of. */
typedef struct Build {
    Graph *g;
    Ref a[3];
    int op, axis, to;
    AxisSet over;
    double x;
    Ref r;                              /* the result */
    const char *text[2];                /* or two, in the arena */
    void (*make)(struct Build *b);
} Build;

/* Stamps the running line, runs make; a failure is a Lua error. */
void build(lua_State *L, Tracer *t, Build *b);
/* The same, and pushes the result; `like` is the index of a value. */
int build_push(lua_State *L, int like, Tracer *t, Build *b);

/* Lua error: the ==, or ~=, of the running line is known only later. */
_Noreturn void refuse_equality(lua_State *L, Tracer *t, Ref cond);

/* The value on top is a comparison, made by flin.lt and its like. */
void note_compared(lua_State *L);

/* The index of the first value among `first`..`last`, its tracer in *t (an
 * error if its trace is over); 0: there is none. */
int find_value(lua_State *L, int first, int last, Tracer **t);

/* What the user calls the value at `arg`: an input or state's name, a local
 * variable's, else the expression. Pushed, so that it lives on. */
const char *value_name(lua_State *L, Tracer *t, int arg);
/* "k v", or "none"; in the arena. */
const char *value_axes(lua_State *L, Tracer *t, AxisSet s);

/* Pushes the table x, s or w ("input", "state", "weight") of values, `name` in
 * messages; the tracer is at `owner`. */
void trace_arguments(lua_State *L, int owner, Tracer *t, const char *what,
                     const char *name);
/* Runs the step function at `f` once; its new states and y become the roots
 * of t's graph. Where it begins. */
Place trace_step(lua_State *L, int f, int owner, Tracer *t);

/* The same of a layer's forward function: y becomes its result. */
Place trace_forward(lua_State *L, int f, int owner, Tracer *t);

/* variant.c. Pushes an empty variant with its context and graph; its tracer,
 * which keeps the variant at `variant` alive, and values the tracer. */
Variant *variant_push(lua_State *L, const char *name);
Tracer *tracer_push(lua_State *L, int variant, Variant *v);
/* What Lua has not asked while it was traced: the step at `f` is run on
 * numbers. */
void check_step(lua_State *L, int variant, int f, const Tracer *t, Place at);
/* The lines that the step is made of: later there may be no Lua to ask. */
void keep_lines(lua_State *L, Variant *v);

/* map.c. Axes, arguments and the first `states` states, as they are declared,
 * with new nodes. */
void declare_again(Graph *to, const Graph *from, int states);
int variant_map(lua_State *L);

/* probe.c. flin.probe. */
int flin_probe(lua_State *L);
void probes_push(lua_State *L, const Variant *v);   /* a list of names */

/* layer.c. Is the variant at 1 called on a table of values? Puts its step into
 * the layer that they belong to; pushes its y. */
bool layer_calls(lua_State *L);
int layer_call_values(lua_State *L);
/* The layer has been traced: its variant's step becomes the whole of it. Lua
 * error where inputs are not read, or something has no part. */
void layer_whole(lua_State *L, Variant *v);
int flin_conv(lua_State *L);

/* Stamps the line of the trace's file that is running on what comes. */
void stamp_line(lua_State *L, Tracer *t);

/* May an axis be called so? A letter or _, then letters, digits, _; <= 20. */
bool axis_name_ok(const char *s);

/* The one axis in s; where there are more, the one of no fixed size; -1: there
 * is none, or more. */
int single_axis(const Graph *g, AxisSet s);

void functions_open(lua_State *L);      /* flin.exp ... into the table on top */

#endif
