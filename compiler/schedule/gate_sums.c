/* gate_sums.c -- running sums of gates in two parts, before a plan is cut.
 * Decays are exponentials of differences of such sums. In float32 a gate that
 * leaves nothing (LOG_ZERO) takes seven bits from all sums behind it, and each
 * further one more. So a gate is a multiple of a power of two and what is left
 * of it: the multiples add up without rounding, and what is left stays so small
 * that nothing is lost there. A difference is that of the multiples and that of
 * what is left.
 */
#include "schedule.h"

#include "../affine.h"

typedef enum Part { MULTIPLES, LEFT, NPARTS } Part;

/* A power of two: a chunk's gates, as far down as they go, add up to a multiple
 * that a float has. */
static double step_of(const Graph *g)
{
    double most = -(double)LOG_ZERO * g->chunk, step = 0x1p-24;

    while (step * 0x1p24 < most)
        step *= 2;
    return step;
}

static Ref nearest_multiple(Graph *g, Ref gate)
{
    double step = step_of(g);
    Ref times = op2(g, OP_mul, gate, num(g, 1 / step));
    Ref whole = op1(g, OP_floor, op2(g, OP_add, times, num(g, 0.5)));

    return op2(g, OP_mul, whole, num(g, step));
}

/* Of r, a sum of gates of the old graph or a view of one, that part. */
static Ref part_of(Graph *g, const Graph *old, Ref r, Part part,
                   const Ref *image)
{
    const Node n = old->n[r];
    Ref gate = image[n.a[0]];

    if (!adds_tokens(n.op))
        return node_copy(g, &n, (Ref[4]){ part_of(g, old, n.a[0], part,
                                                  image) });
    Ref whole = nearest_multiple(g, gate);
    return node_copy(g, &n, (Ref[4]){ part == MULTIPLES ? whole
                                      : op2(g, OP_sub, gate, whole) });
}

static Ref difference(Graph *g, const Graph *old, Ref a, Ref b,
                      const Ref *image)
{
    Ref of[NPARTS];

    for (Part i = MULTIPLES; i < NPARTS; i++)
        of[i] = op2(g, OP_sub, part_of(g, old, a, i, image),
                    part_of(g, old, b, i, image));
    return op2(g, OP_add, of[MULTIPLES], of[LEFT]);
}

/* The factor that has as many of these axes as there are, tokens first. */
static int factor_along(const Graph *g, AxisSet axes, const Ref x[4])
{
    AxisSet lacks[2];

    for (int i = 0; i < 2; i++)
        lacks[i] = axes & ~g->n[x[i]].axes;
    if (!lacks[0] || !lacks[1])
        return !lacks[1];
    AxisSet tokens = axes & ~DIM_AXES;
    if ((lacks[0] | lacks[1]) & tokens)
        return !(lacks[1] & tokens);
    return !(g->n[x[1]].axes & (ROW_AXES | COL_AXES) & ~tokens);
}

/* What is left of a chunk's gates, summed up, is less than 2^-5, so that its
 * exponential scales either side alone: a factor that has its axes, or, if none
 * has and the sum is over none of them, the product, by what is returned; 0:
 * nothing does. */
static Ref scale_factor(Graph *g, Ref left, AxisSet over, Ref x[4])
{
    Ref by = op1(g, OP_exp, left);
    AxisSet axes = g->n[left].axes;
    int at = factor_along(g, axes, x);

    if (axes & ~g->n[x[at]].axes && !(axes & over))
        return by;
    x[at] = op2(g, OP_mul, x[at], by);
    return 0;
}

/* A product under decays, whose exponents are differences of multiples. */
static Ref decayed_apart(Graph *g, const Graph *old, const Node *n,
                         const Ref a[4], const Ref *image)
{
    Ref later = part_of(g, old, n->a[2], LEFT, image);
    Ref earlier = part_of(g, old, n->a[3], LEFT, image);
    Ref x[4] = { a[0], a[1], part_of(g, old, n->a[2], MULTIPLES, image),
                 part_of(g, old, n->a[3], MULTIPLES, image) };
    Ref by = scale_factor(g, later, n->over, x);
    Ref and = scale_factor(g, op1(g, OP_neg, earlier), n->over, x);
    Ref r = node_copy(g, n, x);

    r = by ? op2(g, OP_mul, r, by) : r;
    return and ? op2(g, OP_mul, r, and) : r;
}

static Ref mask_apart(Graph *g, const Node *n, Ref exponent)
{
    return op3(g, OP_where, dmask(g, 0, 0, n->flags & STRICT),
               op1(g, OP_exp, exponent), num(g, 0));
}

static Ref sums_apart(void *ud, Graph *g, const Node *n, const Ref a[4],
                      const Ref *image)
{
    const Graph *old = ud;
    int at = is_decayed_contraction(n->op) ? 2 : 0;

    if ((!at && n->op != OP_sub && n->op != OP_dmask)
        || !gate_sum(old, n->a[at]) || !gate_sum(old, n->a[at + 1]))
        return 0;
    if (at)
        return decayed_apart(g, old, n, a, image);
    Ref exponent = difference(g, old, n->a[0], n->a[1], image);
    return n->op == OP_sub ? exponent : mask_apart(g, n, exponent);
}

const Plan *plan_gate_sums_apart(Ctx *c, const Plan *p)
{
    return plan_rewritten(c, p, sums_apart, p->g);
}
