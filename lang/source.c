/* source.c -- a variant as CUDA C++, and compiled for a GPU that need not be
 * here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../backend/cuda/cuda.h"
#include "../backend/cuda/nvrtc.h"
#include "bind.h"

enum { GPU_SIZE = 128 };

#define SOURCE_META "flin.source"

typedef struct Source {
    Ctx *ctx;                           /* its own */
    const Variant *v;
    int32_t size[NAXES];
    int chunk;                          /* 0: one token at a time */
    bool backward;
    DType tile;
    const char *arch;
    CudaModule *m;
    Cubin *cubin;
    double seconds;
    bool hopper;                        /* which emitter has it */
    Plan *plan;                         /* these two while it is emitted */
    CudaOptions o;
} Source;

static const char *const options[] = { "chunk", "dtype", "arch", "backward",
    "serial" };
enum { NOPTIONS = sizeof options / sizeof *options };

/* Matrices in the type that is asked for, gates and other vectors in float32.
 */
static CudaOptions types_of(const Graph *g, DType tile, const char *arch)
{
    CudaOptions o = { .tile = tile, .groups = 2, .split = true,
                      .arch = atoi(arch + 3) };

    for (int i = 0; i < g->nin; i++)
        o.in[i] = g->in[i].rank ? tile : F32;
    for (int i = 0; i < g->nout; i++)
        o.out[i] = g->out[i].rank ? tile : F32;
    return o;
}

static void print(Ctx *c, void *ud)
{
    Source *s = ud;

    s->m = s->hopper ? cuda_emit(c, s->plan, &s->o)
                     : cuda_tiles(c, s->plan, &s->o);
}

/* As a call would have it: Hopper's own kernels where there are some. */
static void emit(Ctx *c, void *ud)
{
    Source *s = ud;

    c->file = ctx_string(c, s->v->ctx->file);
    s->plan = plan_make(graph_copy(c, s->v->step), s->size, s->chunk,
                        s->backward, machine_of_arch(atoi(s->arch + 3)),
                        backend_named("cuda")->larger);
    s->o = types_of(s->plan->g, s->tile, s->arch);
    s->hopper = !strcmp(s->arch, "sm_90a") && s->tile != F32 && !s->backward
             && s->plan->g->chunk == CHUNK_DEFAULT;
    s->hopper = s->hopper && ctx_protect(c, print, s);
    if (!s->hopper)
        print(c, s);
}

/* In the room where it spills nothing, or the least. */
static void compile_text(Ctx *c, void *ud)
{
    Source *s = ud;
    CudaModule *m[CUDA_ROOMS] = { s->m };
    const char *text[CUDA_ROOMS] = { s->m->source };
    Nvrtc n;

    for (int room = 1; room < CUDA_ROOMS; room++) {
        s->o.room = room;
        if (!ctx_protect(c, print, s))
            continue;
        m[room] = s->m;
        text[room] = s->m->source;
    }
    if (!nvrtc_open(c, &n))
        ctx_rethrow(c);
    s->cubin = nvrtc_compile_all(c, &n, &(Sources){ 1, CUDA_ROOMS, 1, text },
                                 s->arch);
    s->m = m[s->cubin->taken];
}

static void compile(Ctx *c, void *ud)
{
    Source *s = ud;
    double start = clock_now();

    emit(c, s);
    if (!ctx_protect(c, compile_text, s)) {
        if (!s->hopper || c->err.code != ERR_DEVICE)
            ctx_rethrow(c);
        s->hopper = false;
        s->o.room = 0;
        print(c, s);
        compile_text(c, s);
    }
    s->seconds = clock_now() - start;
}

static DType tile_arg(lua_State *L, const char *what, int arg)
{
    DType d = BF16;

    if (!lua_istable(L, arg))
        return d;
    if (raw_field(L, arg, "dtype") != LUA_TNIL
        && (lua_type(L, -1) != LUA_TSTRING
            || !dtype_named(lua_tostring(L, -1), &d) || d == F64))
        lang_fail(L, "bfloat16, float16, float32", "%s: kernels have no dtype "
                  "'%s'", what, luaL_tolstring(L, -1, NULL));
    lua_pop(L, 1);
    return d;
}

/* "sm_90a"; the string at the top of the stack, or ours. */
static const char *arch_arg(lua_State *L, const char *what, int arg)
{
    int number, end = 0;

    if (!lua_istable(L, arg) || raw_field(L, arg, "arch") == LUA_TNIL)
        return "sm_90a";
    const char *arch = luaL_tolstring(L, -1, NULL);
    if (sscanf(arch, "sm_%d%n", &number, &end) != 1 || number < 80
        || strlen(arch + end) > 1)
        lang_fail(L, "sm_80 or later: sm_90a is an H100 or H200", "%s: there "
                  "are no kernels for '%s'", what, arch);
    return arch;
}

static bool flag_arg(lua_State *L, int arg, const char *name)
{
    bool on = lua_istable(L, arg) && raw_field(L, arg, name) != LUA_TNIL
           && lua_toboolean(L, -1);

    return on;
}

static int source_gc(lua_State *L)
{
    Source *s = luaL_checkudata(L, 1, SOURCE_META);

    ctx_free(s->ctx);
    s->ctx = NULL;
    return 0;
}

/* The options at `arg`; what is pushed keeps them. */
static Source *source_args(lua_State *L, const char *what, int arg)
{
    Variant *v = variant_check(L, 1);
    Source *s = push_owned(L, sizeof *s, SOURCE_META, source_gc);
    lua_Integer chunk;

    refuse_layer(L, v, what);
    s->ctx = sandbox_ctx(L);
    s->v = v;
    check_options(L, what, v->step, arg, options, NOPTIONS);
    sizes_arg(L, what, v->step, arg, GPU_SIZE, s->size);
    chunk = option_int(L, what, arg, "chunk", CHUNK_DEFAULT);
    if (chunk < 1 || chunk > CHUNK_MAX)
        lang_fail(L, NULL, "%s: a chunk is from 1 to %d tokens", what,
                  CHUNK_MAX);
    s->chunk = flag_arg(L, arg, "serial") ? 0 : (int)chunk;
    s->backward = flag_arg(L, arg, "backward");
    s->tile = tile_arg(L, what, arg);
    s->arch = arch_arg(L, what, arg);
    return s;
}

/* v:source("cuda" [, { K = 128, chunk = 64, dtype = "bfloat16",
 * arch = "sm_90a", backward = true, serial = true }]) */
int variant_source(lua_State *L)
{
    lua_settop(L, 3);
    if (strcmp(luaL_optstring(L, 2, ""), "cuda") != 0)
        lang_fail(L, "v:source(\"cuda\")", "source: only the backend 'cuda' "
                  "makes source text");
    Source *s = source_args(L, "source", 3);
    protect(L, s->ctx, emit, s);
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
    protect(L, s->ctx, compile, s);
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
