/* call.c -- elements of tensors: what is stored is the nearest there is. */
#include "../../compiler/call.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int bad;

static uint16_t stored(DType d, double x)
{
    uint16_t h = 0xdead;
    View v = { .data = &h, .dtype = d };

    view_set(&v, 0, x);
    return h;
}

static double value(DType d, uint16_t h)
{
    View v = { .data = &h, .dtype = d };

    return view_get(&v, 0);
}

static void check(const char *what, DType d, double x, unsigned want)
{
    unsigned got = stored(d, x);

    if (got != want) {
        printf("call: %s of %a: %04x, not %04x\n", what, x, got, want);
        bad++;
    }
}

/* Each finite 16-bit number, and each point halfway to the next one up. */
static void every_number(DType d)
{
    for (unsigned h = 0; h < 0x7f80; h++) {
        if (d == F16 && h >= 0x7c00)
            break;
        double x = value(d, (uint16_t)h), up = value(d, (uint16_t)(h + 1));
        check("number", d, x, h);
        check("negative number", d, -x, h | 0x8000);
        if (isinf(up))
            continue;
        check("tie", d, (x + up) / 2, h + (h & 1));
        check("above a tie", d, nextafter((x + up) / 2, INFINITY), h + 1);
        check("below a tie", d, nextafter((x + up) / 2, 0), h);
    }
}

static void special_values(void)
{
    check("bf16 overflow", BF16, 3.4e38, 0x7f80);
    check("bf16 far overflow", BF16, 5e38, 0x7f80);
    check("bf16 largest", BF16, 0x1.fep127, 0x7f7f);
    check("bf16 infinity", BF16, -INFINITY, 0xff80);
    check("bf16 underflow", BF16, 1e-300, 0);
    check("f16 overflow", F16, 65520, 0x7c00);
    check("f16 largest", F16, 65519.99, 0x7bff);
    check("f16 underflow", F16, -0x1p-26, 0x8000);
    for (int d = 0; d < NDTYPES && !dtype_whole((DType)d); d++) {
        double store = 0;
        View v = { .data = &store, .dtype = (DType)d };
        view_set(&v, 0, NAN);
        if (!isnan(view_get(&v, 0))) {
            printf("call: a NaN in %s is lost\n", dtype_name((DType)d));
            bad++;
        }
    }
}

/* Rounded once: through float first, this would round twice. */
static void no_double_rounding(void)
{
    check("just above a tie", F16, 1 + 0x1p-11 + 0x1p-40, 0x3c01);
    check("just above a tie", BF16, 1 + 0x1p-8 + 0x1p-40, 0x3f81);
}

static void strides(void)
{
    float x[6] = { 0 };
    View v = { .data = x, .dtype = F32 };

    view_set(&v, 4, 0.1);
    if (x[4] != 0.1f || view_get(&v, 4) != (double)0.1f) {
        printf("call: float32 element 4\n");
        bad++;
    }
}

int main(void)
{
    every_number(BF16);
    every_number(F16);
    special_values();
    no_double_rounding();
    strides();
    if (dtype_size(BF16) != 2 || dtype_size(F64) != 8
        || strcmp(dtype_name(F16), "float16")) {
        printf("call: names and sizes\n");
        bad++;
    }
    return bad != 0;
}
