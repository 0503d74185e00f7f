/* interp.c -- the float64 interpreter: of a step, token by token (the truth),
 * and of a chunk graph, chunk by chunk (the derivation, without a backend's
 * numerics). One walk serves both: a step is a graph whose chunks hold one
 * token.
 *
 * A graph with states that run backwards is walked twice: forwards for all
 * that does not depend on those, keeping each other state as every chunk
 * finds it, then from the last chunk to the first.
 */
#include "call.h"
#include "eval.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct Run {
    Ctx *c;                             /* of this call alone */
    const Graph *g;
    const Call *call;
    Eval *e;
    int chunk;
    StateSet reverse;                   /* states that run backwards */
    double *left[MAX_STATES];           /* the next values, until all are */
    double *kept[MAX_STATES];           /* [chunk][state] or NULL */
    const Seq *seq;
    int64_t iseq;
    int head;
    Blame *blame;                       /* or NULL */
    struct Rounding *rounding;          /* NULL: none */
} Run;

/* What is off, and by how much. */
typedef struct Rounding {
    double unit;                        /* of what products have to do with */
    uint64_t seed;
    uint8_t *coarse;                    /* nodes that are such, once known */
} Rounding;

/* ---- tensors to tiles and back ---- */

/* A tensor beside a tile: dimensions with the step that each takes in both.
 * The tile's is 0 along an axis that the value lacks: it is the same there. */
typedef struct Move {
    const View *v;
    bool store;
    int nd;
    int32_t ext[9];
    int64_t step[9], tile[9];
} Move;

static void move_axis(Move *m, const Eval *e, Ref r, int axis, int64_t step)
{
    AxisSet axes = e->g->n[r].axes;
    bool has = axes & AXIS(axis);
    int64_t tile = 1;

    for (int ax = NAXES - 1; ax > axis; ax--)
        if (axes & AXIS(ax))
            tile *= eval_extent(e, r, ax);
    m->ext[m->nd] = eval_extent(e, has ? r : 0, axis);
    m->step[m->nd] = step;
    m->tile[m->nd++] = has ? tile : 0;
}

static void move_rest(const Move *m, int d, int64_t at, double *p)
{
    if (d < m->nd) {
        for (int32_t k = 0; k < m->ext[d]; k++)
            move_rest(m, d + 1, at + k * m->step[d], p + k * m->tile[d]);
        return;
    }
    if (m->store)
        view_set(m->v, at, *p);
    else
        *p = view_get(m->v, at);
}

/* Moves all elements, from place `at` of the tensor on. */
static void move(Move *m, const Eval *e, Ref r, const uint8_t *order,
                 int rank, int64_t at)
{
    for (int d = 0; d < rank; d++)
        move_axis(m, e, r, order[d], m->v->sd[d]);
    move_rest(m, 0, at, e->val[r]);
}

static void load_input(const Run *u, int i, int64_t token)
{
    const Input *in = &u->g->in[i];
    const View *v = &u->call->in[i];
    Move m = { .v = v };
    int64_t at = u->head / (u->call->heads / v->heads) * v->sh;

    if (in->timed)
        at += u->seq->b * v->sb + token * v->st;
    if (u->g->n[in->node].axes & AXIS(AX_I))
        move_axis(&m, u->e, in->node, AX_I, v->st);
    move(&m, u->e, in->node, in->order, in->rank, at);
}

static void store_output(const Run *u, int i, int64_t token)
{
    const Output *o = &u->g->out[i];
    const View *v = &u->call->out[i];
    Move m = { .v = v, .store = true };

    move_axis(&m, u->e, o->node, AX_I, v->st);
    move(&m, u->e, o->node, o->order, o->rank,
         u->seq->b * v->sb + token * v->st + u->head * v->sh);
}

/* token: that has left it, where each one's state is kept; else -1. */
static void move_state(const Run *u, int i, const View *v, bool store,
                       int64_t token)
{
    const State *s = &u->g->st[i];
    Move m = { .v = v, .store = store };
    double *p = u->e->val[s->node];
    int64_t at;
    bool there = v->data && call_place(u->call, v, u->iseq, token, &at);

    if (!there && !store)
        memset(p, 0, (size_t)eval_count(u->e, s->node) * sizeof *p);
    if (there)
        move(&m, u->e, s->node, s->order, s->rank, at + u->head * v->sh);
}

static void store_states(const Run *u, StateSet which, int64_t token)
{
    for (int i = 0; i < u->g->nst; i++)
        if (which & STATE(i))
            move_state(u, i, &u->call->s1[i], true, token);
}

/* ---- states from chunk to chunk ---- */

/* dst, with axes of its own, from a value that may lack some of them. */
static void spread(const Eval *e, double *dst, Ref like, Ref from)
{
    const double *src = e->val[from];
    AxisSet axes = e->g->n[like].axes, has = e->g->n[from].axes;
    int64_t count = eval_count(e, like);

    for (int64_t at = 0; at < count; at++) {
        int64_t rest = at, off = 0, step = 1;
        for (int ax = NAXES - 1; ax >= 0; ax--) {
            if (!(axes & AXIS(ax)))
                continue;
            int64_t k = rest % eval_extent(e, like, ax);
            rest /= eval_extent(e, like, ax);
            if (has & AXIS(ax)) {
                off += k * step;
                step *= eval_extent(e, from, ax);
            }
        }
        dst[at] = src[off];
    }
}

/* Every state of this direction takes its next value: all at once, since
 * one's next value may be what another one holds. */
static void carry(const Run *u, StateSet which)
{
    const Graph *g = u->g;

    for (int i = 0; i < g->nst; i++) {
        const State *s = &g->st[i];
        if (!(which & STATE(i)) || !s->next)
            continue;
        size_t bytes = (size_t)eval_count(u->e, s->node) * sizeof(double);
        if (g->n[s->next].axes == g->n[s->node].axes)
            memcpy(u->left[i], u->e->val[s->next], bytes);
        else
            spread(u->e, u->left[i], s->node, s->next);
    }
    for (int i = 0; i < g->nst; i++) {
        const State *s = &g->st[i];
        size_t bytes = (size_t)eval_count(u->e, s->node) * sizeof(double);
        if (which & STATE(i) && s->next)
            memcpy(u->e->val[s->node], u->left[i], bytes);
    }
}

/* Keeps (or brings back) the forward states as chunk m finds them. */
static void keep(const Run *u, int64_t m, bool back)
{
    for (int i = 0; i < u->g->nst; i++) {
        if (!u->kept[i])
            continue;
        double *tile = u->e->val[u->g->st[i].node];
        int64_t count = eval_count(u->e, u->g->st[i].node);
        double *at = u->kept[i] + m * count;
        memcpy(back ? tile : at, back ? at : tile,
               (size_t)count * sizeof *tile);
    }
}

/* ---- what is not a number ---- */

/* The value of the node that is farthest from a number of float32; 0: all
 * are numbers of it. */
static double worst_of(const Run *u, Ref r)
{
    const double *p = u->e->val[r];
    double worst = 0;

    for (int64_t n = p ? eval_count(u->e, r) : 0; n-- > 0; p++) {
        if (*p != *p)
            return *p;
        if (fabs(*p) > FLT_MAX && fabs(*p) > fabs(worst))
            worst = *p;
    }
    return worst;
}

/* From a root that is none to the node that made it so: what has such an
 * operand (a NaN before others) has taken it over. */
static Ref maker_of(const Run *u, Ref r)
{
    const Node *n = &u->g->n[r];
    Ref from = 0;

    for (int i = 0; i < op_info[n->op].arity; i++) {
        double x = n->a[i] ? worst_of(u, n->a[i]) : 0;
        if (isnan(x))
            return maker_of(u, n->a[i]);
        from = x != 0 && !from ? n->a[i] : from;
    }
    return from ? maker_of(u, from) : r;
}

static void look(const Run *u, int64_t token)
{
    const Graph *g = u->g;

    for (int i = -g->nout; i < g->nst && u->blame->token < 0; i++) {
        Ref root = i < 0 ? g->out[i + g->nout].node : g->st[i].next;
        double x = root ? worst_of(u, root) : 0;
        if (x == 0 || (i >= 0 && g->st[i].rank < 2 && x == -INFINITY))
            continue;
        *u->blame = (Blame){ token, maker_of(u, root), root, x };
    }
}

/* ---- rounding ---- */

/* Operands and results of products; gates of a gdot are neither. */
static void find_coarse(const Run *u)
{
    const Graph *g = u->g;
    uint8_t *coarse = u->rounding->coarse = ctx_alloc(u->c, g->len);

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        bool product = op_is(n->op, MULTIPLIES);
        for (int i = 0; i < 2 && product; i++)
            coarse[n->a[i]] = 1;
        coarse[r] |= product;
    }
}

/* Constants of the head are loaded once a head, and numbers are exact. */
static bool is_exact(const Graph *g, const Node *n)
{
    return op_is(n->op, CONST)
        || (n->op == OP_input && !g->in[n->index].timed);
}

static void roughen(const Run *u, Ref r)
{
    const double fine = 1.0 / (1 << 23), whole = 4611686018427387904.0;
    Rounding *k = u->rounding;
    double *x = u->e->val[r], unit = k->coarse[r] ? k->unit : fine;
    int64_t n = eval_count(u->e, r);

    if (is_exact(u->g, &u->g->n[r]))
        return;
    for (int64_t i = 0; i < n; i++) {
        k->seed = k->seed * 6364136223846793005u + 1442695040888963407u;
        x[i] *= 1 + unit * (double)((int64_t)k->seed >> 1) / whole;
    }
}

/* ---- the walk ---- */

static int64_t chunks_of(const Run *u, const Seq *s)
{
    return (s->len + u->chunk - 1) / u->chunk;
}

/* Chunk m of the sequence: all nodes, or those that depend on no state that
 * runs backwards. */
static void run_chunk(const Run *u, int64_t m, bool backwards)
{
    const Graph *g = u->g;
    int64_t left = u->seq->len - m * u->chunk;
    int64_t token = u->seq->start + m * u->chunk;

    u->e->rows = left < u->chunk ? (int)left : u->chunk;
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        if (!u->e->live[r] || (!backwards && n->states & u->reverse))
            continue;
        if (n->op == OP_input && g->in[n->index].timed)
            load_input(u, n->index, token);
        eval_node(u->e, r);
        if (u->rounding)
            roughen(u, r);
    }
    if (u->blame)
        look(u, m);
    for (int i = 0; i < g->nout; i++) {
        bool late = g->n[g->out[i].node].states & u->reverse;
        if (u->call->out[i].data && late == backwards)
            store_output(u, i, token);
    }
    carry(u, backwards ? u->reverse : ~u->reverse);
}

/* Before chunk m, when `part` of a head is done. */
static void poll(const Run *u, int64_t m, double part)
{
    const Call *call = u->call;

    if (m % 64 && !u->g->chunk)
        return;
    u->c->done = ((double)u->iseq + (u->head + part) / call->heads)
        / (double)call->nseq;
    ctx_poll(u->c);
    if (call->interrupted && call->interrupted(call->interrupt_ud))
        fail_code(u->c, ERR_INTERRUPT, "interrupted");
}

/* One head of one sequence. */
static void run_head(const Run *u)
{
    const Graph *g = u->g;
    int64_t n = chunks_of(u, u->seq);

    for (int i = 0; i < g->nst; i++)
        move_state(u, i, &u->call->s0[i], false, -1);
    for (int i = 0; i < g->nin; i++)
        if (!g->in[i].timed && u->e->live[g->in[i].node])
            load_input(u, i, 0);
    for (int64_t m = 0; m < n; m++) {
        poll(u, m, (double)m / (double)(u->reverse ? 2 * n : n));
        keep(u, m, false);
        run_chunk(u, m, false);
        if (u->call->each)
            store_states(u, ~(StateSet)0, m);
        if (u->blame && u->blame->token >= 0)
            return;
    }
    if (!u->call->each)
        store_states(u, ~u->reverse, -1);
    if (!u->reverse)
        return;
    for (int64_t m = n - 1; m >= 0; m--) {
        poll(u, m, 1 - (double)m / (double)(2 * n));
        keep(u, m, true);
        run_chunk(u, m, true);
    }
    store_states(u, u->reverse, -1);
}

/* A state's next value fits the state. */
static void check_next(const Run *u, const State *s)
{
    const Node *n = &u->g->n[s->next];

    for (int ax = 0; ax < NAXES; ax++)
        if (n->axes & AXIS(ax)
            && (!(u->g->n[s->node].axes & AXIS(ax))
                || eval_extent(u->e, s->next, ax)
                   != eval_extent(u->e, s->node, ax)))
            fail(u->c, n->line, "what state '%s' becomes differs from it in "
                 "axis '%s'", s->name, u->g->axis[ax].name);
    if (!(u->reverse & STATE(s - u->g->st)) && n->states & u->reverse)
        fail(u->c, n->line, "state '%s' runs forwards but needs one that "
             "runs backwards", s->name);
}

static void check_run(const Run *u)
{
    const Graph *g = u->g;

    for (int i = 0; i < g->nin; i++) {
        const View *v = &u->call->in[i];
        if (!u->e->live[g->in[i].node])
            continue;
        if (!v->data)
            fail(u->c, g->in[i].line, "input '%s' is absent", g->in[i].name);
        if (v->heads <= 0 || u->call->heads % v->heads)
            fail(u->c, g->in[i].line, "input '%s' has %d heads, which do not "
                 "divide %d", g->in[i].name, v->heads, u->call->heads);
    }
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].next)
            check_next(u, &g->st[i]);
}

static void make_room(Run *u)
{
    const Graph *g = u->g;
    int64_t most = 0;

    for (int64_t s = 0; s < u->call->nseq; s++)
        if (chunks_of(u, &u->call->seq[s]) > most)
            most = chunks_of(u, &u->call->seq[s]);
    for (int i = 0; i < g->nst; i++) {
        size_t bytes = (size_t)eval_count(u->e, g->st[i].node)
                     * sizeof(double);
        u->left[i] = ctx_alloc(u->c, bytes);
        if (u->reverse && !(u->reverse & STATE(i)))
            u->kept[i] = ctx_alloc(u->c, bytes * (size_t)most);
    }
}

static void run(Ctx *c, void *ud)
{
    Run *u = ud;
    const Graph *g = u->g;

    u->c = c;
    u->call = call_twins(c, g, u->call, false);
    u->chunk = g->chunk ? g->chunk : 1;
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].reverse)
            u->reverse |= STATE(i);
    u->e = eval_new(c, g, u->call->size, u->chunk);
    check_run(u);
    make_room(u);
    if (u->rounding)
        find_coarse(u);
    if (u->blame) {
        u->seq = u->call->seq;
        run_head(u);
        return;
    }
    for (u->iseq = 0; u->iseq < u->call->nseq; u->iseq++)
        for (u->head = 0; u->head < u->call->heads; u->head++) {
            u->seq = &u->call->seq[u->iseq];
            run_head(u);
        }
}

/* The call's memory ends with it: a context of its own. */
static void interpret(Ctx *c, Run u)
{
    Ctx *own = ctx_like(c);

    if (!own)
        fail_code(c, ERR_MEMORY, "out of memory");
    own->file = c->file;
    own->doing = c->doing;
    own->limit = 0;
    bool ok = ctx_protect(own, run, &u);
    c->err = own->err;
    ctx_free(own);
    if (!ok)
        ctx_rethrow(c);
}

void reference_run(Ctx *c, const Graph *step, const Call *call)
{
    interpret(c, (Run){ .g = step, .call = call });
}

Blame reference_blame(Ctx *c, const Graph *step, const Call *call, int head)
{
    Blame b = { .token = -1 };

    interpret(c, (Run){ .g = step, .call = call, .head = head,
                        .blame = &b });
    return b;
}

void interpret_chunks(Ctx *c, const Graph *chunk, const Call *call)
{
    interpret(c, (Run){ .g = chunk, .call = call });
}

void interpret_rounded(Ctx *c, const Graph *g, const Call *call, double unit,
                       uint64_t seed)
{
    Rounding k = { .unit = unit, .seed = seed };

    interpret(c, (Run){ .g = g, .call = call, .rounding = &k });
}
