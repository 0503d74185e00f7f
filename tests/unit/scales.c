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

int main(void)
{
    Ctx *c = ctx_new();
    if (!ctx_protect(c, scales_joined, NULL))
        expect(false, "scales", c->err.message);
    ctx_free(c);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
