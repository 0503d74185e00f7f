/* print_regtile.c -- of kernels of single tokens, what lies in register tiles:
 * a thread has four neighbours of some rows; lanes that have the same rows
 * share out what is made once a row, and ask one another for it. Sums over
 * tiles, as warps put them together.
 */
#include "print_tokens.h"

/* Of the thread that `of` has the number of. */
void put_regtile(Walk *w, const char *of)
{
    const Schedule *s = w->s;
    int pieces = s->tokens.warp_cols / REGTILE_PIECE,
        across = regtile_across(s);

    buf_printf(w->b, "const int thread = %s;\n"
               "const int regtile_down = thread / %d, regtile_across ="
               " thread / %d %% %d;\n"
               "const int regtile_row = (regtile_down * %d"
               " + thread %% %d / %d) * %d, regtile_col = regtile_across * %d"
               " + thread %% %d * %d;\n"
               "(void)regtile_across;\n(void)regtile_down;\n", of,
               LANES * across, LANES, across, LANES / pieces, LANES, pieces,
               (int)regtile_rows(s), (int)s->tokens.warp_cols, pieces,
               REGTILE_PIECE);
}

static void put_element_coords(Walk *w)
{
    const Schedule *s = w->s;
    const char *row = token_coord(w, s->tokens.row);
    const char *col = token_coord(w, s->tokens.col);

    buf_printf(w->b, "const int %s = regtile_row + u / %d, %s = regtile_col + u"
               " %% %d;\n(void)%s;\n(void)%s;\n", row, REGTILE_PIECE, col,
               REGTILE_PIECE, row, col);
    if (!regtile_whole(s))
        buf_printf(w->b, "if (%s >= %d)\ncontinue;\n", row,
                   (int)block_extent(s, s->tokens.row));
}

static void open_elements(Walk *w, int count)
{
    buf_printf(w->b, "UNROLL\nfor (int u = 0; u < %d; u++) {\n", count);
    put_element_coords(w);
}

void open_regtile(Walk *w)
{
    open_elements(w, regtile_count(w->s));
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
void put_whole(Walk *w, Ref r)
{
    int v = schedule_value(w->s, r, LAY_PARTIAL);
    int parts = value_at(&w->p, v)->parts;
    int ax = is_down(w, r) ? w->s->tokens.col : w->s->tokens.row;
    int len = flat_extent(w->s, r, ax);

    if (token_sums_vectors(w->s, r)) {
        buf_printf(w->b, "const float v%u = regtile_whole_one<%d>(t%d + %s0);"
                   "\n", (unsigned)r, parts, v, ranks_text(w, r, parts));
        return;
    }
    buf_printf(w->b, "float v%u = 0;\nUNROLL\nfor (int w = 0; w < %d; w++)\n"
               "v%u += t%d[%sw * %d + %s];\n", (unsigned)r, parts, (unsigned)r,
               v, ranks_text(w, r, len * parts), len, token_coord(w, ax));
}

/* Whether a thread has its columns' sums before it goes through its tile. */
static bool is_gathered(const Walk *w, Ref r)
{
    return token_sums_parts(w->s, r) && is_down(w, r)
        && !token_sums_vectors(w->s, r)
        && !(w->g->n[r].axes & ~w->s->tokens.regtile);
}

/* Whether the tile has one of it. */
static bool is_alike(const Walk *w, Ref r)
{
    return !w->g->n[r].axes
        && (token_sums_vectors(w->s, r) || !token_sums(w->s, r));
}

static void put_gathered(Walk *w, Ref r)
{
    int v = schedule_value(w->s, r, LAY_PARTIAL);

    buf_printf(w->b, "float w%u[%d];\nregtile_whole<%d, %d>(w%u, t%d"
               " + regtile_col);\n",
               (unsigned)r, REGTILE_PIECE, value_at(&w->p, v)->parts,
               (int)flat_extent(w->s, r, w->s->tokens.col), (unsigned)r, v);
}

/* ---- rows that are dealt over lanes ---- */

/* What each row has one of, a lane makes for all that have the row. */
static bool is_dealt(const Walk *w, Ref r)
{
    return w->g->n[r].axes == AXIS(w->s->tokens.row)
        && !token_sums_vectors(w->s, r);
}

/* Whether the program makes parts of the sum. */
static bool makes_parts(const Walk *w, Ref r)
{
    for (int i = 0; i < w->k->nout && w->k->op == K_PARTIAL; i++)
        if (value_at(&w->p, w->k->out[i])->node == r)
            return true;
    return false;
}

/* Whether some node, for each element of a tile, reads r. */
static bool is_read_in_tile(const Walk *w, Ref r)
{
    for (int i = 0; i < w->k->nnodes; i++) {
        Ref u = w->k->node[i];
        bool parts = token_sums_parts(w->s, u);
        for (int o = 0; o < 4; o++)
            if (w->g->n[u].a[o] == r && !is_dealt(w, u)
                && (!parts || (makes_parts(w, u)
                               && !token_sums_vectors(w->s, u))))
                return true;
    }
    return false;
}

/* Of which the tile has one a row. */
static int list_dealt(const Walk *w, Ref *of)
{
    int found = 0;
    for (Ref r = 1; r < w->g->len; r++)
        if ((is_dealt_line(w, r) || (has_node(w->k, r) && is_dealt(w, r)
                                     && !makes_parts(w, r)))
            && is_read_in_tile(w, r))
            of[found++] = r;
    return found;
}

static void open_dealt(Walk *w)
{
    const char *row = token_coord(w, w->s->tokens.row);
    int pieces = w->s->tokens.warp_cols / REGTILE_PIECE;

    buf_printf(w->b, "UNROLL\nfor (int j = 0; j < %d; j++) {\nconst int %s ="
               " dealt_row<%d, %d, %d>(regtile_row, j);\n(void)%s;\n",
               dealt_count(w), row, pieces, (int)regtile_rows(w->s),
               (int)block_extent(w->s, w->s->tokens.row), row);
}

/* And what vectors along rows add up to, as lanes have them. */
static void put_dealt_values(Walk *w)
{
    for (int i = 0; i < w->k->nnodes; i++) {
        Ref r = w->k->node[i];
        if (makes_parts(w, r) && token_sums_vectors(w->s, r) && is_down(w, r))
            buf_printf(w->b, "if (has_dealt<%d, %d, %d>(regtile_row, j))\n"
                       "s%u[0] += %s;\n",
                       w->s->tokens.warp_cols / REGTILE_PIECE,
                       (int)regtile_rows(w->s),
                       (int)block_extent(w->s, w->s->tokens.row), (unsigned)r,
                       token_term(w, r));
        if (!is_dealt(w, r) || makes_parts(w, r))
            continue;
        if (token_sums_parts(w->s, r))
            put_whole(w, r);
        else
            put_token_value(w, r);
    }
}

/* Whether some sum is of vectors along rows. */
static bool sums_dealt(const Walk *w)
{
    for (int i = 0; i < w->k->nnodes; i++)
        if (makes_parts(w, w->k->node[i]) && is_down(w, w->k->node[i])
            && token_sums_vectors(w->s, w->k->node[i]))
            return true;
    return false;
}

/* As arrays, before the tile's loop; how many. */
static int put_dealt(Walk *w, Ref *of)
{
    int found = list_dealt(w, of);

    if (!found && !sums_dealt(w))
        return 0;
    for (int i = 0; i < found; i++)
        buf_printf(w->b, "float e%u[%d];\n", (unsigned)of[i], dealt_count(w));
    w->dealt = true;
    open_dealt(w);
    put_dealt_values(w);
    for (int i = 0; i < found; i++)
        buf_printf(w->b, "e%u[j] = %s;\n", (unsigned)of[i],
                   token_element(w, of[i]));
    buf_printf(w->b, "}\n");
    w->dealt = false;
    return found;
}

/* A program's loop over its tile: rows, and in these columns. */
void open_tile(Walk *w)
{
    Ref *of = ctx_alloc(w->c, w->g->len * sizeof *of);
    int found = put_dealt(w, of);

    buf_printf(w->b, "UNROLL\nfor (int i = 0; i < %d; i++) {\n",
               (int)regtile_rows(w->s));
    for (int i = 0; i < found; i++)
        buf_printf(w->b, "const float v%u = dealt_at<%d>(e%u, i);\n",
                   (unsigned)of[i], w->s->tokens.warp_cols / REGTILE_PIECE,
                   (unsigned)of[i]);
    buf_printf(w->b, "UNROLL\nfor (int u = %d * i; u < %d * i + %d; u++) {\n",
               REGTILE_PIECE, REGTILE_PIECE, REGTILE_PIECE);
    put_element_coords(w);
}

/* Of the program in hand, what stands before its loop. */
void put_before_loop(Walk *w)
{
    for (int i = 0; i < w->k->nnodes; i++)
        if (makes_parts(w, w->k->node[i]))
            continue;
        else if (is_gathered(w, w->k->node[i]))
            put_gathered(w, w->k->node[i]);
        else if (is_alike(w, w->k->node[i]))
            (token_sums(w->s, w->k->node[i]) ? put_whole : put_token_value)(
                w, w->k->node[i]);
}

/* For one element of a thread's register tile. */
void put_tile_value(Walk *w, Ref r, uint8_t *done)
{
    if (is_gathered(w, r))
        buf_printf(w->b, "const float v%u = w%u[u %% %d];\n", (unsigned)r,
                   (unsigned)r, REGTILE_PIECE);
    else if (is_alike(w, r) || is_dealt(w, r))
        return;
    else if (token_sums_parts(w->s, r))
        put_whole(w, r);
    else if (token_sums(w->s, r))
        put_sum(w, r, false, done);
    else
        put_token_value(w, r);
}

/* What the warp's threads have added up, to the warp's part of value v. */
static void put_warp_sum(Walk *w, int v)
{
    const Schedule *s = w->s;
    Ref r = value_at(&w->p, v)->node;
    bool down = is_down(w, r);
    int parts = value_at(&w->p, v)->parts;
    int pieces = s->tokens.warp_cols / REGTILE_PIECE;
    int len = flat_extent(w->s, r, down ? s->tokens.col : s->tokens.row);
    Buf *b = w->b;

    if (token_sums_vectors(s, r)) {
        buf_printf(b, "regtile_sum_one<%d, %s>(s%u[0], t%d + %s%s, %s == 0);\n",
                   pieces, down ? "true" : "false", (unsigned)r, v,
                   ranks_text(w, r, parts),
                   down ? "regtile_down" : "regtile_across",
                   down ? "regtile_across" : "regtile_down");
        return;
    }
    if (down)
        buf_printf(b, "regtile_sum<%d>(s%u, ", pieces, (unsigned)r);
    else
        buf_printf(b, "regtile_sum_across<%d, %d, %s>(s%u, regtile_row, ",
                   pieces, (int)block_extent(s, s->tokens.row),
                   regtile_whole(s) ? "true" : "false", (unsigned)r);
    buf_printf(b, "t%d + %s%s * %d%s);\n", v, ranks_text(w, r, len * parts),
               down ? "regtile_down" : "regtile_across", len,
               down ? " + regtile_col" : "");
}

/* What the sum of value v is of: whole tiles; columns, or rows. */
typedef enum Terms { OF_TILES, OF_COLUMNS, OF_ROWS } Terms;

static Terms terms_in(const Walk *w, int v)
{
    Ref r = value_at(&w->p, v)->node;
    return !token_sums_vectors(w->s, r) ? OF_TILES
         : is_down(w, r) ? OF_ROWS : OF_COLUMNS;
}

/* A loop over the elements that such sums have, where there are some. */
static void put_terms(Walk *w, Terms terms)
{
    const KInst *k = w->k;
    uint8_t *done = ctx_alloc(w->c, w->g->len);
    bool any = false;

    for (int i = 0; i < k->nout; i++)
        any |= terms_in(w, k->out[i]) == terms;
    if (!any)
        return;
    if (terms == OF_TILES)
        open_tile(w);
    else
        open_elements(w, REGTILE_PIECE);
    for (int i = 0; i < k->nnodes; i++)
        if (!makes_parts(w, k->node[i])
            && (terms == OF_TILES || !is_regtile(w->s, k->node[i])))
            put_tile_value(w, k->node[i], done);
    for (int i = 0; i < k->nout; i++) {
        Ref r = value_at(&w->p, k->out[i])->node;
        if (terms_in(w, k->out[i]) == terms)
            buf_printf(w->b, "s%u[%s] += %s;\n", (unsigned)r,
                       terms == OF_COLUMNS ? "0" : ctx_format(w->c, "u %s %d",
                       is_down(w, r) ? "%" : "/", REGTILE_PIECE),
                       token_term(w, r));
    }
    buf_printf(w->b, terms == OF_TILES ? "}\n}\n" : "}\n");
}

/* Of a thread's own, and of those that the warp's other threads have. */
void put_partial(Walk *w)
{
    const Schedule *s = w->s;
    const KInst *k = w->k;
    AxisSet ranks = w->g->n[value_at(&w->p, k->out[0])->node].axes
                  & ~s->tokens.regtile;
    bool rows = true;

    for (AxisSet a = ranks; a; a &= a - 1) {
        const char *x = token_coord(w, lowest(a));
        buf_printf(w->b, "for (int %s = 0; %s < %d; %s++)\n", x, x,
                   (int)flat_extent(w->s, value_at(&w->p, k->out[0])->node,
                                     lowest(a)), x);
    }
    buf_printf(w->b, "{\n");
    for (int i = 0; i < k->nout; i++) {
        Ref r = value_at(&w->p, k->out[i])->node;
        Terms terms = terms_in(w, k->out[i]);
        rows &= terms != OF_TILES;
        buf_printf(w->b, "float s%u[%d] = { 0 };\n", (unsigned)r,
                   terms != OF_TILES ? 1 : is_down(w, r) ? REGTILE_PIECE
                   : (int)regtile_rows(s));
    }
    put_before_loop(w);
    if (rows)                           /* else the tile's loop begins so */
        put_dealt(w, ctx_alloc(w->c, w->g->len * sizeof(Ref)));
    put_terms(w, OF_TILES);
    put_terms(w, OF_COLUMNS);
    for (int i = 0; i < k->nout; i++)
        put_warp_sum(w, k->out[i]);
    buf_printf(w->b, "}\n");
}
