/* files_safetensors.c -- .safetensors: eight bytes of header length, a header
 * in JSON ({"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
 * "__metadata__": {"key": "text"}}), then the numbers.
 *
 * https://github.com/huggingface/safetensors#format
 */
#include <stdlib.h>
#include <string.h>

#include "files.h"

static const char *const dtype_word[NDTYPES] = {
    [F32] = "F32", [BF16] = "BF16", [F16] = "F16", [F64] = "F64",
    [I32] = "I32", [I64] = "I64"
};

typedef struct Entry {
    DType dtype;
    int rank;
    int64_t shape[TENSOR_RANK], from, to;
    int seen;                           /* a bit for each of the three keys */
    const char *name;                   /* for messages */
    int place;                          /* in the list of names */
} Entry;

/* Where on the stack: a list of names; the tensors by name; metadata or nil. */
typedef struct Parts { int names, result, metadata; } Parts;

/* ---- JSON, as much as the format has ---- */

static unsigned hex4(lua_State *L, Scan *t)
{
    unsigned x = 0;

    for (int k = 0; k < 4; k++, t->s++) {
        const char *digits = "0123456789abcdef", *d;
        if (t->s == t->end || !*t->s || !(d = strchr(digits, *t->s | 32)))
            file_fault(L, t->file, "a bad \\u in the header");
        x = x * 16 + (unsigned)(d - digits);
    }
    return x;
}

static void add_utf8(luaL_Buffer *b, unsigned x)
{
    if (x < 0x80) {
        luaL_addchar(b, (char)x);
    } else if (x < 0x800) {
        luaL_addchar(b, (char)(0xc0 | x >> 6));
        luaL_addchar(b, (char)(0x80 | (x & 63)));
    } else if (x < 0x10000) {
        luaL_addchar(b, (char)(0xe0 | x >> 12));
        luaL_addchar(b, (char)(0x80 | (x >> 6 & 63)));
        luaL_addchar(b, (char)(0x80 | (x & 63)));
    } else {
        luaL_addchar(b, (char)(0xf0 | x >> 18));
        luaL_addchar(b, (char)(0x80 | (x >> 12 & 63)));
        luaL_addchar(b, (char)(0x80 | (x >> 6 & 63)));
        luaL_addchar(b, (char)(0x80 | (x & 63)));
    }
}

static void add_escape(lua_State *L, Scan *t, luaL_Buffer *b)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = t->s < t->end ? *t->s++ : 0;
    const char *p = c ? strchr(from, c) : NULL;
    unsigned x;

    if (p) {
        luaL_addchar(b, to[p - from]);
        return;
    }
    if (c != 'u')
        file_fault(L, t->file, "a bad escape in the header");
    x = hex4(L, t);
    if (x >= 0xd800 && x < 0xdc00 && t->end - t->s >= 6 && t->s[0] == '\\'
        && t->s[1] == 'u') {
        t->s += 2;
        x = 0x10000 + ((x & 0x3ff) << 10 | (hex4(L, t) & 0x3ff));
    }
    add_utf8(b, x);
}

/* Pushes the string. */
static const char *string(lua_State *L, Scan *t)
{
    luaL_Buffer b;

    scan_want(L, t, '"');
    luaL_buffinit(L, &b);
    while (t->s < t->end && *t->s != '"') {
        char c = *t->s++;
        if ((unsigned char)c < 32)
            file_fault(L, t->file, "a control character in the header");
        if (c == '\\')
            add_escape(L, t, &b);
        else
            luaL_addchar(&b, c);
    }
    luaL_pushresult(&b);
    if (t->s == t->end)
        file_fault(L, t->file, "the header ends within a string");
    t->s++;
    return lua_tostring(L, -1);
}

/* [1, 2, ...] of at most `max` numbers; returns how many. */
static int integers(lua_State *L, Scan *t, int64_t *x, int max)
{
    int n = 0;

    scan_want(L, t, '[');
    if (scan_take(t, ']'))
        return 0;
    do {
        if (n == max)
            file_fault(L, t->file, "more than %d numbers in a list", max);
        x[n++] = scan_integer(L, t);
    } while (scan_take(t, ','));
    scan_want(L, t, ']');
    return n;
}

/* ---- the header ---- */

static void entry_field(lua_State *L, Scan *t, const char *name, Entry *e)
{
    const char *key = string(L, t);
    int bit = strcmp(key, "dtype") == 0 ? 1 : strcmp(key, "shape") == 0 ? 2
              : strcmp(key, "data_offsets") == 0 ? 4 : 0;
    int64_t x[2];

    if (!bit || e->seen & bit)
        file_fault(L, t->file, "%.60s has '%.60s', unknown or twice", name,
                   key);
    e->seen |= bit;
    scan_want(L, t, ':');
    if (bit == 1) {
        const char *s = string(L, t);
        int d = 0;
        while (d < NDTYPES && strcmp(s, dtype_word[d]) != 0)
            d++;
        if (d == NDTYPES)
            file_fault(L, t->file, "%.60s has dtype '%.24s'; flin reads F16, "
                       "BF16, F32, F64, I32 and I64", name, s);
        e->dtype = (DType)d;
    } else if (bit == 2) {
        e->rank = integers(L, t, e->shape, TENSOR_RANK);
    } else {
        if (integers(L, t, x, 2) != 2 || x[0] > x[1])
            file_fault(L, t->file, "%.60s has data_offsets that do not "
                       "ascend", name);
        e->from = x[0];
        e->to = x[1];
    }
}

static Entry parse_entry(lua_State *L, Scan *t, const char *name)
{
    Entry e = { .name = name };
    int top = lua_gettop(L);

    scan_want(L, t, '{');
    if (!scan_take(t, '}')) {
        do {
            entry_field(L, t, name, &e);
            lua_settop(L, top);
        } while (scan_take(t, ','));
        scan_want(L, t, '}');
    }
    if (e.seen != 7)
        file_fault(L, t->file, "%.60s lacks dtype, shape or data_offsets",
                   name);
    return e;
}

static int by_offset(const void *a, const void *b)
{
    const Entry *x = a, *y = b;

    if (x->from != y->from)
        return (x->from > y->from) - (x->from < y->from);
    return (x->to > y->to) - (x->to < y->to);
}

/* The tensors must follow each other from the first byte to the last: what is
 * shared, or nobody's, is not what was meant. Sorts them. */
static void check_offsets(lua_State *L, const File *f, Entry *e, int n,
                          int64_t bytes)
{
    int64_t at = 0;

    qsort(e, (size_t)n, sizeof *e, by_offset);
    for (int i = 0; i < n; at = e[i++].to) {
        if (e[i].from < at)
            file_fault(L, f, "tensors '%.60s' and '%.60s' overlap: one begins "
                       "at byte %lld, the other ends at %lld", e[i - 1].name,
                       e[i].name, (long long)e[i].from, (long long)at);
        if (e[i].from > at)
            file_fault(L, f, "bytes %lld to %lld, before tensor '%.60s', are "
                       "no tensor's", (long long)at, (long long)e[i].from,
                       e[i].name);
    }
    if (at > bytes)
        file_fault(L, f, "cut short: tensor '%.60s' ends at byte %lld, but "
                   "there are %lld", e[n - 1].name, (long long)at,
                   (long long)bytes);
    if (at < bytes)
        file_fault(L, f, "bytes %lld to %lld, behind the last tensor, are no "
                   "tensor's", (long long)at, (long long)bytes);
}

/* Pushes the tensor. */
static void load_entry(lua_State *L, File *f, const Entry *e, int64_t data)
{
    lua_pushfstring(L, "tensor '%s'", e->name);
    file_tensor(L, f, lua_tostring(L, -1), e->dtype, e->rank, e->shape,
                data + e->from, e->to - e->from);
    lua_remove(L, -2);
}

/* Pushes the table of strings. */
static void load_metadata(lua_State *L, Scan *t)
{
    lua_newtable(L);
    scan_want(L, t, '{');
    if (scan_take(t, '}'))
        return;
    do {
        string(L, t);
        scan_want(L, t, ':');
        string(L, t);
        lua_rawset(L, -3);
    } while (scan_take(t, ','));
    scan_want(L, t, '}');
}

/* The header's text is pushed and must stay on the stack. */
static Scan open_header(lua_State *L, File *f, int64_t *data)
{
    unsigned char b[8];
    uint64_t len = 0;
    char *s;

    if (f->size < 10)
        file_fault(L, f, "is neither .npy nor .safetensors");
    file_read(L, f, 0, b, 8);
    for (int k = 8; k-- > 0; )
        len = len << 8 | b[k];
    if (len > 100000000 || len > (uint64_t)f->size - 8)
        file_fault(L, f, "is neither .npy nor .safetensors (a header of "
                   "%llu bytes)", (unsigned long long)len);
    s = lua_newuserdatauv(L, len + 1, 0);
    file_read(L, f, 8, s, len);
    *data = 8 + (int64_t)len;
    return (Scan){ f, s, s + len };
}

/* Notes the name on top in the list of names and as a key of the result, which
 * keeps it. */
static void note_name(lua_State *L, const Scan *t, const Parts *at, int n)
{
    lua_pushvalue(L, -1);
    if (lua_rawget(L, at->result) != LUA_TNIL)
        file_fault(L, t->file, "tensor '%.60s' is there twice",
                   lua_tostring(L, -2));
    lua_pop(L, 1);
    lua_pushvalue(L, -1);
    lua_rawseti(L, at->names, n);
    lua_pushvalue(L, -1);
    lua_pushboolean(L, true);
    lua_rawset(L, at->result);
}

/* The header's tensors, n of them, in a block that is pushed. */
static Entry *parse_header(lua_State *L, Scan *t, const Parts *at, int *n)
{
    Entry *e = lua_newuserdatauv(L, 0, 0);
    int top = lua_gettop(L), room = 0;

    *n = 0;
    scan_want(L, t, '{');
    if (scan_take(t, '}'))
        return e;
    do {
        const char *name = string(L, t);
        scan_want(L, t, ':');
        if (strcmp(name, "__metadata__") == 0) {
            if (!lua_isnil(L, at->metadata))
                file_fault(L, t->file, "__metadata__ is there twice");
            load_metadata(L, t);
            lua_replace(L, at->metadata);
            lua_settop(L, top);
            continue;
        }
        note_name(L, t, at, *n + 1);
        if (*n == room) {
            room = 2 * room + 16;
            Entry *more = lua_newuserdatauv(L, (size_t)room * sizeof *e, 0);
            e = memcpy(more, e, (size_t)*n * sizeof *e);
            lua_replace(L, top);
        }
        e[*n] = parse_entry(L, t, name);
        e[*n].place = *n + 1;
        ++*n;
        lua_settop(L, top);
    } while (scan_take(t, ','));
    scan_want(L, t, '}');
    return e;
}

void safetensors_load(lua_State *L, File *f)
{
    int64_t data;
    Scan t = open_header(L, f, &data);
    int top = lua_gettop(L), n;
    const Parts at = { top + 1, top + 2, top + 3 };

    lua_newtable(L);
    lua_newtable(L);
    lua_pushnil(L);                     /* metadata, if any comes */
    Entry *e = parse_header(L, &t, &at, &n);
    while (t.s < t.end && *t.s == ' ')
        t.s++;
    if (t.s != t.end)
        file_fault(L, f, "text follows the header's end");
    check_offsets(L, f, e, n, f->size - data);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, at.names, e[i].place);
        load_entry(L, f, &e[i], data);
        lua_rawset(L, at.result);
    }
    lua_settop(L, at.metadata);
}

/* ---- save ---- */

static void add_quoted(luaL_Buffer *b, const char *s, size_t n)
{
    luaL_addchar(b, '"');
    for (size_t k = 0; k < n; k++) {
        char u[8];
        if ((unsigned char)s[k] < 32) {
            luaL_addlstring(b, u, (size_t)sprintf(u, "\\u%04x", s[k]));
            continue;
        }
        if (s[k] == '"' || s[k] == '\\')
            luaL_addchar(b, '\\');
        luaL_addchar(b, s[k]);
    }
    luaL_addchar(b, '"');
}

/* Pushes a table of the names in `arg`, sorted. */
static int sorted_names(lua_State *L, File *f, int arg)
{
    int n = 0;

    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING || !tensor_test(L, -1))
            file_fault(L, f, "the table to save has a %s by a %s; it takes "
                       "tensors by name", luaL_typename(L, -1),
                       luaL_typename(L, -2));
        lua_pushvalue(L, -2);
        lua_rawseti(L, -4, ++n);
    }
    for (int i = 2; i <= n; i++)        /* insertion: the lists are short */
        for (int j = i; j > 1; j--) {
            lua_rawgeti(L, -1, j - 1);
            lua_rawgeti(L, -2, j);
            if (!lua_compare(L, -1, -2, LUA_OPLT)) {
                lua_pop(L, 2);
                break;
            }
            lua_rawseti(L, -3, j - 1);
            lua_rawseti(L, -2, j);
        }
    return n;
}

static const Tensor *named(lua_State *L, int arg, int names, int i)
{
    lua_rawgeti(L, names, i);
    lua_pushvalue(L, -1);
    lua_rawget(L, arg);
    return tensor_check(L, -1);         /* the name lies below it */
}

static void header_entry(lua_State *L, const Tensor *t, const char *name,
                         size_t n, int64_t *at, bool first)
{
    luaL_Buffer b;
    char s[96];
    int64_t bytes = tensor_count(t) * dtype_size(t->dtype);

    luaL_buffinit(L, &b);
    luaL_addstring(&b, first ? "" : ",");
    add_quoted(&b, name, n);
    sprintf(s, ":{\"dtype\":\"%s\",\"shape\":[", dtype_word[t->dtype]);
    luaL_addstring(&b, s);
    for (int k = 0; k < t->rank; k++) {
        sprintf(s, "%s%lld", k ? "," : "", (long long)t->shape[k]);
        luaL_addstring(&b, s);
    }
    sprintf(s, "],\"data_offsets\":[%lld,%lld]}", (long long)*at,
            (long long)(*at + bytes));
    luaL_addstring(&b, s);
    luaL_pushresult(&b);
    *at += bytes;
}

/* Pushes the header, padded so that the numbers start at a multiple of 8. */
static const char *header_text(lua_State *L, int arg, int names, int n,
                               size_t *len)
{
    int64_t at = 0;

    lua_pushliteral(L, "{");
    for (int i = 1; i <= n; i++) {
        const Tensor *t = named(L, arg, names, i);
        size_t chars;
        const char *s = lua_tolstring(L, -2, &chars);
        header_entry(L, t, s, chars, &at, i == 1);
        lua_replace(L, -3);
        lua_pop(L, 1);
        lua_concat(L, 2);
    }
    lua_pushliteral(L, "}");
    lua_concat(L, 2);
    lua_pushlstring(L, "        ", (8 - lua_rawlen(L, -1) % 8) % 8);
    lua_concat(L, 2);
    return lua_tolstring(L, -1, len);
}

void safetensors_save(lua_State *L, File *f, int arg)
{
    int n = sorted_names(L, f, arg), names = lua_gettop(L);
    size_t len;
    const char *head = header_text(L, arg, names, n, &len);
    unsigned char b[8];

    for (int k = 0; k < 8; k++)
        b[k] = (unsigned char)((uint64_t)len >> 8 * k);
    file_write(L, f, b, 8);
    file_write(L, f, head, len);
    for (int i = 1; i <= n; i++) {
        const Tensor *t = named(L, arg, names, i);
        if (!tensor_contiguous(t))
            t = tensor_copy(L, t, t->dtype);
        file_write(L, f, tensor_data(t),
                   (size_t)(tensor_count(t) * dtype_size(t->dtype)));
        lua_settop(L, names + 1);
    }
}
