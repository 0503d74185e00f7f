/* mask_pairs.c -- what a mask says of a pair of tokens, where all pairs are
 * taken: pieces of the plane of i and j, a scalar in each, and its gradient.
 */
#include "fold.h"
#include "mask.h"

#include <math.h>
#include <string.h>

/* ---- logits ---- */

static Ref log_of(Mask *m, Ref r);

/* Of a product the sum, where one of the two is an exponential; where neither
 * is, both may be negative. */
static Ref log_of_product(Mask *m, Ref a, Ref b)
{
    Graph *g = m->g;

    if (g->n[a].op == OP_exp)
        return op2(g, OP_add, g->n[a].a[0], log_of(m, b));
    if (g->n[b].op == OP_exp)
        return op2(g, OP_add, log_of(m, a), g->n[b].a[0]);
    return 0;
}

/* The logarithm of L, as it was before it was an exponential; of a condition,
 * 0 or minus infinity. */
static Ref log_of(Mask *m, Ref r)
{
    Graph *g = m->g;
    const Node n = g->n[r];
    Ref y = 0;

    mask_work(m);
    switch ((enum Op)n.op) {
    case OP_num:
        if (n.num < 0)
            fail_help(m->ctx, n.line, "give a score function what it is to "
                      "add: score = function (s, i, j, p) return s - 1 end",
                      "the mask of a softmax is a weight, and %g is negative",
                      n.num);
        return num(g, log(n.num));
    case OP_exp:
        return n.a[0];
    case OP_mul:
        y = log_of_product(m, n.a[0], n.a[1]);
        break;
    case OP_where:
        return op3(g, OP_where, n.a[0], log_of(m, n.a[1]),
                   log_of(m, n.a[2]));
    case OP_lt: case OP_le: case OP_eq:
        return op3(g, OP_where, r, num(g, 0), num(g, -INFINITY));
    default:
        break;
    }
    return y ? y : op1(g, OP_log, r);
}

static void make_logits(Mask *m)
{
    for (int p = 0; p < m->npaths; p++) {
        MaskPath *at = &m->path[p];
        Ref l = log_of(m, at->value);
        at->value = !at->score || pair_masked(m, l) ? num(m->g, -INFINITY)
            : op2(m->g, OP_add, at->score, l);
    }
}

bool pair_masked(const Mask *m, Ref value)
{
    const Node *n = &m->g->n[value];

    if (n->op == OP_num)
        return n->num == (m->softmax ? -INFINITY : 0);
    return m->softmax && n->op == OP_add
        && (pair_masked(m, n->a[0]) || pair_masked(m, n->a[1]));
}

bool mask_ends(const Mask *m, Reach *reach)
{
    *reach = (Reach){ 0 };
    for (int p = 0; p < m->npieces; p++) {
        Region r = region_closed(&m->piece[p].at);
        int64_t far = r.hi[VAR_DISTANCE], last = r.hi[VAR_J];
        if (pair_masked(m, m->piece[p].value) || far < 0 || last < 0)
            continue;
        if (far >= REGION_INF / 2 && last >= REGION_INF / 2)
            return false;
        if (far <= last)
            reach->width = far < reach->width ? reach->width : far + 1;
        else
            reach->first = last < reach->first ? reach->first : last + 1;
    }
    return m->npieces > 0;
}

double pair_scale(const Mask *m, int64_t key)
{
    if (!m->softmax)
        return 1;
    return m->scale ? m->scale : 1 / sqrt((double)key);
}

static void put_result(Mask *m, Graph *g)
{
    Ref q = g->in[graph_find_input(g, "q")].node;
    Ref k = g->in[graph_find_input(g, "k")].node;
    Ref v = g->in[graph_find_input(g, "v")].node;

    graph_output(g, "y", op2(g, OP_mul, dot(g, q, k, g->n[k].axes), v));
    g->mask = m;
}

void mask_weights(Mask *m, Graph *g)
{
    m->weighs = true;
    put_result(m, g);
}

void mask_own_weights(Mask *m, Graph *g)
{
    m->work = 0;
    mask_pieces(m);                     /* it is causal, if it is to be */
    if (m->softmax)
        make_logits(m);
    mask_own_pieces(m);
    put_result(m, g);
}

void mask_pairs(Mask *m, Graph *g)
{
    mask_own_weights(m, g);
    g->note = m->softmax ? "softmax: every pair of tokens by itself"
        : "mode \"quadratic\": every pair of tokens by itself";
}

/* ---- what becomes of it by small steps ---- */

/* Reverse mode on the mask's own graph: scalars, in its element-wise ops. */
void pair_derive(Mask *m, Ref root, Ref of[MAX_INPUTS])
{
    Graph *g = m->g;
    Ref *d = ctx_alloc(m->ctx, (root + 1) * sizeof *d);

    d[root] = num(g, 1);
    for (Ref r = root; r > 0; r--) {
        const Node n = g->n[r];
        if (!d[r])
            continue;
        if (n.op == OP_input)
            of[n.index] = d[r];
        for (int i = 0; i < op_info[n.op].arity; i++) {
            Ref x = fold_gradient(g, r, i, d[r]), *to = &d[n.a[i]];
            if (!is_num(g, x, 0))
                *to = *to ? op2(g, OP_add, *to, x) : x;
        }
    }
}

static bool is_sum_of(const Mask *m, int leaf, const char *name)
{
    return m->leaf[leaf].kind == LEAF_CUMSUM
        && !strcmp(m->leaf[leaf].name, name);
}

/* By how much node r grows where the cumulative sum of `name` does so at each
 * token, by 1, when `d` says that of its operands: 0 where r takes differences
 * of it alone; NAN: that cannot be said. */
static double drift(const Mask *m, Ref r, const char *name, const double *d)
{
    const Graph *g = m->g;
    const Node *n = &g->n[r];
    double a = d[n->a[0]], b = d[n->a[1]];
    bool still = true;

    if (n->op == OP_input)
        return is_sum_of(m, n->index, name);
    for (int i = 0; i < op_info[n->op].arity; i++)
        still = still && d[n->a[i]] == 0;
    if (still)
        return 0;
    if (n->op == OP_add || n->op == OP_sub)
        return n->op == OP_add ? a + b : a - b;
    if (n->op == OP_neg)
        return -a;
    if (n->op == OP_mul && g->n[n->a[0]].op == OP_num)
        return g->n[n->a[0]].num * b;
    if (n->op == OP_mul && g->n[n->a[1]].op == OP_num)
        return a * g->n[n->a[1]].num;
    return NAN;
}

bool pair_by_differences(const Mask *m, const char *name)
{
    double *d = ctx_alloc(m->ctx, m->g->len * sizeof *d);

    for (Ref r = 1; r < m->g->len; r++)
        d[r] = drift(m, r, name, d);
    for (int p = 0; p < m->npieces; p++)
        if (d[m->piece[p].value] != 0)
            return false;
    return true;
}
