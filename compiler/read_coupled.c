/* read_coupled.c -- what is read of a block of states that stand in each other,
 * and what a chunk leaves of them, once it is known what stands where
 * (lift_coupled.c).
 */
#include "lift.h"

/* x against what the chunk finds, over an axis. */
static Ref read_found(Lift *l, const Block *k, Ref x, int m, bool fresh,
                      AxisSet over)
{
    Graph *g = l->g;
    Ref y = 0;

    for (int n = 0; n < k->form.n; n++) {
        Ref f = fresh ? k->after[m][n] : k->before[m][n];
        Ref S = g->st[k->form.state[n]].node;
        if (f && g->n[f].axes & DIM_AXES & ~over)
            y = add_opt(g, y, op2(g, OP_mul, f, dot(g, x, S, over)));
        else if (f)
            y = add_opt(g, y, dot(g, op2(g, OP_mul, x, f), S, over));
    }
    return y;
}

/* In the frame: x turned against what is written there, by gates of each
 * key. */
static Ref scores_in_frame(Lift *l, const Block *k, Ref x, const Spread *s,
                           int m, bool fresh)
{
    Graph *g = l->g;
    Ref gate = fresh ? k->left.gate : k->found.gate, p = 0;

    for (int of = 0; of < 2; of++)
        if (s->part[of])
            p = add_opt(g, p, gdot(g, op2(g, OP_mul, x,
                                          frame_part(g, k, m, of, fresh)),
                                   col(g, op2(g, OP_mul, s->rows.b,
                                              s->part[of])),
                                   gate, col(g, k->left.gate), k->form.kappa,
                                   fresh ? 0 : STRICT));
    return p;
}

Ref scores_of(Lift *l, const Block *k, Ref x, const Spread *s, int m,
              bool fresh)
{
    AxisSet kappa = k->form.kappa;
    Ref by = fresh ? s->after[m] : s->before[m];

    if (k->turns)
        return scores_in_frame(l, k, x, s, m, fresh);
    if (!by)
        return 0;
    if (l->g->n[by].axes & kappa)
        return dot(l->g, op2(l->g, OP_mul, x, by), col(l->g, s->rows.b),
                   kappa);
    return op2(l->g, OP_mul, dot(l->g, x, col(l->g, s->rows.b), kappa), by);
}

/* Scores over nu with what is written in the frame, turned as token i is. */
static Ref values_in_frame(Lift *l, const Block *k, Ref p, const Spread *s,
                           int m, bool fresh)
{
    Graph *g = l->g;
    Ref gate = fresh ? k->left.gate : k->found.gate, y = 0;

    for (int of = 0; of < 2; of++) {
        if (!s->part[of])
            continue;
        Ref b = col(g, op2(g, OP_mul, s->rows.b, s->part[of]));
        Ref u = gdot(g, p, b, gate, col(g, k->left.gate),
                     g->n[b].axes & COL_AXES, fresh ? 0 : STRICT);
        y = add_opt(g, y, op2(g, OP_mul, frame_part(g, k, m, of, fresh), u));
    }
    return y;
}

/* The same over nu: rows are read, what they are written under is left. */
static Ref read_values(Lift *l, const Block *k, Ref x, const Spread *s, int m,
                       bool fresh)
{
    Graph *g = l->g;
    Ref b = col(g, s->rows.b), by = fresh ? s->after[m] : s->before[m];
    Ref p = dot(g, x, col(g, s->rows.w), k->form.nu);

    if (k->turns)
        return values_in_frame(l, k, p, s, m, fresh);
    return !by ? 0 : dot(g, op2(g, OP_mul, p, by), b,
                         g->n[b].axes & COL_AXES);
}

Ref read_places(Lift *l, const Block *k, Ref x, int m, bool fresh,
                AxisSet over)
{
    Ref y = read_found(l, k, x, m, fresh, over);

    for (int i = 0; i < k->nspreads; i++) {
        const Spread *s = &k->spread[i];
        Ref p = over == k->form.kappa ? scores_of(l, k, x, s, m, fresh)
                                      : read_values(l, k, x, s, m, fresh);
        if (p)
            y = add_opt(l->g, y, over == k->form.kappa
                        ? weighted(l, p, s->rows.w) : p);
    }
    return y;
}

Ref read_coupled(Lift *l, Ref x, const Term *t)
{
    const Block *k = l->block[t->state];
    Ref y = read_places(l, k, x, coupled_place(&k->form, t->state), t->fresh,
                        t->over);

    return or_zero(l->g, y);
}

/* Part `of` in the frame at the chunk's end. */
static Ref leave_in_frame(Lift *l, const Block *k, int of)
{
    Graph *g = l->g;
    Ref end = last_row(g, k->left.gate, 0);
    Ref tail = op1(g, OP_exp, op2(g, OP_sub, end, k->left.gate));
    Ref u = op2(g, OP_mul, op1(g, OP_exp, end),
                g->st[k->form.state[of]].node);

    for (int i = 0; i < k->nspreads; i++) {
        const Spread *s = &k->spread[i];
        if (!s->part[of])
            continue;
        Ref b = op2(g, OP_mul, op2(g, OP_mul, s->rows.b, s->part[of]), tail);
        u = op2(g, OP_add, u, dot(g, b, s->rows.w, ROW_AXES
                                  & (g->n[b].axes | g->n[s->rows.w].axes)));
    }
    return u;
}

Ref leave_coupled(Lift *l, int s)
{
    Graph *g = l->g;
    const Block *k = l->block[s];
    int m = coupled_place(&k->form, s);
    Ref S = 0;

    for (int of = 0; of < 2 && k->turns; of++)
        S = add_opt(g, S, op2(g, OP_mul, last_row(g,
                                  frame_part(g, k, m, of, true), 0),
                              leave_in_frame(l, k, of)));
    if (k->turns)
        return S;

    for (int n = 0; n < k->form.n; n++)
        if (k->after[m][n])
            S = add_opt(g, S, op2(g, OP_mul, last_row(g, k->after[m][n], 0),
                                  g->st[k->form.state[n]].node));
    for (int i = 0; i < k->nspreads; i++) {
        const Spread *r = &k->spread[i];
        if (!r->after[m])
            continue;
        Ref tail = op1(g, OP_row, last_row(g, r->after[m], 0));
        bool per_key = g->n[tail].axes & DIM_AXES;
        Ref w = per_key ? r->rows.w : op2(g, OP_mul, r->rows.w, tail);
        Ref b = per_key ? op2(g, OP_mul, r->rows.b, tail) : r->rows.b;
        S = add_opt(g, S, dot(g, b, w,
                              (g->n[b].axes | g->n[w].axes) & ROW_AXES));
    }
    return S;
}
