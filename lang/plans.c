/* plans.c -- a variant's plans: derived once for each set of sizes, kept. */
#include <string.h>

#include "../backend/cpu/cpu.h"
#include "../backend/cuda/pairs.h"
#include "../backend/cuda/run.h"
#include "../compiler/cost.h"
#include "../compiler/mask.h"
#include "../compiler/partition.h"
#include "shared.h"
#include "window.h"

/* ---- backends ---- */

static const Machine *cpu_machine(Ctx *c, const Shared *s)
{
    (void)c;
    (void)s;
    return &machine_cpu;
}

static void *cpu_make(Ctx *c, const Plan *p, const Shared *s)
{
    return cpu_compile(c, p, NULL, s->pool);
}

static void cpu_go(Ctx *c, void *program, const Plan *p, const Call *call)
{
    (void)p;
    cpu_execute(c, program, call, NULL);
}

static int64_t cpu_room(Ctx *c, void *program, const Plan *p,
                        const Call *call)
{
    (void)c;
    (void)p;
    return cpu_workspace(program, call);
}

static int64_t cpu_saved(Ctx *c, void *program, const Plan *p,
                         const Call *call)
{
    (void)c;
    (void)p;
    return cpu_kept(program, call);
}

static void cpu_drop(void *program)
{
    cpu_free(program);
}

/* The chunk form in double, node by node: what a backend is judged by. */
static void interpret(Ctx *c, void *program, const Plan *p, const Call *call)
{
    (void)program;
    if (p->g->chunk)
        interpret_chunks(c, p->g, call);
    else
        reference_run(c, p->g, call);
}

static const Machine *cuda_machine(Ctx *c, const Shared *s)
{
    return gpu_machine(c, s->gpu);
}

static void *cuda_make(Ctx *c, const Plan *p, const Shared *s)
{
    return cuda_program(c, p, s->gpu);
}

static void cuda_go(Ctx *c, void *program, const Plan *p, const Call *call)
{
    (void)p;
    cuda_run(c, program, call);
}

static void cuda_drop(void *program)
{
    cuda_release(program);
}

static const char *cuda_fault(void *program)
{
    return cuda_wrong(program);
}

static void cuda_ready(Ctx *c, void *program, const Plan *p,
                       const Call *call)
{
    (void)p;
    cuda_prepare(c, program, call);
}

static int64_t cuda_bytes(Ctx *c, void *program, const Plan *p,
                          const Call *call)
{
    (void)p;
    return cuda_call_workspace(c, program, call);
}

static int64_t cuda_saved(Ctx *c, void *program, const Plan *p,
                          const Call *call)
{
    (void)p;
    return cuda_kept(c, program, call);
}

static uint64_t cuda_lay(Ctx *c, void *program, const Call *call)
{
    return cuda_layout(c, program, call);
}

static bool cuda_begins(Ctx *c, void *program, const Call *call)
{
    return cuda_may_begin(c, program, call);
}

static bool cuda_overlies(Ctx *c, void *program, const Call *call, int output,
                          int input)
{
    return cuda_lies_over(c, program, call, output, input);
}

static double cuda_predicts(Ctx *c, void *program, const Call *call)
{
    return cuda_seconds(c, program, call);
}

static void *cuda_keep(Ctx *c, struct Gpu *gpu, const Call *call,
                       int64_t bytes)
{
    gpu_enter(c, gpu);
    return (void *)(uintptr_t)gpu_workspace(c, gpu, call->stream,
                                            (size_t)bytes);
}

static bool cuda_look(Ctx *c, void *program, const Call *call, Probe *p,
                      int n)
{
    return cuda_probe(c, program, call, p, n);
}

static void cuda_fetch(Ctx *c, void *program, void *to, const void *from,
                       size_t bytes)
{
    cuda_read(c, program, to, from, bytes);
}

static void cuda_store(Ctx *c, void *program, void *to, const void *from,
                       size_t bytes)
{
    cuda_write(c, program, to, from, bytes);
}

static void cuda_clear(Ctx *c, struct Gpu *gpu, const Call *call, void *at,
                       int64_t bytes)
{
    stream_fill(c, gpu_enter(c, gpu), call->stream, (DevicePtr)(uintptr_t)at,
                0, (size_t)bytes);
}

static void cuda_fill(Ctx *c, struct Gpu *gpu, const Call *call, void *at,
                      float x, int64_t n)
{
    stream_fill_floats(c, gpu_enter(c, gpu), call->stream,
                       (DevicePtr)(uintptr_t)at, x, (size_t)n);
}

static void cuda_put(Ctx *c, struct Gpu *gpu, const Call *call, void *to,
                     const void *from, int64_t bytes)
{
    stream_put(c, gpu_enter(c, gpu), call->stream, (DevicePtr)(uintptr_t)to,
               from, (size_t)bytes);
}

typedef struct Takes {
    const Plan *p;
    const Machine *m;
    bool anyhow, all;
} Takes;

static void run_takes(Ctx *own, void *ud)
{
    Takes *t = ud;
    const uint8_t *plain = cuda_plain(own, t->p, t->m, t->anyhow);

    t->all = !memchr(plain, 1, (size_t)t->p->nkernels);
}

/* Whether schedules for that GPU take all of the plan's kernels. */
static bool cuda_takes(Ctx *c, const Plan *p, const Machine *m, bool anyhow)
{
    Takes t = { p, m, anyhow, false };

    ctx_apart(c, run_takes, &t);
    return t.all;
}

enum { CPU, CUDA };
static const Backend backends[] = {
    { .name = "cpu", .machine = cpu_machine, .compile = cpu_make,
      .run = cpu_go, .release = cpu_drop, .workspace = cpu_room,
      .kept = cpu_saved },
    { .name = "cuda", .machine = cuda_machine, .chunk = CHUNK_DEFAULT,
      .larger = cuda_takes,
      .compile = cuda_make, .run = cuda_go, .release = cuda_drop,
      .wrong = cuda_fault,
      .prepare = cuda_ready, .workspace = cuda_bytes, .kept = cuda_saved,
      .layout = cuda_lay, .may_begin = cuda_begins,
      .lies_over = cuda_overlies,
      .seconds = cuda_predicts, .keep = cuda_keep, .clear = cuda_clear,
      .fill = cuda_fill,
      .put = cuda_put, .probe = cuda_look,
      .read = cuda_fetch, .write = cuda_store },
    { .name = "interpreter", .machine = cpu_machine, .run = interpret },
};

const Backend *backend_named(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (!strcmp(backends[i].name, name))
            return &backends[i];
    return NULL;
}

const char *backend_names(void)
{
    return "cpu, cuda, interpreter";
}

/* ---- making one ---- */

typedef struct NewEntry { Variant *v; PlanEntry *e; } NewEntry;

static uint64_t joint_mark(Ctx *c, const PlanEntry *e)
{
    Buf text = { .ctx = c };

    if (!e->joint)
        return 0;
    plan_print(e->plan, &text);
    return hash_bytes((uint64_t)(uintptr_t)e->backend, text.s, text.len);
}

static Graph *without_results(Ctx *c, const Graph *step)
{
    Graph *g = graph_copy(c, step);

    g->nout = 0;
    return g;
}

/* That of the whole plan by the machine's own prices, whoever has cut it. */
static double price(Ctx *c, const Plan *p, const Machine *m)
{
    size_t bytes = (size_t)p->nkernels * sizeof *p->kernel;
    Plan own = *p;

    own.kernel = ctx_grow(c, p->kernel, bytes, bytes);
    return price_plan(&own, m) / (p->g->chunk ? p->g->chunk : 1);
}

static void make(Ctx *c, NewEntry *n)
{
    PlanEntry *e = n->e;
    Graph *step = e->ends ? without_results(c, n->v->step) : n->v->step;
    double start = clock_now();

    ctx_doing(c, "plan", step->name);
    e->plan = plan_make(step, e->size, e->chunk, e->joint,
                        e->backend->machine(c, &n->v->shared),
                        e->exact ? NULL : e->backend->larger);
    if (e->chunk && !e->plan->g->chunk)
        e->note = ctx_string(c, step->note ? step->note : "");
    if (e->backend->compile)
        e->program = e->backend->compile(c, e->plan, &n->v->shared);
    if ((n->v->weighed || n->v->step->window) && !e->backend->chunk)
        e->price = price(c, e->plan, &machine_cpu);
    e->mark = joint_mark(c, e);
    e->seconds = clock_now() - start;
}

static void new_entry(Ctx *c, void *ud)
{
    NewEntry *n = ud;
    PlanEntry *e = ctx_alloc(c, sizeof *e);

    *e = *n->e;
    n->e = e;
    make(c, n);
}

/* ---- chunk sizes ---- */

struct BestChunk {
    BestChunk *next;
    int32_t size[NAXES];
    bool joint;
    int chunk;
    Weighed weighed[CHUNKS_WEIGHED];
};

static void new_best(Ctx *c, void *ud)
{
    BestChunk **b = ud;

    *b = ctx_alloc(c, sizeof **b);
}

static BestChunk *find_best(Ctx *c, Variant *v, const int32_t size[NAXES],
                            bool joint)
{
    BestChunk *b;

    for (b = v->chunks; b; b = b->next)
        if (b->joint == joint && !memcmp(b->size, size, sizeof b->size))
            return b;
    if (!ctx_protect(v->ctx, new_best, &b)) {
        c->err = v->ctx->err;
        ctx_rethrow(c);
    }
    memcpy(b->size, size, sizeof b->size);
    b->joint = joint;
    b->chunk = best_chunk(c, v->step, size, joint, &machine_cpu, b->weighed);
    b->next = v->chunks;
    return v->chunks = b;
}

int plan_best_chunk(Ctx *c, Variant *v, const int32_t size[NAXES],
                    bool joint, Weighed *weighed)
{
    const BestChunk *b = find_best(c, v, size, joint);

    if (weighed)
        memcpy(weighed, b->weighed, sizeof b->weighed);
    return b->chunk;
}

/* Plans live in the variant's context; a failure goes on in the call's. */
static PlanEntry *plan_wanted(Ctx *c, Variant *v, PlanEntry wanted)
{
    const Backend *b = wanted.backend;
    PlanEntry *e;
    NewEntry n = { v, &wanted };

    if (wanted.chunk == CHUNK_AUTO && !v->step->mask)
        wanted.chunk = b->chunk ? b->chunk
            : plan_best_chunk(c, v, wanted.size, wanted.joint, NULL);
    for (e = v->plans; e; e = e->next)
        if (e->chunk == wanted.chunk && e->joint == wanted.joint
            && e->ends == wanted.ends && e->exact == wanted.exact
            && e->backend == b
            && !memcmp(e->size, wanted.size, sizeof e->size))
            break;
    while (e && e->instead)
        e = e->instead;
    if (e)
        return e;
    if (v->step->mask && !wanted.chunk && v->step->mask->uncached)
        fail_help(c, 0, v->step->mask->uncached_help, "step: %s",
                  v->step->mask->uncached);
    if (v->step->mask)
        fail_help(c, 0, "v:forward and v:reference take whole sequences",
                  "%s has no plan: every pair of tokens is taken",
                  v->step->mask->softmax ? "softmax attention"
                                         : "a mask of mode \"quadratic\"");
    v->ctx->interrupted = c->interrupted;
    v->ctx->interrupt_ud = c->interrupt_ud;
    if (!ctx_protect(v->ctx, new_entry, &n)) {
        c->err = v->ctx->err;
        ctx_rethrow(c);
    }
    n.e->next = v->plans;
    v->plans = n.e;
    return n.e;
}

PlanEntry *plan_for(Ctx *c, Variant *v, const int32_t size[NAXES], int chunk,
                    bool joint, const Backend *named)
{
    PlanEntry wanted = { .chunk = chunk, .joint = joint,
                         .backend = named ? named : &backends[0] };

    memcpy(wanted.size, size, sizeof wanted.size);
    return plan_wanted(c, v, wanted);
}

PlanEntry *plan_for_ends(Ctx *c, Variant *v, const int32_t size[NAXES],
                         int chunk, const Backend *named)
{
    PlanEntry wanted = { .chunk = chunk, .ends = true,
                         .backend = named ? named : &backends[0] };

    memcpy(wanted.size, size, sizeof wanted.size);
    return plan_wanted(c, v, wanted);
}

/* ---- other roads ---- */

static PlanEntry *found_wrong(const Variant *v)
{
    PlanEntry *e = v->plans;

    while (e && (e->instead || !e->program || !e->backend->wrong
                 || !e->backend->wrong(e->program)))
        e = e->next;
    return e;
}

static void say_instead(Ctx *c, const Variant *v, const PlanEntry *e)
{
    int chunk = e->instead->plan->g->chunk;

    if (c->say)
        c->say(c->say_ud, ctx_format(c, "flin: %s: the kernel that was "
               "compiled for this GPU %s: one for %s runs in its place (said "
               "once)", v->step->name, e->backend->wrong(e->program), chunk
               ? ctx_format(c, "chunks of %d tokens", chunk)
               : "a token at a time"));
}

bool plans_turn(Ctx *c, Variant *v)
{
    PlanEntry *e = found_wrong(v);

    if (!e || !e->plan->g->chunk)
        return false;
    int chunk = e->plan->g->chunk / 2;
    PlanEntry wanted = { .chunk = chunk < CHUNK_LEAST ? 0 : chunk,
                         .joint = e->joint, .ends = e->ends,
                         .exact = chunk < CHUNK_DEFAULT / 2,
                         .backend = e->backend };
    memcpy(wanted.size, e->size, sizeof wanted.size);
    e->instead = plan_wanted(c, v, wanted);
    atomic_fetch_add(&v->turned, 1);
    say_instead(c, v, e);
    return true;
}

void plans_try(Ctx *c, Variant *v, void (*f)(Ctx *c, void *ud), void *ud)
{
    while (!ctx_protect(c, f, ud))
        if (!plans_turn(c, v))
            ctx_rethrow(c);
}

void plans_release(Variant *v)
{
    for (PlanEntry *e = v->plans; e; e = e->next)
        if (e->backend->release && e->program)
            e->backend->release(e->program);
    v->plans = NULL;
    for (int i = 0; v->scan && i < NSCANS && v->scan[i]; i++)
        plans_release(v->scan[i]);
    v->scan = NULL;
    if (v->runs)
        v->runs->release(v);
    pairs_free(v->shared.gpu, v->pairs);
    v->pairs = NULL;
    shared_release(&v->shared);
}

/* ---- running ---- */

int plan_chunk(const Args *a)
{
    if (a->serial || mode_steps(a->mode))
        return 0;
    return a->chunk ? a->chunk : CHUNK_AUTO;
}

/* Nothing moves between CPU and GPU but to a GPU that is named, and back. */
const Backend *call_backend(Ctx *c, const Args *a, const Call *call)
{
    const Backend *b = a->backend;

    if (a->mode == M_REFERENCE || a->mode == M_REFERENCE_BACKWARD)
        b = backend_named("interpreter");
    if (!b)
        b = &backends[call->on_device ? CUDA : CPU];
    if (call->on_device && b != &backends[CUDA])
        fail_help(c, 0, "t:to(\"cpu\")", "%s: the tensors are on the GPU, "
                  "where '%s' cannot run", mode_name[a->mode],
                  a->backend && b == a->backend ? b->name
                                                : mode_name[a->mode]);
    return b;
}

bool on_device_pairs(const Variant *v, const Args *a, const Bound *b)
{
    return v->step->mask && !v->runs && b->call.on_device
        && (a->mode == M_FORWARD || a->mode == M_BACKWARD);
}

static PairsCall pairs_call(const Variant *v, const Bound *b)
{
    return (PairsCall){ .step = v->step, .call = &b->call };
}

/* The plan that such a call runs by; NULL: none, it is interpreted, or goes
 * over all pairs. */
static PlanEntry *bound_plan(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    const Backend *backend = call_backend(c, a, &b->call);

    if (a->mode == M_REFERENCE || (v->step->mask && !mode_steps(a->mode)))
        return NULL;
    if (a->ends)
        return plan_for_ends(c, v, b->call.size, plan_chunk(a), backend);
    return plan_for(c, v, b->call.size, plan_chunk(a), false, backend);
}

const LayerRuns *runs_of(Ctx *c, const Variant *v, const Args *a,
                         const Bound *b, const Adjoint *d)
{
    bool truth = a->mode == M_REFERENCE || a->mode == M_REFERENCE_BACKWARD;

    if (truth || !v->runs
        || (v->runs->takes && !v->runs->takes(c, v, a, b, d)))
        return NULL;
    return v->runs;
}

static void run_pairs(Ctx *c, Variant *v, const Bound *b)
{
    PairsCall p = pairs_call(v, b);

    pairs_run(c, v->shared.gpu, &v->pairs, &p);
}

/* The state that sequence n begins with: -1: none. */
static int64_t first_state(const Call *call, int64_t n)
{
    View at = { .data = (void *)call->pages.at, .dtype = call->pages.dtype };

    if (!at.data)
        return n;
    double page = view_get(&at, n * call->pages.sn);
    return page >= 0 && page < (double)call->pages.states ? (int64_t)page : -1;
}

/* Is there a place for each token? On a device nobody looks, and y becomes
 * NaN. */
static void check_room_for(Ctx *c, const Variant *v, const Args *a,
                           const Call *call)
{
    const View *position = &call->s0[graph_find_state(v->step, "position")];

    for (int64_t n = 0; n < call->nseq; n++) {
        int64_t state = first_state(call, n);
        double had = !position->data ? 0 : state < 0 ? -1
                   : view_get(position, state * position->sb);
        double all = had + (double)call->seq[n].len;
        if (had >= 0 && all > (double)v->limit)
            fail_help(c, 0, ctx_format(c, "flin.variant { tokens = %.0f, ... }",
                      all < 2.0 * (double)v->limit ? 2.0 * (double)v->limit
                                                   : all),
                      "%s: %s keeps %lld tokens, but sequence %lld comes to "
                      "%.0f", mode_name[a->mode], v->step->name,
                      (long long)v->limit, (long long)n, all);
    }
}

void run_bound(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    if (v->limit && !b->call.on_device)
        check_room_for(c, v, a, &b->call);
    const WindowPlans *w = window_plans(c, v, a, b, NULL);
    const LayerRuns *parts = runs_of(c, v, a, b, NULL);
    const PlanEntry *e = w ? NULL : parts ? parts->plan(c, v, a, b)
                                          : bound_plan(c, v, a, b);
    bool looks = e || !b->call.on_device;
    const Validation *before = looks ? validate_before(c, v, a, b, e) : NULL;

    ctx_doing(c, mode_name[a->mode], v->step->name);
    if (parts)
        parts->forward(c, v, a, b);
    else if (w)
        window_forward(c, v, w, b);
    else if (e)
        e->backend->run(c, e->program, e->plan, &b->call);
    else if (on_device_pairs(v, a, b))
        run_pairs(c, v, b);
    else if (v->step->mask)
        mask_run(c, v->step, &b->call);
    else
        reference_run(c, v->step, &b->call);
    if (looks)
        validate_call(c, v, a, b, e, before);
}

void prepare_bound(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    const LayerRuns *parts = runs_of(c, v, a, b, NULL);

    if (parts) {
        parts->prepare(c, v, a, b);
        return;
    }
    if (on_device_pairs(v, a, b)) {
        PairsCall p = pairs_call(v, b);
        pairs_prepare(c, v->shared.gpu, &v->pairs, &p);
        return;
    }
    window_prepare(c, v, a, b, a->mode);
    PlanEntry *e = bound_plan(c, v, a, b);

    if (e && e->backend->prepare)
        e->backend->prepare(c, e->program, e->plan, &b->call);
}

int64_t workspace_bound(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    const LayerRuns *parts = runs_of(c, v, a, b, NULL);

    if (parts)
        return parts->workspace(c, v, a, b, NULL);
    if (on_device_pairs(v, a, b)) {
        PairsCall p = pairs_call(v, b);
        return pairs_workspace(c, v->shared.gpu, &v->pairs, &p);
    }
    if (window_plans(c, v, a, b, NULL))
        return 0;
    PlanEntry *e = bound_plan(c, v, a, b);

    return e && e->backend->workspace
        ? e->backend->workspace(c, e->program, e->plan, &b->call) : 0;
}
