/* probe.c -- flin.probe("err", e) in a step: a value that somebody may look at.
 *
 * It changes nothing of the variant: its trace keeps the name alone. Who asks
 * has another variant traced from the same function, v:probed(), of which the
 * values are results as well: so they come from wherever results do.
 */
#include <string.h>

#include "bind.h"
#include "concrete.h"
#include "truth.h"
#include "value.h"

/* While a step runs whose probes are results: the table that takes them. */
static const char taken_key = 0;        /* its address is the registry's key */

/* ---- flin.probe ---- */

static const char probe_help[] = "flin.probe(\"err\", e), in a step";

/* The name of the call's probe. */
static const char *probe_name(lua_State *L)
{
    if (lua_gettop(L) != 2)
        lang_fail(L, probe_help, "probe: a name and a value are wanted");
    if (lua_type(L, 1) != LUA_TSTRING)
        lang_fail(L, probe_help, "probe: the name comes first, not %s",
                  type_text(L, 1));
    const char *name = lua_tostring(L, 1);
    if (!axis_name_ok(name))
        lang_fail(L, "a letter, then letters, digits and _: 20 at most",
                  "probe: '%s' is not a usable name", name);
    return name;
}

static void refuse_place(lua_State *L, const Tracer *t)
{
    if (t->g->layer)
        lang_fail(L, "probe in the step of a variant that the layer calls, "
                  "and call that", "probe: it looks into a step, not into a "
                  "layer");
    if (!t->step)
        lang_fail(L, probe_help, "probe: it looks into a step, not into %s",
                  t->decide ? "a mask" : "another function");
}

static void refuse_name(lua_State *L, const Tracer *t, const char *name)
{
    for (int i = 0; i < t->nprobes; i++)
        if (!strcmp(t->probes[i].name, name))
            lang_fail(L, "each probe has a name of its own; a function that "
                      "is called twice is given one: flin.probe(\"err\" .. i, "
                      "e)", "probe: '%s' is there already, on line %d", name,
                      t->probes[i].line);
    bool in = graph_find_input(t->g, name) >= 0;
    if (in || graph_find_state(t->g, name) >= 0)
        lang_fail(L, "give the probe another name", "probe: '%s' is %s's name",
                  name, in ? "an input" : "a state");
}

/* The value at 2, of a step that is being traced. */
static void trace_probe(lua_State *L, const char *name)
{
    Tracer *t = NULL;

    if (!find_value(L, 2, 2, &t))
        check_misused(L, 2);
    if (numbers_test(L, 2))
        lang_fail(L, probe_help, "probe: '%s' belongs to a step that has been "
                  "traced already", name);
    if (!t)
        lang_fail(L, lua_type(L, 2) == LUA_TNUMBER ? "print it: it is the same"
                  " for every token" : probe_help, "probe: '%s' is %s, not a "
                  "value of a step", name, type_text(L, 2));
    refuse_place(L, t);
    refuse_name(L, t, name);
    const Node *n = &t->g->n[value_arg(L, t, 2)];
    if (__builtin_popcount(n->axes) > TENSOR_RANK - 3)
        lang_fail(L, NULL, "probe: '%s' has axes %s: with batch, tokens and "
                  "heads that is more than a tensor's %d", name,
                  value_axes(L, t, n->axes), TENSOR_RANK);
    if (t->nprobes == MAX_RESULTS - 1)
        lang_fail(L, "take some out", "probe: more than %d", MAX_RESULTS - 1);
    Probed *p = &t->probes[t->nprobes++];
    memcpy(p->name, name, strlen(name) + 1);
    p->line = current_line(L);
}

/* probe(name, value): the value. */
int flin_probe(lua_State *L)
{
    const char *name = probe_name(L);

    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &taken_key) == LUA_TTABLE) {
        lua_pushvalue(L, 2);
        lua_setfield(L, -2, name);
    } else if (!concrete_now(L)) {
        trace_probe(L, name);
    }
    lua_settop(L, 2);
    return 1;
}

/* ---- v:probed ---- */

void probes_push(lua_State *L, const Variant *v)
{
    lua_createtable(L, v->nprobes, 0);
    for (int i = 0; i < v->nprobes; i++) {
        lua_pushstring(L, v->probes[i].name);
        lua_rawseti(L, -2, i + 1);
    }
}

/* The step of v:probed(). Upvalues: the step; the names of its probes. */
static int probed_step(lua_State *L)
{
    lua_settop(L, 2);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &taken_key);      /* 3: before */
    lua_newtable(L);                                    /* 4 */
    lua_pushvalue(L, 4);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &taken_key);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    int status = lua_pcall(L, 2, 2, 0);
    lua_pushvalue(L, 3);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &taken_key);
    if (status != LUA_OK)
        return lua_error(L);
    lua_newtable(L);                                    /* 7 */
    bool several = lua_istable(L, 6);
    for (lua_pushnil(L); several && lua_next(L, 6); ) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, 7);
    }
    lua_settop(L, 7);
    lua_pushvalue(L, 6);
    if (!several)
        lua_setfield(L, 7, "y");
    lua_settop(L, 7);
    lua_Integer n = (lua_Integer)lua_rawlen(L, lua_upvalueindex(2));
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, lua_upvalueindex(2), i);
        if (lua_getfield(L, 4, lua_tostring(L, -1)) == LUA_TNIL)
            lang_fail(L, "a step goes the same way for every token",
                      "probe: the step has not come to '%s'",
                      lua_tostring(L, -2));
        lua_setfield(L, 7, lua_tostring(L, -2));
        lua_pop(L, 1);
    }
    lua_pushvalue(L, 5);
    lua_pushvalue(L, 7);
    return 2;
}

typedef struct Declare { const Variant *v; Variant *to; } Declare;

static void run_declare(Ctx *c, void *ud)
{
    const Declare *d = ud;

    c->file = ctx_string(c, d->v->ctx->file);
    d->to->about = ctx_string(c, d->v->about);
    d->to->declared = d->v->declared;
    declare_again(d->to->step, d->v->step, d->v->declared);
}

/* Pushes a variant that is traced anew from v, at 1. */
static void push_probed(lua_State *L, const Variant *v)
{
    Variant *to = variant_push(L, v->step->name);
    int at = lua_gettop(L);
    Tracer *t = tracer_push(L, at, to);
    int owner = lua_gettop(L);

    protect(L, to->ctx, run_declare, &(Declare){ v, to });
    lua_getiuservalue(L, 1, OF_FUNCTION);
    probes_push(L, v);
    lua_pushcclosure(L, probed_step, 2);
    int f = lua_gettop(L);
    Place begins = trace_step(L, f, owner, t);
    t->closed = true;
    check_step(L, at, f, t, begins);
    keep_lines(L, to);
    initial_copy(L, at, 1);
    lua_settop(L, at);
}

/* Of { v, functions }, on top, pushes v:probed():map(functions). */
static void push_mapped(lua_State *L)
{
    int made = lua_gettop(L);

    lua_pushcfunction(L, variant_map);
    lua_rawgeti(L, made, 1);
    lua_getfield(L, -1, "probed");
    lua_insert(L, -2);
    lua_call(L, 1, 1);
    lua_rawgeti(L, made, 2);
    lua_call(L, 2, 1);
}

/* v:probed(): the variant whose results are v's and what its step probes. */
static int variant_probed(lua_State *L)
{
    const Variant *v = variant_check(L, 1);

    refuse_layer(L, v, "probed");
    lua_settop(L, 1);
    if (!v->nprobes)
        lang_fail(L, "name a value in it: flin.probe(\"err\", e)",
                  "%s: its step has no probe", v->step->name);
    if (lua_getiuservalue(L, 1, OF_PROBED) != LUA_TNIL)
        return 1;
    if (lua_getiuservalue(L, 1, OF_MAP) == LUA_TTABLE)
        push_mapped(L);
    else
        push_probed(L, v);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, OF_PROBED);
    return 1;
}

/* v:probe(...): v:probed():forward(...). */
static int variant_probe(lua_State *L)
{
    int n = lua_gettop(L);

    lua_pushcfunction(L, variant_probed);
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    lua_replace(L, 1);
    lua_getfield(L, 1, "forward");
    lua_insert(L, 1);
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L);
}

void variant_methods(lua_State *L)
{
    static const luaL_Reg methods[] = {
        { "map", variant_map }, { "probed", variant_probed },
        { "probe", variant_probe }, { NULL, NULL }
    };

    luaL_setfuncs(L, methods, 0);
}
