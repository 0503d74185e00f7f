/* layer_run.c -- a layer's parts, one after another, forward and backward.
 *
 * Each part is a variant of its own, bound and run as any is, forward and
 * backward, or a matrix product of the library's. What lies between them is
 * float32, [B, T, axes...]. Backward runs forward first and keeps all of it.
 */
#include <string.h>

#include "../backend/cpu/product.h"
#include "../compiler/layer.h"
#include "bind.h"
#include "shared.h"

/* ---- programs ---- */

typedef struct NewProgram { Variant *v; LayerProgram *p; } NewProgram;

static void new_program(Ctx *c, void *ud)
{
    NewProgram *n = ud;
    const int32_t *size = n->p->size;
    LayerProgram *p = ctx_alloc(c, sizeof *p);

    memcpy(p->size, size, sizeof p->size);
    p->parts = layer_cut(c, n->v->step->layer, size);
    p->variant = ctx_alloc(c, (size_t)p->parts->n * sizeof *p->variant + 1);
    for (int i = 0; i < p->parts->n; i++) {
        if (!p->parts->part[i].step)
            continue;
        p->variant[i] = ctx_alloc(c, sizeof **p->variant);
        p->variant[i]->ctx = c;
        p->variant[i]->step = p->parts->part[i].step;
    }
    n->p = p;
}

/* Made if it is new. */
static LayerProgram *layer_program(Ctx *c, Variant *v,
                                   const int32_t size[NAXES])
{
    LayerProgram *p, wanted = { 0 };
    NewProgram n = { v, &wanted };

    for (p = v->programs; p; p = p->next)
        if (!memcmp(p->size, size, sizeof p->size))
            return p;
    memcpy(wanted.size, size, sizeof wanted.size);
    if (!ctx_protect(v->ctx, new_program, &n)) {
        c->err = v->ctx->err;
        ctx_rethrow(c);
    }
    for (int i = 0; i < n.p->parts->n; i++)
        if (n.p->variant[i])
            n.p->variant[i]->shared = shared_retain(v->shared);
    n.p->next = v->programs;
    return v->programs = n.p;
}

void layer_release(Variant *v)
{
    for (LayerProgram *p = v->programs; p; p = p->next)
        for (int i = 0; i < p->parts->n; i++)
            if (p->variant[i])
                plans_release(p->variant[i]);
    v->programs = NULL;
}

/* ---- values ---- */

/* Batch entries and tokens beside the layer's axes. */
enum { AX_B = NAXES, AX_T };

/* A value of the layer in memory: its axes, as they lie. data NULL: not there
 * yet. */
typedef struct Array {
    void *data;
    DType dtype;
    int rank;
    int ax[TENSOR_RANK];
    int64_t n[TENSOR_RANK], st[TENSOR_RANK];
} Array;

/* A call in progress. */
typedef struct Lay {
    Ctx *c;
    Variant *v;
    const Graph *g, *step;              /* traced; the whole as one step */
    const Args *args;
    const Bound *b;
    const LayerProgram *p;
    const Adjoint *d;                   /* backward; or NULL */
    Array *value, *grad;                /* per node */
} Lay;

static int64_t count(const Array *v)
{
    int64_t n = 1;

    for (int i = 0; i < v->rank; i++)
        n *= v->n[i];
    return n;
}

static int find(const Array *v, int ax)
{
    for (int i = 0; i < v->rank; i++)
        if (v->ax[i] == ax)
            return i;
    return -1;
}

static int64_t extent(const Lay *k, int ax)
{
    return ax == AX_B ? k->b->B : ax == AX_T ? k->b->T
                                             : k->b->call.size[ax];
}

static void add_axis(const Lay *k, Array *v, int ax)
{
    v->ax[v->rank] = ax;
    v->n[v->rank++] = extent(k, ax);
}

static void add_axes(const Lay *k, Array *v, AxisSet s)
{
    for (; s; s &= s - 1)
        add_axis(k, v, lowest(s));
}

static void add_tokens(const Lay *k, Array *v, Ref r)
{
    if (!k->g->n[r].timed)
        return;
    add_axis(k, v, AX_B);
    add_axis(k, v, AX_T);
}

/* Room for it, row-major in the order of its axes. */
static void make_room(const Lay *k, Array *v)
{
    int64_t n = 1;

    for (int i = v->rank; i-- > 0; n *= v->n[i])
        v->st[i] = n;
    v->dtype = F32;
    v->data = ctx_alloc(k->c, (size_t)(n + TILE_SLACK) * sizeof(float));
}

/* As new_value makes it, without its room. */
static Array bare_value(const Lay *k, Ref r)
{
    Array v = { .dtype = F32 };

    add_tokens(k, &v, r);
    add_axes(k, &v, k->g->n[r].axes);
    return v;
}

static Array new_value(const Lay *k, Ref r)
{
    Array v = bare_value(k, r);

    make_room(k, &v);
    return v;
}

/* An argument's tensor, its gradient's, or y's. */
static Array tensor_value_of(const Lay *k, bool timed, const uint8_t *order,
                             int rank, const View *t)
{
    Array v = { .data = t->data, .dtype = t->dtype };

    if (timed) {
        add_axis(k, &v, AX_B);
        add_axis(k, &v, AX_T);
        v.st[0] = t->sb;
        v.st[1] = t->st;
    }
    for (int i = 0; i < rank; i++) {
        add_axis(k, &v, order[i]);
        v.st[v.rank - 1] = t->sd[i];
    }
    return v;
}

static Array input_value(const Lay *k, int i, const View *t)
{
    const Input *in = &k->g->in[i];

    return tensor_value_of(k, in->timed, in->order, in->rank, t);
}

/* n elements that lie ts and fs apart: to = from, or += from. */
static void move_row(const View *to, int64_t t, int64_t ts, const View *from,
                     int64_t f, int64_t fs, int64_t n, bool add)
{
    if (to->dtype == F32 && from->dtype == F32) {
        float *y = (float *)to->data + t;
        const float *x = (const float *)from->data + f;
        for (int64_t i = 0; i < n; i++)
            y[i * ts] = x[i * fs] + (add ? y[i * ts] : 0);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        view_set(to, t + i * ts, view_get(from, f + i * fs)
                 + (add ? view_get(to, t + i * ts) : 0));
}

/* Of the same axes in any order. */
static void move_value(const Lay *k, const Array *to, const Array *from,
                       bool add)
{
    View a = { .data = to->data, .dtype = to->dtype };
    View b = { .data = from->data, .dtype = from->dtype };
    int64_t at[TENSOR_RANK] = { 0 }, fs[TENSOR_RANK], t = 0, f = 0;
    int last = to->rank - 1;
    int64_t n = last < 0 ? 1 : to->n[last];

    if (!count(to))
        return;
    for (int i = 0; i <= last; i++)
        fs[i] = from->st[find(from, to->ax[i])];
    for (int64_t row = count(to) / n; row > 0; row--) {
        if (row % 4096 == 0)
            ctx_poll(k->c);
        move_row(&a, t, last < 0 ? 1 : to->st[last], &b, f,
                 last < 0 ? 1 : fs[last], n, add);
        for (int i = last - 1; i >= 0; i--) {
            t += to->st[i];
            f += fs[i];
            if (++at[i] < to->n[i])
                break;
            t -= at[i] * to->st[i];
            f -= at[i] * fs[i];
            at[i] = 0;
        }
    }
}

static bool is_dense(const Array *v, const Array *like)
{
    if (v->dtype != F32 || v->rank != like->rank)
        return false;
    for (int i = 0; i < v->rank; i++)
        if (v->ax[i] != like->ax[i] || (v->n[i] > 1 && v->st[i]
                                                       != like->st[i]))
            return false;
    return true;
}

/* The value with its axes in the order of `like`, row-major, in float32: it
 * itself where it lies so. `own`: memory of ours in any case. */
static const float *arrange(const Lay *k, const Array *v, Array like, bool own)
{
    int64_t n = 1;

    for (int i = like.rank; i-- > 0; n *= like.n[i])
        like.st[i] = n;
    if (!own && is_dense(v, &like))
        return v->data;
    make_room(k, &like);
    move_value(k, &like, v, false);
    return like.data;
}

/* ---- gradients of values ---- */

/* Adds to r's gradient; the first one is taken as it is. */
static void add_grad(Lay *k, Ref r, const Array *g)
{
    if (!k->grad[r].data)
        k->grad[r] = *g;
    else
        move_value(k, &k->grad[r], g, true);
}

/* Does anybody want the gradient of r? */
static bool is_wanted(const Lay *k, Ref r)
{
    const Node *n = &k->g->n[r];

    if (n->op == OP_num)
        return false;
    return n->op != OP_input || n->index >= k->step->nin
        || k->d->dx[n->index].given;
}

/* ---- products ---- */

/* Rows of x times a matrix, for each entry of the axes that both keep. */
typedef struct Multiply {
    const LayerPart *p;
    AxisSet both, rows, cols;           /* of x and the weight; of x alone; of
                                           the weight alone */
    int64_t nboth, nrows, ncols, depth, tokens;
} Multiply;

static int64_t size_of(const Lay *k, AxisSet s)
{
    int64_t n = 1;

    for (; s; s &= s - 1)
        n *= extent(k, lowest(s));
    return n;
}

static Multiply multiply(const Lay *k, const LayerPart *p)
{
    AxisSet x = k->g->n[p->in[0]].axes, w = k->g->n[p->in[1]].axes;
    Multiply m = { .p = p, .both = x & w & ~p->over, .rows = x & ~w,
                   .cols = w & ~x };

    m.nboth = size_of(k, m.both);
    m.nrows = size_of(k, m.rows);
    m.ncols = size_of(k, m.cols);
    m.depth = size_of(k, p->over);
    m.tokens = k->b->B * k->b->T;
    return m;
}

/* The axes of x (of the result) in the order of a product's rows. */
static Array row_value(const Lay *k, const Multiply *m, AxisSet last)
{
    Array v = { 0 };

    add_tokens(k, &v, m->p->in[0]);
    add_axes(k, &v, m->both);
    add_axes(k, &v, m->rows);
    add_axes(k, &v, last);
    return v;
}

static const float *weight(const Lay *k, const Multiply *m, AxisSet first,
                           AxisSet last)
{
    Array like = { 0 };

    add_axes(k, &like, m->both);
    add_axes(k, &like, first);
    add_axes(k, &like, last);
    return arrange(k, &k->value[m->p->in[1]], like, true);
}

/* c [tokens, both, rows, n] = a [tokens, both, rows, d] b [both, d, n] */
static void multiply_rows(const Lay *k, const Multiply *m, const float *a,
                          const float *b, float *c, int64_t d, int64_t n)
{
    bool flat = m->nboth == 1;          /* tokens and rows are one axis */
    int64_t each = m->nboth * m->nrows, times = flat ? 1 : each;

    for (int64_t i = 0; i < times; i++)
        cpu_product(k->c, k->v->shared.pool, k->args->threads, &(Product){
            .m = flat ? m->tokens * m->nrows : m->tokens, .n = n, .k = d,
            .a = a + i * d, .ars = flat ? d : each * d, .acs = 1,
            .b = b + i / m->nrows * d * n, .brs = n,
            .c = c + i * n, .crs = flat ? n : each * n });
}

static void run_product(Lay *k, const LayerPart *p)
{
    Multiply m = multiply(k, p);
    Array y = row_value(k, &m, m.cols);
    const float *a = arrange(k, &k->value[p->in[0]],
                             row_value(k, &m, p->over), false);

    make_room(k, &y);
    multiply_rows(k, &m, a, weight(k, &m, p->over, m.cols), y.data, m.depth,
                  m.ncols);
    k->value[p->y] = y;
}

/* dx = dy W^T */
static void back_to_rows(Lay *k, const Multiply *m, const float *dy)
{
    Array dx = row_value(k, m, m->p->over);

    if (!is_wanted(k, m->p->in[0]))
        return;
    make_room(k, &dx);
    multiply_rows(k, m, dy, weight(k, m, m->cols, m->p->over), dx.data,
                  m->ncols, m->depth);
    add_grad(k, m->p->in[0], &dx);
}

/* dW = x^T dy, over all tokens and rows. */
static void back_to_weight(Lay *k, const Multiply *m, const float *dy)
{
    bool flat = m->nboth == 1;
    int64_t each = m->nboth * m->nrows, times = flat ? 1 : each;
    Array dw = { 0 };

    if (!is_wanted(k, m->p->in[1]))
        return;
    add_axes(k, &dw, m->both);
    add_axes(k, &dw, m->p->over);
    add_axes(k, &dw, m->cols);
    make_room(k, &dw);
    const float *x = arrange(k, &k->value[m->p->in[0]],
                             row_value(k, m, m->p->over), false);
    for (int64_t i = 0; i < times; i++)
        cpu_product(k->c, k->v->shared.pool, k->args->threads, &(Product){
            .m = m->depth, .n = m->ncols,
            .k = flat ? m->tokens * m->nrows : m->tokens,
            .a = x + i * m->depth, .ars = 1,
            .acs = flat ? m->depth : each * m->depth,
            .b = dy + i * m->ncols, .brs = flat ? m->ncols : each * m->ncols,
            .c = (float *)dw.data + i / m->nrows * m->depth * m->ncols,
            .crs = m->ncols, .add = i % m->nrows != 0 });
    add_grad(k, m->p->in[1], &dw);
}

static void back_product(Lay *k, const LayerPart *p)
{
    Multiply m = multiply(k, p);
    const float *dy = arrange(k, &k->grad[p->y], row_value(k, &m, m.cols),
                              true);

    back_to_rows(k, &m, dy);
    back_to_weight(k, &m, dy);
}

/* ---- steps ---- */

/* A part as a call of its own. */
typedef struct Sub {
    const LayerPart *p;
    Variant *v;
    Args args;
    Bound bound;
    Adjoint d;
} Sub;

/* One axis more of what a tensor is seen as; of one that it lacks, n times the
 * same. */
static void see_axis(Given *g, const Array *v, int ax, int64_t n)
{
    int i = find(v, ax);

    g->shape[g->rank] = i < 0 ? n : v->n[i];
    g->stride[g->rank++] = i < 0 ? 0 : v->st[i];
}

/* The value as the part's argument: [B, T, H, ...], or [H, ...]. A constant
 * part has one token. */
static Given see(const Lay *k, const LayerPart *p, const Array *v, bool timed,
                 const uint8_t *order, int rank)
{
    Given g = { .given = true, .data = v->data, .dtype = v->dtype };

    if (timed) {
        see_axis(&g, v, AX_B, p->constant ? 1 : k->b->B);
        see_axis(&g, v, AX_T, p->constant ? 1 : k->b->T);
    }
    see_axis(&g, v, p->heads ? p->heads : -1, 1);
    for (int i = 0; i < rank; i++)
        see_axis(&g, v, p->axis[order[i]], 1);
    return g;
}

static Given see_y(const Lay *k, const LayerPart *p, const Array *v)
{
    const Output *y = &p->step->out[0];

    return see(k, p, v, true, y->order, y->rank);
}

static Given see_input(const Lay *k, const LayerPart *p, int i, const Array *v)
{
    const Input *in = &p->step->in[i];

    return see(k, p, v, in->timed, in->order, in->rank);
}

/* The layer's state that is, or has for a slice, state i of the part. */
static int state_at(const LayerPart *p, int i)
{
    return p->taps ? p->state : p->state + i;
}

/* State i of the part, [N, H, ...], where the layer's lies as the view says:
 * with taps, one of its slices. */
static Given see_state(const Lay *k, const LayerPart *p, int i, const View *t)
{
    const State *st = &k->step->st[state_at(p, i)], *own = &p->step->st[i];
    Array v = { .data = t->data, .dtype = t->dtype };
    Given g = { .given = t->data != NULL, .data = t->data, .dtype = t->dtype,
                .rank = 1, .shape = { k->b->N }, .stride = { t->sb } };

    for (int d = 0; d < st->rank; d++) {
        add_axis(k, &v, st->order[d]);
        v.st[d] = t->sd[d];
    }
    see_axis(&g, &v, p->heads ? p->heads : -1, 1);
    for (int d = 0; d < own->rank; d++)
        see_axis(&g, &v, p->axis[own->order[d]], 1);
    if (p->taps && g.given) {
        int d = find(&v, p->taps);
        g.data = (char *)g.data + (v.n[d] - 1 - i) * v.st[d]
               * dtype_size(g.dtype);
    }
    return g;
}

static Sub *new_sub(Lay *k, int i, Mode mode)
{
    Sub *s = ctx_alloc(k->c, sizeof *s);
    const LayerPart *p = &k->p->parts->part[i];

    s->p = p;
    s->v = k->p->variant[i];
    s->args = (Args){ .mode = mode, .cu = k->args->cu, .ncu = k->args->ncu,
                      .chunk = k->args->chunk, .threads = k->args->threads,
                      .serial = k->args->serial, .validate = -1,
                      .backend = k->args->backend };
    if (p->constant) {
        s->args.cu = NULL;
        s->args.ncu = 0;
    }
    for (int j = 0; j < p->nin; j++)
        s->args.in[j] = see_input(k, p, j, &k->value[p->in[j]]);
    for (int j = 0; j < p->step->nst; j++)
        s->args.state[j] = see_state(k, p, j,
                                     &k->b->call.s0[state_at(p, j)]);
    bind_call(k->c, p->step, &s->args, &s->bound);
    return s;
}

static void run_step(Lay *k, int i)
{
    Sub *s = new_sub(k, i, k->d ? M_FORWARD : k->args->mode);
    const LayerPart *p = s->p;
    Call *call = &s->bound.call;

    k->value[p->y] = new_value(k, p->y);
    Given y = see_y(k, p, &k->value[p->y]);
    call->out[0] = result_view(p->step, &y);
    for (int j = 0; !k->d && j < p->step->nst; j++) {
        Given left = see_state(k, p, j, &k->b->call.s1[state_at(p, j)]);
        if (left.given)
            call->s1[j] = state_view(p->step, j, &left);
    }
    run_bound(k->c, s->v, &s->args, &s->bound);
}

/* The layer's gradients of states as views; not given: none. */
static void state_views(const Lay *k, const Given *of, View *to)
{
    for (int i = 0; i < k->step->nst; i++)
        to[i] = of[i].given ? state_view(k->step, i, &of[i]) : (View){ 0 };
}

/* Is input j of the part, which has tokens, the same value for all? */
static bool spread(const Lay *k, const LayerPart *p, int j)
{
    return p->step->in[j].timed && !p->constant && !k->g->n[p->in[j]].timed;
}

/* Room for r as if it differed from token to token. */
static Array token_value(const Lay *k, Ref r)
{
    Array v = { 0 };

    add_axis(k, &v, AX_B);
    add_axis(k, &v, AX_T);
    add_axes(k, &v, k->g->n[r].axes);
    make_room(k, &v);
    return v;
}

/* Adds to r's gradient what is of each token: into one place. */
static void sum_tokens(Lay *k, Ref r, const Array *g)
{
    Array sum = new_value(k, r), all = *g;

    for (int i = 0; i < all.rank; i++)
        all.st[i] = i < 2 ? 0 : sum.st[i - 2];
    all.data = sum.data;
    move_value(k, &all, g, true);
    add_grad(k, r, &sum);
}

static void back_step(Lay *k, int i)
{
    Sub *s = new_sub(k, i, M_BACKWARD);
    const LayerPart *p = s->p;
    View dstate[MAX_STATES], ds[MAX_STATES];
    Array *dx = ctx_alloc(k->c, (size_t)p->nin * sizeof *dx + 1);

    state_views(k, k->d->dstate, dstate);
    state_views(k, k->d->ds, ds);
    s->d.dy = see_y(k, p, &k->grad[p->y]);
    for (int j = 0; j < p->step->nst; j++) {
        s->d.dstate[j] = see_state(k, p, j, &dstate[state_at(p, j)]);
        s->d.ds[j] = see_state(k, p, j, &ds[state_at(p, j)]);
    }
    for (int j = 0; j < p->nin; j++) {
        if (!is_wanted(k, p->in[j]))
            continue;
        dx[j] = spread(k, p, j) ? token_value(k, p->in[j])
                                : new_value(k, p->in[j]);
        s->d.dx[j] = see_input(k, p, j, &dx[j]);
    }
    run_backward(k->c, s->v, &s->args, &s->bound, &s->d);
    for (int j = 0; j < p->nin; j++)
        if (dx[j].data && spread(k, p, j))
            sum_tokens(k, p->in[j], &dx[j]);
        else if (dx[j].data)
            add_grad(k, p->in[j], &dx[j]);
}

/* ---- calls ---- */

static Lay *lay_new(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    Lay *k = ctx_alloc(c, sizeof *k);
    const Graph *g = v->step->layer->traced;

    if (b->call.on_device || a->backend == backend_named("cuda"))
        fail_help(c, 0, "t:to(\"cpu\")", "%s: %s is a layer: layers run on the "
                  "CPU so far", mode_name[a->mode], g->name);
    *k = (Lay){ .c = c, .v = v, .g = g, .step = v->step, .args = a, .b = b,
                .p = layer_program(c, v, b->call.size) };
    k->value = ctx_alloc(c, g->len * sizeof *k->value);
    k->grad = ctx_alloc(c, g->len * sizeof *k->grad);
    for (int i = 0; i < v->step->nin; i++)
        k->value[g->in[i].node] = input_value(k, i, &b->call.in[i]);
    for (Ref r = 1; r < g->len; r++)
        if (g->n[r].op == OP_num) {
            make_room(k, &k->value[r]);
            *(float *)k->value[r].data = (float)g->n[r].num;
        }
    return k;
}

void layer_prepare(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    Lay *k = lay_new(c, v, a, b);

    for (int i = 0; i < k->p->parts->n; i++) {
        Mode mode = a->mode == M_BACKWARD ? M_FORWARD : a->mode;
        k->value[k->p->parts->part[i].y] =
            bare_value(k, k->p->parts->part[i].y);
        if (!k->p->variant[i])
            continue;
        Sub *s = new_sub(k, i, mode);
        prepare_bound(c, s->v, &s->args, &s->bound);
        if (a->mode != M_BACKWARD)
            continue;
        s = new_sub(k, i, M_BACKWARD);
        prepare_backward(c, s->v, &s->args, &s->bound);
    }
}

static void run_parts(Lay *k)
{
    for (int i = 0; i < k->p->parts->n; i++) {
        ctx_poll(k->c);
        if (k->p->variant[i])
            run_step(k, i);
        else
            run_product(k, &k->p->parts->part[i]);
    }
}

static Array y_value(const Lay *k, const View *t)
{
    const Output *y = &k->g->out[0];

    return tensor_value_of(k, true, y->order, y->rank, t);
}

void layer_run(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    Lay *k = lay_new(c, v, a, b);
    Array y = y_value(k, &b->call.out[0]);

    run_parts(k);
    if (y.data)
        move_value(k, &y, &k->value[k->g->out[0].node], false);
}

/* What the caller wants of the gradients of arguments. */
static void give_gradients(Lay *k)
{
    for (int i = 0; i < k->step->nin; i++) {
        if (!k->d->dx[i].given || !k->d->dx[i].data)
            continue;
        View t = input_view(k->step, i, &k->d->dx[i]);
        Array to = input_value(k, i, &t);
        Ref r = k->g->in[i].node;
        if (!k->grad[r].data)
            k->grad[r] = new_value(k, r);
        move_value(k, &to, &k->grad[r], false);
    }
}

void layer_backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                    const Adjoint *d)
{
    Lay *k = lay_new(c, v, a, b);
    Ref y = k->g->out[0].node;
    View dy = { 0 };

    k->d = d;
    run_parts(k);
    if (d->dy.given) {
        dy = result_view(v->step, &d->dy);
        k->grad[y] = y_value(k, &dy);
    }
    for (int i = k->p->parts->n - 1; i >= 0; i--) {
        const LayerPart *p = &k->p->parts->part[i];
        ctx_poll(c);
        if (!k->grad[p->y].data)
            k->grad[p->y] = new_value(k, p->y);
        if (k->p->variant[i])
            back_step(k, i);
        else
            back_product(k, p);
    }
    give_gradients(k);
}
