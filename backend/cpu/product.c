/* product.c -- a matrix product in blocks, each of which one thread makes. */
#include "product.h"

/* A block's rows of b stay in a core's cache. */
enum { ROWS = 96, COLS = 256, DEPTH = 256 };

typedef struct Job {
    Ctx *c;
    const Product *p;
    const Isa *isa;
    int64_t blocks;
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

/* Slab after slab of k, so that sums go the same way whoever makes it. */
static void make_block(const Job *j, int64_t block)
{
    const Product *p = j->p;
    int64_t wide = pieces(p->n, COLS);
    int64_t row = block / wide * ROWS, col = block % wide * COLS;
    Gemm g = { .m = (int)at_most(p->m - row, ROWS),
               .n = (int)at_most(p->n - col, COLS), .ars = p->ars,
               .acs = p->acs, .brs = p->brs, .bcs = 1, .crs = p->crs,
               .c = p->c + row * p->crs + col, .row_rank = 1, .col_rank = 1 };

    for (int64_t k = 0; k < p->k; k += DEPTH) {
        g.k = (int)at_most(p->k - k, DEPTH);
        g.a = p->a + row * p->ars + k * p->acs;
        g.b = p->b + k * p->brs + col;
        g.mode = k || p->add ? GEMM_ADD : GEMM_SET;
        j->isa->gemm(&g);
    }
}

static void work(void *ud, int worker)
{
    Job *j = ud;
    int64_t i;

    while ((i = atomic_fetch_add(&j->next, 1)) < j->blocks
           && !atomic_load(&j->stop)) {
        make_block(j, i);
        if (!worker && j->c->interrupted
            && j->c->interrupted(j->c->interrupt_ud))
            atomic_store(&j->stop, true);
    }
}

void cpu_product(Ctx *c, Pool *pool, int threads, const Product *p)
{
    Job j = { .c = c, .p = p, .isa = isa_find(NULL),
              .blocks = pieces(p->m, ROWS) * pieces(p->n, COLS) };
    int n = threads ? threads : pool_processors();

    if (n > j.blocks)
        n = (int)j.blocks;
    pool_share(c, pool, n, work, &j);
    if (atomic_load(&j.stop))
        fail_code(c, ERR_INTERRUPT, "interrupted");
}
