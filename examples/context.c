/* context.c -- a sequence in three parts, as three devices would have them:
 * what each tells the others is what its tokens do to the state.
 *
 *     cc context.c -lflin -lm && ./a.out
 *
 * Forward, each part's summary, own and M, is found without the others; the
 * start of a part follows from those before it, and then the part runs. On the
 * way back a gradient goes through M transposed, from the last part to the
 * first. Here one process does it all: where a part's numbers are another
 * device's, they go by NCCL or MPI (own and M, or the state itself, forward; a
 * gradient of the state's size backward). A variant of several states is taken
 * stage by stage in the same way: flin_stages.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "flin.h"

enum { T = 200, H = 2, K = 16, V = 24, STATE = H * K * V, MOVE = H * K * K,
       PARTS = 3, INPUTS = 5 };

static const int ends[PARTS + 1] = { 0, 90, 91, T };
static const char *const names[INPUTS] = { "q", "k", "v", "g", "beta" };
static const int widths[INPUTS] = { K, K, V, 1, 1 };

/* Of all tokens: the inputs and their gradients, y and its gradient. */
typedef struct Tokens {
    float in[INPUTS][T * H * V], din[INPUTS][T * H * V];
    float y[T * H * V], dy[T * H * V];
    float start[STATE], end[STATE];     /* of the state */
    float dstart[STATE], dend[STATE];
} Tokens;

/* What a device has. */
typedef struct Part {
    float own[STATE], M[MOVE];          /* it tells these */
    float start[STATE];                 /* and learns this */
    float down[STATE], dend[STATE], dstart[STATE];
} Part;

static float noise(float low, float high)
{
    static uint32_t x = 1;

    x = x * 1664525u + 1013904223u;
    return low + (high - low) * (float)(x >> 8) / (1 << 24);
}

/* Tokens from .. to - 1 of an array of so many numbers a token and head. */
static flin_Tensor tokens_of(float *a, int width, int from, int to)
{
    flin_Tensor t = { a + (size_t)from * H * width, FLIN_F32,
                      width > 1 ? 4 : 3, { 1, to - from, H, width }, { 0 } };
    return t;
}

static flin_Tensor state_of(float *a)
{
    return (flin_Tensor){ a, FLIN_F32, 4, { 1, H, K, V }, { 0 } };
}

static int failed(const flin_Error *e)
{
    fprintf(stderr, "%s\n", e->text);
    return 1;
}

/* The binds of a call, or of its gradients. */
static void bind_inputs(flin_Bind *to, float (*of)[T * H * V], int from,
                        int end)
{
    for (int i = 0; i < INPUTS; i++)
        to[i] = (flin_Bind){ names[i], tokens_of(of[i], widths[i], from,
                                                 end) };
}

static int summary(flin_Variant *v, Tokens *x, Part *p, int i, flin_Error *e)
{
    flin_Bind in[INPUTS], final = { "S", state_of(p->own) };
    flin_Tensor M = { p->M, FLIN_F32, 4, { 1, H, K, K }, { 0 } };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = INPUTS,
                       .final = &final, .nfinal = 1 };

    bind_inputs(in, x->in, ends[i], ends[i + 1]);
    return flin_summary(v, &call, &M, e);
}

/* to = M s + own; back: to = M^T s + own. */
static void after(const float *M, const float *s, const float *own, int back,
                  float *to)
{
    for (int h = 0; h < H; h++)
        for (int k = 0; k < K; k++)
            for (int n = 0; n < V; n++) {
                double sum = own[(h * K + k) * V + n];
                for (int j = 0; j < K; j++)
                    sum += (double)M[(h * K + (back ? j : k)) * K
                                     + (back ? k : j)]
                         * s[(h * K + j) * V + n];
                to[(h * K + k) * V + n] = (float)sum;
            }
}

static int forward(flin_Variant *v, Tokens *x, float *start, float *end,
                   int from, int to, flin_Error *e)
{
    flin_Bind in[INPUTS], first = { "S", state_of(start) };
    flin_Bind last = { "S", state_of(end) };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = INPUTS,
                       .initial = &first, .ninitial = 1, .final = &last,
                       .nfinal = 1, .y = tokens_of(x->y, V, from, to) };

    bind_inputs(in, x->in, from, to);
    return flin_forward(v, &call, e);
}

/* The gradients of tokens and of what they start from; din NULL: of that
 * alone. dend NULL: nothing is behind them. */
static int backward(flin_Variant *v, Tokens *x, float *start, float *dend,
                    float *dstart, float (*din)[T * H * V], int from, int to,
                    flin_Error *e)
{
    flin_Bind in[INPUTS], d[INPUTS], first = { "S", state_of(start) };
    flin_Bind behind = { "S", state_of(dend) };
    flin_Bind before = { "S", state_of(dstart) };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = INPUTS,
                       .initial = &first, .ninitial = 1 };
    flin_Grad grad = { .size = sizeof grad, .dfinal = &behind,
                       .ndfinal = dend != NULL, .dinput = d,
                       .ndinput = din ? INPUTS : 0, .dinitial = &before,
                       .ndinitial = 1, .dy = tokens_of(x->dy, V, from, to) };

    bind_inputs(in, x->in, from, to);
    if (din)
        bind_inputs(d, din, from, to);
    return flin_backward(v, &call, &grad, e);
}

/* All of it, by parts. */
static int run_parts(flin_Variant *v, Tokens *x, Part *part, flin_Error *e)
{
    int code = 0;

    for (int i = 0; i < PARTS && !code; i++)            /* each by itself */
        code = summary(v, x, &part[i], i, e);
    memcpy(part[0].start, x->start, sizeof part[0].start);
    for (int i = 1; i < PARTS && !code; i++)            /* told */
        after(part[i - 1].M, part[i - 1].start, part[i - 1].own, 0,
              part[i].start);
    for (int i = 0; i < PARTS && !code; i++)            /* each by itself */
        code = forward(v, x, part[i].start, x->end, ends[i], ends[i + 1], e);
    for (int i = 0; i < PARTS && !code; i++)            /* each by itself */
        code = backward(v, x, part[i].start, NULL, part[i].down, NULL,
                        ends[i], ends[i + 1], e);
    memcpy(part[PARTS - 1].dend, x->dend, sizeof x->dend);
    for (int i = PARTS - 1; i > 0 && !code; i--)        /* told */
        after(part[i].M, part[i].dend, part[i].down, 1, part[i - 1].dend);
    for (int i = 0; i < PARTS && !code; i++)            /* each by itself */
        code = backward(v, x, part[i].start, part[i].dend, part[i].dstart,
                        x->din, ends[i], ends[i + 1], e);
    memcpy(x->dstart, part[0].dstart, sizeof x->dstart);
    return code;
}

static double off(const float *a, const float *b, size_t n)
{
    double error = 0, sum = 0;

    for (size_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        sum += (double)b[i] * b[i];
    }
    return sqrt(error / sum);
}

static void fill(Tokens *x)
{
    for (int i = 0; i < T * H * V; i++) {
        for (int j = 0; j < 3; j++)
            x->in[j][i] = j == 1 ? noise(0, 0.3f) : noise(-1, 1);
        x->in[3][i] = noise(-0.1f, 0);
        x->in[4][i] = noise(0, 1);
        x->dy[i] = noise(-1, 1);
    }
    for (int i = 0; i < STATE; i++) {
        x->start[i] = noise(-1, 1);
        x->dend[i] = noise(-1, 1);
    }
}

int main(void)
{
    static Tokens parts, whole;
    static Part part[PARTS];
    flin_Error e;
    flin_State *s = flin_open(NULL, &e);
    flin_Variant *v = s ? flin_stdlib(s, "gated_deltanet", &e) : NULL;

    if (!v)
        return failed(&e);
    fill(&parts);
    whole = parts;
    if (forward(v, &whole, whole.start, whole.end, 0, T, &e)
        || backward(v, &whole, whole.start, whole.dend, whole.dstart,
                    whole.din, 0, T, &e)
        || run_parts(v, &parts, part, &e))
        return failed(&e);
    double worst = fmax(off(parts.y, whole.y, T * H * V),
                        off(parts.end, whole.end, STATE));
    double worst_d = off(parts.dstart, whole.dstart, STATE);
    for (int i = 0; i < INPUTS; i++)
        worst_d = fmax(worst_d, off(parts.din[i], whole.din[i],
                                    (size_t)T * H * widths[i]));
    printf("three parts beside one: y and the state %.1e, gradients %.1e\n",
           worst, worst_d);
    flin_close(s);
    return worst < 2e-5 && worst_d < 1e-4 ? 0 : 1;
}
