/* passes_emit.h -- what passes.c and passes_emit.c share: how a call's tensors
 * are numbered, and what a kernel leaves for the next.
 */
#ifndef FLIN_CUDA_PASSES_EMIT_H
#define FLIN_CUDA_PASSES_EMIT_H

#include "passes.h"

enum { PASS_ARGS = 48, PASS_DIMS = 4, PASS_LEFT = 32, PASS_OTHERS = 4,
       PASS_COLUMNS = 128,              /* threads along columns */
       PASS_BLOCK = 256,                /* those that rows of a warp or less
                                           share */
       PASS_GROUP = 4 };                /* heads whose inputs are in registers
                                           at once */

/* left[i]: a number that the kernel over rows leaves for columns, and for sums
 * of numbers. */
typedef struct PassesPlan {
    const RowProgram *p;
    const View *in;                     /* of the call */
    const View *out[MAX_INPUTS];        /* of each result; NULL: a number that
                                           is kept */
    bool some;                          /* parts of rows, one after another */
    int heads, nothers;
    uint8_t other[PASS_OTHERS];         /* axes of other rows, inner first */
    int32_t size[PASS_OTHERS];
    int nleft;
    Ref left[PASS_LEFT];
    int each, threads;                  /* entries of a lane, lanes of a row */
    int group;                          /* heads of a token that a row's lanes
                                           have one after another: what these
                                           share is loaded and made once */
    uint8_t *own;                       /* per node: it differs from head to
                                           head */
    bool beside;                        /* the rows' kernel sums its block's
                                           along columns itself */
} PassesPlan;

/* Of input i, of result i: its number among the kernel's tensors. */
int passes_in(const PassesPlan *k, int i);
int passes_out(const PassesPlan *k, int i);

/* Reductions of the first pass. */
int passes_folds(const RowProgram *p);

/* Is result i of an input that heads share, the sum of theirs? */
bool passes_gathers(const PassesPlan *k, int out);
/* Is the result summed over rows along columns, or as a number? */
bool passes_columns(const PassesPlan *k, int out);
/* Blocks that so many columns are dealt out to. */
int passes_blocks(const PassesPlan *k, int32_t length);
/* The order of its own axes. */
const uint8_t *passes_order(const RowProgram *p, const RowOut *o, int *rank);

/* Each entry of a tensor as 16 bytes at once, or 8. */
bool passes_whole(const PassesPlan *k, const View *v, const uint8_t *order,
                  int rank, int axis);

/* Shared memory of a block of the kernel over rows. */
int passes_shared(const PassesPlan *k);

/* The kernels flin_rows_by_passes and, where sums are of columns,
 * flin_columns_I for result I. */
char *passes_emit(Ctx *c, const PassesPlan *k);

#endif
