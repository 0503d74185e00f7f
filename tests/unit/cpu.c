/* cpu.c -- the CPU backend below the plan: vector routines of every
 * instruction set against libm and plain loops, conversions, and what a run
 * promises: the same bits with any number of threads, NaN that stays in its
 * place, gates of any strength, bytes counted, an interrupt heeded, no more
 * threads than a process may run at once. */
#define _GNU_SOURCE                     /* sched_setaffinity */
#include "../../backend/cpu/isa.h"
#include "support.h"
#include "../../backend/cpu/cpu.h"

#include <sched.h>
#include <stdlib.h>

static int bad;

static void expect(bool ok, const char *what, const char *isa, double got)
{
    if (ok)
        return;
    printf("cpu: %s, %s: %g\n", what, isa, got);
    bad++;
}

/* ---- functions ---- */

/* In units of the last place of `want`; results below the normal numbers may
 * be zero. */
static double ulps(float got, double want)
{
    float w = (float)want;

    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf(w) || isinf(got))
        return w == got ? 0 : INFINITY;
    if (fabs(want) < 1.1754944e-38)
        return fabsf(got) <= 1.1754944e-38f ? 0 : INFINITY;
    int e;
    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1, e - 24);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double rsqrt(double x) { return 1 / sqrt(x); }

static void check_function(const Isa *isa, int op, double (*f)(double),
                           double from, double to, double most)
{
    enum { N = 4096 };
    static float x[N + 8], y[N + 8];
    const ptrdiff_t st[4] = { 0 };
    const float *p[3] = { x, x, x };
    double worst = 0;

    for (int i = 0; i < N; i++)
        x[i] = (float)(from + (to - from) * i / (N - 1));
    isa->elem[op](1, N, y, p, st, 0);
    for (int i = 0; i < N; i++) {
        double d = ulps(y[i], f((double)x[i]));
        /* near a root of sin and cos an absolute error counts */
        if ((op == OP_sin || op == OP_cos) && fabs(f((double)x[i])) < 1e-3)
            d = fabs(y[i] - f((double)x[i])) / 6e-8;
        worst = d > worst ? d : worst;
    }
    expect(worst <= most, op_info[op].name, isa->name, worst);
}

static void check_special(const Isa *isa)
{
    static const struct { int op; float x, y; } row[] = {
        { OP_exp, INFINITY, INFINITY }, { OP_exp, -INFINITY, 0 },
        { OP_exp, NAN, NAN }, { OP_exp, 89, INFINITY }, { OP_exp, 0, 1 },
        { OP_exp, -1e30f, 0 }, { OP_log, 0, -INFINITY },
        { OP_log, -1, NAN }, { OP_log, INFINITY, INFINITY },
        { OP_log, 1, 0 }, { OP_log, NAN, NAN }, { OP_sin, INFINITY, NAN },
        { OP_tanh, INFINITY, 1 }, { OP_tanh, -INFINITY, -1 },
        { OP_sigmoid, -INFINITY, 0 }, { OP_sigmoid, 200, 1 },
        { OP_softplus, -200, 0 }, { OP_softplus, 200, 200 },
        { OP_sign, NAN, NAN }, { OP_sign, -3, -1 }, { OP_abs, -2, 2 }
    };

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const float *p[3] = { &row[i].x, &row[i].x, &row[i].x };
        const ptrdiff_t st[4] = { 0 };
        float y;
        isa->elem[row[i].op](1, 1, &y, p, st, 0);
        expect(y == row[i].y || (isnan(y) && isnan(row[i].y)),
               op_info[row[i].op].name, isa->name, (double)y);
    }
}

/* A number that is none, or infinite, comes out of every function where it does
 * of the float64 step's. */
static void check_classes(const Isa *isa)
{
    static const float x[] = { 0, -0.f, 1, -1, 0.5f, -3, 200, -200, 1e9f, -1e9f,
                               1e30f, -1e30f, INFINITY, -INFINITY, NAN };
    enum { N = sizeof x / sizeof *x };
    const ptrdiff_t st[4] = { 0 };

    for (int op = 0; op < NOPS; op++) {
        int arity = op_info[op].arity;
        if (!isa->elem[op])
            continue;
        for (int i = 0; i < N * N * N; i++) {
            const float a = x[i % N], b = x[i / N % N], c = x[i / N / N];
            const float *p[3] = { &a, &b, &c };
            const float want = (float)elem_value(op, a, b, c);
            float y;
            if ((arity < 2 && i >= N) || (arity < 3 && i >= N * N))
                break;
            isa->elem[op](1, 1, &y, p, st, 0);
            expect(isnan(want) ? isnan(y)
                   : isinf(want) ? y == want : isfinite(y),
                   op_info[op].name, isa->name, (double)y);
        }
    }
}

static void check_functions(const Isa *isa)
{
    check_function(isa, OP_exp, exp, -104, 88.3, 2);
    check_function(isa, OP_exp, exp, -1e-3, 1e-3, 2);
    check_function(isa, OP_log, log, 1e-30, 1e-3, 2);
    check_function(isa, OP_log, log, 0.5, 2, 2);
    check_function(isa, OP_log, log, 1, 1e6, 2);
    check_function(isa, OP_sin, sin, -1e4, 1e4, 3);
    check_function(isa, OP_cos, cos, -1e4, 1e4, 3);
    check_function(isa, OP_tanh, tanh, -10, 10, 3);
    check_function(isa, OP_sigmoid, sigmoid, -87, 30, 4);
    check_function(isa, OP_softplus, softplus, -80, 80, 4);
    check_function(isa, OP_rsqrt, rsqrt, 1e-6, 10, 2);
    check_special(isa);
    check_classes(isa);
}

/* ---- products ---- */

static float at(const float *x, ptrdiff_t rs, ptrdiff_t cs, int r, int c)
{
    return x[r * rs + c * cs];
}

static void check_product(const Isa *isa, uint64_t *seed)
{
    enum { MOST = 70 };
    static float a[MOST * MOST], b[MOST * MOST + TILE_SLACK], c[MOST * MOST];
    static float was[MOST * MOST], scratch[MOST * 80 + TILE_SLACK];
    Gemm g = { .m = 1 + (int)(uniform(seed) * MOST),
               .n = 1 + (int)(uniform(seed) * MOST),
               .k = (int)(uniform(seed) * MOST), .a = a, .b = b, .c = c,
               .mode = (int)(uniform(seed) * 3), .row_rank = 1,
               .col_rank = 1, .pack = scratch, .crs = MOST };
    bool ta = uniform(seed) < 0.5, tb = uniform(seed) < 0.5;
    double worst = 0;

    g.ars = ta ? 1 : MOST;
    g.acs = ta ? MOST : 1;
    g.brs = tb ? 1 : MOST;
    g.bcs = tb ? MOST : 1;
    g.tri = (int)(uniform(seed) * 4);
    for (int i = 0; i < MOST * MOST; i++) {
        a[i] = (float)normal(seed);
        b[i] = (float)normal(seed);
        c[i] = was[i] = (float)normal(seed);
    }
    /* what a triangle spares must not be looked at */
    for (int r = 0; r < g.m; r++)
        for (int k = 0; k < g.k; k++)
            if ((g.tri == LOWER_A && k > r) || (g.tri == UPPER_A && k < r))
                a[r * g.ars + k * g.acs] = 0;
    isa->gemm(&g);
    for (int r = 0; r < g.m; r++)
        for (int n = 0; n < MOST; n++) {
            double sum = 0, want = was[r * MOST + n];
            for (int k = 0; k < g.k; k++)
                sum += (double)at(a, g.ars, g.acs, r, k)
                     * (double)at(b, g.brs, g.bcs, k, n);
            if (n < g.n)
                want = g.mode == GEMM_SET ? sum
                     : g.mode == GEMM_ADD ? want + sum : want - sum;
            double d = fabs(c[r * MOST + n] - want);
            if (g.tri != LOWER_C || n <= r || n >= g.n)
                worst = d > worst ? d : worst;
        }
    expect(worst < 2e-5, "matrix product", isa->name, worst);
}

static void check_inverse(const Isa *isa, uint64_t *seed)
{
    float a[16 * 16], t[16 * 16];
    double worst = 0;
    int n = 1 + (int)(uniform(seed) * 16);

    for (int i = 0; i < 256; i++)
        a[i] = (float)normal(seed) * 0.3f;
    isa->invert(n, t, a, 16, 1);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double x = t[i * 16 + j];
            for (int k = 0; k < i; k++)
                x -= (double)a[i * 16 + k] * (double)t[k * 16 + j];
            worst = fmax(worst, fabs(x - (i == j)));
        }
    expect(worst < 1e-5, "inverse", isa->name, worst);
}

/* ---- conversions ---- */

static void check_type(const Isa *isa, DType d, uint64_t *seed)
{
    enum { N = 1000 };
    static float x[N], back[N];
    static uint16_t h[N], want[N];
    View v = { .data = want, .dtype = d };
    int wrong = 0;

    for (int i = 0; i < N; i++)
        x[i] = (float)(normal(seed) * exp(20 * normal(seed)));
    x[0] = NAN;
    x[1] = INFINITY;
    x[2] = -65519.9f;
    x[3] = 65520;
    x[4] = 5.9604645e-8f;
    x[5] = 2.9e-8f;
    x[6] = -0.0f;
    x[7] = 1 + 0x1p-8f;                 /* ties of bfloat16, of float16 */
    x[8] = 1 + 0x3p-8f;
    x[9] = 1 + 0x1p-11f;
    x[10] = 1 + 0x3p-11f;
    for (int i = 0; i < N; i++)
        view_set(&v, i, x[i]);
    isa->store[d](2, N / 2, x, N / 2, h, N / 2);
    isa->load[d](2, N / 2, back, N / 2, want, N / 2);
    for (int i = 0; i < N; i++) {
        float value = (float)view_get(&v, i);
        wrong += h[i] != want[i] && !isnan(x[i]);
        wrong += back[i] != value && !(isnan(back[i]) && isnan(value));
    }
    expect(!wrong, dtype_name(d), isa->name, wrong);
}

/* ---- runs ---- */

/* Gates per key: a plain sum, one that is read before it is written (whose
 * reads find gates exclusively summed), the delta rule. */
enum { SUM, BEFORE, DELTA };

static Graph *program(Ctx *c, int kind)
{
    Graph *g = graph_new(c, "program", 0);
    Ref q = g->in[graph_input(g, "q", "t k")].node;
    Ref k = g->in[graph_input(g, "k", "t k : unit_norm")].node;
    Ref v = g->in[graph_input(g, "v", "t v")].node;
    Ref d = g->in[graph_input(g, "g", "t k : log_decay")].node;
    Ref b = g->in[graph_input(g, "beta", "t : unit")].node;
    int s = graph_state(g, "S", "k v");
    AxisSet key = AXIS(graph_find_axis(g, "k"));
    Ref S = op2(g, OP_mul, op1(g, OP_exp, d), g->st[s].node);

    g->axis[graph_find_axis(g, "k")].size = 24;
    g->axis[graph_find_axis(g, "v")].size = 20;
    if (kind == DELTA)
        v = op2(g, OP_sub, v, dot(g, k, S, key));
    S = op2(g, OP_add, S, op2(g, OP_mul, op2(g, OP_mul, b, k), v));
    g->st[s].next = S;
    graph_output(g, "y", dot(g, q, kind == BEFORE ? g->st[s].node : S, key));
    return g;
}

typedef struct Trial {
    Graph *step;
    Plan *plan;
    Call *call, *want;
    int threads;
    CpuStats *stats;
} Trial;

static void set_up(Ctx *c, Trial *t, int kind, int chunk)
{
    int32_t size[NAXES];

    t->step = program(c, kind);
    for (int i = 0; i < NAXES; i++)
        size[i] = t->step->axis[i].size;
    t->plan = plan_simple(derive(t->step, size, chunk));
    t->want = make_call(c, t->step, 11);
    make_results(c, t->step, t->want);
    t->call = ctx_alloc(c, sizeof *t->call);
    *t->call = *t->want;
    make_results(c, t->step, t->call);
}

static int64_t y_count(const Trial *t)
{
    const View *y = &t->call->out[0];
    int64_t end = 0;

    for (int64_t s = 0; s < t->call->nseq; s++) {
        const Seq *q = &t->call->seq[s];
        int64_t at = q->b * y->sb + (q->start + q->len) * y->st;
        end = at > end ? at : end;
    }
    return end;
}

/* Gates from none at all to the strongest that float32 can tell from a stop,
 * in one chunk: their sums reach -2000, where float32 is 6e-5 coarse. */
static void strong_gates(Ctx *c, void *ud)
{
    static const double strength[] = { 0, -1e-3, -3, -104 };
    Trial t = { 0 };
    uint64_t seed = 5;

    (void)ud;
    for (int kind = SUM; kind <= DELTA; kind++) {
        set_up(c, &t, kind, 64);
        double *g = t.call->in[3].data;
        const View *y = &t.call->out[0];
        int64_t n = y_count(&t) / y->st * t.call->in[3].st;
        for (int64_t i = 0; i < n; i++)
            g[i] = strength[(int)(uniform(&seed) * 4)];
        reference_run(c, t.step, t.want);
        cpu_run(c, t.plan, t.call, NULL);
        double d = call_distance(t.step, t.want, t.call);
        expect(d < 6e-5, "gates up to -104", "y", d);
    }
}

/* y's bits are the same with one, two and three threads; and a NaN in the
 * last chunk of a sequence touches no earlier one, nor another head. */
static void same_bits(Ctx *c, void *ud)
{
    Trial t = { 0 };

    (void)ud;
    set_up(c, &t, DELTA, 16);
    int64_t n = y_count(&t);
    const View *y = &t.call->out[0];
    double *one = ctx_alloc(c, (size_t)n * sizeof *one);
    for (int threads = 1; threads <= 3; threads++) {
        t.call->threads = threads;
        cpu_run(c, t.plan, t.call, NULL);
        if (threads == 1)
            memcpy(one, y->data, (size_t)n * sizeof *one);
        expect(!memcmp(one, y->data, (size_t)n * sizeof *one), "same bits",
               "threads", threads);
    }
    const Seq *q = &t.call->seq[0];
    int64_t token = q->start + q->len - 1;
    const View *v = &t.call->in[2];
    int64_t wrong = 0;
    ((double *)v->data)[q->b * v->sb + token * v->st] = NAN;
    cpu_run(c, t.plan, t.call, NULL);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (i - q->b * y->sb) / y->st, chunk = (q->len - 1) / 16;
        int64_t head = i % y->st / y->sh;
        bool touched = i >= q->b * y->sb && i < q->b * y->sb + y->sb
                    && row >= q->start + chunk * 16 && row < q->start + q->len
                    && head / (t.call->heads / v->heads) == 0;
        wrong += !touched && memcmp(&one[i], &((double *)y->data)[i], 8);
    }
    expect(!wrong, "NaN stays in its chunk and head", "y", (double)wrong);
}

/* Every argument and result once, in their own types. */
static void bytes_moved(Ctx *c, void *ud)
{
    Trial t = { 0 };
    int64_t chunks, once, tokens = 0, want;

    (void)ud;
    set_up(c, &t, SUM, 32);
    cpu_run(c, t.plan, t.call, &(CpuStats){ &chunks, &once });
    for (int64_t s = 0; s < t.call->nseq; s++)
        tokens += t.call->seq[s].len;
    want = tokens * t.call->heads * (24 + 24 + 20 + 24 + 1 + 20) * 8;
    expect(chunks == want, "bytes moved", "chunks",
           (double)(chunks - want));
    want = t.call->nseq * t.call->heads * 24 * 20 * 8
         * (!!t.call->s0[0].data + !!t.call->s1[0].data);
    expect(once == want, "bytes moved", "once", (double)(once - want));
}

static bool always(void *ud)
{
    ++*(int *)ud;
    return true;
}

static void interrupted(Ctx *c, void *ud)
{
    Trial t = { 0 };

    set_up(c, &t, SUM, 32);
    t.call->interrupted = always;
    t.call->interrupt_ud = ud;
    cpu_run(c, t.plan, t.call, NULL);
}

static void run_check(void (*f)(Ctx *, void *), void *ud, int code)
{
    Ctx *c = ctx_new();
    bool ok = ctx_protect(c, f, ud);

    expect(ok ? !code : c->err.code == code, "a run", c->err.message, code);
    ctx_free(c);
}

/* Told to stay on one core, whatever else there is. */
static void check_cores(void)
{
    cpu_set_t ours, one;

    if (sched_getaffinity(0, sizeof ours, &ours))
        return;
    expect(cores() >= 1 && cores() <= CPU_COUNT(&ours), "cores", "all",
           cores());
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &ours))
            CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
    expect(cores() == 1, "cores", "one", cores());
    sched_setaffinity(0, sizeof ours, &ours);
}

int main(void)
{
    static const char *const name[] = { "avx512", "avx2", "plain" };
    uint64_t seed = 3;
    int calls = 0;

    for (int i = 0; i < 3; i++) {
        const Isa *isa = isa_find(name[i]);
        if (!isa)
            continue;
        check_functions(isa);
        for (int n = 0; n < 200; n++)
            check_product(isa, &seed);
        for (int n = 0; n < 20; n++)
            check_inverse(isa, &seed);
        check_type(isa, BF16, &seed);
        check_type(isa, F16, &seed);
    }
    check_cores();
    run_check(strong_gates, NULL, 0);
    run_check(same_bits, NULL, 0);
    run_check(bytes_moved, NULL, 0);
    run_check(interrupted, &calls, ERR_INTERRUPT);
    expect(calls > 0, "the host is asked", "calls", calls);
    return bad != 0;
}
