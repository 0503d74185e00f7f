/* watch.c -- a hook at each instruction of a Lua function that is run on
 * numbers, and what such a function keeps from one run to the next.
 */
#include <string.h>

#include "sandbox.h"
#include "watch.h"

enum { TICKS = 200, COLLECTS = 4000, DEPTH = 6, MAX_ENTRIES = 4000,
       MAX_LOCALS = 60 };

static const char watch_key = 0;        /* its address is the registry's key */
static const char unsteady_key = 0;

/* ---- one run ---- */

static void see_numbers(lua_State *L, lua_Debug *ar, Watch *w)
{
    for (int i = 1; w->npassed < MAX_PASSED && lua_getlocal(L, ar, i); i++) {
        bool number = lua_type(L, -1) == LUA_TNUMBER, old = false;
        double x = lua_tonumber(L, -1);
        lua_pop(L, 1);
        for (int k = w->npassed; number && !old && k-- > 0;)
            old = w->passed[k] == x;
        if (number && !old && x == x)
            w->passed[w->npassed++] = x;
    }
}

/* Is what is called one of those that give something else each time? */
static void see_call(lua_State *L, lua_Debug *ar, Watch *w)
{
    lua_getinfo(L, "f", ar);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &unsteady_key);
    lua_rotate(L, -2, 1);
    if (lua_rawget(L, -2) == LUA_TSTRING && !w->unsteady) {
        w->unsteady = lua_tostring(L, -1);
        w->line = current_line(L);
    }
    lua_pop(L, 2);
}

static void see(lua_State *L, lua_Debug *ar)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &watch_key);
    Watch *w = lua_touserdata(L, -1);
    lua_pop(L, 1);
    if (!w) {                           /* a coroutine that has outlived it */
        sandbox_rehook(L);
        return;
    }
    if (ar->event != LUA_HOOKCOUNT) {
        see_call(L, ar, w);
        return;
    }
    lua_getinfo(L, "l", ar);
    w->way = (w->way + (uint64_t)ar->currentline) * 6364136223846793005u + 1;
    if (w->collects && w->ticks < COLLECTS)
        see_numbers(L, ar, w);
    if (++w->ticks % TICKS == 0)
        sandbox_hook(L, ar);
}

void watch(lua_State *L, Watch *w)
{
    lua_Hook before = lua_gethook(L);

    if (before && before != sandbox_hook && before != see)
        return;
    if (w)
        lua_pushlightuserdata(L, w);
    else
        lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &watch_key);
    if (w)
        lua_sethook(L, see, LUA_MASKCOUNT | LUA_MASKCALL, 1);
    else
        sandbox_rehook(L);
}

/* The table at `lib` has the function; the list is at `list`. */
static void add_unsteady(lua_State *L, int list, int lib, const char *name,
                         const char *full)
{
    if (lua_istable(L, lib) && lua_getfield(L, lib, name) == LUA_TFUNCTION) {
        lua_pushstring(L, full);
        lua_rawset(L, list);
    }
}

void watch_open(lua_State *L)
{
    static const char *const of[][3] = {
        { LUA_MATHLIBNAME, "random", "math.random" },
        { LUA_OSLIBNAME, "time", "os.time" },
        { LUA_OSLIBNAME, "clock", "os.clock" },
        { LUA_OSLIBNAME, "date", "os.date" },
        { LUA_OSLIBNAME, "tmpname", "os.tmpname" },
        { LUA_IOLIBNAME, "read", "io.read" },
        { LUA_GNAME, "collectgarbage", "collectgarbage" }
    };
    int top = lua_gettop(L), list = top + 1, loaded = top + 2, lib = top + 3;

    lua_newtable(L);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        lua_getfield(L, loaded, of[i][0]);
        add_unsteady(L, list, lib, of[i][1], of[i][2]);
        lua_settop(L, loaded);
    }
    add_unsteady(L, list, top, "rand", "flin.rand");
    add_unsteady(L, list, top, "randn", "flin.randn");
    lua_pushvalue(L, list);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &unsteady_key);
    lua_settop(L, top);
}

/* ---- what is kept ---- */

typedef struct Walk {
    lua_State *L;
    Keeps *k;
    int seen;                           /* a table: what has been visited */
    int entries;
} Walk;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;

    return x ^ x >> 31;
}

/* What stands for the value at `arg`: itself, or which one it is. flin's own
 * values say by themselves when they are used too late. */
static uint64_t image(lua_State *L, int arg)
{
    uint64_t bits = 0;
    double x;

    switch (lua_type(L, arg)) {
    case LUA_TNUMBER:
        x = lua_tonumber(L, arg);
        memcpy(&bits, &x, sizeof bits);
        break;
    case LUA_TBOOLEAN:
        bits = (uint64_t)lua_toboolean(L, arg);
        break;
    case LUA_TUSERDATA:
        break;
    default:
        bits = (uint64_t)(uintptr_t)lua_topointer(L, arg);
    }
    return mix((uint64_t)lua_type(L, arg) + 1, bits);
}

static void keep(Walk *w, const char *name, uint64_t now)
{
    if (w->k->n < MAX_KEPT)
        w->k->at[w->k->n++] = (Kept){ name, now };
}

static void walk(Walk *w, const char *name, int depth);

/* The table on top; the order of its entries is nobody's. */
static void walk_table(Walk *w, const char *name, int depth)
{
    lua_State *L = w->L;
    uint64_t all = 0;

    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        if (w->entries++ >= MAX_ENTRIES) {
            lua_pop(L, 2);
            break;
        }
        all += mix(image(L, -2), image(L, -1));
        walk(w, lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : name,
             depth + 1);
    }
    if (lua_getmetatable(L, -1)) {
        walk(w, name, depth + 1);
        lua_pop(L, 1);
    }
    keep(w, name, all);
}

static void walk_function(Walk *w, int depth)
{
    lua_State *L = w->L;
    const char *name;

    for (int n = 1; (name = lua_getupvalue(L, -1, n)) != NULL; n++) {
        keep(w, name, image(L, -1));
        walk(w, name, depth + 1);
        lua_pop(L, 1);
    }
}

/* Of a coroutine that waits: where, and its variables. */
static void walk_coroutine(Walk *w, const char *name)
{
    lua_State *L = w->L, *co = lua_tothread(L, -1);
    uint64_t all = (uint64_t)lua_status(co);
    lua_Debug ar;

    if (co == L || !lua_checkstack(co, 4) || !lua_getstack(co, 0, &ar))
        return;
    for (int n = 0; n < DEPTH && lua_getstack(co, n, &ar); n++) {
        lua_getinfo(co, "l", &ar);
        all = mix(all, (uint64_t)ar.currentline);
        for (int i = 1; i < MAX_LOCALS && lua_getlocal(co, &ar, i); i++) {
            all = mix(all, image(co, -1));
            lua_pop(co, 1);
        }
    }
    keep(w, name, all);
}

/* What is on top. */
static void walk(Walk *w, const char *name, int depth)
{
    lua_State *L = w->L;
    int type = lua_type(L, -1);

    if (depth > DEPTH || (type != LUA_TTABLE && type != LUA_TFUNCTION
                          && type != LUA_TTHREAD))
        return;
    luaL_checkstack(L, 10, NULL);
    lua_pushvalue(L, -1);
    bool old = lua_rawget(L, w->seen) != LUA_TNIL;
    lua_pop(L, 1);
    if (old)
        return;
    lua_pushvalue(L, -1);
    lua_pushboolean(L, 1);
    lua_rawset(L, w->seen);
    if (type == LUA_TTABLE)
        walk_table(w, name, depth);
    else if (type == LUA_TFUNCTION)
        walk_function(w, depth);
    else
        walk_coroutine(w, name);
}

/* Libraries are visited as it were: the globals' own entries are enough. */
static void pass_over_libraries(lua_State *L, int seen)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    for (lua_pushnil(L); lua_next(L, -2);) {
        bool globals = lua_type(L, -2) == LUA_TSTRING
                    && !strcmp(lua_tostring(L, -2), LUA_GNAME);
        if (lua_istable(L, -1) && !globals) {
            lua_pushboolean(L, 1);
            lua_rawset(L, seen);
        } else {
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
}

void keeps_of(lua_State *L, int f, Keeps *k)
{
    int top = lua_gettop(L);

    k->n = 0;
    luaL_checkstack(L, 12, NULL);
    lua_newtable(L);
    Walk w = { .L = L, .k = k, .seen = top + 1 };
    pass_over_libraries(L, w.seen);
    lua_pushvalue(L, f);
    walk(&w, "", 0);
    lua_settop(L, top);
}
