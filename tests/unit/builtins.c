/* builtins.c -- the table of built-ins names all there is, and nothing else;
 * the definitions for editors made of it are Lua. */
#include "../../lang/lang.h"

#include <stdio.h>

/* Gets the flin table and the methods of variants, tensors and games. */
static const char script[] =
    "local flin, v, t, g, own = ...\n"
    "local bad = 0\n"
    "local function say(...) print(...) bad = bad + 1 end\n"
    "local known = {}\n"
    "for _, row in ipairs(own.load 'lang/lua/builtins' ()) do\n"
    "  if known[row.name] then say('twice: ' .. row.name) end\n"
    "  if #row.brief > 72 then say('long: ' .. row.name) end\n"
    "  known[row.name] = row\n"
    "end\n"
    "local found = {}\n"
    "local function walk(path, of, sign)\n"
    "  for name, x in pairs(of) do\n"
    "    local full = path .. sign .. name\n"
    "    local inner = type(x) == 'table' and x ~= flin.stdlib\n"
    "                  and x ~= flin.stdlib_names and x ~= flin.layers\n"
    "    if inner then\n"
    "      walk(full, x, '.')\n"
    "    else\n"
    "      found[full] = true\n"
    "      if not known[full] then say('no row: ' .. full) end\n"
    "    end\n"
    "  end\n"
    "end\n"
    "walk('flin', flin, '.')\n"
    "walk('v', v, ':')\n"
    "walk('t', t, ':')\n"
    "walk('g', g, ':')\n"
    "for name, row in pairs(known) do\n"
    "  local f = row.signature and row.signature:find '[>:]'\n"
    "  if f and not found[name] then say('nothing called ' .. name) end\n"
    "  if not flin.help(name):find(row.brief, 1, true) then\n"
    "    say('no help: ' .. name)\n"
    "  end\n"
    "end\n"
    "local help = own.load 'lang/lua/help' (flin, own)\n"
    "for name, text in pairs(help.elsewhere) do\n"
    "  if known['flin.' .. name] then say('there is flin.' .. name) end\n"
    "  for path in text:gmatch 'flin%.[%w_.]*%w' do\n"
    "    if not known[path] then say(name .. ' -> ' .. path) end\n"
    "  end\n"
    "end\n"
    "local text = flin.luacats()\n"
    "for name, row in pairs(known) do\n"
    "  local sign, short = name:match '([.:])([%w_]+)$'\n"
    "  local want = row.usage and '' or row.signature:find '[>:]'\n"
    "               and sign .. short .. '(' or '@field ' .. short .. ' '\n"
    "  if not text:find(want, 1, true) then say('undefined: ' .. name) end\n"
    "end\n"
    "return bad, text\n";

/* Pushes what upvalue 1 of the metatable's __index holds, or __index. */
static void push_methods(lua_State *L, const char *meta)
{
    luaL_getmetatable(L, meta);
    lua_getfield(L, -1, "__index");
    if (!lua_istable(L, -1) && !lua_getupvalue(L, -1, 1))
        lua_pushnil(L);
}

int main(void)
{
    lua_State *L = luaL_newstate();
    int bad = 1;

    luaL_openlibs(L);
    if (luaL_loadstring(L, script) == LUA_OK) {
        luaL_requiref(L, "flin", luaopen_flin, 0);
        push_methods(L, VARIANT_META);
        lua_replace(L, 3);
        push_methods(L, TENSOR_META);
        lua_replace(L, 4);
        push_methods(L, "flin.game");
        lua_replace(L, 5);
        lua_settop(L, 5);
        lua_getfield(L, LUA_REGISTRYINDEX, FLIN_OWN);
    }
    if (lua_pcall(L, lua_gettop(L) - 1, 2, 0) == LUA_OK) {
        bad = (int)lua_tointeger(L, -2);
        if (luaL_loadstring(L, lua_tostring(L, -1)) != LUA_OK)
            bad++, puts(lua_tostring(L, -1));
    } else {
        puts(lua_tostring(L, -1));
    }
    lua_close(L);
    return bad != 0;
}
