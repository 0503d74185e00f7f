/* inplace.h -- states whose memory is the same before and after a call. */
#ifndef FLIN_CUDA_INPLACE_H
#define FLIN_CUDA_INPLACE_H

#include "build.h"

/* What runs: a plan's kernels. */
typedef struct Running {
    const Plan *p;
    const Build *b;
} Running;

/* Bytes for copies of the states that need one. */
int64_t inplace_bytes(const Running *r, const Call *call);
/* Has the call read copies that lie at `to`; returns how many there are to be
 * made before its kernels run. */
int inplace_place(const Running *r, Call *call, DevicePtr to,
                  DeviceRows copy[MAX_STATES]);

#endif
