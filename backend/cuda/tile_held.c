/* tile_held.c -- matrices of a step that stay in the threads' registers: states
 * that are loaded, changed and stored once a token would go through shared
 * memory for nothing. A thread has four neighbours of some rows; what is
 * element by element is done there, and sums over the rows are put together.
 */
#include "tile.h"

/* Registers that a thread may give to states; neighbours that it has. */
enum { MOST = 32, PIECE = 4 };

static int32_t rows_apart(const Tiles *t)
{
    return t->out->threads
         / (tile_extent(t, t->held_like, highest(t->held)) / PIECE);
}

static int32_t rows_of(const Tiles *t)
{
    return tile_extent(t, t->held_like, lowest(t->held));
}

int held_count(const Tiles *t)
{
    return PIECE * ((rows_of(t) + rows_apart(t) - 1) / rows_apart(t));
}

/* Whole pieces in a warp. */
static bool divides(const Tiles *t, int states)
{
    int32_t cols = tile_extent(t, t->held_like, highest(t->held));
    int32_t pieces = cols / PIECE;

    return cols % PIECE == 0 && pieces && WARP_SIZE % pieces == 0
        && held_count(t) * states <= MOST;
}

static bool is_alike(const Tiles *t, Ref r)
{
    double x;

    return t->g->n[r].axes == t->held && tile_type(t, r) == F32
        && !constant_of(t, r, &x) && !t->pre[r]
        && t->ext[r][highest(t->held)]
        == t->ext[t->held_like][highest(t->held)]
        && t->ext[r][lowest(t->held)]
        == t->ext[t->held_like][lowest(t->held)];
}

/* Whether the node, if it has to do with such matrices, does what can be done
 * where they are. */
static bool goes_along(const Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];
    bool reads = false, all = (n->axes & t->held) == t->held;

    for (int i = 0; i < 4; i++)
        reads |= (t->g->n[n->a[i]].axes & t->held) == t->held;
    if (n->op == OP_dot || n->op == OP_sum)
        return !all && (!reads || (n->over == (t->held & -t->held)
                                   && n->axes == (t->held & (t->held - 1))));
    if (n->op == OP_state)
        return !all || is_alike(t, r);
    return all ? is_alike(t, r) && op_info[n->op].traits & ELEMENTWISE
               : !reads;
}

static bool can_hold(const Tiles *t)
{
    int states = 0;

    for (int s = 0; s < t->g->nst; s++) {
        const State *st = &t->g->st[s];
        if (!(t->k->states & STATE(s)) || st->axes != t->held)
            continue;
        states++;
        if (st->order[st->rank - 1] != highest(t->held)
            || t->g->n[st->next].axes != t->held)
            return false;
    }
    for (int i = 0; i < t->k->nnodes; i++)
        if (!goes_along(t, t->k->node[i]) || t->p->stored[t->k->node[i]])
            return false;
    for (int i = 0; i < t->g->nout; i++)
        if ((t->g->n[t->g->out[i].node].axes & t->held) == t->held)
            return false;
    return divides(t, states);
}

void find_held(Tiles *t)
{
    for (int s = 0; s < t->g->nst && t->m->chunk == 1; s++) {
        AxisSet axes = t->g->st[s].axes;
        if (!(t->k->states & STATE(s)) || t->k->kind != K_FORWARD
            || t->g->st[s].rank != 2)
            continue;
        t->held = axes;
        t->held_like = t->g->st[s].node;
        if (can_hold(t))
            return;
    }
    t->held = 0;
}

void held_declare(const Tiles *t, Buf *b)
{
    int pieces = tile_extent(t, t->held_like, highest(t->held)) / PIECE;

    buf_printf(b, "const int held_row = TID / %d, held_col = TID %% %d * %d;"
               "\n", pieces, pieces, PIECE);
}

void held_open(const Tiles *t, Buf *b)
{
    buf_printf(b, "UNROLL\nfor (int u = 0; u < %d; u++) {\n"
               "const int %s = held_row + u / %d * %d, %s = held_col + u %% %d;"
               "\n", held_count(t), axis_coord(lowest(t->held)), PIECE,
               (int)rows_apart(t), axis_coord(highest(t->held)), PIECE);
    if (rows_of(t) % rows_apart(t))
        buf_printf(b, "if (%s >= %d)\ncontinue;\n",
                   axis_coord(lowest(t->held)), (int)rows_of(t));
}

/* What to call between tensor and registers. */
void held_move(const Tiles *t, Buf *b, bool store)
{
    buf_printf(b, "%s<%d, %d>", store ? "held_out" : "held_in",
               (int)rows_of(t), (int)rows_apart(t));
}

/* A sum over the rows: of a thread's own, of those of its column's threads in
 * the warp, and of the warps'. */
void emit_held_sum(Tiles *t, Ref r, const Chain *k,
                   void terms(Tiles *, Act *, Buf *, Ref))
{
    Act *a = act_begin(t, r);
    Buf *b = &a->text;
    int cols = tile_extent(t, r, highest(t->held));
    int warps = t->out->threads / WARP_SIZE, tile = tile_new(t, r, false);

    t->tile[tile].elements = cols * warps;
    act_uses(t, a, tile, true);
    buf_printf(b, "{\nfloat sum[%d] = { 0 };\n", PIECE);
    held_open(t, b);
    buf_printf(b, "float x = 0;\n");
    terms(t, a, b, r);
    buf_printf(b, "sum[u %% %d] += x;\n}\n"
               "held_sum<%d>(sum, t%d + WARP * %d + held_col);\n"
               "__syncthreads();\n", PIECE, cols / PIECE, tile, cols);
    loop_open(t, b, "TID", "THREADS", r, t->g->n[r].axes);
    buf_printf(b, "float x = 0;\nUNROLL\nfor (int w = 0; w < WARPS; w++)\n"
               "x += t%d[w * %d + %s];\n", tile, cols,
               axis_coord(highest(t->held)));
    chain_body(t, a, b, k);
    buf_printf(b, "}\n}\n");
    chain_done(t, k);
}
