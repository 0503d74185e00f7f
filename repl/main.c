/* main.c -- the program `flin`: options, scripts, errors. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "repl.h"

typedef struct Options {
    const char *dump, *check, *compile; /* NULL: not asked for */
    const char *arch;
    const char *backend, *threads;
    bool interactive, version, sandbox, help;
    Limits limits;
    int script;                         /* argv's index of its name; 0: none */
    bool ran;                           /* by -e or -l */
} Options;

static const char usage[] =
    "usage: flin [options] [script.lua [args]]\n"
    "  -e TEXT        run TEXT\n"
    "  -l NAME        require NAME and keep it under that name\n"
    "  -i             prompt when the script is done\n"
    "  -d LETTERS     dump these passes of the variant the script returns\n"
    "  --check[=T=300,K=64,...]   check that variant against its float64 step\n"
    "  --compile-only[=K=128,...]  compile it for a GPU that need not be here\n"
    "  --arch NAME    which (sm_90a)\n"
    "  --backend NAME cpu or cuda\n"
    "  --threads N    on the CPU (0: all cores)\n"
    "  --sandbox      no files; --budget N instructions, --memory N MiB\n"
    "  -v, --version  -h, --help  -- (end of options)  - (run stdin)\n";

/* ---- errors ---- */

void complain(const char *message)
{
    fflush(stdout);
    fprintf(stderr, "%s\n", message);
    fflush(stderr);
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
        if (ar.currentline < 0 || strncmp(ar.source, "@stdlib/", 8) == 0)
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

static int message(lua_State *L)
{
    if (!strchr(luaL_tolstring(L, 1, NULL), '\n')) {
        push_traceback(L);
        lua_concat(L, 2);
    }
    return 1;
}

bool call(lua_State *L, int nargs)
{
    int base = lua_gettop(L) - nargs, status;

    lua_pushcfunction(L, message);
    lua_insert(L, base);
    interrupt_arm(L);
    status = lua_pcall(L, nargs, LUA_MULTRET, base);
    lua_remove(L, base);
    if (status != LUA_OK) {
        complain(lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    return status == LUA_OK;
}

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t asked_to_stop;

static void on_interrupt(int sig)
{
    asked_to_stop = 1;
    signal(sig, SIG_DFL);
}

static bool asked(void *ud)
{
    (void)ud;
    return asked_to_stop;
}

bool interrupt_taken(void)
{
    return asked_to_stop;
}

void interrupt_arm(lua_State *L)
{
    struct sigaction act = { .sa_handler = on_interrupt };

    asked_to_stop = 0;
    sigaction(SIGINT, &act, NULL);
    sandbox_interrupt(L, asked, NULL);
}

/* ---- options ---- */

static bool is(const char *arg, const char *name)
{
    return strcmp(arg, name) == 0;
}

static bool bad(const char *what, const char *arg)
{
    fprintf(stderr, "flin: %s '%s'\n%s", what, arg, usage);
    return false;
}

static bool count(const char *s, uint64_t *n)
{
    char *end;

    *n = strtoull(s, &end, 10);
    return *s >= '0' && *s <= '9' && !*end;
}

/* Options that take a value; *i moves on to it. False: a fault, said. */
static bool valued(Options *o, char **argv, int *i)
{
    const char *name = argv[*i], *value = argv[*i + 1];
    uint64_t n = 0;

    if (!value)
        return bad("a value is wanted after", name);
    ++*i;
    if (is(name, "-d"))
        o->dump = value;
    else if (is(name, "--backend"))
        o->backend = value;
    else if (is(name, "--arch"))
        o->arch = value;
    else if (!count(value, &n))
        return bad("a number is wanted, not", value);
    else if (is(name, "--threads"))
        o->threads = value;
    else if (is(name, "--budget"))
        o->limits.instructions = n;
    else
        o->limits.memory = (size_t)n << 20;
    return true;
}

static bool one_of(const char *arg, const char *const *names)
{
    while (*names && !is(arg, *names))
        names++;
    return *names != NULL;
}

/* "--check" or "--check=K=64": what follows the name, perhaps nothing. */
static bool sizes_of(const char *arg, const char *name, const char **sizes)
{
    size_t n = strlen(name);

    if (strncmp(arg, name, n) != 0 || (arg[n] && arg[n] != '='))
        return false;
    *sizes = arg[n] ? arg + n + 1 : "";
    return true;
}

/* -e and -l are run later, in their order. */
static bool parse(Options *o, char **argv)
{
    static const char *const with_value[] = {
        "-d", "--arch", "--backend", "--threads", "--budget", "--memory", NULL
    };
    int i;

    for (i = 1; argv[i] && argv[i][0] == '-' && argv[i][1]; i++) {
        const char *a = argv[i];
        if (is(a, "--")) {
            i++;
            break;
        } else if (a[1] == 'e' || a[1] == 'l') {
            o->ran = true;
            if (!a[2] && !argv[++i])
                return bad("a value is wanted after", a);
        } else if (one_of(a, with_value)) {
            if (!valued(o, argv, &i))
                return false;
        } else if (is(a, "-i")) {
            o->interactive = o->version = true;
        } else if (is(a, "-v") || is(a, "--version")) {
            o->version = true;
        } else if (is(a, "-h") || is(a, "--help")) {
            o->help = true;
        } else if (is(a, "--sandbox")) {
            o->sandbox = true;
        } else if (sizes_of(a, "--check", &o->check)
                   || sizes_of(a, "--compile-only", &o->compile)) {
            continue;
        } else {
            return bad("unknown option", a);
        }
    }
    o->script = argv[i] ? i : 0;
    return true;
}

/* ---- running ---- */

static bool run_text(lua_State *L, const char *text)
{
    if (sandbox_load(L, text, strlen(text), "=(command line)") != LUA_OK) {
        complain(lua_tostring(L, -1));
        lua_pop(L, 1);
        return false;
    }
    return call(L, 0);
}

static bool run_require(lua_State *L, const char *name)
{
    lua_getglobal(L, "require");
    lua_pushstring(L, name);
    if (!call(L, 1))
        return false;
    lua_setglobal(L, name);
    return true;
}

static bool run_early(lua_State *L, char **argv, int script)
{
    for (int i = 1; argv[i] && i != script && !is(argv[i], "--"); i++) {
        const char *value = argv[i] + 2;
        char letter = argv[i][1];
        if (one_of(argv[i], (const char *const[]){ "-d", "--arch",
                "--backend", "--threads", "--budget", "--memory", NULL })) {
            i++;
            continue;
        }
        if (letter != 'e' && letter != 'l')
            continue;
        if (!*value)
            value = argv[++i];
        if (!(letter == 'e' ? run_text : run_require)(L, value))
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

/* Runs the script; what it returns stays on the stack. */
static bool run_script(lua_State *L, char **argv, int script)
{
    bool input = is(argv[script], "-");
    int n = 0;

    set_folder(L, input ? "" : argv[script]);
    if (sandbox_file(L, input ? NULL : argv[script]) != LUA_OK) {
        complain(lua_tostring(L, -1));
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
    bool ok = true;

    if (!luaL_testudata(L, 1, VARIANT_META)) {
        if (o->dump || o->check || o->compile)
            complain("the script returns no variant, which -d, --check and "
                     "--compile-only want");
        return !o->dump && !o->check && !o->compile;
    }
    lua_settop(L, 1);
    if (o->dump)
        ok = show_dump(L, o->dump);
    if (ok && o->check)
        ok = show_check(L, o->check);
    if (ok && o->compile)
        ok = show_compile(L, o->compile, o->arch);
    if (!o->dump && !o->check && !o->compile && !o->interactive)
        puts(luaL_tolstring(L, 1, NULL));
    return ok;
}

/* flin.backend and flin.threads: what calls use that do not say. */
static bool set_defaults(lua_State *L, const Options *o)
{
    if (!o->backend && !o->threads)
        return true;
    lua_getglobal(L, "require");
    lua_pushliteral(L, "flin");
    if (!call(L, 1))
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

static int run_all(lua_State *L)
{
    Options *o = lua_touserdata(L, 1);
    char **argv = lua_touserdata(L, 2);
    bool ok;

    lua_settop(L, 0);
    luaL_checkversion(L);
    sandbox_open(L, &o->limits, !o->sandbox);
    set_arg(L, argv, o->script);
    ok = set_defaults(L, o) && run_early(L, argv, o->script);
    if (ok && o->script)
        ok = run_script(L, argv, o->script) && finish(L, o);
    lua_settop(L, 0);
    if (o->interactive || (!o->script && !o->ran && !o->version)) {
        prompt(L);
        ok = true;
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
    if (!parse(&o, argv))
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
