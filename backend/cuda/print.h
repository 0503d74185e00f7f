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

/* The same of a kernel of single tokens, under the module's head. stored16: as
 * the schedule's wish had it. */
void tokens_text(const Schedule *s, const CudaOptions *o,
                 const StoredPlaces *stored, const uint8_t *stored16,
                 CudaKernel *k, Buf *to);

#endif
