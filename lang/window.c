/* window.c -- calls of masks that end at a distance, as two scans over blocks
 * (compiler/mask_window.c), in the host's memory; and one over whole sequences,
 * where their first tokens weigh otherwise.
 *
 * Blocks are sequences of a call. Those of the second scan begin with the last
 * token of a block: its tensors are seen with tokens counted backwards, and
 * those that read, a block further on. Where the last block of a sequence is
 * short, its tokens start from a state that the block before has made with the
 * keys that all of them read.
 */
#include <string.h>

#include "../compiler/grad.h"
#include "../compiler/mask.h"
#include "shared.h"
#include "window.h"

/* ---- which calls ---- */

static Variant *new_scan(Ctx *c, Graph *step)
{
    Variant *v = ctx_alloc(c, sizeof *v);

    v->ctx = c;
    v->step = step;
    v->weighed = true;
    return v;
}

static void new_scans(Ctx *c, void *ud)
{
    Variant *v = ud, **scan = ctx_alloc(c, NSCANS * sizeof *scan);

    scan[WITHIN] = new_scan(c, v->step->window->within);
    scan[ACROSS] = new_scan(c, v->step->window->across);
    scan[KEPT] = new_scan(c, v->step->window->kept);
    if (v->step->window->sinks)
        scan[SINKS] = new_scan(c, v->step->window->sinks);
    for (int i = 0; i < NSCANS && scan[i]; i++)
        scan[i]->shared = shared_retain(v->shared);
    v->scan = scan;
}

static Variant *scan_of(Ctx *c, Variant *v, int i)
{
    if (!v->scan && !ctx_protect(v->ctx, new_scans, v)) {
        c->err = v->ctx->err;
        ctx_rethrow(c);
    }
    return v->scan[i];
}

/* Whether the call is one of the host's tile machine, without gradients of
 * what it ends with. */
static bool is_plain(Ctx *c, const Variant *v, const Args *a, const Bound *b,
                     const Adjoint *d)
{
    const Call *call = &b->call;
    bool runs = a->mode == M_FORWARD || a->mode == M_BACKWARD;

    for (int i = 0; d && i < v->step->nst; i++)
        if (d->dstate[i].given)
            return false;
    return v->step->window && runs && !a->serial && !a->ends
        && !call->on_device && !call->pages.at
        && call_backend(c, a, call) == backend_named("cpu");
}

static bool has_start(const Graph *step, const Call *call)
{
    for (int i = 0; i < step->nst; i++)
        if (call->s0[i].data)
            return true;
    return false;
}

/* How many tokens sequence n had before the call; -1: it is no such number. */
static int64_t tokens_before(const Window *w, const Call *call, int64_t n,
                             int head)
{
    const View *v = &call->s0[w->position];
    double x = !v->data ? 0
             : view_get(v, n * v->sb + head / (call->heads / v->heads)
                                       * v->sh);

    return x >= 0 && x < 1 << 24 && x == (double)(int64_t)x ? (int64_t)x : -1;
}

/* Whether of a call that starts from states no token is left in the rings that
 * it ends with; how many tokens it has, and how many may read them. */
static bool passes_start(const Window *w, const Call *call, double *all,
                         double *reading)
{
    *all = *reading = 0;
    for (int64_t n = 0; n < call->nseq; n++) {
        int64_t len = call->seq[n].len;
        for (int h = 0; h < call->heads; h++)
            if (tokens_before(w, call, n, h) < 0)
                return false;
        if (len < call->size[w->ring_axis])
            return false;
        *all += (double)len;
        *reading += (double)w->width;
    }
    return true;
}

WindowPlans *window_plans(Ctx *c, Variant *v, const Args *a, const Bound *b,
                          const Adjoint *d)
{
    const Backend *cpu = backend_named("cpu");
    const int32_t *size = b->call.size;
    bool joint = a->mode == M_BACKWARD;
    int chunk = plan_chunk(a);
    double tokens = 1, reading = 0;

    if (!is_plain(c, v, a, b, d))
        return NULL;
    bool start = has_start(v->step, &b->call);
    if (start && (joint || !passes_start(v->step->window, &b->call, &tokens,
                                         &reading)))
        return NULL;
    WindowPlans *p = ctx_alloc(c, sizeof *p);
    double two = 0;
    for (int i = 0; i < NSCANS; i++) {
        Variant *s = scan_of(c, v, i);
        if (!s)
            continue;
        p->scan[i] = plan_for(c, s, size, chunk, joint && i != KEPT, cpu);
        if (p->scan[i]->note)
            return NULL;
        two += i == KEPT ? 0 : p->scan[i]->price;
    }
    PlanEntry *one = plan_for(c, v, size, chunk, joint, cpu);
    if (tokens * two + reading * one->price >= tokens * one->price)
        return NULL;
    if (!one->passed)
        one->passed = true;
    p->first = start ? one : NULL;
    p->start = plan_for_ends(c, scan_of(c, v, ACROSS), size, chunk, cpu);
    return p;
}

void window_prepare(Ctx *c, Variant *v, const Args *a, const Bound *b,
                    Mode mode)
{
    Args plain = *a;
    Bound *start = ctx_alloc(c, sizeof *start);

    plain.mode = mode;
    *start = *b;
    memset(start->call.s0, 0, sizeof start->call.s0);
    window_plans(c, v, &plain, start, NULL);
}

/* ---- a call in progress ---- */

typedef struct Blocks { int64_t n; Seq *seq; } Blocks;

typedef struct Scanning {
    Ctx *c;
    const Graph *step;
    const Window *w;
    const WindowPlans *p;
    const Bound *b;
    Blocks all;                         /* blocks */
    Blocks full, cut;                   /* those with a block before them:
                                           whole, short; by the keys there */
    Blocks rest;                        /* of cut ones: the keys behind */
    View lead;
    View place, late;                   /* a token's number in its sequence;
                                           whether it is none of the first */
} Scanning;

static void add_block(Blocks *to, int32_t b, int64_t start, int64_t len)
{
    to->seq[to->n++] = (Seq){ b, start, len };
}

/* Tokens counted backwards. */
static void add_turned(Blocks *to, int32_t b, int64_t start, int64_t len)
{
    add_block(to, b, 1 - start - len, len);
}

static void cut_blocks(Scanning *k)
{
    const Call *call = &k->b->call;
    int64_t W = k->w->width, n = 1;
    Blocks *lists[] = { &k->all, &k->full, &k->cut, &k->rest };

    for (int64_t s = 0; s < call->nseq; s++)
        n += (call->seq[s].len + W - 1) / W;
    for (int i = 0; i < 4; i++)
        lists[i]->seq = ctx_alloc(k->c, (size_t)n * sizeof(Seq));
    for (int64_t s = 0; s < call->nseq; s++) {
        const Seq all = call->seq[s];
        for (int64_t at = 0; at < all.len; at += W) {
            int64_t len = all.len - at < W ? all.len - at : W;
            int64_t before = all.start + at - W;
            add_block(&k->all, all.b, all.start + at, len);
            if (at)
                add_turned(len < W ? &k->cut : &k->full, all.b, before, len);
            if (at && len < W)
                add_turned(&k->rest, all.b, before + len, W - len);
        }
    }
}

/* Room for `rows` times all heads' entries, zeros. */
static View room(Scanning *k, const uint8_t *order, int rank, int64_t rows,
                 bool timed)
{
    View v = { .dtype = F32, .heads = k->b->call.heads };
    int64_t n = 1;

    for (int i = rank; i-- > 0;) {
        v.sd[i] = n;
        n *= k->b->call.size[order[i]];
    }
    v.sh = n;
    v.st = timed ? n * v.heads : 0;
    v.sb = timed ? v.st * k->b->T : n * v.heads;
    v.data = ctx_alloc(k->c, (size_t)(n * v.heads * rows + 1) * sizeof(float));
    return v;
}

static View tokens_room(Scanning *k, const uint8_t *order, int rank)
{
    return room(k, order, rank, k->b->B * k->b->T, true);
}

static void find_places(Scanning *k)
{
    const Call *call = &k->b->call;

    k->place = tokens_room(k, NULL, 0);
    k->late = tokens_room(k, NULL, 0);
    for (int64_t n = 0; n < call->nseq; n++)
        for (int h = 0; h < call->heads; h++) {
            int64_t before = tokens_before(k->w, call, n, h);
            for (int64_t t = 0; t < call->seq[n].len; t++) {
                int64_t at = call->seq[n].b * k->place.sb + h * k->place.sh
                           + (call->seq[n].start + t) * k->place.st;
                view_set(&k->place, at, (double)(before + t));
                view_set(&k->late, at, before + t >= k->w->first);
            }
        }
}

static Scanning scanning(Ctx *c, Variant *v, const WindowPlans *p,
                         const Bound *b)
{
    Scanning k = { .c = c, .step = v->step, .w = v->step->window, .p = p,
                   .b = b };

    cut_blocks(&k);
    if (k.w->leads) {
        const Output *lead = &k.w->within->out[1];
        k.lead = tokens_room(&k, lead->order, lead->rank);
    }
    if (k.w->first)
        find_places(&k);
    return k;
}

/* As across sees it: tokens backwards, those that read a block further on. */
static View turned(const Scanning *k, View v, bool query)
{
    if (v.data && query)
        v.data = (char *)v.data + k->w->width * v.st * dtype_size(v.dtype);
    v.st = -v.st;
    return v;
}

static Call call_of(const Scanning *k, const Blocks *blocks)
{
    Call call = k->b->call;

    call.nseq = blocks->n;
    call.seq = blocks->seq;
    memset(call.s0, 0, sizeof call.s0);
    memset(call.s1, 0, sizeof call.s1);
    memset(call.out, 0, sizeof call.out);
    call.workspace = NULL;              /* several calls' memory */
    return call;
}

static Call within_call(const Scanning *k)
{
    Call call = call_of(k, &k->all);

    if (k->w->leads)
        call.out[1] = k->lead;
    if (k->w->first)
        call.in[k->step->nin] = k->late;
    return call;
}

static Call across_call(const Scanning *k, const Blocks *blocks)
{
    Call call = call_of(k, blocks);

    for (int i = 0; i < k->w->across->nin; i++) {
        int from = k->w->from[i];
        View v = from == FROM_LEAD ? k->lead : from == FROM_LATE ? k->late
               : k->b->call.in[from];
        call.in[i] = turned(k, v, k->w->query[i]);
    }
    return call;
}

static void run(const Scanning *k, const PlanEntry *e, const Call *call)
{
    if (call->nseq)
        e->backend->run(k->c, e->program, e->plan, call);
}

/* From the states that the rest of their keys make, short blocks start. */
static void start_cut(Scanning *k, View s0[MAX_STATES])
{
    Call call = across_call(k, &k->rest);

    for (int i = 0; i < k->w->across->nst; i++) {
        const State *st = &k->w->across->st[i];
        call.s1[i] = s0[i] = room(k, st->order, st->rank, k->rest.n, false);
    }
    run(k, k->p->start, &call);
}

/* ---- sums ---- */

enum { COPY, ADD, CLEAR };

/* The entries of a head, from axis d of the order on. */
static void put_entries(const Scanning *k, const uint8_t *order, int rank,
                        int d, const View *to, int64_t t, const View *from,
                        int64_t f, int how)
{
    int32_t n = d < rank ? k->b->call.size[order[d]] : 1;
    int64_t ts = d < rank ? to->sd[d] : 0, fs = d < rank ? from->sd[d] : 0;
    bool floats = to->dtype == F32 && from->dtype == F32;

    for (int32_t i = 0; i < n && d + 1 < rank; i++)
        put_entries(k, order, rank, d + 1, to, t + i * ts, from, f + i * fs,
                    how);
    if (d + 1 < rank)
        return;
    for (int32_t i = 0; i < n && floats && how != CLEAR; i++) {
        float *y = (float *)to->data + t + i * ts;
        *y = ((const float *)from->data)[f + i * fs] + (how == ADD ? *y : 0);
    }
    for (int32_t i = 0; i < n && (!floats || how == CLEAR); i++)
        view_set(to, t + i * ts, (how == CLEAR ? 0 : view_get(from, f + i * fs))
                 + (how == ADD ? view_get(to, t + i * ts) : 0));
}

/* Of `rows` batch entries (of sequences, where it has no tokens). */
static void put(const Scanning *k, const uint8_t *order, int rank,
                int64_t rows, bool timed, const View *to, const View *from,
                int how)
{
    for (int64_t b = 0; b < rows; b++)
        for (int64_t t = 0; t < (timed ? k->b->T : 1); t++)
            for (int h = 0; h < k->b->call.heads; h++)
                put_entries(k, order, rank, 0, to,
                            b * to->sb + t * to->st + h * to->sh, from,
                            b * from->sb + t * from->st + h * from->sh, how);
}

/* Where a sum is made: what is narrow is rounded once. */
static View sum_place(Scanning *k, const uint8_t *order, int rank,
                      const View *to)
{
    return to->dtype == F32 || to->dtype == F64 ? *to
                                                : tokens_room(k, order, rank);
}

static void end_sum(const Scanning *k, const uint8_t *order, int rank,
                    const View *to, const View *sum)
{
    if (sum->data != to->data)
        put(k, order, rank, k->b->B, true, to, sum, COPY);
}

/* ---- forward ---- */

static Call sinks_call(const Scanning *k)
{
    Blocks whole = { k->b->N, (Seq *)k->b->call.seq };

    return call_of(k, &whole);
}

/* What the first tokens weigh; and what is kept of them. */
static void add_first(Scanning *k, const Output *o, const View *sum)
{
    const Graph *g = k->w->sinks;
    Call call = sinks_call(k);

    if (!g)
        return;
    for (int i = 0; i < g->nst; i++) {
        int of = graph_find_state(k->step, g->st[i].name);
        call.s0[i] = k->b->call.s0[of];
        if (of != k->w->position)
            call.s1[i] = k->b->call.s1[of];
    }
    call.out[0] = tokens_room(k, o->order, o->rank);
    run(k, k->p->scan[SINKS], &call);
    put(k, o->order, o->rank, k->b->B, true, sum, &call.out[0], ADD);
}

/* The same entries of a state and of a result: of the result's order. */
static View in_order(const State *st, View v, const Output *o)
{
    View to = v;

    for (int d = 0; d < o->rank; d++)
        for (int i = 0; i < st->rank; i++)
            if (st->order[i] == o->order[d])
                to.sd[d] = v.sd[i];
    return to;
}

/* Of a head of sequence n, from the last token back: each in its place. The
 * places that no token has had yet hold the sum over all. */
static void fill_ring(const Scanning *k, const Ring *r, const View *x,
                      int64_t n, int head, const View *sum)
{
    int64_t before = tokens_before(k->w, &k->b->call, n, head);
    const Output *o = &k->w->kept->out[r->x];
    const State *st = &k->step->st[r->state];
    const Seq *s = &k->b->call.seq[n];
    View all = k->b->call.s1[r->state], to = in_order(st, all, o);
    int64_t places = k->b->call.size[k->w->ring_axis], each = 0;
    int64_t at = n * to.sb + head * to.sh, used = s->len;

    used = used < places ? used : places;
    for (int i = 0; i < st->rank; i++)
        each = st->order[i] == k->w->ring_axis ? all.sd[i] : each;
    put_entries(k, o->order, o->rank, 0, sum, 0, sum, 0, CLEAR);
    for (int64_t p = 0; p < places; p++) {
        int64_t t = s->len - 1 - p;
        int64_t place = p < used ? (before + t) % places : p;
        int64_t from = s->b * x->sb + (s->start + t) * x->st + head * x->sh;
        if (r->sum)
            put_entries(k, o->order, o->rank, 0, &to, at + place * each, sum,
                        0, COPY);
        else
            put_entries(k, o->order, o->rank, 0, &to, at + place * each, x,
                        from, p < used ? COPY : CLEAR);
        if (r->sum && p < used)
            put_entries(k, o->order, o->rank, 0, sum, 0, x, from, ADD);
    }
}

/* Of each sequence the last tokens, as many as there are places. */
static Blocks last_tokens(Scanning *k)
{
    const Call *call = &k->b->call;
    int64_t places = call->size[k->w->ring_axis];
    Blocks last = { call->nseq, ctx_alloc(k->c, (size_t)(call->nseq + 1)
                                                * sizeof *last.seq) };

    for (int64_t n = 0; n < call->nseq; n++) {
        Seq *s = &last.seq[n];
        *s = call->seq[n];
        s->start += s->len > places ? s->len - places : 0;
        s->len = s->len > places ? places : s->len;
    }
    return last;
}

/* What the step would leave. */
static void run_kept(Scanning *k)
{
    const Graph *g = k->w->kept;
    const Call *all = &k->b->call;
    Blocks last = last_tokens(k);
    Call call = call_of(k, &last);

    if (k->w->first)
        call.in[k->step->nin] = k->place;
    for (int i = 0; i < k->w->nrings; i++)
        if (all->s1[k->w->ring[i].state].data)
            call.out[i] = tokens_room(k, g->out[i].order, g->out[i].rank);
    run(k, k->p->scan[KEPT], &call);
    for (int i = 0; i < k->w->nrings; i++) {
        View sum = room(k, g->out[i].order, g->out[i].rank, 1, false);
        sum.dtype = F64;
        sum.data = ctx_alloc(k->c, (size_t)(sum.sh + 1) * sizeof(double));
        for (int64_t n = 0; call.out[i].data && n < all->nseq; n++)
            for (int h = 0; h < all->heads; h++)
                fill_ring(k, &k->w->ring[i], &call.out[i], n, h, &sum);
    }
    const View *position = &all->s1[k->w->position];
    for (int64_t n = 0; position->data && n < all->nseq; n++)
        for (int h = 0; h < all->heads; h++)
            view_set(position, n * position->sb + h * position->sh,
                     (double)(tokens_before(k->w, all, n, h)
                              + all->seq[n].len));
}

/* Tokens that may read what came before the call go by the step's plan. */
static void run_first(Scanning *k)
{
    Blocks first = { k->b->N, ctx_alloc(k->c, (size_t)(k->b->N + 1)
                                              * sizeof *first.seq) };

    for (int64_t n = 0; n < first.n; n++) {
        first.seq[n] = k->b->call.seq[n];
        first.seq[n].len = k->w->width;
    }
    Call call = call_of(k, &first);
    memcpy(call.s0, k->b->call.s0, sizeof call.s0);
    memcpy(call.out, k->b->call.out, sizeof call.out);
    run(k, k->p->first, &call);
}

void window_forward(Ctx *c, Variant *v, const WindowPlans *p, const Bound *b)
{
    Scanning k = scanning(c, v, p, b);
    const Output *o = &v->step->out[0];
    const View *y = &b->call.out[0];
    View sum = sum_place(&k, o->order, o->rank, y);
    View before = tokens_room(&k, o->order, o->rank);
    Call call = within_call(&k);

    call.out[0] = sum;
    run(&k, p->scan[WITHIN], &call);
    call = across_call(&k, &k.full);
    call.out[0] = turned(&k, before, true);
    run(&k, p->scan[ACROSS], &call);
    if (k.cut.n) {
        call = across_call(&k, &k.cut);
        start_cut(&k, call.s0);
        call.out[0] = turned(&k, before, true);
        run(&k, p->scan[ACROSS], &call);
    }
    if (k.full.n || k.cut.n)
        put(&k, o->order, o->rank, b->B, true, &sum, &before, ADD);
    add_first(&k, o, &sum);
    end_sum(&k, o->order, o->rank, y, &sum);
    if (p->first)
        run_first(&k);
    run_kept(&k);
}

/* ---- backward ---- */

/* The joint graph's result d_NAME. */
static int gradient_of(const Graph *step, const Graph *joint, int input)
{
    int i = step->nout;

    while (strcmp(joint->out[i].name + strlen("d_"), step->in[input].name))
        i++;
    return i;
}

/* Gradients of a scan's inputs: of those with tokens each where it lies, of
 * constants the sum over blocks, [1, H ...]. */
typedef struct Gradients {
    const Graph *step;
    View dx[MAX_INPUTS];                /* data NULL: not wanted */
} Gradients;

static void bind_dx(Scanning *k, const Gradients *d, const Graph *joint,
                    bool across, bool reads, Call *call)
{
    for (int i = 0; i < d->step->nin; i++) {
        const Input *in = &d->step->in[i];
        if (!d->dx[i].data)
            continue;
        if (!in->timed)
            call->s1[adjoint_of_input(joint, i)] =
                room(k, in->order, in->rank, call->nseq, false);
        else if (!across)
            call->out[gradient_of(d->step, joint, i)] = d->dx[i];
        else if (reads || !k->w->query[i])
            call->out[gradient_of(d->step, joint, i)] =
                turned(k, d->dx[i], k->w->query[i]);
    }
}

/* To the constants' gradients, behind the call. */
static void sum_constants(Scanning *k, const Gradients *d, const Graph *joint,
                          const Call *call)
{
    for (int i = 0; i < d->step->nin && call->nseq; i++) {
        const Input *in = &d->step->in[i];
        if (in->timed || !d->dx[i].data)
            continue;
        View to = d->dx[i];
        to.sb = 0;
        put(k, in->order, in->rank, call->nseq, false, &to,
            &call->s1[adjoint_of_input(joint, i)], ADD);
    }
}

static void back_across(Scanning *k, const Gradients *d, const View *dy)
{
    static const float nothing;
    const View none = { .data = (void *)(uintptr_t)&nothing, .dtype = F32,
                        .heads = 1 };
    const PlanEntry *e = k->p->scan[ACROSS];
    const Graph *g = e->plan->g;
    View ds[MAX_STATES];
    Call call = across_call(k, &k->full);

    call.in[d->step->nin] = turned(k, *dy, true);
    bind_dx(k, d, g, true, true, &call);
    run(k, e, &call);
    sum_constants(k, d, g, &call);
    if (!k->cut.n)
        return;
    call = across_call(k, &k->cut);
    start_cut(k, call.s0);
    call.in[d->step->nin] = turned(k, *dy, true);
    bind_dx(k, d, g, true, true, &call);
    for (int i = 0; i < d->step->nst; i++) {
        const State *st = &d->step->st[i];
        ds[i] = call.s1[adjoint_of_state(g, i)] =
            room(k, st->order, st->rank, k->cut.n, false);
    }
    run(k, e, &call);
    sum_constants(k, d, g, &call);
    call = across_call(k, &k->rest);
    for (int i = 0; i < d->step->nin; i++)
        if (k->w->query[i])
            call.in[i] = none;          /* nobody reads: y is 0 */
    call.in[d->step->nin] = none;
    bind_dx(k, d, g, true, false, &call);
    for (int i = 0; i < d->step->nst; i++)
        call.s0[adjoint_of_state(g, i)] = ds[i];
    run(k, e, &call);
    sum_constants(k, d, g, &call);
}

/* Of what the first tokens weigh, added to the others'. */
static void back_first(Scanning *k, const View to[MAX_INPUTS], const View *dy,
                       Gradients *within)
{
    Gradients d = { .step = k->w->sinks };
    Call call = sinks_call(k);

    if (!d.step)
        return;
    for (int i = 0; i < d.step->nin; i++) {
        const Input *in = &d.step->in[i];
        if (to[i].data)
            d.dx[i] = in->timed ? tokens_room(k, in->order, in->rank)
                                : room(k, in->order, in->rank, 1, false);
    }
    call.in[d.step->nin] = *dy;
    bind_dx(k, &d, k->p->scan[SINKS]->plan->g, false, true, &call);
    run(k, k->p->scan[SINKS], &call);
    sum_constants(k, &d, k->p->scan[SINKS]->plan->g, &call);
    for (int i = 0; i < d.step->nin; i++) {
        const Input *in = &d.step->in[i];
        if (to[i].data)
            put(k, in->order, in->rank, in->timed ? k->b->B : 1, in->timed,
                &within->dx[i], &d.dx[i], ADD);
    }
}

/* Rooms for what the second scan makes of the gradients that are wanted, and
 * of that of `lead`. */
static Gradients across_gradients(Scanning *k, const View to[MAX_INPUTS])
{
    Gradients d = { .step = k->w->across };

    for (int i = 0; i < d.step->nin; i++) {
        const Input *in = &d.step->in[i];
        int from = k->w->from[i];
        if (from == FROM_LATE || (from >= 0 && !to[from].data))
            continue;
        d.dx[i] = in->timed ? tokens_room(k, in->order, in->rank)
                            : room(k, in->order, in->rank, 1, false);
    }
    return d;
}

static Gradients within_gradients(Scanning *k, const View to[MAX_INPUTS])
{
    Gradients d = { .step = k->w->within };

    for (int i = 0; i < k->step->nin; i++) {
        const Input *in = &d.step->in[i];
        if (to[i].data)
            d.dx[i] = in->timed ? sum_place(k, in->order, in->rank, &to[i])
                                : room(k, in->order, in->rank, 1, false);
    }
    return d;
}

/* Adds what both scans have made, where it is wanted. */
static void join_gradients(Scanning *k, const View to[MAX_INPUTS],
                           Gradients *within, const Gradients *across)
{
    for (int i = 0; i < across->step->nin; i++) {
        const Input *in = &across->step->in[i];
        int from = k->w->from[i];
        if (from >= 0 && across->dx[i].data)
            put(k, in->order, in->rank, in->timed ? k->b->B : 1, in->timed,
                &within->dx[from], &across->dx[i], ADD);
    }
    for (int i = 0; i < k->step->nin; i++) {
        const Input *in = &k->step->in[i];
        if (!to[i].data)
            continue;
        if (in->timed)
            end_sum(k, in->order, in->rank, &to[i], &within->dx[i]);
        else if (k->b->N)
            put(k, in->order, in->rank, 1, false, &to[i], &within->dx[i],
                COPY);
    }
}

/* A start at zero: what is kept of tokens before it does not weigh. */
static void clear_states(const Scanning *k, const Adjoint *d)
{
    for (int i = 0; i < k->step->nst; i++) {
        const State *st = &k->step->st[i];
        if (!d->ds[i].given)
            continue;
        View to = state_view(k->step, i, &d->ds[i]);
        put(k, st->order, st->rank, k->b->N, false, &to, &to, CLEAR);
    }
}

void window_backward(Ctx *c, Variant *v, const WindowPlans *p, const Bound *b,
                     const Adjoint *d, const View to[MAX_INPUTS])
{
    Scanning k = scanning(c, v, p, b);
    const PlanEntry *e = p->scan[WITHIN];
    View dy = result_view(v->step, 0, &d->dy[0]);
    Gradients across = across_gradients(&k, to);
    Gradients within = within_gradients(&k, to);
    Call call = within_call(&k);

    call.kept = ctx_alloc(c, (size_t)e->backend->kept(c, e->program, e->plan,
                                                      &call) + 1);
    call.to = e->plan->split;
    run(&k, e, &call);
    back_across(&k, &across, &dy);
    call.from = e->plan->split;
    call.to = 0;
    call.in[within.step->nin] = dy;
    for (int i = 0; i < across.step->nin; i++)
        if (k.w->from[i] == FROM_LEAD)
            call.in[within.step->nin + 1] = across.dx[i];
    bind_dx(&k, &within, e->plan->g, false, true, &call);
    run(&k, e, &call);
    sum_constants(&k, &within, e->plan->g, &call);
    back_first(&k, to, &dy, &within);
    join_gradients(&k, to, &within, &across);
    clear_states(&k, d);
}
