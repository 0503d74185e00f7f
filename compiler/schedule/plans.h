/* plans.h -- what a plan becomes before its kernels have schedules. */
#ifndef FLIN_SCHEDULE_PLANS_H
#define FLIN_SCHEDULE_PLANS_H

#include "../plan.h"

/* The plan in which numbers that scale rows of a product's factor scale the
 * product. */
const Plan *plan_scales_out(Ctx *c, const Plan *p);

/* The plan in which numbers that scale sums over tokens of products with an
 * adjoint that is an input, or what that is multiplied with, scale the input:
 * of plans that solve, which keep what it is multiplied with as it is. */
const Plan *plan_scales_of_adjoints(Ctx *c, const Plan *p);
/* The plan in which numbers that scale products scale factors that are
 * computed. */
const Plan *plan_scales_in(Ctx *c, const Plan *p);

/* The plan in which what scales both terms of a sum scales the sum, and nothing
 * is scaled twice. */
const Plan *plan_scales_joined(Ctx *c, const Plan *p);

/* Of a step: the plan in which sums over matrices that wait for other such sums
 * are made of sums that do not, as far as they are linear. */
const Plan *plan_sums_found(Ctx *c, const Plan *p);

/* The plan in which inputs of these types that are constant matrices of float32
 * are rounded before products find them. */
const Plan *plan_constants_rounded(Ctx *c, const Plan *p, const DType *in);
/* The plan in which a kernel has several sums of no matrix. */
const Plan *plan_scans_apart(Ctx *c, const Plan *p);
/* The plan in which zeros that gradients are made of are those of inputs. */
const Plan *plan_zeros_of_inputs(Ctx *c, const Plan *p);
/* The plan in which differences of sums of gates lose no bits to gates before
 * both. */
const Plan *plan_gate_sums_apart(Ctx *c, const Plan *p);
/* The plan in which angles that turn by the same for all tokens are no sums. */
const Plan *plan_ramps(Ctx *c, const Plan *p);
/* Whether the node is such an angle. */
bool is_ramp(const Graph *g, const Node *n);
/* Whether it is a state that such an angle is at the end of each chunk: it is
 * kept within half a turn. */
bool is_angle_state(const Graph *g, Ref r);
/* Whether it is how many tokens of a chunk there are so far. */
bool counts_tokens(const Graph *g, Ref r);

/* The plan in which ranks are rows of a chunk of so many, which has so much
 * fewer tokens (Graph.rows), or each is a value of its own; p itself where it
 * has no ranks, or some cannot be. */
const Plan *plan_ranks_as_rows(Ctx *c, const Plan *p, int chunk);
const Plan *plan_without_ranks(Ctx *c, const Plan *p);

#endif
