/* grad.h -- reverse mode, on the step and on the chunk graph alike. */
#ifndef FLIN_GRAD_H
#define FLIN_GRAD_H

#include "ir.h"

/* The number of the joint graph's state that is the adjoint of state i, or of
 * input i, a constant of the head: names may be shared. */
int adjoint_of_state(const Graph *joint, int i);
int adjoint_of_input(const Graph *joint, int i);

/* The joint graph: g's nodes (sizes known) and those of the gradient of
 *     sum(y * dy) + sum(final_state * d_state).
 * It gains an input `dy`, for each state S an adjoint `d_S` that runs from
 * the last chunk to the first (its start is the gradient that comes in, its
 * end the initial state's), for each input x an output `d_x`, or, where x is
 * a constant of the head, an adjoint `d_x` that sums over tokens and starts
 * at zero. Fails, naming the line, on an operation that has no gradient. */
Graph *grad(const Graph *g);

/* Whether each operation that g's results need has one. */
bool has_gradient(const Graph *g);

/* transpose.c: the graph of step's transpose, of the joint graph of its chunks
 * or tokens: y = d_v with v for dy. If something is added, it comes in as one
 * more input, behind the step's. */
Graph *transpose(const Graph *step, const Graph *joint);

#endif
