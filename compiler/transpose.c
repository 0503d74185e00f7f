/* transpose.c -- of y = M v, in which M is a matrix of tokens by tokens that is
 * made of a step's other inputs, the graph of M^T v.
 *
 * It is the gradient of v where v comes in for that of y: the joint graph has
 * it, and of that what it takes is left, which walks from the last token on.
 */
#include "grad.h"

#include <stdio.h>
#include <string.h>

typedef struct Transpose {
    const Graph *from;
    Graph *g;
    uint8_t *live;
    Ref *map;
    int *state;                         /* per state: the new one, or -1 */
} Transpose;

/* What d_v needs, and what states become that it needs. */
static void find_live(Transpose *w, Ref root)
{
    const Graph *g = w->from;
    bool more = true;

    graph_needs(g, w->live, root);
    while (more) {
        more = false;
        for (int i = 0; i < g->nst; i++) {
            const State *s = &g->st[i];
            if (!w->live[s->node] || w->live[s->next])
                continue;
            graph_needs(g, w->live, s->next);
            more = true;
        }
    }
}

/* A twin, and what a sum has lost, stay where that is. */
static int16_t moved(const Transpose *w, int16_t of)
{
    int to = of ? w->state[of - 1] : -1;

    return (int16_t)(to + 1);
}

static void take_states(Transpose *w)
{
    const Graph *from = w->from;
    Graph *g = w->g;

    for (int i = 0; i < from->nst; i++) {
        w->state[i] = w->live[from->st[i].node] ? g->nst++ : -1;
        if (w->state[i] >= 0)
            g->st[w->state[i]] = from->st[i];
    }
    for (int i = 0; i < g->nst; i++) {
        State *s = &g->st[i];
        s->twin_of = moved(w, s->twin_of);
        s->lost_of = moved(w, s->lost_of);
        s->of_state = s->of_input = 0;
    }
}

static void take_inputs(Transpose *w, const Graph *step)
{
    Graph *g = w->g;

    memcpy(g->in, w->from->in, (size_t)step->nin * sizeof *g->in);
    g->nin = step->nin;
}

/* v is what comes in for dy. */
static Ref take_node(Transpose *w, Ref r, int v)
{
    const Node *n = &w->from->n[r];
    Ref a[4];
    Node own = *n;

    for (int i = 0; i < 4; i++)
        a[i] = w->map[n->a[i]];
    w->g->line = n->line;
    if (n->op == OP_input && input_is_adjoint(&w->from->in[n->index]))
        own.index = (uint16_t)v;
    if (n->op == OP_state)
        own.index = (uint16_t)w->state[n->index];
    return node_copy(w->g, &own, a);
}

/* Their axes are a variant's, their order that of its tensors. */
static void take_result(Transpose *w, const Output *d, Ref sum)
{
    Output *y = &w->g->out[w->g->nout++];

    *y = *d;
    snprintf(y->name, sizeof y->name, "y");
    y->node = sum;
}

/* What y is already comes in as v does. */
static Ref added(Transpose *w, Ref y, int v)
{
    Graph *g = w->g;
    Input *in = &g->in[g->nin];
    char *name = ctx_string(g->ctx, "y");

    while (graph_find_input(g, name) >= 0)
        name = ctx_format(g->ctx, "%s_", name);
    *in = g->in[v];
    snprintf(in->name, sizeof in->name, "%s", name);
    Node n = { .op = OP_input, .index = (uint16_t)g->nin++ };
    node_type(g, &n);
    in->node = node_share(g, &n);
    return op2(g, OP_add, y, in->node);
}

Graph *transpose(const Graph *step, const Graph *joint)
{
    Ctx *c = joint->ctx;
    Transpose w = { .from = joint };
    int v = graph_find_input(step, "v");
    const Output *d = &joint->out[graph_find_output(joint, "d_v")];

    w.g = graph_new(c, joint->name, joint->chunk);
    w.live = ctx_alloc(c, joint->len);
    w.map = ctx_alloc(c, joint->len * sizeof *w.map);
    w.state = ctx_alloc(c, MAX_STATES * sizeof *w.state);
    memcpy(w.g->axis, joint->axis, sizeof w.g->axis);
    w.g->naxes = joint->naxes;
    w.g->lines = joint->lines;
    w.g->rows = joint->rows;
    w.g->ranks = joint->ranks;
    find_live(&w, d->node);
    ensure(joint, !w.live[joint->in[v].node], OP_input, joint->in[v].node);
    take_inputs(&w, step);
    take_states(&w);
    for (Ref r = 1; r < joint->len; r++)
        if (w.live[r])
            w.map[r] = take_node(&w, r, v);
    for (int i = 0; i < step->nin; i++) {
        Node n = { .op = OP_input, .index = (uint16_t)i };
        node_type(w.g, &n);
        w.g->in[i].node = node_share(w.g, &n);
    }
    for (int i = 0; i < joint->nst; i++) {
        if (w.state[i] < 0)
            continue;
        State *s = &w.g->st[w.state[i]];
        s->node = w.map[joint->st[i].node];
        s->next = w.map[joint->st[i].next];
    }
    Ref y = w.map[d->node];
    bool adds = step->transposed == TRANSPOSED_ADDED;
    take_result(&w, d, adds ? added(&w, y, v) : y);
    return w.g;
}
