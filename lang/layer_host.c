/* layer_host.c -- a layer's values in the host's memory: float32, by the tile
 * machine and its products. What a call has made ends with it.
 */
#include <string.h>

#include "../backend/cpu/product.h"
#include "../backend/cpu/row.h"
#include "layer_run.h"

#define NOWHERE ((uintptr_t)256)

static DType type(const Lay *k, Ref r)
{
    (void)k;
    (void)r;
    return F32;
}

static void *room(Lay *k, int64_t bytes, bool keep)
{
    (void)keep;
    if (k->dry)
        return (void *)NOWHERE;
    return ctx_alloc(k->c, (size_t)bytes);
}

static void drop(Lay *k, void *at)
{
    (void)k;
    (void)at;
}

static void number(Lay *k, Array *v, double x, int which)
{
    (void)which;
    make_room(k, v, F32, false);
    if (!k->dry)
        *(float *)v->data = (float)x;
}

/* n elements that lie ts and fs apart: to = from, or += from. */
static void move_row(const View *to, int64_t t, int64_t ts, const View *from,
                     int64_t f, int64_t fs, int64_t n, bool add)
{
    if (to->dtype == F32 && from->dtype == F32) {
        float *y = (float *)to->data + t;
        const float *x = (const float *)from->data + f;
        for (int64_t i = 0; i < n; i++)
            y[i * ts] = x[i * fs] + (add ? y[i * ts] : 0);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        view_set(to, t + i * ts, view_get(from, f + i * fs)
                 + (add ? view_get(to, t + i * ts) : 0));
}

static void move(Lay *k, const Array *to, const Array *from, bool add)
{
    View a = { .data = to->data, .dtype = to->dtype };
    View b = { .data = from->data, .dtype = from->dtype };
    int64_t at[TENSOR_RANK] = { 0 }, fs[TENSOR_RANK], t = 0, f = 0;
    int last = to->rank - 1;
    int64_t n = last < 0 ? 1 : to->n[last];

    if (k->dry || !array_count(to))
        return;
    for (int i = 0; i <= last; i++)
        fs[i] = from->st[array_find(from, to->ax[i])];
    for (int64_t row = array_count(to) / n; row > 0; row--) {
        if (row % 4096 == 0)
            ctx_poll(k->c);
        move_row(&a, t, last < 0 ? 1 : to->st[last], &b, f,
                 last < 0 ? 1 : fs[last], n, add);
        for (int i = last - 1; i >= 0; i--) {
            t += to->st[i];
            f += fs[i];
            if (++at[i] < to->n[i])
                break;
            t -= at[i] * to->st[i];
            f -= at[i] * fs[i];
            at[i] = 0;
        }
    }
}

static void moves(Lay *k, const Array *to, const Array *const *from, int n)
{
    for (int i = 0; i < n; i++)
        move(k, &to[i], from[i], false);
}

/* A caller's memory; the call's own is zeros when it is made. */
static void zero(Lay *k, const Array *v)
{
    static const float nothing;
    Array from = *v;

    memset(from.st, 0, sizeof from.st);
    from.data = (void *)(uintptr_t)&nothing;
    from.dtype = F32;
    if (!v->own)
        move(k, v, &from, false);
}

static bool takes(const Lay *k, const Array *v, int64_t rs, int64_t cs,
                  bool second)
{
    (void)k;
    (void)rs;
    (void)cs;
    (void)second;
    return v->dtype == F32;
}

static bool gives(const Lay *k, const Array *v)
{
    (void)k;
    return v->dtype == F32;
}

/* Rows of what a product is added to. */
static void copy_rows(const Matmul *m, int64_t batch)
{
    const float *from = (const float *)m->plus->data + m->plus0
                      + batch * m->pbs;
    float *to = (float *)m->c->data + m->c0 + batch * m->cbs;

    for (int64_t i = 0; i < m->m; i++)
        memcpy(to + i * m->crs, from + i * m->prs, (size_t)m->n * sizeof *to);
}

static void product(Lay *k, const Matmul *m)
{
    for (int64_t i = 0; m->plus && i < m->batch && !k->dry; i++)
        copy_rows(m, i);
    for (int64_t i = 0; i < m->batch && !k->dry; i++)
        cpu_product(k->c, k->v->shared.pool, k->args->threads, &(Product){
            .m = m->m, .n = m->n, .k = m->k,
            .a = (const float *)m->a->data + m->a0 + i * m->abs,
            .ars = m->ars, .acs = m->acs,
            .b = (const float *)m->b->data + m->b0 + i * m->bbs,
            .brs = m->brs, .bcs = m->bcs, .bare = !m->b->own,
            .c = (float *)m->c->data + m->c0 + i * m->cbs, .crs = m->crs,
            .add = m->add || m->plus });
}

static bool cheap(const Lay *k, int part)
{
    (void)k;
    (void)part;
    return false;
}

static bool adds(const Lay *k, int part, int input)
{
    (void)input;
    return cheap(k, part);
}

/* ---- row programs ---- */

static const RowStep *row_of(const Lay *k, const Sub *s)
{
    return k->p->row[s->p - k->p->parts->part];
}

static RowCall *row_call(const Lay *k, const Sub *s, const RowStep *step)
{
    RowCall *r = ctx_alloc(k->c, sizeof *r);
    const Call *call = &s->bound.call;

    *r = (RowCall){ .B = s->bound.B, .T = s->bound.T, .heads = call->heads,
                    .size = call->size, .nkept = step->nkept,
                    .kept = s->saved->at, .some = k->some,
                    .carry = k->carry };
    memcpy(r->in, call->in, sizeof r->in);
    return r;
}

static void row_ahead(Lay *k, Sub *s, const RowStep *step)
{
    RowProgram *p = row_forward(k->c, step, k->keep);
    RowCall *call = row_call(k, s, step);

    if (k->keep && (!k->some.is || k->some.begins)) {
        int64_t n = row_count(p, call) * call->B * call->T * call->heads;
        call->kept = room(k, n * step->nkept * (int64_t)sizeof(float) + 1,
                          true);
        *s->saved = (Stored){ .at = call->kept, .bytes = 1 };
    }
    call->out[0] = s->bound.call.out[0];
    if (!k->dry)
        cpu_row(k->c, k->v->shared.pool, k->args->threads, p, call);
}

static void row_back(Lay *k, Sub *s, const RowStep *step)
{
    const Graph *g = s->p->step;
    bool wanted[MAX_INPUTS] = { false };
    RowCall *call = row_call(k, s, step);

    for (int i = 0; i < step->nin; i++)
        wanted[i] = s->d.dx[i].given && s->d.dx[i].data;
    RowProgram *p = row_backward(k->c, step, wanted, s->inplace,
                                 s->saved->at != NULL);
    RowReads how = { .columns = false };
    for (int i = 0; i < step->nin; i++)
        how.shared[i] = call->in[i].heads < call->heads;
    const char *wrong = row_check(k->c, p, &how);
    if (wrong)
        fail_code(k->c, ERR_INTERNAL, "%s: %s", g->name, wrong);
    call->in[step->nin] = result_view(g, 0, &s->d.dy[0]);
    for (int i = 0; i < p->nout; i++)
        call->out[i] = input_view(g, p->out[i].input,
                                  &s->d.dx[p->out[i].input]);
    if (!k->dry)
        cpu_row(k->c, k->v->shared.pool, k->args->threads, p, call);
}

/* ---- parts ---- */

static void forward(Lay *k, Sub *s)
{
    if (row_of(k, s)) {
        row_ahead(k, s, row_of(k, s));
        return;
    }
    if (k->dry)
        prepare_bound(k->c, s->v, &s->args, &s->bound);
    else
        run_bound(k->c, s->v, &s->args, &s->bound);
}

static void backward(Lay *k, Sub *s)
{
    if (row_of(k, s)) {
        row_back(k, s, row_of(k, s));
        return;
    }
    if (k->dry)
        prepare_backward(k->c, s->v, &s->args, &s->bound);
    else
        run_backward(k->c, s->v, &s->args, &s->bound, &s->d);
}

static bool over(const Lay *k, int part, int input)
{
    return input != OVER_RESULT && k->p->over[part] && k->p->over[part][input];
}

const Realm realm_host = { false, type, room, drop, zero, number, move, moves,
                           takes, gives, product, cheap, adds, cheap, over,
                           NULL, forward, backward, NULL };
