/* run.c -- what the instructions do, but for decayed ones and the solve. */
#include "tile.h"

#include "../../compiler/elem.h"

#include <string.h>

static void clear(const Work *w, const Instr *in, float *y)
{
    memset(y, 0, (size_t)dim_count(&in->all, w->n) * sizeof *y);
}

/* ---- element-wise ---- */

/* Entries [from, from + rows) of the leading axis, of `all`. */
static void run_strip(const Work *w, const Instr *in, int from, int rows,
                      int all)
{
    const Loop *l = &in->loop;
    Turn t = turn_first(l, 2, w->n);
    ElemFn *f = w->p->isa->elem[in->op];
    float *y = w->tile[in->y];
    const float *x[3];
    ptrdiff_t st[4] = { 0 };
    int len = 1, nrows = 1, scalar = 0;

    if (!(in->local & 1))
        y += (ptrdiff_t)from * in->m.st[0];
    for (int p = 0; p < 3; p++) {
        x[p] = w->tile[in->x[p] < 0 ? in->x[0] : in->x[p]];
        if (!(in->local & 2 << p))
            x[p] += (ptrdiff_t)from * in->m.st[p + 1];
    }
    if (rows != all)
        t.count[0] = rows * (l->d[0].size / in->m.size);
    if (l->n > 0)
        len = t.count[l->n - 1];
    if (l->n > 1)
        nrows = t.count[l->n - 2];
    for (int p = 0; p < 4; p++) {
        st[p] = l->n > 1 ? l->d[l->n - 2].st[p] : 0;
        if (p && p <= in->arity && l->n
            && l->d[l->n - 1].st[p] == 0)
            scalar |= 1 << (p - 1);
    }
    do {
        const float *q[3] = { x[0] + t.off[1], x[1] + t.off[2],
                              x[2] + t.off[3] };
        f(nrows, len, y + t.off[0], q, st, scalar);
    } while (turn_next(&t));
    if (in->mask_upper)
        cut_rows(w, in, from, from + rows, y);
}

static void run_chain(const Work *w, const Instr *in)
{
    int all = dim_count(&in->m, w->n);
    int rows = in->from ? in->from : all;

    for (int at = 0; at < all; at += rows)
        for (int c = 0; c < in->chain; c++)
            run_strip(w, in + c, at, all - at < rows ? all - at : rows, all);
}

/* ---- moves ---- */

static void run_move(const Work *w, const Instr *in)
{
    Turn t = turn_first(&in->loop, 1, w->n);
    const Dim *d = in->loop.n ? &in->loop.d[in->loop.n - 1] : NULL;
    int32_t len = d ? dim_count(d, w->n) : 1;
    int32_t ys = d ? d->st[0] : 1, xs = d ? d->st[1] : 1;
    float *y = w->tile[in->y] + in->to;
    const float *x = w->tile[in->x[0]] + in->from
                   + (ptrdiff_t)(w->n - 1) * in->k.st[1];

    do {
        float *to = y + t.off[0];
        const float *from = x + t.off[1];
        if (ys == 1 && xs == 1)
            memcpy(to, from, (size_t)len * sizeof *to);
        else
            for (int32_t i = 0; i < len; i++)
                to[i * ys] = from[i * xs];
    } while (turn_next(&t));
}

/* Entries k to `end` of y, `step` apart, from those of a, of which there are
 * `len`, and zeros behind; `whole`: none of these are read. */
static inline void put_entries(const Instr *n, float *y, int32_t step,
                               const float *a, int32_t k, int32_t end,
                               bool whole)
{
    int32_t st = n->k.st[1], len = n->k.size;

    switch (n->op) {
#define x(at) (whole || (at) < len ? a[(at) * st] : 0)
#define ENTRY(value) (float)(value)
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    case OP_##name: \
        for (; k < end; k++) \
            y[k * step] = value; \
        break;
#include "../../compiler/ops.def"
#undef x
    }
}

static void run_entries(const Work *w, const Instr *in)
{
    put_entries(in, w->tile[in->y], 1, NULL, 0, dim_count(&in->all, w->n),
                true);
}

/* Of two entries of y, or two of x, for each one of the other; or of as many,
 * by pairs. */
static void run_pairs(const Work *w, const Instr *in)
{
    Turn t = turn_first(&in->loop, 0, w->n);
    int32_t m = in->m.size, step = in->m.st[0];
    int32_t whole = (m < 2 * in->k.size ? m : 2 * in->k.size) / 2 * 2;

    do {
        float *y = w->tile[in->y] + t.off[0];
        const float *x = w->tile[in->x[0]] + t.off[1];
        put_entries(in, y, step, x, 0, whole, true);
        put_entries(in, y, step, x, whole, m, false);
    } while (turn_next(&t));
}

/* The largest; NaN where one is. */
static void run_most(const Work *w, const Instr *in)
{
    Turn t = turn_first(&in->loop, 1, w->n);
    const Dim *d = in->loop.n ? &in->loop.d[in->loop.n - 1] : NULL;
    int32_t len = d ? dim_count(d, w->n) : 1;
    int32_t ys = d ? d->st[0] : 1, xs = d ? d->st[1] : 1;

    for (int32_t i = 0; i < dim_count(&in->all, w->n); i++)
        w->tile[in->y][i] = -INFINITY;
    do {
        float *y = w->tile[in->y] + t.off[0];
        const float *x = w->tile[in->x[0]] + t.off[1];
        for (int32_t i = 0; i < len; i++)
            if (!(x[i * xs] <= y[i * ys]) && !isnan(y[i * ys]))
                y[i * ys] = x[i * xs];
    } while (turn_next(&t));
}

static void run_sum(const Work *w, const Instr *in)
{
    const Isa *isa = w->p->isa;
    Turn t = turn_first(&in->loop, 1, w->n);
    const Dim *d = in->loop.n ? &in->loop.d[in->loop.n - 1] : NULL;
    int32_t len = d ? dim_count(d, w->n) : 1;
    int32_t ys = d ? d->st[0] : 1, xs = d ? d->st[1] : 1;

    clear(w, in, w->tile[in->y]);
    do {
        float *y = w->tile[in->y] + t.off[0];
        const float *x = w->tile[in->x[0]] + t.off[1];
        if (ys == 0 && xs == 1)
            *y += isa->row_sum(len, x);
        else if (ys == 1 && xs == 1)
            isa->add_to(len, y, x);
        else
            for (int32_t i = 0; i < len; i++)
                y[i * ys] += x[i * xs];
    } while (turn_next(&t));
}

/* ---- contractions ---- */

static void dot_gemm(const Work *w, const Instr *in, float *y, const float *a,
                     const float *b)
{
    Turn t = turn_first(&in->loop, 0, w->n);
    Gemm g = {
        .m = dim_count(&in->m, w->n), .n = dim_count(&in->n, w->n),
        .k = dim_count(&in->k, w->n), .ars = in->m.st[1], .acs = in->k.st[1],
        .brs = in->k.st[2], .bcs = in->n.st[2], .crs = in->m.st[0],
        .mode = in->into, .tri = in->tri, .row_rank = in->row_rank,
        .col_rank = in->col_rank, .pack = w->scratch
    };

    if (in->into && in->x[2] != in->y)
        memcpy(y, w->tile[in->x[2]],
               (size_t)dim_count(&in->all, w->n) * sizeof *y);
    if (in->adds && !in->into) {
        clear(w, in, y);
        g.mode = GEMM_ADD;
    }
    if (g.n == 1)
        g.bcs = 1;
    do {
        g.c = y + t.off[0];
        g.a = a + t.off[1];
        g.b = b + t.off[2];
        w->p->isa->gemm(&g);
    } while (turn_next(&t));
}

static void dot_rows(const Work *w, const Instr *in, float *y, const float *a,
                     const float *b)
{
    Turn t = turn_first(&in->loop, 0, w->n);
    int rows = dim_count(&in->m, w->n), len = dim_count(&in->k, w->n);

    do {
        w->p->isa->row_dot(rows, len, y + t.off[0], in->m.st[0],
                           a + t.off[1], in->m.st[1], b + t.off[2],
                           in->m.st[2]);
    } while (turn_next(&t));
}

static void dot_lanes(const Work *w, const Instr *in, float *y,
                      const float *a, const float *b)
{
    Turn t = turn_first(&in->loop, 1, w->n);
    const Dim *d = &in->loop.d[in->loop.n - 1];
    int32_t len = dim_count(d, w->n);

    clear(w, in, y);
    do {
        float *to = y + t.off[0];
        const float *p = a + t.off[1], *q = b + t.off[2];
        if (in->kind == DOT_LANES)
            w->p->isa->mul_add(len, to, p, q);
        else
            for (int32_t i = 0; i < len; i++)
                to[i * d->st[0]] += p[i * d->st[1]] * q[i * d->st[2]];
    } while (turn_next(&t));
}

static void run_dot(const Work *w, const Instr *in)
{
    bool swap = in->flags & TRANS;
    float *y = w->tile[in->y];
    const float *a = w->tile[in->x[swap]], *b = w->tile[in->x[!swap]];

    switch ((enum DotKind)in->kind) {
    case DOT_GEMM: dot_gemm(w, in, y, a, b); break;
    case DOT_ROWS: dot_rows(w, in, y, a, b); break;
    case DOT_LANES: case DOT_ANY: dot_lanes(w, in, y, a, b); break;
    }
}

/* ---- along the tokens ---- */

static void run_delay(const Work *w, const Instr *in)
{
    size_t row = (size_t)in->cols, rest = (size_t)(w->n - 1) * row;
    bool back = in->flags & REVERSE;
    float *y = w->tile[in->y];
    const float *x = w->tile[in->x[0]];

    memcpy(y + (back ? rest : 0), w->tile[in->x[1]], row * sizeof *y);
    memcpy(y + (back ? 0 : row), x + (back ? row : 0), rest * sizeof *y);
}

/* One row; wide: b in double. */
static void scan_row(const Instr *in, double *s, float *y, const float *a,
                     const float *b, const double *wide)
{
    for (int32_t i = 0; i < in->cols; i++) {
        s[i] = next_value(in->op, s[i], a, a ? (double)a[i] : 0,
                          wide ? wide[i] : (double)b[i]);
        y[i] = (float)(in->flags & WRAP ? wrap_(s[i]) : s[i]);
    }
}

/* The increments of the row at `at`, in double, if they are to be had. */
static const double *wide_row(const Work *w, const Instr *in, ptrdiff_t at)
{
    const float *leaf[INCREMENT_LEAVES];

    if (!in->increment)
        return NULL;
    for (int i = 0; i < INCREMENT_LEAVES; i++)
        leaf[i] = in->x[3 + i] < 0 ? NULL : w->tile[in->x[3 + i]];
    return run_increment(in->increment, leaf, at, in->cols,
                         (double *)w->scratch + in->cols);
}

/* What float loses of the sums. */
static void run_low(const Work *w, const Instr *in)
{
    double *s = (double *)w->scratch;
    const float *a = w->tile[in->x[0]];
    float *y = w->tile[in->y];

    for (int32_t c = 0; c < in->cols; c++)
        s[c] = 0;
    for (int i = 0; i < w->n; i++, a += in->cols, y += in->cols)
        for (int32_t c = 0; c < in->cols; c++) {
            double next = s[c] + (double)a[c];
            double sum = in->flags & EXCLUSIVE ? s[c] : next;
            y[c] = (float)(sum - (double)(float)sum);
            s[c] = next;
        }
}

static void run_scan(const Work *w, const Instr *in)
{
    const Isa *isa = w->p->isa;
    bool back = in->flags & REVERSE, sum = in->kind == SCAN_RUNNING;
    ptrdiff_t first = back ? (w->n - 1) * (ptrdiff_t)in->cols : 0;
    ptrdiff_t st = back ? -in->cols : in->cols;
    double *s = in->wide >= 0 ? w->wide + w->k->wide_at[in->wide]
                              : (double *)w->scratch;
    float *y = w->tile[in->y] + first;
    const float *a = in->x[0] < 0 ? NULL : w->tile[in->x[0]] + first;
    const float *b = sum ? a : w->tile[in->x[1]] + first;

    for (int32_t i = 0; i < in->cols && in->wide < 0; i++)
        s[i] = sum ? 0 : (double)w->tile[in->x[2]][i];
    if (sum || in->kind == SCAN_SUM)
        isa->cumsum(w->n, in->cols, st, in->flags & EXCLUSIVE, s, y, b);
    else if (in->kind == SCAN_GATED)
        isa->scan(w->n, in->cols, st, s, y, a, b);
    else
        for (int i = 0; i < w->n; i++)
            scan_row(in, s, y + i * st, a ? a + i * st : NULL, b + i * st,
                     wide_row(w, in, first + i * st));
}

/* From a row's groups to the next's: of in->kind, by the matrix's transpose. */
static void matrix_row(const Instr *in, const double *s, double *to,
                       const float *matrix, const float *b)
{
    int n = in->row_rank, apart = in->col_rank;

    for (int32_t c = 0; c < in->cols; c++) {
        int m = c / apart % n, first = c - m * apart;
        const float *a = matrix + c / n % in->to * (n * n);
        double x = (double)b[c];
        for (int k = 0; k < n; k++)
            x += (double)a[in->kind ? k * n + m : m * n + k]
               * s[first + k * apart];
        to[c] = x;
    }
}

static void run_matscan(const Work *w, const Instr *in)
{
    bool back = in->flags & REVERSE;
    double *s = (double *)w->scratch, *to = s + in->cols;
    int each = in->row_rank * in->row_rank * in->to;

    for (int32_t c = 0; c < in->cols; c++)
        s[c] = (double)w->tile[in->x[2]][c];
    for (int k = 0; k < w->n; k++) {
        ptrdiff_t i = back ? w->n - 1 - k : k;
        matrix_row(in, s, to, w->tile[in->x[0]] + i * each,
                   w->tile[in->x[1]] + i * in->cols);
        for (int32_t c = 0; c < in->cols; c++) {
            s[c] = to[c];
            w->tile[in->y][i * in->cols + c] = (float)to[c];
        }
    }
}

/* p = e^(a - middle), s = e^(middle - b) of gates that lie close together. */
static bool factor_gates(const Work *w, const Instr *in, float *p, float *s)
{
    const Isa *isa = w->p->isa;
    int rows = w->n * in->row_rank, cols = w->n * in->col_rank;
    const float *a = w->tile[in->x[0]], *b = w->tile[in->x[1]];
    const ptrdiff_t st[4] = { 0 };
    float lo = *a, hi = *a, middle;

    for (int r = 0; r < rows; r++) {
        lo = a[r] < lo ? a[r] : lo;
        hi = a[r] > hi ? a[r] : hi;
    }
    for (int r = 0; r < cols; r++) {
        lo = b[r] < lo ? b[r] : lo;
        hi = b[r] > hi ? b[r] : hi;
    }
    if (!(lo > -CLOSE_GATES && hi < CLOSE_GATES && hi - lo < CLOSE_GATES))
        return false;
    middle = 0.5f * (lo + hi);
    isa->elem[OP_sub](1, rows, s, (const float *[]){ a, &middle, a }, st, 2);
    isa->elem[OP_exp](1, rows, p, (const float *[]){ s, s, s }, st, 0);
    isa->outer_exp(1, cols, s, 0, &middle, b);
    return true;
}

/* y[x] = e^(a - b) of `some` columns for a row's gates: d of them, or one. */
static void decay_row(const Work *w, const Instr *in, int row, int32_t some,
                      float *y, float *scratch)
{
    int32_t d = in->cols;
    const float zero = 0, *b = w->tile[in->x[1]];
    const float *a = w->tile[in->x[0]] + (ptrdiff_t)row * d;
    const float *al = in->x[2] < 0 ? NULL : w->tile[in->x[2]] + (a
                    - w->tile[in->x[0]]);
    const float *bl = in->x[3] < 0 ? NULL : w->tile[in->x[3]];

    for (int32_t x = 0; x < some; x++) {
        int32_t at = d > 1 ? x % d : 0;
        float low = (bl ? bl[x] : 0) - (al ? al[at] : 0);
        scratch[x] = (b[x] - a[at]) + low;
    }
    w->p->isa->outer_exp(1, some, y, 0, &zero, scratch);
}

/* Above the diagonal an exponent may be anything: what is computed there,
 * since vectors are whole, is cut off. */
static void run_dmask(const Work *w, const Instr *in)
{
    const Isa *isa = w->p->isa;
    int32_t d = in->cols, col = in->col_rank * d, row = w->p->chunk * col;
    const float *a = in->x[0] < 0 ? NULL : w->tile[in->x[0]];
    int rows = w->n * in->row_rank, wide = w->n * col;
    float *y = w->tile[in->y], *p = w->scratch;
    float *s = p + (w->p->chunk * (in->row_rank + in->col_rank) + 15) / 16 * 16;

    if (!a) {
        for (int64_t x = 0; x < (int64_t)rows * row; x++)
            y[x] = 1;
    } else if (d == 1 && factor_gates(w, in, p, s)) {
        isa->outer(rows, wide, y, row, p, s);
    } else {
        for (int r = 0; r < rows; r++)
            decay_row(w, in, r, (r / in->row_rank + 1) * col,
                      y + (ptrdiff_t)r * row, p);
    }
    if (in->kind)                       /* of rows, not of tokens */
        isa->cut(rows, wide, y, row, 0, d);
    else
        cut_rows(w, in, 0, w->n, y);
}

/* ---- all of them ---- */

static float *stored_tile(const Work *w, const Instr *in)
{
    return w->stored + w->p->stored_at[in->index];
}

static void run_stored(Work *w, const Instr *in)
{
    size_t count = (size_t)dim_count(&in->all, w->n);
    float *kept = stored_tile(w, in);

    if (in->code == I_KEEP)
        memcpy(kept, w->tile[in->x[0]], count * sizeof *kept);
    else
        memcpy(w->tile[in->y], kept, count * sizeof *kept);
    w->bytes += (int64_t)(count * sizeof *kept);
}

static void run_instr(Work *w, const Instr *in)
{
    switch ((enum Code)in->code) {
    case I_CONST: *w->tile[in->y] = (float)in->num; break;
    case I_ENTRIES: run_entries(w, in); break;
    case I_LOAD: load_input(w, in->index, in->y); break;
    case I_FETCH: case I_KEEP: run_stored(w, in); break;
    case I_OUT: store_output(w, in->index, w->tile[in->x[0]]); break;
    case I_ELEM: run_chain(w, in); break;
    case I_MOVE: run_move(w, in); break;
    case I_PAIRS: run_pairs(w, in); break;
    case I_SUM: run_sum(w, in); break;
    case I_MOST: run_most(w, in); break;
    case I_DOT: run_dot(w, in); break;
    case I_SCAN: (in->low ? run_low : run_scan)(w, in); break;
    case I_MATSCAN: run_matscan(w, in); break;
    case I_DELAY: run_delay(w, in); break;
    case I_DMASK: run_dmask(w, in); break;
    case I_GDOT: run_gdot(w, in); break;
    case I_SOLVE: run_solve(w, in); break;
    case I_GSOLVE: run_gsolve(w, in); break;
    }
}

void run_list(Work *w, const Instr *in, int n)
{
    for (int i = 0; i < n; i += in[i].code == I_ELEM ? in[i].chain : 1)
        run_instr(w, &in[i]);
}
