/* mask_probe.c -- a mask in numbers: what factoring claims is checked where
 * it can be counted. */
#include "fold.h"
#include "mask.h"

#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* Where sums go on for ever, tokens repeat. */
enum { PERIOD = 64 };

/* In [0, 1). */
static double noise(const char *name, int64_t t, unsigned draw)
{
    uint64_t h = mix(draw, (uint64_t)t + 77);

    for (; *name; name++)
        h = mix(h, (unsigned char)*name);
    return (double)(mix(h, 1) >> 11) * 0x1p-53;
}

/* Of what tokens add up, where pieces hold by it; 0: any. */
static int sign_of(const Mask *m, const char *name)
{
    for (int n = 0; n < m->g->nin && m->signs; n++)
        if (!strcmp(m->leaf[n].name, name))
            return m->leaf[n].sign;
    return 0;
}

/* Goes up with t, however far, and not beyond 1. */
static double far_sum(int64_t t)
{
    return t < 0 ? 0 : (double)(t + 1) / (double)(t + 1 + PERIOD);
}

static double draw_any(const Mask *m, const char *name, int64_t t,
                       unsigned draw)
{
    double x;

    if (t < -1)
        return 0;
    if (draw > DRAW_FAR && t >= 0)
        t %= PERIOD;
    x = noise(name, t, draw);
    switch (draw) {
    case DRAW_SIGNED: return 2 * x - 1;
    case DRAW_POSITIVE: case DRAW_FAR_POSITIVE: return 0.05 + x;
    case DRAW_FAR: return t > 0 ? x - noise(name, t - 1, draw) : x;
    default: return m->drawn[(int)(draw - DRAW_GIVEN) * m->ndrawn
                             + (int)(x * m->ndrawn)];
    }
}

double mask_draw(const Mask *m, const char *name, int64_t t, unsigned draw)
{
    int sign = sign_of(m, name);

    if (sign && draw == DRAW_FAR)
        return sign * (far_sum(t) - far_sum(t - 1));
    return sign ? sign * fabs(draw_any(m, name, t, draw))
                : draw_any(m, name, t, draw);
}

double mask_cumsum(const Mask *m, const char *name, int64_t t, unsigned draw)
{
    double c = 0, all = 0;

    if (draw == DRAW_FAR && sign_of(m, name))
        return sign_of(m, name) * far_sum(t);
    if (draw == DRAW_FAR)
        return t < 0 ? 0 : noise(name, t, draw);
    if (draw > DRAW_FAR && t >= PERIOD) {
        for (int64_t n = 0; n < PERIOD; n++)
            all += mask_draw(m, name, n, draw);
        all *= (double)(t / PERIOD);
        t %= PERIOD;
    }
    for (int64_t n = 0; n <= t; n++)
        c += mask_draw(m, name, n, draw);
    return all + c;
}

double mask_draw_score(const Mask *m, int64_t i, int64_t j, unsigned draw)
{
    return 8 * mask_draw(m, "a score", (31 * i + j) % 4096, draw);
}

static double leaf_value(const Mask *m, const Leaf *l, int64_t i, int64_t j,
                         unsigned draw)
{
    int64_t t = (l->side == SIDE_I ? i : j) - l->back;

    switch (l->kind) {
    case LEAF_CONSTANT: return mask_draw(m, l->name, -1, draw);
    case LEAF_TOKEN: return t < 0 ? 0 : mask_draw(m, l->name, t, draw);
    case LEAF_CUMSUM: return mask_cumsum(m, l->name, t, draw);
    case LEAF_POSITION: return (double)t;
    case LEAF_SCORE: return mask_draw_score(m, i, j, draw);
    }
    return NAN;
}

double mask_eval(Mask *m, Ref root, const double *leaf)
{
    mask_reach(m, root);
    double *x = m->value;
    for (Ref r = 1; r <= root; r++) {
        const Node *n = &m->g->n[r];
        if (!m->mark[r])
            continue;
        if (n->op == OP_num)
            x[r] = n->num;
        else if (n->op == OP_input)
            x[r] = leaf[n->index];
        else
            x[r] = elem_value(n->op, x[n->a[0]], x[n->a[1]], x[n->a[2]]);
    }
    return x[root];
}

double mask_number(Mask *m, Ref root, int64_t i, int64_t j, unsigned draw)
{
    double leaf[MAX_INPUTS];

    for (int n = 0; n < m->g->nin; n++)
        leaf[n] = leaf_value(m, &m->leaf[n], i, j, draw);
    return mask_eval(m, root, leaf);
}

double mask_at(Mask *m, int64_t i, int64_t j, unsigned draw)
{
    for (int n = 0; n < m->npaths; n++)
        if (region_has(&m->path[n].at, i, j))
            return mask_number(m, m->path[n].value, i, j, draw);
    return NAN;
}

bool mask_score_at(Mask *m, int64_t i, int64_t j, unsigned draw, double *x)
{
    for (int n = 0; n < m->npaths; n++)
        if (region_has(&m->path[n].at, i, j) && m->path[n].score) {
            *x = mask_number(m, m->path[n].score, i, j, draw);
            return true;
        }
    return false;
}

/* Row and column of the largest entry at or beyond (k, k). */
static double largest(const double *a, int rows, int cols, int k, int at[2])
{
    double best = 0;

    for (int r = k; r < rows; r++)
        for (int c = k; c < cols; c++)
            if (fabs(a[r * cols + c]) > best) {
                best = fabs(a[r * cols + c]);
                at[0] = r;
                at[1] = c;
            }
    return best;
}

static void exchange(double *a, double *b, int n, int step)
{
    for (int k = 0; k < n; k++) {
        double t = a[k * step];
        a[k * step] = b[k * step];
        b[k * step] = t;
    }
}

/* The rank of a matrix by rows, by elimination; the matrix is lost. */
static int matrix_rank(double *a, int rows, int cols, double tolerance)
{
    int k, at[2] = { 0, 0 }, n = rows < cols ? rows : cols;
    double scale = largest(a, rows, cols, 0, at);

    for (k = 0; k < n; k++) {
        double p = largest(a, rows, cols, k, at);
        if (p <= tolerance * scale)
            break;
        exchange(a + k * cols, a + at[0] * cols, cols, 1);
        exchange(a + k, a + at[1], rows, cols);
        for (int r = k + 1; r < rows; r++) {
            double f = a[r * cols + k] / a[k * cols + k];
            for (int c = k; c < cols; c++)
                a[r * cols + c] -= f * a[k * cols + c];
        }
    }
    return k;
}

/* ---- the factors, put together again ---- */

static double product_at(Mask *m, const Product *p, int i, int j, unsigned s)
{
    double e;

    if (i - j < p->lo || i - j > p->hi)
        return 0;
    if (p->value)
        return mask_number(m, p->value, i, j, s);
    e = mask_number(m, p->extra, i, i, s);
    for (int n = 0; n < p->ndecays; n++) {
        const Decay *d = &p->decay[n];
        e += mask_number(m, d->w, i, i, s)
            * (mask_number(m, d->u, i, i, s) - mask_number(m, d->u, j, j, s));
    }
    return exp(e) * mask_number(m, p->row, i, i, s)
        * mask_number(m, p->col, j, j, s);
}

enum { PROBE = 20, BLOCK = 8 };

static void probe_values(Mask *m, unsigned seed)
{
    for (int i = 0; i < PROBE; i++)
        for (int j = 0; j <= i; j++) {
            double want = mask_at(m, i, j, seed), got = 0, size = fabs(want);
            for (int n = 0; n < m->nproducts; n++) {
                double x = product_at(m, &m->product[n], i, j, seed);
                got += x;
                size += fabs(x);
            }
            if (isfinite(want) && !(fabs(got - want) <= 1e-9 * size + 1e-30))
                graph_refuse(m->g, ERR_INTERNAL, 0, NULL, "the factors of a "
                             "mask give %g, not %g, at i = %d, j = %d", got,
                             want, i, j);
        }
}

static void probe_rank(Mask *m, unsigned seed)
{
    double a[BLOCK * BLOCK];
    int far = 0, products = 0;

    for (int n = 0; n < m->nproducts; n++) {
        const Product *p = &m->product[n];
        int64_t edge = p->value ? p->hi : p->lo;
        products += !p->value;
        if (edge > far)
            far = (int)edge;
    }
    if (far > PROBE)
        return;
    for (int i = 0; i < BLOCK; i++)
        for (int j = 0; j < BLOCK; j++) {
            a[i * BLOCK + j] = mask_at(m, BLOCK + far + i, j, seed);
            if (!isfinite(a[i * BLOCK + j]))
                return;
        }
    int rank = matrix_rank(a, BLOCK, BLOCK, 1e-9);
    if (rank > products)
        graph_refuse(m->g, ERR_INTERNAL, 0, NULL, "a mask of %d products has "
                     "blocks of rank %d", products, rank);
}

void mask_probe(Mask *m)
{
    for (unsigned seed = 0; seed < 2; seed++) {
        probe_values(m, seed);
        probe_rank(m, seed);
    }
}
