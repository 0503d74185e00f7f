/* row.c -- row programs, strip by strip: a strip is some entries of a row, in
 * float32. Sums of strips are added up in double.
 */
#include "row.h"
#include "../../compiler/elem.h"
#include "../../compiler/fold.h"
#include "isa.h"

#include <string.h>

enum { STRIP = 1024 };

/* A reduction on its way along the row: a sum; or the largest so far and the
 * sum of exp beside it. */
typedef struct Fold { float most; double sum; } Fold;
_Static_assert(sizeof(Fold) <= ROW_CARRY, "what parts of a row leave");

typedef struct Job {
    Ctx *c;
    const RowProgram *p;
    const RowCall *call;
    const Isa *isa;
    AxisSet others;
    int64_t rows;                       /* of a token and head */
    int workers, width;                 /* strips that one has */
    int folds;                          /* reductions of the first pass */
    int *slot;                          /* per node: its strip */
    float *strips;
    bool does[ROW_PASSES];              /* per pass: anything */
    double **sums;                      /* per result: over all rows */
    atomic_int_fast64_t next;
    atomic_bool stop;
} Job;

/* Where a row is: its token and head, and the entry of each other axis. */
typedef struct Place {
    int64_t b, t, row;                  /* row: of all */
    int head;
    int32_t at[NAXES];
} Place;

typedef struct Work {
    const Job *j;
    float *strip, *number;
    Fold *fold;
    Place at;
} Work;

static bool is_along(const RowProgram *p, Ref r)
{
    return p->g->n[r].axes & p->along;
}

/* Entries of a row of it; of a number, 1. */
static int64_t length_of(const RowProgram *p, Ref r)
{
    int ax = row_axis(p, r);

    return ax < 0 ? 1 : p->g->axis[ax].size >> row_half(p, r);
}

/* ---- tensors ---- */

static int64_t where(const Job *j, const Place *at, const View *v,
                     const uint8_t *order, int rank)
{
    int group = j->call->heads / v->heads;
    int64_t i = at->b * v->sb + at->t * v->st + at->head / group * v->sh;

    for (int d = 0; d < rank; d++)
        if (!(AXIS(order[d]) & j->p->along))
            i += at->at[order[d]] * v->sd[d];
    return i;
}

static int64_t step_along(const Job *j, const View *v, const uint8_t *order,
                          int rank)
{
    for (int d = 0; d < rank; d++)
        if (AXIS(order[d]) & j->p->along)
            return v->sd[d];
    return 0;
}

static void load_strip(const Work *w, Ref r, int64_t from, int n, float *y)
{
    const Job *j = w->j;
    int i = j->p->g->n[r].index;
    const Input *in = &j->p->g->in[i];
    const View *v = &j->call->in[i];
    int64_t st = step_along(j, v, in->order, in->rank);
    int64_t at = where(j, &w->at, v, in->order, in->rank) + from * st;

    if (st == 1 && !dtype_whole(v->dtype)) {
        j->isa->load[v->dtype](1, n, y, n, (const char *)v->data
                               + at * dtype_size(v->dtype), n);
        return;
    }
    for (int k = 0; k < n; k++)
        y[k] = (float)view_get(v, at + k * st);
}

static float load_number(const Work *w, Ref r)
{
    int i = w->j->p->g->n[r].index;
    const Input *in = &w->j->p->g->in[i];
    const View *v = &w->j->call->in[i];

    return (float)view_get(v, where(w->j, &w->at, v, in->order, in->rank));
}

/* The order of a result's own axes. */
static const uint8_t *order_of(const Job *j, const RowOut *o, int *rank)
{
    const Graph *g = j->p->g;

    if (o->input >= 0) {
        *rank = g->in[o->input].rank;
        return g->in[o->input].order;
    }
    *rank = g->out[0].rank;
    return g->out[0].order;
}

static void store_strip(const Work *w, int out, int64_t from, int n,
                        const float *y)
{
    const Job *j = w->j;
    const View *v = &j->call->out[out];
    int rank;
    const uint8_t *order = order_of(j, &j->p->out[out], &rank);
    int64_t st = step_along(j, v, order, rank);
    int64_t at = where(j, &w->at, v, order, rank) + from * st;
    bool add = w->at.head % (j->call->heads / v->heads);

    if (st == 1 && !add) {
        j->isa->store[v->dtype](1, n, y, n, (char *)v->data
                                + at * dtype_size(v->dtype), n);
        return;
    }
    for (int k = 0; k < n; k++)
        view_set(v, at + k * st, y[k] + (add ? view_get(v, at + k * st) : 0));
}

/* ---- sums over rows ---- */

/* Where a result that is summed begins: of its head and other axes. */
static int64_t sum_place(const Job *j, const Place *at, int out)
{
    const RowOut *o = &j->p->out[out];
    const View *v = &j->call->out[out];
    const Input *in = &j->p->g->in[o->input];
    int64_t i = at->head / (j->call->heads / v->heads);

    for (int d = 0; d < in->rank; d++)
        if (!(AXIS(in->order[d]) & j->p->along))
            i = i * j->call->size[in->order[d]] + at->at[in->order[d]];
    return i * length_of(j->p, in->node);
}

static void add_rows(const Work *w, int out, int64_t from, int n,
                     const float *y, bool number)
{
    double *sum = w->j->sums[out] + sum_place(w->j, &w->at, out) + from;

    for (int k = 0; k < n; k++)
        sum[k] += y[number ? 0 : k];
}

/* ---- a pass ---- */

static float *strip_of(const Work *w, Ref r)
{
    return w->strip + (int64_t)w->j->slot[r] * (STRIP + TILE_SLACK);
}

static const float *operand(const Work *w, Ref r, bool *number)
{
    *number = !is_along(w->j->p, r);
    return *number ? &w->number[r] : strip_of(w, r);
}

static void elements(const Work *w, Ref r, int n)
{
    const Node *node = &w->j->p->g->n[r];
    const float *x[3] = { w->number, w->number, w->number };
    ptrdiff_t st[4] = { 0 };
    int scalar = 0;
    bool number;

    for (int i = 0; i < op_info[node->op].arity; i++) {
        x[i] = operand(w, node->a[i], &number);
        scalar |= number << i;
    }
    w->j->isa->elem[node->op](1, n, strip_of(w, r), x, st, scalar);
}

/* Of pairs that of a strip, which begins with one; else counted from the row's
 * first. */
static void put_entries(const Work *w, const Node *n, int64_t from, int len,
                        float *y)
{
    const float *a = strip_of(w, n->a[0]);
    int64_t k = op_is(n->op, PAIRS) ? 0 : w->j->call->some.from + from;
    int64_t end = k + len;

    switch (n->op) {
#define x(at) a[at]
#define ENTRY(value) (float)(value)
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    case OP_##name: \
        for (; k < end; k++) \
            *y++ = value; \
        break;
#include "../../compiler/ops.def"
#undef x
    }
}

static void make_strip(const Work *w, Ref r, int64_t from, int n)
{
    const Node *node = &w->j->p->g->n[r];
    float *y = strip_of(w, r);

    if (row_half(w->j->p, r)) {
        from /= 2;
        n /= 2;
    }
    if (node->op == OP_input)
        load_strip(w, r, from, n, y);
    else if (op_is(node->op, ELEMENTWISE))
        elements(w, r, n);
    else
        put_entries(w, node, from, n, y);
}

static float product_sum(const Work *w, const Node *n, int len)
{
    const float *a, *b;
    bool one, two;
    float y;

    a = operand(w, n->a[0], &one);
    b = operand(w, n->a[1], &two);
    if (one || two)
        return one ? *a * w->j->isa->row_sum(len, b)
                   : *b * w->j->isa->row_sum(len, a);
    w->j->isa->row_dot(1, len, &y, 1, a, 0, b, 0);
    return y;
}

/* With what the strip adds beside the largest, which may be another now. */
static void fold_exp(const Work *w, Fold *f, const float *a, int n)
{
    enum { A = 2 };
    float *x = w->strip + (int64_t)(w->j->width - 1) * (STRIP + TILE_SLACK);
    const ptrdiff_t st[4] = { 0 };
    float most = f->most;

    for (int k = 0; k < n; k++)
        most = (float)max_(most, a[k]);
    if (isinf(most) || isnan(most)) {
        f->most = most;
        return;
    }
    w->j->isa->elem[OP_sub](1, n, x, (const float *[]){ a, &most, a }, st, A);
    w->j->isa->elem[OP_exp](1, n, x, (const float *[]){ x, x, x }, st, 0);
    f->sum = f->sum * exp((double)f->most - most) + w->j->isa->row_sum(n, x);
    f->most = most;
}

static void fold_strip(const Work *w, Ref r, int64_t from, int n)
{
    const Node *node = &w->j->p->g->n[r];
    Fold *f = &w->fold[r];
    const int64_t some = w->j->call->some.from;
    const float *a = op_is(node->op, MULTIPLIES) ? NULL
                                                 : strip_of(w, node->a[0]);

    if (op_is(node->op, OF_MOST))
        for (int k = 0; k < n; k++)
            f->most = (float)max_(f->most, a[k]);
    else if (op_is(node->op, WHOLE_ROW))
        fold_exp(w, f, a, n);
    else if (op_is(node->op, ADDS_UP))
        f->sum += a ? w->j->isa->row_sum(n, a) : product_sum(w, node, n);
    else if (node->index >= from + some && node->index < from + some + n)
        f->sum = a[node->index - from - some];  /* the entry that is taken */
}

static float fold_end(int op, const Fold *f)
{
    bool logs = op_is(op, WHOLE_ROW) && !op_is(op, OF_MOST);

    if (op_is(op, OF_MOST) || (logs && (isinf(f->most) || isnan(f->most))))
        return f->most;
    return (float)(logs ? f->most + log(f->sum) : f->sum);
}

static void run_strip(const Work *w, int pass, int64_t from, int n)
{
    const RowProgram *p = w->j->p;

    for (Ref r = 1; r < p->g->len; r++)
        if (p->need[pass][r] && row_folds(p->g, r) && !is_along(p, r))
            fold_strip(w, r, from, n);
        else if (p->need[pass][r])
            make_strip(w, r, from, n);
    for (int i = 0; i < p->nout; i++) {
        const RowOut *o = &p->out[i];
        bool along = is_along(p, o->node);
        bool wide = o->summed && is_along(p, p->g->in[o->input].node);
        if (o->pass != pass || (!along && !wide) || !w->j->call->out[i].data)
            continue;
        int by = row_half(p, wide ? p->g->in[o->input].node : o->node) ? 2 : 1;
        if (o->summed)
            add_rows(w, i, from / by, n / by, along ? strip_of(w, o->node)
                     : &w->number[o->node], !along);
        else
            store_strip(w, i, from / by, n / by, strip_of(w, o->node));
    }
}

/* ---- numbers of a row ---- */

static float element(const Work *w, const Node *n)
{
    double x[3] = { 0 };

    for (int i = 0; i < op_info[n->op].arity; i++)
        x[i] = w->number[n->a[i]];
    return (float)elem_value(n->op, x[0], x[1], x[2]);
}

/* Those that can be computed before pass `stage`, and not earlier. */
static void make_numbers(const Work *w, int stage)
{
    const RowProgram *p = w->j->p;

    for (Ref r = 1; r < p->g->len; r++) {
        const Node *n = &p->g->n[r];
        if (!p->number[r] || p->level[r] != stage || row_folds(p->g, r))
            continue;
        if (n->op == OP_num)
            w->number[r] = (float)n->num;
        else
            w->number[r] = n->op == OP_input ? load_number(w, r)
                                             : element(w, n);
    }
}

static void take_kept(const Work *w)
{
    const RowProgram *p = w->j->p;

    for (int i = 0; i < p->nkept; i++)
        w->number[p->kept[i]] =
            w->j->call->kept[w->at.row * p->nkept + i];
}

static void end_row(const Work *w)
{
    const RowProgram *p = w->j->p;
    const RowCall *call = w->j->call;

    for (int i = 0, kept = 0; i < p->nout; i++) {
        const RowOut *o = &p->out[i];
        float *y = &w->number[o->node];
        bool wide = o->summed && is_along(p, p->g->in[o->input].node);
        if (o->input == OUT_KEPT)
            call->kept[w->at.row * call->nkept + kept++] = *y;
        else if (is_along(p, o->node) || wide || !call->out[i].data)
            continue;
        else if (o->summed)
            add_rows(w, i, 0, 1, y, true);
        else
            store_strip(w, i, 0, 1, y);
    }
}

static bool is_folded(const RowProgram *p, int pass, Ref r)
{
    return p->need[pass][r] && row_folds(p->g, r);
}

static int count_folds(const RowProgram *p)
{
    int n = 0;

    for (Ref r = 1; r < p->g->len; r++)
        n += is_folded(p, 0, r);
    return n;
}

/* As the part before has left them, or empty. */
static void begin_folds(const Work *w, int pass)
{
    const RowProgram *p = w->j->p;
    const RowSome *some = &w->j->call->some;
    const Fold *at = NULL;

    if (some->is && !some->begins && w->j->folds)
        at = (const Fold *)w->j->call->carry + w->at.row * w->j->folds;
    for (Ref r = 1; r < p->g->len; r++)
        if (is_folded(p, pass, r))
            w->fold[r] = at ? *at++ : (Fold){ -INFINITY, 0 };
}

static void leave_folds(const Work *w)
{
    Fold *at = NULL;

    if (w->j->folds)
        at = (Fold *)w->j->call->carry + w->at.row * w->j->folds;
    for (Ref r = 1; r < w->j->p->g->len; r++)
        if (is_folded(w->j->p, 0, r))
            *at++ = w->fold[r];
}

static void run_row(const Work *w)
{
    const RowProgram *p = w->j->p;
    const RowSome *some = &w->j->call->some;

    take_kept(w);
    make_numbers(w, 0);
    for (int pass = 0; pass < p->npasses; pass++) {
        int64_t all = w->j->does[pass]
                    ? p->g->axis[row_pass_axis(p, pass)].size : 0;
        begin_folds(w, pass);
        for (int64_t from = 0; from < all; from += STRIP) {
            int64_t left = all - from;
            run_strip(w, pass, from, left < STRIP ? (int)left : STRIP);
        }
        if (some->is && !some->ends) {
            leave_folds(w);
            return;
        }
        for (Ref r = 1; r < p->g->len; r++)
            if (is_folded(p, pass, r))
                w->number[r] = fold_end(p->g->n[r].op, &w->fold[r]);
        if ((pass + 1) % p->naxes == 0)
            make_numbers(w, (pass + 1) / p->naxes);
    }
    end_row(w);
}

/* ---- all rows ---- */

int64_t row_count(const RowProgram *p, const RowCall *call)
{
    AxisSet all = 0;
    int64_t n = 1;

    for (int i = 0; i < p->g->nin; i++)
        all |= p->g->in[i].axes;
    for (all &= ~p->along; all; all &= all - 1)
        n *= call->size[lowest(all)];
    return n;
}

static void run_token(Work *w, int64_t token)
{
    const Job *j = w->j;
    const RowCall *call = j->call;

    w->at.b = token / call->T;
    w->at.t = token % call->T;
    for (int64_t i = 0; i < call->heads * j->rows; i++) {
        int64_t rest = i % j->rows;
        w->at.head = (int)(i / j->rows);
        w->at.row = token * call->heads * j->rows + i;
        for (AxisSet s = j->others; s; s &= s - 1) {
            int ax = lowest(s);
            w->at.at[ax] = (int32_t)(rest % call->size[ax]);
            rest /= call->size[ax];
        }
        run_row(w);
    }
}

static void work(void *ud, int worker)
{
    Job *j = ud;
    size_t len = j->p->g->len;
    int64_t strips = (int64_t)j->width * (STRIP + TILE_SLACK);
    int64_t each = strips + (int64_t)(len + len * sizeof(Fold) / 4 + 16);
    Work w = { .j = j };
    int64_t i;

    w.fold = (Fold *)(void *)(j->strips + worker * (each + each % 2));
    w.number = (float *)(w.fold + len);
    w.strip = w.number + len;
    while ((i = atomic_fetch_add(&j->next, 1)) < j->call->B * j->call->T
           && !atomic_load(&j->stop)) {
        run_token(&w, i);
        if (!worker && j->c->interrupted
            && j->c->interrupted(j->c->interrupt_ud))
            atomic_store(&j->stop, true);
    }
}

static void find_slots(Job *j)
{
    const RowProgram *p = j->p;

    j->slot = ctx_alloc(j->c, p->g->len * sizeof *j->slot);
    for (Ref r = 1; r < p->g->len; r++) {
        bool used = false;
        for (int pass = 0; pass < p->npasses; pass++)
            used = used || (p->need[pass][r] && is_along(p, r));
        j->slot[r] = used ? j->width++ : 0;
    }
    j->width++;                         /* for exp of a strip */
    for (int i = 0; i < p->g->nin; i++)
        j->others |= p->g->in[i].axes & ~p->along;
}

/* Entries of a result that is summed. */
static int64_t sum_entries(const Job *j, int out)
{
    const Input *in = &j->p->g->in[j->p->out[out].input];
    int64_t n = j->call->out[out].heads;

    for (int d = 0; d < in->rank; d++)
        n *= j->call->size[in->order[d]];
    return n;
}

static bool make_sums(Job *j)
{
    bool any = false;

    j->sums = ctx_alloc(j->c, (size_t)j->p->nout * sizeof *j->sums + 1);
    for (int i = 0; i < j->p->nout; i++) {
        if (!j->p->out[i].summed || !j->call->out[i].data)
            continue;
        j->sums[i] = ctx_alloc(j->c, (size_t)sum_entries(j, i)
                                     * sizeof(double) + 1);
        any = true;
    }
    return any;
}

/* From [heads, others, along], each in the order of the input's axes. */
static void give_sums(const Job *j, int out)
{
    const RowProgram *p = j->p;
    const Input *in = &p->g->in[p->out[out].input];
    const View *v = &j->call->out[out];
    int64_t n = sum_entries(j, out);
    int64_t inner = length_of(p, in->node);

    for (int64_t i = 0; i < n; i++) {
        int64_t k = i % inner, rest = i / inner;
        int64_t at = k * step_along(j, v, in->order, in->rank);
        for (int d = in->rank - 1; d >= 0; d--) {
            if (AXIS(in->order[d]) & p->along)
                continue;
            at += rest % j->call->size[in->order[d]] * v->sd[d];
            rest /= j->call->size[in->order[d]];
        }
        view_set(v, at + rest * v->sh, j->sums[out][i]);
    }
}

void cpu_row(Ctx *c, Pool *pool, int threads, const RowProgram *p,
             const RowCall *call)
{
    Job j = { .c = c, .p = p, .call = call, .isa = isa_find(NULL),
              .rows = row_count(p, call) };
    int64_t tokens = call->B * call->T;
    int n = threads ? threads : pool_processors();

    find_slots(&j);
    j.folds = count_folds(p);
    for (int pass = 0; pass < p->npasses; pass++)
        j.does[pass] = row_does(p, pass);
    if (make_sums(&j))
        n = 1;                          /* one after another */
    if (n > tokens)
        n = tokens ? (int)tokens : 1;
    j.workers = n;
    size_t len = p->g->len, each = (size_t)j.width * (STRIP + TILE_SLACK)
                                 + len + len * sizeof(Fold) / 4 + 16;
    j.strips = ctx_alloc(c, (size_t)n * (each + each % 2) * sizeof(float));
    pool_share(c, pool, n, work, &j);
    if (atomic_load(&j.stop))
        fail_code(c, ERR_INTERRUPT, "interrupted");
    for (int i = 0; i < p->nout; i++)
        if (j.sums[i])
            give_sums(&j, i);
}
