/* tile_move.c -- between tensors, of any type and strides, and tiles. */
#include "tile.h"
#include "../../compiler/schedule/schedule.h"

/* ---- what a kernel is passed ---- */

/* The number of the tensor among the kernel's. */
static int tensor_of(Tiles *t, CudaArgKind kind, int index, DType d, bool sum)
{
    CudaKernel *k = t->out;

    for (int i = 0; i < k->ntensors; i++)
        if (k->tensor[i].kind == kind && k->tensor[i].index == index)
            return i;
    k->tensor[k->ntensors] = cuda_arg(kind, index, sum ? F32 : d);
    k->part[k->ntensors] = sum;
    return k->ntensors++;
}

static int input_tensor(Tiles *t, int i)
{
    return tensor_of(t, ARG_INPUT, i, t->o->in[i], false);
}

static int output_tensor(Tiles *t, int i)
{
    return tensor_of(t, ARG_OUTPUT, i, t->o->out[i], t->o->sum_out[i]);
}

static int next_tensor(Tiles *t, int i)
{
    return tensor_of(t, ARG_NEXT, i, t->o->s1[i], t->o->sum_s1[i]);
}

static int place_in(const uint8_t *order, int rank, int ax)
{
    for (int d = 0; d < rank; d++)
        if (order[d] == ax)
            return d;
    return 0;
}

/* ---- a tile beside a tensor ---- */

/* Elements of r, whose address is at the coordinates' own plus what each axis
 * adds: its coordinate times the tensor's stride. */
typedef struct Move {
    Ref r;
    int tensor;
    const uint8_t *order;
    int rank;
    bool store, each_token;             /* rows that the value has not */
} Move;

/* The first element of the block's share. */
static void slice_text(const Tiles *t, Buf *b, const Move *m)
{
    if (t->slice_axis >= 0 && t->g->n[m->r].axes & AXIS(t->slice_axis))
        buf_printf(b, " + block * %d * a.t[%d].sd[%d]", t->slice, m->tensor,
                   place_in(m->order, m->rank, t->slice_axis));
}

/* A matrix, a row, or a column of scalars: by the device's own loop. */
static bool move_plain(Tiles *t, Act *a, const Move *m, DType d)
{
    Buf *b = &a->text;
    const Spot *s = &t->spot[m->r];
    AxisSet axes = t->g->n[m->r].axes, own = axes & ~AXIS(AX_I);
    int32_t len = 1, pitch = 1;
    const char *rows = "1", *sr = "0", *sc = "0";
    /* whole rows are those of the tensor's own last axis */
    bool whole = !own || m->order[m->rank - 1] == highest(own);
    const char *wide = whole ? ctx_format(t->c, "a.t[%d].wide", m->tensor)
                             : "false";

    if (m->each_token || s->at || s->tail)
        return false;
    if (own) {
        len = tile_extent(t, m->r, highest(own));
        sc = ctx_format(t->c, "a.t[%d].sd[%d]", m->tensor,
                        place_in(m->order, m->rank, highest(own)));
        own &= ~AXIS(highest(own));
    }
    if (own && (axes & AXIS(AX_I) || own & (own - 1)))
        return false;
    if (axes & AXIS(AX_I)) {
        pitch = s->st[AX_I];
        rows = "n";
        sr = ctx_format(t->c, "a.t[%d].st", m->tensor);
    } else if (own) {
        pitch = s->st[lowest(own)];
        rows = ctx_format(t->c, "%d", (int)tile_extent(t, m->r, lowest(own)));
        sr = ctx_format(t->c, "a.t[%d].sd[%d]", m->tensor,
                        place_in(m->order, m->rank, lowest(own)));
    }
    if (len > 1 && s->st[highest(axes & ~AXIS(AX_I))] != 1)
        return false;
    buf_printf(b, "%s<%d, %d%s>(t%d, (%s%s *)p, %s, %s, %s, %s);\n",
               m->store ? "copy_out" : "copy_in", (int)len, (int)pitch,
               m->store ? "" : a->copies
               ? ctx_format(t->c, ", SHARED%d", s->tile) : ", false", s->tile,
               m->store ? "" : "const ", ctype_text(d), sr, sc, rows, wide);
    return true;
}

/* Any axes: element by element. */
static void move_any(Tiles *t, Act *a, Buf *b, const Move *m, DType d)
{
    AxisSet axes = t->g->n[m->r].axes;
    Buf at = { .ctx = t->c };

    for (AxisSet s = axes; s; s &= s - 1) {
        int ax = lowest(s);
        buf_printf(&at, " + %s * a.t[%d].", axis_coord(ax), m->tensor);
        if (ax == AX_I)
            buf_printf(&at, "st");
        else
            buf_printf(&at, "sd[%d]", place_in(m->order, m->rank, ax));
    }
    if (m->each_token)
        buf_printf(b, "for (int token = 0; token < n; token++)\n");
    for (int i = 0; i < m->rank && m->store; i++) {
        int ax = m->order[i];           /* a result may not vary along it */
        if (axes & AXIS(ax))
            continue;
        buf_printf(b, "for (int %s = 0; %s < %d; %s++)\n", axis_coord(ax),
                   axis_coord(ax), (int)t->g->axis[ax].size, axis_coord(ax));
        buf_printf(&at, " + %s * a.t[%d].sd[%d]", axis_coord(ax), m->tensor,
                   i);
    }
    loop_open(t, b, "TID", "THREADS", m->r, axes);
    if (m->store) {
        buf_printf(b, "put((%s *)p%s%s, ", ctype_text(d), at.s ? at.s : "",
                   m->each_token ? ctx_format(t->c, " + token * a.t[%d].st",
                                              m->tensor) : "");
        element_text(t, a, b, m->r, axes, -1, NULL);
        buf_printf(b, ");\n");
    } else {
        const Spot *s = &t->spot[m->r];
        buf_printf(b, "copy1(t%d + ", s->tile);
        index_text(b, s, axes, -1, NULL);
        buf_printf(b, ", (const %s *)p%s);\n", ctype_text(d),
                   at.s ? at.s : "");
    }
    buf_printf(b, "}\n");
}

/* The address of the block's first element, then the elements. `where`: of
 * the head's first in the tensor. */
static void move_text(Tiles *t, Act *a, const Move *m, DType d,
                      const char *where)
{
    Buf *b = &a->text;
    double x;
    bool tile = !constant_of(t, m->r, &x);

    buf_printf(b, "%s%s *p = (%s%s *)a.t[%d].p + %s",
               m->store ? "" : "const ", ctype_text(d),
               m->store ? "" : "const ", ctype_text(d), m->tensor, where);
    slice_text(t, b, m);
    buf_printf(b, ";\n");
    if (tile)
        act_uses(t, a, t->spot[m->r].tile, !m->store);
    if (tile && move_plain(t, a, m, d))
        return;
    a->copies = false;
    move_any(t, a, b, m, d);
}

static const char *token_text(Tiles *t, int tensor)
{
    return ctx_format(t->c, "at_token(a.t[%d], q, token, head)", tensor);
}

/* What is the same for all tokens; `from`: before the head's share. */
static const char *head_text(Tiles *t, int tensor, const char *from)
{
    return ctx_format(t->c, "%shead_of(a.t[%d], head) * a.t[%d].sh", from,
                      tensor, tensor);
}

static const char *state_text(Tiles *t, int tensor)
{
    return head_text(t, tensor, ctx_format(t->c, "%s * a.t[%d].sb + ",
                     t->m->chunk == 1 ? "own" : "s", tensor));
}

/* ---- arguments and results ---- */

void emit_load(Tiles *t, Ref r)
{
    int i = t->g->n[r].index;
    const Input *in = &t->g->in[i];
    Move m = { .r = r, .tensor = input_tensor(t, i), .order = in->order,
               .rank = in->rank };
    Act *a = act_begin(t, r);

    a->when = in->timed ? WITHIN : BEFORE;
    t->pre[r] = !in->timed;
    t->spot[r] = tile_spot(t, r, tile_new(t, r, t->pre[r]));
    t->tile[t->spot[r].tile].input = a->loads = in->timed
                                   && t->k->kind != K_TOKEN;
    a->copies = in->timed;
    buf_printf(&a->text, "{\n");
    move_text(t, a, &m, t->o->in[i],
              in->timed ? token_text(t, m.tensor)
                        : head_text(t, m.tensor, ""));
    buf_printf(&a->text, "}\n");
}

/* A value that no block's share differs in is one block's to write. */
static bool shared_value(const Tiles *t, Ref r)
{
    return t->slice_axis >= 0
        && !(t->g->n[r].axes & AXIS(t->slice_axis));
}

void emit_out(Tiles *t, int output)
{
    const Output *o = &t->g->out[output];
    Move m = { .r = o->node, .tensor = output_tensor(t, output),
               .order = o->order, .rank = o->rank, .store = true,
               .each_token = !(t->g->n[o->node].axes & AXIS(AX_I)) };
    Act *a = act_begin(t, 0);

    buf_printf(&a->text, "if (a.t[%d].p%s) {\n", m.tensor,
               shared_value(t, o->node) ? " && block == 0" : "");
    move_text(t, a, &m, t->o->sum_out[output] ? F32 : t->o->out[output],
              token_text(t, m.tensor));
    buf_printf(&a->text, "}\n");
}

/* ---- states ---- */

void emit_state_in(Tiles *t, int state)
{
    const State *s = &t->g->st[state];
    Ref r = s->node;
    Move m = { .r = r, .order = s->order, .rank = s->rank,
               .tensor = tensor_of(t, ARG_STATE, state, t->o->s0[state],
                                   false) };
    Act *a = act_begin(t, 0);
    Buf *b = &a->text;

    a->when = BEFORE;
    a->copies = true;
    t->state[state] = tile_new(t, r, true);
    t->spot[r] = tile_spot(t, r, t->state[state]);
    t->done[r] = 1;
    buf_printf(b, "if (a.t[%d].p) {\n", m.tensor);
    move_text(t, a, &m, t->o->s0[state], state_text(t, m.tensor));
    buf_printf(b, "} else {\n");
    loop_open(t, b, "TID", "THREADS", r, t->g->n[r].axes);
    buf_printf(b, "t%d[", t->state[state]);
    index_text(b, &t->spot[r], t->g->n[r].axes, -1, NULL);
    buf_printf(b, "] = 0;\n}\n}\n");
}

/* unless: in which case it is not stored here. */
static void store_state(Tiles *t, int state, const char *unless,
                        const char *where, Act *a)
{
    const State *s = &t->g->st[state];
    Move m = { .r = s->node, .order = s->order, .rank = s->rank,
               .tensor = next_tensor(t, state), .store = true };

    t->spot[s->node] = tile_spot(t, s->node, t->state[state]);
    buf_printf(&a->text, "if (a.t[%d].p%s%s) {\n", m.tensor, unless,
               shared_value(t, s->node) ? " && block == 0" : "");
    move_text(t, a, &m, t->o->sum_s1[state] ? F32 : t->o->s1[state], where);
    buf_printf(&a->text, "}\n");
}

void emit_state_out(Tiles *t, int state)
{
    Act *a = act_begin(t, 0);

    a->when = AFTER;
    store_state(t, state, t->m->chunk == 1 ? " && !a.pages.each" : "",
                state_text(t, next_tensor(t, state)), a);
}

void emit_state_kept(Tiles *t, int state)
{
    int tensor = next_tensor(t, state);
    Act *a = act_begin(t, 0);

    buf_printf(&a->text, "if (a.pages.each) {\n"
               "const i64 entry = state_entry(a.pages, s, at);\n");
    store_state(t, state, " && entry >= 0",
                head_text(t, tensor, ctx_format(t->c, "entry * a.t[%d].sb + "
                          "(a.pages.at ? 0 : at) * a.t[%d].st + ", tensor,
                          tensor)), a);
    buf_printf(&a->text, "}\n");
}

static void copy_text(Tiles *t, Act *a, Ref like, int tile, Ref from)
{
    AxisSet axes = t->g->n[like].axes;
    Spot s = tile_spot(t, like, tile);
    Buf *b = &a->text;

    loop_open(t, b, "TID", "THREADS", like, axes);
    buf_printf(b, "t%d[", tile);
    index_text(b, &s, axes, -1, NULL);
    buf_printf(b, "] = ");
    element_text(t, a, b, from, axes, -1, NULL);
    buf_printf(b, ";\n}\n");
    act_uses(t, a, tile, true);
}

/* Next values that lie elsewhere move to the states' tiles: all are read
 * before one is written, since one may be what another state was. */
void emit_carry(Tiles *t)
{
    int from[MAX_STATES];
    double x;

    for (int pass = 0; pass < 2; pass++)
        for (int s = 0; s < t->g->nst; s++) {
            Ref r = t->g->st[s].node, next = t->g->st[s].next;
            bool tile = !constant_of(t, next, &x);
            Spot own = t->state[s] < 0 ? (Spot){ .tile = -1 }
                                       : tile_spot(t, r, t->state[s]);
            if (t->state[s] < 0 || (tile && t->spot[next].tile == own.tile
                && t->g->n[next].axes == t->g->n[r].axes
                && same_strides(t, r, &own, &t->spot[next])))
                continue;
            bool state = false;
            for (int q = 0; q < t->g->nst && tile; q++)
                state |= t->state[q] == t->spot[next].tile;
            Act *a = act_begin(t, 0);
            if (!pass && state) {
                from[s] = tile_new(t, r, false);
                copy_text(t, a, r, from[s], next);
            } else if (pass && state) {
                Spot kept = t->spot[next];
                t->spot[next] = tile_spot(t, r, from[s]);
                copy_text(t, a, r, t->state[s], next);
                t->spot[next] = kept;
            } else if (pass) {
                copy_text(t, a, r, t->state[s], next);
            }
        }
}

/* ---- between kernels ---- */

static int32_t full_extent(const Tiles *t, Ref r, int ax)
{
    return is_token_axis(ax) ? t->chunk : t->ext[r][ax];
}

static DType stored_type(const Tiles *t, Ref r)
{
    return t->stored_narrow[r] ? t->narrow : F32;
}

/* Whether schedules have the axis longer than it is; then all kernels are such.
 */
static bool is_taken_as_longer(const Tiles *t, int ax)
{
    bool any = false;

    for (int i = 0; i < t->p->nkernels; i++) {
        const Schedule *s = t->m->kernel[i].schedule;
        any |= s && !s->why && !s->tokens.threads && is_padded(s, ax);
    }
    return any;
}

int64_t stored_bytes(const Tiles *t, Ref r)
{
    int64_t n = dtype_size(stored_type(t, r));

    for (AxisSet s = t->g->n[r].axes; s; s &= s - 1)
        n *= !is_taken_as_longer(t, lowest(s)) ? full_extent(t, r, lowest(s))
           : cuda_kept_pitch(full_extent(t, r, lowest(s)));
    return (n + 15) / 16 * 16;
}

/* Whether a kernel from a schedule finds r: it loads tiles whole. */
static bool is_loaded_whole(const Tiles *t, Ref r)
{
    for (int i = 0; i < t->p->nkernels; i++) {
        const Schedule *s = t->m->kernel[i].schedule;
        const Kernel *k = &t->p->kernel[i];
        bool finds = false, has = false;
        for (int at = 0; at < k->nnodes; at++) {
            has |= k->node[at] == r;
            for (int a = 0; a < 4; a++)
                finds |= t->g->n[k->node[at]].a[a] == r;
        }
        if (s && !s->why && finds && !has)
            return true;
    }
    return false;
}

/* Zeros where a sequence's last chunk has no tokens: rows, and columns of
 * scores, which products would take as they are. */
static void put_no_tokens(Tiles *t, Buf *b, Ref r, const Spot *full)
{
    int32_t size = 1;
    Buf past = { .ctx = t->c };

    for (AxisSet s = t->g->n[r].axes; s; s &= s - 1) {
        int ax = lowest(s);
        size *= full_extent(t, r, ax);
        if (is_token_axis(ax))
            buf_printf(&past, "%sx / %d %% %d >= n", past.len ? " || " : "",
                       (int)full->st[ax], t->chunk);
    }
    if (past.len)
        buf_printf(b, "for (int x = TID; n < %d && x < %d; x += THREADS)\n"
                   "if (%s)\nput(p + x, 0.0f);\n", t->chunk, (int)size,
                   past.s);
}

/* The tile of a stored value lies without gaps, a chunk at full length. */
static void stored_text(Tiles *t, Act *a, Ref r, bool store)
{
    AxisSet axes = t->g->n[r].axes;
    Spot full = { .tile = t->spot[r].tile };
    Buf *b = &a->text;
    DType d = stored_type(t, r);
    int32_t step = 1;
    bool transposed = lies_transposed(t, r);

    for (AxisSet s = axes; s; s &= ~AXIS(inner_axis(s, transposed))) {
        full.st[inner_axis(s, transposed)] = step;
        step *= full_extent(t, r, inner_axis(s, transposed));
    }
    buf_printf(b, "%s *p = (%s *)(%s + %lld)", ctype_text(d), ctype_text(d),
               t->stored_later[r] ? "later" : "stored",
               (long long)t->stored_at[r]);
    if (t->slice_axis >= 0 && axes & AXIS(t->slice_axis))
        buf_printf(b, " + block * %d", (int)(t->slice
                                             * full.st[t->slice_axis]));
    buf_printf(b, ";\n");
    if (store && is_loaded_whole(t, r))
        put_no_tokens(t, b, r, &full);
    AxisSet own = axes & ~AXIS(AX_I);
    bool rows = axes == own ? own && !(own & (own - 1) & ((own & (own - 1))
                                                          - 1))
                            : !(own & (own - 1));
    int in = own ? inner_axis(own, transposed) : -1;
    if (rows && own && t->spot[r].st[in] == 1 && !t->spot[r].at
        && !t->spot[r].tail) {
        int row = axes == own ? inner_axis(own, !transposed) : AX_I;
        bool one = !(axes & (axes - 1));
        const char *count = one ? "1" : row == AX_I ? "n"
            : ctx_format(t->c, "%d", (int)tile_extent(t, r, row));
        /* of a slice, rows need not start at multiples of 16 bytes */
        bool wide = one || full.st[row] % (16 / dtype_size(d)) == 0;
        buf_printf(b, "%s<%d, %d%s>(t%d, p, %d, 1, %s, %s);\n",
                   store ? "copy_out" : "copy_in",
                   (int)tile_extent(t, r, in),
                   one ? (int)tile_extent(t, r, in)
                       : (int)t->spot[r].st[row], store ? "" :
                   ctx_format(t->c, ", SHARED%d", t->spot[r].tile),
                   t->spot[r].tile, (int)full.st[row], count,
                   wide ? "true" : "false");
        act_uses(t, a, t->spot[r].tile, !store);
        a->copies = !store;
        return;
    }
    loop_open(t, b, "TID", "THREADS", r, axes);
    if (store) {
        buf_printf(b, "put(p + ");
        index_text(b, &full, axes, -1, NULL);
        buf_printf(b, ", ");
        element_text(t, a, b, r, axes, -1, NULL);
    } else {
        buf_printf(b, "copy1(t%d + ", t->spot[r].tile);
        index_text(b, &t->spot[r], axes, -1, NULL);
        buf_printf(b, ", p + ");
        index_text(b, &full, axes, -1, NULL);
        act_uses(t, a, t->spot[r].tile, true);
    }
    buf_printf(b, ");\n}\n");
}

void emit_fetch(Tiles *t, Ref r)
{
    Act *a = act_begin(t, 0);

    t->spot[r] = tile_spot(t, r, tile_new(t, r, false));
    buf_printf(&a->text, "{\n");
    stored_text(t, a, r, false);
    buf_printf(&a->text, "}\n");
}

void emit_keep(Tiles *t, Ref r)
{
    if (t->stored_here[r]) {
        Act *a = act_begin(t, 0);
        buf_printf(&a->text, shared_value(t, r) ? "if (block == 0) {\n"
                                                : "{\n");
        stored_text(t, a, r, true);
        buf_printf(&a->text, "}\n");
    }
    for (int i = 0; i < t->g->nout; i++)
        if (t->out_here[i] && t->g->out[i].node == r)
            emit_out(t, i);
}
