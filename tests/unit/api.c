/* api.c -- flin.h: what a host sees, errors and limits included. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lang/flin.h"

static int passed, failed;

#define CHECK(c) check(c, #c, __LINE__)
static void check(int ok, const char *what, int line)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("api.c:%d: not so: %s\n", line, what);
}

static char logged[256];
static int stop_now, sleeps;
static size_t in_use, most;

static void keep_line(void *ud, const char *line)
{
    (void)ud;
    snprintf(logged, sizeof logged, "%s", line);
}

static int asked(void *ud)
{
    (void)ud;
    if (sleeps > 0 && sleeps--)
        nanosleep(&(struct timespec){ 0, 3000000 }, NULL);
    return stop_now;
}

static void *counted(void *ud, void *p, size_t old, size_t size)
{
    (void)ud;
    in_use += size - (p ? old : 0);
    most = in_use > most ? in_use : most;
    if (size)
        return realloc(p, size);
    free(p);
    return NULL;
}

static const char script[] =
    "local flin = require 'flin'\n"
    "print('loaded', 1)\n"
    "return flin.variant {\n"
    "  input = { k = 't k', v = 't v', g = '' }, state = { S = 'k v' },\n"
    "  step = function (x, s)\n"
    "    local S = x.g * s.S + flin.outer(x.k, x.v)\n"
    "    return { S = S }, flin.dot(x.k, S)\n"
    "  end }\n";

static flin_Options options(void)
{
    flin_Options o = { .size = sizeof o, .alloc = counted, .log = keep_line,
                       .interrupted = asked, .instructions = 1000000 };
    return o;
}

static void test_loading(flin_State *s)
{
    flin_Error e;
    flin_Arg a;

    flin_Variant *v = flin_load_string(s, script, "mine.lua", &e);
    CHECK(v && e.code == FLIN_OK);
    CHECK(!strcmp(logged, "loaded\t1"));
    CHECK(flin_args(v) == 5 && !flin_arg(v, 5, &a) && !flin_arg(v, -1, &a));
    CHECK(flin_arg(v, 0, &a) && !strcmp(a.name, "k") && !strcmp(a.axes, "t k")
          && a.role == FLIN_INPUT);
    CHECK(flin_arg(v, 2, &a) && !strcmp(a.name, "g") && !strcmp(a.axes, ""));
    CHECK(flin_arg(v, 3, &a) && a.role == FLIN_OUTPUT
          && !strcmp(a.axes, "t v"));
    CHECK(flin_arg(v, 4, &a) && a.role == FLIN_STATE
          && !strcmp(a.axes, "k v"));
    flin_release(v);
    v = flin_stdlib(s, "gla", NULL);
    CHECK(v && !strcmp(flin_name(v), "gla"));
}

static void test_script_errors(flin_State *s)
{
    flin_Error e;

    CHECK(!flin_load_string(s, "\nreturn 1 +", "a.lua", &e));
    CHECK(e.code == FLIN_ERROR && e.line == 2 && !strcmp(e.file, "a.lua"));
    CHECK(!strcmp(e.message, "unexpected symbol near <eof>"));
    CHECK(!flin_load_string(s, "return require 'flin'.exp()", "b.lua", &e));
    CHECK(e.line == 1 && !strcmp(e.file, "b.lua")
          && !strcmp(e.message, "exp: takes 1 argument, got 0"));
    CHECK(!flin_load_string(s, "return 3", "c.lua", &e));
    CHECK(!strcmp(e.message, "c.lua: it returns a number, not a variant")
          && *e.help);
    CHECK(!flin_load_string(s, "error({})", "d.lua", &e) && e.code);
    CHECK(!flin_load_string(s, "while true do end", "e.lua", &e));
    CHECK(e.code == FLIN_ERROR_LIMIT);
    stop_now = 1;
    CHECK(!flin_load_string(s, "while true do end", "f.lua", &e));
    CHECK(e.code == FLIN_ERROR_INTERRUPT);
    stop_now = 0;
    CHECK(!flin_load_file(s, "/nowhere/at/all.lua", &e) && *e.message);
    CHECK(!flin_load_file(s, "/dev/zero", &e)
          && strstr(e.message, "is a pipe or a device, not a file"));
    CHECK(!flin_stdlib(s, "glaa", NULL));
    CHECK(!flin_load_string(s, "return io.open('x')", "g.lua", NULL));
    CHECK(!flin_stdlib(NULL, "gla", &e) && e.code == FLIN_ERROR);
    CHECK(flin_forward(NULL, &(flin_Call){ .size = sizeof(flin_Call) }, &e));
    CHECK(!flin_prepare(NULL, FLIN_FORWARD, NULL, &e) && e.code);
    CHECK(flin_run(NULL, NULL, NULL, &e) == FLIN_ERROR);
}

/* S_t = g S + k v: K = V = 1, so that the numbers are plain. */
static void test_calls(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_load_string(s, script, "mine.lua", &e);
    float k[3] = { 1, 2, 1 }, val[6] = { 1, 9, 2, 9, 3, 9 }, y[3] = { 0 };
    float S = 4, S1 = 0;
    double g = 0.5;
    flin_Bind in[] = {
        { "g", { &g, FLIN_F64, 1, { 1 }, { 0 } } },
        { "k", { k, FLIN_F32, 4, { 1, 3, 1, 1 }, { 0 } } },
        { "v", { val, FLIN_F32, 4, { 1, 3, 1, 1 }, { 6, 2, 1, 1 } } },
    };
    flin_Bind s0 = { "S", { &S, FLIN_F32, 4, { 1, 1, 1, 1 }, { 0 } } };
    flin_Bind s1 = { "S", { &S1, FLIN_F32, 4, { 1, 1, 1, 1 }, { 0 } } };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 3,
        .initial = &s0, .ninitial = 1, .final = &s1, .nfinal = 1,
        .y = { y, FLIN_F32, 4, { 1, 3, 1, 1 }, { 0 } }, .chunk = 16 };

    for (int reference = 0; reference < 2; reference++) {
        memset(y, 0, sizeof y);
        CHECK(!(reference ? flin_reference : flin_forward)(v, &call, &e));
        CHECK(fabsf(y[0] - 3) < 1e-6f && fabsf(y[1] - 11) < 1e-5f
              && fabsf(y[2] - 5.75f) < 1e-5f && fabsf(S1 - 5.75f) < 1e-5f);
    }
    call.y.data = NULL;                 /* neither result is a must */
    call.nfinal = 0;
    CHECK(!flin_forward(v, &call, NULL));
    int64_t cu[] = { 0, 1, 3 };
    call.cu_seqlens = cu;
    call.nseq = 2;
    call.ninitial = 0;
    call.y.data = y;
    CHECK(!flin_forward(v, &call, &e));
    CHECK(fabsf(y[0] - 1) < 1e-6f && fabsf(y[1] - 8) < 1e-5f
          && fabsf(y[2] - 5) < 1e-5f);
    cu[1] = 4;
    CHECK(flin_forward(v, &call, &e) == FLIN_ERROR);
    CHECK(!strcmp(e.message, "forward: cu_seqlens decreases: 3 after 4"));
}

/* Each call of each kind of variant, and none of its results asked for. */
static void test_no_results(flin_State *s)
{
    static const char *const masks[] = {
        "return require 'flin'.variant { mode = 'quadratic', tokens = 2,\n"
        "  mask = function (i, j) return i < j and 0 or 1 / (1 + i - j) end }",
        "return require 'flin'.variant { mask = function (i, j)\n"
        "  return i < j and 0 or 1 end }", script
    };
    static const char *const names[] = { "linear", "deltanet", "mlstm" };
    static float one[4] = { 1, 1, 1, 1 };
    flin_Bind in[8];
    flin_Error e;

    for (int n = 0; n < 6; n++) {
        flin_Variant *v = n < 3 ? flin_load_string(s, masks[n], "m.lua", &e)
                                : flin_stdlib(s, names[n - 3], &e);
        flin_Call call = { .size = sizeof call, .input = in };
        flin_Grad grad = { .size = sizeof grad,
                           .dy = { one, FLIN_F32, 4, { 1, 1, 1, 4 }, { 0 } } };
        flin_Arg a;
        for (int i = 0; i < flin_args(v) && flin_arg(v, i, &a); i++) {
            int rank = 2 * !strncmp(a.axes, "t", 1) + 1 + !!strpbrk(a.axes,
                                                                    "kv");
            if (a.role != FLIN_INPUT)
                continue;
            flin_Tensor t = { one, FLIN_F32, rank, { 1, 1, 1, 1 }, { 0 } };
            if (strpbrk(a.axes, "kv"))
                t.shape[rank - 1] = 4;
            in[call.ninputs++] = (flin_Bind){ a.name, t };
        }
        CHECK(!flin_forward(v, &call, &e));
        CHECK(!flin_reference(v, &call, &e));
        CHECK(!flin_backward(v, &call, &grad, &e));
        CHECK(!flin_reference_backward(v, &call, &grad, &e));
        CHECK(!flin_step(v, &call, &e));
        flin_release(v);
    }
}

/* Attention token by token: its states are arguments as others', and a call
 * that takes none or leaves them goes by tokens, too. */
static void test_cached(flin_State *s)
{
    enum { ROOM = 16, STATES = 8 };
    static float zero[2], state[STATES][ROOM], y[2];
    static float value[2] = { 2, 4 };
    flin_Error e;
    flin_Variant *v = flin_load_string(s, "return require 'flin'.variant {\n"
        "  normalise = 'softmax', tokens = 3 }", "cached.lua", &e);
    flin_Tensor t = { zero, FLIN_F32, 4, { 1, 1, 1, 1 }, { 0 } };
    flin_Tensor of_v = { value, FLIN_F32, 4, { 1, 1, 1, 1 }, { 0 } };
    flin_Bind in[] = { { "q", t }, { "k", t }, { "v", of_v } }, st[STATES];
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 3,
                       .y = { y, FLIN_F32, 4, { 1, 1, 1, 1 }, { 0 } } };
    flin_Arg a;
    int n = 0;

    for (int i = 0; i < flin_args(v) && flin_arg(v, i, &a); i++) {
        if (a.role != FLIN_STATE || n == STATES)
            continue;
        CHECK(!flin_shape(v, &call, i, &t, &e));
        t.data = state[n];
        st[n++] = (flin_Bind){ a.name, t };
    }
    CHECK(n == 4 && flin_axis_size(v, "band") == 3);
    call.final = st;
    call.nfinal = n;
    CHECK(!flin_step(v, &call, &e) && fabsf(y[0] - 2) < 1e-6f);
    call.initial = st;
    call.ninitial = n;
    in[2].tensor.data = value + 1;
    flin_Kernel *k = flin_prepare(v, FLIN_STEP, &call, &e);
    CHECK(k && !flin_run(k, &call, NULL, &e) && fabsf(y[0] - 3) < 1e-6f);
    flin_free(k);
    CHECK(!flin_step(v, &call, &e) && fabsf(y[0] - 10 / 3.f) < 1e-6f);
    CHECK(flin_step(v, &call, &e) == FLIN_ERROR
          && strstr(e.message, "keeps 3 tokens, but sequence 0 comes to 4"));
    call.ninitial = 0;
    for (int i = 0; i < 3; i++)
        in[i].tensor.shape[1] = call.y.shape[1] = 2;
    in[2].tensor.data = value;
    CHECK(!flin_forward(v, &call, &e) && fabsf(y[0] - 2) < 1e-6f
          && fabsf(y[1] - 3) < 1e-6f);
    flin_release(v);
}

/* A step that is another than when it was traced: the truth is what it says
 * now, and its trace has no gradients for it. */
static void test_truth(flin_State *s)
{
    static const char changing[] = "local flin = require 'flin'\n"
        "local factor = 1\n"
        "function change() factor = 2 end\n"
        "return flin.variant { input = { k = 't k', v = 't v' },\n"
        "  state = { S = 'k v' }, step = function (x, s)\n"
        "    local S = 0.5 * s.S + factor * flin.outer(x.k, x.v)\n"
        "    return { S = S }, flin.dot(x.k, S)\n"
        "  end }\n";
    enum { T = 60 };
    static double one[T], y[T], dk[T];
    flin_Error e;
    flin_Tensor t = { one, FLIN_F64, 4, { 1, T, 1, 1 }, { 0 } };
    flin_Tensor of_k = { dk, FLIN_F64, 4, { 1, T, 1, 1 }, { 0 } };
    flin_Bind in[] = { { "k", t }, { "v", t } }, out = { "k", of_k };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 2,
                       .y = { y, FLIN_F64, 4, { 1, T, 1, 1 }, { 0 } } };
    flin_Grad grad = { .size = sizeof grad, .dy = t, .dinput = &out,
                       .ndinput = 1 };

    for (int i = 0; i < T; i++)
        one[i] = 1;
    flin_Variant *v = flin_load_string(s, changing, "changing.lua", &e);
    CHECK(v && !flin_reference_backward(v, &call, &grad, &e));
    CHECK(!flin_reference(v, &call, &e) && fabs(y[T - 1] - 2) < 1e-9);
    flin_load_string(s, "change()", "change.lua", &e);  /* no variant */
    CHECK(!flin_reference(v, &call, &e) && fabs(y[T - 1] - 4) < 1e-9);
    CHECK(flin_reference_backward(v, &call, &grad, &e) == FLIN_ERROR);
    CHECK(strstr(e.message, "the step is not what its trace says") != NULL);
    CHECK(flin_reference_backward(v, &call, &grad, NULL) == FLIN_ERROR);
}

/* The running maximum of mlstm: from any start it is the larger one of that and
 * the tokens' own. */
static void test_stage(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "mlstm", &e), *m = flin_stage(v, 0, &e);
    float one[5] = { 1, 1, 1, 1, 1 }, i[5] = { 0, 3, -1, 2, -4 };
    float f[5] = { 1, 0, 2, 1, 3 }, own, M, start, end;
    flin_Tensor t = { one, FLIN_F32, 4, { 1, 5, 1, 1 }, { 0 } };
    flin_Tensor gate = { i, FLIN_F32, 3, { 1, 5, 1 }, { 0 } };
    flin_Tensor to = { &M, FLIN_F32, 2, { 1, 1 }, { 0 } };
    flin_Bind in[] = { { "q", t }, { "k", t }, { "v", t }, { "i", gate },
                       { "f", gate } };
    flin_Bind last = { "m", { &own, FLIN_F32, 2, { 1, 1 }, { 0 } } };
    flin_Bind first = { "m", { &start, FLIN_F32, 2, { 1, 1 }, { 0 } } };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 5,
                       .final = &last, .nfinal = 1 };

    in[4].tensor.data = f;
    CHECK(m && !flin_summary(m, &call, &to, &e));
    float was = own;
    call.initial = &first;
    call.ninitial = 1;
    last.tensor.data = &end;
    for (start = -4; start < 9; start += 6) {
        CHECK(!flin_forward(m, &call, &e));
        CHECK(fabsf(end - fmaxf(M + start, was)) < 1e-5f);
    }
    CHECK(M < -1 && was > 0 && M + 8 > was);
    CHECK(flin_summary(m, &call, &to, &e) == FLIN_ERROR);
    CHECK(strstr(e.message, "knows of no initial state m") != NULL);
    flin_release(m);
}

/* From any start a state ends as its transition of that, plus its own end. */
static void test_summary(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "gated_deltanet", &e);
    float one[5] = { 1, 1, 1, 1, 1 }, g[5] = { 0, -1, -0.25f, 0, -1 };
    float beta[5] = { 0.5f, 0.25f, 0, 0.5f, 0.125f }, x[5] = { 1, 2, 3, 4, 5 };
    float own, m, start = 2, end;
    flin_Tensor t = { one, FLIN_F32, 4, { 1, 5, 1, 1 }, { 0 } };
    flin_Tensor values = { x, FLIN_F32, 4, { 1, 5, 1, 1 }, { 0 } };
    flin_Tensor state = { &own, FLIN_F32, 4, { 1, 1, 1, 1 }, { 0 } };
    flin_Tensor to = { &m, FLIN_F32, 4, { 1, 1, 1, 1 }, { 0 } };
    flin_Bind in[] = { { "q", t }, { "k", t }, { "v", values },
                       { "g", { g, FLIN_F32, 3, { 1, 5, 1 }, { 0 } } },
                       { "beta", { beta, FLIN_F32, 3, { 1, 5, 1 }, { 0 } } } };
    flin_Bind last = { "S", state }, first = { "S", state };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 5,
                       .final = &last, .nfinal = 1 };

    flin_Transition is;
    CHECK(!flin_transition(v, &is, &e) && is.rank == 4 && is.nstates == 1);
    CHECK(is.carry == FLIN_CARRY_MATRIX && !strcmp(is.axis, "k"));
    CHECK(!flin_summary(v, &call, &to, &e));
    last.tensor.data = &end;
    first.tensor.data = &start;
    call.initial = &first;
    call.ninitial = 1;
    CHECK(!flin_reference(v, &call, &e));
    CHECK(fabsf(m * start + own - end) < 1e-6f && m > 0.01f && own > 1);
    CHECK(flin_summary(v, &call, &to, &e) == FLIN_ERROR);
    CHECK(strstr(e.message, "it knows of no initial state") != NULL);
    call.ninitial = 0;
    to.rank = 3;
    CHECK(flin_summary(v, &call, &to, &e) == FLIN_ERROR);
    CHECK(flin_summary(v, &call, NULL, &e) == FLIN_ERROR);
    v = flin_stdlib(s, "mlstm", &e);
    CHECK(flin_transition(v, &is, &e) == FLIN_ERROR);
    CHECK(strstr(e.message, "mlstm has no transition") != NULL);
    CHECK(flin_stages(v, &e) == 3 && !flin_stage(v, 3, &e));
    flin_Variant *m0 = flin_stage(v, 0, &e);
    CHECK(m0 && !flin_transition(m0, &is, &e));
    CHECK(is.carry == FLIN_CARRY_MAX && !is.axis && is.rank == 2);
    flin_release(m0);
    CHECK(!flin_transition(flin_stdlib(s, "gla", &e), &is, &e)
          && is.carry == FLIN_CARRY_ROWS && is.rank == 3);
}

/* A gate of a sigmoid, by every door; a caller that knows no `validate`. */
static void test_validate(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "simple_gla", &e);
    float one[5] = { 1, 1, 1, 1, 1 }, g[5] = { 0, -1, 0.25f, 0, 1 }, y[5];
    flin_Tensor t = { one, FLIN_F32, 4, { 1, 5, 1, 1 }, { 0 } };
    flin_Bind in[] = { { "q", t }, { "k", t }, { "v", t },
                       { "g", { g, FLIN_F32, 3, { 1, 5, 1 }, { 0 } } } };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 4,
                       .y = { y, FLIN_F32, 4, { 1, 5, 1, 1 }, { 0 } } };
    flin_Bind dq = { "q", { y, FLIN_F32, 4, { 1, 5, 1, 1 }, { 0 } } };
    flin_Grad grad = { .size = sizeof grad, .dy = t, .dinput = &dq,
                       .ndinput = 1 };
    const char *wanted = "g is declared log_decay, at most 0, but is 0.25 at "
                         "token 2, head 0 of batch entry 0 (all from 0)";

    CHECK(!flin_forward(v, &call, &e));
    call.validate = 1;
    CHECK(flin_forward(v, &call, &e) == FLIN_ERROR);
    CHECK(strstr(e.message, wanted) && strstr(e.help, "logsigmoid"));
    CHECK(flin_reference(v, &call, &e) && strstr(e.message, wanted));
    CHECK(flin_backward(v, &call, &grad, &e) && strstr(e.message, wanted));
    CHECK(flin_reference_backward(v, &call, &grad, &e)
          && strstr(e.message, wanted));
    flin_Kernel *k = flin_prepare(v, FLIN_FORWARD, &call, &e);
    CHECK(k && flin_run(k, &call, NULL, &e) && strstr(e.message, wanted));
    flin_free(k);
    call.size = offsetof(flin_Call, validate);
    CHECK(!flin_forward(v, &call, &e));
    call.size = sizeof call;
    g[2] = g[4] = -0.25f;
    call.validate = 2;
    CHECK(!flin_forward(v, &call, &e));
    one[3] = INFINITY;
    CHECK(flin_forward(v, &call, &e)
          && strstr(e.message, "q is not finite: inf at token 3"));
}

static void test_road(flin_State *s)
{
    static const char serial[] =
        "local flin = require 'flin'\n"
        "return flin.variant { name = 'serial', input = { v = 't v' },\n"
        "  state = { m = 'v' }, step = function (x, s)\n"
        "    local m = flin.tanh(s.m) + x.v\n"
        "    return { m = m }, m\n"
        "  end }\n";
    const char *wanted = "serial goes token by token (said once): "
                         "serial.lua:4: tanh(m)";
    flin_Error e;
    flin_Variant *gla = flin_stdlib(s, "gla", &e);
    float x[5] = { 0 }, y[5];
    flin_Bind in = { "v", { x, FLIN_F32, 4, { 1, 5, 1, 1 }, { 0 } } };
    flin_Call call = { .size = sizeof call, .input = &in, .ninputs = 1,
                       .y = { y, FLIN_F32, 4, { 1, 5, 1, 1 }, { 0 } } };

    CHECK(strstr(flin_form(gla, &e), "runs in chunks") != NULL);
    for (int prepared = 0; prepared < 2; prepared++) {
        flin_Variant *v = flin_load_string(s, serial, "serial.lua", &e);
        CHECK(strstr(flin_form(v, &e), "runs token by token: serial.lua:4: "
                     "tanh(m) is not linear in m\n  4 |     local m") != NULL);
        logged[0] = 0;
        if (prepared)
            flin_free(flin_prepare(v, FLIN_FORWARD, &call, &e));
        else
            CHECK(!flin_forward(v, &call, &e));
        CHECK(strstr(logged, wanted) != NULL);
        logged[0] = 0;
        CHECK(!flin_forward(v, &call, &e) && !logged[0]);
        flin_release(v);
    }
}

static void test_call_errors(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "linear", &e);
    float a[64] = { 0 }, b[64];
    flin_Bind in[] = {
        { "q", { a, FLIN_F32, 4, { 1, 2, 1, 4 }, { 0 } } },
        { "k", { a, FLIN_F32, 4, { 1, 2, 1, 4 }, { 0 } } },
        { "v", { a, FLIN_F32, 4, { 1, 2, 1, 4 }, { 0 } } },
    };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 2,
        .y = { b, FLIN_F32, 4, { 1, 2, 1, 5 }, { 0 } } };

    CHECK(flin_forward(v, &call, &e) == FLIN_ERROR);
    CHECK(!strcmp(e.message, "forward: tensor v is missing; [B, T, H, v] is "
                  "wanted"));
    call.ninputs = 3;
    CHECK(flin_forward(v, &call, &e) == FLIN_ERROR);
    CHECK(!strcmp(e.message, "forward: y has shape [1, 2, 1, 5], but "
                  "[1, 2, 1, 4] is wanted"));
    in[2].name = "w";
    CHECK(flin_forward(v, &call, &e) == FLIN_ERROR);
    CHECK(!strcmp(e.message, "forward: there is no input 'w'"));
    in[2].name = "v";
    call.y.shape[3] = 4;
    call.backend = "abacus";
    CHECK(flin_forward(v, &call, &e) == FLIN_ERROR && *e.help);
    call.backend = NULL;
    in[0].tensor.rank = 9;
    CHECK(flin_forward(v, &call, &e) == FLIN_ERROR);
    in[0].tensor.rank = 4;
    in[0].tensor.dtype = (flin_DType)7;
    CHECK(flin_forward(v, &call, &e) == FLIN_ERROR);
    in[0].tensor.dtype = FLIN_F32;
    in[0].tensor.shape[1] = -2;
    CHECK(flin_forward(v, &call, &e) == FLIN_ERROR);
    in[0].tensor.shape[1] = 2;
    CHECK(flin_step(v, &call, &e) == FLIN_ERROR);
    CHECK(flin_forward(v, &call, NULL) == FLIN_OK);
}

/* Every function of flin.h, with NULL for each handle, text and struct that it
 * cannot do without. */
static void test_null(flin_State *s)
{
    flin_Error e = { 0 };
    flin_Call call = { .size = sizeof call };
    flin_Tensor t;
    flin_Arg a;
    flin_Variant *v = flin_stdlib(s, "linear", &e);

#define NO(made) CHECK(!(made) && e.code == FLIN_ERROR && *e.message); \
    e.code = FLIN_OK
#define FAILS(code) CHECK((code) == FLIN_ERROR && strstr(e.message, "NULL"))
    NO(flin_attach(NULL, NULL, &e));
    NO(flin_load_file(NULL, "x.lua", &e));
    NO(flin_load_file(s, NULL, &e));
    NO(flin_load_string(NULL, script, NULL, &e));
    NO(flin_load_string(s, NULL, NULL, &e));
    NO(flin_stdlib(NULL, "gla", &e));
    NO(flin_stdlib(s, NULL, &e));
    NO(flin_load(NULL, "gla", &e));
    NO(flin_load(NULL, "gla.lua", &e));
    NO(flin_load(NULL, script, &e));
    NO(flin_load(s, NULL, &e));
    NO(flin_to_variant(NULL, NULL, 1, &e));
    NO(flin_to_variant(s, NULL, 1, &e));
    NO(flin_derive(NULL, "return ...", NULL, &e));
    NO(flin_derive(v, NULL, NULL, &e));
    NO(flin_prepare(NULL, FLIN_FORWARD, &call, &e));
    NO(flin_prepare(v, FLIN_FORWARD, NULL, &e));
    NO(flin_prepare(v, (flin_Mode)-1, &call, &e));
    NO(flin_prepare(v, (flin_Mode)9, &call, &e));
    FAILS(flin_forward(NULL, &call, &e));
    FAILS(flin_reference(NULL, &call, &e));
    FAILS(flin_step(NULL, &call, &e));
    FAILS(flin_backward(NULL, &call, NULL, &e));
    FAILS(flin_reference_backward(NULL, &call, NULL, &e));
    FAILS(flin_shape(NULL, &call, 3, &t, &e));
    FAILS(flin_shape(v, &call, 3, NULL, &e));
    FAILS(flin_run(NULL, &call, NULL, &e));
    CHECK(flin_saved(NULL, &call, &e) == -1 && e.code == FLIN_ERROR);
    CHECK(flin_saved(v, NULL, &e) == -1 && e.code == FLIN_ERROR);
    CHECK(flin_seconds(NULL, 1, &call, &e) == -1 && e.code == FLIN_ERROR);
    CHECK(flin_seconds(v, 0, NULL, &e) == -1 && e.code == FLIN_ERROR);
    CHECK(flin_forward(v, NULL, &e) == FLIN_ERROR && *e.help);
    CHECK(flin_step(v, NULL, NULL) == FLIN_ERROR);
    CHECK(flin_backward(v, NULL, NULL, &e) == FLIN_ERROR);
    CHECK(flin_shape(v, NULL, 3, &t, &e) == FLIN_ERROR);
    CHECK(flin_workspace(NULL, &call) == -1);
    CHECK(flin_kernel_saved(NULL, &call) == -1);
    CHECK(!flin_kernel_note(NULL) && !flin_note(NULL) && !flin_name(NULL));
    CHECK(flin_args(NULL) == 0 && !flin_arg(NULL, 0, &a)
          && !flin_arg(v, 0, NULL));
    CHECK(flin_axis_size(NULL, "k") == -1 && flin_axis_size(v, NULL) == -1
          && flin_axis_size(v, "k") == 0);
    CHECK(!flin_stdlib_name(NULL, 0) && !flin_stdlib_name(s, -1)
          && !flin_stdlib_name(s, 1 << 20) && flin_stdlib_name(s, 0));
    flin_release(NULL);
    flin_retain(NULL);
    flin_free(NULL);
    flin_close(NULL);
}

/* It fails with a message that has this text. */
#define REFUSED(code, text) \
    CHECK((code) == FLIN_ERROR && strstr(e.message, text))

/* A call of linear: room for shapes that lie elsewhere than they say. */
typedef struct Odd {
    float x[256], y[256], S[16];
    flin_Bind in[3], state;
    flin_Call call;
} Odd;

static Odd odd(void)
{
    return (Odd){ .x = { 1 } };
}

static void odd_call(Odd *o)
{
    flin_Tensor t = { o->x, FLIN_F32, 4, { 1, 8, 1, 4 }, { 0 } };

    *o = odd();
    for (int i = 0; i < 3; i++)
        o->in[i] = (flin_Bind){ i == 0 ? "q" : i == 1 ? "k" : "v", t };
    o->call = (flin_Call){ .size = sizeof o->call, .input = o->in,
                           .ninputs = 3, .y = t };
    o->call.y.data = o->y;
    o->state = (flin_Bind){ "S", { o->S, FLIN_F32, 4, { 1, 1, 4, 4 },
                                   { 0 } } };
}

static void test_counts(flin_Variant *v)
{
    flin_Error e;
    Odd o;

    odd_call(&o);
    o.call.input = NULL;
    REFUSED(flin_forward(v, &o.call, &e), "ninputs = 3, but inputs is NULL");
    odd_call(&o);
    o.call.ninputs = -1;
    REFUSED(flin_forward(v, &o.call, &e), "ninputs = -1, but linear has 3");
    o.call.ninputs = 1 << 30;
    REFUSED(flin_forward(v, &o.call, &e), "but linear has 3 inputs");
    odd_call(&o);
    o.call.nfinal = 1;
    REFUSED(flin_forward(v, &o.call, &e), "nfinal = 1, but final is NULL");
    o.call.nfinal = 0;
    o.call.ninitial = -5;
    REFUSED(flin_forward(v, &o.call, &e), "but linear has 1 states");
    odd_call(&o);
    o.call.nseq = 1;
    REFUSED(flin_forward(v, &o.call, &e), "nseq = 1, but cu_seqlens is NULL");
    for (int64_t n = -1; ; n = INT64_MAX) {
        o.call.nseq = n;
        REFUSED(flin_forward(v, &o.call, &e), "nseq = ");
        if (n > 0)
            break;
    }
    for (size_t n = 1; n < sizeof o.call; n++) {
        odd_call(&o);
        o.call.size = n;
        int code = flin_forward(v, &o.call, &e);
        if (n % 8)
            CHECK(code && strstr(e.message, "no such structs are known"));
        else if (n >= offsetof(flin_Call, cu_seqlens))
            CHECK(code == FLIN_OK);
    }
    flin_Options some = { .size = 9 };
    CHECK(!flin_open(&some, &e) && strstr(e.message, "the flin_Options"));
    odd_call(&o);
    o.call.workspace_size = 1;
    REFUSED(flin_forward(v, &o.call, &e), "but workspace is NULL");
}

/* Sizes that no memory has, products of them that wrap, strides that lead out
 * of it: in calls that compute, and in those that only ask for sizes. */
static void test_sizes(flin_Variant *v)
{
    static const int64_t size[] = { -1, INT64_MIN, INT64_MAX,
        (int64_t)1 << 62, (int64_t)1 << 48, (int64_t)1 << 32 };
    static const int64_t far[] = { INT64_MIN, INT64_MAX, INT64_MIN + 1,
        (int64_t)1 << 62, (int64_t)1 << 46, -((int64_t)1 << 46) };
    flin_Error e;
    flin_Tensor t;
    Odd o;

    for (int axis = 0; axis < 4; axis++)
        for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
            odd_call(&o);
            for (int k = 0; k < 3; k++) {
                o.in[k].tensor.shape[axis] = size[i];
                o.in[k].tensor.shape[!axis] = size[i];
            }
            REFUSED(flin_forward(v, &o.call, &e), "q has shape [");
            REFUSED(flin_shape(v, &o.call, 3, &t, &e), "q has shape [");
            CHECK(flin_saved(v, &o.call, &e) == -1);
            CHECK(!flin_prepare(v, FLIN_BACKWARD, &o.call, &e));
            for (int k = 0; k < 3; k++)     /* where none of it lies */
                o.in[k].tensor.shape[3 - axis] = 0;
            CHECK(flin_forward(v, &o.call, &e) == FLIN_ERROR);
            CHECK(flin_shape(v, &o.call, 3, &t, &e) == FLIN_ERROR);
        }
    for (int axis = 0; axis < 4; axis++)
        for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
            odd_call(&o);
            o.in[1].tensor.stride[3] = 1;
            o.in[1].tensor.stride[axis] = far[i];
            if (axis % 2)
                REFUSED(flin_forward(v, &o.call, &e), "k has strides [");
            else                        /* of one entry: it says nothing */
                CHECK(flin_forward(v, &o.call, &e) == FLIN_OK);
        }
    odd_call(&o);
    for (int k = 0; k < 3; k++)
        o.in[k].tensor.dtype = (flin_DType)-1;
    REFUSED(flin_forward(v, &o.call, &e), "q: there is no dtype -1");
    REFUSED(flin_shape(v, &o.call, 3, &t, &e), "q: there is no dtype -1");
    odd_call(&o);
    o.call.y.dtype = (flin_DType)-1;
    REFUSED(flin_forward(v, &o.call, &e), "y: there is no dtype -1");
    o.call.y.dtype = (flin_DType)(FLIN_I64 + 1);
    REFUSED(flin_forward(v, &o.call, &e), "y: there is no dtype 6");
    o.call.y.dtype = FLIN_I32;
    REFUSED(flin_forward(v, &o.call, &e), "y is int32");
}

/* Arguments that memory could hold, results that it could not. */
static void test_results_sizes(flin_State *s)
{
    int64_t many = (int64_t)1 << 44, heads = 1 << 20, cu[2] = { 0 };
    flin_Variant *v = flin_load_string(s, script, "mine.lua", NULL);
    flin_Tensor row = { NULL, FLIN_F32, 4, { 1, many, 1, 1 }, { 0 } }, t;
    flin_Bind in[] = {
        { "g", { NULL, FLIN_F32, 1, { heads }, { 0 } } },
        { "k", row }, { "v", row },
    };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 3 };
    flin_Error e;

    REFUSED(flin_shape(v, &call, 3, &t, &e), "y would have shape [1, 17592186"
            "044416, 1048576, 1]");
    CHECK(!flin_prepare(v, FLIN_FORWARD, &call, &e));
    for (int k = 1; k < 3; k++)
        in[k].tensor.shape[1] = 1;
    CHECK(!flin_shape(v, &call, 3, &t, &e) && t.shape[2] == heads);
    for (int k = 1; k < 3; k++) {
        in[k].tensor.shape[0] = many;
        in[k].tensor.shape[1] = 0;
    }
    REFUSED(flin_shape(v, &call, 3, &t, &e), "k has 17592186044416 batch");
    in[0].tensor.shape[0] = 1;
    REFUSED(flin_shape(v, &call, 3, &t, &e), "k has 17592186044416 batch");
    for (int k = 1; k < 3; k++) {
        in[k].tensor.shape[0] = 1;
        in[k].tensor.shape[3] = 65536;
    }
    in[0].tensor.shape[0] = heads;
    REFUSED(flin_shape(v, &call, 3, &t, &e), "state S would have shape [");
    cu[0] = 1;
    call.cu_seqlens = cu;
    REFUSED(flin_shape(v, &call, 3, &t, &e), "must start with 0");
}

static void test_places(flin_Variant *v)
{
    flin_Error e;
    Odd o;

    odd_call(&o);
    o.in[1].tensor.data = (char *)o.x + 2;
    REFUSED(flin_forward(v, &o.call, &e), "k is not aligned to its elements "
            "of 4 bytes");
    o.in[1].tensor.dtype = FLIN_F16;
    CHECK(!flin_forward(v, &o.call, &e));
    int64_t cu[] = { 0, 0, 8 };
    o.call.cu_seqlens = (const int64_t *)((char *)cu + 4);
    o.call.nseq = 1;
    REFUSED(flin_forward(v, &o.call, &e), "cu_seqlens is not aligned");

    odd_call(&o);
    for (int at = 1; at < 64; at += 15) {       /* q, k, v are at 32 to 63 */
        for (int k = 0; k < 3; k++)
            o.in[k].tensor.data = o.x + 32;
        o.call.y.data = o.x + at;
        REFUSED(flin_forward(v, &o.call, &e), "y and q overlap");
    }
    for (int at = 0; at <= 64; at += 64) {
        o.call.y.data = o.x + at;
        CHECK(!flin_forward(v, &o.call, &e));
    }

    /* Side by side in one buffer of rows, backwards, too. */
    odd_call(&o);
    for (int k = 0; k < 4; k++) {
        flin_Tensor *t = k < 3 ? &o.in[k].tensor : &o.call.y;
        t->data = o.x + 4 * k;
        t->stride[1] = 16;
        t->stride[3] = 1;
    }
    CHECK(!flin_forward(v, &o.call, &e));
    o.in[2].tensor.data = o.x + 11 + 16 * 7;
    o.in[2].tensor.stride[1] = -16;
    o.in[2].tensor.stride[3] = -1;
    CHECK(!flin_forward(v, &o.call, &e));
    o.in[2].tensor.data = o.x + 12 + 16 * 7;
    REFUSED(flin_forward(v, &o.call, &e), "y and v overlap");

    odd_call(&o);
    o.call.y.stride[1] = 0;
    o.call.y.stride[3] = 1;
    REFUSED(flin_forward(v, &o.call, &e), "y: strides [");
    o.call.y.stride[1] = 2;
    REFUSED(flin_forward(v, &o.call, &e), "in one place, and it is written");
    o.call.y.stride[1] = 3;             /* 0 to 21 and 0 to 18: 6 is twice */
    o.call.y.stride[3] = 6;
    REFUSED(flin_forward(v, &o.call, &e), "in one place, and it is written");
    o.call.y.stride[3] = 8;             /* 0 to 24: none is */
    CHECK(!flin_forward(v, &o.call, &e));

    odd_call(&o);
    flin_Bind last = o.state;
    o.call.initial = &o.state;
    o.call.final = &last;
    o.call.ninitial = o.call.nfinal = 1;
    CHECK(!flin_forward(v, &o.call, &e));       /* in place */
    last.tensor.stride[2] = 1;
    last.tensor.stride[3] = 4;
    REFUSED(flin_forward(v, &o.call, &e), "final.S and initial.S overlap");
    last.tensor.stride[2] = last.tensor.stride[3] = 0;
    last.tensor.data = o.y;
    REFUSED(flin_forward(v, &o.call, &e), "y and final.S overlap");
}

static void test_odd(flin_State *s)
{
    flin_Variant *v = flin_stdlib(s, "linear", NULL);

    test_counts(v);
    test_sizes(v);
    test_places(v);
    test_results_sizes(s);
}

/* Long enough to be asked whether to go on. */
static void test_interrupt(flin_State *s)
{
    enum { T = 100000 };
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "linear", &e);
    static float a[T * 4], b[T * 4];
    flin_Tensor t = { a, FLIN_F32, 4, { 1, T, 1, 4 }, { 0 } };
    flin_Bind in[] = { { "q", t }, { "k", t }, { "v", t } };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 3,
                       .y = t };

    call.y.data = b;
    stop_now = 1;
    CHECK(flin_reference(v, &call, &e) == FLIN_ERROR_INTERRUPT);
    CHECK(flin_forward(v, &call, &e) == FLIN_ERROR_INTERRUPT
          && e.code == FLIN_ERROR_INTERRUPT);
    stop_now = 0;
    CHECK(flin_forward(v, &call, &e) == FLIN_OK);
}

/* However little memory there is: an error, no crash and no leak. */
/* Neither what the host has done before nor waiting costs a script anything. */
static void test_clock(flin_State *s)
{
    clock_t start = clock();
    flin_Error e;

    while (clock() - start < CLOCKS_PER_SEC / 20)
        ;
    sleeps = 20;
    flin_load_string(s, "for i = 1, 10000 do end error 'done'", "a.lua", &e);
    CHECK(!sleeps && strstr(e.message, "done"));
}

static void test_memory(void)
{
    flin_Options o = options();
    flin_Error e = { 0 };
    int ok = 0, refused = 0;

    for (size_t m = 1; m < 2000000; m += m / 16 + 1000) {
        o.memory = m;
        flin_State *s = flin_open(&o, &e);
        if (s && flin_stdlib(s, "gla", &e))
            ok++;
        else
            refused += e.code != FLIN_OK && *e.message;
        flin_close(s);
        CHECK(in_use == 0);
    }
    CHECK(ok > 0 && refused > 0);
}

/* What variants say of themselves; the host's scripts have no budget. */
static void test_reports(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_load_string(s, "-- Mine.\n-- Twice.\n\n-- else\n"
        "local flin = require 'flin'\n"
        "return flin.variant { name = '\\\"\\xff\\xc3\\xa4', input = "
        "{ v = 't v : unit', a = 'v : angle' }, state = { m = 'v' }, "
        "step = function (x, s)\n"
        "  return { m = s.m + x.v }, x.a * s.m\n"
        "end }", "mine.lua", &e);
    const char *text = flin_describe(v, FLIN_TEXT, &e), *endless =
        "local n = 0; for i = 1, 2e6 do n = n + 1 end return n";

    CHECK(text && strstr(text, "\nMine.\nTwice.\n") && !strstr(text, "else"));
    CHECK(strstr(text, "v        [B, T, H, V]       unit: from 0 to 1\n")
          && strstr(text, "a        [H, V]             angle: finite, radians")
          && strstr(text, "m        [N, H, V]\n"));
    text = flin_describe(v, FLIN_JSON, &e);
    CHECK(text && strstr(text, "\"about\": \"Mine.\\nTwice.\"")
          && strstr(text, "\"name\": \"\\\"\\u00ff\\u00c3\\u00a4\"")
          && strstr(text, "\"axes\": {\"v\": false}"));
    text = flin_plan(v, "V = 8, machine = 'h200'", FLIN_JSON, &e);
    CHECK(text && strstr(text, "\"machine\": \"h200\"")
          && strstr(text, "\"stored\": []"));
    CHECK((text = flin_plan(v, NULL, FLIN_TEXT, &e))
          && strstr(text, "kernel 1"));
    CHECK((text = flin_plan(v, "format = 'svg'", FLIN_TEXT, &e))
          && !strncmp(text, "<svg", 4));
    CHECK(!flin_plan(v, "machine = 'pdp'", FLIN_TEXT, &e)
          && !strncmp(e.message, "plan: there is no machine 'pdp'", 31));
    CHECK(!flin_plan(v, "}", FLIN_TEXT, &e) && e.code == FLIN_ERROR);
    CHECK((text = flin_source(v, NULL, "V = 16, arch = 'sm_80'", &e))
          && strstr(text, "__global__"));
    CHECK(!flin_source(v, "pdp", NULL, &e) && *e.message);
    text = flin_report(v, "return { 1, 0.5, 1/0, -1/0, 0/0, true, 'x' }",
                       NULL, FLIN_JSON, &e);
    CHECK(text && !strcmp(text,
                          "[1, 0.5, 1e999, -1e999, null, true, \"x\"]"));
    text = flin_report(v, "return (...):random { T = 1, B = 1, H = 1, V = 2 }"
                       ".v * 0", NULL, FLIN_JSON, &e);
    CHECK(text && !strcmp(text, "[[[[0, 0]]]]"));
    CHECK(!flin_report(v, "return (...", "odd", FLIN_TEXT, &e)
          && !strcmp(e.file, "odd") && e.line == 1);
    CHECK(!flin_report(v, NULL, NULL, FLIN_TEXT, &e)
          && !flin_describe(NULL, FLIN_TEXT, &e));
    CHECK((text = flin_report(v, endless, NULL, FLIN_TEXT, &e))
          && !strncmp(text, "2000000", 7));
    CHECK(!flin_load_string(s, endless, NULL, &e)
          && e.code == FLIN_ERROR_LIMIT);
    stop_now = 1;
    CHECK(!flin_report(v, "while true do end", NULL, FLIN_TEXT, &e)
          && e.code == FLIN_ERROR_INTERRUPT);
    stop_now = 0;
    flin_release(v);
}

int main(void)
{
    flin_Options o = options();
    flin_Error e;
    flin_State *s = flin_open(&o, &e);

    CHECK(s && e.code == FLIN_OK);
    CHECK(flin_version() == FLIN_VERSION_NUMBER);
    test_loading(s);
    test_script_errors(s);
    test_calls(s);
    test_no_results(s);
    test_cached(s);
    test_truth(s);
    test_summary(s);
    test_stage(s);
    test_validate(s);
    test_road(s);
    test_call_errors(s);
    test_null(s);
    test_odd(s);
    test_interrupt(s);
    test_clock(s);
    test_reports(s);
    flin_close(s);
    CHECK(in_use == 0 && most > 0);
    flin_close(NULL);
    test_memory();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
