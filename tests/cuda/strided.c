/* strided.c -- bfloat16 tensors whose rows are apart, or that heads, batch
 * entries or tokens share by a stride of 0, held against the CPU; what lies
 * between a result's rows stays as it was, also behind a sequence's end.
 */
#include "../../lang/flin.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 70, H = 2, K = 64, V = 24, APART = 32, GAP = 0x4321,
       ROWS = B * T * H, MOST = ROWS * K };

static int passed, failed;

static void expect(bool ok, const char *what, const char *why)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAIL %s: %s\n", what, why);
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

/* [B, T, H, n], rows `apart`; n 0: [B, T, H]. */
static flin_Bind tensor(const char *name, uint16_t *data, int n, int apart)
{
    flin_Bind b = { name, { data, FLIN_BF16, n ? 4 : 3, { B, T, H, n },
        { T * H * apart, H * apart, apart, 1 } } };
    for (int i = 0; i < ROWS * apart; i++)
        data[i] = i % apart < n + !n ? narrow(sin(i * 1.7 + name[0])) : GAP;
    return b;
}

static void run(flin_Variant *v, const flin_Bind *in, uint16_t *y,
                const char *backend)
{
    flin_Error e;
    flin_Bind out = tensor("y", y, V, APART);
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 4,
                       .y = out.tensor, .backend = backend };
    int code = flin_forward(v, &call, &e);
    expect(code == FLIN_OK, backend, code ? e.message : "");
}

static void check(flin_Variant *gla, const flin_Bind *in, const char *what)
{
    static uint16_t y[MOST], want[MOST];
    double error = 0, truth = 0;
    int gaps = 0;

    run(gla, in, want, "cpu");
    run(gla, in, y, "cuda");
    for (int i = 0; i < ROWS * APART; i++) {
        double x = widen(want[i]), d = widen(y[i]) - x;
        gaps += i % APART >= V && y[i] != GAP;
        error += i % APART < V ? d * d : 0;
        truth += i % APART < V ? x * x : 0;
    }
    expect(gaps == 0, what, "written between the rows of y");
    expect(sqrt(error / truth) < 8e-3, what, "y is wrong");
}

int main(void)
{
    static const char *const shared[] = { "rows apart", "batch entries share",
                                          "tokens share", "heads share" };
    static uint16_t q[MOST], k[MOST], v[MOST], g[ROWS];
    flin_Error e;
    flin_State *s = flin_open(NULL, &e);
    flin_Variant *gla = flin_stdlib(s, "simple_gla", &e);
    const flin_Bind in[] = { tensor("q", q, K, K), tensor("k", k, K, K),
                             tensor("v", v, V, APART),
                             tensor("g", g, 0, 1) };

    for (int i = 0; i < ROWS; i++)
        g[i] = narrow(-0.1 - 0.05 * (i % 7));
    check(gla, in, shared[0]);
    flin_Bind back[4];
    memcpy(back, in, sizeof in);
    back[1].tensor.data = k + (T - 1) * H * K;
    back[1].tensor.stride[1] *= -1;
    check(gla, back, "tokens backwards");
    for (int axis = 0; axis < 3; axis++) {
        flin_Bind one[4];
        memcpy(one, in, sizeof in);
        one[1].tensor.stride[axis] = 0;
        check(gla, one, shared[1 + axis]);
    }
    flin_close(s);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
