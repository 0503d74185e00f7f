/* compile.c -- what NVRTC makes of programs for sm_90a: none of ptxas's notes
 * that it serialised wgmma is let pass, of several texts the one that spills
 * least is taken. Needs NVRTC, no GPU.
 */
#include "../../backend/cuda/nvrtc.h"

#include <stdio.h>
#include <string.h>

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
    Cubin *b = nvrtc_compile_all(c, ud, &(Sources){ PROGRAMS, TRIES, text, 0 },
                                 "sm_90a");
    for (int i = 0; i < PROGRAMS; i++)
        if (b[i].taken != want[i] || !b[i].info.spill_stores != (i < 2))
            fail_code(c, ERR_INTERNAL, "program %d: try %d, %d bytes", i,
                      b[i].taken, b[i].info.spill_stores);
}

static void compile_needed(Ctx *c, void *ud)
{
    const char *text[] = { keeping(c, 8), "not C++" };
    nvrtc_compile_all(c, ud, &(Sources){ 2, 1, text, 0 }, "sm_90a");
}

/* What goes along may be wrong, or serialised. */
static void compile_along(Ctx *c, void *ud)
{
    const char *text[] = { keeping(c, 8), "not C++", serialised,
                           keeping(c, 9) };
    Cubin *b = nvrtc_compile_all(c, ud, &(Sources){ 4, 1, text, 3 }, "sm_90a");
    if (!b[0].bytes || b[1].bytes || b[2].bytes || !b[3].bytes)
        fail_code(c, ERR_INTERNAL, "of four that go along 1 and 4 have bytes");
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

int main(void)
{
    Ctx *c = ctx_new();
    Nvrtc n;
    if (!nvrtc_open(c, &n)) {
        printf("skip: %s\n", c->err.message);
        return 0;
    }
    expect(ctx_protect(c, compile_tries, &n), "tries", c->err.message);
    expect(!ctx_protect(c, compile_needed, &n), "needed", "not refused");
    expect(ctx_protect(c, compile_along, &n), "along", c->err.message);
    ctx_free(c);
    expect_refused(&n, compile_serialised, ERR_DEVICE, "serialised");
    expect_refused(&n, compile_wrong, ERR_DEVICE, "refused");
    printf("NVRTC %d.%d, %s\n%d passed, %d failed\n", n.major, n.minor,
           n.path, passes, failures);
    return failures != 0;
}
