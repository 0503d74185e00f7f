/* emitted.c -- what the text of Hopper's kernels alone can tell, for the
 * standard library at several sizes and types and with each room for registers:
 * a block's roles get by with the registers that it was launched with, as
 * setmaxnreg.inc waits for others', for ever where there are none.
 *   emitted [NAME]
 */
#include "kinds.h"
#include "stdlib.h"

#include <stdlib.h>

typedef struct Test {
    const char *only, *name;
    int k, v;
    Plan *plan;
    CudaOptions o;
    int emitted, passed, failed;
} Test;

/* The number behind `what`, from *at on; *at moves behind that. */
static int number_after(const char **at, const char *what)
{
    const char *p = strstr(*at, what);

    if (!p)
        return -1;
    *at = p + strlen(what);
    return atoi(*at);
}

/* The roles in order: io, ahead, state. */
static void check_registers(Ctx *c, const CudaModule *m, const CudaKernel *k)
{
    const char *at = m->source + k->text;
    int aheads = number_after(&at, "AHEADS = ");
    int groups[3] = { 1, aheads, k->threads / 128 - 1 - aheads };
    int most = (65536 / k->threads & ~7) * (k->threads / 128), sum = 0;

    for (int i = 0; i < 3; i++) {
        int n = number_after(&at, "_registers<");
        sum += n * groups[i];
        if (n % 8 || n < 24 || n > 248 || groups[i] < 1)
            fail_code(c, ERR_INTERNAL, "%d registers for %d warpgroups", n,
                      groups[i]);
    }
    if (sum > most || number_after(&at, "_registers<") >= 0)
        fail_code(c, ERR_INTERNAL, "%d registers for each thread of a role,"
                  " of %d", sum, most);
}

static void emit(Ctx *c, void *ud)
{
    Test *t = ud;
    CudaModule *m = cuda_emit(c, t->plan, &t->o);

    t->emitted++;
    check_registers(c, m, m->kernel);
}

/* What the emitter refuses, other tests know of. */
static void run(Test *t)
{
    Ctx *c = ctx_new();

    if (ctx_protect(c, emit, t) || c->err.code == ERR_USER) {
        t->passed++;
    } else {
        t->failed++;
        printf("FAIL %s %d %d, groups %d, room %d, float32 gates %d: %s\n",
               t->name, t->k, t->v, t->o.groups, t->o.attempt, t->o.wide[0],
               c->err.message);
    }
    ctx_free(c);
}

/* Gates and angles in float32, or all matrices alike. */
static void set_types(Test *t, bool wide)
{
    const Graph *g = t->plan->g;

    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        bool matrix = in->timed && in->rank;
        t->o.wide[i] = wide && matrix && in->domain[0]
                    && strcmp(in->domain, "normal")
                    && strcmp(in->domain, "unit_norm");
        t->o.vector[i] = wide ? F32 : t->o.tile;
    }
}

static void variant(void *ud, const char *name, const char *step)
{
    Test *t = ud;
    Ctx *c = ctx_new();

    if (!t->only || !strcmp(t->only, name)) {
        t->name = name;
        t->plan = plan_of(c, step, FORWARD);
        for (int i = 0; i < 2 * 2 * CUDA_ATTEMPTS; i++) {
            memset(&t->o, 0, sizeof t->o);
            t->o.tile = BF16;
            t->o.groups = 1 + i % 2;
            t->o.attempt = i / 2 % CUDA_ATTEMPTS;
            t->o.split = true;
            set_types(t, i / 2 >= CUDA_ATTEMPTS);
            run(t);
        }
    }
    ctx_free(c);
}

int main(int argc, char **argv)
{
    static const int dims[][2] = { { 128, 128 }, { 64, 64 }, { 16, 16 },
                                   { 96, 40 }, { 64, 256 } };
    Test t = { .only = argc > 1 ? argv[1] : NULL };
    Ctx *c = ctx_new();

    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        t.k = dims[i][0];
        t.v = dims[i][1];
        if (!stdlib_each(c, t.k, t.v, variant, &t)) {
            printf("FAIL %s\n", c->err.message);
            t.failed++;
        }
    }
    printf("%d kernels\n%d passed, %d failed\n", t.emitted, t.passed,
           t.failed + !t.emitted);
    ctx_free(c);
    return t.failed || !t.emitted;
}
