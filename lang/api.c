/* api.c -- flin.h over a private Lua state. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "flin.h"
#include "sandbox.h"

enum { INSTRUCTIONS = 1000000000, MEMORY = 1 << 30 };

struct flin_State {
    lua_State *L;
    flin_Options o;
    flin_Variant *variants;
};

/* ref keeps the userdata alive; the texts of axes are v->args[i]'s. */
struct flin_Variant {
    flin_State *s;
    flin_Variant *next;
    Variant *v;
    int ref;
    char (*axes)[TENSOR_RANK * 24];
};

int flin_version(void)
{
    return FLIN_VERSION_NUMBER;
}

/* ---- errors ---- */

static int set_error(flin_Error *e, int code, const char *message)
{
    if (e) {
        memset(e, 0, sizeof *e);
        e->code = code;
        snprintf(e->message, sizeof e->message, "%s", message);
        snprintf(e->text, sizeof e->text, "%s", message);
    }
    return code;
}

/* The parts of a compiler's error; `text` is all of it, or NULL. */
static int take_error(flin_Error *e, const Error *from, const char *text)
{
    int code = from->code == ERR_NONE ? FLIN_ERROR_INTERNAL : from->code;

    if (!e)
        return code;
    memset(e, 0, sizeof *e);
    e->code = code;
    e->line = from->line;
    memcpy(e->file, from->file, sizeof e->file);
    memcpy(e->message, from->message, sizeof e->message);
    memcpy(e->help, from->help, sizeof e->help);
    if (text)
        snprintf(e->text, sizeof e->text, "%s", text);
    else
        snprintf(e->text, sizeof e->text, "%s%s%s", from->message,
                 *from->help ? "\n  help: " : "", from->help);
    return code;
}

/* "FILE:LINE: message" of Lua itself. */
static int parse_error(flin_Error *e, int code, const char *text)
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
    return code;
}

static int lua_code(flin_State *s, int status)
{
    Guard *g = guard_of(s->L);

    if (status == LUA_ERRMEM)
        return FLIN_ERROR_MEMORY;
    if (s->o.interrupted && s->o.interrupted(s->o.interrupted_ud))
        return FLIN_ERROR_INTERRUPT;
    return g && g->left == 0 ? FLIN_ERROR_LIMIT : FLIN_ERROR;
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
    return 0;
}

/* The error value is on top of the stack, and popped. */
static int lua_failed(flin_State *s, int status, flin_Error *e)
{
    lua_State *L = s->L;
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
        set_error(e, f.code, "out of memory");
        lua_pop(L, 1);
    }
    return f.code;
}

/* ---- states ---- */

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

static bool asked(void *ud)
{
    flin_State *s = ud;

    return s->o.interrupted && s->o.interrupted(s->o.interrupted_ud);
}

static int open_state(lua_State *L)
{
    flin_State *s = lua_touserdata(L, 1);
    Limits lim = { s->o.instructions, s->o.memory, s->o.nodes };

    sandbox_open(L, &lim, s->o.trusted != 0);
    sandbox_interrupt(L, asked, s);
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

/* Fields that an older caller does not know stay 0. */
static void read_options(flin_Options *to, const flin_Options *o)
{
    if (o && o->size)
        memcpy(to, o, o->size < sizeof *to ? o->size : sizeof *to);
    if (!to->instructions)
        to->instructions = INSTRUCTIONS;
    if (!to->memory)
        to->memory = MEMORY;
    if (!to->alloc)
        to->alloc = plain_alloc;
}

flin_State *flin_open(const flin_Options *o, flin_Error *e)
{
    flin_State *s = calloc(1, sizeof *s);

    set_error(e, FLIN_OK, "");
    if (s) {
        read_options(&s->o, o);
        s->L = lua_newstate(s->o.alloc, s->o.alloc_ud);
    }
    if (!s || !s->L) {
        free(s);
        set_error(e, FLIN_ERROR_MEMORY, "out of memory");
        return NULL;
    }
    lua_pushcfunction(s->L, open_state);
    lua_pushlightuserdata(s->L, s);
    int status = lua_pcall(s->L, 1, 0, 0);
    if (status != LUA_OK) {
        lua_failed(s, status, e);
        flin_close(s);
        return NULL;
    }
    return s;
}

void flin_close(flin_State *s)
{
    if (!s)
        return;
    while (s->variants)
        flin_release(s->variants);
    lua_close(s->L);
    free(s);
}

/* ---- loading ---- */

/* How to come by a variant, and what came of it. */
typedef struct Load {
    const char *path, *text, *name;     /* one of: file, text + name, name */
    int ref;
    Variant *v;
} Load;

static int load_variant(lua_State *L)
{
    Load *l = lua_touserdata(L, 1);
    int status = LUA_OK;

    if (l->path) {
        status = sandbox_file(L, l->path);
    } else if (l->text) {
        const char *chunk = lua_pushfstring(L, "@%s", l->name);
        status = sandbox_load(L, l->text, strlen(l->text), chunk);
    } else {
        lua_getglobal(L, "require");
        lua_pushliteral(L, "flin");
        lua_call(L, 1, 1);
        lua_getfield(L, -1, "stdlib");
        lua_getfield(L, -1, l->name);
    }
    if (status != LUA_OK)
        return lua_error(L);
    if (l->path || l->text)
        lua_call(L, 0, 1);
    if (!luaL_testudata(L, -1, VARIANT_META))
        lang_fail(L, "end it with: return flin.variant { ... }",
                  "%s: it returns %s, not a variant", l->path ? l->path
                  : l->name, type_text(L, -1));
    l->v = variant_check(L, -1);
    l->ref = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

static void write_axes(char *to, size_t size, const Graph *g, bool timed,
                       const uint8_t *order, int rank)
{
    size_t n = (size_t)snprintf(to, size, "%s", timed ? "t" : "");

    for (int i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, "%s%s", n ? " " : "",
                              g->axis[order[i]].name);
}

/* The handle; NULL when memory is out. */
static flin_Variant *new_handle(flin_State *s, const Load *l)
{
    const Graph *g = l->v->step;
    flin_Variant *v = calloc(1, sizeof *v);
    size_t n = (size_t)(g->nin + 1 + g->nst), i = 0;

    if (!v || !(v->axes = calloc(n, sizeof *v->axes))) {
        free(v);
        return NULL;
    }
    for (int k = 0; k < g->nin; k++)
        write_axes(v->axes[i++], sizeof *v->axes, g, g->in[k].timed,
                   g->in[k].order, g->in[k].rank);
    write_axes(v->axes[i++], sizeof *v->axes, g, true, g->out[0].order,
               g->out[0].rank);
    for (int k = 0; k < g->nst; k++)
        write_axes(v->axes[i++], sizeof *v->axes, g, false, g->st[k].order,
                   g->st[k].rank);
    v->s = s;
    v->v = l->v;
    v->ref = l->ref;
    v->next = s->variants;
    return s->variants = v;
}

static flin_Variant *load(flin_State *s, Load *l, flin_Error *e)
{
    set_error(e, FLIN_OK, "");
    sandbox_renew(s->L);
    lua_pushcfunction(s->L, load_variant);
    lua_pushlightuserdata(s->L, l);
    int status = lua_pcall(s->L, 1, 0, 0);
    if (status != LUA_OK) {
        lua_failed(s, status, e);
        return NULL;
    }
    flin_Variant *v = new_handle(s, l);
    if (!v) {
        luaL_unref(s->L, LUA_REGISTRYINDEX, l->ref);
        set_error(e, FLIN_ERROR_MEMORY, "out of memory");
    }
    return v;
}

flin_Variant *flin_load_file(flin_State *s, const char *path, flin_Error *e)
{
    Load l = { .path = path };

    return load(s, &l, e);
}

flin_Variant *flin_load_string(flin_State *s, const char *text,
                               const char *name, flin_Error *e)
{
    Load l = { .text = text, .name = name ? name : "script" };

    return load(s, &l, e);
}

flin_Variant *flin_stdlib(flin_State *s, const char *name, flin_Error *e)
{
    Load l = { .name = name };

    return load(s, &l, e);
}

void flin_release(flin_Variant *v)
{
    if (!v)
        return;
    for (flin_Variant **p = &v->s->variants; *p; p = &(*p)->next)
        if (*p == v) {
            *p = v->next;
            break;
        }
    luaL_unref(v->s->L, LUA_REGISTRYINDEX, v->ref);
    free(v->axes);
    free(v);
}

/* ---- arguments ---- */

const char *flin_name(const flin_Variant *v)
{
    return v->v->step->name;
}

int flin_args(const flin_Variant *v)
{
    return v->v->step->nin + 1 + v->v->step->nst;
}

int flin_arg(const flin_Variant *v, int i, flin_Arg *a)
{
    const Graph *g = v->v->step;

    if (i < 0 || i >= flin_args(v))
        return 0;
    *a = (flin_Arg){ .axes = v->axes[i], .domain = "normal" };
    if (i < g->nin) {
        a->name = g->in[i].name;
        a->role = FLIN_INPUT;
        if (*g->in[i].domain)
            a->domain = g->in[i].domain;
    } else if (i == g->nin) {
        a->name = "y";
        a->role = FLIN_OUTPUT;
    } else {
        a->name = g->st[i - g->nin - 1].name;
        a->role = FLIN_STATE;
    }
    return 1;
}

const char *flin_note(const flin_Variant *v)
{
    for (const PlanEntry *p = v->v->plans; p; p = p->next)
        if (p->chunk)
            return p->note;
    return NULL;
}

/* ---- calls ---- */

typedef struct Run {
    Variant *v;
    flin_Call call;
    Args args;
    Bound bound;
} Run;

static Given given(Ctx *c, const char *what, const char *name,
                   const flin_Tensor *t)
{
    Given g = { .given = true, .data = t->data, .dtype = (DType)t->dtype,
                .rank = t->rank };
    int64_t step = 1;
    bool packed = true;

    if (t->rank < 0 || t->rank > TENSOR_RANK)
        fail(c, 0, "%s: %s has rank %d: at most %d is possible", what, name,
             t->rank, TENSOR_RANK);
    if (t->dtype < 0 || (int)t->dtype >= NDTYPES)
        fail(c, 0, "%s: %s: there is no dtype %d", what, name, (int)t->dtype);
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0)
            fail(c, 0, "%s: %s has shape %s", what, name,
                 shape_text(c, t->rank, t->shape));
        packed = packed && !t->stride[i];
    }
    memcpy(g.shape, t->shape, sizeof g.shape);
    memcpy(g.stride, t->stride, sizeof g.stride);
    for (int i = t->rank; packed && i-- > 0; step *= t->shape[i])
        g.stride[i] = step;
    return g;
}

static int input_named(const Graph *g, const char *name)
{
    for (int i = 0; i < g->nin; i++)
        if (!strcmp(g->in[i].name, name))
            return i;
    return -1;
}

static int state_named(const Graph *g, const char *name)
{
    for (int i = 0; i < g->nst; i++)
        if (!strcmp(g->st[i].name, name))
            return i;
    return -1;
}

static int bind_name(Ctx *c, const Graph *g, const char *what,
                     const flin_Bind *b, bool input)
{
    const char *name = b->name ? b->name : "(NULL)";
    int i = input ? input_named(g, name) : state_named(g, name);

    if (i < 0)
        fail(c, 0, "%s: there is no %s '%s'", what, input ? "input" : "state",
             name);
    return i;
}

static void take_arguments(Ctx *c, Run *r)
{
    const Graph *g = r->v->step;
    const flin_Call *k = &r->call;
    const char *what = mode_name[r->args.mode];

    for (int i = 0; i < k->ninputs; i++) {
        int at = bind_name(c, g, what, &k->input[i], true);
        if (k->input[i].tensor.data)
            r->args.in[at] = given(c, what, k->input[i].name,
                                   &k->input[i].tensor);
    }
    for (int i = 0; i < k->ninitial; i++) {
        int at = bind_name(c, g, what, &k->initial[i], false);
        if (k->initial[i].tensor.data)
            r->args.state[at] = given(c, what, k->initial[i].name,
                                      &k->initial[i].tensor);
    }
    r->args.cu = k->cu_seqlens;
    r->args.ncu = k->nseq + 1;
    r->args.chunk = k->chunk;
    r->args.threads = k->threads;
    if (k->backend && !(r->args.backend = backend_named(k->backend)))
        fail_help(c, 0, ctx_format(c, "backends here: %s", backend_names()),
                  "%s: there is no backend '%s'", what, k->backend);
}

static void check_result(Ctx *c, const char *what, const char *name,
                         const Given *t, int rank, const int64_t *shape)
{
    if (t->rank != rank
        || memcmp(t->shape, shape, (size_t)rank * sizeof *shape))
        fail(c, 0, "%s: %s has shape %s, but %s is wanted", what, name,
             shape_text(c, t->rank, t->shape), shape_text(c, rank, shape));
}

static void take_results(Ctx *c, Run *r)
{
    const Graph *g = r->v->step;
    const flin_Call *k = &r->call;
    const char *what = mode_name[r->args.mode];
    int64_t shape[TENSOR_RANK];

    if (k->y.data) {
        Given y = given(c, what, "y", &k->y);
        check_result(c, what, "y", &y, result_shape(g, &r->bound, shape),
                     shape);
        r->bound.call.out[0] = result_view(g, &y);
    }
    for (int i = 0; i < k->nfinal; i++) {
        int at = bind_name(c, g, what, &k->final[i], false);
        if (!k->final[i].tensor.data)
            continue;
        Given s = given(c, what, k->final[i].name, &k->final[i].tensor);
        check_result(c, what, k->final[i].name, &s,
                     state_shape(g, &r->bound, at, shape), shape);
        r->bound.call.s1[at] = state_view(g, at, &s);
    }
}

static void do_run(Ctx *c, void *ud)
{
    Run *r = ud;

    take_arguments(c, r);
    bind_call(c, r->v->step, &r->args, &r->bound);
    take_results(c, r);
    run_bound(c, r->v, &r->args, &r->bound);
}

static int run_mode(flin_Variant *v, const flin_Call *call, Mode mode,
                    flin_Error *e)
{
    Run *r = calloc(1, sizeof *r);
    Ctx *c = ctx_like(&guard_of(v->s->L)->like);
    int code = FLIN_OK;

    set_error(e, FLIN_OK, "");
    if (!r || !c) {
        code = set_error(e, FLIN_ERROR_MEMORY, "out of memory");
    } else {
        r->v = v->v;
        r->args.mode = mode;
        memcpy(&r->call, call, call->size < sizeof r->call ? call->size
                                                           : sizeof r->call);
        c->interrupted = asked;         /* a script's budget of instructions */
        c->interrupt_ud = v->s;         /* is not the host's */
        if (!ctx_protect(c, do_run, r))
            code = take_error(e, &c->err, NULL);
    }
    ctx_free(c);
    free(r);
    return code;
}

int flin_forward(flin_Variant *v, const flin_Call *call, flin_Error *e)
{
    return run_mode(v, call, M_FORWARD, e);
}

int flin_reference(flin_Variant *v, const flin_Call *call, flin_Error *e)
{
    return run_mode(v, call, M_REFERENCE, e);
}

int flin_step(flin_Variant *v, const flin_Call *call, flin_Error *e)
{
    return run_mode(v, call, M_STEP, e);
}
