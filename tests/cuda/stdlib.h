/* stdlib.h -- the steps of the standard library, and of what flin.attention
 * composes, as text, sizes known. */
#ifndef FLIN_TESTS_CUDA_STDLIB_H
#define FLIN_TESTS_CUDA_STDLIB_H

#include "../../compiler/plan.h"
#include "../../lang/lang.h"

#include <stdio.h>
#include <string.h>

/* Calls f(name, T, C) for each variant; other modules are not in
 * flin.stdlib. */
static const char stdlib_script[] =
    "local flin = require 'flin'\n"
    "local f, names, K, V, scaled = ...\n"
    "local function times(x)\n"
    "  return x * flin.rsqrt(flin.size(x, 'k'))\n"
    "end\n"
    "for name in names:gmatch '%S+' do\n"
    "  local ok, v = pcall(function() return flin.stdlib[name] end)\n"
    "  for _, input in ipairs(ok and scaled and v.inputs or {}) do\n"
    "    if input.name == 'q' or input.name == 'r' then\n"
    "      v = v:map { [input.name] = times }\n"
    "    end\n"
    "  end\n"
    "  if ok then\n"
    "    f(name, v:dump('T'), v:dump('C', { K = K, V = V, chunk = 16 }))\n"
    "  end\n"
    "end\n";

/* Each EVERYth composition, its title, queries times K^-1/2. */
static const char compositions_script[] =
    "local flin = require 'flin'\n"
    "local f, every, K, V = ...\n"
    "package.path = 'tests/lua/?.lua;' .. package.path\n"
    "require 'support.compositions'(function(n)\n"
    "  return n % every == 0\n"
    "end, function (title, v)\n"
    "  v = v:map { q = function (q)\n"
    "    return q * flin.rsqrt(flin.size(q, 'k'))\n"
    "  end }\n"
    "  f(title, v:dump('T'), v:dump('C', { K = K, V = V, chunk = 16 }))\n"
    "end)\n";

typedef struct Stdlib {
    Ctx *c;
    void (*f)(void *ud, const char *name, const char *step);
    void *ud;
} Stdlib;

/* The step with the sizes that its chunk form has. */
static const char *sized_step(Ctx *c, const char *step, const char *chunk)
{
    Graph *s = graph_parse(c, step), *g = graph_parse(c, chunk);
    Buf b = { .ctx = c };

    for (int i = AX_DIM; i < s->naxes; i++) {
        int at = graph_find_axis(g, s->axis[i].name);
        s->axis[i].size = at < 0 ? s->axis[i].size : g->axis[at].size;
    }
    graph_print(s, &b);
    return b.s;
}

static int stdlib_step(lua_State *L)
{
    const Stdlib *l = lua_touserdata(L, lua_upvalueindex(1));
    const char *text[2];

    for (int i = 0; i < 2; i++)         /* what is said of it comes first */
        for (text[i] = luaL_checkstring(L, i + 2); *text[i] == '#';)
            text[i] = strchr(text[i], '\n') + 1;
    l->f(l->ud, luaL_checkstring(L, 1), sized_step(l->c, text[0], text[1]));
    return 0;
}

/* f for each step that the script names, which is passed f, the argument, K, V
 * and whether queries are scaled; the texts live in c. False, with c->err set,
 * if it failed. */
static bool script_each(Ctx *c, const char *script, const char *argument,
                        int K, int V, bool scaled,
                        void (*f)(void *, const char *, const char *), void *ud)
{
    lua_State *L = luaL_newstate();
    Stdlib l = { c, f, ud };

    luaL_openlibs(L);
    luaL_requiref(L, "flin", luaopen_flin, 0);
    bool ok = luaL_loadstring(L, script) == LUA_OK;
    if (ok) {
        lua_pushlightuserdata(L, &l);
        lua_pushcclosure(L, stdlib_step, 1);
        lua_pushstring(L, argument);
        lua_pushinteger(L, K);
        lua_pushinteger(L, V);
        lua_pushboolean(L, scaled);
        ok = lua_pcall(L, 5, 0, 0) == LUA_OK;
    }
    if (!ok)
        snprintf(c->err.message, sizeof c->err.message, "%s",
                 lua_tostring(L, -1));
    lua_close(L);
    return ok;
}

/* f for each variant's step. scaled: queries times K^-1/2, as a call from
 * Python has them. */
static inline bool stdlib_each_of(Ctx *c, int K, int V, bool scaled,
                                  void (*f)(void *, const char *,
                                            const char *), void *ud)
{
    Buf names = { .ctx = c };

    for (int i = 0; stdlib_name(i); i++)
        buf_printf(&names, "%s ", stdlib_name(i));
    return script_each(c, stdlib_script, names.s, K, V, scaled, f, ud);
}

static inline bool compositions_each(Ctx *c, const char *every, int K, int V,
                                     void (*f)(void *, const char *,
                                               const char *), void *ud)
{
    return script_each(c, compositions_script, every, K, V, true, f, ud);
}

static inline bool stdlib_each(Ctx *c, int K, int V,
                               void (*f)(void *, const char *, const char *),
                               void *ud)
{
    return stdlib_each_of(c, K, V, false, f, ud);
}

#endif
