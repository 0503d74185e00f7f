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
 * (or p) turns its E into G instead of being multiplied in.
 */
#include "lift.h"
#include "plan.h"

#include <string.h>

enum { MOST_ENTRIES = 1 << 11 };

/* ---- writes of the token before ----
 *
 * Under the trapezoidal rule a token writes c_j k_{j-1} v_{j-1}^T beside its
 * own d_j k_j v_j^T. A token reads both of all tokens before it under the keys
 * of the tokens before those alone: one product instead of two,
 *
 *     sum over j <= i of (q_i . k_{j-1}) e^{G_i - G_j} w_j v_{j-1}
 *         + d_i (q_i . k_i) v_i,      w_j = c_j + e^{g_j} d_{j-1}, d_{-1} = 0
 *
 * where w_0 leaves out what the state has of the token before the chunk. What
 * reads the state as a token finds it has j < i, and
 * d_{i-1} (q_i . k_{i-1}) v_{i-1} for its own.
 */

enum { MOST_LOOKS = 1 << 10 };

static bool is_by_tokens(const Node *n)
{
    const OpInfo *op = &op_info[n->op];

    return op->traits & (ELEMENTWISE | PAIRS | FOLDS)
        && !(n->over & (ROW_AXES | COL_AXES));
}

/* Whether x is at each token what y is at the one before. */
static bool is_delayed(const Graph *g, Ref x, Ref y, int *looks)
{
    const Node *a = &g->n[x], *b = &g->n[y];

    if (++*looks > MOST_LOOKS)
        return false;
    if (a->op == OP_delay && !a->flags && a->a[0] == y)
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

/* A matrix, times a number a token. */
typedef struct Scaled { Ref matrix, number; } Scaled;

static Scaled scaled_of(Graph *g, Ref x)
{
    Factors f = { 0 };

    factors(g, x, &f);
    return (Scaled){ factors_product(g, &f, DIM_AXES, 0),
                     factors_product(g, &f, 0, DIM_AXES) };
}

/* Whether the first of two writes is the second, a token later; then what reads
 * of both: rows for all tokens before, and a token's own. */
static bool find_pair(Lift *l, Ref decay, const Rows *late, const Rows *now,
                      Rows *both, Own *own)
{
    Graph *g = l->g;
    Scaled b0 = scaled_of(g, late->b), v0 = scaled_of(g, late->w);
    Scaled b = scaled_of(g, now->b), v = scaled_of(g, now->w);
    int looks = 0;

    if (!b0.matrix || !v0.matrix || !b.matrix || !v.matrix
        || !is_delayed(g, b0.matrix, b.matrix, &looks)
        || !is_delayed(g, v0.matrix, v.matrix, &looks))
        return false;
    Ref c = mul_opt(g, b0.number, v0.number);
    Ref d = mul_opt(g, b.number, v.number);
    c = c ? c : num(g, 1);
    d = d ? d : num(g, 1);
    Ref before = op2(g, OP_delay, d, num(g, 0));
    Ref w = op2(g, OP_add, c, mul_opt(g, decay, before));
    *both = (Rows){ b0.matrix, mul_opt(g, w, v0.matrix) };
    *own = (Own){ { b.matrix, mul_opt(g, d, v.matrix) },
                  { b0.matrix, mul_opt(g, before, v0.matrix) } };
    return true;
}

/* Of n writes that read nothing, one each for all that are made again a token
 * later; returns how many are left. */
static int merge_delayed(Lift *l, int s, Rows *row, int n)
{
    AxisSet axes = 0;

    for (int i = 0; i < n; i++)
        axes |= l->g->n[row[i].b].axes | l->g->n[row[i].w].axes;
    if (axes & ROW_AXES & ~AXIS(AX_I)
        || (l->mat[s].decay && l->g->n[l->mat[s].decay].axes & DIM_AXES))
        return n;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            Own *own = &l->mat[s].own[l->mat[s].nown];
            if (i == j || !find_pair(l, l->mat[s].decay, &row[i], &row[j],
                                     &row[i], own))
                continue;
            l->mat[s].nown++;
            row[j] = row[--n];
            return merge_delayed(l, s, row, n);
        }
    return n;
}

/* How writes of the token before are read together with its own. */
static void find_own(Lift *l, int s, const Ref *b, const Ref *v, int n)
{
    Rows row[MAX_TERMS];
    Ref keys[MAX_TERMS], values[MAX_TERMS];

    for (int i = 0; i < n; i++)
        row[i] = (Rows){ b[i], v[i] };
    n = merge_delayed(l, s, row, n);
    for (int i = 0; i < n; i++) {
        keys[i] = row[i].b;
        values[i] = row[i].w;
    }
    if (l->mat[s].nown)
        l->mat[s].read = (Rows){ join_rows(l, keys, n, n),
                                 join_rows(l, values, n, n) };
}

/* ---- the rows of a matrix state ---- */

/* The writes that read (a != 0) or do not, joined; false if there are none.
 * a, b, v are lifted; *incl: a's gate is inclusive. */
static bool collect(Lift *l, int s, bool reads, Ref *a, Ref *b, Ref *v,
                    bool *incl)
{
    Universal *u = &l->form[s];
    Ref pa[MAX_TERMS], pb[MAX_TERMS], pv[MAX_TERMS], some = 0;
    int n = 0, rows = 0;

    *incl = reads;
    for (int i = 0; i < u->nwrites; i++) {
        Ref x = u->write[i].a;
        if (x)
            *incl &= strip_decay(l->s, &x, u->decay);
    }
    for (int i = 0; i < u->nwrites; i++) {
        Write w = u->write[i];
        if (!w.a == reads)
            continue;
        if (reads && *incl)
            strip_decay(l->s, &w.a, u->decay);
        pa[n] = w.a ? lift_ranked(l, w.a, w.rank) : 0;
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
    if (reads)
        *a = join_rows(l, pa, n, rows);
    else if (some && l->joint)
        find_own(l, s, pb, pv, n);
    *b = join_rows(l, pb, n, rows);
    *v = some ? join_rows(l, pv, n, rows) : 0;
    return true;
}

static void lift_matrix(Lift *l, int s)
{
    Graph *g = l->g;
    Universal *u = &l->form[s];
    Ref a, b, v;
    bool incl;

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
    if (collect(l, s, false, &a, &b, &v, &incl))
        l->mat[s].rows[l->mat[s].nrows++] = (Rows){ b, v };
    if (!collect(l, s, true, &a, &b, &v, &incl))
        return;
    Ref gate = incl ? l->mat[s].G : l->mat[s].E;
    Ref x = carried(l, a, gate, s, u->kappa);
    if (v)
        x = op2(g, OP_add, x, v);
    if (l->mat[s].nrows)
        x = op2(g, OP_add, x, read_rows(l, a, 0, gate, s, true));
    Ref A = scores(l, a, b, gate, s, true);
    Ref w = node_new(g, (Node){ .op = OP_solve, .a = { A, x } });
    l->mat[s].rows[l->mat[s].nrows++] = (Rows){ b, w };
}

/* e^{G_C} S_0 + sum (b e^{G_C - G})^T W. A gate without kappa rides on W. */
static Ref leave_matrix(Lift *l, int s)
{
    Graph *g = l->g;
    Ref G = l->mat[s].G, S = g->st[s].node, end = 0, tail = 0;

    if (G) {
        end = op1(g, OP_last, G);
        tail = op1(g, OP_exp, op2(g, OP_sub, end, G));
        S = op2(g, OP_mul, op1(g, OP_exp, end), S);
    }
    for (int i = 0; i < l->mat[s].nrows; i++) {
        Rows r = l->mat[s].rows[i];
        bool per_key = tail && (g->n[tail].axes & DIM_AXES);
        Ref b = per_key ? op2(g, OP_mul, r.b, tail) : r.b;
        Ref w = tail && !per_key ? op2(g, OP_mul, r.w, tail) : r.w;
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
    if (u->form == FORM_MAX)
        left = scan(g, OP_maxscan, d, c, found, 0);
    else if (u->form == FORM_SCAN)
        left = scan(g, OP_scan, d, c, found,
                    l->s->st[s].angle ? WRAP : 0);
    else if (per_token(g, c) == c && !(g->st[s].axes & ~g->n[c].axes))
        left = c;
    else
        left = scan(g, OP_scan, num(g, 0), c, found, 0);
    l->seq[s].left = left;
    l->seq[s].found = op2(g, OP_delay, left, found);
    g->st[s].next = op1(g, OP_last, left);
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

static void derive_into(Ctx *c, void *ud)
{
    Lift *l = ud;
    Graph *s = l->s, *g = l->g;
    Strata *order = ctx_alloc(c, sizeof *order);

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
    step->note = NULL;
    if (ctx_protect(c, derive_into, &l))
        return l.g;
    if (!l.note)
        ctx_rethrow(c);                 /* a true error, not a broken form */
    step->note = (char *)l.note;
    return NULL;
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
