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

/* NAME, NAME[i - back], NAME_cumsum[i - back] (inclusive), i, the score of a
 * pair */
typedef enum LeafKind { LEAF_CONSTANT, LEAF_TOKEN, LEAF_CUMSUM, LEAF_POSITION,
                        LEAF_SCORE } LeafKind;
typedef struct Leaf {
    LeafKind kind;
    int side, back;
    int sign;                           /* of all that a sum adds up, as it is
                                           declared; 0: any */
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
/* score: what the score function made of a pair's score there; 0: nothing, L
 * is 0. */
typedef struct MaskPath { Region at; Ref value, score; } MaskPath;

/* Beside its region: what its comparisons of remainders are to be. */
enum { MAX_GATES = 8 };
typedef struct Gates { int n; Ref cond[MAX_GATES]; bool on[MAX_GATES]; } Gates;

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
       MAX_BACK = 4096,                 /* how far i may look back at a token:
                                           bands, late starts, p.x[i - 100] */
       MAX_SUM_BACK = 128,              /* at a sum: p.x_cumsum[i - 2] */
       MAX_CACHED = 1 << 20,            /* tokens kept where all pairs are
                                           taken */
       MAX_WORK = 200000, MAX_MASK_NODES = 4000 };

/* A state that keeps x of each token, in the place that its number in the
 * sequence has modulo the places (behind those of the first tokens, where these
 * are kept); or the sum of x over the tokens since. */
typedef struct Ring { int state; Ref x; bool sum; } Ring;

typedef struct Mask {
    Ctx *ctx;
    Graph *g;
    Leaf leaf[MAX_INPUTS];              /* beside g->in */
    MaskPath path[MAX_TRACED];
    Gates gates[MAX_TRACED];            /* of these, until they are joined */
    int npaths;
    MaskPath piece[MAX_PATHS];          /* below the diagonal, no comparison
                                           of positions left */
    int npieces;
    Product product[MAX_PRODUCTS];
    int nproducts;
    uint8_t *traits, *mark;             /* per node, with traits_len, cap */
    double *value;
    uint32_t traits_len, cap, work;
    bool softmax;                       /* of pairs (below), not their sum */
    bool weighs;                        /* what a piece says is v_j's weight
                                           itself, of the score, too */
    bool whole;                         /* tokens behind i weigh, too */
    bool exchanged;                     /* of keys and queries: it is what such
                                           a mask says above the diagonal */
    Graph *way[2];                      /* of a whole one: a step for each
                                           direction, from the first token on
                                           and, transposed, from the last
                                           (mask_above.c); NULL: none, or all
                                           pairs are taken */
    bool signs;                         /* pieces hold by what sums add up */
    double scale;                       /* of scores; 0: K^-1/2 */
    Graph *cache;                       /* where all pairs are taken: a step
                                           that keeps keys and values; NULL:
                                           there is none, */
    const char *uncached;               /* and why, and what would help */
    const char *uncached_help;
    int64_t kept, limit, first;         /* tokens that it keeps; of which no
                                           sequence may have more, or 0: the
                                           oldest make room, but so many, the
                                           first of the sequence */
    int ring_axis, nrings;              /* of the step's; 0: none */
    Ring ring[MAX_STATES];
    const double *drawn;                /* numbers that inputs take: so many
                                           for each way of DRAW_GIVEN */
    int ndrawn;
} Mask;

/* ---- the traced mask (mask.c) ---- */

Mask *mask_new(Ctx *c);
Mask *mask_copy(Ctx *c, const Mask *m); /* in another context (copy.c) */
Ref mask_leaf(Mask *m, LeafKind kind, int side, const char *name, int back);
bool mask_reads(const Mask *m, const char *name);
/* What sums of that name add up has one sign. */
void mask_declare_sign(Mask *m, const char *name, int sign);
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
/* A mask's values of one side as nodes of a step, as far as they were wanted:
 * the one of root; leaf says what stands for each of the mask's own. */
typedef struct MaskImage { Ref *of; uint32_t len; } MaskImage;
Ref mask_image(Mask *m, MaskImage *x, Graph *g, Ref root,
               Ref (*leaf)(void *ud, const Leaf *l), void *ud);

/* Is r of the form i - back or j - back? Returns the side, or 0. */
int mask_index(Mask *m, Ref r, int64_t *back);

/* ---- regions (mask_region.c) ---- */

Region region_all(void);
/* Whether the comparison `cond` holds in the region: 1, 0, or -1: in a part
 * of it; then in[1] is where it does, in[0] where it does not. Fails when
 * positions are not all that it compares. */
int mask_decide(Mask *m, Ref cond, const Region *r, Region in[2]);
/* Does cond hold an absolute value of positions, or the larger or smaller of
 * two? Then one of them is decided by *first, and cond is of[1] where that
 * holds, of[0] where it does not. */
bool mask_unfold(Mask *m, Ref cond, Ref *first, Ref of[2]);
/* Does cond compare but remainders of positions, (i - j) % 4? No region says
 * where that holds: a path takes either as it is. */
bool mask_of_remainders(Mask *m, Ref cond);
/* Does cond compare positions with remainders of them, i - i % 8 > j? These are
 * bounded: it holds wherever `sure` does, and nowhere else than `possible`
 * does, both of positions alone. */
bool mask_bounded(Mask *m, Ref cond, Ref *sure, Ref *possible);
/* Paths that differ by such alone become one, with a value for each. */
void mask_join_gated(Mask *m);
/* Is r the remainder, by a whole number, of positions, whole multiples of i and
 * j? n, and what is beside both, by which r = (wi i + wj j + rest) % n. */
typedef struct Remainder { int64_t n, wi, wj, rest; } Remainder;
bool mask_remainder(Mask *m, Ref r, Remainder *of);
/* Is that all that this ==, too, compares? */
bool mask_decidable(Mask *m, Ref cond);
/* Sets piece[] from path[] below the diagonal; fails unless L is 0 above it, or
 * is of both directions. */
void mask_pieces(Mask *m);
/* The same of what path[] says where L is of pairs at all. */
void mask_own_pieces(Mask *m);
/* Above the diagonal alone. */
void mask_upper_pieces(Mask *m);
bool region_has(const Region *r, int64_t i, int64_t j);
/* Bounds that follow from the others. */
Region region_closed(const Region *r);

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
/* What the score function makes of the pair's made-up score; false: nothing
 * asks for it there. */
double mask_draw_score(const Mask *m, int64_t i, int64_t j, unsigned draw);
bool mask_score_at(Mask *m, int64_t i, int64_t j, unsigned draw, double *x);
/* Refuses unless the products add up to the mask, and the rank of blocks off
 * the diagonal is within their number. */
void mask_probe(Mask *m);

/* ---- factoring (mask_factor.c), lowering (mask_step.c) ---- */

/* Sets product[], which are the mask, tried on numbers; of a whole one `above`,
 * too, which may be NULL. False, and *why: it names what couples i and j. */
bool mask_factor(Mask *m, Mask **above, Error *why);
/* Sets product[] for what the piece's value is without an end of i - j; or
 * refuses. */
void mask_factor_endless(Mask *m, const MaskPath *piece);
/* "row", "column", "decay" or "band" of a product, in the user's terms. */
char *product_text(Mask *m, const Product *p, const char *part);
/* Writes the step into g, where q, k, v and all that the mask reads are
 * declared: its states and the output y. */
void mask_step(Mask *m, Graph *g);

/* The same in two: a mask that is one product keeps a state S, of which D S is
 * left for a token to meet; by a transition of the user's that becomes `next`,
 * and y is read of it. w: the weight of what is written, or 0: it is 1; row:
 * that of what is read. */
typedef struct MaskState { Ref S, D, kept, w, row; } MaskState;
MaskState mask_state(Mask *m, Graph *g);
void mask_result(Graph *g, const MaskState *of, Ref next);
/* Makes m->cache of g, which has the inputs alone: the step of what mask_pairs
 * says, which keeps the tokens of the mask's window, or, where it has none,
 * `tokens` of them (0: it is not said); or says why there is none. */
void mask_cache(Mask *m, Graph *g, int64_t tokens);
/* A graph of g's inputs alone (mask_above.c). */
Graph *mask_inputs(const Graph *g);
/* An argument as it is declared: "t k : unit". */
char *mask_declared(const Graph *g, const Input *in);
/* What a mask of both directions is above the diagonal, with i and j exchanged:
 * a mask of its own, still to be factored; NULL: nothing. */
Mask *mask_above(Mask *m);
/* Makes m->way, of what has been factored, and g's y over all pairs, which is
 * what they are held to. */
void mask_ways(Mask *m, Mask *above, Graph *g);

/* ---- windows (mask_window.c) ----
 *
 * In blocks of W tokens, i - j < W leaves of i's own block all up to i, and of
 * the block before those that are further behind its begin than i is behind
 * its own. Both are scans, which take as long whatever W is: `within` runs on
 * each block as on a sequence; `across` on two blocks, of one the keys, of the
 * next the queries, from their last tokens to their first.
 */

/* The same where tokens cannot be counted backwards: a block is a sequence, and
 * what goes from its last token to its first is the transpose of a step that
 * goes on (compiler/transpose.c). `within` has results lead and gain, by which
 * a token adds to the exponent; tail is the sum of what the tokens behind gain;
 * `across` has the queries of a block, the keys and values of the one before,
 * and of both these sums. The transpose of tail is `upto`, the sum over the
 * tokens before. `packed` is `across` where behind a sequence's queries may be
 * those of another: an input says which have a block before their own, as
 * `places` finds it, whose results are that and, where a window leaves out a
 * sequence's first tokens, which are none of these. */
typedef struct WindowBlocks {
    Graph *within, *across, *packed, *places;   /* NULL: there is no such
                                                   form */
    Graph *tail, *upto;                 /* NULL: there is no exponent */
    int from[MAX_INPUTS];               /* per input of packed, which has
                                           across's and one behind: which of the
                                           step's, or of these */
    bool query[MAX_INPUTS];             /* it is of the tokens that read */
} WindowBlocks;
enum { FROM_LEAD = -1, FROM_TAIL = -2, FROM_LATE = -3, FROM_READS = -4 };
typedef struct Window {
    int64_t width;                      /* W */
    int position;                       /* the step's state that counts tokens;
                                           the others are rings, and of
                                           `sinks` */
    int64_t first;                      /* so many tokens of a sequence it
                                           leaves out; or 0 */
    Graph *sinks;                       /* then what these weigh, a step whose
                                           states are the step's, too; */
    const char *late, *place;           /* inputs behind the step's: of within
                                           whether a token is none of these, of
                                           kept its number in its sequence */
    int nrings, ring_axis;
    Ring ring[MAX_STATES];
    Graph *kept;                        /* a result for each: x; in Ring.x its
                                           number */
    Graph *within;                      /* the step's inputs; y, and, if the
                                           mask decays, a result `lead`: the log
                                           of what is left of what came before
                                           the block */
    Graph *across;
    bool leads;
    int from[MAX_INPUTS];               /* per input of across: which of the
                                           step's; FROM_LEAD: within's lead;
                                           FROM_LATE */
    bool query[MAX_INPUTS];             /* it is of the tokens that read */
    WindowBlocks blocks;
} Window;
/* Of a mask whose step is g; NULL: it is no window, or none whose two scans
 * are sure to be right. */
Window *mask_window(const Mask *m, const Graph *g);
/* Are the step's states its position and rings of tokens' own inputs, so that
 * the last tokens, as many as there are places, make them? */
bool mask_keeps_tokens(const Mask *m, const Graph *step);
Window *window_copy(Ctx *c, const Window *w);   /* copy.c */

/* ---- all pairs of tokens (mask_pairs.c) ----
 *
 * What a piece says of a pair (i, j), a scalar of the pair's score, s =
 * q_i . k_j, and of leaves of i and j: L, by which s v_j is weighed; or, of a
 * softmax, the logit of v_j, made of s times a scale. */

/* Makes the pieces of m, which does not factor or is a softmax's, g's y. */
void mask_pairs(Mask *m, Graph *g);
/* The same of a plain sum's, which may factor, without a word on it. */
void mask_own_weights(Mask *m, Graph *g);
/* The same of pieces that are weights of v_j themselves. */
void mask_weights(Mask *m, Graph *g);
/* Is a pair of this value left out? */
bool pair_masked(const Mask *m, Ref value);
/* How far its pieces reach: a row's last `width` tokens, itself included, and
 * the `first` of its sequence that all rows weigh, wherever they are; each 0:
 * none. False: neither is all that a row weighs. */
typedef struct Reach { int64_t width, first; } Reach;
bool mask_ends(const Mask *m, Reach *reach);
/* What scores are multiplied by before a piece sees them, for keys of so many
 * numbers. */
double pair_scale(const Mask *m, int64_t key);
/* Sets of[leaf] to d value / d leaf, where it is not 0. */
void pair_derive(Mask *m, Ref value, Ref of[MAX_INPUTS]);
/* Does all that pieces say take the sum of this input by differences alone? */
bool pair_by_differences(const Mask *m, const char *name);

/* mask_quadratic.c: y of a call in double, pair by pair. */
void mask_run(Ctx *c, const Graph *step, const Call *call);
/* The gradient of sum(y * dy) for each input whose view has data: with all
 * heads of the call; a constant's for each sequence (sb). */
void mask_back(Ctx *c, const Graph *step, const Call *call, const View *dy,
               const View dx[MAX_INPUTS]);

#endif
