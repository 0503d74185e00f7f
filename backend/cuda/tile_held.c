/* tile_held.c -- matrices of a step that stay in the threads' registers: states
 * that are loaded, changed and stored once a token would go through shared
 * memory for nothing. A thread has four neighbours of some rows; what is
 * element by element is done there, and sums over the rows are put together.
 */
#include "tile.h"

#include <math.h>

enum { PIECE = 4, UNIT_REGISTERS = 65536 };

/* Along which such a matrix's numbers lie side by side; its other axis. */
int held_cols(const Tiles *t)
{
    const State *s = &t->g->st[t->g->n[t->held_like].index];

    return s->order[s->rank - 1];
}

int held_rows(const Tiles *t)
{
    return lowest(t->held & ~AXIS(held_cols(t)));
}

static int32_t cols_of(const Tiles *t)
{
    return tile_extent(t, t->held_like, held_cols(t));
}

static int32_t rows_of(const Tiles *t)
{
    return tile_extent(t, t->held_like, held_rows(t));
}

/* Warps side by side, and one below the other. */
static int warps_across(const Tiles *t)
{
    return cols_of(t) / t->held_warp;
}

static int warps_down(const Tiles *t)
{
    return t->out->threads / WARP_SIZE / warps_across(t);
}

/* Threads below one another, and the rows of each, one after the other: a
 * warp's loads are then spread over the matrix, and with them those of all
 * blocks over the memory's channels. */
static int32_t threads_down(const Tiles *t)
{
    return WARP_SIZE / (t->held_warp / PIECE) * warps_down(t);
}

static int32_t thread_rows(const Tiles *t)
{
    return (rows_of(t) + threads_down(t) - 1) / threads_down(t);
}

int held_count(const Tiles *t)
{
    return PIECE * thread_rows(t);
}

static bool is_whole(const Tiles *t)
{
    return rows_of(t) % thread_rows(t) == 0
        && rows_of(t) / thread_rows(t) == threads_down(t);
}

static bool is_alike(const Tiles *t, Ref r)
{
    double x;

    if (t->g->n[r].axes != t->held || tile_type(t, r) != F32
        || constant_of(t, r, &x) || t->pre[r])
        return false;
    for (AxisSet s = t->held; s; s &= s - 1)
        if (t->ext[r][lowest(s)] != t->ext[t->held_like][lowest(s)])
            return false;
    return true;
}

/* Whether the sum is one over rows or over columns; of ranks, if it has some,
 * one each. */
static bool sums_along(const Tiles *t, const Node *n)
{
    AxisSet over = n->over, ranks = n->axes & ~t->held;

    for (int i = 0; i < 2; i++)
        if (t->g->n[n->a[i]].axes & ~(t->held | ranks))
            return false;
    return over && !(over & (over - 1)) && over & t->held
        && (n->axes & t->held) == (t->held & ~over);
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
        return all ? !reads && is_alike(t, r) : !reads || sums_along(t, n);
    if (n->op == OP_state)
        return !all || is_alike(t, r);
    return all ? is_alike(t, r) && op_info[n->op].traits & ELEMENTWISE
               : !reads;
}

/* How many such states there are, if all that has to do with them goes along;
 * or 0. */
static int can_hold(const Tiles *t)
{
    int states = 0;

    for (int s = 0; s < t->g->nst; s++) {
        const State *st = &t->g->st[s];
        if (!(t->k->states & STATE(s)) || st->axes != t->held)
            continue;
        states++;
        if (st->order[st->rank - 1] != held_cols(t)
            || t->g->n[st->next].axes != t->held)
            return 0;
    }
    for (int i = 0; i < t->k->nnodes; i++)
        if (!goes_along(t, t->k->node[i]) || t->p->stored[t->k->node[i]])
            return 0;
    for (int i = 0; i < t->g->nout; i++)
        if ((t->g->n[t->g->out[i].node].axes & t->held) == t->held)
            return 0;
    return states;
}

/* ---- who has what ---- */

/* A block's share of the axis that blocks can share, its threads, and the
 * columns of a warp. */
typedef struct Shape { int32_t slice; int threads, warp; } Shape;

static void take_shape(Tiles *t, int axis, Shape s)
{
    int32_t size = axis < 0 ? 1 : t->g->axis[axis].size;

    t->slice_axis = s.slice < size ? axis : -1;
    t->slice = s.slice;
    t->out->blocks = size / s.slice;
    t->out->row_axis = axis < 0 ? 0 : axis;
    t->out->threads = s.threads;
    t->held_warp = s.warp;
}

/* Whole pieces, and all warps with as many. */
static bool divides(const Tiles *t)
{
    int32_t pieces = t->held_warp / PIECE;
    int warps = t->out->threads / WARP_SIZE;

    return t->held_warp % PIECE == 0 && pieces && WARP_SIZE % pieces == 0
        && cols_of(t) % t->held_warp == 0 && warps % warps_across(t) == 0
        && (warps_down(t) == 1 || threads_down(t) <= rows_of(t));
}

/* Of a thread: its states', and what all else takes. */
static int held_registers(const Tiles *t)
{
    return held_count(t) * t->held_states;
}

/* Whether all else may do with as few, of small steps. */
static bool is_close(const Tiles *t)
{
    enum { LEAST = 32, MOST = 64, SMALL = 32 };

    return !t->held_roomy && t->k->nnodes < SMALL
        && held_registers(t) >= LEAST && held_registers(t) < MOST;
}

int held_together(const Tiles *t)
{
    enum { REST = 64, MOST = 32 };
    int rest = is_close(t) ? held_registers(t) : REST;
    int n = UNIT_REGISTERS / ((held_registers(t) + rest) * t->out->threads);

    return n < 1 ? 1 : n > MOST ? MOST : n;
}

/* Whether blocks that share a head would each read a state that one stores:
 * from a copy, then, of that state before the call, or of all in pools. */
static bool shares_states(const Tiles *t)
{
    for (int s = 0; s < t->g->nst && t->slice_axis >= 0; s++)
        if (t->k->states & STATE(s)
            && !(t->g->st[s].axes & AXIS(t->slice_axis)))
            return true;
    return false;
}

/* How much longer than a copy of the states a step takes, about (H200, K and V
 * of 128): rows of memory that a warp has in short pieces, blocks that load
 * much at once, few bytes or threads under way, a thread's instructions besides
 * those for its states, and waiting for one another. */
static double waste(const Tiles *t)
{
    enum { FEW = 64 << 10, REGISTERS = 64, THREADS = 256 };
    double all = 4.0 * rows_of(t) * cols_of(t) * t->held_states;
    double there = all * held_together(t), sum = 24.0 / (4 * t->held_warp);

    sum += all / (640 << 10) + 1.0 / held_registers(t);
    sum += 20.0 / (t->out->threads * held_together(t));
    sum += t->out->threads > THREADS ? 0.05 : 0;
    sum += there < FEW ? FEW / there - 1 : 0;
    sum += held_registers(t) > REGISTERS ? 0.2 : 0;
    return sum + (shares_states(t) ? 1 : 0);
}

static bool find_shape(Tiles *t, bool any)
{
    enum { LEAST = 16, WARPS = 16, REGISTERS = 128 };
    int axis = t->held_axis, threads = t->m->threads;
    int32_t size = axis < 0 ? 1 : t->g->axis[axis].size;
    Shape best = { axis < 0 ? 1 : t->slice, threads, 0 };
    double least = INFINITY;

    for (int32_t slice = size; slice > 0; slice /= 2) {
        for (int w = 1; w <= WARPS; w++)
            for (int cols = PIECE; cols <= PIECE * WARP_SIZE; cols *= 2) {
                Shape s = { slice, w * WARP_SIZE, cols };
                take_shape(t, axis, s);
                if ((any || s.threads == threads) && divides(t)
                    && held_registers(t) <= REGISTERS && waste(t) < least) {
                    least = waste(t);
                    best = s;
                }
            }
        if (slice % (2 * LEAST))
            break;
    }
    take_shape(t, axis, best);
    return least < INFINITY;
}

void find_held(Tiles *t, bool any)
{
    for (int s = 0; s < t->g->nst && t->m->chunk == 1; s++) {
        AxisSet axes = t->g->st[s].axes;
        if (!(t->k->states & STATE(s)) || t->k->kind != K_FORWARD
            || t->g->st[s].rank != 2)
            continue;
        t->held = axes;
        t->held_like = t->g->st[s].node;
        t->held_states = can_hold(t);
        t->held_axis = t->slice_axis;
        if (t->held_states && find_shape(t, any)) {
            t->held_roomy = t->o->room && is_close(t);
            if (t->held_roomy)          /* it spilled */
                find_shape(t, any);
            return;
        }
    }
    t->held = 0;
}

void held_declare(const Tiles *t, Buf *b)
{
    int pieces = t->held_warp / PIECE, across = warps_across(t);

    buf_printf(b, "const int held_down = WARP / %d, held_across = WARP %% %d;"
               "\nconst int held_row = (held_down * %d + LANE / %d) * %d,"
               " held_col = held_across * %d + LANE %% %d * %d;\n"
               "(void)held_across;\n(void)held_down;\n", across, across,
               WARP_SIZE / pieces, pieces, (int)thread_rows(t), t->held_warp,
               pieces, PIECE);
}

void held_open(const Tiles *t, Buf *b)
{
    const char *row = axis_coord(held_rows(t));

    buf_printf(b, "UNROLL\nfor (int u = 0; u < %d; u++) {\n"
               "const int %s = held_row + u / %d, %s = held_col + u %% %d;\n"
               "(void)%s;\n(void)%s;\n", held_count(t), row, PIECE,
               axis_coord(held_cols(t)), PIECE, row,
               axis_coord(held_cols(t)));
    if (!is_whole(t))
        buf_printf(b, "if (%s >= %d)\ncontinue;\n", row, (int)rows_of(t));
}

/* What to call between tensor and registers. */
void held_move(const Tiles *t, Buf *b, bool store)
{
    buf_printf(b, "%s<%d, %s>", store ? "held_out" : "held_in",
               (int)rows_of(t), is_whole(t) ? "true" : "false");
}

/* What the sum has besides: ranks, one after another. */
static AxisSet ranks_of(const Tiles *t, Ref r)
{
    return t->g->n[r].axes & ~t->held;
}

/* The ranks' joint number, times what each takes. */
static void rank_text(const Tiles *t, Buf *b, Ref r, int each)
{
    int step = each;

    for (AxisSet s = ranks_of(t, r); s; s &= ~AXIS(highest(s))) {
        buf_printf(b, "%s * %d + ", axis_coord(highest(s)), step);
        step *= tile_extent(t, r, highest(s));
    }
}

static void ranks_open(const Tiles *t, Buf *b, Ref r)
{
    for (AxisSet s = ranks_of(t, r); s; s &= s - 1) {
        const char *x = axis_coord(lowest(s));
        buf_printf(b, "for (int %s = 0; %s < %d; %s++)\n", x, x,
                   (int)tile_extent(t, r, lowest(s)), x);
    }
}

/* A sum over rows, or columns: of a thread's own, of those that the warp's
 * other threads have, and of the warps'. */
void emit_held_sum(Tiles *t, Ref r, const Chain *k,
                   void terms(Tiles *, Act *, Buf *, Ref))
{
    Act *a = act_begin(t, r);
    Buf *b = &a->text;
    bool down = t->g->n[r].over == AXIS(held_rows(t));
    int ax = down ? held_cols(t) : held_rows(t), ranks = 1;
    int warps = down ? warps_down(t) : warps_across(t);
    int own = down ? PIECE : held_count(t) / PIECE;
    int len = tile_extent(t, r, ax), tile = tile_new(t, r, false);
    const char *at = ctx_format(t->c, down ? "u %% %d" : "u / %d", PIECE);

    for (AxisSet s = ranks_of(t, r); s; s &= s - 1)
        ranks *= tile_extent(t, r, lowest(s));
    t->tile[tile].elements = len * warps * ranks;
    act_uses(t, a, tile, true);
    buf_printf(b, "{\n");
    ranks_open(t, b, r);
    buf_printf(b, "{\nfloat sum[%d] = { 0 };\n", own);
    held_open(t, b);
    buf_printf(b, "float x = sum[%s];\n", at);
    terms(t, a, b, r);
    buf_printf(b, "sum[%s] = x;\n}\n", at);
    if (down)
        buf_printf(b, "held_sum<%d>(sum, ", t->held_warp / PIECE);
    else
        buf_printf(b, "held_sum_across<%d, %d, %s>(sum, held_row, ",
                   t->held_warp / PIECE, (int)rows_of(t),
                   is_whole(t) ? "true" : "false");
    buf_printf(b, "t%d + ", tile);
    rank_text(t, b, r, len * warps);
    buf_printf(b, "%s * %d%s);\n}\n__syncthreads();\n", down ? "held_down"
               : "held_across", len, down ? " + held_col" : "");
    loop_open(t, b, "TID", "THREADS", r, t->g->n[r].axes);
    buf_printf(b, "float x = 0;\nUNROLL\nfor (int w = 0; w < %d; w++)\n"
               "x += t%d[", warps, tile);
    rank_text(t, b, r, len * warps);
    buf_printf(b, "w * %d + %s];\n", len, axis_coord(ax));
    chain_body(t, a, b, k);
    buf_printf(b, "}\n}\n");
    chain_done(t, k);
}
