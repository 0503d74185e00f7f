/* lift_coupled.c -- a block of states that stand in each other, in chunks.
 *
 * What token i passes on to the next is a small matrix P_i of numbers, and
 * what is written at token j stands in state m behind token i with the weight
 *
 *     G^m_ij = (P_i P_{i-1} ... P_{j+1} to_j)^m,       i >= j, else 0
 *
 * which is a recurrence along i for each j: no logarithm, no division, so that
 * numbers may be negative or zero. With F^mn_i = (P_i ... P_1)^mn, of what the
 * chunk finds, and both a token earlier as E:
 *
 *     read q of S^m_t:    sum_n F^mn_i (q . S^n_0) + (G^m * (q b^T)) W
 *     read p of S^m_t-1:  the same with E
 *     W = (1 - A)^{-1} (V + reads of the states that the chunk finds),
 *         A_ij = sum_m E(G)^m_ij (a^m_i . b_j)
 *     S^m_C = sum_n F^mn_C S^n_0 + (b G^m_C)^T W
 */
#include "lift.h"

/* A recurrence s_i = P_i s_{i-1} + in_i of the block's places, from `first`. */
typedef struct Walk {
    Lift *l;
    const Block *k;
    Ref in[MAX_BLOCK], first[MAX_BLOCK], out[MAX_BLOCK];
} Walk;

/* The row before; `first` before the first. */
static Ref token_before(Graph *g, Ref x, Ref first)
{
    return x ? delay(g, x, or_zero(g, first), 0) : 0;
}

/* What comes to place m from outside of these, which are done. */
static Ref input_of(const Walk *w, int m, unsigned inside)
{
    Graph *g = w->l->g;
    Ref in = w->in[m];

    for (int n = 0; n < w->k->form.n; n++)
        if (!(inside & 1u << n) && w->k->keep[m][n] && w->out[n])
            in = add_opt(g, in, op2(g, OP_mul, w->k->keep[m][n],
                                    token_before(g, w->out[n], w->first[n])));
    return in;
}

static void walk_place(Walk *w, int m)
{
    Graph *g = w->l->g;
    Ref in = input_of(w, m, 1u << m), own = w->k->keep[m][m];

    if (!in && !w->first[m])
        return;
    w->out[m] = own ? recurrence(g, own, in, w->first[m])
                    : per_token(g, or_zero(g, in));
}

/* The places that place m reads, others than itself, straight or through
 * others. */
static unsigned places_read(const Walk *w, int m)
{
    unsigned all = 0, old;

    do {
        old = all;
        for (int i = 0; i < w->k->form.n; i++)
            for (int n = 0; (i == m || old & 1u << i) && n < w->k->form.n; n++)
                if (n != i && w->k->keep[i][n])
                    all |= 1u << n;
    } while (all != old);
    return all;
}

/* x of each place, side by side along the axis; 0: of none. */
static Ref side_by_side(Graph *g, const Ref *x, int n, int axis)
{
    Ref all = 0;

    for (int m = 0; m < n; m++)
        if (x[m])
            all = add_opt(g, all, op2(g, OP_mul, x[m], unit(g, axis, m)));
    return all;
}

/* An axis of the places of a circle; matrices have a second one. */
static int place_axis(Lift *l, int n, const char *name)
{
    Graph *g = l->g;

    name = ctx_format(g->ctx, "%s%d", name, n);
    while (graph_find_axis(l->s, name) >= 0)    /* the user has that one */
        name = ctx_format(g->ctx, "%s_", name);
    if (graph_find_axis(g, name) < 0 && g->naxes == NAXES)
        serial(l, line_text(l->s, g->line, ctx_format(g->ctx, "states in a "
                            "circle need two axes more than there are")));
    int ax = graph_axis(g, name);
    g->axis[ax].size = n;
    return ax;
}

/* Two places that are parts of one complex state. */
static bool walk_complex_pair(Walk *w, unsigned circle, const int place[2])
{
    Ref in[2], first[2], out[2];
    ComplexDecay r;

    if (!complex_decay(w->l, &w->k->form, place, &r))
        return false;
    for (int m = 0; m < 2; m++) {
        in[m] = input_of(w, place[m], circle);
        first[m] = w->first[place[m]];
    }
    walk_complex(w->l->g, &r, in, first, out);
    for (int m = 0; m < 2; m++)
        w->out[place[m]] = out[m];
    return true;
}

/* Places that read each other in a circle: all at once, by a matrix. */
static void walk_circle(Walk *w, unsigned circle)
{
    Graph *g = w->l->g;
    int place[MAX_BLOCK], n = 0;
    Ref in[MAX_BLOCK] = { 0 }, first[MAX_BLOCK], row[MAX_BLOCK], P = 0;

    for (int m = 0; m < w->k->form.n; m++)
        if (circle & 1u << m)
            place[n++] = m;
    if (n == 2 && walk_complex_pair(w, circle, place))
        return;
    int to = place_axis(w->l, n, "to"), from = place_axis(w->l, n, "from");
    for (int m = 0; m < n; m++) {
        first[m] = w->first[place[m]];
        in[m] = input_of(w, place[m], circle);
        for (int k = 0; k < n; k++)
            row[k] = w->k->keep[place[m]][place[k]];
        P = add_opt(g, P, op2(g, OP_mul, side_by_side(g, row, n, from),
                              unit(g, to, m)));
    }
    Ref b = side_by_side(g, in, n, to), c = side_by_side(g, first, n, to);
    if (!b && !c)
        return;
    Ref s = node_new(g, (Node){ .op = OP_matscan, .over = AXIS(from),
                                .index = (uint16_t)to,
                                .a = { per_token(g, P), or_zero(g, b),
                                       or_zero(g, c) } });
    for (int m = 0; m < n; m++)
        w->out[place[m]] = select_at(g, s, to, m);
}

static void walk(Walk *w)
{
    unsigned done = 0, all = (1u << w->k->form.n) - 1;

    while (done != all)
        for (int m = 0; m < w->k->form.n; m++) {
            unsigned reads = places_read(w, m), circle = 1u << m;
            for (int n = 0; n < w->k->form.n; n++)
                if (reads & 1u << n && places_read(w, n) & 1u << m)
                    circle |= 1u << n;
            if (done & circle || reads & ~(done | circle))
                continue;
            if (circle & (circle - 1))
                walk_circle(w, circle);
            else
                walk_place(w, m);
            done |= circle;
        }
}

/* ---- what stands where ---- */

static void find_kept_in_frame(Graph *g, Block *k)
{
    for (int m = 0; m < 2; m++)
        for (int n = 0; n < 2; n++) {
            k->after[m][n] = op2(g, OP_mul, op1(g, OP_exp, k->left.gate),
                                 frame_part(g, k, m, n, true));
            k->before[m][n] = op2(g, OP_mul, op1(g, OP_exp, k->found.gate),
                                  frame_part(g, k, m, n, false));
        }
}

static void find_kept(Lift *l, Block *k)
{
    if (k->turns)
        find_kept_in_frame(l->g, k);
    for (int n = 0; n < k->form.n && !k->turns; n++) {
        Walk w = { .l = l, .k = k };
        w.first[n] = num(l->g, 1);
        walk(&w);
        for (int m = 0; m < k->form.n; m++) {
            k->after[m][n] = w.out[m];
            k->before[m][n] = token_before(l->g, w.out[m], w.first[m]);
        }
    }
}

static void add_spread(Lift *l, Block *k, const Ref to[MAX_BLOCK],
                       Rows rows)
{
    Graph *g = l->g;
    Walk w = { .l = l, .k = k };
    Spread *s = &k->spread[k->nspreads++];

    s->rows = rows;
    if (k->turns) {
        write_in_frame(g, k, to, s->part);
        return;
    }
    for (int m = 0; m < k->form.n; m++)
        if (to[m])
            w.in[m] = op2(g, OP_mul, same_token(g),
                          g->n[to[m]].axes & ROW_AXES ? col(g, to[m]) : to[m]);
    walk(&w);
    for (int m = 0; m < k->form.n; m++) {
        s->after[m] = w.out[m];
        s->before[m] = token_before(g, w.out[m], 0);
    }
}

/* ---- the rows ---- */

/* An operand of the joined rows: lifted, with the rank axis of its row; what
 * is absent is zero, as `like`. */
static Ref row_part(Lift *l, Ref x, const CoupledRow *r, Ref like)
{
    Graph *g = l->g;
    Ref y = x ? lift_ranked(l, x, r->rank) : op2(g, OP_mul, like, num(g, 0));

    if (!r->rank)
        return y;
    int ax = rank_axis(l, rank_size(l, r->rank));
    if (g->n[y].axes & AXIS(ax))
        return y;
    return op2(g, OP_add, y, op2(g, OP_mul, unit(g, ax, 0), num(g, 0)));
}

static Ref first_rank(Lift *l, Ref x)
{
    AxisSet ranks = l->g->n[x].axes & ROW_AXES & ~AXIS(AX_I);

    return ranks ? select_at(l->g, x, lowest(ranks), 0) : x;
}

typedef enum Which { KEY, VALUE, TO, READ } Which;

static Ref operand(const CoupledRow *r, Which what, int m)
{
    switch (what) {
    case KEY: return r->b;
    case VALUE: return r->v;
    case TO: return r->to[m];
    case READ: return r->a[m];
    }
    return 0;
}

/* The operand of all rows that read, joined; 0 if none has it. */
static Ref joined(Lift *l, const Coupled *k, Which what, int m)
{
    Ref part[MAX_TERMS], some = 0;
    int n = 0, rows = 0;

    for (int i = 0; i < k->nrows && !some; i++)
        if (k->row[i].reads && operand(&k->row[i], what, m))
            some = first_rank(l, lift_ranked(l, operand(&k->row[i], what, m),
                                             k->row[i].rank));
    if (!some)
        return 0;
    for (int i = 0; i < k->nrows; i++) {
        const CoupledRow *r = &k->row[i];
        if (!r->reads)
            continue;
        part[n++] = row_part(l, operand(r, what, m), r, some);
        rows += rank_size(l, r->rank);
    }
    return join_rows(l, part, n, rows);
}

/* The rows that read the states first: solved for. */
static void lift_reading(Lift *l, Block *k)
{
    Graph *g = l->g;
    const Coupled *c = &k->form;
    Ref to[MAX_BLOCK], A = 0, x = joined(l, c, VALUE, 0);
    Rows rows = { .b = joined(l, c, KEY, 0) };

    for (int m = 0; m < c->n; m++)
        to[m] = joined(l, c, TO, m);
    for (int m = 0; m < c->n; m++) {
        Ref a = joined(l, c, READ, m);
        if (a)
            x = add_opt(g, x, read_places(l, k, a, m, false, c->kappa));
    }
    add_spread(l, k, to, rows);
    Spread *s = &k->spread[k->nspreads - 1];
    for (int m = 0; m < c->n; m++) {
        Ref a = joined(l, c, READ, m);
        if (a)
            A = add_opt(g, A, scores_of(l, k, a, s, m, false));
    }
    s->rows.w = A ? solve(g, A, x, 0) : x;
}

/* Entries: their values for all tokens. */
static void lift_circle(Lift *l, Block *k)
{
    Graph *g = l->g;
    Walk w = { .l = l, .k = k };

    for (int m = 0; m < k->form.n; m++) {
        int s = k->form.state[m];
        w.in[m] = k->form.rest[m] ? lift(l, k->form.rest[m]) : 0;
        w.first[m] = g->st[s].node;
    }
    walk(&w);
    for (int m = 0; m < k->form.n; m++) {
        int s = k->form.state[m];
        l->seq[s].left = w.out[m];
        l->seq[s].found = token_before(g, w.out[m], w.first[m]);
        g->st[s].next = last_row(g, w.out[m], 0);
    }
}

void lift_coupled(Lift *l, Block *k)
{
    const Coupled *c = &k->form;
    bool reads = false;

    l->g->line = l->s->n[l->s->st[c->state[0]].next].line;
    for (int m = 0; m < c->n; m++)
        for (int n = 0; n < c->n; n++)
            k->keep[m][n] = c->keep[m][n] ? lift(l, c->keep[m][n]) : 0;
    if (c->entries) {
        lift_circle(l, k);
        return;
    }
    k->turns = find_frame(l, k);
    find_kept(l, k);
    for (int i = 0; i < c->nrows; i++) {
        const CoupledRow *r = &c->row[i];
        Ref to[MAX_BLOCK] = { 0 };
        reads |= r->reads;
        if (r->reads)
            continue;
        for (int m = 0; m < c->n; m++)
            to[m] = r->to[m] ? lift(l, r->to[m]) : 0;
        add_spread(l, k, to,
                   (Rows){ .b = lift_ranked(l, r->b, r->rank),
                           .w = lift_ranked(l, r->v, r->rank) });
    }
    if (reads)
        lift_reading(l, k);
}
