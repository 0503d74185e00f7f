/* passes.h -- row programs (compiler/row.h) on the device: a kernel in which a
 * warp or a block has a row, and reads it once a pass.
 *
 * What is summed over all rows is made by a second kernel, along columns, of
 * the numbers of rows that the first leaves in memory.
 */
#ifndef FLIN_CUDA_PASSES_H
#define FLIN_CUDA_PASSES_H

#include "../../compiler/row.h"
#include "gpu.h"

typedef struct Passes Passes;

/* In c, where its kernels' programs are made, too. size: of the step's axes. */
Passes *passes_new(Ctx *c, const RowStep *step);
void passes_free(Gpu *g, Passes *p);

/* A call: views as of a Call, of the step's inputs and, behind these, dy. Of
 * dx those with data are wanted; inplace: that of an input lies where that
 * does. kept: RowStep.nkept floats a row: forward writes them, backward reads
 * them; 0: nobody keeps them. carry: of a part of the rows, where its
 * reductions go on, ROW_CARRY bytes of each. */
typedef struct PassesCall {
    int64_t B, T;
    int heads;
    const int32_t *size;
    bool backward;
    View in[MAX_INPUTS], dx[MAX_INPUTS], y;
    bool inplace[MAX_INPUTS];
    RowSome some;
    DevicePtr kept, room, carry;        /* room: passes_room bytes */
    void *stream;
} PassesCall;

int64_t passes_rows(const Passes *p, const PassesCall *call);
int64_t passes_room(Ctx *c, Gpu *g, Passes *p, const PassesCall *call);
/* Its kernels, wished for (build_wish); compiled where they are new; and run.
 */
void passes_wish(Ctx *c, Gpu *g, Passes *p, const PassesCall *call);
void passes_prepare(Ctx *c, Gpu *g, Passes *p, const PassesCall *call);
void passes_run(Ctx *c, Gpu *g, Passes *p, const PassesCall *call);
/* The kernels' text. */
const char *passes_text(Ctx *c, const Passes *p, const PassesCall *call);

#endif
