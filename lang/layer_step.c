/* layer_step.c -- a layer's parts that are steps, each a variant of its own:
 * their calls, and the gradients of what they read.
 */
#include <string.h>

#include "layer_run.h"

int state_at(const LayerPart *p, int i)
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

void add_grad_copy(Lay *k, Ref r, const Array *g)
{
    Array to = { 0 };

    if (k->grad[r].data) {
        k->realm->move(k, &k->grad[r], g, true);
        return;
    }
    if (!direct_grad(k, r, &to) && !joint_grad(k, r, &to)) {
        for (int d = 0; d < g->rank; d++)
            array_add(k, &to, g->ax[d]);
        make_room(k, &to, k->realm->type(k, r), false);
    }
    k->realm->move(k, &to, g, false);
    add_grad(k, r, &to);
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

/* ---- steps ---- */

/* One axis more of what a tensor is seen as; of one that it lacks, n times the
 * same. */
static void see_axis(Given *g, const Array *v, int ax, int64_t n)
{
    int i = array_find(v, ax);

    g->shape[g->rank] = i < 0 ? n : v->n[i];
    g->stride[g->rank++] = i < 0 ? 0 : v->st[i];
}

/* The same of batch entries or tokens: n of them from one on. */
static void see_some(Given *g, const Array *v, int ax, int64_t from, int64_t n)
{
    int i = array_find(v, ax);
    int64_t apart = i < 0 ? 0 : v->st[i];

    g->shape[g->rank] = n;
    g->stride[g->rank++] = apart;
    if (g->data)
        g->data = (char *)g->data + from * apart * dtype_size(g->dtype);
}

/* The value as the part's argument: [B, T, H, ...], or [H, ...], of the piece
 * that runs. A constant part has one token. */
static Given see(const Lay *k, const LayerPart *p, const Array *v, bool timed,
                 const uint8_t *order, int rank)
{
    Given g = { .given = true, .data = v->data, .dtype = v->dtype,
                .device = k->b->call.on_device };

    if (timed) {
        const Piece one = { .nb = 1, .nt = 1 };
        const Piece *of = p->constant ? &one : &k->piece;
        see_some(&g, v, AX_B, of->b, of->nb);
        see_some(&g, v, AX_T, of->t, of->nt);
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

    if (k->piece.n > 1) {               /* a batch entry has one each */
        g.shape[0] = k->piece.nb;
        if (g.given)
            g.data = (char *)g.data + k->piece.b * t->sb
                   * dtype_size(g.dtype);
    }

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
    enum { SOMEWHERE = 1 << 12 };
    Sub *s = k->sub;
    const LayerPart *p = &k->p->parts->part[i];

    s->p = p;
    s->v = k->p->variant[i];
    s->saved = &k->stored[i][k->piece.at];
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
    for (int j = 0; j < p->nin; j++) {
        s->args.in[j] = see_input(k, p, j, &k->value[p->in[j]]);
        if (k->left && !k->back && k->anew[p->in[j]])
            s->args.in[j].data = (void *)SOMEWHERE;     /* nobody reads it */
    }
    for (int j = 0; j < p->step->nst; j++)
        s->args.state[j] = hands_on(&k->piece)
                         ? state_before(k, i, j, k->piece.at)
                         : see_state(k, p, j, &k->b->call.s0[state_at(p, j)]);
    bind_call(k->c, p->step, &s->args, &s->bound);
    s->bound.call.stream = k->b->call.stream;
    s->bound.call.staged = k->b->call.staged;
    return s;
}

Sub *see_sub(Lay *k, int i)
{
    Sub *now = k->sub;

    k->sub = ctx_alloc(k->c, sizeof *k->sub);
    Sub *found = new_sub(k, i, M_BACKWARD);
    k->sub = now;
    return found;
}

static int count_axes(AxisSet s)
{
    int n = 0;

    for (; s; s &= s - 1)
        n++;
    return n;
}

Array step_array(const Lay *k, const LayerPart *p)
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

/* Of a piece whose states go on to the next, these. */
static void leave_states(const Lay *k, int i, Call *call)
{
    const LayerPart *p = &k->p->parts->part[i];

    for (int j = 0; j < p->step->nst; j++) {
        Given left = state_before(k, i, j, k->piece.at + 1);
        call->s1[j] = state_view(p->step, j, &left);
    }
}

static void run_piece(Lay *k, int i)
{
    Sub *s = new_sub(k, i, k->d ? M_FORWARD : k->args->mode);
    const LayerPart *p = s->p;
    Call *call = &s->bound.call;

    Given y = see_y(k, p, &k->value[p->y]);
    call->out[0] = result_view(p->step, 0, &y);
    /* On a device one token goes on from what the one before has left. */
    bool leaves = !k->d && (!p->borrows
                            || (call->each && k->b->call.on_device));
    bool goes_on = k->piece.t + k->piece.nt < k->b->T;
    if (goes_on)
        leave_states(k, i, call);
    for (int j = 0; !leaves && p->borrows && j < p->step->nst; j++)
        call->s1[j] = (View){ 0 };
    for (int j = 0; leaves && !goes_on && j < p->step->nst; j++) {
        Given left = see_state(k, p, j, &k->b->call.s1[state_at(p, j)]);
        if (left.given)
            call->s1[j] = state_view(p->step, j, &left);
        call->s1[j].st = k->b->call.s1[state_at(p, j)].st;
    }
    k->realm->forward(k, s);
    if (k->weighs)
        weigh_piece(k, s);
}

void run_step(Lay *k, int i)
{
    if (!k->value[k->p->parts->part[i].y].data)
        make_value(k, i);
    k->piece = piece_of(k, i, 0);
    place_states(k, i);
    for (int at = 0, n = k->piece.n; at < n; at++) {
        k->piece = piece_of(k, i, at);
        run_piece(k, i);
    }
    k->piece = whole_piece(k);
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

/* May a gradient with such axes be written over the result's, which nobody
 * reads behind the part? */
static bool lies_over_dy(const Lay *k, int i, int j, const Array *v)
{
    const LayerPart *p = &k->p->parts->part[i];
    const Array *dy = &k->grad[p->y];

    return k->realm->over_dy && dy->own && !dy->shelf
        && dy->dtype == k->realm->type(k, p->in[j]) && dy->rank == v->rank
        && !memcmp(dy->ax, v->ax, (size_t)v->rank * sizeof *v->ax)
        && k->realm->over_dy(k, i, j);
}

/* Room for a gradient of input j: r's own, or, where r is one for all tokens,
 * as if it differed from token to token. */
static Array gradient_array(Lay *k, int i, int j)
{
    const LayerPart *p = &k->p->parts->part[i];
    Ref r = p->in[j];
    const Array *like = &k->value[r];
    Array v = { 0 };
    bool first = is_first(p, j);

    if (first && !spread(k, p, j)
        && (direct_grad(k, r, &v) || joint_grad(k, r, &v)))
        return v;
    if (first && lies_over(k, i, r)) {
        v = k->value[r];
        k->value[r].own = false;
        k->value[r].shelf = NULL;
        return v;
    }
    v = (Array){ 0 };
    if (p->step->in[j].timed && !p->constant) {
        array_add(k, &v, AX_B);
        array_add(k, &v, AX_T);
    }
    for (int d = 0; d < like->rank; d++)
        if (like->ax[d] < NAXES)
            array_add(k, &v, like->ax[d]);
    if (first && !spread(k, p, j) && lies_over_dy(k, i, j, &v)) {
        v = k->grad[p->y];
        k->grad[p->y].own = false;
        return v;
    }
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

/* Room for the result that the way back makes again: over its gradient, where
 * that is the call's own, and can be. */
static void make_again(Lay *k, int i)
{
    const LayerPart *p = &k->p->parts->part[i];
    Array *d = &k->grad[p->y], *v = &k->value[p->y];

    if (!k->spends || !d->own || d->dtype != k->realm->type(k, p->y)
        || array_count(d) != array_count(v)
        || !k->realm->over(k, i, OVER_RESULT)) {
        make_value(k, i);
        return;
    }
    *v = *d;
    d->own = false;
}

/* What the way back of a piece is given: dy, and of states. */
static void see_adjoints(Lay *k, Sub *s, int i, const View *dstate,
                         const View *ds)
{
    const LayerPart *p = s->p;
    const Piece *of = &k->piece;

    memset(&s->d, 0, sizeof s->d);
    if (k->grad[p->y].data)
        s->d.dy[0] = see_y(k, p, &k->grad[p->y]);
    for (int j = 0; j < p->step->nst; j++) {
        if (of->t + of->nt < k->b->T)
            s->d.dstate[j] = adjoint_before(k, i, j, of->at + 1);
        else if (!p->borrows)
            s->d.dstate[j] = see_state(k, p, j, &dstate[state_at(p, j)]);
        s->d.ds[j] = hands_on(of) ? adjoint_before(k, i, j, of->at)
                   : see_state(k, p, j, &ds[state_at(p, j)]);
    }
}

/* Has input j's gradient a place for each token, which pieces share? */
static bool is_shared(const LayerPart *p, int j)
{
    return p->step->in[j].timed && !p->constant;
}

/* Gradients of the piece that runs; those of all tokens' places are made by the
 * first. */
static void back_piece(Lay *k, int i, bool first, Array *dx, bool again,
                       const View *dstate, const View *ds)
{
    Sub *s = new_sub(k, i, M_BACKWARD);
    const LayerPart *p = s->p;

    see_adjoints(k, s, i, dstate, ds);
    for (int j = 0; j < p->nin; j++) {
        if (!k->wanted[p->in[j]])
            continue;
        s->add[j] = adds_to(k, i, j);
        if (first || !is_shared(p, j))
            dx[j] = s->add[j] ? k->grad[p->in[j]] : gradient_array(k, i, j);
        s->inplace[j] = dx[j].data == k->value[p->in[j]].data && !k->dry;
        s->d.dx[j] = see_input(k, p, j, &dx[j]);
    }
    if (again) {
        make_again(k, i);
        Given y = see_y(k, p, &k->value[p->y]);
        s->bound.call.out[0] = result_view(p->step, 0, &y);
        s->again = true;
    }
    k->realm->backward(k, s);
    for (int j = 0; j < p->nin; j++)
        if (dx[j].data && !is_shared(p, j) && !s->add[j])
            add_grad(k, p->in[j], &dx[j]);
}

void back_step(Lay *k, int i, bool again)
{
    const LayerPart *p = &k->p->parts->part[i];
    View dstate[MAX_STATES], ds[MAX_STATES];
    Array *dx = ctx_alloc(k->c, (size_t)p->nin * sizeof *dx + 1);
    bool *added = ctx_alloc(k->c, (size_t)p->nin + 1);

    for (int j = 0; j < p->nin; j++)
        added[j] = k->wanted[p->in[j]] && adds_to(k, i, j);
    state_views(k, k->d->dstate, dstate);
    state_views(k, k->d->ds, ds);
    Array *share = place_shares(k, p, ds);
    k->piece = piece_of(k, i, 0);
    place_adjoints(k, i);
    for (int n = k->piece.n, at = n; at-- > 0;) {
        k->piece = piece_of(k, i, at);
        back_piece(k, i, at + 1 == n, dx, again, dstate, ds);
    }
    k->piece = whole_piece(k);
    if (k->adjoint)
        k->realm->drop(k, k->adjoint);
    k->adjoint = NULL;
    add_shares(k, p, share);
    for (int j = 0; j < p->nin; j++)
        if (dx[j].data && spread(k, p, j))
            sum_tokens(k, p->in[j], &dx[j]);
        else if (dx[j].data && is_shared(p, j) && !added[j])
            add_grad(k, p->in[j], &dx[j]);
}
