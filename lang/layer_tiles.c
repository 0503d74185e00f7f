/* layer_tiles.c -- a product with a weight and the program over rows that alone
 * reads it, some tokens at a time: what lies between the two, logits say, is in
 * memory for these tokens alone, and its gradient is written over it. The way
 * back makes the product again.
 */
#include <string.h>

#include "layer_run.h"

/* At most so much of it at once, and a quarter of all. */
enum { TILE_BYTES = 256 << 20, TILES_LEAST = 4 };

/* How many parts read r. */
static int readers(const LayerParts *p, Ref r, int *last)
{
    int n = 0;

    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < p->part[i].nin; j++)
            if (p->part[i].in[j] == r) {
                n++;
                *last = i;
            }
    return n;
}

int *find_tiles(Ctx *c, const Layer *l, const LayerParts *p, const Joints *j)
{
    const Graph *g = l->traced;
    int *tile = ctx_alloc(c, (size_t)p->n * sizeof *tile + 1);

    for (int i = 0; i < p->n; i++) {
        Ref r = p->part[i].y;
        int by = 0;
        if (p->part[i].step || !g->n[r].timed || r == g->out[0].node
            || j->of[i] || readers(p, r, &by) != 1 || tile[by])
            continue;
        const LayerPart *row = &p->part[by];
        if (!row->step || row->constant || layer_is_call(l, row)
            || !row_wanted(row->step))
            continue;
        tile[i] = -(by + 1);
        tile[by] = i + 1;
    }
    return tile;
}

/* ---- some tokens of a call ---- */

typedef struct Window {
    Lay *k, *w;                         /* w: the call of these tokens */
    const LayerPart *product, *row;
    int at;                             /* of the row part */
    Bound *b;
    Args *args;
    Array z;                            /* between the two */
} Window;

static Window *window_new(Lay *k, int at)
{
    Window *o = ctx_alloc(k->c, sizeof *o);
    size_t values = k->g->len * sizeof *k->value;

    *o = (Window){ .k = k, .w = ctx_alloc(k->c, sizeof *o->w), .at = at,
                   .row = &k->p->parts->part[at],
                   .product = &k->p->parts->part[k->p->tile[at] - 1],
                   .b = ctx_alloc(k->c, sizeof *o->b),
                   .args = ctx_alloc(k->c, sizeof *o->args) };
    *o->w = *k;
    *o->b = *k->b;
    *o->args = *k->args;
    o->args->cu = NULL;
    o->args->device_cu = NULL;
    o->args->ncu = 0;
    o->b->B = o->b->N = 1;
    o->w->b = o->b;
    o->w->args = o->args;
    o->w->keep = o->w->left = false;
    o->w->value = ctx_alloc(k->c, values);
    o->w->grad = ctx_alloc(k->c, values);
    return o;
}

static Array slice(const Array *of, int64_t b, int64_t from, int64_t n)
{
    Array v = *of;
    int64_t at = 0;

    for (int d = 0; d < v.rank && v.data; d++) {
        if (v.ax[d] != AX_B && v.ax[d] != AX_T)
            continue;
        at += (v.ax[d] == AX_B ? b : from) * v.st[d];
        v.n[d] = v.ax[d] == AX_B ? 1 : n;
    }
    v.data = v.data ? (char *)v.data + at * dtype_size(v.dtype) : NULL;
    v.own = false;
    v.shelf = NULL;
    return v;
}

/* Tokens at once. */
static int64_t tile_tokens(const Window *o)
{
    const Lay *k = o->k;
    int64_t each = dtype_size(k->realm->type(k, o->product->y)), n;

    for (AxisSet s = k->g->n[o->product->y].axes; s; s &= s - 1)
        each *= k->b->call.size[lowest(s)];
    n = TILE_BYTES / each;
    if (n > (k->b->T + TILES_LEAST - 1) / TILES_LEAST)
        n = (k->b->T + TILES_LEAST - 1) / TILES_LEAST;
    return n ? n : 1;
}

static void see_values(Window *o, const LayerPart *p, int64_t b, int64_t from,
                       int64_t n)
{
    for (int i = 0; i < p->nin; i++) {
        Ref r = p->in[i];
        o->w->value[r] = slice(&o->k->value[r], b, from, n);
        o->w->grad[r] = slice(&o->k->grad[r], b, from, n);
        if (!o->k->g->n[r].timed)
            o->w->value[r].own = o->k->value[r].own;
    }
}

/* The product of these tokens. */
static void open_window(Window *o, int64_t b, int64_t from, int64_t n)
{
    Lay *w = o->w;
    Ref z = o->product->y;

    w->arena = o->k->arena;
    o->b->T = n;
    see_values(o, o->row, b, from, n);
    see_values(o, o->product, b, from, n);
    w->value[z] = o->z;
    for (int d = 0; d < o->z.rank; d++)
        if (o->z.ax[d] == AX_T)
            w->value[z].n[d] = n;
    w->grad[z] = (Array){ 0 };
    run_product(w, o->product);
    if (!o->z.data)
        o->z = w->value[z];
}

static void close_window(Window *o)
{
    o->k->arena = o->w->arena;
}

static void end_windows(Window *o)
{
    drop_array(o->k, &o->z);
}

void run_tiles(Lay *k, int at)
{
    Window *o = window_new(k, at);
    Array *y = &k->value[o->row->y];
    int64_t most = tile_tokens(o);

    if (!y->data)
        make_value(k, at);
    if (k->left)
        return;
    for (int64_t b = 0; b < k->b->B; b++)
        for (int64_t t = 0; t < k->b->T; t += most) {
            int64_t n = k->b->T - t < most ? k->b->T - t : most;
            open_window(o, b, t, n);
            o->w->value[o->row->y] = slice(y, b, t, n);
            run_step(o->w, at);
            close_window(o);
        }
    end_windows(o);
}

/* ---- gradients ---- */

/* Zeros, to which tiles add; of weights in float32. */
static void begin_grads(Window *o, const LayerPart *p)
{
    Lay *k = o->k;

    for (int i = 0; i < p->nin; i++) {
        Ref r = p->in[i];
        Array *d = &k->grad[r];
        bool timed = k->g->n[r].timed;
        if (!k->wanted[r] || d->data || r == o->product->y)
            continue;
        *d = (Array){ 0 };
        array_add_tokens(k, d, r);
        for (int ax = 0; ax < k->value[r].rank; ax++)
            if (k->value[r].ax[ax] < NAXES)
                array_add(k, d, k->value[r].ax[ax]);
        make_room(k, d, timed ? k->realm->type(k, r) : F32, false);
        k->realm->zero(k, d);
    }
}

void back_tiles(Lay *k, int at)
{
    Window *o = window_new(k, at);
    Ref z = o->product->y;
    int64_t most = tile_tokens(o);

    begin_grads(o, o->row);
    begin_grads(o, o->product);
    for (int64_t b = 0; b < k->b->B; b++)
        for (int64_t t = 0; t < k->b->T; t += most) {
            int64_t n = k->b->T - t < most ? k->b->T - t : most;
            open_window(o, b, t, n);
            o->w->grad[o->row->y] = slice(&k->grad[o->row->y], b, t, n);
            o->w->value[o->row->y] = o->w->grad[o->row->y];
            o->w->value[z].own = true;
            back_step(o->w, at, false);
            if (o->w->grad[z].data) {
                back_product(o->w, o->product);
                back_weight(o->w, o->product);
            }
            close_window(o);
        }
    end_windows(o);
}
