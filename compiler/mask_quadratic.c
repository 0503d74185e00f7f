/* mask_quadratic.c -- a mask over all pairs of tokens as it stands, in double:
 *     y_i = sum over j <= i (of both directions: over all j) of w_ij v_j,
 * in which w_ij is L(i, j) (q_i . k_j), or what is said of the pair itself, or,
 * of a softmax, the exponential of the pair's logit over the sum of the row's.
 *
 * Where L takes a cumulative sum by its differences alone, a pair's are from
 * its token j on: neither what was summed before nor a reset, a gate of -inf,
 * costs them digits. */
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
    bool keyed, valued;                 /* a mask for each key, value */
    int64_t mask;                       /* the one in hand, and the keys and */
    int64_t first[2], count[2];         /* values that it is of */
    double *entries;                    /* of a token's input */
    double scale;                       /* of scores */
    int64_t len;                        /* of the sequence in hand */
    struct PairNow *pair;               /* of the row in hand, by token j */
} Quadratic;

/* score: as its piece sees it. value: L or the logit. w: the weight of v_j. */
typedef struct PairNow { int piece; double score, value, w; } PairNow;

/* ---- cumulative sums ---- */

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

static const char *const tensor[] = { "q", "k", "v" };

static bool is_tensor(const char *name)
{
    for (int k = 0; k < 3; k++)
        if (!strcmp(name, tensor[k]))
            return true;
    return false;
}

static bool is_of_keys(const Graph *g, const Input *in)
{
    return in->axes == g->in[graph_find_input(g, "k")].axes;
}

/* Input n's entry that the mask in hand reads. */
static int64_t entry_of(const Quadratic *u, int n)
{
    const Input *in = &u->g->in[n];

    return !in->axes ? 0 : u->first[!is_of_keys(u->g, in)];
}

static double number_of(Quadratic *u, int n, const Seq *s, int head, int64_t t)
{
    const Input *in = &u->g->in[n];
    int64_t at = place(u, n, s, head, t);

    if (!in->axes)
        return view_get(&u->call->in[n], at);
    view_entries(&u->call->in[n], in->order, in->rank, u->call->size, in->axes,
                 at, u->entries, false);
    return u->entries[entry_of(u, n)];
}

/* How many masks there are: one for all entries, or for each key, value. */
static int64_t masks_of(const Quadratic *u)
{
    return (u->keyed ? u->n[1] : 1) * (u->valued ? u->n[2] : 1);
}

/* Takes mask e in hand: what it reads. */
static void load_mask(Quadratic *u, int64_t e, const Seq *s, int head)
{
    u->mask = e;
    u->first[0] = !u->keyed ? 0 : u->valued ? e / u->n[2] : e;
    u->first[1] = !u->valued ? 0 : e % u->n[2];
    u->count[0] = u->keyed ? 1 : u->n[1];
    u->count[1] = u->valued ? 1 : u->n[2];
    for (int n = 0; n < u->m->g->nin; n++) {
        const Leaf *l = &u->m->leaf[n];
        int at = graph_find_input(u->g, l->name);
        double sum = 0;
        Total total = { 0 };
        for (int64_t t = 0; t < s->len; t++) {
            double x = at < 0 ? (double)t : number_of(u, at, s, head, t);
            sum += x;
            u->leaf[n][t] = l->kind == LEAF_CUMSUM ? sum : x;
            add_term(&total, x);
            if (u->total[n])
                u->total[n][t] = total;
        }
    }
}

static void load(Quadratic *u, const Seq *s, int head)
{
    const int32_t *size = u->call->size;

    u->len = s->len;
    for (int k = 0; k < 3; k++) {
        int n = graph_find_input(u->g, tensor[k]);
        const Input *in = &u->g->in[n];
        for (int64_t t = 0; t < s->len; t++)
            view_entries(&u->call->in[n], in->order, in->rank, size, in->axes,
                         place(u, n, s, head, t), u->x[k] + t * u->n[k],
                         false);
    }
}

/* The token that leaf k is read at; may be before the first. */
static int64_t leaf_token(const Quadratic *u, int k, int64_t i, int64_t j)
{
    const Leaf *l = &u->m->leaf[k];

    return (l->side == SIDE_J ? j : i) - l->back;
}

static double leaf_number(const Quadratic *u, int k, int64_t i, int64_t j,
                          double score)
{
    static const Total none;
    const Total *total = u->total[k];
    int64_t t = leaf_token(u, k, i, j);

    if (u->m->leaf[k].kind == LEAF_SCORE)
        return score;
    if (total)
        return between(t < 0 ? &none : &total[t], &total[j]);
    return t < 0 ? 0 : u->leaf[k][t];
}

static void leaf_numbers(const Quadratic *u, int64_t i, int64_t j,
                         double score, double *leaf)
{
    for (int k = 0; k < u->m->g->nin; k++)
        leaf[k] = leaf_number(u, k, i, j, score);
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

/* What is known of (i, j) by itself: all but a softmax's weight. */
static PairNow pair_now(const Quadratic *u, int64_t i, int64_t j)
{
    const Mask *m = u->m;
    int64_t K = u->n[1];
    double leaf[MAX_INPUTS];
    PairNow p = { .value = m->softmax ? -INFINITY : 0 };

    while (p.piece < m->npieces && !region_has(&m->piece[p.piece].at, i, j))
        p.piece++;
    if (p.piece == m->npieces || pair_masked(m, m->piece[p.piece].value))
        return p;
    p.score = u->scale * inner(u->x[0] + i * K + u->first[0],
                               u->x[1] + j * K + u->first[0], u->count[0]);
    leaf_numbers(u, i, j, p.score, leaf);
    p.value = mask_eval(u->m, m->piece[p.piece].value, leaf);
    p.w = m->weighs ? p.value : p.value == 0 ? 0 : p.value * p.score;
    return p;
}

/* The last token that row i may weigh. */
static int64_t last_of(const Quadratic *u, int64_t i)
{
    return u->m->whole ? u->len - 1 : i;
}

/* The pairs of row i; a row of which all is left out has no weights. */
static void find_pairs(const Quadratic *u, int64_t i)
{
    int64_t last = last_of(u, i);
    double most = -INFINITY, all = 0;

    for (int64_t j = 0; j <= last; j++) {
        u->pair[j] = pair_now(u, i, j);
        if (!(u->pair[j].value <= most))
            most = u->pair[j].value;
    }
    if (!u->m->softmax)
        return;
    for (int64_t j = 0; j <= last; j++) {
        PairNow *p = &u->pair[j];
        p->w = p->value == -INFINITY ? 0 : exp(p->value - most);
        all += p->w;
    }
    for (int64_t j = 0; j <= last && all != 0; j++)
        u->pair[j].w /= all;
}

/* Adds what the mask in hand gives row i. */
static void add_row(const Quadratic *u, int64_t i, double *y)
{
    int64_t V = u->n[2], at = u->first[1];

    find_pairs(u, i);
    for (int64_t j = 0; j <= last_of(u, i); j++)
        if (u->pair[j].w != 0)
            add_scaled(y + at, u->pair[j].w, u->x[2] + j * V + at,
                       u->count[1]);
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
    u->pair = ctx_alloc(c, (most + 1) * sizeof *u->pair);
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
    u->scale = pair_scale(u->m, u->n[1]);
    u->entries = ctx_alloc(c, (size_t)(u->n[1] + u->n[2]) * sizeof(double));
    for (int n = 0; n < step->nin; n++) {
        const Input *in = &step->in[n];
        bool own = in->axes && !is_tensor(in->name);
        u->keyed |= own && is_of_keys(step, in);
        u->valued |= own && !is_of_keys(step, in);
    }
    make_room(c, u);
    for (int n = 0; n < u->m->g->nin; n++)
        if (u->m->leaf[n].kind == LEAF_CUMSUM
            && pair_by_differences(u->m, u->m->leaf[n].name))
            u->total[n] = ctx_alloc(c, (longest(call) + 1)
                                       * sizeof *u->total[n]);
}

/* y of a sequence's head, which is cleared. */
static void run_head(Ctx *c, Quadratic *u, const Seq *s, int head, double *y)
{
    const View *out = &u->call->out[0];
    const Output *o = &u->g->out[0];
    AxisSet axes = u->g->n[o->node].axes;
    int64_t V = u->n[2];

    load(u, s, head);
    memset(y, 0, (size_t)(s->len * V) * sizeof *y);
    for (int64_t e = 0; e < masks_of(u); e++) {
        load_mask(u, e, s, head);
        for (int64_t i = 0; i < s->len; i++) {
            ctx_poll(c);
            add_row(u, i, y + i * V);
        }
    }
    for (int64_t i = 0; i < s->len; i++)
        view_entries(out, o->order, o->rank, u->call->size, axes, s->b * out->sb
                     + (s->start + i) * out->st + head * out->sh, y + i * V,
                     true);
}

void mask_run(Ctx *c, const Graph *step, const Call *call)
{
    Quadratic u;

    quadratic_init(c, &u, step, call);
    double *y = ctx_alloc(c, (longest(call) + 1) * (size_t)u.n[2] * sizeof *y);
    for (int64_t s = 0; call->out[0].data && s < call->nseq; s++)
        for (int head = 0; head < call->heads; head++)
            run_head(c, &u, &call->seq[s], head, y);
}

/* ---- gradients ---- */

typedef struct Gradient {
    Quadratic u;
    const View *dy, *dx;
    double *g;                          /* dy, as u.x */
    double *d[3];                       /* of q, k, v */
    double *leaf[MAX_INPUTS];
    double *sum;                        /* of one input, by token */
    double *input[MAX_INPUTS];          /* [token][entries]: of what the masks
                                           read */
    int64_t width[MAX_INPUTS];          /* of these: entries */
    Ref of[MAX_PATHS][MAX_INPUTS];      /* d piece / d leaf; 0: none */
} Gradient;

/* What the pair (i, j) adds, of whose piece's value `dvalue` is the gradient,
 * and `dscore` what its score has beside that. */
static void add_pair(Gradient *b, int64_t i, int64_t j, double dvalue,
                     double dscore)
{
    const Quadratic *u = &b->u;
    const PairNow *p = &u->pair[j];
    int64_t K = u->n[1];
    double leaf[MAX_INPUTS];

    leaf_numbers(u, i, j, p->score, leaf);
    for (int n = 0; n < u->m->g->nin; n++) {
        bool score = u->m->leaf[n].kind == LEAF_SCORE;
        int64_t t = leaf_token(u, n, i, j);
        if (!b->of[p->piece][n] || t < 0)
            continue;
        double d = dvalue * mask_eval(u->m, b->of[p->piece][n], leaf);
        if (score)
            dscore += d;
        else
            b->leaf[n][t] += d;
    }
    int64_t to = i * K + u->first[0], of = j * K + u->first[0];
    dscore *= u->scale;
    add_scaled(b->d[0] + to, dscore, u->x[1] + of, u->count[0]);
    add_scaled(b->d[1] + of, dscore, u->x[0] + to, u->count[0]);
}

/* Of a softmax, w_j (dy . v_j - y . dy) is the gradient of a logit. */
static void back_row(Gradient *b, int64_t i)
{
    const Quadratic *u = &b->u;
    int64_t V = u->n[2];
    int64_t at = u->first[1], n = u->count[1];
    const double *dy = b->g + i * V + at;
    int64_t last = last_of(u, i);
    double all = 0;

    find_pairs(u, i);
    for (int64_t j = 0; j <= last && u->m->softmax; j++)
        if (u->pair[j].w != 0)
            all += u->pair[j].w * inner(dy, u->x[2] + j * V + at, n);
    for (int64_t j = 0; j <= last; j++) {
        const PairNow *p = &u->pair[j];
        if (p->piece == u->m->npieces
            || pair_masked(u->m, u->m->piece[p->piece].value))
            continue;
        double gv = inner(dy, u->x[2] + j * V + at, n);
        if (p->w != 0)
            add_scaled(b->d[2] + j * V + at, p->w, dy, n);
        if (u->m->weighs)
            add_pair(b, i, j, gv, 0);
        else if (!u->m->softmax)
            add_pair(b, i, j, gv * p->score, gv * p->value);
        else if (p->w != 0)
            add_pair(b, i, j, p->w * (gv - all), 0);
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

/* Adds what the mask in hand has of the inputs that it reads. */
static void keep_inputs(Gradient *b, int64_t len)
{
    for (int n = 0; n < b->u.g->nin; n++) {
        double *to = b->input[n] + entry_of(&b->u, n);
        if (is_tensor(b->u.g->in[n].name))
            continue;
        sum_leaves(b, n, len);
        for (int64_t t = 0; t < len; t++)
            to[t * b->width[n]] += b->sum[t];
    }
}

/* Of what has no tokens: their sum. */
static void store_constant(Gradient *b, int n, int64_t seq, int head)
{
    const Input *in = &b->u.g->in[n];
    const View *to = &b->dx[n];
    int64_t width = b->width[n], len = b->u.call->seq[seq].len;
    double *sum = b->u.entries;

    memset(sum, 0, (size_t)width * sizeof *sum);
    for (int64_t t = 0; t < len; t++)
        add_scaled(sum, 1, b->input[n] + t * width, width);
    view_entries(to, in->order, in->rank, b->u.call->size, in->axes,
                 seq * to->sb + head * to->sh, sum, true);
}

static void store_gradient(Gradient *b, int n, int64_t seq, int head)
{
    const Quadratic *u = &b->u;
    const Input *in = &u->g->in[n];
    const Seq *s = &u->call->seq[seq];
    const View *to = &b->dx[n];

    if (!to->data)
        return;
    if (!in->timed) {
        store_constant(b, n, seq, head);
        return;
    }
    for (int64_t t = 0; t < s->len; t++)
        view_entries(to, in->order, in->rank, u->call->size, in->axes,
                     s->b * to->sb + (s->start + t) * to->st + head * to->sh,
                     b->input[n] + t * b->width[n], true);
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
    for (int n = 0; n < u->g->nin; n++)
        memset(b->input[n], 0, len * (size_t)b->width[n] * sizeof(double));
    for (int64_t e = 0; e < masks_of(u); e++) {
        load_mask(&b->u, e, s, head);
        for (int n = 0; n < u->m->g->nin; n++)
            memset(b->leaf[n], 0, len * sizeof(double));
        for (int64_t i = 0; i < s->len; i++) {
            ctx_poll(u->m->ctx);
            back_row(b, i);
        }
        keep_inputs(b, s->len);
    }
    for (int n = 0; n < u->g->nin; n++)
        store_gradient(b, n, seq, head);
}

/* Gradients of the inputs; of q, k and v pairs add to them. */
static void make_inputs(Ctx *c, Gradient *b)
{
    const Quadratic *u = &b->u;

    for (int n = 0; n < u->g->nin; n++) {
        b->width[n] = entry_count(u->call->size, u->g->in[n].axes);
        b->input[n] = ctx_alloc(c, (longest(u->call) + 1)
                                   * (size_t)b->width[n] * sizeof(double));
    }
    for (int k = 0; k < 3; k++)
        b->d[k] = b->input[graph_find_input(u->g, tensor[k])];
}

void mask_back(Ctx *c, const Graph *step, const Call *call, const View *dy,
               const View dx[MAX_INPUTS])
{
    Gradient *b = ctx_alloc(c, sizeof *b);
    Quadratic room;

    quadratic_init(c, &b->u, step, call);
    for (int p = 0; p < b->u.m->npieces; p++)
        pair_derive(b->u.m, b->u.m->piece[p].value, b->of[p]);
    room = b->u;
    make_room(c, &room);                /* as much again */
    memcpy(b->leaf, room.leaf, sizeof b->leaf);
    b->g = room.x[2];
    make_inputs(c, b);
    b->sum = ctx_alloc(c, (longest(call) + 1) * sizeof *b->sum);
    b->dy = dy;
    b->dx = dx;
    for (int64_t s = 0; s < call->nseq; s++)
        for (int head = 0; head < call->heads; head++)
            back_head(b, s, head);
}
