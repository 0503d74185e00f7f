/* print_parts.c -- what an instruction's text calls values, places, barriers,
 * and what a launch passes.
 */
#include "print_parts.h"
#include "source.h"

#include <string.h>

enum { BARRIER_BYTES = 8 };

/* ---- what a launch passes ---- */

const char *element_type(DType d)
{
    return d == F32 ? "float" : "unsigned short";
}

static int argument(Print *p, CudaArg a)
{
    CudaKernel *k = p->k;
    for (int i = 0; i < k->ntensors; i++)
        if (k->tensor[i].kind == a.kind && k->tensor[i].index == a.index
            && k->tensor[i].part == a.part)
            return i;
    k->tensor[k->ntensors] = a;
    return k->ntensors++;
}

int tensor_for(Print *p, CudaArgKind kind, int index, DType d)
{
    CudaArg a = cuda_arg(kind, index, d);
    const Input *in = kind == ARG_INPUT ? &p->s->g->in[index] : NULL;
    if (in && in->part_of) {
        a.index = (uint8_t)(in->part_of - 1);
        a.part = (uint8_t)(in->part + 1);
    }
    return argument(p, a);
}

DType result_type(const Print *p, CudaArgKind kind, int i)
{
    const CudaOptions *o = p->o;
    return kind == ARG_STATE ? o->s0[i]
         : kind == ARG_NEXT ? o->sum_s1[i] ? F32 : o->s1[i]
         : o->sum_out[i] ? F32 : o->out[i];
}

int result_tensor(Print *p, CudaArgKind kind, int i)
{
    CudaArg a = { (uint8_t)kind, (uint8_t)i, (uint8_t)result_type(p, kind, i),
                  0 };
    const State *s = kind == ARG_OUTPUT ? NULL : p->s->g->st;
    if (s && s[i].part_of) {
        a.index = (uint8_t)(s[i].part_of - 1);
        a.part = (uint8_t)(s[i].part + 1);
    }
    for (int n = 0; s && !s[i].part_of && n < i; n++)
        a.index -= s[n].part > 0;       /* the call has no such state */
    int at = argument(p, a);
    p->k->part[at] = (kind == ARG_NEXT && p->o->sum_s1[i])
                  || (kind == ARG_OUTPUT && p->o->sum_out[i]);
    return at;
}

const char *sliced_index(Print *p, int axis, int at)
{
    return p->s->slices == 1 || axis != p->s->slice_axis
        ? ctx_format(p->c, "%d", at)
        : ctx_format(p->c, "x.slice * %d + %d",
                     (int)block_extent(p->s, axis), at);
}

const char *half_text(const Print *p)
{
    return p->s->slices == 2 ? "x.slice" : "x.slice % 2";
}

const char *once_text(const Print *p, Ref r)
{
    return p->s->slices == 1
        || p->s->g->n[r].axes & AXIS(p->s->slice_axis) ? ""
        : "if (x.slice == 0)\n";
}

bool is_cut_off(const Print *p, const KValue *v)
{
    return p->s->slices > 1 && v->col == p->s->slice_axis
        && v->ncol % piece_cols(v);
}

const char *columns_end(Print *p, int axis)
{
    bool own = p->s->slices > 1 && axis == p->s->slice_axis
            && block_extent(p->s, axis) % TILE_COLS;
    const char *end = own ? sliced_index(p, axis, (int)block_extent(p->s, axis))
                          : "";
    return !own ? ctx_format(p->c, "%d", full_extent(p, axis))
         : !is_padded(p->s, axis) ? end
         : ctx_format(p->c, "min(%s, %d)", end, full_extent(p, axis));
}

int full_extent(const Print *p, int axis)
{
    return axis < AX_DIM ? p->s->g->chunk : (int)p->s->g->axis[axis].size;
}

int kept_pitch(const Print *p, int axis)
{
    return cuda_kept_pitch(full_extent(p, axis));
}

const char *inside_text(Print *p, int axis, const char *at)
{
    return !is_padded(p->s, axis) ? NULL
         : p->s->slices > 1 && axis == p->s->slice_axis
         ? ctx_format(p->c, "%s + %s < %d", sliced_index(p, axis, 0), at,
                      full_extent(p, axis))
         : ctx_format(p->c, "%s < %d", at, full_extent(p, axis));
}

const char *inside_extent(Print *p, int axis)
{
    int all = (int)block_extent(p->s, axis);
    return !is_padded(p->s, axis) ? ctx_format(p->c, "%d", all)
         : p->s->slices > 1 && axis == p->s->slice_axis
         ? ctx_format(p->c, "min(%d, %d - x.slice * %d)", all,
                      full_extent(p, axis), all)
         : ctx_format(p->c, "%d", full_extent(p, axis));
}

int padded_end(const Print *p, int axis)
{
    return is_padded(p->s, axis) ? full_extent(p, axis) : 0;
}

const char *end_text(Print *p, int axis, int share)
{
    bool odd = full_extent(p, axis) % 2;
    return !is_padded(p->s, axis) ? ""
         : ctx_format(p->c, ", %s%d - (%s + col0(%d))%s", odd
                      ? "OddColumns { " : "", full_extent(p, axis),
                      sliced_index(p, axis, 0), share, odd ? " }" : "");
}

const char *masked_text(Print *p, const KInst *k, Ref r)
{
    bool masked = false;
    Buf b = { .ctx = p->c };
    for (int i = 0; i < k->nout; i++)
        masked |= value_at(p, k->out[i])->node == r
               && value_at(p, k->out[i])->masked;
    AxisSet axes = masked ? padded_axes(p->s, k, r) : 0;
    for (; axes; axes &= axes - 1)
        buf_printf(&b, "%s%s", b.len ? " && " : "",
                   inside_text(p, lowest(axes), lowest(axes) == k->row
                                                ? "row" : "col"));
    return b.s;
}

/* ---- places ---- */

const KValue *value_at(const Print *p, int v)
{
    return &p->s->value[v];
}

const char *fragment_name(Print *p, Ref r)
{
    int v = schedule_value(p->s, r, LAY_FRAGMENT);
    return ctx_format(p->c, "f%u", (unsigned)(v == NOTHING ? r
                      : value_at(p, fragment_root(p->s, v))->node));
}

/* Chunks so far; of those that were not lean iterations. */
static bool is_counted_apart(const Print *p, int buffer)
{
    return p->s->splits && !(lean_buffers(p->s) >> buffer & 1);
}

const char *count_name(const Print *p, int buffer)
{
    return is_counted_apart(p, buffer) ? "own" : "it";
}

const char *turn_counter(const Schedule *s, KRole role)
{
    return s->splits && !has_lean(s, role) ? "own" : "it";
}

/* ---- rings ---- */

/* Whether the role keeps count of the buffer's slots: of the matrices of a
 * forward walk behind a role ahead, where each iteration has a slot of it. What
 * an iteration begins with is known before it then. */
static bool is_ring(const Print *p, const KBuffer *b, KRole role)
{
    return walks_behind(p->s) && has_matrices(role)
        && b->uses == 1 && b->depth > 1
        && (b->writer == (int)role || b->readers >> role & 1);
}

/* By what it counts, and how many slots there are: "it4". */
static const char *ring_name(Print *p, const KBuffer *b)
{
    return ctx_format(p->c, "%s%d", count_name(p, (int)(b - p->s->buffer)),
                      (int)b->depth);
}

/* The first of those that are counted alike. */
static bool is_first_ring(Print *p, int buffer, KRole role)
{
    const KBuffer *b = &p->s->buffer[buffer];
    bool first = is_ring(p, b, role);
    for (int i = 0; i < buffer && first; i++)
        first = !is_ring(p, &p->s->buffer[i], role)
             || strcmp(ring_name(p, &p->s->buffer[i]), ring_name(p, b));
    return first;
}

void put_rings(Print *p, KRole role, const char *counter, RingStep step)
{
    for (int i = 0; i < p->s->nbuffers; i++) {
        const KBuffer *b = &p->s->buffer[i];
        if (!is_first_ring(p, i, role)
            || (counter && strcmp(count_name(p, i), counter)))
            continue;
        if (step == RING_BEGINS)
            buf_printf(p->b, "Ring<%d> %s;\n", (int)b->depth,
                       ring_name(p, b));
        else if (step == RING_GOES_ON)
            buf_printf(p->b, ", %s.next()", ring_name(p, b));
        else
            buf_printf(p->b, "%s.go_to(%s);\n", ring_name(p, b), counter);
    }
}

/* Which use of its ring this is. */
static const char *position(Print *p, const KBuffer *b, int use)
{
    const char *count = count_name(p, (int)(b - p->s->buffer));
    return b->uses == 1 ? count
         : ctx_format(p->c, "(%s * %d + %d)", count, (int)b->uses, use);
}

static const char *slot_text(Print *p, const KBuffer *b, int use)
{
    const char *pos = position(p, b, use);
    if (p->slots && is_ring(p, b, p->role))
        return ctx_format(p->c, "%s.stage", ring_name(p, b));
    return b->depth == 1 ? "0" : ctx_format(p->c, "%s %% %d", pos,
                                            (int)b->depth);
}

/* Whether the iteration of the loop has begun with the slot's place. */
static bool has_slot(const Print *p, int buffer)
{
    const KBuffer *b = &p->s->buffer[buffer];
    return p->slots && b->depth > 1 && b->uses == 1
        && !(p->lean && is_counted_apart(p, buffer));
}

void put_slots(Print *p, KRole role)
{
    p->slots = p->s->row_axis && has_matrices(role);
    p->role = role;
    for (int i = 0; i < p->s->nbuffers; i++) {
        const KBuffer *b = &p->s->buffer[i];
        if (has_slot(p, i)
            && (b->writer == (int)role || b->readers >> role & 1))
            buf_printf(p->b, "const u32 slot%d = base + %d + %s * %d;\n"
                       "(void)slot%d;\n", i, (int)b->at, slot_text(p, b, 0),
                       (int)b->bytes, i);
    }
}

const char *place(Print *p, const KValue *v)
{
    const KBuffer *b = buffer_of(p, v);
    if (b->depth == 1)
        return ctx_format(p->c, "base + %d", (int)(b->at + v->at));
    if (has_slot(p, v->buffer))
        return ctx_format(p->c, "slot%d + %d", v->buffer, (int)v->at);
    return ctx_format(p->c, "base + %d + %s * %d", (int)(b->at + v->at),
                      slot_text(p, b, v->use), (int)b->bytes);
}

const char *barrier(Print *p, int buffer, int use, bool empty)
{
    const KBuffer *b = &p->s->buffer[buffer];
    int32_t at = barrier_at(p->s, buffer)
               + (empty ? BARRIER_BYTES * b->depth : 0);
    if (b->depth == 1)
        return ctx_format(p->c, "base + %d", (int)at);
    return ctx_format(p->c, "base + %d + %s * %d", (int)at,
                      slot_text(p, b, use), BARRIER_BYTES);
}

void put_wait(Print *p, int buffer, int use, bool empty)
{
    const KBuffer *b = &p->s->buffer[buffer];
    const char *phase = p->slots && is_ring(p, b, p->role)
        ? ctx_format(p->c, "%s.phase", ring_name(p, b))
        : ctx_format(p->c, "parity(%s, %d)", position(p, b, use),
                     (int)b->depth);
    p->waited[empty] |= 1u << buffer;
    buf_printf(p->b, "wait(%s, %s%s);\n", barrier(p, buffer, use, empty),
               phase, empty ? " ^ 1" : "");
}

/* By every lane: what looks for races sees no order between a lane that
 * arrives and the others of its warp. */
void put_post(Print *p, int buffer, int use, bool empty)
{
    bool both = empty && is_filled_by_both(p->s, buffer);
    p->posted[empty] |= 1u << buffer;
    buf_printf(p->b, "%s(%s);\n", both ? "arrive_in_both" : "arrive",
               barrier(p, buffer, use, empty));
}

void put_fence(Print *p)
{
    if (p->fence_due)
        buf_printf(p->b, "fence_async();\n");
    if (p->fence_due)
        p->fenced = p->at;
    p->fence_due = false;
}

/* What the lanes of a walk of one warpgroup leave for the copy engine alone has
 * its fence in the role that stores it, behind its wait: lanes wait for theirs,
 * and nobody else works meanwhile. */
bool is_fenced_by_store(const Print *p, const KValue *v)
{
    return walks_alone(p->s) && is_waited(p, FORM_COPY)
        && buffer_of(p, v)->readers == 1u << KR_STORE;
}

/* Which is the next that the instruction reads from the buffer. */
static int turn_read(const Print *p, const KInst *k, int buffer)
{
    for (int i = 0; i < k->nin; i++)
        if (value_at(p, k->in[i])->buffer == buffer)
            return value_at(p, k->in[i])->use;
    return 0;
}

/* Whether a role's lanes read from the buffer, and not its products alone where
 * the tensor cores read for themselves, and there is no fence behind that; what
 * they clear has its own. */
static bool lanes_read(const Print *p, int role, int buffer)
{
    bool lanes = !is_waited(p, FORM_PRODUCT);
    for (int i = 0; i < p->s->ninsts; i++) {
        const KInst *k = &p->s->inst[i];
        bool product = k->op == K_PRODUCT || k->op == K_SETTLE;
        bool reads = k->role == role && (lanes || !product)
                  && k->op != K_CLEAR && (i >= p->fenced || k->deferred);
        for (int u = 0; u < k->nin && reads; u++)
            if (k->in[u] >= 0 && value_at(p, k->in[u])->buffer == buffer)
                return true;
    }
    return false;
}

/* Results that alternate are waited for, and told of, one by one. */
void each_bit(Print *p, const KInst *k, uint32_t set, bool empty,
              void put(Print *, int, int, bool))
{
    for (int b = 0; b < p->s->nbuffers; b++)
        if (set >> b & 1
            && (p->s->buffer[b].uses == 1 || p->s->buffer[b].copied))
            put(p, b, turn_read(p, k, b), empty);
}

/* Where the tensor cores read for themselves what lanes have copied. */
void put_waits(Print *p, const KInst *k)
{
    bool fence = false;
    each_bit(p, k, k->wait_full, false, put_wait);
    for (int b = 0; b < p->s->nbuffers; b++)
        fence |= k->wait_full >> b & 1 && p->s->buffer[b].copied;
    if (fence && has_matrices(k->role) && is_waited(p, FORM_PRODUCT)
        && !is_waited(p, FORM_COPY))
        buf_printf(p->b, "fence_copied();\n");
}

int thread_rows(const KInst *k)
{
    return (k->nrow + TILE_ROWS - 1) / TILE_ROWS * 2;
}

const char *walked_text(Print *p, const char *use)
{
    return p->s->kind == K_REVERSE
        ? ctx_format(p->c, "max(chunks - 1 - (%s), 0)", use) : use;
}

const char *kept_place(Print *p, Ref r)
{
    bool later = p->stored->later[r];
    return ctx_format(p->c, "(float *)(a.run.%s + x.at * %lld + %lld)",
                      later ? "later" : "stored",
                      (long long)p->stored->bytes[later],
                      (long long)p->stored->at[r]);
}

const char *found_vector(Print *p, Ref r, int axis)
{
    const char *from = ctx_format(p->c, "%s + %s", kept_place(p, r),
                                  sliced_index(p, axis, 0));
    return !is_padded(p->s, axis) ? from
         : ctx_format(p->c, "Ending { %s, %s }", from, inside_extent(p, axis));
}

/* ---- operands ---- */

static const char *constant_text(Print *p, Ref r)
{
    Buf b = { .ctx = p->c };
    number_text(&b, p->s->g->n[r].num);
    return b.s;
}

/* Whether a row, or column, is of the node's rank. */
static const char *flag_text(Print *p, Ref r, const char *at)
{
    return ctx_format(p->c, "(%s %% RANKS == %d ? 1.f : 0.f)", at,
                      (int)p->s->g->n[r].index);
}

const char *number_name(Print *p, Ref r)
{
    r = shown_node(p->s->g, r);
    return p->s->g->n[r].op == OP_num ? constant_text(p, r)
         : p->s->g->n[r].op == OP_isrank ? flag_text(p, r, "lane")
         : ctx_format(p->c, "v%u", (unsigned)r);
}

bool is_token_vector(const Print *p, Ref r)
{
    const Node *n = &p->s->g->n[shown_node(p->s->g, r)];
    return n->axes && n->op != OP_isrank;
}

const char *part_text(Print *p, Ref r, const char *part)
{
    return is_token_vector(p, r)
        ? ctx_format(p->c, "%s%s", number_name(p, r), part)
        : number_name(p, r);
}

void elementwise_text(Print *p, Buf *b, Ref r, const char *part)
{
    const Node *n = &p->s->g->n[r];
    const char *x[3] = { "", "", "" };
    for (int i = 0; i < op_info[n->op].arity; i++)
        x[i] = part_text(p, n->a[i], part);
    buf_printf(b, "(float)(");
    value_text(b, n->op, x);
    buf_printf(b, ")");
}

const char *vector_text(Print *p, Ref r, const char *at)
{
    const Node *n = &p->s->g->n[r];
    if (n->op != OP_input)
        return ctx_format(p->c, "(%s)[%s]", kept_place(p, r), at);
    return ctx_format(p->c, "vector_at<%s>(a.tensor[%d], x, %s)",
                      element_type(p->o->in[n->index]),
                      tensor_for(p, ARG_INPUT, n->index, p->o->in[n->index]),
                      at);
}

bool runs_along_rows(const Print *p, const KInst *k, Ref o)
{
    AxisSet s = p->s->g->n[o].axes;
    if (k->row == AX_I && k->col == AX_J)
        return s & AXIS(AX_I);
    return k->row == AX_I ? s & (AXIS(AX_I) | AXIS(AX_J)) : s & AXIS(k->row);
}

bool crosses(const Print *p, const KInst *k, Ref r)
{
    const Node *n = &p->s->g->n[r];
    bool within = op_is(n->op, PAIRS) && !op_has(n->op, TO_AXIS);
    return (within && n->over & AXIS(k->col)) || adds_pairs(n->op);
}

bool goes_by_pairs(const Print *p, const KInst *k)
{
    for (int i = 0; i < k->nnodes; i++)
        if (crosses(p, k, k->node[i]))
            return true;
    return false;
}

int pair_phase(const Print *p, const KInst *k, Ref r)
{
    int most = 0;
    for (int i = 0; i < 4 && has_node(k, r); i++) {
        Ref a = shown_node(p->s->g, p->s->g->n[r].a[i]);
        int at = a ? pair_phase(p, k, a) + crosses(p, k, r) : 0;
        most = at > most ? at : most;
    }
    return most;
}

/* A program that goes on from sums holds as much else as a thread has registers
 * for: what it can, it finds when an iteration of its loop needs it. So it does
 * with tiles of float32. */
bool is_found_by_steps(const Print *p, const KInst *k, const KValue *v)
{
    bool sums = p->s->tile == F32 && v->layout == LAY_TILE
             && k->nrow <= TILE_ROWS;
    for (int i = 0; i < k->nin; i++)
        sums |= value_at(p, k->in[i])->layout == LAY_SUMS;
    return sums && (v->layout == LAY_TILE || v->layout == LAY_SUMS
                    || (v->layout == LAY_VECTOR && v->row == k->col));
}

bool loads_ahead(const Print *p, const KInst *k)
{
    bool any = false;
    for (int i = 0; i < k->nin; i++)
        any |= value_at(p, k->in[i])->layout == LAY_TILE
            && !is_found_by_steps(p, k, value_at(p, k->in[i]));
    return any && k->parts > 1 && deals_rows(p->s, KR_MATRIX);
}

static bool is_read_along_columns(const Print *p, const KInst *k,
                                  const KValue *v)
{
    for (int n = 0; n < k->nnodes; n++)
        for (int j = 0; j < 4; j++) {
            Ref o = p->s->g->n[k->node[n]].a[j];
            if (shown_node(p->s->g, o) == v->node && !runs_along_rows(p, k, o))
                return true;
        }
    return false;
}

bool is_spread(const Print *p, const KInst *k, const KValue *v)
{
    AxisSet axes = p->s->g->n[v->node].axes;
    return k->op == K_MAP && k->row == AX_I && k->col >= AX_DIM && axes
        && !(axes & (axes - 1)) && !(axes & ~DIM_AXES)
        && !(axes & AXIS(k->col));
}

/* By node, and by the instruction that finds it. */
const char *spread_name(const Print *p, const KInst *k, const KValue *v)
{
    return ctx_format(p->c, "c%u_%d", (unsigned)v->node,
                      (int)(k - p->s->inst));
}

bool is_wrapped_alone(const Print *p, const KInst *k, Ref r)
{
    const Graph *g = p->s->g;
    bool all = true;
    for (int i = 0; i < k->nnodes; i++)
        for (int j = 0; j < 4; j++)
            all &= !g->n[k->node[i]].a[j]
                || shown_node(g, g->n[k->node[i]].a[j]) != r
                || g->n[k->node[i]].op == OP_wrap;
    return all;
}

bool is_found_by_columns(const Print *p, const KInst *k, const KValue *v)
{
    return p->s->row_axis && v->layout == LAY_VECTOR && v->parts == 1
        && is_read_along_columns(p, k, v) && !is_found_by_steps(p, k, v);
}

/* Whether a program finds the matrix in 16 bits, a tensor's. */
bool is_found_raw(const Print *p, const KInst *k, const KValue *v)
{
    const Node *n = &p->s->g->n[v->node];
    return v->layout == LAY_GLOBAL && n->op == OP_input
        && n->axes & (n->axes - 1) && k->op == K_MAP && k->row == AX_I
        && dtype_size(p->o->in[n->index]) == 2;
}

/* The same of an input in float32, where a block has the registers alone. */
bool is_found_whole(const Print *p, const KInst *k, const KValue *v)
{
    const Node *n = &p->s->g->n[v->node];
    return v->layout == LAY_GLOBAL && n->op == OP_input
        && n->axes & (n->axes - 1) && k->op == K_MAP && k->row == AX_I
        && k->nrow <= TILE_ROWS && p->o->in[n->index] == F32
        && p->s->resident < 2;
}

/* Of a state, that kernels keep for one another in 16 bits: two numbers when a
 * iteration of the program's loop needs them. */
bool is_found_of_state(const Print *p, const KInst *k, const KValue *v)
{
    const Node *n = &p->s->g->n[v->node];
    return v->layout == LAY_GLOBAL && n->op != OP_input && k->op == K_MAP
        && n->axes & (n->axes - 1) && !(n->axes & ~DIM_AXES);
}

const char *found_element(Print *p, const KInst *k, Ref o)
{
    Ref r = shown_node(p->s->g, o);
    unsigned u = (unsigned)r;
    AxisSet s = p->s->g->n[r].axes;
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = value_at(p, k->in[i]);
        if (v->node != r)
            continue;
        if (v->layout == LAY_VECTOR && is_spread(p, k, v) && loads_ahead(p, k))
            return ctx_format(p->c, "d%u[e %% %d / 4]", u, map_share(p, k) / 2);
        if (!runs_along_rows(p, k, o) && is_found_by_columns(p, k, v))
            return ctx_format(p->c, "(e & 1 ? d%u.y : d%u.x)", u, u);
        if (is_found_by_steps(p, k, v))
            return ctx_format(p->c, v->layout == LAY_TILE
                ? "(e & 1 ? high(t%u[e / 2 %% 4]) : low(t%u[e / 2 %% 4]))"
                : "(e & 1 ? y%u.y : y%u.x)", u, u);
        if (is_wide(p->s, v))           /* tokens, the columns, are its rows */
            return ctx_format(p->c, "load1(place_of(%s, %d, col, row))",
                              place(p, v), (int)rows_lying(v));
        if (is_found_of_state(p, k, v))
            return ctx_format(p->c, "(e & 1 ? high(t%u) : low(t%u))", u, u);
        if (is_found_raw(p, k, v))
            return ctx_format(p->c, "(e & 1 ? high(q%u[e / 2]) :"
                              " low(q%u[e / 2]))", u, u);
        if (v->layout == LAY_GLOBAL && s & (s - 1))
            return ctx_format(p->c, "g%u[e]", u);
        if (v->layout == LAY_GLOBAL && is_spread(p, k, v))
            return ctx_format(p->c, k->parts ? "%s[part * %d + e %% %d / 4]"
                              : "%s[%d + e %% %d / 4]", spread_name(p, k, v),
                              k->parts ? map_share(p, k) / 8 : 0,
                              map_share(p, k) / 2);
    }
    return NULL;
}

const char *element_of(Print *p, const KInst *k, Ref o)
{
    const Schedule *s = p->s;
    Ref r = shown_node(s->g, o);
    unsigned u = (unsigned)r;
    int v = schedule_value(s, r, LAY_FRAGMENT);
    if (s->g->n[r].op == OP_num)
        return constant_text(p, r);
    if (s->g->n[r].op == OP_isrank)
        return flag_text(p, r, runs_along_rows(p, k, o) ? "row" : "col");
    if (has_node(k, r))
        return ctx_format(p->c, goes_by_pairs(p, k) ? "x%u[e & 1]" : "x%u", u);
    if (v != NOTHING && has_value(k->in, k->nin, v))
        return ctx_format(p->c, "%s[e]", fragment_name(p, r));
    const char *found = found_element(p, k, o);
    if (found)
        return found;
    v = schedule_value(s, r, LAY_PACKED);
    if (v != NOTHING && has_value(k->in, k->nin, v))
        return ctx_format(p->c, "(e & 1 ? high(p%u[e / 2]) : low(p%u[e / 2]))",
                          u, u);
    v = schedule_value(s, r, LAY_TILE);
    if (v != NOTHING && has_value(k->in, k->nin, v))
        return ctx_format(p->c, "(e & 1 ? high(t%u[e / 2]) : low(t%u[e / 2]))",
                          u, u);
    if (!s->g->n[r].axes)
        return ctx_format(p->c, "s%u", u);
    bool high = map_rows(p, k) > TILE_ROWS;
    if (runs_along_rows(p, k, o))
        return ctx_format(p->c, high ? "r%u[h + e / %d * 2]" : "r%u[h]", u,
                          map_share(p, k) / 2);
    return ctx_format(p->c, high
                      ? "c%u[e %% %d / 4 * 2 + e %% 2]"
                      : "c%u[e / 4 * 2 + e %% 2]", u,
                      map_share(p, k) / 2);
}

const char *row0_text(const Print *p, const KInst *k)
{
    return deals_rows(p->s, k->role) ? "row0 + " : "";
}

int first_warp(const Schedule *s, KRole role)
{
    return (1 + (role == KR_AHEAD ? s->groups : 0)) * s->target->group;
}

void put_sync(Print *p, KRole role)
{
    int n = warpgroups_of(p->s, role);
    buf_printf(p->b, "matrix_sync<%d%s>();\n", n,
               role == KR_AHEAD && n > 1 ? ", true" : "");
}

/* Slots go back. A lane's read may still be under way then, and what the copy
 * engine writes there next overtakes it, unless it is fenced. */
void put_release(Print *p, const KInst *k)
{
    bool read = false;
    for (int b = 0; b < p->s->nbuffers; b++)
        read |= (k->post_empty >> b & 1) && p->s->buffer[b].copied
             && lanes_read(p, k->role, b);
    if (read)
        buf_printf(p->b, "fence_async();\n");
    each_bit(p, k, k->post_empty, true, put_post);
}
