/* api_memory.c -- where the tensors of a host's call lie: that each has a place
 * that can be, and that what is written lies on nothing else.
 *
 * Two tensors share a byte if some of their indices meet: sum c z = d with 0 <=
 * z <= n, c > 0, the strides of both in bytes. Sorted by c, each z has a choice
 * or two where strides are nested, as all usual ones are.
 */
#include <stdlib.h>
#include <string.h>

#include "api.h"

enum { STEPS = 100000 };                /* that a search may take */

/* ---- one tensor ---- */

/* Sizes of 0 aside: what follows from the others must be possible, too. */
static void check_size(Ctx *c, const char *what, const char *name,
                       const flin_Tensor *t)
{
    int64_t bytes = dtype_size((DType)t->dtype);
    bool ok = true;

    for (int i = 0; i < t->rank; i++) {
        int64_t n = t->shape[i] ? t->shape[i] : 1;
        ok = ok && n > 0 && n <= TENSOR_BYTES / bytes;
        bytes *= ok ? n : 1;
    }
    if (!ok)
        fail(c, 0, "%s: %s has shape %s: sizes are 0 or more, and a tensor "
             "has at most 2^48 bytes", what, name,
             shape_text(c, t->rank, t->shape));
}

static void check_strides(Ctx *c, const char *what, const char *name,
                          const flin_Tensor *t)
{
    int64_t most = TENSOR_BYTES / dtype_size((DType)t->dtype), far;
    bool ok = true;

    for (int i = 0; i < t->rank && ok; i++) {
        if (t->shape[i] < 2)
            continue;
        ok = !__builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &far)
          && far <= most && far >= -most;
        most -= !ok ? 0 : far < 0 ? -far : far;
    }
    if (!ok)
        fail(c, 0, "%s: %s has strides %s: its elements lie more than 2^48 "
             "bytes apart", what, name, shape_text(c, t->rank, t->stride));
}

/* The stride of an axis of fewer than two entries says nothing: it becomes what
 * a row-major tensor would have. */
void place_tensor(Ctx *c, const char *what, const char *name,
                  const flin_Tensor *t, Given *g)
{
    int64_t step = 1;
    bool packed = true;

    check_size(c, what, name, t);
    check_strides(c, what, name, t);
    memcpy(g->shape, t->shape, sizeof g->shape);
    for (int i = 0; i < t->rank; i++)
        packed = packed && !t->stride[i];
    for (int i = t->rank; i-- > 0; step = g->stride[i] * t->shape[i])
        g->stride[i] = packed || t->shape[i] < 2 ? step : t->stride[i];
}

/* ---- where they meet ---- */

typedef struct Term { int64_t c, n; } Term;

typedef struct Terms { Term t[2 * TENSOR_RANK + 2]; int len; } Terms;

static void add_term(Terms *s, int64_t c, int64_t n)
{
    c = c < 0 ? -c : c;
    for (int i = 0; i < s->len; i++)
        if (s->t[i].c == c) {
            s->t[i].n += n;
            return;
        }
    if (c && n)
        s->t[s->len++] = (Term){ c, n };
}

static void add_axes(Terms *s, const Given *t)
{
    int size = dtype_size(t->dtype);

    for (int i = 0; i < t->rank; i++)
        add_term(s, t->stride[i] * size, t->shape[i] - 1);
    add_term(s, 1, size - 1);
}

static int by_stride(const void *a, const void *b)
{
    const Term *x = a, *y = b;

    return (x->c < y->c) - (x->c > y->c);
}

static int64_t reach(const Term *t, const Term *end)
{
    int64_t sum = 0;

    for (; t < end; t++)
        sum += t->c * t->n;
    return sum;
}

/* Whether sum c z = d has a solution; also where that takes too long to say. */
static bool meets(const Term *t, const Term *end, int64_t d, int *steps)
{
    if (d <= 0 || t == end)
        return d == 0;
    int64_t rest = reach(t + 1, end), z = 0, most = d / t->c;

    if (d > rest)
        z = (d - rest + t->c - 1) / t->c;
    for (most = most < t->n ? most : t->n; z <= most; z++)
        if (--*steps < 0 || meets(t + 1, end, d - z * t->c, steps))
            return true;
    return false;
}

static bool solvable(Terms *s, int64_t d)
{
    int steps = STEPS;

    qsort(s->t, (size_t)s->len, sizeof *s->t, by_stride);
    return meets(s->t, s->t + s->len, d, &steps);
}

/* ---- tensors ---- */

/* [from, to) holds all of it. what: "dinput." or "", for messages. */
typedef struct Region {
    const char *what, *name;
    const Given *t;
    uintptr_t from, to;
} Region;

static Region region(const char *what, const char *name, const Given *t)
{
    int size = dtype_size(t->dtype);
    int64_t low = 0, high = size;

    for (int i = 0; i < t->rank; i++) {
        int64_t far = (t->shape[i] - 1) * t->stride[i] * size;
        low += far < 0 ? far : 0;
        high += far > 0 ? far : 0;
    }
    return (Region){ what, name, t, (uintptr_t)t->data + (uintptr_t)low,
                     (uintptr_t)t->data + (uintptr_t)high };
}

static bool same_place(const Given *a, const Given *b)
{
    return a->data == b->data && a->dtype == b->dtype && a->rank == b->rank
        && !memcmp(a->shape, b->shape, sizeof a->shape)
        && !memcmp(a->stride, b->stride, sizeof a->stride);
}

static bool overlap(const Region *a, const Region *b)
{
    Terms s = { .len = 0 };

    if (a->from >= b->to || b->from >= a->to)
        return false;
    add_axes(&s, a->t);
    add_axes(&s, b->t);
    return solvable(&s, (int64_t)(b->to - 1 - a->from));
}

/* Whether two of its elements share a byte: indices that differ first, in the
 * order of strides, at axis i. */
static bool folds(const Given *t)
{
    int size = dtype_size(t->dtype);
    Term axis[TENSOR_RANK];
    int n = 0;
    int64_t below = size - 1;
    bool nested = true;

    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] > 1)
            axis[n++] = (Term){ llabs(t->stride[i]) * size, t->shape[i] - 1 };
    qsort(axis, (size_t)n, sizeof *axis, by_stride);
    for (int i = n; i-- > 0; below += axis[i].c * axis[i].n)
        nested = nested && axis[i].c > below;
    for (int i = 0; i < n && !nested; i++) {
        Terms s = { .len = 0 };
        int64_t d = reach(axis + i + 1, axis + n) + size - 1 - axis[i].c;
        if (axis[i].c == 0)
            return true;
        add_term(&s, axis[i].c, axis[i].n - 1);
        for (int k = i + 1; k < n; k++)
            add_term(&s, axis[k].c, 2 * axis[k].n);
        add_term(&s, 1, 2 * (size - 1));
        if (d >= 0 && solvable(&s, d))
            return true;
    }
    return false;
}

/* ---- a call ---- */

typedef struct Places {
    Ctx *ctx;
    Region *r;
    int n, written;                     /* those come first */
} Places;

static void add_place(Places *p, const char *what, const char *name,
                      const Given *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] == 0)
            return;
    if (t->given)
        p->r[p->n++] = region(what, name, t);
}

static void add_inputs(Places *p, const Graph *g, const char *what,
                       const Given *t)
{
    for (int i = 0; i < g->nin; i++)
        add_place(p, what, g->in[i].name, &t[i]);
}

static void add_states(Places *p, const Graph *g, const char *what,
                       const Given *t)
{
    for (int i = 0; i < g->nst; i++)
        add_place(p, what, g->st[i].name, &t[i]);
}

/* Memory without axes. */
static void add_bytes(Places *p, const char *name, const void *at, size_t n)
{
    size_t most = (size_t)TENSOR_BYTES;
    Given *t = ctx_alloc(p->ctx, sizeof *t);

    *t = (Given){ .given = at != NULL, .data = (void *)at, .dtype = F16,
                  .rank = 1, .stride = { 1 } };
    t->shape[0] = (int64_t)((n < most ? n : most) / 2);
    add_place(p, "", name, t);
}

static void add_results(Places *p, const Graph *g, const HostCall *h)
{
    const flin_Saved *saved = h->call.saved;

    if (h->adjoint) {
        add_inputs(p, g, "dinput.", h->adjoint->dx);
        add_states(p, g, "dinitial.", h->adjoint->ds);
    } else {
        for (int o = 0; o < g->nout; o++)
            add_place(p, "", g->out[o].name, &h->result[o]);
        add_states(p, g, "final.", h->final);
    }
    add_bytes(p, "workspace", h->call.workspace, h->call.workspace_size);
    if (saved && !h->adjoint)
        add_bytes(p, "saved.data", saved->data, saved->bytes);
}

static void add_arguments(Places *p, const Graph *g, const HostCall *h)
{
    const flin_Call *k = &h->call;
    size_t ends = (size_t)h->args.ncu * sizeof *k->cu_seqlens;

    add_inputs(p, g, "", h->args.in);
    add_states(p, g, "initial.", h->args.state);
    add_place(p, "", "state_index", &h->args.index);
    add_bytes(p, "cu_seqlens", k->cu_seqlens, ends);
    add_bytes(p, "cu_seqlens_device", k->cu_seqlens_device, ends);
    if (h->adjoint) {
        for (int o = 0; o < g->nout; o++)
            add_place(p, o ? "dresult." : "", o ? g->out[o].name : "dy",
                      &h->adjoint->dy[o]);
        add_states(p, g, "dfinal.", h->adjoint->dstate);
        if (k->saved)
            add_bytes(p, "saved.data", k->saved->data, k->saved->bytes);
    }
}

/* A final state may be written where its initial one is; a layer's gradient
 * where what it is of is. */
static bool is_in_place(const Region *a, const Region *b)
{
    bool state = !strcmp(a->what, "final.") && !strcmp(b->what, "initial.");
    bool gradient = !strcmp(a->what, "dinput.") && !*b->what;

    return (state || gradient) && a->name == b->name && same_place(a->t, b->t);
}

void check_overlaps(Ctx *c, const Graph *g, const HostCall *h)
{
    size_t most = 2 * (size_t)g->nin + 3 * (size_t)g->nst
                + (size_t)g->nout + 6;
    Places p = { .ctx = c, .r = ctx_alloc(c, most * sizeof *p.r) };
    const char *what = mode_name[h->args.mode];

    add_results(&p, g, h);
    p.written = p.n;
    add_arguments(&p, g, h);
    for (int i = 0; i < p.written; i++) {
        const Region *a = &p.r[i];
        if (folds(a->t))
            fail(c, 0, "%s: %s%s: strides %s put several of its elements in "
                 "one place, and it is written", what, a->what, a->name,
                 shape_text(c, a->t->rank, a->t->stride));
        for (const Region *b = a + 1; b < p.r + p.n; b++)
            if (!is_in_place(a, b) && overlap(a, b))
                fail_help(c, 0, "results lie apart from all else; a final "
                          "state may be its initial one, whole",
                          "%s: %s%s and %s%s overlap", what, a->what, a->name,
                          b->what, b->name);
    }
}
