/* kernel.c -- gradients and kernels through flin.h: against the float64 step,
 * with strides, subsets and shared heads; what a kernel refuses; how long it
 * lives. */
#include <pthread.h>
#include <time.h>

#include "host.h"

enum { B = 2, T = 70, H = 2, D = 8 };

/* float32 sums over a few hundred terms */
static const double TOLERANCE = 2e-5;

/* One that no chunk form fits. */
static const char serial[] =
    "local flin = require 'flin'\n"
    "return flin.variant {\n"
    "  input = { k = 't k', v = 't v' }, state = { S = 'k v' },\n"
    "  step = function (x, s)\n"
    "    local S = flin.sigmoid(s.S) * s.S + flin.outer(x.k, x.v)\n"
    "    return { S = S }, flin.dot(x.k, S)\n"
    "  end }\n";

/* The gradients of a layer, and where they go. */
typedef struct Grads {
    flin_Bind in[MAX_ARGS], s0[MAX_ARGS], s1[MAX_ARGS];
    flin_Grad grad;
} Grads;

static Grads *grads_new(const Layer *l, flin_DType dtype)
{
    Grads *g = calloc(1, sizeof *g);
    uint32_t seed = 7;

    g->grad = (flin_Grad){ .size = sizeof g->grad, .dy = l->call.y,
                           .dinput = g->in, .dinitial = g->s0,
                           .dfinal = g->s1 };
    tensor_make(&g->grad.dy, l->call.y.dtype);
    tensor_draw(&g->grad.dy, "normal", &seed);
    for (int i = 0; i < l->call.ninputs; i++) {
        g->in[g->grad.ndinput] = l->in[i];
        tensor_make(&g->in[g->grad.ndinput++].tensor, dtype);
    }
    for (int i = 0; i < l->call.ninitial; i++) {
        g->s0[g->grad.ndinitial] = l->s0[i];
        tensor_make(&g->s0[g->grad.ndinitial++].tensor, dtype);
        g->s1[g->grad.ndfinal] = l->s1[i];
        tensor_make(&g->s1[g->grad.ndfinal].tensor, l->call.y.dtype);
        tensor_draw(&g->s1[g->grad.ndfinal++].tensor, "normal", &seed);
    }
    return g;
}

static void grads_free(Grads *g)
{
    for (int i = 0; i < MAX_ARGS; i++) {
        free(g->in[i].tensor.data);
        free(g->s0[i].tensor.data);
        free(g->s1[i].tensor.data);
    }
    free(g->grad.dy.data);
    free(g);
}

static double grads_apart(const Grads *a, const Grads *b)
{
    double worst = 0;

    for (int i = 0; i < a->grad.ndinput; i++)
        worst = fmax(worst, apart(&a->in[i].tensor, &b->in[i].tensor));
    for (int i = 0; i < a->grad.ndinitial; i++)
        worst = fmax(worst, apart(&a->s0[i].tensor, &b->s0[i].tensor));
    return worst;
}

/* ---- against the float64 step ---- */

static void test_gradients(flin_State *s, const char *what)
{
    flin_Error e;
    flin_Variant *v = flin_load(s, what, &e);
    Layer *l = layer_new(v, B, T, H, D, FLIN_F32);
    Grads *truth = grads_new(l, FLIN_F64), *g = grads_new(l, FLIN_F32);

    CHECK(!flin_reference_backward(v, &l->call, &truth->grad, &e));
    CHECK(!flin_backward(v, &l->call, &g->grad, &e));
    CHECK(grads_apart(truth, g) < TOLERANCE);
    flin_Kernel *k = flin_prepare(v, FLIN_BACKWARD, &l->call, &e);
    CHECK(k && !flin_run(k, &l->call, &g->grad, &e));
    CHECK(!flin_kernel_note(k) == (what != serial));
    CHECK(grads_apart(truth, g) < TOLERANCE);
    g->grad.dfinal = g->grad.dinitial = NULL;   /* y's part alone */
    g->grad.ndfinal = g->grad.ndinitial = 0;
    CHECK(!flin_run(k, &l->call, &g->grad, &e));
    CHECK(grads_apart(truth, g) > 1e-3);
    flin_free(k);
    grads_free(truth);
    grads_free(g);
    layer_free(l);
    flin_release(v);
}

/* q and k with one head for two, a constant, gradients with gaps. */
static void test_sums(flin_State *s)
{
    static const char text[] =
        "local flin = require 'flin'\n"
        "return flin.variant {\n"
        "  input = { k = 't k', v = 't v', w = 'k' }, state = { S = 'k v' },\n"
        "  step = function (x, s)\n"
        "    local S = s.S + flin.outer(x.w * x.k, x.v)\n"
        "    return { S = S }, flin.dot(x.k, S)\n"
        "  end }\n";
    flin_Error e;
    flin_Variant *v = flin_load(s, text, &e);
    Layer *l = layer_new(v, B, T, H, D, FLIN_F64);
    static double k1[B * T * D], dk[B * T * D * 3], dw[H * D * 2];

    /* the truth by hand: the gradient of a shared head is a sum */
    l->in[0].tensor.shape[2] = 1;
    memcpy(k1, l->in[0].tensor.data, sizeof k1);
    free(l->in[0].tensor.data);
    l->in[0].tensor.data = k1;
    Grads *truth = grads_new(l, FLIN_F64), *g = grads_new(l, FLIN_F32);
    CHECK(!flin_reference_backward(v, &l->call, &truth->grad, &e));
    flin_Bind wide[] = {
        { "k", { dk, FLIN_F64, 4, { B, T, 1, D },
                 { T * D * 3, D * 3, 1, 3 } } },
        { "w", { dw, FLIN_F64, 2, { H, D }, { 1, H } } },
    };
    g->grad.dinput = wide;              /* no dv */
    g->grad.ndinput = 2;
    CHECK(!flin_backward(v, &l->call, &g->grad, &e));
    double worst = 0;
    for (int i = 0; i < B * T * D; i++)
        worst = fmax(worst, fabs(dk[3 * i] - tensor_at(&truth->in[0].tensor,
                                                       i)));
    for (int h = 0; h < H; h++)
        for (int d = 0; d < D; d++)
            worst = fmax(worst, fabs(dw[d * H + h] - tensor_at(
                         &truth->in[2].tensor, h * D + d)) / T);
    CHECK(worst < 1e-3 && dk[1] == 0 && dw[1] != 0);
    CHECK(tensor_at(&g->in[1].tensor, 0) == 0);
    l->in[0].tensor.data = NULL;
    grads_free(truth);
    grads_free(g);
    layer_free(l);
    flin_release(v);
}

static void test_gradient_errors(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "linear", &e);
    Layer *l = layer_new(v, 1, 4, 1, D, FLIN_F32);
    Grads *g = grads_new(l, FLIN_F32);

    CHECK(flin_backward(v, &l->call, NULL, &e) == FLIN_ERROR && *e.help);
    g->in[0].name = "z";
    CHECK(flin_backward(v, &l->call, &g->grad, &e) == FLIN_ERROR
          && !strcmp(e.message, "backward: dinput: there is no input 'z'"));
    g->in[0].name = g->in[1].name;
    CHECK(flin_backward(v, &l->call, &g->grad, &e) == FLIN_ERROR
          && strstr(e.message, "is given twice"));
    g->in[0].name = "q";
    g->in[0].tensor.shape[1] = 3;
    CHECK(flin_backward(v, &l->call, &g->grad, &e) == FLIN_ERROR
          && !strcmp(e.message, "backward: dinput.q has shape [1, 3, 1, 8], "
                     "but [1, 4, 1, 8] is wanted"));
    g->in[0].tensor.shape[1] = 4;
    void *dy = g->grad.dy.data;
    g->grad.dy.data = NULL;
    g->grad.ndfinal = 0;
    CHECK(flin_backward(v, &l->call, &g->grad, &e) == FLIN_ERROR
          && strstr(e.message, "neither dy nor dfinal is given"));
    g->grad.ndfinal = 1;
    g->s1[0].tensor.shape[3] = 1;
    CHECK(flin_backward(v, &l->call, &g->grad, &e) == FLIN_ERROR
          && strstr(e.message, "dfinal.S has shape [1, 1, 8, 1]"));
    g->grad.ndfinal = 0;
    g->grad.dy.data = dy;
    g->grad.dy.rank = 3;
    CHECK(flin_backward(v, &l->call, &g->grad, &e) == FLIN_ERROR);
    grads_free(g);
    layer_free(l);
    flin_release(v);
}

/* ---- kernels ---- */

static void test_modes(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "gated_deltanet", &e);
    Layer *l = layer_new(v, B, T, H, D, FLIN_F32);
    flin_Tensor y = l->call.y, truth = l->call.y;

    tensor_make(&truth, FLIN_F64);
    l->call.y = truth;
    flin_Kernel *k = flin_prepare(v, FLIN_REFERENCE, &l->call, &e);
    CHECK(k && !flin_run(k, &l->call, NULL, &e));
    CHECK(flin_workspace(k, &l->call) == 0);
    flin_free(k);
    l->call.y = y;
    k = flin_prepare(v, FLIN_FORWARD, &l->call, &e);
    CHECK(k && !flin_run(k, &l->call, NULL, &e));
    CHECK(apart(&truth, &y) < TOLERANCE && !flin_kernel_note(k));
    CHECK(flin_prepare(v, (flin_Mode)9, &l->call, &e) == NULL && e.code);
    flin_free(k);

    Layer *one = layer_new(v, 3, 1, 1, D, FLIN_F32);
    k = flin_prepare(v, FLIN_STEP, &one->call, &e);
    CHECK(k && !flin_run(k, &one->call, NULL, &e));
    y = one->call.y;
    tensor_make(&one->call.y, FLIN_F32);
    CHECK(!flin_forward(v, &one->call, &e));
    CHECK(apart(&one->call.y, &y) < TOLERANCE);
    CHECK(flin_run(k, &l->call, NULL, &e) == FLIN_ERROR);
    flin_free(k);
    free(y.data);
    free(truth.data);
    layer_free(one);
    layer_free(l);
    flin_release(v);
}

/* Prepared with shapes alone; B, T and heads are free, the rest is not. */
static void test_likeness(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "gla", &e);
    Layer *l = layer_new(v, B, T, H, D, FLIN_F32);
    Layer *other = layer_new(v, 1, 3, 5, D, FLIN_F32);
    Layer *wide = layer_new(v, 1, 3, 1, D + 1, FLIN_F32);
    Layer *exact = layer_new(v, 1, 3, 1, D, FLIN_F64);
    flin_Bind in[MAX_ARGS];
    flin_Call like = { .size = sizeof like, .input = in,
                       .ninputs = l->call.ninputs, .chunk = 16 };

    memcpy(in, l->in, sizeof in);
    for (int i = 0; i < like.ninputs; i++)
        in[i].tensor.data = NULL;
    flin_Kernel *k = flin_prepare(v, FLIN_FORWARD, &like, &e);
    CHECK(k && !flin_run(k, &l->call, NULL, &e));
    CHECK(!flin_run(k, &other->call, NULL, &e));
    CHECK(flin_workspace(k, &like) >= 0);
    CHECK(flin_run(k, &wide->call, NULL, &e) == FLIN_ERROR
          && strstr(e.message, "axis 'k' is 9, but the kernel was prepared "
                    "for 8"));
    CHECK(flin_workspace(k, &wide->call) == -1);
    CHECK(flin_run(k, &exact->call, NULL, &e) == FLIN_ERROR
          && strstr(e.message, "is float64, but the kernel was prepared for "
                    "float32"));
    l->call.chunk = 32;
    CHECK(flin_run(k, &l->call, NULL, &e) == FLIN_ERROR
          && strstr(e.message, "prepared for 16"));
    l->call.chunk = 0;
    l->call.workspace = (void *)1;      /* a field that an old host lacks */
    l->call.size = offsetof(flin_Call, workspace);
    CHECK(!flin_run(k, &l->call, NULL, &e));
    CHECK(flin_run(k, &like, NULL, &e) == FLIN_ERROR);  /* no data */
    flin_free(k);
    layer_free(l);
    layer_free(other);
    layer_free(wide);
    layer_free(exact);
    flin_release(v);
}

/* ---- saved ---- */

/* By a variant's functions, or by one kernel of both passes. */
static int go(flin_Variant *v, flin_Kernel *k, const flin_Call *call,
              const flin_Grad *grad, flin_Error *e)
{
    if (k)
        return flin_run(k, call, grad, e);
    return grad ? flin_backward(v, call, grad, e) : flin_forward(v, call, e);
}

static void check_saved_errors(flin_Variant *v, Layer *l, Grads *g)
{
    flin_Error e;
    flin_Kernel *k = flin_prepare(v, FLIN_FORWARD, &l->call, &e);

    CHECK(flin_run(k, &l->call, NULL, &e) == FLIN_ERROR
          && !strcmp(e.message, "forward: saved is for a kernel that goes "
                     "backwards, too"));
    flin_free(k);
    CHECK(flin_reference(v, &l->call, &e) == FLIN_ERROR && *e.help);
    l->call.saved_size--;
    CHECK(flin_forward(v, &l->call, &e) == FLIN_ERROR
          && strstr(e.message, "forward: saved_size = "));
    CHECK(flin_backward(v, &l->call, &g->grad, &e) == FLIN_ERROR
          && strstr(e.message, "backward: saved_size = "));
    l->call.saved_size++;
    l->call.saved = (char *)l->call.saved + 8;
    CHECK(flin_forward(v, &l->call, &e) == FLIN_ERROR
          && strstr(e.message, "saved is not aligned"));
    l->call.saved = (char *)l->call.saved - 8;
}

/* What forward leaves gives backward the same gradients, and is what it
 * reads; where nothing is to be left, both do their work all the same. */
static void test_saved(flin_State *s, const char *what, bool prepare)
{
    flin_Error e;
    flin_Variant *v = flin_load(s, what, &e);
    Layer *l = layer_new(v, B, T, H, D, FLIN_F32);
    Grads *whole = grads_new(l, FLIN_F32), *g = grads_new(l, FLIN_F32);
    flin_Kernel *k = prepare ? flin_prepare(v, FLIN_BACKWARD, &l->call, &e)
                             : NULL;
    flin_Tensor y = l->call.y;

    CHECK(!go(v, k, &l->call, &whole->grad, &e) && whole->grad.ndinput);
    CHECK(!flin_forward(v, &l->call, &e));
    int64_t n = k ? flin_kernel_saved(k, &l->call)
                  : flin_saved(v, &l->call, &e);
    CHECK((n > 0) == (what != serial));
    void *room = aligned_alloc(256, (size_t)n + 512 - (size_t)n % 256);
    memset(room, 0xff, (size_t)n + 1);          /* NaN */
    tensor_make(&l->call.y, FLIN_F32);
    l->call.saved = room;
    l->call.saved_size = (size_t)n;
    CHECK(!go(v, k, &l->call, NULL, &e));
    CHECK(apart(&y, &l->call.y) < TOLERANCE);
    CHECK(((unsigned char *)room)[n] == 0xff);
    CHECK(!go(v, k, &l->call, &g->grad, &e) && grads_apart(whole, g) == 0);
    memset(room, 0xff, (size_t)n);
    CHECK(!go(v, k, &l->call, &g->grad, &e));
    CHECK((grads_apart(whole, g) == 0) == (n == 0));
    if (n && !k)
        check_saved_errors(v, l, g);
    free(room);
    free(y.data);
    flin_free(k);
    grads_free(whole);
    grads_free(g);
    layer_free(l);
    flin_release(v);
}

/* Without `saved` a kernel of both passes goes forward, too; its workspace is
 * smaller with it. */
static void test_saved_room(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "gla", &e);
    Layer *l = layer_new(v, B, T, H, D, FLIN_F32);
    flin_Kernel *k = flin_prepare(v, FLIN_BACKWARD, &l->call, &e);
    int64_t saved = flin_kernel_saved(k, &l->call);
    int64_t need = flin_workspace(k, &l->call);

    CHECK(!flin_run(k, &l->call, NULL, &e));
    l->call.saved = l;                  /* anything: not looked at */
    l->call.saved = (char *)l->call.saved - (uintptr_t)l % 256;
    CHECK(flin_workspace(k, &l->call) + saved <= need + 64);
    l->call.saved = NULL;
    l->call.ninputs--;
    CHECK(flin_kernel_saved(k, &l->call) == -1);
    CHECK(flin_saved(v, &l->call, &e) == -1 && strstr(e.message, "missing"));
    l->call.ninputs++;
    flin_free(k);
    k = flin_prepare(v, FLIN_REFERENCE_BACKWARD, &l->call, &e);
    CHECK(flin_kernel_saved(k, &l->call) == 0);
    CHECK(flin_run(k, &l->call, NULL, &e) == FLIN_ERROR && *e.help);
    flin_free(k);
    layer_free(l);
    flin_release(v);
}

/* ---- memory and threads of the host ---- */

static int allocated, shared;

static void *counted(void *ud, void *p, size_t old, size_t size)
{
    (void)ud;
    (void)old;
    allocated += size > 1 << 14;
    if (size)
        return realloc(p, size);
    free(p);
    return NULL;
}

/* All the workers, one after the other, last one first. */
static void in_turn(void *ud, int n, void (*f)(void *arg, int w), void *arg)
{
    (void)ud;
    shared++;
    for (int w = n - 1; w >= 0; w--)
        f(arg, w);
}

static void test_workspace(flin_State *s, const char *what, flin_Mode mode)
{
    flin_Error e;
    flin_Variant *v = flin_load(s, what, &e);
    Layer *l = layer_new(v, B, 4 * T, H, D, FLIN_F32);
    Grads *g = grads_new(l, FLIN_F32), *h = grads_new(l, FLIN_F32);
    bool back = mode == FLIN_BACKWARD;

    l->call.threads = 3;
    flin_Kernel *k = flin_prepare(v, mode, &l->call, &e);
    int64_t need = flin_workspace(k, &l->call);
    CHECK(need > 0);
    CHECK(!flin_run(k, &l->call, back ? &g->grad : NULL, &e));
    char *all = malloc((size_t)need + 512), *end;
    memset(all, 0x55, (size_t)need + 512);
    l->call.workspace = all + (256 - (uintptr_t)all % 256);
    end = (char *)l->call.workspace + need;
    l->call.workspace_size = (size_t)need;
    flin_Tensor y = l->call.y;
    tensor_make(&l->call.y, FLIN_F32);
    int before = allocated, turns = shared;
    CHECK(!flin_run(k, &l->call, back ? &h->grad : NULL, &e));
    CHECK((what == serial || shared > turns) && *end == 0x55);
    CHECK((back || apart(&y, &l->call.y) == 0) && grads_apart(g, h) == 0);
    CHECK(back || allocated - before <= 3);     /* the call's own blocks */
    l->call.workspace_size--;
    CHECK(flin_run(k, &l->call, back ? &g->grad : NULL, &e) == FLIN_ERROR
          && strstr(e.message, "workspace has"));
    l->call.workspace = (char *)l->call.workspace + 8;
    CHECK(flin_run(k, &l->call, back ? &g->grad : NULL, &e) == FLIN_ERROR
          && strstr(e.message, "aligned"));
    free(all);
    free(y.data);
    flin_free(k);
    grads_free(g);
    grads_free(h);
    layer_free(l);
    flin_release(v);
}

/* ---- threads and lives ---- */

enum { THREADS = 4, TURNS = 20 };

typedef struct Server {
    flin_Kernel *k;
    Layer *l;
    flin_Tensor y;
    int ok;
} Server;

static void *serve(void *ud)
{
    Server *s = ud;
    flin_Call call = s->l->call;
    flin_Error e;

    call.y = s->y;
    call.nfinal = 0;
    for (int i = 0; i < TURNS; i++) {
        memset(s->y.data, 0xff, (size_t)tensor_count(&s->y) * 4);
        s->ok += !flin_run(s->k, &call, NULL, &e)
            && !memcmp(s->y.data, s->l->call.y.data,
                       (size_t)tensor_count(&s->y) * 4);
    }
    flin_free(s->k);
    return NULL;
}

/* Several threads run one kernel after its state is gone. */
static void test_threads(void)
{
    flin_Error e;
    flin_State *s = flin_open(NULL, &e);
    flin_Variant *v = flin_stdlib(s, "deltanet", &e);
    Layer *l = layer_new(v, B, T, H, D, FLIN_F32);
    flin_Kernel *k = flin_prepare(v, FLIN_FORWARD, &l->call, &e);
    Server server[THREADS] = { { .ok = 0 } };
    pthread_t thread[THREADS];

    l->call.threads = 0;
    CHECK(k && !flin_forward(v, &l->call, &e));
    flin_close(s);
    for (int i = 0; i < THREADS; i++) {
        server[i] = (Server){ .k = k, .l = l, .y = l->call.y };
        tensor_make(&server[i].y, FLIN_F32);
        flin_retain(k);
        pthread_create(&thread[i], NULL, serve, &server[i]);
    }
    flin_free(k);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        CHECK(server[i].ok == TURNS);
        free(server[i].y.data);
    }
    flin_free(NULL);
    flin_retain(NULL);
    layer_free(l);
}

/* Threads of this process; 0: not known. */
static int count_threads(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    int n = 0;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Threads: %d", &n) == 1)
            break;
    if (f)
        fclose(f);
    return n;
}

/* The kernels of a state share its threads, which end with the last of them.
 */
static void test_pool(void)
{
    enum { KERNELS = 3 };
    static const char *const name[KERNELS] = { "gla", "deltanet", "linear" };
    int before = count_threads(), after[KERNELS];
    flin_Kernel *k[KERNELS];
    flin_State *s = flin_open(NULL, NULL);

    for (int i = 0; i < KERNELS; i++) {
        flin_Variant *v = flin_stdlib(s, name[i], NULL);
        Layer *l = layer_new(v, B, 8 * T, H, D, FLIN_F32);
        l->call.threads = 3;
        k[i] = flin_prepare(v, FLIN_FORWARD, &l->call, NULL);
        CHECK(!flin_run(k[i], &l->call, NULL, NULL));
        after[i] = count_threads();
        layer_free(l);
    }
    CHECK(!before || after[0] > before);
    CHECK(after[1] == after[0] && after[2] == after[0]);
    flin_close(s);
    for (int i = 0; i < KERNELS; i++) {
        CHECK(count_threads() == after[0]);
        flin_free(k[i]);
    }
    /* a thread that has been joined may still be listed for a moment */
    for (int i = 0; i < 1000 && count_threads() > before; i++)
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    CHECK(count_threads() == before);
}

/* ---- shapes ---- */

static void test_shapes(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "gla", &e);
    Layer *l = layer_new(v, B, T, H, D, FLIN_BF16);
    flin_Tensor t;
    int y = l->call.ninputs;

    CHECK(!flin_shape(v, &l->call, y, &t, &e));
    CHECK(t.rank == 4 && t.shape[0] == B && t.shape[1] == T && t.shape[2] == H
          && t.shape[3] == D && t.dtype == FLIN_BF16 && !t.data);
    int64_t cu[] = { 0, 3, T, T };
    for (int i = 0; i < l->call.ninputs; i++)
        l->in[i].tensor.shape[0] = 1;
    l->call.cu_seqlens = cu;
    l->call.nseq = 3;
    l->call.ninitial = 0;
    CHECK(!flin_shape(v, &l->call, y + 1, &t, &e));
    CHECK(t.rank == 4 && t.shape[0] == 3 && t.shape[1] == H && t.shape[2] == D
          && t.dtype == FLIN_F32);
    CHECK(flin_shape(v, &l->call, 0, &t, &e) == FLIN_ERROR);
    CHECK(flin_shape(v, &l->call, y + 2, &t, &e) == FLIN_ERROR);
    CHECK(flin_axis_size(v, "k") == 0 && flin_axis_size(v, "x") == -1
          && flin_axis_size(v, "i") == -1);
    CHECK(!strcmp(flin_stdlib_name(s, 0), "comba")
          && !flin_stdlib_name(s, 1000));
    l->call.ninitial = l->call.nfinal;
    layer_free(l);
    flin_release(v);
}

/* A call without tokens has no addresses. */
static void test_empty(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "gla", &e);
    Layer *l = layer_new(v, B, 0, H, D, FLIN_F32);

    for (int i = 0; i < l->call.ninputs; i++) {
        free(l->in[i].tensor.data);
        l->in[i].tensor.data = NULL;
    }
    free(l->call.y.data);
    l->call.y.data = NULL;
    CHECK(!flin_forward(v, &l->call, &e));
    CHECK(apart(&l->s0[0].tensor, &l->s1[0].tensor) == 0);
    layer_free(l);
    flin_release(v);
}

int main(void)
{
    flin_Error e;
    flin_Options o = { .size = sizeof o, .alloc = counted,
                       .parallel = in_turn };
    flin_State *s = flin_open(&o, &e);

    CHECK(s != NULL);
    test_workspace(s, "gated_deltanet", FLIN_FORWARD);
    test_workspace(s, "gla", FLIN_BACKWARD);
    test_workspace(s, serial, FLIN_BACKWARD);
    test_gradients(s, "gla");
    test_gradients(s, "gated_deltanet");
    test_gradients(s, serial);
    test_sums(s);
    test_gradient_errors(s);
    for (int prepare = 0; prepare < 2; prepare++) {
        test_saved(s, "gla", prepare);
        test_saved(s, "mlstm", prepare);
        test_saved(s, serial, prepare);
    }
    test_saved_room(s);
    test_modes(s);
    test_likeness(s);
    test_shapes(s);
    test_empty(s);
    flin_close(s);
    test_threads();
    test_pool();
    return report();
}
