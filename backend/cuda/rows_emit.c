/* rows_emit.c -- a step without a carried state as a kernel over rows.
 *
 * A lane holds `each` entries of a row; what lacks the row's axis it holds
 * once. Other axes are unrolled. A sum over the row is one over its lanes. The
 * way back goes from the last token to the first, and holds what each has for
 * the gradients of those before it that it reads; so a piece of tokens begins
 * as far behind its end as reading goes.
 */
#include "rows_text.h"
#include "source.h"

#include <string.h>

/* ---- values ---- */

char *text_node(const Text *t, Ref r)
{
    return ctx_format(t->c, "v%u", (unsigned)r);
}

char *text_carried(const Text *t, int j)
{
    return ctx_format(t->c, "x%d", j);
}

char *text_operand(const Text *t, Ref r)
{
    Buf b = { .ctx = t->c };

    if (t->g->n[r].op == OP_num) {
        number_text(&b, t->g->n[r].num);
        return b.s;
    }
    return ctx_format(t->c, "%s[%s]", text_node(t, r), text_place(t, r));
}

void text_declare(const Text *t, Ref r)
{
    PUT(t, "float %s[%lld];\n", text_node(t, r), (long long)text_live(t, r));
}

/* ---- loads ---- */

void text_move(const Text *t, const Moving *m)
{
    AxisSet s = text_registers(t, m->r);
    Text at = *t;

    at.entry = "0";
    text_open(t, m->r, s);
    PUT(t, "%s<%s>(%s, %s + %s);\n", m->act, text_kind(t, m),
        text_places(t, m), m->name, text_place(&at, m->r));
    text_close(t, s);
}

/* Where the row's entries that the value has are first met: what lacks an axis
 * of rows is the same all along it. */
static char *once(const Text *t, Ref r, const char *at)
{
    Buf b = { .ctx = t->c };
    AxisSet s = t->p->lanes & ~t->g->n[r].axes;

    for (; s && text_has_lanes(t, r); s &= s - 1)
        buf_printf(&b, " && %s == 0", text_along(t, lowest(s), at));
    return b.s ? b.s : "";
}

/* One lane stores what all of them have. */
static char *stored_left(const Text *t, Ref r, const char *on)
{
    bool one = !text_has_lanes(t, r) && t->shape.group > 1;

    return text_left(t, r, one ? ctx_format(t->c, "%s && lane == 0", on) : on);
}

char *text_state(const Text *t, int arg)
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
        text_move(t, &(Moving){ "load", text_state(t, arg), text_entries(t, r),
             name, arg, v, st->order, st->rank, r });
        PUT(t, "}\n");
    }
}

void text_clear(const Text *t, const char *name, Ref r)
{
    PUT(t, "UNROLL\nfor (int z = 0; z < %lld; z++)\n%s[z] = 0;\n",
        (long long)text_live(t, r), name);
}

/* Input `source` as it was `depth` tokens before, in the loop over tokens. */
static void take_delayed(const Text *t, const char *name, Ref r, int source,
                         int depth, const char *on)
{
    PUT(t, "{\nconst i64 at = t - %d;\n", depth);
    ahead_take(t, source, depth, name, r,
               ctx_format(t->c, "%s && at >= s.start", on));
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
    text_clear(t, name, r);
    PUT(t, "if (at >= s.start) {\n");
    text_move(t, &(Moving){ "load", text_token(t, arg, "at"),
         text_left(t, r, on), name, arg, &t->call->in[source], in->order,
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
    char *name = text_node(t, r);

    text_declare(t, r);
    if (!dy && i >= p->nin) {
        take_delayed(t, name, r, p->source[i - p->nin], p->depth[i - p->nin],
                     on);
        return;
    }
    if (in->timed) {
        ahead_take(t, dy ? p->nin : i, 0, name, r, on);
        return;
    }
    int block = text_block(t, &t->call->in[i], in->order, in->rank, r);
    if (block) {
        PUT(t, "load_block<%s, row_each, %d>(a.arg[%d].p, h * a.arg[%d].sh + e0"
            " * %d, %s);\n", text_type(t->call->in[i].dtype), block, arg, arg,
            block, name);
        return;
    }
    text_move(t, &(Moving){ "load", ctx_format(t->c, "h * a.arg[%d].sh", arg),
         text_left(t, r, "true"), name, arg, &t->call->in[i], in->order,
         in->rank, r });
}

/* ---- operations ---- */

static void set_entry(const Text *t, Ref r, const char *value)
{
    AxisSet s = t->g->n[r].axes;

    text_declare(t, r);
    text_open(t, r, s);
    PUT(t, "%s = %s;\n", text_operand(t, r), value);
    text_close(t, s);
}

/* Where the axis is, in an operation over it. */
static const char *place_on(const Text *t, int ax)
{
    return ax && AXIS(ax) & t->p->lanes ? text_along(t, ax, "e0 + i")
                                        : t->index[ax];
}

/* A one at one place of an axis, times x, is x there; elsewhere a zero that
 * leaves what it is added to as it is. NULL: it is no such product. */
static char *element_there(const Text *t, const Node *n)
{
    for (int i = 0; i < 2 && n->op == OP_mul; i++) {
        const Node *one = &t->g->n[n->a[i]];
        if (is_one_hot(one->op))
            return ctx_format(t->c, "%s == %d ? %s : -0.f", place_on(t,
                              lowest(one->over)), one->index,
                              text_operand(t, n->a[1 - i]));
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
        a[i] = text_operand(t, n->a[i]);
    value_text(&b, n->op, a);
    return b.s;
}

/* With the index of an axis for another one's. */
static char *operand_at(const Text *t, Ref r, int ax, const char *index)
{
    Text at = *t;

    at.index[ax] = index;
    return text_operand(&at, r);
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
    const char *x = text_operand(t, n->a[0]);
    Ref wide = n->a[0];

    if (op_is(n->op, MULTIPLIES))
        x = ctx_format(t->c, "%s * %s", x, text_operand(t, n->a[1]));
    for (int i = 0; i < 2 && op_is(n->op, MULTIPLIES); i++)
        if ((t->g->n[n->a[i]].axes & n->over) == n->over)
            wide = n->a[i];
    if (across && (!text_exact(t) || *once(t, wide, "e0 + i")))
        x = ctx_format(t->c, "e0 + i < row_length%s ? %s : 0.f",
                       once(t, wide, "e0 + i"), x);
    text_declare(t, r);
    text_open(t, r, n->axes & ~(across ? t->p->lanes : 0));
    PUT(t, "{\nfloat sum = 0;\n");
    text_open(t, wide, n->over);
    PUT(t, "sum += %s;\n", x);
    text_close(t, n->over);
    if (across)
        PUT(t, "sum = total<%s>(sum);\n", summed_lanes(t, r)
            == t->shape.group ? "row_group" : ctx_format(t->c, "%d",
                                              summed_lanes(t, r)));
    if (across && text_has_lanes(t, r))
        text_open_one(t, t->entry, t->shape.each);
    PUT(t, "%s = sum;\n", text_operand(t, r));
    if (across && text_has_lanes(t, r))
        PUT(t, "}\n");
    PUT(t, "}\n");
    text_close(t, n->axes & ~(across ? t->p->lanes : 0));
}

static const char *entry_at(const void *ud, Ref r, const char *place)
{
    Text at = *(const Text *)ud;

    at.entry = ctx_format(at.c, "(%s)", place);
    return text_operand(&at, r);
}

static char *carried_entry(const Text *t, Ref r)
{
    return ctx_format(t->c, "%s[%s]", text_carried(t, t->g->n[r].index),
                      text_place(t, r));
}

static void emit_node(const Text *t, Ref r, const char *on)
{
    const Node *n = &t->g->n[r];
    int over = n->over ? lowest(n->over) : 0;
    const char *place = place_on(t, over);

    if (n->op == OP_input)
        load_input(t, r, on);
    else if (n->op == OP_state)
        set_entry(t, r, carried_entry(t, r));
    else if (op_info[n->op].traits & ELEMENTWISE)
        set_entry(t, r, element(t, n));
    else if (op_is(n->op, ADDS_UP))
        emit_sum(t, r);
    else if (op_is(n->op, MOVES))
        set_entry(t, r, operand_at(t, n->a[0], over, op_has(n->op, TO_AXIS)
                                   ? t->index[n->index]
                                   : ctx_format(t->c, "%d", n->index)));
    else if (op_is(n->op, PAIRS | CONST))
        set_entry(t, r, entry_text(t->c, n, op_is(n->op, PAIRS) ? "i" : place,
                                   entry_at, t));
}

/* ---- the body ---- */

void text_mark(const Graph *g, uint8_t *live, Ref r)
{
    live[r] |= r != 0;
    for (; r > 0; r--)
        for (int i = 0; live[r] && i < 4; i++)
            if (g->n[r].a[i])
                live[g->n[r].a[i]] = 1;
}

/* The live nodes: those that no token changes, or the others. */
void text_nodes(Text *t, const uint8_t *live, bool timed,
                       const char *on)
{
    for (Ref r = 1; r < t->g->len; r++) {
        const Node *n = &t->g->n[r];
        if (!live[r] || n->op == OP_num || (n->timed != 0) != timed)
            continue;
        if (!timed && t->computed[r])
            continue;
        t->computed[r] |= !timed;
        emit_node(t, r, on);
    }
}

static uint8_t *live_of(const Text *t)
{
    const Rows *p = t->p;
    uint8_t *live = ctx_alloc(t->c, t->g->len);

    if (!t->call->backward || t->call->y.data)
        text_mark(t->g, live, t->g->out[0].node);
    for (int i = 0; t->call->backward && i < p->nin + p->nst; i++)
        if (rows_wants(p, t->call, i < p->nin ? i : p->source[i - p->nin]))
            text_mark(t->g, live, p->gradient[i]);
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
    text_open(t, like, s);
    PUT(t, "%s[%s] += %s;\n", sums, text_place(t, like), text_operand(t, r));
    text_close(t, s);
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
void text_pending(const Text *t)
{
    for (int i = 0; t->call->backward && i < t->p->nin; i++) {
        Ref r = input_node(t, i);
        if (!t->p->step->in[i].timed || !rows_wants(t->p, t->call, i))
            continue;
        for (int d = 0; d <= most_depth(t->p, i); d++) {
            PUT(t, "float %s[%lld];\n", pending(t, i, d),
                (long long)text_live(t, r));
            text_clear(t, pending(t, i, d), r);
        }
    }
}

/* The token is one less: what has been pending for it, and for those before. */
static void move_on(const Text *t, int i)
{
    Ref r = input_node(t, i);
    int most = most_depth(t->p, i);

    if (!most) {
        text_clear(t, pending(t, i, 0), r);
        return;
    }
    PUT(t, "UNROLL\nfor (int z = 0; z < %lld; z++) {\n",
        (long long)text_live(t, r));
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

    PUT(t, "{\nfloat final_[%lld];\n", (long long)text_live(t, r));
    text_clear(t, "final_", r);
    load_states(t, ROW_DSTATE, i, "s.end - t", "final_", r,
                "live && t < s.end");
    PUT(t, "UNROLL\nfor (int z = 0; z < %lld; z++)\nd%d[z] += final_[z];\n}\n",
        (long long)text_live(t, r), i);
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
        text_move(t, &(Moving){ "store", rotation_place(t, arg),
             stored_left(t, r, own_text(t)), name, arg,
             rows_shared(t->call, v) ? &(View){ .dtype = F32 } : v, in->order,
             in->rank, r });
    for (int j = 0; j < t->p->nst; j++) {
        const State *st = &t->p->step->st[j];
        const View *ds = &t->call->ds[j];
        arg = rows_arg(t->p, ROW_DS, j);
        if (t->p->source[j] != i || !ds->data)
            continue;
        PUT(t, "if (own && s.start - t == %d) {\n", t->p->depth[j]);
        text_move(t, &(Moving){ "store", text_state(t, arg),
             text_left(t, r, "live"), name, arg, ds, st->order, st->rank,
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

    PUT(t, "{\nfloat there[%lld];\n", (long long)text_live(t, r));
    text_clear(t, "there", r);
    text_move(t, &(Moving){ "load", rotation_place(t, arg),
         text_left(t, r, own_text(t)), "there", arg,
         &t->call->dx[i], in->order, in->rank, r });
    PUT(t, "UNROLL\nfor (int z = 0; z < %lld; z++)\nd%d[z] += there[z];\n}\n",
        (long long)text_live(t, r), i);
}

/* y, where the row is `on`. */
void text_result(const Text *t, const char *on)
{
    const Output *y = &t->p->step->out[0];
    Ref r = t->g->out[0].node;
    int arg = rows_arg(t->p, ROW_Y, 0);

    if (t->g->n[r].op == OP_num || !t->call->y.data)
        return;
    text_move(t, &(Moving){ "store", rotation_place(t, arg),
              stored_left(t, r, on), text_node(t, r), arg, &t->call->y,
              y->order, y->rank, r });
    turn_next(t, arg);
}

void text_gradients(Text *t)
{
    const Rows *p = t->p;

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
            turn_next(t, rows_arg(p, ROW_DX, i));
    }
}

static void emit_backward(Text *t)
{
    PUT(t, "const bool on_0 = live%s;\n", t->packed || t->leaves
        ? " && t >= s.start && t < s.end" : "");
    ahead_move(t);
    text_nodes(t, t->live, true, "on_0");
    text_result(t, own_text(t));
    text_gradients(t);
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
        PUT(t, "{\nfloat was[%lld];\n", (long long)text_live(t, r));
        load_delayed(t, "was", r, p->source[j], p->depth[j], "live");
        text_move(t, &(Moving){ "store", text_state(t, arg),
             text_left(t, r, "live"), "was", arg, v, st->order, st->rank,
             r });
        PUT(t, "}\n");
    }
    PUT(t, "return;\n}\n");
}

static void emit_forward(Text *t)
{
    if (t->leaves)
        emit_left(t);
    PUT(t, "const bool on_0 = live;\n");
    ahead_move(t);
    text_nodes(t, t->live, true, "on_0");
    text_result(t, "on_0");
}

/* ---- the kernel ---- */

/* Of what lacks an axis of rows, one lane stores the one number. */
static char *sum_left(const Text *t, Ref r)
{
    if (!text_has_lanes(t, r))
        return text_left(t, r, "!left && row < a.rows && lane == 0");
    return text_left(t, r, ctx_format(t->c, "!left && row < a.rows%s",
                                      once(t, r, "e0")));
}

/* Sums of what no token changes: as it is declared, a piece for each group. */
void text_sums(Text *t, bool begin)
{
    const Rows *p = t->p;

    for (int i = 0; t->call->backward && i < p->nin; i++) {
        const Input *in = &p->step->in[i];
        int arg = rows_arg(p, ROW_DX, i);
        Ref r = input_node(t, i);
        if (in->timed || !rows_wants(p, t->call, i))
            continue;
        if (begin) {
            PUT(t, "float d%d[%lld];\n", i, (long long)text_live(t, r));
            text_clear(t, ctx_format(t->c, "d%d", i), r);
            continue;
        }
        View sum = { .dtype = F32 };    /* where fill_args says */
        for (int d = in->rank - 1, n = 1; d >= 0; d--) {
            sum.sd[d] = n;
            n *= axis_extent(t->g, r, in->order[d]);
        }
        int block = text_block(t, &sum, in->order, in->rank, r);
        if (block) {
            PUT(t, "store_block<F32, row_each, %d>(a.arg[%d].p, row * %lld + e0"
                " * %d, !left && row < a.rows, d%d);\n", block, arg,
                (long long)rows_entries(p, i), block, i);
            continue;
        }
        text_move(t, &(Moving){ "store", ctx_format(t->c, "row * %lld",
             (long long)rows_entries(p, i)), sum_left(t, r),
             ctx_format(t->c, "d%d", i), arg, &(View){ .dtype = F32 },
             in->order, in->rank, r });
    }
}

/* What moves on from iteration to iteration takes a fourth of all instructions
 * where tokens before are held, and none in iterations that are written out. */
static const char *unroll(const Text *t)
{
    return t->p->nst ? "UNROLL_FOUR" : "NO_UNROLL";
}

/* Iteration k has token base + k: there is one from `low` on, below `high`; on
 * the way forward it is the piece's below that, too. */
static void count_tokens(const Text *t)
{
    if (t->call->backward)
        PUT(t, "const int low = (int)within(-base, -counted, counted);\n"
            "const int high = inside ? (int)within(a.tokens - base, -counted,"
            " counted)\n: -counted;\n");
    else
        PUT(t, "const int high = inside ? left ? 1 : (int)within(a.tokens -"
            " base, 0, steps) : 0;\n");
}

/* The tokens of a piece, back from as far behind it as they are read; of what
 * is left of a sequence's first ones, those before it. */
static void open_back(const Text *t)
{
    int most = most_depth(t->p, -1);

    PUT(t, "const int owned = left ? %d : (int)a.length, last = owned + %d;\n",
        most, most - 1);
    PUT(t, "const i64 base = left ? span_at(a.ends, a.nseq, a.tokens,"
        " b,\ninside ? piece : 0).start - %d : first;\n", most);
    count_tokens(t);
    PUT(t, "const i64 begin = base + last;\n");
    ahead_begin(t);
    for (int i = 0; i < t->p->nin; i++)
        if (t->p->step->in[i].timed && t->call->dx[i].data)
            rotation_begin(t, rows_arg(t->p, ROW_DX, i), "begin");
    if (t->call->y.data)
        rotation_begin(t, rows_arg(t->p, ROW_Y, 0), "begin");
    PUT(t, "%s\nfor (int k = last; k >= 0; k--) {\n"
        "const bool own = k < owned;\n", unroll(t));
}

/* Of what is left of a sequence, nothing. */
static void open_forward(const Text *t)
{
    PUT(t, "const int steps = left ? 1 : (int)a.length;\n"
        "const i64 base = first, begin = first;\n");
    count_tokens(t);
    ahead_begin(t);
    if (t->call->y.data)
        rotation_begin(t, rows_arg(t->p, ROW_Y, 0), "begin");
    PUT(t, "%s\nfor (int k = 0; k < steps; k++) {\n", unroll(t));
}

/* Of a block. */
static int threads_of(const Text *t)
{
    return t->shape.group > 32 ? t->shape.group : ROW_THREADS;
}

static void emit_call(Text *t)
{
    PUT(t, "INLINE void run(const Args &a, const u32 block)\n{\n");
    PUT(t, "const int lane = threadIdx.x %% row_group, e0 = lane * row_each;\n"
        "const bool left = %s;\n"
        "const i64 row = (block - (left ? a.blocks : 0)) * %d\n"
        "+ threadIdx.x / row_group;\n"
        "u32 head, part;\n"
        "const i64 piece = divided_by((u32)row, a.by_heads, head), h = head;\n"
        "const i64 entry = divided_by((u32)piece, a.by_pieces, part);\n"
        "const i64 first = left ? 0 : part * a.length;\n"
        "const i64 b = left ? (a.ends ? 0 : piece) : entry;\n",
        t->leaves ? "block >= a.blocks" : "false",
        threads_of(t) / t->shape.group);
    PUT(t, "const bool inside = row < (left ? a.nseq * a.heads : a.rows);\n");
    t->live = live_of(t);
    ahead_find(t);
    text_nodes(t, t->live, false, "true");
    text_sums(t, true);
    text_pending(t);
    if (t->call->backward)
        open_back(t);
    else
        open_forward(t);
    if (t->p->nst) {
        PUT(t, t->call->backward
            ? "const bool live = inside && (left || k < high);\n"
            : "const bool live = k < high;\n");
        PUT(t, t->packed
            ? "const Span s = left ? span_at(a.ends, a.nseq, a.tokens, b,\n"
              "live ? piece : 0) : span_of(a.ends, a.nseq, a.tokens, b,\n"
              "live ? first + k : 0);\n"
            : "const Span s = { b, 0, a.tokens };\n");
        PUT(t, "const i64 t = %s;\n", t->call->backward ? "base + k"
            : "left ? s.end : first + k");
    } else {
        PUT(t, "const bool live = k < high;\nconst i64 t = first + k;\n");
        if (t->call->backward)
            PUT(t, "const Span s = { 0, 0, a.tokens };\n");
    }
    if (t->call->backward)
        emit_backward(t);
    else
        emit_forward(t);
    PUT(t, "}\n");
    text_sums(t, false);
    PUT(t, "}\n");
}

Text text_begin(Ctx *c, Buf *body, const Rows *p, const RowsCall *call)
{
    Text t = { .c = c, .b = body, .p = p, .call = call,
               .g = call->backward ? p->joint : p->forward,
               .shape = rows_shape(p, call), .packed = call->ends != 0,
               .leaves = rows_leaves(p, call), .back = call->backward,
               .near = -1 };

    t.computed = ctx_alloc(c, t.g->len);
    t.entry = "i";
    for (int ax = 0; ax < NAXES; ax++)
        t.index[ax] = ctx_format(c, "r%d", ax);
    return t;
}

static void put_includes(Buf *b, const Text *t, const char *what)
{
    buf_printf(b, "// %s, %s\n#include \"numbers.cuh\"\n"
               "#include \"warp.cuh\"\n#include \"functions.cuh\"\n"
               "#include \"rows.cuh\"\n", what,
               t->call->backward ? "backward" : "forward");
}

/* What the text takes: how rows lie, and arguments. */
static void put_args(Buf *b, const Text *t)
{
    buf_printf(b, "constexpr int row_length = %d, row_each = %d, row_group ="
               " %d;\n", t->p->length, t->shape.each, t->shape.group);
    buf_printf(b, "struct Args {\n    const i64 *ends;\n    i64 nseq, tokens,"
               " pieces, length, rows, blocks;\n    int heads, pad;\n"
               "    Divisor by_heads, by_pieces;\n"
               "    char *carried, *adjoints;\n    Arg arg[%d];\n};\n",
               rows_args(t->p, t->call));
}

char *text_end(const Text *t, const char *header)
{
    Buf b = { .ctx = t->c };

    put_includes(&b, t, "a step over rows");
    buf_printf(&b, "%s", header);
    put_args(&b, t);
    source_indent(&b, t->b->s);
    return b.s;
}

/* ---- calls side by side ---- */

/* Which call's text call i has, of those that have one. */
static int put_call(Buf *b, const Text *t, const char **own, int i)
{
    Buf one = { .ctx = t->c };
    int same = 0;

    put_args(&one, t);
    source_indent(&one, t->b->s);
    own[i] = one.s;
    while (strcmp(own[same], own[i]))
        same++;
    if (same == i)
        buf_printf(b, "namespace step_%d {\n%s}\n", i, own[i]);
    return same;
}

/* Each has so many blocks, one behind another. */
static void put_kernel(Buf *b, const Text *t, const int *text, int n)
{
    int threads = threads_of(t);

    buf_printf(b, "struct All {\n");
    for (int i = 0; i < n; i++)
        buf_printf(b, "    step_%d::Args own_%d;\n", text[i], i);
    buf_printf(b, "    u32 end[%d];\n};\nextern \"C\" __global__ void"
               " __launch_bounds__(%d, %d)\n"
               "flin_rows(const __grid_constant__ All a)\n{\n", n, threads,
               threads > ROW_THREADS ? 1 : 2 * ROW_THREADS / threads);
    for (int i = 0; i < n; i++) {
        if (n > 1)
            buf_printf(b, i ? "    else" : "    ");
        if (i + 1 < n)
            buf_printf(b, "%sif (blockIdx.x < a.end[%d])", i ? " " : "", i);
        buf_printf(b, n > 1 ? "\n        " : "    ");
        buf_printf(b, "step_%d::run(a.own_%d, blockIdx.x", text[i], i);
        if (i)
            buf_printf(b, " - a.end[%d]", i - 1);
        buf_printf(b, ");\n");
    }
    buf_printf(b, "}\n");
}

char *rows_emit(Ctx *c, const RowsRun *run, int n)
{
    Buf b = { .ctx = c };
    const char *own[ROWS_BESIDE];
    int text[ROWS_BESIDE];
    Text t;

    for (int i = 0; i < n; i++) {
        Buf raw = { .ctx = c };
        t = text_begin(c, &raw, run[i].p, run[i].call);
        if (!i)
            put_includes(&b, &t, n > 1 ? "steps over rows, side by side"
                                       : "a step over rows");
        emit_call(&t);
        text[i] = put_call(&b, &t, own, i);
    }
    put_kernel(&b, &t, text, n);
    return b.s;
}
