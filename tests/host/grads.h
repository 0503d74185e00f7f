/* grads.h -- gradients of a Layer, for the tests that go backwards. */
#ifndef FLIN_TESTS_GRADS_H
#define FLIN_TESTS_GRADS_H

#include "host.h"

enum { B = 2, T = 70, H = 2, D = 8 };

/* float32 sums over a few hundred terms */
static const double TOLERANCE = 2e-5;

/* One that no chunk form fits. */
static const char serial[] =
    "local flin = require 'flin'\n"
    "return flin.variant {\n"
    "  input = { k = 't k', v = 't v' }, state = { S = 'k v' },\n"
    "  step = function (x, s)\n"
    "    local S = flin.sigmoid(s.S) * s.S + flin.outer(x.k, x.v)\n"
    "    return { S = S }, flin.dot(x.k, S)\n"
    "  end }\n";

/* The gradients of a layer, and where they go. */
typedef struct Grads {
    flin_Bind in[MAX_ARGS], s0[MAX_ARGS], s1[MAX_ARGS];
    flin_Grad grad;
} Grads;

static inline Grads *grads_new(const Layer *l, flin_DType dtype)
{
    Grads *g = calloc(1, sizeof *g);
    uint32_t seed = 7;

    g->grad = (flin_Grad){ .size = sizeof g->grad, .dy = l->call.y,
                           .dinput = g->in, .dinitial = g->s0,
                           .dfinal = g->s1 };
    tensor_make(&g->grad.dy, l->call.y.dtype);
    tensor_draw(&g->grad.dy, "normal", &seed);
    for (int i = 0; i < l->call.ninputs; i++) {
        g->in[g->grad.ndinput] = l->in[i];
        tensor_make(&g->in[g->grad.ndinput++].tensor, dtype);
    }
    for (int i = 0; i < l->call.ninitial; i++) {
        g->s0[g->grad.ndinitial] = l->s0[i];
        tensor_make(&g->s0[g->grad.ndinitial++].tensor, dtype);
        g->s1[g->grad.ndfinal] = l->s1[i];
        tensor_make(&g->s1[g->grad.ndfinal].tensor, l->call.y.dtype);
        tensor_draw(&g->s1[g->grad.ndfinal++].tensor, "normal", &seed);
    }
    return g;
}

static inline void grads_free(Grads *g)
{
    for (int i = 0; i < MAX_ARGS; i++) {
        free(g->in[i].tensor.data);
        free(g->s0[i].tensor.data);
        free(g->s1[i].tensor.data);
    }
    free(g->grad.dy.data);
    free(g);
}

static inline double grads_apart(const Grads *a, const Grads *b)
{
    double worst = 0;

    for (int i = 0; i < a->grad.ndinput; i++)
        worst = fmax(worst, apart(&a->in[i].tensor, &b->in[i].tensor));
    for (int i = 0; i < a->grad.ndinitial; i++)
        worst = fmax(worst, apart(&a->s0[i].tensor, &b->s0[i].tensor));
    return worst;
}

#endif
