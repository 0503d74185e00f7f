/* concrete_token.c -- a step's function run on the numbers of one token. */
#include <string.h>

#include "../compiler/elem.h"
#include "concrete.h"
#include "watch.h"

void concrete_room(Ctx *ctx, Concrete *c)
{
    const Graph *g = c->g;

    for (int i = 0; i < g->nin; i++)
        c->in[i] = ctx_alloc(ctx, (size_t)numbers_count(c, g->in[i].axes)
                             * sizeof(double));
    for (int i = 0; i < g->nst; i++) {
        size_t bytes = (size_t)numbers_count(c, g->st[i].axes) * sizeof(double);
        c->now[i] = ctx_alloc(ctx, bytes);
        c->next[i] = ctx_alloc(ctx, bytes);
    }
    for (int i = 0; i < g->nout; i++) {
        AxisSet axes = g->n[g->out[i].node].axes;
        c->out[i] = ctx_alloc(ctx, (size_t)numbers_count(c, axes)
                              * sizeof(double));
    }
    if (g->layer)
        layer_room(ctx, c);
}

/* Is it flin.prev's? */
static bool of_prev(const Concrete *c, int state)
{
    for (int i = 0; i < c->nprevs; i++)
        if (c->prevs[i] == state)
            return true;
    return false;
}

static void wrap_states(const Concrete *c)
{
    for (int i = 0; i < c->g->nst; i++)
        for (int64_t k = 0; c->g->st[i].angle
             && k < numbers_count(c, c->g->st[i].axes); k++)
            c->next[i][k] = wrap_(c->next[i][k]);
}

/* A layer's result, at stack index `at`: its states are those of calls. */
static void take_result(lua_State *L, Concrete *c, int at)
{
    const Graph *g = c->g;

    if (lua_gettop(L) != at)
        lang_fail(L, "end it with: return y", "run on numbers, forward does "
                  "not return y");
    numbers_take(L, c, "y", g->n[g->out[0].node].axes, c->out[0]);
    check_calls(L, c);
}

static const char results_help[] = "name the same results for each token";

/* The results, from stack index `at` on. */
static void take_results(lua_State *L, Concrete *c, int at)
{
    const Graph *g = c->g;

    if (lua_gettop(L) != at + 1 || !lua_istable(L, at))
        lang_fail(L, "end it with: return { S = S }, y", "run on numbers, the "
                  "step does not return the new states and y");
    bool named = lua_istable(L, at + 1);
    if (!named && g->nout > 1)
        lang_fail(L, results_help, "run on numbers, the step returns one "
                  "result, and %d in its trace", g->nout);
    for (int i = g->nout; i-- > 0;) {   /* y is on top, where it is alone */
        const Output *o = &g->out[i];
        if (named)
            lua_getfield(L, at + 1, o->name);
        numbers_take(L, c, o->name, g->n[o->node].axes, c->out[i]);
    }
    for (int i = 0; i < g->nst; i++) {
        const State *st = &g->st[i];
        if (of_prev(c, i))
            continue;
        lua_getfield(L, at, st->name);
        numbers_take(L, c, st->name, st->axes, c->next[i]);
    }
}

/* Pushes the table of the inputs; of a layer, of those that have tokens, or of
 * the weights. */
static void push_inputs(lua_State *L, const Concrete *c, bool weights)
{
    const Graph *g = c->g;

    lua_createtable(L, 0, g->nin);
    for (int i = 0; i < g->nin; i++) {
        if (g->layer && g->in[i].timed == weights)
            continue;
        numbers_push(L, c, g->in[i].axes, c->in[i]);
        lua_setfield(L, -2, g->in[i].name);
    }
}

static void push_states(lua_State *L, const Concrete *c)
{
    const Graph *g = c->g;

    lua_createtable(L, 0, g->nst);
    for (int i = 0; i < g->nst; i++) {
        if (of_prev(c, i))
            continue;
        numbers_push(L, c, g->st[i].axes, c->now[i]);
        lua_setfield(L, -2, g->st[i].name);
    }
}

void concrete_token(lua_State *L, Concrete *c, int f)
{
    bool layer = c->g->layer != NULL;

    luaL_checkstack(L, 12, NULL);
    lua_pushvalue(L, f);
    int at = lua_gettop(L);
    push_inputs(L, c, false);
    if (layer)
        push_inputs(L, c, true);
    else
        push_states(L, c);
    c->at_prev = c->at_call = 0;
    lua_call(L, 2, LUA_MULTRET);
    if (layer)
        take_result(L, c, at);
    else
        take_results(L, c, at);
    wrap_states(c);
    if (c->at_prev != c->nprevs)
        lang_fail(L, "call flin.prev in each token alike", "prev: run on "
                  "numbers, the step calls it less often than in its trace");
    lua_settop(L, at - 1);
}
