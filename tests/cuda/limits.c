/* limits.c -- the C API where a GPU ends: tensors of more than 2^31 elements,
 * no memory for a call, and a tensor whose entries are not there, after
 * which this process can use the GPU no more.
 *   limits [ENTRIES [TOKENS]]      batch entries of 2048 elements a token
 *                                  (1025 of 1024)
 */
#include "../../backend/cuda/driver_entry.h"
#include "../../lang/flin.h"
#include "expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { H = 16, D = 128, NIN = 4, NT = NIN + 2, ELEMENT = 2 };
enum { Q, K, V, G, Y, DQ };

static const char *const name[NT] = { "q", "k", "v", "g", "y", "q" };

typedef struct Test {
    Ctx *c;
    Driver d;
    flin_State *s;
    flin_Variant *v;
    flin_Error e;
    int64_t entries, tokens;
    flin_Tensor host[NT], device[NT];   /* host: one entry */
} Test;

/* ---- tensors: every batch entry holds the same ---- */

static int64_t entry_size(const Test *t, int i)
{
    return t->tokens * H * (i == G ? 1 : D);
}

static DevicePtr entry_at(const Test *t, int i, int64_t entry)
{
    return (DevicePtr)(uintptr_t)t->device[i].data
         + (DevicePtr)(entry * entry_size(t, i) * ELEMENT);
}

static flin_Tensor tensor(const Test *t, int i, int64_t entries, void *data)
{
    return (flin_Tensor){ data, FLIN_BF16, i == G ? 3 : 4,
                          { entries, t->tokens, H, D }, { 0 } };
}

/* bfloat16 from -1/2 to 1/2; gates up to 0. */
static void fill(uint16_t *to, int64_t n, int i)
{
    static uint64_t seed = 7;
    for (int64_t e = 0; e < n; e++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        float x = (float)(seed >> 40) / (float)(1 << 24) - 0.5f;
        uint32_t bits;
        x = i == G ? -x * x : x;
        memcpy(&bits, &x, sizeof bits);
        to[e] = (uint16_t)(bits >> 16);
    }
}

static float value(const flin_Tensor *x, int64_t e)
{
    uint32_t bits = (uint32_t)((uint16_t *)x->data)[e] << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static void make_tensor(Test *t, int i)
{
    size_t bytes = (size_t)entry_size(t, i) * ELEMENT;
    DevicePtr p = device_alloc(t->c, &t->d, bytes * (size_t)t->entries);
    t->host[i] = tensor(t, i, 1, malloc(bytes));
    t->device[i] = tensor(t, i, t->entries, (void *)(uintptr_t)p);
    fill(t->host[i].data, entry_size(t, i), i);
    device_put(t->c, &t->d, p, t->host[i].data, bytes);
    for (int64_t n = 1, more; n < t->entries; n += more) {
        more = n < t->entries - n ? n : t->entries - n;
        device_copy(t->c, &t->d, entry_at(t, i, n), p, bytes * (size_t)more);
    }
}

static void poison(Test *t, int i)
{
    device_fill(t->c, &t->d, entry_at(t, i, 0), 0xff,
                (size_t)(t->entries * entry_size(t, i)) * ELEMENT);
    device_sync(t->c, &t->d);
}

static uint16_t *entry(Test *t, int i, int64_t at)
{
    size_t bytes = (size_t)entry_size(t, i) * ELEMENT;
    uint16_t *x = malloc(bytes);
    device_get(t->c, &t->d, x, entry_at(t, i, at), bytes);
    return x;
}

/* ---- calls ---- */

typedef struct Bound { flin_Bind in[NIN], dq; flin_Call call; flin_Grad grad; }
    Bound;

static Bound *bind(Bound *b, const flin_Tensor *x, const char *backend)
{
    for (int i = 0; i < NIN; i++)
        b->in[i] = (flin_Bind){ name[i], x[i] };
    b->dq = (flin_Bind){ name[DQ], x[DQ] };
    b->call = (flin_Call){ .size = sizeof b->call, .input = b->in,
                           .ninputs = NIN, .y = x[Y], .backend = backend };
    b->grad = (flin_Grad){ .size = sizeof b->grad, .dy = x[V],
                           .dinput = &b->dq, .ndinput = 1 };
    return b;
}

static int run(Test *t, const Bound *b, bool backward)
{
    return backward ? flin_backward(t->v, &b->call, &b->grad, &t->e)
                    : flin_forward(t->v, &b->call, &t->e);
}

/* The first entry as on the CPU, the others as the first. */
static void check_entries(Test *t, int i, double limit)
{
    const int64_t at[] = { t->entries / 2, t->entries - 2, t->entries - 1 };
    size_t bytes = (size_t)entry_size(t, i) * ELEMENT;
    uint16_t *first = entry(t, i, 0);
    flin_Tensor got = tensor(t, i, 1, first);
    double error = 0, truth = 0;
    char text[128];
    for (int64_t e = 0; e < entry_size(t, i); e++) {
        double want = value(&t->host[i], e), off = value(&got, e) - want;
        error += off * off;
        truth += want * want;
    }
    error = sqrt(error / truth);
    snprintf(text, sizeof text, "%s of many is off by %.1e", name[i], error);
    expect(error < limit, text);
    for (int k = 0; k < 3; k++) {
        uint16_t *x = entry(t, i, at[k]);
        snprintf(text, sizeof text, "%s of entry %lld is not the first's",
                 name[i], (long long)at[k]);
        expect(!memcmp(x, first, bytes), text);
        free(x);
    }
    free(first);
}

static void test_large(Test *t)
{
    Bound host, device;
    bind(&host, t->host, "cpu");
    bind(&device, t->device, "cuda");
    for (int backward = 0; backward < 2; backward++) {
        int result = backward ? DQ : Y;
        poison(t, result);
        expect(!run(t, &host, backward), t->e.message);
        expect(!run(t, &device, backward), t->e.message);
        device_sync(t->c, &t->d);
        check_entries(t, result, backward ? 8e-3 : 6e-3);
    }
}

/* ---- no memory ---- */

enum { PIECES = 64 };

/* Takes what there is, in pieces that halve; how many. */
static int take_all(Test *t, DevicePtr *piece)
{
    int n = 0;
    CALL(&t->d, ALLOC, alloc);
    for (size_t bytes = (size_t)1 << 36; bytes >= 1 << 20 && n < PIECES; )
        if (alloc(&piece[n], bytes) == 0)
            n++;
        else
            bytes /= 2;
    return n;
}

/* Without memory for its workspace a call is refused and nothing is launched;
 * with some again it runs. A stream of its own has no workspace yet. */
static void test_full(Test *t)
{
    DevicePtr piece[PIECES];
    Bound b;
    CALL(&t->d, STREAM, create);
    t->entries = t->entries < 64 ? t->entries : 64;
    for (int i = 0; i < NT; i++)
        t->device[i].shape[0] = t->entries;
    bind(&b, t->device, "cuda");
    driver_check(t->c, &t->d, create(&b.call.stream, 1), "a stream");
    poison(t, DQ);
    int n = take_all(t, piece);
    int code = run(t, &b, true);
    expect(code == FLIN_ERROR_MEMORY
              && strstr(t->e.message, "out of memory"),
           "a call without memory is refused");
    for (int i = 0; i < n; i++)
        device_free(&t->d, piece[i]);
    device_sync(t->c, &t->d);
    uint16_t *x = entry(t, DQ, t->entries - 1);
    expect(x[0] == 0xffff && x[entry_size(t, DQ) - 1] == 0xffff,
           "nothing was launched");
    free(x);
    expect(!run(t, &b, true), t->e.message);
    device_sync(t->c, &t->d);
    check_entries(t, DQ, 8e-3);
}

/* ---- an error that stays ---- */

static void test_broken(Test *t)
{
    Bound b, host;
    bind(&b, t->device, "cuda");
    b.call.y.stride[0] = (int64_t)1 << 37;
    for (int axis = 1; axis < 4; axis++)
        b.call.y.stride[axis] = axis == 3 ? 1 : axis == 2 ? D : H * D;
    CALL(&t->d, SYNC, wait);
    run(t, &b, false);
    expect(wait() != 0, "a tensor that is not there ends the work");
    for (int i = 0; i < 2; i++) {
        int code = run(t, bind(&b, t->device, "cuda"), false);
        expect(code == FLIN_ERROR_DEVICE, "the error stays");
        expect(strstr(t->e.message, "of simple_gla")
                  && strstr(t->e.message, " tokens, 16 heads, k = 128"),
               t->e.message);
    }
    expect(!run(t, bind(&host, t->host, "cpu"), false),
           "the CPU still works");
}

static void test(Ctx *c, void *ud)
{
    Test *t = ud;
    (void)c;
    for (int i = 0; i < NT; i++)
        make_tensor(t, i);
    test_large(t);
    test_full(t);
    test_broken(t);
}

int main(int argc, char **argv)
{
    static Test t;
    t.c = ctx_new();
    t.entries = argc > 1 ? atoi(argv[1]) : 1025;
    t.tokens = argc > 2 ? atoi(argv[2]) : 1024;
    if (!driver_open(t.c, &t.d)) {
        printf("skip: %s\n", t.c->err.message);
        return 0;
    }
    t.s = flin_open(NULL, &t.e);
    t.v = flin_stdlib(t.s, "simple_gla", &t.e);
    if (!t.v || !ctx_protect(t.c, test, &t))
        expect(false, t.v ? t.c->err.message : t.e.message);
    flin_release(t.v);
    flin_close(t.s);
    return report();
}
