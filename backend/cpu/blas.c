/* blas.c -- OpenBLAS by dlopen: a block of a matrix product. */
#include "blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum Entry { SGEMM, GET_THREADS, SET_THREADS, NENTRIES };
static const char *const entry_name[NENTRIES] = {
    "cblas_sgemm", "openblas_get_num_threads", "openblas_set_num_threads",
};

/* CBLAS's own numbers. */
enum { BY_ROWS = 101, AS_IT_LIES = 111, TURNED = 112 };

typedef void SgemmFn(int order, int turn_a, int turn_b, int m, int n, int k,
                     float alpha, const float *a, int lda, const float *b,
                     int ldb, float beta, float *c, int ldc);
typedef int GetFn(void);
typedef void SetFn(int n);

/* ISO C has no cast from an object's to a function's address. */
#define CALL(type, which, f) \
    type *f; memcpy(&f, &blas.fn[which], sizeof f)

/* The library is the process's, and so is this. */
static struct Blas {
    pthread_mutex_t lock;
    bool asked, found;
    void *fn[NENTRIES];
    int inside;                         /* who has begun */
    pid_t pid;                          /* a forked child has no such threads */
    int threads;                        /* that it had before */
} blas = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool find(void)
{
    void *lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);

    for (int i = 0; lib && i < NENTRIES; i++)
        if (!(blas.fn[i] = dlsym(lib, entry_name[i])))
            return false;
    return lib;
}

/* Measured (0.3.21, one thread of an AMD EPYC, 64 x 1024 x 1024): its kernels
 * for SSE, AVX2 and AVX-512 reach 40, 97 and 82 GFLOP/s, ours 24, 87 and 103.
 */
static bool is_faster(const Isa *own)
{
    return own == isa_plain();
}

bool blas_is_wanted(const Isa *own)
{
    const char *said = getenv("FLIN_BLAS");
    bool wanted = said && *said ? strcmp(said, "0") : is_faster(own);

    if (!wanted)
        return false;
    pthread_mutex_lock(&blas.lock);
    if (!blas.asked)
        blas.found = find();
    blas.asked = true;
    pthread_mutex_unlock(&blas.lock);
    return blas.found;
}

static bool is_int(ptrdiff_t x)
{
    return x == (int)x;
}

/* rows x cols, so far apart: are its rows, or its columns, whole? */
static bool is_matrix(int rows, int cols, ptrdiff_t rs, ptrdiff_t cs)
{
    return is_int(rs) && is_int(cs)
        && (cs == 1 ? rs >= cols : rs == 1 && cs >= rows);
}

bool blas_takes(const Gemm *g)
{
    enum { FEW = 8 };

    return g->m >= FEW && g->n > 0 && g->k > 0
        && is_matrix(g->m, g->k, g->ars, g->acs)
        && is_matrix(g->k, g->n, g->brs, g->bcs)
        && is_matrix(g->m, g->n, g->crs, 1);
}

void blas_begin(void)
{
    CALL(GetFn, GET_THREADS, get);
    CALL(SetFn, SET_THREADS, set);

    pthread_mutex_lock(&blas.lock);
    if (blas.pid != getpid())
        blas.inside = 0;
    blas.pid = getpid();
    if (!blas.inside++) {
        blas.threads = get();
        if (blas.threads != 1)
            set(1);
    }
    pthread_mutex_unlock(&blas.lock);
}

void blas_end(void)
{
    CALL(SetFn, SET_THREADS, set);

    pthread_mutex_lock(&blas.lock);
    if (!--blas.inside && blas.threads != 1)
        set(blas.threads);
    pthread_mutex_unlock(&blas.lock);
}

void blas_gemm(const Gemm *g)
{
    CALL(SgemmFn, SGEMM, sgemm);
    bool a = g->acs != 1, b = g->bcs != 1;

    sgemm(BY_ROWS, a ? TURNED : AS_IT_LIES, b ? TURNED : AS_IT_LIES,
          g->m, g->n, g->k, 1, g->a, (int)(a ? g->acs : g->ars),
          g->b, (int)(b ? g->bcs : g->brs), g->mode == GEMM_SET ? 0 : 1,
          g->c, (int)g->crs);
}
