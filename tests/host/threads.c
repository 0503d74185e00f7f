/* threads.c -- two states in two threads: each opens, loads, compiles, runs
 * with threads of its own, closes; and both run one kernel. They share
 * nothing else, so that ThreadSanitizer (make tsan) has nothing to say, and
 * both have the same bits.
 */
#include <pthread.h>

#include "host.h"

enum { THREADS = 2, TURNS = 4, B = 2, T = 500, H = 3, D = 16 };

static const char window[] = "local exp = require \"flin\".exp\n"
    "return require \"flin\".variant { mask = function (i, j, p)\n"
    "  if i < j or i - j >= 200 then return 0 end\n"
    "  return exp(p.g_cumsum[i] - p.g_cumsum[j])\nend }";
static const char *const variant[] = { "gated_deltanet", "gla", "mlstm",
                                       window };
enum { NVARIANTS = sizeof variant / sizeof *variant };

typedef struct Job {
    flin_Kernel *shared;
    const flin_Call *call;              /* of the shared one */
    int ok, wanted;
    double sum;                         /* of what it has computed */
} Job;

static double total(const flin_Tensor *t)
{
    double sum = 0;

    for (int64_t i = 0; i < tensor_count(t); i++)
        sum += fabs(tensor_at(t, i));
    return sum;
}

static void expect(Job *j, bool ok)
{
    j->ok += ok;
    j->wanted++;
}

static void run_backward(Job *j, flin_Variant *v, Layer *l)
{
    flin_Bind dv = { "v", l->call.y };
    flin_Grad g = { .size = sizeof g, .dy = l->call.y, .dinput = &dv,
                    .ndinput = 1 };
    flin_Error e;

    tensor_make(&dv.tensor, FLIN_F32);
    expect(j, !flin_backward(v, &l->call, &g, &e));
    j->sum += total(&dv.tensor);
    free(dv.tensor.data);
}

static void run_variant(Job *j, flin_State *s, const char *name)
{
    flin_Error e;
    flin_Variant *v = name == window
        ? flin_load_string(s, window, "window.lua", &e)
        : flin_stdlib(s, name, &e);
    Layer *l = layer_new(v, B, T, H, D, FLIN_F32);

    int states = l->call.ninitial;

    l->call.threads = 2;
    if (name == window)                 /* a start that is not drawn */
        l->call.ninitial = l->call.nfinal = 0;
    flin_Kernel *k = flin_prepare(v, FLIN_FORWARD, &l->call, &e);
    expect(j, k && !flin_run(k, &l->call, NULL, &e));
    j->sum += total(&l->call.y);
    run_backward(j, v, l);
    flin_free(k);
    l->call.ninitial = l->call.nfinal = states;
    layer_free(l);
    flin_release(v);
}

static void run_shared(Job *j)
{
    flin_Call call = *j->call;
    flin_Error e;

    call.nfinal = 0;
    tensor_make(&call.y, FLIN_F32);
    expect(j, !flin_run(j->shared, &call, NULL, &e));
    j->sum += total(&call.y);
    free(call.y.data);
}

static void *work(void *ud)
{
    Job *j = ud;

    for (int turn = 0; turn < TURNS; turn++) {
        flin_State *s = flin_open(NULL, NULL);
        flin_Error e;
        run_shared(j);
        expect(j, !flin_load_string(s, "return 1 +", "bad.lua", &e));
        run_variant(j, s, variant[turn % NVARIANTS]);
        flin_close(s);
    }
    return NULL;
}

int main(void)
{
    flin_State *s = flin_open(NULL, NULL);
    flin_Variant *v = flin_stdlib(s, "deltanet", NULL);
    Layer *l = layer_new(v, B, T, H, D, FLIN_F32);
    pthread_t thread[THREADS];
    Job job[THREADS] = { { .ok = 0 } };

    l->call.threads = 2;
    flin_Kernel *k = flin_prepare(v, FLIN_FORWARD, &l->call, NULL);
    for (int i = 0; i < THREADS; i++) {
        job[i] = (Job){ .shared = k, .call = &l->call };
        pthread_create(&thread[i], NULL, work, &job[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        CHECK(job[i].ok == job[i].wanted && job[i].wanted == TURNS * 4);
    }
    CHECK(job[0].sum > 0 && job[0].sum == job[1].sum);
    flin_free(k);
    layer_free(l);
    flin_close(s);
    return report();
}
