/* dense.c -- moves and plain products of whole tensors, and whose product is
 * taken.
 */
#include "dense.h"

#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "driver_entry.h"

enum { THREADS = 256, BLOCKS = 16 };    /* a multiprocessor */
enum { MANY = 16, FEW = 1 << 18,        /* summands; sums, for sum_up */
       LONG = 512, SHORT = 64,          /* of which a block has few, or many */
       SUM_ENTRIES = 32, SUM_LONG = 8, SUM_SHORT = 128, SUM_THREADS = 1024,
       MOST_MOVES = 4,                  /* of one kernel */
       SUM_SHARED = SUM_THREADS / SUM_LONG * (SUM_LONG + 1) * 4 };

static const char source[] =
    "#include \"numbers.cuh\"\n#include \"warp.cuh\"\n"
    "#include \"dense.cuh\"\n"
    "extern \"C\" __global__ void flin_move(const __grid_constant__ Moves s)\n"
    "{\n    move(s);\n}\n"
    "extern \"C\" __global__ void\n"
    "__launch_bounds__(1024, 2) flin_sum(\n"
    "const __grid_constant__ Moves s)\n"
    "{\n    sum(s);\n}\n"
    "extern \"C\" __global__ void\n"
    "flin_product(const __grid_constant__ Product p)\n"
    "{\n    product(p);\n}\n";

typedef struct Dense {
    Module *module;
    Function *move, *sum, *product;
    Lt *lt;                             /* NULL: products are the plain ones */
} Dense;

/* As dense.cuh has them. */
typedef struct MoveArgs {
    uint64_t to, from;
    int64_t count, each, n[DENSE_DIMS], ts[DENSE_DIMS], fs[DENSE_DIMS];
    uint32_t mul[DENSE_DIMS], shift[DENSE_DIMS];
    int32_t outer, dims, to_type, from_type, add, wide, same, pad;
} MoveArgs;

typedef struct MovesArgs {
    MoveArgs m[MOST_MOVES];
    int32_t end[MOST_MOVES], n, pad;
} MovesArgs;

typedef struct ProductArgs {
    uint64_t a, b, c;
    int64_t m, n, k, batch, ars, acs, abs, brs, bcs, bbs, crs, cbs;
    int32_t type, result, add, pad;
} ProductArgs;

static void end(const Driver *d, void *p)
{
    Dense *k = p;
    lt_close(k->lt);
    module_unload(d, k->module);
    free(k);
}

static Dense *opened(Ctx *c, Gpu *g)
{
    const Driver *d = gpu_driver(g);
    Dense *k = gpu_own(g, OWN_DENSE);
    if (!k && !(k = calloc(1, sizeof *k)))
        fail_code(c, ERR_MEMORY, "out of memory");
    gpu_give(g, OWN_DENSE, k, end);
    k->lt = k->lt ? k->lt : lt_open(d->arch == 90 ? d->processors : 0);
    return k;
}

static void open_locked(Ctx *c, void *ud)
{
    Gpu *g = ud;
    Dense *k = opened(c, g);
    if (k->product)
        return;
    Module *m = build_module(c, g, source);
    k->module = m;
    k->move = module_function(c, gpu_driver(g), m, "flin_move", 0);
    k->sum = module_function(c, gpu_driver(g), m, "flin_sum", SUM_SHARED);
    k->product = module_function(c, gpu_driver(g), m, "flin_product", 0);
}

static Dense *dense_of(Ctx *c, Gpu *g)
{
    Dense *k = gpu_own(g, OWN_DENSE);
    if (k && k->product)
        return k;
    gpu_locked(c, g, open_locked, g);
    return gpu_own(g, OWN_DENSE);
}

void dense_prepare(Ctx *c, Gpu *g)
{
    dense_of(c, g);
}

static void wish_locked(Ctx *c, void *ud)
{
    if (!opened(c, ud)->product)
        build_wish(c, ud, source);
}

void dense_wish(Ctx *c, Gpu *g)
{
    gpu_enter(c, g);
    gpu_locked(c, g, wish_locked, g);
}

static void queue(Ctx *c, Gpu *g, Function *f, int64_t grid, unsigned threads,
                  unsigned shared, void *args, void *stream)
{
    const Driver *d = gpu_enter(c, g);
    void *params[] = { args };
    CALL(d, LAUNCH, launch_kernel);
    if (grid)
        driver_check(c, d, launch_kernel(f, (unsigned)grid, 1, 1, threads, 1, 1,
                     shared, stream, params, NULL), "launching a kernel");
}

/* Blocks, each of so many at a time. */
static int64_t blocks_of(const Gpu *g, int64_t all, int each)
{
    int64_t n = (all + each - 1) / each;
    int64_t most = (int64_t)BLOCKS * gpu_driver(g)->processors;
    return n < most ? n : most;
}

static void start(Ctx *c, Gpu *g, Function *f, int64_t threads, void *args,
                  void *stream)
{
    queue(c, g, f, blocks_of(g, threads, THREADS), THREADS, 0, args, stream);
}

/* ---- moves ---- */

static void add_dim(MoveArgs *a, int from, int64_t n, int64_t ts, int64_t fs)
{
    int last = a->dims - 1;
    if (n == 1)
        return;
    if (last >= from && a->ts[last] == n * ts && a->fs[last] == n * fs) {
        a->n[last] *= n;
        a->ts[last] = ts;
        a->fs[last] = fs;
        return;
    }
    a->n[a->dims] = n;
    a->ts[a->dims] = ts;
    a->fs[a->dims++] = fs;
}

/* Does dimension i come before j? Those that are kept first, each kind with
 * wide steps first: of the result, of the source where they are summed. */
static bool is_before(const DenseMove *m, int i, int j)
{
    const int64_t *by = m->ts[i] ? m->ts : m->fs;

    return !m->ts[i] != !m->ts[j] ? m->ts[i] != 0
         : llabs(by[i]) > llabs(by[j]);
}

static void sort_dims(DenseMove *m)
{
    int64_t *part[] = { m->n, m->ts, m->fs };

    for (int i = 1; i < m->rank; i++)
        for (int j = i; j > 0 && is_before(m, j, j - 1); j--)
            for (int k = 0; k < 3; k++) {
                int64_t was = part[k][j];
                part[k][j] = part[k][j - 1];
                part[k][j - 1] = was;
            }
}

/* x / n for x below 2^31, as the upper half of a product, shifted. */
static void find_quotients(MoveArgs *a)
{
    if (!a->count || !a->each || a->count > INT32_MAX || a->each > INT32_MAX)
        return;
    for (int d = 0; d < a->dims; d++) {
        uint64_t n = (uint64_t)a->n[d];
        int bits = 1;
        while (1ull << bits < n)
            bits++;
        a->mul[d] = (uint32_t)((1ull << (31 + bits)) / n + 1);
        a->shift[d] = (uint32_t)bits - 1;
    }
}

/* Can a thread have four neighbours? */
static bool is_wide(const MoveArgs *a)
{
    int last = a->outer - 1;
    uint64_t to = 4 * (uint64_t)dtype_size((DType)a->to_type);
    uint64_t from = 4 * (uint64_t)dtype_size((DType)a->from_type);

    if (last < 0 || a->n[last] % 4 || a->ts[last] != 1 || a->to % to)
        return false;
    bool fits = a->fs[last] == 0 || (a->fs[last] == 1 && a->from % from == 0);
    for (int d = 0; d < a->dims; d++)
        fits = fits && (d == last || (a->ts[d] % 4 == 0
                        && (a->fs[last] == 0 || a->fs[d] % 4 == 0)));
    return fits;
}

static MoveArgs move_args(const DenseMove *given)
{
    DenseMove sorted = *given, *m = &sorted;
    MoveArgs a = { .to = m->to, .from = m->from, .count = 1, .each = 1,
                   .to_type = (int32_t)m->to_type, .add = m->add,
                   .from_type = (int32_t)m->from_type };

    sort_dims(m);
    for (int i = 0; i < m->rank; i++) {
        int64_t *all = m->ts[i] ? &a.count : &a.each;
        add_dim(&a, m->ts[i] ? 0 : a.outer, m->n[i], m->ts[i], m->fs[i]);
        *all *= m->n[i];
        a.outer = m->ts[i] ? a.dims : a.outer;
    }
    a.wide = is_wide(&a) ? 4 : 1;
    a.same = a.outer && a.fs[a.outer - 1] == 0;
    find_quotients(&a);
    return a;
}

/* Whole rows of one type are the copy engine's. */
static bool is_rows(const DenseMove *m, const MoveArgs *a)
{
    int last = a->outer - 1;
    return !m->add && m->to_type == m->from_type && a->each == 1
        && a->outer <= 2 && last >= 0 && a->ts[last] == 1 && a->fs[last] == 1
        && (!last || (a->ts[0] >= a->n[1] && a->fs[0] >= a->n[1]));
}

/* Sums of many entries each. */
static bool is_sums(const MoveArgs *a)
{
    return a->each >= MANY && a->count <= FEW;
}

/* One more, of so many blocks. */
static void add_move(MovesArgs *s, const MoveArgs *a, int64_t blocks)
{
    int i = s->n++;

    s->m[i] = *a;
    s->end[i] = (i ? s->end[i - 1] : 0) + (int32_t)blocks;
}

static void queue_sums(Ctx *c, Gpu *g, void *stream, MovesArgs *s)
{
    if (s->n)
        queue(c, g, dense_of(c, g)->sum, s->end[s->n - 1], SUM_THREADS,
              SUM_SHARED, s, stream);
    s->n = 0;
}

static void add_sums(Ctx *c, Gpu *g, void *stream, MovesArgs *s, MoveArgs *a)
{
    a->wide = a->each >= LONG ? SUM_LONG : a->each > SHORT ? SUM_ENTRIES
                                                           : SUM_SHORT;
    add_move(s, a, blocks_of(g, a->count, a->wide));
    if (s->n == MOST_MOVES)
        queue_sums(c, g, stream, s);
}

static void queue_moves(Ctx *c, Gpu *g, void *stream, MovesArgs *s)
{
    if (s->n)
        queue(c, g, dense_of(c, g)->move, s->end[s->n - 1], THREADS, 0, s,
              stream);
    s->n = 0;
}

static void add_each(Ctx *c, Gpu *g, void *stream, MovesArgs *s,
                     const MoveArgs *a)
{
    add_move(s, a, blocks_of(g, a->count / a->wide, THREADS));
    if (s->n == MOST_MOVES)
        queue_moves(c, g, stream, s);
}

static void copy_rows(Ctx *c, Gpu *g, void *stream, const DenseMove *m,
                      const MoveArgs *a)
{
    size_t size = (size_t)dtype_size(m->to_type);
    int last = a->outer - 1;
    size_t width = (size_t)a->n[last] * size;
    DeviceRows r = { m->to, m->from, width, last ? (size_t)a->n[0] : 1,
                     last ? (size_t)a->ts[0] * size : width,
                     last ? (size_t)a->fs[0] * size : width };

    stream_copy(c, gpu_enter(c, g), stream, &r);
}

void dense_moves(Ctx *c, Gpu *g, void *stream, const DenseMove *m, int n)
{
    MovesArgs sums = { .n = 0 }, moves = { .n = 0 };

    for (int i = 0; i < n; i++) {
        MoveArgs a = move_args(&m[i]);
        if (a.count && is_sums(&a))
            add_sums(c, g, stream, &sums, &a);
        else if (a.count && is_rows(&m[i], &a))
            copy_rows(c, g, stream, &m[i], &a);
        else if (a.count)
            add_each(c, g, stream, &moves, &a);
    }
    queue_sums(c, g, stream, &sums);
    queue_moves(c, g, stream, &moves);
}

void dense_move(Ctx *c, Gpu *g, void *stream, const DenseMove *m)
{
    dense_moves(c, g, stream, m, 1);
}

/* ---- products ---- */

typedef struct Queued {
    Gpu *g;
    void *stream;
    const DenseProduct *p;
    DevicePtr workspace;
    int64_t bytes;
    bool done;
    const Lt *lt;
} Queued;

static void look_locked(Ctx *c, void *ud)
{
    Queued *q = ud;
    Lt *lt = opened(c, q->g)->lt;
    q->lt = lt;
    q->done = lt && lt_has(lt, q->p);
}

const char *dense_choose(Ctx *c, Gpu *g, const DenseProduct *p)
{
    Queued q = { .g = g, .p = p };
    gpu_enter(c, g);
    gpu_locked(c, g, look_locked, &q);
    return q.done ? lt_name(q.lt) : "a plain kernel";
}

static void room_locked(Ctx *c, void *ud)
{
    Queued *q = ud;
    Lt *lt = opened(c, q->g)->lt;
    q->bytes = lt ? lt_room(lt, q->p) : 0;
}

int64_t dense_room(Ctx *c, Gpu *g, const DenseProduct *p)
{
    Queued q = { .g = g, .p = p };
    gpu_enter(c, g);
    if (p->m && p->n && p->k && p->batch)
        gpu_locked(c, g, room_locked, &q);
    return q.bytes;
}

static void queue_locked(Ctx *c, void *ud)
{
    Queued *q = ud;
    Lt *lt = opened(c, q->g)->lt;
    q->done = lt && lt_product(lt, q->stream, q->p, q->workspace,
                               q->bytes);
}

/* To where products are added to it. */
static void copy_plus(Ctx *c, Gpu *g, void *stream, const DenseProduct *p)
{
    dense_move(c, g, stream, &(DenseMove){
        .to = p->c, .from = p->plus, .to_type = p->result,
        .from_type = p->result, .rank = 3, .n = { p->batch, p->m, p->n },
        .ts = { p->cbs, p->crs, 1 }, .fs = { p->pbs, p->prs, 1 } });
}

void dense_product(Ctx *c, Gpu *g, void *stream, const DenseProduct *p,
                   DevicePtr workspace, int64_t bytes)
{
    Queued q = { g, stream, p, workspace, bytes, false, NULL };
    if (!p->m || !p->n || !p->batch)
        return;
    gpu_enter(c, g);
    if (p->k)
        gpu_locked(c, g, queue_locked, &q);
    if (q.done)
        return;
    if (p->plus)
        copy_plus(c, g, stream, p);
    ProductArgs a = { p->a, p->b, p->c, p->m, p->n, p->k, p->batch, p->ars,
                      p->acs, p->abs, p->brs, p->bcs, p->bbs, p->crs, p->cbs,
                      (int32_t)p->type, (int32_t)p->result,
                      p->add || p->plus, 0 };
    start(c, g, dense_of(c, g)->product, p->m * p->n * p->batch, &a,
          stream);
}
