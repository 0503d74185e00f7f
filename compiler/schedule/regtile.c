/* regtile.c -- matrices of single tokens that stay in the threads' registers:
 * states that are loaded, changed and stored once a token would go through
 * shared memory for nothing. A thread has four neighbours of some rows; what is
 * element by element is done there, and sums over the rows are put together.
 */
#include "schedule.h"
#include "../eval.h"

#include <math.h>

enum { UNIT_REGISTERS = 65536, WARP_SIZE = 32 };

static int32_t cols_of(const Schedule *s)
{
    return block_extent(s, s->tokens.col);
}

static int32_t rows_of(const Schedule *s)
{
    return block_extent(s, s->tokens.row);
}

int regtile_across(const Schedule *s)
{
    return cols_of(s) / s->tokens.warp_cols;
}

int regtile_down(const Schedule *s)
{
    return s->tokens.threads / WARP_SIZE / regtile_across(s);
}

int regtile_threads_down(const Schedule *s)
{
    return WARP_SIZE / (s->tokens.warp_cols / REGTILE_PIECE) * regtile_down(s);
}

/* One after the other: a warp's loads are then spread over the matrix, and with
 * them those of all blocks over the memory's channels. */
int32_t regtile_rows(const Schedule *s)
{
    int down = regtile_threads_down(s);
    return (rows_of(s) + down - 1) / down;
}

int regtile_count(const Schedule *s)
{
    return REGTILE_PIECE * regtile_rows(s);
}

bool regtile_whole(const Schedule *s)
{
    return rows_of(s) % regtile_rows(s) == 0
        && rows_of(s) / regtile_rows(s) == regtile_threads_down(s);
}

/* ---- what goes along ---- */

/* Whether the sum is one over rows or over columns; of ranks, if it has some,
 * one each. */
static bool sums_along(const Schedule *s, const Node *n)
{
    AxisSet regtile = s->tokens.regtile, over = n->over,
        ranks = n->axes & ~regtile;

    for (int i = 0; i < 2; i++)
        if (s->g->n[n->a[i]].axes & ~(regtile | ranks))
            return false;
    return over && !(over & (over - 1)) && over & regtile
        && (n->axes & regtile) == (regtile & ~over);
}

/* Whether the node, if it has to do with such matrices, does what can be done
 * where they are. Parts of matrices are none: all have whole axes. */
static bool goes_along(const Schedule *s, const int32_t (*ext)[NAXES], Ref r)
{
    const Node *n = &s->g->n[r];
    AxisSet regtile = s->tokens.regtile;
    bool reads = false, all = (n->axes & regtile) == regtile;
    bool alike = n->axes == regtile;

    for (int i = 0; i < 4; i++)
        reads |= (s->g->n[n->a[i]].axes & regtile) == regtile;
    for (AxisSet a = n->axes & regtile; a && alike; a &= a - 1)
        alike &= ext[r][lowest(a)] == s->g->axis[lowest(a)].size;
    if (op_is(n->op, FOLDS) && !op_is(n->op, MOVES))
        return all ? !reads && alike : !reads || sums_along(s, n);
    if (n->op == OP_state)
        return !all || alike;
    return all ? alike && op_info[n->op].traits & ELEMENTWISE : !reads;
}

/* How many such states there are, if all that has to do with them goes along;
 * or 0. */
static int can_hold(const Schedule *s, const int32_t (*ext)[NAXES])
{
    const Graph *g = s->g;
    int states = 0;

    for (int i = 0; i < g->nst; i++) {
        const State *st = &g->st[i];
        if (!(s->k->states & STATE(i)) || st->axes != s->tokens.regtile)
            continue;
        states++;
        if (st->order[st->rank - 1] != s->tokens.col
            || g->n[st->next].axes != s->tokens.regtile)
            return 0;
    }
    for (int i = 0; i < s->k->nnodes; i++)
        if (!goes_along(s, ext, s->k->node[i]) || s->stores[s->k->node[i]])
            return 0;
    for (int i = 0; i < g->nout; i++)
        if ((g->n[g->out[i].node].axes & s->tokens.regtile)
            == s->tokens.regtile)
            return 0;
    return states;
}

/* ---- who has what ---- */

/* A block's share of the axis that blocks can share, its threads, and the
 * columns of a warp. */
typedef struct Shape { int slices, threads, warp; } Shape;

static void take_shape(Schedule *s, int axis, Shape shape)
{
    s->slice_axis = shape.slices > 1 ? axis : 0;
    s->slices = shape.slices;
    s->tokens.threads = shape.threads;
    s->tokens.warp_cols = shape.warp;
}

/* Whole pieces, and all warps with as many. */
static bool divides(const Schedule *s)
{
    int32_t pieces = s->tokens.warp_cols / REGTILE_PIECE;
    int warps = s->tokens.threads / WARP_SIZE;

    return s->tokens.warp_cols % REGTILE_PIECE == 0 && pieces
        && WARP_SIZE % pieces == 0 && cols_of(s) % s->tokens.warp_cols == 0
        && warps % regtile_across(s) == 0
        && (regtile_down(s) == 1 || regtile_threads_down(s) <= rows_of(s));
}

/* Of a thread: its states', and what all else takes. */
static int regtile_registers(const Schedule *s)
{
    return regtile_count(s) * s->tokens.states;
}

/* Whether all else may do with as few, of small steps: where it does not spill,
 * first with all lines (tokens.c), then with those that are wanted first. */
static bool is_close(const Schedule *s, const KernelWish *w)
{
    enum { LEAST = 32, MOST = 64, SMALL = 32 };

    return w->spilled < 2 && s->k->nnodes < SMALL
        && regtile_registers(s) >= LEAST && regtile_registers(s) < MOST;
}

static int regtile_together(const Schedule *s, const KernelWish *w)
{
    enum { REST = 64, MOST = 32 };
    int rest = is_close(s, w) ? regtile_registers(s) : REST;
    int n = UNIT_REGISTERS / ((regtile_registers(s) + rest)
                              * s->tokens.threads);

    return n < 1 ? 1 : n > MOST ? MOST : n;
}

/* Whether blocks that share a head would each read a state that one stores:
 * from a copy, then, of that state before the call, or of all in pools. */
static bool shares_states(const Schedule *s)
{
    for (int i = 0; i < s->g->nst && s->slice_axis; i++)
        if (s->k->states & STATE(i)
            && !(s->g->st[i].axes & AXIS(s->slice_axis)))
            return true;
    return false;
}

/* How much longer than a copy of the states a step takes, about (H200, K and V
 * of 128): rows of memory that a warp has in short pieces, blocks that load
 * much at once, few bytes or threads under way, a thread's instructions besides
 * those for its states, and waiting for one another. */
static double waste(const Schedule *s, const KernelWish *w)
{
    enum { FEW = 64 << 10, REGISTERS = 64, THREADS = 256 };
    double all = 4.0 * rows_of(s) * cols_of(s) * s->tokens.states;
    double there = all * regtile_together(s, w);
    double sum = 24.0 / (4 * s->tokens.warp_cols);

    sum += all / (640 << 10) + 1.0 / regtile_registers(s);
    sum += 20.0 / (s->tokens.threads * regtile_together(s, w));
    sum += s->tokens.threads > THREADS ? 0.05 : 0;
    sum += there < FEW ? FEW / there - 1 : 0;
    sum += regtile_registers(s) > REGISTERS ? 0.2 : 0;
    return sum + (shares_states(s) ? 1 : 0);
}

static bool find_shape(Schedule *s, const KernelWish *w, int axis, int slices)
{
    enum { LEAST = 16, WARPS = 16, REGISTERS = 128 };
    int32_t size = axis ? s->g->axis[axis].size : 1;
    Shape best = { slices, s->tokens.threads, 0 };
    double least = INFINITY;

    for (int32_t slice = size; slice > 0; slice /= 2) {
        for (int warps = 1; warps <= WARPS; warps++)
            for (int cols = REGTILE_PIECE; cols <= REGTILE_PIECE * WARP_SIZE;
                 cols *= 2) {
                Shape shape = { size / slice, warps * WARP_SIZE, cols };
                take_shape(s, axis, shape);
                if (divides(s) && regtile_registers(s) <= REGISTERS
                    && waste(s, w) < least) {
                    least = waste(s, w);
                    best = shape;
                }
            }
        if (slice % (2 * LEAST))
            break;
    }
    take_shape(s, axis, best);
    return least < INFINITY;
}

/* Blocks that a multiprocessor has room for at least: as many as have their
 * states' copies under way side by side, or half of that. */
static int find_resident(const Schedule *s, const KernelWish *w, int spilled)
{
    enum { SMALL = 32 };
    int n = s->tokens.regtile ? regtile_together(s, w)
          : s->k->nnodes < SMALL ? 8 : 6;
    int less = s->tokens.regtile ? n * (4 - spilled) / 4 : n >> spilled;
    return less ? less : 1;
}

/* A shape that spilled for being close is found anew, and not the number of
 * blocks lowered as well. */
static bool find_shapes(Schedule *s, const KernelWish *w, int axis, int slices)
{
    KernelWish first = *w;

    first.spilled = 0;
    if (!find_shape(s, &first, axis, slices))
        return false;
    bool close = is_close(s, &first), again = close && w->spilled > 1;
    if (again)
        find_shape(s, w, axis, slices);
    s->resident = find_resident(s, again ? w : &first,
                                close ? 0 : w->spilled);
    return true;
}

void schedule_regtile(Schedule *s, const KernelWish *w)
{
    const int32_t (*ext)[NAXES] = graph_extents(s->c, s->g);
    Schedule before = *s;

    for (int i = 0; i < s->g->nst; i++) {
        const State *st = &s->g->st[i];
        if (!(s->k->states & STATE(i)) || st->rank != 2)
            continue;
        *s = before;
        s->tokens.regtile = st->axes;
        s->tokens.col = st->order[1];
        s->tokens.row = (uint8_t)lowest(st->axes & ~AXIS(st->order[1]));
        s->tokens.states = can_hold(s, ext);
        if (s->tokens.states
            && find_shapes(s, w, before.slice_axis, before.slices))
            return;
    }
    *s = before;
    s->resident = find_resident(s, w, w->spilled);
}
