/* found.c -- of single tokens, before a plan is cut: sums over matrices that
 * wait for other sums, made of sums that do not.
 *
 * A delta rule reads its state twice: u = v - k S, and y = q (S + k u). The
 * second sum waits until all threads have put the first together. It is linear
 * in what it reads, and so q S + (q k) u: both sums over S are begun at once,
 * with one of vectors, and threads wait for one another once. What a term does
 * to the state before other sums enter it stays as it is: q (a S), not (q a) S,
 * so that a decay is as far down as it was.
 */
#include "schedule.h"
#include "../cost.h"
#include "../eval.h"

typedef struct Found {
    Graph *g;
    AxisSet axes;                       /* of the matrices */
    int *depth, known;                  /* per node, of the first */
} Found;

static bool is_matrix(const Found *x, Ref r)
{
    return (x->g->n[r].axes & x->axes) == x->axes;
}

/* What takes all threads: over an axis that they share out. */
static bool is_shared_sum(const Found *x, const Node *n)
{
    return op_is(n->op, FOLDS) && !op_is(n->op, MOVES) && n->over & x->axes;
}

/* How many sums stand behind one another in it. What tokens have alike is there
 * before them. */
static int depth_of(Found *x, Ref r)
{
    for (; x->known <= (int)r; x->known++) {
        const Node *n = &x->g->n[x->known];
        int most = 0;
        for (int i = 0; i < 4; i++)
            if (n->a[i] && x->depth[n->a[i]] > most)
                most = x->depth[n->a[i]];
        x->depth[x->known] = !n->timed && !n->states ? 0
                           : most + is_shared_sum(x, n);
    }
    return x->depth[r];
}

static Ref sum_times(Found *x, Ref w, Ref r, AxisSet over);

/* A factor that is the same along the axis scales the sum; one that lies along
 * it alone goes to the other. */
static Ref sum_of_product(Found *x, Ref w, const Node *n, AxisSet over)
{
    Graph *g = x->g;
    for (int i = 0; i < 2; i++)
        if (!(g->n[n->a[i]].axes & over)) {
            Ref rest = sum_times(x, w, n->a[!i], over);
            return rest ? op2(g, OP_mul, n->a[i], rest) : 0;
        }
    for (int i = 0; i < 2; i++)
        if (!is_matrix(x, n->a[i]))
            return sum_times(x, op2(g, OP_mul, w, n->a[i]), n->a[!i], over);
    return 0;
}

static Ref sum_of_quotient(Found *x, Ref w, const Node *n, AxisSet over)
{
    if (x->g->n[n->a[1]].axes & over)
        return 0;
    Ref rest = sum_times(x, w, n->a[0], over);
    return rest ? op2(x->g, OP_div, rest, n->a[1]) : 0;
}

/* A matrix that is itself a sum over ranks, of which one side lies along the
 * axis. */
static Ref sum_of_ranks(Found *x, Ref w, const Node *n, AxisSet over)
{
    Graph *g = x->g;
    for (int i = 0; i < 2; i++)
        if (g->n[n->a[i]].axes & over && !(g->n[n->a[!i]].axes & over)
            && !((g->n[w].axes | x->axes) & n->over))
            return dot(g, n->a[!i], dot(g, w, n->a[i], over), n->over);
    return 0;
}

/* The sum over the axis of w times r; 0: r is not linear in its matrices. */
static Ref sum_times(Found *x, Ref w, Ref r, AxisSet over)
{
    Graph *g = x->g;
    const Node n = g->n[r];

    if (!is_matrix(x, r) || !depth_of(x, r))
        return dot(g, w, r, over);
    if (n.op == OP_neg) {
        Ref a = sum_times(x, w, n.a[0], over);
        return a ? op1(g, OP_neg, a) : 0;
    }
    if (n.op == OP_add || n.op == OP_sub) {
        Ref a = sum_times(x, w, n.a[0], over);
        Ref b = a ? sum_times(x, w, n.a[1], over) : 0;
        return b ? op2(g, n.op, a, b) : 0;
    }
    return n.op == OP_mul ? sum_of_product(x, w, &n, over)
         : n.op == OP_div ? sum_of_quotient(x, w, &n, over)
         : is_plain_contraction(n.op) ? sum_of_ranks(x, w, &n, over) : 0;
}

/* Sums of vectors among nodes from `from` on. */
static int count_vectors(const Found *x, Ref from)
{
    int n = 0;
    for (Ref r = from; r < x->g->len; r++) {
        const Node *u = &x->g->n[r];
        n += is_shared_sum(x, u) && !is_matrix(x, u->a[0])
          && !is_matrix(x, u->a[1]);
    }
    return n;
}

/* The sum, with operands a, where that is less deep so; 0: it is not, or takes
 * longer. To wait for one another, and to go through the matrix again for what
 * has been waited for, takes threads as long as some sums of vectors. */
static Ref sum_found(void *ud, Graph *g, const Node *n, const Ref a[4],
                     const Ref *image)
{
    enum { WAIT = 8 };                  /* sums of vectors */
    Found *x = ud;
    AxisSet over = n->over;
    Ref from = (Ref)g->len;

    (void)image;
    x->g = g;
    if (!is_plain_contraction(n->op) || over & (over - 1) || !(over & x->axes))
        return 0;
    for (int i = 0; i < 2; i++) {
        Ref m = a[i], w = a[!i];
        if (g->n[m].axes != x->axes || (g->n[w].axes & x->axes) != over
            || !depth_of(x, m))
            continue;
        Ref r = sum_times(x, w, m, over);
        int most = depth_of(x, w) > depth_of(x, m) ? depth_of(x, w)
                                                   : depth_of(x, m);
        int saved = r ? most + 1 - depth_of(x, r) : 0;
        return count_vectors(x, from) < WAIT * saved ? r : 0;
    }
    return 0;
}

const Plan *plan_sums_found(Ctx *c, const Plan *p)
{
    AxisSet axes = 0;

    for (int i = 0; i < p->g->nst && !axes; i++)
        axes = p->g->st[i].rank == 2 ? p->g->st[i].axes : 0;
    Found x = { NULL, axes, ctx_alloc(c, MAX_NODES * sizeof *x.depth), 0 };
    return axes ? plan_rewritten(c, p, sum_found, &x) : p;
}
