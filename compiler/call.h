/* call.h -- one call of a variant: sizes, and where each tensor lies. */
#ifndef FLIN_CALL_H
#define FLIN_CALL_H

#include "ir.h"

/* Whole numbers are of indices alone. */
typedef enum DType { F32, BF16, F16, F64, I32, I64, NDTYPES } DType;
static inline bool dtype_whole(DType d)
{
    return d == I32 || d == I64;
}
int dtype_size(DType d);
const char *dtype_name(DType d);        /* "float32" ... */

/* A tensor as a call sees it: element strides for batch (or sequence), token
 * and head, then one for each axis in the declared order (Input.order). An
 * input without t has sb == st == 0. data == NULL: absent. */
typedef struct View {
    void *data;
    DType dtype;
    int heads;                          /* divides Call.heads */
    int64_t sb, st, sh, sd[8];
} View;

/* Which entries of a pool are the sequences' states. Entry n, c of `at` names
 * that of sequence n: column 0 before its first token, and, where there are
 * no more, behind its last; else column t + 1 as its token t leaves it. Other
 * numbers than 0 .. states - 1 name none: nothing is read nor written. */
typedef struct Pages {
    const void *at;                     /* NULL: sequence n has state n */
    DType dtype;                        /* I32 or I64 */
    int64_t sn, sc, states;             /* sn, sc: strides */
} Pages;

/* A sequence: tokens [start, start + len) of batch entry b. */
typedef struct Seq { int32_t b; int64_t start, len; } Seq;

/* A call that keeps, on a GPU, may run in two: CALL_BEGUN has the kernels
 * before the first that walks the state, and then finds what its sequences
 * leave of one that begins as zero (s1) and their transitions (moves, as
 * states, of which those that are diagonals have one column); the CALL_REST
 * goes on from a start. Of a plan that goes forward alone no rest follows. Of
 * one that goes back from what is kept the CALL_REST
 * finds in the workspace what kernels before the first that walks back have
 * left there, in another call for gradients at starts alone. */
typedef enum CallPart { CALL_WHOLE, CALL_BEGUN, CALL_REST } CallPart;

typedef struct Call {
    int64_t nseq;
    const Seq *seq;
    int heads;                          /* HV: y and the states have these */
    int32_t size[NAXES];                /* of the step graph's axes */
    View in[MAX_INPUTS];
    View s0[MAX_STATES];                /* data NULL: zero. sb: per sequence */
    View s1[MAX_STATES];                /* data NULL: not wanted */
    Pages pages;                        /* of both; the entries' stride is sb */
    bool each;                          /* s1 has what each token leaves, token
                                           stride st, not the last one alone */
    View out[MAX_OUTPUTS];              /* data NULL: not wanted */
    int threads;                        /* 0: all */
    bool (*interrupted)(void *ud);
    void *interrupt_ud;

    /* A part of a plan: kernels `from` .. `to` - 1 (to 0: to the last), and
     * where lies what is stored between kernels (NULL: nowhere, it ends with
     * the call). */
    int from, to;
    void *kept;
    CallPart part;
    bool in_parts;                      /* it may run so: kernels that can are
                                           worth what finding ends and moves
                                           otherwise takes */
    View moves;

    /* On a GPU, else all zero. */
    int ends;                           /* of sequences that are segments: walks
                                           that come first, for what these end
                                           as; else 0 */
    bool shared;                        /* blocks share its sequences, however
                                           short, where kernels can */
    bool on_device;                     /* the views hold its addresses */
    bool staged;                        /* of copies that begin with the first
                                           token of a sequence in hand: a view
                                           may itself point before its copy */
    void *stream;                       /* where kernels queue; NULL: the
                                           default one */
    void *workspace;                    /* the caller's, or NULL: the
                                           backend keeps one a stream */
    int64_t workspace_size;
    const void *device_cu;              /* then seq is NULL: nseq + 1 ends
                                           (int64) that lie there, B = 1 */
    int64_t tokens;                     /* that these sequences share: T */
    int cache;                          /* bytes of a block's memory that the
                                           way back over all pairs may take; 0:
                                           all that there is */
    int way;                            /* which that is: 1 + an AttentionWay;
                                           0: the one that takes less */
} Call;

/* An input that all heads share, in rows one behind the other; of no tokens:
 * one row, which all tokens read. *bytes: what that takes. */
View view_shared(const Input *in, const int32_t size[NAXES], DType d,
                 void *data, int64_t batch, int64_t tokens, int64_t *bytes);

double view_get(const View *v, int64_t at);
/* Where sequence seq's state begins in v, of s0 or s1: as token `token` leaves
 * it, where each one's is kept; else (-1) before the first, or behind the last.
 * False: nowhere. Not of pages on a device. */
bool call_place(const Call *call, const View *v, int64_t seq, int64_t token,
                int64_t *at);
void view_set(const View *v, int64_t at, double x);
/* All entries of one token, from place `at` on, by axis number: to p, or from
 * it. Returns the next p. */
double *view_entries(const View *v, const uint8_t *order, int rank,
                     const int32_t *size, AxisSet axes, int64_t at, double *p,
                     bool store);
int64_t entry_count(const int32_t *size, AxisSet axes);

/* The call with the states of its own that a plan's graph has: twins start as
 * the states do whose twins they are, what is lost from zero, or from what a
 * state in float64 has beyond float32, which then is to be left, too: call_join
 * adds it once the call has run. floats: those are all that a backend keeps of
 * a state. The same call where there are no such states. */
const Call *call_twins(Ctx *c, const Graph *g, const Call *call, bool floats);
void call_join(const Graph *g, const Call *own);

/* interp.c: the float64 step, one token after another: the truth. The graph
 * is a step graph. Works in double whatever the dtypes. */
void reference_run(Ctx *c, const Graph *step, const Call *call);

/* Where the step leaves float32's numbers first. */
typedef struct Blame {
    int64_t token;                      /* of the sequence; -1: nowhere */
    Ref node;                           /* that did it, from operands that had
                                           not; a state: it began so */
    Ref root;                           /* what it spoilt: y, a state's next */
    double value;
} Blame;
/* Runs the call's first sequence for one head, and stores nothing. */
Blame reference_blame(Ctx *c, const Graph *step, const Call *call, int head);

/* The same interpreter on a chunk graph, in double: derivation without the
 * numerics of a backend. */
void interpret_chunks(Ctx *c, const Graph *chunk, const Call *call);

/* Either, by whether the graph has chunks, as a machine might round it: what
 * products multiply and what they make is off by up to `unit` of itself, other
 * values by what float32 leaves; drawn from `seed`. How far its results are
 * from the truth says what rounding can do to them, sums that cancel and
 * steps that grow included. */
void interpret_rounded(Ctx *c, const Graph *g, const Call *call, double unit,
                       uint64_t seed);

#endif
