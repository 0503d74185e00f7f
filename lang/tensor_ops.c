/* tensor_ops.c -- methods over the rows of a tensor (its last axis), and the
 * views that repeat.
 *
 * Rows are worked on in double, whatever the dtype. Positions start at 1.
 */
#include <math.h>
#include <string.h>

#include "tensor.h"

/* ---- rows ---- */

/* Every row of t: the walk is over the axes before the last, `cols` is the
 * length of the last and `x` the row, in double. */
typedef struct Rows {
    lua_State *L;
    Tensor outer;
    Walk w;
    int64_t cols, stride;
    uint64_t done;                      /* since there was a poll */
    double *x;
} Rows;

/* Pushes room for so many numbers, which the collector owns. */
static double *push_room(lua_State *L, int64_t n)
{
    return lua_newuserdatauv(L, (size_t)(n + 1) * sizeof(double), 0);
}

/* The steps that go through all of t, where an empty row is one, too. */
static uint64_t steps_over(const Tensor *t)
{
    uint64_t n = 1;

    for (int k = 0; k < t->rank; k++)
        n *= t->shape[k] > 1 ? (uint64_t)t->shape[k] : 1;
    return n;
}

/* Pushes the buffer. All elements count as work. */
static Rows rows_begin(lua_State *L, const Tensor *t, const char *what)
{
    Rows r = { .L = L, .outer = *t };

    if (t->rank == 0)
        luaL_error(L, "%s: the tensor is a single number", what);
    r.outer.rank--;
    r.cols = t->shape[r.outer.rank];
    r.stride = t->stride[r.outer.rank];
    r.x = push_room(L, r.cols);
    work(L, steps_over(t));
    return r;
}

static void rows_first(Rows *r)
{
    r->w = walk(r->L, &r->outer);
}

/* n elements more are done. */
static void rows_did(Rows *r, int64_t n)
{
    r->done += (uint64_t)n + 1;
    if (r->done >= WORK_PIECE) {
        r->done = 0;
        work_on(r->L);
    }
}

static void row_read(Rows *r)
{
    View v = tensor_view(&r->outer);
    const float *f = (const float *)v.data + r->w.at;

    rows_did(r, r->cols);
    if (v.dtype == F32 && r->stride == 1)
        for (int64_t k = 0; k < r->cols; k++)
            r->x[k] = f[k];
    else
        for (int64_t k = 0; k < r->cols; k++)
            r->x[k] = view_get(&v, r->w.at + k * r->stride);
}

static double row_norm(const Rows *r)
{
    double n = 0;

    for (int64_t k = 0; k < r->cols; k++)
        n += r->x[k] * r->x[k];
    return sqrt(n);
}

/* ---- one number for each row ---- */

static double norm(const Rows *r, double scale)
{
    (void)scale;
    return row_norm(r);
}

/* The first of equal ones; a NaN wins, so that it cannot hide. */
static double argmax(const Rows *r, double scale)
{
    int64_t best = 0;

    (void)scale;
    for (int64_t k = 0; k < r->cols; k++) {
        if (r->x[k] != r->x[k])
            return (double)(k + 1);
        if (r->x[k] > r->x[best])
            best = k;
    }
    return (double)(best + 1);
}

/* To 1e-7: in float, a third of exp's time. */
static double logsumexp(const Rows *r, double scale)
{
    double top = scale * r->x[0], sum = 0;

    for (int64_t k = 1; k < r->cols; k++)
        top = scale * r->x[k] > top ? scale * r->x[k] : top;
    if (isinf(top))
        return top;
    for (int64_t k = 0; k < r->cols; k++)
        sum += expf((float)(scale * r->x[k] - top));
    return top + log(sum);
}

static int per_row(lua_State *L, const char *what,
                   double (*f)(const Rows *, double))
{
    const Tensor *t = tensor_check(L, 1);
    double scale = luaL_optnumber(L, 2, 1);
    int64_t n = 0;

    if (t->rank && t->shape[t->rank - 1] == 0)
        return luaL_error(L, "%s: the rows are empty", what);
    Rows r = rows_begin(L, t, what);
    View out = tensor_view(tensor_push(L, F64, r.outer.rank, r.outer.shape));
    for (rows_first(&r); r.w.left; walk_next(&r.w)) {
        row_read(&r);
        view_set(&out, n++, f(&r, scale));
    }
    return 1;
}

static double total(const Rows *r, double scale)
{
    double sum = 0;

    (void)scale;
    for (int64_t k = 0; k < r->cols; k++)
        sum += r->x[k];
    return sum;
}

static int t_norm(lua_State *L) { return per_row(L, "norm", norm); }
static int t_argmax(lua_State *L) { return per_row(L, "argmax", argmax); }
static int t_logsumexp(lua_State *L)
{
    return per_row(L, "logsumexp", logsumexp);
}

/* t:gather(index): of each row the entry that index names. */
static int t_gather(lua_State *L)
{
    const Tensor *t = tensor_check(L, 1), *index = tensor_check(L, 2);
    Rows r = rows_begin(L, t, "gather");
    View from = tensor_view(t), pick = tensor_view(index), out;
    int64_t n = 0;

    if (index->rank != r.outer.rank
        || memcmp(index->shape, r.outer.shape,
                  (size_t)index->rank * sizeof *index->shape))
        return luaL_error(L, "gather: an index of shape %s for rows of shape "
                          "%s", tensor_shape_text(L, index),
                          tensor_shape_text(L, &r.outer));
    out = tensor_view(tensor_push(L, F64, r.outer.rank, r.outer.shape));
    Walk w = walk(L, index);
    for (rows_first(&r); r.w.left; walk_next(&r.w), walk_next(&w)) {
        double k = view_get(&pick, w.at);
        if (!(k >= 1 && k <= (double)r.cols))
            return luaL_error(L, "gather: position %f in rows of %I", k,
                              (lua_Integer)r.cols);
        view_set(&out, n++, view_get(&from, r.w.at
                                     + ((int64_t)k - 1) * r.stride));
    }
    return 1;
}

/* ---- new rows ---- */

/* t:unit(): each row scaled to norm 1; a row of zeros stays. */
static int t_unit(lua_State *L)
{
    const Tensor *t = tensor_check(L, 1);
    Rows r = rows_begin(L, t, "unit");
    View out = tensor_view(tensor_push(L, t->dtype, t->rank, t->shape));
    int64_t n = 0;

    for (rows_first(&r); r.w.left; walk_next(&r.w)) {
        double size, scale;
        row_read(&r);
        size = row_norm(&r);
        scale = size == 0 ? 0 : 1 / size;
        for (int64_t k = 0; k < r.cols; k++)
            view_set(&out, n++, r.x[k] * scale);
    }
    return 1;
}

/* y += x * (a row of m) */
static void add_scaled(double *y, const double *m, double x, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        y[k] += x * m[k];
}

/* t:matmul(m): each row times a matrix. Zeros in t cost nothing. */
static int t_matmul(lua_State *L)
{
    const Tensor *t = tensor_check(L, 1), *m = tensor_check(L, 2), *mt;
    Rows r = rows_begin(L, t, "matmul");
    int64_t shape[TENSOR_RANK], n = 0, cols;
    double *y;
    View out;

    if (m->rank != 2 || m->shape[0] != r.cols)
        return luaL_error(L, "matmul: rows of %I and a matrix of shape %s",
                          (lua_Integer)r.cols, tensor_shape_text(L, m));
    cols = m->shape[1];
    mt = tensor_copy(L, m, F64);
    y = push_room(L, cols);
    work(L, work_times(steps_over(t), (uint64_t)cols));
    memcpy(shape, t->shape, sizeof shape);
    shape[t->rank - 1] = cols;
    out = tensor_view(tensor_push(L, t->dtype, t->rank, shape));
    for (rows_first(&r); r.w.left; walk_next(&r.w)) {
        row_read(&r);
        memset(y, 0, (size_t)cols * sizeof *y);
        for (int64_t k = 0; k < r.cols; k++)
            if (r.x[k] != 0) {
                add_scaled(y, (double *)tensor_data(mt) + k * cols, r.x[k],
                           cols);
                rows_did(&r, cols);
            }
        for (int64_t k = 0; k < cols; k++)
            view_set(&out, n++, y[k]);
    }
    return 1;
}

static int axis_arg(lua_State *L, const Tensor *t, const char *what, int last)
{
    lua_Integer k = luaL_checkinteger(L, 2);

    if (k < 1 || k > last)
        luaL_error(L, "%s: axis %I of a tensor of shape %s", what, k,
                   tensor_shape_text(L, t));
    return (int)k - 1;
}

/* t without axis k: its entry 0 there */
static Tensor without(const Tensor *t, int k)
{
    Tensor s = *t;
    size_t after = (size_t)(t->rank - k - 1);

    s.rank--;
    memmove(s.shape + k, t->shape + k + 1, after * sizeof *s.shape);
    memmove(s.stride + k, t->stride + k + 1, after * sizeof *s.stride);
    return s;
}

/* The weights at `arg`, one for each row of t, or NULL. */
static const Tensor *row_weights(lua_State *L, int arg, const Tensor *t)
{
    const Tensor *w = lua_isnoneornil(L, arg) ? NULL : tensor_check(L, arg);

    if (w && (w->rank != t->rank - 1
              || memcmp(w->shape, t->shape,
                        (size_t)w->rank * sizeof *w->shape)))
        luaL_error(L, "sum_over: weights of shape %s for the rows of shape "
                   "%s", tensor_shape_text(L, w), tensor_shape_text(L, t));
    return w;
}

/* t:sum_over(axis [, weights]): the sum along an axis that is not the last;
 * with weights, of each row times its weight. Along the last: of each row. */
static int t_sum_over(lua_State *L)
{
    const Tensor *t = tensor_check(L, 1);
    int k = axis_arg(L, t, "sum_over", t->rank);
    const Tensor *weights = row_weights(L, 3, t);
    Tensor s = without(t, k), ws;
    Rows r;
    Walk w;
    View out;
    double *sum;
    int64_t n = 0;

    if (k == t->rank - 1 && !weights) {
        lua_settop(L, 1);
        return per_row(L, "sum_over", total);
    } else if (k == t->rank - 1) {
        return luaL_error(L, "sum_over: weights are for rows; sum over "
                          "another axis than the last");
    }
    r = rows_begin(L, &s, "sum_over");
    sum = push_room(L, r.cols);
    work(L, steps_over(t));
    out = tensor_view(tensor_push(L, t->dtype, s.rank, s.shape));
    ws = weights ? without(weights, k) : s;
    for (rows_first(&r), w = walk(L, &ws); r.w.left; walk_next(&r.w)) {
        int64_t at = r.w.at;
        memset(sum, 0, (size_t)r.cols * sizeof *sum);
        for (int64_t i = 0; i < t->shape[k]; i++) {
            double x = 1;
            r.w.at = at + i * t->stride[k];
            row_read(&r);
            if (weights) {
                View v = tensor_view(weights);
                x = view_get(&v, w.at + i * weights->stride[k]);
            }
            add_scaled(sum, r.x, x, r.cols);
        }
        r.w.at = at;
        for (int64_t j = 0; j < r.cols; j++)
            view_set(&out, n++, sum[j]);
        if (weights)
            walk_next(&w);
    }
    return 1;
}

/* ---- views that repeat ---- */

/* Pushes a view of t with a new axis before axis k. */
static Tensor *push_with_axis(lua_State *L, const Tensor *t, int k,
                              int64_t size, int64_t stride)
{
    Tensor *v;
    size_t after = (size_t)(t->rank - k);

    if (t->rank == TENSOR_RANK)
        luaL_error(L, "a tensor has at most %d axes", TENSOR_RANK);
    v = tensor_alias(L, t);
    v->rank++;
    memmove(v->shape + k + 1, t->shape + k, after * sizeof *v->shape);
    memmove(v->stride + k + 1, t->stride + k, after * sizeof *v->stride);
    v->shape[k] = size;
    v->stride[k] = stride;
    tensor_bounded(L, v);
    return v;
}

/* t:expand(axis, n): a new axis there, along which t repeats. */
static int t_expand(lua_State *L)
{
    const Tensor *t = tensor_check(L, 1);
    int k = axis_arg(L, t, "expand", t->rank + 1);
    lua_Integer n = luaL_checkinteger(L, 3);

    if (n < 0)
        return luaL_error(L, "expand: %I times", n);
    push_with_axis(L, t, k, n, 0);
    return 1;
}

/* t:windows(axis, n, at): each entry of the axis becomes n of them, it and
 * those after it, along a new axis that ends up at place `at`. */
static int t_windows(lua_State *L)
{
    const Tensor *t = tensor_check(L, 1);
    int k = axis_arg(L, t, "windows", t->rank);
    lua_Integer n = luaL_checkinteger(L, 3), at = luaL_checkinteger(L, 4);
    Tensor *v;

    if (n < 1 || n > t->shape[k] || at < k + 2 || at > t->rank + 1)
        return luaL_error(L, "windows: %I entries of axis %d, to place %I, of "
                          "a tensor of shape %s", n, k + 1, at,
                          tensor_shape_text(L, t));
    v = push_with_axis(L, t, (int)at - 1, n, t->stride[k]);
    v->shape[k] -= n - 1;
    return 1;
}

void tensor_ops_open(lua_State *L)
{
    static const luaL_Reg methods[] = {
        { "norm", t_norm }, { "argmax", t_argmax },
        { "logsumexp", t_logsumexp }, { "gather", t_gather },
        { "unit", t_unit }, { "matmul", t_matmul },
        { "sum_over", t_sum_over }, { "expand", t_expand },
        { "windows", t_windows }, { NULL, NULL }
    };

    luaL_setfuncs(L, methods, 0);
}
