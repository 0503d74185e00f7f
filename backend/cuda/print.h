/* print.h -- a schedule as CUDA C++. */
#ifndef FLIN_CUDA_PRINT_H
#define FLIN_CUDA_PRINT_H

#include "../../compiler/schedule/schedule.h"
#include "cuda.h"

/* What a printed kernel's source begins with; THREADS and RANK are not used
 * by it. */
extern const char *const schedule_head;

/* Prints the kernel, whose name is set, and says what its launch must pass. */
void schedule_text(const Schedule *s, const CudaOptions *o, CudaKernel *k,
                   Buf *to);

#endif
