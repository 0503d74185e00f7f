/* main.c -- the program `flin`: scripts, errors. */
#define _DEFAULT_SOURCE                 /* TIOCGWINSZ */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "repl.h"

/* ---- errors ---- */

/* Bytes of the character of UTF-8 at s; 0: it is none, or one that steers the
 * terminal (C1, U+0080 to U+009F). */
static int character(const char *s)
{
    const unsigned char *u = (const unsigned char *)s;
    int n = *u < 0x80 ? 1 : *u < 0xc2 ? 0 : *u < 0xe0 ? 2 : *u < 0xf0 ? 3
          : *u < 0xf5 ? 4 : 0;

    for (int i = 1; i < n; i++)
        if (u[i] < 0x80 || u[i] > 0xbf)
            return 0;
    return n == 2 && u[0] == 0xc2 && u[1] < 0xa0 ? 0 : n;
}

/* What a script has put into its message does not reach the terminal as a
 * command. */
static void put_plain(const char *s, FILE *f)
{
    for (int n; *s; s += n ? n : 1) {
        n = character(s);
        bool control = (*s > 0 && *s < ' ' && *s != '\n' && *s != '\t')
                    || *s == 127;
        if (n && !control)
            fwrite(s, 1, (size_t)n, f);
        else
            fprintf(f, "\\x%02x", (unsigned)(unsigned char)*s);
    }
}

void complain(const char *message)
{
    progress_clear();
    fflush(stdout);
    put_plain(message ? message : "an error without a message", stderr);
    fputc('\n', stderr);
    fflush(stderr);
}

/* What flin has to say of itself. */
static void tell(void *ud, const char *line)
{
    (void)ud;
    complain(line);
}

/* The stack as the user knows it: their functions, not the program's. A flin
 * error of several lines has said already where it is. */
static void push_traceback(lua_State *L)
{
    lua_Debug ar;
    int frames = 0;
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    for (int level = 1; lua_getstack(L, level, &ar) && frames < 24; level++) {
        lua_getinfo(L, "Slnt", &ar);
        if (ar.currentline < 0 || strncmp(ar.source, "@stdlib/", 8) == 0
            || strncmp(ar.source, "=flin:", 6) == 0)
            continue;
        frames++;
        lua_pushfstring(L, "\n  %s:%d: in %s", ar.short_src, ar.currentline,
                        *ar.what == 'm' ? "the script"
                        : ar.name ? ar.name : "a function");
        luaL_addvalue(&b);
    }
    luaL_pushresult(&b);
    if (frames < 2) {
        lua_pushliteral(L, "");
        lua_replace(L, -2);
    }
}

#define TRACEBACK "flin.traceback"

/* Makes a text of the error, and keeps the traceback of a short one. An error
 * that a hook has raised (a spent budget, Ctrl-C) comes as a string, and here
 * no hook would stop what is called: nothing is. */
static int message(lua_State *L)
{
    lua_settop(L, 1);
    if (lua_type(L, 1) != LUA_TSTRING)
        luaL_tolstring(L, 1, NULL);
    if (!strchr(lua_tostring(L, -1), '\n')) {
        push_traceback(L);
        lua_setfield(L, LUA_REGISTRYINDEX, TRACEBACK);
    }
    return 1;
}

/* The message on top gets its help and its traceback. */
static void complete(lua_State *L)
{
    int at = lua_gettop(L);

    if (!lua_isstring(L, at)
        || lua_getfield(L, LUA_REGISTRYINDEX, TRACEBACK) != LUA_TSTRING) {
        lua_settop(L, at);
        return;
    }
    const char *help = meant_instead(L, at);
    lua_pushfstring(L, "%s%s%s%s", quoted_message(L, at),
                    help ? "\n  help: " : "", help ? help : "",
                    lua_tostring(L, at + 1));
    lua_replace(L, at);
    lua_settop(L, at);
}

bool call(lua_State *L, int nargs)
{
    int base = lua_gettop(L) - nargs, status;

    lua_pushnil(L);
    lua_setfield(L, LUA_REGISTRYINDEX, TRACEBACK);
    lua_pushcfunction(L, message);
    lua_insert(L, base);
    interrupt_arm(L);
    status = lua_pcall(L, nargs, LUA_MULTRET, base);
    lua_remove(L, base);
    progress_clear();
    if (status != LUA_OK) {
        if (interrupt_taken() && isatty(STDERR_FILENO))
            fputs("\n", stderr);        /* behind the terminal's ^C */
        complete(L);
        complain(lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    return status == LUA_OK;
}

/* ---- the program's own Lua ---- */

bool call_own(lua_State *L, const char *name, int nargs)
{
    size_t n = 0;
    const char *text = repl_source(name, &n);
    int top = lua_gettop(L) - nargs;

    lua_pushfstring(L, "=flin:%s", name);
    if (sandbox_load(L, text, n, lua_tostring(L, -1)) != LUA_OK) {
        complain(lua_tostring(L, -1));
        lua_settop(L, top);
        return false;
    }
    lua_remove(L, -2);
    lua_insert(L, top + 1);
    return call(L, nargs);
}

int evaluate(lua_State *L)
{
    lua_settop(L, 1);
    lua_pushfstring(L, "return %s", luaL_checkstring(L, 1));
    if (sandbox_load(L, lua_tostring(L, -1), lua_rawlen(L, -1), "=stdin")
        != LUA_OK)
        return lua_error(L);
    lua_call(L, 0, LUA_MULTRET);
    return lua_gettop(L) - 2;
}

/* How many colours the terminal has; "ascii": none are wanted there. */
static const char *colours(const Options *o)
{
    const char *term = getenv("TERM"), *more = getenv("COLORTERM");
    const char *no = getenv("NO_COLOR");
    bool always = o->color && strcmp(o->color, "always") == 0;
    bool never = o->color && strcmp(o->color, "never") == 0;

    if (never || (!always && ((no && *no) || !isatty(STDOUT_FILENO) || !term
                              || strcmp(term, "dumb") == 0)))
        return "ascii";
    if (more && (strstr(more, "truecolor") || strstr(more, "24bit")))
        return "true";
    return always || strstr(term, "256") ? "256" : "ascii";
}

int terminal_columns(void)
{
    struct winsize w;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col
                                                                 : 80;
}

/* term.columns(): nil where what is printed goes elsewhere. */
static int columns(lua_State *L)
{
    if (!isatty(STDOUT_FILENO))
        return 0;
    lua_pushinteger(L, terminal_columns());
    return 1;
}

void push_terminal(lua_State *L, const Options *o)
{
    const char *depth = colours(o);
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    bool some = strcmp(depth, "ascii") != 0
        || (isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0
            && !(no && *no) && !(o->color && !strcmp(o->color, "never")));

    lua_createtable(L, 0, 3);
    lua_pushcfunction(L, columns);
    lua_setfield(L, -2, "columns");
    lua_pushstring(L, depth);
    lua_setfield(L, -2, "colours");
    lua_pushboolean(L, some);
    lua_setfield(L, -2, "highlight");
    push_views(L);
}

static bool push_flin(lua_State *L)
{
    lua_getglobal(L, "require");
    lua_pushliteral(L, "flin");
    return call(L, 1);
}

/* say(text): a line for the user. */
static int say(lua_State *L)
{
    progress_clear();
    puts(luaL_checkstring(L, 1));
    fflush(stdout);
    return 0;
}

int stage(lua_State *L)
{
    progress(luaL_checkstring(L, 1));
    lua_pushvalue(L, 1);                /* the string stays */
    lua_setfield(L, LUA_REGISTRYINDEX, "flin.stage");
    return 0;
}

/* Calls the function `name` of tools.lua with the nargs values on top; false:
 * it failed, or said that it is not content. */
static bool call_tool(lua_State *L, const Options *o, const char *name,
                      int nargs)
{
    int at = lua_gettop(L) - nargs + 1;

    if (!push_flin(L))
        return false;
    push_terminal(L, o);
    lua_pushcfunction(L, evaluate);
    lua_pushcfunction(L, say);
    lua_pushcfunction(L, stage);
    if (!call_own(L, "tools", 5))
        return false;
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
    lua_insert(L, at);
    if (!call(L, nargs))
        return false;
    bool ok = lua_toboolean(L, at);
    lua_settop(L, at - 1);
    return ok;
}

/* ---- running ---- */

static bool run_text(lua_State *L, const char *text, const char *name)
{
    if (sandbox_load(L, text, strlen(text), name) != LUA_OK) {
        complain(lua_tostring(L, -1));
        lua_pop(L, 1);
        return false;
    }
    return call(L, 0);
}

/* NAME, or GLOBAL=NAME */
static bool run_require(lua_State *L, const char *name)
{
    const char *equals = strchr(name, '=');

    lua_getglobal(L, "require");
    lua_pushstring(L, equals ? equals + 1 : name);
    if (!call(L, 1))
        return false;
    lua_pushlstring(L, name, equals ? (size_t)(equals - name) : strlen(name));
    lua_insert(L, -2);
    lua_pushglobaltable(L);
    lua_insert(L, -3);
    lua_settable(L, -3);
    return true;
}

static bool run_init(lua_State *L, const Options *o)
{
    const char *init = getenv("FLIN_INIT");
    bool ok;

    if (!init || o->no_init)
        return true;
    if (*init != '@') {
        ok = run_text(L, init, "=FLIN_INIT");
    } else if (sandbox_file(L, init + 1, false) != LUA_OK) {
        complain(lua_tostring(L, -1));
        ok = false;
    } else {
        ok = call(L, 0);
    }
    lua_settop(L, 0);
    return ok;
}

static bool run_early(lua_State *L, char **argv, int script)
{
    for (int i = 1; argv[i] && i != script && strcmp(argv[i], "--"); i++) {
        const char *value = argv[i] + 2;
        char letter = argv[i][1];
        if (takes_value(argv[i])) {
            i++;
            continue;
        }
        if (letter != 'e' && letter != 'l')
            continue;
        if (!*value)
            value = argv[++i];
        if (!(letter == 'e' ? run_text(L, value, "=(command line)")
                            : run_require(L, value)))
            return false;
        lua_settop(L, 0);
    }
    return true;
}

/* arg: the script at 0, its arguments from 1, what came before below. */
static void set_arg(lua_State *L, char **argv, int script)
{
    lua_newtable(L);
    for (int i = 0; argv[i]; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i - script);
    }
    lua_setglobal(L, "arg");
}

static void set_folder(lua_State *L, const char *path)
{
    const char *slash = strrchr(path, '/');

    lua_pushlstring(L, slash ? path : ".", slash ? (size_t)(slash - path) + 1
                                                 : 1);
    lua_setfield(L, LUA_REGISTRYINDEX, SANDBOX_FOLDER);
}

/* Its own folder is where its require looks. */
int do_file(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);

    lua_settop(L, 1);
    lua_getfield(L, LUA_REGISTRYINDEX, SANDBOX_FOLDER);
    set_folder(L, path);
    if (sandbox_file(L, path, false) != LUA_OK)
        return lua_error(L);
    lua_call(L, 0, LUA_MULTRET);
    lua_pushvalue(L, 2);
    lua_setfield(L, LUA_REGISTRYINDEX, SANDBOX_FOLDER);
    return lua_gettop(L) - 2;
}

/* Runs the script; what it returns stays on the stack. */
static bool run_script(lua_State *L, char **argv, int script)
{
    bool input = strcmp(argv[script], "-") == 0;
    int n = 0;

    set_folder(L, input ? "" : argv[script]);
    if (sandbox_file(L, input ? NULL : argv[script], true) != LUA_OK) {
        complain(lua_tostring(L, -1));
        if (!strpbrk(argv[script], "./") && access(argv[script], F_OK))
            complain("  help: a script, or check, bench, plan, new: flin -h");
        return false;
    }
    for (; argv[script + 1 + n]; n++) {
        luaL_checkstack(L, 8, "too many arguments");
        lua_pushstring(L, argv[script + 1 + n]);
    }
    return call(L, n);
}

static bool finish(lua_State *L, const Options *o)
{
    bool asked = o->dump || o->check || o->compile, ok = true;

    if (!luaL_testudata(L, 1, VARIANT_META)) {
        if (asked)
            complain("the script returns no variant, which -d, --check and "
                     "--compile-only want");
        return !asked;
    }
    const struct { const char *tool, *text; } tools[] = {
        { "dump", o->dump }, { "check_one", o->check },
        { "compile", o->compile }
    };
    lua_settop(L, 1);
    for (int i = 0; i < 3 && ok; i++) {
        if (!tools[i].text)
            continue;
        lua_pushvalue(L, 1);
        lua_pushstring(L, tools[i].text);
        lua_pushstring(L, o->arch);
        ok = call_tool(L, o, tools[i].tool, 3);
    }
    if (!asked && !o->interactive)
        puts(luaL_tolstring(L, 1, NULL));
    return ok;
}

/* flin check|bench|plan SCRIPT [K=64 ...], flin new NAME */
static bool run_verb(lua_State *L, const Options *o, char **argv)
{
    char **rest = argv + o->script + 1;
    int n = 0;

    if (*rest && (!strcmp(*rest, "--help") || !strcmp(*rest, "-h"))) {
        fputs(verb_usage(o->verb), stdout);
        return true;
    }
    bool option = *rest && strchr(*rest, '=') && access(*rest, F_OK);
    if (!*rest || option) {
        lua_pushfstring(L, "flin %s: %s is wanted%s%s", o->verb,
                        *o->verb == 'n' ? "a name" : "a script",
                        option ? " before " : "", option ? *rest : "");
        complain(lua_tostring(L, -1));
        return false;
    }
    set_arg(L, argv, o->script + 1);
    if (*o->verb == 'n') {
        lua_pushnil(L);
    } else {
        char *script[] = { *rest, NULL };
        lua_pushstring(L, *rest);
        lua_pushstring(L, o->verb);
        if (call_tool(L, o, "library", 2))
            return true;
        if (!run_script(L, script, 0))
            return false;
        lua_settop(L, 1);
    }
    for (; rest[n]; n++) {
        luaL_checkstack(L, 8, "too many arguments");
        lua_pushstring(L, rest[n]);
    }
    return call_tool(L, o, o->verb, n + 1);
}

/* flin.backend and flin.threads: what calls use that do not say. */
static bool set_defaults(lua_State *L, const Options *o)
{
    if (!o->backend && !o->threads)
        return true;
    if (!push_flin(L))
        return false;
    if (o->backend) {
        lua_pushstring(L, o->backend);
        lua_setfield(L, -2, "backend");
    }
    if (o->threads) {
        lua_pushinteger(L, atoi(o->threads));
        lua_setfield(L, -2, "threads");
    }
    lua_settop(L, 0);
    return true;
}

static bool show_luacats(lua_State *L)
{
    if (!push_flin(L))
        return false;
    lua_getfield(L, -1, "luacats");
    if (!call(L, 0))
        return false;
    fputs(lua_tostring(L, -1), stdout);
    return true;
}

/* For what is typed and not kept in a file, flin is there from the start; a
 * script requires it. */
static bool set_global(lua_State *L, bool there)
{
    if (!push_flin(L))
        return false;
    int type = lua_getglobal(L, "flin");
    if (there ? type == LUA_TNIL : lua_rawequal(L, -1, -2)) {
        if (there)
            lua_pushvalue(L, 1);
        else
            lua_pushnil(L);
        lua_setglobal(L, "flin");
    }
    lua_settop(L, 0);
    return true;
}

/* What flin.save makes a .png with, and the prompt its pictures. */
static bool set_raster(lua_State *L)
{
    if (!push_flin(L))
        return false;
    lua_getfield(L, LUA_REGISTRYINDEX, FLIN_OWN);
    push_raster(L);
    lua_setfield(L, -2, "raster");
    lua_settop(L, 0);
    return true;
}

/* What flin has to say once, beside what scripts print. */
static void say_once(void *ud, const char *line)
{
    (void)ud;
    fflush(stdout);
    complain(line);
}

/* As Lua's, on a line of which nothing else is left. */
static int print(lua_State *L)
{
    progress_clear();
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 0);
    return 0;
}

static void wrap_print(lua_State *L)
{
    lua_getglobal(L, "print");
    lua_pushcclosure(L, print, 1);
    lua_setglobal(L, "print");
}

/* The GPU that there is, what drives it and what compiles for it; or why
 * there is none. */
static void show_gpu(lua_State *L)
{
    lua_getglobal(L, "require");
    lua_pushliteral(L, "flin");
    if (!call(L, 1))
        return;
    lua_getfield(L, -1, "cuda");
    if (!call(L, 0))
        return;
    if (!lua_istable(L, 2)) {
        printf("%s\n", lua_tostring(L, 3));
    } else {
        static const char *const part[] = { "name", "arch", "driver",
                                            "nvrtc", "nvrtc_path" };
        for (int i = 0; i < 5; i++)
            lua_getfield(L, 2, part[i]);
        printf("%s (%s), driver for CUDA %s, NVRTC %s (%s)\n",
               lua_tostring(L, 3), lua_tostring(L, 4), lua_tostring(L, 5),
               lua_tostring(L, 6), lua_tostring(L, 7));
    }
    lua_settop(L, 0);
}

/* For the prompt: what the script returned, which lies on the stack, and where
 * it came from. */
static void keep_returned(lua_State *L, const char *path)
{
    int n = lua_gettop(L);

    lua_createtable(L, n, 1);
    lua_insert(L, 1);
    for (int i = n; i >= 1; i--)
        lua_rawseti(L, 1, i);
    lua_pushstring(L, path);
    lua_setfield(L, 1, "path");
    lua_setfield(L, LUA_REGISTRYINDEX, FLIN_RETURNED);
}

static int run_all(lua_State *L)
{
    Options *o = lua_touserdata(L, 1);
    char **argv = lua_touserdata(L, 2);
    bool ok;

    lua_settop(L, 0);
    luaL_checkversion(L);
    interrupt_open(L);
    sandbox_open(L, &o->limits, !o->sandbox);
    sandbox_hooks(L, &(Ctx){ .say = tell });
    wrap_print(L);
    say_to(L, say_once, NULL);
    if (o->warnings)
        lua_warning(L, "@on", 0);
    set_arg(L, argv, o->script);
    if (!o->sandbox)
        lua_register(L, "dofile", do_file);
    ok = (o->sandbox || set_raster(L)) && set_defaults(L, o)
        && set_global(L, true) && run_init(L, o)
        && run_early(L, argv, o->script) && set_global(L, false);
    if (ok && o->luacats)
        ok = show_luacats(L);
    if (ok && o->verb)
        ok = run_verb(L, o, argv);
    else if (ok && o->script)
        ok = run_script(L, argv, o->script) && finish(L, o);
    if (ok && o->script && o->interactive)
        keep_returned(L, argv[o->script]);
    lua_settop(L, 0);
    if (o->version && !o->interactive)
        show_gpu(L);
    if (o->interactive || (!o->script && !o->ran && !o->version
                           && !o->luacats)) {
        ok = prompt(L, o) || isatty(STDIN_FILENO);
    }
    lua_pushboolean(L, ok);
    return 1;
}

int main(int argc, char **argv)
{
    Options o = { .limits = { 0 } };
    lua_State *L;
    int code = EXIT_FAILURE;

    (void)argc;
    if (!parse_options(&o, argv))
        return 2;
    if (o.help)
        return fputs(usage, stdout), 0;
    if (o.version)
        printf("flin %s, %s\n", FLIN_VERSION, LUA_RELEASE);
    if (o.sandbox && !o.limits.instructions)
        o.limits.instructions = 1000000000;
    if (o.sandbox && !o.limits.memory)
        o.limits.memory = (size_t)1 << 30;
    L = luaL_newstate();
    if (!L) {
        complain("no memory");
        return code;
    }
    lua_pushcfunction(L, run_all);
    lua_pushlightuserdata(L, &o);
    lua_pushlightuserdata(L, argv);
    if (lua_pcall(L, 2, 1, 0) != LUA_OK)
        complain(lua_tostring(L, -1));
    else if (lua_toboolean(L, -1))
        code = EXIT_SUCCESS;
    lua_close(L);
    if (fflush(stdout) != 0 || ferror(stdout))
        code = EXIT_FAILURE;
    return interrupt_taken() && code ? 130 : code;
}
