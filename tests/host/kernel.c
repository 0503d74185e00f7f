/* kernel.c -- kernels through flin.h: their modes, what they refuse, memory
 * and threads of the host, how long they live. */
#include <pthread.h>
#include <time.h>

#include "grads.h"

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
    REFUSED(flin_run(k, &wide->call, NULL, &e),
            "axis 'k' is 9, but the kernel was prepared for 8");
    CHECK(flin_workspace(k, &wide->call) == -1);
    REFUSED(flin_run(k, &exact->call, NULL, &e),
            "is float64, but the kernel was prepared for float32");
    l->call.chunk = 32;
    REFUSED(flin_run(k, &l->call, NULL, &e), "prepared for 16");
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
    REFUSED(flin_run(k, &l->call, back ? &g->grad : NULL, &e), "workspace has");
    l->call.workspace = (char *)l->call.workspace + 8;
    REFUSED(flin_run(k, &l->call, back ? &g->grad : NULL, &e), "aligned");
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

/* A thread that has been joined may still be listed for a moment. */
static void settle(int threads)
{
    for (int i = 0; i < 10000 && count_threads() > threads; i++)
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

/* The kernels of a state share its threads, which end with the last of them.
 * `before`: the threads of a process without states. */
static void test_pool(int before)
{
    enum { KERNELS = 3 };
    static const char *const name[KERNELS] = { "gla", "deltanet", "linear" };
    int after[KERNELS];
    flin_Kernel *k[KERNELS];
    flin_State *s = flin_open(NULL, NULL);

    settle(before);
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
    settle(before);
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
    CHECK(!strcmp(flin_stdlib_name(s, 0), "abc")
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
    int threads = count_threads();
#ifdef __SANITIZE_THREAD__
    threads += threads > 0;             /* its own, from the first on */
#endif
    flin_State *s = flin_open(&o, &e);

    CHECK(s != NULL);
    test_workspace(s, "gated_deltanet", FLIN_FORWARD);
    test_workspace(s, "gla", FLIN_BACKWARD);
    test_workspace(s, serial, FLIN_BACKWARD);
    test_modes(s);
    test_likeness(s);
    test_shapes(s);
    test_empty(s);
    flin_close(s);
    test_threads();
    test_pool(threads);
    return report();
}
