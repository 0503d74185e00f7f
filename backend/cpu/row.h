/* row.h -- row programs on the CPU: each pass over a row by strips. */
#ifndef FLIN_CPU_ROW_H
#define FLIN_CPU_ROW_H

#include "../../compiler/call.h"
#include "../../compiler/row.h"
#include "pool.h"

/* Views as of a Call: of the joint graph's inputs (dy behind the step's), and
 * of the program's results; data NULL: not wanted. kept: numbers of rows, for
 * each row those of RowStep.kept, in its order: written where the program gives
 * them, read where it is given them. carry: of a part of the rows, where
 * its reductions go on, ROW_CARRY bytes of each. */
typedef struct RowCall {
    int64_t B, T;
    int heads;
    const int32_t *size;                /* of the graph's axes */
    View in[MAX_INPUTS], out[MAX_INPUTS];
    float *kept;
    int nkept;
    RowSome some;
    void *carry;
} RowCall;

/* Rows of a token and head, in all. */
int64_t row_count(const RowProgram *p, const RowCall *call);

/* By so many threads (0: one a core); the bits do not depend on how many. */
void cpu_row(Ctx *c, Pool *pool, int threads, const RowProgram *p,
             const RowCall *call);

#endif
