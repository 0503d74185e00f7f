/* attach.c -- states on the host's own Lua: what C and Lua share, what stays
 * the host's, and what is refused; the hooks of calls. */
#include <lua.h>
#include <lauxlib.h>
#include <lualib.h>

#include <time.h>

#include "host.h"

static const char script[] =
    "local flin = require 'flin'\n"
    "return flin.variant {\n"
    "  name = host_name, input = { k = 't k', v = 't v' },\n"
    "  state = { S = 'k v' },\n"
    "  step = function (x, s)\n"
    "    local S = s.S + flin.outer(x.k, x.v)\n"
    "    return { S = S }, flin.dot(x.k, S)\n"
    "  end }\n";

static lua_State *host_lua(void)
{
    lua_State *L = luaL_newstate();

    luaL_openlibs(L);
    lua_pushliteral(L, "hosted");
    lua_setglobal(L, "host_name");
    return L;
}

static void run_text(lua_State *L, const char *text)
{
    CHECK(luaL_dostring(L, text) == LUA_OK);
    if (lua_type(L, -1) == LUA_TSTRING)
        printf("%s\n", lua_tostring(L, -1));
    lua_settop(L, 0);
}

/* ---- one Lua ---- */

static void test_sharing(void)
{
    flin_Error e;
    lua_State *L = host_lua(), *other = host_lua();
    flin_State *s = flin_attach(L, NULL, &e);
    flin_Variant *v = flin_load_string(s, script, "mine.lua", &e);

    CHECK(v && !strcmp(flin_name(v), "hosted") && lua_gettop(L) == 0);
    CHECK(!flin_attach(L, NULL, &e) && e.code == FLIN_ERROR
          && strstr(e.message, "this Lua has a flin_State already"));
    CHECK(!flin_load_string(s, "return 1 +", "bad.lua", &e) && e.line == 1
          && !strcmp(e.file, "bad.lua"));
    CHECK(luaL_dostring(L, script) == LUA_OK);
    flin_Variant *shared = flin_to_variant(s, L, -1, &e);
    CHECK(shared && lua_gettop(L) == 1);
    CHECK(!flin_to_variant(s, other, -1, &e)
          && strstr(e.message, "attached to another Lua"));
    lua_pushinteger(L, 3);
    CHECK(!flin_to_variant(s, L, -1, &e) && lua_gettop(L) == 2
          && strstr(e.message, "a variant is wanted here, not a number"));
    lua_settop(L, 0);
    Layer *l = layer_new(shared, 1, 20, 1, 4, FLIN_F32);
    flin_Kernel *k = flin_prepare(shared, FLIN_FORWARD, &l->call, &e);
    CHECK(k && !flin_forward(shared, &l->call, &e));
    lua_gc(L, LUA_GCCOLLECT, 0);        /* the handle keeps it alive */
    CHECK(!flin_forward(shared, &l->call, &e));
    flin_close(s);
    run_text(L, "require 'flin'.stdlib.linear:check { T = 9, K = 4, V = 4 }");
    s = flin_attach(L, NULL, &e);       /* once more */
    CHECK(s && flin_stdlib(s, "gla", &e));
    flin_close(s);
    lua_close(L);
    CHECK(!flin_run(k, &l->call, NULL, &e));
    flin_free(k);
    layer_free(l);
    lua_close(other);
}

/* What v:forward has saved is what v:backward reads. */
static void test_saved(void)
{
    lua_State *L = host_lua();

    luaL_requiref(L, "flin", luaopen_flin, 0);
    run_text(L, "local v = require 'flin'.stdlib.gla\n"
                "local x = v:random { T = 70, K = 8, V = 8 }\n"
                "x.save = true\n"
                "local y, _, saved = v:forward(x)\n"
                "local a = v:backward { saved = saved, dy = y }.q:maxabs()\n"
                "debug.getuservalue(saved, 3):fill(0 / 0)\n"
                "local b = v:backward { saved = saved, dy = y }.q:maxabs()\n"
                "assert(a == a and b ~= b, 'what is saved is not read')");
    lua_close(L);
}

/* From a function of the host's that a coroutine calls. */
static int load_here(lua_State *L)
{
    flin_State *s = lua_touserdata(L, lua_upvalueindex(1));
    flin_Error e;
    flin_Variant *v = flin_load_string(s, script, "here.lua", &e);

    lua_pushboolean(L, v != NULL);
    flin_release(v);
    return 1;
}

static void test_coroutine(void)
{
    lua_State *L = host_lua();
    flin_State *s = flin_attach(L, NULL, NULL);

    lua_pushlightuserdata(L, s);
    lua_pushcclosure(L, load_here, 1);
    lua_setglobal(L, "load_here");
    run_text(L, "assert(coroutine.wrap(function ()\n"
                "  coroutine.yield(load_here()) end)())");
    flin_close(s);
    lua_close(L);
}

/* ---- hooks and limits ---- */

typedef struct Hooks {
    int asked, stop, slow;              /* slow: takes its time to answer */
    int calls, wrong;
    double last;
    char what[64];
    size_t in_use;
} Hooks;

static int asked(void *ud)
{
    Hooks *h = ud;

    if (h->slow && h->asked < 12 && h->asked % 4 == 1)
        nanosleep(&(struct timespec){ .tv_nsec = 60000000 }, NULL);
    h->asked++;
    return h->stop;
}

static void progress(void *ud, const char *what, double done)
{
    Hooks *h = ud;

    h->calls++;
    if (done >= 0) {
        h->wrong += done > 1 || done < h->last;
        h->last = done;
    }
    snprintf(h->what, sizeof h->what, "%s", what);
}

static void *counted(void *ud, void *p, size_t old, size_t size)
{
    Hooks *h = ud;

    h->in_use += size - (p ? old : 0);
    if (size)
        return realloc(p, size);
    free(p);
    return NULL;
}

static flin_Options options(Hooks *h)
{
    return (flin_Options){
        .size = sizeof(flin_Options), .alloc = counted, .alloc_ud = h,
        .interrupted = asked, .interrupted_ud = h, .progress = progress,
        .progress_ud = h
    };
}

/* In the host's Lua the allocator serves compilations and calls alone; all
 * comes back. */
static void test_hooks(void)
{
    Hooks h = { .stop = 0 };
    flin_Options o = options(&h);
    flin_Error e;
    lua_State *L = host_lua();
    flin_State *s = flin_attach(L, &o, &e);
    size_t before = h.in_use;
    flin_Variant *v = flin_load_string(s, script, "mine.lua", &e);
    Layer *l = layer_new(v, 1, 2000, 1, 4, FLIN_F32);

    CHECK(h.in_use > before && !flin_forward(v, &l->call, &e));
    h.stop = 1;
    CHECK(flin_forward(v, &l->call, &e) == FLIN_ERROR_INTERRUPT);
    CHECK(luaL_dostring(L, "local flin = require 'flin'\n"
                        "local x = flin.ones(1, 500, 1, 4)\n"
                        "flin.stdlib.linear:forward{ q = x, k = x, v = x }")
          && strstr(lua_tostring(L, -1), "interrupted"));
    lua_settop(L, 0);
    h.stop = 0;
    layer_free(l);
    flin_close(s);
    lua_close(L);
    CHECK(h.in_use == 0 && h.asked > 0);
}

static void test_limits(void)
{
    Hooks h = { .stop = 0 };
    flin_Options o = options(&h);
    flin_Error e;
    lua_State *L = host_lua();

    o.nodes = 5;
    flin_State *s = flin_attach(L, &o, &e);
    CHECK(s && !flin_load_string(s, script, "mine.lua", &e));
    CHECK(e.code == FLIN_ERROR_LIMIT && strstr(e.message, "5"));
    flin_close(s);
    o.nodes = 0;
    o.memory = 1;
    s = flin_attach(L, &o, &e);
    CHECK(s && !flin_load_string(s, script, "mine.lua", &e)
          && e.code == FLIN_ERROR_LIMIT);
    flin_close(s);
    lua_close(L);
    CHECK(h.in_use == 0);
}

/* Fractions that grow, of a call that takes its time. */
static void test_progress(flin_Mode mode, const char *what)
{
    Hooks h = { .stop = 0 };
    flin_Options o = options(&h);
    flin_State *s = flin_open(&o, NULL);
    flin_Variant *v = flin_stdlib(s, "linear", NULL);
    Layer *l = layer_new(v, 2, 2000, 2, 16, FLIN_F32);
    flin_Kernel *k = flin_prepare(v, mode, &l->call, NULL);

    h.slow = 1;
    h.asked = h.calls = 0;
    CHECK(!flin_run(k, &l->call, NULL, NULL));
    CHECK(h.calls > 1 && h.wrong == 0 && h.last > 0);
    CHECK(!strcmp(h.what, what));
    flin_free(k);
    layer_free(l);
    flin_close(s);
    CHECK(h.in_use == 0);
}

int main(void)
{
    test_sharing();
    test_saved();
    test_coroutine();
    test_hooks();
    test_limits();
    test_progress(FLIN_FORWARD, "forward linear");
    test_progress(FLIN_REFERENCE, "reference linear");
    return report();
}
