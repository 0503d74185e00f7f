/* scores_mask.c -- a mask that ends at a distance, but for a sequence's first
 * tokens, as one sum over the pairs of tokens that it weighs.
 */
#include "scores.h"

#include <string.h>

/* Does it read anything of each key or value alone? Pairs' kernels take a
 * number of a token. */
static bool reads_entries(const Mask *m, const Graph *step)
{
    for (int i = 0; i < step->nin; i++)
        if (step->in[i].axes && mask_reads(m, step->in[i].name))
            return true;
    return false;
}

static void add_input(Scores *s, Graph *to, const Graph *step, const char *name)
{
    int from = graph_find_input(step, name);

    if (graph_find_input(to, name) < 0)
        s->of_pairs[0][graph_input(to, name, mask_declared(step,
                                   &step->in[from]))] = from;
}

/* The step's inputs, in the order that pairs have them in. */
static Graph *inputs_of_pairs(Scores *s, Ctx *c, const Graph *step)
{
    Graph *g = graph_new(c, step->name, 0);

    memcpy(g->axis, step->axis, sizeof g->axis);
    g->naxes = step->naxes;
    g->lines = step->lines;
    add_input(s, g, step, "q");
    add_input(s, g, step, "k");
    add_input(s, g, step, "v");
    for (int i = 0; i < step->nin; i++)
        add_input(s, g, step, step->in[i].name);
    return g;
}

/* Of so wide a window: it is without any of the step's states. */
static Scores *new_scores(const Mask *m, const Graph *step, int64_t width)
{
    Scores *s = ctx_alloc(m->ctx, sizeof *s);
    const Input *in = step->in;

    s->width = width;
    s->axis[0][0] = lowest(in[graph_find_input(step, "k")].axes);
    s->axis[0][1] = lowest(in[graph_find_input(step, "v")].axes);
    for (int i = 0; i < step->nst; i++)
        s->sums |= STATE(i);
    return s;
}

Scores *scores_window(Mask *m, const Graph *step)
{
    Reach reach;

    if (!mask_ends(m, &reach) || !reach.width || reads_entries(m, step))
        return NULL;
    Scores *s = new_scores(m, step, reach.width);
    s->pairs[0] = inputs_of_pairs(s, m->ctx, step);
    mask_own_weights(mask_copy(m->ctx, m), s->pairs[0]);
    s->nsums = 1;
    s->degree = 1;
    s->first = reach.first;
    if (mask_keeps_tokens(m, step)) {
        s->ring_axis = m->ring_axis;
        s->position = graph_find_state(step, "position");
    }
    return s;
}

Scores *scores_blocks(Mask *m, const Graph *step, const Window *w)
{
    if (!w->blocks.within)
        return NULL;
    Scores *s = new_scores(m, step, w->width);
    s->blocks = &w->blocks;
    s->ring_axis = w->ring_axis;
    s->position = w->position;
    return s;
}

const char *scores_extent(Ctx *c, const Scores *s)
{
    const char *within = ctx_format(c, "within %lld", (long long)s->width);

    return !s->first ? within : ctx_format(c, "%s and with the first %lld",
                                           within, (long long)s->first);
}
