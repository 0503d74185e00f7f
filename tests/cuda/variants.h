/* variants.h -- steps as a user's trace makes them; the standard library's.
 */
#ifndef FLIN_TESTS_CUDA_VARIANTS_H
#define FLIN_TESTS_CUDA_VARIANTS_H

#include "../../compiler/grad.h"
#include "../../compiler/pipeline.h"
#include "../../compiler/partition.h"
#include "../../compiler/plan.h"
#include "../../lang/flin.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <string.h>

static Ref input_of(Graph *g, const char *name, const char *axes)
{
    return g->in[graph_input(g, name, axes)].node;
}

/* S_t = decay S_{t-1} + k v^T, y = q . S_t; decay 0: none. */
static Ref matrix_state(Graph *g, Ref q, Ref k, Ref v, Ref decay)
{
    int s = graph_state(g, "S", "k v");
    Ref old = g->st[s].node;
    if (decay)
        old = op2(g, OP_mul, decay, old);
    g->st[s].next = op2(g, OP_add, old, op2(g, OP_mul, k, v));
    return dot(g, q, g->st[s].next, AXIS(graph_axis(g, "k")));
}

static Graph *simple_gla(Ctx *c)
{
    Graph *g = graph_new(c, "simple_gla", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k");
    Ref v = input_of(g, "v", "t v"), gate = input_of(g, "g", "t : log_decay");
    graph_output(g, "y", matrix_state(g, q, k, v, op1(g, OP_exp, gate)));
    return g;
}

static Graph *linear(Ctx *c)
{
    Graph *g = graph_new(c, "linear", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k");
    Ref v = input_of(g, "v", "t v");
    Ref y = matrix_state(g, op2(g, OP_mul, q, num(g, 0.125)), k, v, 0);
    graph_output(g, "y", y);
    return g;
}

/* A decay per head, as RetNet's and Lightning's. */
static Graph *fixed_decay(Ctx *c)
{
    Graph *g = graph_new(c, "fixed_decay", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k");
    Ref v = input_of(g, "v", "t v"), gate = input_of(g, "g", ": log_decay");
    graph_output(g, "y", matrix_state(g, q, k, v, op1(g, OP_exp, gate)));
    return g;
}

static Graph *mamba2(Ctx *c)
{
    Graph *g = graph_new(c, "mamba2", 0);
    Ref q = input_of(g, "C", "t k"), k = input_of(g, "B", "t k");
    Ref x = input_of(g, "x", "t v"), dt = input_of(g, "dt", "t : positive");
    Ref rate = op1(g, OP_neg, op1(g, OP_exp, input_of(g, "A_log", "")));
    Ref d = input_of(g, "D", "");
    Ref decay = op1(g, OP_exp, op2(g, OP_mul, rate, dt));
    Ref y = matrix_state(g, q, k, op2(g, OP_mul, dt, x), decay);
    graph_output(g, "y", op2(g, OP_add, y, op2(g, OP_mul, d, x)));
    return g;
}

/* What may stand around the recurrence: a gate per entry, beta on the key. */
static Graph *gated(Ctx *c)
{
    Graph *g = graph_new(c, "gated", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k");
    Ref v = input_of(g, "v", "t v"), gate = input_of(g, "g", "t : log_decay");
    Ref z = input_of(g, "z", "t v"), beta = input_of(g, "beta", "t : unit");
    Ref y = matrix_state(g, q, op2(g, OP_mul, beta, k), v,
                         op1(g, OP_exp, gate));
    Ref silu = op2(g, OP_mul, z, op1(g, OP_sigmoid, z));
    graph_output(g, "y", op2(g, OP_mul, silu, y));
    return g;
}

/* Features of q and k: matrices that are computed ahead. */
static Ref silu(Graph *g, Ref x)
{
    return op2(g, OP_mul, x, op1(g, OP_sigmoid, x));
}

static Graph *lightning(Ctx *c)
{
    Graph *g = graph_new(c, "lightning", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k");
    Ref v = input_of(g, "v", "t v"), gate = input_of(g, "g", ": log_decay");
    graph_output(g, "y", matrix_state(g, silu(g, q), silu(g, k), v,
                                      op1(g, OP_exp, gate)));
    return g;
}

/* x in the plane of each pair of its columns, turned by phi. */
static Ref rotated(Graph *g, Ref x, Ref phi)
{
    int k = graph_axis(g, "k"), p = graph_axis(g, "p");
    Ref wide = unary_axis(g, OP_dup, phi, p, k);
    return op2(g, OP_add, op2(g, OP_mul, x, op1(g, OP_cos, wide)),
               op2(g, OP_mul, unary_axis(g, OP_rot90, x, k, 0),
                   op1(g, OP_sin, wide)));
}

static Graph *retnet(Ctx *c)
{
    Graph *g = graph_new(c, "retnet", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k");
    Ref v = input_of(g, "v", "t v"), gate = input_of(g, "g", ": log_decay");
    Ref theta = input_of(g, "theta", "p : angle");
    int s = graph_state(g, "S", "k v"), a = graph_state(g, "phi", "p : angle");
    Ref phi = op2(g, OP_add, g->st[a].node, theta);
    Ref write = op2(g, OP_mul, rotated(g, k, phi), v);
    g->st[s].next = op2(g, OP_add, op2(g, OP_mul, op1(g, OP_exp, gate),
                                       g->st[s].node), write);
    g->st[a].next = phi;
    graph_output(g, "y", dot(g, rotated(g, q, phi), g->st[s].next,
                             AXIS(graph_axis(g, "k"))));
    wrap_angles(g);
    return g;
}

/* S_t = D (S - beta k (k . D S - v)): a solve in each chunk. */
static Ref delta_state(Graph *g, Ref q, Ref k, Ref v, Ref beta, Ref decay)
{
    int s = graph_state(g, "S", "k v");
    AxisSet key = AXIS(graph_axis(g, "k"));
    Ref old = g->st[s].node;
    if (decay)
        old = op2(g, OP_mul, decay, old);
    Ref error = op2(g, OP_sub, v, dot(g, k, old, key));
    Ref write = op2(g, OP_mul, op2(g, OP_mul, beta, k), error);
    g->st[s].next = op2(g, OP_add, old, write);
    return dot(g, q, g->st[s].next, key);
}

static Graph *deltanet(Ctx *c)
{
    Graph *g = graph_new(c, "deltanet", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k : unit_norm");
    Ref v = input_of(g, "v", "t v"), beta = input_of(g, "beta", "t : unit");
    graph_output(g, "y", delta_state(g, q, k, v, beta, 0));
    return g;
}

static Graph *gated_deltanet(Ctx *c)
{
    Graph *g = graph_new(c, "gated_deltanet", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k : unit_norm");
    Ref v = input_of(g, "v", "t v"), beta = input_of(g, "beta", "t : unit");
    Ref gate = input_of(g, "g", "t : log_decay");
    graph_output(g, "y", delta_state(g, q, k, v, beta,
                                     op1(g, OP_exp, gate)));
    return g;
}

/* Gates per key: q and k read under decays of their own. */
static Graph *gla(Ctx *c)
{
    Graph *g = graph_new(c, "gla", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k");
    Ref v = input_of(g, "v", "t v");
    Ref gate = input_of(g, "g", "t k : log_decay");
    graph_output(g, "y", matrix_state(g, q, k, v, op1(g, OP_exp, gate)));
    return g;
}

static Graph *hgrn2(Ctx *c)
{
    Graph *g = graph_new(c, "hgrn2", 0);
    Ref q = input_of(g, "q", "t k"), v = input_of(g, "v", "t v");
    Ref f = op1(g, OP_exp, input_of(g, "g", "t k : log_decay"));
    Ref k = op2(g, OP_sub, num(g, 1), f);
    graph_output(g, "y", matrix_state(g, q, k, v, f));
    return g;
}

static Graph *kda(Ctx *c)
{
    Graph *g = graph_new(c, "kda", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k : unit_norm");
    Ref v = input_of(g, "v", "t v"), beta = input_of(g, "beta", "t : unit");
    Ref gate = input_of(g, "g", "t k : log_decay");
    graph_output(g, "y", delta_state(g, q, k, v, beta,
                                     op1(g, OP_exp, gate)));
    return g;
}

static Graph *gdn2(Ctx *c)
{
    Graph *g = graph_new(c, "gdn2", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k : unit_norm");
    Ref v = input_of(g, "v", "t v"), gate = input_of(g, "g",
                                                     "t k : log_decay");
    Ref b = input_of(g, "b", "t k : unit"), w = input_of(g, "w", "t v : unit");
    int s = graph_state(g, "S", "k v");
    AxisSet key = AXIS(graph_axis(g, "k"));
    Ref old = op2(g, OP_mul, op1(g, OP_exp, gate), g->st[s].node);
    Ref read = dot(g, op2(g, OP_mul, b, k), old, key);
    Ref error = op2(g, OP_sub, op2(g, OP_mul, w, v), read);
    g->st[s].next = op2(g, OP_add, old, op2(g, OP_mul, k, error));
    graph_output(g, "y", dot(g, q, g->st[s].next, key));
    return g;
}

/* The state is read before it decays; a bonus for the token itself. */
static Graph *rwkv6(Ctx *c)
{
    Graph *g = graph_new(c, "rwkv6", 0);
    Ref r = input_of(g, "r", "t k"), k = input_of(g, "k", "t k");
    Ref v = input_of(g, "v", "t v"), w = input_of(g, "w", "t k : log_decay");
    Ref u = input_of(g, "u", "k");
    AxisSet key = AXIS(graph_axis(g, "k"));
    int s = graph_state(g, "S", "k v");
    Ref bonus = dot(g, r, op2(g, OP_mul, u, k), key);
    Ref y = op2(g, OP_add, dot(g, r, g->st[s].node, key),
                op2(g, OP_mul, bonus, v));
    g->st[s].next = op2(g, OP_add, op2(g, OP_mul, op1(g, OP_exp, w),
                        g->st[s].node), op2(g, OP_mul, k, v));
    graph_output(g, "y", y);
    return g;
}

/* Two writes, one of them a correction; the read is of the state before. */
static Graph *rwkv7(Ctx *c)
{
    Graph *g = graph_new(c, "rwkv7", 0);
    Ref r = input_of(g, "r", "t k"), k = input_of(g, "k", "t k : unit_norm");
    Ref v = input_of(g, "v", "t v"), w = input_of(g, "w", "t k : log_decay");
    Ref kappa = input_of(g, "kappa", "t k : unit_norm");
    Ref a = input_of(g, "a", "t k : unit");
    int s = graph_state(g, "S", "k v");
    AxisSet key = AXIS(graph_axis(g, "k"));
    Ref old = g->st[s].node, read = dot(g, kappa, old, key);
    Ref next = op2(g, OP_mul, op1(g, OP_exp, w), old);
    next = op2(g, OP_sub, next,
               op2(g, OP_mul, op2(g, OP_mul, a, kappa), read));
    g->st[s].next = op2(g, OP_add, next, op2(g, OP_mul, k, v));
    graph_output(g, "y", dot(g, r, g->st[s].next, key));
    return g;
}

static Graph *deltanet_rope(Ctx *c)
{
    Graph *g = graph_new(c, "deltanet_rope", 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k : unit_norm");
    Ref v = input_of(g, "v", "t v"), beta = input_of(g, "beta", "t : unit");
    Ref theta = input_of(g, "theta", "t p : angle");
    int s = graph_state(g, "S", "k v"), a = graph_state(g, "phi", "p : angle");
    AxisSet key = AXIS(graph_axis(g, "k"));
    Ref phi = op2(g, OP_add, g->st[a].node, theta), old = g->st[s].node;
    Ref rk = rotated(g, k, phi);
    Ref error = op2(g, OP_sub, v, dot(g, rk, old, key));
    g->st[s].next = op2(g, OP_add, old, op2(g, OP_mul, op2(g, OP_mul, beta,
                                                           rk), error));
    g->st[a].next = phi;
    graph_output(g, "y", dot(g, rotated(g, q, phi), g->st[s].next, key));
    wrap_angles(g);
    return g;
}

/* What is written goes through a running mean of the keys' squares. */
static Graph *preconditioned(Ctx *c, const char *name, const char *gate)
{
    Graph *g = graph_new(c, name, 0);
    Ref q = input_of(g, "q", "t k"), k = input_of(g, "k", "t k : unit_norm");
    Ref v = input_of(g, "v", "t v"), beta = input_of(g, "beta", "t : unit");
    Ref decay = op1(g, OP_exp, input_of(g, "g", gate));
    Ref fade = op1(g, OP_exp, input_of(g, "fade", "t : log_decay"));
    int s = graph_state(g, "S", "k v"), a = graph_state(g, "A", "k");
    AxisSet key = AXIS(graph_axis(g, "k"));
    Ref sum = op2(g, OP_add, op2(g, OP_mul, fade, g->st[a].node),
                  op1(g, OP_square, k));
    Ref scale = op1(g, OP_rsqrt, op2(g, OP_add, sum, num(g, 0.1)));
    Ref old = op2(g, OP_mul, decay, g->st[s].node);
    Ref error = op2(g, OP_sub, v, dot(g, k, old, key));
    Ref write = op2(g, OP_mul, op2(g, OP_mul, beta, op2(g, OP_mul, k, scale)),
                    error);
    g->st[s].next = op2(g, OP_add, old, write);
    g->st[a].next = sum;
    graph_output(g, "y", dot(g, q, g->st[s].next, key));
    return g;
}

static Graph *precond_delta(Ctx *c)
{
    return preconditioned(c, "precond_delta", "t : log_decay");
}

static Graph *precond_delta_k(Ctx *c)
{
    return preconditioned(c, "precond_delta_k", "t k : log_decay");
}

/* Without make: of stdlib. */
typedef struct Variant {
    const char *name;
    Graph *(*make)(Ctx *c);
} Variant;
static const Variant variants[] = {
    { "simple_gla", simple_gla }, { "linear", linear },
    { "fixed_decay", fixed_decay }, { "mamba2", mamba2 },
    { "gated", gated }, { "lightning", lightning },
    { "deltanet", deltanet }, { "gated_deltanet", gated_deltanet },
    { "gla", gla }, { "hgrn2", hgrn2 }, { "kda", kda },
    { "gdn2", gdn2 }, { "rwkv6", rwkv6 },
    { "rwkv7", rwkv7 }, { "retnet", retnet },
    { "deltanet_rope", deltanet_rope },
    { "precond_delta", precond_delta },
    { "precond_delta_k", precond_delta_k },
    { "trapezoidal_gla", NULL }, { "mamba3", NULL },
    { "mlstm", NULL }, { "precond_mamba3", NULL },
    { "mimo_deltanet", NULL },
};
enum { NVARIANTS = sizeof variants / sizeof *variants };

static const char stdlib_dump[] =
    "return require 'flin'.stdlib[...]:dump('T'):gsub('^#[^\\n]*\\n', '')";

static Graph *stdlib_graph(Ctx *c, const char *name)
{
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    luaL_requiref(L, "flin", luaopen_flin, 0);
    int bad = luaL_loadstring(L, stdlib_dump);
    lua_pushstring(L, name);
    bad = bad || lua_pcall(L, 1, 1, 0);
    const char *text = ctx_string(c, lua_tostring(L, -1));
    lua_close(L);
    if (bad)
        fail_code(c, ERR_INTERNAL, "%s", text);
    return graph_parse(c, text);
}

static Graph *variant_graph(Ctx *c, const char *name)
{
    for (int i = 0; i < NVARIANTS; i++)
        if (!strcmp(variants[i].name, name) && variants[i].make)
            return variants[i].make(c);
    return stdlib_graph(c, name);
}

/* How long the step's axes are. */
static void set_sizes(Graph *step, int k, int v, int32_t size[NAXES])
{
    for (int ax = AX_DIM; ax < NAXES; ax++)
        size[ax] = step->axis[ax].size;
    size[graph_axis(step, "k")] = k;
    size[graph_axis(step, "v")] = v;
    if (graph_find_axis(step, "p") >= 0)
        size[graph_find_axis(step, "p")] = k / 2;
}

/* The plan for key size k and value size v, by chunks of 64 tokens. */
static Plan *plan_of(Ctx *c, Graph *step, int k, int v)
{
    int32_t size[NAXES] = { 0 };
    set_sizes(step, k, v, size);
    Graph *chunk = by_chunks(step, size, 64, false, machine_usual_gpu());
    if (!chunk)
        fail_code(c, ERR_INTERNAL, "%s: %s", step->name, step->note);
    return plan_simple(chunk);
}

#endif
