/* api.c -- flin.h: states, over a Lua of their own or of the host; errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

enum { INSTRUCTIONS = 1000000000, MEMORY = 1 << 30 };

int flin_version(void)
{
    return FLIN_VERSION_NUMBER;
}

/* ---- errors ---- */

int set_error(flin_Error *e, int code, const char *message)
{
    if (e) {
        memset(e, 0, sizeof *e);
        e->code = code;
        snprintf(e->message, sizeof e->message, "%s", message);
        snprintf(e->text, sizeof e->text, "%s", message);
    }
    return code;
}

bool not_null(const void *p, const char *what, flin_Error *e)
{
    char s[80];

    if (!p) {
        snprintf(s, sizeof s, "%s is NULL", what);
        set_error(e, FLIN_ERROR, s);
    }
    return p != NULL;
}

/* The parts of a compiler's error; `text` is all of it, or NULL. */
int take_error(flin_Error *e, const Error *from, const char *text)
{
    int code = from->code == ERR_NONE ? FLIN_ERROR_INTERNAL : from->code;
    char place[160] = "";

    if (!e)
        return code;
    memset(e, 0, sizeof *e);
    e->code = code;
    e->line = from->line;
    memcpy(e->file, from->file, sizeof e->file);
    memcpy(e->message, from->message, sizeof e->message);
    memcpy(e->help, from->help, sizeof e->help);
    if (from->line && *from->file)
        snprintf(place, sizeof place, "%s:%d: ", from->file, from->line);
    if (text)
        snprintf(e->text, sizeof e->text, "%s", text);
    else
        snprintf(e->text, sizeof e->text, "%s%s%s%s", place, from->message,
                 *from->help ? "\n  help: " : "", from->help);
    return code;
}

/* "FILE:LINE: message" of Lua itself. */
static void parse_error(flin_Error *e, int code, const char *text)
{
    const char *p = text, *colon;

    set_error(e, code, text);
    while (e && (colon = strchr(p, ':')) != NULL) {
        char *end;
        long line = strtol(colon + 1, &end, 10);
        if (end > colon + 1 && *end == ':' && end[1] == ' ') {
            e->line = (int)line;
            snprintf(e->file, sizeof e->file, "%.*s", (int)(colon - text),
                     text);
            snprintf(e->message, sizeof e->message, "%s", end + 2);
            break;
        }
        p = colon + 1;
    }
}

/* Whether the host wants to stop; ud is a flin_Options. */
static bool host_asked(void *ud)
{
    const flin_Options *o = ud;

    return o->interrupted && o->interrupted(o->interrupted_ud);
}

static int lua_code(flin_State *s, int status)
{
    if (status == LUA_ERRMEM)
        return FLIN_ERROR_MEMORY;
    if (host_asked(&s->o))
        return FLIN_ERROR_INTERRUPT;
    return s->guard && s->guard->left == 0 ? FLIN_ERROR_LIMIT : FLIN_ERROR;
}

/* A failed call's error value, its code, and where its parts go. */
typedef struct Failure { flin_Error *e; int code; } Failure;

/* Takes the error value apart: in a protected call, as strings are made. */
static int read_failure(lua_State *L)
{
    Failure *f = lua_touserdata(L, 2);
    const char *text = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1)
        : "an error that is not a text";

    if (lua_getfield(L, LUA_REGISTRYINDEX, "flin.error") == LUA_TUSERDATA) {
        lua_getiuservalue(L, -1, 1);
        if (lua_rawequal(L, -1, 1)) {
            f->code = take_error(f->e, lua_touserdata(L, -2), text);
            return 0;
        }
    }
    parse_error(f->e, f->code, text);
    if (f->e && lua_type(L, 1) == LUA_TSTRING) {
        const char *help = meant_instead(L, 1);
        snprintf(f->e->help, sizeof f->e->help, "%s", help ? help : "");
        snprintf(f->e->text, sizeof f->e->text, "%s%s%s",
                 quoted_message(L, 1), help ? "\n  help: " : "",
                 help ? help : "");
    }
    return 0;
}

/* The error value is on top of the stack, and popped. */
static int lua_failed(flin_State *s, lua_State *L, int status, flin_Error *e)
{
    Failure f = { e, lua_code(s, status) };

    if (status == LUA_ERRMEM) {
        set_error(e, f.code, "out of memory");
        lua_pop(L, 1);
        return f.code;
    }
    lua_pushcfunction(L, read_failure);
    lua_insert(L, -2);
    lua_pushlightuserdata(L, &f);
    if (lua_pcall(L, 2, 0, 0) != LUA_OK) {
        f.code = set_error(e, FLIN_ERROR_MEMORY, "out of memory");
        lua_pop(L, 1);
    }
    return f.code;
}

bool api_protect(flin_State *s, lua_State *L, lua_CFunction f, int nargs,
                 int nresults, flin_Error *e)
{
    set_error(e, FLIN_OK, "");
    if (!lua_checkstack(L, nargs + nresults + 8)) {
        lua_pop(L, nargs);
        set_error(e, FLIN_ERROR_MEMORY, "out of memory");
        return false;
    }
    lua_pushcfunction(L, f);
    lua_insert(L, -nargs - 1);
    int status = lua_pcall(L, nargs, nresults, 0);
    if (status != LUA_OK)
        lua_failed(s, L, status, e);
    return status == LUA_OK;
}

/* ---- hooks ---- */

/* A script's budget of instructions is not the host's. */
Ctx *host_ctx(flin_State *s)
{
    Ctx *c = ctx_like(&s->guard->like);

    if (c) {
        c->interrupted = host_asked;
        c->interrupt_ud = &s->o;
    }
    return c;
}

static int print_to_log(lua_State *L)
{
    flin_State *s = lua_touserdata(L, lua_upvalueindex(1));
    int n = lua_gettop(L);
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    for (int i = 1; i <= n; i++) {
        if (i > 1)
            luaL_addchar(&b, '\t');
        luaL_tolstring(L, i, NULL);
        luaL_addvalue(&b);
    }
    luaL_pushresult(&b);
    if (s->o.log)
        s->o.log(s->o.log_ud, lua_tostring(L, -1));
    return 0;
}

static Memory host_memory(const flin_Options *o)
{
    return (Memory){ o->alloc, o->alloc_ud };
}

void host_say(void *ud, const char *line)
{
    const flin_State *s = ud;

    if (s->o.warn)
        s->o.warn(s->o.warn_ud, line);
    else if (s->o.log)
        s->o.log(s->o.log_ud, line);
}

static void set_hooks(lua_State *L, flin_State *s)
{
    Ctx like = {
        .mem = host_memory(&s->o),
        .progress = s->o.progress, .progress_ud = s->o.progress_ud,
        .say = s->o.log, .say_ud = s->o.log_ud,
        .parallel = s->o.parallel, .parallel_ud = s->o.parallel_ud
    };

    sandbox_hooks(L, &like);
    if (s->o.warn || s->o.log)
        say_to(L, host_say, s);
    sandbox_interrupt(L, host_asked, &s->o);
    s->guard = guard_of(L);
}

/* ---- states ---- */

static Limits host_limits(const flin_State *s)
{
    return (Limits){ s->o.instructions, s->o.memory, s->o.nodes };
}

static int open_state(lua_State *L)
{
    flin_State *s = lua_touserdata(L, 1);
    Limits lim = host_limits(s);

    sandbox_open(L, &lim, s->o.trusted != 0);
    set_hooks(L, s);
    lua_pushlightuserdata(L, s);
    lua_pushcclosure(L, print_to_log, 1);
    lua_setglobal(L, "print");
    return 0;
}

static void *plain_alloc(void *ud, void *p, size_t old, size_t size)
{
    (void)ud;
    (void)old;
    if (size)
        return realloc(p, size);
    free(p);
    return NULL;
}

bool take_struct(void *to, size_t size, const void *from)
{
    size_t has;

    if (!from)
        return true;
    memcpy(&has, from, sizeof has);
    memcpy(to, &has, sizeof has);
    if (has < sizeof has || has % sizeof has)
        return has == 0;                /* it would end within a pointer */
    memcpy(to, from, has < size ? has : size);
    return true;
}

static flin_State *new_state(const flin_Options *o, flin_Error *e)
{
    flin_Options known = { 0 };
    flin_State *s;

    set_error(e, FLIN_OK, "");
    if (!take_struct(&known, sizeof known, o)) {
        set_error(e, FLIN_ERROR, "the size of the flin_Options is not sizeof "
                  "(flin_Options)");
        return NULL;
    }
    if (!known.instructions)
        known.instructions = INSTRUCTIONS;
    if (!known.memory)
        known.memory = MEMORY;
    Memory mem = host_memory(&known);
    s = mem_new(&mem, sizeof *s);
    if (s)
        s->o = known;
    else
        set_error(e, FLIN_ERROR_MEMORY, "out of memory");
    return s;
}

static void free_state(flin_State *s)
{
    Memory mem = host_memory(&s->o);

    mem_free(&mem, s, sizeof *s);
}

flin_State *flin_open(const flin_Options *o, flin_Error *e)
{
    flin_State *s = new_state(o, e);

    if (!s)
        return NULL;
    s->L = lua_newstate(s->o.alloc ? s->o.alloc : plain_alloc, s->o.alloc_ud);
    if (!s->L) {
        free_state(s);
        set_error(e, FLIN_ERROR_MEMORY, "out of memory");
        return NULL;
    }
    lua_pushlightuserdata(s->L, s);
    if (!api_protect(s, s->L, open_state, 1, 0, e)) {
        flin_close(s);
        return NULL;
    }
    return s;
}

static int attach_state(lua_State *L)
{
    flin_State *s = lua_touserdata(L, 1);
    Limits lim = host_limits(s);

    luaL_checkversion(L);
    lua_State *thread = lua_newthread(L);
    int ref = luaL_ref(L, LUA_REGISTRYINDEX);
    luaL_requiref(L, "flin", luaopen_flin, 0);
    if (!sandbox_attach(L, &lim)) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        return luaL_error(L, "this Lua has a flin_State already");
    }
    s->attached = true;
    s->L = thread;
    s->thread = ref;
    set_hooks(L, s);
    return 0;
}

/* In a protected call: Lua may want memory even for this. */
static int detach_state(lua_State *L)
{
    flin_State *s = lua_touserdata(L, 1);

    luaL_unref(L, LUA_REGISTRYINDEX, s->thread);
    say_to(L, NULL, NULL);
    sandbox_detach(L);
    return 0;
}

flin_State *flin_attach(lua_State *L, const flin_Options *o, flin_Error *e)
{
    flin_State *s = not_null(L, "the lua_State", e) ? new_state(o, e) : NULL;

    if (!s)
        return NULL;
    if (lua_checkstack(L, 4)) {
        lua_pushlightuserdata(L, s);
        if (api_protect(s, L, attach_state, 1, 0, e))
            return s;
    } else {
        set_error(e, FLIN_ERROR_MEMORY, "out of memory");
    }
    free_state(s);
    return NULL;
}

void flin_release(flin_Variant *v)
{
    flin_State *s;

    if (!v)
        return;
    s = v->s;
    for (flin_Variant **p = &s->variants; *p; p = &(*p)->next)
        if (*p == v) {
            *p = v->next;
            break;
        }
    luaL_unref(s->L, LUA_REGISTRYINDEX, v->said);
    luaL_unref(s->L, LUA_REGISTRYINDEX, v->ref);
    mem_free(&s->guard->like.mem, v, handle_size(v->nargs));
}

void flin_close(flin_State *s)
{
    if (!s)
        return;
    while (s->variants)
        flin_release(s->variants);
    if (s->attached) {
        lua_pushlightuserdata(s->L, s);
        api_protect(s, s->L, detach_state, 1, 0, NULL);
    } else {
        lua_close(s->L);
    }
    free_state(s);
}
