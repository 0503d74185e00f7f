/* derive.c -- from one token to a chunk of them.
 *
 * Each value of the step is lifted to a tile with a row a token. States of
 * lower strata (scalars, vectors) become scans along the chunk. For a matrix
 * state in universal form, with G the inclusive and E the exclusive cumulative
 * sum of the log decay in the chunk, W the rows that are written (those that
 * read the state first are solved for, the others are as given):
 *
 *     W = (1 - A)^{-1} (V + (a e^E) S_0),   A_ij = (a_i . b_j) e^{E_i - G_j}
 *     read p of S_{t-1}:  (p e^E) S_0 + [(p_i . b_j) e^{E_i - G_j}]_{i > j} W
 *     read q of S_t:      (q e^G) S_0 + [(q_i . b_j) e^{G_i - G_j}]_{i >= j} W
 *     S_C = e^{G_C} S_0 + (b e^{G_C - G})^T W
 *
 * All exponents are differences that are <= 0 for a decay. A factor e^g in a
 * (or p) turns its E into G instead of being multiplied in. Where a token
 * writes several times, and each write reads what those before it have left,
 * its rows are one behind another as tokens are: A_ij has those of the token
 * that come before, too, with a decay of 1 between them.
 *
 * A decay that differs along W's own entries is between the tokens of each sum
 * over them: A_ij = a_i . b_j, and entry v of W is solved for under
 * e^{E_i[v] - G_j[v]}; so it is where what a token has read is multiplied by a
 * rate r_i[v]. No inverse serves all entries then.
 */
#include "lift.h"
#include "plan.h"

#include <string.h>

enum { MOST_ENTRIES = 1 << 11 };

/* ---- writes of the token before ----
 *
 * Under the trapezoidal rule a token adds once more what the one before it has
 * written, before it decays, beside its own:
 *
 *     S_i = e^{g_i} (S_{i-1} + c_i k_{i-1} v_{i-1}^T) + d_i k_i v_i^T
 *
 * So what is written under a token's keys is all that will be, but for the
 * token itself, which reads its own alone; what the first token adds is there
 * when the chunk begins:
 *
 *     R = S_0 + c_0 k_{-1} v_{-1}^T,   w_j = d_j + c_{j+1}, of the last: d_j
 *     S_i = e^{G_i} R + sum over j < i of e^{G_i - G_j} w_j k_j v_j^T
 *         + d_i k_i v_i^T
 *     S_C = e^{G_C} R + sum over j of e^{G_C - G_j} w_j k_j v_j^T
 *
 * What reads the state as a token finds it reads rows j < i, and from them
 * takes c_i k_{i-1} v_{i-1}^T.
 */

enum { MOST_LOOKS = 1 << 10 };

static bool is_by_tokens(const Node *n)
{
    const OpInfo *op = &op_info[n->op];

    return (op->traits & (ELEMENTWISE | PAIRS | FOLDS)
            || (op->traits & RENAMES && n->over))
        && !(n->over & (ROW_AXES | COL_AXES));
}

/* Whether x is at each token what y is at the one before. */
static bool is_delayed(const Graph *g, Ref x, Ref y, int *looks)
{
    const Node *a = &g->n[x], *b = &g->n[y];

    if (++*looks > MOST_LOOKS)
        return false;
    if (op_is(a->op, SHIFTS) && !a->flags && a->a[0] == y)
        return true;
    if (x == y)
        return !(a->axes & AXIS(AX_I));
    if (a->op != b->op || !is_by_tokens(a) || a->flags != b->flags
        || a->over != b->over || a->index != b->index)
        return false;
    int turns = op_info[a->op].traits & COMM ? 2 : 1;
    for (int turn = 0; turn < turns; turn++) {
        bool all = true;
        for (int i = 0; i < 4 && all; i++) {
            Ref other = b->a[turn && i < 2 ? 1 - i : i];
            all = a->a[i] ? other && is_delayed(g, a->a[i], other, looks)
                          : !other;
        }
        if (all)
            return true;
    }
    return false;
}

/* Whether x is made of sums of what the token before has left. */
static bool has_sum(const Graph *g, Ref x)
{
    const Node *n = &g->n[x];
    bool any = op_is(n->op, FOLDS);

    if (!(n->axes & AXIS(AX_I)) || op_is(n->op, SHIFTS) || !is_by_tokens(n))
        return false;
    for (int i = 0; i < 4 && !any; i++)
        any = n->a[i] && has_sum(g, n->a[i]);
    return any;
}

/* x at the chunk's first token; what is made of sums, as l2norm's, is that of
 * all tokens' rows, where a state would have to be summed by itself. */
static Ref first_of(Graph *g, Ref x)
{
    const Node n = g->n[x];
    Ref a[4] = { 0 };

    if (!(n.axes & AXIS(AX_I)))
        return x;
    if (op_is(n.op, SHIFTS) && !n.flags)
        return n.a[1];
    if (!is_by_tokens(&n) || has_sum(g, x))
        return last_row(g, x, REVERSE);
    for (int i = 0; i < 4; i++)
        a[i] = n.a[i] ? first_of(g, n.a[i]) : 0;
    return node_copy(g, &n, a);
}

/* x at the token behind; at the chunk's last 0. */
static Ref behind(const Lift *l, Ref x)
{
    return node_new(l->g, (Node){ .op = l->joint ? OP_delay : OP_after,
                                  .a = { x, num(l->g, 0) },
                                  .flags = REVERSE });
}

/* A write that reads nothing, lifted: rows, and a number a token that they are
 * all multiplied by. */
typedef struct Scaled { Rows rows; Ref number; } Scaled;

/* The same as written; without the state's decay, where it has that as a
 * factor; of two in one, how much of its rows a token reads of its own, and
 * those behind it of the token's. */
typedef struct Written {
    Rows rows;
    Scaled now, before;
    Ref own, weight;
    AxisSet rank;
} Written;

static Scaled lift_scaled(Lift *l, Write w)
{
    Graph *s = l->s;
    Factors b = { 0 }, v = { 0 };

    factors(s, w.b, &b);
    factors(s, w.v, &v);
    Ref keys = factors_product(s, &b, DIM_AXES, 0);
    Ref values = factors_product(s, &v, DIM_AXES, 0);
    Ref number = mul_opt(s, factors_product(s, &b, 0, DIM_AXES),
                         factors_product(s, &v, 0, DIM_AXES));
    if (!keys || !values)
        return (Scaled){ 0 };
    return (Scaled){ { lift_ranked(l, keys, w.rank),
                       lift_ranked(l, values, w.rank) },
                     number ? lift(l, number) : num(l->g, 1) };
}

/* alone: there is no other that it could be one with. */
static Written lift_write(Lift *l, int s, Write w, bool alone)
{
    Ref decay = l->form[s].decay;
    Written r = { .rank = w.rank };

    r.rows = (Rows){ lift_ranked(l, w.b, w.rank),
                     w.v ? lift_ranked(l, w.v, w.rank) : 0 };
    if (!w.v || (alone && !l->joint))
        return r;
    r.now = lift_scaled(l, w);
    if (!decay || strip_decay(l->s, &w.b, decay)
        || strip_decay(l->s, &w.v, decay))
        r.before = lift_scaled(l, w);
    return r;
}

/* Whether the first of two writes, before it decays, is the second a token
 * later; then both are the second one. */
static bool merge_pair(Lift *l, int s, const Scaled *late, Written *now)
{
    Graph *g = l->g;
    Rows r0 = late->rows, r = now->now.rows;
    Ref c = late->number, d = now->now.number;
    int looks = 0;

    if (!r0.b || !r.b || !is_delayed(g, r0.b, r.b, &looks)
        || !is_delayed(g, r0.w, r.w, &looks))
        return false;
    Ref k = first_of(g, r0.b), v = first_of(g, r0.w);
    AxisSet ranks = (g->n[k].axes | g->n[v].axes) & ROW_AXES;
    Ref kv = ranks ? dot(g, k, v, ranks) : op2(g, OP_mul, k, v);
    l->mat[s].found = op2(g, l->joint ? OP_add : OP_opening, l->mat[s].found,
                          op2(g, OP_mul, first_of(g, c), kv));
    l->mat[s].late[l->mat[s].nlate++] = (Rows){ r0.b,
                                                op2(g, OP_mul, c, r0.w) };
    now->rows = r;
    now->now = now->before = (Scaled){ 0 };
    now->own = d;
    now->weight = op2(g, OP_add, d, behind(l, c));
    return true;
}

/* Of n writes one each for all that are made again a token later; returns how
 * many are left. */
static int merge_delayed(Lift *l, int s, Written *w, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            if (i == j || w[i].own
                || !merge_pair(l, s, &w[i].before, &w[j]))
                continue;
            w[i] = w[--n];
            return merge_delayed(l, s, w, n);
        }
    return n;
}

/* ---- the rows of a matrix state ---- */

/* The writes that read, joined; false if there are none. a, b, v are lifted;
 * *incl: a's gate is inclusive. Of a sequence that is all of its writes. */
static bool collect_reading(Lift *l, int s, Ref *a, Ref *b, Ref *v, bool *incl)
{
    Universal *u = &l->form[s];
    Ref pa[MAX_TERMS], pb[MAX_TERMS], pv[MAX_TERMS], some = 0;
    int n = 0, rows = 0;

    *incl = true;
    for (int i = 0; i < u->nwrites && !u->sequence; i++) {
        Ref x = u->write[i].a;
        if (x)
            *incl &= u->write[i].decayed || strip_decay(l->s, &x, u->decay);
    }
    for (int i = 0; i < (u->sequence ? u->sequence : u->nwrites); i++) {
        Write w = u->write[i];
        if (!w.a && !u->sequence)
            continue;
        if (*incl && !u->sequence)
            strip_decay(l->s, &w.a, u->decay);
        if (!w.a)
            w.a = op2(l->s, OP_mul, w.b, num(l->s, 0));
        pa[n] = lift_ranked(l, w.a, w.rank);
        pb[n] = lift_ranked(l, w.b, w.rank);
        pv[n] = w.v ? lift_ranked(l, w.v, w.rank) : 0;
        some = pv[n] ? pv[n] : some;
        rows += rank_size(l, w.rank);
        n++;
    }
    if (!n)
        return false;
    for (int i = 0; some && i < n; i++)
        if (!pv[i])
            pv[i] = op2(l->g, OP_mul, some, num(l->g, 0));
    *a = join_rows(l, pa, n, rows);
    *b = join_rows(l, pb, n, rows);
    *v = some ? join_rows(l, pv, n, rows) : 0;
    return true;
}

/* x for each of a write's rows, which are joined with others'. */
static Ref for_rows(Lift *l, Ref x, AxisSet rank)
{
    x = or_one(l->g, x);
    return rank ? op2(l->g, OP_mul, x, lift_ranked(l, along_all(l->s, 0, rank),
                                                   rank)) : x;
}

/* The writes that read nothing, joined. */
static void collect_plain(Lift *l, int s)
{
    Universal *u = &l->form[s];
    Written w[MAX_TERMS];
    Ref b[MAX_TERMS], v[MAX_TERMS], own[MAX_TERMS], weight[MAX_TERMS];
    int n = 0, rows = 0, plain = 0;

    for (int i = u->sequence; i < u->nwrites; i++)
        plain += !u->write[i].a;
    for (int i = u->sequence; i < u->nwrites; i++)
        if (!u->write[i].a)
            w[n++] = lift_write(l, s, u->write[i], plain == 1);
    if (!decays_apart(l->s, u))
        n = merge_delayed(l, s, w, n);
    for (int i = 0; i < n; i++) {
        AxisSet rank = n > 1 ? w[i].rank : 0;
        b[i] = w[i].rows.b;
        v[i] = w[i].rows.w;
        own[i] = l->mat[s].nlate ? for_rows(l, w[i].own, rank) : 0;
        weight[i] = l->mat[s].nlate ? for_rows(l, w[i].weight, rank) : 0;
        rows += rank_size(l, w[i].rank);
    }
    if (!n)
        return;
    l->mat[s].rows[l->mat[s].nrows++] = (Rows){ join_rows(l, b, n, rows),
                                                join_rows(l, v, n, rows) };
    if (l->mat[s].nlate) {
        l->mat[s].own = join_rows(l, own, n, rows);
        l->mat[s].weight = join_rows(l, weight, n, rows);
    }
}

/* What the one read that there is is multiplied by along nu; 0: nothing. */
static Ref rate_of(const Universal *u)
{
    Ref rate = 0;

    for (int i = 0; i < u->nwrites; i++)
        rate = u->write[i].a ? u->write[i].rate : rate;
    return rate;
}

/* The rows that read first, solved for entry by entry of nu: under decays along
 * it, and where what is read is multiplied by a rate that differs so. */
static Rows each_solved(Lift *l, int s, Ref a, Ref b, Ref v, Ref gate)
{
    Graph *g = l->g;
    const Universal *u = &l->form[s];
    bool apart = decays_apart(l->s, u);
    Ref rate = rate_of(u) ? lift(l, rate_of(u)) : num(g, 1);
    Ref x = carried(l, a, gate, s, u->kappa);

    if (l->mat[s].nrows)
        x = op2(g, OP_add, x, read_rows(l, a, 0, gate, s, true));
    x = op2(g, OP_mul, rate, x);
    x = v ? op2(g, OP_add, x, v) : x;
    Ref A = apart ? dot(g, a, col(g, b), u->kappa)
                  : scores(l, a, b, gate, s, true);
    Ref w = gsolve(g, A, x, rate, apart ? l->mat[s].G : cumsum(g, num(g, 0), 0),
                   apart && gate == l->mat[s].E ? EXCLUSIVE : 0);
    return (Rows){ b, w };
}

static void lift_matrix(Lift *l, int s)
{
    Graph *g = l->g;
    Universal *u = &l->form[s];
    Ref a, b, v;
    bool incl;

    l->mat[s].found = g->st[s].node;
    g->line = l->s->st[s].next ? l->s->n[l->s->st[s].next].line : 0;
    g->sloped |= u->sloped != 0;
    if (u->log_decay) {
        Ref lg = bounded_gate(g, lift(l, u->log_decay));
        if (g->n[lg].axes & DIM_AXES)   /* a row a token is added up */
            lg = per_token(g, lg);
        l->mat[s].G = cumsum(g, lg, 0);
        l->mat[s].E = cumsum(g, lg, EXCLUSIVE);
        l->mat[s].decay = op1(g, OP_exp, lg);
    }
    collect_plain(l, s);
    if (!collect_reading(l, s, &a, &b, &v, &incl))
        return;
    Ref gate = incl ? l->mat[s].G : l->mat[s].E;
    if (decays_apart(l->s, u) || rate_of(u)) {
        l->mat[s].rows[l->mat[s].nrows] = each_solved(l, s, a, b, v, gate);
        l->mat[s].nrows++;
        return;
    }
    Ref x = carried(l, a, gate, s, u->kappa);
    if (v)
        x = op2(g, OP_add, x, v);
    if (l->mat[s].nrows)
        x = op2(g, OP_add, x, read_rows(l, a, 0, gate, s, true));
    Ref A = scores(l, a, b, gate, s, !u->sequence);
    if (u->sequence)
        A = op2(g, OP_mul, A, later(g, g->n[A].axes & ROW_AXES & ~AXIS(AX_I)));
    Ref w = solve(g, A, x, u->sequence ? LATER : 0);
    l->mat[s].rows[l->mat[s].nrows++] = (Rows){ b, w };
}

/* e^{G_C} S_0 + sum (b e^{G_C - G})^T W. A gate without kappa rides on W. */
static Ref leave_matrix(Lift *l, int s)
{
    Graph *g = l->g;
    Ref G = l->mat[s].G, S = l->mat[s].found, end = 0, tail = 0;

    if (G) {
        end = last_row(g, G, 0);
        tail = op1(g, OP_exp, op2(g, OP_sub, end, G));
        S = op2(g, OP_mul, op1(g, OP_exp, end), S);
    }
    for (int i = 0; i < l->mat[s].nrows; i++) {
        Rows r = l->mat[s].rows[i];
        bool per_key = tail && (g->n[tail].axes & l->form[s].kappa);
        Ref b = per_key ? op2(g, OP_mul, r.b, tail) : r.b;
        Ref w = tail && !per_key ? op2(g, OP_mul, r.w, tail) : r.w;
        w = i ? w : mul_opt(g, l->mat[s].weight, w);
        AxisSet rows = (g->n[b].axes | g->n[w].axes) & ROW_AXES;
        S = op2(g, OP_add, S, dot(g, b, w, rows));
    }
    return S;
}

/* A scalar or vector state: its values for all tokens. */
static void lift_scan(Lift *l, int s)
{
    Graph *g = l->g;
    Universal *u = &l->form[s];
    Ref found = g->st[s].node, c = lift(l, u->c), left;
    Ref d = u->d ? lift(l, u->d) : 0;

    g->line = l->s->n[l->s->st[s].next].line;
    if (d && g->n[d].axes & DIM_AXES)   /* gates are a row a token, as sums */
        d = per_token(g, d);
    if (u->form == FORM_MAX)
        left = maxscan(g, d, c, found);
    else if (u->form == FORM_SCAN)
        left = scan(g, d, c, found, l->s->st[s].angle ? WRAP : 0);
    else if (per_token(g, c) == c && !(g->st[s].axes & ~g->n[c].axes))
        left = c;
    else
        left = scan(g, num(g, 0), c, found, 0);
    l->seq[s].left = left;
    l->seq[s].found = delay(g, left, found, 0);
    g->st[s].next = last_row(g, left, 0);
}

/* The chunk graph with the step's arguments, states and axes. */
static Graph *chunk_graph(const Graph *step, int chunk)
{
    Graph *g = graph_new(step->ctx, step->name, chunk);

    for (int i = AX_DIM; i < step->naxes; i++)
        g->axis[i] = step->axis[i];
    g->naxes = step->naxes;
    for (int i = 0; i < step->nin; i++) {
        g->in[i] = step->in[i];
        g->nin = i + 1;
        g->line = step->in[i].line;
        g->in[i].node = node_new(g, (Node){ .op = OP_input,
                                            .index = (uint16_t)i });
    }
    for (int i = 0; i < step->nst; i++) {
        g->st[i] = step->st[i];
        g->nst = i + 1;
        g->line = step->st[i].line;
        g->st[i].node = node_new(g, (Node){ .op = OP_state,
                                            .index = (uint16_t)i });
    }
    return g;
}

/* A matrix whose entries are by themselves is there at each token of the chunk:
 * where that is more than a core's cache, steps are faster. */
static void check_entries(Lift *l, const Coupled *k)
{
    const State *st = &l->s->st[k->state[0]];
    int64_t n = 1;

    for (int i = 0; i < st->rank; i++)
        n *= l->s->axis[st->order[i]].size;
    if (st->rank > 1 && n > MOST_ENTRIES)
        serial(l, line_text(l->s, l->s->n[st->next].line, ctx_format(
               l->g->ctx, "each of the %lld entries of %s would stand at every "
               "token (of up to %d, it may)", (long long)n, st->name,
               MOST_ENTRIES)));
}

static void find_form(Lift *l, StateSet of)
{
    Block *k = ctx_alloc(l->g->ctx, sizeof *k);
    Road road = road_of(l->s, of, l->slopes, &l->form[__builtin_ctzll(of)],
                        &k->form);

    if (road == NO_FORM)
        serial(l, l->s->note);
    if (road == IN_BLOCK && k->form.entries)
        check_entries(l, &k->form);
    for (int m = 0; m < k->form.n && road == IN_BLOCK; m++) {
        l->form[k->form.state[m]].form = k->form.entries ? FORM_SCAN
                                                         : FORM_UNIVERSAL;
        l->block[k->form.state[m]] = k;
    }
}

static void derive_into(Lift *l)
{
    Graph *s = l->s, *g = l->g;
    Strata *order = ctx_alloc(g->ctx, sizeof *order);

    strata(s, order);
    for (int i = 0; i < order->n; i++)
        find_form(l, order->of[i]);
    for (int i = 0; i < order->n; i++) {
        int first = __builtin_ctzll(order->of[i]);
        if (l->block[first])
            lift_coupled(l, l->block[first]);
        else if (l->form[first].form == FORM_UNIVERSAL)
            lift_matrix(l, first);
        else
            lift_scan(l, first);
    }
    for (int i = 0; i < s->nst; i++)
        if (l->form[i].form == FORM_UNIVERSAL)
            g->st[i].next = l->block[i] ? leave_coupled(l, i)
                                        : leave_matrix(l, i);
    for (int i = 0; i < s->nout; i++) {
        g->out[i] = s->out[i];
        g->out[i].node = per_token(g, lift(l, s->out[i].node));
        g->nout = i + 1;
    }
}

/* Whether there is a chunk form. */
static bool derived(Lift *l)
{
    if (setjmp(l->no->end))
        return false;
    derive_into(l);
    return true;
}

static Graph *derive_with(Graph *step, const int32_t size[NAXES], int chunk,
                          bool joint, bool slopes)
{
    Ctx *c = step->ctx;
    Lift l = { .s = graph_sized(step, size), .slopes = slopes, .joint = joint };

    add_twins(l.s);
    l.g = chunk_graph(l.s, chunk);
    l.map_len = l.s->len;
    l.map = ctx_alloc(c, l.map_len * sizeof *l.map);
    l.form = ctx_alloc(c, MAX_STATES * sizeof *l.form);
    l.block = ctx_alloc(c, MAX_STATES * sizeof *l.block);
    l.no = ctx_alloc(c, sizeof *l.no);
    bool any = derived(&l);
    step->note = (char *)l.note;
    return any ? l.g : NULL;
}

Graph *derive(Graph *step, const int32_t size[NAXES], int chunk)
{
    return derive_with(step, size, chunk, false, false);
}

Graph *derive_joint(Graph *step, const int32_t size[NAXES], int chunk)
{
    Graph *g = derive_with(step, size, chunk, true, false);

    return g && g->sloped ? derive_with(step, size, chunk, true, true) : g;
}
