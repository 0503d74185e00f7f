/* file.c -- any bytes as a file of tensors. */
#include "lang/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int load(lua_State *L)
{
    void *bytes = lua_touserdata(L, 1);
    size_t n = (size_t)lua_tointeger(L, 2);
    const Limits limits = { .memory = 64 << 20 };
    File *f;

    sandbox_open(L, &limits, true);
    lua_newtable(L);
    tensors_open(L);
    f = file_new(L, "fuzz");
    f->f = fmemopen(bytes, n, "rb");
    if (f->f)
        for (int k = file_load(L, f); k > 0; k--)
            luaL_tolstring(L, -k, NULL);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    lua_State *L = luaL_newstate();

    lua_pushcfunction(L, load);
    lua_pushlightuserdata(L, (void *)(uintptr_t)data);
    lua_pushinteger(L, (lua_Integer)n);
    lua_pcall(L, 2, 0, 0);
    lua_close(L);
    return 0;
}
