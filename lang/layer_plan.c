/* layer_plan.c -- v:plan of a layer: what runs each of its parts, and what that
 * moves and computes, for tensors of one shape and type.
 */
#include <string.h>

#include "layer_price.h"
#include "plan_view.h"

#define SHOWING_META "flin.layer_plan"

/* The parts that there are with this much of the layer in the steps of calls.
 */
typedef struct Cutting {
    LayerChoice choice;
    LayerParts *parts;
    Joints *joints;
    int *sum, *tile;                    /* find_sums's; what may be made in
                                           tiles */
    Fusion how;
    const char **by;
    Price *price, all;
} Cutting;

static const char *const cut_name[FUSIONS] = { "cheapest", "separate", "fused",
                                               "whole", "tiles", "pieces",
                                               "stack" };

typedef struct Showing {
    Ctx *ctx;                           /* that it is found in */
    Variant *v;
    Pricing as;
    int32_t size[NAXES];
    Fusion fusion;                      /* that is shown */
    Cutting cut[FUSIONS];
    const LayerParts *uncut;
    const char **name;
    Buf text;
} Showing;

/* The one that part i runs in; NULL: it is one of its own. */
static const Joint *joint_at(const Showing *s, const Cutting *k, int i)
{
    const Joint *j = k->joints->of[i]
                   ? &k->joints->joint[k->joints->of[i] - 1] : NULL;
    double tokens = (double)s->as.B * (double)s->as.T;

    if (!j || !s->as.gpu)
        return NULL;
    return s->as.beside || joint_pays(j, s->as.m, tokens, 2) ? j : NULL;
}

/* A call's, as in a cut before, where its step is the same. */
static Price price_apart(const Showing *s, const Cutting *k, int i)
{
    const LayerPart *p = &k->parts->part[i];
    Pricing as = s->as;

    for (const Cutting *was = s->cut; was < k; was++)
        for (int at = 0; was->parts && at < was->parts->n; at++)
            if (layer_is_call(s->v->step->layer, p)
                && was->parts->part[at].step == p->step) {
                k->by[i] = was->by[at];
                return was->price[at];
            }
    as.parts = k->parts;
    return price_part(&as, p, &k->by[i]);
}

/* Entries of the axis along which the product of row part i may be cut. */
static int32_t columns_of(const Showing *s, const Cutting *k, int i)
{
    const LayerPart *row = &k->parts->part[i];
    const char *why;
    RowStep *step = row_step(s->as.c, row->step, &why);
    int ax = step ? column_axis(s->as.c, s->as.g,
                              &k->parts->part[k->tile[i] - 1], row, step) : 0;

    return ax ? s->size[ax] : 0;
}

/* The product's, or the rows' as they are. */
static Price price_tiled(const Showing *s, const Cutting *k, int i)
{
    int row = k->tile[i] < 0 ? -k->tile[i] - 1 : i;
    int product = k->tile[row] - 1;
    const char *by = k->by[product];
    Price price = price_apart(s, k, product);
    Tiling t = price_tiles(&s->as, &k->parts->part[product],
                           columns_of(s, k, row), k->how != FUSE_TILES, &price);

    if (i == row) {
        k->by[product] = by;
        price = price_apart(s, k, row);
    }
    if (t.way != TILE_WHOLE)
        k->by[i] = ctx_format(s->as.c, "%s, in tiles of %lld %s", k->by[i],
                              (long long)t.at_once, t.way == TILE_TOKENS
                              ? "tokens" : "columns");
    return price;
}

/* Of a sum that a product makes: what that is added to is read. */
static Price price_sum(const Showing *s, const Cutting *k, int i)
{
    double bytes = (double)s->as.B * (double)s->as.T * (s->as.gpu ? 2 : 4);
    AxisSet axes = s->as.g->n[k->parts->part[i].y].axes;

    for (; axes; axes &= axes - 1)
        bytes *= s->size[lowest(axes)];
    k->by[i] = ctx_format(s->as.c, "in the product of %s",
                          s->name[k->parts->part[k->sum[i] - 1].y]);
    return (Price){ .bytes = bytes, .seconds = bytes / s->as.m->bandwidth };
}

static Price price_at(const Showing *s, const Cutting *k, int i)
{
    const Joint *j = joint_at(s, k, i);

    if (k->sum[i] > 0)
        return price_sum(s, k, i);
    if (!j && k->tile[i])
        return price_tiled(s, k, i);
    if (!j)
        return price_apart(s, k, i);
    if (j->at == i)
        return price_joint(&s->as, k->parts, j, &k->by[i]);
    k->by[i] = ctx_format(s->as.c, "in the product of %s",
                          s->name[k->parts->part[j->at].y]);
    return (Price){ 0 };
}

/* ---- as text ---- */

static const char *value_text(const Showing *s, Ref r)
{
    return s->name[r] ? s->name[r] : expr_named(s->as.g, r, s->name);
}

static const char *call_text(const Showing *s, const char *name, int n,
                             const Ref *arg)
{
    Buf b = { .ctx = s->as.c };

    buf_printf(&b, "%s(", name);
    for (int i = 0; i < n; i++)
        buf_printf(&b, "%s%s", i ? ", " : "", value_text(s, arg[i]));
    buf_printf(&b, ")");
    return b.s;
}

/* "gla(v1, v2)", of several results "gla(v1, v2).err" */
static const char *called_text(const Showing *s, const char *name,
                               const LayerCall *k)
{
    const char *text = call_text(s, name, k->nargs, k->arg);

    return k->result ? ctx_format(s->as.c, "%s.%s", text, k->result) : text;
}

/* "v1 = dot(x, Wq)" */
static char *part_text(const Showing *s, const LayerPart *p)
{
    const Graph *g = s->as.g;
    const Layer *l = g->layer;
    const char *text = NULL;

    for (int i = 0; i < l->ncalls; i++)
        if (l->call[i].y == p->y)
            text = called_text(s, p->name, &l->call[i]);
    return ctx_format(s->as.c, "%s = %s", s->name[p->y],
                      text ? text : expr_named(g, p->y, s->name));
}

/* Values by their names: of parts; and of calls that others stand behind, the
 * calls. */
static void find_names(Showing *s, const LayerParts *p)
{
    const Layer *l = s->as.g->layer;

    s->name = layer_names(s->as.g, p);
    for (int i = 0; i < l->ncalls; i++) {
        const LayerCall *k = &l->call[i];
        if (!s->name[k->y])
            s->name[k->y] = called_text(s, k->name, k);
    }
}

static void put_price(Buf *b, const char *by, const Price *p)
{
    buf_printf(b, "    %-44s %9.1f MFLOP %9.2f MB %9.1f us\n", by,
               p->flops / 1e6, p->bytes / 1e6, p->seconds * 1e6);
}

/* "softplus(v5), v4 in gla, v9 behind it" */
static char *group_text(const Showing *s, const LayerParts *parts,
                        const LayerGroup *g)
{
    const LayerPart *p = parts->part;
    Buf b = { .ctx = s->as.c };

    for (int i = 0; g->before && i < parts->n; i++)
        if (g->before[i])
            buf_printf(&b, "%s%s", b.len ? ", " : "", value_text(s, p[i].y));
    if (b.len)
        buf_printf(&b, " in ");
    buf_printf(&b, "%s", p[g->part].name);
    if (g->behind >= 0)
        buf_printf(&b, ", %s behind it", value_text(s, p[g->behind].y));
    else if (b.len == strlen(p[g->part].name))
        buf_printf(&b, " alone");
    return b.s;
}

/* Why it is so: what else there was. */
static void put_others(Showing *s)
{
    const LayerChoice *k = &s->cut[FUSE_CHEAPEST].choice;
    Buf *b = &s->text;

    if (!k->program)
        return;
    buf_printf(b, "  chosen by usual calls, of %d kernels: %.1f us%s; part by "
               "part: %.1f us\n", k->offered, k->seconds * 1e6,
               k->proved ? ", proved" : "", k->walk * 1e6);
    for (int i = 0; i < k->nothers; i++)
        buf_printf(b, "    %+.1f us%s: %s\n", k->other[i].more * 1e6,
                   k->other[i].least ? " at least" : "",
                   group_text(s, s->uncut, &k->other[i].group));
}

static void put_text(Showing *s)
{
    const Cutting *k = &s->cut[s->fusion];
    Buf *b = &s->text;

    buf_printf(b, "%s on %s, %s, B = %lld, T = %lld, %s\n", s->as.g->name,
               s->as.m->name, s->as.gpu ? "bfloat16" : "float32",
               (long long)s->as.B, (long long)s->as.T, s->as.backward
               ? "forward and backward" : "forward");
    for (int i = 0; i < k->parts->n; i++) {
        buf_printf(b, "  %s\n", part_text(s, &k->parts->part[i]));
        put_price(b, k->by[i], &k->price[i]);
    }
    buf_printf(b, "  all of it\n");
    put_price(b, ctx_format(s->as.c, "%d parts", k->parts->n), &k->all);
    for (int i = 0; i < FUSIONS; i++)
        if (i != (int)s->fusion && s->cut[i].parts)
            put_price(b, ctx_format(s->as.c, "%s: %d parts", cut_name[i],
                                    s->cut[i].parts->n), &s->cut[i].all);
    put_others(s);
}

/* ---- finding it ---- */

/* ", v2 again": row parts in its step that are parts of their own, too. */
static const char *again_text(const Showing *s, const LayerParts *parts,
                              const Cutting *k, int i)
{
    const LayerGroup *g = &k->choice.groups.group[i];
    Buf b = { .ctx = s->as.c };

    for (int r = 0; g->before && r < parts->n; r++)
        for (int at = 0; g->before[r] && at < i; at++)
            if (k->parts->part[at].y == parts->part[r].y)
                buf_printf(&b, ", %s", value_text(s, parts->part[r].y));
    if (b.len)
        buf_printf(&b, " again");
    return b.len ? b.s : "";
}

static void find_cut(Showing *s, const LayerParts *parts, Fusion how)
{
    Ctx *c = s->as.c;
    const Layer *l = s->v->step->layer;
    Cutting *k = &s->cut[how];

    k->choice = fuse_choice(c, l, parts, s->size, how, s->as.m,
                            how == FUSE_CHEAPEST);
    k->parts = layer_fuse(c, l, parts, &k->choice.groups, s->size);
    k->joints = find_joints(c, s->as.g, k->parts, s->size);
    k->sum = find_sums(c, l, k->parts, k->joints);
    k->tile = find_tiles(c, l, k->parts, k->joints, k->sum);
    k->how = how;
    k->by = ctx_alloc(c, (size_t)k->parts->n * sizeof *k->by + 1);
    k->price = ctx_alloc(c, (size_t)k->parts->n * sizeof *k->price + 1);
    find_names(s, k->parts);
    for (int i = 0; i < k->parts->n; i++) {
        k->price[i] = price_at(s, k, i);
        k->by[i] = ctx_format(c, "%s%s", k->by[i], again_text(s, parts, k, i));
        price_add(&k->all, &k->price[i]);
    }
}

static void find(Ctx *c, void *ud)
{
    Showing *s = ud;
    const LayerParts *parts = layer_cut(c, s->v->step->layer, s->size);

    s->as.c = s->text.ctx = c;
    s->as.g = s->v->step->layer->traced;
    s->as.gpu = s->as.m->arch > 0;
    s->as.size = s->size;
    s->uncut = parts;
    for (int i = 0; i < FUSIONS; i++)     /* not all have a whole one */
        if (i < FUSE_WHOLE || (int)s->fusion == i)
            find_cut(s, parts, (Fusion)i);
    find_names(s, s->cut[s->fusion].parts);
    put_text(s);
}

/* ---- as a table ---- */

static void set_price(lua_State *L, const Price *p)
{
    set_number(L, "flops", p->flops);
    set_number(L, "bytes", p->bytes);
    set_number(L, "predicted", p->seconds);
}

static void push_parts(lua_State *L, const Showing *s)
{
    const Cutting *k = &s->cut[s->fusion];

    lua_createtable(L, k->parts->n, 0);
    for (int i = 0; i < k->parts->n; i++) {
        lua_newtable(L);
        lua_pushstring(L, part_text(s, &k->parts->part[i]));
        lua_setfield(L, -2, "name");
        lua_pushstring(L, k->by[i]);
        lua_setfield(L, -2, "by");
        set_price(L, &k->price[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

/* The prices of all three, by name. */
static void push_cuts(lua_State *L, const Showing *s)
{
    lua_createtable(L, 0, FUSIONS);
    for (int i = 0; i < FUSIONS; i++) {
        if (!s->cut[i].parts)
            continue;
        lua_newtable(L);
        set_price(L, &s->cut[i].all);
        set_number(L, "parts", s->cut[i].parts->n);
        lua_setfield(L, -2, cut_name[i]);
    }
}

/* What the integer program has chosen among, and what that costs instead. */
static void push_choice(lua_State *L, const Showing *s)
{
    const LayerChoice *k = &s->cut[FUSE_CHEAPEST].choice;

    lua_createtable(L, k->nothers, 4);
    set_number(L, "offered", k->offered);
    set_number(L, "predicted", k->seconds);
    set_number(L, "walk", k->walk);
    lua_pushboolean(L, k->proved);
    lua_setfield(L, -2, "proved");
    for (int i = 0; i < k->nothers; i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, group_text(s, s->uncut, &k->other[i].group));
        lua_setfield(L, -2, "name");
        set_number(L, "more", k->other[i].more);
        lua_pushboolean(L, k->other[i].least);
        lua_setfield(L, -2, "at_least");
        lua_rawseti(L, -2, i + 1);
    }
}

static int showing_gc(lua_State *L)
{
    Showing *s = luaL_checkudata(L, 1, SHOWING_META);

    ctx_free(s->ctx);
    s->ctx = NULL;
    return 0;
}

static void usual_sizes(const Graph *step, int32_t size[NAXES])
{
    enum { USUAL = 64, TAPS = 4 };
    const Layer *l = step->layer;
    AxisSet taps = 0;

    for (int i = 0; i < l->ncalls; i++)
        taps |= l->call[i].taps ? AXIS(l->call[i].taps) : 0;
    for (int ax = AX_DIM; ax < step->naxes; ax++)
        if (!size[ax] && taps & AXIS(ax))
            size[ax] = TAPS;
    sizes_complete(step, size, true);
    for (int ax = AX_DIM; ax < step->naxes; ax++)
        if (!size[ax])
            size[ax] = USUAL;
}

int layer_show_plan(lua_State *L, Variant *v, const Machine *m, bool backward)
{
    static const char *const also[] = { "B", "T", "backward", "machine",
                                        "format", "beside", "plan", "memory" };
    Showing *s = push_owned(L, sizeof *s, SHOWING_META, showing_gc);

    s->ctx = sandbox_ctx(L);
    s->v = v;
    s->as = (Pricing){ .m = m, .backward = backward, .roads = true };
    check_options(L, "plan", v->step, 2, also, 8);
    sizes_arg(L, "plan", v->step, 2, 0, s->size);
    usual_sizes(v->step, s->size);
    s->as.beside = option_flag(L, "plan", 2, "beside");
    s->fusion = fusion_option(L, "plan", 2);
    s->as.memory = memory_option(L, "plan", 2);
    s->as.B = option_int(L, "plan", 2, "B", 1);
    s->as.T = option_int(L, "plan", 2, "T", 2048);
    if (s->as.B < 1 || s->as.T < 1)
        lang_fail(L, NULL, "plan: B and T must be 1 or more");
    protect(L, s->ctx, find, s);
    lua_newtable(L);
    push_parts(L, s);
    lua_setfield(L, -2, "parts");
    push_cuts(L, s);
    lua_setfield(L, -2, "plans");
    push_choice(L, s);
    lua_setfield(L, -2, "choice");
    set_price(L, &s->cut[s->fusion].all);
    lua_pushstring(L, m->name);
    lua_setfield(L, -2, "machine");
    lua_pushlstring(L, s->text.s, s->text.len);
    lua_setfield(L, -2, "text");
    ctx_free(s->ctx);
    s->ctx = NULL;
    return 1;
}

/* ---- weights that may lie beside one another ---- */

typedef struct Besides {
    Variant *v;
    LayerParts *parts;
    Joints *joints;
} Besides;

/* Of sizes that keep all of them. */
static void find_besides(Ctx *c, void *ud)
{
    enum { EACH = 8 };
    Besides *b = ud;
    const Layer *l = b->v->step->layer;
    int32_t size[NAXES] = { 0 };

    b->parts = layer_cut(c, l, size);
    for (int ax = AX_DIM; ax < NAXES; ax++)
        size[ax] = EACH;
    b->joints = find_joints(c, l->traced, b->parts, size);
}

void layer_push_beside(lua_State *L, Variant *v)
{
    Besides b = { .v = v };

    lua_newtable(L);
    if (!v->step->layer)
        return;
    protect(L, v->ctx, find_besides, &b);
    const Layer *l = v->step->layer;
    const LayerPart *part = b.parts->part;
    for (int i = 0; i < b.joints->n; i++) {
        const Joint *j = &b.joints->joint[i];
        lua_createtable(L, j->n, 0);
        for (int at = 0; at < j->n; at++) {
            const Node *w = &l->traced->n[part[j->part[at]].in[1]];
            lua_pushstring(L, l->traced->in[w->index].name);
            lua_rawseti(L, -2, at + 1);
        }
        lua_pushstring(L, axes_text(l->traced, part[j->part[0]].over));
        lua_setfield(L, -2, "over");
        lua_rawseti(L, -2, i + 1);
    }
}
