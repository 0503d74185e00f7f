/* loops.h -- what the tile machine is measured against, in plain C: one
 * token after another, and the same chunk algorithm in loops. Compiled by the
 * bench itself, at -O2 and at -O3 -march=native.
 *
 * One head: q, k [T, K], v, y [T, V], g [T] (per key: [T, K]), beta [T],
 * s [K, V]. kind: 0 scalar decay, 1 decay per key, 2 delta rule.
 */
#include <math.h>
#include <string.h>

enum { SSD, GLA, DELTA, C = 64, MAX = 128 };

void token_loop(int kind, long T, int K, int V, const float *q,
                const float *k, const float *v, const float *g,
                const float *beta, float *s, float *y);
void chunk_loop(int kind, long T, int K, int V, const float *q,
                const float *k, const float *v, const float *g,
                const float *beta, float *s, float *y);

void token_loop(int kind, long T, int K, int V, const float *q,
                const float *k, const float *v, const float *g,
                const float *beta, float *s, float *y)
{
    float u[MAX];

    for (long t = 0; t < T; t++, q += K, k += K, v += V, y += V) {
        memcpy(u, v, (size_t)V * sizeof *u);
        if (kind == DELTA) {
            for (int a = 0; a < K; a++)
                for (int b = 0; b < V; b++)
                    u[b] -= k[a] * s[a * V + b];
            for (int b = 0; b < V; b++)
                u[b] *= beta[t];
        }
        memset(y, 0, (size_t)V * sizeof *y);
        float d = kind == SSD ? expf(g[t]) : 1;
        for (int a = 0; a < K; a++) {
            if (kind == GLA)
                d = expf(g[t * K + a]);
            for (int b = 0; b < V; b++) {
                float x = d * s[a * V + b] + k[a] * u[b];
                s[a * V + b] = x;
                y[b] += q[a] * x;
            }
        }
    }
}

/* c (m x n) += a (m x k) b (k x n); a's strides are given. */
static void product(int m, int n, int k, const float *a, int ar, int ac,
                    const float *b, float *c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * ar + p * ac] * b[p * n + j];
}

/* c (m x n) = a (m x k) b^T (n x k), lower triangle. */
static void scores(int m, int k, const float *a, const float *b, float *c)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j <= i; j++) {
            float x = 0;
            for (int p = 0; p < k; p++)
                x += a[i * k + p] * b[j * k + p];
            c[i * C + j] = x;
        }
}

/* Gates are small enough here for exp(c_i) exp(-c_j) in one piece. */
void chunk_loop(int kind, long T, int K, int V, const float *q,
                const float *k, const float *v, const float *g,
                const float *beta, float *s, float *y)
{
    static float p[C * C], a[C * C], qs[C * MAX], ks[C * MAX], w[C * MAX];

    for (long t = 0; t < T; t += C, q += C * K, k += C * K, v += C * V,
         y += C * V) {
        float c[MAX] = { 0 };
        memset(p, 0, sizeof p);
        for (int i = 0; i < C; i++)
            for (int x = 0; x < K; x++) {
                c[x] += kind == DELTA ? 0 : kind == GLA
                      ? g[(t + i) * K + x] : g[t + i];
                float e = expf(c[x]);
                qs[i * K + x] = q[i * K + x] * e;
                ks[i * K + x] = k[i * K + x] / e;
            }
        scores(C, K, qs, ks, p);
        memcpy(w, v, (size_t)(C * V) * sizeof *w);
        if (kind == DELTA) {
            scores(C, K, k, k, a);
            for (int i = 0; i < C; i++) {
                float *row = w + i * V;
                for (int x = 0; x < K; x++)
                    for (int b = 0; b < V; b++)
                        row[b] -= k[i * K + x] * s[x * V + b];
                for (int j = 0; j < i; j++)
                    for (int b = 0; b < V; b++)
                        row[b] -= a[i * C + j] * w[j * V + b];
                for (int b = 0; b < V; b++)
                    row[b] *= beta[t + i];
            }
        }
        memset(y, 0, (size_t)(C * V) * sizeof *y);
        product(C, V, K, qs, K, 1, s, y);
        product(C, V, C, p, C, 1, w, y);
        product(K, V, C, ks, 1, K, w, s);
        for (int x = 0; x < K; x++)
            for (int b = 0; b < V; b++)
                s[x * V + b] *= expf(c[x]);
    }
}
