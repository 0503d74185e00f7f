/* rows_emit.c -- a step without a carried state as a kernel over rows.
 *
 * A lane holds `each` entries of a row; what lacks the row's axis it holds
 * once. Other axes are unrolled. A sum over the row is one over its lanes. The
 * way back goes from the last token to the first, and holds what each has for
 * the gradients of those before it that it reads; so a piece of tokens begins
 * as far behind its end as reading goes.
 */
#include "rows_emit.h"
#include "source.h"

#include <string.h>

typedef struct Text {
    Ctx *c;
    Buf *b;
    const Rows *p;
    const RowsCall *call;
    const Graph *g;
    RowsShape shape;
    const char *index[NAXES];           /* where an entry is looked at */
    const char *entry;                  /* of a lane's */
    bool packed;                        /* sequences have ends; else one is a
                                           batch entry */
    bool leaves;                        /* blocks for what is left of each */
    uint8_t *made;                      /* declared already: of what no token
                                           changes */
    const uint8_t *live;                /* of the loop */
} Text;

#define PUT(t, ...) buf_printf((t)->b, __VA_ARGS__)

/* ---- values ---- */

static bool has_lanes(const Text *t, Ref r)
{
    return t->g->n[r].axes & t->p->lanes;
}

static AxisSet registers_of(const Text *t, Ref r)
{
    return t->g->n[r].axes & ~t->p->lanes;
}

/* Numbers that a lane has of it. */
static int64_t held(const Text *t, Ref r)
{
    int64_t n = has_lanes(t, r) ? t->shape.each : 1;

    for (AxisSet s = registers_of(t, r); s; s &= s - 1)
        n *= axis_extent(t->g, r, lowest(s));
    return n;
}

static char *name_of(const Text *t, Ref r)
{
    return ctx_format(t->c, "v%u", (unsigned)r);
}

/* The place of its entry, where the axes are at t->index. */
static char *place_of(const Text *t, Ref r)
{
    Buf b = { .ctx = t->c };
    int64_t n = has_lanes(t, r) ? t->shape.each : 1;
    AxisSet s = registers_of(t, r);

    buf_printf(&b, "%s", has_lanes(t, r) ? t->entry : "0");
    for (int ax = NAXES - 1; ax >= 0; ax--) {
        if (!(s & AXIS(ax)))
            continue;
        buf_printf(&b, " + (%s) * %lld", t->index[ax], (long long)n);
        n *= axis_extent(t->g, r, ax);
    }
    return b.s;
}

static char *operand(const Text *t, Ref r)
{
    Buf b = { .ctx = t->c };

    if (t->g->n[r].op == OP_num) {
        number_text(&b, t->g->n[r].num);
        return b.s;
    }
    return ctx_format(t->c, "%s[%s]", name_of(t, r), place_of(t, r));
}

static void open_loop(const Text *t, const char *index, int n)
{
    PUT(t, "UNROLL\nfor (int %s = 0; %s < %d; %s++) {\n", index, index, n,
        index);
}

/* Loops over axes; of rows, over the entries of a lane. */
static void open_loops(const Text *t, Ref r, AxisSet s)
{
    for (AxisSet own = s & ~t->p->lanes; own; own &= own - 1)
        open_loop(t, t->index[lowest(own)], axis_extent(t->g, r,
                                                        lowest(own)));
    if (s & t->p->lanes)
        open_loop(t, t->entry, t->shape.each);
}

static void close_loops(const Text *t, AxisSet s)
{
    for (AxisSet own = s & ~t->p->lanes; own; own &= own - 1)
        PUT(t, "}\n");
    if (s & t->p->lanes)
        PUT(t, "}\n");
}

/* Where entry `at` of the row is on the axis. */
static char *along(const Text *t, int ax, const char *at)
{
    int32_t span = rows_span(t->p, ax);

    if (t->p->nlanes == 1)
        return ctx_format(t->c, "(%s)", at);
    return ctx_format(t->c, "((%s) / %d %% %d)", at, span,
                      t->g->axis[ax].size);
}

static void declare(const Text *t, Ref r)
{
    PUT(t, "float %s[%lld];\n", name_of(t, r), (long long)held(t, r));
}

/* ---- loads ---- */

static const char *type_text(DType d)
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

/* Moves a row of the argument, or what stands for it in registers: `act` is
 * load or store, `where` where the row begins, `left` how many there are. */
typedef struct Moving {
    const char *act, *where, *left, *name;
    int arg;
    const View *v;
    const uint8_t *order;
    int rank;
    Ref r;                              /* of its axes */
} Moving;

/* "BF16, 4, true" */
static char *kind_of_move(const Text *t, const Moving *m)
{
    AxisSet axes = t->g->n[m->r].axes;
    bool lanes = axes & t->p->lanes;
    bool runs = lanes && axes & AXIS(rows_inner(t->p));

    return ctx_format(t->c, "%s, %d, %s", type_text(m->v->dtype),
                      lanes ? t->shape.each : 1, is_whole(t, m->v, m->order,
                      m->rank, runs) ? "true" : "false");
}

/* "a.arg[0].p, place, step, left" */
static char *places_of_move(const Text *t, const Moving *m)
{
    AxisSet axes = t->g->n[m->r].axes;
    bool runs = axes & t->p->lanes && axes & AXIS(rows_inner(t->p));
    int inner = dim_of(m->order, m->rank, rows_inner(t->p));
    Buf b = { .ctx = t->c };

    buf_printf(&b, "a.arg[%d].p, %s", m->arg, m->where);
    for (int d = 0; d < m->rank; d++)
        buf_printf(&b, " + %s * a.arg[%d].sd[%d]", AXIS(m->order[d])
                   & t->p->lanes ? along(t, m->order[d], "e0")
                   : t->index[m->order[d]], m->arg, d);
    buf_printf(&b, ", %s, %s", runs ? ctx_format(t->c, "a.arg[%d].sd[%d]",
               m->arg, inner) : "0", m->left);
    return b.s;
}

static void move(const Text *t, const Moving *m)
{
    AxisSet s = registers_of(t, m->r);
    Text at = *t;

    at.entry = "0";
    open_loops(t, m->r, s);
    PUT(t, "%s<%s>(%s, %s + %s);\n", m->act, kind_of_move(t, m),
        places_of_move(t, m), m->name, place_of(&at, m->r));
    close_loops(t, s);
}

/* Where the row's entries that the value has are first met: what lacks an axis
 * of rows is the same all along it. */
static char *once(const Text *t, Ref r, const char *at)
{
    Buf b = { .ctx = t->c };
    AxisSet s = t->p->lanes & ~t->g->n[r].axes;

    for (; s && has_lanes(t, r); s &= s - 1)
        buf_printf(&b, " && %s == 0", along(t, lowest(s), at));
    return b.s ? b.s : "";
}

/* Is no lane's entry beyond the row's end? */
static bool is_exact(const Text *t)
{
    return t->shape.group * t->shape.each == t->p->length;
}

/* Of a lane's entries, or of the one number. */
static const char *entries_left(const Text *t, Ref r)
{
    return !has_lanes(t, r) ? "1" : is_exact(t) ? "row_each"
                                                : "row_length - e0";
}

/* "left" of a row that is on. */
static char *left_text(const Text *t, Ref r, const char *on)
{
    return ctx_format(t->c, "%s ? %s : 0", on, entries_left(t, r));
}

static char *timed_place(const Text *t, int arg, const char *token)
{
    return ctx_format(t->c, "b * a.arg[%d].sb + (%s) * a.arg[%d].st + h * "
                      "a.arg[%d].sh", arg, token, arg, arg);
}

static char *state_place(const Text *t, int arg)
{
    return ctx_format(t->c, "s.n * a.arg[%d].sb + h * a.arg[%d].sh", arg, arg);
}

/* What a state holds that stands `before` the sequence's first token, by how
 * far; where there is none, what `name` holds stays. */
static void load_states(const Text *t, RowsRole role, int source,
                        const char *before, const char *name, Ref r,
                        const char *on)
{
    const Rows *p = t->p;

    for (int j = 0; j < p->nst; j++) {
        const State *st = &p->step->st[j];
        const View *v = rows_view(t->call, role, j);
        int arg = rows_arg(p, role, j);
        if (p->source[j] != source || !v->data)
            continue;
        PUT(t, "if (%s && %s == %d) {\n", on, before, p->depth[j]);
        move(t, &(Moving){ "load", state_place(t, arg), entries_left(t, r),
             name, arg, v, st->order, st->rank, r });
        PUT(t, "}\n");
    }
}

static void clear(const Text *t, const char *name, Ref r)
{
    PUT(t, "UNROLL\nfor (int z = 0; z < %lld; z++)\n%s[z] = 0;\n",
        (long long)held(t, r), name);
}

/* ---- tokens that are read ahead ---- */

/* The result's gradient is input nin of these. */
static const View *ahead_view(const Text *t, int i)
{
    return i < t->p->nin ? &t->call->in[i] : &t->call->dy;
}

/* The node of such an input that has its axes; 0: it is not read so. deepest:
 * how far before the token. */
static Ref ahead_node(const Text *t, int i, int *deepest)
{
    const Rows *p = t->p;
    Ref found = 0;

    *deepest = 0;
    for (Ref r = 1; r < t->g->len; r++) {
        const Node *n = &t->g->n[r];
        bool state = n->op == OP_input && n->index >= p->nin
                  && n->index < p->nin + p->nst;
        int j = state ? n->index - p->nin : 0;
        int of = n->op != OP_input ? -1 : state ? p->source[j]
               : n->index < p->nin ? n->index : p->nin;
        if (!t->live[r] || !n->timed || of != i)
            continue;
        found = r;
        if (state && p->depth[j] > *deepest)
            *deepest = p->depth[j];
    }
    return found;
}

/* How it lies `depth` tokens before; behind the deepest, the one read next. */
static char *raw_name(const Text *t, int i, int depth)
{
    return ctx_format(t->c, "raw%d_%d", i, depth);
}

static char *raw_place(const Text *t, Ref r)
{
    Text at = *t;

    at.entry = "0";
    at.shape.each = 1;
    return place_of(&at, r);
}

/* In the loop, where the row of the token in turn begins: a number of its own,
 * which goes on with the token. */
static char *turn_place(const Text *t, int arg)
{
    return ctx_format(t->c, "at%d", arg);
}

static void begin_turns(const Text *t, int arg, const char *token)
{
    PUT(t, "i64 %s = %s;\n", turn_place(t, arg), timed_place(t, arg, token));
}

static void next_turn(const Text *t, int arg)
{
    PUT(t, "%s %s a.arg[%d].st;\n", turn_place(t, arg), t->call->backward
        ? "-=" : "+=", arg);
}

static int raw_arg(const Text *t, int i)
{
    return i < t->p->nin ? rows_arg(t->p, ROW_IN, i)
                         : rows_arg(t->p, ROW_DY, 0);
}

static Moving raw_move(const Text *t, int i, Ref r, char *place)
{
    const Rows *p = t->p;
    const Input *in = &t->g->in[i < p->nin ? i : p->nin + p->nst];

    return (Moving){ "", place, left_text(t, r, "some"), "", raw_arg(t, i),
                     ahead_view(t, i), in->order, in->rank, r };
}

/* Token `token`, if there is one, as the one read next; it lies at `place`. */
static void read_ahead(const Text *t, int i, Ref r, const char *name,
                       const char *token, char *place)
{
    Moving m = raw_move(t, i, r, place);

    PUT(t, "{\nconst i64 ahead = %s;\nconst bool some = inside && (u64)ahead <"
        " (u64)a.tokens;\n", token);
    open_loops(t, r, registers_of(t, r));
    PUT(t, "%s[%s] = fetch<%s>(%s);\n", name, raw_place(t, r),
        kind_of_move(t, &m), places_of_move(t, &m));
    close_loops(t, registers_of(t, r));
    PUT(t, "}\n");
}

/* Before the loop, whose first token is `begin`: what its first turn moves on
 * to. */
static void begin_ahead(const Text *t)
{
    const char *sign = t->call->backward ? "-" : "-1 -";

    for (int i = 0; i <= t->p->nin; i++) {
        int most;
        Ref r = ahead_node(t, i, &most);
        if (!r)
            continue;
        Moving m = raw_move(t, i, r, "");
        char *place = timed_place(t, raw_arg(t, i), "ahead");
        int n = (int)(held(t, r) / (has_lanes(t, r) ? t->shape.each : 1));
        for (int d = 0; d <= most + 1; d++)
            PUT(t, "Raw<%s> %s[%d];\n", kind_of_move(t, &m), raw_name(t, i,
                d), n);
        for (int d = 0; d < most; d++)
            read_ahead(t, i, r, raw_name(t, i, t->call->backward ? d + 1 : d),
                       ctx_format(t->c, "begin %s %d", sign, d), place);
        read_ahead(t, i, r, raw_name(t, i, most + 1), t->call->backward
                   ? ctx_format(t->c, "begin - %d", most) : "begin", place);
        begin_turns(t, raw_arg(t, i), t->call->backward
                    ? ctx_format(t->c, "begin - %d", most + 1) : "begin + 1");
    }
}

/* The loop is at token t. */
static void move_ahead(const Text *t)
{
    for (int i = 0; i <= t->p->nin; i++) {
        int most;
        Ref r = ahead_node(t, i, &most);
        if (!r)
            continue;
        int n = (int)(held(t, r) / (has_lanes(t, r) ? t->shape.each : 1));
        PUT(t, "UNROLL\nfor (int z = 0; z < %d; z++) {\n", n);
        for (int d = 0; d <= most && t->call->backward; d++)
            PUT(t, "%s[z] = %s[z];\n", raw_name(t, i, d), raw_name(t, i,
                d + 1));
        for (int d = most; d >= 0 && !t->call->backward; d--)
            PUT(t, "%s[z] = %s[z];\n", raw_name(t, i, d), raw_name(t, i, d
                ? d - 1 : most + 1));
        PUT(t, "}\n");
        read_ahead(t, i, r, raw_name(t, i, most + 1), t->call->backward
                   ? ctx_format(t->c, "t - %d", most + 1) : "t + 1",
                   turn_place(t, raw_arg(t, i)));
        next_turn(t, raw_arg(t, i));
    }
}

/* As numbers; where it is not `on`, zeros. What lies in no batch entry has been
 * read as zeros. */
static void take_raw(const Text *t, int i, int depth, const char *name, Ref r,
                     const char *on)
{
    Text at = *t;

    at.entry = "0";
    open_loops(t, r, registers_of(t, r));
    PUT(t, "unpack(%s[%s], %s, %s + %s);\n", raw_name(t, i, depth),
        raw_place(t, r), t->packed ? on : "true", name, place_of(&at, r));
    close_loops(t, registers_of(t, r));
}

/* Input `source` as it was `depth` tokens before, in the loop over tokens. */
static void take_delayed(const Text *t, const char *name, Ref r, int source,
                         int depth, const char *on)
{
    PUT(t, "{\nconst i64 at = t - %d;\n", depth);
    take_raw(t, source, depth, name, r, ctx_format(t->c, "%s && at >= s.start",
                                                   on));
    load_states(t, ROW_S0, source, "s.start - at", name, r, on);
    PUT(t, "}\n");
}

/* Input `source` as it was `depth` tokens before. */
static void load_delayed(const Text *t, const char *name, Ref r, int source,
                         int depth, const char *on)
{
    const Input *in = &t->p->step->in[source];
    int arg = rows_arg(t->p, ROW_IN, source);

    PUT(t, "{\nconst i64 at = t - %d;\n", depth);
    clear(t, name, r);
    PUT(t, "if (at >= s.start) {\n");
    move(t, &(Moving){ "load", timed_place(t, arg, "at"),
         left_text(t, r, on), name, arg, &t->call->in[source], in->order,
         in->rank, r });
    PUT(t, "}\n");
    load_states(t, ROW_S0, source, "s.start - at", name, r, on);
    PUT(t, "}\n");
}

static void load_input(const Text *t, Ref r, const char *on)
{
    const Rows *p = t->p;
    int i = t->g->n[r].index;
    const Input *in = &t->g->in[i];
    bool dy = i >= p->nin + p->nst;
    int arg = rows_arg(p, dy ? ROW_DY : ROW_IN, dy ? 0 : i);
    char *name = name_of(t, r);

    declare(t, r);
    if (!dy && i >= p->nin) {
        take_delayed(t, name, r, p->source[i - p->nin], p->depth[i - p->nin],
                     on);
        return;
    }
    if (in->timed) {
        take_raw(t, dy ? p->nin : i, 0, name, r, on);
        return;
    }
    move(t, &(Moving){ "load", ctx_format(t->c, "h * a.arg[%d].sh", arg),
         left_text(t, r, "true"), name, arg, &t->call->in[i], in->order,
         in->rank, r });
}

/* ---- operations ---- */

static void set_entry(const Text *t, Ref r, const char *value)
{
    AxisSet s = t->g->n[r].axes;

    declare(t, r);
    open_loops(t, r, s);
    PUT(t, "%s = %s;\n", operand(t, r), value);
    close_loops(t, s);
}

/* Where the axis is, in an operation over it. */
static const char *place_on(const Text *t, int ax)
{
    return ax && AXIS(ax) & t->p->lanes ? along(t, ax, "e0 + i")
                                        : t->index[ax];
}

/* A one at one place of an axis, times x, is x there; elsewhere a zero that
 * leaves what it is added to as it is. NULL: it is no such product. */
static char *element_there(const Text *t, const Node *n)
{
    for (int i = 0; i < 2 && n->op == OP_mul; i++) {
        const Node *one = &t->g->n[n->a[i]];
        if (one->op == OP_unit)
            return ctx_format(t->c, "%s == %d ? %s : -0.f", place_on(t,
                              lowest(one->over)), one->index,
                              operand(t, n->a[1 - i]));
    }
    return NULL;
}

static char *element(const Text *t, const Node *n)
{
    Buf b = { .ctx = t->c };
    const char *a[3] = { "0", "0", "0" };

    if (element_there(t, n))
        return element_there(t, n);
    for (int i = 0; i < op_info[n->op].arity; i++)
        a[i] = operand(t, n->a[i]);
    value_text(&b, n->op, a);
    return b.s;
}

/* With the index of an axis for another one's. */
static char *operand_at(const Text *t, Ref r, int ax, const char *index)
{
    Text at = *t;

    at.index[ax] = index;
    return operand(&at, r);
}

/* Lanes that sum with one another: a row's, or, where an outer axis of it is
 * left, those of its inner ones. */
static int summed_lanes(const Text *t, Ref r)
{
    AxisSet left = t->g->n[r].axes & t->p->lanes;
    int n = t->shape.group;

    for (int d = 0; d < t->p->nlanes; d++)
        if (left & AXIS(t->p->order[d]))
            n = rows_span(t->p, t->p->order[d]) / t->shape.each;
    return n;
}

static void emit_sum(const Text *t, Ref r)
{
    const Node *n = &t->g->n[r];
    bool across = n->over & t->p->lanes;
    const char *x = operand(t, n->a[0]);
    Ref wide = n->a[0];

    if (n->op == OP_dot)
        x = ctx_format(t->c, "%s * %s", x, operand(t, n->a[1]));
    for (int i = 0; i < 2 && n->op == OP_dot; i++)
        if ((t->g->n[n->a[i]].axes & n->over) == n->over)
            wide = n->a[i];
    if (across && (!is_exact(t) || *once(t, wide, "e0 + i")))
        x = ctx_format(t->c, "e0 + i < row_length%s ? %s : 0.f",
                       once(t, wide, "e0 + i"), x);
    declare(t, r);
    open_loops(t, r, n->axes & ~(across ? t->p->lanes : 0));
    PUT(t, "{\nfloat sum = 0;\n");
    open_loops(t, wide, n->over);
    PUT(t, "sum += %s;\n", x);
    close_loops(t, n->over);
    if (across)
        PUT(t, "sum = total<%s>(sum);\n", summed_lanes(t, r)
            == t->shape.group ? "row_group" : ctx_format(t->c, "%d",
                                              summed_lanes(t, r)));
    if (across && has_lanes(t, r))
        open_loop(t, t->entry, t->shape.each);
    PUT(t, "%s = sum;\n", operand(t, r));
    if (across && has_lanes(t, r))
        PUT(t, "}\n");
    PUT(t, "}\n");
    close_loops(t, n->axes & ~(across ? t->p->lanes : 0));
}

static char *other_of_pair(const Text *t, Ref r)
{
    Text at = *t;

    at.entry = "(i ^ 1)";
    return operand(&at, r);
}

static void emit_node(const Text *t, Ref r, const char *on)
{
    const Node *n = &t->g->n[r];
    int over = n->over ? lowest(n->over) : 0;
    const char *place = place_on(t, over);

    if (n->op == OP_input)
        load_input(t, r, on);
    else if (op_info[n->op].traits & ELEMENTWISE)
        set_entry(t, r, element(t, n));
    else if (n->op == OP_sum || n->op == OP_dot)
        emit_sum(t, r);
    else if (n->op == OP_select)
        set_entry(t, r, operand_at(t, n->a[0], over,
                                   ctx_format(t->c, "%d", n->index)));
    else if (n->op == OP_unit)
        set_entry(t, r, ctx_format(t->c, "%s == %d ? 1.f : 0.f", place,
                                   n->index));
    else if (n->op == OP_count)
        set_entry(t, r, ctx_format(t->c, "(float)%s", place));
    else if (n->op == OP_relabel)
        set_entry(t, r, operand_at(t, n->a[0], over, t->index[n->index]));
    else if (n->op == OP_rot90)
        set_entry(t, r, ctx_format(t->c, "i %% 2 ? %s : -%s",
                  other_of_pair(t, n->a[0]), other_of_pair(t, n->a[0])));
}

/* ---- the body ---- */

static void mark(const Graph *g, uint8_t *live, Ref r)
{
    live[r] |= r != 0;
    for (; r > 0; r--)
        for (int i = 0; live[r] && i < 4; i++)
            if (g->n[r].a[i])
                live[g->n[r].a[i]] = 1;
}

/* The live nodes: those that no token changes, or the others. */
static void emit_nodes(Text *t, const uint8_t *live, bool timed,
                       const char *on)
{
    for (Ref r = 1; r < t->g->len; r++) {
        const Node *n = &t->g->n[r];
        if (!live[r] || n->op == OP_num || (n->timed != 0) != timed)
            continue;
        if (!timed && t->made[r])
            continue;
        t->made[r] |= !timed;
        emit_node(t, r, on);
    }
}

static uint8_t *live_of(const Text *t)
{
    const Rows *p = t->p;
    uint8_t *live = ctx_alloc(t->c, t->g->len);

    if (!t->call->backward)
        mark(t->g, live, t->g->out[0].node);
    for (int i = 0; t->call->backward && i < p->nin + p->nst; i++)
        if (rows_wants(p, t->call, i < p->nin ? i : p->source[i - p->nin]))
            mark(t->g, live, p->gradient[i]);
    return live;
}

/* sums[z] += the node, where the row is on. */
static void add_up(const Text *t, const char *sums, Ref r, Ref like,
                   const char *on)
{
    AxisSet s = t->g->n[like].axes;

    if (!r)
        return;
    PUT(t, "if (%s) {\n", on);
    open_loops(t, like, s);
    PUT(t, "%s[%s] += %s;\n", sums, place_of(t, like), operand(t, r));
    close_loops(t, s);
    PUT(t, "}\n");
}

/* How far before a token it is read; source -1: any input. */
static int most_depth(const Rows *p, int source)
{
    int most = 0;

    for (int j = 0; j < p->nst; j++)
        if (source < 0 || p->source[j] == source)
            most = p->depth[j] > most ? p->depth[j] : most;
    return most;
}

/* The node of input i in the joint graph, for its axes. */
static Ref input_node(const Text *t, int i)
{
    return t->g->in[i].node;
}

/* What a token adds to the gradient of the one `depth` before it. */
static char *pending(const Text *t, int i, int depth)
{
    return depth ? ctx_format(t->c, "d%d_%d", i, depth)
                 : ctx_format(t->c, "d%d", i);
}

/* Gradients of timed inputs, before the loop: nothing is pending. */
static void begin_pending(const Text *t)
{
    for (int i = 0; t->call->backward && i < t->p->nin; i++) {
        Ref r = input_node(t, i);
        if (!t->p->step->in[i].timed || !rows_wants(t->p, t->call, i))
            continue;
        for (int d = 0; d <= most_depth(t->p, i); d++) {
            PUT(t, "float %s[%lld];\n", pending(t, i, d),
                (long long)held(t, r));
            clear(t, pending(t, i, d), r);
        }
    }
}

/* The token is one less: what has been pending for it, and for those before. */
static void move_on(const Text *t, int i)
{
    Ref r = input_node(t, i);
    int most = most_depth(t->p, i);

    if (!most) {
        clear(t, pending(t, i, 0), r);
        return;
    }
    PUT(t, "UNROLL\nfor (int z = 0; z < %lld; z++) {\n",
        (long long)held(t, r));
    for (int d = 0; d < most; d++)
        PUT(t, "%s[z] = %s[z];\n", pending(t, i, d), pending(t, i, d + 1));
    PUT(t, "%s[z] = 0;\n}\n", pending(t, i, most));
}

/* What the token adds to the gradient of input i, and of its tokens before. */
static void add_token(Text *t, int i)
{
    const Rows *p = t->p;
    bool timed = p->step->in[i].timed;

    add_up(t, pending(t, i, 0), p->gradient[i], input_node(t, i), timed
           ? "on_0" : "own && on_0");
    for (int j = 0; j < p->nst; j++)
        if (p->source[j] == i)
            add_up(t, pending(t, i, p->depth[j]), p->gradient[p->nin + j],
                   input_node(t, i), !t->packed ? "on_0" : ctx_format(t->c,
                   "on_0 && (left || t - %d >= s.start)", p->depth[j]));
}

static bool has_states(const Rows *p, int source)
{
    for (int j = 0; j < p->nst; j++)
        if (p->source[j] == source)
            return true;
    return false;
}

/* What is left behind of the input in the final states, too. */
static void add_final(Text *t, int i)
{
    Ref r = input_node(t, i);

    PUT(t, "{\nfloat final_[%lld];\n", (long long)held(t, r));
    clear(t, "final_", r);
    load_states(t, ROW_DSTATE, i, "s.end - t", "final_", r,
                "live && t < s.end");
    PUT(t, "UNROLL\nfor (int z = 0; z < %lld; z++)\nd%d[z] += final_[z];\n}\n",
        (long long)held(t, r), i);
}

/* Is the token the piece's own, and one of its sequence? */
static const char *own_text(const Text *t)
{
    return t->packed || t->leaves ? "own && live && t >= s.start"
                                  : "own && live";
}

static void store_input(Text *t, int i)
{
    const Input *in = &t->p->step->in[i];
    const View *v = &t->call->dx[i];
    int arg = rows_arg(t->p, ROW_DX, i);
    Ref r = input_node(t, i);
    char *name = ctx_format(t->c, "d%d", i);

    if (v->data)
        move(t, &(Moving){ "store", turn_place(t, arg),
             left_text(t, r, own_text(t)), name, arg,
             rows_shared(t->call, v) ? &(View){ .dtype = F32 } : v, in->order,
             in->rank, r });
    for (int j = 0; j < t->p->nst; j++) {
        const State *st = &t->p->step->st[j];
        const View *ds = &t->call->ds[j];
        arg = rows_arg(t->p, ROW_DS, j);
        if (t->p->source[j] != i || !ds->data)
            continue;
        PUT(t, "if (own && s.start - t == %d) {\n", t->p->depth[j]);
        move(t, &(Moving){ "store", state_place(t, arg),
             left_text(t, r, "live"), name, arg, ds, st->order, st->rank,
             r });
        PUT(t, "}\n");
    }
}

/* And what is there already. */
static void add_there(Text *t, int i)
{
    const Input *in = &t->p->step->in[i];
    int arg = rows_arg(t->p, ROW_DX, i);
    Ref r = input_node(t, i);

    PUT(t, "{\nfloat there[%lld];\n", (long long)held(t, r));
    clear(t, "there", r);
    move(t, &(Moving){ "load", turn_place(t, arg),
         left_text(t, r, own_text(t)), "there", arg,
         &t->call->dx[i], in->order, in->rank, r });
    PUT(t, "UNROLL\nfor (int z = 0; z < %lld; z++)\nd%d[z] += there[z];\n}\n",
        (long long)held(t, r), i);
}

static void emit_backward(Text *t)
{
    const Rows *p = t->p;

    PUT(t, "const bool on_0 = live%s;\n", t->packed || t->leaves
        ? " && t >= s.start && t < s.end" : "");
    move_ahead(t);
    emit_nodes(t, t->live, true, "on_0");
    for (int i = 0; i < p->nin; i++) {
        if (!rows_wants(p, t->call, i))
            continue;
        if (p->step->in[i].timed)
            move_on(t, i);
        add_token(t, i);
        if (!p->step->in[i].timed)
            continue;
        if (has_states(p, i))
            add_final(t, i);
        if (t->call->add[i])
            add_there(t, i);
        store_input(t, i);
        if (t->call->dx[i].data)
            next_turn(t, rows_arg(p, ROW_DX, i));
    }
}

/* Final states: what the source was so many tokens before the end. */
static void emit_left(Text *t)
{
    const Rows *p = t->p;

    PUT(t, "if (left) {\n");
    for (int j = 0; j < p->nst; j++) {
        const State *st = &p->step->st[j];
        const View *v = &t->call->s1[j];
        int arg = rows_arg(p, ROW_S1, j);
        Ref r = t->g->in[p->nin + j].node;
        if (!v->data)
            continue;
        PUT(t, "{\nfloat was[%lld];\n", (long long)held(t, r));
        load_delayed(t, "was", r, p->source[j], p->depth[j], "live");
        move(t, &(Moving){ "store", state_place(t, arg),
             left_text(t, r, "live"), "was", arg, v, st->order, st->rank,
             r });
        PUT(t, "}\n");
    }
    PUT(t, "return;\n}\n");
}

static void emit_forward(Text *t)
{
    const Output *y = &t->p->step->out[0];
    Ref r = t->g->out[0].node;
    bool number = t->g->n[r].op == OP_num;

    if (t->leaves)
        emit_left(t);
    PUT(t, "const bool on_0 = live;\n");
    move_ahead(t);
    emit_nodes(t, t->live, true, "on_0");
    if (number || !t->call->y.data)
        return;
    move(t, &(Moving){ "store", turn_place(t, rows_arg(t->p, ROW_Y, 0)),
         left_text(t, r, "on_0"), name_of(t, r), rows_arg(t->p, ROW_Y, 0),
         &t->call->y, y->order, y->rank, r });
    next_turn(t, rows_arg(t->p, ROW_Y, 0));
}

/* ---- the kernel ---- */

/* Of what lacks an axis of rows, one lane stores the one number. */
static char *sum_left(const Text *t, Ref r)
{
    if (!has_lanes(t, r))
        return left_text(t, r, "!left && row < a.rows && lane == 0");
    return left_text(t, r, ctx_format(t->c, "!left && row < a.rows%s",
                                      once(t, r, "e0")));
}

/* Sums of what no token changes: as it is declared, a piece for each group. */
static void emit_sums(Text *t, bool begin)
{
    const Rows *p = t->p;

    for (int i = 0; t->call->backward && i < p->nin; i++) {
        const Input *in = &p->step->in[i];
        int arg = rows_arg(p, ROW_DX, i);
        Ref r = input_node(t, i);
        if (in->timed || !rows_wants(p, t->call, i))
            continue;
        if (begin) {
            PUT(t, "float d%d[%lld];\n", i, (long long)held(t, r));
            clear(t, ctx_format(t->c, "d%d", i), r);
            continue;
        }
        move(t, &(Moving){ "store", ctx_format(t->c, "row * %lld",
             (long long)rows_entries(p, i)), sum_left(t, r),
             ctx_format(t->c, "d%d", i), arg, &(View){ .dtype = F32 },
             in->order, in->rank, r });
    }
}

/* The tokens of a piece, back from as far behind it as they are read; of what
 * is left of a sequence's first ones, those before it. */
static void open_back(const Text *t)
{
    int most = most_depth(t->p, -1);

    PUT(t, "const i64 owned = left ? %d : a.length, last = owned + %d;\n",
        most, most - 1);
    PUT(t, "const i64 begin = last + (left ? span_at(a.ends, a.nseq, a.tokens,"
        " b,\ninside ? piece : 0).start - %d : first);\n", most);
    begin_ahead(t);
    for (int i = 0; i < t->p->nin; i++)
        if (t->p->step->in[i].timed && t->call->dx[i].data)
            begin_turns(t, rows_arg(t->p, ROW_DX, i), "begin");
    PUT(t, "NO_UNROLL\nfor (i64 k = last; k >= 0; k--) {\n"
        "const bool own = k < owned;\n");
}

/* Of what is left of a sequence, nothing. */
static void open_forward(const Text *t)
{
    PUT(t, "const i64 begin = first;\n");
    begin_ahead(t);
    if (t->call->y.data)
        begin_turns(t, rows_arg(t->p, ROW_Y, 0), "begin");
    PUT(t, "NO_UNROLL\nfor (i64 k = 0; k < (left ? 1 : a.length); k++) {\n");
}

static void emit_kernel(Text *t)
{
    int threads = t->shape.group > 32 ? t->shape.group : ROW_THREADS;

    PUT(t, "extern \"C\" __global__ void __launch_bounds__(%d, %d)\n"
        "flin_rows(const __grid_constant__ Args a)\n{\n", threads,
        threads > ROW_THREADS ? 1 : 2 * ROW_THREADS / threads);
    PUT(t, "const int lane = threadIdx.x %% row_group, e0 = lane * row_each;\n"
        "const bool left = %s;\n"
        "const i64 row = (blockIdx.x - (left ? a.blocks : 0)) * %d\n"
        "+ threadIdx.x / row_group;\n"
        "const i64 h = row %% a.heads, piece = row / a.heads;\n"
        "const i64 first = left ? 0 : piece %% a.pieces * a.length;\n"
        "const i64 b = left ? (a.ends ? 0 : piece) : piece / a.pieces;\n",
        t->leaves ? "blockIdx.x >= a.blocks" : "false",
        threads / t->shape.group);
    PUT(t, "const bool inside = row < (left ? a.nseq * a.heads : a.rows);\n");
    t->live = live_of(t);
    emit_nodes(t, t->live, false, "true");
    emit_sums(t, true);
    begin_pending(t);
    if (t->call->backward)
        open_back(t);
    else
        open_forward(t);
    if (t->p->nst) {
        PUT(t, "bool live = row < (left ? a.nseq * a.heads : a.rows)\n"
            "&& (left || first + k < a.tokens);\n");
        PUT(t, t->packed
            ? "const Span s = left ? span_at(a.ends, a.nseq, a.tokens, b,\n"
              "live ? piece : 0) : span_of(a.ends, a.nseq, a.tokens, b,\n"
              "live ? first + k : 0);\n"
            : "const Span s = { b, 0, a.tokens };\n");
        PUT(t, "const i64 t = left ? s.%s : first + k;\n", t->call->backward
            ? ctx_format(t->c, "start - %d + k", most_depth(t->p, -1))
            : "end");
    } else {
        PUT(t, "const bool live = row < a.rows && first + k < a.tokens;\n"
            "const i64 t = first + k;\n");
        if (t->call->backward)
            PUT(t, "const Span s = { 0, 0, a.tokens };\n");
    }
    if (t->call->backward)
        emit_backward(t);
    else
        emit_forward(t);
    PUT(t, "}\n");
    emit_sums(t, false);
    PUT(t, "}\n");
}

char *rows_emit(Ctx *c, const Rows *p, const RowsCall *call)
{
    Buf raw = { .ctx = c }, b = { .ctx = c };
    Text t = { .c = c, .b = &raw, .p = p, .call = call,
               .g = call->backward ? p->joint : p->forward,
               .shape = rows_shape(p, call), .packed = call->ends != 0,
               .leaves = rows_leaves(p, call) };

    t.made = ctx_alloc(c, t.g->len);
    t.entry = "i";
    for (int ax = 0; ax < NAXES; ax++)
        t.index[ax] = ctx_format(c, "r%d", ax);
    emit_kernel(&t);
    buf_printf(&b, "// %s, %s\n#include \"numbers.cuh\"\n"
               "#include \"warp.cuh\"\n#include \"functions.cuh\"\n"
               "#include \"rows.cuh\"\n", "a step over rows", call->backward
               ? "backward" : "forward");
    buf_printf(&b, "constexpr int row_length = %d, row_each = %d, row_group ="
               " %d;\n", p->length, t.shape.each, t.shape.group);
    buf_printf(&b, "struct Args {\n    const i64 *ends;\n    i64 nseq, tokens,"
               " pieces, length, rows, blocks;\n    int heads, pad;\n"
               "    Arg arg[%d];\n};\n", rows_args(p));
    source_indent(&b, raw.s);
    return b.s;
}
