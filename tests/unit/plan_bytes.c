/* plan_bytes.c -- what the CPU backend counts that it moves is what the plan
 * predicts: joint graphs of the standard library, planned for each machine,
 * elements counted as the float32 that is run. */
#include "../../backend/cpu/cpu.h"
#include "../../compiler/grad.h"
#include "../../compiler/partition.h"
#include "../../lang/lang.h"
#include "support.h"

enum { CHUNK = 16, MOST = 64 };

static const char script[] =
    "local flin = require 'flin'\n"
    "local f = ...\n"
    "for name, v in pairs(flin.stdlib) do f(name, v:graph()) end\n";

typedef struct Trial {
    const char *name, *text;
    const Machine *machine;
    int bad;
} Trial;

static void sizes(const Graph *step, int32_t size[NAXES])
{
    for (int ax = AX_DIM; ax < step->naxes; ax++)
        size[ax] = step->axis[ax].size ? step->axis[ax].size : 16;
    for (Ref r = 1; r < step->len; r++)
        if (step->n[r].op == OP_dup)    /* pairs are half an axis */
            size[lowest(step->n[r].over)] = size[step->n[r].index] / 2;
}

/* Whole chunks: four of the first sequence, five of the last. */
static Call *whole_chunks(Ctx *c, const Graph *g)
{
    Call *call = make_call(c, g, 1);
    Seq *seq = ctx_alloc(c, SEQS * sizeof *seq);

    seq[0].len = 4 * CHUNK;
    seq[2].start = 4 * CHUNK;
    seq[2].len = 5 * CHUNK;
    call->seq = seq;
    make_results(c, g, call);
    for (int i = 0; i < g->nin; i++) {
        View *v = &call->in[i];
        int64_t n = v->sh * HEADS * (g->in[i].timed ? TOKENS : 1);
        View to = { .data = v->data, .dtype = F32 };
        for (int64_t e = 0; e < n; e++)
            view_set(&to, e, ((double *)v->data)[e]);
        v->dtype = F32;
    }
    for (int i = 0; i < g->nout; i++)
        call->out[i].dtype = F32;
    return call;
}

static void compare_bytes(Trial *t, const Plan *p, const int64_t *moved,
                          const char *what)
{
    for (int i = 0; i < p->nkernels; i++) {
        double counted = (double)moved[i] / (9 * HEADS);
        if (fabs(counted - p->kernel[i].bytes) < 0.5)
            continue;
        printf("plan_bytes: %s, %s, %s: counted %.1f, %s %.1f\n", t->name,
               t->machine->name, p->kernel[i].name, counted, what,
               p->kernel[i].bytes);
        t->bad++;
    }
}

static void trial(Ctx *c, void *ud)
{
    Trial *t = ud;
    Graph *step = graph_parse(c, t->text);
    int32_t size[NAXES] = { 0 };
    Machine machine = *t->machine;
    int64_t moved[MOST] = { 0 };

    machine.tile_bytes = 4;
    sizes(step, size);
    Graph *chunk = derive(step, size, CHUNK);
    if (!chunk)
        fail(c, 0, "no chunk form: %s", step->note);
    Plan *p = partition(grad(chunk), &machine, FULL, NULL);
    CpuStats stats = { .chunks = moved };
    cpu_run(c, p, whole_chunks(c, p->g), &stats);
    compare_bytes(t, p, moved, "predicted");
    plan_finish(p);
    compare_bytes(t, p, moved, "found by plan_finish");
}

static int compare(lua_State *L)
{
    int *count = lua_touserdata(L, lua_upvalueindex(1));
    const Machine *const machines[] = { &machine_cpu, machine_usual_gpu() };

    for (int m = 0; m < 2; m++) {
        Trial t = { luaL_checkstring(L, 1), luaL_checkstring(L, 2),
                    machines[m], 0 };
        Ctx *c = ctx_new();
        if (!ctx_protect(c, trial, &t)) {
            printf("plan_bytes: %s: %s\n", t.name, c->err.message);
            t.bad++;
        }
        count[0]++;
        count[1] += t.bad;
        ctx_free(c);
    }
    return 0;
}

int main(void)
{
    lua_State *L = luaL_newstate();
    int count[2] = { 0 };

    luaL_openlibs(L);
    luaL_requiref(L, "flin", luaopen_flin, 0);
    if (luaL_loadstring(L, script))
        return 1;
    lua_pushlightuserdata(L, count);
    lua_pushcclosure(L, compare, 1);
    if (lua_pcall(L, 1, 0, 0)) {
        printf("plan_bytes: %s\n", lua_tostring(L, -1));
        count[1]++;
    }
    if (count[0] < 48) {
        printf("plan_bytes: only %d plans\n", count[0]);
        count[1]++;
    }
    lua_close(L);
    return count[1] != 0;
}
