/* roads.c -- who prints a call's way forward, where both emitters can: whoever
 * takes less time, by the prices of their kernels and the call's sizes, those
 * of the way back included, which are not the same behind both.
 */
#include "driver.h"
#include "../../compiler/cost.h"

#include <math.h>
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

/* ---- prices ---- */

/* Of a chunk's bytes what is there already, or stays: heads that share a tensor
 * have it from memory once. */
static double bytes_shared(const Graph *g, const CudaKernel *k,
                           const Machine *m, const Call *call)
{
    uint64_t seen[2] = { 0 };
    double bytes = 0;

    for (int i = 0; i < k->nmaps + k->ntensors; i++) {
        CudaArg a = i < k->nmaps ? k->map[i] : k->tensor[i - k->nmaps];
        if ((a.kind != ARG_INPUT && a.kind != ARG_OUTPUT)
            || seen[a.kind == ARG_OUTPUT] >> a.index & 1)
            continue;
        seen[a.kind == ARG_OUTPUT] |= (uint64_t)1 << a.index;
        const View *v = view_of(call, a);
        Ref r = a.kind == ARG_INPUT ? g->in[a.index].node
                                    : g->out[a.index].node;
        if (g->n[r].timed && v->data && v->heads > 0 && v->heads < call->heads)
            bytes += tile_bytes(g, m, r)
                   * (1 - (double)v->heads / call->heads);
    }
    return bytes < k->moves ? bytes : k->moves;
}

static double kernel_seconds(const Graph *g, const CudaKernel *k,
                             const Machine *machine, int units,
                             const Call *call, bool whole)
{
    Machine m = *machine;
    double cycles = k->cycles / (whole && k->halved ? half_columns() : 1);
    double moves = k->moves - bytes_shared(g, k, machine, call);
    GpuWork w = { cycles, moves, k->blocks, k->resident,
                  k->walk != CUDA_CHUNKS && k->walk != CUDA_SCHEDULED };
    int64_t each = k->tokens, longest = 0, all = 0;
    double walks = (double)call->nseq * call->heads, rounds;

    if (!each)
        return k->walk == CUDA_SUM ? m.follow : 0;
    for (int64_t i = 0; i < call->nseq; i++) {
        int64_t chunks = (length_of(call, i) + each - 1) / each;
        longest = chunks > longest ? chunks : longest;
        all += chunks;
    }
    m.bandwidth *= (double)units / m.units;     /* a part of such a machine */
    m.units = units;
    rounds = (double)longest;
    if (k->split) {                     /* the first part is the longest */
        walks *= cuda_parts(k, units, call);
        rounds /= cuda_parts_sum(k, units, call);
        w.bytes *= 1 + cuda_lean_bytes(k, units, call);
    }
    return gpu_call_seconds(&m, &w, walks, rounds,
                            (double)all * call->heads);
}

double cuda_kernel_seconds(const Graph *g, const CudaKernel *k,
                           const Machine *machine, int units, const Call *call)
{
    return kernel_seconds(g, k, machine, units, call, false);
}

/* Whether it is a way forward alone, of kernels over all chunks and a walk. */
static bool is_cut_forward(const Plan *p, const CudaModule *m)
{
    bool any = false;

    for (int i = 0; i < m->nkernels; i++)
        any |= m->kernel[i].walk == CUDA_SCHEDULED;
    return any && !plan_is_joint(p);
}

/* Whether it is one whose walks find all that no carried state goes into, and
 * keep states in registers, or of which one walks a state that others are
 * scaled by: of 64 sequences and heads of 2,048 tokens that takes less than by
 * cuda_emit, whatever prices say (kda .182 and .200 ms, gla .138 and .169, gdn2
 * .279 and .314, precond_kda .316 and .365, precond_gdn .172 and .212; an
 * H200). */
static bool finds_all_ahead(const Plan *p, const CudaModule *m)
{
    bool all = is_cut_forward(p, m), any = false;
    int walks = 0;

    for (int i = 0; i < m->nkernels; i++) {
        all &= !m->kernel[i].ahead;
        any |= m->kernel[i].in_rows;
        walks += m->kernel[i].walk != CUDA_SCHEDULED
              && m->kernel[i].walk != CUDA_SUM;
    }
    return is_cut_forward(p, m) && any && (all || walks > 1);
}

static double way_seconds(const Plan *p, const CudaModule *m, bool back,
                          const Machine *machine, int units, const Call *call,
                          bool whole)
{
    /* more than its price is what a cut way takes of few heads: kda .255 ms of
     * 4 x 2,048 tokens and 16 heads, 1.28 of 2 x 16,384, 2.03 of 32,768, by
     * price .200, .98 and 1.21 */
    const double few = 1.26;
    double all = 0;

    for (int i = 0; i < m->nkernels; i++)
        if (goes_forward(p, &m->kernel[i]) != back)
            all += kernel_seconds(p->g, &m->kernel[i], machine, units, call,
                                  whole);
    return !back && !call->ends && is_cut_forward(p, m)
        && !finds_all_ahead(p, m) ? few * all : all;
}

double cuda_way_seconds(const Plan *p, const CudaModule *m, bool back,
                        const Machine *machine, int units, const Call *call)
{
    return way_seconds(p, m, back, machine, units, call, false);
}

double cuda_way_whole(const Plan *p, const CudaModule *m, bool back,
                      const Machine *machine, int units, const Call *call)
{
    return way_seconds(p, m, back, machine, units, call, true);
}

/* The call with sequences of the mean length, as it is known of them wherever
 * their ends are. */
static Call evenly(const Call *call)
{
    Call even = *call;
    int64_t all = 0;

    if (call->device_cu)
        all = call->tokens;
    else
        for (int64_t i = 0; i < call->nseq; i++)
            all += length_of(call, i);
    even.tokens = call->nseq ? (all + call->nseq - 1) / call->nseq : 0;
    even.seq = NULL;
    even.device_cu = NULL;
    return even;
}

/* Of a call in segments, what these leave by themselves and their transitions
 * are made first: by walks from schedules that do no more (NULL: none), or by
 * cuda_emit's kernel of the states alone. */
static double ends_seconds(const Plan *p, const CudaModule *m,
                           const CudaModule *ends, const Machine *machine,
                           int units,
                           const Call *call)
{
    const double walk = 0.65, emitted = 0.8;
    double all = 0;

    if (ends)
        return call->ends * cuda_way_whole(p, ends, false, machine, units,
                                           call);
    for (int i = 0; i < m->nkernels && call->ends; i++) {
        const CudaKernel *k = &m->kernel[i];
        if (goes_forward(p, k) && k->walk != CUDA_SCHEDULED)
            all += call->ends * (k->walk == CUDA_HOPPER ? emitted : walk)
                 * kernel_seconds(p->g, k, machine, units, call, true);
    }
    return all;
}

static double forward_seconds(const Plan *p, const CudaModule *m,
                              const CudaModule *ends, const Machine *machine,
                              int units, const Call *call)
{
    return cuda_way_whole(p, m, false, machine, units, call)
         + ends_seconds(p, m, ends, machine, units, call);
}

/* Whether it is one walk, which finds all that is found ahead; or another, too,
 * of what states are scaled by. */
static bool is_cut_once(const Plan *p, const CudaModule *m)
{
    int walks = 0;

    for (int i = 0; i < m->nkernels; i++)
        walks += m->kernel[i].walk != CUDA_SCHEDULED
              && m->kernel[i].walk != CUDA_SUM;
    return walks <= 2 && finds_all_ahead(p, m);
}

bool cuda_pays_as_few(const Plan *p, const CudaModule *few,
                      const CudaModule *many, const CudaModule *hopper,
                      const Machine *m, int units, const Call *call)
{
    const double worth = 0.94;
    double least = INFINITY;

    if (call->nseq * call->heads >= units || cuda_road_asked() == ROAD_EMITTED
        || !cuda_forward_scheduled(p, few) || !is_cut_once(p, few))
        return false;
    if (many && cuda_forward_scheduled(p, many))
        least = cuda_way_seconds(p, many, false, m, units, call);
    if (hopper && cuda_road_asked() != ROAD_SCHEDULES)
        least = fmin(least, cuda_way_seconds(p, hopper, false, m, units, call));
    return cuda_way_seconds(p, few, false, m, units, call) < worth * least;
}

bool cuda_takes_schedules(const Plan *p, const CudaModule *tiles,
                          const CudaModule *ends, const CudaModule *hopper,
                          const CudaModule *rest, const Machine *m, int units,
                          const Call *call)
{
    const double worth = 0.95;          /* what prices tell apart: lightning
                                           of 96 heads takes .266 and .251 ms,
                                           by price .269 and .281 */
    CudaRoad asked = cuda_road_asked();
    Call even = rest ? evenly(call) : *call;
    double less = 0;

    if (!tiles || !cuda_forward_scheduled(p, tiles))
        return false;
    if (!hopper || asked == ROAD_SCHEDULES)
        return true;
    if (call->in_parts && !plan_is_joint(p))
        return true;                    /* it tells ends alone */
    if (asked != ROAD_EMITTED && finds_all_ahead(p, tiles))
        return true;
    if (rest)
        less = cuda_way_seconds(p, rest, true, m, units, &even)
             - cuda_way_seconds(p, tiles, true, m, units, &even);
    return asked != ROAD_EMITTED
        && forward_seconds(p, tiles, ends, m, units, &even) - less
           < worth * forward_seconds(p, hopper, NULL, m, units, &even);
}
