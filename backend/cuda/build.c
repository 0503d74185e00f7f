/* build.c -- which emitter prints a plan for a call's types, and what becomes
 * of its source: a cubin from the cache, or compiled, checked and kept.
 */
#include "build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a module ---- */

/* What the cubin depends on: compiler, target, options, headers, source. */
static CacheKey key_of(const Nvrtc *n, const char *arch, const char *source)
{
    enum { MOST = 64 };
    const char *text[MOST];
    char version[32];
    int k = 0;
    snprintf(version, sizeof version, "NVRTC %d.%d", n->major, n->minor);
    text[k++] = version;
    text[k++] = arch;
    text[k++] = source;
    for (int i = 0; nvrtc_options[i] && k < MOST; i++)
        text[k++] = nvrtc_options[i];
    for (int i = 0; cuda_headers[i].name && k < MOST; i++)
        text[k++] = cuda_headers[i].text;
    return cache_key(text, k);
}

typedef struct Load {
    Gpu *gpu;
    const char *source;
    CheckFn *check;
    void *ud, *cached;
    Module *module;
} Load;

static void load_cached(Ctx *c, void *ud)
{
    Load *l = ud;
    l->module = module_load(c, gpu_enter(c, l->gpu), l->cached);
}

static void check_module(Ctx *c, void *ud)
{
    Load *l = ud;
    if (l->check)
        l->check(c, l->module, l->ud);
}

/* Entries of the cache were checked before they came there. One that the
 * driver does not take counts as not there. */
static bool from_cache(Ctx *c, Load *l, const CacheKey *key)
{
    size_t size;
    l->cached = cache_get(gpu_cache(l->gpu), key, &size);
    bool ok = l->cached && ctx_protect(c, load_cached, l);
    free(l->cached);
    return ok;
}

Module *build_module(Ctx *c, Gpu *g, const char *source, CheckFn *check,
                     void *ud)
{
    const Driver *d = gpu_enter(c, g);
    const Nvrtc *n = gpu_compiler(c, g);
    Load l = { .gpu = g, .source = source, .check = check, .ud = ud };
    CacheKey key = key_of(n, gpu_arch(g), source);
    if (from_cache(c, &l, &key))
        return l.module;
    Cubin *b = nvrtc_compile(c, n, source, gpu_arch(g));
    l.module = module_load(c, d, b->bytes);
    if (!ctx_protect(c, check_module, &l)) {
        module_unload(d, l.module);
        ctx_rethrow(c);
    }
    cache_put(gpu_cache(g), &key, b->bytes, b->size);
    return l.module;
}

/* ---- which kernels ---- */

/* What products multiply: what all matrices are, else float32. */
static DType tile_type(const Graph *g, const CudaOptions *o)
{
    DType tile = NDTYPES;
    for (int i = 0; i < g->nin; i++) {
        if (!g->in[i].rank || !g->in[i].timed)
            continue;
        if (tile != NDTYPES && tile != o->in[i])
            return F32;
        tile = o->in[i];
    }
    return tile == BF16 || tile == F16 ? tile : F32;
}

static CudaOptions options_of(const Builds *all, const Call *call, int arch)
{
    const Graph *g = all->plan->g;
    CudaOptions o;
    memset(&o, 0, sizeof o);            /* compared as bytes */
    cuda_call_options(&o, g, call);
    o.tile = tile_type(g, &o);
    o.arch = arch;
    for (int i = 0; i < g->nin; i++)
        if (!g->in[i].rank)
            o.vector[i] = o.in[i];
    return o;
}

static const View *view_of(const Call *call, CudaArg a)
{
    switch ((CudaArgKind)a.kind) {
    case ARG_INPUT:  return &call->in[a.index];
    case ARG_OUTPUT: return &call->out[a.index];
    case ARG_STATE:  return &call->s0[a.index];
    case ARG_NEXT:   return &call->s1[a.index];
    }
    return NULL;
}

/* The copy engine wants whole rows, 16 bytes apart. */
static bool map_fits(const View *v, bool ranks)
{
    return v->sd[ranks] == 1 && !(v->st % 8 || v->sh % 8 || v->sb % 8)
        && !(ranks && v->sd[0] % 8) && (uintptr_t)v->data % 16 == 0;
}

/* Hopper's kernels may be passed this call's tensors. */
static bool call_fits(const Graph *g, const Build *b, const Call *call)
{
    const CudaKernel *k = b->m->kernel;
    for (int i = 0; i < k->nmaps + k->ntensors; i++) {
        bool map = i < k->nmaps;
        CudaArg a = map ? k->map[i] : k->tensor[i - k->nmaps];
        const View *v = view_of(call, a);
        if ((DType)a.dtype != v->dtype && (v->data || a.kind == ARG_INPUT))
            return false;
        bool ranks = a.kind == ARG_INPUT && g->in[a.index].rank > 1;
        if (map && !(v->data && map_fits(v, ranks)))
            return false;
    }
    return true;
}

static bool sums_any(const Graph *g, const CudaOptions *o)
{
    bool any = false;
    for (int i = 0; i < g->nout; i++)
        any = any || o->sum_out[i];
    for (int i = 0; i < g->nst; i++)
        any = any || o->sum_s1[i];
    return any;
}

typedef struct Making {
    Builds *all;
    Build *b;
} Making;

static void emit(Ctx *c, void *ud)
{
    Making *k = ud;
    k->b->m = k->b->hopper ? cuda_emit(c, k->all->plan, &k->b->o)
                           : cuda_tiles(c, k->all->plan, &k->b->o);
    k->b->f = ctx_alloc(c, (size_t)k->b->m->nkernels * sizeof *k->b->f);
}

static void find_functions(Ctx *c, const Driver *d, Build *b, Module *m)
{
    for (int i = 0; i < b->m->nkernels; i++) {
        const CudaKernel *k = &b->m->kernel[i];
        b->f[i] = module_function(c, d, m, k->name, k->shared);
    }
}

static void check_build(Ctx *c, Module *m, void *ud)
{
    Making *k = ud;
    find_functions(c, gpu_enter(c, k->all->gpu), k->b, m);
    build_verify(c, k->all->gpu, k->b, k->all->plan);
}

static void compile(Ctx *c, void *ud)
{
    Making *k = ud;
    Gpu *g = k->all->gpu;
    k->b->module = build_module(c, g, k->b->m->source, check_build, k);
    find_functions(c, gpu_enter(c, g), k->b, k->b->module);
}

static void build_free(Build *b, const Driver *d)
{
    if (d)
        module_unload(d, b->module);
    ctx_free(b->ctx);
    free(b);
}

/* Hopper's emitter may refuse a plan, and its kernels may not compile as they
 * should; but wrong results are for no other emitter to hide. */
static bool refused(const Build *b, const Error *e)
{
    return b->hopper && (e->code == ERR_USER || e->code == ERR_DEVICE);
}

static Build *build_new(Ctx *c, Builds *all, const CudaOptions *o,
                        bool hopper)
{
    Build *b = calloc(1, sizeof *b);
    Making k = { all, b };
    if (!b || !(b->ctx = ctx_new())) {
        free(b);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    b->o = *o;
    b->hopper = hopper;
    b->ctx->interrupted = c->interrupted;
    b->ctx->interrupt_ud = c->interrupt_ud;
    Error *e = &b->ctx->err;
    bool ok = ctx_protect(b->ctx, emit, &k);
    if (ok && !(ok = ctx_protect(c, compile, &k)))
        e = &c->err;
    if (!ok && !refused(b, e)) {
        c->err = *e;
        build_free(b, NULL);
        ctx_rethrow(c);
    }
    if (!ok)
        b->m = NULL;
    b->next = all->first;
    return all->first = b;
}

static Build *find_build(Ctx *c, Builds *all, const CudaOptions *o,
                         bool hopper)
{
    for (Build *b = all->first; b; b = b->next)
        if (b->hopper == hopper && !memcmp(&b->o, o, sizeof *o))
            return b;
    return build_new(c, all, o, hopper);
}

/* The one for Hopper with this many groups, or NULL. */
static Build *hopper_build(Ctx *c, Builds *all, CudaOptions o, int groups)
{
    enum { CHUNK = 64 };
    if (o.arch != 90 || o.tile == F32 || all->plan->g->chunk != CHUNK
        || sums_any(all->plan->g, &o))
        return NULL;
    o.groups = groups;
    o.split = true;
    Build *b = find_build(c, all, &o, true);
    return b->m ? b : NULL;
}

/* Blocks of one group while those do not fill the chip: a block of two reads
 * q and k once for twice the values. */
static int groups_for(const Call *call, int processors)
{
    return call->nseq * call->heads * 2 <= processors ? 1 : 2;
}

const Build *build_for(Ctx *c, Builds *all, const Call *call)
{
    const Driver *d = gpu_enter(c, all->gpu);
    CudaOptions o = options_of(all, call, d->arch);
    int groups = groups_for(call, d->processors);
    bool whole = !call->from && !call->to;
    for (int i = 0; i < 2 && whole; i++, groups = 3 - groups) {
        Build *b = hopper_build(c, all, o, groups);
        if (b && call_fits(all->plan->g, b, call))
            return b;
    }
    return find_build(c, all, &o, false);
}

void build_all(Ctx *c, Builds *all, const Call *call)
{
    const Driver *d = gpu_enter(c, all->gpu);
    CudaOptions o = options_of(all, call, d->arch);
    hopper_build(c, all, o, 1);
    hopper_build(c, all, o, 2);
    find_build(c, all, &o, false);
}

static void enter(Ctx *c, void *ud)
{
    gpu_enter(c, ((Builds *)ud)->gpu);
}

/* Modules stay where the context has broken: they went with it. */
void builds_free(Builds *all)
{
    Ctx *c = ctx_new();
    bool alive = c && all->first && ctx_protect(c, enter, all);
    for (Build *b = all->first, *next; b; b = next) {
        next = b->next;
        build_free(b, alive ? gpu_driver(all->gpu) : NULL);
    }
    all->first = NULL;
    ctx_free(c);
}
