/* print_terms.c -- of kernels whose warps all do the same, each node as text:
 * where its elements lie, what is computed of them, what is added up.
 */
#include "print_tokens.h"
#include "source.h"

const char *token_coord(const Walk *w, int ax)
{
    return ax == AX_I ? "i" : ax == AX_J ? "j"
         : ctx_format(w->c, ax < AX_DIM ? "r%d" : "d%d",
                      ax < AX_DIM ? ax : ax - AX_DIM);
}

DType token_type(const Walk *w, const KValue *v)
{
    return v->layout == LAY_FLAT || v->layout == LAY_LINE
         ? flat_type(w->s, v->node) : F32;
}

/* ---- loops ---- */

static bool is_token_axis(int ax) { return ax == AX_I || ax == AX_J; }

const char *count_text(const Walk *w, Ref r, AxisSet axes)
{
    int first = lowest(axes);
    if (!axes || !is_token_axis(first))
        return ctx_format(w->c, "%d", (int)flat_count(w->s, r, axes));
    int32_t each = flat_count(w->s, r, axes & ~AXIS(first));
    return each > 1 ? ctx_format(w->c, "n * %d", (int)each) : "n";
}

void put_coords(Walk *w, const char *x, Ref r, AxisSet axes, const char *next)
{
    int32_t step = 1, of[NAXES];
    for (AxisSet s = axes; s; s &= ~AXIS(highest(s))) {
        of[highest(s)] = step;
        step *= flat_extent(w->s, r, highest(s));
    }
    for (AxisSet s = axes; s; s &= s - 1) {
        int ax = lowest(s);
        buf_printf(w->b, "const int %s = %s", token_coord(w, ax), x);
        if (of[ax] > 1)
            buf_printf(w->b, " / %d", (int)of[ax]);
        if (s != axes)
            buf_printf(w->b, " %% %d", (int)flat_extent(w->s, r, ax));
        buf_printf(w->b, ";\n");
        if (s != axes && is_token_axis(ax))
            buf_printf(w->b, "if (%s >= n)\n%s;\n", token_coord(w, ax), next);
    }
}

void open_loop(Walk *w, Ref r, AxisSet axes)
{
    buf_printf(w->b, "for (int e = TID; e < %s; e += THREADS) {\n",
               count_text(w, r, axes));
    put_coords(w, "e", r, axes, "continue");
}

/* ---- elements ---- */

const char *token_index(const Walk *w, const KSpot *s, int skip,
                        const char *other)
{
    Buf b = { .ctx = w->c };
    for (int ax = 0; ax < NAXES; ax++)
        if (s->st[ax])
            buf_printf(&b, "%s%s%s", b.len ? " + " : "",
                       ax == skip ? other : token_coord(w, ax),
                       s->st[ax] == 1 ? ""
                       : ctx_format(w->c, " * %d", (int)s->st[ax]));
    if (s->tail)
        buf_printf(&b, "%s(n - 1) * %d", b.len ? " + " : "", (int)s->tail);
    if (s->at || !b.len)
        buf_printf(&b, "%s%d", b.len ? " + " : "", (int)s->at);
    return b.s;
}

bool is_dealt_line(const Walk *w, Ref r)
{
    return w->s->tokens.regtile && w->g->n[r].axes == AXIS(w->s->tokens.row)
        && schedule_value(w->s, r, LAY_LINE) != NOTHING;
}

int dealt_count(const Walk *w)
{
    int pieces = w->s->tokens.warp_cols / REGTILE_PIECE;
    return ((int)regtile_rows(w->s) + pieces - 1) / pieces;
}

static const char *token_element_at(const Walk *w, Ref r, int skip,
                                    const char *other)
{
    Buf b = { .ctx = w->c };
    double x;

    if (token_constant(w->s, r, &x)) {
        number_text(&b, x);
        return b.s;
    }
    if (has_node(w->k, r))
        return ctx_format(w->c, "v%u", (unsigned)r);
    KSpot s = flat_spot(w->s, r);
    const KValue *v = value_at(&w->p, s.value);
    if (v->layout == LAY_REGTILE)
        return ctx_format(w->c, "t%d[u]", fragment_root(w->s, s.value));
    if (v->layout == LAY_LINE && is_dealt_line(w, r))
        return w->dealt ? ctx_format(w->c, "get(t%d[j])", s.value)
                        : ctx_format(w->c, "v%u", (unsigned)r);
    if (v->layout == LAY_LINE)
        return ctx_format(w->c, "line_at(t%d, %s)", s.value,
                          !w->g->n[r].axes ? "0"
                          : ctx_format(w->c, "u %% %d", REGTILE_PIECE));
    return ctx_format(w->c, token_type(w, v) == F32 ? "t%d[%s]"
                      : "get(t%d[%s])", fragment_root(w->s, s.value),
                      token_index(w, &s, skip, other));
}

const char *token_element(const Walk *w, Ref r)
{
    return token_element_at(w, r, NOTHING, NULL);
}

/* Of pairs: the operand as a function of its axis. */
static const char *pairs_of(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    Ref x = n->a[0];
    int from = lowest(n->over);
    return ctx_format(w->c, "%s([&](int y) { return %s; }, %d, %s)",
                      op_info[n->op].name, token_element_at(w, x, from, "y"),
                      (int)flat_extent(w->s, x, from),
                      token_coord(w, op_has(n->op, TO_AXIS) ? n->index : from));
}

/* One behind the other along an axis. */
static const char *joined_text(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    int ax = lowest(n->over);
    bool has = w->g->n[n->a[0]].axes & n->over;
    int first = has ? flat_extent(w->s, n->a[0], ax) : 1;
    const char *at = token_coord(w, ax);
    return ctx_format(w->c, "%s < %d ? %s : %s", at, first,
                      token_element(w, n->a[0]),
                      token_element_at(w, n->a[1], ax, ctx_format(w->c,
                                       "(%s - %d)", at, first)));
}

/* What comes from nowhere: its number along the axis, or 1 at one entry. */
static const char *placed_text(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    const char *at = token_coord(w, lowest(n->over));
    return op_has(n->op, INDEX)
         ? ctx_format(w->c, "%s == %d ? 1.f : 0.f", at, n->index)
         : ctx_format(w->c, "(float)%s", at);
}

const char *exact_element(const Walk *w, Ref r)
{
    double x;
    if (token_constant(w->s, r, &x) || has_node(w->k, r))
        return token_element(w, r);
    KSpot s = flat_spot(w->s, r);
    return token_type(w, value_at(&w->p, s.value)) != F64
         ? token_element(w, r)
         : ctx_format(w->c, "t%d[%s]", fragment_root(w->s, s.value),
                      token_index(w, &s, NOTHING, NULL));
}

static bool is_gate_difference(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    return has_rows(w->s) && w->s->memory == F32 && n->op == OP_sub
        && gate_sum(w->g, n->a[0]) && gate_sum(w->g, n->a[1]);
}

static const char *decay_text(const Walk *w, Ref later, Ref earlier)
{
    return ctx_format(w->c, "exp_(%s - %s)", exact_element(w, later),
                      exact_element(w, earlier));
}

/* What is one, or what is left of gates, of a token and those before; one for a
 * token's ranks before, too. */
static const char *mask_text(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    if (n->over) {
        const char *rank = token_coord(w, lowest(n->over));
        const char *of = token_coord(w, lowest(n->over) + AX_J);
        return ctx_format(w->c, "i > j || (i == j && %s > %s) ? 1.f : 0.f",
                          rank, of);
    }
    return ctx_format(w->c, "i %s j ? %s : 0.f", n->flags & STRICT ? ">" : ">=",
                      n->a[0] ? decay_text(w, n->a[0], n->a[1]) : "1.f");
}

/* The token before, or behind. */
static const char *delayed_text_of(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    bool back = n->flags & REVERSE;
    return ctx_format(w->c, "i == %s ? %s : %s", back ? "n - 1" : "0",
                      token_element(w, n->a[1]),
                      token_element_at(w, n->a[0], AX_I, back ? "(i + 1)"
                                                              : "(i - 1)"));
}

static const char *token_text(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    const char *operand[3] = { "", "", "" };
    bool exact = has_rows(w->s) ? is_exact(w->s) : w->s->tile == F32;
    Buf b = { .ctx = w->c };

    if (is_mask(n->op))
        return mask_text(w, r);
    if (op_is(n->op, SHIFTS))
        return delayed_text_of(w, r);
    if (op_is(n->op, PAIRS))
        return pairs_of(w, r);
    if (op_is(n->op, CONST))
        return placed_text(w, r);
    if (!op_is(n->op, ELEMENTWISE))
        return joined_text(w, r);
    if (is_gate_difference(w, r))
        return ctx_format(w->c, "%s - %s", exact_element(w, n->a[0]),
                          exact_element(w, n->a[1]));
    for (int i = 0; i < op_info[n->op].arity; i++)
        operand[i] = token_element(w, n->a[i]);
    if (n->op == OP_factor && exact)
        return operand[0];
    value_text(&b, n->op, operand);
    return b.s;
}

const char *token_term(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    const char *decay = is_decayed_contraction(n->op)
        ? ctx_format(w->c, " * %s", decay_text(w, n->a[2], n->a[3])) : "";
    return op_info[n->op].arity == 1 ? token_element(w, n->a[0])
         : ctx_format(w->c, "%s * %s%s", token_element(w, n->a[0]),
                      token_element(w, n->a[1]), decay);
}

void put_token_value(Walk *w, Ref r)
{
    buf_printf(w->b, "const float v%u = %s;\n", (unsigned)r, token_text(w, r));
}

/* ---- sums ---- */

static int32_t terms_of(const Walk *w, Ref r)
{
    int32_t terms = 1;
    for (AxisSet s = w->g->n[r].over; s; s &= s - 1)
        terms *= flat_extent(w->s, operand_along(w->s, r, lowest(s)),
                             lowest(s));
    return terms;
}

/* Of a chunk, as many as it has tokens. */
static const char *terms_text(const Walk *w, Ref r)
{
    int first = lowest(w->g->n[r].over);
    int32_t each = terms_of(w, r);
    if (first != AX_I && first != AX_J)
        return ctx_format(w->c, "%d", (int)each);
    each /= w->s->tokens.rows;
    return each > 1 ? ctx_format(w->c, "n * %d", (int)each) : "n";
}

/* What is computed for the sum alone. */
static void put_inlined(Walk *w, Ref r, uint8_t *done)
{
    for (int i = 0; i < 3; i++) {
        Ref a = w->g->n[r].a[i];
        if (!a || done[a] || !has_node(w->k, a))
            continue;
        put_inlined(w, a, done);
        put_token_value(w, a);
        done[a] = 1;
    }
}

/* Of a matrix's terms, whether its first axis is the one along memory's rows.
 */
static bool goes_down(const Walk *w, const Node *n)
{
    KSpot s = flat_spot(w->s, n->a[0]);
    return !(n->over & ~DIM_AXES) && n->over & (n->over - 1)
        && s.st[lowest(n->over)] == 1 && s.st[highest(n->over)] != 1;
}

/* Its terms are added up, or the largest is found. */
static void put_terms(Walk *w, Ref r, uint8_t *done)
{
    const Node *n = &w->g->n[r];
    bool down = goes_down(w, n);
    int32_t step = 1;

    for (AxisSet s = n->over; s;) {
        int ax = down ? lowest(s) : highest(s);
        Ref a = operand_along(w->s, r, ax);
        buf_printf(w->b, "const int %s = y", token_coord(w, ax));
        if (step > 1)
            buf_printf(w->b, " / %d", (int)step);
        if (s & (s - 1))
            buf_printf(w->b, " %% %d", (int)flat_extent(w->s, a, ax));
        buf_printf(w->b, ";\n");
        if (s & (s - 1) && (ax == AX_I || ax == AX_J))
            buf_printf(w->b, "if (%s >= n)\ncontinue;\n", token_coord(w, ax));
        step *= flat_extent(w->s, a, ax);
        s &= ~AXIS(ax);
    }
    put_inlined(w, r, done);
    if (is_decayed_contraction(n->op))
        buf_printf(w->b, "if (i %s j)\n", n->flags & STRICT ? ">" : ">=");
    if (op_is(n->op, OF_MOST))
        buf_printf(w->b, "v%u = max_(v%u, %s);\n}\n", (unsigned)r,
                   (unsigned)r, token_term(w, r));
    else
        buf_printf(w->b, "v%u += %s;\n}\n", (unsigned)r, token_term(w, r));
}

/* By one thread, by a warp's lanes, or by all threads. */
void put_sum(Walk *w, Ref r, bool lanes, uint8_t *done)
{
    Buf *b = w->b;
    bool most = op_is(w->g->n[r].op, OF_MOST);
    bool block = sums_by_block(w->s, r);

    buf_printf(b, "float v%u = %s;\n", (unsigned)r,
               most ? "bits(0xff800000)" : "0");
    if (is_regtile(w->s, r))            /* for each element in registers */
        buf_printf(b, "NO_UNROLL ");
    buf_printf(b, block ? "for (int y = TID; y < %s; y += THREADS) {\n"
                  : lanes ? "for (int y = LANE; y < %s; y += LANES) {\n"
                        : "for (int y = 0; y < %s; y++) {\n",
               terms_text(w, r));
    put_terms(w, r, done);
    if (block)
        buf_printf(b, "v%u = block_sum(v%u, t%d);\n", (unsigned)r, (unsigned)r,
                   schedule_value(w->s, r, LAY_PARTIAL));
    else if (lanes && most)
        buf_printf(b, "v%u = lane_most<LANES>(v%u);\n", (unsigned)r,
                   (unsigned)r);
    else if (lanes)
        buf_printf(b, "v%u = lane_sum<LANES>(v%u);\n", (unsigned)r,
                   (unsigned)r);
}

bool is_sum(const Walk *w, Ref r)
{
    return token_sums(w->s, r) || is_decayed_contraction(w->g->n[r].op);
}

/* Whether a warp adds up the sum: of what lies side by side, or where there are
 * few. */
bool wants_lanes(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    bool side = flat_count(w->s, r, n->axes) < LANES;
    for (int i = 0; i < op_info[n->op].arity; i++) {
        AxisSet axes = w->g->n[n->a[i]].axes;
        side |= axes & (axes - 1) && n->over & AXIS(highest(axes));
    }
    return side && is_sum(w, r) && !token_sums_parts(w->s, r)
        && terms_of(w, r) >= LANES;
}
