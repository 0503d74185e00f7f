/* print_moves.c -- what a schedule loads and stores: tiles by the copy engine,
 * the ends of those that are loaded, shares of results.
 */
#include "print_parts.h"

/* ---- maps ---- */

/* A kernel with more is refused before it is printed (check.c). */
static int add_map(Print *p, CudaArgKind kind, int index, DType d)
{
    CudaKernel *k = p->k;
    if (k->nmaps == CUDA_MAPS)
        fail_internal(p->c, 0, "internal: %s has more than %d maps", k->name,
                      CUDA_MAPS);
    k->map[k->nmaps] = cuda_arg(kind, index, d);
    return k->nmaps++;
}

static int map_for(Print *p, CudaArgKind kind, int index, DType d)
{
    CudaKernel *k = p->k;
    for (int i = 0; i < k->nmaps; i++)
        if (k->map[i].kind == kind && k->map[i].index == index)
            return i;
    return add_map(p, kind, index, d);
}

/* The place of the stored node r and its shape, that of v, as the map of it
 * needs them. */
static int stored_map(Print *p, const KValue *v, Ref r)
{
    CudaKernel *k = p->k;
    int64_t from = p->stored->at[r];
    bool later = p->stored->later[r];
    int at = 0;
    while (at < k->nmaps && (k->map[at].kind != ARG_STORED
                             || k->stored_at[at] != from
                             || k->stored_later[at] != later))
        at++;
    if (at == k->nmaps)
        add_map(p, ARG_STORED, 0, p->s->tile);
    k->stored_at[at] = from;
    k->stored_later[at] = later;
    k->stored_rows[at] = full_extent(p, v->row);
    k->stored_cols[at] = full_extent(p, v->col);
    k->stored_pitch[at] = kept_pitch(p, v->col);
    return at;
}

/* ---- loads ---- */

static bool is_row_off(const Print *p, const KValue *v)
{
    return loaded_node(p->s, v->node) != v->node;
}

/* By the role's lanes. Rows count from the chunk's first on. */
static void put_load_by_lanes(Print *p, const KValue *v)
{
    Ref r = loaded_node(p->s, v->node);
    const Node *n = &p->s->g->n[r];
    bool input = n->op == OP_input, back = p->s->g->n[v->node].flags & REVERSE;
    int delay = tokens_delayed(p->s, v->node);
    int off = back ? delay : -delay, rows = rows_lying(v);
    int cols = full_extent(p, v->col);
    bool widens = input && p->o->in[n->index] != p->s->tile;
    put_wait(p, v->buffer, v->use, true);
    buf_printf(p->b, "{\nconst u32 to = %s;\n", place(p, v));
    if (input)
        map_for(p, ARG_INPUT, n->index, p->o->in[n->index]);
    for (int c = 0; c < v->ncol; c += piece_cols(v))
        for (int i = 0; i < rows; i += TILE_ROWS) {
            int at = c / piece_cols(v) * rows * 128 + i * 128;
            if (input && v->row >= AX_DIM)
                buf_printf(p->b, "copy_constant<%d, %d, %d>(to + %d,"
                           " a.tensor[%d], x, %s, %s, lane);\n",
                           full_extent(p, v->row), cols,
                           rows < TILE_ROWS ? rows : TILE_ROWS, at,
                           tensor_for(p, ARG_INPUT, n->index,
                                      p->o->in[n->index]),
                           sliced_index(p, v->row, i),
                           sliced_index(p, v->col, c));
            else if (input)
                buf_printf(p->b, "%s<%s, %d>(to + %d, a.tensor[%d], x,"
                           " %s, %d, lane);\n", widens ? "widen_tokens"
                           : "copy_tokens", p->s->g->in[n->index].ranked
                           ? "true" : "false", cols, at,
                           tensor_for(p, ARG_INPUT, n->index,
                                      p->o->in[n->index]),
                           sliced_index(p, v->col, c), off);
            else
                buf_printf(p->b, "copy_kept<%d, %d, %d%s>(to + %d, %s, %s, %s,"
                           " %d, lane);\n", full_extent(p, v->row), cols,
                           rows < TILE_ROWS ? rows : TILE_ROWS,
                           cols == kept_pitch(p, v->col) ? ""
                           : ctx_format(p->c, ", %d", kept_pitch(p, v->col)),
                           at,
                           kept_place(p, r), sliced_index(p, v->row, i),
                           sliced_index(p, v->col, c),
                           off * rows_of_token(p->s->g));
        }
    buf_printf(p->b, "%s(%s);\n}\n", widens ? "arrive" : "copies_arrive",
               barrier(p, v->buffer, v->use, false));
}

/* Bytes of all that lies in the slot, in a lean iteration of what that has;
 * whether the instruction is the first that fills it. */
static int slot_bytes(const Print *p, const KInst *k, bool *first)
{
    const KValue *v = value_at(p, k->out[0]);
    int bytes = 0;
    *first = k->wait_empty >> v->buffer & 1;
    if (buffer_of(p, v)->uses > 1) {
        *first = true;
        return (int)value_bytes(v);
    }
    if (!p->lean)
        return (int)buffer_of(p, v)->bytes;
    for (int i = 0; i < p->s->ninsts; i++) {
        const KInst *u = &p->s->inst[i];
        if (u->op != K_LOAD || !u->lean
            || value_at(p, u->out[0])->buffer != v->buffer)
            continue;
        *first = bytes ? *first : u->out[0] == k->out[0];
        bytes += (int)value_bytes(value_at(p, u->out[0]));
    }
    return bytes;
}

/* Of an input that the copy engine loads; 0: it loads none. */
static const Node *engine_input(const Print *p, const KInst *k)
{
    bool loads = k->op == K_LOAD && is_waited(p, FORM_COPY);
    Ref r = loads ? loaded_node(p->s, value_at(p, k->out[0])->node) : 0;
    return r && p->s->g->n[r].op == OP_input ? &p->s->g->n[r] : NULL;
}

static const char *head_name(Print *p, const Node *n)
{
    return ctx_format(p->c, "head%d", tensor_for(p, ARG_INPUT, n->index,
                                                 p->o->in[n->index]));
}

/* Of a walk, before its loop over chunks: a quotient there would come between a
 * slot that is free and what is loaded into it. */
void put_heads(Print *p)
{
    for (int i = 0; i < p->s->ninsts; i++) {
        const Node *n = engine_input(p, &p->s->inst[i]);
        bool before = false;
        for (int j = 0; j < i && n; j++)
            before |= engine_input(p, &p->s->inst[j]) == n;
        if (n && !before)
            buf_printf(p->b, "const int %s = head_of(a.tensor[%d], x.head);\n",
                       head_name(p, n), tensor_for(p, ARG_INPUT, n->index,
                                                   p->o->in[n->index]));
    }
}

void put_load(Print *p, const KInst *k)
{
    const KValue *v = value_at(p, k->out[0]);
    const Node *n = &p->s->g->n[loaded_node(p->s, v->node)];
    bool input = n->op == OP_input, ranks = p->s->g->rows;
    bool back = p->s->g->n[v->node].flags & REVERSE;
    if (!is_waited(p, FORM_COPY)) {
        put_load_by_lanes(p, v);
        return;
    }
    const char *off = !is_row_off(p, v) ? ""    /* of tokens, or of rows */
        : ctx_format(p->c, " %s %d%s", back ? "+" : "-",
                     tokens_delayed(p->s, v->node),
                     ranks && !input ? " * RANKS" : "");
    int map = input ? map_for(p, ARG_INPUT, n->index, p->o->in[n->index])
                    : stored_map(p, v, loaded_node(p->s, v->node));
    int rows = rows_lying(v);
    bool first;
    int bytes = slot_bytes(p, k, &first);
    if (first)
        put_wait(p, v->buffer, v->use, true);
    buf_printf(p->b, "{\nconst u32 full = %s, to = %s;\n", p->tails
               ? ctx_format(p->c, "base + %d", (int)tail_barrier(p->s))
               : barrier(p, v->buffer, v->use, false), place(p, v));
    if (first)                          /* of all that lies in the slot */
        buf_printf(p->b, "arrive_expecting(full, %d);\n", bytes);
    const char *head = !input ? NULL : p->s->kind != K_TOKEN
                     ? head_name(p, n) : "head";
    if (input && p->s->kind == K_TOKEN)
        buf_printf(p->b, "const int head = head_of(a.tensor[%d], x.head);\n",
                   tensor_for(p, ARG_INPUT, n->index, p->o->in[n->index]));
    bool constant = input && v->row >= AX_DIM;
    for (int c = 0; c < v->ncol; c += piece_cols(v))
        for (int r = 0; r < rows; r += TILE_ROWS) {
            int at = c / piece_cols(v) * rows * 128 + r * 128;
            const char *col = !v->half ? sliced_index(p, v->col, c)
                : ctx_format(p->c, "%s * %d + %d", half_text(p), (int)v->ncol,
                             c);
            if (constant)
                buf_printf(p->b, "load_tile(to + %d, &a.map[%d], full, %s,"
                           " %s, %s, 0);\n", at, map, col,
                           sliced_index(p, v->row, r), head);
            else if (input)
                buf_printf(p->b, "%s(to + %d, &a.map[%d], full, %s,"
                           " x.row%s, %s, x.where.b);\n",
                           ranks ? "load_ranks" : "load_tile", at, map,
                           col, off, head);
            else
                buf_printf(p->b, "load_tile(to + %d, &a.map[%d], full, %s,"
                           " %s%s, 0, (int)x.at);\n", at, map, col,
                           sliced_index(p, v->row, r), off);
        }
    buf_printf(p->b, "}\n");
}

/* ---- chunks that end early ---- */

static bool is_of_slot(const Print *p, const KInst *k, const KValue *v)
{
    return k->op == K_LOAD && value_at(p, k->out[0])->buffer == v->buffer
        && value_at(p, k->out[0])->use == v->use;
}

/* Whether a load before it fills the slot, too. */
static bool is_filled_before(const Print *p, const KInst *k)
{
    bool any = false;
    for (const KInst *u = p->s->inst; u < k; u++)
        any |= is_of_slot(p, u, value_at(p, k->out[0]));
    return any;
}

static bool clears_slot(const Print *p, const KValue *v)
{
    bool any = false;
    for (const KInst *k = p->s->inst; k < p->s->inst + p->s->ninsts; k++)
        any |= k->clears && is_of_slot(p, k, v);
    return any;
}

/* One lane has a slot filled; all wait until it is, clear what lies behind the
 * sequence's end, and say that it is there. */
static void put_slot_cleared(Print *p, const KValue *v, PutInst put)
{
    const Schedule *s = p->s;
    p->tails = clears_slot(p, v);
    buf_printf(p->b, "if (lane == 0) {\n");
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++)
        if (is_of_slot(p, k, v))
            put(p, k);
    buf_printf(p->b, "}\n");
    if (p->tails)
        buf_printf(p->b, "__syncwarp();\nwait(base + %d, tails++ & 1);\n",
                   (int)tail_barrier(s));
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++)
        if (k->clears && is_of_slot(p, k, v))
            buf_printf(p->b, "clear_tail<32>(%s, %d, x.n, lane);\n",
                       place(p, value_at(p, k->out[0])),
                       (int)tile_pieces(value_at(p, k->out[0])));
    if (p->tails)
        buf_printf(p->b, "fence_async();\n__syncwarp();\nif (lane == 0)\n"
                   "arrive(%s);\n", barrier(p, v->buffer, v->use, false));
    p->tails = false;
}

void put_tails(Print *p, int lag, PutInst put)
{
    const Schedule *s = p->s;
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++)
        if (k->op == K_LOAD && k->lag == lag && !is_filled_before(p, k))
            put_slot_cleared(p, value_at(p, k->out[0]), put);
}

/* What stands in a tile's token before those of the chunk. */
static const char *first_text(Print *p, const KInst *k, const KValue *v,
                              int token)
{
    Ref first = first_row(p->s->g, v->node, token);
    for (int i = 1; i < k->nin; i++) {
        const KValue *b = value_at(p, k->in[i]);
        if (b->node == first)
            return b->layout == LAY_VECTOR ? place(p, b)
                                           : found_vector(p, first, v->col);
    }
    return "0u";
}

/* Of a tile that is some rows off. */
static void put_ends(Print *p, const KInst *k, int threads)
{
    const KValue *v = value_at(p, k->in[0]);
    bool back = p->s->g->n[v->node].flags & REVERSE;
    int delay = tokens_delayed(p->s, v->node);
    for (int i = 0; i < delay && !back; i++) {
        if (i)                          /* a chunk may end before */
            buf_printf(p->b, "if (x.n > %d * RANKS)\n", i);
        buf_printf(p->b, i ? "write_first<%d, %d>(" : "write_first<%d>(",
                   threads, i);
        buf_printf(p->b, "%s, %s, %d, thread);\n", place(p, v),
                   first_text(p, k, v, i), (int)v->ncol);
    }
    buf_printf(p->b, "clear_tail<%d>(%s, %d, x.n%s, thread);\n"
               "fence_async();\n", threads, place(p, v),
               (int)tile_pieces(v),
               !back ? "" : ctx_format(p->c, " - %d * RANKS", delay));
    put_sync(p, (KRole)k->role);
}

/* Whether both roles of matrices come to clear it, and meet there. */
static bool is_cleared_by_both(const Print *p, const KValue *v)
{
    uint32_t roles = 0;
    for (int i = 0; i < p->s->ninsts; i++) {
        const KInst *k = &p->s->inst[i];
        if (k->op == K_CLEAR && value_at(p, k->in[0]) == v)
            roles |= 1u << k->role;
    }
    return roles >> KR_MATRIX & roles >> KR_AHEAD & 1;
}

void put_cleared(Print *p, const KInst *k)
{
    const KValue *v = value_at(p, k->in[0]);
    int threads = GROUP_THREADS * warpgroups_of(p->s, k->role);
    bool both = is_cleared_by_both(p, v);
    if (v->layout == LAY_SUMS) {
        buf_printf(p->b, "for (int k = thread; k < %d; k += %d)\n"
                   "UNROLL for (int i = 0; i < RANKS; i++)\n"
                   "store1(%s + %d * (%d + i) + 4 * k, 0.f);\n",
                   (int)v->ncol, threads, place(p, v), (int)sums_pitch(v),
                   (int)v->nrow);
        return;
    }
    if (is_row_off(p, v)) {
        put_ends(p, k, threads);
        return;
    }
    buf_printf(p->b, "if (x.n < CHUNK_ROWS) {\n");
    if (!both || k->role == KR_AHEAD)
        buf_printf(p->b, "clear_tail<%d>(%s, %d, x.n, thread);\n"
                   "fence_async();\n", threads, place(p, v),
                   (int)tile_pieces(v));
    if (both)
        buf_printf(p->b, "roles_sync<%d>();\n", p->s->groups + p->s->ahead);
    else
        put_sync(p, (KRole)k->role);
    buf_printf(p->b, "}\n");
}

/* ---- stores ---- */

/* By the role's lanes. */
static void put_keep_by_lanes(Print *p, const KValue *v)
{
    int rows = rows_lying(v);
    buf_printf(p->b, "%s{\nconst u32 from = %s;\n", once_text(p, v->node),
               place(p, v));
    for (int c = 0; c < v->ncol; c += piece_cols(v))
        for (int r = 0; r < rows; r += TILE_ROWS)
            buf_printf(p->b, "keep_tile<%d, %d, %d>(%s, from + %d, %s, %s,"
                       " lane%s);\n", full_extent(p, v->row),
                       kept_pitch(p, v->col),
                       rows < TILE_ROWS ? rows : TILE_ROWS,
                       kept_place(p, v->node),
                       c / piece_cols(v) * rows * 128 + r * 128,
                       sliced_index(p, v->row, r), sliced_index(p, v->col, c),
                       !is_cut_off(p, v) ? ""
                       : ctx_format(p->c, ", %s", columns_end(p, v->col)));
    buf_printf(p->b, "}\n");
}

/* The same of a slice whose last piece is cut off, where the engine's are all
 * whole. */
static void put_keep_cut_off(Print *p, const KValue *v)
{
    int rows = rows_lying(v);
    buf_printf(p->b, "%s{\nconst u32 from = %s;\n", once_text(p, v->node),
               place(p, v));
    for (int c = 0; c < v->ncol; c += piece_cols(v))
        buf_printf(p->b, "keep_columns<%d>(%s, from + %d, %s, %s, %s, %s,"
                   " lane);\n", kept_pitch(p, v->col),
                   kept_place(p, v->node), c / piece_cols(v) * rows * 128,
                   inside_extent(p, v->row), sliced_index(p, v->row, 0),
                   sliced_index(p, v->col, c), columns_end(p, v->col));
    buf_printf(p->b, "}\n");
}

/* A state as a chunk finds it: every chunk has its place. */
static void put_keep_by_engine(Print *p, const KValue *v)
{
    int map = stored_map(p, v, v->node), rows = rows_lying(v);
    buf_printf(p->b, "%sif (lane == 0) {\nconst u32 from = %s;\n",
               once_text(p, v->node), place(p, v));
    for (int c = 0; c < v->ncol; c += piece_cols(v))
        for (int r = 0; r < rows; r += TILE_ROWS)
            buf_printf(p->b, "store_tile(&a.map[%d], from + %d, %s, %s, 0,"
                       " (int)x.at);\n", map,
                       c / piece_cols(v) * rows * 128 + r * 128,
                       sliced_index(p, v->col, c), sliced_index(p, v->row, r));
    buf_printf(p->b, "}\nbulk_commit();\nbulk_wait_read();\n");
}

static void put_wait_stored(Print *p, const KInst *k, const KValue *v)
{
    if (k->wait_full >> v->buffer & 1)
        put_wait(p, v->buffer, v->use, false);
    if (is_fenced_by_store(p, v))
        buf_printf(p->b, "fence_copied();\n");
}

static void put_keep(Print *p, const KInst *k)
{
    const KValue *v = value_at(p, k->in[0]);
    put_wait_stored(p, k, v);
    (!is_waited(p, FORM_COPY) ? put_keep_by_lanes
     : is_cut_off(p, v) ? put_keep_cut_off : put_keep_by_engine)(p, v);
    if (k->post_empty >> v->buffer & 1)
        put_post(p, v->buffer, v->use, true);
}

void put_share(Print *p, const KInst *k)
{
    const KValue *v = value_at(p, k->in[0]);
    if (v->layout == LAY_VECTOR) {
        put_kept_vector(p, k);
        return;
    }
    if (k->index == NOTHING) {
        int cols = share_of(p->s, k->role, v->ncol);
        const char *from = sliced_index(p, v->col, 0);
        buf_printf(p->b, "%skeep_matrix<%d>((%s *)%s + %s +"
                   " col0(%d), %s, x, l%s);\n", once_text(p, v->node),
                   kept_pitch(p, v->col), element_type(p->s->tile),
                   kept_place(p, v->node), from, cols,
                   fragment_name(p, v->node), end_text(p, v->col, cols));
        return;
    }
    bool share = p->o->sum_out[k->index];
    bool ranked = p->s->g->out[k->index].ranked;
    const char *type = p->o->out[k->index] == F32 ? "float" : "unsigned short";
    int end = padded_end(p, v->col);
    const char *of = end
        ? ctx_format(p->c, share ? "<%.0s%s, %d>" : "<%s, %s, %d>", type,
                     ranked ? "true" : "false", end)
        : share ? ranked ? "<true>" : ""
        : ranked ? ctx_format(p->c, "<%s, true>", type)
        : p->o->out[k->index] == F32 ? "" : "<unsigned short>";
    buf_printf(p->b, "%s%s%s(%sa.tensor[%d], %s, x, %s + col0(%d), l);\n",
               once_text(p, v->node), !share ? "store_matrix"
               : p->sums ? "sum_share" : "add_share", of,
               share && p->sums ? ctx_format(p->c, "sum%u, ",
                                             (unsigned)v->node) : "",
               result_tensor(p, ARG_OUTPUT, k->index),
               fragment_name(p, v->node), sliced_index(p, v->col, 0),
               share_of(p->s, k->role, v->ncol));
}

void put_store(Print *p, const KInst *k)
{
    const KValue *v = value_at(p, k->in[0]);
    if (k->index == NOTHING) {
        put_keep(p, k);
        return;
    }
    DType d = p->o->out[k->index];
    int map = map_for(p, ARG_OUTPUT, k->index, d);
    int t = tensor_for(p, ARG_OUTPUT, k->index, d);
    put_wait_stored(p, k, v);
    buf_printf(p->b, "%sif (a.tensor[%d].p) {\nconst u32 from = %s;\n",
               once_text(p, v->node), t, place(p, v));
    int pieces = (int)tile_pieces(v);
    const char *end = columns_end(p, v->col);
    const char *ranked = p->s->g->out[k->index].ranked ? "true" : "false";
    if (!is_waited(p, FORM_COPY))
        buf_printf(p->b, "NO_UNROLL for (int i = 0; i < %d; i++)\n"
                   "put_rows<%s>(a.tensor[%d], from + %d * i, x,"
                   " %s + 64 * i, %s, lane);\n}\n", pieces, ranked, t,
                   (int)rows_lying(v) * 128,
                   sliced_index(p, v->col, 0), end);
    else if (is_cut_off(p, v))
        buf_printf(p->b, "NO_UNROLL for (int i = 0; i < %d; i++)\n"
                   "store_columns<%s>(a.tensor[%d], from + 8192 * i, x,"
                   " %s + 64 * i, %s, lane);\n", pieces, ranked, t,
                   sliced_index(p, v->col, 0), end);
    else if (p->s->g->rows)
        buf_printf(p->b, "NO_UNROLL for (int i = 0; i < %d; i++)\n"
                   "store_rows<%d>(a.map[%d], a.tensor[%d], from + 8192 * i,"
                   " x, %s + 64 * i, %s, lane);\n", pieces,
                   p->s->g->out[k->index].ranked, map, t,
                   sliced_index(p, v->col, 0), end);
    else
        buf_printf(p->b, "const int c = (x.row - x.where.start) / 64;\n"
                   "NO_UNROLL for (int i = 0; i < %d; i++)\n"
                   "store_chunk(a.map[%d], a.tensor[%d], from + 8192 * i,"
                   " x.where, c, %s + 64 * i, %s, x.head, lane);\n", pieces,
                   map, t, sliced_index(p, v->col, 0), end);
    if (is_waited(p, FORM_COPY))
        buf_printf(p->b, "bulk_commit();\nbulk_wait_read();\n}\n");
    if (k->post_empty >> v->buffer & 1)
        put_post(p, v->buffer, v->use, true);
}
