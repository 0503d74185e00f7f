/* ranks.h -- what ranks that are rows of a chunk are in memory. */
#ifndef FLIN_RANKS_H
#define FLIN_RANKS_H

#include "schedule.h"

/* Of the state of node r, or the constant, and one more for each of its ranks
 * behind the first, the nodes. False: there is no place for so many, or other
 * states go with it. */
bool states_apart(Graph *g, Ref r, int ranks, Ref *part);
bool inputs_apart(Graph *g, Ref r, int ranks, Ref *part);

/* Why ranks are not rows: there are too many of them; else NULL. */
const char *ranks_fault(Ctx *c, const Graph *g);

/* Takes the axes `own`, which are ranks, from whatever is in memory, and from
 * all nodes. False: they do not come first there, so that columns run along
 * it. */
bool take_ranks(Graph *g, AxisSet own);

#endif
