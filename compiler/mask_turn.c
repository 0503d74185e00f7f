/* mask_turn.c -- a mask of both directions: what it says above the diagonal,
 * told from the last token on.
 *
 * With t' = n - 1 - t for n tokens, pairs above the diagonal lie below it, and
 * a second scan, over the tokens turned round, sums them up:
 *
 *     position t = (n - 1) - t'
 *     x_cumsum[t] = total - x_cumsum'[t' - 1]
 *
 * n and totals are not known until all has been seen, so they have to cancel:
 * positions and sums enter as differences, or are refused.
 */
#include "mask.h"

#include <stdio.h>
#include <string.h>

typedef struct Turn {
    Mask *from, *to;
    Ref *map;
} Turn;

/* What cancels: the name begins as no input's does. */
static bool is_end(const Leaf *l)
{
    return *l->name == '#';
}

/* Of a side, so that it is a term of its own in sums. */
static Ref end_leaf(Mask *m, const char *name)
{
    char text[48];

    snprintf(text, sizeof text, "#%.28s", name);
    return mask_leaf(m, LEAF_TOKEN, SIDE_I, text, 0);
}

static Ref turn_leaf(const Turn *t, const Leaf *l, int line)
{
    Mask *m = t->to;
    Graph *g = m->g;
    Ref r;

    if (l->back)
        fail_help(m->ctx, line, "above the diagonal p.x[i] and p.x[j] are "
                  "known; give what the token before has as an input of its "
                  "own", "the mask reads %s[%s - %d] above the diagonal, where "
                  "tokens come from the last on", l->name,
                  l->side == SIDE_I ? "i" : "j", l->back);
    r = mask_leaf(m, l->kind, l->side, l->name, l->kind == LEAF_CUMSUM);
    return l->kind != LEAF_POSITION && l->kind != LEAF_CUMSUM ? r
         : op2(g, OP_sub, end_leaf(m, l->name), r);
}

/* Ends that cancel, with coefficients of any numbers, too. */
static void drop_ends(Mask *m, Linear *l)
{
    for (int n = 0; n < l->n;) {
        const Node *atom = &m->g->n[l->part[n].atom];
        if (atom->op == OP_input && is_end(&m->leaf[atom->index])
            && mask_opposite(m, l->part[n].coef, num(m->g, 0)))
            l->part[n] = l->part[--l->n];
        else
            n++;
    }
}

static bool sums_up(int op)
{
    return op == OP_add || op == OP_sub || op == OP_neg || op == OP_mul
        || op == OP_div;
}

static Ref turn_value(Turn *t, Ref root)
{
    Mask *m = t->to;
    Linear l;

    mask_reach(t->from, root);
    for (Ref r = 1; r <= root; r++) {
        const Node n = t->from->g->n[r];
        if (!t->from->mark[r] || t->map[r])
            continue;
        Ref a[4] = { t->map[n.a[0]], t->map[n.a[1]], t->map[n.a[2]],
                     t->map[n.a[3]] };
        m->g->line = n.line;
        t->map[r] = n.op == OP_input
                  ? turn_leaf(t, &t->from->leaf[n.index], n.line)
                  : node_copy(m->g, &n, a);
        if (sums_up(n.op) && mask_traits(m, t->map[r]) & SIDES) {
            linear(m, t->map[r], &l);
            drop_ends(m, &l);
            t->map[r] = linear_ref(m, &l);
        }
    }
    return t->map[root];
}

/* The region the other way round; it may say of i and j what follows from
 * i < j alone. */
static Region turn_region(const Turn *t, const MaskPath *p)
{
    Region to = region_all();
    const int64_t *lo = p->at.lo, *hi = p->at.hi;

    for (int v = VAR_I; v <= VAR_J; v++)
        if (lo[v] > (v == VAR_J) || hi[v] < REGION_INF / 2)
            fail_help(t->from->ctx, t->from->g->n[p->value].line, "compare i "
                      "- j there, or leave the first tokens to what is below "
                      "the diagonal", "above the diagonal the mask compares %s "
                      "with %lld: there tokens come from the last on, and how "
                      "many there are is known when the variant runs",
                      v == VAR_I ? "i" : "j", (long long)(hi[v] < REGION_INF / 2
                      ? hi[v] + 1 : lo[v]));
    to.lo[VAR_DISTANCE] = -hi[VAR_DISTANCE];
    if (lo[VAR_DISTANCE] > -REGION_INF / 2)
        to.hi[VAR_DISTANCE] = -lo[VAR_DISTANCE];
    return to;
}

/* Nothing of the other end may be left. */
static void check_ends(const Turn *t, const MaskPath *was, Ref value)
{
    Mask *m = t->to;

    mask_reach(m, value);
    for (int i = 0; i < m->g->nin; i++) {
        const Leaf *l = &m->leaf[i];
        if (!m->mark[m->g->in[i].node] || !is_end(l))
            continue;
        const char *what = l->name[1] ? ctx_format(m->ctx, "%s_cumsum",
                                                   l->name + 1) : NULL;
        fail_help(m->ctx, m->g->n[value].line, ctx_format(m->ctx, "above the "
                  "diagonal let %s enter as a difference, as in exp(%s)",
                  what ? what : "positions", what ? ctx_format(m->ctx, "p.%s[j]"
                  " - p.%s[i]", what, what) : "-0.1 * (j - i)"),
                  "mask does not factor: %s takes %s from the first token on",
                  expr_text(t->from->g, was->value),
                  what ? what : "a position");
    }
}

static void add_path(Mask *m, Region at, Ref value)
{
    if (m->npaths == MAX_TRACED)
        fail_help(m->ctx, m->g->n[value].line, "compare i and j in fewer "
                  "places", "the mask falls into more than %d pieces above "
                  "the diagonal", MAX_TRACED - 1);
    m->path[m->npaths++] = (MaskPath){ at, value, 0 };
}

Mask *mask_turn(Mask *m)
{
    Turn t = { m, mask_new(m->ctx), NULL };
    Region rest = region_all();
    bool any = false;

    mask_upper_pieces(m);
    t.map = ctx_alloc(m->ctx, m->g->cap * sizeof *t.map);
    for (int n = 0; n < m->npieces; n++) {
        const MaskPath *p = &m->piece[n];
        if (is_num(m->g, p->value, 0))
            continue;
        Region at = turn_region(&t, p);
        Ref value = turn_value(&t, p->value);
        check_ends(&t, p, value);
        add_path(t.to, at, value);
        any = true;
    }
    rest.hi[VAR_DISTANCE] = 0;
    add_path(t.to, rest, num(t.to->g, 0));
    return any ? t.to : NULL;
}

/* ---- steps ---- */

/* An argument as it is declared: "t k : unit". */
static char *declared(const Graph *g, const Input *in)
{
    Buf b = { .ctx = g->ctx };

    buf_printf(&b, "%s", in->timed ? "t" : "");
    for (int i = 0; i < in->rank; i++)
        buf_printf(&b, " %s", g->axis[in->order[i]].name);
    buf_printf(&b, "%s%s", *in->domain ? " : " : "", in->domain);
    return b.s;
}

/* A graph of those of g's inputs that `live` says; NULL: of all. */
static Graph *with_inputs(const Graph *g, const Graph *all,
                          const uint8_t *live)
{
    Graph *s = graph_new(g->ctx, g->name, 0);

    memcpy(s->axis, g->axis, sizeof s->axis);
    s->naxes = g->naxes;
    s->lines = g->lines;
    for (int i = 0; i < g->nin; i++)
        if (!live || live[all->in[i].node])
            graph_input(s, g->in[i].name, declared(g, &g->in[i]));
    return s;
}

/* The step of m, with the inputs that it reads. */
static Graph *step_of(Mask *m, const Graph *g)
{
    Graph *all = with_inputs(g, NULL, NULL), *s;

    m->work = 0;
    mask_step(m, all);
    uint8_t *live = ctx_alloc(m->ctx, all->len);
    graph_live(all, live);
    s = with_inputs(g, all, live);
    mask_step(m, s);
    return s;
}

void mask_ways(Mask *m, Mask *turned, Graph *g)
{
    if (m->nproducts)
        m->way[0] = step_of(m, g);
    m->way[1] = step_of(turned, g);
    mask_pairs(m, g);
    g->note = NULL;
}
