/* inplace.c -- states after a call lie where those before it did: the same bits
 * as where they do not, also where a head's blocks, or kernels, all read them;
 * in a workspace of the host's, and with sequences' states apart. And gradients
 * are the same whether or not that of a state is wanted beside them.
 */
#include "../../backend/cuda/driver.h"
#include "../host/host.h"

#include <float.h>
#include <math.h>

enum { B = 2, H = 2, D = 128, APART = 3 };

typedef struct Test {
    Ctx *c;
    Driver d;
    flin_State *s;
} Test;

static size_t bytes_of(const flin_Tensor *t)
{
    return (size_t)tensor_count(t) * 4;
}

/* The tensor on the device, with these numbers; from: NULL, none. Its first
 * axis so many times as far apart as it need be. */
static flin_Tensor put(Test *k, const flin_Tensor *host, const void *from,
                       int apart)
{
    flin_Tensor t = *host;
    size_t row = bytes_of(host) / (size_t)host->shape[0];
    DevicePtr p = device_alloc(k->c, &k->d, bytes_of(host) * (size_t)apart);
    int64_t stride = 1;
    for (int i = t.rank; i-- > 0; stride *= t.shape[i])
        t.stride[i] = i ? stride : stride * apart;
    for (int i = 0; i < t.shape[0] && from; i++)
        device_put(k->c, &k->d, p + (DevicePtr)(i * apart) * row,
                   (const char *)from + (size_t)i * row, row);
    t.data = (void *)(uintptr_t)p;
    return t;
}

static float *get(Test *k, const flin_Tensor *t, int apart)
{
    size_t bytes = bytes_of(t), row = bytes / (size_t)t->shape[0];
    float *to = malloc(bytes);
    DevicePtr p = (DevicePtr)(uintptr_t)t->data;
    for (int i = 0; i < t->shape[0]; i++)
        device_get(k->c, &k->d, (char *)to + (size_t)i * row,
                   p + (DevicePtr)(i * apart) * row, row);
    return to;
}

static void drop(Test *k, const flin_Tensor *t)
{
    device_free(&k->d, (DevicePtr)(uintptr_t)t->data);
}

/* Runs the layer's call on the device; the results are the caller's: y, then
 * the states. */
static void run(Test *k, flin_Variant *v, const Layer *l, bool inplace,
                int apart, float **result)
{
    flin_Bind in[MAX_ARGS], s0[MAX_ARGS], s1[MAX_ARGS];
    flin_Call call = l->call;
    flin_Error e;
    call.backend = "cuda";
    call.input = in, call.initial = s0, call.final = s1;
    call.y = put(k, &l->call.y, NULL, 1);
    for (int i = 0; i < call.ninputs; i++)
        in[i] = (flin_Bind){ l->in[i].name, put(k, &l->in[i].tensor,
                             l->in[i].tensor.data, 1) };
    for (int i = 0; i < call.ninitial; i++) {
        s0[i] = (flin_Bind){ l->s0[i].name, put(k, &l->s0[i].tensor,
                             l->s0[i].tensor.data, apart) };
        s1[i] = inplace ? s0[i] : (flin_Bind){ s0[i].name,
                put(k, &l->s0[i].tensor, NULL, apart) };
    }
    flin_Kernel *kernel = flin_prepare(v, FLIN_FORWARD, &call, &e);
    if (!kernel)
        printf("%s\n", e.message);
    call.workspace_size = (size_t)flin_workspace(kernel, &call);
    DevicePtr space = device_alloc(k->c, &k->d, call.workspace_size + 1);
    call.workspace = (void *)(uintptr_t)space;
    CHECK(kernel && flin_run(kernel, &call, NULL, &e) == FLIN_OK);
    device_sync(k->c, &k->d);
    *result++ = get(k, &call.y, 1);
    for (int i = 0; i < call.ninitial; i++) {
        *result++ = get(k, &s1[i].tensor, apart);
        if (!inplace)
            drop(k, &s1[i].tensor);
        drop(k, &s0[i].tensor);
    }
    for (int i = 0; i < call.ninputs; i++)
        drop(k, &in[i].tensor);
    drop(k, &call.y);
    device_free(&k->d, space);
    flin_free(kernel);
}

static void check_variant(Test *k, const char *name, int T, int apart)
{
    float *there[MAX_ARGS], *here[MAX_ARGS];
    flin_Error e;
    flin_Variant *v = flin_stdlib(k->s, name, &e);
    Layer *l = layer_new(v, B, T, H, D, FLIN_F32);
    run(k, v, l, false, apart, there);
    run(k, v, l, true, apart, here);
    for (int i = 0; i <= l->call.ninitial; i++) {
        const flin_Tensor *t = i ? &l->s0[i - 1].tensor : &l->call.y;
        bool same = !memcmp(there[i], here[i], bytes_of(t));
        if (!same)
            printf("%s, %d tokens: %s in place\n", name, T,
                   i ? l->s0[i - 1].name : "y");
        CHECK(same);
        free(there[i]);
        free(here[i]);
    }
    layer_free(l);
}

/* Bytes that such a call wants. */
static int64_t space_of(const Test *k, int T, bool inplace)
{
    flin_Error e = { .message = "" };
    flin_Variant *v = flin_stdlib(k->s, "simple_gla", &e);
    Layer *l = layer_new(v, 1, T, 1, D, FLIN_BF16);
    flin_Call call = l->call;
    l->s0[0].tensor.dtype = l->s1[0].tensor.dtype = FLIN_F32;
    call.backend = "cuda";
    call.final = inplace ? l->s0 : l->s1;
    flin_Kernel *kernel = flin_prepare(v, FLIN_FORWARD, &call, &e);
    int64_t n = kernel ? flin_workspace(kernel, &call) : -1;
    CHECK(n >= 0);
    flin_free(kernel);
    layer_free(l);
    return n;
}

/* A matrix is copied, too, where blocks may share a sequence, as they do from
 * 64 chunks on: each reads it. Segments have states of their own. */
static void check_split(const Test *k)
{
    enum { WHOLE = 63 * 64, SPLIT = WHOLE + 1 };
    setenv("FLIN_SEGMENTS", "1", 1);
    CHECK(space_of(k, WHOLE, true) == space_of(k, WHOLE, false));
    CHECK(space_of(k, SPLIT, true) >= space_of(k, SPLIT, false) + 4 * D * D);
    unsetenv("FLIN_SEGMENTS");
}

/* ---- gradients of states that nobody wants ---- */

enum { TOKENS = 70, KEYS = 16, TAPS = 4 };

static const char taps[] =
    "local flin = require 'flin'\n"
    "return flin.layer {\n"
    "  name = 'taps', input = { x = 't k' }, weight = { c = 'k w' },\n"
    "  forward = function (x, w)\n"
    "    return flin.silu(flin.conv(x.x, w.c))\n"
    "  end }\n";

static flin_Tensor taps_tensor(const char *axes, int64_t batch)
{
    flin_Tensor t = { .dtype = FLIN_F32 };
    if (batch)
        t.shape[t.rank++] = batch;
    for (; *axes; axes += axes[1] ? 2 : 1)
        t.shape[t.rank++] = *axes == 't' ? TOKENS : *axes == 'k' ? KEYS : TAPS;
    return t;
}

/* The argument on the device, of random numbers. */
static flin_Bind taps_bind(Test *k, const flin_Arg *a, bool batch,
                           uint32_t *seed)
{
    flin_Tensor t = taps_tensor(a->axes, batch ? B : 0);
    tensor_make(&t, FLIN_F32);
    tensor_draw(&t, "normal", seed);
    flin_Bind b = { a->name, put(k, &t, t.data, 1) };
    free(t.data);
    return b;
}

/* But for what a compiler rounds before it adds, or does not: two texts. */
static bool is_alike(const float *a, const float *b, size_t bytes)
{
    size_t n = bytes / sizeof *a;
    float most = 0;
    bool all = true;

    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(a[i]));
    for (size_t i = 0; i < n; i++)
        all &= fabsf(a[i] - b[i]) <= 4 * FLT_EPSILON * most;
    return all;
}

/* Gradients of x and the taps, with that of the state or without: the same
 * numbers, and sequences' ends, if there are some, change nothing of that. */
static void check_unwanted(Test *k, int64_t nseq)
{
    static const int64_t ends[] = { 0, 3, 3, 40, TOKENS };
    flin_Error e = { .message = "" };
    flin_Variant *v = flin_load_string(k->s, taps, "taps.lua", &e);
    flin_Bind in[2], d[2], dstate;
    flin_Arg a, state;
    uint32_t seed = 1;
    int64_t batch = nseq ? 1 : B;
    float *found[2][2];

    CHECK(v != NULL);
    for (int i = 0; i < 2 && flin_arg(v, i, &a); i++) {
        in[i] = taps_bind(k, &a, *a.axes == 't', &seed);
        in[i].tensor.shape[0] = *a.axes == 't' ? batch : KEYS;
        d[i] = taps_bind(k, &a, *a.axes == 't', &seed);
        d[i].tensor.shape[0] = in[i].tensor.shape[0];
    }
    CHECK(flin_arg(v, 2, &a) && flin_arg(v, 3, &state));
    flin_Bind dy = taps_bind(k, &a, true, &seed);
    dy.tensor.shape[0] = batch;
    flin_Tensor all = taps_tensor(state.axes, nseq ? nseq : B);
    dstate = (flin_Bind){ state.name, put(k, &all, NULL, 1) };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 2,
                       .backend = "cuda", .cu_seqlens = nseq ? ends : NULL,
                       .nseq = nseq };
    for (int wanted = 0; wanted < 2; wanted++) {
        flin_Grad g = { .size = sizeof g, .dy = dy.tensor, .dinput = d,
                        .ndinput = 2, .dinitial = &dstate,
                        .ndinitial = wanted };
        CHECK(flin_backward(v, &call, &g, &e) == FLIN_OK);
        if (*e.message)
            printf("%s\n", e.message);
        device_sync(k->c, &k->d);
        for (int i = 0; i < 2; i++)
            found[wanted][i] = get(k, &d[i].tensor, 1);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(is_alike(found[0][i], found[1][i], bytes_of(&d[i].tensor)));
        CHECK(found[0][i][0] == found[0][i][0]);
        free(found[0][i]);
        free(found[1][i]);
        drop(k, &in[i].tensor);
        drop(k, &d[i].tensor);
    }
    drop(k, &dy.tensor);
    drop(k, &dstate.tensor);
    flin_release(v);
}

static void check_all(Ctx *c, void *ud)
{
    Test *t = ud;
    (void)c;
    check_variant(t, "trapezoidal_gla", 1, 1);
    check_variant(t, "trapezoidal_gla", 1, APART);
    check_variant(t, "trapezoidal_gla", 70, 1);
    check_variant(t, "mlstm", 70, APART);
    check_variant(t, "gla", 70, 1);
    check_unwanted(t, 0);
    check_unwanted(t, 4);
    if (t->d.arch == 90)
        check_split(t);
}

int main(void)
{
    Test t = { .c = ctx_new() };
    flin_Error e;

    if (!driver_open(t.c, &t.d)) {
        printf("skip: %s\n", t.c->err.message);
        return 0;
    }
    t.s = flin_open(NULL, &e);
    if (!ctx_protect(t.c, check_all, &t))
        printf("%s\n", t.c->err.message), failed++;
    flin_close(t.s);
    return report();
}
