/* blocks_call.c -- calls of masks that end at a distance, as scans in blocks of
 * W tokens, each a sequence of another variant.
 *
 * Of one of the call's sequences after another: tokens read their own block up
 * to themselves; then those of all blocks but the first what is behind them, by
 * place, in the block before. Where the last block is short, what reads there
 * is copied to a whole one, with zeros behind its end.
 */
#include "../compiler/mask.h"
#include "../compiler/scores.h"
#include "blocks_call.h"

#include <string.h>

/* A call in progress; sums are float32, of a sequence at a time. */
typedef struct Blocks {
    Lay *k;
    const WindowBlocks *w;
    int64_t W;
    Seq seq;                            /* that is on */
    int64_t whole, rest;                /* its blocks; tokens of a short one */
    int64_t reading;                    /* blocks with one before them that are
                                           whole */
    Given lead, gain, tail;
    Array own[3];
} Blocks;

bool blocks_take(const Variant *v, const Bound *b)
{
    const Call *call = &b->call;

    if (!call->seq || !b->T)            /* or the device alone knows them */
        return false;
    for (int i = 0; i < v->step->nin; i++)
        if (call->in[i].heads != call->heads)
            return false;
    return true;
}

/* ---- tensors ---- */

static void *moved(const Given *g, int64_t entries)
{
    return g->data ? (char *)g->data + entries * dtype_size(g->dtype) : NULL;
}

/* n blocks of len tokens, from token `from` on. */
static Given part_of(const Given *all, int64_t from, int64_t n, int64_t len)
{
    Given g = *all;

    g.data = moved(all, from * all->stride[1]);
    g.shape[0] = n;
    g.shape[1] = len;
    g.stride[0] = len * all->stride[1];
    return g;
}

/* The same of the sequence that is on, of a tensor of the call. */
static Given own_part(const Blocks *x, const Given *all, int64_t from,
                      int64_t n, int64_t len)
{
    Given g = part_of(all, x->seq.start + from, n, len);

    g.data = moved(&g, x->seq.b * all->stride[0]);
    return g;
}

/* Room for one like it, of n blocks of len tokens. */
static Given room_for(Lay *k, const Given *like, int64_t n, int64_t len,
                      DType d, Array *own)
{
    Given g = *like;

    g.given = true;
    g.device = k->b->call.on_device;
    g.shape[0] = n;
    g.shape[1] = len;
    *own = array_of(&g);
    make_room(k, own, d, false);
    place_given(&g, own);
    return g;
}

static void move_given(Lay *k, const Given *to, const Given *from, bool add)
{
    Array a = array_of(to), b = array_of(from);

    k->realm->move(k, &a, &b, add);
}

static void zero_given(Lay *k, const Given *g)
{
    Array a = array_of(g);

    k->realm->zero(k, &a);
}

/* float32 for result o of `within`, for so many whole blocks. */
static Given sums_room(Blocks *x, int o, int64_t blocks, Array *own)
{
    const Output *out = &x->w->within->out[o];
    Lay *k = x->k;
    Given like = { .rank = 3 + out->rank };

    if (!x->w->tail)
        return (Given){ 0 };

    like.shape[2] = k->b->call.heads;
    for (int d = 0; d < out->rank; d++)
        like.shape[3 + d] = k->b->call.size[out->order[d]];
    return room_for(k, &like, 1, blocks * x->W, F32, own);
}

/* ---- a part's call ---- */

static Sub *begin(Blocks *x, int part, Mode mode)
{
    Sub *s = parts_begin(x->k, part, mode);

    s->args.cu = NULL;
    s->args.ncu = 0;
    s->args.device_cu = NULL;
    return s;
}

/* The call's own argument i, of n blocks from token `from` on. */
static Given argument(const Blocks *x, int i, int64_t from, int64_t n,
                      int64_t len)
{
    Given g = given_input(x->k, i);

    return x->k->step->in[i].timed ? own_part(x, &g, from, n, len) : g;
}

static void run_within(Blocks *x, int64_t from, int64_t n, int64_t len,
                       const Given *y)
{
    Sub *s = begin(x, PART_WITHIN, M_FORWARD);
    const Graph *step = s->p->step;
    Given lead = part_of(&x->lead, from, n, len);
    Given gain = part_of(&x->gain, from, n, len);

    for (int i = 0; i < step->nin; i++)
        s->args.in[i] = argument(x, i, from, n, len);
    parts_bind(x->k, s);
    s->bound.call.out[0] = result_view(step, 0, y);
    if (x->w->tail) {
        s->bound.call.out[1] = result_view(step, 1, &lead);
        s->bound.call.out[2] = result_view(step, 2, &gain);
    }
    x->k->realm->forward(x->k, s);
}

/* Of n whole blocks: the sum over the tokens behind, or, a token late, upto. */
static void run_sum(Blocks *x, int part, const Given *v, const Given *y,
                    int64_t n)
{
    Sub *s = begin(x, part, M_FORWARD);
    Given from = part_of(v, 0, n, x->W), to = part_of(y, 0, n, x->W);

    if (part == PART_UPTO) {
        from.shape[1] = to.shape[1] = x->W - 1;
        to.data = moved(&to, to.stride[1]);
    }
    s->args.in[0] = from;
    parts_bind(x->k, s);
    s->bound.call.out[0] = result_view(s->p->step, 0, &to);
    x->k->realm->forward(x->k, s);
}

/* The blocks that read those before them, n of them, of which the first begins
 * at token `from`; len: how long they are. */
typedef struct Reading {
    int64_t from, n, len;
    Given y;                            /* or its gradient */
    Given in[MAX_INPUTS];
    Array copy[MAX_INPUTS], own;
} Reading;

/* What reads lies in whole blocks, with zeros behind its end. */
static Given whole_block(Blocks *x, Reading *r, const Given *g, DType d,
                         Array *own)
{
    Given all = room_for(x->k, g, 1, x->W, d, own);
    Given part = part_of(&all, 0, 1, r->len);

    zero_given(x->k, &all);
    if (g->data)
        move_given(x->k, &part, g, false);
    return all;
}

static void find_arguments(Blocks *x, Reading *r)
{
    const Graph *step = x->w->across;

    for (int i = 0; i < step->nin; i++) {
        int from = x->w->from[i];
        bool reads = x->w->query[i], timed = step->in[i].timed;
        int64_t at = reads ? r->from : r->from - x->W;
        if (from < 0)                   /* these are of whole blocks */
            r->in[i] = part_of(from == FROM_LEAD ? &x->lead : &x->tail, at,
                               r->n, x->W);
        else
            r->in[i] = argument(x, from, at, r->n, reads ? r->len : x->W);
        if (from >= 0 && reads && timed && r->len < x->W)
            r->in[i] = whole_block(x, r, &r->in[i], r->in[i].dtype,
                                   &r->copy[i]);
    }
}

static void drop_arguments(Blocks *x, Reading *r)
{
    for (int i = 0; i < x->w->across->nin; i++)
        drop_array(x->k, &r->copy[i]);
}

/* Adds to y. */
static void run_across(Blocks *x, int64_t from, int64_t n, int64_t len,
                       const Given *y)
{
    Reading r = { .from = from, .n = n, .len = len };
    Given own = own_part(x, y, from, n, len), to = own;

    if (!n)
        return;
    find_arguments(x, &r);
    if (len < x->W)
        to = whole_block(x, &r, &own, own.dtype, &r.own);
    Sub *s = begin(x, PART_ACROSS, M_FORWARD);
    const Graph *step = s->p->step;
    memcpy(s->args.in, r.in, sizeof r.in);
    parts_bind(x->k, s);
    s->bound.call.out[0] = result_view(step, 0, &to);
    s->bound.call.in[step->nin] = s->bound.call.out[0];
    x->k->realm->forward(x->k, s);
    drop_arguments(x, &r);
    if (len < x->W) {
        to = part_of(&to, 0, 1, len);
        move_given(x->k, &own, &to, false);
        drop_array(x->k, &r.own);
    }
}

/* ---- a sequence ---- */

/* y NULL: what the way back reads alone. */
static void run_blocks(Blocks *x, const Given *y)
{
    Given none = y ? *y : (Given){ 0 };
    Given whole = own_part(x, &none, 0, x->whole, x->W);
    Given rest = own_part(x, &none, x->whole * x->W, 1, x->rest);

    if (x->rest) {
        Given last = part_of(&x->lead, x->whole * x->W, 1, x->W);
        if (x->w->tail)
            zero_given(x->k, &last);
        run_within(x, x->whole * x->W, 1, x->rest, &rest);
    }
    if (!x->whole)
        return;
    run_within(x, 0, x->whole, x->W, &whole);
    if (x->w->tail && (x->reading || x->rest))
        run_sum(x, PART_TAIL, &x->gain, &x->tail, x->whole);
    if (!y)
        return;
    run_across(x, x->W, x->reading, x->W, y);
    run_across(x, x->whole * x->W, x->rest > 0, x->rest, y);
}

/* ---- gradients ---- */

static bool is_wanted(const Blocks *x, int i)
{
    const Given *dx = &x->k->d->dx[i];

    return dx->given && dx->data;
}

/* Where a part's gradient of the call's input i goes: room of its own, as all
 * of them are added up. */
static void take_gradient(Blocks *x, int i, int64_t n, int64_t len, Given *dx,
                          Array *own)
{
    const Given *all = &x->k->d->dx[i];

    *own = (Array){ 0 };
    if (!is_wanted(x, i))
        return;
    if (x->k->step->in[i].timed) {
        *dx = room_for(x->k, all, n, len, all->dtype, own);
        return;
    }
    *dx = *all;
    *own = array_of(all);
    make_room(x->k, own, all->dtype, false);
    place_given(dx, own);
}

/* Of n blocks from token `from` on, len of the tokens of each. */
static void give_gradient(Blocks *x, int i, int64_t from, int64_t n,
                          int64_t len, const Given *dx, Array *own)
{
    const Given *all = &x->k->d->dx[i];
    Given to = *all, part = *dx;

    if (!own->data)
        return;
    if (x->k->step->in[i].timed) {
        to = own_part(x, all, from, n, len);
        part.shape[1] = len;
    }
    move_given(x->k, &to, &part, true);
    drop_array(x->k, own);
}

/* As a mask of both directions goes back (ways.c): the gradient of y comes in
 * for v, and v for the gradient; what that makes is the gradient of v. */
static void back_across(Blocks *x, int64_t from, int64_t n, int64_t len,
                        const Given *dlead, const Given *dtail)
{
    Reading r = { .from = from, .n = n, .len = len };
    Given all = x->k->d->dy[0], dx[MAX_INPUTS] = { { 0 } };
    Array own[MAX_INPUTS] = { { 0 } };
    int v = graph_find_input(x->w->across, "v"), mine = x->w->from[v];

    if (!n)
        return;
    all.device = x->k->b->call.on_device;
    Given dy = own_part(x, &all, from, n, len);
    find_arguments(x, &r);
    if (len < x->W)
        dy = whole_block(x, &r, &dy, dy.dtype, &r.own);
    Sub *s = begin(x, PART_ACROSS, M_BACKWARD);
    const Graph *step = s->p->step;
    memcpy(s->args.in, r.in, sizeof r.in);
    s->args.in[v] = dy;
    parts_bind(x->k, s);
    s->d.dy[0] = r.in[v];
    for (int i = 0; i < step->nin; i++) {
        int of = x->w->from[i];
        int64_t at = x->w->query[i] ? from : from - x->W;
        if (of < 0)
            dx[i] = part_of(of == FROM_LEAD ? dlead : dtail, at, n, x->W);
        else
            take_gradient(x, of, n, x->W, &dx[i], &own[i]);
        if (i != v)
            s->d.dx[i] = dx[i];
    }
    if (is_wanted(x, mine))
        s->bound.call.out[0] = result_view(step, 0, &dx[v]);
    x->k->realm->backward(x->k, s);
    drop_arguments(x, &r);
    drop_array(x->k, &r.own);
    for (int i = 0; i < step->nin; i++)
        if (x->w->from[i] >= 0)
            give_gradient(x, x->w->from[i], x->w->query[i] ? from
                          : from - x->W, n, x->w->query[i] ? len : x->W,
                          &dx[i], &own[i]);
}

static void back_within(Blocks *x, int64_t from, int64_t n, int64_t len,
                        const Given *dlead, const Given *dgain)
{
    Given all = x->k->d->dy[0], dx[MAX_INPUTS] = { { 0 } };
    Array own[MAX_INPUTS] = { { 0 } };
    Sub *s = begin(x, PART_WITHIN, M_BACKWARD);

    all.device = x->k->b->call.on_device;
    for (int i = 0; i < s->p->step->nin; i++)
        s->args.in[i] = argument(x, i, from, n, len);
    parts_bind(x->k, s);
    s->d.dy[0] = own_part(x, &all, from, n, len);
    if (x->w->tail) {
        s->d.dy[1] = part_of(dlead, from, n, len);
        s->d.dy[2] = part_of(dgain, from, n, len);
    }
    for (int i = 0; i < s->p->step->nin; i++) {
        take_gradient(x, i, n, len, &dx[i], &own[i]);
        s->d.dx[i] = dx[i];
    }
    x->k->realm->backward(x->k, s);
    for (int i = 0; i < s->p->step->nin; i++)
        give_gradient(x, i, from, n, len, &dx[i], &own[i]);
}

static void back_blocks(Blocks *x)
{
    int64_t blocks = x->whole + (x->rest > 0), last = x->whole * x->W;
    Array own[3] = { { 0 } };
    Given dlead = sums_room(x, 1, blocks, &own[0]);
    Given dgain = sums_room(x, 2, blocks, &own[1]);
    Given dtail = sums_room(x, 2, blocks, &own[2]);

    if (x->w->tail) {
        zero_given(x->k, &dlead);
        zero_given(x->k, &dgain);
        zero_given(x->k, &dtail);
    }
    if (x->whole) {
        back_across(x, x->W, x->reading, x->W, &dlead, &dtail);
        back_across(x, last, x->rest > 0, x->rest, &dlead, &dtail);
        if (x->w->tail)
            run_sum(x, PART_UPTO, &dtail, &dgain, x->whole);
        back_within(x, 0, x->whole, x->W, &dlead, &dgain);
    }
    if (x->rest)
        back_within(x, last, 1, x->rest, &dlead, &dgain);
    for (int n = 0; n < 3; n++)
        drop_array(x->k, &own[n]);
}

/* ---- all of it ---- */

/* What a scan leaves of its way forward is not kept: the same scan runs for
 * other sequences and short blocks, too. */
void blocks_run(Lay *k)
{
    const Scores *s = k->step->scores;
    const Call *call = &k->b->call;
    Blocks x = { .k = k, .w = s->blocks, .W = s->width };
    Given y = k->d ? (Given){ 0 } : given_y(k);
    int64_t most = 0;

    k->keep = k->left = false;
    for (int64_t n = 0; n < call->nseq; n++) {
        int64_t blocks = (call->seq[n].len + x.W - 1) / x.W;
        most = blocks > most ? blocks : most;
    }
    x.lead = sums_room(&x, 1, most, &x.own[0]);
    x.gain = sums_room(&x, 2, most, &x.own[1]);
    x.tail = sums_room(&x, 2, most, &x.own[2]);
    for (int i = 0; k->d && i < k->step->nin; i++)
        if (is_wanted(&x, i))
            zero_given(k, &k->d->dx[i]);
    for (int64_t n = 0; n < call->nseq; n++) {
        ctx_poll(k->c);
        x.seq = call->seq[n];
        x.whole = x.seq.len / x.W;
        x.rest = x.seq.len % x.W;
        x.reading = x.whole > 0 ? x.whole - 1 : 0;
        run_blocks(&x, k->d ? NULL : &y);
        if (k->d)
            back_blocks(&x);
    }
    for (int n = 0; n < 3; n++)
        drop_array(k, &x.own[n]);
}
