/* trace.c -- runs a step once on symbolic values and reads its results. */
#include <stdlib.h>
#include <string.h>

#include "../compiler/layer.h"
#include "bind.h"
#include "value.h"

/* ---- x and s ---- */

/* Is input i one of those? A layer's weights are inputs without t. */
static bool is_of(const Graph *g, const char *what, int i)
{
    return !g->layer || (i < g->layer->nin
                         && g->in[i].timed == (*what == 'i'));
}

/* what: "input", "state" or "weight". */
static int declared_names(const Graph *g, const char *what, const char **list)
{
    int n = 0;

    for (int i = 0; *what == 's' && i < g->nst; i++)
        list[n++] = g->st[i].name;
    for (int i = 0; *what != 's' && i < g->nin; i++)
        if (is_of(g, what, i))
            list[n++] = g->in[i].name;
    return n;
}

/* x.NAME that is not declared. Upvalues: the tracer, "input", "state" or
 * "weight", the parameter's name. */
static int unknown_name(lua_State *L)
{
    Tracer *t = lua_touserdata(L, lua_upvalueindex(1));
    const char *what = lua_tostring(L, lua_upvalueindex(2));
    const char *table = lua_tostring(L, lua_upvalueindex(3));
    const char *key = luaL_tolstring(L, 2, NULL);
    const char *list[MAX_INPUTS], *all;

    if (t->closed)
        lang_fail(L, NULL, "%s.%s: the step has been traced already", table,
                  key);
    int n = declared_names(t->g, what, list);
    all = suggest(L, key, lua_pushfstring(L, "%ss", what), list, n);
    lang_fail(L, all, "%s.%s: there is no %s '%s'", table, key, what, key);
}

static int read_only(lua_State *L)
{
    lang_fail(L, "use a local variable; a step returns the new states",
              "%s.%s cannot be assigned",
              lua_tostring(L, lua_upvalueindex(3)),
              luaL_tolstring(L, 2, NULL));
}

void trace_arguments(lua_State *L, int owner, Tracer *t,
                           const char *what, const char *name)
{
    static const char *const event[] = { "__index", "__newindex" };
    Graph *g = t->g;

    lua_newtable(L);
    bool input = *what != 's';
    for (int i = 0; i < (input ? g->nin : g->nst); i++) {
        if (input && !is_of(g, what, i))
            continue;
        value_push(L, owner, t, input ? g->in[i].node : g->st[i].node);
        lua_setfield(L, -2, input ? g->in[i].name : g->st[i].name);
    }
    lua_newtable(L);
    for (int i = 0; i < 2; i++) {
        lua_pushvalue(L, owner);
        lua_pushstring(L, what);
        lua_pushstring(L, name);
        lua_pushcclosure(L, i ? read_only : unknown_name, 3);
        lua_setfield(L, -2, event[i]);
    }
    lua_setmetatable(L, -2);
}

/* The name of the function's parameter n; pushed. */
static const char *parameter(lua_State *L, int f, int n, const char *usual)
{
    lua_pushvalue(L, f);
    const char *name = lua_getlocal(L, NULL, n);

    return lua_pushstring(L, name ? name : usual);
}

/* ---- the step ---- */

/* Where the step is; errors while it runs are about its file. One of flin's own
 * is where it was asked for. */
static Place enter_step(lua_State *L, Ctx *c, int f)
{
    lua_Debug ar;

    lua_pushvalue(L, f);
    lua_getinfo(L, ">S", &ar);
    if (!strncmp(ar.source, "=flin:", 6)) {
        c->file = ctx_string(c, current_file(L));
        lua_pop(L, 1);
        return (Place){ c->file, current_line(L) };
    }
    bool named = *ar.source == '@' || *ar.source == '=';
    if (strcmp(ar.what, "C"))
        c->file = ctx_string(c, named ? ar.source + 1 : ar.short_src);
    return (Place){ c->file, strcmp(ar.what, "C") ? ar.linedefined : 0 };
}

static const char step_help[] = "end it with: return { S = S }, y";
static const char results_help[] = "several results are a table: return "
                                   "{ S = S }, { y = y, error = e }";

/* New state i is the field of the table at `states`. */
static void take_state(lua_State *L, Tracer *t, Place at, int states, int i)
{
    State *st = &t->g->st[i];

    if (lua_getfield(L, states, st->name) == LUA_TNIL)
        lang_fail_at(L, at, step_help, "step: it does not return the new "
                     "state '%s'", st->name);
    if (!value_test(L, -1) && lua_type(L, -1) != LUA_TNUMBER)
        lang_fail_at(L, at, NULL, "step: the new state '%s' is %s, not a "
                     "value", st->name, type_text(L, -1));
    Ref r = value_arg(L, t, lua_gettop(L));
    AxisSet got = t->g->n[r].axes;
    if (got != st->axes)
        lang_fail_at(L, at, NULL, "step: state '%s' is declared with axes %s, "
                     "but the new one has axes %s", st->name,
                     value_axes(L, t, st->axes), value_axes(L, t, got));
    st->next = r;
    lua_pop(L, 1);
}

static void take_states(lua_State *L, Tracer *t, Place at, int states, int n)
{
    const char *list[MAX_STATES];

    for (lua_pushnil(L); lua_next(L, states); lua_pop(L, 1)) {
        const char *key = luaL_tolstring(L, -2, NULL);
        declared_names(t->g, "state", list);
        if (!in_list(key, list, n))
            lang_fail_at(L, at, suggest(L, key, "states", list, n), "step: it "
                         "returns state '%s', which is not declared", key);
        lua_pop(L, 1);
    }
    for (int i = 0; i < n; i++)
        take_state(L, t, at, states, i);
}

static void make_output(Build *b)
{
    graph_output(b->g, b->text[0], b->a[0]);
}

static void make_roots(Build *b)
{
    wrap_angles(b->g);
    mark_sums(b->g);
}

/* The n results on top. */
static void check_results(lua_State *L, Place at, int n)
{
    if (n == 0)
        lang_fail_at(L, at, step_help, "step: it returns nothing");
    if (value_test(L, -n))
        lang_fail_at(L, at, "the states come first: return { S = S }, y",
                     "step: its first result is a value, not the table of the "
                     "new states");
    if (!lua_istable(L, -n))
        lang_fail_at(L, at, step_help, "step: its first result is %s, not the "
                     "table of the new states", type_text(L, -n));
    if (n == 1)
        lang_fail_at(L, at, step_help, "step: it returns the new states but "
                     "no y");
    if (n > 2)
        lang_fail_at(L, at, results_help, "step: it returns %d results after "
                     "the states; one is expected, y or a table", n - 1);
    if (!value_test(L, -1) && !lua_istable(L, -1))
        lang_fail_at(L, at, step_help, "step: y is %s, not a value",
                     type_text(L, -1));
}

/* The value on top becomes the next result; it is popped. */
static void take_output(lua_State *L, Tracer *t, Place at, const char *name)
{
    if (!value_test(L, -1))
        lang_fail_at(L, at, step_help, "step: %s is %s, not a value", name,
                     type_text(L, -1));
    Build b = { .a = { value_arg(L, t, lua_gettop(L)) }, .text = { name },
                .make = make_output };
    build(L, t, &b);
    const Output *o = &t->g->out[t->g->nout - 1];
    if (o->rank > TENSOR_RANK - 3)
        lang_fail_at(L, at, NULL, "step: %s has %d axes; with batch, tokens "
                     "and heads that is more than a tensor's %d", name,
                     o->rank, TENSOR_RANK);
    lua_pop(L, 1);
}

static void check_result(lua_State *L, const Tracer *t, Place at,
                         const char *name)
{
    const Graph *g = t->g;

    if (!axis_name_ok(name))
        lang_fail_at(L, at, "a letter, then letters, digits and _: 20 at most",
                     "step: result '%s' is not a usable name", name);
    if (graph_find_input(g, name) >= 0 || graph_find_state(g, name) >= 0)
        lang_fail_at(L, at, "give the result another name", "step: result "
                     "'%s': that is %s's name", name,
                     graph_find_input(g, name) >= 0 ? "an input" : "a state");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The results that the table at `table` names: y, then the others by name. */
static void take_outputs(lua_State *L, Tracer *t, Place at, int table)
{
    const char *name[MAX_RESULTS];
    int n = 0;

    if (lua_getfield(L, table, "y") == LUA_TNIL)
        lang_fail_at(L, at, results_help, "step: its table of results has no "
                     "y");
    take_output(L, t, at, "y");
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            lang_fail_at(L, at, results_help, "step: a result has a name, and "
                         "is not [%s]", luaL_tolstring(L, -2, NULL));
        const char *key = lua_tostring(L, -2);
        if (!strcmp(key, "y"))
            continue;
        if (n == MAX_RESULTS - 1)
            lang_fail_at(L, at, "give those of one kind an axis", "step: more "
                         "than %d results", MAX_RESULTS);
        name[n++] = key;
    }
    qsort(name, (size_t)n, sizeof *name, by_name);
    for (int i = 0; i < n; i++) {
        check_result(L, t, at, name[i]);
        lua_getfield(L, table, name[i]);
        take_output(L, t, at, name[i]);
    }
}

Place trace_step(lua_State *L, int f, int owner, Tracer *t)
{
    int top = lua_gettop(L), declared = t->g->nst;
    Place at = enter_step(L, t->ctx, f);
    const char *x = parameter(L, f, 1, "x"), *s = parameter(L, f, 2, "s");
    int call = lua_gettop(L);

    lua_pushvalue(L, f);
    trace_arguments(L, owner, t, "input", x);
    trace_arguments(L, owner, t, "state", s);
    lua_call(L, 2, LUA_MULTRET);
    int n = lua_gettop(L) - call;
    check_results(L, at, n);
    take_states(L, t, at, call + 1, declared);
    lua_settop(L, call + 2);
    if (lua_istable(L, -1))
        take_outputs(L, t, at, call + 2);
    else
        take_output(L, t, at, "y");
    build(L, t, &(Build){ .make = make_roots });
    lua_settop(L, top);
    return at;
}

/* ---- a layer's forward ---- */

static void make_result(Build *b)
{
    graph_output(b->g, "y", b->a[0]);
}

static const char forward_help[] = "end it with: return y";

Place trace_forward(lua_State *L, int f, int owner, Tracer *t)
{
    int top = lua_gettop(L);
    Place at = enter_step(L, t->ctx, f);
    const char *x = parameter(L, f, 1, "x"), *w = parameter(L, f, 2, "w");
    int call = lua_gettop(L);

    t->g->layer->nin = t->g->nin;
    lua_pushvalue(L, f);
    trace_arguments(L, owner, t, "input", x);
    trace_arguments(L, owner, t, "weight", w);
    lua_call(L, 2, LUA_MULTRET);
    int n = lua_gettop(L) - call;
    if (n != 1)
        lang_fail_at(L, at, forward_help, "forward: it returns %d results; "
                     "there is one y", n);
    if (!value_test(L, -1))
        lang_fail_at(L, at, forward_help, "forward: y is %s, not a value",
                     type_text(L, -1));
    Ref y = value_arg(L, t, call + 1);
    if (!t->g->n[y].timed)
        lang_fail_at(L, at, "return what depends on an input", "forward: y is "
                     "the same for every token");
    Build b = { .a = { y }, .make = make_result };
    build(L, t, &b);
    if (t->g->out[0].rank > TENSOR_RANK - 2)
        lang_fail_at(L, at, NULL, "forward: y has %d axes; with batch and "
                     "tokens that is more than a tensor's %d",
                     t->g->out[0].rank, TENSOR_RANK);
    lua_settop(L, top);
    return at;
}
