/* grad.c -- reverse mode, of the step and of its chunk form, against central
 * differences of the float64 step: every row of the op table, variants made by
 * hand, random programs. */
#include "../../compiler/grad.h"
#include "../../compiler/pipeline.h"
#include "../../compiler/partition.h"
#include "random_program.h"

enum { PROGRAMS = 1000 };

static int bad;

/* erases what the key holds, under one decay for all of it */
#define ERASING \
    "step erasing\naxis k = 4\naxis v = 3\n" \
    "input q t k\ninput k t k : unit_norm\ninput v t v\n" \
    "input g t : log_decay\ninput beta t : unit\nstate S k v\n" \
    "%1 = input q\n%2 = input k\n%3 = input v\n%4 = input g\n" \
    "%5 = input beta\n%6 = state S\n%7 = exp %4\n%8 = mul %6 %7\n" \
    "%9 = dot %2 %8 over k\n%10 = sub %3 %9\n%11 = mul %5 %2\n" \
    "%12 = mul %11 %10\n%13 = add %8 %12\n%14 = dot %1 %13 over k\n" \
    "next S %13\nout y v %14\n"

static const char *const steps[] = {
    ERASING,

    "step gated_delta\naxis k = 5\naxis v = 3\n"
    "input q t k\ninput k t k : unit_norm\ninput v t v\n"
    "input g t k : log_decay\ninput beta t : unit\ninput u k\n"
    "state S k v\n"
    "%1 = input q\n%2 = input k\n%3 = input v\n%4 = input g\n"
    "%5 = input beta\n%6 = input u\n%7 = state S\n"
    "%8 = exp %4\n%9 = mul %7 %8\n%10 = dot %2 %9 over k\n"
    "%11 = sub %3 %10\n%12 = mul %5 %2\n%13 = mul %12 %11\n"
    "%14 = add %9 %13\n%15 = mul %1 %6\n%16 = sigmoid %15\n"
    "%17 = dot %16 %14 over k\n"
    "next S %14\nout y v %17\n",

    /* max stabiliser, normaliser, a clamp: the gates of an mLSTM */
    "step stabilised\naxis k = 4\naxis v = 3\n"
    "input q t k\ninput k t k\ninput v t v\ninput f t : log_decay\n"
    "input i t\nstate C k v\nstate m\nstate n k\n"
    "%1 = input q\n%2 = input k\n%3 = input v\n%4 = input f\n"
    "%5 = input i\n%6 = state C\n%7 = state m\n%8 = state n\n"
    "%9 = add %4 %7\n%10 = max %9 %5\n%11 = sub %9 %10\n%12 = exp %11\n"
    "%13 = sub %5 %10\n%14 = exp %13\n%15 = mul %2 %14\n"
    "%16 = mul %12 %6\n%17 = mul %15 %3\n%18 = add %16 %17\n"
    "%19 = mul %12 %8\n%20 = add %19 %15\n"
    "%21 = dot %1 %18 over k\n%22 = dot %1 %20 over k\n%23 = abs %22\n"
    "%24 = neg %10\n%25 = exp %24\n%26 = max %23 %25\n%27 = div %21 %26\n"
    "next C %18\nnext m %10\nnext n %20\nout y v %27\n",

    /* keys turned by a running angle, and the token before */
    "step turning\naxis k = 4\naxis v = 3\naxis p = 2\n"
    "input q t k\ninput k t k\ninput v t v\ninput w t p\ninput g t\n"
    "state S k v\nstate phi p\nstate prev_v v\n"
    "%1 = input q\n%2 = input k\n%3 = input v\n%4 = input w\n"
    "%5 = input g\n%6 = state S\n%7 = state phi\n%8 = state prev_v\n"
    "%9 = add %7 %4\n%10 = dup %9 over p to k\n%11 = cos %10\n"
    "%12 = sin %10\n%13 = rot90 %2 over k\n%14 = mul %2 %11\n"
    "%15 = mul %13 %12\n%16 = add %14 %15\n%17 = sub %3 %8\n"
    "%18 = mul %16 %17\n%19 = softplus %5\n%20 = neg %19\n"
    "%21 = exp %20\n%22 = mul %6 %21\n%23 = add %22 %18\n"
    "%24 = dot %1 %23 over k\n%25 = select %3 over v index 1\n"
    "%26 = mul %24 %25\n"
    "next S %23\nnext phi %9\nnext prev_v %3\nout y v %26\n",
};

/* The step's call within the joint graph's: the same arguments, results of
 * its own, and what weighs each of them in the loss. */
typedef struct Loss {
    const Graph *step;
    Call call;
    const View *dy, *ds;                /* ds: per state */
} Loss;

static double weigh(const View *x, const View *w, int64_t rows)
{
    const double *a = x->data, *b = w->data;
    double s = 0;

    for (int64_t i = 0; i < x->sh * HEADS * rows; i++)
        s += a[i] * b[i];
    return s;
}

static double loss(Ctx *c, const Loss *l)
{
    reference_run(c, l->step, &l->call);
    double s = weigh(&l->call.out[0], l->dy, TOKENS);
    for (int i = 0; i < l->step->nst; i++)
        s += weigh(&l->call.s1[i], &l->ds[i], SEQS);
    return s;
}

/* Some elements of x moved a little, against the derivative d. */
static void differ(Ctx *c, const Loss *l, const char *name, const View *x,
                   const View *d, int64_t rows, uint64_t *seed)
{
    const double h = 1e-5;
    double *p = x->data, *q = d->data;

    for (int i = 0; i < 4; i++) {
        int64_t at = (int64_t)(uniform(seed) * (double)(x->sh * HEADS * rows));
        double was = p[at], up, down;
        p[at] = was + h;
        up = loss(c, l);
        p[at] = was - h;
        down = loss(c, l);
        p[at] = was;
        double want = (up - down) / (2 * h);
        /* differences of float64 are good to about 1e-16 L / h */
        if (!(fabs(q[at] - want) <= 2e-6 * (1 + fabs(want)))) {
            printf("grad: %s: %s[%d] is %.9g, by differences %.9g\n",
                   l->step->name, name, (int)at, q[at], want);
            bad++;
        }
    }
}

static int find_state(const Graph *g, const char *name)
{
    for (int i = 0; i < g->nst; i++)
        if (!strcmp(g->st[i].name, name))
            return i;
    return -1;
}

static int find_output(const Graph *g, const char *name)
{
    for (int i = 0; i < g->nout; i++)
        if (!strcmp(g->out[i].name, name))
            return i;
    return -1;
}

/* A per-head constant's gradient comes a sequence at a time, from zero. */
static void add_sequences(const View *d)
{
    double *p = d->data;

    for (int64_t i = 0; i < d->sh * HEADS; i++)
        for (int s = 1; s < SEQS; s++)
            p[i] += p[i + s * d->sh * HEADS];
}

static void check_gradients(Ctx *c, const Graph *step, const Graph *joint,
                            uint64_t seed)
{
    Call *call = make_call(c, joint, seed);
    Loss l = { .step = step };
    View *ds = ctx_alloc(c, MAX_STATES * sizeof *ds);
    char name[64];

    make_results(c, joint, call);
    for (int i = 0; i < step->nin; i++)
        if (!step->in[i].timed) {
            snprintf(name, sizeof name, "d_%s", step->in[i].name);
            call->s0[find_state(joint, name)].data = NULL;
        }
    if (joint->chunk)
        interpret_chunks(c, joint, call);
    else
        reference_run(c, joint, call);
    l.call = *call;
    make_results(c, step, &l.call);
    l.dy = &call->in[step->nin];
    l.ds = ds;
    for (int i = 0; i < step->nst; i++) {
        snprintf(name, sizeof name, "d_%s", step->st[i].name);
        ds[i] = call->s0[find_state(joint, name)];
    }
    for (int i = 0; i < step->nst; i++) {
        snprintf(name, sizeof name, "d_%s", step->st[i].name);
        differ(c, &l, name, &call->s0[i],
               &call->s1[find_state(joint, name)], SEQS, &seed);
    }
    for (int i = 0; i < step->nin; i++) {
        bool timed = step->in[i].timed;
        snprintf(name, sizeof name, "d_%s", step->in[i].name);
        View *d = timed ? &call->out[find_output(joint, name)]
                        : &call->s1[find_state(joint, name)];
        if (!timed)
            add_sequences(d);
        differ(c, &l, name, &call->in[i], d, timed ? TOKENS : 1, &seed);
    }
}

static void check_step(Ctx *c, void *ud)
{
    Graph *step = graph_parse(c, *(const char *const *)ud), *chunk;
    int32_t size[NAXES];

    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    check_gradients(c, step, grad(step), 1);
    chunk = derive_joint(step, size, 16);
    if (!chunk)
        fail(c, 0, "not derived: %s", step->note);
    check_gradients(c, step, grad(chunk), 2);
}

/* ---- every element-wise row ---- */

/* y = op(a, b, c) of the token. */
static void check_op(Ctx *c, void *ud)
{
    int op = *(int *)ud;
    const char *domain = op == OP_log || op == OP_sqrt || op == OP_rsqrt
                      || op == OP_div ? "t k : positive" : "t k";
    Graph *g = graph_new(c, op_info[op].name, 0);
    Ref a[3];

    g->axis[graph_axis(g, "k")].size = 4;
    for (int i = 0; i < 3; i++)
        a[i] = g->in[graph_input(g, (const char *[]){ "a", "b", "c" }[i],
                                 domain)].node;
    int arity = op_info[op].arity;
    graph_output(g, "y", arity == 1 ? op1(g, op, a[0])
                       : arity == 2 ? op2(g, op, a[0], a[1])
                                    : op3(g, op, a[0], a[1], a[2]));
    check_gradients(c, g, grad(g), 3);
}

/* But of what is detached, whose gradient is none (tests/lua/backward.lua). */
static void check_ops(void)
{
    for (int op = 0; op < NOPS; op++) {
        Ctx *c = ctx_new();
        if (op_info[op].traits & ELEMENTWISE && op != OP_detach
            && !ctx_protect(c, check_op, &op)) {
            printf("grad: %s: %s\n", op_info[op].name, c->err.message);
            bad++;
        }
        ctx_free(c);
    }
}

/* ---- random programs ---- */

/* Results of the joint graph of the step, and of that of its chunk form. */
static Call *joint_results(Ctx *c, const Graph *joint, const Call *in)
{
    Call *call = ctx_alloc(c, sizeof *call);

    *call = *in;
    make_results(c, joint, call);
    if (joint->chunk)
        interpret_chunks(c, joint, call);
    else
        reference_run(c, joint, call);
    return call;
}

/* Moves all arguments along a direction; returns the derivative that the
 * gradient gives, and moves nothing when h is 0. */
static double move(const Graph *step, const Graph *joint, const Call *call,
                   double h, uint64_t seed)
{
    double slope = 0;
    char name[64];

    for (int i = 0; i < step->nin; i++) {
        bool timed = step->in[i].timed;
        int64_t rows = timed ? TOKENS : 1, n = call->in[i].sh * HEADS * rows;
        snprintf(name, sizeof name, "d_%s", step->in[i].name);
        const View *d = timed ? &call->out[find_output(joint, name)]
                              : &call->s1[find_state(joint, name)];
        double *x = call->in[i].data, *dx = d->data;
        for (int64_t e = 0; e < n; e++) {
            double way = normal(&seed);
            x[e] += h * way;
            slope += way * dx[e];
        }
    }
    return slope;
}

static void check_program(Ctx *c, void *ud)
{
    uint64_t seed = *(uint64_t *)ud;
    const double h = 1e-6;
    Graph *step = random_program(c, seed), *joint = grad(step), *chunk;
    Call *in = make_call(c, joint, seed + 9), *got;
    Loss l = { .step = step };
    View ds[MAX_STATES] = { { 0 } };
    int32_t size[NAXES];
    char name[64];

    for (int i = 0; i < step->nin; i++)
        if (!step->in[i].timed) {
            snprintf(name, sizeof name, "d_%s", step->in[i].name);
            in->s0[find_state(joint, name)].data = NULL;
        }
    got = joint_results(c, joint, in);
    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    chunk = seed % 4 ? NULL : derive_joint(step, size, 16);
    if (chunk) {
        double e = call_distance(joint, got,
                                 joint_results(c, grad(chunk), in));
        if (!(e < 1e-9))
            fail(c, 0, "the chunk form's gradient is off by %g", e);
    }
    for (int i = 0; i < step->nin; i++)
        if (!step->in[i].timed) {
            snprintf(name, sizeof name, "d_%s", step->in[i].name);
            add_sequences(&got->s1[find_state(joint, name)]);
        }
    l.call = *got;
    make_results(c, step, &l.call);
    l.dy = &got->in[step->nin];
    for (int i = 0; i < step->nst; i++) {
        snprintf(name, sizeof name, "d_%s", step->st[i].name);
        ds[i] = got->s0[find_state(joint, name)];
    }
    l.ds = ds;
    double want = move(step, joint, got, h, seed), up = loss(c, &l), down;
    move(step, joint, got, -2 * h, seed);
    down = loss(c, &l);
    double slope = (up - down) / (2 * h);
    /* a sum of thousands of terms: differences are good to 1e-6 of it */
    if (!(fabs(slope - want) <= 1e-5 * (10 + fabs(want))))
        fail(c, 0, "the slope is %.9g, by differences %.9g", want, slope);
}

static void check_programs(void)
{
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        Ctx *c = ctx_new();
        if (!ctx_protect(c, check_program, &seed)) {
            printf("grad: program %d: %s\n", (int)seed, c->err.message);
            bad++;
        }
        ctx_free(c);
    }
}

/* ---- what a gate gets ---- */

static const char gated[] =
    "step gated\naxis k = 4\naxis v = 3\n"
    "input q t k\ninput k t k\ninput v t v\ninput g t k : log_decay\n"
    "state S k v\n"
    "%1 = input q\n%2 = input k\n%3 = input v\n%4 = input g\n"
    "%5 = state S\n%6 = exp %4\n%7 = mul %5 %6\n%8 = mul %2 %3\n"
    "%9 = add %7 %8\n%10 = dot %1 %9 over k\n"
    "next S %9\nout y v %10\n";

/* Whether the input is multiplied by all that it gets, by its name "d_...". */
static bool meets_gradient(const Graph *g, const char *name)
{
    bool meets = false;

    for (int i = 0; i < g->nin; i++)
        for (int o = 0; o < g->nout; o++)
            for (Ref r = 1; r < g->len && !strcmp(g->in[i].name, name); r++) {
                const Node *n = &g->n[r];
                Ref x = g->in[i].node, d = g->out[o].node;
                meets |= !strcmp(g->out[o].name + 2, name)
                      && n->op == OP_mul
                      && ((n->a[0] == x && n->a[1] == d)
                          || (n->a[0] == d && n->a[1] == x));
            }
    return meets;
}

/* The pieces of a gate's gradient are collected: q d_q - k d_k. */
static void check_collected(Ctx *c, void *ud)
{
    Graph *step = graph_parse(c, gated);
    int32_t size[NAXES];

    (void)ud;
    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    const Graph *g = by_chunks(step, size, 16, true,
                               machine_usual_gpu());
    if (!g || !meets_gradient(g, "q") || !meets_gradient(g, "k")) {
        printf("grad: what a gate gets is not collected\n");
        bad++;
    }
}

/* Numbers a token that are sums over pairs of tokens, of the gradient's nodes.
 */
static int sums_of_pairs(const Graph *g)
{
    uint8_t *live = ctx_alloc(g->ctx, g->len);
    AxisSet pairs = AXIS(AX_I) | AXIS(AX_J);
    int n = 0;

    graph_live(g, live);
    for (Ref r = 1; r < g->len; r++)
        n += live[r] && op_is(g->n[r].op, ADDS_UP)
          && !(g->n[r].axes & DIM_AXES)
          && (g->n[r].over == AXIS(AX_I) || g->n[r].over == AXIS(AX_J))
          && ((g->n[g->n[r].a[0]].axes | g->n[g->n[r].a[1]].axes) & pairs)
             == pairs;
    return n;
}

/* What a decay, and what scales scores, get is had from the products that the
 * scores' operands get; but of scores of a token with itself, of queries, which
 * cancel: two sums, from either side. */
static void check_associated(Ctx *c, void *ud)
{
    Graph *step = graph_parse(c, ERASING);
    int32_t size[NAXES];

    (void)ud;
    for (int i = 0; i < NAXES; i++)
        size[i] = step->axis[i].size;
    const Graph *g = by_chunks(step, size, 16, true, machine_usual_gpu());
    if (!g || sums_of_pairs(g) != 2) {
        printf("grad: sums of scores are made of scores\n");
        bad++;
    }
}

static void check_gate(void)
{
    Ctx *c = ctx_new();

    if (!ctx_protect(c, check_associated, NULL)
        || !ctx_protect(c, check_collected, NULL)) {
        printf("grad: a gate: %s\n", c->err.message);
        bad++;
    }
    ctx_free(c);
}

int main(void)
{
    check_gate();
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        Ctx *c = ctx_new();
        if (!ctx_protect(c, check_step, (void *)&steps[i])) {
            printf("grad: %.20s: %s\n", steps[i], c->err.message);
            bad++;
        }
        ctx_free(c);
    }
    check_ops();
    check_programs();
    return bad != 0;
}
