/* layer_product.c -- a layer's matrix products with weights: their axes as rows
 * and columns.
 */
#include "layer_run.h"

/* Rows of x times a matrix, for each entry of the axes that both keep. */
typedef struct Multiply {
    const LayerPart *p;
    Axes both, rows, over, cols;        /* of x and the weight; of x alone; what
                                           is summed; of the weight alone */
    Axes tokens;                        /* and rows, where they are one axis */
    int64_t nboth, nrows;               /* that are not */
} Multiply;

static int64_t size_of(const Lay *k, const Axes *l)
{
    int64_t n = 1;

    for (int i = 0; i < l->n; i++)
        n *= lay_extent(k, l->ax[i]);
    return n;
}

static Multiply multiply(const Lay *k, const LayerPart *p)
{
    const Array *x = &k->value[p->in[0]], *w = &k->value[p->in[1]];
    AxisSet xs = k->g->n[p->in[0]].axes, ws = k->g->n[p->in[1]].axes;
    Multiply m = { .p = p, .tokens = { 2, { AX_B, AX_T } } };

    m.both = axes_of(x, xs & ws & ~p->over);
    m.rows = axes_of(x, xs & ~ws);
    m.over = axes_of(x, p->over);
    m.cols = axes_of(w, ws & ~xs);
    m.nboth = size_of(k, &m.both);
    m.nrows = 1;
    if (m.nboth > 1)
        m.nrows = size_of(k, &m.rows);
    for (int i = 0; m.nboth == 1 && i < m.rows.n; i++)
        m.tokens.ax[m.tokens.n++] = m.rows.ax[i];
    return m;
}

/* A matrix for each entry of the batch and of the rows that are none. */
typedef struct Matrix {
    Array v;
    int64_t at, nr, nc, rs, cs, bs, rows;
    bool made;                          /* a copy that lies so */
} Matrix;

/* v seen so, if it lies so. */
static bool see_matrix(const Multiply *m, Matrix *x, const Axes *r,
                       const Axes *c)
{
    int64_t n;

    x->bs = x->rows = 0;
    bool ok = collapse(&x->v, r, &x->nr, &x->rs)
           && collapse(&x->v, c, &x->nc, &x->cs)
           && (m->nboth == 1 || collapse(&x->v, &m->both, &n, &x->bs));
    if (ok && m->nrows > 1 && array_find(&x->v, m->rows.ax[0]) >= 0)
        ok = collapse(&x->v, &m->rows, &n, &x->rows);
    return ok;
}

/* The axes [tokens, both, rows, last] of x or y; [both, first, last] of a
 * weight. */
static Array row_array(const Lay *k, const Multiply *m, const Axes *last)
{
    Array v = { 0 };

    array_add(k, &v, AX_B);
    array_add(k, &v, AX_T);
    array_add_list(k, &v, &m->both);
    array_add_list(k, &v, &m->rows);
    array_add_list(k, &v, last);
    return v;
}

static Array weight_array(const Lay *k, const Multiply *m, const Axes *first,
                          const Axes *last)
{
    Array v = { 0 };

    array_add_list(k, &v, &m->both);
    array_add_list(k, &v, first);
    array_add_list(k, &v, last);
    return v;
}

/* v as a factor, a copy `like` that if it must be. */
static Matrix factor(Lay *k, const Multiply *m, const Array *v, Array like,
                     const Axes *r, const Axes *c, bool second)
{
    Matrix x = { .v = *v };

    if (see_matrix(m, &x, r, c)
        && k->realm->takes(k, &x.v, x.rs, x.cs, second))
        return x;
    x.v = like;
    x.made = true;
    make_room(k, &x.v, k->realm->type(k, 0), false);
    k->realm->move(k, &x.v, v, false);
    see_matrix(m, &x, r, c);
    return x;
}

static void free_factor(Lay *k, Matrix *x)
{
    if (x->made)
        drop_array(k, &x->v);
}

static void do_product(Lay *k, const Multiply *m, const Matrix *a,
                       const Matrix *b, const Matrix *y, bool add)
{
    Matmul p = { .m = a->nr, .n = b->nc, .k = a->nc, .batch = m->nboth,
                 .a = &a->v, .b = &b->v, .c = &y->v, .ars = a->rs,
                 .acs = a->cs, .abs = a->bs, .brs = b->rs, .bcs = b->cs,
                 .bbs = b->bs, .crs = y->rs, .cbs = y->bs };

    for (int64_t i = 0; i < m->nrows; i++) {
        p.a0 = i * a->rows;
        p.b0 = i * b->rows;
        p.c0 = i * y->rows;
        p.add = add || (i && !y->rows);
        k->realm->product(k, &p);
    }
}

/* Can the product go there? */
static bool is_result(Lay *k, const Multiply *m, Matrix *y, const Axes *r,
                      const Axes *c)
{
    return see_matrix(m, y, r, c) && (y->cs == 1 || y->nc == 1)
        && k->realm->gives(k, &y->v);
}

/* y, where the caller wants it or in a place of its own. */
void run_product(Lay *k, const LayerPart *p)
{
    Multiply m = multiply(k, p);
    bool keep = k->keep && k->readers[p->y];
    if (k->left) {
        k->value[p->y] = row_array(k, &m, &m.cols);
        make_room(k, &k->value[p->y], k->realm->type(k, p->y), keep);
        return;
    }
    Matrix a = factor(k, &m, &k->value[p->in[0]], row_array(k, &m, &m.over),
                      &m.tokens, &m.over, false);
    Matrix b = factor(k, &m, &k->value[p->in[1]],
                      weight_array(k, &m, &m.over, &m.cols), &m.over, &m.cols,
                      true);
    Matrix y = { .v = k->value[p->y] };

    if (!y.v.data || !is_result(k, &m, &y, &m.tokens, &m.cols)) {
        y.v = row_array(k, &m, &m.cols);
        make_room(k, &y.v, k->realm->type(k, p->y), keep);
        see_matrix(&m, &y, &m.tokens, &m.cols);
    }
    do_product(k, &m, &a, &b, &y, false);
    free_factor(k, &b);
    free_factor(k, &a);
    k->value[p->y] = y.v;
}

/* Adds a b to r's gradient. */
static void add_product(Lay *k, const Multiply *m, Ref r, const Matrix *a,
                        const Matrix *b, Array like, const Axes *rows,
                        const Axes *cols)
{
    Matrix y = { .v = k->grad[r] };
    bool have = y.v.data != NULL;

    if (have && is_result(k, m, &y, rows, cols)) {
        do_product(k, m, a, b, &y, true);
        return;
    }
    if (have || !direct_grad(k, r, &y.v) || !is_result(k, m, &y, rows, cols)) {
        y.v = like;
        make_room(k, &y.v, k->realm->type(k, r), false);
        see_matrix(m, &y, rows, cols);
    }
    do_product(k, m, a, b, &y, false);
    add_grad(k, r, &y.v);
}

/* dx = dy W^T */
static void back_to_rows(Lay *k, const Multiply *m)
{
    const LayerPart *p = m->p;

    if (!k->wanted[p->in[0]])
        return;
    Matrix dy = factor(k, m, &k->grad[p->y], row_array(k, m, &m->cols),
                       &m->tokens, &m->cols, false);
    Matrix w = factor(k, m, &k->value[p->in[1]],
                      weight_array(k, m, &m->cols, &m->over), &m->cols,
                      &m->over, true);
    add_product(k, m, p->in[0], &dy, &w, row_array(k, m, &m->over),
                &m->tokens, &m->over);
    free_factor(k, &w);
    free_factor(k, &dy);
}

/* dW = x^T dy, over all tokens and rows. */
static void back_to_weight(Lay *k, const Multiply *m)
{
    const LayerPart *p = m->p;

    if (!k->wanted[p->in[1]])
        return;
    Matrix x = factor(k, m, &k->value[p->in[0]], row_array(k, m, &m->over),
                      &m->over, &m->tokens, false);
    Matrix dy = factor(k, m, &k->grad[p->y], row_array(k, m, &m->cols),
                       &m->tokens, &m->cols, true);
    add_product(k, m, p->in[1], &x, &dy,
                weight_array(k, m, &m->over, &m->cols), &m->over, &m->cols);
    free_factor(k, &dy);
    free_factor(k, &x);
}

void back_product(Lay *k, const LayerPart *p)
{
    Multiply m = multiply(k, p);

    back_to_rows(k, &m);
    back_to_weight(k, &m);
}
