/* map.c -- v:map: a variant whose inputs go through functions before the step.
 */
#include <string.h>

#include "bind.h"
#include "truth.h"
#include "value.h"

typedef struct Graft {
    const Variant *v;
    Variant *new;
    const Graph *from;
    Graph *to;
    Ref as[MAX_INPUTS];                 /* what each input is replaced by */
} Graft;

void declare_again(Graph *to, const Graph *from, int states)
{
    Ref none[4] = { 0 };

    memcpy(to->axis, from->axis, sizeof to->axis);
    memcpy(to->in, from->in, sizeof to->in);
    memcpy(to->st, from->st, (size_t)states * sizeof *to->st);
    to->naxes = from->naxes;
    to->nin = from->nin;
    to->nst = states;
    for (int i = 0; i < to->nin; i++)
        to->in[i].node = node_copy(to, &from->n[from->in[i].node], none);
    for (int i = 0; i < to->nst; i++) {
        to->st[i].node = node_copy(to, &from->n[from->st[i].node], none);
        to->st[i].next = 0;             /* not of this graph */
    }
}

static void graft_declare(Ctx *c, void *ud)
{
    Graft *m = ud;

    c->file = ctx_string(c, m->v->ctx->file);
    m->new->about = ctx_string(c, m->v->about);
    declare_again(m->to, m->from, m->from->nst);
    memcpy(m->to->out, m->from->out, sizeof m->to->out);
    m->to->nout = m->from->nout;
    for (int i = 0; i < m->to->nin; i++)
        m->as[i] = m->to->in[i].node;
    m->new->nprobes = m->v->nprobes;
    m->new->probes = m->v->nprobes
        ? ctx_grow(c, NULL, 0, (size_t)m->v->nprobes * sizeof *m->v->probes)
        : NULL;
    for (int i = 0; i < m->v->nprobes; i++)
        m->new->probes[i] = m->v->probes[i];
}

/* The step, of the replaced inputs. */
static void graft_step(Ctx *c, void *ud)
{
    Graft *m = ud;
    const Graph *from = m->from;
    Graph *to = m->to;
    Ref *map = ctx_alloc(c, from->len * sizeof *map);
    uint8_t *live = ctx_alloc(c, from->len);

    for (Ref r = 1; r < to->len; r++)
        to->n[r].line = 0;              /* of another script */
    graph_live(from, live);
    for (Ref r = 1; r < from->len; r++) {
        const Node *n = &from->n[r];
        Ref a[4] = { map[n->a[0]], map[n->a[1]], map[n->a[2]], map[n->a[3]] };
        to->line = n->line;
        if (live[r])
            map[r] = node_copy(to, n, a);
        for (int i = 0; i < to->nin; i++)
            if (from->in[i].node == r)
                map[r] = m->as[i];
    }
    for (int i = 0; i < to->nst; i++)
        to->st[i].next = map[from->st[i].next];
    for (int i = 0; i < to->nout; i++)
        to->out[i].node = map[from->out[i].node];
}

/* Input i is replaced by what the function on top makes of it. */
static void map_input(lua_State *L, int owner, Tracer *t, Graft *m, int i)
{
    const Input *in = &t->g->in[i];
    int states = t->g->nst;

    value_push(L, owner, t, in->node);
    lua_call(L, 1, 1);
    m->as[i] = value_arg(L, t, lua_gettop(L));
    if (t->g->nst != states)
        lang_fail(L, NULL, "map: '%s': a function of one token is wanted; "
                  "flin.prev is for a step", in->name);
    AxisSet got = t->g->n[m->as[i]].axes;
    if (got != in->axes)
        lang_fail(L, NULL, "map: '%s' has axes %s, but the function makes "
                  "axes %s of it", in->name, value_axes(L, t, in->axes),
                  value_axes(L, t, got));
    t->g->in[i].mapped = true;
}

/* The input that the string at `at` names. */
static int named_input(lua_State *L, const Graph *g, int at)
{
    const char *list[MAX_INPUTS], *key = luaL_tolstring(L, at, NULL);

    for (int i = 0; i < g->nin; i++) {
        list[i] = g->in[i].name;
        if (!strcmp(list[i], key))
            return i;
    }
    lang_fail(L, suggest(L, key, "inputs", list, g->nin),
              "map: %s has no input '%s'", g->name, key);
}

/* The step of a mapped variant. Upvalues: the other's step; names, each with
 * its function behind it. */
static int mapped_step(lua_State *L)
{
    lua_Integer n = (lua_Integer)lua_rawlen(L, lua_upvalueindex(2));

    lua_settop(L, 2);
    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, 3);
    }
    for (lua_Integer i = 1; i < n; i += 2) {
        lua_rawgeti(L, lua_upvalueindex(2), i);
        lua_rawgeti(L, lua_upvalueindex(2), i + 1);
        lua_pushvalue(L, -2);
        lua_rawget(L, 1);
        lua_call(L, 1, 1);
        lua_rawset(L, 3);
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, 3);
    lua_pushvalue(L, 2);
    lua_call(L, 2, LUA_MULTRET);
    return lua_gettop(L) - 3;
}

/* The variant at `at` keeps of what it is made: { v, functions }. */
static void keep_map(lua_State *L, int at)
{
    lua_createtable(L, 2, 0);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 1);
    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, 2); ) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, -4);
    }
    lua_rawseti(L, -2, 2);
    lua_setiuservalue(L, at, OF_MAP);
}

/* v:map{ q = function (q) return ... end }: the variant that is v after its
 * inputs have gone through these functions. */
int variant_map(lua_State *L)
{
    const Variant *v = variant_check(L, 1);

    if (!lua_istable(L, 2))
        lang_fail(L, "v:map { q = function (q) return ... end }",
                  "map: a table is wanted, not %s", type_text(L, 2));
    refuse_layer(L, v, "map");
    if (v->step->mask)
        lang_fail(L, NULL, "map: %s is a mask %s, which has no step",
                  v->step->name, v->runs ? "of both directions"
                                         : "over all pairs of tokens");
    Variant *to = variant_push(L, v->step->name);
    int at = lua_gettop(L);
    Tracer *t = tracer_push(L, at, to);
    int owner = lua_gettop(L);
    Graft *m = lua_newuserdatauv(L, sizeof *m, 0);
    *m = (Graft){ v, to, v->step, to->step, { 0 } };
    initial_copy(L, at, 1);
    protect(L, to->ctx, graft_declare, m);
    lua_getiuservalue(L, 1, OF_FUNCTION);
    lua_newtable(L);
    int list = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, 2); lua_settop(L, list + 1)) {
        int i = named_input(L, v->step, list + 1);
        if (!lua_isfunction(L, list + 2))
            lang_fail(L, NULL, "map: %s: a function is wanted, not %s",
                      v->step->in[i].name, type_text(L, list + 2));
        for (int k = 1; k <= 2; k++) {
            lua_pushvalue(L, list + k);
            lua_rawseti(L, list, (lua_Integer)lua_rawlen(L, list) + 1);
        }
        lua_pushvalue(L, list + 2);
        map_input(L, owner, t, m, i);
    }
    protect(L, to->ctx, graft_step, m);
    for (int i = 0; i < v->nprevs && t->nprevs < MAX_PREVS; i++)
        t->prevs[t->nprevs++] = v->prevs[i];
    t->closed = true;
    lua_settop(L, list);
    lua_pushcclosure(L, mapped_step, 2);
    Place here = { current_file(L), current_line(L) };
    if (!v->masked)                     /* a mask's function is no step */
        check_step(L, at, list - 1, t, here);
    keep_lines(L, to);
    keep_map(L, at);
    lua_pushvalue(L, at);
    return 1;
}
