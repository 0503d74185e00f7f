/* isa.h -- the vector routines, once for each instruction set.
 *
 * isa.inc is their one source. isa_plain.c, isa_avx2.c and isa_avx512.c
 * compile it; isa_find chooses at run time what the machine can do.
 */
#ifndef FLIN_CPU_ISA_H
#define FLIN_CPU_ISA_H

#include "../../compiler/call.h"

enum { TILE_SLACK = 128 };  /* floats readable behind every tile */

/* y[r][x] = op(a, b, c) for rows x len elements. Row strides st[] are those
 * of y, a, b, c; operand p whose bit p is set in `scalar` has one element a
 * row. */
typedef void ElemFn(int rows, int len, float *y, const float *const x[3],
                    const ptrdiff_t st[4], int scalar);

/* c (m x n, unit column stride) = or += or -= a (m x k) times b (k x n).
 *
 * A lower triangle is one in tokens: row r belongs to token r / row_rank.
 * LOWER_A: a is zero where its column's token lies behind its row's;
 * UPPER_A: where it lies before (a transposed lower matrix). LOWER_C: only
 * the lower triangle of c is wanted, what lies above may be anything. */
/* Element-wise work in one pass that a graph has as several nodes. */
enum {
    FUSED_SCALE = NOPS,         /* a e^b */
    FUSED_DECAY,                /* a e^(b - c) */
    NELEMS
};

enum { GEMM_SET, GEMM_ADD, GEMM_SUB };
enum { TRI_NONE, LOWER_A, UPPER_A, LOWER_C };
typedef struct Gemm {
    int m, n, k;
    const float *a, *b;
    float *c;
    ptrdiff_t ars, acs, brs, bcs, crs;
    int mode, tri, row_rank, col_rank;
    float *pack;            /* gemm_scratch(k, n) floats, if bcs != 1 */
} Gemm;

static inline size_t gemm_scratch(int k, int n)
{
    return (size_t)k * (((size_t)n + 15) / 16 * 16) + TILE_SLACK;
}

typedef struct Isa {
    const char *name;
    int columns;            /* of c that gemm makes at once, of many rows */
    ElemFn *elem[NELEMS];
    void (*gemm)(const Gemm *g);
    /* g's b in g->pack, its rows ld apart, its columns side by side */
    void (*pack)(const Gemm *g, ptrdiff_t ld);
    /* y[r] = sum of a[r][x] * b[r][x]; row strides ys, as, bs */
    void (*row_dot)(int rows, int len, float *y, ptrdiff_t ys, const float *a,
                    ptrdiff_t as, const float *b, ptrdiff_t bs);
    float (*row_sum)(int len, const float *a);
    void (*add_to)(int len, float *y, const float *a);
    void (*mul_add)(int len, float *y, const float *a, const float *b);
    /* y[r][x] = 0 from x = first + r * step on */
    void (*cut)(int rows, int len, float *y, ptrdiff_t ys, int first,
                int step);
    /* y[r][x] = p[r] * s[x]; exp(p[r] - q[x]) */
    void (*outer)(int rows, int len, float *y, ptrdiff_t ys, const float *p,
                  const float *s);
    void (*outer_exp)(int rows, int len, float *y, ptrdiff_t ys,
                      const float *p, const float *q);
    /* t (16 x 16) = (1 - a)^{-1} of a strictly lower n x n */
    void (*invert)(int n, float *t, const float *a, ptrdiff_t ars,
                   ptrdiff_t acs);
    /* Down the rows, `st` apart: s += a; y = s, or what s was before. */
    void (*cumsum)(int rows, int len, ptrdiff_t st, bool exclusive, double *s,
                   float *y, const float *a);
    /* y = s = a * s + b */
    void (*scan)(int rows, int len, ptrdiff_t st, double *s, float *y,
                 const float *a, const float *b);
    /* lo = min(lo, a[r]), hi = max(hi, a[r]) */
    void (*min_max)(int rows, int len, float *lo, float *hi, const float *a);
    /* Rows of len elements; ms: how far rows in memory are apart. In tiles
     * they are ts apart. */
    void (*load[NDTYPES])(int rows, int len, float *tile, ptrdiff_t ts,
                          const void *mem, ptrdiff_t ms);
    void (*store[NDTYPES])(int rows, int len, const float *tile,
                           ptrdiff_t ts, void *mem, ptrdiff_t ms);
} Isa;

const Isa *isa_plain(void);
const Isa *isa_avx2(void);
const Isa *isa_avx512(void);

/* By name, or the best one for NULL; NULL if this machine lacks it. */
const Isa *isa_find(const char *name);

#endif
