/* ranks_apart.c -- ranks as values of their own, before a plan is scheduled.
 *
 * Several writes or reads a token stand beside the token axis, as ranks. They
 * are taken apart: a product that contracts a rank is a sum of products, one a
 * rank, of values that have none; what joins ranks (cat) or takes them apart
 * says which. New nodes are added behind the others: all else keeps its number.
 */
#include "schedule.h"

#define RANK_ROWS (ROW_AXES & ~AXIS(AX_I))
#define RANK_COLS (COL_AXES & ~AXIS(AX_J))
#define RANKS (RANK_ROWS | RANK_COLS)

enum { MOST = 8, MAX_SUMS = 64 };       /* ranks of one axis; sums over them */

typedef struct Unrank {
    Graph *g;
    Ref *memo;                          /* per node, row rank, column rank */
    Ref sum[MAX_SUMS];
    int nsums;
    bool stays;                         /* some rank does */
} Unrank;

static Ref at(Unrank *u, Ref r, int row, int col);

static Ref impossible(Unrank *u, Ref r)
{
    u->stays = true;
    return r;
}

/* ---- sums ---- */

static bool is_sum(const Unrank *u, Ref r)
{
    for (int i = 0; i < u->nsums; i++)
        if (u->sum[i] == r)
            return true;
    return false;
}

/* Products are added one by one: each to what the last one left. */
static Ref add(Unrank *u, Ref base, Ref x)
{
    Ref a = u->g->n[x].a[0], b = u->g->n[x].a[1];
    return is_sum(u, x) ? add(u, add(u, base, a), b)
                        : op2(u->g, OP_add, base, x);
}

static int ranks_of(const Unrank *u, const Node *n, AxisSet over)
{
    for (int i = 0; i < 2 && over; i++)
        if (u->g->n[n->a[i]].axes & over)
            return axis_extent(u->g, n->a[i], lowest(over));
    return 1;
}

/* A sum, or a product, gated or not, over a rank and, mostly, something else.
 */
static Ref contracted(Unrank *u, Node n, int row, int col)
{
    AxisSet over = n.over & RANKS;
    Ref total = 0;
    for (int t = 0; t < ranks_of(u, &n, over); t++) {
        Node x = n;
        x.over &= ~RANKS;
        for (int i = 0; i < 4 && n.a[i]; i++) {
            AxisSet own = u->g->n[n.a[i]].axes & over;
            x.a[i] = at(u, n.a[i], own & RANK_ROWS ? t : row,
                        own & RANK_COLS ? t : col);
        }
        if (!x.over && n.a[2])          /* gates */
            return impossible(u, n.a[0]);
        Ref one = x.over ? node_new(u->g, x) : x.a[0];
        if (!x.over && op_is(x.op, MULTIPLIES))
            one = op2(u->g, OP_mul, x.a[0], x.a[1]);
        total = total ? op2(u->g, OP_add, total, one) : one;
        if (t && u->nsums < MAX_SUMS)
            u->sum[u->nsums++] = total;
    }
    return total;
}

/* ---- any node ---- */

static Ref with_operands(Unrank *u, Node n, int row, int col)
{
    bool same = true;
    Ref old[4];
    for (int i = 0; i < 4; i++) {
        old[i] = n.a[i];
        n.a[i] = n.a[i] ? at(u, n.a[i], row, col) : 0;
        same &= n.a[i] == old[i];
    }
    if (n.op == OP_add && is_sum(u, n.a[1]))
        return add(u, n.a[0], n.a[1]);
    if (n.op == OP_add && is_sum(u, n.a[0]))
        return add(u, n.a[1], n.a[0]);
    return same ? 0 : node_new(u->g, n);
}

/* The rank that was joined from two. */
static Ref joined(Unrank *u, const Node *n, int row, int col)
{
    int axis = lowest(n->over), *rank = &row;
    if (n->over & RANK_COLS)
        rank = &col;
    int first = axis_extent(u->g, n->a[0], axis);
    if (*rank < first)
        return at(u, n->a[0], row, col);
    *rank -= first;
    return at(u, n->a[1], row, col);
}

static Ref relabelled(Unrank *u, const Node *n, int row, int col)
{
    Ref x = at(u, n->a[0], row, col);
    bool from = n->over & RANKS, to = AXIS(n->index) & RANKS;
    if (from && to)
        return x;
    if (from)
        return impossible(u, x);
    return select_at(u->g, x, lowest(n->over),
                     AXIS(n->index) & RANK_ROWS ? row : col);
}

static Ref node_at_rank(Unrank *u, Ref r, int row, int col)
{
    Node n = u->g->n[r];
    bool ranked = n.over & RANKS;
    u->g->line = n.line;
    if (is_mask(n.op) && ranked)
        return impossible(u, r);
    switch (n.op) {
    case OP_input: case OP_state: case OP_num: case OP_size:
        return r;
    case OP_unit:
        return !ranked ? r
             : num(u->g, (n.over & RANK_ROWS ? row : col) == n.index);
    case OP_cat:
        return ranked ? joined(u, &n, row, col) : impossible(u, r);
    case OP_relabel:
        if (ranked || AXIS(n.index) & RANKS)
            return relabelled(u, &n, row, col);
        break;
    case OP_select: case OP_part:
        if (ranked)
            return at(u, n.a[0], n.over & RANK_ROWS ? n.index + row : row,
                      n.over & RANK_COLS ? n.index + col : col);
        break;
    case OP_sum:
        if (ranked)
            return contracted(u, n, row, col);
        break;
    case OP_solve:
        if (n.axes & RANKS || u->g->n[n.a[0]].axes & RANKS)
            return impossible(u, r);
        break;
    default:
        if (op_is(n.op, VIEWS))
            return node_copy(u->g, &n, (Ref[4]){ at(u, n.a[0], col, row) });
        if (ranked && op_is(n.op, MULTIPLIES))
            return contracted(u, n, row, col);
    }
    Ref x = with_operands(u, n, row, col);
    return x ? x : r;
}

/* Node r's rank `row`, and `col` of the columns': a node without ranks. */
static Ref at(Unrank *u, Ref r, int row, int col)
{
    AxisSet axes = u->g->n[r].axes;
    row = axes & RANK_ROWS ? row : 0;
    col = axes & RANK_COLS ? col : 0;
    if (row >= MOST || col >= MOST)
        return impossible(u, r);
    size_t at = ((size_t)r * MOST + (size_t)row) * MOST + (size_t)col;
    if (!u->memo[at])
        u->memo[at] = node_at_rank(u, r, row, col);
    return u->memo[at];
}

/* Every rank of every node: what nobody reads is found to be dead. */
const Plan *plan_without_ranks(Ctx *c, const Plan *p)
{
    const Graph *g = p->g;
    bool any = false;
    for (Ref r = 1; r < g->len; r++)
        any |= (g->n[r].axes & RANKS) != 0;
    if (!any)
        return p;
    Unrank u = { .g = graph_copy(c, g) };
    u.memo = ctx_alloc(c, sizeof *u.memo * MOST * MOST * g->len);
    for (Ref r = 1; r < g->len && !u.stays; r++) {
        AxisSet rows = g->n[r].axes & RANK_ROWS;
        AxisSet cols = g->n[r].axes & RANK_COLS;
        int n = rows ? axis_extent(g, r, lowest(rows)) : 1;
        int m = cols ? axis_extent(g, r, lowest(cols)) : 1;
        for (int i = 0; i < n * m; i++)
            at(&u, r, i / m, i % m);
    }
    for (int i = 0; i < g->nout; i++)
        u.g->out[i].node = at(&u, g->out[i].node, 0, 0);
    for (int i = 0; i < g->nst; i++)
        u.g->st[i].next = at(&u, g->st[i].next, 0, 0);
    return u.stays ? p : plan_renewed(p, u.g, u.memo, MOST * MOST);
}
