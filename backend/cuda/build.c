/* build.c -- which kernels a call gets: for what types and sizes its plan is
 * printed. compile.c makes them.
 */
#include "build.h"
#include "../../compiler/domain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which kernels ---- */

/* Axes that make an input a matrix: those of states that are matrices, where
 * any input has such, not ranks alone. */
static AxisSet matrix_axes(const Graph *g)
{
    AxisSet states = 0, inputs = 0;
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].axes & (g->st[i].axes - 1))
            states |= g->st[i].axes;
    for (int i = 0; i < g->nin; i++)
        inputs |= g->in[i].timed ? g->in[i].axes : 0;
    return (inputs & states & DIM_AXES ? states : inputs) & DIM_AXES;
}

/* A gate or an angle, by its domain: products have what is made of it. */
static bool is_weight(const Input *in)
{
    const Domain *d = domain_named(in->domain);
    return d != &domains[0] && !(d && d->row);
}

/* What products multiply: what all matrices are, but for weights in float32;
 * else float32. */
static DType tile_type(const Graph *g, const CudaOptions *o)
{
    DType tile = NDTYPES;
    AxisSet axes = matrix_axes(g);
    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        if (in->axes & axes && in->timed && !(o->in[i] == F32 && in->rank
                                              && is_weight(in)))
            tile = tile == NDTYPES || tile == o->in[i] ? o->in[i] : F32;
    }
    return tile == BF16 || tile == F16 ? tile : F32;
}

/* Whether a block each for sequences and heads leaves half the chip idle. */
static bool is_few(const Call *call, int processors)
{
    return call->nseq * call->heads * 2 <= processors;
}

/* The copy engine, and copies of 16 bytes, want whole rows, 16 bytes apart,
 * forwards: tokens, or batch entries, that share one are not for them. */
static bool map_fits(CudaExtent e, const View *v, bool ranks)
{
    return v->sd[ranks] == 1 && !(v->st % 8 || v->sh % 8 || v->sb % 8)
        && v->st >= (e.tokens > 1) && v->sb >= (e.batch > 1) && v->sh >= 0
        && !(ranks && (v->sd[0] % 8 || v->sd[0] <= 0))
        && (uintptr_t)v->data % 16 == 0;
}

/* The same of a head's constant, whose rows are its first axis. */
static bool constant_fits(const View *v)
{
    return v->sd[1] == 1 && v->sd[0] > 0 && !(v->sd[0] % 8 || v->sh % 8)
        && !v->sb && v->sh >= 0 && (uintptr_t)v->data % 16 == 0;
}

static bool tensor_fits(const Graph *g, CudaArg a, CudaExtent e, const View *v)
{
    if (a.kind == ARG_INPUT && !g->in[a.index].timed)
        return constant_fits(v);
    return map_fits(e, v, (a.kind == ARG_INPUT && g->in[a.index].rank > 1)
                       || (a.kind == ARG_OUTPUT && g->out[a.index].rank > 1));
}

/* Where the device has the ends, rows are of one batch entry. */
static CudaExtent extent_of(const Call *call)
{
    return call->seq ? cuda_extent(call) : (CudaExtent){ 1, call->tokens };
}

/* Whether tiles are made of a matrix that lies otherwise, which one of float32
 * may be; of what both ways have: of an input that is no gradient. */
static bool is_scattered(const Graph *g, const Call *call, DType tile,
                         bool both_ways)
{
    CudaExtent e = extent_of(call);
    AxisSet axes = matrix_axes(g);
    bool any = false;
    for (int i = 0; i < g->nin && !any; i++) {
        const View *v = &call->in[i];
        any = g->in[i].timed && g->in[i].axes & axes && v->data
           && (v->dtype == tile || (v->dtype == F32 && g->chunk > 1))
           && !(both_ways && input_is_adjoint(&g->in[i]))
           && !map_fits(e, v, g->in[i].rank > 1);
    }
    for (int i = 0; i < g->nout && !any && !both_ways; i++) {
        const View *v = &call->out[i];
        any = g->n[g->out[i].node].axes & axes && v->data
           && v->dtype == tile && !map_fits(e, v, g->out[i].rank > 1);
    }
    return any;
}

/* Its rows are whole, and begin where pieces of 16 bytes may if they are such;
 * a state's lie one behind the other. */
static bool is_whole(const Graph *g, const View *v, const uint8_t *order,
                     int rank, bool dense)
{
    int64_t each = 16 / dtype_size(v->dtype), size = 1;
    bool pieces = rank && g->axis[order[rank - 1]].size % each == 0;
    bool whole = v->data != NULL;
    for (int d = rank; d-- > 0; size *= g->axis[order[d]].size)
        whole &= v->sd[d] == (d == rank - 1 ? 1 : dense ? size : v->sd[d])
              && (!pieces || d == rank - 1 || v->sd[d] % each == 0);
    return whole && (!pieces || ((uintptr_t)v->data % 16 == 0
                                 && v->sb % each == 0 && v->st % each == 0
                                 && v->sh % each == 0));
}

/* Whether it is a step of one token of each batch entry, of such tensors. */
static bool is_single(const Graph *g, const Call *call)
{
    const uint32_t most = UINT32_MAX / 1024;    /* numbers of blocks by heads */
    bool one = !g->chunk && call->seq && !call->each && !call->from && !call->to
            && (uint64_t)call->nseq * (uint64_t)call->heads
               * (uint64_t)call->heads < most;
    for (int64_t i = 0; i < call->nseq && one; i++)
        one = call->seq[i].b == i && !call->seq[i].start
           && call->seq[i].len == 1;
    for (int i = 0; i < g->nin && one; i++)
        one = is_whole(g, &call->in[i], g->in[i].order, g->in[i].rank, false);
    for (int i = 0; i < g->nout && one; i++)
        one = is_whole(g, &call->out[i], g->out[i].order, g->out[i].rank,
                       false) && call->out[i].heads == call->heads;
    for (int i = 0; i < g->nst && one; i++)
        one = !g->st[i].lost_of && !g->st[i].twin_of
           && is_whole(g, &call->s0[i], g->st[i].order, g->st[i].rank, true)
           && is_whole(g, &call->s1[i], g->st[i].order, g->st[i].rank, true)
           && call->s1[i].heads == call->heads
           && (call->s1[i].sb || call->nseq < 2);
    return one;
}

static bool is_grouped(const Graph *g, const Call *call)
{
    bool any = false;
    for (int i = 0; i < g->nin; i++)
        any |= call->in[i].heads != call->heads;
    for (int i = 0; i < g->nst; i++)
        any |= call->s0[i].heads != call->heads;
    return any;
}

static void make_general(CudaOptions *o)
{
    o->single = o->grouped = o->paged = false;
}

static CudaOptions options_of(const Builds *all, const Call *call,
                              const Driver *d)
{
    const Graph *g = all->plan->g;
    CudaOptions o;
    memset(&o, 0, sizeof o);            /* compared as bytes */
    cuda_call_options(&o, g, call);
    o.tile = tile_type(g, &o);
    o.arch = d->arch;
    o.machine = d->machine;
    o.units = d->processors;
    cuda_schedule_options(&o);
    o.few = o.scheduled && is_few(call, d->processors);
    o.cut = o.scheduled && call->ends && !plan_is_joint(all->plan);
    o.scattered = o.scheduled && is_scattered(g, call, o.tile, false);
    o.single = o.scheduled && is_single(g, call);
    o.grouped = o.single && is_grouped(g, call);
    o.paged = o.single && call->pages.at;
    return o;
}

/* Those of the call's kernels that come from a schedule may; dy may be yet to
 * come. */
static bool schedule_fits(const Graph *g, const Build *b, const Call *call)
{
    enum { MOST_ITEMS = 1 << 29 };      /* with slices they are counted by 32
                                           bits */
    CudaExtent e = extent_of(call);
    int64_t slots = call->nseq + e.batch * (e.tokens / b->m->chunk + 1);
    for (int n = 0; n < b->m->nkernels; n++) {
        const CudaKernel *k = &b->m->kernel[n];
        bool runs = k->head && k->of >= call->from
                 && (!call->to || k->of < call->to);
        for (int i = 0; i < k->nmaps && runs && !k->anywhere; i++) {
            CudaArg a = k->map[i];
            const View *v = view_of(call, a);
            if (v && v->data && !tensor_fits(g, a, e, v))
                return false;
        }
    }
    return e.tokens <= INT32_MAX - 64
        && slots * call->heads <= MOST_ITEMS;
}

typedef struct Making {
    Builds *all;
    Build *b;
    const Build *own;                   /* of walks for ends: the plan's own */
    bool fits;
    Error why;                          /* it does not */
} Making;

static bool check_build(Ctx *c, void *ud, const char **wrong, Error *why)
{
    Making *k = ud;
    return build_verify(c, k->all->gpu, k->own ? k->own : k->b,
                        k->own ? k->b : NULL, k->all->plan, wrong, why);
}

static void compile(Ctx *c, void *ud)
{
    Making *k = ud;
    Compile wish = { k->b, k->all->plan, check_build, k, k->own };
    k->fits = build_compile(c, k->all->gpu, &wish, &k->why);
}

static void build_free(Build *b, const Driver *d)
{
    if (d)
        modules_unload(&b->modules, d);
    ctx_free(b->ctx);
    free(b);
}

/* Of which sizes: "k = 64, v = 64, bfloat16". */
static const char *sizes_of(Ctx *c, const Build *b, const Graph *g)
{
    const char *s = "";

    for (int i = 0; i < g->naxes; i++)
        if (g->axis[i].size > 0)
            s = ctx_format(c, "%s%s = %d, ", s, g->axis[i].name,
                           (int)g->axis[i].size);
    return ctx_format(c, "%s%s", s, dtype_name(b->o.tile));
}

/* Says once that kernels without roles run in place of those from schedules. */
static void say_wrong(Ctx *c, Builds *all, const Build *b)
{
    if (!c->say || !b->o.scheduled || all->said)
        return;
    all->said = true;
    c->say(c->say_ud, ctx_format(c, "flin: %s: the kernel that was compiled"
           " for this GPU %s (%s): another runs in its place (said once)",
           all->plan->g->name, b->wrong, sizes_of(c, b, all->plan->g)));
}

/* Says once that ptxas, or the driver, did not take what was printed; that
 * nothing is printed for a plan is no fault. */
static void say_refused(Ctx *c, Builds *all, const Build *b, const char *why)
{
    if (!c->say || all->said_refused)
        return;
    all->said_refused = true;
    c->say(c->say_ud, ctx_format(c, "flin: %s: kernels %s (%s) are not used:"
           " %.*s: others, maybe slower, run in their place (said once)",
           all->plan->g->name, b->o.few ? "from schedules for few heads"
                                        : "from schedules",
           sizes_of(c, b, all->plan->g), (int)strcspn(why, "\n"), why));
}

/* Registers that ptxas may have lacked, at most: of a thread's fragments those
 * that products read must lie side by side. */
enum { SPARE_STEP = 16, MOST_SPARE = 32 };

/* Whether a schedule whose threads have more registers is still to be tried. */
static bool has_more_room(const CudaOptions *o)
{
    return o->scheduled && o->arch == 90 && o->spare < MOST_SPARE;
}

static Build *build_new(Ctx *c, Builds *all, const CudaOptions *o,
                        const Build *own)
{
    Build *b = calloc(1, sizeof *b);
    Making k = { .all = all, .b = b, .own = own };
    if (!b || !(b->ctx = ctx_new())) {
        free(b);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    b->o = *o;
    b->ctx->interrupted = c->interrupted;
    b->ctx->interrupt_ud = c->interrupt_ud;
    bool ok = ctx_protect(c, compile, &k);
    if (ok && !k.fits && !o->scheduled) {
        c->err = k.why;
        ok = false;
    }
    if (!ok) {
        build_free(b, NULL);
        ctx_rethrow(c);
    }
    if (!k.fits || b->wrong)
        b->m = NULL;
    if (b->wrong)
        say_wrong(c, all, b);
    b->uncompiled = !b->wrong && !k.fits && k.why.code == ERR_DEVICE;
    if (b->uncompiled && !has_more_room(o))
        say_refused(c, all, b, k.why.message);
    b->next = all->first;
    return all->first = b;
}

static Build *find_build(Ctx *c, Builds *all, const CudaOptions *o,
                         const Build *own)
{
    for (Build *b = all->first; b; b = b->next)
        if (!memcmp(&b->o, o, sizeof *o))
            return b;
    return build_new(c, all, o, own);
}

/* The same from schedules that leave more registers, where the compiler does
 * not take those that leave the least. */
static Build *find_roomy(Ctx *c, Builds *all, CudaOptions *o,
                         const Build *own)
{
    Build *b = find_build(c, all, o, own);
    while (b->uncompiled && has_more_room(o)) {
        o->spare += SPARE_STEP;
        b = find_build(c, all, o, own);
    }
    return b;
}

/* Kernels that are made for few heads may not compile as they should where
 * those for many do. Has no kernels where all of them are wrong. */
static const Build *build_of(Ctx *c, Builds *all, CudaOptions *o,
                             const Call *call)
{
    const Build *b = find_roomy(c, all, o, NULL);
    if (!b->m && (o->few || o->cut)) {
        o->few = o->cut = false;
        o->spare = 0;
        b = find_roomy(c, all, o, NULL);
    }
    if (o->scheduled
        && !(b->m && schedule_fits(all->plan->g, b, call))) {
        o->scheduled = o->few = o->cut = o->scattered = false;
        o->spare = 0;
        make_general(o);
        b = find_roomy(c, all, o, NULL);
    }
    return b;
}

/* Fails where b has no kernels: it is the last that there is. */
static const Build *right(Ctx *c, const Builds *all, const Build *b)
{
    if (!b->m)
        fail_code(c, ERR_INTERNAL, "%s", build_fault(c, all, b));
    return b;
}

const char *build_fault(Ctx *c, const Builds *all, const Build *b)
{
    return b->m ? NULL
         : ctx_format(c, "%s: the kernel that was compiled for this GPU %s: it"
                      " is not used", all->plan->g->name, b->wrong);
}

const Build *build_ends(Ctx *c, Builds *all, const Build *b)
{
    CudaOptions o = b->o;
    if (!b->m || !o.scheduled)
        return NULL;
    o.ends = true;
    const Build *ends = find_roomy(c, all, &o, b);
    return ends->m ? ends : NULL;
}

bool build_may_have_ends(Ctx *c, const Builds *all, const Call *call)
{
    return options_of(all, call, gpu_enter(c, all->gpu)).scheduled;
}

/* ---- prices ---- */

typedef struct Pricing { const Builds *all; Priced *to; } Pricing;

static void print_priced(Ctx *c, void *ud)
{
    const Pricing *k = ud;
    Priced *p = k->to;
    Error why;
    const CudaModule *m = cuda_tiles_if(c, k->all->plan, &p->o, &why);
    if (!m)
        return;
    size_t bytes = (size_t)m->nkernels * sizeof *m->kernel;
    p->m = *m;
    p->m.source = p->m.schedules = NULL;
    p->m.plan = NULL;
    p->m.kernel = memcpy(ctx_alloc(p->ctx, bytes), m->kernel, bytes);
}

static void print_apart(Ctx *c, void *ud)
{
    ctx_apart(c, print_priced, ud);
}

/* Printed as the first attempt has it, in memory that is given back. */
static const CudaModule *price(Ctx *c, Builds *all, const CudaOptions *o)
{
    for (Priced *p = all->priced; p; p = p->next)
        if (!memcmp(&p->o, o, sizeof *o))
            return p->m.kernel ? &p->m : NULL;
    Priced *p = calloc(1, sizeof *p);
    if (!p || !(p->ctx = ctx_new())) {
        free(p);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    p->o = *o;
    if (!ctx_protect(c, print_apart, &(Pricing){ all, p })) {
        ctx_free(p->ctx);
        free(p);
        ctx_rethrow(c);
    }
    p->next = all->priced;
    all->priced = p;
    return p->m.kernel ? &p->m : NULL;
}

/* Forward alone, of heads that leave less than half the chip idle: whether it
 * is cut as for few. The price alone decides, so that calls of the same sizes
 * always go one way: of tensors that suit either. */
static bool pays_as_few(Ctx *c, Builds *all, const CudaOptions *as,
                        const Call *call)
{
    const Driver *d = gpu_driver(all->gpu);
    CudaOptions many = *as, few;
    if (!cuda_may_pay_as_few(all->plan, as) || call->in_parts
        || call->nseq * call->heads >= d->processors)
        return false;
    many.scattered = false;
    few = many;
    few.few = true;
    const CudaModule *cut = price(c, all, &few);
    return cut && cuda_pays_as_few(all->plan, cut, price(c, all, &many),
                                   d->machine, d->processors, call);
}

bool build_modelled(Ctx *c, Builds *all, const Call *call, Modelled *to)
{
    const Driver *d = gpu_enter(c, all->gpu);
    CudaOptions o = options_of(all, call, d);
    o.few |= pays_as_few(c, all, &o, call);
    *to = (Modelled){ .own = price(c, all, &o) };
    o.ends = true;
    to->ends = o.scheduled ? price(c, all, &o) : NULL;
    return to->own;
}

/* ---- for a call ---- */

/* While a stream records a graph what all such calls may go by will do. */
static bool is_single_there(const Builds *all, const CudaOptions *o)
{
    for (const Build *b = all->first; b; b = b->next)
        if (b->m && b->o.single && b->o.grouped == o->grouped
            && b->o.paged == o->paged && b->o.tile == o->tile
            && !memcmp(b->o.in, o->in, sizeof o->in)
            && !memcmp(b->o.out, o->out, sizeof o->out)
            && !memcmp(b->o.s0, o->s0, sizeof o->s0)
            && !memcmp(b->o.s1, o->s1, sizeof o->s1))
            return true;
    return false;
}

const Build *build_for_if(Ctx *c, Builds *all, const Call *call)
{
    const Driver *d = gpu_enter(c, all->gpu);
    CudaOptions o = options_of(all, call, d);
    if (o.single && all->first && !is_single_there(all, &o)
        && stream_capturing(c, d, call->stream))
        make_general(&o);
    o.few |= pays_as_few(c, all, &o, call);
    return build_of(c, all, &o, call);
}

const Build *build_for(Ctx *c, Builds *all, const Call *call)
{
    return right(c, all, build_for_if(c, all, call));
}

/* Forward alone, whatever the number of heads. */
static void build_all_forward(Ctx *c, Builds *all, const Call *call,
                              CudaOptions o)
{
    for (int few = 0; few < 2; few++) {
        CudaOptions own = o;
        own.few = o.scheduled && few;
        right(c, all, build_of(c, all, &own, call));
    }
    o.single = o.scheduled && !all->plan->g->chunk;
    if (o.single)
        right(c, all, build_of(c, all, &o, call));
}

void build_all(Ctx *c, Builds *all, const Call *call)
{
    const Driver *d = gpu_enter(c, all->gpu);
    CudaOptions o = options_of(all, call, d);
    if (!plan_is_joint(all->plan))
        build_all_forward(c, all, call, o);
    right(c, all, build_of(c, all, &o, call));
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
    for (Priced *p = all->priced, *next; p; p = next) {
        next = p->next;
        ctx_free(p->ctx);
        free(p);
    }
    all->first = NULL;
    all->priced = NULL;
    ctx_free(c);
}
