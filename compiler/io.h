/* io.h -- how few words a layer can move between a fast memory of M words and
 * a slow one: what is proved, and the best schedule known.
 *
 * All counts are words (elements), of one head.
 */
#ifndef FLIN_IO_H
#define FLIN_IO_H

#include "plan.h"

/* Attention as a quadratic form, standard matrix products, any schedule: the
 * order of growth, its constant left out. Forward n^2 d^2 / M where M >= d^2
 * and n^2 d / sqrt(M) below (Saha, Ye, ICML 2024, arXiv:2402.07443), tight.
 * Backward (n^2 d^2 + n d^3) / M and (n^2 d + n d^2) / sqrt(M) (Li, Liang,
 * Shi, Song, Song, Zhang, arXiv:2410.09397), tight. Never less than n d, what
 * must be read. */
double io_quadratic(double n, double d, double words, bool backward);

/* Sparse attention, forward or backward, a lower bound up to its constant:
 * with z_input non-zeros in each of the two factors of the scores and z_qk in
 * the scores themselves,
 *     min(z_input^2 / M, z_input sqrt(z_qk / M)),
 * what that one sparse product costs by additions and multiplications (Pagh,
 * Stoeckel, ESA 2014, arXiv:1403.3551; reached up to logarithms by a product
 * alone). arXiv:2410.09397 bounds sparse attention in these terms; no schedule
 * is known to reach it. z_input = n d, z_qk = n^2 give the dense forward
 * bound. */
double io_sparse(double z_input, double z_qk, double words);

/* How a recurrence is walked. */
typedef enum StateWalk { W_RESIDENT, W_SPLIT, W_CHECKPOINT, W_SPILL,
                         W_NONE } StateWalk;
extern const char *const walk_name[];

/* The recurrence over T tokens: forward alone, or for training, where after it
 * and the loss inputs and dy are read and a gradient for each input written.
 *
 * Proved, for every schedule: `compulsory`. Each input is read and each result
 * written at least once; initial and final states are in it. In training once
 * a pass, less the M words that may stay in fast memory over the loss.
 *
 * Best known, no lower bound being known beside it: `best`, by
 * - resident: the states stay in fast memory. Forward nothing else moves, so
 *   this is optimal there.
 * - split (forward): fast memory holds 1/blocks of the states, cut along an
 *   axis whose entries do not mix (`split`); each part walks the sequence, and
 *   inputs that lack the axis are read once for each.
 * - checkpoint (training): states and their adjoints stay; the states of every
 *   `chunk` tokens, as many as fit beside them, are written on the way forth
 *   and read on the way back.
 * - spill: a chunk stays, and the states stream through once a chunk: 2 states
 *   a chunk forward, 5 in training. */
typedef struct IoWalk {
    double inputs, results, state;      /* words a token; of the states */
    double compulsory, best;
    StateWalk walk;
    int split;                          /* axis, or -1: there is none */
    int blocks, chunk;                  /* 0 where they do not apply */
} IoWalk;

/* Of a step graph with sizes. */
void io_walk(const Graph *step, double tokens, double words, bool training,
             IoWalk *out);

#endif
