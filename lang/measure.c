/* measure.c -- flin.clock, how fast this machine and its GPU copy, how long the
 * GPU takes for a call, and each kernel for its part of one. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../backend/cuda/gpu.h"
#include "../compiler/partition.h"
#include "shared.h"

enum { COPY_BYTES = 1 << 26, COPY_RUNS = 7, COPY_THREADS = 256 };

static int flin_clock(lua_State *L)
{
    lua_pushnumber(L, clock_now());
    return 1;
}

typedef struct Copy { char *from, *to; size_t bytes; } Copy;

static void *copy_part(void *ud)
{
    Copy *c = ud;

    memcpy(c->to, c->from, c->bytes);
    return NULL;
}

/* All parts at once; those that no thread is to be had for, one by one. */
static void copy_all(Copy *part, int n)
{
    pthread_t thread[COPY_THREADS];
    int started = 0;

    while (started < n - 1
           && !pthread_create(&thread[started], NULL, copy_part,
                              &part[started]))
        started++;
    for (int i = started; i < n; i++)
        copy_part(&part[i]);
    while (started > 0)
        pthread_join(thread[--started], NULL);
}

static double best_copy(Copy *part, int n)
{
    double best = 0;

    for (int i = 0; i < COPY_RUNS; i++) {
        double start = clock_now();
        copy_all(part, n);
        double rate = 2.0 * COPY_BYTES / (clock_now() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

/* own.copy_rate(threads): bytes a second, read and written, 0: all cores.
 * The best of several: a floor is not to be too low. */
static int copy_rate(lua_State *L)
{
    lua_Integer n = luaL_checkinteger(L, 1);
    char *from = malloc(2 * (size_t)COPY_BYTES);
    Copy part[COPY_THREADS];

    if (n <= 0)
        n = cores();
    n = n > COPY_THREADS ? COPY_THREADS : n;
    if (!from)
        lang_no_memory(L, "out of memory");
    memset(from, 1, 2 * (size_t)COPY_BYTES);
    for (lua_Integer i = 0; i < n; i++) {
        size_t at = COPY_BYTES / (size_t)n * (size_t)i;
        size_t end = i + 1 < n ? COPY_BYTES / (size_t)n * (size_t)(i + 1)
                               : COPY_BYTES;
        part[i] = (Copy){ from + at, from + COPY_BYTES + at, end - at };
    }
    lua_pushnumber(L, best_copy(part, (int)n));
    free(from);
    return 1;
}

/* ---- on a GPU ---- */

#define WATCH_META "flin.watch"

/* Room that is filled before a call: what the last one has left in the cache
 * goes, and the host gets ahead, so that the device waits for nothing. */
typedef struct Watch {
    Ctx *ctx;
    Gpu *gpu;
    const Driver *d;
    Event *from, *to;
    DevicePtr room;
    size_t bytes;
    double seconds;
} Watch;

static int watch_gc(lua_State *L)
{
    Watch *w = luaL_checkudata(L, 1, WATCH_META);

    if (w->d && w->ctx && !w->d->fault->broken[0]) {
        device_free(w->d, w->room);
        event_free(w->d, w->from);
        event_free(w->d, w->to);
    }
    gpu_release(w->gpu);
    ctx_free(w->ctx);
    memset(w, 0, sizeof *w);
    return 0;
}

static void take_room(Ctx *c, void *ud)
{
    Watch *w = ud;

    w->room = device_alloc(c, w->d, w->bytes);
}

/* Some times the cache, less where there is less. */
static void watch_open(Ctx *c, void *ud)
{
    enum { CACHES = 8, LEAST = 1 << 20 };
    Watch *w = ud;

    w->d = gpu_enter(c, w->gpu);
    w->from = event_new(c, w->d);
    w->to = event_new(c, w->d);
    w->bytes = CACHES * (size_t)w->d->cache + LEAST;
    while (!ctx_protect(c, take_room, w)) {
        if (c->err.code != ERR_MEMORY || w->bytes < LEAST)
            ctx_rethrow(c);
        w->bytes /= 2;
    }
}

static Watch *push_watch(lua_State *L)
{
    Watch *w = push_owned(L, sizeof *w, WATCH_META, watch_gc);

    w->gpu = gpu_retain(shared_of(L)->shared.gpu);
    w->ctx = sandbox_ctx(L);
    protect(L, w->ctx, watch_open, w);
    return w;
}

static void watch_start(Ctx *c, void *ud)
{
    Watch *w = ud;

    stream_fill(c, w->d, NULL, w->room, 0, w->bytes);
    event_record(c, w->d, w->from, NULL);
}

static void watch_stop(Ctx *c, void *ud)
{
    Watch *w = ud;

    event_record(c, w->d, w->to, NULL);
    device_sync(c, w->d);
    w->seconds = 1e-3 * (double)event_ms(c, w->d, w->from, w->to);
}

/* time(f): seconds from when the GPU begins what f gives it until it has done
 * all of it. */
static int watch_time(lua_State *L)
{
    Watch *w = luaL_checkudata(L, lua_upvalueindex(1), WATCH_META);

    protect(L, w->ctx, watch_start, w);
    lua_settop(L, 1);
    lua_call(L, 0, 0);
    protect(L, w->ctx, watch_stop, w);
    lua_pushnumber(L, w->seconds);
    return 1;
}

static void copy_there(Ctx *c, void *ud)
{
    Watch *w = ud;

    event_record(c, w->d, w->from, NULL);
    device_copy(c, w->d, w->room, w->room + w->bytes / 2, w->bytes / 2);
    watch_stop(c, w);
}

/* own.gpu_watch(): such a function, bytes a second of a copy there, and flops a
 * second of products as plans price them, where that is known of this GPU. */
static int gpu_watch(lua_State *L)
{
    Watch *w = push_watch(L);
    const Machine *m = w->d->machine;
    double best = 0, rate = m->matrix / m->units * w->d->processors;
    bool known = w->d->arch == m->arch;

    for (int i = 0; i < COPY_RUNS; i++) {
        protect(L, w->ctx, copy_there, w);
        best = fmax(best, (double)w->bytes / w->seconds);
    }
    lua_pushcclosure(L, watch_time, 1);
    lua_pushnumber(L, best);
    if (known)
        lua_pushnumber(L, rate);
    return known ? 3 : 2;
}

/* ---- kernel by kernel ---- */

enum { KERNELS_HEARD = 256 };

/* The runs of a kernel, or of what was launched for it, added up. */
typedef struct Heard {
    const Plan *plan;
    int kernel;
    char name[32], part[32];            /* the plan's name; what was launched */
    double seconds, flops, bytes, predicted;
    bool counted;                       /* bytes: not the plan's word */
} Heard;

typedef struct Times { int n; Heard row[KERNELS_HEARD]; } Times;

static Heard *find_heard(Times *l, const KernelTime *t)
{
    for (int i = 0; i < l->n; i++) {
        Heard *h = &l->row[i];
        if (h->plan == t->plan && h->kernel == t->kernel
            && !strncmp(h->part, t->name, sizeof h->part - 1))
            return h;
    }
    if (l->n == KERNELS_HEARD)
        return NULL;
    Heard *h = &l->row[l->n++];
    *h = (Heard){ .plan = t->plan, .kernel = t->kernel };
    snprintf(h->name, sizeof h->name, "%s", t->plan->kernel[t->kernel].name);
    snprintf(h->part, sizeof h->part, "%s", t->name);
    return h;
}

static double tokens_of(const Call *call)
{
    double tokens = call->seq ? 0 : (double)call->tokens;

    for (int64_t i = 0; call->seq && i < call->nseq; i++)
        tokens += (double)call->seq[i].len;
    return tokens;
}

/* Chunks, times heads, of a call: parts of one count as such. */
static double chunks_of(const KernelTime *t)
{
    int chunk = t->plan->g->chunk ? t->plan->g->chunk : 1;

    return tokens_of(t->call) * t->call->heads / chunk;
}

/* What a head has of a tensor for a token, or in all; 0: the tensor is not
 * there. */
static double entry_bytes(const Graph *g, const View *v, const uint8_t *order,
                          int rank)
{
    double n = v->data ? dtype_size(v->dtype) : 0;

    for (int i = 0; i < rank; i++)
        n *= g->axis[order[i]].size;
    return n;
}

/* Of the states that the kernel carries: read, where the call has them, and
 * written, where it wants them. */
static double state_bytes(const KernelTime *t)
{
    const Graph *g = t->plan->g;
    const Call *call = t->call;
    double n = 0;

    for (int s = 0; s < g->nst; s++)
        if (t->plan->kernel[t->kernel].states >> s & 1)
            n += entry_bytes(g, &call->s0[s], g->st[s].order, g->st[s].rank)
               + entry_bytes(g, &call->s1[s], g->st[s].order, g->st[s].rank);
    return n * (double)call->nseq * call->heads;
}

/* What a kernel moves that nobody counts: all of the call's tensors, where it
 * is the only one, else what the plan says for this machine's types. */
static double bytes_of(const KernelTime *t)
{
    const Graph *g = t->plan->g;
    const Call *call = t->call;
    double n = state_bytes(t), tokens = tokens_of(call);

    if (t->plan->nkernels > 1)
        return n + t->plan->kernel[t->kernel].bytes * chunks_of(t);
    for (int i = 0; i < g->nin; i++)
        n += entry_bytes(g, &call->in[i], g->in[i].order, g->in[i].rank)
           * call->in[i].heads * (g->in[i].timed ? tokens : 1);
    for (int i = 0; i < g->nout; i++)
        n += entry_bytes(g, &call->out[i], g->out[i].order, g->out[i].rank)
           * call->heads * tokens;
    return n;
}

static void hear(void *ud, const KernelTime *t)
{
    const Own *o = ud;
    const Kernel *k = &t->plan->kernel[t->kernel];
    Heard *h = o->times ? find_heard(o->times, t) : NULL;

    if (!h)
        return;
    h->seconds += t->seconds;
    h->predicted += t->predicted;
    h->flops += k->flops * chunks_of(t);
    h->bytes += t->bytes > 0 ? t->bytes : bytes_of(t);
    h->counted = t->bytes > 0;
}

void measure_hear(lua_State *L, Ctx *c)
{
    Own *o = shared_of(L);

    if (o->times) {
        c->timed = hear;
        c->timed_ud = o;
    }
}

static void push_heard(lua_State *L, const Times *l, int i)
{
    const Heard *h = &l->row[i];
    int plan = 0;

    while (l->row[plan].plan != h->plan)
        plan++;
    lua_newtable(L);
    lua_pushinteger(L, plan);           /* the same of one plan's */
    lua_setfield(L, -2, "plan");
    lua_pushinteger(L, h->kernel + 1);
    lua_setfield(L, -2, "kernel");
    lua_pushstring(L, h->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, h->part);
    lua_setfield(L, -2, "part");
    lua_pushnumber(L, h->seconds);
    lua_setfield(L, -2, "seconds");
    lua_pushnumber(L, h->predicted);
    lua_setfield(L, -2, "predicted");
    lua_pushnumber(L, h->flops);
    lua_setfield(L, -2, "flops");
    lua_pushnumber(L, h->bytes);
    lua_setfield(L, -2, "moved");
    lua_pushboolean(L, h->counted);
    lua_setfield(L, -2, "counted");
}

/* own.kernel_times(f): runs f; what each kernel that it ran took, in order. */
static int kernel_times(lua_State *L)
{
    Own *o = shared_of(L);

    lua_settop(L, 1);
    Times *l = lua_newuserdatauv(L, sizeof *l, 0);
    l->n = 0;
    o->times = l;
    lua_pushvalue(L, 1);
    int status = lua_pcall(L, 0, 0, 0);
    o->times = NULL;
    if (status != LUA_OK)
        return lua_error(L);
    lua_newtable(L);
    for (int i = 0; i < l->n; i++) {
        push_heard(L, l, i);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

void measure_open(lua_State *L)
{
    lua_pushcfunction(L, flin_clock);
    lua_setfield(L, -2, "clock");
}

/* own.cores() */
static int count_cores(lua_State *L)
{
    lua_pushinteger(L, cores());
    return 1;
}

/* own.steps(v): is there a state to step from? */
static int has_step(lua_State *L)
{
    lua_pushboolean(L, !variant_check(L, 1)->step->mask);
    return 1;
}

void measure_own(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "copy_rate", copy_rate }, { "cores", count_cores },
        { "gpu_watch", gpu_watch }, { "kernel_times", kernel_times },
        { "steps", has_step },
        { NULL, NULL }
    };

    luaL_setfuncs(L, functions, 0);
}
