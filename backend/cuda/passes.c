/* passes.c -- row programs on the device: read, compiled and launched. */
#include "passes_emit.h"

#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "dense.h"
#include "driver_entry.h"

enum { MOST_PIECES = 64, ALIGNED = 256,
       COLUMN_BLOCKS = 1024 };          /* of all pieces that columns are summed
                                           in */

/* By what its text depends on. */
typedef struct Program {
    struct Program *next;
    uint64_t hash;
    Module *module;
    Function *rows, *columns[MAX_INPUTS];
} Program;

struct Passes {
    const RowStep *step;
    Program *program;
};

Passes *passes_new(Ctx *c, const RowStep *step)
{
    Passes *p = ctx_alloc(c, sizeof *p);

    p->step = step;
    return p;
}

void passes_free(Gpu *g, Passes *p)
{
    Ctx *c = p && p->program ? ctx_new() : NULL;

    for (Program *k = p ? p->program : NULL, *next; k; k = next) {
        next = k->next;
        gpu_unload(c, g, k->module);
        free(k);
    }
    if (p)
        p->program = NULL;
    ctx_free(c);
}

/* ---- a call ---- */

static RowProgram *program_of(Ctx *c, const Passes *p, const PassesCall *call)
{
    bool wanted[MAX_INPUTS];

    if (!call->backward)
        return row_forward(c, p->step, call->kept != 0);
    for (int i = 0; i < p->step->nin; i++)
        wanted[i] = call->dx[i].data != NULL;
    RowProgram *r = row_backward(c, p->step, wanted, call->inplace,
                                 call->kept != 0);
    RowReads how = { .columns = true };
    for (int i = 0; i < p->step->nin; i++)
        how.shared[i] = call->in[i].heads < call->heads;
    const char *wrong = row_check(c, r, &how);
    if (wrong)
        fail_code(c, ERR_INTERNAL, "%s: %s", r->g->name, wrong);
    return r;
}

/* Numbers that columns read, and those that are summed themselves. */
static void find_left(Ctx *c, PassesPlan *k)
{
    const RowProgram *p = k->p;
    const Graph *g = p->g;
    uint8_t *is = ctx_alloc(c, g->len);

    for (int i = 0; i < p->nout; i++) {
        const RowOut *o = &p->out[i];
        if (!o->summed)
            continue;
        if (row_axis(p, o->node) < 0)
            is[o->node] = 1;
        bool apart = passes_columns(k, i) && !k->beside;
        for (Ref r = 1; r < g->len && apart; r++)
            for (int j = 0; j < 4 && p->need[o->pass][r]; j++) {
                Ref a = g->n[r].a[j];
                is[a] |= a && row_axis(p, a) < 0 && !row_folds(g, r);
            }
    }
    for (Ref r = 1; r < g->len; r++) {
        if (!is[r] || g->n[r].op == OP_num)
            continue;
        if (k->nleft == PASS_LEFT)
            fail(c, g->line, "%s: more than %d numbers of a row go into sums "
                 "over rows", g->name, PASS_LEFT);
        k->left[k->nleft++] = r;
    }
}

static bool reduces(const PassesPlan *k)
{
    const RowProgram *p = k->p;
    bool any = false;

    for (int pass = 0; pass < p->npasses; pass++)
        for (Ref r = 1; r < p->g->len; r++)
            any = any || (p->need[pass][r] && row_folds(p->g, r));
    return any;
}

/* A short row has no more lanes than have entries: a warp has several. */
static void find_shape(PassesPlan *k)
{
    const Graph *g = k->p->g;
    int32_t most = 1;

    for (int i = 0; i < k->p->naxes; i++)
        if (g->axis[k->p->axis[i]].size > most)
            most = g->axis[k->p->axis[i]].size;
    k->each = 4;
    for (int i = 0; i < g->nin; i++)
        if (row_axis(k->p, g->in[i].node) >= 0
            && dtype_size(k->in[i].dtype) == 2)
            k->each = 8;
    k->threads = most <= 1024 ? 32 : most <= 8192 ? 256
               : most <= 65536 ? 512 : 1024;
    while (k->threads > 1 && k->threads <= 32
           && k->threads / 2 * k->each >= most)
        k->threads /= 2;
}

/* What a head's own inputs are in. */
static void find_own(Ctx *c, PassesPlan *k)
{
    const Graph *g = k->p->g;

    k->own = ctx_alloc(c, g->len);
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        k->own[r] = n->op == OP_input && k->in[n->index].heads > 1;
        for (int i = 0; i < 4; i++)
            k->own[r] |= n->a[i] && k->own[n->a[i]];
    }
}

/* Heads that one row's lanes may have one after another: all that share a
 * gradient, else up to four; 1 where numbers of rows are reduced. */
static int group_of(const PassesPlan *k)
{
    const RowProgram *p = k->p;
    bool shared = false, gathers = false;

    for (int i = 0; i < p->nout; i++) {
        if (row_axis(p, p->out[i].node) < 0 || p->out[i].summed || p->nkept)
            return 1;
        gathers = gathers || passes_gathers(k, i);
    }
    if (reduces(k))
        return 1;
    for (int pass = 0; pass < p->npasses; pass++)
        for (Ref r = 1; r < p->g->len; r++)
            shared = shared || (p->need[pass][r] && !k->own[r]
                                && p->g->n[r].op == OP_input);
    for (int n = PASS_GROUP; n > 1 && shared && !gathers; n--)
        if (k->heads % n == 0)
            return n;
    return gathers ? k->heads : 1;
}

/* Results that are of fewer heads than there are, or of other axes beside the
 * row's, would be summed by several rows. */
static void check_results(Ctx *c, const PassesPlan *k)
{
    const Graph *g = k->p->g;

    for (int i = 0; i < k->p->nout; i++) {
        const RowOut *o = &k->p->out[i];
        const Input *in = o->input >= 0 ? &g->in[o->input] : NULL;
        if (!in)
            continue;
        bool few = passes_gathers(k, i)
                && (k->group < k->heads || k->out[i]->heads > 1);
        bool more = o->summed && (k->out[i]->heads > 1 || in->rank > 1
                                  || row_half(k->p, in->node));
        if (few || more)
            fail_help(c, in->line, "on the CPU it is there", "%s: the gradient "
                      "of %s, which is summed over %s rows, is not there on "
                      "GPUs yet", g->name, in->name, few ? "heads'"
                      : "some of several axes'");
    }
}

/* Blocks of the kernel over rows. */
static int64_t blocks_of(const PassesPlan *k, int64_t rows)
{
    int64_t each = k->threads > 32 ? 1 : PASS_BLOCK / k->threads;

    return (rows + each - 1) / each;
}

/* Columns that result `out` is summed along. */
static int32_t columns_of(const PassesPlan *k, int out)
{
    return k->p->g->axis[row_pass_axis(k->p, k->p->out[out].pass)].size;
}

/* Can it sum along columns what its rows have: one result, of rows that are a
 * warp's at most, whose pieces' sums are no more than 64 MB? Another kernel
 * would read all rows again. */
static bool sums_beside(const PassesPlan *k, int64_t rows)
{
    enum { MOST_SUMS = 1 << 24 };
    int columns = 0, out = 0;

    for (int i = 0; i < k->p->nout; i++)
        if (passes_columns(k, i)) {
            columns++;
            out = i;
        }
    return columns == 1 && k->threads <= 32 && k->group == 1 && !k->some
        && blocks_of(k, rows) * columns_of(k, out) <= MOST_SUMS;
}

static PassesPlan *plan_of(Ctx *c, const Passes *p, const PassesCall *call)
{
    PassesPlan *k = ctx_alloc(c, sizeof *k);
    const Graph *g = p->step->joint;
    AxisSet others = row_others(p->step);

    k->p = program_of(c, p, call);
    k->in = call->in;
    k->some = call->some.is;
    k->heads = call->heads;
    for (; others; others &= others - 1) {
        if (k->nothers == PASS_OTHERS)
            fail(c, g->line, "%s: rows of more than %d axes", g->name,
                 PASS_OTHERS);
        k->other[k->nothers] = (uint8_t)lowest(others);
        k->size[k->nothers++] = call->size[lowest(others)];
    }
    if (g->nin + k->p->nout > PASS_ARGS)
        fail(c, g->line, "%s: more than %d tensors of a step over rows",
             g->name, PASS_ARGS);
    for (int i = 0; i < k->p->nout; i++) {
        int in = k->p->out[i].input;
        k->out[i] = in >= 0 ? &call->dx[in] : in == OUT_Y ? &call->y : NULL;
    }
    find_own(c, k);
    k->group = group_of(k);
    check_results(c, k);
    find_shape(k);
    k->beside = sums_beside(k, passes_rows(p, call));
    find_left(c, k);
    return k;
}

int64_t passes_rows(const Passes *p, const PassesCall *call)
{
    int64_t n = call->B * call->T * call->heads;

    for (AxisSet s = row_others(p->step); s; s &= s - 1)
        n *= call->size[lowest(s)];
    return n;
}

/* ---- memory ---- */

static int64_t rounded(int64_t bytes)
{
    return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* Pieces of rows: a block's, or a power of two, of eight rows or more. */
static int64_t pieces_of(const PassesPlan *k, int64_t rows, int32_t columns)
{
    int64_t n = 1;

    if (k->beside)
        return blocks_of(k, rows);
    while (2 * n * passes_blocks(k, columns) <= COLUMN_BLOCKS
           && 2 * n * 8 <= rows)
        n *= 2;
    return n;
}

/* The most that pieces' sums take. */
static int64_t most_sums(const PassesPlan *k, int64_t rows)
{
    int64_t most = 0;

    for (int i = 0; i < k->p->nout; i++) {
        int32_t n = passes_columns(k, i) ? columns_of(k, i) : 0;
        int64_t all = n ? n * pieces_of(k, rows, n) : 0;
        most = all > most ? all : most;
    }
    return most;
}

int64_t passes_room(Ctx *c, Gpu *g, Passes *p, const PassesCall *call)
{
    const PassesPlan *k = plan_of(c, p, call);
    int64_t rows = passes_rows(p, call);

    gpu_enter(c, g);
    return rounded(rows * k->nleft * 4) + rounded(MOST_PIECES * 4)
         + rounded(most_sums(k, rows) * 4);
}

/* ---- kernels ---- */

static uint64_t hash_view(uint64_t h, const PassesPlan *k, const View *v,
                          const uint8_t *order, int rank)
{
    bool whole = false;

    for (int i = 0; i < k->p->naxes; i++)
        whole = whole || passes_whole(k, v, order, rank, k->p->axis[i]);
    int64_t x[] = { v->data != NULL, v->dtype, whole, v->heads };
    return hash_bytes(h, x, sizeof x);
}

static uint64_t hash_plan(const PassesPlan *k, const PassesCall *call)
{
    const RowProgram *p = k->p;
    int64_t x[] = { call->backward, call->kept != 0, call->heads, k->some,
                    k->beside };
    uint64_t h = hash_bytes(3, x, sizeof x);

    for (int i = 0; i < p->g->nin; i++)
        h = hash_view(h, k, &k->in[i], p->g->in[i].order, p->g->in[i].rank);
    for (int i = 0; i < p->nout; i++) {
        int rank;
        const uint8_t *order = passes_order(p, &p->out[i], &rank);
        h = hash_bytes(h, &p->out[i].pass, sizeof p->out[i].pass);
        if (k->out[i])
            h = hash_view(h, k, k->out[i], order, rank);
    }
    return h;
}

typedef struct Wish {
    Gpu *g;
    Passes *p;
    const PassesPlan *k;
    uint64_t hash;
    bool soon;                          /* it is wished for */
    Program *found;
} Wish;

static void find_locked(Ctx *c, void *ud)
{
    Wish *w = ud;
    const Driver *d = gpu_driver(w->g);

    for (w->found = w->p->program; w->found; w->found = w->found->next)
        if (w->found->hash == w->hash)
            return;
    const char *text = passes_emit(c, w->k);
    if (w->soon) {
        build_wish(c, w->g, text);
        return;
    }
    Module *m = build_module(c, w->g, text);
    Program *k = calloc(1, sizeof *k);
    if (!k) {
        module_unload(d, m);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    *k = (Program){ .next = w->p->program, .hash = w->hash, .module = m };
    w->p->program = w->found = k;
    k->rows = module_function(c, d, m, "flin_rows_by_passes",
                              passes_shared(w->k));
    for (int i = 0; i < w->k->p->nout; i++)
        if (passes_columns(w->k, i) && !w->k->beside)
            k->columns[i] = module_function(c, d, m, ctx_format(c,
                                            "flin_columns_%d", i), 0);
}

const char *passes_text(Ctx *c, const Passes *p, const PassesCall *call)
{
    return passes_emit(c, plan_of(c, p, call));
}

static Program *find_program(Ctx *c, Gpu *g, Passes *p, const PassesPlan *k,
                             const PassesCall *call, bool soon)
{
    Wish w = { g, p, k, hash_plan(k, call), soon, NULL };

    gpu_enter(c, g);
    gpu_locked(c, g, find_locked, &w);
    return w.found;
}

void passes_wish(Ctx *c, Gpu *g, Passes *p, const PassesCall *call)
{
    find_program(c, g, p, plan_of(c, p, call), call, true);
}

void passes_prepare(Ctx *c, Gpu *g, Passes *p, const PassesCall *call)
{
    find_program(c, g, p, plan_of(c, p, call), call, false);
}

/* ---- launching ---- */

/* As the source has them. */
typedef struct HostArg {
    uint64_t p;
    int64_t sb, st, sh, sd[PASS_DIMS];
} HostArg;
typedef struct HostArgs {
    uint64_t kept, left, sums, carry;
    int64_t rows, tokens, each, from;
    int32_t nkept, begins, ends;
    HostDivisor by_tokens;
    HostArg arg[PASS_ARGS];
} HostArgs;
_Static_assert(sizeof(HostArgs) <= 4096, "what a kernel is passed");

static HostArg host_arg(const View *v)
{
    HostArg a = { (uint64_t)(uintptr_t)v->data, v->sb, v->st, v->sh, { 0 } };

    memcpy(a.sd, v->sd, sizeof a.sd);
    return a;
}

static void fill_args(HostArgs *a, const Passes *p, const PassesPlan *k,
                      const PassesCall *call)
{
    int64_t rows = passes_rows(p, call) / k->group;

    *a = (HostArgs){ .kept = call->kept, .left = call->room, .rows = rows,
                     .tokens = call->T,
                     .sums = call->room + (DevicePtr)(rounded(rows * k->nleft
                             * 4) + rounded(MOST_PIECES * 4)),
                     .nkept = p->step->nkept, .carry = call->carry,
                     .from = call->some.from, .begins = call->some.begins,
                     .ends = call->some.ends,
                     .by_tokens = cuda_divisor(call->T) };
    for (int i = 0; i < k->p->g->nin; i++)
        a->arg[passes_in(k, i)] = host_arg(&k->in[i]);
    for (int i = 0; i < k->p->nout; i++)
        if (k->out[i])
            a->arg[passes_out(k, i)] = host_arg(k->out[i]);
}

static int64_t along_stride(const RowProgram *p, const Input *in,
                            const View *v)
{
    for (int d = 0; d < in->rank; d++)
        if (AXIS(in->order[d]) & p->along)
            return v->sd[d];
    return 0;
}

/* Pieces' sums of columns, and these as one. */
static void sum_columns(Ctx *c, Gpu *g, const PassesPlan *k, Function *f,
                        HostArgs *a, int out, void *stream)
{
    const Driver *d = gpu_enter(c, g);
    const RowProgram *p = k->p;
    const Input *in = &p->g->in[p->out[out].input];
    int32_t n = columns_of(k, out);
    int64_t pieces = pieces_of(k, a->rows, n);
    void *params[] = { a };
    CALL(d, LAUNCH, launch_kernel);

    a->each = (a->rows + pieces - 1) / pieces;
    if (!k->beside)
        driver_check(c, d, launch_kernel(f, (unsigned)(pieces
                     * passes_blocks(k, n)), 1, 1, PASS_COLUMNS, 1, 1, 0,
                     stream, params, NULL), "launching a kernel");
    DenseMove m = { .to = (DevicePtr)(uintptr_t)k->out[out]->data,
                    .from = a->sums, .to_type = k->out[out]->dtype,
                    .from_type = F32, .rank = 2, .n = { pieces, n },
                    .ts = { 0, along_stride(p, in, k->out[out]) },
                    .fs = { n, 1 } };
    dense_move(c, g, stream, &m);
}

/* A number of each row: to a few sums, then to one. */
static void sum_numbers(Ctx *c, Gpu *g, const PassesPlan *k, const HostArgs *a,
                        int out, void *stream)
{
    DevicePtr more = a->left + (DevicePtr)rounded(a->rows * k->nleft * 4);
    int64_t few = 1, at = 0;

    while (k->left[at] != k->p->out[out].node)
        at++;
    while (few < MOST_PIECES && a->rows % (2 * few) == 0 && a->rows)
        few *= 2;
    DenseMove m = { .to = more, .from = a->left + (DevicePtr)at * 4,
                    .to_type = F32, .from_type = F32, .rank = 2,
                    .n = { few, a->rows / few }, .ts = { 1, 0 },
                    .fs = { k->nleft * (a->rows / few), k->nleft } };
    dense_move(c, g, stream, &m);
    m = (DenseMove){ .to = (DevicePtr)(uintptr_t)k->out[out]->data,
                     .from = more, .to_type = k->out[out]->dtype,
                     .from_type = F32, .rank = 1, .n = { few }, .ts = { 0 },
                     .fs = { 1 } };
    dense_move(c, g, stream, &m);
}

void passes_run(Ctx *c, Gpu *g, Passes *p, const PassesCall *call)
{
    const PassesPlan *k = plan_of(c, p, call);
    Program *f = find_program(c, g, p, k, call, false);
    const Driver *d = gpu_enter(c, g);
    HostArgs *a = ctx_alloc(c, sizeof *a);
    void *params[] = { a };
    unsigned block = k->threads > 32 ? (unsigned)k->threads : PASS_BLOCK;
    CALL(d, LAUNCH, launch_kernel);

    fill_args(a, p, k, call);
    int64_t grid = blocks_of(k, a->rows);
    if (grid > INT32_MAX || a->rows > UINT32_MAX)
        fail(c, 0, "%s: %lld rows are too many for one call", k->p->g->name,
             (long long)a->rows);
    if (grid)
        driver_check(c, d, launch_kernel(f->rows, (unsigned)grid, 1, 1, block,
                     1, 1, (unsigned)passes_shared(k), call->stream, params,
                     NULL),
                     "launching a kernel");
    for (int i = 0; i < k->p->nout; i++)
        if (passes_columns(k, i))
            sum_columns(c, g, k, f->columns[i], a, i, call->stream);
        else if (k->p->out[i].summed)
            sum_numbers(c, g, k, a, i, call->stream);
}
