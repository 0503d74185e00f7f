/* tile_value.c -- how long a value is, where it lies, and the text of one of
 * its elements.
 *
 * A tile holds its value in canonical order, tokens at full capacity, so that
 * strides are known here; a chunk of n tokens uses the first n entries. The
 * rows of a matrix lie an odd multiple of 16 bytes apart: eight of them then
 * start in different banks of shared memory.
 */
#include "tile.h"

#include <string.h>

int32_t tile_extent(const Tiles *t, Ref r, int ax)
{
    if (ax == AX_I || ax == AX_J)
        return t->chunk;
    return ax == t->slice_axis ? t->slice : t->ext[r][ax];
}

DType tile_type(const Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];

    if (n->op == OP_input)
        return t->o->in[n->index] == F64 ? F32 : t->o->in[n->index];
    if (t->o->tile == F32 && n->op == OP_cumsum && gate_sum(t->g, r))
        return F64;                     /* its differences are gates */
    return is_narrow(t, r) ? BF16 : F32;
}

bool is_gate_difference(const Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];

    return t->o->tile == F32 && n->op == OP_sub && gate_sum(t->g, n->a[0])
        && gate_sum(t->g, n->a[1]);
}

bool lies_transposed(const Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];

    return t->o->rows && n->op != OP_input && n->axes & (n->axes - 1)
        && !(n->axes & ~DIM_AXES) && highest(n->axes) == t->o->rows;
}

int inner_axis(AxisSet left, bool transposed)
{
    return transposed ? lowest(left) : highest(left);
}

/* Whether the rows of a matrix end with this axis, the inner ones done. */
static bool ends_row(AxisSet axes, int ax)
{
    AxisSet dims = axes & DIM_AXES;

    if (!(axes & (AXIS(ax) - 1)))
        return false;
    return dims ? ax == highest(dims) : ax == AX_J;
}

static int32_t strides_as(const Tiles *t, Ref r, DType d, int32_t st[NAXES])
{
    AxisSet axes = t->g->n[r].axes;
    int32_t unit = d == F32 ? 8 : 16 / dtype_size(d), step = 1;
    bool transposed = lies_transposed(t, r);

    memset(st, 0, NAXES * sizeof *st);
    for (AxisSet s = axes; s; s &= ~AXIS(inner_axis(s, transposed))) {
        int ax = inner_axis(s, transposed);
        st[ax] = step;
        step *= tile_extent(t, r, ax);
        if ((transposed ? s == axes : ends_row(axes, ax)) && step >= 16)
            step = ((step + unit - 1) / unit | 1) * unit;
    }
    return step;
}

int32_t tile_strides(const Tiles *t, Ref r, int32_t st[NAXES])
{
    return strides_as(t, r, tile_type(t, r), st);
}

int tile_new(Tiles *t, Ref r, bool pinned)
{
    if (t->ntiles == t->cap_tiles) {
        size_t old = (size_t)t->cap_tiles * sizeof *t->tile;
        t->cap_tiles = t->cap_tiles ? 2 * t->cap_tiles : 64;
        t->tile = ctx_grow(t->c, t->tile, old,
                           (size_t)t->cap_tiles * sizeof *t->tile);
    }
    t->tile[t->ntiles] = (Tile){ .pinned = pinned };
    tile_retype(t, t->ntiles, r, tile_type(t, r));
    return t->ntiles++;
}

void tile_retype(Tiles *t, int tile, Ref r, DType d)
{
    int32_t st[NAXES];

    t->tile[tile].type = d;
    t->tile[tile].elements = strides_as(t, r, d, st);
}

Spot tile_spot(const Tiles *t, Ref r, int tile)
{
    Spot s = { .tile = tile };

    strides_as(t, r, t->tile[tile].type, s.st);
    return s;
}

bool same_strides(const Tiles *t, Ref r, const Spot *a, const Spot *b)
{
    for (AxisSet s = t->g->n[r].axes; s; s &= s - 1) {
        int ax = lowest(s);
        if (a->st[ax] != b->st[ax] && tile_extent(t, r, ax) > 1)
            return false;
    }
    return a->at == b->at && a->tail == b->tail;
}

bool is_view(int op)
{
    return op_is(op, MOVES);
}

bool constant_of(const Tiles *t, Ref r, double *x)
{
    const Node *n = &t->g->n[r];

    *x = n->op == OP_size ? t->g->axis[n->index].size : n->num;
    if (n->op == OP_num || n->op == OP_size)
        return true;
    return is_view(n->op) && constant_of(t, n->a[0], x);
}

/* ---- text ---- */

const char *axis_coord(int ax)
{
    static const char *const text[NAXES] = {
        "i", "r1", "r2", "r3", "j", "s1", "s2", "s3", "d0", "d1", "d2", "d3",
        "d4", "d5", "d6", "d7", "d8", "d9", "d10", "d11", "d12", "d13", "d14",
        "d15", "d16", "d17", "d18", "d19", "d20", "d21", "d22", "d23"
    };

    return text[ax];
}

static void term_text(Buf *b, bool *any, const char *what, int32_t step)
{
    if (!step)
        return;
    buf_printf(b, *any ? " + %s" : "%s", what);
    if (step != 1)
        buf_printf(b, " * %d", (int)step);
    *any = true;
}

void index_text(Buf *b, const Spot *s, AxisSet axes, int skip,
                const char *other)
{
    bool any = false;

    for (; axes; axes &= axes - 1) {
        int ax = lowest(axes);
        const char *at = ax == skip ? other : axis_coord(ax);
        if (s->transposed && ax == s->transposed)
            at = ctx_format(b->ctx, "(%s ^ 1)", at);
        term_text(b, &any, at, s->st[ax]);
    }
    term_text(b, &any, "(n - 1)", s->tail);
    if (s->at || !any)
        buf_printf(b, any ? " + %d" : "%d", (int)s->at);
}

static bool is_only_user(const Tiles *t, Ref r, Ref x)
{
    for (Ref u = 1; u < t->g->len; u++)
        for (int i = 0; i < 4; i++)
            if (u != r && t->has[u] && t->g->n[u].a[i] == x)
                return false;
    return !t->kept[x] && !graph_is_root(t->g, x);
}

void turn_inside(Tiles *t, Ref r, Ref x)
{
    const Node *n = &t->g->n[x];
    int ax = n->op == OP_rot90 ? lowest(n->over) : 0;

    if (!ax || !t->has[x] || t->done[x]
        || !(t->g->n[r].axes & AXIS(ax)) || tile_extent(t, x, ax) % 2
        || !is_only_user(t, r, x))
        return;
    need(t, n->a[0]);
    t->spot[x] = t->spot[n->a[0]];
    t->spot[x].transposed = (uint8_t)ax;
    t->done[x] = 1;
}

void element_text(Tiles *t, Act *a, Buf *b, Ref r, AxisSet axes, int skip,
                  const char *other)
{
    double x;

    if (constant_of(t, r, &x)) {
        number_text(b, x);
        return;
    }
    const Spot *s = &t->spot[r];
    bool plain = t->tile[s->tile].type == F32;
    act_uses(t, a, s->tile, false);
    buf_printf(b, plain ? "t%d[" : "get(t%d[", s->tile);
    index_text(b, s, axes, skip, other);
    buf_printf(b, plain ? "]" : "])");
}

void exact_text(Tiles *t, Act *a, Buf *b, Ref r, AxisSet axes)
{
    double x;

    if (constant_of(t, r, &x) || t->tile[t->spot[r].tile].type != F64) {
        element_text(t, a, b, r, axes, -1, NULL);
        return;
    }
    act_uses(t, a, t->spot[r].tile, false);
    buf_printf(b, "t%d[", t->spot[r].tile);
    index_text(b, &t->spot[r], axes, -1, NULL);
    buf_printf(b, "]");
}

void pair_text(Buf *b, const char *what, const Spot *s,
               AxisSet axes, int along)
{
    int32_t others = s->at | s->tail;

    for (AxisSet o = axes & ~AXIS(along); o; o &= o - 1)
        others |= s->st[lowest(o)];
    buf_printf(b, "%s<%d, %s>(t%d + ", what, (int)s->st[along],
               others % 2 ? "false" : "true", s->tile);
    index_text(b, s, axes, -1, NULL);
}

/* ---- loops ---- */

bool is_token_axis(int ax)
{
    return ax == AX_I || ax == AX_J;
}

/* How many elements, the first axis at n if it is a token's. */
static void count_text(const Tiles *t, Buf *b, Ref r, AxisSet axes)
{
    int32_t size = 1;
    int first = lowest(axes);

    for (AxisSet s = axes; s; s &= s - 1)
        if (!(lowest(s) == first && is_token_axis(first)))
            size *= tile_extent(t, r, lowest(s));
    if (first >= 0 && is_token_axis(first))
        buf_printf(b, size > 1 ? "n * %d" : "n", (int)size);
    else
        buf_printf(b, "%d", (int)size);
}

/* The coordinates that number `x` of the elements has; an inner token's may
 * be too large. */
void coords_text(const Tiles *t, Buf *b, const char *x, Ref r, AxisSet axes,
                 const char *next)
{
    int32_t size = 1, step[NAXES];

    for (AxisSet s = axes; s; s &= ~AXIS(highest(s))) {
        step[highest(s)] = size;
        size *= tile_extent(t, r, highest(s));
    }
    for (AxisSet s = axes; s; s &= s - 1) {
        int ax = lowest(s);
        buf_printf(b, "const int %s = %s", axis_coord(ax), x);
        if (step[ax] > 1)
            buf_printf(b, " / %d", (int)step[ax]);
        if (s != axes)
            buf_printf(b, " %% %d", (int)tile_extent(t, r, ax));
        buf_printf(b, ";\n");
        if (is_token_axis(ax) && s != axes)
            buf_printf(b, "if (%s >= n)\n%s;\n", axis_coord(ax), next);
    }
}

static int32_t size_of(const Tiles *t, Ref r, AxisSet axes)
{
    int32_t size = 1;

    for (AxisSet s = axes; s; s &= s - 1)
        size *= tile_extent(t, r, lowest(s));
    return size;
}

const char *unroll_text(const Tiles *t, int32_t trips)
{
    return t->m->chunk == 1 ? "" : trips <= 1 ? "NO_UNROLL "
         : trips <= 2 || t->o->attempt > 1 ? "UNROLL_TWICE " : "UNROLL_FOUR ";
}

/* Threads that stay in their columns, `each` at a time, where those fit the
 * block. */
static bool column_loop(const Tiles *t, Buf *b, Ref r, AxisSet axes, int each)
{
    int first = axes && lies_transposed(t, r) ? highest(axes)
              : axes ? lowest(axes) : 0;
    AxisSet inner = axes & ~AXIS(first);
    int32_t size = size_of(t, r, inner) / each;

    if (!inner || !size || t->out->threads % size)
        return false;
    int32_t trips = (tile_extent(t, r, first) * size - 1) / t->out->threads + 1;
    buf_printf(b, "%sfor (int f = TID / %d, e = TID %% %d",
               unroll_text(t, trips), (int)size, (int)size);
    buf_printf(b, each > 1 ? " * %d; f < " : "; f < ", each);
    count_text(t, b, r, AXIS(first));
    buf_printf(b, "; f += THREADS / %d) {\nconst int %s = f;\n", (int)size,
               axis_coord(first));
    coords_text(t, b, "e", r, inner, "continue");
    if (is_token_axis(lowest(inner)))
        buf_printf(b, "if (%s >= n)\ncontinue;\n",
                   axis_coord(lowest(inner)));
    return true;
}

void loop_open(const Tiles *t, Buf *b, const char *from, const char *step,
               Ref r, AxisSet axes)
{
    if (!strcmp(from, "TID") && column_loop(t, b, r, axes, 1))
        return;
    int each = !strcmp(from, "0") ? t->out->threads
             : !strcmp(from, "WARP") ? WARP_SIZE : 1;
    int32_t trips = (size_of(t, r, axes) * each - 1) / t->out->threads + 1;
    buf_printf(b, "%sfor (int e = %s; e < ", unroll_text(t, trips), from);
    count_text(t, b, r, axes);
    buf_printf(b, "; e += %s) {\n", step);
    coords_text(t, b, "e", r, axes, "continue");
}

bool pair_loop_open(const Tiles *t, Buf *b, Ref r, int *along)
{
    AxisSet axes = t->g->n[r].axes;

    if (!(axes & (axes - 1)))
        return false;
    *along = inner_axis(axes, lies_transposed(t, r));
    return !is_token_axis(*along) && tile_extent(t, r, *along) % 2 == 0
        && column_loop(t, b, r, axes, 2);
}

void group_open(const Tiles *t, Buf *b, int lanes, Ref r, AxisSet axes)
{
    Buf count = { .ctx = t->c };

    int32_t trips = (size_of(t, r, axes) * lanes - 1) / t->out->threads + 1;
    count_text(t, &count, r, axes);
    buf_printf(b, "%sfor (int from = TID / %d, g = from; g - from < %s; g +="
               " THREADS / %d) {\nconst int e = min(g, %s - 1);\n"
               "const bool first = g == e && TID %% %d == 0;\n",
               unroll_text(t, trips), lanes, count.s, lanes, count.s, lanes);
    coords_text(t, b, "e", r, axes, "continue");
}
