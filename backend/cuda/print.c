/* print.c -- a schedule's instructions as text, each by its template.
 *
 * A role is a branch of the kernel; in it stands the loop over items, and in
 * that the role's instructions. Fragments are arrays of registers, named
 * after their nodes; what an element-wise program makes of them lives in one
 * iteration of its loop.
 */
#include "print_parts.h"
#include "source.h"

#include <string.h>

#define HEAD                                                                \
    "#include \"numbers.cuh\"\n#include \"device.cuh\"\n"                   \
    "#include \"vectors.cuh\"\n%s"                                         \
    "#include \"gates.cuh\"\n#include \"inverse.cuh\"\n"                   \
    "#include \"run.cuh\"\n#include \"schedule.cuh\"\n"                   \
    "#include \"decays.cuh\"\n"

static const char *head_text(const Schedule *s)
{
    const KForm *const *f = s->target->form;
    const char *copies = f[FORM_COPY]->header;
    const char *products = ctx_format(s->c, "#include \"%s\"\n",
                                      f[FORM_PRODUCT]->header);
    bool wide = s->tile == F32;         /* stands on what others have */
    bool engine = f[FORM_COPY]->waited || f[FORM_PRODUCT]->waited;
    return ctx_format(s->c, "%s%s%s%s%s#define RANKS %d\n%s" HEAD "%s%s%s%s",
                      s->memory == F16 ? "#define ELEMENT_F16\n" : "",
                      wide ? "#define ELEMENT_F32\n" : "",
                      engine ? "" : "#define NO_ENGINE\n",
                      f[FORM_COPY]->piece ? "" : "#define ANYWHERE\n",
                      s->g->chunk == TILE_ROWS ? "" : ctx_format(s->c,
                      "#define CHUNK_ROWS %d\n", s->g->chunk),
                      rows_of_token(s->g), ranks_of_token(s->g)
                      == rows_of_token(s->g) ? "" : ctx_format(s->c,
                      "#define RANKS_STORED %d\n", ranks_of_token(s->g)),
                      wide ? "" : products,
                      wide ? products : "", s->rests
                      ? "#include \"rests.cuh\"\n" : "", !*copies
                      ? "" : ctx_format(s->c, "#include \"%s\"\n", copies),
                      !s->paired ? "" : ctx_format(s->c, "#include \"%s\"\n",
                                                   f[FORM_SHARE]->header));
}

static bool posts(const KInst *k)
{
    return k->post_full || k->post_empty;
}

/* ---- the matrix role ---- */

/* Whether the walk carries it from chunk to chunk, or leaves it to the next. */
static bool is_carried(const Print *p, int value)
{
    for (int i = 0; i < p->s->ninsts; i++) {
        const KInst *k = &p->s->inst[i];
        if ((k->op == K_BEGIN && k->nout && k->out[0] == value)
            || (k->deferred && k->in[0] == value))
            return true;
    }
    return false;
}

/* Those that are carried, or that are not: nothing is to keep these from one
 * iteration of the loop to the next. */
static void put_fragments(Print *p, KRole role, bool carried)
{
    for (int i = 0; i < p->s->nvalues; i++) {
        const KValue *v = value_at(p, i);
        if (is_carried(p, i) != carried)
            continue;
        if (v->layout == LAY_FRAGMENT && v->alias == NOTHING
            && v->ahead == (role == KR_AHEAD))
            buf_printf(p->b, "float f%u[%d];\n", (unsigned)v->node,
                       fragment_regs(p->s, v));
        if (v->layout == LAY_PACKED && role == KR_MATRIX)
            buf_printf(p->b, "u32 p%u[%d];\n", (unsigned)v->node,
                       fragment_regs(p->s, v));
    }
}

/* Of a fragment the registers of these rows and columns. */
static const char *part_of(Print *p, const KValue *d, int row, int col,
                           int width)
{
    int share = share_of(p->s, d->ahead ? KR_AHEAD : KR_MATRIX, d->ncol);
    if (rows_of_group(p->s, d->ahead ? KR_AHEAD : KR_MATRIX, d->nrow)
        <= TILE_ROWS && width == share)
        return fragment_name(p, d->node);
    return ctx_format(p->c, "registers<%d>(%s, %d)", width / 2,
                      fragment_name(p, d->node), row / TILE_ROWS * share / 2
                      + col / 2);
}

/* Where slots are counted by rings ptxas has their places in uniform registers:
 * operands are stepped as a whole. */
static const char *steps_text(const Print *p)
{
    return walks_behind(p->s) ? ", 1" : "";
}

/* The left factor in registers; it may be waited for by itself. */
static void put_packed_product(Print *p, const KInst *k)
{
    const KValue *a = value_at(p, k->in[0]), *b = value_at(p, k->in[1]);
    const KValue *d = value_at(p, k->out[0]);
    if (k->nin > 2)
        buf_printf(p->b, "keep(%s);\n", fragment_name(p, d->node));
    buf_printf(p->b, "wgmma_fence();\n");
    for (int at = 0, width; at < k->ncol; at += width) {
        width = 128;
        while (width > k->ncol - at)
            width /= 2;
        buf_printf(p->b, "multiply_packed<%d, %d, %d, %d%s>(%s, p%u, %s, %d,"
                   " %d);\n", k->transposed[1], (int)a->ncol / 16, k->nin > 2,
                   k->minus, steps_text(p),
                   part_of(p, d, 0, at, width), (unsigned)a->node, place(p, b),
                   rows_lying(b), at);
    }
    buf_printf(p->b, "wgmma_commit();\n");
}

/* Of a product's factors those columns that the block has made itself, or those
 * of the other one. */
static void put_half_product(Print *p, const KInst *k, bool other)
{
    const KValue *a = value_at(p, k->in[0]), *b = value_at(p, k->in[1]);
    const KValue *d = value_at(p, k->out[0]);
    int share = share_of(p->s, k->role, k->ncol);
    buf_printf(p->b, "wgmma_fence();\n");
    for (int at = 0, width; at < share; at += width) {
        width = 128;
        while (width > share - at)
            width /= 2;
        buf_printf(p->b, "multiply_tiles<0, 0, %d, %d, 0%s>(%s, %s + (%s%s)"
                   " * %d, %d, 0, %s + (%s%s) * %d, %d, col0(%d) + %d);\n",
                   (int)a->ncol / 32, other, steps_text(p),
                   part_of(p, d, 0, at, width),
                   place(p, a), half_text(p), other ? " ^ 1" : "",
                   (int)value_bytes(a) / 2, rows_lying(a), place(p, b),
                   half_text(p), other ? " ^ 1" : "", (int)value_bytes(b) / 2,
                   rows_lying(b), share, at);
    }
    buf_printf(p->b, "wgmma_commit();\n");
}

/* The product whose end is there, if half of it is still to be asked for. */
static const KInst *half_product(const Print *p, int settle)
{
    for (int i = settle; i >= 0; i--)
        if (halves_settle(p->s, i) == settle)
            return &p->s->inst[i];
    return NULL;
}

/* Whether the operand's columns run along memory's rows, and a warpgroup's
 * begin within a piece of 64: it is found only as far as that goes. */
static bool begins_within(const KInst *k, int share)
{
    return k->transposed[1] && share % TILE_COLS;
}

/* Whether both go into one fragment, and no end of the first, or of what it
 * goes on from, is waited for between them. */
static bool go_together(const Print *p, int one, int other)
{
    const Schedule *s = p->s;
    const KInst *a = &s->inst[one < other ? one : other];
    const KInst *b = &s->inst[one < other ? other : one];
    bool all = a->op == K_PRODUCT && b->op == K_PRODUCT && a->role == b->role
            && fragment_root(s, a->out[0]) == fragment_root(s, b->out[0]);
    for (const KInst *k = a; k < b && all; k++)
        all = k->op != K_SETTLE || k->role != a->role
           || !has_value(k->in, k->nin, a->out[0]);
    return all;
}

/* ptxas keeps wgmma under way only while the accumulators of one are those of
 * the next, not a part of them: it waits for each else (C7511). */
static int product_width(const Print *p, const KInst *k, int share)
{
    bool within = begins_within(k, share);
    for (int i = 0; i < p->s->ninsts && is_waited(p, FORM_PRODUCT); i++)
        within |= go_together(p, (int)(k - p->s->inst), i)
               && begins_within(&p->s->inst[i], share);
    return within ? share & -share : 128;
}

/* A fragment's columns by widths that the tensor cores have. */
static void put_product(Print *p, const KInst *k)
{
    const KValue *a = value_at(p, k->in[0]), *b = value_at(p, k->in[1]);
    const KValue *d = value_at(p, k->out[0]);
    int share = share_of(p->s, k->role, k->ncol);
    int over = k->transposed[0] ? a->nrow : a->ncol;
    int most = product_width(p, k, share);
    bool waited = is_waited(p, FORM_PRODUCT), tensor = has_tensor(p->s);
    if (tensor)
        put_tensor_begin(p, k);
    if (waited && !tensor && k->nin > 2) /* in its registers before the fence */
        buf_printf(p->b, "keep(%s);\n", fragment_name(p, d->node));
    if (waited && !tensor)
        buf_printf(p->b, "wgmma_fence();\n");
    for (int row = 0; row < k->nrow; row += TILE_ROWS) {
        const char *has = waited ? steps_text(p)
                        : k->nrow - row >= TILE_ROWS ? ""
                        : ctx_format(p->c, ", %d", (int)k->nrow - row);
        for (int at = 0, width; at < share; at += width) {
            width = most;
            while (width > 128 || width > share - at)
                width /= 2;
            const char *to = tensor
                ? tensor_place_of(p, d, row / TILE_ROWS * share + at)
                : part_of(p, d, row, at, width);
            has = tensor ? ctx_format(p->c, ", %d", width) : has;
            buf_printf(p->b, "multiply_tiles<%d, %d, %d, %d, %d%s>(%s, %s, %d,"
                       " %d, %s, %d, col0(%d) + %d);\n", k->transposed[0],
                       k->transposed[1], over / 16, k->nin > 2, k->minus, has,
                       to,
                       place(p, a),
                       rows_lying(a), row, place(p, b), rows_lying(b), share,
                       at);
        }
    }
    if (is_ordered(p->s, k->role))
        buf_printf(p->b, "wgmma_commit();\n");
}

/* By the first warpgroup; another meets as often. Who carries states has few
 * registers. What is ahead of one warpgroup is early: the tile that it writes
 * is read yet. */
static void put_inverse(Print *p, const KInst *k)
{
    const KValue *v = value_at(p, k->out[0]);
    const char *to = place(p, v), *from = place(p, value_at(p, k->in[0]));
    bool beside = warpgroups_of(p->s, k->role) > 1;
    bool waits = k->wait_empty >> v->buffer & 1;
    bool deferred = waits && k->role == KR_AHEAD && is_ordered(p->s, k->role);
    if (waits && !deferred)
        put_wait(p, v->buffer, v->use, true);
    buf_printf(p->b, beside ? "if (group == 0) {\n" : "{\n");
    const char *warp = p->s->row_axis ? "fresh(l.warp)" : "l.warp";
    buf_printf(p->b, "invert_%s(%s, %s, l.lane, %s", deferred ? "deferred"
               : k->role == KR_AHEAD ? "own" : "few", to, from, warp);
    if (deferred) {
        buf_printf(p->b, ", [&] {\n");
        put_wait(p, v->buffer, v->use, true);
        buf_printf(p->b, "}");
    }
    buf_printf(p->b, ");\n}%s\n", beside ? " else {\nbeside_invert_own();"
               : "");
    if (beside && deferred)
        put_wait(p, v->buffer, v->use, true);
    buf_printf(p->b, beside ? "}\n" : "");
    p->fence_due = true;
    if (k->post_full >> v->buffer & 1) {
        put_fence(p);
        put_post(p, v->buffer, v->use, false);
    }
}

/* ---- roles ---- */

static bool takes_chunks_round_robin(const Schedule *s, int role)
{
    return role == KR_AHEAD && s->interleave > 1;
}

/* Holds what products that have ended left, and took, in its registers. */
static void put_ended(Print *p, const KInst *k)
{
    buf_printf(p->b, "wgmma_wait<%d>();\n", k->index);
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = value_at(p, k->in[i]);
        if (p->lean && !is_computed_lean(p, k->in[i]))
            continue;
        if (v->layout == LAY_FRAGMENT)
            buf_printf(p->b, "keep(%s);\n", fragment_name(p, v->node));
        else if (v->layout == LAY_PACKED)
            buf_printf(p->b, "keep(p%u);\n", (unsigned)v->node);
    }
}

/* The block's half of what it has made goes to the other one, too, whose
 * barrier counts the bytes. Returns what else is told of. */
static uint32_t put_given(Print *p, const KInst *k)
{
    uint32_t given = 0;
    for (int i = 0; i < k->nout; i++)
        given |= value_at(p, k->out[i])->given
               ? 1u << value_at(p, k->out[i])->buffer : 0;
    given &= k->post_full;
    if (given)
        put_sync(p, (KRole)k->role);
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        if (!v->given || !(given >> v->buffer & 1))
            continue;
        int half = (int)value_bytes(v) / 2;
        const char *full = barrier(p, v->buffer, v->use, false);
        p->posted[false] |= 1u << v->buffer;
        buf_printf(p->b, "if (thread == 0) {\nconst u32 made = %s + %s *"
                   " %d;\ngive(made, made, %d, %s);\n", place(p, v),
                   half_text(p), half, half, full);
        half += put_given_rest(p, v, full);
        buf_printf(p->b, "arrive_expecting(%s, %d);\n} else {\narrive(%s);"
                   "\n}\n", full, half, full);
    }
    return k->post_full & ~given;
}

static void put_op(Print *p, const KInst *k)
{
    if (has_matrices(k->role))
        put_waits(p, k);
    if (k->op == K_SYNC)
        put_fence(p);
    switch ((KOp)k->op) {
    case K_LOAD:    put_load(p, k); return;
    case K_STORE:   (has_matrices(k->role) ? put_share : put_store)(p, k);
                    return;
    case K_VECTOR:  (k->nrow ? put_lanes : put_vectors)(p, k); return;
    case K_CLEAR:   put_cleared(p, k); break;
    case K_PRODUCT:
        if (halves_settle(p->s, (int)(k - p->s->inst)) != NOTHING) {
            put_half_product(p, k, false);
            break;
        }
        (deals_rows(p->s, k->role) ? put_packed_product : put_product)(p, k);
        break;
    case K_SETTLE:
        if (half_product(p, (int)(k - p->s->inst)))
            put_half_product(p, half_product(p, (int)(k - p->s->inst)), true);
        if (k->index != NOTHING)
            put_ended(p, k);
        else if (has_tensor(p->s))
            put_tensor_end(p, k);
        else if (is_waited(p, FORM_PRODUCT))
            buf_printf(p->b, "wgmma_commit();\nwgmma_wait<0>();\n");
        put_rests_of_ended(p, k);
        break;
    case K_MAP:     put_map(p, k); break;
    case K_INVERSE: put_inverse(p, k); return;
    case K_SCAN:    put_scan(p, k); break;
    case K_ACROSS:  put_across(p, k); break;
    case K_DECAYED:
        put_decayed(p, k);
        put_decayed_rests(p, k);
        break;
    case K_SYNC:
        put_tensor_fence(p, false);
        put_sync(p, (KRole)k->role);
        put_tensor_fence(p, true);
        break;
    case K_BEGIN:
    case K_END:     put_state(p, k); return;
    case K_CARRY:   put_carry(p, k); break;
    case K_PARTIAL:
    case K_SOLVE:
    case NKOPS:     break;
    }
    if (posts(k)) {
        if (k->post_full)
            put_fence(p);
        each_bit(p, k, put_given(p, k), false, put_post);
        put_release(p, k);
    }
}

/* What a template leaves out of what its instruction waits for and tells of is
 * a race: such a text does not compile. The copy engine tells of loads. */
static void put_inst(Print *p, const KInst *k)
{
    memset(p->waited, 0, sizeof p->waited);
    memset(p->posted, 0, sizeof p->posted);
    put_op(p, k);
    bool all = !(k->wait_full & ~p->waited[false])
            && !(k->wait_empty & ~p->waited[true])
            && !(k->post_empty & ~p->posted[true])
            && (k->op == K_LOAD || !(k->post_full & ~p->posted[false]));
    if (!all)
        buf_printf(p->b, "static_assert(false, \"what instruction %d waits for,"
                   " or tells of\");\n", (int)(k - p->s->inst));
}

/* Holds the results of the products that have ended in their registers. */
static void put_settled(Print *p, int settle)
{
    const Schedule *s = p->s;
    for (int j = settle - 1; j >= 0; j--) {
        const KInst *k = &s->inst[j];
        if (k->role != s->inst[settle].role)
            continue;
        if (k->op != K_PRODUCT)
            break;
        if (k->op == K_PRODUCT)
            buf_printf(p->b, "keep(%s);\n",
                       fragment_name(p, value_at(p, k->out[0])->node));
    }
}

/* What the program behind the end of products makes meanwhile. */
static void put_beside_products(Print *p, int settle)
{
    const Schedule *s = p->s;
    int i = settle + 1;
    while (i < s->ninsts && s->inst[i].role != s->inst[settle].role)
        i++;
    if (i == s->ninsts || s->inst[i].op != K_MAP)
        return;
    if (s->inst[i].early)
        put_early(p, &s->inst[i]);
    else if (s->row_axis && s->groups == 1 && !s->ahead
             && !s->inst[i].parts)
        put_columns_early(p, &s->inst[i]);
}

static void put_insts(Print *p, KRole role, KOp from, KOp to)
{
    for (int i = 0; i < p->s->ninsts; i++) {
        const KInst *k = &p->s->inst[i];
        if (k->role != role || k->op < from || k->op > to)
            continue;
        if (k->deferred) {
            put_deferred_before(p, k);
            continue;
        }
        p->at = i;
        if (has_matrices(role))
            put_found_early(p, k);
        if (k->op == K_SETTLE)
            put_beside_products(p, i);
        put_inst(p, k);
        if (k->op == K_SETTLE && k->index == NOTHING
            && is_waited(p, FORM_PRODUCT) && !has_tensor(p->s))
            put_settled(p, i);
    }
    p->at = p->fenced = NOTHING;
    put_fence(p);
}

/* The first output of which heads leave shares, if a block may have these heads
 * one after another, and add them up: each share is a matrix of its chunk's.
 * NOTHING: none. */
static int added_share(const Print *p)
{
    const Schedule *s = p->s;
    int found = NOTHING, left = 0;
    for (int i = 0; i < s->g->nout; i++)
        left += p->o->sum_out[i]
             && schedule_computes(s, shown_node(s->g, s->g->out[i].node));
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->op != K_STORE || !has_matrices(k->role) || k->index == NOTHING
            || !p->o->sum_out[k->index]
            || value_at(p, k->in[0])->layout != LAY_FRAGMENT)
            continue;
        found = found == NOTHING ? k->index : found;
        left--;
    }
    return s->kind == K_TOKEN && s->slices == 1 && !left ? found : NOTHING;
}

/* What they have left so far. */
static void put_sums(Print *p)
{
    for (int i = 0; i < p->s->ninsts && p->sums; i++) {
        const KInst *k = &p->s->inst[i];
        if (k->op != K_STORE || k->role != KR_MATRIX || k->index == NOTHING
            || !p->o->sum_out[k->index])
            continue;
        const KValue *v = value_at(p, k->in[0]);
        buf_printf(p->b, "float sum%u[%d];\n", (unsigned)v->node,
                   fragment_regs(p->s, v));
    }
}

/* name: of the number of chunks before; own: of those that are not lean. */
static void put_items(Print *p, const char *name, const char *own)
{
    const Schedule *s = p->s;
    bool walk = s->kind != K_TOKEN;
    int share = added_share(p);
    p->k->adds = share != NOTHING;
    buf_printf(p->b, "u32 %s = 0;\n%s", name,
               s->splits ? ctx_format(p->c, "u32 %s = 0;\n", own) : "");
    if (p->k->adds)
        buf_printf(p->b, "NO_UNROLL for (u32 iteration = 0; ; iteration++) {\n"
                   "const i64 item = item_of(iteration, a.tensor[%d].group);\n"
                   "if (item >= a.run.items)\nbreak;\nItem x;\n",
                   result_tensor(p, ARG_OUTPUT, share));
    else
        buf_printf(p->b, "NO_UNROLL for (i64 item = blockIdx.x; item"
                   " < a.run.items; item += gridDim.x) {\nItem x;\n");
    buf_printf(p->b, walk ? "const int chunks = find_walk<%d%s>(a.run, item,"
               " x);\n" : "if (!find_item<%d%s>(a.run, item, x))\ncontinue;\n",
               s->slices, s->splits ? ", true" : "");
}

static int most_lag(const Schedule *s)
{
    int most = 0;
    for (int i = 0; i < s->ninsts; i++)
        most = s->inst[i].lag > most ? s->inst[i].lag : most;
    return most;
}

/* Those of an iteration that are `lag` behind, by one lane; where a chunk ends
 * early the role's others have what lies behind that to clear. */
static void put_loads(Print *p, int lag)
{
    const Schedule *s = p->s;
    bool clears = clears_loaded(s);
    if (clears) {
        buf_printf(p->b, "if (x.n < CHUNK_ROWS) {\n");
        put_tails(p, lag, put_inst);
        buf_printf(p->b, "} else if (lane == 0) {\n");
    }
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].role == KR_LOAD && s->inst[i].lag == lag)
            put_inst(p, &s->inst[i]);
    buf_printf(p->b, clears ? "}\n" : "");
}

/* Of an iteration of the loop the loads that are `lag` behind. */
static void put_loads_behind(Print *p, int lag)
{
    const Schedule *s = p->s;
    Buf *b = p->b;
    const char *chunk = lag ? ctx_format(p->c, "c - %d", lag) : "c";
    const char *end = s->splits ? "x.last" : "chunks";
    const char *one_lane = clears_loaded(s) ? "if (lane == 0) {\n" : "";
    end = lag ? ctx_format(p->c, "%s + %d", end, lag) : end;
    buf_printf(b, "if (%s%s%s) {\nfind_chunk(a.run, %s, x);\n"
               "const u32 it = before + %s;\n",
               lag ? ctx_format(p->c, "c >= %d", lag) : "",
               lag == most_lag(s) ? "" : lag ? " && c < " : "c < ",
               lag == most_lag(s) ? "" : end, walked_text(p, chunk), chunk);
    if (s->splits) {
        buf_printf(b, "if (%s < x.first) {\n%s", chunk, one_lane);
        put_lean_loads(p, lag, put_inst);
        buf_printf(b, "%s} else {\nconst u32 own = own_before + %s - x.first;\n"
                   "(void)own;\n", *one_lane ? "}\n" : "", chunk);
    }
    put_loads(p, lag);
    buf_printf(b, s->splits ? "}\n}\n" : "}\n");
}

/* What loads, in a walk. */
static void put_lagging_loads(Print *p)
{
    const Schedule *s = p->s;
    Buf *b = p->b;
    int most = most_lag(s);
    put_items(p, "before", "own_before");
    put_heads(p);
    buf_printf(b, "NO_UNROLL for (int c = 0; c < %s + %d; c++) {\n",
               s->splits ? "x.last" : "chunks", most);
    for (int lag = 0; lag <= most; lag++) {
        bool any = false;
        for (int i = 0; i < s->ninsts; i++)
            any |= s->inst[i].role == KR_LOAD && s->inst[i].lag == lag;
        if (any)
            put_loads_behind(p, lag);
    }
    buf_printf(b, s->splits ? "}\nbefore += x.last;\n"
                              "own_before += x.last - x.first;\n}\n"
                            : "}\nbefore += chunks;\n}\n");
}

/* Whether it packs a state, as a factor, that lean iterations do not go on
 * from: behind them it is packed as they leave it. */
static bool begins_behind(const Print *p, const KInst *k)
{
    bool lean = !k->nin;
    for (int i = 0; i < p->s->ninsts && !lean; i++) {
        const KInst *packs = &p->s->inst[i];
        lean = packs_carried(p->s, packs) && packs->lean
            && packs->in[1] == k->out[0];
    }
    return !lean;
}

static void put_begins(Print *p, KRole role, bool behind)
{
    for (int i = 0; i < p->s->ninsts; i++) {
        const KInst *k = &p->s->inst[i];
        if (k->role == role && k->op == K_BEGIN
            && begins_behind(p, k) == behind)
            put_inst(p, k);
    }
}

/* Of an iteration what all instructions find. Beside a role ahead a walk whose
 * states stay in registers waits for all products, though none is under way:
 * ptxas cannot tell, and would wait for those of this iteration before it
 * changes a state (C7517). */
static void put_turn_begin(Print *p, KRole role)
{
    const Schedule *s = p->s;
    if (s->kind != K_TOKEN && (role == KR_VECTOR || role == KR_VECTOR2))
        put_vector_turn(p, role);
    if (takes_chunks_round_robin(s, role))
        buf_printf(p->b, "if (%s %% %d != group)\ncontinue;\n",
                   turn_counter(s, role), s->interleave);
    put_slots(p, role);
    if (has_matrices(role) && s->row_axis)
        put_fragments(p, role, false);
    if (role == KR_MATRIX && s->row_axis && s->ahead)
        buf_printf(p->b, "wgmma_wait<0>();\n");
}

/* Whether a sequence's first chunk comes before the loop: in the role ahead,
 * whose addresses are worked out behind it. States in registers would be there
 * twice. */
static bool peels_first(const Schedule *s, KRole role)
{
    return s->kind != K_TOKEN && role == KR_AHEAD && keeps_rests(s, role);
}

/* Where tiles have rests a sequence's first chunk has a text of its own, and
 * the others' is as if there were none; kernels over all chunks ask which it is
 * where rests are, since what is run once in a while has to be fetched. */
static void put_first(Print *p, KRole role)
{
    p->first = true;
    put_insts(p, role, K_LOAD, K_CARRY);
    p->first = false;
}

static void put_turn(Print *p, KRole role)
{
    bool both = keeps_rests(p->s, role) && !peels_first(p->s, role)
             && p->s->kind != K_TOKEN;
    put_turn_begin(p, role);
    p->first = keeps_rests(p->s, role) && p->s->kind == K_TOKEN;
    if (both) {
        buf_printf(p->b, "if (x.row == x.where.start) {\n");
        put_first(p, role);
        buf_printf(p->b, "} else {\n");
    }
    if (role == KR_LOAD && clears_loaded(p->s))
        put_loads(p, 0);
    else
        put_insts(p, role, K_LOAD, K_CARRY);
    p->first = false;
    buf_printf(p->b, both ? "}\n" : "");
    p->slots = false;
}

/* An iteration of a walk's loop has ended: in an expression. */
static void put_counted(Print *p, KRole role)
{
    buf_printf(p->b, p->s->splits ? ", it++, own++" : ", it++");
    put_rings(p, role, NULL, RING_GOES_ON);
}

/* How a walk's loop begins. */
static const char *put_first_chunk(Print *p, KRole role)
{
    const Schedule *s = p->s;
    const char *from = s->splits ? "x.first" : "0";
    if (!peels_first(s, role))
        return ctx_format(p->c, "int m = %s", from);
    buf_printf(p->b, "int m = %s;\nif (m == 0 && m < %s) {\ndo {\n"
               "find_chunk(a.run, 0, x);\n", from, s->splits ? "x.last"
                                                             : "chunks");
    put_turn_begin(p, role);
    put_first(p, role);
    p->slots = false;
    buf_printf(p->b, "} while (0);\nm++");
    put_counted(p, role);
    buf_printf(p->b, ";\n}\n");
    return "";
}

/* As the last of blocks that share a walk leaves its states. */
static void put_ends_of(Print *p, KRole role)
{
    bool any = false;
    for (int i = 0; i < p->s->ninsts && p->s->splits; i++)
        any |= p->s->inst[i].role == role && p->s->inst[i].op == K_END;
    buf_printf(p->b, any ? "if (x.last == chunks) {\n" : "");
    put_insts(p, role, K_END, K_END);
    buf_printf(p->b, any ? "}\n" : "");
}

static void put_lean_loop(Print *p, KRole role)
{
    if (!has_lean(p->s, role)) {
        buf_printf(p->b, "it += x.first;\n");
        put_rings(p, role, "it", RING_GOES_TO);
        return;
    }
    buf_printf(p->b, "NO_UNROLL for (int m = 0; m < x.first; m++, it++");
    put_rings(p, role, "it", RING_GOES_ON);
    buf_printf(p->b, ") {\nfind_chunk(a.run, m, x);\n");
    p->lean = true;
    put_turn_begin(p, role);
    bool one_lane = role == KR_LOAD && clears_loaded(p->s);
    buf_printf(p->b, one_lane ? "if (lane == 0) {\n" : "");
    put_lean_insts(p, role, put_inst);
    p->slots = false;
    buf_printf(p->b, one_lane ? "}\n}\n" : "}\n");
}

/* The loop over items, and in a walk that over chunks. */
static void put_role(Print *p, KRole role)
{
    const Schedule *s = p->s;
    bool walk = s->kind != K_TOKEN;
    const char *begin = "";
    if (role == KR_LOAD && clears_loaded(s))
        buf_printf(p->b, "u32 tails = 0;\n");
    if (role == KR_LOAD && walk && most_lag(s)) {
        put_lagging_loads(p);
        return;
    }
    if (role == KR_MATRIX)
        put_sums(p);
    put_rings(p, role, NULL, RING_BEGINS);
    put_items(p, "it", "own");
    if (has_matrices(role)) {
        put_fragments(p, role, true);
        if (!s->row_axis)
            put_fragments(p, role, false);
        put_item_lane(p);
    }
    if (role == KR_LOAD && walk)
        put_heads(p);
    put_begins(p, role, false);
    put_deferred(p, role, put_inst);
    if (walk && s->row_axis && has_matrices(role))
        put_spread(p, role);
    if (walk && s->row_axis && !has_matrices(role))
        put_first_fetch(p, role);
    if (s->splits)
        put_lean_loop(p, role);
    put_begins(p, role, true);
    if (walk)
        begin = put_first_chunk(p, role);
    if (walk) {                         /* without buffers it waits for loads
                                           alone: many at a time */
        buf_printf(p->b, "%s for (%s; m < %s; m++", s->nbuffers || s->splits
                   ? "NO_UNROLL" : "UNROLL_EIGHT", begin,
                   s->splits ? "x.last" : "chunks");
        put_counted(p, role);
        buf_printf(p->b, ") {\nfind_chunk(a.run, %s, x);\n",
                   s->kind == K_REVERSE ? "chunks - 1 - m" : "m");
    }
    put_turn(p, role);
    buf_printf(p->b, walk ? "}\n" : "it++;\n");
    put_last_deferred(p, role);
    put_ends_of(p, role);
    buf_printf(p->b, "}\n");
}

/* The roles of a warp each. Where nothing is carried they share the loop. */
static void put_warps(Print *p)
{
    const Schedule *s = p->s;
    bool walk = s->kind != K_TOKEN;
    if (!walk)
        put_items(p, "it", "own");
    for (int r = 0; r < KR_MATRIX; r++) {
        if (!s->warps[r])
            continue;
        buf_printf(p->b, r == KR_LOAD && is_waited(p, FORM_COPY)
                         && !clears_loaded(s)
                         ? "if (warp == 0 && lane == 0) {\n"
                         : r == KR_VECTOR && vectors_in_turn(p)
                         ? "if (warp >= %d) {\n" : "if (warp == %d) {\n", r);
        if (walk)
            put_role(p, (KRole)r);
        else
            put_insts(p, (KRole)r, K_LOAD, K_CARRY);
        buf_printf(p->b, "}\n");
    }
    if (!walk)
        buf_printf(p->b, "it++;\n}\n");
    if (s->warps[KR_STORE] && is_waited(p, FORM_COPY))
        buf_printf(p->b, "if (warp == %d)\nbulk_wait();\n", KR_STORE);
}

static void put_barriers(Print *p)
{
    const Schedule *s = p->s;
    buf_printf(p->b, "if (threadIdx.x == 0) {\n");
    for (int i = 0; i < s->nbuffers; i++) {
        const KBuffer *b = &s->buffer[i];
        bool engine = b->copied && is_waited(p, FORM_COPY);
        int writers = engine ? 1 : 32 * s->warps[b->writer], readers = 0;
        if (is_internal(b))
            continue;
        for (int r = 0; r < NKROLES; r++)
            if (b->readers & 1u << r && r != b->writer && tells_empty(s, r, i))
                readers += (32 + is_filled_by_both(s, i)) * s->warps[r];
        buf_printf(p->b, "UNROLL for (int i = 0; i < %d; i++) {\n"
                   "barrier_init(base + %d + 8 * i, %d);\n"
                   "barrier_init(base + %d + 8 * i, %d);\n}\n", (int)b->depth,
                   (int)barrier_at(s, i), writers,
                   (int)(barrier_at(s, i) + 8 * b->depth), readers);
    }
    if (clears_loaded(s))
        buf_printf(p->b, "barrier_init(base + %d, 1);\n",
                   (int)tail_barrier(s));
    put_tensor_barriers(p);
    buf_printf(p->b, "barrier_init_fence();\n}\n");
    put_tensor_alloc(p);
    buf_printf(p->b, s->paired ? "pair_sync();\n" : "__syncthreads();\n");
}

/* One warpgroup needs no more than a block of it has. */
static bool deals_registers(const Schedule *s)
{
    return s->groups + s->ahead > 1 && s->target->form[FORM_DEAL];
}

/* Its warpgroups' registers, and which of them has which columns. */
static void put_matrix_role(Print *p, KRole role, int regs)
{
    const Schedule *s = p->s;
    int launched = s->target->regs / s->resident / GROUP_THREADS
                 / (1 + s->groups + s->ahead * s->interleave);
    if (deals_registers(s))
        buf_printf(p->b, "%s_registers<%d>();\n",
                   regs > launched ? "more" : "fewer", regs);
    bool alternate = takes_chunks_round_robin(s, role);
    int first = 32 * first_warp(s, role);
    buf_printf(p->b, "const Lane l = %s;\nconst int thread ="
               " (int)threadIdx.x - %d%s, group = %s;\n",
               lane_text(p, false), first,
               alternate ? " & 127" : "", alternate
               ? ctx_format(p->c, "uniform((int)threadIdx.x - %d >> 7)", first)
               : warpgroups_of(s, role) > 1 ? "uniform(thread >> 7)" : "0");
    if (deals_rows(s, role))
        buf_printf(p->b, "const int row0 = 64 * group;\n");
    buf_printf(p->b, "auto col0 = [&](int share) { return %s; };\n",
               deals_rows(s, role) || alternate ? "0" : "group * share");
    put_tensor_of(p, role);
    put_role(p, role);
    buf_printf(p->b, "}\n");
}

static void put_roles(Print *p)
{
    const Schedule *s = p->s;
    Buf *b = p->b;
    bool deals = deals_registers(s);
    buf_printf(b, "const int warp = uniform(threadIdx.x >> 5), lane ="
               " threadIdx.x & 31;\nif (warp < 4) {\n");
    if (deals)
        buf_printf(b, "fewer_registers<%d>();\n", s->regs[0]);
    put_warps(p);
    buf_printf(b, "}\n");
    if (!s->groups)
        return;
    if (s->ahead)
        buf_printf(b, "else if (warp < %d) {\n", first_warp(s, KR_AHEAD));
    else
        buf_printf(b, "else {\n");
    put_matrix_role(p, KR_MATRIX, s->regs[1]);
    if (s->ahead) {
        buf_printf(b, "else {\n");
        put_matrix_role(p, KR_AHEAD, s->regs[2]);
    }
    put_tensor_free(p);
}

/* Arguments are known once the roles are printed. */
void schedule_text(const Schedule *s, const CudaOptions *o,
                   const StoredPlaces *stored, CudaKernel *k, Buf *to)
{
    Buf roles = { .ctx = s->c }, b = { .ctx = s->c };
    Print p = { .s = s, .o = o, .stored = stored, .k = k, .c = s->c,
                .b = &roles, .at = NOTHING, .fenced = NOTHING };
    p.sums = added_share(&p) != NOTHING && registers_summed(s)
          && !takes_chunks_round_robin(s, KR_MATRIX);
    k->head = head_text(s);
    k->threads = GROUP_THREADS * (1 + s->groups + s->ahead * s->interleave);
    k->shared = s->shared;
    k->blocks = s->slices;
    k->slice_axis = s->slice_axis;
    k->split = s->splits;
    k->lean = s->splits ? lean_share(s, options_machine(o)) : 0;
    k->lean_moves = s->splits ? lean_moves(s) : 0;
    k->in_rows = s->row_axis;
    k->ahead = s->ahead;
    k->resident = s->resident;
    k->paired = s->paired;
    k->spill = s->paired ? 0 : s->rests;
    k->ranks = rows_of_token(s->g);
    k->lanes = !is_waited(&p, FORM_COPY);
    k->anywhere = !s->target->form[FORM_COPY]->piece;
    k->walk = s->kind == K_TOKEN ? CUDA_SCHEDULED : CUDA_WALKED;
    put_barriers(&p);
    put_roles(&p);
    buf_printf(&b, "namespace in_%s {\nstruct Args { %s"
               "Tensor tensor[%d]; Run run; };\nextern \"C\" __global__ void"
               " %s__launch_bounds__(%d, %d) %s(const __grid_constant__ Args"
               " a)\n{\nalignas(%d) extern __shared__ unsigned char raw[];\n"
               "const u32 base = shared_address(raw);\n", k->name, k->lanes
               ? "" : ctx_format(s->c, "TensorMap map[%d]; ",
                                 k->nmaps + !k->nmaps),
               k->ntensors + !k->ntensors, s->paired
               ? "__cluster_dims__(2, 1, 1) " : "", k->threads, s->resident,
               k->name,
               SHARED_ALIGN);
    buf_put(&b, roles.s, roles.len);
    buf_printf(&b, "%s}\n}  // in_%s\n", s->paired ? "pair_sync();\n" : "",
               k->name);
    source_indent(to, b.s);
}
