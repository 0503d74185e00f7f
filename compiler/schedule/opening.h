/* opening.h -- states that are carried with what is yet to be written to them
 * (opening.c).
 */
#ifndef FLIN_OPENING_H
#define FLIN_OPENING_H

#include "schedule.h"

/* The plan in which states are carried with what the token before has yet to
 * write, if that is asked for (`ahead`) and may be; else in which each chunk
 * finds that beside its states. One of both is due to whoever prints kernels.
 */
const Plan *plan_openings(Ctx *c, const Plan *p, bool ahead);
/* The next node behind that one by which some kernel has the state opened, or
 * any state (0); 0: there is none. */
Ref next_opening(const Plan *p, Ref state, Ref behind);
/* The state that r is with all that is opened; 0: it is none. */
Ref opened_state(const Graph *g, Ref r);

#endif
