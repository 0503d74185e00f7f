/* eval.h -- one graph's nodes as dense tiles of doubles, one at a time.
 *
 * A tile lies in canonical order (by axis number, the last fastest) without
 * gaps. Axes i and j are as long as the rows in hand; a rank axis may be
 * shorter in one value than in another (what is joined by `cat` grows), so
 * extents belong to the value.
 */
#ifndef FLIN_EVAL_H
#define FLIN_EVAL_H

#include "ir.h"

typedef struct Eval {
    Ctx *c;                             /* owns the tiles */
    const Graph *g;
    int rows;                           /* tokens in hand */
    uint8_t *live;                      /* nodes that have a tile */
    double **val;                       /* beside the nodes */
    int32_t (*ext)[NAXES];              /* i and j at full length */
} Eval;

/* Room for what the roots and the states need, at `rows` tokens at most.
 * `size` fills in where the graph leaves an axis open. Fails on an axis
 * without a size and on sizes that do not go together. */
Eval *eval_new(Ctx *c, const Graph *g, const int32_t size[NAXES], int rows);

/* How long the axes are in each node (i and j: one token); nodes that nobody
 * needs have none. The graph's sizes are known. */
const int32_t (*graph_extents(Ctx *c, const Graph *g))[NAXES];

/* How long the axis is in the value, at the rows in hand. */
int32_t eval_extent(const Eval *e, Ref r, int axis);
int64_t eval_count(const Eval *e, Ref r);

/* Computes a node from its operands' tiles. Inputs and states are filled in
 * by the caller beforehand; for them it does nothing. */
void eval_node(const Eval *e, Ref r);

/* n numbers, so far apart. */
typedef struct Row { const double *p; int64_t step; } Row;

/* y[k], close together: the element-wise operation of the operands that it
 * takes; the others' may be any. */
void elem_row(int op, int64_t n, double *y, Row a, Row b, Row c);
/* y[k] += a[k] b[k] */
void multiply_add(double *y, Row a, Row b, int64_t n);

#endif
