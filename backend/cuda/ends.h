/* ends.h -- packed sequences whose ends the device alone knows. */
#ifndef FLIN_CUDA_ENDS_H
#define FLIN_CUDA_ENDS_H

#include "gpu.h"

typedef struct Ends {
    Module *module;                     /* NULL: not compiled yet */
    Function *f, *blocks;
} Ends;

void ends_compile(Ctx *c, Gpu *g, Ends *e);
void ends_free(Gpu *g, Ends *e);

/* Queues what makes the table of call->device_cu's sequences, and fills with 0
 * the rows of all results that lie in none of them. */
void ends_queue(Ctx *c, Gpu *g, const Ends *e, const Graph *graph,
                const Call *call, DevicePtr table);

/* Queues what makes ends of blocks of `width` tokens of these sequences, of
 * which each begins with a whole one: nseq + tokens / width + 1 int64. */
void ends_of_blocks(Ctx *c, Gpu *g, const Ends *e, const Call *call,
                    int64_t width, DevicePtr to);

#endif
