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
    *b = join_rows(l, pb, n, rows);
    *v = some ? join_rows(l, pv, n, rows) : 0;
    return true;
}

/* Gates of -1e9 and -inf are resets. */
static Ref bounded_gate(Graph *g, Ref x)
{
    return op2(g, OP_max, x, num(g, LOG_ZERO));
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
        l->mat[s].G = cumsum(g, lg, 0);
        l->mat[s].E = cumsum(g, lg, EXCLUSIVE);
    }
    if (collect(l, s, false, &a, &b, &v, &incl))
        l->mat[s].rows[l->mat[s].nrows++] = (Rows){ b, v };
    if (!collect(l, s, true, &a, &b, &v, &incl))
        return;
    Ref gate = incl ? l->mat[s].G : l->mat[s].E;
    Ref x = carried(l, a, gate, s, u->kappa);
    if (v)
        x = op2(g, OP_add, x, v);
    if (l->mat[s].nrows) {
        Rows p = l->mat[s].rows[0];
        x = op2(g, OP_add, x,
                weighted(l, scores(l, a, p.b, gate, s, true), p.w));
    }
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
                          bool slopes)
{
    Ctx *c = step->ctx;
    Lift l = { .s = graph_sized(step, size), .slopes = slopes };

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
    return derive_with(step, size, chunk, false);
}

Graph *derive_sloped(Graph *step, const int32_t size[NAXES], int chunk)
{
    return derive_with(step, size, chunk, true);
}
