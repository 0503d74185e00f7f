/* lua_host.c -- a program with a Lua of its own, in which flin becomes a
 * module; C and Lua share variants.
 *
 *     cc lua_host.c $(pkg-config --cflags --libs lua5.4) -lflin -lm && ./a.out
 *
 * The script defines a layer, runs it on Lua's tensors, and hands it to the
 * host, which runs it on buffers of C.
 */
#include <lua.h>
#include <lauxlib.h>
#include <lualib.h>
#include <math.h>
#include <stdio.h>

#include "flin.h"

enum { T = 200, D = 16 };

static const char script[] =
    "local flin = require 'flin'\n"
    "local decay = 0.9                -- of the host's Lua, an upvalue\n"
    "local layer = flin.variant {\n"
    "  name = 'leaky', input = { k = 't k', v = 't v' },\n"
    "  state = { S = 'k v' },\n"
    "  step = function (x, s)\n"
    "    local S = decay * s.S + flin.outer(x.k, x.v)\n"
    "    return { S = S }, flin.dot(x.k, S)\n"
    "  end }\n"
    "local function ramp(n)           -- 1, 2, ... n, over n\n"
    "  local x = flin.zeros(1, n // 16, 1, 16)\n"
    "  local flat = x:reshape(n)\n"
    "  for i = 1, n do flat[i] = i / n end\n"
    "  return x\n"
    "end\n"
    "local x = ramp(host.tokens * 16)\n"
    "local y = layer:forward { k = x, v = x }\n"
    "local last = y[{ 1, host.tokens, 1, 16 }]\n"
    "print(string.format('in Lua: y = %.4f', last))\n"
    "host.run(layer, last)\n";

/* A state lives in the host's registry under this address. */
static const char state_key;

/* host.run(variant, wanted): the same call on C's buffers. */
static int host_run(lua_State *L)
{
    static float x[T * D], y[T * D];
    double wanted = luaL_checknumber(L, 2);
    flin_Tensor t = { x, FLIN_F32, 4, { 1, T, 1, D }, { 0 } };
    flin_Bind in[] = { { "k", t }, { "v", t } };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 2,
                       .y = t };
    flin_Error e;

    lua_rawgetp(L, LUA_REGISTRYINDEX, &state_key);
    flin_Variant *v = flin_to_variant(lua_touserdata(L, -1), L, 1, &e);
    if (!v)
        return luaL_error(L, "%s", e.text);
    for (int i = 0; i < T * D; i++)
        x[i] = (float)(i + 1) / (T * D);
    call.y.data = y;
    int code = flin_forward(v, &call, &e);
    flin_release(v);
    if (code)
        return luaL_error(L, "%s", e.text);
    printf("in C:   y = %.4f\n", y[T * D - 1]);
    if (!(fabs(y[T * D - 1] - wanted) < 1e-4 * fabs(wanted)))
        return luaL_error(L, "C and Lua disagree");
    return 0;
}

static void open_host(lua_State *L, flin_State *s)
{
    static const luaL_Reg functions[] = { { "run", host_run }, { NULL, NULL } };

    lua_pushlightuserdata(L, s);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &state_key);
    luaL_newlib(L, functions);
    lua_pushinteger(L, T);
    lua_setfield(L, -2, "tokens");
    lua_setglobal(L, "host");
}

int main(void)
{
    flin_Error e;
    lua_State *L = luaL_newstate();
    if (!L)
        return 1;
    luaL_openlibs(L);
    flin_State *s = flin_attach(L, NULL, &e);
    if (!s) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    open_host(L, s);
    int failed = luaL_dostring(L, script);
    if (failed)
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
    flin_close(s);
    lua_close(L);
    return failed;
}
