/* tensor_make.c -- new tensors: from Lua tables, constants, seeded draws. */
#include <math.h>
#include <string.h>

#include "tensor.h"

/* ---- the generator: xoshiro256** seeded by splitmix64 ---- */

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

static uint64_t rng_next(Rng *r)
{
    uint64_t *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

void rng_seed(Rng *r, uint64_t seed)
{
    for (int k = 0; k < 4; k++) {
        uint64_t z = (seed += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        r->s[k] = z ^ (z >> 31);
    }
}

double rng_uniform(Rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* Box and Muller's transform; its second value is not kept. */
double rng_normal(Rng *r)
{
    double u = 1 - rng_uniform(r), v = rng_uniform(r);

    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* ---- arguments ---- */

static int64_t one_size(lua_State *L, int arg, const char *what)
{
    int ok;
    lua_Integer n = lua_tointegerx(L, arg, &ok);

    if (!ok || n < 0)
        luaL_error(L, "%s: a size is a whole number from 0, not %s", what,
                   luaL_tolstring(L, arg, NULL));
    return n;
}

int tensor_sizes(lua_State *L, int arg, const char *what,
                 int64_t shape[TENSOR_RANK], int *next, int *open)
{
    bool table = lua_type(L, arg) == LUA_TTABLE;
    lua_Unsigned rank = lua_rawlen(L, arg);

    if (!table)
        for (rank = 0; lua_type(L, arg + (int)rank) == LUA_TNUMBER; )
            rank++;
    if (rank > TENSOR_RANK)
        luaL_error(L, "%s: %I sizes; at most %d", what, (lua_Integer)rank,
                   TENSOR_RANK);
    if (!table && rank == 0)
        luaL_error(L, "%s: a table of sizes is wanted, not a %s", what,
                   luaL_typename(L, arg));
    if (open)
        *open = -1;
    for (int k = 0; k < (int)rank; k++) {
        if (table)
            lua_rawgeti(L, arg, k + 1);
        else
            lua_pushvalue(L, arg + k);
        bool any = open && *open < 0 && lua_type(L, -1) == LUA_TNUMBER
                && lua_tonumber(L, -1) == -1;
        if (any)
            *open = k;
        shape[k] = any ? 1 : one_size(L, -1, what);
        lua_pop(L, 1);
    }
    *next = table ? arg + 1 : arg + (int)rank;
    return (int)rank;
}

/* The options at `arg` hold dtype and seed and nothing else. */
static void options(lua_State *L, int arg, const char *what, DType *d,
                    Rng *rng)
{
    *d = F32;
    if (lua_isnoneornil(L, arg))
        return;
    if (lua_type(L, arg) != LUA_TTABLE)
        luaL_error(L, "%s: the options are a table such as { dtype = "
                   "\"bfloat16\" }, not a %s", what, luaL_typename(L, arg));
    for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING
                          ? lua_tostring(L, -2) : "?";
        if (strcmp(key, "dtype") == 0)
            *d = dtype_check(L, lua_gettop(L));
        else if (strcmp(key, "seed") == 0 && rng && lua_isinteger(L, -1))
            rng_seed(rng, (uint64_t)lua_tointeger(L, -1));
        else
            luaL_error(L, "%s: option '%s' is %s", what, key,
                       strcmp(key, "seed") == 0 && rng
                       ? "a whole number" : "not known");
    }
}

/* ---- constructors ---- */

static int fill_with(lua_State *L, const char *what, int value)
{
    int64_t shape[TENSOR_RANK];
    int next, rank = tensor_sizes(L, 1, what, shape, &next,
                                        NULL);
    double x = 0;
    DType d;
    Tensor *t;
    View v;

    if (value < 0) {
        if (lua_type(L, next) != LUA_TNUMBER)
            return luaL_error(L, "full: wants full({sizes}, number)");
        x = lua_tonumber(L, next++);
    } else {
        x = value;
    }
    options(L, next, what, &d, NULL);
    t = tensor_push(L, d, rank, shape);
    v = tensor_view(t);
    if (x != 0)
        for (Span s = span(L, tensor_count(t), 1); span_next(&s); )
            for (int64_t n = s.from; n < s.to; n++)
                view_set(&v, n, x);
    return 1;
}

static int zeros(lua_State *L) { return fill_with(L, "zeros", 0); }
static int ones(lua_State *L) { return fill_with(L, "ones", 1); }
static int full(lua_State *L) { return fill_with(L, "full", -1); }

/* Draws go on from one call to the next (upvalue 1) unless a seed is given. */
static int draw(lua_State *L, const char *what, double (*f)(Rng *))
{
    int64_t shape[TENSOR_RANK];
    int next, rank = tensor_sizes(L, 1, what, shape, &next,
                                        NULL);
    Rng own = { { 0 } }, *r = &own;
    DType d;
    Tensor *t;
    View v;

    options(L, next, what, &d, &own);
    if (!(own.s[0] | own.s[1] | own.s[2] | own.s[3]))
        r = lua_touserdata(L, lua_upvalueindex(1));
    t = tensor_push(L, d, rank, shape);
    v = tensor_view(t);
    for (Span s = span(L, tensor_count(t), DRAW_COST); span_next(&s); )
        for (int64_t n = s.from; n < s.to; n++)
            view_set(&v, n, f(r));
    return 1;
}

static int rand_(lua_State *L) { return draw(L, "rand", rng_uniform); }
static int randn(lua_State *L) { return draw(L, "randn", rng_normal); }

static int seed(lua_State *L)
{
    rng_seed(lua_touserdata(L, lua_upvalueindex(1)),
             (uint64_t)luaL_checkinteger(L, 1));
    return 0;
}

/* arange(n): 0 .. n - 1 */
static int arange(lua_State *L)
{
    int64_t n = one_size(L, 1, "arange");
    DType d;
    Tensor *t;
    View v;

    options(L, 2, "arange", &d, NULL);
    t = tensor_push(L, d, 1, &n);
    v = tensor_view(t);
    for (Span s = span(L, n, 1); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++)
            view_set(&v, i, (double)i);
    return 1;
}

/* ---- flin.tensor ---- */

/* The shape of nested tables, by their first entries. */
static int nested_shape(lua_State *L, int arg, int64_t shape[TENSOR_RANK])
{
    int rank = 0;

    lua_pushvalue(L, arg);
    while (lua_type(L, -1) == LUA_TTABLE) {
        if (rank == TENSOR_RANK)
            luaL_error(L, "tensor: tables nest deeper than %d", TENSOR_RANK);
        shape[rank] = (int64_t)lua_rawlen(L, -1);
        rank++;
        lua_rawgeti(L, -1, 1);
    }
    if (lua_type(L, -1) != LUA_TNUMBER && (rank == 0 || shape[rank - 1] > 0))
        luaL_error(L, "tensor: holds numbers, not a %s",
                   luaL_typename(L, -1));
    lua_settop(L, arg + 1);
    return rank;
}

/* Copies the table (or number) on top into elements from *n on. */
static void nested_copy(lua_State *L, const Tensor *t, int level, int64_t *n)
{
    View v = tensor_view(t);

    if (level == t->rank) {
        if (lua_type(L, -1) != LUA_TNUMBER)
            luaL_error(L, "tensor: element %I is a %s where a number is "
                       "wanted", (lua_Integer)*n + 1, luaL_typename(L, -1));
        view_set(&v, (*n)++, lua_tonumber(L, -1));
        return;
    }
    if (lua_type(L, -1) != LUA_TTABLE)
        luaL_error(L, "tensor: element %I is a %s where a table is wanted",
                   (lua_Integer)*n + 1, luaL_typename(L, -1));
    if ((int64_t)lua_rawlen(L, -1) != t->shape[level])
        luaL_error(L, "tensor: a table of %I entries where its neighbours "
                   "have %I", (lua_Integer)lua_rawlen(L, -1),
                   (lua_Integer)t->shape[level]);
    for (Span s = span(L, t->shape[level], ENTRY_COST); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++) {
            lua_rawgeti(L, -1, i + 1);
            nested_copy(L, t, level + 1, n);
            lua_pop(L, 1);
        }
}

static int from_table(lua_State *L)
{
    int64_t shape[TENSOR_RANK], n = 0;
    int rank;
    DType d;
    Tensor *t;

    lua_settop(L, 2);
    options(L, 2, "tensor", &d, NULL);
    if (tensor_test(L, 1))
        return tensor_copy(L, tensor_check(L, 1), d), 1;
    luaL_checkstack(L, 2 * TENSOR_RANK + 8, "tensor");
    rank = nested_shape(L, 1, shape);
    lua_settop(L, 1);
    t = tensor_push(L, d, rank, shape);
    lua_pushvalue(L, 1);
    nested_copy(L, t, 0, &n);
    lua_settop(L, 2);
    return 1;
}

static int is_tensor(lua_State *L)
{
    lua_pushboolean(L, tensor_test(L, 1) != NULL);
    return 1;
}

void make_open(lua_State *L)
{
    static const luaL_Reg plain[] = {
        { "tensor", from_table }, { "zeros", zeros }, { "ones", ones },
        { "full", full }, { "arange", arange }, { "is_tensor", is_tensor },
        { NULL, NULL }
    };
    static const luaL_Reg drawn[] = {
        { "rand", rand_ }, { "randn", randn }, { "seed", seed },
        { NULL, NULL }
    };

    luaL_setfuncs(L, plain, 0);
    rng_seed(lua_newuserdatauv(L, sizeof(Rng), 0), 1);
    luaL_setfuncs(L, drawn, 1);
}
