/* moves.c -- moves of whole tensors on a GPU are what they are entry by entry:
 * of any order, summed or added, of each type, far from where they begin; and
 * so are products, of rows any way apart.
 */
#include "../../backend/cuda/dense.h"
#include "../../backend/cuda/driver.h"
#include "expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 16, LARGE = 20000, CASES = 400, BYTES = 8 * ROOM,
       SEVERAL = 9 };                   /* moves at once */

typedef struct Test {
    Ctx *c;
    Gpu *g;
    const Driver *d;
    DevicePtr to, from, more[SEVERAL];
    char was[BYTES], at[BYTES], source[BYTES];
    double sum[ROOM];
    bool is[ROOM];
} Test;

static uint32_t state = 1;
static int any(int n)
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (uint32_t)n);
}

/* Small whole numbers: sums are the same in any order. */
static double entry(const char *p, DType type, int64_t i)
{
    uint32_t u = type == BF16 ? (uint32_t)((const uint16_t *)p)[i] << 16 : 0;
    float x;

    memcpy(&x, &u, sizeof x);
    return type == BF16 ? x : type == F32 ? ((const float *)p)[i]
                                          : ((const double *)p)[i];
}

static void fill(char *p, DType type)
{
    for (int i = 0; i < ROOM; i++) {
        float x = (float)(any(9) - 4);
        uint32_t u;
        memcpy(&u, &x, sizeof u);
        if (type == BF16)
            ((uint16_t *)p)[i] = (uint16_t)(u >> 16);
        else if (type == F32)
            ((float *)p)[i] = x;
        else
            ((double *)p)[i] = x;
    }
}

/* Dimensions in any order in the result, some of them summed; gaps. False: it
 * would not fit. */
static bool any_move(DenseMove *made)
{
    static const int64_t size[] = { 1, 2, 3, 4, 5, 8, 12, 33, 64, 700 };
    static const DType types[] = { F32, BF16, F64 };
    DenseMove m = { .to_type = types[any(3)], .from_type = types[any(3)],
                    .add = any(3) == 0, .rank = any(5) };
    int64_t all = 1, step = 1;
    int order[4];

    for (int i = 0; i < m.rank; i++) {
        m.n[i] = size[any(10)];
        m.n[i] = all * m.n[i] > LARGE ? 1 : m.n[i];
        all *= m.n[i];
        m.fs[i] = any(8) ? step : 0;
        step = step * m.n[i] + (any(6) ? 0 : 4);
        int at = any(i + 1);
        memmove(order + at + 1, order + at, (size_t)(i - at) * sizeof *order);
        order[at] = i;
    }
    int64_t most = step;
    step = 1;
    for (int i = 0; i < m.rank; i++)
        if (any(3)) {
            m.ts[order[i]] = step;
            step = step * m.n[order[i]] + (any(6) ? 0 : 4);
        }
    *made = m;
    return most < ROOM && step < ROOM;
}

static void sum_all(Test *k, const DenseMove *m)
{
    int64_t all = 1;

    memset(k->sum, 0, sizeof k->sum);
    memset(k->is, 0, sizeof k->is);
    for (int i = 0; i < m->rank; i++)
        all *= m->n[i];
    for (int64_t x = 0; x < all; x++) {
        int64_t left = x, from = 0, to = 0;
        for (int i = 0; i < m->rank; left /= m->n[i++]) {
            from += left % m->n[i] * m->fs[i];
            to += left % m->n[i] * m->ts[i];
        }
        k->sum[to] += entry(k->source, m->from_type, from);
        k->is[to] = true;
    }
}

static bool is_right(Test *k, const DenseMove *m, int offset)
{
    bool ok = true;

    sum_all(k, m);
    for (int i = 0; i < ROOM - 1; i++) {
        double was = entry(k->was, m->to_type, i + offset);
        double want = !k->is[i] ? was : k->sum[i] + (m->add ? was : 0);
        double off = fabs(entry(k->at, m->to_type, i + offset) - want);
        double may = m->to_type == BF16 && k->is[i] ? fabs(want) / 256 : 0;
        ok = ok && off <= may;
    }
    return ok;
}

static void one(Test *k)
{
    DenseMove m;
    while (!any_move(&m))
        ;
    int offset = any(3) == 0;           /* no four numbers lie evenly */

    fill(k->source, m.from_type);
    fill(k->was, m.to_type);
    m.to = k->to + (DevicePtr)(offset * dtype_size(m.to_type));
    m.from = k->from;
    device_put(k->c, k->d, k->from, k->source, BYTES);
    device_put(k->c, k->d, k->to, k->was, BYTES);
    dense_move(k->c, k->g, NULL, &m);
    device_get(k->c, k->d, k->at, k->to, BYTES);
    expect(is_right(k, &m, offset), ctx_format(k->c, "%d dimensions, type %d "
           "to %d%s", m.rank, m.from_type, m.to_type, m.add ? ", added" : ""));
}

/* Sums of rows of `each`, of so many columns. */
static DenseMove columns(int each, int n)
{
    return (DenseMove){ .to_type = any(2) ? F32 : BF16, .from_type = F32,
                        .add = any(2), .rank = 2, .n = { each, n },
                        .ts = { 0, 1 }, .fs = { n, 1 } };
}

/* Of one source, each to a place of its own: as one kernel, or as two where
 * some are sums. */
static void several(Test *k)
{
    DenseMove m[SEVERAL];
    uint32_t was[SEVERAL];              /* what fills their places */
    int n = 2 + any(SEVERAL - 1), from = any(2) ? F32 : BF16;

    for (int i = 0; i < n; i++)
        do
            if (from == F32 && any(2))
                m[i] = columns(16 + any(40), 1 + any(1200));
            else
                while (!any_move(&m[i]))
                    ;
        while (m[i].from_type != (DType)from);
    for (int i = 0; i < n; i++)
        m[i].from = k->from;
    fill(k->source, (DType)from);
    device_put(k->c, k->d, k->from, k->source, BYTES);
    for (int i = 0; i < n; i++) {
        was[i] = state;
        fill(k->was, m[i].to_type);
        m[i].to = k->more[i];
        device_put(k->c, k->d, k->more[i], k->was, BYTES);
    }
    dense_moves(k->c, k->g, NULL, m, n);
    for (int i = 0; i < n; i++) {
        uint32_t now = state;
        state = was[i];
        fill(k->was, m[i].to_type);
        state = now;
        device_get(k->c, k->d, k->at, k->more[i], BYTES);
        expect(is_right(k, &m[i], 0), ctx_format(k->c, "move %d of %d at once,"
               " %d dimensions, type %d to %d%s", i, n, m[i].rank, from,
               m[i].to_type, m[i].add ? ", added" : ""));
    }
}

static void open_gpu(Ctx *c, void *ud)
{
    Test *k = ud;

    k->d = gpu_enter(c, k->g);
    dense_prepare(c, k->g);
}

/* ---- products ---- */

/* Rows apart: as they are long, further, or all the same. */
static int64_t any_apart(int64_t n)
{
    return any(3) ? n + 8 * any(2) : 0;
}

/* Of rows and columns in any strides c = a b, or plus + a b. */
static void one_product(Test *k)
{
    enum { EACH = 1024 };
    const int M = any(4) ? 6 : 1, N = any(4) ? 8 : 1, K = any(4) ? 16 : 1;
    const bool adds = any(3) > 0, turned = any(2);
    DenseProduct p = {
        .m = M, .n = N, .k = K, .batch = 1, .a = k->from,
        .b = k->from + 4 * EACH, .plus = adds ? k->from + 8 * EACH : 0,
        .c = k->to, .acs = 1, .crs = N, .type = F32, .result = F32,
        .ars = any_apart(K), .prs = any_apart(N),
        .bcs = turned ? any_apart(K) : 1, .brs = turned ? 1 : any_apart(N) };
    const float *a = (const float *)k->source, *b = a + EACH, *plus = b + EACH;
    bool ok = true;

    fill(k->source, F32);
    device_put(k->c, k->d, k->from, k->source, 3 * 4 * EACH);
    int64_t bytes = dense_room(k->c, k->g, &p);
    DevicePtr room = device_alloc(k->c, k->d, (size_t)bytes + 256);
    dense_product(k->c, k->g, NULL, &p, room, bytes);
    device_free(k->d, room);
    device_get(k->c, k->d, k->at, k->to, (size_t)(M * N) * 4);
    for (int i = 0; i < M * N; i++) {
        float sum = adds ? plus[i / N * p.prs + i % N] : 0;
        for (int j = 0; j < K; j++)
            sum += a[i / N * p.ars + j] * b[j * p.brs + i % N * p.bcs];
        ok &= ((const float *)k->at)[i] == sum;
    }
    expect(ok, ctx_format(k->c, "a product of rows %d, %d x %d, onto %d apart",
                          (int)p.ars, (int)p.brs, (int)p.bcs,
                          adds ? (int)p.prs : -1));
}

static void run(Ctx *c, void *ud)
{
    Test *k = ud;

    k->to = device_alloc(c, k->d, BYTES);
    k->from = device_alloc(c, k->d, BYTES);
    for (int i = 0; i < SEVERAL; i++)
        k->more[i] = device_alloc(c, k->d, BYTES);
    for (int i = 0; i < CASES; i++)
        one(k);
    for (int i = 0; i < CASES; i++)
        several(k);
    for (int i = 0; i < CASES; i++)
        one_product(k);
    for (int i = 0; i < SEVERAL; i++)
        device_free(k->d, k->more[i]);
    device_free(k->d, k->to);
    device_free(k->d, k->from);
}

int main(void)
{
    Test *k = calloc(1, sizeof *k);

    if (!k)
        return 1;
    k->c = ctx_new();
    k->g = gpu_new();
    if (!ctx_protect(k->c, open_gpu, k)) {
        printf("skip: %s\n", k->c->err.message);
        return 0;
    }
    expect(ctx_protect(k->c, run, k), k->c->err.message);
    gpu_release(k->g);
    ctx_free(k->c);
    free(k);
    return report();
}
