/* variant.c -- flin.variant{...}: a definition table becomes a traced step.
 *
 * Lua tables have no order, so arguments are ordered here: q, k, v first
 * where they are, then the others by name; states by name, then what
 * flin.prev adds in the order of its calls. flin.layer{...} is read here, too:
 * inputs first, then weights.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "../compiler/domain.h"
#include "../compiler/layer.h"
#include "../compiler/mask.h"
#include "../compiler/scores.h"
#include "bind.h"
#include "concrete.h"
#include "declare.h"
#include "shared.h"
#include "truth.h"
#include "plan_view.h"
#include "value.h"

/* ---- words ---- */

static const char *const fields[] = { "name", "axes", "input", "state",
    "step", "mask", "transition", "causal", "mode", "normalise", "score",
    "scale", "tokens", "initial" };
static const char *const layer_fields[] = { "name", "axes", "input", "weight",
    "forward", "initial", "checkpoint", "usual" };
enum { NFIELDS = sizeof fields / sizeof *fields,
       NLAYER_FIELDS = sizeof layer_fields / sizeof *layer_fields };

/* ---- the definition's fields ---- */

/* "flin.variant" or "flin.layer": the running function's upvalue. */
static const char *called(lua_State *L)
{
    return lua_tostring(L, lua_upvalueindex(1));
}

static void check_fields(lua_State *L, int def, const char *const *known,
                         int n)
{
    for (lua_pushnil(L); lua_next(L, def); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            lang_fail(L, "fields have names: step = function (x, s) ... end",
                      "%s: there is no field [%s]", called(L),
                      luaL_tolstring(L, -2, NULL));
        const char *key = lua_tostring(L, -2);
        if (!in_list(key, known, n))
            lang_fail(L, suggest(L, key, "fields", known, n),
                      "%s: there is no field '%s'", called(L), key);
    }
}

/* Field `name`, of that type or absent; pushed. */
static bool get_field(lua_State *L, int def, const char *name, int type)
{
    int got = lua_getfield(L, def, name);

    if (got != LUA_TNIL && got != type)
        lang_fail(L, NULL, "%s: %s must be a %s, not %s", called(L), name,
                  lua_typename(L, type), type_text(L, -1));
    return got != LUA_TNIL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The table's keys in order; in the arena of userdata, which is pushed. */
static const char **sorted_keys(lua_State *L, int table, const char *what,
                                int *n)
{
    *n = 0;
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
        ++*n;
        if (lua_type(L, -2) != LUA_TSTRING)
            lang_fail(L, "{ q = \"t k\", ... }: names, each with its axes",
                      "%s: %s: [%s] is not a name", called(L), what,
                      luaL_tolstring(L, -2, NULL));
    }
    const char **key = lua_newuserdatauv(L, (size_t)(*n + 1) * sizeof *key, 0);
    int i = 0;
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1))
        key[i++] = lua_tostring(L, -2);
    qsort(key, (size_t)*n, sizeof *key, by_name);
    return key;
}

/* q, k, v to the front. */
static void usual_first(const char **key, int n)
{
    static const char *const usual[] = { "v", "k", "q" };

    for (int u = 0; u < 3; u++)
        for (int i = 0; i < n; i++)
            if (!strcmp(key[i], usual[u])) {
                const char *k = key[i];
                memmove(key + 1, key, (size_t)i * sizeof *key);
                key[0] = k;
            }
}

/* ---- declarations ---- */

typedef struct Declare {
    Graph *g;
    const char *name, *axes;
    int (*declare)(Graph *g, const char *name, const char *axes);
} Declare;

static void run_declare(Ctx *c, void *ud)
{
    Declare *d = ud;

    (void)c;
    d->declare(d->g, d->name, d->axes);
}

/* A layer's inputs have tokens, and its weights have none. */
static void check_timed(lua_State *L, const char *field, const Input *in)
{
    bool weight = *field == 'w';

    if (weight && in->index_of)
        lang_fail(L, "input = { label = \"t : index n\" }", "%s: weight '%s' "
                  "is an index: inputs are that alone", called(L), in->name);
    if (in->timed == weight)
        lang_fail(L, weight ? "what differs from token to token is an input: "
                  "input = { x = \"t d\" }" : "what is the same for all tokens "
                  "is a weight: weight = { W = \"d k\" }", "%s: %s '%s' has "
                  "%s axis t", called(L), field, in->name,
                  weight ? "an" : "no");
}

/* The declarations of table `field`, in order. */
static void declare(lua_State *L, Graph *g, int def, const char *field)
{
    bool input = *field != 's';
    Declare d = { g, NULL, NULL, input ? graph_input : graph_state };
    int n, top = lua_gettop(L);

    if (!get_field(L, def, field, LUA_TTABLE)) {
        lua_settop(L, top);
        return;
    }
    int table = lua_gettop(L);
    const char **key = sorted_keys(L, table, field, &n);
    if (input && n > MAX_INPUTS - 1)    /* and dy */
        lang_fail(L, "give those of one kind an axis: x = \"t n\"",
                  "%s: %d inputs; %d at most", called(L), n, MAX_INPUTS - 1);
    if (input)
        usual_first(key, n);
    for (int i = 0; i < n; i++) {
        d.name = key[i];
        declared_name(L, called(L), field, d.name);
        if (lua_getfield(L, table, d.name) != LUA_TSTRING)
            lang_fail(L, "\"t k\": names of axes; \"\" for a scalar of the "
                      "head", "%s: %s '%s': its axes must be a "
                      "string, not %s", called(L), field, d.name,
                      type_text(L, -1));
        d.axes = lua_tostring(L, -1);
        declared_axes(L, called(L), field, d.name, d.axes);
        if (input && graph_find_input(g, d.name) >= 0)
            lang_fail(L, "give one of them another name", "%s: '%s' is both "
                      "an input and a weight", called(L), d.name);
        protect(L, g->ctx, run_declare, &d);
        if (g->layer)
            check_timed(L, field, &g->in[g->nin - 1]);
        else if (input && g->in[g->nin - 1].index_of)
            lang_fail(L, "flin.layer { ... }", "%s: input '%s' is an index: "
                      "inputs of layers are that alone", called(L), d.name);
        int rank = input ? g->in[g->nin - 1].rank + input_lead(g, true)
                         : g->st[g->nst - 1].rank + state_lead(g);
        if (rank > TENSOR_RANK)
            lang_fail(L, NULL, "%s: %s '%s': a tensor has at most "
                      "%d dimensions, and this one needs %d", called(L), field,
                      d.name, TENSOR_RANK, rank);
        lua_pop(L, 1);
    }
    lua_settop(L, top);
}

static int declare_axis(Graph *g, const char *name, const char *axes)
{
    (void)axes;
    return graph_axis(g, name);
}

static void declare_axes(lua_State *L, Graph *g, int def)
{
    Declare d = { g, NULL, NULL, declare_axis };
    int n, top = lua_gettop(L), whole;

    if (get_field(L, def, "axes", LUA_TTABLE)) {
        int table = lua_gettop(L);
        const char **key = sorted_keys(L, table, "axes", &n);
        for (int i = 0; i < n; i++) {
            d.name = key[i];
            declared_name(L, called(L), "axis", d.name);
            lua_getfield(L, table, d.name);
            lua_Integer size = lua_tointegerx(L, -1, &whole);
            if (!strcmp(d.name, "t"))
                lang_fail(L, NULL, "%s: axes: t is the tokens' axis"
                          ": calls say how many there are", called(L));
            if (lua_type(L, -1) != LUA_TNUMBER || !whole || size < 1
                || size > AXIS_MAX)
                lang_fail(L, NULL, "%s: axes: %s = %s: a size is a "
                          "whole number from 1 to %d", called(L), d.name,
                          shown_text(L, -1), AXIS_MAX);
            protect(L, g->ctx, run_declare, &d);
            g->axis[graph_find_axis(g, d.name)].size = (int32_t)size;
            lua_pop(L, 1);
        }
    }
    lua_settop(L, top);
}

/* ---- flin.variant ---- */

/* The field `name`; pushed. */
static const char *variant_name(lua_State *L, int def, const char *usual)
{
    const char *name = usual;

    if (get_field(L, def, "name", LUA_TSTRING))
        name = lua_tostring(L, -1);
    for (const char *p = name; *p; p++)
        if (iscntrl((unsigned char)*p))
            name = "";
    if (!*name || strlen(name) > 60)
        lang_fail(L, "1 to 60 characters, none of them a control character",
                  "%s: this name is not usable", called(L));
    return name;
}

typedef struct NewGraph { const char *name, *file; Graph *g; } NewGraph;

static void new_graph(Ctx *c, void *ud)
{
    NewGraph *n = ud;

    c->file = ctx_string(c, n->file);
    n->g = graph_new(c, n->name, 0);
}

typedef struct About { Variant *v; const char *text; } About;

static void keep_about(Ctx *c, void *ud)
{
    About *a = ud;

    a->v->about = ctx_string(c, a->text);
}

Variant *variant_push(lua_State *L, const char *name)
{
    Variant *v = lua_newuserdatauv(L, sizeof *v, OF_LAST);

    memset(v, 0, sizeof *v);
    luaL_setmetatable(L, VARIANT_META);
    v->ctx = sandbox_ctx(L);
    NewGraph n = { name, current_file(L), NULL };
    protect(L, v->ctx, new_graph, &n);
    lua_pop(L, 1);
    v->step = n.g;
    v->step->line = current_line(L);
    current_about(L);
    protect(L, v->ctx, keep_about, &(About){ v, lua_tostring(L, -1) });
    lua_pop(L, 1);
    v->shared = shared_retain(shared_of(L)->shared);
    return v;
}

Tracer *tracer_push(lua_State *L, int variant, Variant *v)
{
    Tracer *t = lua_newuserdatauv(L, sizeof *t, 1);

    *t = (Tracer){ .ctx = v->ctx, .g = v->step };
    lua_pushvalue(L, variant);
    lua_setiuservalue(L, -2, 1);
    return t;
}

/* A size is of an axis that something has. */
static void check_axes(lua_State *L, const Graph *g)
{
    AxisSet had = 0;
    const char *known[NAXES];
    int n = 0;

    for (Ref r = 1; r < g->len; r++)
        had |= g->n[r].axes | g->n[r].over;
    for (int ax = AX_DIM; ax < g->naxes; ax++)
        if (had & AXIS(ax))
            known[n++] = g->axis[ax].name;
    for (int ax = AX_DIM; ax < g->naxes; ax++)
        if (g->axis[ax].size && !(had & AXIS(ax)))
            lang_fail(L, suggest(L, g->axis[ax].name, "axes", known, n),
                      "%s: axes: nothing has an axis '%s'", called(L),
                      g->axis[ax].name);
}

void check_step(lua_State *L, int variant, int f, const Tracer *t,
                       Place at)
{
    check_axes(L, t->g);
    check_compared(L, t);
    truth_keep(L, variant, f, t);
    step_compare(L, variant, f, t, at);
}

typedef struct KeepLine { Graph *g; int line; const char *text; } KeepLine;

static void keep_line(Ctx *c, void *ud)
{
    KeepLine *k = ud;
    Lines *l = &k->g->lines;

    l->at = ctx_grow(c, l->at, (size_t)l->n * sizeof *l->at,
                     (size_t)(l->n + 1) * sizeof *l->at);
    l->at[l->n++] = (SourceLine){ k->line, ctx_string(c, k->text) };
}

static bool has_line(const Graph *g, int line)
{
    for (int i = 0; i < g->lines.n; i++)
        if (g->lines.at[i].line == line)
            return true;
    return false;
}

void keep_lines(lua_State *L, Variant *v)
{
    Graph *g = v->step;

    if (*v->ctx->file)
        g->lines.file = v->ctx->file;
    for (Ref r = 1; r < g->len; r++) {
        int line = g->n[r].line;
        if (has_line(g, line) || !source_line(L, v->ctx->file, line))
            continue;
        KeepLine k = { g, line, lua_tostring(L, -1) };
        protect(L, v->ctx, keep_line, &k);
        lua_pop(L, 1);
    }
}

typedef struct Probes { Variant *v; const Tracer *t; } Probes;

static void keep_probes(Ctx *c, void *ud)
{
    const Probes *k = ud;
    size_t size = (size_t)k->t->nprobes * sizeof *k->t->probes;

    k->v->probes = ctx_grow(c, NULL, 0, size);
    memcpy(k->v->probes, k->t->probes, size);
    k->v->nprobes = k->t->nprobes;
}

/* What flin.probe has named; a Lua error where that is a result's name. */
static void probes_keep(lua_State *L, Variant *v, const Tracer *t)
{
    const Graph *g = v->step;

    for (int i = 0; i < t->nprobes; i++) {
        Place at = { v->ctx->file, t->probes[i].line };
        if (graph_find_output(g, t->probes[i].name) >= 0)
            lang_fail_at(L, at, "give the probe another name", "probe: '%s' "
                         "is a result's name", t->probes[i].name);
        if (g->nout + i >= MAX_RESULTS)
            lang_fail_at(L, at, "take some out", "probe: with the step's "
                         "results there are more than %d", MAX_RESULTS);
    }
    if (t->nprobes)
        protect(L, v->ctx, keep_probes, &(Probes){ v, t });
}

/* What goes token by token where v takes all pairs, and keeps these. */
static void make_decoder(Ctx *c, void *ud)
{
    Variant *v = ud, *d = ctx_alloc(c, sizeof *d);

    d->ctx = c;
    d->step = v->step->mask->cache;
    d->limit = v->step->mask->limit;
    v->decoder = d;
}

static void decoder_keep(lua_State *L, Variant *v)
{
    protect(L, v->ctx, make_decoder, v);
    v->decoder->shared = shared_retain(v->shared);
}

/* ---- sums without their states ---- */

typedef struct Scoring { Variant *v; const char *why; } Scoring;

static void find_scores(Ctx *c, void *ud)
{
    Scoring *s = ud;

    s->v->step->scores = scores_find(c, s->v->step, &s->why);
}

/* Of keys of several axes: what grows with a power of theirs. */
static bool has_large_state(const Graph *g)
{
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].rank > 2)
            return true;
    return false;
}

/* What `mode` says of a step: states, pairs of tokens, or, without it, what is
 * cheaper where pairs spare a state that is large. */
static void scores_keep(lua_State *L, int def, Variant *v)
{
    static const char *const mode[] = { "linear", "quadratic" };
    Scoring s = { v, NULL };
    int n = 0;

    if (lua_getfield(L, def, "mode") != LUA_TNIL) {
        const char *text = lua_tostring(L, -1);
        while (n < 2 && (!text || strcmp(text, mode[n])))
            n++;
        if (n == 2)
            lang_fail(L, "leave it out for the cheaper of \"linear\", by "
                      "states, and \"quadratic\", over pairs of tokens",
                      "flin.variant: there is no mode %s", shown_text(L, -1));
        v->way = n ? WAY_PAIRS : WAY_STATES;
    }
    lua_pop(L, 1);
    if (v->way == WAY_STATES
        || (v->way == WAY_CHEAPER && !has_large_state(v->step)))
        return;
    protect(L, v->ctx, find_scores, &s);
    if (v->way == WAY_PAIRS && !v->step->scores)
        lang_fail(L, "leave mode out", "flin.variant: mode = \"quadratic\": "
                  "%s is no sum of values weighed by scores: %s",
                  v->step->name, s.why);
    if (v->step->scores)
        v->runs = &runs_over_pairs;
}

/* A window's pairs, unless `mode` asks for its states. */
static void window_keep(lua_State *L, int def, Variant *v)
{
    lua_getfield(L, def, "mode");
    if (!lua_isnil(L, -1))
        v->way = WAY_STATES;            /* or it has no states at all */
    lua_pop(L, 1);
    if (v->step->scores && v->way == WAY_CHEAPER)
        v->runs = &runs_over_pairs;
}

static int flin_variant(lua_State *L)
{
    if (!lua_istable(L, 1))
        lang_fail(L, "flin.variant { name = , input = , state = , step = }",
                  "flin.variant: a table is wanted, not %s",
                  type_text(L, 1));
    lua_settop(L, 1);
    check_fields(L, 1, fields, NFIELDS);
    const char *name = variant_name(L, 1, "variant");
    bool step = get_field(L, 1, "step", LUA_TFUNCTION);
    int f = lua_gettop(L);
    bool softmax = lua_getfield(L, 1, "normalise") != LUA_TNIL;
    lua_settop(L, f);
    bool mask = get_field(L, 1, "mask", LUA_TFUNCTION) || softmax;
    if (step == mask)
        lang_fail(L, "step = function (x, s) ... end, or mask = function "
                  "(i, j, p) ... end", step ? "flin.variant: a step and a "
                  "mask: only one can say what is computed" :
                  "flin.variant: a step (or a mask) is missing");
    if (step && lua_getfield(L, 1, "transition") != LUA_TNIL)
        lang_fail(L, "a step writes what S becomes", "flin.variant: transition "
                  "is of masks");
    if (step && lua_getfield(L, 1, "causal") != LUA_TNIL)
        lang_fail(L, "a step knows the tokens before; mask = function (i, j, "
                  "p) ... end can weigh those behind, too", "flin.variant: "
                  "causal is of masks");
    lua_settop(L, f + 1);
    Variant *v = variant_push(L, name);
    int at = lua_gettop(L);
    Tracer *t = tracer_push(L, at, v);
    int owner = lua_gettop(L);
    declare_axes(L, v->step, 1);
    if (mask) {
        mask_push(L, 1);
        lua_replace(L, f + 1);
        mask_trace(L, 1, f + 1, owner, t);
        v->masked = true;
        if (v->step->mask && v->step->mask->way[1])
            v->runs = &runs_both_ways;
        if (v->step->mask && v->step->mask->cache)
            decoder_keep(L, v);
        window_keep(L, 1, v);
        if (lua_getfield(L, 1, "transition") == LUA_TNIL)
            truth_keep(L, at, f + 1, t);
    } else {
        declare(L, v->step, 1, "input");
        declare(L, v->step, 1, "state");
        v->declared = v->step->nst;
        t->step = true;
        Place begins = trace_step(L, f, owner, t);
        t->closed = true;
        probes_keep(L, v, t);
        check_step(L, at, f, t, begins);
        scores_keep(L, 1, v);
    }
    t->closed = true;
    keep_lines(L, v);
    initial_keep(L, 1, at, called(L));
    lua_pushvalue(L, at);
    return 1;
}

/* ---- flin.layer ---- */

static void make_layer(Ctx *c, void *ud)
{
    Graph *g = ud;

    g->layer = ctx_alloc(c, sizeof *g->layer);
    g->layer->traced = g;
}

static int flin_layer(lua_State *L)
{
    if (!lua_istable(L, 1))
        lang_fail(L, "flin.layer { name = , input = , weight = , forward = }",
                  "flin.layer: a table is wanted, not %s", type_text(L, 1));
    lua_settop(L, 1);
    check_fields(L, 1, layer_fields, NLAYER_FIELDS);
    const char *name = variant_name(L, 1, "layer");
    if (layer_runs(L))
        lang_fail(L, "define it before, outside of the function that calls it",
                  "flin.layer: '%s' is defined in the forward function of "
                  "another layer", name);
    bool checkpoint = get_field(L, 1, "checkpoint", LUA_TBOOLEAN)
                   && lua_toboolean(L, -1);
    if (!get_field(L, 1, "forward", LUA_TFUNCTION))
        lang_fail(L, "forward = function (x, w) ... return y end",
                  "flin.layer: forward is missing");
    int f = lua_gettop(L);
    Variant *v = variant_push(L, name);
    int at = lua_gettop(L);
    Tracer *t = tracer_push(L, at, v);
    int owner = lua_gettop(L);
    protect(L, v->ctx, make_layer, v->step);
    declare_axes(L, v->step, 1);
    declare(L, v->step, 1, "input");
    declare(L, v->step, 1, "weight");
    Place begins = trace_forward(L, f, owner, t);
    t->closed = true;
    keep_lines(L, v);
    layer_whole(L, v);
    v->step->layer->checkpoint = checkpoint;
    check_step(L, at, f, t, begins);
    initial_keep(L, 1, at, called(L));
    lua_pushvalue(L, at);
    return 1;
}

static int variant_gc(lua_State *L)
{
    Variant *v = luaL_checkudata(L, 1, VARIANT_META);

    if (v->decoder) {
        plans_release(v->decoder);
        plan_views_free(v->decoder);
    }
    plans_release(v);
    plan_views_free(v);
    ctx_free(v->ctx);
    v->ctx = NULL;
    v->step = NULL;
    return 0;
}

/* v(x): which method is meant, a variant does not guess; but of values it is
 * part of a layer. */
static int variant_call(lua_State *L)
{
    if (layer_calls(L))
        return layer_call_values(L);
    const char *name = variant_check(L, 1)->step->name;

    lang_fail(L, "v:forward { q = q, ... } runs it over tokens, v:step decodes "
              "one, v:reference is the float64 step", "%s is a variant: its "
              "methods are called, not itself", name);
}

void variant_meta(lua_State *L)
{
    luaL_newmetatable(L, VARIANT_META);
    lua_pushcfunction(L, variant_gc);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, variant_call);
    lua_setfield(L, -2, "__call");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
}

void variant_open(lua_State *L)
{
    lua_pushliteral(L, "flin.variant");
    lua_pushcclosure(L, flin_variant, 1);
    lua_setfield(L, -2, "variant");
    lua_pushliteral(L, "flin.layer");
    lua_pushcclosure(L, flin_layer, 1);
    lua_setfield(L, -2, "layer");
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, "flin.table");
}
