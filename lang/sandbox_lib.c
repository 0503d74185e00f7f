/* sandbox_lib.c -- Lua's libraries, less what a script must not have.
 *
 * A wrapped function runs the original in its own frame (`original`), so that
 * messages keep its name and the script's line; such functions use no
 * upvalues of their own, so that upvalue 1 holds the original.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "sandbox.h"

enum { RANGE_MAX = 1 << 24, TEXT_MAX = 1 << 24, PATTERN_MAX = 1 << 28,
       TEXT_STEP = 64, COROUTINE_COST = 1000 };

static int original(lua_State *L)
{
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

/* ---- base ---- */

/* As Lua's own, but a spent budget passes through. */
static int pcall_done(lua_State *L, int status, lua_KContext extra)
{
    Guard *g = guard_of(L);

    if (status == LUA_OK || status == LUA_YIELD)
        return lua_gettop(L) - (int)extra;
    if (g)
        guard_check(L, g);
    lua_pushboolean(L, 0);
    lua_pushvalue(L, -2);
    return 2;
}

static int sandbox_pcall(lua_State *L)
{
    int status;

    luaL_checkany(L, 1);
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    status = lua_pcallk(L, lua_gettop(L) - 2, LUA_MULTRET, 0, 0, pcall_done);
    return pcall_done(L, status, 0);
}

/* The script's handler may not run on a spent budget: it runs without hooks
 * there, and would run for ever. */
static int handler(lua_State *L)
{
    Guard *g = guard_of(L);

    if (!g || (g->left && !(g->asked && g->asked(g->asked_ud)))) {
        lua_pushvalue(L, lua_upvalueindex(1));
        lua_insert(L, 1);
        lua_call(L, 1, 1);
    }
    return 1;
}

static int sandbox_xpcall(lua_State *L)
{
    int n = lua_gettop(L), status;

    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, handler, 1);
    lua_replace(L, 2);
    lua_pushboolean(L, 1);
    lua_pushvalue(L, 1);
    lua_rotate(L, 3, 2);                /* f, handler, true, f, arguments */
    status = lua_pcallk(L, n - 2, LUA_MULTRET, 2, 2, pcall_done);
    return pcall_done(L, status, 2);
}

static int sandbox_setmetatable(lua_State *L)
{
    if (lua_type(L, 2) == LUA_TTABLE) {
        lua_pushliteral(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL)
            return luaL_error(L, "setmetatable: a script in the sandbox "
                              "cannot have __gc");
        lua_pop(L, 1);
    }
    return original(L);
}

/* ---- coroutines ---- */

/* Up to a hook's step of its instructions is never counted: charged here. */
static int sandbox_create(lua_State *L)
{
    guard_charge(L, COROUTINE_COST);
    return original(L);
}

static int sandbox_resume(lua_State *L)
{
    int n = original(L);
    Guard *g = guard_of(L);

    if (g)
        guard_check(L, g);
    return n;
}

/* ---- strings ---- */

/* The most steps that Lua's backtracking matcher can take on n characters:
 * every start, and for each repeated item every length. */
static uint64_t pattern_steps(const char *p, size_t len, uint64_t n,
                              bool anchors)
{
    bool one = anchors && len && *p == '^';     /* one start */
    uint64_t steps = work_times(one ? 1 : n + 1, len + 1);
    const char *end = p + len;

    while (p < end) {
        switch (*p++) {
        case '%':
            if (p < end && (*p == 'b' || (*p >= '0' && *p <= '9')))
                steps = work_times(steps, n + 1);
            p++;
            break;
        case '[':
            if (p < end && *p == '^')
                p++;
            do {                        /* a ] that comes first is plain */
                if (p < end && *p++ == '%')
                    p++;
            } while (p < end && *p != ']');
            p++;
            break;
        case '*': case '+': case '-':
            steps = work_times(steps, n + 1);
            break;
        case '?':
            steps = work_times(steps, 2);
            break;
        }
    }
    return steps;
}

/* plain: the text is looked for as it stands; anchors: a ^ that comes first
 * stands for the start. */
static int bounded_pattern(lua_State *L, bool plain, bool anchors)
{
    size_t n = 0, len = 0;
    uint64_t steps;

    if (lua_isstring(L, 1) && lua_isstring(L, 2)) {
        const char *p;
        lua_tolstring(L, 1, &n);
        p = lua_tolstring(L, 2, &len);
        steps = plain ? work_times(n + 1, len + 1)
                      : pattern_steps(p, len, n, anchors);
        if (steps > PATTERN_MAX)
            return luaL_error(L, "a pattern of %d characters could take too "
                              "long on a text of %d, in the sandbox", (int)len,
                              (int)n);
        guard_charge(L, steps / 16);
    }
    return original(L);
}

static int sandbox_pattern(lua_State *L)
{
    return bounded_pattern(L, false, true);
}

static int sandbox_gmatch(lua_State *L)
{
    return bounded_pattern(L, false, false);
}

static int sandbox_find(lua_State *L)
{
    return bounded_pattern(L, lua_toboolean(L, 4), true);
}

/* Functions that go through all of a text once. */
static int sandbox_text(lua_State *L)
{
    size_t n;

    if (lua_type(L, 1) == LUA_TSTRING) {
        lua_tolstring(L, 1, &n);
        work(L, n);
    }
    return original(L);
}

/* Those that go through all of their arguments. */
static int sandbox_arguments(lua_State *L)
{
    work(L, (uint64_t)lua_gettop(L));
    return original(L);
}

static int sandbox_rep(lua_State *L)
{
    size_t n, sep;
    lua_Integer count = luaL_checkinteger(L, 2);

    luaL_checklstring(L, 1, &n);
    luaL_optlstring(L, 3, "", &sep);
    if (count > 0 && work_times(n + sep, (uint64_t)count) > TEXT_MAX)
        return luaL_error(L, "rep: a text of more than %d bytes, in the "
                          "sandbox", TEXT_MAX);
    return original(L);
}

/* ---- tables ---- */

/* Its length is what it holds, its entries come and go at a known price. */
static lua_Integer plain_table(lua_State *L, int arg)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    if (lua_getmetatable(L, arg))
        luaL_error(L, "a table function on a table that has a metatable, in "
                   "the sandbox");
    return (lua_Integer)lua_rawlen(L, arg);
}

static void charge_range(lua_State *L, lua_Integer from, lua_Integer to)
{
    if (to < from)
        return;
    if ((lua_Unsigned)to - (lua_Unsigned)from > RANGE_MAX)
        luaL_error(L, "a range of more than %d entries, in the sandbox",
                   RANGE_MAX);
    guard_charge(L, ((uint64_t)to - (uint64_t)from) / 4);
}

static int sandbox_insert(lua_State *L)
{
    lua_Integer n = plain_table(L, 1);

    if (lua_gettop(L) > 2)
        charge_range(L, luaL_checkinteger(L, 2), n);
    return original(L);
}

static int sandbox_remove(lua_State *L)
{
    lua_Integer n = plain_table(L, 1);

    charge_range(L, luaL_optinteger(L, 2, n), n);
    return original(L);
}

/* concat(t, sep, i, j); unpack(t, i, j) with `first` one less */
static int ranged(lua_State *L, int first)
{
    lua_Integer n = plain_table(L, 1);

    charge_range(L, luaL_optinteger(L, first, 1),
                 luaL_optinteger(L, first + 1, n));
    return original(L);
}

static int sandbox_concat(lua_State *L) { return ranged(L, 3); }
static int sandbox_unpack(lua_State *L) { return ranged(L, 2); }

static int sandbox_move(lua_State *L)
{
    plain_table(L, 1);
    if (!lua_isnoneornil(L, 5))
        plain_table(L, 5);
    charge_range(L, luaL_checkinteger(L, 2), luaL_checkinteger(L, 3));
    return original(L);
}

/* The most steps that two of the n entries take to compare: texts are compared
 * to their ends, without a stop between. */
static uint64_t comparison_steps(lua_State *L, lua_Integer n)
{
    size_t longest = 0;

    for (lua_Integer i = 1; i <= n; i++) {
        if (lua_rawgeti(L, 1, i) == LUA_TSTRING && lua_rawlen(L, -1) > longest)
            longest = lua_rawlen(L, -1);
        lua_pop(L, 1);
    }
    return longest / TEXT_STEP + 1;
}

static int sandbox_sort(lua_State *L)
{
    lua_Integer n = plain_table(L, 1);

    charge_range(L, 0, n);
    guard_charge(L, work_times(work_times((uint64_t)n, 8),
                               comparison_steps(L, n)));
    return original(L);
}

/* ---- what is opened ---- */

static void wrap(lua_State *L, const luaL_Reg *functions)
{
    for (const luaL_Reg *f = functions; f->name; f++) {
        lua_getfield(L, -1, f->name);
        lua_pushcclosure(L, f->func, 1);
        lua_setfield(L, -2, f->name);
    }
}

static void drop(lua_State *L, const char *const *names)
{
    for (; *names; names++) {
        lua_pushnil(L);
        lua_setfield(L, -2, *names);
    }
}

static void close_base(lua_State *L)
{
    static const char *const base[] = { "collectgarbage", "warn", NULL };
    static const char *const strings[] = { "dump", NULL };
    static const luaL_Reg in_base[] = {
        { "pcall", sandbox_pcall }, { "xpcall", sandbox_xpcall },
        { "setmetatable", sandbox_setmetatable },
        { "select", sandbox_arguments }, { NULL, NULL }
    };
    static const luaL_Reg in_string[] = {
        { "find", sandbox_find }, { "match", sandbox_pattern },
        { "gmatch", sandbox_gmatch }, { "gsub", sandbox_pattern },
        { "rep", sandbox_rep }, { "byte", sandbox_text },
        { "char", sandbox_arguments }, { "unpack", sandbox_text },
        { "pack", sandbox_text }, { "packsize", sandbox_text },
        { NULL, NULL }
    };
    static const luaL_Reg in_utf8[] = {
        { "len", sandbox_text }, { "codepoint", sandbox_text },
        { "offset", sandbox_text }, { "codes", sandbox_text },
        { "char", sandbox_arguments }, { NULL, NULL }
    };
    static const luaL_Reg in_table[] = {
        { "insert", sandbox_insert }, { "remove", sandbox_remove },
        { "concat", sandbox_concat }, { "unpack", sandbox_unpack },
        { "move", sandbox_move }, { "sort", sandbox_sort }, { NULL, NULL }
    };
    static const luaL_Reg in_coroutine[] = {
        { "create", sandbox_create }, { "wrap", sandbox_create },
        { "resume", sandbox_resume }, { NULL, NULL }
    };

    lua_pushglobaltable(L);
    drop(L, base);
    wrap(L, in_base);
    lua_getglobal(L, LUA_STRLIBNAME);
    drop(L, strings);
    wrap(L, in_string);
    lua_getglobal(L, LUA_TABLIBNAME);
    wrap(L, in_table);
    lua_getglobal(L, LUA_COLIBNAME);
    wrap(L, in_coroutine);
    lua_getglobal(L, LUA_UTF8LIBNAME);
    wrap(L, in_utf8);
    lua_pop(L, 5);
}

static void libraries_open(lua_State *L, bool open_files)
{
    static const luaL_Reg always[] = {
        { LUA_GNAME, luaopen_base }, { LUA_COLIBNAME, luaopen_coroutine },
        { LUA_TABLIBNAME, luaopen_table }, { LUA_STRLIBNAME, luaopen_string },
        { LUA_MATHLIBNAME, luaopen_math }, { LUA_UTF8LIBNAME, luaopen_utf8 },
        { NULL, NULL }
    };
    static const char *const loaders[] = {
        "dofile", "loadfile", "load", NULL
    };

    for (const luaL_Reg *lib = always; lib->name; lib++) {
        luaL_requiref(L, lib->name, lib->func, 1);
        lua_pop(L, 1);
    }
    lua_pushglobaltable(L);
    drop(L, loaders);
    lua_pop(L, 1);
    if (open_files) {
        luaL_requiref(L, LUA_IOLIBNAME, luaopen_io, 1);
        luaL_requiref(L, LUA_OSLIBNAME, luaopen_os, 1);
        lua_pop(L, 2);
    } else {
        close_base(L);
    }
}

/* ---- text from files ---- */

/* Pushes what is left of the file; false, with a message, when it cannot be
 * read. */
static bool slurp(lua_State *L, FILE *f, const char *path)
{
    luaL_Buffer b;
    size_t n;

    luaL_buffinit(L, &b);
    do {
        n = fread(luaL_prepbuffer(&b), 1, LUAL_BUFFERSIZE, f);
        luaL_addsize(&b, n);
    } while (n == LUAL_BUFFERSIZE);
    luaL_pushresult(&b);
    if (!ferror(f))
        return true;
    lua_pushfstring(L, "%s: %s", path, strerror(errno));
    return false;
}

/* Opens it to be read; NULL, with what is wrong. */
static FILE *open_text(const char *path, bool waits, const char **wrong)
{
    int fd = waits ? open(path, O_RDONLY | O_CLOEXEC)
                   : file_open(path, O_RDONLY, wrong);
    FILE *f = fd >= 0 ? fdopen(fd, "rb") : NULL;

    if (!f && (waits || fd >= 0))
        *wrong = strerror(errno);
    if (!f && fd >= 0)
        close(fd);
    return f;
}

int sandbox_file(lua_State *L, const char *path, bool waits)
{
    int top = lua_gettop(L), status = LUA_ERRFILE;
    File *f = file_new(L, path);
    const char *s, *wrong;
    size_t n;

    f->f = path ? open_text(path, waits, &wrong) : NULL;
    if (path && !f->f) {
        lua_pushfstring(L, "%s: %s", path, wrong);
    } else if (slurp(L, path ? f->f : stdin, path ? path : "stdin")) {
        file_close(f);
        s = lua_tolstring(L, -1, &n);
        lua_pushfstring(L, path ? "@%s" : "=stdin", path);
        status = sandbox_load(L, s, n, lua_tostring(L, -1));
    }
    lua_replace(L, top + 1);
    lua_settop(L, top + 1);
    return status;
}

static int module_require(lua_State *L, const char *name)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    if (lua_getfield(L, -1, name) != LUA_TNIL)
        return 1;
    if (lua_getfield(L, LUA_REGISTRYINDEX, SANDBOX_FOLDER) != LUA_TSTRING)
        lua_pushliteral(L, ".");
    lua_pushliteral(L, "/");
    luaL_gsub(L, name, ".", "/");
    lua_pushliteral(L, ".lua");
    lua_concat(L, 4);
    if (sandbox_file(L, lua_tostring(L, -1), false) != LUA_OK)
        return luaL_error(L, "require: %s", lua_tostring(L, -1));
    lua_pushstring(L, name);
    lua_pushvalue(L, -3);
    lua_call(L, 2, 1);
    if (lua_isnil(L, -1))
        lua_pushboolean(L, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, 2, name);
    return 1;
}

/* require "flin"; with open files also text modules beside the script. */
static int require(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    Guard *g = guard_of(L);

    if (strcmp(name, "flin") == 0) {
        luaL_requiref(L, "flin", luaopen_flin, 0);
        return 1;
    }
    if (!g || !g->open_files)
        return luaL_error(L, "require: '%s' is not there\n  help: a script "
                          "in the sandbox can require \"flin\" alone", name);
    return module_require(L, name);
}

void sandbox_open(lua_State *L, const Limits *lim, bool open_files)
{
    Guard *g = guard_open(L, lim, open_files);

    libraries_open(L, open_files);
    lua_pushcfunction(L, require);
    lua_setglobal(L, "require");
    guard_begin(L, g);
}
