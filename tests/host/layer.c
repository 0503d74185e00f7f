/* layer.c -- flin.h: a layer, called, prepared, by several threads at a time,
 * token by token; against its float64 step. */
#include <pthread.h>

#include "host.h"

enum { B = 2, T = 33, D = 6, H = 2, K = 4, W = 3, NIN = 4 };

static const char text[] =
    "local flin = require 'flin'\n"
    "return flin.layer {\n"
    "  name = 'small', input = { x = 't d' },\n"
    "  weight = { A = 'd h k', C = 'h k d', c = 'h k w' },\n"
    "  forward = function (x, w)\n"
    "    local k = flin.conv(flin.dot(x.x, w.A), w.c)\n"
    "    local u = flin.rename(k, 'k', 'v')\n"
    "    local y = flin.stdlib.linear { q = k, k = flin.silu(k), v = u }\n"
    "    return x.x + flin.dot(flin.rename(y, 'v', 'k'), w.C)\n"
    "  end }\n";

/* Tensors of a call, in float32 or float64 where `exact`. */
typedef struct Set {
    flin_Bind in[NIN], s0[2], s1[2], dx[NIN], ds[2];
    flin_Tensor dy;
    flin_Call call;
    flin_Grad grad;
} Set;

static const flin_Tensor shapes[NIN] = {
    { .rank = 3, .shape = { B, T, D } }, { .rank = 3, .shape = { D, H, K } },
    { .rank = 3, .shape = { H, K, D } }, { .rank = 3, .shape = { H, K, W } }
};
static const flin_Tensor states[2] = {
    { .rank = 4, .shape = { B, H, K, W } },
    { .rank = 4, .shape = { B, H, K, K } }
};

static flin_Bind bind(const char *name, flin_Tensor t, flin_DType dtype,
                      uint32_t *seed)
{
    flin_Bind b = { name, t };

    tensor_make(&b.tensor, dtype);
    if (seed)
        tensor_draw(&b.tensor, "normal", seed);
    return b;
}

static Set *set_new(flin_DType results)
{
    static const char *const in[] = { "x", "A", "C", "c" };
    static const char *const state[] = { "conv_c", "linear_S" };
    Set *s = calloc(1, sizeof *s);
    uint32_t seed = 5;

    for (int i = 0; i < NIN; i++) {
        s->in[i] = bind(in[i], shapes[i], FLIN_F32, &seed);
        s->dx[i] = bind(in[i], shapes[i], results, NULL);
    }
    for (int i = 0; i < 2; i++) {
        s->s0[i] = bind(state[i], states[i], FLIN_F32, &seed);
        s->s1[i] = bind(state[i], states[i], results, NULL);
        s->ds[i] = bind(state[i], states[i], results, NULL);
    }
    s->dy = bind("y", shapes[0], FLIN_F32, &seed).tensor;
    s->call = (flin_Call){ .size = sizeof s->call, .input = s->in,
        .ninputs = NIN, .initial = s->s0, .ninitial = 2, .final = s->s1,
        .nfinal = 2, .y = bind("y", shapes[0], results, NULL).tensor };
    s->grad = (flin_Grad){ .size = sizeof s->grad, .dy = s->dy,
        .dinput = s->dx, .ndinput = NIN, .dinitial = s->ds, .ndinitial = 2 };
    return s;
}

static void set_free(Set *s)
{
    for (int i = 0; i < NIN; i++) {
        free(s->in[i].tensor.data);
        free(s->dx[i].tensor.data);
    }
    for (int i = 0; i < 2; i++) {
        free(s->s0[i].tensor.data);
        free(s->s1[i].tensor.data);
        free(s->ds[i].tensor.data);
    }
    free(s->dy.data);
    free(s->call.y.data);
    free(s);
}

static double results_apart(const Set *a, const Set *b)
{
    double e = apart(&a->call.y, &b->call.y);

    for (int i = 0; i < 2; i++)
        e = fmax(e, apart(&a->s1[i].tensor, &b->s1[i].tensor));
    return e;
}

static double gradients_apart(const Set *a, const Set *b)
{
    double e = 0;

    for (int i = 0; i < NIN; i++)
        e = fmax(e, apart(&a->dx[i].tensor, &b->dx[i].tensor));
    for (int i = 0; i < 2; i++)
        e = fmax(e, apart(&a->ds[i].tensor, &b->ds[i].tensor));
    return e;
}

static const double TOLERANCE = 1e-4;   /* float32, against the largest */

static void test_arguments(flin_Variant *v)
{
    flin_Tensor t;
    flin_Error e;
    flin_Arg a;
    Set *s = set_new(FLIN_F32);

    CHECK(flin_args(v) == NIN + 3);
    CHECK(flin_arg(v, 1, &a) && !strcmp(a.name, "A")
          && !strcmp(a.axes, "d h k"));
    CHECK(flin_arg(v, NIN + 1, &a) && !strcmp(a.name, "conv_c"));
    CHECK(!flin_shape(v, &s->call, NIN, &t, &e) && t.rank == 3
          && t.shape[2] == D);
    CHECK(!flin_shape(v, &s->call, NIN + 2, &t, &e) && t.rank == 4
          && t.shape[1] == H && t.shape[3] == K);
    CHECK(flin_saved(v, &s->call, &e) == 0);
    set_free(s);
}

static void test_calls(flin_Variant *v)
{
    flin_Error e;
    Set *truth = set_new(FLIN_F64), *s = set_new(FLIN_F32);

    CHECK(!flin_reference(v, &truth->call, &e));
    CHECK(!flin_reference_backward(v, &truth->call, &truth->grad, &e));
    CHECK(!flin_forward(v, &s->call, &e));
    CHECK(results_apart(s, truth) < TOLERANCE);
    CHECK(!flin_backward(v, &s->call, &s->grad, &e));
    CHECK(gradients_apart(s, truth) < TOLERANCE);
    CHECK(!flin_note(v));
    s->call.backend = "cuda";
    CHECK(flin_forward(v, &s->call, &e));
    set_free(truth);
    set_free(s);
}

/* Gradients of weights are added to what there is, that of x is not. */
static void test_sums(flin_Variant *v)
{
    flin_Error e;
    Set *once = set_new(FLIN_F32), *sum = set_new(FLIN_F32);
    flin_Tensor *a = &sum->dx[1].tensor;

    CHECK(!flin_backward(v, &once->call, &once->grad, &e));
    sum->grad.add = 1;
    for (int i = 0; i < 2; i++)
        CHECK(!flin_backward(v, &sum->call, &sum->grad, &e));
    CHECK(apart(&sum->dx[0].tensor, &once->dx[0].tensor) == 0);
    for (int i = 1; i < NIN; i++) {
        float *x = once->dx[i].tensor.data;
        for (int64_t j = 0; j < tensor_count(&once->dx[i].tensor); j++)
            x[j] *= 2;
        CHECK(apart(&sum->dx[i].tensor, &once->dx[i].tensor) < 1e-6);
    }
    a->dtype = FLIN_BF16;
    CHECK(flin_backward(v, &sum->call, &sum->grad, &e) == FLIN_ERROR
          && strstr(e.message, "added up in float32"));
    a->dtype = FLIN_F32;
    set_free(once);
    set_free(sum);
}

typedef struct Job { flin_Kernel *k; Set *s; int failed; } Job;

static void *run(void *ud)
{
    Job *j = ud;
    flin_Error e;

    for (int i = 0; i < 5; i++) {
        j->failed |= flin_run(j->k, &j->s->call, NULL, &e);
        j->failed |= flin_run(j->k, &j->s->call, &j->s->grad, &e);
    }
    return NULL;
}

/* Its state ends before it runs. */
static void test_kernel(void)
{
    flin_Error e;
    flin_State *state = flin_open(NULL, &e);
    flin_Variant *v = flin_load(state, text, &e);
    Set *truth = set_new(FLIN_F64), *like = set_new(FLIN_F32);
    Job job[3];
    pthread_t thread[3];

    flin_reference(v, &truth->call, &e);
    flin_reference_backward(v, &truth->call, &truth->grad, &e);
    flin_Kernel *k = flin_prepare(v, FLIN_BACKWARD, &like->call, &e);
    CHECK(k);
    flin_close(state);
    CHECK(!flin_kernel_note(k));
    for (int i = 0; i < 3; i++) {
        job[i] = (Job){ .k = k, .s = set_new(FLIN_F32) };
        job[i].s->call.threads = i;
        pthread_create(&thread[i], NULL, run, &job[i]);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
        CHECK(!job[i].failed);
        CHECK(results_apart(job[i].s, truth) < TOLERANCE);
        CHECK(gradients_apart(job[i].s, truth) < TOLERANCE);
        set_free(job[i].s);
    }
    flin_free(k);
    set_free(truth);
    set_free(like);
}

/* The states go from token to token in place. */
static void test_decoding(flin_Variant *v)
{
    flin_Error e;
    Set *truth = set_new(FLIN_F64), *s = set_new(FLIN_F32);
    flin_Tensor *x = &s->in[0].tensor, *y = &s->call.y;

    CHECK(!flin_reference(v, &truth->call, &e));
    for (flin_Tensor *t = x; t; t = t == x ? y : NULL) {
        t->shape[1] = 1;
        t->stride[0] = T * D;
        t->stride[1] = D;
        t->stride[2] = 1;
    }
    s->call.final = s->s0;
    flin_Kernel *k = flin_prepare(v, FLIN_STEP, &s->call, &e);
    CHECK(k);
    flin_Call one = s->call;
    flin_Bind in[NIN];
    memcpy(in, s->in, sizeof in);
    one.input = in;
    for (int t = 0; t < T; t++) {
        in[0].tensor.data = (float *)x->data + t * D;
        one.y.data = (float *)y->data + t * D;
        CHECK(!(t % 2 ? flin_run(k, &one, NULL, &e) : flin_step(v, &one, &e)));
    }
    y->shape[1] = T;
    CHECK(apart(y, &truth->call.y) < TOLERANCE);
    for (int i = 0; i < 2; i++)
        CHECK(apart(&s->s0[i].tensor, &truth->s1[i].tensor) < TOLERANCE);
    flin_free(k);
    set_free(truth);
    set_free(s);
}

/* Parts apart, and as much as can be in calls; a kernel keeps to its own. */
static void test_plans(flin_Variant *v)
{
    static const char *const plans[] = { "separate", "fused", NULL };
    flin_Error e;
    Set *truth = set_new(FLIN_F64), *s = set_new(FLIN_F32);

    CHECK(!flin_reference(v, &truth->call, &e));
    CHECK(!flin_reference_backward(v, &truth->call, &truth->grad, &e));
    for (int i = 0; i < 3; i++) {
        s->call.plan = plans[i];
        CHECK(!flin_forward(v, &s->call, &e));
        CHECK(results_apart(s, truth) < TOLERANCE);
        CHECK(!flin_backward(v, &s->call, &s->grad, &e));
        CHECK(gradients_apart(s, truth) < TOLERANCE);
    }
    s->call.plan = "fused";
    flin_Kernel *k = flin_prepare(v, FLIN_BACKWARD, &s->call, &e);
    CHECK(k && !flin_run(k, &s->call, &s->grad, &e));
    CHECK(gradients_apart(s, truth) < TOLERANCE);
    s->call.plan = "separate";
    CHECK(k && flin_run(k, &s->call, NULL, &e) == FLIN_ERROR
          && strstr(e.message, "prepared for another plan"));
    s->call.plan = "one";
    CHECK(flin_forward(v, &s->call, &e) == FLIN_ERROR
          && strstr(e.message, "there is no plan 'one'"));
    flin_free(k);
    set_free(truth);
    set_free(s);
}

static void test_refusals(flin_State *state, flin_Variant *v)
{
    flin_Error e;
    Set *s = set_new(FLIN_F32);

    s->in[1].tensor.shape[1] = 3;
    REFUSED(flin_forward(v, &s->call, &e), "axis 'h' is 3 in A, but 2 in C");
    s->in[1].tensor.rank = 4;
    REFUSED(flin_forward(v, &s->call, &e), "but [d, h, k] is wanted");
    CHECK(!flin_prepare(v, FLIN_FORWARD, &s->call, &e));
    CHECK(!flin_load(state, "return require'flin'.layer {\n}", &e)
          && strstr(e.message, "forward is missing"));
    CHECK(!flin_plan(v, "machine = \"z\"", FLIN_TEXT, &e));
    const char *plan = flin_plan(v, "machine = \"cpu\"", FLIN_TEXT, &e);
    CHECK(plan && strstr(plan, "product"));
    set_free(s);
}

int main(void)
{
    flin_Error e;
    flin_State *s = flin_open(NULL, &e);
    flin_Variant *v = flin_load(s, text, &e);

    CHECK(v);
    if (v) {
        test_arguments(v);
        test_calls(v);
        test_sums(v);
        test_plans(v);
        test_kernel();
        test_decoding(v);
        test_refusals(s, v);
    } else {
        printf("%s\n", e.text);
    }
    flin_close(s);
    return report();
}
