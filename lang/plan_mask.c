/* plan_mask.c -- plans of masks over all pairs of tokens, softmax attention
 * among them: kernels of the pairs, forward, and back by tensor cores' tiles or
 * one of two ways in a block's memory.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../compiler/pair_ways.h"
#include "../compiler/scores.h"
#include "blocks_call.h"
#include "plan_view.h"

enum { NARROW = 2, WIDE = 4, ROWS = 128 };

/* A plan in the making. */
typedef struct Mapping {
    const Variant *v;
    const MaskAsk *ask;
    const Mask *m;
    double key, value, tokens, all, pairs;  /* all: tokens times heads; pairs:
                                               of a head */
    int element;
    const char *why;                    /* no tensor cores' tiles; or NULL */
    bool tiles;                         /* of those, back, too */
    bool each;                          /* weights are of each entry */
    PairWay way[2];
    bool fits[2];
    int taken;
    double forward, back;               /* seconds */
} Mapping;

static PairAsk ask_of(const Mapping *k)
{
    const Machine *on = k->ask->pairs.view.m;
    double most = (double)on->shared, own = k->ask->cache;

    return (PairAsk){ .key = (int)k->key, .value = (int)k->value,
                      .tokens = k->tokens, .element = k->element,
                      .heads = (double)k->ask->pairs.heads
                             * (double)k->ask->pairs.batch,
                      .memory = (int64_t)(own > 0 ? fmin(own, most) : most) };
}

static ScoreCall call_of(const Mapping *k)
{
    const PairsAsk *a = &k->ask->pairs;
    Scores s = { 0 };
    ScoreCall call = { .size = a->view.size, .heads = (int)a->heads,
                       .narrow = k->element == NARROW };
    Reach reach;

    if (mask_ends(k->m, &reach)) {
        s.width = reach.width;
        s.first = reach.first;
    }
    scores_add_sequence(&s, &call, (double)a->tokens, (double)a->batch);
    if (k->m->whole)
        call.pairs *= 2;                /* above the diagonal, too */
    return call;
}

static void find_ways(Ctx *c, void *ud)
{
    Mapping *k = ud;
    const PairsAsk *a = &k->ask->pairs;
    const Graph *g = k->v->step;
    ScoreCall call = call_of(k);
    PairAsk ask = ask_of(k);

    k->why = pairs_off_tensor_cores(g, a->view.size, call.narrow, a->view.m);
    k->tiles = !k->why && !k->ask->way && !k->ask->cache;
    k->pairs = call.pairs / (double)a->batch;
    k->forward = pairs_seconds(g, &call, a->view.m, false);
    k->each = pairs_weights(g, a->view.size) > 1;
    k->back = !k->tiles && !k->each ? 0
            : pairs_seconds(g, &call, a->view.m, true) - k->forward;
    if (k->tiles || k->each || !a->view.backward)
        return;
    for (int w = 0; w < 2; w++)
        k->fits[w] = pair_way(c, k->m, &ask, a->view.m, (AttentionWay)w,
                              &k->way[w]);
    k->taken = k->ask->way ? k->ask->way - 1
             : (int)pair_best_way(c, k->m, &ask, a->view.m).way;
    if (!k->fits[k->taken])
        fail(c, 0, "plan: cache = %d: too little for that way back over all "
             "pairs of tokens", (int)ask.memory);
    k->back = k->way[k->taken].all;
}

/* ---- the table ---- */

/* A kernel: of a head and all its tokens. */
typedef struct MaskKernel {
    const char *name, *kind, *form;
    double flops, bytes, seconds;       /* seconds: of the call */
    int warps;
} MaskKernel;

static void add_kernel(lua_State *L, const Mapping *k, int kernels,
                       const MaskKernel *p)
{
    static const char *const lists[] = { "nodes", "recomputed", "lines",
                                         "arguments", "results" };

    lua_newtable(L);
    set_text(L, "name", p->name);
    set_text(L, "kind", p->kind);
    set_text(L, "form", p->form);
    if (k->why)
        set_text(L, "why", k->why);
    set_number(L, "flops", p->flops / k->tokens);
    set_number(L, "bytes", p->bytes / k->tokens);
    set_number(L, "reads", p->bytes / k->tokens);
    set_number(L, "seconds", p->seconds / k->all);
    lua_pushinteger(L, p->warps);
    lua_setfield(L, -2, "warps");
    lua_pushinteger(L, 1);
    lua_setfield(L, -2, "blocks");
    for (int i = 0; i < 5; i++) {
        lua_newtable(L);
        lua_setfield(L, -2, lists[i]);
    }
    lua_rawseti(L, kernels, luaL_len(L, kernels) + 1);
}

static double add_forward(lua_State *L, const Mapping *k, int kernels)
{
    double both = k->key + k->value;
    MaskKernel p = { .name = "forward", .kind = "forward",
                     .form = k->each ? "shared" : k->why ? "vectors" : "wgmma",
                     .flops = 2 * k->pairs * both,
                     .bytes = 2 * k->tokens * both * k->element,
                     .seconds = k->forward,
                     .warps = k->each ? 8 : k->why ? 4 : 12 };

    add_kernel(L, k, kernels, &p);
    return p.bytes;
}

/* By tensor cores' tiles, or those that weigh each entry. */
static double add_tiles(lua_State *L, const Mapping *k, int kernels)
{
    double key = k->key, value = k->value, n = k->tokens * k->element;
    double of[2] = { 2 * (key + value), 2 * key + value };
    double moved[2] = { 3 * (key + value), 3 * key + 2 * value };

    for (int i = 0; i < 2; i++) {
        MaskKernel p = { .name = i ? "queries" : "keys", .kind = "reverse",
                         .form = k->each ? "shared" : "wgmma",
                         .flops = 2 * k->pairs * of[i],
                         .bytes = n * moved[i],
                         .seconds = k->back * of[i] / (of[0] + of[1]),
                         .warps = k->each ? 8 : 12 };
        add_kernel(L, k, kernels, &p);
    }
    return n * (moved[0] + moved[1]);
}

static double add_way(lua_State *L, const Mapping *k, int kernels)
{
    static const char *const names[] = { "keys", "queries", "values",
                                         "scores" };
    const PairWay *way = &k->way[k->taken];
    double key = k->key, value = k->value;
    double of[PAIR_KERNELS] = { key, key, value, key + value };

    if (way->way == BLOCKS) {
        of[PAIR_KEYS] = 2 * (key + value);
        of[PAIR_QUERIES] = 2 * key + value;
    }
    for (int i = 0; i < PAIR_KERNELS && way->shape[i].own; i++) {
        MaskKernel p = { .name = names[i], .kind = "reverse", .form = "shared",
                         .flops = 2 * k->pairs * of[i], .bytes = way->moved[i],
                         .seconds = way->seconds[i], .warps = 8 };
        add_kernel(L, k, kernels, &p);
    }
    return way->bytes;
}

/* ---- the text ---- */

static void add_line(luaL_Buffer *b, const char *text)
{
    luaL_addstring(b, text);
    luaL_addchar(b, '\n');
}

static void text_of_way(luaL_Buffer *b, const Mapping *k, int w)
{
    static const char *const what[] = { "blocks: scores formed anew",
                                        "tiles: scores written, n x n" };
    static const char *const makes[] = { "keys", "queries", "values",
                                         "scores" };
    const PairWay *way = &k->way[w];
    char line[240];

    if (!k->fits[w])
        return;
    snprintf(line, sizeof line, "back by %s: %.3g bytes a token and head, %.3g "
             "ns%s", what[w], way->bytes / k->tokens, 1e9 * way->all / k->all,
             w == k->taken ? " (taken)" : "");
    add_line(b, line);
    for (int i = 0; i < PAIR_KERNELS && way->shape[i].own; i++) {
        const PairShape *s = &way->shape[i];
        snprintf(line, sizeof line, "  %s: a block has %d tokens, %d stream "
                 "past at once, %d columns; %d bytes of its memory; %.3g bytes "
                 "a token and head", makes[i], s->own, s->step, s->wide,
                 way->room[i], way->moved[i] / k->tokens);
        add_line(b, line);
    }
}

static void push_text(lua_State *L, const Mapping *k)
{
    const PairsAsk *a = &k->ask->pairs;
    luaL_Buffer b;
    char line[320];

    luaL_buffinit(L, &b);
    snprintf(line, sizeof line, "%s on %s: %s, over all pairs of tokens; B %d, "
             "T %d, H %d", k->v->step->name, a->view.m->name, a->view.backward
             ? "forward and backward" : "forward", (int)a->batch,
             (int)a->tokens, (int)a->heads);
    add_line(&b, line);
    snprintf(line, sizeof line, "forward: %s%s; %.3g ns a token and head",
             k->each ? "tiles in a block's memory: "
             : k->why ? "a warp a row: " : "wgmma, tiles of 128 rows",
             k->why ? k->why : "", 1e9 * k->forward / k->all);
    add_line(&b, line);
    if (a->view.backward && (k->tiles || k->each)) {
        snprintf(line, sizeof line, "back: %s, of keys and values, then of "
                 "queries; %.3g ns a token and head", k->each ? "tiles" :
                 "wgmma", 1e9 * k->back / k->all);
        add_line(&b, line);
    }
    for (int w = 0; w < 2 && a->view.backward && !k->tiles && !k->each; w++)
        text_of_way(&b, k, w);
    luaL_pushresult(&b);
}

/* ---- all of it ---- */

void plan_push_mask(lua_State *L, Variant *v, const MaskAsk *ask)
{
    static const char *const ways[] = { "blocks", "tiles" };
    const PairsAsk *a = &ask->pairs;
    const Graph *g = v->step;
    Mapping k = { .v = v, .ask = ask, .m = g->mask, .element = ask->element,
                  .tokens = (double)a->tokens,
                  .all = (double)a->tokens * (double)a->heads
                       * (double)a->batch };
    double bytes;

    k.key = (double)entry_count(a->view.size, g->in[graph_find_input(g, "k")]
                                                  .axes);
    k.value = (double)entry_count(a->view.size, g->in[graph_find_input(g, "v")]
                                                    .axes);
    protect(L, v->ctx, find_ways, &k);
    lua_newtable(L);
    int table = lua_gettop(L);
    lua_newtable(L);
    bytes = add_forward(L, &k, table + 1);
    if (a->view.backward)
        bytes += k.tiles || k.each ? add_tiles(L, &k, table + 1)
                         : add_way(L, &k, table + 1);
    lua_setfield(L, table, "kernels");
    push_text(L, &k);
    lua_setfield(L, table, "text");
    lua_newtable(L);
    lua_setfield(L, table, "stored");
    lua_newtable(L);
    lua_setfield(L, table, "weighed");
    lua_pushinteger(L, ROWS);
    lua_setfield(L, table, "chunk");
    set_text(L, "machine", a->view.m->name);
    set_text(L, "solver", "none");
    if (a->view.backward && !k.tiles)
        set_text(L, "way", ways[k.taken]);
    set_number(L, "bytes", bytes / k.tokens);
    set_number(L, "predicted", (k.forward + k.back) / k.all);
    plan_be(L);
}
