/* api_kernel.c -- flin.h: kernels. One owns a copy of its variant's step and
 * the plans made for it, in a context of its own; runs only read them, but for
 * one that meets wrong kernels: it adds a plan that stands in for theirs.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../compiler/mask.h"
#include "../compiler/scores.h"
#include "api.h"
#include "shared.h"

struct flin_Kernel {
    atomic_int refs;
    flin_Options o;                     /* the state's */
    Variant v;
    Mode mode;
    int32_t size[NAXES];
    DType in[MAX_INPUTS], out[MAX_RESULTS];
    bool known[MAX_RESULTS];            /* the types of these results */
    int chunk;
    Fusion fusion;
    const Backend *backend;
    pthread_mutex_t turning;            /* to another plan */
};

static const Mode modes[] = {
    [FLIN_FORWARD] = M_FORWARD, [FLIN_BACKWARD] = M_BACKWARD,
    [FLIN_STEP] = M_STEP, [FLIN_REFERENCE] = M_REFERENCE,
    [FLIN_REFERENCE_BACKWARD] = M_REFERENCE_BACKWARD,
    [FLIN_VERIFY] = M_VERIFY
};
enum { NMODES = sizeof modes / sizeof *modes };

/* ---- making one ---- */

typedef struct Making {
    const flin_Variant *v;
    flin_Mode mode;
    const flin_Call *like;
    flin_Kernel *k;
} Making;

/* Where all pairs are taken, such calls are those of what keeps them. */
static bool like_has_states(const Making *m)
{
    flin_Call k;
    bool whole = m->mode == FLIN_FORWARD || m->mode == FLIN_REFERENCE;

    return m->mode == FLIN_STEP || m->mode == FLIN_VERIFY
        || (whole && m->like && take_struct(&k, sizeof k, m->like)
            && (k.ninitial || k.nfinal));
}

/* The kernel without plans, in its own context. */
static void new_kernel(Ctx *c, void *ud)
{
    Making *m = ud;
    const Variant *from = variant_of_call(m->v->v, like_has_states(m));
    flin_Kernel *k = m->k = ctx_alloc(c, sizeof *k);

    if ((unsigned)m->mode >= NMODES)
        fail(c, 0, "flin_prepare: there is no mode %d", (int)m->mode);
    k->o = m->v->s->o;
    k->mode = modes[m->mode];
    atomic_init(&k->refs, 1);
    pthread_mutex_init(&k->turning, NULL);
    c->file = ctx_string(c, from->ctx->file);
    c->interrupt_ud = &k->o;            /* the state may go */
    k->v.ctx = c;
    k->v.step = graph_copy(c, from->step);
    if (from->step->window)
        k->v.step->window = window_copy(c, from->step->window);
    if (from->step->scores)
        k->v.step->scores = scores_copy(c, from->step->scores);
    if (k->v.step->scores && k->v.step->scores->window)
        k->v.step->scores->window = k->v.step->window;
    k->v.way = from->way;
    k->v.runs = from->runs;
    k->v.limit = from->limit;
    k->v.shared = shared_retain(from->shared);
}

static void prepare(Ctx *c, flin_Kernel *k, const HostCall *h)
{
    if (runs_backwards(k->mode))
        prepare_backward(c, &k->v, &h->args, &h->bound);
    else
        prepare_bound(c, &k->v, &h->args, &h->bound);
}

static void make_plans(Ctx *c, void *ud)
{
    Making *m = ud;
    flin_Kernel *k = m->k;
    HostCall *h = host_call(c, k->mode, m->like, NULL);

    c->interrupt_ud = &k->o;            /* plans keep it */
    h->sizes = true;
    host_bind(c, k->v.step, h);
    memcpy(k->size, h->bound.call.size, sizeof k->size);
    for (int i = 0; i < k->v.step->nin; i++)
        k->in[i] = h->args.in[i].dtype;
    for (int o = 0; o < k->v.step->nout; o++) {
        k->known[o] = h->result[o].given;
        k->out[o] = h->result[o].dtype;
    }
    k->known[0] = h->call.y.rank > 0;
    k->out[0] = (DType)h->call.y.dtype;
    k->chunk = h->args.chunk;
    k->fusion = h->args.fusion;
    k->backend = h->args.backend;
    prepare(c, k, h);
    for (const PlanEntry *p = k->v.plans; p; p = p->next)
        if (p->chunk)
            k->chunk = p->chunk;
    if (k->v.step->window) {            /* runs name that chunk */
        h->args.chunk = k->chunk;
        prepare(c, k, h);
    }
    k->v.said = m->v->v->said;
    const char *line = road_taken(c, &k->v, &h->args);
    if (line)
        host_say(m->v->s, line);
    m->v->v->said = k->v.said;
}

static void try_plans(Ctx *c, void *ud)
{
    plans_try(c, &((Making *)ud)->k->v, make_plans, ud);
}

/* Both steps; false, with the error taken, if one fails. */
static bool make_kernel(Making *m, Ctx *own, Ctx *c, flin_Error *e)
{
    if (!own || !c)
        set_error(e, FLIN_ERROR_MEMORY, "out of memory");
    else if (!ctx_protect(own, new_kernel, m))
        take_error(e, &own->err, NULL);
    else if (!ctx_protect(c, try_plans, m))
        take_error(e, &c->err, NULL);
    else
        return true;
    return false;
}

flin_Kernel *flin_prepare(flin_Variant *v, flin_Mode mode,
                          const flin_Call *like, flin_Error *e)
{
    Making m = { .v = v, .mode = mode, .like = like };

    if (!not_null(v, "the flin_Variant", e))
        return NULL;
    Ctx *own = host_ctx(v->s), *c = host_ctx(v->s);

    set_error(e, FLIN_OK, "");
    bool ok = make_kernel(&m, own, c, e);
    ctx_free(c);
    if (ok)
        return m.k;
    if (m.k) {
        plans_release(&m.k->v);
        pthread_mutex_destroy(&m.k->turning);
    }
    ctx_free(own);
    return NULL;
}

/* ---- running one ---- */

static void check_backend(Ctx *c, const flin_Kernel *k, const Args *a)
{
    const char *what = mode_name[k->mode];

    if (a->chunk && k->chunk && a->chunk != k->chunk)
        fail(c, 0, "%s: chunk = %d, but the kernel was prepared for %d", what,
             a->chunk, k->chunk);
    if (a->fusion != FUSE_CHEAPEST && a->fusion != k->fusion)
        fail(c, 0, "%s: the kernel was prepared for another plan", what);
    if (a->backend && a->backend != k->backend)
        fail(c, 0, "%s: backend '%s', but the kernel was prepared for "
             "another", what, a->backend->name);
}

/* The call must be like the one it was prepared for. */
static void check_like(Ctx *c, const flin_Kernel *k, const HostCall *h)
{
    const Graph *g = k->v.step;
    const char *what = mode_name[k->mode];

    check_backend(c, k, &h->args);
    for (int ax = AX_DIM; ax < g->naxes; ax++)
        if (h->bound.call.size[ax] != k->size[ax])
            fail(c, 0, "%s: axis '%s' is %d, but the kernel was prepared for "
                 "%d", what, g->axis[ax].name, h->bound.call.size[ax],
                 k->size[ax]);
    for (int i = 0; i < g->nin; i++)
        if (h->args.in[i].dtype != k->in[i])
            fail(c, 0, "%s: %s is %s, but the kernel was prepared for %s",
                 what, g->in[i].name, dtype_name(h->args.in[i].dtype),
                 dtype_name(k->in[i]));
    for (int o = 0; o < g->nout; o++) {
        const View *y = &h->bound.call.out[o];
        if (k->known[o] && y->data && y->dtype != k->out[o])
            fail(c, 0, "%s: %s is %s, but the kernel was prepared for %s",
                 what, g->out[o].name, dtype_name(y->dtype),
                 dtype_name(k->out[o]));
    }
}

typedef struct Running {
    flin_Kernel *k;
    const flin_Call *call;
    const flin_Grad *grad;
    int64_t *workspace, *saved;         /* what is asked for, else NULL */
} Running;

/* The call's: a kernel of both passes goes forward where there is no flin_Grad.
 */
static Mode run_mode(const Running *r)
{
    const flin_Kernel *k = r->k;
    bool sizes = r->workspace || r->saved;

    return k->mode == M_BACKWARD && !sizes && !r->grad && k->backend->kept
         ? M_FORWARD : k->mode;
}

static int64_t find_workspace(Ctx *c, flin_Kernel *k, HostCall *h)
{
    if (!runs_backwards(k->mode))
        return workspace_bound(c, &k->v, &h->args, &h->bound);
    Stored room = host_stored(c, &k->v, h);
    int64_t back = workspace_backward(c, &k->v, &h->args, &h->bound, room);
    int64_t saving = h->call.saved && k->mode == M_BACKWARD
        ? saved_workspace(c, &k->v, &h->args, &h->bound, room) : 0;
    return saving > back ? saving : back;
}

static void check_saving(Ctx *c, const flin_Kernel *k, const HostCall *h)
{
    if (h->call.saved && k->mode == M_FORWARD)
        fail_help(c, 0, "flin_prepare with FLIN_BACKWARD", "forward: saved is "
                  "for a kernel that goes backwards, too");
}

static void run_kernel(Ctx *c, void *ud)
{
    Running *r = ud;
    flin_Kernel *k = r->k;
    HostCall *h = host_call(c, run_mode(r), r->call, r->grad);

    h->sizes = r->workspace || r->saved;
    h->joint = h->args.mode != k->mode;
    host_bind(c, k->v.step, h);
    check_like(c, k, h);
    check_saving(c, k, h);
    h->args.chunk = k->chunk;
    h->args.fusion = k->fusion;
    h->args.backend = k->backend;
    if (r->workspace)
        *r->workspace = find_workspace(c, k, h);
    else if (r->saved)
        *r->saved = k->mode == M_BACKWARD
            ? saved_bytes(c, &k->v, &h->args, &h->bound) : 0;
    else
        host_run(c, &k->v, h);
}

typedef struct Turn { flin_Kernel *k; int turned; bool again; } Turn;

static void turn(Ctx *c, void *ud)
{
    Turn *t = ud;

    t->again = atomic_load(&t->k->v.turned) != t->turned
            || plans_turn(c, &t->k->v);
}

/* What a run of a variant does by plans_try, of a kernel that others run. */
static void try_kernel(Ctx *c, void *ud)
{
    Running *r = ud;
    Turn t = { .k = r->k };

    for (;;) {
        t.turned = atomic_load(&r->k->v.turned);
        if (ctx_protect(c, run_kernel, r))
            return;
        Error failed = c->err;
        pthread_mutex_lock(&r->k->turning);
        bool ok = ctx_protect(c, turn, &t);
        pthread_mutex_unlock(&r->k->turning);
        if (ok && !t.again)
            c->err = failed;
        if (!ok || !t.again)
            ctx_rethrow(c);
    }
}

static int run_protected(Running *r, flin_Error *e)
{
    if (!not_null(r->k, "the flin_Kernel", e))
        return FLIN_ERROR;
    Ctx *c = ctx_like(r->k->v.ctx);
    int code = FLIN_OK;

    set_error(e, FLIN_OK, "");
    if (!c)
        return set_error(e, FLIN_ERROR_MEMORY, "out of memory");
    if (!ctx_protect(c, try_kernel, r))
        code = take_error(e, &c->err, NULL);
    ctx_free(c);
    return code;
}

int flin_run(flin_Kernel *k, const flin_Call *call, const flin_Grad *grad,
             flin_Error *e)
{
    return run_protected(&(Running){ .k = k, .call = call, .grad = grad }, e);
}

int64_t flin_workspace(const flin_Kernel *k, const flin_Call *call)
{
    int64_t bytes;
    Running r = { .k = (flin_Kernel *)k, .call = call, .workspace = &bytes };

    return run_protected(&r, NULL) ? -1 : bytes;
}

int64_t flin_kernel_saved(const flin_Kernel *k, const flin_Call *call)
{
    int64_t bytes;
    Running r = { .k = (flin_Kernel *)k, .call = call, .saved = &bytes };

    return run_protected(&r, NULL) ? -1 : bytes;
}

const char *flin_kernel_note(const flin_Kernel *k)
{
    return k ? latest_note(&k->v) : NULL;
}

/* ---- its life ---- */

void flin_retain(flin_Kernel *k)
{
    if (k)
        atomic_fetch_add(&k->refs, 1);
}

void flin_free(flin_Kernel *k)
{
    if (!k || atomic_fetch_sub(&k->refs, 1) > 1)
        return;
    Ctx *c = k->v.ctx;
    plans_release(&k->v);
    pthread_mutex_destroy(&k->turning);
    ctx_free(c);
}
