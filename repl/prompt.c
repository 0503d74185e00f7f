/* prompt.c -- read, run, print. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "edit.h"

typedef struct Prompt {
    lua_State *L;
    Editor *e;                          /* NULL: plain lines */
    int words, commands;                /* the Lua tables, in the registry */
    int entry;                          /* its number, from 1 */
    bool quit;                          /* :quit */
    bool failed;                        /* an entry did */
} Prompt;

/* ---- lines ---- */

static EditResult read_plain(lua_State *L, const char *mark)
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
    luaL_pushresult(&b);
    if (any)
        return EDIT_LINE;
    lua_pop(L, 1);
    if (!ferror(stdin) || errno != EINTR)
        return EDIT_END;
    clearerr(stdin);
    return EDIT_STOPPED;
}

/* Pushes one line without its end. */
static EditResult read_line(Prompt *p, const char *mark)
{
    EditResult r;

    interrupt_arm(p->L);
    r = p->e ? edit_line(p->e, mark) : read_plain(p->L, mark);
    if (r == EDIT_STOPPED)
        putchar('\n');                  /* Ctrl-C: another line instead */
    return r;
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

/* Each entry has a name of its own: a function of an earlier one is still
 * there, and errors in it show its line. */
static int load(const Prompt *p, const char *prefix, const char *text)
{
    lua_State *L = p->L;
    char name[32];
    int status;

    snprintf(name, sizeof name, "=stdin[%d]", p->entry);
    lua_pushfstring(L, "%s%s", prefix, text);
    status = sandbox_load(L, lua_tostring(L, -1), lua_rawlen(L, -1), name);
    sandbox_show(L, text, name);
    lua_remove(L, -2);
    return status;
}

/* The text at `text` becomes a function or a message, on top; asks for more
 * lines while they could help, and keeps all of them in its place. False: the
 * lines were given up. */
static bool load_lines(Prompt *p, int text, int *status)
{
    lua_State *L = p->L;
    EditResult more = EDIT_END;

    p->entry++;
    for (;;) {
        const char *s = lua_tostring(L, text);
        *status = load(p, "return ", *s == '=' ? s + 1 : s);
        if (*status == LUA_OK)
            return true;
        bool begun = incomplete(L, *status);
        lua_settop(L, text);
        *status = load(p, *s == '#' ? " " : "", s);     /* no "#!" line */
        begun = *status != LUA_OK && (begun || incomplete(L, *status));
        if (!begun || (more = read_line(p, ">> ")) != EDIT_LINE)
            return more != EDIT_STOPPED;
        lua_remove(L, -2);
        lua_pushliteral(L, "\n");
        lua_insert(L, -2);
        lua_concat(L, 3);
    }
}

/* ---- results ---- */

/* Prints all arguments but the first two: a separator (what takes several
 * lines has its own) and the show function. */
static int print_results(lua_State *L)
{
    int n = lua_gettop(L);
    const char *between = lua_tostring(L, 1);

    for (int i = 3; i <= n; i++) {
        lua_pushvalue(L, 2);
        lua_pushvalue(L, i);
        lua_call(L, 1, 1);
        size_t len;
        const char *s = luaL_tolstring(L, -1, &len);
        fwrite(s, 1, len, stdout);
        fputs(i < n && !memchr(s, '\n', len) ? between : "\n", stdout);
        lua_pop(L, 2);
    }
    fflush(stdout);
    return 0;
}

/* Calls the function `name` of the commands with the value at `arg`. */
static bool call_command(Prompt *p, const char *name, int arg)
{
    lua_rawgeti(p->L, LUA_REGISTRYINDEX, p->commands);
    lua_getfield(p->L, -1, name);
    lua_remove(p->L, -2);
    lua_pushvalue(p->L, arg);
    return call(p->L, 1);
}

/* Shows the values from index `first` on; the first is `_` from now on. */
static void show_results(Prompt *p, int first, const char *between)
{
    lua_State *L = p->L;
    int n = lua_gettop(L) - first + 1;

    if (n < 1)
        return;
    lua_pushvalue(L, first);
    lua_setglobal(L, "_");
    call_command(p, "saw", first);
    lua_settop(L, first + n - 1);
    lua_pushcfunction(L, print_results);
    lua_pushstring(L, between);
    lua_rawgeti(L, LUA_REGISTRYINDEX, p->words);
    lua_getfield(L, -1, "show");
    lua_remove(L, -2);
    lua_rotate(L, first, 3);
    call(L, n + 2);
}

/* ---- a turn ---- */

/* Tells the commands what was typed, and whether it gave a value: perhaps they
 * know what was meant. */
static void after_entry(Prompt *p, bool none)
{
    lua_State *L = p->L;
    int top = lua_gettop(L);

    lua_rawgeti(L, LUA_REGISTRYINDEX, p->commands);
    lua_getfield(L, -1, "typed");
    lua_remove(L, -2);
    lua_pushvalue(L, 1);
    lua_pushboolean(L, none);
    if (call(L, 2) && lua_gettop(L) > top && lua_isstring(L, -1))
        complain(lua_tostring(L, -1));
    lua_settop(L, top);
}

static bool wants_to_quit(Prompt *p)
{
    lua_rawgeti(p->L, LUA_REGISTRYINDEX, p->commands);
    lua_getfield(p->L, -1, "quit");
    bool quit = lua_toboolean(p->L, -1);
    lua_pop(p->L, 2);
    return quit;
}

/* The line at index 1 and those that follow it; remembered before they run, as
 * the program may end with them. */
static void run_line(Prompt *p)
{
    lua_State *L = p->L;
    const char *line = lua_tostring(L, 1);
    bool command = *line == '?' || (*line == ':' && line[1] != ':');
    int status;
    bool whole = command || load_lines(p, 1, &status);

    if (p->e)
        edit_remember(p->e, lua_tostring(L, 1));
    if (command) {
        if (call_command(p, "run", 1))
            show_results(p, 2, "\n");
        else
            p->failed = true;
        p->quit = wants_to_quit(p);
    } else if (whole) {
        if (status != LUA_OK) {
            complain(lua_tostring(L, -1));
            p->failed = true;
        } else if (!call(L, 0)) {
            p->failed = true;
        } else {
            bool none = lua_gettop(L) < 2 || lua_isnil(L, 2);
            show_results(p, 2, "\t");
            lua_settop(L, 1);
            after_entry(p, none);
        }
    }
}

/* loaded(): what require has loaded, by name. */
static int push_loaded(lua_State *L)
{
    return luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE), 1;
}

static bool open_tools(Prompt *p, const Options *o)
{
    lua_State *L = p->L;

    lua_getglobal(L, "require");
    lua_pushliteral(L, "flin");
    if (!call(L, 1))
        return false;
    lua_getglobal(L, "flin");
    if (lua_isnil(L, -1)) {             /* there from the start */
        lua_pushvalue(L, 1);
        lua_setglobal(L, "flin");
    }
    lua_settop(L, 1);
    if (lua_getfield(L, 1, "validate") == LUA_TNIL) {   /* unless set before */
        lua_pushboolean(L, 1);
        lua_setfield(L, 1, "validate");
    }
    lua_settop(L, 1);
    lua_getfield(L, LUA_REGISTRYINDEX, FLIN_OWN);
    lua_getfield(L, 2, "rows");
    lua_remove(L, 2);
    if (!call(L, 0))
        return false;
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_getfield(L, LUA_REGISTRYINDEX, FLIN_OWN);
    lua_getfield(L, -1, "suggest");
    lua_remove(L, -2);
    push_terminal(L, o);
    lua_pushcfunction(L, evaluate);
    lua_pushcfunction(L, stage);
    lua_pushcfunction(L, do_file);
    lua_getfield(L, LUA_REGISTRYINDEX, FLIN_OWN);
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, "prompt");
    lua_pushcfunction(L, push_loaded);
    lua_setfield(L, -2, "loaded");
    if (!call_own(L, "commands", 8))
        return false;
    lua_getfield(L, 3, "functions");
    lua_setfield(L, 1, "commands");
    lua_pushvalue(L, 3);
    p->commands = luaL_ref(L, LUA_REGISTRYINDEX);
    if (!call_own(L, "words", 3))
        return false;
    p->words = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_rawgeti(L, LUA_REGISTRYINDEX, p->words);
    return true;
}

static bool wants_colours(lua_State *L, const Options *o)
{
    push_terminal(L, o);
    lua_getfield(L, -1, "highlight");
    bool wanted = lua_toboolean(L, -1);
    lua_pop(L, 2);
    return wanted;
}

/* What the script before the prompt returned gets its names. */
static void bind_returned(Prompt *p)
{
    lua_State *L = p->L;

    if (lua_getfield(L, LUA_REGISTRYINDEX, FLIN_RETURNED) == LUA_TTABLE)
        call_command(p, "returned", lua_gettop(L));
    lua_settop(L, 0);
}

bool prompt(lua_State *L, const Options *o)
{
    Prompt p = { .L = L };
    EditResult r = EDIT_STOPPED;

    interrupt_patient();
    lua_settop(L, 0);
    if (!open_tools(&p, o))
        return false;
    bool colours = wants_colours(L, o);
    p.e = edit_open(L, colours);
    if (p.e && !o->version)
        printf("flin %s, %s. ?name or :help says more, Ctrl-D leaves.\n",
               FLIN_VERSION, LUA_RELEASE);
    bind_returned(&p);
    while (r != EDIT_END && !p.quit) {
        lua_settop(L, 0);
        r = read_line(&p, "> ");
        if (r == EDIT_LINE)
            run_line(&p);
    }
    edit_close(p.e);
    if (!p.quit && isatty(STDIN_FILENO))
        putchar('\n');
    return !p.failed;
}
