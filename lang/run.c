/* run.c -- a table of tensors becomes a call. */
#include <string.h>

#include "gpu.h"
#include "truth.h"

#define RUN_META "flin.run"

static int run_gc(lua_State *L)
{
    Run *r = luaL_checkudata(L, 1, RUN_META);

    ctx_free(r->ctx);
    r->ctx = NULL;
    return 0;
}

static Run *push_run(lua_State *L, Variant *v, Mode mode)
{
    Run *r = push_owned(L, sizeof *r, RUN_META, run_gc);

    r->v = v;
    r->args.mode = mode;
    r->ctx = sandbox_ctx(L);
    measure_hear(L, r->ctx);
    return r;
}

/* ---- arguments ---- */

static Given tensor_given(const Tensor *t)
{
    Given g = { .given = true, .device = t->store->gpu != NULL,
                .data = tensor_data(t), .dtype = t->dtype, .rank = t->rank };

    memcpy(g.shape, t->shape, sizeof g.shape);
    memcpy(g.stride, t->stride, sizeof g.stride);
    return g;
}

Given tensor_value(lua_State *L, const char *what, const char *name,
                   bool number)
{
    int64_t one = 1;
    Tensor *t = tensor_test(L, -1);
    bool made = !t && number && lua_type(L, -1) == LUA_TNUMBER;
    Given g;

    if (made) {
        double x = lua_tonumber(L, -1);
        t = tensor_push(L, F64, 1, &one);
        *(double *)tensor_data(t) = x;
        lua_replace(L, -2);
    }
    if (!t)
        lang_fail(L, lua_istable(L, -1) ? "flin.tensor{...} makes one of "
                  "nested tables" : NULL, "%s: %s must be a tensor%s, not %s",
                  what, name, number ? " or a number" : "",
                  type_text(L, -1));
    g = tensor_given(t);
    g.number = made;
    return g;
}

void keep_top(lua_State *L)
{
    lua_pushvalue(L, -1);
    lua_rawseti(L, 3, (lua_Integer)lua_rawlen(L, 3) + 1);
}

void state_values(lua_State *L, const Graph *g, const char *what,
                  const char *field, Given *state)
{
    const char *list[MAX_STATES];
    int at = lua_gettop(L);

    if (!lua_istable(L, at))
        lang_fail(L, "{ S = tensor }", "%s: %s must be a table of tensors, "
                  "not %s", what, field, type_text(L, at));
    for (int i = 0; i < g->nst; i++)
        list[i] = g->st[i].name;
    for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            lang_fail(L, "{ S = tensor }", "%s: %s: there is no state [%s]",
                      what, field, luaL_tolstring(L, -2, NULL));
        const char *name = lua_tostring(L, -2);
        int i = graph_find_state(g, name);
        if (i < 0)
            lang_fail(L, suggest(L, name, "states", list, g->nst),
                      "%s: %s: there is no state '%s'", what, field, name);
        state[i] = tensor_value(L, what, name, false);
        keep_top(L);
    }
}

/* cu_seqlens on top: a list of numbers or a tensor of them. */
static void sequence_ends(lua_State *L, Run *r, const char *what)
{
    Tensor *t = tensor_test(L, -1);
    lua_Integer n = 0;
    int whole = 1;

    if (t && t->store->gpu)
        lang_fail(L, "cu_seqlens:to(\"cpu\")", "%s: cu_seqlens is on the GPU",
                  what);
    if (t && t->rank == 1)
        n = (lua_Integer)t->shape[0];
    else if (lua_istable(L, -1))
        n = list_length(L, -1, "cu_seqlens");
    else
        lang_fail(L, "cu_seqlens = {0, 5, 12}", "%s: cu_seqlens must be a "
                  "list of numbers, not %s", what, t ? "a tensor of more "
                  "dimensions" : type_text(L, -1));
    if (n > LIST_MAX)
        lang_fail(L, NULL, "%s: cu_seqlens has %lld ends; at most %d", what,
                  (long long)n, LIST_MAX);
    int64_t *cu = lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *cu, 0);
    for (lua_Integer i = 0; i < n; i++) {
        if (t) {
            View view = { .data = tensor_data(t), .dtype = t->dtype };
            lua_pushnumber(L, view_get(&view, i * t->stride[0]));
        } else {
            lua_rawgeti(L, -2, i + 1);
        }
        cu[i] = lua_tointegerx(L, -1, &whole);
        whole = whole && lua_type(L, -1) == LUA_TNUMBER;
        if (!whole)
            lang_fail(L, NULL, "%s: cu_seqlens holds %s, which is not a whole "
                      "number", what, shown_text(L, -1));
        lua_pop(L, 1);
    }
    r->args.cu = cu;
    r->args.ncu = n;
    lua_setfield(L, 3, "cu_seqlens");   /* it lives as long as the call */
}

static const char *const options[] = { "initial_state", "state", "cu_seqlens",
    "chunk", "serial", "backend", "threads", "validate", "inplace", "save",
    "saved", "dy", "dstate", "into", "plan", "checkpoint", "state_index",
    "states", "spend", "cache", "way", "memory" };
enum { NOPTIONS = sizeof options / sizeof *options };

static _Noreturn void unknown_argument(lua_State *L, const Graph *g,
                                       const char *what, const char *key)
{
    const char *list[MAX_INPUTS + NOPTIONS];
    int n = g->nin;

    for (int i = 0; i < NOPTIONS; i++)
        if (!strcmp(key, options[i]))
            lang_fail(L, "dy, dstate, saved, spend and into are backward's, "
                      "save and checkpoint forward's",
                      "%s: '%s' is another call's", what, key);

    for (int i = 0; i < n; i++)
        list[i] = g->in[i].name;
    for (int i = 0; i < NOPTIONS; i++)
        list[n + i] = options[i];
    const char *near = nearest_name(key, list, n + NOPTIONS);
    lang_fail(L, near ? lua_pushfstring(L, "did you mean '%s'?", near)
              : suggest(L, key, "inputs", list, n),
              "%s: there is no argument '%s'", what, key);
}

static bool is_option(Mode mode, const Graph *g, const char *key)
{
    bool back = mode == M_BACKWARD || mode == M_REFERENCE_BACKWARD;

    if (!strcmp(key, "cache") || !strcmp(key, "way"))
        return mode == M_BACKWARD && g->mask;
    if (!strcmp(key, "memory"))
        return g->layer;

    if (!strcmp(key, "save") || !strcmp(key, "checkpoint"))
        return mode == M_FORWARD;
    if (!strcmp(key, "saved") || !strcmp(key, "dy") || !strcmp(key, "dstate")
        || !strcmp(key, "into") || !strcmp(key, "spend"))
        return back;
    for (int i = 0; i < NOPTIONS; i++)
        if (!strcmp(key, options[i]))
            return true;
    return false;
}

static void take_inputs(lua_State *L, Run *r, const char *what)
{
    const Graph *g = r->v->step;

    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            lang_fail(L, "arguments have names: v:forward { q = q }",
                      "%s: there is no argument [%s]", what,
                      luaL_tolstring(L, -2, NULL));
        const char *key = lua_tostring(L, -2);
        int i = graph_find_input(g, key);
        if (i < 0 && !is_option(r->args.mode, g, key))
            unknown_argument(L, g, what, key);
        if (i < 0)
            continue;
        bool number = !g->in[i].timed && !g->in[i].rank;
        r->args.in[i] = tensor_value(L, what, key, number);
        lua_pushvalue(L, -1);           /* one made of a number lives on */
        lua_setfield(L, 3, key);
    }
}

/* Where tensors are on the GPU, numbers follow them, in float32. */
static void move_numbers(lua_State *L, Run *r)
{
    const Graph *g = r->v->step;
    bool device = false;

    for (int i = 0; i < g->nin; i++)
        device = device || r->args.in[i].device;
    for (int i = 0; device && i < g->nin; i++) {
        if (!r->args.in[i].number)
            continue;
        lua_getfield(L, 3, g->in[i].name);
        tensor_copy(L, tensor_check(L, -1), F32);
        r->args.in[i] = tensor_given(tensor_to_gpu(L, tensor_check(L, -1)));
        lua_setfield(L, 3, g->in[i].name);
        lua_pop(L, 2);
    }
}

/* Where in their pools the states are: these are updated. */
static void take_index(lua_State *L, Run *r, const char *what)
{
    if (raw_field(L, 2, "state_index") != LUA_TNIL) {
        r->args.index = tensor_value(L, what, "state_index", false);
        keep_top(L);
    }
    lua_pop(L, 1);
}

static void take_states(lua_State *L, Run *r, const char *what)
{
    bool steps = mode_steps(r->args.mode);
    const char *field = steps ? "state" : "initial_state";
    const char *other = steps ? "initial_state" : "state";

    if (raw_field(L, 2, other) != LUA_TNIL)
        lang_fail(L, NULL, "%s: takes %s, not %s", what, field, other);
    if (raw_field(L, 2, field) != LUA_TNIL)
        state_values(L, r->v->step, what, field, r->args.state);
    lua_pop(L, 2);
}

static void take_inplace(lua_State *L, Run *r, const char *what)
{
    const Graph *g = r->v->step;

    if (r->args.mode == M_BACKWARD)
        return;                         /* names of inputs */
    r->inplace = option_flag(L, what, 2, "inplace");
    if (r->inplace && r->args.mode != M_STEP)
        lang_fail(L, "v:step does", "%s: no state is updated in place", what);
    for (int i = 0; r->inplace && i < g->nst; i++)
        if (!r->args.state[i].given)
            lang_fail(L, NULL, "%s: inplace: state.%s is missing: there is "
                      "nothing to update", what, g->st[i].name);
    r->inplace = r->inplace || r->args.index.given;
}

/* states = false: the call is between no states. */
static void take_stateless(lua_State *L, Run *r, const char *what)
{
    const Graph *g = r->v->step;

    raw_field(L, 2, "states");
    r->stateless = lua_isboolean(L, -1) && !lua_toboolean(L, -1);
    lua_pop(L, 1);
    for (int i = 0; r->stateless && i < g->nst; i++)
        if (r->args.state[i].given || mode_steps(r->args.mode))
            lang_fail(L, "leave states out", "%s: states = false, but %s takes "
                      "one", what, mode_steps(r->args.mode) ? what
                      : g->st[i].name);
}

/* An option's value, or that of the flin table (flin.threads = 1); pushed. */
static int get_option(lua_State *L, int arg, const char *name)
{
    int type = LUA_TNIL;

    if (lua_istable(L, arg))
        type = raw_field(L, arg, name);
    else
        lua_pushnil(L);
    if (type != LUA_TNIL)
        return type;
    lua_pop(L, 1);
    if (lua_getfield(L, LUA_REGISTRYINDEX, "flin.table") == LUA_TTABLE)
        raw_field(L, -1, name);
    else
        lua_pushnil(L);
    lua_remove(L, -2);
    return lua_type(L, -1);
}

static int small_option(lua_State *L, const char *what, int arg,
                        const char *name, int least, int most)
{
    int whole, n = 0;

    if (get_option(L, arg, name) != LUA_TNIL) {
        lua_Integer x = lua_tointegerx(L, -1, &whole);
        if (lua_type(L, -1) != LUA_TNUMBER || !whole || x < least || x > most)
            lang_fail(L, NULL, "%s: %s = %s: a whole number from %d to %d is "
                      "wanted", what, name, shown_text(L, -1), least, most);
        n = (int)x;
    }
    lua_pop(L, 1);
    return n;
}

/* true, false or "growth". */
static int validate_option(lua_State *L, const char *what, int arg)
{
    int type = get_option(L, arg, "validate"), found = 0;

    if (type == LUA_TBOOLEAN)
        found = lua_toboolean(L, -1) ? 1 : -1;
    else if (type == LUA_TSTRING && !strcmp(lua_tostring(L, -1), "growth"))
        found = 2;
    else if (type != LUA_TNIL)
        lang_fail(L, NULL, "%s: validate must be true, false or \"growth\", "
                  "not %s", what, type_text(L, -1));
    lua_pop(L, 1);
    return found;
}

bool fusion_named(const char *word, Fusion *f)
{
    static const char *const words[] = { "", "separate", "fused", "whole",
                                         "tiles", "pieces", "stack" };

    for (int i = FUSE_CHEAPEST; i < FUSIONS; i++)
        if (!strcmp(word, words[i])) {
            *f = (Fusion)i;
            return true;
        }
    return false;
}

Fusion fusion_option(lua_State *L, const char *what, int arg)
{
    Fusion f = FUSE_CHEAPEST;
    int type = lua_istable(L, arg) ? raw_field(L, arg, "plan") : LUA_TNIL;

    if (type != LUA_TNIL && (type != LUA_TSTRING
                             || !fusion_named(lua_tostring(L, -1), &f)))
        lang_fail(L, "leave it out for the cheaper of what there is",
                  "%s: plan must be \"separate\", \"fused\", \"whole\", "
                  "\"tiles\", \"pieces\" or \"stack\", not %s", what,
                  shown_text(L, -1));
    return f;
}

int64_t memory_option(lua_State *L, const char *what, int arg)
{
    int64_t n = 0;

    if (lua_istable(L, arg) && raw_field(L, arg, "memory") != LUA_TNIL) {
        double x = lua_tonumber(L, -1);
        if (lua_type(L, -1) != LUA_TNUMBER || !(x >= 1 && x <= 0x1p62))
            lang_fail(L, NULL, "%s: memory = %s: a number of bytes is wanted",
                      what, shown_text(L, -1));
        n = (int64_t)x;
    }
    return n;
}

void pairs_options(lua_State *L, const char *what, int arg, Args *a)
{
    static const char *const ways[] = { "blocks", "tiles" };

    a->cache = small_option(L, what, arg, "cache", 1, INT32_MAX);
    if (get_option(L, arg, "way") != LUA_TNIL) {
        bool word = lua_type(L, -1) == LUA_TSTRING;
        for (int w = 0; w < 2 && word; w++)
            if (!strcmp(lua_tostring(L, -1), ways[w]))
                a->way = 1 + w;
        if (!a->way)
            lang_fail(L, "leave it out for the one that takes less", "%s: way "
                      "must be \"blocks\" or \"tiles\", not %s", what,
                      shown_text(L, -1));
    }
    lua_pop(L, 1);
}

void run_options(lua_State *L, const char *what, int arg, Args *a)
{
    a->fusion = fusion_option(L, what, arg);
    a->memory = memory_option(L, what, arg);
    a->chunk = small_option(L, what, arg, "chunk", 1, CHUNK_MAX);
    a->threads = small_option(L, what, arg, "threads", 0, 1024);
    get_option(L, arg, "serial");
    a->serial = lua_toboolean(L, -1);
    a->validate = validate_option(L, what, arg);
    if (get_option(L, arg, "backend") == LUA_TNIL)
        return;
    bool word = lua_type(L, -1) == LUA_TSTRING;
    const char *name = luaL_tolstring(L, -1, NULL);
    a->backend = word ? backend_named(name) : NULL;
    if (!a->backend)
        lang_fail(L, lua_pushfstring(L, "backends here: %s", backend_names()),
                  "%s: there is no backend '%s'", what, name);
}

/* ---- results ---- */

Tensor *push_result(lua_State *L, const Run *r, DType d, int rank,
                    const int64_t *shape, Given *g)
{
    Tensor *t = r->bound.call.on_device ? tensor_push_gpu(L, d, rank, shape)
                                        : tensor_push(L, d, rank, shape);

    *g = tensor_given(t);
    return t;
}

/* ---- calls ---- */

static void do_bind(Ctx *c, void *ud)
{
    Run *r = ud;

    bind_call(c, r->v->step, &r->args, &r->bound);
}

typedef struct Trying {
    Variant *v;
    void (*f)(Ctx *c, void *ud);
    void *ud;
} Trying;

static void do_try(Ctx *c, void *ud)
{
    Trying *t = ud;

    plans_try(c, t->v, t->f, t->ud);
}

void protect_call(lua_State *L, Run *r, void (*f)(Ctx *c, void *ud), void *ud)
{
    Trying t = { r->v, f, ud };

    protect(L, r->ctx, do_try, &t);
}

bool try_call(Run *r, void (*f)(Ctx *c, void *ud), void *ud)
{
    Trying t = { r->v, f, ud };

    return ctx_protect(r->ctx, do_try, &t);
}

static void copy_fields(lua_State *L, int from, int to, const char *what)
{
    for (lua_pushnil(L); lua_next(L, from); ) {
        lua_pushvalue(L, -2);
        if (lua_rawget(L, to) != LUA_TNIL)
            lang_fail(L, NULL, "%s: %s is in both tables", what,
                      luaL_tolstring(L, -3, NULL));
        lua_pop(L, 1);
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, to);
    }
}

void join_options(lua_State *L, const char *what)
{
    int n = lua_gettop(L);

    if (n <= 2 || (n == 3 && lua_isnil(L, 3)))
        return;
    if (n > 3 || !lua_istable(L, 2) || !lua_istable(L, 3))
        lang_fail(L, "v:forward { q = q, chunk = 64 }", "%s: takes a table of "
                  "tensors, and perhaps one of options, not %s", what,
                  type_text(L, n > 3 ? 4 : lua_istable(L, 2) ? 3 : 2));
    lua_newtable(L);
    copy_fields(L, 2, 4, what);
    copy_fields(L, 3, 4, what);
    lua_replace(L, 2);
    lua_settop(L, 2);
}

/* Does the call at 2 take states from one token to the next? */
static bool has_states(lua_State *L, Mode mode)
{
    bool given = raw_field(L, 2, "initial_state") != LUA_TNIL;

    lua_pop(L, 1);
    return mode_steps(mode)
        || (given && (mode == M_FORWARD || mode == M_REFERENCE));
}

Run *run_begin(lua_State *L, Mode mode)
{
    const char *what = mode_name[mode];
    Variant *v = variant_check(L, 1);

    if (!lua_istable(L, 2))
        lang_fail(L, "v:forward { q = q, k = k, v = v }", "%s: a table of "
                  "tensors is wanted, not %s", what, type_text(L, 2));
    lua_settop(L, 2);
    lua_newtable(L);
    v = variant_of_call(v, has_states(L, mode));
    Run *r = push_run(L, v, mode);
    take_inputs(L, r, what);
    take_states(L, r, what);
    take_index(L, r, what);
    take_inplace(L, r, what);
    take_stateless(L, r, what);
    run_options(L, what, 2, &r->args);
    if (r->args.mode == M_BACKWARD && r->v->step->mask)
        pairs_options(L, what, 2, &r->args);
    if (r->args.fusion != FUSE_CHEAPEST && !v->step->layer)
        lang_fail(L, NULL, "%s: plan: %s is no layer: there is nothing that "
                  "it could be fused with", what, v->step->name);
    r->args.checkpoint = option_flag(L, what, 2, "checkpoint");
    if (r->args.checkpoint && !v->step->layer)
        lang_fail(L, "save = false", "%s: checkpoint: %s is no layer", what,
                  v->step->name);
    lua_settop(L, 4);
    move_numbers(L, r);
    if (raw_field(L, 2, "cu_seqlens") != LUA_TNIL)
        sequence_ends(L, r, what);
    protect(L, r->ctx, do_bind, r);
    return r;
}

void run_end(Run *r)
{
    ctx_free(r->ctx);
    r->ctx = NULL;
}
