/* run.c -- calls of a plan made ready, and queued. */
#include "run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../compiler/schedule/schedule.h"
#include "build.h"
#include "driver_entry.h"
#include "ends.h"
#include "inplace.h"
#include "pools.h"
#include "probe.h"
#include "segments.h"
#include "stage.h"

enum { READY = 16, ALIGN = 256 };

/* A call made ready. The key is all that its launches depend on. */
typedef struct Ready {
    struct Ready *next;                 /* the latest used first */
    Ctx *ctx;
    uint64_t hash;
    size_t bytes;
    unsigned char *key;
    const Build *build;
    const Build *ends;                  /* walks for ends alone; NULL: none */
    Launch **launch;
    int nlaunches;
    bool placed;                        /* its tensors are in reach */
    DevicePtr table;                    /* of the sequences; 0: none */
    HostSequence *upload;               /* to the table before each run */
    int64_t nupload;
    DeviceRows copy[MAX_STATES];        /* of states, before each run */
    int ncopies;
    DeviceRows zeros;                   /* filled before each run */
    Call *own;                          /* by states side by side, where they
                                           are copied from pools; else NULL */
    char what[256];
} Ready;

/* Sequences that stay on the device. */
typedef struct Table {
    struct Table *next;
    DevicePtr p;
    int64_t n;
    HostSequence *seq;
} Table;

struct CudaProgram {
    pthread_mutex_t lock;
    Builds builds;
    Cutting cutting;
    Ready *ready;
    Table *table;
    Ends ends;
    Probing probing;
};

CudaProgram *cuda_program(Ctx *c, const Plan *plan, Gpu *g)
{
    gpu_enter(c, g);
    CudaProgram *p = calloc(1, sizeof *p);
    if (!p)
        fail_code(c, ERR_MEMORY, "out of memory");
    p->builds = (Builds){ .gpu = gpu_retain(g), .plan = plan };
    pthread_mutex_init(&p->lock, NULL);
    cutting_find(c, plan, &p->cutting);
    return p;
}

static void ready_free(Ready *r)
{
    ctx_free(r->ctx);
    free(r->key);
    free(r);
}

static void table_free(Gpu *g, Table *t)
{
    gpu_free(g, t->p, (size_t)t->n * sizeof *t->seq);
    free(t->seq);
    free(t);
}

void cuda_release(CudaProgram *p)
{
    if (!p)
        return;
    for (Ready *r = p->ready, *next; r; r = next) {
        next = r->next;
        ready_free(r);
    }
    for (Table *t = p->table, *next; t; t = next) {
        next = t->next;
        table_free(p->builds.gpu, t);
    }
    builds_free(&p->builds);
    cutting_free(p->builds.gpu, &p->cutting);
    ends_free(p->builds.gpu, &p->ends);
    probing_free(p->builds.gpu, &p->probing);
    gpu_release(p->builds.gpu);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

const char *cuda_wrong(CudaProgram *p)
{
    const char *wrong = NULL;
    pthread_mutex_lock(&p->lock);
    for (const Build *b = p->builds.first; b; b = b->next)
        wrong = b->wrong ? b->wrong : wrong;
    pthread_mutex_unlock(&p->lock);
    return wrong;
}

/* ---- sequences ---- */

/* Each is one batch entry from 0 on, all as long: no table is needed. */
static bool plain(const Call *call)
{
    if (call->device_cu)
        return false;
    for (int64_t i = 0; i < call->nseq; i++) {
        const Seq *s = &call->seq[i];
        if (s->b != i || s->start || s->len != call->seq[0].len)
            return false;
    }
    return true;
}

static int tables_of(const Segments *s)
{
    return s->n > 1 ? SEGMENT_TABLES : 1;
}

static size_t table_bytes(const Segments *s)
{
    size_t n = plain(&s->call) ? 0 : (size_t)(s->call.nseq * tables_of(s))
                                     * sizeof(HostSequence);
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void fill_sequences(const Segments *s, HostSequence *to)
{
    for (int t = 0; t < tables_of(s); t++)
        for (int64_t i = 0; i < s->call.nseq; i++) {
            const Seq *q = &s->call.seq[i];
            *to++ = (HostSequence){ q->b, 0, q->start,
                                    segments_length(s, (SegmentTable)t, i) };
        }
}

/* The call, where only the device knows the ends: each sequence may be all of
 * the batch entry. */
static Call with_sequences(Ctx *c, const Call *from)
{
    Call call = *from;
    if (call.seq)
        return call;
    Seq *seq = ctx_alloc(c, (size_t)call.nseq * sizeof *seq + 1);
    for (int64_t i = 0; i < call.nseq; i++)
        seq[i] = (Seq){ 0, 0, call.tokens };
    call.seq = seq;
    return call;
}

/* The table that stays, found or put there; locked. */
static DevicePtr kept_table(Ctx *c, CudaProgram *p, const HostSequence *seq,
                            int64_t n)
{
    size_t bytes = (size_t)n * sizeof *seq;
    Table *t = p->table;
    while (t && (t->n != n || memcmp(t->seq, seq, bytes)))
        t = t->next;
    if (!t) {
        t = calloc(1, sizeof *t);
        if (!t || !(t->seq = malloc(bytes + 1))) {
            free(t);
            fail_code(c, ERR_MEMORY, "out of memory");
        }
        memcpy(t->seq, seq, bytes);
        t->n = n;
        t->next = p->table;
        p->table = t;                   /* freed with the program */
    }
    if (!t->p)
        t->p = gpu_put(c, p->builds.gpu, seq, bytes);
    return t->p;
}

/* ---- what a call is known by ---- */

typedef struct Key { unsigned char *at, *end; } Key;

static void add(Key *k, const void *x, size_t n)
{
    if (k->at + n <= k->end)
        memcpy(k->at, x, n);
    k->at += n;
}

static void add_view(Key *k, const View *v, int rank)
{
    int32_t kind[2] = { (int32_t)v->dtype, v->heads };
    add(k, &v->data, sizeof v->data);
    add(k, kind, sizeof kind);
    add(k, &v->sb, (size_t)(3 + rank) * sizeof v->sb);
}

/* Writes what there is room for; returns what it takes. */
static size_t write_key(const Graph *g, const Call *call, unsigned char *to,
                        size_t room)
{
    Key k = { to, to + room };
    const int64_t head[] = { call->nseq, call->heads, call->tokens,
        call->workspace_size, (int64_t)(uintptr_t)call->workspace,
        (int64_t)(uintptr_t)call->stream,
        (int64_t)(uintptr_t)call->device_cu, call->from, call->to,
        (int64_t)(uintptr_t)call->kept,
        (int64_t)(uintptr_t)call->pages.at, call->pages.dtype, call->pages.sn,
        call->pages.sc, call->pages.states, call->each, call->part,
        call->in_parts };
    add(&k, head, sizeof head);
    add_view(&k, &call->moves, 2);
    for (int i = 0; i < g->nin; i++)
        add_view(&k, &call->in[i], g->in[i].rank);
    for (int i = 0; i < g->nout; i++)
        add_view(&k, &call->out[i], g->out[i].rank);
    for (int i = 0; i < g->nst; i++) {
        add_view(&k, &call->s0[i], g->st[i].rank);
        add_view(&k, &call->s1[i], g->st[i].rank);
    }
    for (int64_t i = 0; call->seq && i < call->nseq; i++) {
        const Seq *s = &call->seq[i];
        const int64_t seq[] = { s->b, s->start, s->len };
        add(&k, seq, sizeof seq);
    }
    return (size_t)(k.at - to);
}

static Ready *find_ready(CudaProgram *p, uint64_t hash,
                         const unsigned char *key, size_t bytes)
{
    for (Ready **at = &p->ready; *at; at = &(*at)->next) {
        Ready *r = *at;
        if (r->hash != hash || r->bytes != bytes
            || memcmp(r->key, key, bytes))
            continue;
        *at = r->next;
        r->next = p->ready;
        return p->ready = r;
    }
    return NULL;
}

/* ---- a call made ready ---- */

static void describe(Ready *r, const Graph *g, const Call *call)
{
    int64_t tokens = call->tokens;
    int n;
    for (int64_t i = 0; call->seq && i < call->nseq; i++)
        tokens = call->seq[i].len > tokens ? call->seq[i].len : tokens;
    n = snprintf(r->what, sizeof r->what, "kernel %s of %s (%lld sequences of"
                 " up to %lld tokens, %d heads", r->build->m->kernel[0].name,
                 g->name, (long long)call->nseq, (long long)tokens,
                 call->heads);
    for (int a = AX_DIM; a < g->naxes && n < 200; a++)
        n += snprintf(r->what + n, sizeof r->what - (size_t)n, ", %.20s = %d",
                      g->axis[a].name, g->axis[a].size);
    snprintf(r->what + n, sizeof r->what - (size_t)n, ", %s)",
             dtype_name(call->in[0].dtype));
}

typedef struct Making {
    CudaProgram *p;
    Segments *s;
    Ready *r;
    bool keep;                          /* its sequences stay there */
    DevicePtr workspace;
    Steps steps;
} Making;

/* The caller's, or the stream's own. */
static DevicePtr workspace_for(Ctx *c, Gpu *g, const Call *call, int64_t n)
{
    if (!n)
        return 0;
    if (!call->workspace)
        return gpu_workspace(c, g, call->stream, (size_t)n);
    if (call->workspace_size < n)
        fail(c, 0, "workspace_size = %lld: this call takes %lld bytes",
             (long long)call->workspace_size, (long long)n);
    if ((uintptr_t)call->workspace % ALIGN)
        fail(c, 0, "workspace: its address must be a multiple of %d", ALIGN);
    return (DevicePtr)(uintptr_t)call->workspace;
}

static int64_t workspace_bytes(const Plan *p, const Build *b,
                               const Call *call)
{
    return (cuda_workspace(b->m, p, call) + ALIGN - 1) / ALIGN * ALIGN;
}

/* The sequences' table, wherever that is, then the kernels' part, then copies
 * of states, then what segments take. */
static void place_all(Ctx *c, Making *k, Call *call)
{
    Ready *r = k->r;
    int64_t table = (int64_t)table_bytes(k->s);
    const Plan *p = k->p->builds.plan;
    int64_t rest = workspace_bytes(p, r->build, call);
    const Running running = { p, r->build };
    int64_t copies = inplace_bytes(&running, call);
    int64_t more = segments_bytes(k->s);
    int64_t apart = r->own ? pools_bytes(p->g, r->own) : 0;
    HostSequence *seq = NULL;
    if (table && !call->device_cu) {
        seq = ctx_alloc(r->ctx, (size_t)table);
        fill_sequences(k->s, seq);
    }
    if (seq && k->keep) {
        r->table = kept_table(c, k->p, seq, call->nseq * tables_of(k->s));
    } else {
        r->upload = seq;
        r->nupload = call->nseq * tables_of(k->s);
    }
    k->workspace = workspace_for(c, k->p->builds.gpu, call,
                                 table + rest + copies + more + apart);
    if (table && !r->table)
        r->table = k->workspace;
    k->workspace += (DevicePtr)table;
    if (r->own)
        pools_place(p->g, r->own, k->workspace
                    + (DevicePtr)(rest + copies + more));
    if (r->own && k->s->n == 1) {
        memcpy(call->s0, r->own->s0, sizeof call->s0);
        memcpy(call->s1, r->own->s1, sizeof call->s1);
    }
    r->ncopies = inplace_place(&running, call, k->workspace + (DevicePtr)rest,
                               r->copy);
    k->steps = (Steps){ .ctx = r->ctx, .d = gpu_driver(k->p->builds.gpu),
                        .seq = r->table, .workspace = k->workspace,
                        .at = k->workspace + (DevicePtr)(rest + copies),
                        .stored = call->kept ? cuda_stored(r->build->m, call)
                                             : 0 };
}

static bool is_between(const CudaKernel *k, int from, int to)
{
    return k->of >= from && (!to || k->of < to);
}

/* Whether a walk back does no more for the call than leave what its states end
 * as: it writes no output, and nobody behind it reads what it keeps. */
static bool leaves_ends(const Plan *p, const Build *b, const Call *call, int i)
{
    const CudaKernel *k = b->m->kernel;
    bool alone = k[i].of >= p->split && is_between(&k[i], call->from, call->to)
              && cuda_writes(&k[i], call, ARG_NEXT)
              && !cuda_writes(&k[i], call, ARG_OUTPUT);
    for (int n = i + 1; n < b->m->nkernels; n++)
        alone = alone && !(is_between(&k[n], call->from, call->to)
                           && cuda_is_asked(b->m, &k[n], call));
    return alone;
}

/* Walks for ends alone, where the call, which is not in segments, has some. */
static const Build *find_ends(Ctx *c, Builds *all, const Segments *s,
                              const Build *b)
{
    bool any = false;
    for (int i = 0; s->n == 1 && i < b->m->nkernels; i++)
        any = any || leaves_ends(all->plan, b, &s->call, i);
    return any ? build_ends(c, all, b) : NULL;
}

static uint64_t states_left(const CudaKernel *k)
{
    uint64_t set = 0;
    for (int i = 0; i < k->ntensors; i++)
        if (k->tensor[i].kind == ARG_NEXT)
            set |= STATE(k->tensor[i].index);
    return set;
}

/* The launch of the build's kernel; of its walk for ends alone, where there is
 * one and the call asks for no more. Where it may, it finds sequences without
 * their table: that takes a search through memory for each chunk. */
static Launch *launch_of(Ctx *c, Making *k, const Build *b, int kernel)
{
    const Plan *p = k->p->builds.plan;
    const Call *call = &k->s->call;
    const Build *ends = k->r->ends;
    uint64_t left = states_left(&b->m->kernel[kernel]);
    if (ends && leaves_ends(p, b, call, kernel))
        for (int i = 0; i < ends->m->nkernels; i++)
            if (states_left(&ends->m->kernel[i]) == left) {
                b = ends;
                kernel = i;
                break;
            }
    bool pieces = b->m->kernel[kernel].head && cuda_pieces(b->m, call);
    return launch_new(c, k->steps.d, b->f[kernel], b->m, &b->m->kernel[kernel],
                      p, call, pieces ? 0 : k->steps.seq, k->steps.workspace);
}

/* Those of the plan's kernels from .. to - 1 (0: to the last). */
static void add_launches(Ctx *c, Making *k, const Build *b, int from, int to)
{
    Steps *t = &k->steps;
    for (int i = 0; i < b->m->nkernels; i++) {
        if (!is_between(&b->m->kernel[i], from, to)
            || !segments_have(k->s, b, i))
            continue;
        segments_before(c, k->s, t, b, i);
        t->launch[t->n++] = launch_of(c, k, b, i);
    }
}

static void make_launches(Ctx *c, void *ud)
{
    Making *k = ud;
    Steps *t = &k->steps;
    Call *call = &k->s->call;
    const Build *b = k->r->build;
    int n = b->m->nkernels + segments_launches(k->s, b->m->nkernels);
    *call = with_sequences(c, call);
    place_all(c, k, call);
    t->launch = k->r->launch = ctx_alloc(c, (size_t)n * sizeof(Launch *));
    segments_place(k->s, t);
    add_launches(c, k, b, call->from, call->to);
    if (call->part == CALL_BEGUN)
        segments_begin(c, k->s, t);
    segments_after(k->s, t);
    k->r->nlaunches = t->n;
    k->r->zeros = t->zeros;
}

static void make_ready(Ctx *c, void *ud)
{
    Making *k = ud;
    gpu_locked(c, k->p->builds.gpu, make_launches, k);
}

/* The oldest goes. */
static void insert(CudaProgram *p, Ready *r)
{
    Ready **at = &p->ready;
    r->next = p->ready;
    p->ready = r;
    for (int n = 0; *at && n < READY; n++)
        at = &(*at)->next;
    if (*at) {
        ready_free(*at);
        *at = NULL;
    }
}

/* In the call's context the kernels, in its own what the launches hold. Where
 * segments follow from the call's sizes alone, they stay, too. */
static Ready *ready_new(Ctx *c, CudaProgram *p, const Call *call, bool keep)
{
    const Graph *g = p->builds.plan->g;
    bool apart = call->pages.at && g->chunk;
    Call own = apart ? pools_apart(g, call) : *call;
    Segments s = segments_of(c, &p->builds, &p->cutting, &own);
    const Build *b = build_for(c, &p->builds, &s.call);
    if (call->part != CALL_WHOLE && !call->from
        && !segments_may_begin(c, &p->builds, &s, b))
        fail_code(c, ERR_INTERNAL, "a call of %s does not run in two parts",
                  g->name);
    Ready *r = calloc(1, sizeof *r);
    const Running running = { p->builds.plan, b };
    if (call->pages.at && !apart && inplace_bytes(&running, call)) {
        apart = true;
        s.call = own = pools_apart(g, call);
    }
    Making k = { .p = p, .s = &s, .r = r,
                 .keep = keep || (s.n > 1 && plain(call)) };
    if (call->device_cu)
        ends_compile(c, p->builds.gpu, &p->ends);
    if (!r || !(r->ctx = ctx_new())) {
        free(r);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    if (apart) {
        pools_prepare(c, p->builds.gpu);
        r->own = memcpy(ctx_alloc(r->ctx, sizeof own), &own, sizeof own);
        s.whole = r->own;
    }
    r->build = b;
    r->ends = find_ends(c, &p->builds, &s, b);
    r->bytes = write_key(g, call, NULL, 0);
    r->key = malloc(r->bytes);
    if (!r->key || !ctx_protect(r->ctx, make_ready, &k)) {
        c->err = r->ctx->err;
        if (!r->key)
            c->err.code = ERR_MEMORY;
        ready_free(r);
        ctx_rethrow(c);
    }
    write_key(g, call, r->key, r->bytes);
    r->hash = hash_bytes(0, r->key, r->bytes);
    describe(r, g, call);
    insert(p, r);
    return r;
}

typedef struct Run {
    CudaProgram *p;
    const Call *call;
    Ready *r;
} Run;

static void queue(Ctx *c, void *ud)
{
    Run *k = ud;
    const Driver *d = gpu_driver(k->p->builds.gpu);
    const Call *call = k->call;
    Ready *r = k->r;
    for (int i = 0; i < r->nlaunches && !r->placed && !call->staged; i++)
        check_places(c, d, k->p->builds.plan->g, r->launch[i], call);
    r->placed |= !call->staged;
    gpu_running(k->p->builds.gpu, r->what);
    if (r->upload)
        stream_put(c, d, call->stream, r->table, r->upload,
                   (size_t)r->nupload * sizeof *r->upload);
    if (call->device_cu)
        ends_queue(c, k->p->builds.gpu, &k->p->ends, k->p->builds.plan->g,
                   call, r->table);
    if (r->own)
        pools_queue(c, k->p->builds.gpu, k->p->builds.plan->g, call, r->own,
                    false);
    if (r->zeros.width)
        stream_fill(c, d, call->stream, r->zeros.to, 0, r->zeros.width);
    for (int i = 0; i < r->ncopies; i++)
        stream_copy(c, d, call->stream, &r->copy[i]);
    launch_all(c, d, r->launch, r->nlaunches, k->p->builds.plan, call);
    if (r->own)
        pools_queue(c, k->p->builds.gpu, k->p->builds.plan->g, call, r->own,
                    true);
}

/* A graph would read the sequences from memory that is not its own; and
 * nothing can be compiled and checked while it is recorded. */
static void before_graph(Ctx *c, Run *k)
{
    const Driver *d = gpu_driver(k->p->builds.gpu);
    bool upload = k->r && k->r->upload;
    if ((k->r && !upload) || !stream_capturing(c, d, k->call->stream))
        return;
    if (!k->p->builds.first)
        fail_help(c, 0, "v:prepare{...} before", "nothing can be compiled "
                  "while a stream records a graph");
    k->r = ready_new(c, k->p, k->call, true);
}

static void run_locked(Ctx *c, void *ud)
{
    enum { ROOM = 4096 };
    Run *k = ud;
    unsigned char key[ROOM];
    const Graph *g = k->p->builds.plan->g;
    size_t bytes = write_key(g, k->call, key, sizeof key);
    if (bytes <= sizeof key)
        k->r = find_ready(k->p, hash_bytes(0, key, bytes), key, bytes);
    before_graph(c, k);
    if (!k->r)
        k->r = ready_new(c, k->p, k->call, false);
    gpu_locked(c, k->p->builds.gpu, queue, k);
}

static void with_program(Ctx *c, CudaProgram *p, void (*f)(Ctx *, void *),
                         void *ud)
{
    pthread_mutex_lock(&p->lock);
    bool ok = ctx_protect(c, f, ud);
    pthread_mutex_unlock(&p->lock);
    if (!ok)
        ctx_rethrow(c);
}

static void run_here(Ctx *c, void *program, const Call *call)
{
    Run k = { .p = program, .call = call };
    with_program(c, program, run_locked, &k);
}

void cuda_run(Ctx *c, CudaProgram *p, const Call *call)
{
    call = call_twins(c, p->builds.plan->g, call, true);
    gpu_enter(c, p->builds.gpu);
    if (call->pages.at && !call->on_device)
        fail_help(c, 0, "t:to(\"cuda\")", "state_index: pools of states are "
                  "the CPU's, but the backend is cuda");
    if (call->on_device)
        run_here(c, p, call);
    else
        stage_run(c, p->builds.gpu, p->builds.plan->g, call, run_here, p);
    call_join(p->builds.plan->g, call);
}

static bool has_inputs(const Graph *g, const Call *call)
{
    bool all = true;
    for (int i = 0; i < g->nin; i++)
        all = all && call->in[i].data;
    return all;
}

static void prepare_locked(Ctx *c, void *ud)
{
    Run *k = ud;
    CudaProgram *p = k->p;
    bool any = !has_inputs(p->builds.plan->g, k->call);
    if (k->call->device_cu || any)
        ends_compile(c, p->builds.gpu, &p->ends);
    if (any)
        build_all(c, &p->builds, k->call);
    if (!any && k->call->on_device) {
        ready_new(c, p, k->call, true);
        return;
    }
    Segments s = segments_of(c, &p->builds, &p->cutting, k->call);
    if (!any || s.n > 1)
        build_for(c, &p->builds, &s.call);
}

static void narrow(View *v, int n)
{
    for (int i = 0; i < n; i++)
        if (v[i].dtype == F64)
            v[i].dtype = F32;
}

/* As stage.c passes it on, where it does. */
void cuda_prepare(Ctx *c, CudaProgram *p, const Call *call)
{
    Call *types = ctx_alloc(c, sizeof *types);
    Run k = { .p = p, .call = types };
    *types = *call_twins(c, p->builds.plan->g, call, true);
    if (!call->on_device) {
        narrow(types->in, MAX_INPUTS);
        narrow(types->out, MAX_OUTPUTS);
        narrow(types->s0, MAX_STATES);
        narrow(types->s1, MAX_STATES);
    }
    gpu_enter(c, p->builds.gpu);
    with_program(c, p, prepare_locked, &k);
}

/* What is asked of a call's kernels before they run. */
typedef struct Question {
    CudaProgram *p;
    const Call *call;
    int64_t bytes;                      /* answers, each of who finds it */
    uint64_t layout;
    bool may_begin, over;
    int output, input;
    double seconds;
} Question;

static Question answered(Ctx *c, CudaProgram *p, const Call *call,
                         void (*find)(Ctx *, void *))
{
    Question q = { .p = p,
                   .call = call_twins(c, p->builds.plan->g, call, true) };
    with_program(c, p, find, &q);
    return q;
}

static void count_kept(Ctx *c, void *ud)
{
    Question *q = ud;
    Segments s = segments_of(c, &q->p->builds, &q->p->cutting, q->call);
    Call call = with_sequences(c, &s.call);
    call.to = call.to ? call.to : q->p->builds.plan->nkernels;
    const CudaModule *m = build_for(c, &q->p->builds, &call)->m;
    q->bytes = cuda_stored(m, &call) + segments_kept(&s);
    q->layout = 31 * m->layout + (uint64_t)s.n;
}

int64_t cuda_kept(Ctx *c, CudaProgram *p, const Call *call)
{
    return answered(c, p, call, count_kept).bytes;
}

uint64_t cuda_layout(Ctx *c, CudaProgram *p, const Call *call)
{
    return answered(c, p, call, count_kept).layout;
}

static void find_beginning(Ctx *c, void *ud)
{
    Question *q = ud;
    Segments s = segments_of(c, &q->p->builds, &q->p->cutting, q->call);
    const Build *b;
    if (s.n > 1)
        return;
    b = build_for(c, &q->p->builds, &s.call);
    q->may_begin = segments_may_begin(c, &q->p->builds, &s, b);
}

bool cuda_may_begin(Ctx *c, CudaProgram *p, const Call *call)
{
    gpu_enter(c, p->builds.gpu);
    return call->on_device && (call->kept || !plan_is_joint(p->builds.plan))
        && answered(c, p, call, find_beginning).may_begin;
}

static bool has_arg(const CudaKernel *k, CudaArgKind kind, int index)
{
    bool any = false;

    for (int i = 0; i < k->nmaps; i++)
        any |= k->map[i].kind == kind && k->map[i].index == index;
    for (int i = 0; i < k->ntensors; i++)
        any |= k->tensor[i].kind == kind && k->tensor[i].index == index;
    return any;
}

static void find_over(Ctx *c, void *ud)
{
    Question *q = ud;
    Segments s = segments_of(c, &q->p->builds, &q->p->cutting, q->call);
    const CudaModule *m = build_for(c, &q->p->builds, &s.call)->m;
    const CudaKernel *last = NULL, *leaves = NULL;
    int n = 0;
    for (const CudaKernel *k = m->kernel; k < m->kernel + m->nkernels; k++) {
        last = has_arg(k, ARG_INPUT, q->input) ? k : last;
        leaves = has_arg(k, ARG_OUTPUT, q->output) ? k : leaves;
        n += has_arg(k, ARG_OUTPUT, q->output);
    }
    q->over = n == 1 && last && last <= leaves && !m->sum_out[q->output]
           && (leaves->walk == CUDA_SCHEDULED || leaves->walk == CUDA_WALKED)
           && leaves->schedule
           && (last < leaves
               || schedule_lies_over(leaves->schedule, q->output, q->input));
}

bool cuda_lies_over(Ctx *c, CudaProgram *p, const Call *call, int output,
                    int input)
{
    Question q = { .p = p, .output = output, .input = input,
                   .call = call_twins(c, p->builds.plan->g, call, true) };

    gpu_enter(c, p->builds.gpu);
    with_program(c, p, find_over, &q);
    return q.over;
}

static void find_seconds(Ctx *c, void *ud)
{
    Question *q = ud;
    q->seconds = segments_seconds(c, &q->p->builds, &q->p->cutting, q->call);
}

double cuda_seconds(Ctx *c, CudaProgram *p, const Call *call)
{
    gpu_enter(c, p->builds.gpu);
    return answered(c, p, call, find_seconds).seconds;
}

/* Of one build's kernels. */
static int64_t build_bytes(const Plan *p, const Build *b, const Call *call)
{
    const Running running = { p, b };

    return workspace_bytes(p, b, call) + inplace_bytes(&running, call);
}

/* The most of all builds that there are; with a place for what is kept, of
 * those that keep the same, as the call's own does. */
static int64_t most_bytes(Ctx *c, Builds *all, const Segments *s,
                          const Call *call)
{
    const Build *own = NULL;
    int64_t most = 0;
    if (call->kept) {
        own = build_for(c, all, &s->call);
        most = build_bytes(all->plan, own, call);
    }
    for (Build *b = all->first; b; b = b->next) {
        if (!b->m || (own && b->m->layout != own->m->layout))
            continue;
        int64_t n = build_bytes(all->plan, b, call);
        most = n > most ? n : most;
    }
    return most;
}

/* What the call's own kernels take, which are all there then, whatever others
 * there are by now; where its inputs are not known, the most that they may
 * take. */
static void count_workspace(Ctx *c, void *ud)
{
    Question *q = ud;
    const Plan *p = q->p->builds.plan;
    Segments s = segments_of(c, &q->p->builds, &q->p->cutting, q->call);
    Call call = with_sequences(c, &s.call);
    if (has_inputs(p->g, q->call)) {
        const Build *b = build_for(c, &q->p->builds, &s.call);
        find_ends(c, &q->p->builds, &s, b);
        q->bytes = build_bytes(p, b, &call);
    } else {
        q->bytes = most_bytes(c, &q->p->builds, &s, &call);
    }
    q->bytes += (int64_t)table_bytes(&s) + segments_bytes(&s)
             + (q->call->pages.at ? pools_bytes(p->g, q->call) : 0);
}

int64_t cuda_call_workspace(Ctx *c, CudaProgram *p, const Call *call)
{
    return answered(c, p, call, count_workspace).bytes;
}

/* ---- domains ---- */

typedef struct Probes {
    CudaProgram *p;
    void *stream;
    Probe *probe;
    int n;
    bool known;
} Probes;

static void probe_alone(Ctx *c, void *ud)
{
    Probes *k = ud;
    probing_run(c, k->p->builds.gpu, &k->p->probing, k->stream, k->probe,
                k->n);
}

static void probe_locked(Ctx *c, void *ud)
{
    Probes *k = ud;
    Gpu *g = k->p->builds.gpu;
    if (stream_capturing(c, gpu_driver(g), k->stream))
        return;
    gpu_locked(c, g, probe_alone, k);
    k->known = true;
}

bool cuda_probe(Ctx *c, CudaProgram *p, const Call *call, Probe *probe,
                int n)
{
    Probes k = { p, call->stream, probe, n, false };
    gpu_enter(c, p->builds.gpu);
    with_program(c, p, probe_locked, &k);
    return k.known;
}

void cuda_read(Ctx *c, CudaProgram *p, void *to, const void *from,
               size_t bytes)
{
    device_get(c, gpu_enter(c, p->builds.gpu), to,
               (DevicePtr)(uintptr_t)from, bytes);
}

void cuda_write(Ctx *c, CudaProgram *p, void *to, const void *from,
                size_t bytes)
{
    const Driver *d = gpu_enter(c, p->builds.gpu);

    device_put(c, d, (DevicePtr)(uintptr_t)to, from, bytes);
    device_sync(c, d);
}
