/* backward_lua.c -- v:backward and v:reference_backward, as Lua calls them. */
#include <string.h>

#include "run.h"

#define SAVED_META "flin.saved"

typedef struct BackRun { Run *r; Adjoint d; } BackRun;

/* ---- saved ---- */

enum { ALIGN = 64 };

/* The room that is the tensor on top, which may be anything. */
static Stored stored_at(lua_State *L)
{
    const Tensor *t = tensor_test(L, -1);

    if (!t || t->dtype != F32 || t->rank != 1 || t->stride[0] != 1
        || t->shape[0] * (int64_t)sizeof(float) < ALIGN)
        return (Stored){ 0 };
    uintptr_t at = (uintptr_t)tensor_data(t);
    return (Stored){ (void *)((at + ALIGN - 1) / ALIGN * ALIGN),
                     t->shape[0] * (int64_t)sizeof(float) - ALIGN,
                     t->store->gpu != NULL };
}

Stored push_room(lua_State *L, const Run *r, int64_t bytes)
{
    int64_t n = (bytes + ALIGN) / (int64_t)sizeof(float);
    Given at;

    push_result(L, r, F32, 1, &n, &at);
    return stored_at(L);
}

/* saved.bytes: what is stored for v:backward, beside the arguments. */
static int saved_index(lua_State *L)
{
    const char *key = lua_tostring(L, 2);

    if (!key || strcmp(key, "bytes") || !lua_istable(L, 1))
        return 0;
    lua_rawgeti(L, 1, 2);
    lua_pushinteger(L, stored_at(L).bytes);
    return 1;
}

/* A table of the arguments (without copies of the tensors), the variant and
 * what the plan has stored. */
void push_saved(lua_State *L, int room)
{
    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, 2);) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_settable(L, -4);
    }
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 1);
    if (room) {
        lua_pushvalue(L, room);
        lua_rawseti(L, -2, 2);
    }
    if (luaL_newmetatable(L, SAVED_META)) {
        lua_pushcfunction(L, saved_index);
        lua_setfield(L, -2, "__index");
    }
    lua_setmetatable(L, -2);
}

static bool is_saved(lua_State *L, int at)
{
    if (!lua_istable(L, at) || !lua_getmetatable(L, at))
        return false;
    luaL_getmetatable(L, SAVED_META);
    bool same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return same;
}

/* Whether the call at index 2 adds gradients alone: then what was stored
 * holds. */
static bool adds_gradients(lua_State *L)
{
    bool only = true;

    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING
                        ? lua_tostring(L, -2) : "";
        only = only && (!strcmp(key, "dy") || !strcmp(key, "dstate")
                        || !strcmp(key, "saved") || !strcmp(key, "threads"));
    }
    return only;
}

/* The arguments at index 2 and, behind them, those of the saved call. Returns
 * what that one stored, which lives as long as the table at index 2. */
static Stored join_saved(lua_State *L, const char *what)
{
    Stored stored = { 0 };

    if (!lua_istable(L, 2) || lua_getfield(L, 2, "saved") == LUA_TNIL) {
        lua_settop(L, 2);
        return stored;
    }
    if (!is_saved(L, 3))
        lang_fail(L, "y, state, saved = v:forward { save = true, ... }",
                  "%s: saved must be what v:forward gave, not %s", what,
                  type_text(L, 3));
    lua_rawgeti(L, 3, 1);
    if (!lua_rawequal(L, -1, 1))
        lang_fail(L, NULL, "%s: saved is of another variant", what);
    lua_newtable(L);
    for (int from = 3; from >= 2; from--)
        for (lua_pushnil(L); lua_next(L, from);) {
            lua_pushvalue(L, -2);
            lua_insert(L, -2);
            lua_settable(L, -4);
        }
    for (int i = 1; i <= 2; i++) {
        lua_pushnil(L);
        lua_rawseti(L, 5, i);
    }
    lua_createtable(L, 1, 0);
    if (adds_gradients(L)) {
        lua_rawgeti(L, 3, 2);
        stored = stored_at(L);
        lua_rawseti(L, -2, 1);
    }
    lua_setmetatable(L, 5);
    lua_pushnil(L);
    lua_setfield(L, 5, "save");
    lua_pushnil(L);
    lua_setfield(L, 5, "saved");
    lua_replace(L, 2);
    lua_settop(L, 2);
    return stored;
}

/* ---- arguments and results ---- */

static void take_adjoints(lua_State *L, BackRun *k, const char *what)
{
    if (lua_getfield(L, 2, "dy") != LUA_TNIL)
        k->d.dy = tensor_value(L, what, "dy", false);
    if (lua_getfield(L, 2, "dstate") != LUA_TNIL)
        state_values(L, k->r->v->step, what, "dstate", k->d.dstate);
    lua_pop(L, 2);
}

/* Pushes the table of gradients: as wide as what they are of. */
static void push_gradients(lua_State *L, BackRun *k)
{
    const Run *r = k->r;
    const Graph *g = r->v->step;
    bool exact = r->args.mode == M_REFERENCE_BACKWARD;
    int64_t shape[TENSOR_RANK];

    lua_createtable(L, 0, g->nin + 1);
    for (int i = 0; i < g->nin; i++) {
        const Given *x = &r->args.in[i];
        push_result(L, r, exact ? F64 : x->dtype, x->rank, x->shape,
                    &k->d.dx[i]);
        lua_setfield(L, -2, g->in[i].name);
    }
    lua_createtable(L, 0, g->nst);
    for (int i = 0; i < g->nst; i++) {
        int rank = state_shape(g, &r->bound, i, shape);
        push_result(L, r, r->bound.state_dtype, rank, shape, &k->d.ds[i]);
        lua_setfield(L, -2, g->st[i].name);
    }
    lua_setfield(L, -2, "initial_state");
}

static void do_backward(Ctx *c, void *ud)
{
    BackRun *k = ud;

    run_backward(c, k->r->v, &k->r->args, &k->r->bound, &k->d);
}

static int backward_mode(lua_State *L, Mode mode)
{
    const char *what = mode_name[mode];

    lua_settop(L, 2);
    Stored stored = join_saved(L, what);
    BackRun k = { .r = run_begin(L, mode), .d.stored = stored };
    take_adjoints(L, &k, what);
    push_gradients(L, &k);
    protect(L, k.r->ctx, do_backward, &k);
    run_end(k.r);
    return 1;
}

static int variant_backward(lua_State *L)
{
    return backward_mode(L, M_BACKWARD);
}

static int variant_reference_backward(lua_State *L)
{
    return backward_mode(L, M_REFERENCE_BACKWARD);
}

static void do_prepare(Ctx *c, void *ud)
{
    Run *r = ud;

    prepare_backward(c, r->v, &r->args, &r->bound);
}

void backward_prepare(lua_State *L)
{
    lua_settop(L, 2);
    join_saved(L, "prepare");
    Run *r = run_begin(L, M_BACKWARD);
    protect(L, r->ctx, do_prepare, r);
    run_end(r);
}

void backward_methods(lua_State *L)
{
    static const luaL_Reg methods[] = {
        { "backward", variant_backward },
        { "reference_backward", variant_reference_backward },
        { NULL, NULL }
    };

    luaL_setfuncs(L, methods, 0);
}
