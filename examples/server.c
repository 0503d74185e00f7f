/* server.c -- a pool of threads that answers requests with one kernel.
 *
 *     cc server.c -pthread -lflin -lm && ./a.out
 *
 * Every request is a sequence of its own length. The kernel is compiled once;
 * the state that compiled it is closed before the first thread starts. Each
 * thread takes the next request and runs the kernel on that request's buffers.
 * Afterwards all answers are compared with the float64 step.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "flin.h"

enum { THREADS = 4, REQUESTS = 64, H = 2, D = 32, LONGEST = 400 };

typedef struct Request {
    int64_t tokens;
    float *q, *k, *v, *g, *y;
} Request;

typedef struct Server {
    flin_Kernel *kernel;
    Request request[REQUESTS];
    atomic_int next, failures;
} Server;

/* ---- requests ---- */

static float noise(void)
{
    static uint32_t x = 1;

    x = x * 1664525u + 1013904223u;
    return (float)(x >> 8) / (1 << 24);
}

/* n values from `low` to `high`. */
static float *values(int64_t n, float low, float high)
{
    float *a = malloc((size_t)n * sizeof *a);

    if (!a) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    for (int64_t i = 0; i < n; i++)
        a[i] = low + (high - low) * noise();
    return a;
}

static void make_request(Request *r)
{
    r->tokens = 1 + (int64_t)(noise() * LONGEST);
    r->q = values(r->tokens * H * D, -1, 1);
    r->k = values(r->tokens * H * D, -0.2f, 0.2f);
    r->v = values(r->tokens * H * D, -1, 1);
    r->g = values(r->tokens * H, -0.1f, 0);
    r->y = values(r->tokens * H * D, 0, 0);
}

static void free_request(Request *r)
{
    free(r->q), free(r->k), free(r->v), free(r->g), free(r->y);
}

/* The arguments of a call: `in` has room for four. */
static flin_Call request_call(const Request *r, flin_Bind *in)
{
    int64_t T = r->tokens;

    in[0] = (flin_Bind){ "q", { r->q, FLIN_F32, 4, { 1, T, H, D }, { 0 } } };
    in[1] = (flin_Bind){ "k", { r->k, FLIN_F32, 4, { 1, T, H, D }, { 0 } } };
    in[2] = (flin_Bind){ "v", { r->v, FLIN_F32, 4, { 1, T, H, D }, { 0 } } };
    in[3] = (flin_Bind){ "g", { r->g, FLIN_F32, 3, { 1, T, H }, { 0 } } };
    return (flin_Call){ .size = sizeof(flin_Call), .input = in, .ninputs = 4,
                        .y = { r->y, FLIN_F32, 4, { 1, T, H, D }, { 0 } },
                        .threads = 1 };     /* the pool has enough of them */
}

/* ---- the pool ---- */

static void *serve(void *arg)
{
    Server *s = arg;
    int i;

    while ((i = atomic_fetch_add(&s->next, 1)) < REQUESTS) {
        flin_Bind in[4];
        flin_Call call = request_call(&s->request[i], in);
        flin_Error e;
        if (flin_run(s->kernel, &call, NULL, &e)) {
            fprintf(stderr, "request %d: %s\n", i, e.text);
            atomic_fetch_add(&s->failures, 1);
        }
    }
    return NULL;
}

static void run_pool(Server *s)
{
    pthread_t thread[THREADS];
    int n = 0;

    while (n < THREADS && !pthread_create(&thread[n], NULL, serve, s))
        n++;
    if (n == 0)
        serve(s);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

/* ---- what it should be ---- */

/* The relative error of all answers together. */
static double error_of(const Server *s, flin_Kernel *reference)
{
    static double truth[(LONGEST + 1) * H * D];
    double error = 0, sum = 0;

    for (int i = 0; i < REQUESTS; i++) {
        const Request *r = &s->request[i];
        flin_Bind in[4];
        flin_Call call = request_call(r, in);
        call.y.data = truth;
        call.y.dtype = FLIN_F64;
        if (flin_run(reference, &call, NULL, NULL))
            return INFINITY;
        for (int64_t n = 0; n < r->tokens * H * D; n++) {
            error += (r->y[n] - truth[n]) * (r->y[n] - truth[n]);
            sum += truth[n] * truth[n];
        }
    }
    return sqrt(error / sum);
}

int main(void)
{
    static Server s;
    flin_Error e;
    flin_Bind in[4];
    int64_t tokens = 0;
    flin_Kernel *reference = NULL;

    for (int i = 0; i < REQUESTS; i++) {
        make_request(&s.request[i]);
        tokens += s.request[i].tokens;
    }
    flin_Call like = request_call(&s.request[0], in);
    flin_State *state = flin_open(NULL, &e);
    flin_Variant *v = state ? flin_stdlib(state, "simple_gla", &e) : NULL;
    if (v)
        s.kernel = flin_prepare(v, FLIN_FORWARD, &like, &e);
    like.y.dtype = FLIN_F64;
    if (s.kernel)
        reference = flin_prepare(v, FLIN_REFERENCE, &like, &e);
    flin_close(state);
    if (!reference) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }

    run_pool(&s);
    double error = error_of(&s, reference);
    printf("%d requests, %lld tokens, %d threads, one kernel: relative error "
           "%.1e\n", REQUESTS, (long long)tokens, THREADS, error);

    flin_free(reference);
    flin_free(s.kernel);
    for (int i = 0; i < REQUESTS; i++)
        free_request(&s.request[i]);
    return s.failures || !(error < 1e-5);
}
