/* verify.c -- kernels on a small call, beside the interpreter: compilers err,
 * and a kernel that they got wrong must not come into the cache.
 */
#include "build.h"

#include <math.h>
#include <string.h>

#include "run.h"

/* Two sequences, neither a multiple of a chunk; of the heads, one without
 * decay: where a register of ptxas's was used again too soon, no other head
 * showed it. */
enum { HEADS = 2, SEQUENCES = 2, SECOND = 3 };

/* What the types allow, and then some; a wrong kernel is off by half. */
static double allowed(const CudaOptions *o)
{
    return o->tile == F32 ? 5e-3 : 8e-2;
}

typedef struct Block { DevicePtr p; size_t bytes; } Block;

enum { BLOCKS = MAX_INPUTS + MAX_OUTPUTS + 2 * MAX_STATES + 2 };

typedef struct Trial {
    Gpu *gpu;
    const Driver *d;
    const Build *b, *forward;
    const Plan *p;
    const Graph *g;
    int64_t tokens;
    Seq seq[SEQUENCES];
    Call truth, call;                   /* in the host's memory; on the GPU */
    Block block[BLOCKS];
    int n;
    uint64_t seed;
} Trial;

/* ---- numbers ---- */

static double uniform(Trial *t)
{
    t->seed = t->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(t->seed >> 11) / 9007199254740992.0;
}

static double draw(Trial *t, const char *domain, int head)
{
    double x = (uniform(t) + uniform(t) + uniform(t) + uniform(t) - 2) * 1.7;
    if (!strcmp(domain, "log_decay"))
        return head ? 0 : -log1p(exp(-x));
    if (!strcmp(domain, "positive"))
        return log1p(exp(x));
    if (!strcmp(domain, "unit"))
        return 1 / (1 + exp(-x));
    return x;
}

/* Row-major, behind sequences or tokens and heads. */
static View layout(const Trial *t, DType d, int heads, int64_t sequences,
                   int64_t tokens, const uint8_t *order, int rank)
{
    View v = { .dtype = d, .heads = heads };
    int64_t n = 1;
    for (int i = rank; i-- > 0; n *= t->g->axis[order[i]].size)
        v.sd[i] = n;
    v.sh = n;
    v.st = tokens ? n * heads : 0;
    v.sb = sequences ? n * heads : tokens * n * heads;
    return v;
}

static int64_t elements(const View *v, int64_t rows)
{
    return v->sh * v->heads * rows;
}

static View in_host(Ctx *c, View v, int64_t rows)
{
    v.data = ctx_alloc(c, (size_t)elements(&v, rows)
                          * (size_t)dtype_size(v.dtype) + 1);
    return v;
}

/* With what the host has, or full of what is not a number. */
static View on_gpu(Ctx *c, Trial *t, View v, int64_t rows, const void *from)
{
    size_t bytes = (size_t)elements(&v, rows) * (size_t)dtype_size(v.dtype);
    Block *b = &t->block[t->n];
    b->p = gpu_alloc(c, t->gpu, bytes);
    b->bytes = bytes;
    t->n++;
    if (from)
        device_put(c, t->d, b->p, from, bytes);
    else
        device_fill(c, t->d, b->p, 0xff, bytes);
    v.data = (void *)(uintptr_t)b->p;
    return v;
}

static void fill(Trial *t, const View *v, int64_t rows, const char *domain)
{
    for (int64_t r = 0; r < rows * v->heads; r++) {
        double norm = 0;
        for (int64_t i = r * v->sh; i < (r + 1) * v->sh; i++) {
            double x = draw(t, domain, (int)(r % v->heads));
            view_set(v, i, x);
            norm += x * x;
        }
        for (int64_t i = r * v->sh; i < (r + 1) * v->sh; i++)
            if (!strcmp(domain, "unit_norm"))
                view_set(v, i, view_get(v, i) / sqrt(norm));
    }
}

/* ---- the call ---- */

static void make_inputs(Ctx *c, Trial *t)
{
    const CudaOptions *o = &t->b->o;
    for (int i = 0; i < t->g->nin; i++) {
        const Input *in = &t->g->in[i];
        int64_t rows = in->timed ? t->tokens : 1;
        View v = layout(t, o->in[i], HEADS, 0, in->timed ? t->tokens : 0,
                        in->order, in->rank);
        if (!in->timed)
            v.sb = 0;
        t->truth.in[i] = in_host(c, v, rows);
        fill(t, &t->truth.in[i], rows, in->domain);
        t->call.in[i] = on_gpu(c, t, v, rows, t->truth.in[i].data);
    }
}

/* A sum starts from nothing. What is positive is a sound state of any step. */
static void make_states(Ctx *c, Trial *t)
{
    const CudaOptions *o = &t->b->o;
    for (int i = 0; i < t->g->nst; i++) {
        const State *st = &t->g->st[i];
        View v = layout(t, o->s0[i], HEADS, SEQUENCES, 0, st->order,
                        st->rank);
        if (!o->sum_s1[i]) {
            t->truth.s0[i] = in_host(c, v, SEQUENCES);
            fill(t, &t->truth.s0[i], SEQUENCES, "positive");
            t->call.s0[i] = on_gpu(c, t, v, SEQUENCES,
                                   t->truth.s0[i].data);
        }
        if (st->twin_of) {
            t->truth.s0[i] = t->truth.s0[st->twin_of - 1];
            t->call.s0[i] = t->call.s0[st->twin_of - 1];
        }
        v.dtype = F64;
        t->truth.s1[i] = in_host(c, v, SEQUENCES);
        v = layout(t, o->s1[i], o->sum_s1[i] ? 1 : HEADS, SEQUENCES, 0,
                   st->order, st->rank);
        if (o->sum_s1[i])
            v.sb = 0;
        t->call.s1[i] = on_gpu(c, t, v, o->sum_s1[i] ? 1 : SEQUENCES, NULL);
    }
}

static void make_outputs(Ctx *c, Trial *t)
{
    const CudaOptions *o = &t->b->o;
    for (int i = 0; i < t->g->nout; i++) {
        const Output *out = &t->g->out[i];
        View v = layout(t, F64, HEADS, 0, t->tokens, out->order, out->rank);
        t->truth.out[i] = in_host(c, v, t->tokens);
        v = layout(t, o->out[i], o->sum_out[i] ? 1 : HEADS, 0, t->tokens,
                   out->order, out->rank);
        t->call.out[i] = on_gpu(c, t, v, t->tokens, NULL);
    }
}

static void make_call(Ctx *c, Trial *t)
{
    int64_t first = t->g->chunk ? t->g->chunk + 7 : 5;
    t->tokens = first + SECOND;
    t->seq[0] = (Seq){ 0, 0, first };
    t->seq[1] = (Seq){ 0, first, SECOND };
    t->truth.nseq = SEQUENCES;
    t->truth.seq = t->seq;
    t->truth.heads = HEADS;
    t->truth.tokens = t->tokens;
    t->truth.threads = 1;
    t->truth.interrupted = c->interrupted;
    t->truth.interrupt_ud = c->interrupt_ud;
    for (int a = 0; a < NAXES; a++)
        t->truth.size[a] = t->g->axis[a].size;
    t->call = t->truth;
    t->call.on_device = true;
    make_inputs(c, t);
    make_states(c, t);
    make_outputs(c, t);
}

/* ---- running ---- */

/* Those that belong to kernel `from` of the plan, and to later ones. */
static void launch_from(Ctx *c, Trial *t, const Build *b, int from,
                        DevicePtr seq, DevicePtr workspace)
{
    const CudaModule *m = b->m;
    for (int i = 0; i < m->nkernels; i++)
        if (m->kernel[i].of >= from)
            launch(c, t->d, launch_new(c, t->d, b->f[i], m, &m->kernel[i],
                   t->p, &t->call, seq, workspace), NULL);
}

static void run_kernels(Ctx *c, Trial *t)
{
    const CudaModule *m = t->b->m;
    HostSequence seq[SEQUENCES];
    int64_t need = cuda_workspace(m, t->p, &t->call);
    Block *b = &t->block[t->n];
    for (int i = 0; i < SEQUENCES; i++)
        seq[i] = (HostSequence){ 0, 0, t->seq[i].start, t->seq[i].len };
    enum { TABLE = 256 };
    b->bytes = (size_t)need + TABLE;
    b->p = gpu_alloc(c, t->gpu, b->bytes);
    t->n++;
    device_fill(c, t->d, b->p, 0xff, b->bytes);
    device_put(c, t->d, b->p, seq, sizeof seq);
    gpu_running(t->gpu, ctx_format(c, "the first run of %s's kernels",
                                   t->g->name));
    if (t->forward)
        launch_from(c, t, t->forward, 0, b->p, b->p + TABLE);
    launch_from(c, t, t->b, t->forward ? t->p->split : 0, b->p,
                b->p + TABLE);
    device_sync(c, t->d);
}

static void interpret(Ctx *c, Trial *t)
{
    if (t->g->chunk)
        interpret_chunks(c, t->g, &t->truth);
    else
        reference_run(c, t->g, &t->truth);
}

/* The truth's elements at x of each row and head that the result adds up. */
static double summed(const View *truth, int64_t x, int64_t rows, int times)
{
    double sum = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int h = 0; h < times; h++)
            sum += view_get(truth, (r * times + h) * truth->sh + x);
    return sum;
}

/* What is no number in both is equal. */
static double difference(double got, double want, bool angle)
{
    const double turn = 6.283185307179586;
    double e = got - want;
    if (isnan(got) && isnan(want))
        return 0;
    return angle ? e - turn * floor(e / turn + 0.5) : e;
}

static void compare(Ctx *c, Trial *t, const char *name, View got,
                    const View *want, int64_t rows, bool every_row,
                    bool angle)
{
    int times = HEADS / got.heads;
    int64_t groups = every_row ? 1 : rows, per = every_row ? rows : 1;
    int64_t n = got.sh * got.heads;
    double error = 0, truth = 0;
    View host = in_host(c, got, groups);
    device_get(c, t->d, host.data, (DevicePtr)(uintptr_t)got.data,
               (size_t)(n * groups) * (size_t)dtype_size(got.dtype));
    for (int64_t r = 0; r < groups; r++)
        for (int64_t x = 0; x < n; x++) {
            View row = *want;
            row.data = (double *)want->data + r * want->sh * HEADS
                     + x / got.sh * times * want->sh;
            double y = times == 1 && per == 1
                     ? ((double *)row.data)[x % got.sh]
                     : summed(&row, x % got.sh, per, times);
            double e = difference(view_get(&host, r * n + x), y, angle);
            error += e * e;
            truth += isnan(y) ? 0 : y * y;
        }
    error = sqrt(error / (truth > 0 ? truth : 1));
    if (!(error < allowed(&t->b->o)))
        fail_code(c, ERR_INTERNAL, "%s: the kernel that was compiled for this"
                  " GPU gets %s wrong (by %.1e): it is not used", t->g->name,
                  name, error);
}

static void trial(Ctx *c, void *ud)
{
    Trial *t = ud;
    make_call(c, t);
    run_kernels(c, t);
    interpret(c, t);
    for (int i = 0; i < t->g->nout; i++)
        compare(c, t, t->g->out[i].name, t->call.out[i], &t->truth.out[i],
                t->tokens, false, false);
    for (int i = 0; i < t->g->nst; i++)
        compare(c, t, t->g->st[i].name, t->call.s1[i], &t->truth.s1[i],
                SEQUENCES, t->b->o.sum_s1[i], t->g->st[i].angle);
}

void build_verify(Ctx *c, Gpu *g, const Build *b, const Build *forward,
                  const Plan *p)
{
    Trial *t = ctx_alloc(c, sizeof *t);
    *t = (Trial){ .gpu = g, .d = gpu_enter(c, g), .b = b, .forward = forward,
                  .p = p, .g = p->g, .seed = 20 };
    bool ok = ctx_protect(c, trial, t);
    for (int i = 0; i < t->n; i++)
        gpu_free(g, t->block[i].p, t->block[i].bytes);
    if (!ok)
        ctx_rethrow(c);
}
