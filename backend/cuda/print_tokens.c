/* print_tokens.c -- kernels whose warps all do one instruction after another: a
 * block takes a head of a sequence, or its slice of one, and walks its tokens,
 * of which the next one's inputs are on their way meanwhile, or its chunks; or
 * it takes one item.
 */
#include "print_tokens.h"
#include "source.h"
#include "../../compiler/eval.h"

#include <string.h>

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

/* Whether a thread has its columns' sums before it goes through its tile. */
static bool is_gathered(const Walk *w, Ref r)
{
    return token_sums_regtile(w->s, r) && is_down(w, r)
        && !(w->g->n[r].axes & ~w->s->tokens.regtile);
}

/* From column `from` on. */
static void put_gathered(Walk *w, Ref r, const char *from)
{
    int v = schedule_value(w->s, r, LAY_PARTIAL);

    buf_printf(w->b, "float w%u[%d];\nregtile_whole<%d, %d>(w%u, t%d + %s);\n",
               (unsigned)r, REGTILE_PIECE, value_at(&w->p, v)->parts,
               (int)flat_extent(w->s, r, w->s->tokens.col), (unsigned)r, v,
               from);
}

/* n nodes of the program in hand, for each element of a register tile. */
static void open_tile_program(Walk *w, int n)
{
    for (int i = 0; i < n; i++)
        if (is_gathered(w, w->k->node[i]))
            put_gathered(w, w->k->node[i], "regtile_col");
    open_regtile(w);
}

/* For one element of a thread's register tile. */
static void put_tile_value(Walk *w, Ref r, uint8_t *done)
{
    if (is_gathered(w, r))
        buf_printf(w->b, "const float v%u = w%u[u %% %d];\n", (unsigned)r,
                   (unsigned)r, REGTILE_PIECE);
    else if (token_sums_regtile(w->s, r))
        put_whole(w, r);
    else if (token_sums(w->s, r))
        put_sum(w, r, false, done);
    else
        put_token_value(w, r);
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
    uint8_t *done = ctx_alloc(w->c, w->g->len);
    Buf *b = w->b;

    for (AxisSet a = ranks; a; a &= a - 1) {
        const char *x = token_coord(w, lowest(a));
        buf_printf(b, "for (int %s = 0; %s < %d; %s++)\n", x, x,
                   (int)flat_extent(w->s, r, lowest(a)), x);
    }
    buf_printf(b, "{\nfloat sum[%d] = { 0 };\n", down ? REGTILE_PIECE
               : (int)regtile_rows(s));
    open_tile_program(w, w->k->nnodes - 1);
    for (int i = 0; i + 1 < w->k->nnodes; i++)
        put_tile_value(w, w->k->node[i], done);
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

/* ---- programs ---- */

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
        open_kept_loop(w, r);
    put_kept(w, r, token_element(w, r));
    buf_printf(w->b, "}\n");
    put_no_tokens(w, r);
}

static void put_lazy(Walk *w)
{
    for (int i = 0; i < w->k->nout; i++) {
        const KValue *v = value_at(&w->p, w->k->out[i]);
        KSpot s = flat_spot(w->s, v->node);
        if (v->layout == LAY_PARTIAL)
            continue;
        bool wide = dtype_size(token_type(w, v)) >= 4;
        buf_printf(w->b, wide ? "t%d[%s] = v%u;\n" : "put(&t%d[%s], v%u);\n",
                   fragment_root(w->s, w->k->out[i]),
                   v->layout == LAY_REGTILE ? "u"
                   : token_index(w, &s, NOTHING, NULL), (unsigned)v->node);
    }
}

static void put_regtile_map(Walk *w)
{
    uint8_t *done = ctx_alloc(w->c, w->g->len);
    buf_printf(w->b, "{\n");
    open_tile_program(w, w->k->nnodes);
    for (int i = 0; i < w->k->nnodes; i++)
        put_tile_value(w, w->k->node[i], done);
    put_lazy(w);
    buf_printf(w->b, "}\n");
    buf_printf(w->b, "}\n");
}

/* A single element is one thread's, or warp's, or all have a share of its sum;
 * others have others. Addresses of results are worked out there: kept, they
 * would take registers from states. */
static void open_map(Walk *w, Ref r, bool lanes, bool block, bool leaves)
{
    AxisSet axes = w->g->n[r].axes;
    int32_t n = flat_count(w->s, r, axes);
    int warp = (int)(w->k - w->s->inst) % warps_of(w);

    if (block)
        buf_printf(w->b, "{\n");
    else if (n == 1)
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

/* Whether the program in hand keeps its node for kernels behind. */
static bool keeps_node(const Walk *w, Ref r)
{
    return w->s->stores[r] && w->k >= w->s->inst + w->s->tokens.first;
}

static void put_kept_nodes(Walk *w)
{
    for (int i = 0; i < w->k->nnodes; i++)
        if (keeps_node(w, w->k->node[i]))
            put_kept(w, w->k->node[i], ctx_format(w->c, "v%u",
                                                  (unsigned)w->k->node[i]));
}

/* Whether a thread leaves pieces of a row: of results that are whole rows, of
 * what warps have added up. */
static bool goes_in_pieces(const Walk *w)
{
    const KInst *k = w->k;
    Ref last = k->node[k->nnodes - 1];
    bool any = false;
    bool all = w->p.o->single && w->s->tokens.regtile
            && w->g->n[last].axes == AXIS(w->s->tokens.col)
            && flat_extent(w->s, last, w->s->tokens.col) % REGTILE_PIECE == 0;

    for (int i = 0; i < k->nnodes && all; i++)
        all = !token_sums(w->s, k->node[i]) || is_gathered(w, k->node[i]);
    for (int i = 0; i < w->g->nout && all; i++) {
        any |= leaves_result(w, i);
        all = !leaves_result(w, i)
           || (w->g->out[i].rank == 1
               && w->g->axis[w->s->tokens.col].size * (int)dtype_size(
                      result_type(&w->p, ARG_OUTPUT, i)) % 16 == 0);
    }
    return any && all;
}

static void put_left_pieces(Walk *w, int i)
{
    int t = result_tensor(&w->p, ARG_OUTPUT, i);

    buf_printf(w->b, "if (%s%s) {\nconst int %s = e;\n*(Four<%s> *)(%s) = y%d;"
               "\n}\n", there_text(w, t),
               first_text(w, w->g->n[w->g->out[i].node].axes),
               token_coord(w, w->s->tokens.col),
               ctype_text(result_type(&w->p, ARG_OUTPUT, i)),
               output_place(w, i), i);
}

static void put_pieces_map(Walk *w)
{
    const KInst *k = w->k;
    Ref last = k->node[k->nnodes - 1];

    buf_printf(w->b, "for (int e = fresh(TID) * %d; e < %d; e += THREADS * %d)"
               " {\n", REGTILE_PIECE,
               (int)flat_count(w->s, last, w->g->n[last].axes), REGTILE_PIECE);
    for (int i = 0; i < k->nnodes; i++)
        if (is_gathered(w, k->node[i]))
            put_gathered(w, k->node[i], "e");
    for (int i = 0; i < w->g->nout; i++)
        if (leaves_result(w, i))
            buf_printf(w->b, "Four<%s> y%d;\n",
                       ctype_text(result_type(&w->p, ARG_OUTPUT, i)), i);
    buf_printf(w->b, "UNROLL\nfor (int u = 0; u < %d; u++) {\n"
               "const int %s = e + u;\n(void)%s;\n", REGTILE_PIECE,
               token_coord(w, w->s->tokens.col),
               token_coord(w, w->s->tokens.col));
    for (int i = 0; i < k->nnodes; i++)
        put_tile_value(w, k->node[i], NULL);
    put_lazy(w);
    for (int i = 0; i < w->g->nout; i++)
        if (leaves_result(w, i))
            buf_printf(w->b, "put(&y%d.x[u], v%u);\n", i,
                       (unsigned)w->g->out[i].node);
    put_kept_nodes(w);
    buf_printf(w->b, "}\n");
    for (int i = 0; i < w->g->nout; i++)
        if (leaves_result(w, i))
            put_left_pieces(w, i);
    buf_printf(w->b, "}\n");
}

static void put_flat_map(Walk *w)
{
    const KInst *k = w->k;
    uint8_t *done = ctx_alloc(w->c, w->g->len);
    Ref last = k->node[k->nnodes - 1];
    bool lanes = false, block = false, leaves = false;

    for (int i = 0; i < w->g->nout; i++)
        leaves |= leaves_result(w, i);
    for (int i = 0; i < k->nnodes; i++) {
        lanes |= wants_lanes(w, k->node[i]);
        block |= sums_by_block(w->s, k->node[i]);
    }
    open_map(w, last, lanes, block, leaves);
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
        buf_printf(w->b, block ? "if (TID == 0) {\n" : "if (LANE == 0) {\n");
    for (int i = 0; i < k->nnodes; i++)
        if (!done[k->node[i]])
            put_token_value(w, k->node[i]);
    put_lazy(w);
    put_outputs(w);
    put_kept_nodes(w);
    buf_printf(w->b, lanes ? "}\n}\n" : "}\n");
    for (int i = 0; i < k->nnodes; i++)
        if (keeps_node(w, k->node[i]))
            put_no_tokens(w, k->node[i]);
}

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

/* To the place of each token, or of the last. */
static void put_end(Walk *w, bool each)
{
    const State *st = &w->g->st[w->k->index];
    int v = w->k->in[0], t = result_tensor(&w->p, ARG_NEXT, w->k->index);
    AxisSet axes = w->g->n[st->node].axes;
    const char *type = ctype_text(result_type(&w->p, ARG_NEXT, w->k->index));
    Buf *b = w->b;

    buf_printf(b, "if (%s%s%s) {\n%s *p = (%s *)a.t[%d].p + %s * a.t[%d].sb +"
               " %s%s%s;\n", there_text(w, t), each ? " && entry >= 0"
               : w->p.o->single || has_rows(w->s) ? "" : " && !a.pages.each",
               first_text(w, axes), type, type, t,
               each ? "entry" : own_state(w), t,
               each ? ctx_format(w->c, "(a.pages.at ? 0 : at) * a.t[%d].st + ",
                                 t) : "", own_head_text(w, t, "head"),
               slice_text(w, t, st->order, st->rank, axes, true));
    if (value_at(&w->p, v)->layout == LAY_REGTILE) {
        buf_printf(b, "regtile_out%s);\n}\n", regtile_args(w, v, st, t,
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
    case K_MAP:
        (is_regtile(w->s, k->node[k->nnodes - 1]) ? put_regtile_map
         : goes_in_pieces(w) ? put_pieces_map : put_flat_map)(w);
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

static void put_single(const Walk *w)
{
    const CudaKernel *k = w->p.k;

    buf_printf(w->b, "{\nconst u32 item = blockIdx.x;\n"
               "const int block = (int)(item %% %d);\n"
               "const i64 s = by_few_heads(a.run, item / %d);\n"
               "const int head = (int)(item / %d) - (int)s * a.run.heads;\n"
               "(void)block;\n", k->blocks, k->blocks, k->blocks);
    if (k->follows)
        buf_printf(w->b, "follow();\n");
    buf_printf(w->b, w->p.o->paged
               ? "const i64 own = state_entry(a.pages, s, -1);\n"
                 "if (own < 0)\nreturn;\n"
               : "const i64 own = s;\n");
    buf_printf(w->b, "const OneToken q = { (int)s };\n"
               "const i64 slot = s + s * a.run.per_entry;\n(void)slot;\n");
}

static void put_item(const Walk *w)
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
