/* random_steps.c -- random programs: the float64 step against its chunk form
 * in float64, so that only the derivation is on trial; and against the CPU
 * backend in float32. Seeded: a failing seed can be run alone, or
 * many: random_steps [FIRST [LAST]]. */
#include "../../backend/cpu/cpu.h"
#include "random_program.h"

#include <stdlib.h>

enum { PROGRAMS = 400 };

typedef struct Trial { uint64_t seed; bool chunked; double exact, cpu; } Trial;

static void trial(Ctx *c, void *ud)
{
    static const int chunks[] = { 16, 32, 64, 13 };
    Trial *t = ud;
    Graph *step = random_program(c, t->seed);
    int32_t size[NAXES];

    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    Graph *chunk = derive(step, size, chunks[t->seed % 4]);
    Call *want = make_call(c, step, t->seed + 1), *got;
    got = ctx_alloc(c, sizeof *got);
    make_results(c, step, want);
    reference_run(c, step, want);
    *got = *want;
    t->chunked = chunk != NULL;
    if (chunk) {
        make_results(c, step, got);
        interpret_chunks(c, chunk, got);
        t->exact = call_distance(step, want, got);
    }
    make_results(c, step, got);
    cpu_run(c, plan_simple(chunk ? chunk : graph_sized(step, size)), got,
            NULL);
    t->cpu = call_distance(step, want, got);
}

int main(int argc, char **argv)
{
    int bad = 0, chunked = 0;
    uint64_t first = argc > 1 ? strtoull(argv[1], 0, 10) : 0;
    uint64_t last = argc > 2 ? strtoull(argv[2], 0, 10)
                  : argc > 1 ? first + 1 : PROGRAMS;

    for (uint64_t seed = first; seed < last; seed++) {
        Ctx *c = ctx_new();
        Trial t = { .seed = seed };
        bool ran = ctx_protect(c, trial, &t);
        chunked += t.chunked;
        /* rounding grows with the condition of the erasing terms */
        if (!ran || !(t.exact < 1e-9) || !(t.cpu < 1e-3)) {
            printf("random_steps: seed %d: %s, chunk form %g, cpu %g\n",
                   (int)seed, ran ? "ran" : c->err.message, t.exact, t.cpu);
            bad++;
        }
        ctx_free(c);
    }
    if (argc == 1 && chunked < PROGRAMS / 2) {
        printf("random_steps: only %d programs had a chunk form\n", chunked);
        bad++;
    }
    return bad != 0;
}
