/* calls.c -- the C API on a GPU: device pointers on a stream of the caller's,
 * sequences whose ends lie there, a workspace of the caller's or our own, what
 * forward saves for backward, a CUDA graph of a prepared call, and what a call
 * costs the host.
 *   calls [NAME]      for one variant (gated_deltanet)
 *   calls softmax     for attention over all pairs
 *   calls window      for a mask that ends at a distance
 *   calls keyed       for one that differs by key, in blocks
 *   calls sinks       the same, with a sequence's first tokens beside it
 *   calls both        for a mask of both directions
 *   calls turned      a prepared kernel that meets wrong ones, with a compiler
 *                     that gets them wrong on request (tests/cuda/fake)
 *   calls start [NAME]  the gradient of an initial state, alone; a call that
 *                     saves, begun by its summary, before its start is known
 *   calls back [NAME] all gradients (gated_oja's, whose way back has a kernel
 *                     before the walk), begun by that at a start
 */
#include "../../backend/cuda/driver_entry.h"
#include "../../lang/flin.h"
#include "expect.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { T = 200, H = 2, D = 64, ENDS = 5, MAX_ARGS = 24 };


/* ---- tensors ---- */

typedef struct Host {
    flin_Arg arg;
    flin_Tensor host, device;
    int64_t count;
} Host;

typedef struct Test {
    Ctx *c;
    Driver d;
    flin_State *s;
    flin_Variant *v;
    flin_Error e;
    int nin, nst;
    Host in[MAX_ARGS], final[MAX_ARGS], y;
    flin_Bind bind[MAX_ARGS], states[MAX_ARGS], host_bind[MAX_ARGS],
              host_states[MAX_ARGS];
    void *stream;
    bool turned, both, start, back, begins, window, blocks;
} Test;

static uint64_t seed = 7;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static float draw(const char *domain)
{
    double x = (uniform() + uniform() + uniform() + uniform() - 2) * 1.7;
    if (!strcmp(domain, "log_decay"))
        return (float)-log1p(exp(-x));
    if (!strcmp(domain, "unit") || !strcmp(domain, "positive"))
        return (float)(1 / (1 + exp(-x)));
    return (float)(!strcmp(domain, "unit_norm") ? x / 8 : x);
}

/* All axes are D long; the places of a window of 40 are, too. */
static void shape(Host *t, int64_t sequences)
{
    flin_Tensor *x = &t->host;
    const char *axes = t->arg.axes;
    memset(x, 0, sizeof *x);
    x->dtype = FLIN_F32;
    if (t->arg.role == FLIN_STATE) {
        x->shape[x->rank++] = sequences;
    } else if (strchr(axes, 't')) {
        x->shape[x->rank++] = 1;
        x->shape[x->rank++] = T;
    }
    x->shape[x->rank++] = H;
    for (const char *p = axes; *p; p += strspn(p, " ")) {
        size_t letters = strcspn(p, " ");
        if (letters != 1 || *p != 't')
            x->shape[x->rank++] = D;
        p += letters;
    }
    t->count = 1;
    for (int i = 0; i < x->rank; i++)
        t->count *= x->shape[i];
    x->data = malloc((size_t)t->count * sizeof(float));
}

static void to_device(Test *k, Host *t)
{
    size_t bytes = (size_t)t->count * sizeof(float);
    DevicePtr p = device_alloc(k->c, &k->d, bytes);
    t->device = t->host;
    t->device.data = (void *)(uintptr_t)p;
    device_put(k->c, &k->d, p, t->host.data, bytes);
}

/* The host's results, to hold those of the device against. */
static double distance(Test *k, const Host *t)
{
    size_t bytes = (size_t)t->count * sizeof(float);
    float *got = malloc(bytes), *want = t->host.data;
    double error = 0, truth = 0;
    device_get(k->c, &k->d, got, (DevicePtr)(uintptr_t)t->device.data, bytes);
    for (int64_t i = 0; i < t->count; i++) {
        error += (double)(got[i] - want[i]) * (double)(got[i] - want[i]);
        truth += (double)want[i] * (double)want[i];
    }
    free(got);
    error = sqrt(error / truth);
    return error == error ? error : INFINITY;
}

static void poison(Test *k, const Host *t)
{
    device_fill(k->c, &k->d, (DevicePtr)(uintptr_t)t->device.data, 0xff,
                (size_t)t->count * sizeof(float));
}

static void make_tensors(Test *k)
{
    flin_Arg a;
    for (int i = 0; flin_arg(k->v, i, &a); i++) {
        Host *t = a.role == FLIN_INPUT ? &k->in[k->nin]
                : a.role == FLIN_STATE ? &k->final[k->nst] : &k->y;
        t->arg = a;
        shape(t, ENDS - 1);
        for (int64_t x = 0; x < t->count; x++)
            ((float *)t->host.data)[x] = draw(a.domain);
        to_device(k, t);
        if (a.role == FLIN_INPUT) {
            k->bind[k->nin] = (flin_Bind){ a.name, t->device };
            k->host_bind[k->nin++] = (flin_Bind){ a.name, t->host };
        } else if (a.role == FLIN_STATE) {
            k->states[k->nst] = (flin_Bind){ a.name, t->device };
            k->host_states[k->nst++] = (flin_Bind){ a.name, t->host };
        }
    }
}

/* ---- the calls ---- */

static const int64_t ends[ENDS] = { 0, 70, 70, 71, T };

static flin_Call device_call(Test *k)
{
    return (flin_Call){ .size = sizeof(flin_Call), .input = k->bind,
        .ninputs = k->nin, .final = k->states, .nfinal = k->nst,
        .y = k->y.device, .cu_seqlens = ends, .nseq = ENDS - 1,
        .backend = "cuda", .stream = k->stream };
}

static void sync(Test *k)
{
    CALL(&k->d, STREAM_SYNC, wait);
    driver_check(k->c, &k->d, wait(k->stream), "a call");
}

static void check_run(Test *k, flin_Kernel *f, const flin_Call *call,
                      const char *what)
{
    char text[256];
    poison(k, &k->y);
    device_sync(k->c, &k->d);
    int code = flin_run(f, call, NULL, &k->e);
    snprintf(text, sizeof text, "%s: %.180s", what, k->e.message);
    expect(code == FLIN_OK, text);
    sync(k);
    double error = distance(k, &k->y);
    double state = k->nst ? distance(k, &k->final[0]) : 0;
    snprintf(text, sizeof text, "%s: y is off by %.1e, its state by %.1e",
             what, error, state);
    expect(error < 1e-4 && state < 1e-4, text);
}

static void test_kernel(Test *k, flin_Kernel *f)
{
    flin_Call call = device_call(k);
    check_run(k, f, &call, "a prepared call");
    int64_t bytes = flin_workspace(f, &call);
    DevicePtr own = device_alloc(k->c, &k->d, (size_t)bytes + 256);
    DevicePtr there = device_alloc(k->c, &k->d, sizeof ends);
    call.workspace = (void *)(uintptr_t)own;
    call.workspace_size = (size_t)bytes;
    check_run(k, f, &call, "the caller's workspace");
    call.workspace_size = 1;
    expect(bytes <= 1 || flin_run(f, &call, NULL, &k->e) == FLIN_ERROR,
           "a workspace that is too small");
    call.workspace = NULL;
    call.workspace_size = 0;
    device_put(k->c, &k->d, there, ends, sizeof ends);
    call.cu_seqlens = NULL;
    call.cu_seqlens_device = (void *)(uintptr_t)there;
    check_run(k, f, &call, "ends on the device");
    device_free(&k->d, own);
    device_free(&k->d, there);
}

/* Ends on the device that leave rows out, before the first and behind the
 * last: those are 0, and the rest as ever, since y looks back alone. */
static void test_left_out(Test *k, flin_Kernel *f)
{
    enum { FIRST = 5, LAST = T - 60 };
    const int64_t some[ENDS] = { FIRST, 70, 70, 71, LAST };
    flin_Call call = device_call(k);
    int64_t row = k->y.count / T, off = 0;
    DevicePtr there = device_alloc(k->c, &k->d, sizeof some);
    float *got = malloc((size_t)k->y.count * sizeof *got);
    device_put(k->c, &k->d, there, some, sizeof some);
    call.cu_seqlens = NULL;
    call.cu_seqlens_device = (void *)(uintptr_t)there;
    poison(k, &k->y);
    device_sync(k->c, &k->d);
    expect(!flin_run(f, &call, NULL, &k->e), k->e.message);
    sync(k);
    device_get(k->c, &k->d, got, (DevicePtr)(uintptr_t)k->y.device.data,
               (size_t)k->y.count * sizeof *got);
    for (int64_t i = 0; i < k->y.count; i++) {
        bool out = i / row < FIRST || i / row >= LAST;
        float want = out ? 0 : ((float *)k->y.host.data)[i];
        if (i / row < FIRST || i / row >= 70)
            off += !(fabsf(got[i] - want) <= 1e-3f);
    }
    expect(!off, "rows of no sequence are 0, others as they were");
    free(got);
    device_free(&k->d, there);
}

/* ---- saved ---- */

/* Gradients of q from the whole way, and from what forward has saved; the one
 * kernel does both, of types that were all known when it was made. */
static void test_saved(Test *k)
{
    flin_Call call = device_call(k);
    flin_Kernel *f = flin_prepare(k->v, FLIN_BACKWARD, &call, &k->e);
    int64_t n = f ? flin_kernel_saved(f, &call) : 0;
    if (f && k->window) {
        expect(n == 0, "pairs of a plain sum, and blocks, keep nothing");
        flin_free(f);
        return;
    }
    size_t bytes = (size_t)k->in[0].count * sizeof(float);
    DevicePtr room = device_alloc(k->c, &k->d, (size_t)n + 256);
    flin_Bind dq = { k->in[0].arg.name, k->in[0].device };
    flin_Grad grad = { .size = sizeof grad, .dy = k->y.device,
                       .dinput = &dq, .ndinput = 1 };
    flin_Saved saved = { (void *)(uintptr_t)room, (size_t)n, 0, 0, 0 };
    float *at[3];
    expect(n > 0, k->e.message);
    dq.tensor.data = (void *)(uintptr_t)device_alloc(k->c, &k->d, bytes);
    grad.dy.data = k->in[2].device.data;        /* v: of y's shape */
    for (int i = 0; i < 3; i++) {       /* whole; saved; spoilt */
        if (i == 1) {
            call.saved = &saved;
            expect(flin_run(f, &call, &grad, &k->e) == FLIN_ERROR
                   && strstr(k->e.message, "no forward call has left"),
                   "what nobody has saved is taken");
            check_run(k, f, &call, "a call that saves");
        }
        if (i == 2)
            device_fill(k->c, &k->d, room, 0xff, (size_t)n);
        expect(!flin_run(f, &call, &grad, &k->e), k->e.message);
        sync(k);
        at[i] = malloc(bytes);
        device_get(k->c, &k->d, at[i],
                   (DevicePtr)(uintptr_t)dq.tensor.data, bytes);
    }
    expect(!memcmp(at[0], at[1], bytes), "the gradients are the same");
    expect(memcmp(at[0], at[2], bytes), "what is saved is read");
    for (int i = 0; i < 3; i++)
        free(at[i]);
    device_free(&k->d, (DevicePtr)(uintptr_t)dq.tensor.data);
    device_free(&k->d, room);
    flin_free(f);
}

/* Gradients of all inputs, one behind the other, dy being v. */
static float *all_gradients(Test *k, flin_Call *call, int64_t *n)
{
    flin_Bind d[MAX_ARGS];
    flin_Grad grad = { .size = sizeof grad, .dy = k->y.device, .dinput = d,
                       .ndinput = k->nin };
    *n = 0;
    for (int i = 0; i < k->nin; i++) {
        size_t bytes = (size_t)k->in[i].count * sizeof(float);
        d[i] = (flin_Bind){ k->in[i].arg.name, k->in[i].device };
        d[i].tensor.data = (void *)(uintptr_t)device_alloc(k->c, &k->d, bytes);
        device_fill(k->c, &k->d, (DevicePtr)(uintptr_t)d[i].tensor.data, 0xff,
                    bytes);
        *n += k->in[i].count;
    }
    grad.dy.data = k->in[2].device.data;
    expect(!flin_backward(k->v, call, &grad, &k->e), k->e.message);
    sync(k);
    float *got = malloc((size_t)*n * sizeof *got), *at = got;
    for (int i = 0; i < k->nin; i++) {
        DevicePtr p = (DevicePtr)(uintptr_t)d[i].tensor.data;
        device_get(k->c, &k->d, at, p,
                   (size_t)k->in[i].count * sizeof *at);
        at += k->in[i].count;
        device_free(&k->d, p);
    }
    return got;
}

/* Blocks whose ends the device alone knows: y, and gradients as where the host
 * knows them, too. No states, which would go token by token. */
static void test_device_blocks(Test *k)
{
    flin_Call call = device_call(k);
    DevicePtr there = device_alloc(k->c, &k->d, sizeof ends);
    int64_t n;
    double off = 0, all = 0;
    call.nfinal = 0;
    float *want = all_gradients(k, &call, &n);
    device_put(k->c, &k->d, there, ends, sizeof ends);
    call.cu_seqlens = NULL;
    call.cu_seqlens_device = (void *)(uintptr_t)there;
    poison(k, &k->y);
    device_sync(k->c, &k->d);
    expect(!flin_forward(k->v, &call, &k->e), k->e.message);
    sync(k);
    double y = distance(k, &k->y);
    expect(y < 1e-4, "y of blocks whose ends the device knows");
    float *got = all_gradients(k, &call, &n);
    for (int64_t i = 0; i < n; i++) {
        off += (got[i] - want[i]) * (double)(got[i] - want[i]);
        all += want[i] * (double)want[i];
    }
    expect(all > 0 && sqrt(off / all) < 1e-4, "their gradients");
    free(want);
    free(got);
    device_free(&k->d, there);
}

/* The tensor in bfloat16, cut off, on the device. */
static flin_Tensor halved(Test *k, const Host *t)
{
    const float *from = t->host.data;
    size_t bytes = (size_t)t->count * sizeof(uint16_t);
    uint16_t *h = malloc(bytes);
    flin_Tensor to = t->device;
    for (int64_t i = 0; i < t->count; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        h[i] = (uint16_t)(bits >> 16);
    }
    to.dtype = FLIN_BF16;
    to.data = (void *)(uintptr_t)device_alloc(k->c, &k->d, bytes);
    device_put(k->c, &k->d, (DevicePtr)(uintptr_t)to.data, h, bytes);
    free(h);
    return to;
}

/* Matrices are; decays are not. */
static bool is_halved(const Host *t)
{
    return t->device.rank == 4 && strcmp(t->arg.domain, "log_decay");
}

static void let_go(Test *k, flin_Tensor t)
{
    device_free(&k->d, (DevicePtr)(uintptr_t)t.data);
}

/* What the gradient at the first state's start is, of matrices in bfloat16, as
 * it comes with q's, or alone: then nobody reads what its walk keeps. */
static float *gradient_there(Test *k, bool alone)
{
    const Host *s = &k->final[0];
    size_t bytes = (size_t)s->count * sizeof(float);
    flin_Bind in[MAX_ARGS], start = k->states[0], at = start;
    flin_Bind dq = { k->in[0].arg.name, halved(k, &k->in[0]) };
    flin_Call call = device_call(k);
    flin_Grad grad = { .size = sizeof grad, .dy = halved(k, &k->in[2]),
                       .dinput = &dq, .ndinput = !alone, .dinitial = &at,
                       .ndinitial = 1 };
    float *got = malloc(bytes);
    for (int i = 0; i < k->nin; i++) {
        in[i] = k->bind[i];
        if (is_halved(&k->in[i]))
            in[i].tensor = halved(k, &k->in[i]);
    }
    at.tensor.data = (void *)(uintptr_t)device_alloc(k->c, &k->d, bytes);
    call.input = in;
    call.initial = &start;
    call.ninitial = 1;
    call.nfinal = 0;
    expect(!flin_backward(k->v, &call, &grad, &k->e), k->e.message);
    sync(k);
    device_get(k->c, &k->d, got, (DevicePtr)(uintptr_t)at.tensor.data, bytes);
    for (int i = 0; i < k->nin; i++)
        if (is_halved(&k->in[i]))
            let_go(k, in[i].tensor);
    let_go(k, at.tensor);
    let_go(k, dq.tensor);
    let_go(k, grad.dy);
    return got;
}

static void test_start(Test *k)
{
    float *all = gradient_there(k, false), *alone = gradient_there(k, true);
    double error = 0, truth = 0;
    for (int64_t i = 0; i < k->final[0].count; i++) {
        error += (double)(alone[i] - all[i]) * (double)(alone[i] - all[i]);
        truth += (double)all[i] * (double)all[i];
    }
    error = sqrt(error / truth);
    printf("a start's gradient alone is off by %.1e\n", error);
    expect(error < 4e-3, "alone it is what it is with others");
    free(all);
    free(alone);
}

/* ---- a call that its summary begins ---- */

enum { N = ENDS - 1 };

typedef struct Begun {
    flin_Bind in[MAX_ARGS], start, left, dk;
    flin_Tensor y, dy, M;
    flin_Saved saved;
    flin_Call call;
    size_t bytes;                       /* of y, as of dk */
} Begun;

static flin_Tensor made(Test *k, flin_Tensor like, size_t bytes)
{
    like.data = (void *)(uintptr_t)device_alloc(k->c, &k->d, bytes);
    return like;
}

static void *there(Test *k, flin_Tensor t, size_t bytes)
{
    void *got = malloc(bytes);
    sync(k);
    device_get(k->c, &k->d, got, (DevicePtr)(uintptr_t)t.data, bytes);
    return got;
}

static void make_begun(Test *k, Begun *b)
{
    size_t state = (size_t)k->final[0].count * sizeof(float);
    flin_Tensor room = { 0 };
    for (int i = 0; i < k->nin; i++) {
        b->in[i] = k->bind[i];
        if (is_halved(&k->in[i]))
            b->in[i].tensor = halved(k, &k->in[i]);
    }
    b->bytes = (size_t)k->y.count * sizeof(uint16_t);
    b->y = made(k, b->in[2].tensor, b->bytes);
    b->dy = b->in[2].tensor;
    b->dk = (flin_Bind){ b->in[1].name, made(k, b->in[1].tensor, b->bytes) };
    b->start = b->left = k->states[0];
    b->left.tensor = made(k, b->start.tensor, state);
    flin_Transition to;
    expect(!flin_transition(k->v, &to, &k->e), k->e.message);
    b->M = (flin_Tensor){ NULL, FLIN_F32, to.rank, { N, H, D, D }, { 0 } };
    b->M = made(k, b->M, state);
    b->call = device_call(k);
    b->call.input = b->in;
    b->call.y = b->y;
    b->call.final = &b->left;
    b->call.initial = &b->start;
    b->call.ninitial = 1;
    b->call.in_parts = 1;
    int64_t n = flin_saved(k->v, &b->call, &k->e);
    expect(n > 0, k->e.message);
    b->saved = (flin_Saved){ made(k, room, (size_t)n + 256).data, (size_t)n,
                             0, 0, 0 };
    b->call.saved = &b->saved;
}

static void let_all_go(Test *k, Begun *b)
{
    for (int i = 0; i < k->nin; i++)
        if (is_halved(&k->in[i]))
            let_go(k, b->in[i].tensor);
    let_go(k, b->y);
    let_go(k, b->dk.tensor);
    let_go(k, b->left.tensor);
    let_go(k, b->M);
    device_free(&k->d, (DevicePtr)(uintptr_t)b->saved.data);
}

/* y, states and the gradient of k, of the call as it is now. */
static void run_both(Test *k, Begun *b, void *got[3])
{
    flin_Grad grad = { .size = sizeof grad, .dy = b->dy, .dinput = &b->dk,
                       .ndinput = 1 };
    flin_Call back = b->call;
    back.begun = back.nfinal = 0;
    expect(!flin_forward(k->v, &b->call, &k->e), k->e.message);
    expect(!flin_backward(k->v, &back, &grad, &k->e), k->e.message);
    got[0] = there(k, b->y, b->bytes);
    got[1] = there(k, b->left.tensor, (size_t)k->final[0].count * 4);
    got[2] = there(k, b->dk.tensor, b->bytes);
}

typedef struct Back {
    flin_Bind dstart, dend;
    flin_Grad start, all;
    flin_Call call;
} Back;

static void make_back(Test *k, Begun *b, Back *to)
{
    size_t state = (size_t)k->final[0].count * sizeof(float);
    to->dstart = (flin_Bind){ b->start.name, made(k, b->left.tensor, state) };
    to->dend = (flin_Bind){ b->start.name, b->M };
    to->start = (flin_Grad){ .size = sizeof to->start, .dy = b->dy,
                             .dinitial = &to->dstart, .ndinitial = 1 };
    to->all = to->start;
    to->dend.tensor = b->left.tensor;
    to->all.dfinal = &to->dend;
    to->all.dinput = &b->dk;
    to->all.ndfinal = to->all.ndinput = 1;
    to->call = b->call;
    to->call.nfinal = to->call.begun = 0;
    to->call.workspace_size = 1 << 24;
    to->call.workspace = made(k, b->y, to->call.workspace_size).data;
}

static void *gradient_of(Test *k, Begun *b, Back *to, const flin_Grad *grad)
{
    expect(!flin_backward(k->v, &to->call, grad, &k->e), k->e.message);
    return there(k, b->dk.tensor, b->bytes);
}

static void refuse_back(Test *k, Back *to, const flin_Grad *grad,
                        const char *why)
{
    expect(flin_backward(k->v, &to->call, grad, &k->e) == FLIN_ERROR
           && strstr(k->e.message, why), why);
}

/* All gradients by a call that the one for those at starts has begun. Where no
 * kernel is before the one that walks back, it begins nothing to go on from. */
static void test_back(Test *k)
{
    Begun all, *b = &all;
    Back to = { 0 };
    make_begun(k, b);
    expect(!flin_forward(k->v, &b->call, &k->e), k->e.message);
    make_back(k, b, &to);
    void *whole = gradient_of(k, b, &to, &to.all);
    to.call.begun = 1;
    void *alone = gradient_of(k, b, &to, &to.all);
    to.call.begun = 0;
    to.call.begins = 1;
    refuse_back(k, &to, &to.all, "gives dinitial alone");
    free(gradient_of(k, b, &to, &to.start));
    to.call.begins = 0;
    void *again = gradient_of(k, b, &to, &to.all);
    to.call.begun = 1;
    void *rest = gradient_of(k, b, &to, &to.all);
    expect(!memcmp(whole, alone, b->bytes), "where nothing has begun it: all");
    expect(!memcmp(whole, again, b->bytes), "it may be left as it is");
    expect(!memcmp(whole, rest, b->bytes), "a way back in two: the same bits");
    device_fill(k->c, &k->d, (DevicePtr)(uintptr_t)to.call.workspace, 0xff,
                to.call.workspace_size);
    void *spoilt = gradient_of(k, b, &to, &to.all);
    expect((memcmp(whole, spoilt, b->bytes) != 0) == k->begins,
           "what it began with is read, if there is any");
    free(spoilt);
    to.call.workspace = (char *)to.call.workspace + 256;
    to.call.workspace_size -= 256;
    refuse_back(k, &to, &to.all, "another dy or workspace");
    to.call.workspace = (char *)to.call.workspace - 256;
    flin_Grad other = to.all;
    other.dy = b->y;
    refuse_back(k, &to, &other, "another dy or workspace");
    to.call.workspace_size += 256;
    let_go(k, (flin_Tensor){ .data = to.call.workspace });
    let_go(k, to.dstart.tensor);
    let_all_go(k, b);
    free(whole);
    free(alone);
    free(again);
    free(rest);
}

/* How far M S + own is from the states that were left, S the start. rows: M
 * has a number for each of its rows. */
static double told_apart(const float *own, const float *M, const float *S,
                         const float *left, bool rows)
{
    double error = 0, truth = 0;
    for (int64_t i = 0; i < N * H * D * D; i++) {
        const float *m = M + i / D * D, *s = S + i / (D * D) * D * D + i % D;
        double x = own[i];
        if (rows)
            x += (double)M[i / D] * (double)S[i];
        for (int j = 0; j < D && !rows; j++)
            x += (double)m[j] * (double)s[j * D];
        error += (x - (double)left[i]) * (x - (double)left[i]);
        truth += (double)left[i] * (double)left[i];
    }
    return sqrt(error / truth);
}

/* A summary that begins nothing, of states that a whole call has left. */
static void test_told(Test *k, Begun *b, flin_Call *summary)
{
    size_t state = (size_t)k->final[0].count * sizeof(float);
    b->call.begun = 0;
    b->call.saved = summary->saved = NULL;
    expect(!flin_forward(k->v, &b->call, &k->e), k->e.message);
    float *left = there(k, b->left.tensor, state);
    float *S = there(k, b->start.tensor, state);
    expect(!flin_summary(k->v, summary, &b->M, &k->e), k->e.message);
    float *own = there(k, b->left.tensor, state), *M = there(k, b->M, state);
    double error = told_apart(own, M, S, left, b->M.rank == 3);
    printf("what a summary alone tells is off by %.1e\n", error);
    expect(error < 1e-2, "a summary tells what tokens do to states");
    free(left);
    free(S);
    free(own);
    free(M);
}

/* Seconds of all of the call's parts are more than those of forward alone, and
 * known where sequences are. */
static void test_seconds(Test *k, const flin_Call *call)
{
    flin_Call whole = *call;
    double parts = flin_seconds(k->v, 1, call, &k->e);
    expect(parts > flin_seconds(k->v, 0, call, &k->e) && parts < 1,
           "what parts take is predicted");
    whole.in_parts = 0;
    double both = flin_seconds(k->v, 1, &whole, &k->e);
    expect(both > 0 && both < parts, "a call in parts takes longer");
}

static void test_begun(Test *k)
{
    size_t state = (size_t)k->final[0].count * sizeof(float);
    void *whole[3], *parts[3];
    Begun b;
    setenv("FLIN_SEGMENTS", "1", 1);
    make_begun(k, &b);
    test_seconds(k, &b.call);
    flin_Call summary = b.call;
    b.call.begun = 1;
    expect(flin_forward(k->v, &b.call, &k->e) == FLIN_ERROR
           && strstr(k->e.message, "nothing has been begun"),
           "what nobody has begun is taken");
    b.call.begun = 0;
    run_both(k, &b, whole);
    b.call.begun = 1;
    expect(flin_forward(k->v, &b.call, &k->e) == FLIN_ERROR
           && strstr(k->e.message, "is another call"),
           "what has ended is taken for begun");
    memset(&summary.y, 0, sizeof summary.y);
    summary.ninitial = 0;
    expect(!flin_summary(k->v, &summary, &b.M, &k->e), k->e.message);
    expect(b.saved.plan, "a summary begins a call");
    float *own = there(k, b.left.tensor, state), *M = there(k, b.M, state);
    float *S = there(k, b.start.tensor, state);
    run_both(k, &b, parts);
    double error = told_apart(own, M, S, parts[1], b.M.rank == 3);
    printf("what a beginning tells of its states is off by %.1e\n", error);
    expect(error < 1e-2, "a beginning tells what tokens do to states");
    for (int i = 0; i < 3; i++) {
        expect(!memcmp(whole[i], parts[i], i == 1 ? state : b.bytes),
               "a call in two parts has the same bits");
        free(whole[i]);
        free(parts[i]);
    }
    free(own);
    free(M);
    free(S);
    test_told(k, &b, &summary);
    let_all_go(k, &b);
    unsetenv("FLIN_SEGMENTS");
}

/* ---- a graph ---- */

typedef int BeginFn(void *stream, int mode);
typedef int EndFn(void *stream, void **graph);
typedef int InstantiateFn(void **exec, void *graph, unsigned long long flags);
typedef int LaunchFn(void *exec, void *stream);

#define FIND(lib, type, name, f) \
    type *f; *(void **)&f = dlsym(lib, name)

static void test_graph(Test *k, flin_Kernel *f)
{
    enum { RELAXED = 2 };
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *graph = NULL, *exec = NULL;
    FIND(lib, BeginFn, "cuStreamBeginCapture_v2", begin);
    FIND(lib, EndFn, "cuStreamEndCapture", end);
    FIND(lib, InstantiateFn, "cuGraphInstantiateWithFlags", instantiate);
    FIND(lib, LaunchFn, "cuGraphLaunch", launch_graph);
    flin_Call call = device_call(k);
    if (!begin || !end || !instantiate || !launch_graph) {
        printf("no graphs here\n");
        return;
    }
    expect(!begin(k->stream, 0), "recording begins");
    expect(flin_run(f, &call, NULL, &k->e) == FLIN_OK, k->e.message);
    expect(!end(k->stream, &graph) && graph, "recording ends");
    expect(graph && !instantiate(&exec, graph, 0), "a graph");
    for (int i = 0; exec && i < 3; i++) {
        poison(k, &k->y);
        device_sync(k->c, &k->d);
        expect(!launch_graph(exec, k->stream), "it runs");
        sync(k);
        expect(distance(k, &k->y) < 1e-4, "a graph's result");
    }
}

/* ---- the host's time ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Queues bunches that the GPU works off meanwhile; the best bunch counts. */
static double host_time(Test *k, flin_Kernel *f)
{
    enum { BUNCHES = 40, EACH = 25 };
    flin_Call call = device_call(k);
    double best = 1;
    call.cu_seqlens = NULL;
    call.nseq = 0;
    call.nfinal = 0;
    for (int b = 0; b < BUNCHES; b++) {
        double start = now();
        for (int i = 0; i < EACH; i++)
            flin_run(f, &call, NULL, &k->e);
        double each = (now() - start) / EACH;
        best = each < best ? each : best;
        device_sync(k->c, &k->d);
    }
    return best * 1e6;
}

/* A tensor of the host is refused by name, once a kernel would go there; the
 * GPU can be used as before. */
static void test_host(Test *k)
{
    flin_Call call = device_call(k);
    call.y = k->y.host;
    flin_Kernel *f = flin_prepare(k->v, FLIN_FORWARD, &call, &k->e);
    expect(f != NULL, k->e.message);
    expect(!f || flin_run(f, &call, NULL, &k->e) == FLIN_ERROR, "y is there");
    flin_free(f);
    expect(flin_forward(k->v, &call, &k->e) == FLIN_ERROR
              && strstr(k->e.message, "y: its data")
              && strstr(k->e.message, "is not the GPU's"), k->e.message);
}

/* Tensors without tokens have no memory, and may lie anywhere. */
static void test_empty(Test *k)
{
    flin_Bind bind[MAX_ARGS];
    flin_Call call = device_call(k);
    for (int i = 0; i < k->nin; i++) {
        bind[i] = k->bind[i];
        if (!strchr(k->in[i].arg.axes, 't'))
            continue;
        bind[i].tensor.shape[1] = 0;
        bind[i].tensor.data = k->in[i].host.data;
    }
    call.input = bind;
    call.y = k->y.host;
    call.y.shape[1] = 0;
    call.cu_seqlens = NULL;
    call.nseq = 0;
    call.nfinal = 0;
    expect(flin_forward(k->v, &call, &k->e) == FLIN_OK, k->e.message);
    flin_Bind dq = bind[0];
    dq.tensor.data = k->y.host.data;
    flin_Grad grad = { .size = sizeof grad, .dy = call.y, .dinput = &dq,
                       .ndinput = 1 };
    expect(flin_backward(k->v, &call, &grad, &k->e) == FLIN_OK,
           k->e.message);
}

/* ---- another road ---- */

static int turns;

static void count_turn(void *ud, const char *line)
{
    (void)ud;
    turns += strstr(line, "runs in its place") != NULL;
}

/* Of y, which is bfloat16. */
static double short_distance(Test *k)
{
    size_t n = (size_t)k->y.count;
    uint16_t *got = malloc(n * sizeof *got);
    const float *want = k->y.host.data;
    double error = 0, truth = 0;
    device_get(k->c, &k->d, got, (DevicePtr)(uintptr_t)k->y.device.data,
               n * sizeof *got);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)got[i] << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        error += (double)(x - want[i]) * (double)(x - want[i]);
        truth += (double)want[i] * (double)want[i];
    }
    free(got);
    return sqrt(error / truth);
}

/* Prepared for results of any type, a kernel compiles when it meets one: what
 * it then gets wrong is not used, and others are. */
static void test_turned(Test *k)
{
    flin_Call call = device_call(k), any = call;
    any.y = (flin_Tensor){ 0 };
    call.y.dtype = FLIN_BF16;
    flin_Kernel *f = flin_prepare(k->v, FLIN_FORWARD, &any, &k->e);
    expect(f != NULL, k->e.message);
    setenv("FAKE_WRONG", "first_slot(a.run, s, 64)", 1);
    for (int i = 0; f && i < 3; i++) {
        poison(k, &k->y);
        device_sync(k->c, &k->d);
        expect(flin_run(f, &call, NULL, &k->e) == FLIN_OK, k->e.message);
        sync(k);
        expect(short_distance(k) < 1e-2, "what runs in its place is right");
    }
    unsetenv("FAKE_WRONG");
    expect(turns == 1, "that another one runs is said once");
    flin_free(f);
}

static void run(Ctx *c, void *ud)
{
    Test *k = ud;
    CALL(&k->d, STREAM, create);
    make_tensors(k);
    driver_check(c, &k->d, create(&k->stream, 1), "a stream");
    flin_Call call = device_call(k), host = call;
    host.input = k->host_bind;
    host.final = k->host_states;
    host.y = k->y.host;
    host.backend = "cpu";
    expect(flin_forward(k->v, &host, &k->e) == FLIN_OK, k->e.message);
    if (k->turned || k->start || k->back) {
        (k->turned ? test_turned : k->back ? test_back : test_start)(k);
        if (k->start)
            test_begun(k);
        return;
    }
    expect(flin_forward(k->v, &call, &k->e) == FLIN_OK, k->e.message);
    sync(k);
    expect(distance(k, &k->y) < 1e-4, "a call that compiles");
    test_host(k);
    test_empty(k);
    flin_Kernel *f = flin_prepare(k->v, FLIN_FORWARD, &call, &k->e);
    expect(f != NULL, k->e.message);
    if (f && !k->both)                  /* where y looks back alone */
        test_left_out(k, f);
    if (f) {
        test_kernel(k, f);
        if (k->blocks)
            test_device_blocks(k);
        test_saved(k);
        test_graph(k, f);
    }
    if (f && !k->both && !k->blocks)    /* which tests run slowly */
        printf("host time of a prepared call: %.1f us\n",
               host_time(k, f));
    flin_free(f);
}

int main(int argc, char **argv)
{
    Test *k = calloc(1, sizeof *k);
    k->c = ctx_new();
    if (!driver_open(k->c, &k->d)) {
        printf("skip: %s\n", k->c->err.message);
        return 0;
    }
    const char *name = argc > 1 ? argv[1] : "gated_deltanet";
    k->turned = !strcmp(name, "turned");
    k->both = !strcmp(name, "both");
    k->start = !strcmp(name, "start");
    k->back = !strcmp(name, "back");
    k->begins = argc <= 2;              /* of its own rule */
    k->blocks = !strcmp(name, "keyed") || !strcmp(name, "sinks");
    k->window = k->blocks || !strcmp(name, "window");
    k->s = flin_open(&(flin_Options){ .size = sizeof(flin_Options),
                                      .log = count_turn }, &k->e);
    if (!strcmp(name, "softmax"))
        k->v = flin_load_string(k->s, "return require 'flin'.variant {\n"
            "name = 'softmax', normalise = 'softmax' }\n", NULL, &k->e);
    else if (!strcmp(name, "keyed"))
        k->v = flin_load_string(k->s, "local flin = require 'flin'\n"
            "return flin.variant { name = 'keyed', input = { g = 't k : "
            "log_decay' }, mask = function (i, j, p)\n"
            "  if i < j or i - j >= 40 then return 0 end\n"
            "  return flin.exp(p.g_cumsum[i] - p.g_cumsum[j]) end }\n",
            NULL, &k->e);
    else if (k->blocks)
        k->v = flin_load_string(k->s, "local flin = require 'flin'\n"
            "return flin.variant { name = 'sinks', input = { g = 't k : "
            "log_decay', b = 't' }, mask = function (i, j, p)\n"
            "  if i < j then return 0 end\n"
            "  if j < 3 then return p.b[j] end\n"
            "  if i - j >= 40 then return 0 end\n"
            "  return flin.exp(p.g_cumsum[i] - p.g_cumsum[j]) end }\n",
            NULL, &k->e);
    else if (k->window)
        k->v = flin_load_string(k->s, "local flin = require 'flin'\n"
            "return flin.variant { name = 'window', mask = function (i, j, p)\n"
            "  if i < j or i - j >= 40 then return 0 end\n"
            "  return p.b[j] * flin.exp(p.g_cumsum[i] - p.g_cumsum[j]) end }\n",
            NULL, &k->e);
    else if (k->both)
        k->v = flin_load_string(k->s, "local flin = require 'flin'\n"
            "return flin.variant { name = 'both', causal = false,\n"
            "mask = function (i, j, p)\n"
            "  local d = p.g_cumsum[i] - p.g_cumsum[j]\n"
            "  return flin.exp(i < j and -d or d) end }\n", NULL, &k->e);
    else
        k->v = flin_stdlib(k->s, k->turned ? "simple_gla"
                           : !k->back && !k->start ? name
                           : argc > 2 ? argv[2]
                           : k->back ? "gated_oja" : "gated_deltanet", &k->e);
    if (!k->v || !ctx_protect(k->c, run, k))
        expect(false, k->v ? k->c->err.message : k->e.message);
    flin_release(k->v);
    flin_close(k->s);
    return report();
}
