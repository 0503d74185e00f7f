/* verify.c -- kernels on a small call, beside the interpreter: compilers err,
 * and a kernel that they got wrong must not come into the cache.
 *
 * A result is right if it is off by what its own type and the tiles' lose, or
 * by little more than what rounding does to it: a gradient may be a sum that
 * cancels. It is looked at head by head, and row by row: beside a head that
 * forgets nothing, all that one with decay has is small. The draws are to be
 * such that the step stays bounded: where it does not, rows of inputs without a
 * domain get unit length, then less.
 */
#include "build.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "../../compiler/domain.h"
#include "../../compiler/transition.h"
#include "run.h"

/* Two sequences, neither a multiple of a chunk; of the heads, one without
 * decay: where a register of ptxas's was used again too soon, no other head
 * showed it. */
enum { HEADS = 2, SEQUENCES = 2, SECOND = 3 };

/* Sizes of the numbers drawn, the first as inputs usually are; how often they
 * are drawn where some result is a sum that cancels; runs that are rounded, of
 * which the mean says how far rounding leads. */
enum { SIZES = 6, DRAWS = 4, ROUNDED = 2 };

/* What rounding to a type loses, at most. */
static double rounds_by(DType d)
{
    return d == BF16 ? 0x1p-8 : d == F16 ? 0x1p-11 : 0x1p-24;
}

/* How much farther than the rounded runs a right kernel may be off, of n
 * numbers: it rounds in other places, and few numbers say little of how far
 * rounding leads. Right ones of the standard library stay below 1.4. */
static double farther(int64_t n)
{
    return 4 + 48.0 / (double)(n * ROUNDED);
}

/* A draw says nothing where rounding alone may be off by this. */
static const double untold = .16;

/* What a step's values may come to. */
static double most(const CudaOptions *o)
{
    return o->tile == F16 ? 2e4 : 1e6;
}

/* A step that makes more than this of what rounding does, for a value of 1,
 * shows nothing of its kernel. */
static const double unsteady = 3e-2;

typedef struct Block { DevicePtr p; size_t bytes; } Block;

enum { BLOCKS = MAX_INPUTS + MAX_OUTPUTS + 2 * MAX_STATES + 2 };

typedef struct Trial {
    Gpu *gpu;
    const Driver *d;
    const Build *b, *ends;
    const Plan *p;
    const Graph *g;
    int64_t tokens, rows;               /* of a batch entry, of all */
    Seq seq[SEQUENCES];
    Call truth, call;                   /* in the host's memory; on the GPU */
    Call rounded[ROUNDED];              /* as the truth, from when on they */
    bool has_rounded;                   /* are wanted */
    Block block[BLOCKS];
    int n;
    uint64_t seed;
    int smaller;                        /* than at first: of SIZES */
    bool settled[MAX_OUTPUTS + MAX_STATES];     /* results that are right */
    bool beyond;                        /* what float32 has, on the way */
    const char *why;                    /* the kernels are wrong */
} Trial;

/* The most terms that a product adds up. */
static int longest_sum(const Graph *g)
{
    int most = g->chunk;
    for (int a = AX_DIM; a < g->naxes; a++)
        most = g->axis[a].size > most ? g->axis[a].size : most;
    return most;
}

/* What products lose, at most: float32's are three of TF32, of parts of 11 bits
 * and of what these leave, but for the least; and a tensor core cuts what it
 * adds to, each time, where it adds eight terms of one of the three. */
static double unit_of(const Trial *t)
{
    enum { PRODUCTS = 3, TERMS = 8 };
    DType tile = t->b->o.tile;
    double adds = (double)PRODUCTS * longest_sum(t->g) / TERMS;
    return tile == BF16 || tile == F16 ? rounds_by(tile)
         : 0x1p-20 + adds * rounds_by(F32);
}

/* That, beside what it is of float16: some limits are of 16 bits. */
static double part_of(const Trial *t)
{
    return fmin(1, unit_of(t) / rounds_by(F16));
}

/* ---- numbers ---- */

static double uniform(Trial *t)
{
    t->seed = t->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(t->seed >> 11) / 9007199254740992.0;
}

/* As its domain has it; but a head may be without any decay. */
static double draw(Trial *t, const char *domain, int head)
{
    const Domain *d = domain_named(domain);
    double x = (uniform(t) + uniform(t) + uniform(t) + uniform(t) - 2) * 1.7;

    if (head && domain_within(d, -INFINITY, 0))
        return 0;
    return !d ? x : d->draw(d->uniform ? uniform(t) : x);
}

/* Row-major, behind sequences or tokens and heads. */
static View layout(const Trial *t, DType d, int heads, int64_t sequences,
                   int64_t tokens, const uint8_t *order, int rank)
{
    View v = { .dtype = d, .heads = heads };
    int64_t n = 1;
    for (int i = rank; i-- > 0; n *= t->g->axis[order[i]].size)
        v.sd[i] = n;
    v.sh = n;
    v.st = tokens ? n * heads : 0;
    v.sb = sequences ? n * heads : tokens * n * heads;
    return v;
}

static int64_t elements(const View *v, int64_t rows)
{
    return v->sh * v->heads * rows;
}

static View in_host(Ctx *c, View v, int64_t rows)
{
    v.data = ctx_alloc(c, (size_t)elements(&v, rows)
                          * (size_t)dtype_size(v.dtype) + 1);
    return v;
}

/* With what the host has, or full of what is not a number. */
static View on_gpu(Ctx *c, Trial *t, View v, int64_t rows, const void *from)
{
    size_t bytes = (size_t)elements(&v, rows) * (size_t)dtype_size(v.dtype);
    Block *b = &t->block[t->n];
    b->p = gpu_alloc(c, t->gpu, bytes);
    b->bytes = bytes;
    t->n++;
    if (from)
        device_put(c, t->d, b->p, from, bytes);
    else
        device_fill(c, t->d, b->p, 0xff, bytes);
    v.data = (void *)(uintptr_t)b->p;
    return v;
}

/* Whether such numbers may be drawn smaller. */
static bool is_free(const char *domain)
{
    return domain_named(domain) == &domains[0];
}

/* Smaller rows have length 1, 1/2 ...; numbers are half as large. */
static double shrunk(const Trial *t, const char *domain, double norm,
                     bool vector)
{
    double by = ldexp(1, vector ? 1 - t->smaller : -t->smaller);
    const Domain *d = domain_named(domain);
    if (d && d->row)
        return 1 / norm;
    return !t->smaller || !is_free(domain) ? 1 : vector ? by / norm : by;
}

static void fill(Trial *t, const View *v, int64_t rows, const char *domain)
{
    for (int64_t r = 0; r < rows * v->heads; r++) {
        double norm = 0;
        for (int64_t i = r * v->sh; i < (r + 1) * v->sh; i++) {
            double x = draw(t, domain, (int)(r % v->heads));
            view_set(v, i, x);
            norm += x * x;
        }
        double by = shrunk(t, domain, sqrt(norm), v->sh > 1);
        for (int64_t i = r * v->sh; i < (r + 1) * v->sh && by != 1; i++)
            view_set(v, i, by * view_get(v, i));
    }
}

/* What is positive is a sound state of any step; beside writes that are small
 * it is small. */
static void fill_state(Trial *t, const View *v)
{
    int64_t n = elements(v, SEQUENCES);
    fill(t, v, SEQUENCES, "positive");
    for (int64_t i = 0; i < n && t->smaller; i++)
        view_set(v, i, view_get(v, i) / 16);
}

/* ---- the call ---- */

static void make_inputs(Ctx *c, Trial *t)
{
    const CudaOptions *o = &t->b->o;
    for (int i = 0; i < t->g->nin; i++) {
        const Input *in = &t->g->in[i];
        int64_t rows = in->timed ? t->rows : 1;
        View v = layout(t, o->in[i], HEADS, 0, in->timed ? t->tokens : 0,
                        in->order, in->rank);
        if (!in->timed)
            v.sb = 0;
        t->truth.in[i] = in_host(c, v, rows);
        fill(t, &t->truth.in[i], rows, in->domain);
        t->call.in[i] = on_gpu(c, t, v, rows, t->truth.in[i].data);
    }
}

/* A sum starts from nothing. */
static void make_states(Ctx *c, Trial *t)
{
    const CudaOptions *o = &t->b->o;
    for (int i = 0; i < t->g->nst; i++) {
        const State *st = &t->g->st[i];
        View v = layout(t, o->s0[i], HEADS, SEQUENCES, 0, st->order,
                        st->rank);
        if (!o->sum_s1[i] && !st->lost_of) {
            t->truth.s0[i] = in_host(c, v, SEQUENCES);
            fill_state(t, &t->truth.s0[i]);
            t->call.s0[i] = on_gpu(c, t, v, SEQUENCES,
                                   t->truth.s0[i].data);
        }
        if (st->twin_of) {
            t->truth.s0[i] = t->truth.s0[st->twin_of - 1];
            t->call.s0[i] = t->call.s0[st->twin_of - 1];
        }
        v.dtype = F64;
        t->truth.s1[i] = in_host(c, v, SEQUENCES);
        v = layout(t, o->s1[i], o->sum_s1[i] ? 1 : HEADS, SEQUENCES, 0,
                   st->order, st->rank);
        if (o->sum_s1[i])
            v.sb = 0;
        t->call.s1[i] = on_gpu(c, t, v, o->sum_s1[i] ? 1 : SEQUENCES, NULL);
    }
}

static void make_outputs(Ctx *c, Trial *t)
{
    const CudaOptions *o = &t->b->o;
    for (int i = 0; i < t->g->nout; i++) {
        const Output *out = &t->g->out[i];
        View v = layout(t, F64, HEADS, 0, t->tokens, out->order, out->rank);
        t->truth.out[i] = in_host(c, v, t->rows);
        v = layout(t, o->out[i], o->sum_out[i] ? 1 : HEADS, 0, t->tokens,
                   out->order, out->rank);
        t->call.out[i] = on_gpu(c, t, v, t->rows, NULL);
    }
}

static bool has_shared(const CudaModule *m)
{
    bool any = false;
    for (int i = 0; i < m->nkernels; i++)
        any |= m->kernel[i].split;
    return any;
}

/* Whether blocks may share a sequence: of two that do the second has but the
 * last chunk, behind lean iterations for those of the first. */
static bool is_shared(const Trial *t)
{
    return has_shared(t->b->m);
}

/* Three chunks where they are shared: one iteration goes on from another. */
static void make_call(Ctx *c, Trial *t)
{
    bool longer = t->g->chunk && t->smaller < SIZES - 1;
    int64_t chunks = is_shared(t) ? 2 : 1;
    int64_t first = longer ? chunks * t->g->chunk + 7 : 5;
    if (t->b->o.single) {
        t->tokens = 1;
        t->rows = SEQUENCES;
        t->seq[0] = (Seq){ 0, 0, 1 };
        t->seq[1] = (Seq){ 1, 0, 1 };
    } else {
        t->tokens = t->rows = first + SECOND;
        t->seq[0] = (Seq){ 0, 0, first };
        t->seq[1] = (Seq){ 0, first, SECOND };
    }
    t->truth.nseq = SEQUENCES;
    t->truth.seq = t->seq;
    t->truth.heads = HEADS;
    t->truth.tokens = t->tokens;
    t->truth.threads = 1;
    t->truth.interrupted = c->interrupted;
    t->truth.interrupt_ud = c->interrupt_ud;
    for (int a = 0; a < NAXES; a++)
        t->truth.size[a] = t->g->axis[a].size;
    t->call = t->truth;
    t->call.on_device = true;
    make_inputs(c, t);
    make_states(c, t);
    make_outputs(c, t);
}

/* ---- running ---- */

/* As if the machine had one multiprocessor: blocks that stay have all chunks
 * and heads in sequence, and add up what heads share, as in a call of many. */
static const CudaModule *as_crowded(Ctx *c, const CudaModule *m)
{
    CudaModule *few = ctx_alloc(c, sizeof *few);
    *few = *m;
    few->units = 1;
    return few;
}

static void launch_kernels(Ctx *c, Trial *t, const Build *b, DevicePtr seq,
                           DevicePtr workspace)
{
    const CudaModule *m = as_crowded(c, b->m);
    for (int i = 0; i < m->nkernels; i++)
        launch(c, t->d, launch_new(c, t->d, b->f[i], m, &m->kernel[i],
               t->p, &t->call, seq, workspace), NULL);
}

static void forget(Ctx *c, Trial *t, const View *v, int64_t rows)
{
    device_fill(c, t->d, (DevicePtr)(uintptr_t)v->data, 0xff,
                (size_t)elements(v, rows) * (size_t)dtype_size(v->dtype));
}

/* What those kernels make is not yet there. */
static void forget_ends(Ctx *c, Trial *t, const CudaKernel *k)
{
    for (int i = 0; i < k->ntensors; i++) {
        const View *v = &t->call.s1[k->tensor[i].index];
        if (k->tensor[i].kind == ARG_NEXT)
            forget(c, t, v, v->sb ? SEQUENCES : 1);
    }
}

static void run_kernels(Ctx *c, Trial *t)
{
    const CudaModule *m = as_crowded(c, t->b->m);
    HostSequence seq[SEQUENCES];
    int64_t need = cuda_workspace(m, t->p, &t->call);
    Block *b = &t->block[t->n];
    for (int i = 0; i < SEQUENCES; i++)
        seq[i] = (HostSequence){ 0, 0, t->seq[i].start, t->seq[i].len };
    enum { TABLE = 256 };
    b->bytes = (size_t)need + TABLE;
    b->p = gpu_alloc(c, t->gpu, b->bytes);
    t->n++;
    device_fill(c, t->d, b->p, 0xff, b->bytes);
    device_put(c, t->d, b->p, seq, sizeof seq);
    gpu_running(t->gpu, ctx_format(c, "the first run of %s's kernels",
                                   t->g->name));
    launch_kernels(c, t, t->b, b->p, b->p + TABLE);
    for (int i = 0; t->ends && i < t->ends->m->nkernels; i++)
        forget_ends(c, t, &t->ends->m->kernel[i]);
    if (t->ends)
        launch_kernels(c, t, t->ends, b->p, b->p + TABLE);
    device_sync(c, t->d);
}

static void interpret(Ctx *c, Trial *t)
{
    if (t->g->chunk)
        interpret_chunks(c, t->g, &t->truth);
    else
        reference_run(c, t->g, &t->truth);
}

/* The same call, rounded, a few times. */
static void interpret_again(Ctx *c, Trial *t)
{
    for (int k = 0; k < ROUNDED && !t->has_rounded; k++) {
        Call *call = &t->rounded[k];
        *call = t->truth;
        for (int i = 0; i < t->g->nout; i++)
            call->out[i] = in_host(c, call->out[i], t->rows);
        for (int i = 0; i < t->g->nst; i++)
            call->s1[i] = in_host(c, call->s1[i], SEQUENCES);
        interpret_rounded(c, t->g, call, unit_of(t),
                          (uint64_t)k + 1);
    }
    t->has_rounded = true;
}

/* ---- results ---- */

/* A result of the trial: out[index], or the state's next value. */
typedef struct Result {
    bool state;
    int index;
    const char *name;
    const View *got, *want;
    const View *lost;                   /* of a state: the rest of it, beyond
                                           float32; or NULL */
    int64_t rows;
    bool every_row;                     /* it is the sum over all rows */
    bool angle;
} Result;

static const View *lost_of(const Trial *t, int state)
{
    for (int i = 0; i < t->g->nst; i++)
        if (t->g->st[i].lost_of == state + 1)
            return &t->call.s1[i];
    return NULL;
}

static Result result_of(const Trial *t, int i)
{
    int s = i - t->g->nout;
    if (s < 0)
        return (Result){ .index = i, .name = t->g->out[i].name,
                         .got = &t->call.out[i], .want = &t->truth.out[i],
                         .rows = t->rows };
    return (Result){ .state = true, .index = s, .name = t->g->st[s].name,
                     .got = &t->call.s1[s], .want = &t->truth.s1[s],
                     .lost = lost_of(t, s), .rows = SEQUENCES,
                     .every_row = t->b->o.sum_s1[s],
                     .angle = t->g->st[s].angle };
}

static const double *rounded_at(const Trial *t, const Result *r, int k)
{
    const Call *call = &t->rounded[k];
    return r->state ? call->s1[r->index].data : call->out[r->index].data;
}

/* What is no number in both is equal. */
static double difference(double got, double want, bool angle)
{
    const double whole = 6.283185307179586;
    double e = got - want;
    if (isnan(got) && isnan(want))
        return 0;
    return angle ? e - whole * floor(e / whole + 0.5) : e;
}

/* Sums of squares over a result: the error, the truth, and what rounding does
 * to it, where that is known. */
typedef struct Sums { double error, truth, rounding; int64_t n; } Sums;

/* Adds to what element `at` of the truth stands for. */
static void add_element(const Trial *t, const Result *r, int64_t at,
                        double *truth, double *rounding)
{
    double want = ((const double *)r->want->data)[at];
    *truth += want;
    for (int k = 0; k < ROUNDED && t->has_rounded; k++) {
        double e = difference(rounded_at(t, r, k)[at], want, r->angle);
        *rounding += isfinite(e) ? e * e / ROUNDED : 0;
    }
}

/* Of one head's row of the kernels' result: of the truth's, what heads share,
 * and maybe rows, is added up. */
static Sums sums_of(const Trial *t, const Result *r, const View *host,
                    int64_t row, int head)
{
    int times = HEADS / host->heads;
    int64_t per = r->every_row ? r->rows : 1, n = host->sh;
    int64_t mine = (row * host->heads + head) * n;
    int64_t first = (row * HEADS + head * times) * n;
    Sums sums = { .n = n };
    for (int64_t x = 0; x < n; x++) {
        double truth = 0, e;
        for (int64_t i = 0; i < per; i++)
            for (int h = 0; h < times; h++)
                add_element(t, r, first + (i * HEADS + h) * n + x, &truth,
                            &sums.rounding);
        e = difference(view_get(host, mine + x), truth, r->angle);
        sums.error += e * e;
        sums.truth += isnan(truth) ? 0 : truth * truth;
    }
    return sums;
}

/* What float32 has no number for is as good as zero, but not large. */
static double size_of(Sums s)
{
    return s.truth > 0 ? fmax(sqrt(s.truth), FLT_MIN) : 1;
}

static bool is_close(const Trial *t, const Result *r, Sums s)
{
    double unit = unit_of(t) + rounds_by(r->got->dtype);
    double own = fmax(unit * size_of(s), FLT_MIN);  /* that has fewer bits */
    return sqrt(s.error) <= own + farther(s.n) * sqrt(s.rounding);
}

/* Whether such a draw would show a wrong kernel. */
static bool is_telling(const Trial *t, Sums s)
{
    return farther(s.n) * sqrt(s.rounding)
        <= untold * part_of(t) * size_of(s);
}

/* A row may be off by twice as much; one that is smaller than most, or on which
 * rounding happens to do less, by what its head's rows are off in the mean. */
static bool is_row_close(const Trial *t, const Result *r, Sums row, Sums head)
{
    double part = (double)row.n / (double)head.n;
    row.truth = 4 * fmax(row.truth, head.truth * part);
    row.rounding = 4 * fmax(row.rounding, head.rounding * part);
    return is_close(t, r, row);
}

static double off_by(Sums s)
{
    double off = sqrt(s.error) / size_of(s);
    return isnan(off) ? INFINITY : off;
}

/* How far a head of `host` is off, at most, where that is too far, or 0; and
 * its sums. A row is what one token has. */
static double far_off(Ctx *c, const Trial *t, const Result *r,
                      const View *host, int h, Sums *head)
{
    int64_t n = r->every_row ? 1 : r->rows;
    Sums *row = ctx_alloc(c, (size_t)n * sizeof *row);
    double worst = 0;
    *head = (Sums){ 0 };
    for (int64_t i = 0; i < n; i++) {
        row[i] = sums_of(t, r, host, i, h);
        head->error += row[i].error;
        head->truth += row[i].truth;
        head->rounding += row[i].rounding;
        head->n += row[i].n;
    }
    if (!is_close(t, r, *head))
        worst = off_by(*head);
    for (int64_t i = 0; i < n; i++)
        if (!is_row_close(t, r, row[i], *head))
            worst = fmax(worst, off_by(row[i]));
    return worst;
}

static View fetch(Ctx *c, const Trial *t, const View *v, int64_t rows)
{
    View host = in_host(c, *v, rows);
    device_get(c, t->d, host.data, (DevicePtr)(uintptr_t)v->data,
               (size_t)elements(&host, rows)
               * (size_t)dtype_size(host.dtype));
    return host;
}

/* The kernels' result; with what is kept beside it, their sum. */
static View fetch_whole(Ctx *c, const Trial *t, const Result *r, int64_t rows)
{
    View host = fetch(c, t, r->got, rows), whole = host;
    if (!r->lost)
        return host;
    View lost = fetch(c, t, r->lost, rows);
    whole.dtype = F64;
    whole = in_host(c, whole, rows);
    for (int64_t i = 0; i < elements(&whole, rows); i++)
        view_set(&whole, i, view_get(&host, i) + view_get(&lost, i));
    return whole;
}

/* Settles what can be told by this draw. Where rounding alone may be off by so
 * much that it tells nothing, something on the way may be too large for
 * float32: exp of a quotient whose denominator is nearly zero. */
static void compare(Ctx *c, Trial *t, int i)
{
    Result r = result_of(t, i);
    int64_t groups = r.every_row ? 1 : r.rows;
    t->settled[i] = true;
    if (r.state && t->g->st[r.index].lost_of)
        return;                         /* it is part of another's */
    View host = fetch_whole(c, t, &r, groups);
    for (int h = 0; h < host.heads; h++) {
        Sums head;
        double off = far_off(c, t, &r, &host, h, &head);
        if (off > 0 && !t->has_rounded) {
            interpret_again(c, t);
            off = far_off(c, t, &r, &host, h, &head);
        }
        t->settled[i] = t->settled[i] && is_telling(t, head);
        if (isinf(off) && !is_telling(t, head) && t->smaller < SIZES - 1)
            t->beyond = true;
        else if (off > 0 && !t->why)
            t->why = ctx_format(c, "gets %s wrong (by %.1e)", r.name, off);
    }
}

/* ---- draws that say something ---- */

static bool is_bounded(const Trial *t)
{
    for (int i = 0; i < t->g->nout + t->g->nst; i++) {
        Result r = result_of(t, i);
        const double *x = r.want->data;
        for (int64_t k = 0; k < elements(r.want, r.rows); k++)
            if (!(fabs(x[k]) <= most(&t->b->o)))
                return false;
    }
    return true;
}

/* Of the way forward. */
static bool is_steady(const Trial *t)
{
    double limit = unsteady * part_of(t);
    for (int i = 0; i < t->g->nout + t->g->nst; i++) {
        Result r = result_of(t, i);
        bool back = r.state ? t->g->st[r.index].reverse : i > 0;
        Sums s = { 0 };
        for (int64_t k = 0; k < elements(r.want, r.rows) && !back; k++) {
            double truth = 0;
            add_element(t, &r, k, &truth, &s.rounding);
            s.truth += truth * truth;
        }
        if (s.rounding > limit * limit * s.truth)
            return false;
    }
    return true;
}

typedef enum Outcome { DONE, OTHERS, SMALLER } Outcome;

/* Of what is not settled yet; with blocks that share sequences nothing is. */
static Outcome run_and_compare(Ctx *c, Trial *t, bool shared)
{
    Outcome outcome = DONE;
    t->call.shared = shared;
    run_kernels(c, t);
    for (int i = 0; i < t->g->nout + t->g->nst; i++) {
        bool settled = t->settled[i];
        if (!settled || shared)
            compare(c, t, i);
        outcome = t->settled[i] ? outcome : OTHERS;
        t->settled[i] = shared ? settled : t->settled[i];
        Result r = result_of(t, i);
        if (shared)
            forget(c, t, r.got, r.every_row ? 1 : r.rows);
    }
    return outcome;
}

/* One draw; whether other numbers are wanted, or smaller ones. */
static Outcome attempt(Ctx *c, Trial *t)
{
    bool last = t->smaller == SIZES - 1;
    t->has_rounded = t->beyond = false;
    make_call(c, t);
    interpret(c, t);
    if (!last && !is_bounded(t))
        return SMALLER;
    if (is_shared(t))
        run_and_compare(c, t, true);
    Outcome outcome = run_and_compare(c, t, false);
    if (!last && !t->why && t->beyond) {
        memset(t->settled, 0, sizeof t->settled);
        return SMALLER;
    }
    if (!last && t->has_rounded && !is_steady(t)) {
        t->why = NULL;
        memset(t->settled, 0, sizeof t->settled);
        return SMALLER;
    }
    return t->why ? DONE : outcome;
}

static void free_blocks(Trial *t)
{
    while (t->n) {
        t->n--;
        gpu_free(t->gpu, t->block[t->n].p, t->block[t->n].bytes);
    }
}

static void trial(Ctx *c, void *ud)
{
    Trial *t = ud;
    for (int draws = 0; draws < DRAWS; ) {
        Outcome outcome = attempt(c, t);
        free_blocks(t);
        if (outcome == DONE)
            return;
        draws += outcome == OTHERS;
        t->smaller += outcome == SMALLER;
    }
}

/* Whether that is what the kernels run into which are tried, as types that they
 * were not made for, or a launch that the driver refuses. */
static bool is_outcome(const Error *e)
{
    return e->code == ERR_USER || e->code == ERR_LIMIT
        || e->code == ERR_DEVICE;
}

bool build_verify(Ctx *c, Gpu *g, const Build *b, const Build *ends,
                  const Plan *p, const char **wrong, Error *why)
{
    Trial *t = ctx_alloc(c, sizeof *t);
    if (ends && moved_state(ends->m->plan->g) >= 0)
        p = plan_moved(c, p);
    *t = (Trial){ .gpu = g, .d = gpu_enter(c, g), .b = b, .ends = ends,
                  .p = p, .g = p->g, .seed = 20 };
    bool ok = ctx_protect(c, trial, t);
    free_blocks(t);
    if (!ok && !is_outcome(&c->err))
        ctx_rethrow(c);
    if (!ok)
        *why = c->err;
    *wrong = t->why;
    return ok;
}
