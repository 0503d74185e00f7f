/* cublaslt.c -- cuBLASLt for tests on a machine without a GPU: column-major
 * products in float32 on the host, whose memory the fake driver's is. What the
 * library would not take is refused; with FAKE_PRODUCTS=FILE each product
 * leaves a byte there; with FAKE_PLAIN it has none for any shape. With
 * FAKE_TILES it has two answers for each, of tiles of 256 x 128 and of 128 x
 * 128 for so many multiprocessors; where it is given memory the first one wants
 * a counter there; and what a product leaves says which it was.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK, INVALID = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68 };

#define EXPORT __attribute__((visibility("default")))
#define ENTRY(type, name, ...) EXPORT type name(__VA_ARGS__); \
    EXPORT type name(__VA_ARGS__)

__extension__ typedef _Float16 Half;
typedef struct Desc { int turn[2]; } Desc;
typedef struct Layout {
    int type;
    uint64_t rows, cols;
    int64_t ld, apart;
    int32_t batch;
} Layout;
typedef struct Wish { uint64_t room; uint32_t place[4]; } Wish;
typedef struct Algo { uint64_t place[4], room, tile, more[2]; } Algo;
typedef struct Choice {
    Algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} Choice;

enum { COUNTER = 4, LARGE = 256 * 128, SMALL = 128 * 128 };

static int handle;

ENTRY(size_t, cublasLtGetVersion, void) { return 130000; }
ENTRY(int, cublasLtCreate, void **h)
{
    *h = &handle;
    return OK;
}
ENTRY(int, cublasLtDestroy, void *h) { return h == &handle ? OK : INVALID; }

ENTRY(int, cublasLtMatmulDescCreate, void **d, int compute, int scale)
{
    *d = calloc(1, sizeof(Desc));
    return *d && compute == COMPUTE_32F && scale == R_32F ? OK : INVALID;
}
ENTRY(int, cublasLtMatmulDescSetAttribute, void *d, int which, const void *x,
      size_t size)
{
    if ((which != 3 && which != 4) || size != sizeof(int32_t))
        return INVALID;
    memcpy(&((Desc *)d)->turn[which - 3], x, size);
    return OK;
}
ENTRY(int, cublasLtMatmulDescDestroy, void *d)
{
    free(d);
    return OK;
}

ENTRY(int, cublasLtMatrixLayoutCreate, void **l, int type, uint64_t rows,
      uint64_t cols, int64_t ld)
{
    Layout *n = calloc(1, sizeof *n);
    if (!n || ld < (int64_t)rows || !rows || !cols)
        return INVALID;
    *n = (Layout){ type, rows, cols, ld, 0, 1 };
    *l = n;
    return OK;
}
ENTRY(int, cublasLtMatrixLayoutSetAttribute, void *l, int which,
      const void *x, size_t size)
{
    Layout *n = l;
    if (which == 5 && size == sizeof n->batch)
        memcpy(&n->batch, x, size);
    else if (which == 6 && size == sizeof n->apart)
        memcpy(&n->apart, x, size);
    else
        return INVALID;
    return OK;
}
ENTRY(int, cublasLtMatrixLayoutDestroy, void *l)
{
    free(l);
    return OK;
}

ENTRY(int, cublasLtMatmulPreferenceCreate, void **w)
{
    *w = calloc(1, sizeof(Wish));
    return *w ? OK : INVALID;
}
ENTRY(int, cublasLtMatmulPreferenceSetAttribute, void *w, int which,
      const void *x, size_t size)
{
    Wish *n = w;
    if (which == 1 && size == sizeof n->room)
        memcpy(&n->room, x, size);
    else if (which >= 5 && which <= 8 && size == sizeof *n->place)
        memcpy(&n->place[which - 5], x, size);
    else
        return INVALID;
    return OK;
}
ENTRY(int, cublasLtMatmulPreferenceDestroy, void *w)
{
    free(w);
    return OK;
}

/* ---- products ---- */

static bool fits(const Desc *e, const Layout *a, const Layout *b,
                 const Layout *c)
{
    uint64_t m = e->turn[0] ? a->cols : a->rows;
    uint64_t k = e->turn[0] ? a->rows : a->cols;
    return m == c->rows && k == (e->turn[1] ? b->cols : b->rows)
        && (e->turn[1] ? b->rows : b->cols) == c->cols
        && a->batch == c->batch && b->batch == c->batch;
}

/* Numbers of 16 bits have no kernel where they are not aligned to 2; results
 * are as wide, or float32. */
static bool has_kernel(const Layout *a, const Layout *b, const Layout *c)
{
    return a->type == b->type && (c->type == a->type || c->type == R_32F);
}

ENTRY(int, cublasLtMatmulAlgoGetHeuristic, void *h, void *desc, void *a,
      void *b, void *c, void *d, void *wish, int most, Choice *choice, int *n)
{
    const Wish *w = wish;
    if (h != &handle || most < 1 || !fits(desc, a, b, c)
        || !fits(desc, a, b, d))
        return INVALID;
    if (!has_kernel(a, b, c) || !has_kernel(a, b, d) || getenv("FAKE_PLAIN"))
        return NOT_SUPPORTED;
    memset(choice, 0, sizeof *choice);
    for (int i = 0; i < 4; i++)
        choice->algo.place[i] = w->place[i];
    const Layout *result = d;           /* as if each sum were made in halves */
    uint64_t halves = result->rows * result->cols * 8;
    choice->algo.room = halves < w->room ? halves : 0;
    choice->workspace = choice->algo.room;
    *n = 1;
    const char *units = getenv("FAKE_TILES");
    for (int i = 0; units && i < 2 && i < most; i++) {
        Choice *to = &choice[i];
        *to = *choice;
        to->algo.tile = i ? SMALL : LARGE;
        to->algo.room = to->workspace = !i && w->room ? COUNTER : 0;
        to->waves = (float)(result->rows * result->cols) / (float)to->algo.tile
                  / (float)atoi(units);
        *n = i + 1;
    }
    return OK;
}

static float get(const Layout *l, const void *p, int64_t at)
{
    uint16_t h;
    uint32_t u;
    float x;
    if (l->type == R_32F)
        return ((const float *)p)[at];
    memcpy(&h, (const char *)p + 2 * at, sizeof h);
    if (l->type == R_16F) {
        Half y;
        memcpy(&y, &h, sizeof h);
        return (float)y;
    }
    u = (uint32_t)h << 16;
    memcpy(&x, &u, sizeof x);
    return x;
}

static void set(const Layout *l, void *p, int64_t at, float x)
{
    uint32_t u;
    uint16_t h;
    if (l->type == R_32F) {
        ((float *)p)[at] = x;
        return;
    }
    if (l->type == R_16F) {
        Half y = (Half)x;
        memcpy(&h, &y, sizeof h);
    } else {
        memcpy(&u, &x, sizeof u);
        h = (uint16_t)(x == x ? (u + 0x7fff + (u >> 16 & 1)) >> 16 : 0x7fff);
    }
    memcpy((char *)p + 2 * at, &h, sizeof h);
}

/* d = c + a b; c NULL: a b. */
static void multiply(const Desc *e, const Layout *la, const void *a,
                     const Layout *lb, const void *b, const Layout *lc,
                     const void *c, const Layout *ld, void *d, int64_t z)
{
    int64_t k = (int64_t)(e->turn[0] ? la->rows : la->cols);
    int64_t ai = e->turn[0] ? la->ld : 1, ak = e->turn[0] ? 1 : la->ld;
    int64_t bj = e->turn[1] ? 1 : lb->ld, bk = e->turn[1] ? lb->ld : 1;
    for (int64_t j = 0; j < (int64_t)ld->cols; j++)
        for (int64_t i = 0; i < (int64_t)ld->rows; i++) {
            float sum = 0;
            for (int64_t n = 0; n < k; n++)
                sum += get(la, a, z * la->apart + i * ai + n * ak)
                     * get(lb, b, z * lb->apart + j * bj + n * bk);
            if (c)
                sum += get(lc, c, z * lc->apart + i + j * lc->ld);
            set(ld, d, z * ld->apart + i + j * ld->ld, sum);
        }
}

static void count(const Algo *a)
{
    const char *path = getenv("FAKE_PRODUCTS");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) {
        fputc(a->tile == SMALL ? 's' : !a->tile ? '.' : a->room ? 'c' : 'l', f);
        fclose(f);
    }
}

ENTRY(int, cublasLtMatmul, void *h, void *desc, const float *alpha,
      const void *a, void *la, const void *b, void *lb, const float *beta,
      const void *c, void *lc, void *d, void *ld, const Algo *algo,
      void *workspace, size_t bytes, void *stream)
{
    const void *at[] = { a, b, c, d };
    (void)stream;
    if (h != &handle || (c == d) != (lc == ld) || *alpha != 1
        || (*beta != 0 && *beta != 1) || (uintptr_t)workspace % 256
        || (bytes && !workspace) || bytes < algo->room)
        return INVALID;
    for (int i = 0; i < 4; i++)
        if (!algo->place[i] || (uintptr_t)at[i] % algo->place[i])
            return INVALID;
    memset(workspace, 0xe5, bytes);
    for (int64_t z = 0; z < ((Layout *)ld)->batch; z++)
        multiply(desc, la, a, lb, b, lc, *beta != 0 ? c : NULL, ld, d, z);
    count(algo);
    return OK;
}
