/* compile.c -- plans compile for sm_90a: no spills, and none of ptxas's notes
 * that it serialised wgmma. Needs NVRTC, no GPU.
 *   compile NAME: that variant alone, and its source.
 */
#include "../../backend/cuda/cuda.h"
#include "../../backend/cuda/nvrtc.h"
#include "variants.h"

#include <stdio.h>
#include <string.h>

typedef struct Test {
    const Nvrtc *nvrtc;
    const Variant *variant;
    int k, v, groups;
    DType tile;
    bool print;
} Test;

static void compile(Ctx *c, void *ud)
{
    Test *t = ud;
    CudaOptions o = { .tile = t->tile, .groups = t->groups, .split = true };
    Plan *p = plan_of(c, variant_graph(c, t->variant->name), t->k, t->v);
    CudaModule *m = cuda_emit(c, p, &o);
    if (t->print)
        printf("%s\n", m->source);
    Cubin *b = nvrtc_compile(c, t->nvrtc, m->source, "sm_90a");
    const PtxasInfo *i = &b->info;
    if (!b->size || !i->registers)
        fail_code(c, ERR_INTERNAL, "no cubin or no report:\n%s", b->log);
    if (i->spill_stores || i->spill_loads || i->stack)
        fail_code(c, ERR_INTERNAL, "%d bytes spilled, stack %d",
                  i->spill_stores, i->stack);
    if (i->registers != (65536 / m->kernel->threads & ~7))
        fail_code(c, ERR_INTERNAL, "%d registers at the launch, for %d"
                  " threads", i->registers, m->kernel->threads);
    if (m->kernel->shared > 232448)
        fail_code(c, ERR_INTERNAL, "%d bytes of shared memory",
                  m->kernel->shared);
}

/* A serialised kernel must be refused: two products whose accumulators are
 * read while they are in flight. */
static const char serialised[] =
    "#include \"numbers.cuh\"\n#include \"device.cuh\"\n"
    "#include \"wgmma.cuh\"\n"
    "extern \"C\" __global__ void k(float *p, int n) {\n"
    "float d[32];\nfor (int i = 0; i < n; i++) {\n"
    "wgmma_fence(); multiply<1, 0>(d, along_k(0), along_k(0), i);\n"
    "wgmma_commit(); p[i] += d[i & 1]; }\nwgmma_wait<0>();\n"
    "for (int i = 0; i < 32; i++) p[32 * threadIdx.x + i] = d[i];\n}\n";

static void compile_serialised(Ctx *c, void *ud)
{
    nvrtc_compile(c, ud, serialised, "sm_90a");
}

static void compile_wrong(Ctx *c, void *ud)
{
    nvrtc_compile(c, ud, "int f( { }", "sm_90a");
}

/* A kernel that keeps so many numbers, with registers for 24 or so. */
static char *keeping(Ctx *c, int numbers)
{
    return ctx_format(c, "extern \"C\" __global__ void __launch_bounds__(1024, "
        "2) k(float *p) {\nfloat x[%d];\n#pragma unroll\n"
        "for (int i = 0; i < %d; i++) x[i] = p[i];\n__syncthreads();\n"
        "#pragma unroll\nfor (int i = 0; i < %d; i++) p[2 * i] = x[i];\n}\n",
        numbers, numbers, numbers);
}

/* Each program takes the first text that spills nothing, or the least. */
static void compile_tries(Ctx *c, void *ud)
{
    enum { PROGRAMS = 3, TRIES = 3 };
    static const int numbers[TRIES][PROGRAMS] = {
        { 8, 80, 120 }, { 80, 0, 60 }, { 9, 8, 80 } };
    static const int want[PROGRAMS] = { 0, 2, 1 };
    const char *text[TRIES * PROGRAMS];
    for (int i = 0; i < TRIES * PROGRAMS; i++) {
        int n = numbers[i / PROGRAMS][i % PROGRAMS];
        text[i] = n ? keeping(c, n) : NULL;
    }
    Cubin *b = nvrtc_compile_all(c, ud, &(Sources){ PROGRAMS, TRIES,
                                 PROGRAMS, text }, "sm_90a");
    for (int i = 0; i < PROGRAMS; i++)
        if (b[i].taken != want[i] || !b[i].info.spill_stores != (i < 2))
            fail_code(c, ERR_INTERNAL, "program %d: try %d, %d bytes", i,
                      b[i].taken, b[i].info.spill_stores);
}

/* What is compiled ahead may fail. */
static void compile_ahead(Ctx *c, void *ud)
{
    const char *text[] = { keeping(c, 8), "not C++", keeping(c, 9) };
    Cubin *b = nvrtc_compile_all(c, ud, &(Sources){ 3, 1, 1, text },
                                 "sm_90a");
    if (!b[0].bytes || b[1].bytes || !b[2].bytes)
        fail_code(c, ERR_INTERNAL, "other programs have failed");
}

static void compile_needed(Ctx *c, void *ud)
{
    const char *text[] = { keeping(c, 8), "not C++" };
    nvrtc_compile_all(c, ud, &(Sources){ 2, 1, 2, text }, "sm_90a");
}

/* A running sum per value has no place yet: refused by name, before NVRTC. */
static void compile_value_sum(Ctx *c, void *ud)
{
    Graph *g = graph_new(c, "per_value", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k");
    Ref v = input_of(g, "v", "t v"), gate = input_of(g, "g", "t v");
    CudaOptions o = { .tile = BF16, .groups = 1 };
    graph_output(g, "y", matrix_state(g, q, k, v, op1(g, OP_exp, gate)));
    cuda_emit(c, plan_of(c, g, 128, 128), &o);
    (void)ud;
}

/* There is room to load a chunk while the last one is in hand. */
static void check_stages(Ctx *c, void *name)
{
    CudaOptions o = { .tile = BF16, .groups = 1, .split = true };
    CudaModule *m = cuda_emit(c, plan_of(c, variant_graph(c, name), 128, 128),
                              &o);
    if (m->kernel->stages < 2)
        fail_code(c, ERR_INTERNAL, "a stage takes %d bytes",
                  m->kernel->shared);
}

static int failures, passes;

static void expect(bool ok, const char *what, const char *why)
{
    if (ok) {
        passes++;
    } else {
        failures++;
        printf("FAIL %s: %s\n", what, why);
    }
}

static void expect_refused(Nvrtc *n, void (*f)(Ctx *, void *), int code,
                           const char *part)
{
    Ctx *c = ctx_new();
    bool ok = !ctx_protect(c, f, n) && c->err.code == code
           && strstr(c->err.message, part);
    expect(ok, part, c->err.message);
    ctx_free(c);
}

/* Those whose stages are the largest, but rwkv7: gates or a state per key. */
static void expect_stages(void)
{
    static char name[][20] = { "kda", "gdn2", "precond_delta_k",
                               "precond_gdn", "precond_kda" };
    for (int i = 0; i < 5; i++) {
        Ctx *c = ctx_new();
        expect(ctx_protect(c, check_stages, name[i]), name[i], c->err.message);
        ctx_free(c);
    }
}

int main(int argc, char **argv)
{
    enum { NSHAPES = 5 };
    static const int shape[NSHAPES][3] = { { 128, 128, 2 }, { 128, 128, 1 },
        { 64, 64, 1 }, { 64, 128, 2 }, { 96, 40, 1 } };
    Ctx *c = ctx_new();
    Nvrtc n;
    if (!nvrtc_open(c, &n)) {
        printf("skip: %s\n", c->err.message);
        return 0;
    }
    ctx_free(c);
    for (int i = 0; i < NVARIANTS; i++)
        for (int s = 0; s < (i ? 1 : NSHAPES); s++) {
            if (argc > 1 && (strcmp(argv[1], variants[i].name) || s))
                continue;
            Test t = { &n, &variants[i], shape[s][0], shape[s][1],
                       shape[s][2], s == 3 ? F16 : BF16, argc > 1 };
            char what[80];
            snprintf(what, sizeof what, "%s K %d V %d groups %d", t.variant
                     ->name, t.k, t.v, t.groups);
            c = ctx_new();
            expect(ctx_protect(c, compile, &t), what, c->err.message);
            ctx_free(c);
        }
    expect_stages();
    c = ctx_new();
    expect(ctx_protect(c, compile_tries, &n), "tries", c->err.message);
    expect(ctx_protect(c, compile_ahead, &n), "ahead", c->err.message);
    expect(!ctx_protect(c, compile_needed, &n), "needed", "not refused");
    ctx_free(c);
    expect_refused(&n, compile_serialised, ERR_DEVICE, "serialised");
    expect_refused(&n, compile_wrong, ERR_DEVICE, "refused");
    expect_refused(&n, compile_value_sum, ERR_USER, "no place");
    printf("NVRTC %d.%d, %s\n%d passed, %d failed\n", n.major, n.minor,
           n.path, passes, failures);
    return failures != 0;
}
