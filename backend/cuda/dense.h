/* dense.h -- moves and matrix products of whole tensors on the device, beside
 * the kernels of plans.
 *
 * Products are cuBLASLt's, which is found at run time; where it is not there,
 * or has none for a shape, a plain kernel's. Both accumulate in float32.
 */
#ifndef FLIN_CUDA_DENSE_H
#define FLIN_CUDA_DENSE_H

#include "gpu.h"

enum { DENSE_DIMS = 12, DENSE_WORKSPACE = 32 << 20 };   /* at most */

/* to = from, or += from, of n[0] x n[1] ... entries that lie ts and fs apart.
 * Where ts is 0, what comes to one place is summed, in float32. */
typedef struct DenseMove {
    DevicePtr to, from;
    DType to_type, from_type;
    bool add;
    int rank;
    int64_t n[DENSE_DIMS], ts[DENSE_DIMS], fs[DENSE_DIMS];
} DenseMove;

/* c (m x n) = or, with `add`, += a (m x k) times b (k x n), `batch` times. Of
 * each of a and b one of the strides is 1; of c that of columns. plus: what
 * they are added to where that is not c, of c's type and columns; or 0. */
typedef struct DenseProduct {
    int64_t m, n, k, batch;
    DevicePtr a, b, c, plus;
    int64_t ars, acs, abs, brs, bcs, bbs, crs, cbs, prs, pbs;
    DType type, result;                 /* of a and b; of c */
    bool add;
} DenseProduct;

/* All that both need beside memory: what a graph may not make. That, wished for
 * (build_wish), and what products are chosen by. */
void dense_prepare(Ctx *c, Gpu *g);
void dense_wish(Ctx *c, Gpu *g);
void dense_move(Ctx *c, Gpu *g, void *stream, const DenseMove *m);
/* Several that do not meet: up to four are one kernel, sums of many entries
 * apart. */
void dense_moves(Ctx *c, Gpu *g, void *stream, const DenseMove *m, int n);
/* Bytes that such a product takes beside its tensors, wherever these are. */
int64_t dense_room(Ctx *c, Gpu *g, const DenseProduct *p);
/* bytes: those of the workspace. */
void dense_product(Ctx *c, Gpu *g, void *stream, const DenseProduct *p,
                   DevicePtr workspace, int64_t bytes);
/* Finds what such a product takes; "cuBLASLt 13.0", or "a plain kernel". */
const char *dense_choose(Ctx *c, Gpu *g, const DenseProduct *p);

/* ---- cuBLASLt (lt.c) ---- */

typedef struct Lt Lt;
/* NULL: it is not there, or does not start. units: multiprocessors of a device
 * on which large tiles may be too large; or 0. */
Lt *lt_open(int units);
void lt_close(Lt *lt);
const char *lt_name(const Lt *lt);
/* False: it has none. Locked. */
bool lt_has(Lt *lt, const DenseProduct *p);
/* What it takes where all tensors lie as they best do. */
int64_t lt_room(Lt *lt, const DenseProduct *p);
/* With so many bytes, or fewer. */
bool lt_product(Lt *lt, void *stream, const DenseProduct *p,
                DevicePtr workspace, int64_t bytes);

#endif
