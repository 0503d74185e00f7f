/* launched.c -- whether v:plan's kernels are those that a call launches, one to
 * one: tests/cuda/launched.lua, where nothing is compiled or run (FAKE_EMPTY)
 * and so no kernel is held to the float64 step before it is used.
 *   launched [NAME [K V]]
 *   launched FILE.lua [ARGUMENT ...]   that script; with NVRTC itself in place
 *                                      of the tests', what ptxas says of all
 *                                      that calls compile
 * And whether the workspace that is asked for is enough for a call in segments
 * that saves: what they write is zero at first, which takes more than the way
 * back does where sequences are long. And whether a part of a longer sequence
 * runs each kernel once: what a summary has begun, its saving call does not do
 * again, nor the way back what has told the gradient at the start alone; and
 * that a summary by itself walks once for a diagonal's own and transition. And
 * whether nothing is compiled behind flin_prepare of a layer (FAKE_BESIDE), and
 * a layer's convolutions are one kernel.
 */
#include "../../backend/cuda/build.h"
#include "../../lang/flin.h"
#include "../../lang/sandbox.h"

#include <dlfcn.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In place of verify.c's (see the Makefile): all are right. */
bool build_verify(Ctx *c, Gpu *g, const Build *b, const Build *ends,
                  const Plan *p, const char **wrong, Error *why)
{
    (void)c, (void)g, (void)b, (void)ends, (void)p, (void)wrong, (void)why;
    return true;
}

enum { TOKENS = 1 << 16, HEADS = 1, D = 128, CHUNK = 64, SEGMENTS = 3 };

/* What the way back of these kernels keeps for each chunk, of bfloat16: d_S,
 * scores and their inverses. The values that are solved for, as many as v's,
 * are kept by another build alone. Beside it segments' states, where each way
 * starts and ends, and their transitions: less than a chunk's values each. */
static const size_t kept = 2 * (D * D + 2 * CHUNK * CHUNK),
                    states = 8 * (SEGMENTS + 1) * 4 * D * D;

static void *on_device(size_t bytes)
{
    typedef int Alloc(unsigned long long *, size_t);
    unsigned long long p = 0;
    Alloc *f;
    *(void **)&f = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");

    if (!f || f(&p, bytes))
        exit(1);
    return (void *)(uintptr_t)p;
}

static flin_Tensor tensor_of(int64_t tokens, int rank, flin_DType dtype)
{
    return (flin_Tensor){ on_device((size_t)tokens * HEADS * D * 4), dtype,
                          rank, { 1, tokens, HEADS, D }, { 0 } };
}

static flin_Tensor tensor(int rank, flin_DType dtype)
{
    return tensor_of(TOKENS, rank, dtype);
}

static int save(flin_State *s, flin_Error *e)
{
    flin_Bind in[] = { { "q", tensor(4, FLIN_BF16) },
                       { "k", tensor(4, FLIN_BF16) },
                       { "v", tensor(4, FLIN_BF16) },
                       { "g", tensor(3, FLIN_F32) },
                       { "beta", tensor(3, FLIN_F32) } };
    flin_Variant *v = flin_stdlib(s, "gated_deltanet", e);
    flin_Saved saved = { .data = on_device(256) };
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = 5,
                       .y = tensor(4, FLIN_BF16), .backend = "cuda",
                       .chunk = CHUNK };
    flin_Kernel *k = v ? flin_prepare(v, FLIN_BACKWARD, &call, e) : NULL;
    int failed = !k;

    if (k) {
        saved.bytes = (size_t)flin_kernel_saved(k, &call);
        saved.data = on_device(saved.bytes);
        call.saved = &saved;
        call.workspace_size = (size_t)flin_workspace(k, &call);
        call.workspace = on_device(call.workspace_size);
        failed = flin_run(k, &call, NULL, e);
        if (call.workspace_size > TOKENS / CHUNK * HEADS * kept + states) {
            printf("FAIL a workspace of %zu bytes\n", call.workspace_size);
            failed = 1;
        }
    }
    flin_free(k);
    flin_release(v);
    return failed;
}

static int check_saving(void)
{
    flin_Error e = { .code = 0 };
    flin_State *s = flin_open(NULL, &e);
    char count[8];
    snprintf(count, sizeof count, "%d", SEGMENTS);
    setenv("FLIN_SEGMENTS", count, 1);
    int failed = save(s, &e);

    if (failed)
        printf("FAIL a call that saves: %s\n", e.text);
    flin_close(s);
    return failed;
}

/* ---- parts of longer sequences ---- */

/* So many pieces fill half the multiprocessors. */
enum { PART = 5 * 1024, PIECES = 5, MOST = 32 };

/* What is launched from now on. */
static void launch_anew(void)
{
    fclose(fopen(getenv("FAKE_EMPTY"), "w"));
}

typedef struct Names { int n; char name[MOST][32]; } Names;

static Names launched(void)
{
    Names found = { 0 };
    FILE *f = fopen(getenv("FAKE_EMPTY"), "r");

    while (found.n < MOST
           && fscanf(f, "%31s %*u %*u", found.name[found.n]) == 1)
        found.n++;
    fclose(f);
    return found;
}

static int times(const Names *all, const char *name)
{
    int n = 0;
    for (int i = 0; i < all->n; i++)
        n += !strcmp(all->name[i], name);
    return n;
}

/* Says which of these kernels ran how often, if not that often. */
static int check_times(const char *what, const Names *of, const Names *all,
                       int wanted)
{
    int failed = !of->n;
    for (int i = 0; i < of->n; i++) {
        int n = times(all, of->name[i]);
        failed |= n != wanted;
        if (n != wanted)
            printf("FAIL %s: %s ran %d times, not %d\n", what, of->name[i], n,
                   wanted);
    }
    return failed;
}

/* A call whose sequences are pieces of one, with a place for all that it may
 * have. */
typedef struct Parted {
    int64_t ends[PIECES + 1];
    flin_Bind in[MOST], din[MOST], start, end;
    flin_Tensor moves, dy;
    flin_Saved saved;
    flin_Call call;
} Parted;

/* More than any of the calls takes. */
static const size_t room = 64 << 20;

static void make_parted(flin_Variant *v, Parted *p)
{
    flin_Transition to;
    flin_Arg a;
    int n = 0;

    for (int i = 0; flin_arg(v, i, &a) && a.role == FLIN_INPUT; i++, n++) {
        bool decay = !strcmp(a.domain, "log_decay");
        bool number = !strcmp(a.axes, "t");
        p->in[n] = (flin_Bind){ a.name, tensor_of(PART, number ? 3 : 4,
                                decay || number ? FLIN_F32 : FLIN_BF16) };
        p->din[n] = p->in[n];
        p->din[n].tensor.data = tensor_of(PART, 4, FLIN_F32).data;
    }
    for (int i = 0; i <= PIECES; i++)
        p->ends[i] = i * (PART / PIECES);
    p->start = (flin_Bind){ "S", { NULL, FLIN_F32, 4,
                                   { PIECES, HEADS, D, D }, { 0 } } };
    p->moves = p->start.tensor;
    p->start.tensor.data = on_device(PIECES * HEADS * D * D * sizeof(float));
    p->end = p->start;
    p->end.tensor.data = on_device(PIECES * HEADS * D * D * sizeof(float));
    p->moves.data = on_device(PIECES * HEADS * D * D * sizeof(float));
    p->moves.rank = flin_transition(v, &to, NULL) ? 0 : to.rank;
    p->dy = tensor_of(PART, 4, FLIN_BF16);
    p->call = (flin_Call){ .size = sizeof p->call, .input = p->in,
        .ninputs = n, .y = tensor_of(PART, 4, FLIN_BF16), .backend = "cuda",
        .cu_seqlens = p->ends, .nseq = PIECES, .initial = &p->start,
        .ninitial = 1, .final = &p->end, .nfinal = 1, .chunk = CHUNK,
        .saved = &p->saved, .workspace = on_device(room),
        .workspace_size = room };
}

static int run_forward(flin_Variant *v, Parted *p, flin_Error *e, Names *got)
{
    launch_anew();
    int failed = flin_forward(v, &p->call, e);
    *got = launched();
    return failed;
}

static int run_begun(flin_Variant *v, Parted *p, flin_Error *e, Names *got)
{
    flin_Call first = p->call, rest = p->call;
    memset(&first.y, 0, sizeof first.y);
    first.ninitial = 0;
    rest.begun = 1;
    launch_anew();
    int failed = flin_summary(v, &first, &p->moves, e)
              || flin_forward(v, &rest, e);
    *got = launched();
    return failed;
}

/* A summary that begins nothing. */
static int run_summary(flin_Variant *v, Parted *p, flin_Error *e, Names *got)
{
    flin_Call call = p->call;
    memset(&call.y, 0, sizeof call.y);
    call.ninitial = 0;
    call.saved = NULL;
    call.in_parts = 1;
    launch_anew();
    int failed = flin_summary(v, &call, &p->moves, e);
    *got = launched();
    return failed;
}

/* The gradient at the start, of y's alone; or all of them, of the end's, too.
 */
static int run_back(flin_Variant *v, Parted *p, bool all, flin_Error *e,
                    Names *got)
{
    flin_Bind dstart = p->start, dend = p->end;
    flin_Call call = p->call;
    flin_Grad grad = { .size = sizeof grad, .dy = p->dy, .dfinal = &dend,
                       .ndfinal = all, .dinput = p->din,
                       .ndinput = all ? call.ninputs : 0,
                       .dinitial = &dstart, .ndinitial = 1 };
    dstart.tensor.data = p->moves.data;
    call.nfinal = 0;
    call.begins = !all;
    call.begun = all;
    launch_anew();
    int failed = flin_backward(v, &call, &grad, e);
    *got = launched();
    return failed;
}

static int check_parted(flin_State *s, const char *name, flin_Error *e)
{
    flin_Variant *v = flin_stdlib(s, name, e);
    Names whole, begun, alone, back, told;
    flin_Transition to;
    Parted p = { 0 };
    int64_t bytes;

    if (!v)
        return 1;
    make_parted(v, &p);
    if ((bytes = flin_saved(v, &p.call, e)) <= 0)
        return 1;
    p.saved = (flin_Saved){ .data = on_device((size_t)bytes),
                            .bytes = (size_t)bytes };
    if (run_forward(v, &p, e, &whole) || run_begun(v, &p, e, &begun)
        || run_back(v, &p, false, e, &alone)
        || run_back(v, &p, true, e, &back)
        || run_summary(v, &p, e, &told) || flin_transition(v, &to, e))
        return 1;
    int failed = check_times(name, &whole, &begun, 1)
               | check_times(name, &whole, &alone, 0)
               | check_times(name, &alone, &back, 0)
               | (to.carry == FLIN_CARRY_ROWS
                  && check_times(name, &told, &told, 1));
    flin_release(v);
    return failed;
}

static int check_parts(void)
{
    static const char *const name[] = { "gated_deltanet", "kda", "dplr", "gla",
                                        "gated_oja" };
    flin_Error e = { .code = 0 };
    flin_State *s = flin_open(NULL, &e);
    int failed = !s;

    setenv("FLIN_SEGMENTS", "1", 1);
    for (size_t i = 0; s && i < sizeof name / sizeof *name; i++)
        failed |= check_parted(s, name[i], &e);
    if (e.code)
        printf("FAIL a part: %s\n", e.text);
    flin_close(s);
    return failed;
}

/* ---- behind flin_prepare ---- */

/* How often something has been compiled. */
static long count_compiled(void)
{
    FILE *f = fopen(getenv("FAKE_BESIDE"), "r");
    long n = f && !fseek(f, 0, SEEK_END) ? ftell(f) : 0;
    if (f)
        fclose(f);
    return n;
}

/* An argument of a layer of small sizes; weights that are products' with what
 * comes in lie one behind another, as PyTorch's do, from *beside on. */
static flin_Tensor layer_tensor(const flin_Arg *a, char **beside)
{
    static const struct { char axis; int size; } of[] = {
        { 'd', 64 }, { 'h', 8 }, { 'k', 16 }, { 'v', 16 }, { 'w', 4 } };
    flin_Tensor t = { .dtype = FLIN_BF16 };
    int64_t all = 2;

    if (strchr(a->axes, 't')) {
        t.rank = 2;
        t.shape[0] = 1;
        t.shape[1] = 256;
    }
    for (const char *x = a->axes; *x; x++)
        for (size_t i = 0; i < sizeof of / sizeof *of; i++)
            if (*x == of[i].axis)
                t.shape[t.rank++] = of[i].size;
    if (*a->axes != 'd') {
        t.data = on_device(1 << 20);
        return t;
    }
    int64_t stride = t.shape[0];
    t.stride[0] = 1;
    for (int d = t.rank - 1; d >= 0; stride *= t.shape[d--]) {
        all *= t.shape[d];
        t.stride[d] = d ? stride : 1;
    }
    t.data = *beside;
    *beside += all;
    return t;
}

/* Of the layer's programs over rows the three convolutions are one kernel, and
 * what comes to their taps is summed by another one; the gated norm has both
 * for itself. */
static int check_beside(const char *what, int rows, int sums)
{
    Names all = launched();
    int r = times(&all, "flin_rows"), s = times(&all, "flin_sum");

    if (r != rows || s != sums)
        printf("FAIL %s: %d kernels over rows, %d sums, not %d and %d\n", what,
               r, s, rows, sums);
    return r != rows || s != sums;
}

/* Runs of the kernel, both ways, in halves (and whole, where it is not for such
 * alone), compile nothing. */
static int check_prepared(flin_State *s, const char *plan, int spend,
                          flin_Error *e)
{
    flin_Variant *v = flin_load_string(s, "return require 'flin'"
                                       ".layers.gated_deltanet", "layer", e);
    flin_Bind in[MOST], din[MOST];
    flin_Arg a;
    char *beside[2] = { on_device(1 << 20), on_device(1 << 20) };
    int n = 0;

    for (int i = 0; v && flin_arg(v, i, &a) && a.role == FLIN_INPUT; i++, n++) {
        in[n] = (flin_Bind){ a.name, layer_tensor(&a, &beside[0]) };
        din[n] = (flin_Bind){ a.name, layer_tensor(&a, &beside[1]) };
    }
    flin_Call call = { .size = sizeof call, .input = in, .ninputs = n,
                       .backend = "cuda", .plan = plan, .spend = spend };
    flin_Tensor y = n ? in[0].tensor : (flin_Tensor){ 0 }, none = { 0 };
    y.data = on_device(1 << 20);
    flin_Grad grad = { .size = sizeof grad, .dy = y, .dinput = din,
                       .ndinput = n };
    flin_Kernel *k = v ? flin_prepare(v, FLIN_BACKWARD, &call, e) : NULL;
    if (!k)
        return 1;
    long before = count_compiled();
    flin_Saved saved = { .bytes = (size_t)flin_kernel_saved(k, &call) };
    saved.data = on_device(saved.bytes);
    int failed = !before || !saved.bytes;
    for (int whole = 0; whole < 2 - spend && !failed; whole++) {
        call.saved = whole ? NULL : &saved;
        call.y = y;
        launch_anew();
        failed |= flin_run(k, &call, NULL, e);
        failed |= check_beside("forward", 2, 0);
        call.y = none;
        launch_anew();
        failed |= flin_run(k, &call, &grad, e);
        failed |= check_beside("back", (plan ? 3 : 2) + 2 * whole, 2);
    }
    if (count_compiled() != before) {
        printf("FAIL prepared: %ld were compiled behind it\n",
               (count_compiled() - before) / 2);
        failed = 1;
    }
    flin_free(k);
    flin_release(v);
    return failed;
}

static int check_kernels(void)
{
    flin_Error e = { .code = 0 };
    flin_State *s = flin_open(NULL, &e);
    int failed = !s;

    for (int i = 0; s && i < 4; i++)
        failed |= check_prepared(s, i / 2 ? "stack" : NULL, i % 2, &e);
    if (e.code)
        printf("FAIL prepared: %s\n", e.text);
    flin_close(s);
    return failed;
}

static void tell(void *ud, const char *text)
{
    (void)ud;
    fprintf(stderr, "%s\n", text);
}

int main(int argc, char **argv)
{
    lua_State *L = luaL_newstate();
    int status;

    if (!getenv("FAKE_EMPTY")) {
        puts("skip: kernels would run unchecked");
        return 0;
    }
    luaL_openlibs(L);
    luaL_requiref(L, "flin", luaopen_flin, 0);
    sandbox_attach(L, &(Limits){ .instructions = 0 });
    sandbox_hooks(L, &(Ctx){ .say = tell });
    const char *script = argc > 1 ? strrchr(argv[1], '.') : NULL;
    int first = script && !strcmp(script, ".lua") ? 2 : 1;
    status = luaL_loadfile(L, first > 1 ? argv[1] : "tests/cuda/launched.lua");
    for (int i = first; i < argc; i++)
        lua_pushstring(L, argv[i]);
    if (status != LUA_OK || lua_pcall(L, argc - first, 0, 0) != LUA_OK) {
        printf("FAIL %s\n", luaL_tolstring(L, -1, NULL));
        return 1;
    }
    lua_close(L);
    return first > 1 ? 0 : check_saving() | check_parts() | check_kernels();
}
