/* tile_sum.c -- sums with too few rows or columns for the tensor cores, and
 * the largest of values, shared out to threads, warps or the whole block,
 * whichever keeps them busy.
 */
#include "tile.h"

static int32_t size_of(const Tiles *t, Ref r, AxisSet s)
{
    int32_t n = 1;

    for (; s; s &= s - 1)
        n *= tile_extent(t, r, lowest(s));
    return n;
}

/* Terms of each element. */
static int32_t sum_size(const Tiles *t, Ref r)
{
    int32_t n = 1;

    for (AxisSet s = t->g->n[r].over; s; s &= s - 1)
        n *= tile_extent(t, operand_with(t, r, lowest(s)), lowest(s));
    return n;
}

/* How many neighbouring lanes share a sum: as many as leave no thread idle,
 * and each some terms. */
static int lanes_of(const Tiles *t, Ref r)
{
    AxisSet axes = t->g->n[r].axes, inner = axes & (axes - 1);
    int32_t elements = size_of(t, r, axes), sum = sum_size(t, r);
    int lanes = 1;

    if (inner & (AXIS(AX_I) | AXIS(AX_J)))
        return 1;                       /* loop_open leaves elements out */
    while (lanes < WARP_SIZE && 2 * lanes * elements <= t->out->threads
           && 4 * lanes <= sum)
        lanes *= 2;
    return lanes;
}

/* Whether the whole block is to share each of few, long sums. */
static bool by_block(const Tiles *t, Ref r)
{
    int32_t elements = size_of(t, r, t->g->n[r].axes);

    return !op_is(t->g->n[r].op, OF_MOST)
        && elements * 4 <= t->out->threads / WARP_SIZE
        && sum_size(t, r) >= t->out->threads;
}

void summand_text(Tiles *t, Act *a, Buf *b, Ref r)
{
    const Node *n = &t->g->n[r];
    AxisSet axes = n->axes | n->over;

    if (op_is(n->op, OF_MOST)) {
        buf_printf(b, "x = max_(x, ");
        element_text(t, a, b, n->a[0], axes, -1, NULL);
        buf_printf(b, ");\n");
        return;
    }
    buf_printf(b, "x += ");
    element_text(t, a, b, n->a[0], axes, -1, NULL);
    if (n->a[1]) {
        buf_printf(b, " * ");
        element_text(t, a, b, n->a[1], axes, -1, NULL);
    }
    if (n->op == OP_gdot) {
        buf_printf(b, " * exp_(");
        exact_text(t, a, b, n->a[2], axes);
        buf_printf(b, " - ");
        exact_text(t, a, b, n->a[3], axes);
        buf_printf(b, ")");
    }
    buf_printf(b, ";\n");
}

/* Whether four neighbours along the axis start at a multiple of four. */
static bool by_fours(const Tiles *t, Ref r, int ax)
{
    const Spot *s = &t->spot[r];
    int32_t others = s->at | s->tail;

    for (AxisSet o = t->g->n[r].axes & ~AXIS(ax); o; o &= o - 1)
        others |= s->st[lowest(o)];
    return s->st[ax] == 1 && others % 4 == 0;
}

/* An axis of the sum along which all operands lie so; or -1. */
static int fours_axis(const Tiles *t, const Node *n)
{
    double x;

    for (AxisSet s = n->over; s; s &= s - 1) {
        int ax = lowest(s);
        bool all = n->op != OP_gdot && !op_is(n->op, OF_MOST)
                && !constant_of(t, n->a[0], &x)
                && (is_token_axis(ax) ? n->over == AXIS(ax)
                    : !(n->over & (AXIS(AX_I) | AXIS(AX_J)))
                      && t->g->axis[ax].size % 4 == 0
                      && t->ext[n->a[0]][ax] == t->g->axis[ax].size);
        for (int i = 0; i < 2 && all; i++)
            all = !n->a[i] || by_fours(t, n->a[i], ax);
        if (all)
            return ax;
    }
    return -1;
}

/* Where a thread begins that shares sums with others, and how far it goes. */
static const char *share_from(const Tiles *t, int share)
{
    return share == 1 ? "0" : share == t->out->threads ? "TID"
         : ctx_format(t->c, "TID %% %d", share);
}

static const char *share_step(const Tiles *t, int share)
{
    return share == t->out->threads ? "THREADS"
         : ctx_format(t->c, "%d", share);
}

/* The sum into x by fours along that axis. */
static void fours_text(Tiles *t, Act *a, Buf *b, Ref r, int ax, int share)
{
    const Node *n = &t->g->n[r];
    AxisSet axes = n->axes | n->over;
    int32_t size = sum_size(t, r);
    int32_t inner = tile_extent(t, operand_with(t, r, ax), ax);

    if (is_token_axis(ax))
        buf_printf(b, "%s", unroll_text(t, (size - 1) / (4 * share) + 1));
    buf_printf(b, "for (int f = 4 * (%s); f < ", share_from(t, share));
    buf_printf(b, is_token_axis(ax) ? "n" : "%d", (int)size);
    buf_printf(b, "; f += 4 * %s) {\nconst int %s = f",
               share_step(t, share), axis_coord(ax));
    buf_printf(b, inner < size ? " %% %d;\n" : ";\n", (int)inner);
    for (AxisSet s = n->over & ~AXIS(ax); s; s &= s - 1) {
        int32_t ext = tile_extent(t, operand_with(t, r, lowest(s)), lowest(s));
        buf_printf(b, "const int %s = f / %d %% %d;\n",
                   axis_coord(lowest(s)), (int)inner, (int)ext);
        inner *= ext;
    }
    buf_printf(b, n->a[1] ? "x += dot_four(" : "x += sum_four(");
    for (int i = 0; i < 2 && n->a[i]; i++) {
        const Spot *s = &t->spot[n->a[i]];
        act_uses(t, a, s->tile, false);
        buf_printf(b, "%st%d + ", i ? ", " : "", s->tile);
        index_text(b, s, axes & t->g->n[n->a[i]].axes, -1, NULL);
    }
    buf_printf(b, is_token_axis(ax) ? ", n - f);\n}\n" : ");\n}\n");
}

/* The sum into x over axes `over`, whose joint numbers `share` threads share.
 */
static void sum_text(Tiles *t, Act *a, Buf *b, Ref r, int share)
{
    const Node *n = &t->g->n[r];
    AxisSet rest = n->over;
    int32_t size = 1, inner;
    int first = lowest(rest);
    bool mask = n->op == OP_gdot;
    int fours = fours_axis(t, n);

    if (fours >= 0) {
        fours_text(t, a, b, r, fours, share);
        return;
    }
    for (AxisSet s = rest; s; s &= s - 1)
        if (lowest(s) != first || !is_token_axis(first))
            size *= tile_extent(t, operand_with(t, r, lowest(s)), lowest(s));
    if (is_token_axis(first))
        buf_printf(b, "%s", unroll_text(t, (sum_size(t, r) - 1) / share + 1));
    buf_printf(b, "for (int f = %s; f < ", share_from(t, share));
    if (is_token_axis(first) && size > 1)
        buf_printf(b, "n * %d", (int)size);
    else if (is_token_axis(first))
        buf_printf(b, "n");
    else
        buf_printf(b, "%d", (int)size);
    buf_printf(b, "; f += %s) {\n", share_step(t, share));
    inner = size;
    for (AxisSet s = rest; s; s &= s - 1) {
        int ax = lowest(s);
        int32_t ext = tile_extent(t, operand_with(t, r, ax), ax);
        if (ax != first || !is_token_axis(ax))
            inner /= ext;
        buf_printf(b, "const int %s = f", axis_coord(ax));
        if (inner > 1)
            buf_printf(b, " / %d", (int)inner);
        if (ax != first)
            buf_printf(b, " %% %d", (int)ext);
        buf_printf(b, ";\n");
        if (is_token_axis(ax) && ax != first)
            buf_printf(b, "if (%s >= n)\ncontinue;\n", axis_coord(ax));
    }
    if (mask)
        buf_printf(b, "if (i %s j)\n", n->flags & STRICT ? ">" : ">=");
    summand_text(t, a, b, r);
    buf_printf(b, "}\n");
}

/* What neighbouring lanes have found becomes one. */
static void join_lanes(Buf *b, const Node *n, int lanes)
{
    if (!op_is(n->op, OF_MOST)) {
        buf_printf(b, "x = lane_sum<%d>(x);\nif (first) {\n", lanes);
        return;
    }
    for (int o = lanes / 2; o; o /= 2)
        buf_printf(b, "x = max_(x, lane_xor(x, %d));\n", o);
    buf_printf(b, "if (first) {\n");
}

void emit_sum(Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];
    const char *least = op_is(n->op, OF_MOST) ? "bits(0xff800000)" : "0";
    Chain k;

    chain_after(t, &k, r, 0);
    Act *a = act_begin(t, r);
    Buf *b = &a->text;
    int lanes = lanes_of(t, r);
    bool block = by_block(t, r);
    if (block) {
        t->scratch = true;
        loop_open(t, b, "0", "1", r, n->axes);
        buf_printf(b, "float x = %s;\n", least);
        sum_text(t, a, b, r, t->out->threads);
        buf_printf(b, "x = block_sum(x, scratch);\nif (TID == 0) {\n");
    } else if (lanes > 1) {
        group_open(t, b, lanes, r, n->axes);
        buf_printf(b, "float x = %s;\n", least);
        sum_text(t, a, b, r, lanes);
        join_lanes(b, n, lanes);
    } else {
        loop_open(t, b, "TID", "THREADS", r, n->axes);
        buf_printf(b, "float x = %s;\n", least);
        sum_text(t, a, b, r, 1);
    }
    for (int i = 0; i < 2; i++)
        if (t->spot[n->a[i]].transposed)
            buf_printf(b, "x = %s & 1 ? x : -x;\n",
                       axis_coord(t->spot[n->a[i]].transposed));
    chain_body(t, a, b, &k);
    buf_printf(b, block || lanes > 1 ? "}\n}\n" : "}\n");
    chain_done(t, &k);
}
