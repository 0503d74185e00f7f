/* scales.c -- what tokens scale a matrix by, joined where sums allow it. */
#include "../../compiler/schedule/schedule.h"

#include <stdio.h>
#include <string.h>

static int passed, failed;

static void expect(bool holds, const char *what, const char *more)
{
    passed += holds;
    failed += !holds;
    if (!holds)
        printf("FAIL %s: %s\n", what, more);
}

static char *read_text(Ctx *c, const char *path)
{
    FILE *f = fopen(path, "r");
    char *s = ctx_alloc(c, 1 << 16);
    if (!f || !fread(s, 1, (1 << 16) - 1, f))
        fail(c, 0, "%s: not found", path);
    fclose(f);
    return s;
}

/* How often the plan's kernels scale a matrix by what tokens have. */
static int count_scaled(const Plan *p)
{
    const Graph *g = p->g;
    int n = 0;
    for (int i = 0; i < p->nkernels; i++)
        for (int j = 0; j < p->kernel[i].nnodes; j++) {
            const Node *x = &g->n[p->kernel[i].node[j]];
            for (int k = 0; k < 2 && x->op == OP_mul; k++) {
                AxisSet of = g->n[x->a[!k]].axes;
                n += g->n[x->a[k]].axes == AXIS(AX_I) && of & (of - 1);
            }
        }
    return n;
}

/* beta v - beta k S is beta (v - k S); what has no such sum stays. */
static void scales_joined(Ctx *c, void *ud)
{
    static const char *const path[] = { "tests/plans/deltanet_forward.plan",
                                        "tests/plans/linear_forward.plan" };
    (void)ud;
    for (int i = 0; i < 2; i++) {
        const Plan *p = plan_parse(c, read_text(c, path[i]));
        const Plan *q = plan_scales_joined(c, p);
        expect(i ? q == p : count_scaled(q) < count_scaled(p),
               "sums of what is scaled", path[i]);
    }
}

/* Inputs times a number, and sums over tokens times one, of its last kernel. */
static void count_numbers(const Plan *p, int *inputs, int *sums)
{
    const Graph *g = p->g;
    *inputs = *sums = 0;
    const Kernel *back = &p->kernel[p->nkernels - 1];
    for (int i = 0; i < back->nnodes; i++) {
        const Node *n = &g->n[back->node[i]];
        for (int k = 0; k < 2 && n->op == OP_mul; k++) {
            const Node *of = &g->n[n->a[!k]];
            bool number = g->n[n->a[k]].op == OP_num;
            *inputs += number && of->op == OP_input;
            *sums += number && of->op == OP_dot && of->over == AXIS(AX_I)
                  && g->n[of->a[1]].op == OP_input;
        }
    }
}

/* Of sums of a plan that solves dy is scaled; what has none stays. */
static void scales_of_adjoints(Ctx *c, void *ud)
{
    int inputs, sums, after;
    (void)ud;
    const Plan *p = plan_parse(c, read_text(c, "tests/plans/"
                                               "deltanet_scaled.plan"));
    count_numbers(p, &inputs, &sums);
    expect(!inputs && sums, "sums are scaled", "deltanet");
    count_numbers(plan_scales_of_adjoints(c, p), &inputs, &after);
    expect(inputs && !after, "dy is scaled instead", "deltanet");
    p = plan_parse(c, read_text(c, "tests/plans/gdn_joint.plan"));
    expect(plan_scales_of_adjoints(c, p) == p, "nothing to scale", "gdn");
}

int main(void)
{
    Ctx *c = ctx_new();
    if (!ctx_protect(c, scales_joined, NULL))
        expect(false, "scales", c->err.message);
    if (!ctx_protect(c, scales_of_adjoints, NULL))
        expect(false, "scales of adjoints", c->err.message);
    ctx_free(c);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
