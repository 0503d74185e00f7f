/* pools.h -- states that lie in pools, copied out for kernels that take them
 * side by side, and back: those of whole chunks, and of states that several
 * blocks read. Kernels of single tokens go to the pools themselves.
 */
#ifndef FLIN_CUDA_POOLS_H
#define FLIN_CUDA_POOLS_H

#include "gpu.h"

/* Compiles what copies them, once for a GPU. */
void pools_prepare(Ctx *c, Gpu *g);

/* The call by states of its own, which have no addresses yet, but not NULL
 * where there are to be some. */
Call pools_apart(const Graph *g, const Call *call);
/* What they take; where they are to lie. */
int64_t pools_bytes(const Graph *g, const Call *call);
void pools_place(const Graph *g, Call *own, DevicePtr at);

/* Queues the copies of all states of `call` to those of `own`, or, back, of
 * those that are wanted. It has been prepared. */
void pools_queue(Ctx *c, Gpu *gpu, const Graph *g, const Call *call,
                 const Call *own, bool back);

#endif
