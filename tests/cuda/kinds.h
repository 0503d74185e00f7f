/* kinds.h -- what a step becomes, as a GPU is to run it. */
#ifndef FLIN_TESTS_CUDA_KINDS_H
#define FLIN_TESTS_CUDA_KINDS_H

#include "../../backend/cuda/cuda.h"
#include "../../backend/cuda/nvrtc.h"
#include "../../backend/cuda/attempts.h"
#include "../../compiler/partition.h"
#include "../../lang/bind.h"

typedef enum Kind { FORWARD, JOINT, STEP, NKINDS } Kind;
static const char *const kind_name[NKINDS] = { "forward", "joint", "step" };

/* The plan of a step's text, as a call makes it. */
static inline Plan *plan_of(Ctx *c, const char *text, Kind kind)
{
    Graph *step = graph_parse(c, text);
    int32_t size[NAXES];

    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    return plan_make(step, size, kind == STEP ? 0 : 64, kind == JOINT,
                     machine_usual_gpu(), NULL);
}

/* The most of each number that ptxas has to say of them. */
static inline PtxasInfo ptxas_most(const Cubin *b, int n)
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
