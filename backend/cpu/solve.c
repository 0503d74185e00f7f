/* solve.c -- (1 - a)^{-1} b by blocks of rows: what the rows before (TRANS:
 * behind) contribute is a matrix product, and so is a block's own part, with
 * the inverse of its small triangle.
 */
#include "tile.h"

#include <string.h>

enum { BLOCK = 16 };

int64_t solve_scratch(const Instr *in, int chunk)
{
    return BLOCK * BLOCK + BLOCK * (int64_t)dim_count(&in->n, chunk) +
           2 * TILE_SLACK;
}

typedef struct Solve {
    const Isa *isa;
    const float *a;
    float *y, *inverse, *block;
    ptrdiff_t ars, acs, yrs;
    int rows, cols;
    bool trans;
} Solve;

static void solve_block(const Solve *s, int at, int n)
{
    int next = at + n;
    Gemm g = { .m = n, .n = s->cols, .c = s->y + at * s->yrs, .crs = s->yrs,
               .brs = s->yrs, .bcs = 1, .mode = GEMM_ADD };

    if (s->trans) {
        g.k = s->rows - next;
        g.a = s->a + next * s->ars + at * s->acs;
        g.ars = s->acs;
        g.acs = s->ars;
        g.b = s->y + next * s->yrs;
    } else {
        g.k = at;
        g.a = s->a + at * s->ars;
        g.ars = s->ars;
        g.acs = s->acs;
        g.b = s->y;
    }
    if (g.k)
        s->isa->gemm(&g);
    s->isa->invert(n, s->inverse, s->a + at * (s->ars + s->acs), s->ars,
                   s->acs);
    for (int r = 0; r < n; r++)
        memcpy(s->block + (ptrdiff_t)r * s->cols, g.c + r * s->yrs,
               (size_t)s->cols * sizeof *s->block);
    g.mode = GEMM_SET;
    g.k = n;
    g.a = s->inverse;
    g.ars = s->trans ? 1 : BLOCK;
    g.acs = s->trans ? BLOCK : 1;
    g.b = s->block;
    g.brs = s->cols;
    s->isa->gemm(&g);
}

static void solve_rows(const Solve *s)
{
    int last = (s->rows - 1) / BLOCK * BLOCK;

    for (int b = 0; b <= last; b += BLOCK) {
        int at = s->trans ? last - b : b;
        int left = s->rows - at;
        solve_block(s, at, left < BLOCK ? left : BLOCK);
    }
}

void run_solve(const Work *w, const Instr *in)
{
    Turn t = turn_first(&in->loop, 0, w->n);
    const float *a = w->tile[in->x[0]];
    float *y = w->tile[in->y];
    Solve s = {
        .isa = w->p->isa, .inverse = w->scratch,
        .block = w->scratch + BLOCK * BLOCK, .ars = in->m.st[1],
        .acs = in->k.st[1], .yrs = in->m.st[0],
        .rows = dim_count(&in->m, w->n), .cols = dim_count(&in->n, w->n),
        .trans = in->flags & TRANS
    };

    memcpy(y, w->tile[in->x[1]],
           (size_t)dim_count(&in->all, w->n) * sizeof *y);
    do {
        s.a = a + t.off[1];
        s.y = y + t.off[0];
        solve_rows(&s);
    } while (turn_next(&t));
}
