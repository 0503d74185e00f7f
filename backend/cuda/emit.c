/* emit.c -- a plan as CUDA C++ for Hopper: wgmma, TMA, and roles taken from
 * the graph.
 *
 * A block walks one sequence of one head, 64 tokens a chunk, and keeps 64 or
 * 128 values of the state's row axis (the axis that reads leave, v) in the
 * registers of one or two warpgroups. Who computes a node follows from what
 * it depends on and from its axes, never from a variant's name:
 *
 *   node                          role               lives in
 *   input [i x], and that of      load warp (TMA)    tile(s) of the stage:
 *   the token before                                 64 x 64, swizzled
 *   [] and [i], no other state    vector warp        registers, 2 tokens a
 *   than []                                          lane; published to the
 *                                                    stage where others read
 *   [i] made of matrices          ahead warpgroup    published likewise
 *   [i x] computed, no state      ahead warpgroup    tile(s) of the stage
 *   [k], no state                 ahead warpgroup    a row of the stage
 *   [i k] running sums, and       ahead warpgroup    float32, scratch of its
 *   states of one axis                               own; a row before the
 *                                                    first token
 *   [i j], no state               ahead warpgroup    fragment, rows i; then
 *                                                    packed to a stage tile;
 *                                                    inverted for a solve
 *   depends on a state: [v x]     state warpgroups   fragment, rows v
 *   output [i v]                  store warp (TMA)   one or two buffers
 *
 * The serial set is computed transposed: with the state's rows as the rows of
 * the fragment, the state is both accumulator and, packed, the register
 * operand, and never leaves its warpgroup. The other operand comes from the
 * stage: a tile is stored [token][x], so it is read along K where x is
 * contracted and across K where the tokens are; a score [i][j] along j. A
 * value [i v] that is loaded is transposed on its way into registers
 * (ldmatrix.trans), which is the layout of a fragment and of an operand.
 *
 * Vectors in a product (`beta * k`, `exp(G_C - G) v`) never touch a matrix in
 * memory: peel() takes them off the operands. One that scales a contracted
 * token goes onto the register operand, any other onto the result's columns.
 *
 * Where a token has several rows (emit_rank.c), a chunk has so much fewer
 * tokens; a vector or a matrix without ranks is the same in all of a token's
 * rows, and a loaded one, compact, is spread to them where a product reads it.
 *
 * A chunk passes through a ring of stages:
 *
 *   load warp     wait empty, TMA                     -> loaded
 *   vector warp   wait empty, publish, wait loaded,
 *                 clear rows past the end             -> ready
 *   ahead         wait ready, scores to the stage     -> scored
 *   state         wait scored, everything else        -> filled, empty
 *   store warp    wait filled, TMA; consents by one
 *                 more arrival on a later `scored`
 *
 * so each role waits once a chunk. Where there is much to do ahead and the
 * registers are there, two warpgroups do it: every other chunk each; or, beside
 * two state warpgroups, as a team, a half of every chunk each
 * (emit_computed.c); or, with gates per key where there is no room for two
 * chunks, both at each (emit_joint.c). A block may own only a part of a
 * sequence: it then scans the state over the chunks before it, with the acts
 * that the state alone needs, and loads and makes only what those read; no
 * block waits for another. Rows past a sequence's end are zero in every tile
 * and end every cumulative sum; they are not stored.
 *
 * The ahead warpgroup's files: emit_ahead.c, matrices and scores; emit_gate.c,
 * gates per key, with what they make of matrices, of scores and of the state's
 * columns; emit_chain.c and emit_rotation.c, states of one axis;
 * emit_deferred.c, values a token that are made of matrices; emit_first.c, what
 * rounding cuts off, where it shows. emit_delay.c: inputs of the token before;
 * emit_rank.c: several ranks a token, before all else; emit_keep.c: the states
 * before each chunk, where the way back wants them; emit_reuse.c: memory that
 * is spared for one stage more; emit_registers.c: a role's registers.
 */
#include "emit.h"
#include "../../compiler/cost.h"
#include "../../compiler/schedule/opening.h"
#include "../../compiler/schedule/schedule.h"

#include <stdio.h>
#include <string.h>

/* ---- what is computed here ---- */

static void mark(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    if (e->uses[r]++)
        return;
    for (int i = 0; i < 4; i++)
        if (n->a[i] && e->mine[r])
            mark(e, n->a[i]);
}

static void mark_live(Emit *e)
{
    const Graph *g = e->g;
    for (int i = 0; i < e->k->nnodes; i++)
        e->mine[e->k->node[i]] = 1;
    for (int i = 0; i < g->nst; i++)
        if (e->k->states >> i & 1)
            mark(e, g->st[i].next);
    for (int i = 0; i < g->nout; i++)
        if (g->out[i].node && e->mine[g->out[i].node])
            mark(e, g->out[i].node);
}

/* States of two axes are the state warpgroups'; the others that are left must
 * have found a place. */
static void find_serial(Emit *e)
{
    for (int i = 0; i < e->g->nst; i++) {
        AxisSet a = e->g->st[i].axes;
        if (e->k->states >> i & 1 && a & (a - 1) && !is_previous(e, i))
            e->serial |= STATE(i);
    }
}

static void check_carried(Emit *e)
{
    for (int i = 0; i < e->g->nst; i++) {
        StateSet bit = STATE(i);
        bool found = !(e->k->states & bit) || e->serial & bit
                  || is_previous(e, i) || e->vector[e->g->st[i].node];
        for (int t = 0; t < e->nrotations; t++)
            found |= e->rotation[t].state == i;
        for (int t = 0; t < e->nchains; t++)
            found |= e->chain[t].state == i;
        if (!found)
            no_place(e, e->g->st[i].node, "a state of other axes than the"
                     " state's rows and one more");
    }
}

/* The row axis is what a read of the state leaves. */
static int find_row_axis(Emit *e)
{
    const Graph *g = e->g;
    for (Ref r = 1; r < g->len; r++) {
        if (!e->uses[r] || g->n[r].op != OP_dot)
            continue;
        for (int i = 0; i < 2; i++) {
            Product p;
            peel(e, g->n[r].a[i], &p);
            AxisSet rest = g->n[p.core].axes & ~g->n[r].over;
            if (p.core && g->n[p.core].op == OP_state && rest
                && !(rest & (rest - 1)))
                return lowest(rest);
        }
    }
    ctx_refuse(e->c, e->no, ERR_USER, g->line,
               "the CPU backend runs every plan", "no place on the GPU yet for"
               " a kernel that reads no state of two axes");
}

/* ---- what stands around the state's acts ---- */

static int state_tensor(Emit *e, int state, CudaArgKind kind)
{
    CudaKernel *k = e->out;
    k->tensor[k->ntensors] = cuda_arg(kind, state, F32);
    return k->ntensors++;
}

static void frame_state(Emit *e, Buf *b, int i, bool load)
{
    const Graph *g = e->g;
    int cols = lowest(g->st[i].axes & ~AXIS(e->row_axis));
    int n = padded(g->axis[cols].size) / 2;
    if (load)
        buf_printf(b, "float s%d[%d];\nu32 s%d_packed[%d];\n", i, n, i,
                   n / 2);
    else                                /* before any use behind the loop */
        buf_printf(b, "wgmma_wait<0>();\nkeep(s%d);\n", i);
    if (!load && e->out->split)
        buf_printf(b, "if (last == chunks_of(where))\n");
    buf_printf(b, "%s_state<%d>(s%d, a.tensor[%d], %s, head, at, row0 + "
               "64 * %s, %d);\n", load ? "load" : "store",
               (int)g->axis[cols].size, i,
               state_tensor(e, i, load ? ARG_STATE : ARG_NEXT),
               load ? "seq" : "place(fresh(blockIdx.x)) / a.heads",
               load ? "group" : "fresh(group)",
               (int)g->axis[e->row_axis].size);
}

static void frame_states(Emit *e, Buf *b, bool load)
{
    for (int i = 0; i < e->g->nst; i++)
        if (e->serial >> i & 1)
            frame_state(e, b, i, load);
}

static void pack_states(Emit *e, Buf *b)
{
    for (int i = 0; i < e->g->nst; i++)
        if (e->serial >> i & 1)
            buf_printf(b, "pack(s%d_packed, s%d);\nkeep(s%d_packed);\n", i,
                       i, i);
}

static void frame_outputs(Emit *e, Buf *b)
{
    const Graph *g = e->g;
    for (int i = 0; i < g->nout; i++)
        if (g->out[i].node && e->mine[g->out[i].node])
            buf_printf(b, "u32 y%d[16];\n", i);
    buf_printf(b, "auto store_outputs = [&](u32 c) {\n");
    if (e->tight)
        buf_printf(b, "if (c >= BUFFERS)\nwait(drained + 8 * (c %% BUFFERS), "
                   "c / BUFFERS - 1 & 1);\n");
    for (int i = 0; i < g->nout; i++)
        if (g->out[i].node && e->mine[g->out[i].node])
            buf_printf(b, "write_transposed(base + OUTPUT_%d + (BUFFERS * "
                       "group + c %% BUFFERS) * 8192, y%d, at);\n", i, i);
    buf_printf(b, "fence_async();\narrive(filled + 8 * (c %% BUFFERS));\n"
               "};\n");
}

/* ---- the kernel ---- */

static void put_args(Emit *e, Buf *b)
{
    buf_printf(b, "struct Args {\nTensorMap map[%d];\nTensor tensor[%d];\n"
               "const Sequence *seq;\ni64 tokens;\nchar *kept;\n"
               "int heads, blocks, segments, bound[5];\nint group[%d];\n};\n",
               e->out->nmaps, e->out->ntensors, CUDA_MAPS);
}

static void put_barriers(Emit *e, Buf *b)
{
    int team = e->team || e->joint ? 2 : 1;
    buf_printf(b, "const u32 loaded = base + BARRIERS, empty = loaded + 8 * "
               "STAGES,\nready = empty + 8 * STAGES, scored = ready + 8 * "
               "STAGES,\nfilled = scored + 8 * STAGES, drained = filled + 16"
               ",\ncomputed = drained + 16, shared = computed + 8 * STAGES;\n"
               "if (threadIdx.x == 0) {\n"
               "for (int i = 0; i < STAGES; i++) {\n"
               "barrier_init(loaded + 8 * i, 1);\n"
               "barrier_init(empty + 8 * i, %d);\n"
               "barrier_init(ready + 8 * i, 32);\n"
               "barrier_init(computed + 8 * i, %d);\n"
               "barrier_init(shared + 8 * i, 1);\n"
               "barrier_init(scored + 8 * i, %d);\n}\n"
               "for (int i = 0; i < 2; i++) {\n"
               "barrier_init(filled + 8 * i, %d);\n"
               "barrier_init(drained + 8 * i, 1);\n}\n"
               "barrier_init_fence();\n}\n%s();\n",
               128 * e->groups * (e->paired ? 2 : 1), 128 * team,
               128 * team + !e->tight, 128 * e->groups,
               e->paired ? "pair_sync" : "__syncthreads");
}

static void put_head(Emit *e, Buf *b)
{
    bool split = e->out->split;
    buf_printf(b, "extern \"C\" __global__ void %s__launch_bounds__(%d, 1)\n"
               "%s(const __grid_constant__ Args a)\n{\n"
               "extern __shared__ unsigned char raw[];\n"
               "const u32 base = (shared_address(raw) + 1023) & ~1023u;\n"
               "const int block = blockIdx.x %% a.blocks;\n"
               "auto place = [&](u32 b) { return b / a.blocks%s; };\n"
               "const int head = place(blockIdx.x) %% a.heads;\n"
               "const int seq = place(blockIdx.x) / a.heads;\n"
               "const int row0 = %d * block;\n"
               "const Rows where = rows_in(a.seq ? a.seq[seq] : "
               "Sequence { seq, 0, 0, a.tokens });\n",
               e->paired ? "__cluster_dims__(2, 1, 1) " : "",
               e->out->threads, e->out->name, split ? " / a.segments" : "",
               64 * e->groups);
    if (split)
        buf_printf(b, "const int segment = blockIdx.x / a.blocks %% a.segments;"
                   "\nconst i64 chunks = (where.len + 63) / 64;\n"
                   "const int first = (int)(chunks * a.bound[segment] >> 12);\n"
                   "const int last = (int)(chunks * a.bound[segment + 1] >> 12)"
                   ";\n");
    else
        buf_printf(b, "const int first = 0, last = (where.len + 63) / 64;"
                   "\n");
    put_barriers(e, b);
}

static void put(Buf *b, const Buf *x)
{
    if (x->len)
        buf_put(b, x->s, x->len);
}

/* A role's registers: more or fewer than all start with. */
static void put_registers(Emit *e, Buf *b, int n)
{
    buf_printf(b, "%s_registers<%d>();\n",
               n > registers_at_start(e) ? "more" : "fewer", n);
}

static void put_io_role(Emit *e, Buf *b)
{
    buf_printf(b, "if (threadIdx.x < 128) {\n");
    put_registers(e, b, registers_of(e).io);
    buf_printf(b, "const int warp = threadIdx.x >> 5, lane = threadIdx.x & "
               "31;\n"
               "Ring<STAGES> pos;\n"
               "if (warp == 0 && lane == 0) {\n");
    put(b, &e->load);
    buf_printf(b, "} else if (warp == 1) {\n"
               "const u32 inputs = base + INPUTS;\n");
    put(b, &e->vec);
    buf_printf(b, "} else if (warp == 2) {\n");
    put(b, &e->store);
    buf_printf(b, "}\n");
}

static void put_places(Buf *b)
{
    buf_printf(b, "const u32 stage = base + pos.stage * STAGE_BYTES;\n"
               "const u32 vectors = base + VECTORS + pos.stage * "
               "VECTOR_BYTES;\n");
}

/* The loop of the state, over the chunks that it scans or over its own. Its
 * first wait is for all products, though none is in flight: ptxas serialises
 * otherwise (C7517). */
static void put_stage(Buf *b, bool scan)
{
    buf_printf(b, "NO_UNROLL for (int c = %s; c < %s; c++, pos.next()) {\n",
               scan ? "0" : "first", scan ? "first" : "last");
    put_places(b);
}

/* A thread's place, for every chunk of a warpgroup in turn, where registers
 * were spilled; of a wide state without gates in one of the attempts alone:
 * what spills then is not what does with a narrow one. */
static bool is_recomputed(const Emit *e)
{
    bool either = e->ngates || !has_wide_state(e);
    return either ? e->o->attempt > 0 : e->o->attempt == 1;
}

/* A loop of an ahead warpgroup; two alternate, if they are no team. */
static void put_alternating(Emit *e, Buf *b, const char *until)
{
    bool two = e->aheads == 2 && !e->team && !e->joint;
    buf_printf(b, "NO_UNROLL for (; c < %s; c += %d, pos.next()%s) {\n",
               until, 1 + two, two ? ", pos.next()" : "");
    put_places(b);
    if (two && is_recomputed(e))        /* registers are few */
        buf_printf(b, "const Lane at = lane_of(fresh((int)threadIdx.x));\n"
                   "const int i0 = at.row, i1 = i0 + 8;\n");
    buf_printf(b, "const int rows = rows_of(where, c);\n"
               "wait(ready + 8 * pos.stage, pos.phase);\n");
}

/* Of a chunk before the segment's own: what a scan needs. */
static void put_skip(Emit *e, Buf *b)
{
    put(b, &e->skip);
    buf_printf(b, "fence_async();\narrive(computed + 8 * pos.stage);\n");
}

/* Its chunks: those of a mere scan in a loop of their own, if both kinds have
 * nothing in common. */
static void put_ahead_chunks(Emit *e, Buf *b)
{
    bool one = e->both.len, split = e->out->split;
    if (split && !one) {
        put_alternating(e, b, "first");
        put_skip(e, b);
        buf_printf(b, "}\n");
    }
    put_alternating(e, b, "last");
    buf_printf(b, "wgmma_wait<0>();\n");
    if (one && e->keep.len)
        buf_printf(b, "if (c >= first) {\n%s}\n", e->keep.s);
    else
        put(b, &e->keep);
    put(b, &e->both);
    if (one) {
        buf_printf(b, "if (c < first) {\n");
        put_skip(e, b);
        buf_printf(b, "continue;\n}\n");
    }
    put(b, &e->ahead);
    buf_printf(b, "fence_async();\narrive(scored + 8 * pos.stage);\n}\n");
}

static void put_ahead_role(Emit *e, Buf *b)
{
    bool two = e->aheads == 2 && !e->team && !e->joint;
    bool own = two || e->team;          /* scratch */
    const char *which = two ? "parity" : "member";
    buf_printf(b, "} else if (threadIdx.x < %d) {\n",
               128 * (1 + e->aheads));
    put_registers(e, b, registers_of(e).ahead);
    buf_printf(b, e->joint ? "Lane at = joint_lane();\nint"
               : "const Lane at = lane_here();\nconst int");
    buf_printf(b, " i0 = at.row, i1 = i0 + 8;\nRing<STAGES> pos;\n");
    if (own)
        buf_printf(b, "const int %s = %s(threadIdx.x >> 7) - 1;\n%s", which,
                   e->team || e->paired || is_recomputed(e)
                   ? "uniform" : "", two
                   ? "if (parity)\npos.next();\n" : "");
    buf_printf(b, "const u32 scratch = base + SCRATCH%s;\nint c = %s;\n",
               own ? ctx_format(e->c, " + %s * SCRATCH_BYTES", which) : "",
               two ? "parity" : "0");
    put(b, &e->begin);
    put_ahead_chunks(e, b);
    put(b, &e->end);
}

/* `scored` is used from chunk `first` on: its phase counts from there. */
static void put_state_role(Emit *e, Buf *b)
{
    bool split = e->out->split;
    buf_printf(b, "} else {\n");
    put_registers(e, b, registers_of(e).state);
    buf_printf(b, "const Lane at = lane_here();\n");
    if (e->groups == 1)
        buf_printf(b, "const int group = 0;\n");
    else
        buf_printf(b, "const int group = (threadIdx.x >> 7) - %d;\n",
                   1 + e->aheads);
    buf_printf(b, "Ring<STAGES> pos;\n");
    frame_outputs(e, b);
    frame_states(e, b, true);
    if (split) {
        put_stage(b, true);
        buf_printf(b, "wait(computed + 8 * pos.stage, pos.phase);\n"
                   "wgmma_wait<0>();\n");
        put(b, &e->scan);
        buf_printf(b, "}\n");
    }
    pack_states(e, b);
    put_stage(b, false);
    keep_serial(e, b);
    buf_printf(b, "wait(scored + 8 * pos.stage, %s);\nwgmma_wait<0>();\n",
               split ? "(c - first) / STAGES & 1" : "pos.phase");
    put(b, &e->state);
    buf_printf(b, "if (AT_ONCE)\nstore_outputs(c - first);\n}\n");
    if (!e->tight)
        buf_printf(b, "if (last - first >= 3)\nwait(drained, 0);\n");
    buf_printf(b, "if (!AT_ONCE && last > first)\n"
               "store_outputs(last - first - 1);\n");
    frame_states(e, b, false);
    buf_printf(b, e->paired ? "}\npair_sync();\n}\n" : "}\n}\n");
}

static Emit *emit_new(Ctx *c, const Plan *p, int kernel, int groups, int ranks,
                      bool team, const CudaOptions *o, CudaKernel *out)
{
    static const char *const kind[] = { "token", "forward", "reverse" };
    const Kernel *k = &p->kernel[kernel];
    Emit *e = ctx_alloc(c, sizeof *e);
    e->c = c;
    e->p = p;
    e->k = k;
    e->g = p->g;
    e->o = o;
    e->groups = groups;
    e->team = team;
    e->ranks = ranks;
    e->out = out;
    memset(out, 0, sizeof *out);
    out->ranks = ranks;
    snprintf(out->name, sizeof out->name, "k%d_%s", kernel, kind[k->kind]);
    e->mine = ctx_alloc(c, p->g->len);
    e->vector = ctx_alloc(c, p->g->len);
    e->uses = ctx_alloc(c, p->g->len * sizeof *e->uses);
    e->load.ctx = e->vec.ctx = e->ahead.ctx = e->state.ctx = c;
    e->scan.ctx = e->store.ctx = e->begin.ctx = c;
    e->both.ctx = e->skip.ctx = e->keep.ctx = e->end.ctx = c;
    return e;
}

static Emit *emit_again(const Emit *e, bool team)
{
    Emit *to = emit_new(e->c, e->p, (int)(e->k - e->p->kernel), e->groups,
                        e->ranks, team, e->o, e->out);
    to->no = e->no;
    return to;
}

/* What the state's warpgroups write is joined of several ranks. */
static bool joins_ranks(const Emit *e)
{
    bool joins = false;
    for (Ref r = 1; r < e->g->len; r++)
        joins |= e->uses[r] && e->g->n[r].op == OP_cat
              && e->g->n[r].axes & AXIS(e->row_axis);
    return joins;
}

/* Two state warpgroups leave too few registers for a wide delta rule that has
 * gates per key, or a state per key, or several steps a token. */
static bool is_crowded(const Emit *e)
{
    return e->groups == 2 && e->inverse && has_wide_state(e)
        && (e->ngates || e->nchains || joins_ranks(e));
}

/* The roles' acts, and where everything lies; all over again where two ahead
 * warpgroups are to be a team. */
static Emit *emit_roles(Emit *e, Buf *room)
{
    mark_live(e);
    find_serial(e);
    e->row_axis = find_row_axis(e);
    e->out->row_axis = e->row_axis;
    e->out->blocks = (e->g->axis[e->row_axis].size + 64 * e->groups - 1)
                   / (64 * e->groups);
    use_scalars(e);
    emit_serial(e);
    e->out->split = e->o->split && emit_scan(e);
    emit_ahead(e);
    if (!e->team && find_team(e))
        return emit_roles(emit_again(e, true), room);
    keep_ahead(e, &e->keep);
    check_carried(e);
    emit_vectors(e);
    emit_loads(e);
    emit_layout(e, room);
    return e;
}

/* The same with both ahead warpgroups at each chunk; e if that has less room.
 */
static Emit *joined(Emit *e, Buf *room)
{
    Buf other = { .ctx = e->c };
    CudaKernel was = *e->out;
    Emit *j = emit_again(e, false);
    j->joint = true;
    emit_roles(j, &other);
    if (j->out->shared > SHARED_MAX || j->out->stages < was.stages) {
        *e->out = was;
        return e;
    }
    *room = other;
    return j;
}

/* Of a block for a chunk. Two ahead warpgroups with a chunk each hide each
 * other's waits; ranks are rows of their own. */
static double cycles_of(const Emit *e)
{
    const double hidden = 0.8;          /* kda's, measured; gdn2's two, at one
                                           chunk, take 1 */
    bool alternate = e->aheads == 2 && e->groups == 1 && !e->joint && !e->team;
    double part = e->out->halved ? half_columns() : 1;

    return part * nodes_cycles(e->g, e->k) * e->ranks
        * (alternate ? hidden : 1);
}

/* What each chunk's states take that are kept for the way back. */
static double kept_bytes(const CudaOptions *o, const Plan *p)
{
    double bytes = 0;

    for (int i = 0; i < p->g->nst && o->saves; i++)
        if (o->kept.has[i])
            bytes += tile_bytes(p->g, options_machine(o),
                                p->g->st[i].node);
    return bytes;
}

/* False if a block would need more than there is. */
static bool emit_kernel(Emit *e, Buf *to)
{
    Buf b = { .ctx = e->c };
    if (e->k->kind != K_FORWARD || e->g->chunk * e->ranks != ROWS)
        ctx_refuse(e->c, e->no, ERR_USER, e->g->line,
                   "the CPU backend runs every plan", "no place on the GPU yet"
                   " for a kernel that is not a forward walk by chunks of %d",
                   ROWS);
    Buf room = { .ctx = e->c }, body = { .ctx = e->c };
    e = emit_roles(e, &room);
    if (e->out->shared > SHARED_MAX || is_crowded(e))
        return false;
    if (can_join(e))
        e = joined(e, &room);
    e->out->threads = 128 * (1 + e->aheads + e->groups);
    e->out->halved = e->groups == 1 && e->out->blocks > 1;
    e->out->cycles = cycles_of(e);
    emit_stores(e);
    put_io_role(e, &body);
    put_ahead_role(e, &body);
    put_state_role(e, &body);
    emit_comment(e, &b);
    buf_printf(&b, "namespace in_%s {\n", e->out->name);
    put(&b, &room);
    put_args(e, &b);
    put_head(e, &b);
    put(&b, &body);
    buf_printf(&b, "}  // %s\n", e->out->name);
    source_indent(to, b.s);
    return true;
}

/* The kernel, of as many state warpgroups as there is room for. */
static void emit_fitting(Ctx *c, const Plan *p, int kernel, int ranks,
                         const CudaOptions *o, Refusal *no, CudaKernel *out,
                         Buf *b)
{
    int groups = o->attempt > 1 && o->groups > 1 ? 1 : o->groups;
    for (; groups > 0; groups--) {
        Emit *e = emit_new(c, p, kernel, groups, ranks, false, o, out);
        e->no = no;
        if (emit_kernel(e, b))
            return;
    }
    ctx_refuse(c, no, ERR_USER, p->g->line, "use smaller axes, or the CPU"
               " backend", "a block needs %d bytes of shared memory; there are"
               " %d", out->shared, SHARED_MAX);
}

static void emit_start(const CudaOptions *o, int ranks, Buf *b)
{
    buf_printf(b, "#define RANKS %d\n", ranks);
    if (o->tile == F16)
        buf_printf(b, "#define ELEMENT_F16\n");
    buf_printf(b, "#include \"numbers.cuh\"\n#include \"device.cuh\"\n"
               "#include \"vectors.cuh\"\n#include \"pair.cuh\"\n"
               "#include \"wgmma.cuh\"\n#include \"gates.cuh\"\n"
               "#include \"first.cuh\"\n"
               "#include \"inverse.cuh\"\n%s\n",
               o->saves ? "#include \"keep.cuh\"\n" : "");
}

static CudaModule *emit_all(Ctx *c, const Plan *plan, const CudaOptions *o,
                            Refusal *no)
{
    int ranks;
    const Plan *all = o->saves ? plan_forward(c, plan) : plan;
    const Plan *p = plan_by_rows(c, plan_openings(c, plan_as_printed(c, all),
                                               false), &ranks, no);
    CudaModule *m = ctx_alloc(c, sizeof *m);
    Buf b = { .ctx = c };
    if (o->tile != BF16 && o->tile != F16)
        ctx_refuse(c, no, ERR_USER, 0, NULL, "no place on the GPU yet for %s "
                   "matrices: bfloat16 or float16", dtype_name(o->tile));
    if (o->tile == F16 && leaves_float16(p))
        ctx_refuse(c, no, ERR_USER, 0, NULL, "an exponential that float16 may"
                   " not hold");
    m->nkernels = p->nkernels;
    m->kernel = ctx_alloc(c, (size_t)p->nkernels * sizeof *m->kernel);
    emit_start(o, ranks, &b);
    for (int i = 0; i < p->nkernels; i++) {
        size_t text = b.len;
        emit_fitting(c, p, i, ranks, o, no, &m->kernel[i], &b);
        m->kernel[i].text = text;
        m->kernel[i].end = b.len;
        m->kernel[i].tokens = p->g->chunk;
        m->kernel[i].moves = kernel_moves(p, i, options_machine(o))
                           + kept_bytes(o, plan);
    }
    m->source = b.s;
    return m;
}

CudaModule *cuda_emit_if(Ctx *c, const Plan *plan, const CudaOptions *o,
                         Error *why)
{
    Refusal *no = ctx_alloc(c, sizeof *no);
    if (setjmp(no->end)) {
        *why = no->why;
        return NULL;
    }
    return emit_all(c, plan, o, no);
}

CudaModule *cuda_emit(Ctx *c, const Plan *plan, const CudaOptions *o)
{
    Error why;
    CudaModule *m = cuda_emit_if(c, plan, o, &why);
    if (!m)
        ctx_raise(c, &why);
    return m;
}
