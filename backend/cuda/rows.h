/* rows.h -- a step of one token that carries nothing but tokens before as one
 * kernel over rows: a row is what a token and head have along one axis.
 *
 * Each row is loaded once, forward and backward alike; sums over tokens for
 * what all tokens share are made in two passes more. States that are tokens
 * before (of a convolution, of flin.prev) are read where these lie. Or states
 * are carried, each entry by itself (a gated sum of vectors): then there are
 * two kernels each way, of pieces of a sequence that are walked side by side,
 * and one more on a way back for which nothing was kept.
 */
#ifndef FLIN_CUDA_ROWS_H
#define FLIN_CUDA_ROWS_H

#include "gpu.h"

typedef struct Rows Rows;

/* What runs the step, whose sizes are known; NULL where no such kernel can.
 * All of it in the step's context; rows_free ends what is on the device. */
Rows *rows_new(Ctx *c, const Graph *step, const int32_t size[NAXES]);
void rows_free(Gpu *g, Rows *p);

/* A call: views as of a Call, with the step's inputs and states. Backward:
 * dy, dstate, and dx, ds, of which those with data are wanted, and y, if it has
 * data, again; where `add` says so, an input's is added to what is there. */
typedef struct RowsCall RowsCall;
struct RowsCall {
    int64_t B, T, N;
    int heads;
    bool backward, add[MAX_INPUTS];
    View in[MAX_INPUTS], dx[MAX_INPUTS], y, dy;
    View s0[MAX_STATES], s1[MAX_STATES], dstate[MAX_STATES], ds[MAX_STATES];
    DevicePtr ends;                     /* N + 1 of int64, or 0 */
    void *stream;
    DevicePtr room;                     /* rows_room bytes */
    DevicePtr kept;                     /* rows_kept bytes, or 0: what the way
                                           forward leaves for the way back */
    int64_t piece;                      /* tokens of a piece of carried states:
                                           rows.c finds it */
};

/* Kernels of a pass, of the way back where something was kept; are there states
 * that are carried? */
int rows_kernels(const Rows *p);
bool rows_carry(const Rows *p);

/* Do they make a product with a weight as well: of k entries of a token, n? */
bool rows_multiply(const Rows *p, int32_t *k, int32_t *n);
/* Of B sequences of T tokens each on so many multiprocessors: instructions of
 * that product that a block has one after another; *waits: how often it waits
 * for memory meanwhile. */
int64_t rows_links(Ctx *c, const Rows *p, int64_t B, int64_t T, int units,
                   int64_t *waits);

/* Can input i's gradient be added to what is there: has each of its entries one
 * lane, or is it summed by another kernel? */
bool rows_adds(const Rows *p, int i);

/* Can its gradient be written over it, or (i < 0) the result over its own?
 * Lanes read their entries of a token, and then write them: but for tokens
 * before, which others may have read. */
bool rows_over(const Rows *p, int i);

/* The same for both ways; 0: there is nothing to keep. */
int64_t rows_kept(Ctx *c, Gpu *g, Rows *p, const RowsCall *call);
int64_t rows_room(Ctx *c, Gpu *g, Rows *p, const RowsCall *call);

/* Calls side by side, as one kernel: none of them reads or writes what another
 * one writes. Alone each has to fill the device, by short pieces of tokens,
 * which begin with tokens that others have read; and to empty it. */
enum { ROWS_BESIDE = 4 };
typedef struct RowsRun { Rows *p; const RowsCall *call; } RowsRun;
/* Can they run so? One can. */
bool rows_beside(const RowsRun *run, int n);
/* Their kernel, wished for (build_wish); compiled where it is new; and run. */
void rows_wish(Ctx *c, Gpu *g, const RowsRun *run, int n);
void rows_prepare(Ctx *c, Gpu *g, const RowsRun *run, int n);
void rows_run(Ctx *c, Gpu *g, const RowsRun *run, int n);

#endif
