/* strided.c -- a result of 24 values whose rows are 32 apart, bfloat16: what
 * lies between them stays as it was, also where a sequence ends in a chunk.
 */
#include "../../lang/flin.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 70, H = 2, K = 64, V = 24, APART = 32, GAP = 0x4321,
       ROWS = T * H, MOST = ROWS * K };

static int passed, failed;

static void expect(bool ok, const char *what)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAIL %s\n", what);
}

static uint16_t narrow(double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return (uint16_t)(u >> 16);
}

static double widen(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* [1, T, H, n], rows `apart`; n 0: [1, T, H]. */
static flin_Bind tensor(const char *name, uint16_t *data, int n, int apart)
{
    flin_Bind b = { name, { data, FLIN_BF16, n ? 4 : 3, { 1, T, H, n },
        { T * H * apart, H * apart, apart, 1 } } };
    for (int i = 0; i < ROWS * apart; i++)
        data[i] = i % apart < n + !n ? narrow(sin(i * 1.7 + name[0])) : GAP;
    return b;
}

static void run(flin_Variant *v, flin_Bind *in, uint16_t *y,
                const char *backend)
{
    flin_Error e;
    flin_Bind out = tensor("y", y, V, APART);
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 4,
                       .y = out.tensor, .backend = backend };
    expect(flin_forward(v, &call, &e) == FLIN_OK, e.message);
}

int main(void)
{
    static uint16_t q[MOST], k[MOST], v[MOST], g[ROWS], y[MOST], want[MOST];
    flin_Error e;
    flin_State *s = flin_open(NULL, &e);
    flin_Variant *gla = flin_stdlib(s, "simple_gla", &e);
    flin_Bind in[] = { tensor("q", q, K, K), tensor("k", k, K, K),
                       tensor("v", v, V, APART), tensor("g", g, 0, 1) };
    double error = 0, truth = 0;
    int gaps = 0;

    for (int i = 0; i < ROWS; i++)
        g[i] = narrow(-0.1 - 0.05 * (i % 7));
    run(gla, in, want, "cpu");
    run(gla, in, y, "cuda");
    for (int i = 0; i < ROWS * APART; i++) {
        double x = widen(want[i]), d = widen(y[i]) - x;
        gaps += i % APART >= V && y[i] != GAP;
        error += i % APART < V ? d * d : 0;
        truth += i % APART < V ? x * x : 0;
    }
    expect(gaps == 0, "what lies between the rows of y stays");
    expect(sqrt(error / truth) < 8e-3, "y");
    flin_close(s);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
