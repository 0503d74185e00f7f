/* seconds.c -- what a call's kernels are predicted to take, by the machine's
 * rates and the call's sizes, before they are compiled.
 */
#include "driver.h"
#include "../../compiler/cost.h"

#include <math.h>
#include <string.h>

static bool goes_forward(const Plan *p, const CudaKernel *k)
{
    return !plan_is_joint(p) || k->of < p->split;
}

/* Tokens of a sequence; where the device alone knows, of the mean one. */
static int64_t length_of(const Call *call, int64_t i)
{
    return call->seq ? call->seq[i].len
         : call->device_cu ? (call->tokens + call->nseq - 1) / call->nseq
         : call->tokens;
}

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

double cuda_kernel_seconds(const Graph *g, const CudaKernel *k,
                           const Machine *machine, int units, const Call *call)
{
    Machine m = *machine;
    double moves = k->moves - bytes_shared(g, k, machine, call);
    GpuWork w = { k->cycles, moves, k->blocks, k->resident,
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
 * scaled by. */
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

double cuda_way_seconds(const Plan *p, const CudaModule *m, bool back,
                        const Machine *machine, int units, const Call *call)
{
    /* more than its price is what a cut way takes of few heads: kda .255 ms of
     * 4 x 2,048 tokens and 16 heads, 1.28 of 2 x 16,384, 2.03 of 32,768, by
     * price .200, .98 and 1.21 */
    const double few = 1.26;
    double all = 0;

    for (int i = 0; i < m->nkernels; i++)
        if (goes_forward(p, &m->kernel[i]) != back)
            all += cuda_kernel_seconds(p->g, &m->kernel[i], machine, units,
                                       call);
    return !back && !call->ends && is_cut_forward(p, m)
        && !finds_all_ahead(p, m) ? few * all : all;
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

/* Whether all of its kernels have schedules by roles. */
static bool is_scheduled(const CudaModule *m)
{
    bool all = m->nkernels > 0;

    for (int i = 0; i < m->nkernels; i++) {
        const CudaKernel *k = &m->kernel[i];
        all &= k->head || k->walk == CUDA_SUM;
    }
    return all;
}

bool cuda_may_pay_as_few(const Plan *p, const CudaOptions *o)
{
    enum { HOPPER = 90 };               /* whose calls were timed */

    return o->arch == HOPPER && o->tile != F32 && o->scheduled && !o->few
        && !o->cut && p->g->chunk && !plan_is_joint(p);
}

bool cuda_pays_as_few(const Plan *p, const CudaModule *few,
                      const CudaModule *many, const Machine *m, int units,
                      const Call *call)
{
    const double worth = 0.94;

    return call->nseq * call->heads < units && is_scheduled(few)
        && is_cut_once(p, few)
        && (!many || !is_scheduled(many)
            || cuda_way_seconds(p, few, false, m, units, call)
               < worth * cuda_way_seconds(p, many, false, m, units, call));
}
