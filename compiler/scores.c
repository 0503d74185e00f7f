/* scores.c -- a step as sums over pairs of tokens: the graphs of what pairs are
 * made of, of the pairs, and of what is made of their sums.
 */
#include "scores.h"
#include "affine.h"

#include <string.h>

/* A sum over 1 in place of values has so many columns of it: what products on
 * tensor cores take at least. */
enum { ONES = 8 };

/* One sum: terms of the same queries, keys and values. */
typedef struct Group {
    ScoreFactors q, x, value;
    int axis;
    int n;
    ScoreTerm term[MAX_PARTS_READ];
    Ref read;                           /* of the step's copy: what it is of */
} Group;

typedef struct Finding {
    Ctx *c;
    const Graph *step;
    Graph *g;                           /* a copy, in which terms are found */
    StateSet sums;
    Scores *to;
    Group *group;
    int ngroups, ones;                  /* the axis of ones; 0: none */
    Ref token[MAX_RESULTS];             /* the copy's nodes that pairs are made
                                           of */
    int ntokens;
    Graph *result;
    Ref *map, nmap;                     /* the step's nodes in result */
    const char *why;
} Finding;

static bool fail_with(Finding *f, const char *why)
{
    f->why = why;
    return false;
}

/* ---- sums ---- */

static bool same(const ScoreFactors *a, const ScoreFactors *b)
{
    return a->n == b->n && !memcmp(a->f, b->f, (size_t)a->n * sizeof *a->f);
}

static bool same_pair(const Group *k, const ScoreTerm *t)
{
    return !t->degree || (k->axis == t->axis && same(&k->q, &t->q)
                          && same(&k->x, &t->x));
}

/* Puts t in the first group of this read, from group `first` on, that it suits;
 * a term without a score suits any queries. */
static bool group_term(Finding *f, const ScoreTerm *t, int first, Ref read)
{
    int n = first;

    while (n < f->ngroups && !(same(&f->group[n].value, &t->value)
                               && same_pair(&f->group[n], t)))
        n++;
    if (n == MAX_SUMS)
        return fail_with(f, "it has too many sums of different keys and "
                         "values");
    Group *k = &f->group[n];
    if (n == f->ngroups) {
        const ScoreTerm *like = t->degree ? t : n ? &f->group[0].term[0] : NULL;
        if (!like)
            return fail_with(f, "no score is in what it reads");
        *k = (Group){ .q = like->q, .x = like->x, .axis = like->axis,
                      .value = t->value, .read = read };
        f->ngroups++;
    }
    k->term[k->n++] = *t;
    return true;
}

/* Those with scores first. */
static bool group_read(Finding *f, const ScoreRead *r, Ref read)
{
    int first = f->ngroups;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < r->n; i++)
            if ((r->term[i].degree > 0) == !pass
                && !group_term(f, &r->term[i], first, read))
                return false;
    return true;
}

/* ---- scales ---- */

static int count_of(const ScoreFactors *f, Ref x)
{
    int n = 0;

    for (int i = 0; i < f->n; i++)
        n += f->f[i] == x;
    return n;
}

static void take_out(ScoreFactors *f, Ref x, int times)
{
    int n = 0;

    for (int i = 0; i < f->n; i++) {
        if (f->f[i] == x && times-- > 0)
            continue;
        f->f[n++] = f->f[i];
    }
    f->n = n;
}

static ScoreFactors *side(ScoreTerm *t, bool rows)
{
    return rows ? &t->row : &t->col;
}

/* How often x may go into the query (rows), or the key: as often as each term
 * has it for each of its scores. */
static int times_of(Group *k, Ref x, bool rows)
{
    int least = MAX_FACTORS;

    for (int i = 0; i < k->n; i++) {
        ScoreTerm *t = &k->term[i];
        int n = t->degree ? count_of(side(t, rows), x) / t->degree : least;
        least = n < least ? n : least;
    }
    return least;
}

/* A factor that each score has goes into what the score is made of. */
static void fold_scales(Group *k, bool rows)
{
    ScoreFactors *to = rows ? &k->q : &k->x;
    int lead = 0;

    while (!k->term[lead].degree && lead < k->n - 1)
        lead++;
    const ScoreFactors all = *side(&k->term[lead], rows);
    for (int i = 0; i < all.n; i++) {
        Ref x = all.f[i];
        int times = times_of(k, x, rows);
        if (i && all.f[i - 1] == x)
            continue;
        for (int n = 0; n < times && to->n < MAX_FACTORS; n++) {
            to->f[to->n++] = x;
            for (int t = 0; t < k->n; t++)
                take_out(side(&k->term[t], rows), x, k->term[t].degree);
        }
    }
}

/* What all terms have of their keys' weights goes into values that are made
 * anyway. */
static void fold_columns(Finding *f, Group *k)
{
    const ScoreFactors all = k->term[0].col;
    bool made = k->value.n && (k->value.n > 1
                               || f->g->n[k->value.f[0]].op != OP_input);

    for (int i = 0; made && i < all.n; i++) {
        bool common = k->value.n < MAX_FACTORS;
        for (int t = 0; t < k->n; t++)
            common = common && count_of(&k->term[t].col, all.f[i]);
        if (!common)
            continue;
        k->value.f[k->value.n++] = all.f[i];
        for (int t = 0; t < k->n; t++)
            take_out(&k->term[t].col, all.f[i], 1);
    }
}

/* ---- values ---- */

static Ref product_of(Graph *g, const ScoreFactors *f)
{
    Ref p = 0;

    for (int i = 0; i < f->n; i++)
        p = p ? op2(g, OP_mul, p, f->f[i]) : f->f[i];
    return p ? p : num(g, 1);
}

/* Which value of the call the copy's node is; -1: there are too many. */
static int value_of(Finding *f, Ref r)
{
    const Node *n = &f->g->n[r];
    int o = 0;

    if (n->op == OP_input)
        return n->index;
    while (o < f->ntokens && f->token[o] != r)
        o++;
    if (o == MAX_RESULTS)
        return -1;
    f->token[o] = r;
    f->ntokens = o < f->ntokens ? f->ntokens : o + 1;
    return VALUE_TOKENS + o;
}

static const char *value_name(Finding *f, int value)
{
    if (value < VALUE_TOKENS)
        return f->step->in[value].name;
    return ctx_format(f->c, value < VALUE_SUMS ? "made_%d" : "sum_%d",
                      value < VALUE_SUMS ? value - VALUE_TOKENS
                                         : value - VALUE_SUMS);
}

/* An empty graph with the step's axes. */
static Graph *new_graph(Finding *f)
{
    Graph *s = graph_new(f->c, f->step->name, 0);

    memcpy(s->axis, f->g->axis, sizeof s->axis);
    s->naxes = f->g->naxes;
    s->lines = f->step->lines;
    return s;
}

static Ref new_input(Finding *f, Graph *s, const char *name, int value,
                     bool timed, AxisSet axes, int *of)
{
    const Input *in = value < VALUE_TOKENS ? &f->step->in[value] : NULL;
    int at = graph_input(s, name, in ? mask_declared(f->step, in)
                         : ctx_format(f->c, "%s%s", timed ? "t " : "",
                                      axes_text(f->g, axes)));

    of[at] = value;
    return s->in[at].node;
}

/* 1 along the axis of ones, for each token that x differs with. */
static Ref unit_row(Graph *g, int ones, Ref x)
{
    Ref any = op1(g, OP_square, sum(g, x, g->n[x].axes));

    return op2(g, OP_mul, op2(g, OP_le, num(g, 0), count_along(g, ones)),
               op2(g, OP_le, num(g, 0), any));
}

/* ---- pairs ---- */

typedef struct Pairing {
    Finding *f;
    Mask *m;
    Graph *s;                           /* of pairs */
    int *of;
    Ref i, j, score;                    /* leaves */
    Ref *map;                           /* the copy's constants in m->g */
} Pairing;

/* The pairs' input of that value. */
static const char *leaf_input(Pairing *p, int value, bool timed)
{
    for (int i = 0; i < p->s->nin; i++)
        if (p->of[i] == value && i > 2)
            return p->s->in[i].name;
    const char *name = value_name(p->f, value);
    while (graph_find_input(p->s, name) >= 0)
        name = ctx_format(p->f->c, "%.40s_", name);
    new_input(p->f, p->s, name, value, timed, 0, p->of);
    return name;
}

/* A number that all tokens share, in the mask's graph; 0: it is none that a
 * mask can be made of. */
static Ref constant(Pairing *p, Ref r)
{
    const Node n = p->f->g->n[r];
    Ref a[4] = { 0 };

    if (n.axes || n.timed || n.states)
        return 0;
    if (n.op == OP_num)
        return num(p->m->g, n.num);
    if (n.op == OP_input)
        return mask_leaf(p->m, LEAF_CONSTANT, 0, leaf_input(p, n.index, false),
                         0);
    if (!op_is(n.op, ELEMENTWISE))
        return 0;
    for (int i = 0; i < op_info[n.op].arity; i++)
        if (!(a[i] = constant(p, n.a[i])))
            return 0;
    return node_copy(p->m->g, &n, a);
}

/* Product of the factors as the mask has it at token i or j. */
static Ref weight(Pairing *p, const ScoreFactors *of, int at)
{
    Graph *g = p->f->g, *m = p->m->g;
    ScoreFactors timed = { 0 };
    Ref w = num(m, 1);

    for (int i = 0; i < of->n; i++) {
        if (g->n[of->f[i]].timed || g->n[of->f[i]].states) {
            timed.f[timed.n++] = of->f[i];
            continue;
        }
        Ref x = constant(p, of->f[i]);
        if (!x)
            return 0;
        w = op2(m, OP_mul, w, x);
    }
    if (!timed.n)
        return w;
    int value = value_of(p->f, product_of(g, &timed));
    return value < 0 ? 0 : op2(m, OP_mul, w, mask_leaf(p->m, LEAF_TOKEN, at,
                               leaf_input(p, value, true), 0));
}

/* exp(G(i) - G(j)), of a token's own write; else what was left of it before the
 * token. A gate that leaves nothing counts as one that leaves next to nothing:
 * sums of it stay numbers. */
static Ref decay(Pairing *p, const ScoreTerm *t)
{
    Graph *g = p->f->g, *m = p->m->g;
    Ref distance = op2(m, OP_sub, p->i, p->j), e;

    if (!t->gate)
        return num(m, 1);
    if (!g->n[t->gate].timed && !g->n[t->gate].states) {
        Ref x = constant(p, t->gate);
        if (!x)
            return 0;
        if (!t->fresh)
            distance = op2(m, OP_sub, distance, num(m, 1));
        e = op2(m, OP_mul, op2(m, OP_max, x, num(m, LOG_ZERO)), distance);
        return op1(m, OP_exp, e);
    }
    int value = value_of(p->f, op2(g, OP_max, t->gate, num(g, LOG_ZERO)));
    if (value < 0)
        return 0;
    const char *name = leaf_input(p, value, true);
    e = mask_leaf(p->m, LEAF_CUMSUM, SIDE_I, name, 0);
    if (!t->fresh)
        e = op2(m, OP_sub, e, mask_leaf(p->m, LEAF_TOKEN, SIDE_I, name, 0));
    e = op2(m, OP_sub, e, mask_leaf(p->m, LEAF_CUMSUM, SIDE_J, name, 0));
    return op1(m, OP_exp, e);
}

static bool same_weight(const ScoreTerm *a, const ScoreTerm *b)
{
    return a->gate == b->gate && a->fresh == b->fresh && same(&a->row, &b->row)
        && same(&a->col, &b->col);
}

/* c s^degree */
static Ref power(Pairing *p, const ScoreTerm *t)
{
    Graph *m = p->m->g;
    Ref x = num(m, t->number);

    for (int n = 0; n < t->degree; n++)
        x = op2(m, OP_mul, x, p->score);
    return x;
}

/* The weight of a pair: what terms have in common stands before their
 * polynomial. own: of a token with itself. 0: there is no such mask. */
static Ref pair_weight(Pairing *p, const Group *k, bool own)
{
    Graph *m = p->m->g;
    bool done[MAX_PARTS_READ] = { false };
    Ref all = num(m, 0);

    for (int i = 0; i < k->n; i++) {
        const ScoreTerm *t = &k->term[i];
        Ref sum = num(m, 0);
        if (done[i] || (own && !t->fresh))
            continue;
        for (int n = i; n < k->n; n++)
            if (!done[n] && same_weight(t, &k->term[n])) {
                sum = op2(m, OP_add, sum, power(p, &k->term[n]));
                done[n] = true;
            }
        Ref row = weight(p, &t->row, SIDE_I), col = weight(p, &t->col, SIDE_J);
        Ref left = decay(p, t);
        if (!row || !col || !left)
            return 0;
        Ref w = op2(m, OP_mul, op2(m, OP_mul, row, col), left);
        all = op2(m, OP_add, all, op2(m, OP_mul, w, sum));
    }
    return all;
}

static void add_piece(Mask *m, int64_t from, int64_t to, Ref value)
{
    Region at = region_all();

    at.lo[VAR_DISTANCE] = from;
    at.hi[VAR_DISTANCE] = to;
    m->piece[m->npieces++] = (MaskPath){ region_closed(&at), value, 0 };
}

static bool make_pairs(Finding *f, int n)
{
    Group *k = &f->group[n];
    Graph *g = f->g;
    Pairing p = { .f = f, .m = mask_new(f->c), .s = new_graph(f),
                  .of = f->to->of_pairs[n] };
    Ref part[3] = { product_of(g, &k->q), product_of(g, &k->x),
                    k->value.n ? product_of(g, &k->value) : 0 };
    static const char *const name[] = { "q", "k", "v" };
    bool all = true, none = true;

    for (int i = 0; i < 3; i++) {
        AxisSet axes = part[i] ? g->n[part[i]].axes : AXIS(f->ones);
        if (part[i] && !g->n[part[i]].timed)
            return fail_with(f, ctx_format(f->c, "%s is the same for every "
                                           "token", expr_text(g, part[i])));
        int value = value_of(f, part[i] ? part[i]
                             : unit_row(g, f->ones, part[1]));
        if (value < 0)
            return fail_with(f, "it is made of too many values");
        new_input(f, p.s, name[i], value, true, axes, p.of);
    }
    p.score = mask_leaf(p.m, LEAF_SCORE, 0, "", 0);
    p.i = mask_leaf(p.m, LEAF_POSITION, SIDE_I, "i", 0);
    p.j = mask_leaf(p.m, LEAF_POSITION, SIDE_J, "j", 0);
    for (int i = 0; i < k->n; i++) {
        all &= k->term[i].fresh;
        none &= !k->term[i].fresh;
    }
    Ref other = pair_weight(&p, k, false), own = pair_weight(&p, k, true);
    if (!other || !own)
        return fail_with(f, "its weights are made of weights with axes, or of "
                         "too many values");
    if (!all && !none)
        add_piece(p.m, 0, 0, own);
    add_piece(p.m, !all, REGION_INF, other);
    mask_weights(p.m, p.s);
    f->to->pairs[n] = p.s;
    return true;
}

/* ---- what is made of the sums ---- */

static AxisSet axes_of_sum(const Finding *f, const Group *k)
{
    AxisSet axes = 0;

    for (int i = 0; i < k->value.n; i++)
        axes |= f->g->n[k->value.f[i]].axes;
    return axes ? axes : AXIS(f->ones);
}

/* The sums of a read, added up. */
static Ref sums_of(Finding *f, int first)
{
    Graph *s = f->result;
    Ref y = 0;

    for (int n = first; n < f->ngroups; n++) {
        const Group *k = &f->group[n];
        int value = VALUE_SUMS + n;
        Ref x = new_input(f, s, value_name(f, value), value, true,
                          axes_of_sum(f, k), f->to->of_result);
        if (!k->value.n)
            x = op2(s, OP_mul, sum(s, x, AXIS(f->ones)), num(s, 1. / ONES));
        y = y ? op2(s, OP_add, y, x) : x;
    }
    return y;
}

static Ref rewritten(Finding *f, Ref r);

/* The same operation on what its operands have become. */
static Ref rewritten_node(Finding *f, Ref r)
{
    const Node n = f->g->n[r];
    Ref a[4] = { 0 };

    if (op_is(n.op, RECURS | GIVEN))
        return 0;
    for (int i = 0; i < 4; i++)
        if (n.a[i] && !(a[i] = rewritten(f, n.a[i])))
            return 0;
    f->result->line = n.line;
    return node_copy(f->result, &n, a);
}

static Ref input_of_result(Finding *f, Ref r)
{
    const Node *n = &f->g->n[r];
    int value = value_of(f, r);

    if (value < 0)
        return 0;
    for (int i = 0; i < f->result->nin; i++)
        if (f->to->of_result[i] == value)
            return f->result->in[i].node;
    return new_input(f, f->result, value_name(f, value), value, n->timed,
                     n->axes, f->to->of_result);
}

static Ref read_of_sums(Finding *f, Ref r, const ScoreRead *read)
{
    int first = f->ngroups;

    if (!group_read(f, read, r))
        return 0;
    Ref y = sums_of(f, first);
    if (!read->rest)
        return y;
    Ref rest = rewritten(f, read->rest);
    return rest ? op2(f->result, OP_add, y, rest) : 0;
}

/* Node r of the copy as what sums and inputs make it; 0, and why: it cannot be
 * made of them. */
static Ref rewritten_anew(Finding *f, Ref r)
{
    const Node n = f->g->n[r];
    ScoreRead *read;

    if (n.op == OP_input || (n.states && !(n.states & f->sums)))
        return input_of_result(f, r);
    if (!n.states)
        return rewritten_node(f, r);
    read = ctx_alloc(f->c, sizeof *read);
    if (score_read(f->g, r, f->sums, read, &f->why))
        return read_of_sums(f, r, read);
    return rewritten_node(f, r);
}

static Ref rewritten(Finding *f, Ref r)
{
    if (r >= f->nmap)                   /* made while the form was found */
        return rewritten_anew(f, r);
    if (!f->map[r])
        f->map[r] = rewritten_anew(f, r);
    return f->map[r];
}

/* ---- tokens ---- */

/* Marks what results are made of, states and what they become included. */
static uint8_t *live_tokens(const Finding *f)
{
    const Graph *g = f->g;
    uint8_t *live = ctx_alloc(f->c, g->len);
    StateSet had = 0, has = 0;

    for (int o = 0; o < f->ntokens; o++)
        graph_needs(g, live, f->token[o]);
    do {
        had = has;
        for (Ref r = 1; r < g->len; r++)
            if (live[r] && g->n[r].op == OP_state)
                has |= STATE(g->n[r].index);
        for (int s = 0; s < g->nst; s++)
            if (has & ~had & STATE(s))
                graph_needs(g, live, g->st[s].next);
    } while (has != had);
    return live;
}

/* The nodes of inputs and states in the new graph. */
static void declare_tokens(Finding *f, Graph *s, const uint8_t *live, Ref *map)
{
    const Graph *g = f->g;

    for (int i = 0; i < f->step->nin; i++)
        if (live[g->in[i].node])
            map[g->in[i].node] = new_input(f, s, g->in[i].name, i, false, 0,
                                           f->to->of_tokens);
    for (int i = 0; i < g->nst; i++) {
        const State *st = &g->st[i];
        if (!live[st->node])
            continue;
        State *to = &s->st[graph_state(s, st->name, axes_text(g, st->axes))];
        to->angle = st->angle;
        to->sum = st->sum;
        to->line = st->line;
        map[st->node] = to->node;
    }
}

static void make_tokens(Finding *f)
{
    const Graph *g = f->g;
    Graph *s = new_graph(f);
    Ref *map = ctx_alloc(f->c, g->len * sizeof *map);
    const uint8_t *live = live_tokens(f);

    declare_tokens(f, s, live, map);
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        Ref a[4] = { map[n->a[0]], map[n->a[1]], map[n->a[2]], map[n->a[3]] };
        s->line = n->line;
        if (live[r] && !map[r])
            map[r] = node_copy(s, n, a);
    }
    for (int i = 0; i < g->nst; i++)
        if (live[g->st[i].node])
            s->st[s->n[map[g->st[i].node]].index].next = map[g->st[i].next];
    for (int o = 0; o < f->ntokens; o++) {
        Ref r = map[f->token[o]];
        if (s->n[r].op == OP_state)     /* kernels store what they compute */
            r = op1(s, OP_factor, r);
        graph_output(s, o ? value_name(f, VALUE_TOKENS + o) : "y", r);
    }
    f->to->tokens = s;
}

/* ---- all of it ---- */

/* Is y a sum of sums, and nothing else? */
static bool adds_up(const Finding *f, Ref y)
{
    const Graph *g = f->result;
    const Node *n = &g->n[y];

    if (n->op == OP_add)
        return adds_up(f, n->a[0]) && adds_up(f, n->a[1]);
    return n->op == OP_input && f->to->of_result[n->index] >= VALUE_SUMS;
}

static bool find(Finding *f)
{
    Graph *g = f->g;

    if (f->step->nout != 1)
        return fail_with(f, "it has several results");
    if (!(f->sums = score_states(g)))
        return fail_with(f, "no state is a sum that results alone read");
    f->ones = graph_axis(g, "ones");
    g->axis[f->ones].size = ONES;
    f->result = new_graph(f);
    Ref y = rewritten(f, g->out[0].node);
    if (!y)
        return fail_with(f, f->why ? f->why : "it is made of too many values");
    for (int n = 0; n < f->ngroups; n++) {
        fold_scales(&f->group[n], true);
        fold_scales(&f->group[n], false);
        fold_columns(f, &f->group[n]);
        if (!make_pairs(f, n))
            return false;
        f->to->axis[n][0] = f->group[n].axis;
        f->to->axis[n][1] = lowest(axes_of_sum(f, &f->group[n]));
        for (int i = 0; i < f->group[n].n; i++)
            if (f->group[n].term[i].degree > f->to->degree)
                f->to->degree = f->group[n].term[i].degree;
    }
    f->to->nsums = f->ngroups;
    f->to->sums = f->sums;
    if (f->ngroups > 1 || f->result->n[y].op != OP_input) {
        graph_output(f->result, "y", y);
        f->to->result = f->result;
        f->to->adds = adds_up(f, y);
    }
    if (f->ntokens)
        make_tokens(f);
    return true;
}

Scores *scores_find(Ctx *c, const Graph *step, const char **why)
{
    Finding *f = ctx_alloc(c, sizeof *f);

    *f = (Finding){ .c = c, .step = step, .g = graph_copy(c, step),
                    .to = ctx_alloc(c, sizeof *f->to),
                    .group = ctx_alloc(c, MAX_SUMS * sizeof *f->group) };
    f->nmap = f->g->len;
    f->map = ctx_alloc(c, f->nmap * sizeof *f->map);
    if (find(f))
        return f->to;
    *why = f->why;
    return NULL;
}

Scores *scores_copy(Ctx *c, const Scores *s)
{
    Scores *to = ctx_alloc(c, sizeof *to);

    *to = *s;
    to->tokens = s->tokens ? graph_copy(c, s->tokens) : NULL;
    to->result = s->result ? graph_copy(c, s->result) : NULL;
    to->rest = s->rest ? graph_copy(c, s->rest) : NULL;
    for (int n = 0; n < s->nsums; n++)
        to->pairs[n] = graph_copy(c, s->pairs[n]);
    return to;
}
