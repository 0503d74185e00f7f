/* call.c -- the elements of a tensor, in whatever type they are kept. */
#include "call.h"

#include <math.h>
#include <string.h>

static const struct { const char *name; int size; } dtypes[NDTYPES] = {
    [F32] = { "float32", 4 },
    [BF16] = { "bfloat16", 2 },
    [F16] = { "float16", 2 },
    [F64] = { "float64", 8 },
    [I32] = { "int32", 4 },
    [I64] = { "int64", 8 },
};

int dtype_size(DType d)
{
    return dtypes[d].size;
}

const char *dtype_name(DType d)
{
    return dtypes[d].name;
}

View view_shared(const Input *in, const int32_t size[NAXES], DType d,
                 void *data, int64_t batch, int64_t tokens, int64_t *bytes)
{
    View v = { .data = data, .dtype = d, .heads = 1 };
    int64_t n = 1, rows = in->timed ? tokens : 0;

    for (int i = in->rank; i-- > 0; n *= size[in->order[i]])
        v.sd[i] = n;
    v.st = rows ? n : 0;
    v.sb = n * rows;
    *bytes = n * (rows ? rows * batch : 1) * dtype_size(d);
    return v;
}

static uint64_t double_bits(double x)
{
    uint64_t u;

    memcpy(&u, &x, 8);
    return u;
}

static float bits_float(uint32_t u)
{
    float x;

    memcpy(&x, &u, 4);
    return x;
}

/* x with a sign bit, `ebits` of exponent and `mbits` of fraction, rounded
 * once, from the double, to nearest even. A NaN stays one, and quiet. */
static uint16_t narrow(double x, int ebits, int mbits)
{
    uint64_t u = double_bits(x), sign = u >> 63 << (ebits + mbits);
    uint64_t fraction = u & 0xfffffffffffffu;
    int bias = (1 << (ebits - 1)) - 1, top = (1 << ebits) - 1;
    int e = (int)(u >> 52 & 0x7ff), shift = 52 - mbits;

    if (e == 0x7ff && fraction)
        return (uint16_t)(sign | (uint64_t)top << mbits | 1u << (mbits - 1));
    if (e == 0)                         /* below every 16-bit number */
        return (uint16_t)sign;
    e = e - 1023 + bias;
    if (e >= top)
        return (uint16_t)(sign | (uint64_t)top << mbits);
    fraction |= (uint64_t)1 << 52;
    if (e < 1) {                        /* subnormal: a larger shift */
        shift += 1 - e;
        e = 1;
    }
    if (shift > 54)
        return (uint16_t)sign;
    uint64_t kept = fraction >> shift, half = (uint64_t)1 << (shift - 1);
    uint64_t rest = fraction & (2 * half - 1);
    if (rest > half || (rest == half && (kept & 1)))
        kept++;
    /* the leading one of `kept` adds one to the exponent, a carry another */
    return (uint16_t)(sign | (((uint64_t)(e - 1) << mbits) + kept));
}

static double half_value(uint16_t h)
{
    int e = h >> 10 & 31;
    uint32_t sign = (uint32_t)h >> 15 << 31, m = h & 1023u;

    if (e == 31)
        return bits_float(sign | 0x7f800000u | m << 13);
    if (e == 0)
        return (h >> 15 ? -1.0 : 1.0) * m / 16777216.0;
    return bits_float(sign | (uint32_t)(e + 112) << 23 | m << 13);
}

double view_get(const View *v, int64_t at)
{
    switch (v->dtype) {
    case F32: return ((const float *)v->data)[at];
    case F64: return ((const double *)v->data)[at];
    case BF16:
        return bits_float((uint32_t)((const uint16_t *)v->data)[at] << 16);
    case F16: return half_value(((const uint16_t *)v->data)[at]);
    case I32: return ((const int32_t *)v->data)[at];
    case I64: return (double)((const int64_t *)v->data)[at];
    case NDTYPES: break;
    }
    return 0;
}

/* The whole number next to x; one that is no index for what is none. */
static int64_t whole(double x, double least, double most)
{
    return x >= least && x <= most ? (int64_t)rint(x) : (int64_t)least;
}

void view_set(const View *v, int64_t at, double x)
{
    switch (v->dtype) {
    case F32: ((float *)v->data)[at] = (float)x; break;
    case F64: ((double *)v->data)[at] = x; break;
    case BF16: ((uint16_t *)v->data)[at] = narrow(x, 8, 7); break;
    case F16: ((uint16_t *)v->data)[at] = narrow(x, 5, 10); break;
    case I32:
        ((int32_t *)v->data)[at] = (int32_t)whole(x, INT32_MIN, INT32_MAX);
        break;
    case I64:
        ((int64_t *)v->data)[at] = whole(x, -0x1p63, 0x1p62);
        break;
    case NDTYPES: break;
    }
}

bool call_place(const Call *call, const View *v, int64_t seq, int64_t token,
                int64_t *at)
{
    const Pages *p = &call->pages;
    View index = { .data = (void *)(uintptr_t)p->at, .dtype = p->dtype };

    *at = seq * v->sb + (token > 0 ? token * v->st : 0);
    if (!p->at)
        return true;
    double entry = view_get(&index, seq * p->sn + (token + 1) * p->sc);
    if (!(entry >= 0 && entry < (double)p->states))
        return false;
    *at = (int64_t)entry * v->sb;
    return true;
}

/* ---- states of a plan's own ---- */

/* What an entry becomes of another and of what it was. */
typedef double Entry(double x, double was);

static double same(double x, double was) { (void)was; return x; }

static double turned(double x, double was)
{
    (void)was;
    return remainder(x, 2 * 3.14159265358979323846);
}

static double beyond_float(double x, double was)
{
    (void)was;
    return isfinite((float)x) ? x - (double)(float)x : 0;
}

static double joined(double lost, double was)
{
    return isfinite(lost) ? was + lost : was;
}

/* Of the states before the calls' tokens, or of what these leave. */
static void each_entry(const Graph *g, const State *s, const Call *call,
                       const View *from, const View *to, bool left, Entry *f)
{
    int64_t n = s->rank ? g->axis[s->order[0]].size : 1, of, own;
    bool each = left && call->each;

    for (int64_t seq = 0; seq < call->nseq; seq++)
        for (int64_t t = each ? 0 : -1; t < (each ? call->tokens : 0); t++) {
            if (!call_place(call, from, seq, t, &of)
                || !call_place(call, to, seq, t, &own))
                continue;
            for (int h = 0; h < call->heads; h++)
                for (int64_t i = 0; i < n; i++) {
                    int64_t x = of + h * from->sh + i * from->sd[0];
                    int64_t at = own + h * to->sh + i * to->sd[0];
                    view_set(to, at, f(view_get(from, x), view_get(to, at)));
                }
        }
}

/* Memory for a state of at most one axis, zero; as many as there are to tell
 * apart. */
static View aside(Ctx *c, const Graph *g, const State *s, const Call *call)
{
    int64_t n = s->rank ? g->axis[s->order[0]].size : 1;
    int64_t tokens = call->each && !call->pages.at ? call->tokens : 1;
    int64_t all = call->pages.at ? call->pages.states : call->nseq;
    View to = { .dtype = F64, .heads = call->heads, .sd = { 1 }, .sh = n,
                .st = n * call->heads, .sb = n * call->heads * tokens };

    to.data = ctx_alloc(c, (size_t)(all * to.sb) * 8 + 1);
    return to;
}

static bool is_wide(const Call *call, const View *v)
{
    return !call->on_device && v->data && v->dtype == F64;
}

/* The memory that a twin starts from may be its state's end, too; and float32
 * has no room for the turns. */
static void start_twin(Ctx *c, const Graph *g, int i, Call *own)
{
    const State *s = &g->st[i];
    const View from = own->s0[s->twin_of - 1];
    bool wide = is_wide(own, &from);

    own->s0[i] = from;
    if (own->on_device || !from.data
        || (!wide && from.data != own->s1[s->twin_of - 1].data))
        return;
    own->s0[i] = aside(c, g, s, own);
    each_entry(g, s, own, &from, &own->s0[i], false,
               wide ? turned : same);
}

static void start_lost(Ctx *c, const Graph *g, int i, Call *own, bool floats)
{
    const State *s = &g->st[i];
    const View *from = &own->s0[s->lost_of - 1];

    own->s0[i].data = own->s1[i].data = NULL;
    if (!floats)
        return;
    if (is_wide(own, from)) {
        own->s0[i] = aside(c, g, s, own);
        each_entry(g, s, own, from, &own->s0[i], false, beyond_float);
    }
    if (is_wide(own, &own->s1[s->lost_of - 1]))
        own->s1[i] = aside(c, g, s, own);
}

const Call *call_twins(Ctx *c, const Graph *g, const Call *call, bool floats)
{
    Call *own = NULL;

    for (int i = 0; i < g->nst; i++) {
        if (!g->st[i].twin_of && !g->st[i].lost_of)
            continue;
        if (!own)
            own = memcpy(ctx_alloc(c, sizeof *own), call, sizeof *own);
        if (g->st[i].twin_of)
            start_twin(c, g, i, own);
        else
            start_lost(c, g, i, own, floats);
    }
    return own ? own : call;
}

void call_join(const Graph *g, const Call *own)
{
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].lost_of && own->s1[i].data)
            each_entry(g, &g->st[i], own, &own->s1[i],
                       &own->s1[g->st[i].lost_of - 1], true, joined);
}

double *view_entries(const View *v, const uint8_t *order, int rank,
                     const int32_t *size, AxisSet axes, int64_t at, double *p,
                     bool store)
{
    if (!axes) {
        if (store)
            view_set(v, at, *p);
        else
            *p = view_get(v, at);
        return p + 1;
    }
    int ax = lowest(axes), d = 0;
    while (d + 1 < rank && order[d] != ax)
        d++;
    for (int32_t k = 0; k < size[ax]; k++)
        p = view_entries(v, order, rank, size, axes & (axes - 1),
                         at + k * v->sd[d], p, store);
    return p;
}

int64_t entry_count(const int32_t *size, AxisSet axes)
{
    int64_t n = 1;

    for (; axes; axes &= axes - 1)
        n *= size[lowest(axes)];
    return n;
}
