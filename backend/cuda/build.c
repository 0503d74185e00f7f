/* build.c -- which kernels a call gets: which emitter prints its plan, for what
 * types. compile.c makes them.
 */
#include "build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void check_build(Ctx *c, void *ud)
{
    Making *k = ud;
    build_verify(c, k->all->gpu, k->b, k->all->plan);
}

static void compile(Ctx *c, void *ud)
{
    Making *k = ud;
    build_compile(c, k->all->gpu, k->b, k->all->plan, check_build, k);
}

static void build_free(Build *b, const Driver *d)
{
    if (d)
        modules_unload(&b->modules, d);
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
    bool ok = ctx_protect(c, compile, &k);
    if (!ok && !refused(b, &c->err)) {
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
