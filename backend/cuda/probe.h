/* probe.h -- the first entry of each tensor that breaks its domain. */
#ifndef FLIN_CUDA_PROBE_H
#define FLIN_CUDA_PROBE_H

#include "../../compiler/domain.h"
#include "gpu.h"

typedef struct Probing {
    Module *module;                     /* NULL: not compiled yet */
    Function *f;
} Probing;

void probing_free(Gpu *g, Probing *k);

/* As cuda_probe; with the GPU to itself. */
void probing_run(Ctx *c, Gpu *g, Probing *k, void *stream, Probe *probe,
                 int n);

#endif
