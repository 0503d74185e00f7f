/* print_map.c -- element-wise programs over a space: what they find, the loop
 * over a lane's elements, the tiles that they leave. Those that are made of
 * memory alone, in memory, may go through their columns part by part.
 */
#include "print_parts.h"
#include "source.h"

#include <math.h>

/* How far a lane's first row is behind its first column; in the loop, how far
 * the element's column is behind those. */
static void put_over(Print *p, const KInst *k)
{
    if (has_masks(p, k))
        buf_printf(p->b, "const int over = l.row - l.col;\n");
}

static void put_past(Print *p, const KInst *k)
{
    int share = map_share(p, k), each = share / 2;
    if (has_masks(p, k))
        buf_printf(p->b, "const int past = col0(%d) + e %% %d / 4 * 8 + e %% 2"
                   " - 8 * h - e / %d * 64%s;\n", share, each, each,
                   deals_rows(p->s, k->role) ? " - row0" : "");
}

/* Whether the angle is among sums that are kept within half a circle. */
static bool is_angle_near(const Print *p, const KInst *k, Ref angle)
{
    const Graph *g = p->s->g;
    Ref r = shown_node(g, angle);
    if (op_is(g->n[r].op, SPREADS))
        r = shown_node(g, g->n[r].a[0]);
    int v = schedule_value(p->s, r, LAY_SUMS);
    if (g->n[r].op == OP_wrap && has_node(k, r))
        return true;
    if (op_is(g->n[r].op, SHIFTS))
        r = shown_node(g, g->n[r].a[0]);
    return (g->n[r].op == OP_wrap || g->n[r].flags & WRAP)
        && v != NOTHING && has_value(k->in, k->nin, v);
}

static bool has_operand(const Graph *g, Ref r, Ref a)
{
    bool any = false;
    for (int i = 0; i < 4; i++)
        any |= g->n[r].a[i] && shown_node(g, g->n[r].a[i]) == a;
    return any;
}

/* Whether nothing but sines and cosines is made of it. */
static bool is_of_sines(const Graph *g, const KInst *k, Ref r)
{
    bool all = true;
    for (int i = 0; i < k->nnodes; i++)
        all &= g->n[k->node[i]].op == OP_sin || g->n[k->node[i]].op == OP_cos
            || !has_operand(g, k->node[i], r);
    return all;
}

/* Sines of 16 bits are as good of a few dozen turns as within half a one: an
 * angle's bound, in half turns, as the program finds or makes it; 0: none is
 * known. */
static int half_turns(const Print *p, Ref o)
{
    const Graph *g = p->s->g;
    Ref r = shown_node(g, o);
    const Node *n = &g->n[r];
    int a, b;
    if (n->op == OP_wrap || is_angle_state(g, r))
        return 1;
    if (n->op != OP_add && n->op != OP_mul)
        return 0;
    a = counts_tokens(g, n->a[0]) ? g->chunk : half_turns(p, n->a[0]);
    b = counts_tokens(g, n->a[1]) ? g->chunk : half_turns(p, n->a[1]);
    return !a || !b ? 0 : n->op == OP_add ? a + b : a * b;
}

static bool is_left_as_it_is(const Print *p, const KInst *k, Ref r)
{
    enum { MOST = 128 };
    const Graph *g = p->s->g;
    int bound = g->n[r].op == OP_wrap ? half_turns(p, g->n[r].a[0]) : 0;
    bool sines = bound > 0 && bound <= MOST && p->s->tile != F32;
    for (int i = 0; i < k->nout; i++)
        sines &= value_at(p, k->out[i])->node != r;
    for (int i = 0; i < k->nnodes && sines; i++) {
        const Node *n = &g->n[k->node[i]];
        bool reads = has_operand(g, k->node[i], r);
        sines = !reads || n->op == OP_sin || n->op == OP_cos
             || (op_is(n->op, SPREADS) && is_of_sines(g, k, k->node[i]));
    }
    return sines;
}

/* Whether it has been wrapped as it was found. */
static bool finds_wrapped(const Print *p, const KInst *k, Ref r)
{
    const Graph *g = p->s->g;
    Ref of = g->n[r].op == OP_wrap ? shown_node(g, g->n[r].a[0]) : 0;
    int v = of ? schedule_value(p->s, of, LAY_GLOBAL) : NOTHING;
    return v != NOTHING && has_value(k->in, k->nin, v)
        && is_spread(p, k, value_at(p, v)) && is_wrapped_alone(p, k, of);
}

/* ---- x sigmoid(x), of 16 bits ---- */

/* Whether it is rounded to 16 bits wherever it goes, and nowhere else. */
static bool is_rounded(const Print *p, const KInst *k, Ref r)
{
    bool rounded = p->s->tile != F32;
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        rounded &= v->node != r || v->layout == LAY_TILE
                || v->layout == LAY_PACKED;
    }
    for (int i = 0; i < k->nnodes; i++)
        rounded &= !has_operand(p->s->g, k->node[i], r);
    return rounded;
}

/* The program finds it, of 16 bits, before its loop. */
static bool is_found_packed(const Print *p, const KInst *k, Ref r)
{
    int v = schedule_value(p->s, r, LAY_TILE);
    return p->s->tile != F32 && v != NOTHING && has_value(k->in, k->nin, v)
        && !is_found_by_steps(p, k, value_at(p, v))
        && schedule_value(p->s, r, LAY_FRAGMENT) == NOTHING;
}

/* The x that r is x sigmoid(x) of, or 0. */
static Ref swish_of(const Print *p, const KInst *k, Ref r)
{
    const Graph *g = p->s->g;
    for (int i = 0; i < 2 && g->n[r].op == OP_mul; i++) {
        Ref s = shown_node(g, g->n[r].a[i]), x = shown_node(g, g->n[r].a[!i]);
        if (g->n[s].op == OP_sigmoid && has_node(k, s)
            && shown_node(g, g->n[s].a[0]) == x && is_found_packed(p, k, x)
            && is_rounded(p, k, r))
            return x;
    }
    return 0;
}

/* Whether such values alone want the sigmoid. */
static bool is_of_swish(const Print *p, const KInst *k, Ref s)
{
    bool alone = p->s->g->n[s].op == OP_sigmoid;
    for (int i = 0; i < k->nout; i++)
        alone &= value_at(p, k->out[i])->node != s;
    for (int i = 0; i < k->nnodes && alone; i++)
        alone &= !has_operand(p->s->g, k->node[i], s)
              || swish_of(p, k, k->node[i]);
    return alone;
}

/* Of the program's tiles that such values are made of, where one is deep below
 * zero and how much each half is. False: there are none. */
static bool put_swish_begin(Print *p, const KInst *k, int regs)
{
    const char *deepest = NULL;
    for (int i = 0; i < k->nnodes; i++) {
        Ref x = swish_of(p, k, k->node[i]);
        if (!x)
            continue;
        buf_printf(p->b, "u32 half%u[%d];\nhalve(half%u, t%u);\n",
                   (unsigned)x, regs / 2, (unsigned)x, (unsigned)x);
        deepest = ctx_format(p->c, deepest ? "deepest(t%u, %s)"
                             : "deepest(t%u)", (unsigned)x, deepest);
    }
    if (deepest)
        buf_printf(p->b, "const bool deep = %s != MINUS8;\n", deepest);
    return deepest;
}

static const char *swish_text(Print *p, const KInst *k, Ref x)
{
    return ctx_format(p->c, "swish<%d>(%s, e & 1 ? high(half%u[e / 2])"
                      " : low(half%u[e / 2]))", p->deep, element_of(p, k, x),
                      (unsigned)x, (unsigned)x);
}

/* Whether it is a number and something, in float32: 0, or no smaller than what
 * that number's last bits are, a product that is not rounded included. */
static bool is_normal(const Graph *g, Ref r)
{
    const double least = 0x1p-60;
    const Node *n = &g->n[r];
    bool sum = false;
    for (int i = 0; i < 2 && (n->op == OP_add || n->op == OP_sub); i++)
        sum |= g->n[n->a[i]].op == OP_num && fabs(g->n[n->a[i]].num) >= least;
    return sum;
}

static void put_node_text(Print *p, const KInst *k, Ref r)
{
    Ref swish = swish_of(p, k, r);
    const Node *n = &p->s->g->n[r];
    const char *x[3] = { "", "", "" };
    Buf *b = p->b;
    bool pairs = op_is(n->op, PAIRS);
    for (int i = 0; i < op_info[n->op].arity && i < 3 && n->a[i] && !pairs
                    && !op_is(n->op, SHIFTS); i++)
        x[i] = element_of(p, k, n->a[i]);
    if (is_mask(n->op))
        buf_printf(b, "%s", masked_decay(p, k, n));
    else if (swish)
        buf_printf(b, "%s", swish_text(p, k, swish));
    else if (pairs)
        buf_printf(b, "%s", pairs_text(p, k, r));
    else if (op_is(n->op, SHIFTS))
        buf_printf(b, "%s", delayed_text(p, k, r));
    else if (left_of_factor(p, k, r) >= 0)
        buf_printf(b, "%s", x[left_of_factor(p, k, r)]);
    else if (op_is(n->op, MULTIPLIES))
        buf_printf(b, "%s * %s", x[0], x[1]);
    else if (is_left_as_it_is(p, k, r) || finds_wrapped(p, k, r))
        buf_printf(b, "%s", x[0]);
    else if (op_is(n->op, ADDS_UP | ONE_ROW))
        buf_printf(b, "%s", x[0]);
    else if (op_is(n->op, OF_RANKS))
        buf_printf(b, "of_rank(%s, %d, l)", x[0], (int)n->index);
    else if ((n->op == OP_sin || n->op == OP_cos)
             && is_angle_near(p, k, n->a[0]))
        buf_printf(b, "%s_near_(%s)", op_info[n->op].name, x[0]);
    else if (n->op == OP_log && is_normal(p->s->g, n->a[0]))
        buf_printf(b, "log_normal_(%s)", x[0]);
    else
        value_text(b, n->op, x);
}

static void put_map_node(Print *p, const KInst *k, Ref r)
{
    if (is_of_swish(p, k, r))
        return;
    const char *masked = masked_text(p, k, r);
    buf_printf(p->b, goes_by_pairs(p, k) ? "x%u[e & 1] = "
                                         : "const float x%u = ", (unsigned)r);
    if (masked)
        buf_printf(p->b, "kept_(%s, ", masked);
    if (is_computed_early(p, k, r))
        buf_printf(p->b, "m%u[e]", (unsigned)r);
    else
        put_node_text(p, k, r);
    buf_printf(p->b, masked ? ");\n" : ";\n");
}

/* Which of a program's operands are found: those of its decays, or the others.
 */
typedef enum Found { FOUND_ALL, FOUND_OF_DECAYS, FOUND_OTHERS } Found;

static bool is_found(const Print *p, const KInst *k, const KValue *v, Found how)
{
    bool any = false;
    if (how == FOUND_OTHERS && v->layout == LAY_VECTOR)
        return !is_of_decays(p, k, v->node);
    for (int i = 0; i < k->nnodes && how == FOUND_OF_DECAYS; i++)
        for (int j = 0; j < 2 && is_computed_early(p, k, k->node[i]); j++)
            any |= shown_node(p->s->g, p->s->g->n[k->node[i]].a[j]) == v->node;
    return any || how != FOUND_OF_DECAYS;
}

static void put_read(Print *p, const KInst *k, const KValue *v,
                     const char *to, const char *col)
{
    int share = map_share(p, k);
    for (int r = 0; r < k->nrow; r += TILE_ROWS)
        buf_printf(p->b, "read_columns<%d>(%s%u + %d, %s%s + %d, %d, %s, l);\n",
                   share / 16, to, (unsigned)v->node,
                   r / TILE_ROWS * share / 4, place(p, v), !v->half ? ""
                   : ctx_format(p->c, " - %s * %d", half_text(p),
                                (int)value_bytes(v)),
                   r * 128, rows_lying(v), col);
}

/* Whether the block makes half the columns, another one the others. */
static bool makes_half(const Print *p, const KInst *k)
{
    return k->nout && value_at(p, k->out[0])->given;
}

/* Of a program in parts; of warpgroups that take chunks round-robin each has
 * all. */
static const char *first_column(const Print *p, const KInst *k)
{
    const char *half = !makes_half(p, k) ? ""
        : ctx_format(p->c, "%s * %d + ", half_text(p), (int)k->ncol);
    return k->role == KR_AHEAD && p->s->interleave > 1
         ? ctx_format(p->c, "%s0", half)
         : ctx_format(p->c, "%sgroup * %d", half,
                      (int)share_of(p->s, k->role, k->ncol));
}

/* A vector of which pairs of the part's columns from col on have an entry each.
 */
static void put_read_spread(Print *p, const KInst *k, const KValue *v,
                            const char *col)
{
    buf_printf(p->b, "UNROLL for (int n = 0; n < %d; n++)\nahead%u[n] ="
               " load1(%s + 4 * ((%s + n * 8 + l.col) / 2));\n",
               map_share(p, k) / 8, (unsigned)v->node, place(p, v), col);
}

/* Whether the program finds the vector along its rows alone. */
static bool is_of_rows(const Print *p, const KInst *k, const KValue *v)
{
    bool rows = map_rows(p, k) <= TILE_ROWS;
    for (int n = 0; n < k->nnodes; n++)
        for (int j = 0; j < 4; j++) {
            Ref o = p->s->g->n[k->node[n]].a[j];
            rows &= shown_node(p->s->g, o) != v->node
                 || (runs_along_rows(p, k, o)
                     && !op_is(p->s->g->n[k->node[n]].op, SHIFTS));
        }
    return rows && !is_found_by_steps(p, k, v);
}

static void put_found_rows(Print *p, const KInst *k, const KValue *v)
{
    unsigned u = (unsigned)v->node;
    buf_printf(p->b, "float r%u[2];\nUNROLL for (int h = 0; h < 2; h++)\n"
               "r%u[h] = %sparts_sum<%d>(%s, %d, %sl.row + 8 * h);\n", u, u,
               factor_text(p, k, v->node), v->parts, place(p, v),
               (int)vector_size(v), row0_text(p, k));
}

/* Of the first part. */
static void put_read_first(Print *p, const KInst *k, int regs)
{
    for (int i = 0; i < k->nin && loads_ahead(p, k); i++) {
        const KValue *v = value_at(p, k->in[i]);
        if (v->layout != LAY_TILE || is_found_by_steps(p, k, v))
            continue;
        buf_printf(p->b, "%s ahead%u[%d];\n", two_type(p), (unsigned)v->node,
                   regs / 2);
        put_read(p, k, v, "ahead", first_column(p, k));
    }
    for (int i = 0; i < k->nin && loads_ahead(p, k); i++) {
        const KValue *v = value_at(p, k->in[i]);
        if (v->layout == LAY_VECTOR && is_spread(p, k, v)) {
            buf_printf(p->b, "float ahead%u[%d];\n", (unsigned)v->node,
                       map_share(p, k) / 8);
            put_read_spread(p, k, v, first_column(p, k));
        } else if (v->layout == LAY_VECTOR && is_of_rows(p, k, v)) {
            put_found_rows(p, k, v);
        }
    }
}

/* Of this part, and those of the next. */
static void put_spread_part(Print *p, const KInst *k, const KValue *v)
{
    unsigned u = (unsigned)v->node;
    int share = map_share(p, k);
    buf_printf(p->b, "float d%u[%d];\nUNROLL for (int n = 0; n < %d; n++)\n"
               "d%u[n] = ahead%u[n];\nif (part + 1 < %d) {\n", u, share / 8,
               share / 8, u, u, k->parts);
    put_read_spread(p, k, v, ctx_format(p->c, "col0(%d) + %d", share, share));
    buf_printf(p->b, "}\n");
}

/* What the program finds: tiles as packed fragments, vectors, numbers. */
static void put_operands(Print *p, const KInst *k, int regs, Found how)
{
    Buf *b = p->b;
    int share = map_share(p, k);
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = value_at(p, k->in[i]);
        unsigned u = (unsigned)v->node;
        if (is_found_by_steps(p, k, v) || !is_found(p, k, v, how)
            || is_wide(p->s, v)) {
            continue;
        } else if (v->layout == LAY_TILE && loads_ahead(p, k)) {
            buf_printf(b, "%s t%u[%d];\nUNROLL for (int i = 0; i < %d; i++)\n"
                       "t%u[i] = ahead%u[i];\nif (part + 1 < %d) {\n",
                       two_type(p), u, regs / 2, regs / 2, u, u, k->parts);
            put_read(p, k, v, "ahead", ctx_format(p->c, "col0(%d) + %d", share,
                                                  share));
            buf_printf(b, "}\n");
        } else if (v->layout == LAY_TILE) {
            buf_printf(b, "%s t%u[%d];\n", two_type(p), u, regs / 2);
            put_read(p, k, v, "t", ctx_format(p->c, "col0(%d)", share));
        } else if (v->layout == LAY_SCALAR) {
            buf_printf(b, "const float s%u = parts_sum<%d>(%s, 1, 0);\n", u,
                       v->parts, place(p, v));
        } else if (v->layout == LAY_VECTOR) {
            bool rows = false, cols = false;
            const char *times = factor_text(p, k, v->node);
            for (int n = 0; n < k->nnodes; n++)
                for (int j = 0; j < 4; j++) {
                    Ref o = p->s->g->n[k->node[n]].a[j];
                    if (shown_node(p->s->g, o) != v->node
                        || (j == 0 && op_is(p->s->g->n[k->node[n]].op, SHIFTS)))
                        continue;
                    rows |= runs_along_rows(p, k, o);
                    cols |= !runs_along_rows(p, k, o);
                }
            if (loads_ahead(p, k) && is_spread(p, k, v)) {
                put_spread_part(p, k, v);
                continue;
            }
            if (loads_ahead(p, k) && is_of_rows(p, k, v))
                continue;
            if (rows && map_rows(p, k) <= TILE_ROWS)
                put_found_rows(p, k, v);
            else if (rows)
                buf_printf(b, "float r%u[%d];\nUNROLL for (int h = 0; h < %d;"
                           " h++)\nr%u[h] = %sparts_sum<%d>(%s, %d, l.row +"
                           " h / 2 * 64 + h %% 2 * 8);\n", u, thread_rows(k),
                           thread_rows(k), u, times, v->parts, place(p, v),
                           (int)vector_size(v));
            if (cols && is_found_by_columns(p, k, v))
                buf_printf(b, "float2 d%u = { 0.f, 0.f };\n", u);
            else if (cols)
                buf_printf(b, "float c%u[%d];\nUNROLL for (int e = 0; e < %d;"
                           " e++)\nc%u[e] = %sparts_sum<%d>(%s, %d, col0(%d)"
                           " + e / 2 * 8 + l.col + e %% 2);\n", u, share / 4,
                           share / 4, u, times, v->parts, place(p, v),
                           (int)vector_size(v), share);
        }
    }
}

static void put_wide(Print *p, const KInst *k, const KValue *v)
{
    buf_printf(p->b, "write_wide(%s, %s, col0(%d), l);\n", place(p, v),
               fragment_name(p, v->node), share_of(p->s, k->role, v->ncol));
}

/* Whether it finds among sums what it leaves as a tile, or a fragment. */
static bool passes_on(const Print *p, const KInst *k, const KValue *v)
{
    return (v->layout == LAY_TILE || v->layout == LAY_FRAGMENT)
        && found_among_sums(p->s, k, v->node);
}

static bool alternates(const Print *p, const KValue *v)
{
    return v->layout == LAY_TILE && buffer_of(p, v)->uses > 1;
}

/* Where the warpgroup's 64 rows, and columns of the space from col on, lie in a
 * tile: as rows, or as columns. */
static const char *rows_place(Print *p, const KValue *v, int col)
{
    int rows = rows_lying(v);
    bool transposed = v->row != p->s->row_axis;
    int at = transposed ? col * 128 : col / TILE_COLS * rows * 128;
    return ctx_format(p->c, at ? "%s + row0 * %d + %d" : "%s + row0 * %d",
                      place(p, v), transposed ? rows * 2 : 128, at);
}

/* 64 columns at a time; what is kept of tokens has zeros behind the end. */
static void put_rows_tile(Print *p, const KInst *k, const KValue *v)
{
    bool transposed = v->row != p->s->row_axis;
    bool ends = v->row == AX_I && p->s->stores[v->node];
    const char *from = fragment_name(p, v->node);
    for (int col = 0; col < k->ncol; col += TILE_COLS)
        buf_printf(p->b, "{\nu32 p[16];\npack_all(p, %s);\n%swrite_%s(%s, p,"
                   " l);\n}\n", k->ncol == TILE_COLS ? from
                   : ctx_format(p->c, "%s + %d", from, col / 2),
                   ends ? "if (x.n < 64)\nclear_columns(p, x.n, l);\n" : "",
                   transposed ? "transposed" : "fragment",
                   rows_place(p, v, col));
}

static bool is_multiplied(const Print *p, const KValue *v)
{
    for (int i = 0; i < p->s->ninsts; i++) {
        const KInst *k = &p->s->inst[i];
        if (k->op == K_PRODUCT && value_at(p, k->in[0]) == v)
            return true;
    }
    return false;
}

/* A product's left factor; of tokens those behind the end are zeros. What the
 * program computes is packed as it goes. */
static void put_packed(Print *p, const KInst *k, const KValue *v)
{
    if (!has_node(k, v->node))
        buf_printf(p->b, "pack_all(p%u, %s);\n", (unsigned)v->node,
                   fragment_name(p, v->node));
    if (k->col == AX_I && is_multiplied(p, v)
        && !(walks_behind(p->s) && ends_in_zeros(p->s, k, v->node)))
        buf_printf(p->b, "if (x.n < 64)\nclear_columns(p%u, x.n, l);\n",
                   (unsigned)v->node);
    buf_printf(p->b, "keep(p%u);\n", (unsigned)v->node);
}

/* So much of what is packed as 64 columns have, from col on. */
static const char *packed_text(Print *p, const KInst *k, const KValue *v,
                               int col)
{
    unsigned u = (unsigned)v->node;
    return k->ncol == TILE_COLS ? ctx_format(p->c, "p%u", u)
         : ctx_format(p->c, "registers<16>(p%u, %d)", u, col / 4);
}

/* The same of a tile that is found. */
static void put_found_packed(Print *p, const KInst *k)
{
    const KValue *v = value_at(p, k->in[0]);
    unsigned u = (unsigned)v->node;
    const char *how = v->row == p->s->row_axis ? "fragment" : "transposed";
    for (int col = 0; col < k->ncol; col += TILE_COLS)
        buf_printf(p->b, "read_%s(%s, %s, l);\n", how,
                   packed_text(p, k, v, col), rows_place(p, v, col));
    buf_printf(p->b, "keep(p%u);\n", u);
}

/* A tile of what is packed. */
static void put_unpacked(Print *p, const KInst *k)
{
    const KValue *v = value_at(p, k->out[0]);
    each_bit(p, k, k->wait_empty, true, put_wait);
    if (alternates(p, v))
        put_wait(p, v->buffer, v->use, true);
    for (int col = 0; col < k->ncol; col += TILE_COLS)
        buf_printf(p->b, "write_transposed(%s, %s, l);\n",
                   rows_place(p, v, col), packed_text(p, k, v, col));
    p->fence_due |= !is_fenced_by_store(p, v);
    if (!alternates(p, v))
        return;
    put_fence(p);
    put_post(p, v->buffer, v->use, false);
}

static void put_tile(Print *p, const KInst *k, const KValue *v)
{
    int share = map_share(p, k);
    if (deals_rows(p->s, k->role)) {
        put_rows_tile(p, k, v);
        return;
    }
    Ref decays = cleared_decays(p, k);
    const char *clears = !decays ? "" : ctx_format(p->c, "clear_above(p, l.row"
        " - l.col%s, col0(%d));\n", p->s->g->n[decays].flags & STRICT
        ? " - 1" : "", share);
    for (int r = 0; r < k->nrow; r += TILE_ROWS)
        buf_printf(p->b, "{\n%s p[%d];\npack_rows(p, %s + %d, l, %s);\n%s"
                   "write_columns<%d>(%s + %d, p, %d, col0(%d), l);\n%s}\n",
                   two_type(p), share / 4, fragment_name(p, v->node),
                   r / TILE_ROWS * share / 2,
                   k->row == AX_I && !ends_in_zeros(p->s, k, v->node)
                   ? "x.n" : "64", clears, share / 16, place(p, v),
                   r * 128, rows_lying(v), share, rest_text(p, k, v));
}

/* Tiles among the results from one to another: 16 bits an element, by way of
 * stmatrix. Those of what the program finds are left before it may write over
 * that. */
static void put_tiles(Print *p, const KInst *k, int from, int to)
{
    for (int i = from; i < to; i++) {
        const KValue *v = value_at(p, k->out[i]);
        if (v->layout == LAY_WIDE)
            put_wide(p, k, v);
        if (v->layout == LAY_PACKED)
            put_packed(p, k, v);
        if (v->layout != LAY_TILE)
            continue;
        if (alternates(p, v))
            put_wait(p, v->buffer, v->use, true);
        put_tile(p, k, v);
        p->fence_due |= !is_fenced_by_store(p, v);
        if (!alternates(p, v))
            continue;
        put_fence(p);
        put_post(p, v->buffer, v->use, false);
    }
}

/* Whether the program has to leave node r as a fragment for what follows. */
static bool leaves_fragment(const Print *p, const KInst *k, Ref r)
{
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        if (v->node == r && v->layout < LAY_VECTOR && v->layout != LAY_SUMS
            && v->layout != LAY_GLOBAL && v->layout != LAY_PACKED)
            return true;
    }
    return false;
}

/* Whether what is in its registers so far is still to be read when the
 * program's node `at` is known. */
static bool is_read_behind(const Print *p, const KInst *k, int at)
{
    const Schedule *s = p->s;
    int v = schedule_value(s, k->node[at], LAY_FRAGMENT);
    Ref over = v == NOTHING ? 0 : value_at(p, fragment_root(s, v))->node;
    for (int i = at + 1; i < k->nnodes && over; i++)
        for (int j = 0; j < 4; j++)
            if (shown_node(s->g, s->g->n[k->node[i]].a[j]) == over)
                return over != k->node[at];
    return false;
}

static void put_fragment(Print *p, const KInst *k, Ref r)
{
    buf_printf(p->b, "%s[e] = %s;\n", fragment_name(p, r),
               element_of(p, k, r));
}

static bool leaves_found(const Print *p, const KInst *k)
{
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        if (v->layout == LAY_SUMS || v->layout == LAY_GLOBAL
            || passes_on(p, k, v))
            return true;
    }
    return false;
}

static void put_what_is_left(Print *p, const KInst *k)
{
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        unsigned u = (unsigned)v->node;
        if (v->layout == LAY_PACKED && has_node(k, v->node))
            buf_printf(p->b, "if (e & 1)\np%u[e / 2] = pack(w%u, x%u);\nelse"
                       "\nw%u = x%u;\n", u, u, u, u, u);
        if (v->layout >= LAY_VECTOR)
            put_sum_node(p, k, v);
        if (passes_on(p, k, v))
            put_fragment(p, k, v->node);
    }
    for (int i = 0; i < k->nout; i++)
        put_left(p, k, value_at(p, k->out[i]));
}

/* The head of the loop over a program's registers. */
static void put_each(Print *p, const KInst *k, const char *from, const char *to)
{
    int share = map_share(p, k), each = share / 2;
    buf_printf(p->b, "UNROLL for (int e = %s; e < %s; e++) {\n"
               "const int h = e / 2 %% 2, row = %sl.row + 8 * h + e / %d *"
               " 64;\nconst int col = col0(%d) + e %% %d / 4 * 8 + l.col +"
               " e %% 2;\n(void)h;\n(void)row;\n(void)col;\n", from, to,
               row0_text(p, k), each, share, each);
    put_past(p, k);
}

/* Whether it is found by columns, and nobody waits for it as late as here. */
static bool may_be_found(const Print *p, const KInst *k, const KValue *v)
{
    return is_found_by_columns(p, k, v) && !(k->wait_full >> v->buffer & 1);
}

/* By node, and by the instruction that finds it. */
static const char *found_name(const Print *p, const KInst *k, const KValue *v)
{
    return ctx_format(p->c, "n%u_%d", (unsigned)v->node,
                      (int)(k - p->s->inst));
}

void put_columns_early(Print *p, const KInst *k)
{
    int share = map_share(p, k);
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = value_at(p, k->in[i]);
        if (v->layout != LAY_VECTOR || !may_be_found(p, k, v))
            continue;
        const char *name = found_name(p, k, v);
        buf_printf(p->b, "float2 %s[%d];\nUNROLL for (int n = 0; n < %d;"
                   " n++)\n%s[n] = load2(%s + 4 * (col0(%d) + n * 8 + l.col));"
                   "\n", name, share / 8, share / 8, name, place(p, v),
                   share);
    }
    p->found = k;
}

/* Two neighbours, for both rows of a lane. */
static void put_found_columns(Print *p, const KInst *k, const KValue *v)
{
    int share = map_share(p, k);
    if (p->found == k && may_be_found(p, k, v)) {
        buf_printf(p->b, "if (e %% 4 == 0)\nd%u = %s[e %% %d / 4];\n",
                   (unsigned)v->node, found_name(p, k, v), share / 2);
        return;
    }
    if (is_spread(p, k, v) && loads_ahead(p, k))
        return;
    if (is_spread(p, k, v)) {
        buf_printf(p->b, "if (e %% 4 == 0)\nd%u.x = d%u.y = load1(%s + 4 *"
                   " ((col0(%d) + e %% %d / 4 * 8 + l.col) / 2));\n",
                   (unsigned)v->node, (unsigned)v->node, place(p, v), share,
                   share / 2);
        return;
    }
    buf_printf(p->b, "if (e %% 4 == 0)\nd%u = load2(%s + 4 * (col0(%d) + e %%"
               " %d / 4 * 8 + l.col));\n", (unsigned)v->node, place(p, v),
               share, share / 2);
}

/* The registers of the program's space, in sequence, in phases where they go by
 * pairs. */
static void put_program(Print *p, const KInst *k, int regs)
{
    Buf *b = p->b;
    int last = 0;
    bool pairs = goes_by_pairs(p, k);
    for (int i = 0; i < k->nnodes && pairs; i++)
        last = pair_phase(p, k, k->node[i]) > last
             ? pair_phase(p, k, k->node[i]) : last;
    put_over(p, k);
    if (pairs)
        put_pairs_begin(p, k, regs);
    for (int phase = 0; phase <= last; phase++) {
        put_each(p, k, pairs ? "m" : "0", pairs ? "m + 2"
                 : ctx_format(p->c, "%d", regs));
        for (int i = 0; i < k->nin; i++)
            if (is_found_by_columns(p, k, value_at(p, k->in[i]))
                && (phase == 0 || !is_spread(p, k, value_at(p, k->in[i])))
                && is_found(p, k, value_at(p, k->in[i]), k->early
                            ? FOUND_OTHERS : FOUND_ALL))
                put_found_columns(p, k, value_at(p, k->in[i]));
        if (phase == 0) {
            put_found_sums(p, k);
            put_found_pairs(p, k);
        }
        for (int i = 0; i < k->nnodes; i++) {
            if (pairs && pair_phase(p, k, k->node[i]) != phase)
                continue;
            put_map_node(p, k, k->node[i]);
            if (leaves_fragment(p, k, k->node[i]) && !is_read_behind(p, k, i))
                put_fragment(p, k, k->node[i]);
        }
        for (int i = 0; i < k->nnodes && phase == last; i++)
            if (leaves_fragment(p, k, k->node[i]) && is_read_behind(p, k, i))
                put_fragment(p, k, k->node[i]);
        if (phase == last)
            put_what_is_left(p, k);
        buf_printf(b, "}\n");
    }
    buf_printf(b, pairs ? "}\n" : "");
}

/* Tiles that have no fragment of their own are made of arrays. */
static void put_arrays(Print *p, const KInst *k, int regs)
{
    const Schedule *s = p->s;
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        if (v->layout == LAY_PACKED && has_node(k, v->node))
            buf_printf(p->b, "float w%u = 0.f;\n", (unsigned)v->node);
    }
    for (int i = 0; i < k->nnodes; i++)
        if (leaves_fragment(p, k, k->node[i])
            && schedule_value(s, k->node[i], LAY_FRAGMENT) == NOTHING)
            buf_printf(p->b, "float f%u[%d];\n", (unsigned)k->node[i], regs);
    for (int i = 0; i < k->nout; i++)
        if (passes_on(p, k, value_at(p, k->out[i]))
            && schedule_value(s, value_at(p, k->out[i])->node, LAY_FRAGMENT)
               == NOTHING)
            buf_printf(p->b, "float f%u[%d];\n",
                       (unsigned)value_at(p, k->out[i])->node, regs);
}

/* Whether tiles are all that it leaves: it may do so again. */
static bool leaves_tiles(const Print *p, const KInst *k)
{
    bool all = true;
    for (int i = 0; i < k->nout; i++)
        all &= value_at(p, k->out[i])->layout == LAY_TILE;
    return all;
}

/* What the program finds, its loop, sums of columns. */
static void put_columns(Print *p, const KInst *k, int regs)
{
    put_operands(p, k, regs, k->early ? FOUND_OTHERS : FOUND_ALL);
    put_found_matrices(p, k, regs);
    put_sums_begin(p, k, true);
    put_arrays(p, k, regs);
    bool deep = put_swish_begin(p, k, regs), again = deep && leaves_tiles(p, k);
    if (again) {
        p->deep = false;
        put_program(p, k, regs);
        p->deep = true;
        buf_printf(p->b, "if (__any_sync(~0u, deep)) {\n");
    } else if (deep) {
        p->deep = true;
        buf_printf(p->b, "if (__any_sync(~0u, deep)) {\n");
        put_program(p, k, regs);
        buf_printf(p->b, "} else {\n");
        p->deep = false;
    }
    if (k->nnodes || leaves_found(p, k))
        put_program(p, k, regs);
    if (deep)
        buf_printf(p->b, "}\n");
    put_sums_end(p, k, true);
}

/* Whether the program computes all tiles that it leaves, in the role ahead of a
 * forward walk: the slots need not be empty before that. */
static bool computes_first(const Print *p, const KInst *k)
{
    bool all = walks_behind(p->s) && k->role == KR_AHEAD;
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        all &= v->layout == LAY_TILE && !alternates(p, v)
            && (has_node(k, v->node) || passes_on(p, k, v));
    }
    return all;
}

/* The columns one part after another, from memory to memory. */
static void put_parts(Print *p, const KInst *k, int regs)
{
    Buf *b = p->b;
    bool tiles = false;
    for (int i = 0; i < k->nout; i++)
        if (alternates(p, value_at(p, k->out[i])))
            put_wait(p, value_at(p, k->out[i])->buffer,
                     value_at(p, k->out[i])->use, true);
    put_read_first(p, k, regs);
    buf_printf(b, "%s for (int part = 0; part < %d; part++) {\n"
               "auto col0 = [&](int share) {\nreturn %s + part * share;\n};\n",
               deals_rows(p->s, KR_MATRIX) ? "UNROLL" : "NO_UNROLL", k->parts,
               first_column(p, k));
    put_columns(p, k, regs);
    if (computes_first(p, k) && k->wait_empty) {
        buf_printf(b, "if (part == 0) {\n");
        each_bit(p, k, k->wait_empty, true, put_wait);
        buf_printf(b, "}\n");
    }
    for (int i = 0; i < k->nout; i++)
        if (value_at(p, k->out[i])->layout == LAY_TILE) {
            put_tile(p, k, value_at(p, k->out[i]));
            tiles = true;
        }
    buf_printf(b, "}\n");
    p->fence_due |= tiles;
    for (int i = 0; i < k->nout; i++)
        if (alternates(p, value_at(p, k->out[i]))) {
            put_fence(p);
            put_post(p, value_at(p, k->out[i])->buffer,
                     value_at(p, k->out[i])->use, false);
        }
}

/* Where the matrix role has products under way a program's fragments are made
 * meanwhile, not when they are wanted. */
static void put_kept_fragments(Print *p, const KInst *k)
{
    for (int i = 0; i < k->nout && deals_rows(p->s, k->role); i++)
        if (value_at(p, k->out[i])->layout == LAY_FRAGMENT)
            buf_printf(p->b, "keep(%s);\n",
                       fragment_name(p, value_at(p, k->out[i])->node));
}

void put_map(Print *p, const KInst *k)
{
    int regs = (map_rows(p, k) + TILE_ROWS - 1) / TILE_ROWS
             * map_share(p, k) / 2;
    int found = results_found(p->s, k);
    if (deals_rows(p->s, k->role) && !k->nnodes && k->nin == 1
        && value_at(p, k->in[0])->layout == LAY_TILE) {
        put_found_packed(p, k);
        return;
    }
    if (deals_rows(p->s, k->role) && !k->nnodes && k->nin == 1
        && value_at(p, k->in[0])->layout == LAY_PACKED) {
        put_unpacked(p, k);
        return;
    }
    buf_printf(p->b, "{\n");
    put_lane(p, k);
    if (!computes_first(p, k))
        each_bit(p, k, k->wait_empty, true, put_wait);
    if (!k->parts && makes_half(p, k))
        buf_printf(p->b, "const int own0 = col0(%d);\n"
                   "auto col0 = [&](int) { return own0 + %s * %d; };\n",
                   map_share(p, k), half_text(p), (int)k->ncol);
    if (!k->parts)
        put_tiles(p, k, 0, found);
    put_neighbours(p, k);
    put_sums_begin(p, k, false);
    if (k->parts)
        put_parts(p, k, regs);
    else
        put_columns(p, k, regs);
    put_sums_end(p, k, false);
    if (!k->parts && computes_first(p, k))
        each_bit(p, k, k->wait_empty, true, put_wait);
    if (!k->parts)
        put_tiles(p, k, found, k->nout);
    put_kept_fragments(p, k);
    buf_printf(p->b, "}\n");
}

/* The decays of a program, while products are under way that it scales. */
void put_early(Print *p, const KInst *k)
{
    int regs = map_share(p, k) / 2;
    for (int i = 0; i < k->nnodes; i++)
        if (is_computed_early(p, k, k->node[i]))
            buf_printf(p->b, "float m%u[%d];\n", (unsigned)k->node[i], regs);
    p->beside = true;
    buf_printf(p->b, "{\n");
    put_operands(p, k, regs, FOUND_OF_DECAYS);
    put_over(p, k);
    put_each(p, k, "0", ctx_format(p->c, "%d", regs));
    for (int i = 0; i < k->nin; i++)
        if (is_found_by_columns(p, k, value_at(p, k->in[i]))
            && is_found(p, k, value_at(p, k->in[i]), FOUND_OF_DECAYS))
            put_found_columns(p, k, value_at(p, k->in[i]));
    for (int i = 0; i < k->nnodes; i++)
        if (is_computed_early(p, k, k->node[i]))
            buf_printf(p->b, "m%u[e] = %s;\n", (unsigned)k->node[i],
                       masked_decay(p, k, &p->s->g->n[k->node[i]]));
    buf_printf(p->b, "}\n}\n");
    p->beside = false;
    for (int i = 0; i < k->nnodes; i++)
        if (is_computed_early(p, k, k->node[i]))
            buf_printf(p->b, "keep(m%u);\n", (unsigned)k->node[i]);
}
