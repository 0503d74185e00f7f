/* kinds.h -- what a step becomes, as a GPU is to run it. */
#ifndef FLIN_TESTS_CUDA_KINDS_H
#define FLIN_TESTS_CUDA_KINDS_H

#include "../../backend/cuda/cuda.h"
#include "../../backend/cuda/nvrtc.h"
#include "../../compiler/grad.h"
#include "../../compiler/partition.h"

typedef enum Kind { FORWARD, JOINT, STEP, NKINDS } Kind;
static const char *const kind_name[NKINDS] = { "forward", "joint", "step" };

/* The plan of a step's text, by chunks of 64 tokens where it has any. */
static Plan *plan_of(Ctx *c, const char *text, Kind kind)
{
    Graph *step = graph_parse(c, text), *g = NULL;
    int32_t size[NAXES];

    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    if (kind != STEP)
        g = derive(step, size, 64);
    if (!g)
        g = graph_sized(step, size);
    if (kind != JOINT)
        return plan_simple(g);
    g = grad(g);
    return g->chunk ? partition(g, &machine_h200, FULL, NULL) : plan_simple(g);
}

/* Programs side by side; a cubin for each of them. */
static Cubin *compile_module(Ctx *c, const Nvrtc *n, const CudaModule *m,
                             const char *arch, CudaPrograms *p)
{
    *p = cuda_programs(c, m);
    return nvrtc_compile_all(c, n, p->source, p->n, arch);
}

/* The most of each number that ptxas has to say of them. */
static PtxasInfo ptxas_most(const Cubin *b, int n)
{
    PtxasInfo most = { 0 };

    for (int i = 0; i < n; i++) {
        const PtxasInfo *p = &b[i].info;
        if (p->registers > most.registers)
            most.registers = p->registers;
        if (p->spill_stores > most.spill_stores)
            most.spill_stores = p->spill_stores;
        if (p->stack > most.stack)
            most.stack = p->stack;
    }
    return most;
}

#endif
