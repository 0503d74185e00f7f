/* args.c -- what cuda_tiles' kernels are passed: tile.cuh's Run and
 * Tensors, and the workspace's parts: what is stored, results that are still to
 * be summed, the blocks' own. No driver here: the host's compiler runs the
 * same kernels in tests.
 */
#include "cuda.h"

#include <string.h>

enum { PART_ALIGN = 256 };

static int64_t aligned(int64_t n)
{
    return (n + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

static int64_t entry_chunks(const CudaModule *m, const Call *call)
{
    return (cuda_extent(call).tokens + m->chunk - 1) / m->chunk;
}

/* Of each but the last, whose last chunk may have fewer. */
static int64_t piece_tokens(const CudaModule *m, const Call *call, int64_t n)
{
    int64_t all = cuda_extent(call).tokens;

    return n > 1 ? entry_chunks(m, call) / n * m->chunk : all;
}

int64_t cuda_pieces(const CudaModule *m, const Call *call)
{
    CudaExtent e = { 1, 0 };
    int64_t n, each;

    if (call->seq && !call->device_cu)
        e = cuda_extent(call);
    n = e.tokens ? call->nseq / e.batch : 0;
    if (!n || call->nseq % e.batch || (n > 1 && entry_chunks(m, call) % n))
        return 0;
    each = piece_tokens(m, call, n);
    for (int64_t i = 0; i < call->nseq; i++) {
        const Seq *s = &call->seq[i];
        int64_t from = i % n * each;
        int64_t left = e.tokens - from;
        if (s->b != i / n || s->start != from
            || s->len != (left < each ? left : each))
            return 0;
    }
    return n;
}

/* See first_slot. */
int64_t cuda_slots(const CudaModule *m, const Call *call)
{
    return call->nseq + cuda_extent(call).batch * entry_chunks(m, call);
}

/* Of which so many have tokens, where sequences are known and even. */
static int64_t chunks_there(const CudaModule *m, const Call *call)
{
    return cuda_pieces(m, call)
         ? cuda_extent(call).batch * entry_chunks(m, call)
         : cuda_slots(m, call);
}

static int group_of(const Call *call, const View *v)
{
    return v->heads > 0 ? call->heads / v->heads : 1;
}

/* ---- parts that heads leave ---- */

/* Can n blocks have as much to do each as before, if one has `each` heads? */
static bool is_even(int64_t items, int64_t n, int64_t each)
{
    const double more = 1.05;
    int64_t before = (items + n - 1) / n;
    int64_t after = (items / each + n - 1) / n * each;

    return (double)after <= more * (double)before;
}

/* How many heads of a chunk the kernel's blocks have in sequence. */
static int heads_in_turn(const CudaModule *m, const CudaKernel *k,
                         const Call *call)
{
    int64_t items = chunks_there(m, call) * call->heads, n = m->units
                                                           * k->resident;
    int group = call->heads, each = 1;

    for (int i = 0; i < k->ntensors; i++) {
        const View *v = view_of(call, k->tensor[i]);
        int all = group, own = k->part[i] && v->data ? group_of(call, v) : all;
        while (all % group || own % group)
            group--;
    }
    for (int i = 2; i <= group && k->adds && n; i++)
        if (group % i == 0 && is_even(items, n, i))
            each = i;
    return each;
}

/* Of the module's output: the parts that there are of each group. */
static int heads_of_part(const CudaModule *m, const Call *call, int output)
{
    for (int i = 0; i < m->nkernels; i++)
        for (int j = 0; m->kernel[i].adds && j < m->kernel[i].ntensors; j++)
            if (m->kernel[i].part[j] && m->kernel[i].tensor[j].kind
                == ARG_OUTPUT && m->kernel[i].tensor[j].index == output)
                return heads_in_turn(m, &m->kernel[i], call);
    return 1;
}

/* ---- the workspace ---- */

/* Elements of a head, in a row of tokens or of a sequence. */
static int64_t result_size(const Graph *g, bool state, int i)
{
    const uint8_t *order = state ? g->st[i].order : g->out[i].order;
    int rank = state ? g->st[i].rank : g->out[i].rank;
    int64_t n = 1;

    for (int d = 0; d < rank; d++)
        n *= g->axis[order[d]].size;
    return n;
}

static int64_t part_bytes(const CudaModule *m, const Graph *g,
                          const Call *call, bool state, int i)
{
    CudaExtent e = cuda_extent(call);
    int64_t rows = state ? call->nseq : e.batch * e.tokens;
    int64_t heads = state ? call->heads
                          : call->heads / heads_of_part(m, call, i);

    return aligned(4 * rows * heads * result_size(g, state, i));
}

int64_t cuda_stored(const CudaModule *m, const Call *call)
{
    return aligned(m->kept * cuda_slots(m, call) * call->heads);
}

/* Bytes before what the way back alone stores. */
static int64_t later_at(const CudaModule *m, const Call *call)
{
    return call->kept ? 0 : cuda_stored(m, call);
}

/* Bytes before the result's part; of all parts for the one past the last. The
 * way forward alone has none. */
static int64_t part_at(const CudaModule *m, const Plan *p, const Call *call,
                       bool state, int index)
{
    const Graph *g = p->g;
    int64_t at = later_at(m, call);

    if (call->to && call->to <= p->split)
        return at;
    at += aligned(m->later * cuda_slots(m, call) * call->heads);
    for (int i = 0; i < (state ? g->nout : index); i++)
        at += m->sum_out[i] ? part_bytes(m, g, call, false, i) : 0;
    for (int i = 0; i < (state ? index : 0); i++)
        at += m->sum_s1[i] ? part_bytes(m, g, call, true, i) : 0;
    return at;
}

/* Of all results of a kernel of sums, one behind another (shares.c). */
static int64_t items_of_sums(const CudaModule *m, const CudaKernel *k,
                             const Call *call)
{
    int64_t all = 0;

    for (int i = 1; i < k->ntensors; i += 2) {
        const View *to = view_of(call, k->tensor[i]);
        int64_t n = k->tensor[i].kind == ARG_OUTPUT
                  ? cuda_slots(m, call) * sum_parts(m->chunk)
                  : to->sb ? call->nseq : call->nseq > 0;
        if (to->data)
            all += n * (call->heads / group_of(call, to));
    }
    return all;
}

static int64_t items_of(const CudaModule *m, const CudaKernel *k,
                        const Call *call)
{
    switch (k->walk) {
    case CUDA_WALKED:
        return call->nseq * call->heads * k->blocks
             * cuda_parts(k, m->units, call);
    case CUDA_SEQUENCES: return call->nseq * call->heads * k->blocks;
    case CUDA_SCHEDULED:
    case CUDA_CHUNKS: return cuda_slots(m, call) * call->heads * k->blocks;
    case CUDA_SUM:     return items_of_sums(m, k, call);
    }
    return 0;
}

bool cuda_writes(const CudaKernel *k, const Call *call, CudaArgKind kind)
{
    bool writes = false;

    for (int i = 0; i < k->ntensors; i++)
        writes |= k->tensor[i].kind == kind
               && view_of(call, k->tensor[i])->data;
    return writes;
}

static bool has_results(const CudaKernel *k, const Call *call)
{
    return cuda_writes(k, call, ARG_OUTPUT) || cuda_writes(k, call, ARG_NEXT);
}

/* What is kept is for results of kernels behind it, or of a later call. */
bool cuda_is_asked(const CudaModule *m, const CudaKernel *k, const Call *call)
{
    bool asked = has_results(k, call);

    for (int i = (int)(k - m->kernel) + 1; k->keeps && i < m->nkernels; i++)
        asked |= has_results(&m->kernel[i], call)
              || (call->to && m->kernel[i].of >= call->to);
    return asked;
}

static int64_t grid_of(const CudaModule *m, const CudaKernel *k,
                       const Call *call)
{
    if (!cuda_is_asked(m, k, call))
        return 0;

    int64_t items = items_of(m, k, call);
    int64_t most = k->head ? m->units * k->resident
                 : k->spill ? m->units : INT32_MAX;

    if (k->paired)                      /* whole clusters */
        most = most > 2 ? most - most % 2 : 2;

    return items < most ? items : most;
}

int64_t cuda_workspace(const CudaModule *m, const Plan *p, const Call *call)
{
    int64_t spill = 0;

    for (int i = 0; i < m->nkernels; i++) {
        int64_t n = m->kernel[i].spill * grid_of(m, &m->kernel[i], call);
        spill = n > spill ? n : spill;
    }
    return part_at(m, p, call, true, p->g->nst) + spill;
}

/* ---- arguments ---- */

/* Whether a chunk may have fewer tokens than its tiles have room for. */
static bool is_ragged(const CudaModule *m, const Call *call)
{
    bool ragged = m->chunk > 1 && (m->chunk % 16 || call->device_cu);

    for (int64_t i = 0; i < call->nseq; i++)
        ragged |= call->seq[i].len % m->chunk != 0;
    return ragged;
}

static unsigned char *put(unsigned char *at, const void *x, size_t n)
{
    memcpy(at, x, n);
    return at + n;
}

/* Whether every row is whole and starts at a multiple of 16 bytes. */
static bool is_wide(const View *v, int rank)
{
    int64_t each = 16 / dtype_size(v->dtype);
    bool wide = (uintptr_t)v->data % 16 == 0 && v->sb % each == 0
             && v->st % each == 0 && v->sh % each == 0
             && (rank == 0 || v->sd[rank - 1] == 1);

    for (int d = 0; d + 1 < rank; d++)
        wide &= v->sd[d] % each == 0;
    return wide && rank > 0;
}

static int rank_of(const Graph *g, CudaArg a)
{
    switch ((CudaArgKind)a.kind) {
    case ARG_INPUT:  return g->in[a.index].rank;
    case ARG_OUTPUT: return g->out[a.index].rank;
    case ARG_STATE:
    case ARG_STORED:
    case ARG_NEXT:   return g->st[a.index].rank;
    }
    return 0;
}

/* Of a part its own. */
static View entry_of(View v, CudaArg a)
{
    if (!a.part)
        return v;
    if (v.data)
        v.data = (char *)v.data + (a.part - 1) * v.sd[0]
                                * (int64_t)dtype_size(v.dtype);
    memmove(v.sd, v.sd + 1, sizeof v.sd - sizeof *v.sd);
    return v;
}

View cuda_view(const Call *call, CudaArg a)
{
    return entry_of(*view_of(call, a), a);
}

View cuda_part(const CudaModule *m, const Plan *p, const Call *call,
               CudaArg a, uint64_t workspace)
{
    const Graph *g = p->g;
    bool state = a.kind == ARG_NEXT;
    const uint8_t *order = state ? g->st[a.index].order
                                 : g->out[a.index].order;
    int heads = state ? call->heads
                      : call->heads / heads_of_part(m, call, a.index);
    int64_t n = 1;
    View v = { .dtype = F32, .heads = heads };

    for (int d = rank_of(g, a); d-- > 0; n *= g->axis[order[d]].size)
        v.sd[d] = n;
    v.sh = n;
    v.st = state ? 0 : n * heads;
    v.sb = state ? n * heads : n * heads * cuda_extent(call).tokens;
    if (view_of(call, a)->data)
        v.data = (void *)(uintptr_t)(workspace + (uint64_t)
                 part_at(m, p, call, state, a.index));
    return entry_of(v, a);
}

static void check_view(Ctx *c, const Graph *g, CudaArg a, const View *v,
                       const Call *call)
{
    const char *name = a.kind == ARG_INPUT ? g->in[a.index].name
                     : a.kind == ARG_OUTPUT ? g->out[a.index].name
                                            : g->st[a.index].name;

    if (a.kind == ARG_INPUT && !v->data && cuda_extent(call).tokens)
        fail(c, g->in[a.index].line, "input '%s' is absent", name);
    if (v->data && v->dtype != (DType)a.dtype)
        fail_code(c, ERR_USER, "%s: is %s; the kernel was made for %s", name,
                  dtype_name(v->dtype), dtype_name((DType)a.dtype));
    if (v->data && (v->heads <= 0 || call->heads % v->heads))
        fail_code(c, ERR_USER, "%s: has %d heads, which do not divide %d",
                  name, v->heads, call->heads);
}

static unsigned char *put_tensor(unsigned char *at, const View *v, int rank,
                                 int most, int group)
{
    int32_t last[2] = { group, is_wide(v, rank) };
    uint64_t data = (uint64_t)(uintptr_t)v->data;

    at = put(at, &data, sizeof data);
    at = put(at, &v->sb, sizeof v->sb);
    at = put(at, &v->st, sizeof v->st);
    at = put(at, &v->sh, sizeof v->sh);
    at = put(at, v->sd, (size_t)most * sizeof *v->sd);
    return put(at, last, sizeof last);
}

uint32_t cuda_share(int64_t n)
{
    int64_t all = (int64_t)1 << 32;
    return n > 1 ? (uint32_t)((all + n - 1) / n) : 0;
}

HostDivisor cuda_divisor(int64_t n)
{
    int64_t all = (int64_t)1 << 32;
    return (HostDivisor){ (uint32_t)n,
                          n > 1 ? (uint32_t)(all / n) : UINT32_MAX };
}

HostRun cuda_run_of(const CudaModule *m, const CudaKernel *k, const Plan *p,
                    const Call *call, uint64_t seq, uint64_t workspace,
                    int64_t *grid)
{
    HostRun run = { .seq = seq, .nseq = call->nseq, .heads = call->heads,
                    .ragged = is_ragged(m, call),
                    .tokens = cuda_extent(call).tokens };

    int64_t pieces = seq ? 0 : cuda_pieces(m, call);

    pieces = pieces ? pieces : 1;
    run.per_entry = entry_chunks(m, call);
    run.each = piece_tokens(m, call, pieces);
    run.by_heads = cuda_divisor(run.heads);
    run.by_slots = cuda_divisor(run.per_entry / pieces + 1);
    run.by_pieces = cuda_divisor(pieces);
    run.items = items_of(m, k, call);
    run.per_head = cuda_share(run.heads);
    run.parts = cuda_bounds(k, m->units, call, run.bound);
    run.stored = call->kept ? (uint64_t)(uintptr_t)call->kept : workspace;
    run.later = workspace + (uint64_t)later_at(m, call);
    run.spill = workspace + (uint64_t)part_at(m, p, call, true, p->g->nst);
    *grid = grid_of(m, k, call);
    return run;
}

/* run.cuh's. */
typedef struct HostPages {
    uint64_t at;
    int64_t row, col, states;
    int32_t wide, each;
} HostPages;

static HostPages pages_of(const Call *call)
{
    const Pages *p = &call->pages;

    return (HostPages){ (uint64_t)(uintptr_t)p->at, p->sn, p->sc, p->states,
                        p->dtype == I64, call->each };
}

size_t cuda_tile_args(Ctx *c, const CudaModule *m, const CudaKernel *k,
                      const Plan *p, const Call *call, uint64_t seq,
                      uint64_t workspace, unsigned char **args,
                      int64_t *grid)
{
    int most = cuda_rank(p->g);
    size_t each = 40 + 8 * (size_t)most;
    HostRun run = cuda_run_of(m, k, p, call, seq, workspace, grid);
    HostPages pages = pages_of(call);
    unsigned char *at = ctx_alloc(c, sizeof run + sizeof pages + each
                                     * (size_t)(k->ntensors + 1));

    *args = at;
    at = put(at, &run, sizeof run);
    for (int i = 0; i < k->ntensors; i++) {
        CudaArg a = k->tensor[i];
        View v = k->part[i] ? cuda_part(m, p, call, a, workspace)
                            : cuda_view(call, a);
        check_view(c, p->g, a, &v, call);
        at = put_tensor(at, &v, rank_of(p->g, a), most, group_of(call, &v));
    }
    if (m->chunk == 1)
        at = put(at, &pages, sizeof pages);
    return (size_t)(at - *args);
}
