/* strided.c -- bfloat16 tensors whose rows are apart, or that heads, batch
 * entries or tokens share by a stride of 0, held against the CPU; what lies
 * between a result's rows stays as it was, also behind a sequence's end.
 */
#include "../../backend/cuda/driver.h"
#include "../../lang/flin.h"
#include "expect.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 70, H = 2, K = 64, V = 24, APART = 32, GAP = 0x4321,
       ROWS = B * T * H, MOST = ROWS * K };

typedef struct Test {
    Ctx *c;
    Driver d;
    flin_Variant *gla;
    const uint16_t *from;       /* what lies on the host, in a row */
    size_t bytes;
    DevicePtr there;            /* and the same on the device */
} Test;

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

/* Its data on the device, where all inputs lie as on the host. */
static flin_Bind moved(const Test *k, flin_Bind b)
{
    const char *at = b.tensor.data;
    b.tensor.data = (void *)(uintptr_t)(k->there
                    + (DevicePtr)(at - (const char *)k->from));
    return b;
}

static void run(Test *k, const flin_Bind *in, const flin_Bind *y,
                const char *backend)
{
    flin_Error e;
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 4,
                       .y = y->tensor, .backend = backend };
    int code = flin_forward(k->gla, &call, &e);
    expect(code == FLIN_OK, code ? e.message : backend);
}

static void run_there(Test *k, const flin_Bind *in, uint16_t *y)
{
    flin_Bind there[4], out = tensor("y", y, V, APART);
    size_t bytes = ROWS * APART * sizeof *y;
    DevicePtr p = device_alloc(k->c, &k->d, bytes);

    for (int i = 0; i < 4; i++)
        there[i] = moved(k, in[i]);
    device_put(k->c, &k->d, p, y, bytes);
    device_put(k->c, &k->d, k->there, k->from, k->bytes);
    out.tensor.data = (void *)(uintptr_t)p;
    run(k, there, &out, "cuda");
    device_sync(k->c, &k->d);
    device_get(k->c, &k->d, y, p, bytes);
    device_free(&k->d, p);
}

static void check(Test *k, const flin_Bind *in, const char *what)
{
    static uint16_t y[MOST], want[MOST];
    const flin_Bind out = tensor("y", want, V, APART);
    double error = 0, truth = 0;
    int gaps = 0;

    run(k, in, &out, "cpu");
    tensor("y", y, V, APART);
    run_there(k, in, y);
    for (int i = 0; i < ROWS * APART; i++) {
        double x = widen(want[i]), d = widen(y[i]) - x;
        gaps += i % APART >= V && y[i] != GAP;
        error += i % APART < V ? d * d : 0;
        truth += i % APART < V ? x * x : 0;
    }
    printf("%s: off by %.1e, %d written between the rows of y\n", what,
           sqrt(error / truth), gaps);
    expect(gaps == 0 && sqrt(error / truth) < 8e-3, what);
}

static void check_all(Ctx *c, void *ud)
{
    static const char *const shared[] = { "batch entries share",
                                          "tokens share", "heads share" };
    static uint16_t data[3 * MOST + ROWS];
    uint16_t *q = data, *k = q + MOST, *v = k + MOST, *g = v + MOST;
    Test *t = ud;
    const flin_Bind in[] = { tensor("q", q, K, K), tensor("k", k, K, K),
                             tensor("v", v, V, APART),
                             tensor("g", g, 0, 1) };
    flin_Bind other[4];

    for (int i = 0; i < ROWS; i++)
        g[i] = narrow(-0.1 - 0.05 * (i % 7));
    t->from = data;
    t->bytes = sizeof data;
    t->there = device_alloc(c, &t->d, t->bytes);
    check(t, in, "rows apart");
    memcpy(other, in, sizeof in);
    other[1].tensor.data = k + (T - 1) * H * K;
    other[1].tensor.stride[1] *= -1;
    check(t, other, "tokens backwards");
    for (int axis = 0; axis < 3; axis++) {
        memcpy(other, in, sizeof in);
        other[1].tensor.stride[axis] = 0;
        check(t, other, shared[axis]);
    }
}

int main(void)
{
    Test t = { .c = ctx_new() };
    flin_Error e;

    if (!driver_open(t.c, &t.d)) {
        printf("skip: %s\n", t.c->err.message);
        return 0;
    }
    flin_State *s = flin_open(NULL, &e);
    t.gla = flin_stdlib(s, "simple_gla", &e);
    if (!ctx_protect(t.c, check_all, &t))
        expect(false, t.c->err.message);
    flin_close(s);
    return report();
}
