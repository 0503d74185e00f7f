/* dump.c -- what a call launches, without a GPU: its kernels, their text, their
 * schedules. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "../../compiler/cost.h"
#include "../../compiler/schedule/schedule.h"
#include "segments.h"

enum { HOPPER = 90 };

/* Matrices of bfloat16, all else float32, as training calls have it. */
static CudaOptions usual_options(const Graph *g, const Machine *m)
{
    CudaOptions o = { .tile = BF16, .arch = m->arch, .machine = m,
                      .groups = 2, .split = true };

    cuda_schedule_options(&o);

    for (int i = 0; i < g->nin; i++)
        o.in[i] = o.vector[i] = g->in[i].rank ? BF16 : F32;
    for (int i = 0; i < g->nout; i++)
        o.out[i] = g->out[i].rank ? BF16 : F32;
    return o;
}

typedef struct Saving {
    const Plan *p;
    CudaOptions *o;
    CudaOptions f;                      /* of the way forward */
    CudaModule *forward;                /* cuda_emit's, where it has one */
} Saving;

/* What a plan is printed as: by cuda_tiles all of it; the way forward by
 * cuda_emit, NULL where cuda_tiles' kernels run. */
typedef struct Printed {
    CudaModule *tiles, *forward, *own;  /* own: both ways from schedules */
    CudaModule *few;                    /* forward alone, as for few heads */
    CudaOptions o, f;                   /* of tiles; of forward */
    const char *why;                    /* NULL: there is one alone */
} Printed;

enum { TOKENS = 8192 };                 /* of a usual call, one sequence */

static Call usual_call(int heads)
{
    return (Call){ .nseq = 1, .heads = heads, .tokens = TOKENS };
}

/* How states lie that the way forward leaves, where it is cuda_emit's. */
static void find_forward(Ctx *c, Saving *s)
{
    CudaOptions *f = &s->f;
    Error why;

    *f = *s->o;
    f->scheduled = false;
    f->saves = plan_is_joint(s->p);
    for (int i = 0; i < s->p->g->nst && f->saves; i++)
        f->kept.has[i] = s->p->stored[s->p->g->st[i].node];
    s->forward = cuda_emit_if(c, s->p, f, &why);
    s->o->rows = f->saves && s->forward ? s->forward->kernel->row_axis : 0;
}

/* What runs behind the loss where cuda_emit's runs before it. */
static const CudaModule *rest_of(const Plan *p, const Printed *y)
{
    return plan_is_joint(p) ? y->tiles : NULL;
}

static bool goes_as_few(const Plan *p, const Printed *y, const Machine *m,
                        const Call *call)
{
    return y->few && cuda_pays_as_few(p, y->few, y->own, y->forward, m,
                                      m->units, call);
}

static bool takes_schedules(const Plan *p, const Printed *y, const Machine *m,
                            const Call *call)
{
    return goes_as_few(p, y, m, call)
        || cuda_takes_schedules(p, y->own, NULL, y->forward, rest_of(p, y), m,
                                m->units, call);
}

/* Of so many heads that they do not leave half the machine idle, those for
 * which schedules are taken: "67 to 132 and 199 to 256". */
static const char *heads_text(Ctx *c, const Plan *p, const Printed *y,
                              const Machine *m)
{
    enum { MOST_HEADS = 256 };
    Buf b = { .ctx = c };
    int from = 0;

    for (int h = m->units / 2 + 1; h <= MOST_HEADS + 1; h++) {
        Call call = usual_call(h);
        bool takes = h <= MOST_HEADS && takes_schedules(p, y, m, &call);
        if (takes && !from)
            from = h;
        if (!takes && from) {
            buf_printf(&b, "%s%d to %d", b.len ? " and " : "", from, h - 1);
            from = 0;
        }
    }
    return b.len ? b.s : "none";
}

/* Takes the cheaper way forward, and says why. */
static void choose_forward(Ctx *c, const Plan *p, const Machine *m,
                           Printed *y)
{
    Call call = usual_call(m->walks);
    double each = (double)TOKENS * m->walks * 1e-9;
    CudaModule *from = goes_as_few(p, y, m, &call) ? y->few : y->own;

    if (!y->forward || !cuda_forward_scheduled(p, y->own)) {
        y->tiles = from == y->few ? from : y->tiles;
        return;
    }
    const CudaModule *rest = rest_of(p, y);
    bool takes = takes_schedules(p, y, m, &call);
    double own = cuda_way_whole(p, from, false, m, m->units, &call);
    double not = cuda_way_whole(p, y->forward, false, m, m->units, &call);
    if (rest) {
        own += cuda_way_seconds(p, y->own, true, m, m->units, &call);
        not += cuda_way_seconds(p, rest, true, m, m->units, &call);
    }
    y->why = ctx_format(c, "%s, predicted %.2f ns a token and head%s from"
        " schedules, %.2f not; from schedules for %s heads x sequences of %d"
        " to 256", takes ? "from schedules" : "not from schedules",
        own / each, rest ? ", both ways," : "", not / each,
        heads_text(c, p, y, m), m->units / 2 + 1);
    if (takes) {
        y->forward = NULL;
        y->tiles = from;
    }
}

static Printed kernels_of(Ctx *c, const Plan *p, const CudaOptions *like)
{
    CudaOptions o = *like;
    Saving s = { p, &o, o, NULL };

    if (o.arch == HOPPER && o.tile != F32
        && p->g->chunk == CUDA_HOPPER_CHUNK)
        find_forward(c, &s);
    Printed y = { .tiles = cuda_tiles(c, p, &o), .o = o, .f = s.f };
    if (!plan_is_joint(p) || y.tiles->chunk == p->g->chunk)
        y.forward = s.forward;
    y.own = y.tiles;
    CudaOptions few = o;
    few.few = true;
    if (o.arch == HOPPER && o.tile != F32 && o.scheduled && !o.few
        && !plan_is_joint(p) && p->g->chunk == CUDA_HOPPER_CHUNK)
        y.few = cuda_tiles(c, p, &few);
    if (o.rows && o.scheduled && y.forward) {
        o.rows = 0;
        y.own = cuda_tiles(c, p, &o);
    }
    if (o.scheduled)
        choose_forward(c, p, options_machine(&o), &y);
    if (y.tiles == y.own || y.tiles == y.few)
        y.o = y.tiles == y.few ? few : o;
    return y;
}

const char *cuda_schedules(Ctx *c, const Plan *p, const Machine *m)
{
    CudaOptions o = usual_options(p->g, m);

    return kernels_of(c, p, &o).tiles->schedules;
}

/* ---- their text ---- */

void cuda_runs(Ctx *c, const Plan *p, CudaOptions *o, CudaRuns *r)
{
    cuda_schedule_options(o);
    Printed y = kernels_of(c, p, o);

    *r = (CudaRuns){ .tiles = { y.o, y.tiles } };
    if (!y.forward)
        return;
    bool joint = plan_is_joint(p);
    r->forward = (CudaRun){ y.f, y.forward };
    r->first = joint ? y.tiles->plan->split : y.tiles->nkernels;
    if (joint) {                        /* where the way back looks for it */
        r->forward.o.kept = y.tiles->kept;
        r->forward.m = cuda_emit(c, p, &r->forward.o);
    }
}

/* Each head once, and the kernels that have it. */
const char *cuda_runs_text(Ctx *c, const CudaRuns *r)
{
    const CudaModule *m = r->tiles.m;
    const char *before = NULL;
    Buf b = { .ctx = c };

    if (r->forward.m)
        buf_printf(&b, "%s", r->forward.m->source);
    for (int i = r->first; i < m->nkernels; i++) {
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

    if (k->walk == CUDA_HOPPER)
        l.form = "wgmma";
    else if (k->schedule && !k->schedule->why)
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

/* All nodes of the plan's first kernels as one kernel's. */
static Kernel joined(const Plan *p, int split)
{
    Ctx *c = p->g->ctx;
    Kernel k = { .kind = K_FORWARD };
    uint8_t *has = ctx_alloc(c, p->g->len);

    k.node = ctx_alloc(c, p->g->len * sizeof *k.node);
    for (int i = 0; i < split; i++)
        for (int at = 0; at < p->kernel[i].nnodes; at++)
            has[p->kernel[i].node[at]] = 1;
    for (Ref r = 1; r < p->g->len; r++)
        if (has[r])
            k.node[k.nnodes++] = r;
    return k;
}

/* One of which others have all that it had is not launched. */
static bool is_idle(const CudaKernel *k)
{
    return !k->nmaps && !k->ntensors;
}

/* The plan as it is cut; its first `split` kernels as one, which the other
 * emitter prints. */
static Plan *as_launched(const CudaModule *m, int split)
{
    const Plan *p = m->plan;
    Ctx *c = p->g->ctx;
    Plan *to = ctx_alloc(c, sizeof *to);

    *to = (Plan){ .g = p->g };
    to->kernel = ctx_alloc(c, (size_t)p->nkernels * sizeof *to->kernel);
    if (split)
        to->kernel[to->nkernels++] = joined(p, split);
    for (int i = split; i < p->nkernels; i++)
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
    Printed y = kernels_of(c, p, &o);
    CudaModule *forward = y.forward, *m = y.tiles;
    bool joint = plan_is_joint(p);
    int split = !forward ? 0 : joint ? m->plan->split : m->plan->nkernels;
    int n = split > 0;
    Launched *to = ctx_alloc(c, (size_t)m->nkernels * sizeof *to);

    assert(!forward || forward->nkernels == 1);

    l->p = as_launched(m, split);
    if (split)
        to[0] = launched(c, &forward->kernel[0]);
    for (int i = split; i < m->plan->nkernels; i++)
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
    l->forward = y.why;
    return l;
}

typedef struct Roads {
    const Plan *p;
    const Machine *m;
    bool anyhow;
    uint8_t *plain;
} Roads;

static void find_roads(Ctx *c, const Roads *r)
{
    CudaOptions o = usual_options(r->p->g, r->m);
    o.wholly = !r->anyhow;
    Printed y = kernels_of(c, r->p, &o);
    CudaModule *m = y.tiles;
    int first = !y.forward ? 0 : plan_is_joint(r->p) ? r->p->split
              : r->p->nkernels;

    memset(r->plain, 0, (size_t)r->p->nkernels);
    for (int i = 0; i < m->nkernels; i++) {
        const CudaKernel *k = &m->kernel[i];
        if (k->of >= first)
            r->plain[k->of] |= k->walk != CUDA_SUM && !k->head;
    }
}

uint8_t *cuda_plain(Ctx *c, const Plan *p, const Machine *m, bool anyhow)
{
    Roads r = { p, m, anyhow, ctx_alloc(c, (size_t)p->nkernels + 1) };

    find_roads(c, &r);
    return r.plain;
}
