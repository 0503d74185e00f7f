/* rows_emit.h -- what the files backend/cuda/rows*.c share: the step as it is
 * read, and how a call's tensors are numbered.
 */
#ifndef FLIN_CUDA_ROWS_EMIT_H
#define FLIN_CUDA_ROWS_EMIT_H

#include "rows.h"

enum { ROW_ARGS = 60, ROW_THREADS = 256, ROW_DIMS = 4, ROW_NUMBERS = 64 };
/* Of a piece: loops count them in 32 bits. */
enum { ROWS_MOST_TOKENS = 1 << 29 };

typedef struct RowsKernel RowsKernel;

/* A product of input x, k entries of a token, and w, a weight without tokens,
 * whose axes come in the other order where it is turned. Its n columns are
 * input `as` of the rows. */
typedef struct RowsProduct { int x, w, as; int32_t k, n; bool turned; }
    RowsProduct;

/* What becomes of a carried number x: gain * x + rest. 0: 1; 0. */
typedef struct Carried {
    bool cut;                           /* nothing of x is left: gain is none */
    Ref gain, rest;
} Carried;

/* States are delays: state j is what input source[j] was depth[j] tokens
 * before. In the graphs it is input nin + j, of its own. Or all of them are
 * carried (then nst is 0, and they are states in the graphs): each entry by
 * itself, by numbers that know of no state; and on the way back their adjoints,
 * by numbers that know of no adjoint. */
struct Rows {
    const Graph *step, *forward, *joint;
    const RowsProduct *product;         /* that they read, where states are
                                           carried; or NULL */
    int nin, nst, carried;
    Carried *walk, *back;               /* of each state, in `forward`; of its
                                           adjoint, in `joint` */
    int *adjoint;                       /* the joint graph's state */
    int source[MAX_STATES], depth[MAX_STATES];
    Ref *gradient;                      /* of each input, by itself or as it is
                                           read in tokens before, in the joint
                                           graph; of one without tokens what a
                                           token adds. 0: it has none */
    AxisSet lanes;                      /* the axes of rows, as one; none: rows
                                           are one number */
    uint8_t order[ROW_DIMS];            /* of them: the last is the inner one */
    int nlanes;
    int32_t length;                     /* of all */
    bool heavy;                         /* what a lane holds fills its registers
                                           but for few entries each */
    RowsKernel *kernel;
};

/* A call's tensors in order. */
typedef enum RowsRole { ROW_IN, ROW_DX, ROW_Y, ROW_DY, ROW_S0, ROW_S1,
                        ROW_DSTATE, ROW_DS, ROW_ROLES } RowsRole;
int rows_arg(const Rows *p, RowsRole role, int i);
/* How many: without those of states where it has none of any. NULL: at most. */
int rows_args(const Rows *p, const RowsCall *call);
/* States of the step, of either kind. */
int rows_states(const Rows *p);
const View *rows_view(const RowsCall *call, RowsRole role, int i);

/* How a row lies in lanes: `each` entries of `group` lanes. */
typedef struct RowsShape { int each, group; } RowsShape;
RowsShape rows_shape(const Rows *p, const RowsCall *call);

/* Of an axis of rows: entries that one of its own spans. */
int32_t rows_span(const Rows *p, int ax);
int rows_inner(const Rows *p);

/* Is the gradient of input i wanted, or of a state that comes from it? */
bool rows_wants(const Rows *p, const RowsCall *call, int i);
/* Does the result of timed input i wait to be summed over heads? */
bool rows_shared(const RowsCall *call, const View *v);
/* Are there sums over tokens? Are threads few, as a piece of tokens begins with
 * several that others have read, or ends with sums? */
bool rows_sums(const Rows *p, const RowsCall *call);
bool rows_few(const Rows *p, const RowsCall *call);
/* Are results of the states wanted, final ones or, backward, gradients? */
bool rows_leaves(const Rows *p, const RowsCall *call);
/* Numbers of an entry of each axis; entries of input i in all. */
int64_t rows_entries(const Rows *p, int i);

/* Of all that run side by side. Where calls are one text, it is there once. */
char *rows_emit(Ctx *c, const RowsRun *run, int n);

/* ---- carried states (rows_scan.c) ---- */

/* Kernels of a call: pieces of a sequence are walked side by side, each from
 * what those before it leave, which another kernel has found. */
enum { ROW_KERNELS = 3 };
typedef struct RowsScan {
    int n;
    const char *name[ROW_KERNELS];
    bool serial;                        /* a sequence is one piece */
    int groups;                         /* pieces of a block */
    int64_t states, adjoints, kept;     /* bytes in device memory: of a block,
                                           and of each token of its pieces */
    int shared[ROW_KERNELS];            /* bytes of a block */
} RowsScan;
RowsScan rows_scan(const Rows *p, const RowsCall *call);
/* Shared memory in which a block's pieces meet: bytes. */
int carried_shared(const Rows *p, const RowsCall *call);

/* ---- a product that they read (rows_product.c) ---- */

/* The step's first such one becomes an input; false: there is none. */
bool product_find(Graph *step, RowsProduct *to);
/* The call as its rows see it, whose room has the product's behind `own` bytes,
 * and the product behind `kept` bytes of what is kept, if it is; bytes of that
 * room. */
RowsCall product_call(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                      int64_t own, int64_t kept);
/* Bytes of the product itself. */
int64_t product_bytes(const Rows *p, const RowsCall *call);
int64_t product_room(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call);
/* Does their last kernel make the gradient of x? */
bool product_goes_back(const Rows *p, const RowsCall *call);
/* Does the rows' first kernel make it; shared memory that it takes then, or
 * that of the last one, which makes x's gradient. */
bool product_is_own(const Rows *p, const RowsCall *call);
int product_shared(const Rows *p, const RowsCall *call, bool back);
/* Where it lies in the block's memory, too; -1: it has too many rows. */
int product_near(const Rows *p, const RowsCall *call);
/* Instructions that a block of so many rows has one after another; *waits: how
 * often it waits for memory meanwhile. */
int64_t product_links(const RowsProduct *o, int64_t rows, int64_t *waits);
/* What goes before the call's kernels, and behind them. */
void product_before(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                    int64_t own, int64_t kept);
void product_behind(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                    int64_t own);

/* Their text. */
char *rows_scan_emit(Ctx *c, const Rows *p, const RowsCall *call);

#endif
