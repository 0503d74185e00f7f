/* stdlib_plans.c -- the plan of each variant of the standard library, as
 * text, reads back: real graphs pass all that is asked of a text. */
#include "../../lang/lang.h"

#include <stdio.h>
#include <string.h>

/* Calls f(name, text) for each variant; other modules are not in
 * flin.stdlib. */
static const char script[] =
    "local flin = require 'flin'\n"
    "local f, names = ...\n"
    "for name in names:gmatch '%S+' do\n"
    "  local ok, v = pcall(function() return flin.stdlib[name] end)\n"
    "  if ok then\n"
    "    f(name, v:dump('P', { K = 32, V = 24, chunk = 32 }))\n"
    "  end\n"
    "end\n";

typedef struct Trip { const char *text; bool same; } Trip;

static void trip(Ctx *c, void *ud)
{
    Trip *t = ud;
    Buf one = { .ctx = c };
    const char *text = t->text;

    while (*text == '#')                /* what is said of the plan */
        text = strchr(text, '\n') + 1;
    plan_print(plan_parse(c, t->text), &one);
    t->same = !strcmp(one.s, text);
}

static int read_back(lua_State *L)
{
    int *count = lua_touserdata(L, lua_upvalueindex(1));
    Trip t = { .text = luaL_checkstring(L, 2) };
    Ctx *c = ctx_new();

    if (!ctx_protect(c, trip, &t) || !t.same) {
        printf("stdlib_plans: %s: line %d: %s\n", luaL_checkstring(L, 1),
               c->err.line, c->err.message);
        count[1]++;
    }
    count[0]++;
    ctx_free(c);
    return 0;
}

int main(void)
{
    lua_State *L = luaL_newstate();
    int count[2] = { 0 };

    luaL_openlibs(L);
    luaL_requiref(L, "flin", luaopen_flin, 0);
    if (luaL_loadstring(L, script)) {
        printf("stdlib_plans: %s\n", lua_tostring(L, -1));
        return 1;
    }
    lua_pushlightuserdata(L, count);
    lua_pushcclosure(L, read_back, 1);
    lua_pushstring(L, "");
    for (int i = 0; stdlib_name(i); i++) {
        lua_pushfstring(L, "%s ", stdlib_name(i));
        lua_concat(L, 2);
    }
    if (lua_pcall(L, 2, 0, 0)) {
        printf("stdlib_plans: %s\n", lua_tostring(L, -1));
        count[1]++;
    }
    if (count[0] < 24) {
        printf("stdlib_plans: only %d variants\n", count[0]);
        count[1]++;
    }
    lua_close(L);
    return count[1] != 0;
}
