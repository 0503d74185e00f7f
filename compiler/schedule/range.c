/* range.c -- what float16 may not hold: exponentials of what nothing keeps
 * small. 16 bits of bfloat16 have a float's range. What is made of them is
 * large, or small, too: all tiles are then of float32, of which products see as
 * many bits as float16 has.
 */
#include "schedule.h"
#include "../domain.h"

#include <math.h>

typedef struct Range { double low, high; } Range;

static const Range any = { -INFINITY, INFINITY };

static Range both(Range a, Range b)
{
    return (Range){ fmin(a.low, b.low), fmax(a.high, b.high) };
}

static Range negated(Range a)
{
    return (Range){ -a.high, -a.low };
}

static Range added(Range a, Range b)
{
    return (Range){ a.low + b.low, a.high + b.high };
}

/* 0 times an infinity is 0: no number is one. */
static double product(double a, double b)
{
    return a == 0 || b == 0 ? 0 : a * b;
}

static Range multiplied(Range a, Range b)
{
    Range l = { product(a.low, b.low), product(a.low, b.high) };
    Range h = { product(a.high, b.low), product(a.high, b.high) };
    return both(both((Range){ l.low, l.low }, (Range){ l.high, l.high }),
                both((Range){ h.low, h.low }, (Range){ h.high, h.high }));
}

/* Of any number of these. */
static Range summed(Range a)
{
    return (Range){ a.low < 0 ? -INFINITY : 0, a.high > 0 ? INFINITY : 0 };
}

static Range of_input(const Input *in)
{
    const double little = 1e-30, much = 2;
    const Domain *d = in->index_of || in->mapped ? NULL
                                                 : domain_named(in->domain);
    if (!d || d->row)
        return any;
    return (Range){ d->broken(-little) ? 0 : -INFINITY,
                    d->broken(little) ? 0 : d->broken(much) ? 1 : INFINITY };
}

static bool adds_up(int op)
{
    return op_is(op, ADDITIVE) && op_is(op, FOLDS | RECURS)
        && !op_is(op, MOVES);
}

/* The sum of a chunk less that up to a token. */
static bool is_rest(const Graph *g, Ref all, Ref part)
{
    const Node *a = &g->n[shown_node(g, all)];
    const Node *b = &g->n[shown_node(g, part)];
    const Node *sum = &g->n[shown_node(g, a->a[0])];
    bool end = op_is(a->op, MOVES) && a->axes == (sum->axes & ~AXIS(AX_I));
    return end && sum->op == b->op && op_is(b->op, RECURS)
        && adds_up(b->op) && sum->a[0] == b->a[0]
        && !((a->flags | sum->flags | b->flags) & REVERSE)
        && (!(sum->flags & EXCLUSIVE) || b->flags & EXCLUSIVE);
}

static Range subtracted(const Graph *g, const Node *n, const Range *of)
{
    Range x = added(of[n->a[0]], negated(of[n->a[1]]));
    if (!is_rest(g, n->a[0], n->a[1]))
        return x;
    Range rest = summed(of[g->n[shown_node(g, n->a[1])].a[0]]);
    return (Range){ fmax(x.low, rest.low), fmin(x.high, rest.high) };
}

static bool is_abs(const Graph *g, Ref r, Ref x)
{
    return g->n[r].op == OP_abs && g->n[r].a[0] == x;
}

static bool adds_row(int op)
{
    return adds_up(op) && op_is(op, FOLDS);
}

/* exp(x), or exp(y + x), by the sum of exp(x): what y makes of a share. */
static bool is_share(const Graph *g, const Node *n, const Range *of, Range *to)
{
    const Node *a = &g->n[n->a[0]], *all = &g->n[n->a[1]];
    const Node *e = &g->n[a->a[0]], *one = &g->n[all->a[0]];
    if (a->op != OP_exp || !adds_row(all->op) || one->op != OP_exp)
        return false;
    *to = (Range){ 0, 1 };
    if (a->a[0] == one->a[0])
        return true;
    for (int i = 0; i < 2 && e->op == OP_add; i++)
        if (e->a[i] == one->a[0]) {
            to->high = exp(of[e->a[1 - i]].high);
            return true;
        }
    return false;
}

/* x, or x times something, by what is at least |x| and 1 more. */
static Range divided(const Graph *g, const Node *n, const Range *of)
{
    Range share;
    if (is_share(g, n, of, &share))
        return share;
    const Node *a = &g->n[n->a[0]], *b = &g->n[n->a[1]];
    const Range one = { -1, 1 };
    for (int i = 0; i < 2 && b->op == OP_add; i++) {
        if (of[b->a[1 - i]].low < 1)
            continue;
        if (is_abs(g, b->a[i], n->a[0]))
            return one;
        for (int j = 0; j < 2 && a->op == OP_mul; j++)
            if (is_abs(g, b->a[i], a->a[j]))
                return multiplied(one, of[a->a[1 - j]]);
    }
    return of[n->a[1]].low >= 1 ? both(of[n->a[0]], (Range){ 0, 0 }) : any;
}

/* of: nodes before r. */
static Range range_of(const Graph *g, Ref r, const Range *of)
{
    const Node *n = &g->n[r];
    const Range a = of[n->a[0]], b = of[n->a[1]];
    switch (n->op) {
    case OP_num: return (Range){ n->num, n->num };
    case OP_input: return of_input(&g->in[n->index]);
    case OP_neg: return negated(a);
    case OP_add: return added(a, b);
    case OP_sub: return subtracted(g, n, of);
    case OP_mul: return multiplied(a, b);
    case OP_div: return divided(g, n, of);
    case OP_min: return (Range){ fmin(a.low, b.low), fmin(a.high, b.high) };
    case OP_max: return (Range){ fmax(a.low, b.low), fmax(a.high, b.high) };
    case OP_exp: return (Range){ exp(a.low), exp(a.high) };
    case OP_sigmoid: return (Range){ 0, 1 };
    case OP_tanh: case OP_sin: case OP_cos: return (Range){ -1, 1 };
    case OP_where: return both(b, of[n->a[2]]);
    }
    return op_is(n->op, MOVES) ? a : adds_up(n->op) ? summed(a)
         : op_is(n->op, POS) ? (Range){ 0, INFINITY } : any;
}

const bool *find_far(Ctx *c, const Graph *g)
{
    const double most = 65504;
    Range *of = ctx_alloc(c, g->len * sizeof *of);
    bool *far = ctx_alloc(c, g->len);
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        of[r] = range_of(g, r, of);
        far[r] = n->op == OP_exp && n->axes & (n->axes - 1);
        for (int i = 0; i < 4; i++)
            far[r] |= n->a[i] && far[n->a[i]];
        far[r] &= !(of[r].high <= most && of[r].low >= -most);
    }
    return far;
}

/* In registers, or as sums, all is float32. */
static bool finds_narrow(const Graph *g, const Node *n, Ref r)
{
    bool matrix = g->n[r].axes & (g->n[r].axes - 1);
    return matrix && !adds_row(n->op) && !op_is(n->op, ELEMENTWISE);
}

Ref leaves_float16(const Plan *p)
{
    const Graph *g = p->g;
    const bool *far = find_far(g->ctx, g);
    for (int i = 0; i < p->nkernels; i++)
        for (int n = 0; n < p->kernel[i].nnodes; n++) {
            Ref r = p->kernel[i].node[n];
            if (far[r] && p->stored[r])
                return r;
            for (int j = 0; j < 4; j++) {
                Ref a = g->n[r].a[j];
                if (a && far[a] && finds_narrow(g, &g->n[r], a))
                    return a;
            }
        }
    return 0;
}

DType schedule_tile(const Plan *p, DType memory)
{
    bool far = memory == F16 && p->g->chunk > 1 && leaves_float16(p);
    return far ? F32 : memory;
}
