/* row.h -- row programs: a step without states as passes over rows of any
 * length.
 *
 * A row is what a token has along one axis; several axes are rows beside one
 * another, which share numbers alone. What has such an axis is never held
 * whole: it is computed in tiles, as often as it is read; what lacks it is a
 * number of the row. Reductions end a pass: what reads them belongs to a later
 * one. So logsumexp and a pick are one pass over a row, a softmax is two, and
 * the gradient of a cross-entropy, given its logsumexp, is one.
 */
#ifndef FLIN_ROW_H
#define FLIN_ROW_H

#include "ir.h"

enum { ROW_PASSES = 32, ROW_MOST_AXES = 4 };

/* A result. input: whose gradient it is; -1: y; -2: a number of the row that is
 * kept for the way back. summed: of an input without tokens: over all rows. */
typedef struct RowOut {
    Ref node;
    int input;
    bool summed;
    bool inplace;                       /* in the memory of that input */
    int pass;                           /* in which it is written; with none of
                                           the axis, behind all of them */
} RowOut;
enum { OUT_Y = -1, OUT_KEPT = -2 };

typedef struct RowProgram {
    const Graph *g;
    AxisSet along;                      /* the axes of rows */
    AxisSet half;                       /* those of them that have an entry for
                                           each pair of another's, whole[axis]
                                           (angles of flin.rotate): passes go
                                           along that one */
    const uint8_t *whole;
    int naxes;
    uint8_t axis[ROW_MOST_AXES];        /* pass i goes along axis[i % naxes] */
    int npasses, nout, nkept;
    uint8_t *level;                     /* per node, in rounds of naxes passes:
                                           the first that can compute it, where
                                           it has an axis; of a number, the
                                           first that can read it */
    uint8_t *need[ROW_PASSES];          /* per node: of what has the axis */
    uint8_t *number;                    /* per node: a number that is needed */
    RowOut *out;
    const Ref *kept;                    /* given instead of computed */
} RowProgram;

/* A step both ways: forward, which gives y and what is kept; backward with and
 * without that. They are of one graph, the joint one; gradient[i]: what a token
 * has of input i's. */
typedef struct RowStep {
    const Graph *joint;
    Ref *gradient;
    int nin, nkept;
    AxisSet along, half;
    uint8_t whole[NAXES];
    Ref *kept;
} RowStep;

/* The axis of rows that the node has, or whose pairs; -1: it is a number. */
static inline int row_axis(const RowProgram *p, Ref r)
{
    int ax = lowest(p->g->n[r].axes & p->along);

    return ax >= 0 && p->half & AXIS(ax) ? p->whole[ax] : ax;
}

/* Has it an entry for each pair? */
static inline bool row_half(const RowProgram *p, Ref r)
{
    return p->g->n[r].axes & p->half;
}

static inline int row_pass_axis(const RowProgram *p, int pass)
{
    return p->axis[pass % p->naxes];
}

/* Does the pass compute anything? */
bool row_does(const RowProgram *p, int pass);
/* The axes of other rows of a token: all but those along. */
AxisSet row_others(const RowStep *s);
/* Does the operation make one number of a row? */
bool row_folds(const Graph *g, Ref r);

/* The axes along which the step's rows lie: what it reduces over, and the
 * longest of those that never stand beside one of these. */
AxisSet row_along(const Graph *step);
/* Has it an operation that only row programs know, or an axis longer than other
 * kernels hold? */
bool row_wanted(const Graph *step);
/* The first alone, an index included. */
bool row_needed(const Graph *step);

/* The step (of known sizes, without states) differentiated; NULL: it is none
 * for row programs, and *why is set. */
RowStep *row_step(Ctx *c, const Graph *step, const char **why);
/* What a token adds to the gradient of an input without tokens; 0: more than a
 * sum. */
Ref row_added(Graph *joint, int input);

/* Forward: y, and with `keep` the kept numbers. Backward: the gradients that
 * are wanted, a bool each; given: the kept numbers are there. inplace: a bool
 * for each input whose gradient goes where it lies. */
RowProgram *row_forward(Ctx *c, const RowStep *s, bool keep);
RowProgram *row_backward(Ctx *c, const RowStep *s, const bool *wanted,
                         const bool *inplace, bool given);

/* Some entries of the rows alone: of the row's `from` on as many as the graph's
 * axis has. What reductions have come to stands in memory between one part and
 * the next; results are of the last. */
typedef struct RowSome {
    bool is;                            /* else it is all of the row */
    bool begins, ends;                  /* the first of the parts, the last */
    int64_t from;
} RowSome;

/* Bytes of a reduction of a row, at most. */
enum { ROW_CARRY = 16 };

/* Can the program run so, one part after another? Its rows lie along one axis,
 * in one pass; of such parts there are reductions or results, not both. */
bool row_takes_parts(const RowProgram *p);
/* The step whose axis `along` is so many entries long, though what its size is
 * in values stays: for parts. */
RowStep *row_step_part(Ctx *c, const RowStep *s, int32_t entries);

/* How a backend goes about it, which the program does not say. columns: what
 * is summed over rows along an axis is made behind all passes, of inputs that
 * are read again. shared: entries of the input that several rows read. */
typedef struct RowReads { bool columns, shared[MAX_INPUTS]; } RowReads;

/* The last pass that reads input i; npasses: it is read behind them; -1: none
 * does. */
int row_last_reader(const RowProgram *p, const RowReads *how, int i);

/* NULL, or what is wrong: a pass that reads what is not there yet, an input
 * that is read when its gradient has been written over it, or a result of
 * another place. */
const char *row_check(Ctx *c, const RowProgram *p, const RowReads *how);

/* Of a row, in entries: how many are read and written in all passes. */
typedef struct RowTraffic { int64_t read, written, again; } RowTraffic;
RowTraffic row_traffic(const RowProgram *p);

#endif
