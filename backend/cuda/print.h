/* print.h -- a schedule as CUDA C++. */
#ifndef FLIN_CUDA_PRINT_H
#define FLIN_CUDA_PRINT_H

#include "../../compiler/schedule/schedule.h"
#include "cuda.h"

/* Where what kernels keep for one another lies: bytes for a chunk of a head,
 * and in them, by node. */
typedef struct StoredPlaces { int64_t bytes; const int64_t *at; } StoredPlaces;

/* Prints the kernel, whose name is set, and says what its launch must pass. */
void schedule_text(const Schedule *s, const CudaOptions *o,
                   const StoredPlaces *stored, CudaKernel *k, Buf *to);

#endif
