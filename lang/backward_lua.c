/* backward_lua.c -- v:backward and v:reference_backward, as Lua calls them. */
#include <string.h>

#include "../compiler/scores.h"
#include "run.h"
#include "truth.h"

#define SAVED_META "flin.saved"

typedef struct BackRun {
    Run *r;
    Adjoint d;
    bool inplace[MAX_INPUTS];           /* the gradient lies where that does */
} BackRun;

/* ---- saved ---- */

enum { ALIGN = 64 };

/* What v:forward{ save = true } leaves: what the plan has stored, how often
 * each argument had been written to; as user values the variant, the arguments
 * (without copies of the tensors) and the tensor that is the room. */
typedef struct Saved {
    Stored room;
    uint32_t writes[MAX_INPUTS + MAX_STATES];
} Saved;
enum { OF_VARIANT = 1, OF_ARGS, OF_ROOM };

Stored push_room(lua_State *L, const Run *r, int64_t bytes)
{
    int64_t n = (bytes + ALIGN) / (int64_t)sizeof(float) + 1;
    Given room;

    push_result(L, r, F32, 1, &n, &room);
    uintptr_t at = (uintptr_t)room.data + ALIGN - 1;
    return (Stored){ .at = (void *)(at / ALIGN * ALIGN), .bytes = bytes,
                     .device = room.device };
}

/* saved.bytes: what is stored for v:backward, beside the arguments. */
static int saved_index(lua_State *L)
{
    const Saved *s = luaL_testudata(L, 1, SAVED_META);
    const char *key = lua_tostring(L, 2);

    if (!s || !key || strcmp(key, "bytes"))
        return 0;
    lua_pushinteger(L, s->room.bytes);
    return 1;
}

/* How often the argument has been written to: input i, or, behind these, a
 * state. */
static uint32_t writes_of(lua_State *L, int args, const Graph *g, int i)
{
    int top = lua_gettop(L);

    if (i < g->nin)
        lua_getfield(L, args, g->in[i].name);
    else if (lua_getfield(L, args, "initial_state") == LUA_TTABLE)
        lua_getfield(L, -1, g->st[i - g->nin].name);
    const Tensor *t = tensor_test(L, -1);
    lua_settop(L, top);
    return t ? t->store->writes : 0;
}

/* Into the table on top: what the one at `from` has, its own tables as copies.
 */
static void copy_fields(lua_State *L, int from, bool deep)
{
    for (lua_pushnil(L); lua_next(L, from);) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        if (deep && lua_istable(L, -1)) {
            lua_newtable(L);
            copy_fields(L, lua_gettop(L) - 1, false);
            lua_remove(L, -2);
        }
        lua_settable(L, -4);
    }
}

void push_saved(lua_State *L, Stored stored, int room)
{
    const Graph *g = variant_check(L, 1)->step;
    Saved *s = lua_newuserdatauv(L, sizeof *s, OF_ROOM);

    *s = (Saved){ .room = stored };
    if (luaL_newmetatable(L, SAVED_META)) {
        lua_pushcfunction(L, saved_index);
        lua_setfield(L, -2, "__index");
        lua_pushliteral(L, "saved");
        lua_setfield(L, -2, "__metatable");
    }
    lua_setmetatable(L, -2);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, OF_VARIANT);
    lua_newtable(L);
    copy_fields(L, 2, true);
    for (int i = 0; i < g->nin + g->nst; i++)
        s->writes[i] = writes_of(L, lua_gettop(L), g, i);
    lua_setiuservalue(L, -2, OF_ARGS);
    if (room)
        lua_pushvalue(L, room);
    else
        lua_pushnil(L);
    lua_setiuservalue(L, -2, OF_ROOM);
}

/* The saved call's arguments, at `args`, must be what they were, but for those
 * that the call at index 2 replaces. */
static void check_writes(lua_State *L, const Saved *s, int args,
                         const Graph *g, const char *what)
{
    for (int i = 0; i < g->nin + g->nst; i++) {
        const char *name = i < g->nin ? g->in[i].name : g->st[i - g->nin].name;
        bool same = raw_field(L, 2, i < g->nin ? name : "initial_state")
                 == LUA_TNIL;
        lua_pop(L, 1);
        if (same && writes_of(L, args, g, i) != s->writes[i])
            lang_fail(L, "x:clone() before it is written to",
                      "%s: %s%s has been written to since v:forward saved it",
                      what, i < g->nin ? "" : "initial_state.", name);
    }
}

/* Whether the call at index 2 adds gradients alone, and what changes no number:
 * then what was stored holds. */
static bool adds_gradients(lua_State *L)
{
    bool only = true;

    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING
                        ? lua_tostring(L, -2) : "";
        only = only && (!strcmp(key, "dy") || !strcmp(key, "dstate")
                        || !strcmp(key, "saved") || !strcmp(key, "into")
                        || !strcmp(key, "inplace") || !strcmp(key, "spend")
                        || !strcmp(key, "threads") || !strcmp(key, "cache")
                        || !strcmp(key, "way")
                        || !strcmp(key, "validate"));
    }
    return only;
}

/* The arguments at index 2 and, behind them, those of the saved call; what
 * that one stored lives as long as the table, now at index 2, of both. */
static Stored join_saved(lua_State *L, const char *what)
{
    enum { SAVED = 3, ARGS, JOINED };

    if (!lua_istable(L, 2) || raw_field(L, 2, "saved") == LUA_TNIL) {
        lua_settop(L, 2);
        return (Stored){ 0 };
    }
    Saved *s = luaL_testudata(L, SAVED, SAVED_META);
    if (!s)
        lang_fail(L, "y, state, saved = v:forward { save = true, ... }",
                  "%s: saved must be what v:forward gave, not %s", what,
                  type_text(L, SAVED));
    lua_getiuservalue(L, SAVED, OF_VARIANT);
    if (!lua_rawequal(L, -1, 1))
        lang_fail(L, NULL, "%s: saved is of another variant", what);
    lua_pop(L, 1);
    lua_getiuservalue(L, SAVED, OF_ARGS);
    check_writes(L, s, ARGS, variant_check(L, 1)->step, what);
    Stored stored = adds_gradients(L) ? s->room : (Stored){ 0 };
    if (option_flag(L, what, 2, "spend"))
        s->room.bytes = 0;
    lua_newtable(L);
    copy_fields(L, ARGS, false);
    copy_fields(L, 2, false);
    static const char *const forward[] = { "save", "saved", "checkpoint" };
    for (int i = 0; i < 3; i++) {
        lua_pushnil(L);
        lua_setfield(L, JOINED, forward[i]);
    }
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, SAVED);
    lua_rawseti(L, -2, 1);
    lua_setmetatable(L, JOINED);
    lua_copy(L, JOINED, 2);
    lua_settop(L, 2);
    return stored;
}

/* ---- arguments and results ---- */

/* dy = { y = tensor, NAME = tensor }, which is on top. */
static void take_dys(lua_State *L, BackRun *k, const char *what)
{
    const Graph *g = k->r->v->step;
    const char *list[MAX_RESULTS];
    int at = lua_gettop(L);

    for (int o = 0; o < g->nout; o++)
        list[o] = g->out[o].name;
    for (lua_pushnil(L); lua_next(L, at); lua_settop(L, at + 1)) {
        const char *name = luaL_tolstring(L, at + 1, NULL);
        int o = graph_find_output(g, name);
        if (o < 0)
            lang_fail(L, suggest(L, name, "results", list, g->nout),
                      "%s: dy: there is no result '%s'", what, name);
        const char *full = lua_pushfstring(L, "dy.%s", name);
        lua_pushvalue(L, at + 2);
        k->d.dy[o] = tensor_value(L, what, full, false);
        keep_top(L);
    }
}

static void take_adjoints(lua_State *L, BackRun *k, const char *what)
{
    if (raw_field(L, 2, "dy") == LUA_TTABLE) {
        take_dys(L, k, what);
    } else if (!lua_isnil(L, -1)) {
        k->d.dy[0] = tensor_value(L, what, "dy", false);
        keep_top(L);
    }
    if (raw_field(L, 2, "dstate") != LUA_TNIL)
        state_values(L, k->r->v->step, what, "dstate", k->d.dstate);
    lua_pop(L, 2);
}

/* Is it to go over pairs of tokens, or a mask's window, whose states are
 * nobody's idea? */
static bool is_of_pairs(const Variant *v)
{
    return v->way == WAY_PAIRS
        || (v->runs == &runs_over_pairs && v->step->scores->width);
}

/* Of such a call there are no gradients of states that nobody gives. */
static void be_stateless(lua_State *L, BackRun *k, const char *what)
{
    Run *r = k->r;
    bool any = false;

    for (int i = 0; i < r->v->step->nst; i++) {
        if (r->stateless && k->d.dstate[i].given)
            lang_fail(L, "leave states out", "%s: states = false, but "
                      "dstate.%s is given", what, r->v->step->st[i].name);
        any |= r->args.state[i].given || k->d.dstate[i].given;
    }
    r->stateless |= is_of_pairs(r->v) && r->args.mode == M_BACKWARD && !any;
}

/* into = { Wq = tensor }: what the gradient is added to, and then is. */
static void take_sums(lua_State *L, BackRun *k, const char *what)
{
    const Graph *g = k->r->v->step;
    const char *list[MAX_INPUTS];

    for (int i = 0; i < g->nin; i++)
        list[i] = g->in[i].name;
    raw_field(L, 2, "into");
    int at = lua_gettop(L);
    if (!lua_isnil(L, at) && !lua_istable(L, at))
        lang_fail(L, "into = { Wq = tensor }", "%s: into must be a table of "
                  "tensors, not %s", what, type_text(L, at));
    for (lua_pushnil(L); lua_istable(L, at) && lua_next(L, at);
         lua_pop(L, 1)) {
        const char *name = luaL_tolstring(L, -2, NULL);
        int i = graph_find_input(g, name);
        if (i < 0)
            lang_fail(L, suggest(L, name, "weights", list, g->nin),
                      "%s: into: there is no weight '%s'", what, name);
        const char *full = lua_pushfstring(L, "into.%s", name);
        lua_pushvalue(L, at + 2);
        k->d.dx[i] = tensor_value(L, what, full, false);
        k->d.add[i] = true;
        lua_settop(L, at + 2);
        keep_top(L);
        tensor_any(L, -1)->store->writes++;
    }
    lua_settop(L, at - 1);
}

/* inplace = { "z" }: inputs that are written over by their gradients. */
static void take_inplace(lua_State *L, BackRun *k, const char *what)
{
    const Graph *g = k->r->v->step;
    const char *list[MAX_INPUTS];

    for (int i = 0; i < g->nin; i++)
        list[i] = g->in[i].name;
    raw_field(L, 2, "inplace");
    int at = lua_gettop(L);
    if (!lua_isnil(L, at) && !lua_istable(L, at))
        lang_fail(L, "inplace = { \"z\" }", "%s: inplace must be a list of "
                  "inputs, not %s", what, type_text(L, at));
    for (lua_Integer n = 1; lua_istable(L, at)
         && lua_rawgeti(L, at, n) != LUA_TNIL; n++) {
        const char *name = luaL_tolstring(L, -1, NULL);
        int i = graph_find_input(g, name);
        if (i < 0 || g->in[i].index_of)
            lang_fail(L, suggest(L, name, "inputs", list, g->nin),
                      "%s: inplace: there is no input '%s' with a gradient",
                      what, name);
        if (raw_field(L, 2, name) != LUA_TUSERDATA)
            lang_fail(L, "give it as a tensor", "%s: inplace: %s is no tensor",
                      what, name);
        tensor_any(L, -1)->store->writes++;
        k->d.dx[i] = k->r->args.in[i];
        k->inplace[i] = true;
        lua_settop(L, at);
    }
    lua_settop(L, at - 1);
}

/* Pushes the gradient of input i: the tensor that it is added to, the one that
 * it is written over, or a new one. */
static void push_gradient(lua_State *L, BackRun *k, int i)
{
    const Run *r = k->r;
    bool exact = r->args.mode == M_REFERENCE_BACKWARD;
    const Given *x = &r->args.in[i];

    if (k->inplace[i]) {
        raw_field(L, 2, r->v->step->in[i].name);
        return;
    }
    if (!k->d.add[i]) {
        push_result(L, r, exact ? F64 : x->dtype, x->rank, x->shape,
                    &k->d.dx[i]);
        return;
    }
    raw_field(L, 2, "into");
    lua_getfield(L, -1, r->v->step->in[i].name);
    lua_remove(L, -2);
}

/* Pushes the table of gradients: as wide as what they are of. */
static void push_gradients(lua_State *L, BackRun *k)
{
    const Run *r = k->r;
    const Graph *g = r->v->step;
    int64_t shape[TENSOR_RANK];

    lua_createtable(L, 0, g->nin + 1);
    for (int i = 0; i < g->nin; i++) {
        if (g->in[i].index_of)
            continue;
        push_gradient(L, k, i);
        lua_setfield(L, -2, g->in[i].name);
    }
    if (r->stateless)
        return;
    lua_createtable(L, 0, g->nst);
    for (int i = 0; i < g->nst; i++) {
        int rank = state_shape(g, &r->bound, i, shape);
        push_result(L, r, r->bound.state_dtype, rank, shape, &k->d.ds[i]);
        lua_setfield(L, -2, g->st[i].name);
    }
    lua_setfield(L, -2, "initial_state");
}

static void do_backward(Ctx *c, void *ud)
{
    BackRun *k = ud;

    run_backward(c, k->r->v, &k->r->args, &k->r->bound, &k->d);
}

static int backward_mode(lua_State *L, Mode mode)
{
    const char *what = mode_name[mode];

    join_options(L, what);
    lua_settop(L, 2);
    Stored stored = join_saved(L, what);
    BackRun k = { .r = run_begin(L, mode), .d.stored = stored };
    k.r->args.spend = option_flag(L, what, 2, "spend");
    take_adjoints(L, &k, what);
    take_sums(L, &k, what);
    take_inplace(L, &k, what);
    be_stateless(L, &k, what);
    push_gradients(L, &k);
    if (mode == M_REFERENCE_BACKWARD)
        truth_hold(L, k.r);
    protect_call(L, k.r, do_backward, &k);
    say_road(L, k.r->ctx, k.r->v, &k.r->args);
    run_end(k.r);
    return 1;
}

static int variant_backward(lua_State *L)
{
    return backward_mode(L, M_BACKWARD);
}

static int variant_reference_backward(lua_State *L)
{
    return backward_mode(L, M_REFERENCE_BACKWARD);
}

static void do_prepare(Ctx *c, void *ud)
{
    Run *r = ud;

    prepare_backward(c, r->v, &r->args, &r->bound);
}

void backward_prepare(lua_State *L)
{
    lua_settop(L, 2);
    join_saved(L, "prepare");
    Run *r = run_begin(L, M_BACKWARD);
    protect_call(L, r, do_prepare, r);
    run_end(r);
}

void backward_methods(lua_State *L)
{
    static const luaL_Reg methods[] = {
        { "backward", variant_backward },
        { "reference_backward", variant_reference_backward },
        { NULL, NULL }
    };

    luaL_setfuncs(L, methods, 0);
}
