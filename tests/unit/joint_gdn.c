/* joint_gdn.c -- a joint plan, forward and backward, written by hand in the
 * text form: Gated DeltaNet in two scan kernels, the state at each chunk's
 * start and W stored, everything else computed again. Executed by the CPU
 * backend, in float32, and by the interpreter, in float64, against the token
 * recurrence and its reverse mode, written out below. */
#include "../../backend/cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 150, H = 2, K = 64, V = 64, NOUT = 6, NIN = 6 };
enum { Q, KEY, VAL, G, BETA, DY };

typedef struct Grads {
    double y[T][V], q[T][K], k[T][K], v[T][V], g[T], beta[T];
    double S[T + 1][K][V], dS[K][V];
} Grads;

static double uniform(unsigned long long *s)
{
    *s = *s * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(*s >> 11) / 9007199254740992.0 * 2 - 1;
}

typedef struct Data {
    float in[NIN][T][H][K], S0[H][K][V], dST[H][K][V];
    float S1[H][K][V], dS0[H][K][V];
    float out[NOUT][T][H][K];
    int width[NIN];
} Data;

static void fill(Data *d)
{
    unsigned long long seed = 7;
    static const int width[NIN] = { K, K, V, 1, 1, V };

    memcpy(d->width, width, sizeof width);
    for (int t = 0; t < T; t++)
        for (int h = 0; h < H; h++) {
            double norm = 0;
            for (int i = 0; i < NIN; i++)
                for (int x = 0; x < K; x++)
                    d->in[i][t][h][x] = (float)uniform(&seed);
            for (int x = 0; x < K; x++)
                norm += d->in[KEY][t][h][x] * d->in[KEY][t][h][x];
            for (int x = 0; x < K; x++)
                d->in[KEY][t][h][x] /= (float)sqrt(norm);
            d->in[G][t][h][0] = h ? 0 : (d->in[G][t][h][0] - 1) / 4;
            d->in[BETA][t][h][0] = (d->in[BETA][t][h][0] + 1) / 2;
        }
    for (int i = 0; i < H * K * V; i++) {
        (&d->S0[0][0][0])[i] = (float)uniform(&seed);
        (&d->dST[0][0][0])[i] = (float)uniform(&seed);
    }
}

/* w = beta (v - k . e^g S_{t-1}) */
static void written(const Data *d, const Grads *r, int t, int h, double *w)
{
    double e = exp(d->in[G][t][h][0]);

    for (int j = 0; j < V; j++) {
        double kS = 0;
        for (int i = 0; i < K; i++)
            kS += d->in[KEY][t][h][i] * e * r->S[t][i][j];
        w[j] = d->in[BETA][t][h][0] * (d->in[VAL][t][h][j] - kS);
    }
}

static void forward(const Data *d, Grads *r, int h)
{
    double w[V];

    for (int i = 0; i < K; i++)
        for (int j = 0; j < V; j++)
            r->S[0][i][j] = d->S0[h][i][j];
    for (int t = 0; t < T; t++) {
        double e = exp(d->in[G][t][h][0]);
        written(d, r, t, h, w);
        memset(r->y[t], 0, sizeof r->y[t]);
        for (int i = 0; i < K; i++)
            for (int j = 0; j < V; j++) {
                r->S[t + 1][i][j] = e * r->S[t][i][j]
                                  + d->in[KEY][t][h][i] * w[j];
                r->y[t][j] += d->in[Q][t][h][i] * r->S[t + 1][i][j];
            }
    }
}

static void backward_token(const Data *d, Grads *r, int t, int h)
{
    double w[V], dw[V] = { 0 }, e = exp(d->in[G][t][h][0]);
    double beta = d->in[BETA][t][h][0];

    written(d, r, t, h, w);
    for (int i = 0; i < K; i++) {
        double k = d->in[KEY][t][h][i];
        for (int j = 0; j < V; j++) {
            double dy = d->in[DY][t][h][j];
            r->q[t][i] += r->S[t + 1][i][j] * dy;
            r->dS[i][j] += d->in[Q][t][h][i] * dy;
            r->k[t][i] += r->dS[i][j] * w[j];
            dw[j] += k * r->dS[i][j];
        }
    }
    for (int j = 0; j < V; j++) {
        r->v[t][j] = beta * dw[j];
        r->beta[t] += dw[j] * (beta ? w[j] / beta : 0);
    }
    for (int i = 0; i < K; i++)
        for (int j = 0; j < V; j++) {
            double k = d->in[KEY][t][h][i], S = e * r->S[t][i][j];
            r->k[t][i] -= S * beta * dw[j];
            r->dS[i][j] -= k * beta * dw[j];
            r->g[t] += r->dS[i][j] * S;
            r->dS[i][j] *= e;
        }
}

static double rel(const char *what, const double *want, int stride,
                  const float *got, int rows, int width, int got_stride)
{
    double err = 0, ref = 0;

    for (int t = 0; t < rows; t++)
        for (int x = 0; x < width; x++) {
            double w = want[t * stride + x], e = got[t * got_stride + x] - w;
            err += e * e;
            ref += w * w;
        }
    err = sqrt(err / ref);
    if (!(err <= 1e-4)) {
        printf("joint_gdn: %s: relative RMS error %g\n", what, err);
        return 1;
    }
    return 0;
}

static int check(const Data *d, Grads *r, int h)
{
    int bad = 0;

    memset(r, 0, sizeof *r);
    forward(d, r, h);
    for (int i = 0; i < K; i++)
        for (int j = 0; j < V; j++)
            r->dS[i][j] = d->dST[h][i][j];
    for (int t = T; t-- > 0;)
        backward_token(d, r, t, h);
    bad += rel("y", &r->y[0][0], V, &d->out[0][0][h][0], T, V, H * K) > 0;
    bad += rel("dq", &r->q[0][0], K, &d->out[1][0][h][0], T, K, H * K) > 0;
    bad += rel("dk", &r->k[0][0], K, &d->out[2][0][h][0], T, K, H * K) > 0;
    bad += rel("dv", &r->v[0][0], V, &d->out[3][0][h][0], T, V, H * K) > 0;
    bad += rel("dg", r->g, 1, &d->out[4][0][h][0], T, 1, H * K) > 0;
    bad += rel("dbeta", r->beta, 1, &d->out[5][0][h][0], T, 1, H * K) > 0;
    bad += rel("S", &r->S[T][0][0], K * V, &d->S1[h][0][0], 1, K * V, 0) > 0;
    bad += rel("dS0", &r->dS[0][0], K * V, &d->dS0[h][0][0], 1, K * V, 0) > 0;
    return bad;
}

static View rows_view(float *data)
{
    return (View){ .data = data, .heads = H, .st = H * K, .sh = K,
                   .sb = T * H * K, .sd = { 1 } };
}

static View state_view(float *data)
{
    return (View){ .data = data, .heads = H, .sh = K * V, .sb = H * K * V,
                   .sd = { V, 1 } };
}

typedef struct Run { char *text; Data *d; bool interpret; } Run;

static void run(Ctx *c, void *ud)
{
    Run *r = ud;
    Plan *p = plan_parse(c, r->text);
    static const Seq seq = { 0, 0, T };
    Call *call = ctx_alloc(c, sizeof *call);

    call->nseq = 1;
    call->seq = &seq;
    call->heads = H;
    call->threads = 2;
    for (int i = 0; i < NIN; i++)
        call->in[i] = rows_view(&r->d->in[i][0][0][0]);
    for (int i = 0; i < NOUT; i++)
        call->out[i] = rows_view(&r->d->out[i][0][0][0]);
    call->s0[0] = state_view(&r->d->S0[0][0][0]);
    call->s1[0] = state_view(&r->d->S1[0][0][0]);
    call->s0[1] = state_view(&r->d->dST[0][0][0]);
    call->s1[1] = state_view(&r->d->dS0[0][0][0]);
    if (r->interpret)
        interpret_chunks(c, p->g, call);
    else
        cpu_run(c, p, call, NULL);
}

static char *read_file(const char *name)
{
    FILE *f = fopen(name, "rb");
    char *s = calloc(1, 1 << 20);

    if (!f || !s || !fread(s, 1, (1 << 20) - 1, f)) {
        printf("joint_gdn: cannot read %s\n", name);
        exit(1);
    }
    fclose(f);
    return s;
}

int main(int argc, char **argv)
{
    Data *d = calloc(1, sizeof *d);
    Grads *r = malloc(sizeof *r);
    int bad = 0;
    Run what = { .d = d, .text = read_file(argc > 1 ? argv[1]
                                          : "tests/plans/gdn_joint.plan") };

    fill(d);
    for (int pass = 0; pass < 2; pass++) {
        Ctx *c = ctx_new();
        memset(d->out, 0xff, sizeof d->out);
        memset(d->dS0, 0xff, sizeof d->dS0);
        what.interpret = pass == 0;
        if (!ctx_protect(c, run, &what)) {
            printf("joint_gdn: %s\n", c->err.message);
            bad++;
        } else {
            for (int h = 0; h < H; h++)
                bad += check(d, r, h);
        }
        ctx_free(c);
    }
    free(what.text);
    free(d);
    free(r);
    return bad != 0;
}
