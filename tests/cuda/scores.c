/* scores.c -- kernels of sums over pairs (compiler/scores.h), by tiles, compile
 * for sm_90a: no spills, and none of ptxas's notes that it serialised wgmma.
 * Needs NVRTC, no GPU.
 *   scores FILE: of the step in it, as `flin -d T` prints one; and the sources.
 */
#include "../../backend/cuda/nvrtc.h"
#include "../../backend/cuda/pairs.h"
#include "../../compiler/scores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of keys k: 1 + s + s^2 / 2, and s^2 alone over the sum of its weights. */
static const char *const steps[][2] = {
    { "taylor",
      "step taylor\naxis k\naxis v\naxis d\n"
      "input q t k\ninput k t k\ninput v t v\ninput g t : log_decay\n"
      "state S k v\nstate S0 v\nstate S2 k d v\n"
      "%1 = input q\n%2 = input k\n%3 = input v\n%4 = input g\n"
      "%5 = state S\n%6 = state S0\n%7 = state S2\n%8 = exp %4\n"
      "%9 = mul %5 %8\n%10 = mul %2 %3\n%11 = add %9 %10\n"
      "%12 = mul %6 %8\n%13 = add %12 %3\n%14 = mul %7 %8\n"
      "%15 = relabel %2 over k to d\n%16 = mul %2 %15\n%17 = mul %16 %3\n"
      "%18 = add %14 %17\n%19 = dot %1 %11 over k\n"
      "%20 = relabel %1 over k to d\n%21 = mul %1 %20\n"
      "%22 = dot %21 %18 over k d\n%23 = num 0x1p-1\n%24 = mul %22 %23\n"
      "%25 = add %19 %13\n%26 = add %24 %25\n"
      "next S %11\nnext S0 %13\nnext S2 %18\nout y v %26\n" },
    { "squares",
      "step squares\naxis k\naxis v\naxis d\n"
      "input q t k\ninput k t k\ninput v t v\n"
      "state S k d v\nstate Z k d\n"
      "%1 = input q\n%2 = input k\n%3 = input v\n%4 = state S\n"
      "%5 = state Z\n%6 = relabel %2 over k to d\n%7 = mul %2 %6\n"
      "%8 = mul %7 %3\n%9 = add %4 %8\n%10 = add %5 %7\n"
      "%11 = relabel %1 over k to d\n%12 = mul %1 %11\n"
      "%13 = dot %12 %9 over k d\n%14 = dot %12 %10 over k d\n"
      "%15 = div %13 %14\nnext S %9\nnext Z %10\nout y v %15\n" },
};

typedef struct Test { const Nvrtc *nvrtc; const char *text; bool print; } Test;

static void compile_pairs(Ctx *c, const Test *t, const Scores *s, int n)
{
    PairsShape shape = { .key = 128, .value = 128, .type = BF16,
                         .wgmma = true };

    if (s->pairs[n]->axis[s->axis[n][1]].size)
        shape.value = s->pairs[n]->axis[s->axis[n][1]].size;
    char *source = pairs_source(c, mask_copy(c, s->pairs[n]->mask), &shape);
    if (t->print)
        printf("%s\n", source);
    Cubin *b = nvrtc_compile(c, t->nvrtc, source, "sm_90a");
    if (t->print)
        printf("%s\n", b->log);
    if (!b->size || b->info.spill_stores || b->info.spill_loads)
        fail_code(c, ERR_INTERNAL, "sum %d: %d bytes spilled", n + 1,
                  b->info.spill_stores);
}

static void compile_scores(Ctx *c, void *ud)
{
    const Test *t = ud;
    const char *why = NULL;
    Scores *s = scores_find(c, graph_parse(c, t->text), &why);

    if (!s)
        fail(c, 0, "no such form: %s", why);
    for (int n = 0; n < s->nsums; n++)
        compile_pairs(c, t, s, n);
}

static char *file_text(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");

    if (f)
        text[fread(text, 1, sizeof text - 1, f)] = 0;
    if (f)
        fclose(f);
    return text;
}

int main(int argc, char **argv)
{
    int failed = 0, n = argc > 1 ? 1 : (int)(sizeof steps / sizeof *steps);
    Ctx *c = ctx_new();
    Nvrtc nvrtc;

    if (!nvrtc_open(c, &nvrtc)) {
        printf("skip: %s\n", c->err.message);
        return 0;
    }
    ctx_free(c);
    for (int i = 0; i < n; i++) {
        Test t = { &nvrtc, argc > 1 ? file_text(argv[1]) : steps[i][1],
                   argc > 1 };
        c = ctx_new();
        if (!ctx_protect(c, compile_scores, &t)) {
            printf("FAIL %s: %s\n", argc > 1 ? argv[1] : steps[i][0],
                   c->err.message);
            failed++;
        }
        ctx_free(c);
    }
    printf("%d passed, %d failed\n", n - failed, failed);
    return failed != 0;
}
