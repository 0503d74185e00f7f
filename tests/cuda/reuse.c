/* reuse.c -- the memory that a way back does not take: gradients that lie where
 * nobody reads any more. On the driver of tests: nothing runs, memory is
 * counted. */
#include "../host/host.h"

enum { T = 8192, D = 1024, N = 5120, E = 32 };

static const char gated[] =
    "local flin = require 'flin'\n"
    "return flin.layer {\n"
    "  name = 'swiglu', input = { gate = 't n', up = 't n' },\n"
    "  forward = function (x) return flin.silu(x.gate) * x.up end }\n";
static const char mlp[] =
    "local flin = require 'flin'\n"
    "return flin.layer {\n"
    "  name = 'mlp', input = { x = 't d' },\n"
    "  weight = { Wg = 'd n', Wu = 'd n', Wd = 'n e' },\n"
    "  forward = function (x, w)\n"
    "    local act = flin.silu(flin.dot(x.x, w.Wg)) * flin.dot(x.x, w.Wu)\n"
    "    return flin.dot(act, w.Wd)\n"
    "  end }\n";
static const flin_Bind gated_in[] = {
    { "gate", { .rank = 3, .shape = { 1, T, N } } },
    { "up", { .rank = 3, .shape = { 1, T, N } } }
};
static const flin_Bind mlp_in[] = {
    { "x", { .rank = 3, .shape = { 1, T, D } } },
    { "Wg", { .rank = 2, .shape = { D, N } } },
    { "Wu", { .rank = 2, .shape = { D, N } } },
    { "Wd", { .rank = 2, .shape = { N, E } } }
};

/* Two weights as the columns of one matrix: one product makes gate and up. */
static const flin_Bind beside_in[] = {
    { "x", { .rank = 3, .shape = { 1, T, D } } },
    { "Wg", { .rank = 2, .shape = { D, N }, .stride = { 2 * N, 1 } } },
    { "Wu", { .rank = 2, .shape = { D, N }, .stride = { 2 * N, 1 } } },
    { "Wd", { .rank = 2, .shape = { N, E } } }
};

/* Bytes of workspace of the way back. */
static int64_t back(flin_State *s, const char *text, const flin_Bind *like,
                    int n, flin_DType dtype)
{
    static float somewhere[64] __attribute__((aligned(256)));
    flin_Error e;
    flin_Bind in[4];
    flin_Variant *v = flin_load_string(s, text, "reuse.lua", &e);
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = n,
                       .backend = "cuda" };

    CHECK(v != NULL);
    for (int i = 0; i < n; i++) {
        in[i] = like[i];
        in[i].tensor.data = somewhere;
        in[i].tensor.dtype = dtype;
    }
    flin_Kernel *k = flin_prepare(v, FLIN_BACKWARD, &call, &e);
    CHECK(k != NULL);
    if (!k) {
        puts(e.text);
        return 0;
    }
    int64_t bytes = flin_workspace(k, &call);
    CHECK(n < 4 || flin_kernel_saved(k, &call) > 0);
    call.checkpoint = 1;                /* its inputs alone are kept */
    CHECK(flin_kernel_saved(k, &call) == 0);
    flin_free(k);
    flin_release(v);
    return bytes;
}

int main(void)
{
    flin_Error e;
    flin_State *s = flin_open(NULL, &e);

    for (int i = 0; i < 2; i++) {
        const flin_DType dtype = i ? FLIN_BF16 : FLIN_F32;
        const int64_t each = (int64_t)T * N * (i ? 2 : 4);
        int64_t own = back(s, gated, gated_in, 2, dtype);
        CHECK(own < each / 1000);       /* the caller's tensors alone */
        /* gate, up, what is made of both and that one's gradient, and less than
         * one more: those of gate and up lie over these */
        for (int beside = 0; beside < 2; beside++) {
            int64_t all = back(s, mlp, beside ? beside_in : mlp_in, 4, dtype);
            CHECK(all >= 4 * each);
            CHECK(all < 5 * each);
            if (all < 4 * each || all >= 5 * each)
                printf("%lld bytes for four of %lld\n", (long long)all,
                       (long long)each);
        }
    }
    flin_close(s);
    return report();
}
