/* random_structure.h -- a random step by seed, of structures that nobody would
 * write: axes coupled every way, constants of the head at every place, two
 * matrix states, ranks, chains of earlier tokens, several reads, gates of each
 * kind, sums and means, choices, lower states of each form. What it made is
 * noted, a bit a feature. Values stay bounded, so that errors mean something.
 */
#ifndef FLIN_TESTS_RANDOM_STRUCTURE_H
#define FLIN_TESTS_RANDOM_STRUCTURE_H

#include "support.h"

#define FEATURES(X) \
    X(CONST_KEY, "a constant key") X(CONST_VALUE, "a constant value") \
    X(CONST_SCALAR, "a constant scalar") X(EARLIER, "earlier tokens") \
    X(CHAIN, "a chain of earlier tokens") X(RANK, "ranks") \
    X(TWO_RANKS, "ranks of two sizes") X(QUERIES, "several queries") \
    X(ERASE, "erasing") X(ERASE_OLD, "erasing of what was found") \
    X(ERASE_NOW, "erasing of what was just written") \
    X(WRITES, "several writes") X(NO_DECAY, "no decay") \
    X(NUMBER_DECAY, "a fixed decay") X(HEAD_DECAY, "a decay of the head") \
    X(TOKEN_DECAY, "a decay of the token") X(KEY_DECAY, "a decay per key") \
    X(CONST_KEY_DECAY, "a decay per key of the head") \
    X(VALUE_DECAY, "a decay per value") X(STATE_DECAY, "a decay by a state") \
    X(CHOSEN_DECAY, "a chosen decay") X(PRODUCT_DECAY, "two decays") \
    X(SCALED_GATE, "a gate times a constant") \
    X(GATED_GATE, "a gate times one of the token") \
    X(LOWER_GATE, "a gate and more") X(RATE, "a rate times a time step") \
    X(STRONG, "gates of -1e3 to -inf") \
    X(WHERE, "a choice") X(SUM, "a sum") X(MEAN, "a mean") \
    X(ENTRY, "an entry") X(COUPLED, "keys against keys") \
    X(SCAN, "a running mean") X(VECTOR, "a vector state") \
    X(MAX, "a running maximum") X(ANGLE, "an angle") \
    X(TURNS, "a sum that cos looks at") X(COUNT, "a count") \
    X(SECOND, "a second matrix") X(STACKED, "a matrix above another") \
    X(SIGNED, "a decay of either sign") X(RESET, "a decay of zero") \
    X(UNIT_DECAY, "a decay from 0 to 1") X(ALONG_KEYS, "numbers per key") \
    X(ALONG_VALUES, "numbers per value") X(ENTRIES, "numbers per entry") \
    X(EVERY_KEY, "the same under every key") \
    X(EVERY_VALUE, "the same in every value") \
    X(BLOCK, "matrices in each other") X(CIRCLE, "a circle of matrices") \
    X(VECTORS, "a circle of vectors") \
    X(ERASE_OTHER, "erasing of what another holds") \
    X(READ_OLD, "a read of what was found") \
    X(READ_DECAYED, "a read of what is kept") \
    X(READ_VALUES, "a read along values") X(READ_TWICE, "two reads") \
    X(CUBE, "a state of three axes") \
    X(READ_BY_READ, "a read by what was read") \
    X(READ_SUM, "a read that sums") X(BEYOND, "y beyond its reads") \
    X(NOT_LINEAR, "y not linear") X(SCALED, "keys scaled by keys")

enum Feature {
#define X(name, text) F_##name,
    FEATURES(X)
#undef X
    NFEATURES
};

static const char *const feature_name[NFEATURES] = {
#define X(name, text) text,
    FEATURES(X)
#undef X
};

typedef struct Maker {
    Graph *g;
    uint64_t seed, has;
    AxisSet k, v;
    struct { const char *axes; Ref node; } input[MAX_INPUTS];
    int ninputs;
    Ref S, kept, now;                   /* found, decayed, so far */
    Ref scalar[8];                      /* of lower states */
    int nscalars;
    Ref vector;                         /* a lower vector state over k, or 0 */
    AxisSet along;                      /* what a block's numbers differ by */
    bool blind;                         /* nothing that is written reads */
} Maker;

static int any(Maker *w, int n)
{
    return (int)(uniform(&w->seed) * n);
}

static bool maybe(Maker *w, double p) { return uniform(&w->seed) < p; }

static void has(Maker *w, int feature) { w->has |= (uint64_t)1 << feature; }

static Ref times(Maker *w, Ref a, Ref b) { return op2(w->g, OP_mul, a, b); }
static Ref plus(Maker *w, Ref a, Ref b) { return op2(w->g, OP_add, a, b); }
static Ref less(Maker *w, Ref a, Ref b) { return op2(w->g, OP_sub, a, b); }
static Ref scaled(Maker *w, double x, Ref a)
{
    return times(w, num(w->g, x), a);
}
static Ref unit_of(Maker *w, Ref a) { return op1(w->g, OP_sigmoid, a); }

/* A new input, or now and then one that is there. */
static Ref fresh_input(Maker *w, const char *axes)
{
    int again = w->ninputs ? any(w, w->ninputs) : 0;
    char name[16];

    if (again < w->ninputs && maybe(w, 0.3)
        && !strcmp(w->input[again].axes, axes))
        return w->input[again].node;
    snprintf(name, sizeof name, "x%d", w->ninputs);
    Ref x = w->g->in[graph_input(w->g, name, axes)].node;
    w->input[w->ninputs].axes = axes;
    w->input[w->ninputs++].node = x;
    return x;
}

static Ref new_state(Maker *w, const char *name, const char *axes, int *at)
{
    *at = graph_state(w->g, name, axes);
    return w->g->st[*at].node;
}

/* x as it was `back` tokens ago. */
static Ref earlier(Maker *w, Ref x, const char *axes, int back)
{
    char name[24];
    int at;

    for (; back > 0 && w->g->nst < 10; back--) {
        snprintf(name, sizeof name, "before%d", w->g->nst);
        Ref was = new_state(w, name, axes, &at);
        w->g->st[at].next = x;
        x = was;
    }
    return x;
}

/* ---- scalars, keys, values: of the token or of the head ---- */

static Ref a_key(Maker *w, int depth);

static Ref a_scalar(Maker *w, int depth)
{
    Graph *g = w->g;
    Ref a, b;

    switch (any(w, depth > 0 ? 11 : 4)) {
    case 0: return fresh_input(w, "t : unit");
    case 1: return unit_of(w, fresh_input(w, "t"));
    case 2:
        has(w, F_CONST_SCALAR);
        return unit_of(w, fresh_input(w, ": normal"));
    case 3: return num(g, 0.1 + 0.8 * uniform(&w->seed));
    case 4:
        has(w, F_SUM);
        return unit_of(w, sum(g, a_key(w, depth - 1), w->k));
    case 5:
        has(w, F_MEAN);
        a = sum(g, fresh_input(w, maybe(w, 0.5) ? "t v" : "v"), w->v);
        return unit_of(w, op2(g, OP_div, a, axis_size(g, lowest(w->v))));
    case 6:
        has(w, F_ENTRY);
        return unit_of(w, select_at(g, a_key(w, depth - 1), lowest(w->k),
                                    any(w, g->axis[lowest(w->k)].size)));
    case 7:
        has(w, F_COUPLED);
        return op1(g, OP_tanh, dot(g, a_key(w, depth - 1),
                                   a_key(w, depth - 1), w->k));
    case 8:
        has(w, F_WHERE);
        a = fresh_input(w, "t");
        b = a_scalar(w, depth - 1);
        return op3(g, OP_where, op2(g, OP_lt, a, num(g, 0)), b,
                   a_scalar(w, depth - 1));
    case 9: return times(w, a_scalar(w, depth - 1), a_scalar(w, depth - 1));
    default:
        if (!w->nscalars)
            return fresh_input(w, "t : unit");
        return unit_of(w, w->scalar[any(w, w->nscalars)]);
    }
}

static Ref a_key(Maker *w, int depth)
{
    Graph *g = w->g;
    Ref a;

    switch (any(w, depth > 0 ? 10 : 3)) {
    case 0: case 1: return fresh_input(w, "t k : unit_norm");
    case 2:
        has(w, F_CONST_KEY);
        return fresh_input(w, "k : unit_norm");
    case 3:
        has(w, F_EARLIER);
        return earlier(w, fresh_input(w, "t k : unit_norm"), "k", 1);
    case 4:
        has(w, F_CHAIN);
        return earlier(w, fresh_input(w, "t k : unit_norm"), "k",
                       2 + any(w, 2));
    case 5: return times(w, a_scalar(w, depth - 1), a_key(w, depth - 1));
    case 6:
        has(w, F_SCALED);
        return times(w, a_key(w, depth - 1),
                     unit_of(w, fresh_input(w, maybe(w, 0.5) ? "t k" : "k")));
    case 7: return op1(g, OP_neg, a_key(w, depth - 1));
    case 8:
        has(w, F_WHERE);
        a = op2(g, OP_lt, fresh_input(w, maybe(w, 0.5) ? "t" : "t k"),
                num(g, 0));
        return op3(g, OP_where, a, a_key(w, depth - 1), a_key(w, depth - 1));
    default:
        return w->vector ? scaled(w, 0.3, op1(g, OP_tanh, w->vector))
                         : fresh_input(w, "t k : unit_norm");
    }
}

static Ref a_value(Maker *w, int depth)
{
    switch (any(w, depth > 0 ? 7 : 3)) {
    case 0: case 1: return fresh_input(w, "t v : unit_norm");
    case 2:
        has(w, F_CONST_VALUE);
        return fresh_input(w, "v : unit_norm");
    case 3:
        has(w, F_EARLIER);
        return earlier(w, fresh_input(w, "t v : unit_norm"), "v", 1);
    case 4: return times(w, a_scalar(w, depth - 1), a_value(w, depth - 1));
    case 5: return plus(w, a_value(w, depth - 1),
                        scaled(w, 0.2, a_scalar(w, depth - 1)));
    default: return times(w, a_value(w, depth - 1),
                          unit_of(w, fresh_input(w, "t v")));
    }
}

/* ---- lower states ---- */

static void lower_states(Maker *w)
{
    Graph *g = w->g;
    int at;
    Ref x, u;

    if (maybe(w, 0.4)) {
        has(w, F_SCAN);
        x = new_state(w, "z", "", &at);
        u = maybe(w, 0.5) ? a_scalar(w, 1) : fresh_input(w, "t");
        u = plus(w, times(w, a_scalar(w, 1), x), scaled(w, 0.2, u));
        g->st[at].next = u;
        w->scalar[w->nscalars++] = maybe(w, 0.5) ? u : x;
    }
    if (maybe(w, 0.3)) {
        has(w, F_VECTOR);
        x = new_state(w, "n", "k", &at);
        u = plus(w, times(w, maybe(w, 0.5) ? a_scalar(w, 1) : num(g, 0.7), x),
                 a_key(w, 1));
        g->st[at].next = u;
        w->vector = maybe(w, 0.5) ? u : x;
    }
    if (maybe(w, 0.2)) {
        has(w, F_MAX);
        x = new_state(w, "m", "", &at);
        u = op2(g, OP_max, plus(w, x, fresh_input(w, "t : log_decay")),
                fresh_input(w, "t"));
        g->st[at].next = u;
        w->scalar[w->nscalars++] = scaled(w, 0.3, maybe(w, 0.5) ? u : x);
    }
    if (maybe(w, 0.25)) {
        bool angle = maybe(w, 0.5);
        has(w, angle ? F_ANGLE : F_TURNS);
        x = new_state(w, "phi", angle ? ": angle" : "", &at);
        u = less(w, plus(w, x, a_scalar(w, 1)), fresh_input(w, "t"));
        g->st[at].next = u;
        w->scalar[w->nscalars++] = op1(g, maybe(w, 0.5) ? OP_cos : OP_sin,
                                       maybe(w, 0.5) ? u : x);
    }
    if (maybe(w, 0.2)) {
        has(w, F_COUNT);
        x = new_state(w, "count", "", &at);
        g->st[at].next = plus(w, x, maybe(w, 0.5) ? num(g, 1)
                                                  : a_scalar(w, 1));
        if (maybe(w, 0.5))
            w->scalar[w->nscalars++] = scaled(w, 0.01, x);
    }
}

/* ---- matrices ---- */

/* The logarithm of a decay, made of gates and constants: a gate of -inf is one
 * there, too. */
static Ref made_gate(Maker *w)
{
    Graph *g = w->g;
    const char *axes = maybe(w, 0.4) ? "t k : log_decay" : "t : log_decay";
    Ref a = fresh_input(w, axes), b;

    switch (any(w, 6)) {
    case 0: case 1:
        has(w, F_SCALED_GATE);
        b = fresh_input(w, maybe(w, 0.6) ? ": unit" : "k : unit");
        return maybe(w, 0.5) ? times(w, b, a)
                             : op2(g, OP_div, a, plus(w, b, num(g, 0.5)));
    case 2:
        has(w, F_GATED_GATE);
        return maybe(w, 0.5) ? times(w, a, fresh_input(w, "t : unit"))
             : op1(g, OP_neg, times(w, a, fresh_input(w, ": log_decay")));
    case 3:
        has(w, F_GATED_GATE);
        return op1(g, OP_neg, times(w, a, fresh_input(w, axes)));
    case 4:
        has(w, F_LOWER_GATE);
        b = op1(g, OP_softplus, fresh_input(w, maybe(w, 0.5) ? "t" : ""));
        return maybe(w, 0.5) ? less(w, a, b)
             : times(w, plus(w, a, fresh_input(w, ": log_decay")),
                     unit_of(w, fresh_input(w, "")));
    default:
        has(w, F_RATE);
        a = op1(g, OP_neg, op1(g, OP_exp, fresh_input(w, "")));
        b = maybe(w, 0.5) ? fresh_input(w, "t : positive")
          : op1(g, OP_softplus, plus(w, fresh_input(w, "t"),
                                     fresh_input(w, "")));
        return times(w, a, b);
    }
}

static Ref a_decay(Maker *w, int depth)
{
    Graph *g = w->g;

    switch (any(w, depth > 0 ? 12 : 10)) {
    case 0:
        has(w, F_NO_DECAY);
        return num(g, 1);
    case 1:
        has(w, F_NUMBER_DECAY);
        return num(g, 0.9);
    case 2:
        has(w, F_HEAD_DECAY);
        return op1(g, OP_exp, fresh_input(w, ": log_decay"));
    case 3:
        has(w, F_TOKEN_DECAY);
        return op1(g, OP_exp, fresh_input(w, "t : log_decay"));
    case 4: case 5:
        has(w, F_KEY_DECAY);
        return op1(g, OP_exp, fresh_input(w, "t k : log_decay"));
    case 6:
        has(w, F_CONST_KEY_DECAY);
        return op1(g, OP_exp, fresh_input(w, "k : log_decay"));
    case 7:
        has(w, F_STATE_DECAY);
        return w->vector && maybe(w, 0.5) ? unit_of(w, w->vector)
             : w->nscalars ? unit_of(w, w->scalar[any(w, w->nscalars)])
                           : unit_of(w, fresh_input(w, "t"));
    case 8: case 9: return op1(g, OP_exp, made_gate(w));
    case 10:
        if (maybe(w, 0.5)) {
            has(w, F_UNIT_DECAY);
            return fresh_input(w, maybe(w, 0.7) ? "t k : unit" : "t : unit");
        }
        has(w, F_CHOSEN_DECAY);
        return op3(g, OP_where,
                   op2(g, OP_lt, fresh_input(w, "t"), num(g, 0)),
                   a_decay(w, 0), a_decay(w, 0));
    default:
        has(w, F_PRODUCT_DECAY);
        return times(w, a_decay(w, 0), a_decay(w, 0));
    }
}

/* What one term of the update reads of the state first. */
static Ref erased(Maker *w)
{
    Ref from = w->kept;

    has(w, F_ERASE);
    if (maybe(w, 0.25)) {
        has(w, F_ERASE_OLD);
        from = w->S;
    } else if (maybe(w, 0.35)) {
        has(w, F_ERASE_NOW);
        from = w->now;
    }
    return times(w, a_scalar(w, 1), dot(w->g, a_key(w, 1), from, w->k));
}

/* Several keys and values a token, along a rank axis. */
static Ref ranked(Maker *w)
{
    Graph *g = w->g;
    bool two = maybe(w, 0.3);
    const char *key = two ? "t r2 k" : "t r k";
    const char *value = two ? "t r2 v" : "t r v";
    int r = graph_axis(g, two ? "r2" : "r");
    AxisSet rank = AXIS(r);

    if (!g->axis[r].size)
        g->axis[r].size = 1 + any(w, 4);
    has(w, w->has >> F_RANK & 1 && two ? F_TWO_RANKS : F_RANK);
    Ref b = op1(g, OP_tanh, fresh_input(w, key));
    Ref x = op1(g, OP_tanh, fresh_input(w, value));
    if (!w->blind && maybe(w, 0.5)) {
        has(w, F_ERASE);
        Ref a = op1(g, OP_tanh, fresh_input(w, key));
        x = less(w, x, scaled(w, 0.1, dot(g, scaled(w, 0.3, a), w->kept,
                                          w->k)));
    }
    return scaled(w, 0.2, dot(g, b, x, rank));
}

static Ref one_write(Maker *w)
{
    Ref x;

    if (maybe(w, 0.2))
        return ranked(w);
    x = a_value(w, 2);
    if (maybe(w, 0.05)) {
        has(w, F_EVERY_KEY);
        return scaled(w, 0.3, x);
    }
    if (maybe(w, 0.05)) {
        has(w, F_EVERY_VALUE);
        return scaled(w, 0.3, a_key(w, 1));
    }
    if (!w->blind && maybe(w, 0.5))
        x = less(w, x, erased(w));
    Ref b = a_key(w, 2);
    return maybe(w, 0.3) ? times(w, a_scalar(w, 1), times(w, b, x))
                         : times(w, b, x);
}

/* The state's update; w has it as it was found. */
static void update(Maker *w, int state)
{
    Graph *g = w->g;
    int n = 1 + any(w, 3);

    w->S = g->st[state].node;
    if (maybe(w, 0.08)) {
        has(w, F_VALUE_DECAY);
        w->kept = times(w, op1(g, OP_exp, fresh_input(w, "t v : log_decay")),
                        w->S);
    } else {
        w->kept = times(w, a_decay(w, 1), w->S);
    }
    w->now = w->kept;
    for (int i = 0; i < n; i++)
        w->now = plus(w, w->now, one_write(w));
    if (n > 1)
        has(w, F_WRITES);
    g->st[state].next = w->now;
}

/* Over v. */
static Ref a_read(Maker *w)
{
    Graph *g = w->g;
    Ref from = w->now, q;

    if (maybe(w, 0.2)) {
        has(w, F_READ_OLD);
        from = w->S;
    } else if (maybe(w, 0.15)) {
        has(w, F_READ_DECAYED);
        from = w->kept;
    }
    switch (any(w, 9)) {
    case 8:
        has(w, F_READ_BY_READ);
        q = dot(g, a_value(w, 1), maybe(w, 0.5) ? from : w->S, w->v);
        q = op1(g, OP_tanh, q);
        return dot(g, maybe(w, 0.5) ? q : plus(w, q, a_key(w, 1)),
                   maybe(w, 0.7) ? from : w->S, w->k);
    case 0:
        has(w, F_READ_SUM);
        return scaled(w, 0.3, sum(g, from, w->k));
    case 1:
        has(w, F_READ_VALUES);
        q = dot(g, a_value(w, 1), from, w->v);
        return times(w, fresh_input(w, "t v"), op1(g, OP_tanh,
                                                    sum(g, q, w->k)));
    case 2:
        has(w, F_QUERIES);
        if (!g->axis[graph_axis(g, "r")].size)
            g->axis[graph_axis(g, "r")].size = 1 + any(w, 4);
        q = dot(g, fresh_input(w, "t r k"), from, w->k);
        return dot(g, op1(g, OP_tanh, q), fresh_input(w, "t r"),
                   AXIS(graph_axis(g, "r")));
    default:
        return dot(g, a_key(w, 2), from, w->k);
    }
}

static Ref result(Maker *w)
{
    Graph *g = w->g;
    Ref y = a_read(w);

    if (maybe(w, 0.4)) {
        has(w, F_READ_TWICE);
        y = plus(w, y, maybe(w, 0.5) ? a_read(w)
                                     : times(w, a_scalar(w, 1), a_read(w)));
    }
    if (maybe(w, 0.3)) {
        has(w, F_NOT_LINEAR);
        y = maybe(w, 0.5) ? times(w, y, unit_of(w, y))
          : times(w, y, op1(g, OP_rsqrt,
                            plus(w, sum(g, op1(g, OP_square, y), w->v),
                                 num(g, 1))));
    }
    if (maybe(w, 0.4)) {
        has(w, F_BEYOND);
        y = maybe(w, 0.5) ? plus(w, y, a_value(w, 2))
                          : plus(w, y, a_scalar(w, 2));
    }
    return y;
}

/* ---- a block of matrices ---- */

enum { MOST_MATRICES = 3 };

/* Axes of a number that one matrix passes to another: none, or some of those
 * that the block's differ by. */
static const char *number_axes(Maker *w, bool timed)
{
    bool k = w->along & w->k && maybe(w, 0.6);
    bool v = w->along & w->v && maybe(w, 0.6);

    has(w, k && v ? F_ENTRIES : k ? F_ALONG_KEYS : v ? F_ALONG_VALUES
                                                     : F_SIGNED);
    if (timed)
        return k && v ? "t k v" : k ? "t k" : v ? "t v" : "t";
    return k && v ? "k v : normal" : k ? "k : normal" : v ? "v : normal"
                                                          : ": normal";
}

/* What one matrix passes to another, or to itself. */
static Ref a_number(Maker *w)
{
    Graph *g = w->g;

    switch (any(w, 6)) {
    case 0: case 1:
        has(w, F_SIGNED);
        return op1(g, OP_tanh, fresh_input(w, number_axes(w, true)));
    case 2:
        has(w, F_SIGNED);
        return scaled(w, maybe(w, 0.5) ? 1 : -1,
                      op1(g, OP_tanh, fresh_input(w, number_axes(w, false))));
    case 3:
        has(w, F_RESET);
        return op3(g, OP_where, op2(g, OP_lt,
                                    fresh_input(w, number_axes(w, true)),
                                    num(g, -1)),
                   num(g, 0), a_scalar(w, 1));
    case 4: return op1(g, OP_exp, fresh_input(w, "t : log_decay"));
    default: return a_scalar(w, 1);
    }
}

/* Two vectors over k that turn into each other. */
static void vectors(Maker *w)
{
    Graph *g = w->g;
    int at[2];
    Ref a = new_state(w, "a", "k", &at[0]), b = new_state(w, "b", "k", &at[1]);

    w->along = maybe(w, 0.4) ? w->k : 0;
    Ref p = scaled(w, 0.5, a_number(w)), q = scaled(w, 0.5, a_number(w));
    Ref x = plus(w, plus(w, times(w, p, a), times(w, q, b)), a_key(w, 1));

    has(w, F_VECTORS);
    g->st[at[0]].next = x;
    x = maybe(w, 0.5) ? x : a;
    g->st[at[1]].next = less(w, times(w, p, b), times(w, q, x));
    w->vector = maybe(w, 0.5) ? g->st[at[1]].next : a;
}

/* What matrix m becomes; those before it have become `now`. */
static Ref in_block(Maker *w, const Ref *old, const Ref *now, int n, int m)
{
    Graph *g = w->g;
    Ref x = n == 1 || maybe(w, 0.8) ? times(w, a_number(w), old[m])
                                    : times(w, num(g, 0), old[m]);

    for (int i = 0; i < n; i++) {
        if (i == m || maybe(w, 0.5))
            continue;
        has(w, F_BLOCK);
        has(w, i > m ? F_CIRCLE : F_BLOCK);
        x = plus(w, x, scaled(w, 0.4, times(w, a_number(w), i < m
                              && maybe(w, 0.5) ? now[i] : old[i])));
    }
    for (int i = 1 + any(w, 2); i > 0; i--) {
        int of = any(w, n);
        w->S = old[of];
        w->kept = of < m ? now[of] : old[of];
        w->now = x;
        has(w, w->blind ? F_WRITES : of == m ? F_ERASE : F_ERASE_OTHER);
        x = plus(w, x, one_write(w));
    }
    return x;
}

/* Matrices that stand in each other, each at the others' tokens. */
static Ref block(Maker *w)
{
    static const char *const name[] = { "S", "M", "N" };
    Graph *g = w->g;
    int n = 1 + any(w, MOST_MATRICES), at[MOST_MATRICES];
    Ref old[MOST_MATRICES], now[MOST_MATRICES], y = 0;

    if (maybe(w, 0.3))
        vectors(w);
    w->along = maybe(w, 0.4) ? 0 : maybe(w, 0.5) ? w->k
             : maybe(w, 0.5) ? w->v : w->k | w->v;
    w->blind = maybe(w, w->along & w->v ? 0.9 : 0.2);
    for (int m = 0; m < n; m++)
        old[m] = new_state(w, name[m], maybe(w, 0.9) ? "k v" : "v k", &at[m]);
    for (int m = 0; m < n; m++)
        g->st[at[m]].next = now[m] = in_block(w, old, now, n, m);
    for (int m = 0; m < n; m++) {
        w->S = w->kept = old[m];
        w->now = now[m];
        if (!y || maybe(w, 0.4))
            y = y ? plus(w, y, result(w)) : result(w);
    }
    return y;
}

/* One matrix, perhaps another above it or beside it. */
static Ref matrices(Maker *w)
{
    Graph *g = w->g;
    int S = graph_state(g, "S", maybe(w, 0.9) ? "k v" : "v k"), R;

    update(w, S);
    Ref y = result(w);
    if (maybe(w, 0.3)) {
        R = graph_state(g, "R", "k v");
        bool above = maybe(w, 0.5);
        has(w, F_SECOND);
        Ref first = dot(g, a_key(w, 1), w->now, w->k);
        update(w, R);
        if (above) {
            has(w, F_STACKED);
            g->st[R].next = plus(w, g->st[R].next,
                                 times(w, a_key(w, 1), op1(g, OP_tanh,
                                                           first)));
            w->now = g->st[R].next;
        }
        y = plus(w, y, result(w));
    }
    return y;
}

/* A read of x along both key axes, one first or both at once, or along values.
 */
static Ref cube_read(Maker *w, Ref x, AxisSet l)
{
    Graph *g = w->g;
    Ref q = a_key(w, 1), p = fresh_input(w, "t l : unit_norm"), y;

    switch (any(w, 4)) {
    case 0: return dot(g, q, dot(g, p, x, l), w->k);
    case 1: return times(w, a_scalar(w, 1), dot(g, p, dot(g, q, x, w->k), l));
    case 2:
        y = dot(g, a_value(w, 1), x, w->v);
        return times(w, sum(g, op1(g, OP_tanh, y), w->k | l), a_value(w, 1));
    default: return dot(g, times(w, q, p), x, w->k | l);
    }
}

/* A matrix with two key axes, such as sums of keys of the second order. */
static Ref cube(Maker *w)
{
    Graph *g = w->g;
    int at, l = graph_axis(g, "l");
    Ref C, x, v, p;

    has(w, F_CUBE);
    g->axis[l].size = 1 + any(w, 5);
    w->along = maybe(w, 0.3) ? w->k : 0;
    C = new_state(w, "C", maybe(w, 0.8) ? "k l v" : "v k l", &at);
    x = maybe(w, 0.6) ? times(w, a_number(w), C)
                      : times(w, op1(g, OP_exp, made_gate(w)), C);
    for (int i = 1 + any(w, 2); i > 0; i--) {
        v = a_value(w, 2);
        if (maybe(w, 0.3)) {
            has(w, F_ERASE);
            p = times(w, a_key(w, 1), fresh_input(w, "t l : unit_norm"));
            v = less(w, v, dot(g, p, maybe(w, 0.5) ? C : x, w->k | AXIS(l)));
        }
        p = times(w, a_key(w, 1), fresh_input(w, "t l : unit_norm"));
        x = plus(w, x, times(w, p, v));
    }
    g->st[at].next = x;
    v = cube_read(w, x, AXIS(l));
    return maybe(w, 0.5) ? v : plus(w, v, cube_read(w, maybe(w, 0.5) ? x : C,
                                                    AXIS(l)));
}

/* The step, with its axes' sizes; *features: what is in it. */
static inline Graph *random_structure(Ctx *c, uint64_t seed,
                                      uint64_t *features)
{
    Maker w = { .g = graph_new(c, "structure", 0),
                .seed = seed * 0x9e3779b97f4a7c15u + 77 };
    Graph *g = w.g;
    int k = graph_axis(g, "k"), v = graph_axis(g, "v");

    uniform(&w.seed);
    g->axis[k].size = 1 + any(&w, seed % 16 == 6 ? 6 : 26);
    g->axis[v].size = 1 + any(&w, 26);
    w.k = AXIS(k);
    w.v = AXIS(v);
    lower_states(&w);
    graph_output(g, "y", seed % 4 == 3 ? block(&w) : seed % 16 == 6 ? cube(&w)
                                                     : matrices(&w));
    wrap_angles(g);
    *features = w.has;
    return g;
}

#endif
