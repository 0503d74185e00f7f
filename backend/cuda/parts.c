/* parts.c -- what a call's tensors lie in; blocks that share a sequence.
 */
#include "driver.h"

CudaExtent cuda_extent(const Call *call)
{
    CudaExtent e = { 1, 0 };

    for (int64_t i = 0; i < call->nseq; i++) {
        const Seq *s = &call->seq[i];
        if (s->b >= e.batch)
            e.batch = s->b + 1;
        if (s->start + s->len > e.tokens)
            e.tokens = s->start + s->len;
    }
    return e;
}

/* ---- blocks that share a sequence ---- */

enum { SPLIT_CHUNKS = 64 };             /* at least, a segment more */

static int64_t chunks_of(const CudaKernel *k, const Call *call)
{
    const CudaExtent all = { 1, call->tokens };     /* ends are out there */
    CudaExtent e = call->seq ? cuda_extent(call) : all;

    return (e.tokens * k->ranks + 63) / 64;
}

bool may_split(const CudaKernel *k, const Call *call)
{
    return k->split
        && (call->shared || chunks_of(k, call) >= SPLIT_CHUNKS);
}

int cuda_parts(const CudaKernel *k, int units, const Call *call)
{
    int64_t grid = call->nseq * call->heads * k->blocks;
    int64_t chunks = chunks_of(k, call);
    int n = k->split && call->shared ? 2 : 1;

    while (k->split && n < CUDA_SEGMENTS && 2 * n * grid <= units
           && chunks >= SPLIT_CHUNKS * n)
        n *= 2;
    return n;
}

/* Of a part's length the next one has: all end together. */
static double next_part(const CudaKernel *k)
{
    return 1 - k->lean;
}

double cuda_parts_sum(const CudaKernel *k, int units, const Call *call)
{
    double part = 1, sum = 0;

    for (int i = 0, n = cuda_parts(k, units, call); i < n; i++) {
        sum += part;
        part *= next_part(k);
    }
    return sum;
}

int cuda_bounds(const CudaKernel *k, int units, const Call *call,
                int32_t bound[CUDA_SEGMENTS + 1])
{
    double sum = cuda_parts_sum(k, units, call), at = 0, part = 1;
    int n = cuda_parts(k, units, call);

    for (int i = 0; i < n; i++, part *= next_part(k)) {
        bound[i] = (int32_t)(4096 * at / sum);
        at += part;
    }
    if (call->shared && n == 2)         /* two of three chunks */
        bound[1] = 4096 * 2 / 3 + 1;
    bound[n] = 4096;
    return n;
}

double cuda_lean_bytes(const CudaKernel *k, int units, const Call *call)
{
    int32_t bound[CUDA_SEGMENTS + 1];
    double iterations = 0;

    for (int i = 0, n = cuda_bounds(k, units, call, bound); i < n; i++)
        iterations += bound[i] / 4096.0;
    return iterations * k->lean_moves;
}
