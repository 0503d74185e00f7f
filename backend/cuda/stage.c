/* stage.c -- host tensors: their spans copied to the device and back. */
#include "stage.h"

#include <string.h>

/* A view's bytes in the host's memory, and the copy: float32 for float64,
 * since kernels compute in that. */
typedef struct Span {
    char *host;
    size_t bytes;
    int64_t elements;
    bool wide;
    DevicePtr copy;
} Span;

enum { SPANS = MAX_INPUTS + MAX_OUTPUTS + 2 * MAX_STATES };

typedef struct Stage {
    Gpu *gpu;
    const Graph *g;
    const Call *from;
    Call call;
    Span span[SPANS], *result[SPANS];
    int n, nresults;
    StageFn *f;
    void *ud;
} Stage;

/* The least and the greatest of the elements' places, and how many. */
typedef struct Extent { int64_t low, high, count; } Extent;

static void extend(Extent *e, int64_t n, int64_t stride)
{
    int64_t far = (n - 1) * stride;
    e->low += far < 0 ? far : 0;
    e->high += far > 0 ? far : 0;
    e->count *= n;
}

/* Of the tokens of all sequences. */
static Extent token_extent(const Call *call, const View *v)
{
    Extent all = { 0, -1, 0 };
    for (int64_t i = 0; i < call->nseq; i++) {
        const Seq *s = &call->seq[i];
        Extent e = { s->b * v->sb + s->start * v->st, 0, 1 };
        e.high = e.low;
        if (!s->len)
            continue;
        extend(&e, s->len, v->st);
        all.low = all.count && all.low < e.low ? all.low : e.low;
        all.high = all.count && all.high > e.high ? all.high : e.high;
        all.count += e.count;
    }
    return all;
}

static Extent extent_of(const Stage *s, const View *v, bool timed, bool state,
                        const uint8_t *order, int rank)
{
    Extent e = { 0, 0, 1 };
    if (timed)
        e = token_extent(s->from, v);
    if (state)
        extend(&e, s->from->nseq, v->sb);
    if (!e.count)
        return e;
    extend(&e, v->heads ? v->heads : s->from->heads, v->sh);
    for (int i = 0; i < rank; i++)
        extend(&e, s->g->axis[order[i]].size, v->sd[i]);
    return e;
}

static float *narrow(Ctx *c, const Span *s)
{
    float *to = ctx_alloc(c, s->bytes + 1);
    for (int64_t i = 0; i < s->elements; i++)
        to[i] = (float)((const double *)s->host)[i];
    return to;
}

static void copy_in(Ctx *c, const Driver *d, const Span *s)
{
    if (s->bytes)
        device_put(c, d, s->copy, s->wide ? (void *)narrow(c, s) : s->host,
                   s->bytes);
}

static void copy_out(Ctx *c, const Driver *d, const Span *s)
{
    float *x = s->wide ? ctx_alloc(c, s->bytes + 1) : NULL;
    if (s->bytes)
        device_get(c, d, x ? (void *)x : s->host, s->copy, s->bytes);
    for (int64_t i = 0; x && i < s->elements; i++)
        ((double *)s->host)[i] = (double)x[i];
}

/* Points the view at a copy; a result's is copied in, too, where there is
 * something between its elements. */
static void put_view(Ctx *c, Stage *s, View *v, Extent e, bool result)
{
    Span *span = &s->span[s->n];
    bool dense = e.count == e.high - e.low + 1;
    int64_t size = dtype_size(v->dtype == F64 ? F32 : v->dtype);
    if (!v->data)
        return;
    if (v->dtype == F64 && result && !dense)
        fail_help(c, 0, "float32", "a result in float64 must be one piece"
                  " where the GPU is to write it");
    *span = (Span){ .host = (char *)v->data + e.low * dtype_size(v->dtype),
                    .wide = v->dtype == F64 };
    span->elements = e.count > 0 ? e.high - e.low + 1 : 0;
    span->bytes = (size_t)(span->elements * size);
    span->copy = gpu_alloc(c, s->gpu, span->bytes);
    s->n++;
    if (result)
        s->result[s->nresults++] = span;
    if (!result || !dense)
        copy_in(c, gpu_driver(s->gpu), span);
    v->data = (void *)(uintptr_t)(span->copy - (uint64_t)(e.low * size));
    if (span->wide)
        v->dtype = F32;
}

static void run_stage(Ctx *c, void *ud)
{
    Stage *s = ud;
    const Graph *g = s->g;
    const Driver *d = gpu_enter(c, s->gpu);
    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        View *v = &s->call.in[i];
        put_view(c, s, v, extent_of(s, v, in->timed, false, in->order,
                                    in->rank), false);
    }
    for (int i = 0; i < g->nst; i++) {
        const State *st = &g->st[i];
        View *v = &s->call.s0[i], *w = &s->call.s1[i];
        put_view(c, s, v, extent_of(s, v, false, true, st->order, st->rank),
                 false);
        Extent e = extent_of(s, w, false, true, st->order, st->rank);
        if (s->from->each)              /* behind each token */
            extend(&e, s->from->tokens, w->st);
        put_view(c, s, w, e, true);
    }
    for (int i = 0; i < g->nout; i++) {
        const Output *o = &g->out[i];
        View *v = &s->call.out[i];
        bool timed = v->sb || v->st;    /* else all share it */
        put_view(c, s, v, extent_of(s, v, timed, false, o->order, o->rank),
                 true);
    }
    s->call.on_device = s->call.staged = true;
    s->call.stream = NULL;
    s->f(c, s->ud, &s->call);
    for (int i = 0; i < s->nresults; i++)
        copy_out(c, d, s->result[i]);
    device_sync(c, d);
}

void stage_run(Ctx *c, Gpu *gpu, const Graph *g, const Call *call,
               StageFn *f, void *ud)
{
    Stage *s = ctx_alloc(c, sizeof *s);
    *s = (Stage){ .gpu = gpu, .g = g, .from = call, .call = *call, .f = f,
                  .ud = ud };
    bool ok = ctx_protect(c, run_stage, s);
    for (int i = 0; i < s->n; i++)
        gpu_free(gpu, s->span[i].copy, s->span[i].bytes);
    if (!ok)
        ctx_rethrow(c);
}
