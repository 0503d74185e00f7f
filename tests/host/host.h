/* host.h -- what the tests of flin.h share: a variant's call with random
 * numbers, its results, and how far two of them are apart. */
#ifndef FLIN_TESTS_HOST_H
#define FLIN_TESTS_HOST_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lang/flin.h"

static int passed, failed;

#define CHECK(c) check((c) != 0, #c, __FILE__, __LINE__)
static inline void check(int ok, const char *what, const char *file, int line)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("%s:%d: not so: %s\n", file, line, what);
}

/* It fails with a message that has this text; of a flin_Error e. */
#define REFUSED(call, text) \
    CHECK((call) == FLIN_ERROR && strstr(e.message, text))

static inline int report(void)
{
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

enum { MAX_ARGS = 16 };

/* Inputs and states of a variant, for B rows of T tokens and H heads. */
typedef struct Layer {
    flin_Bind in[MAX_ARGS], s0[MAX_ARGS], s1[MAX_ARGS];
    flin_Call call;
    char name[MAX_ARGS][32];            /* the variant's may go before */
} Layer;

static inline double uniform(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return (double)(*x >> 8) / (1 << 24);
}

static inline int64_t tensor_count(const flin_Tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->rank; i++)
        n *= t->shape[i];
    return n;
}

static inline void tensor_make(flin_Tensor *t, flin_DType dtype)
{
    t->dtype = dtype;
    t->data = calloc((size_t)tensor_count(t) + 1, dtype == FLIN_F64 ? 8 : 4);
}

/* A value that the domain allows, small enough for keys of 16. */
static inline double drawn(const char *domain, uint32_t *seed)
{
    double u = uniform(seed);

    if (!strcmp(domain, "log_decay"))
        return -u;
    if (!strcmp(domain, "unit") || !strcmp(domain, "positive"))
        return u;
    if (!strcmp(domain, "unit_norm"))
        return (u - 0.5) / 2;
    return 2 * u - 1;
}

static inline void tensor_draw(flin_Tensor *t, const char *domain,
                               uint32_t *seed)
{
    for (int64_t i = 0; i < tensor_count(t); i++)
        if (t->dtype == FLIN_F64)
            ((double *)t->data)[i] = drawn(domain, seed);
        else
            ((float *)t->data)[i] = (float)drawn(domain, seed);
}

/* The shape that its axes say; size: of k, v and every other axis. */
static inline void set_shape(flin_Tensor *t, const flin_Arg *a, int64_t B,
                             int64_t T, int64_t H, int64_t size)
{
    const char *p = a->axes;

    if (a->role == FLIN_STATE) {
        t->shape[t->rank++] = B;
    } else if (*p == 't' && (p[1] == ' ' || !p[1])) {
        t->shape[t->rank++] = B;
        t->shape[t->rank++] = T;
        p += p[1] ? 2 : 1;
    }
    t->shape[t->rank++] = H;
    for (; *p; p += strcspn(p, " "), p += *p == ' ')
        t->shape[t->rank++] = size;
}

static inline Layer *layer_new(const flin_Variant *v, int64_t B, int64_t T,
                               int64_t H, int64_t size, flin_DType dtype)
{
    Layer *l = calloc(1, sizeof *l);
    uint32_t seed = 1;
    flin_Arg a;

    l->call = (flin_Call){ .size = sizeof l->call, .input = l->in,
                           .initial = l->s0, .final = l->s1, .threads = 1 };
    for (int i = 0; flin_arg(v, i, &a); i++) {
        flin_Bind b = { l->name[i], { .rank = 0 } };
        snprintf(l->name[i], sizeof l->name[i], "%s", a.name);
        set_shape(&b.tensor, &a, B, T, H, size);
        tensor_make(&b.tensor, dtype);
        tensor_draw(&b.tensor, a.domain, &seed);
        if (a.role == FLIN_INPUT)
            l->in[l->call.ninputs++] = b;
        if (a.role == FLIN_OUTPUT)
            l->call.y = b.tensor;
        if (a.role == FLIN_STATE) {
            l->s0[l->call.ninitial++] = b;
            tensor_make(&b.tensor, dtype);
            l->s1[l->call.nfinal++] = b;
        }
    }
    return l;
}

static inline void layer_free(Layer *l)
{
    for (int i = 0; i < l->call.ninputs; i++)
        free(l->in[i].tensor.data);
    for (int i = 0; i < l->call.ninitial; i++)
        free(l->s0[i].tensor.data);
    for (int i = 0; i < l->call.nfinal; i++)
        free(l->s1[i].tensor.data);
    free(l->call.y.data);
    free(l);
}

static inline double tensor_at(const flin_Tensor *t, int64_t i)
{
    return t->dtype == FLIN_F64 ? ((double *)t->data)[i]
                                : (double)((float *)t->data)[i];
}

/* RMS(a - b) / RMS(a), of packed tensors; infinite where one has a NaN. */
static inline double apart(const flin_Tensor *a, const flin_Tensor *b)
{
    double error = 0, sum = 0;

    for (int64_t i = 0; i < tensor_count(a); i++) {
        double d = tensor_at(a, i) - tensor_at(b, i);
        error += d * d;
        sum += tensor_at(a, i) * tensor_at(a, i);
    }
    error = sum > 0 ? sqrt(error / sum) : sqrt(error);
    return error == error ? error : INFINITY;
}

#endif
