/* support.h -- a random call of any step graph, and how far two runs are
 * apart. */
#ifndef FLIN_TESTS_SUPPORT_H
#define FLIN_TESTS_SUPPORT_H

#include "../../compiler/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 150, HEADS = 2, SEQS = 3 };

static inline double uniform(uint64_t *s)
{
    *s = *s * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(*s >> 11) / 9007199254740992.0;
}

static inline double normal(uint64_t *s)
{
    double u = uniform(s) + 1e-300;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * uniform(s));
}

/* Rows of `count` doubles, one for each of `rows` indices and each head. */
static inline View make_view(Ctx *c, const Graph *g, const uint8_t *order,
                             int rank, int64_t rows, bool timed)
{
    View v = { .dtype = F64, .heads = HEADS };
    int64_t n = 1;

    for (int i = rank; i-- > 0;) {
        v.sd[i] = n;
        n *= g->axis[order[i]].size;
    }
    v.sh = n;
    v.st = timed ? n * HEADS : 0;
    v.sb = timed ? n * HEADS * rows : n * HEADS;
    v.data = ctx_alloc(c, (size_t)(n * HEADS * rows) * 8);
    return v;
}

static inline void draw(const View *v, int64_t rows, const char *domain,
                        uint64_t *seed)
{
    for (int64_t r = 0; r < rows * HEADS; r++) {
        double *x = (double *)v->data + r * v->sh, norm = 0;
        for (int64_t i = 0; i < v->sh; i++) {
            x[i] = normal(seed);
            if (!strcmp(domain, "log_decay"))
                x[i] = -log1p(exp(-x[i]));
            if (!strcmp(domain, "unit"))
                x[i] = 1 / (1 + exp(-x[i]));
            if (!strcmp(domain, "positive"))
                x[i] = log1p(exp(x[i]));
            norm += x[i] * x[i];
        }
        for (int64_t i = 0; !strcmp(domain, "unit_norm") && i < v->sh; i++)
            x[i] /= sqrt(norm);
    }
}

/* Three sequences (one empty) with random inputs and initial states. */
static inline Call *make_call(Ctx *c, const Graph *g, uint64_t seed)
{
    Call *call = ctx_alloc(c, sizeof *call);
    Seq *seq = ctx_alloc(c, SEQS * sizeof *seq);

    seq[0] = (Seq){ 0, 0, 70 };
    seq[1] = (Seq){ 0, 70, 0 };
    seq[2] = (Seq){ 0, 70, TOKENS - 70 };
    call->nseq = SEQS;
    call->seq = seq;
    call->heads = HEADS;
    call->threads = 1;
    for (int i = 0; i < NAXES; i++)
        call->size[i] = g->axis[i].size;
    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        int64_t rows = in->timed ? TOKENS : 1;
        call->in[i] = make_view(c, g, in->order, in->rank, rows, in->timed);
        if (!in->timed)
            call->in[i].sb = 0;
        draw(&call->in[i], rows, in->domain, &seed);
    }
    for (int i = 0; i < g->nst; i++) {
        const State *s = &g->st[i];
        call->s0[i] = make_view(c, g, s->order, s->rank, SEQS, false);
        draw(&call->s0[i], SEQS, "", &seed);
    }
    return call;
}

/* Fresh results for a call, full of NaN. */
static inline void make_results(Ctx *c, const Graph *g, Call *call)
{
    for (int i = 0; i < g->nst; i++) {
        const State *s = &g->st[i];
        call->s1[i] = make_view(c, g, s->order, s->rank, SEQS, false);
        memset(call->s1[i].data, 0xff,
               (size_t)(call->s1[i].sh * HEADS * SEQS) * 8);
    }
    for (int i = 0; i < g->nout; i++) {
        const Output *o = &g->out[i];
        call->out[i] = make_view(c, g, o->order, o->rank, TOKENS, true);
        memset(call->out[i].data, 0xff,
               (size_t)(call->out[i].sh * HEADS * TOKENS) * 8);
    }
}

/* RMS(a - b) / RMS(a); infinite where either has a NaN. */
static inline double distance(const View *a, const View *b, int64_t rows)
{
    const double *x = a->data, *y = b->data;
    double err = 0, ref = 0;

    for (int64_t i = 0; i < a->sh * HEADS * rows; i++) {
        err += (x[i] - y[i]) * (x[i] - y[i]);
        ref += x[i] * x[i];
    }
    err = ref > 0 ? sqrt(err / ref) : sqrt(err);
    return err == err ? err : INFINITY;
}

/* The largest distance of results and final states. */
static inline double call_distance(const Graph *g, const Call *a,
                                   const Call *b)
{
    double worst = 0;

    for (int i = 0; i < g->nout; i++)
        worst = fmax(worst, distance(&a->out[i], &b->out[i], TOKENS));
    for (int i = 0; i < g->nst; i++)    /* in double there is nothing lost */
        if (!g->st[i].lost_of)
            worst = fmax(worst, distance(&a->s1[i], &b->s1[i], SEQS));
    return worst;
}

#endif
