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
 *
 * The first tokens of a sequence may weigh otherwise, as attention sinks do:
 * the window leaves them out, and a third scan, which has whole sequences, sums
 * them up.
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
    const char *late;                   /* its input that says so of tokens
                                           behind a sequence's first; NULL: the
                                           window has these, too */
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

static bool is_far(int64_t bound) { return bound >= REGION_INF / 2; }

/* The one piece where the mask is not 0, from the diagonal or the token behind
 * it up to a distance, but for tokens `first` of which a sequence begins with,
 * which other pieces have; NULL: it is none such. */
static const MaskPath *find_piece(const Mask *m, int64_t *first)
{
    const MaskPath *found = NULL;

    for (int n = 0; n < m->npieces; n++) {
        const MaskPath *p = &m->piece[n];
        if (is_num(m->g, p->value, 0) || !is_far(p->at.hi[VAR_J]))
            continue;
        if (found)
            return NULL;
        found = p;
    }
    if (!found || is_far(found->at.hi[VAR_DISTANCE])
        || found->at.lo[VAR_DISTANCE] > 1)
        return NULL;
    *first = found->at.lo[VAR_J] > 0 ? found->at.lo[VAR_J] : 0;
    for (int n = 0; n < m->npieces; n++) {
        const MaskPath *p = &m->piece[n];
        if (p != found && !is_num(m->g, p->value, 0)
            && p->at.hi[VAR_J] >= *first)
            return NULL;
    }
    return found;
}

/* The same piece, as if no token were the first. */
static MaskPath from_the_first(const MaskPath *piece)
{
    MaskPath all = *piece;
    int64_t *lo = all.at.lo;

    if (lo[VAR_I] <= lo[VAR_J] + lo[VAR_DISTANCE])
        lo[VAR_I] = 0;
    lo[VAR_J] = 0;
    return all;
}

/* ---- values ---- */

/* A name that no input of the step has. */
static const char *new_name(const Scan *s, const char *name)
{
    while (graph_find_input(s->step, name) >= 0
           || graph_find_input(s->g, name) >= 0
           || (s->late && !strcmp(s->late, name)))
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

/* That of across which is no input of the step: a number of a token. */
static Ref own_input(Scan *s, const char *name, int from, bool query)
{
    int at = graph_find_input(s->g, name);

    return at < 0 ? add_input(s, name, "t", from, query) : s->g->in[at].node;
}

/* An input of the step in the scan. In across what tokens read and what tokens
 * write are two. */
static Ref input_of(Scan *s, const char *name, bool query)
{
    int from = graph_find_input(s->step, name);
    const Input *in = &s->step->in[from];

    if (!s->from)
        return s->g->in[graph_find_input(s->g, name)].node;
    if (from < 0)
        return own_input(s, name, FROM_LATE, false);
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

static Graph *within_block(Mask *m, const Graph *step, const char *late,
                           bool leads, bool gains)
{
    Scan s = { .m = m, .step = step, .late = late, .g = mask_inputs(step) };

    s.g->no = m->g->no;
    if (late)
        graph_input(s.g, late, "t");
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

/* Keys and queries, values, and what columns and rows of weights are scaled by;
 * whether the token writes (0: it does). */
typedef struct Sides { Ref x[2], v, scale[2], writes; } Sides;

/* What does not count is not looked at, either: it may be no number. */
static Ref where_writes(Scan *s, const Sides *e, Ref x)
{
    return !e->writes ? x : op3(s->g, OP_where, e->writes, x, num(s->g, 0));
}

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
        Ref key = where_writes(s, &e, mul(s, turned ? row : col, e.x[turned]));
        Ref write = mul(s, key, where_writes(s, &e, e.v));
        set_next(s, state, op2(g, OP_add, state, write));
        y = op2(g, OP_add, y, g->n[by].axes & over
                ? dot(g, mul(s, by, read), state, over)
                : mul(s, by, dot(g, read, state, over)));
    }
    return y;
}

static Graph *across_blocks(Mask *m, const Graph *step, Window *w)
{
    Scan s = { .m = m, .step = step, .late = w->late, .from = w->from,
               .query = w->query, .g = new_scan(m, step) };
    Graph *g = s.g;
    Ref lead = num(g, 1), tail = lead;

    Ref q = input_of(&s, "q", true), k = input_of(&s, "k", false);
    Ref v = input_of(&s, "v", false);
    if (w->leads)
        exponents(&s, &lead, &tail);
    graph_output(g, "y", read_sums(&s, (Sides){ { k, q }, v, { tail, lead },
                                                0 }, false));
    return g;
}

/* ---- the scans, all of which go on ---- */

/* The sum of v over the tokens before. */
static Graph *sum_of(Mask *m, const Graph *step, AxisSet axes)
{
    Graph *g = new_scan(m, step);
    const char *of = axes_text(g, axes);
    Ref v = g->in[graph_input(g, "v", ctx_format(m->ctx, "t %s", of))].node;
    State *sum = &g->st[graph_state(g, "sum", of)];

    sum->next = op2(g, OP_add, sum->node, v);
    graph_output(g, "y", op1(g, OP_factor, sum->node));
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
 * gives to queries what is of the keys behind. packed: of queries an input says
 * whether they have a block before their own. */
static Graph *across_turned(Mask *m, const Graph *step, const char *late,
                            bool packed, WindowBlocks *b)
{
    Scan s = { .m = m, .step = step, .late = late, .from = b->from,
               .query = b->query, .g = new_scan(m, step) };
    Graph *g = s.g;
    Ref q = input_of(&s, "q", true), k = input_of(&s, "k", false);
    const Input *values = &step->in[graph_find_input(step, "v")];
    Ref v = add_input(&s, "v", mask_declared(step, values),
                      (int)(values - step->in), false);
    Ref lead = num(g, 1), tail = lead, reads = 0;
    if (b->tail) {
        AxisSet axes = b->tail->n[b->tail->out[0].node].axes;
        lead = exponential(&s, "lead", axes, FROM_LEAD);
        tail = exponential(&s, "tail", axes, FROM_TAIL);
    }
    for (int n = 0; n < m->nproducts; n++) {    /* their inputs come before */
        value_of(&s, m->product[n].col);
        value_of(&s, m->product[n].row);
        value_of(&s, m->product[n].extra);
    }
    if (packed)
        reads = own_input(&s, new_name(&s, "reads"), FROM_READS, true);

    graph_output(g, "y", read_sums(&s, (Sides){ { k, q }, v, { tail, lead },
                                                reads }, true));
    g->transposed = TRANSPOSED_ADDED;
    return g;
}

/* The tokens before, and a result of whether there are so many. */
static void count_tokens(Graph *g, const char *state, int64_t n,
                         const char *result)
{
    State *at = &g->st[graph_state(g, state, "")];
    Ref before = at->node;

    at->next = op2(g, OP_add, before, num(g, 1));
    graph_output(g, result, op2(g, OP_le, num(g, (double)n), before));
}

/* Whether a token has a block before its own in the call, and is none of the
 * first of its sequence, which may have begun before. */
static Graph *places(Mask *m, const Graph *step, int64_t width, int64_t first)
{
    Graph *g = new_scan(m, step);
    const Input *values = &step->in[graph_find_input(step, "v")];

    graph_input(g, "v", mask_declared(step, values));
    count_tokens(g, "tokens", width, "y");
    if (first)
        count_tokens(g, "position", first, "late");
    return g;
}

/* None where a token gains what is no token's own. */
static void find_blocks(Mask *m, const Graph *step, const Window *w,
                        WindowBlocks *b)
{
    Graph *within = within_block(m, step, w->late, w->leads, w->leads);
    const Node *e = w->leads ? &within->n[within->out[2].node] : NULL;

    if (w->leads && !e->timed)
        return;
    if (w->leads) {
        b->upto = sum_of(m, step, e->axes);
        b->tail = sum_of(m, step, e->axes);
        b->tail->transposed = TRANSPOSED;
    }
    b->places = places(m, step, w->width, w->first);
    b->packed = across_turned(m, step, w->late, true, b);
    b->across = across_turned(m, step, w->late, false, b);
    b->within = within;
}

/* ---- a sequence's first tokens ---- */

/* What is left of the mask without the window, as a step; NULL: nothing, or it
 * keeps other states than the whole has. */
static Graph *scan_of_first(const Mask *m, const Graph *step)
{
    Mask *own = mask_copy(m->ctx, m);
    Graph *g = mask_inputs(step);

    g->no = own->g->no = m->g->no;
    own->nproducts = 0;
    for (int n = 0; n < m->nproducts; n++)
        if (!m->product[n].value)
            own->product[own->nproducts++] = m->product[n];
    if (!own->nproducts)
        return NULL;
    mask_step(own, g);
    for (int i = 0; i < g->nst; i++)
        if (graph_find_state(step, g->st[i].name) < 0)
            return NULL;
    return g;
}

/* Are the step's states its position, rings that a token's place and its own
 * inputs make, and those of the scan over the first? */
static bool keeps_places(const Mask *m, const Graph *step, const Graph *sinks)
{
    int position = graph_find_state(step, "position");
    int others = sinks ? sinks->nst - (graph_find_state(sinks, "position")
                                       >= 0) : 0;

    if (position < 0 || !m->nrings || m->nrings > MAX_RESULTS
        || m->nrings + 1 + others != step->nst)
        return false;
    for (int i = 0; i < m->nrings; i++)
        if (step->n[m->ring[i].x].states & ~STATE(position))
            return false;
    return true;
}

/* Tokens that are not the first alone count as keys. */
static void leave_first(Mask *m, const char *late)
{
    Ref is = op3(m->g, OP_where, mask_leaf(m, LEAF_TOKEN, SIDE_J, late, 0),
                 num(m->g, 1), num(m->g, 0));

    for (int n = 0; n < m->nproducts; n++)
        m->product[n].col = op2(m->g, OP_mul, m->product[n].col, is);
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
    if (w->place)
        map[step->st[w->position].node] =
            g->in[graph_input(g, w->place, "t")].node;
    for (int i = 0; i < m->nrings; i++)
        graph_needs(step, live, m->ring[i].x);
    for (Ref r = 1; r < step->len; r++) {
        const Node *n = &step->n[r];
        Ref a[4] = { map[n->a[0]], map[n->a[1]], map[n->a[2]], map[n->a[3]] };
        g->line = n->line;
        if (live[r] && !map[r])
            map[r] = n->op == OP_input ? g->in[n->index].node
                                       : node_copy(g, n, a);
    }
    for (int i = 0; i < m->nrings; i++) {
        graph_output(g, step->st[m->ring[i].state].name, map[m->ring[i].x]);
        w->ring[i].x = (Ref)i;
    }
}

/* ---- a window ---- */

/* A name that none of the step's inputs has. */
static const char *name_beside(const Graph *step, const char *name)
{
    while (graph_find_input(step, name) >= 0)
        name = ctx_format(step->ctx, "%.40s_", name);
    return name;
}

static Window *new_window(Mask *m, const Graph *step)
{
    int64_t first;
    const MaskPath *piece = find_piece(m, &first);

    if (!piece)
        return NULL;
    Window *w = ctx_alloc(m->ctx, sizeof *w);
    w->first = first;
    w->position = graph_find_state(step, "position");
    if (first && !(w->sinks = scan_of_first(m, step)))
        return NULL;
    if (!(first ? keeps_places(m, step, w->sinks) : mask_keeps_tokens(m, step)))
        return NULL;
    if (first) {
        w->late = name_beside(step, "late");
        w->place = name_beside(step, "place");
    }
    copy_rings(m, step, w);
    MaskPath all = from_the_first(piece);
    mask_factor_endless(m, &all);
    if (!can_scan(m, step))
        return NULL;
    if (first)
        leave_first(m, w->late);
    w->width = piece->at.hi[VAR_DISTANCE] + 1;
    w->leads = m->product[0].ndecays;
    w->within = within_block(m, step, w->late, w->leads, false);
    w->across = across_blocks(m, step, w);
    find_blocks(m, step, w, &w->blocks);
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

static void settle(Graph *g)
{
    if (g)
        g->no = NULL;
}

Window *mask_window(const Mask *m, const Graph *g)
{
    Mask *own = mask_copy(m->ctx, m);

    own->work = 0;
    Window *w = try_window(own, g, ctx_alloc(m->ctx, sizeof(Refusal)));
    if (!w)
        return NULL;
    Graph *all[] = { w->within, w->across, w->sinks, w->blocks.within,
                     w->blocks.across, w->blocks.packed, w->blocks.places,
                     w->blocks.tail, w->blocks.upto };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        settle(all[i]);
    return w;
}
