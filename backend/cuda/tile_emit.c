/* tile_emit.c -- any plan as CUDA C++, for every GPU from Ampere on.
 *
 * A kernel of the plan is a kernel of the source; tile_plan.c has the plan. A
 * block takes a head of a sequence and walks its chunks (CUDA_SEQUENCES), or
 * takes one chunk (CUDA_CHUNKS); where every value allows it, blocks share a
 * head along an axis of its state (tile_slice.c). The plan of a step has
 * chunks of one token: the same kernel decodes.
 *
 * All threads of the block do one act after another: an element-wise loop
 * over as many nodes as go together, a product, a sum, a scan, a copy between
 * memory and a tile. Values that acts hand on lie in tiles (tile_place.c); a
 * barrier stands where an act meets what another has left. What goes on from
 * a product element by element is done on its fragments (tile_chain.c).
 *
 *   node                          act
 *   element-wise, pairs, masks    a loop over elements, or the end of a
 *                                 product
 *   select, part, col, last ...   none: a view of the operand's tile
 *   dot, sum                      tensor cores; threads, warps, the block
 *   cumsum, scan, maxscan         a warp a column, or a thread
 *   gdot                          tensor cores about anchors
 *   solve                         blocks of 16 rows
 *
 * Nothing is refused for its size: what shared memory cannot hold lies in the
 * block's part of the workspace.
 */
#include "print.h"
#include "tile.h"

#include <stdio.h>
#include <string.h>

/* Blocks that a multiprocessor has room for at least: of chunks two, where
 * tiles leave room for them; of single tokens as many as have their states'
 * copies under way side by side, or half of that. */
static int blocks_together(const Tiles *t)
{
    enum { SMALL = 32, HALF = 113 << 10 };

    if (t->m->chunk > 1)
        return t->o->arch == 90 && !t->o->attempt && t->out->shared <= HALF ? 2
                                                                         : 1;
    int less = (t->k->nnodes < SMALL ? 8 : 6) >> t->o->attempt;
    return less ? less : 1;
}

/* ---- what a kernel has ---- */

/* The same for every chunk, whatever its length. */
static bool is_constant(const Tiles *t, const Node *n)
{
    AxisSet tokens = AXIS(AX_I) | AXIS(AX_J);

    if (n->timed || n->states || n->op == OP_last || n->op == OP_state
        || n->flags & REVERSE || n->over & tokens)
        return false;
    for (int i = 0; i < 4; i++)
        if (n->a[i] && !t->pre[n->a[i]])
            return false;
    return true;
}

static bool lists(const Kernel *k, Ref r)
{
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] == r)
            return true;
    return false;
}

static bool had_before(const Tiles *t, Ref r)
{
    for (int i = 0; i < t->at; i++)
        if (lists(&t->p->kernel[i], r))
            return true;
    return false;
}

static bool is_next(const Tiles *t, Ref r)
{
    for (int s = 0; s < t->g->nst; s++)
        if (t->k->states & STATE(s) && t->g->st[s].next == r)
            return true;
    return false;
}

/* Late nodes are for the next states alone: computed when all else has read
 * the states. */
static void find_deferred(Tiles *t)
{
    for (Ref r = (Ref)t->g->len - 1; r > 0; r--)
        t->deferred[r] = t->has[r] && !t->kept[r];
    for (Ref r = (Ref)t->g->len - 1; r > 0; r--) {
        bool used = is_next(t, r);
        for (Ref u = r + 1; u < t->g->len && t->deferred[r]; u++)
            for (int i = 0; i < 4; i++)
                if (t->has[u] && t->g->n[u].a[i] == r) {
                    used = true;
                    t->deferred[r] &= t->deferred[u];
                }
        t->deferred[r] &= used;
    }
}

void tiles_analyse(Tiles *t)
{
    const Plan *p = t->p;

    for (int i = 0; i < t->k->nnodes; i++)
        t->has[t->k->node[i]] = 1;
    for (Ref r = 1; r < t->g->len; r++) {
        t->pre[r] = is_constant(t, &t->g->n[r]);
        t->stored_here[r] = plan_keeps(p, t->at, r);
        t->kept[r] = t->stored_here[r];
        t->out->keeps |= t->stored_here[r];
    }
    for (int i = 0; i < t->g->nout; i++) {
        Ref r = t->g->out[i].node;
        t->out_here[i] = t->has[r] && !had_before(t, r);
        t->kept[r] |= t->out_here[i];
    }
    for (int s = 0; s < t->g->nst; s++)
        t->state[s] = -1;
    find_deferred(t);
    find_precision(t, t->precision);
    find_readers(t, t->wide, t->factor);
}

int cuda_rank(const Graph *g)
{
    int most = 1;

    for (int i = 0; i < g->nin; i++)
        most = g->in[i].rank > most ? g->in[i].rank : most;
    for (int i = 0; i < g->nout; i++)
        most = g->out[i].rank > most ? g->out[i].rank : most;
    for (int i = 0; i < g->nst; i++)
        most = g->st[i].rank > most ? g->st[i].rank : most;
    return most;
}

/* ---- its acts ---- */

static bool has_own_place(const Tiles *t, Ref r)
{
    int op = t->g->n[r].op;

    return op_is(op, MULTIPLIES | RECURS | OF_MOST) || op == OP_sum;
}

static bool at_hand_from(Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];
    double x;

    if (!r || t->done[r] || t->seen[r] == t->stamp || constant_of(t, r, &x))
        return true;
    t->seen[r] = t->stamp;
    if (!t->has[r] || n->op == OP_input)
        return true;
    bool all = !has_own_place(t, r);
    for (int i = 0; i < 4 && all; i++)
        all = at_hand_from(t, n->a[i]);
    return all;
}

bool at_hand(Tiles *t, Ref r)
{
    t->stamp++;
    return at_hand_from(t, r);
}

/* Sums that need nothing else: what they read is free the sooner. */
static void take_sums(Tiles *t, int deferred)
{
    for (Ref r = 1; r < t->g->len; r++) {
        const Node *n = &t->g->n[r];
        if ((n->op == OP_dot || n->op == OP_sum) && t->has[r] && !t->done[r]
            && t->deferred[r] == deferred && !(n->axes & (n->axes - 1))
            && at_hand(t, n->a[0]) && at_hand(t, n->a[1]))
            need(t, r);
    }
}

/* What r needs, then r: a result is done before the next is begun, so that
 * little has to stay live. */
static void visit(Tiles *t, Ref r, int deferred, uint8_t *seen)
{
    double x;

    if (!r || seen[r] || !t->has[r])
        return;
    seen[r] = 1;
    for (int i = 0; i < 4; i++)
        visit(t, t->g->n[r].a[i], deferred, seen);
    if (t->deferred[r] != deferred)
        return;
    if (has_own_place(t, r) || t->kept[r] || is_next(t, r)) {
        need(t, r);
        take_sums(t, deferred);
    }
    if (t->kept[r] && constant_of(t, r, &x))
        emit_keep(t, r);
}

static void make_acts(Tiles *t)
{
    uint8_t *seen = ctx_alloc(t->c, t->g->len);

    for (int s = 0; s < t->g->nst; s++)
        if (t->k->states & STATE(s))
            emit_state_in(t, s);
    for (int s = 0; s < t->g->nst; s++)
        if (t->state[s] >= 0 && t->kept[t->g->st[s].node])
            emit_keep(t, t->g->st[s].node);
    for (int deferred = 0; deferred < 2; deferred++) {
        memset(seen, 0, t->g->len);
        for (int i = 0; i < t->g->nout; i++)
            if (t->out_here[i])
                visit(t, t->g->out[i].node, deferred, seen);
        for (Ref r = 1; r < t->g->len; r++)
            if (t->stored_here[r] || is_next(t, r))
                visit(t, r, deferred, seen);
    }
    emit_carry(t);
    for (int s = 0; s < t->g->nst && t->m->chunk == 1; s++)
        if (t->state[s] >= 0)
            emit_state_kept(t, s);
    for (int s = 0; s < t->g->nst; s++)
        if (t->state[s] >= 0)
            emit_state_out(t, s);
    tiles_order(t);
}

/* ---- its text ---- */

void put_comment(const Tiles *t, Buf *b)
{
    static const char *const kind[] = { "token", "forward", "reverse" };
    size_t line = b->len;

    buf_printf(b, "// %s (%s), %.0f bytes a chunk and head predicted:",
               t->k->name, kind[t->k->kind], t->k->bytes);
    for (int i = 0; i < t->k->nnodes; i++) {
        if (b->len - line > 70) {
            line = b->len;
            buf_printf(b, "\n//");
        }
        buf_printf(b, " %%%u", (unsigned)t->k->node[i]);
    }
    buf_printf(b, "\n");
}

static void put_head(const Tiles *t, Buf *b)
{
    buf_printf(b, "extern \"C\" __global__ void __launch_bounds__(THREADS, %d)"
               " %s(const __grid_constant__ Args%d a)\n{\n",
               blocks_together(t), t->out->name, t->at);
}

static void put_rows(const Tiles *t, Buf *b)
{
    buf_printf(b, "const int n = (int)min(q.len - at * %d, (i64)%d);\n"
               "const i64 token = q.start + at * %d;\n", t->m->chunk,
               t->m->chunk, t->m->chunk);
}

void put_chunk(const Tiles *t, Buf *b)
{
    if (reloads(t)) {
        put_reloaded_chunk(t, b);
    } else {
        put_rows(t, b);
        const int64_t bytes[] = { t->m->kept.bytes, t->m->later };
        for (int i = 0; i < 2; i++) {
            const char *name = i ? "later" : "stored";
            if (bytes[i])
                buf_printf(b, "char *const %s = global(a.run.%s) + ((slot + at)"
                           " * a.run.heads + head) * %lldll;\n", name, name,
                           (long long)bytes[i]);
        }
    }
    buf_printf(b, "(void)n;\n(void)token;\n");
}

static void begin_item(const Tiles *t, Buf *b)
{
    buf_printf(b, "NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items;"
               " item += blocks_here()) {\n"
               "const int block = (int)(item %% %d);\n"
               "const i64 part = divided(item / %d, a.run.heads);\n"
               "const int head = (int)(item / %d - part * a.run.heads);\n",
               t->out->blocks, t->out->blocks, t->out->blocks);
    if (t->out->follows)
        buf_printf(b, "follow();\n");
    if (t->k->kind == K_TOKEN)
        buf_printf(b, "const i64 s = find_sequence(a.run, part, %d);\n",
                   t->m->chunk);
    else
        buf_printf(b, "const i64 s = part;\n");
    if (t->m->chunk == 1)
        buf_printf(b, "const i64 own = state_entry(a.pages, s, -1);\n"
                   "if (own < 0)\ncontinue;\n");
    buf_printf(b, "const Sequence q = sequence(a.run, s);\n"
               "const i64 slot = first_slot(a.run, s, %d);\n(void)block;\n"
               "(void)slot;\n", t->m->chunk);
}

/* Chunk m's inputs on their way. */
static void put_ahead(Tiles *t, Buf *b, const char *m)
{
    buf_printf(b, "if (%s < chunks) {\nconst i64 at = %s%s;\n", m,
               t->k->kind == K_REVERSE ? "chunks - 1 - " : "",
               t->k->kind == K_REVERSE ? ctx_format(t->c, "(%s)", m) : m);
    put_rows(t, b);
    buf_printf(b, "(void)n;\n(void)token;\n");
    print_inputs(t, b, m, true);
    buf_printf(b, "}\ncopy_commit();\n");
}

/* The head of a walk over chunks; left open. */
static void put_turn(const Tiles *t, Buf *b)
{
    const char *at = chunk_text(t, "chunks", "m");

    buf_printf(b, "NO_UNROLL for (i64 m = 0; m < chunks; m++) {\n");
    if (reloads(t))
        put_lazy(b, "i64", "at", at);
    else
        buf_printf(b, "const i64 at = %s;\n", at);
}

/* acts: what is done in a chunk. */
static void put_walk(Tiles *t, Buf *b, const Buf *acts)
{
    bool token = t->k->kind == K_TOKEN;

    if (token) {
        buf_printf(b, "const i64 at = part - slot;\n"
                   "if (at < 0 || at * %d >= q.len)\ncontinue;\n",
                   t->m->chunk);
    } else {
        buf_printf(b, "const i64 chunks = (q.len + %d) / %d;\n",
                   t->m->chunk - 1, t->m->chunk);
    }
    put_item_parts(t, b);
    if (puts_item(t))
        put_item(t, b);
    if (!token && t->ahead)
        put_ahead(t, b, "0");
    buf_printf(b, "{\nconst int n = %d;\n(void)n;\n", t->m->chunk);
    print_acts(t, b, BEFORE);
    buf_printf(b, "}\ncopy_wait<0>();\n__syncthreads();\n");
    if (token)
        buf_printf(b, "{\n");
    else if (in_parts(t))
        buf_printf(b, "NO_UNROLL while (known->m < known->last) {\n");
    else
        put_turn(t, b);
    if (!token && t->ahead) {
        put_ahead(t, b, "m + 1");
        print_inputs(t, b, "m", false);
        buf_printf(b, "copy_wait<1>();\n__syncthreads();\n");
    }
    buf_put(b, acts->s, acts->len);
    if (!token && in_parts(t))          /* all have read it */
        buf_printf(b, "__syncthreads();\nif (TID == 0)\n"
                   "known->m = known->m + 1;\n");
    buf_printf(b, "__syncthreads();\n}\n{\n");
    print_acts(t, b, AFTER);
    buf_printf(b, "}\n");
    if (puts_item(t))
        end_item(b);
    buf_printf(b, "__syncthreads();\n}\n}\n");
}

Tiles *tiles_new(Ctx *c, const Plan *p, const CudaOptions *o, CudaModule *m,
                 int kernel)
{
    static const char *const kind[] = { "token", "forward", "reverse" };
    Tiles *t = ctx_alloc(c, sizeof *t);
    size_t n = p->g->len;

    *t = (Tiles){ .c = c, .p = p, .k = &p->kernel[kernel], .g = p->g, .o = o,
                  .slice_axis = -1, .m = m, .out = &m->kernel[kernel],
                  .at = kernel,
                  .chunk = m->chunk > 1 ? (m->chunk + 15) / 16 * 16 : 1 };
    t->has = ctx_alloc(c, n);
    t->pre = ctx_alloc(c, n);
    t->kept = ctx_alloc(c, n);
    t->done = ctx_alloc(c, n);
    t->deferred = ctx_alloc(c, n);
    t->stored_here = ctx_alloc(c, n);
    t->wide = ctx_alloc(c, n);
    t->factor = ctx_alloc(c, n);
    t->spot = ctx_alloc(c, n * sizeof *t->spot);
    t->twin = ctx_alloc(c, n * sizeof *t->twin);
    for (size_t r = 0; r < n; r++)
        t->twin[r].tile = -1;
    t->busy = ctx_alloc(c, n);
    t->seen = ctx_alloc(c, n * sizeof *t->seen);
    t->precision = ctx_alloc(c, n);
    snprintf(t->out->name, sizeof t->out->name, "k%d_%s", kernel,
             kind[t->k->kind]);
    t->out->threads = m->threads;
    t->out->walk = t->k->kind == K_TOKEN ? CUDA_CHUNKS : CUDA_SEQUENCES;
    return t;
}

void tiles_print(Tiles *t, Buf *to)
{
    Buf acts = { .ctx = t->c }, b = { .ctx = t->c };

    make_acts(t);
    t->parts = parts_of(t);
    tiles_place(t);
    print_acts(t, &acts, WITHIN);
    put_comment(t, &b);
    buf_printf(&b, "struct Args%d { Run run; Tensor t[%d];%s };\n", t->at,
               t->out->ntensors + !t->out->ntensors,
               t->m->chunk == 1 ? " Pages pages;" : "");
    const uint8_t *uses = put_parts(t, &b, &acts);
    put_head(t, &b);
    t->out->follows = t->m->chunk == 1 && t->o->arch >= 90 && !t->out->spill;
    if (t->out->follows)
        buf_printf(&b, "let_follow();\n");
    declare_tiles(t, &b, uses);
    put_clear(t, &b);
    put_args_copy(t, &b);
    begin_item(t, &b);
    put_walk(t, &b, &acts);
    source_indent(to, b.s);
}
