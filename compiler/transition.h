/* transition.h -- what a run of tokens does to the state that it starts from.
 *
 * Where all that a graph carries forward is one matrix S [kappa nu], and what
 * S becomes is linear in S, with coefficients that have no nu and know nothing
 * of inputs that have it, plus what is zero where those inputs are, tokens
 * a .. b leave
 *
 *     S_b = M S_a + own,
 *
 * own from S_a = 0, and M [kappa kappa] the same for each entry of nu: M is
 * what S becomes from S_a = 1 while the inputs along nu are zero. So the same
 * kernels make both, sequences can be cut in segments that run side by side,
 * and an adjoint goes back through M's transpose.
 */
#ifndef FLIN_TRANSITION_H
#define FLIN_TRANSITION_H

#include "plan.h"

/* The states of each stage, those it needs, and the kind of its transition. */
typedef struct Stages {
    int n;
    StateSet of[MAX_STATES], need[MAX_STATES];
    CarriedBy carry[MAX_STATES];
} Stages;

typedef struct Transition {
    CarriedBy carry;
    StateSet of;
    int n;                              /* states; the first of them: */
    int state, kappa, nu;               /* axes; kappa -1: states are vectors,
                                           M one number */
    int moved;                          /* by entries: the state that shows it;
                                           else -1 */
    bool mixes;                         /* M is no diagonal: erasing writes */
    bool varies;                        /* it is not one number for all rows */
    bool stays;                         /* it is 1: tokens add alone */
    bool writes[MAX_INPUTS];            /* inputs that have nu */
} Transition;

/* Finds it in a chunk graph or a step graph. NULL: there it is; else why there
 * is none, in c. */
const char *transition_find(Ctx *c, const Graph *g, Transition *t);

/* The same, of a vector, too: the state [nu] is as a matrix of one row. */
const char *transition_of_rows(Ctx *c, const Graph *g, Transition *t);

/* Has the call's inputs along nu be zero: all share what lies at `data`, of the
 * bytes that this returns. tokens 0: their rows are one. */
int64_t transition_zeros(const Transition *t, const Graph *g, Call *call,
                         int64_t batch, int64_t tokens, void *data);

/* The same of some states of a step, those that they need being known. */
const char *transition_of(Ctx *c, const Graph *g, StateSet of, Transition *t);

/* The stages of a step, lowest first; NULL, or what is in the way, in c. */
const char *stages_find(Ctx *c, const Graph *g, Stages *out);
/* Into `to`, an empty graph, the step of stage i: its states and those it
 * needs, and no result of its own (less the first input, so that there is one).
 * Where its transition is one number for each entry, another state goes on by
 * that alone. */
void stage_step(const Graph *g, const Stages *all, int i, Graph *to);

/* A name that no state or input has, of what that one is multiplied by. */
const char *moved_name(const Graph *g, const char *of);

/* The plan of what states end as, without results: of a plan that goes forward,
 * or of a joint one's way forward. Inputs and states have the same numbers.
 * Where M is a diagonal and not 1, one more state, the last, has it
 * (State.moved_of), of a vector M along nu: less one, so that it starts as
 * zero. */
Plan *plan_ends(Ctx *c, const Plan *p);
/* That state; -1: there is none. */
int moved_state(const Graph *g);
/* The plan as it is, of a graph that has that state, too, if there is one,
 * which no kernel makes. */
Plan *plan_moved(Ctx *c, const Plan *p);

/* The plan with a kernel more, behind its own, for each that walks matrices:
 * what the states of that end as, from what others keep for it, without results
 * and with nothing kept; forward with the state that plan_ends adds. of: which
 * walk's each is. */
Plan *plan_walks_ends(const Plan *p, int **of);

#endif
