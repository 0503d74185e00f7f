/* launch.c -- a call as a kernel's argument: tensor maps, strides, grid. */
#include "driver_entry.h"

#include <stdio.h>

enum { MAP_BYTES = 128 };

/* device.cuh's Tensor. */
typedef struct HostTensor {
    uint64_t p;
    int64_t sb, st, sh, sd[2];
    int32_t group;
    uint32_t per_group;
} HostTensor;

static const char *name_of(const Graph *g, CudaArg a)
{
    switch ((CudaArgKind)a.kind) {
    case ARG_INPUT:  return g->in[a.index].name;
    case ARG_OUTPUT: return g->out[a.index].name;
    case ARG_STATE:
    case ARG_STORED:
    case ARG_NEXT:   return g->st[a.index].name;
    }
    return "";
}

void check_place(Ctx *c, const Driver *d, const char *name, const void *data)
{
    enum { MEMORY_TYPE = 2, INVALID_VALUE = 1 };
    int type = 0;
    CALL(d, PLACE, place);
    if (data && !d->pageable
        && place(&type, MEMORY_TYPE, (DevicePtr)(uintptr_t)data)
        == INVALID_VALUE)
        fail_code(c, ERR_USER, "%s: its data, at %p, is not the GPU's: copy"
                  " it there first (tensors of the host are not moved unasked)",
                  name, data);
}

/* A call without tokens has no row of them: those may lie anywhere. A step's
 * results, token by token, are rows. */
static bool has_rows(const Graph *g, CudaArg a)
{
    if (a.kind == ARG_INPUT)
        return g->in[a.index].timed;
    return a.kind == ARG_OUTPUT
        && (!g->chunk || g->n[g->out[a.index].node].axes & AXIS(AX_I));
}

void check_places(Ctx *c, const Driver *d, const Graph *g, const Launch *l,
                  const Call *call)
{
    const CudaKernel *k = l->k;
    bool empty = !call->tokens;
    if (!l->grid)
        return;
    for (int i = 0; i < k->nmaps + k->ntensors; i++) {
        CudaArg a = i < k->nmaps ? k->map[i] : k->tensor[i - k->nmaps];
        bool own = a.kind == ARG_STORED
                || (l->apart && (a.kind == ARG_STATE || a.kind == ARG_NEXT));
        if (!own && (!empty || !has_rows(g, a)))
            check_place(c, d, name_of(g, a), view_of(call, a)->data);
    }
    check_place(c, d, "cu_seqlens", call->device_cu);
    check_place(c, d, "state_index", call->pages.at);
    check_place(c, d, "saved", call->kept);
    if (call->workspace_size)           /* of none it may be the end of one */
        check_place(c, d, "workspace", call->workspace);
}

/* Of the call's heads, how many read one of the tensor's: all, where a stride
 * of 0 makes them one. */
static int group_of(const Call *call, const View *v)
{
    return !v->heads ? 1 : v->sh ? call->heads / v->heads : call->heads;
}

/* Axes of its own: the last lies along a row; one before it counts ranks. */
static int rank_of(const Graph *g, CudaArg a)
{
    return a.kind == ARG_INPUT ? g->in[a.index].rank : g->out[a.index].rank;
}

static int inner_axis(const Graph *g, CudaArg a)
{
    return (a.kind == ARG_INPUT ? g->in[a.index].order
                                : g->out[a.index].order)[rank_of(g, a) - 1];
}

/* One of a head for all tokens. */
static bool is_constant(const Graph *g, CudaArg a)
{
    return a.kind == ARG_INPUT && !g->in[a.index].timed;
}

/* How many ranks it has: of a token's rows there may be more. */
static uint64_t ranks_of(const Graph *g, CudaArg a)
{
    const uint8_t *order = a.kind == ARG_INPUT ? g->in[a.index].order
                                               : g->out[a.index].order;
    return (uint64_t)g->axis[order[0]].size;
}

static void check_there(Ctx *c, const Graph *g, CudaArg a, const View *v)
{
    if (!v->data)
        fail_code(c, ERR_USER, "%s: is missing", name_of(g, a));
}

/* The copy engine wants a whole row, and rows 16 bytes apart. */
static void check_matrix(Ctx *c, const Graph *g, CudaArg a, const View *v)
{
    bool ranks = rank_of(g, a) > 1;
    bool apart = v->st % 8 || v->sh % 8 || v->sb % 8
              || (ranks && v->sd[0] % 8);
    check_there(c, g, a, v);
    if (v->sd[ranks] != 1 || apart || (uintptr_t)v->data % 16)
        fail_code(c, ERR_USER, "%s: rows must be whole, and start at"
                  " multiples of 16 bytes", name_of(g, a));
}

/* A stride of 0 is that of one entry. */
static uint64_t step_bytes(int64_t elements, uint64_t size, uint64_t least)
{
    return elements ? (uint64_t)elements * size : least;
}

/* The driver's number for a type of matrices. */
static int map_type(DType d)
{
    enum { MAP_F16 = 6, MAP_F32 = 7, MAP_BF16 = 9 };
    return d == F16 ? MAP_F16 : d == F32 ? MAP_F32 : MAP_BF16;
}

/* Columns, 128 bytes of them, ranks where there are such, tokens, heads, batch
 * entries: 64 rows, where a token has `ranks`. padded: also where the tensor
 * has none of these; then there is one, and others are behind its end. Of a
 * constant the rows of its first axis stand in place of tokens. */
static void encode(Ctx *c, const Driver *d, const Plan *p, const Call *call,
                   CudaArg a, int ranks, bool padded, CudaExtent e,
                   unsigned char *map)
{
    const View *v = view_of(call, a);
    bool constant = is_constant(p->g, a);
    bool of_ranks = rank_of(p->g, a) > 1 && !constant;
    bool has = !constant && (of_ranks || (padded && ranks > 1));
    uint64_t rows = constant ? ranks_of(p->g, a)
                             : (uint64_t)(e.tokens + !e.tokens);
    int64_t next = constant ? v->sd[0] : v->st;
    check_matrix(c, p->g, a, v);
    uint64_t size = (uint64_t)p->g->axis[inner_axis(p->g, a)].size;
    uint64_t bytes = (uint64_t)dtype_size(v->dtype);
    uint64_t row = (size * bytes + 15) / 16 * 16;
    const uint64_t dims[5] = { size, of_ranks ? ranks_of(p->g, a) : 1,
        rows, (uint64_t)(call->heads / group_of(call, v)),
        (uint64_t)e.batch };
    const uint64_t strides[4] = { step_bytes(of_ranks ? v->sd[0] : 0, bytes,
                                             row),
        step_bytes(next, bytes, row), step_bytes(v->sh, bytes, row),
        step_bytes(v->sb, bytes, row) };
    const uint32_t box[5] = { (uint32_t)(128 / bytes), (uint32_t)ranks,
        constant ? 64 : 64 / (uint32_t)ranks, 1, 1 };
    const uint32_t steps[5] = { 1, 1, 1, 1, 1 };
    uint64_t dim[5] = { dims[0] };
    uint32_t side[5] = { box[0] };
    int n = 1;
    for (int i = 1 + !has; i < 5; i++, n++) {
        dim[n] = dims[i];
        side[n] = box[i];
    }
    CALL(d, TENSOR_MAP, encode_tiled);
    enum { SWIZZLE_128 = 3, PROMOTE_256 = 3 };
    driver_check(c, d, encode_tiled(map, map_type(v->dtype), (uint32_t)n,
                 v->data, dim, strides + !has, side, steps, 0, SWIZZLE_128,
                 PROMOTE_256, 0), "the map of a tensor");
}

static void check_type(Ctx *c, const Graph *g, CudaArg a, const View *v)
{
    if (v->data && v->dtype != (DType)a.dtype)
        fail_code(c, ERR_USER, "%s: is %s; the kernel was made for %s",
                  name_of(g, a), dtype_name(v->dtype),
                  dtype_name((DType)a.dtype));
}

static int order_of(const State *s, int axis)
{
    for (int i = 0; i < s->rank; i++)
        if (s->order[i] == axis)
            return i;
    return 0;
}

/* Of the kernel's i-th tensor. */
static HostTensor tensor_of(const Plan *p, const CudaKernel *k,
                            const Call *call, int i, const View *v)
{
    CudaArg a = k->tensor[i];
    HostTensor t = { .p = (uint64_t)(uintptr_t)v->data, .sb = v->sb,
                     .st = v->st, .sh = v->sh, .group = group_of(call, v) };

    t.per_group = cuda_share(t.group);
    if (a.kind == ARG_INPUT || a.kind == ARG_OUTPUT) {
        t.sd[0] = v->sd[0];
        t.sd[1] = rank_of(p->g, a) > 1 ? v->sd[1] : 0;
    }
    if (a.part) {
        t.sd[0] = v->sd[0];
    } else if (a.kind == ARG_STATE || a.kind == ARG_NEXT) {
        int row = order_of(&p->g->st[a.index], k->rows[i]);
        t.sd[0] = v->sd[row];
        t.sd[1] = v->sd[1 - row];
    }
    return t;
}

static unsigned char *put(unsigned char *at, const void *x, size_t n)
{
    memcpy(at, x, n);
    return at + n;
}

/* The states before each chunk of a head, one after another: columns, rows, 1,
 * chunks and heads. */
static void encode_stored(Ctx *c, const Driver *d, const CudaModule *m,
                          const CudaKernel *k, int at, const HostRun *run,
                          int64_t slots, unsigned char *map)
{
    const CudaArg a = k->map[at];
    bool later = k->stored_later[at];
    uint64_t rows = (uint64_t)k->stored_rows[at];
    uint64_t cols = (uint64_t)k->stored_cols[at];
    uint64_t pitch = (uint64_t)k->stored_pitch[at];
    const uint64_t dim[4] = { cols, rows, 1,
                              (uint64_t)(slots + !slots) };
    const uint64_t stride[3] = { 2 * pitch, 2 * pitch * rows,
                                 (uint64_t)(later ? m->later : m->kept) };
    const uint32_t side[4] = { 64, 64, 1, 1 }, steps[4] = { 1, 1, 1, 1 };
    void *from = (void *)(uintptr_t)((later ? run->later : run->stored)
                                     + (uint64_t)k->stored_at[at]);
    CALL(d, TENSOR_MAP, encode_tiled);
    enum { SWIZZLE_128 = 3, PROMOTE_256 = 3 };
    driver_check(c, d, encode_tiled(map, map_type((DType)a.dtype), 4, from,
                 dim, stride, side, steps, 0, SWIZZLE_128, PROMOTE_256, 0),
                 "the map of stored states");
}

/* print.c's Args: maps, tensors, what there is to do. */
static void scheduled_launch(Ctx *c, const Driver *d, Launch *l,
                             const CudaModule *m, const Plan *p,
                             const Call *call, DevicePtr seq,
                             DevicePtr workspace)
{
    const CudaKernel *k = l->k;
    int64_t grid;
    HostRun run = cuda_run_of(m, k, p, call, seq, workspace, &grid);
    CudaExtent e = cuda_extent(call);
    size_t size = 64 + (size_t)(k->nmaps + 1) * MAP_BYTES
                + (size_t)(k->ntensors + 1) * sizeof(HostTensor) + sizeof run;
    unsigned char *raw = ctx_alloc(c, size);
    unsigned char *at = raw + (64 - (uintptr_t)raw % 64) % 64;
    l->args = at;
    for (int i = 0; i < k->nmaps; i++, at += k->lanes ? 0 : MAP_BYTES) {
        CudaArg a = k->map[i];
        const View *v = view_of(call, a);
        if (v && (v->data ? k->lanes : a.kind == ARG_INPUT))
            (k->anywhere ? check_there : check_matrix)(c, p->g, a, v);
        else if (a.kind == ARG_STORED)
            encode_stored(c, d, m, k, i, &run, cuda_slots(m, call)
                                               * call->heads, at);
        else if (v->data)
            encode(c, d, p, call, a, k->ranks, true, e, at);
    }
    at += k->nmaps || k->lanes ? 0 : MAP_BYTES;
    for (int i = 0; i < k->ntensors; i++) {
        View v = k->part[i] ? cuda_part(m, p, call, k->tensor[i], workspace)
                            : cuda_view(call, k->tensor[i]);
        check_type(c, p->g, k->tensor[i], &v);
        HostTensor t = tensor_of(p, k, call, i, &v);
        at = put(at, &t, sizeof t);
    }
    at += k->ntensors ? 0 : sizeof(HostTensor);
    put(at, &run, sizeof run);
    l->grid = (unsigned)grid;
}

Launch *launch_new(Ctx *c, const Driver *d, Function *f, const CudaModule *m,
                   const CudaKernel *k, const Plan *p, const Call *call,
                   DevicePtr seq, DevicePtr workspace)
{
    Launch *l = ctx_alloc(c, sizeof *l);
    l->f = f;
    l->k = k;
    l->seconds = cuda_kernel_seconds(p->g, k, d->machine, d->processors,
                                     call);
    if (k->head) {
        scheduled_launch(c, d, l, m, p, call, seq, workspace);
        return l;
    }
    int64_t grid;
    cuda_tile_args(c, m, k, p, call, seq, workspace, &l->args, &grid);
    l->grid = (unsigned)grid;
    return l;
}

void launch(Ctx *c, const Driver *d, const Launch *l, void *stream)
{
    void *params[] = { l->args };

    if (l->grid)
        kernel_queue(c, d, l->f, l->grid, (unsigned)l->k->threads,
                     (unsigned)l->k->shared, stream, params, l->k->follows);
}

/* An event before each launch and one at the end. */
typedef struct Timing {
    const Driver *d;
    Launch *const *l;
    int n;
    const Plan *plan;
    const Call *call;
    Event **mark;
} Timing;

static void launch_timed(Ctx *c, void *ud)
{
    const Timing *t = ud;
    for (int i = 0; i <= t->n; i++)
        t->mark[i] = event_new(c, t->d);
    for (int i = 0; i < t->n; i++) {
        event_record(c, t->d, t->mark[i], t->call->stream);
        launch(c, t->d, t->l[i], t->call->stream);
    }
    event_record(c, t->d, t->mark[t->n], t->call->stream);
    device_sync(c, t->d);
    for (int i = 0; i < t->n; i++) {
        float ms = event_ms(c, t->d, t->mark[i], t->mark[i + 1]);
        const CudaKernel *k = t->l[i]->k;
        c->timed(c->timed_ud, &(KernelTime){ t->plan, t->call, k->of, k->name,
                                             1e-3 * (double)ms, 0,
                                             t->l[i]->seconds });
    }
}

void launch_all(Ctx *c, const Driver *d, Launch *const *l, int n,
                const Plan *p, const Call *call)
{
    if (!c->timed) {
        for (int i = 0; i < n; i++)
            launch(c, d, l[i], call->stream);
        return;
    }
    Timing t = { d, l, n, p, call,
                 ctx_alloc(c, (size_t)(n + 1) * sizeof(Event *)) };
    bool ok = ctx_protect(c, launch_timed, &t);
    for (int i = 0; i <= n; i++)
        event_free(d, t.mark[i]);
    if (!ok)
        ctx_rethrow(c);
}
