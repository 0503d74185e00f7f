/* pools.c -- states of pools, side by side. */
#include "pools.h"

#include <stdlib.h>

#include "build.h"
#include "driver_entry.h"

enum { RANK = 8, THREADS = 256, ALIGN = 256 };

static const char source[] =
    "// Entries of a pool that an index names to where they lie side by side,\n"
    "// or back. A block has one head of one of them.\n"
    "typedef long long i64;\n"
    "struct View { char *p; i64 sb, st, sh, sd[8]; };\n"
    "struct Args {\n"
    "    const void *pages;\n"
    "    i64 row, col, states, each;\n"
    "    View pool, own;\n"
    "    int n[8], heads, columns, first, wide, bytes, back;\n"
    "};\n"
    "template<class T>\n"
    "__device__ static void move(char *to, const char *from, i64 a, i64 b)\n"
    "{\n"
    "    ((T *)to)[a] = ((const T *)from)[b];\n"
    "}\n"
    "extern \"C\" __global__ void flin_pools(const __grid_constant__ Args a)\n"
    "{\n"
    "    const i64 item = blockIdx.x / a.heads, head = blockIdx.x % a.heads;\n"
    "    const i64 seq = item / a.columns, column = item % a.columns;\n"
    "    const i64 at = seq * a.row + (column + a.first) * a.col;\n"
    "    const i64 entry = a.wide ? ((const i64 *)a.pages)[at]\n"
    "                             : ((const int *)a.pages)[at];\n"
    "    const bool there = entry >= 0 && entry < a.states;\n"
    "    if (a.back && !there)\n"
    "        return;\n"
    "    const i64 pool = entry * a.pool.sb + head * a.pool.sh;\n"
    "    const i64 own = seq * a.own.sb + column * a.own.st\n"
    "                  + head * a.own.sh;\n"
    "    for (i64 e = threadIdx.x; e < a.each; e += 256) {\n"
    "        i64 p = pool, o = own, left = e;\n"
    "        for (int d = 7; d >= 0; d--) {\n"
    "            p += left % a.n[d] * a.pool.sd[d];\n"
    "            o += left % a.n[d] * a.own.sd[d];\n"
    "            left /= a.n[d];\n"
    "        }\n"
    "        if (a.back && a.bytes == 4)\n"
    "            move<int>(a.pool.p, a.own.p, p, o);\n"
    "        else if (a.back && a.bytes == 2)\n"
    "            move<short>(a.pool.p, a.own.p, p, o);\n"
    "        else if (a.back)\n"
    "            move<i64>(a.pool.p, a.own.p, p, o);\n"
    "        else if (a.bytes == 4)\n"
    "            ((int *)a.own.p)[o] = there ? ((int *)a.pool.p)[p] : 0;\n"
    "        else if (a.bytes == 2)\n"
    "            ((short *)a.own.p)[o] = there ? ((short *)a.pool.p)[p] : 0;\n"
    "        else\n"
    "            ((i64 *)a.own.p)[o] = there ? ((i64 *)a.pool.p)[p] : 0;\n"
    "    }\n"
    "}\n";

/* As the source has them. */
typedef struct HostView { uint64_t p; int64_t sb, st, sh, sd[RANK]; } HostView;

typedef struct Args {
    uint64_t pages;
    int64_t row, col, states, each;
    HostView pool, own;
    int32_t n[RANK], heads, columns, first, wide, bytes, back;
} Args;

typedef struct Pools { Module *module; Function *f; } Pools;

static void end(const Driver *d, void *p)
{
    module_unload(d, ((Pools *)p)->module);
    free(p);
}

static void compile(Ctx *c, void *ud)
{
    Gpu *g = ud;
    Pools *p;
    if (gpu_own(g, OWN_POOLS))
        return;
    Module *m = build_module(c, g, source);
    if (!(p = calloc(1, sizeof *p))) {
        module_unload(gpu_driver(g), m);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    gpu_give(g, OWN_POOLS, p, end);
    p->module = m;
    p->f = module_function(c, gpu_driver(g), m, "flin_pools", 0);
}

void pools_prepare(Ctx *c, Gpu *g)
{
    gpu_enter(c, g);
    gpu_locked(c, g, compile, g);
}

/* ---- where the copies lie ---- */

static int64_t entries(const Graph *g, const State *st)
{
    int64_t n = 1;
    for (int d = 0; d < st->rank; d++)
        n *= g->axis[st->order[d]].size;
    return n;
}

/* Of those that are left, one behind each token, or one. */
static int64_t columns(const Call *call, bool left)
{
    return left && call->each ? call->tokens : 1;
}

static int64_t view_bytes(const Graph *g, const Call *call, int i, bool left)
{
    int64_t size = dtype_size((left ? &call->s1[i] : &call->s0[i])->dtype);
    int64_t n = entries(g, &g->st[i]) * call->heads * call->nseq
              * columns(call, left) * size;
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

int64_t pools_bytes(const Graph *g, const Call *call)
{
    int64_t n = 0;
    for (int i = 0; i < g->nst; i++)
        n += view_bytes(g, call, i, false) + view_bytes(g, call, i, true);
    return n;
}

static DevicePtr place(const Graph *g, Call *own, int i, bool left,
                       DevicePtr at)
{
    View *v = left ? &own->s1[i] : &own->s0[i];
    const State *st = &g->st[i];
    int64_t n = 1;
    if (!v->data)
        return at;
    v->data = (void *)(uintptr_t)at;
    for (int d = st->rank; d-- > 0; n *= g->axis[st->order[d]].size)
        v->sd[d] = n;
    v->sh = n;
    v->st = left && own->each ? n * own->heads : 0;
    v->sb = n * own->heads * columns(own, left);
    return at + (DevicePtr)view_bytes(g, own, i, left);
}

void pools_place(const Graph *g, Call *own, DevicePtr at)
{
    for (int i = 0; i < g->nst; i++) {
        at = place(g, own, i, false, at);
        at = place(g, own, i, true, at);
    }
}

Call pools_apart(const Graph *g, const Call *call)
{
    Call own = *call;
    own.pages = (Pages){ 0 };
    pools_place(g, &own, ALIGN);
    return own;
}

/* ---- copies ---- */

static HostView host_view(const View *v)
{
    HostView h = { (uint64_t)(uintptr_t)v->data, v->sb, v->st, v->sh, { 0 } };
    for (int d = 0; d < RANK; d++)
        h.sd[d] = v->sd[d];
    return h;
}

static void queue(Ctx *c, Gpu *gpu, const Graph *g, const Call *call,
                  const Call *own, int i, bool back)
{
    const Driver *d = gpu_driver(gpu);
    const Pools *pools = gpu_own(gpu, OWN_POOLS);
    const State *st = &g->st[i];
    const View *pool = back ? &call->s1[i] : &call->s0[i];
    Args a = { .pages = (uint64_t)(uintptr_t)call->pages.at,
               .row = call->pages.sn, .col = call->pages.sc,
               .states = call->pages.states, .each = entries(g, st),
               .pool = host_view(pool),
               .own = host_view(back ? &own->s1[i] : &own->s0[i]),
               .heads = call->heads, .first = back && call->each,
               .columns = (int32_t)columns(call, back), .back = back,
               .wide = call->pages.dtype == I64,
               .bytes = dtype_size(pool->dtype) };
    void *params[] = { &a };
    for (int k = 0; k < RANK; k++)
        a.n[k] = k < st->rank ? g->axis[st->order[k]].size : 1;
    CALL(d, LAUNCH, launch_kernel);
    unsigned grid = (unsigned)(call->nseq * call->heads * a.columns);
    driver_check(c, d, launch_kernel(pools->f, grid, 1, 1, THREADS,
                 1, 1, 0, call->stream, params, NULL), "launching a kernel");
}

void pools_queue(Ctx *c, Gpu *gpu, const Graph *g, const Call *call,
                 const Call *own, bool back)
{
    for (int i = 0; i < g->nst && call->nseq; i++)
        if ((back ? own->s1[i] : own->s0[i]).data)
            queue(c, gpu, g, call, own, i, back);
}
