/* layer_gpu.c -- a layer's values on the device: in the types of the call, in
 * one workspace. All is queued on the call's stream, and nothing waits.
 */
#include <stdlib.h>
#include <string.h>

#include "../backend/cuda/build.h"
#include "../backend/cuda/dense.h"
#include "../backend/cuda/ends.h"
#include "../backend/cuda/passes.h"
#include "../backend/cuda/pools.h"
#include "../backend/cuda/rows.h"
#include "layer_gpu.h"

static Gpu *gpu_of(const Lay *k)
{
    return k->v->shared.gpu;
}

static DevicePtr address(const Array *v)
{
    return (DevicePtr)(uintptr_t)v->data;
}

/* The call's, but for what layer_wide says. */
static DType type(const Lay *k, Ref r)
{
    return k->b->dtype == F64 || (r && layer_wide(k->g, r)) ? F32
                                                            : k->b->dtype;
}

/* ---- moves and products ---- */

static DenseMove dense_of(const Array *to, const Array *from, bool add)
{
    DenseMove m = { .to = address(to), .from = address(from),
                    .to_type = to->dtype, .from_type = from->dtype,
                    .add = add, .rank = to->rank };

    for (int i = 0; i < to->rank; i++) {
        m.n[i] = to->n[i];
        m.ts[i] = to->st[i];
        m.fs[i] = from->st[array_find(from, to->ax[i])];
    }
    return m;
}

static void move(Lay *k, const Array *to, const Array *from, bool add)
{
    DenseMove m = dense_of(to, from, add);

    run_held(k);
    if (!k->dry)
        dense_move(k->c, gpu_of(k), k->b->call.stream, &m);
}

static void moves(Lay *k, const Array *to, const Array *const *from, int n)
{
    DenseMove m[MAX_JOINT];

    run_held(k);
    for (int i = 0, some; i < n && !k->dry; i += some) {
        for (some = 0; some < MAX_JOINT && i + some < n; some++)
            m[some] = dense_of(&to[i + some], from[i + some], false);
        dense_moves(k->c, gpu_of(k), k->b->call.stream, m, some);
    }
}

/* 0 of a number, to each place. */
static void zero(Lay *k, const Array *v)
{
    Array none = { 0 };

    k->realm->number(k, &none, 0, -1);
    for (int i = 0; i < v->rank; i++) {
        none.ax[i] = v->ax[i];
        none.st[i] = 0;
    }
    none.rank = v->rank;
    move(k, v, &none, false);
}

static bool takes(const Lay *k, const Array *v, int64_t rs, int64_t cs,
                  bool second)
{
    (void)second;
    return v->dtype == type(k, 0) && (rs == 1 || cs == 1);
}

static bool gives(const Lay *k, const Array *v)
{
    return v->dtype == F32 || v->dtype == type(k, 0);
}

static void product(Lay *k, const Matmul *m)
{
    DevicePtr size[] = { (DevicePtr)dtype_size(m->a->dtype),
                         (DevicePtr)dtype_size(m->c->dtype) };
    DenseProduct p = {
        .m = m->m, .n = m->n, .k = m->k, .batch = m->batch,
        .a = address(m->a) + (DevicePtr)m->a0 * size[0],
        .b = address(m->b) + (DevicePtr)m->b0 * size[0],
        .c = address(m->c) + (DevicePtr)m->c0 * size[1],
        .ars = m->ars, .acs = m->acs, .abs = m->abs, .brs = m->brs,
        .bcs = m->bcs, .bbs = m->bbs, .crs = m->crs, .cbs = m->cbs,
        .type = m->a->dtype, .result = m->c->dtype, .add = m->add
    };

    if (m->plus) {
        p.plus = address(m->plus) + (DevicePtr)m->plus0 * size[1];
        p.prs = m->prs;
        p.pbs = m->pbs;
    }
    run_held(k);
    int64_t bytes = dense_room(k->c, gpu_of(k), &p) + 1;
    void *workspace = arena_room(k, bytes, false);
    if (k->dry)
        dense_choose(k->c, gpu_of(k), &p);
    else
        dense_product(k->c, gpu_of(k), k->b->call.stream, &p,
                      (DevicePtr)(uintptr_t)workspace, bytes);
    arena_drop(k, workspace);
}

/* ---- parts ---- */

/* ---- parts over rows ---- */

static struct Rows *rows_of(const Lay *k, const Sub *s)
{
    return k->p->rows[s->p - k->p->parts->part];
}

static View given_view(const Given *g, View v)
{
    return g->given && g->data ? v : (View){ 0 };
}

static RowsCall *rows_call(Lay *k, const Sub *s, bool backward)
{
    RowsCall *r = held_call(k);
    const Graph *step = s->p->step;
    const Call *call = &s->bound.call;

    *r = (RowsCall){ .B = s->bound.B, .T = s->bound.T, .N = s->bound.N,
                     .heads = call->heads, .backward = backward,
                     .y = backward && !s->again ? (View){ 0 } : call->out[0],
                     .stream = call->stream,
                     .ends = s->args.cu || s->args.device_cu ? k->ends : 0 };
    memcpy(r->in, call->in, sizeof r->in);
    memcpy(r->s0, call->s0, sizeof r->s0);
    if (!backward) {
        memcpy(r->s1, call->s1, sizeof r->s1);
        return r;
    }
    memcpy(r->add, s->add, sizeof r->add);
    r->dy = result_view(step, 0, &s->d.dy[0]);
    for (int i = 0; i < step->nin; i++)
        r->dx[i] = given_view(&s->d.dx[i], input_view(step, i, &s->d.dx[i]));
    for (int j = 0; j < step->nst; j++) {
        r->dstate[j] = given_view(&s->d.dstate[j],
                                  state_view(step, j, &s->d.dstate[j]));
        r->ds[j] = given_view(&s->d.ds[j], state_view(step, j, &s->d.ds[j]));
    }
    return r;
}

/* Without a dy it is zero. */
static void *zero_dy(Lay *k, Sub *s)
{
    Array v = { 0 };
    const Output *y = &s->p->step->out[0];

    array_add(k, &v, AX_B);
    array_add(k, &v, AX_T);
    if (s->p->heads)
        array_add(k, &v, s->p->heads);
    for (int d = 0; d < y->rank; d++)
        array_add(k, &v, s->p->axis[y->order[d]]);
    make_room(k, &v, F32, false);
    k->realm->zero(k, &v);
    s->d.dy[0] = (Given){ .given = true, .device = true, .data = v.data,
                       .dtype = F32, .rank = 2 };
    int d = 2;
    for (int i = 0; i < 2; i++) {
        s->d.dy[0].shape[i] = v.n[i];
        s->d.dy[0].stride[i] = v.st[i];
    }
    s->d.dy[0].shape[s->d.dy[0].rank] = s->p->heads ? v.n[d] : 1;
    s->d.dy[0].stride[s->d.dy[0].rank++] = s->p->heads ? v.st[d++] : 0;
    for (; d < v.rank; d++) {
        s->d.dy[0].shape[s->d.dy[0].rank] = v.n[d];
        s->d.dy[0].stride[s->d.dy[0].rank++] = v.st[d];
    }
    return v.data;
}

/* Room for what is kept of carried states. */
static void place_carried(Lay *k, Sub *s, struct Rows *p, RowsCall *call)
{
    int64_t bytes = rows_kept(k->c, gpu_of(k), p, call);

    if (!call->backward && k->keep && bytes)
        *s->saved = (Stored){ .at = arena_room(k, bytes, true), .bytes = bytes,
                              .device = true };
    call->kept = bytes && (call->backward || k->keep)
              && s->saved->bytes == bytes
               ? (DevicePtr)(uintptr_t)s->saved->at : 0;
}

static void run_rows(Lay *k, Sub *s, bool backward)
{
    void *dy = backward && !s->d.dy[0].given ? zero_dy(k, s) : NULL;
    RowsCall *call = rows_call(k, s, backward);
    struct Rows *p = rows_of(k, s);

    place_carried(k, s, p, call);
    if (k->left && !backward)
        return;
    void *at = arena_room(k, rows_room(k->c, gpu_of(k), p, call), false);

    call->room = (DevicePtr)(uintptr_t)at;
    hold_rows(k, s->p, p, call);
    arena_drop(k, at);
    if (dy)
        arena_drop(k, dy);
}

static void move_on(View *v, int64_t tokens)
{
    if (v->data)
        v->data = (char *)v->data + tokens * v->st * dtype_size(v->dtype);
}

/* As run_rows goes forward, for states that lie in pools or are kept behind
 * each token: by states side by side, token by token in the latter case. */
static void run_rows_apart(Lay *k, Sub *s)
{
    const Call whole = s->bound.call;
    const Graph *step = copy_sized(k->c, s->p->step, whole.size);
    bool pages = whole.pages.at;
    int64_t T = s->bound.T, times = whole.each ? T : 1;
    void *at = pages ? arena_room(k, pools_bytes(step, &whole), false) : NULL;
    Call own = pages ? pools_apart(step, &whole) : whole;

    if (pages)
        pools_place(step, &own, (DevicePtr)(uintptr_t)at);
    if (pages && k->dry)
        pools_prepare(k->c, gpu_of(k));
    if (pages && !k->dry)
        pools_queue(k->c, gpu_of(k), step, &whole, &own, false);
    s->bound.T = T / times;
    for (int64_t t = 0; t < times; t++) {
        s->bound.call = own;
        for (int i = 0; i < step->nin; i++)
            move_on(&s->bound.call.in[i], t);
        move_on(&s->bound.call.out[0], t);
        for (int j = 0; j < step->nst; j++) {
            move_on(&s->bound.call.s1[j], t);
            if (t && own.s1[j].data)
                s->bound.call.s0[j] = own.s1[j];
            if (t)
                move_on(&s->bound.call.s0[j], t - 1);
        }
        run_rows(k, s, false);
    }
    run_held(k);
    s->bound.call = whole;
    s->bound.T = T;
    if (pages && !k->dry && !s->p->borrows)
        pools_queue(k->c, gpu_of(k), step, &whole, &own, true);
    arena_drop(k, at);
}

/* ---- row programs ---- */

static Passes *passes_of(const Lay *k, const Sub *s)
{
    return k->p->passes[s->p - k->p->parts->part];
}

/* Room for what is kept of each row; where that is not read, none. */
static void place_kept(Lay *k, Sub *s, Passes *p, PassesCall *call)
{
    const RowStep *step = k->p->row[s->p - k->p->parts->part];
    int64_t bytes = passes_rows(p, call) * step->nkept * 4;

    if (!call->backward && k->keep && bytes
        && (!k->some.is || k->some.begins))
        *s->saved = (Stored){ .at = arena_room(k, bytes, true), .bytes = bytes,
                              .device = true };
    call->kept = s->saved->bytes ? (DevicePtr)(uintptr_t)s->saved->at : 0;
}

static void run_passes(Lay *k, Sub *s, bool backward)
{
    Passes *p = passes_of(k, s);
    PassesCall *call = ctx_alloc(k->c, sizeof *call);
    const Graph *step = s->p->step;
    void *dy = backward && !s->d.dy[0].given ? zero_dy(k, s) : NULL;

    *call = (PassesCall){ .B = s->bound.B, .T = s->bound.T,
                          .heads = s->bound.call.heads,
                          .size = s->bound.call.size, .backward = backward,
                          .y = s->bound.call.out[0], .some = k->some,
                          .carry = (DevicePtr)(uintptr_t)k->carry,
                          .stream = s->bound.call.stream };
    memcpy(call->in, s->bound.call.in, sizeof call->in);
    memcpy(call->inplace, s->inplace, sizeof call->inplace);
    for (int i = 0; backward && i < step->nin; i++)
        call->dx[i] = given_view(&s->d.dx[i], input_view(step, i,
                                                         &s->d.dx[i]));
    if (backward)
        call->in[step->nin] = result_view(step, 0, &s->d.dy[0]);
    place_kept(k, s, p, call);
    if (backward || !k->left) {
        void *at = arena_room(k, passes_room(k->c, gpu_of(k), p, call), false);
        call->room = (DevicePtr)(uintptr_t)at;
        if (k->dry && k->makes == MAKES_WISHES)
            passes_wish(k->c, gpu_of(k), p, call);
        else if (k->dry && k->makes == MAKES_ALL)
            passes_prepare(k->c, gpu_of(k), p, call);
        else if (!k->dry)
            passes_run(k->c, gpu_of(k), p, call);
        arena_drop(k, at);
    }
    if (dy)
        arena_drop(k, dy);
}

static bool remakes(const Lay *k, int part)
{
    return k->p->rows && k->p->rows[part] && !rows_carry(k->p->rows[part]);
}

static bool cheap(const Lay *k, int part)
{
    const LayerPart *p = &k->p->parts->part[part];

    return remakes(k, part) || (!p->step && !joint_of(k, part)
                                && product_widens(k, p));
}

/* Is it the same value for all heads of the part? */
static bool is_shared(const Lay *k, const LayerPart *p, Ref r)
{
    return p->heads && !(k->g->n[r].axes & AXIS(p->heads));
}

/* Not of what heads share and each token has, which is summed over them first.
 */
static bool adds(const Lay *k, int part, int input)
{
    const LayerPart *p = &k->p->parts->part[part];

    return k->p->rows && k->p->rows[part]
        && (!p->step->in[input].timed || !is_shared(k, p, p->in[input]))
        && rows_adds(k->p->rows[part], input);
}

/* The part's number among those that have plans. */
static int call_number(const Lay *k, int part)
{
    int n = 0;

    for (int i = 0; i < part; i++)
        n += k->p->variant[i] && !k->p->rows[i] && !k->p->passes[i];
    return n;
}

/* Plans have no part in a walk that wishes for kernels. */
static bool wishes(const Lay *k)
{
    return k->dry && k->makes == MAKES_WISHES;
}

/* Where the call's memory is counted it is found out; it runs by that. What the
 * gradient is written over: the input, or OVER_DY. */
static bool call_lies_over(const Lay *k, int part, int input, int what)
{
    enum { EACH = 32 };
    int n = call_number(k, part);
    int at = what == OVER_DY ? input + EACH : input;
    uint64_t bit = input < EACH ? (uint64_t)1 << at : 0;

    if (n >= LAYER_CALLS || !bit)
        return false;
    if (k->dry && !wishes(k) && !(k->asked[n] & bit)) {
        Lay *to = (Lay *)k;             /* what is known of it */
        Sub *s = see_sub(to, part);
        to->asked[n] |= bit;
        if (gradient_lies_over(k->c, s->v, &s->args, &s->bound, input, what))
            to->over[n] |= bit;
    }
    return k->over[n] & bit;
}

/* Does the part run by a plan? */
static bool is_planned(const Lay *k, int part)
{
    return k->p->parts->part[part].step && k->p->variant[part]
        && !k->p->rows[part] && !k->p->passes[part];
}

static bool over(const Lay *k, int part, int input)
{
    const LayerPart *p = &k->p->parts->part[part];
    bool result = input == OVER_RESULT;
    bool shared = is_shared(k, p, result ? p->y : p->in[input]);

    if (!result && is_planned(k, part))
        return !shared && call_lies_over(k, part, input, input);
    return (!result && k->p->over[part] && k->p->over[part][input])
        || (k->p->rows && k->p->rows[part] && !shared
            && rows_over(k->p->rows[part], input));
}

static bool over_dy(const Lay *k, int part, int input)
{
    const LayerPart *p = &k->p->parts->part[part];

    return is_planned(k, part) && !is_shared(k, p, p->in[input])
        && call_lies_over(k, part, input, OVER_DY);
}

typedef struct NewRows {
    Lay *k;
    struct Rows **rows;
    Passes **passes;
} NewRows;

/* Of parts of rows, as the program's but for that one's. */
static void new_part(Ctx *c, const NewRows *n, LayerProgram *own, int i)
{
    int parts = n->k->p->parts->n;

    if (!own)
        return;
    own->rows = n->rows;
    own->passes = ctx_alloc(c, (size_t)parts * sizeof *own->passes);
    memcpy(own->passes, n->passes, (size_t)parts * sizeof *own->passes);
    own->passes[i] = passes_new(c, own->row[i]);
}

/* In the layer's own context. */
static void new_rows(Ctx *c, void *ud)
{
    NewRows *n = ud;
    const LayerParts *parts = n->k->p->parts;

    n->rows = ctx_alloc(c, (size_t)parts->n * sizeof *n->rows + 1);
    n->passes = ctx_alloc(c, (size_t)parts->n * sizeof *n->passes + 1);
    for (int i = 0; i < parts->n; i++) {
        const LayerPart *p = &parts->part[i];
        int32_t size[NAXES] = { 0 };
        if (!p->step)
            continue;
        for (int ax = AX_DIM; ax < p->step->naxes; ax++)
            size[ax] = n->k->p->size[p->axis[ax]];
        const RowStep *row = n->k->p->row[i];
        if (!row)
            n->rows[i] = rows_new(c, p->step, size);
        if (row && !n->rows[i])
            n->passes[i] = passes_new(c, row);
    }
    for (int i = 0; i < parts->n; i++) {
        const Columns *k = n->k->p->columns[i];
        for (int at = 0; k && at < k->n; at++) {
            new_part(c, n, k->of[at].all, i);
            new_part(c, n, k->of[at].rest, i);
        }
    }
}

static void make_rows(Ctx *c, void *ud)
{
    NewRows n = { .k = ud };

    if (n.k->p->rows)
        return;
    if (!ctx_protect(n.k->v->ctx, new_rows, &n)) {
        c->err = n.k->v->ctx->err;
        ctx_rethrow(c);
    }
    n.k->p->passes = n.passes;
    n.k->p->rows = n.rows;
}

/* ---- parts by plans ---- */

/* Kernels for all that such a call may be, where some tensor is still to come.
 */
static bool is_open(const Sub *s)
{
    bool open = false;

    for (int i = 0; i < s->p->step->nin; i++)
        open = open || !s->bound.call.in[i].data;
    return open;
}

typedef struct Trying { Lay *k; Sub *s; } Trying;

/* Room for what spares the part's way back its way forward. */
static void place_saved(Lay *k, Sub *s)
{
    int part = (int)(s->p - k->p->parts->part);
    int64_t bytes = !k->keep || goes_again(k, part) ? 0
                  : saved_bytes(k->c, s->v, &s->args, &s->bound);

    if (!bytes)
        return;
    *s->saved = (Stored){ .at = arena_room(k, bytes, true), .bytes = bytes,
                          .device = true };
}

static void try_forward(Ctx *c, void *ud)
{
    Lay *k = ((Trying *)ud)->k;
    Sub *s = ((Trying *)ud)->s;
    Call *call = &s->bound.call;

    call->workspace = NULL;
    place_saved(k, s);
    if (k->left)
        return;
    if (k->dry && is_open(s) && !s->saved->bytes)
        prepare_bound(c, s->v, &s->args, &s->bound);
    int64_t bytes = s->saved->bytes
        ? saved_workspace(c, s->v, &s->args, &s->bound, *s->saved)
        : workspace_bound(c, s->v, &s->args, &s->bound);
    call->workspace = arena_room(k, bytes, false);
    call->workspace_size = bytes;
    if (!k->dry && s->saved->bytes)
        run_saved(c, s->v, &s->args, &s->bound, *s->saved);
    else if (!k->dry)
        run_bound(c, s->v, &s->args, &s->bound);
    arena_drop(k, call->workspace);
}

static void forward(Lay *k, Sub *s)
{
    Trying t = { k, s };

    if (!rows_of(k, s))
        run_held(k);
    if (passes_of(k, s)) {
        run_passes(k, s, false);
        return;
    }
    if (rows_of(k, s)) {
        if (s->p->step->nst && (s->bound.call.pages.at || s->bound.call.each)) {
            run_held(k);
            if (!k->left)
                run_rows_apart(k, s);
        } else
            run_rows(k, s, false);
        return;
    }
    if (!wishes(k))
        plans_try(k->c, s->v, try_forward, &t);
}

static void try_backward(Ctx *c, void *ud)
{
    Lay *k = ((Trying *)ud)->k;
    Sub *s = ((Trying *)ud)->s;
    Call *call = &s->bound.call;

    call->workspace = NULL;
    if (k->dry && is_open(s))
        prepare_backward(c, s->v, &s->args, &s->bound);
    s->d.stored = *s->saved;
    if (s->saved->bytes)
        s->d.stored.note = note_saved(c, s->v, &s->args, &s->bound,
                                      s->saved->at);
    int64_t bytes = room_backward(c, s->v, &s->args, &s->bound, &s->d);
    call->workspace = arena_room(k, bytes, false);
    call->workspace_size = bytes;
    if (!k->dry)
        run_backward(c, s->v, &s->args, &s->bound, &s->d);
    arena_drop(k, call->workspace);
}

static void backward(Lay *k, Sub *s)
{
    Trying t = { k, s };

    if (!rows_of(k, s))
        run_held(k);
    if (passes_of(k, s)) {
        run_passes(k, s, true);
        return;
    }
    if (rows_of(k, s)) {
        run_rows(k, s, true);
        return;
    }
    if (!wishes(k))
        plans_try(k->c, s->v, try_backward, &t);
}

/* What is held makes room before others have theirs, and before rows have where
 * the call says how much memory there is. */
static void before(Lay *k, int part)
{
    bool little = k->p->fusion == FUSE_PIECES && k->args->memory;

    if (little || !k->p->rows || !k->p->rows[part])
        run_held(k);
}

/* ---- numbers ---- */

/* Those of the layer, in order, and a 0 before them. */
typedef struct Numbers { Lay *k; int n; } Numbers;

static void make_numbers(Ctx *c, void *ud)
{
    Lay *k = ((Numbers *)ud)->k;
    const Graph *g = k->g;
    int n = 1;
    float *x = ctx_alloc(c, (g->len + 1) * sizeof *x);

    if (k->p->numbers)
        return;
    for (Ref r = 1; r < g->len; r++)
        if (g->n[r].op == OP_num)
            x[n++] = (float)g->n[r].num;
    k->p->nnumbers = n;
    k->p->numbers = gpu_put(c, gpu_of(k), x, (size_t)n * sizeof *x);
}

static void number(Lay *k, Array *v, double x, int which)
{
    (void)x;
    v->data = (void *)(uintptr_t)(k->p->numbers
                                  + (DevicePtr)(which + 1) * sizeof(float));
    v->dtype = F32;
    v->own = false;
}

/* ---- ends of sequences ---- */

typedef struct KeptEnds {
    struct KeptEnds *next;
    DevicePtr p;
    int64_t n;
    int64_t cu[];
} KeptEnds;

/* A graph would read them from memory that is not its own. */
static void keep_ends(Ctx *c, void *ud)
{
    Lay *k = ud;
    int64_t n = k->args->ncu;
    size_t bytes = (size_t)n * sizeof *k->args->cu;
    KeptEnds *e;

    for (e = k->p->ends; e; e = e->next)
        if (e->n == n && !memcmp(e->cu, k->args->cu, bytes))
            break;
    if (!e) {
        e = malloc(sizeof *e + bytes);
        if (!e)
            fail_code(c, ERR_MEMORY, "out of memory");
        *e = (KeptEnds){ .next = k->p->ends, .n = n };
        memcpy(e->cu, k->args->cu, bytes);
        k->p->ends = e;                 /* freed with the program */
    }
    if (!e->p)
        e->p = gpu_put(c, gpu_of(k), e->cu, bytes);
    k->ends = e->p;
}

static void place_ends(Lay *k)
{
    size_t bytes = (size_t)k->args->ncu * sizeof *k->args->cu;
    const Driver *d = gpu_enter(k->c, gpu_of(k));

    k->ends = (uint64_t)(uintptr_t)k->args->device_cu;
    if (!k->args->cu)
        return;
    k->ends = (uint64_t)(uintptr_t)arena_room(k, (int64_t)bytes, false);
    if (k->dry)
        return;
    if (stream_capturing(k->c, d, k->b->call.stream))
        gpu_locked(k->c, gpu_of(k), keep_ends, k);
    else
        stream_put(k->c, d, k->b->call.stream, k->ends, k->args->cu, bytes);
}

/* The program's, freed with it. */
static void make_cutter(Ctx *c, void *ud)
{
    Lay *k = ud;

    if (!k->p->cutter && !(k->p->cutter = calloc(1, sizeof(Ends))))
        fail_code(c, ERR_MEMORY, "out of memory");
    ends_compile(c, gpu_of(k), k->p->cutter);
}

void gpu_block_ends(Lay *k, void *to, int64_t width)
{
    const Call *call = &k->b->call;

    gpu_enter(k->c, gpu_of(k));
    gpu_locked(k->c, gpu_of(k), make_cutter, k);
    if (!k->dry)
        ends_of_blocks(k->c, gpu_of(k), k->p->cutter, call, width,
                       (DevicePtr)(uintptr_t)to);
}

void gpu_layer_release(Variant *v, LayerProgram *p)
{
    for (KeptEnds *e = p->ends, *next; e; e = next) {
        next = e->next;
        gpu_free(v->shared.gpu, e->p, (size_t)e->n * sizeof *e->cu);
        free(e);
    }
    for (int i = 0; p->rows && i < p->parts->n; i++)
        rows_free(v->shared.gpu, p->rows[i]);
    for (int i = 0; p->passes && i < p->parts->n; i++) {
        const Columns *k = p->columns ? p->columns[i] : NULL;
        passes_free(v->shared.gpu, p->passes[i]);
        for (int at = 0; k && at < k->n; at++) {
            passes_free(v->shared.gpu, k->of[at].all->passes[i]);
            if (k->of[at].rest)
                passes_free(v->shared.gpu, k->of[at].rest->passes[i]);
        }
    }
    if (p->cutter)
        ends_free(v->shared.gpu, p->cutter);
    free(p->cutter);
    p->cutter = NULL;
    p->passes = NULL;
    p->ends = NULL;
    p->rows = NULL;
    if (p->numbers)
        gpu_free(v->shared.gpu, p->numbers,
                 (size_t)p->nnumbers * sizeof(float));
    p->numbers = 0;
}

const Realm realm_gpu = { true, type, arena_room, arena_drop, zero, number,
                          move, moves, takes, gives, product, cheap, adds,
                          remakes, over, over_dy, forward, backward, before };

/* ---- a call's memory ---- */

typedef struct Rooms {
    Lay *k;
    LayerRoom room;
    bool found;
} Rooms;

static void find_room(Ctx *c, void *ud)
{
    Rooms *r = ud;
    LayerProgram *p = r->k->p;

    (void)c;
    for (int i = 0; i < LAYER_ROOMS && !r->found; i++)
        if (p->room[i].call == r->room.call) {
            r->room = p->room[i];
            r->found = true;
        }
}

static void note_room(Ctx *c, void *ud)
{
    Rooms *r = ud;
    LayerProgram *p = r->k->p;

    (void)c;
    p->room[p->nrooms++ % LAYER_ROOMS] = r->room;
}

/* A small part of the result. */
static int64_t small_bytes(const Lay *k)
{
    enum { SHARE = 8 };
    int64_t n = k->b->B * k->b->T * dtype_size(type(k, 0));

    for (AxisSet s = k->g->n[k->g->out[0].node].axes; s; s &= s - 1)
        n *= k->b->call.size[lowest(s)];
    return n / SHARE;
}

static void count_filling(Lay *k, void (*f)(Lay *k), bool fills,
                          LayerRoom *room)
{
    memset(k->over, 0, sizeof k->over);
    memset(k->asked, 0, sizeof k->asked);
    k->arena = (Arena){ .small = small_bytes(k), .fills = fills,
                        .region[LARGE].base = ROOM_ALIGN,
                        .region[SMALL].base = (uintptr_t)1 << 60,
                        .region[KEPT].base = (uintptr_t)1 << 61 };
    Gaps *kept = &k->arena.region[KEPT];
    kept->most = k->cut.most < 0 ? (int64_t)1 << 60 : k->cut.most;
    place_ends(k);
    f(k);
    run_held(k);
    memcpy(room->over, k->over, sizeof room->over);
    room->used = kept->used;
    room->kept = k->cut.most < 0 ? kept->used : kept->most;
    room->large = k->arena.region[LARGE].most;
    room->small = k->arena.region[SMALL].most;
    room->rest = room->large + room->small;
    room->fills = fills;
    if (!k->d && room->used + room->rest <= k->cut.most)
        room->rest = 0;
}

/* In the way that takes less. */
static void count_room(Lay *k, void (*f)(Lay *k), LayerRoom *room)
{
    LayerRoom filled = *room;
    bool dry = k->dry;

    k->dry = true;
    count_filling(k, f, false, room);
    if (k->d && k->spends)
        count_filling(k, f, true, &filled);
    else
        filled = *room;
    if (filled.kept + filled.rest < room->kept + room->rest)
        *room = filled;
    k->dry = dry;
}

/* What all calls of the layer have. */
static void make_shared(Lay *k)
{
    Numbers n = { .k = k };

    gpu_enter(k->c, gpu_of(k));
    dense_wish(k->c, gpu_of(k));
    gpu_locked(k->c, gpu_of(k), make_numbers, &n);
    gpu_locked(k->c, gpu_of(k), make_rows, k);
}

/* A dry walk for kernels beside those of plans. */
static void walk_for(Lay *k, void (*f)(Lay *k), Makes makes)
{
    LayerRoom room = { 0 };
    bool dry = k->dry, weighs = k->weighs;

    k->dry = true;
    k->weighs = false;
    k->makes = makes;
    count_filling(k, f, false, &room);
    k->dry = dry;
    k->weighs = weighs;
    k->makes = MAKES_NONE;
}

/* What the call's programs over rows are is known before its plans are: both
 * are compiled side by side. Once each way, where it is counted alone. */
LayerRoom gpu_layer_count(Lay *k, void (*f)(Lay *k))
{
    LayerRoom room = { 0 };
    unsigned way = k->d ? 2 : 1;

    make_shared(k);
    if (!(k->p->wished & way))
        walk_for(k, f, MAKES_WISHES);
    k->p->wished |= way;
    k->makes = MAKES_NONE;
    count_room(k, f, &room);
    return room;
}

void gpu_layer_wish(Lay *k, void (*f)(Lay *k))
{
    make_shared(k);
    walk_for(k, f, MAKES_WISHES);
}

static LayerRoom room_of(Lay *k, void (*f)(Lay *k))
{
    Rooms r = { .k = k, .room = { .call = layer_call_hash(k) | 1 } };

    make_shared(k);
    if (!k->dry)
        gpu_locked(k->c, gpu_of(k), find_room, &r);
    if (r.found)
        return r.room;
    walk_for(k, f, MAKES_WISHES);
    count_room(k, f, &r.room);
    build_wished(k->c, gpu_of(k));
    dense_prepare(k->c, gpu_of(k));
    walk_for(k, f, MAKES_ALL);
    gpu_locked(k->c, gpu_of(k), note_room, &r);
    return r.room;
}

LayerRoom gpu_layer_room(Lay *k, void (*f)(Lay *k))
{
    return room_of(k, f);
}

int64_t gpu_layer_bytes(Lay *k, void (*f)(Lay *k))
{
    LayerRoom r = room_of(k, f);

    return r.kept + r.rest;
}

void gpu_layer(Lay *k, void (*f)(Lay *k))
{
    const Call *call = &k->b->call;
    LayerRoom r = room_of(k, f);
    int64_t need = r.rest + (k->kept_at ? 0 : r.kept);
    uintptr_t at = (uintptr_t)call->workspace;

    if (k->dry)
        return;
    if (at && call->workspace_size < need)
        fail(k->c, 0, "%s: workspace_size = %lld: this call takes %lld bytes",
             mode_name[k->args->mode], (long long)call->workspace_size,
             (long long)need);
    if (!at)
        at = (uintptr_t)gpu_workspace(k->c, gpu_of(k), call->stream,
                                      (size_t)need);
    uintptr_t kept = k->kept_at ? (uintptr_t)k->kept_at : at;
    uintptr_t rest = r.rest ? at + (uintptr_t)(need - r.rest)
                            : kept + (uintptr_t)r.used;
    k->arena = (Arena){ .small = small_bytes(k), .fills = r.fills,
                        .region[KEPT] = { .base = kept, .most = r.kept },
                        .region[LARGE] = { .base = rest, .most = r.large },
                        .region[SMALL] = { .base = rest + (uintptr_t)r.large,
                                           .most = r.small } };
    memcpy(k->over, r.over, sizeof k->over);
    place_ends(k);
    f(k);
    run_held(k);
}

void layer_there(Lay *k, void (*f)(Lay *k))
{
    if (!k->b->call.on_device && k->args->backend == backend_named("cuda"))
        gpu_stage(k->c, k->v, k->args, k->b, k->d);
    else if (k->b->call.on_device)
        gpu_layer(k, f);
    else
        f(k);
}
