/* turn.c -- the adjoint of an angle phi that sums its increments, where keys
 * and queries are turned by it and states are written and read through them
 * alone (rotary embedding, complex states).
 *
 * What tokens do with phi adds up to its adjoint, from the last one back; but
 * most of that cancels, and over a long sequence what its terms were rounded
 * by would be left. Now with all phi from some token on larger by d, and the
 * states turned by d there, nothing changes but the states that are left, and
 * those are turned by d. So, <x, y> being the sum of rot90(x) y for each pair,
 * S what turns and dS its adjoint, at every token
 *
 *     adjoint of phi + <S, dS> = E,   the same from the first to the last.
 *
 * E is found at the end, where dS and the adjoint of phi are what came in, and
 * kept; it gives the adjoint at the end of every chunk. There <S, dS> is taken
 * as e^G <S_0, dS> + sum_i <b_i, dS w_i>, with S_0 as the chunk found it and
 * b_i w_i^T what its tokens have written: of the same terms that the tokens
 * then add, so that these cancel to the last bits.
 */
#include "turn.h"

#include <string.h>

/* What becomes of a value when phi is larger by d. */
enum Type {
    SAME,
    ANGLE, SPREAD,                      /* larger by d; a pair of each */
    WAVE, HALF,                         /* sin, cos of it; times a value */
    TURNED,                             /* turned by d */
    LOST                                /* none of these */
};

/* Operand i of a product, if it is sin or cos of an angle, with the other. */
static bool half_of(const Graph *g, Ref r, int op, int i, Rotation *out)
{
    const Node *n = &g->n[r];
    Ref wave = n->op == OP_mul ? n->a[i] : 0, x = n->a[1 - i];

    if (g->n[wave].op != op)
        return false;
    if (op == OP_cos) {
        *out = (Rotation){ .x = x, .angle = g->n[wave].a[0], .cos = wave };
        return op_is(g->n[out->angle].op, SPREADS);
    }
    out->sin = wave;
    out->axis = g->n[out->angle].index;
    return g->n[wave].a[0] == out->angle && g->n[x].op == OP_rot90
        && g->n[x].a[0] == out->x && g->n[x].over == AXIS(out->axis);
}

bool rotation_of(const Graph *g, Ref r, Rotation *out)
{
    const Node *n = &g->n[r];

    for (int k = 0; n->op == OP_add && k < 8; k++)
        if (half_of(g, n->a[k & 1], OP_cos, k >> 1 & 1, out)
            && half_of(g, n->a[1 - (k & 1)], OP_sin, k >> 2, out))
            return true;
    return false;
}

/* How many operands have this type. */
static int count(const Turn *t, const Node *n, int type)
{
    int c = 0;

    for (int i = 0; i < 4; i++)
        c += n->a[i] && t->type[n->a[i]] == type;
    return c;
}

/* Those that are the same for both of a pair, as they were. */
static int count_even(const Turn *t, const Graph *g, const Node *n)
{
    int c = 0;

    for (int i = 0; i < 4; i++)
        c += n->a[i] && t->type[n->a[i]] == SAME
          && !(g->n[n->a[i]].axes & AXIS(t->axis));
    return c;
}

/* What is made of angles, up to their sines and cosines. */
static int type_of_angle(const Turn *t, const Graph *g, const Node *n, int all)
{
    if (count(t, n, SPREAD) == all)
        return n->op == OP_sin || n->op == OP_cos ? WAVE : LOST;
    if (n->op == OP_scan && (n->a[2] == g->st[t->angle].node
                             || (t->twin >= 0
                                 && n->a[2] == g->st[t->twin].node)))
        return !n->a[0] && t->type[n->a[1]] == SAME ? ANGLE : LOST;
    if (count(t, n, ANGLE) != all)
        return LOST;
    return op_is(n->op, SHIFTS | ONE_ROW) ? ANGLE
         : op_is(n->op, SPREADS) && n->index == t->axis ? SPREAD : LOST;
}

/* What is made of turned values and of such as are the same for a pair. */
static int type_of_turned(const Turn *t, const Graph *g, const Node *n,
                          int all)
{
    int turned = count(t, n, TURNED);
    bool one = turned == 1, two = turned == 2;

    if (turned + count_even(t, g, n) != all)
        return LOST;
    if (n->over & AXIS(t->axis))
        return two && is_contraction(n->op) ? SAME : LOST;
    if (op_is(n->op, ADDITIVE) && !op_is(n->op, PAIRS))
        return turned == all ? TURNED : LOST;
    if (is_plain_contraction(n->op))
        return one ? TURNED : LOST;
    switch (n->op) {
    case OP_mul:
        return one ? TURNED : LOST;
    case OP_div:
        return one && t->type[n->a[0]] == TURNED ? TURNED : LOST;
    case OP_scan:
        return two && t->type[n->a[0]] != TURNED ? TURNED : LOST;
    }
    return LOST;
}

static int type_of(const Turn *t, const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    Rotation o;
    int all = 0;

    for (int i = 0; i < 4; i++)
        all += n->a[i] != 0;
    if (n->op == OP_state)
        return t->states & STATE(n->index) ? TURNED
             : n->index == t->angle || n->index == t->twin ? ANGLE : SAME;
    if (count(t, n, SAME) == all)
        return SAME;
    if (count(t, n, LOST))
        return LOST;
    if (count(t, n, TURNED))
        return type_of_turned(t, g, n, all);
    if (n->op == OP_mul && count(t, n, WAVE) && count(t, n, SAME))
        return HALF;
    if (count(t, n, HALF))
        return rotation_of(g, r, &o) ? TURNED : LOST;
    return type_of_angle(t, g, n, all);
}

/* What turns: the one axis that phi is spread over. */
static bool find_axis(const Graph *g, Turn *t)
{
    t->axis = -1;
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        if (!op_is(n->op, SPREADS) || !(g->n[n->a[0]].states & STATE(t->angle)))
            continue;
        if (t->axis >= 0 && t->axis != n->index)
            return false;
        t->axis = n->index;
        t->pairs = lowest(n->over);
    }
    return t->axis >= 0;
}

/* Whether all that is left behind has the type that it is found with. */
static bool proved(const Graph *g, Turn *t)
{
    t->type = ctx_alloc(g->ctx, g->len);
    for (Ref r = 1; r < g->len; r++)
        t->type[r] = (uint8_t)type_of(t, g, r);
    for (int i = 0; i < g->nst; i++)
        if (t->type[g->st[i].next] != t->type[g->st[i].node])
            return false;
    for (int i = 0; i < g->nout; i++)
        if (t->type[g->out[i].node] != SAME)
            return false;
    return true;
}

bool turn_find(const Graph *g, int angle, Turn *t)
{
    *t = (Turn){ .angle = angle, .twin = g->st[angle].twin_of - 1 };
    if (!g->chunk || !g->st[angle].angle || !find_axis(g, t))
        return false;
    for (int i = 0; i < g->nst; i++) {
        const State *s = &g->st[i];
        if (i != angle && s->axes & AXIS(t->axis)
            && g->n[s->next].states & STATE(angle))
            t->states |= STATE(i);
    }
    return t->states && proved(g, t);
}

/* ---- the adjoint ---- */

/* rot90(x) y, summed over all but what turns. */
static Ref turning(Graph *g, const Turn *t, Ref x, Ref y, bool rounded)
{
    x = unary_axis(g, OP_rot90, x, t->axis, 0);
    x = rounded ? op1(g, OP_factor, x) : x;
    return dot(g, x, y, (g->n[x].axes | g->n[y].axes) & ~AXIS(t->axis));
}

/* Whether rows of tokens are added up in x. */
static bool has_rows(const Graph *g, Ref x)
{
    const Node *n = &g->n[x];

    return n->op == OP_add || n->op == OP_sub || n->op == OP_mul
         ? has_rows(g, n->a[0]) || has_rows(g, n->a[1])
         : op_is(n->op, ADDS_UP) && n->over & AXIS(AX_I);
}

/* <x, d> before the sum over a pair; of a product b w^T, what its rows add. */
static Ref turned_sum(Graph *g, const Turn *t, Ref x, Ref d)
{
    const Node n = g->n[x];
    int i = t->type[n.a[0]] != TURNED;

    if ((n.op == OP_add || n.op == OP_sub) && has_rows(g, x))
        return op2(g, n.op, turned_sum(g, t, n.a[0], d),
                   turned_sum(g, t, n.a[1], d));
    if (n.op == OP_mul)
        return turned_sum(g, t, n.a[i], op2(g, OP_mul, d, n.a[1 - i]));
    if (op_is(n.op, ADDS_UP) && n.over & AXIS(AX_I)) {
        AxisSet all = g->n[d].axes | n.over;
        Ref w = dot(g, d, n.a[1 - i], all & ~g->n[n.a[i]].axes);
        return turning(g, t, n.a[i], w, true);
    }
    return turning(g, t, x, d, false);
}

static void set_next(Graph *g, Ref state, Ref next)
{
    g->st[g->n[state].index].next = next;
}

static Ref new_state(Graph *g, const char *what, int angle, const char *axes)
{
    const char *name = ctx_format(g->ctx, "%s_%s", what, g->st[angle].name);

    while (graph_find_state(g, name) >= 0)
        name = ctx_format(g->ctx, "%s_", name);
    State *s = &g->st[graph_state(g, name, axes)];
    s->reverse = true;
    return s->node;
}

Ref turn_adjoint(Graph *g, const Turn *t, const int *adjoint)
{
    const char *p = g->axis[t->pairs].name;
    Ref in = g->st[adjoint[t->angle]].node, x = 0;
    Ref kept = new_state(g, "kept", t->angle, p);
    Ref later = new_state(g, "later", t->angle, "");

    for (int i = 0; i < g->nst; i++)
        if (t->states & STATE(i)) {
            Ref s = turned_sum(g, t, g->st[i].next, g->st[adjoint[i]].node);
            x = x ? op2(g, OP_add, x, s) : s;
        }
    x = unary_axis(g, OP_pairsum, x, t->axis, t->pairs);
    set_next(g, kept, op3(g, OP_where, later, kept, op2(g, OP_add, in, x)));
    set_next(g, later, op2(g, OP_max, later, num(g, 1)));
    return op3(g, OP_where, later, op2(g, OP_sub, kept, x), in);
}
