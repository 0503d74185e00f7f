/* plan_view.h -- a plan as people look at it: which kernels, what each moves.
 */
#ifndef FLIN_PLAN_VIEW_H
#define FLIN_PLAN_VIEW_H

#include "../compiler/partition.h"
#include "lang.h"

/* A plan to look at. A node is shown if it is a product, a result, a state's
 * next value, or kept between kernels; the rest is fused around those. */
struct PlanView {
    PlanView *next;                     /* of the variant's */
    Ctx *ctx;
    Variant *v;
    int32_t size[NAXES];
    int asked, chunk;                   /* asked 0: chosen; a step's is 1 */
    bool backward;
    const Machine *m;
    Plan *p;                            /* a GPU's: as it is launched */
    Plan *made;                         /* as it was chosen */
    const struct Launches *launched;    /* a GPU's; NULL: not printed, */
    const char *refused;                /* for which this is why */
    int span;                           /* tokens of a chunk of p */
    double chosen;                      /* seconds that it was chosen by: per
                                           chunk and head */
    PartitionInfo info;                 /* per chunk and head */
    Weighed weighed[CHUNKS_WEIGHED];    /* chunk sizes; chunk 0 ends */
    double seconds;                     /* that planning took */
    const char *note;                   /* why it goes token by token */
    uint8_t *shown;                     /* per node */
    uint8_t **has, **loads;             /* per kernel: computed; read */
    const char **expr, **label;         /* per node; label: "y = expr" */
    const char **name;                  /* of what has a line in drawings */
    const char **line, **axes;          /* the rest of that line */
    Buf text;
    Buf dot;                            /* once asked for */
};

/* Fills the rest of a view whose v, size, asked, backward and m are set. */
void plan_view(Ctx *c, void *view);

/* The variant's view with what is set in `ask`; made in a context of its own
 * if it is new, and kept. Fails through c. */
PlanView *plan_find(Ctx *c, Variant *v, const PlanView *ask);
void plan_views_free(Variant *v);

/* Pushes what v:plan gives of it; makes the table on top of the stack a plan,
 * which prints its text. */
void plan_push(lua_State *L, const PlanView *w);
void plan_be(lua_State *L);

/* ---- what is said of it (plan_text.c) ---- */

/* "forward", "reverse", "token"; "glpk", "dp", "greedy", "none". */
const char *kernel_kind(const Kernel *k);
const char *solver_name(const PlanView *w);
/* Whether kernel k reads r from memory: an argument, a state or what is
 * stored; keeps it for another kernel; writes it as a result (or does both).
 */
bool kernel_loads(const PlanView *w, int k, Ref r);
bool kernel_keeps(const PlanView *w, int k, Ref r);
bool kernel_writes(const PlanView *w, int k, Ref r);
/* The kernel that computes r first; nkernels: none does. */
int first_maker(const PlanView *w, Ref r);
/* Bytes that kernel i reads; writes; that are kept between kernels at most. A
 * token and head. */
double kernel_reads(const PlanView *w, int i);
double kernel_written(const PlanView *w, int i);
/* Seconds that launched kernel i takes for a chunk and head: those that its
 * instructions take, or its bytes, or both. */
double launched_seconds(const PlanView *w, int i, bool cycles, bool bytes);
double peak_bytes(const PlanView *w);
/* Whether kernel i computes r again. */
bool recomputed(const PlanView *w, int i, Ref r);
/* How many warpgroups it takes until what runs ahead hides behind the chain
 * and the loads: 1 or 2, 3 if two do not suffice; 0: nothing to hide. */
int ahead_groups(const PlanView *w, int i);

/* Fills label, expr and text. */
void plan_text(PlanView *w);
/* The plan as input for Graphviz. */
void plan_dot(const PlanView *w, Buf *out);

/* plan_pairs.c: the plan of sums as pairs of tokens, of a call of so many
 * tokens and heads; pushed. */
typedef struct PairsAsk {
    PlanView view;                      /* as for plan_find */
    lua_Integer batch, tokens, heads;
} PairsAsk;
void plan_push_pairs(lua_State *L, Variant *v, const PairsAsk *ask);
/* Seconds a token and head of that call, by states and over pairs. */
void plan_weigh(const Variant *v, const PairsAsk *ask, double *states,
                double *pairs);

/* plan_mask.c: the plan of a mask over all pairs; element: bytes of one of q, k
 * and v; cache and way: as in Call. Pushed. */
typedef struct MaskAsk {
    PairsAsk pairs;
    int element, cache, way;
} MaskAsk;
void plan_push_mask(lua_State *L, Variant *v, const MaskAsk *ask);

/* The machine that the table at arg names, or the usual one. */
const Machine *machine_option(lua_State *L, const char *what, int arg,
                              const char *usual);

/* plan_show.c: v:plan, into the methods on top of the stack. */
void plan_methods(lua_State *L);

#endif
