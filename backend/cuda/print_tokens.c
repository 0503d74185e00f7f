/* print_tokens.c -- kernels whose warps all do one instruction after another: a
 * block takes a head of a sequence, or its slice of one, and walks its tokens,
 * of which the next one's inputs are on their way meanwhile, or its chunks; or
 * it takes one item.
 */
#include "print_tokens.h"
#include "source.h"
#include "../../compiler/eval.h"

static int warps_of(const Walk *w) { return w->s->tokens.threads / LANES; }

/* ---- what lies in register tiles ---- */

static void put_regtile(Walk *w)
{
    const Schedule *s = w->s;
    int pieces = s->tokens.warp_cols / REGTILE_PIECE,
        across = regtile_across(s);

    buf_printf(w->b, "const int regtile_down = WARP / %d, regtile_across ="
               " WARP %% %d;\nconst int regtile_row = (regtile_down * %d"
               " + LANE / %d) * %d, regtile_col = regtile_across * %d"
               " + LANE %% %d * %d;\n"
               "(void)regtile_across;\n(void)regtile_down;\n", across, across,
               LANES / pieces, pieces, (int)regtile_rows(s),
               (int)s->tokens.warp_cols, pieces, REGTILE_PIECE);
}

static void open_regtile(Walk *w)
{
    const Schedule *s = w->s;
    const char *row = token_coord(w, s->tokens.row);
    const char *col = token_coord(w, s->tokens.col);

    buf_printf(w->b, "UNROLL\nfor (int u = 0; u < %d; u++) {\n"
               "const int %s = regtile_row + u / %d, %s = regtile_col + u %%"
               " %d;\n"
               "(void)%s;\n(void)%s;\n", regtile_count(s), row, REGTILE_PIECE,
               col,
               REGTILE_PIECE, row, col);
    if (!regtile_whole(s))
        buf_printf(w->b, "if (%s >= %d)\ncontinue;\n", row,
                   (int)block_extent(s, s->tokens.row));
}

/* A sum's axes besides that which it has of register tiles: ranks, whose joint
 * number is so many times `each`. */
static const char *ranks_text(const Walk *w, Ref r, int each)
{
    Buf b = { .ctx = w->c };
    AxisSet ranks = w->g->n[r].axes & ~w->s->tokens.regtile;
    for (; ranks; ranks &= ~AXIS(highest(ranks))) {
        buf_printf(&b, "%s * %d + ", token_coord(w, highest(ranks)), each);
        each *= flat_extent(w->s, r, highest(ranks));
    }
    return b.len ? b.s : "";
}

static bool is_down(const Walk *w, Ref r)
{
    return w->g->n[r].over == AXIS(w->s->tokens.row);
}

/* Of a thread's own, and of those that the warp's other threads have. */
static void put_partial(Walk *w)
{
    const Schedule *s = w->s;
    Ref r = w->k->node[w->k->nnodes - 1];
    const KValue *v = value_at(&w->p, w->k->out[0]);
    AxisSet ranks = w->g->n[r].axes & ~s->tokens.regtile;
    bool down = is_down(w, r);
    int len = flat_extent(w->s, r, down ? s->tokens.col : s->tokens.row);
    int pieces = s->tokens.warp_cols / REGTILE_PIECE;
    Buf *b = w->b;

    for (AxisSet a = ranks; a; a &= a - 1) {
        const char *x = token_coord(w, lowest(a));
        buf_printf(b, "for (int %s = 0; %s < %d; %s++)\n", x, x,
                   (int)flat_extent(w->s, r, lowest(a)), x);
    }
    buf_printf(b, "{\nfloat sum[%d] = { 0 };\n", down ? REGTILE_PIECE
               : (int)regtile_rows(s));
    open_regtile(w);
    for (int i = 0; i + 1 < w->k->nnodes; i++)
        put_token_value(w, w->k->node[i]);
    buf_printf(b, "sum[u %s %d] += %s;\n}\n", down ? "%" : "/", REGTILE_PIECE,
               token_term(w, r));
    if (down)
        buf_printf(b, "regtile_sum<%d>(sum, ", pieces);
    else
        buf_printf(b, "regtile_sum_across<%d, %d, %s>(sum, regtile_row, ",
                   pieces,
                   (int)block_extent(s, s->tokens.row),
                   regtile_whole(s) ? "true" : "false");
    buf_printf(b, "t%d + %s%s * %d%s);\n}\n", w->k->out[0],
               ranks_text(w, r, len * v->parts),
               down ? "regtile_down" : "regtile_across", len,
               down ? " + regtile_col" : "");
}

/* What warps have added up. */
static void put_whole(Walk *w, Ref r)
{
    int v = schedule_value(w->s, r, LAY_PARTIAL);
    int parts = value_at(&w->p, v)->parts;
    int ax = is_down(w, r) ? w->s->tokens.col : w->s->tokens.row;
    int len = flat_extent(w->s, r, ax);

    buf_printf(w->b, "float v%u = 0;\nUNROLL\nfor (int w = 0; w < %d; w++)\n"
               "v%u += t%d[%sw * %d + %s];\n", (unsigned)r, parts, (unsigned)r,
               v, ranks_text(w, r, len * parts), len, token_coord(w, ax));
}

/* ---- addresses ---- */

static int place_in(const uint8_t *order, int rank, int ax)
{
    int at = 0;
    for (int d = 0; d < rank; d++)
        at = order[d] == ax ? d : at;
    return at;
}

/* The first element of the block's slice. */
static const char *slice_text(const Walk *w, int tensor, const uint8_t *order,
                              int rank, AxisSet axes)
{
    int ax = w->s->slice_axis;
    return w->s->slices == 1 || !(axes & AXIS(ax)) ? ""
         : ctx_format(w->c, " + block * %d * a.t[%d].sd[%d]",
                      (int)block_extent(w->s, ax), tensor,
                      place_in(order, rank, ax));
}

/* From there on. */
static const char *strides_text(const Walk *w, int tensor,
                                const uint8_t *order, int rank)
{
    Buf b = { .ctx = w->c };
    for (int d = 0; d < rank; d++)
        buf_printf(&b, " + %s * a.t[%d].sd[%d]", token_coord(w, order[d]),
                   tensor, d);
    return b.len ? b.s : "";
}

/* The token's, too. */
static const char *rows_text(const Walk *w, int tensor, AxisSet axes)
{
    return axes & AXIS(AX_I) ? ctx_format(w->c, " + i * a.t[%d].st", tensor)
                             : "";
}

/* What all slices have alike is left by the first. */
static const char *first_text(const Walk *w, AxisSet axes)
{
    return w->s->slices == 1 || axes & AXIS(w->s->slice_axis) ? ""
         : " && block == 0";
}

/* ---- results ---- */

static const char *output_place(Walk *w, int i)
{
    const Output *o = &w->g->out[i];
    int t = result_tensor(&w->p, ARG_OUTPUT, i);
    return ctx_format(w->c, "(%s *)a.t[%d].p + at_token(a.t[%d], q, token,"
                      " fresh(head))%s%s%s",
                      ctype_text(result_type(&w->p, ARG_OUTPUT, i)), t, t,
                      slice_text(w, t, o->order, o->rank,
                                 w->g->n[o->node].axes),
                      rows_text(w, t, has_rows(w->s) ? AXIS(AX_I) : 0),
                      strides_text(w, t, o->order, o->rank));
}

/* Whether the result is stored from the program's loop. */
static bool is_left(const Walk *w, int output)
{
    const Output *o = &w->g->out[output];
    bool all = w->s->wants_out[output] && has_node(w->k, o->node)
            && w->k >= w->s->inst + w->s->tokens.first
            && (!has_rows(w->s) || w->g->n[o->node].axes & AXIS(AX_I));
    for (int i = 0; i < o->rank; i++)
        all &= (w->g->n[o->node].axes & AXIS(o->order[i])) != 0;
    return all;
}

static void put_outputs(Walk *w)
{
    for (int i = 0; i < w->g->nout; i++) {
        Ref r = w->g->out[i].node;
        const char *to = is_left(w, i) ? output_place(w, i) : NULL;
        if (to)
            buf_printf(w->b, "if (a.t[%d].p%s)\nput(%s, v%u);\n",
                       result_tensor(&w->p, ARG_OUTPUT, i),
                       first_text(w, w->g->n[r].axes), to, (unsigned)r);
    }
}

/* The result may not vary along some of its axes. */
static void put_result(Walk *w)
{
    const Output *o = &w->g->out[w->k->index];
    AxisSet axes = w->g->n[o->node].axes;
    const char *to = output_place(w, w->k->index);

    buf_printf(w->b, "if (a.t[%d].p%s) {\n",
               result_tensor(&w->p, ARG_OUTPUT, w->k->index),
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

/* How far the elements of each axis lie apart, of all slices, a chunk at full
 * length; of how many. */
static int32_t kept_strides(const Walk *w, Ref r, int32_t st[NAXES])
{
    int32_t step = 1;

    for (AxisSet left = w->g->n[r].axes; left;) {
        int ax = w->s->lies_transposed[r] ? lowest(left) : highest(left);
        st[ax] = step;
        step *= ax == AX_I || ax == AX_J ? w->s->tokens.rows : w->s->ext[r][ax];
        left &= ~AXIS(ax);
    }
    return step;
}

/* The place of its first element, of a slice that of the block. */
static const char *kept_at(const Walk *w, Ref r)
{
    bool cut = w->s->slices > 1
            && w->g->n[r].axes & AXIS(w->s->slice_axis);
    int32_t st[NAXES] = { 0 };

    kept_strides(w, r, st);
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

    kept_strides(w, r, s.st);
    return token_index(w, &s, NOTHING, NULL);
}

/* Zeros where the chunk has no tokens: rows, and columns of scores, which
 * products of kernels behind take as they are. */
static void put_no_tokens(Walk *w, Ref r)
{
    int32_t st[NAXES] = { 0 }, size = kept_strides(w, r, st);
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

static void put_kept(Walk *w, Ref r, const char *value)
{
    const char *first = first_text(w, w->g->n[r].axes);
    if (*first)
        buf_printf(w->b, "if (block == 0)\n");
    buf_printf(w->b, "put(%s + %s, %s);\n", kept_at(w, r), kept_index(w, r),
               value);
}

/* Of one that no program keeps. */
static void put_kept_value(Walk *w)
{
    Ref r = w->k->node[0];
    KInst plain = *w->k;

    plain.nnodes = 0;
    w->k = &plain;
    if (is_regtile(w->s, r))
        open_regtile(w);
    else
        open_loop(w, r, w->g->n[r].axes);
    put_kept(w, r, token_element(w, r));
    buf_printf(w->b, "}\n");
    put_no_tokens(w, r);
}

/* ---- programs ---- */

static void put_lazy(Walk *w)
{
    for (int i = 0; i < w->k->nout; i++) {
        const KValue *v = value_at(&w->p, w->k->out[i]);
        KSpot s = flat_spot(w->s, v->node);
        buf_printf(w->b, "t%d[%s] = v%u;\n", fragment_root(w->s, w->k->out[i]),
                   v->layout == LAY_REGTILE ? "u"
                   : token_index(w, &s, NOTHING, NULL), (unsigned)v->node);
    }
}

static void put_regtile_map(Walk *w)
{
    uint8_t *done = ctx_alloc(w->c, w->g->len);
    open_regtile(w);
    for (int i = 0; i < w->k->nnodes; i++) {
        Ref r = w->k->node[i];
        if (token_sums(w->s, r))
            put_sum(w, r, false, done);
        else
            put_token_value(w, r);
    }
    put_lazy(w);
    buf_printf(w->b, "}\n");
}

/* A single element is one thread's, or warp's; others have others. Addresses of
 * results are worked out there: kept, they would take registers from states. */
static void open_map(Walk *w, Ref r, bool lanes, bool leaves)
{
    AxisSet axes = w->g->n[r].axes;
    int32_t n = flat_count(w->s, r, axes);
    int warp = (int)(w->k - w->s->inst) % warps_of(w);

    if (n == 1)
        buf_printf(w->b, lanes ? "if (WARP == %d) {\n"
                               : "if (WARP == %d && LANE == 0) {\n", warp);
    else if (lanes)
        buf_printf(w->b, "NO_UNROLL for (int e = WARP; e < %s; e += WARPS) {"
                   "\n", count_text(w, r, axes));
    else
        buf_printf(w->b, "for (int e = %s; e < %s; e += THREADS) {\n",
                   leaves ? "fresh(TID)" : "TID", count_text(w, r, axes));
    put_coords(w, n == 1 ? "0" : "e", r, axes, "continue");
}

static void put_flat_map(Walk *w)
{
    const KInst *k = w->k;
    uint8_t *done = ctx_alloc(w->c, w->g->len);
    Ref last = k->node[k->nnodes - 1];
    bool lanes = false, leaves = false;

    for (int i = 0; i < w->g->nout; i++)
        leaves |= is_left(w, i);
    for (int i = 0; i < k->nnodes; i++)
        lanes |= wants_lanes(w, k->node[i]);
    open_map(w, last, lanes, leaves);
    for (int i = 0; i < k->nnodes; i++) {
        Ref r = k->node[i];
        if (token_sums_regtile(w->s, r))
            put_whole(w, r);
        else if (is_sum(w, r))
            put_sum(w, r, lanes, done);
        else
            continue;
        done[r] = 1;
    }
    if (lanes)
        buf_printf(w->b, "if (LANE == 0) {\n");
    for (int i = 0; i < k->nnodes; i++)
        if (!done[k->node[i]])
            put_token_value(w, k->node[i]);
    put_lazy(w);
    put_outputs(w);
    for (int i = 0; i < k->nnodes; i++)
        if (w->s->stores[k->node[i]]
            && k >= w->s->inst + w->s->tokens.first)
            put_kept(w, k->node[i], ctx_format(w->c, "v%u",
                                               (unsigned)k->node[i]));
    buf_printf(w->b, lanes ? "}\n}\n" : "}\n");
    for (int i = 0; i < k->nnodes; i++)
        if (w->s->stores[k->node[i]]
            && k >= w->s->inst + w->s->tokens.first)
            put_no_tokens(w, k->node[i]);
}

/* ---- inputs ---- */

static void put_declared(Walk *w, int value, const char *place)
{
    const KValue *v = value_at(&w->p, value);
    const char *type = ctype_text(token_type(w, v));

    if (v->alias != NOTHING)
        return;
    if (v->layout == LAY_REGTILE) {
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
static void put_places(Walk *w, const char *place)
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
               ? strides_text(w, tensor, in->order, in->rank)
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

/* By one warp. */
static void put_load_of(Walk *w)
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
    buf_printf(w->b, in->timed ? "at_token(a.t[%d], q, token, head)"
               : "head_of(a.t[%d], head) * a.t[%d].sh", t, t);
    buf_printf(w->b, "%s;\n", slice_text(w, t, in->order, in->rank, axes));
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
                   rows ? ctx_format(w->c, "a.t[%d].sd[%d]", t, down) : "0",
                   axes ? ctx_format(w->c, "a.t[%d].sd[%d]", t,
                                     place_in(in->order, in->rank, cols)) : "0",
                   whole ? ctx_format(w->c, "a.t[%d].wide", t) : "false");
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
        buf_printf(w->b, "a.t[%d].sd[%d]", t,
                   place_in(in->order, in->rank, row));
    buf_printf(w->b, ", a.t[%d].sd[%d], %s, ", t,
               place_in(in->order, in->rank, col), row < 0 ? "1"
               : count_text(w, r, AXIS(row)));
    if (in->order[in->rank - 1] == col)
        buf_printf(w->b, "a.t[%d].wide);\n", t);
    else
        buf_printf(w->b, "false);\n");
    return true;
}

static void put_chunk_load(Walk *w)
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

    buf_printf(w->b, "{\nconst %s *p = ", type);
    if (in)
        buf_printf(w->b, "(const %s *)a.t[%d].p + %s%s;\n", type, t,
                   ctx_format(w->c, in->timed
                              ? "at_token(a.t[%d], q, token, head)"
                              : "head_of(a.t[%d], head) * a.t[%d].sh", t, t),
                   slice_text(w, t, in->order, in->rank, axes));
    else
        buf_printf(w->b, "%s;\n", kept_at(w, r));
    if (!in || !put_plain_load(w, value, in, t)) {
        open_loop(w, r, axes);
        buf_printf(w->b, "copy1(t%d + %s, p%s%s);\n}\n", value,
                   token_index(w, &s, NOTHING, NULL),
                   in ? rows_text(w, t, axes) : " + ",
                   in ? strides_text(w, t, in->order, in->rank)
                      : kept_index(w, r));
    }
    buf_printf(w->b, "}\n");
}

/* ---- states ---- */

/* A sequence's state among all: of single tokens it may be any. */
static const char *own_state(const Walk *w)
{
    return has_rows(w->s) ? "s" : "own";
}

static const char *regtile_args(const Walk *w, int v, const State *st, int t)
{
    const Schedule *s = w->s;
    return ctx_format(w->c, "<%d, %s>(t%d, p, regtile_row, regtile_col, a.t[%d]"
                      ".sd[%d], a.t[%d].sd[%d], a.t[%d].wide",
                      (int)block_extent(s, s->tokens.row),
                      regtile_whole(s) ? "true" : "false", v, t,
                      place_in(st->order, st->rank, s->tokens.row), t,
                      place_in(st->order, st->rank, s->tokens.col), t);
}

static void put_begin(Walk *w)
{
    const State *st = &w->g->st[w->k->index];
    int v = w->k->out[0], t = result_tensor(&w->p, ARG_STATE, w->k->index);
    bool regtile = value_at(&w->p, v)->layout == LAY_REGTILE;
    AxisSet axes = w->g->n[st->node].axes;
    const char *type = ctype_text(w->p.o->s0[w->k->index]);
    KSpot s = flat_spot(w->s, st->node);
    Buf *b = w->b;

    buf_printf(b, "if (a.t[%d].p) {\nconst %s *p = (const %s *)a.t[%d].p + %s"
               " * a.t[%d].sb + head_of(a.t[%d], head) * a.t[%d].sh%s;\n", t,
               type, type, t, own_state(w), t, t, t,
               slice_text(w, t, st->order, st->rank, axes));
    if (regtile) {
        buf_printf(b, "regtile_in%s);\n} else {\nUNROLL\nfor (int u = 0; u <"
                   " %d; u++)\nt%d[u] = 0;\n}\n", regtile_args(w, v, st, t),
                   regtile_count(w->s), v);
        return;
    }
    for (int i = 0; i < 2; i++) {
        open_loop(w, st->node, axes);
        buf_printf(b, i ? "t%d[%s] = 0;\n}\n}\n"
                        : "t%d[%s] = get(p[0%s]);\n}\n} else {\n", v,
                   token_index(w, &s, NOTHING, NULL),
                   strides_text(w, t, st->order, st->rank));
    }
}

/* To the place of each token, or of the last. */
static void put_end(Walk *w, bool each)
{
    const State *st = &w->g->st[w->k->index];
    int v = w->k->in[0], t = result_tensor(&w->p, ARG_NEXT, w->k->index);
    AxisSet axes = w->g->n[st->node].axes;
    const char *type = ctype_text(result_type(&w->p, ARG_NEXT, w->k->index));
    Buf *b = w->b;

    buf_printf(b, "if (a.t[%d].p%s%s) {\n%s *p = (%s *)a.t[%d].p + %s *"
               " a.t[%d].sb + %shead_of(a.t[%d], head) * a.t[%d].sh%s;\n", t,
               each ? " && entry >= 0" : has_rows(w->s) ? ""
               : " && !a.pages.each",
               first_text(w, axes), type, type, t,
               each ? "entry" : own_state(w), t,
               each ? ctx_format(w->c, "(a.pages.at ? 0 : at) * a.t[%d].st + ",
                                 t) : "", t, t,
               slice_text(w, t, st->order, st->rank, axes));
    if (value_at(&w->p, v)->layout == LAY_REGTILE) {
        buf_printf(b, "regtile_out%s);\n}\n", regtile_args(w, v, st, t));
        return;
    }
    KSpot s = flat_spot(w->s, st->node);
    open_loop(w, st->node, axes);
    buf_printf(b, "put(p%s, t%d[%s]);\n}\n}\n",
               strides_text(w, t, st->order, st->rank), v,
               token_index(w, &s, NOTHING, NULL));
}

static void put_carried(Walk *w)
{
    const KInst *k = w->k;
    if (k->index == NOTHING) {          /* all register tiles */
        open_regtile(w);
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < k->nout; i++) {
                const State *st = &w->g->st[w->g->n[value_at(&w->p, k->out[i])
                                                    ->node].index];
                if (pass)
                    buf_printf(w->b, "t%d[u] = x%d;\n", k->out[i], i);
                else
                    buf_printf(w->b, "const float x%d = %s;\n", i,
                               token_element(w, st->next));
            }
        buf_printf(w->b, "}\n");
        return;
    }
    const State *st = &w->g->st[k->index];
    bool first = !k->nin
              || value_at(&w->p, k->in[0])->layout != LAY_PARTIAL;
    KSpot s = flat_spot(w->s, st->node);
    const char *at = token_index(w, &s, NOTHING, NULL);
    open_loop(w, st->node, w->g->n[st->node].axes);
    buf_printf(w->b, "t%d[%s] = %s;\n}\n", k->out[0], at, first
               ? token_element(w, st->next)
               : ctx_format(w->c, "t%d[%s]", k->in[0], at));
}

/* ---- the kernel ---- */

static void put_inst(Walk *w, const KInst *k)
{
    w->k = k;
    switch ((KOp)k->op) {
    case K_BEGIN: put_begin(w); break;
    case K_LOAD:
        if (has_rows(w->s)) {
            put_chunk_load(w);
            break;
        }
        put_load_of(w);
        if (w->s->kind == K_TOKEN
            || (k >= w->s->inst + w->s->tokens.first
                && !token_brings(w->s, k)))
            buf_printf(w->b, "copy_commit();\ncopy_wait<0>();\n");
        break;
    case K_MAP:
        (is_regtile(w->s, k->node[k->nnodes - 1]) ? put_regtile_map
                                                  : put_flat_map)(w);
        break;
    case K_PARTIAL: put_partial(w); break;
    case K_STORE:
        (k->index == NOTHING ? put_kept_value : put_result)(w);
        break;
    case K_CARRY: put_carried(w); break;
    case K_SYNC: buf_printf(w->b, "__syncthreads();\n"); break;
    case K_PRODUCT: put_product(w); break;
    case K_DECAYED: put_under_decays(w); break;
    case K_SCAN: put_along(w); break;
    case K_SOLVE: put_solve(w); break;
    case K_END: case K_VECTOR: case K_CLEAR: case K_SETTLE: case K_INVERSE:
    case K_ACROSS: case NKOPS:
        break;
    }
}

static void put_stored(Walk *w)
{
    static const char *const name[] = { "stored", "later" };

    for (int i = 0; i < 2; i++)
        if (w->stored->bytes[i])
            buf_printf(w->b, "char *const %s = global(a.run.%s) + ((slot + at)"
                       " * a.run.heads + head) * %lldll;\n(void)%s;\n",
                       name[i], name[i], (long long)w->stored->bytes[i],
                       name[i]);
}

static void put_token(Walk *w, const char *m)
{
    buf_printf(w->b, "const i64 at = %s%s%s;\nconst i64 token = q.start + at;"
               "\n(void)token;\n", w->s->kind == K_REVERSE
               ? "q.len - 1 - (" : "", m, w->s->kind == K_REVERSE ? ")" : "");
    put_stored(w);
}

/* Token m's inputs on their way. */
static void put_ahead(Walk *w, const char *m)
{
    const Schedule *s = w->s;

    buf_printf(w->b, "if (%s < q.len) {\n", m);
    put_token(w, m);
    put_places(w, m);
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++)
        if (token_brings(s, k))
            put_inst(w, k);
    buf_printf(w->b, "}\ncopy_commit();\n");
}

/* The last to change what is left of a state that threads hold: it may go out
 * behind that, while all else is still to be done. NULL: others have to wait
 * for one another, or nothing changes it. */
static const KInst *last_change(const Walk *w, const KInst *end)
{
    const Schedule *s = w->s;
    const KInst *last = NULL;

    if (value_at(&w->p, end->in[0])->layout != LAY_REGTILE)
        return NULL;
    for (const KInst *k = s->inst + s->tokens.first; k < s->inst + s->ninsts;
         k++)
        for (int i = 0; i < k->nout; i++)
            if (fragment_root(s, k->out[i]) == fragment_root(s, end->in[0]))
                last = k;
    return last;
}

/* Of the last token, what k changes last; k NULL: of none, each as it began. */
static void put_changed(Walk *w, const KInst *k)
{
    const Schedule *s = w->s;
    for (const KInst *e = s->inst; e < s->inst + s->ninsts; e++) {
        const KInst *last = e->op == K_END ? last_change(w, e) : NULL;
        if (!last || (k && last != k))
            continue;
        w->k = e;
        if (k)
            buf_printf(w->b, "if (m + 1 == q.len) {\n");
        put_end(w, false);
        if (k)
            buf_printf(w->b, "}\n");
    }
}

/* Behind each token, or of all else behind the last. */
static void put_ends(Walk *w, bool each)
{
    for (const KInst *k = w->s->inst; k < w->s->inst + w->s->ninsts; k++) {
        w->k = k;
        if (k->op == K_END && (each || !last_change(w, k)))
            put_end(w, each);
    }
}

/* The first token's inputs are on their way beside what no token differs in. */
static void put_before(Walk *w)
{
    const Schedule *s = w->s;
    bool ahead = false;

    for (const KInst *k = s->inst; k < s->inst + s->tokens.first; k++) {
        if (k->op == K_SYNC) {          /* all loads are before */
            buf_printf(w->b, "copy_commit();\n");
            if (!ahead)
                put_ahead(w, "0");
            buf_printf(w->b, "copy_wait<%d>();\n", ahead ? 0 : 1);
            ahead = true;
        }
        put_inst(w, k);
    }
    if (!ahead)
        put_ahead(w, "0");
    buf_printf(w->b, "if (q.len < 1) {\ncopy_wait<0>();\n__syncthreads();\n");
    put_changed(w, NULL);
    buf_printf(w->b, "}\n");
}

static void put_walk(Walk *w)
{
    const Schedule *s = w->s;
    Buf *b = w->b;

    buf_printf(b, "NO_UNROLL for (i64 m = 0; m < q.len; m++) {\n");
    put_ahead(w, "m + 1");
    put_places(w, "m");
    put_token(w, "m");
    buf_printf(b, "copy_wait<1>();\n__syncthreads();\n");
    for (const KInst *k = s->inst + s->tokens.first; k < s->inst + s->ninsts;
         k++) {
        if (!token_brings(s, k))
            put_inst(w, k);
        put_changed(w, k);
    }
    buf_printf(b, "if (a.pages.each) {\n"
               "const i64 entry = state_entry(a.pages, s, at);\n(void)entry;\n"
               );
    put_ends(w, true);
    buf_printf(b, "}\n__syncthreads();\n}\n");
    put_ends(w, false);
}

/* ---- chunks ---- */

/* The chunk at `at`. */
static void put_chunk(Walk *w)
{
    int c = (int)w->g->chunk;

    buf_printf(w->b, "const int n = (int)min(q.len - at * %d, (i64)%d);\n"
               "const i64 token = q.start + at * %d;\n(void)n;\n(void)token;\n",
               c, c, c);
    put_stored(w);
    for (const KInst *k = w->s->inst + w->s->tokens.first;
         k < w->s->inst + w->s->ninsts; k++)
        put_inst(w, k);
    buf_printf(w->b, "__syncthreads();\n");
}

/* What no chunk differs in, whatever its length, and all of them. */
static void put_chunks(Walk *w)
{
    const Schedule *s = w->s;
    int c = (int)w->g->chunk;

    buf_printf(w->b, "{\nconst int n = %d;\n(void)n;\n", c);
    for (const KInst *k = s->inst; k < s->inst + s->tokens.first; k++)
        put_inst(w, k);
    buf_printf(w->b, "}\n__syncthreads();\n");
    if (s->kind == K_TOKEN) {
        put_chunk(w);
        return;
    }
    buf_printf(w->b, "const i64 chunks = (q.len + %d) / %d;\n"
               "NO_UNROLL for (i64 m = 0; m < chunks; m++) {\n"
               "const i64 at = %s;\n", c - 1, c,
               s->kind == K_REVERSE ? "chunks - 1 - m" : "m");
    put_chunk(w);
    buf_printf(w->b, "}\n");
    put_ends(w, false);
}

/* ---- items ---- */

static void put_item(const Walk *w)
{
    const CudaKernel *k = w->p.k;
    bool all = w->s->kind == K_TOKEN;
    int c = has_rows(w->s) ? (int)w->g->chunk : 1;

    buf_printf(w->b, "NO_UNROLL for (i64 item = blockIdx.x; item <"
               " a.run.items; item += blocks_here()) {\n"
               "const int block = (int)(item %% %d);\n"
               "const i64 %s = divided(item / %d, a.run.heads);\n"
               "const int head = (int)(item / %d - %s * a.run.heads);\n"
               "(void)block;\n", k->blocks, all ? "part" : "s", k->blocks,
               k->blocks, all ? "part" : "s");
    if (k->follows)
        buf_printf(w->b, "follow();\n");
    if (all)
        buf_printf(w->b, "const i64 s = find_sequence(a.run, part, %d);\n", c);
    if (!has_rows(w->s))
        buf_printf(w->b, "const i64 own = state_entry(a.pages, s, -1);\n"
                   "if (own < 0)\ncontinue;\n");
    buf_printf(w->b, "const Sequence q = sequence(a.run, s);\n"
               "const i64 slot = first_slot(a.run, s, %d);\n(void)slot;\n", c);
    if (all)
        buf_printf(w->b, "const i64 at = part - slot;\n"
                   "if (at < 0 || at * %d >= q.len)\ncontinue;\n", c);
}

/* Single tokens, all at once. */
static void put_alone(Walk *w)
{
    const Schedule *s = w->s;

    buf_printf(w->b, "const i64 token = q.start + at;\n(void)token;\n");
    put_stored(w);
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++) {
        if (k == s->inst + s->tokens.first)
            buf_printf(w->b, "__syncthreads();\n");
        put_inst(w, k);
    }
}

void tokens_text(const Schedule *s, const CudaOptions *o,
                 const StoredPlaces *stored, CudaKernel *k, Buf *to)
{
    Buf body = { .ctx = s->c }, head = { .ctx = s->c };
    Walk w = { .s = s, .g = s->g, .c = s->c, .b = &body, .stored = stored };
    int n = (int)(s->k - s->p->kernel);

    w.p = (Print){ .s = s, .o = o, .k = k, .c = s->c, .b = &body };
    k->threads = s->tokens.threads;
    k->shared = s->shared;
    k->blocks = s->slices;
    k->row_axis = s->slices > 1 ? s->slice_axis : 0;
    k->spill = s->spill;
    k->follows = o->arch >= 90 && !s->spill && !has_rows(s);
    if (k->follows)
        buf_printf(&body, "let_follow();\n");
    if (s->tokens.regtile)
        put_regtile(&w);
    if (s->spill)
        buf_printf(&body, "char *const spill = global(a.run.spill) + blockIdx.x"
                   " * %lldll;\n", (long long)s->spill);
    for (int i = 0; i < s->nvalues; i++)
        if (!has_two_places(s, &s->value[i]))
            put_declared(&w, i, NULL);
    put_item(&w);
    if (has_rows(s)) {
        put_chunks(&w);
    } else if (s->kind == K_TOKEN) {
        put_alone(&w);
    } else {
        put_before(&w);
        put_walk(&w);
    }
    buf_printf(&body, "__syncthreads();\n}\n}\n");
    buf_printf(&head, "struct Args%d { Run run; Tensor t[%d];%s };"
               "\nextern \"C\" __global__ void __launch_bounds__(THREADS, %d)"
               " %s(const __grid_constant__ Args%d a)\n{\n", n,
               k->ntensors + !k->ntensors, has_rows(s) ? "" : " Pages pages;",
               s->resident, k->name, n);
    buf_put(&head, body.s, body.len);
    source_indent(to, head.s);
}
