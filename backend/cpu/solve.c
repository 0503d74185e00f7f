/* solve.c -- (1 - a)^{-1} b by blocks of rows: what the rows before (TRANS:
 * behind) contribute is a matrix product, and so is a block's own part, with
 * the inverse of its small triangle. Under decays of each column the first
 * goes by way of the token between, so that no exponent is above zero, and a
 * block's own part is done row by row.
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

/* ---- under decays ---- */

int64_t gsolve_scratch(const Instr *in, int chunk)
{
    return (int64_t)(2 * chunk + BLOCK) * in->cols + 3 * TILE_SLACK;
}

/* Sums of gates, and what they lose in float, or NULL. */
typedef struct Sums { const float *sum, *low; } Sums;

typedef struct Decayed {
    const Isa *isa;
    const float *a;
    const float *rate;
    float *y, *scaled, *apart, *block;
    Sums gate;
    ptrdiff_t rs, cs;                   /* of a, or its transpose */
    int cols;
    int before;                         /* rows read what this many rows before
                                           them have left */
    bool trans;
} Decayed;

static Sums gates_at(const Decayed *s, int row)
{
    ptrdiff_t at = (ptrdiff_t)row * s->cols;

    return (Sums){ s->gate.sum + at, s->gate.low ? s->gate.low + at : NULL };
}

/* As row `row` reads; none reads in the first. */
static Sums read_at(const Decayed *s, int row)
{
    return gates_at(s, row - s->before);
}

/* y = x e^(a - b) for n rows, y none of x's; of a or b there is one row where
 * its step is 0. */
static void scale_apart(const Decayed *s, int n, float *y, const float *x,
                        Sums a, int a_step, Sums b, int b_step)
{
    const ptrdiff_t row = s->cols, st[4] = { row, a_step * row, b_step * row };
    const ptrdiff_t same[4] = { row, row, row };

    s->isa->elem[OP_sub](n, s->cols, s->apart, (const float *[]){
                         a.sum, b.sum, a.sum }, st, 0);
    if (a.low && b.low) {
        s->isa->elem[OP_sub](n, s->cols, y, (const float *[]){
                             a.low, b.low, a.low }, st, 0);
        s->isa->add_to(n * s->cols, s->apart, y);
    }
    s->isa->elem[FUSED_SCALE](n, s->cols, y, (const float *[]){
                              x, s->apart, x }, same, 0);
}

/* What `n` rows from `from` on, scaled, are worth to the m rows at `at`. */
static void add_rows(const Decayed *s, float *to, int at, int m, int from,
                     int n, int mode)
{
    Gemm g = { .m = m, .n = s->cols, .k = n, .c = to, .crs = s->cols,
               .a = s->a + at * s->rs + from * s->cs, .ars = s->rs,
               .acs = s->cs, .b = s->scaled, .brs = s->cols, .bcs = 1,
               .mode = mode };

    s->isa->gemm(&g);
}

/* y = x rate for n rows from `from` on. */
static void rate_rows(const Decayed *s, int from, int n, float *y,
                      const float *x)
{
    const ptrdiff_t row = s->cols, same[4] = { row, row, row };

    s->isa->elem[OP_mul](n, s->cols, y, (const float *[]){
                         x, s->rate + from * row, x }, same, 0);
}

/* Of the rows done, by way of the last token before the later ones. */
static void add_done(const Decayed *s, int at, int m, int rows)
{
    int next = at + m, between = s->trans ? next - 1 : at - 1;
    int from = s->trans ? next : 0, n = s->trans ? rows - next : at;
    Sums anchor = gates_at(s, between);
    float *to = s->y + (ptrdiff_t)at * s->cols;

    if (s->trans) {
        scale_apart(s, n, s->scaled, s->y + (ptrdiff_t)from * s->cols,
                    read_at(s, from), 1, anchor, 0);
        rate_rows(s, from, n, s->scaled, s->scaled);
    } else {
        scale_apart(s, n, s->scaled, s->y, anchor, 0, gates_at(s, 0), 1);
    }
    add_rows(s, s->block, at, m, from, n, GEMM_SET);
    if (s->trans) {
        scale_apart(s, m, s->scaled, s->block, anchor, 0, gates_at(s, at), 1);
    } else {
        scale_apart(s, m, s->scaled, s->block, read_at(s, at), 1, anchor, 0);
        rate_rows(s, at, m, s->scaled, s->scaled);
    }
    s->isa->add_to(m * s->cols, to, s->scaled);
}

/* Of the block's own rows, one after another. */
static void add_own(const Decayed *s, int at, int m)
{
    ptrdiff_t row = s->cols;

    for (int k = 1; k < m; k++) {
        int i = s->trans ? at + m - 1 - k : at + k;
        int from = s->trans ? i + 1 : at;
        const float *x = s->y + from * row;
        if (s->trans) {
            scale_apart(s, k, s->scaled, x, read_at(s, from), 1,
                        gates_at(s, i), 0);
            rate_rows(s, from, k, s->scaled, s->scaled);
            add_rows(s, s->y + i * row, i, 1, from, k, GEMM_ADD);
            continue;
        }
        scale_apart(s, k, s->scaled, x, read_at(s, i), 0, gates_at(s, from), 1);
        add_rows(s, s->block, i, 1, from, k, GEMM_SET);
        s->isa->mul_add(s->cols, s->y + i * row, s->block, s->rate + i * row);
    }
}

void run_gsolve(const Work *w, const Instr *in)
{
    int64_t tile = (int64_t)w->p->chunk * in->cols;
    bool trans = in->flags & TRANS;
    Decayed s = {
        .isa = w->p->isa, .a = w->tile[in->x[0]], .y = w->tile[in->y],
        .scaled = w->scratch, .apart = w->scratch + tile + TILE_SLACK,
        .block = w->scratch + 2 * (tile + TILE_SLACK),
        .rate = w->tile[in->x[2]], .before = in->flags & EXCLUSIVE ? 1 : 0,
        .gate = { w->tile[in->x[3]],
                  in->x[4] < 0 ? NULL : w->tile[in->x[4]] },
        .rs = trans ? 1 : w->p->chunk, .cs = trans ? w->p->chunk : 1,
        .cols = in->cols, .trans = trans
    };
    int last = (w->n - 1) / BLOCK * BLOCK;

    memcpy(s.y, w->tile[in->x[1]],
           (size_t)dim_count(&in->all, w->n) * sizeof *s.y);
    for (int b = 0; b <= last; b += BLOCK) {
        int at = trans ? last - b : b;
        int m = w->n - at < BLOCK ? w->n - at : BLOCK;
        if (b)
            add_done(&s, at, m, w->n);
        add_own(&s, at, m);
    }
}
