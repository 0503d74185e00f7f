/* mask.h -- masks L(i, j): what token j's value weighs in token i's result.
 *
 * A mask is traced into a graph of scalars. Its leaves are inputs of that
 * graph, named as the user writes them: "g[i]", "g_cumsum[j]", "i". It is a
 * list of paths: in a region of (i, j), cut out by comparing positions, L has
 * one value. Factoring turns that into a sum of products
 *
 *     row(i) col(j) exp(extra(i) + sum of w (u(i) - u(j))),   lo <= i - j
 *
 * in which each u is a cumulative sum or a position, so that exponents are
 * differences and never taken apart, and of taps, for lo <= i - j <= hi.
 * Lowering writes the step of y_i = sum over j of L(i, j) (q_i . k_j) v_j.
 */
#ifndef FLIN_MASK_H
#define FLIN_MASK_H

#include "call.h"

/* NAME, NAME[i - back], NAME_cumsum[i] (inclusive), i */
typedef enum LeafKind { LEAF_CONSTANT, LEAF_TOKEN, LEAF_CUMSUM, LEAF_POSITION
} LeafKind;
typedef struct Leaf {
    LeafKind kind;
    int side, back;
    char name[48];
} Leaf;

/* What a value depends on, a bit each. HOT: it holds an exponential of what
 * grows without bound. */
enum { SIDE_I = 1, SIDE_J = 2, SIDES = 3, HAS_POSITION = 4, HAS_CUMSUM = 8,
       HOT = 16 };

/* Bounds of i, j and i - j, inclusive. */
enum { VAR_I, VAR_J, VAR_DISTANCE };
#define REGION_INF ((int64_t)1 << 40)
typedef struct Region { int64_t lo[3], hi[3]; } Region;
typedef struct MaskPath { Region at; Ref value; } MaskPath;

/* rest + sum of coef * atom; coef and rest are free of i and j. */
enum { MAX_PARTS = 24 };
typedef struct Part { Ref atom, coef; } Part;
typedef struct Linear { int n; Part part[MAX_PARTS]; Ref rest; } Linear;

/* The exponent w * (u(i) - u(j)); u as a function of i. */
typedef struct Decay { Ref u, w; } Decay;
enum { MAX_DECAYS = 8 };

/* Where hi is finite: `value`, a function of i and j, for each distance.
 * Else row * col * exp(extra + decays), as above. */
typedef struct Product {
    Ref row, col, extra, value;
    Decay decay[MAX_DECAYS];
    int ndecays;
    int64_t lo, hi;
} Product;

enum { MAX_TRACED = 64, MAX_PATHS = 256, MAX_PRODUCTS = 32,
       MAX_BACK = 128,                  /* how far i may look back at a token:
                                           bands, late starts, p.x[i - 128] */
       MAX_WORK = 200000, MAX_MASK_NODES = 4000 };

typedef struct Mask {
    Ctx *ctx;
    Graph *g;
    Leaf leaf[MAX_INPUTS];              /* beside g->in */
    MaskPath path[MAX_TRACED];
    int npaths;
    MaskPath piece[MAX_PATHS];          /* below the diagonal, no comparison
                                           of positions left */
    int npieces;
    Product product[MAX_PRODUCTS];
    int nproducts;
    uint8_t *traits, *mark;             /* per node, with traits_len, cap */
    double *value;
    uint32_t traits_len, cap, work;
    const double *drawn;                /* numbers that inputs take: so many
                                           for each way of DRAW_GIVEN */
    int ndrawn;
} Mask;

/* ---- the traced mask (mask.c) ---- */

Mask *mask_new(Ctx *c);
Mask *mask_copy(Ctx *c, const Mask *m); /* in another context */
Ref mask_leaf(Mask *m, LeafKind kind, int side, const char *name, int back);
int mask_traits(Mask *m, Ref r);
void mask_work(Mask *m);                /* fails after MAX_WORK calls */
void linear(Mask *m, Ref r, Linear *out);
Ref linear_ref(Mask *m, const Linear *l);
/* Is b, of any numbers, -a? As polynomials of what they are made of; false,
 * too, where these are large. */
bool mask_opposite(Mask *m, Ref a, Ref b);
/* r with one node replaced, or (from 0) with i and j exchanged. */
Ref mask_rebuild(Mask *m, Ref r, Ref from, Ref to);
/* Marks in m->mark all that r needs. */
void mask_reach(Mask *m, Ref r);

/* Is r of the form i - back or j - back? Returns the side, or 0. */
int mask_index(Mask *m, Ref r, int64_t *back);

/* ---- regions (mask_region.c) ---- */

Region region_all(void);
/* Whether the comparison `cond` holds in the region: 1, 0, or -1: in a part
 * of it; then in[1] is where it does, in[0] where it does not. Fails when
 * positions are not all that it compares. */
int mask_decide(Mask *m, Ref cond, const Region *r, Region in[2]);
/* Is that all that this ==, too, compares? */
bool mask_decidable(Mask *m, Ref cond);
/* Sets piece[] from path[]; fails unless L is 0 above the diagonal. */
void mask_pieces(Mask *m);
bool region_has(const Region *r, int64_t i, int64_t j);

/* ---- numbers (mask_probe.c) ---- */

/* How token t's number for an input (t = -1: a constant) is made up: of either
 * sign; positive; of either sign with sums that stay small, however far t is;
 * positive, for any t; from here on, by m->drawn. */
enum { DRAW_SIGNED, DRAW_POSITIVE, DRAW_FAR, DRAW_FAR_POSITIVE, DRAW_GIVEN };
double mask_draw(const Mask *m, const char *name, int64_t t, unsigned draw);
double mask_cumsum(const Mask *m, const char *name, int64_t t, unsigned draw);
/* A value from its leaves' numbers, in the order of g->in. */
double mask_eval(Mask *m, Ref r, const double *leaf);
double mask_number(Mask *m, Ref r, int64_t i, int64_t j, unsigned draw);
double mask_at(Mask *m, int64_t i, int64_t j, unsigned draw);
/* Fails unless the products add up to the mask, and the rank of blocks off
 * the diagonal is within their number. */
void mask_probe(Mask *m);

/* ---- factoring (mask_factor.c), lowering (mask_step.c) ---- */

/* Sets product[]; or fails and names what couples i and j. */
void mask_factor(Mask *m);
/* "row", "column", "decay" or "band" of a product, in the user's terms. */
char *product_text(Mask *m, const Product *p, const char *part);
/* Writes the step into g, where q, k, v and all that the mask reads are
 * declared: its states and the output y. */
void mask_step(Mask *m, Graph *g);

/* mask_quadratic.c: m, which does not factor, for g's y; then y of a call. */
void mask_quadratic(Mask *m, Graph *g);
void mask_run(Ctx *c, const Graph *step, const Call *call);
/* The gradient of sum(y * dy) for each input whose view has data: with all
 * heads of the call; a constant's for each sequence (sb). */
void mask_back(Ctx *c, const Graph *step, const Call *call, const View *dy,
               const View dx[MAX_INPUTS]);

#endif
