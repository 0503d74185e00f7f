/* source.c -- a variant as CUDA C++, and compiled for a GPU that need not be
 * here.
 */
#include <string.h>
#include <time.h>

#include "../backend/cuda/cuda.h"
#include "../backend/cuda/nvrtc.h"
#include "bind.h"

enum { GPU_SIZE = 128 };

typedef struct Source {
    Variant *v;
    int32_t size[NAXES];
    int chunk;
    CudaOptions o;
    const char *arch;
    CudaModule *m;
    Cubin *cubin;
    double seconds;
} Source;

static const char *const options[] = { "chunk", "dtype", "arch" };
enum { NOPTIONS = sizeof options / sizeof *options };

static void emit(Ctx *c, void *ud)
{
    Source *s = ud;
    PlanEntry *e = plan_for(c, s->v, s->size, s->chunk, false,
                            backend_named("interpreter"));

    if (e->note)
        fail_help(c, 0, "the CPU backend runs it token by token",
                  "%s has no kernel for the GPU, as it has no chunk form: %s",
                  s->v->step->name, e->note);
    s->m = cuda_emit(c, e->plan, &s->o);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void compile(Ctx *c, void *ud)
{
    Source *s = ud;
    Nvrtc n;
    double start = now();

    emit(c, s);
    if (!nvrtc_open(c, &n))
        ctx_rethrow(c);
    s->cubin = nvrtc_compile(c, &n, s->m->source, s->arch);
    s->seconds = now() - start;
}

/* Half-precision matrices; gates and other vectors in float32. */
static DType tile_arg(lua_State *L, const char *what, int arg)
{
    DType d = BF16;

    if (!lua_istable(L, arg))
        return d;
    if (lua_getfield(L, arg, "dtype") != LUA_TNIL
        && (lua_type(L, -1) != LUA_TSTRING
            || !dtype_named(lua_tostring(L, -1), &d)))
        lang_fail(L, "bfloat16, float16", "%s: there is no dtype '%s'", what,
                  luaL_tolstring(L, -1, NULL));
    lua_pop(L, 1);
    return d;
}

static const char *arch_arg(lua_State *L, const char *what, int arg)
{
    const char *arch = "sm_90a";

    if (lua_istable(L, arg) && lua_getfield(L, arg, "arch") != LUA_TNIL)
        arch = luaL_tolstring(L, -1, NULL);
    if (strcmp(arch, "sm_90a") != 0)
        lang_fail(L, "sm_90a (H100, H200)", "%s: there are no kernels for "
                  "'%s' yet", what, arch);
    return "sm_90a";
}

/* The options at `arg`; what is pushed keeps it. */
static Source *source_args(lua_State *L, const char *what, int arg)
{
    Variant *v = variant_check(L, 1);
    Source *s = lua_newuserdatauv(L, sizeof *s, 0);
    lua_Integer chunk;

    memset(s, 0, sizeof *s);
    s->v = v;
    check_options(L, what, v->step, arg, options, NOPTIONS);
    sizes_arg(L, what, v->step, arg, GPU_SIZE, s->size);
    chunk = option_int(L, what, arg, "chunk", CHUNK_DEFAULT);
    if (chunk < 1 || chunk > CHUNK_MAX)
        lang_fail(L, NULL, "%s: a chunk is from 1 to %d tokens", what,
                  CHUNK_MAX);
    s->chunk = (int)chunk;
    s->arch = arch_arg(L, what, arg);
    s->o = (CudaOptions){ .tile = tile_arg(L, what, arg), .groups = 2 };
    return s;
}

/* v:source("cuda" [, { K = 128, chunk = 64, dtype = "bfloat16" }]) */
int variant_source(lua_State *L)
{
    lua_settop(L, 3);
    if (strcmp(luaL_optstring(L, 2, ""), "cuda") != 0)
        lang_fail(L, "v:source(\"cuda\")", "source: only the backend 'cuda' "
                  "makes source text");
    Source *s = source_args(L, "source", 3);
    protect(L, s->v->ctx, emit, s);
    lua_pushstring(L, s->m->source);
    return 1;
}

static void set_int(lua_State *L, const char *name, lua_Integer x)
{
    lua_pushinteger(L, x);
    lua_setfield(L, -2, name);
}

/* v:compile{ arch = "sm_90a", ... }: what the compiler said of the kernels. */
int variant_compile(lua_State *L)
{
    int shared = 0;

    lua_settop(L, 2);
    Source *s = source_args(L, "compile", 2);
    protect(L, s->v->ctx, compile, s);
    for (int i = 0; i < s->m->nkernels; i++)
        if (s->m->kernel[i].shared > shared)
            shared = s->m->kernel[i].shared;
    lua_createtable(L, 0, 7);
    set_int(L, "kernels", s->m->nkernels);
    set_int(L, "registers", s->cubin->info.registers);
    set_int(L, "spills", s->cubin->info.spill_stores
                       + s->cubin->info.spill_loads);
    set_int(L, "shared", shared);
    lua_pushstring(L, s->arch);
    lua_setfield(L, -2, "arch");
    lua_pushnumber(L, s->seconds);
    lua_setfield(L, -2, "seconds");
    lua_pushlstring(L, (const char *)s->cubin->bytes, s->cubin->size);
    lua_setfield(L, -2, "cubin");
    return 1;
}
