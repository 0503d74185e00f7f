/* print_programs.c -- of kernels of single tokens, and of chunks whose warps
 * all do the same, the programs: element by element, by whoever has them.
 */
#include "print_tokens.h"
#include "source.h"
#include "../../compiler/eval.h"

static int warps_of(const Walk *w) { return w->s->tokens.threads / LANES; }

/* Of one that no program keeps. */
void put_kept_value(Walk *w)
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
    put_before_loop(w);
    open_tile(w);
    for (int i = 0; i < w->k->nnodes; i++)
        put_tile_value(w, w->k->node[i], done);
    put_lazy(w);
    buf_printf(w->b, "}\n}\n}\n");
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

/* Whether a thread leaves pieces of a row: of results that are whole rows. */
static bool leaves_pieces(const Walk *w)
{
    int col = w->s->tokens.col;
    bool all = w->p.o->single && !w->p.k->spill
            && block_extent(w->s, col) % REGTILE_PIECE == 0;
    for (int i = 0; i < w->g->nout && all; i++)
        all = !leaves_result(w, i)
           || (w->g->out[i].rank == 1
               && w->g->axis[col].size * (int)dtype_size(
                      result_type(&w->p, ARG_OUTPUT, i)) % 16 == 0);
    return all;
}

static void put_left_pieces(Walk *w, int i)
{
    int t = result_tensor(&w->p, ARG_OUTPUT, i);

    buf_printf(w->b, "{\n");
    put_single_item(w, "(u32)fresh((int)blockIdx.x)");
    buf_printf(w->b, "const OneToken q = { (int)s };\n"
               "if (%s%s) {\nconst int %s = regtile_col;\nstore_words(%s"
               ", y%d);\n}\n}\n", there_text(w, t),
               first_text(w, w->g->n[w->g->out[i].node].axes),
               token_coord(w, w->s->tokens.col), output_place(w, i), i);
}

static void put_columns_map(Walk *w)
{
    const KInst *k = w->k;
    bool pieces = leaves_pieces(w);
    const char *col = token_coord(w, w->s->tokens.col);

    buf_printf(w->b, "{\n");
    if (w->p.o->single)
        put_regtile(w, "fresh(TID)");
    buf_printf(w->b, "if (regtile_row == 0) {\n");
    put_before_loop(w);
    for (int i = 0; i < w->g->nout && pieces; i++)
        if (leaves_result(w, i))
            buf_printf(w->b, "Four<%s> y%d;\n",
                       ctype_text(result_type(&w->p, ARG_OUTPUT, i)), i);
    buf_printf(w->b, "UNROLL\nfor (int u = 0; u < %d; u++) {\n"
               "const int %s = regtile_col + u;\n(void)%s;\n", REGTILE_PIECE,
               col, col);
    for (int i = 0; i < k->nnodes; i++)
        put_tile_value(w, k->node[i], NULL);
    put_lazy(w);
    if (!pieces)
        put_outputs(w);
    for (int i = 0; i < w->g->nout && pieces; i++)
        if (leaves_result(w, i))
            buf_printf(w->b, "put(&y%d.x[u], v%u);\n", i,
                       (unsigned)w->g->out[i].node);
    put_kept_nodes(w);
    buf_printf(w->b, "}\n");
    for (int i = 0; i < w->g->nout && pieces; i++)
        if (leaves_result(w, i))
            put_left_pieces(w, i);
    buf_printf(w->b, "}\n}\n");
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
        if (token_sums_parts(w->s, r))
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

void put_token_program(Walk *w)
{
    if (is_regtile(w->s, w->k->node[w->k->nnodes - 1]))
        put_regtile_map(w);
    else if (w->k->columns)
        put_columns_map(w);
    else
        put_flat_map(w);
}
