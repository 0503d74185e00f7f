/* tensor_index.c -- a tensor's elements, fields and text. */
#include <stdio.h>
#include <string.h>

#include "gpu.h"

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

void tensor_meta(lua_State *L)
{
    static const luaL_Reg meta[] = {
        { "__newindex", set_index }, { "__len", length },
        { "__gc", tensor_collect }, { "__tostring", to_text }, { NULL, NULL }
    };

    luaL_newmetatable(L, TENSOR_META);
    luaL_setfuncs(L, meta, 0);
    lua_pushliteral(L, "tensor");
    lua_setfield(L, -2, "__metatable");
}

void tensor_fields(lua_State *L)
{
    lua_pushcclosure(L, index_any, 1);
    lua_setfield(L, -2, "__index");
}
