/* pairs_verify.c -- kernels over all pairs on a small call, beside the sum in
 * double: compilers err, and what they got wrong is not to be used.
 */
#include "pairs.h"

#include <math.h>
#include <string.h>

#include "../../compiler/domain.h"

enum { TOKENS = 70, PIECES = 2 * MAX_INPUTS + 2, ALIGN = 256 };

/* A wrong kernel is off by half; sums that cancel are off by more than others.
 */
static const double allowed = 8e-2, allowed_sum = 0.3;

/* The same tensor in the host's memory and on the device. */
typedef struct Piece {
    View *device;
    void *host;
    size_t bytes, at;
    bool put;
} Piece;

typedef struct Trial {
    const PairsCall *like;
    const bool *floats;
    const Graph *step;
    PairPrograms **all;
    PairsRun *run;
    PairsRoom *room;
    Gpu *gpu;
    Seq seq;
    Call truth, call;
    View dy, want[MAX_INPUTS], got[MAX_INPUTS], y;
    PairsCall pairs;
    Piece piece[PIECES];
    int n;
    size_t bytes;
    DevicePtr p;
    uint64_t seed;
    const char *why;
} Trial;

static double uniform(Trial *t)
{
    t->seed = t->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(t->seed >> 11) / 9007199254740992.0;
}

static double draw(Trial *t, const char *domain)
{
    const Domain *d = domain_named(domain);
    double x = (uniform(t) + uniform(t) + uniform(t) + uniform(t) - 2) * 1.7;

    return !d ? x : d->draw(d->uniform ? uniform(t) : x);
}

static int64_t count_of(const Trial *t, const View *v)
{
    return v->st ? v->st * TOKENS : v->sh * t->call.heads;
}

/* Of one head, row-major. */
static View room(Ctx *c, Trial *t, DType d, const uint8_t *order, int rank,
                 bool timed)
{
    View v = { .dtype = d, .heads = 1 };
    int64_t n = 1;

    for (int i = rank; i-- > 0; n *= t->call.size[order[i]])
        v.sd[i] = n;
    v.sh = n;
    v.st = timed ? n : 0;
    v.sb = timed ? n * TOKENS : 0;
    v.data = ctx_alloc(c, (size_t)count_of(t, &v) * (size_t)dtype_size(d) + 1);
    return v;
}

static void add_piece(Trial *t, View *device, const View *host, bool put)
{
    size_t bytes = (size_t)count_of(t, host) * (size_t)dtype_size(host->dtype);

    *device = *host;
    t->piece[t->n++] = (Piece){ device, host->data, bytes, t->bytes, put };
    t->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void fill(Trial *t, const View *v, const char *domain)
{
    for (int64_t i = 0; i < count_of(t, v); i++)
        view_set(v, i, draw(t, domain));
}

static void make_inputs(Ctx *c, Trial *t)
{
    const PairsCall *like = t->like;

    for (int i = 0; i < t->step->nin; i++) {
        const Input *in = &t->step->in[i];
        View v = room(c, t, like->call->in[i].dtype, in->order, in->rank,
                      in->timed);
        fill(t, &v, in->domain);
        t->truth.in[i] = v;
        add_piece(t, &t->call.in[i], &v, true);
    }
}

/* Gradients: of q, k and v as the kernels leave them. */
static void make_gradients(Ctx *c, Trial *t)
{
    static const char *const name[] = { "q", "k", "v" };

    for (int i = 0; i < t->step->nin; i++) {
        const Input *in = &t->step->in[i];
        DType d = t->like->call->in[i].dtype;
        if (!t->like->dx[i].data)
            continue;
        for (int k = 0; k < 3; k++)
            if (!strcmp(in->name, name[k]) && t->floats[k])
                d = F32;
        t->want[i] = room(c, t, F64, in->order, in->rank, in->timed);
        t->got[i] = room(c, t, d, in->order, in->rank, in->timed);
        add_piece(t, &t->pairs.dx[i], &t->got[i], false);
    }
}

static void make_results(Ctx *c, Trial *t)
{
    const Output *o = &t->step->out[0];
    DType type = t->like->call->out[0].dtype;

    if (t->like->backward) {
        t->dy = room(c, t, t->like->dy.dtype, o->order, o->rank, true);
        fill(t, &t->dy, "");
        add_piece(t, &t->pairs.dy, &t->dy, true);
        make_gradients(c, t);
        t->call.out[0].dtype = type;
        return;
    }
    t->truth.out[0] = room(c, t, F64, o->order, o->rank, true);
    t->y = room(c, t, type, o->order, o->rank, true);
    add_piece(t, &t->call.out[0], &t->y, false);
}

/* How far off, by the root of squares; 0: the truth says nothing. */
static double distance(const Trial *t, const View *got, const View *want)
{
    double error = 0, truth = 0;

    for (int64_t i = 0; i < count_of(t, want); i++) {
        double x = view_get(want, i), d = view_get(got, i) - x;
        error += d * d;
        truth += x * x;
    }
    if (!isfinite(truth) || truth == 0)
        return 0;
    return isfinite(error) ? sqrt(error / truth) : INFINITY;
}

static void judge(Ctx *c, Trial *t, const char *what, const View *got,
                  const View *want, double limit)
{
    double e = distance(t, got, want);

    if (e > limit && !t->why)
        t->why = ctx_format(c, "gets %s wrong (by %.1g)", what, e);
}

static void try(Ctx *c, void *ud)
{
    Trial *t = ud;
    const Driver *d = gpu_enter(c, t->gpu);

    size_t bytes = (size_t)t->room(c, t->gpu, t->all, &t->pairs);
    t->p = device_alloc(c, d, t->bytes + bytes + 1);
    t->call.workspace = (void *)(uintptr_t)(t->p + t->bytes);
    t->call.workspace_size = (int64_t)bytes;
    for (int i = 0; i < t->n; i++) {
        Piece *p = &t->piece[i];
        p->device->data = (void *)(uintptr_t)(t->p + p->at);
        if (p->put)
            device_put(c, d, t->p + p->at, p->host, p->bytes);
    }
    t->run(c, t->gpu, t->all, &t->pairs);
    device_sync(c, d);
    for (int i = 0; i < t->n; i++)
        if (!t->piece[i].put)
            device_get(c, d, t->piece[i].host, t->p + t->piece[i].at,
                       t->piece[i].bytes);
}

static void compare(Ctx *c, Trial *t)
{
    if (!t->like->backward) {
        mask_run(c, t->step, &t->truth);
        judge(c, t, "y", &t->y, &t->truth.out[0], allowed);
        return;
    }
    mask_back(c, t->step, &t->truth, &t->dy, t->want);
    for (int i = 0; i < t->step->nin; i++) {
        const Input *in = &t->step->in[i];
        if (t->want[i].data && in->timed)
            judge(c, t, in->name, &t->got[i], &t->want[i], in->rank
                  ? allowed : allowed_sum);
    }
}

const char *pairs_verify(Ctx *c, Gpu *g, PairPrograms **all, PairsRun *run,
                         PairsRoom *bytes, const PairsCall *like,
                         const bool floats[3])
{
    Trial *t = ctx_alloc(c, sizeof *t);

    *t = (Trial){ .like = like, .floats = floats, .step = like->step,
                  .all = all, .run = run, .room = bytes, .gpu = g,
                  .seq = { 0, 0, TOKENS }, .seed = 7 };
    t->truth = (Call){ .nseq = 1, .seq = &t->seq, .heads = 1 };
    memcpy(t->truth.size, like->call->size, sizeof t->truth.size);
    t->call = t->truth;
    t->call.on_device = true;
    t->call.tokens = TOKENS;
    t->pairs = (PairsCall){ .step = like->step, .call = &t->call,
                            .backward = like->backward };
    make_inputs(c, t);
    make_results(c, t);
    bool ok = ctx_protect(c, try, t);
    if (t->p)
        device_free(gpu_driver(g), t->p);
    if (!ok)
        ctx_rethrow(c);
    compare(c, t);
    return t->why;
}
