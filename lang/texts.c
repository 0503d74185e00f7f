/* texts.c -- scripts as they are loaded: text alone, kept for messages. */
#include <string.h>

#include "lang.h"

#define SOURCES "flin.sources"

static const char *skip_first(const char *s, size_t *n)
{
    const char *eol;

    if (*n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0)
        s += 3, *n -= 3;
    if (*n && *s == '#') {              /* #!; the line break stays */
        eol = memchr(s, '\n', *n);
        *n -= eol ? (size_t)(eol - s) : *n;
        s = eol ? eol : s;
    }
    return s;
}

/* A text, and what stands before it. */
typedef struct Reading { const char *s[2]; size_t n[2]; int at; } Reading;

static const char *read_part(lua_State *L, void *ud, size_t *n)
{
    Reading *r = ud;

    (void)L;
    if (r->at == 2)
        return NULL;
    *n = r->n[r->at];
    return r->s[r->at++];
}

/* With something to close, a file's last "return f(...)" is no tail call: an
 * error in f knows its line. */
static const char stay[] = "local _flin <close> = nil ";

int sandbox_load(lua_State *L, const char *s, size_t n, const char *name)
{
    if (n && *s == *LUA_SIGNATURE) {
        lua_pushfstring(L, "%s: is compiled; flin takes text only",
                        *name == '@' || *name == '=' ? name + 1 : name);
        return LUA_ERRSYNTAX;
    }
    luaL_getsubtable(L, LUA_REGISTRYINDEX, SOURCES);
    lua_pushlstring(L, s, n);
    lua_setfield(L, -2, name);
    lua_pop(L, 1);
    s = skip_first(s, &n);
    Reading r = { { stay, s }, { sizeof stay - 1, n }, *name != '@' };
    return lua_load(L, read_part, &r, name, "t");
}

void sandbox_show(lua_State *L, const char *s, const char *name)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, SOURCES);
    lua_pushstring(L, s);
    lua_setfield(L, -2, name);
    lua_pop(L, 1);
}

const char *sandbox_source(lua_State *L, const char *name, size_t *len)
{
    const char *s = NULL;

    luaL_getsubtable(L, LUA_REGISTRYINDEX, SOURCES);
    if (lua_getfield(L, -1, name) == LUA_TSTRING)
        s = lua_tolstring(L, -1, len);
    lua_pop(L, 2);                      /* the registry holds the string */
    return s;
}
