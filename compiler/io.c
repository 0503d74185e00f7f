/* io.c -- lower bounds, and the best known walks of a recurrence. */
#include "io.h"

#include <math.h>

const char *const walk_name[] = { "resident", "split", "checkpoint", "spill",
                                  "none" };

/* ---- attention ---- */

double io_quadratic(double n, double d, double words, bool backward)
{
    double large = n * n * d * d, small = n * n * d;

    if (backward) {
        large += n * d * d * d;
        small += n * d * d;
    }
    return fmax(words >= d * d ? large / words : small / sqrt(words), n * d);
}

double io_sparse(double z_input, double z_qk, double words)
{
    return fmin(z_input * z_input / words, z_input * sqrt(z_qk / words));
}

/* ---- the recurrence ---- */

static double words_of(const Graph *g, AxisSet s)
{
    double n = 1;

    for (int ax = 0; ax < NAXES; ax++)
        if (s & AXIS(ax))
            n *= g->axis[ax].size > 0 ? g->axis[ax].size : 1;
    return n;
}

/* Whether entries along the axis never meet: nothing is summed over it, and
 * nothing takes it apart, joins or renames it. */
static bool separate(const Graph *g, const uint8_t *live, int ax)
{
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        if (!live[r])
            continue;
        if (n->over & AXIS(ax))
            return false;
        if (op_has(n->op, TO_AXIS) && n->index == ax)
            return false;
    }
    return true;
}

/* The axis to cut states along: the one that most of their words have. */
static int split_axis(const Graph *g, const uint8_t *live)
{
    double most = 0;
    int best = -1;

    for (int ax = AX_DIM; ax < g->naxes; ax++) {
        double words = 0;
        for (int s = 0; s < g->nst; s++)
            if (g->st[s].axes & AXIS(ax))
                words += words_of(g, g->st[s].axes);
        if (words > most && separate(g, live, ax)) {
            most = words;
            best = ax;
        }
    }
    return best;
}

/* What a token reads and writes, forward; of the inputs the part that lacks
 * the axis; the states, and the part of them that has it. */
typedef struct Traffic {
    double in, in_rest, out, state, state_cut, once;
} Traffic;

static Traffic traffic(const Graph *g, int cut)
{
    AxisSet axis = cut >= 0 ? AXIS(cut) : 0;
    Traffic t = { 0 };

    for (int i = 0; i < g->nin; i++) {
        double n = words_of(g, g->in[i].axes);
        if (!g->in[i].timed) {
            t.once += n;
            continue;
        }
        t.in += n;
        t.in_rest += g->in[i].axes & axis ? 0 : n;
    }
    for (int i = 0; i < g->nout; i++)
        t.out += words_of(g, g->n[g->out[i].node].axes);
    for (int s = 0; s < g->nst; s++) {
        double n = words_of(g, g->st[s].axes);
        t.state += n;
        t.state_cut += g->st[s].axes & axis ? n : 0;
    }
    return t;
}

static void set_best(IoWalk *w, double words, StateWalk walk, int blocks,
                     int chunk)
{
    if (words >= w->best)
        return;
    w->best = words;
    w->walk = walk;
    w->blocks = blocks;
    w->chunk = chunk;
}

/* As few parts as fit, each with a token's words beside it. */
static void try_split(const Graph *g, const Traffic *t, double tokens,
                      double words, IoWalk *w)
{
    double tail = t->state - t->state_cut + t->in + t->out;
    double parts = ceil(t->state_cut / (words - tail));
    bool mixed = w->split < 0;

    for (int i = 0; i < g->nout; i++)
        mixed = mixed || !(g->n[g->out[i].node].axes & AXIS(w->split));
    if (mixed || words <= tail || parts > g->axis[w->split].size)
        return;
    set_best(w, w->compulsory + tokens * t->in_rest * (parts - 1), W_SPLIT,
             (int)parts, 0);
}

/* Chunks of as many tokens as `room` holds; `states` words a chunk, unless it
 * is the only one. */
static void try_chunks(double tokens, double room, double token,
                       double states, StateWalk walk, IoWalk *w)
{
    double chunk = fmin(floor(room / token), tokens);

    if (chunk >= 1)
        set_best(w, w->compulsory + (chunk < tokens ?
                                     states * ceil(tokens / chunk) : 0),
                 walk, 0, (int)chunk);
}

void io_walk(const Graph *g, double tokens, double words, bool training,
             IoWalk *w)
{
    uint8_t *live = ctx_alloc(g->ctx, g->len);
    graph_live(g, live);
    int cut = split_axis(g, live);
    Traffic t = traffic(g, cut);
    double token = t.in + t.out;

    *w = (IoWalk){ .inputs = t.in, .results = t.out, .state = t.state,
                   .split = cut, .walk = W_NONE, .best = INFINITY };
    w->compulsory = tokens * token + 2 * t.state + t.once;
    if (training) {
        token += t.in;
        w->inputs += t.in + t.out;
        w->results += t.in;
        w->compulsory += fmax(tokens * token + 2 * t.state + 2 * t.once
                              - words, tokens * token - tokens * t.in);
        try_chunks(tokens, words - 2 * t.state, token, 2 * t.state,
                   W_CHECKPOINT, w);
        try_chunks(tokens, words / 2, token, 5 * t.state, W_SPILL, w);
        return;
    }
    if (t.state + token <= words)
        set_best(w, w->compulsory, W_RESIDENT, 0, 0);
    try_split(g, &t, tokens, words, w);
    try_chunks(tokens, words / 2, token, 2 * t.state, W_SPILL, w);
}
