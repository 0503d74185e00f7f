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

static void do_product_onto(Lay *k, const Multiply *m, const Matrix *a,
                            const Matrix *b, const Matrix *y,
                            const Matrix *plus, bool add)
{
    Matmul p = { .m = a->nr, .n = b->nc, .k = a->nc, .batch = m->nboth,
                 .a = &a->v, .b = &b->v, .c = &y->v, .ars = a->rs,
                 .acs = a->cs, .abs = a->bs, .brs = b->rs, .bcs = b->cs,
                 .bbs = b->bs, .crs = y->rs, .cbs = y->bs };

    if (plus) {
        p.plus = &plus->v;
        p.prs = plus->rs;
        p.pbs = plus->bs;
    }
    for (int64_t i = 0; i < m->nrows; i++) {
        p.a0 = i * a->rows;
        p.b0 = i * b->rows;
        p.c0 = i * y->rows;
        p.plus0 = plus ? i * plus->rows : 0;
        p.add = add || (i && !y->rows);
        k->realm->product(k, &p);
    }
}

static void do_product(Lay *k, const Multiply *m, const Matrix *a,
                       const Matrix *b, const Matrix *y, bool add)
{
    do_product_onto(k, m, a, b, y, NULL, add);
}

/* Can the product go there? */
static bool is_result(Lay *k, const Multiply *m, Matrix *y, const Axes *r,
                      const Axes *c)
{
    return see_matrix(m, y, r, c) && (y->cs == 1 || y->nc == 1)
        && k->realm->gives(k, &y->v);
}

Array product_array(const Lay *k, const LayerPart *p)
{
    Multiply m = multiply(k, p);

    return row_array(k, &m, &m.cols);
}

/* y, where the caller wants it or in a place of its own. */
void run_product(Lay *k, const LayerPart *p)
{
    Multiply m = multiply(k, p);
    bool keep = k->keep && k->readers[p->y] && !k->anew[p->y];
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

bool run_product_onto(Lay *k, const LayerPart *p, const Array *plus,
                      const Array *to)
{
    Multiply m = multiply(k, p);
    Matrix y = { .v = *to }, z = { .v = *plus };

    if (plus->dtype != to->dtype
        || !is_result(k, &m, &y, &m.tokens, &m.cols)
        || !is_result(k, &m, &z, &m.tokens, &m.cols))
        return false;
    Matrix a = factor(k, &m, &k->value[p->in[0]], row_array(k, &m, &m.over),
                      &m.tokens, &m.over, false);
    Matrix b = factor(k, &m, &k->value[p->in[1]],
                      weight_array(k, &m, &m.over, &m.cols), &m.over, &m.cols,
                      true);
    do_product_onto(k, &m, &a, &b, &y, &z, false);
    free_factor(k, &b);
    free_factor(k, &a);
    return true;
}

static double entries_of(const Lay *k, AxisSet s)
{
    double n = 1;

    for (; s; s &= s - 1)
        n *= k->b->call.size[lowest(s)];
    return n;
}

bool product_widens(const Lay *k, const LayerPart *p)
{
    const Machine *m = k->p->machine;
    AxisSet xs = k->g->n[p->in[0]].axes, ws = k->g->n[p->in[1]].axes;
    double tokens = (double)k->b->B * (double)k->b->T;
    double x = entries_of(k, xs), y = entries_of(k, k->g->n[p->y].axes);
    double bytes = (tokens * (x + y) + entries_of(k, ws))
                 * dtype_size(k->realm->type(k, 0));

    return x < y && 2 * tokens * entries_of(k, xs | ws) / m->matrix
                    <= bytes / m->bandwidth;
}

static Matrix turned(const Matrix *x)
{
    Matrix t = *x;

    t.nr = x->nc;
    t.nc = x->nr;
    t.rs = x->cs;
    t.cs = x->rs;
    return t;
}

/* y = or += a b, if it can go there; by columns as (a b)^T = b^T a^T. */
static bool product_into(Lay *k, const Multiply *m, const Matrix *a,
                         const Matrix *b, Matrix *y, const Axes *rows,
                         const Axes *cols, bool add)
{
    if (is_result(k, m, y, rows, cols)) {
        do_product(k, m, a, b, y, add);
        return true;
    }
    Matrix left = turned(b), right = turned(a);
    if (!is_result(k, m, y, cols, rows)
        || !k->realm->takes(k, &right.v, right.rs, right.cs, true))
        return false;
    do_product(k, m, &left, &right, y, add);
    return true;
}

/* Adds a b to r's gradient. */
static void add_product(Lay *k, const Multiply *m, Ref r, const Matrix *a,
                        const Matrix *b, Array like, const Axes *rows,
                        const Axes *cols)
{
    Matrix y = { .v = k->grad[r] };
    bool have = y.v.data != NULL;

    if (have && product_into(k, m, a, b, &y, rows, cols, true))
        return;
    if (have || !(direct_grad(k, r, &y.v) || joint_grad(k, r, &y.v))
        || !product_into(k, m, a, b, &y, rows, cols, false)) {
        y.v = like;
        make_room(k, &y.v, k->realm->type(k, r), false);
        see_matrix(m, &y, rows, cols);
        do_product(k, m, a, b, &y, false);
    }
    add_grad(k, r, &y.v);
}

/* dx = dy W^T */
static void back_to_rows(Lay *k, const Multiply *m, const Array *grad,
                         const Array *weight)
{
    Matrix dy = factor(k, m, grad, row_array(k, m, &m->cols), &m->tokens,
                       &m->cols, false);
    Matrix w = factor(k, m, weight, weight_array(k, m, &m->cols, &m->over),
                      &m->cols, &m->over, true);
    add_product(k, m, m->p->in[0], &dy, &w, row_array(k, m, &m->over),
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

/* a b = or += to, by way of a copy where it cannot go there. */
static void put_product(Lay *k, const Multiply *m, const Matrix *a,
                        const Matrix *b, const Array *to, Array like,
                        const Axes *rows, const Axes *cols, bool add)
{
    Matrix y = { .v = *to };

    if (product_into(k, m, a, b, &y, rows, cols, add))
        return;
    y.v = like;
    make_room(k, &y.v, F32, false);
    see_matrix(m, &y, rows, cols);
    do_product(k, m, a, b, &y, false);
    k->realm->move(k, to, &y.v, add);
    drop_array(k, &y.v);
}

void back_product_into(Lay *k, const LayerPart *p, const Array *to, bool add)
{
    Multiply m = multiply(k, p);
    Matrix dy = factor(k, &m, &k->grad[p->y], row_array(k, &m, &m.cols),
                       &m.tokens, &m.cols, false);
    Matrix w = factor(k, &m, &k->value[p->in[1]],
                      weight_array(k, &m, &m.cols, &m.over), &m.cols, &m.over,
                      true);

    put_product(k, &m, &dy, &w, to, row_array(k, &m, &m.over), &m.tokens,
                &m.over, add);
    free_factor(k, &w);
    free_factor(k, &dy);
}

void back_weight_into(Lay *k, const LayerPart *p, const Array *to, bool add)
{
    Multiply m = multiply(k, p);
    Matrix x = factor(k, &m, &k->value[p->in[0]], row_array(k, &m, &m.over),
                      &m.over, &m.tokens, false);
    Matrix dy = factor(k, &m, &k->grad[p->y], row_array(k, &m, &m.cols),
                       &m.tokens, &m.cols, true);

    put_product(k, &m, &x, &dy, to, weight_array(k, &m, &m.over, &m.cols),
                &m.over, &m.cols, add);
    free_factor(k, &dy);
    free_factor(k, &x);
}

void back_product(Lay *k, const LayerPart *p)
{
    Multiply m = multiply(k, p);

    if (k->wanted[p->in[0]])
        back_to_rows(k, &m, &k->grad[p->y], &k->value[p->in[1]]);
}

void back_weight(Lay *k, const LayerPart *p)
{
    Multiply m = multiply(k, p);

    back_to_weight(k, &m);
}

/* ---- several as one ---- */

static const LayerPart *part_of(const Lay *k, const Joint *j, int i)
{
    return &k->p->parts->part[j->part[i]];
}

/* Its first part's, with so many columns. */
static Multiply multiply_columns(Lay *k, const Joint *j, int64_t columns)
{
    Multiply m = multiply(k, part_of(k, j, 0));

    k->columns = columns;
    m.cols = (Axes){ 1, { AX_COLUMNS } };
    return m;
}

static Multiply multiply_all(Lay *k, const Joint *j)
{
    return multiply_columns(k, j, j->from[j->n]);
}

/* `all`, from one column on. */
static Array skip_columns(const Array *all, int64_t from, int64_t n)
{
    Array v = *all;
    int last = array_find(all, AX_COLUMNS);

    v.data = (char *)all->data
           + from * all->st[last] * (int64_t)dtype_size(all->dtype);
    v.n[last] = n;
    v.own = false;
    return v;
}

/* What part i has of `all`, `like` that; the first of the columns is `first`'s
 * first. */
static Array columns_of(const Joint *j, int i, int first, const Array *all,
                        Array like)
{
    int last = array_find(all, AX_COLUMNS);
    int64_t n = all->st[last];

    like.data = (char *)all->data + (j->from[i] - j->from[first]) * n
              * (int64_t)dtype_size(all->dtype);
    like.dtype = all->dtype;
    like.own = false;
    for (int d = like.rank - 1; d >= 0; d--) {
        int at = array_find(all, like.ax[d]);
        like.st[d] = at >= 0 ? all->st[at] : n;
        n *= at >= 0 ? 1 : like.n[d];
    }
    return like;
}

/* The one matrix, of `m`'s shape, that begins where w, its first part, does. */
static Array matrix_of(Lay *k, const Joint *j, const Multiply *m,
                       const Array *w)
{
    Array all = weight_array(k, m, &m->over, &m->cols);
    Multiply first = multiply(k, part_of(k, j, 0));
    int64_t n;

    for (int d = 0; d + 1 < all.rank; d++)
        all.st[d] = w->st[array_find(w, all.ax[d])];
    collapse(w, &first.cols, &n, &all.st[all.rank - 1]);
    all.data = w->data;
    all.dtype = w->dtype;
    return all;
}

/* The weights as one: as they lie, or a copy, in `room` for one; data NULL:
 * neither. */
static Array joint_weight(Lay *k, const Joint *j, const Multiply *m,
                          Array *room)
{
    Array all = weight_array(k, m, &m->over, &m->cols), w[MAX_JOINT];
    Array to[MAX_JOINT];
    const Array *from[MAX_JOINT];

    *room = all;
    if (joint_copies(k, j))
        make_room(k, room, k->realm->type(k, 0), false);
    joint_weights(k, j, w);
    if (w->dtype == k->realm->type(k, 0) && lie_beside(k, j, w))
        return matrix_of(k, j, m, w);
    all = *room;
    for (int i = 0; all.data && i < j->n; i++) {
        const LayerPart *p = part_of(k, j, i);
        Multiply own = multiply(k, p);
        to[i] = columns_of(j, i, 0, &all, weight_array(k, &own, &own.over,
                                                       &own.cols));
        from[i] = &k->value[p->in[1]];
    }
    if (all.data)
        k->realm->moves(k, to, from, j->n);
    return all;
}

/* y = x times the weight, where y is. */
static void multiply_into(Lay *k, const Multiply *m, const Array *weight,
                          const Array *to)
{
    Matrix y = { .v = *to };
    Matrix a = factor(k, m, &k->value[m->p->in[0]],
                      row_array(k, m, &m->over), &m->tokens, &m->over, false);
    Matrix b = factor(k, m, weight, weight_array(k, m, &m->over, &m->cols),
                      &m->over, &m->cols, true);

    see_matrix(m, &y, &m->tokens, &m->cols);
    do_product(k, m, &a, &b, &y, false);
    free_factor(k, &b);
    free_factor(k, &a);
}

/* Room for the results of parts `from` to `end`, beside one another. */
static Array make_results(Lay *k, const Joint *j, int from, int end,
                          Shelf *shelf)
{
    Multiply m = multiply_columns(k, j, j->from[end] - j->from[from]);
    Array y = row_array(k, &m, &m.cols);

    make_room(k, &y, k->realm->type(k, part_of(k, j, from)->y), k->keep);
    *shelf = (Shelf){ y.data, end - from };
    for (int i = from; i < end; i++) {
        Multiply own = multiply(k, part_of(k, j, i));
        Array *v = &k->value[own.p->y];
        *v = columns_of(j, i, from, &y, row_array(k, &own, &own.cols));
        v->shelf = shelf;
    }
    return y;
}

/* The weights as one where they are not copied, for a call that is counted:
 * they may lie beside one another or not. */
static Array foreseen_weight(Lay *k, const Joint *j, const Multiply *m)
{
    Array w[MAX_JOINT];

    joint_weights(k, j, w);
    return !k->dry || w->dtype != k->realm->type(k, 0)
        || !may_lie_beside(k, j, w) ? (Array){ 0 } : matrix_of(k, j, m, w);
}

/* With the weights as one, or (data NULL) one after another. */
static void multiply_joint(Lay *k, const Joint *j, const Array *all,
                           const Array *y)
{
    const int end[] = { j->narrow, j->n };

    for (int i = 0, from = 0; all->data && i < 2; from = end[i++]) {
        int64_t n = j->from[end[i]] - j->from[from];
        if (!n)
            continue;
        Multiply some = multiply_columns(k, j, n);
        Array w = skip_columns(all, j->from[from], n);
        multiply_into(k, &some, &w, &y[i]);
    }
    for (int i = 0; !all->data && i < j->n; i++) {
        Multiply own = multiply(k, part_of(k, j, i));
        multiply_into(k, &own, &k->value[own.p->in[1]], &k->value[own.p->y]);
    }
}

/* The results of those that are wide lie by themselves. */
void run_joint(Lay *k, const Joint *j)
{
    const int end[] = { j->narrow, j->n };
    Array y[2], room;

    for (int i = 0, from = 0; i < 2; from = end[i++])
        if (end[i] > from)
            y[i] = make_results(k, j, from, end[i],
                                &k->shelf[j - k->p->joints->joint][i]);
    if (k->left)
        return;
    Multiply m = multiply_all(k, j);
    Array all = joint_weight(k, j, &m, &room);
    multiply_joint(k, j, &all, y);
    Array other = foreseen_weight(k, j, &m);
    if (other.data)
        multiply_joint(k, j, all.data == other.data ? &(Array){ 0 } : &other,
                       y);
    drop_array(k, &room);
}

/* In the shelf's memory, row-major. */
static void lie_in(Array *v, Shelf *shelf, DType d)
{
    int64_t n = 1;

    for (int i = v->rank; i-- > 0; n *= v->n[i])
        v->st[i] = n;
    v->dtype = d;
    v->data = shelf->at;
    v->shelf = shelf;
    shelf->live++;
}

/* The place of part i's dy beside the others', as factors are; over the
 * results, where these are read no more. */
static Array joint_dy(Lay *k, const Joint *j, int i)
{
    int at = (int)(j - k->p->joints->joint);
    Array *all = &k->dy[at];
    Multiply own = multiply(k, part_of(k, j, i));

    if (!all->data) {
        Multiply m = multiply_all(k, j);
        *all = row_array(k, &m, &m.cols);
        if (joint_lies_over(k, j))
            lie_in(all, &k->shelf[at][0], k->realm->type(k, 0));
        else
            make_room(k, all, k->realm->type(k, 0), false);
    }
    return columns_of(j, i, 0, all, row_array(k, &own, &own.cols));
}

bool joint_grad(Lay *k, Ref r, Array *to)
{
    for (int i = 0; i < k->p->parts->n; i++) {
        const Joint *j = joint_of(k, i);
        int at = 0;
        if (!j || k->p->parts->part[i].y != r || k->grad[r].data
            || k->realm->type(k, r) != k->realm->type(k, 0))
            continue;
        while (j->part[at] != i)
            at++;
        if (is_moved(k, j, at))
            return false;
        *to = joint_dy(k, j, at);
        return true;
    }
    return false;
}

/* Each dy in its place; false: there is none. */
static bool gather_dy(Lay *k, const Joint *j)
{
    Array to[MAX_JOINT], some[MAX_JOINT];
    const Array *from[MAX_JOINT];
    bool any = false;
    int n = 0;

    for (int i = 0; i < j->n; i++)
        any = any || k->grad[part_of(k, j, i)->y].data;
    for (int i = 0; any && i < j->n; i++) {
        const Array *g = &k->grad[part_of(k, j, i)->y];
        to[i] = joint_dy(k, j, i);
        if (!g->data) {
            k->realm->zero(k, &to[i]);
        } else if (g->data != to[i].data) {
            some[n] = to[i];
            from[n++] = g;
        }
    }
    if (n)
        k->realm->moves(k, some, from, n);
    for (int i = 0; any && i < j->n; i++) {
        drop_array(k, &k->grad[part_of(k, j, i)->y]);
        k->grad[part_of(k, j, i)->y] = to[i];
    }
    return any;
}

/* Where the gradient of each weight is to be, or is added to: one matrix, if
 * they lie so. */
static bool one_gradient(Lay *k, const Joint *j, Array *w, bool *add)
{
    for (int i = 0; i < j->n; i++) {
        Ref r = part_of(k, j, i)->in[1];
        bool there = k->grad[r].data != NULL;
        if (!k->wanted[r] || (i && there != *add)
            || (!there && !direct_grad(k, r, &w[i])))
            return false;
        if (there)
            w[i] = k->grad[r];
        *add = there;
    }
    return lie_beside(k, j, w) || (k->dry && may_lie_beside(k, j, w));
}

/* All of the weights' gradients, x^T dy, as one product; false: it cannot be.
 */
static bool back_to_weights(Lay *k, const Joint *j, const Multiply *m,
                            const Array *grad)
{
    Array w[MAX_JOINT];
    bool add = false;

    if (!one_gradient(k, j, w, &add))
        return false;
    Matrix x = factor(k, m, &k->value[m->p->in[0]], row_array(k, m, &m->over),
                      &m->over, &m->tokens, false);
    Matrix dy = factor(k, m, grad, row_array(k, m, &m->cols), &m->tokens,
                       &m->cols, true);
    Matrix y = { .v = matrix_of(k, j, m, w) };
    bool done = product_into(k, m, &x, &dy, &y, &m->over, &m->cols, add);
    free_factor(k, &dy);
    free_factor(k, &x);
    for (int i = 0; done && !add && i < j->n; i++)
        add_grad(k, part_of(k, j, i)->in[1], &w[i]);
    return done;
}

void back_joint(Lay *k, const Joint *j)
{
    Array *dy = &k->dy[j - k->p->joints->joint];

    if (!gather_dy(k, j))
        return;
    Multiply m = multiply_all(k, j);
    bool whole = false;
    if (k->wanted[m.p->in[0]]) {
        Array room, all = joint_weight(k, j, &m, &room);
        Array other = foreseen_weight(k, j, &m);
        whole = all.data != NULL;
        if (whole)
            back_to_rows(k, &m, dy, &all);
        if (other.data && other.data != all.data)
            back_to_rows(k, &m, dy, &other);
        whole = whole && (room.data || !other.data);
        drop_array(k, &room);
    }
    for (int i = 0; !whole && k->wanted[m.p->in[0]] && i < j->n; i++) {
        Multiply own = multiply(k, part_of(k, j, i));
        back_to_rows(k, &own, &k->grad[own.p->y], &k->value[own.p->in[1]]);
    }
}

void back_weights(Lay *k, const Joint *j)
{
    Array *dy = &k->dy[j - k->p->joints->joint];
    Multiply m = multiply_all(k, j);

    if (!dy->data)
        return;
    bool whole = back_to_weights(k, j, &m, dy);
    for (int i = 0; i < j->n; i++) {
        Multiply own = multiply(k, part_of(k, j, i));
        if (!whole || k->dry)           /* as they may not lie so */
            back_to_weight(k, &own);
        k->grad[own.p->y].data = NULL;
    }
    drop_array(k, dy);
}
