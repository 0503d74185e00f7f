/* cpu.c -- `make bench-cpu`: how fast the tile machine runs chunks.
 *
 * Useful work, per token and head, at chunk size C (a causal C x C matrix
 * counts its lower half: 2 C/2 per inner product):
 *     scalar decay, decay per key   C (K + V) + 4 K V
 *     delta rule                    2 C (K + V) + 6 K V
 * Each time is the best of the runs of a second, since other guests of a
 * machine only ever slow it down; the first table also gives the median. All
 * is one head unless it says otherwise.
 */
#include "../../backend/cpu/cpu.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SSD, GLA, DELTA, CHUNK = 64, TOKENS = 4096 };
static const char *const kind_name[] = { "SSD", "GLA", "DeltaNet" };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the variants ---- */

static Graph *step_graph(Ctx *c, int kind)
{
    Graph *g = graph_new(c, kind_name[kind], 0);
    Ref q = g->in[graph_input(g, "q", "t k")].node;
    Ref k = g->in[graph_input(g, "k", "t k")].node;
    Ref v = g->in[graph_input(g, "v", "t v")].node;
    Ref d = kind == GLA ? g->in[graph_input(g, "g", "t k")].node
          : kind == SSD ? g->in[graph_input(g, "g", "t")].node : 0;
    Ref b = kind == DELTA ? g->in[graph_input(g, "beta", "t")].node : 0;
    int s = graph_state(g, "S", "k v");
    AxisSet ax = AXIS(graph_find_axis(g, "k"));
    Ref S = g->st[s].node;

    if (d)
        S = op2(g, OP_mul, op1(g, OP_exp, d), S);
    if (b) {
        v = op2(g, OP_sub, v, dot(g, k, S, ax));
        k = op2(g, OP_mul, b, k);
    }
    S = op2(g, OP_add, S, op2(g, OP_mul, k, v));
    g->st[s].next = S;
    graph_output(g, "y", dot(g, q, S, ax));
    return g;
}

/* ---- a run ---- */

typedef struct Bench {
    Ctx *c;
    CpuProgram *p;
    Call call;
    Seq seq;
    int kind, K, V;
    int64_t T;
    float *q, *k, *v, *g, *beta, *s, *y;
} Bench;

static float *randoms(int64_t n, float from, float to)
{
    float *x = malloc((size_t)n * sizeof *x);
    uint32_t r = 12345;

    if (!x) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    for (int64_t i = 0; i < n; i++) {
        r = r * 1664525 + 1013904223;
        x[i] = from + (to - from) * (float)(r >> 8) / 16777216;
    }
    return x;
}

static View view(float *data, int64_t T, int heads, int n)
{
    return (View){ .data = data, .heads = heads, .sb = T * heads * n,
                   .st = heads * n, .sh = n, .sd = { 1 } };
}

static void bench_compile(Ctx *c, void *ud)
{
    Bench *b = ud;
    Graph *step = step_graph(c, b->kind);
    int32_t size[NAXES] = { 0 };

    size[graph_find_axis(step, "k")] = b->K;
    size[graph_find_axis(step, "v")] = b->V;
    Graph *g = derive(step, size, CHUNK);
    if (!g)
        fail(c, 0, "%s", step->note);
    b->p = cpu_compile(c, plan_simple(g), NULL, NULL);
}

static void bench_execute(Ctx *c, void *ud)
{
    Bench *b = ud;

    cpu_execute(c, b->p, &b->call, NULL);
}

static void bench_go(Bench *b, void (*f)(Ctx *, void *))
{
    if (ctx_protect(b->c, f, b))
        return;
    fprintf(stderr, "%s: %s\n", kind_name[b->kind], b->c->err.message);
    exit(1);
}

static Bench bench_open(int kind, int64_t T, int heads, int K, int V)
{
    Bench b = { .c = ctx_new(), .kind = kind, .K = K, .V = V, .T = T };
    int64_t n = T * heads;
    int gates = kind == GLA ? K : 1;
    float unit = 1.7f / sqrtf((float)K);

    b.q = randoms(n * K, -unit, unit);
    b.k = randoms(n * K, -unit, unit);
    b.v = randoms(n * V, -1, 1);
    b.g = randoms(n * gates, -0.2f, -0.01f);
    b.beta = randoms(n, 0.1f, 0.9f);
    b.s = randoms((int64_t)K * V, 0, 0);
    b.y = randoms(n * V, 0, 0);
    b.seq = (Seq){ 0, 0, T };
    bench_go(&b, bench_compile);
    b.call = (Call){ .nseq = 1, .heads = heads };
    b.call.in[0] = view(b.q, T, heads, K);
    b.call.in[1] = view(b.k, T, heads, K);
    b.call.in[2] = view(b.v, T, heads, V);
    b.call.in[3] = kind == DELTA ? view(b.beta, T, heads, 1)
                                 : view(b.g, T, heads, gates);
    b.call.out[0] = view(b.y, T, heads, V);
    return b;
}

static void bench_close(Bench *b)
{
    float *all[] = { b->q, b->k, b->v, b->g, b->beta, b->s, b->y };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    cpu_free(b->p);
    ctx_free(b->c);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double run_seconds(Bench *b, int threads)
{
    double start = now();

    b->call.seq = &b->seq;
    b->call.threads = threads;
    bench_go(b, bench_execute);
    return now() - start;
}

/* The best of the runs of `limit` seconds, and the median of them. */
static double seconds(Bench *b, double limit, double *median)
{
    enum { RUNS = 4000 };
    double t[RUNS], start = now();
    int n = 0;

    do {
        t[n++] = run_seconds(b, 1);
    } while (n < RUNS && (n < 3 || now() - start < limit));
    qsort(t, (size_t)n, sizeof *t, by_value);
    if (median)
        *median = t[n / 2];
    return t[0];
}

static double flops(int kind, int K, int V)
{
    double c = CHUNK, kv = (double)K * V;

    return kind == DELTA ? 2 * c * (K + V) + 6 * kv : c * (K + V) + 4 * kv;
}

/* ---- plain loops ---- */

typedef void Loop(int kind, long T, int K, int V, const float *q,
                  const float *k, const float *v, const float *g,
                  const float *beta, float *s, float *y);

/* The loops compiled with `flags`; NULL without a compiler. */
static void *compile_loops(const char *flags)
{
    char path[] = "/tmp/flin-bench-XXXXXX", command[512];
    const char *cc = getenv("CC");
    int fd = mkstemp(path);
    void *lib = NULL;

    if (fd < 0)
        return NULL;
    close(fd);
    snprintf(command, sizeof command, "%s %s -w -shared -fPIC -x c -o %s "
             "tests/bench/loops.h -lm", cc ? cc : "cc", flags, path);
    if (system(command) == 0)
        lib = dlopen(path, RTLD_NOW);
    unlink(path);
    return lib;
}

static double loop_seconds(const Bench *b, void *lib, const char *name)
{
    double best = 1e30;
    Loop *f;

    if (!lib)
        return NAN;
    *(void **)&f = dlsym(lib, name);
    for (int i = 0; i < 2; i++) {
        memset(b->s, 0, (size_t)b->K * (size_t)b->V * sizeof *b->s);
        double t = now();
        f(b->kind, b->T, b->K, b->V, b->q, b->k, b->v, b->g, b->beta, b->s,
          b->y);
        t = now() - t;
        best = t < best ? t : best;
    }
    return best;
}

/* How far the loops' y, in b->y, is from ours. */
static double difference(const Bench *b, const float *ours)
{
    double d = 0, all = 0;

    for (int64_t i = 0; i < b->T * b->V; i++) {
        double x = (double)ours[i] - (double)b->y[i];
        d += x * x;
        all += (double)ours[i] * (double)ours[i];
    }
    return sqrt(d / all);
}

/* ---- the tables ---- */

static void speed_row(int kind, int n, void *o2, void *o3)
{
    Bench b = bench_open(kind, TOKENS, 1, n, n);
    double median, t = seconds(&b, 2, &median);
    double work = 1e-9 * flops(kind, n, n) * TOKENS;
    float *ours = randoms(TOKENS * (int64_t)n, 0, 0);

    memcpy(ours, b.y, (size_t)TOKENS * (size_t)n * sizeof *ours);
    double chunk = loop_seconds(&b, o3, "chunk_loop");
    double token2 = loop_seconds(&b, o2, "token_loop");
    double token3 = loop_seconds(&b, o3, "token_loop");
    printf("%-9s %4d %8.2f %9.1f %8.1f %10.1f %10.1f %10.1f %10.1e\n",
           kind_name[kind], n, 1e3 * t, work / t, work / median, token2 / t,
           token3 / t, chunk / t, o3 ? difference(&b, ours) : NAN);
    free(ours);
    bench_close(&b);
}

static void thread_row(int kind)
{
    enum { HEADS = 16 };       /* two teams of 8: see exec.c */
    Bench b = bench_open(kind, TOKENS, HEADS, 64, 64);
    double one = INFINITY, two = INFINITY, start = now();

    while (now() - start < 6) {         /* in turn, both on the same host */
        one = fmin(one, run_seconds(&b, 1));
        two = fmin(two, run_seconds(&b, 2));
    }

    printf("%-9s %8.2f ms %8.2f ms %8.2fx\n", kind_name[kind], 1e3 * one,
           1e3 * two, one / two);
    bench_close(&b);
}

static void length_row(int64_t T)
{
    Bench b = bench_open(DELTA, T, 1, 64, 64);
    double t = seconds(&b, 1, NULL);

    printf("%9lld %10.2f ms %10.1f ns a token\n", (long long)T, 1e3 * t,
           1e9 * t / (double)T);
    bench_close(&b);
}

int main(void)
{
    void *o2 = compile_loops("-O2"), *o3 = compile_loops("-O3 -march=native");

    printf("vector routines: %s; T %d, chunk %d, float32, one thread\n",
           cpu_isa(), TOKENS, CHUNK);
    printf("times faster than: one token after another at -O2 and at -O3 "
           "-march=native,\nand the chunk algorithm in loops at -O3 "
           "-march=native\n\n");
    printf("%-9s %4s %8s %9s %8s %10s %10s %10s %10s\n", "", "K=V", "ms",
           "GFLOP/s", "median", "token O2", "token O3", "chunk O3",
           "difference");
    for (int n = 64; n <= 128; n *= 2)
        for (int kind = SSD; kind <= DELTA; kind++)
            speed_row(kind, n, o2, o3);
    printf("\n16 heads, K = V = 64: one thread, two threads\n");
    for (int kind = SSD; kind <= DELTA; kind++)
        thread_row(kind);
    printf("\nDeltaNet, K = V = 64, by length\n");
    for (int64_t T = 1024; T <= 1 << 20; T *= 4)
        length_row(T);
    return 0;
}
