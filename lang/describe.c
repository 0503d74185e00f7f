/* describe.c -- what a variant says of itself: fields, graphs, plans. */
#include <ctype.h>
#include <string.h>

#include "../backend/cuda/cuda.h"
#include "../compiler/domain.h"
#include "bind.h"
#include "io.h"
#include "plan_view.h"
#include "value.h"

/* ---- fields ---- */

/* "t k", pushed. */
static void push_axes(lua_State *L, const Graph *g, bool timed,
                      const uint8_t *order, int rank)
{
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    luaL_addstring(&b, timed ? "t" : "");
    for (int i = 0; i < rank; i++) {
        luaL_addstring(&b, i || timed ? " " : "");
        luaL_addstring(&b, g->axis[order[i]].name);
    }
    luaL_pushresult(&b);
}

static void push_inputs(lua_State *L, const Graph *g)
{
    lua_createtable(L, g->nin, 0);
    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        lua_createtable(L, 0, 5);
        lua_pushstring(L, in->name);
        lua_setfield(L, -2, "name");
        push_axes(L, g, in->timed, in->order, in->rank);
        lua_setfield(L, -2, "axes");
        lua_pushstring(L, *in->domain ? in->domain : "normal");
        lua_setfield(L, -2, "domain");
        lua_pushstring(L, domain_named(in->domain)->wanted);
        lua_setfield(L, -2, "wanted");
        lua_pushstring(L, domain_named(in->domain)->unit);
        lua_setfield(L, -2, "unit");
        lua_rawseti(L, -2, i + 1);
    }
}

static void push_states(lua_State *L, const Graph *g)
{
    lua_createtable(L, g->nst, 0);
    for (int i = 0; i < g->nst; i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, g->st[i].name);
        lua_setfield(L, -2, "name");
        push_axes(L, g, false, g->st[i].order, g->st[i].rank);
        lua_setfield(L, -2, "axes");
        lua_pushboolean(L, g->st[i].angle);
        lua_setfield(L, -2, "angle");
        lua_rawseti(L, -2, i + 1);
    }
}

/* Names to sizes; false where calls say. */
static void push_sizes(lua_State *L, const Graph *g)
{
    lua_newtable(L);
    for (int ax = AX_DIM; ax < g->naxes; ax++) {
        if (g->axis[ax].size)
            lua_pushinteger(L, g->axis[ax].size);
        else
            lua_pushboolean(L, 0);
        lua_setfield(L, -2, g->axis[ax].name);
    }
}

/* A list of results: y first. */
static void push_outputs(lua_State *L, const Graph *g)
{
    lua_createtable(L, g->nout, 0);
    for (int o = 0; o < g->nout; o++) {
        lua_createtable(L, 0, 2);
        lua_pushstring(L, g->out[o].name);
        lua_setfield(L, -2, "name");
        push_axes(L, g, true, g->out[o].order, g->out[o].rank);
        lua_setfield(L, -2, "axes");
        lua_rawseti(L, -2, o + 1);
    }
}

/* Is a gradient of the step held back? */
static bool detaches(const Graph *g)
{
    bool any = false;

    for (Ref r = 1; r < g->len; r++)
        any = any || g->n[r].op == OP_detach;
    return any;
}

/* Upvalue: the methods. */
static int variant_index(lua_State *L)
{
    Variant *v = variant_check(L, 1);
    const char *key = luaL_tolstring(L, 2, NULL);
    const Graph *g = v->step;

    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL)
        return 1;
    if (!strcmp(key, "name"))
        lua_pushstring(L, g->name);
    else if (!strcmp(key, "inputs"))
        push_inputs(L, g);
    else if (!strcmp(key, "states"))
        push_states(L, states_graph(v));
    else if (!strcmp(key, "output"))
        push_axes(L, g, true, g->out[0].order, g->out[0].rank);
    else if (!strcmp(key, "outputs"))
        push_outputs(L, g);
    else if (!strcmp(key, "probes"))
        probes_push(L, v);
    else if (!strcmp(key, "axes"))
        push_sizes(L, g);
    else if (!strcmp(key, "about"))
        lua_pushstring(L, v->about);
    else if (!strcmp(key, "form"))
        lua_pushstring(L, variant_form(L, v));
    else if (!strcmp(key, "note"))
        lua_pushstring(L, latest_note(v));
    else if (!strcmp(key, "detaches"))
        lua_pushboolean(L, detaches(g));
    else if (!strcmp(key, "is_layer"))
        lua_pushboolean(L, g->layer != NULL);
    else if (!strcmp(key, "beside"))
        layer_push_beside(L, v);
    else
        lua_pushnil(L);
    return 1;
}

/* "NAME: q [t k], k [t k : unit_norm] ... -> y [t v]", then its form. */
static int variant_tostring(lua_State *L)
{
    Variant *v = variant_check(L, 1);
    const Graph *g = v->step;
    const char *form = variant_form(L, v);
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    luaL_addstring(&b, g->name);
    for (int i = 0; i < g->nin; i++) {
        const Input *in = &g->in[i];
        luaL_addstring(&b, i ? ", " : ": ");
        luaL_addstring(&b, in->name);
        luaL_addstring(&b, " [");
        push_axes(L, g, in->timed, in->order, in->rank);
        luaL_addvalue(&b);
        luaL_addstring(&b, *in->domain ? " : " : "");
        luaL_addstring(&b, in->domain);
        luaL_addstring(&b, "]");
    }
    for (int o = 0; o < g->nout; o++) {
        luaL_addstring(&b, o ? ", " : " -> ");
        luaL_addstring(&b, g->out[o].name);
        luaL_addstring(&b, " [");
        push_axes(L, g, true, g->out[o].order, g->out[o].rank);
        luaL_addvalue(&b);
        luaL_addstring(&b, "]");
    }
    luaL_addstring(&b, "\n");
    luaL_addlstring(&b, form, strlen(form) - 1);    /* less the line's end */
    luaL_pushresult(&b);
    return 1;
}

/* ---- what each pass makes ---- */

enum { USUAL_SIZE = 64 };

typedef struct Dump {
    Variant *v;
    const char *letters;
    int32_t size[NAXES];
    Args args;
    const Machine *m;
    Buf out;
} Dump;

/* The text of a plan can be read in; what is said of it is a comment. */
static void comment(Buf *out, const Buf *text)
{
    for (size_t i = 0; i < text->len; i++) {
        if (i == 0 || text->s[i - 1] == '\n')
            buf_put(out, "# ", 2);
        buf_put(out, &text->s[i], 1);
    }
}

static void dump_joint(Ctx *c, Dump *d, char letter)
{
    PlanView ask = { .asked = d->args.chunk, .backward = true,
                     .m = letter == 'K' && !d->m->arch
                          ? machine_usual_gpu() : d->m };

    if (letter == 'K' && !ask.asked)
        ask.asked = 64;
    memcpy(ask.size, d->size, sizeof ask.size);
    const PlanView *w = plan_find(c, d->v, &ask);
    comment(&d->out, &w->text);
    if (letter == 'P')
        plan_print(w->p, &d->out);
    else if (letter == 'K')
        buf_printf(&d->out, "%s", cuda_schedules(c, w->made, w->m));
    else
        graph_print(w->made->g, &d->out);
}

static void dump_chunk(Ctx *c, Dump *d)
{
    const Backend *b = d->args.backend ? d->args.backend
                                       : backend_named("cpu");
    PlanEntry *e = plan_for(c, d->v, d->size, plan_chunk(&d->args), false, b);

    if (e->note)
        buf_printf(&d->out, "# token by token: %.*s\n",
                   (int)strcspn(e->note, "\n"), e->note);
    else
        graph_print(e->plan->g, &d->out);
}

static void run_dump(Ctx *c, void *ud)
{
    Dump *d = ud;

    d->out.ctx = c;
    for (const char *p = d->letters; *p; p++) {
        for (int i = 0; i < NPASSES; i++)
            if (pipeline[i].letter == *p)
                buf_printf(&d->out, "# %c: %s\n", *p, pipeline[i].gives);
        if (*p == 'T')
            graph_print(d->v->step, &d->out);
        else if (*p == 'C')
            dump_chunk(c, d);
        else
            dump_joint(c, d, *p);
    }
}

static void check_letters(lua_State *L, const char *letters)
{
    for (const char *p = letters; *p; p++) {
        bool known = false;
        for (int i = 0; i < NPASSES; i++)
            known = known || pipeline[i].letter == *p;
        if (known)
            continue;
        luaL_Buffer b;
        luaL_buffinit(L, &b);
        for (int i = 0; i < NPASSES; i++) {
            if (!pipeline[i].letter)
                continue;
            luaL_addstring(&b, i ? ", " : "");
            luaL_addchar(&b, pipeline[i].letter);
            luaL_addstring(&b, " ");
            luaL_addstring(&b, pipeline[i].gives);
        }
        luaL_pushresult(&b);
        lang_fail(L, lua_tostring(L, -1), "dump: no pass has the letter '%c'",
                  *p);
    }
}

/* The text of these passes for sizes such as { K = 64, V = 64, chunk = }. */
static int push_dump(lua_State *L, const char *what, const char *letters,
                     int arg)
{
    static const char *const also[] = { "chunk", "backend", "threads",
        "machine" };
    Variant *v = variant_check(L, 1);
    Dump *d = lua_newuserdatauv(L, sizeof *d, 0);

    memset(d, 0, sizeof *d);
    d->v = v;
    d->letters = letters;
    check_options(L, what, v->step, arg, also, 4);
    d->m = machine_option(L, what, arg, "cpu");
    run_options(L, what, arg, &d->args);
    sizes_arg(L, what, v->step, arg, USUAL_SIZE, d->size);
    protect(L, v->ctx, run_dump, d);
    lua_pushlstring(L, d->out.s ? d->out.s : "", d->out.len);
    return 1;
}

static int variant_graph(lua_State *L)
{
    lua_settop(L, 2);
    return push_dump(L, "graph", "T", 2);
}

static int variant_dump(lua_State *L)
{
    lua_settop(L, 3);
    if (lua_type(L, 2) != LUA_TSTRING)
        lang_fail(L, "v:dump(\"TCP\")", "dump: letters are wanted, not %s",
                  type_text(L, 2));
    check_letters(L, lua_tostring(L, 2));
    if (strcmp(lua_tostring(L, 2), "T"))
        refuse_layer(L, variant_check(L, 1), "dump");
    return push_dump(L, "dump", lua_tostring(L, 2), 3);
}

static const luaL_Reg methods[] = {
    { "graph", variant_graph },
    { "dump", variant_dump },
    { "source", variant_source },
    { "compile", variant_compile },
    { NULL, NULL }
};

void describe_methods(lua_State *L)
{
    luaL_newlib(L, methods);
}

void describe_fields(lua_State *L)
{
    lua_pushcclosure(L, variant_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, variant_tostring);
    lua_setfield(L, -2, "__tostring");
}
