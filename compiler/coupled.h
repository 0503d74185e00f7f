/* coupled.h -- states that stand at one token in each other: the n states of a
 * block, of the same axes; matrices,
 *
 *     S^m_t = sum_n keep^mn S^n_{t-1}
 *           + sum_r to^mr b_r (sum_n a^rn . S^n_{t-1} + v_r)^T
 *
 * or entries, with a rest^m in place of what is written: vectors, scalars, and
 * matrices that are scaled by both axes and not read. to are numbers of the
 * token, keep, too, or one for each kappa, of either sign. What is written
 * under one key in the same proportions is one row. A block of one is a state
 * whose decay nobody can prove positive.
 */
#ifndef FLIN_COUPLED_H
#define FLIN_COUPLED_H

#include "affine.h"

enum { MAX_BLOCK = 16 };

typedef struct CoupledRow {
    Ref b, v;                           /* v == 0: none */
    Ref to[MAX_BLOCK], a[MAX_BLOCK];    /* by place in the block; 0: none */
    AxisSet rank;
    bool reads;
} CoupledRow;

typedef struct Coupled {
    int n, state[MAX_BLOCK];            /* ascending */
    StateSet of;
    bool entries;                       /* each is by itself */
    AxisSet kappa, nu;
    Ref keep[MAX_BLOCK][MAX_BLOCK];     /* 0: nothing */
    Ref rest[MAX_BLOCK];                /* of entries; 0: nothing */
    CoupledRow row[MAX_TERMS];
    int nrows;
} Coupled;

/* The block of these states, or false with g->note set. */
bool coupled(Graph *g, StateSet of, Coupled *k);

/* How the states of a stratum run: one by its universal form, those of a block
 * together; NO_FORM: with g->note set. A decay that may be negative makes a
 * block of one, and so does one that has a slope where it is zero, if it is a
 * number of the token, or its gradient is asked for (slopes). */
typedef enum Road { NO_FORM, BY_FORM, IN_BLOCK } Road;
Road road_of(Graph *g, StateSet of, bool slopes, Universal *u, Coupled *k);

/* Where state s stands in the block. */
int coupled_place(const Coupled *k, int s);

#endif
