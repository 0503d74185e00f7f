/* compile_tiles.c -- cuda_tiles' source compiles: every other variant of the
 * stdlib at K = V = 128 for sm_90a, a sample with gradients, for decoding, for
 * sm_80 and for sm_100; seconds and spills are looked at. Needs NVRTC, no GPU.
 *   compile_tiles             as much as `make test` has time for
 *   compile_tiles all         every variant, kind, type and architecture
 *   compile_tiles NAME        that variant, and its sources
 */
#include "../../backend/cuda/cuda.h"
#include "../../backend/cuda/nvrtc.h"
#include "kinds.h"
#include "stdlib.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct Test {
    Nvrtc nvrtc;
    const char *only;
    bool all;
    int at, part, parts, passed, failed;
    /* the one at hand */
    const char *name, *step, *arch;
    Kind kind;
    DType type;
} Test;

/* Of this process: others may be at work, too. */
static double now(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void set_types(const Graph *g, DType d, CudaOptions *o)
{
    o->tile = d;
    for (int i = 0; i < g->nin; i++)
        o->in[i] = o->vector[i] = d;
    for (int i = 0; i < g->nout; i++)
        o->out[i] = d;
}

/* The way forward of a plan whose way back is cuda_tiles': by Hopper's kernels,
 * which say in o how states are stored. */
static void compile_forward(Ctx *c, const Test *t, const Plan *p,
                            CudaOptions *o)
{
    CudaOptions f = *o;

    f.saves = f.split = true;
    f.groups = 2;
    for (int i = 0; i < p->g->nst; i++)
        f.kept.has[i] = p->stored[p->g->st[i].node];
    o->rows = cuda_emit(c, p, &f)->kernel->row_axis;
    f.kept = cuda_tiles(c, p, o)->kept;
    CudaModule *m = cuda_emit(c, p, &f);
    if (!strstr(m->source, "keep_state"))
        fail_code(c, ERR_INTERNAL, "nothing is left for the way back");
    Cubin *b = nvrtc_compile(c, &t->nvrtc, m->source, t->arch);
    if (b->info.spill_stores)
        fail_code(c, ERR_INTERNAL, "forward: %d bytes spilled",
                  b->info.spill_stores);
}

static void compile(Ctx *c, void *ud)
{
    Test *t = ud;
    Plan *p = plan_of(c, t->step, t->kind);
    CudaOptions o = { .arch = atoi(t->arch + 3) };
    /* 2 s, with gradients 5 s, of a free core; busy ones take far longer */
    const double most[NKINDS] = { 20, 40, 20 };
    int shared = 0;

    set_types(p->g, t->type, &o);
    if (t->kind == JOINT && t->type == BF16 && !strcmp(t->arch, "sm_90a")
        && p->g->chunk == 64)
        compile_forward(c, t, p, &o);
    double start = now();
    CudaModule *m = cuda_tiles(c, p, &o);
    if (t->only)
        printf("// ---- %s %s\n%s", t->name, kind_name[t->kind], m->source);
    Cubin *b = nvrtc_compile(c, &t->nvrtc, m->source, t->arch);
    double seconds = now() - start;
    for (int i = 0; i < m->nkernels; i++)
        shared = m->kernel[i].shared > shared ? m->kernel[i].shared : shared;
    if (t->only || t->all)
        printf("%-16s %-8s %-8s %-7s %5.2f s %3d registers %4d spilled %6d"
               " shared %7lld spill\n", t->name, kind_name[t->kind],
               dtype_name(t->type), t->arch, seconds, b->info.registers,
               b->info.spill_stores, shared, (long long)m->kernel[0].spill);
    /* mamba3_mimo's few, of 255 registers, cost nothing that shows */
    if (b->info.spill_stores > 128)
        fail_code(c, ERR_INTERNAL, "%d bytes spilled, stack %d",
                  b->info.spill_stores, b->info.stack);
    if (seconds > most[t->kind] && !t->all)
        fail_code(c, ERR_INTERNAL, "%.1f s", seconds);
}

static void one(Test *t, Kind kind, DType type, const char *arch)
{
    Ctx *c = ctx_new();

    t->kind = kind;
    t->type = type;
    t->arch = arch;
    if (ctx_protect(c, compile, t)) {
        t->passed++;
    } else {
        printf("FAIL %s %s %s %s: %s\n", t->name, kind_name[kind],
               dtype_name(type), arch, c->err.message);
        t->failed++;
    }
    ctx_free(c);
}

static void every(Test *t)
{
    static const DType type[] = { BF16, F16, F32 };
    static const char *const arch[] = { "sm_90a", "sm_80", "sm_100" };

    for (int k = 0; k < NKINDS; k++)
        for (int d = 0; d < 3; d++)
            for (int a = 0; a < 3; a++)
                one(t, (Kind)k, type[d], arch[a]);
}

/* The delta rule has every routine of the device but the gates' own. */
static void sample(Test *t)
{
    bool delta = !strcmp(t->name, "gated_deltanet");

    if (t->only || delta || t->at / t->parts % 2 == 0)
        one(t, FORWARD, BF16, "sm_90a");
    if (t->only || delta)
        one(t, JOINT, BF16, "sm_90a");
    if (t->only || !strcmp(t->name, "mamba3"))
        one(t, STEP, BF16, "sm_90a");
    if (t->only || delta) {
        one(t, FORWARD, F32, "sm_80");
        one(t, FORWARD, F16, "sm_100");
    }
}

static void variant(void *ud, const char *name, const char *step)
{
    Test *t = ud;

    t->name = name;
    t->step = step;
    if (t->only ? strcmp(t->only, name) != 0
                : t->at++ % t->parts != t->part)
        return;
    if (t->all)
        every(t);
    else
        sample(t);
}

/* A share of the variants, by a process of its own. */
static void run_part(Test *t, int to)
{
    Ctx *c = ctx_new();

    if (!nvrtc_open(c, &t->nvrtc)
        || !stdlib_each(c, 128, 128, variant, t)) {
        printf("FAIL %s\n", c->err.message);
        t->failed++;
    }
    fflush(stdout);
    int count[2] = { t->passed, t->failed };
    _exit(write(to, count, sizeof count) != sizeof count);
}

int main(int argc, char **argv)
{
    static Test t = { .parts = 1 };
    Ctx *c = ctx_new();
    int tube[2], count[2], passed = 0, failed = 0;

    if (!nvrtc_open(c, &t.nvrtc)) {
        printf("skip: %s\n", c->err.message);
        return 0;
    }
    t.all = argc > 1 && !strcmp(argv[1], "all");
    t.only = argc > 1 && !t.all ? argv[1] : NULL;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    t.parts = t.only || cores < 1 ? 1 : cores < 16 ? (int)cores : 16;
    if (pipe(tube) != 0)
        return 1;
    for (t.part = 0; t.part < t.parts; t.part++)
        if (fork() == 0)
            run_part(&t, tube[1]);
    for (int i = 0; i < t.parts; i++)
        if (wait(NULL) < 0 || read(tube[0], count, sizeof count)
            != sizeof count) {
            failed++;
        } else {
            passed += count[0];
            failed += count[1];
        }
    printf("%d passed, %d failed\n", passed, failed);
    ctx_free(c);
    return failed != 0;
}
