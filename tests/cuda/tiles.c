/* tiles.c -- cuda_tiles' kernels on a GPU: all of stdlib, forward, with
 * gradients and token after token, bfloat16 and float32, packed sequences
 * with ragged ends, against the float64 chunk form; the same bits when run
 * again. `time`: forward, backward and decoding at the sizes of peers.
 *   tiles [time] [NAME|PART/PARTS]
 */
#include "../../backend/cuda/driver.h"
#include "../unit/support.h"
#include "kinds.h"
#include "stdlib.h"

#include <stdlib.h>
#include <time.h>

enum { DIM = 128, RUNS = 20, MAX_KERNELS = 64 };

typedef struct Test {
    Nvrtc nvrtc;
    Driver driver;
    const char *only;
    bool timed;
    int part, parts, at, passed, failed;
    /* the case at hand */
    const char *name, *step;
    Kind kind;
    DType type;
} Test;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- tensors on the device ---- */

typedef struct Copy { View host, device; int64_t rows; } Copy;

static int64_t count_of(const View *v, int64_t rows)
{
    return v->sh * v->heads * rows;
}

/* The view's doubles in another type on the device; `rounded`: what the host
 * keeps is what the device has. */
static View to_device(Ctx *c, const Driver *d, const View *v, int64_t rows,
                      DType type, bool rounded)
{
    int64_t n = count_of(v, rows);
    View w = *v, host = { .dtype = type };

    host.data = malloc((size_t)n * 8 + 16);
    for (int64_t i = 0; i < n; i++) {
        view_set(&host, i, ((double *)v->data)[i]);
        if (rounded)
            ((double *)v->data)[i] = view_get(&host, i);
    }
    w.dtype = type;
    DevicePtr p = device_alloc(c, d, (size_t)n * 8 + 16);
    device_put(c, d, p, host.data, (size_t)(n * dtype_size(type)));
    w.data = (void *)(uintptr_t)p;
    free(host.data);
    return w;
}

static void from_device(Ctx *c, const Driver *d, const View *w, View *to,
                        int64_t rows)
{
    int64_t n = count_of(to, rows);
    View host = { .dtype = w->dtype, .data = malloc((size_t)n * 8 + 16) };

    device_get(c, d, host.data, (DevicePtr)(uintptr_t)w->data,
               (size_t)(n * dtype_size(w->dtype)));
    for (int64_t i = 0; i < n; i++)
        ((double *)to->data)[i] = view_get(&host, i);
    free(host.data);
}

typedef struct Rows { int64_t tokens, seqs; } Rows;

static int64_t input_rows(const Input *in, Rows r)
{
    return in->timed ? r.tokens : 1;
}

/* The call with its tensors on the device; results there are full of NaN. */
static Call *device_call(Ctx *c, const Driver *d, const Graph *g, Call *call,
                         DType type, Rows r)
{
    Call *dc = ctx_alloc(c, sizeof *dc);

    *dc = *call;
    for (int i = 0; i < g->nin; i++)
        dc->in[i] = to_device(c, d, &call->in[i], input_rows(&g->in[i], r),
                              type, true);
    for (int i = 0; i < g->nst; i++) {
        dc->s0[i] = to_device(c, d, &call->s0[i], r.seqs, F32, true);
        dc->s1[i] = to_device(c, d, &call->s1[i], r.seqs, F32, false);
    }
    for (int i = 0; i < g->nout; i++)
        dc->out[i] = to_device(c, d, &call->out[i], r.tokens, type, false);
    return dc;
}

static void get_results(Ctx *c, const Driver *d, const Graph *g,
                        const Call *dc, Call *got, Rows r)
{
    for (int i = 0; i < g->nst; i++)
        from_device(c, d, &dc->s1[i], &got->s1[i], r.seqs);
    for (int i = 0; i < g->nout; i++)
        from_device(c, d, &dc->out[i], &got->out[i], r.tokens);
}

/* ---- a case ---- */

typedef struct DeviceSeq { int32_t b, pad; int64_t start, len; } DeviceSeq;

typedef struct Ready {
    Plan *plan;
    CudaModule *m;
    Launch *launch[MAX_KERNELS];
    double seconds;
    PtxasInfo info;
} Ready;

typedef struct Printing { Plan *plan; CudaOptions o; } Printing;

static CudaModule *print(Ctx *c, void *ud, int attempt, Error *why)
{
    Printing *p = ud;

    p->o.attempt = attempt;
    return cuda_tiles_if(c, p->plan, &p->o, why);
}

static Ready make_ready(Ctx *c, const Test *t, Plan *p, const Call *dc)
{
    const Driver *d = &t->driver;
    Printing how = { p, { .tile = t->type, .arch = d->arch } };
    Attempts attempts = { .ctx = c, .print = print, .ud = &how };
    Ready r = { .plan = p };
    Cubin *b;
    DeviceSeq *seq = ctx_alloc(c, (size_t)dc->nseq * sizeof *seq);
    char arch[16];

    cuda_call_options(&how.o, p->g, dc);
    double start = now();
    snprintf(arch, sizeof arch, "sm_%d", d->arch);
    r.m = attempts_compile_all(c, &attempts, &t->nvrtc, arch, &b);
    r.seconds = now() - start;
    r.info = ptxas_most(b, attempts.programs[0].n);
    for (int64_t i = 0; i < dc->nseq; i++)
        seq[i] = (DeviceSeq){ dc->seq[i].b, 0, dc->seq[i].start,
                              dc->seq[i].len };
    DevicePtr table = device_alloc(c, d, (size_t)dc->nseq * sizeof *seq);
    device_put(c, d, table, seq, (size_t)dc->nseq * sizeof *seq);
    size_t bytes = (size_t)cuda_workspace(r.m, p, dc) + 256;
    DevicePtr workspace = device_alloc(c, d, bytes);
    device_fill(c, d, workspace, 0xff, bytes);
    for (int k = 0; k < r.m->nkernels; k++) {
        Function *f = kernel_load(c, d, b[attempts.programs[0].of[k]].bytes,
                                  &r.m->kernel[k]);
        r.launch[k] = launch_new(c, d, f, r.m, &r.m->kernel[k], p, dc, table,
                                 workspace);
    }
    return r;
}

static void run(Ctx *c, const Test *t, const Ready *r)
{
    for (int k = 0; k < r->m->nkernels; k++)
        launch(c, &t->driver, r->launch[k], NULL);
}

static void show_worst(const Graph *g, const Call *want, const Call *got)
{
    for (int i = 0; i < g->nout; i++)
        printf(" %s %.2g", g->out[i].name,
               distance(&want->out[i], &got->out[i], TOKENS));
    for (int i = 0; i < g->nst; i++)
        printf(" %s %.2g", g->st[i].name,
               distance(&want->s1[i], &got->s1[i], SEQS));
    printf("\n");
}

static bool same_results(const Graph *g, const Call *a, const Call *b)
{
    bool same = true;

    for (int i = 0; i < g->nout; i++)
        same &= !memcmp(a->out[i].data, b->out[i].data,
                        (size_t)count_of(&a->out[i], TOKENS) * 8);
    for (int i = 0; i < g->nst; i++)
        same &= !memcmp(a->s1[i].data, b->s1[i].data,
                        (size_t)count_of(&a->s1[i], SEQS) * 8);
    return same;
}

static void check(Ctx *c, void *ud)
{
    Test *t = ud;
    const Driver *d = &t->driver;
    Rows rows = { TOKENS, SEQS };
    Plan *p = plan_of(c, t->step, t->kind);
    const Graph *g = p->g;
    Call *want = make_call(c, g, 7), got = *want, again;

    for (int i = 0; i < g->nst; i++)    /* some are looked at as logarithms */
        for (int64_t e = 0; e < count_of(&want->s0[i], SEQS); e++)
            ((double *)want->s0[i].data)[e]
                = fabs(((double *)want->s0[i].data)[e]);
    make_results(c, g, want);
    Call *dc = device_call(c, d, g, want, t->type, rows);
    make_results(c, g, &got);
    again = got;
    make_results(c, g, &again);
    Ready r = make_ready(c, t, p, dc);
    run(c, t, &r);
    device_sync(c, d);
    get_results(c, d, g, dc, &got, rows);
    run(c, t, &r);
    device_sync(c, d);
    get_results(c, d, g, dc, &again, rows);
    if (g->chunk)
        interpret_chunks(c, g, want);
    else
        reference_run(c, g, want);
    double far = call_distance(g, want, &got);
    double most = t->type == F32 ? 1e-4 : t->kind == JOINT ? 2e-2 : 8e-3;
    bool same = same_results(g, &got, &again);
    printf("%s %-16s %-8s %-9s %.2e %5.2f s %3d registers %4d spilled %6d"
           " shared %6lld spill%s\n", far < most && same ? "ok  " : "FAIL",
           t->name, kind_name[t->kind], dtype_name(t->type), far, r.seconds,
           r.info.registers, r.info.spill_stores,
           r.m->kernel[r.m->nkernels - 1].shared,
           (long long)r.m->kernel[r.m->nkernels - 1].spill,
           same ? "" : " NOT THE SAME AGAIN");
    if (!(far < most))
        show_worst(g, want, &got);
    *(far < most && same ? &t->passed : &t->failed) += 1;
}

/* ---- time ---- */

static View random_view(Ctx *c, const Driver *d, const Graph *g,
                        const uint8_t *order, int rank, int64_t rows,
                        int heads, bool timed, const char *domain, DType type)
{
    View v = { .dtype = type, .heads = heads };
    int64_t n = 1;
    uint64_t seed = 3;

    for (int i = rank; i-- > 0; n *= g->axis[order[i]].size)
        v.sd[i] = n;
    v.sh = n;
    v.st = timed ? n * heads : 0;
    int64_t all = n * heads * rows, some = all < 1 << 16 ? all : 1 << 16;
    View host = { .dtype = type, .data = malloc((size_t)all * 4 + 16) };
    View small = { .dtype = F64, .heads = 1, .sh = n,
                   .data = malloc((size_t)(some + n) * 8) };
    small.heads = 2;
    draw(&small, (some / n + 1) / 2, domain, &seed);
    for (int64_t i = 0; i < all; i++)
        view_set(&host, i, ((double *)small.data)[i % (some / n * n)]);
    DevicePtr p = device_alloc(c, d, (size_t)all * 4 + 16);
    device_put(c, d, p, host.data, (size_t)(all * dtype_size(type)));
    v.data = (void *)(uintptr_t)p;
    free(host.data);
    free(small.data);
    return v;
}

static void measure(Ctx *c, void *ud)
{
    Test *t = ud;
    const Driver *d = &t->driver;
    bool step = t->kind == STEP;
    int B = step ? 64 : 4, H = 16;
    int64_t T = step ? 1 : 2048;
    Plan *p = plan_of(c, t->step, t->kind);
    const Graph *g = p->g;
    Call *dc = ctx_alloc(c, sizeof *dc);
    Seq *seq = ctx_alloc(c, (size_t)B * sizeof *seq);
    double bytes = 0;

    for (int b = 0; b < B; b++)
        seq[b] = (Seq){ b, 0, T };
    dc->nseq = B;
    dc->seq = seq;
    dc->heads = H;
    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        View *v = &dc->in[i];
        *v = random_view(c, d, g, in->order, in->rank, in->timed ? B * T : 1,
                         H, in->timed, in->domain, t->type);
        v->sb = in->timed ? v->st * T : 0;
        bytes += in->timed ? (double)v->st * 2 : 0;
    }
    for (int i = 0; i < g->nout; i++) {
        const Output *o = &g->out[i];
        View *v = &dc->out[i];
        *v = random_view(c, d, g, o->order, o->rank, B * T, H, true, "",
                         t->type);
        v->sb = v->st * T;
        bytes += (double)v->st * 2;
    }
    for (int i = 0; i < g->nst && step; i++) {
        const State *s = &g->st[i];
        for (int k = 0; k < 2; k++) {
            View *v = k ? &dc->s1[i] : &dc->s0[i];
            *v = random_view(c, d, g, s->order, s->rank, B, H, false,
                             "positive", F32);
            v->sb = v->sh * H;
            bytes += (double)v->sb * 4;
        }
    }
    Ready r = make_ready(c, t, p, dc);
    run(c, t, &r);
    device_sync(c, d);
    Event *mark[RUNS + 1];
    float best = 1e9f;
    for (int i = 0; i <= RUNS; i++)
        mark[i] = event_new(c, d);
    for (int i = 0; i < RUNS; i++) {
        event_record(c, d, mark[i], NULL);
        run(c, t, &r);
    }
    event_record(c, d, mark[RUNS], NULL);
    device_sync(c, d);
    for (int i = 0; i < RUNS; i++) {
        float ms = event_ms(c, d, mark[i], mark[i + 1]);
        best = ms < best ? ms : best;
    }
    double floor_ms = bytes * B * (double)T / 4.27e12 * 1e3;
    printf("time %-16s %-8s B%d T%d H%d D%d %s: %.4f ms, floor %.4f ms"
           " (compiled in %.1f s, %d registers, %d spilled, shared %d)\n",
           t->name, kind_name[t->kind], B, (int)T, H, DIM,
           dtype_name(t->type), best, floor_ms, r.seconds, r.info.registers,
           r.info.spill_stores, r.m->kernel[r.m->nkernels - 1].shared);
    t->passed++;
}

static void one(Test *t, Kind kind, DType type)
{
    Ctx *c = ctx_new();

    t->kind = kind;
    t->type = type;
    if (!ctx_protect(c, t->timed ? measure : check, t)) {
        printf("FAIL %s %s %s: %s\n", t->name, kind_name[kind],
               dtype_name(type), c->err.message);
        t->failed++;
    }
    fflush(stdout);
    ctx_free(c);
}

static void variant(void *ud, const char *name, const char *step)
{
    Test *t = ud;

    t->name = name;
    t->step = step;
    if (t->only ? strcmp(t->only, name) != 0
                : t->at++ % t->parts != t->part)
        return;
    for (int k = 0; k < NKINDS; k++) {
        one(t, (Kind)k, BF16);
        if (!t->timed && k != STEP)
            one(t, (Kind)k, F32);
    }
}

int main(int argc, char **argv)
{
    static Test t = { .parts = 1 };
    Ctx *c = ctx_new();

    if (!nvrtc_open(c, &t.nvrtc) || !driver_open(c, &t.driver)) {
        printf("skip: %s\n", c->err.message);
        return 0;
    }
    t.timed = argc > 1 && !strcmp(argv[1], "time");
    const char *which = argc > 1 + t.timed ? argv[1 + t.timed] : NULL;
    if (which && sscanf(which, "%d/%d", &t.part, &t.parts) != 2)
        t.only = which;
    if (!stdlib_each(c, DIM, DIM, variant, &t)) {
        printf("FAIL %s\n", c->err.message);
        t.failed++;
    }
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed != 0;
}
