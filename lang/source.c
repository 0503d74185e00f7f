/* source.c -- a variant as CUDA C++, and compiled for a GPU that need not be
 * here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../backend/cuda/cuda.h"
#include "../backend/cuda/attempts.h"
#include "bind.h"

enum { GPU_SIZE = 128 };

#define SOURCE_META "flin.source"

typedef struct Source {
    Ctx *ctx;                           /* its own */
    const Variant *v;
    const Graph *step;                  /* v's, or of one direction of it */
    int32_t size[NAXES];
    int chunk;                          /* 0: one token at a time */
    bool backward;
    DType tile;
    const char *arch;
    Plan *plan;                         /* while it is printed */
    CudaOptions o;
    const CudaModule *m;                /* as it is compiled in the end */
    const char *text;
    Cubin *cubin;                       /* one each of its programs */
    int n;
    double seconds;
} Source;

static const char *const options[] = { "chunk", "dtype", "arch", "backward",
    "serial", "from" };
enum { NOPTIONS = sizeof options / sizeof *options };

/* Matrices in the type that is asked for, gates and other vectors in float32.
 */
static CudaOptions types_of(const Graph *g, DType tile, const char *arch)
{
    CudaOptions o = { .tile = tile, .arch = atoi(arch + 3) };

    for (int i = 0; i < g->nin; i++)
        o.in[i] = g->in[i].rank ? tile : F32;
    for (int i = 0; i < g->nout; i++)
        o.out[i] = g->out[i].rank ? tile : F32;
    return o;
}

/* What a call launches. */
static void print(Ctx *c, void *ud)
{
    Source *s = ud;

    c->file = ctx_string(c, s->v->ctx->file);
    s->plan = plan_make(graph_copy(c, s->step), s->size, s->chunk,
                        s->backward, machine_of_arch(atoi(s->arch + 3)),
                        backend_named("cuda")->larger);
    s->o = types_of(s->plan->g, s->tile, s->arch);
    s->m = cuda_usual(c, s->plan, &s->o);
    s->text = cuda_usual_text(c, s->m);
}

static CudaModule *print_attempt(Ctx *c, void *ud, int attempt, Error *why)
{
    const Source *s = ud;
    CudaOptions o = s->o;

    o.attempt = attempt;
    return cuda_tiles_if(c, s->plan, &o, why);
}

/* Each program by the attempt that spills nothing, or the least. */
static void compile(Ctx *c, void *ud)
{
    Source *s = ud;
    double start = clock_now();
    Nvrtc n;

    print(c, s);
    if (!nvrtc_open(c, &n))
        ctx_rethrow(c);
    Attempts attempts = { .ctx = c, .print = print_attempt, .ud = s };
    s->m = attempts_compile_all(c, &attempts, &n, s->arch, &s->cubin);
    s->n = attempts.programs[0].n;
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

/* "sm_90a", with what is that architecture's alone; the string at the top of
 * the stack, or ours. */
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
    lua_pushfstring(L, "sm_%d%s", number, number < 90 ? "" : "a");
    return lua_tostring(L, -1);
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
    s->step = step_of_way(v, way_arg(L, what, arg, v));
    if (s->step == v->step)
        refuse_pairs(L, v, what);
    s->ctx = sandbox_ctx(L);
    s->v = v;
    check_options(L, what, v->step, arg, options, NOPTIONS);
    sizes_arg(L, what, v->step, arg, GPU_SIZE, s->size);
    chunk = option_int(L, what, arg, "chunk", CHUNK_DEFAULT);
    if (chunk < 1 || chunk > CHUNK_MAX)
        lang_fail(L, NULL, "%s: chunk = %lld: a chunk is from 1 to %d tokens",
                  what, (long long)chunk, CHUNK_MAX);
    s->chunk = option_flag(L, what, arg, "serial") ? 0 : (int)chunk;
    s->backward = option_flag(L, what, arg, "backward");
    s->tile = tile_arg(L, what, arg);
    s->arch = arch_arg(L, what, arg);
    return s;
}

/* v:source("cuda" [, { K = 128, chunk = 64, dtype = "bfloat16",
 * arch = "sm_90a", backward = true, serial = true }]); of a mask of both
 * directions from = "first" or "last". */
int variant_source(lua_State *L)
{
    lua_settop(L, 3);
    if (strcmp(luaL_optstring(L, 2, ""), "cuda") != 0)
        lang_fail(L, "v:source(\"cuda\")", "source: only the backend 'cuda' "
                  "makes source text");
    Source *s = source_args(L, "source", 3);
    protect(L, s->ctx, print, s);
    lua_pushstring(L, s->text);
    return 1;
}

static void set_int(lua_State *L, const char *name, lua_Integer x)
{
    lua_pushinteger(L, x);
    lua_setfield(L, -2, name);
}

/* What the compiler said of all programs. */
static PtxasInfo push_cubins(lua_State *L, const Source *s)
{
    PtxasInfo all = { 0 };

    lua_newtable(L);
    for (int i = 0; i < s->n; i++) {
        const Cubin *b = &s->cubin[i];
        if (b->info.registers > all.registers)
            all.registers = b->info.registers;
        all.spill_stores += b->info.spill_stores;
        all.spill_loads += b->info.spill_loads;
        lua_pushlstring(L, (const char *)b->bytes, b->size);
        lua_rawseti(L, -2, i + 1);
    }
    return all;
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
    lua_createtable(L, 0, 8);
    PtxasInfo info = push_cubins(L, s);
    lua_rawgeti(L, -1, 1);
    lua_setfield(L, -3, "cubin");
    lua_setfield(L, -2, "cubins");
    set_int(L, "kernels", s->m->nkernels);
    set_int(L, "registers", info.registers);
    set_int(L, "spills", info.spill_stores + info.spill_loads);
    set_int(L, "shared", shared);
    lua_pushstring(L, s->arch);
    lua_setfield(L, -2, "arch");
    lua_pushnumber(L, s->seconds);
    lua_setfield(L, -2, "seconds");
    return 1;
}
