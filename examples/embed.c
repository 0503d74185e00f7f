/* embed.c -- a C program that runs a variant on its own buffers.
 *
 *     cc embed.c -lflin -lm && ./a.out
 *
 * It loads Gated DeltaNet, lists its arguments, runs 300 tokens by chunks,
 * compares that with the float64 step, and decodes one token more.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "flin.h"

enum { B = 1, T = 300, H = 2, K = 32, V = 48, N = B * T * H };

/* Uniform in (-1, 1), the same on every machine. */
static float noise(void)
{
    static uint32_t x = 1;

    x = x * 1664525u + 1013904223u;
    return (float)(x >> 8) / (1 << 23) - 1;
}

/* n values from low to high. */
static float *random_values(size_t n, float low, float high)
{
    float *a = malloc(n * sizeof *a);

    for (size_t i = 0; a && i < n; i++)
        a[i] = low + (high - low) * (noise() + 1) / 2;
    return a;
}

static int failed(const flin_Error *e)
{
    fprintf(stderr, "%s\n", e->text);
    return 1;
}

static void list_arguments(const flin_Variant *v)
{
    static const char *const role[] = { "input", "output", "state" };
    flin_Arg a;

    printf("%s\n", flin_name(v));
    for (int i = 0; flin_arg(v, i, &a); i++)
        printf("  %-6s  %-5s  axes \"%s\"  %s\n", role[a.role], a.name,
               a.axes, a.domain);
}

/* What a mistake looks like. */
static void show_error(flin_State *s)
{
    flin_Error e;

    flin_load_string(s, "return 1 +", "mistake.lua", &e);
    printf("error %d in %s, line %d: %s\n", e.code, e.file, e.line,
           e.message);
}

static double relative_error(const float *y, const double *truth, size_t n)
{
    double error = 0, sum = 0;

    for (size_t i = 0; i < n; i++) {
        error += (y[i] - truth[i]) * (y[i] - truth[i]);
        sum += truth[i] * truth[i];
    }
    return sqrt(error / sum);
}

int main(void)
{
    flin_Error e;
    flin_State *s = flin_open(NULL, &e);
    flin_Variant *v = s ? flin_stdlib(s, "gated_deltanet", &e) : NULL;
    if (!v)
        return failed(&e);
    list_arguments(v);
    show_error(s);

    float *q = random_values(N * K, -1, 1), *k = random_values(N * K, 0, 0.2f);
    float *val = random_values(N * V, -1, 1), *g = random_values(N, -1, 0);
    float *beta = random_values(N, 0, 1), *y = random_values(N * V, 0, 0);
    float *S = random_values(B * H * K * V, 0, 0);
    double *truth = calloc(N * V, sizeof *truth);
    flin_Bind in[] = {
        { "q", { q, FLIN_F32, 4, { B, T, H, K }, { 0 } } },
        { "k", { k, FLIN_F32, 4, { B, T, H, K }, { 0 } } },
        { "v", { val, FLIN_F32, 4, { B, T, H, V }, { 0 } } },
        { "g", { g, FLIN_F32, 3, { B, T, H }, { 0 } } },
        { "beta", { beta, FLIN_F32, 3, { B, T, H }, { 0 } } },
    };
    flin_Bind state[] = {
        { "S", { S, FLIN_F32, 4, { B, H, K, V }, { 0 } } },
    };
    flin_Call call = {
        .size = sizeof call, .input = in, .ninputs = 5,
        .y = { truth, FLIN_F64, 4, { B, T, H, V }, { 0 } },
    };
    if (flin_reference(v, &call, &e))
        return failed(&e);
    call.final = state;
    call.nfinal = 1;
    call.y.data = y;
    call.y.dtype = FLIN_F32;
    if (flin_forward(v, &call, &e))
        return failed(&e);
    double error = relative_error(y, truth, N * V);
    printf("%d tokens: relative error %.1e\n", T, error);

    /* The next token: of each buffer the first, as if it were new. */
    for (int i = 0; i < 5; i++)
        in[i].tensor.shape[1] = 1;
    call.y.shape[1] = 1;
    call.initial = state;
    call.ninitial = 1;
    if (flin_step(v, &call, &e))
        return failed(&e);
    printf("token %d: y = %.4f %.4f ...\n", T + 1, y[0], y[1]);

    flin_close(s);
    free(q), free(k), free(val), free(g), free(beta), free(y), free(S);
    free(truth);
    return error < 1e-5 ? 0 : 1;
}
