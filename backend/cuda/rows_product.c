/* rows_product.c -- a product with a weight that rows read: its result is an
 * input of theirs, in memory of the call's own. Their first kernel makes what
 * its block reads; where the tensors do not lie so, or are of another type,
 * dense.h does it before. On the way back the rows leave the result's gradient,
 * and dense.h makes those of the factors from it.
 */
#include "dense.h"
#include "rows_text.h"

#include <string.h>

/* ---- the step ---- */

static bool reads(const Graph *g, Ref r, Ref of)
{
    for (int i = 0; i < 4; i++)
        if (g->n[r].a[i] == of)
            return true;
    return false;
}

/* The node alone reads it. */
static bool is_read_once(const Graph *g, Ref r, Ref by)
{
    for (Ref i = 1; i < g->len; i++)
        if (i != by && reads(g, i, r))
            return false;
    return g->out[0].node != r;
}

/* Is it one that rows_product.cuh makes, of tensors that lie well? */
static bool has_tiles(const RowsProduct *o)
{
    enum { STEP = 32, SLAB = 256, MOST = 1024 };

    return o->k <= MOST && o->k % (o->k < SLAB ? STEP : SLAB) == 0
        && o->n % 8 == 0 && (o->n <= 64 || o->n == 128);
}

static bool is_weighted(const Graph *g, Ref r, RowsProduct *to)
{
    const Node *n = &g->n[r];

    if (!op_is(n->op, ADDS_UP) || !op_is(n->op, MULTIPLIES)
        || g->n[n->a[0]].op != OP_input || g->n[n->a[1]].op != OP_input)
        return false;
    int rows = g->in[g->n[n->a[0]].index].timed ? 0 : 1;
    const Input *x = &g->in[g->n[n->a[rows]].index];
    const Input *w = &g->in[g->n[n->a[1 - rows]].index];
    *to = (RowsProduct){ .x = (int)(x - g->in), .w = (int)(w - g->in),
                         .as = g->nin };
    if (!x->timed || w->timed || x->rank != 1 || w->rank != 2
        || n->over != x->axes || w->axes != (n->over | n->axes))
        return false;
    to->turned = AXIS(w->order[1]) == x->axes;
    to->k = g->axis[x->order[0]].size;
    to->n = g->axis[w->order[to->turned ? 0 : 1]].size;
    return has_tiles(to) && is_read_once(g, x->node, r)
        && is_read_once(g, w->node, r);
}

bool product_find(Graph *g, RowsProduct *to)
{
    for (Ref r = 1; r < g->len && g->nin < MAX_INPUTS - 1; r++) {
        if (!is_weighted(g, r, to))
            continue;
        Input *in = &g->in[g->nin];
        *in = (Input){ .timed = true, .axes = g->n[r].axes, .rank = 1,
                       .node = r, .line = g->n[r].line };
        in->order[0] = (uint8_t)lowest(in->axes);
        strcpy(in->name, "the_product_with_a_weight");
        g->n[r].op = OP_input;
        g->n[r].index = (uint16_t)g->nin++;
        g->n[r].over = 0;
        memset(g->n[r].a, 0, sizeof g->n[r].a);
        return true;
    }
    return false;
}

/* ---- in the rows' first kernel ---- */

static int64_t weight_step(const RowsProduct *p, const View *w, bool columns)
{
    return w->sd[p->turned != columns ? 1 : 0];
}

static bool begins_whole(const View *v)
{
    return (uintptr_t)v->data % 16 == 0 && v->sb % 8 == 0 && v->st % 8 == 0;
}

bool product_is_own(const Rows *p, const RowsCall *call)
{
    const RowsProduct *o = p->product;

    if (!o)
        return false;
    const View *x = &call->in[o->x], *w = &call->in[o->w];
    return call->heads == 1 && call->T < 1 << 30 && x->dtype == BF16
        && (w->dtype == BF16 || w->dtype == F32)
        && x->sd[0] == 1 && weight_step(o, w, true) == 1
        && weight_step(o, w, false) % 8 == 0 && begins_whole(x)
        && begins_whole(w);
}

/* What the last kernel leaves of it is read there: in sums of 32. */
bool product_goes_back(const Rows *p, const RowsCall *call)
{
    const RowsProduct *o = p->product;

    if (!call->backward || !product_is_own(p, call) || o->n % 32)
        return false;
    const View *dx = &call->dx[o->x];
    return dx->data && !call->add[o->x] && dx->dtype == BF16 && dx->sd[0] == 1
        && begins_whole(dx);
}

/* As rows_product.cuh has them: rows of w that are there at a time, rows of x,
 * and of these columns. */
typedef struct Tiling { int slab, rows, step; } Tiling;
static Tiling tiling_of(const RowsProduct *o)
{
    Tiling t = { .slab = o->k < 256 ? o->k : 256 };

    t.rows = o->n % 32 || o->n > 128 || o->n == 96 ? 128 : 128 / (o->n / 32);
    t.step = t.slab % 64 ? 32 : t.slab / 2;
    return t;
}

/* Bytes of w's slab and of two steps of x. */
static int slab_bytes(const RowsProduct *o)
{
    Tiling t = tiling_of(o);

    return t.slab * o->n * 2 + 2 * t.rows * t.step * 2;
}

int64_t product_links(const RowsProduct *o, int64_t rows, int64_t *waits)
{
    enum { DEPTH = 16 };                /* columns that an mma.sync sums over */
    Tiling t = tiling_of(o);
    int64_t tiles = (rows + t.rows - 1) / t.rows;

    *waits = tiles * (o->k / t.step);
    return tiles * (o->k / DEPTH);
}

static int64_t near_bytes(const Rows *p, const RowsCall *call)
{
    int groups = ROW_THREADS / rows_shape(p, call).group;

    return (int64_t)groups * call->piece * p->product->n * 2;
}

/* What every GPU since Ampere has for a block is not exceeded. */
int product_near(const Rows *p, const RowsCall *call)
{
    enum { MOST = 96 << 10 };
    int slab = slab_bytes(p->product);

    return slab + near_bytes(p, call) <= MOST ? slab : -1;
}

int product_shared(const Rows *p, const RowsCall *call, bool back)
{
    int k = p->product->k < 256 ? p->product->k : 256;

    return back ? carried_shared(p, call) + k * p->product->n * 2
         : slab_bytes(p->product) + (product_near(p, call) < 0 ? 0
                                     : (int)near_bytes(p, call));
}

static const char *wide(const Text *t)
{
    return t->call->in[t->p->product->w].dtype == F32 ? "true" : "false";
}

void product_begin_back(const Text *t)
{
    const RowsProduct *o = t->p->product;
    int w = rows_arg(t->p, ROW_IN, o->w);

    PUT(t, "load_back<%d, %d, %s, %d>(a.arg[%d].p, a.arg[%d].sd[%d], 0);\n",
        o->k, o->n, wide(t), carried_shared(t->p, t->call), w, w, o->turned);
}

void product_emit(const Text *t, bool serial, bool back)
{
    const Rows *p = t->p;
    const RowsProduct *o = p->product;
    int w = rows_arg(p, ROW_IN, o->w);
    int x = back ? rows_arg(p, ROW_DX, o->as) : rows_arg(p, ROW_IN, o->x);
    int y = back ? rows_arg(p, ROW_DX, o->x) : rows_arg(p, ROW_IN, o->as);

    PUT(t, "multiply%s<%d, %d, %s%s>({ a.arg[%d].p, a.arg[%d].p, a.arg[%d].p,"
        " a.arg[%d].sb, a.arg[%d].st, a.arg[%d].sd[%d], a.arg[%d].sb,"
        " a.arg[%d].st },\n", back ? "_back" : "", o->k, o->n, wide(t), back
        ? ctx_format(t->c, ", %d", carried_shared(p, t->call)) : "", x, w, y,
        x, x, w, o->turned, y, y);
    int near = back ? -1 : product_near(p, t->call);
    if (near >= 0)
        PUT(t, "(char *)near_rows, ");
    else if (!back)
        PUT(t, "NULL, ");
    PUT(t, serial
        ? "{ blockIdx.x * groups, 0, groups * a.length, a.tokens, a.rows });\n"
        : "{ b, part * groups * a.length, groups * a.length, a.tokens, b + 1"
          " });\n");
}

/* ---- by itself, and its way back ---- */

/* Bytes behind the rows' own: the result, its gradient, and copies of tensors
 * as products take them; what products take. */
typedef struct Places {
    int64_t y, dy, x, w, dx, dw, dense, bytes;
} Places;

typedef struct Work {
    Ctx *c;
    Gpu *g;
    const Rows *p;
    const RowsCall *call;
    DType type;
    DevicePtr at;
    Places place;
    int64_t dense, kept;                /* bytes; before the product in what is
                                           kept */
    bool dry;
} Work;

static int64_t take(Places *r, int64_t bytes)
{
    int64_t at = r->bytes;

    r->bytes += (bytes + 255) / 256 * 256;
    return at;
}

/* Tokens, heads, and entries of x (or of a weight: rows, columns). */
static bool is_factor(const Work *k, const View *v, bool weight)
{
    const RowsProduct *o = k->p->product;

    return v->dtype == k->type
        && (weight ? weight_step(o, v, true) == 1
                     || weight_step(o, v, false) == 1 : v->sd[0] == 1);
}

/* Columns lie next to each other. */
static bool is_result(const Work *k, const View *v, bool weight)
{
    return (v->dtype == k->type || v->dtype == F32)
        && (weight ? weight_step(k->p->product, v, true) == 1
                   : v->sd[0] == 1);
}

static View rows_at(const Work *k, int64_t at, DType type, int64_t n)
{
    const RowsCall *c = k->call;

    return (View){ (void *)(uintptr_t)(k->at + (DevicePtr)at), type, c->heads,
                   c->T * c->heads * n, c->heads * n, n, { 1 } };
}

static View weight_at(const Work *k, int64_t at, DType type, int heads)
{
    const RowsProduct *o = k->p->product;
    View v = { (void *)(uintptr_t)(k->at + (DevicePtr)at), type, heads, 0, 0,
               (int64_t)o->k * o->n, { o->n, 1 } };

    if (o->turned) {
        v.sd[0] = 1;
        v.sd[1] = o->n;
    }
    return v;
}

static void find_places(Work *k)
{
    const RowsProduct *o = k->p->product;
    const RowsCall *c = k->call;
    int size = dtype_size(k->type);
    int64_t rows = c->B * c->T * c->heads;
    int64_t w = (int64_t)o->k * o->n * c->heads;
    Places *r = &k->place;

    *r = (Places){ .bytes = 0 };
    r->y = take(r, c->kept ? 0 : rows * o->n * size);
    r->dy = take(r, c->backward ? rows * o->n * size : 0);
    r->x = take(r, is_factor(k, &c->in[o->x], false) ? 0
                   : rows * o->k * size);
    r->w = take(r, is_factor(k, &c->in[o->w], true) ? 0 : w * size);
    r->dx = take(r, !c->dx[o->x].data || is_result(k, &c->dx[o->x], false) ? 0
                    : rows * o->k * 4);
    r->dw = take(r, !c->dx[o->w].data || is_result(k, &c->dx[o->w], true) ? 0
                    : w * 4);
    r->dense = r->bytes;
}

int64_t product_bytes(const Rows *p, const RowsCall *call)
{
    DType type = call->in[p->product->x].dtype;

    return call->B * call->T * call->heads * p->product->n
         * dtype_size(type == F64 ? F32 : type);
}

static Work work_of(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                    int64_t own)
{
    DType type = call->in[p->product->x].dtype;
    Work k = { .c = c, .g = g, .p = p, .call = call, .at = call->room
               + (DevicePtr)own, .type = type == F64 ? F32 : type };

    find_places(&k);
    return k;
}

static void move_view(const Work *k, const View *to, const View *from,
                      bool weight)
{
    const RowsCall *c = k->call;
    const RowsProduct *o = k->p->product;
    DenseMove m = { .to = (DevicePtr)(uintptr_t)to->data,
                    .from = (DevicePtr)(uintptr_t)from->data,
                    .to_type = to->dtype, .from_type = from->dtype,
                    .rank = 5 };
    bool heads = to->heads == c->heads || from->heads == c->heads;
    int64_t n[] = { weight ? 1 : c->B, weight ? 1 : c->T, heads ? c->heads : 1,
                    weight && o->turned ? o->n : o->k,
                    !weight ? 1 : o->turned ? o->k : o->n };
    int64_t ts[] = { to->sb, to->st, to->heads == c->heads ? to->sh : 0,
                     to->sd[0], to->sd[1] };
    int64_t fs[] = { from->sb, from->st, from->heads == c->heads ? from->sh
                     : 0, from->sd[0], from->sd[1] };

    memcpy(m.n, n, sizeof n);
    memcpy(m.ts, ts, sizeof ts);
    memcpy(m.fs, fs, sizeof fs);
    if (!k->dry)
        dense_move(k->c, k->g, c->stream, &m);
}

/* The tensor as a factor: as it lies, or a copy. */
static View factor(const Work *k, const View *v, bool weight)
{
    if (is_factor(k, v, weight))
        return *v;
    View copy = weight ? weight_at(k, k->place.w, k->type, k->call->heads)
                       : rows_at(k, k->place.x, k->type, k->p->product->k);
    move_view(k, &copy, v, weight);
    return copy;
}

static void do_product(Work *k, const DenseProduct *p)
{
    int64_t bytes = dense_room(k->c, k->g, p) + 1;

    k->dense = bytes > k->dense ? bytes : k->dense;
    if (k->dry)
        dense_choose(k->c, k->g, p);
    else
        dense_product(k->c, k->g, k->call->stream, p,
                      k->at + (DevicePtr)k->place.dense, bytes);
}

static DevicePtr at_head(const View *v, int h, int heads)
{
    return (DevicePtr)(uintptr_t)v->data + (DevicePtr)(v->heads == heads
           ? h * v->sh * (int64_t)dtype_size(v->dtype) : 0);
}

/* Rows of x times the weight, or of dy times its transpose. */
static void times_weight(Work *k, const View *x, const View *w, const View *y,
                         bool back)
{
    const RowsProduct *o = k->p->product;
    const RowsCall *c = k->call;
    bool one = c->B == 1 || (x->sb == c->T * x->st && y->sb == c->T * y->st);

    for (int h = 0; h < c->heads; h++)
        do_product(k, &(DenseProduct){
            .m = one ? c->B * c->T : c->T, .n = back ? o->k : o->n,
            .k = back ? o->n : o->k, .batch = one ? 1 : c->B,
            .a = at_head(x, h, c->heads), .b = at_head(w, h, c->heads),
            .c = at_head(y, h, c->heads), .ars = x->st, .acs = 1,
            .abs = x->sb, .brs = weight_step(o, w, back),
            .bcs = weight_step(o, w, !back), .crs = y->st, .cbs = y->sb,
            .type = k->type, .result = y->dtype,
            .add = h && y->heads != c->heads });
}

/* dw = x^T dy, over all tokens. */
static void back_to_weight(Work *k, const View *x, const View *dy,
                           const View *dw)
{
    const RowsProduct *o = k->p->product;
    const RowsCall *c = k->call;
    bool one = c->B == 1 || (x->sb == c->T * x->st && dy->sb == c->T * dy->st);
    int64_t size = dtype_size(k->type);

    for (int i = 0; i < c->heads * (one ? 1 : c->B); i++) {
        int64_t b = one ? 0 : i / c->heads;
        int h = i % c->heads;
        do_product(k, &(DenseProduct){
            .m = o->k, .n = o->n, .k = one ? c->B * c->T : c->T, .batch = 1,
            .a = at_head(x, h, c->heads) + (DevicePtr)(b * x->sb * size),
            .b = at_head(dy, h, c->heads) + (DevicePtr)(b * dy->sb * size),
            .c = at_head(dw, h, c->heads), .ars = 1, .acs = x->st,
            .brs = dy->st, .bcs = 1, .crs = weight_step(o, dw, false),
            .type = k->type, .result = dw->dtype,
            .add = b || (h && dw->heads != c->heads) });
    }
}

static View result_at(const Work *k)
{
    View v = rows_at(k, k->place.y, k->type, k->p->product->n);

    if (k->call->kept)
        v.data = (void *)(uintptr_t)(k->call->kept + (DevicePtr)k->kept);
    return v;
}

static View gradient_at(const Work *k)
{
    return rows_at(k, k->place.dy, k->type, k->p->product->n);
}

static void run_before(Work *k)
{
    const RowsProduct *o = k->p->product;

    if (product_is_own(k->p, k->call) || !k->call->T
        || (k->call->backward && k->call->kept))
        return;
    View x = factor(k, &k->call->in[o->x], false);
    View w = factor(k, &k->call->in[o->w], true);
    View y = result_at(k);
    times_weight(k, &x, &w, &y, false);
}

/* The gradient where it is wanted: through a copy, if products cannot. */
static View result_of(const Work *k, const View *v, bool weight)
{
    return is_result(k, v, weight) ? *v
         : weight ? weight_at(k, k->place.dw, F32, v->heads)
                  : rows_at(k, k->place.dx, F32, k->p->product->k);
}

static void run_behind(Work *k)
{
    const RowsProduct *o = k->p->product;
    const RowsCall *c = k->call;
    const View *dx = &c->dx[o->x], *dw = &c->dx[o->w];

    if (!c->backward)
        return;
    View dy = gradient_at(k);
    if (dx->data && c->T && !product_goes_back(k->p, c)) {
        View w = factor(k, &c->in[o->w], true), to = result_of(k, dx, false);
        to.heads = dx->heads;
        times_weight(k, &dy, &w, &to, true);
        if (to.data != dx->data)
            move_view(k, dx, &to, false);
    }
    if (dw->data) {
        View x = factor(k, &c->in[o->x], false), to = result_of(k, dw, true);
        back_to_weight(k, &x, &dy, &to);
        if (to.data != dw->data)
            move_view(k, dw, &to, true);
    }
}

RowsCall product_call(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                      int64_t own, int64_t kept)
{
    const RowsProduct *o = p->product;
    Work k = work_of(c, g, p, call, own);
    RowsCall to = *call;

    k.kept = kept;
    to.in[o->as] = result_at(&k);
    if (call->dx[o->x].data || call->dx[o->w].data)
        to.dx[o->as] = gradient_at(&k);
    to.dx[o->w] = (View){ 0 };
    if (!product_goes_back(p, call))
        to.dx[o->x] = (View){ 0 };
    return to;
}

int64_t product_room(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call)
{
    Work k = work_of(c, g, p, call, 0);

    k.dry = true;
    run_before(&k);
    run_behind(&k);
    return k.place.bytes + k.dense;
}

void product_before(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                    int64_t own, int64_t kept)
{
    Work k = work_of(c, g, p, call, own);

    k.kept = kept;
    run_before(&k);
}

void product_behind(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                    int64_t own)
{
    Work k = work_of(c, g, p, call, own);

    run_behind(&k);
}
