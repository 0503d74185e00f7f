/* kinds.h -- what a step becomes, as a GPU is to run it. */
#ifndef FLIN_TESTS_CUDA_KINDS_H
#define FLIN_TESTS_CUDA_KINDS_H

#include "../../backend/cuda/cuda.h"
#include "../../backend/cuda/nvrtc.h"
#include "../../backend/cuda/rooms.h"
#include "../../compiler/grad.h"
#include "../../compiler/partition.h"

typedef enum Kind { FORWARD, JOINT, STEP, NKINDS } Kind;
static const char *const kind_name[NKINDS] = { "forward", "joint", "step" };

typedef struct Wish {
    const char *text;
    Kind kind;
    int chunk;
    Plan *plan;
} Wish;

static void make_plan(Ctx *c, void *ud)
{
    Wish *w = ud;
    Graph *step = graph_parse(c, w->text), *g = NULL;
    int32_t size[NAXES];

    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    if (w->kind != STEP)
        g = derive(step, size, w->chunk);
    if (!g)
        g = graph_sized(step, size);
    if (w->kind == JOINT)
        g = grad(g);
    w->plan = w->kind == JOINT && g->chunk
            ? partition(g, &machine_h200, FULL, NULL) : plan_simple(g);
}

/* The plan of a step's text; as a call does it, by chunks of 64 tokens, or
 * where those take too much, of half as many. */
static Plan *plan_of(Ctx *c, const char *text, Kind kind)
{
    enum { LEAST = 16 };
    Wish w = { text, kind, 64, NULL };

    while (!ctx_protect(c, make_plan, &w))
        if ((w.chunk /= 2) < LEAST)
            ctx_rethrow(c);
    return w.plan;
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
