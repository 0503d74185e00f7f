/* eval.c -- the value of a node, in double, written to be obviously right.
 *
 * Each operation is a walk over the axes it needs, with one offset for each
 * tile that takes part; an axis that a tile lacks has step 0 there.
 */
#include "eval.h"
#include "elem.h"

#include <math.h>
#include <string.h>

enum { SLOTS = 5 };                     /* tiles in a walk: result first */

typedef struct Walk {
    AxisSet axes;
    int nd, nslots;
    uint8_t order[NAXES];               /* outermost first */
    int32_t ext[NAXES], at[NAXES];      /* by axis */
    int64_t step[SLOTS][NAXES];         /* by axis */
    int64_t off[SLOTS];
} Walk;

static AxisSet axes_of(const Eval *e, Ref r)
{
    return e->g->n[r].axes;
}

/* ---- walks ---- */

static void walk_init(Walk *w)
{
    w->axes = 0;
    w->nd = w->nslots = 0;
}

/* Adds a tile; returns its slot. Absent (0): a tile of no axes. */
static int walk_tile(Walk *w, const Eval *e, Ref r)
{
    AxisSet axes = axes_of(e, r);
    int64_t step = 1, *to = w->step[w->nslots];

    memset(to, 0, sizeof w->step[0]);
    for (AxisSet s = axes; s; s &= ~AXIS(highest(s))) {
        int ax = highest(s);
        to[ax] = step;
        w->ext[ax] = eval_extent(e, r, ax);
        step *= w->ext[ax];
    }
    w->axes |= axes;
    w->off[w->nslots] = 0;
    return w->nslots++;
}

/* Goes through the axes in s after those given before; moved to the start. */
static void walk_over(Walk *w, AxisSet s)
{
    for (; s; s &= s - 1) {
        w->at[lowest(s)] = 0;
        w->order[w->nd++] = (uint8_t)lowest(s);
    }
}

static bool walk_next(Walk *w)
{
    for (int d = w->nd - 1; d >= 0; d--) {
        int ax = w->order[d];
        if (++w->at[ax] < w->ext[ax]) {
            for (int k = 0; k < w->nslots; k++)
                w->off[k] += w->step[k][ax];
            return true;
        }
        for (int k = 0; k < w->nslots; k++)
            w->off[k] -= w->step[k][ax] * (w->ext[ax] - 1);
        w->at[ax] = 0;
    }
    return false;
}

/* In slot k, axis `from` is found under the name `to`. */
static void walk_rename(Walk *w, int k, int from, int to)
{
    if (from == to)
        return;
    w->step[k][to] = w->step[k][from];
    w->step[k][from] = 0;
}

/* A walk over the result of r, with its operands beside it. */
static void walk_node(Walk *w, const Eval *e, Ref r)
{
    walk_init(w);
    for (int i = 0; i < op_info[e->g->n[r].op].arity; i++)
        walk_tile(w, e, e->g->n[r].a[i]);
    walk_tile(w, e, r);                 /* last: its extents count */
}

/* ---- element-wise ---- */

void elem_row(int op, int64_t n, double *y, Row ra, Row rb, Row rc)
{
    switch (op) {
#define ELEM(name, arity, traits, value, ga, gb, gc) \
    case OP_##name: \
        for (int64_t k = 0; k < n; k++) { \
            double a = ra.p[k * ra.step], b = rb.p[k * rb.step]; \
            double c = rc.p[k * rc.step]; \
            (void)b; \
            (void)c; \
            y[k] = value; \
        } \
        break;
#include "ops.def"
    }
}

static void eval_elem(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    int arity = op_info[n->op].arity, in = highest(n->axes);
    int64_t len = in < 0 ? 1 : eval_extent(e, r, in);
    double zero = 0;
    Walk w;

    walk_node(&w, e, r);
    walk_over(&w, in < 0 ? 0 : n->axes & ~AXIS(in));
    do {
        Row row[3] = { { &zero, 0 }, { &zero, 0 }, { &zero, 0 } };
        for (int i = 0; i < arity; i++) {
            row[i].p = e->val[n->a[i]] + w.off[i];
            row[i].step = in < 0 ? 0 : w.step[i][in];
        }
        elem_row(n->op, len, e->val[r] + w.off[arity], row[0], row[1],
                 row[2]);
    } while (walk_next(&w));
}

/* ---- sums and products ---- */

static void eval_sum(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    int in = highest(axes_of(e, n->a[0]));
    double *y = e->val[r];
    Walk w;

    memset(y, 0, (size_t)eval_count(e, r) * sizeof *y);
    walk_init(&w);
    walk_tile(&w, e, r);
    walk_tile(&w, e, n->a[0]);
    walk_over(&w, w.axes & ~AXIS(in));
    do {
        const double *a = e->val[n->a[0]] + w.off[1];
        for (int32_t k = 0; k < w.ext[in]; k++)
            y[w.off[0] + k * w.step[0][in]] += a[k];
    } while (walk_next(&w));
}

/* The largest of the entries that the walk goes over, of those from `a` on. */
static double largest(Walk *w, const double *a)
{
    double most = -INFINITY;

    do {
        most = max_(most, a[w->off[0]]);
    } while (walk_next(w));
    return most;
}

/* The largest, and the rest beside it. */
static double log_sum(Walk *w, const double *a)
{
    double most = largest(w, a), sum = 0;

    do {
        double x = a[w->off[0]];
        sum += x == most ? 1 : exp(x - most);
    } while (walk_next(w));
    return isinf(most) ? most : most + log(sum);
}

/* Of each row what `fold` makes of it. */
static void fold_rows(const Eval *e, Ref r,
                      double (*fold)(Walk *, const double *))
{
    const Node *n = &e->g->n[r];
    Walk w, in;

    walk_node(&w, e, r);
    walk_over(&w, n->axes);
    walk_init(&in);
    walk_tile(&in, e, n->a[0]);
    walk_over(&in, n->over);
    do {
        e->val[r][w.off[1]] = fold(&in, e->val[n->a[0]] + w.off[0]);
    } while (walk_next(&w));
}

static void eval_largest(const Eval *e, Ref r)
{
    fold_rows(e, r, largest);
}

static void eval_log_sum(const Eval *e, Ref r)
{
    fold_rows(e, r, log_sum);
}

static double dot_rows(const double *a, const double *b, int64_t n)
{
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    int64_t k = 0;

    for (; k + 4 <= n; k += 4) {
        s0 += a[k] * b[k];
        s1 += a[k + 1] * b[k + 1];
        s2 += a[k + 2] * b[k + 2];
        s3 += a[k + 3] * b[k + 3];
    }
    for (; k < n; k++)
        s0 += a[k] * b[k];
    return s0 + s1 + (s2 + s3);
}

void multiply_add(double *y, Row a, Row b, int64_t n)
{
    if (a.step == 0 && b.step == 1) {
        double s = *a.p;
        for (int64_t k = 0; k < n; k++)
            y[k] += s * b.p[k];
        return;
    }
    for (int64_t k = 0; k < n; k++)
        y[k] += a.p[k * a.step] * b.p[k * b.step];
}

/* Innermost goes an axis along which both operands lie close, if there is
 * one: the last contracted one, or else the result's last. */
static void eval_dot(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    int in = highest(n->over);
    double *y = e->val[r];
    Walk w;

    memset(y, 0, (size_t)eval_count(e, r) * sizeof *y);
    walk_init(&w);
    for (int i = 0; i < 2; i++)
        walk_tile(&w, e, n->a[i]);
    walk_tile(&w, e, r);
    bool close = w.step[0][in] == 1 && w.step[1][in] == 1;
    if (!close && n->axes)
        in = highest(n->axes);
    walk_over(&w, n->axes & ~AXIS(in));
    walk_over(&w, n->over & ~AXIS(in));
    do {
        Row a = { e->val[n->a[0]] + w.off[0], w.step[0][in] };
        Row b = { e->val[n->a[1]] + w.off[1], w.step[1][in] };
        double *to = y + w.off[2];
        if (close)
            *to += dot_rows(a.p, b.p, w.ext[in]);
        else if (w.step[2][in] == 0)
            for (int32_t k = 0; k < w.ext[in]; k++)
                *to += a.p[k * a.step] * b.p[k * b.step];
        else if (b.step == 0)
            multiply_add(to, b, a, w.ext[in]);
        else
            multiply_add(to, a, b, w.ext[in]);
    } while (walk_next(&w));
}

/* Whether the mask lets the pair of tokens at hand, or of rows, through. */
static bool on_mask(const Node *n, const Walk *w)
{
    int32_t i = w->at[AX_I], j = w->at[AX_J];

    if (i == j && n->op == OP_later && n->over) {
        int rank = lowest(n->over);
        return w->at[rank] > w->at[rank + AX_J];
    }
    return n->flags & STRICT || n->op == OP_later ? i > j : i >= j;
}

static void eval_dmask(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    Walk w;

    walk_node(&w, e, r);
    walk_over(&w, n->axes);
    do {
        double x = 0;
        if (on_mask(n, &w) && n->a[0])
            x = exp(e->val[n->a[0]][w.off[0]] - e->val[n->a[1]][w.off[1]]);
        else if (on_mask(n, &w))
            x = 1;
        e->val[r][w.off[op_info[n->op].arity]] = x;
    } while (walk_next(&w));
}

/* The last axis, where it is no token's, goes innermost. */
static void eval_gdot(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    double *y = e->val[r];
    Walk w;

    memset(y, 0, (size_t)eval_count(e, r) * sizeof *y);
    walk_node(&w, e, r);
    int in = highest(w.axes);
    AxisSet inner = in >= AX_DIM ? AXIS(in) : 0;
    int32_t len = inner ? w.ext[in] : 1;
    walk_over(&w, w.axes & ~inner);
    do {
        if (!on_mask(n, &w))
            continue;
        const double *p[4];
        int64_t at[SLOTS] = { 0 };
        for (int k = 0; k < 4; k++)
            p[k] = e->val[n->a[k]] + w.off[k];
        for (int32_t x = 0; x < len; x++) {
            y[w.off[4] + at[4]] += p[0][at[0]] * p[1][at[1]]
                                 * exp(p[2][at[2]] - p[3][at[3]]);
            for (int k = 0; k < SLOTS && inner; k++)
                at[k] += w.step[k][in];
        }
    } while (walk_next(&w));
}

/* x_t += sum_s m_ts x_s, for one pair of tokens t, s; m is a's block, or its
 * transpose. A rank axis whose twin a has is contracted, another is not; or of
 * that axis (rank, not 0) p alone takes what q gives. */
static void solve_pair(const Eval *e, Ref r, int t, int s, int rank, int p,
                       int q)
{
    const Node *n = &e->g->n[r];
    AxisSet twins = axes_of(e, n->a[0]) & COL_AXES & ~AXIS(AX_J);
    bool trans = n->flags & TRANS;
    double *x = e->val[r];
    Walk w;

    walk_init(&w);
    walk_tile(&w, e, r);                /* x_s */
    walk_tile(&w, e, n->a[0]);
    walk_tile(&w, e, r);                /* x_t */
    w.off[0] = s * w.step[0][AX_I];
    w.off[1] = t * w.step[1][trans ? AX_J : AX_I]
             + s * w.step[1][trans ? AX_I : AX_J];
    w.off[2] = t * w.step[2][AX_I];
    for (AxisSet c = twins; c; c &= c - 1) {
        int col = lowest(c), row = col - AX_J;
        walk_rename(&w, trans ? 2 : 0, row, col);
    }
    AxisSet fixed = AXIS(AX_I) | AXIS(AX_J);
    if (rank) {
        int to = trans ? rank + AX_J : rank, from = trans ? rank : rank + AX_J;
        for (int k = 0; k < 3; k++)
            w.off[k] += p * w.step[k][to] + q * w.step[k][from];
        fixed |= AXIS(to) | AXIS(from);
    }
    walk_over(&w, w.axes & ~fixed);
    do {
        x[w.off[2]] += e->val[n->a[0]][w.off[1]] * x[w.off[0]];
    } while (walk_next(&w));
}

/* A token's ranks, one after another. */
static void solve_ranks(const Eval *e, Ref r, int t)
{
    const Node *n = &e->g->n[r];
    int rank = lowest(axes_of(e, n->a[0]) & ROW_AXES & ~AXIS(AX_I));
    int ranks = eval_extent(e, r, rank);

    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < i; j++) {
            int p = n->flags & TRANS ? ranks - 1 - i : i;
            int q = n->flags & TRANS ? ranks - 1 - j : j;
            solve_pair(e, r, t, t, rank, p, q);
        }
}

static void eval_solve(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    Walk w;

    walk_init(&w);
    walk_tile(&w, e, n->a[1]);
    walk_tile(&w, e, r);
    walk_over(&w, n->axes);
    do {
        e->val[r][w.off[1]] = e->val[n->a[1]][w.off[0]];
    } while (walk_next(&w));
    for (int i = 0; i < e->rows; i++) {
        int t = n->flags & TRANS ? e->rows - 1 - i : i;
        for (int j = 0; j < i; j++) {
            int s = n->flags & TRANS ? e->rows - 1 - j : j;
            solve_pair(e, r, t, s, 0, 0, 0);
        }
        if (n->flags & LATER)
            solve_ranks(e, r, t);
    }
}

static void eval_gsolve(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    bool trans = n->flags & TRANS, before = n->flags & EXCLUSIVE;
    const double *a = e->val[n->a[0]], *b = e->val[n->a[1]];
    const double *c = e->val[n->a[2]], *d = e->val[n->a[3]];
    double *x = e->val[r];
    int64_t row[SLOTS], column;
    Walk w;

    walk_node(&w, e, r);
    for (int k = 0; k < SLOTS; k++)
        row[k] = w.step[k][AX_I];
    column = w.step[0][AX_J];
    walk_over(&w, n->axes & ~AXIS(AX_I));
    do {
        for (int k = 0; k < e->rows; k++) {
            int t = trans ? e->rows - 1 - k : k;
            double sum = 0;
            for (int m = 0; m < k; m++) {
                int s = trans ? e->rows - 1 - m : m, i = trans ? s : t;
                int j = trans ? t : s;
                sum += a[w.off[0] + i * row[0] + j * column]
                     * exp(d[w.off[3] + (i - before) * row[3]]
                           - d[w.off[3] + j * row[3]])
                     * (trans ? c[w.off[2] + s * row[2]] : 1)
                     * x[w.off[4] + s * row[4]];
            }
            x[w.off[4] + t * row[4]] = b[w.off[1] + t * row[1]]
                + (trans ? 1 : c[w.off[2] + t * row[2]]) * sum;
        }
    } while (walk_next(&w));
}

/* ---- along the tokens ---- */

/* Those that recur show what they hold after the token; exclusive ones, and
 * others, what it finds. */
static void eval_scan(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    int arity = op_info[n->op].arity, init = arity - 1;
    bool before = n->flags & EXCLUSIVE || !op_is(n->op, RECURS);
    Walk w;

    walk_node(&w, e, r);
    walk_over(&w, n->axes & ~AXIS(AX_I));
    do {
        double s = init ? e->val[n->a[init]][w.off[init]] : 0;
        for (int k = 0; k < e->rows; k++) {
            int64_t i = n->flags & REVERSE ? e->rows - 1 - k : k;
            double a = e->val[n->a[0]][w.off[0] + i * w.step[0][AX_I]];
            double b = arity < 3 ? 0
                     : e->val[n->a[1]][w.off[1] + i * w.step[1][AX_I]];
            double next = next_value(n->op, s, n->a[0], a, b);
            e->val[r][w.off[arity] + i * w.step[arity][AX_I]]
                = before ? s : next;
            s = next;
        }
    } while (walk_next(&w));
    for (int64_t i = 0; n->flags & WRAP && i < eval_count(e, r); i++)
        e->val[r][i] = wrap_(e->val[r][i]);
}

/* One token, at the offsets of a walk over what is no axis of the matrix: a, b,
 * c and s, whose entries lie `step` apart; s_{i-1} at `from`. */
static void eval_matrix(const Eval *e, Ref r, const Walk *w, int64_t i,
                        const double *from, int64_t step)
{
    const Node *n = &e->g->n[r];
    int row = n->index, col = lowest(n->over);
    bool trans = n->flags & TRANS;
    double *to = e->val[r] + w->off[3] + i * w->step[3][AX_I];
    const double *a = e->val[n->a[0]] + w->off[0] + i * w->step[0][AX_I];
    const double *b = e->val[n->a[1]] + w->off[1] + i * w->step[1][AX_I];

    for (int32_t m = 0; m < w->ext[row]; m++) {
        double x = b[m * w->step[1][row]];
        for (int32_t k = 0; k < w->ext[row]; k++)
            x += from[k * step] * a[(trans ? k : m) * w->step[0][row]
                                    + (trans ? m : k) * w->step[0][col]];
        to[m * w->step[3][row]] = x;
    }
}

static void eval_matscan(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    int row = n->index;
    Walk w;

    walk_node(&w, e, r);
    walk_over(&w, n->axes & ~AXIS(AX_I) & ~AXIS(row));
    do {
        const double *s = e->val[n->a[2]] + w.off[2];
        int64_t step = w.step[2][row];
        for (int k = 0; k < e->rows; k++) {
            int64_t i = n->flags & REVERSE ? e->rows - 1 - k : k;
            eval_matrix(e, r, &w, i, s, step);
            s = e->val[r] + w.off[3] + i * w.step[3][AX_I];
            step = w.step[3][row];
        }
    } while (walk_next(&w));
}

/* ---- moving values ---- */

/* The result is found in the operand, under other names, from a place on. */
static void eval_move(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    Walk w;

    walk_node(&w, e, r);
    if (op_has(n->op, INDEX))
        w.off[0] = n->index * w.step[0][lowest(n->over)];
    if (takes_last(n))
        w.off[0] = (e->rows - 1) * w.step[0][AX_I];
    for (AxisSet s = n->axes; s; s &= s - 1)
        walk_rename(&w, 0, moved_axis(n, lowest(s)), lowest(s));
    walk_over(&w, n->axes);
    do {
        e->val[r][w.off[1]] = e->val[n->a[0]][w.off[0]];
    } while (walk_next(&w));
}

/* Entry k of the result, of `len` of the operand; behind those are zeros. */
static double entry(const Node *n, int32_t k, const double *a, int64_t step,
                    int32_t len)
{
    switch (n->op) {
#define x(at) ((at) < len ? a[(at) * step] : 0)
#define ENTRY(value) value
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    case OP_##name: return value;
#include "ops.def"
#undef x
    }
    return NAN;
}

/* unit, count */
static void eval_entries(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];

    for (int64_t i = 0; i < eval_count(e, r); i++)
        e->val[r][i] = entry(n, (int32_t)i, NULL, 0, 0);
}

static void eval_joined(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    int ax = lowest(n->over);
    int64_t from = 0;

    for (int i = 0; i < 2; i++) {
        Walk w;
        walk_init(&w);
        walk_tile(&w, e, r);
        w.ext[ax] = axes_of(e, n->a[i]) & n->over
                  ? eval_extent(e, n->a[i], ax) : 1;
        int32_t len = w.ext[ax];
        walk_tile(&w, e, n->a[i]);
        w.off[0] = from * w.step[0][ax];
        walk_over(&w, n->axes);
        do {
            e->val[r][w.off[0]] = e->val[n->a[i]][w.off[1]];
        } while (walk_next(&w));
        from += len;
    }
}

/* rot90, dup, pairsum: each entry from a pair of the operand. */
static void eval_pairs(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];
    int from = lowest(n->over), to = op_has(n->op, TO_AXIS) ? n->index : from;
    int32_t len = eval_extent(e, n->a[0], from);
    Walk w;

    walk_node(&w, e, r);
    int64_t step = w.step[0][from];
    w.step[0][from] = 0;
    walk_over(&w, n->axes);
    do {
        e->val[r][w.off[1]] = entry(n, w.at[to], e->val[n->a[0]] + w.off[0],
                                    step, len);
    } while (walk_next(&w));
}

static void eval_number(const Eval *e, Ref r)
{
    const Node *n = &e->g->n[r];

    *e->val[r] = n->op == OP_num ? n->num : e->ext[0][n->index];
}

/* Somebody else gives it. */
static void eval_given(const Eval *e, Ref r)
{
    (void)e, (void)r;
}

static void eval_rank(const Eval *e, Ref r)
{
    fail_code(e->g->ctx, ERR_INTERNAL, "%s: schedules' plans have it alone",
              op_info[e->g->n[r].op].name);
}

static void (*const eval_of[NOPS])(const Eval *, Ref) = {
#define ELEM(name, arity, traits, value, ga, gb, gc) [OP_##name] = eval_elem,
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    [OP_##name] = eval_##kind,
#include "ops.def"
};

void eval_node(const Eval *e, Ref r)
{
    eval_of[e->g->n[r].op](e, r);
}
