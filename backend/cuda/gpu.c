/* gpu.c -- what the calls of one host share of a GPU. */
#include "gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_entry.h"

/* Memory that nobody uses, or a stream's workspace. */
typedef struct Block {
    struct Block *next;
    DevicePtr p;
    size_t bytes;
    void *stream;
} Block;

struct Gpu {
    atomic_int refs;
    atomic_bool open;
    pthread_mutex_t lock;
    Driver driver;
    Fault fault;
    Nvrtc nvrtc;
    bool compiler, poison, exact;
    Cache cache;
    char arch[16];
    Block *kept, *workspace;            /* the newest of a stream first */
    size_t used, kept_bytes, workspace_bytes, most;
    struct { void *p; void (*end)(const Driver *, void *); } own[NOWN];
    void *side;                         /* a stream that waits for no other */
};

Gpu *gpu_new(void)
{
    Gpu *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    atomic_init(&g->refs, 1);
    pthread_mutexattr_t again;          /* what is locked may allocate */
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&g->lock, &again);
    pthread_mutexattr_destroy(&again);
    return g;
}

Gpu *gpu_retain(Gpu *g)
{
    atomic_fetch_add(&g->refs, 1);
    return g;
}

static size_t free_blocks(Gpu *g, Block **list)
{
    size_t n = 0;
    for (Block *b = *list, *next; b; b = next) {
        next = b->next;
        n += b->bytes;
        device_free(&g->driver, b->p);
        free(b);
    }
    *list = NULL;
    return n;
}

static void close_gpu(Gpu *g)
{
    CALL(&g->driver, CURRENT, set);
    CALL(&g->driver, STREAM_END, end_stream);
    if (set(g->driver.context) == 0) {
        for (int i = 0; i < NOWN; i++)
            if (g->own[i].p)
                g->own[i].end(&g->driver, g->own[i].p);
        free_blocks(g, &g->kept);
        free_blocks(g, &g->workspace);
        if (g->side)
            end_stream(g->side);
    }
    driver_close(&g->driver);
}

void gpu_release(Gpu *g)
{
    if (!g || atomic_fetch_sub(&g->refs, 1) > 1)
        return;
    if (g->open)
        close_gpu(g);
    nvrtc_settle();
    pthread_mutex_destroy(&g->lock);
    free(g);
}

typedef struct Locked {
    void (*f)(Ctx *, void *);
    void *ud;
} Locked;

static void call_locked(Ctx *c, void *ud)
{
    Locked *l = ud;
    l->f(c, l->ud);
}

void gpu_locked(Ctx *c, Gpu *g, void (*f)(Ctx *, void *), void *ud)
{
    Locked l = { f, ud };
    pthread_mutex_lock(&g->lock);
    bool ok = ctx_protect(c, call_locked, &l);
    pthread_mutex_unlock(&g->lock);
    if (!ok)
        ctx_rethrow(c);
}

static void open_gpu(Ctx *c, void *ud)
{
    Gpu *g = ud;
    if (g->open)
        return;
    if (!driver_open(c, &g->driver))
        ctx_rethrow(c);
    g->driver.fault = &g->fault;
    cache_open(&g->cache);
    if (c->say && g->cache.refused[0])
        c->say(c->say_ud, g->cache.refused);
    snprintf(g->arch, sizeof g->arch, "sm_%d%s", g->driver.compiles,
             g->driver.compiles >= 90 ? "a" : "");
    g->open = true;
}

const Driver *gpu_enter(Ctx *c, Gpu *g)
{
    if (!g->open)
        gpu_locked(c, g, open_gpu, g);
    driver_enter(c, &g->driver);
    return &g->driver;
}

static void try_gpu(Ctx *c, void *ud)
{
    gpu_enter(c, ud);
}

const Machine *gpu_machine(Ctx *c, Gpu *g)
{
    return ctx_protect(c, try_gpu, g) ? g->driver.machine
                                      : machine_usual_gpu();
}

const Driver *gpu_driver(const Gpu *g)
{
    return &g->driver;
}

static void open_compiler(Ctx *c, void *ud)
{
    Gpu *g = ud;
    if (!g->compiler && !nvrtc_open(c, &g->nvrtc))
        ctx_rethrow(c);
    g->compiler = true;
}

const Nvrtc *gpu_compiler(Ctx *c, Gpu *g)
{
    gpu_locked(c, g, open_compiler, g);
    return &g->nvrtc;
}

const Cache *gpu_cache(const Gpu *g)
{
    return &g->cache;
}

const char *gpu_arch(const Gpu *g)
{
    return g->arch;
}

void *gpu_own(const Gpu *g, GpuOwn which)
{
    return g->own[which].p;
}

void gpu_give(Gpu *g, GpuOwn which, void *p,
              void (*end)(const Driver *, void *))
{
    g->own[which].p = p;
    g->own[which].end = end;
}

typedef struct Unloading { Gpu *gpu; Module *module; } Unloading;

static void unload(Ctx *c, void *ud)
{
    Unloading *u = ud;
    module_unload(gpu_enter(c, u->gpu), u->module);
}

void gpu_unload(Ctx *c, Gpu *g, Module *m)
{
    Unloading u = { g, m };
    if (c)
        ctx_protect(c, unload, &u);
}

void gpu_running(Gpu *g, const char *what)
{
    snprintf(g->fault.running, sizeof g->fault.running, "%s", what);
}

/* ---- memory ---- */

/* Near sizes share one: eight steps from a power of two to the next. */
static size_t rounded(const Gpu *g, size_t bytes)
{
    size_t step = 512;
    if (g->exact)
        return bytes ? bytes : 1;
    while (step * 16 <= bytes)
        step *= 2;
    return bytes <= 512 ? 512 : (bytes + step - 1) / step * step;
}

/* A recording stream must not see it. */
static int raw_alloc(Gpu *g, DevicePtr *p, size_t bytes)
{
    enum { RELAXED = 2 };
    int mode = RELAXED;
    CALL(&g->driver, ALLOC, alloc);
    CALL(&g->driver, CAPTURE_MODE, exchange);
    exchange(&mode);
    int result = alloc(p, bytes);
    exchange(&mode);
    return result;
}

typedef struct Wish {
    Gpu *g;
    size_t bytes;
    void *stream;
    DevicePtr p;
} Wish;

static DevicePtr take_kept(Gpu *g, size_t bytes)
{
    for (Block **at = &g->kept; *at; at = &(*at)->next)
        if ((*at)->bytes == bytes) {
            Block *b = *at;
            DevicePtr p = b->p;
            *at = b->next;
            g->kept_bytes -= bytes;
            free(b);
            return p;
        }
    return 0;
}

/* With all that is kept given back, if there is no other way. */
static DevicePtr fresh(Ctx *c, Gpu *g, size_t bytes, const char *what)
{
    DevicePtr p = 0;
    int result = raw_alloc(g, &p, bytes);
    if (result && g->kept) {
        free_blocks(g, &g->kept);
        g->kept_bytes = 0;
        result = raw_alloc(g, &p, bytes);
    }
    if (result)
        driver_check(c, &g->driver, result, ctx_format(c, "%s of %.1f MiB",
                     what, (double)bytes / 1048576));
    return p;
}

static void note_use(Gpu *g)
{
    size_t now = g->used + g->workspace_bytes;

    g->most = now > g->most ? now : g->most;
}

static void alloc_locked(Ctx *c, void *ud)
{
    Wish *w = ud;
    w->p = take_kept(w->g, w->bytes);
    if (!w->p)
        w->p = fresh(c, w->g, w->bytes, "a tensor");
    w->g->used += w->bytes;
    note_use(w->g);
    if (w->g->poison)
        stream_fill(c, &w->g->driver, NULL, w->p, 0xff, w->bytes);
}

DevicePtr gpu_alloc(Ctx *c, Gpu *g, size_t bytes)
{
    Wish w = { .g = g, .bytes = rounded(g, bytes) };
    gpu_locked(c, g, alloc_locked, &w);
    return w.p;
}

/* Without memory to note it in, the memory goes back at once. */
void gpu_free(Gpu *g, DevicePtr p, size_t bytes)
{
    Block *b = malloc(sizeof *b);
    if (!p) {
        free(b);
        return;
    }
    bytes = rounded(g, bytes);
    pthread_mutex_lock(&g->lock);
    g->used -= bytes;
    if (b) {
        *b = (Block){ .next = g->kept, .p = p, .bytes = bytes };
        g->kept = b;
        g->kept_bytes += bytes;
    } else {
        device_free(&g->driver, p);
    }
    pthread_mutex_unlock(&g->lock);
}

void gpu_poison(Gpu *g)
{
    g->poison = true;
}

void gpu_exact(Gpu *g)
{
    g->exact = true;
}

GpuUse gpu_use(const Gpu *g)
{
    return (GpuUse){ g->used, g->kept_bytes, g->most };
}

static void workspace_locked(Ctx *c, void *ud)
{
    Wish *w = ud;
    Gpu *g = w->g;
    Block *b = g->workspace;
    size_t bytes = w->bytes;
    while (b && b->stream != w->stream)
        b = b->next;
    if (b && b->bytes >= bytes) {
        w->p = b->p;
        return;
    }
    if (b && !g->exact && bytes < b->bytes + b->bytes / 2)
        bytes = b->bytes + b->bytes / 2;
    w->p = fresh(c, g, rounded(g, bytes), "a workspace");
    Block *more = malloc(sizeof *more);
    if (!more) {
        device_free(&g->driver, w->p);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    *more = (Block){ .next = g->workspace, .p = w->p,
                     .bytes = rounded(g, bytes), .stream = w->stream };
    g->workspace = more;
    g->workspace_bytes += more->bytes;
    note_use(g);
    if (g->poison)
        stream_fill(c, &g->driver, w->stream, w->p, 0xff, more->bytes);
}

DevicePtr gpu_workspace(Ctx *c, Gpu *g, void *stream, size_t bytes)
{
    Wish w = { .g = g, .bytes = bytes, .stream = stream };
    gpu_locked(c, g, workspace_locked, &w);
    return w.p;
}

DevicePtr gpu_put(Ctx *c, Gpu *g, const void *from, size_t bytes)
{
    enum { RELAXED = 2, NON_BLOCKING = 1 };
    const Driver *d = &g->driver;
    DevicePtr to = fresh(c, g, rounded(g, bytes), "a table");
    int mode = RELAXED, result = 0;
    CALL(d, CAPTURE_MODE, exchange);
    CALL(d, STREAM, create);
    CALL(d, PUT_LATER, put);
    CALL(d, STREAM_SYNC, sync);
    exchange(&mode);
    if (!g->side)
        result = create(&g->side, NON_BLOCKING);
    if (!result)
        result = put(to, from, bytes, g->side);
    if (!result)
        result = sync(g->side);
    exchange(&mode);
    if (result)
        device_free(d, to);
    driver_check(c, d, result, "copy to the device");
    g->used += rounded(g, bytes);
    note_use(g);
    return to;
}
