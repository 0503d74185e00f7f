/* io.c -- v:io: how few words a variant can move, and what its plan does. */
#include <math.h>
#include <string.h>

#include "../compiler/io.h"
#include "../compiler/pair_ways.h"
#include "../compiler/pebble.h"
#include "bind.h"
#include "io.h"
#include "plan_view.h"

#define IO_META "flin.io"
#define IO_JOB "flin.io.job"

enum { USUAL_SIZE = 64, WORD = 4 };
#define COUNT_LIMIT 1e8                 /* steps that counting may take */

/* All that v:io finds out. Words of one head. The variant is a copy in a
 * context of its own, so that nothing of it stays. */
typedef struct Job {
    Ctx *ctx;
    Variant copy;
    const Graph *given;
    Machine machine;
    PlanView plan;
    const char *plan_note;              /* why there is none */
    double tokens, words, d, z_input, z_qk;
    bool backward;
    double quadratic, sparse;
    double way[2];                      /* counted; 0: not */
    int best;                           /* of them, for a mask over all pairs;
                                           -1: none */
    PairWay kernels[2];                 /* of such a mask, both ways */
    bool fits[2];
    double heads, shared;               /* shared: the machine's */
    IoWalk forward, training;
    double plan_words, plan_once, plan_peak;
    int64_t *loads, *stores;            /* per kernel and chunk */
    Buf text;
} Job;

static int job_gc(lua_State *L)
{
    Job *j = luaL_checkudata(L, 1, IO_JOB);

    ctx_free(j->ctx);
    j->ctx = NULL;
    return 0;
}

static Job *push_job(lua_State *L)
{
    Job *j = push_owned(L, sizeof *j, IO_JOB, job_gc);

    j->ctx = sandbox_ctx(L);
    return j;
}

static const char *const way_name[] = { "blocks", "tiles" };
static const char *const way_text[] = { "blocks in fast memory",
                                        "n x n in sqrt(M) tiles" };

/* ---- the work ---- */

/* Counts attention's schedule for these sizes, where that is not long. */
static double count_way(Job *j, AttentionWay way)
{
    Attention a = { .way = way, .n = (int64_t)j->tokens, .d = (int64_t)j->d,
                    .window = (int64_t)j->tokens, .red = (int64_t)j->words };
    AttentionCount count;

    if (a.red < attention_least(way, a.d)
        || attention_steps(&a) > COUNT_LIMIT)
        return 0;
    attention_run(j->ctx, &a, false, &count);
    return (double)(count.loads + count.stores);
}

/* Two and three chunks are replayed: all others move as the third does. */
static void replay(Job *j)
{
    const Plan *p = j->plan.p;
    PlanCount two, three;
    double chunks = ceil(j->tokens / j->plan.chunk), each = 0, first = 0;

    plan_replay(p, 2, 0, &two);
    plan_replay(p, 3, 0, &three);
    j->loads = ctx_alloc(j->ctx, (size_t)(p->nkernels + 1) * sizeof(int64_t));
    j->stores = ctx_alloc(j->ctx, (size_t)(p->nkernels + 1) * sizeof(int64_t));
    for (int i = 0; i < p->nkernels; i++) {
        j->loads[i] = three.loads[i] - two.loads[i];
        j->stores[i] = three.stores[i] - two.stores[i];
        each += (double)(j->loads[i] + j->stores[i]);
        first += (double)(two.loads[i] + two.stores[i]);
    }
    j->plan_words = first + (chunks - 2) * each;
    j->plan_once = (double)three.once;
    j->plan_peak = (double)three.peak;
}

static void make_plan(Ctx *c, void *ud)
{
    Job *j = ud;

    plan_view(c, &j->plan);
    replay(j);
}

static void bounds(Job *j)
{
    Graph *g = graph_sized(j->copy.step, j->plan.size);

    j->quadratic = io_quadratic(j->tokens, j->d, j->words, j->backward);
    j->sparse = io_sparse(j->z_input, j->z_qk, j->words);
    if (j->backward)
        for (int w = 0; w < 2; w++)
            j->way[w] = count_way(j, (AttentionWay)w);
    io_walk(g, j->tokens, j->words, false, &j->forward);
    if (j->backward)
        io_walk(g, j->tokens, j->words, true, &j->training);
}

/* A mask over all pairs is computed by the schedule that moves less. */
static void choose_way(Job *j)
{
    j->best = -1;
    if (!j->given->mask || !j->backward)
        return;
    for (int w = 0; w < 2; w++)
        if (j->way[w] > 0 && (j->best < 0 || j->way[w] < j->way[j->best]))
            j->best = w;
    if (j->best >= 0)
        j->plan_words = j->way[j->best];
}

static const char *const made[] = { "dk", "dq", "dv", "scores" };

/* Both ways as kernels, in a block's memory of so many bytes. */
static void find_kernels(Job *j)
{
    const Mask *m = j->given->mask;
    const Graph *g = j->copy.step;
    PairAsk ask = { .tokens = j->tokens, .heads = j->heads, .element = WORD };

    if (!m || !j->backward || !j->machine.arch)
        return;
    ask.key = (int)entry_count(j->plan.size, g->in[graph_find_input(g, "k")]
                                                 .axes);
    ask.value = (int)entry_count(j->plan.size, g->in[graph_find_input(g, "v")]
                                                   .axes);
    ask.memory = (int64_t)fmin(j->words * WORD, (double)j->shared);
    Machine on = j->machine;            /* a block's memory is less, no more */
    on.shared = (size_t)j->shared;
    for (int w = 0; w < 2; w++)
        j->fits[w] = pair_way(j->ctx, m, &ask, &on, (AttentionWay)w,
                              &j->kernels[w]);
}

static void kernels_text(Job *j)
{
    for (int w = 0; w < 2; w++) {
        const PairWay *k = &j->kernels[w];
        if (!j->fits[w])
            continue;
        buf_printf(&j->text, "kernels of %s: %.4g words, %.3g ms of %.0f heads"
                   "\n", way_text[w], k->bytes / WORD, 1e3 * k->all, j->heads);
        for (int n = 0; n < PAIR_KERNELS && k->shape[n].own; n++)
            buf_printf(&j->text, "  %s%s: %d tokens a block, %d stream past at "
                       "once, %d columns; %d bytes; %.4g words\n", made[n],
                       w == BLOCKS && n == PAIR_KEYS ? " and dv" : "",
                       k->shape[n].own, k->shape[n].step, k->shape[n].wide,
                       k->room[n], k->moved[n] / WORD);
    }
}

static void walk_text(Job *j, const char *what, const IoWalk *w)
{
    Buf *b = &j->text;
    const Graph *g = j->copy.step;

    buf_printf(b, "recurrence, %s: %.4g words at least (proved: each input "
               "read, each result written)\n", what, w->compulsory);
    if (w->walk == W_NONE) {
        buf_printf(b, "  no schedule is known in so little memory\n");
        return;
    }
    buf_printf(b, "  best known %.4g, %.2f of that: ", w->best,
               w->best / w->compulsory);
    if (w->walk == W_RESIDENT)
        buf_printf(b, "the states (%.0f words) stay in fast memory, so this "
                   "is optimal\n", w->state);
    else if (w->walk == W_SPLIT)
        buf_printf(b, "the states (%.0f words) in %d parts along %s, a walk "
                   "each (no bound is known to match)\n", w->state, w->blocks,
                   g->axis[w->split].name);
    else
        buf_printf(b, "%s every %d tokens (no bound is known to match)\n",
                   w->walk == W_SPILL ? "states stream through"
                   : "states kept for the way back", w->chunk);
}

static void quadratic_text(Job *j)
{
    Buf *b = &j->text;
    bool large = j->words >= j->d * j->d;

    buf_printf(b, "as a quadratic form, %s: Theta(%s) = %.4g words (proved, "
               "up to a constant; M %s d^2 = %.0f)\n",
               j->backward ? "backward" : "forward",
               j->backward ? large ? "(n^2 d^2 + n d^3) / M"
                                   : "(n^2 d + n d^2) / sqrt(M)"
                           : large ? "n^2 d^2 / M" : "n^2 d / sqrt(M)",
               j->quadratic, large ? ">=" : "<", j->d * j->d);
    buf_printf(b, "  sparse, Z_input %.4g, Z_QK %.4g: Omega(%.4g) (proved, "
               "up to a constant; not known to be reached)\n", j->z_input,
               j->z_qk, j->sparse);
    for (int w = 0; w < 2; w++)
        if (j->way[w] > 0)
            buf_printf(b, "  schedule with %s: %.4g, counted\n", way_text[w],
                       j->way[w]);
}

static void plan_part(Job *j)
{
    Buf *b = &j->text;
    double least = (j->backward ? j->training : j->forward).compulsory;

    if (j->best >= 0) {
        double other = j->way[!j->best];
        buf_printf(b, "plan: %s: %.4g words", way_text[j->best],
                   j->plan_words);
        if (other > 0)
            buf_printf(b, ", %.3g times fewer than %s", other / j->plan_words,
                       way_text[!j->best]);
        buf_printf(b, "\n");
        kernels_text(j);
        return;
    }
    if (j->plan_note) {
        buf_printf(b, "plan: none: %s\n", j->plan_note);
        return;
    }
    buf_printf(b, "plan for %s, chunk %d: %.4g words, replayed; %.2f of the "
               "proved\n", j->machine.name, j->plan.chunk, j->plan_words,
               j->plan_words / least);
    for (int i = 0; i < j->plan.p->nkernels; i++)
        buf_printf(b, "  %s: %lld words in, %lld out, a chunk\n",
                   j->plan.p->kernel[i].name, (long long)j->loads[i],
                   (long long)j->stores[i]);
}

static void find_out(Ctx *c, void *ud)
{
    Job *j = ud;
    Buf text = { .ctx = c };

    graph_print(j->given, &text);
    j->copy.ctx = c;
    j->copy.step = graph_parse(c, text.s);
    j->copy.step->mask = j->given->mask;
    j->copy.step->transposed = j->given->transposed;
    bounds(j);
    choose_way(j);
    find_kernels(j);
    if (j->given->mask)
        j->plan_note = "a mask of mode \"quadratic\" has no recurrence";
    else if (!ctx_protect(c, make_plan, j))
        j->plan_note = ctx_string(c, c->err.message);
    j->text.ctx = c;
    buf_printf(&j->text, "%s: %.0f tokens, fast memory of M = %.0f words; "
               "words of one head\n", j->given->name, j->tokens, j->words);
    quadratic_text(j);
    if (!j->given->mask) {
        walk_text(j, "forward", &j->forward);
        if (j->backward)
            walk_text(j, "both passes of training", &j->training);
    }
    plan_part(j);
}

/* ---- the table ---- */

static void push_walk(lua_State *L, const Job *j, const IoWalk *w)
{
    lua_newtable(L);
    set_number(L, "compulsory", w->compulsory);
    set_number(L, "inputs", w->inputs);
    set_number(L, "results", w->results);
    set_number(L, "state", w->state);
    lua_pushstring(L, walk_name[w->walk]);
    lua_setfield(L, -2, "walk");
    if (w->walk != W_NONE)
        set_number(L, "best", w->best);
    if (w->walk == W_SPLIT) {
        set_number(L, "blocks", w->blocks);
        lua_pushstring(L, j->copy.step->axis[w->split].name);
        lua_setfield(L, -2, "axis");
    }
    if (w->walk == W_SPILL || w->walk == W_CHECKPOINT)
        set_number(L, "chunk", w->chunk);
}

static void push_kernel(lua_State *L, const PairWay *k, int n)
{
    lua_newtable(L);
    lua_pushinteger(L, k->shape[n].own);
    lua_setfield(L, -2, "own");
    lua_pushinteger(L, k->shape[n].step);
    lua_setfield(L, -2, "step");
    lua_pushinteger(L, k->shape[n].wide);
    lua_setfield(L, -2, "wide");
    lua_pushinteger(L, k->room[n]);
    lua_setfield(L, -2, "room");
    set_number(L, "words", k->moved[n] / WORD);
    lua_setfield(L, -2, made[n]);
}

/* Of each way: words of a head, seconds of the call; which is taken. */
static void push_kernels(lua_State *L, const Job *j)
{
    const PairWay *k = j->kernels;
    int less = pair_takes_tiles(j->fits[TILES] ? &k[TILES] : NULL,
                                j->fits[BLOCKS] ? &k[BLOCKS] : NULL);

    if (!j->fits[less])
        return;
    lua_newtable(L);
    for (int w = 0; w < 2; w++) {
        if (!j->fits[w])
            continue;
        lua_newtable(L);
        set_number(L, "words", k[w].bytes / WORD);
        set_number(L, "seconds", k[w].all);
        for (int n = 0; n < PAIR_KERNELS && k[w].shape[n].own; n++)
            push_kernel(L, &k[w], n);
        lua_setfield(L, -2, way_name[w]);
    }
    lua_pushstring(L, way_name[less]);
    lua_setfield(L, -2, "way");
    lua_setfield(L, -2, "kernels");
}

static void push_plan(lua_State *L, const Job *j)
{
    lua_newtable(L);
    set_number(L, "words", j->plan_words);
    if (j->best >= 0) {
        lua_pushstring(L, way_name[j->best]);
        lua_setfield(L, -2, "way");
        push_kernels(L, j);
        return;
    }
    set_number(L, "once", j->plan_once);
    set_number(L, "peak", j->plan_peak);
    lua_pushinteger(L, j->plan.chunk);
    lua_setfield(L, -2, "chunk");
    lua_newtable(L);
    for (int i = 0; i < j->plan.p->nkernels; i++) {
        lua_newtable(L);
        lua_pushstring(L, j->plan.p->kernel[i].name);
        lua_setfield(L, -2, "name");
        set_number(L, "loads", (double)j->loads[i]);
        set_number(L, "stores", (double)j->stores[i]);
        set_number(L, "predicted", j->plan.p->kernel[i].bytes);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "kernels");
}

static int io_tostring(lua_State *L)
{
    lua_getfield(L, 1, "text");
    return 1;
}

static void push_result(lua_State *L, const Job *j)
{
    lua_newtable(L);
    set_number(L, "words", j->words);
    lua_newtable(L);
    set_number(L, "lower", j->quadratic);
    set_number(L, "sparse", j->sparse);
    set_number(L, "d", j->d);
    for (int w = 0; w < 2; w++)
        if (j->way[w] > 0)
            set_number(L, way_name[w], j->way[w]);
    lua_setfield(L, -2, "quadratic");
    if (!j->given->mask) {
        push_walk(L, j, &j->forward);
        lua_setfield(L, -2, "forward");
    }
    if (j->backward && !j->given->mask) {
        push_walk(L, j, &j->training);
        lua_setfield(L, -2, "training");
    }
    if (j->plan_note && j->best < 0) {
        lua_pushstring(L, j->plan_note);
        lua_setfield(L, -2, "plan_note");
    } else {
        push_plan(L, j);
        lua_setfield(L, -2, "plan");
    }
    lua_pushlstring(L, j->text.s, j->text.len);
    lua_setfield(L, -2, "text");
    if (luaL_newmetatable(L, IO_META)) {
        lua_pushcfunction(L, io_tostring);
        lua_setfield(L, -2, "__tostring");
    }
    lua_setmetatable(L, -2);
}

/* ---- v:io ---- */

static double number_option(lua_State *L, const char *name, double usual)
{
    if (!lua_istable(L, 2) || raw_field(L, 2, name) == LUA_TNIL)
        return usual;
    int ok;
    double x = lua_tonumberx(L, -1, &ok);
    if (!ok || !(x >= 1 && x <= 1e15))
        lang_fail(L, NULL, "io: %s = %s: a number from 1 on is wanted", name,
                  luaL_tolstring(L, -1, NULL));
    return x;
}

static int size_named(const Graph *g, const int32_t *size, const char *name)
{
    int ax = graph_find_axis(g, name);

    return ax < 0 ? 0 : size[ax];
}

static void read_machine(lua_State *L, Job *j)
{
    const char *name = "h200";

    if (lua_istable(L, 2) && raw_field(L, 2, "machine") != LUA_TNIL)
        name = luaL_tolstring(L, -1, NULL);
    const Machine *m = machine_named(name);
    if (!m)
        lang_fail(L, machine_names(), "io: there is no machine '%s'",
                  name);
    j->machine = *m;
}

/* v:io { T =, K =, V = ..., cache = bytes of fast memory (the machine's: one
 * unit's tiles and registers), chunk =, machine = "h200", backward = true,
 * Z_input =, Z_QK =, H = }: words of 4 bytes, of one head. Prints as text. The
 * plan is the machine's if it had that cache; of a mask over all pairs H heads
 * are what its kernels' times are of. */
static int variant_io(lua_State *L)
{
    static const char *const also[] = { "T", "cache", "chunk", "machine",
        "backward", "Z_input", "Z_QK", "from", "H" };
    Variant *v = variant_check(L, 1);

    refuse_layer(L, v, "io");
    const Graph *step = step_of_way(v, way_arg(L, "io", 2, v));
    double own;

    lua_settop(L, 2);
    Job *j = push_job(L);
    check_options(L, "io", v->step, 2, also, v->step->mask ? 9 : 8);
    sizes_arg(L, "io", v->step, 2, USUAL_SIZE, j->plan.size);
    j->given = step;
    read_machine(L, j);
    own = (double)j->machine.shared + (double)j->machine.registers;
    j->tokens = floor(number_option(L, "T", 4096));
    j->words = floor(number_option(L, "cache", own) / WORD);
    if (j->words < 16)
        lang_fail(L, NULL, "io: cache = %d: at least 64 bytes are wanted",
                  (int)(j->words * WORD));
    j->heads = number_option(L, "H", 16);
    j->shared = (double)j->machine.shared;
    j->machine.shared = (size_t)((double)j->machine.shared / own
                                 * j->words * WORD);
    j->machine.registers = (size_t)((double)j->machine.registers / own
                                    * j->words * WORD);
    j->backward = option_flag(L, "io", 2, "backward");
    int k = size_named(v->step, j->plan.size, "k");
    int w = size_named(v->step, j->plan.size, "v");
    j->d = k && w ? 0.5 * (k + w) : k + w ? k + w : USUAL_SIZE;
    j->z_input = number_option(L, "Z_input", j->tokens * j->d);
    j->z_qk = number_option(L, "Z_QK", j->tokens * j->tokens);
    j->plan.v = &j->copy;
    j->plan.m = &j->machine;
    j->plan.backward = j->backward;
    j->plan.asked = (int)option_int(L, "io", 2, "chunk", 64);
    if (j->plan.asked < 1 || j->plan.asked > CHUNK_MAX)
        lang_fail(L, NULL, "io: chunk = %d: from 1 to %d", j->plan.asked,
                  CHUNK_MAX);
    protect(L, j->ctx, find_out, j);
    push_result(L, j);
    return 1;
}

void io_methods(lua_State *L)
{
    static const luaL_Reg methods[] = { { "io", variant_io }, { NULL, NULL } };

    luaL_setfuncs(L, methods, 0);
}
