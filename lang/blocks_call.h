/* blocks_call.h -- calls of masks that end at a distance, as scans in blocks of
 * its width, all of which go on (compiler/mask.h: WindowBlocks), and one over a
 * sequence's first tokens, where these weigh otherwise.
 */
#ifndef FLIN_BLOCKS_CALL_H
#define FLIN_BLOCKS_CALL_H

#include "../compiler/scores.h"
#include "parts_call.h"

/* NULL: such a call goes so; else why it does not. */
const char *blocks_refuse(const Variant *v, const Bound *b);
/* Of a window's program: its parts, by their numbers, and their steps. */
enum { PART_WITHIN, PART_TAIL, PART_ACROSS, PART_UPTO, PART_PACKED, PART_PLACES,
       PART_SINKS, PART_REST, BLOCK_PARTS };
void blocks_parts(const Scores *s, Graph *step[BLOCK_PARTS]);
/* The call, forward or backward. */
void blocks_run(Lay *k);

#endif
