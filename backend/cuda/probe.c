/* probe.c -- the first entry of each tensor that breaks its domain, found in
 * one pass over all of them on the device (probe.cuh), which leaves a number a
 * tensor.
 */
#include "probe.h"

#include "build.h"
#include "driver_entry.h"

enum { TENSORS = 16, DIMS = 11, THREADS = 256, PIECE = 16,
       BLOCKS = 4 };                    /* a processor */

/* The domains' own text. */
static const char *make_source(Ctx *c)
{
    Buf b = { .ctx = c };
    buf_printf(&b, "#include \"numbers.cuh\"\n#include \"warp.cuh\"\n"
               "#undef INFINITY\n#define INFINITY bits(0x7f800000)\n"
               "INLINE u32 broken(int domain, const float y[8])\n{\n"
               "    u32 all = 0;\n    switch (domain) {\n");
    for (int i = 0; i < DOMAINS; i++)
        buf_printf(&b, "    case %d:    // %s\n        UNROLL\n"
                   "        for (int k = 0; k < 8; k++) {\n"
                   "            const float x = y[k];\n"
                   "            all |= (u32)(%s) << k;\n        }\n"
                   "        break;\n", i, domains[i].name, domains[i].text);
    buf_printf(&b, "    }\n    return all;\n}\n"
               "INLINE bool is_row(int domain)\n{\n    return false");
    for (int i = 0; i < DOMAINS; i++)
        if (domains[i].row)
            buf_printf(&b, " || domain == %d", i);
    buf_printf(&b, ";\n}\n#include \"probe.cuh\"\n"
               "struct Args { u64 *found; i64 tensors; Tensor tensor[%d]; };\n"
               "extern \"C\" __global__ void __launch_bounds__(%d, %d)\n"
               "flin_probe(const __grid_constant__ Args a)\n{\n"
               "    for (i64 i = 0; i < a.tensors; i++)\n"
               "        probe(a.tensor[i], blockIdx.x * %dll + threadIdx.x,\n"
               "              gridDim.x * %dll, a.found + i);\n}\n", TENSORS,
               THREADS, BLOCKS, THREADS, THREADS);
    return b.s;
}

/* As probe.cuh has them. */
typedef struct Tensor {
    uint64_t p;
    int64_t count, each, n[DIMS], stride[DIMS];
    int32_t outer, dims, type, domain, width, lanes, limit, pad;
} Tensor;

typedef struct Args {
    uint64_t found;
    int64_t tensors;
    Tensor tensor[TENSORS];
} Args;
_Static_assert(sizeof(Args) <= 4096, "what a kernel is passed");

/* One more dimension, which goes on where the last one ends, if it can. */
static void add_dim(Tensor *t, int from, int64_t n, int64_t stride)
{
    int last = t->dims - 1;

    if (n == 1)
        return;
    if (last >= from && t->stride[last] == n * stride) {
        t->n[last] *= n;
        t->stride[last] = stride;
        return;
    }
    t->n[t->dims] = n;
    t->stride[t->dims++] = stride;
}

static bool has_pieces(const Tensor *t, int size)
{
    int64_t width = PIECE / size;
    bool whole = t->dims == t->outer + 1 && t->stride[t->outer] == 1
              && t->n[t->outer] % width == 0 && t->p % PIECE == 0;

    for (int d = 0; d < t->outer; d++)
        whole = whole && t->stride[d] % width == 0;
    return whole;
}

static Tensor tensor_of(const Probe *p)
{
    const View *v = &p->v;
    int64_t rows = probe_rows(p), each = probe_entries(p), run;
    int size = dtype_size(v->dtype);
    Tensor t = { .p = (uint64_t)(uintptr_t)v->data, .lanes = 1,
                 .type = (int32_t)v->dtype, .limit = p->limit,
                 .domain = (int32_t)(p->domain - domains) };
    add_dim(&t, 0, p->tokens, v->st);
    add_dim(&t, 0, p->batch, v->sb);
    add_dim(&t, 0, v->heads, v->sh);
    t.outer = p->domain->row ? t.dims : 0;
    for (int d = 0; d < p->rank; d++)
        add_dim(&t, t.outer, p->n[d], v->sd[d]);
    if (t.dims == t.outer) {            /* of one entry */
        t.n[t.dims] = 1;
        t.stride[t.dims++] = 1;
    }
    if (!p->domain->row)
        t.outer = t.dims - 1;
    run = p->domain->row ? each : t.n[t.outer];
    t.width = has_pieces(&t, size) ? PIECE / size : 1;
    t.each = run / t.width;
    t.count = p->domain->row ? rows : rows * each / t.width;
    while (p->domain->row && t.lanes < 32 && t.lanes < t.each)
        t.lanes *= 2;
    return t;
}

static void compile(Ctx *c, Gpu *g, Probing *k)
{
    if (k->module)
        return;
    k->module = build_module(c, g, make_source(c));
    k->f = module_function(c, gpu_driver(g), k->module, "flin_probe", 0);
}

typedef struct Unloading { Gpu *gpu; Module *module; } Unloading;

static void unload(Ctx *c, void *ud)
{
    Unloading *u = ud;
    module_unload(gpu_enter(c, u->gpu), u->module);
}

void probing_free(Gpu *g, Probing *k)
{
    Unloading u = { g, k->module };
    Ctx *c = k->module ? ctx_new() : NULL;
    if (c)
        ctx_protect(c, unload, &u);
    ctx_free(c);
    k->module = NULL;
}

typedef struct Pass {
    Gpu *gpu;
    const Probing *k;
    void *stream;
    Probe *probe;
    int n;
    DevicePtr found;
    uint64_t *host;
} Pass;

static void queue(Ctx *c, const Pass *s, int from, int n)
{
    const Driver *d = gpu_driver(s->gpu);
    unsigned grid = BLOCKS * (unsigned)d->processors;
    Args a = { .tensors = n,
               .found = s->found + (uint64_t)from * sizeof *s->host };
    void *params[] = { &a };
    CALL(d, LAUNCH, launch_kernel);
    for (int i = 0; i < n; i++)
        a.tensor[i] = tensor_of(&s->probe[from + i]);
    driver_check(c, d, launch_kernel(s->k->f, grid, 1, 1, THREADS, 1, 1, 0,
                 s->stream, params, NULL), "launching a kernel");
}

static void run(Ctx *c, void *ud)
{
    Pass *s = ud;
    const Driver *d = gpu_driver(s->gpu);
    size_t bytes = (size_t)s->n * sizeof *s->host;
    stream_fill(c, d, s->stream, s->found, 0xff, bytes);
    for (int i = 0; i < s->n; i += TENSORS)
        queue(c, s, i, s->n - i < TENSORS ? s->n - i : TENSORS);
    device_sync(c, d);
    device_get(c, d, s->host, s->found, bytes);
}

void probing_run(Ctx *c, Gpu *g, Probing *k, void *stream, Probe *probe,
                 int n)
{
    Pass s = { g, k, stream, probe, n, 0, NULL };
    size_t bytes = (size_t)n * sizeof *s.host;
    compile(c, g, k);
    s.host = ctx_alloc(c, bytes);
    s.found = gpu_alloc(c, g, bytes);
    bool ok = ctx_protect(c, run, &s);
    gpu_free(g, s.found, bytes);
    if (!ok)
        ctx_rethrow(c);
    for (int i = 0; i < n; i++)
        probe[i].first = s.host[i];
}
