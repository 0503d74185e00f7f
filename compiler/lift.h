/* lift.h -- what the files share that make a chunk's graph of a step's. */
#ifndef FLIN_LIFT_H
#define FLIN_LIFT_H

#include "coupled.h"

/* What is written to a state, one set a matrix product: rows W [i r nu] under
 * keys b [i r kappa]. */
typedef struct Rows { Ref b, w; } Rows;

/* Of a block, per place: what of its rows w_j is in the state of that place
 * behind token i, spread[i j], and what of the states that the chunk finds,
 * kept[i]. Before the token: one token earlier. */
typedef struct Spread {
    Rows rows;
    Ref after[MAX_BLOCK], before[MAX_BLOCK];    /* 0: nothing */
    Ref part[2];                        /* where there is a frame, of rows.b,
                                           in it; 0: nothing */
} Spread;

/* A frame in which the two states of a block need one another no longer: gates
 * and angles summed up, behind each token and before it (lift_complex.c). */
typedef struct Frame { Ref gate, cosine, sine; } Frame;

typedef struct Block {
    Coupled form;
    Ref keep[MAX_BLOCK][MAX_BLOCK];     /* of the form, lifted */
    Ref after[MAX_BLOCK][MAX_BLOCK], before[MAX_BLOCK][MAX_BLOCK];
    Spread spread[MAX_TERMS];
    int nspreads;
    bool turns;                         /* in a frame */
    Frame left, found;
} Block;

typedef struct Lift {
    Graph *s, *g;                       /* step, chunk */
    Ref *map;                           /* per step node */
    uint32_t map_len;
    bool joint;                         /* its gradient will be asked for */
    bool slopes;                        /* also where decays are zero */
    Universal *form;                    /* per state */
    Block **block;                      /* per state: of which it is, or NULL */
    struct { Ref found, left; } seq[MAX_STATES];   /* scans, per token */
    struct {
        Ref G, E;                       /* cumulative log decay; 0: none */
        Ref decay;                      /* a token's; 0: none */
        Ref found;                      /* what the gates start from */
        Rows rows[2];
        int nrows;
        Ref own, weight;                /* of rows[0]: how much of them the
                                           token reads, and others; 0: all */
        Rows late[MAX_TERMS];           /* what the token before has not
                                           written, of weighted rows */
        int nlate;
    } mat[MAX_STATES];
    Refusal *no;                        /* there is no chunk form */
    const char *note;                   /* and why */
} Lift;

/* ---- lift.c ---- */

Ref lift(Lift *l, Ref r);
/* A step value whose axes `rank` count rows: lifted, with a row rank axis. */
Ref lift_ranked(Lift *l, Ref x, AxisSet rank);
/* With a row for each token, also where it is the same for all. */
Ref per_token(Graph *g, Ref a);
/* 1 where i is j. */
Ref same_token(Graph *g);
/* s_i = a_i s_{i-1} + b_i from `first`; 0: zeros. */
Ref recurrence(Graph *g, Ref a, Ref b, Ref first);
/* Gates of -1e9 and -inf are resets. */
Ref bounded_gate(Graph *g, Ref x);
/* The row rank axis for n rows a token. */
int rank_axis(Lift *l, int n);
/* Several writes as one: their rows joined along a rank axis. */
Ref join_rows(Lift *l, const Ref *part, int n, int rows);
/* Ends derive: there is no chunk form. */
_Noreturn void serial(Lift *l, const char *why);

/* Scores of rows x against written keys b, weighted by the decay between. */
Ref scores(Lift *l, Ref x, Ref b, Ref gate, int s, bool strict);
/* x against what has been written, weighted: of rows[set]. */
Ref read_rows(Lift *l, Ref x, int set, Ref gate, int s, bool strict);
/* x e^gate . S_0 */
Ref carried(Lift *l, Ref x, Ref gate, int s, AxisSet over);

static inline Ref exp_opt(Graph *g, Ref a)
{
    return a ? op1(g, OP_exp, a) : 0;
}

static inline Ref add_opt(Graph *g, Ref a, Ref b)
{
    return a && b ? op2(g, OP_add, a, b) : a + b;
}

static inline Ref or_one(Graph *g, Ref a)
{
    return a ? a : num(g, 1);
}

static inline Ref or_zero(Graph *g, Ref a)
{
    return a ? a : num(g, 0);
}

static inline Ref mul_opt(Graph *g, Ref a, Ref b)
{
    return a && b ? op2(g, OP_mul, a, b) : a + b;
}

static inline Ref col(Graph *g, Ref a)
{
    return a ? op1(g, OP_col, a) : 0;
}

static inline Ref weighted(Lift *l, Ref p, Ref w)
{
    Ref wj = col(l->g, w);

    return dot(l->g, p, wj, l->g->n[wj].axes & COL_AXES);
}

static inline int rank_size(const Lift *l, AxisSet rank)
{
    return rank ? l->s->axis[lowest(rank)].size : 1;
}

/* ---- lift_complex.c ---- */

/* What a token does to two states that read each other: both are scaled, and
 * turned by the angle. */
typedef struct ComplexDecay {
    Ref scale, angle;
    Ref gate;                           /* log scale; 0: it has none */
} ComplexDecay;

/* Whether these two places of a block are such. */
bool complex_decay(Lift *l, const Coupled *k, const int place[2],
                   ComplexDecay *r);
/* What becomes of both: of what comes in at each token, and of what there is
 * first; 0: nothing. */
void walk_complex(Graph *g, const ComplexDecay *r, const Ref in[2],
                  const Ref first[2], Ref out[2]);
/* Whether both are all of the block, by gates of each key, and only the way
 * forward is asked for: it has a frame. */
bool find_frame(Lift *l, Block *k);
/* What part `of` in the frame is in place m behind token i, or before it. */
static inline Ref frame_part(Graph *g, const Block *k, int m, int of,
                             bool fresh)
{
    const Frame *f = fresh ? &k->left : &k->found;

    return m == of ? f->cosine : m ? f->sine : op1(g, OP_neg, f->sine);
}
/* What is written to the places, in the frame. */
void write_in_frame(Graph *g, const Block *k, const Ref to[2], Ref in[2]);

/* ---- lift_coupled.c, read_coupled.c ---- */

void lift_coupled(Lift *l, Block *k);
/* x, lifted, against place m of a block, behind or before the token; against
 * the rows of a spread, weighted. */
Ref read_places(Lift *l, const Block *k, Ref x, int m, bool fresh,
                AxisSet over);
Ref scores_of(Lift *l, const Block *k, Ref x, const Spread *s, int m,
              bool fresh);
/* x, lifted, against such a state, as the term reads it. */
Ref read_coupled(Lift *l, Ref x, const Term *t);
/* What the chunk leaves in state s of a block. */
Ref leave_coupled(Lift *l, int s);

#endif
