/* dump.c -- the schedules of a plan's kernels, without a GPU. */
#include <string.h>

#include "../../compiler/schedule/schedule.h"
#include "segments.h"

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

typedef struct Saving {
    const Plan *p;
    CudaOptions *o;
    CudaModule *forward;                /* cuda_emit's, where it has one */
} Saving;

/* How states lie that the way forward leaves, where it is cuda_emit's. */
static void find_forward(Ctx *c, void *ud)
{
    Saving *s = ud;
    CudaOptions f = *s->o;

    f.saves = plan_is_joint(s->p);
    for (int i = 0; i < s->p->g->nst && f.saves; i++)
        f.kept.has[i] = s->p->stored[s->p->g->st[i].node];
    s->forward = cuda_emit(c, s->p, &f);
    s->o->rows = f.saves ? s->forward->kernel->row_axis : 0;
}

static CudaModule *kernels_of(Ctx *c, const Plan *p, CudaModule **forward)
{
    CudaOptions o = usual_options(p->g);
    Saving s = { p, &o, NULL };
    Error before = c->err;

    if (p->g->chunk && !ctx_protect(c, find_forward, &s))
        c->err = before;
    CudaModule *m = cuda_tiles(c, p, &o);
    *forward = plan_is_joint(p) && m->chunk != p->g->chunk ? NULL : s.forward;
    return m;
}

const char *cuda_schedules(Ctx *c, const Plan *p)
{
    CudaModule *forward;

    return kernels_of(c, p, &forward)->schedules;
}

static void put_roles(const Schedule *s, Buf *out)
{
    for (int r = 0; r < NKROLES; r++)
        if (s->warps[r])
            buf_printf(out, "%s %d, ", krole_name[r], s->warps[r]);
    buf_printf(out, "%d and %d registers, %d bytes shared in %d buffers\n",
               s->regs[0], s->regs[1], (int)s->shared, s->nbuffers);
}

static void put_launched(const CudaKernel *k, Buf *out)
{
    buf_printf(out, "  kernel %d: %s: ", k->of + 1, k->name);
    if (k->walk == CUDA_HOPPER)
        buf_printf(out, "wgmma, %d warps, %d bytes shared\n",
                   k->threads / 32, k->shared);
    else if (k->walk == CUDA_SUM)
        buf_printf(out, "adds up what heads or sequences share\n");
    else if (k->head) {
        buf_printf(out, "%s; warps: ", k->schedule->groups ? "wgmma"
                   : "vectors");
        put_roles(k->schedule, out);
    } else {
        buf_printf(out, "mma.sync, as on any GPU; no schedule: %s\n",
                   k->schedule ? k->schedule->why : "none was wished");
    }
}

/* What a call of few long sequences does. */
static void put_cutting(Ctx *c, const Plan *p, Buf *out)
{
    Cutting cut;

    cutting_find(c, p, &cut);
    if (cut.why)
        buf_printf(out, "  few long sequences: not cut in segments: %s\n",
                   cut.why);
    else
        buf_printf(out, "  few long sequences: cut in segments, which first"
                   " run for their own end and for their transition%s\n",
                   cut.adjoint < 0 ? "" : ", and back for their own"
                   " adjoint");
}

void cuda_launched(Ctx *c, const Plan *p, Buf *out)
{
    CudaModule *forward, *m = kernels_of(c, p, &forward);

    buf_printf(out, "\nlaunched on sm_90a, matrices of bfloat16:\n");
    for (int i = 0; forward && i < forward->nkernels; i++)
        put_launched(&forward->kernel[i], out);
    for (int i = 0; i < m->nkernels; i++)
        if (!forward || (plan_is_joint(p) && m->kernel[i].of >= p->split))
            put_launched(&m->kernel[i], out);
    put_cutting(c, p, out);
}

typedef struct Roads { const Plan *p; uint8_t *plain; } Roads;

static void find_roads(Ctx *c, void *ud)
{
    const Roads *r = ud;
    CudaModule *forward, *m = kernels_of(c, r->p, &forward);
    int first = !forward ? 0 : plan_is_joint(r->p) ? r->p->split
              : r->p->nkernels;

    memset(r->plain, 0, (size_t)first);
    for (int i = 0; i < m->nkernels; i++) {
        const CudaKernel *k = &m->kernel[i];
        if (k->of >= first)
            r->plain[k->of] = k->walk != CUDA_SUM && !k->head;
    }
}

uint8_t *cuda_plain(Ctx *c, const Plan *p)
{
    Roads r = { p, ctx_alloc(c, (size_t)p->nkernels + 1) };
    Error before = c->err;

    memset(r.plain, 1, (size_t)p->nkernels);
    if (!ctx_protect(c, find_roads, &r))
        c->err = before;
    return r.plain;
}
