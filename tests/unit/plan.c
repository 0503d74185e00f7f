/* plan.c -- what follows from which kernel computes which nodes. */
#include "../../compiler/grad.h"
#include "../../compiler/plan.h"

#include <stdio.h>
#include <string.h>

static int bad;

/* A gated sum, S' = a S + c x and y = S', with its reverse mode: D, of S,
 * da = D . S found, dx = c D. Nothing folds: node 7 is %7. */
#define GRAPH \
    "chunk 4 joint\naxis k = 8\ninput a t\ninput x t k\ninput c k\n" \
    "input dy t k\nstate S k\nstate D k reverse\n" \
    "%1 = input a\n%2 = input x\n%3 = input c\n%4 = input dy\n" \
    "%5 = state S\n%6 = state D\n" \
    "%7 = mul %2 %3\n%8 = scan %1 %7 %5\n%9 = last %8\n" \
    "%10 = num 1\n%11 = delay %1 %10 reverse\n" \
    "%12 = scan %11 %4 %6 reverse\n" \
    "%13 = delay %8 %5\n%14 = dot %12 %13 over k\n%15 = mul %12 %3\n" \
    "%16 = mul %1 %12\n%17 = last %16 reverse\n" \
    "next S %9\nnext D %17\nout y k %8\nout da %14\nout dx k %15\n"

enum { MAX = 3 };

/* Per node: its role (Load, Ahead, Serial) or - where the kernel has not got
 * it. A tile of [i k] has 32 elements, of [i] 4, of [k] 8. */
typedef struct Want {
    const char *name, *text;            /* NULL: the simplest plan */
    const char *stored;                 /* per node: x */
    struct {
        KernelKind kind;
        uint32_t states;
        const char *roles;
        double elements, flops;
    } kernel[MAX];
    int n;
} Want;

static const Want wants[] = {
    { "y and S kept for the way back",
      GRAPH "kernel f forward : %7 %8 %9\n"
      "kernel b reverse : %11 %12 %13 %14 %15 %16 %17\n",
      "----x--x---------",
      { { K_FORWARD, 1, "lll-s-ass--------", 4 + 32 + 8 + 32 + 32, 96 },
        { K_REVERSE, 2, "l-ll-s---aasassss", 4 + 32 + 8 + 32 + 4 + 32,
          228 } }, 2 },
    { "y computed again",
      GRAPH "kernel f forward : %7 %8 %9\n"
      "kernel b reverse : %7 %8 %11 %12 %13 %14 %15 %16 %17\n",
      "----x------------",
      { { K_FORWARD, 1, "lll-s-ass--------", 4 + 32 + 8 + 32, 96 },
        { K_REVERSE, 2, "llll-saa-aasassss", 4 + 32 + 32 + 8 + 4 + 32,
          292 } }, 2 },
    { "the simplest: all of it again", NULL,
      "----x------------",
      { { K_FORWARD, 1, "lll-s-ass--------", 4 + 32 + 8 + 32, 96 },
        { K_REVERSE, 2, "llll-saa-aasassss", 4 + 32 + 32 + 8 + 4 + 32,
          292 } }, 2 },
    { "a kernel for tokens loads c in each chunk",
      GRAPH "kernel f forward : %7 %8 %9 %1\n"
      "kernel r reverse : %17 %16 %14 %13 %12 %11 %12\n"
      "kernel t token : %15 %5\n",
      "----x--x---x-----",
      { { K_FORWARD, 1, "lll-s-ass--------", 4 + 32 + 8 + 32 + 32, 96 },
        { K_REVERSE, 2, "l--l-s---aasas-ss", 4 + 32 + 8 + 32 + 32 + 4, 196 },
        { K_TOKEN, 0, "--l-----------a--", 32 + 8 + 32, 32 } }, 3 },
};

static void say(const Plan *p, const Want *w, int at, const char *what)
{
    printf("plan: %s: kernel '%s': %s\n", w->name, p->kernel[at].name, what);
    bad++;
}

static void check_kernel(const Want *w, const Plan *p, int at)
{
    const Kernel *k = &p->kernel[at];
    Ctx *c = p->g->ctx;
    char got[18] = "-----------------";

    if (k->kind != w->kernel[at].kind || k->states != w->kernel[at].states)
        say(p, w, at, ctx_format(c, "kind %d, states %llx", k->kind,
                                 (unsigned long long)k->states));
    for (int i = 0; i < k->nnodes; i++)
        got[k->node[i] - 1] = "las"[k->role[i]];
    if (strcmp(got, w->kernel[at].roles))
        say(p, w, at, ctx_format(c, "roles\n  %s, not\n  %s", got,
                                 w->kernel[at].roles));
    for (int i = 1; i < k->nnodes; i++)
        if (k->node[i] <= k->node[i - 1])
            say(p, w, at, "nodes out of order");
    if (k->bytes != 4 * w->kernel[at].elements)
        say(p, w, at, ctx_format(c, "%g elements moved", k->bytes / 4));
    if (k->flops != w->kernel[at].flops)
        say(p, w, at, ctx_format(c, "%g flops", k->flops));
}

static void check_plan(Ctx *c, void *ud)
{
    const Want *w = ud;
    Plan *p = w->text ? plan_parse(c, w->text)
                      : plan_simple(graph_parse(c, GRAPH));
    char stored[18] = "-----------------";

    if (p->nkernels != w->n)
        say(p, w, 0, "is not alone");
    for (int i = 0; i < p->nkernels && i < w->n; i++)
        check_kernel(w, p, i);
    for (Ref r = 1; r < p->g->len; r++)
        if (p->stored[r])
            stored[r - 1] = 'x';
    if (strcmp(stored, w->stored))
        say(p, w, 0, ctx_format(c, "stored\n  %s, not\n  %s", stored,
                                w->stored));
}

/* A joint graph makes inputs late; its plan reads back all the same. */
static void check_joint(Ctx *c, void *ud)
{
    Graph *step = graph_parse(c, "step s\naxis k = 4\naxis v = 4\n"
                              "input k t k\ninput v t v\ninput g t\n"
                              "state S k v\n%1 = input k\n%2 = input v\n"
                              "%3 = input g\n%4 = state S\n%5 = exp %3\n"
                              "%6 = mul %4 %5\n%7 = mul %1 %2\n"
                              "%8 = add %6 %7\n%9 = dot %1 %8 over k\n"
                              "next S %8\nout y v %9\n");
    Buf one = { .ctx = c }, two = { .ctx = c };

    plan_print(plan_simple(grad(step)), &one);
    plan_print(plan_parse(c, one.s), &two);
    *(bool *)ud = !strcmp(one.s, two.s);
}

/* ---- plans that cannot run ---- */

static const struct { const char *text, *message; } refused[] = {
    { GRAPH "kernel f forward : %7 %8 %9\n"
      "kernel b reverse : %11 %13 %14 %15 %16 %17\n",
      "kernel 'b' reads scan(delay(a, 1), dy, D), which no kernel computes" },
    { GRAPH "kernel b reverse : %11 %12 %13 %14 %15 %16 %17\n"
      "kernel f forward : %7 %8 %9\n",
      "kernel 'b' reads state S, which is first known in kernel 'f'" },
    { GRAPH "kernel f token : %7 %8 %9\n",
      "kernel 'f' reads state S, which no kernel carries" },
    { GRAPH "kernel f forward : %7 %8 %9\n"
      "kernel b reverse : %11 %12 %13 %14 %16 %17\n",
      "no kernel computes result 'dx'" },
    { "step s\ninput x t\nstate A\n%1 = input x\n%2 = exp %1\nnext A %2\n"
      "out y %1\nkernel f forward : %1\n",
      "no forward kernel computes what state 'A' becomes" },
    { "step s\ninput x t\nstate A reverse\n%1 = input x\n%2 = exp %1\n"
      "next A %2\nout y %1\nkernel f forward : %1 %2\n",
      "no reverse kernel computes what state 'A' becomes" },
    { GRAPH, "no forward kernel computes what state 'S' becomes" },
    { GRAPH "kernel f sideways : %7\n",
      "expected token, forward or reverse, found sideways" },
    { GRAPH "kernel f token %7\n", "expected :, found %7" },
    { GRAPH "kernel f token : %18\n", "%18 is not made yet" },
};

static void read_plan(Ctx *c, void *ud)
{
    plan_parse(c, ud);
}

static void check_refused(const char *text, const char *message)
{
    Ctx *c = ctx_new();

    if (ctx_protect(c, read_plan, (void *)text)) {
        printf("plan: finished, but should give '%s'\n", message);
        bad++;
    } else if (strcmp(c->err.message, message)) {
        printf("plan: '%s', not '%s'\n", c->err.message, message);
        bad++;
    }
    ctx_free(c);
}

int main(void)
{
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        Ctx *c = ctx_new();
        if (!ctx_protect(c, check_plan, (void *)&wants[i])) {
            printf("plan: %s: %s\n", wants[i].name, c->err.message);
            bad++;
        }
        ctx_free(c);
    }
    Ctx *c = ctx_new();
    bool same = false;
    if (!ctx_protect(c, check_joint, &same) || !same) {
        printf("plan: of a joint graph: %s\n", c->err.message);
        bad++;
    }
    ctx_free(c);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        check_refused(refused[i].text, refused[i].message);
    return bad != 0;
}
