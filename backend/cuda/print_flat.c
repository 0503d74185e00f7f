/* print_flat.c -- what has an instruction of its own in kernels of chunks whose
 * warps all do the same: products on the tensor cores, what goes along the
 * tokens, and solves, by the device's routines (products.cuh, scans.cuh).
 */
#include "print_tokens.h"
#include "source.h"

static const char *truth(bool x) { return x ? "true" : "false"; }

static const char *precision(const Walk *w)
{
    return is_exact(w->s) ? "TF32X3" : "TF32";
}

static DType type_at(const Walk *w, const KSpot *s)
{
    return token_type(w, value_at(&w->p, s->value));
}

static Ref own_node(const Walk *w) { return w->k->node[w->k->nnodes - 1]; }

/* The value that the instruction leaves, at the coordinates in hand. */
static const char *place_text(const Walk *w)
{
    KSpot s = flat_spot(w->s, own_node(w));
    return ctx_format(w->c, "t%d[%s]", fragment_root(w->s, s.value),
                      token_index(w, &s, NOTHING, NULL));
}

/* ---- products ---- */

/* How many neighbours can be read as one: two, where all places are even. */
static int as_one(const KSpot *s, int32_t rs, int32_t cs, AxisSet loops)
{
    int32_t all = rs | s->at | s->tail;
    for (; loops; loops &= loops - 1)
        all |= s->st[lowest(loops)];
    return cs == 1 && all % 2 == 0 ? 2 : 1;
}

/* Rows rs apart, columns cs, of what lies there at the loops' coordinates. */
static const char *matrix_text(const Walk *w, const KSpot *s, int32_t rs,
                               int32_t cs, AxisSet loops)
{
    KSpot first = *s;
    for (int ax = 0; ax < NAXES; ax++)
        first.st[ax] = loops & AXIS(ax) ? s->st[ax] : 0;
    return ctx_format(w->c, "matrix<%d, %d, %d>(t%d + %s)", (int)rs, (int)cs,
                      as_one(s, rs, cs, loops),
                      fragment_root(w->s, s->value),
                      token_index(w, &first, NOTHING, NULL));
}

static const char *size_text(const Walk *w, const KRun *run)
{
    int32_t each = run->size / w->s->tokens.rows;
    return !run->tokens ? ctx_format(w->c, "%d", (int)run->size)
         : each > 1 ? ctx_format(w->c, "n * %d", (int)each) : "n";
}

/* Fragments that a warp has at a time, of 16 rows and of 8 columns: as many as
 * leave no warp idle. */
static void find_piece(const Walk *w, const KFactors *p, int *mt, int *nt)
{
    enum { MOST = 4 };
    int rows = (p->m.size + 15) / 16, cols = (p->n.size + 7) / 8;
    int each = rows * cols / (w->s->tokens.threads / LANES);

    *mt = rows % 2 == 0 && each >= 4 ? 2 : 1;
    *nt = 1;
    while (*nt < MOST && *nt * *mt * 2 <= each && cols % (*nt * 2) == 0)
        *nt *= 2;
}

static void open_loops(Walk *w, Ref r, AxisSet loops)
{
    for (; loops; loops &= loops - 1) {
        int ax = lowest(loops);
        const char *x = token_coord(w, ax);
        buf_printf(w->b, "for (int %s = 0; %s < %s; %s++) {\n", x, x,
                   count_text(w, operand_along(w->s, r, ax), AXIS(ax)), x);
    }
}

static void close_loops(Walk *w, AxisSet loops)
{
    for (; loops; loops &= loops - 1)
        buf_printf(w->b, "}\n");
}

void put_product(Walk *w)
{
    Ref r = own_node(w);
    KFactors p;
    int mt, nt;
    Buf *b = w->b;

    flat_factors(w->s, r, &p);
    find_piece(w, &p, &mt, &nt);
    open_loops(w, r, p.loops);
    bool narrow = type_at(w, &p.at[0]) == BF16
               && type_at(w, &p.at[1]) == BF16;
    buf_printf(b, "product<%s, %d, %d, %s, %s, %s>(%s, %s, %s,\n",
               narrow ? "BFLOAT" : precision(w), mt, nt,
               truth(!p.k.tokens && p.k.size % 16 == 0),
               truth(!p.m.tokens && p.m.size % (16 * mt) == 0),
               truth(!p.n.tokens && p.n.size % (8 * nt) == 0),
               size_text(w, &p.m), size_text(w, &p.n), size_text(w, &p.k));
    buf_printf(b, "%s,\n%s,\n[&](int row, int col, float x) {\n",
               matrix_text(w, &p.at[0], p.m.st[0], p.k.st[0],
                           p.loops & w->g->n[p.a[0]].axes),
               matrix_text(w, &p.at[1], p.n.st[0], p.k.st[1],
                           p.loops & w->g->n[p.a[1]].axes));
    if (p.m.axes)
        put_coords(w, "row", r, p.m.axes, "return");
    if (p.n.axes)
        put_coords(w, "col", r, p.n.axes, "return");
    KSpot to = flat_spot(w->s, r);
    buf_printf(b, dtype_size(type_at(w, &to)) < 4 ? "put(&%s, x);\n});\n"
               : "%s = x;\n});\n", place_text(w));
    close_loops(w, p.loops);
}

/* ---- under decays ---- */

static const char *plain_matrix(const Walk *w, Ref r, int row, int col)
{
    KSpot s = flat_spot(w->s, r);
    return matrix_text(w, &s, s.st[row], s.st[col], 0);
}

void put_under_decays(Walk *w)
{
    Ref r = own_node(w);
    const Node *n = &w->g->n[r];
    KDecayed d;

    flat_decayed(w->s, r, &d);
    int size = flat_extent(w->s, operand_along(w->s, r, d.key), d.key);
    buf_printf(w->b, "%s<%s, %s, ", d.scores ? "gated_keys" : "gated_tokens",
               precision(w), truth(n->flags & STRICT));
    if (!d.scores)
        buf_printf(w->b, "%s, ", truth(d.own == AX_J));
    buf_printf(w->b, "%d>(n,\n%s,\n%s,\n%s,\n%s,\n"
               "[&](int %s, int %s, float x) {\n%s = x;\n});\n", size,
               plain_matrix(w, d.a[0], d.scores ? AX_I : d.own,
                            d.scores ? d.key : d.other),
               plain_matrix(w, d.a[1], d.scores ? AX_J : d.other, d.key),
               plain_matrix(w, n->a[2], AX_I, d.key),
               plain_matrix(w, n->a[3], AX_J, d.key),
               token_coord(w, d.scores ? AX_I : d.own),
               token_coord(w, d.scores ? AX_J : d.key), place_text(w));
}

/* ---- along the tokens ---- */

/* An operand at token i, as the function that scans call. */
static const char *along_text(const Walk *w, Ref x, bool back)
{
    return ctx_format(w->c, "[&](int at) {\nconst int i = %s;\n(void)i;\n"
                      "return %s;\n}", back ? "n - 1 - at" : "at",
                      x ? token_element(w, x) : "0.f");
}

/* Few columns have a warp each; many, a thread. */
static void put_scan_of(Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    bool sum = adds_tokens(n->op), back = n->flags & REVERSE;
    Ref gate = sum ? 0 : n->a[0];
    AxisSet cols = n->axes & ~AXIS(AX_I);
    bool lanes = flat_count(w->s, r, cols) <= w->s->tokens.threads / LANES;
    const char *type = n->flags & WRAP ? "Angle"
                     : ctype_text(flat_type(w->s, r));
    const char *how = is_running_most(n->op) ? "Reaching" : gate ? "Scaling"
                    : n->flags & WRAP ? "Turning"
                    : ctx_format(w->c, "Adding<%s>", type);

    buf_printf(w->b, lanes ? "for (int e = WARP; e < %s; e += WARPS) {\n"
                           : "for (int e = TID; e < %s; e += THREADS) {\n",
               count_text(w, r, cols));
    put_coords(w, "e", r, cols, "continue");
    buf_printf(w->b, "const %s s = %s;\n%s<%s>(n, s, %s, %s,\n", type,
               sum ? "0" : token_element(w, n->a[2]),
               lanes ? "scan_lanes" : "scan_alone", how,
               along_text(w, gate, back),
               along_text(w, sum ? n->a[0] : n->a[1], back));
    buf_printf(w->b, "[&](int at, %s found, %s left) {\nconst int i = %s;\n"
               "%s = %s;\n(void)%s;\n});\n}\n", type, type,
               back ? "n - 1 - at" : "at", place_text(w),
               n->flags & EXCLUSIVE ? "found" : "left",
               n->flags & EXCLUSIVE ? "left" : "found");
}

/* A thread has a column's vectors, of the few numbers that a matrix of the
 * token makes of those before. */
static void put_matscan(Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    const char *row = token_coord(w, n->index);
    const char *col = token_coord(w, lowest(n->over));
    bool trans = n->flags & TRANS;
    int len = (int)flat_extent(w->s, r, n->index);
    Buf *b = w->b;

    open_loop(w, r, n->axes & ~AXIS(AX_I) & ~AXIS(n->index));
    buf_printf(b, "float found[%d], left[%d];\nUNROLL\n"
               "for (int %s = 0; %s < %d; %s++)\nfound[%s] = %s;\n", len, len,
               row, row, len, row, row, token_element(w, n->a[2]));
    buf_printf(b, "NO_UNROLL\nfor (int at = 0; at < n; at++) {\n"
               "const int i = %s;\n(void)i;\nUNROLL\n"
               "for (int %s = 0; %s < %d; %s++)\nleft[%s] = %s;\n",
               n->flags & REVERSE ? "n - 1 - at" : "at", row, row, len, row,
               row, token_element(w, n->a[1]));
    buf_printf(b, "UNROLL\nfor (int %s = 0; %s < %d; %s++) {\nUNROLL\n"
               "for (int %s = 0; %s < %d; %s++)\nleft[%s] += %s * found[%s];\n"
               "}\n", row, row, len, row, col, col, len, col,
               trans ? col : row, token_element(w, n->a[0]),
               trans ? row : col);
    buf_printf(b, "UNROLL\nfor (int %s = 0; %s < %d; %s++) {\n"
               "found[%s] = left[%s];\n%s = left[%s];\n}\n}\n}\n", row, row,
               len, row, row, row, place_text(w), row);
}

/* A column, of which each entry decays on its own way, has as many lanes as
 * there are threads for, but no more than a block of rows has. Warps are whole:
 * lanes behind the last column do as it does, and leave nothing. */
static void put_decayed_system(Walk *w, Ref r)
{
    enum { MOST = 16 };
    const Node *n = &w->g->n[r];
    AxisSet cols = n->axes & ~AXIS(AX_I);
    int count = flat_count(w->s, r, cols), side = 1;
    Buf *b = w->b;

    while (side < MOST && 2 * side * count <= w->s->tokens.threads)
        side *= 2;
    int each = LANES / side, groups = (count + each - 1) / each * each;
    buf_printf(b, "for (int group = TID / %d; group < %d; "
               "group += THREADS / %d) {\nconst bool real = group < %d;\n"
               "const int e = real ? group : %d;\n", side, groups, side, count,
               count - 1);
    put_coords(w, "e", r, cols, "continue");
    buf_printf(b, "solve_decayed<%s, %s, %d>(n, [&](int i, int j) -> float {\n"
               "return %s;\n}", truth(n->flags & TRANS),
               truth(n->flags & EXCLUSIVE), side, token_element(w, n->a[0]));
    for (int i = 1; i < 4; i++)
        buf_printf(b, ",\n[&](int i) {\nreturn %s;\n}",
                   (i < 3 ? token_element : exact_element)(w, n->a[i]));
    buf_printf(b, ",\n[&](int i) {\nreturn real ? %s : 0.f;\n},\n"
               "[&](int i, float x) {\nif (real)\n%s = x;\n});\n}\n",
               place_text(w), place_text(w));
}

void put_along(Walk *w)
{
    Ref r = own_node(w);
    int op = w->g->n[r].op;

    (is_decayed_system(op) ? put_decayed_system
     : is_matrix_scan(op) ? put_matscan : put_scan_of)(w, r);
}

/* ---- solves ---- */

/* Stride of the rows: tokens and the ranks that run with them. */
static int32_t row_stride(const Walk *w, Ref r, const KSpot *s, AxisSet rows)
{
    int32_t st = 0;

    for (; rows; rows &= rows - 1) {
        int ax = lowest(rows);
        if (st && st != s->st[ax] * flat_extent(w->s, r, ax))
            fail_code(w->c, ERR_INTERNAL, "solve: rows of axes %s",
                      axes_text(w->g, w->g->n[r].axes));
        st = s->st[ax];
    }
    return st;
}

/* Whether the matrix's rows start at multiples of 16 bytes. */
static bool in_fours(const Walk *w, Ref m, const KSpot *s, int32_t rows,
                     AxisSet loops)
{
    int32_t all = rows | s->at | s->tail;

    for (; loops; loops &= loops - 1)
        all |= s->st[lowest(loops)];
    return all % 4 == 0
        && token_type(w, value_at(&w->p, s->value)) == F32
        && w->g->n[m].axes;
}

/* Rows are tokens and those ranks whose twins the matrix has in its columns; of
 * the other axes, those that it lacks are columns. The right-hand side is
 * copied first, and solved in place. */
void put_solve(Walk *w)
{
    Ref r = own_node(w), m = w->g->n[r].a[0];
    const Node *n = &w->g->n[r];
    AxisSet ax = w->g->n[m].axes, rows = solve_rows(w->g, n);
    AxisSet cols = n->axes & ~rows & ~ax, loops = n->axes & ~rows & ax;
    KSpot x = flat_spot(w->s, r), a = flat_spot(w->s, m);
    int32_t count = 1, step = 0;
    int ranks = (int)flat_count(w->s, r, rows & ~AXIS(AX_I));
    int inverse = schedule_value(w->s, r, LAY_PARTIAL);

    open_loop(w, r, n->axes);
    buf_printf(w->b, "%s = %s;\n}\n__syncthreads();\n", place_text(w),
               token_element(w, n->a[1]));
    for (AxisSet s = cols; s; s &= ~AXIS(highest(s))) {
        int c = highest(s);
        if (step && x.st[c] != step * count) {
            loops |= s;
            break;
        }
        step = step ? step : x.st[c];
        count *= flat_extent(w->s, r, c);
    }
    KSpot at_a = a, at_x = x;
    for (int c = 0; c < NAXES; c++) {
        at_a.st[c] = loops & ax & AXIS(c) ? a.st[c] : 0;
        at_x.st[c] = loops & AXIS(c) ? x.st[c] : 0;
    }
    int32_t rs = row_stride(w, m, &a, ax & ROW_AXES & rows);
    int32_t cs = row_stride(w, m, &a, ax & COL_AXES);
    open_loops(w, r, loops);
    buf_printf(w->b, "solve<%s, %d, %d, %d, %d, %s>(n * %d, %d, t%d + %s,"
               " t%d + %s, t%d);\n", truth(n->flags & TRANS), (int)rs, (int)cs,
               (int)row_stride(w, r, &x, rows), (int)(step ? step : 1),
               truth(cs == 1 && in_fours(w, m, &a, rs, loops & ax)), ranks,
               (int)count, fragment_root(w->s, a.value),
               token_index(w, &at_a, NOTHING, NULL),
               fragment_root(w->s, x.value),
               token_index(w, &at_x, NOTHING, NULL), inverse);
    close_loops(w, loops);
}
