/* found.c -- sums over what a state becomes, made of sums over what it was: as
 * many wait for one another as should, and they come to the same. */
#include "../../compiler/call.h"
#include "../../compiler/eval.h"
#include "../../compiler/schedule/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 4, RANKS = 2, T = 5, MOST = T * SIZE * SIZE };

static int passed, failed;

static void expect(bool holds, const char *what, const char *name)
{
    passed += holds;
    failed += !holds;
    if (!holds)
        printf("FAIL %s: %s\n", name, what);
}

#define HEAD \
    "step s\naxis r = 2\naxis k = 4\naxis v = 4\ninput q t k\ninput k t k\n" \
    "input v t v\ninput g t\ninput h t k\ninput p t r k\nstate S k v\n"
#define HEAD_NODES \
    "%1 = input q\n%2 = input k\n%3 = input v\n%4 = input g\n" \
    "%5 = input h\n%6 = input p\n%7 = state S\n%8 = exp %4\n%9 = exp %5\n"

/* before, after: sums that wait for one another. */
static const struct { const char *name; int before, after;
                      const char *text; } cases[] = {
    { "a gate a token", 2, 1, HEAD HEAD_NODES
      "%10 = mul %7 %8\n%11 = dot %2 %7 over k\n%12 = mul %8 %11\n"
      "%13 = sub %3 %12\n%14 = mul %2 %13\n%15 = add %10 %14\n"
      "%16 = dot %1 %15 over k\nnext S %15\nout y v %16\n" },
    { "a gate a key", 2, 1, HEAD HEAD_NODES
      "%10 = mul %7 %9\n%11 = dot %2 %10 over k\n%12 = sub %3 %11\n"
      "%13 = mul %2 %12\n%14 = add %10 %13\n%15 = dot %1 %14 over k\n"
      "next S %14\nout y v %15\n" },
    { "scaled behind the write", 2, 1, HEAD HEAD_NODES
      "%10 = dot %2 %7 over k\n%11 = sub %3 %10\n%12 = mul %2 %11\n"
      "%13 = add %7 %12\n%14 = mul %9 %13\n%15 = neg %14\n%16 = num 3\n"
      "%17 = div %15 %16\n%18 = dot %1 %17 over k\nnext S %14\n"
      "out y v %18\n" },
    { "two writes", 3, 1, HEAD HEAD_NODES
      "%10 = dot %2 %7 over k\n%11 = sub %3 %10\n%12 = mul %2 %11\n"
      "%13 = add %7 %12\n%14 = dot %9 %13 over k\n%15 = sub %3 %14\n"
      "%16 = mul %9 %15\n%17 = add %13 %16\n%18 = dot %1 %17 over k\n"
      "next S %17\nout y v %18\n" },
    { "ranks", 2, 1, HEAD HEAD_NODES
      "%10 = dot %6 %7 over k\n%11 = sub %3 %10\n%12 = dot %6 %11 over r\n"
      "%13 = add %7 %12\n%14 = dot %1 %13 over k\nnext S %13\n"
      "out y v %14\n" },
    { "along the other axis", 2, 2, HEAD HEAD_NODES
      "%10 = dot %3 %7 over v\n%11 = sub %2 %10\n%12 = mul %3 %11\n"
      "%13 = add %7 %12\n%14 = dot %1 %13 over k\nnext S %13\n"
      "out y v %14\n" },
    { "nothing is erased", 1, 1, HEAD HEAD_NODES
      "%10 = mul %7 %9\n%11 = mul %2 %3\n%12 = add %10 %11\n"
      "%13 = dot %1 %12 over k\nnext S %12\nout y v %13\n" },
    { "not linear", 2, 2, HEAD HEAD_NODES
      "%10 = dot %2 %7 over k\n%11 = sub %3 %10\n%12 = mul %2 %11\n"
      "%13 = add %7 %12\n%14 = tanh %13\n%15 = dot %1 %14 over k\n"
      "next S %14\nout y v %15\n" },
    { "a square", 2, 2, HEAD HEAD_NODES
      "%10 = dot %2 %7 over k\n%11 = sub %3 %10\n%12 = mul %2 %11\n"
      "%13 = add %7 %12\n%14 = mul %13 %13\n%15 = dot %1 %14 over k\n"
      "next S %13\nout y v %15\n" },
};

/* Of what the results need. */
static int count_waits(Ctx *c, const Graph *g)
{
    AxisSet axes = g->st[0].axes;
    uint8_t *live = ctx_alloc(c, g->len);
    int *depth = ctx_alloc(c, g->len * sizeof *depth), most = 0;
    graph_live(g, live);
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        for (int i = 0; i < 4; i++)
            if (n->a[i] && depth[n->a[i]] > depth[r])
                depth[r] = depth[n->a[i]];
        depth[r] += op_is(n->op, FOLDS) && !op_is(n->op, MOVES)
                 && n->over & axes;
        most = live[r] && depth[r] > most ? depth[r] : most;
    }
    return most;
}

typedef struct Left { double y[T][SIZE], s[SIZE][SIZE]; } Left;

/* gate: what the third token's gates are. */
static void run(Ctx *c, const Graph *g, double gate, Left *left)
{
    static const Seq seq = { 0, 0, T };
    Call *call = ctx_alloc(c, sizeof *call);
    double *s0 = ctx_alloc(c, sizeof left->s);
    uint32_t x = 1;

    call->nseq = call->heads = 1;
    call->seq = &seq;
    for (int i = 0; i < g->nin; i++) {
        double *p = ctx_alloc(c, MOST * RANKS * sizeof *p);
        const Input *in = &g->in[i];
        int each = (int)axes_size(g, in->axes);
        for (int j = 0; j < T * each; j++) {
            x = x * 1664525u + 1013904223u;
            p[j] = (x >> 8) / (double)(1 << 24) - 0.5;
            if (!strcmp(in->name, "g") || !strcmp(in->name, "h"))
                p[j] = j / each == 2 ? gate : -fabs(p[j]);
        }
        call->in[i] = (View){ .data = p, .dtype = F64, .heads = 1, .st = each };
        for (int d = in->rank, step = 1; d-- > 0;) {
            call->in[i].sd[d] = step;
            step *= g->axis[in->order[d]].size;
        }
    }
    for (int j = 0; j < SIZE * SIZE; j++)
        s0[j] = 1e6 * (j % 7 - 3);
    call->s0[0] = (View){ .data = s0, .dtype = F64, .heads = 1,
                          .sd = { SIZE, 1 } };
    call->s1[0] = call->s0[0];
    call->s1[0].data = left->s;
    call->out[0] = (View){ .data = left->y, .dtype = F64, .heads = 1,
                           .st = SIZE, .sd = { 1 } };
    reference_run(c, g, call);
}

/* Beside the largest. */
static double distance(const double *a, const double *b, int n)
{
    double off = 0, most = 0;
    for (int i = 0; i < n; i++) {
        off = fabs(a[i] - b[i]) <= off ? off : fabs(a[i] - b[i]);
        most = fmax(most, fabs(a[i]));
    }
    return off ? off / most : 0;
}

static void check_all(Ctx *c, void *ud)
{
    static const double gate[] = { -0.3, -1e9, -INFINITY };
    const double exact = 1e-13;         /* a few roundings of float64 */
    (void)ud;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = cases[i].name;
        const Plan *p = plan_simple(graph_parse(c, cases[i].text));
        const Plan *q = plan_sums_found(c, p);
        expect(count_waits(c, p->g) == cases[i].before, "what waits", name);
        expect(count_waits(c, q->g) == cases[i].after, "what waits then",
               name);
        expect((p == q) == (cases[i].before == cases[i].after),
               "is it changed", name);
        for (int j = 0; j < 3 && p != q; j++) {
            Left *a = ctx_alloc(c, sizeof *a), *b = ctx_alloc(c, sizeof *b);
            run(c, p->g, gate[j], a);
            run(c, q->g, gate[j], b);
            for (int t = 0; t < T; t++)
                expect(distance(a->y[t], b->y[t], SIZE) <= exact, "y", name);
            expect(distance(&a->s[0][0], &b->s[0][0], SIZE * SIZE) <= exact,
                   "S", name);
        }
    }
}

int main(void)
{
    Ctx *c = ctx_new();
    if (!ctx_protect(c, check_all, NULL))
        expect(false, c->err.message, "sums found");
    ctx_free(c);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
