/* tensor.c -- numbers in Lua: stores, views, indexing, conversion to text.
 *
 * Lua's own allocator provides the stores, so that a host's memory limit
 * holds for them too. Indices are Lua's: they start at 1.
 */
#include <stdio.h>
#include <string.h>

#include "gpu.h"

/* ---- stores ---- */

enum { ALIGN = 64 };

static size_t store_size(size_t bytes)
{
    return sizeof(Store) + ALIGN + bytes;
}

static void store_release(lua_State *L, Store *s)
{
    void *ud;
    lua_Alloc alloc = lua_getallocf(L, &ud);

    if (!s || --s->refs)
        return;
    if (s->gpu) {
        gpu_free(s->gpu, (DevicePtr)(uintptr_t)s->data, s->bytes);
        gpu_release(s->gpu);
        s->bytes = 0;
    }
    alloc(ud, s, store_size(s->bytes), 0);
}

/* Not cleared. The collector is told of the bytes, which it cannot see. */
static Store *store_new(lua_State *L, size_t bytes)
{
    void *ud;
    lua_Alloc alloc = lua_getallocf(L, &ud);
    size_t size = store_size(bytes);
    Store *s;

    if (size > (1 << 16))
        lua_gc(L, LUA_GCSTEP, (int)(size > ((size_t)1 << 40) ? 1 << 30
                                                            : size >> 10));
    s = alloc(ud, NULL, 0, size);
    if (!s) {
        lua_gc(L, LUA_GCCOLLECT, 0);
        s = alloc(ud, NULL, 0, size);
    }
    if (!s)
        lang_no_memory(L, "no memory for a tensor of %zu bytes", bytes);
    *s = (Store){ .refs = 1, .bytes = bytes,
                  .data = (char *)(s + 1) + ALIGN
                        - ((uintptr_t)(s + 1) % ALIGN) };
    return s;
}

/* Gigabytes take seconds: in pieces. from NULL: zeros. */
static void set_bytes(lua_State *L, char *to, const char *from, size_t n)
{
    const size_t piece = (size_t)1 << 24;

    for (size_t at = 0, m; at < n; at += m) {
        m = n - at < piece ? n - at : piece;
        if (at)
            work_on(L);
        if (from)
            memcpy(to + at, from + at, m);
        else
            memset(to + at, 0, m);
    }
}

/* ---- tensors ---- */

Tensor *tensor_test(lua_State *L, int arg)
{
    return luaL_testudata(L, arg, TENSOR_META);
}

Tensor *tensor_any(lua_State *L, int arg)
{
    Tensor *t = tensor_test(L, arg);

    if (!t || !t->store)
        luaL_error(L, "a tensor is wanted here, not a %s",
                   luaL_typename(L, arg));
    return t;
}

Tensor *tensor_check(lua_State *L, int arg)
{
    Tensor *t = tensor_any(L, arg);

    if (t->store->gpu)
        luaL_error(L, "this works on the CPU, and the tensor is on the GPU"
                   "\n  help: t:to(\"cpu\")");
    return t;
}

/* No store yet, so that collecting it is harmless. */
static Tensor *push_empty(lua_State *L)
{
    Tensor *t = lua_newuserdatauv(L, sizeof *t, 0);

    memset(t, 0, sizeof *t);
    luaL_setmetatable(L, TENSOR_META);
    return t;
}

/* Says of the longest axis how long it could be. */
static void too_large(lua_State *L, const Tensor *t)
{
    int longest = 0;
    int64_t fits = COUNT_MAX;

    for (int k = 1; k < t->rank; k++)
        if (t->shape[k] > t->shape[longest])
            longest = k;
    for (int k = 0; k < t->rank; k++)
        if (k != longest && t->shape[k] > 1)
            fits /= t->shape[k];
    if (fits < 1)
        luaL_error(L, "a tensor of shape %s is too large: it has at most 2^%d "
                   "elements", tensor_shape_text(L, t), COUNT_LOG);
    luaL_error(L, "a tensor of shape %s is too large: it has at most 2^%d "
               "elements\n  help: axis %d could be %I long",
               tensor_shape_text(L, t), COUNT_LOG, longest + 1,
               (lua_Integer)fits);
}

void tensor_bounded(lua_State *L, const Tensor *t)
{
    int64_t n = 1;

    for (int k = 0; k < t->rank; k++)
        if (t->shape[k] > 1
            && (__builtin_mul_overflow(n, t->shape[k], &n) || n > COUNT_MAX))
            too_large(L, t);
}

/* Its shape and row-major strides; returns the bytes that it takes. */
static size_t lay_out(lua_State *L, Tensor *t, DType d, int rank,
                      const int64_t *shape)
{
    t->dtype = d;
    t->rank = rank;
    for (int k = 0; k < rank; k++)
        t->shape[k] = shape[k];
    tensor_bounded(L, t);
    for (int64_t k = rank, step = 1; k-- > 0; ) {
        t->stride[k] = step;
        step *= shape[k] > 1 ? shape[k] : 1;
    }
    return (size_t)(tensor_count(t) * dtype_size(d));
}

Tensor *tensor_push(lua_State *L, DType d, int rank, const int64_t *shape)
{
    Tensor *t = push_empty(L);

    t->store = store_new(L, lay_out(L, t, d, rank, shape));
    set_bytes(L, t->store->data, NULL, t->store->bytes);
    return t;
}

Tensor *tensor_push_bare(lua_State *L, DType d, int rank,
                         const int64_t *shape, size_t *bytes)
{
    Tensor *t = push_empty(L);

    *bytes = lay_out(L, t, d, rank, shape);
    t->store = store_new(L, 0);
    return t;
}

Tensor *tensor_alias(lua_State *L, const Tensor *t)
{
    Tensor *v = push_empty(L);

    *v = *t;
    v->store->refs++;
    return v;
}

void *tensor_data(const Tensor *t)
{
    return (char *)t->store->data + t->at * dtype_size(t->dtype);
}

int64_t tensor_count(const Tensor *t)
{
    int64_t n = 1;

    for (int k = 0; k < t->rank; k++)
        n *= t->shape[k];
    return n;
}

bool tensor_contiguous(const Tensor *t)
{
    int64_t step = 1;

    for (int k = t->rank; k-- > 0; step *= t->shape[k])
        if (t->shape[k] > 1 && t->stride[k] != step)
            return false;
    return true;
}

View tensor_view(const Tensor *t)
{
    return (View){ .data = t->store->data, .dtype = t->dtype };
}

Walk walk(lua_State *L, const Tensor *t)
{
    Walk w = { .L = L, .t = t, .at = t->at, .left = tensor_count(t) };

    work(L, (uint64_t)w.left);
    return w;
}

Span span(lua_State *L, int64_t n, int64_t each)
{
    int64_t size = each > 1 ? each : 1;

    work(L, work_times((uint64_t)n, (uint64_t)size));
    return (Span){ .L = L, .end = n,
                   .piece = size < WORK_PIECE ? WORK_PIECE / size : 1 };
}

bool span_next(Span *s)
{
    s->from = s->to;
    if (s->from)
        work_on(s->L);
    s->to = s->end - s->from > s->piece ? s->from + s->piece : s->end;
    return s->from < s->end;
}

void walk_next(Walk *w)
{
    if (--w->left % WORK_PIECE == 0)
        work_on(w->L);
    for (int k = w->t->rank; k-- > 0; ) {
        w->at += w->t->stride[k];
        if (++w->i[k] < w->t->shape[k])
            return;
        w->at -= w->t->stride[k] * w->i[k];
        w->i[k] = 0;
    }
}

Tensor *tensor_copy(lua_State *L, const Tensor *t, DType d)
{
    Tensor *c = tensor_push(L, d, t->rank, t->shape);
    View from = tensor_view(t), to = tensor_view(c);
    int64_t n = 0;

    if (d == t->dtype && tensor_contiguous(t)) {
        set_bytes(L, tensor_data(c), tensor_data(t),
                  (size_t)(tensor_count(t) * dtype_size(d)));
        return c;
    }
    for (Walk w = walk(L, t); w.left; walk_next(&w))
        view_set(&to, n++, view_get(&from, w.at));
    return c;
}

/* ---- words ---- */

const char *tensor_shape_text(lua_State *L, const Tensor *t)
{
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    luaL_addchar(&b, '[');
    for (int k = 0; k < t->rank; k++) {
        char s[32];
        snprintf(s, sizeof s, "%s%lld", k ? ", " : "",
                 (long long)t->shape[k]);
        luaL_addstring(&b, s);
    }
    luaL_addchar(&b, ']');
    luaL_pushresult(&b);
    return lua_tostring(L, -1);
}

bool dtype_named(const char *s, DType *d)
{
    static const char *const brief[] = { "f32", "bf16", "fp16", "f64", "i32",
                                         "i64" };

    for (int k = 0; k < NDTYPES; k++)
        if (strcmp(s, dtype_name((DType)k)) == 0 || strcmp(s, brief[k]) == 0)
            return *d = (DType)k, true;
    if (strcmp(s, "f16") == 0)
        return *d = F16, true;
    return false;
}

DType dtype_check(lua_State *L, int arg)
{
    DType d = F32;

    if (lua_isnoneornil(L, arg))
        return d;
    if (lua_type(L, arg) != LUA_TSTRING
        || !dtype_named(lua_tostring(L, arg), &d))
        luaL_error(L, "unknown dtype %s\n  help: one of float32, bfloat16, "
                   "float16, float64, int32, int64",
                   luaL_tolstring(L, arg, NULL));
    return d;
}

int tensor_collect(lua_State *L)
{
    Tensor *t = tensor_test(L, 1);

    if (t) {
        store_release(L, t->store);
        t->store = NULL;
    }
    return 0;
}
