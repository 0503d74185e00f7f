/* random_program.h -- a random step: gates, erasing and writing terms, lower
 * states, momentum, reads of several kinds; by seed. Most have a chunk form. */
#ifndef FLIN_TESTS_RANDOM_PROGRAM_H
#define FLIN_TESTS_RANDOM_PROGRAM_H

#include "support.h"

typedef struct Gen {
    Graph *g;
    uint64_t seed;
    AxisSet k, v, r;
    Ref S, z, q, key[2], val[2], beta;
    bool nu_side;               /* reads and decays along v instead of k */
} Gen;

static bool chance(Gen *w, double p)
{
    return uniform(&w->seed) < p;
}

static int pick(Gen *w, int n)
{
    return (int)(uniform(&w->seed) * n);
}

static Ref input(Gen *w, const char *name, const char *axes)
{
    return w->g->in[graph_input(w->g, name, axes)].node;
}

static Ref mul(Gen *w, Ref a, Ref b) { return op2(w->g, OP_mul, a, b); }
static Ref add(Gen *w, Ref a, Ref b) { return op2(w->g, OP_add, a, b); }

static Ref read_of(Gen *w, Ref p, Ref S)
{
    return dot(w->g, p, S, w->nu_side ? w->v : w->k);
}

/* A decay: none, of a head, of a token, of a key, through a lower state. */
static Ref decay(Gen *w)
{
    Graph *g = w->g;
    const char *side = w->nu_side ? "v" : "k";
    char axes[40];

    snprintf(axes, sizeof axes, "t %s : log_decay", side);
    switch (pick(w, 7)) {
    case 0: return num(g, 1);
    case 1: return num(g, 0.9);
    case 2: return op1(g, OP_exp, input(w, "g", ": log_decay"));
    case 3: return op1(g, OP_exp, input(w, "g", "t : log_decay"));
    case 4: return op1(g, OP_sigmoid, input(w, "g", "t"));
    case 5: return op1(g, OP_exp, input(w, "g", axes));
    default:                    /* weaker where the running mean is large */
        return op1(g, OP_sigmoid, add(w, w->z, num(g, 1)));
    }
}

/* A key-like vector of the token. */
static Ref keyed(Gen *w, int i)
{
    Ref k = w->key[i];

    switch (pick(w, 4)) {
    case 0: return k;
    case 1: return mul(w, k, w->beta);
    case 2: return mul(w, k, op1(w->g, OP_sigmoid, w->z));
    default: return op1(w->g, OP_neg, k);
    }
}

/* One more term in the state's update; S is what it is so far. */
static Ref written(Gen *w, Ref S, Ref decayed, int i)
{
    Graph *g = w->g;
    Ref b = keyed(w, i), x = w->val[i];

    if (w->nu_side) {           /* the same with the axes exchanged */
        Ref t = b;
        b = mul(w, w->val[i], num(g, 0.5));
        x = t;
    }
    if (chance(w, 0.5)) {
        Ref from = chance(w, 0.5) ? decayed : chance(w, 0.5) ? S : w->S;
        Ref p = w->nu_side ? mul(w, w->val[i], num(g, 0.3)) : w->key[i];
        x = op2(g, OP_sub, x, mul(w, w->beta, read_of(w, p, from)));
    }
    return add(w, S, mul(w, b, x));
}

/* What passes between matrices, and what of one stays. */
static Ref passed(Gen *w, const char *name)
{
    switch (pick(w, 3)) {
    case 0: return num(w->g, -0.6);
    case 1: return op1(w->g, OP_tanh, input(w, name, "t"));
    default: return op1(w->g, OP_sigmoid, input(w, name, "t"));
    }
}

/* What S becomes with a matrix of steps, which may have S in it. */
static Ref momentum(Gen *w)
{
    Graph *g = w->g;
    int m = graph_state(g, "M", "k v");
    Ref M = mul(w, passed(w, "mu"), g->st[m].node);

    if (chance(w, 0.5))
        M = add(w, M, mul(w, mul(w, num(g, 0.4), passed(w, "back")), w->S));
    M = written(w, M, w->S, 0);
    g->st[m].next = M;
    Ref S = add(w, mul(w, passed(w, "a"), w->S),
                mul(w, mul(w, num(g, 0.4), passed(w, "step")), M));
    return chance(w, 0.5) ? written(w, S, w->S, 1) : S;
}

/* y: reads of several kinds, through something that is not linear. */
static Ref output(Gen *w, Ref S)
{
    Graph *g = w->g;
    Ref y = dot(g, w->q, chance(w, 0.7) ? S : w->S, w->k);

    if (chance(w, 0.3))
        y = mul(w, y, op1(g, OP_sigmoid, y));
    if (chance(w, 0.3))
        y = add(w, y, mul(w, dot(g, w->key[1], S, w->k),
                          op1(g, OP_tanh, w->z)));
    if (chance(w, 0.3))
        y = add(w, y, dot(g, w->val[1], S, w->v));
    if (chance(w, 0.2))
        y = mul(w, y, op1(g, OP_rsqrt,
                          add(w, sum(g, op1(g, OP_square, y), w->v),
                              num(g, 1))));
    return y;
}

static inline Graph *random_program(Ctx *c, uint64_t seed)
{
    Gen w = { .g = graph_new(c, "random", 0), .seed = seed * 77 + 5 };
    Graph *g = w.g;
    int k = graph_axis(g, "k"), v = graph_axis(g, "v");

    g->axis[k].size = 5 + pick(&w, 20);
    g->axis[v].size = 5 + pick(&w, 20);
    w.k = AXIS(k);
    w.v = AXIS(v);
    w.nu_side = chance(&w, 0.2);
    w.q = input(&w, "q", "t k");
    w.key[0] = input(&w, "k", "t k : unit_norm");
    w.key[1] = input(&w, "k2", "t k : unit_norm");
    w.val[0] = input(&w, "v", "t v : unit_norm");
    w.val[1] = input(&w, "v2", "t v : unit_norm");
    w.beta = input(&w, "beta", "t : unit");
    w.S = g->st[graph_state(g, "S", "k v")].node;
    w.z = g->st[graph_state(g, "z", "")].node;
    Ref u = input(&w, "u", "t");
    g->st[1].next = add(&w, mul(&w, num(g, 0.8), w.z),
                        mul(&w, num(g, 0.2), u));
    if (chance(&w, 0.5))
        w.z = g->st[1].next;
    Ref S, decayed;
    if (seed % 4 == 3) {
        S = momentum(&w);
    } else {
        S = decayed = mul(&w, decay(&w), w.S);
        for (int i = 0, n = 1 + pick(&w, 2); i < n; i++)
            S = written(&w, S, decayed, i);
    }
    g->st[0].next = S;
    graph_output(g, "y", output(&w, S));
    return g;
}

#endif
