/* probe.c -- the first entry of each tensor that breaks its domain, found in
 * one pass over all of them on the device. Each thread goes through entries
 * (rows, where a row is what counts) in the order of tokens and stops at its
 * first; each block tells the first of its threads, which tell it their own in
 * the device's memory.
 */
#include "probe.h"

#include "build.h"
#include "driver_entry.h"

enum { TENSORS = 20, RANK = 8, THREADS = 128 };

static const char head[] =
    "typedef long long i64;\n"
    "typedef unsigned long long u64;\n"
    "#undef INFINITY\n"
    "__device__ static float infinity()\n"
    "{\n"
    "    union { unsigned u; float x; } bits;\n"
    "    bits.u = 0x7f800000;\n"
    "    return bits.x;\n"
    "}\n"
    "#define INFINITY infinity()\n"
    "struct Tensor { const char *p; i64 count, st, sb, sh, sd[8]; int n[8];\n"
    "                int each, heads, batch, type, domain, pad; };\n"
    "struct Args { u64 *found, *all; i64 tensors; Tensor tensor[20]; };\n"
    "__device__ static float number(const Tensor &t, i64 at)\n"
    "{\n"
    "    if (t.type == 0)\n"
    "        return ((const float *)t.p)[at];\n"
    "    if (t.type == 3)\n"
    "        return (float)((const double *)t.p)[at];\n"
    "    const unsigned h = ((const unsigned short *)t.p)[at];\n"
    "    union { unsigned u; float x; } bits;\n"
    "    bits.u = h << 16;\n"
    "    if (t.type == 1)\n"
    "        return bits.x;\n"
    "    // float16: its exponent, 31 being what is no number\n"
    "    const unsigned e = h >> 10 & 31, m = h & 1023;\n"
    "    bits.u = (h >> 15) << 31 | m << 13\n"
    "           | (e == 31 ? 255 : e + 112) << 23;\n"
    "    return e ? bits.x : (h >> 15 ? -1.f : 1.f) * m / 16777216.f;\n"
    "}\n"
    "// Where head and row `r` of all tokens begin, entry x of it.\n"
    "__device__ static i64 place(const Tensor &t, i64 r)\n"
    "{\n"
    "    const i64 b = r / t.heads;\n"
    "    return r % t.heads * t.sh + b % t.batch * t.sb + b / t.batch * t.st;\n"
    "}\n"
    "__device__ static i64 inside(const Tensor &t, i64 x)\n"
    "{\n"
    "    i64 at = 0;\n"
    "    for (int d = 7; d >= 0; d--) {\n"
    "        at += x % t.n[d] * t.sd[d];\n"
    "        x /= t.n[d];\n"
    "    }\n"
    "    return at;\n"
    "}\n"
    "__device__ static float squares(const Tensor &t, i64 r)\n"
    "{\n"
    "    float sum = 0;\n"
    "    for (i64 x = 0; x < t.each; x++) {\n"
    "        const float y = number(t, place(t, r) + inside(t, x));\n"
    "        sum += y * y;\n"
    "    }\n"
    "    return sum;\n"
    "}\n";

static const char rest[] =
    "__device__ static u64 first(const Tensor &t, i64 thread, i64 threads)\n"
    "{\n"
    "    for (i64 x = thread; x < t.count; x += threads) {\n"
    "        const i64 r = row(t.domain) ? x : x / t.each;\n"
    "        if (broken(t.domain, row(t.domain) ? squares(t, r)\n"
    "                   : number(t, place(t, r) + inside(t, x % t.each))))\n"
    "            return (u64)x;\n"
    "    }\n"
    "    return ~0ull;\n"
    "}\n"
    "extern \"C\" __global__ void flin_probe(const __grid_constant__ Args a)\n"
    "{\n"
    "    u64 *all = a.all + blockIdx.x * 128ll;\n"
    "    for (i64 i = 0; i < a.tensors; i++) {\n"
    "        u64 least = ~0ull;\n"
    "        all[threadIdx.x] = first(a.tensor[i],\n"
    "                                 blockIdx.x * 128ll + threadIdx.x,\n"
    "                                 gridDim.x * 128ll);\n"
    "        __syncthreads();\n"
    "        for (int k = 0; threadIdx.x == 0 && k < 128; k++)\n"
    "            least = all[k] < least ? all[k] : least;\n"
    "        if (threadIdx.x == 0)\n"
    "            a.found[i * gridDim.x + blockIdx.x] = least;\n"
    "        __syncthreads();\n"
    "    }\n"
    "}\n";

/* The domains' own text between the two. */
static const char *make_source(Ctx *c)
{
    Buf b = { .ctx = c };
    buf_printf(&b, "%s__device__ static bool broken(int domain, float x)\n{\n"
               "    switch (domain) {\n", head);
    for (int i = 0; i < DOMAINS; i++)
        buf_printf(&b, "    case %d: return %s;     // %s\n", i,
                   domains[i].text, domains[i].name);
    buf_printf(&b, "    }\n    return false;\n}\n"
               "__device__ static bool row(int domain)\n{\n    return false");
    for (int i = 0; i < DOMAINS; i++)
        if (domains[i].row)
            buf_printf(&b, " || domain == %d", i);
    buf_printf(&b, ";\n}\n%s", rest);
    return b.s;
}

/* As the source has them. */
typedef struct Tensor {
    uint64_t p;
    int64_t count, st, sb, sh, sd[RANK];
    int32_t n[RANK], each, heads, batch, type, domain, pad;
} Tensor;

typedef struct Args {
    uint64_t found, all;
    int64_t tensors;
    Tensor tensor[TENSORS];
} Args;

static Tensor tensor_of(const Probe *p)
{
    int64_t rows = probe_rows(p), each = probe_entries(p);
    Tensor t = { .p = (uint64_t)(uintptr_t)p->v.data, .st = p->v.st,
                 .sb = p->v.sb, .sh = p->v.sh, .each = (int32_t)each,
                 .heads = p->v.heads, .batch = (int32_t)p->batch,
                 .type = (int32_t)p->v.dtype,
                 .domain = (int32_t)(p->domain - domains),
                 .count = p->domain->row ? rows : rows * each };
    for (int d = 0; d < RANK; d++) {
        t.n[d] = d < p->rank ? p->n[d] : 1;
        t.sd[d] = d < p->rank ? p->v.sd[d] : 0;
    }
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
    unsigned grid;
    DevicePtr found, all;
    uint64_t *host;
} Pass;

static void queue(Ctx *c, const Pass *s, int from, int n)
{
    const Driver *d = gpu_driver(s->gpu);
    Args a = { .tensors = n, .all = s->all, .found = s->found
               + (uint64_t)from * s->grid * sizeof *s->host };
    void *params[] = { &a };
    CALL(d, LAUNCH, launch_kernel);
    for (int i = 0; i < n; i++)
        a.tensor[i] = tensor_of(&s->probe[from + i]);
    driver_check(c, d, launch_kernel(s->k->f, s->grid, 1, 1, THREADS, 1, 1, 0,
                 s->stream, params, NULL), "launching a kernel");
}

static void run(Ctx *c, void *ud)
{
    Pass *s = ud;
    const Driver *d = gpu_driver(s->gpu);
    for (int i = 0; i < s->n; i += TENSORS)
        queue(c, s, i, s->n - i < TENSORS ? s->n - i : TENSORS);
    device_sync(c, d);
    device_get(c, d, s->host, s->found,
               (size_t)s->n * s->grid * sizeof *s->host);
}

void probing_run(Ctx *c, Gpu *g, Probing *k, void *stream, Probe *probe,
                 int n)
{
    enum { BLOCKS = 4 };                /* a processor */
    Pass s = { g, k, stream, probe, n, .grid = BLOCKS
               * (unsigned)gpu_driver(g)->processors };
    size_t bytes = (size_t)n * s.grid * sizeof *s.host;
    size_t all = (size_t)s.grid * THREADS * sizeof *s.host;
    compile(c, g, k);
    s.host = ctx_alloc(c, bytes);
    s.found = gpu_alloc(c, g, bytes + all);
    s.all = s.found + bytes;
    bool ok = ctx_protect(c, run, &s);
    gpu_free(g, s.found, bytes + all);
    if (!ok)
        ctx_rethrow(c);
    for (int i = 0; i < n; i++) {
        probe[i].first = NONE;
        for (unsigned b = 0; b < s.grid; b++) {
            uint64_t found = s.host[i * s.grid + b];
            probe[i].first = found < probe[i].first ? found : probe[i].first;
        }
    }
}
