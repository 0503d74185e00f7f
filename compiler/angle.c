/* angle.c -- states that are angles: what is kept modulo 2 pi.
 *
 * One that is declared so (state = { phi = "p : angle" }) is, its final value
 * included; a step must then not tell whole turns apart. One that is not keeps
 * its value; where it is a sum, what sin and cos see of it is taken from a
 * **twin**, the same sum modulo 2 pi: of a sum of thousands float32 leaves no
 * angle. Token by token such a sum is carried in two numbers, itself and what
 * it has lost in rounding; chunk by chunk the CPU goes on in double, and a GPU
 * in two numbers, too.
 */
#include "affine.h"
#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What becomes of a value when a state goes on by a whole turn. */
enum Whole { SAME, TURNS, DIFFERS };    /* TURNS: by a whole number of them */

/* Of operands that all count alike. */
static int joined(const uint8_t *type, const Node *n, int from)
{
    int most = SAME;

    for (int i = from; i < 4; i++)
        if (n->a[i] && type[n->a[i]] > most)
            most = type[n->a[i]];
    return most;
}

static bool is_whole(const Graph *g, Ref r)
{
    return g->n[r].op == OP_num && g->n[r].num == floor(g->n[r].num);
}

static int whole_type(const Graph *g, const uint8_t *type, StateSet angles,
                      Ref r)
{
    const Node *n = &g->n[r];
    int all = joined(type, n, 0);

    if (op_is(n->op, ADDITIVE) || n->op == OP_wrap)
        return all;
    switch (n->op) {
    case OP_state:
        return angles & STATE(n->index) ? TURNS : SAME;
    case OP_mul:
        return all == SAME || (all == TURNS && (is_whole(g, n->a[0])
                                                || is_whole(g, n->a[1])))
             ? all : DIFFERS;
    case OP_where:
        return type[n->a[0]] == SAME ? joined(type, n, 1) : DIFFERS;
    case OP_sin: case OP_cos:
        return all == DIFFERS ? DIFFERS : SAME;
    default:
        return all == SAME ? SAME : DIFFERS;
    }
}

/* Per node, when these states turn. */
static uint8_t *whole_types(const Graph *g, StateSet angles)
{
    uint8_t *type = ctx_alloc(g->ctx, g->len);

    for (Ref r = 1; r < g->len; r++)
        type[r] = (uint8_t)whole_type(g, type, angles, r);
    return type;
}

/* ---- declared ones ---- */

/* The value at r, which the caller sees, tells turns apart: where it begins
 * to. */
static _Noreturn void refuse(const Graph *g, const uint8_t *type, Ref r,
                             const char *what, const char *name)
{
    Ref at = r;

    for (Ref x = 0; type[at] == DIFFERS && x != at;) {
        x = at;
        for (int i = 0; i < 4; i++)
            if (g->n[x].a[i] && type[g->n[x].a[i]] == DIFFERS)
                at = g->n[x].a[i];
    }
    fail_help(g->ctx, g->n[at].line, "read it through flin.sin, flin.cos or "
              "flin.rotate; without ': angle' it is a sum that keeps its "
              "value", "an angle is kept modulo 2 pi, but %s tells whole turns"
              " apart: it goes into %s%s", expr_text(g, at), what, name);
}

static void check_turns(const Graph *g, StateSet angles)
{
    uint8_t *type = whole_types(g, angles);

    for (int i = 0; i < g->nst; i++) {
        const State *s = &g->st[i];
        if (type[s->next] > (angles & STATE(i) ? TURNS : SAME))
            refuse(g, type, s->next, "state ", s->name);
    }
    for (int i = 0; i < g->nout; i++)
        if (type[g->out[i].node] != SAME)
            refuse(g, type, g->out[i].node, "", g->out[i].name);
}

void wrap_angles(Graph *step)
{
    StateSet angles = 0;

    for (int i = 0; i < step->nst; i++)
        angles |= step->st[i].angle ? STATE(i) : 0;
    if (!angles)
        return;
    check_turns(step, angles);
    for (int i = 0; i < step->nst; i++) {
        State *s = &step->st[i];
        step->line = step->n[s->next].line;
        if (s->angle)
            s->next = op1(step, OP_wrap, s->next);
    }
}

/* ---- twins ---- */

/* A step in which sin and cos read a twin of `state`. */
typedef struct Twin {
    Graph *g;
    const uint8_t *type;                /* when `state` turns */
    int state;
    Ref node;                           /* the twin, as the token finds it */
    Ref *map, *turned;                  /* per node: now; of the twin */
} Twin;

/* r of the twin instead. */
static Ref turned(Twin *w, Ref r)
{
    const Node n = w->g->n[r];
    Ref a[4] = { 0 };

    if (w->type[r] == SAME)
        return w->map[r];
    if (r == w->g->st[w->state].node)
        return w->node;
    if (w->turned[r])
        return w->turned[r];
    for (int i = 0; i < 4; i++)
        a[i] = n.a[i] ? turned(w, n.a[i]) : 0;
    w->g->line = n.line;
    return w->turned[r] = node_copy(w->g, &n, a);
}

static Ref with_twin(Twin *w, Ref r)
{
    const Node n = w->g->n[r];
    bool reads = (n.op == OP_sin || n.op == OP_cos)
              && w->type[n.a[0]] == TURNS;
    Ref a[4] = { reads ? turned(w, n.a[0]) : w->map[n.a[0]], w->map[n.a[1]],
                 w->map[n.a[2]], w->map[n.a[3]] };

    if (!memcmp(a, n.a, sizeof a))
        return r;
    w->g->line = n.line;
    return node_copy(w->g, &n, a);
}

static bool is_read(const Graph *g, const uint8_t *type)
{
    uint8_t *live = ctx_alloc(g->ctx, g->len);
    bool read = false;

    graph_live(g, live);
    for (Ref r = 1; r < g->len; r++)
        read |= live[r] && (g->n[r].op == OP_sin || g->n[r].op == OP_cos)
             && type[g->n[r].a[0]] == TURNS;
    return read;
}

/* As many as the gradient has room for. */
static bool has_room(const Graph *g)
{
    int carried = 0;

    for (int i = 0; i < g->nst; i++)
        carried += g->st[i].twin_of || g->st[i].lost_of ? 1 : 2;
    for (int i = 0; i < g->nin; i++)
        carried += !g->in[i].timed;
    return carried < MAX_STATES;
}

/* A state of the same axes. */
static State *beside(Graph *g, int state, const char *what)
{
    const State of = g->st[state];
    State *s = &g->st[g->nst++];

    *s = of;
    snprintf(s->name, sizeof s->name, "%.40s_%s", of.name, what);
    while (graph_find_state(g, s->name) < g->nst - 1)
        snprintf(s->name, sizeof s->name, "%.30s_%s%d", of.name, what,
                 g->nst);
    g->line = of.line;
    s->node = node_new(g, (Node){ .op = OP_state,
                                  .index = (uint16_t)(g->nst - 1) });
    return s;
}

static Ref new_twin(Graph *g, int state)
{
    State *s = beside(g, state, "turn");

    s->angle = true;
    s->twin_of = (int16_t)(state + 1);
    return s->node;
}

static void add_twin(Graph *g, int state, const uint8_t *type)
{
    uint32_t len = g->len;
    Twin w = { .g = g, .type = type, .state = state };

    w.map = ctx_alloc(g->ctx, len * sizeof *w.map);
    w.turned = ctx_alloc(g->ctx, len * sizeof *w.turned);
    w.node = new_twin(g, state);
    for (Ref r = 1; r < len; r++)
        w.map[r] = with_twin(&w, r);
    Ref next = turned(&w, g->st[state].next);
    for (int i = 0; i < g->nst - 1; i++)
        g->st[i].next = w.map[g->st[i].next];
    g->st[g->nst - 1].next = op1(g, OP_wrap, next);
    for (int i = 0; i < g->nout; i++)
        g->out[i].node = w.map[g->out[i].node];
}

/* Whether the state is a sum, of *c. */
static bool is_sum(Graph *g, int state, Ref *c)
{
    Universal *u = ctx_alloc(g->ctx, sizeof *u);
    const State *s = &g->st[state];
    bool sum = !s->angle && s->rank < 2 && universal(g, state, u)
            && u->form == FORM_SCAN && !u->d;

    *c = u->c;
    return sum;
}

void mark_sums(Graph *step)
{
    Graph *g = graph_copy(step->ctx, step);
    Ref c;

    for (int i = 0; i < step->nst; i++)
        step->st[i].sum = is_sum(g, i, &c);
}

void add_twins(Graph *step)
{
    Ref c;

    for (int i = 0, n = step->nst; i < n; i++) {
        const State *s = &step->st[i];
        if (!has_room(step) || !is_sum(step, i, &c))
            continue;
        uint8_t *type = whole_types(step, STATE(i));
        if (type[s->next] == TURNS && is_read(step, type))
            add_twin(step, i, type);
    }
}

/* s + (c + lost), and what of it is lost now (Knuth's sum of two numbers); the
 * state of what is lost. */
static Ref compensate(Graph *g, int state, Ref c)
{
    State *lost = beside(g, state, "lost");
    Ref s = g->st[state].node, more, now, took, kept;

    lost->lost_of = (int16_t)(state + 1);
    more = op2(g, OP_add, c, lost->node);
    now = op2(g, OP_add, s, more);
    took = op2(g, OP_sub, now, s);
    kept = op2(g, OP_sub, now, took);
    lost->next = op2(g, OP_add, op2(g, OP_sub, s, kept),
                     op2(g, OP_sub, more, took));
    g->st[state].next = now;
    return lost->node;
}

void keep_sums(Graph *step)
{
    Ref c;

    add_twins(step);
    for (int i = 0, n = step->nst; i < n; i++)
        if (has_room(step) && is_sum(step, i, &c))
            compensate(step, i, c);
}

/* The scan of the state, where that is left as its last row: a plain sum's. */
static Ref plain_scan(const Graph *g, int state)
{
    const State *s = &g->st[state];
    Ref scan = state_sum(g, state);

    return !s->angle && s->rank < 2 && !g->n[scan].flags ? scan : 0;
}

/* All that is made of `scan`, of `by` instead; the state's own end is not
 * looked at. */
static void replace(Graph *g, int state, Ref scan, Ref by, uint32_t len)
{
    Ref *map = ctx_alloc(g->ctx, len * sizeof *map);

    for (Ref r = 1; r < len; r++) {
        const Node n = g->n[r];
        Ref a[4] = { map[n.a[0]], map[n.a[1]], map[n.a[2]], map[n.a[3]] };
        g->line = n.line;
        map[r] = r == scan ? by : memcmp(a, n.a, sizeof a)
               ? node_copy(g, &n, a) : r;
    }
    for (int i = 0; i < g->nst; i++)
        if (i != state && g->st[i].next < len)
            g->st[i].next = map[g->st[i].next];
    for (int i = 0; i < g->nout; i++)
        g->out[i].node = map[g->out[i].node];
}

void keep_chunk_sums(Graph *chunk)
{
    for (int i = 0, n = chunk->nst; i < n; i++) {
        uint32_t len = chunk->len;
        Ref scan = plain_scan(chunk, i);
        if (!scan || !has_room(chunk))
            continue;
        chunk->line = chunk->n[scan].line;
        Ref local = cumsum(chunk, chunk->n[scan].a[1], 0);
        Ref lost = compensate(chunk, i, last_row(chunk, local, 0));
        Ref sum = op2(chunk, OP_add, local, lost);
        replace(chunk, i, scan, op2(chunk, OP_add, chunk->st[i].node, sum),
                len);
    }
}
