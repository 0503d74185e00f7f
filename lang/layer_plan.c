/* layer_plan.c -- v:plan of a layer: what runs each of its parts, and what that
 * moves and computes, for tensors of one shape and type.
 */
#include <string.h>

#include "../backend/cuda/rows.h"
#include "layer_run.h"
#include "plan_view.h"

/* A part's price, of all tokens. */
typedef struct Price { double flops, bytes, seconds; } Price;

typedef struct Showing {
    Variant *v;
    const Machine *m;
    int32_t size[NAXES];
    int64_t B, T;
    bool backward, gpu, beside;
    const Graph *g;
    LayerParts *parts;
    Joints *joints;
    const char **name, **by;
    Price *price, all;
    Buf text;
} Showing;

static double count(const Showing *s, AxisSet axes)
{
    double n = 1;

    for (; axes; axes &= axes - 1)
        n *= s->size[lowest(axes)];
    return n;
}

static double tokens(const Showing *s)
{
    return (double)s->B * (double)s->T;
}

/* Bytes of a value as it lies between parts: bfloat16 on a GPU. */
static double bytes_of(const Showing *s, Ref r)
{
    const Node *n = &s->g->n[r];
    double each = s->gpu && !layer_wide(s->g, r) ? 2 : 4;

    return n->op == OP_num ? 0
         : each * count(s, n->axes) * (n->timed ? tokens(s) : 1);
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

/* "product 2048 x 192 x 64" */
static char *product_text(const Showing *s, double m, double n, double k)
{
    return ctx_format(s->v->ctx, "product %.0f x %.0f x %.0f", m, n, k);
}

/* The one that part i runs in; NULL: it is one of its own. */
static const Joint *joint_at(const Showing *s, int i)
{
    const Joint *j = s->joints->of[i]
                   ? &s->joints->joint[s->joints->of[i] - 1] : NULL;

    if (!j || !s->gpu)
        return NULL;
    bool wide = layer_wide(s->g, s->parts->part[j->part[0]].y);
    return (s->beside && !wide) || joint_pays(j, s->m, tokens(s), 2) ? j
                                                                     : NULL;
}

/* Its columns are all the weights'; of these, if they do not lie so, a copy is
 * made. Gradients of weights are products of their own. */
static void price_joint(Showing *s, const Joint *j, int i)
{
    Price *price = &s->price[i];
    double m = tokens(s) * (double)j->rows, k = (double)j->over;
    double n = (double)j->columns, x = 2 * m * k, w = 2 * n * k, y = 0;
    double weights = s->backward ? j->n : 0;
    double copies = s->beside ? 0 : s->backward ? 2 : 1;

    if (j->part[0] != i) {
        s->by[i] = ctx_format(s->v->ctx, "in the product of %s",
                              s->name[s->parts->part[j->part[0]].y]);
        return;
    }
    for (int at = 0; at < j->n; at++)
        y += bytes_of(s, s->parts->part[j->part[at]].y);
    price->flops = (s->backward ? 3 : 1) * 2 * m * n * k;
    price->bytes = (s->backward ? 2 : 1) * (x + w + y) + copies * 2 * w
                 + weights * x + (weights > 0 ? w + y : 0);
    price->seconds = longer(price->flops / s->m->matrix,
                            price->bytes / s->m->bandwidth)
                   + ((s->backward ? 2 : 1) + copies * j->n + weights)
                     * s->m->launch;
    s->by[i] = ctx_format(s->v->ctx, "%s, %d weights%s",
                          product_text(s, m, n, k), j->n,
                          s->beside ? "" : " copied");
}

/* Backward: two products more. What is written of weights is float32. */
static void price_product(Showing *s, int i)
{
    const LayerPart *p = &s->parts->part[i];
    Ref x = p->in[0], w = p->in[1];
    AxisSet xs = s->g->n[x].axes, ws = s->g->n[w].axes;
    double both = count(s, xs & ws & ~p->over), m = count(s, xs & ~ws);
    double n = count(s, ws & ~xs), k = count(s, p->over);
    double times = s->backward ? 3 : 1;
    Price *price = &s->price[i];

    m *= tokens(s);
    price->flops = times * 2 * both * m * n * k;
    price->bytes = times * (bytes_of(s, x) + bytes_of(s, w)
                            + bytes_of(s, p->y));
    price->seconds = longer(price->flops / s->m->matrix,
                            price->bytes / s->m->bandwidth)
                   + times * s->m->launch;
    s->by[i] = ctx_format(s->v->ctx, "%s%s", product_text(s, m, n, k),
                          both > 1 ? ctx_format(s->v->ctx, ", %.0f times",
                                                both) : "");
}

/* Each input is read and each result written once a pass. */
static void price_rows(Showing *s, int i)
{
    const LayerPart *p = &s->parts->part[i];
    Price *price = &s->price[i];
    double kernels = s->backward ? 2 : 1;

    for (int j = 0; j < p->nin; j++)
        price->bytes += bytes_of(s, p->in[j]) * (s->backward ? 3 : 1);
    price->bytes += bytes_of(s, p->y) * kernels;
    price->seconds = price->bytes / s->m->bandwidth + kernels * s->m->launch;
    s->by[i] = "rows";
}

static void price_step(Showing *s, int i)
{
    const LayerPart *p = &s->parts->part[i];
    int32_t size[NAXES] = { 0 };
    Price *price = &s->price[i];
    double each = p->constant ? 1
                : (double)s->B * (double)((s->T + CHUNK_DEFAULT - 1)
                                          / CHUNK_DEFAULT);

    for (int ax = AX_DIM; ax < p->step->naxes; ax++)
        size[ax] = s->size[p->axis[ax]];
    if (s->gpu && rows_new(s->v->ctx, p->step, size)) {
        price_rows(s, i);
        return;
    }
    Plan *plan = plan_make(p->step, size, CHUNK_DEFAULT, s->backward, s->m);
    each *= p->heads ? s->size[p->heads] : 1;
    each *= plan->g->chunk ? 1 : CHUNK_DEFAULT;
    for (int j = 0; j < plan->nkernels; j++) {
        price->bytes += each * plan->kernel[j].bytes;
        price->flops += each * plan->kernel[j].flops;
    }
    price->seconds = longer(price->flops / s->m->matrix,
                            price->bytes / s->m->bandwidth)
                   + plan->nkernels * s->m->launch;
    s->by[i] = ctx_format(s->v->ctx, "%d kernel%s, %s", plan->nkernels,
                          plan->nkernels == 1 ? "" : "s", plan->g->chunk
                          ? ctx_format(s->v->ctx, "chunks of %d",
                                       plan->g->chunk) : "token by token");
}

/* "v1 = dot(x, Wq)" */
static char *part_text(const Showing *s, int i)
{
    const LayerPart *p = &s->parts->part[i];
    Buf b = { .ctx = s->v->ctx };

    buf_printf(&b, "%s = ", s->name[p->y]);
    if (s->g->n[p->y].op != OP_input) {
        buf_printf(&b, "%s", expr_named(s->g, p->y, s->name));
        return b.s;
    }
    buf_printf(&b, "%s(", p->name);
    for (int j = 0; j < p->nin; j++)
        buf_printf(&b, "%s%s", j ? ", " : "", s->name[p->in[j]]
                   ? s->name[p->in[j]] : expr_text(s->g, p->in[j]));
    buf_printf(&b, ")");
    return b.s;
}

static void put_price(Buf *b, const char *by, const Price *p)
{
    buf_printf(b, "    %-44s %9.1f MFLOP %9.2f MB %9.1f us\n", by,
               p->flops / 1e6, p->bytes / 1e6, p->seconds * 1e6);
}

static void put_text(Showing *s)
{
    Buf *b = &s->text;

    buf_printf(b, "%s on %s, %s, B = %lld, T = %lld, %s\n", s->g->name,
               s->m->name, s->gpu ? "bfloat16" : "float32", (long long)s->B,
               (long long)s->T, s->backward ? "forward and backward"
                                            : "forward");
    for (int i = 0; i < s->parts->n; i++) {
        buf_printf(b, "  %s\n", part_text(s, i));
        put_price(b, s->by[i], &s->price[i]);
    }
    buf_printf(b, "  all of it\n");
    put_price(b, ctx_format(s->v->ctx, "%d parts", s->parts->n), &s->all);
}

static void find(Ctx *c, void *ud)
{
    Showing *s = ud;
    size_t n;

    s->g = s->v->step->layer->traced;
    s->gpu = s->m == &machine_h200;
    s->parts = layer_cut(c, s->v->step->layer, s->size);
    s->joints = find_joints(c, s->g, s->parts, s->size);
    s->name = layer_names(s->g, s->parts);
    n = (size_t)s->parts->n;
    s->by = ctx_alloc(c, n * sizeof *s->by + 1);
    s->price = ctx_alloc(c, n * sizeof *s->price + 1);
    s->text.ctx = c;
    for (int i = 0; i < s->parts->n; i++) {
        const Joint *j = joint_at(s, i);
        if (s->parts->part[i].step)
            price_step(s, i);
        else if (j)
            price_joint(s, j, i);
        else
            price_product(s, i);
        s->all.flops += s->price[i].flops;
        s->all.bytes += s->price[i].bytes;
        s->all.seconds += s->price[i].seconds;
    }
    put_text(s);
}

/* ---- as a table ---- */

static void set_number(lua_State *L, const char *name, double x)
{
    lua_pushnumber(L, x);
    lua_setfield(L, -2, name);
}

static void set_price(lua_State *L, const Price *p)
{
    set_number(L, "flops", p->flops);
    set_number(L, "bytes", p->bytes);
    set_number(L, "predicted", p->seconds);
}

static void push_parts(lua_State *L, const Showing *s)
{
    lua_createtable(L, s->parts->n, 0);
    for (int i = 0; i < s->parts->n; i++) {
        lua_newtable(L);
        lua_pushstring(L, part_text(s, i));
        lua_setfield(L, -2, "name");
        lua_pushstring(L, s->by[i]);
        lua_setfield(L, -2, "by");
        set_price(L, &s->price[i]);
        lua_rawseti(L, -2, i + 1);
    }
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
                                        "format", "beside" };
    Showing *s = lua_newuserdatauv(L, sizeof *s, 0);

    *s = (Showing){ .v = v, .m = m, .backward = backward };
    check_options(L, "plan", v->step, 2, also, 6);
    sizes_arg(L, "plan", v->step, 2, 0, s->size);
    usual_sizes(v->step, s->size);
    raw_field(L, 2, "beside");
    s->beside = lua_toboolean(L, -1);
    lua_pop(L, 1);
    s->B = option_int(L, "plan", 2, "B", 1);
    s->T = option_int(L, "plan", 2, "T", 2048);
    if (s->B < 1 || s->T < 1)
        lang_fail(L, NULL, "plan: B and T must be 1 or more");
    protect(L, v->ctx, find, s);
    lua_newtable(L);
    push_parts(L, s);
    lua_setfield(L, -2, "parts");
    set_price(L, &s->all);
    lua_pushstring(L, m->name);
    lua_setfield(L, -2, "machine");
    lua_pushlstring(L, s->text.s, s->text.len);
    lua_setfield(L, -2, "text");
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
