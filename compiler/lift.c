/* lift.c -- a value of the step for all tokens of a chunk: with a row a token,
 * states as the rows that have been written to them (derive.c).
 */
#include "lift.h"

_Noreturn void serial(Lift *l, const char *why)
{
    l->note = why;
    longjmp(l->no->end, 1);
}

/* ---- small builders in the chunk graph ---- */

Ref per_token(Graph *g, Ref a)
{
    if (g->n[a].axes & AXIS(AX_I))
        return a;
    return op2(g, OP_add, a, cumsum(g, num(g, 0), 0));
}

Ref same_token(Graph *g)
{
    Ref before = dmask(g, 0, 0, 1);
    return op2(g, OP_sub, dmask(g, 0, 0, 0), before);
}

Ref recurrence(Graph *g, Ref a, Ref b, Ref first)
{
    return scan(g, is_num(g, a, 1) ? 0 : a, or_zero(g, b),
                or_zero(g, first), 0);
}

Ref bounded_gate(Graph *g, Ref x)
{
    return op2(g, OP_max, x, num(g, LOG_ZERO));
}

int rank_axis(Lift *l, int n)
{
    for (int i = 0; i < NRANKS; i++) {
        Axis *ax = &l->g->axis[AX_R + i];
        if (ax->size && ax->size != n)
            continue;
        ax->size = l->g->axis[AX_RJ + i].size = n;
        return AX_R + i;
    }
    serial(l, line_text(l->s, l->g->line, ctx_format(l->g->ctx, "more than %d "
                         "ranks of different sizes, of what is written and "
                         "read in a token", NRANKS)));
}

Ref lift_ranked(Lift *l, Ref x, AxisSet rank)
{
    Ref r = per_token(l->g, lift(l, x));

    if (!rank)
        return r;
    int ax = lowest(rank);
    return relabel(l->g, r, ax, rank_axis(l, l->s->axis[ax].size));
}

static Ref side_by_side(Graph *g, const Ref *part, int n, int ax);

/* The same operation on each: on all of their operands at once, of two in
 * either order. */
static Ref all_at_once(Graph *g, const Ref *part, int n, int ax)
{
    const Node first = g->n[part[0]];
    Ref a[4] = { 0 }, *x = ctx_alloc(g->ctx, (size_t)n * sizeof *x);

    if (!op_is(first.op, ELEMENTWISE | FOLDS | PAIRS)
        || op_has(first.op, INDEX))
        return 0;
    for (int j = 1; j < n; j++) {
        const Node *m = &g->n[part[j]];
        if (m->op != first.op || m->flags != first.flags
            || m->over != first.over || m->index != first.index)
            return 0;
    }
    int turns = op_is(first.op, COMM) ? 2 : 1;
    for (int i = 0; i < op_info[first.op].arity; i++) {
        for (int turn = 0; turn < turns && !a[i]; turn++) {
            for (int j = 0; j < n; j++)
                x[j] = g->n[part[j]].a[j && turn ? 1 - i : i];
            a[i] = side_by_side(g, x, n, ax);
        }
        if (!a[i])
            return 0;
    }
    return node_copy(g, &first, a);
}

/* One value of which each part is what it is at that rank of axis ax, or all of
 * them the same; 0: there is none. */
static Ref side_by_side(Graph *g, const Ref *part, int n, int ax)
{
    const Node first = g->n[part[0]];
    bool same = true, entries = op_is(first.op, MOVES | FOLDS)
                             && op_has(first.op, INDEX);

    for (int j = 0; j < n; j++) {
        const Node *m = &g->n[part[j]];
        same &= part[j] == part[0];
        entries &= m->op == first.op && m->index == j
                && m->a[0] == first.a[0] && m->over == first.over;
    }
    if (same)
        return part[0];
    if (entries && axis_extent(g, first.a[0], lowest(first.over)) == n)
        return relabel(g, first.a[0], lowest(first.over), ax);
    return all_at_once(g, part, n, ax);
}

Ref join_rows(Lift *l, const Ref *part, int n, int rows)
{
    int ax = 0;
    Ref r = part[0];

    if (n == 1)
        return r;
    ax = rank_axis(l, rows);
    Ref all = n == rows ? side_by_side(l->g, part, n, ax) : 0;
    if (all && l->g->n[all].axes & AXIS(ax))
        return all;
    for (int i = 0; i < n; i++) {
        Ref x = part[i];
        for (int k = AX_R; k < AX_R + NRANKS; k++)
            if (k != ax)
                x = relabel(l->g, x, k, ax);
        r = i ? cat(l->g, r, x, ax) : x;
    }
    return r;
}

/* ---- reads ---- */

Ref scores(Lift *l, Ref x, Ref b, Ref gate, int s, bool strict)
{
    AxisSet kappa = l->form[s].kappa;
    Ref of = col(l->g, l->mat[s].G), key = col(l->g, b);

    return gdot(l->g, x, key, gate, of, kappa, strict);
}

/* Whether gates differ along axes that are left when `over` are contracted. */
static bool stays(const Graph *g, Ref gate, AxisSet over)
{
    return gate && g->n[gate].axes & DIM_AXES & ~over;
}

Ref carried(Lift *l, Ref x, Ref gate, int s, AxisSet over)
{
    if (stays(l->g, gate, over))
        return op2(l->g, OP_mul, op1(l->g, OP_exp, gate),
                   dot(l->g, x, l->mat[s].found, over));
    return dot(l->g, mul_opt(l->g, exp_opt(l->g, gate), x),
               l->mat[s].found, over);
}

/* What is left at token i of what j has written, times how much that was. */
static Ref mask(Lift *l, int set, Ref gate, int s, bool strict)
{
    Graph *g = l->g;
    Ref own = set ? 0 : l->mat[s].own;
    Ref m = dmask(g, gate, col(g, l->mat[s].G), strict || own);

    if (own)
        m = op2(g, OP_mul, m, col(g, l->mat[s].weight));
    return own && !strict
         ? op2(g, OP_add, m, op2(g, OP_mul, same_token(g), col(g, own))) : m;
}

/* A token's rows against x over those axes, each times its other side. */
static Ref read_own(Lift *l, Ref x, Rows r, int s, AxisSet over)
{
    Graph *g = l->g;
    bool keys = over == l->form[s].kappa;
    Ref c = dot(g, x, keys ? r.b : r.w, over), to = keys ? r.w : r.b;
    AxisSet ranks = (g->n[c].axes | g->n[to].axes) & ROW_AXES & ~AXIS(AX_I);

    return ranks ? dot(g, c, to, ranks) : op2(g, OP_mul, c, to);
}

/* y, read of weighted rows of tokens before: with the token's own, or less what
 * the one before has not written. */
static Ref with_own(Lift *l, Ref y, Ref x, Ref gate, int s, bool strict,
                    AxisSet over)
{
    Graph *g = l->g;
    Rows own = l->mat[s].rows[0];
    Ref decay = gate == l->mat[s].G ? l->mat[s].decay : 0;

    if (!strict && l->mat[s].own && gate && g->n[gate].axes & DIM_AXES) {
        own.w = op2(g, OP_mul, l->mat[s].own, own.w);
        y = op2(g, OP_add, y, read_own(l, x, own, s, over));
    }
    for (int i = 0; strict && i < l->mat[s].nlate; i++) {
        Rows late = l->mat[s].late[i];
        late.b = mul_opt(g, decay, late.b);
        y = op2(g, OP_sub, y, read_own(l, x, late, s, over));
    }
    return y;
}

Ref read_rows(Lift *l, Ref x, int set, Ref gate, int s, bool strict)
{
    Graph *g = l->g;
    AxisSet kappa = l->form[s].kappa;
    Rows r = l->mat[s].rows[set];

    if (stays(g, gate, kappa)) {
        Ref w = col(g, r.w), p = dot(g, x, col(g, r.b), kappa);
        Ref y = gdot(g, p, w, gate, col(g, l->mat[s].G),
                     g->n[w].axes & COL_AXES, true);
        return strict ? y
             : op2(g, OP_add, y, read_own(l, x, r, s, kappa));
    }
    if (set || !l->mat[s].own)
        return weighted(l, scores(l, x, r.b, gate, s, strict), r.w);
    Ref p = gate && g->n[gate].axes & DIM_AXES
          ? op2(g, OP_mul, scores(l, x, r.b, gate, s, true),
                col(g, l->mat[s].weight))
          : op2(g, OP_mul, dot(g, x, col(g, r.b), kappa),
                mask(l, 0, gate, s, strict));
    return with_own(l, weighted(l, p, r.w), x, gate, s, strict, kappa);
}

/* p against the state over kappa: rows [i r] . [kappa nu]. */
static Ref read_kappa(Lift *l, Ref x, Ref gate, int s, bool strict)
{
    Ref o = carried(l, x, gate, s, l->form[s].kappa);

    for (int i = 0; i < l->mat[s].nrows; i++)
        o = op2(l->g, OP_add, o, read_rows(l, x, i, gate, s, strict));
    return o;
}

/* p against the state over nu, along which it decays. Here as there a token's
 * own rows, which do not decay, are read beside the others: gates that have no
 * part in them have no gradient of them that rounding leaves. */
static Ref read_decayed(Lift *l, Ref x, Ref gate, int s, bool strict)
{
    Graph *g = l->g;
    AxisSet nu = l->form[s].nu;
    Ref o = carried(l, x, gate, s, nu);

    for (int i = 0; i < l->mat[s].nrows; i++) {
        Rows r = l->mat[s].rows[i];
        Ref b = col(g, r.b);
        Ref p = gdot(g, x, col(g, r.w), gate, col(g, l->mat[s].G), nu, true);
        o = op2(g, OP_add, o, dot(g, p, b, g->n[b].axes & COL_AXES));
        if (!strict)
            o = op2(g, OP_add, o, read_own(l, x, r, s, nu));
    }
    return o;
}

/* p against the state over nu: what is left decays. */
static Ref read_nu(Lift *l, Ref x, Ref gate, int s, bool strict)
{
    Graph *g = l->g;
    AxisSet nu = l->form[s].nu;
    if (stays(g, gate, l->form[s].kappa))
        return read_decayed(l, x, gate, s, strict);
    Ref all = dot(g, x, l->mat[s].found, nu);
    Ref o = mul_opt(g, exp_opt(g, gate), all);
    bool per_key = gate && g->n[gate].axes & DIM_AXES;

    for (int i = 0; i < l->mat[s].nrows; i++) {
        Rows r = l->mat[s].rows[i];
        Ref p = dot(g, x, col(g, r.w), nu), b = col(g, r.b), y;
        AxisSet cols = g->n[b].axes & COL_AXES;
        bool own = !i && l->mat[s].own;
        if (per_key && own)
            p = op2(g, OP_mul, p, col(g, l->mat[s].weight));
        if (per_key)
            y = node_new(g, (Node){ .op = OP_gdot, .over = cols,
                                    .a = { p, b, gate, col(g, l->mat[s].G) },
                                    .flags = strict || own ? STRICT : 0 });
        else
            y = dot(g, op2(g, OP_mul, p, mask(l, i, gate, s, strict)), b,
                    cols);
        o = op2(g, OP_add, o, y);
    }
    return with_own(l, o, x, gate, s, strict, nu);
}

static Ref lift_read(Lift *l, const Term *t)
{
    int s = t->state;
    Universal *u = &l->form[s];
    Ref p = t->p;
    bool incl = t->fresh || (!l->block[s] && strip_decay(l->s, &p, u->decay));
    Ref gate = incl ? l->mat[s].G : l->mat[s].E;
    Ref x = per_token(l->g, lift(l, p)), y;
    AxisSet extra = l->g->n[x].axes & DIM_AXES & ~t->over;
    int from = -1, to = -1;

    if (extra && !(extra & (extra - 1))) {      /* several queries a token */
        from = lowest(extra);
        to = rank_axis(l, l->g->axis[from].size);
        x = relabel(l->g, x, from, to);
    }
    if (l->block[s])
        y = read_coupled(l, x, t);
    else
        y = t->over == u->kappa ? read_kappa(l, x, gate, s, !t->fresh)
                                : read_nu(l, x, gate, s, !t->fresh);
    return from < 0 ? y : relabel(l->g, y, to, from);
}

/* ---- lifting ---- */

/* A query for each entry of the axis that is left is no product of matrices. */
static bool can_read(const Lift *l, const Term *t)
{
    const Block *k = l->block[t->state];
    AxisSet kappa = k ? k->form.kappa : l->form[t->state].kappa;
    AxisSet nu = k ? k->form.nu : l->form[t->state].nu;
    AxisSet left = (kappa | nu) & ~t->over;

    return t->over && !t->rank && (t->over == kappa || t->over == nu)
        && !(l->s->n[t->p].axes & left);
}

/* A contraction of a value that holds whole matrix states: reads of them; 0
 * if it is not affine in s (its operands may still be made of reads). */
static Ref lift_contraction(Lift *l, Ref r, int s)
{
    Affine *a = ctx_alloc(l->g->ctx, sizeof *a);
    StateSet of = l->block[s] ? l->block[s]->form.of : STATE(s);
    Ref sum_of = 0;

    if (!affine(l->s, r, of, true, a)) {
        a = ctx_alloc(l->g->ctx, sizeof *a);
        if (!affine_read(l->s, r, of, l->s->st[s].axes, a) || a->rest == r)
            return 0;
    }
    for (int i = 0; i < a->n; i++)
        if (!can_read(l, &a->term[i]))
            return 0;
    for (int i = 0; i < a->n; i++) {
        Term t = a->term[i];
        Ref y = mul_opt(l->g, t.coef ? lift(l, t.coef) : 0,
                        lift_read(l, &t));
        sum_of = sum_of ? op2(l->g, OP_add, sum_of, y) : y;
    }
    if (a->rest)
        sum_of = op2(l->g, OP_add, sum_of, lift(l, a->rest));
    return sum_of;
}

/* The matrix state that r (a contraction) has in whole as an operand, or -1;
 * of one with more axes, contracted one by one, what is left. */
static int contracted_state(const Lift *l, const Node *n)
{
    for (int s = 0; s < l->s->nst; s++) {
        AxisSet all = l->s->st[s].axes;
        if (l->form[s].form != FORM_UNIVERSAL)
            continue;
        for (int i = 0; i < 2; i++) {
            const Node *a = &l->s->n[n->a[i]];
            bool left = l->s->st[s].rank > 2 && n->over & all
                     && op_is(a->op, ADDS_UP);
            if (a->states & STATE(s) && ((a->axes & all) == all || left))
                return s;
        }
    }
    return -1;
}

static Ref lift_new(Lift *l, Ref r)
{
    const Node n = l->s->n[r];
    Graph *g = l->g;
    int s;

    if (n.op == OP_input)
        return g->in[n.index].node;
    for (s = 0; n.states && s < l->s->nst; s++) {
        const State *st = &l->s->st[s];
        bool found = r == st->node, turned = false;
        turned = st->angle && r == l->s->n[st->next].a[0];
        if (!found && r != st->next && !turned)
            continue;
        if (l->form[s].form != FORM_UNIVERSAL && !found && !l->seq[s].left)
            continue;                   /* r is about to define it */
        if (l->form[s].form != FORM_UNIVERSAL)
            return found ? l->seq[s].found : l->seq[s].left;
        serial(l, line_text(l->s, n.line, ctx_format(g->ctx, "every token "
                             "would need all of %s", l->s->st[s].name)));
    }
    if (op_is(n.op, ADDS_UP)
        && (s = contracted_state(l, &n)) >= 0) {
        Ref y = lift_contraction(l, r, s);
        if (y)
            return y;
    }
    Ref a[4] = { 0 };
    for (int i = 0; i < 4; i++)
        if (n.a[i])
            a[i] = lift(l, n.a[i]);
    g->line = n.line;
    return node_copy(g, &n, a);
}

/* The step graph may grow while it is lifted (coefficients are built in it).
 */
Ref lift(Lift *l, Ref r)
{
    if (r >= l->map_len) {
        uint32_t len = l->s->len * 2;
        l->map = ctx_grow(l->g->ctx, l->map, l->map_len * sizeof(Ref),
                          len * sizeof(Ref));
        l->map_len = len;
    }
    if (!l->map[r]) {
        Ref y = lift_new(l, r);
        l->map[r] = y;
    }
    return l->map[r];
}
