/* openblas.c -- what of OpenBLAS is called, by plain loops; and whether it was
 * called, and by one thread at a time each. */
#include <stdatomic.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void cblas_sgemm(int order, int turn_a, int turn_b, int m, int n, int k,
                        float alpha, const float *a, int lda, const float *b,
                        int ldb, float beta, float *c, int ldc);
EXPORT int openblas_get_num_threads(void);
EXPORT void openblas_set_num_threads(int n);

EXPORT extern atomic_int fake_calls, fake_crowded, fake_threads;
atomic_int fake_calls, fake_crowded, fake_threads;
atomic_int fake_calls, fake_crowded, fake_threads = 5;

void cblas_sgemm(int order, int turn_a, int turn_b, int m, int n, int k,
                 float alpha, const float *a, int lda, const float *b, int ldb,
                 float beta, float *c, int ldc)
{
    int rows = turn_a == 112 ? 1 : lda, cols = turn_a == 112 ? lda : 1;
    int down = turn_b == 112 ? 1 : ldb, along = turn_b == 112 ? ldb : 1;

    atomic_fetch_add(&fake_calls, order == 101);
    if (atomic_load(&fake_threads) != 1)
        atomic_fetch_add(&fake_crowded, 1);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int p = 0; p < k; p++)
                sum += (double)a[i * rows + p * cols] * b[p * down + j * along];
            c[i * ldc + j] = alpha * (float)sum
                           + (beta != 0 ? beta * c[i * ldc + j] : 0);
        }
}

int openblas_get_num_threads(void)
{
    return atomic_load(&fake_threads);
}

void openblas_set_num_threads(int n)
{
    atomic_store(&fake_threads, n);
}
