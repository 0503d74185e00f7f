/* prompt.c -- read, run, print. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "repl.h"

/* Pushes one line without its end; false and nothing at the end of input. */
static bool read_line(lua_State *L, const char *mark)
{
    luaL_Buffer b;
    char s[512];
    bool any = false;

    if (isatty(STDIN_FILENO)) {
        fputs(mark, stdout);
        fflush(stdout);
    }
    luaL_buffinit(L, &b);
    while (fgets(s, sizeof s, stdin)) {
        size_t n = strlen(s);
        any = true;
        if (n && s[n - 1] == '\n') {
            luaL_addlstring(&b, s, n - 1);
            break;
        }
        luaL_addlstring(&b, s, n);
    }
    if (!any && ferror(stdin) && errno == EINTR) {
        clearerr(stdin);                /* Ctrl-C: an empty line instead */
        putchar('\n');
        interrupt_arm(L);
        any = true;
    }
    luaL_pushresult(&b);
    if (!any)
        lua_pop(L, 1);
    return any;
}

/* A syntax error at the end of the text: more lines may mend it. */
static bool incomplete(lua_State *L, int status)
{
    size_t n;
    const char *s;

    if (status != LUA_ERRSYNTAX)
        return false;
    s = lua_tolstring(L, -1, &n);
    return n >= 5 && strcmp(s + n - 5, "<eof>") == 0;
}

static int load(lua_State *L, const char *prefix, const char *text)
{
    int status;

    lua_pushfstring(L, "%s%s", prefix, text);
    status = sandbox_load(L, lua_tostring(L, -1), lua_rawlen(L, -1),
                          "=stdin");
    lua_remove(L, -2);
    return status;
}

/* The text on top becomes a function or a message; asks for more lines while
 * they could help. */
static int load_lines(lua_State *L)
{
    int text = lua_gettop(L), status;

    if (load(L, "return ", lua_tostring(L, text)) == LUA_OK)
        return LUA_OK;
    for (;;) {
        lua_settop(L, text);
        status = load(L, "", lua_tostring(L, text));
        if (!incomplete(L, status) || !read_line(L, ">> "))
            break;
        lua_remove(L, -2);
        lua_pushliteral(L, "\n");
        lua_insert(L, -2);
        lua_concat(L, 3);
    }
    return status;
}

static void print_results(lua_State *L)
{
    int n = lua_gettop(L);

    for (int i = 1; i <= n; i++) {
        fputs(luaL_tolstring(L, i, NULL), stdout);
        putchar(i < n ? '\t' : '\n');
        lua_pop(L, 1);
    }
    fflush(stdout);
}

static int print_protected(lua_State *L)
{
    print_results(L);
    return 0;
}

void prompt(lua_State *L)
{
    interrupt_arm(L);
    while (lua_settop(L, 0), read_line(L, "> ")) {
        if (load_lines(L) != LUA_OK) {
            complain(lua_tostring(L, -1));
            continue;
        }
        lua_replace(L, 1);
        lua_settop(L, 1);
        if (!call(L, 0) || lua_gettop(L) == 0)
            continue;
        lua_pushcfunction(L, print_protected);
        lua_insert(L, 1);
        call(L, lua_gettop(L) - 1);
    }
    if (isatty(STDIN_FILENO))
        putchar('\n');
}
