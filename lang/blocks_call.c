/* blocks_call.c -- calls of masks that end at a distance, as scans in blocks of
 * W tokens, each a sequence of another variant.
 *
 * The blocks of all sequences are one call: tokens read their own block up to
 * themselves; then those of all blocks but a sequence's first what is behind
 * them, by place, in the block before. There queries are seen W tokens further
 * on than keys. Behind a sequence's last query may be those of another, which
 * `packed` leaves out. Behind the tensors' last token there is nothing: the
 * block that reaches there reads of copies, with zeros behind its end; and so
 * do all where the device alone knows the sequences.
 */
#include "blocks_call.h"

#include <string.h>

typedef struct List { int64_t n; Seq *seq; } List;

/* A call in progress; sums are float32. */
typedef struct Blocks {
    Lay *k;
    const Window *w;
    int64_t W, B, T;
    List all;                           /* blocks, which the host knows */
    List keys;                          /* those that another reads, by what it
                                           reads */
    List near;                          /* of these what reads lies in the
                                           tensors */
    int64_t edge, len;                  /* the others begin with that token, and
                                           so many read them; len 0: none do */
    bool packed;                        /* behind what reads are others */
    void *ends;                         /* of blocks, on the device; or NULL */
    int64_t nends;
    Given lead, gain, tail, late, reads;
    Array own[5];
} Blocks;

const char *blocks_refuse(const Variant *v, const Bound *b)
{
    const WindowBlocks *w = &v->step->scores->window->blocks;
    int heads = w->tail ? b->call.heads : 1;

    for (int i = 0; i < w->across->nin; i++)
        if (w->from[i] >= 0 && b->call.in[w->from[i]].heads > heads)
            heads = b->call.in[w->from[i]].heads;
    if (heads != b->call.heads)
        return "what scans in blocks read has fewer heads than the call";
    return b->T ? NULL : "there are no tokens";
}

void blocks_parts(const Scores *s, Graph *step[BLOCK_PARTS])
{
    const WindowBlocks *b = &s->window->blocks;

    step[PART_WITHIN] = b->within;
    step[PART_TAIL] = b->tail;
    step[PART_ACROSS] = b->across;
    step[PART_UPTO] = b->upto;
    step[PART_PACKED] = b->packed;
    step[PART_PLACES] = b->places;
    step[PART_SINKS] = s->window->sinks;
    step[PART_REST] = s->rest;          /* states of the call's end */
}

/* ---- blocks ---- */

static void add_block(List *to, int32_t b, int64_t start, int64_t len)
{
    to->seq[to->n++] = (Seq){ b, start, len };
}

/* Of one of the call's sequences. */
static void cut_sequence(Blocks *x, const Seq *s)
{
    for (int64_t at = 0; at < s->len; at += x->W) {
        int64_t left = s->len - at, start = s->start + at;
        int64_t reading = left - x->W < x->W ? left - x->W : x->W;
        add_block(&x->all, s->b, start, left < x->W ? left : x->W);
        if (reading <= 0)
            continue;
        add_block(&x->keys, s->b, start, x->W);
        if (start + 2 * x->W <= x->T) {
            add_block(&x->near, s->b, start, x->W);
            x->packed |= reading < x->W;
        } else {                        /* of all batch entries the same */
            x->edge = start;
            x->len = reading;
        }
    }
}

static void cut_blocks(Blocks *x)
{
    const Call *call = &x->k->b->call;
    List *lists[] = { &x->all, &x->keys, &x->near };
    int64_t n = 1;

    for (int64_t i = 0; i < call->nseq; i++)
        n += (call->seq[i].len + x->W - 1) / x->W;
    for (int i = 0; i < 3; i++)
        lists[i]->seq = ctx_alloc(x->k->c, (size_t)n * sizeof(Seq));
    for (int64_t i = 0; i < call->nseq; i++)
        cut_sequence(x, &call->seq[i]);
}

/* Of sequences that the device alone knows. */
static void find_ends(Blocks *x)
{
    x->nends = x->k->b->N + x->T / x->W + 1;
    x->ends = x->k->realm->room(x->k, x->nends * (int64_t)sizeof(int64_t),
                                false);
    gpu_block_ends(x->k, x->ends, x->W);
    x->packed = true;
    x->edge = 0;
    x->len = x->T - x->W > 0 ? x->T - x->W : 0;
}

/* ---- tensors ---- */

static void *moved(const Given *g, int64_t entries)
{
    return g->data ? (char *)g->data + entries * dtype_size(g->dtype) : NULL;
}

/* Of each batch entry len tokens, from token `from` on. */
static Given part_of(const Given *all, int64_t from, int64_t len)
{
    Given g = *all;

    g.data = moved(all, from * all->stride[1]);
    g.shape[1] = len;
    return g;
}

/* Room for one like it, of len tokens. */
static Given room_for(Lay *k, const Given *like, int64_t len, DType d,
                      Array *own)
{
    Given g = *like;

    g.given = true;
    g.device = k->b->call.on_device;
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

/* float32 for result o of the graph, of all tokens. */
static Given result_room(Blocks *x, const Graph *g, int o, Array *own)
{
    Lay *k = x->k;
    Given like = { .rank = 3 };

    *own = (Array){ 0 };
    if (!g || o >= g->nout)
        return (Given){ 0 };
    like.rank += g->out[o].rank;
    like.shape[0] = x->B;
    like.shape[2] = k->b->call.heads;
    for (int d = 0; d < g->out[o].rank; d++)
        like.shape[3 + d] = k->b->call.size[g->out[o].order[d]];
    return room_for(k, &like, x->T, F32, own);
}

static Given sums_room(Blocks *x, int o, Array *own)
{
    return result_room(x, x->w->blocks.tail ? x->w->blocks.within : NULL, o,
                       own);
}

/* ---- a part's call ---- */

/* Of these blocks; where the device has them, of all. */
static void bind_blocks(Blocks *x, Sub *s, const List *list)
{
    s->args.cu = NULL;
    s->args.ncu = x->ends ? x->nends : 0;
    s->args.device_cu = x->ends;
    parts_bind(x->k, s);
    if (!list || x->ends)
        return;
    s->bound.N = s->bound.call.nseq = list->n;
    s->bound.call.seq = list->seq;
}

/* The call's states that the part has, too. */
static void give_states(Blocks *x, Sub *s)
{
    for (int i = 0; i < s->p->step->nst; i++) {
        int of = graph_find_state(x->k->step, s->p->step->st[i].name);
        if (of >= 0)
            s->bound.call.s0[i] = x->k->b->call.s0[of];
    }
}

/* Where tokens are in their sequences. */
static void run_places(Blocks *x)
{
    Sub *s = parts_begin(x->k, PART_PLACES, M_FORWARD);
    const Graph *step = s->p->step;
    Given *to[] = { &x->reads, &x->late };

    s->args.in[0] = given_input(x->k, graph_find_input(x->k->step, "v"));
    parts_bind(x->k, s);
    give_states(x, s);
    for (int o = 0; o < step->nout; o++) {
        *to[o] = result_room(x, step, o, &x->own[3 + o]);
        to[o]->shape[2] = s->bound.call.heads;
        s->bound.call.out[o] = result_view(step, o, to[o]);
    }
    x->k->realm->forward(x->k, s);
}

/* Arguments of within: those of the call, and what is behind them. */
static void give_arguments(Blocks *x, Sub *s)
{
    int n = x->k->step->nin;

    for (int i = 0; i < n; i++)
        s->args.in[i] = given_input(x->k, i);
    if (s->p->step->nin > n)
        s->args.in[n] = x->late;
}

static void run_within(Blocks *x, const Given *y)
{
    Sub *s = parts_begin(x->k, PART_WITHIN, M_FORWARD);
    const Graph *step = s->p->step;

    give_arguments(x, s);
    bind_blocks(x, s, &x->all);
    s->bound.call.out[0] = result_view(step, 0, y);
    if (x->w->blocks.tail) {
        s->bound.call.out[1] = result_view(step, 1, &x->lead);
        s->bound.call.out[2] = result_view(step, 2, &x->gain);
    }
    x->k->realm->forward(x->k, s);
}

/* Of what blocks read: the sum over the tokens of each behind, or before. */
static void run_sum(Blocks *x, int part, const Given *v, const Given *y)
{
    Sub *s = parts_begin(x->k, part, M_FORWARD);

    s->args.in[0] = *v;
    bind_blocks(x, s, &x->keys);
    s->bound.call.out[0] = result_view(s->p->step, 0, y);
    x->k->realm->forward(x->k, s);
}

/* What a sequence's first tokens weigh, added to y. */
static void run_first(Blocks *x, const Given *y)
{
    Sub *s = parts_begin(x->k, PART_SINKS, M_FORWARD);
    Array own;
    Given sum = room_for(x->k, y, x->T, y->dtype, &own);

    for (int i = 0; i < s->p->step->nin; i++)
        s->args.in[i] = given_input(x->k, i);
    parts_bind(x->k, s);
    give_states(x, s);
    s->bound.call.out[0] = result_view(s->p->step, 0, &sum);
    x->k->realm->forward(x->k, s);
    move_given(x->k, y, &sum, true);
    drop_array(x->k, &own);
}

/* Blocks that read those before them: `from`, `width`: tokens that are seen as
 * keys, with as many queries, W tokens further on, of which there are `len`:
 * the rest of a copy is 0, and there is no rest where they are read in place.
 */
typedef struct Reading {
    int part;
    int64_t from, width, len;
    const List *list;                   /* NULL: each batch entry's is one */
    bool copies, whole;                 /* whole: they are all of these tokens
                                           */
    Given in[MAX_INPUTS];
    Array copy[MAX_INPUTS], own;
} Reading;

/* What reads in place: from the tensors' first token to the last that is read.
 */
static Reading reading_near(const Blocks *x)
{
    Reading r = { .part = x->packed ? PART_PACKED : PART_ACROSS,
                  .list = &x->near };
    int64_t all = 0;

    for (int64_t n = 0; n < x->near.n; n++) {
        const Seq *s = &x->near.seq[n];
        all += s->len;
        r.width = s->start + s->len > r.width ? s->start + s->len : r.width;
    }
    r.len = r.width;
    r.whole = all == x->B * r.width;
    return r;
}

static Reading reading_edge(const Blocks *x)
{
    return (Reading){ .part = x->ends ? PART_PACKED : PART_ACROSS,
                      .from = x->edge, .width = x->ends ? x->T : x->W,
                      .len = x->len, .copies = true, .whole = true };
}

/* What the readers have of a tensor of theirs. */
static Given queries_of(Blocks *x, const Reading *r, const Given *g,
                        Array *own)
{
    Given part = part_of(g, r->from + x->W, r->len);

    *own = (Array){ 0 };
    if (!r->copies || r->len == r->width)
        return part;
    Given all = room_for(x->k, &part, r->width, g->dtype, own);
    zero_given(x->k, &all);
    Given begins = part_of(&all, 0, r->len);
    if (g->data)
        move_given(x->k, &begins, &part, false);
    return all;
}

/* Input i of the scan, of all tokens. */
static Given whole_input(const Blocks *x, int i)
{
    int from = x->w->blocks.from[i];

    return from == FROM_LEAD ? x->lead : from == FROM_TAIL ? x->tail
         : from == FROM_LATE ? x->late : from == FROM_READS ? x->reads
         : given_input(x->k, from);
}

static bool has_tokens(const Blocks *x, int i)
{
    int from = x->w->blocks.from[i];

    return from < 0 || x->k->step->in[from].timed;
}

static void find_arguments(Blocks *x, Reading *r)
{
    const Graph *step = x->k->p->parts->part[r->part].step;

    for (int i = 0; i < step->nin; i++) {
        Given g = whole_input(x, i);
        if (!has_tokens(x, i))
            r->in[i] = g;
        else if (x->w->blocks.query[i])
            r->in[i] = queries_of(x, r, &g, &r->copy[i]);
        else
            r->in[i] = part_of(&g, r->from, r->width);
    }
}

static void drop_arguments(Blocks *x, Reading *r)
{
    for (int i = 0; i < MAX_INPUTS; i++)
        drop_array(x->k, &r->copy[i]);
    drop_array(x->k, &r->own);
}

/* Adds to y. */
static void run_across(Blocks *x, Reading *r, const Given *y)
{
    find_arguments(x, r);
    Given to = queries_of(x, r, y, &r->own);
    Sub *s = parts_begin(x->k, r->part, M_FORWARD);
    const Graph *step = s->p->step;

    memcpy(s->args.in, r->in, sizeof r->in);
    bind_blocks(x, s, r->list);
    s->bound.call.out[0] = result_view(step, 0, &to);
    s->bound.call.in[step->nin] = s->bound.call.out[0];
    x->k->realm->forward(x->k, s);
    if (r->own.data) {
        Given part = part_of(y, r->from + x->W, r->len);
        to = part_of(&to, 0, r->len);
        move_given(x->k, &part, &to, false);
    }
    drop_arguments(x, r);
}

/* y NULL: what the way back reads alone. */
static void run_blocks(Blocks *x, const Given *y)
{
    Given none = { 0 };

    if (x->w->late || x->packed)
        run_places(x);
    run_within(x, y ? y : &none);
    if (x->w->blocks.tail && (x->keys.n || x->ends))
        run_sum(x, PART_TAIL, &x->gain, &x->tail);
    if (!y)
        return;
    Reading near = reading_near(x), edge = reading_edge(x);
    if (x->near.n)
        run_across(x, &near, y);
    if (x->len)
        run_across(x, &edge, y);
    if (x->w->sinks)
        run_first(x, y);
}

/* ---- gradients ---- */

static bool is_wanted(const Blocks *x, int i)
{
    const Given *dx = &x->k->d->dx[i];

    return dx->given && dx->data;
}

/* Where a part's gradient of the call's input i goes: room of its own, as all
 * of them are added up. clear: not all of it is written. */
static void take_gradient(Blocks *x, int i, int64_t len, bool clear, Given *dx,
                          Array *own)
{
    const Given *all = &x->k->d->dx[i];

    *own = (Array){ 0 };
    if (!is_wanted(x, i))
        return;
    if (x->k->step->in[i].timed) {
        *dx = room_for(x->k, all, len, all->dtype, own);
    } else {
        *dx = *all;
        *own = array_of(all);
        make_room(x->k, own, all->dtype, false);
        place_given(dx, own);
    }
    if (clear)
        zero_given(x->k, dx);
}

/* From token `from` on, len tokens. */
static void give_gradient(Blocks *x, int i, int64_t from, int64_t len,
                          const Given *dx, Array *own)
{
    Given to = x->k->d->dx[i], part = *dx;

    if (!own->data)
        return;
    if (x->k->step->in[i].timed) {
        to = part_of(&to, from, len);
        part = part_of(&part, 0, len);
    }
    move_given(x->k, &to, &part, true);
    drop_array(x->k, own);
}

/* The gradients of sums, in which each token's is written once. */
static void take_sum(Blocks *x, const Reading *r, int i, const Given *sum,
                     Given *dx, Array *own)
{
    *own = (Array){ 0 };
    if (!x->w->blocks.query[i])
        *dx = part_of(sum, r->from, r->width);
    else if (r->len == r->width)
        *dx = part_of(sum, r->from + x->W, r->len);
    else
        *dx = room_for(x->k, sum, r->width, F32, own);
}

static void give_sum(Blocks *x, const Reading *r, const Given *sum,
                     const Given *dx, Array *own)
{
    if (!own->data)
        return;
    Given to = part_of(sum, r->from + x->W, r->len);
    Given part = part_of(dx, 0, r->len);
    move_given(x->k, &to, &part, false);
    drop_array(x->k, own);
}

/* As a mask of both directions goes back (ways.c): the gradient of y comes in
 * for v, and v for the gradient; what that makes is the gradient of v. */
static void back_across(Blocks *x, Reading *r, const Given *dlead,
                        const Given *dtail)
{
    Lay *k = x->k;
    const int *from = x->w->blocks.from;
    Given dy = k->d->dy[0], dx[MAX_INPUTS] = { { 0 } };
    Array own[MAX_INPUTS] = { { 0 } }, values = { 0 }, heads = { 0 };
    int v = graph_find_input(x->w->blocks.across, "v"), mine = from[v];

    dy.device = k->b->call.on_device;
    find_arguments(x, r);
    dy = queries_of(x, r, &dy, &r->own);
    Sub *s = parts_begin(x->k, r->part, M_BACKWARD);
    const Graph *step = s->p->step;
    memcpy(s->args.in, r->in, sizeof r->in);
    s->args.in[v] = dy;
    bind_blocks(x, s, r->list);
    s->d.dy[0] = spread_heads(k, &r->in[v], &values);
    for (int i = 0; i < step->nin; i++) {
        if (from[i] == FROM_LEAD || from[i] == FROM_TAIL)
            take_sum(x, r, i, from[i] == FROM_LEAD ? dlead : dtail, &dx[i],
                     &own[i]);
        else if (from[i] >= 0)
            take_gradient(x, from[i], r->width, !r->whole, &dx[i], &own[i]);
        if (i != v)
            s->d.dx[i] = dx[i];
    }
    if (is_wanted(x, mine)) {
        Given sum = all_heads(k, &dx[v], dx[v].dtype, &heads);
        if (!r->whole)
            zero_given(k, &sum);
        s->bound.call.out[0] = result_view(step, 0, &sum);
    }
    k->realm->backward(k, s);
    if (heads.data)
        gather_heads(k, &dx[v], &heads, false);
    drop_array(k, &heads);
    drop_array(k, &values);
    drop_arguments(x, r);
    for (int i = 0; i < step->nin; i++) {
        bool reads = x->w->blocks.query[i];
        if (from[i] >= 0)
            give_gradient(x, from[i], r->from + (reads ? x->W : 0),
                          reads ? r->len : r->width, &dx[i], &own[i]);
        else
            give_sum(x, r, from[i] == FROM_LEAD ? dlead : dtail, &dx[i],
                     &own[i]);
    }
}

/* Of within, and of the first tokens' scan. */
static void back_part(Blocks *x, int part, const List *list,
                      const Given *dlead, const Given *dgain)
{
    Given dx[MAX_INPUTS] = { { 0 } };
    Array own[MAX_INPUTS] = { { 0 } };
    Sub *s = parts_begin(x->k, part, M_BACKWARD);
    int n = x->k->step->nin;

    give_arguments(x, s);
    if (list)
        bind_blocks(x, s, list);
    else
        parts_bind(x->k, s);
    s->d.dy[0] = x->k->d->dy[0];
    s->d.dy[0].device = x->k->b->call.on_device;
    if (x->w->blocks.tail && list) {
        s->d.dy[1] = *dlead;
        s->d.dy[2] = *dgain;
    }
    for (int i = 0; i < n; i++) {
        take_gradient(x, i, x->T, false, &dx[i], &own[i]);
        s->d.dx[i] = dx[i];
    }
    x->k->realm->backward(x->k, s);
    for (int i = 0; i < n; i++)
        give_gradient(x, i, 0, x->T, &dx[i], &own[i]);
}

static void back_blocks(Blocks *x)
{
    Array own[3] = { { 0 } };
    Given dlead = sums_room(x, 1, &own[0]);
    Given dgain = sums_room(x, 2, &own[1]);
    Given dtail = sums_room(x, 2, &own[2]);

    if (x->w->blocks.tail) {
        zero_given(x->k, &dlead);
        zero_given(x->k, &dgain);
        zero_given(x->k, &dtail);
    }
    Reading near = reading_near(x), edge = reading_edge(x);
    if (x->near.n)
        back_across(x, &near, &dlead, &dtail);
    if (x->len)
        back_across(x, &edge, &dlead, &dtail);
    if (x->w->blocks.tail && (x->keys.n || x->ends))
        run_sum(x, PART_UPTO, &dtail, &dgain);
    back_part(x, PART_WITHIN, &x->all, &dlead, &dgain);
    if (x->w->sinks)
        back_part(x, PART_SINKS, NULL, NULL, NULL);
    for (int n = 0; n < 3; n++)
        drop_array(x->k, &own[n]);
}

/* ---- all of it ---- */

/* What a scan leaves of its way forward is not kept: the same scan runs for
 * other blocks, too. */
void blocks_run(Lay *k)
{
    const Window *w = k->step->scores->window;
    Blocks x = { .k = k, .w = w, .W = w->width, .B = k->b->B, .T = k->b->T };
    Given y = k->d ? (Given){ 0 } : given_y(k);

    k->keep = k->left = false;
    ctx_poll(k->c);
    if (k->b->call.device_cu)
        find_ends(&x);
    else
        cut_blocks(&x);
    x.lead = sums_room(&x, 1, &x.own[0]);
    x.gain = sums_room(&x, 2, &x.own[1]);
    x.tail = sums_room(&x, 2, &x.own[2]);
    for (int i = 0; k->d && i < k->step->nin; i++)
        if (is_wanted(&x, i))
            zero_given(k, &k->d->dx[i]);
    run_blocks(&x, k->d ? NULL : &y);
    if (k->d)
        back_blocks(&x);
    for (int n = 0; n < 5; n++)
        drop_array(k, &x.own[n]);
    if (x.ends)
        k->realm->drop(k, x.ends);
}
