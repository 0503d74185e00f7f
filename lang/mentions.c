/* mentions.c -- the numbers that a Lua function mentions, from its bytecode
 * and from what its upvalues hold.
 *
 * string.dump's form is that of Lua 5.4 (lundump.c); what is of another form
 * is passed over.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mentions.h"

enum { MAX_WALKED = 64, MAX_STEPS = 4000, MAX_KEYS = 4096, KEYS_TAKEN = 24,
       DEPTH = 4 };

typedef struct Walk {
    lua_State *L;
    Mentions *m;
    int seen, names, skip;              /* tables: visited; string constants,
                                           by number and as keys; flin */
    int walked, nnames, steps;
    const char *source;                 /* whose lines are wanted */
    bool own;                           /* this function has that source */
} Walk;

/* Beyond these a double is no token and no count. */
static void mention(Walk *w, double x, int line, bool compared)
{
    Mentions *m = w->m;

    if (!(fabs(x) <= 1e15))
        return;
    for (int i = 0; i < m->n; i++)
        if (m->at[i].x == x) {
            if (compared && !m->at[i].compared)
                m->at[i] = (Mention){ x, line, true };
            return;
        }
    if (m->n < MAX_MENTIONS)
        m->at[m->n++] = (Mention){ x, line, compared };
}

/* ---- bytecode ---- */

typedef struct Bytes { const unsigned char *p, *end; bool ok; } Bytes;

static const unsigned char *take(Bytes *b, size_t n)
{
    const unsigned char *p = b->p;

    if (!b->ok || (size_t)(b->end - p) < n) {
        b->ok = false;
        return NULL;
    }
    b->p += n;
    return p;
}

static int take_byte(Bytes *b)
{
    const unsigned char *p = take(b, 1);

    return p ? *p : 0;
}

/* Seven bits a byte, the last marked; no count exceeds the bytes left. */
static size_t take_size(Bytes *b)
{
    size_t x = 0;
    int c;

    do {
        c = take_byte(b);
        if (x > SIZE_MAX >> 8)
            b->ok = false;
        x = x << 7 | (size_t)(c & 0x7f);
    } while (b->ok && !(c & 0x80));
    return x;
}

/* How many of `size` bytes each follow. */
static size_t take_count(Bytes *b, size_t size)
{
    size_t n = take_size(b);

    if (b->ok && n > (size_t)(b->end - b->p) / size)
        b->ok = false;
    return b->ok ? n : 0;
}

/* Its bytes, or NULL for none. */
static const char *take_string(Bytes *b, size_t *n)
{
    size_t size = take_size(b);

    *n = size ? size - 1 : 0;
    return size ? (const char *)take(b, *n) : NULL;
}

/* Lua 5.4's instructions, where one holds a number or turns on a value. */
enum { LUA_LOADI = 1, LUA_LOADF = 2, LUA_GETTABLE = 12, LUA_GETI = 13,
       LUA_SETI = 17, LUA_ADDI = 21, LUA_NOT = 51, LUA_CONCAT = 53,
       LUA_EQ = 57, LUA_EQK = 60, LUA_EQI = 61, LUA_LTI = 62, LUA_LEI = 63,
       LUA_GTI = 64, LUA_GEI = 65, LUA_TEST = 66, LUA_TESTSET = 67,
       LUA_SETLIST = 78 };

typedef struct Constant { bool number; double x; } Constant;

/* A function's code, constants and lines. */
typedef struct Proto {
    const unsigned char *code, *delta;
    size_t ncode, ndelta, nconst, nabs;
    Constant *k;
    int *abs;                           /* pc, line */
    int line;
} Proto;

/* The first line of the file at hand; 0 stands for none. */
static int earlier(int line, int other)
{
    return other && (!line || other < line) ? other : line;
}

static void read_instruction(Walk *w, const Proto *p, uint32_t i, int line)
{
    Mentions *m = w->m;
    int op = (int)(i & 0x7f), b = (int)(i >> 16 & 0xff), c = (int)(i >> 24);
    int wide = (int)(i >> 15) - 65535;

    switch (op) {
    case LUA_EQI: mention(w, b - 127, line, true); break;
    case LUA_EQK:
        if ((size_t)b < p->nconst && p->k[b].number)
            mention(w, p->k[b].x, line, true);
        break;
    case LUA_LTI: case LUA_LEI: case LUA_GTI: case LUA_GEI:
        mention(w, b - 127, line, false);
        return;
    case LUA_LOADI: case LUA_LOADF: mention(w, wide, line, false); return;
    case LUA_GETI: mention(w, c, line, false); return;
    case LUA_SETI: case LUA_SETLIST: mention(w, b, line, false); return;
    case LUA_ADDI: mention(w, c - 127, line, false); return;
    case LUA_EQ: case LUA_GETTABLE: case LUA_NOT: case LUA_CONCAT:
    case LUA_TEST: case LUA_TESTSET: break;
    default: return;
    }
    m->asks = true;
    m->letters |= op == LUA_CONCAT;
    m->line = earlier(m->line, line);
    if (op == LUA_EQ || op == LUA_EQK || op == LUA_EQI)
        m->equality = earlier(m->equality, line);
}

/* The line of each instruction is that of the one before and a difference;
 * now and then it is written out. */
static void read_code(Walk *w, const Proto *p)
{
    int line = p->line;
    size_t at = 0;

    for (size_t pc = 0; pc < p->ncode; pc++) {
        const unsigned char *s = p->code + 4 * pc;
        uint32_t i;
        memcpy(&i, s, sizeof i);
        if (pc < p->ndelta && p->delta[pc] != 0x80)
            line += (signed char)p->delta[pc];
        while (at < p->nabs && (size_t)p->abs[2 * at] < pc)
            at++;
        if (at < p->nabs && (size_t)p->abs[2 * at] == pc)
            line = p->abs[2 * at + 1];
        read_instruction(w, p, i, w->own && pc < p->ndelta ? line : 0);
    }
    for (size_t i = 0; i < p->nconst; i++)
        if (p->k[i].number)
            mention(w, p->k[i].x, 0, false);
}

/* A number in letters. */
static void name_number(Walk *w, const char *s)
{
    if (lua_stringtonumber(w->L, s)) {
        mention(w, lua_tonumber(w->L, -1), 0, false);
        lua_pop(w->L, 1);
    }
}

/* A string constant: what is reached may be called so. */
static void name_constant(Walk *w, const char *s, size_t n)
{
    lua_State *L = w->L;

    if (!s)
        return;
    lua_pushlstring(L, s, n);
    s = lua_tostring(L, -1);
    name_number(w, s);
    w->m->letters |= !strcmp(s, "tostring") || !strcmp(s, "format")
                  || !strcmp(s, "type");
    lua_pushvalue(L, -1);
    if (lua_rawget(L, w->names) == LUA_TNIL) {
        lua_pushvalue(L, -2);
        lua_pushboolean(L, 1);
        lua_rawset(L, w->names);
        lua_pushvalue(L, -2);
        lua_rawseti(L, w->names, ++w->nnames);
    }
    lua_pop(L, 2);
}

enum { DUMP_FALSE = 1, DUMP_TRUE = 17, DUMP_INTEGER = 3, DUMP_FLOAT = 19,
       DUMP_SHORT = 4, DUMP_LONG = 20 };

static void take_constants(Walk *w, Bytes *b, Proto *p)
{
    lua_State *L = w->L;
    size_t length;

    p->nconst = take_count(b, 1);
    p->k = lua_newuserdatauv(L, (p->nconst + 1) * sizeof *p->k, 0);
    for (size_t i = 0; b->ok && i < p->nconst; i++) {
        lua_Integer whole;
        lua_Number number;
        const unsigned char *at;
        p->k[i] = (Constant){ false, 0 };
        switch (take_byte(b)) {
        case 0: case DUMP_FALSE: case DUMP_TRUE:
            break;
        case DUMP_INTEGER:
            if ((at = take(b, sizeof whole)) != NULL) {
                memcpy(&whole, at, sizeof whole);
                p->k[i] = (Constant){ true, (double)whole };
            }
            break;
        case DUMP_FLOAT:
            if ((at = take(b, sizeof number)) != NULL) {
                memcpy(&number, at, sizeof number);
                p->k[i] = (Constant){ true, number };
            }
            break;
        case DUMP_SHORT: case DUMP_LONG: {
            const char *s = take_string(b, &length);
            if (b->ok)
                name_constant(w, s, length);
            break;
        }
        default:
            b->ok = false;
        }
    }
}

static void take_lines(Walk *w, Bytes *b, Proto *p)
{
    p->ndelta = take_count(b, 1);
    p->delta = take(b, p->ndelta);
    p->nabs = take_count(b, 2);
    p->abs = lua_newuserdatauv(w->L, (2 * p->nabs + 1) * sizeof *p->abs, 0);
    for (size_t i = 0; i < 2 * p->nabs; i++)
        p->abs[i] = (int)take_size(b);
}

static void take_function(Walk *w, Bytes *b, int depth)
{
    Proto p = { 0 };
    size_t length;
    int top = lua_gettop(w->L);

    luaL_checkstack(w->L, 12, NULL);
    take_string(b, &length);
    p.line = (int)take_size(b);
    take_size(b);
    take(b, 3);
    p.ncode = take_count(b, 4);
    p.code = take(b, 4 * p.ncode);
    take_constants(w, b, &p);
    take(b, 3 * take_count(b, 3));
    size_t inner = take_count(b, 1);
    if (depth > 100)
        b->ok = false;
    for (size_t i = 0; b->ok && i < inner; i++)
        take_function(w, b, depth + 1);
    take_lines(w, b, &p);
    for (size_t n = take_count(b, 1); b->ok && n > 0; n--) {
        take_string(b, &length);
        take_size(b);
        take_size(b);
    }
    for (size_t n = take_count(b, 1); b->ok && n > 0; n--)
        take_string(b, &length);
    if (b->ok)
        read_code(w, &p);
    lua_settop(w->L, top);
}

typedef struct Text { luaL_Buffer b; bool begun; } Text;

static int add_bytes(lua_State *L, const void *p, size_t n, void *ud)
{
    Text *t = ud;

    if (!t->begun)                      /* it pushes: lua_dump has seen the
                                           function by now */
        luaL_buffinit(L, &t->b);
    t->begun = true;
    luaL_addlstring(&t->b, p, n);
    return 0;
}

/* Of the Lua function on top. */
static void read_bytecode(Walk *w)
{
    static const char head[] = "\x1bLua\x54\0\x19\x93\r\n\x1a\n\4\x08\x08";
    enum { FIXED = sizeof head - 1, PROOF = 17 };
    lua_State *L = w->L;
    int top = lua_gettop(L);
    Text text = { .begun = false };
    size_t n;

    if (lua_dump(L, add_bytes, &text, 0) || !text.begun)
        return;
    luaL_pushresult(&text.b);
    const char *s = lua_tolstring(L, -1, &n);
    Bytes b = { (const unsigned char *)s, (const unsigned char *)s + n,
                n > FIXED + PROOF && !memcmp(s, head, FIXED) };
    take(&b, FIXED + PROOF);            /* PROOF: an integer, a number, and
                                           how many upvalues there are */
    if (b.ok)
        take_function(w, &b, 0);
    lua_settop(L, top);
}

/* ---- what a function reaches ---- */

/* Marks what is on top as visited; false: it was, or there is enough. */
static bool first_visit(Walk *w)
{
    lua_State *L = w->L;

    lua_pushvalue(L, -1);
    bool old = lua_rawget(L, w->seen) != LUA_TNIL;
    lua_pop(L, 1);
    if (old || w->walked >= MAX_WALKED)
        return false;
    w->walked++;
    lua_pushvalue(L, -1);
    lua_pushboolean(L, 1);
    lua_rawset(L, w->seen);
    return true;
}

static void walk(Walk *w, int depth);

/* Keys that are numbers, and the ends of those that run from 1 on. */
static void walk_keys(Walk *w, int depth)
{
    lua_State *L = w->L;
    int keys = 0, taken = 0;
    lua_Unsigned length = lua_rawlen(L, -1);

    mention(w, (double)length, 0, false);
    w->m->longest = fmax(w->m->longest, (double)length);
    for (lua_pushnil(L); keys < MAX_KEYS && lua_next(L, -2); lua_pop(L, 1)) {
        bool number = lua_type(L, -2) == LUA_TNUMBER;
        double key = number ? lua_tonumber(L, -2) : 0;
        bool inside = number && key >= 1 && key <= (double)length;
        keys++;
        if (lua_type(L, -2) == LUA_TSTRING)
            name_number(w, lua_tostring(L, -2));
        if ((number && !inside) || (inside && taken < KEYS_TAKEN))
            mention(w, key, 0, false);
        taken += inside;
        if (number && (length <= KEYS_TAKEN || lua_istable(L, -1))
            && taken <= KEYS_TAKEN)
            walk(w, depth + 1);
    }
    if (keys == MAX_KEYS)
        lua_pop(L, 1);
}

/* What the table on top holds under the names that the function knows. */
static void walk_fields(Walk *w, int depth)
{
    lua_State *L = w->L;

    for (int n = 1; n <= w->nnames; n++) {
        lua_rawgeti(L, w->names, n);
        lua_rawget(L, -2);
        walk(w, depth + 1);
        lua_pop(L, 1);
    }
}

/* Fields each time: another function may know other names. */
static void walk_table(Walk *w, int depth)
{
    lua_State *L = w->L;

    if (first_visit(w)) {
        walk_keys(w, depth);
        if (lua_getmetatable(L, -1)) {
            lua_pushliteral(L, "__index");
            lua_rawget(L, -2);
            walk(w, depth + 1);
            lua_pop(L, 2);
        }
    }
    walk_fields(w, depth);
}

/* Names first: upvalues are read by them. */
static void walk_function(Walk *w, int depth)
{
    lua_State *L = w->L;
    lua_Debug ar;
    bool outer = w->own;

    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &ar);
    w->own = !strcmp(ar.source, w->source);
    read_bytecode(w);
    w->own = outer;
    for (int n = 1; lua_getupvalue(L, -1, n); n++) {
        walk(w, depth + 1);
        lua_pop(L, 1);
    }
}

/* What is on top. */
static void walk(Walk *w, int depth)
{
    lua_State *L = w->L;
    int type = lua_type(L, -1);

    if (type == LUA_TNUMBER)
        mention(w, lua_tonumber(L, -1), 0, false);
    if (type == LUA_TSTRING)
        name_number(w, lua_tostring(L, -1));
    if (depth > DEPTH || w->steps++ > MAX_STEPS)
        return;
    luaL_checkstack(L, 12, NULL);
    if (type == LUA_TTABLE && !lua_rawequal(L, -1, w->skip))
        walk_table(w, depth);
    else if (type == LUA_TFUNCTION && !lua_iscfunction(L, -1)
             && first_visit(w))
        walk_function(w, depth);
}

static int by_weight(const void *a, const void *b)
{
    const Mention *x = a, *y = b;

    return y->compared - x->compared;
}

void mentions_of(lua_State *L, int f, Mentions *m)
{
    int top = lua_gettop(L);
    lua_Debug ar;

    *m = (Mentions){ .n = 0 };
    lua_pushvalue(L, f);
    lua_getinfo(L, ">S", &ar);
    lua_newtable(L);
    lua_newtable(L);
    Walk w = { .L = L, .m = m, .seen = top + 1, .names = top + 2,
               .source = ar.source };
    /* flin's own functions are known, and tell nothing from anything */
    lua_getfield(L, LUA_REGISTRYINDEX, "flin.table");
    w.skip = top + 3;
    lua_pushvalue(L, f);
    walk(&w, 0);
    qsort(m->at, (size_t)m->n, sizeof *m->at, by_weight);
    if (m->equality)
        m->line = m->equality;
    lua_settop(L, top);
}
