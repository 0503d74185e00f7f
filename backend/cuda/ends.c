/* ends.c -- packed sequences whose ends the device alone knows: a kernel makes
 * the table of them, as safe as it can, whatever the ends hold.
 */
#include "ends.h"

#include "build.h"
#include "driver_entry.h"

enum { RESULTS = 16, RANK = 8, CLEANERS = 32, THREADS = 128 };

static const char source[] =
    "// Sequences from their ends, which may hold anything; and zeros in the\n"
    "// rows of results that are before the first or behind the last.\n"
    "typedef long long i64;\n"
    "struct Sequence { int b, pad; i64 start, len; };\n"
    "struct Result { char *p; i64 st, sh, sd[8]; int n[8], heads, bytes; };\n"
    "struct Args {\n"
    "    const i64 *ends;\n"
    "    i64 nseq, tokens, threads, results;\n"
    "    Sequence *to;\n"
    "    Result result[16];\n"
    "};\n"
    "__device__ static i64 within(i64 x, i64 low, i64 high)\n"
    "{\n"
    "    return x < low ? low : x > high ? high : x;\n"
    "}\n"
    "// Entry x of head h of row t, where it lies.\n"
    "__device__ static char *entry(const Result &r, i64 t, i64 x)\n"
    "{\n"
    "    i64 at = t * r.st;\n"
    "    for (int d = 7; d >= 0; d--) {\n"
    "        at += x % r.n[d] * r.sd[d];\n"
    "        x /= r.n[d];\n"
    "    }\n"
    "    return r.p + (at + x * r.sh) * r.bytes;\n"
    "}\n"
    "__device__ static void clear(const Result &r, i64 first, i64 last,\n"
    "                             i64 tokens, i64 thread, i64 threads)\n"
    "{\n"
    "    i64 each = r.heads;\n"
    "    for (int d = 0; d < 8; d++)\n"
    "        each *= r.n[d];\n"
    "    for (i64 x = thread; x < (first + tokens - last) * each;\n"
    "         x += threads) {\n"
    "        const i64 row = x / each, t = row < first ? row\n"
    "                                                  : row - first + last;\n"
    "        char *p = entry(r, t, x % each);\n"
    "        if (r.bytes == 2)\n"
    "            *(short *)p = 0;\n"
    "        else\n"
    "            *(int *)p = 0;\n"
    "    }\n"
    "}\n"
    "extern \"C\" __global__ void flin_ends(const __grid_constant__ Args a)\n"
    "{\n"
    "    const i64 i = blockIdx.x;\n"
    "    const i64 start = within(a.ends[i < a.nseq ? i : 0], 0, a.tokens);\n"
    "    const i64 next = i < a.nseq ? i + 1 : a.nseq;\n"
    "    const i64 end = within(a.ends[next], start, a.tokens);\n"
    "    if (i < a.nseq) {\n"
    "        if (threadIdx.x == 0 && a.to)\n"
    "            a.to[i] = { 0, 0, start, end - start };\n"
    "        return;\n"
    "    }\n"
    "    for (i64 r = 0; r < a.results; r++)\n"
    "        clear(a.result[r], start, end, a.tokens,\n"
    "              (i - a.nseq) * a.threads + threadIdx.x,\n"
    "              (gridDim.x - a.nseq) * a.threads);\n"
    "}\n"
    "struct Cut { const i64 *ends; i64 nseq, tokens, threads, width, *to; };\n"
    "// A sequence has as many places as there are multiples of the width in\n"
    "// it, and one: blocks that it lacks are empty.\n"
    "extern \"C\" __global__ void flin_blocks(const __grid_constant__ Cut a)\n"
    "{\n"
    "    const i64 n = blockIdx.x * a.threads + threadIdx.x;\n"
    "    if (n > a.nseq)\n"
    "        return;\n"
    "    const i64 start = within(a.ends[n], 0, a.tokens);\n"
    "    const i64 end = n < a.nseq ? within(a.ends[n + 1], start, a.tokens)\n"
    "                               : start;\n"
    "    const i64 first = n ? n + start / a.width : 0;\n"
    "    const i64 own = n + start / a.width;\n"
    "    const i64 last = n < a.nseq ? n + 1 + end / a.width\n"
    "                                : a.nseq + a.tokens / a.width + 1;\n"
    "    for (i64 i = first; i < last; i++)\n"
    "        a.to[i] = within(start + (i - own) * a.width, start, end);\n"
    "}\n";

/* As the source has them. */
typedef struct Result {
    uint64_t p;
    int64_t st, sh, sd[RANK];
    int32_t n[RANK], heads, bytes;
} Result;

typedef struct Args {
    uint64_t ends;
    int64_t nseq, tokens, threads, results;
    uint64_t to;
    Result result[RESULTS];
} Args;

void ends_compile(Ctx *c, Gpu *g, Ends *e)
{
    if (e->module)
        return;
    e->module = build_module(c, g, source);
    e->f = module_function(c, gpu_driver(g), e->module, "flin_ends", 0);
    e->blocks = module_function(c, gpu_driver(g), e->module, "flin_blocks", 0);
}

typedef struct Unloading { Gpu *gpu; Module *module; } Unloading;

static void unload(Ctx *c, void *ud)
{
    Unloading *u = ud;
    module_unload(gpu_enter(c, u->gpu), u->module);
}

/* Where the context has broken, the module went with it. */
void ends_free(Gpu *g, Ends *e)
{
    Unloading u = { g, e->module };
    Ctx *c = e->module ? ctx_new() : NULL;
    if (c)
        ctx_protect(c, unload, &u);
    ctx_free(c);
    e->module = NULL;
}

static Result result_of(const Graph *g, const Output *o, const View *v)
{
    Result r = { .p = (uint64_t)(uintptr_t)v->data, .st = v->st, .sh = v->sh,
                 .heads = v->heads, .bytes = (int32_t)dtype_size(v->dtype) };
    for (int d = 0; d < RANK; d++) {
        r.n[d] = d < o->rank ? g->axis[o->order[d]].size : 1;
        r.sd[d] = v->sd[d];
    }
    return r;
}

/* The first launch makes the table, too. */
void ends_queue(Ctx *c, Gpu *g, const Ends *e, const Graph *graph,
                const Call *call, DevicePtr table)
{
    const Driver *d = gpu_driver(g);
    Args a = { .ends = (uint64_t)(uintptr_t)call->device_cu,
               .nseq = call->nseq, .tokens = call->tokens,
               .threads = THREADS, .to = table };
    void *params[] = { &a };
    CALL(d, LAUNCH, launch_kernel);
    for (int i = 0; i < graph->nout || a.to; ) {
        a.results = 0;
        for (; i < graph->nout && a.results < RESULTS; i++)
            if (call->out[i].data)
                a.result[a.results++] = result_of(graph, &graph->out[i],
                                                  &call->out[i]);
        driver_check(c, d, launch_kernel(e->f, (unsigned)call->nseq + CLEANERS,
                     1, 1, THREADS, 1, 1, 0, call->stream, params, NULL),
                     "launching a kernel");
        a.to = 0;
    }
}

/* As the source has it. */
typedef struct Cut {
    uint64_t ends;
    int64_t nseq, tokens, threads, width;
    uint64_t to;
} Cut;

void ends_of_blocks(Ctx *c, Gpu *g, const Ends *e, const Call *call,
                    int64_t width, DevicePtr to)
{
    const Driver *d = gpu_driver(g);
    Cut a = { .ends = (uint64_t)(uintptr_t)call->device_cu,
              .nseq = call->nseq, .tokens = call->tokens,
              .threads = THREADS, .width = width, .to = to };
    void *params[] = { &a };
    CALL(d, LAUNCH, launch_kernel);
    driver_check(c, d, launch_kernel(e->blocks, (unsigned)(call->nseq / THREADS
                 + 1), 1, 1, THREADS, 1, 1, 0, call->stream, params, NULL),
                 "launching a kernel");
}
