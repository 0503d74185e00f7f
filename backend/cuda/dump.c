/* dump.c -- what a call launches, without a GPU: its kernels, their text, their
 * schedules. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "../../compiler/cost.h"
#include "../../compiler/schedule/schedule.h"
#include "segments.h"

/* Matrices of bfloat16, all else float32, as training calls have it. */
static CudaOptions usual_options(const Graph *g, const Machine *m)
{
    CudaOptions o = { .tile = BF16, .arch = m->arch, .machine = m };

    cuda_schedule_options(&o);
    for (int i = 0; i < g->nin; i++)
        o.in[i] = g->in[i].rank ? BF16 : F32;
    for (int i = 0; i < g->nout; i++)
        o.out[i] = g->out[i].rank ? BF16 : F32;
    return o;
}

/* One long sequence of each head, of as many heads as prices are told for;
 * forward alone cut as for few where that takes less time. */
static CudaModule *usual_module(Ctx *c, const Plan *p, CudaOptions *o)
{
    enum { TOKENS = 8192 };
    const Machine *m = options_machine(o);
    const Call call = { .nseq = 1, .heads = m->walks, .tokens = TOKENS };
    CudaModule *many = cuda_tiles(c, p, o);

    if (!cuda_may_pay_as_few(p, o) || m->walks >= m->units)
        return many;
    o->few = true;
    CudaModule *few = cuda_tiles(c, p, o);
    o->few = cuda_pays_as_few(p, few, many, m, m->units, &call);
    return o->few ? few : many;
}

const char *cuda_schedules(Ctx *c, const Plan *p, const Machine *m)
{
    CudaOptions o = usual_options(p->g, m);

    return usual_module(c, p, &o)->schedules;
}

/* ---- their text ---- */

CudaModule *cuda_usual(Ctx *c, const Plan *p, CudaOptions *o)
{
    cuda_schedule_options(o);
    return usual_module(c, p, o);
}

/* Each head once, and the kernels that have it. */
const char *cuda_usual_text(Ctx *c, const CudaModule *m)
{
    const char *before = NULL;
    Buf b = { .ctx = c };

    for (int i = 0; i < m->nkernels; i++) {
        const CudaKernel *k = &m->kernel[i];
        const char *head = k->head ? k->head
                         : ctx_format(c, "%.*s", (int)m->kernel[0].text,
                                      m->source);
        if (!before || strcmp(before, head))
            buf_printf(&b, "%s%s", b.len ? "\n" : "", head);
        before = head;
        buf_put(&b, m->source + k->text, k->end - k->text);
    }
    return b.s;
}

/* ---- what is launched ---- */

static const char *roles_text(Ctx *c, const Schedule *s)
{
    Buf b = { .ctx = c };

    for (int r = 0; r < NKROLES; r++)
        if (s->warps[r])
            buf_printf(&b, "%s%s %d", b.len ? ", " : "", krole_name[r],
                       s->warps[r]);
    return b.s;
}

static Launched from_schedule(Ctx *c, const CudaKernel *k)
{
    const Schedule *s = k->schedule;

    return (Launched){ .form = s->groups ? s->target->form[FORM_PRODUCT]->name
                                         : "vectors",
                       .roles = roles_text(c, s), .buffers = s->nbuffers,
                       .regs = { s->regs[0], s->regs[1] },
                       .tensor = tensor_columns(s),
                       .length = s->tokens.threads ? 0 : schedule_length(s) };
}

/* What keeps it from having a schedule, with the value that this is about. */
static const char *why_not(Ctx *c, const Schedule *s)
{
    unsigned r = 0;

    return sscanf(s->why, "%%%u", &r) != 1 || !s->g || r >= s->g->len ? s->why
         : ctx_format(c, "%s, in %s", s->why, expr_text(s->g, (Ref)r));
}

static Launched launched(Ctx *c, const CudaKernel *k)
{
    Launched l = { .form = "mma.sync" };

    if (k->schedule && !k->schedule->why)
        l = from_schedule(c, k);
    else
        l.why = k->schedule ? why_not(c, k->schedule)
                            : "no schedules are wanted";
    l.name = k->name;
    l.of = k->of;
    l.warps = k->threads / 32;
    l.shared = k->shared;
    l.blocks = k->blocks;
    l.resident = k->resident;
    l.cycles = k->cycles;
    l.moves = k->moves;
    return l;
}

/* One of which others have all that it had is not launched. */
static bool is_idle(const CudaKernel *k)
{
    return !k->nmaps && !k->ntensors;
}

/* The plan as it is cut. */
static Plan *as_launched(const CudaModule *m)
{
    const Plan *p = m->plan;
    Ctx *c = p->g->ctx;
    Plan *to = ctx_alloc(c, sizeof *to);

    *to = (Plan){ .g = p->g };
    to->kernel = ctx_alloc(c, (size_t)p->nkernels * sizeof *to->kernel);
    for (int i = 0; i < p->nkernels; i++)
        if (!is_idle(&m->kernel[i]))
            to->kernel[to->nkernels++] = p->kernel[i];
    plan_finish(to);
    return to;
}

static const char *cutting_text(Ctx *c, const Plan *p)
{
    Cutting cut;

    cutting_find(c, p, &cut);
    if (cut.why)
        return ctx_format(c, "not cut in segments: %s", cut.why);
    return ctx_format(c, "cut in segments, which first run for their own end "
                      "and for their transition%s", cut.adjoint < 0 ? ""
                      : ", and back for their own adjoint");
}

const Launches *cuda_launches(Ctx *c, const Plan *p, const Machine *gpu)
{
    Launches *l = ctx_alloc(c, sizeof *l);
    CudaOptions o = usual_options(p->g, gpu);
    CudaModule *m = usual_module(c, p, &o);
    Launched *to = ctx_alloc(c, (size_t)m->nkernels * sizeof *to);
    int n = 0;

    l->p = as_launched(m);
    for (int i = 0; i < m->plan->nkernels; i++)
        if (!is_idle(&m->kernel[i]))
            to[n++] = launched(c, &m->kernel[i]);
    assert(n == l->p->nkernels);
    for (int i = 0; i < n; i++) {
        snprintf(l->p->kernel[i].name, sizeof l->p->kernel[i].name, "%s",
                 to[i].name);
        to[i].moves = kernel_moves(l->p, i, gpu);
    }
    l->chunk = m->chunk;
    l->kernel = to;
    l->cutting = cutting_text(c, p);
    return l;
}

uint8_t *cuda_plain(Ctx *c, const Plan *p, const Machine *m, bool anyhow)
{
    uint8_t *plain = ctx_alloc(c, (size_t)p->nkernels + 1);
    CudaOptions o = usual_options(p->g, m);
    o.wholly = !anyhow;
    const CudaModule *to = usual_module(c, p, &o);

    memset(plain, 0, (size_t)p->nkernels);
    for (int i = 0; i < to->nkernels; i++) {
        const CudaKernel *k = &to->kernel[i];
        plain[k->of] |= k->walk != CUDA_SUM && !k->head;
    }
    return plain;
}
