/* ir.c -- the graph: its arguments, the types of its nodes, equal ones shared.
 */
#include "ir.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- axes, arguments, states ---- */

Graph *graph_new(Ctx *c, const char *name, int chunk)
{
    Graph *g = ctx_alloc(c, sizeof *g);

    g->ctx = c;
    g->chunk = chunk;
    snprintf(g->name, sizeof g->name, "%s", name);
    g->cap = 64;
    g->n = ctx_alloc(c, g->cap * sizeof *g->n);
    g->len = 1;
    g->hash_cap = 128;
    g->hash = ctx_alloc(c, g->hash_cap * sizeof *g->hash);
    g->naxes = AX_DIM;
    strcpy(g->axis[AX_I].name, "i");
    strcpy(g->axis[AX_J].name, "j");
    g->axis[AX_I].size = g->axis[AX_J].size = chunk;
    for (int i = 0; i < NRANKS; i++) {
        snprintf(g->axis[AX_R + i].name, 24, "r%d", i + 1);
        snprintf(g->axis[AX_RJ + i].name, 24, "s%d", i + 1);
    }
    return g;
}

int graph_find_axis(const Graph *g, const char *name)
{
    for (int i = AX_DIM; i < g->naxes; i++)
        if (!strcmp(g->axis[i].name, name))
            return i;
    for (int i = 0; g->chunk && i < AX_DIM; i++)
        if (!strcmp(g->axis[i].name, name))
            return i;
    return -1;
}

int graph_find_input(const Graph *g, const char *name)
{
    for (int i = 0; i < g->nin; i++)
        if (!strcmp(g->in[i].name, name))
            return i;
    return -1;
}

int graph_find_state(const Graph *g, const char *name)
{
    for (int i = 0; i < g->nst; i++)
        if (!strcmp(g->st[i].name, name))
            return i;
    return -1;
}

int graph_axis(Graph *g, const char *name)
{
    int at = graph_find_axis(g, name);

    if (at >= 0)
        return at;
    if (g->naxes == NAXES)
        graph_refuse(g, ERR_USER, g->line, NULL, "axis '%s': more than %d axes "
                     "in one variant", name, NAXES - AX_DIM);
    snprintf(g->axis[g->naxes].name, sizeof g->axis[0].name, "%s", name);
    return g->naxes++;
}

/* The next word of *p in `word`; false at the end. */
static bool next_word(const char **p, char *word, size_t size)
{
    size_t n = 0;

    while (isspace((unsigned char)**p))
        ++*p;
    while (**p && !isspace((unsigned char)**p)) {
        if (n + 1 < size)
            word[n++] = **p;
        ++*p;
    }
    word[n] = 0;
    return n > 0;
}

static bool is_name(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_')
            return false;
    return true;
}

/* Reads "t k v" up to a ':'. Sets *timed where there is a t. */
static AxisSet read_axes(Graph *g, const char *what, const char *text,
                         uint8_t *order, uint8_t *rank, bool *timed)
{
    char word[32];
    AxisSet s = 0;

    *timed = false;
    while (next_word(&text, word, sizeof word)) {
        if (!strcmp(word, "t")) {
            if (*timed)
                fail(g->ctx, g->line, "%s: axis 't' twice", what);
            *timed = true;
            continue;
        }
        if (!is_name(word) || strlen(word) > 20)
            fail_help(g->ctx, g->line, "axes are names: \"t k\"",
                      "%s: '%s' is not the name of an axis", what, word);
        int ax = graph_axis(g, word);
        if (s & AXIS(ax))
            fail_help(g->ctx, g->line, "give the second one another name",
                      "%s: axis '%s' twice", what, word);
        if (*rank == 8)
            fail(g->ctx, g->line, "%s: more than 8 axes", what);
        s |= AXIS(ax);
        order[(*rank)++] = (uint8_t)ax;
    }
    return s;
}

/* The axis that is named behind "index". */
static uint8_t index_axis(Graph *g, const char *name, const char *text)
{
    char word[32] = "";

    if (!next_word(&text, word, sizeof word) || !is_name(word)
        || strlen(word) > 20)
        fail_help(g->ctx, g->line, "label = \"t : index n\"", "%s: an index "
                  "is one of an axis", name);
    return (uint8_t)graph_axis(g, word);
}

static Ref argument(Graph *g, int op, int index)
{
    Node n = { .op = (uint8_t)op, .index = (uint16_t)index, .line = g->line };

    node_type(g, &n);
    return node_share(g, &n);
}

int graph_input(Graph *g, const char *name, const char *axes)
{
    if (g->nin == MAX_INPUTS)
        graph_refuse(g, ERR_USER, g->line, NULL, "input '%s': more than %d "
                     "inputs", name, MAX_INPUTS);
    Input *in = &g->in[g->nin];
    const char *colon = strchr(axes, ':');
    char *list = ctx_string(g->ctx, axes);
    if (colon) {
        const char *p = colon + 1;
        list[colon - axes] = 0;
        next_word(&p, in->domain, sizeof in->domain);
        if (!strcmp(in->domain, "index"))
            in->index_of = index_axis(g, name, p);
    }
    snprintf(in->name, sizeof in->name, "%s", name);
    in->line = g->line;
    in->axes = read_axes(g, name, list, in->order, &in->rank, &in->timed);
    in->node = argument(g, OP_input, g->nin++);
    return g->nin - 1;
}

int graph_state(Graph *g, const char *name, const char *axes)
{
    bool timed;

    if (g->nst == MAX_STATES)
        graph_refuse(g, ERR_USER, g->line, NULL, "state '%s': more than %d "
                     "states", name, MAX_STATES);
    State *s = &g->st[g->nst];
    const char *colon = strchr(axes, ':');
    char *list = ctx_string(g->ctx, axes), domain[24] = "";
    if (colon) {
        const char *p = colon + 1;
        list[colon - axes] = 0;
        next_word(&p, domain, sizeof domain);
    }
    snprintf(s->name, sizeof s->name, "%s", name);
    s->line = g->line;
    s->angle = !strcmp(domain, "angle");
    s->axes = read_axes(g, name, list, s->order, &s->rank, &timed);
    if (timed)
        graph_refuse(g, ERR_USER, g->line, "a state is what is carried from "
                     "token to token: leave out t", "state '%s' has axis 't'",
                     name);
    s->node = argument(g, OP_state, g->nst++);
    return g->nst - 1;
}

int graph_output(Graph *g, const char *name, Ref node)
{
    if (g->nout == MAX_OUTPUTS)
        graph_refuse(g, ERR_USER, g->line, NULL, "more than %d results",
                     MAX_OUTPUTS);
    Output *o = &g->out[g->nout];
    snprintf(o->name, sizeof o->name, "%s", name);
    o->node = node;
    o->rank = 0;
    for (int ax = 0; ax < NAXES; ax++) {
        if (!(g->n[node].axes & AXIS(ax) & ~AXIS(AX_I)))
            continue;
        if (o->rank == sizeof o->order)
            graph_refuse(g, ERR_USER, g->line, NULL, "result '%s' has more "
                         "than %d axes", name, (int)sizeof o->order);
        o->order[o->rank++] = (uint8_t)ax;
    }
    return g->nout++;
}

int graph_find_output(const Graph *g, const char *name)
{
    for (int i = 0; i < g->nout; i++)
        if (!strcmp(g->out[i].name, name))
            return i;
    return -1;
}

int graph_results(const Graph *g)
{
    int n = 0;

    while (n < g->nout && !g->out[n].late)
        n++;
    return n;
}

char *adjoint_name(const Graph *g, int o)
{
    return o ? ctx_format(g->ctx, "dy_%s", g->out[o].name)
             : ctx_string(g->ctx, "dy");
}

bool input_is_adjoint(const Input *in)
{
    return !strcmp(in->name, "dy") || !strncmp(in->name, "dy_", 3);
}

/* ---- types ---- */

static AxisSet to_cols(AxisSet s)
{
    return (s & ~ROW_AXES) | (s & ROW_AXES) << AX_J;
}

static AxisSet to_rows(AxisSet s)
{
    return (s & ~COL_AXES) | (s & COL_AXES) >> AX_J;
}

static AxisSet node_axes(const Graph *g, const Node *n)
{
    AxisSet a = g->n[n->a[0]].axes, b = g->n[n->a[1]].axes;
    AxisSet all = a | b | g->n[n->a[2]].axes | g->n[n->a[3]].axes;

    switch (n->op) {
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    case OP_##name: return axes;
#include "ops.def"
    }
    return all;
}

void node_type(const Graph *g, Node *n)
{
    n->depth = 0;
    n->axes = node_axes(g, n);
    n->states = n->op == OP_state ? STATE(n->index) : 0;
    n->timed = n->op == OP_state || (n->op == OP_input
                                     && g->in[n->index].timed);
    for (int i = 0; i < 4; i++) {
        ensure(g, n->a[i] < g->len, n->op, 0);
        const Node *a = &g->n[n->a[i]];
        n->states |= a->states;
        n->timed |= a->timed;
        if (a->depth >= n->depth)
            n->depth = (uint16_t)(a->depth + 1);
    }
}

/* ---- sharing ---- */

static uint32_t node_hash(const Node *n)
{
    uint64_t h = 1469598103934665603u, bits;

    memcpy(&bits, &n->num, 8);
    uint64_t word[] = { n->op, n->flags, n->index, n->over, n->a[0], n->a[1],
                        n->a[2], n->a[3], bits };
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        h = (h ^ word[i]) * 1099511628211u;
    return (uint32_t)(h ^ h >> 29);
}

static bool same_node(const Node *x, const Node *y)
{
    return x->op == y->op && x->flags == y->flags && x->index == y->index
        && x->over == y->over && !memcmp(x->a, y->a, sizeof x->a)
        && !memcmp(&x->num, &y->num, sizeof x->num);
}

static void grow_hash(Graph *g)
{
    g->hash_cap *= 2;
    g->hash = ctx_alloc(g->ctx, g->hash_cap * sizeof *g->hash);
    for (Ref r = 1; r < g->len; r++) {
        uint32_t h = node_hash(&g->n[r]);
        while (g->hash[h & (g->hash_cap - 1)])
            h++;
        g->hash[h & (g->hash_cap - 1)] = r;
    }
}

Ref node_share(Graph *g, const Node *n)
{
    uint32_t h = node_hash(n), max = g->ctx->max_nodes;

    for (Ref r; (r = g->hash[h & (g->hash_cap - 1)]) != 0; h++)
        if (same_node(&g->n[r], n))
            return r;
    if (g->len >= (max ? max : MAX_NODES))
        graph_refuse(g, ERR_LIMIT, 0, NULL, "%s: the graph has more than %u "
                     "nodes", g->name, max ? max : MAX_NODES);
    if (n->depth > MAX_DEPTH)
        graph_refuse(g, ERR_LIMIT, 0, NULL, "%s: more than %d operations one "
                     "inside another", g->name, MAX_DEPTH);
    if (g->len == g->cap) {
        g->n = ctx_grow(g->ctx, g->n, g->cap * sizeof *g->n,
                        2 * g->cap * sizeof *g->n);
        g->cap *= 2;
    }
    g->n[g->len] = *n;
    g->hash[h & (g->hash_cap - 1)] = g->len++;
    if (2 * g->len > g->hash_cap)
        grow_hash(g);
    return g->len - 1;
}

/* ---- whole graphs ---- */

static void mark(const Graph *g, uint8_t *live, Ref r)
{
    if (r)
        live[r] = 1;
    (void)g;
}

void graph_live(const Graph *g, uint8_t *live)
{
    memset(live, 0, g->len);
    for (int i = 0; i < g->nout; i++)
        mark(g, live, g->out[i].node);
    for (int i = 0; i < g->nst; i++)
        mark(g, live, g->st[i].next);
    for (Ref r = g->len - 1; r > 0; r--)
        for (int i = 0; live[r] && i < 4; i++)
            mark(g, live, g->n[r].a[i]);
}

void graph_needs(const Graph *g, uint8_t *live, Ref root)
{
    mark(g, live, root);
    for (Ref r = root; r > 0; r--)
        for (int i = 0; live[r] && i < 4; i++)
            mark(g, live, g->n[r].a[i]);
}

Ref gate_sum(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];

    while (op_is(n->op, MOVES))
        n = &g->n[r = n->a[0]];
    return adds_tokens(n->op) && !(n->flags & REVERSE)
        && g->n[n->a[0]].op != OP_num ? r : 0;
}

Ref gates_left(const Graph *g, Ref r)
{
    const Node *n = &g->n[r], *last = &g->n[n->a[0]];

    return n->op == OP_sub && last->op == OP_last && !(last->flags & REVERSE)
        && last->a[0] == n->a[1] && gate_sum(g, n->a[1]) == n->a[1]
        && !(g->n[n->a[1]].flags & EXCLUSIVE) ? n->a[1] : 0;
}

Ref state_sum(const Graph *g, int state)
{
    const Node *end = &g->n[g->st[state].next], *n = &g->n[end->a[0]];

    return op_is(end->op, ONE_ROW) && n->op == OP_scan && !n->a[0]
        && n->a[2] == g->st[state].node
        && !((n->flags ^ end->flags) & REVERSE) ? end->a[0] : 0;
}

bool graph_is_root(const Graph *g, Ref r)
{
    for (int i = 0; i < g->nout; i++)
        if (g->out[i].node == r)
            return true;
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].next == r)
            return true;
    return false;
}

static int32_t axis_length(const void *g, int axis)
{
    return ((const Graph *)g)->axis[axis].size;
}

static int32_t operand_length(const void *g, Ref r, int axis)
{
    return axis_extent(g, r, axis);
}

static int32_t usual_length(const void *ud, const Node *n, int axis)
{
    const Graph *g = ud;

    for (int i = 0; i < 4; i++)
        if (g->n[n->a[i]].axes & AXIS(axis))
            return axis_extent(g, n->a[i], axis);
    return g->axis[axis].size;          /* i of a cumsum of a constant */
}

int32_t axis_extent(const Graph *g, Ref r, int axis)
{
    Lengths l = { axis_length, operand_length, usual_length, g };

    return g->n[r].axes & AXIS(axis) ? node_extent(&l, &g->n[r], axis) : 1;
}

int64_t axes_size(const Graph *g, AxisSet s)
{
    int64_t n = 1;

    for (int ax = 0; ax < NAXES; ax++)
        if (s & AXIS(ax))
            n *= g->axis[ax].size;
    return n;
}
