/* stable.c -- why a state may grow without bound: what the step's universal
 *
 *     S_t = D_t S_{t-1} + sum_r b_r (a_r . S_{t-1}) + ...
 *
 * does to what lies along b_r in S: of it D (1 + a.b / D) is left, -a.b / D
 * of it erased. From 0 to 2 nothing grows (with b = k and a = -beta D k that
 * is |k|^2 beta), nor with a decay of at most 1.
 */
#include <math.h>
#include <string.h>

#include "../compiler/coupled.h"
#include "bind.h"

enum { MOST = 16 };                     /* measures of a step */
static const double SLACK = 0.02;       /* keys are of length 1 but for
                                           bfloat16's rounding */

/* A number of each token that is to lie from `least` to `most`. */
typedef struct Measure {
    int out;                            /* results of the step with measures */
    int square;                         /* |k|^2; 0: it is not of that form */
    double least, most;
    const char *text, *keys;
    int state;
    int32_t line;
} Measure;

typedef struct Growth {
    Ctx *c;
    Graph *g;
    const Call *call;
    int n;
    Measure m[MOST];
    double *value[2 * MOST + 1];        /* beside outputs: [token][entries] */
    int64_t each[2 * MOST + 1];
} Growth;

/* ---- what is measured ---- */

static Measure *add(Growth *w, int state, Ref r, double least, double most)
{
    Measure *m = &w->m[w->n];

    *m = (Measure){ .least = least, .most = most, .state = state,
                    .line = w->g->n[r].line, .text = expr_text(w->g, r) };
    m->out = graph_output(w->g, ctx_format(w->c, "measure %d", w->n), r);
    w->n++;
    return m;
}

/* x less one factor that is `without`. */
static Ref divided(Graph *g, Ref x, Ref without)
{
    Factors f = { 0 };
    Ref rest = 0;

    factors(g, x, &f);
    for (int i = 0; i < f.n; i++) {
        if (without && f.f[i] == without)
            without = 0;
        else
            rest = rest ? op2(g, OP_mul, rest, f.f[i]) : f.f[i];
    }
    return without || !rest ? x : rest;
}

/* "|k|^2 beta", where a and b are the same along the keys. */
static void name_square(Growth *w, Measure *m, Ref a, Ref b, AxisSet kappa)
{
    Graph *g = w->g;
    Factors fa = { 0 }, fb = { 0 };
    Buf text = { .ctx = w->c };

    factors(g, a, &fa);
    factors(g, b, &fb);
    Ref ka = factors_product(g, &fa, kappa, 0);
    Ref kb = factors_product(g, &fb, kappa, 0);
    if (!ka || ka != kb)
        return;
    m->keys = expr_text(g, ka);
    m->square = graph_output(g, ctx_format(w->c, "square %d", w->n),
                             dot(g, ka, ka, kappa));
    buf_printf(&text, "|%s|^2", m->keys);
    for (int k = 0; k < 2; k++) {
        const Factors *f = k ? &fb : &fa;
        for (int i = 0; i < f->n; i++)
            if (!(g->n[f->f[i]].axes & kappa)
                && !is_num(g, f->f[i], -1))
                buf_printf(&text, " %s", expr_text(g, f->f[i]));
    }
    m->text = text.s;
}

static void add_write(Growth *w, int s, const Universal *u, const Write *wr)
{
    Graph *g = w->g;
    Ref a = wr->a && wr->b ? op1(g, OP_neg, divided(g, wr->a, u->decay)) : 0;

    if (!a || !(g->n[a].axes & g->n[wr->b].axes & u->kappa)
        || w->n == MOST)
        return;
    Ref r = dot(g, a, wr->b, u->kappa);
    r = wr->rate ? op2(g, OP_mul, r, wr->rate) : r;
    name_square(w, add(w, s, r, 0, 2), a, wr->b, u->kappa);
}

static void add_state(Growth *w, int s)
{
    Universal *u = ctx_alloc(w->c, sizeof *u);
    Coupled *k = ctx_alloc(w->c, sizeof *k);

    if (!universal(w->g, s, u)) {
        if (w->n < MOST && coupled(w->g, STATE(s), k) && k->keep[0][0]
            && w->g->n[k->keep[0][0]].op != OP_num)
            add(w, s, k->keep[0][0], -1, 1);
        return;
    }
    Ref decay = u->form == FORM_UNIVERSAL ? u->decay
              : u->form == FORM_SCAN ? u->d : 0;
    if (decay && w->g->n[decay].op != OP_num && w->n < MOST)
        add(w, s, decay, -1, 1);
    for (int i = 0; u->form == FORM_UNIVERSAL && i < u->nwrites; i++)
        add_write(w, s, u, &u->write[i]);
}

/* ---- measuring ---- */

static void make_room(Growth *w, Call *call, int out)
{
    const Output *o = &w->g->out[out];
    View *v = &call->out[out];
    int64_t n = 1;

    *v = (View){ .dtype = F64, .heads = call->heads };
    for (int d = o->rank; d-- > 0; n *= call->size[o->order[d]])
        v->sd[d] = n;
    w->each[out] = n;
    v->sh = 0;                          /* the head that runs last */
    v->st = n;
    w->value[out] = ctx_alloc(w->c, (size_t)(n * call->seq->len + 1)
                                    * sizeof(double));
    v->data = w->value[out] - call->seq->start * n;
}

/* The step with its measures, of one head. */
static void measure(Growth *w, int head)
{
    Call *call = ctx_alloc(w->c, sizeof *call);
    Seq seq = *w->call->seq;
    int group;

    *call = *w->call;
    call->seq = &seq;
    for (int i = 0; i < w->g->nin; i++) {
        View *v = &call->in[i];
        group = call->heads / v->heads;
        v->data = (char *)v->data + (head / group * v->sh + seq.b * v->sb)
                  * dtype_size(v->dtype);
        v->heads = 1;
    }
    for (int i = 0; i < w->g->nst; i++)
        if (call->s0[i].data)
            call->s0[i].data = (char *)call->s0[i].data + head
                * call->s0[i].sh * dtype_size(call->s0[i].dtype);
    call->heads = 1;
    seq.b = 0;
    memset(call->out, 0, sizeof call->out);
    for (int i = 1; i < w->g->nout; i++)
        make_room(w, call, i);
    reference_run(w->c, w->g, call);
}

/* The first token at which it leaves its bounds; -1: none. */
static int64_t first_beyond(const Growth *w, const Measure *m, double *x)
{
    int64_t each = w->each[m->out];

    for (int64_t i = 0; i < each * w->call->seq->len; i++) {
        *x = w->value[m->out][i];
        if (*x < m->least - SLACK || *x > m->most + SLACK)
            return i / each;
    }
    return -1;
}

static double square_at(const Growth *w, const Measure *m, int64_t token)
{
    double most = 0;

    for (int64_t i = 0; m->square && i < w->each[m->square]; i++)
        most = fmax(most, w->value[m->square][token * w->each[m->square]
                                              + i]);
    return most;
}

static const char *message(const Growth *w, const Measure *m, int64_t token,
                           double x)
{
    const char *state = w->g->st[m->state].name;
    long long at = (long long)(w->call->seq->start + token);
    Buf b = { .ctx = w->c };

    if (m->most == 1)
        buf_printf(&b, "%s grows: its decay %s reached %.3g at token %lld",
                   state, m->text, x, at);
    else if (m->square && square_at(w, m, token) > 1 + SLACK)
        buf_printf(&b, "keys are not of unit length: %s reached %.3g at token "
                   "%lld; beyond 2, %s grows by what it erases: "
                   "flin.l2norm(%s)", m->text, x, at, state, m->keys);
    else
        buf_printf(&b, "%s grows: %s reached %.3g at token %lld, and what is "
                   "erased may be from 0 to 2 times what is there", state,
                   m->text, x, at);
    return b.s;
}

const char *find_growth(Ctx *c, const Graph *step, const Call *call,
                        int head)
{
    Growth *w = ctx_alloc(c, sizeof *w);
    const Measure *first = NULL;
    int64_t token = INT64_MAX;
    double x = 0, y;

    w->c = c;
    w->g = graph_sized(graph_copy(c, step), call->size);
    w->call = call;
    for (int s = 0; s < step->nst; s++)
        add_state(w, s);
    if (!w->n)
        return NULL;
    measure(w, head);
    for (int i = 0; i < w->n; i++) {
        int64_t t = first_beyond(w, &w->m[i], &y);
        if (t >= 0 && t < token) {
            first = &w->m[i];
            token = t;
            x = y;
        }
    }
    return first ? message(w, first, token, x) : NULL;
}
