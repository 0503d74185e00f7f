/* product.c -- a matrix product in blocks, each of which one thread makes. */
#include "product.h"

#include <limits.h>

#include "blas.h"

/* A block's rows of b, a slab, stay in a core's cache. */
enum { ROWS = 96, COLS = 256, DEPTH = 256 };

/* A slab in order: its rows do not fall on one another's lines of the first
 * cache. */
enum { SLAB_ROW = COLS + 16, SLAB = DEPTH * SLAB_ROW + TILE_SLACK };

/* Work is dealt out in panels: COLS columns, and `rows` rows, of c. */
typedef struct Job {
    Ctx *c;
    const Product *p;
    const Isa *isa;
    bool blas;                          /* blocks are OpenBLAS's */
    bool in_order;                      /* slabs are copied */
    float *slab;                        /* one a worker; or NULL */
    int64_t rows, panels;
    atomic_llong next;
    atomic_bool stop;
} Job;

static int64_t at_most(int64_t left, int64_t most)
{
    return left < most ? left : most;
}

static int64_t pieces(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

/* Would what lies behind b's last row be read, and may not? That is so where a
 * row is no whole number of vectors. */
static bool reads_beyond(const Product *p, int64_t col)
{
    enum { WIDEST = 16 };

    return p->bare && at_most(p->n - col, COLS) % WIDEST;
}

/* Where b's rows are multiples of some lines apart few of them stay in the
 * first cache; a block reads each again for every few of its own rows, and
 * feels it where a register tile is narrower than what is read at once. */
static bool is_better_in_order(const Isa *isa, const Product *p)
{
    enum { WIDE = 64, APART = 256, ENOUGH = 16 };

    return isa->columns < WIDE && p->brs % APART == 0 && p->m >= ENOUGH;
}

static bool takes_slab(const Job *j, int64_t col)
{
    return j->p->bcs != 1 || j->in_order || reads_beyond(j->p, col);
}

/* b's columns from col on, rows k to k + depth. */
static Gemm part_of(const Product *p, int64_t col, int64_t k, int64_t depth)
{
    return (Gemm){ .n = (int)at_most(p->n - col, COLS),
                   .k = (int)at_most(p->k - k, depth),
                   .b = p->b + k * p->brs + col * p->bcs, .brs = p->brs,
                   .bcs = p->bcs, .ars = p->ars, .acs = p->acs, .crs = p->crs,
                   .mode = k || p->add ? GEMM_ADD : GEMM_SET,
                   .row_rank = 1, .col_rank = 1 };
}

/* Rows `row` to `end` of it, in blocks, by OpenBLAS or isa. */
static void make_rows(const Job *j, Gemm g, int64_t row, int64_t end,
                      int64_t col, int64_t k)
{
    const Product *p = j->p;

    for (int64_t r = row; r < end; r += ROWS) {
        g.m = (int)at_most(end - r, ROWS);
        g.a = p->a + r * p->ars + k * p->acs;
        g.c = p->c + r * p->crs + col;
        if (j->blas)
            blas_gemm(&g);
        else
            j->isa->gemm(&g);
    }
}

/* Slab after slab of k, so that sums go the same way whoever makes it. */
static void make_panel(const Job *j, int64_t row, int64_t end, int64_t col,
                       float *slab)
{
    const Product *p = j->p;

    for (int64_t k = 0; (k < p->k || !k) && !atomic_load(&j->stop);
         k += DEPTH) {
        Gemm g = part_of(p, col, k, DEPTH);
        if (takes_slab(j, col)) {
            g.pack = slab;
            j->isa->pack(&g, SLAB_ROW);
            g.b = slab;
            g.brs = SLAB_ROW;
            g.bcs = 1;
        }
        make_rows(j, g, row, end, col, k);
    }
}

static void poll(Job *j)
{
    if (j->c->interrupted && j->c->interrupted(j->c->interrupt_ud))
        atomic_store(&j->stop, true);
}

static void work(void *ud, int worker)
{
    Job *j = ud;
    const Product *p = j->p;
    int64_t i, wide = pieces(p->n, COLS);
    float *slab = j->slab ? j->slab + (ptrdiff_t)worker * SLAB : NULL;

    while ((i = atomic_fetch_add(&j->next, 1)) < j->panels
           && !atomic_load(&j->stop)) {
        int64_t row = i / wide * j->rows, col = i % wide * COLS;
        int64_t end = row + at_most(p->m - row, j->rows);
        if (j->blas)
            make_rows(j, part_of(p, col, 0, p->k), row, end, col, 0);
        else
            make_panel(j, row, end, col, slab);
        if (!worker)
            poll(j);
    }
}

/* Rows of a panel: as many as leave each thread some panels. */
static int64_t rows_of(const Product *p, int threads)
{
    enum { EACH = 4, MOST = 64 };
    int64_t blocks = pieces(p->m, ROWS), wide = pieces(p->n, COLS);
    int64_t want = threads > 1 && wide ? pieces(EACH * threads, wide) : 1;
    int64_t rows = pieces(blocks, want < blocks ? want : blocks);

    return at_most(rows, MOST) * ROWS;
}

/* What a whole panel is to OpenBLAS. */
static bool is_for_blas(const Product *p)
{
    Gemm g = part_of(p, 0, 0, at_most(p->k, INT_MAX));

    g.m = (int)at_most(p->m, ROWS);
    return p->k <= INT_MAX && blas_takes(&g);
}

void cpu_product(Ctx *c, Pool *pool, int threads, const Product *p)
{
    Job j = { .c = c, .p = p, .isa = p->isa ? p->isa : isa_find(NULL) };
    int n = threads ? threads : pool_processors();
    size_t bytes;

    if (p->m < 1 || p->n < 1)
        return;
    j.rows = rows_of(p, n);
    j.panels = pieces(p->m, j.rows) * pieces(p->n, COLS);
    n = (int)at_most(n, j.panels);
    bytes = (size_t)n * SLAB * sizeof *j.slab;
    j.blas = is_for_blas(p) && blas_is_wanted(j.isa);
    j.in_order = is_better_in_order(j.isa, p);
    if (!j.blas && (takes_slab(&j, 0) || reads_beyond(p, p->n / COLS * COLS))
        && !(j.slab = mem_raw(&c->mem, bytes)))
        fail_code(c, ERR_MEMORY, "out of memory");
    if (j.blas)
        blas_begin();
    pool_share(c, pool, n, work, &j);
    if (j.blas)
        blas_end();
    mem_free(&c->mem, j.slab, bytes);
    if (atomic_load(&j.stop))
        fail_code(c, ERR_INTERRUPT, "interrupted");
}
