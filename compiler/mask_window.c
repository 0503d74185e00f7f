/* mask_window.c -- a mask that ends at a distance, as two scans.
 *
 * In blocks of W tokens a token reads those of its own block up to itself: the
 * mask without an end, on the block as on a sequence. Of the block before it
 * reads those that are further behind that block's begin than the token is
 * behind its own. With b for the last token of the block before,
 *
 *     exp(c_i - c_j) = exp(c_i - c_b) exp(c_b - c_j) = exp(lead_i) exp(tail_j)
 *
 * where neither exponent takes back what the other has added, and each by
 * itself is that of a pair that is in the window: where no weight overflows, no
 * factor does. So the tokens of both blocks, side by side, go from the last to
 * the first, and each reads before it writes:
 *
 *     y_i  = row_i exp(lead_i) q_i . S
 *     S    = S + outer(exp(tail) col_j k_j, v_j)
 *     tail = tail + g_j
 */
#include "mask.h"
#include "domain.h"

#include <math.h>
#include <string.h>

#define RESET (-1e30)                   /* sums of -inf, kept finite */

/* Of the mask's values those of one side, as nodes of a step's graph. */
typedef struct Scan {
    Mask *m;
    const Graph *step;
    Graph *g;
    int *from;                          /* of across: as its Window says; NULL:
                                           of within */
    bool *query;
    MaskImage own;
} Scan;

/* ---- which masks ---- */

/* Whether a value knows of its token's own inputs alone. */
static bool of_own_token(Mask *m, Ref r)
{
    mask_reach(m, r);
    for (int i = 0; i < m->g->nin; i++) {
        const Leaf *l = &m->leaf[i];
        if (m->mark[m->g->in[i].node] && l->kind != LEAF_CONSTANT
            && (l->kind != LEAF_TOKEN || l->back))
            return false;
    }
    return true;
}

/* The sign that w (u(i) - u(j)) has wherever j is, 0: it is not known. Where
 * w is a constant's number: 2, one sign or the other, at all tokens. */
static int sign_of(Mask *m, const Graph *step, const Decay *d)
{
    const Node *u = &m->g->n[d->u], *w = &m->g->n[d->w];
    const Leaf *l = u->op == OP_input ? &m->leaf[u->index] : NULL;
    int sign = w->op != OP_num ? 2 : w->num < 0 ? -1 : 1;

    if (!l || l->back || !of_own_token(m, d->w))
        return 0;
    if (l->kind == LEAF_POSITION)
        return sign;
    int in = graph_find_input(step, l->name);
    if (l->kind != LEAF_CUMSUM
        || !domain_within(domain_named(step->in[in].domain), -INFINITY, 0))
        return 0;
    return sign == 2 ? 2 : -sign;
}

/* Whether what a token adds to the exponent has one sign at all of them. */
static bool keeps_sign(Mask *m, const Graph *step, const Product *p)
{
    int first = p->ndecays ? sign_of(m, step, &p->decay[0]) : 1;

    if (first == 2)
        return p->ndecays == 1;
    for (int n = 1; n < p->ndecays; n++)
        if (sign_of(m, step, &p->decay[n]) != first)
            return false;
    return first != 0;
}

static bool same_decays(const Product *a, const Product *b)
{
    return a->ndecays == b->ndecays
        && !memcmp(a->decay, b->decay, (size_t)a->ndecays * sizeof *a->decay);
}

static bool can_scan(Mask *m, const Graph *step)
{
    for (int n = 0; n < m->nproducts; n++) {
        const Product *p = &m->product[n];
        if (!of_own_token(m, p->row) || !of_own_token(m, p->col)
            || !of_own_token(m, p->extra)
            || !same_decays(p, &m->product[0]) || !keeps_sign(m, step, p))
            return false;
    }
    return m->nproducts;
}

bool mask_keeps_tokens(const Mask *m, const Graph *step)
{
    for (int i = 0; i < m->nrings; i++)
        if (step->n[m->ring[i].x].states)
            return false;
    return m->nrings && m->nrings <= MAX_RESULTS && m->nrings + 1 == step->nst
        && graph_find_state(step, "position") >= 0;
}

/* The one piece where the mask is not 0, from the diagonal or the token behind
 * it up to a distance; NULL: it is none such. */
static const MaskPath *find_piece(const Mask *m)
{
    const MaskPath *found = NULL;

    for (int n = 0; n < m->npieces; n++) {
        if (is_num(m->g, m->piece[n].value, 0))
            continue;
        if (found)
            return NULL;
        found = &m->piece[n];
    }
    bool ends = found && found->at.hi[VAR_DISTANCE] < REGION_INF / 2;
    return ends && found->at.lo[VAR_DISTANCE] <= 1 ? found : NULL;
}

/* ---- values ---- */

/* A name that no input of the step has. */
static const char *new_name(const Scan *s, const char *name)
{
    while (graph_find_input(s->step, name) >= 0
           || graph_find_input(s->g, name) >= 0)
        name = ctx_format(s->m->ctx, "%.40s_", name);
    return name;
}

/* A new input of across: of which input of the step. */
static Ref add_input(Scan *s, const char *name, const char *axes, int from,
                     bool query)
{
    int at = graph_input(s->g, name, axes);

    s->from[at] = from;
    s->query[at] = query;
    return s->g->in[at].node;
}

/* An input of the step in the scan. In across what tokens read and what tokens
 * write are two. */
static Ref input_of(Scan *s, const char *name, bool query)
{
    int from = graph_find_input(s->step, name);
    const Input *in = &s->step->in[from];

    if (!s->from)
        return s->g->in[from].node;
    query = query && in->timed;
    for (int i = 0; i < s->g->nin; i++)
        if (s->from[i] == from && s->query[i] == query)
            return s->g->in[i].node;
    return add_input(s, new_name(s, name), mask_declared(s->step, in), from,
                     query);
}

static Ref own_leaf(void *ud, const Leaf *l)
{
    return input_of(ud, l->name, l->side != SIDE_J);
}

static Ref value_of(Scan *s, Ref root)
{
    return mask_image(s->m, &s->own, s->g, root, own_leaf, s);
}

/* What token i (or j) adds to the exponent. */
static Ref gain(Scan *s, const Product *p, int side)
{
    Graph *g = s->m->g;
    Ref e = num(g, 0);

    for (int n = 0; n < p->ndecays; n++) {
        const Leaf *l = &s->m->leaf[g->n[p->decay[n].u].index];
        Ref x = l->kind == LEAF_POSITION ? num(g, 1)
              : mask_leaf(s->m, LEAF_TOKEN, side, l->name, 0);
        e = op2(g, OP_add, e, op2(g, OP_mul, x, p->decay[n].w));
    }
    return op2(s->g, OP_max, value_of(s, e), num(s->g, RESET));
}

static Ref new_state(Scan *s, const char *name, AxisSet axes)
{
    return s->g->st[graph_state(s->g, name, axes_text(s->g, axes))].node;
}

static void set_next(Scan *s, Ref state, Ref next)
{
    s->g->st[s->g->n[state].index].next = next;
}

/* ---- the scans ---- */

static Graph *within_block(Mask *m, const Graph *step, bool leads, bool gains)
{
    Scan s = { .m = m, .step = step, .g = mask_inputs(step) };

    s.g->no = m->g->no;
    mask_step(m, s.g);
    if (!leads)
        return s.g;
    Ref e = gain(&s, &m->product[0], SIDE_I);
    Ref lead = new_state(&s, "lead", s.g->n[e].axes);
    Ref next = op2(s.g, OP_add, lead, e);
    set_next(&s, lead, next);
    graph_output(s.g, "lead", next);
    if (gains)
        graph_output(s.g, "gain", e);
    return s.g;
}

/* A graph of the step's axes. */
static Graph *new_scan(Mask *m, const Graph *step)
{
    Graph *g = graph_new(m->ctx, step->name, 0);

    g->no = m->g->no;
    memcpy(g->axis, step->axis, sizeof g->axis);
    g->naxes = step->naxes;
    g->lines = step->lines;
    return g;
}

static Ref mul(Scan *s, Ref a, Ref b) { return op2(s->g, OP_mul, a, b); }

/* exp(lead_i), and its state for the tokens that write: exp(tail). */
static void exponents(Scan *s, Ref *lead, Ref *tail)
{
    Ref e = gain(s, &s->m->product[0], SIDE_J);
    AxisSet axes = s->g->n[e].axes;
    const char *of = axes_text(s->g, axes);
    Ref in = add_input(s, new_name(s, "lead"), ctx_format(s->m->ctx, "t %s",
                                                          of), FROM_LEAD,
                       true);
    Ref sum = new_state(s, "tail", axes);

    set_next(s, sum, op2(s->g, OP_add, sum, e));
    *lead = op1(s->g, OP_exp, in);
    *tail = op1(s->g, OP_exp, sum);
}

/* Keys and queries, values, and what columns and rows of weights are scaled by.
 */
typedef struct Sides { Ref x[2], v, scale[2]; } Sides;

/* A state for each product of the mask's: keys write, queries read; or, turned,
 * the other way round. What is read of all. */
static Ref read_sums(Scan *s, Sides e, bool turned)
{
    const Mask *m = s->m;
    Graph *g = s->g;
    AxisSet over = g->n[e.x[0]].axes;
    Ref y = num(g, 0), read = e.x[!turned];

    for (int n = 0; n < m->nproducts; n++) {
        const Product *p = &m->product[n];
        Ref state = new_state(s, ctx_format(m->ctx, "S_%d", n + 1),
                              over | g->n[e.v].axes);
        Ref col = mul(s, value_of(s, p->col), e.scale[0]);
        Ref row = mul(s, mul(s, value_of(s, p->row), e.scale[1]),
                      op1(g, OP_exp, value_of(s, p->extra)));
        Ref by = turned ? col : row;
        Ref write = mul(s, mul(s, turned ? row : col, e.x[turned]), e.v);
        set_next(s, state, op2(g, OP_add, state, write));
        y = op2(g, OP_add, y, g->n[by].axes & over
                ? dot(g, mul(s, by, read), state, over)
                : mul(s, by, dot(g, read, state, over)));
    }
    return y;
}

static Graph *across_blocks(Mask *m, const Graph *step, Window *w)
{
    Scan s = { .m = m, .step = step, .from = w->from, .query = w->query,
               .g = new_scan(m, step) };
    Graph *g = s.g;
    Ref lead = num(g, 1), tail = lead;

    Ref q = input_of(&s, "q", true), k = input_of(&s, "k", false);
    Ref v = input_of(&s, "v", false);
    if (w->leads)
        exponents(&s, &lead, &tail);
    graph_output(g, "y", read_sums(&s, (Sides){ { k, q }, v, { tail, lead } },
                                   false));
    return g;
}

/* ---- the scans, all of which go on ---- */

/* The sum of v over the tokens before; own: and the token's. */
static Graph *sum_of(Mask *m, const Graph *step, AxisSet axes, bool own)
{
    Graph *g = new_scan(m, step);
    const char *of = axes_text(g, axes);
    Ref v = g->in[graph_input(g, "v", ctx_format(m->ctx, "t %s", of))].node;
    State *sum = &g->st[graph_state(g, "sum", of)];

    sum->next = op2(g, OP_add, sum->node, v);
    graph_output(g, "y", own ? sum->next : op1(g, OP_factor, sum->node));
    return g;
}

/* exp of an input of that name. */
static Ref exponential(Scan *s, const char *name, AxisSet axes, int from)
{
    const char *of = ctx_format(s->m->ctx, "t %s", axes_text(s->g, axes));

    return op1(s->g, OP_exp, add_input(s, new_name(s, name), of, from,
                                       from == FROM_LEAD));
}

/* Keys read what queries have written before they do, so that the transpose
 * gives to queries what is of the keys behind. */
static Graph *across_turned(Mask *m, const Graph *step, WindowBlocks *b)
{
    Scan s = { .m = m, .step = step, .from = b->from, .query = b->query,
               .g = new_scan(m, step) };
    Graph *g = s.g;
    Ref q = input_of(&s, "q", true), k = input_of(&s, "k", false);
    const Input *values = &step->in[graph_find_input(step, "v")];
    Ref v = add_input(&s, "v", mask_declared(step, values),
                      (int)(values - step->in), false);
    Ref lead = num(g, 1), tail = lead;
    if (b->tail) {
        AxisSet axes = b->tail->n[b->tail->out[0].node].axes;
        lead = exponential(&s, "lead", axes, FROM_LEAD);
        tail = exponential(&s, "tail", axes, FROM_TAIL);
    }

    graph_output(g, "y", read_sums(&s, (Sides){ { k, q }, v, { tail, lead } },
                                   true));
    g->transposed = TRANSPOSED_ADDED;
    return g;
}

/* None where a token gains what is no token's own. */
static void find_blocks(Mask *m, const Graph *step, bool leads,
                        WindowBlocks *b)
{
    Graph *within = within_block(m, step, leads, leads);
    const Node *e = leads ? &within->n[within->out[2].node] : NULL;

    if (leads && !e->timed)
        return;
    if (leads) {
        b->upto = sum_of(m, step, e->axes, true);
        b->tail = sum_of(m, step, e->axes, false);
        b->tail->transposed = TRANSPOSED;
    }
    b->across = across_turned(m, step, b);
    b->within = within;
}

/* ---- what the step keeps ---- */

static void copy_rings(const Mask *m, const Graph *step, Window *w)
{
    Ref *map = ctx_alloc(m->ctx, step->len * sizeof *map);
    uint8_t *live = ctx_alloc(m->ctx, step->len);
    Graph *g = w->kept = mask_inputs(step);

    memcpy(w->ring, m->ring, sizeof w->ring);
    w->nrings = m->nrings;
    w->ring_axis = m->ring_axis;
    for (int i = 0; i < m->nrings; i++)
        graph_needs(step, live, m->ring[i].x);
    for (Ref r = 1; r < step->len; r++) {
        const Node *n = &step->n[r];
        Ref a[4] = { map[n->a[0]], map[n->a[1]], map[n->a[2]], map[n->a[3]] };
        g->line = n->line;
        if (live[r])
            map[r] = n->op == OP_input ? g->in[n->index].node
                                       : node_copy(g, n, a);
    }
    for (int i = 0; i < m->nrings; i++) {
        graph_output(g, step->st[m->ring[i].state].name, map[m->ring[i].x]);
        w->ring[i].x = (Ref)i;
    }
}

/* ---- a window ---- */

static Window *new_window(Mask *m, const Graph *step)
{
    const MaskPath *piece = find_piece(m);

    if (!piece || !mask_keeps_tokens(m, step))
        return NULL;
    Window *w = ctx_alloc(m->ctx, sizeof *w);
    copy_rings(m, step, w);
    mask_factor_endless(m, piece);
    if (!can_scan(m, step))
        return NULL;
    w->width = piece->at.hi[VAR_DISTANCE] + 1;
    w->position = graph_find_state(step, "position");
    w->leads = m->product[0].ndecays;
    w->within = within_block(m, step, w->leads, false);
    w->across = across_blocks(m, step, w);
    find_blocks(m, step, w->leads, &w->blocks);
    return w;
}

/* NULL, too, where there is no room for what it is made of. */
static Window *try_window(Mask *m, const Graph *step, Refusal *no)
{
    if (setjmp(no->end))
        return NULL;
    m->g->no = no;
    return new_window(m, step);
}

Window *mask_window(Mask *m, const Graph *g)
{
    Product *was = ctx_alloc(m->ctx, sizeof m->product);
    int n = m->nproducts;

    memcpy(was, m->product, sizeof m->product);
    m->work = 0;
    Window *w = try_window(m, g, ctx_alloc(m->ctx, sizeof(Refusal)));
    m->g->no = NULL;
    if (w)
        w->within->no = w->across->no = NULL;
    if (w && w->blocks.within)
        w->blocks.within->no = w->blocks.across->no = NULL;
    if (w && w->blocks.tail)
        w->blocks.tail->no = w->blocks.upto->no = NULL;
    memcpy(m->product, was, sizeof m->product);
    m->nproducts = n;
    return w;
}
