/* rows_run.c -- calls of steps over rows: how their tokens are dealt out, their
 * kernels compiled and launched, several side by side as one.
 */
#include "rows_emit.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "dense.h"
#include "driver_entry.h"

/* By what its text depends on. */
struct RowsKernel {
    RowsKernel *next;
    uint64_t hash;
    Module *module;
    Function *f[ROW_KERNELS];
};

/* ---- a call ---- */

/* Of a block. */
static int rows_threads(const Rows *p, const RowsCall *call)
{
    RowsShape s = rows_shape(p, call);

    return s.group > 32 ? s.group : ROW_THREADS;
}

/* How tokens are dealt out: pieces of a batch entry, a power of two where
 * there are sums. */
typedef struct Deal { int64_t pieces, length, rows, blocks, grid; } Deal;

/* Of carried states: of a sequence `pieces` are blocks, in each of which there
 * are several; where sequences are few as many as fill the device, but none has
 * fewer than so many tokens. */
static Deal deal_carried(int64_t want, const Rows *p, const RowsCall *call)
{
    enum { LEAST = 2 };
    RowsScan s = rows_scan(p, call);
    int64_t all = call->B * call->heads;
    Deal d = { .pieces = 1, .length = call->T };

    if (s.serial)
        d.blocks = (all + s.groups - 1) / s.groups;
    while (!s.serial && d.pieces * all < want
           && d.pieces * 2 * s.groups * LEAST <= call->T)
        d.pieces *= 2;
    if (!s.serial) {
        d.length = (call->T + d.pieces * s.groups - 1) / (d.pieces * s.groups);
        d.blocks = d.pieces * all;
    }
    d.rows = s.serial ? all : d.blocks * s.groups;
    d.grid = d.blocks;
    if (rows_leaves(p, call))
        d.grid += (call->N * call->heads + s.groups - 1) / s.groups;
    return d;
}

int64_t rows_links(Ctx *c, const Rows *p, int64_t B, int64_t T, int units,
                   int64_t *waits)
{
    enum { RESIDENT = 2 };              /* blocks: rows_scan.c's bounds */
    RowsCall *call = ctx_alloc(c, sizeof *call);

    *call = (RowsCall){ .B = B, .T = T, .N = B, .heads = 1 };
    for (int i = 0; i < p->nin; i++)
        call->in[i].dtype = BF16;
    Deal d = deal_carried(units, p, call);
    int64_t waves = (d.blocks + RESIDENT * units - 1) / (RESIDENT * units);
    int64_t rows = d.blocks ? (B * T + d.blocks - 1) / d.blocks : 0;

    return waves * product_links(p->product, rows, waits);
}

/* A multiprocessor has so many threads: fewer where a piece of tokens begins
 * with what others have read, or ends with sums. A piece has so many tokens at
 * least that these are made of. */
enum { EACH = 1024, FEWER = 512, LEAST = 8 };

static Deal dealt(const Rows *p, const RowsCall *call, int64_t pieces)
{
    int64_t each = rows_threads(p, call) / rows_shape(p, call).group;
    int64_t all = call->B * call->heads;
    Deal d = { .pieces = pieces ? pieces : 1 };

    d.length = (call->T + d.pieces - 1) / d.pieces;
    d.rows = d.pieces * all;
    d.blocks = call->T ? (d.rows + each - 1) / each : 0;
    d.grid = d.blocks;
    if (rows_leaves(p, call))
        d.grid += (call->N * call->heads + each - 1) / each;
    if (!call->T && rows_sums(p, call))
        d.blocks = d.grid = (d.rows + each - 1) / each;
    return d;
}

static Deal deal_of(const Gpu *g, const Rows *p, const RowsCall *call)
{
    int processors = gpu_driver(g)->processors;
    if (p->carried)
        return deal_carried(processors, p, call);
    int64_t most = 1, least = rows_sums(p, call) ? LEAST : 1;
    int64_t want = processors * (rows_few(p, call) ? FEWER : EACH)
                 / rows_shape(p, call).group;
    int64_t all = call->B * call->heads;

    while (most * least < call->T && most * all * 3 < want * 2)
        most *= 2;
    if (!rows_few(p, call))
        most = call->T > most ? most * 2 : call->T;
    return dealt(p, call, most);
}

/* Where others run beside it: as many pieces as fill the device with theirs, or
 * it by itself. */
static Deal deal_beside(const Gpu *g, const RowsRun *run, int n, int i)
{
    const RowsCall *call = run[i].call;
    Deal own = deal_of(g, run[i].p, call);
    int64_t threads = 0, pieces;
    bool few = false;

    if (n == 1)
        return own;
    for (int j = 0; j < n; j++) {
        threads += rows_shape(run[j].p, run[j].call).group * call->B
                 * run[j].call->heads;
        few |= rows_few(run[j].p, run[j].call);
    }
    pieces = gpu_driver(g)->processors * (few ? FEWER : 2 * EACH)
           / (threads ? threads : 1);
    pieces = pieces < 1 ? 1 : pieces < own.pieces ? pieces : own.pieces;
    int64_t length = (call->T + pieces - 1) / pieces;
    return dealt(run[i].p, call, length ? (call->T + length - 1) / length : 1);
}

/* device memory behind the kernel: pieces of sums, results for each head. */
typedef struct Scratch {
    int64_t sum[MAX_INPUTS], carried, adjoints, bytes;
} Scratch;

static int64_t rounded(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static Scratch scratch_of(const Rows *p, const RowsCall *call, const Deal *d)
{
    Scratch r = { .bytes = 0 };

    for (int i = 0; call->backward && i < p->nin; i++) {
        const View *v = &call->dx[i];
        bool timed = p->step->in[i].timed;
        int64_t n = rows_entries(p, i), rows = timed
                  ? call->B * call->T * call->heads : d->rows;
        if (!v->data || (timed && !rows_shared(call, v)))
            continue;
        r.sum[i] = r.bytes + 1;         /* 0: none */
        r.bytes += rounded(n * rows * 4);
    }
    r.carried = r.adjoints = r.bytes;
    if (p->carried) {
        RowsScan s = rows_scan(p, call);
        r.adjoints += call->kept ? 0 : rounded(d->blocks * s.states);
        r.bytes = r.adjoints + rounded(d->blocks * (s.adjoints + d->length
                                                    * s.kept));
    }
    return r;
}

static int64_t own_room(const Gpu *g, const Rows *p, const RowsCall *call)
{
    Deal d = deal_of(g, p, call);
    Scratch r = scratch_of(p, call, &d);

    return r.bytes;
}

static int64_t kept_states(const Gpu *g, const Rows *p, const RowsCall *call)
{
    return rounded(deal_of(g, p, call).blocks * rows_scan(p, call).states);
}

/* The call as rows see it; *own: bytes before those of the product. */
static RowsCall seen_call(Ctx *c, Gpu *g, const Rows *p, const RowsCall *call,
                          int64_t *own)
{
    enum { SOME = 256 };                /* no address is 0 */

    RowsCall to = *call;

    *own = 0;
    if (p->product) {
        to = product_call(c, g, p, call, SOME, 0);
        *own = own_room(g, p, &to) + SOME;
        to = product_call(c, g, p, call, *own, kept_states(g, p, call));
    }
    to.piece = p->carried ? deal_of(g, p, call).length : 0;
    return to;
}

int64_t rows_kept(Ctx *c, Gpu *g, Rows *p, const RowsCall *call)
{
    gpu_enter(c, g);
    return !p->carried ? 0 : kept_states(g, p, call)
         + (p->product ? product_bytes(p, call) : 0);
}

int64_t rows_room(Ctx *c, Gpu *g, Rows *p, const RowsCall *call)
{
    int64_t own;

    gpu_enter(c, g);
    RowsCall to = seen_call(c, g, p, call, &own);
    return !p->product ? own_room(g, p, &to)
                       : own + product_room(c, g, p, call);
}

/* ---- kernels ---- */

static const char *kernels_text(Ctx *c, const RowsRun *run, int n)
{
    return run->p->carried ? rows_scan_emit(c, run->p, run->call)
                           : rows_emit(c, run, n);
}

static uint64_t hash_view(uint64_t h, const View *v, int rank)
{
    int64_t x[] = { v->data != NULL, v->dtype, v->sb, v->st, v->sh,
                    (int64_t)((uintptr_t)v->data % 16), v->heads };

    if (!v->data)
        return hash_bytes(h, x, sizeof *x);
    for (int i = 2; i < 5; i++)
        x[i] = i == 4 ? (x[i] % 8) | (x[i] != 0) << 8 : x[i] % 8;
    h = hash_bytes(h, x, sizeof x);
    for (int i = 0; i < rank; i++) {
        int64_t s = v->sd[i] <= ROW_NUMBERS ? v->sd[i]
                  : ROW_NUMBERS + v->sd[i] % 8;
        h = hash_bytes(h, &s, sizeof s);
    }
    return h;
}

/* Without tokens it goes into a room of its own first. */
static uint64_t hash_gradient(uint64_t h, const Input *in, const View *v)
{
    bool wanted = v->data != NULL;

    return in->timed ? hash_view(h, v, in->rank)
                     : hash_bytes(h, &wanted, sizeof wanted);
}

/* What the text depends on. */
static uint64_t hash_call(const Rows *p, const RowsCall *call)
{
    const Graph *g = p->step;
    uint64_t h = call->backward + (call->ends ? 3u : 1u);

    h = hash_bytes(h, &call->heads, sizeof call->heads);
    h = hash_view(h, &call->y, g->out[0].rank);
    h = hash_view(h, &call->dy, g->out[0].rank);
    for (int i = 0; i < p->nin; i++) {
        h = hash_view(h, &call->in[i], g->in[i].rank);
        h = hash_gradient(h, &g->in[i], &call->dx[i]);
        bool adds = call->add[i] && g->in[i].timed;
        h = hash_bytes(h, &adds, sizeof adds);
    }
    if (p->carried) {
        enum { LONG = 5 };              /* longer ones have one text */
        bool own = product_is_own(p, call);
        int64_t x[] = { rows_scan(p, call).serial, call->kept != 0,
                        call->piece < LONG ? call->piece : LONG,
                        own ? product_near(p, call) : 0,
                        own ? product_shared(p, call, false) : 0 };
        h = hash_bytes(h, x, sizeof x);
    }
    for (int role = ROW_S0; role < ROW_ROLES; role++)
        for (int j = 0; j < rows_states(p); j++)
            h = hash_view(h, rows_view(call, (RowsRole)role, j),
                          g->st[j].rank);
    return h;
}

/* And that of others beside it. */
static uint64_t hash_all(const RowsRun *run, int n)
{
    uint64_t h = hash_call(run->p, run->call);

    for (int i = 1; i < n; i++) {
        uint64_t own = hash_call(run[i].p, run[i].call);
        h = hash_bytes(h, &run[i].p, sizeof run[i].p);
        h = hash_bytes(h, &own, sizeof own);
    }
    return h;
}

typedef struct Wish {
    Gpu *g;
    const RowsRun *run;
    int n;
    bool soon;                          /* it is wished for */
    RowsKernel *k;                      /* the first one's */
} Wish;

/* A call's kernels, in order. */
static RowsScan kernels_of(const Rows *p, const RowsCall *call)
{
    return p->carried ? rows_scan(p, call)
         : (RowsScan){ .n = 1, .name = { "flin_rows" }, .shared = {
                       rows_shape(p, call).group > 32 ? 128 : 0 } };
}

static void find_locked(Ctx *c, void *ud)
{
    Wish *w = ud;
    Rows *p = w->run->p;
    RowsScan s = kernels_of(p, w->run->call);
    uint64_t hash = hash_all(w->run, w->n);

    for (w->k = p->kernel; w->k; w->k = w->k->next)
        if (w->k->hash == hash)
            return;
    const char *text = kernels_text(c, w->run, w->n);
    if (w->soon) {
        build_wish(c, w->g, text);
        return;
    }
    Module *m = build_module(c, w->g, text);
    RowsKernel *k = calloc(1, sizeof *k);
    if (!k) {
        module_unload(gpu_driver(w->g), m);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    *k = (RowsKernel){ p->kernel, hash, m, { NULL } };
    p->kernel = w->k = k;
    for (int i = 0; i < s.n; i++)
        k->f[i] = module_function(c, gpu_driver(w->g), m, s.name[i],
                                  s.shared[i]);
}

static RowsKernel *find_kernel(Ctx *c, Gpu *g, const RowsRun *run, int n,
                               bool soon)
{
    Wish w = { g, run, n, soon, NULL };

    gpu_enter(c, g);
    gpu_locked(c, g, find_locked, &w);
    return w.k;
}

/* The one as its rows see it; others are seen as they are. */
static void find_seen(Ctx *c, Gpu *g, const RowsRun *run, int n, bool soon)
{
    int64_t own;

    gpu_enter(c, g);
    RowsCall to = seen_call(c, g, run->p, run->call, &own);
    find_kernel(c, g, n > 1 ? run : &(RowsRun){ run->p, &to }, n, soon);
}

void rows_wish(Ctx *c, Gpu *g, const RowsRun *run, int n)
{
    find_seen(c, g, run, n, true);
}

void rows_prepare(Ctx *c, Gpu *g, const RowsRun *run, int n)
{
    find_seen(c, g, run, n, false);
    if (run->p->product)
        product_room(c, g, run->p, run->call);  /* finds its kernels, too */
}

void rows_free(Gpu *g, Rows *p)
{
    Ctx *c = p && p->kernel ? ctx_new() : NULL;

    for (RowsKernel *k = p ? p->kernel : NULL, *next; k; k = next) {
        next = k->next;
        gpu_unload(c, g, k->module);
        free(k);
    }
    if (p)
        p->kernel = NULL;
    ctx_free(c);
}

/* ---- launching ---- */

/* As the source has them. */
typedef struct HostArg {
    uint64_t p;
    int64_t sb, st, sh, sd[ROW_DIMS];
} HostArg;
typedef struct HostArgs {
    uint64_t ends;
    int64_t nseq, tokens, pieces, length, rows, blocks;
    int32_t heads, pad;
    HostDivisor by_heads, by_pieces;
    uint64_t carried, adjoints;         /* what pieces make of these */
    HostArg arg[ROW_ARGS];
} HostArgs;
enum { ARGS_MOST = 4096 };              /* what a kernel is passed */
_Static_assert(sizeof(HostArgs) + 4 <= ARGS_MOST, "what a kernel is passed");

static size_t args_bytes(const RowsRun *run)
{
    return offsetof(HostArgs, arg)
         + (size_t)rows_args(run->p, run->call) * sizeof(HostArg);
}

bool rows_beside(const RowsRun *run, int n)
{
    size_t bytes = (size_t)n * sizeof(uint32_t);

    for (int i = 0; i < n && n > 1; i++) {
        const RowsCall *call = run[i].call;
        bytes += args_bytes(&run[i]);
        if (run[i].p->carried || rows_shape(run[i].p, call).group > 32
            || call->B != run->call->B || call->T != run->call->T
            || call->backward != run->call->backward || !call->T)
            return false;
    }
    return n <= ROWS_BESIDE && bytes <= ARGS_MOST;
}

static HostArg host_arg(const RowsCall *call, const View *v)
{
    HostArg a = { (uint64_t)(uintptr_t)v->data, v->sb, v->st,
                  v->heads == call->heads ? v->sh : 0, { 0 } };

    memcpy(a.sd, v->sd, sizeof a.sd);
    return a;
}

/* A gradient that is still to be summed: [rows, entries] of float32. */
static HostArg summed_arg(const Rows *p, const RowsCall *call, int i,
                          DevicePtr at)
{
    const Input *in = &p->step->in[i];
    HostArg a = { .p = at };
    int64_t n = 1;

    for (int d = in->rank - 1; d >= 0; d--) {
        a.sd[d] = n;
        n *= p->step->axis[in->order[d]].size;
    }
    a.sh = n;
    a.st = n * call->heads;
    a.sb = a.st * call->T;
    return a;
}

static void fill_args(HostArgs *a, const Rows *p, const RowsCall *call,
                      const Deal *d, const Scratch *r)
{
    for (int i = 0; i < p->nin; i++) {
        a->arg[rows_arg(p, ROW_IN, i)] = host_arg(call, &call->in[i]);
        a->arg[rows_arg(p, ROW_DX, i)] = r->sum[i]
            ? summed_arg(p, call, i, call->room + (DevicePtr)(r->sum[i] - 1))
            : host_arg(call, &call->dx[i]);
    }
    a->arg[rows_arg(p, ROW_Y, 0)] = host_arg(call, &call->y);
    a->arg[rows_arg(p, ROW_DY, 0)] = host_arg(call, &call->dy);
    for (int role = ROW_S0; role < ROW_ROLES; role++)
        for (int j = 0; j < rows_states(p); j++)
            a->arg[rows_arg(p, (RowsRole)role, j)] =
                host_arg(call, rows_view(call, (RowsRole)role, j));
    a->ends = call->ends;
    a->nseq = call->N;
    a->tokens = call->T;
    a->pieces = d->pieces;
    a->length = d->length;
    a->rows = d->rows;
    a->blocks = d->blocks;
    a->heads = call->heads;
    a->by_heads = cuda_divisor(call->heads);
    a->by_pieces = cuda_divisor(d->pieces);
    a->carried = call->kept ? call->kept : call->room + (DevicePtr)r->carried;
    a->adjoints = call->room + (DevicePtr)r->adjoints;
}

static void add_dim(DenseMove *m, int64_t n, int64_t ts, int64_t fs)
{
    m->n[m->rank] = n;
    m->ts[m->rank] = ts;
    m->fs[m->rank++] = fs;
}

static int64_t head_step(const RowsCall *call, const View *v)
{
    return v->heads == call->heads ? v->sh : 0;
}

/* Where input i's entries are in its tensor, and in what is summed. */
static void add_entries(DenseMove *m, const Rows *p, int i, const View *v)
{
    const Input *in = &p->step->in[i];
    int64_t n = rows_entries(p, i);

    for (int d = 0; d < in->rank; d++) {
        int64_t size = p->step->axis[in->order[d]].size;
        n /= size;
        add_dim(m, size, v->sd[d], n);
    }
}

/* Over heads. */
static DenseMove sum_heads(const Rows *p, const RowsCall *call, int i,
                           DevicePtr from)
{
    const View *v = &call->dx[i];
    int64_t n = rows_entries(p, i), row = n * call->heads;
    DenseMove m = { .to = (DevicePtr)(uintptr_t)v->data, .from = from,
                    .to_type = v->dtype, .from_type = F32 };

    add_dim(&m, call->B, v->sb, row * call->T);
    add_dim(&m, call->T, v->st, row);
    add_dim(&m, call->heads, head_step(call, v), n);
    add_entries(&m, p, i, v);
    return m;
}

/* Over pieces of tokens, and heads that share it. */
static DenseMove sum_pieces(const Rows *p, const RowsCall *call, int i,
                            DevicePtr from, const Deal *d)
{
    const View *v = &call->dx[i];
    int64_t n = rows_entries(p, i);
    DenseMove m = { .to = (DevicePtr)(uintptr_t)v->data, .from = from,
                    .to_type = v->dtype, .from_type = F32,
                    .add = call->add[i] };

    if (p->carried) {
        int64_t all = call->B * call->heads, pieces = all ? d->rows / all : 0;
        add_dim(&m, call->B, 0, n * pieces * call->heads);
        add_dim(&m, call->heads, head_step(call, v), n * pieces);
        add_dim(&m, pieces, 0, n);
    } else {
        add_dim(&m, call->B * d->pieces, 0, n * call->heads);
        add_dim(&m, call->heads, head_step(call, v), n);
    }
    add_entries(&m, p, i, v);
    return m;
}

static int add_sums(DenseMove *m, int n, const RowsRun *run, const Deal *d,
                    const Scratch *r)
{
    const RowsCall *call = run->call;

    for (int i = 0; i < run->p->nin; i++) {
        DevicePtr from = call->room + (DevicePtr)(r->sum[i] - 1);
        if (r->sum[i])
            m[n++] = run->p->step->in[i].timed
                   ? sum_heads(run->p, call, i, from)
                   : sum_pieces(run->p, call, i, from, d);
    }
    return n;
}

static void sum_all(Ctx *c, Gpu *g, const RowsRun *run, int n, const Deal *d,
                    const Scratch *r)
{
    DenseMove *m = ctx_alloc(c, (size_t)n * MAX_INPUTS * sizeof *m);
    int sums = 0;

    for (int i = 0; i < n; i++)
        sums = add_sums(m, sums, &run[i], &d[i], &r[i]);
    dense_moves(c, g, run->call->stream, m, sums);
}

static void check_deal(Ctx *c, const Rows *p, const RowsCall *call,
                       const Deal *d)
{
    if (d->length > ROWS_MOST_TOKENS)
        fail(c, 0, "%s: %lld tokens are too many for one call: of a piece, %d",
             p->step->name, (long long)call->T, ROWS_MOST_TOKENS);
    if (d->grid * rows_threads(p, call) > UINT32_MAX / ROWS_BESIDE)
        fail(c, 0, "%s: %lld rows are too many for one call", p->step->name,
             (long long)d->rows);
}

static void run_kernels(Ctx *c, Gpu *g, const RowsRun *run, int n)
{
    RowsKernel *k = find_kernel(c, g, run, n, false);
    const Driver *d = gpu_enter(c, g);
    RowsScan s = kernels_of(run->p, run->call);
    Deal deal[ROWS_BESIDE];
    Scratch scratch[ROWS_BESIDE];
    uint32_t end[ROWS_BESIDE], grid = 0;
    uint64_t passed[ARGS_MOST / sizeof(uint64_t)];
    void *params[] = { passed };
    char *to = (char *)passed;

    for (int i = 0; i < n; i++) {
        const Rows *p = run[i].p;
        HostArgs a = { .ends = 0 };
        deal[i] = deal_beside(g, run, n, i);
        scratch[i] = scratch_of(p, run[i].call, &deal[i]);
        check_deal(c, p, run[i].call, &deal[i]);
        fill_args(&a, p, run[i].call, &deal[i], &scratch[i]);
        memcpy(to, &a, args_bytes(&run[i]));
        to += args_bytes(&run[i]);
        end[i] = grid += (uint32_t)deal[i].grid;
    }
    memcpy(to, end, (size_t)n * sizeof *end);
    for (int i = 0; grid && i < s.n; i++)
        kernel_queue(c, d, k->f[i], grid,
                     (unsigned)rows_threads(run->p, run->call),
                     (unsigned)s.shared[i], run->call->stream, params,
                     i > 0 && d->arch >= 90);
    sum_all(c, g, run, n, deal, scratch);
}

void rows_run(Ctx *c, Gpu *g, const RowsRun *run, int n)
{
    const Rows *p = run->p;
    int64_t own;

    gpu_enter(c, g);
    RowsCall to = seen_call(c, g, p, run->call, &own);
    if (p->product)
        product_before(c, g, p, run->call, own,
                       kept_states(g, p, run->call));
    run_kernels(c, g, n > 1 ? run : &(RowsRun){ run->p, &to }, n);
    if (p->product)
        product_behind(c, g, p, run->call, own);
}
