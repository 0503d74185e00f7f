/* gradients.c -- gradients through flin.h: against the float64 step, with
 * strides, subsets and shared heads; from what forward has saved. */
#include "grads.h"

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
    REFUSED(flin_backward(v, &l->call, &g->grad, &e),
            "backward: dinput: there is no input 'z'");
    g->in[0].name = g->in[1].name;
    REFUSED(flin_backward(v, &l->call, &g->grad, &e), "is given twice");
    g->in[0].name = "q";
    g->in[0].tensor.shape[1] = 3;
    REFUSED(flin_backward(v, &l->call, &g->grad, &e), "backward: dinput.q has "
            "shape [1, 3, 1, 8], but [1, 4, 1, 8] is wanted");
    g->in[0].tensor.shape[1] = 4;
    void *dy = g->grad.dy.data;
    g->grad.dy.data = NULL;
    g->grad.ndfinal = 0;
    REFUSED(flin_backward(v, &l->call, &g->grad, &e),
            "neither dy nor dfinal is given");
    g->grad.ndfinal = 1;
    g->s1[0].tensor.shape[3] = 1;
    REFUSED(flin_backward(v, &l->call, &g->grad, &e),
            "dfinal.S has shape [1, 1, 8, 1]");
    g->grad.ndfinal = 0;
    g->grad.dy.data = dy;
    g->grad.dy.rank = 3;
    CHECK(flin_backward(v, &l->call, &g->grad, &e) == FLIN_ERROR);
    grads_free(g);
    layer_free(l);
    flin_release(v);
}

/* ---- saved ---- */

/* A variant's functions, or, where there is one, a kernel of both passes; the
 * layer saves, and `whole` are the gradients without that. */
typedef struct Training {
    flin_Variant *v;
    flin_Kernel *k;
    Layer *l;
    Grads *whole, *g;
    flin_Saved saved;
} Training;

static int go(const Training *t, const flin_Grad *grad, flin_Error *e)
{
    if (t->k)
        return flin_run(t->k, &t->l->call, grad, e);
    return grad ? flin_backward(t->v, &t->l->call, grad, e)
                : flin_forward(t->v, &t->l->call, e);
}

static Training training_new(flin_State *s, const char *what, bool prepare)
{
    flin_Error e;
    Training t = { .v = flin_load(s, what, &e) };

    t.l = layer_new(t.v, B, T, H, D, FLIN_F32);
    t.whole = grads_new(t.l, FLIN_F32);
    t.g = grads_new(t.l, FLIN_F32);
    if (prepare)
        t.k = flin_prepare(t.v, FLIN_BACKWARD, &t.l->call, &e);
    CHECK(!go(&t, &t.whole->grad, &e) && t.whole->grad.ndinput);
    int64_t n = t.k ? flin_kernel_saved(t.k, &t.l->call)
                    : flin_saved(t.v, &t.l->call, &e);
    CHECK((n > 0) == (what != serial));
    t.saved.data = aligned_alloc(256, (size_t)n + 512 - (size_t)n % 256);
    t.saved.bytes = (size_t)n;
    memset(t.saved.data, 0xff, (size_t)n + 1);          /* NaN */
    return t;
}

static void training_free(Training *t)
{
    free(t->saved.data);
    flin_free(t->k);
    grads_free(t->whole);
    grads_free(t->g);
    layer_free(t->l);
    flin_release(t->v);
}

/* What forward leaves gives backward the same gradients, and is what it
 * reads; where nothing is to be left, both do their work all the same. */
static void test_saved(flin_State *s, const char *what, bool prepare)
{
    Training t = training_new(s, what, prepare);
    flin_Tensor y = t.l->call.y;
    size_t n = t.saved.bytes;
    flin_Error e;

    CHECK(!flin_forward(t.v, &t.l->call, &e));
    tensor_make(&t.l->call.y, FLIN_F32);
    t.l->call.saved = &t.saved;
    CHECK(!go(&t, NULL, &e));
    CHECK(apart(&y, &t.l->call.y) < TOLERANCE);
    CHECK(((unsigned char *)t.saved.data)[n] == 0xff);
    CHECK(!go(&t, &t.g->grad, &e) && grads_apart(t.whole, t.g) == 0);
    memset(t.saved.data, 0xff, n);
    CHECK(!go(&t, &t.g->grad, &e));
    CHECK((grads_apart(t.whole, t.g) == 0) == (n == 0));
    free(y.data);
    training_free(&t);
}

static void test_saved_room(flin_State *s)
{
    Training t = training_new(s, "gla", false);
    flin_Error e;
    flin_Kernel *k = flin_prepare(t.v, FLIN_FORWARD, &t.l->call, &e);

    t.l->call.saved = &t.saved;
    REFUSED(flin_run(k, &t.l->call, NULL, &e),
            "forward: saved is for a kernel that goes backwards, too");
    flin_free(k);
    REFUSED(flin_reference(t.v, &t.l->call, &e), "neither leaves nor takes");
    t.saved.bytes--;
    REFUSED(go(&t, NULL, &e), "forward: saved.bytes = ");
    REFUSED(go(&t, &t.g->grad, &e), "backward: saved.bytes = ");
    t.saved.bytes++;
    t.saved.data = (char *)t.saved.data + 8;
    REFUSED(go(&t, NULL, &e), "saved.data is not aligned");
    t.saved.data = (char *)t.saved.data - 8;
    void *room = t.saved.data;
    t.saved.data = NULL;
    REFUSED(go(&t, NULL, &e), "but saved.data is NULL");
    t.saved.data = room;
    training_free(&t);
}

/* Backward takes what the forward pass of its own call has left alone. */
static void test_saved_of_another(flin_State *s, bool prepare)
{
    static const char of_call[] = "saved is of a call with another B, T";
    static const char of_place[] = "saved is of a call whose inputs,";
    Training t = training_new(s, "gla", prepare);
    Training other = training_new(s, "gla", prepare);
    flin_Grad *grad = &t.g->grad;
    flin_Call *call = &t.l->call;
    flin_Error e;

    call->saved = &t.saved;
    REFUSED(go(&t, grad, &e), "no forward call has left anything there");
    CHECK(!go(&t, NULL, &e));
    other.l->call.saved = &t.saved;             /* the same sizes */
    REFUSED(go(&other, grad, &e), of_place);
    CHECK(!go(&other, NULL, &e));               /* and its own result */
    REFUSED(go(&t, grad, &e), of_place);
    t.saved.place = 0;
    CHECK(!go(&t, grad, &e));
    CHECK(!go(&t, NULL, &e) && !go(&t, grad, &e));
    call->ninitial = 0;
    grad->ndinitial = 0;
    REFUSED(go(&t, grad, &e), of_call);
    call->ninitial = 1;
    int64_t cu[] = { 0, 3, T }, later[] = { 0, 4, T };
    for (int i = 0; i < call->ninputs; i++)
        t.l->in[i].tensor.shape[0] = t.g->in[i].tensor.shape[0] = 1;
    call->y.shape[0] = grad->dy.shape[0] = 1;
    call->nseq = 2;
    call->cu_seqlens = cu;
    CHECK(!go(&t, NULL, &e) && !go(&t, grad, &e));
    call->cu_seqlens = later;
    REFUSED(go(&t, grad, &e), of_call);
    training_free(&other);
    training_free(&t);
}

/* A room for each chunk size, and the note of the other. */
static void test_saved_of_another_plan(flin_State *s)
{
    Training t = training_new(s, "gla", false);
    flin_Error e;

    t.l->call.saved = &t.saved;
    CHECK(!go(&t, NULL, &e));
    uint64_t plan = t.saved.plan;
    free(t.saved.data);
    t.l->call.chunk = 16;
    t.saved.bytes = (size_t)flin_saved(t.v, &t.l->call, &e) / 256 * 256 + 256;
    t.saved.data = aligned_alloc(256, t.saved.bytes);
    CHECK(!go(&t, NULL, &e) && !go(&t, &t.g->grad, &e));
    t.saved.plan = plan;
    REFUSED(go(&t, &t.g->grad, &e), "saved is of another variant or kernel");
    training_free(&t);
}

/* Without `saved` a kernel of both passes goes forward, too; its workspace is
 * smaller with it. */
static void test_saved_sizes(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "gla", &e);
    Layer *l = layer_new(v, B, T, H, D, FLIN_F32);
    flin_Kernel *k = flin_prepare(v, FLIN_BACKWARD, &l->call, &e);
    int64_t saved = flin_kernel_saved(k, &l->call);
    int64_t need = flin_workspace(k, &l->call);
    flin_Saved none = { 0 };

    CHECK(!flin_run(k, &l->call, NULL, &e));
    l->call.saved = &none;              /* its size is not looked at */
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

int main(void)
{
    flin_Error e;
    flin_State *s = flin_open(NULL, &e);

    CHECK(s != NULL);
    test_gradients(s, "gla");
    test_gradients(s, "gated_deltanet");
    test_gradients(s, serial);
    test_sums(s);
    test_gradient_errors(s);
    for (int prepare = 0; prepare < 2; prepare++) {
        test_saved(s, "gla", prepare);
        test_saved(s, "mlstm", prepare);
        test_saved(s, serial, prepare);
        test_saved_of_another(s, prepare);
    }
    test_saved_of_another_plan(s);
    test_saved_room(s);
    test_saved_sizes(s);
    flin_close(s);
    return report();
}
