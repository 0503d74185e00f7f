/* gdot.c -- the decayed contraction, without an exponent above zero.
 *
 * exp(c_i - d_j) does not factor in range over a whole chunk. A segment of
 * tokens whose gates lie close together does, about the middle of them. Any
 * other is halved: between its halves, the last token of the first one is an
 * anchor, c_i - anchor <= 0 and anchor - d_j <= 0; each half is a segment. At
 * a single token the anchor is its own d.
 */
#include "tile.h"

#include <string.h>

/* Sums of gates, and what they lose in float; low: NULL, nothing is known of
 * it. */
typedef struct Gates { const float *sum, *low; } Gates;

typedef struct Gdot {
    const Work *w;
    const Instr *in;
    const Isa *isa;
    const float *first, *other;
    Gates c, d;
    float *y;
    int rr, cr, dims, ld;       /* rows, columns a token; score row stride */
    float *anchor, *anchor_low, *lo, *hi, *p, *s, *sum, *scores, *apart,
          *apart_low, *pack;
} Gdot;

int64_t gdot_scratch(const Instr *in, int chunk)
{
    int64_t rows = (int64_t)chunk * in->row_rank;
    int64_t cols = (int64_t)chunk * in->col_rank;

    if (in->kind == GDOT_ANY)
        return 0;
    return (4 + 4 * (rows + cols)) * in->cols + rows * cols + 11 * TILE_SLACK +
           (int64_t)gemm_scratch(in->cols, (int)cols);
}

static float *take(float **at, int64_t n)
{
    float *p = *at;

    *at += (n + 15) / 16 * 16;
    return p;
}

static void carve(Gdot *g)
{
    float *at = g->w->scratch;
    int chunk = g->w->p->chunk, rows = chunk * g->rr, cols = chunk * g->cr;

    g->anchor = take(&at, g->dims);
    g->anchor_low = take(&at, g->dims);
    g->lo = take(&at, g->dims);
    g->hi = take(&at, g->dims);
    g->p = take(&at, (int64_t)rows * g->dims);
    g->s = take(&at, (int64_t)cols * g->dims);
    g->sum = take(&at, (int64_t)(rows > cols ? rows : cols) * g->dims);
    g->scores = take(&at, (int64_t)rows * cols);
    g->apart = take(&at, (int64_t)(rows > cols ? rows : cols) * g->dims);
    g->apart_low = take(&at, (int64_t)(rows > cols ? rows : cols) * g->dims);
    g->pack = at;
}

/* A range of tokens: [i, i + ni) as rows, [j, j + nj) as columns. */
typedef struct Part { int i, ni, j, nj; bool diagonal; } Part;

static Gates gates_at(Gates a, ptrdiff_t at)
{
    return (Gates){ a.sum + at, a.low ? a.low + at : NULL };
}

/* y = a - anchor, or anchor - a for sign < 0, for n rows. */
static void rows_apart(const Gdot *g, float *y, const float *a,
                       const float *anchor, int n, int sign)
{
    const float *up = sign > 0 ? a : anchor, *down = sign > 0 ? anchor : a;
    const ptrdiff_t row = g->dims;

    g->isa->elem[OP_sub](n, g->dims, y, (const float *[]){ up, down, up },
                         (ptrdiff_t[]){ row, sign > 0 ? row : 0,
                                        sign > 0 ? 0 : row, 0 }, 0);
}

/* y = x e^(a - anchor), or x e^(anchor - a) for sign < 0, for n rows. */
static void scale_rows(const Gdot *g, float *y, const float *x, Gates a,
                       int n, int sign)
{
    const ptrdiff_t row = g->dims;

    rows_apart(g, g->apart, a.sum, g->anchor, n, sign);
    if (a.low) {
        rows_apart(g, g->apart_low, a.low, g->anchor_low, n, sign);
        g->isa->add_to(n * g->dims, g->apart, g->apart_low);
    }
    g->isa->elem[FUSED_SCALE](n, g->dims, y, (const float *[]){ x, g->apart,
                              x }, (ptrdiff_t[]){ row, row, row, 0 }, 0);
}

static Gemm product(const Gdot *g, const Part *q)
{
    return (Gemm){ .row_rank = g->rr, .col_rank = g->cr, .pack = g->pack,
                   .m = q->ni * g->rr, .n = g->dims, .k = q->nj * g->cr,
                   .c = g->sum, .crs = g->dims, .acs = 1, .bcs = 1,
                   .ars = g->ld, .brs = g->dims };
}

/* y = p s^T, both of rows of keys. */
static void product_keys(const Gdot *g, Gemm *m, const float *p,
                         const float *s, float *y)
{
    m->a = p;
    m->ars = g->dims;
    m->b = s;
    m->brs = 1;
    m->bcs = g->dims;
    m->n = m->k;
    m->k = g->dims;
    m->c = y;
    m->crs = g->ld;
}

static void part_keys(const Gdot *g, const Part *q)
{
    ptrdiff_t row = (ptrdiff_t)q->i * g->rr, col = (ptrdiff_t)q->j * g->cr;
    ptrdiff_t dims = g->dims;
    Gemm m = product(g, q);

    scale_rows(g, g->p, g->first + row * dims, gates_at(g->c, row * dims),
               m.m, 1);
    scale_rows(g, g->s, g->other + col * dims, gates_at(g->d, col * dims),
               m.k, -1);
    product_keys(g, &m, g->p, g->s, g->y + row * g->ld + col);
    m.tri = q->diagonal ? LOWER_C : TRI_NONE;
    g->isa->gemm(&m);
}

/* The scores of a part; those of a diagonal one with zeros where the mask
 * is. */
static const float *part_scores(const Gdot *g, const Part *q)
{
    const float *from = g->first + (ptrdiff_t)q->i * g->rr * g->ld +
                        (ptrdiff_t)q->j * g->cr;
    bool strict = g->in->flags & STRICT;

    if (!q->diagonal)
        return from;
    for (int r = 0; r < q->ni * g->rr; r++) {
        float *to = g->scores + (ptrdiff_t)r * g->ld;
        size_t some = (size_t)((r / g->rr + !strict) * g->cr);
        memcpy(to, from + (ptrdiff_t)r * g->ld, some * sizeof *to);
        memset(to + some, 0,
               ((size_t)(q->nj * g->cr) - some) * sizeof *to);
    }
    return g->scores;
}

/* y += sum * e^..., for n rows. */
static void add_scaled(const Gdot *g, float *y, Gates a, int n,
                       int sign)
{
    scale_rows(g, g->p, g->sum, a, n, sign);
    g->isa->add_to(n * g->dims, y, g->p);
}

static void part_cols(const Gdot *g, const Part *q)
{
    ptrdiff_t row = (ptrdiff_t)q->i * g->rr * g->dims;
    ptrdiff_t col = (ptrdiff_t)q->j * g->cr * g->dims;
    Gemm m = product(g, q);

    scale_rows(g, g->s, g->other + col, gates_at(g->d, col), m.k, -1);
    m.a = part_scores(g, q);
    m.b = g->s;
    m.tri = q->diagonal ? LOWER_A : TRI_NONE;
    g->isa->gemm(&m);
    add_scaled(g, g->y + row, gates_at(g->c, row), m.m, 1);
}

static void part_rows(const Gdot *g, const Part *q)
{
    ptrdiff_t row = (ptrdiff_t)q->i * g->rr * g->dims;
    ptrdiff_t col = (ptrdiff_t)q->j * g->cr * g->dims;
    Gemm m = product(g, q);

    m.m = q->nj * g->cr;
    m.k = q->ni * g->rr;
    scale_rows(g, g->p, g->other + row, gates_at(g->c, row), m.k, 1);
    m.a = part_scores(g, q);
    m.ars = 1;
    m.acs = g->ld;
    m.b = g->p;
    m.row_rank = g->cr;
    m.col_rank = g->rr;
    m.tri = q->diagonal ? UPPER_A : TRI_NONE;
    g->isa->gemm(&m);
    scale_rows(g, g->s, g->sum, gates_at(g->d, col), m.m, -1);
    g->isa->add_to(m.m * g->dims, g->y + col, g->s);
}

static void run_part(const Gdot *g, const Part *q)
{
    switch ((enum GdotKind)g->in->kind) {
    case GDOT_KEYS: part_keys(g, q); break;
    case GDOT_COLS: part_cols(g, q); break;
    case GDOT_ROWS: part_rows(g, q); break;
    case GDOT_ANY: break;
    }
}

/* Whether the gates of tokens [from, to) lie close; the anchor is then their
 * middle. */
static bool close_gates(const Gdot *g, int from, int to)
{
    bool close = true;

    memcpy(g->lo, g->d.sum + (ptrdiff_t)from * g->cr * g->dims,
           (size_t)g->dims * sizeof *g->lo);
    memcpy(g->hi, g->lo, (size_t)g->dims * sizeof *g->hi);
    g->isa->min_max((to - from) * g->rr, g->dims, g->lo, g->hi,
                    g->c.sum + (ptrdiff_t)from * g->rr * g->dims);
    if (g->c.sum != g->d.sum)
        g->isa->min_max((to - from) * g->cr, g->dims, g->lo, g->hi,
                        g->d.sum + (ptrdiff_t)from * g->cr * g->dims);
    for (int k = 0; k < g->dims; k++) {
        close &= g->hi[k] - g->lo[k] < CLOSE_GATES;
        g->anchor[k] = 0.5f * (g->hi[k] + g->lo[k]);
        g->anchor_low[k] = 0;
    }
    return close;
}

static void anchor_at(const Gdot *g, int token)
{
    ptrdiff_t at = ((ptrdiff_t)(token + 1) * g->cr - 1) * g->dims;
    size_t bytes = (size_t)g->dims * sizeof *g->anchor;

    memcpy(g->anchor, g->d.sum + at, bytes);
    if (g->d.low)
        memcpy(g->anchor_low, g->d.low + at, bytes);
    else
        memset(g->anchor_low, 0, bytes);
}

static void segment(const Gdot *g, int from, int to)
{
    int len = to - from, mid = from + len / 2;
    bool close = close_gates(g, from, to);

    if (len == 1 && g->in->flags & STRICT)
        return;
    if (close || len == 1) {
        if (!close)
            anchor_at(g, from);
        run_part(g, &(Part){ from, len, from, len, true });
        return;
    }
    if (len > 16)
        mid = from + (len / 2 + 15) / 16 * 16;
    anchor_at(g, mid - 1);
    run_part(g, &(Part){ mid, to - mid, from, mid - from, false });
    segment(g, from, mid);
    segment(g, mid, to);
}

/* Pair by pair of tokens, whatever the axes. */
static void any_axes(const Work *w, const Instr *in)
{
    static const float zero[1] = { 0 };
    const float *x[4], *low[2];
    float *y = w->tile[in->y];

    for (int p = 0; p < 4; p++)
        x[p] = w->tile[in->x[p]];
    for (int p = 0; p < 2; p++)
        low[p] = in->x[7 + p] < 0 ? NULL : w->tile[in->x[7 + p]];
    for (int i = 0; i < w->n; i++)
        for (int j = 0; j <= i - !!(in->flags & STRICT); j++) {
            Turn t = turn_first(&in->loop, 0, w->n);
            int64_t off[5];
            for (int p = 0; p < 5; p++)
                off[p] = (int64_t)i * in->m.st[p] + (int64_t)j * in->n.st[p];
            do {
                int64_t c = off[3] + t.off[3], d = off[4] + t.off[4];
                float e, apart = (x[2][c] - x[3][d])
                               + ((low[0] ? low[0][c] : 0)
                                  - (low[1] ? low[1][d] : 0));
                w->p->isa->outer_exp(1, 1, &e, 0, &apart, zero);
                y[off[0] + t.off[0]] += e * x[0][off[1] + t.off[1]] *
                                        x[1][off[2] + t.off[2]];
            } while (turn_next(&t));
        }
}

/* Whether e^x stays in range with the gates x, and one over it. */
static bool small_gates(const Gdot *g, const float *last)
{
    bool small = true;

    for (int k = 0; k < g->dims; k++)
        small &= g->lo[k] > -CLOSE_GATES && g->hi[k] < CLOSE_GATES
              && last[k] > -CLOSE_GATES && last[k] < CLOSE_GATES;
    return small;
}

/* All tokens, by the factors at hand: a e^c times b e^(last - d) e^-last. */
static bool run_factors(const Gdot *g)
{
    const int *x = g->in->x;
    const Work *w = g->w;
    const float one = 1, zero = 0, *last, *scaled;
    const ptrdiff_t st[4] = { g->dims, g->dims };

    if (x[4] < 0 || !close_gates(g, 0, w->n)
        || !small_gates(g, last = w->tile[x[6]]))
        return false;
    scaled = w->tile[x[4]];
    Gemm m = product(g, &(Part){ 0, w->n, 0, w->n, true });
    g->isa->elem[FUSED_DECAY](1, g->dims, g->anchor, (const float *[]){
                              &one, &zero, last }, st, 3);
    g->isa->elem[OP_mul](m.m, g->dims, g->p, (const float *[]){
                         scaled, g->anchor, scaled }, st, 0);
    product_keys(g, &m, g->p, w->tile[x[5]], g->y);
    m.tri = LOWER_C;
    g->isa->gemm(&m);
    return true;
}

static Gates gates_of(const Work *w, const Instr *in, int side)
{
    int low = in->x[7 + side];

    return (Gates){ w->tile[in->x[2 + side]], low < 0 ? NULL : w->tile[low] };
}

/* Exact zeros above the diagonal (STRICT: on it, too) for tokens [from, to);
 * y is the first row of them. */
void cut_rows(const Work *w, const Instr *in, int from, int to, float *y)
{
    int32_t d = in->code == I_GDOT ? 1 : in->cols, col = in->col_rank * d;
    int32_t row = w->p->chunk * col;
    int first = (from + !(in->flags & STRICT)) * col;

    if (in->row_rank == 1) {
        w->p->isa->cut(to - from, w->n * col, y, row, first, col);
        return;
    }
    for (; from < to; from++, first += col, y += row * in->row_rank)
        w->p->isa->cut(in->row_rank, w->n * col, y, row, first, 0);
}

void run_gdot(const Work *w, const Instr *in)
{
    bool swap = in->flags & TRANS;
    Gdot g = { .w = w, .in = in, .isa = w->p->isa, .y = w->tile[in->y],
               .first = w->tile[in->x[swap]], .other = w->tile[in->x[!swap]],
               .c = gates_of(w, in, 0), .d = gates_of(w, in, 1),
               .rr = in->row_rank, .cr = in->col_rank, .dims = in->cols };

    if (in->kind != GDOT_KEYS)
        memset(g.y, 0, (size_t)dim_count(&in->all, w->n) * sizeof *g.y);
    if (in->kind == GDOT_ANY) {
        any_axes(w, in);
        return;
    }
    g.ld = w->p->chunk * g.cr;
    carve(&g);
    if (!run_factors(&g))
        segment(&g, 0, w->n);
    if (in->kind == GDOT_KEYS)
        cut_rows(w, in, 0, w->n, g.y);
}
