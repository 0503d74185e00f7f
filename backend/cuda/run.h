/* run.h -- plans on a GPU: compiled for the types of a call, checked, kept,
 * and launched.
 *
 * A program is a plan's kernels for all types it has met. Which of them a call
 * has follows from the plan, the GPU and the call's shape, never from timing.
 * What a call needs beside its tensors is made once and found again: a call
 * like one before computes nothing and waits for nothing.
 */
#ifndef FLIN_CUDA_RUN_H
#define FLIN_CUDA_RUN_H

#include "../../compiler/domain.h"
#include "gpu.h"

typedef struct CudaProgram CudaProgram;

/* Holds on to the GPU; refers to p until it is released. Compiles nothing. */
CudaProgram *cuda_program(Ctx *c, const Plan *p, Gpu *g);
void cuda_release(CudaProgram *p);

/* What is wrong with kernels of the plan that no others can stand in for
 * ("gets y wrong (by 0.5)"); NULL: nothing. */
const char *cuda_wrong(CudaProgram *p);

/* Compiles what this call takes, or, where an input has no address, what any
 * call of these types may; then makes this very call ready. Afterwards it can
 * be recorded in a graph. */
void cuda_prepare(Ctx *c, CudaProgram *p, const Call *call);

/* Bytes of Call.workspace that such a call takes at most. */
int64_t cuda_call_workspace(Ctx *c, CudaProgram *p, const Call *call);

/* Bytes of Call.kept, for calls whose tensors are on the device. */
int64_t cuda_kept(Ctx *c, CudaProgram *p, const Call *call);
/* What stands for how the call's kernels keep it: one that goes back from what
 * another call has kept must have the same. */
uint64_t cuda_layout(Ctx *c, CudaProgram *p, const Call *call);

/* Whether the call may run in two parts (Call.part): it compiles what that
 * takes. */
bool cuda_may_begin(Ctx *c, CudaProgram *p, const Call *call);

/* Whether the call's result may lie where the input does: the last kernel that
 * reads this leaves it. */
bool cuda_lies_over(Ctx *c, CudaProgram *p, const Call *call, int output,
                    int input);

/* As segments_seconds has it. */
double cuda_seconds(Ctx *c, CudaProgram *p, const Call *call);

/* Queues the call on its stream. Where the call's tensors are not on the
 * device, copies what it reads there, waits, and copies the results back. Any
 * thread, several at a time. */
void cuda_run(Ctx *c, CudaProgram *p, const Call *call);

/* Sets `first` of tensors on the device, once what is queued there is done:
 * one kernel, which reads each of them once. False, and nothing is known, while
 * the stream records a graph. */
bool cuda_probe(Ctx *c, CudaProgram *p, const Call *call, Probe *probe,
                int n);
/* What lies there, when it is done. */
void cuda_write(Ctx *c, CudaProgram *p, void *to, const void *from,
                size_t bytes);
void cuda_read(Ctx *c, CudaProgram *p, void *to, const void *from,
               size_t bytes);

/* A sequence as kernels read it. */
typedef struct HostSequence {
    int32_t b, pad;
    int64_t start, len;
} HostSequence;

#endif
