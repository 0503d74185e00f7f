/* compile.c -- what becomes of a plan's source: programs, compiled side by side
 * or found in the cache; printed again with other room for a thread's
 * registers where they spill; loaded, checked and kept.
 */
#include "build.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- programs ---- */

/* Text that a core compiles in about a second, half of it for the headers:
 * kernels of less go together. The same on any machine, as are the cubins. */
enum { PROGRAM_TEXT = 16000 };

static char *program_text(Ctx *c, const CudaModule *m, int from, int to)
{
    size_t head = m->kernel[0].text, at = m->kernel[from].text;
    size_t own = m->kernel[to - 1].end - at;
    char *s = ctx_alloc(c, head + own + 1);
    memcpy(s, m->source, head);
    memcpy(s + head, m->source + at, own);
    return s;
}

CudaPrograms cuda_programs(Ctx *c, const CudaModule *m)
{
    size_t n = (size_t)m->nkernels;
    CudaPrograms p = { .source = ctx_alloc(c, n * sizeof *p.source),
                       .of = ctx_alloc(c, n * sizeof *p.of) };
    for (int from = 0, to; from < m->nkernels; from = to) {
        to = from;
        do
            p.of[to++] = p.n;
        while (to < m->nkernels && m->kernel[to].end - m->kernel[from].text
               <= PROGRAM_TEXT);
        p.source[p.n++] = program_text(c, m, from, to);
    }
    return p;
}

/* ---- an entry of the cache ---- */

/* Behind it the cubins' lengths, then the cubins. None: they spill so much
 * that others were taken. */
typedef struct Entry { uint32_t n, spilled; } Entry;

enum { UNKNOWN = -1 };                  /* what they spill */

/* What the cubins depend on: compiler, target, options, headers, sources. */
static CacheKey key_of(Ctx *c, const Nvrtc *n, const char *arch,
                       const CudaPrograms *p)
{
    enum { MOST = 64 };
    const char **text = ctx_alloc(c, (size_t)(p->n + MOST) * sizeof *text);
    int k = 0;
    text[k++] = ctx_format(c, "NVRTC %d.%d", n->major, n->minor);
    text[k++] = arch;
    for (int i = 0; nvrtc_options[i] && k < MOST; i++)
        text[k++] = nvrtc_options[i];
    for (int i = 0; cuda_headers[i].name && k < MOST; i++)
        text[k++] = cuda_headers[i].text;
    for (int i = 0; i < p->n; i++)
        text[k++] = p->source[i];
    return cache_key(text, k);
}

static size_t entry_size(const Cubin *b, int n)
{
    size_t size = sizeof(Entry) + (size_t)n * sizeof(uint64_t);
    for (int i = 0; i < n; i++)
        size += b[i].size;
    return size;
}

static void publish(Ctx *c, const Modules *m, const Cubin *b, int n)
{
    Entry head = { (uint32_t)n, (uint32_t)m->spilled };
    size_t size = entry_size(b, n);
    unsigned char *bytes = ctx_alloc(c, size);
    unsigned char *at = bytes + sizeof head + (size_t)n * sizeof(uint64_t);
    memcpy(bytes, &head, sizeof head);
    for (int i = 0; i < n; i++) {
        uint64_t own = b[i].size;
        memcpy(bytes + sizeof head + (size_t)i * sizeof own, &own,
               sizeof own);
        memcpy(at, b[i].bytes, b[i].size);
        at += b[i].size;
    }
    cache_put(gpu_cache(m->gpu), &m->key, bytes, size);
}

/* ---- modules ---- */

void modules_unload(Modules *m, const Driver *d)
{
    for (int i = 0; i < m->programs.n; i++) {
        if (d && m->module[i])
            module_unload(d, m->module[i]);
        m->module[i] = NULL;
    }
}

static void load_all(Ctx *c, void *ud)
{
    const Modules *m = ud;
    const Driver *d = gpu_enter(c, m->gpu);
    for (int i = 0; i < m->programs.n; i++)
        m->module[i] = module_load(c, d, m->cubin[i].bytes);
}

static void load_modules(Ctx *c, Modules *m)
{
    if (ctx_protect(c, load_all, m))
        return;
    modules_unload(m, gpu_driver(m->gpu));
    ctx_rethrow(c);
}

/* The cubins in an entry of `size` bytes; false if they do not fill it. */
static bool find_cubins(const unsigned char *bytes, size_t size, int n,
                        Cubin *b)
{
    const unsigned char *length = bytes + sizeof(Entry);
    size_t at = sizeof(Entry) + (size_t)n * sizeof(uint64_t);
    for (int i = 0; i < n && at <= size; i++) {
        uint64_t own;
        memcpy(&own, length + (size_t)i * sizeof own, sizeof own);
        b[i].bytes = (unsigned char *)bytes + at;
        b[i].size = own;
        at = own <= size - at ? at + own : size + 1;
    }
    return at == size;
}

/* Entries were checked before they came to the cache. One that the driver does
 * not take counts as not there. */
static void from_cache(Ctx *c, Modules *m)
{
    size_t size;
    unsigned char *bytes = cache_get(gpu_cache(m->gpu), &m->key, &size);
    Entry head = { 0 };
    if (bytes && size >= sizeof head)
        memcpy(&head, bytes, sizeof head);
    if (bytes && size == sizeof head)
        m->spilled = (int)head.spilled;
    if (head.n == (uint32_t)m->programs.n)
        m->cubin = calloc(head.n, sizeof *m->cubin);
    if (m->cubin && find_cubins(bytes, size, m->programs.n, m->cubin)) {
        m->loaded = ctx_protect(c, load_all, m);
        if (!m->loaded)
            modules_unload(m, gpu_driver(m->gpu));
    }
    free(m->cubin);
    m->cubin = NULL;
    free(bytes);
}

static void find_modules(Ctx *c, Modules *m)
{
    gpu_enter(c, m->gpu);
    m->key = key_of(c, gpu_compiler(c, m->gpu), gpu_arch(m->gpu),
                    &m->programs);
    m->spilled = UNKNOWN;
    from_cache(c, m);
}

static void compile_modules(Ctx *c, Modules *m)
{
    m->cubin = nvrtc_compile_all(c, gpu_compiler(c, m->gpu),
                                 m->programs.source, m->programs.n,
                                 gpu_arch(m->gpu));
    m->spilled = 0;
    for (int i = 0; i < m->programs.n; i++)
        m->spilled += m->cubin[i].info.spill_stores
                    + m->cubin[i].info.spill_loads;
}

/* In `own`, which lives as long as they do. */
static Modules modules_new(Ctx *own, Gpu *g, CudaPrograms p)
{
    size_t n = (size_t)p.n;
    return (Modules){ .gpu = g, .programs = p,
                      .module = ctx_alloc(own, n * sizeof(Module *)) };
}

Module *build_module(Ctx *c, Gpu *g, const char *source)
{
    char *text = ctx_string(c, source);
    Modules m = modules_new(c, g, (CudaPrograms){ 1, &text, NULL });
    find_modules(c, &m);
    if (!m.loaded) {
        compile_modules(c, &m);
        load_modules(c, &m);
        publish(c, &m, m.cubin, 1);
    }
    return m.module[0];
}

/* ---- a build ---- */

/* The source printed with this much room for a thread's registers. */
typedef struct Attempt {
    CudaModule *m;
    Modules modules;
} Attempt;

typedef struct Compiling {
    Gpu *gpu;
    Build *b;
    const Plan *plan;
    CheckFn *check;
    void *ud;
    Attempt attempt[CUDA_ROOMS];
    int n;
} Compiling;

static void emit(Ctx *own, void *ud)
{
    Compiling *k = ud;
    Attempt *a = &k->attempt[k->n];
    CudaOptions o = k->b->o;
    o.room = k->n;
    a->m = k->b->hopper ? cuda_emit(own, k->plan, &o)
                        : cuda_tiles(own, k->plan, &o);
    a->modules = modules_new(own, k->gpu, cuda_programs(own, a->m));
}

static void find_or_compile(Ctx *c, void *ud)
{
    Compiling *k = ud;
    Modules *m = &k->attempt[k->n].modules;
    find_modules(c, m);
    if (m->spilled == UNKNOWN && !m->loaded)
        compile_modules(c, m);
}

static bool as_before(const Compiling *k)
{
    const Attempt *a = &k->attempt[k->n];
    for (int i = 0; i < k->n; i++)
        if (k->attempt[i].m
            && !strcmp(k->attempt[i].m->source, a->m->source))
            return true;
    return false;
}

/* The first must go well; a later one may come to nothing. */
static void attempt(Ctx *c, Compiling *k)
{
    Modules *m = &k->attempt[k->n].modules;
    bool ok = ctx_protect(k->b->ctx, emit, k);
    if (!ok)
        c->err = k->b->ctx->err;
    bool again = ok && as_before(k);
    ok = ok && !again && ctx_protect(c, find_or_compile, k);
    if (!ok)
        m->spilled = INT_MAX;
    if (!ok && !again && (!k->n || c->err.code == ERR_INTERRUPT
                          || c->err.code == ERR_MEMORY))
        ctx_rethrow(c);
}

/* What spills least, the first of such; one that is loaded was that. */
static Attempt *best_attempt(Ctx *c, Compiling *k)
{
    Attempt *best = k->attempt;
    for (; k->n < CUDA_ROOMS; k->n++) {
        Attempt *a = &k->attempt[k->n];
        attempt(c, k);
        if (a->modules.spilled < best->modules.spilled)
            best = a;
        if (a->modules.loaded || !a->modules.spilled)
            return a;
    }
    return best;
}

static void find_functions(Ctx *c, Build *b, const Modules *m)
{
    for (int i = 0; i < b->m->nkernels; i++) {
        const CudaKernel *k = &b->m->kernel[i];
        b->f[i] = module_function(c, gpu_driver(m->gpu),
                                  m->module[m->programs.of[i]], k->name,
                                  k->shared);
    }
}

static void take(Ctx *c, void *ud)
{
    Compiling *k = ud;
    find_functions(c, k->b, &k->b->modules);
    k->check(c, k->ud);
}

static void load_and_check(Ctx *c, Compiling *k)
{
    Modules *m = &k->b->modules;
    if (!m->cubin)
        compile_modules(c, m);
    load_modules(c, m);
    if (!ctx_protect(c, take, k)) {
        modules_unload(m, gpu_driver(m->gpu));
        ctx_rethrow(c);
    }
    publish(c, m, m->cubin, m->programs.n);
    m->cubin = NULL;
}

void build_compile(Ctx *c, Gpu *g, Build *b, const Plan *p, CheckFn *check,
                   void *ud)
{
    Compiling k = { .gpu = g, .b = b, .plan = p, .check = check, .ud = ud };
    Attempt *best = best_attempt(c, &k);
    b->m = best->m;
    b->modules = best->modules;
    b->f = ctx_alloc(b->ctx, (size_t)b->m->nkernels * sizeof *b->f);
    if (b->modules.loaded)
        find_functions(c, b, &b->modules);
    else
        load_and_check(c, &k);
    for (Attempt *a = k.attempt; a < k.attempt + CUDA_ROOMS; a++)
        if (a != best && a->modules.cubin)
            publish(c, &a->modules, NULL, 0);
}
