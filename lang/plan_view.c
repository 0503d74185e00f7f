/* plan_view.c -- v:plan: the kernels that a machine would run, and what each
 * of them moves, as a table, as text or drawn.
 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "../compiler/cost.h"
#include "../compiler/grad.h"
#include "bind.h"
#include "plan_view.h"

#define PLAN_META "flin.plan"

enum { USUAL_SIZE = 64 };

/* ---- making one ---- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_shown(const Graph *g, const Plan *p, Ref r)
{
    if (g->n[r].op == OP_state || node_is_leaf(&g->n[r]))
        return false;
    for (int i = 0; i < g->nout; i++)
        if (g->out[i].node == r)
            return true;
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].next == r)
            return true;
    return p->stored[r] || node_is_product(g, &g->n[r]);
}

/* What each kernel computes and, of that, reads from memory. */
static void find_sets(PlanView *w)
{
    const Plan *p = w->p;
    const Graph *g = p->g;
    size_t n = (size_t)p->nkernels + 1;

    w->shown = ctx_alloc(w->ctx, g->len);
    w->has = ctx_alloc(w->ctx, n * sizeof *w->has);
    w->loads = ctx_alloc(w->ctx, n * sizeof *w->loads);
    for (Ref r = 1; r < g->len; r++)
        w->shown[r] = is_shown(g, p, r);
    for (int k = 0; k < p->nkernels; k++) {
        const Kernel *kernel = &p->kernel[k];
        w->has[k] = ctx_alloc(w->ctx, g->len);
        w->loads[k] = ctx_alloc(w->ctx, g->len);
        for (int i = 0; i < kernel->nnodes; i++)
            w->has[k][kernel->node[i]] = 1;
        for (int i = 0; i < kernel->nnodes; i++) {
            Ref r = kernel->node[i];
            if (g->n[r].op == OP_input)
                w->loads[k][r] = 1;
            for (int a = 0; a < 4; a++)
                if (g->n[r].a[a] && !w->has[k][g->n[r].a[a]])
                    w->loads[k][g->n[r].a[a]] = 1;
        }
    }
}

static void serial_plan(PlanView *w, const char *note)
{
    Graph *g = graph_sized(w->v->step, w->size);

    w->note = note;
    w->chunk = 1;
    w->p = plan_simple(w->backward ? grad(g) : g);
    memset(&w->info, 0, sizeof w->info);
    for (int i = 0; i < w->p->nkernels; i++)
        w->info.bytes += w->p->kernel[i].bytes;
}

/* A plan with chunks of this size; `note` says why there is no chunk form. */
typedef struct Attempt {
    PlanView *w;
    int chunk;
    Effort effort;
    const char *note;
} Attempt;

static void attempt(Ctx *c, void *ud)
{
    Attempt *a = ud;
    PlanView *w = a->w;
    Graph *g = derive(w->v->step, w->size, a->chunk);

    if (!g) {
        a->note = ctx_string(c, w->v->step->note ? w->v->step->note : "");
        return;
    }
    w->p = partition(w->backward ? grad(g) : g, w->m, a->effort, &w->info);
    w->chunk = a->chunk;
}

/* Of the chunk sizes to try, the one that is predicted to be fastest; 0 if
 * none will do. */
static int choose_chunk(PlanView *w, Attempt *a)
{
    static const int sizes[] = { 64, 32, 16 };
    Ctx *c = w->v->ctx;
    double least = INFINITY;
    int best = 0;

    for (int i = 0; i < 3 && !a->note; i++) {
        a->chunk = sizes[i];
        if (!ctx_protect(c, attempt, a)) {
            if (c->err.code != ERR_USER)
                ctx_rethrow(c);
            continue;
        }
        if (w->info.seconds / a->chunk >= least)
            continue;
        least = w->info.seconds / a->chunk;
        best = a->chunk;
    }
    return best;
}

static void make_plan(PlanView *w)
{
    Attempt a = { .w = w, .chunk = w->chunk, .effort = QUICK };

    if (!a.chunk && w->m == &machine_cpu)
        a.chunk = CHUNK_DEFAULT;        /* as calls do */
    else if (!a.chunk)
        a.chunk = choose_chunk(w, &a);
    if (!a.chunk)
        ctx_rethrow(w->v->ctx);
    a.effort = FULL;
    if (!a.note)
        attempt(w->v->ctx, &a);
    if (a.note)
        serial_plan(w, a.note);
}

void plan_view(Ctx *c, void *ud)
{
    PlanView *w = ud;
    double start = now();

    w->ctx = c;
    make_plan(w);
    w->seconds = now() - start;
    find_sets(w);
}

/* ---- what is said of it ---- */

const char *kernel_kind(const Kernel *k)
{
    return k->kind == K_FORWARD ? "forward" : k->kind == K_REVERSE ? "reverse"
                                                                   : "token";
}

const char *node_label(const PlanView *w, Ref r)
{
    const Graph *g = w->p->g;
    Buf b = { .ctx = w->ctx };

    for (int i = 0; i < g->nout; i++)
        if (g->out[i].node == r)
            buf_printf(&b, "%s = ", g->out[i].name);
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].next == r)
            buf_printf(&b, "next %s = ", g->st[i].name);
    buf_printf(&b, "%s", expr_text(g, r));
    return b.s;
}

/* Kernel k reads r from memory: an argument, a state or what is stored. */
static bool reads(const PlanView *w, int k, Ref r)
{
    int op = w->p->g->n[r].op;

    return w->loads[k][r] && (op == OP_input || op == OP_state
                              || !node_is_leaf(&w->p->g->n[r]));
}

double kernel_reads(const PlanView *w, int k)
{
    const Graph *g = w->p->g;
    double bytes = 0;

    for (Ref r = 1; r < g->len; r++)
        if (reads(w, k, r))
            bytes += tile_bytes(g, w->m, r);
    return bytes / w->chunk;
}

/* The last kernel that reads what is stored. */
static int last_reader(const PlanView *w, Ref r)
{
    int last = -1;

    for (int k = 0; k < w->p->nkernels; k++)
        if (w->loads[k][r])
            last = k;
    return last;
}

static int first_maker(const PlanView *w, Ref r)
{
    for (int k = 0; k < w->p->nkernels; k++)
        if (w->has[k][r])
            return k;
    return w->p->nkernels;
}

/* The most that is kept between kernels at one time, a token and head. */
static double peak_bytes(const PlanView *w)
{
    double most = 0;

    for (int k = 0; k < w->p->nkernels; k++) {
        double bytes = 0;
        for (Ref r = 1; r < w->p->g->len; r++)
            if (w->p->stored[r] && first_maker(w, r) <= k
                && last_reader(w, r) >= k)
                bytes += tile_bytes(w->p->g, w->m, r);
        most = bytes > most ? bytes : most;
    }
    return most / w->chunk;
}

static const char *solver_name(const PlanView *w)
{
    static const char *const name[] = { "none", "greedy", "dp", "glpk" };

    return name[w->info.answer.solver];
}

static bool recomputed(const PlanView *w, int k, Ref r)
{
    return w->has[k][r] && w->shown[r] && first_maker(w, r) < k;
}

static void text_nodes(const PlanView *w, int k, Buf *out)
{
    const Graph *g = w->p->g;

    for (Ref r = 1; r < g->len; r++) {
        bool kept = w->p->stored[r] && first_maker(w, r) == k;
        if (!w->has[k][r] || !(w->shown[r] || kept))
            continue;
        buf_printf(out, "    %s", node_label(w, r));
        if (g->n[r].line)
            buf_printf(out, "  @%d", (int)g->n[r].line);
        buf_printf(out, "  [%s]%s%s\n", axes_text(g, g->n[r].axes),
                   kept ? "  stored" : "",
                   recomputed(w, k, r) ? "  recomputed" : "");
    }
}

static const char *gap_text(const PlanView *w)
{
    double gap = answer_gap(&w->info.answer);

    if (w->info.answer.optimal)
        return "proved best of its columns";
    if (gap < 0)
        return "not proved best, gap unknown";
    return ctx_format(w->ctx, "at most %.2g %% dearer than the best of its "
                      "columns", 100 * gap);
}

void plan_text(const PlanView *w, Buf *out)
{
    const Graph *g = w->p->g;

    buf_printf(out, "%s on %s: %s, chunk %d\n", g->name, w->m->name,
               w->backward ? "forward and backward" : "forward", w->chunk);
    if (w->note)
        buf_printf(out, "token by token: %s\n", w->note);
    buf_printf(out, "%.0f bytes a token and head", w->info.bytes / w->chunk);
    if (!w->note)
        buf_printf(out, "; %.0f with a kernel for each product (%.2f)",
                   w->info.unfused_bytes / w->chunk,
                   w->info.bytes / w->info.unfused_bytes);
    buf_printf(out, "\n%.0f bytes kept between kernels at most\n",
               peak_bytes(w));
    if (!w->note)
        buf_printf(out, "%s: %s, %d columns, %.2f s; predicted %.2f ns a "
                   "token and head\n", solver_name(w), gap_text(w),
                   w->info.ncolumns, w->seconds,
                   1e9 * w->info.seconds / w->chunk);
    for (int k = 0; k < w->p->nkernels; k++) {
        const Kernel *kernel = &w->p->kernel[k];
        double in = kernel_reads(w, k), all = kernel->bytes / w->chunk;
        buf_printf(out, "\nkernel %d: %s (%s), %.0f bytes in, %.0f out, "
                   "%.0f flops\n  reads", k + 1, kernel->name,
                   kernel_kind(kernel), in, all > in ? all - in : 0,
                   kernel->flops / w->chunk);
        for (Ref r = 1; r < g->len; r++)
            if (reads(w, k, r))
                buf_printf(out, " %s;", expr_text(g, r));
        buf_printf(out, "\n");
        text_nodes(w, k, out);
    }
}

/* ---- the table ---- */

static void set_number(lua_State *L, const char *name, double x)
{
    lua_pushnumber(L, x);
    lua_setfield(L, -2, name);
}

static void set_text(lua_State *L, const char *name, const char *s)
{
    lua_pushstring(L, s);
    lua_setfield(L, -2, name);
}

/* Pushes the list of the kernel's nodes; of those it recomputes. */
static void push_nodes(lua_State *L, const PlanView *w, int k, bool again)
{
    int n = 0;

    lua_newtable(L);
    for (Ref r = 1; r < w->p->g->len; r++) {
        if (!w->has[k][r] || !w->shown[r] || (again && !recomputed(w, k, r)))
            continue;
        lua_pushstring(L, node_label(w, r));
        lua_rawseti(L, -2, ++n);
    }
}

static void push_kernel(lua_State *L, const PlanView *w, int k)
{
    const Kernel *kernel = &w->p->kernel[k];

    lua_newtable(L);
    set_text(L, "name", kernel->name);
    set_text(L, "kind", kernel_kind(kernel));
    set_number(L, "bytes", kernel->bytes / w->chunk);
    set_number(L, "reads", kernel_reads(w, k));
    set_number(L, "flops", kernel->flops / w->chunk);
    push_nodes(L, w, k, false);
    lua_setfield(L, -2, "nodes");
    push_nodes(L, w, k, true);
    lua_setfield(L, -2, "recomputed");
}

static int plan_tostring(lua_State *L)
{
    lua_getfield(L, 1, "text");
    return 1;
}

static void push_stored(lua_State *L, const PlanView *w)
{
    int n = 0;

    lua_newtable(L);
    for (Ref r = 1; r < w->p->g->len; r++)
        if (w->p->stored[r]) {
            lua_pushstring(L, expr_text(w->p->g, r));
            lua_rawseti(L, -2, ++n);
        }
}

static void push_table(lua_State *L, PlanView *w)
{
    Buf text = { .ctx = w->ctx };

    plan_text(w, &text);
    lua_newtable(L);
    lua_newtable(L);
    for (int k = 0; k < w->p->nkernels; k++) {
        push_kernel(L, w, k);
        lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "kernels");
    push_stored(L, w);
    lua_setfield(L, -2, "stored");
    lua_pushlstring(L, text.s, text.len);
    lua_setfield(L, -2, "text");
    lua_pushinteger(L, w->chunk);
    lua_setfield(L, -2, "chunk");
    set_text(L, "machine", w->m->name);
    set_text(L, "solver", solver_name(w));
    set_number(L, "bytes", w->info.bytes / w->chunk);
    set_number(L, "unfused_bytes", w->info.unfused_bytes / w->chunk);
    set_number(L, "peak_bytes", peak_bytes(w));
    set_number(L, "seconds", w->seconds);
    if (answer_gap(&w->info.answer) >= 0)
        set_number(L, "gap", answer_gap(&w->info.answer));
    set_number(L, "predicted", w->info.seconds / w->chunk);
    lua_pushboolean(L, w->info.answer.optimal);
    lua_setfield(L, -2, "optimal");
    if (w->note)
        set_text(L, "note", w->note);
    if (luaL_newmetatable(L, PLAN_META)) {
        lua_pushcfunction(L, plan_tostring);
        lua_setfield(L, -2, "__tostring");
    }
    lua_setmetatable(L, -2);
}

/* ---- v:plan ---- */

static const char *text_option(lua_State *L, const char *name,
                               const char *usual)
{
    if (!lua_istable(L, 2) || lua_getfield(L, 2, name) == LUA_TNIL)
        return usual;
    return luaL_tolstring(L, -1, NULL);
}

typedef struct Drawing {
    PlanView *w;
    void (*f)(const PlanView *w, Buf *out);
    Buf out;
} Drawing;

static void draw(Ctx *c, void *ud)
{
    Drawing *d = ud;

    (void)c;
    d->f(d->w, &d->out);
}

static int variant_plan(lua_State *L)
{
    static const char *const also[] = { "chunk", "backend", "threads",
        "backward", "machine", "format" };
    Variant *v = variant_check(L, 1);
    Args args = { 0 };

    lua_settop(L, 2);
    PlanView *w = lua_newuserdatauv(L, sizeof *w, 0);
    *w = (PlanView){ .v = v };
    check_options(L, "plan", v->step, 2, also, 6);
    run_options(L, "plan", 2, &args);
    sizes_arg(L, "plan", v->step, 2, USUAL_SIZE, w->size);
    w->chunk = args.chunk;
    if (lua_istable(L, 2)) {
        lua_getfield(L, 2, "backward");
        w->backward = lua_toboolean(L, -1);
    }
    const char *machine = text_option(L, "machine", "cpu");
    w->m = machine_named(machine);
    if (!w->m)
        lang_fail(L, "machines: cpu, h200", "plan: there is no machine '%s'",
                  machine);
    if (v->step->mask)
        lang_fail(L, NULL, "plan: a mask of mode \"quadratic\" has no plan");
    const char *format = text_option(L, "format", "table");
    protect(L, v->ctx, plan_view, w);
    Drawing d = { .w = w, .out.ctx = v->ctx };
    if (!strcmp(format, "dot"))
        d.f = plan_dot;
    if (!strcmp(format, "svg"))
        d.f = plan_svg;
    if (!d.f && strcmp(format, "table"))
        lang_fail(L, "formats: table, dot, svg", "plan: there is no format "
                  "'%s'", format);
    if (!d.f) {
        push_table(L, w);
        return 1;
    }
    protect(L, v->ctx, draw, &d);
    lua_pushlstring(L, d.out.s, d.out.len);
    return 1;
}

void plan_methods(lua_State *L)
{
    lua_pushcfunction(L, variant_plan);
    lua_setfield(L, -2, "plan");
}
