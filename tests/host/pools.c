/* pools.c -- states in pools through flin.h, and tokens that may be taken
 * back: by a variant and by a kernel, with pools of their own for what is read
 * and what is written. */
#include "host.h"

enum { N = 2, T = 3, H = 2, D = 4, P = 7, EACH = H * D * D };

static int64_t where[N] = { 5, 1 };
static int32_t columns[N][T + 1] = { { 5, 0, -1, 2 }, { 1, 3, 4, 1 } };

static flin_Tensor floats(int rank, const int64_t *shape)
{
    flin_Tensor t = { .rank = rank };

    memcpy(t.shape, shape, (size_t)rank * sizeof *shape);
    tensor_make(&t, FLIN_F32);
    return t;
}

static bool is_same(const float *a, const float *b)
{
    return !memcmp(a, b, EACH * sizeof *a);
}

/* Row n of the layer's states is what the pool has at its entry. */
static void fill_pool(const Layer *l, flin_Tensor *pool)
{
    uint32_t seed = 5;

    tensor_draw(pool, "normal", &seed);
    for (int n = 0; n < N; n++)
        memcpy((float *)pool->data + where[n] * EACH,
               (float *)l->s0[0].tensor.data + n * EACH,
               EACH * sizeof(float));
}

static void test_index(flin_Variant *v, Layer *l)
{
    const int64_t shape[] = { P, H, D, D };
    flin_Tensor pool = floats(4, shape), left = floats(4, shape);
    flin_Bind from = { "S", pool }, to = { "S", left };
    flin_Call call = l->call;
    flin_Error e;

    CHECK(!flin_forward(v, &l->call, &e));
    fill_pool(l, &pool);
    call.initial = &from;
    call.final = &to;
    call.state_index = (flin_Tensor){ where, FLIN_I64, 1, { N }, { 0 } };
    flin_Tensor y = call.y;
    tensor_make(&call.y, FLIN_F32);
    flin_Kernel *k = flin_prepare(v, FLIN_FORWARD, &call, &e);
    CHECK(k && !flin_run(k, &call, NULL, &e));
    CHECK(!memcmp(call.y.data, y.data, N * T * H * D * sizeof(float)));
    for (int64_t p = 0; p < P; p++) {
        float zero[EACH] = { 0 }, *found = (float *)left.data + p * EACH;
        int n = p == where[0] ? 0 : p == where[1] ? 1 : -1;
        CHECK(is_same(found, n < 0 ? zero
                      : (float *)l->s1[0].tensor.data + n * EACH));
    }
    to.tensor = pool;                   /* in place */
    CHECK(!flin_run(k, &call, NULL, &e));
    for (int n = 0; n < N; n++)
        CHECK(is_same((float *)pool.data + where[n] * EACH,
                      (float *)l->s1[0].tensor.data + n * EACH));
    where[1] = where[0];
    REFUSED(flin_run(k, &call, NULL, &e), "for sequence 0 and for sequence 1");
    where[1] = P;
    REFUSED(flin_run(k, &call, NULL, &e), "S has 7 states");
    where[1] = 1;
    call.state_index.dtype = FLIN_F64;
    REFUSED(flin_run(k, &call, NULL, &e), "state_index is float64");
    call.state_index.dtype = FLIN_I64;
    call.state_index.shape[0] = 1;
    REFUSED(flin_run(k, &call, NULL, &e), "[2] is wanted");
    flin_free(k);
    free(call.y.data);
    free(pool.data);
    free(left.data);
}

static void test_verify(flin_Variant *v, Layer *l)
{
    const int64_t many[] = { N, T, H, D, D }, shape[] = { P, H, D, D };
    flin_Tensor each = floats(5, many), pool = floats(4, shape);
    flin_Bind behind = { "S", each }, both = { "S", pool };
    flin_Call call = l->call;
    flin_Error e;

    call.final = &behind;
    CHECK(!flin_verify(v, &call, &e));
    for (int t = 0; t < T; t++) {       /* against its first t + 1 tokens */
        flin_Bind in[MAX_ARGS];
        flin_Call part = l->call;
        memcpy(in, l->in, sizeof in);
        part.input = in;
        for (int i = 0; i < part.ninputs; i++) {
            flin_Tensor *x = &in[i].tensor;
            int64_t step = 1;
            for (int d = x->rank; d-- > 0; step *= x->shape[d])
                x->stride[d] = step;
            x->shape[1] = t + 1;
        }
        part.y = (flin_Tensor){ .data = NULL };
        CHECK(!flin_forward(v, &part, &e));
        for (int n = 0; n < N; n++)
            for (int i = 0; i < EACH; i++) {
                double x = ((float *)each.data)[(n * T + t) * EACH + i];
                double s = ((float *)l->s1[0].tensor.data)[n * EACH + i];
                if (fabs(x - s) > 1e-5)
                    CHECK(!"the state behind a token");
            }
    }
    fill_pool(l, &pool);
    call.initial = call.final = &both;
    call.state_index = (flin_Tensor){ columns, FLIN_I32, 2, { N, T + 1 },
                                      { 0 } };
    flin_Kernel *k = flin_prepare(v, FLIN_VERIFY, &call, &e);
    CHECK(k && !flin_run(k, &call, NULL, &e));
    for (int n = 0; n < N; n++)
        for (int t = 0; t < T; t++)
            if (columns[n][t + 1] >= 0)
                CHECK(is_same((float *)pool.data + columns[n][t + 1] * EACH,
                              (float *)each.data + (n * T + t) * EACH));
    columns[1][2] = 0;
    REFUSED(flin_run(k, &call, NULL, &e), "state_index holds 0");
    REFUSED(flin_step(v, &call, &e), "takes one token");
    flin_free(k);
    free(each.data);
    free(pool.data);
}

int main(void)
{
    flin_Error e;
    flin_State *s = flin_open(NULL, &e);
    flin_Variant *v = flin_stdlib(s, "gated_deltanet", &e);
    Layer *l = layer_new(v, N, T, H, D, FLIN_F32);

    test_index(v, l);
    test_verify(v, l);
    layer_free(l);
    flin_close(s);
    return report();
}
