/* blas.h -- OpenBLAS, where it is found at run time. */
#ifndef FLIN_CPU_BLAS_H
#define FLIN_CPU_BLAS_H

#include "isa.h"

/* May products be OpenBLAS's? FLIN_BLAS=0: never; =1:
 * wherever it is found; else where that is faster than `own` routines are. It
 * is opened when this is first true but for that, and stays. */
bool blas_is_wanted(const Isa *own);

/* Can it make the product? Not of few rows, which it is slow at. */
bool blas_takes(const Gemm *g);

/* The product, set or added, between blas_begin and blas_end: there each of its
 * calls is the asking thread's alone. How many threads it has otherwise is the
 * process's, and is as it was behind the last blas_end. */
void blas_begin(void);
void blas_gemm(const Gemm *g);
void blas_end(void);

#endif
