/* bench.c -- generated kernels on a GPU: against the float64 step, bit for bit
 * over repeated launches, and timed. Prints a line a case; the last says how
 * many passed. `bench quick` leaves out the timings, `bench timed` all else,
 * `bench NAME...` other variants.
 */
#include "../../backend/cuda/driver.h"
#include "../../backend/cuda/nvrtc.h"
#include "variants.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Case {
    const char *variant;
    int B, T, H, HK;                    /* HK: heads of inputs with axis k */
    int k, v, groups;
    bool packed, states, timed;
    double bytes;                       /* least, a token and head */
} Case;

static const Case cases[] = {
    { "simple_gla", 1, 64, 1, 1, 128, 128, 1, 0, 0, 0, 0 },
    { "simple_gla", 2, 200, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "simple_gla", 2, 333, 4, 4, 128, 128, 2, 0, 1, 0, 0 },
    { "simple_gla", 1, 1, 2, 1, 128, 128, 2, 0, 1, 0, 0 },
    { "simple_gla", 1, 700, 4, 4, 128, 128, 2, 1, 1, 0, 0 },
    { "simple_gla", 2, 150, 3, 3, 64, 128, 2, 0, 1, 0, 0 },
    { "simple_gla", 2, 150, 3, 3, 96, 40, 1, 0, 1, 0, 0 },
    { "linear", 2, 200, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "fixed_decay", 2, 200, 4, 2, 128, 128, 2, 0, 1, 0, 0 },
    { "mamba2", 2, 333, 4, 1, 128, 64, 1, 0, 1, 0, 0 },
    { "gated", 1, 533, 4, 4, 128, 128, 2, 1, 1, 0, 0 },
    { "simple_gla", 2, 150, 3, 3, 64, 256, 2, 0, 1, 0, 0 },
    { "lightning", 1, 533, 4, 2, 128, 128, 2, 1, 1, 0, 0 },
    { "deltanet", 2, 333, 4, 4, 128, 128, 1, 0, 1, 0, 0 },
    { "gated_deltanet", 2, 333, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "gated_deltanet", 1, 700, 4, 4, 64, 128, 2, 1, 1, 0, 0 },
    { "simple_gla", 1, 4500, 2, 1, 128, 128, 1, 0, 1, 0, 0 },
    { "simple_gla", 1, 9000, 2, 1, 64, 128, 2, 1, 1, 0, 0 },
    { "mamba2", 1, 8500, 2, 1, 128, 128, 1, 0, 1, 0, 0 },
    { "gla", 1, 64, 1, 1, 64, 64, 1, 0, 0, 0, 0 },
    { "gla", 2, 333, 4, 4, 128, 128, 1, 0, 1, 0, 0 },
    { "gla", 1, 700, 4, 2, 128, 128, 2, 1, 1, 0, 0 },
    { "hgrn2", 2, 200, 4, 4, 128, 128, 1, 0, 1, 0, 0 },
    { "hgrn2", 1, 533, 4, 4, 40, 96, 1, 1, 1, 0, 0 },
    { "kda", 2, 333, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "kda", 1, 700, 4, 4, 64, 128, 2, 1, 1, 0, 0 },
    { "gdn2", 2, 333, 4, 4, 64, 64, 1, 0, 1, 0, 0 },
    { "rwkv6", 2, 333, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "rwkv6", 1, 700, 4, 4, 64, 128, 2, 1, 1, 0, 0 },
    { "rwkv7", 2, 333, 4, 4, 64, 64, 1, 0, 1, 0, 0 },
    { "gdn2", 2, 333, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "rwkv7", 1, 700, 4, 4, 128, 128, 1, 1, 1, 0, 0 },
    { "retnet", 2, 333, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "retnet", 1, 700, 4, 4, 128, 128, 2, 1, 1, 0, 0 },
    { "deltanet_rope", 2, 333, 4, 4, 128, 128, 1, 0, 1, 0, 0 },
    { "deltanet_rope", 1, 700, 4, 2, 64, 128, 2, 1, 1, 0, 0 },
    { "precond_delta", 2, 333, 4, 4, 128, 128, 1, 0, 1, 0, 0 },
    { "precond_delta", 1, 700, 4, 2, 64, 64, 1, 1, 1, 0, 0 },
    { "precond_delta_k", 2, 333, 4, 4, 128, 128, 1, 0, 1, 0, 0 },
    { "precond_delta_k", 1, 700, 4, 2, 64, 64, 1, 1, 1, 0, 0 },
    { "retnet", 1, 9000, 2, 2, 128, 128, 1, 1, 1, 0, 0 },
    { "lightning", 1, 4500, 2, 1, 128, 128, 1, 0, 1, 0, 0 },
    { "gla", 1, 4500, 2, 1, 128, 128, 1, 0, 1, 0, 0 },
    { "trapezoidal_gla", 2, 333, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "trapezoidal_gla", 1, 700, 4, 4, 128, 128, 2, 1, 1, 0, 0 },
    { "trapezoidal_gla", 1, 4500, 2, 1, 128, 128, 1, 0, 1, 0, 0 },
    { "mamba3", 2, 333, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "mamba3", 1, 700, 4, 4, 64, 128, 2, 1, 1, 0, 0 },
    { "mamba3", 1, 4500, 2, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "mlstm", 1, 4500, 2, 1, 128, 128, 1, 0, 1, 0, 0 },
    { "mlstm", 2, 333, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "mlstm", 1, 700, 4, 4, 64, 128, 2, 1, 1, 0, 0 },
    { "precond_mamba3", 2, 333, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "precond_mamba3", 1, 700, 4, 4, 64, 64, 1, 1, 1, 0, 0 },
    { "deltaproduct", 2, 333, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "deltaproduct", 1, 700, 4, 4, 64, 128, 2, 1, 1, 0, 0 },
    { "mimo_deltanet", 2, 333, 4, 2, 128, 128, 1, 0, 1, 0, 0 },
    { "mimo_deltanet", 1, 700, 4, 4, 128, 128, 2, 1, 1, 0, 0 },
    { "simple_gla", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1028 },
    { "simple_gla", 2, 16384, 16, 16, 128, 128, 1, 0, 0, 1, 1028 },
    { "simple_gla", 1, 32768, 16, 16, 128, 128, 1, 0, 0, 1, 1028 },
    { "simple_gla", 1, 8192, 96, 96, 128, 128, 2, 0, 0, 1, 1028 },
    { "simple_gla", 4, 4096, 64, 64, 128, 128, 2, 0, 0, 1, 1028 },
    { "mamba2", 1, 8192, 96, 96, 128, 128, 2, 0, 0, 1, 1028 },
    { "lightning", 1, 8192, 96, 96, 128, 128, 2, 0, 0, 1, 1024 },
    { "lightning", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1024 },
    { "lightning", 2, 16384, 16, 16, 128, 128, 1, 0, 0, 1, 1024 },
    { "retnet", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1024 },
    { "retnet", 2, 16384, 16, 16, 128, 128, 1, 0, 0, 1, 1024 },
    { "retnet", 1, 8192, 96, 96, 128, 128, 2, 0, 0, 1, 1024 },
    { "gated_deltanet", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1032 },
    { "gated_deltanet", 2, 16384, 16, 16, 128, 128, 1, 0, 0, 1, 1032 },
    { "gated_deltanet", 1, 8192, 96, 96, 128, 128, 2, 0, 0, 1, 1032 },
    { "gla", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1280 },
    { "gla", 2, 16384, 16, 16, 128, 128, 1, 0, 0, 1, 1280 },
    { "gla", 1, 8192, 96, 96, 128, 128, 2, 0, 0, 1, 1280 },
    { "kda", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1284 },
    { "kda", 2, 16384, 16, 16, 128, 128, 1, 0, 0, 1, 1284 },
    { "kda", 1, 8192, 96, 96, 128, 128, 1, 0, 0, 1, 1284 },
    { "gdn2", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1792 },
    { "gdn2", 2, 16384, 16, 16, 128, 128, 1, 0, 0, 1, 1792 },
    { "gdn2", 1, 8192, 96, 96, 128, 128, 1, 0, 0, 1, 1792 },
    { "rwkv6", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1280 },
    { "precond_delta", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1036 },
    { "precond_delta", 2, 16384, 16, 16, 128, 128, 1, 0, 0, 1, 1036 },
    { "precond_delta_k", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1288 },
    { "precond_delta_k", 2, 16384, 16, 16, 128, 128, 1, 0, 0, 1, 1288 },
    { "deltanet_rope", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1156 },
    { "rwkv7", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1792 },
    { "trapezoidal_gla", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1032 },
    { "trapezoidal_gla", 1, 8192, 96, 96, 128, 128, 2, 0, 0, 1, 1032 },
    { "mamba3", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1160 },
    { "mamba3", 1, 8192, 96, 96, 128, 128, 2, 0, 0, 1, 1160 },
    { "mamba3", 2, 16384, 16, 16, 128, 128, 1, 0, 0, 1, 1160 },
    { "mlstm", 2, 16384, 16, 16, 128, 128, 1, 0, 0, 1, 1032 },
    { "mlstm", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1032 },
    { "mlstm", 1, 8192, 96, 96, 128, 128, 2, 0, 0, 1, 1032 },
    { "precond_mamba3", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1160 },
    { "deltaproduct", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 1544 },
    { "deltaproduct", 1, 8192, 96, 96, 128, 128, 2, 0, 0, 1, 1544 },
    { "mimo_deltanet", 4, 2048, 16, 16, 128, 128, 1, 0, 0, 1, 2568 },
    { "mimo_deltanet", 1, 8192, 96, 96, 128, 128, 2, 0, 0, 1, 2568 },
};
enum { NCASES = sizeof cases / sizeof *cases, SETS = 3, RUNS = 50 };

/* ---- numbers ---- */

typedef struct Rng { uint64_t s; } Rng;

static double uniform(Rng *r)
{
    r->s = r->s * 6364136223846793005u + 1442695040888963407u;
    return (double)(r->s >> 11) / 9007199254740992.0;
}

static double normal(Rng *r)
{
    return (uniform(r) + uniform(r) + uniform(r) + uniform(r) - 2) * 1.732;
}

/* Head h of a decay: as drawn, a sixteenth, none, `most` times. */
static double draw(Rng *r, const char *domain, int head, double most)
{
    const double strength[4] = { 1, 1.0 / 16, 0, most };
    double x = normal(r);
    if (!strcmp(domain, "log_decay"))
        return -log1p(exp(-x)) * strength[head & 3];
    if (!strcmp(domain, "positive"))
        return log1p(exp(x));
    if (!strcmp(domain, "unit"))
        return 1 / (1 + exp(-x));
    return x;
}

/* ---- a case's tensors, on the host and on the device ---- */

typedef struct Tensor {
    View host, device[SETS];
    int64_t count;
    size_t bytes;
} Tensor;

typedef struct Run {
    Ctx *c;
    const Driver *d;
    const Case *k;
    const Graph *g;
    const Plan *p;
    Call call, on[SETS];
    Tensor in[MAX_INPUTS], out, s0[MAX_STATES], s1[MAX_STATES];
    DevicePtr seq;
    double error, state_error;
    Event *mark[RUNS + 1];
} Run;

static void tensor(Run *r, Tensor *t, DType d, int heads, int64_t outer,
                   int64_t tokens, const uint8_t *order, int rank)
{
    View *v = &t->host;
    int64_t at = 1;
    for (int i = rank; i-- > 0; at *= r->call.size[order[i]])
        v->sd[i] = at;
    v->dtype = d;
    v->heads = heads;
    v->sh = at;
    v->st = tokens ? at * heads : 0;
    v->sb = outer ? at * heads * (tokens ? tokens : 1) : 0;
    t->count = at * heads * (tokens ? tokens : 1) * (outer ? outer : 1);
    t->bytes = (size_t)t->count * (size_t)dtype_size(d);
    v->data = malloc(t->bytes + 1);
    int sets = r->k->timed ? SETS : 1;
    for (int i = 0; i < sets; i++) {
        t->device[i] = *v;
        t->device[i].data = (void *)(uintptr_t)device_alloc(r->c, r->d,
                                                            t->bytes);
    }
}

static DevicePtr address(const View *v)
{
    return (DevicePtr)(uintptr_t)v->data;
}

static void upload(Run *r, Tensor *t)
{
    int sets = r->k->timed ? SETS : 1;
    for (int i = 0; i < sets; i++)
        device_put(r->c, r->d, address(&t->device[i]), t->host.data,
                   t->bytes);
}

static void unit_norm(Tensor *t, int64_t n)
{
    for (int64_t at = 0; at < t->count; at += n) {
        double sum = 0;
        for (int64_t i = at; i < at + n; i++)
            sum += view_get(&t->host, i) * view_get(&t->host, i);
        for (int64_t i = at; i < at + n; i++)
            view_set(&t->host, i, view_get(&t->host, i) / sqrt(sum));
    }
}

static DType type_of(const Input *in)
{
    return in->rank ? BF16 : F32;
}

static void make_inputs(Run *r, Rng *rng)
{
    for (int i = 0; i < r->g->nin; i++) {
        const Input *in = &r->g->in[i];
        bool keyed = false;
        for (int a = 0; a < in->rank; a++)
            keyed |= !strcmp(r->g->axis[in->order[a]].name, "k");
        int heads = keyed ? r->k->HK : r->k->H;
        Tensor *t = &r->in[i];
        tensor(r, t, type_of(in), heads, in->timed ? r->k->B : 0,
               in->timed ? r->k->T : 0, in->order, in->rank);
        int64_t inner = t->host.sh;
        for (int64_t a = 0; a < t->count; a++)
            view_set(&t->host, a, draw(rng, in->domain,
                                       (int)(a / inner % heads),
                                       r->k->timed ? 0.25 : 8));
        if (!strcmp(in->domain, "unit_norm"))
            unit_norm(t, r->call.size[in->order[in->rank - 1]]);
        upload(r, t);
        r->call.in[i] = t->host;
        for (int s = 0; s < SETS; s++)
            r->on[s].in[i] = t->device[s];
    }
}

/* Matrices, and what stands for the token before, start as they may; the
 * others at zero, since not every start makes sense for them. */
static void make_state(Run *r, int i, Rng *rng)
{
    const State *st = &r->g->st[i];
    Tensor *from = &r->s0[i], *to = &r->s1[i];
    int64_t n = r->call.nseq;
    tensor(r, to, F32, r->k->H, n, 0, st->order, st->rank);
    r->on[0].s1[i] = to->device[0];
    if (st->rank < 2 && strncmp(st->name, "prev_", 5))
        return;
    tensor(r, from, F32, r->k->H, n, 0, st->order, st->rank);
    for (int64_t a = 0; a < from->count; a++)
        view_set(&from->host, a, normal(rng));
    upload(r, from);
    r->on[0].s0[i] = from->device[0];
    r->call.s0[i] = from->host;
}

static void make_results(Run *r, Rng *rng)
{
    const Output *o = &r->g->out[0];
    tensor(r, &r->out, BF16, r->k->H, r->k->B, r->k->T, o->order, o->rank);
    for (int s = 0; s < SETS; s++)
        r->on[s].out[0] = r->out.device[s];
    for (int i = 0; r->k->states && i < r->g->nst; i++)
        make_state(r, i, rng);
}

/* Sequences: one a batch entry; or, packed, of many lengths, one empty. */
static void make_sequences(Run *r)
{
    static const int length[] = { 5, 0, 64, 1, 63, 128, 200 };
    struct { int32_t b, pad; int64_t start, len; } dev[32];
    Seq *s = ctx_alloc(r->c, 32 * sizeof *s);
    int64_t n = 0, at = 0;
    if (r->k->packed) {
        for (; n < 7 && at + length[n] <= r->k->T; n++) {
            s[n] = (Seq){ 0, at, length[n] };
            at += length[n];
        }
        s[n++] = (Seq){ 0, at, r->k->T - at };
    } else {
        for (; n < r->k->B; n++)
            s[n] = (Seq){ (int32_t)n, 0, r->k->T };
    }
    r->call.seq = s;
    r->call.nseq = n;
    r->call.heads = r->k->H;
    if (!r->k->packed)
        return;
    for (int64_t i = 0; i < n; i++) {
        dev[i].b = s[i].b;
        dev[i].pad = 0;
        dev[i].start = s[i].start;
        dev[i].len = s[i].len;
    }
    r->seq = device_alloc(r->c, r->d, sizeof dev);
    device_put(r->c, r->d, r->seq, dev, sizeof dev);
}

/* ---- against the step ---- */

static View one_head(View v, int head, int heads)
{
    char *p = v.data;
    int of = v.heads ? head / (heads / v.heads) : 0;
    if (p)
        v.data = p + of * v.sh * dtype_size(v.dtype);
    v.heads = 1;
    return v;
}

typedef struct Sums { double diff, ref; int64_t bad; } Sums;

static void compare(Sums *s, double got, double want)
{
    s->bad += !(fabs(got) < 1e30);
    s->diff += (got - want) * (got - want);
    s->ref += want * want;
}

static double relative(const Sums *s)
{
    return s->bad ? NAN : sqrt(s->diff / (s->ref + 1e-30));
}

/* The states after a sequence; angles are equal modulo 2 pi. */
static void check_states(Run *r, int64_t seq, int head, View *const *want,
                         Sums *state)
{
    const double turn = 6.283185307179586;
    for (int i = 0; i < r->g->nst; i++) {
        const View *v = &r->s1[i].host;
        for (int64_t a = 0; a < v->sh; a++) {
            double x = view_get(v, seq * v->sb + head * v->sh + a);
            double y = view_get(want[i], a);
            if (r->g->st[i].angle)
                x = y + remainder(x - y, turn);
            compare(state, x, y);
        }
    }
}

/* One sequence of one head in float64, and the device's results beside it. */
static void check_head(Run *r, int64_t seq, int head, Sums *y, Sums *state)
{
    Seq one = r->call.seq[seq];
    Call call = r->call;
    int64_t dv = r->k->v, b = one.b, t0 = one.start;
    double *out = calloc((size_t)(one.len * dv) + 1, sizeof *out);
    View *s1[MAX_STATES];
    call.seq = &one;
    call.nseq = 1;
    call.heads = 1;
    one.b = 0;
    one.start = 0;
    for (int i = 0; i < r->g->nin; i++) {
        View v = one_head(call.in[i], head, r->k->H);
        v.data = (char *)v.data + (b * v.sb + t0 * v.st)
                                * dtype_size(v.dtype);
        call.in[i] = v;
    }
    for (int i = 0; r->k->states && i < r->g->nst; i++) {
        View *v = &call.s0[i], *w = s1[i] = &call.s1[i];
        *v = one_head(*v, head, r->k->H);
        if (v->data)
            v->data = (char *)v->data + seq * v->sb * 4;
        *w = r->s1[i].host;
        w->dtype = F64;
        w->heads = 1;
        w->data = calloc((size_t)w->sh, sizeof(double));
    }
    call.out[0] = (View){ .data = out, .dtype = F64, .heads = 1, .st = dv,
                          .sd = { 1 } };
    reference_run(r->c, r->g, &call);
    const View *o = &r->out.host;
    for (int64_t t = 0; t < one.len; t++)
        for (int64_t i = 0; i < dv; i++)
            compare(y, view_get(o, b * o->sb + (t0 + t) * o->st + head * o->sh
                                + i), out[t * dv + i]);
    if (r->k->states)
        check_states(r, seq, head, s1, state);
    free(out);
    for (int i = 0; r->k->states && i < r->g->nst; i++)
        free(s1[i]->data);
}

static void check(Run *r)
{
    Sums y = { 0, 0, 0 }, s = { 0, 0, 0 };
    int64_t nseq = r->k->timed ? 1 : r->call.nseq;
    int heads = r->k->timed ? (r->k->T > 8192 ? 1 : 3) : r->k->H;
    for (int64_t i = 0; i < nseq; i++)
        for (int h = 0; h < heads; h++)     /* head 2 has no decay */
            check_head(r, r->call.nseq - 1 - i, r->k->timed
                       ? (h * 5 + 2) % r->k->H : h, &y, &s);
    for (int64_t i = 0; i < r->out.count; i++)
        y.bad += !(fabs(view_get(&r->out.host, i)) < 1e30);
    r->error = relative(&y);
    r->state_error = r->k->states ? relative(&s) : 0;
}

/* ---- running ---- */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float median_ms(Run *r, Launch *const *l)
{
    float ms[RUNS];
    for (int i = 0; i < 5; i++)
        launch(r->c, r->d, l[i % SETS], NULL);
    device_sync(r->c, r->d);
    for (int i = 0; i <= RUNS; i++)
        r->mark[i] = event_new(r->c, r->d);
    event_record(r->c, r->d, r->mark[0], NULL);
    for (int i = 0; i < RUNS; i++) {
        launch(r->c, r->d, l[i % SETS], NULL);
        event_record(r->c, r->d, r->mark[i + 1], NULL);
    }
    device_sync(r->c, r->d);
    for (int i = 0; i < RUNS; i++)
        ms[i] = event_ms(r->c, r->d, r->mark[i], r->mark[i + 1]);
    qsort(ms, RUNS, sizeof *ms, by_size);
    return ms[RUNS / 2];
}

/* The same bits again? The first run's are in out.host. */
static int changed(Run *r, Launch *l)
{
    void *again = malloc(r->out.bytes);
    int n = 0, times = r->k->timed ? 3 : 20;
    for (int i = 0; i < times; i++) {
        device_fill(r->c, r->d, address(&r->out.device[0]), 0xff,
                    r->out.bytes);
        launch(r->c, r->d, l, NULL);
        device_get(r->c, r->d, again, address(&r->out.device[0]),
                   r->out.bytes);
        n += memcmp(again, r->out.host.data, r->out.bytes) != 0;
    }
    free(again);
    return n;
}

typedef struct Job { const Case *k; const Driver *d; const Nvrtc *n; bool ok,
                     quick; } Job;

static void free_tensor(const Driver *d, Tensor *t, int sets)
{
    for (int s = 0; s < sets && t->host.data; s++)
        device_free(d, address(&t->device[s]));
    free(t->host.data);
}

static void run_case(Ctx *c, void *ud)
{
    Job *j = ud;
    const Case *k = j->k;
    Rng rng = { 12345 };
    Run *r = ctx_alloc(c, sizeof *r);
    Graph *step = variant_graph(c, k->variant);
    clock_t start = clock();
    r->c = c;
    r->d = j->d;
    r->k = k;
    r->p = plan_of(c, step, k->k, k->v);
    set_sizes(step, k->k, k->v, r->call.size);
    r->g = graph_sized(step, r->call.size);
    CudaOptions o = { .tile = BF16, .groups = k->groups, .split = true };
    for (int i = 0; i < r->g->nin; i++)
        o.vector[i] = type_of(&r->g->in[i]);
    CudaModule *m = cuda_emit(c, r->p, &o);
    Cubin *cubin = nvrtc_compile(c, j->n, m->source, "sm_90a");
    double ms = 1e3 * (double)(clock() - start) / CLOCKS_PER_SEC;
    Function *f = kernel_load(c, j->d, cubin->bytes, m->kernel);
    make_sequences(r);
    for (int s = 0; s < SETS; s++)
        r->on[s] = r->call;
    make_inputs(r, &rng);
    make_results(r, &rng);
    Launch *l[SETS];
    for (int s = 0; s < (k->timed ? SETS : 1); s++)
        l[s] = launch_new(c, j->d, f, m, m->kernel, r->p, &r->on[s], r->seq,
                          0);
    device_fill(c, j->d, address(&r->out.device[0]), 0xff, r->out.bytes);
    launch(c, j->d, l[0], NULL);
    device_sync(c, j->d);
    device_get(c, j->d, r->out.host.data, address(&r->out.device[0]),
               r->out.bytes);
    for (int i = 0; k->states && i < r->g->nst; i++)
        device_get(c, j->d, r->s1[i].host.data, address(&r->s1[i].device[0]),
                   r->s1[i].bytes);
    check(r);
    int moved = changed(r, l[0]);
    double most = strstr(k->variant, "delta") ? 6e-3 : 4e-3;
    j->ok = r->error < most && r->state_error < most && !moved;
    printf("%s %-11s B%d T%d H%d/%d K%d V%d x%d%s  y %.2e  state %.2e  "
           "changed %d  compiled %.0f ms", j->ok ? "ok  " : "FAIL",
           k->variant, k->B, k->T, k->H, k->HK, k->k, k->v, k->groups,
           k->packed ? " packed" : "", r->error, r->state_error, moved, ms);
    if (k->timed) {
        double t = median_ms(r, l);
        double least = (double)k->B * k->T * k->H * k->bytes / 4.27e12 * 1e3;
        printf("  %.4f ms, floor %.4f = %.0f %%", t, least, 100 * least / t);
    }
    printf("\n");
    fflush(stdout);
    int sets = k->timed ? SETS : 1;
    free_tensor(j->d, &r->out, sets);
    for (int i = 0; i < r->g->nin; i++)
        free_tensor(j->d, &r->in[i], sets);
    for (int i = 0; i < r->g->nst; i++) {
        free_tensor(j->d, &r->s0[i], sets);
        free_tensor(j->d, &r->s1[i], sets);
    }
}

static bool is_asked(const Case *k, int argc, char **argv)
{
    bool named = false, found = false;
    for (int i = 1; i < argc; i++) {
        bool quick = !strcmp(argv[i], "quick");
        if (quick || !strcmp(argv[i], "timed")) {
            if (k->timed == quick)
                return false;
            continue;
        }
        named = true;
        found |= !strcmp(argv[i], k->variant);
    }
    return found || !named;
}

int main(int argc, char **argv)
{
    Driver d;
    Nvrtc n;
    Ctx *c = ctx_new();
    int passed = 0, failed = 0;
    if (!driver_open(c, &d) || !nvrtc_open(c, &n)) {
        printf("skip: %s\n", c->err.message);
        return 0;
    }
    printf("compute %d, %d multiprocessors, NVRTC %d.%d\n", d.arch,
           d.processors, n.major, n.minor);
    for (int i = 0; i < NCASES; i++) {
        if (!is_asked(&cases[i], argc, argv))
            continue;
        Ctx *one = ctx_new();
        Job j = { .k = &cases[i], .d = &d, .n = &n };
        if (!ctx_protect(one, run_case, &j))
            printf("FAIL %s T%d: %s\n", cases[i].variant, cases[i].T,
                   one->err.message);
        passed += j.ok;
        failed += !j.ok;
        ctx_free(one);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
