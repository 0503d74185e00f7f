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

Ref scores_of(Lift *l, const Block *k, Ref x, const Spread *s, Ref by)
{
    AxisSet kappa = k->form.kappa;

    if (l->g->n[by].axes & kappa)
        return dot(l->g, op2(l->g, OP_mul, x, by), col(l->g, s->rows.b),
                   kappa);
    return op2(l->g, OP_mul, dot(l->g, x, col(l->g, s->rows.b), kappa), by);
}

/* The same over nu: rows are read, what they are written under is left. */
static Ref read_values(Lift *l, const Block *k, Ref x, const Spread *s, Ref by)
{
    Graph *g = l->g;
    Ref b = col(g, s->rows.b);
    Ref p = dot(g, x, col(g, s->rows.w), k->form.nu);

    return dot(g, op2(g, OP_mul, p, by), b, g->n[b].axes & COL_AXES);
}

Ref read_places(Lift *l, const Block *k, Ref x, int m, bool fresh,
                       AxisSet over)
{
    Ref y = read_found(l, k, x, m, fresh, over);

    for (int i = 0; i < k->nspreads; i++) {
        const Spread *s = &k->spread[i];
        Ref by = fresh ? s->after[m] : s->before[m];
        if (!by)
            continue;
        y = add_opt(l->g, y, over == k->form.kappa
                    ? weighted(l, scores_of(l, k, x, s, by), s->rows.w)
                    : read_values(l, k, x, s, by));
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

Ref leave_coupled(Lift *l, int s)
{
    Graph *g = l->g;
    const Block *k = l->block[s];
    int m = coupled_place(&k->form, s);
    Ref S = 0;

    for (int n = 0; n < k->form.n; n++)
        if (k->after[m][n])
            S = add_opt(g, S, op2(g, OP_mul, op1(g, OP_last, k->after[m][n]),
                                  g->st[k->form.state[n]].node));
    for (int i = 0; i < k->nspreads; i++) {
        const Spread *r = &k->spread[i];
        if (!r->after[m])
            continue;
        Ref tail = op1(g, OP_row, op1(g, OP_last, r->after[m]));
        bool per_key = g->n[tail].axes & DIM_AXES;
        Ref w = per_key ? r->rows.w : op2(g, OP_mul, r->rows.w, tail);
        Ref b = per_key ? op2(g, OP_mul, r->rows.b, tail) : r->rows.b;
        S = add_opt(g, S, dot(g, b, w,
                              (g->n[b].axes | g->n[w].axes) & ROW_AXES));
    }
    return S;
}
