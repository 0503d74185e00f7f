/* scores.h -- a step without its state: sums over the tokens before, weighed
 * by polynomials of scores.
 *
 * Where what is written is a product of vectors along axes of their own, and
 * what it is read with is, too, the sum over these axes is a product of scores,
 *
 *     sum over k, l of (q_k q_l) (x_k x_l) = (q . x)^2,
 *
 * and features of any degree need no state of that many axes: y is made of
 *
 *     y_i = sum over j <= i of w_ij v_j,
 *     w_ij = sum over m of c_m row_m(i) col_m(j) exp(G_m(i) - G_m(j))
 *            (q_i . x_j)^m,
 *
 * which is a mask over all pairs of tokens, a function of their score (mask.h).
 * A step becomes three: of what pairs are made of, token by token and with the
 * states that lie below those sums; pairs, once for each sum; and what is made
 * of the sums. All are found by differentiating the step (affine.h), whatever
 * its names are. Products' axes must agree as values, not by name: q_l is
 * q_k renamed.
 */
#ifndef FLIN_SCORES_H
#define FLIN_SCORES_H

#include "machine.h"
#include "mask.h"

/* Values of a call: inputs of the step by their numbers, then results of the
 * first graph, then sums. */
enum { MAX_SUMS = 8, VALUE_TOKENS = MAX_INPUTS,
       VALUE_SUMS = VALUE_TOKENS + MAX_RESULTS,
       MAX_VALUES = VALUE_SUMS + MAX_SUMS };

typedef struct Scores {
    Graph *tokens;                      /* NULL: inputs are all it takes */
    Graph *pairs[MAX_SUMS];             /* each has a mask */
    int nsums;
    Graph *result;                      /* NULL: y is the one sum */
    bool adds;                          /* it adds sums up: each one's gradient
                                           is that of y */
    /* Per input of each of these: which value. */
    int of_tokens[MAX_INPUTS], of_pairs[MAX_SUMS][MAX_INPUTS],
        of_result[MAX_INPUTS];
    int degree;                         /* the largest m */
    int axis[MAX_SUMS][2];              /* of keys, of values */
    int64_t width, first;               /* of a mask's window: how many tokens
                                           one has pairs with; 0: with all.
                                           Beside it, so many of the sequence's
                                           first */
    int ring_axis, position;            /* of a window: the last tokens, as many
                                           as this axis has places, make all
                                           states but this one, which counts
                                           them; 0: they do not */
    Graph *rest;                        /* those of them that are no rings of
                                           tokens, sums of a sequence's first
                                           ones, as a step, in their order; the
                                           rings' tokens are told by whether
                                           they are of these. NULL: there are
                                           none but the position */
    StateSet sums;                      /* the step's states that it is without
                                           */
    const Window *window;               /* no pairs, but scans in blocks of
                                           `width` tokens (its `blocks`), and of
                                           its first tokens; or NULL */
} Scores;

/* In c; NULL: the step has no such form, and *why says which term is in the
 * way. */
Scores *scores_find(Ctx *c, const Graph *step, const char **why);
Scores *scores_copy(Ctx *c, const Scores *s);
/* Of a mask that has been factored, whose step is given: the pairs within its
 * window, and those with a sequence's first tokens; NULL: it has no window, or
 * weighs others, or reads what pairs' kernels do not (scores_mask.c). */
Scores *scores_window(Mask *m, const Graph *step);
/* The same of a window that has such scans. */
Scores *scores_blocks(Mask *m, const Graph *step, const Window *w);
/* How many of a sequence's last tokens make rings of so many places, of which
 * none holds one of the first. */
int64_t scores_ring_tokens(const Scores *s, int64_t places);
/* Which pairs, in words: "within 256", "within 256 and with the first 4". */
const char *scores_extent(Ctx *c, const Scores *s);

/* ---- what it takes (scores_price.c) ---- */

/* A call: its sizes, and over all sequences of a head the tokens, the pairs,
 * the rows' ends where a tile has other pairs, too; how many pairs the longest
 * row has, and the longest column. narrow: tensors are of 16 bits. */
typedef struct ScoreCall {
    const int32_t *size;
    int heads;
    double tokens, pairs, edge, longest, column, sequences;
    bool narrow;
} ScoreCall;

/* Adds a sequence of so many tokens to the call. */
void scores_add_sequence(const Scores *s, ScoreCall *k, double tokens,
                         double times);
/* Seconds that the call is predicted to take on that GPU over pairs, and by the
 * step's states; backward: both ways. */
double scores_seconds(const Scores *s, const ScoreCall *k, const Machine *m,
                      bool backward);
double states_seconds(const Scores *s, const Graph *step, const ScoreCall *k,
                      const Machine *m, bool backward);
/* The same of one of its sums alone. */
double pairs_seconds(const Graph *pairs, const ScoreCall *k, const Machine *m,
                     bool backward);
/* Weights that a pair has of its own: one, or one for each key, value or both.
 */
double pairs_weights(const Graph *pairs, const int32_t *size);
/* Do such pairs run on the GPU's tensor cores? Else why they do not. */
const char *pairs_off_tensor_cores(const Graph *pairs, const int32_t *size,
                                   bool narrow, const Machine *m);

/* ---- what becomes of it by small steps (scores_read.c) ---- */

enum { MAX_FACTORS = 24, MAX_PARTS_READ = 48 };

/* Nodes, in order, one after another as often as they stand in the product. */
typedef struct ScoreFactors { int n; Ref f[MAX_FACTORS]; } ScoreFactors;

/* number * rows * cols * exp(G(i) - G(j)) * (q . x)^degree * value, of a sum:
 * what one read of one state has of one of its writes. */
typedef struct ScoreTerm {
    double number;
    ScoreFactors row, col;              /* without axes */
    ScoreFactors q, x, value;           /* with them; no value: 1 */
    int axis;                           /* of q and x */
    int degree;
    Ref gate;                           /* log of the decay; 0: none */
    bool fresh;                         /* the token's own write counts */
} ScoreTerm;

/* Terms of the read r; what is free of the sums is in *rest (0: nothing). */
typedef struct ScoreRead {
    int n;
    ScoreTerm term[MAX_PARTS_READ];
    Ref rest;
} ScoreRead;

/* The states that only results read, as sums that decay by one number. */
StateSet score_states(Graph *g);
/* False: r is none such, and *why says so. */
bool score_read(Graph *g, Ref r, StateSet sums, ScoreRead *out,
                const char **why);

#endif
