/* build.c -- which kernels a call gets: which emitter prints its plan, for what
 * types. compile.c makes them.
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
static DType tile_type(const Graph *g, CudaOptions *o)
{
    DType tile = NDTYPES;
    AxisSet axes = matrix_axes(g);
    for (int i = 0; i < g->nin; i++) {
        bool matrix = g->in[i].axes & axes && g->in[i].timed;
        o->wide[i] = o->in[i] == F32 && g->in[i].rank && g->in[i].timed
                  && (!matrix || is_weight(&g->in[i]));
        if (matrix && !o->wide[i])
            tile = tile == NDTYPES || tile == o->in[i] ? o->in[i] : F32;
    }
    if (tile == BF16 || tile == F16)
        return tile;
    memset(o->wide, 0, sizeof o->wide);
    return F32;
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
    memcpy(o.vector, o.in, sizeof o.vector);
    return o;
}

/* Hopper's kernels may be passed this call's tensors. */
static bool call_fits(const Graph *g, const Build *b, const Call *call)
{
    const CudaKernel *k = b->m->kernel;
    CudaExtent e = extent_of(call);
    if (e.tokens > (INT32_MAX - 64) / k->ranks)
        return false;                   /* rows are counted by 32 bits */
    for (int i = 0; i < k->nmaps + k->ntensors; i++) {
        bool map = i < k->nmaps;
        CudaArg a = map ? k->map[i] : k->tensor[i - k->nmaps];
        const View *v = view_of(call, a);
        if ((DType)a.dtype != v->dtype && (v->data || a.kind == ARG_INPUT))
            return false;
        if (map && !(v->data ? tensor_fits(g, a, e, v)
                             : a.kind == ARG_OUTPUT))
            return false;
    }
    return true;
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
    const Build *rest;                  /* of one that saves: the way back; of
                                           walks' ends: the plan's own */
    const CudaOptions *next;            /* of the way back: the one that saves,
                                           if it is to follow */
    bool fits;
    Error why;                          /* it does not */
} Making;

static bool check_build(Ctx *c, void *ud, const char **wrong, Error *why)
{
    Making *k = ud;
    Verify of = { .b = k->rest ? k->rest : k->b };
    if (k->b->o.ends)
        of.ends = k->b;
    else if (k->rest)
        of.forward = k->b;
    return build_verify(c, k->all->gpu, &of, k->all->plan, wrong, why);
}

static void compile(Ctx *c, void *ud)
{
    Making *k = ud;
    Compile wish = { k->b, k->all->plan, check_build, k, k->next, k->rest };
    k->fits = build_compile(c, k->all->gpu, &wish, &k->why);
}

static void build_free(Build *b, const Driver *d)
{
    if (d)
        modules_unload(&b->modules, d);
    ctx_free(b->ctx);
    free(b);
}

/* Hopper's emitter may refuse a plan, and its kernels, or those from a
 * schedule, may not compile as they should: others run then. */
static bool has_others(const Build *b)
{
    return b->hopper || b->o.scheduled;
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

/* Says once that another emitter's kernels run. */
static void say_wrong(Ctx *c, Builds *all, const Build *b)
{
    if (!c->say || !has_others(b) || all->said)
        return;
    all->said = true;
    c->say(c->say_ud, ctx_format(c, "flin: %s: the kernel that was compiled"
           " for this GPU %s (%s): another runs in its place (said once)",
           all->plan->g->name, b->wrong, sizes_of(c, b, all->plan->g)));
}

/* Says once that ptxas, or the driver, did not take what was printed; that an
 * emitter prints nothing for a plan is no fault. */
static void say_refused(Ctx *c, Builds *all, const Build *b, const char *why)
{
    if (!c->say || all->said_refused)
        return;
    all->said_refused = true;
    c->say(c->say_ud, ctx_format(c, "flin: %s: kernels %s (%s) are not used:"
           " %.*s: others, maybe slower, run in their place (said once)",
           all->plan->g->name, b->hopper ? "for Hopper alone"
           : b->o.few ? "from schedules for few heads" : "from schedules",
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
                        bool hopper, const Build *rest,
                        const CudaOptions *next)
{
    Build *b = calloc(1, sizeof *b);
    Making k = { .all = all, .b = b, .rest = rest, .next = next };
    if (!b || !(b->ctx = ctx_new())) {
        free(b);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    b->o = *o;
    b->hopper = hopper;
    b->ctx->interrupted = c->interrupted;
    b->ctx->interrupt_ud = c->interrupt_ud;
    bool ok = ctx_protect(c, compile, &k);
    if (ok && !k.fits && !has_others(b)) {
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
                         bool hopper, const Build *rest,
                         const CudaOptions *next)
{
    for (Build *b = all->first; b; b = b->next)
        if (b->hopper == hopper && !memcmp(&b->o, o, sizeof *o))
            return b;
    return build_new(c, all, o, hopper, rest, next);
}

static bool suits_hopper(const Builds *all, const CudaOptions *o)
{
    return o->arch == 90 && o->tile != F32
        && all->plan->g->chunk == CUDA_HOPPER_CHUNK
        && !sums_any(all->plan->g, o);
}

/* The same from schedules that leave more registers, where the compiler does
 * not take those that leave the least. */
static Build *find_roomy(Ctx *c, Builds *all, CudaOptions *o,
                         const Build *rest, const CudaOptions *next)
{
    Build *b = find_build(c, all, o, false, rest, next);
    while (b->uncompiled && has_more_room(o)) {
        o->spare += SPARE_STEP;
        b = find_build(c, all, o, false, rest, next);
    }
    return b;
}

/* The one for Hopper with this many groups, or NULL. */
static Build *hopper_build(Ctx *c, Builds *all, CudaOptions o, int groups,
                           const Build *rest)
{
    if (!suits_hopper(all, &o))
        return NULL;
    o.groups = groups;
    o.split = true;
    o.scheduled = o.few = o.cut = false;        /* it knows of neither */
    o.spare = 0;
    o.scattered = false;
    Build *b = find_build(c, all, &o, true, rest, NULL);
    return b->m ? b : NULL;
}

/* ---- a joint plan: forward by Hopper's kernels, back by the others ---- */

/* The types that the way forward has to do with; it saves. */
static CudaOptions forward_options(const Builds *all, const CudaOptions *o)
{
    const Graph *g = all->plan->g;
    CudaOptions f = *o;
    f.saves = true;
    f.scheduled = f.few = f.cut = f.scattered = false;
    f.rows = f.spare = 0;
    for (int i = graph_results(g); i < g->nout; i++)
        f.out[i] = f.sum_out[i] = 0;
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].reverse)
            f.s0[i] = f.s1[i] = f.sum_s1[i] = 0;
    for (int i = 0; i < g->nin; i++)
        if (input_is_adjoint(&g->in[i]))
            f.in[i] = f.vector[i] = 0;
    return f;
}

typedef struct Trying {
    const Builds *all;
    const CudaOptions *o;
    int rows;                           /* -1: there are no such kernels */
    Error why;
} Trying;

static void try_forward(Ctx *c, void *ud)
{
    Trying *t = ud;
    CudaOptions f = forward_options(t->all, t->o);
    f.groups = 2;
    for (int i = 0; i < t->all->plan->g->nst; i++)
        f.kept.has[i] = t->all->plan->stored[t->all->plan->g->st[i].node];
    const CudaModule *m = suits_hopper(t->all, &f)
        ? cuda_emit_if(c, t->all->plan, &f, &t->why) : NULL;
    t->rows = m ? m->kernel->row_axis : -1;
}

/* How such a plan's states are stored: which calls have what kernels must not
 * change it. */
static int rows_of(Ctx *c, Builds *all, const CudaOptions *o)
{
    int8_t *rows = &all->rows[o->tile];
    Trying t = { .all = all, .o = o };
    if (*rows || !plan_is_joint(all->plan))
        return *rows;
    ctx_apart(c, try_forward, &t);
    return *rows = (int8_t)t.rows;
}

static void set_rows(Ctx *c, Builds *all, CudaOptions *o)
{
    int rows = rows_of(c, all, o);
    o->rows = rows > 0 ? rows : 0;
}

/* Kernels that are made for few heads may not compile as they should where
 * those for many do. o: with its rows. groups: of the way forward that is to
 * follow where it can; 0: none is. Has no kernels where all of them are wrong.
 */
static const Build *tiles_build(Ctx *c, Builds *all, CudaOptions *o,
                                const Call *call, int groups)
{
    CudaOptions next = forward_options(all, o);
    next.groups = groups;
    next.split = true;
    bool follows = o->rows && groups && suits_hopper(all, &next);
    const CudaOptions *also = follows ? &next : NULL;
    const Build *b = find_roomy(c, all, o, NULL, also);
    if (!b->m && (o->few || o->cut)) {
        o->few = o->cut = false;
        o->spare = 0;
        b = find_roomy(c, all, o, NULL, also);
    }
    if (o->scheduled
        && !(b->m && schedule_fits(all->plan->g, b, call))) {
        o->scheduled = o->few = o->cut = o->scattered = false;
        o->spare = 0;
        make_general(o);
        b = find_roomy(c, all, o, NULL, also);
    }
    if (b->m && b->m->chunk != all->plan->g->chunk)
        o->rows = 0;                    /* goes forward by itself */
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
    const Build *ends = find_roomy(c, all, &o, b, NULL);
    return ends->m ? ends : NULL;
}

bool build_may_have_ends(Ctx *c, const Builds *all, const Call *call)
{
    return options_of(all, call, gpu_enter(c, all->gpu)).scheduled;
}

static const Build *forward_build(Ctx *c, Builds *all, const CudaOptions *o,
                                  int groups, const Build *rest)
{
    CudaOptions f = forward_options(all, o);
    f.kept = rest->m->kept;
    return hopper_build(c, all, f, groups, rest);
}

/* Blocks of one group while those do not fill the chip: a block of two reads
 * q and k once for twice the values. */
static int groups_for(const Call *call, int processors)
{
    return is_few(call, processors) ? 1 : 2;
}

/* The one of them that this call's tensors suit. */
static const Build *hopper_for(Ctx *c, Builds *all, const Call *call,
                               const CudaOptions *o, const Build *rest)
{
    int groups = groups_for(call, gpu_driver(all->gpu)->processors);
    for (int i = 0; i < 2; i++, groups = 3 - groups) {
        const Build *b = rest ? forward_build(c, all, o, groups, rest)
                              : hopper_build(c, all, *o, groups, NULL);
        if (b && call_fits(all->plan->g, b, call))
            return b;
    }
    return NULL;
}

/* ---- whose the way forward is ---- */

typedef struct Pricing { const Builds *all; Priced *to; } Pricing;

static void print_priced(Ctx *c, void *ud)
{
    const Pricing *k = ud;
    Priced *p = k->to;
    Error why;
    const CudaModule *m = p->hopper
        ? cuda_emit_if(c, k->all->plan, &p->o, &why)
        : cuda_tiles_if(c, k->all->plan, &p->o, &why);
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
static const CudaModule *price(Ctx *c, Builds *all, const CudaOptions *o,
                               bool hopper)
{
    for (Priced *p = all->priced; p; p = p->next)
        if (p->hopper == hopper && !memcmp(&p->o, o, sizeof *o))
            return p->m.kernel ? &p->m : NULL;
    Priced *p = calloc(1, sizeof *p);
    if (!p || !(p->ctx = ctx_new())) {
        free(p);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    p->o = *o;
    p->hopper = hopper;
    if (!ctx_protect(c, print_apart, &(Pricing){ all, p })) {
        ctx_free(p->ctx);
        free(p);
        ctx_rethrow(c);
    }
    p->next = all->priced;
    all->priced = p;
    return p->m.kernel ? &p->m : NULL;
}

static const CudaModule *price_hopper(Ctx *c, Builds *all, CudaOptions o,
                                      int groups)
{
    if (!suits_hopper(all, &o))
        return NULL;
    o.groups = groups;
    o.split = true;
    o.scheduled = o.few = o.cut = o.scattered = false;
    return price(c, all, &o, true);
}

/* As all kernels from schedules are made for: cuda_emit has none of them. */
static CudaOptions own_options(const CudaOptions *o)
{
    CudaOptions own = *o;
    own.rows = 0;
    return own;
}

/* The price alone decides, so that calls of the same sizes always go one way:
 * of tensors that suit either. as: as tiles_build has it. */
static bool takes_schedules(Ctx *c, Builds *all, const CudaOptions *as,
                            const Call *call)
{
    const Driver *d = gpu_driver(all->gpu);
    bool joint = plan_is_joint(all->plan);
    CudaOptions suits = *as, *o = &suits;
    suits.scattered = false;
    CudaOptions f = joint ? forward_options(all, o) : *o;
    CudaOptions own = own_options(o);
    if (!o->scheduled || !suits_hopper(all, &f) || (joint && !o->rows)
        || cuda_road_asked() == ROAD_EMITTED)
        return false;                   /* there is no other road */
    const CudaModule *m = price(c, all, &own, false);
    if (!m || !cuda_forward_scheduled(all->plan, m))
        return false;
    const CudaModule *rest = joint ? price(c, all, o, false) : NULL;
    f.kept = rest ? rest->kept : f.kept;
    own.ends = call->ends > 0;
    return cuda_takes_schedules(all->plan, m,
                                own.ends ? price(c, all, &own, false) : NULL,
                                price_hopper(c, all, f,
                                             groups_for(call, d->processors)),
                                rest, d->machine, d->processors, call);
}

/* Forward alone, of heads that leave less than half the chip idle: whether it
 * is cut as for few. */
static bool pays_as_few(Ctx *c, Builds *all, const CudaOptions *as,
                        const Call *call)
{
    const Driver *d = gpu_driver(all->gpu);
    CudaOptions o = *as, few;
    if (!o.scheduled || o.few || o.cut || call->in_parts
        || plan_is_joint(all->plan)
        || call->nseq * call->heads >= d->processors
        || !suits_hopper(all, &o))
        return false;
    o.scattered = false;
    few = o;
    few.few = true;
    const CudaModule *cut = price(c, all, &few, false);
    return cut && cuda_pays_as_few(all->plan, cut, price(c, all, &o, false),
                                   price_hopper(c, all, o, groups_for(call,
                                                            d->processors)),
                                   d->machine, d->processors, call);
}

bool build_modelled(Ctx *c, Builds *all, const Call *call, Modelled *to)
{
    const Driver *d = gpu_enter(c, all->gpu);
    CudaOptions o = options_of(all, call, d);
    o.few |= pays_as_few(c, all, &o, call);
    set_rows(c, all, &o);
    bool takes = takes_schedules(c, all, &o, call);
    if (takes)
        o = own_options(&o);
    *to = (Modelled){ .back = price(c, all, &o, false) };
    to->forward = to->back;
    if (to->back && o.rows) {
        CudaOptions f = forward_options(all, &o);
        f.kept = to->back->kept;
        to->forward = price_hopper(c, all, f,
                                   groups_for(call, d->processors));
    } else if (to->back && !takes && !plan_is_joint(all->plan)) {
        const CudaModule *m = price_hopper(c, all, o,
                                           groups_for(call, d->processors));
        to->forward = m ? m : to->back;
    }
    o.ends = true;
    to->ends = o.scheduled ? price(c, all, &o, false) : NULL;
    return to->forward && to->back;
}

/* Whether there are kernels for such a call. */
static bool is_there(const Builds *all, const CudaOptions *o, bool hopper,
                     int groups)
{
    bool any = false;
    for (const Build *b = all->first; b; b = b->next)
        any |= b->m && b->hopper == hopper && b->o.tile == o->tile
            && (hopper ? b->o.groups == groups
                       : b->o.scheduled && b->o.few == o->few && !b->o.rows
                         && b->o.scattered == o->scattered);
    return any;
}

/* While a stream records a graph nothing can be compiled: of two roads one that
 * is there is taken. */
static bool takes_schedules_now(Ctx *c, Builds *all, const CudaOptions *o,
                                const Call *call)
{
    const Driver *d = gpu_driver(all->gpu);
    bool takes = takes_schedules(c, all, o, call);
    if (!all->first || !stream_capturing(c, d, call->stream))
        return takes;
    bool tiles = is_there(all, o, false, 0);
    bool hopper = is_there(all, o, true, groups_for(call, d->processors));
    return takes ? tiles || !hopper : tiles && !hopper;
}

/* The call's tensors may be such that there are no schedules for it. */
static bool is_scheduled_forward(const Builds *all, const Build *b)
{
    return b->o.scheduled && cuda_forward_scheduled(all->plan, b->m);
}

/* Forward alone. */
static const Build *build_forward(Ctx *c, Builds *all, const Call *call,
                                  CudaOptions *o)
{
    const Build *tiles = NULL, *whole;
    o->few |= pays_as_few(c, all, o, call);
    if (o->scattered || takes_schedules_now(c, all, o, call)) {
        tiles = tiles_build(c, all, o, call, 0);
        if (!tiles->m || is_scheduled_forward(all, tiles))
            return tiles;
    }
    whole = hopper_for(c, all, call, o, NULL);
    return whole ? whole : tiles ? tiles : tiles_build(c, all, o, call, 0);
}

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

const Build *build_for_if(Ctx *c, Builds *all, const Call *call,
                          const Build **forward)
{
    const Driver *d = gpu_enter(c, all->gpu);
    CudaOptions o = options_of(all, call, d);
    *forward = NULL;
    if (o.single && all->first && !is_single_there(all, &o)
        && stream_capturing(c, d, call->stream))
        make_general(&o);
    if (!plan_is_joint(all->plan))
        return build_forward(c, all, call, &o);
    set_rows(c, all, &o);
    if (o.scheduled && (is_scattered(all->plan->g, call, o.tile, true)
                        || takes_schedules_now(c, all, &o, call)))
        o = own_options(&o);
    const Build *tiles = tiles_build(c, all, &o, call, call->from
                              ? 0 : groups_for(call, d->processors));
    if (tiles->m && o.rows && !call->from)
        *forward = hopper_for(c, all, call, &o, tiles);
    return tiles;
}

const Build *build_for(Ctx *c, Builds *all, const Call *call,
                       const Build **forward)
{
    return right(c, all, build_for_if(c, all, call, forward));
}

/* Whether some call's way forward comes from schedules, or from cuda_emit;
 * which is a question of how many heads there are. */
static bool may_take(Ctx *c, Builds *all, const CudaOptions *o, bool schedules)
{
    enum { MOST_HEADS = 1024, TOKENS = 8192 };
    bool any = false;
    for (int heads = 1; heads <= MOST_HEADS && !any; heads++) {
        Call call = { .nseq = 1, .heads = heads, .tokens = TOKENS };
        CudaOptions own = *o;
        own.few = o->scheduled
               && is_few(&call, gpu_driver(all->gpu)->processors);
        any = own.few == o->few
           && takes_schedules(c, all, &own, &call) == schedules;
    }
    return any;
}

/* Forward alone, whatever the number of heads. */
static void build_all_forward(Ctx *c, Builds *all, const Call *call,
                              CudaOptions o)
{
    bool emits = false;
    for (int few = 0; few < 2; few++) {
        CudaOptions own = o;
        own.few = o.scheduled && few;
        emits |= may_take(c, all, &own, false);
        if (may_take(c, all, &own, true))
            right(c, all, tiles_build(c, all, &own, call, 0));
    }
    for (int groups = 1; groups <= 2 && emits; groups++)
        hopper_build(c, all, o, groups, NULL);
    o.single = o.scheduled && !all->plan->g->chunk;
    if (o.single)
        right(c, all, tiles_build(c, all, &o, call, 0));
}

void build_all(Ctx *c, Builds *all, const Call *call)
{
    const Driver *d = gpu_enter(c, all->gpu);
    CudaOptions o = options_of(all, call, d);
    if (!plan_is_joint(all->plan))
        build_all_forward(c, all, call, o);
    set_rows(c, all, &o);
    CudaOptions own = own_options(&o);
    if (o.rows && may_take(c, all, &o, true))
        right(c, all, tiles_build(c, all, &own, call, 0));
    const Build *tiles = right(c, all, tiles_build(c, all, &o, call, 2));
    for (int groups = 1; groups <= 2 && o.rows; groups++)
        forward_build(c, all, &o, groups, tiles);
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
