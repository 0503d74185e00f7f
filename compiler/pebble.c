/* pebble.c -- the red-blue pebble game: moves, and plans as schedules. */
#include "pebble.h"

#include <string.h>

enum { RED = 1, BLUE = 2 };

struct Pebble {
    double value;
    int64_t words;
    uint8_t color;
};

/* ---- moves ---- */

Game *game_new(Ctx *c, int64_t red)
{
    Game *g = ctx_alloc(c, sizeof *g);

    g->ctx = c;
    g->red = red;
    return g;
}

static Vertex new_vertex(Game *g, int64_t words, double value, int color)
{
    if (g->len == g->cap) {
        uint32_t cap = g->cap ? 2 * g->cap : 1024;
        if (cap < g->cap)
            fail_code(g->ctx, ERR_LIMIT, "pebble game: too many vertices");
        g->v = ctx_grow(g->ctx, g->v, g->cap * sizeof *g->v,
                        cap * sizeof *g->v);
        g->cap = cap;
        ctx_poll(g->ctx);
    }
    g->v[g->len] = (struct Pebble){ value, words, (uint8_t)color };
    return g->len++;
}

static struct Pebble *vertex(Game *g, Vertex v)
{
    if (v >= g->len)
        fail(g->ctx, 0, "pebble game: there is no vertex %u", v);
    return &g->v[v];
}

/* Room for so many more red words. */
static void take_room(Game *g, int64_t words)
{
    if (g->now + words > g->red)
        fail(g->ctx, 0, "pebble game: %lld red words are on the board and "
             "%lld more are wanted, but fast memory has %lld",
             (long long)g->now, (long long)words, (long long)g->red);
    g->now += words;
    g->peak = g->now > g->peak ? g->now : g->peak;
}

Vertex game_input(Game *g, int64_t words, double value)
{
    return new_vertex(g, words, value, BLUE);
}

void game_load(Game *g, Vertex v)
{
    struct Pebble *p = vertex(g, v);

    if (!(p->color & BLUE))
        fail(g->ctx, 0, "pebble game: load of %u, which slow memory does not "
             "hold", v);
    if (!(p->color & RED))
        take_room(g, p->words);
    p->color |= RED;
    g->loads += p->words;
}

void game_store(Game *g, Vertex v)
{
    struct Pebble *p = vertex(g, v);

    if (!(p->color & RED))
        fail(g->ctx, 0, "pebble game: store of %u, which fast memory does not "
             "hold", v);
    p->color |= BLUE;
    g->stores += p->words;
}

void game_drop(Game *g, Vertex v)
{
    struct Pebble *p = vertex(g, v);

    if (!(p->color & RED))
        fail(g->ctx, 0, "pebble game: drop of %u, which fast memory does not "
             "hold", v);
    p->color &= (uint8_t)~RED;
    g->now -= p->words;
}

static void need_red(Game *g, int n, const Vertex *operand)
{
    for (int i = 0; i < n; i++)
        if (!(vertex(g, operand[i])->color & RED))
            fail(g->ctx, 0, "pebble game: operand %u is not in fast memory",
                 operand[i]);
}

Vertex game_compute(Game *g, int64_t words, double value, int n,
                    const Vertex *operand)
{
    need_red(g, n, operand);
    take_room(g, words);
    return new_vertex(g, words, value, RED);
}

void game_recompute(Game *g, Vertex v, int n, const Vertex *operand)
{
    struct Pebble *p = vertex(g, v);

    need_red(g, n, operand);
    if (!(p->color & RED))
        take_room(g, p->words);
    p->color |= RED;
}

double game_value(const Game *g, Vertex v)
{
    return g->v[v].value;
}

bool game_is_red(const Game *g, Vertex v)
{
    return g->v[v].color & RED;
}

bool game_is_blue(const Game *g, Vertex v)
{
    return g->v[v].color & BLUE;
}

/* ---- plans ---- */

/* A replay. at[chunk * len + node]: the tile's vertex plus one, 0: none yet.
 * Values without a token have one tile, that of chunk 0; a state's tile is
 * what the chunk finds, final[s] what the last one leaves. */
typedef struct Replay {
    const Plan *p;
    const Graph *g;
    Game *game;
    int chunks;
    Vertex *at, *final;
    uint8_t *live;
    int *uses;                          /* left in this kernel and chunk */
} Replay;

static bool is_number(const Node *n)
{
    return op_is(n->op, CONST);
}

static int64_t elements(const Graph *g, Ref r)
{
    int64_t n = 1;

    for (int ax = 0; ax < NAXES; ax++)
        if (g->n[r].axes & AXIS(ax))
            n *= axis_extent(g, r, ax);
    return n;
}

static Vertex *tile(Replay *p, int chunk, Ref r)
{
    const Node *n = &p->g->n[r];
    bool once = n->op == OP_input && !p->g->in[n->index].timed;

    return &p->at[(size_t)(once ? 0 : chunk) * p->g->len + r];
}

static bool carries(const Kernel *k, const Node *n)
{
    return n->op == OP_state && k->states & STATE(n->index);
}

static bool in_kernel(const Kernel *k, Ref r)
{
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] == r)
            return true;
    return false;
}

/* Brings an operand into fast memory, unless it is there. */
static void bring(Replay *p, int chunk, Ref r)
{
    Vertex *v = tile(p, chunk, r);

    if (!r || is_number(&p->g->n[r]))
        return;
    if (!*v)
        fail(p->g->ctx, p->g->n[r].line, "replay: %s is read before any "
             "kernel has it", expr_text(p->g, r));
    if (!game_is_red(p->game, *v - 1))
        game_load(p->game, *v - 1);
}

static void drop_used(Replay *p, int chunk, Ref r)
{
    Vertex *v = tile(p, chunk, r);

    if (r && *v && p->uses[r] && --p->uses[r] == 0
        && game_is_red(p->game, *v - 1))
        game_drop(p->game, *v - 1);
}

/* How often this kernel reads each tile in a chunk. Carried states and values
 * without a token stay: they count once more. */
static void count_uses(Replay *p, const Kernel *k)
{
    const Graph *g = p->g;

    memset(p->uses, 0, g->len * sizeof *p->uses);
    for (int i = 0; i < k->nnodes; i++)
        for (int a = 0; a < 4; a++)
            p->uses[g->n[k->node[i]].a[a]]++;
    for (int s = 0; s < g->nst; s++)
        if (k->states & STATE(s))
            p->uses[g->st[s].next]++;
    for (Ref r = 1; r < g->len; r++)
        if (carries(k, &g->n[r])
            || (g->n[r].op == OP_input && !g->in[g->n[r].index].timed))
            p->uses[r]++;
}

/* Writes a result, also where its tile is kept for later kernels: those are
 * two tensors. One that lacks axes of the result spreads along them. */
static void write_output(Replay *p, int chunk, const Output *o)
{
    const Graph *g = p->g;
    int64_t words = axis_extent(g, o->node, AX_I);
    Vertex v, *source = tile(p, chunk, o->node);
    bool number = is_number(&g->n[o->node]);

    for (int d = 0; d < o->rank; d++)
        words *= axis_extent(g, o->node, o->order[d]);
    bring(p, chunk, o->node);
    if (!number && words == elements(g, o->node)) {
        game_store(p->game, *source - 1);
        return;
    }
    v = number ? 0 : *source - 1;
    v = game_compute(p->game, words, 0, number ? 0 : 1, &v);
    game_store(p->game, v);
    game_drop(p->game, v);
}

/* Computes a tile; `first`: no kernel before has it. */
static void compute_node(Replay *p, int chunk, Ref r, bool first)
{
    const Node *n = &p->g->n[r];
    Vertex operand[4], *v = tile(p, chunk, r);
    int count = 0;

    if (!op_is(n->op, CONST | GIVEN)) {
        for (int a = 0; a < 4; a++) {
            bring(p, chunk, n->a[a]);
            if (n->a[a] && !is_number(&p->g->n[n->a[a]]))
                operand[count++] = *tile(p, chunk, n->a[a]) - 1;
        }
        if (*v)
            game_recompute(p->game, *v - 1, count, operand);
        else
            *v = game_compute(p->game, elements(p->g, r), 0, count, operand)
               + 1;
        if (p->p->stored[r] && first)
            game_store(p->game, *v - 1);
    }
    for (int i = 0; first && i < p->g->nout; i++)
        if (p->g->out[i].node == r)
            write_output(p, chunk, &p->g->out[i]);
    for (int a = 0; a < 4; a++)
        drop_used(p, chunk, n->a[a]);
    if (*v && !p->uses[r] && game_is_red(p->game, *v - 1))
        game_drop(p->game, *v - 1);
}

static void drop_red(Replay *p, Vertex v)
{
    if (v && game_is_red(p->game, v - 1))
        game_drop(p->game, v - 1);
}

/* The states that the kernel carries pass to the next chunk, or to memory. */
static void hand_on(Replay *p, const Kernel *k, int chunk, int next)
{
    bool end = next < 0 || next >= p->chunks;

    for (int s = 0; s < p->g->nst; s++) {
        const State *st = &p->g->st[s];
        if (!(k->states & STATE(s)))
            continue;
        Vertex found = st->node ? *tile(p, chunk, st->node) : 0;
        Vertex left = *tile(p, chunk, st->next);
        bring(p, chunk, st->next);
        if (found != left)
            drop_red(p, found);
        if (end && left)
            game_store(p->game, left - 1);
        else if (st->node)
            *tile(p, next, st->node) = left;
    }
    for (int s = 0; s < p->g->nst; s++)
        if (k->states & STATE(s) && (end || !p->g->st[s].node))
            drop_red(p, *tile(p, chunk, p->g->st[s].next));
}

/* A state that others read is stored by the kernel that carries it. */
static void find_states(Replay *p, const Kernel *k, int chunk, bool first)
{
    for (int s = 0; s < p->g->nst; s++) {
        Ref r = p->g->st[s].node;
        if (!(k->states & STATE(s)) || !r)
            continue;
        if (first) {
            if (!*tile(p, chunk, r))
                *tile(p, chunk, r) = game_input(p->game, elements(p->g, r), 0)
                                   + 1;
            game_load(p->game, *tile(p, chunk, r) - 1);
        }
        if (p->p->stored[r])
            game_store(p->game, *tile(p, chunk, r) - 1);
    }
}

/* Drops the tiles of a chunk; carried states and what they become stay, and,
 * in a kernel that walks on, values without a token. */
static void clear_chunk(Replay *p, const Kernel *k, int chunk, bool last)
{
    for (Ref r = 1; r < p->g->len; r++) {
        const Node *n = &p->g->n[r];
        bool keep = carries(k, n);
        keep |= n->op == OP_input && !p->g->in[n->index].timed && !last
             && k->kind != K_TOKEN;
        for (int s = 0; s < p->g->nst; s++)
            keep |= k->states & STATE(s) && p->g->st[s].next == r;
        if (!keep)
            drop_red(p, *tile(p, chunk, r));
    }
}

static void replay_kernel(Replay *p, const Kernel *k, uint8_t *known)
{
    bool back = k->kind == K_REVERSE;

    for (int i = 0; i < p->chunks; i++) {
        int chunk = back ? p->chunks - 1 - i : i;
        count_uses(p, k);
        find_states(p, k, chunk, i == 0);
        for (int j = 0; j < k->nnodes; j++)
            if (p->live[k->node[j]])
                compute_node(p, chunk, k->node[j], !known[k->node[j]]);
        clear_chunk(p, k, chunk, i + 1 == p->chunks);
        hand_on(p, k, chunk, back ? chunk - 1 : chunk + 1);
    }
    for (int j = 0; j < k->nnodes; j++)
        known[k->node[j]] = 1;
}

static void add_inputs(Replay *p)
{
    for (int i = 0; i < p->g->nin; i++)
        for (int c = 0; c < (p->g->in[i].timed ? p->chunks : 1); c++) {
            Ref r = p->g->in[i].node;
            if (r)
                *tile(p, c, r) = game_input(p->game, elements(p->g, r), 0) + 1;
        }
}

/* What moves once a sequence: states at both ends, values without a token in
 * each kernel that walks. */
static int64_t once_words(const Replay *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->p->nkernels; i++) {
        const Kernel *k = &p->p->kernel[i];
        for (int s = 0; s < p->g->nst; s++)
            if (k->states & STATE(s))
                n += elements(p->g, p->g->st[s].next)
                   + (p->g->st[s].node ? elements(p->g, p->g->st[s].node) : 0);
        for (int j = 0; j < p->g->nin; j++)
            if (!p->g->in[j].timed && k->kind != K_TOKEN
                && in_kernel(k, p->g->in[j].node))
                n += elements(p->g, p->g->in[j].node);
    }
    return n;
}

void plan_replay(const Plan *plan, int chunks, int64_t red, PlanCount *count)
{
    Ctx *c = plan->g->ctx;
    size_t n = (size_t)plan->nkernels + 1;
    uint8_t *known = ctx_alloc(c, plan->g->len);
    Replay p = { .p = plan, .g = plan->g, .chunks = chunks };

    p.game = game_new(c, red ? red : INT64_MAX / 2);
    p.at = ctx_alloc(c, (size_t)chunks * p.g->len * sizeof *p.at);
    p.uses = ctx_alloc(c, p.g->len * sizeof *p.uses);
    p.live = ctx_alloc(c, p.g->len);
    graph_live(p.g, p.live);
    add_inputs(&p);
    count->loads = ctx_alloc(c, n * sizeof *count->loads);
    count->stores = ctx_alloc(c, n * sizeof *count->stores);
    for (int i = 0; i < plan->nkernels; i++) {
        int64_t loads = p.game->loads, stores = p.game->stores;
        replay_kernel(&p, &plan->kernel[i], known);
        count->loads[i] = p.game->loads - loads;
        count->stores[i] = p.game->stores - stores;
    }
    count->once = once_words(&p);
    count->peak = p.game->peak;
}
