/* dump.c -- the schedules of a plan's kernels, without a GPU. */
#include "cuda.h"

/* Matrices of bfloat16, all else float32, as training calls have it. */
static CudaOptions usual_options(const Graph *g)
{
    CudaOptions o = { .tile = BF16, .arch = 90, .groups = 2, .split = true,
                      .scheduled = true };

    for (int i = 0; i < g->nin; i++)
        o.in[i] = o.vector[i] = g->in[i].rank ? BF16 : F32;
    for (int i = 0; i < g->nout; i++)
        o.out[i] = g->out[i].rank ? BF16 : F32;
    return o;
}

typedef struct Saving { const Plan *p; CudaOptions *o; } Saving;

/* How states lie that the way forward leaves, where it is cuda_emit's. */
static void find_rows(Ctx *c, void *ud)
{
    const Saving *s = ud;
    CudaOptions f = *s->o;

    f.saves = true;
    for (int i = 0; i < s->p->g->nst; i++)
        f.kept.has[i] = s->p->stored[s->p->g->st[i].node];
    s->o->rows = cuda_emit(c, s->p, &f)->kernel->row_axis;
}

const char *cuda_schedules(Ctx *c, const Plan *p)
{
    CudaOptions o = usual_options(p->g);
    Saving s = { p, &o };
    Error before = c->err;

    if (p->g->chunk && !ctx_protect(c, find_rows, &s))
        c->err = before;
    return cuda_tiles(c, p, &o)->schedules;
}
