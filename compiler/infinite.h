/* infinite.h -- which values may be infinite, though every input keeps to its
 * domain: gates of -inf are resets. */
#ifndef FLIN_INFINITE_H
#define FLIN_INFINITE_H

#include "ir.h"

/* Per node. Not where an operation of finite numbers overflows. */
bool *infinite_nodes(const Graph *g);

#endif
