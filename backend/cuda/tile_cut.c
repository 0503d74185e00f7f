/* tile_cut.c -- a kernel of all chunks as two, where it is too large.
 *
 * What a kernel leaves is made of matrices that it finds in memory. What needs
 * none but those of one result goes with it, to a kernel of its own; the rest
 * is the other's, which finds the products that both would make, but for
 * scores that are made of two matrices: these are sooner made again.
 */
#include "tile.h"
#include "../../compiler/cost.h"

#include <string.h>

typedef struct Halves {
    const Plan *p;
    int kernel;
    uint8_t *has, *root;                /* nodes: of the kernel; left by it */
    uint8_t *first, *second;            /* of each half */
} Halves;

static bool is_matrix(const Graph *g, Ref r)
{
    return g->n[r].axes & (g->n[r].axes - 1);
}

static bool has_node(const Kernel *k, Ref r)
{
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] == r)
            return true;
    return false;
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
            before |= has_node(&p->kernel[k], r);
        h->root[r] |= h->has[r] && !before;
    }
}

/* What the second half finds where the first one makes it. */
static bool is_found(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    bool scores = n->axes == (AXIS(AX_I) | AXIS(AX_J));

    return node_is_product(g, n) && (!scores || n->op != OP_dot);
}

/* Marks r and what it needs; what `made` has, and is found, is not. */
static void mark(const Halves *h, uint8_t *set, const uint8_t *made, Ref r)
{
    const Node *n = &h->p->g->n[r];

    if (!r || set[r] || !h->has[r] || (made && made[r]
                                       && is_found(h->p->g, r)))
        return;
    set[r] = 1;
    for (int i = 0; i < 4; i++)
        mark(h, set, made, n->a[i]);
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

/* Whether both halves have something to do. */
static bool find_halves(Halves *h, Ref with)
{
    const Graph *g = h->p->g;
    uint8_t *set = ctx_alloc(g->ctx, g->len);
    uint8_t *goes = ctx_alloc(g->ctx, g->len);
    bool all = true;

    mark(h, set, NULL, with);
    for (Ref r = 1; r < g->len; r++) {
        goes[r] = h->root[r] && needs_no_more(h, r, set);
        all &= !h->root[r] || goes[r];
    }
    for (Ref r = 1; r < g->len; r++)
        if (goes[r])
            mark(h, h->first, NULL, r);
    for (Ref r = 1; r < g->len; r++)
        if (h->root[r] && !goes[r])
            mark(h, h->second, h->first, r);
    return !all;
}

static Kernel half(const Halves *h, const uint8_t *set)
{
    const Kernel *k = &h->p->kernel[h->kernel];
    Kernel to = { .kind = k->kind, .back = k->back };
    const Graph *g = h->p->g;

    memcpy(to.name, k->name, sizeof to.name);
    to.node = ctx_alloc(g->ctx, (size_t)k->nnodes * sizeof *to.node);
    for (Ref r = 1; r < g->len; r++)
        if (set[r])
            to.node[to.nnodes++] = r;
    return to;
}

static const Plan *with_halves(const Halves *h, const int *of, int **of_halves)
{
    const Plan *p = h->p;
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
        to->kernel[to->nkernels++] = cut ? half(h, h->first) : p->kernel[i];
        if (cut)
            to->kernel[to->nkernels++] = half(h, h->second);
    }
    plan_finish(to);
    to->split = p->split;
    return to;
}

const Plan *tile_cut(const Plan *p, int kernel, Ref *with, const int *of,
                     int **of_halves)
{
    const Graph *g = p->g;
    Halves h = { .p = p, .kernel = kernel };

    h.has = ctx_alloc(g->ctx, g->len);
    h.root = ctx_alloc(g->ctx, g->len);
    find_roots(&h);
    while (++*with < g->len) {
        if (!h.root[*with])
            continue;
        h.first = ctx_alloc(g->ctx, g->len);
        h.second = ctx_alloc(g->ctx, g->len);
        if (find_halves(&h, *with))
            return with_halves(&h, of, of_halves);
    }
    return NULL;
}
