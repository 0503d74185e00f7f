/* show.c -- -d, --check, --compile-only: a variant's passes, its errors, its
 * kernel. */
#include <string.h>

#include "repl.h"

bool show_dump(lua_State *L, const char *letters)
{
    lua_getfield(L, -1, "dump");
    lua_pushvalue(L, -2);
    lua_pushstring(L, letters);
    if (!call(L, 2))
        return false;
    fputs(lua_tostring(L, -1), stdout);
    lua_pop(L, 1);
    return true;
}

/* "T=300,K=64" as a table of options. */
static bool push_options(lua_State *L, const char *what, const char *sizes)
{
    lua_pushfstring(L, "return {%s}", sizes);
    if (sandbox_load(L, lua_tostring(L, -1), lua_rawlen(L, -1), what)
        != LUA_OK) {
        complain(lua_tostring(L, -1));
        return false;
    }
    lua_remove(L, -2);
    return call(L, 0);
}

/* What DESIGN.md asks of results, of gradients, of gates' gradients. */
typedef struct Accuracy { double result, gradient, gate; } Accuracy;

static Accuracy tolerance(lua_State *L, int options)
{
    DType d = F32;

    if (lua_getfield(L, options, "dtype") == LUA_TSTRING)
        dtype_named(lua_tostring(L, -1), &d);
    lua_pop(L, 1);
    return d == BF16 ? (Accuracy){ 4e-3, 8e-3, 2e-2 }
         : d == F16 ? (Accuracy){ 1e-3, 4e-3, 1e-2 }
         : (Accuracy){ 1e-5, 1e-4, 1e-4 };
}

/* A row of the table on top. */
static bool show_row(lua_State *L, const char *name, double limit)
{
    double e = 0;

    if (lua_getfield(L, -1, name) == LUA_TNUMBER) {
        e = lua_tonumber(L, -1);
        printf("  %-16s %9.2e  %s %.0e\n", name, e,
               e <= limit ? "within" : "NOT within", limit);
    }
    lua_pop(L, 1);
    return e <= limit;
}

/* Gradients, in the order of the inputs; the table of errors is on top. */
static bool show_gradients(lua_State *L, int variant, Accuracy limit)
{
    bool ok = true;

    lua_getfield(L, variant, "inputs");
    lua_insert(L, -2);
    for (int i = 1; lua_rawgeti(L, -2, i) == LUA_TTABLE; i++) {
        lua_getfield(L, -1, "axes");
        bool gate = strcmp(lua_tostring(L, -1), "t") == 0;
        lua_getfield(L, -2, "name");
        const char *name = lua_pushfstring(L, "d_%s", lua_tostring(L, -1));
        lua_pushvalue(L, -5);
        ok &= show_row(L, name, gate ? limit.gate : limit.gradient);
        lua_pop(L, 5);
    }
    lua_pop(L, 1);
    return ok & show_row(L, "d_initial_state", limit.gradient);
}

bool show_check(lua_State *L, const char *sizes)
{
    static const char *const rows[] = { "y", "state", "step", NULL };
    int variant = lua_gettop(L), options = variant + 1;
    Accuracy limit;
    bool ok = true;

    if (!push_options(L, "=--check", sizes))
        return false;
    limit = tolerance(L, options);
    lua_getfield(L, variant, "check");
    lua_pushvalue(L, variant);
    lua_pushvalue(L, options);
    if (!call(L, 2))
        return false;
    lua_getfield(L, variant, "name");
    printf("%s: relative RMS error against the float64 step\n",
           luaL_tolstring(L, -1, NULL));
    lua_pop(L, 2);
    for (int k = 0; rows[k]; k++)
        ok &= show_row(L, rows[k], limit.result);
    ok &= show_gradients(L, variant, limit);
    lua_settop(L, variant);
    return ok;
}

/* arch: NULL for the usual one. */
bool show_compile(lua_State *L, const char *sizes, const char *arch)
{
    static const char *const rows[] = { "kernels", "registers", "shared",
                                        "spills", NULL };
    int variant = lua_gettop(L);

    if (!push_options(L, "=--compile-only", sizes))
        return false;
    lua_pushstring(L, arch);
    lua_setfield(L, -2, "arch");
    lua_getfield(L, variant, "compile");
    lua_insert(L, -2);
    lua_pushvalue(L, variant);
    lua_insert(L, -2);
    if (!call(L, 2))
        return false;
    lua_getfield(L, variant, "name");
    lua_getfield(L, -2, "arch");
    printf("%s, %s:\n", lua_tostring(L, -2), lua_tostring(L, -1));
    lua_pop(L, 2);
    for (int k = 0; rows[k]; k++) {
        lua_getfield(L, -1, rows[k]);
        printf("  %-10s %8lld\n", rows[k], (long long)lua_tointeger(L, -1));
        lua_pop(L, 1);
    }
    lua_getfield(L, -1, "cubin");
    printf("  %-10s %8zu bytes\n", "cubin", (size_t)lua_rawlen(L, -1));
    lua_getfield(L, -2, "seconds");
    printf("  %-10s %8.2f\n", "seconds", lua_tonumber(L, -1));
    lua_settop(L, variant);
    return true;
}
