/* mask_quadratic.c -- a mask that does not factor, summed as it stands:
 * y_i = sum over j <= i of L(i, j) (q_i . k_j) v_j, in double, each pair of
 * tokens by itself.
 *
 * Where L takes a cumulative sum by its differences alone, a pair's are from
 * its token j on: neither what was summed before nor a reset, a gate of -inf,
 * costs them digits. */
#include "fold.h"
#include "mask.h"

#include <math.h>
#include <string.h>

/* A cumulative sum in two parts; how many of its terms are -inf. */
typedef struct Total { double hi, lo; int64_t resets; } Total;

/* What a reset adds to a sum: exp of a part in a million of it is zero, yet
 * differences of sums that hold it are off by no more than 1e-7. */
#define RESET (-0x1p30)

typedef struct Quadratic {
    Mask *m;
    const Graph *g;
    const Call *call;
    double *x[3];                       /* q, k, v: [token][entries] */
    int64_t n[3];                       /* entries of each */
    double *leaf[MAX_INPUTS];           /* the mask's leaves, by token */
    Total *total[MAX_INPUTS];           /* of those that L takes by differences
                                           alone; else NULL */
} Quadratic;

/* ---- cumulative sums ---- */

static bool is_sum_of(const Mask *m, int leaf, const char *name)
{
    return m->leaf[leaf].kind == LEAF_CUMSUM
        && !strcmp(m->leaf[leaf].name, name);
}

/* By how much node r grows where the cumulative sum of `name` does so at each
 * token, by 1, when `d` says that of its operands: 0 where r takes differences
 * of it alone; NAN: that cannot be said. */
static double drift(const Mask *m, Ref r, const char *name, const double *d)
{
    const Graph *g = m->g;
    const Node *n = &g->n[r];
    double a = d[n->a[0]], b = d[n->a[1]];
    bool still = true;

    if (n->op == OP_input)
        return is_sum_of(m, n->index, name);
    for (int i = 0; i < op_info[n->op].arity; i++)
        still = still && d[n->a[i]] == 0;
    if (still)
        return 0;
    if (n->op == OP_add || n->op == OP_sub)
        return n->op == OP_add ? a + b : a - b;
    if (n->op == OP_neg)
        return -a;
    if (n->op == OP_mul && g->n[n->a[0]].op == OP_num)
        return g->n[n->a[0]].num * b;
    if (n->op == OP_mul && g->n[n->a[1]].op == OP_num)
        return a * g->n[n->a[1]].num;
    return NAN;
}

static bool by_differences(const Mask *m, const char *name)
{
    double *d = ctx_alloc(m->ctx, m->g->len * sizeof *d);

    for (Ref r = 1; r < m->g->len; r++)
        d[r] = drift(m, r, name, d);
    for (int p = 0; p < m->npaths; p++)
        if (d[m->path[p].value] != 0)
            return false;
    return true;
}

static void add_term(Total *t, double x)
{
    double sum = t->hi + x, part = sum - t->hi;

    if (x == -INFINITY) {
        t->resets++;
        return;
    }
    t->lo += (t->hi - (sum - part)) + (x - part);
    t->hi = sum;
}

/* From b on, to a. */
static double between(const Total *a, const Total *b)
{
    return (a->hi - b->hi) + (a->lo - b->lo)
         + (double)(a->resets - b->resets) * RESET;
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
        int n = graph_find_input(u->g, tensor[k]);
        const Input *in = &u->g->in[n];
        for (int64_t t = 0; t < s->len; t++)
            view_entries(&u->call->in[n], in->order, in->rank, size, in->axes,
                         place(u, n, s, head, t), u->x[k] + t * u->n[k],
                         false);
    }
    for (int n = 0; n < u->m->g->nin; n++) {
        const Leaf *l = &u->m->leaf[n];
        int at = graph_find_input(u->g, l->name);
        double sum = 0;
        Total total = { 0 };
        for (int64_t t = 0; t < s->len; t++) {
            double x = at < 0 ? (double)t
                : view_get(&u->call->in[at], place(u, at, s, head, t));
            sum += x;
            u->leaf[n][t] = l->kind == LEAF_CUMSUM ? sum : x;
            add_term(&total, x);
            if (u->total[n])
                u->total[n][t] = total;
        }
    }
}

/* The token that leaf k is read at; may be before the first. */
static int64_t leaf_token(const Quadratic *u, int k, int64_t i, int64_t j)
{
    const Leaf *l = &u->m->leaf[k];

    return (l->side == SIDE_J ? j : i) - l->back;
}

static double leaf_number(const Quadratic *u, int k, int64_t i, int64_t j)
{
    static const Total none;
    const Total *total = u->total[k];
    int64_t t = leaf_token(u, k, i, j);

    if (total)
        return between(t < 0 ? &none : &total[t], &total[j]);
    return t < 0 ? 0 : u->leaf[k][t];
}

/* L(i, j), its path and the leaves' numbers. */
static double weight(const Quadratic *u, int64_t i, int64_t j, int *path,
                     double *leaf)
{
    const Mask *m = u->m;

    *path = 0;
    while (*path < m->npaths && !region_has(&m->path[*path].at, i, j))
        ++*path;
    for (int k = 0; k < m->g->nin; k++)
        leaf[k] = leaf_number(u, k, i, j);
    return mask_eval(u->m, m->path[*path].value, leaf);
}

static double inner(const double *a, const double *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* a += w b */
static void add_scaled(double *a, double w, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] += w * b[i];
}

/* Row i; y has room for it. */
static void row(const Quadratic *u, int64_t i, double *y)
{
    int64_t K = u->n[1], V = u->n[2];
    double leaf[MAX_INPUTS];
    int path;

    memset(y, 0, (size_t)V * sizeof *y);
    for (int64_t j = 0; j <= i; j++) {
        double w = weight(u, i, j, &path, leaf);
        if (w != 0)
            add_scaled(y, w * inner(u->x[0] + i * K, u->x[1] + j * K, K),
                       u->x[2] + j * V, V);
    }
}

static size_t longest(const Call *call)
{
    size_t most = 0;

    for (int64_t s = 0; s < call->nseq; s++)
        if ((size_t)call->seq[s].len > most)
            most = (size_t)call->seq[s].len;
    return most;
}

static void make_room(Ctx *c, Quadratic *u)
{
    size_t most = longest(u->call);

    for (int k = 0; k < 3; k++)
        u->x[k] = ctx_alloc(c, (most + 1) * (size_t)u->n[k] * sizeof(double));
    for (int n = 0; n < u->m->g->nin; n++)
        u->leaf[n] = ctx_alloc(c, (most + 1) * sizeof(double));
}

void mask_quadratic(Mask *m, Graph *g)
{
    Ref q = g->in[graph_find_input(g, "q")].node;
    Ref k = g->in[graph_find_input(g, "k")].node;
    Ref v = g->in[graph_find_input(g, "v")].node;

    m->work = 0;
    mask_pieces(m);                     /* it is causal all the same */
    graph_output(g, "y", op2(g, OP_mul, dot(g, q, k, g->n[k].axes), v));
    g->mask = m;
    g->note = "mode \"quadratic\": every pair of tokens by itself";
}

static void quadratic_init(Ctx *c, Quadratic *u, const Graph *step,
                           const Call *call)
{
    /* a copy: to evaluate a mask writes into it, and others may run it */
    *u = (Quadratic){ .m = mask_copy(c, step->mask), .g = step,
                      .call = call };
    const Input *k = &step->in[graph_find_input(step, "k")];
    u->n[0] = u->n[1] = entry_count(call->size, k->axes);
    u->n[2] = entry_count(call->size, step->n[step->out[0].node].axes);
    make_room(c, u);
    for (int n = 0; n < u->m->g->nin; n++)
        if (u->m->leaf[n].kind == LEAF_CUMSUM
            && by_differences(u->m, u->m->leaf[n].name))
            u->total[n] = ctx_alloc(c, (longest(call) + 1)
                                       * sizeof *u->total[n]);
}

void mask_run(Ctx *c, const Graph *step, const Call *call)
{
    Quadratic u;
    const View *out = &call->out[0];
    const Output *o = &step->out[0];
    AxisSet axes = step->n[o->node].axes;

    quadratic_init(c, &u, step, call);
    double *y = ctx_alloc(c, (size_t)u.n[2] * sizeof *y);
    for (int64_t s = 0; out->data && s < call->nseq; s++)
        for (int head = 0; head < call->heads; head++) {
            const Seq *seq = &call->seq[s];
            load(&u, seq, head);
            for (int64_t i = 0; i < seq->len; i++) {
                ctx_poll(c);
                row(&u, i, y);
                view_entries(out, o->order, o->rank, call->size, axes, seq->b
                     * out->sb + (seq->start + i) * out->st + head * out->sh,
                     y, true);
            }
        }
}

/* ---- gradients ---- */

typedef struct Gradient {
    Quadratic u;
    const View *dy, *dx;
    double *g;                          /* dy, as u.x */
    double *d[3];                       /* of q, k, v */
    double *leaf[MAX_INPUTS];
    double *sum;                        /* of one input, by token */
    Ref of[MAX_TRACED][MAX_INPUTS];     /* d path / d leaf; 0: none */
} Gradient;

/* Reverse mode on the mask's own graph: scalars, in its element-wise ops. */
static void derive_path(Mask *m, Ref root, Ref *of)
{
    Graph *g = m->g;
    Ref *d = ctx_alloc(m->ctx, (root + 1) * sizeof *d);

    d[root] = num(g, 1);
    for (Ref r = root; r > 0; r--) {
        const Node n = g->n[r];
        Ref var[26] = { 0 };
        if (!d[r])
            continue;
        if (n.op == OP_input)
            of[n.index] = d[r];
        for (int i = 0; i < op_info[n.op].arity; i++)
            var[i] = n.a[i];
        var['y' - 'a'] = r;
        var['g' - 'a'] = d[r];
        for (int i = 0; i < op_info[n.op].arity; i++) {
            Ref x = fold_build(g, op_info[n.op].grad[i], var), *to = &d[n.a[i]];
            if (!is_num(g, x, 0))
                *to = *to ? op2(g, OP_add, *to, x) : x;
        }
    }
}

/* What the pair (i, j) adds. */
static void add_pair(Gradient *b, int64_t i, int64_t j)
{
    const Quadratic *u = &b->u;
    int64_t K = u->n[1], V = u->n[2];
    const double *q = u->x[0] + i * K, *k = u->x[1] + j * K;
    const double *v = u->x[2] + j * V, *dy = b->g + i * V;
    double leaf[MAX_INPUTS], qk = inner(q, k, K), gv = inner(dy, v, V);
    int path;
    double w = weight(u, i, j, &path, leaf);

    add_scaled(b->d[0] + i * K, w * gv, k, K);
    add_scaled(b->d[1] + j * K, w * gv, q, K);
    add_scaled(b->d[2] + j * V, w * qk, dy, V);
    for (int n = 0; n < u->m->g->nin; n++) {
        int64_t t = leaf_token(u, n, i, j);
        if (b->of[path][n] && t >= 0)
            b->leaf[n][t] += qk * gv * mask_eval(u->m, b->of[path][n], leaf);
    }
}

/* Adds up what the leaves that read input `at` have, by token. */
static void sum_leaves(Gradient *b, int at, int64_t len)
{
    const Mask *m = b->u.m;

    memset(b->sum, 0, (size_t)len * sizeof *b->sum);
    for (int n = 0; n < m->g->nin; n++) {
        double later = 0;
        if (graph_find_input(b->u.g, m->leaf[n].name) != at)
            continue;
        for (int64_t t = len - 1; t >= 0; t--) {
            later += b->leaf[n][t];
            b->sum[t] += m->leaf[n].kind == LEAF_CUMSUM ? later
                                                        : b->leaf[n][t];
        }
    }
}

static void store_gradient(Gradient *b, int n, int64_t seq, int head)
{
    static const char *const tensor[] = { "q", "k", "v" };
    const Quadratic *u = &b->u;
    const Input *in = &u->g->in[n];
    const Seq *s = &u->call->seq[seq];
    const View *to = &b->dx[n];
    double *from = b->sum, all = 0;
    int64_t step = 1;

    if (!to->data)
        return;
    sum_leaves(b, n, s->len);
    for (int k = 0; k < 3; k++)
        if (!strcmp(in->name, tensor[k])) {
            from = b->d[k];
            step = u->n[k];
        }
    for (int64_t t = 0; t < s->len; t++) {
        all += from[t];
        if (in->timed)
            view_entries(to, in->order, in->rank, u->call->size, in->axes,
                 s->b * to->sb + (s->start + t) * to->st + head * to->sh,
                 from + t * step, true);
    }
    if (!in->timed)
        view_set(to, seq * to->sb + head * to->sh, all);
}

static void load_dy(Gradient *b, const Seq *s, int head)
{
    const Quadratic *u = &b->u;
    const Output *o = &u->g->out[0];
    AxisSet axes = u->g->n[o->node].axes;

    for (int64_t t = 0; t < s->len; t++)
        view_entries(b->dy, o->order, o->rank, u->call->size, axes,
                     s->b * b->dy->sb + (s->start + t) * b->dy->st
                     + head * b->dy->sh, b->g + t * u->n[2], false);
}

static void back_head(Gradient *b, int64_t seq, int head)
{
    const Quadratic *u = &b->u;
    const Seq *s = &u->call->seq[seq];
    size_t len = (size_t)s->len;

    load(&b->u, s, head);
    load_dy(b, s, head);
    for (int k = 0; k < 3; k++)
        memset(b->d[k], 0, len * (size_t)u->n[k] * sizeof(double));
    for (int n = 0; n < u->m->g->nin; n++)
        memset(b->leaf[n], 0, len * sizeof(double));
    for (int64_t i = 0; i < s->len; i++) {
        ctx_poll(u->m->ctx);
        for (int64_t j = 0; j <= i; j++)
            add_pair(b, i, j);
    }
    for (int n = 0; n < u->g->nin; n++)
        store_gradient(b, n, seq, head);
}

void mask_back(Ctx *c, const Graph *step, const Call *call, const View *dy,
               const View dx[MAX_INPUTS])
{
    Gradient *b = ctx_alloc(c, sizeof *b);
    Quadratic room;

    quadratic_init(c, &b->u, step, call);
    for (int p = 0; p < b->u.m->npaths; p++)
        derive_path(b->u.m, b->u.m->path[p].value, b->of[p]);
    room = b->u;
    make_room(c, &room);                /* as much again */
    for (int k = 0; k < 3; k++)
        b->d[k] = room.x[k];
    memcpy(b->leaf, room.leaf, sizeof b->leaf);
    make_room(c, &room);
    b->g = room.x[2];
    b->sum = ctx_alloc(c, (longest(call) + 1) * sizeof *b->sum);
    b->dy = dy;
    b->dx = dx;
    for (int64_t s = 0; s < call->nseq; s++)
        for (int head = 0; head < call->heads; head++)
            back_head(b, s, head);
}
