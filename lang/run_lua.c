/* run_lua.c -- v:forward, v:reference, v:step, v:prepare, v:summary. */
#include <string.h>

#include "truth.h"

/* ---- results ---- */

/* Pushes y, or, where there are several results, the table of them. */
static void push_y(lua_State *L, Run *r)
{
    int64_t shape[TENSOR_RANK];
    const Graph *g = r->v->step;
    Given y;

    if (g->nout > 1)
        lua_createtable(L, 0, g->nout);
    for (int o = 0; o < g->nout; o++) {
        int rank = result_shape(g, &r->bound, o, shape);
        push_result(L, r, y_dtype(g, &r->bound), rank, shape, &y);
        r->bound.call.out[o] = result_view(g, o, &y);
        if (g->nout > 1)
            lua_setfield(L, -2, g->out[o].name);
    }
}

/* Pushes the table of the states that are left behind; nil: none is wanted. */
static void push_states(lua_State *L, Run *r)
{
    int64_t shape[TENSOR_RANK];
    const Graph *g = r->v->step;

    if (r->stateless) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 0, g->nst);
    if (r->inplace)
        raw_field(L, 2, mode_steps(r->args.mode) ? "state" : "initial_state");
    for (int i = 0; i < g->nst; i++) {
        Given s = r->args.state[i];
        if (r->inplace) {
            raw_field(L, -1, g->st[i].name);
            tensor_any(L, -1)->store->writes++;
            lua_setfield(L, -3, g->st[i].name);
        } else {
            int rank = state_shape(g, &r->bound, i, shape);
            push_result(L, r, state_dtype(g, &r->bound, i), rank, shape, &s);
            lua_setfield(L, -2, g->st[i].name);
        }
        r->bound.call.s1[i] = final_view(g, &r->bound, i, &s);
    }
    if (r->inplace)
        lua_pop(L, 1);
}

/* ---- calls ---- */

static void do_run(Ctx *c, void *ud)
{
    Run *r = ud;

    run_bound(c, r->v, &r->args, &r->bound);
}

/* Of what has run in the host's memory. */
static void do_validate(Ctx *c, void *ud)
{
    Run *r = ud;

    validate_call(c, r->v, &r->args, &r->bound, NULL, r->before);
}

static void do_look(Ctx *c, void *ud)
{
    Run *r = ud;

    r->before = validate_before(c, r->v, &r->args, &r->bound, NULL);
}

void reference_call(lua_State *L, Run *r)
{
    if (r->v->has_function && !r->v->masked && !r->bound.call.on_device)
        protect(L, r->ctx, do_look, r);
    if (truth_run(L, r))
        protect(L, r->ctx, do_validate, r);
    else
        protect_call(L, r, do_run, r);
    mask_reference(L, r);
}

static int run_mode(lua_State *L, Mode mode)
{
    join_options(L, mode_name[mode]);
    Run *r = run_begin(L, mode);

    push_y(L, r);
    push_states(L, r);
    if (mode == M_REFERENCE)
        reference_call(L, r);
    else
        protect_call(L, r, do_run, r);
    say_road(L, r->ctx, r->v, &r->args);
    run_end(r);
    return 2;
}

int run_trouble(lua_State *L)
{
    Run *r = run_begin(L, M_FORWARD);

    r->args.validate = 2;
    push_y(L, r);
    push_states(L, r);
    if (try_call(r, do_run, r))
        lua_pushnil(L);
    else if (r->ctx->err.code != ERR_USER)
        lang_raise(L, &r->ctx->err);
    else
        lua_pushstring(L, r->ctx->err.message + strlen("forward: "));
    run_end(r);
    return 1;
}

/* ---- saving ---- */

typedef struct Saving { Run *r; int64_t bytes; Stored room; } Saving;

static void find_bytes(Ctx *c, void *ud)
{
    Saving *s = ud;

    s->bytes = saved_bytes(c, s->r->v, &s->r->args, &s->r->bound);
}

static void do_saved(Ctx *c, void *ud)
{
    Saving *s = ud;
    Run *r = s->r;

    if (s->bytes) {
        run_saved(c, r->v, &r->args, &r->bound, s->room);
        s->room.note = note_saved(c, r->v, &r->args, &r->bound, s->room.at);
    } else {
        run_bound(c, r->v, &r->args, &r->bound);
    }
}

/* v:forward{ save = true }: what the joint plan stores for the way back goes
 * into the third result. */
static int forward_saving(lua_State *L)
{
    Saving s = { .r = run_begin(L, M_FORWARD) };
    int room = 0;

    protect_call(L, s.r, find_bytes, &s);
    if (s.bytes) {
        s.room = push_room(L, s.r, s.bytes);
        room = lua_gettop(L);
    }
    push_y(L, s.r);
    push_states(L, s.r);
    protect_call(L, s.r, do_saved, &s);
    say_road(L, s.r->ctx, s.r->v, &s.r->args);
    run_end(s.r);
    push_saved(L, s.room, room);
    return 3;
}

static bool given(lua_State *L, const char *name)
{
    bool is = lua_istable(L, 2) && raw_field(L, 2, name) != LUA_TNIL;

    lua_settop(L, 2);
    return is;
}

static void do_prepare(Ctx *c, void *ud)
{
    Run *r = ud;

    prepare_bound(c, r->v, &r->args, &r->bound);
}

/* v:prepare{...}: all that such a call needs beside its tensors is made now.
 * With dy or dstate it is a call of v:backward, with state of v:step. */
static int variant_prepare(lua_State *L)
{
    join_options(L, "prepare");
    lua_settop(L, 2);
    if (given(L, "dy") || given(L, "dstate") || given(L, "saved")) {
        backward_prepare(L);
    } else {
        Run *r = run_begin(L, given(L, "state") ? M_STEP : M_FORWARD);
        push_y(L, r);
        push_states(L, r);
        protect_call(L, r, do_prepare, r);
        run_end(r);
    }
    lua_settop(L, 1);
    return 1;
}

static int variant_forward(lua_State *L)
{
    join_options(L, mode_name[M_FORWARD]);
    return option_flag(L, mode_name[M_FORWARD], 2, "save")
         ? forward_saving(L) : run_mode(L, M_FORWARD);
}

typedef struct Summing {
    Run *r;
    Transition t;
    Given transition[MAX_STATES];
} Summing;

static void find_summary(Ctx *c, void *ud)
{
    Summing *s = ud;

    find_transition(c, s->r->v->step, &s->t);
}

static void do_summary(Ctx *c, void *ud)
{
    Summing *s = ud;
    Run *r = s->r;

    run_summary(c, r->v, &r->args, &r->bound, s->transition);
}

/* v:summary{...}: the states of a start at zero, and their transition. */
static int variant_summary(lua_State *L)
{
    int64_t shape[TENSOR_RANK];
    int n = 0;

    join_options(L, "summary");
    Run *r = run_begin(L, M_FORWARD);
    Summing *s = lua_newuserdatauv(L, sizeof *s, 0);
    const Graph *g = r->v->step;
    memset(s, 0, sizeof *s);
    s->r = r;
    protect(L, r->ctx, find_summary, s);
    lua_createtable(L, 0, s->t.n);
    lua_createtable(L, 0, s->t.n);
    for (int i = 0; i < g->nst; i++) {
        Given own;
        if (!(s->t.of & STATE(i)))
            continue;
        int rank = state_shape(g, &r->bound, i, shape);
        push_result(L, r, state_dtype(g, &r->bound, i), rank, shape, &own);
        lua_setfield(L, -3, g->st[i].name);
        r->bound.call.s1[i] = final_view(g, &r->bound, i, &own);
        rank = transition_shape(g, &s->t, &r->bound, shape);
        push_result(L, r, F32, rank, shape, &s->transition[n++]);
        lua_setfield(L, -2, g->st[i].name);
    }
    protect_call(L, r, do_summary, s);
    run_end(r);
    return 2;
}

static int variant_reference(lua_State *L) { return run_mode(L, M_REFERENCE); }
static int variant_step(lua_State *L) { return run_mode(L, M_STEP); }
static int variant_verify(lua_State *L) { return run_mode(L, M_VERIFY); }

void run_methods(lua_State *L)
{
    static const luaL_Reg methods[] = {
        { "forward", variant_forward },
        { "reference", variant_reference },
        { "step", variant_step },
        { "verify", variant_verify },
        { "prepare", variant_prepare },
        { "summary", variant_summary },
        { NULL, NULL }
    };

    luaL_setfuncs(L, methods, 0);
}
