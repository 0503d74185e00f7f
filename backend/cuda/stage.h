/* stage.h -- a call whose tensors lie in the host's memory. */
#ifndef FLIN_CUDA_STAGE_H
#define FLIN_CUDA_STAGE_H

#include "gpu.h"

/* Copies what the call reads to the device, runs f on those copies, waits,
 * and copies the results back. All on the default stream. */
typedef void StageFn(Ctx *c, void *ud, const Call *call);
void stage_run(Ctx *c, Gpu *gpu, const Graph *g, const Call *call,
               StageFn *f, void *ud);

#endif
