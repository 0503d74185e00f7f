/* emit_vector.c -- the vector warp: one value a token, or one a chunk.
 *
 * Lane l holds tokens l and l + 32 as a Pair. Inputs come through a ring of
 * copies that runs eight chunks ahead. What other roles read is published in
 * the stage; then the warp waits for the stage's matrices, clears the rows
 * past the sequence's end, and opens the stage. States without axes are its
 * own: a variable each, what the next chunk finds.
 */
#include "ahead.h"

#include <string.h>

static bool ring_input(const Emit *e, Ref r)
{
    return e->g->n[tile_input(e, r)].op == OP_input && is_token(e, r)
        && r == tile_base(e, r);
}

CudaArg vector_arg(Emit *e, Ref r, int *bytes)
{
    int input = e->g->n[tile_input(e, r)].index;
    DType d = e->o->vector[input];
    if (d != F32 && d != e->o->tile)
        no_place(e, r, "vectors are float32 or of the matrices' type");
    *bytes = dtype_size(d);
    return cuda_arg(ARG_INPUT, input, d);
}

/* ---- one node ---- */

static char *member(Emit *e, Ref r, char half)
{
    Buf t = { .ctx = e->c };
    r = strip(e->g, r);
    if (e->g->n[r].op == OP_num)
        number_text(&t, e->g->n[r].num);
    else if (is_token(e, r))
        buf_printf(&t, "v%u.%c", (unsigned)r, half);
    else
        buf_printf(&t, "v%u", (unsigned)r);
    return t.s;
}

static void elementwise(Emit *e, Buf *b, Ref r)
{
    const Node *n = &e->g->n[r];
    const char *x[3] = { 0 };
    bool token = is_token(e, r);
    buf_printf(b, token ? "const Pair v%u = { "
                        : "const float v%u = ", (unsigned)r);
    for (int half = 0; half < (token ? 2 : 1); half++) {
        for (int i = 0; i < 3; i++)
            if (n->a[i])
                x[i] = member(e, n->a[i], half ? 'b' : 'a');
        buf_printf(b, half ? ", " : "");
        value_text(b, n->op, x);
    }
    buf_printf(b, token ? " };\n" : ";\n");
}

static void pair(Emit *e, Buf *b, Ref r, const char *none)
{
    buf_printf(b, "{ %s, %s }", r ? member(e, r, 'a') : none,
               r ? member(e, r, 'b') : none);
}

static void structured(Emit *e, Buf *b, Ref r)
{
    const Node *n = &e->g->n[r];
    unsigned v = r;
    if (n->op == OP_last && is_token(e, n->a[0])) {
        buf_printf(b, "const float v%u = last_row(v%u, rows);\n", v,
                   (unsigned)strip(e->g, n->a[0]));
    } else if (n->op == OP_cumsum && !(n->flags & REVERSE)) {
        bool before = n->flags & EXCLUSIVE;
        if (n->axes & RANK_AXES)
            no_place(e, r, "a running sum of ranks");
        buf_printf(b, "const Pair v%u = %srunning_sum({ %s, %s }, lane, rows)"
                   "%s;\n", v, before ? "shifted(" : "",
                   member(e, n->a[0], 'a'), member(e, n->a[0], 'b'),
                   before ? ", lane)" : "");
    } else if (n->op == OP_select && n->over == AXIS(AX_R)) {
        buf_printf(b, "const Pair v%u = of_rank(v%u, %d, lane);\n", v,
                   (unsigned)strip(e->g, n->a[0]), n->index);
    } else if ((n->op == OP_scan || n->op == OP_maxscan) && n->a[2]
               && e->ranks == 1
               && !(n->flags & (EXCLUSIVE | REVERSE))) {
        buf_printf(b, "const Pair v%u = scanned<%d>(", v,
                   n->op == OP_maxscan);
        pair(e, b, n->a[0], n->op == OP_maxscan ? "0.f" : "1.f");
        buf_printf(b, ", ");
        pair(e, b, n->a[1], "0.f");
        buf_printf(b, ", %s, lane, rows);\n", member(e, n->a[2], 'a'));
    } else if (n->op == OP_delay && e->ranks == 1) {
        buf_printf(b, "const Pair v%u = delayed(", v);
        pair(e, b, n->a[0], "0.f");
        buf_printf(b, ", %s, lane);\n", member(e, n->a[1], 'a'));
    } else {
        no_place(e, r, "this operation on one value per token");
    }
}

/* ---- the ring of inputs ---- */

static void ring(Emit *e, Buf *b, bool fetch)
{
    int slot = 0;
    for (Ref r = 1; r < e->g->len; r++) {
        if (!e->vector[r] || !ring_input(e, r))
            continue;
        if (fetch)
            buf_printf(b, "in%u.fetch(", (unsigned)r);
        else
            buf_printf(b, "const Pair v%u = in%u.fetched(", (unsigned)r,
                       (unsigned)r);
        buf_printf(b, "inputs + %d * RING, c, lane);\n", slot++);
    }
}

/* ---- states without axes ---- */

static int state_tensor(Emit *e, CudaArgKind kind, int state)
{
    CudaArg arg = cuda_arg(kind, state, F32);
    return ahead_tensor(e, e->g->st[state].node, arg);
}

static bool is_scalar(const Emit *e, int state)
{
    return e->k->states >> state & 1 && e->vector[e->g->st[state].node];
}

static void begin_scalars(Emit *e, Buf *b)
{
    for (int i = 0; i < e->g->nst; i++)
        if (is_scalar(e, i))
            buf_printf(b, "float v%u = state_entry(a.tensor[%d], seq, head, "
                       "0);\n", (unsigned)e->g->st[i].node,
                       state_tensor(e, ARG_STATE, i));
}

static void advance_scalars(Emit *e, Buf *b)
{
    const Graph *g = e->g;
    for (int i = 0; i < g->nst; i++)
        if (is_scalar(e, i))
            buf_printf(b, "v%u = %s(v%u);\n", (unsigned)g->st[i].node,
                       g->st[i].angle ? "wrapped" : "",
                       (unsigned)strip(g, g->st[i].next));
}

static void end_scalars(Emit *e, Buf *b)
{
    for (int i = 0; i < e->g->nst; i++)
        if (is_scalar(e, i))
            buf_printf(b, "if (lane == 0 && %s)\n"
                       "end_entry(a.tensor[%d], seq, head, 0, v%u);\n",
                       ends_here(e), state_tensor(e, ARG_NEXT, i),
                       (unsigned)e->g->st[i].node);
}

static void arguments(Emit *e, Buf *b)
{
    begin_scalars(e, b);
    for (Ref r = 1; r < e->g->len; r++) {
        if (!e->vector[r] || e->g->n[tile_input(e, r)].op != OP_input
            || r != tile_base(e, r))
            continue;
        int bytes, at = ahead_tensor(e, r, vector_arg(e, r, &bytes));
        if (is_token(e, r))
            buf_printf(b, "const Stream<%d> in%u(a.tensor[%d], head, where, "
                       "lane%s);\n", bytes, (unsigned)r, at,
                       e->g->n[r].axes & AXIS(AX_R) ? ", true" : "");
        else
            buf_printf(b, "const float v%u = constant<%d>(a.tensor[%d], head)"
                       ";\n", (unsigned)r, bytes, at);
    }
}

/* ---- what is published ---- */

static void product(Emit *e, Buf *b, const Published *p, char half)
{
    buf_printf(b, "%s", p->negative ? "-1.f" : "");
    for (int i = 0; i < p->n; i++) {
        bool first = !i && !p->negative;
        if (p->f[i].inverse)
            buf_printf(b, first ? "1.f / " : " / ");
        else
            buf_printf(b, first ? "" : " * ");
        buf_printf(b, "%s", member(e, p->f[i].v, half));
    }
    buf_printf(b, p->log2 ? " * LOG2E" : "");
}

static void publish_all(Emit *e, Buf *b)
{
    for (int i = 0; i < e->npub; i++) {
        const Published *p = &e->pub[i];
        if (p->deferred)
            continue;
        if (p->token) {
            buf_printf(b, "store_pair(vectors + AT_%s, { ",
                       p->name);
            product(e, b, p, 'a');
            buf_printf(b, ", ");
            product(e, b, p, 'b');
            buf_printf(b, " }, lane);\n");
        } else {
            buf_printf(b, "if (lane == 0)\nstore1("
                       "vectors + AT_%s, ", p->name);
            product(e, b, p, 'a');
            buf_printf(b, ");\n");
        }
    }
}

static void nodes(Emit *e, Buf *b)
{
    for (Ref r = 1; r < e->g->len; r++) {
        const Node *n = &e->g->n[r];
        if (!e->vector[r] || n->op == OP_state || ring_input(e, r)
            || n->op == OP_input)
            continue;
        if (op_info[n->op].traits & ELEMENTWISE)
            elementwise(e, b, r);
        else
            structured(e, b, r);
    }
}

static void clear_tail(Emit *e, Buf *b)
{
    buf_printf(b, "const u32 stage = base + pos.stage * STAGE_BYTES;\n"
               "if (rows < 64) {\n");
    for (int i = 0; i < e->ntiles; i++) {
        Ref r = e->tile[i].r;
        bool half = is_half_loaded(e, &e->tile[i]);
        for (int k = half; !e->tile[i].computed && k < tile_count(e, r); k++)
            for (int at = 0; at < tile_bytes_of(e, r); at += TILE_BYTES)
                buf_printf(b, "clear_rows(%s + %d%s + %d, rows%s, lane);\n",
                           tile_place(e, r), k * tile_bytes_of(e, r),
                           half ? " * block" : "", at, is_compact(e, r)
                           ? " / RANKS, 64 / RANKS" : ", 64");
    }
    buf_printf(b, "fence_async();\n}\n");
}

/* Whether all that is published here is the same for every whole chunk: then it
 * is left where it lies, once all stages have it. */
static bool is_steady(const Emit *e)
{
    bool steady = !count_rings(e);
    for (int i = 0; i < e->g->nst; i++)
        steady &= !is_scalar(e, i);
    return steady;
}

static void begin_ring(Emit *e, Buf *b)
{
    buf_printf(b, "auto fetch_chunk = [&](int c) {\n"
               "if (c < last) {\n");
    ring(e, b, true);
    buf_printf(b, "}\ncopy_commit();\n};\n"
               "NO_UNROLL for (int c = 0; c < AHEAD - 1; c++)\n"
               "fetch_chunk(c);\n");
}

static void advance_ring(Emit *e, Buf *b)
{
    buf_printf(b, "fetch_chunk(c + AHEAD - 1);\n"
               "copy_wait<AHEAD - 1>();\n");
    ring(e, b, false);
}

static void wait_for_stage(Buf *b, const char *where)
{
    buf_printf(b, "%swait(empty + 8 * pos.stage, pos.phase ^ 1);\n", where);
}

void emit_vectors(Emit *e)
{
    Buf *b = &e->vec;
    bool steady = is_steady(e), spilled = e->o->attempt && !steady;
    arguments(e, b);
    if (!steady)
        begin_ring(e, b);
    buf_printf(b, "NO_UNROLL for (int c = 0; c < last; c++, pos.next()) {\n"
               "const u32 vectors = base + VECTORS + pos.stage * "
               "VECTOR_BYTES;\n"
               "const int rows = rows_of(where, c);\n");
    if (spilled)                        /* what has a place to go to needs no
                                           register, and two leave it few */
        wait_for_stage(b, "if (AHEADS == 2)\n");
    if (steady)
        buf_printf(b, "if (c < STAGES || rows < 64) {\n");
    else
        advance_ring(e, b);
    for (int i = 0; i < e->g->nst; i++)
        if (is_scalar(e, i))
            keep_scalar(e, b, i);
    nodes(e, b);
    wait_for_stage(b, spilled ? "if (AHEADS == 1)\n" : "");
    publish_all(e, b);
    buf_printf(b, "%swait(loaded + 8 * pos.stage, pos.phase);\n",
               steady ? "}\n" : "");
    clear_tail(e, b);
    emit_first_rows(e, b);
    buf_printf(b, "fence_async();\narrive(ready + 8 * pos.stage);\n");
    advance_scalars(e, b);
    buf_printf(b, "}\n");
    end_scalars(e, b);
}
