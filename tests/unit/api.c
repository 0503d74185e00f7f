/* api.c -- flin.h: what a host sees, errors and limits included. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static int stop_now;
static size_t in_use, most;

static void keep_line(void *ud, const char *line)
{
    (void)ud;
    snprintf(logged, sizeof logged, "%s", line);
}

static int asked(void *ud)
{
    (void)ud;
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

static void test_call_errors(flin_State *s)
{
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "linear", &e);
    float a[64] = { 0 };
    flin_Bind in[] = {
        { "q", { a, FLIN_F32, 4, { 1, 2, 1, 4 }, { 0 } } },
        { "k", { a, FLIN_F32, 4, { 1, 2, 1, 4 }, { 0 } } },
        { "v", { a, FLIN_F32, 4, { 1, 2, 1, 4 }, { 0 } } },
    };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 2,
        .y = { a, FLIN_F32, 4, { 1, 2, 1, 5 }, { 0 } } };

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

/* Long enough to be asked whether to go on. */
static void test_interrupt(flin_State *s)
{
    enum { T = 100000 };
    flin_Error e;
    flin_Variant *v = flin_stdlib(s, "linear", &e);
    static float a[T * 4];
    flin_Tensor t = { a, FLIN_F32, 4, { 1, T, 1, 4 }, { 0 } };
    flin_Bind in[] = { { "q", t }, { "k", t }, { "v", t } };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 3,
                       .y = t };

    stop_now = 1;
    CHECK(flin_reference(v, &call, &e) == FLIN_ERROR_INTERRUPT);
    CHECK(flin_forward(v, &call, &e) == FLIN_ERROR_INTERRUPT
          && e.code == FLIN_ERROR_INTERRUPT);
    stop_now = 0;
    CHECK(flin_forward(v, &call, &e) == FLIN_OK);
}

/* However little memory there is: an error, no crash and no leak. */
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
    test_call_errors(s);
    test_interrupt(s);
    flin_close(s);
    CHECK(in_use == 0 && most > 0);
    flin_close(NULL);
    test_memory();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
