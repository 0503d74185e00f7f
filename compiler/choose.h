/* choose.h -- which kernels to have: the integer program, without a graph.
 *
 * There are tensors and columns. A column is a kernel one could have: what it
 * costs to run, which tensors it loads, which it makes. Wanted is the
 * cheapest set of columns, and of tensors that are stored, such that every
 * required tensor is made, every loaded one is stored by some chosen column
 * that makes it, and the chosen columns can be put in order.
 *
 *     min sum p_c x_c + sum w_t y_t
 *     x_c <= y_t            c loads t
 *     y_t <= sum x_c        over c that makes t
 *     y_t  = 1              t required
 *
 * and cuts, added when needed, against circles. Prices are integers, so that
 * an answer is checked exactly.
 */
#ifndef FLIN_CHOOSE_H
#define FLIN_CHOOSE_H

#include "base.h"

enum { MAX_TENSORS = 192 };

/* A set of tensors (or of whatever is numbered below MAX_TENSORS). */
typedef struct Set { uint64_t w[MAX_TENSORS / 64]; } Set;

static inline bool set_has(const Set *s, int i)
{
    return s->w[i / 64] >> (i % 64) & 1;
}

static inline void set_add(Set *s, int i)
{
    s->w[i / 64] |= (uint64_t)1 << (i % 64);
}

static inline bool set_equal(const Set *a, const Set *b)
{
    return a->w[0] == b->w[0] && a->w[1] == b->w[1] && a->w[2] == b->w[2];
}

static inline bool set_within(const Set *a, const Set *b)
{
    return !(a->w[0] & ~b->w[0]) && !(a->w[1] & ~b->w[1])
        && !(a->w[2] & ~b->w[2]);
}

static inline bool set_meets(const Set *a, const Set *b)
{
    return (a->w[0] & b->w[0]) || (a->w[1] & b->w[1]) || (a->w[2] & b->w[2]);
}

static inline Set set_union(Set a, const Set *b)
{
    for (int i = 0; i < MAX_TENSORS / 64; i++)
        a.w[i] |= b->w[i];
    return a;
}

static inline Set set_minus(Set a, const Set *b)
{
    for (int i = 0; i < MAX_TENSORS / 64; i++)
        a.w[i] &= ~b->w[i];
    return a;
}

typedef struct Column {
    int64_t price;
    Set loads, makes;
    Set after;                  /* not loaded, but must have been made */
} Column;

typedef struct Choice {
    int ntensors, ncolumns;
    const int64_t *store;       /* price of storing a tensor */
    Set required;
    const Column *column;
} Choice;

typedef enum Solver { SOLVER_NONE, SOLVER_GREEDY, SOLVER_DP, SOLVER_GLPK }
    Solver;

typedef struct Answer {
    Solver solver;
    bool optimal;               /* proved */
    int64_t price;
    double bound;               /* proved: no answer is cheaper; -1: unknown */
    int n, *column;             /* in an order in which they can run */
    Set stored;
} Answer;

/* Orders the chosen columns and prices them, exactly; false if they do not
 * make what is required or cannot be ordered. `stuck`, if not NULL, takes the
 * columns (bytes, beside c->column) that wait for one another. */
bool choice_check(Ctx *ctx, const Choice *c, const uint8_t *chosen,
                  Answer *out, uint8_t *stuck);

/* Each requirement met by the column that adds least, or the answer `start`
 * where it is not NULL; improved a column at a time. Nearly always answers
 * when there is an answer among the columns; false otherwise. */
bool choose_greedy(Ctx *ctx, const Choice *c, const Answer *start,
                   Answer *out);

/* Shortest path over sets of stored tensors: exact; false when there would be
 * more than `limit` sets: then out->bound is what has been proved. Of start, an
 * answer to beat, or NULL, it may be the proof: then that is the answer. */
bool choose_dp(Ctx *ctx, const Choice *c, const Answer *start, int limit,
               Answer *out);

/* The integer program, by GLPK; false where it has nothing to say (a build
 * without it, an error inside it, `seconds` reached). Otherwise the best
 * answer that is known, start included, and a bound; not proved optimal where
 * the limit on branches was reached. Never prints or aborts. start: an answer
 * to beat. */
bool choose_glpk(Ctx *ctx, const Choice *c, const Answer *start,
                 double seconds, Answer *out);

/* How far the answer may be from the best one, as a part of its price; -1
 * where nothing is proved. */
double answer_gap(const Answer *a);

/* The best of these, deterministic. start: an answer there is already, or
 * NULL. */
bool choose(Ctx *ctx, const Choice *c, const Answer *start, Answer *out);

#endif
