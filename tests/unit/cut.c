/* cut.c -- a kernel in two, each way there is: what the halves have and carry,
 * and that the plan cut so computes what it did. */
#include "../../backend/cpu/cpu.h"
#include "../../backend/cuda/lower.h"
#include "../../compiler/cost.h"
#include "../../compiler/pipeline.h"
#include "../../compiler/schedule/schedule.h"
#include "support.h"

/* Of two states the second needs the first; decays are of each key. */
static const char step_text[] =
    "step two\naxis k = 8\naxis v = 8\n"
    "input q t k\ninput k t k : unit_norm\ninput v t v\n"
    "input g t k : log_decay\nstate A k v\nstate B k v\n"
    "%1 = input q\n%2 = input k\n%3 = input v\n%4 = input g\n"
    "%5 = state A\n%6 = state B\n%7 = exp %4\n%8 = mul %5 %7\n"
    "%9 = mul %2 %3\n%10 = add %8 %9\n%11 = dot %1 %10 over k\n"
    "%12 = mul %6 %7\n%13 = mul %2 %11\n%14 = add %12 %13\n"
    "%15 = dot %1 %14 over k\n"
    "next A %10\nnext B %14\nout y v %15\n";

static const char *const how_name[NCUTS] = { "result", "factor", "behind",
                                             "states" };

static int bad;

typedef struct Test {
    Ctx *c;
    Graph *g;
    Call *want;                         /* in float64 */
    int cuts[NCUTS];
} Test;

/* A cut, and the plan it is of. */
typedef struct Cut {
    const Plan *p;
    int kernel;
    CutHow how;
    Ref with;
    const int *of;
} Cut;

static void expect(bool ok, const Cut *cut, const char *what)
{
    if (ok)
        return;
    printf("cut: %s, kernel %d of %d, at %u: %s\n", how_name[cut->how],
           cut->kernel, cut->p->nkernels, (unsigned)cut->with, what);
    bad++;
}

static bool has(const Kernel *k, Ref r)
{
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] == r)
            return true;
    return false;
}

/* Sums that decays are differences of, which lose what they are exact for where
 * they are kept. */
static bool is_gate(const Graph *g, Ref r)
{
    for (Ref u = r + 1; u < g->len; u++)
        for (int i = 2; i < 4 && is_decayed_contraction(g->n[u].op); i++)
            if (shown_node(g, g->n[u].a[i]) == r)
                return true;
    return false;
}

static void check_states(const Cut *cut, const Kernel *half)
{
    StateSet all = cut->p->kernel[cut->kernel].states;

    expect((half[0].states | half[1].states) == all
           && !(half[0].states & half[1].states), cut,
           "a state is carried by none, or by both");
    if (cut->how == CUT_FACTOR)
        expect(half[0].kind == K_TOKEN && !half[0].states, cut,
               "the first half walks");
    if (cut->how == CUT_BEHIND)
        expect(half[1].kind == K_TOKEN && !half[1].states, cut,
               "the second half walks");
    if (cut->how == CUT_STATES)
        expect(half[0].states && half[1].states, cut, "a walk of no state");
    if (cut->how == CUT_RESULT)
        expect(half[0].kind == K_TOKEN && half[1].kind == K_TOKEN, cut,
               "a half walks");
}

/* Of the plan that is cut, which other kernels are as they were. */
static void check_halves(const Cut *cut, const Plan *p, const int *of)
{
    const Kernel *whole = &cut->p->kernel[cut->kernel];
    const Kernel *half = &p->kernel[cut->kernel];
    const Graph *g = p->g;

    expect(p->nkernels == cut->p->nkernels + 1, cut, "not one kernel more");
    for (int i = 0; i < p->nkernels; i++)
        expect(of[i] == cut->of[i - (i > cut->kernel)], cut,
               "is of another kernel");
    for (int i = 0; i < 2; i++)
        expect(half[i].nnodes > 0, cut, "a half is empty");
    for (Ref r = 1; r < g->len; r++) {
        bool left = has(whole, r) && plan_keeps(cut->p, cut->kernel, r);
        for (int i = 0; i < g->nout; i++)
            left |= g->out[i].node == r && has(whole, r);
        expect(!left || has(&half[0], r) || has(&half[1], r), cut,
               "a result is lost");
        expect((!has(&half[0], r) && !has(&half[1], r)) || has(whole, r), cut,
               "a node is new");
        expect(cut->with != CUT_ALL || cut->how != CUT_FACTOR
               || cut->p->stored[r] || !p->stored[r] || !is_gate(g, r), cut,
               "a sum of gates is kept");
    }
    check_states(cut, half);
}

static void run(Test *t, const Cut *cut, const Plan *p)
{
    const double limit = 1e-5;          /* of float32, of some 100 sums */
    Call *call = ctx_alloc(t->c, sizeof *call);

    *call = *t->want;
    make_results(t->c, t->g, call);
    cpu_run(t->c, p, call, NULL);
    double off = call_distance(t->g, t->want, call);
    expect(off <= limit, cut, ctx_format(t->c, "is off by %.1e", off));
}

/* Each cut of the plan; deeper: those of the halves, too. */
static void cut_all(Test *t, const Plan *p, const int *of, bool deeper)
{
    for (int k = 0; k < p->nkernels; k++)
        for (CutHow how = 0; how < NCUTS; how++) {
            Cut cut = { p, k, how, 0, of };
            const Plan *to;
            int *halves;
            for (Ref before = 0; (to = plan_cut(p, k, how, &cut.with, of,
                                                &halves));
                 before = cut.with) {
                expect(cut.with > before, &cut, "does not move on");
                t->cuts[how]++;
                check_halves(&cut, to, halves);
                run(t, &cut, to);
                if (deeper)
                    cut_all(t, to, halves, false);
            }
        }
}

static void test(Ctx *c, void *ud)
{
    enum { CHUNK = 16 };
    Test t = { .c = c };
    Graph *step = graph_parse(c, step_text);
    int32_t size[NAXES];

    (void)ud;
    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    t.g = by_chunks(step, size, CHUNK, true, &machine_cpu);
    t.want = make_call(c, t.g, 5);
    make_results(c, t.g, t.want);
    interpret_chunks(c, t.g, t.want);
    const Plan *p = plan_simple(t.g);
    int *of = ctx_alloc(c, (size_t)p->nkernels * sizeof *of);
    for (int i = 0; i < p->nkernels; i++)
        of[i] = i;
    cut_all(&t, p, of, true);
    for (CutHow how = 0; how < NCUTS; how++)
        if (!t.cuts[how]) {
            printf("cut: none by %s\n", how_name[how]);
            bad++;
        }
}

int main(void)
{
    Ctx *c = ctx_new();

    if (!ctx_protect(c, test, NULL)) {
        printf("cut: %s\n", c->err.message);
        bad++;
    }
    ctx_free(c);
    return bad != 0;
}
