/* angle.c -- what a sum modulo 2 pi adds up, in double.
 *
 * Rounded to float, each increment of an angle is off by 3e-8 of itself, and
 * after a million tokens the angle by a thousand times that: more than what
 * the state holds of it. So where the increment is element-wise arithmetic on
 * the caller's inputs, a sum that goes on in double gets it in double, too.
 */
#include "compile.h"

#include "../../compiler/elem.h"

#include <string.h>

/* ---- building ---- */

typedef struct Builder {
    const Compile *k;
    Increment *inc;
    Ref *leaf;
    int nleaves;
} Builder;

/* The step that computes r, built where there is none; -1: there is no room,
 * or r is no such arithmetic. */
static int build_step(Builder *b, Ref r)
{
    const Node *n = &b->k->g->n[r];
    IncrementStep s = { .op = n->op, .num = n->num };

    if (n->op == OP_size) {
        s.op = OP_num;
        s.num = b->k->g->axis[n->index].size;
    } else if (n->op == OP_input) {
        if (b->nleaves == INCREMENT_LEAVES)
            return -1;
        s.x[0] = (int8_t)b->nleaves;
        b->leaf[b->nleaves++] = r;
    } else if (n->op != OP_num && !(op_info[n->op].traits & ELEMENTWISE)) {
        return -1;
    }
    for (int p = 0; p < op_info[n->op].arity; p++) {
        int x = build_step(b, n->a[p]);
        if (x < 0)
            return -1;
        s.x[p] = (int8_t)x;
    }
    if (b->inc->n == INCREMENT_STEPS)
        return -1;
    b->inc->step[b->inc->n] = s;
    return b->inc->n++;
}

const Increment *build_increment(const Compile *k, Ref r,
                                 Ref leaf[INCREMENT_LEAVES])
{
    Increment inc = { 0 };
    Builder b = { .k = k, .inc = &inc, .leaf = leaf };

    memset(leaf, 0, INCREMENT_LEAVES * sizeof *leaf);
    if (build_step(&b, r) < 0)
        return NULL;
    Increment *kept = ctx_alloc(k->c, sizeof *kept);
    *kept = inc;
    return kept;
}

/* ---- running ---- */

/* Off by 2e-16, and so by more of a small value than the library's, which is
 * four times as slow: what is added up needs no more. */
static double bounded_tanh(double a)
{
    return 1 - 2 / (exp(2 * a) + 1);
}

#define tanh_ bounded_tanh

static void elementwise_step(int op, int n, double *y, const double *xa,
                             const double *xb, const double *xc)
{
    switch (op) {
#define ELEM(name, arity, traits, value, ga, gb, gc) \
    case OP_##name: \
        for (int i = 0; i < n; i++) { \
            double a = xa[i], b = xb[i], c = xc[i]; \
            (void)b; \
            (void)c; \
            y[i] = value; \
        } \
        break;
#include "../../compiler/ops.def"
    }
}

static void fill(int n, double *y, double v)
{
    for (int i = 0; i < n; i++)
        y[i] = v;
}

static void widen(int n, double *y, const float *x)
{
    for (int i = 0; i < n; i++)
        y[i] = (double)x[i];
}

const double *run_increment(const Increment *inc, const float *const *leaf,
                            ptrdiff_t at, int n, double *scratch)
{
    for (int k = 0; k < inc->n; k++) {
        const IncrementStep *s = &inc->step[k];
        double *y = scratch + (size_t)k * n;
        if (s->op == OP_num)
            fill(n, y, s->num);
        else if (s->op == OP_input)
            widen(n, y, leaf[s->x[0]] + at);
        else
            elementwise_step(s->op, n, y, scratch + (size_t)s->x[0] * n,
                             scratch + (size_t)s->x[1] * n,
                             scratch + (size_t)s->x[2] * n);
    }
    return scratch + (size_t)(inc->n - 1) * n;
}
