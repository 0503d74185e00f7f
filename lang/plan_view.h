/* plan_view.h -- a plan as people look at it: which kernels, what each moves.
 */
#ifndef FLIN_PLAN_VIEW_H
#define FLIN_PLAN_VIEW_H

#include "../compiler/partition.h"
#include "lang.h"

/* A plan to look at. A node is shown if it is a product, a result, a state's
 * next value, or kept between kernels; the rest is fused around those. */
typedef struct PlanView {
    Ctx *ctx;
    Variant *v;
    int32_t size[NAXES];
    int chunk;                          /* 0: to be chosen; a step's is 1 */
    bool backward;
    const Machine *m;
    Plan *p;
    PartitionInfo info;                 /* per chunk and head */
    double seconds;                     /* that planning took */
    const char *note;                   /* why it goes token by token */
    uint8_t *shown;                     /* per node */
    uint8_t **has, **loads;             /* per kernel: computed; read */
} PlanView;

/* Fills the rest of a view whose v, size, chunk, backward and m are set. */
void plan_view(Ctx *c, void *view);

/* "forward", "reverse", "token". */
const char *kernel_kind(const Kernel *k);
/* What a node is, in the user's names: "dot(k, S)", or "y = ...". In ctx. */
const char *node_label(const PlanView *w, Ref r);
/* Bytes that kernel i reads, a token and head. */
double kernel_reads(const PlanView *w, int i);

/* The plan as text; as input for Graphviz; as a drawing. */
void plan_text(const PlanView *w, Buf *out);
void plan_dot(const PlanView *w, Buf *out);
void plan_svg(const PlanView *w, Buf *out);

/* plan_view.c: v:plan, into the methods on top of the stack. */
void plan_methods(lua_State *L);

#endif
