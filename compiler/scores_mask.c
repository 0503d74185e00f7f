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

/* Is x of its token alone, but for whether that is one of the first? */
static bool of_token(const Graph *g, Ref x, int position, int64_t first)
{
    uint8_t *live = ctx_alloc(g->ctx, g->len);

    graph_needs(g, live, x);
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        bool compares = n->op == OP_lt || n->op == OP_le || n->op == OP_eq;
        for (int i = 0; live[r] && i < op_info[n->op].arity; i++) {
            const Node *of = &g->n[n->a[i]], *to = &g->n[n->a[!i]];
            if (of->op == OP_state
                && (of->index != position || !compares || to->op != OP_num
                    || to->num > (double)first))
                return false;
        }
    }
    return g->n[x].op != OP_state;
}

/* The step of these states alone, which no other may be in. */
static Graph *step_of(const Graph *step, StateSet states)
{
    Graph *g = mask_inputs(step);
    Ref *map = ctx_alloc(step->ctx, step->len * sizeof *map), y = 0;
    uint8_t *live = ctx_alloc(step->ctx, step->len);

    for (int i = 0; i < step->nst; i++) {
        const State *st = &step->st[i];
        if (!(states & STATE(i)))
            continue;
        if (step->n[st->next].states & ~states)
            return NULL;
        graph_needs(step, live, st->next);
        map[st->node] = g->st[graph_state(g, st->name, axes_text(step,
                                                    st->axes))].node;
    }
    for (Ref r = 1; r < step->len; r++) {
        const Node *n = &step->n[r];
        Ref a[4] = { map[n->a[0]], map[n->a[1]], map[n->a[2]], map[n->a[3]] };
        g->line = n->line;
        if (live[r] && !map[r])
            map[r] = n->op == OP_input ? g->in[n->index].node
                                       : node_copy(g, n, a);
    }
    for (int i = 0, to = 0; i < step->nst; i++)
        if (states & STATE(i)) {
            g->st[to++].next = map[step->st[i].next];
            y = map[step->st[i].next];
        }
    graph_output(g, "y", y);
    return g;
}

/* Do a sequence's last tokens make the step's rings, and a step of its own the
 * states beside these? */
static void find_ends(Scores *s, const Mask *m, const Graph *step)
{
    int position = graph_find_state(step, "position");
    StateSet rest = s->sums;

    if (position < 0 || !m->nrings)
        return;
    for (int i = 0; i < m->nrings; i++) {
        if (!of_token(step, m->ring[i].x, position, s->first))
            return;
        rest &= ~STATE(m->ring[i].state);
    }
    if (rest != STATE(position) && !(s->rest = step_of(step, rest)))
        return;
    s->ring_axis = m->ring_axis;
    s->position = position;
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
    if (s->first)
        find_ends(s, m, step);
    else if (mask_keeps_tokens(m, step)) {
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
    s->window = w;
    s->first = w->first;
    if (s->first) {
        find_ends(s, m, step);
        return s;
    }
    s->ring_axis = w->ring_axis;
    s->position = w->position;
    s->rest = step_of(step, STATE(w->position));
    return s;
}

int64_t scores_ring_tokens(const Scores *s, int64_t places)
{
    return places + (s->first ? s->first + 1 : 0);
}

const char *scores_extent(Ctx *c, const Scores *s)
{
    const char *within = ctx_format(c, "within %lld", (long long)s->width);

    return !s->first ? within : ctx_format(c, "%s and with the first %lld",
                                           within, (long long)s->first);
}
