/* print.h -- a schedule as CUDA C++. */
#ifndef FLIN_CUDA_PRINT_H
#define FLIN_CUDA_PRINT_H

#include "../../compiler/schedule/schedule.h"
#include "cuda.h"

/* Where what kernels keep for one another lies: bytes for a chunk of a head,
 * and in them, by node; [1]: of what is later's. */
typedef struct StoredPlaces {
    int64_t bytes[2];
    const int64_t *at;
    const uint8_t *later;
} StoredPlaces;

/* Prints the kernel, whose name is set, and says what its launch must pass. */
void schedule_text(const Schedule *s, const CudaOptions *o,
                   const StoredPlaces *stored, CudaKernel *k, Buf *to);

/* The same of a kernel whose warps all do the same, under the module's head. */
void tokens_text(const Schedule *s, const CudaOptions *o,
                 const StoredPlaces *stored, CudaKernel *k, Buf *to);

#endif
