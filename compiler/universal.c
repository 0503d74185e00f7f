/* universal.c -- the universal form of a state, from how what becomes of it
 * depends on it.
 */
#include "affine.h"
#include "domain.h"

#include <math.h>
#include <string.h>

static bool depends(const Graph *g, Ref r, int s)
{
    return g->n[r].states & STATE(s);
}

static bool has_operand(const Graph *g, Ref r, Ref x)
{
    for (int i = 0; i < 4; i++)
        if (g->n[r].a[i] == x)
            return true;
    return false;
}

int line_of(const Graph *g, int s, Ref x)
{
    const Node *n = &g->n[x];
    uint8_t *live = ctx_alloc(g->ctx, g->len);

    if (n->op != OP_input && n->op != OP_state && n->op != OP_num)
        return n->line;
    graph_needs(g, live, g->st[s].next);
    for (Ref r = 1; r < g->len; r++)
        if (live[r] && has_operand(g, r, x))
            return g->n[r].line;
    return g->n[g->st[s].next].line;
}

bool state_note(Graph *g, int s, Ref at, const char *what)
{
    const char *text = at ? expr_text(g, at) : "the step";

    g->note = line_text(g, line_of(g, s, at ? at : g->st[s].node),
                         ctx_format(g->ctx, "%s %s %s", text, what,
                                    g->st[s].name));
    return false;
}

/* Whether it is an input that is declared from `least` to `most`. */
static bool is_within(const Graph *g, const Node *n, double least, double most)
{
    return n->op == OP_input
        && domain_within(domain_named(g->in[n->index].domain), least, most);
}

/* Whether x is provably 0 to 1. */
static bool is_unit(const Graph *g, Ref x)
{
    const Node *n = &g->n[x];

    switch (n->op) {
    case OP_num: return n->num >= 0 && n->num <= 1;
    case OP_sigmoid: case OP_lt: case OP_le: case OP_eq: return true;
    case OP_sub: return is_num(g, n->a[0], 1) && is_unit(g, n->a[1]);
    case OP_mul: case OP_min: case OP_max:
        return is_unit(g, n->a[0]) && is_unit(g, n->a[1]);
    case OP_where: return is_unit(g, n->a[1]) && is_unit(g, n->a[2]);
    default: return is_within(g, n, 0, 1);
    }
}

/* Whether x is provably not negative. */
static bool is_nonnegative(const Graph *g, Ref x)
{
    const Node *n = &g->n[x];

    if (op_info[n->op].traits & POS || is_unit(g, x))
        return true;
    switch (n->op) {
    case OP_num: return n->num >= 0;
    case OP_mul: case OP_div: case OP_add: case OP_min:
        return is_nonnegative(g, n->a[0]) && is_nonnegative(g, n->a[1]);
    case OP_max:
        return is_nonnegative(g, n->a[0]) || is_nonnegative(g, n->a[1]);
    case OP_where:
        return is_nonnegative(g, n->a[1]) && is_nonnegative(g, n->a[2]);
    default: return is_within(g, n, 0, INFINITY);
    }
}

/* Whether x is made of comparisons and numbers: it steps, and has no slope. */
static bool is_stepped(const Graph *g, Ref x)
{
    const Node *n = &g->n[x];

    switch (n->op) {
    case OP_num: case OP_lt: case OP_le: case OP_eq: return true;
    case OP_sub: case OP_mul: case OP_add: case OP_min: case OP_max:
        return is_stepped(g, n->a[0]) && is_stepped(g, n->a[1]);
    case OP_where:
        return is_stepped(g, n->a[1]) && is_stepped(g, n->a[2]);
    default: return false;
    }
}

/* The most that x may be, for all that is known. */
static double most_of(const Graph *g, Ref x)
{
    const Node *n = &g->n[x];

    return n->op == OP_num ? n->num
         : is_unit(g, x) ? n->op == OP_mul ? most_of(g, n->a[0])
                                             * most_of(g, n->a[1]) : 1
         : INFINITY;
}

/* The least. */
static double least_of(const Graph *g, Ref x)
{
    const Node *n = &g->n[x];
    Ref a = n->a[0], b = n->a[1];

    switch (n->op) {
    case OP_num: return n->num;
    case OP_add: return least_of(g, a) + least_of(g, b);
    case OP_sub: return least_of(g, a) - most_of(g, b);
    case OP_max: return fmax(least_of(g, a), least_of(g, b));
    case OP_min: return fmin(least_of(g, a), least_of(g, b));
    case OP_where: return fmin(least_of(g, b), least_of(g, n->a[2]));
    default: return is_nonnegative(g, x) ? 0 : -INFINITY;
    }
}

/* The logarithm taken of an x that may be zero, or nearly: its slope there is
 * none that a sum of logarithms can tell. */
static Ref log_taken(Graph *g, Ref x, Ref *sloped)
{
    static const double enough = 0.5;

    if (!is_nonnegative(g, x))
        return 0;
    if (!is_stepped(g, x) && !(least_of(g, x) >= enough))
        *sloped = x;
    return op1(g, OP_log, x);
}

Ref log_of(Graph *g, Ref x, Ref *sloped)
{
    const Node n = g->n[x];
    Ref a = 0, b = 0;

    switch (n.op) {
    case OP_exp: return n.a[0];
    case OP_num:
        return n.num > 0 ? num(g, log(n.num))
             : n.num == 0 ? num(g, LOG_ZERO) : 0;
    case OP_sigmoid:
        return op1(g, OP_neg, op1(g, OP_softplus, op1(g, OP_neg, n.a[0])));
    case OP_sqrt:
        a = log_of(g, n.a[0], sloped);
        return a ? op2(g, OP_mul, a, num(g, 0.5)) : 0;
    case OP_sub:                        /* 1 - sigmoid(x) = sigmoid(-x) */
        if (is_num(g, n.a[0], 1) && g->n[n.a[1]].op == OP_sigmoid)
            return op1(g, OP_neg,
                       op1(g, OP_softplus, g->n[n.a[1]].a[0]));
        return log_taken(g, x, sloped);
    case OP_mul: case OP_div:
        a = log_of(g, n.a[0], sloped);
        b = log_of(g, n.a[1], sloped);
        return a && b ? op2(g, n.op == OP_mul ? OP_add : OP_sub, a, b) : 0;
    case OP_where:
        a = log_of(g, n.a[1], sloped);
        b = log_of(g, n.a[2], sloped);
        return a && b ? op3(g, OP_where, n.a[0], a, b) : 0;
    default: return log_taken(g, x, sloped);
    }
}

AxisSet usual_keys(const Graph *g, int s, AxisSet differ)
{
    const State *st = &g->st[s];
    AxisSet first = AXIS(st->order[0]), keys = first;
    AxisSet *of = ctx_alloc(g->ctx, g->len * sizeof *of);

    for (Ref r = 1; r < g->len && st->rank > 2; r++) {
        const Node *n = &g->n[r];
        if (!(n->states & STATE(s)) || !op_is(n->op, ADDS_UP))
            continue;
        of[r] = n->over & st->axes;
        for (int i = 0; i < 2; i++)
            of[r] |= of[n->a[i]];
        if (of[r] != st->axes && __builtin_popcount(of[r])
                                 > __builtin_popcount(keys))
            keys = of[r];
    }
    return !(differ & ~keys) ? keys : differ != st->axes ? differ : first;
}

/* Which axes the reads contract, and so which ones may decay. */
static bool choose_axes(Graph *g, int s, const Affine *a, Universal *u)
{
    AxisSet kappa = 0, all = g->st[s].axes;
    AxisSet decays = u->log_decay ? g->n[u->log_decay].axes : 0;
    bool alike = true;

    for (int i = 0; i < a->n; i++) {
        alike &= !kappa || !a->term[i].over || a->term[i].over == kappa;
        kappa |= a->term[i].over;
    }
    kappa = kappa ? kappa : usual_keys(g, s, decays);
    if (!alike || (g->st[s].rank > 1 && kappa == all))
        return state_note(g, s, u->decay, "needs both axes of");
    u->kappa = kappa;
    u->nu = all & ~kappa;
    if (decays && (kappa & (kappa - 1)
                   || (decays & ~kappa && (decays != u->nu
                                           || decays & (decays - 1)))))
        return state_note(g, s, u->decay,
                          "decays other axes than it reads of");
    return true;
}

bool decays_apart(const Graph *g, const Universal *u)
{
    return u->log_decay && g->n[u->log_decay].axes & u->nu;
}

/* What all of the state is multiplied by; 0: nothing is kept. */
static Ref decay_of(Graph *g, const Affine *a)
{
    Ref d = 0;

    for (int i = 0; i < a->n; i++) {
        if (a->term[i].over)
            continue;
        Ref c = a->term[i].coef ? a->term[i].coef : num(g, 1);
        d = d ? op2(g, OP_add, d, c) : c;
    }
    return d;
}

static bool find_decay(Graph *g, int s, const Affine *a, Universal *u)
{
    Ref d = decay_of(g, a);

    if (!d)
        return state_note(g, s, g->st[s].next, "keeps nothing of");
    if (is_num(g, d, 1))
        return true;
    u->decay = d;
    u->log_decay = log_of(g, d, &u->sloped);
    if (!u->log_decay)
        return state_note(g, s, d, "may be negative for all that is known "
                          "(write the decay as exp(g), or declare its input "
                          "': unit' or ': positive') and scales");
    return true;
}

/* Adds b (a . S + v)^T, merging with a write of the same b. */
static bool add_write(Graph *g, int s, Universal *u, Write w, Ref at)
{
    for (int i = 0; i < u->nwrites; i++) {
        Write *o = &u->write[i];
        if (o->b != w.b || o->rank != w.rank)
            continue;
        o->a = o->a && w.a ? op2(g, OP_add, o->a, w.a) : o->a + w.a;
        o->v = o->v && w.v ? op2(g, OP_add, o->v, w.v) : o->v + w.v;
        return true;
    }
    if (u->nwrites == MAX_TERMS)
        return state_note(g, s, at, "writes too many terms to");
    u->write[u->nwrites++] = w;
    return true;
}

static Ref or_one(Graph *g, Ref x)
{
    return x ? x : num(g, 1);
}

static bool read_write(Graph *g, int s, Universal *u, const Term *t)
{
    AxisSet kappa = u->kappa, nu = u->nu;
    Factors f = { 0 };

    if (t->coef)
        factors(g, t->coef, &f);
    Ref b = factors_product(g, &f, kappa, 0);
    Ref rest = factors_product(g, &f, 0, kappa | nu);
    Ref rate = factors_product(g, &f, nu, kappa);
    bool decayed = decays_apart(g, u) && rate
                && strip_decay(g, &rate, u->decay);
    rate = rate && is_num(g, rate, 1) ? 0 : rate;
    bool one = decays_apart(g, u) || rate;
    if (!b || (g->n[b].axes & nu) || (one && t->rank))
        return state_note(g, s, t->coef ? t->coef : t->p,
                          "scales a read by both axes of");
    for (int i = 0; i < u->nwrites; i++) {
        const Write *o = &u->write[i];
        if ((one || o->rate) && (o->b != b || o->rate != rate
                                 || o->decayed != decayed))
            return state_note(g, s, b, "scales one of several reads of");
    }
    Write w = { .b = b, .rank = t->rank, .rate = rate, .decayed = decayed,
                .a = op2(g, OP_mul, or_one(g, rest), t->p) };
    return add_write(g, s, u, w, b);
}

AxisSet plain_factors(Graph *g, Ref x, AxisSet kappa, AxisSet nu,
                      Factors *out)
{
    AxisSet rank = 0;
    Factors f = { 0 };

    factors(g, x, &f);
    for (int i = 0; i < f.n; i++) {
        const Node n = g->n[f.f[i]];
        if (op_is(n.op, ADDS_UP) && (n.axes & kappa) && (!nu || (n.axes & nu))
            && !rank) {
            rank = n.over;
            factors(g, n.a[0], out);
            factors(g, n.a[1], out);
        } else {
            factors(g, f.f[i], out);
        }
    }
    return rank;
}

Ref along_all(Graph *g, Ref x, AxisSet axes)
{
    x = or_one(g, x);
    for (axes &= ~g->n[x].axes; axes; axes &= axes - 1)
        x = op2(g, OP_mul, x, op2(g, OP_le, num(g, 0),
                                  count_along(g, lowest(axes))));
    return x;
}

/* One product of the part that is free of the state. */
static bool plain_write(Graph *g, int s, Universal *u, Ref x, bool minus)
{
    AxisSet kappa = u->kappa, nu = u->nu;
    Factors h = { 0 };
    AxisSet rank = plain_factors(g, x, kappa, nu, &h);

    Ref b = factors_product(g, &h, kappa, 0);
    Ref v = factors_product(g, &h, 0, kappa);
    b = along_all(g, b, kappa);         /* under every key */
    if (g->n[b].axes & nu)
        return state_note(g, s, b, "couples the axes of");
    v = along_all(g, v, nu);
    Write w = { .b = b, .rank = rank, .v = minus ? op1(g, OP_neg, v) : v };
    return add_write(g, s, u, w, x);
}

static bool plain_writes(Graph *g, int s, Universal *u, Ref x, bool minus)
{
    const Node n = g->n[x];

    switch (n.op) {
    case OP_add: case OP_sub:
        return plain_writes(g, s, u, n.a[0], minus)
            && plain_writes(g, s, u, n.a[1], minus ^ (n.op == OP_sub));
    case OP_neg:
        return plain_writes(g, s, u, n.a[0], !minus);
    default:
        return is_num(g, x, 0) || plain_write(g, s, u, x, minus);
    }
}

/* s = max(f + s, c), either way round. */
static bool max_form(Graph *g, int s, Universal *u)
{
    const Node n = g->n[g->st[s].next];

    if (n.op != OP_max)
        return false;
    for (int i = 0; i < 2; i++) {
        Affine *a = ctx_alloc(g->ctx, sizeof *a);
        if (depends(g, n.a[1 - i], s) || !affine(g, n.a[i], STATE(s), false, a))
            continue;
        if (a->n != 1 || a->term[0].coef || a->term[0].over)
            continue;
        u->form = FORM_MAX;
        u->d = a->rest ? a->rest : num(g, 0);
        u->c = n.a[1 - i];
        return true;
    }
    return false;
}

/* An element-wise recurrence of a scalar or a vector. */
static bool scan_form(Graph *g, const Affine *a, Universal *u)
{
    Ref d = 0;

    for (int i = 0; i < a->n; i++) {
        if (a->term[i].over)
            return false;
        Ref c = or_one(g, a->term[i].coef);
        d = d ? op2(g, OP_add, d, c) : c;
    }
    u->form = d ? FORM_SCAN : FORM_DELAY;
    u->d = d && is_num(g, d, 1) ? 0 : d;
    u->c = a->rest ? a->rest : num(g, 0);
    return true;
}

/* No larger than what comes in with each token. */
static bool input_sized(const Graph *g, const State *st)
{
    for (int i = 0; i < g->nin; i++)
        if (g->in[i].timed && !(st->axes & ~g->in[i].axes))
            return true;
    return false;
}

/* An angle that goes on from what it was: a sum, less the wrap. */
static bool turned_sum(Graph *g, int s, Universal *u)
{
    Affine *a = ctx_alloc(g->ctx, sizeof *a);
    const State *st = &g->st[s];

    return st->rank < 2 && affine(g, g->n[st->next].a[0], STATE(s), false, a)
        && a->n && scan_form(g, a, u);
}

/* ---- writes one after another ----
 *
 * Where each reads what those before it at the token have left,
 *
 *     S_0 = D S,   S_m = S_{m-1} + b_m (a_m . S_{m-1} + v_m)^T,
 *
 * written out in S there are products of all of them. So they stay as they
 * are: the rows of a token are solved for one after another, as tokens are.
 */

/* What is written, x . of + rest; of: a matrix made of the state, 0: none. */
typedef struct Reading { Ref x, of, rest; } Reading;

/* Whether r is a matrix that is made of state s. */
static bool is_made_of(const Graph *g, int s, Ref r)
{
    return depends(g, r, s) && !(g->st[s].axes & ~g->n[r].axes);
}

static bool scale_reading(Graph *g, int s, const Universal *u, int op, Ref e,
                          Reading *y)
{
    if (depends(g, e, s) || g->n[e].axes & (y->of ? g->st[s].axes : u->kappa))
        return false;
    y->x = y->x ? op2(g, op, y->x, e) : 0;
    y->rest = y->rest ? op2(g, op, y->rest, e) : 0;
    return true;
}

static bool add_readings(Graph *g, int op, const Reading *b, Reading *y)
{
    Ref minus = num(g, op == OP_sub ? -1 : 1);

    if (y->of && b->of && y->of != b->of)
        return false;
    y->of = y->of ? y->of : b->of;
    if (b->x)
        y->x = y->x ? op2(g, op, y->x, b->x) : op2(g, OP_mul, minus, b->x);
    if (b->rest)
        y->rest = y->rest ? op2(g, op, y->rest, b->rest)
                          : op2(g, OP_mul, minus, b->rest);
    return true;
}

/* Of what is written along nu; u's keys are those that the first reads. */
static bool reading_of(Graph *g, int s, Universal *u, Ref r, Reading *y)
{
    const Node n = g->n[r];
    Reading b = { 0 };

    if (!depends(g, r, s)) {
        y->rest = r;
        return !(n.axes & u->kappa);
    }
    bool second = depends(g, n.a[1], s);
    switch (n.op) {
    case OP_dot:
        y->of = n.a[second];
        y->x = n.a[!second];
        return is_made_of(g, s, y->of) && !depends(g, y->x, s)
            && n.over == u->kappa && !(g->n[y->x].axes & u->nu);
    case OP_neg:
        return reading_of(g, s, u, n.a[0], y)
            && scale_reading(g, s, u, OP_mul, num(g, -1), y);
    case OP_add: case OP_sub:
        return reading_of(g, s, u, n.a[0], y)
            && reading_of(g, s, u, n.a[1], &b)
            && add_readings(g, n.op, &b, y);
    case OP_mul:
        return reading_of(g, s, u, n.a[second], y)
            && scale_reading(g, s, u, OP_mul, n.a[!second], y);
    case OP_div:
        return reading_of(g, s, u, n.a[0], y)
            && scale_reading(g, s, u, OP_div, n.a[1], y);
    default:
        return false;
    }
}

/* The one axis that reads contract of which the state's next value is made, of
 * the state as whatever it is at the token by then; 0: none, or several. */
static AxisSet read_axis(const Graph *g, int s)
{
    AxisSet all = 0;
    uint8_t *live = ctx_alloc(g->ctx, g->len);

    graph_needs(g, live, g->st[s].next);
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        if (live[r] && n->op == OP_dot && (is_made_of(g, s, n->a[0])
                                || is_made_of(g, s, n->a[1])))
            all |= n->over;
    }
    return all & g->st[s].axes && !(all & (all - 1)) ? all : 0;
}

/* Matrix r as a decay of the state and writes, of which what they read is
 * known: into u, whose axes are known, too. */
static bool written(Graph *g, int s, Ref r, Universal *u)
{
    Affine *a = ctx_alloc(g->ctx, sizeof *a);

    a->whole = g->st[s].axes;
    a->of = r;
    if (!affine(g, r, STATE(s), false, a) || !find_decay(g, s, a, u))
        return false;
    for (int i = 0; i < a->n; i++)
        if (a->term[i].over)
            return false;
    return !a->rest || plain_writes(g, s, u, a->rest, false);
}

/* Writes as bits. */
typedef uint64_t WriteSet;
_Static_assert(MAX_TERMS <= 64, "writes are bits");

/* Which of u's writes are in what is read, behind the same decay, which x may
 * have in the place of the state; false: others are, too. */
static bool writes_in(Graph *g, int s, const Universal *u, Reading *y,
                      WriteSet *out)
{
    Universal *w = ctx_alloc(g->ctx, sizeof *w);

    w->kappa = u->kappa;
    w->nu = u->nu;
    *out = 0;
    if (y->of == g->st[s].node)
        return !u->decay || strip_decay(g, &y->x, u->decay);
    if (!written(g, s, y->of, w) || w->decay != u->decay)
        return false;
    for (int i = 0; i < w->nwrites; i++) {
        int k = 0;
        while (k < u->nwrites && (u->write[k].b != w->write[i].b
                                  || u->write[k].v != w->write[i].v))
            k++;
        if (k == u->nwrites)
            return false;
        *out |= (WriteSet)1 << k;
    }
    return true;
}

/* Of u's writes what they read, and which they find. */
typedef struct Order {
    Reading read[MAX_TERMS];
    WriteSet seen[MAX_TERMS], readers, found;
} Order;

static bool find_order(Graph *g, int s, Universal *u, Order *o)
{
    for (int i = 0; i < u->nwrites; i++) {
        const Write *w = &u->write[i];
        Reading *y = &o->read[i];
        if (w->rank || depends(g, w->b, s) || !reading_of(g, s, u, w->v, y)
            || (y->of && !writes_in(g, s, u, y, &o->seen[i])))
            return false;
        o->readers |= (WriteSet)(y->of != 0) << i;
        o->found |= o->seen[i];
    }
    return true;
}

/* The write that comes next: one that reads all of those that are done and no
 * others, or one that reads nothing and that the next reader finds; -1. */
static int next_write(const Order *o, WriteSet done)
{
    WriteSet need = 0;

    for (WriteSet left = o->readers & ~done; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        if (o->seen[i] == done)
            return i;
        if (!need || __builtin_popcountll(o->seen[i])
                     < __builtin_popcountll(need))
            need = o->seen[i];
    }
    need &= ~(done | o->readers);
    return need ? __builtin_ctzll(need) : -1;
}

/* Whether u's writes find what others that read have left, and each all of
 * those before it: then u has them in that order, and behind them those that
 * read nothing and that none finds. */
static bool sort_writes(Graph *g, int s, Universal *u)
{
    Order *o = ctx_alloc(g->ctx, sizeof *o);
    Write sorted[MAX_TERMS];
    WriteSet done = 0;
    int n = 0;

    if (!find_order(g, s, u, o) || !(o->found & o->readers))
        return false;
    for (int i; (i = next_write(o, done)) >= 0; n++) {
        sorted[n] = (Write){ .b = u->write[i].b, .a = o->read[i].x,
                             .v = o->read[i].rest };
        done |= (WriteSet)1 << i;
    }
    if ((o->readers | o->found) & ~done)
        return false;
    u->sequence = n;
    for (int i = 0; i < u->nwrites; i++)
        if (!(done >> i & 1))
            sorted[n++] = u->write[i];
    memcpy(u->write, sorted, (size_t)n * sizeof *sorted);
    return true;
}

/* Such a form; g->note is what it was. */
static bool in_sequence(Graph *g, int s, Universal *u)
{
    const State *st = &g->st[s];
    AxisSet kappa = st->rank == 2 ? read_axis(g, s) : 0;
    char *note = g->note;

    if (!kappa)
        return false;
    *u = (Universal){ .form = FORM_UNIVERSAL, .kappa = kappa,
                      .nu = st->axes & ~kappa };
    bool holds = written(g, s, st->next, u) && sort_writes(g, s, u)
              && (!u->log_decay
                  || !(g->n[u->log_decay].axes & st->axes & ~kappa));
    g->note = note;
    return holds;
}

bool universal(Graph *g, int s, Universal *u)
{
    Affine *a = ctx_alloc(g->ctx, sizeof *a);
    const State *st = &g->st[s];

    memset(u, 0, sizeof *u);
    if (st->rank < 2 && max_form(g, s, u))
        return true;
    if (st->angle && turned_sum(g, s, u))
        return true;
    if (in_sequence(g, s, u))
        return true;
    memset(u, 0, sizeof *u);
    if (!affine(g, st->next, STATE(s), false, a))
        return state_note(g, s, a->bad, a->why);
    g->line = g->n[st->next].line;
    if ((st->rank < 2 || (!a->n && input_sized(g, st))) && scan_form(g, a, u))
        return true;
    u->form = FORM_UNIVERSAL;
    if (!find_decay(g, s, a, u) || !choose_axes(g, s, a, u))
        return false;
    for (int i = 0; i < a->n; i++)
        if (a->term[i].over && !read_write(g, s, u, &a->term[i]))
            return false;
    return !a->rest || plain_writes(g, s, u, a->rest, false);
}

/* Whether what s becomes has all of n in it, which is a matrix as s is and no
 * mere copy: no row of s could say what is written. */
static bool has_whole(Graph *g, int s, int n)
{
    Affine *a = ctx_alloc(g->ctx, sizeof *a);
    Universal *u = ctx_alloc(g->ctx, sizeof *u);
    bool whole = false;

    if (g->st[s].rank != 2 || g->st[n].axes != g->st[s].axes
        || universal(g, s, u)
        || (universal(g, n, u) && u->form != FORM_UNIVERSAL)
        || !affine(g, g->st[s].next, STATE(s) | STATE(n), false, a))
        return false;
    for (int i = 0; i < a->n; i++)
        whole |= a->term[i].state == n && !a->term[i].over;
    return whole;
}

/* Per state, those that it needs, and those that can only be had with it. */
static void find_needs(Graph *g, StateSet need[MAX_STATES])
{
    for (int s = 0; s < g->nst; s++)
        need[s] = g->n[g->st[s].next].states & ~STATE(s);
    for (int s = 0; s < g->nst; s++)
        for (int n = 0; n < g->nst; n++)
            if (n != s && g->n[g->st[s].next].states & STATE(n)
                && has_whole(g, s, n))
                need[n] |= STATE(s);
    for (int by = 0; by < g->nst; by++)
        for (int s = 0; s < g->nst; s++)
            if (need[s] & STATE(by))
                need[s] |= need[by];
}

void strata(Graph *g, Strata *out)
{
    StateSet need[MAX_STATES], done = 0;

    find_needs(g, need);
    out->n = 0;
    for (int s = 0, left = g->nst; left > 0; s = (s + 1) % g->nst) {
        StateSet with = STATE(s);
        for (int n = 0; n < g->nst; n++)
            if (need[s] & STATE(n) && need[n] & STATE(s))
                with |= STATE(n);
        if (done & with || need[s] & ~(done | with))
            continue;
        done |= with;
        out->of[out->n++] = with;
        left -= __builtin_popcountll(with);
    }
}
