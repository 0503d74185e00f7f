/* pairs.c -- calls of masks over all pairs of tokens: what they need made, and
 * queued.
 */
#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "dense.h"
#include "driver_entry.h"
#include "pairs_hand.h"

enum { HOPPER_THREADS = 384, PLAIN_WARPS = 4,
       LEAF_THREADS = 256,              /* as in pairs.cuh, pairs_plain.cuh */
       WAY_THREADS = 256,               /* pairs_ways.cuh */
       DELTA_ROWS = 4 };                /* a warp's of y . dy, or so */

/* ---- kernels ---- */

static const char *const kernel_name[] = { "flin_forward", "flin_keys",
    "flin_queries", "flin_values", "flin_scores", "flin_delta", "flin_leaves",
    "flin_sums", "flin_first" };
/* Those that a way's kernels are. */
static const int way_kernel[PAIR_KERNELS] = { KEYS, QUERIES, VALUES, SCORES };

static bool has_kernel(const Hand *h, const PairsShape *s, int n)
{
    if (s->entries)
        return n <= QUERIES || n == LEAVES || n == SUMS;
    if (s->wgmma)
        return n <= QUERIES;
    for (int k = 0; k < PAIR_KERNELS && s->back; k++)
        if (way_kernel[k] == n)
            return s->own[k].own > 0;
    return !s->back && (n == FORWARD || (n >= DELTA && n < FIRST)
                        || (n == FIRST && h->first.keys));
}

static int way_shared(const Hand *h, int kernel)
{
    for (int k = 0; k < PAIR_KERNELS; k++)
        if (way_kernel[k] == kernel)
            return h->way->room[k];
    return 0;
}

static int room_of(const Hand *h, const PairsShape *s, int kernel)
{
    return s->entries && kernel <= QUERIES ? entries_shared(h, s->entries)
         : s->wgmma ? wgmma_shared(h, kernel)
         : s->back ? way_shared(h, kernel)
         : LEAF_THREADS * (int)sizeof(double);
}

/* NULL, and *why, where they do not compile as they should. */
static PairKernels *new_kernels(Hand *h, const PairsShape *s, Error *why)
{
    Module *m = build_module_if(h->c, h->g, pairs_source(h->c, mask_copy(h->c,
                                h->p->step->mask), s), why);
    PairKernels *k = m ? calloc(1, sizeof *k) : NULL;

    if (!m)
        return NULL;
    if (!k) {
        module_unload(h->d, m);
        fail_code(h->c, ERR_MEMORY, "out of memory");
    }
    k->shape = *s;
    k->module = m;
    bool ok = true;
    for (int n = 0; n < NKERNELS && ok; n++) {
        if (!has_kernel(h, s, n))
            continue;
        k->f[n] = module_function_if(h->c, h->d, m, kernel_name[n],
                                     room_of(h, s, n), why);
        ok = k->f[n];
        if (ok && s->back && !s->wgmma)
            function_shares(h->c, h->d, k->f[n]);
    }
    if (ok)
        return k;
    module_unload(h->d, m);
    free(k);
    return NULL;
}

static PairKernels *find_kernels_if(Hand *h, PairPrograms *all,
                                    const PairsShape *s, Error *why)
{
    PairKernels *k = all->kernels;

    while (k && memcmp(&k->shape, s, sizeof *s))
        k = k->next;
    if (!k && (k = new_kernels(h, s, why)) != NULL) {
        k->next = all->kernels;
        all->kernels = k;
    }
    return k;
}

static PairKernels *find_kernels(Hand *h, PairPrograms *all,
                                 const PairsShape *s)
{
    Error why;
    PairKernels *k = find_kernels_if(h, all, s, &why);

    if (!k)
        ctx_raise(h->c, &why);
    return k;
}

/* The host's ends, where the device finds them. */
static DevicePtr find_ends(Hand *h, PairPrograms *all)
{
    const Call *call = h->p->call;
    int64_t n = call->nseq + 1, *end = ctx_alloc(h->c, (size_t)n * sizeof *end);
    size_t bytes = (size_t)n * sizeof *end;
    PairEnds *e = all->ends;

    for (int64_t s = 0; s < call->nseq; s++)
        end[s + 1] = call->seq[s].start + call->seq[s].len;
    while (e && (e->n != n || memcmp(e->end, end, bytes)))
        e = e->next;
    if (!e) {
        e = calloc(1, sizeof *e);
        if (!e || !(e->end = malloc(bytes))) {
            free(e);
            fail_code(h->c, ERR_MEMORY, "out of memory");
        }
        memcpy(e->end, end, bytes);
        e->n = n;
        e->next = all->ends;
        all->ends = e;                  /* freed with the programs */
    }
    if (!e->at)
        e->at = gpu_put(h->c, h->g, end, bytes);
    return e->at;
}

typedef struct Wish { Hand *h; PairPrograms **all; } Wish;

/* Goes without wgmma from now on, and says why. */
static void be_plain(Hand *h, PairPrograms *all, const char *why)
{
    Ctx *c = h->c;

    all->plain = true;
    if (c->say)
        c->say(c->say_ud, ctx_format(c, "flin: %s: plain kernels run over all "
               "pairs (said once): %s", h->p->step->name, why));
}

static void find_locked(Ctx *c, void *ud)
{
    Wish *w = ud;
    Hand *h = w->h;
    PairsShape plain = plain_shape(h);

    if (!*w->all && !(*w->all = calloc(1, sizeof **w->all)))
        fail_code(c, ERR_MEMORY, "out of memory");
    if (h->shape.wgmma) {
        Error why;
        h->fast = find_kernels_if(h, *w->all, &h->shape, &why);
        if (!h->fast) {
            be_plain(h, *w->all, why.message);
            return;                     /* and is asked again */
        }
    }
    if (!h->fast)
        h->fast = find_kernels(h, *w->all, &plain);
    h->plain = h->shape.entries ? h->fast : h->leaves.n || h->p->backward
        ? find_kernels(h, *w->all, &plain) : NULL;
    if (h->way) {
        PairsShape back = plain;
        back.back = true;
        back.way = h->way->way;
        memcpy(back.own, h->way->shape, sizeof back.own);
        h->back = find_kernels(h, *w->all, &back);
    }
    if (h->p->call->device_cu)
        ends_compile(c, h->g, &(*w->all)->left_out);
    h->left_out = &(*w->all)->left_out;
    if (h->packed && h->p->call->seq)
        h->a.cu = find_ends(h, *w->all);
}

/* Kernels for the call, which are right: those with wgmma are judged when they
 * first run, unless the stream records a graph. */
static Hand ready(Ctx *c, Gpu *g, PairPrograms **all, const PairsCall *p)
{
    for (;;) {
        Hand h = hand_of(c, g, all, p, goes_plain(all));
        Wish w = { &h, all };
        gpu_locked(c, g, find_locked, &w);
        if (!h.fast)
            continue;
        if (!h.fast->shape.wgmma || h.fast->judged[p->backward]
            || stream_capturing(c, h.d, p->call->stream))
            return h;
        h.fast->judged[p->backward] = true;
        const char *why = pairs_verify(c, g, all, pairs_run, pairs_workspace, p,
                                       h.shape.floats);
        if (!why)
            return h;
        be_plain(&h, *all, ctx_format(c, "the compiled one %s", why));
    }
}

void pairs_prepare(Ctx *c, Gpu *g, PairPrograms **all, const PairsCall *p)
{
    ready(c, g, all, p);
    if (p->backward)
        dense_prepare(c, g);
}

void pairs_free(Gpu *g, PairPrograms *p)
{
    for (PairKernels *k = p ? p->kernels : NULL, *next; k; k = next) {
        next = k->next;
        module_unload(gpu_driver(g), k->module);
        free(k);
    }
    for (PairRoad *r = p ? p->roads : NULL, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    for (PairEnds *e = p ? p->ends : NULL, *next; e; e = next) {
        next = e->next;
        gpu_free(g, e->at, (size_t)e->n * sizeof *e->end);
        free(e->end);
        free(e);
    }
    if (p)
        ends_free(g, &p->left_out);
    free(p);
}

/* ---- what a kernel is passed ---- */

static DevicePtr at_scratch(const Hand *h, int64_t at)
{
    return at < 0 ? 0 : h->room + (DevicePtr)at;
}

/* [rows, heads, n] of that type. */
static HostPlace packed_place(const Hand *h, DevicePtr at, int n, DType type)
{
    int64_t st = (int64_t)h->heads * n;

    return (HostPlace){ at, st * h->tokens, st, n, 1, (int32_t)type };
}

static void fill(Hand *h)
{
    const Call *call = h->p->call;
    HostPairs *a = &h->a;

    if (call->device_cu)
        a->cu = (uint64_t)(uintptr_t)call->device_cu;
    a->nseq = call->nseq;
    a->tokens = h->tokens;
    a->rows = h->rows;
    a->plane = h->heads * h->rows;
    a->heads = h->heads;
    a->q = place_of(call, &call->in[h->in[0]]);
    a->k = place_of(call, &call->in[h->in[1]]);
    a->v = place_of(call, &call->in[h->in[2]]);
    a->leaf = at_scratch(h, h->scratch.leaf);
    a->number = at_scratch(h, h->scratch.number);
    a->turn = h->heads;
}

static void fill_gradients(Hand *h)
{
    const Call *call = h->p->call;
    HostPlace *to[3] = { &h->a.dq, &h->a.dk, &h->a.dv };

    for (int k = 0; k < 3; k++)
        *to[k] = h->scratch.d[k] < 0
            ? place_of(call, &h->p->dx[h->in[k]])
            : packed_place(h, at_scratch(h, h->scratch.d[k]), k < 2 ? h->key
                           : h->value, F32);
    h->a.dy = place_of(call, &h->p->dy);
    h->a.delta = at_scratch(h, h->scratch.delta);
    h->a.dleaf = at_scratch(h, h->scratch.dleaf);
    h->a.part = at_scratch(h, h->scratch.part);
    h->a.scores = at_scratch(h, h->scratch.scores);
    h->a.gains = at_scratch(h, h->scratch.gains);
    h->a.wide = score_width(h);
}

/* ---- launching ---- */

static void start(const Hand *h, Function *f, int64_t grid, int threads,
                  int shared, void *args)
{
    void *params[] = { args };
    CALL(h->d, LAUNCH, launch_kernel);

    if (grid > INT32_MAX)
        fail(h->c, 0, "a call of %lld tokens and %d heads is too large for one"
             " kernel", (long long)h->rows, h->heads);
    if (grid)
        driver_check(h->c, h->d, launch_kernel(f, (unsigned)grid, 1, 1,
                     (unsigned)threads, 1, 1, (unsigned)shared,
                     h->p->call->stream, params, NULL),
                     "launching a kernel");
}

/* 64 columns of 64 tokens: columns, tokens, heads, batch entries. */
static void encode(const Hand *h, const HostPlace *p, int columns,
                   unsigned char *map)
{
    enum { MAP_F16 = 6, MAP_BF16 = 9, SWIZZLE_128 = 3, PROMOTE_256 = 3 };
    const HostPlace x = *p;
    const uint64_t dims[4] = { (uint64_t)columns, (uint64_t)h->tokens,
        (uint64_t)(h->heads / x.group),
        (uint64_t)(h->packed ? 1 : h->a.nseq) };
    const uint64_t row = (uint64_t)columns * 2;
    const uint64_t strides[3] = { x.st ? (uint64_t)x.st * 2 : row,
        x.sh ? (uint64_t)x.sh * 2 : row, x.sb ? (uint64_t)x.sb * 2 : row };
    const uint32_t box[4] = { 64, 64, 1, 1 }, steps[4] = { 1, 1, 1, 1 };
    CALL(h->d, TENSOR_MAP, encode_tiled);

    driver_check(h->c, h->d, encode_tiled(map, x.type == F16 ? MAP_F16
                 : MAP_BF16, 4, (void *)(uintptr_t)x.p, dims, strides, box,
                 steps, 0, SWIZZLE_128, PROMOTE_256, 0),
                 "the map of a tensor");
}

/* Of a kernel over rows of queries or keys. */
static void start_rows(const Hand *h, const PairKernels *k, int kernel)
{
    int64_t more = kernel == KEYS && h->first.keys
                 ? row_slots(h, h->first.span) * h->heads : 0;
    HostMaps maps = { .a = h->a };
    HostPairs a = h->a;

    if (!h->rows)
        return;
    if (k->shape.entries) {
        start(h, k->f[kernel], row_slots(h, k->shape.entries) * h->heads,
              WAY_THREADS, entries_shared(h, k->shape.entries), &a);
        return;
    }
    if (!k->shape.wgmma || kernel == DELTA) {
        int each = kernel == DELTA ? DELTA_ROWS : 1;
        int64_t rows = h->rows * h->heads;
        start(h, k->f[kernel], (rows + each * PLAIN_WARPS - 1)
              / (each * PLAIN_WARPS), 32 * PLAIN_WARPS, 32 * 4 * PLAIN_WARPS,
              &a);
        return;
    }
    maps.a.blocks = row_slots(h, OWN) * h->heads;
    encode(h, &h->a.q, h->key, maps.map[0]);
    encode(h, &h->a.k, h->key, maps.map[1]);
    encode(h, &h->a.v, h->value, maps.map[2]);
    encode(h, kernel == FORWARD ? &h->a.v : &h->a.dy, h->value, maps.map[3]);
    start(h, k->f[kernel], maps.a.blocks + more * h->first.tiles,
          HOPPER_THREADS, wgmma_shared(h, kernel), &maps);
}

/* A kernel of the way back, of `turn` heads from `head` on. */
static void start_way(const Hand *h, int k, int head, int turn)
{
    const PairShape *s = &h->way->shape[k];
    int64_t columns = k == PAIR_VALUES ? h->value : h->key;
    int64_t slices = h->way->way == TILES && k != PAIR_SCORES
                   ? (columns + s->wide - 1) / s->wide : 1;
    HostPairs a = h->a;

    a.head = head;
    a.turn = turn;
    start(h, h->back->f[way_kernel[k]], row_slots(h, s->own) * turn * slices,
          WAY_THREADS, h->way->room[k], &a);
}

static void start_ways(const Hand *h)
{
    static const int order[] = { PAIR_SCORES, PAIR_VALUES, PAIR_KEYS,
                                 PAIR_QUERIES };

    for (int head = 0; head < h->heads && h->rows; head += h->turn) {
        int left = h->heads - head, turn = h->turn < left ? h->turn : left;
        for (int n = 0; n < PAIR_KERNELS; n++)
            if (h->way->shape[order[n]].own)
                start_way(h, order[n], head, turn);
    }
}

/* What parts of the rows have added to the first keys' gradients. */
static void start_first(const Hand *h)
{
    HostPairs a = h->a;

    if (h->first.keys && h->rows)
        start(h, h->plain->f[FIRST], h->a.nseq * h->heads * h->first.keys,
              32 * PLAIN_WARPS, 0, &a);
}

static void fill_leaves(const Hand *h, HostLeaf *to)
{
    const Call *call = h->p->call;

    for (int k = 0; k < h->leaves.n; k++) {
        const Leaf *l = &h->m->leaf[h->leaves.leaf[k]];
        const View *view = &call->in[leaf_input(h, h->leaves.leaf[k])];
        HostPlace p = place_of(call, view);
        to[k] = (HostLeaf){ p.p, p.sb, p.st, p.sh, view->sd[0], p.group,
                            p.type, l->back, h->leaves.sum[k] };
    }
}

static int64_t leaf_blocks(const Hand *h, int n)
{
    return (int64_t)n * h->heads * h->a.nseq;
}

static void start_leaves(const Hand *h)
{
    HostLeaves all = { .a = h->a };

    if (!h->leaves.n)
        return;
    fill_leaves(h, all.leaf);
    start(h, h->plain->f[LEAVES], leaf_blocks(h, pair_plane(&h->shape,
          h->leaves.n)), LEAF_THREADS, LEAF_THREADS * (int)sizeof(double),
          &all);
}

/* ---- gradients ---- */

static void add_dim(DenseMove *m, int64_t n, int64_t ts, int64_t fs)
{
    m->n[m->rank] = n;
    m->ts[m->rank] = ts;
    m->fs[m->rank++] = fs;
}

/* From float32 of all heads, n numbers a token, se apart. */
static void move_gradient(const Hand *h, int input, DevicePtr from, int64_t n,
                          int64_t se, int64_t sb, int64_t st, int64_t sh)
{
    const View *v = &h->p->dx[input];
    bool timed = h->p->step->in[input].timed;
    int64_t group = h->heads / v->heads;
    DenseMove m = { .to = (DevicePtr)(uintptr_t)v->data, .from = from,
                    .to_type = v->dtype, .from_type = F32 };

    if (timed) {
        add_dim(&m, h->packed ? 1 : h->a.nseq, v->sb, sb);
        add_dim(&m, h->tokens, v->st, st);
    }
    add_dim(&m, v->heads, v->sh, sh * group);
    add_dim(&m, group, 0, sh);
    if (h->p->step->in[input].rank)
        add_dim(&m, n, v->sd[0], se);
    dense_move(h->c, h->g, h->p->call->stream, &m);
}

static void move_matrices(const Hand *h)
{
    for (int k = 0; k < 3; k++) {
        int n = k < 2 ? h->key : h->value;
        int64_t st = (int64_t)h->heads * n;
        if (h->scratch.d[k] >= 0 && h->p->dx[h->in[k]].data)
            move_gradient(h, h->in[k], at_scratch(h, h->scratch.d[k]), n, 1,
                          st * h->tokens, st, n);
    }
}

/* Planes of one input are one sum. */
static void start_sums(const Hand *h)
{
    HostSums all = { .a = h->a };
    int n = 0, input[PAIR_LEAVES], planes = 0;

    fill_leaves(h, all.leaf);
    for (int k = 0; k < h->leaves.n; k++) {
        int in = leaf_input(h, h->leaves.leaf[k]), s = 0;
        if (!h->p->dx[in].data)
            continue;
        while (s < n && input[s] != in)
            s++;
        HostSum *to = &all.sum[s];
        input[s] = in;
        planes += s == n ? leaf_entries(h, k) : 0;
        n = s == n ? n + 1 : n;
        to->to = at_scratch(h, h->scratch.sum[s]);
        to->number = !h->p->step->in[in].timed;
        to->plane[to->n++] = k;
    }
    start(h, h->plain->f[SUMS], leaf_blocks(h, planes), LEAF_THREADS,
          LEAF_THREADS * (int)sizeof(double), &all);
    for (int s = 0; s < n; s++) {
        bool timed = h->p->step->in[input[s]].timed;
        move_gradient(h, input[s], at_scratch(h, h->scratch.sum[s]),
                      leaf_entries(h, all.sum[s].plane[0]), timed ? h->a.plane
                      : h->heads, h->tokens, 1, timed ? h->rows : 1);
    }
}

/* What nothing depends on. */
static bool has_leaf(const Hand *h, int input)
{
    for (int k = 0; k < h->leaves.n; k++)
        if (leaf_input(h, h->leaves.leaf[k]) == input)
            return true;
    return false;
}

static void clear_others(const Hand *h)
{
    for (int i = 0; i < h->p->step->nin; i++) {
        const View *v = &h->p->dx[i];
        bool matrix = i == h->in[0] || i == h->in[1] || i == h->in[2];
        if (v->data && !matrix && !has_leaf(h, i))
            fail(h->c, 0, "%s: the mask does not depend on it",
                 h->p->step->in[i].name);
    }
}

/* ---- all of it ---- */

/* Rows of results that are in no sequence, of which the device alone knows. */
static void clear_left_out(const Hand *h)
{
    const PairsCall *p = h->p;
    Call call = *p->call;

    if (!call.device_cu || !h->rows)
        return;
    Graph *g = graph_sized(p->step, call.size);
    for (int i = 0, n = g->nout = p->backward ? 0 : 1; p->backward
         && i < g->nin; i++) {
        if (!g->in[i].timed || !p->dx[i].data)
            continue;
        g->out[n].rank = g->in[i].rank;
        memcpy(g->out[n].order, g->in[i].order, sizeof g->out[n].order);
        call.out[n++] = p->dx[i];
        g->nout = n;
    }
    ends_queue(h->c, h->g, h->left_out, g, &call, 0);
}

/* Tensors of tokens may lie anywhere where there are none. */
static void check_places_of(const Hand *h)
{
    const PairsCall *p = h->p;
    const Graph *g = p->step;

    for (int i = 0; i < g->nin; i++) {
        if (!h->rows && g->in[i].timed)
            continue;
        check_place(h->c, h->d, g->in[i].name, p->call->in[i].data);
        check_place(h->c, h->d, g->in[i].name, p->dx[i].data);
    }
    if (h->rows) {
        check_place(h->c, h->d, p->backward ? "dy" : "y", p->backward
                    ? p->dy.data : p->call->out[0].data);
        check_place(h->c, h->d, "cu_seqlens", p->call->device_cu);
        check_place(h->c, h->d, "saved", p->kept);
        check_place(h->c, h->d, "workspace", p->call->workspace_size
                    ? p->call->workspace : NULL);
    }
}

static void run_forward(Hand *h)
{
    const Call *call = h->p->call;
    DevicePtr kept = (DevicePtr)(uintptr_t)h->p->kept;

    h->a.y = place_of(call, &call->out[0]);
    h->a.lse = kept;
    h->a.again.group = 1;
    if (kept)
        h->a.again = packed_place(h, kept + (DevicePtr)lse_bytes(h), h->value,
                                  call->out[0].dtype);
    start_leaves(h);
    start_rows(h, h->fast, FORWARD);
}

/* Without what a forward call has kept, y and logsumexp are computed anew. */
static void run_backward(Hand *h)
{
    DevicePtr kept = (DevicePtr)(uintptr_t)h->p->kept;
    DType type = h->p->call->out[0].dtype;

    clear_others(h);
    fill_gradients(h);
    h->a.again.group = 1;
    if (h->p->call->device_cu)          /* rows of no sequence add nothing */
        stream_fill(h->c, h->d, h->p->call->stream, h->a.dleaf, 0,
                    (size_t)(pair_plane(&h->shape, h->leaves.n) * h->a.plane)
                    * sizeof(float));
    start_leaves(h);
    if (h->m->softmax) {
        h->a.lse = kept ? kept : at_scratch(h, h->scratch.lse);
        type = kept || !h->shape.wgmma ? type : h->shape.type;
        h->a.y = packed_place(h, kept ? kept + (DevicePtr)lse_bytes(h)
                              : at_scratch(h, h->scratch.y), h->value, type);
        if (!kept)
            start_rows(h, h->fast, FORWARD);
        start_rows(h, h->plain, DELTA);
    }
    if (h->way) {
        start_ways(h);
    } else {
        start_rows(h, h->fast, KEYS);
        start_first(h);
        start_rows(h, h->fast, QUERIES);
    }
    move_matrices(h);
    start_sums(h);
}

void pairs_run(Ctx *c, Gpu *g, PairPrograms **all, const PairsCall *p)
{
    Hand h = ready(c, g, all, p);
    const Call *call = p->call;

    if (call->workspace && call->workspace_size < h.scratch.bytes)
        fail(c, 0, "workspace_size = %lld: this call takes %lld bytes",
             (long long)call->workspace_size, (long long)h.scratch.bytes);
    h.room = (DevicePtr)(uintptr_t)call->workspace;
    if (!h.room && h.scratch.bytes)
        h.room = gpu_workspace(c, g, call->stream, (size_t)h.scratch.bytes);
    fill(&h);
    check_places_of(&h);
    if (p->backward)
        run_backward(&h);
    else
        run_forward(&h);
    clear_left_out(&h);
}
