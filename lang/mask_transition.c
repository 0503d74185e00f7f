/* mask_transition.c -- a mask with a transition: the mask says what a state
 * keeps and how what is written and read is weighed; the transition, one of
 * flin.transition, what becomes of the state that a token meets.
 */
#include <string.h>

#include "mask_trace.h"
#include "value.h"

typedef struct Making {
    MaskTrace *t;
    Graph *g;
    const char *name, *axes;
    MaskState of;
    Ref next;
} Making;

static void run_state(Ctx *c, void *ud)
{
    Making *k = ud;

    (void)c;
    k->of = mask_state(k->t->mask, k->g);
}

static void run_declare(Ctx *c, void *ud)
{
    Making *k = ud;

    (void)c;
    graph_state(k->g, k->name, k->axes);
}

static void run_result(Ctx *c, void *ud)
{
    Making *k = ud;

    (void)c;
    mask_result(k->g, &k->of, k->next);
}

static const char help[] = "transition = flin.transition.delta_rule(), or "
    "flin.transition.custom { update = function (c) return c.S end }";

static _Noreturn void refuse(lua_State *L, const char *what)
{
    lang_fail(L, help, "flin.variant: transition: %s", what);
}

static void check_piece(lua_State *L, const MaskTrace *t, int piece)
{
    int top = lua_gettop(L);

    if (lua_getfield(L, piece, "extra") != LUA_TNIL)
        refuse(L, "of several keys a token: a mask weighs one");
    if (t->mask->softmax || t->args->mask)
        refuse(L, "a mask over all pairs of tokens has no state for it");
    if (t->above)
        refuse(L, "what it writes depends on the tokens before, and this mask "
               "weighs those behind, too: causal = false cannot go with it");
    lua_settop(L, top);
}

/* A delta rule writes what its beta says. */
static void check_weight(lua_State *L, const Making *k, int piece)
{
    int top = lua_gettop(L);
    bool feeds = lua_getfield(L, piece, "error_feedback") != LUA_TNIL;

    lua_getfield(L, piece, "name");
    const char *name = lua_tostring(L, -1);
    if (feeds && k->of.w && name && strcmp(name, "custom"))
        lang_fail(L, "leave p.NAME[j] out of the mask, and give beta times it",
                  "flin.variant: transition: %s writes what beta says, and the "
                  "mask has weights of j", name);
    lua_settop(L, top);
}

/* The states that it brings, by name. */
static void declare_states(lua_State *L, Making *k, int piece, Tracer *step)
{
    int top = lua_gettop(L);

    if (lua_getfield(L, piece, "state") == LUA_TTABLE)
        for (lua_pushnil(L); lua_next(L, top + 1); lua_pop(L, 1)) {
            if (lua_type(L, -2) != LUA_TSTRING
                || lua_type(L, -1) != LUA_TSTRING)
                refuse(L, "state = { A = \"k\" }: names with axes as text");
            k->name = lua_tostring(L, -2);
            k->axes = lua_tostring(L, -1);
            protect(L, step->ctx, run_declare, k);
        }
    lua_settop(L, top);
}

static void put_value(lua_State *L, int owner, Tracer *step, const char *name,
                      Ref r)
{
    if (!r)
        return;
    value_push(L, owner, step, r);
    lua_setfield(L, -2, name);
}

/* The value on top as what state `name` becomes; popped. */
static Ref take_next(lua_State *L, Tracer *step, const char *name)
{
    const Graph *g = step->g;
    int i = graph_find_state(g, name);

    if (!value_test(L, -1))
        lang_fail(L, NULL, "flin.variant: transition: update gives no %s, but "
                  "%s", name, type_text(L, -1));
    Ref r = value_arg(L, step, lua_gettop(L));
    if (g->n[r].axes != g->st[i].axes)
        lang_fail(L, NULL, "flin.variant: transition: %s would have axes %s, "
                  "not %s", name, value_axes(L, step, g->n[r].axes),
                  value_axes(L, step, g->st[i].axes));
    lua_pop(L, 1);
    return r;
}

static void push_context(lua_State *L, const Making *k, int owner,
                         Tracer *step, int new)
{
    static const char *const tensor[] = { "k", "v" };

    lua_newtable(L);
    trace_arguments(L, owner, step, "input", "x");
    lua_setfield(L, -2, "x");
    trace_arguments(L, owner, step, "state", "s");
    lua_setfield(L, -2, "s");
    lua_pushvalue(L, new);
    lua_setfield(L, -2, "new");
    for (int i = 0; i < 2; i++)
        put_value(L, owner, step, tensor[i],
                  k->g->in[graph_find_input(k->g, tensor[i])].node);
    put_value(L, owner, step, "S", k->of.kept);
    put_value(L, owner, step, "D", k->of.D);
    put_value(L, owner, step, "w", k->of.w);
}

void mask_transition(lua_State *L, MaskTrace *t, int piece, int owner,
                     Tracer *step)
{
    Making *k = lua_newuserdatauv(L, sizeof *k, 0);

    *k = (Making){ .t = t, .g = t->args };
    if (!lua_istable(L, piece)
        || lua_getfield(L, piece, "update") != LUA_TFUNCTION)
        refuse(L, lua_pushfstring(L, "what flin.transition gives is wanted, "
                                  "not %s", type_text(L, piece)));
    int update = lua_gettop(L);
    check_piece(L, t, piece);
    protect(L, step->ctx, run_state, k);
    check_weight(L, k, piece);
    declare_states(L, k, piece, step);
    int first = k->g->n[k->of.S].index;
    lua_newtable(L);
    int new = lua_gettop(L);
    step->step = true;
    lua_pushvalue(L, update);
    push_context(L, k, owner, step, new);
    lua_call(L, 1, 1);
    k->next = take_next(L, step, k->g->st[first].name);
    for (int i = 0; i < k->g->nst; i++) {
        State *st = &k->g->st[i];
        if (i == first || st->next)
            continue;
        lua_getfield(L, new, st->name);
        st->next = take_next(L, step, st->name);
    }
    protect(L, step->ctx, run_result, k);
    check_compared(L, step);
}
