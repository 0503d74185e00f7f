/* print_parts.h -- what the parts of print.c share. */
#ifndef FLIN_CUDA_PRINT_PARTS_H
#define FLIN_CUDA_PRINT_PARTS_H

#include "print.h"

typedef struct Print {
    const Schedule *s;
    const CudaOptions *o;
    const StoredPlaces *stored;
    CudaKernel *k;
    Ctx *c;
    Buf *b;
} Print;

const char *element_type(DType d);
/* A state as it is found; a result as it is left: for good, or to be summed
 * over those that share it. */
DType result_type(const Print *p, CudaArgKind kind, int i);
/* The number of the tensor among those that the launch passes. */
int result_tensor(Print *p, CudaArgKind kind, int i);
const KValue *value_at(const Print *p, int v);
const char *number_name(Print *p, Ref r);
const char *fragment_name(Print *p, Ref r);
/* Row or column `at` of the block's slice among all of the axis. */
const char *sliced_index(Print *p, int axis, int at);
/* What all slices have alike is left by the first. */
const char *once_text(const Print *p, Ref r);

/* ---- print_states.c: states that a walk carries ---- */

void put_state(Print *p, const KInst *k);
void put_carry(Print *p, const KInst *k);

#endif
