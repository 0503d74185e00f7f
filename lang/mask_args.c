/* mask_args.c -- what a mask reads: p.NAME[i], p.NAME_cumsum[j], p.NAME. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../compiler/domain.h"
#include "declare.h"
#include "mask_trace.h"

/* ---- declarations ---- */

typedef struct Declare { Graph *g; const char *name, *axes; } Declare;

static void run_declare(Ctx *c, void *ud)
{
    Declare *d = ud;

    (void)c;
    graph_input(d->g, d->name, d->axes);
}

static const Input *find_input(const Graph *g, const char *name)
{
    int i = graph_find_input(g, name);

    return i < 0 ? NULL : &g->in[i];
}

static void declare(lua_State *L, MaskTrace *t, const char *name,
                    const char *axes)
{
    Declare d = { t->args, name, axes };

    if (!find_input(t->args, name))
        protect(L, t->tracer.ctx, run_declare, &d);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The input table at `at`: names in order. */
static void declare_table(lua_State *L, MaskTrace *t, int at)
{
    const char *name[MAX_INPUTS];
    size_t n = 0;

    for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
            lang_fail(L, "input = { k = \"t k\", g = \"t : log_decay\" }",
                      "input: names with axes as text are wanted");
        if (n == MAX_INPUTS - 1)        /* and dy */
            lang_fail(L, NULL, "more than %d inputs", MAX_INPUTS - 1);
        name[n++] = lua_tostring(L, -2);
    }
    qsort(name, n, sizeof *name, by_name);
    for (size_t k = 0; k < n; k++) {
        lua_getfield(L, at, name[k]);
        declared_name(L, "mask", "input", name[k]);
        declared_axes(L, "mask", "input", name[k], lua_tostring(L, -1));
        declare(L, t, name[k], lua_tostring(L, -1));
        if (find_input(t->args, name[k])->index_of)
            lang_fail(L, "flin.layer { ... }", "mask: input '%s' is an index: "
                      "inputs of layers are that alone", name[k]);
        lua_pop(L, 1);
    }
}

static void check_tensors(lua_State *L, const Graph *g)
{
    const Input *q = find_input(g, "q"), *k = find_input(g, "k");
    const Input *v = find_input(g, "v");

    if (q->axes != k->axes || !k->axes || !v->axes || k->axes & v->axes
        || !q->timed || !k->timed || !v->timed)
        lang_fail(L, "input = { q = \"t k\", k = \"t k\", v = \"t v\" }",
                  "input: of a mask's q, k and v, q and k have the same "
                  "axes, v others, and all have t");
}

/* Does the definition's transition correct what keys find? */
static bool corrects(lua_State *L, int def)
{
    int top = lua_gettop(L);
    bool is = def && lua_getfield(L, def, "transition") == LUA_TTABLE
           && lua_getfield(L, -1, "error_feedback") != LUA_TNIL
           && lua_toboolean(L, -1);

    lua_settop(L, top);
    return is;
}

void mask_declare(lua_State *L, MaskTrace *t, int def)
{
    const char *const tensor[][2] = {
        { "q", "t k" }, { "k", corrects(L, def) ? "t k : unit_norm" : "t k" },
        { "v", "t v" }
    };
    int top = lua_gettop(L);

    t->open = !def || lua_getfield(L, def, "input") != LUA_TTABLE;
    for (int n = 0; n < 3; n++) {
        bool given = !t->open
            && lua_getfield(L, top + 1, tensor[n][0]) == LUA_TSTRING;
        declare(L, t, tensor[n][0], given ? lua_tostring(L, -1)
                                          : tensor[n][1]);
    }
    if (!t->open)
        declare_table(L, t, top + 1);
    lua_settop(L, top);
    check_tensors(L, t->args);
    t->own = t->args->nin;
    if (def && lua_getfield(L, def, "transition") == LUA_TTABLE
        && lua_getfield(L, -1, "input") == LUA_TTABLE)
        declare_table(L, t, lua_gettop(L));
    lua_settop(L, top);
}

typedef struct Reads { MaskTrace *t; bool read[MAX_INPUTS]; } Reads;

static int sign_of(const char *domain)
{
    const Domain *d = domain_named(domain);

    return domain_within(d, -INFINITY, 0) ? -1
         : domain_within(d, 0, INFINITY) ? 1 : 0;
}

void mask_declare_signs(MaskTrace *t)
{
    for (int n = 0; n < t->nreads; n++)
        mask_declare_sign(t->mask, t->read[n].name,
                          t->read[n].token ? 0 : sign_of("log_decay"));
    for (int n = 0; n < t->args->nin; n++)
        mask_declare_sign(t->mask, t->args->in[n].name,
                          sign_of(t->args->in[n].domain));
}

void mask_declare_read(lua_State *L, MaskTrace *t)
{
    for (int n = 0; n < t->nreads; n++) {
        declared_name(L, "mask", "input", t->read[n].name);
        declare(L, t, t->read[n].name,
                t->read[n].token ? "t" : "t : log_decay");
    }
}

/* Marks in `read` the leaves that the paths' values need. */
static void mark_read(MaskTrace *t, bool *read)
{
    Mask *m = t->mask;

    for (int p = 0; p < m->npaths; p++) {
        for (int k = 0; k < 2; k++) {
            mask_reach(m, k ? m->path[p].score : m->path[p].value);
            for (int n = 0; n < m->g->nin; n++)
                if (m->mark[m->g->in[n].node])
                    read[n] = true;
        }
    }
}

static void run_mark_read(Ctx *c, void *ud)
{
    Reads *r = ud;

    (void)c;
    mark_read(r->t, r->read);
}

static void check_read(lua_State *L, const Reads *r, const char *name)
{
    const MaskTrace *t = r->t;

    for (int n = 0; n < t->mask->g->nin; n++)
        if (r->read[n] && !strcmp(t->mask->leaf[n].name, name))
            return;
    lang_fail_at(L, (Place){ t->tracer.ctx->file, t->first_line },
                 lua_pushfstring(L, "p.%s[j] is its number at token j%s", name,
                                 t->open ? "" : "; or take it out of input"),
                 "input '%s': the mask does not depend on it", name);
}

void mask_check_read(lua_State *L, MaskTrace *t)
{
    Reads r = { .t = t };

    protect(L, t->tracer.ctx, run_mark_read, &r);
    for (int i = 3; i < t->own; i++)    /* behind q, k and v */
        check_read(L, &r, t->args->in[i].name);
    for (int n = 0; n < t->nreads; n++)
        check_read(L, &r, t->read[n].name);
}

/* ---- names ---- */

/* The length of NAME in "NAME_cumsum", or 0. */
static size_t sum_name(const char *name)
{
    size_t n = strlen(name), tail = strlen("_cumsum");

    return n > tail && !strcmp(name + n - tail, "_cumsum") ? n - tail : 0;
}

static void note_read(lua_State *L, MaskTrace *t, const char *base,
                      bool token)
{
    int n = 0;

    while (n < t->nreads && strcmp(t->read[n].name, base))
        n++;
    if (n == MAX_INPUTS - 4)
        lang_fail(L, NULL, "the mask reads more than %d inputs", n);
    if (n == t->nreads)
        snprintf(t->read[t->nreads++].name, sizeof t->read->name, "%s", base);
    t->read[n].token |= token;
}

static _Noreturn void unknown(lua_State *L, const MaskTrace *t,
                              const char *name)
{
    const char *list[MAX_INPUTS];

    for (int n = 0; n < t->args->nin; n++)
        list[n] = t->args->in[n].name;
    const char *near = nearest_name(name, list, t->args->nin);
    if (near)
        near = lua_pushfstring(L, "did you mean p.%s?", near);
    lang_fail(L, near ? near : "declare it in input", "p.%s: there is no "
              "such input", name);
}

/* mask(i, j) exp(s), of which a row has one sum, is a number a pair; that of
 * each key's own mask would be another function of s, which with the same mask
 * for all keys is not this one. */
_Noreturn static void refuse_entries(lua_State *L, const Input *in,
                                     bool of_keys)
{
    lang_fail(L, of_keys
              ? "declare it \"t\", a number for each token; leave normalise "
                "out, as a plain sum takes a mask for each key; or multiply q "
                "or k by what weighs i or j alone before the call"
              : "declare it \"t\", a number for each token; leave normalise "
                "out, as a plain sum takes a mask for each value; or give each "
                "value a head of its own",
              "p.%s has more axes than t, but a softmax weighs whole tokens: "
              "exp(s) of a pair's one score, times the mask, over the sum of "
              "these in the row", in->name);
}

/* What differs from entry to entry of a token makes a mask for each of them. */
static void check_entries(lua_State *L, const MaskTrace *t, const Input *in)
{
    const Input *k = find_input(t->args, "k"), *v = find_input(t->args, "v");

    if (in == k || in == v || in == find_input(t->args, "q"))
        lang_fail(L, "a mask is what a pair's product of q and k is multiplied "
                  "by", "p.%s: the mask reads what it weighs", in->name);
    if (t->mask->softmax)
        refuse_entries(L, in, in->axes == k->axes);
    if (in->axes != k->axes && in->axes != v->axes)
        lang_fail(L, "what a mask reads is of whole tokens, of each of their "
                  "keys, \"t k\", or of each value, \"t v\"", "p.%s has axes "
                  "that are neither those of k nor of v", in->name);
}

static LeafKind classify(lua_State *L, MaskTrace *t, const char *name,
                         char base[48])
{
    const Input *in = find_input(t->args, name);
    size_t n = in ? 0 : sum_name(name);

    if (strlen(name) > 28)
        lang_fail(L, NULL, "p.%s: the name is longer than 28 letters", name);
    snprintf(base, 48, "%.*s", n ? (int)n : 40, name);
    if (!in)
        in = find_input(t->args, base);
    if (!in && !t->open)
        unknown(L, t, name);
    if (in && in->axes)
        check_entries(L, t, in);
    if (in && n && !in->timed)
        lang_fail(L, NULL, "p.%s: %s is the same for every token", name,
                  base);
    if (!in)
        note_read(L, t, base, !n);
    if (in && !in->timed)
        return LEAF_CONSTANT;
    return n ? LEAF_CUMSUM : LEAF_TOKEN;
}

/* ---- symbols ---- */

typedef struct Read {
    MaskTrace *t;
    const char *name;
    LeafKind kind;
    Ref index, r;
} Read;

static void run_constant(Ctx *c, void *ud)
{
    Read *a = ud;

    (void)c;
    a->r = mask_leaf(a->t->mask, LEAF_CONSTANT, 0, a->name, 0);
}

/* p.x_cumsum[i - 2] is p.x_cumsum[i] - p.x[i] - p.x[i - 1]. */
static void run_read(Ctx *c, void *ud)
{
    Read *a = ud;
    Mask *m = a->t->mask;
    const char *sum = a->kind == LEAF_CUMSUM ? "_cumsum" : "";
    char *text = expr_text(m->g, a->index);
    int64_t back;
    int side = mask_index(m, a->index, &back);

    if (!side)
        fail_help(c, m->g->line, "an index is i or j, less a whole number",
                  "p.%s%s[%s]: this is not a token of the mask", a->name,
                  sum, text);
    if (back < 0)
        fail_help(c, m->g->line, "a token can be read when it is there: "
                  "i, j, or tokens before", "p.%s%s[%s] reads a later token",
                  a->name, sum, text);
    int most = a->kind == LEAF_CUMSUM ? MAX_SUM_BACK : MAX_BACK;
    if (back > most)
        fail_help(c, m->g->line, ctx_format(c, "a mask may look back %d "
                  "tokens at most%s", most, *sum ? " at a sum" : ""),
                  "p.%s%s[%s] is %lld tokens back", a->name, sum, text,
                  (long long)back);
    if (a->kind == LEAF_TOKEN) {
        a->r = mask_leaf(m, LEAF_TOKEN, side, a->name, (int)back);
        return;
    }
    a->r = mask_leaf(m, LEAF_CUMSUM, side, a->name, 0);
    for (int n = 0; n < back; n++)
        a->r = op2(m->g, OP_sub, a->r,
                   mask_leaf(m, LEAF_TOKEN, side, a->name, n));
}

/* Pushes what functions of the mask's arguments find the trace by: the script
 * may keep them for longer than the trace lasts. */
static void push_trace(lua_State *L, MaskTrace *t)
{
    MaskTrace **held = lua_newuserdatauv(L, sizeof *held, 1);

    *held = t;
    lua_pushvalue(L, t->owner);
    lua_setiuservalue(L, -2, 1);
}

static MaskTrace *up_trace(lua_State *L)
{
    MaskTrace *t = *(MaskTrace **)lua_touserdata(L, lua_upvalueindex(1));

    if (t->tracer.closed)
        lang_fail(L, "read it inside of the function", "this p belongs to a "
                  "mask that has been traced already");
    return t;
}

/* Upvalues: trace, owner, name, kind. */
static int symbol_at(lua_State *L)
{
    Read a = { .t = up_trace(L),
               .name = lua_tostring(L, lua_upvalueindex(3)),
               .kind = (LeafKind)lua_tointeger(L, lua_upvalueindex(4)) };
    Value *v = value_test(L, 2);

    if (!v || v->t != &a.t->tracer)
        lang_fail(L, "a mask knows two tokens: p.x[i], p.x[j], or those "
                  "before them, p.x[j - 1]", "p.%s%s[%s]: the index must be "
                  "i or j", a.name, a.kind == LEAF_CUMSUM ? "_cumsum" : "",
                  luaL_tolstring(L, 2, NULL));
    a.index = v->r;
    a.t->mask->g->line = current_line(L);
    protect(L, a.t->tracer.ctx, run_read, &a);
    value_push(L, lua_upvalueindex(2), &a.t->tracer, a.r);
    return 1;
}

/* Upvalue: name. A sequence was used where a number is wanted. */
static int misused(lua_State *L)
{
    const char *s = lua_tostring(L, lua_upvalueindex(1));
    const char *help = lua_pushfstring(L, "p.%s[i] and p.%s[j] are numbers; "
                                       "input = { %s = \"\" } declares one "
                                       "for the whole head", s, s, s);

    lang_fail(L, help, "p.%s has a number for each token", s);
}

static const char *const operators[] = {
    "__add", "__sub", "__mul", "__div", "__unm", "__pow", "__lt", "__le",
    "__mod", "__idiv", "__concat", "__call"
};

/* Pushes p.NAME, of which the indexing function is on top (and popped). */
static void push_sequence(lua_State *L, const char *name)
{
    int read = lua_gettop(L);

    lua_newtable(L);
    lua_newtable(L);
    for (size_t n = 0; n < sizeof operators / sizeof *operators; n++) {
        lua_pushstring(L, name);
        lua_pushcclosure(L, misused, 1);
        lua_setfield(L, -2, operators[n]);
    }
    lua_pushstring(L, name);
    lua_pushcclosure(L, misused, 1);
    lua_setfield(L, -2, MISUSED);
    lua_pushvalue(L, read);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    lua_remove(L, read);
}

static const char *field_name(lua_State *L)
{
    if (lua_type(L, 2) != LUA_TSTRING)
        lang_fail(L, "p.NAME[i] is an input's number at token i",
                  "p[%s]: inputs have names", luaL_tolstring(L, 2, NULL));
    return lua_tostring(L, 2);
}

/* Keeps what is on top as p.NAME, so that it is asked for once. */
static int keep_field(lua_State *L)
{
    lua_pushvalue(L, 2);
    lua_pushvalue(L, -2);
    lua_rawset(L, 1);
    return 1;
}

static void push_p(lua_State *L, lua_CFunction f, int upvalues)
{
    lua_pushcclosure(L, f, upvalues);
    lua_newtable(L);
    lua_newtable(L);
    lua_rotate(L, -3, 2);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
}

/* Upvalues: trace, owner. */
static int symbol_field(lua_State *L)
{
    const char *name = field_name(L);
    MaskTrace *t = up_trace(L);
    char base[48];
    LeafKind kind = classify(L, t, name, base);

    if (kind == LEAF_CONSTANT) {
        Read a = { .t = t, .name = base };
        protect(L, t->tracer.ctx, run_constant, &a);
        value_push(L, lua_upvalueindex(2), &t->tracer, a.r);
        return keep_field(L);
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_pushstring(L, base);
    lua_pushinteger(L, kind);
    lua_pushcclosure(L, symbol_at, 4);
    push_sequence(L, name);
    return keep_field(L);
}

void mask_push_symbols(lua_State *L, MaskTrace *t, int owner)
{
    owner = lua_absindex(L, owner);
    push_trace(L, t);
    lua_pushvalue(L, owner);
    push_p(L, symbol_field, 2);
}

/* ---- numbers ---- */

static int zero(lua_State *L)
{
    lua_pushnumber(L, 0);
    return 1;
}

/* Upvalues: trace, name, kind, how it is drawn. */
static int number_at(lua_State *L)
{
    const Mask *m = up_trace(L)->mask;
    const char *name = lua_tostring(L, lua_upvalueindex(2));
    unsigned draw = (unsigned)lua_tointeger(L, lua_upvalueindex(4));
    int whole;
    lua_Integer t = lua_tointegerx(L, 2, &whole);

    if (!whole)
        return 0;
    if (t < 0)
        lua_pushnumber(L, 0);
    else if (lua_tointeger(L, lua_upvalueindex(3)) == LEAF_CUMSUM)
        lua_pushnumber(L, mask_cumsum(m, name, t, draw));
    else
        lua_pushnumber(L, mask_draw(m, name, t, draw));
    return 1;
}

/* Upvalues: trace, how it is drawn. */
static int number_field(lua_State *L)
{
    const char *name = field_name(L);
    unsigned draw = (unsigned)lua_tointeger(L, lua_upvalueindex(2));
    char base[48];
    LeafKind kind = classify(L, up_trace(L), name, base);

    if (kind == LEAF_CONSTANT) {
        lua_pushnumber(L, mask_draw(up_trace(L)->mask, base, -1, draw));
        return keep_field(L);
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushstring(L, base);
    lua_pushinteger(L, kind);
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_pushcclosure(L, number_at, 4);
    push_sequence(L, name);
    return keep_field(L);
}

void mask_push_numbers(lua_State *L, MaskTrace *t, unsigned draw)
{
    push_trace(L, t);
    lua_pushinteger(L, draw);
    push_p(L, number_field, 2);
}

/* Pushes the sequence of the array on top, summed up or not; *far becomes its
 * largest sum, if that is larger. */
static void push_given(lua_State *L, const char *name, int n, bool sum,
                       double *far)
{
    int from = lua_gettop(L);
    double total = 0;

    lua_pushcfunction(L, zero);
    push_sequence(L, name);
    for (int t = 0; t < n; t++) {
        if (lua_geti(L, from, t + 1) != LUA_TNUMBER)
            luaL_error(L, "mask_values: %s has no number for token %d", name,
                       t + 1);
        double x = lua_tonumber(L, -1);
        total = sum ? total + x : x;
        if (sum && !(fabs(total) <= *far))
            *far = isnan(total) ? INFINITY : fabs(total);
        lua_pop(L, 1);
        lua_pushnumber(L, total);
        lua_rawseti(L, -2, t);
    }
    lua_remove(L, from);
}

/* Upvalues: the table of parameters, tokens, where the largest sum goes. */
static int given_field(lua_State *L)
{
    const char *name = field_name(L);
    int n = (int)lua_tointeger(L, lua_upvalueindex(2));
    double *far = lua_touserdata(L, lua_upvalueindex(3));
    int type = lua_getfield(L, lua_upvalueindex(1), name);
    size_t base = type == LUA_TNIL ? sum_name(name) : 0;

    if (base) {
        lua_pushlstring(L, name, base);
        lua_gettable(L, lua_upvalueindex(1));
        type = lua_type(L, -1);
    }
    if (type == LUA_TTABLE)
        push_given(L, name, n, base != 0, far);
    else if (type != LUA_TNUMBER || base)
        luaL_error(L, "mask_values: the mask reads p.%s, which the "
                   "parameters lack", name);
    return keep_field(L);
}

const double *mask_push_given(lua_State *L, int given, int n)
{
    lua_pushvalue(L, given);
    lua_pushinteger(L, n);
    double *far = lua_newuserdatauv(L, sizeof *far, 0);
    *far = 0;
    push_p(L, given_field, 3);
    return far;
}
