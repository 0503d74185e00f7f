/* tile_split.c -- scans that do only what they must. A kernel that walks a
 * sequence has a block a head, one chunk after another. In a joint plan what
 * its next states do not need goes to a kernel of its own that takes all
 * chunks at once, and finds in memory the states as each chunk found them.
 * Where a call asks for none of its results, that kernel need not run. A state
 * that nobody reads, to which each chunk adds (the gradient of a constant), is
 * no reason to walk: a third kernel adds up what the second one left.
 */
#include "tile.h"
#include "../../compiler/cost.h"

#include <stdio.h>
#include <string.h>

/* What a multiprocessor computes while it moves a byte, with what an emitter
 * of this kind reaches of its rates. */
enum { FLOPS_A_BYTE = 20 };

typedef struct Cut {
    const Plan *p;
    const Kernel *k;
    uint8_t *has, *scan, *rest, *sums;  /* nodes: of all, of each part */
} Cut;

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

/* Marks what r needs, and r; what `other` keeps in memory is not computed
 * again. */
static void mark(const Cut *u, uint8_t *set, const uint8_t *other, Ref r)
{
    const Node *n = &u->p->g->n[r];

    if (!r || set[r] || !u->has[r])
        return;
    if (other && other[r] && n->states & u->k->states
        && (n->op == OP_state || node_is_product(u->p->g, n)))
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

static void mark_parts(Cut *u)
{
    const Graph *g = u->p->g;

    for (int s = 0; s < g->nst; s++)
        if (u->k->states & STATE(s) && !added(u, &g->st[s])) {
            mark(u, u->scan, NULL, g->st[s].node);
            mark(u, u->scan, NULL, g->st[s].next);
        }
    for (int s = 0; s < g->nst; s++) {
        Ref x = added(u, &g->st[s]);
        if (!(u->k->states & STATE(s)) || !x)
            continue;
        u->sums[g->st[s].node] = u->sums[g->st[s].next] = 1;
        if (op_info[g->n[x].op].arity)
            mark(u, u->rest, u->scan, x);
        else
            u->sums[x] = u->has[x];
    }
    for (int i = 0; i < g->nout; i++)
        if (!known_before(u->p, u->k, g->out[i].node))
            mark(u, u->rest, u->scan, g->out[i].node);
    for (Ref r = 1; r < g->len; r++)
        if (u->p->stored[r] && !known_before(u->p, u->k, r))
            mark(u, u->rest, u->scan, r);
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

static void add_kernel(Plan *p, const Kernel *like, KernelKind kind,
                       const uint8_t *set)
{
    Kernel *k = &p->kernel[p->nkernels++];

    *k = (Kernel){ .kind = kind };
    memcpy(k->name, like->name, sizeof k->name);
    k->node = ctx_alloc(p->g->ctx, p->g->len * sizeof *k->node);
    for (Ref r = 1; r < p->g->len; r++)
        if (set[r])
            k->node[k->nnodes++] = r;
}

static void cut_kernel(Plan *to, const Plan *from, const Kernel *k)
{
    const Graph *g = from->g;
    Cut u = { .p = from, .k = k };

    u.has = ctx_alloc(g->ctx, g->len);
    u.scan = ctx_alloc(g->ctx, g->len);
    u.rest = ctx_alloc(g->ctx, g->len);
    u.sums = ctx_alloc(g->ctx, g->len);
    for (int i = 0; i < k->nnodes; i++)
        u.has[k->node[i]] = 1;
    mark_parts(&u);
    if (k->kind == K_TOKEN || !pays(&u)) {
        add_kernel(to, k, k->kind, u.has);
        return;
    }
    add_kernel(to, k, k->kind, u.scan);
    add_kernel(to, k, K_TOKEN, u.rest);
    if (memchr(u.sums, 1, g->len))
        add_kernel(to, k, k->kind, u.sums);
}

const Plan *tile_split(const Plan *p, int **of)
{
    Ctx *c = p->g->ctx;
    int n = 0;

    *of = ctx_alloc(c, 3 * (size_t)p->nkernels * sizeof **of);
    for (int i = 0; i < p->nkernels; i++)
        (*of)[i] = i;
    if (!p->g->chunk || !walks_back(p))
        return p;
    Plan *to = ctx_alloc(c, sizeof *to);
    to->g = p->g;
    to->kernel = ctx_alloc(c, 3 * (size_t)p->nkernels * sizeof *to->kernel);
    for (int i = 0; i < p->nkernels; i++)
        for (cut_kernel(to, p, &p->kernel[i]); n < to->nkernels; n++)
            (*of)[n] = i;
    plan_finish(to);
    return to;
}
