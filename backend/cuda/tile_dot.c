/* tile_dot.c -- products of matrices, on the tensor cores; those that are too
 * small for them are tile_sum.c's.
 */
#include "tile.h"

#include <string.h>

enum { LEAST = 8, BLOCK = 16 };

/* Consecutive axes that an operand runs through with one stride. */
typedef struct Run { AxisSet axes; int32_t size, st[2]; bool tokens; } Run;

Ref operand_with(const Tiles *t, Ref r, int ax)
{
    for (int i = 0; i < 4; i++)
        if (t->g->n[t->g->n[r].a[i]].axes & AXIS(ax))
            return t->g->n[r].a[i];
    return r;
}

/* The longest run in s, for up to two operands. */
static Run longest_run(const Tiles *t, Ref r, AxisSet s, const Spot *p,
                       const Spot *q)
{
    Run best = { .size = 1 }, run = { .size = 0 };

    for (; s; s &= s - 1) {
        int ax = lowest(s);
        int32_t ext = tile_extent(t, operand_with(t, r, ax), ax);
        bool goes_on = run.size && !is_token_axis(ax)
                    && run.st[0] == p->st[ax] * ext
                    && run.st[1] == q->st[ax] * ext;
        if (!goes_on)
            run = (Run){ .size = 1, .tokens = is_token_axis(ax) };
        run.axes |= AXIS(ax);
        run.size *= ext;
        run.st[0] = p->st[ax];
        run.st[1] = q->st[ax];
        if (run.size > best.size || !best.axes)
            best = run;
    }
    return best;
}

static void run_size_text(const Tiles *t, Buf *b, const Run *run)
{
    if (!run->tokens)
        buf_printf(b, "%d", (int)run->size);
    else if (run->size == t->chunk)
        buf_printf(b, "n");
    else
        buf_printf(b, "n * %d", (int)(run->size / t->chunk));
}

/* ---- on the tensor cores ---- */

typedef struct Product {
    Ref a, b;
    Spot at_a, at_b;
    AxisSet loops;                      /* loops around it */
    Run m, n, k;                        /* strides: of a and of b */
    int mt, nt;                         /* fragments of a warp at a time */
    bool rows, cols;                    /* m and n fill such pieces */
} Product;

/* Neighbours in memory are to be neighbours of a row. */
static bool lies_across(const Tiles *t, Ref r, const Product *p)
{
    AxisSet axes = t->g->n[r].axes;

    return axes && p->m.axes & AXIS(inner_axis(axes, lies_transposed(t, r)));
}

/* The transposed product. */
static Product transposed(const Product *p)
{
    Product q = *p;

    q.a = p->b;
    q.b = p->a;
    q.at_a = p->at_b;
    q.at_b = p->at_a;
    q.m = p->n;
    q.n = p->m;
    q.k.st[0] = p->k.st[1];
    q.k.st[1] = p->k.st[0];
    return q;
}

static bool find_product(Tiles *t, Ref r, Product *p)
{
    const Node *n = &t->g->n[r];
    double x;

    if (n->op != OP_dot || constant_of(t, n->a[0], &x)
        || constant_of(t, n->a[1], &x))
        return false;
    AxisSet a = t->g->n[n->a[0]].axes, b = t->g->n[n->a[1]].axes;
    const Spot *sa = &p->at_a, *sb = &p->at_b;
    bool rounds = rounds_factors(t, r) && n->axes;
    p->a = n->a[0];
    p->b = n->a[1];
    p->at_a = rounds ? factor_spot(t, p->a) : t->spot[p->a];
    p->at_b = rounds ? factor_spot(t, p->b) : t->spot[p->b];
    p->m = longest_run(t, r, n->axes & a & ~b, sa, sa);
    p->n = longest_run(t, r, n->axes & b & ~a, sb, sb);
    p->k = longest_run(t, r, n->over, sa, sb);
    p->loops = n->axes & ~p->m.axes & ~p->n.axes;
    if (lies_across(t, r, p))
        *p = transposed(p);
    return p->k.axes == n->over && p->m.size >= LEAST && p->n.size >= LEAST
        && p->k.size >= LEAST;
}

static const char *precision(const Tiles *t, Ref r)
{
    if (t->o->tile == F32 || t->precision[r] == 2)
        return "TF32X3";
    return t->o->tile == F16 || t->precision[r] ? "TF32" : "BF16";
}

/* Fragments a warp has at a time: as many as leave no warp idle; fewer (wide)
 * of tf32, whose factors take twice the registers, and of two products at once,
 * whose sums do. */
static void find_piece(const Tiles *t, Product *p, bool wide)
{
    int rows = (p->m.size + 15) / 16, cols = (p->n.size + 7) / 8;
    int each = rows * cols / (t->out->threads / WARP_SIZE);
    int most = wide ? 4 : 8;

    p->mt = rows % 2 == 0 && each >= 4 ? 2 : 1;
    p->nt = 1;
    while (p->nt < most && p->nt * p->mt * 2 <= each
           && cols % (p->nt * 2) == 0)
        p->nt *= 2;
    p->rows = p->m.size % (16 * p->mt) == 0;
    p->cols = p->n.size % (8 * p->nt) == 0;
}

/* Whether two neighbours of a row are that of one axis, everywhere. */
static bool by_pairs(const Tiles *t, Ref r, const Product *p)
{
    int ax = highest(p->n.axes);

    return p->rows && p->cols
        && tile_extent(t, operand_with(t, r, ax), ax) % 2 == 0;
}

/* What the sum is over as a rule, where its steps are few and short. */
static int mostly(const Tiles *t, Ref r, const Product *p)
{
    enum { MOST = 128 };

    return !strcmp(precision(t, r), "BF16") && p->k.size % 16 == 0
        && p->k.size <= MOST ? p->k.size : 0;
}

/* How many neighbours can be read as one. */
static void as_one_text(const Tiles *t, Buf *b, const Spot *s, int32_t rs,
                        int32_t columns, AxisSet axes)
{
    int32_t along = columns == 1 ? rs : rs == 1 ? columns : 1;
    int32_t all = along | s->at | s->tail;

    for (; axes; axes &= axes - 1)
        all |= s->st[lowest(axes)];
    if (t->tile[s->tile].type == BF16 && all % 8 == 0)
        buf_printf(b, "SHARED%d ? 8 : 2", s->tile);
    else
        buf_printf(b, columns == 1 && all % 2 == 0 ? "2" : "1");
}

static void matrix_text(Tiles *t, Act *a, Buf *b, Ref r, const Spot *s,
                        int32_t rs, int32_t columns, AxisSet loops)
{
    AxisSet axes = loops & t->g->n[r].axes;

    act_uses(t, a, s->tile, false);
    buf_printf(b, "matrix<%d, %d, ", (int)rs, (int)columns);
    as_one_text(t, b, s, rs, columns, axes);
    buf_printf(b, ">(t%d + ", s->tile);
    index_text(b, s, axes, -1, NULL);
    buf_printf(b, ")");
}

/* The coordinates of a run's axes from its number. */
static void run_coords(const Tiles *t, Buf *b, Ref r, const Run *run,
                       const char *x)
{
    if (run->axes)
        coords_text(t, b, x, r, run->axes, "return");
}

static void loops_open(const Tiles *t, Buf *b, Ref r, AxisSet loops)
{
    for (; loops; loops &= loops - 1) {
        int ax = lowest(loops);
        const char *x = axis_coord(ax);
        if (is_token_axis(ax))
            buf_printf(b, "for (int %s = 0; %s < n; %s++) {\n", x, x, x);
        else
            buf_printf(b, "for (int %s = 0; %s < %d; %s++) {\n", x, x,
                       (int)tile_extent(t, operand_with(t, r, ax), ax), x);
    }
}

static void loops_close(Buf *b, AxisSet loops)
{
    for (; loops; loops &= loops - 1)
        buf_printf(b, "}\n");
}

/* Tiles have room for whole chunks: rows behind the last token are computed
 * with the others, and nobody reads them. */
static void whole_text(const Tiles *t, Buf *b, const Run *run, bool whole)
{
    if (whole)
        buf_printf(b, "%d", (int)run->size);
    else
        run_size_text(t, b, run);
}

static const char *truth(bool x)
{
    return x ? "true" : "false";
}

static void need_all(Tiles *t, Ref r)
{
    for (int i = 0; i < 4; i++)
        need(t, t->g->n[r].a[i]);
}

/* Whether the product's sums come in pairs of what bf16 multiplies. */
static bool is_plain(const Tiles *t, Ref r, const Product *p)
{
    return !p->loops && by_pairs(t, r, p) && !strcmp(precision(t, r), "BF16");
}

/* Another product of the same shape, whose factors are at hand, and which what
 * goes on from r needs, too: computed beside it; or 0. */
static Ref find_partner(Tiles *t, Ref r, const Product *p, Product *q)
{
    const Graph *g = t->g;

    for (Ref u = 1; u < g->len && is_plain(t, r, p); u++) {
        if (u == r || !t->has[u] || t->done[u] || t->busy[u]
            || g->n[u].op != OP_dot || g->n[u].axes != g->n[r].axes
            || t->deferred[u] > t->deferred[r] || t->pre[u] != t->pre[r]
            || !at_hand(t, g->n[u].a[0]) || !at_hand(t, g->n[u].a[1])
            || !chain_joins(t, r, u))
            continue;
        need_all(t, u);
        if (!find_product(t, u, q))
            continue;
        find_piece(t, q, t->precision[u]);
        if (is_plain(t, u, q) && q->m.axes == p->m.axes
            && q->m.size == p->m.size && q->n.size == p->n.size)
            return u;
    }
    return 0;
}

static void term_text(Tiles *t, Act *a, Buf *b, Ref r, const Product *p)
{
    buf_printf(b, ",\nterm<%d, %s>(", mostly(t, r, p),
               truth(!p->k.tokens && p->k.size % 16 == 0));
    matrix_text(t, a, b, p->a, &p->at_a, p->m.st[0], p->k.st[0], 0);
    buf_printf(b, ",\n");
    matrix_text(t, a, b, p->b, &p->at_b, p->n.st[0], p->k.st[1], 0);
    buf_printf(b, ", ");
    run_size_text(t, b, &p->k);
    buf_printf(b, ")");
}

static void emit_two(Tiles *t, Ref r, const Product *p, Ref u,
                     const Product *q)
{
    Chain k;

    t->busy[u] = 1;
    chain_after(t, &k, r, u);
    t->busy[u] = 0;
    k.pairs = true;
    k.along = highest(p->n.axes);
    Act *a = act_begin(t, r);
    Buf *b = &a->text;
    buf_printf(b, "two_products<%d, %d>(%d, %d", p->mt, p->nt,
               (int)p->m.size, (int)p->n.size);
    term_text(t, a, b, r, p);
    term_text(t, a, b, u, q);
    buf_printf(b, ",\n[&](int row, int col, Pair x, Pair z) {\n");
    run_coords(t, b, r, &p->m, "row");
    run_coords(t, b, r, &p->n, "col");
    chain_body(t, a, b, &k);
    buf_printf(b, "});\n");
    chain_done(t, &k);
}

/* The product under the name that all who read it have for its tokens: a view,
 * of which nothing else is seen; or r. */
static Ref shown_as(const Tiles *t, Ref r, const Product *p)
{
    const Graph *g = t->g;
    Ref view = 0;

    for (Ref u = r + 1; u < g->len; u++)
        for (int i = 0; i < 4; i++) {
            if (!t->has[u] || g->n[u].a[i] != r)
                continue;
            if (view || (g->n[u].op != OP_row && g->n[u].op != OP_col))
                return r;
            view = u;
        }
    AxisSet tokens = AXIS(AX_I) | AXIS(AX_J);
    bool plain = view && !p->loops && !t->kept[r] && !t->factor[r]
              && !(g->n[r].axes & ~(tokens | DIM_AXES))
              && (g->n[r].axes & tokens) != tokens;
    return plain ? view : r;
}

static void rename_axes(Product *p, AxisSet axes)
{
    if (p->m.axes & ~axes)
        p->m.axes = axes & ~p->n.axes;
    else
        p->n.axes = axes & ~p->m.axes;
}

static void emit_product_as(Tiles *t, Ref r, Product *p)
{
    Chain k;
    Product q;
    Ref u = find_partner(t, r, p, &q);
    if (u) {
        find_piece(t, p, true);
        emit_two(t, r, p, u, &q);
        return;
    }
    chain_after(t, &k, r, 0);
    k.pairs = by_pairs(t, r, p);
    k.along = highest(p->n.axes);
    Act *a = act_begin(t, r);
    Buf *b = &a->text;
    loops_open(t, b, r, p->loops);
    buf_printf(b, "product<%s, %d, %d, %d, %s, %s, %s, %s>(", precision(t, r),
               p->mt, p->nt, mostly(t, r, p),
               truth(!p->k.tokens && p->k.size % 16 == 0), truth(p->rows),
               truth(p->cols), k.pairs ? "Paired" : "Single");
    whole_text(t, b, &p->m, p->rows);
    buf_printf(b, ", ");
    whole_text(t, b, &p->n, p->cols);
    buf_printf(b, ", ");
    run_size_text(t, b, &p->k);
    buf_printf(b, ",\n");
    matrix_text(t, a, b, p->a, &p->at_a, p->m.st[0], p->k.st[0], p->loops);
    buf_printf(b, ",\n");
    matrix_text(t, a, b, p->b, &p->at_b, p->n.st[0], p->k.st[1], p->loops);
    buf_printf(b, ",\n[&](int row, int col, %s x) {\n",
               k.pairs ? "Pair" : "float");
    run_coords(t, b, r, &p->m, "row");
    run_coords(t, b, r, &p->n, "col");
    chain_body(t, a, b, &k);
    buf_printf(b, "});\n");
    loops_close(b, p->loops);
    chain_done(t, &k);
}

/* Under another name that one is busy, too: what is needed first must not take
 * it for a view of what is there. */
static void emit_product(Tiles *t, Ref r, Product *p)
{
    Ref view = shown_as(t, r, p);

    find_piece(t, p, t->precision[r]);
    if (view != r) {
        rename_axes(p, t->g->n[view].axes);
        t->done[r] = t->busy[view] = 1;
        t->precision[view] = t->precision[r];
    }
    emit_product_as(t, view, p);
    if (view != r)
        t->busy[view] = 0;
}

/* ---- which of them ---- */

void do_dot(Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];
    Product p;

    for (int i = 0; i < 2 && n->a[0] != n->a[1]; i++)
        if (!is_matrix_product(t, n))
            turn_inside(t, r, n->a[i]);
    need_all(t, r);
    if (find_product(t, r, &p))
        emit_product(t, r, &p);
    else
        emit_sum(t, r);
}

void do_most(Tiles *t, Ref r)
{
    need_all(t, r);
    emit_sum(t, r);
}

/* ---- under gates ---- */

/* An operand as rows and columns of these axes. */
static void plain_matrix(Tiles *t, Act *a, Buf *b, Ref r, int row, int col)
{
    const Spot *s = &t->spot[r];

    buf_printf(b, ",\n");
    matrix_text(t, a, b, r, s, s->st[row], s->st[col], 0);
}

/* The one axis besides i and j, where each operand has what the device's
 * routines expect; or -1. */
static int gate_axis(const Tiles *t, const Node *n)
{
    AxisSet used = n->axes | n->over, tokens = AXIS(AX_I) | AXIS(AX_J);
    AxisSet key = used & ~tokens;
    double x;

    if (!(used & AXIS(AX_I)) || !(used & AXIS(AX_J)) || !key || key & (key - 1)
        || !(key & DIM_AXES))
        return -1;
    for (int i = 0; i < 4; i++)
        if (constant_of(t, n->a[i], &x))
            return -1;
    if (t->g->n[n->a[2]].axes & AXIS(AX_J) || t->g->n[n->a[3]].axes
        & AXIS(AX_I))
        return -1;
    return lowest(key);
}

/* Puts the operand that has the axis first; false if the other has it too. */
static bool order_operands(const Tiles *t, Ref a[2], AxisSet has, AxisSet not)
{
    if (!(t->g->n[a[0]].axes & has)) {
        Ref r = a[0];
        a[0] = a[1];
        a[1] = r;
    }
    return !(t->g->n[a[1]].axes & has) && !(t->g->n[a[0]].axes & not);
}

static bool emit_gated(Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];
    Ref x[2] = { n->a[0], n->a[1] };
    int key = gate_axis(t, n), own = n->axes & AXIS(AX_I) ? AX_I : AX_J;
    int other = own == AX_I ? AX_J : AX_I;
    bool keys = key >= 0 && n->over == AXIS(key);
    Chain k;

    if (key < 0 || !(keys ? order_operands(t, x, AXIS(AX_I), AXIS(AX_J))
                     : n->over == AXIS(other)
                       && order_operands(t, x, AXIS(own), AXIS(key))))
        return false;
    int size = tile_extent(t, operand_with(t, r, key), key);
    chain_after(t, &k, r, 0);
    k.pairs = size % BLOCK == 0 && t->chunk % BLOCK == 0;
    k.along = keys ? AX_J : key;
    Act *a = act_begin(t, r);
    Buf *b = &a->text;
    buf_printf(b, "%s<%s, %s, ", keys ? "gated_keys" : "gated_tokens",
               precision(t, r), truth(n->flags & STRICT));
    if (!keys)
        buf_printf(b, "%s, ", truth(own == AX_J));
    buf_printf(b, "%d, %s, %s>(n", size, truth(k.pairs),
               k.pairs ? "Paired" : "Single");
    plain_matrix(t, a, b, x[0], keys ? AX_I : own, keys ? key : other);
    plain_matrix(t, a, b, x[1], keys ? AX_J : other, key);
    plain_matrix(t, a, b, n->a[2], AX_I, key);
    plain_matrix(t, a, b, n->a[3], AX_J, key);
    buf_printf(b, ",\n[&](int %s, int %s, %s x) {\n", axis_coord(keys
               ? AX_I : own), axis_coord(keys ? AX_J : key),
               k.pairs ? "Pair" : "float");
    chain_body(t, a, b, &k);
    buf_printf(b, "});\n");
    chain_done(t, &k);
    return true;
}

void do_gdot(Tiles *t, Ref r)
{
    need_all(t, r);
    if (!emit_gated(t, r))
        emit_sum(t, r);
}
