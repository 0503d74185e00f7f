/* product.h -- matrix products of whole tensors, beside the tile machine. */
#ifndef FLIN_CPU_PRODUCT_H
#define FLIN_CPU_PRODUCT_H

#include "isa.h"
#include "pool.h"

/* c (m x n, rows crs apart) = or, with `add`, += a (m x k) times b (k x n),
 * both of any strides. All in float32; c overlaps neither. */
typedef struct Product {
    int64_t m, n, k;
    const float *a, *b;
    float *c;
    ptrdiff_t ars, acs, brs, bcs, crs;
    bool add;
    bool bare;                          /* nothing may be read behind b; else
                                           TILE_SLACK floats */
    const Isa *isa;                     /* NULL: the machine's best */
} Product;

/* By so many threads of the pool (0: one a core) or of the host; the bits do
 * not depend on how many. Blocks are OpenBLAS's where blas.h says so. Fails
 * when the host interrupts it. */
void cpu_product(Ctx *c, Pool *pool, int threads, const Product *p);

#endif
