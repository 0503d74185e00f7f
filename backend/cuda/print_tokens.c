/* print_tokens.c -- kernels whose warps all do one instruction after another: a
 * block takes a head of a sequence, or its slice of one, and walks its tokens,
 * of which the next one's inputs are on their way meanwhile, or its chunks; or
 * it takes one item.
 */
#include "print_tokens.h"
#include "source.h"
#include "../../compiler/eval.h"

#include <string.h>

/* ---- states ---- */

/* A sequence's state among all: of single tokens it may be any. */
static const char *own_state(const Walk *w)
{
    return has_rows(w->s) ? "s" : "own";
}

static const char *regtile_args(const Walk *w, int v, const State *st, int t,
                                DType type)
{
    const Schedule *s = w->s;
    int32_t size = w->g->axis[s->tokens.col].size;
    return ctx_format(w->c, "<%d, %s, %d>(t%d, p, regtile_row, regtile_col, %s,"
                      " %s, %s", (int)block_extent(s, s->tokens.row),
                      regtile_whole(s) ? "true" : "false",
                      are_pieces(w, type, size) ? (int)size : 0, v,
                      step_text(w, t, st->order, st->rank,
                                place_in(st->order, st->rank, s->tokens.row),
                                true),
                      step_text(w, t, st->order, st->rank,
                                place_in(st->order, st->rank, s->tokens.col),
                                true),
                      wide_text(w, t, type, size));
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

    buf_printf(b, "if (%s) {\nconst %s *p = (const %s *)a.t[%d].p + %s"
               " * a.t[%d].sb + %s%s;\n", there_text(w, t), type, type, t,
               own_state(w), t, own_head_text(w, t, "head"),
               slice_text(w, t, st->order, st->rank, axes, true));
    if (regtile) {
        buf_printf(b, "regtile_in%s);\n} else {\nUNROLL\nfor (int u = 0; u <"
                   " %d; u++)\nt%d[u] = 0;\n}\n", regtile_args(w, v, st, t,
                                w->p.o->s0[w->k->index]),
                   regtile_count(w->s), v);
        return;
    }
    for (int i = 0; i < 2; i++) {
        open_loop(w, st->node, axes);
        buf_printf(b, i ? "t%d[%s] = 0;\n}\n}\n"
                        : "t%d[%s] = get(p[0%s]);\n}\n} else {\n", v,
                   token_index(w, &s, NOTHING, NULL),
                   strides_text(w, t, st->order, st->rank, true));
    }
}

/* Whether a state's place is worked out where it leaves, from the numbers of
 * block and thread alone: kept, it would take registers from states. */
static bool works_out_anew(const Walk *w)
{
    int v = w->k->in[0];
    return w->p.o->single && !w->p.k->spill
        && value_at(&w->p, v)->layout == LAY_REGTILE;
}

/* To the place of each token, or of the last. */
static void put_end(Walk *w, bool each)
{
    const State *st = &w->g->st[w->k->index];
    int v = w->k->in[0], t = result_tensor(&w->p, ARG_NEXT, w->k->index);
    AxisSet axes = w->g->n[st->node].axes;
    const char *type = ctype_text(result_type(&w->p, ARG_NEXT, w->k->index));
    Buf *b = w->b;

    if (works_out_anew(w)) {
        buf_printf(b, "{\n");
        put_single_item(w, "(u32)fresh((int)blockIdx.x)");
        if (!w->p.o->paged)
            buf_printf(b, "const i64 own = s;\n");
        put_regtile(w, "fresh(TID)");
    }
    buf_printf(b, "if (%s%s%s) {\n%s *p = (%s *)a.t[%d].p + %s * a.t[%d].sb +"
               " %s%s%s;\n", there_text(w, t), each ? " && entry >= 0"
               : w->p.o->single || has_rows(w->s) ? "" : " && !a.pages.each",
               first_text(w, axes), type, type, t,
               each ? "entry" : own_state(w), t,
               each ? ctx_format(w->c, "(a.pages.at ? 0 : at) * a.t[%d].st + ",
                                 t) : "", own_head_text(w, t, "head"),
               slice_text(w, t, st->order, st->rank, axes, true));
    if (value_at(&w->p, v)->layout == LAY_REGTILE) {
        buf_printf(b, works_out_anew(w) ? "regtile_out%s);\n}\n}\n"
                   : "regtile_out%s);\n}\n", regtile_args(w, v, st, t,
                   result_type(&w->p, ARG_NEXT, w->k->index)));
        return;
    }
    KSpot s = flat_spot(w->s, st->node);
    open_loop(w, st->node, axes);
    buf_printf(b, "put(p%s, t%d[%s]);\n}\n}\n",
               strides_text(w, t, st->order, st->rank, true), v,
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
    case K_MAP: put_token_program(w); break;
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

/* Whether threads copy something for one another before a token. */
static bool brings_any(const Schedule *s)
{
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++)
        if (token_brings(s, k)
            || (k->op == K_LOAD && k < s->inst + s->tokens.first))
            return true;
    return false;
}

/* Token m's inputs on their way. */
static void put_ahead(Walk *w, const char *m)
{
    const Schedule *s = w->s;

    if (!brings_any(s))
        return;
    if (w->p.o->single && strcmp(m, "0")) {     /* there is no next one */
        buf_printf(w->b, "copy_commit();\n");
        return;
    }
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

/* Whether what is left of some state goes out behind the last token. */
static bool any_ends(const Walk *w)
{
    for (const KInst *k = w->s->inst; k < w->s->inst + w->s->ninsts; k++)
        if (k->op == K_END && !last_change(w, k))
            return true;
    return false;
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
    put_lines(w, "0");
    if (w->p.o->single)
        return;
    buf_printf(w->b, "if (q.len < 1) {\ncopy_wait<0>();\n__syncthreads();\n");
    put_changed(w, NULL);
    buf_printf(w->b, "}\n");
}

static void put_walk(Walk *w)
{
    const Schedule *s = w->s;
    bool brings = brings_any(s);
    Buf *b = w->b;

    buf_printf(b, "NO_UNROLL for (i64 m = 0; m < q.len; m++) {\n");
    put_ahead(w, "m + 1");
    put_places(w, "m");
    put_token(w, "m");
    for (const KInst *k = s->inst + s->tokens.first; k < s->inst + s->ninsts;
         k++) {
        if (k->op == K_SYNC && brings) {
            buf_printf(b, "copy_wait<1>();\n");
            brings = false;
        }
        if (!token_brings(s, k) && !token_is_line(s, k))
            put_inst(w, k);
        put_changed(w, k);
    }
    put_lines(w, "m + 1");
    if (!w->p.o->single) {
        buf_printf(b, "if (a.pages.each) {\n"
                   "const i64 entry = state_entry(a.pages, s, at);\n"
                   "(void)entry;\n");
        put_ends(w, true);
        buf_printf(b, "}\n");
    }
    buf_printf(b, w->p.o->single && !any_ends(w) ? "}\n"
                  : "__syncthreads();\n}\n");
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

/* Whether its items are walks over single tokens. */
static bool is_walk(const Walk *w)
{
    return !has_rows(w->s) && w->s->kind != K_TOKEN;
}

/* Of calls that are single a block has one. */
static bool has_one_item(const Walk *w)
{
    return w->p.o->single && is_walk(w) && !w->s->spill;
}

static void put_single(Walk *w)
{
    const CudaKernel *k = w->p.k;

    buf_printf(w->b, "{\n");
    put_single_item(w, "blockIdx.x");
    if (k->follows)
        buf_printf(w->b, "follow();\n");
    buf_printf(w->b, w->p.o->paged
               ? "const i64 own = state_entry(a.pages, s, -1);\n"
                 "if (own < 0)\nreturn;\n"
               : "const i64 own = s;\n");
    buf_printf(w->b, "const OneToken q = { (int)s };\n"
               "const i64 slot = s + s * a.run.per_entry;\n(void)slot;\n");
}

static void put_item(Walk *w)
{
    const CudaKernel *k = w->p.k;
    bool all = w->s->kind == K_TOKEN, one = w->p.o->single && is_walk(w);
    int c = has_rows(w->s) ? (int)w->g->chunk : 1;

    if (has_one_item(w)) {
        put_single(w);
        return;
    }
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
    buf_printf(w->b, "const %s;\nconst i64 slot = %s;\n(void)slot;\n", one
               ? "OneToken q = { (int)s }" : "Sequence q = sequence(a.run, s)",
               one ? "s + s * a.run.per_entry"
               : ctx_format(w->c, "first_slot(a.run, s, %d)", c));
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
    k->slice_axis = s->slice_axis;
    k->spill = s->spill;
    k->follows = o->arch >= 90 && !s->spill && !has_rows(s);
    if (k->follows)
        buf_printf(&body, "let_follow();\n");
    if (s->tokens.regtile)
        put_regtile(&w, "TID");
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
    buf_printf(&body, has_one_item(&w) ? "}\n}\n"
                      : "__syncthreads();\n}\n}\n");
    buf_printf(&head, "struct Args%d { Run run; Tensor t[%d];%s };"
               "\nextern \"C\" __global__ void __launch_bounds__(THREADS, %d)"
               " %s(const __grid_constant__ Args%d a)\n{\n", n,
               k->ntensors + !k->ntensors, has_rows(s) ? "" : " Pages pages;",
               s->resident, k->name, n);
    buf_put(&head, body.s, body.len);
    source_indent(to, head.s);
}
