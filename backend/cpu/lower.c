/* lower.c -- from a node to an instruction: loops with their strides, and
 * which routine does the work.
 */
#include "tile.h"


/* The axes of an instruction: how long, and their strides in each tile. */
typedef struct Axes {
    int32_t ext[NAXES], st[5][NAXES];
} Axes;

static bool is_token(int ax)
{
    return ax == AX_I || ax == AX_J;
}

static AxisSet axes_of(const Lower *l, Ref r)
{
    return l->g->n[r].axes;
}

static int32_t extent(const Lower *l, Ref r, int ax)
{
    return is_token(ax) ? l->chunk : l->ext[r][ax];
}

/* Strides in canonical order; returns the floats in all. */
static int32_t strides(const Lower *l, Ref r, int32_t st[NAXES])
{
    int32_t step = 1;

    for (AxisSet s = axes_of(l, r); s; s &= ~AXIS(highest(s))) {
        st[highest(s)] = step;
        step *= extent(l, r, highest(s));
    }
    return step;
}

int32_t tile_floats(const Lower *l, Ref r)
{
    int32_t st[NAXES];

    return strides(l, r, st);
}

static void add_tile(Axes *a, const Lower *l, int p, Ref r)
{
    strides(l, r, a->st[p]);
    for (AxisSet s = axes_of(l, r); s; s &= s - 1)
        a->ext[lowest(s)] = extent(l, r, lowest(s));
}

static void rename_axis(Axes *a, int p, int from, int to)
{
    if (from == to)
        return;
    a->st[p][to] = a->st[p][from];
    a->st[p][from] = 0;
}

/* ---- loops ---- */

static Dim axis_dim(const Axes *a, int ax)
{
    Dim d = { .size = is_token(ax) ? 1 : a->ext[ax], .tokens = is_token(ax) };

    for (int p = 0; p < 5; p++)
        d.st[p] = a->st[p][ax];
    return d;
}

/* Whether the outer loop continues where a round of the inner one ends. */
static bool follows(const Dim *outer, const Dim *inner)
{
    if (inner->tokens)
        return false;
    for (int p = 0; p < 5; p++)
        if (outer->st[p] != inner->st[p] * inner->size)
            return false;
    return true;
}

static void loop_add(Loop *l, Dim d)
{
    Dim *last = l->n ? &l->d[l->n - 1] : NULL;

    if (d.size == 1 && !d.tokens)
        return;
    if (last && follows(last, &d)) {
        last->size *= d.size;
        for (int p = 0; p < 5; p++)
            last->st[p] = d.st[p];
        return;
    }
    l->d[l->n++] = d;
}

static Loop loop_over(const Axes *a, AxisSet s)
{
    Loop l = { 0 };

    for (; s; s &= s - 1)
        loop_add(&l, axis_dim(a, lowest(s)));
    return l;
}

/* Takes the last loop off; one turn if there is none. */
static Dim loop_pop(Loop *l)
{
    return l->n ? l->d[--l->n] : (Dim){ .size = 1 };
}

static void loop_join(Loop *l, const Loop *more)
{
    for (int i = 0; i < more->n; i++)
        loop_add(l, more->d[i]);
}

static int32_t product(const Lower *l, Ref r, AxisSet s)
{
    int32_t n = 1;

    for (s &= axes_of(l, r); s; s &= s - 1)
        n *= extent(l, r, lowest(s));
    return n;
}

/* All of a tile: so much a token, or so much. */
Dim tile_leading(const Lower *l, Ref r)
{
    AxisSet s = axes_of(l, r);
    int32_t n = tile_floats(l, r);

    if (s & AXIS(AX_I))
        return (Dim){ .size = n / l->chunk, .tokens = true };
    return (Dim){ .size = n };
}

/* Rows and columns a token, and what stands behind them. */
static void shape_scores(const Lower *l, Ref r, Instr *in)
{
    in->row_rank = product(l, r, ROW_AXES & ~AXIS(AX_I));
    in->col_rank = product(l, r, COL_AXES & ~AXIS(AX_J));
    in->cols = product(l, r, DIM_AXES);
}

/* ---- element-wise, moves, sums ---- */

static void elem_loops(const Lower *l, Ref r, const Ref *x, Instr *in)
{
    const Node *n = &l->g->n[r];
    Axes a = { 0 };

    in->code = I_ELEM;
    for (int p = 0; p < in->arity; p++)
        add_tile(&a, l, p + 1, x[p]);
    add_tile(&a, l, 0, r);
    in->m = n->axes ? axis_dim(&a, lowest(n->axes)) : (Dim){ .size = 1 };
    in->loop = loop_over(&a, n->axes);
}

static void lower_elem(const Lower *l, Ref r, Instr *in)
{
    const Node *n = &l->g->n[r];

    in->arity = (uint8_t)op_info[n->op].arity;
    elem_loops(l, r, n->a, in);
    if ((n->axes & AXIS(AX_I)) && (n->axes & AXIS(AX_J)))
        shape_scores(l, r, in);
    for (int p = 0; n->op == OP_mul && p < 2; p++)
        in->mask_upper |= l->lower[n->a[p]] && !l->lower[n->a[1 - p]] &&
                          axes_of(l, n->a[1 - p]) & AXIS(AX_J);
}

/* The axes of operand p under the names that the result has for them. */
static void rename_operand(const Node *n, Axes *a, int p)
{
    for (AxisSet s = n->axes; s; s &= s - 1)
        rename_axis(a, p, moved_axis(n, lowest(s)), lowest(s));
}

static void lower_move(const Lower *l, Ref r, Instr *in)
{
    const Node *n = &l->g->n[r];
    Ref x = n->a[in->part];
    Axes a = { 0 };

    in->code = I_MOVE;
    add_tile(&a, l, 1, x);
    if (op_has(n->op, INDEX))
        in->from = n->index * a.st[1][lowest(n->over)];
    if (takes_last(n))
        in->k.st[1] = a.st[1][AX_I];
    rename_operand(n, &a, 1);
    add_tile(&a, l, 0, r);
    if (op_is(n->op, JOINS)) {
        int ax = lowest(n->over);
        a.ext[ax] = axes_of(l, x) & n->over ? extent(l, x, ax) : 1;
        in->to = in->part ? (extent(l, r, ax) - a.ext[ax]) * a.st[0][ax] : 0;
    }
    in->loop = loop_over(&a, n->axes);
}

bool tile_alias(const Lower *l, Ref r)
{
    const Node *n = &l->g->n[r];
    Axes a = { 0 };

    if (!op_is(n->op, RENAMES))
        return false;
    add_tile(&a, l, 1, n->a[0]);
    rename_operand(n, &a, 1);
    add_tile(&a, l, 0, r);
    for (AxisSet s = n->axes; s; s &= s - 1)
        if (a.st[0][lowest(s)] != a.st[1][lowest(s)])
            return false;
    return true;
}

/* How long the axis is in r, or in the operand of r that has it. */
static int32_t extent_at(const Lower *l, Ref r, int ax)
{
    const Ref *a = l->g->n[r].a;

    for (int p = 0; p < 4; p++)
        if (!(axes_of(l, r) & AXIS(ax)) && axes_of(l, a[p]) & AXIS(ax))
            return extent(l, a[p], ax);
    return extent(l, r, ax);
}

Instr lower_spread(const Lower *l, Ref like, AxisSet axes, Ref from,
                   int32_t *floats)
{
    Instr in = { .code = I_MOVE, .wide = -1 };
    Axes a = { 0 };
    int32_t step = 1;

    add_tile(&a, l, 1, from);
    for (AxisSet s = axes; s; s &= ~AXIS(highest(s))) {
        int ax = highest(s);
        if (!a.ext[ax])
            a.ext[ax] = extent_at(l, like, ax);
        a.st[0][ax] = step;
        step *= a.ext[ax];
    }
    in.loop = loop_over(&a, axes);
    *floats = step;
    return in;
}

/* Both operands' entries, one after the other's: an instruction each. */
static void lower_joined(const Lower *l, Ref r, Instr *in)
{
    lower_move(l, r, in);
}

static void lower_entries(const Lower *l, Ref r, Instr *in)
{
    in->code = I_ENTRIES;
    in->all = tile_leading(l, r);
}

static void lower_pairs(const Lower *l, Ref r, Instr *in)
{
    const Node *n = &l->g->n[r];
    int from = lowest(n->over), to = op_has(n->op, TO_AXIS) ? n->index : from;
    Axes a = { 0 };

    in->code = I_PAIRS;
    add_tile(&a, l, 1, n->a[0]);
    in->k = axis_dim(&a, from);
    rename_axis(&a, 1, from, to);
    add_tile(&a, l, 0, r);
    in->m = axis_dim(&a, to);
    in->loop = loop_over(&a, n->axes & ~AXIS(to));
}

static void lower_sum(const Lower *l, Ref r, Instr *in)
{
    const Node *n = &l->g->n[r];
    Axes a = { 0 };

    in->code = I_SUM;
    add_tile(&a, l, 0, r);
    add_tile(&a, l, 1, n->a[0]);
    in->all = tile_leading(l, r);
    in->loop = loop_over(&a, axes_of(l, n->a[0]));
}

static void lower_largest(const Lower *l, Ref r, Instr *in)
{
    lower_sum(l, r, in);
    in->code = I_MOST;
}

/* ---- contractions ---- */

/* What a triangular factor spares of the matrix product. m and k: the axes
 * that its rows and the summed ones stand for. */
static void lower_triangle(const Lower *l, Ref a, AxisSet m, AxisSet k,
                           Instr *in)
{
    if (!l->lower[a] || !in->k.tokens || !in->m.tokens)
        return;
    in->row_rank = in->m.size;
    in->col_rank = in->k.size;
    if (m & AXIS(AX_I) && k & AXIS(AX_J))
        in->tri = LOWER_A;
    else if (m & AXIS(AX_J) && k & AXIS(AX_I))
        in->tri = UPPER_A;
}

static void swap_operands(Axes *a, AxisSet *m, AxisSet *n)
{
    AxisSet t = *m;

    *m = *n;
    *n = t;
    for (int ax = 0; ax < NAXES; ax++) {
        int32_t st = a->st[1][ax];
        a->st[1][ax] = a->st[2][ax];
        a->st[2][ax] = st;
    }
}

/* The last axis with more than one entry. */
static AxisSet innermost(const Axes *a, AxisSet s)
{
    while (s && !is_token(highest(s)) && a->ext[highest(s)] == 1)
        s &= ~AXIS(highest(s));
    return s ? AXIS(highest(s)) : 0;
}

/* The loops of a contraction: over axes that both operands keep, that one
 * keeps, and the summed ones. */
typedef struct Parts { Loop both, m, n, k; } Parts;

static void join_parts(const Parts *p, Instr *in)
{
    in->loop = p->both;
    loop_join(&in->loop, &p->m);
    loop_join(&in->loop, &p->n);
    loop_join(&in->loop, &p->k);
}

/* Along the last axis that both operands and the result have. */
static void lower_lanes(const Parts *p, Instr *in)
{
    Parts q = { .m = p->m, .n = p->n, .k = p->k };

    join_parts(&q, in);
    loop_join(&in->loop, &p->both);
    const int32_t *st = in->loop.d[in->loop.n - 1].st;
    in->kind = st[0] == 1 && st[1] == 1 && st[2] == 1 ? DOT_LANES : DOT_ANY;
}

static void lower_rows(Parts *p, Instr *in)
{
    in->k = loop_pop(&p->k);
    in->m = loop_pop(p->m.n ? &p->m : p->n.n ? &p->n : &p->both);
    in->kind = DOT_ROWS;
    join_parts(p, in);
}

static void lower_gemm(Parts *p, Instr *in)
{
    in->k = loop_pop(&p->k);
    in->m = loop_pop(&p->m);
    in->n = loop_pop(&p->n);
    in->kind = DOT_GEMM;
    in->adds = p->k.n > 0;
    join_parts(p, in);
}

/* TRANS: the operands change places, so that the result has unit stride
 * along the columns. */
static void lower_dot(const Lower *l, Ref r, Instr *in)
{
    const Node *n = &l->g->n[r];
    AxisSet ax = axes_of(l, n->a[0]), bx = axes_of(l, n->a[1]);
    AxisSet rows = n->axes & ax & ~bx, cols = n->axes & bx & ~ax;
    Axes a = { 0 };

    in->code = I_DOT;
    in->all = tile_leading(l, r);
    add_tile(&a, l, 0, r);
    add_tile(&a, l, 1, n->a[0]);
    add_tile(&a, l, 2, n->a[1]);
    AxisSet inner = innermost(&a, n->axes);
    if (inner & rows) {
        swap_operands(&a, &rows, &cols);
        in->flags = TRANS;
    }
    Parts p = { loop_over(&a, n->axes & ax & bx), loop_over(&a, rows),
                loop_over(&a, cols), loop_over(&a, n->over) };
    Dim k = p.k.n ? p.k.d[p.k.n - 1] : (Dim){ .size = 1, .st = { 0, 1, 1 } };
    bool close = k.st[1] == 1 && k.st[2] == 1 && p.k.n <= 1
              && (k.tokens || k.size >= 8) && (!p.m.n || !p.n.n);
    if (close)
        lower_rows(&p, in);
    else if (inner & ax & bx)
        lower_lanes(&p, in);
    else {
        lower_gemm(&p, in);
        lower_triangle(l, n->a[in->flags ? 1 : 0], rows, n->over, in);
    }
}

/* ---- along the tokens ---- */

/* How to contract, and the axes that the operands need for it. swap: the
 * operand that goes first (row keys, or scores) is the second one. */
static int gdot_kind(const Lower *l, Ref r, AxisSet need[4], bool *swap)
{
    const Node *n = &l->g->n[r];
    AxisSet out = n->axes, rows = out & ROW_AXES, cols = out & COL_AXES;
    AxisSet dims = out & DIM_AXES;
    int kind = GDOT_ANY;

    if (!(n->over & ~DIM_AXES) && !dims) {
        kind = GDOT_KEYS;
        dims = n->over;
    } else if (!(n->over & ~COL_AXES) && !cols) {
        kind = GDOT_COLS;
        cols = n->over;
    } else if (!(n->over & ~ROW_AXES) && !rows) {
        kind = GDOT_ROWS;
        rows = n->over;
    }
    AxisSet first[] = { [GDOT_KEYS] = rows | dims, rows | cols, rows | cols };
    AxisSet other[] = { [GDOT_KEYS] = cols | dims, cols | dims, rows | dims };
    if (kind == GDOT_ANY || !(rows & AXIS(AX_I)) || !(cols & AXIS(AX_J)))
        return GDOT_ANY;
    *swap = axes_of(l, n->a[0]) & ~first[kind];
    need[*swap] = first[kind];
    need[!*swap] = other[kind];
    need[2] = rows | dims;
    need[3] = cols | dims;
    for (int p = 0; p < 4; p++)
        if (axes_of(l, n->a[p]) & ~need[p])
            return GDOT_ANY;
    return kind;
}

/* Of matrices that differ along axes of the result, all from the first such
 * axis on: then the columns of a row go through them in turn. */
static AxisSet matrix_axes(const Lower *l, const Node *n)
{
    AxisSet own = axes_of(l, n->a[0]), place = n->over | AXIS(n->index);
    AxisSet differ = own & ~place & ~AXIS(AX_I);

    if (!differ)
        return own;
    ensure(l->g, highest(n->axes) == n->index, n->op, n->a[0]);
    return own | (n->axes & ~place & ~(AXIS(lowest(differ)) - 1));
}

static void lower_scan(const Lower *l, Ref r, Instr *in)
{
    const Node *n = &l->g->n[r];

    in->code = op_is(n->op, RECURS) ? I_SCAN : I_DELAY;
    in->cols = tile_floats(l, r) / l->chunk;
    in->kind = n->op == OP_cumsum ? SCAN_RUNNING
             : n->op != OP_scan || n->flags & WRAP ? SCAN_ANY
             : n->a[0] ? SCAN_GATED : SCAN_SUM;
}

/* Of each row, groups of row_rank numbers that lie col_rank apart, and as many
 * as `to` matrices. */
static void lower_matscan(const Lower *l, Ref r, Instr *in)
{
    const Node *n = &l->g->n[r];
    int32_t st[NAXES] = { 0 };

    strides(l, r, st);
    in->code = I_MATSCAN;
    in->cols = tile_floats(l, r) / l->chunk;
    in->row_rank = extent_at(l, r, n->index);
    in->col_rank = st[n->index];
    in->to = product(l, r, matrix_axes(l, n) & ~n->over
                                & ~AXIS(n->index) & ~AXIS(AX_I));
    in->kind = (n->index > lowest(n->over)) != !!(n->flags & TRANS);
}

static void lower_dmask(const Lower *l, Ref r, Instr *in)
{
    in->code = I_DMASK;
    shape_scores(l, r, in);
    in->kind = l->g->n[r].op == OP_later;
}

static void lower_gdot(const Lower *l, Ref r, Instr *in)
{
    const Node *n = &l->g->n[r];
    AxisSet need[4], used = n->over | n->axes;
    Axes a = { 0 };
    bool swap = false;

    in->code = I_GDOT;
    in->kind = (uint8_t)gdot_kind(l, r, need, &swap);
    in->all = tile_leading(l, r);
    if (in->kind != GDOT_ANY) {
        in->flags |= swap ? TRANS : 0;
        in->row_rank = in->col_rank = in->cols = 1;
        for (AxisSet s = used & ~AXIS(AX_I) & ~AXIS(AX_J); s; s &= s - 1) {
            int ax = lowest(s);
            *(ax < AX_J ? &in->row_rank : ax < AX_DIM ? &in->col_rank
                                                      : &in->cols) *=
                extent_at(l, r, ax);
        }
        return;
    }
    add_tile(&a, l, 0, r);
    for (int p = 0; p < 4; p++)
        add_tile(&a, l, p + 1, n->a[p]);
    in->m = axis_dim(&a, AX_I);
    in->n = axis_dim(&a, AX_J);
    in->loop = loop_over(&a, used & ~AXIS(AX_I) & ~AXIS(AX_J));
}

/* Rows are tokens and those ranks whose twins `a` has in its columns; other
 * axes that both have are turns, and the rest are columns of b. */
static void lower_solve(const Lower *l, Ref r, Instr *in)
{
    const Node *n = &l->g->n[r];
    AxisSet ax = axes_of(l, n->a[0]);
    AxisSet rank = (ax & COL_AXES) >> AX_J & ~AXIS(AX_I);
    AxisSet rows = rank | AXIS(AX_I);
    Axes a = { 0 }, t = { 0 };

    in->code = I_SOLVE;
    in->all = tile_leading(l, r);
    add_tile(&a, l, 1, n->a[0]);
    add_tile(&a, l, 0, r);
    t = a;
    for (int k = 0; k <= NRANKS; k++)
        rename_axis(&t, 1, AX_J + k, k);
    Loop m = loop_over(&a, rows), k = loop_over(&t, rows);
    Loop cols = loop_over(&a, n->axes & ~rows & ~ax);
    if (m.n != 1 || k.n != 1)
        fail_code(l->c, ERR_INTERNAL, "solve: rows of axes %s",
                  axes_text(l->g, n->axes));
    in->m = m.d[0];
    in->k = k.d[0];
    in->n = loop_pop(&cols);
    in->loop = loop_over(&a, n->axes & ~rows & ax);
    loop_join(&in->loop, &cols);
}

static void lower_gsolve(const Lower *l, Ref r, Instr *in)
{
    const Node *n = &l->g->n[r];

    ensure(l->g, axes_of(l, n->a[0]) == (AXIS(AX_I) | AXIS(AX_J)), n->op,
           n->a[0]);
    in->code = I_GSOLVE;
    in->all = tile_leading(l, r);
    in->cols = tile_floats(l, r) / l->chunk;
}

int64_t instr_scratch(const Lower *l, const Instr *in)
{
    int n = l->chunk;

    if (in->code == I_DOT && in->kind == DOT_GEMM)
        return (int64_t)gemm_scratch(dim_count(&in->k, n),
                                     dim_count(&in->n, n));
    if (in->code == I_GDOT)
        return gdot_scratch(in, n);
    if (in->code == I_SOLVE)
        return solve_scratch(in, n);
    if (in->code == I_GSOLVE)
        return gsolve_scratch(in, n);
    if (in->code == I_DMASK)
        return 2 * (int64_t)n * (in->row_rank + in->col_rank)
             + (int64_t)n * in->col_rank * in->cols + 2 * TILE_SLACK;
    if (in->code == I_MATSCAN)
        return 4 * (int64_t)in->cols + 16;
    if (in->code != I_SCAN)
        return 0;
    return 2 * (int64_t)in->cols * (1 + (in->increment ? in->increment->n : 0))
         + 16;
}

Instr lower_fused(const Lower *l, Ref r, const Ref x[3])
{
    Instr in = { .op = x[2] ? FUSED_DECAY : FUSED_SCALE, .wide = -1,
                 .chain = 1, .arity = x[2] ? 3 : 2 };

    elem_loops(l, r, x, &in);
    return in;
}

static void lower_number(const Lower *l, Ref r, Instr *in)
{
    in->code = I_CONST;
    if (l->g->n[r].op == OP_size)
        in->num = l->g->axis[l->g->n[r].index].size;
}

static void lower_given(const Lower *l, Ref r, Instr *in)
{
    if (l->g->n[r].op == OP_input)
        in->code = I_LOAD;
}

static _Noreturn void not_in_chunks(const Lower *l, Ref r, const char *who)
{
    fail_code(l->c, ERR_INTERNAL, "%s: %s have it alone",
              op_info[l->g->n[r].op].name, who);
}

static void lower_log_sum(const Lower *l, Ref r, Instr *in)
{
    (void)in;
    not_in_chunks(l, r, "row programs");
}

static void lower_rank(const Lower *l, Ref r, Instr *in)
{
    (void)in;
    not_in_chunks(l, r, "schedules' plans");
}

typedef void Lowers(const Lower *, Ref, Instr *);

static Lowers *const lower_of[NOPS] = {
#define ELEM(name, arity, traits, value, ga, gb, gc) [OP_##name] = lower_elem,
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    [OP_##name] = lower_##kind,
#include "../../compiler/ops.def"
};

AxisSet operand_axes(const Lower *l, Ref r, int p)
{
    const Node *n = &l->g->n[r];
    AxisSet own = axes_of(l, n->a[p]), out = n->axes, need[4];
    AxisSet first = out & ~AXIS(AX_I);  /* what a scan starts from */
    Lowers *by = lower_of[n->op];
    bool swap;

    if (by == lower_scan || by == lower_matscan)
        return p && p == op_info[n->op].arity - 1 ? first
             : p || by == lower_scan ? out : matrix_axes(l, n);
    if (by == lower_dmask)
        return out & ((p ? COL_AXES : ROW_AXES) | DIM_AXES);
    if ((by == lower_solve || by == lower_gsolve) && p)
        return out;
    return by == lower_gdot && gdot_kind(l, r, need, &swap) != GDOT_ANY
         ? need[p] : own;
}

Instr lower_node(const Lower *l, Ref r, int part)
{
    const Node *n = &l->g->n[r];
    Instr in = { .op = n->op, .flags = n->flags, .num = n->num, .wide = -1,
                 .index = n->index, .chain = 1, .part = (uint8_t)part };

    lower_of[n->op](l, r, &in);
    return in;
}
