/* split.c -- scans that do only what they must. A kernel that walks a
 * sequence has a block a head, one chunk after another. In a joint plan what
 * its next states do not need goes to a kernel of its own that takes all
 * chunks at once, and finds in memory the states as each chunk found them.
 * Where a call asks for none of its results, that kernel need not run. A state
 * that nobody reads, to which each chunk adds (the gradient of a constant), is
 * no reason to walk: another kernel adds up what the second one left.
 *
 * Adjoints of vectors and numbers that no adjoint of a matrix needs have a walk
 * of their own, behind the kernel of all chunks: what their next ones are made
 * of is there by then. What depends on them goes with them; so does what nobody
 * multiplies and is made of a scan along the chunk, if that walk then finds no
 * more matrices: it has the scan.
 *
 * A walk is a chain. Scores that it needs and that no state of it goes into are
 * made ahead of it, of all chunks at once. Or the walk forward is left whole: a
 * role ahead of its states makes them there, and nobody keeps them.
 *
 * Where one kernel behind the walk would be too large, scores are kept apart
 * from the sums under decays that take them: a kernel makes those, with the
 * results that need no such sum, and the next one finds them. Scores and solves
 * of the way forward are made ahead of the walk, for all.
 */
#include "lower.h"
#include "../../compiler/cost.h"
#include "../../compiler/schedule/schedule.h"

#include <stdio.h>
#include <string.h>

/* What a multiprocessor computes while it moves a byte, with what such kernels
 * reach of its rates. */
enum { FLOPS_A_BYTE = 20 };

typedef struct Cut {
    const Plan *p;
    const Kernel *k;
    uint8_t *has, *scan, *rest, *deferred, *sums; /* nodes: of all, of each
                                           part */
    uint8_t *after;                     /* what is left to the deferred walk */
    uint8_t *dear;                      /* depends on products, or carried
                                           states */
    uint8_t *feeds;                     /* a product depends on it */
    uint8_t *scanned;                   /* depends on a scan of a matrix */
    uint8_t *delayed;                   /* read a token further on, as it can be
                                           where it is found */
    uint8_t *factor;                    /* of a product, made of a scan alone */
    uint8_t *ahead;                     /* a kernel before the scan has it */
    uint8_t *first;                     /* a kernel before that of the rest */
    uint8_t *root;                      /* for which others are in the rest */
    uint8_t *found;                     /* and keeps it for those behind */
    StateSet early;                     /* which a walk before has */
    bool bare;                          /* it leaves sums to those behind */
} Cut;

static uint8_t *new_set(const Cut *u)
{
    return ctx_alloc(u->p->g->ctx, u->p->g->len);
}

static bool walks_back(const Plan *p)
{
    for (int i = 0; i < p->nkernels; i++)
        if (p->kernel[i].kind == K_REVERSE)
            return true;
    return false;
}

static bool known_before(const Plan *p, const Kernel *k, Ref r)
{
    for (const Kernel *o = p->kernel; o < k; o++)
        for (int i = 0; i < o->nnodes; i++)
            if (o->node[i] == r)
                return true;
    return false;
}

/* Whether kernels of all chunks behind the walks find it, too, or those alone.
 */
enum { FOUND = 1, LENT = 2 };

static bool is_found(const Cut *u, const uint8_t *set, Ref r)
{
    return u->found[r] & FOUND || (u->found[r] & LENT && set != u->rest);
}

/* Marks what r needs, and r; what `other` keeps in memory is not computed
 * again. */
static void mark(const Cut *u, uint8_t *set, const uint8_t *other, Ref r)
{
    const Node *n = &u->p->g->n[r];

    if (!r || set[r] || !u->has[r] || is_found(u, set, r))
        return;
    if (other && other[r]
        && (u->factor[r] || (n->states & u->k->states
            && (n->op == OP_state || node_is_product(u->p->g, n)))))
        return;
    set[r] = 1;
    for (int i = 0; i < 4; i++)
        mark(u, set, other, n->a[i]);
}

/* What each chunk adds to a state that nobody else reads, or takes from it; 0:
 * it is another. */
static Ref added(const Cut *u, const State *s)
{
    const Graph *g = u->p->g;
    const Node *next = &g->n[s->next];
    int readers = 0;

    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; i < 4; i++)
            readers += u->has[r] && g->n[r].a[i] == s->node;
    for (int i = 0; i < g->nout; i++)
        readers += g->out[i].node == s->node;
    if ((next->op != OP_add && next->op != OP_sub) || readers != 1)
        return 0;
    return next->a[0] == s->node ? next->a[1]
         : next->a[1] == s->node && next->op == OP_add ? next->a[0] : 0;
}

static bool is_carried(const Cut *u, int state)
{
    return u->k->states & ~u->early & STATE(state)
        && !added(u, &u->p->g->st[state]);
}

static bool is_matrix(const Graph *g, Ref r)
{
    AxisSet s = g->n[r].axes;
    return s & (s - 1);
}

/* Whether r sums up what a matrix of these states becomes, but for its tokens:
 * but by the walk that carries it all of that would be made again. */
static bool sums_next(const Graph *g, StateSet of, Ref r)
{
    const Node *n = &g->n[r];
    bool sums = false;

    if (!op_is(n->op, FOLDS) || is_matrix(g, r) || n->axes & AXIS(AX_I))
        return false;
    for (int s = 0; s < g->nst; s++)
        for (int i = 0; i < 2 && of & STATE(s); i++)
            sums |= n->a[i] == g->st[s].next && is_matrix(g, g->st[s].node);
    return sums;
}

bool may_be_bare(const Graph *g)
{
    StateSet back = 0;
    bool any = false;

    for (int s = 0; s < g->nst; s++)
        back |= g->st[s].reverse ? STATE(s) : 0;
    for (Ref r = 1; r < g->len; r++)
        any |= sums_next(g, back, r);
    return any;
}

static void mark_summed(const Cut *u, StateSet of, uint8_t *walk)
{
    for (Ref r = 1; r < u->p->g->len && !u->bare; r++)
        if (u->has[r] && sums_next(u->p->g, of, r))
            mark(u, walk, NULL, r);
}

/* What the next matrices need, the states that those need, and what states
 * become that nothing reads. */
static void mark_scan(Cut *u, bool deferred)
{
    const Graph *g = u->p->g;
    StateSet walked = 0;
    bool more = true;

    for (int s = 0; s < g->nst; s++)
        if (is_carried(u, s) && (!deferred || is_matrix(g, g->st[s].node)))
            mark(u, u->scan, NULL, g->st[s].node);
    while (more) {
        more = false;
        for (int s = 0; s < g->nst; s++)
            if (is_carried(u, s) && !u->scan[g->st[s].next]
                && (u->scan[g->st[s].node] || !u->has[g->st[s].node])) {
                mark(u, u->scan, NULL, g->st[s].next);
                u->scan[g->st[s].next] = 1;
                more = true;
            }
    }
    for (int s = 0; s < g->nst; s++)
        walked |= is_carried(u, s) && u->scan[g->st[s].node] ? STATE(s) : 0;
    mark_summed(u, walked, u->scan);
}

/* A product that leaves a matrix: others are sums of what is element by
 * element. */
static bool multiplies(const Graph *g, Ref r)
{
    return node_is_product(g, &g->n[r]) && is_matrix(g, r);
}

/* Of what each node is made, and for what. */
static void find_needs(Cut *u)
{
    const Graph *g = u->p->g;

    u->dear = new_set(u);
    u->feeds = new_set(u);
    u->scanned = new_set(u);
    u->delayed = new_set(u);
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        u->dear[r] = u->has[r] && (node_is_product(g, n)
                     || (n->op == OP_state && is_carried(u, n->index)));
        u->scanned[r] = u->has[r] && is_gated_scan(n->op) && is_matrix(g, r)
                     && !(n->flags & WRAP);
        if (u->has[r] && n->op == OP_delay && n->flags & REVERSE
            && is_num(g, n->a[1], 0))
            u->delayed[n->a[0]] = is_matrix(g, n->a[0]);
        for (int i = 0; i < 4; i++) {
            u->dear[r] |= u->has[r] && u->dear[n->a[i]];
            u->scanned[r] |= u->has[r] && u->scanned[n->a[i]];
        }
    }
    for (Ref r = (Ref)g->len - 1; r > 0; r--)
        for (int i = 0; i < 4 && u->has[r]; i++)
            u->feeds[g->n[r].a[i]] |= u->feeds[r] || multiplies(g, r);
}

/* Factors that are made of a scan of a matrix, element by element: fetched
 * sooner than the scan is made again. */
static void find_factors(Cut *u)
{
    const Graph *g = u->p->g;

    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; i < 2 && u->has[r] && multiplies(g, r); i++) {
            Ref a = shown_node(g, g->n[r].a[i]);
            u->factor[a] = u->scanned[a] && !u->dear[a] && is_matrix(g, a);
        }
}

/* Whether r is to sink to the deferred walk: it goes on from a scan that is had
 * there, and from what is not. */
static bool sinks(const Cut *u, Ref r)
{
    const Node *n = &u->p->g->n[r];
    bool scan = false;

    for (int i = 0; i < 4; i++)
        scan |= u->scanned[n->a[i]] && !u->dear[n->a[i]]
             && !u->factor[shown_node(u->p->g, n->a[i])];
    return scan && u->has[r] && u->dear[r] && !u->feeds[r] && !u->scan[r]
        && is_matrix(u->p->g, r) && !multiplies(u->p->g, r);
}

/* Late states are those that the scan does without. */
static bool find_deferred(Cut *u, bool sink)
{
    const Graph *g = u->p->g;
    bool any = false;

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        bool deferred = u->has[r] && n->op == OP_state
                 && is_carried(u, n->index) && !u->scan[r];
        any |= deferred;
        u->after[r] = deferred || (sink && sinks(u, r));
        for (int i = 0; i < 4; i++)
            u->after[r] |= u->has[r] && u->after[n->a[i]];
    }
    return any;
}

/* Whether numbers of tokens are sums of a matrix. */
static bool sums_matrix(const Graph *g, Ref r)
{
    bool any = false;

    for (int i = 0; i < 4 && op_is(g->n[r].op, FOLDS); i++)
        any |= g->n[r].a[i] && is_matrix(g, g->n[r].a[i]);
    return any && !is_matrix(g, r);
}

/* Whether it is better computed again than kept: of what is in memory anyway,
 * of vectors, of no more than one matrix that would be kept instead. */
static bool is_cheap(const Cut *u, Ref r)
{
    const Graph *g = u->p->g;
    const Node *n = &g->n[r];
    int matrices = 0;

    if (!u->dear[r])
        return !sums_matrix(g, r);
    if (u->delayed[r])
        return false;
    if (n->op == OP_last && u->delayed[n->a[0]])
        return true;
    for (int i = 0; i < 4 && n->a[i]; i++)
        matrices += u->dear[n->a[i]] && is_matrix(g, n->a[i])
                 && !u->deferred[n->a[i]];
    return (op_info[n->op].traits & ELEMENTWISE
            || (n->op == OP_delay && n->flags & REVERSE))
        && is_matrix(g, r) && matrices < 2;
}

/* Over all chunks. */
static void mark_rest(Cut *u, Ref r)
{
    u->root[r] = 1;
    mark(u, u->rest, u->scan, r);
}

/* Marks what r needs, and r; what is not cheap is found, left by those before.
 */
static void mark_deferred(Cut *u, Ref r)
{
    const Node *n = &u->p->g->n[r];

    if (!r || u->deferred[r] || !u->has[r] || u->found[r])
        return;
    if (!u->after[r] && !is_cheap(u, r)) {
        mark_rest(u, r);
        return;
    }
    u->deferred[r] = 1;
    for (int i = 0; i < 4; i++)
        mark_deferred(u, n->a[i]);
}

/* What a deferred state becomes is that walk's, whatever it is made of. */
static void mark_next(Cut *u, Ref r)
{
    u->deferred[r] = u->has[r];
    for (int i = 0; i < 4 && u->has[r]; i++)
        mark_deferred(u, u->p->g->n[r].a[i]);
}

/* What is left of r's kernel: by the walk of deferred states, or over all
 * chunks.
 */
static void mark_left(Cut *u, Ref r)
{
    if (u->after[r])
        mark_deferred(u, r);
    else
        mark_rest(u, r);
}

/* What each chunk adds to such a state: what is left of it element by element,
 * of one value that has no tokens, is done where it is added up. */
static void mark_added(Cut *u, Ref x)
{
    const Graph *g = u->p->g;
    const Node *n = &g->n[x];
    Ref from = 0;
    int values = 0;

    for (int i = 0; i < 4 && n->a[i]; i++)
        if (!node_is_leaf(&g->n[n->a[i]])) {
            from = n->a[i];
            values++;
        }
    if (!op_info[n->op].arity) {
        u->sums[x] = u->has[x];
    } else if (values == 1 && op_info[n->op].traits & ELEMENTWISE
               && g->n[from].axes == n->axes) {
        u->sums[x] = 1;
        mark_added(u, from);
    } else {
        mark_left(u, x);
    }
}

static void mark_parts(Cut *u, bool deferred, bool sink)
{
    const Graph *g = u->p->g;

    u->scan = new_set(u);
    u->rest = new_set(u);
    u->root = new_set(u);
    u->deferred = new_set(u);
    u->sums = new_set(u);
    mark_scan(u, deferred);
    bool any = find_deferred(u, sink);
    for (int s = 0; s < g->nst && any; s++)
        if (is_carried(u, s) && !u->scan[g->st[s].next]) {
            mark_deferred(u, g->st[s].node);
            mark_next(u, g->st[s].next);
        }
    for (int s = 0; s < g->nst; s++) {
        Ref x = added(u, &g->st[s]);
        if (!(u->k->states & STATE(s)) || !x)
            continue;
        u->sums[g->st[s].node] = u->sums[g->st[s].next] = 1;
        mark_added(u, x);
    }
    for (int i = 0; i < g->nout; i++)
        if (!known_before(u->p, u->k, g->out[i].node))
            mark_left(u, g->out[i].node);
    for (Ref r = 1; r < g->len; r++)
        if (u->p->stored[r] && !known_before(u->p, u->k, r))
            mark_left(u, r);
}

/* Matrices that the deferred walk finds. */
static int count_found(const Cut *u)
{
    const Graph *g = u->p->g;
    uint8_t *found = new_set(u);
    int n = 0;

    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; i < 4 && u->deferred[r]; i++) {
            Ref a = g->n[r].a[i];
            n += is_matrix(g, a) && u->has[a] && !u->deferred[a] && !found[a];
            found[a] = 1;
        }
    return n;
}

/* Whether the products that go are worth the bytes that come. */
static bool pays(const Cut *u)
{
    const Graph *g = u->p->g;
    double flops = 0, bytes = 0;
    bool *moved = ctx_alloc(g->ctx, g->len);

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        if (u->rest[r] && !u->scan[r] && node_is_product(g, n))
            flops += 2.0 * (double)axes_size(g, n->axes | n->over);
        for (int i = 0; i < 4 && u->rest[r]; i++)
            moved[n->a[i]] |= !u->rest[n->a[i]] && u->scan[n->a[i]];
    }
    for (Ref r = 1; r < g->len; r++)
        if (moved[r])
            bytes += 4.0 * (double)axes_size(g, g->n[r].axes)
                   * (u->p->stored[r] ? 1 : 2);
    return flops > FLOPS_A_BYTE * bytes;
}

/* Scores that are scanned: of states that stand in each other. */
static bool is_scan_of_scores(const Graph *g, Ref r)
{
    return is_gated_scan(g->n[r].op)
        && g->n[r].axes == (AXIS(AX_I) | AXIS(AX_J));
}

/* Which scores are products, or scans, or made of them, and of no state of the
 * walk; and the last of such scans. */
static uint8_t *find_scores(const Cut *u)
{
    const Graph *g = u->p->g;
    uint8_t *scores = new_set(u);

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        bool square = n->axes == (AXIS(AX_I) | AXIS(AX_J));
        bool computed = node_is_product(g, n) || is_scan_of_scores(g, r)
                 || (n->op == OP_delay && scores[n->a[0]]);
        for (int i = 0; i < 4; i++)
            computed |= scores[n->a[i]] && op_info[n->op].traits & ELEMENTWISE;
        bool last = n->op == OP_last && scores[n->a[0]];
        scores[r] = u->has[r] && ((computed && square) || last)
                 && !(n->states & u->k->states & ~u->early);
    }
    return scores;
}

static bool is_gradient(const Graph *g, const Node *n)
{
    return (n->op == OP_state && g->st[n->index].reverse)
        || (n->op == OP_input && input_is_adjoint(&g->in[n->index]));
}

/* Scores under decays, and solves, that no gradient goes into. */
static void find_forward(const Cut *u, const uint8_t *scores, uint8_t *found)
{
    const Graph *g = u->p->g;
    uint8_t *gradient = new_set(u);

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        gradient[r] = is_gradient(g, n);
        for (int i = 0; i < 4; i++)
            gradient[r] |= gradient[n->a[i]];
        found[r] |= u->rest[r] && !gradient[r]
                 && (n->op == OP_solve || (n->op == OP_gdot && scores[r]));
    }
}

/* A sum of tokens under decays per key. */
static bool is_decayed_sum(const Graph *g, Ref r)
{
    return g->n[r].op == OP_gdot && g->n[r].axes & DIM_AXES;
}

bool may_stand_apart(const Graph *g)
{
    for (Ref r = 1; r < g->len; r++)
        if (is_decayed_sum(g, r)
            || (is_scan_of_scores(g, r) && g->n[r].flags & REVERSE))
            return true;
    return false;
}

/* Products that r, behind the first kernel, is made of are the first one's;
 * scores are sooner made again than fetched. */
static void leave_products(Cut *u, Ref r, const uint8_t *sums, uint8_t *seen)
{
    const Graph *g = u->p->g;
    bool scores = g->n[r].axes == (AXIS(AX_I) | AXIS(AX_J));

    if (!u->rest[r] || !u->dear[r] || seen[r])
        return;
    seen[r] = 1;
    if (!sums[r] && !scores && node_is_product(g, &g->n[r])) {
        mark(u, u->first, u->scan, r);
        return;
    }
    for (int i = 0; i < 4 && (sums[r] || !node_is_product(g, &g->n[r])); i++)
        leave_products(u, g->n[r].a[i], sums, seen);
}

/* Requires parts. Scores that such sums take are made first, and results that
 * need none; the rest finds the products among that, and the scores. So do
 * scans of scores, which make products of two tiles again. */
static bool find_first(Cut *u)
{
    const Graph *g = u->p->g;
    uint8_t *sums = new_set(u), *found = new_set(u), *rest = new_set(u);
    uint8_t *seen = new_set(u);
    bool any = false;

    u->first = new_set(u);
    for (Ref r = 1; r < g->len; r++) {
        bool scan = is_scan_of_scores(g, r) && u->dear[r];
        sums[r] = u->rest[r] && (scan || is_decayed_sum(g, r));
        any |= sums[r] && scan;
        for (int i = 0; i < 4; i++)
            sums[r] |= u->rest[r] && sums[g->n[r].a[i]];
    }
    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; i < 2 && u->rest[r] && is_decayed_sum(g, r); i++) {
            Ref a = shown_node(g, g->n[r].a[i]);
            found[a] |= g->n[a].axes == (AXIS(AX_I) | AXIS(AX_J)) && !sums[a];
        }
    if (!any && !memchr(found, 1, g->len))
        return false;
    for (Ref r = 1; r < g->len; r++)
        if (found[r] || (u->root[r] && !sums[r]))
            mark(u, u->first, u->scan, r);
    for (Ref r = 1; r < g->len && any; r++)
        if (u->root[r] && sums[r])
            leave_products(u, r, sums, seen);
    for (Ref r = 1; r < g->len; r++) {
        bool scores = g->n[r].axes == (AXIS(AX_I) | AXIS(AX_J));
        found[r] |= u->first[r] && node_is_product(g, &g->n[r])
                 && !(any && scores);
        u->found[r] |= found[r];
    }
    for (Ref r = 1; r < g->len; r++)
        if (u->root[r] && sums[r])
            mark(u, rest, u->scan, r);
    u->rest = rest;
    return true;
}

/* Which nodes depend on sums of a matrix along the chunk. */
static uint8_t *find_summed(const Cut *u)
{
    const Graph *g = u->p->g;
    uint8_t *summed = new_set(u);

    for (Ref r = 1; r < g->len; r++) {
        summed[r] = u->has[r] && is_matrix(g, r)
                 && op_is(g->n[r].op, RECURS);
        for (int i = 0; i < 4; i++)
            summed[r] |= u->has[r] && summed[g->n[r].a[i]];
    }
    return summed;
}

/* Factors of the walk's products that are computed element by element, of no
 * product and no carried state: of sums along the chunk, or of an axis that the
 * walk contracts. Others go with the columns of its states. With them vectors
 * that are made of such sums, which matrices read. */
static void mark_factors(const Cut *u, const uint8_t *walk, int how,
                         const uint8_t *scores, uint8_t *found)
{
    const Graph *g = u->p->g;
    const uint8_t *summed = find_summed(u);
    AxisSet over = 0;

    for (Ref r = 1; r < g->len; r++)
        over |= walk[r] && !scores[r] && multiplies(g, r)
              ? g->n[r].over & DIM_AXES : 0;
    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; i < 4 && walk[r] && !scores[r]; i++) {
            Ref a = shown_node(g, g->n[r].a[i]);
            const Node *n = &g->n[a];
            bool computed = u->has[a] && !u->dear[a] && n->op != OP_input
                     && n->op != OP_num;
            if (computed && multiplies(g, r) && is_matrix(g, a))
                found[a] |= summed[a] || n->axes & over ? how : 0;
            else if (computed && is_matrix(g, r) && !(n->axes & ~DIM_AXES))
                found[a] |= n->axes && summed[a] ? how : 0;
        }
}

/* Requires parts. What the walk needs of scores is made ahead, and of one that
 * goes forward alone a token's sums of matrices; products under decays per key
 * that those are made of are kept, too, for those behind: others are sooner
 * made again than fetched. */
static bool find_ahead(Cut *u, const uint8_t *walk, Split how)
{
    const Graph *g = u->p->g;
    const uint8_t *scores = find_scores(u);
    uint8_t *found = new_set(u);
    bool apart = how.apart;

    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; i < 4 && walk[r] && !scores[r]; i++)
            found[g->n[r].a[i]] |= scores[g->n[r].a[i]];
    for (Ref r = 1; r < g->len && !plan_is_joint(u->p); r++)
        found[r] |= walk[r] && u->has[r] && sums_matrix(g, r)
                 && !(g->n[r].states & u->k->states & ~u->early);
    if (how.factors)
        mark_factors(u, walk, how.factors, scores, found);
    if (apart)
        find_forward(u, scores, found);
    u->ahead = new_set(u);
    for (Ref r = 1; r < g->len; r++)
        if (found[r])
            mark(u, u->ahead, NULL, r);
    for (Ref r = 1; r < g->len; r++)
        found[r] |= (u->ahead[r] && scores[r] && g->n[r].op == OP_gdot)
                  | u->found[r];
    u->found = found;
    return memchr(u->ahead, 1, g->len);
}

static void add_kernel(Plan *p, const Cut *u, KernelKind kind,
                       const uint8_t *set)
{
    Kernel *k = &p->kernel[p->nkernels++];

    *k = (Kernel){ .kind = kind,
                   .back = u->k >= u->p->kernel + u->p->split };
    memcpy(k->name, u->k->name, sizeof k->name);
    k->node = ctx_alloc(p->g->ctx, p->g->len * sizeof *k->node);
    for (Ref r = 1; r < p->g->len; r++)
        if (set[r])
            k->node[k->nnodes++] = r;
}

/* States that are no matrices, and that no matrix goes into. */
static StateSet find_early(const Cut *u)
{
    const Graph *g = u->p->g;
    StateSet early = 0, matrices = 0;

    for (int s = 0; s < g->nst; s++)
        if (u->k->states & STATE(s) && is_matrix(g, g->st[s].node))
            matrices |= STATE(s);
    for (int s = 0; s < g->nst && matrices; s++)
        if (u->k->states & STATE(s) & ~matrices
            && !(g->n[g->st[s].next].states & matrices))
            early |= STATE(s);
    return early;
}

/* The early states have a walk of their own, for scores that they go into. */
static void add_early(Plan *to, Cut *u)
{
    const Graph *g = u->p->g;
    uint8_t *walk = new_set(u);

    for (int s = 0; s < g->nst; s++)
        if (u->early & STATE(s)) {
            mark(u, walk, NULL, g->st[s].node);
            mark(u, walk, NULL, g->st[s].next);
        }
    for (int s = 0; s < g->nst; s++)
        if (u->early & STATE(s))
            u->found[g->st[s].node] = 1;
    if (u->early)
        add_kernel(to, u, u->k->kind, walk);
}

/* What carried states become, and what that needs. */
static uint8_t *find_next(const Cut *u)
{
    const Graph *g = u->p->g;
    uint8_t *next = new_set(u);

    for (int s = 0; s < g->nst; s++)
        if (u->k->states & STATE(s))
            mark(u, next, NULL, g->st[s].next);
    return next;
}

/* Whether some of these need scores. */
static bool need_scores(const Cut *u, const uint8_t *nodes)
{
    const Graph *g = u->p->g;
    const uint8_t *scores = find_scores(u);
    bool any = false;

    for (Ref r = 1; r < g->len; r++)
        any |= scores[r] && nodes[r];
    return any;
}

/* Whether what is made ahead needs one of the early states. */
static bool needs_early(Cut *u, const uint8_t *walk, Split how)
{
    const Graph *g = u->p->g;
    uint8_t *found = u->found;
    bool needs = false;

    find_ahead(u, walk, how);
    for (int s = 0; s < g->nst; s++)
        needs |= u->early & STATE(s) && u->ahead[g->st[s].node];
    u->found = found;
    return needs;
}

/* A walk forward is left whole, but for the scores that it needs, and for
 * factors that are made of scans for those, as for its own products; or what
 * its states do not need is left to a kernel behind it. */
static bool cut_forward(Plan *to, Cut *u, Split how)
{
    const Graph *g = u->p->g;
    uint8_t *walk = new_set(u);
    const uint8_t *needing = how.ends || how.rest ? find_next(u) : u->has;

    u->early = find_early(u);
    if (!need_scores(u, needing)) {
        u->early = 0;
        return false;
    }
    find_needs(u);                      /* early states are no more carried */
    find_factors(u);
    how.apart = false;                  /* there is no rest */
    if (!needs_early(u, needing, how)) {
        u->early = 0;
        find_needs(u);
    }
    add_early(to, u);
    find_ahead(u, needing, how);
    add_kernel(to, u, K_TOKEN, u->ahead);
    for (Ref r = 1; r < g->len; r++)
        u->found[r] |= u->ahead[r] && u->factor[r];
    mark_parts(u, false, false);
    for (Ref r = 1; r < g->len; r++)
        walk[r] = u->scan[r] | (how.rest ? 0 : u->rest[r]) | u->sums[r];
    add_kernel(to, u, u->k->kind, walk);
    if (how.rest && memchr(u->rest, 1, g->len))
        add_kernel(to, u, K_TOKEN, u->rest);
    for (Ref r = 1; r < g->len; r++)
        u->found[r] |= how.solved && walk[r] && g->n[r].op == OP_solve;
    return true;
}

/* What the walk needs for these states alone; false: others go into them. */
static bool mark_walk(const Cut *u, StateSet states, uint8_t *walk)
{
    const Graph *g = u->p->g;
    bool alone = true;

    for (int s = 0; s < g->nst; s++)
        if (states & STATE(s)) {
            mark(u, walk, NULL, g->st[s].node);
            mark(u, walk, NULL, g->st[s].next);
        }
    mark_summed(u, states, walk);
    for (int s = 0; s < g->nst; s++)
        alone &= !walk[g->st[s].node] || states & STATE(s)
              || !(u->k->states & STATE(s));
    return alone;
}

/* The scan, or a walk of its own for each of its states, where none needs
 * another. */
static void add_walks(Plan *to, const Cut *u, bool apart)
{
    const Graph *g = u->p->g;
    uint8_t *walk[MAX_STATES];
    int n = 0;

    for (int s = 0; s < g->nst && apart; s++)
        if (is_carried(u, s) && u->scan[g->st[s].node]) {
            walk[n] = new_set(u);
            apart = mark_walk(u, STATE(s), walk[n++]);
        }
    for (int i = 0; i < n && apart; i++)
        add_kernel(to, u, u->k->kind, walk[i]);
    if (!apart || !n)
        add_kernel(to, u, u->k->kind, u->scan);
}

/* found: what kernels before it keep for it; and it for those behind. */
static void cut_kernel(Plan *to, const Plan *from, const Kernel *k, Split how,
                       uint8_t *found)
{
    const Graph *g = from->g;
    Cut u = { .p = from, .k = k, .bare = how.bare };
    bool deferred = how.deferred && k->kind == K_REVERSE;
    bool ahead = how.ahead && k->kind == K_REVERSE;

    u.has = new_set(&u);
    u.after = new_set(&u);
    u.found = memcpy(new_set(&u), found, g->len);
    u.factor = new_set(&u);
    for (int i = 0; i < k->nnodes; i++)
        u.has[k->node[i]] = 1;
    find_needs(&u);
    if (deferred)
        find_factors(&u);
    if (how.entire && k->kind == K_FORWARD) {
        add_kernel(to, &u, k->kind, u.has);
        return;
    }
    if (how.forward && k->kind == K_FORWARD
        && cut_forward(to, &u, how)) {
        memcpy(found, u.found, g->len);
        return;
    }
    mark_parts(&u, deferred, false);
    bool any = memchr(u.deferred, 1, g->len);
    int matrices = count_found(&u);
    mark_parts(&u, deferred, any);
    bool sink = any && count_found(&u) <= matrices;
    mark_parts(&u, deferred, sink);
    bool rest = how.rest && k->kind == K_FORWARD;
    if (k->kind == K_TOKEN || (!any && !rest && !pays(&u))) {
        add_kernel(to, &u, k->kind, u.has);
        return;
    }
    if (ahead && find_ahead(&u, u.scan, how)) {
        add_kernel(to, &u, K_TOKEN, u.ahead);
        mark_parts(&u, deferred, sink);
    }
    for (Ref r = 1; r < g->len && how.whole && k->kind == K_REVERSE; r++) {
        u.scan[r] |= u.rest[r];
        u.rest[r] = 0;
    }
    add_walks(to, &u, how.walks);
    if (how.apart && k->kind == K_REVERSE && find_first(&u)
        && memchr(u.first, 1, g->len))
        add_kernel(to, &u, K_TOKEN, u.first);
    if (memchr(u.rest, 1, g->len))
        add_kernel(to, &u, K_TOKEN, u.rest);
    if (any)
        add_kernel(to, &u, k->kind, u.deferred);
    if (memchr(u.sums, 1, g->len))
        add_kernel(to, &u, k->kind, u.sums);
}

static const Plan *uncut(const Plan *p, int *of)
{
    for (int i = 0; i < p->nkernels; i++)
        of[i] = i;
    return p;
}

/* Uncut, too, where the parts would leave a state to none of them. */
const Plan *plan_split(const Plan *p, Split how, int **of)
{
    enum { PARTS = 6 + MAX_STATES };
    Ctx *c = p->g->ctx;
    int n = 0;
    Error why;
    uint8_t *found = ctx_alloc(c, p->g->len);

    *of = ctx_alloc(c, PARTS * (size_t)p->nkernels * sizeof **of);
    if (how.none || !p->g->chunk || !(walks_back(p) || how.forward))
        return uncut(p, *of);
    Plan *to = ctx_alloc(c, sizeof *to);
    to->g = p->g;
    to->kernel = ctx_alloc(c, PARTS * (size_t)p->nkernels
                                  * sizeof *to->kernel);
    for (int i = 0; i < p->nkernels; i++)
        for (cut_kernel(to, p, &p->kernel[i], how, found);
             n < to->nkernels; n++)
            (*of)[n] = i;
    if (!plan_finish_if(to, &why))
        return uncut(p, *of);
    for (to->split = 0; to->split < n && (*of)[to->split] < p->split;)
        to->split++;
    return to;
}
