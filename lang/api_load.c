/* api_load.c -- flin.h: variants, and what they say of their arguments. */
#include <stdio.h>
#include <string.h>

#include "api.h"

/* How to come by a variant, and what came of it. */
typedef struct Load {
    const char *path, *text, *name;     /* one of: file, text + name, name */
    int of;                             /* ref of the text's argument, or 0 */
    int ref;
    Variant *v;
} Load;

/* The variant on top of the stack. */
static void keep_variant(lua_State *L, Load *l)
{
    l->v = variant_check(L, -1);
    l->ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* Where the script's require looks. */
static void set_folder(lua_State *L, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash)
        lua_pushlstring(L, path, (size_t)(slash - path) + 1);
    else
        lua_pushliteral(L, ".");
    lua_setfield(L, LUA_REGISTRYINDEX, SANDBOX_FOLDER);
}

static int load_variant(lua_State *L)
{
    Load *l = lua_touserdata(L, 1);
    int status = LUA_OK;

    if (l->path) {
        set_folder(L, l->path);
        status = sandbox_file(L, l->path, false);
    } else if (l->text) {
        const char *chunk = lua_pushfstring(L, "@%s", l->name);
        status = sandbox_load(L, l->text, strlen(l->text), chunk);
    } else {
        luaL_requiref(L, "flin", luaopen_flin, 0);
        lua_getfield(L, -1, "stdlib");
        lua_getfield(L, -1, l->name);
    }
    if (status != LUA_OK)
        return lua_error(L);
    if (l->of)
        lua_rawgeti(L, LUA_REGISTRYINDEX, l->of);
    if (l->path || l->text)
        lua_call(L, l->of != 0, 1);
    if (!luaL_testudata(L, -1, VARIANT_META))
        lang_fail(L, "end it with: return flin.variant { ... }",
                  "%s: it returns %s, not a variant", l->path ? l->path
                  : l->name, type_text(L, -1));
    keep_variant(L, l);
    return 0;
}

/* ---- handles ---- */

static void write_axes(char *to, size_t size, const Graph *g, bool timed,
                       const uint8_t *order, int rank)
{
    size_t n = (size_t)snprintf(to, size, "%s", timed ? "t" : "");

    for (int i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, "%s%s", n ? " " : "",
                              g->axis[order[i]].name);
}

/* The handle; NULL when memory is out. */
static flin_Variant *new_handle(flin_State *s, const Load *l)
{
    const Graph *g = l->v->step, *st = states_graph(l->v);
    int nargs = g->nin + g->nout + st->nst, i = 0;
    flin_Variant *v = mem_new(&s->guard->like.mem, handle_size(nargs));

    if (!v)
        return NULL;
    for (int k = 0; k < g->nin; k++)
        write_axes(v->axes[i++], sizeof *v->axes, g, g->in[k].timed,
                   g->in[k].order, g->in[k].rank);
    for (int k = 0; k < g->nout; k++)
        write_axes(v->axes[i++], sizeof *v->axes, g, true, g->out[k].order,
                   g->out[k].rank);
    for (int k = 0; k < st->nst; k++)
        write_axes(v->axes[i++], sizeof *v->axes, st, false, st->st[k].order,
                   st->st[k].rank);
    v->s = s;
    v->v = l->v;
    v->ref = l->ref;
    v->said = LUA_NOREF;
    v->nargs = nargs;
    v->next = s->variants;
    return s->variants = v;
}

/* Runs f with `nargs` values on top of L's stack, the last of which is l. */
static flin_Variant *load_with(flin_State *s, lua_State *L, lua_CFunction f,
                               int nargs, Load *l, flin_Error *e)
{
    flin_Variant *v;

    if (!api_protect(s, L, f, nargs, 0, e))
        return NULL;
    v = new_handle(s, l);
    if (!v) {
        luaL_unref(L, LUA_REGISTRYINDEX, l->ref);
        set_error(e, FLIN_ERROR_MEMORY, "out of memory");
    }
    return v;
}

static flin_Variant *load(flin_State *s, Load *l, flin_Error *e)
{
    if (!not_null(s, "the flin_State", e))
        return NULL;
    sandbox_renew(s->L);
    lua_pushlightuserdata(s->L, l);
    return load_with(s, s->L, load_variant, 1, l, e);
}

flin_Variant *flin_load_file(flin_State *s, const char *path, flin_Error *e)
{
    if (!not_null(path, "the path of a script", e))
        return NULL;
    return load(s, &(Load){ .path = path }, e);
}

flin_Variant *flin_load_string(flin_State *s, const char *text,
                               const char *name, flin_Error *e)
{
    if (!not_null(text, "the text of a script", e))
        return NULL;
    return load(s, &(Load){ .text = text, .name = name ? name : "script" }, e);
}

flin_Variant *flin_derive(flin_Variant *v, const char *text, const char *name,
                          flin_Error *e)
{
    if (!not_null(v, "the flin_Variant", e)
        || !not_null(text, "the text of a script", e))
        return NULL;
    return load(v->s, &(Load){ .text = text, .name = name ? name : "script",
                               .of = v->ref }, e);
}

flin_Variant *flin_stage(flin_Variant *v, int i, flin_Error *e)
{
    char text[64];

    snprintf(text, sizeof text, "return (...):stage(%d)", i + 1);
    return flin_derive(v, text, "stage", e);
}

flin_Variant *flin_stdlib(flin_State *s, const char *name, flin_Error *e)
{
    if (!not_null(name, "the name of a variant", e))
        return NULL;
    return load(s, &(Load){ .name = name }, e);
}

flin_Variant *flin_load(flin_State *s, const char *what, flin_Error *e)
{
    size_t n;

    if (!not_null(what, "what to load", e))
        return NULL;
    n = strlen(what);
    if (strchr(what, '\n'))
        return flin_load_string(s, what, NULL, e);
    if (strchr(what, '/') || (n > 4 && !strcmp(what + n - 4, ".lua")))
        return flin_load_file(s, what, e);
    return flin_stdlib(s, what, e);
}

static int take_variant(lua_State *L)
{
    Load *l = lua_touserdata(L, 2);

    variant_check(L, 1);
    lua_settop(L, 1);
    keep_variant(L, l);
    return 0;
}

/* Whether the stack has such an index; others read what they should not. */
static bool has_index(lua_State *L, int i)
{
    int top = lua_gettop(L);

    return i > 0 ? i <= top : i < 0 && i >= -top;
}

flin_Variant *flin_to_variant(flin_State *s, lua_State *L, int i,
                              flin_Error *e)
{
    Load l = { 0 };

    if (!not_null(s, "the flin_State", e)
        || !not_null(L, "the lua_State", e))
        return NULL;
    if (lua_topointer(L, LUA_REGISTRYINDEX)
        != lua_topointer(s->L, LUA_REGISTRYINDEX)) {
        set_error(e, FLIN_ERROR, "flin_to_variant: the state is attached to "
                  "another Lua");
        return NULL;
    }
    if (!lua_checkstack(L, 4)) {
        set_error(e, FLIN_ERROR_MEMORY, "out of memory");
        return NULL;
    }
    if (!has_index(L, i)) {
        set_error(e, FLIN_ERROR, "flin_to_variant: the stack has no such "
                  "index");
        return NULL;
    }
    lua_pushvalue(L, i);
    lua_pushlightuserdata(L, &l);
    return load_with(s, L, take_variant, 2, &l, e);
}

/* ---- what a variant says ---- */

typedef struct Nth { int i; const char *name; } Nth;

static int nth_name(lua_State *L)
{
    Nth *n = lua_touserdata(L, 1);

    luaL_requiref(L, "flin", luaopen_flin, 0);
    lua_getfield(L, -1, "stdlib_names");
    lua_rawgeti(L, -1, (lua_Integer)n->i + 1);
    n->name = lua_tostring(L, -1);      /* the table keeps it */
    return 0;
}

const char *flin_stdlib_name(flin_State *s, int i)
{
    Nth n = { i, NULL };

    if (!s)
        return NULL;
    lua_pushlightuserdata(s->L, &n);
    api_protect(s, s->L, nth_name, 1, 0, NULL);
    return n.name;
}

const char *flin_name(const flin_Variant *v)
{
    return v ? v->v->step->name : NULL;
}

static int push_form(lua_State *L)
{
    const flin_Variant *v = lua_touserdata(L, 1);

    variant_form(L, v->v);
    return 0;
}

const char *flin_form(flin_Variant *v, flin_Error *e)
{
    if (!not_null(v, "the flin_Variant", e))
        return NULL;
    lua_pushlightuserdata(v->s->L, v);
    return api_protect(v->s, v->s->L, push_form, 1, 0, e) ? v->v->form : NULL;
}

int flin_args(const flin_Variant *v)
{
    return v ? v->nargs : 0;
}

int flin_arg(const flin_Variant *v, int i, flin_Arg *a)
{
    if (!v || !a || i < 0 || i >= v->nargs)
        return 0;
    const Graph *g = v->v->step;
    *a = (flin_Arg){ .axes = v->axes[i], .domain = "normal" };
    if (i < g->nin) {
        a->name = g->in[i].name;
        a->role = FLIN_INPUT;
        if (*g->in[i].domain)
            a->domain = g->in[i].domain;
    } else if (i < g->nin + g->nout) {
        a->name = g->out[i - g->nin].name;
        a->role = FLIN_OUTPUT;
    } else {
        a->name = states_graph(v->v)->st[i - g->nin - g->nout].name;
        a->role = FLIN_STATE;
    }
    return 1;
}

int64_t flin_axis_size(const flin_Variant *v, const char *axis)
{
    if (!v || !axis)
        return -1;
    const Graph *g = states_graph(v->v);
    int ax = graph_find_axis(g, axis);

    return ax < AX_DIM ? -1 : g->axis[ax].size;
}

const char *flin_note(const flin_Variant *v)
{
    for (const PlanEntry *p = v ? v->v->plans : NULL; p; p = p->next)
        if (p->chunk)
            return p->note;
    return NULL;
}
