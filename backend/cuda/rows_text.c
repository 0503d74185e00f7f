/* rows_text.c -- where a kernel over rows has its values, and tensors theirs.
 */
#include "rows_text.h"

bool text_has_lanes(const Text *t, Ref r)
{
    return t->g->n[r].axes & t->p->lanes;
}

AxisSet text_registers(const Text *t, Ref r)
{
    return t->g->n[r].axes & ~t->p->lanes;
}

int64_t text_live(const Text *t, Ref r)
{
    int64_t n = text_has_lanes(t, r) ? t->shape.each : 1;

    for (AxisSet s = text_registers(t, r); s; s &= s - 1)
        n *= axis_extent(t->g, r, lowest(s));
    return n;
}

char *text_place(const Text *t, Ref r)
{
    Buf b = { .ctx = t->c };
    int64_t n = text_has_lanes(t, r) ? t->shape.each : 1;
    AxisSet s = text_registers(t, r);

    buf_printf(&b, "%s", text_has_lanes(t, r) ? t->entry : "0");
    for (int ax = NAXES - 1; ax >= 0; ax--) {
        if (!(s & AXIS(ax)))
            continue;
        buf_printf(&b, " + (%s) * %lld", t->index[ax], (long long)n);
        n *= axis_extent(t->g, r, ax);
    }
    return b.s;
}

void text_open_one(const Text *t, const char *index, int n)
{
    PUT(t, "UNROLL\nfor (int %s = 0; %s < %d; %s++) {\n", index, index, n,
        index);
}

void text_open(const Text *t, Ref r, AxisSet s)
{
    for (AxisSet own = s & ~t->p->lanes; own; own &= own - 1)
        text_open_one(t, t->index[lowest(own)], axis_extent(t->g, r,
                                                        lowest(own)));
    if (s & t->p->lanes)
        text_open_one(t, t->entry, t->shape.each);
}

void text_close(const Text *t, AxisSet s)
{
    for (AxisSet own = s & ~t->p->lanes; own; own &= own - 1)
        PUT(t, "}\n");
    if (s & t->p->lanes)
        PUT(t, "}\n");
}

char *text_along(const Text *t, int ax, const char *at)
{
    int32_t span = rows_span(t->p, ax);

    if (t->p->nlanes == 1)
        return ctx_format(t->c, "(%s)", at);
    return ctx_format(t->c, "((%s) / %d %% %d)", at, span,
                      t->g->axis[ax].size);
}

const char *text_type(DType d)
{
    static const char *const name[] = { "F32", "BF16", "F16", "F64", "I32",
                                        "I64" };

    return name[d];
}

static int dim_of(const uint8_t *order, int rank, int ax)
{
    for (int d = 0; d < rank; d++)
        if (order[d] == ax)
            return d;
    return 0;
}

/* Are a lane's entries pieces of 16 bytes, or one of 8? */
static bool is_whole(const Text *t, const View *v, const uint8_t *order,
                     int rank, bool lanes)
{
    int64_t size = dtype_size(v->dtype), each = 16 / size;
    int inner = dim_of(order, rank, rows_inner(t->p));

    each = each < t->shape.each ? each : t->shape.each;
    if (!lanes || v->dtype == F64 || each * size < 8 || t->shape.each % each
        || t->p->length % t->shape.each || v->sd[inner] != 1
        || (uintptr_t)v->data % (uintptr_t)(each * size) || v->sb % each
        || v->st % each || v->sh % each)
        return false;
    for (int d = 0; d < rank; d++)
        if (d != inner && v->sd[d] % each)
            return false;
    return true;
}

int text_block(const Text *t, const View *v, const uint8_t *order, int rank,
               Ref r)
{
    AxisSet own = text_registers(t, r);
    int inner = rank - 1, n = rank ? axis_extent(t->g, r, order[inner]) : 0;
    int64_t size = dtype_size(v->dtype), block = (int64_t)t->shape.each * n;

    if (rank != 2 || own != AXIS(order[inner]) || !text_exact(t)
        || order[0] != rows_inner(t->p) || t->p->nlanes != 1
        || v->dtype == F64 || v->sd[inner] != 1 || v->sd[0] != n
        || block * size % 16
        || (uintptr_t)v->data % 16 || v->sh * size % 16)
        return 0;
    return n;
}

/* "BF16, 4, true" */
char *text_kind(const Text *t, const Moving *m)
{
    AxisSet axes = t->g->n[m->r].axes;
    bool lanes = axes & t->p->lanes;
    bool runs = lanes && axes & AXIS(rows_inner(t->p));

    return ctx_format(t->c, "%s, %d, %s", text_type(m->v->dtype),
                      lanes ? t->shape.each : 1, is_whole(t, m->v, m->order,
                      m->rank, runs) ? "true" : "false");
}

/* "a.arg[0].p, place, step, left" */
char *text_places(const Text *t, const Moving *m)
{
    AxisSet axes = t->g->n[m->r].axes;
    bool runs = axes & t->p->lanes && axes & AXIS(rows_inner(t->p));
    int inner = dim_of(m->order, m->rank, rows_inner(t->p));
    Buf b = { .ctx = t->c };

    if (m->arg == t->near)
        buf_printf(&b, "near_rows, %s", m->where);
    else
        buf_printf(&b, "a.arg[%d].p, %s", m->arg, m->where);
    bool whole = is_whole(t, m->v, m->order, m->rank, runs);
    for (int d = 0; d < m->rank; d++) {
        buf_printf(&b, " + %s", AXIS(m->order[d]) & t->p->lanes
                   ? text_along(t, m->order[d], "e0") : t->index[m->order[d]]);
        if (!whole || d != inner)
            buf_printf(&b, " * a.arg[%d].sd[%d]", m->arg, d);
    }
    buf_printf(&b, ", %s, %s", runs ? ctx_format(t->c, "a.arg[%d].sd[%d]",
               m->arg, inner) : "0", m->left);
    return b.s;
}

bool text_exact(const Text *t)
{
    return t->shape.group * t->shape.each == t->p->length;
}

const char *text_entries(const Text *t, Ref r)
{
    return !text_has_lanes(t, r) ? "1" : text_exact(t) ? "row_each"
                                                : "row_length - e0";
}

char *text_left(const Text *t, Ref r, const char *on)
{
    return ctx_format(t->c, "%s ? %s : 0", on, text_entries(t, r));
}

char *text_token(const Text *t, int arg, const char *token)
{
    return ctx_format(t->c, "b * a.arg[%d].sb + (%s) * a.arg[%d].st + h * "
                      "a.arg[%d].sh", arg, token, arg, arg);
}
