/* shared.c -- what a Lua state has one of: its GPU, its threads. */
#include <string.h>

#include "../backend/cpu/pool.h"
#include "../backend/cuda/gpu.h"
#include "shared.h"

#define SHARED_META "flin.shared"

Shared shared_retain(Shared s)
{
    return (Shared){ gpu_retain(s.gpu), pool_retain(s.pool) };
}

void shared_release(Shared *s)
{
    gpu_release(s->gpu);
    pool_release(s->pool);
    *s = (Shared){ 0 };
}

static int own_gc(lua_State *L)
{
    Own *o = luaL_checkudata(L, 1, SHARED_META);

    shared_release(&o->shared);
    ctx_free(o->ctx);
    o->ctx = NULL;
    return 0;
}

Own *shared_of(lua_State *L)
{
    Own *o;

    if (lua_getfield(L, LUA_REGISTRYINDEX, SHARED_META ".state")
        == LUA_TUSERDATA) {
        o = lua_touserdata(L, -1);
        lua_pop(L, 1);
        return o;
    }
    o = push_owned(L, sizeof *o, SHARED_META, own_gc);
    o->ctx = sandbox_ctx(L);
    o->shared.gpu = gpu_new();
    o->shared.pool = pool_new(&o->ctx->mem);
    if (!o->shared.gpu || !o->shared.pool)
        lang_no_memory(L, "out of memory");
    lua_setfield(L, LUA_REGISTRYINDEX, SHARED_META ".state");
    lua_pop(L, 1);
    return o;
}
