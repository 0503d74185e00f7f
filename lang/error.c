/* error.c -- errors in one shape: position, message, source line, help. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lang.h"

/* ---- where the user's code is ---- */

static const char *frame_file(const lua_Debug *ar)
{
    bool named = *ar->source == '@' || *ar->source == '=';

    return named ? ar->source + 1 : ar->short_src;
}

/* The innermost Lua function that has a line and is not flin's own. */
static bool user_frame(lua_State *L, lua_Debug *ar)
{
    for (int level = 0; lua_getstack(L, level, ar); level++)
        if (lua_getinfo(L, "Sl", ar) && ar->currentline > 0
            && strncmp(ar->source, "=flin:", 6) != 0)
            return true;
    return false;
}

int current_line(lua_State *L)
{
    lua_Debug ar;

    return user_frame(L, &ar) ? ar.currentline : 0;
}

const char *current_file(lua_State *L)
{
    lua_Debug ar;

    return lua_pushstring(L, user_frame(L, &ar) ? frame_file(&ar) : "");
}

/* The line's text behind its dashes; NULL: it is no comment, or a long one. */
static const char *behind_dashes(const char *s, const char *end)
{
    while (s < end && (*s == ' ' || *s == '\t'))
        s++;
    if (end - s < 2 || s[0] != '-' || s[1] != '-')
        return NULL;
    s += 2;
    if (s < end && (*s == '[' || *s == '-'))
        return NULL;
    return s < end && *s == ' ' ? s + 1 : s;
}

void current_about(lua_State *L)
{
    lua_Debug ar;
    size_t n = 0;
    const char *s = user_frame(L, &ar) ? sandbox_source(L, ar.source, &n)
                                       : NULL;
    const char *end = s ? s + n : NULL;
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    for (bool first = true, more = s && s < end; more; first = false) {
        const char *eol = memchr(s, '\n', (size_t)(end - s));
        const char *stop = eol ? eol : end;
        const char *text = behind_dashes(s, stop);
        bool skipped = first && (*s == '#' || (text
            && !strncmp(text, "flin: ", 6)));
        more = (text || skipped) && eol;
        s = stop + 1;
        if (!text || skipped)
            continue;
        while (stop > text && isspace((unsigned char)stop[-1]))
            stop--;
        if (luaL_bufflen(&b))
            luaL_addchar(&b, '\n');
        luaL_addlstring(&b, text, (size_t)(stop - text));
    }
    luaL_pushresult(&b);
}

/* ---- source lines ---- */

/* Longer lines are not shown. */
enum { SOURCE_MAX = 1 << 20, SHOWN_MAX = 200 };

/* Pushes line `line` of a text. */
static bool push_line(lua_State *L, const char *s, size_t n, int line)
{
    const char *end = s + n;

    while (--line > 0) {
        s = memchr(s, '\n', (size_t)(end - s));
        if (!s)
            return false;
        s++;
    }
    const char *stop = memchr(s, '\n', (size_t)(end - s));
    if (!stop)
        stop = end;
    while (stop > s && isspace((unsigned char)stop[-1]))
        stop--;
    if (stop == s || stop - s > SHOWN_MAX)
        return false;
    lua_pushlstring(L, s, (size_t)(stop - s));
    return true;
}

/* Of a text that sandbox_load has kept, by chunk name. */
static bool kept_line(lua_State *L, const char *file, int line)
{
    size_t n;

    for (const char *sign = "@="; *sign; sign++) {
        const char *name = lua_pushfstring(L, "%c%s", *sign, file);
        const char *text = sandbox_source(L, name, &n);
        lua_pop(L, 1);
        if (text)
            return push_line(L, text, n, line);
    }
    return false;
}

/* A chunk made from a string carries its text as its name. */
static bool string_line(lua_State *L, const char *file, int line)
{
    lua_Debug ar;

    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "S", &ar);
        if (*ar.source != '@' && *ar.source != '=' && *ar.what != 'C'
            && !strcmp(ar.short_src, file))
            return push_line(L, ar.source, strlen(ar.source), line);
    }
    return false;
}

static bool stdlib_line(lua_State *L, const char *file, int line)
{
    char name[64];
    size_t n;

    if (sscanf(file, "stdlib/%63[a-z0-9_].lua", name) != 1)
        return false;
    const char *text = stdlib_source(name, &n);
    return text && push_line(L, text, n, line);
}

static bool file_line(lua_State *L, const char *file, int line)
{
    struct stat st;
    char text[512];
    bool found = false;
    FILE *f;

    if (stat(file, &st) || !S_ISREG(st.st_mode) || st.st_size > SOURCE_MAX
        || !(f = fopen(file, "rb")))
        return false;
    while (fgets(text, sizeof text, f)) {
        if (line == 1)
            found = push_line(L, text, strlen(text), 1);
        if (strchr(text, '\n') && --line == 0)
            break;
    }
    fclose(f);
    return found;
}

bool source_line(lua_State *L, const char *file, int line)
{
    return line > 0 && *file
        && (kept_line(L, file, line) || string_line(L, file, line)
            || stdlib_line(L, file, line) || file_line(L, file, line));
}

/* ---- the text of an error ---- */

/* Where `word` stands in the line as a word of its own, or NULL. */
static const char *find_word(const char *s, const char *word, size_t n)
{
    for (const char *p = s; n && (p = strstr(p, word)) != NULL; p++) {
        bool before = p > s && (isalnum((unsigned char)p[-1]) || p[-1] == '_');
        if (!before && !isalnum((unsigned char)p[n]) && p[n] != '_')
            return p;
    }
    return NULL;
}

/* Length of a call that starts at p: name and arguments, or the name alone
 * when they go on in the next line. */
static size_t call_length(const char *p, size_t name)
{
    const char *s = p + name;
    int depth = 0;

    while (*s == ' ')
        s++;
    for (const char *e = s; *s == '(' && *e; e++) {
        depth += (*e == '(') - (*e == ')');
        if (!depth)
            return (size_t)(e + 1 - p);
    }
    return name;
}

/* The message begins with what it is about ("dot: ..."): underline it. */
static void add_caret(luaL_Buffer *b, const char *line, int number,
                      const char *message)
{
    char word[48];
    size_t n = strcspn(message, ":\n");

    if (message[n] != ':' || n >= sizeof word)
        return;
    memcpy(word, message, n);
    word[n] = 0;
    const char *p = find_word(line, word, n);
    if (!p)
        return;
    char pad[32];
    snprintf(pad, sizeof pad, "%d", number);
    luaL_addstring(b, "\n  ");
    for (size_t i = 0; i < strlen(pad); i++)
        luaL_addchar(b, ' ');
    luaL_addstring(b, " | ");
    for (const char *s = line; s < p; s++)
        luaL_addchar(b, *s == '\t' ? '\t' : ' ');
    for (size_t i = call_length(p, n); i > 0; i--)
        luaL_addchar(b, '^');
}

/* Pushes the whole text. The line of source, when known, is at `source`. */
static void push_text(lua_State *L, const Error *e, int source)
{
    luaL_Buffer b;
    char number[32];
    size_t head = strcspn(e->message, "\n");

    luaL_buffinit(L, &b);
    if (e->line && *e->file) {
        snprintf(number, sizeof number, ":%d: ", e->line);
        luaL_addstring(&b, e->file);
        luaL_addstring(&b, number);
    }
    luaL_addlstring(&b, e->message, head);
    if (source) {
        snprintf(number, sizeof number, "\n  %d | ", e->line);
        luaL_addstring(&b, number);
        luaL_addstring(&b, lua_tostring(L, source));
        add_caret(&b, lua_tostring(L, source), e->line, e->message);
    }
    luaL_addstring(&b, e->message + head);
    if (*e->help) {
        luaL_addstring(&b, "\n  help: ");
        luaL_addstring(&b, e->help);
    }
    luaL_pushresult(&b);
}

/* The error is kept beside its text for hosts that want its parts. */
_Noreturn void lang_raise(lua_State *L, const Error *e)
{
    lua_Debug ar;

    luaL_checkstack(L, 10, NULL);
    Error *kept = lua_newuserdatauv(L, sizeof *kept, 1);
    int at = lua_gettop(L), source = 0;
    *kept = *e;
    if (!kept->line && user_frame(L, &ar)) {
        kept->line = ar.currentline;
        snprintf(kept->file, sizeof kept->file, "%s", frame_file(&ar));
    }
    if (source_line(L, kept->file, kept->line))
        source = lua_gettop(L);
    push_text(L, kept, source);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, at, 1);
    lua_pushvalue(L, at);
    lua_setfield(L, LUA_REGISTRYINDEX, "flin.error");
    lua_error(L);
    abort();                            /* lua_error does not return */
}

static _Noreturn void fail_with(lua_State *L, Error *e, const char *help,
                                const char *fmt, va_list ap)
{
    e->code = ERR_USER;
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    snprintf(e->help, sizeof e->help, "%s", help ? help : "");
    lang_raise(L, e);
}

_Noreturn void lang_fail(lua_State *L, const char *help, const char *fmt, ...)
{
    Error e = { 0 };
    va_list ap;

    va_start(ap, fmt);
    fail_with(L, &e, help, fmt, ap);
}

_Noreturn void lang_no_memory(lua_State *L, const char *fmt, ...)
{
    Error e = { .code = ERR_MEMORY };
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(e.message, sizeof e.message, fmt, ap);
    va_end(ap);
    lang_raise(L, &e);
}

_Noreturn void lang_fail_at(lua_State *L, Place at, const char *help,
                            const char *fmt, ...)
{
    Error e = { .line = at.line };
    va_list ap;

    snprintf(e.file, sizeof e.file, "%s", at.file);
    va_start(ap, fmt);
    fail_with(L, &e, help, fmt, ap);
}

const char *type_text(lua_State *L, int arg)
{
    switch (lua_type(L, arg)) {
    case LUA_TNIL: return "nil";
    case LUA_TNONE: return "nothing";
    case LUA_TBOOLEAN: return "a boolean";
    case LUA_TNUMBER: return "a number";
    case LUA_TSTRING: return "a string";
    case LUA_TTABLE: return "a table";
    case LUA_TFUNCTION: return "a function";
    case LUA_TUSERDATA:
        if (luaL_testudata(L, arg, TENSOR_META))
            return "a tensor";
        if (luaL_testudata(L, arg, VALUE_META))
            return "a value";
        if (luaL_testudata(L, arg, VARIANT_META))
            return "a variant";
        return "userdata";
    default: return "a thread";
    }
}

void *push_owned(lua_State *L, size_t size, const char *meta,
                 lua_CFunction gc)
{
    void *p = memset(lua_newuserdatauv(L, size, 0), 0, size);

    if (luaL_newmetatable(L, meta)) {
        lua_pushcfunction(L, gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return p;
}

const char *quoted_message(lua_State *L, int at)
{
    const char *text = lua_tostring(L, at);
    const char *mark = text ? strstr(text, ": attempt to ") : NULL;

    if (text && !mark)
        mark = strstr(text, ": bad argument #");
    const char *colon = mark;

    while (colon && colon > text && isdigit((unsigned char)colon[-1]))
        colon--;
    if (!mark || strchr(text, '\n') || colon == mark || colon <= text + 1) {
        lua_pushvalue(L, at);
        return text;
    }
    int line = (int)strtol(colon, NULL, 10), top = lua_gettop(L);
    const char *file = lua_pushlstring(L, text, (size_t)(colon - 1 - text));
    if (source_line(L, file, line))
        lua_pushfstring(L, "%s\n  %d | %s", text, line, lua_tostring(L, -1));
    else
        lua_pushvalue(L, at);
    lua_replace(L, top + 1);
    lua_settop(L, top + 1);
    return lua_tostring(L, -1);
}

const char *meant_instead(lua_State *L, int at)
{
    const char *text = lua_tostring(L, at);
    int top = lua_gettop(L);

    if (!text || (!strstr(text, " a nil value (")
                  && !strstr(text, "no field or method")
                  && !strstr(text, "got " VALUE_META ")")))
        return NULL;
    if (strstr(text, "(global 'flin')"))
        return lua_pushliteral(L, "local flin = require \"flin\"");
    if (lua_getfield(L, LUA_REGISTRYINDEX, FLIN_OWN) == LUA_TTABLE
        && lua_getfield(L, -1, "meant") == LUA_TFUNCTION) {
        lua_pushvalue(L, at);
        if (lua_pcall(L, 1, 1, 0) == LUA_OK && lua_isstring(L, -1)) {
            lua_replace(L, top + 1);
            lua_settop(L, top + 1);
            return lua_tostring(L, -1);
        }
    }
    lua_settop(L, top);
    return NULL;
}

const char *shown_text(lua_State *L, int arg)
{
    const char *text = luaL_tolstring(L, arg, NULL);

    return lua_type(L, arg < 0 ? arg - 1 : arg) == LUA_TSTRING
        ? lua_pushfstring(L, "\"%s\"", text) : text;
}

/* ---- names ---- */

enum { NAME = 32 };

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;

    return m < c ? m : c;
}

/* Letters to change, add or take away; case counts nothing. */
static int distance(const char *a, const char *b)
{
    int row[NAME + 1], n = (int)strlen(b);

    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; *a; a++, i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int same = tolower((unsigned char)*a)
                == tolower((unsigned char)b[j - 1]);
            int d = min3(row[j] + 1, row[j - 1] + 1, diagonal + !same);
            diagonal = row[j];
            row[j] = d;
        }
    }
    return row[n];
}

const char *nearest_name(const char *name, const char *const *list, int n)
{
    const char *best = NULL;
    int least = (int)strlen(name) > 3 ? 3 : 2;

    for (int i = 0; i < n; i++) {
        if (strlen(list[i]) > NAME || strlen(name) > NAME)
            continue;
        int d = distance(name, list[i]);
        size_t a = strlen(name), b = strlen(list[i]);
        if (d < least && d < (int)(a < b ? a : b)) {
            least = d;
            best = list[i];
        }
    }
    return best;
}
