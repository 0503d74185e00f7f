/* scores_call.c -- calls of steps that have a form over pairs of tokens
 * (compiler/scores.h): which of them go that way, and how they do: what pairs
 * are made of, a sum after another, and what is made of the sums, each a
 * variant of its own.
 */
#include <string.h>

#include "blocks_call.h"

/* ---- which calls ---- */

/* What only the states can take, or give, but for what a call starts from. */
static bool wants_states(const Variant *v, const Bound *b, const Adjoint *d)
{
    bool wants = b->call.pages.at || b->call.each;

    for (int i = 0; i < v->step->nst; i++)
        wants = wants || (d && (d->dstate[i].given || d->ds[i].given));
    return wants;
}

static bool has_start(const Variant *v, const Bound *b)
{
    for (int i = 0; i < v->step->nst; i++)
        if (b->call.s0[i].data)
            return true;
    return false;
}

static bool wants_ends(const Variant *v, const Bound *b)
{
    for (int i = 0; i < v->step->nst; i++)
        if (b->call.s1[i].data)
            return true;
    return false;
}

/* Of a window: do the last tokens make its states, and does the host know which
 * they are? */
static bool knows_last_tokens(const Variant *v, const Bound *b)
{
    const Scores *s = v->step->scores;

    return s->ring_axis && (b->call.seq || !b->call.nseq)
        && b->state_dtype == F32;
}

static int64_t tokens_of_rings(const Scores *s, const Call *call)
{
    return scores_ring_tokens(s, call->size[s->ring_axis]);
}

/* Of a window in blocks: are there so many tokens in each sequence, of which
 * the first go by the step, that none reads, and no ring keeps, what the call
 * starts from? The states that it leaves lie elsewhere, if there are any. */
static bool passes_start(const Variant *v, const Args *a, const Bound *b)
{
    const Scores *s = v->step->scores;
    const Call *call = &b->call;
    int ends = 0;

    if (!s->window || !s->rest || !knows_last_tokens(v, b)
        || a->mode != M_FORWARD)
        return false;
    for (int i = 0; i < v->step->nst; i++) {
        ends += call->s1[i].data != NULL;
        if (call->s1[i].data && call->s1[i].data == call->s0[i].data)
            return false;
    }
    for (int64_t n = 0; n < call->nseq; n++)
        if (call->seq[n].len < s->width + tokens_of_rings(s, call))
            return false;
    return !ends || ends == v->step->nst;
}

/* A call's pairs. */
static ScoreCall score_call(const Scores *s, const Bound *b)
{
    const Call *call = &b->call;
    ScoreCall k = { .size = call->size, .heads = call->heads,
                    .narrow = b->dtype != F32 };

    for (int64_t n = 0; call->seq && n < call->nseq; n++)
        scores_add_sequence(s, &k, (double)call->seq[n].len, 1);
    if (!call->seq && b->N)             /* ends that the device alone knows */
        scores_add_sequence(s, &k, (double)(b->B * b->T) / (double)b->N,
                            (double)b->N);
    return k;
}

/* That a call which starts from states takes for tokens that may read them. */
static double seconds_of_first(const Variant *v, const Bound *b,
                               const Machine *m)
{
    const Scores *s = v->step->scores;
    ScoreCall k = { .size = b->call.size, .heads = b->call.heads,
                    .narrow = b->dtype != F32 };

    scores_add_sequence(s, &k, (double)s->width, (double)b->call.nseq);
    return states_seconds(s, v->step, &k, m, false);
}

static bool takes(Ctx *c, const Variant *v, const Args *a, const Bound *b,
                  const Adjoint *d)
{
    bool runs = a->mode == M_FORWARD || a->mode == M_BACKWARD;
    const Backend *on = b->call.on_device || !a->backend ? NULL : a->backend;
    bool device = b->call.on_device || on == backend_named("cuda");

    if (!v->step->scores || !runs || a->serial || a->ends
        || v->way == WAY_STATES || wants_states(v, b, d))
        return false;
    bool start = has_start(v, b);
    if (start && !(device && passes_start(v, a, b)))
        return false;
    if (v->way == WAY_PAIRS)
        return true;
    if (!device || (wants_ends(v, b) && !knows_last_tokens(v, b))
        || (v->step->scores->window && blocks_refuse(v, b)))
        return false;
    ScoreCall k = score_call(v->step->scores, b);
    const Machine *m = backend_named("cuda")->machine(c, &v->shared);
    bool back = a->mode == M_BACKWARD;
    double first = start ? seconds_of_first(v, b, m) : 0;
    return scores_seconds(v->step->scores, &k, m, back) + first
         < states_seconds(v->step->scores, v->step, &k, m, back);
}

/* ---- programs ---- */

enum { TOKENS, FIRST_SUM };             /* parts; behind them the result */

static LayerProgram *scores_program(Ctx *c, Variant *v)
{
    const Scores *s = v->step->scores;
    Graph *step[MAX_SUMS + 3] = { s->tokens };
    int n = FIRST_SUM;

    if (s->window) {
        Graph *scan[BLOCK_PARTS];
        blocks_parts(s, scan);
        return parts_program(c, v, scan, BLOCK_PARTS);
    }

    for (int i = 0; i < s->nsums; i++)
        step[n++] = s->pairs[i];
    step[n++] = s->result;
    step[n++] = s->rest;
    return parts_program(c, v, step, n);
}

/* ---- a call ---- */

/* Values of the call, and their gradients. */
typedef struct Values {
    Lay *k;
    const Scores *s;
    Given value[MAX_VALUES], grad[MAX_VALUES];
    Array own[MAX_VALUES], own_grad[MAX_VALUES];
    bool has[MAX_VALUES];               /* something of its gradient is there */
} Values;

static const int *values_of(const Values *x, int at)
{
    return at == TOKENS ? x->s->of_tokens
         : at - FIRST_SUM < x->s->nsums ? x->s->of_pairs[at - FIRST_SUM]
         : x->s->of_result;
}

static Sub *begin(Values *x, int at, Mode mode)
{
    Sub *s = parts_begin(x->k, at, mode);
    const int *of = values_of(x, at);

    for (int i = 0; i < s->p->step->nin; i++)
        s->args.in[i] = x->value[of[i]];
    parts_bind(x->k, s);
    return s;
}

/* A number a token is a gate's or a weight's. */
static DType type_of_result(const Lay *k, const Graph *step, int o,
                            DType narrow)
{
    return !k->b->call.on_device || !step->out[o].rank ? F32 : narrow;
}

/* Room for result o of the part, which is that value from now on. */
static void make_result(Values *x, Sub *s, int o, int value)
{
    Given *g = &x->value[value];
    const Graph *step = s->p->step;

    *g = (Given){ .given = true, .device = x->k->b->call.on_device };
    g->rank = result_shape(step, &s->bound, o, g->shape);
    x->own[value] = array_of(g);
    make_room(x->k, &x->own[value], type_of_result(x->k, step, o,
              x->k->b->dtype), x->k->keep);
    place_given(g, &x->own[value]);
    s->bound.call.out[o] = result_view(step, o, g);
}

static void run_tokens(Values *x)
{
    Sub *s = begin(x, TOKENS, M_FORWARD);

    for (int o = 0; o < s->p->step->nout; o++)
        make_result(x, s, o, VALUE_TOKENS + o);
    x->k->realm->forward(x->k, s);
}

static void run_sum(Values *x, int n)
{
    Sub *s = begin(x, FIRST_SUM + n, M_FORWARD);

    if (x->s->result) {
        make_result(x, s, 0, VALUE_SUMS + n);
    } else {
        Given y = given_y(x->k);
        s->bound.call.out[0] = result_view(s->p->step, 0, &y);
    }
    x->k->realm->forward(x->k, s);
}

static void run_result(Values *x)
{
    Sub *s = begin(x, FIRST_SUM + x->s->nsums, M_FORWARD);
    Given y = given_y(x->k);

    s->bound.call.out[0] = result_view(s->p->step, 0, &y);
    x->k->realm->forward(x->k, s);
}

/* All; or, not y, what the way back reads. */
static void run_ahead(Values *x, bool y)
{
    bool sums = y || (x->s->result && !x->s->adds);

    if (x->s->tokens)
        run_tokens(x);
    for (int n = 0; n < x->s->nsums && sums; n++) {
        ctx_poll(x->k->c);
        run_sum(x, n);
    }
    if (y && x->s->result)
        run_result(x);
}

/* ---- gradients ---- */

static bool is_wanted(const Values *x, int value)
{
    const Given *dx = &x->k->d->dx[value < VALUE_TOKENS ? value : 0];

    return value >= VALUE_TOKENS || (dx->given && dx->data);
}

/* Where a part's gradient of that value goes: its own place the first time,
 * then room that is added to it (put_gradient). Of what is made they are
 * float32: an angle's gradient is a sum of what cancels. */
static void take_gradient(Values *x, int value, Given *dx, Array *more)
{
    Lay *k = x->k;
    Given *g = &x->grad[value];

    *more = (Array){ 0 };
    if (!is_wanted(x, value))
        return;
    if (!x->has[value] && value < VALUE_TOKENS) {
        *g = k->d->dx[value];
    } else if (!x->has[value]) {
        *g = x->value[value];
        Array all = array_of(g);
        x->own_grad[value] = room_like(k, &all, F32);
        place_given(g, &x->own_grad[value]);
    }
    *dx = *g;
    if (!x->has[value])
        return;
    Array all = array_of(g);
    *more = room_like(k, &all, k->b->call.on_device && g->dtype != F64
                      ? g->dtype : F32);
    place_given(dx, more);
}

static void put_gradient(Values *x, int value, Array *more)
{
    if (!is_wanted(x, value))
        return;
    if (more->data) {
        Array all = array_of(&x->grad[value]);
        x->k->realm->move(x->k, &all, more, true);
        drop_array(x->k, more);
    }
    x->has[value] = true;
}

/* The part's way back, dy being set. */
static void run_back(Values *x, Sub *s, int at)
{
    const int *of = values_of(x, at);
    int n = s->p->step->nin;
    Array *more = ctx_alloc(x->k->c, (size_t)(n + 1) * sizeof *more);

    for (int i = 0; i < n; i++)
        take_gradient(x, of[i], &s->d.dx[i], &more[i]);
    x->k->realm->backward(x->k, s);
    for (int i = 0; i < n; i++)
        put_gradient(x, of[i], &more[i]);
}

static void back_result(Values *x)
{
    int at = FIRST_SUM + x->s->nsums;
    Sub *s = begin(x, at, M_BACKWARD);

    s->d.dy[0] = x->k->d->dy[0];
    run_back(x, s, at);
}

static void back_sum(Values *x, int n)
{
    Sub *s = begin(x, FIRST_SUM + n, M_BACKWARD);

    s->d.dy[0] = x->has[VALUE_SUMS + n] ? x->grad[VALUE_SUMS + n]
                                        : x->k->d->dy[0];
    run_back(x, s, FIRST_SUM + n);
    drop_array(x->k, &x->own_grad[VALUE_SUMS + n]);
}

static void back_tokens(Values *x)
{
    Sub *s = begin(x, TOKENS, M_BACKWARD);

    for (int o = 0; o < s->p->step->nout; o++)
        if (x->has[VALUE_TOKENS + o])
            s->d.dy[o] = x->grad[VALUE_TOKENS + o];
    run_back(x, s, TOKENS);
}

static void run_backwards(Values *x)
{
    Lay *k = x->k;

    run_ahead(x, k->left);
    if (x->s->result && !x->s->adds)
        back_result(x);
    for (int n = x->s->nsums; n-- > 0;) {
        ctx_poll(k->c);
        back_sum(x, n);
    }
    if (x->s->tokens)
        back_tokens(x);
    for (int i = 0; i < k->step->nin; i++) {
        Array v = array_of(&k->d->dx[i]);
        if (is_wanted(x, i) && !x->has[i])
            k->realm->zero(k, &v);
    }
}

static void run_all(Lay *k)
{
    Values *x = ctx_alloc(k->c, sizeof *x);

    if (k->step->scores->window) {
        blocks_run(k);
        return;
    }
    *x = (Values){ .k = k, .s = k->step->scores };
    for (int i = 0; i < k->step->nin; i++)
        x->value[i] = given_input(k, i);
    if (k->d)
        run_backwards(x);
    else
        run_ahead(x, true);
    for (int i = VALUE_TOKENS; i < MAX_VALUES; i++) {
        drop_array(k, &x->own_grad[i]);
        if (!k->keep)
            drop_array(k, &x->own[i]);
    }
}

/* ---- calls ---- */

static const PartsCall over_pairs = { scores_program, run_all };

/* The states that such a call ends with are those of the step's own plan. */
static const PlanEntry *plan_of_ends(Ctx *c, Variant *v, const Args *a,
                                     const Bound *b)
{
    bool staged = !b->call.on_device && a->backend == backend_named("cuda");

    if (a->mode != M_FORWARD || !wants_ends(v, b) || staged)
        return NULL;                    /* staged: the copies' call does it */
    return plan_for_ends(c, v, b->call.size, plan_chunk(a),
                         call_backend(c, a, &b->call));
}

/* Of a window a sequence's last tokens alone, from a whole turn of its rings
 * on; where first ones are told apart, none of these is left in a ring, nor one
 * that comes where they do in the call. Of one that starts from states the
 * tokens that may read these go before. */
static const Seq *last_tokens(Ctx *c, const Variant *v, const Bound *b)
{
    const Scores *of = v->step->scores;
    const Call *call = &b->call;
    int64_t places = call->size[of->ring_axis];
    int64_t most = tokens_of_rings(of, call);
    int64_t begins = has_start(v, b) ? of->width : 0;
    Seq *last = ctx_alloc(c, (size_t)(call->nseq + 1) * sizeof *last);

    for (int64_t n = 0; n < call->nseq; n++) {
        Seq *s = &last[n];
        *s = call->seq[n];
        int64_t rest = s->len - begins - most;
        int64_t from = begins + (rest > 0 ? rest / places * places : 0);
        s->start += from;
        s->len -= from;
    }
    return last;
}

static Call call_of_ends(Ctx *c, const Variant *v, const Bound *b)
{
    Call call = b->call;

    if (call.seq && v->step->scores->ring_axis)
        call.seq = last_tokens(c, v, b);
    if (has_start(v, b))                /* what the first tokens have left */
        memcpy(call.s0, call.s1, sizeof call.s0);
    for (int o = 0; o < v->step->nout; o++)
        call.out[o] = (View){ .dtype = y_dtype(v->step, b) };
    call.workspace = NULL;
    return call;
}

/* Of a call that starts from states the tokens that may read them, by the
 * step. */
static const PlanEntry *plan_of_first(Ctx *c, Variant *v, const Args *a,
                                      const Bound *b)
{
    bool there = b->call.on_device || a->backend != backend_named("cuda");

    if (a->mode != M_FORWARD || !there || !has_start(v, b))
        return NULL;                    /* else the copies' call does it */
    return plan_for(c, v, b->call.size, plan_chunk(a), false,
                    call_backend(c, a, &b->call));
}

static Call call_of_first(Ctx *c, const Variant *v, const Bound *b)
{
    Call call = b->call;
    Seq *first = ctx_alloc(c, (size_t)(call.nseq + 1) * sizeof *first);

    for (int64_t n = 0; n < call.nseq; n++) {
        first[n] = call.seq[n];
        first[n].len = v->step->scores->width;
    }
    call.seq = first;
    call.workspace = NULL;
    return call;
}

/* The states beside the rings, of whole sequences. */
static const PlanEntry *plan_of_rest(Ctx *c, Variant *v, const Args *a,
                                     const Bound *b)
{
    const Scores *s = v->step->scores;

    if (!s->rest)
        return NULL;
    int part = s->window ? PART_REST : FIRST_SUM + s->nsums + 1;
    return plan_for_ends(c, scores_program(c, v)->variant[part],
                         b->call.size, plan_chunk(a),
                         call_backend(c, a, &b->call));
}

static Call call_of_rest(const Variant *v, const Bound *b)
{
    const Graph *rest = v->step->scores->rest;
    Call call = b->call;

    memset(call.s0, 0, sizeof call.s0);
    memset(call.s1, 0, sizeof call.s1);
    for (int i = 0; i < rest->nst; i++) {
        int of = graph_find_state(v->step, rest->st[i].name);
        call.s0[i] = b->call.s0[of];
        call.s1[i] = b->call.s1[of];
    }
    call.out[0] = (View){ .dtype = y_dtype(v->step, b) };
    call.workspace = NULL;
    return call;
}

static void prepare(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    const PlanEntry *e = plan_of_ends(c, v, a, b);

    parts_prepare(c, &over_pairs, v, a, b);
    const PlanEntry *first = plan_of_first(c, v, a, b);
    if (first && first->backend->prepare) {
        Call call = call_of_first(c, v, b);
        first->backend->prepare(c, first->program, first->plan, &call);
    }
    if (e && e->backend->prepare) {
        Call call = call_of_ends(c, v, b);
        e->backend->prepare(c, e->program, e->plan, &call);
    }
    const PlanEntry *rest = e ? plan_of_rest(c, v, a, b) : NULL;
    if (rest && rest->backend->prepare) {
        Call call = call_of_rest(v, b);
        rest->backend->prepare(c, rest->program, rest->plan, &call);
    }
}

/* How many tokens a sequence had is not what its last ones say. */
static void put_positions(Ctx *c, const Variant *v, const PlanEntry *e,
                          const Bound *b)
{
    const Call *call = &b->call;
    const View *p = &call->s1[v->step->scores->position];
    int64_t heads = p->sh == 1 ? p->heads : 1;

    for (int64_t n = 0; p->data && n < call->nseq; n++)
        for (int64_t h = 0; h < p->heads; h += heads)
            e->backend->fill(c, v->shared.gpu, call, (float *)p->data
                             + n * p->sb + h * p->sh, (float)call->seq[n].len,
                             heads);
}

static void run_ends(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    const PlanEntry *e = plan_of_ends(c, v, a, b);

    if (!e)
        return;
    Call call = call_of_ends(c, v, b);
    e->backend->run(c, e->program, e->plan, &call);
    const PlanEntry *rest = plan_of_rest(c, v, a, b);
    if (rest) {
        call = call_of_rest(v, b);
        rest->backend->run(c, rest->program, rest->plan, &call);
    } else if (call.seq != b->call.seq) {
        put_positions(c, v, e, b);
    }
}

static void run_first(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    const PlanEntry *e = plan_of_first(c, v, a, b);

    if (!e)
        return;
    Call call = call_of_first(c, v, b);
    e->backend->run(c, e->program, e->plan, &call);
}

static void forward(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    parts_forward(c, &over_pairs, v, a, b);
    run_first(c, v, a, b);
    run_ends(c, v, a, b);
}

static void backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                     const Adjoint *d)
{
    parts_backward(c, &over_pairs, v, a, b, d);
}

static int64_t bytes_saved(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    return parts_saved(c, &over_pairs, v, a, b);
}

static int64_t forward_saving(Ctx *c, Variant *v, const Args *a,
                              const Bound *b, Stored room)
{
    int64_t bytes = parts_run_saved(c, &over_pairs, v, a, b, room);

    if (bytes > room.bytes)
        return bytes;
    run_first(c, v, a, b);
    run_ends(c, v, a, b);
    return bytes;
}

static int64_t workspace(Ctx *c, Variant *v, const Args *a, const Bound *b,
                         const Adjoint *d)
{
    return parts_workspace(c, &over_pairs, v, a, b, d);
}

static uint64_t mark(const Variant *v, const Args *a, const Bound *b)
{
    return parts_mark(v, a, b) ^ 1;
}

static Variant *part_variant(Ctx *c, Variant *v, int i)
{
    return scores_program(c, v)->variant[i];
}

const LayerRuns runs_over_pairs = {
    .prepare = prepare, .release = parts_release, .plan = parts_plan,
    .workspace = workspace, .forward = forward, .backward = backward,
    .saved_bytes = bytes_saved, .run_saved = forward_saving, .mark = mark,
    .takes = takes, .part = part_variant,
};
