/* tensor_view.c -- methods that look at a tensor in another way, copy it, or
 * take it apart. Axes and positions start at 1.
 */
#include <string.h>

#include "gpu.h"

static int axis_arg(lua_State *L, int arg, const Tensor *t, const char *what)
{
    lua_Integer k = luaL_checkinteger(L, arg);

    if (k < 1 || k > t->rank)
        luaL_error(L, "%s: axis %I of a tensor of shape %s", what, k,
                   tensor_shape_text(L, t));
    return (int)k - 1;
}

/* t:narrow(axis, start, length) */
static int narrow(lua_State *L)
{
    const Tensor *t = tensor_any(L, 1);
    int k = axis_arg(L, 2, t, "narrow");
    lua_Integer start = luaL_checkinteger(L, 3);
    lua_Integer len = luaL_checkinteger(L, 4);
    Tensor *v;

    if (start < 1 || len < 0 || start > t->shape[k] + 1
        || len > t->shape[k] + 1 - start)
        return luaL_error(L, "narrow: entries %I to %I of axis %d in shape "
                          "%s", start, (lua_Integer)((lua_Unsigned)start
                          + (lua_Unsigned)len - 1), k + 1,
                          tensor_shape_text(L, t));
    v = tensor_alias(L, t);
    v->at += (start - 1) * v->stride[k];
    v->shape[k] = len;
    return 1;
}

static int transpose(lua_State *L)
{
    const Tensor *t = tensor_any(L, 1);
    int a = axis_arg(L, 2, t, "transpose"), b = axis_arg(L, 3, t, "transpose");
    Tensor *v = tensor_alias(L, t);

    v->shape[a] = t->shape[b];
    v->shape[b] = t->shape[a];
    v->stride[a] = t->stride[b];
    v->stride[b] = t->stride[a];
    return 1;
}

static int contiguous(lua_State *L)
{
    const Tensor *t = tensor_any(L, 1);

    if (tensor_contiguous(t))
        lua_settop(L, 1);
    else
        tensor_copy(L, tensor_check(L, 1), t->dtype);
    return 1;
}

/* t:reshape{2, -1}: the same elements; -1, once: whatever fits. */
static int reshape(lua_State *L)
{
    Tensor *t = tensor_any(L, 1), *v;
    int64_t shape[TENSOR_RANK], n = tensor_count(t), known = 1;
    int next, open, rank = tensor_sizes(L, 2, "reshape", shape, &next, &open);

    for (int k = 0; k < rank; k++)
        if (__builtin_mul_overflow(known, shape[k], &known))
            known = -1;
    if (open >= 0 && known > 0 && n % known == 0) {
        shape[open] = n / known;
        known = n;
    }
    if (known != n)
        return luaL_error(L, "reshape: %I elements do not fill that shape",
                          (lua_Integer)n);
    if (!tensor_contiguous(t))
        t = tensor_copy(L, tensor_check(L, 1), t->dtype);
    v = tensor_alias(L, t);
    v->rank = rank;
    memcpy(v->shape, shape, sizeof v->shape);
    tensor_bounded(L, v);
    for (int64_t k = rank, step = 1; k-- > 0; step *= shape[k] ? shape[k] : 1)
        v->stride[k] = step;
    return 1;
}

/* t:to("cuda" | "cpu"): there, itself where it is there; t:to(dtype). */
static int to(lua_State *L)
{
    const Tensor *t = tensor_any(L, 1);
    const char *s = luaL_checkstring(L, 2);
    bool gpu = t->store->gpu != NULL;

    if (strcmp(s, gpu ? "cuda" : "cpu") == 0)
        lua_settop(L, 1);
    else if (strcmp(s, "cuda") == 0)
        tensor_to_gpu(L, t);
    else if (strcmp(s, "cpu") == 0)
        tensor_to_host(L, t);
    else
        tensor_copy(L, tensor_check(L, 1), dtype_check(L, 2));
    return 1;
}

static int clone(lua_State *L)
{
    const Tensor *t = tensor_check(L, 1);

    tensor_copy(L, t, t->dtype);
    return 1;
}

static int fill(lua_State *L)
{
    const Tensor *t = tensor_writable(L, 1);
    View v = tensor_view(t);
    double x = luaL_checknumber(L, 2);

    for (Walk w = walk(L, t); w.left; walk_next(&w))
        view_set(&v, w.at, x);
    lua_settop(L, 1);
    return 1;
}

/* t:copy(other): other's numbers into t, which may be a view. */
static int copy(lua_State *L)
{
    const Tensor *t = tensor_writable(L, 1), *o = tensor_check(L, 2);
    View v = tensor_view(t), u = tensor_view(o);

    if (t->rank != o->rank
        || memcmp(t->shape, o->shape, (size_t)t->rank * sizeof *t->shape))
        return luaL_error(L, "copy: shape %s into shape %s",
                          tensor_shape_text(L, o), tensor_shape_text(L, t));
    if (t->store == o->store)
        o = tensor_copy(L, o, o->dtype), u = tensor_view(o);
    for (Walk w = walk(L, t), x = walk(L, o); w.left;
         walk_next(&w), walk_next(&x))
        view_set(&v, w.at, view_get(&u, x.at));
    lua_settop(L, 1);
    return 1;
}

static void push_nested(lua_State *L, const Tensor *t, int level, int64_t at)
{
    View v = tensor_view(t);

    if (level == t->rank) {
        lua_pushnumber(L, view_get(&v, at));
        return;
    }
    lua_createtable(L, (int)(t->shape[level] & 0xffffff), 0);
    for (Span s = span(L, t->shape[level], ENTRY_COST); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++) {
            push_nested(L, t, level + 1, at + i * t->stride[level]);
            lua_rawseti(L, -2, i + 1);
        }
}

static int totable(lua_State *L)
{
    const Tensor *t = tensor_check(L, 1);

    luaL_checkstack(L, 2 * TENSOR_RANK, "totable");
    push_nested(L, t, 0, t->at);
    return 1;
}

void tensor_methods(lua_State *L)
{
    static const luaL_Reg methods[] = {
        { "narrow", narrow }, { "transpose", transpose },
        { "contiguous", contiguous }, { "reshape", reshape }, { "to", to },
        { "clone", clone }, { "fill", fill }, { "copy", copy },
        { "totable", totable }, { NULL, NULL }
    };

    luaL_setfuncs(L, methods, 0);
}
