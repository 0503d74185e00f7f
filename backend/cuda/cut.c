/* cut.c -- a kernel as two, where it is too large.
 *
 * What a kernel leaves is made of matrices that it finds in memory. What needs
 * none but those of one result goes with it, to a kernel of its own; the rest
 * is the other's, which finds the products that both would make, but for
 * scores that are made of two matrices: these are sooner made again.
 *
 * Where that is not enough, a matrix that no state of the kernel goes into is
 * made by a kernel of all chunks before it; what the next states do not need
 * by one behind it; states that need no others have a walk of their own.
 */
#include "lower.h"
#include "../../compiler/cost.h"
#include "../../compiler/schedule/schedule.h"

#include <string.h>

typedef struct Halves {
    const Plan *p;
    int kernel;
    uint8_t *has, *root;                /* nodes: of the kernel; left by it */
    uint8_t *next;                      /* that its next states need */
    uint8_t *first, *second;            /* of each half */
    uint8_t *found;                     /* by the second, left by the first */
    KernelKind kind[2];
} Halves;

static bool is_matrix(const Graph *g, Ref r)
{
    return g->n[r].axes & (g->n[r].axes - 1);
}

static bool kernel_makes(const Kernel *k, Ref r)
{
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] == r)
            return true;
    return false;
}

/* What the second half finds where the first one makes it. */
static bool is_found(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    bool scores = n->axes == (AXIS(AX_I) | AXIS(AX_J));

    return node_is_product(g, n) && (!scores || n->op != OP_dot);
}

/* Marks r and what it needs; what is found is not. */
static void mark(const Halves *h, uint8_t *set, const uint8_t *found, Ref r)
{
    const Node *n = &h->p->g->n[r];

    if (!r || set[r] || !h->has[r] || (found && found[r]))
        return;
    set[r] = 1;
    for (int i = 0; i < 4; i++)
        mark(h, set, found, n->a[i]);
}

static void find_roots(Halves *h)
{
    const Plan *p = h->p;
    const Graph *g = p->g;

    for (int i = 0; i < p->kernel[h->kernel].nnodes; i++)
        h->has[p->kernel[h->kernel].node[i]] = 1;
    for (Ref r = 1; r < g->len; r++)
        h->root[r] = h->has[r] && plan_keeps(p, h->kernel, r);
    for (int i = 0; i < g->nout; i++) {
        Ref r = g->out[i].node;
        bool before = false;
        for (int k = 0; k < h->kernel; k++)
            before |= kernel_makes(&p->kernel[k], r);
        h->root[r] |= h->has[r] && !before;
    }
    for (int s = 0; s < g->nst; s++)
        if (p->kernel[h->kernel].states & STATE(s))
            mark(h, h->next, NULL, g->st[s].next);
}

/* What the first half has is found by the second, if it is a product, a state
 * that the first one carries, or this. */
static void leave(Halves *h, Ref with)
{
    const Graph *g = h->p->g;

    for (Ref r = 1; r < g->len; r++)
        h->found[r] = h->first[r] && (is_found(g, r) || r == with
                                      || g->n[r].op == OP_state);
}

/* Whether each matrix in memory that r needs is among those of `set`. */
static bool needs_no_more(const Halves *h, Ref r, const uint8_t *set)
{
    const Graph *g = h->p->g;
    uint8_t *own = ctx_alloc(g->ctx, g->len);

    mark(h, own, NULL, r);
    for (Ref u = 1; u < g->len; u++) {
        bool leaf = node_is_leaf(&g->n[u]);
        for (int i = 0; i < 4 && own[u] && !leaf; i++) {
            Ref a = g->n[u].a[i];
            bool finds = !h->has[a] || node_is_leaf(&g->n[a]);
            bool there = false;
            for (Ref v = 1; v < g->len && finds && !there; v++)
                for (int j = 0; j < 4 && set[v]; j++)
                    there |= g->n[v].a[j] == a;
            if (finds && !there && is_matrix(g, a))
                return false;
        }
    }
    return true;
}

/* Which results need no matrix in memory but those that `set` does; false: all
 * of them. */
static bool find_alike(const Halves *h, const uint8_t *set, uint8_t *goes)
{
    const Graph *g = h->p->g;
    bool all = true;

    for (Ref r = 1; r < g->len; r++) {
        goes[r] = h->root[r] && needs_no_more(h, r, set);
        all &= !h->root[r] || goes[r];
    }
    return !all;
}

/* What the second half leaves, and what its states become. */
static void mark_second(Halves *h, const uint8_t *goes, StateSet states)
{
    const Graph *g = h->p->g;

    for (Ref r = 1; r < g->len; r++)
        if (h->root[r] && !goes[r])
            mark(h, h->second, h->found, r);
    for (int s = 0; s < g->nst; s++)
        if (states & STATE(s)) {
            h->found[g->st[s].node] = h->found[g->st[s].next] = 0;
            mark(h, h->second, h->found, g->st[s].node);
            mark(h, h->second, h->found, g->st[s].next);
        }
}

/* Whether both halves have something to do. */
static bool cut_result(Halves *h, Ref with, uint8_t *goes)
{
    const Graph *g = h->p->g;
    uint8_t *set = ctx_alloc(g->ctx, g->len);

    if (!h->root[with] || h->p->kernel[h->kernel].kind != K_TOKEN)
        return false;
    mark(h, set, NULL, with);
    if (!find_alike(h, set, goes))
        return false;
    for (Ref r = 1; r < g->len; r++)
        if (goes[r])
            mark(h, h->first, NULL, r);
    leave(h, 0);
    mark_second(h, goes, 0);
    return true;
}

/* A product, or a factor of one, that is computed. */
static bool may_be_left(const Halves *h, Ref r)
{
    const Graph *g = h->p->g;
    const Node *n = &g->n[r];
    bool factor = node_is_product(g, n);

    if (!h->has[r] || node_is_leaf(n) || op_info[n->op].traits & VIEWS
        || n->op == OP_opening
        || !is_matrix(g, r))
        return false;
    for (Ref u = r + 1; u < g->len && !factor; u++)
        for (int i = 0; i < 2 && h->has[u] && node_is_product(g, &g->n[u]); i++)
            factor |= shown_node(g, g->n[u].a[i]) == r;
    return factor;
}

static bool reads(const Graph *g, const uint8_t *set, Ref r)
{
    bool any = false;

    for (Ref u = r + 1; u < g->len; u++)
        for (int i = 0; i < 4; i++)
            any |= set[u] && g->n[u].a[i] == r;
    return any;
}

/* Sums of gates that decays are differences of: these are exact where they are
 * added up, which is sooner done again than kept. */
static bool is_gate(const Graph *g, Ref r)
{
    bool any = false;

    for (Ref u = r + 1; u < g->len; u++)
        for (int i = 2; i < 4 && is_decayed_contraction(g->n[u].op); i++)
            any |= shown_node(g, g->n[u].a[i]) == r;
    return any;
}

/* All that the kernel's states go together with, but leaves, gates and numbers.
 */
static bool cut_factors(Halves *h, const uint8_t *goes)
{
    const Graph *g = h->p->g;
    const Kernel *k = &h->p->kernel[h->kernel];
    uint8_t *with = ctx_alloc(g->ctx, g->len);
    bool any = false;

    for (Ref u = 1; u < g->len; u++)
        for (int i = 0; i < 4 && h->has[u] && g->n[u].states & k->states; i++) {
            Ref r = shown_node(g, g->n[u].a[i]);
            with[r] = h->has[r] && !node_is_leaf(&g->n[r]) && !is_gate(g, r)
                   && !(g->n[r].states & k->states)
                   && (g->n[r].axes & DIM_AXES || is_matrix(g, r));
            any |= with[r];
        }
    for (Ref r = 1; r < g->len; r++)
        if (with[r])
            mark(h, h->first, NULL, r);
    h->kind[0] = K_TOKEN;
    leave(h, 0);
    for (Ref r = 1; r < g->len; r++)
        h->found[r] |= with[r];
    mark_second(h, goes, k->states);
    return any;
}

/* That matrix before all else, with what needs no more than it. */
static bool cut_factor(Halves *h, Ref with, uint8_t *goes)
{
    const Graph *g = h->p->g;
    const Kernel *k = &h->p->kernel[h->kernel];
    uint8_t *set = ctx_alloc(g->ctx, g->len);

    if (with == CUT_ALL)
        return cut_factors(h, goes);
    if (!may_be_left(h, with) || h->root[with]
        || g->n[with].states & k->states)
        return false;
    mark(h, set, NULL, with);
    mark(h, h->first, NULL, with);
    if (k->kind == K_TOKEN)
        find_alike(h, set, goes);
    for (Ref r = 1; r < g->len; r++)
        if (goes[r])
            mark(h, h->first, NULL, r);
    h->kind[0] = K_TOKEN;
    leave(h, with);
    mark_second(h, goes, k->states);
    return reads(g, h->second, with);
}

/* Behind the walk: a result that its states do not need, with what needs no
 * more than it; or all of them. */
static bool cut_behind(Halves *h, Ref with, uint8_t *goes)
{
    const Graph *g = h->p->g;
    const Kernel *k = &h->p->kernel[h->kernel];
    uint8_t *set = ctx_alloc(g->ctx, g->len);
    bool all = with == CUT_ALL, any = false;

    if (k->kind == K_TOKEN || (!all && (!h->root[with] || h->next[with])))
        return false;
    mark(h, set, NULL, with);
    for (Ref r = 1; r < g->len; r++) {  /* what the walk leaves */
        goes[r] = h->root[r] && (h->next[r] || (!all
                                                && !needs_no_more(h, r, set)));
        any |= h->root[r] && !goes[r];
    }
    memcpy(h->first, h->next, g->len);
    for (Ref r = 1; r < g->len; r++)
        if (goes[r])
            mark(h, h->first, NULL, r);
    for (int s = 0; s < g->nst; s++)
        if (k->states & STATE(s))
            h->first[g->st[s].node] = 1;
    h->kind[1] = K_TOKEN;
    leave(h, 0);
    mark_second(h, goes, 0);
    return any;
}

/* A walk of its own for that state, and for those that it needs. */
static bool cut_states(Halves *h, Ref with, uint8_t *goes)
{
    const Graph *g = h->p->g;
    const Kernel *k = &h->p->kernel[h->kernel];
    StateSet own = 0, more = with <= (Ref)g->nst ? STATE(with - 1) : 0;

    if (!(k->states & more))
        return false;
    while (more & ~own) {
        own |= more;
        for (int s = 0; s < g->nst; s++)
            if (own & STATE(s))
                more |= g->n[g->st[s].next].states & k->states;
    }
    for (int s = 0; s < g->nst; s++)
        if (own & STATE(s)) {
            mark(h, h->first, NULL, g->st[s].node);
            mark(h, h->first, NULL, g->st[s].next);
        }
    for (Ref r = 1; r < g->len; r++)
        goes[r] = h->root[r] && h->first[r];
    leave(h, 0);
    mark_second(h, goes, k->states & ~own);
    return own != k->states;
}

static bool is_cut(Halves *h, CutHow how, Ref with, uint8_t *goes)
{
    switch (how) {
    case CUT_RESULT: return cut_result(h, with, goes);
    case CUT_FACTOR: return cut_factor(h, with, goes);
    case CUT_BEHIND: return cut_behind(h, with, goes);
    case CUT_STATES: return cut_states(h, with, goes);
    case NCUTS: break;
    }
    return false;
}

/* Both have something to do. */
static bool find_halves(Halves *h, CutHow how, Ref with)
{
    const Kernel *k = &h->p->kernel[h->kernel];
    uint32_t n = h->p->g->len;
    uint8_t *goes = ctx_alloc(h->p->g->ctx, n);

    h->first = ctx_alloc(h->p->g->ctx, n);
    h->second = ctx_alloc(h->p->g->ctx, n);
    h->found = ctx_alloc(h->p->g->ctx, n);
    h->kind[0] = h->kind[1] = k->kind;
    return is_cut(h, how, with, goes) && memchr(h->first, 1, n)
        && memchr(h->second, 1, n);
}

static Kernel half(const Halves *h, int i)
{
    const Kernel *k = &h->p->kernel[h->kernel];
    const uint8_t *set = i ? h->second : h->first;
    Kernel to = { .kind = h->kind[i], .back = k->back };
    const Graph *g = h->p->g;

    memcpy(to.name, k->name, sizeof to.name);
    to.node = ctx_alloc(g->ctx, (size_t)k->nnodes * sizeof *to.node);
    for (Ref r = 1; r < g->len; r++)
        if (set[r])
            to.node[to.nnodes++] = r;
    return to;
}

/* NULL where they would leave a state to neither. */
static const Plan *with_halves(const Halves *h, const int *of, int **of_halves)
{
    const Plan *p = h->p;
    Error why;
    Ctx *c = p->g->ctx;
    Plan *to = ctx_alloc(c, sizeof *to);
    size_t n = (size_t)p->nkernels + 1;

    to->g = p->g;
    to->kernel = ctx_alloc(c, n * sizeof *to->kernel);
    *of_halves = ctx_alloc(c, n * sizeof **of_halves);
    for (int i = 0; i < p->nkernels; i++) {
        bool cut = i == h->kernel;
        (*of_halves)[to->nkernels] = of[i];
        if (cut)
            (*of_halves)[to->nkernels + 1] = of[i];
        to->kernel[to->nkernels++] = cut ? half(h, 0) : p->kernel[i];
        if (cut)
            to->kernel[to->nkernels++] = half(h, 1);
    }
    if (!plan_finish_if(to, &why))
        return NULL;
    to->split = p->split + (h->kernel < p->split);
    return to;
}

const Plan *plan_cut(const Plan *p, int kernel, CutHow how, Ref *with,
                     const int *of, int **of_halves)
{
    const Graph *g = p->g;
    Halves h = { .p = p, .kernel = kernel };

    h.has = ctx_alloc(g->ctx, g->len);
    h.root = ctx_alloc(g->ctx, g->len);
    h.next = ctx_alloc(g->ctx, g->len);
    find_roots(&h);
    while (++*with < g->len) {
        const Plan *cut = find_halves(&h, how, *with)
                        ? with_halves(&h, of, of_halves) : NULL;
        if (cut)
            return cut;
    }
    return NULL;
}
