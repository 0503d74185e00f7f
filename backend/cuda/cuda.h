/* cuda.h -- a plan as CUDA C++ for Hopper, and what a launch must pass it. */
#ifndef FLIN_CUDA_H
#define FLIN_CUDA_H

#include "../../compiler/plan.h"

enum { CUDA_MAPS = 24, CUDA_TENSORS = 32, CUDA_SEGMENTS = 4 };

/* How a plan is to be printed. groups: state warpgroups a block, each with 64
 * values of the state's row axis (1: more blocks, for few heads; 2: a head's
 * q and k are read once for 128 values). */
typedef struct CudaOptions {
    DType tile;                         /* of matrices: BF16 or F16 */
    DType vector[MAX_INPUTS];           /* of inputs without own axes: that
                                           or F32 */
    int groups;                         /* 1 or 2 */
    bool split;
} CudaOptions;

typedef enum CudaArgKind { ARG_INPUT, ARG_OUTPUT, ARG_STATE, ARG_NEXT }
    CudaArgKind;
typedef struct CudaArg {
    uint8_t kind, index;
    uint8_t dtype;                      /* what the source reads or writes */
} CudaArg;

/* A kernel of the source, and its one argument by value: `nmaps` tensor maps
 * of 128 bytes, `ntensors` of device.cuh's Tensor, then the sequences'
 * address (0: one a batch entry, all of it), tokens, heads, blocks, segments,
 * their bounds in 4096ths of the chunks, and the maps' head groups. The grid
 * is sequences * heads * blocks * segments. */
typedef struct CudaKernel {
    char name[32];
    int threads, shared, blocks, row_axis;
    int nmaps, ntensors;
    CudaArg map[CUDA_MAPS], tensor[CUDA_TENSORS];
    int stages;
    bool split;                         /* segments may be more than one */
} CudaKernel;

typedef struct CudaModule {
    char *source;
    CudaKernel *kernel;
    int nkernels;
} CudaModule;

/* Prints the plan; %12 in its comments is %12 in plan_print. Fails, naming
 * the value and its line, where the plan needs what this machine has no place
 * for yet. */
CudaModule *cuda_emit(Ctx *c, const Plan *p, const CudaOptions *o);

#endif
