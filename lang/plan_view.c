/* plan_view.c -- the kernels that a machine would run, and what each of them
 * moves, as a table and as text. Plans are kept with the variant: asked for
 * again, nothing is made.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../backend/cuda/cuda.h"
#include "../compiler/cost.h"
#include "../compiler/mask.h"
#include "bind.h"
#include "plan_view.h"

#define PLAN_META "flin.plan"

/* ---- making one ---- */

static bool is_shown(const Graph *g, const Plan *p, Ref r)
{
    if (g->n[r].op == OP_state || node_is_leaf(&g->n[r]))
        return false;
    return graph_is_root(g, r) || p->stored[r]
        || node_is_product(g, &g->n[r]);
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

/* ---- as it is launched ---- */

static void find_launched(Ctx *c, void *ud)
{
    PlanView *w = ud;

    w->launched = cuda_launches(c, w->made, w->m);
}

/* What the kernels that are launched move and take: the plan's prices were of
 * those that it was chosen from. */
static void price_launched(PlanView *w)
{
    double each = (double)w->chunk / w->span;

    w->info.bytes = w->info.seconds = 0;
    for (int i = 0; i < w->p->nkernels; i++) {
        const Launched *l = &w->launched->kernel[i];
        Kernel *k = &w->p->kernel[i];
        k->bytes = l->moves;
        price_kernel(w->p->g, w->m, k, 0);
        k->seconds = launched_seconds(w, i, true, true);
        w->info.bytes += k->bytes * each;
        w->info.seconds += k->seconds * each;
    }
}

/* On a GPU the plan is shown as it is cut into the kernels that a call
 * launches. Forward alone a call has one kernel. */
static void launch(PlanView *w)
{
    Error before = w->ctx->err;

    w->made = w->p;
    w->span = w->chunk;
    w->chosen = w->info.seconds;
    if (!w->m->arch)
        return;
    if (!w->backward && w->p->g->chunk && !w->v->step->transposed)
        w->made = plan_simple(w->p->g);
    if (!ctx_protect(w->ctx, find_launched, w)) {
        w->refused = ctx_string(w->ctx, w->ctx->err.message);
        w->ctx->err = before;
        return;
    }
    w->p = w->launched->p;
    w->span = w->launched->chunk;
    find_sets(w);
    price_launched(w);
}

/* ---- chunk sizes ---- */

/* A plan with chunks of this size; `note` says why there is no chunk form. */
typedef struct Attempt {
    PlanView *w;
    const Graph *step;
    int chunk;
    Effort effort;
    const char *note;
    Fit fit;
    bool lacks;                         /* as lacks_kernels */
    int kernels;
    Error why;                          /* where it is too large */
} Attempt;

/* A plan that is not chosen among others. */
static void take_plan(PlanView *w, Plan *p, int chunk)
{
    w->chunk = chunk;
    w->p = p;
    memset(&w->info, 0, sizeof w->info);
    w->info.seconds = price_plan(w->p, w->m);
    for (int i = 0; i < w->p->nkernels; i++)
        w->info.bytes += w->p->kernel[i].bytes;
    w->info.unfused_bytes = w->info.bytes;
}

static void serial_plan(PlanView *w, const Attempt *a)
{
    w->note = a->note;
    take_plan(w, plan_simple(by_tokens(a->step, w->size, w->backward)), 1);
}

static PlanWish wish_of(const Attempt *a, Graph *step)
{
    const PlanView *w = a->w;

    return (PlanWish){ step, w->size, a->chunk, w->backward, true, w->m,
                       a->effort,
                       w->m->arch ? backend_named("cuda")->larger : NULL };
}

static void attempt(Ctx *c, void *ud)
{
    Attempt *a = ud;
    PlanView *w = a->w;
    Graph step = *a->step;
    PlanWish wish = wish_of(a, &step);
    PlanTry t;

    step.ctx = c;                       /* what is made is made in c */
    a->fit = plan_try(&wish, &t);
    if (t.plan && w->asked)             /* though a smaller one were better */
        a->fit = FITS;
    a->note = t.fit != NO_CHUNKS ? NULL
            : ctx_string(c, step.note ? step.note : "");
    a->why = t.why;
    a->lacks = lacks_kernels(&wish, &t);
    w->info = t.info;
    w->p = t.plan;
    w->chunk = a->chunk;
}

/* The plan as plan_anyhow makes it, if there is one. */
static bool attempt_anyhow(Attempt *a)
{
    PlanView *w = a->w;
    Graph step = *a->step;
    PlanWish wish = wish_of(a, &step);
    PlanTry t;

    step.ctx = w->ctx;
    if (!plan_anyhow(&wish, &t))
        return false;
    a->fit = t.fit;
    w->info = t.info;
    w->p = t.plan;
    w->chunk = a->chunk = t.plan->g->chunk;
    return true;
}

static void attempt_launched(Ctx *c, void *ud)
{
    Attempt *a = ud;

    a->w->ctx = c;
    attempt(c, a);
    if (a->fit == FITS)
        launch(a->w);
    a->kernels = a->w->p ? a->w->p->nkernels : 0;
}

/* Tries a chunk size, and keeps no memory for it. */
static void weigh(Attempt *a, Weighed *d)
{
    PlanView w = *a->w;
    Attempt b = *a;

    b.w = &w;
    ctx_apart(a->w->ctx, attempt_launched, &b);
    *d = (Weighed){ .chunk = a->chunk, .seconds = INFINITY,
                    .held = w.info.held };
    if (b.fit == FITS) {
        d->seconds = w.info.seconds / a->chunk;
        d->kernels = b.kernels;
    }
    a->fit = b.fit;
    a->why = b.why;
    a->note = b.note ? "" : NULL;       /* the text goes with its memory */
}

/* The largest of the attempt's sizes, halved; false: all are 1. */
static bool halve(const Graph *step, int32_t *size)
{
    int at = 0;

    for (int ax = AX_DIM; ax < step->naxes; ax++)
        if (!step->axis[ax].size && (!at || size[ax] > size[at]))
            at = ax;
    if (!at || size[at] < 2)
        return false;
    int32_t most = size[at];
    for (int ax = AX_DIM; ax < step->naxes; ax++)
        if (!step->axis[ax].size && size[ax] == most)
            size[ax] /= 2;
    for (Ref r = 1; r < step->len; r++)     /* angles: half of another axis */
        if (op_is(step->n[r].op, SPREADS))
            size[lowest(step->n[r].over)] = 0;
    sizes_complete(step, size, true);
    return true;
}

/* What to change so that the machine can hold the kernels, found by trying:
 * fewer tokens at once where that was asked for, else smaller axes. */
static void what_fits(Attempt *a, Error *e)
{
    PlanView *w = a->w;
    int32_t size[NAXES];
    Weighed d = { 0 };
    Buf help = { .ctx = w->ctx };

    a->effort = QUICK;
    memcpy(size, w->size, sizeof size);
    for (a->chunk = w->asked / 2; a->chunk >= 16; a->chunk /= 2) {
        weigh(a, &d);
        if (!isinf(d.seconds)) {
            snprintf(e->help, sizeof e->help, "chunk = %d would fit", a->chunk);
            return;
        }
    }
    a->chunk = 16;
    while (halve(a->step, w->size)) {
        weigh(a, &d);
        if (isinf(d.seconds))
            continue;
        for (int ax = AX_DIM; ax < a->step->naxes; ax++)
            if (w->size[ax] != size[ax])
                buf_printf(&help, "%s%s = %d", help.len ? ", " : "",
                           a->step->axis[ax].name, (int)w->size[ax]);
        snprintf(e->help, sizeof e->help, "%s would fit", help.s);
        break;
    }
    memcpy(w->size, size, sizeof size);
}

/* Nothing fits: the error that said so, with what would. */
static _Noreturn void refuse(Attempt *a)
{
    Error e = a->why;

    what_fits(a, &e);
    ctx_raise(a->w->ctx, &e);
}

/* What a call on a GPU takes, as plan_make does: forward the usual chunk, with
 * gradients the largest whose parts the machine can hold. False: it cannot hold
 * that one's, or any's. What other chunks would take is shown beside it. One
 * without a chunk form is any. */
static bool calls_chunk(PlanView *w, Attempt *a)
{
    int taken = 0;

    for (int i = 0, n = CHUNK_DEFAULT; n >= CHUNK_LEAST; i++, n /= 2) {
        Attempt other = *a;
        a->chunk = other.chunk = n;
        if (taken || !(w->backward || n == CHUNK_DEFAULT)) {
            other.effort = QUICK;
            weigh(&other, &w->weighed[i]);
            continue;
        }
        attempt(w->ctx, a);
        if (a->note) {
            memset(w->weighed, 0, sizeof w->weighed);
            return true;
        }
        taken = a->fit == FITS ? n : 0;
        w->weighed[i] = (Weighed){ .chunk = n, .held = w->info.held,
                                   .seconds = taken ? 0 : INFINITY };
        if (!taken && w->p) {           /* it fits, but a smaller one is less */
            launch(w);
            w->weighed[i].seconds = w->info.seconds / n;
            w->weighed[i].kernels = w->p->nkernels;
        }
    }
    a->chunk = !w->backward ? CHUNK_DEFAULT : taken ? taken : CHUNK_LEAST;
    bool lacks = a->lacks || (w->backward && taken < CHUNK_DEFAULT / 2);
    return (lacks && attempt_anyhow(a)) || taken;
}

/* Where none of those fits: the plan that a call makes, cut for its kernels. */
static void called_plan(PlanView *w, const Attempt *a)
{
    Plan *p = plan_make(graph_copy(w->ctx, a->step), w->size, CHUNK_DEFAULT,
                        w->backward, w->m, backend_named("cuda")->larger);

    take_plan(w, p, p->g->chunk);
}

/* As asked for, or as the machine has it. */
static int asked_chunk(const Attempt *a)
{
    Graph step = *a->step;
    PlanWish wish = wish_of(a, &step);

    step.ctx = a->w->ctx;
    return chunk_taken(&wish);
}

static void make_plan(PlanView *w)
{
    Attempt a = { .w = w, .step = graph_copy(w->ctx, w->v->step),
                  .chunk = w->asked, .effort = FULL };

    if (!a.chunk && w->m->arch) {
        if (!calls_chunk(w, &a)) {
            called_plan(w, &a);
            return;
        }
    } else {
        if (a.chunk)
            a.chunk = asked_chunk(&a);
        else
            a.chunk = plan_best_chunk(w->ctx, w->v, w->size, w->backward,
                                      w->weighed);
        attempt(w->ctx, &a);
        if (a.fit == TOO_LARGE && w->asked)
            refuse(&a);
        if (a.fit == TOO_LARGE)
            ctx_raise(w->ctx, &a.why);
    }
    if (a.note)
        serial_plan(w, &a);
}

/* The chunk that is taken is weighed by its own plan. */
static void weigh_taken(PlanView *w)
{
    for (int i = 0; i < CHUNKS_WEIGHED && w->m->arch; i++)
        if (w->weighed[i].chunk == w->chunk && !isinf(w->weighed[i].seconds)) {
            w->weighed[i].seconds = w->info.seconds / w->chunk;
            w->weighed[i].kernels = w->p->nkernels;
        }
}

void plan_view(Ctx *c, void *ud)
{
    PlanView *w = ud;
    double start = clock_now();

    w->ctx = c;
    make_plan(w);
    w->seconds = clock_now() - start;
    launch(w);
    weigh_taken(w);
    find_sets(w);
    plan_text(w);
}

/* ---- those there are ---- */

static void new_view(Ctx *c, void *ud)
{
    PlanView **w = ud, *ask = *w;

    *w = ctx_alloc(c, sizeof **w);
    **w = *ask;
    plan_view(c, *w);
}

PlanView *plan_find(Ctx *c, Variant *v, const PlanView *ask)
{
    PlanView *w, key = *ask;

    for (w = v->views; w; w = w->next)
        if (w->asked == ask->asked && w->backward == ask->backward
            && w->m == ask->m
            && !memcmp(w->size, ask->size, sizeof w->size))
            return w;
    Ctx *own = ctx_like(c);
    if (!own)
        fail_code(c, ERR_MEMORY, "out of memory");
    key.v = v;
    w = &key;
    if (!ctx_protect(own, new_view, &w)) {
        c->err = own->err;
        ctx_free(own);
        ctx_rethrow(c);
    }
    w->next = v->views;
    return v->views = w;
}

void plan_views_free(Variant *v)
{
    for (PlanView *w = v->views, *next; w; w = next) {
        next = w->next;
        ctx_free(w->ctx);
    }
    v->views = NULL;
}

/* ---- the table ---- */

/* Pushes the list of the kernel's nodes; of those it recomputes. */
static void push_nodes(lua_State *L, const PlanView *w, int k, bool again)
{
    int n = 0;

    lua_newtable(L);
    for (Ref r = 1; r < w->p->g->len; r++) {
        if (!w->has[k][r] || !w->shown[r] || (again && !recomputed(w, k, r)))
            continue;
        lua_pushstring(L, w->label[r]);
        lua_rawseti(L, -2, ++n);
    }
}

/* Appends what a kernel reads or writes: name, its bytes, and the kernel that
 * it comes from (0: an argument), or whether it is kept for another one. */
static void push_tensor(lua_State *L, const PlanView *w, Ref r, int n)
{
    lua_newtable(L);
    set_text(L, "name", w->name[r] ? w->name[r] : w->expr[r]);
    set_number(L, "bytes", tile_bytes(w->p->g, w->m, r) / w->span);
    lua_pushvalue(L, -1);
    lua_rawseti(L, -3, n);
}

static void push_reads(lua_State *L, const PlanView *w, int k)
{
    int n = 0;

    lua_newtable(L);
    for (Ref r = 1; r < w->p->g->len; r++) {
        if (!kernel_loads(w, k, r))
            continue;
        push_tensor(L, w, r, ++n);
        int from = w->p->stored[r] ? w->p->keeper[r] + 1 : 0;
        lua_pushinteger(L, from);
        lua_setfield(L, -2, "from");
        lua_pop(L, 1);
    }
}

static void push_write(lua_State *L, const PlanView *w, Ref r, int n, bool kept)
{
    push_tensor(L, w, r, n);
    lua_pushboolean(L, kept);
    lua_setfield(L, -2, "kept");
    lua_pop(L, 1);
}

/* Each once: a result that a later kernel reads is kept. */
static void push_writes(lua_State *L, const PlanView *w, int k)
{
    int n = 0;

    lua_newtable(L);
    for (Ref r = 1; r < w->p->g->len; r++) {
        bool kept = kernel_keeps(w, k, r);
        if (kept || kernel_writes(w, k, r))
            push_write(L, w, r, ++n, kept);
    }
}

/* The kernel's work as assignments; nodes that nobody else uses stand inside
 * the expressions. */
static void push_lines(lua_State *L, const PlanView *w, int k)
{
    int n = 0;

    lua_newtable(L);
    for (Ref r = 1; r < w->p->g->len; r++) {
        if (!w->has[k][r] || !w->name[r])
            continue;
        lua_newtable(L);
        set_text(L, "name", w->name[r]);
        set_text(L, "text", w->line[r]);
        set_text(L, "axes", w->axes[r]);
        lua_pushboolean(L, first_maker(w, r) < k);
        lua_setfield(L, -2, "again");
        lua_rawseti(L, -2, ++n);
    }
}

/* What a GPU has of the kernel. */
static void push_launched(lua_State *L, const Launched *l)
{
    set_text(L, "form", l->form);
    if (l->why)
        set_text(L, "why", l->why);
    if (l->roles)
        set_text(L, "roles", l->roles);
    lua_pushinteger(L, l->warps);
    lua_setfield(L, -2, "warps");
    lua_pushinteger(L, l->shared);
    lua_setfield(L, -2, "shared");
    lua_pushinteger(L, l->blocks);
    lua_setfield(L, -2, "blocks");
    lua_pushinteger(L, l->of + 1);
    lua_setfield(L, -2, "part_of");
    if (!l->roles)
        return;
    lua_pushinteger(L, l->length);
    lua_setfield(L, -2, "instructions");
    lua_pushinteger(L, l->buffers);
    lua_setfield(L, -2, "buffers");
    lua_pushinteger(L, l->regs[1]);
    lua_setfield(L, -2, "registers");
    lua_pushinteger(L, l->tensor);
    lua_setfield(L, -2, "tensor");
}

static void push_kernel(lua_State *L, const PlanView *w, int k)
{
    const Kernel *kernel = &w->p->kernel[k];

    lua_newtable(L);
    set_text(L, "name", kernel->name);
    set_text(L, "kind", kernel_kind(kernel));
    set_number(L, "bytes", kernel->bytes / w->span);
    set_number(L, "reads", kernel_reads(w, k));
    set_number(L, "flops", kernel->flops / w->span);
    set_number(L, "seconds", kernel->seconds / w->span);
    set_number(L, "load", kernel->spent[R_LOAD] / w->span);
    set_number(L, "ahead", kernel->spent[R_AHEAD] / w->span);
    set_number(L, "serial", kernel->spent[R_SERIAL] / w->span);
    if (ahead_groups(w, k))
        set_number(L, "ahead_groups", ahead_groups(w, k));
    if (w->launched)
        push_launched(L, &w->launched->kernel[k]);
    push_nodes(L, w, k, false);
    lua_setfield(L, -2, "nodes");
    push_nodes(L, w, k, true);
    lua_setfield(L, -2, "recomputed");
    push_lines(L, w, k);
    lua_setfield(L, -2, "lines");
    push_reads(L, w, k);
    lua_setfield(L, -2, "arguments");
    push_writes(L, w, k);
    lua_setfield(L, -2, "results");
}

static int plan_tostring(lua_State *L)
{
    lua_getfield(L, 1, "text");
    return 1;
}

void plan_be(lua_State *L)
{
    if (luaL_newmetatable(L, PLAN_META)) {
        lua_pushcfunction(L, plan_tostring);
        lua_setfield(L, -2, "__tostring");
    }
    lua_setmetatable(L, -2);
}

static void push_stored(lua_State *L, const PlanView *w)
{
    int n = 0;

    lua_newtable(L);
    for (Ref r = 1; r < w->p->g->len; r++)
        if (w->p->stored[r]) {
            lua_pushstring(L, w->expr[r]);
            lua_rawseti(L, -2, ++n);
        }
}

static void push_weighed(lua_State *L, const PlanView *w)
{
    lua_newtable(L);
    for (int i = 0; i < CHUNKS_WEIGHED && w->weighed[i].chunk; i++) {
        const Weighed *d = &w->weighed[i];
        lua_newtable(L);
        set_number(L, "chunk", d->chunk);
        set_number(L, "seconds", d->seconds);
        set_number(L, "kernels", d->kernels);
        set_number(L, "held", d->held);
        lua_rawseti(L, -2, i + 1);
    }
}

void plan_push(lua_State *L, const PlanView *w)
{
    lua_newtable(L);
    lua_newtable(L);
    for (int k = 0; k < w->p->nkernels; k++) {
        push_kernel(L, w, k);
        lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "kernels");
    push_stored(L, w);
    lua_setfield(L, -2, "stored");
    push_weighed(L, w);
    lua_setfield(L, -2, "weighed");
    lua_pushlstring(L, w->text.s, w->text.len);
    lua_setfield(L, -2, "text");
    lua_pushinteger(L, w->chunk);
    lua_setfield(L, -2, "chunk");
    lua_pushinteger(L, w->p->split);
    lua_setfield(L, -2, "split");
    set_text(L, "machine", w->m->name);
    set_text(L, "solver", solver_name(w));
    set_number(L, "bytes", w->info.bytes / w->chunk);
    set_number(L, "unfused_bytes", w->info.unfused_bytes / w->chunk);
    set_number(L, "peak_bytes", peak_bytes(w));
    set_number(L, "seconds", w->seconds);
    if (answer_gap(&w->info.answer) >= 0)
        set_number(L, "gap", answer_gap(&w->info.answer));
    set_number(L, "predicted", w->info.seconds / w->chunk);
    set_number(L, "chosen", w->chosen / w->chunk);
    lua_pushboolean(L, w->info.answer.optimal);
    lua_setfield(L, -2, "optimal");
    if (w->note)
        set_text(L, "note", w->note);
    plan_be(L);
}
