/* schedule.c -- schedules of a plan's walks and kernels over all chunks: they
 * hold, they read back as they are printed, and one that is spoiled is found
 * out.
 */
#include "spoiled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed;
static int beside, met;                 /* schedules, as goes_on_beside and
                                           sums_meet say */

static void expect(bool holds, const char *what, const char *more)
{
    if (holds) {
        passed++;
        return;
    }
    failed++;
    printf("FAIL %s: %s\n", what, more ? more : "");
}

typedef struct Test {
    Plan *plan;
    DType in[MAX_INPUTS], out[MAX_OUTPUTS];
    bool wants[MAX_OUTPUTS], sums[MAX_OUTPUTS];
    DType state[MAX_STATES];
    uint8_t *stored16, *stores;
    bool unpacked, few;
    int arch;
} Test;

static const Target *target(Ctx *c, const Test *t)
{
    return target_of(c, t->arch, 64, BF16, BF16, true);
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

static bool computes(const Kernel *k, Ref r)
{
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] == r)
            return true;
    return false;
}

static KernelWish wish_of(Ctx *c, Test *t, int kernel, bool inverses)
{
    const Graph *g = t->plan->g;
    t->stored16 = ctx_alloc(c, g->len);
    t->stores = ctx_alloc(c, g->len);
    for (Ref r = 1; r < g->len; r++)
        t->stored16[r] = (g->n[r].axes & (g->n[r].axes - 1)) != 0
                      && g->n[r].op != OP_pairsum;
    for (Ref r = 1; r < g->len; r++)
        t->stores[r] = plan_keeps(t->plan, kernel, r);
    for (int i = 0; i < g->nin; i++)
        t->in[i] = g->in[i].rank ? BF16 : F32;
    for (int i = 0; i < g->nout; i++) {
        t->out[i] = g->out[i].rank ? BF16 : F32;
        t->wants[i] = computes(&t->plan->kernel[kernel], g->out[i].node);
    }
    return (KernelWish){
        .p = t->plan, .kernel = kernel, .tile = BF16, .memory = BF16,
        .out = t->out, .wants_out = t->wants, .in = t->in, .sum_out = t->sums,
        .stored16 = t->stored16, .s0 = t->state, .s1 = t->state,
        .inverses = inverses,
        .stores = t->stores, .few = t->few };
}

static Schedule *schedule_of(Ctx *c, Test *t, int kernel, bool inverses)
{
    KernelWish w = wish_of(c, t, kernel, inverses);
    return schedule_kernel(c, &w, t->unpacked ? unpacked_target(c)
                                              : target(c, t));
}

/* ---- spoiled ones ---- */

static void check_spoiled(Ctx *c, const Test *t, const char *text,
                          const Spoiled *x)
{
    for (; x->name; x++) {
        Schedule *s = schedule_parse(c, t->plan, target(c, t), text);
        x->spoil(s);
        const char *why = schedule_check(s);
        expect(why && strstr(why, x->found), x->name,
               why ? why : "not found out");
    }
}

/* ---- text that is none ---- */

static const char *const strange[] = {
    "", "schedule 9 sm_90a", "schedule 3 sm_80", "buffer 1 load",
    "schedule 3 sm_90a groups 3", "buffer 0 nobody bytes 8",
    "value 0 %1 heap", "value 0 %9999 tile", "jump matrix",
    "sync matrix in 4", "load load out 0", "product matrix transposed 2 0",
};

/* A value is needed until the last of those that lie in its place is read. */
static bool lives_long_enough(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++) {
            int v = s->inst[i].in[j], first, last;
            int root = s->value[v].alias == NOTHING ? v : s->value[v].alias;
            live_interval(s, root, &first, &last);
            if (i > last)
                return false;
        }
    return true;
}

typedef struct Text { const Plan *p; const char *s; } Text;

static void read_strange(Ctx *c, void *ud)
{
    const Text *t = ud;
    schedule_parse(c, t->p, hopper(c), t->s);
}

/* A plan, what may be spoiled in the schedule of its last kernel, or of one so
 * many before it, and how many kernels have none, from the first
 * on. inverses: its last kernel finds what a solve takes. alone: it has one. */
typedef struct Case {
    const char *plan;
    const Spoiled *spoiled;
    int others, before;
    bool inverses, parts;               /* parts: some program is too long */
    bool alone, unpacked, few;          /* few: heads, which blocks share */
    int arch;                           /* 0: 90 */
} Case;

/* Programs in parts, in kernels that would be too long without. */
static int count_parts(Ctx *c, Test *t)
{
    int n = 0;
    for (int i = 0; i < t->plan->nkernels; i++) {
        Schedule *s = schedule_of(c, t, i, true);
        int before = n, with = s->why ? 0 : schedule_length(s);
        for (int j = 0; j < s->ninsts && !s->why; j++) {
            n += s->inst[j].parts > 0;
            s->inst[j].parts = 0;
        }
        expect(n == before || (schedule_length(s) > MOST_LENGTH
                               && schedule_length(s) > with),
               "in parts, but not too long", NULL);
    }
    return n;
}

/* The last instruction that reads what lies in the buffer before the load. */
static int read_last(const Schedule *s, const KInst *load)
{
    const KValue *to = &s->value[load->out[0]];
    int use = (to->use ? to->use : s->buffer[to->buffer].uses) - 1, last = 0;
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++) {
            const KValue *v = &s->value[s->inst[i].in[j]];
            if (v->buffer == to->buffer && v->use == use)
                last = i;
        }
    return last;
}

/* No load waits behind one for a place that is free later: in the item before,
 * or, of the next that goes through a place, in this one. */
static bool loads_in_order(const Schedule *s)
{
    const KInst *before = NULL;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->op != K_LOAD)
            continue;
        const KValue *v = &s->value[k->out[0]];
        const KValue *u = before ? &s->value[before->out[0]] : v;
        bool same = !v->use == !u->use
                 && s->buffer[v->buffer].depth == s->buffer[u->buffer].depth;
        if (before && ((u->use && !v->use)
                       || (same && read_last(s, before) > read_last(s, k))))
            return false;
        before = k;
    }
    return true;
}

/* Each exponential by one program, in a kernel without products. */
static bool exponentials_once(const Schedule *s)
{
    for (Ref r = 1; r < s->g->len; r++) {
        int n = 0;
        for (int i = 0; i < s->ninsts; i++)
            for (int j = 0; j < s->inst[i].nnodes; j++)
                n += s->inst[i].op == K_MAP && s->inst[i].node[j] == r
                  && (s->g->n[r].op == OP_exp || s->g->n[r].op == OP_log);
        if (n > 1)
            return false;
    }
    return true;
}

/* Of the plan's kernels without products: those of four warpgroups. */
static int count_wide(Ctx *c, Test *t)
{
    int n = 0;
    for (int i = 0; i < t->plan->nkernels; i++) {
        Schedule *s = schedule_of(c, t, i, true);
        if (s->why || find(s, K_PRODUCT, 0) || find(s, K_DECAYED, 0))
            continue;
        n += s->groups == MOST_WARPGROUPS && s->resident == 1;
        expect(exponentials_once(s), "exponentials of two programs", NULL);
    }
    return n;
}

/* Whether, without a row axis, a program runs while products that it does not
 * wait for are under way. */
static bool goes_on_beside(const Schedule *s)
{
    bool any = false;
    for (int i = 0; i + 1 < s->ninsts; i++)
        any |= !s->row_axis && s->inst[i].op == K_SETTLE
            && s->inst[i].index > 0 && s->inst[i + 1].op == K_MAP;
    return any;
}

/* Whether two sums under decays follow one another, one over tokens before a
 * row and one over those behind it. */
static bool sums_meet(const Schedule *s)
{
    bool any = false;
    for (int i = 0; i + 1 < s->ninsts; i++) {
        const KInst *a = &s->inst[i], *b = &s->inst[i + 1];
        any |= a->op == K_DECAYED && b->op == K_DECAYED && a->col != AX_J
            && b->col != AX_J;
    }
    return any;
}

/* By warps that all do the same, any kernel has a schedule. */
static void expect_plain(Ctx *c, Test *t)
{
    for (int i = 0; i < t->plan->nkernels; i++) {
        KernelWish w = wish_of(c, t, i, false);
        const char *why = schedule_plain(c, &w, target(c, t))->why;
        expect(!why, t->plan->kernel[i].name, why);
    }
}

/* An output that is an input, beside values and alone. */
static void as_it_is(Ctx *c, void *ud)
{
    Test t = { .plan = plan_parse(c, read_text(c, "tests/plans/as_it_is.plan")),
               .arch = 90 };
    (void)ud;
    expect_plain(c, &t);
}

static void run(Ctx *c, void *ud)
{
    const Case *k = ud;
    Test t = { .plan = plan_parse(c, read_text(c,
                   ctx_format(c, "tests/plans/%s.plan", k->plan))),
               .unpacked = k->unpacked, .few = k->few,
               .arch = k->arch ? k->arch : 90 };
    int scheduled = 0;
    expect_plain(c, &t);
    for (int i = k->others; i < t.plan->nkernels; i++) {
        Schedule *s = schedule_of(c, &t, i, true);
        expect(!s->why, t.plan->kernel[i].name, s->why);
        if (s->why)
            continue;
        expect(lives_long_enough(s), t.plan->kernel[i].name, "lives");
        expect(s->kind != K_TOKEN || loads_in_order(s),
               t.plan->kernel[i].name, "loads");
        Buf a = { .ctx = c }, b = { .ctx = c };
        schedule_print(s, &a);
        Schedule *again = schedule_parse(c, t.plan, target(c, &t), a.s);
        schedule_print(again, &b);
        expect(!strcmp(a.s, b.s), "read back", b.s);
        expect(!schedule_check(again), "read back", schedule_check(again));
        scheduled++;
        beside += goes_on_beside(s);
        met += sums_meet(s);
        expect(s->splits || !k->few, t.plan->kernel[i].name,
               "no lean iterations");
        if (i == t.plan->nkernels - 1 - k->before)
            check_spoiled(c, &t, a.s, k->spoiled);
    }
    expect(!k->parts || count_parts(c, &t), "programs in parts", NULL);
    expect(count_wide(c, &t) > 0 || k->spoiled != vectors,
           "four warpgroups", NULL);
    expect(scheduled >= (k->alone ? 1 : 4), "walks, and two over all chunks",
           NULL);
    const Schedule *as_itself = schedule_of(c, &t, t.plan->nkernels - 1, false);
    expect(k->inverses == (as_itself->why
                           && strstr(as_itself->why, "to be inverted")),
           "scores that are kept as themselves", as_itself->why);
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        Text x = { t.plan, strange[i] };
        expect(!ctx_protect(c, read_strange, &x), "strange text", strange[i]);
    }
}

/* May the gradient lie over the input? */
static bool gradient_of_over(const Schedule *s, const char *name,
                             const char *of)
{
    int output = 0, input = 0;
    while (strcmp(s->g->out[output].name, ctx_format(s->c, "d_%s", name)))
        output++;
    while (strcmp(s->g->in[input].name, of))
        input++;
    return schedule_lies_over(s, output, input);
}

static bool gradient_over(const Schedule *s, const char *name)
{
    return gradient_of_over(s, name, name);
}

static void none_waits(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        s->inst[i].wait_full = 0;
}
static void in_slices(Schedule *s) { s->slices = 2; }
static void in_pairs(Schedule *s) { s->paired = true; }
static void read_in_place(Schedule *s)
{
    for (int i = 0; i < s->nvalues; i++)
        if (s->g->n[s->value[i].node].op == OP_input)
            s->value[i].layout = LAY_GLOBAL;
}

static void lies_over(Ctx *c, void *ud)
{
    void (*const spoil[])(Schedule *) = { none_waits, in_slices, in_pairs,
                                          read_in_place };
    Test t = { .plan = plan_parse(c, read_text(c,
                                               "tests/plans/gla_chunks.plan")),
               .arch = 90 };
    int last = t.plan->nkernels - 1;
    Schedule *s = schedule_of(c, &t, last, true);
    (void)ud;
    expect(gradient_over(s, "q") && gradient_over(s, "k")
           && gradient_over(s, "v"), "gradients over inputs", NULL);
    expect(gradient_of_over(s, "v", "dy"), "a gradient over dy", NULL);
    expect(!gradient_over(s, "g"), "over what is read where it lies", NULL);
    for (size_t i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        s = schedule_of(c, &t, last, true);
        spoil[i](s);
        expect(!gradient_over(s, "q"), "over an input, spoiled", NULL);
        expect(!gradient_of_over(s, "v", "dy"), "over dy, spoiled", NULL);
    }
    t.plan = plan_parse(c, read_text(c, "tests/plans/trapezoidal_chunks.plan"));
    s = schedule_of(c, &t, t.plan->nkernels - 2, true);
    bool delayed = false;
    for (int i = 0; i < s->nvalues; i++)
        delayed |= tokens_delayed(s, shown_node(s->g, s->value[i].node)) > 0;
    expect(delayed && !gradient_over(s, "v"), "of tokens before", NULL);
}

/* Of single tokens. */
static void drop_barrier(Schedule *s) { drop(s, find(s, K_SYNC, 0)); }
static void drop_map(Schedule *s) { drop(s, find(s, K_MAP, 0)); }
static void upon_another(Schedule *s)
{
    s->value[find(s, K_PARTIAL, 1)->out[0]].at
        = s->value[find(s, K_PARTIAL, 0)->out[0]].at;
}

static void tokens(Ctx *c, void *ud)
{
    void (*const spoil[])(Schedule *) = { drop_barrier, drop_map,
                                          upon_another };
    Test t = { .plan = plan_parse(c, read_text(c, "tests/plans/step.plan")),
               .arch = 90 };
    Buf a = { .ctx = c }, b = { .ctx = c };
    Schedule *s = schedule_of(c, &t, 0, false);
    (void)ud;
    expect(!s->why && s->tokens.threads, "single tokens", s->why);
    expect(s->tokens.regtile && find(s, K_PARTIAL, 1) && !find(s, K_PARTIAL, 2),
           "a state in registers, two sums over it", NULL);
    expect(!find(s, K_CARRY, 0), "what becomes of it lies where it was", NULL);
    schedule_print(s, &a);
    schedule_print(schedule_parse(c, t.plan, hopper(c), a.s), &b);
    expect(!strcmp(a.s, b.s), "read back", b.s);
    for (size_t i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        s = schedule_of(c, &t, 0, false);
        spoil[i](s);
        expect(schedule_check_tokens(s), "single tokens, spoiled", NULL);
    }
}

/* Sums 0 and 1 are found in memory one after the other, and then added up; the
 * second is found behind the last that reads the first, where memory is short
 * and nothing but that adds it up. */
static void late(Ctx *c, void *ud)
{
    static const struct {
        bool share, copied;
        KOp order[4];
        int of[4];
    } cases[] = {
        { true, false, { K_MAP, K_SCAN, K_MAP, K_SCAN }, { 0, 0, 1, 1 } },
        { false, false, { K_MAP, K_MAP, K_SCAN, K_SCAN }, { 0, 1, 0, 1 } },
        { true, true, { K_MAP, K_MAP, K_SCAN, K_VECTOR }, { 0, 1, 0, 1 } },
    };
    (void)ud;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Schedule *s = ctx_alloc(c, sizeof *s);
        s->share = cases[i].share;
        s->value = ctx_alloc(c, 5 * sizeof *s->value);
        s->inst = ctx_alloc(c, 4 * sizeof *s->inst);
        s->nvalues = 5;
        s->ninsts = 4;
        for (int v = 0; v < 5; v++) {
            s->value[v].layout = v < 2 ? LAY_SUMS : LAY_GLOBAL;
            s->value[v].alias = NOTHING;
        }
        for (int16_t k = 0; k < 4; k++) {
            bool adds = k > 1;
            s->inst[k] = (KInst){ .op = !adds ? K_MAP : k == 3
                                  && cases[i].copied ? K_VECTOR : K_SCAN,
                                  .role = KR_MATRIX, .nin = 1, .nout = 1,
                                  .in = { adds ? k - 2 : 4 },
                                  .out = { adds ? 3 : k } };
        }
        schedule_late(s);
        for (int k = 0; k < 4; k++) {
            const KInst *x = &s->inst[k];
            int of = x->op == K_MAP ? x->out[0] : x->in[0];
            expect(x->op == cases[i].order[k] && of == cases[i].of[k],
                   "sums that are found late", NULL);
        }
    }
}

int main(void)
{
    Case cases[] = {
        { .plan = "simple_gla_chunks", .spoiled = spoiled },
        { .plan = "simple_gla_chunks", .spoiled = results, .before = 1 },
        { .plan = "kda_chunks", .spoiled = rings, .inverses = true },
        { .plan = "deltanet_chunks", .spoiled = solves },
        { .plan = "gla_chunks", .spoiled = decays },
        { .plan = "gla_padded", .spoiled = padded },
        { .plan = "precond_gdn_chunks", .spoiled = vectors, .others = 1,
          .before = 1 },
        { .plan = "trapezoidal_chunks", .spoiled = delays, .others = 1,
          .before = 1 },
        { .plan = "retnet_chunks", .spoiled = angles, .others = 1,
          .before = 2 },
        { .plan = "retnet_chunks", .spoiled = across, .others = 1,
          .before = 1 },
        { .plan = "precond_mamba3_chunks", .spoiled = shifts, .others = 1,
          .before = 1, .parts = true },
        { .plan = "rwkv6_chunks", .spoiled = lanes },
        { .plan = "rwkv7_chunks", .spoiled = rings },
        { .plan = "momentum_chunks", .spoiled = coupled },
        { .plan = "deltanet_forward", .spoiled = aheads, .alone = true,
          .unpacked = true },
        { .plan = "linear_forward", .spoiled = in_registers, .alone = true },
        { .plan = "lightning_forward", .spoiled = over, .alone = true },
        { .plan = "lightning_forward", .spoiled = pairs, .alone = true,
          .few = true },
        { .plan = "retnet_forward", .spoiled = handed, .alone = true },
        { .plan = "deltanet_chunks", .spoiled = tensor, .arch = 100 },
        { .plan = "simple_gla_chunks", .spoiled = tensor_walks, .before = 3,
          .arch = 100 },
        { .plan = "largest_forward", .spoiled = leans, .alone = true,
          .few = true },
        { .plan = "deltanet_forward", .spoiled = packs, .alone = true,
          .few = true },
    };
    Ctx *c = ctx_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!ctx_protect(c, run, &cases[i]))
            expect(false, cases[i].plan, c->err.message);
    if (!ctx_protect(c, tokens, NULL))
        expect(false, "single tokens", c->err.message);
    if (!ctx_protect(c, lies_over, NULL))
        expect(false, "over an input", c->err.message);
    if (!ctx_protect(c, as_it_is, NULL))
        expect(false, "what is stored as it is", c->err.message);
    if (!ctx_protect(c, late, NULL))
        expect(false, "sums that are found late", c->err.message);
    ctx_free(c);
    expect(beside > 0, "all products are waited for", NULL);
    expect(met > 0, "no sums of both directions meet", NULL);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
