/* validate.c -- what a call's tensors promise, and whether its results are
 * numbers: the first place where they are not, and what made it so.
 *
 * Tensors are looked at where they lie, each once, when the call has run. Only
 * where something is wrong does the float64 step run again, on that sequence
 * and head.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"

typedef enum Kind { INPUT, INITIAL, RESULT, LEFT, NKINDS } Kind;

struct Validation {
    Ctx *c;
    const Graph *step;
    const char *file;                   /* that has the step */
    const Args *args;
    const Bound *b;
    const PlanEntry *plan;
    int n;
    Kind kind[2 * MAX_INPUTS + 3 * MAX_STATES + 2];
    Probe probe[2 * MAX_INPUTS + 3 * MAX_STATES + 2];
    View kept[MAX_STATES];              /* in the host's memory: what a state
                                           that is updated in place was */
};

static bool is_wanted(const Args *a)
{
    const char *s = getenv("FLIN_CHECK");

    if (a->index.given)                 /* bind.c refuses it where asked for */
        return false;
    return a->validate ? a->validate > 0 : s && *s && strcmp(s, "0");
}

/* ---- what is looked at ---- */

static void add(Validation *w, Kind kind, const char *name,
                const Domain *domain, const View *v, int rank,
                const uint8_t *order)
{
    bool state = kind == INITIAL || kind == LEFT;
    Probe *p = &w->probe[w->n];

    if (!v->data)
        return;
    w->kind[w->n++] = kind;
    *p = (Probe){ .name = name, .domain = domain, .v = *v, .rank = rank,
                  .tokens = state ? 1 : w->b->T,
                  .batch = state ? w->b->N : w->b->B };
    for (int d = 0; d < rank; d++) {
        p->order[d] = order[d];
        p->n[d] = w->b->call.size[order[d]];
    }
}

static void add_input(Validation *w, Kind kind, const char *name,
                      const Domain *domain, const Input *in, const View *v)
{
    add(w, kind, name, domain, v, in->rank, in->order);
    if (in->index_of && v->data)
        w->probe[w->n - 1].limit = w->b->call.size[in->index_of];
    if (!in->timed && v->data)
        w->probe[w->n - 1].tokens = w->probe[w->n - 1].batch = 1;
}

static void add_state(Validation *w, Kind kind, const char *of, int i,
                      const View *v)
{
    const State *s = &w->step->st[i];

    add(w, kind, ctx_format(w->c, "%s%s", of, s->name), &domains[0], v,
        s->rank, s->order);
}

static bool is_in_place(const Validation *w, int i)
{
    const Call *call = &w->b->call;

    return call->s0[i].data && call->s0[i].data == call->s1[i].data;
}

/* What the call reads, when it has run (not a state that it has written over),
 * or before. */
static void add_given(Validation *w, bool before)
{
    const Graph *g = w->step;
    const Call *call = &w->b->call;

    for (int i = 0; i < g->nin; i++)
        add_input(w, INPUT, g->in[i].name, g->in[i].mapped ? &domains[0]
                  : domain_named(g->in[i].domain), &g->in[i], &call->in[i]);
    for (int i = 0; i < g->nst; i++)
        if (before || !is_in_place(w, i))
            add_state(w, INITIAL, "the initial state ", i, &call->s0[i]);
}

static void add_results(Validation *w)
{
    const Graph *g = w->step;
    const Call *call = &w->b->call;

    for (int o = 0; o < g->nout; o++)
        add(w, RESULT, g->out[o].name, &domains[0], &call->out[o],
            g->out[o].rank, g->out[o].order);
    for (int i = 0; i < g->nst; i++)
        add_state(w, LEFT, "the final state ", i, &call->s1[i]);
}

static void add_adjoints(Validation *w, const Adjoint *d)
{
    const Graph *g = w->step;

    for (int o = 0; o < g->nout; o++) {
        if (!d->dy[o].given)
            continue;
        View dy = result_view(g, o, &d->dy[o]);
        add(w, INPUT, o ? ctx_format(w->c, "dy.%s", g->out[o].name) : "dy",
            &domains[0], &dy, g->out[o].rank, g->out[o].order);
    }
    for (int i = 0; i < g->nst; i++) {
        View ds = state_view(g, i, &d->dstate[i]);
        if (d->dstate[i].given)
            add_state(w, INITIAL, "the gradient of the final state ", i, &ds);
    }
}

static void add_gradients(Validation *w, const Adjoint *d)
{
    const Graph *g = w->step;

    for (int i = 0; i < g->nin; i++) {
        if (!d->dx[i].given)
            continue;
        View dx = input_view(g, i, &d->dx[i]);
        add_input(w, RESULT, ctx_format(w->c, "the gradient of %s",
                  g->in[i].name), &domains[0], &g->in[i], &dx);
    }
    for (int i = 0; i < g->nst; i++) {
        View ds = state_view(g, i, &d->ds[i]);
        if (d->ds[i].given)
            add_state(w, LEFT, "the gradient of the initial state ", i, &ds);
    }
}

/* ---- numbers, wherever they lie ---- */

/* A copy of what lies from element `low` of the view to element `high`, as
 * the same places of a view in the host's memory. */
static View fetch(const Validation *w, View v, int64_t low, int64_t high)
{
    size_t size = (size_t)dtype_size(v.dtype);
    const char *from = (const char *)((uintptr_t)v.data
                                      + (uintptr_t)low * size);

    if (!w->b->call.on_device || !v.data)
        return v;
    char *to = ctx_alloc(w->c, (size_t)(high - low + 1) * size);
    w->plan->backend->read(w->c, w->plan->program, to, from,
                           (size_t)(high - low + 1) * size);
    v.data = (void *)((uintptr_t)to - (uintptr_t)low * size);
    return v;
}

static double element(const Validation *w, const View *v, int64_t at)
{
    View one = fetch(w, *v, at, at);

    return view_get(&one, at);
}

static double sum_squares(const Validation *w, const Probe *p, int d,
                          int64_t at)
{
    double sum = 0, x;

    if (d == p->rank) {
        x = element(w, &p->v, at);
        return x * x;
    }
    for (int32_t i = 0; i < p->n[d]; i++)
        sum += sum_squares(w, p, d + 1, at + i * p->v.sd[d]);
    return sum;
}

static double value_at(const Validation *w, const Probe *p, const Spot *s)
{
    return p->domain->row ? sqrt(sum_squares(w, p, 0, s->at))
                          : element(w, &p->v, s->at);
}

static void extend(int64_t *low, int64_t *high, int64_t stride, int64_t n)
{
    *low += stride < 0 ? stride * (n - 1) : 0;
    *high += stride > 0 ? stride * (n - 1) : 0;
}

/* The tokens of a sequence, of a state that sequence's, in the host's memory.
 */
static View fetch_part(const Validation *w, const View *v, int64_t b,
                       int64_t start, int64_t len, const uint8_t *order,
                       int rank)
{
    int64_t low = b * v->sb + start * v->st, high = low;

    extend(&low, &high, v->st, len);
    extend(&low, &high, v->sh, v->heads);
    for (int d = 0; d < rank; d++)
        extend(&low, &high, v->sd[d], w->b->call.size[order[d]]);
    return fetch(w, *v, low, high);
}

/* ---- what is to blame ---- */

static Seq sequence(const Validation *w, int64_t i)
{
    const Call *call = &w->b->call;
    int64_t ends[2];

    if (call->seq)
        return call->seq[i];
    w->plan->backend->read(w->c, w->plan->program, ends,
                           (const int64_t *)call->device_cu + i, sizeof ends);
    return (Seq){ 0, ends[0], ends[1] - ends[0] };
}

/* The sequence that has this token; -1: none. */
static int64_t sequence_of(const Validation *w, int64_t batch, int64_t token)
{
    for (int64_t i = 0; i < w->b->call.nseq; i++) {
        Seq s = sequence(w, i);
        if (s.b == batch && token >= s.start && token < s.start + s.len)
            return i;
    }
    return -1;
}

/* A call of one sequence alone, in the host's memory, that stores nothing. */
static Call *call_of(const Validation *w, int64_t i, Seq *s)
{
    const Graph *g = w->step;
    Call *one = ctx_alloc(w->c, sizeof *one);

    *one = w->b->call;
    one->nseq = 1;
    one->seq = s;
    one->on_device = false;
    memset(one->out, 0, sizeof one->out);
    memset(one->s1, 0, sizeof one->s1);
    for (int k = 0; k < g->nin; k++) {
        const Input *in = &g->in[k];
        one->in[k] = fetch_part(w, &one->in[k], s->b, in->timed ? s->start : 0,
                                in->timed ? s->len : 1, in->order, in->rank);
    }
    for (int k = 0; k < g->nst; k++) {
        View *v = &one->s0[k];
        if (is_in_place(w, k))
            *v = w->kept[k];
        else if (v->data)
            *v = fetch_part(w, v, i, 0, 1, g->st[k].order, g->st[k].rank);
        v->data = v->data ? (char *)v->data + i * v->sb
                            * dtype_size(v->dtype) : NULL;
    }
    return one;
}

/* d: of what is not finite. */
static void put_blame(const Validation *w, Buf *b, DType d, const Seq *s,
                      const Call *one, int head)
{
    const Graph *g = w->step;
    Blame found = reference_blame(w->c, g, one, head);

    if (found.token < 0) {
        buf_printf(b, "\n  the float64 step stays within float32's numbers%s",
                   d == F16 ? ", but float16 ends at 65504" : "");
        return;
    }
    const Node *n = &g->n[found.node];
    buf_printf(b, "\n  the float64 step leaves float32's numbers at token "
               "%lld: ", (long long)(s->start + found.token));
    if (n->op == OP_state)
        buf_printf(b, "state %s begins so", g->st[n->index].name);
    else if (n->op == OP_input)
        buf_printf(b, "input %s", g->in[n->index].name);
    else
        buf_printf(b, "'%s' in %s", op_info[n->op].name,
                   expr_text(g, found.node));
    if (n->line)
        buf_printf(b, " (%s:%d)", w->file, n->line);
}

/* What spoils head h of sequence i up to its token `last`. */
static void put_cause(const Validation *w, Buf *b, DType d, int64_t i,
                      int64_t last, int head)
{
    if (w->step->mask || i < 0)
        return;
    Seq s = sequence(w, i);
    s.len = last + 1 < s.len ? last + 1 : s.len;
    Call *one = call_of(w, i, &s);
    put_blame(w, b, d, &s, one, head);
    const char *why = find_growth(w->c, w->step, one, head);
    if (why)
        buf_printf(b, "\n  %s", why);
}

/* ---- messages ---- */

static void put_place(const Validation *w, Buf *b, Kind kind, const Probe *p,
                      const Spot *s)
{
    bool state = kind == INITIAL || kind == LEFT;

    bool timed = !state && (p->tokens > 1 || p->v.st || p->v.sb);

    if (timed)
        buf_printf(b, " at token %lld,", (long long)s->token);
    buf_printf(b, "%s head %lld", timed ? "" : " in", (long long)s->head);
    if (state || timed)
        buf_printf(b, " of %s %lld", state ? "sequence" : "batch entry",
                   (long long)s->batch);
    for (int d = 0; d < p->rank && !p->domain->row; d++)
        buf_printf(b, ", %s %d", w->step->axis[p->order[d]].name,
                   s->entry[d]);
    buf_printf(b, " (all from 0)");
}

static _Noreturn void complain(Validation *w, int at)
{
    const Probe *p = &w->probe[at];
    const char *what = mode_name[w->args->mode];
    Spot s = probe_spot(p, p->first);
    double x = value_at(w, p, &s);
    Buf b = { .ctx = w->c };

    const char *value = isnan(x) ? "nan" : ctx_format(w->c, "%.6g", x);

    if (strcmp(p->domain->wanted, domains[0].wanted))
        buf_printf(&b, "%s: %s is declared %s, %s, but is %s%s", what,
                   p->name, p->domain->name, p->domain->wanted, value,
                   p->domain->row ? " long" : "");
    else
        buf_printf(&b, "%s: %s is not finite: %s", what, p->name, value);
    put_place(w, &b, w->kind[at], p, &s);
    if (w->kind[at] == RESULT) {
        int64_t i = sequence_of(w, s.batch, s.token);
        bool whole = w->args->mode == M_BACKWARD
                  || w->args->mode == M_REFERENCE_BACKWARD;
        put_cause(w, &b, p->v.dtype, i, whole ? INT64_MAX - 1 : s.token
                  - (i < 0 ? 0 : sequence(w, i).start), (int)s.head
                  * (w->b->call.heads / p->v.heads));
    } else if (w->kind[at] == LEFT) {
        put_cause(w, &b, p->v.dtype, s.batch, INT64_MAX - 1, (int)s.head);
    }
    fail_help(w->c, 0, *p->domain->help ? p->domain->help : NULL, "%s", b.s);
}

/* A stabiliser of no numbers is -inf. */
static bool is_nothing(const Validation *w, int at)
{
    const Probe *p = &w->probe[at];
    Spot s = probe_spot(p, p->first);

    return (w->kind[at] == INITIAL || w->kind[at] == LEFT) && p->rank < 2
        && value_at(w, p, &s) == -INFINITY;
}

/* Of results that are finite, too, if that was asked for. */
static void refuse_growth(const Validation *w)
{
    const Call *call = &w->b->call;

    for (int64_t i = 0; i < call->nseq && !w->step->mask; i++) {
        Seq s = sequence(w, i);
        if (!s.len)
            continue;
        Call *one = call_of(w, i, &s);
        for (int head = 0; head < call->heads; head++) {
            const char *why = find_growth(w->c, w->step, one, head);
            if (why)
                fail(w->c, 0, "%s: %s", mode_name[w->args->mode], why);
        }
        return;
    }
}

/* Fails at the first place that is wrong; false: nothing can be known now. */
static bool look(Validation *w)
{
    const PlanEntry *e = w->plan;

    if (w->b->call.on_device) {
        if (!e->backend->probe(w->c, e->program, &w->b->call, w->probe, w->n))
            return false;
    } else {
        for (int i = 0; i < w->n; i++)
            probe_host(w->c, &w->probe[i]);
    }
    for (int kind = 0; kind < NKINDS; kind++) {
        int64_t first = INT64_MAX;
        int at = -1;
        for (int i = 0; i < w->n; i++) {
            const Probe *p = &w->probe[i];
            if ((int)w->kind[i] != kind || p->first == NONE
                || is_nothing(w, i))
                continue;
            Spot s = probe_spot(p, p->first);
            if (s.token < first) {
                first = s.token;
                at = i;
            }
        }
        if (at >= 0)
            complain(w, at);
    }
    return true;
}

static void validate(Ctx *c, void *ud)
{
    Validation *w = ud;

    (void)c;
    if (look(w) && w->args->validate > 1)
        refuse_growth(w);
}

static Validation *validation(Ctx *c, const Variant *v, const Args *a,
                              const Bound *b, const PlanEntry *e)
{
    Validation *w = ctx_alloc(c, sizeof *w);

    w->c = c;
    w->step = v->step;
    w->file = v->ctx->file;
    w->args = a;
    w->b = b;
    w->plan = e;
    return w;
}

/* ---- states that are updated in place ---- */

/* What lies from the view's first entry to its last, as the same places of a
 * view in the host's memory: a copy. */
static View copy_state(const Validation *w, int i, int64_t *low,
                       int64_t *high)
{
    const State *st = &w->step->st[i];
    View v = w->b->call.s0[i];
    size_t size = (size_t)dtype_size(v.dtype);

    *low = *high = 0;
    extend(low, high, v.sb, w->b->N);
    extend(low, high, v.sh, v.heads);
    for (int d = 0; d < st->rank; d++)
        extend(low, high, v.sd[d], w->b->call.size[st->order[d]]);
    if (w->b->call.on_device)
        return fetch(w, v, *low, *high);
    size_t bytes = (size_t)(*high - *low + 1) * size;
    char *to = ctx_alloc(w->c, bytes);
    memcpy(to, (char *)((uintptr_t)v.data + (uintptr_t)*low * size), bytes);
    v.data = (void *)((uintptr_t)to - (uintptr_t)*low * size);
    return v;
}

/* Only its entries: what lies between them is somebody else's. */
static void restore(const Validation *w, int i)
{
    const State *st = &w->step->st[i];
    const Call *call = &w->b->call;
    bool device = call->on_device;
    View v = call->s0[i];
    int64_t n = entry_count(call->size, st->axes), low = 0, high = 0;
    double *x = ctx_alloc(w->c, (size_t)n * sizeof *x);
    View to = device ? copy_state(w, i, &low, &high) : v;

    for (int64_t s = 0; s < w->b->N; s++)
        for (int h = 0; h < v.heads; h++) {
            int64_t at = s * v.sb + h * v.sh;
            view_entries(&w->kept[i], st->order, st->rank, call->size,
                         st->axes, at, x, false);
            view_entries(&to, st->order, st->rank, call->size, st->axes, at,
                         x, true);
        }
    size_t size = (size_t)dtype_size(v.dtype), from = (size_t)low * size;
    if (device)
        w->plan->backend->write(w->c, w->plan->program,
                                (void *)((uintptr_t)v.data + from),
                                (void *)((uintptr_t)to.data + from),
                                (size_t)(high - low + 1) * size);
}

Validation *validate_before(Ctx *c, const Variant *v, const Args *a,
                            const Bound *b, const PlanEntry *e)
{
    bool any = false;
    int64_t low, high;

    if (!is_wanted(a) || !b->N)
        return NULL;
    Validation *w = validation(c, v, a, b, e);
    for (int i = 0; i < v->step->nst; i++)
        any |= is_in_place(w, i);
    if (!any)
        return NULL;
    add_given(w, true);
    if (!look(w))
        return NULL;
    for (int i = 0; i < v->step->nst; i++)
        if (is_in_place(w, i))
            w->kept[i] = copy_state(w, i, &low, &high);
    return w;
}

void validate_call(Ctx *c, const Variant *v, const Args *a, const Bound *b,
                   const PlanEntry *e, const Validation *before)
{
    if (!is_wanted(a))
        return;
    Validation *w = validation(c, v, a, b, e);
    if (before)
        memcpy(w->kept, before->kept, sizeof w->kept);
    else
        add_given(w, false);
    add_results(w);
    bool ok = ctx_protect(c, validate, w);
    Error why = c->err;
    for (int i = 0; !ok && i < v->step->nst; i++)
        if (before && is_in_place(w, i))
            restore(w, i);
    c->err = why;
    if (!ok)
        ctx_rethrow(c);
}

void validate_gradients(Ctx *c, const Variant *v, const Args *a,
                        const Bound *b, const PlanEntry *e, const Adjoint *d)
{
    if (!is_wanted(a))
        return;
    Validation *w = validation(c, v, a, b, e);
    add_given(w, false);
    add_adjoints(w, d);
    add_gradients(w, d);
    validate(c, w);
}
