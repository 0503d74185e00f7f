/* api_report.c -- flin.h: what a variant says of itself, as text or JSON. */
#include <string.h>

#include "api.h"

/* What is asked: a script, or a method with what it takes. */
typedef struct Report {
    flin_Variant *v;
    const char *text, *name;            /* a script */
    const char *method, *first, *options;
    flin_Format format;
    const char *said;
} Report;

/* Pushes what the chunk gives for the values above `base`. */
static void run_text(lua_State *L, const char *text, const char *name,
                     int nargs)
{
    const char *chunk = lua_pushfstring(L, "@%s", name);

    if (sandbox_load(L, text, strlen(text), chunk) != LUA_OK)
        lua_error(L);
    lua_replace(L, -2);
    lua_insert(L, -nargs - 1);
    lua_call(L, nargs, 1);
}

/* Pushes what the method gives. */
static void run_method(lua_State *L, const Report *r)
{
    int top = lua_gettop(L);

    lua_getfield(L, -1, r->method);
    lua_insert(L, -2);
    if (r->first)
        lua_pushstring(L, r->first);
    lua_pushfstring(L, "return { %s }", r->options ? r->options : "");
    run_text(L, lua_tostring(L, -1), "options", 0);
    lua_remove(L, -2);
    lua_call(L, lua_gettop(L) - top, 1);
}

/* Replaces what is on top by its text. */
static const char *as_text(lua_State *L, flin_Format format)
{
    if (format == FLIN_JSON) {
        lua_getfield(L, LUA_REGISTRYINDEX, FLIN_OWN);
        lua_getfield(L, -1, "json");
        lua_rotate(L, -3, 1);
        lua_pop(L, 1);
        lua_call(L, 1, 1);
    } else {
        luaL_tolstring(L, -1, NULL);
        lua_remove(L, -2);
    }
    return lua_tostring(L, -1);
}

/* The variant keeps what it has said last. */
static int run_report(lua_State *L)
{
    Report *r = lua_touserdata(L, 1);

    luaL_requiref(L, "flin", luaopen_flin, 0);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->v->ref);
    if (r->method)
        run_method(L, r);
    else
        run_text(L, r->text, r->name ? r->name : "report", 1);
    r->said = as_text(L, r->format);
    luaL_unref(L, LUA_REGISTRYINDEX, r->v->said);
    r->v->said = LUA_NOREF;
    r->v->said = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

static const char *report(Report *r, flin_Error *e)
{
    flin_State *s;
    uint64_t budget;
    bool ok;

    if (!not_null(r->v, "the flin_Variant", e))
        return NULL;
    s = r->v->s;
    budget = budget_suspend(s->L);
    lua_pushlightuserdata(s->L, r);
    ok = api_protect(s, s->L, run_report, 1, 0, e);
    budget_resume(s->L, budget);
    return ok ? r->said : NULL;
}

const char *flin_describe(flin_Variant *v, flin_Format format, flin_Error *e)
{
    return report(&(Report){ .v = v, .method = "describe", .format = format },
                  e);
}

const char *flin_plan(flin_Variant *v, const char *options,
                      flin_Format format, flin_Error *e)
{
    return report(&(Report){ .v = v, .method = "plan", .options = options,
                             .format = format }, e);
}

const char *flin_source(flin_Variant *v, const char *backend,
                        const char *options, flin_Error *e)
{
    return report(&(Report){ .v = v, .method = "source", .options = options,
                             .first = backend ? backend : "cuda" }, e);
}

const char *flin_report(flin_Variant *v, const char *text, const char *name,
                        flin_Format format, flin_Error *e)
{
    if (!not_null(text, "the text of a script", e))
        return NULL;
    return report(&(Report){ .v = v, .text = text, .name = name,
                             .format = format }, e);
}
