/* plan_pairs.c -- plans of sums over the tokens before as pairs of tokens:
 * kernels of what pairs are made of, of the pairs, of what is made of sums.
 */
#include <stdio.h>
#include <string.h>

#include "../compiler/scores.h"
#include "blocks_call.h"
#include "plan_view.h"

enum { WARPS = 12, PLAIN_WARPS = 4, ROWS = 128 };

static ScoreCall call_of(const Variant *v, const PairsAsk *ask)
{
    ScoreCall k = { .size = ask->view.size, .heads = (int)ask->heads,
                    .narrow = true };

    scores_add_sequence(v->step->scores, &k, (double)ask->tokens,
                        (double)ask->batch);
    return k;
}

void plan_weigh(const Variant *v, const PairsAsk *ask, double *states,
                double *pairs)
{
    const Scores *s = v->step->scores;
    const Machine *m = ask->view.m;
    ScoreCall k = call_of(v, ask);
    double all = k.tokens * k.heads;

    *states = states_seconds(s, v->step, &k, m, ask->view.backward) / all;
    *pairs = scores_seconds(s, &k, m, ask->view.backward) / all;
}

/* ---- one of the parts ---- */

typedef struct Finding {
    Variant *v;
    const PairsAsk *ask;
    int part;
    PlanView *found;                    /* NULL: there is no such part */
} Finding;

static void find(Ctx *c, void *ud)
{
    Finding *f = ud;
    Variant *part = f->v->runs->part(c, f->v, f->part);
    PlanView view = f->ask->view;

    view.asked = 0;
    view.backward = view.backward
                 && !(f->part && f->v->step->scores->adds)
                 && !(f->v->step->scores->window
                      && (f->part == PART_TAIL || f->part == PART_UPTO));
    f->found = part ? plan_find(c, part, &view) : NULL;
}

/* A plan in the making: where on the stack its kernels are, and its text. */
typedef struct Making {
    lua_State *L;
    const PairsAsk *ask;
    Variant *v;
    int kernels, text;
    double bytes;
} Making;

/* Adds the string on top to the text. */
static void add_text(const Making *k)
{
    lua_pushvalue(k->L, k->text);
    lua_insert(k->L, -2);
    lua_concat(k->L, 2);
    lua_replace(k->L, k->text);
}

/* Adds the table on top, of a kernel, under a name. */
static void add_kernel(const Making *k, const char *title, const char *name)
{
    lua_pushfstring(k->L, "%s_%s", title, name);
    lua_setfield(k->L, -2, "name");
    lua_pushinteger(k->L, luaL_len(k->L, k->kernels) + 1);
    lua_setfield(k->L, -2, "part_of");
    lua_rawseti(k->L, k->kernels, luaL_len(k->L, k->kernels) + 1);
}

/* Those of the part's own plan. */
static void add_part(Making *k, int part, const char *title)
{
    lua_State *L = k->L;
    Finding f = { k->v, k->ask, part, NULL };
    int top = lua_gettop(L);

    protect(L, k->v->ctx, find, &f);
    if (!f.found)
        return;
    plan_push(L, f.found);
    lua_getfield(L, top + 1, "kernels");
    for (lua_Integer i = 1; lua_rawgeti(L, top + 2, i) == LUA_TTABLE; i++) {
        lua_getfield(L, -1, "name");
        const char *name = lua_tostring(L, -1);
        lua_pushvalue(L, -2);
        add_kernel(k, title, name);
        lua_settop(L, top + 2);
    }
    lua_settop(L, top + 1);
    lua_getfield(L, -1, "bytes");
    k->bytes += lua_tonumber(L, -1);
    lua_getfield(L, top + 1, "text");
    lua_pushfstring(L, "\n%s: %s", title, lua_tostring(L, -1));
    add_text(k);
    lua_settop(L, top);
}

/* ---- pairs ---- */

/* A kernel over pairs: its products' numbers a pair, and which tensors it
 * reads and writes, as so many keys and values. */
typedef struct PairKernel {
    const char *name, *kind;
    int keys, values, moved_keys, moved_values;
} PairKernel;

static const PairKernel kernels[] = {
    { "forward", "forward", 1, 1, 2, 2 },
    { "keys", "reverse", 2, 2, 3, 3 },
    { "queries", "reverse", 2, 1, 3, 2 },
};

static void set_lists(lua_State *L)
{
    static const char *const lists[] = { "nodes", "recomputed", "lines",
                                         "arguments", "results" };

    for (int i = 0; i < 5; i++) {
        lua_newtable(L);
        lua_setfield(L, -2, lists[i]);
    }
}

/* What part of a call's time it has: by products. */
static double share_of(const PairsAsk *ask, const PairKernel *p, double key,
                       double value)
{
    double own = p->keys * key + p->values * value, all = 0;

    for (int i = 0; i < (ask->view.backward ? 3 : 1); i++)
        all += kernels[i].keys * key + kernels[i].values * value;
    return own / all;
}

static void add_pairs(Making *k, int n)
{
    lua_State *L = k->L;
    const PairsAsk *ask = k->ask;
    const Scores *s = k->v->step->scores;
    const Graph *g = s->pairs[n];
    double key = (double)entry_count(ask->view.size, g->in[0].axes);
    double value = (double)entry_count(ask->view.size, g->in[2].axes);
    const char *why = pairs_off_tensor_cores(g, ask->view.size, true,
                                             ask->view.m);
    ScoreCall call = call_of(k->v, ask);
    double each = pairs_seconds(g, &call, ask->view.m, ask->view.backward)
                / (call.tokens * call.heads);
    const char *title = lua_pushfstring(L, "sum%d", n + 1);

    for (int i = 0; i < (ask->view.backward ? 3 : 1); i++) {
        const PairKernel *p = &kernels[i];
        double seconds = each * share_of(ask, p, key, value);
        double bytes = 2 * (p->moved_keys * key + p->moved_values * value);
        double flops = 2 * call.pairs / call.tokens
                     * (p->keys * key + p->values * value);
        lua_newtable(L);
        set_text(L, "kind", p->kind);
        set_text(L, "form", why ? "vectors" : "wgmma");
        if (why)
            set_text(L, "why", why);
        set_number(L, "flops", flops);
        set_number(L, "bytes", bytes);
        set_number(L, "reads", bytes);
        set_number(L, "seconds", seconds);
        lua_pushinteger(L, why ? PLAIN_WARPS : WARPS);
        lua_setfield(L, -2, "warps");
        lua_pushinteger(L, 1);
        lua_setfield(L, -2, "blocks");
        set_lists(L);
        add_kernel(k, title, p->name);
        char text[300];
        snprintf(text, sizeof text, "\n%s_%s: %s; %.0f flops; %.3g ns a token "
                 "and head%s%s\n", title, p->name, why ? "a warp a row"
                 : "wgmma, tiles of 128 rows; 12 warps: load 1, matrix 8",
                 flops, 1e9 * seconds, why ? "; without wgmma: " : "",
                 why ? why : "");
        lua_pushstring(L, text);
        add_text(k);
        k->bytes += bytes;
    }
}

/* ---- all of it ---- */

void plan_push_pairs(lua_State *L, Variant *v, const PairsAsk *ask)
{
    const Scores *s = v->step->scores;
    double states, pairs;
    Making k = { .L = L, .ask = ask, .v = v };

    plan_weigh(v, ask, &states, &pairs);
    lua_newtable(L);
    int table = lua_gettop(L);
    lua_newtable(L);
    k.kernels = table + 1;
    const char *both = ask->view.backward ? "forward and backward" : "forward";
    if (s->window)
        lua_pushfstring(L, "%s on %s: %s, as scans in blocks of %d tokens\n",
                        v->step->name, ask->view.m->name, both, (int)s->width);
    else if (s->width)
        lua_pushfstring(L, "%s on %s: %s, over the pairs of tokens %s\n",
                        v->step->name, ask->view.m->name, both,
                        scores_extent(v->ctx, s));
    else
        lua_pushfstring(L, "%s on %s: %s, over pairs of tokens: the state's "
                        "%d keys of degree %d are none\n", v->step->name,
                        ask->view.m->name, both,
                        (int)entry_count(ask->view.size,
                                         s->pairs[0]->in[0].axes), s->degree);
    k.text = table + 2;
    if (s->window) {
        add_part(&k, PART_WITHIN, "within");
        if (s->window->blocks.tail)
            add_part(&k, PART_TAIL, "tail");
        add_part(&k, PART_ACROSS, "across");
        if (s->window->blocks.tail && ask->view.backward)
            add_part(&k, PART_UPTO, "upto");
        if (s->window->sinks)
            add_part(&k, PART_SINKS, "first");
    } else {
        add_part(&k, 0, "tokens");
    }
    for (int n = 0; n < s->nsums; n++)
        add_pairs(&k, n);
    if (!s->window)
        add_part(&k, s->nsums + 1, "result");
    lua_pushvalue(L, k.kernels);
    lua_setfield(L, table, "kernels");
    lua_pushvalue(L, k.text);
    lua_setfield(L, table, "text");
    lua_settop(L, table);
    lua_newtable(L);
    lua_setfield(L, -2, "stored");
    lua_newtable(L);
    lua_setfield(L, -2, "weighed");
    lua_pushinteger(L, ROWS);
    lua_setfield(L, -2, "chunk");
    set_text(L, "machine", ask->view.m->name);
    set_text(L, "solver", "none");
    set_number(L, "bytes", k.bytes);
    set_number(L, "predicted", pairs);
    plan_be(L);
}
