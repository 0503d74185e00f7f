/* layer_run.c -- a layer's parts, one after another, forward and backward.
 *
 * Each part is a variant of its own, bound and run as any is, forward and
 * backward, or a matrix product. Where values lie, and in which types, is the
 * place's. Backward runs forward first and keeps all of it.
 */
#include <string.h>

#include "layer_gpu.h"
#include "../backend/cuda/gpu.h"
#include "layer_price.h"
#include "shared.h"

/* ---- programs ---- */

typedef struct NewProgram { Variant *v; LayerProgram *p; } NewProgram;

/* As they run, and what stands for where they do. */
static void cut_parts(Ctx *c, const Layer *l, LayerProgram *p)
{
    const LayerParts *parts = layer_cut(c, l, p->size);
    const uint8_t *place = fuse_places(c, l, parts, p->size, p->fusion,
                                       p->machine);

    p->parts = layer_fuse(c, l, parts, place, p->size);
    p->mark = hash_bytes(p->fusion, place, (size_t)parts->n);
}

static void new_program(Ctx *c, void *ud)
{
    NewProgram *n = ud;
    const int32_t *size = n->p->size;
    LayerProgram *p = ctx_alloc(c, sizeof *p);

    *p = (LayerProgram){ .fusion = n->p->fusion, .device = n->p->device,
                         .machine = n->p->machine };
    memcpy(p->size, size, sizeof p->size);
    cut_parts(c, n->v->step->layer, p);
    find_rows(c, n->v->step->layer, p);
    p->joints = find_joints(c, n->v->step->layer->traced, p->parts, size);
    p->tile = p->fusion == FUSE_TILES
            ? find_tiles(c, n->v->step->layer, p->parts, p->joints)
            : ctx_alloc(c, (size_t)p->parts->n * sizeof *p->tile + 1);
    p->variant = ctx_alloc(c, (size_t)p->parts->n * sizeof *p->variant + 1);
    for (int i = 0; i < p->parts->n; i++) {
        if (!p->parts->part[i].step)
            continue;
        p->variant[i] = ctx_alloc(c, sizeof **p->variant);
        p->variant[i]->ctx = c;
        p->variant[i]->step = p->parts->part[i].step;
    }
    n->p = p;
}

static LayerProgram *find_program(const Variant *v, const Args *a,
                                  const Bound *b)
{
    LayerProgram *p = v->programs;

    while (p && (p->fusion != a->fusion || p->device != b->call.on_device
                 || memcmp(p->size, b->call.size, sizeof p->size)))
        p = p->next;
    return p;
}

/* Made if it is new. */
static LayerProgram *layer_program(Ctx *c, Variant *v, const Args *a,
                                   const Bound *b)
{
    LayerProgram *p = find_program(v, a, b);
    LayerProgram wanted = { .fusion = a->fusion,
                            .device = b->call.on_device };
    NewProgram n = { v, &wanted };

    if (p)
        return p;
    wanted.machine = wanted.device ? gpu_machine(c, v->shared.gpu)
                                   : &machine_cpu;
    memcpy(wanted.size, b->call.size, sizeof wanted.size);
    if (!ctx_protect(v->ctx, new_program, &n)) {
        c->err = v->ctx->err;
        ctx_rethrow(c);
    }
    for (int i = 0; i < n.p->parts->n; i++)
        if (n.p->variant[i])
            n.p->variant[i]->shared = shared_retain(v->shared);
    n.p->next = v->programs;
    return v->programs = n.p;
}

void layer_release(Variant *v)
{
    for (LayerProgram *p = v->programs; p; p = p->next) {
        gpu_layer_release(v, p);
        for (int i = 0; i < p->parts->n; i++)
            if (p->variant[i])
                plans_release(p->variant[i]);
    }
    v->programs = NULL;
}

/* The layer's state that is, or has for a slice, state i of the part. */
static int state_at(const LayerPart *p, int i)
{
    return p->taps ? p->state : p->state + i;
}

/* ---- gradients of values ---- */

void add_grad(Lay *k, Ref r, Array *g)
{
    if (!k->grad[r].data) {
        k->grad[r] = *g;
        return;
    }
    k->realm->move(k, &k->grad[r], g, true);
    drop_array(k, g);
}

/* What several parts add to is float32, or no sum over tokens. */
bool direct_grad(const Lay *k, Ref r, Array *to)
{
    const Node *n = &k->g->n[r];
    bool given = n->op == OP_input && n->index < k->step->nin
              && k->d->dx[n->index].given && k->d->dx[n->index].data;

    if (!given || k->grad[r].data)
        return false;
    View t = input_view(k->step, n->index, &k->d->dx[n->index]);
    *to = input_array(k, n->index, &t);
    return k->readers[r] == 1 || n->timed || to->dtype == F32;
}

/* Is the gradient wanted of what an input of a part, or of what it is made of?
 */
static void find_wanted(Lay *k)
{
    for (int i = 0; i < k->step->nin; i++)
        k->wanted[k->g->in[i].node] = k->d->dx[i].given;
    for (int i = 0; i < k->p->parts->n; i++) {
        const LayerPart *p = &k->p->parts->part[i];
        for (int j = 0; j < p->nin; j++)
            k->wanted[p->y] |= k->wanted[p->in[j]];
        for (int j = 0; p->step && j < p->step->nst; j++)
            k->wanted[p->y] |= k->d->ds[state_at(p, j)].given;
    }
}

/* ---- steps ---- */

/* One axis more of what a tensor is seen as; of one that it lacks, n times the
 * same. */
static void see_axis(Given *g, const Array *v, int ax, int64_t n)
{
    int i = array_find(v, ax);

    g->shape[g->rank] = i < 0 ? n : v->n[i];
    g->stride[g->rank++] = i < 0 ? 0 : v->st[i];
}

/* The value as the part's argument: [B, T, H, ...], or [H, ...]. A constant
 * part has one token. */
static Given see(const Lay *k, const LayerPart *p, const Array *v, bool timed,
                 const uint8_t *order, int rank)
{
    Given g = { .given = true, .data = v->data, .dtype = v->dtype,
                .device = k->b->call.on_device };

    if (timed) {
        see_axis(&g, v, AX_B, p->constant ? 1 : k->b->B);
        see_axis(&g, v, AX_T, p->constant ? 1 : k->b->T);
    }
    see_axis(&g, v, p->heads ? p->heads : -1, 1);
    for (int i = 0; i < rank; i++)
        see_axis(&g, v, p->axis[order[i]], 1);
    return g;
}

static Given see_y(const Lay *k, const LayerPart *p, const Array *v)
{
    const Output *y = &p->step->out[0];

    return see(k, p, v, true, y->order, y->rank);
}

static Given see_input(const Lay *k, const LayerPart *p, int i, const Array *v)
{
    const Input *in = &p->step->in[i];

    return see(k, p, v, in->timed, in->order, in->rank);
}

/* State i of the part, [N, H, ...], where the layer's lies as the view says:
 * with taps, one of its slices. */
static Given see_state(const Lay *k, const LayerPart *p, int i, const View *t)
{
    const State *st = &k->step->st[state_at(p, i)], *own = &p->step->st[i];
    Array v = { .data = t->data, .dtype = t->dtype };
    Given g = { .given = t->data != NULL, .data = t->data, .dtype = t->dtype,
                .device = k->b->call.on_device, .rank = 1,
                .shape = { k->b->states }, .stride = { t->sb } };

    for (int d = 0; d < st->rank; d++) {
        array_add(k, &v, st->order[d]);
        v.st[d] = t->sd[d];
    }
    see_axis(&g, &v, p->heads ? p->heads : -1, 1);
    for (int d = 0; d < own->rank; d++)
        see_axis(&g, &v, p->axis[own->order[d]], 1);
    if (p->taps && g.given) {
        int d = array_find(&v, p->taps);
        g.data = (char *)g.data + (v.n[d] - 1 - i) * v.st[d]
               * dtype_size(g.dtype);
    }
    return g;
}

static Sub *new_sub(Lay *k, int i, Mode mode)
{
    Sub *s = k->sub;
    const LayerPart *p = &k->p->parts->part[i];

    s->p = p;
    s->v = k->p->variant[i];
    s->saved = &k->stored[i];
    memset(s->inplace, 0, sizeof s->inplace);
    memset(s->add, 0, sizeof s->add);
    s->again = false;
    s->args = (Args){ .mode = mode != M_VERIFY || p->step->nst ? mode
                            : M_FORWARD, .cu = k->args->cu, .ncu = k->args->ncu,
                      .device_cu = k->args->device_cu,
                      .chunk = k->args->chunk, .threads = k->args->threads,
                      .serial = k->args->serial, .validate = -1,
                      .part = true,
                      .backend = k->args->backend };
    if (p->constant) {
        s->args.cu = NULL;
        s->args.device_cu = NULL;
        s->args.ncu = 0;
    }
    if (p->step->nst)
        s->args.index = k->args->index;
    for (int j = 0; j < p->nin; j++)
        s->args.in[j] = see_input(k, p, j, &k->value[p->in[j]]);
    for (int j = 0; j < p->step->nst; j++)
        s->args.state[j] = see_state(k, p, j,
                                     &k->b->call.s0[state_at(p, j)]);
    bind_call(k->c, p->step, &s->args, &s->bound);
    s->bound.call.stream = k->b->call.stream;
    s->bound.call.staged = k->b->call.staged;
    return s;
}

static int count_axes(AxisSet s)
{
    int n = 0;

    for (; s; s &= s - 1)
        n++;
    return n;
}

/* The value's axes as they are to lie: as those of the first input that has
 * all of them, else heads first. */
static Array step_array(const Lay *k, const LayerPart *p)
{
    AxisSet all = k->g->n[p->y].axes;
    AxisSet heads = p->heads ? AXIS(p->heads) & all : 0;
    Array v = { 0 };

    array_add_tokens(k, &v, p->y);
    for (int j = 0; j < p->nin; j++) {
        Axes l = axes_of(&k->value[p->in[j]], all);
        if (l.n < count_axes(all))
            continue;
        array_add_list(k, &v, &l);
        return v;
    }
    array_add_axes(k, &v, heads);
    for (int i = 0; i < p->step->out[0].rank; i++)
        array_add(k, &v, p->axis[p->step->out[0].order[i]]);
    return v;
}

static bool is_kept(const Lay *k, Ref r)
{
    return k->keep && k->readers[r] && !k->anew[r];
}

void make_value(Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];
    Array *v = &k->value[p->y];

    *v = step_array(k, p);
    make_room(k, v, k->realm->type(k, p->y), is_kept(k, p->y));
}

void run_step(Lay *k, int i)
{
    Sub *s = new_sub(k, i, k->d ? M_FORWARD : k->args->mode);
    const LayerPart *p = s->p;
    Call *call = &s->bound.call;
    Array *v = &k->value[p->y];

    if (!v->data)
        make_value(k, i);
    Given y = see_y(k, p, v);
    call->out[0] = result_view(p->step, 0, &y);
    /* On a device one token goes on from what the one before has left. */
    bool leaves = !k->d && (!p->borrows
                            || (call->each && k->b->call.on_device));
    for (int j = 0; !leaves && p->borrows && j < p->step->nst; j++)
        call->s1[j] = (View){ 0 };
    for (int j = 0; leaves && j < p->step->nst; j++) {
        Given left = see_state(k, p, j, &k->b->call.s1[state_at(p, j)]);
        if (left.given)
            call->s1[j] = state_view(p->step, j, &left);
        call->s1[j].st = k->b->call.s1[state_at(p, j)].st;
    }
    k->realm->forward(k, s);
}

/* The layer's gradients of states as views; not given: none. */
static void state_views(const Lay *k, const Given *of, View *to)
{
    for (int i = 0; i < k->step->nst; i++)
        to[i] = of[i].given ? state_view(k->step, i, &of[i]) : (View){ 0 };
}

/* Is input j of the part, which has tokens, the same value for all? */
static bool spread(const Lay *k, const LayerPart *p, int j)
{
    return p->step->in[j].timed && !p->constant && !k->g->n[p->in[j]].timed;
}

/* Is the input the part's first one of that value? */
static bool is_first(const LayerPart *p, int j)
{
    for (int i = 0; i < j; i++)
        if (p->in[i] == p->in[j])
            return false;
    return true;
}

/* Is input j's gradient added to what there is of it as it is made? */
static bool adds_to(const Lay *k, int i, int j)
{
    const LayerPart *p = &k->p->parts->part[i];

    return k->grad[p->in[j]].data && is_first(p, j) && !spread(k, p, j)
        && k->realm->adds(k, i, j);
}

/* Room for a gradient of input j: r's own, or, where r is one for all tokens,
 * as if it differed from token to token. */
static Array gradient_array(Lay *k, const LayerPart *p, int j)
{
    Ref r = p->in[j];
    const Array *like = &k->value[r];
    Array v = { 0 };
    bool first = is_first(p, j);

    if (first && !spread(k, p, j)
        && (direct_grad(k, r, &v) || joint_grad(k, r, &v)))
        return v;
    if (first && lies_over(k, r)) {
        v = k->value[r];
        k->value[r].own = false;
        return v;
    }
    v = (Array){ 0 };
    if (p->step->in[j].timed && !p->constant) {
        array_add(k, &v, AX_B);
        array_add(k, &v, AX_T);
    }
    for (int i = 0; i < like->rank; i++)
        if (like->ax[i] < NAXES)
            array_add(k, &v, like->ax[i]);
    make_room(k, &v, k->realm->type(k, r), false);
    return v;
}

/* Adds to r's gradient what is of each token: into one place. */
static void sum_tokens(Lay *k, Ref r, Array *g)
{
    Array sum = { 0 }, all = *g;

    array_add_axes(k, &sum, k->g->n[r].axes);
    make_room(k, &sum, F32, false);
    k->realm->zero(k, &sum);
    for (int i = 0; i < all.rank; i++)
        all.st[i] = i < 2 ? 0 : sum.st[array_find(&sum, all.ax[i])];
    all.data = sum.data;
    all.dtype = sum.dtype;
    k->realm->move(k, &all, g, true);
    drop_array(k, g);
    add_grad(k, r, &sum);
}

/* A layer's state, [N, ...], where the view says. */
static Array state_array(const Lay *k, int i, const View *t)
{
    const State *st = &k->step->st[i];
    Array v = { .data = t->data, .dtype = t->dtype, .rank = 1, .ax = { AX_B },
                .n = { k->b->states }, .st = { t->sb } };

    for (int d = 0; d < st->rank; d++) {
        array_add(k, &v, st->order[d]);
        v.st[d + 1] = t->sd[d];
    }
    return v;
}

/* Is state j of the part the layer's that the one before it is of, too? */
static bool is_slice(const LayerPart *p, int j)
{
    return j && state_at(p, j) == state_at(p, j - 1);
}

/* Of states that other parts leave, the part's own share of the gradients:
 * room for it, in the place of the caller's. */
static Array *place_shares(Lay *k, const LayerPart *p, View *ds)
{
    Array *share = ctx_alloc(k->c, MAX_STATES * sizeof *share);

    for (int j = 0; p->borrows && j < p->step->nst; j++) {
        int i = state_at(p, j);
        if (!k->d->ds[i].given || is_slice(p, j))
            continue;
        share[i] = state_array(k, i, &ds[i]);
        make_room(k, &share[i], ds[i].dtype == F64 ? F64 : F32, false);
        ds[i] = (View){ .data = share[i].data, .dtype = share[i].dtype,
                        .sb = share[i].st[0] };
        memcpy(ds[i].sd, share[i].st + 1, (size_t)k->step->st[i].rank
                                          * sizeof *ds[i].sd);
    }
    return share;
}

static void add_shares(Lay *k, const LayerPart *p, Array *share)
{
    for (int j = 0; p->borrows && j < p->step->nst; j++) {
        int i = state_at(p, j);
        if (!k->d->ds[i].given || is_slice(p, j))
            continue;
        View t = state_view(k->step, i, &k->d->ds[i]);
        Array all = state_array(k, i, &t);
        k->realm->move(k, &all, &share[i], true);
        drop_array(k, &share[i]);
    }
}

void back_step(Lay *k, int i, bool again)
{
    Sub *s = new_sub(k, i, M_BACKWARD);
    const LayerPart *p = s->p;
    View dstate[MAX_STATES], ds[MAX_STATES];
    Array *dx = ctx_alloc(k->c, (size_t)p->nin * sizeof *dx + 1);

    memset(&s->d, 0, sizeof s->d);
    state_views(k, k->d->dstate, dstate);
    state_views(k, k->d->ds, ds);
    if (k->grad[p->y].data)
        s->d.dy[0] = see_y(k, p, &k->grad[p->y]);
    Array *share = place_shares(k, p, ds);
    for (int j = 0; j < p->step->nst; j++) {
        if (!p->borrows)
            s->d.dstate[j] = see_state(k, p, j, &dstate[state_at(p, j)]);
        s->d.ds[j] = see_state(k, p, j, &ds[state_at(p, j)]);
    }
    for (int j = 0; j < p->nin; j++) {
        if (!k->wanted[p->in[j]])
            continue;
        s->add[j] = adds_to(k, i, j);
        dx[j] = s->add[j] ? k->grad[p->in[j]] : gradient_array(k, p, j);
        s->inplace[j] = dx[j].data == k->value[p->in[j]].data && !k->dry;
        s->d.dx[j] = see_input(k, p, j, &dx[j]);
    }
    if (again) {
        make_value(k, i);
        Given y = see_y(k, p, &k->value[p->y]);
        s->bound.call.out[0] = result_view(p->step, 0, &y);
        s->again = true;
    }
    k->realm->backward(k, s);
    add_shares(k, p, share);
    for (int j = 0; j < p->nin; j++)
        if (dx[j].data && spread(k, p, j))
            sum_tokens(k, p->in[j], &dx[j]);
        else if (dx[j].data && !s->add[j])
            add_grad(k, p->in[j], &dx[j]);
}

/* ---- calls ---- */

/* Where the result is to go; its parts may write it there at once. */
static Array y_array(const Lay *k, const View *t)
{
    const Output *y = &k->g->out[0];

    return tensor_array(k, true, y->order, y->rank, t);
}

static void count_readers(Lay *k)
{
    for (int i = 0; i < k->p->parts->n; i++) {
        const LayerPart *p = &k->p->parts->part[i];
        for (int j = 0; j < p->nin; j++) {
            if (!k->readers[p->in[j]]++)
                k->first[p->in[j]] = i;
            k->last[p->in[j]] = i;
        }
    }
}

static Lay *lay_new(Ctx *c, Variant *v, const Args *a, const Bound *b,
                    const Adjoint *d)
{
    Lay *k = ctx_alloc(c, sizeof *k);
    const Graph *g = v->step->layer->traced;

    *k = (Lay){ .c = c, .v = v, .g = g, .step = v->step, .args = a, .b = b,
                .d = d, .realm = b->call.on_device ? &realm_gpu : &realm_host,
                .p = layer_program(c, v, a, b) };
    k->keep = d || (a->mode == M_FORWARD && layer_checkpoints(v, a));
    k->sub = ctx_alloc(c, sizeof *k->sub);
    k->stored = ctx_alloc(c, (size_t)k->p->parts->n * sizeof *k->stored + 1);
    k->readers = ctx_alloc(c, g->len * sizeof *k->readers);
    k->last = ctx_alloc(c, g->len * sizeof *k->last);
    k->first = ctx_alloc(c, g->len * sizeof *k->first);
    k->anew = ctx_alloc(c, g->len);
    k->owed = ctx_alloc(c, g->len * sizeof *k->owed);
    k->wanted = ctx_alloc(c, g->len);
    k->value = ctx_alloc(c, g->len * sizeof *k->value);
    k->grad = ctx_alloc(c, g->len * sizeof *k->grad);
    k->chosen = joint_choice(k);
    k->shelf = ctx_alloc(c, (size_t)k->p->joints->n * sizeof *k->shelf + 1);
    k->dy = ctx_alloc(c, (size_t)k->p->joints->n * sizeof *k->dy + 1);
    count_readers(k);
    if (d)
        find_wanted(k);
    return k;
}

/* The arguments, and what is made of numbers alone. */
static void begin(Lay *k)
{
    const Graph *g = k->g;
    int numbers = 0;

    memset(k->value, 0, g->len * sizeof *k->value);
    memset(k->grad, 0, g->len * sizeof *k->grad);
    memset(k->dy, 0, (size_t)k->p->joints->n * sizeof *k->dy);
    for (int i = 0; i < k->step->nin; i++)
        k->value[g->in[i].node] = input_array(k, i, &k->b->call.in[i]);
    for (Ref r = 1; r < g->len; r++)
        if (g->n[r].op == OP_num)
            k->realm->number(k, &k->value[r], g->n[r].num, numbers++);
}

/* The way back takes nothing from a part whose result none reads, and whose
 * states' gradients are none's. */
static bool is_needed(const Lay *k, const LayerPart *p)
{
    return !k->d || k->readers[p->y] || (k->left && p->step);
}

/* Behind the last part that reads them, where nobody will any more. */
static void drop_values(Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];

    for (int j = 0; j < p->nin; j++)
        if (k->last[p->in[j]] == i && p->in[j] != k->g->out[0].node
            && (!k->keep || k->anew[p->in[j]]))
            drop_array(k, &k->value[p->in[j]]);
}

/* What is cheap, made of what is kept, and read by no call. */
static void find_anew(Lay *k)
{
    const LayerParts *parts = k->p->parts;

    memset(k->anew, 0, k->g->len);
    for (int i = 0; k->keep && i < parts->n; i++) {
        const LayerPart *p = &parts->part[i];
        bool all = k->realm->cheap(k, i) && !p->constant && k->readers[p->y];
        for (int j = 0; j < p->nin; j++)
            all = all && !k->anew[p->in[j]];
        for (int j = k->first[p->y]; all && j <= k->last[p->y]; j++)
            for (int in = 0; in < parts->part[j].nin; in++)
                all = all && (parts->part[j].in[in] != p->y
                              || !parts->part[j].step
                              || k->realm->cheap(k, j));
        k->anew[p->y] = all;
    }
}

/* On the way back, before part i: what it reads, computed again. */
static void make_anew(Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];
    bool keep = k->keep, left = k->left;

    for (int j = 0; j < p->nin; j++) {
        Ref r = p->in[j];
        int of = 0;
        if (!k->anew[r] || k->value[r].data)
            continue;
        while (k->p->parts->part[of].y != r)
            of++;
        k->keep = k->left = false;
        run_step(k, of);
        k->keep = keep;
        k->left = left;
    }
}

static void drop_anew(Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];

    for (int j = 0; j < p->nin; j++)
        if (k->anew[p->in[j]] && k->first[p->in[j]] == i)
            drop_array(k, &k->value[p->in[j]]);
}

static void run_parts(Lay *k)
{
    find_anew(k);
    for (int i = 0; i < k->p->parts->n; i++) {
        const LayerPart *p = &k->p->parts->part[i];
        ctx_poll(k->c);
        if (!is_needed(k, p))
            continue;
        if (k->left && k->anew[p->y]) {
            k->value[p->y] = step_array(k, p);  /* for its axes */
            continue;
        }
        const Joint *j = joint_of(k, i);
        if (k->p->tile[i] < 0)
            continue;
        if (k->p->tile[i] > 0) {
            run_tiles(k, i);
            drop_values(k, k->p->tile[i] - 1);
        } else if (k->p->variant[i])
            run_step(k, i);
        else if (!j)
            run_product(k, p);
        else if (j->at == i)
            run_joint(k, j);
        drop_values(k, i);
    }
}

static void run_forward(Lay *k)
{
    Ref root = k->g->out[0].node;
    Array y = y_array(k, &k->b->call.out[0]);

    begin(k);
    if (y.data && !k->readers[root] && k->g->n[root].op != OP_input)
        k->value[root] = y;
    run_parts(k);
    if (y.data && k->value[root].data != y.data)
        k->realm->move(k, &y, &k->value[root], false);
}

/* What the caller wants of the gradients of arguments. */
static void give_gradients(Lay *k)
{
    for (int i = 0; i < k->step->nin; i++) {
        Array *g = &k->grad[k->g->in[i].node];
        if (!k->d->dx[i].given || !k->d->dx[i].data)
            continue;
        View t = input_view(k->step, i, &k->d->dx[i]);
        Array to = input_array(k, i, &t);
        if (!g->data)
            k->realm->zero(k, &to);
        else if (g->data != to.data)
            k->realm->move(k, &to, g, false);
    }
}

/* Does a gradient come to the part? States' gradients are wanted all the same:
 * then a result's is that comes, of zeros. */
static bool has_adjoint(Lay *k, const LayerPart *p)
{
    Array *g = &k->grad[p->y];
    bool any = g->data != NULL;

    for (int j = 0; j < p->step->nst; j++)
        any = any || (!p->borrows && k->d->dstate[state_at(p, j)].given);
    if (!any && p->step->nst) {
        *g = step_array(k, p);
        make_room(k, g, k->realm->type(k, p->y), false);
        k->realm->zero(k, g);
    }
    return any || p->step->nst;
}

/* What gradients are added to is there from the beginning. */
static void take_sums(Lay *k)
{
    for (int i = 0; i < k->step->nin; i++) {
        if (!k->d->dx[i].given || !k->d->dx[i].data || !k->d->add[i])
            continue;
        View t = input_view(k->step, i, &k->d->dx[i]);
        k->grad[k->g->in[i].node] = input_array(k, i, &t);
    }
}

/* Does the way back of the part that made the product's values make them again,
 * once it has their gradient? All that reads them waits for it then. */
static bool comes_again(const Lay *k, int i, const Joint *j)
{
    const LayerParts *parts = k->p->parts;
    Ref x = parts->part[i].in[0];
    bool wanted = false;
    int of = 0;

    for (int at = 0; at < (j ? j->n : 1); at++)
        wanted |= k->wanted[parts->part[j ? j->part[at] : i].in[1]];
    if (parts->part[i].step || k->p->tile[i] || !wanted || !k->wanted[x]
        || !k->anew[x] || k->value[x].data
        || k->readers[x] != (j ? j->n : 1))
        return false;
    while (parts->part[of].y != x)
        of++;
    return k->realm->remakes(k, of);
}

static void back_owed(Lay *k, int i, const Joint *j)
{
    const LayerPart *p = &k->p->parts->part[i];

    if (j)
        back_weights(k, j);
    else if (k->grad[p->y].data)
        back_weight(k, p);
    drop_array(k, &k->grad[p->y]);
}

/* A product, or joint: its values' gradient, and the weights', if these need
 * not wait. */
static void back_factors(Lay *k, int i, const Joint *j)
{
    const LayerPart *p = &k->p->parts->part[i];
    bool waits = comes_again(k, i, j);

    if (!waits)
        make_anew(k, i);
    if (j)
        back_joint(k, j);
    else if (k->grad[p->y].data)
        back_product(k, p);
    if (waits && k->grad[p->in[0]].data) {
        k->owed[p->in[0]] = i + 1;
        return;
    }
    if (waits)
        make_anew(k, i);
    back_owed(k, i, j);
    drop_anew(k, i);
}

static void back_part(Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];
    int owed = k->owed[p->y];

    make_anew(k, i);
    if (k->p->tile[i] > 0)
        make_anew(k, k->p->tile[i] - 1);
    if (k->p->tile[i] > 0 && k->grad[p->y].data)
        back_tiles(k, i);
    else if (k->p->variant[i] && has_adjoint(k, p))
        back_step(k, i, owed);
    drop_array(k, &k->grad[p->y]);
    drop_anew(k, i);
    if (!owed)
        return;
    back_owed(k, owed - 1, joint_of(k, owed - 1));
    drop_array(k, &k->value[p->y]);
    k->owed[p->y] = 0;
}

static void run_both_ways(Lay *k)
{
    Ref y = k->g->out[0].node;

    begin(k);
    take_sums(k);
    run_parts(k);
    if (k->d->dy[0].given) {
        View dy = result_view(k->v->step, 0, &k->d->dy[0]);
        if (k->dry && !dy.data)
            dy.data = k;                /* somewhere: nobody reads it */
        k->grad[y] = y_array(k, &dy);
    }
    for (int i = k->p->parts->n - 1; i >= 0; i--) {
        const LayerPart *p = &k->p->parts->part[i];
        const Joint *j = joint_of(k, i);
        ctx_poll(k->c);
        if (j && j->at != i)
            continue;
        if (!j && !k->wanted[p->y])
            drop_anew(k, i);
        else if (k->p->tile[i] < 0)
            ;                           /* with what reads it */
        else if (p->step)
            back_part(k, i);
        else
            back_factors(k, i, j);
    }
    give_gradients(k);
}

/* As a call that keeps what the way back reads. */
static Lay *lay_saving(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    Lay *k = lay_new(c, v, a, b, NULL);

    k->keep = true;
    return k;
}

static void run_all(Lay *k)
{
    if (k->d)
        run_both_ways(k);
    else
        run_forward(k);
}

void layer_run(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    layer_there(lay_new(c, v, a, b, NULL), run_all);
}

void find_left(Lay *k)
{
    const Stored *s = &k->d->stored;
    Note now = { 0 };

    if (!s->bytes || !k->b->call.on_device)
        return;
    now = note_saved(k->c, k->v, k->args, k->b, s->at);
    if (!now.plan || now.plan != s->note.plan || now.call != s->note.call
        || k->v->runs->saved_bytes(k->c, k->v, k->args, k->b) != s->bytes)
        return;
    k->left = true;
    k->kept_at = s->at;
}

static void check_sums(const Lay *k)
{
    bool staged = !k->b->call.on_device
               && k->args->backend == backend_named("cuda");

    for (int i = 0; i < k->step->nin; i++) {
        const Input *in = &k->step->in[i];
        const Given *t = &k->d->dx[i];
        if (!k->d->add[i] || !t->given)
            continue;
        if (in->timed || t->dtype != F32 || staged)
            fail_help(k->c, 0, staged ? "tensors on the GPU"
                      : "float32 tensors, for weights", "backward: %s: "
                      "gradients are added up %s", in->name, in->timed
                      ? "of weights, and this is an input" : staged
                      ? "where the weights are, on the CPU here, but the call "
                        "runs on the GPU" : ctx_format(k->c, "in float32, and "
                      "this tensor is %s", dtype_name(t->dtype)));
    }
}

void layer_backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                    const Adjoint *d)
{
    Lay *k = lay_new(c, v, a, b, d);

    check_sums(k);
    check_inplace(k);
    find_left(k);
    layer_there(k, run_all);
}

int64_t layer_saved_bytes(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    Args forward = *a;

    forward.mode = M_FORWARD;
    return !b->call.on_device ? 0
         : gpu_layer_room(lay_saving(c, v, &forward, b), run_all).kept;
}

int64_t layer_run_saved(Ctx *c, Variant *v, const Args *a, const Bound *b,
                        Stored room)
{
    Lay *k = lay_saving(c, v, a, b);
    int64_t bytes = gpu_layer_room(k, run_all).kept;

    if (bytes > room.bytes)
        return bytes;
    k->kept_at = room.at;
    layer_there(k, run_all);
    return bytes;
}

static uint64_t mark_program(const Variant *v, const Args *a, const Bound *b)
{
    Lay k = { .g = v->step->layer->traced, .step = v->step, .b = b,
              .realm = b->call.on_device ? &realm_gpu : &realm_host,
              .p = find_program(v, a, b) };
    uint64_t chosen = k.p ? joint_choice(&k) : 0;

    return k.p ? hash_bytes(k.p->mark, &chosen, sizeof chosen) : 0;
}

uint64_t layer_mark(const Variant *v, const Args *a, const Bound *b)
{
    const int64_t x[] = { a->chunk, a->serial, v->turned, v->step->len };
    uint64_t h = hash_bytes(2, x, sizeof x), mark = mark_program(v, a, b);

    h = hash_bytes(h, &mark, sizeof mark);
    h = hash_bytes(h, v->step->name, strlen(v->step->name));
    return hash_bytes(h, b->call.size, sizeof b->call.size);
}

void layer_prepare(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    const Adjoint *d = a->mode != M_BACKWARD ? NULL
                     : all_gradients(c, v->step, a, b);
    Lay *k = lay_new(c, v, a, b, d);

    if (d) {                            /* it runs forward alone, too */
        Args *forward = ctx_alloc(c, sizeof *forward);
        *forward = *a;
        forward->mode = M_FORWARD;
        layer_prepare(c, v, forward, b);
    }
    k->dry = true;
    if (b->call.on_device)
        gpu_layer(k, run_all);
    else
        run_all(k);
}

static int64_t workspace_of(Ctx *c, Variant *v, const Args *a, const Bound *b,
                            const Adjoint *d)
{
    Lay *k = lay_new(c, v, a, b, d);

    if (!b->call.on_device)
        return 0;
    if (!d || !d->stored.bytes
        || layer_saved_bytes(c, v, a, b) != d->stored.bytes)
        return gpu_layer_bytes(k, run_all);
    Args forward = *a;                  /* both halves in the same workspace */
    forward.mode = M_FORWARD;
    int64_t left = gpu_layer_room(lay_saving(c, v, &forward, b), run_all).rest;
    k->left = true;
    int64_t back = gpu_layer_room(k, run_all).rest;
    return left > back ? left : back;
}

/* Also of such a call that adds the gradients of weights. */
int64_t layer_workspace(Ctx *c, Variant *v, const Args *a, const Bound *b,
                        const Adjoint *d)
{
    int64_t bytes = workspace_of(c, v, a, b, d), more;

    if (!d || !b->call.on_device)
        return bytes;
    Adjoint *sums = ctx_alloc(c, sizeof *sums);
    *sums = *d;
    for (int i = 0; i < v->step->nin; i++)
        if (d->dx[i].given && !v->step->in[i].timed) {
            sums->add[i] = true;
            sums->dx[i].dtype = F32;
        }
    more = workspace_of(c, v, a, b, sums);
    return more > bytes ? more : bytes;
}

static const PlanEntry *any_plan(const LayerProgram *p)
{
    const Backend *gpu = backend_named("cuda");

    for (int i = 0; i < p->parts->n; i++)
        for (const PlanEntry *e = p->variant[i] ? p->variant[i]->plans : NULL;
             e; e = e->next)
            if (e->backend == gpu && e->program)
                return e;
    return NULL;
}

const PlanEntry *layer_plan(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    const LayerProgram *p;

    if (!b->call.on_device)
        return NULL;
    p = layer_program(c, v, a, b);
    if (!any_plan(p))
        layer_prepare(c, v, a, b);
    return any_plan(p);
}

const LayerRuns layer_runs_by_parts = {
    .prepare = layer_prepare, .release = layer_release, .plan = layer_plan,
    .workspace = layer_workspace, .forward = layer_run,
    .backward = layer_backward, .saved_bytes = layer_saved_bytes,
    .run_saved = layer_run_saved, .mark = layer_mark,
};
