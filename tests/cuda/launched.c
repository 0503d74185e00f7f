/* launched.c -- whether v:plan's kernels are those that a call launches, one to
 * one: tests/cuda/launched.lua, where nothing is compiled or run (FAKE_EMPTY)
 * and so no kernel is held to the float64 step before it is used.
 *   launched [NAME [K V]]
 * And whether the workspace that is asked for is enough for a call in segments
 * that saves: what they write is zero at first, which takes more than the way
 * back does where sequences are long.
 */
#include "../../backend/cuda/build.h"
#include "../../lang/flin.h"

#include <dlfcn.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>

/* In place of verify.c's (see the Makefile): all are right. */
const char *build_verify(Ctx *c, Gpu *g, const Verify *of, const Plan *p)
{
    (void)c, (void)g, (void)of, (void)p;
    return NULL;
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

static flin_Tensor tensor(int rank, flin_DType dtype)
{
    return (flin_Tensor){ on_device((size_t)TOKENS * HEADS * D * 4), dtype,
                          rank, { 1, TOKENS, HEADS, D }, { 0 } };
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
    status = luaL_loadfile(L, "tests/cuda/launched.lua");
    for (int i = 1; i < argc; i++)
        lua_pushstring(L, argv[i]);
    if (status != LUA_OK || lua_pcall(L, argc - 1, 0, 0) != LUA_OK) {
        printf("FAIL %s\n", luaL_tolstring(L, -1, NULL));
        return 1;
    }
    lua_close(L);
    return check_saving();
}
