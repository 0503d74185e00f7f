/* mask_quadratic.c -- a mask that does not factor, summed as it stands:
 * y_i = sum over j <= i of L(i, j) (q_i . k_j) v_j, in double, each pair of
 * tokens by itself. */
#include "mask.h"

#include <string.h>

typedef struct Quadratic {
    Mask *m;
    const Graph *g;
    const Call *call;
    double *x[3];                       /* q, k, v: [token][entries] */
    int64_t n[3];                       /* entries of each */
    double *leaf[MAX_INPUTS];           /* the mask's leaves, by token */
} Quadratic;

static int input_index(const Graph *g, const char *name)
{
    for (int n = 0; n < g->nin; n++)
        if (!strcmp(g->in[n].name, name))
            return n;
    return -1;
}

/* All entries of a token, by axis number: to p, or from it. Returns the
 * next p. */
static double *copy(const View *v, const uint8_t *order, int rank,
                    const int32_t *size, AxisSet axes, int64_t at, double *p,
                    bool store)
{
    if (!axes) {
        if (store)
            view_set(v, at, *p);
        else
            *p = view_get(v, at);
        return p + 1;
    }
    int ax = __builtin_ctz(axes), d = 0;
    while (d + 1 < rank && order[d] != ax)
        d++;
    for (int32_t k = 0; k < size[ax]; k++)
        p = copy(v, order, rank, size, axes & (axes - 1), at + k * v->sd[d],
                 p, store);
    return p;
}

static int64_t entries(const int32_t *size, AxisSet axes)
{
    int64_t n = 1;

    for (; axes; axes &= axes - 1)
        n *= size[__builtin_ctz(axes)];
    return n;
}

/* Where token t of input n lies. */
static int64_t place(const Quadratic *u, int n, const Seq *s, int head,
                     int64_t t)
{
    const View *v = &u->call->in[n];
    int64_t at = head / (u->call->heads / v->heads) * v->sh;

    return u->g->in[n].timed ? at + s->b * v->sb + (s->start + t) * v->st
                             : at;
}

static void load(Quadratic *u, const Seq *s, int head)
{
    static const char *const tensor[] = { "q", "k", "v" };
    const int32_t *size = u->call->size;

    for (int k = 0; k < 3; k++) {
        int n = input_index(u->g, tensor[k]);
        const Input *in = &u->g->in[n];
        for (int64_t t = 0; t < s->len; t++)
            copy(&u->call->in[n], in->order, in->rank, size, in->axes,
                 place(u, n, s, head, t), u->x[k] + t * u->n[k], false);
    }
    for (int n = 0; n < u->m->g->nin; n++) {
        const Leaf *l = &u->m->leaf[n];
        int at = input_index(u->g, l->name);
        double sum = 0;
        for (int64_t t = 0; t < s->len; t++) {
            double x = at < 0 ? (double)t
                : view_get(&u->call->in[at], place(u, at, s, head, t));
            sum += x;
            u->leaf[n][t] = l->kind == LEAF_CUMSUM ? sum : x;
        }
    }
}

static double weight(const Quadratic *u, int64_t i, int64_t j)
{
    const Mask *m = u->m;
    double leaf[MAX_INPUTS];
    int n = 0;

    while (n < m->npaths && !region_has(&m->path[n].at, i, j))
        n++;
    for (int k = 0; k < m->g->nin; k++) {
        const Leaf *l = &m->leaf[k];
        int64_t t = (l->side == SIDE_J ? j : i) - l->back;
        leaf[k] = t < 0 ? 0 : u->leaf[k][t];
    }
    return mask_eval(u->m, m->path[n].value, leaf);
}

/* Row i; y has room for it. */
static void row(const Quadratic *u, int64_t i, double *y)
{
    int64_t K = u->n[1], V = u->n[2];

    memset(y, 0, (size_t)V * sizeof *y);
    for (int64_t j = 0; j <= i; j++) {
        double w = weight(u, i, j), qk = 0;
        if (w == 0)
            continue;
        for (int64_t c = 0; c < K; c++)
            qk += u->x[0][i * K + c] * u->x[1][j * K + c];
        for (int64_t d = 0; d < V; d++)
            y[d] += w * qk * u->x[2][j * V + d];
    }
}

static void make_room(Ctx *c, Quadratic *u)
{
    size_t most = 0;

    for (int64_t s = 0; s < u->call->nseq; s++)
        if ((size_t)u->call->seq[s].len > most)
            most = (size_t)u->call->seq[s].len;
    for (int k = 0; k < 3; k++)
        u->x[k] = ctx_alloc(c, (most + 1) * (size_t)u->n[k] * sizeof(double));
    for (int n = 0; n < u->m->g->nin; n++)
        u->leaf[n] = ctx_alloc(c, (most + 1) * sizeof(double));
}

void mask_quadratic(Mask *m, Graph *g)
{
    Ref q = g->in[input_index(g, "q")].node;
    Ref k = g->in[input_index(g, "k")].node;
    Ref v = g->in[input_index(g, "v")].node;

    m->work = 0;
    mask_pieces(m);                     /* it is causal all the same */
    graph_output(g, "y", op2(g, OP_mul, dot(g, q, k, g->n[k].axes), v));
    g->mask = m;
    g->note = "mode \"quadratic\": every pair of tokens by itself";
}

void mask_run(Ctx *c, const Graph *step, const Call *call)
{
    /* a copy: to evaluate a mask writes into it, and others may run it */
    Quadratic u = { .m = mask_copy(c, step->mask), .g = step, .call = call };
    const View *out = &call->out[0];
    const Output *o = &step->out[0];
    AxisSet axes = step->n[o->node].axes;

    u.n[0] = u.n[1] = entries(call->size, step->in[input_index(step, "k")]
                              .axes);
    u.n[2] = entries(call->size, axes);
    make_room(c, &u);
    double *y = ctx_alloc(c, (size_t)u.n[2] * sizeof *y);
    for (int64_t s = 0; out->data && s < call->nseq; s++)
        for (int head = 0; head < call->heads; head++) {
            const Seq *seq = &call->seq[s];
            load(&u, seq, head);
            for (int64_t i = 0; i < seq->len; i++) {
                ctx_poll(c);
                row(&u, i, y);
                copy(out, o->order, o->rank, call->size, axes, seq->b
                     * out->sb + (seq->start + i) * out->st + head * out->sh,
                     y, true);
            }
        }
}
