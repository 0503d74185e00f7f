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

/* What to_text shows of a tensor on the GPU; pushed. */
static Tensor *corner(lua_State *L, const Tensor *t)
{
    Tensor *v = tensor_alias(L, t);

    for (int k = 0; k < v->rank; k++) {
        int64_t most = k + 2 < v->rank ? 1 : k + 1 < v->rank ? 6 : 8;
        if (v->shape[k] > most)
            v->shape[k] = most;
    }
    return tensor_to_host(L, v);
}

/* The last two axes at the first index of the others, at most 6 x 8. */
static int to_text(lua_State *L)
{
    const Tensor *t = tensor_any(L, 1);
    int r = t->rank;
    int64_t rows = r > 1 ? t->shape[r - 2] : 1;
    int64_t cols = r > 0 ? t->shape[r - 1] : 1;
    luaL_Buffer b;

    lua_settop(L, 1);
    tensor_shape_text(L, t);
    bool gpu = t->store->gpu != NULL;
    if (gpu && tensor_count(t))
        t = corner(L, t);
    View v = tensor_view(t);
    luaL_buffinit(L, &b);
    lua_pushfstring(L, "tensor %s %s%s", lua_tostring(L, 2),
                    dtype_name(t->dtype), gpu ? " cuda" : "");
    luaL_addvalue(&b);
    for (int64_t i = 0; tensor_count(t) && i < rows && i < 6; i++) {
        luaL_addstring(&b, "\n ");
        for (int64_t j = 0; j < cols && j < 8; j++) {
            int64_t at = t->at + (r > 1 ? i * t->stride[r - 2] : 0)
                         + (r > 0 ? j * t->stride[r - 1] : 0);
            char s[40];
            snprintf(s, sizeof s, " %10.4g", view_get(&v, at));
            luaL_addstring(&b, s);
        }
        luaL_addstring(&b, cols > 8 ? " ..." : "");
    }
    luaL_addstring(&b, rows > 6 ? "\n  ..." : "");
    luaL_pushresult(&b);
    return 1;
}

/* ---- indexing ---- */

/* Where element t[{i, j, ..}] lies; the table is at `key`. */
static int64_t locate(lua_State *L, const Tensor *t, int key)
{
    int64_t at = t->at;

    if (lua_rawlen(L, key) != (lua_Unsigned)t->rank)
        luaL_error(L, "%d indices for a tensor of shape %s",
                   (int)lua_rawlen(L, key), tensor_shape_text(L, t));
    for (int k = 0; k < t->rank; k++) {
        int ok;
        lua_Integer i;
        lua_rawgeti(L, key, k + 1);
        i = lua_tointegerx(L, -1, &ok);
        if (!ok || i < 1 || i > t->shape[k]) {
            const char *s = luaL_tolstring(L, -1, NULL);
            luaL_error(L, "index %s in place %d; the tensor has shape %s", s,
                       k + 1, tensor_shape_text(L, t));
        }
        lua_pop(L, 1);
        at += (i - 1) * t->stride[k];
    }
    return at;
}

static lua_Integer first_index(lua_State *L, const Tensor *t, int key)
{
    int ok;
    lua_Integer i = lua_tointegerx(L, key, &ok);

    if (!ok || t->rank == 0 || i < 1 || i > t->shape[0]) {
        const char *s = luaL_tolstring(L, key, NULL);
        luaL_error(L, "index %s; the tensor has shape %s", s,
                   tensor_shape_text(L, t));
    }
    return i - 1;
}

static void push_element(lua_State *L, const Tensor *t, int64_t at)
{
    View v = tensor_view(t);
    Tensor *one;

    if (!t->store->gpu) {
        lua_pushnumber(L, view_get(&v, at));
        return;
    }
    one = tensor_alias(L, t);
    one->rank = 0;
    one->at = at;
    one = tensor_to_host(L, one);
    v = tensor_view(one);
    lua_pushnumber(L, view_get(&v, one->at));
}

/* t[i]: a number of a vector, else the view that lacks the first axis. */
static void index_first(lua_State *L, const Tensor *t)
{
    int64_t at = t->at + first_index(L, t, 2) * t->stride[0];
    Tensor *s;

    if (t->rank == 1) {
        push_element(L, t, at);
        return;
    }
    s = tensor_alias(L, t);
    s->at = at;
    s->rank--;
    memmove(s->shape, s->shape + 1, (size_t)s->rank * sizeof *s->shape);
    memmove(s->stride, s->stride + 1, (size_t)s->rank * sizeof *s->stride);
}

static void push_shape(lua_State *L, const Tensor *t)
{
    lua_createtable(L, t->rank, 0);
    for (int k = 0; k < t->rank; k++) {
        lua_pushinteger(L, t->shape[k]);
        lua_rawseti(L, -2, k + 1);
    }
}

/* Methods are in upvalue 1. */
static int index_any(lua_State *L)
{
    const Tensor *t = tensor_any(L, 1);
    const char *s;

    if (lua_type(L, 2) == LUA_TTABLE)
        return push_element(L, t, locate(L, t, 2)), 1;
    if (lua_type(L, 2) == LUA_TNUMBER)
        return index_first(L, t), 1;
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL)
        return 1;
    s = luaL_tolstring(L, 2, NULL);
    if (strcmp(s, "shape") == 0)
        push_shape(L, t);
    else if (strcmp(s, "dtype") == 0)
        lua_pushstring(L, dtype_name(t->dtype));
    else if (strcmp(s, "rank") == 0)
        lua_pushinteger(L, t->rank);
    else if (strcmp(s, "device") == 0)
        lua_pushstring(L, t->store->gpu ? "cuda" : "cpu");
    else if (strcmp(s, "count") == 0)
        lua_pushinteger(L, tensor_count(t));
    else
        return luaL_error(L, "a tensor has no field or method '%s'", s);
    return 1;
}

static int set_index(lua_State *L)
{
    const Tensor *t = tensor_writable(L, 1);
    View v = tensor_view(t);
    int64_t at;

    if (lua_type(L, 2) == LUA_TTABLE)
        at = locate(L, t, 2);
    else if (lua_type(L, 2) == LUA_TNUMBER && t->rank == 1)
        at = t->at + first_index(L, t, 2) * t->stride[0];
    else
        return luaL_error(L, "write one number by t[{i, j, ...}] = x, or "
                          "many by t:fill(x) and t:copy(other)");
    if (lua_type(L, 3) != LUA_TNUMBER)
        return luaL_error(L, "a tensor holds numbers, not a %s",
                          luaL_typename(L, 3));
    view_set(&v, at, lua_tonumber(L, 3));
    return 0;
}

static int length(lua_State *L)
{
    const Tensor *t = tensor_any(L, 1);

    lua_pushinteger(L, t->rank ? t->shape[0] : 1);
    return 1;
}

static int collect(lua_State *L)
{
    Tensor *t = tensor_test(L, 1);

    if (t) {
        store_release(L, t->store);
        t->store = NULL;
    }
    return 0;
}

void tensor_open(lua_State *L)
{
    static const luaL_Reg meta[] = {
        { "__newindex", set_index }, { "__len", length },
        { "__gc", collect }, { "__tostring", to_text }, { NULL, NULL }
    };

    luaL_newmetatable(L, TENSOR_META);
    luaL_setfuncs(L, meta, 0);
    lua_pushliteral(L, "tensor");
    lua_setfield(L, -2, "__metatable");
    tensor_arithmetic(L);
    lua_newtable(L);
    tensor_methods(L);
    tensor_reductions(L);
    tensor_ops_open(L);
    lua_pushcclosure(L, index_any, 1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    make_open(L);
    host_open(L);
    files_open(L);
}
