/* print_terms.c -- of kernels of single tokens, each node as text: where its
 * elements lie, and what is computed of them.
 */
#include "print_tokens.h"
#include "source.h"

const char *token_coord(const Walk *w, int ax)
{
    return ctx_format(w->c, ax < AX_DIM ? "r%d" : "d%d",
                      ax < AX_DIM ? ax : ax - AX_DIM);
}

int32_t token_extent(const Walk *w, Ref r, int ax)
{
    return ax == w->s->slice_axis ? block_extent(w->s, ax) : w->ext[r][ax];
}

int32_t token_count(const Walk *w, Ref r, AxisSet axes)
{
    int32_t n = 1;
    for (; axes; axes &= axes - 1)
        n *= token_extent(w, r, lowest(axes));
    return n;
}

static int token_value(const Walk *w, Ref r)
{
    int line = schedule_value(w->s, r, LAY_LINE);
    return line != NOTHING ? line
         : schedule_value(w->s, r, is_regtile(w->s, r) ? LAY_REGTILE
                          : LAY_FLAT);
}

DType token_type(const Walk *w, const KValue *v)
{
    const Node *n = &w->g->n[v->node];
    DType d = n->op == OP_input ? w->p.o->in[n->index]
            : v->element == dtype_size(F32) ? F32 : w->s->tile;
    return d == F64 ? F32 : d;
}

Spot token_spot(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    Spot to = { .value = NOTHING };
    int32_t step = 1;

    if (!op_is(n->op, MOVES) || token_found(w->s, r)) {
        to.value = token_value(w, r);
        for (AxisSet s = n->axes; s; s &= ~AXIS(highest(s))) {
            to.st[highest(s)] = step;
            step *= token_extent(w, r, highest(s));
        }
        return to;
    }
    Spot from = token_spot(w, n->a[0]);
    int ax = n->over ? lowest(n->over) : 0;
    to = from;
    if (op_has(n->op, INDEX))
        to.at += n->index * from.st[ax];
    if (op_has(n->op, TO_AXIS)) {
        to.st[ax] = 0;
        to.st[n->index] = from.st[ax];
    }
    for (ax = 0; ax < NAXES; ax++)
        to.st[ax] = n->axes & AXIS(ax) ? to.st[ax] : 0;
    return to;
}

const char *token_index(const Walk *w, const Spot *s, int skip,
                        const char *other)
{
    Buf b = { .ctx = w->c };
    for (int ax = 0; ax < NAXES; ax++)
        if (s->st[ax])
            buf_printf(&b, "%s%s%s", b.len ? " + " : "",
                       ax == skip ? other : token_coord(w, ax),
                       s->st[ax] == 1 ? ""
                       : ctx_format(w->c, " * %d", (int)s->st[ax]));
    if (s->at || !b.len)
        buf_printf(&b, "%s%d", b.len ? " + " : "", (int)s->at);
    return b.s;
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
    Spot s = token_spot(w, r);
    const KValue *v = value_at(&w->p, s.value);
    if (v->layout == LAY_REGTILE)
        return ctx_format(w->c, "t%d[u]", fragment_root(w->s, s.value));
    if (v->layout == LAY_LINE)
        return ctx_format(w->c, "line_at(t%d, %s)", s.value,
                          !w->g->n[r].axes ? "0" : ctx_format(w->c,
                          w->g->n[r].axes == AXIS(w->s->tokens.row)
                          ? "u / %d" : "u %% %d", REGTILE_PIECE));
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
                      (int)token_extent(w, x, from),
                      token_coord(w, op_has(n->op, TO_AXIS) ? n->index : from));
}

/* One behind the other along an axis. */
static const char *joined_text(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    int ax = lowest(n->over);
    bool has = w->g->n[n->a[0]].axes & n->over;
    int first = has ? token_extent(w, n->a[0], ax) : 1;
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

static const char *token_text(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    const char *operand[3] = { "", "", "" };
    Buf b = { .ctx = w->c };

    if (op_is(n->op, PAIRS))
        return pairs_of(w, r);
    if (op_is(n->op, CONST))
        return placed_text(w, r);
    if (!op_is(n->op, ELEMENTWISE))
        return joined_text(w, r);
    for (int i = 0; i < op_info[n->op].arity; i++)
        operand[i] = token_element(w, n->a[i]);
    if (n->op == OP_factor && w->s->tile == F32)
        return operand[0];
    value_text(&b, n->op, operand);
    return b.s;
}

const char *token_term(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    return op_info[n->op].arity == 1 ? token_element(w, n->a[0])
         : ctx_format(w->c, "%s * %s", token_element(w, n->a[0]),
                      token_element(w, n->a[1]));
}

void put_token_value(Walk *w, Ref r)
{
    buf_printf(w->b, "const float v%u = %s;\n", (unsigned)r, token_text(w, r));
}

/* ---- sums ---- */

int32_t terms_of(const Walk *w, Ref r)
{
    const Node *n = &w->g->n[r];
    int32_t terms = 1;
    for (AxisSet s = n->over; s; s &= s - 1) {
        Ref a = w->g->n[n->a[0]].axes & AXIS(lowest(s)) ? n->a[0] : n->a[1];
        terms *= token_extent(w, a, lowest(s));
    }
    return terms;
}

/* The coordinates that number `x` of the elements has. */
void put_coords(Walk *w, const char *x, Ref r, AxisSet axes)
{
    int32_t step = 1, of[NAXES];
    for (AxisSet s = axes; s; s &= ~AXIS(highest(s))) {
        of[highest(s)] = step;
        step *= token_extent(w, r, highest(s));
    }
    for (AxisSet s = axes; s; s &= s - 1) {
        int ax = lowest(s);
        buf_printf(w->b, "const int %s = %s", token_coord(w, ax), x);
        if (of[ax] > 1)
            buf_printf(w->b, " / %d", (int)of[ax]);
        if (s != axes)
            buf_printf(w->b, " %% %d", (int)token_extent(w, r, ax));
        buf_printf(w->b, ";\n");
    }
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

/* By one thread, or by a warp's lanes. */
void put_sum(Walk *w, Ref r, bool lanes, uint8_t *done)
{
    const Node *n = &w->g->n[r];
    Buf *b = w->b;
    int32_t step = 1, terms = terms_of(w, r);

    buf_printf(b, "float v%u = 0;\n", (unsigned)r);
    if (is_regtile(w->s, r))            /* for each element in registers */
        buf_printf(b, "NO_UNROLL ");
    buf_printf(b, lanes ? "for (int y = LANE; y < %d; y += LANES) {\n"
                        : "for (int y = 0; y < %d; y++) {\n", (int)terms);
    for (AxisSet s = n->over; s; s &= ~AXIS(highest(s))) {
        int ax = highest(s);
        Ref a = w->g->n[n->a[0]].axes & AXIS(ax) ? n->a[0] : n->a[1];
        buf_printf(b, "const int %s = y", token_coord(w, ax));
        if (step > 1)
            buf_printf(b, " / %d", (int)step);
        if (s & (s - 1))
            buf_printf(b, " %% %d", (int)token_extent(w, a, ax));
        buf_printf(b, ";\n");
        step *= token_extent(w, a, ax);
    }
    put_inlined(w, r, done);
    buf_printf(b, "v%u += %s;\n}\n", (unsigned)r, token_term(w, r));
    if (lanes)
        buf_printf(b, "v%u = lane_sum<LANES>(v%u);\n", (unsigned)r,
                   (unsigned)r);
}

void open_loop(Walk *w, Ref r, AxisSet axes)
{
    buf_printf(w->b, "for (int e = TID; e < %d; e += THREADS) {\n",
               (int)token_count(w, r, axes));
    put_coords(w, "e", r, axes);
}
