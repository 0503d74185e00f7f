/* print_memory.c -- of kernels whose warps all do the same what lies in memory:
 * where the elements of tensors are, results, what kernels keep for one
 * another, inputs on their way.
 */
#include "print_tokens.h"
#include "source.h"

#include <string.h>

static int warps_of(const Walk *w) { return w->s->tokens.threads / LANES; }

/* ---- addresses ---- */

int place_in(const uint8_t *order, int rank, int ax)
{
    int at = 0;
    for (int d = 0; d < rank; d++)
        at = order[d] == ax ? d : at;
    return at;
}

/* From an element to the next along an axis: rows are whole in calls that are
 * single, and states dense. */
const char *step_text(const Walk *w, int tensor, const uint8_t *order,
                      int rank, int d, bool dense)
{
    int64_t step = 1;
    if (!w->p.o->single || (d + 1 < rank && !dense))
        return ctx_format(w->c, "a.t[%d].sd[%d]", tensor, d);
    for (int i = d + 1; i < rank; i++)
        step *= w->g->axis[order[i]].size;
    return ctx_format(w->c, "%lld", (long long)step);
}

/* The first element of the block's slice. */
const char *slice_text(const Walk *w, int tensor, const uint8_t *order,
                       int rank, AxisSet axes, bool dense)
{
    int ax = w->s->slice_axis;
    return w->s->slices == 1 || !(axes & AXIS(ax)) ? ""
         : ctx_format(w->c, " + block * %d * %s",
                      (int)block_extent(w->s, ax),
                      step_text(w, tensor, order, rank,
                                place_in(order, rank, ax), dense));
}

/* Calls that are single have rows of whole pieces of 16 bytes where that many
 * elements are such. */
bool are_pieces(const Walk *w, DType d, int64_t row)
{
    return w->p.o->single && row * (int64_t)dtype_size(d) % 16 == 0;
}

const char *wide_text(const Walk *w, int tensor, DType d, int64_t row)
{
    return are_pieces(w, d, row) ? "true"
         : ctx_format(w->c, "a.t[%d].wide", tensor);
}

/* Of a call that is single all tensors are there. */
const char *there_text(const Walk *w, int tensor)
{
    return w->p.o->single ? "true" : ctx_format(w->c, "a.t[%d].p", tensor);
}

/* The tensor's own head, as a number of its elements. */
const char *own_head_text(const Walk *w, int tensor, const char *head)
{
    const CudaOptions *o = w->p.o;
    return o->single && !o->grouped
         ? ctx_format(w->c, "%s * a.t[%d].sh", head, tensor)
         : ctx_format(w->c, "head_of(a.t[%d], %s) * a.t[%d].sh", tensor, head,
                      tensor);
}

/* Where the token's elements begin, or those of a chunk's first. */
static const char *token_place(const Walk *w, int tensor, const char *head)
{
    return has_rows(w->s)
         ? ctx_format(w->c, "at_token(a.t[%d], q, token, %s)", tensor, head)
         : ctx_format(w->c, "q.b * a.t[%d].sb + token * a.t[%d].st + %s",
                      tensor, tensor, own_head_text(w, tensor, head));
}

/* From there on. dense: one row behind the other, in calls that are single. */
const char *strides_text(const Walk *w, int tensor, const uint8_t *order,
                         int rank, bool dense)
{
    Buf b = { .ctx = w->c };
    for (int d = 0; d < rank; d++)
        buf_printf(&b, " + %s * %s", token_coord(w, order[d]),
                   step_text(w, tensor, order, rank, d, dense));
    return b.len ? b.s : "";
}

/* The token's, too. */
static const char *rows_text(const Walk *w, int tensor, AxisSet axes)
{
    return axes & AXIS(AX_I) ? ctx_format(w->c, " + i * a.t[%d].st", tensor)
                             : "";
}

/* What all slices have alike is left by the first. */
const char *first_text(const Walk *w, AxisSet axes)
{
    return w->s->slices == 1 || axes & AXIS(w->s->slice_axis) ? ""
         : " && block == 0";
}

void put_single_item(Walk *w, const char *of)
{
    int blocks = w->p.k->blocks;
    buf_printf(w->b, "const u32 item = %s;\n"
               "const int block = (int)(item %% %d);\n"
               "const i64 s = by_few_heads(a.run, item / %d);\n"
               "const int head = (int)(item / %d) - (int)s * a.run.heads;\n"
               "(void)block;\n", of, blocks, blocks, blocks);
}

/* ---- results ---- */

const char *output_place(Walk *w, int i)
{
    const Output *o = &w->g->out[i];
    int t = result_tensor(&w->p, ARG_OUTPUT, i);
    return ctx_format(w->c, "(%s *)a.t[%d].p + %s%s%s%s",
                      ctype_text(result_type(&w->p, ARG_OUTPUT, i)), t,
                      token_place(w, t, "fresh(head)"),
                      slice_text(w, t, o->order, o->rank,
                                 w->g->n[o->node].axes, false),
                      rows_text(w, t, has_rows(w->s) ? AXIS(AX_I) : 0),
                      strides_text(w, t, o->order, o->rank, false));
}

/* Whether the result is stored from the program's loop. */
bool leaves_result(const Walk *w, int output)
{
    const Output *o = &w->g->out[output];
    bool all = w->s->wants_out[output] && has_node(w->k, o->node)
            && w->k >= w->s->inst + w->s->tokens.first
            && (!has_rows(w->s) || w->g->n[o->node].axes & AXIS(AX_I));
    for (int i = 0; i < o->rank; i++)
        all &= (w->g->n[o->node].axes & AXIS(o->order[i])) != 0;
    return all;
}

void put_outputs(Walk *w)
{
    for (int i = 0; i < w->g->nout; i++) {
        Ref r = w->g->out[i].node;
        const char *to = leaves_result(w, i) ? output_place(w, i) : NULL;
        if (to)
            buf_printf(w->b, "if (%s%s)\nput(%s, v%u);\n",
                       there_text(w, result_tensor(&w->p, ARG_OUTPUT, i)),
                       first_text(w, w->g->n[r].axes), to, (unsigned)r);
    }
}

/* The result may not vary along some of its axes. */
void put_result(Walk *w)
{
    const Output *o = &w->g->out[w->k->index];
    AxisSet axes = w->g->n[o->node].axes;
    const char *to = output_place(w, w->k->index);

    buf_printf(w->b, "if (%s%s) {\n",
               there_text(w, result_tensor(&w->p, ARG_OUTPUT, w->k->index)),
               first_text(w, axes));
    if (has_rows(w->s) && !(axes & AXIS(AX_I)))
        buf_printf(w->b, "for (int i = 0; i < n; i++)\n");
    for (int i = 0; i < o->rank; i++) {
        const char *x = token_coord(w, o->order[i]);
        if (!(axes & AXIS(o->order[i])))
            buf_printf(w->b, "for (int %s = 0; %s < %d; %s++)\n", x, x,
                       (int)w->g->axis[o->order[i]].size, x);
    }
    open_loop(w, o->node, axes);
    buf_printf(w->b, "put(%s, %s);\n}\n}\n", to, token_element(w, o->node));
}

/* ---- what kernels keep for one another, token by token ---- */

/* The place of its first element, of a slice that of the block. */
static const char *kept_at(const Walk *w, Ref r)
{
    bool cut = w->s->slices > 1
            && w->g->n[r].axes & AXIS(w->s->slice_axis);
    int32_t st[NAXES] = { 0 };

    kept_strides(w->s, r, st);
    return ctx_format(w->c, "(%s *)(%s + %lld)%s",
                      ctype_text(w->s->stored16[r] ? w->s->tile : F32),
                      w->stored->later[r] ? "later" : "stored",
                      (long long)w->stored->at[r], !cut ? ""
                      : ctx_format(w->c, " + block * %d",
                                   (int)(block_extent(w->s, w->s->slice_axis)
                                         * st[w->s->slice_axis])));
}

static const char *kept_index(const Walk *w, Ref r)
{
    KSpot s = { .value = NOTHING };

    kept_strides(w->s, r, s.st);
    return token_index(w, &s, NOTHING, NULL);
}

/* Zeros where the chunk has no tokens: rows, and columns of scores, which
 * products of kernels behind take as they are. */
void put_no_tokens(Walk *w, Ref r)
{
    int32_t st[NAXES] = { 0 }, size = kept_strides(w->s, r, st);
    int rows = (int)w->s->tokens.rows;
    bool i = w->g->n[r].axes & AXIS(AX_I), j = w->g->n[r].axes & AXIS(AX_J);
    Buf past = { .ctx = w->c };

    if (!has_rows(w->s) || !(i || j))
        return;
    if (i)
        buf_printf(&past, "x / %d %% %d >= n", (int)st[AX_I], rows);
    if (j)
        buf_printf(&past, "%sx / %d %% %d >= n", i ? " || " : "",
                   (int)st[AX_J], rows);
    buf_printf(w->b, "for (int x = TID; n < %d && x < %d; x += THREADS)\n"
               "if (%s)\nput((%s *)(%s + %lld) + x, 0.f);\n", rows, (int)size,
               past.s, ctype_text(w->s->stored16[r] ? w->s->tile : F32),
               w->stored->later[r] ? "later" : "stored",
               (long long)w->stored->at[r]);
}

void put_kept(Walk *w, Ref r, const char *value)
{
    const char *first = first_text(w, w->g->n[r].axes);
    if (*first)
        buf_printf(w->b, "if (block == 0)\n");
    buf_printf(w->b, "put(%s + %s, %s);\n", kept_at(w, r), kept_index(w, r),
               value);
}

/* ---- inputs ---- */

void put_declared(Walk *w, int value, const char *place)
{
    const KValue *v = value_at(&w->p, value);
    const char *type = ctype_text(token_type(w, v));

    if (v->alias != NOTHING || lies_where_kept(w->s, v))
        return;
    if (v->layout == LAY_REGTILE || v->layout == LAY_LINE) {
        if (v->layout == LAY_LINE && is_dealt_line(w, v->node))
            buf_printf(w->b, "%s t%d[%d];\n", type, value, dealt_count(w));
        else if (v->layout == LAY_LINE)
            buf_printf(w->b, "Line<%s, %d> t%d;\n", type,
                       w->g->n[v->node].axes ? REGTILE_PIECE : 1, value);
        else
            buf_printf(w->b, "float t%d[%d];\n", value, regtile_count(w->s));
        return;
    }
    buf_printf(w->b, "%s *const t%d = (%s *)(%s + %d", type, value, type,
               v->spilled ? "spill" : "arena", (int)v->at);
    if (place)
        buf_printf(w->b, " + (%s) %% 2 * %d", place,
                   (v->element * v->nrow + 15) / 16 * 16);
    buf_printf(w->b, ");\n");
}

/* Of inputs that have two places: at that token's. */
void put_places(Walk *w, const char *place)
{
    for (int i = 0; i < w->s->nvalues; i++)
        if (has_two_places(w->s, value_at(&w->p, i)))
            put_declared(w, i, place);
}

/* Whether copies may go on behind the threads' back. */
static const char *copies(const Walk *w, int value)
{
    return value_at(&w->p, value)->spilled ? "false" : "true";
}

/* More than two axes: element by element. */
static void put_any_load(Walk *w, int value, int tensor, const Input *in)
{
    Ref r = value_at(&w->p, value)->node;
    KSpot s = flat_spot(w->s, r);
    AxisSet axes = w->g->n[r].axes;

    buf_printf(w->b, "NO_UNROLL for (int e = LANE; e < %d; e += LANES) {\n",
               (int)flat_count(w->s, r, axes));
    put_coords(w, "e", r, axes, "continue");
    buf_printf(w->b, "copy1_as<%s>(t%d + %s, p%s);\n}\n",
               copies(w, value), value, token_index(w, &s, NOTHING, NULL), in
               ? strides_text(w, tensor, in->order, in->rank, false)
               : ctx_format(w->c, " + %s", kept_index(w, r)));
}

/* What a kernel before has kept: by all, in rows, or by a warp. */
static void put_found(Walk *w, int value)
{
    const KValue *v = value_at(&w->p, value);
    Ref r = v->node;
    DType d = token_type(w, v);
    AxisSet axes = w->g->n[r].axes, rows = axes ? axes & (axes - 1) : 0;
    int cols = highest(axes), len = axes ? flat_extent(w->s, r, cols) : 1;
    int pitch = axes ? w->s->ext[r][cols] : 1;

    if (has_two_places(w->s, v) || rows & (rows - 1)) {
        buf_printf(w->b, "if (WARP == %d) {\nconst %s *p = %s;\n",
                   value % warps_of(w), ctype_text(d), kept_at(w, r));
        put_any_load(w, value, 0, NULL);
        buf_printf(w->b, "}\n");
        return;
    }
    buf_printf(w->b, "copy_in<%d, %d, %s>(t%d, (const %s *)(%s), %d, 1, %d,"
               " %s);\n", len, len, copies(w, value), value, ctype_text(d),
               kept_at(w, r), pitch,
               rows ? (int)flat_extent(w->s, r, lowest(axes)) : 1,
               pitch % (16 / (int)dtype_size(d)) == 0 ? "true" : "false");
}

/* Where the token, or chunk, at `at` has what kernels keep. */
void put_stored(Walk *w)
{
    static const char *const name[] = { "stored", "later" };

    for (int i = 0; i < 2; i++)
        if (w->stored->bytes[i])
            buf_printf(w->b, "char *const %s = global(a.run.%s) + ((slot + at)"
                       " * a.run.heads + head) * %lldll;\n(void)%s;\n",
                       name[i], name[i], (long long)w->stored->bytes[i],
                       name[i]);
}

/* Where token m lies. */
void put_token(Walk *w, const char *m)
{
    buf_printf(w->b, "const i64 at = %s%s%s;\nconst i64 token = q.start + at;"
               "\n(void)token;\n", w->s->kind == K_REVERSE
               ? "q.len - 1 - (" : "", m, w->s->kind == K_REVERSE ? ")" : "");
    put_stored(w);
}

/* By each thread, what is its own. */
static void put_line(Walk *w)
{
    int value = w->k->out[0];
    Ref r = value_at(&w->p, value)->node;
    int i = w->g->n[r].index;
    const Input *in = &w->g->in[i];
    int t = tensor_for(&w->p, ARG_INPUT, i, w->p.o->in[i]);
    const char *type = ctype_text(w->p.o->in[i]);
    AxisSet axes = w->g->n[r].axes;

    buf_printf(w->b, "{\nconst %s *p = (const %s *)a.t[%d].p + %s%s;\n", type,
               type, t, in->timed ? token_place(w, t, "head")
               : own_head_text(w, t, "head"),
               slice_text(w, t, in->order, in->rank, axes, false));
    if (!axes)
        buf_printf(w->b, "line_put(t%d, 0, p[0]);\n}\n", value);
    else if (is_dealt_line(w, r))
        buf_printf(w->b, "dealt_in<%d, %d, %d>(t%d, p, regtile_row, %s);\n}\n",
                   w->s->tokens.warp_cols / REGTILE_PIECE,
                   (int)regtile_rows(w->s),
                   (int)block_extent(w->s, w->s->tokens.row), value,
                   step_text(w, t, in->order, in->rank, 0, false));
    else
        buf_printf(w->b, "line_in(t%d, p, regtile_col, %s, %s);\n}\n", value,
                   step_text(w, t, in->order, in->rank, 0, false),
                   wide_text(w, t, w->p.o->in[i], w->g->axis[in->order[0]]
                             .size));
}

/* Of a token. */
void put_lines(Walk *w, const char *m)
{
    const Schedule *s = w->s;
    bool any = false;

    if (w->p.o->single && strcmp(m, "0"))
        return;
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++) {
        if (!token_is_line(s, k))
            continue;
        if (!any) {
            buf_printf(w->b, "if (%s < q.len) {\n", m);
            put_token(w, m);
        }
        any = true;
        w->k = k;
        put_line(w);
    }
    if (any)
        buf_printf(w->b, "}\n");
}

/* By one warp. */
void put_load_of(Walk *w)
{
    int value = w->k->out[0];
    Ref r = value_at(&w->p, value)->node;
    int i = w->g->n[r].index;
    if (token_found(w->s, r)) {
        put_found(w, value);
        return;
    }
    const Input *in = &w->g->in[i];
    int t = tensor_for(&w->p, ARG_INPUT, i, w->p.o->in[i]);
    const char *type = ctype_text(w->p.o->in[i]);
    AxisSet rows = in->axes, axes = w->g->n[r].axes;
    int cols = highest(axes);

    buf_printf(w->b, "if (WARP == %d) {\nconst %s *p = (const %s *)a.t[%d].p +"
               " ", t % warps_of(w), type, type, t);
    buf_printf(w->b, "%s%s;\n", in->timed ? token_place(w, t, "head")
               : own_head_text(w, t, "head"),
               slice_text(w, t, in->order, in->rank, axes, false));
    rows = axes ? axes & ~AXIS(cols) : 0;
    if (rows & (rows - 1)) {
        put_any_load(w, value, t, in);
    } else {
        int len = axes ? flat_extent(w->s, r, cols) : 1;
        int down = rows ? place_in(in->order, in->rank, lowest(rows)) : 0;
        bool whole = axes && in->order[in->rank - 1] == cols;
        buf_printf(w->b, "warp_in<%d, %d, %d, %s>(t%d, p, %s, %s, %s);\n",
                   rows ? (int)flat_extent(w->s, r, lowest(rows)) : 1, len, len,
                   copies(w, value), value,
                   rows ? step_text(w, t, in->order, in->rank, down, false)
                        : "0",
                   axes ? step_text(w, t, in->order, in->rank,
                                    place_in(in->order, in->rank, cols), false)
                        : "0",
                   whole ? wide_text(w, t, w->p.o->in[i], w->g->axis[cols].size)
                         : "false");
    }
    buf_printf(w->b, "}\n");
}

/* Of a chunk by all: a matrix, a row or a column of numbers by the device's own
 * loop. False: it is none. */
static bool put_plain_load(Walk *w, int value, const Input *in, int t)
{
    Ref r = value_at(&w->p, value)->node;
    AxisSet axes = w->g->n[r].axes, own = axes & ~AXIS(AX_I);
    AxisSet rows = own ? own & ~AXIS(highest(own)) : 0;
    int32_t st[NAXES];
    int col = highest(own), row = axes & AXIS(AX_I) ? AX_I : lowest(rows);

    if (!own || rows & (rows - 1) || (rows && axes & AXIS(AX_I)))
        return false;
    flat_strides(w->s, r, st);
    buf_printf(w->b, "copy_in<%d, %d, false>(t%d, p, ",
               (int)flat_extent(w->s, r, col),
               row < 0 ? (int)flat_extent(w->s, r, col) : (int)st[row], value);
    if (row == AX_I)
        buf_printf(w->b, "a.t[%d].st", t);
    else if (row < 0)
        buf_printf(w->b, "0");
    else
        buf_printf(w->b, "%s", step_text(w, t, in->order, in->rank,
                                         place_in(in->order, in->rank, row),
                                         false));
    buf_printf(w->b, ", %s, %s, %s);\n",
               step_text(w, t, in->order, in->rank,
                         place_in(in->order, in->rank, col), false), row < 0
               ? "1" : count_text(w, r, AXIS(row)),
               in->order[in->rank - 1] == col
               ? wide_text(w, t, w->p.o->in[w->g->n[r].index],
                           w->g->axis[col].size) : "false");
    return true;
}

void put_chunk_load(Walk *w)
{
    int value = w->k->out[0];
    Ref r = value_at(&w->p, value)->node;
    AxisSet axes = w->g->n[r].axes;
    const Input *in = token_found(w->s, r) ? NULL
                                           : &w->g->in[w->g->n[r].index];
    int i = w->g->n[r].index, t = !in ? 0
          : tensor_for(&w->p, ARG_INPUT, i, w->p.o->in[i]);
    const char *type = ctype_text(in ? w->p.o->in[i]
                                  : w->s->stored16[r] ? w->s->tile : F32);
    KSpot s = flat_spot(w->s, r);

    if (lies_where_kept(w->s, value_at(&w->p, value))) {
        buf_printf(w->b, "const %s *const t%d = %s;\n", type, value,
                   kept_at(w, r));
        return;
    }
    buf_printf(w->b, "{\nconst %s *p = ", type);
    if (in)
        buf_printf(w->b, "(const %s *)a.t[%d].p + %s%s;\n", type, t,
                   in->timed ? token_place(w, t, "head")
                             : own_head_text(w, t, "head"),
                   slice_text(w, t, in->order, in->rank, axes, false));
    else
        buf_printf(w->b, "%s;\n", kept_at(w, r));
    if (!in || !put_plain_load(w, value, in, t)) {
        open_loop(w, r, in ? axes : w->g->n[r].axes);
        buf_printf(w->b, "copy1(t%d + %s, p%s%s);\n}\n", value,
                   token_index(w, &s, NOTHING, NULL),
                   in ? rows_text(w, t, axes) : " + ",
                   in ? strides_text(w, t, in->order, in->rank, false)
                      : kept_index(w, r));
    }
    buf_printf(w->b, "}\n");
}
