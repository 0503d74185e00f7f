/* layer_tiles.c -- a product with a weight and the program over rows that alone
 * reads it, some tokens or some columns at a time: what lies between the two,
 * logits say, is in memory in part alone, and its gradient is written over it.
 * The way back makes the product again.
 *
 * Of some columns the program goes along a part of each row, and its reductions
 * go on from what the part before has left; the way back has what they come to
 * from the way forward.
 */
#include <string.h>

#include "layer_run.h"

/* ---- which parts ---- */

int *find_tiles(Ctx *c, const Layer *l, const LayerParts *p, const Joints *j,
                const int *sum)
{
    const Graph *g = l->traced;
    int *tile = ctx_alloc(c, (size_t)p->n * sizeof *tile + 1);

    for (int i = 0; i < p->n; i++) {
        Ref r = p->part[i].y;
        int by = 0;
        if (p->part[i].step || !g->n[r].timed || r == g->out[0].node
            || j->of[i] || sum[i] || layer_readers(p, r, &by) != 1
            || tile[by])
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

/* ---- columns ---- */

/* Do all gradients along the rows come part by part, and none beside them? */
static bool goes_back_so(Ctx *c, const RowStep *step)
{
    bool wanted[MAX_INPUTS] = { false };

    for (int i = 0; i < step->nin; i++) {
        wanted[i] = step->joint->in[i].axes & step->along;
        if (!wanted[i] && step->gradient[i])
            return false;
    }
    return row_takes_parts(row_backward(c, step, wanted, NULL, true));
}

int column_axis(Ctx *c, const Graph *g, const LayerPart *product,
              const LayerPart *row, const RowStep *step)
{
    int ax = row->axis[lowest(step->along)];
    AxisSet along = AXIS(ax);
    bool one = !(step->along & (step->along - 1));

    if (!one || !(g->n[product->in[1]].axes & along)
        || g->n[product->in[0]].axes & along || g->n[row->y].axes & along
        || !row_takes_parts(row_forward(c, step, true))
        || !goes_back_so(c, step))
        return 0;
    return ax;
}

/* p, with part `at` of so many entries of rows. */
static LayerProgram *part_program(Ctx *c, const LayerProgram *p, int at,
                                  int32_t entries)
{
    LayerProgram *to = ctx_alloc(c, sizeof *to);
    LayerParts *parts = ctx_alloc(c, sizeof *parts);
    size_t n = (size_t)p->parts->n;
    Graph *step = ctx_alloc(c, sizeof *step);

    *to = *p;
    *step = *p->parts->part[at].step;
    step->axis[lowest(p->row[at]->along)].size = entries;
    parts->n = (int)n;
    parts->part = ctx_alloc(c, n * sizeof *parts->part);
    memcpy(parts->part, p->parts->part, n * sizeof *parts->part);
    parts->part[at].step = step;
    to->parts = parts;
    to->row = ctx_alloc(c, n * sizeof *to->row);
    memcpy(to->row, p->row, n * sizeof *to->row);
    to->row[at] = row_step_part(c, p->row[at], entries);
    return to;
}

Columns **find_column_parts(Ctx *c, const Graph *g, const LayerProgram *p)
{
    Columns **to = ctx_alloc(c, (size_t)p->parts->n * sizeof *to + 1);

    for (int i = 0; i < p->parts->n; i++) {
        const LayerPart *part = p->parts->part;
        int ax = p->tile[i] > 0 && p->row[i]
               ? column_axis(c, g, &part[p->tile[i] - 1], &part[i], p->row[i])
               : 0;
        int32_t wide, all = p->size[ax];
        if (!ax)
            continue;
        to[i] = ctx_alloc(c, sizeof **to);
        to[i]->axis = ax;
        for (int n = 0; n < COLUMN_WIDTHS
                        && (wide = column_width(all, n)) > 0; n++) {
            to[i]->of[n].wide = wide;
            to[i]->of[n].all = part_program(c, p, i, wide);
            to[i]->of[n].rest = all % wide
                              ? part_program(c, p, i, all % wide) : NULL;
            to[i]->n = n + 1;
        }
    }
    return to;
}

/* ---- which are made so ---- */

static double entries(const Lay *k, AxisSet axes)
{
    double n = 1;

    for (; axes; axes &= axes - 1)
        n *= k->b->call.size[lowest(axes)];
    return n;
}

static TileAsk tile_ask(const Lay *k, int product, int row)
{
    const LayerPart *p = &k->p->parts->part[product];
    const Columns *cut = k->p->columns[row];
    AxisSet xs = k->g->n[p->in[0]].axes, ws = k->g->n[p->in[1]].axes;
    double each = dtype_size(k->realm->type(k, p->y));
    double tokens = (double)k->b->B * (double)k->b->T;

    return (TileAsk){
        .m = k->p->machine, .batch = (double)k->b->B,
        .tokens = (double)k->b->T, .flops = 2 * tokens * entries(k, xs | ws),
        .values = tokens * entries(k, xs) * each,
        .weight = entries(k, ws) * each,
        .result = entries(k, k->g->n[p->y].axes) * each, .element = (int)each,
        .columns = cut ? k->b->call.size[cut->axis] : 0,
        .backward = k->keep, .whole = k->args->fusion != FUSE_TILES,
        .memory = k->args->memory };
}

void find_tiling(Lay *k)
{
    for (int i = 0; i < k->p->parts->n; i++) {
        int row = -k->p->tile[i] - 1;
        if (k->p->tile[i] >= 0)
            continue;
        TileAsk ask = tile_ask(k, i, row);
        k->tiling[row] = choose_tiling(k->c, &ask);
        bool cut = k->tiling[row].way != TILE_WHOLE;
        k->tile[i] = cut ? k->p->tile[i] : 0;
        k->tile[row] = cut ? k->p->tile[row] : 0;
    }
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
                   .product = &k->p->parts->part[k->tile[at] - 1],
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

static void run_tokens(Lay *k, int at)
{
    Window *o = window_new(k, at);
    Array *y = &k->value[o->row->y];
    int64_t most = k->tiling[at].at_once;

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

static void back_tokens(Lay *k, int at)
{
    Window *o = window_new(k, at);
    Ref z = o->product->y;
    int64_t most = k->tiling[at].at_once;

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

/* ---- some columns of a call ---- */

static Array slice_columns(const Array *of, int ax, int64_t from, int64_t n)
{
    Array v = *of;
    int d = array_find(of, ax);

    v.own = false;
    v.shelf = NULL;
    if (d < 0 || !v.data)
        return v;
    v.data = (char *)v.data + from * v.st[d] * (int64_t)dtype_size(v.dtype);
    v.n[d] = n;
    return v;
}

static void see_columns(Window *o, const LayerPart *p, int ax, int64_t from,
                        int64_t n)
{
    for (int i = 0; i < p->nin; i++) {
        Ref r = p->in[i];
        o->w->value[r] = slice_columns(&o->k->value[r], ax, from, n);
        o->w->grad[r] = slice_columns(&o->k->grad[r], ax, from, n);
    }
}

/* All tokens, and a part of the row. */
static Window *columns_new(Lay *k, int at)
{
    Window *o = window_new(k, at);

    o->b->B = k->b->B;
    o->b->N = k->b->B;
    return o;
}

/* A width of those that there are. */
static LayerProgram *program_of(const Lay *k, int at, int64_t n)
{
    const Columns *cut = k->p->columns[at];
    int i = 0;

    while (cut->of[i].wide != k->tiling[at].at_once)
        i++;
    return n == cut->of[i].wide ? cut->of[i].all : cut->of[i].rest;
}

/* The product of these columns; of a call that has been, its shape alone. */
static void open_columns(Window *o, int64_t from, int64_t n)
{
    Lay *k = o->k, *w = o->w;
    int ax = k->p->columns[o->at]->axis;
    Ref z = o->product->y;
    int64_t all = k->b->call.size[ax];

    w->p = program_of(k, o->at, n);
    w->arena = k->arena;
    w->some = (RowSome){ true, from == 0, from + n == all, from };
    o->b->call.size[ax] = (int32_t)n;
    see_columns(o, o->row, ax, from, n);
    see_columns(o, o->product, ax, from, n);
    w->value[z] = slice_columns(&o->z, ax, 0, n);
    w->grad[z] = (Array){ 0 };
    w->keep = false;
    if (k->left && !k->back)
        w->value[z] = product_array(w, o->product);
    else
        run_product(w, o->product);
    w->keep = k->keep;
    if (!o->z.data)
        o->z = w->value[z];
}

/* Numbers that a row's reductions leave: no more than its operations. */
static void *carry_new(const Window *o)
{
    const RowStep *step = o->k->p->row[o->at];
    int64_t n = o->k->b->B * o->k->b->T, folds = 0;

    for (AxisSet s = row_others(step); s; s &= s - 1)
        n *= o->k->b->call.size[o->row->axis[lowest(s)]];
    if (o->row->heads)
        n *= o->k->b->call.size[o->row->heads];
    for (Ref r = 1; r < step->joint->len; r++)
        folds += row_folds(step->joint, r);
    return o->k->realm->room(o->k, n * folds * ROW_CARRY + 1, false);
}

static void run_columns(Lay *k, int at)
{
    Window *o = columns_new(k, at);
    int64_t all = k->b->call.size[k->p->columns[at]->axis];
    int64_t most = k->tiling[at].at_once;

    if (!k->value[o->row->y].data)
        make_value(k, at);
    o->w->left = k->left;
    o->w->carry = k->left ? NULL : carry_new(o);
    for (int64_t from = 0; from < all; from += most) {
        open_columns(o, from, all - from < most ? all - from : most);
        o->w->value[o->row->y] = k->value[o->row->y];
        o->w->value[o->row->y].own = false;
        run_step(o->w, at);
        close_window(o);
        if (k->left)                    /* room for what is kept */
            return;
    }
    k->realm->drop(k, o->w->carry);
    end_windows(o);
}

/* Where the weight's gradient goes, all of it: *add: to what is there. */
static Array weight_place(Lay *k, Ref r, bool *add)
{
    Array to = k->grad[r];

    *add = to.data != NULL;
    if (*add || (direct_grad(k, r, &to) && k->realm->gives(k, &to)))
        return to;
    to = (Array){ 0 };
    for (int d = 0; d < k->value[r].rank; d++)
        array_add(k, &to, k->value[r].ax[d]);
    make_room(k, &to, k->realm->type(k, r), false);
    return to;
}

/* Sums of the values' gradients, in float32, tile by tile. */
static Array values_place(Lay *k, Ref r)
{
    Array to = { 0 };

    array_add_tokens(k, &to, r);
    for (int d = 0; d < k->value[r].rank; d++)
        if (k->value[r].ax[d] < NAXES)
            array_add(k, &to, k->value[r].ax[d]);
    make_room(k, &to, F32, false);
    return to;
}

static void give_values(Lay *k, Ref r, Array *sum)
{
    if (k->grad[r].data || k->realm->type(k, r) == F32) {
        add_grad(k, r, sum);
        return;
    }
    add_grad_copy(k, r, sum);
    drop_array(k, sum);
}

static void back_columns(Lay *k, int at)
{
    Window *o = columns_new(k, at);
    Ref z = o->product->y, x = o->product->in[0], w = o->product->in[1];
    int ax = k->p->columns[at]->axis;
    int64_t all = k->b->call.size[ax], most = k->tiling[at].at_once;
    bool add = false;
    Array dx = k->wanted[x] ? values_place(k, x) : (Array){ 0 };
    Array dw = k->wanted[w] ? weight_place(k, w, &add) : (Array){ 0 };

    begin_grads(o, o->row);
    for (int64_t from = 0; from < all; from += most) {
        int64_t n = all - from < most ? all - from : most;
        open_columns(o, from, n);
        o->w->grad[o->row->y] = k->grad[o->row->y];
        o->w->value[o->row->y] = k->grad[o->row->y];
        o->w->value[z].own = true;
        back_step(o->w, at, false);
        Array own = slice_columns(&dw, ax, from, n);
        if (dx.data)
            back_product_into(o->w, o->product, &dx, from > 0);
        if (dw.data)
            back_weight_into(o->w, o->product, &own, add);
        close_window(o);
    }
    end_windows(o);
    if (dx.data)
        give_values(k, x, &dx);
    if (dw.data && !add)
        add_grad(k, w, &dw);
}

/* ---- either ---- */

void run_tiles(Lay *k, int at)
{
    if (k->tiling[at].way == TILE_COLUMNS)
        run_columns(k, at);
    else
        run_tokens(k, at);
}

void back_tiles(Lay *k, int at)
{
    if (k->tiling[at].way == TILE_COLUMNS)
        back_columns(k, at);
    else
        back_tokens(k, at);
}
