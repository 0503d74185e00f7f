/* affine.h -- how a value of the step depends on one state, and the universal
 * form that follows (universal.c):
 *
 *     S_t = D_t S_{t-1} + sum_r b_r (a_r . S_{t-1} + v_r)^T
 *
 * Found by differentiating the traced step with respect to the state, not by
 * matching names. kappa are the axes that a contracts, and that decay where a
 * contracts none, nu the others: one each of a matrix. Where a decay, or
 * what a read is multiplied by, differs along nu, one write at most reads.
 */
#ifndef FLIN_AFFINE_H
#define FLIN_AFFINE_H

#include "ir.h"

/* One linear term, of S one of the states. over == 0: coef * S. Otherwise a
 * read,
 *     sum over `rank` of coef * (sum over `over` of p * S),
 * in which p's axis `over` is bound, and coef's, if any, is not. coef == 0
 * stands for 1. fresh: of S as the token leaves it. */
typedef struct Term {
    Ref coef, p;
    AxisSet over, rank;
    int state;
    bool fresh;
} Term;

/* e^-104 is nothing in float32: so far down a gate is a reset, and a chunk's
 * gates have a finite sum. */
enum { LOG_ZERO = -104 };

enum { MAX_TERMS = 64 };

typedef struct Affine {
    int n;
    Term term[MAX_TERMS];
    int merged;                         /* no two of them read alike, since so
                                           many sums; or 0 */
    Ref rest;                           /* free of the state; 0: none */
    Ref bad;                            /* where it failed */
    const char *why;                    /* "is not linear in" ... */
    AxisSet whole;                      /* not 0: values without all of these
                                           axes, but for r itself, are as good
                                           as free of the state */
    Ref of;                             /* that r */
    bool all;                           /* reads may contract all axes of a
                                           matrix */
} Affine;

/* The form of value r with respect to these states. fresh: what they become
 * counts as a variable too (for what is not part of their own update). */
bool affine(Graph *g, Ref r, StateSet of, bool fresh, Affine *out);
/* The same, where what has been read is known: its coefficients may be made of
 * other reads of these states, whose axes are `whole`. */
bool affine_read(Graph *g, Ref r, StateSet of, AxisSet whole, Affine *out);

/* log x for an x that is provably not negative; 0 if it is not. *sloped: the
 * factor whose own logarithm is taken, if there is one: it may be 0, where its
 * slope is none that a sum of logarithms can tell. */
Ref log_of(Graph *g, Ref x, Ref *sloped);

/* The multiplicative factors of x. */
typedef struct Factors { int n; Ref f[32]; } Factors;
void factors(Graph *g, Ref x, Factors *out);
/* The product of those whose axes meet `with` (0: all) and not `without`;
 * 0 if there are none. */
Ref factors_product(Graph *g, const Factors *f, AxisSet with,
                    AxisSet without);

/* x without its factor e^g, if it has it: then the gate is inclusive. */
bool strip_decay(Graph *g, Ref *x, Ref decay);

/* rate: what is read is multiplied by it, entry by entry of nu; 0: 1. decayed:
 * a reads the state behind the decay, which is a factor of neither. */
typedef struct Write {
    Ref b, a, v, rate;
    AxisSet rank;
    bool decayed;
} Write;

typedef enum StateForm {
    FORM_DELAY,                 /* s_t = c_t */
    FORM_SCAN,                  /* s_t = d_t s_{t-1} + c_t, element-wise */
    FORM_MAX,                   /* s_t = max(d_t + s_{t-1}, c_t) */
    FORM_UNIVERSAL
} StateForm;

typedef struct Universal {
    StateForm form;
    Ref d, c;                           /* the first three; d == 0: 1 */
    AxisSet kappa, nu;                  /* nu 0: of a vector */
    Ref decay, log_decay;               /* 0: no decay */
    Ref sloped;                         /* a factor of the decay that may be
                                           zero and has a slope there; or 0 */
    Write write[MAX_TERMS];
    int nwrites;
    int sequence;                       /* of writes, the first so many: each
                                           finds the state as the decay and all
                                           before it have left it, and a has no
                                           decay */
} Universal;

/* Whether the decay differs along nu, so that no factor of it meets what is
 * contracted. */
bool decays_apart(const Graph *g, const Universal *u);

/* x, or 1, the same at each entry of those of the axes that it has not. */
Ref along_all(Graph *g, Ref x, AxisSet axes);

/* The axes that are keys where the update reads nothing: the first one, or of
 * more than two what reads contract; or what it scales by axes. */
AxisSet usual_keys(const Graph *g, int s, AxisSet differ);

/* Where x stands in what becomes of state s: its own line, or, of what the
 * definition declares and of numbers, that of the first that has it. */
int line_of(const Graph *g, int s, Ref x);

/* The form of state s, or false with g->note set: which term, on which line,
 * is in the way. */
bool universal(Graph *g, int s, Universal *u);

/* Of state s, of a node or of the whole step (0: where it first has the state):
 * sets g->note, and is false. */
bool state_note(Graph *g, int s, Ref at, const char *what);

/* The factors of a product that is written, a sum over ranks opened; those
 * ranks. */
AxisSet plain_factors(Graph *g, Ref x, AxisSet kappa, AxisSet nu,
                      Factors *out);

/* The states in sets, each of one, or of those that can only be had together:
 * they depend on one another in a circle, or one has all of another's matrix
 * in it. Lowest stratum first. */
typedef struct Strata { int n; StateSet of[MAX_STATES]; } Strata;
void strata(Graph *g, Strata *out);

#endif
