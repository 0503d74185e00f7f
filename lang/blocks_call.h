/* blocks_call.h -- calls of masks that end at a distance, as scans in blocks of
 * its width, all of which go on (compiler/mask.h: WindowBlocks).
 */
#ifndef FLIN_BLOCKS_CALL_H
#define FLIN_BLOCKS_CALL_H

#include "parts_call.h"

/* The host knows the sequences, and tensors have all of the call's heads. */
bool blocks_take(const Variant *v, const Bound *b);
/* Of a window's program: its parts, by their numbers. */
enum { PART_WITHIN, PART_TAIL, PART_ACROSS, PART_UPTO, BLOCK_PARTS };
/* The call, forward or backward. */
void blocks_run(Lay *k);

#endif
