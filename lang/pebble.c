/* pebble.c -- flin.pebble: the red-blue pebble game for scripts.
 *
 *   local g = flin.pebble.game(words)       fast memory of so many words
 *   local a = g:input(1.5)                  a value in slow memory; a number
 *   g:load(a) g:store(a) g:drop(a)          names it
 *   local c = g:compute(value, a, b, ...)   from operands in fast memory
 *   g:again(c, a, b, ...)                   the same value once more
 *   g:value(c), g:is_red(c), g:is_blue(c)
 *   g:count()                               { loads, stores, io, now, peak }
 *
 *   flin.pebble.attention { n =, d =, words =, window =, way = "blocks" |
 *   "tiles", play = true }                  { loads, stores, io, peak, error }
 *
 * A move against the rules is an error.
 */
#include <string.h>

#include "../compiler/pebble.h"
#include "io.h"

#define GAME_META "flin.game"

typedef struct Board {
    Ctx *ctx;
    Game *game;
    int64_t words;                      /* of the game to be made */
    Vertex v;                           /* of the move in hand */
    double value;
    int n;
    Vertex operand[64];
} Board;

static int board_gc(lua_State *L)
{
    Board *b = luaL_checkudata(L, 1, GAME_META);

    ctx_free(b->ctx);
    b->ctx = NULL;
    return 0;
}

static void make_game(Ctx *c, void *ud)
{
    Board *b = ud;

    b->game = game_new(c, b->words);
}

static Board *push_board(lua_State *L)
{
    Board *b = lua_newuserdatauv(L, sizeof *b, 0);

    memset(b, 0, sizeof *b);
    luaL_setmetatable(L, GAME_META);
    b->ctx = sandbox_ctx(L);
    return b;
}

static int pebble_game(lua_State *L)
{
    lua_Integer words = luaL_checkinteger(L, 1);

    if (words < 1)
        lang_fail(L, NULL, "flin.pebble.game: fast memory of %d words",
                  (int)words);
    Board *b = push_board(L);
    b->words = words;
    protect(L, b->ctx, make_game, b);
    return 1;
}

static Board *board_arg(lua_State *L)
{
    Board *b = luaL_checkudata(L, 1, GAME_META);

    if (!b->ctx || !b->game)
        lang_fail(L, NULL, "pebble game: it is over");
    return b;
}

static Vertex vertex_arg(lua_State *L, const Board *b, int arg)
{
    lua_Integer v = luaL_checkinteger(L, arg);

    if (v < 1 || v > (lua_Integer)b->game->len)
        lang_fail(L, NULL, "pebble game: there is no value %d", (int)v);
    return (Vertex)(v - 1);
}

/* ---- moves: each under ctx_protect ---- */

static void do_input(Ctx *c, void *ud)
{
    Board *b = ud;

    (void)c;
    b->v = game_input(b->game, 1, b->value);
}

static void do_load(Ctx *c, void *ud)
{
    Board *b = ud;

    (void)c;
    game_load(b->game, b->v);
}

static void do_store(Ctx *c, void *ud)
{
    Board *b = ud;

    (void)c;
    game_store(b->game, b->v);
}

static void do_drop(Ctx *c, void *ud)
{
    Board *b = ud;

    (void)c;
    game_drop(b->game, b->v);
}

static void do_compute(Ctx *c, void *ud)
{
    Board *b = ud;

    (void)c;
    b->v = game_compute(b->game, 1, b->value, b->n, b->operand);
}

static void do_again(Ctx *c, void *ud)
{
    Board *b = ud;

    (void)c;
    game_recompute(b->game, b->v, b->n, b->operand);
}

static int game_move(lua_State *L, void (*move)(Ctx *, void *))
{
    Board *b = board_arg(L);

    b->v = vertex_arg(L, b, 2);
    protect(L, b->ctx, move, b);
    return 0;
}

static int move_load(lua_State *L) { return game_move(L, do_load); }
static int move_store(lua_State *L) { return game_move(L, do_store); }
static int move_drop(lua_State *L) { return game_move(L, do_drop); }

static int move_input(lua_State *L)
{
    Board *b = board_arg(L);

    b->value = luaL_optnumber(L, 2, 0);
    protect(L, b->ctx, do_input, b);
    lua_pushinteger(L, (lua_Integer)b->v + 1);
    return 1;
}

static void operands(lua_State *L, Board *b)
{
    b->n = lua_gettop(L) - 2;
    if (b->n > 64)
        lang_fail(L, NULL, "pebble game: at most 64 operands");
    for (int i = 0; i < b->n; i++)
        b->operand[i] = vertex_arg(L, b, i + 3);
}

static int move_compute(lua_State *L)
{
    Board *b = board_arg(L);

    b->value = luaL_optnumber(L, 2, 0);
    operands(L, b);
    protect(L, b->ctx, do_compute, b);
    lua_pushinteger(L, (lua_Integer)b->v + 1);
    return 1;
}

static int move_again(lua_State *L)
{
    Board *b = board_arg(L);

    b->v = vertex_arg(L, b, 2);
    operands(L, b);
    protect(L, b->ctx, do_again, b);
    return 0;
}

static int ask_value(lua_State *L)
{
    Board *b = board_arg(L);

    lua_pushnumber(L, game_value(b->game, vertex_arg(L, b, 2)));
    return 1;
}

static int ask_red(lua_State *L)
{
    Board *b = board_arg(L);

    lua_pushboolean(L, game_is_red(b->game, vertex_arg(L, b, 2)));
    return 1;
}

static int ask_blue(lua_State *L)
{
    Board *b = board_arg(L);

    lua_pushboolean(L, game_is_blue(b->game, vertex_arg(L, b, 2)));
    return 1;
}

static void set_integer(lua_State *L, const char *name, int64_t x)
{
    lua_pushinteger(L, x);
    lua_setfield(L, -2, name);
}

static int ask_count(lua_State *L)
{
    const Game *g = board_arg(L)->game;

    lua_newtable(L);
    set_integer(L, "loads", g->loads);
    set_integer(L, "stores", g->stores);
    set_integer(L, "io", g->loads + g->stores);
    set_integer(L, "now", g->now);
    set_integer(L, "peak", g->peak);
    return 1;
}

/* ---- attention ---- */

typedef struct Run { Attention a; bool play; AttentionCount count; } Run;

static void do_attention(Ctx *c, void *ud)
{
    Run *r = ud;

    attention_run(c, &r->a, r->play, &r->count);
}

static int64_t size_field(lua_State *L, const char *name, int64_t usual,
                          int64_t most)
{
    int ok = 1;
    int64_t n = usual;

    if (raw_field(L, 1, name) != LUA_TNIL || !usual)
        n = lua_tointegerx(L, -1, &ok);
    if (!ok || n < 1 || n > most)
        lang_fail(L, NULL, "flin.pebble.attention: %s = %s: a whole number "
                  "from 1 to %d is wanted", name,
                  luaL_tolstring(L, -1, NULL), (int)most);
    lua_pop(L, 1);
    return n;
}

static AttentionWay way_field(lua_State *L)
{
    const char *s = "blocks";

    if (raw_field(L, 1, "way") != LUA_TNIL)
        s = luaL_tolstring(L, -1, NULL);
    if (!strcmp(s, "tiles"))
        return TILES;
    if (strcmp(s, "blocks"))
        lang_fail(L, "way = \"blocks\" or \"tiles\"",
                  "flin.pebble.attention: no way '%s'", s);
    return BLOCKS;
}

static int pebble_attention(lua_State *L)
{
    enum { MOST = 1 << 20 };
    const double most = 1e9, most_moves = 2e7;
    Run r = { 0 };

    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    r.a.n = size_field(L, "n", 0, MOST);
    r.a.d = size_field(L, "d", 0, 65536);
    r.a.red = size_field(L, "words", 0, INT32_MAX);
    r.a.window = size_field(L, "window", r.a.n, MOST);
    r.a.way = way_field(L);
    raw_field(L, 1, "play");
    r.play = lua_toboolean(L, -1);
    if (r.play && (double)(r.a.n * r.a.n * 5) * (double)r.a.d > most_moves)
        lang_fail(L, "n = 64, d = 32", "flin.pebble.attention: a game of more "
                  "than %.0e moves", most_moves);
    if (r.a.red >= attention_least(r.a.way, r.a.d)
        && attention_steps(&r.a) > most)
        lang_fail(L, "n = 16384", "flin.pebble.attention: to count it takes "
                  "more than %.0e steps", most);
    Board *b = push_board(L);
    protect(L, b->ctx, do_attention, &r);
    lua_newtable(L);
    set_integer(L, "loads", r.count.loads);
    set_integer(L, "stores", r.count.stores);
    set_integer(L, "io", r.count.loads + r.count.stores);
    if (r.play) {
        set_integer(L, "peak", r.count.peak);
        lua_pushnumber(L, r.count.error);
        lua_setfield(L, -2, "error");
    }
    return 1;
}

void pebble_open(lua_State *L)
{
    static const luaL_Reg moves[] = {
        { "input", move_input }, { "load", move_load },
        { "store", move_store }, { "drop", move_drop },
        { "compute", move_compute }, { "again", move_again },
        { "value", ask_value }, { "is_red", ask_red },
        { "is_blue", ask_blue }, { "count", ask_count }, { NULL, NULL }
    };
    static const luaL_Reg pebble[] = {
        { "game", pebble_game }, { "attention", pebble_attention },
        { NULL, NULL }
    };

    luaL_newmetatable(L, GAME_META);
    lua_pushcfunction(L, board_gc);
    lua_setfield(L, -2, "__gc");
    luaL_newlib(L, moves);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newlib(L, pebble);
    lua_setfield(L, -2, "pebble");
}
