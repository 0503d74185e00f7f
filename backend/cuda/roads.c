/* roads.c -- who prints a call's way forward, where both emitters can: whoever
 * takes less time, by the prices of their kernels and the call's sizes.
 */
#include "driver.h"
#include "../../compiler/cost.h"

#include <stdlib.h>
#include <string.h>

CudaRoad cuda_road_asked(void)
{
    const char *s = getenv("FLIN_SCHEDULE");

    return !s ? ROAD_CHEAPER : !strcmp(s, "forward") ? ROAD_SCHEDULES
         : !strcmp(s, "back") ? ROAD_EMITTED : ROAD_CHEAPER;
}

static bool goes_forward(const Plan *p, const CudaKernel *k)
{
    return !plan_is_joint(p) || k->of < p->split;
}

bool cuda_forward_scheduled(const Plan *p, const CudaModule *m)
{
    bool all = m->nkernels > 0;

    for (int i = 0; i < m->nkernels; i++) {
        const CudaKernel *k = &m->kernel[i];
        all &= k->head || k->walk == CUDA_SUM || !goes_forward(p, k);
    }
    return all;
}

/* Tokens of a sequence; where the device alone knows, of the mean one. */
static int64_t length_of(const Call *call, int64_t i)
{
    return call->seq ? call->seq[i].len
         : call->device_cu ? (call->tokens + call->nseq - 1) / call->nseq
         : call->tokens;
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
    return k->split && chunks_of(k, call) >= SPLIT_CHUNKS;
}

int cuda_parts(const CudaKernel *k, int units, const Call *call)
{
    int64_t grid = call->nseq * call->heads * k->blocks;
    int64_t chunks = chunks_of(k, call);
    int n = 1;

    while (k->split && n < CUDA_SEGMENTS && 2 * n * grid <= units
           && chunks >= SPLIT_CHUNKS * n)
        n *= 2;
    return n;
}

/* ---- prices ---- */

double cuda_kernel_seconds(const CudaKernel *k, int arch, int units,
                           const Call *call)
{
    Machine m = *machine_of_arch(arch);
    GpuWork w = { k->cycles, k->moves, k->blocks, k->resident,
                  k->walk != CUDA_CHUNKS && k->walk != CUDA_SCHEDULED };
    int64_t each = k->tokens, longest = 0, all = 0;
    double walks = (double)call->nseq * call->heads, rounds;

    if (!each)
        return 0;
    for (int64_t i = 0; i < call->nseq; i++) {
        int64_t chunks = (length_of(call, i) + each - 1) / each;
        longest = chunks > longest ? chunks : longest;
        all += chunks;
    }
    m.units = units;
    rounds = (double)longest;
    if (k->walk == CUDA_HOPPER) {       /* the first part is the longest */
        double part = 1, sum = 0;
        int n = cuda_parts(k, units, call);
        for (int i = 0; i < n; i++, part *= 0.5)
            sum += part;
        walks *= n;
        rounds /= sum;
    }
    return gpu_call_seconds(&m, &w, walks, rounds,
                            (double)all * call->heads);
}

double cuda_forward_seconds(const Plan *p, const CudaModule *m, int arch,
                            int units, const Call *call)
{
    double all = 0;

    for (int i = 0; i < m->nkernels; i++)
        if (goes_forward(p, &m->kernel[i]))
            all += cuda_kernel_seconds(&m->kernel[i], arch, units, call);
    return all;
}

bool cuda_takes_schedules(const Plan *p, const CudaModule *tiles,
                          const CudaModule *hopper, int arch, int units,
                          const Call *call)
{
    CudaRoad asked = cuda_road_asked();

    if (!tiles || !cuda_forward_scheduled(p, tiles))
        return false;
    if (!hopper || asked == ROAD_SCHEDULES)
        return true;
    return asked != ROAD_EMITTED
        && cuda_forward_seconds(p, tiles, arch, units, call)
           < cuda_forward_seconds(p, hopper, arch, units, call);
}
