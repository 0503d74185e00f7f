/* build.h -- a plan's kernels for one set of types, compiled and checked. */
#ifndef FLIN_CUDA_BUILD_H
#define FLIN_CUDA_BUILD_H

#include "gpu.h"

/* The kernels of one emitter. m is NULL where it has refused the plan. */
typedef struct Build {
    struct Build *next;
    CudaOptions o;
    bool hopper;
    Ctx *ctx;
    CudaModule *m;
    Module *module;
    Function **f;
} Build;

/* All that a plan has become so far. One thread at a time may add. */
typedef struct Builds {
    Gpu *gpu;
    const Plan *plan;
    Build *first;
} Builds;

/* The kernels for the call, compiled if they are new. A part of a plan takes
 * cuda_tiles', which know where what is stored lies. */
const Build *build_for(Ctx *c, Builds *all, const Call *call);

/* Compiles all that calls of these types may need, whatever their shapes. */
void build_all(Ctx *c, Builds *all, const Call *call);

void builds_free(Builds *all);

/* A cubin, from the cache or compiled; loaded, and judged by `check` (may be
 * NULL), which fails, before it is published. */
typedef void CheckFn(Ctx *c, Module *m, void *ud);
Module *build_module(Ctx *c, Gpu *g, const char *source, CheckFn *check,
                     void *ud);

/* verify.c: runs the kernels on a small call and holds the results against
 * the interpreter. Fails (ERR_DEVICE), naming what is wrong. */
void build_verify(Ctx *c, Gpu *g, const Build *b, const Plan *p);

#endif
