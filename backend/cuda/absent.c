/* absent.c -- where the emitter of any plan is not linked: none is printed. */
#include "cuda.h"

#define WEAK __attribute__((weak))

WEAK CudaModule *cuda_tiles(Ctx *c, const Plan *p, const CudaOptions *o)
{
    (void)o;
    fail_help(c, p->g->line, "backend = \"cpu\"", "%s: there is no kernel for"
              " the GPU yet at these sizes and types", p->g->name);
}

static bool is_sum(const View *v, int heads)
{
    return v->data && v->heads < heads;
}

WEAK void cuda_call_options(CudaOptions *o, const Graph *g, const Call *call)
{
    for (int i = 0; i < g->nin; i++)
        o->in[i] = call->in[i].dtype;
    for (int i = 0; i < g->nout; i++) {
        o->out[i] = call->out[i].dtype;
        o->sum_out[i] = is_sum(&call->out[i], call->heads);
    }
    for (int i = 0; i < g->nst; i++) {
        o->s0[i] = call->s0[i].dtype;
        o->s1[i] = call->s1[i].dtype;
        o->sum_s1[i] = is_sum(&call->s1[i], call->heads)
                    || (call->s1[i].data && !call->s1[i].sb);
    }
}

WEAK int64_t cuda_workspace(const CudaModule *m, const Plan *p,
                            const Call *call)
{
    (void)m;
    (void)p;
    (void)call;
    return 0;
}
