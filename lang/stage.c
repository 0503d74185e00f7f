/* stage.c -- v:stages, v:stage: a variant's states one stratum after another,
 * each as a variant of its own, of which v:summary says how it goes on; and
 * v:result, its step with one of its results.
 */
#include "bind.h"
#include "value.h"

typedef struct Staging {
    const Variant *v;
    Graph *to;                          /* the stage's step */
    int i;
    Stages all;
} Staging;

static void find_all(Ctx *c, void *ud)
{
    Staging *s = ud;
    const char *why = stages_of(c, s->v->step, &s->all);

    if (why)
        fail(c, 0, "%s has no stages: %s", s->v->step->name, why);
}

static Staging *push_stages(lua_State *L)
{
    Staging *s = lua_newuserdatauv(L, sizeof *s, 0);

    *s = (Staging){ .v = variant_check(L, 1) };
    protect(L, s->v->ctx, find_all, s);
    return s;
}

static void push_names(lua_State *L, const Graph *g, StateSet of)
{
    int n = 0;

    lua_newtable(L);
    for (int i = 0; i < g->nst; i++) {
        if (!(of & STATE(i)))
            continue;
        lua_pushstring(L, g->st[i].name);
        lua_rawseti(L, -2, ++n);
    }
}

static void push_stage(lua_State *L, const Staging *s, int i)
{
    static const char *const carry[] = {
        [CARRY_ENTRIES] = "entries", [CARRY_MAX] = "max",
        [CARRY_ROWS] = "rows", [CARRY_MATRIX] = "matrix",
    };

    lua_createtable(L, 0, 3);
    push_names(L, s->v->step, s->all.of[i]);
    lua_setfield(L, -2, "states");
    push_names(L, s->v->step, s->all.need[i]);
    lua_setfield(L, -2, "needs");
    lua_pushstring(L, carry[s->all.carry[i]]);
    lua_setfield(L, -2, "carry");
}

static int variant_stages(lua_State *L)
{
    const Staging *s = push_stages(L);

    lua_createtable(L, s->all.n, 0);
    for (int i = 0; i < s->all.n; i++) {
        push_stage(L, s, i);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static void make_step(Ctx *c, void *ud)
{
    Staging *s = ud;

    c->file = ctx_string(c, s->v->ctx->file ? s->v->ctx->file : "?");
    stage_step(s->v->step, &s->all, s->i, s->to);
}

/* v:stage(i). */
static int variant_stage(lua_State *L)
{
    lua_Integer i = luaL_checkinteger(L, 2);
    Staging *s = push_stages(L);

    if (i < 1 || i > s->all.n)
        lang_fail(L, NULL, "stage: %s has stages 1 to %d, not %d",
                  s->v->step->name, s->all.n, (int)i);
    Variant *to = variant_push(L, s->v->step->name);
    s->to = to->step;
    s->i = (int)i - 1;
    protect(L, to->ctx, make_step, s);
    return 1;
}

static void take_result(Ctx *c, void *ud)
{
    Staging *s = ud;
    Graph *g = graph_copy(c, s->v->step);

    c->file = ctx_string(c, s->v->ctx->file ? s->v->ctx->file : "?");
    g->out[0] = g->out[s->i];
    g->nout = 1;
    s->to = g;
}

/* v:result(i). */
static int variant_result(lua_State *L)
{
    Staging *s = lua_newuserdatauv(L, sizeof *s, 0);
    lua_Integer i = luaL_checkinteger(L, 2);

    *s = (Staging){ .v = variant_check(L, 1) };
    const Graph *g = s->v->step;
    if (g->layer || g->mask || i < 1 || i > g->nout)
        lang_fail(L, NULL, g->layer || g->mask ? "result: %s has no step of "
                  "its own" : "result: %s has results 1 to %d, not %d",
                  g->name, g->nout, (int)i);
    Variant *to = variant_push(L, g->name);
    s->i = (int)i - 1;
    protect(L, to->ctx, take_result, s);
    to->step = s->to;
    return 1;
}

void stage_methods(lua_State *L)
{
    static const luaL_Reg methods[] = {
        { "stages", variant_stages }, { "stage", variant_stage },
        { "result", variant_result }, { NULL, NULL }
    };

    luaL_setfuncs(L, methods, 0);
}
