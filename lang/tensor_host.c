/* tensor_host.c -- flin.host: the plain tensor work around a layer, forward
 * and backward: matrix products, rows of a table, element-wise functions,
 * norms of rows, cross entropy, Adam.
 *
 * All is float32 on the CPU. A tensor of more than two axes counts as a matrix
 * of its last axis; other dtypes and views are read through a copy. What is
 * written in place must be float32 and row-major.
 */
#include <math.h>
#include <string.h>

#include "../backend/cpu/isa.h"
#include "tensor.h"

/* A tensor as rows of its last axis; a single number is one row of one. */
typedef struct Mat {
    const Tensor *t;
    float *x;
    int64_t rows, cols;
} Mat;

static Mat as_matrix(const Tensor *t)
{
    Mat m = { .t = t, .x = tensor_data(t), .rows = 1, .cols = 1 };

    if (t->rank)
        m.cols = t->shape[t->rank - 1];
    for (int k = 0; k + 1 < t->rank; k++)
        m.rows *= t->shape[k];
    return m;
}

/* The tensor at arg, to be read; a copy takes its place on the stack. */
static Mat read_arg(lua_State *L, int arg)
{
    const Tensor *t = tensor_check(L, arg);

    if (t->dtype != F32 || !tensor_contiguous(t)) {
        t = tensor_copy(L, t, F32);
        lua_replace(L, arg);
    }
    return as_matrix(t);
}

static Mat write_arg(lua_State *L, int arg, const char *what)
{
    const Tensor *t = tensor_writable(L, arg);

    if (t->dtype != F32 || !tensor_contiguous(t))
        luaL_error(L, "host.%s: what is written in place must be float32 and "
                   "row-major, not %s%s", what, dtype_name(t->dtype),
                   t->dtype == F32 ? " and strided" : "");
    return as_matrix(t);
}

static Mat push_like(lua_State *L, const Tensor *t)
{
    return as_matrix(tensor_push(L, F32, t->rank, t->shape));
}

static void need_same(lua_State *L, const char *what, Mat a, Mat b)
{
    if (a.t->rank != b.t->rank
        || memcmp(a.t->shape, b.t->shape,
                  (size_t)a.t->rank * sizeof *a.t->shape))
        luaL_error(L, "host.%s: tensors of shapes %s and %s", what,
                   tensor_shape_text(L, a.t), tensor_shape_text(L, b.t));
}

static bool overlap(Mat a, Mat b)
{
    return a.x < b.x + b.rows * b.cols && b.x < a.x + a.rows * a.cols;
}

/* The operand a at arg, as a copy where it shares memory with y, which is about
 * to be written. */
static Mat apart(lua_State *L, int arg, Mat a, Mat y)
{
    if (!overlap(a, y))
        return a;
    tensor_copy(L, a.t, F32);
    lua_replace(L, arg);
    return as_matrix(tensor_check(L, arg));
}

static float *scratch(lua_State *L, size_t floats)
{
    return lua_newuserdatauv(L, floats * sizeof(float), 0);
}

/* ---- matrix products ---- */

/* Rows of b that stay in a cache; products that count as one element. */
enum { DEPTH = 256, PRODUCTS = 64 };

/* The product of all rows of a and the DEPTH columns from `from` on with the
 * rows of b that lie in the slab. */
static void add_slab(lua_State *L, const Isa *isa, Gemm g, int from,
                     const float *slab)
{
    const float *a = g.a + from * g.acs;
    float *c = g.c;

    g.b = slab;
    g.brs = g.n;
    g.bcs = 1;
    for (Span s = span(L, g.m, g.n / 4); span_next(&s); ) {
        g.m = (int)(s.to - s.from);
        g.a = a + s.from * g.ars;
        g.c = c + s.from * g.crs;
        isa->gemm(&g);
    }
}

/* c (m x n) += a (m x k, any strides) times b (k x n, row-major). */
static void product(lua_State *L, Gemm g)
{
    const Isa *isa = isa_find(NULL);
    size_t size = (size_t)DEPTH * (size_t)g.n + TILE_SLACK;
    int k = g.k;
    float *slab = scratch(L, size);     /* the routines read past b's end */

    work(L, work_times((uint64_t)g.m * (uint64_t)g.n,
                       (uint64_t)g.k / PRODUCTS + 1));
    memset(slab, 0, size * sizeof *slab);
    g.mode = GEMM_ADD;
    g.row_rank = g.col_rank = 1;
    for (int from = 0; from < k; from += DEPTH) {
        g.k = k - from < DEPTH ? k - from : DEPTH;
        for (Span s = span(L, g.k, g.n); span_next(&s); )
            for (int64_t p = s.from; p < s.to; p++)
                for (int n = 0; n < g.n; n++)
                    slab[p * g.n + n] = g.b[(from + p) * g.brs + n * g.bcs];
        add_slab(L, isa, g, from, slab);
    }
}

/* The result: `into` of the options at arg, which the caller clears unless they
 * say `add`; or a new tensor. Pushed. */
static Mat product_result(lua_State *L, int arg, const Mat *a, bool turned,
                          int64_t rows, int64_t cols)
{
    int64_t shape[TENSOR_RANK] = { rows, cols };
    int rank = 2;
    Mat c;

    if (lua_istable(L, arg)) {
        if (raw_field(L, arg, "into") != LUA_TNIL) {
            c = write_arg(L, lua_gettop(L), "matmul");
            if (c.rows != rows || c.cols != cols)
                luaL_error(L, "host.matmul: a product of %I x %I into shape "
                           "%s", (lua_Integer)rows, (lua_Integer)cols,
                           tensor_shape_text(L, c.t));
            return c;
        }
        lua_pop(L, 1);
    }
    if (!turned && a->t->rank) {        /* the leading axes stay */
        rank = a->t->rank;
        memcpy(shape, a->t->shape, sizeof shape);
        shape[rank - 1] = cols;
    }
    return as_matrix(tensor_push(L, F32, rank, shape));
}

static bool adds(lua_State *L, int arg)
{
    bool add = false;

    if (lua_istable(L, arg)) {
        raw_field(L, arg, "add");
        add = lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    return add;
}

/* host.matmul(a, b, { transpose = "a" | "b", into = c, add = true }):
 * the rows of a times the matrix b; of transposed ones where asked. */
static int h_matmul(lua_State *L)
{
    Mat a = read_arg(L, 1), b = read_arg(L, 2), c;
    const char *turn = "";

    lua_settop(L, 3);
    if (lua_istable(L, 3)) {
        raw_field(L, 3, "transpose");
        turn = luaL_optstring(L, -1, "");
    }
    bool ta = strchr(turn, 'a'), tb = strchr(turn, 'b');
    int64_t m = ta ? a.cols : a.rows, k = ta ? a.rows : a.cols;
    int64_t n = tb ? b.rows : b.cols;
    if (k != (tb ? b.cols : b.rows))
        return luaL_error(L, "host.matmul: shapes %s%s and %s%s have no axis "
                          "in common", tensor_shape_text(L, a.t),
                          ta ? " transposed" : "", tensor_shape_text(L, b.t),
                          tb ? " transposed" : "");
    if ((m | n | k) >> 31)
        return luaL_error(L, "host.matmul: a product of %I x %I x %I: each "
                          "can be 2147483647 at most", (lua_Integer)m,
                          (lua_Integer)k, (lua_Integer)n);
    c = product_result(L, 3, &a, ta, m, n);
    int at = lua_gettop(L);
    a = apart(L, 1, a, c);
    b = apart(L, 2, b, c);
    if (!adds(L, 3))
        memset(c.x, 0, (size_t)(m * n) * sizeof *c.x);
    product(L, (Gemm){ .m = (int)m, .n = (int)n, .k = (int)k,
                       .a = a.x, .ars = ta ? 1 : a.cols,
                       .acs = ta ? a.cols : 1,
                       .b = b.x, .brs = tb ? 1 : b.cols,
                       .bcs = tb ? b.cols : 1,
                       .c = c.x, .crs = n });
    lua_settop(L, at);
    return 1;
}

/* ---- rows of a table ---- */

/* Entry i of an index tensor, as a row of m counted from 0. */
static int64_t row_at(lua_State *L, const char *what, Mat index, int64_t i,
                      Mat m)
{
    double k = (double)index.x[i];

    if (!(k >= 1 && k <= (double)m.rows && k < 0x1p24))
        luaL_error(L, "host.%s: row %f of a table of shape %s", what, k,
                   tensor_shape_text(L, m.t));
    return (int64_t)k - 1;
}

/* host.take(table, index): for each entry of index (from 1) that row. */
static int h_take(lua_State *L)
{
    Mat table = read_arg(L, 1), index = read_arg(L, 2), y;
    int64_t shape[TENSOR_RANK], n = tensor_count(index.t);
    int rank = index.t->rank;

    if (rank == TENSOR_RANK)
        return luaL_error(L, "host.take: an index of at most %d axes",
                          TENSOR_RANK - 1);
    memcpy(shape, index.t->shape, sizeof shape);
    shape[rank] = table.cols;
    y = as_matrix(tensor_push(L, F32, rank + 1, shape));
    for (Span s = span(L, n, y.cols); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++)
            memcpy(y.x + i * y.cols,
                   table.x + row_at(L, "take", index, i, table) * y.cols,
                   (size_t)y.cols * sizeof *y.x);
    return 1;
}

/* host.put(table, index, rows): adds each of the rows to the table's row that
 * the index names: take's gradient. */
static int h_put(lua_State *L)
{
    Mat table = write_arg(L, 1, "put"), index = read_arg(L, 2);
    Mat rows = read_arg(L, 3);

    if (rows.rows != tensor_count(index.t) || rows.cols != table.cols)
        return luaL_error(L, "host.put: rows of shape %s at an index of shape "
                          "%s", tensor_shape_text(L, rows.t),
                          tensor_shape_text(L, index.t));
    index = apart(L, 2, index, table);
    rows = apart(L, 3, rows, table);
    for (Span s = span(L, rows.rows, rows.cols); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++) {
            float *y = table.x + row_at(L, "put", index, i, table) * rows.cols;
            for (int64_t k = 0; k < rows.cols; k++)
                y[k] += rows.x[i * rows.cols + k];
        }
    return 0;
}

/* ---- sums and products ---- */

/* host.add(y, x [, scale]): y += scale * x in place; x has y's shape, or is
 * one row for all of them. Returns y. */
static int h_add(lua_State *L)
{
    Mat y = write_arg(L, 1, "add"), x = read_arg(L, 2);
    float scale = (float)luaL_optnumber(L, 3, 1);
    int64_t n = y.rows * y.cols;

    x = apart(L, 2, x, y);
    if (x.t->rank == 1 && x.cols == y.cols) {
        for (Span s = span(L, y.rows, y.cols); span_next(&s); )
            for (int64_t i = s.from; i < s.to; i++)
                for (int64_t k = 0; k < y.cols; k++)
                    y.x[i * y.cols + k] += scale * x.x[k];
    } else {
        need_same(L, "add", y, x);
        for (Span s = span(L, n, 1); span_next(&s); )
            for (int64_t i = s.from; i < s.to; i++)
                y.x[i] += scale * x.x[i];
    }
    lua_settop(L, 1);
    return 1;
}

/* host.sum_rows(x): all rows of x summed: the gradient of one row for all. */
static int h_sum_rows(lua_State *L)
{
    Mat x = read_arg(L, 1), y = as_matrix(tensor_push(L, F32, 1, &x.cols));

    for (Span s = span(L, x.rows, x.cols); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++)
            for (int64_t k = 0; k < x.cols; k++)
                y.x[k] += x.x[i * x.cols + k];
    return 1;
}

/* host.mul(a, b): element by element. */
static int h_mul(lua_State *L)
{
    Mat a = read_arg(L, 1), b = read_arg(L, 2), y = push_like(L, a.t);

    need_same(L, "mul", a, b);
    for (Span s = span(L, a.rows * a.cols, 1); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++)
            y.x[i] = a.x[i] * b.x[i];
    return 1;
}

/* ---- element-wise functions ---- */

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }
static float softplus(float x)
{
    return (x > 0 ? x : 0) + log1pf(expf(-fabsf(x)));
}
static float silu(float x) { return x * sigmoid(x); }
static float logsigmoid(float x) { return -softplus(-x); }
static float relu(float x) { return x > 0 ? x : 0; }

static float d_sigmoid(float x)
{
    float y = sigmoid(x);

    return y * (1 - y);
}
static float d_silu(float x)
{
    float y = sigmoid(x);

    return y * (1 + x * (1 - y));
}
static float d_logsigmoid(float x) { return sigmoid(-x); }
static float d_relu(float x) { return x > 0 ? 1 : 0; }
static float d_tanh(float x)
{
    float y = tanhf(x);

    return 1 - y * y;
}

static const struct Function {
    const char *name;
    float (*f)(float), (*d)(float);
} functions[] = {
    { "sigmoid", sigmoid, d_sigmoid }, { "silu", silu, d_silu },
    { "softplus", softplus, sigmoid }, { "relu", relu, d_relu },
    { "logsigmoid", logsigmoid, d_logsigmoid }, { "tanh", tanhf, d_tanh },
    { "exp", expf, expf },
};

static const struct Function *function_arg(lua_State *L, int arg)
{
    const char *name = luaL_checkstring(L, arg);
    luaL_Buffer b;

    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(name, functions[i].name))
            return &functions[i];
    luaL_buffinit(L, &b);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        luaL_addstring(&b, i ? " " : "");
        luaL_addstring(&b, functions[i].name);
    }
    luaL_pushresult(&b);
    luaL_error(L, "host.apply: no function '%s'; there are %s", name,
               lua_tostring(L, -1));
    return NULL;
}

/* host.apply(name, x) */
static int h_apply(lua_State *L)
{
    const struct Function *f = function_arg(L, 1);
    Mat x = read_arg(L, 2), y = push_like(L, x.t);

    for (Span s = span(L, x.rows * x.cols, 1); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++)
            y.x[i] = f->f(x.x[i]);
    return 1;
}

/* host.apply_grad(name, x, dy): dx */
static int h_apply_grad(lua_State *L)
{
    const struct Function *f = function_arg(L, 1);
    Mat x = read_arg(L, 2), dy = read_arg(L, 3), dx = push_like(L, x.t);

    need_same(L, "apply_grad", x, dy);
    for (Span s = span(L, x.rows * x.cols, 1); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++)
            dx.x[i] = f->d(x.x[i]) * dy.x[i];
    return 1;
}

/* ---- norms ---- */

/* What the squares of a row are divided by, and what is added to them. "l2"
 * is flin.l2norm, "rms" has mean square 1. */
static double norm_of(const float *x, int64_t n, bool rms)
{
    double sum = 0;

    for (int64_t k = 0; k < n; k++)
        sum += (double)x[k] * (double)x[k];
    return 1 / sqrt((rms ? sum / (double)n : sum) + 1e-6);
}

static bool norm_arg(lua_State *L, int arg)
{
    static const char *const kinds[] = { "l2", "rms", NULL };

    return luaL_checkoption(L, arg, NULL, kinds) == 1;
}

/* host.norm("rms" | "l2", x): each row scaled. */
static int h_norm(lua_State *L)
{
    bool rms = norm_arg(L, 1);
    Mat x = read_arg(L, 2), y = push_like(L, x.t);

    for (Span s = span(L, x.rows, x.cols); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++) {
            const float *a = x.x + i * x.cols;
            double scale = norm_of(a, x.cols, rms);
            for (int64_t k = 0; k < x.cols; k++)
                y.x[i * x.cols + k] = (float)((double)a[k] * scale);
        }
    return 1;
}

/* One row's dx. */
static void row_norm_grad(const float *a, const float *d, float *dx, int64_t n,
                          bool rms)
{
    double scale = norm_of(a, n, rms), along = 0;

    for (int64_t k = 0; k < n; k++)
        along += (double)a[k] * (double)d[k];
    along *= scale * scale / (rms ? (double)n : 1);
    for (int64_t k = 0; k < n; k++)
        dx[k] = (float)(scale * ((double)d[k] - along * (double)a[k]));
}

/* host.norm_grad(kind, x, dy): dx = s dy - s^3 x <x, dy> (/ n for rms) */
static int h_norm_grad(lua_State *L)
{
    bool rms = norm_arg(L, 1);
    Mat x = read_arg(L, 2), dy = read_arg(L, 3), dx = push_like(L, x.t);

    need_same(L, "norm_grad", x, dy);
    for (Span s = span(L, x.rows, x.cols); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++)
            row_norm_grad(x.x + i * x.cols, dy.x + i * x.cols,
                          dx.x + i * x.cols, x.cols, rms);
    return 1;
}

/* ---- the loss ---- */

/* One row's loss; d becomes its gradient, times `scale`. */
static double row_loss(const float *x, float *d, int64_t n, int64_t target,
                       double scale)
{
    double sum = 0;
    float top = x[0];

    for (int64_t k = 1; k < n; k++)
        top = x[k] > top ? x[k] : top;
    for (int64_t k = 0; k < n; k++) {
        d[k] = expf(x[k] - top);
        sum += (double)d[k];
    }
    for (int64_t k = 0; k < n; k++)
        d[k] = (float)((double)d[k] / sum * scale);
    d[target] -= (float)scale;
    return log(sum) - (double)(x[target] - top);
}

/* host.cross_entropy(logits, target): the mean over the rows of -log
 * softmax(row)[target], in nats, and its gradient. Targets count from 1. */
static int h_cross_entropy(lua_State *L)
{
    Mat x = read_arg(L, 1), target = read_arg(L, 2), dx;
    Mat cols = { .t = x.t, .rows = x.cols };
    double loss = 0;

    if (tensor_count(target.t) != x.rows || x.rows * x.cols == 0)
        return luaL_error(L, "host.cross_entropy: logits of shape %s and "
                          "targets of shape %s", tensor_shape_text(L, x.t),
                          tensor_shape_text(L, target.t));
    dx = push_like(L, x.t);
    for (Span s = span(L, x.rows, x.cols); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++)
            loss += row_loss(x.x + i * x.cols, dx.x + i * x.cols, x.cols,
                             row_at(L, "cross_entropy", target, i, cols),
                             1 / (double)x.rows);
    lua_pushnumber(L, loss / (double)x.rows);
    lua_insert(L, -2);
    return 2;
}

/* ---- Adam ---- */

static double number_field(lua_State *L, int arg, const char *name,
                           double usual)
{
    double x = usual;

    if (lua_istable(L, arg)) {
        raw_field(L, arg, name);
        x = luaL_optnumber(L, -1, usual);
        lua_pop(L, 1);
    }
    return x;
}

/* host.adam(p, grad, m, v, { step =, rate = 1e-3, beta1 = 0.9, beta2 = 0.999,
 * eps = 1e-8, decay = 0 }): one step (counted from 1) in place (Kingma, Ba,
 * arXiv:1412.6980; decay as Loshchilov, Hutter, arXiv:1711.05101). */
static int h_adam(lua_State *L)
{
    Mat p = write_arg(L, 1, "adam"), m = write_arg(L, 3, "adam");
    Mat v = write_arg(L, 4, "adam"), g = read_arg(L, 2);
    double step = number_field(L, 5, "step", 1);
    double rate = number_field(L, 5, "rate", 1e-3);
    double b1 = number_field(L, 5, "beta1", 0.9);
    double b2 = number_field(L, 5, "beta2", 0.999);
    double eps = number_field(L, 5, "eps", 1e-8);
    double keep = 1 - rate * number_field(L, 5, "decay", 0);

    need_same(L, "adam", p, g);
    need_same(L, "adam", p, m);
    need_same(L, "adam", p, v);
    if (overlap(p, m) || overlap(p, v) || overlap(m, v))
        return luaL_error(L, "host.adam: p, m and v must be three tensors: "
                          "two of them share memory");
    g = apart(L, 2, apart(L, 2, apart(L, 2, g, p), m), v);
    double c1 = rate / (1 - pow(b1, step)), c2 = 1 / (1 - pow(b2, step));
    for (Span s = span(L, p.rows * p.cols, 1); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++) {
            double x = (double)g.x[i];
            double mean = b1 * (double)m.x[i] + (1 - b1) * x;
            double square = b2 * (double)v.x[i] + (1 - b2) * x * x;
            m.x[i] = (float)mean;
            v.x[i] = (float)square;
            p.x[i] = (float)(keep * (double)p.x[i]
                             - c1 * mean / (sqrt(c2 * square) + eps));
        }
    return 0;
}

void host_open(lua_State *L)
{
    static const luaL_Reg host[] = {
        { "matmul", h_matmul }, { "take", h_take }, { "put", h_put },
        { "add", h_add }, { "sum_rows", h_sum_rows }, { "mul", h_mul },
        { "apply", h_apply }, { "apply_grad", h_apply_grad },
        { "norm", h_norm }, { "norm_grad", h_norm_grad },
        { "cross_entropy", h_cross_entropy }, { "adam", h_adam },
        { NULL, NULL }
    };

    luaL_newlib(L, host);
    lua_setfield(L, -2, "host");
}
