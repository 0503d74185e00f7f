/* layer_parts.c -- v:parts, v:part of a layer: what it is cut into, for a host
 * that runs the parts itself, as one does whose tokens lie on many devices.
 */
#include "layer_run.h"
#include "value.h"

typedef struct Parting {
    const Variant *v;
    const LayerParts *parts;
    int32_t size[NAXES];
    Graph *to;                          /* part i's step, of another variant */
    int i;
} Parting;

static void cut(Ctx *c, void *ud)
{
    Parting *p = ud;

    p->parts = layer_cut(c, p->v->step->layer, p->size);
}

/* The parts for the sizes of axes in the table at `arg`. */
static Parting *push_parting(lua_State *L, int arg)
{
    Parting *p = lua_newuserdatauv(L, sizeof *p, 0);

    *p = (Parting){ .v = variant_check(L, 1) };
    if (!p->v->step->layer)
        lang_fail(L, NULL, "parts: %s is no layer", p->v->step->name);
    sizes_arg(L, "parts", p->v->step, arg, 16, p->size);
    protect(L, p->v->ctx, cut, p);
    return p;
}

static void put_string(lua_State *L, const char *key, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, key);
}

static void put_axes(lua_State *L, const char *key, const Graph *g, AxisSet s)
{
    int n = 0;

    lua_newtable(L);
    for (; s; s &= s - 1) {
        lua_pushstring(L, g->axis[lowest(s)].name);
        lua_rawseti(L, -2, ++n);
    }
    lua_setfield(L, -2, key);
}

/* A value: its axes, in order, and which argument or number it is, if any. */
static void push_value(lua_State *L, const Graph *g, int nin, Ref r)
{
    const Node *n = &g->n[r];

    lua_createtable(L, 0, 6);
    lua_pushinteger(L, r);
    lua_setfield(L, -2, "id");
    put_axes(L, "axes", g, n->axes);
    lua_pushboolean(L, n->timed);
    lua_setfield(L, -2, "timed");
    lua_pushboolean(L, layer_wide(g, r));
    lua_setfield(L, -2, "wide");
    if (n->op == OP_input && n->index < nin)
        put_string(L, "argument", g->in[n->index].name);
    if (n->op == OP_num) {
        lua_pushnumber(L, n->num);
        lua_setfield(L, -2, "number");
    }
}

/* The names of the part's inputs' axes in the layer, in the part's order. */
static void put_order(lua_State *L, const Graph *g, const LayerPart *p,
                      const uint8_t *order, int rank)
{
    lua_createtable(L, rank, 0);
    for (int i = 0; i < rank; i++) {
        lua_pushstring(L, g->axis[p->axis[order[i]]].name);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "order");
}

static void put_inputs(lua_State *L, const Parting *k, const LayerPart *p)
{
    const Layer *l = k->v->step->layer;

    lua_createtable(L, p->nin, 0);
    for (int i = 0; i < p->nin; i++) {
        push_value(L, l->traced, l->nin, p->in[i]);
        if (p->step) {
            put_order(L, l->traced, p, p->step->in[i].order,
                      p->step->in[i].rank);
            put_string(L, "name", p->step->in[i].name);
        }
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "inputs");
}

/* The layer's states that are the part's: one, where there are taps, of which
 * each of the part's is a slice. */
static void put_states(lua_State *L, const Parting *k, const LayerPart *p)
{
    const Graph *g = k->v->step->layer->traced;

    lua_createtable(L, p->step->nst, 0);
    for (int i = 0; i < p->step->nst; i++) {
        lua_createtable(L, 0, 3);
        put_string(L, "name", k->v->step->st[p->state
                                             + (p->taps ? 0 : i)].name);
        put_string(L, "own", p->step->st[i].name);
        put_order(L, g, p, p->step->st[i].order, p->step->st[i].rank);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "states");
}

static void push_part(lua_State *L, const Parting *k, const LayerPart *p)
{
    const Layer *l = k->v->step->layer;
    const Graph *g = l->traced;

    lua_createtable(L, 0, 8);
    put_string(L, "name", p->name);
    push_value(L, g, l->nin, p->y);
    if (p->step)
        put_order(L, g, p, p->step->out[0].order, p->step->out[0].rank);
    lua_setfield(L, -2, "y");
    put_inputs(L, k, p);
    put_axes(L, "over", g, p->over);
    lua_pushboolean(L, p->constant);
    lua_setfield(L, -2, "constant");
    lua_pushboolean(L, p->step != NULL);
    lua_setfield(L, -2, "step");
    if (p->heads)
        put_string(L, "heads", g->axis[p->heads].name);
    if (p->taps)
        put_string(L, "taps", g->axis[p->taps].name);
    if (p->step && p->step->nst)
        put_states(L, k, p);
}

/* v:parts(sizes): a table for each, in an order in which they can run. */
static int layer_parts(lua_State *L)
{
    const Parting *k = push_parting(L, 2);

    lua_createtable(L, k->parts->n, 0);
    for (int i = 0; i < k->parts->n; i++) {
        push_part(L, k, &k->parts->part[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static void copy_part(Ctx *c, void *ud)
{
    Parting *k = ud;

    c->file = k->v->ctx->file ? ctx_string(c, k->v->ctx->file) : NULL;
    k->to = graph_copy(c, k->parts->part[k->i].step);
}

/* v:part(i, sizes): part i as a variant, if it is no product. */
static int layer_part(lua_State *L)
{
    lua_Integer i = luaL_checkinteger(L, 2);
    Parting *k = push_parting(L, 3);

    if (i < 1 || i > k->parts->n || !k->parts->part[i - 1].step)
        lang_fail(L, NULL, "part: %s has no part %d that is a step",
                  k->v->step->name, (int)i);
    k->i = (int)i - 1;
    Variant *to = variant_push(L, k->parts->part[i - 1].name);
    protect(L, to->ctx, copy_part, k);
    to->step = k->to;
    return 1;
}

void layer_part_methods(lua_State *L)
{
    static const luaL_Reg methods[] = {
        { "parts", layer_parts }, { "part", layer_part }, { NULL, NULL }
    };

    luaL_setfuncs(L, methods, 0);
}
