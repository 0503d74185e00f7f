/* strided.c -- bfloat16 tensors whose rows are apart, begin at any element, or
 * have columns apart; or that heads, batch entries or tokens share by a stride
 * of 0, held against the CPU. Between rows lie NaNs, of which none may reach a
 * result; what lies between a result's rows stays as it was, also behind a
 * sequence's end.
 */
#include "../../backend/cuda/driver.h"
#include "../../lang/flin.h"
#include "expect.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 70, H = 2, GAP = 0x7fc1, ROWS = B * T * H,
       MOST = ROWS * 140 };

/* K and V; numbers from row to row of keys, of values, and from column to
 * column. */
typedef struct Shape {
    const char *what;
    int k, v, keys, values, step;
} Shape;

typedef struct Test {
    Ctx *c;
    Driver d;
    flin_Variant *gla;
    Shape shape;
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

/* Whether number i lies in one of n columns. */
static bool is_in_row(int i, int n, int apart, int step)
{
    return i % apart < n * step && i % apart % step == 0;
}

/* [B, T, H, n], rows `apart`, columns `step`; n 0: [B, T, H]. */
static flin_Bind tensor(const char *name, uint16_t *data, int n, int apart,
                        int step)
{
    flin_Bind b = { name, { data, FLIN_BF16, n ? 4 : 3, { B, T, H, n },
        { T * H * apart, H * apart, apart, step } } };
    for (int i = 0; i < ROWS * apart; i++)
        data[i] = is_in_row(i, n + !n, apart, step)
                ? narrow(sin(i * 1.7 + name[0])) : GAP;
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

static flin_Bind result(const Test *k, uint16_t *y)
{
    return tensor("y", y, k->shape.v, k->shape.values, k->shape.step);
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
    flin_Bind there[4], out = result(k, y);
    size_t bytes = ROWS * k->shape.values * sizeof *y;
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
    const flin_Bind out = result(k, want);
    const Shape *s = &k->shape;
    double error = 0, truth = 0;
    int gaps = 0;

    run(k, in, &out, "cpu");
    result(k, y);
    run_there(k, in, y);
    for (int i = 0; i < ROWS * s->values; i++) {
        bool inside = is_in_row(i, s->v, s->values, s->step);
        double x = widen(want[i]), d = widen(y[i]) - x;
        gaps += !inside && y[i] != GAP;
        error += inside ? d * d : 0;
        truth += inside ? x * x : 0;
    }
    printf("%s: off by %.1e, %d written between the rows of y\n", what,
           sqrt(error / truth), gaps);
    expect(gaps == 0 && sqrt(error / truth) < 8e-3, what);
}

static void fill(Test *t, uint16_t *data, flin_Bind in[4])
{
    uint16_t *q = data, *k = q + MOST, *v = k + MOST, *g = v + MOST;
    const Shape *s = &t->shape;

    in[0] = tensor("q", q, s->k, s->keys, s->step);
    in[1] = tensor("k", k, s->k, s->keys, s->step);
    in[2] = tensor("v", v, s->v, s->values, s->step);
    in[3] = tensor("g", g, 0, 1, 1);
    for (int i = 0; i < ROWS; i++)
        g[i] = narrow(-0.1 - 0.05 * (i % 7));
}

static void check_all(Ctx *c, void *ud)
{
    static const char *const shared[] = { "batch entries share",
                                          "tokens share", "heads share" };
    static const Shape shapes[] = {
        { "rows apart", 64, 24, 64, 32, 1 },
        { "rows from any place on", 64, 24, 67, 27, 1 },
        { "rows from even places on", 64, 24, 66, 26, 1 },
        { "rows that are no whole pieces", 20, 36, 20, 36, 1 },
        { "the same, apart", 36, 20, 40, 24, 1 },
        { "odd rows", 33, 21, 33, 21, 1 },
        { "odd rows, apart", 7, 65, 8, 72, 1 },
        { "columns apart", 64, 24, 128, 56, 2 },
        { "odd rows, columns apart", 35, 13, 105, 40, 3 },
    };
    static uint16_t data[3 * MOST + ROWS];
    Test *t = ud;
    flin_Bind in[4], other[4];

    t->from = data;
    t->bytes = sizeof data;
    t->there = device_alloc(c, &t->d, t->bytes);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        t->shape = shapes[i];
        fill(t, data, in);
        check(t, in, shapes[i].what);
    }
    t->shape = shapes[0];
    fill(t, data, in);
    memcpy(other, in, sizeof in);
    other[1].tensor.data = data + MOST + (T - 1) * H * t->shape.keys;
    other[1].tensor.stride[1] *= -1;
    check(t, other, "tokens backwards");
    for (int axis = 0; axis < 3; axis++) {
        memcpy(other, in, sizeof in);
        other[1].tensor.stride[axis] = 0;
        check(t, other, shared[axis]);
    }
}

/* No other kernel is to run in the place of one that is wrong. */
static void say(void *ud, const char *line)
{
    (void)ud;
    expect(false, line);
}

int main(void)
{
    Test t = { .c = ctx_new() };
    flin_Options o = { .size = sizeof o, .log = say };
    flin_Error e;

    if (!driver_open(t.c, &t.d)) {
        printf("skip: %s\n", t.c->err.message);
        return 0;
    }
    flin_State *s = flin_open(&o, &e);
    t.gla = flin_stdlib(s, "simple_gla", &e);
    if (!ctx_protect(t.c, check_all, &t))
        expect(false, t.c->err.message);
    flin_close(s);
    return report();
}
