/* tile_token.c -- along the tokens: recurrences, and systems of equations. */
#include "tile.h"

/* ---- recurrences ---- */

/* An operand at token i, as the lambda that the scans call. */
static void along_text(Tiles *t, Act *a, Buf *b, Ref x, AxisSet axes,
                       bool back)
{
    buf_printf(b, "[&](int at) {\n");
    if (back)
        buf_printf(b, "const int i = n - 1 - at;\n");
    else
        buf_printf(b, "const int i = at;\n");
    buf_printf(b, "(void)i;\nreturn ");
    if (x)
        element_text(t, a, b, x, axes, -1, NULL);
    else
        buf_printf(b, "0.f");
    buf_printf(b, ";\n}");
}

/* Few columns have a warp each; many, a thread. */
void do_scan(Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];
    bool sum = n->op == OP_cumsum, back = n->flags & REVERSE;
    Ref b_of = sum ? n->a[0] : n->a[1], a_of = sum ? 0 : n->a[0];
    AxisSet cols = n->axes & ~AXIS(AX_I);
    int32_t count = 1;

    for (int i = 0; i < 4; i++)
        need(t, n->a[i]);
    for (AxisSet s = cols; s; s &= s - 1)
        count *= tile_extent(t, r, lowest(s));
    bool lanes = count <= t->out->threads / WARP_SIZE;
    Act *a = act_begin(t, r);
    Buf *b = &a->text;
    int tile = tile_new(t, r, t->pre[r]);
    t->spot[r] = tile_spot(t, r, tile);
    act_uses(t, a, tile, true);
    loop_open(t, b, lanes ? "WARP" : "TID", lanes ? "WARPS" : "THREADS", r,
              cols);
    const char *type = n->flags & WRAP ? "Angle"
                     : ctype_text(t->tile[tile].type);
    buf_printf(b, "const %s s = ", type);
    if (sum)
        buf_printf(b, "0");
    else
        element_text(t, a, b, n->a[2], cols, -1, NULL);
    buf_printf(b, ";\n%s<", lanes ? "scan_lanes" : "scan_alone");
    if (n->op == OP_maxscan)
        buf_printf(b, "Reaching");
    else if (a_of)
        buf_printf(b, "Scaling");
    else if (n->flags & WRAP)
        buf_printf(b, "Turning");
    else
        buf_printf(b, "Adding<%s>", type);
    buf_printf(b, ">(n, s, ");
    along_text(t, a, b, a_of, n->axes, back);
    buf_printf(b, ", ");
    along_text(t, a, b, b_of, n->axes, back);
    buf_printf(b, ",\n[&](int at, %s found, %s left) {\n"
               "const int i = %s;\nt%d[", type, type,
               back ? "n - 1 - at" : "at", tile);
    index_text(b, &t->spot[r], n->axes, -1, NULL);
    const char *value = n->flags & EXCLUSIVE ? "found" : "left";
    const char *other = n->flags & EXCLUSIVE ? "left" : "found";
    buf_printf(b, "] = %s;\n", value);
    buf_printf(b, "(void)%s;\n});\n}\n", other);
    t->done[r] = 1;
    if (t->kept[r])
        emit_keep(t, r);
}

/* A thread has a column's vectors, of the few numbers that a matrix of the
 * token makes of those before. */
void do_matscan(Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];
    const char *row = axis_coord(n->index);
    const char *col = axis_coord(lowest(n->over));
    AxisSet cols = n->axes & ~AXIS(AX_I) & ~AXIS(n->index);
    bool trans = n->flags & TRANS;
    int len = (int)tile_extent(t, r, n->index);

    for (int i = 0; i < 3; i++)
        need(t, n->a[i]);
    Act *a = act_begin(t, r);
    Buf *b = &a->text;
    int tile = tile_new(t, r, t->pre[r]);
    t->spot[r] = tile_spot(t, r, tile);
    act_uses(t, a, tile, true);
    loop_open(t, b, "TID", "THREADS", r, cols);
    buf_printf(b, "float found[%d], left[%d];\n"
               "_Pragma(\"unroll\")\nfor (int %s = 0; %s < %d; %s++)\n"
               "found[%s] = ", len, len, row, row, len, row, row);
    element_text(t, a, b, n->a[2], n->axes & ~AXIS(AX_I), -1, NULL);
    buf_printf(b, ";\nNO_UNROLL\nfor (int at = 0; at < n; at++) {\n"
               "const int i = %s;\n(void)i;\n"
               "_Pragma(\"unroll\")\nfor (int %s = 0; %s < %d; %s++)\n"
               "left[%s] = ", n->flags & REVERSE ? "n - 1 - at" : "at", row,
               row, len, row, row);
    element_text(t, a, b, n->a[1], n->axes, -1, NULL);
    buf_printf(b, ";\n_Pragma(\"unroll\")\n"
               "for (int %s = 0; %s < %d; %s++) {\n"
               "_Pragma(\"unroll\")\n"
               "for (int %s = 0; %s < %d; %s++)\nleft[%s] += ", row, row, len,
               row, col, col, len, col, trans ? col : row);
    element_text(t, a, b, n->a[0], t->g->n[n->a[0]].axes, -1, NULL);
    buf_printf(b, " * found[%s];\n}\n"
               "_Pragma(\"unroll\")\nfor (int %s = 0; %s < %d; %s++) {\n"
               "found[%s] = left[%s];\nt%d[", trans ? row : col, row, row,
               len, row, row, row, tile);
    index_text(b, &t->spot[r], n->axes, -1, NULL);
    buf_printf(b, "] = left[%s];\n}\n}\n}\n", row);
    t->done[r] = 1;
    if (t->kept[r])
        emit_keep(t, r);
}

/* ---- solve ---- */

/* Stride of the rows: tokens and the ranks that run with them. */
static int32_t row_stride(const Tiles *t, Ref r, const Spot *s, AxisSet rows)
{
    int32_t st = 0;

    for (; rows; rows &= rows - 1) {
        int ax = lowest(rows);
        if (st && st != s->st[ax] * tile_extent(t, r, ax))
            fail_code(t->c, ERR_INTERNAL, "solve: rows of axes %s",
                      axes_text(t->g, t->g->n[r].axes));
        st = s->st[ax];
    }
    return st;
}

/* Whether nobody but r looks at x, which has a tile of its own. */
static bool is_last_reader(const Tiles *t, Ref r, Ref x)
{
    const Node *n = &t->g->n[x];
    Spot own = tile_spot(t, r, t->spot[x].tile);

    if (n->op == OP_input || n->op == OP_state || is_view(n->op)
        || t->kept[x] || t->tile[own.tile].pinned || t->factor[x]
        || t->tile[own.tile].type != F32 || n->axes != t->g->n[r].axes
        || !same_strides(t, r, &own, &t->spot[x]))
        return false;
    for (Ref u = x + 1; u < t->g->len; u++)
        for (int i = 0; i < 4; i++)
            if (t->has[u] && u != r && t->g->n[u].a[i] == x)
                return false;
    for (int s = 0; s < t->g->nst; s++)
        if (t->g->st[s].next == x)
            return false;
    return true;
}

/* The right-hand side, to be solved in place: a copy, if it is to stay. */
static int take_side(Tiles *t, Ref r)
{
    Ref side = t->g->n[r].a[1];

    if (is_last_reader(t, r, side)) {
        t->spot[r] = t->spot[side];
        return t->spot[r].tile;
    }
    Act *a = act_begin(t, r);
    int tile = tile_new(t, r, t->pre[r]);

    t->spot[r] = tile_spot(t, r, tile);
    act_uses(t, a, tile, true);
    loop_open(t, &a->text, "TID", "THREADS", r, t->g->n[r].axes);
    buf_printf(&a->text, "t%d[", tile);
    index_text(&a->text, &t->spot[r], t->g->n[r].axes, -1, NULL);
    buf_printf(&a->text, "] = ");
    element_text(t, a, &a->text, side, t->g->n[r].axes, -1, NULL);
    buf_printf(&a->text, ";\n}\n");
    return tile;
}

/* Whether the rows start at multiples of 16 bytes. */
static bool in_fours(const Tiles *t, const Spot *s, int32_t rows,
                     AxisSet loops)
{
    int32_t all = rows | s->at | s->tail;

    for (; loops; loops &= loops - 1)
        all |= s->st[lowest(loops)];
    return all % 4 == 0 && t->tile[s->tile].type == F32;
}

enum { INVERSE = 20 };                  /* scans.cuh's: floats a row */

/* Rows are tokens and those ranks whose twins the matrix has in its columns;
 * of the other axes, those that it lacks are columns. */
void do_solve(Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];
    Ref m = n->a[0];
    AxisSet ax = t->g->n[m].axes;
    AxisSet rows = ((ax & COL_AXES) >> AX_J & ~AXIS(AX_I)) | AXIS(AX_I);
    AxisSet cols = n->axes & ~rows & ~ax, loops = n->axes & ~rows & ax;
    int32_t count = 1, step = 0, ranks = 1;
    Buf at_m = { .ctx = t->c }, at_x = { .ctx = t->c };

    need(t, m);
    need(t, n->a[1]);
    int x = take_side(t, r);
    const Spot *sx = &t->spot[r], *sm = &t->spot[m];
    for (AxisSet s = cols; s; s &= ~AXIS(highest(s))) {
        int c = highest(s);
        if (step && sx->st[c] != step * count) {
            loops |= s;
            break;
        }
        step = step ? step : sx->st[c];
        count *= tile_extent(t, r, c);
    }
    for (AxisSet s = rows & ~AXIS(AX_I); s; s &= s - 1)
        ranks *= tile_extent(t, r, lowest(s));
    Act *a = act_begin(t, r);
    int inverse = tile_new(t, r, t->pre[r]);
    t->tile[inverse].elements = t->chunk * ranks * INVERSE;
    act_uses(t, a, x, true);
    act_uses(t, a, inverse, true);
    act_uses(t, a, sm->tile, false);
    for (AxisSet s = loops; s; s &= s - 1) {
        const char *c = axis_coord(lowest(s));
        buf_printf(&a->text, "for (int %s = 0; %s < %d; %s++) {\n", c, c,
                   (int)tile_extent(t, r, lowest(s)), c);
    }
    index_text(&at_m, sm, loops & ax, -1, NULL);
    index_text(&at_x, sx, loops, -1, NULL);
    int32_t rs = row_stride(t, m, sm, ax & ROW_AXES & rows);
    int32_t cs = row_stride(t, m, sm, ax & COL_AXES);
    bool pieces = cs == 1 && in_fours(t, sm, rs, loops & ax);
    buf_printf(&a->text, "solve<%s, %d, %d, %d, %d, %s>(n * %d, %d, t%d + %s,"
               " t%d + %s, t%d);\n", n->flags & TRANS ? "true" : "false",
               (int)rs, (int)cs, (int)row_stride(t, r, sx, rows),
               (int)(step ? step : 1), pieces ? "true" : "false", (int)ranks,
               (int)count, sm->tile, at_m.s, x, at_x.s, inverse);
    for (AxisSet s = loops; s; s &= s - 1)
        buf_printf(&a->text, "}\n");
    a->synced = true;
    t->done[r] = 1;
    if (t->kept[r])
        emit_keep(t, r);
}
