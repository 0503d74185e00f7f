/* gpu.c -- tensors on a GPU, and flin.cuda, which says what there is. */
#include <string.h>

#include "gpu.h"
#include "shared.h"

static Gpu *gpu_of(lua_State *L)
{
    return shared_of(L)->shared.gpu;
}

/* ---- memory ---- */

typedef struct Copy {
    Gpu *gpu;
    size_t bytes;
    DevicePtr device;
    void *host;
} Copy;

static void alloc(Ctx *c, void *ud)
{
    Copy *k = ud;

    gpu_enter(c, k->gpu);
    k->device = gpu_alloc(c, k->gpu, k->bytes);
}

static void put(Ctx *c, void *ud)
{
    Copy *k = ud;
    const Driver *d = gpu_enter(c, k->gpu);

    if (k->bytes)
        device_put(c, d, k->device, k->host, k->bytes);
}

static void get(Ctx *c, void *ud)
{
    Copy *k = ud;
    const Driver *d = gpu_enter(c, k->gpu);

    if (k->bytes)
        device_get(c, d, k->host, k->device, k->bytes);
}

/* Collected tensors may make room where there is none. */
static DevicePtr alloc_bytes(lua_State *L, size_t bytes)
{
    Own *b = shared_of(L);
    Copy k = { .gpu = b->shared.gpu, .bytes = bytes };

    if (ctx_protect(b->ctx, alloc, &k))
        return k.device;
    if (b->ctx->err.code == ERR_MEMORY)
        lua_gc(L, LUA_GCCOLLECT, 0);
    protect(L, b->ctx, alloc, &k);
    return k.device;
}

Tensor *tensor_push_gpu(lua_State *L, DType d, int rank, const int64_t *shape)
{
    size_t bytes;
    Tensor *t = tensor_push_bare(L, d, rank, shape, &bytes);

    lua_gc(L, LUA_GCSTEP, (int)(bytes >> 40 ? 1 << 30 : bytes >> 10));
    t->store->data = (void *)(uintptr_t)alloc_bytes(L, bytes);
    t->store->bytes = bytes;
    t->store->gpu = gpu_retain(gpu_of(L));
    return t;
}

Tensor *tensor_to_gpu(lua_State *L, const Tensor *t)
{
    Own *b = shared_of(L);
    bool whole = tensor_contiguous(t);
    const Tensor *from = whole ? t : tensor_copy(L, t, t->dtype);
    Tensor *to = tensor_push_gpu(L, t->dtype, t->rank, t->shape);
    Copy k = { .gpu = b->shared.gpu, .bytes = to->store->bytes,
               .device = (DevicePtr)(uintptr_t)to->store->data,
               .host = tensor_data(from) };

    protect(L, b->ctx, put, &k);
    if (!whole)
        lua_remove(L, -2);
    return to;
}

/* The span of its elements, as a tensor of the same strides. */
static Tensor *push_span(lua_State *L, const Tensor *t)
{
    Own *b = shared_of(L);
    int64_t low = 0, high = 0, n, size = dtype_size(t->dtype);
    Tensor *span;

    for (int k = 0; k < t->rank; k++) {
        int64_t far = (t->shape[k] - 1) * t->stride[k];
        low += far < 0 ? far : 0;
        high += far > 0 ? far : 0;
    }
    n = tensor_count(t) ? high - low + 1 : 0;
    span = tensor_push(L, t->dtype, 1, &n);
    Copy k = { .gpu = b->shared.gpu, .bytes = (size_t)(n * size),
               .device = (DevicePtr)(uintptr_t)t->store->data
                       + (DevicePtr)((t->at + low) * size),
               .host = tensor_data(span) };
    protect(L, b->ctx, get, &k);
    span->rank = t->rank;
    span->at = -low;
    memcpy(span->shape, t->shape, sizeof span->shape);
    memcpy(span->stride, t->stride, sizeof span->stride);
    return span;
}

Tensor *tensor_to_host(lua_State *L, const Tensor *t)
{
    Tensor *span = push_span(L, t), *whole;

    if (tensor_contiguous(span))
        return span;
    whole = tensor_copy(L, span, span->dtype);
    lua_remove(L, -2);
    return whole;
}

/* ---- flin.cuda ---- */

typedef struct Asked {
    Gpu *gpu;
    const Driver *driver;
    const Nvrtc *nvrtc;
} Asked;

static void ask_driver(Ctx *c, void *ud)
{
    Asked *a = ud;

    a->driver = gpu_enter(c, a->gpu);
}

static void ask_compiler(Ctx *c, void *ud)
{
    Asked *a = ud;

    a->nvrtc = gpu_compiler(c, a->gpu);
}

static void set_integer(lua_State *L, const char *name, lua_Integer x)
{
    lua_pushinteger(L, x);
    lua_setfield(L, -2, name);
}

static bool wants(lua_State *L, const char *option)
{
    return lua_istable(L, 1) && raw_field(L, 1, option) == LUA_TBOOLEAN
        && lua_toboolean(L, -1);
}

static bool is_closed(lua_State *L)
{
    bool closed = lua_getfield(L, LUA_REGISTRYINDEX, SANDBOX_CLOSED)
                  != LUA_TNIL;

    lua_pop(L, 1);
    return closed;
}

/* flin.cuda(): the GPU as a table, or nil and why there is none that could be
 * used. A script in the sandbox sets nothing here, where others compute, too,
 * and is not told of this machine's folders. For tests: flin.cuda{ poison =
 * true } fills memory with what is not a number before it is used; { exact =
 * true }, before there is any, takes no more than is asked for. */
static int cuda(lua_State *L)
{
    Own *b = shared_of(L);
    Asked a = { .gpu = b->shared.gpu };
    bool closed = is_closed(L);

    if (closed && !lua_isnoneornil(L, 1))
        lang_fail(L, "flin.cuda() tells of the GPU", "cuda: its options are "
                  "closed to a script in the sandbox");
    if (!ctx_protect(b->ctx, ask_driver, &a)
        || !ctx_protect(b->ctx, ask_compiler, &a)) {
        lua_pushnil(L);
        lua_pushstring(L, b->ctx->err.message);
        return 2;
    }
    if (wants(L, "poison"))
        gpu_poison(b->shared.gpu);
    if (wants(L, "exact"))
        gpu_exact(b->shared.gpu);
    lua_newtable(L);
    set_text(L, "name", a.driver->name);
    set_text(L, "arch", gpu_arch(b->shared.gpu));
    lua_pushfstring(L, "%d.%d", a.driver->version / 1000,
                    a.driver->version % 1000 / 10);
    lua_setfield(L, -2, "driver");
    lua_pushfstring(L, "%d.%d", a.nvrtc->major, a.nvrtc->minor);
    lua_setfield(L, -2, "nvrtc");
    set_integer(L, "processors", a.driver->processors);
    const GpuUse use = gpu_use(b->shared.gpu);
    set_integer(L, "used", (lua_Integer)use.used);
    set_integer(L, "kept", (lua_Integer)use.kept);
    set_integer(L, "peak", (lua_Integer)use.most);
    if (closed)
        return 1;
    set_text(L, "nvrtc_path", a.nvrtc->path);
    set_text(L, "cache", gpu_cache(b->shared.gpu)->folder);
    set_text(L, "cache_refused", gpu_cache(b->shared.gpu)->refused);
    return 1;
}

void gpu_open(lua_State *L)
{
    lua_pushcfunction(L, cuda);
    lua_setfield(L, -2, "cuda");
}
