/* analyse.c -- what compile.c asks about a plan before it emits anything, and
 * where the tiles go when it has.
 */
#include "compile.h"

#include <string.h>

/* ---- the graph ---- */

uint8_t *lower_values(Ctx *c, const Graph *g)
{
    uint8_t *lower = ctx_alloc(c, g->len);
    AxisSet both = AXIS(AX_I) | AXIS(AX_J);

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        uint8_t a = lower[n->a[0]], b = lower[n->a[1]];
        if ((n->axes & both) != both)
            continue;
        if (op_is(n->op, MASKS))
            lower[r] = 1;
        switch (n->op) {
        case OP_mul: lower[r] = a || b; break;
        case OP_add: case OP_sub: lower[r] = a && b; break;
        case OP_neg: lower[r] = a; break;
        }
    }
    return lower;
}

static bool lists(const Kernel *k, Ref r)
{
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] == r)
            return true;
    return false;
}

void analyse_plan(Compile *k)
{
    const Plan *p = k->p;
    size_t n = k->g->len;

    k->stored_kernel = ctx_alloc(k->c, n * sizeof *k->stored_kernel);
    k->has = ctx_alloc(k->c, n);
    k->pre = ctx_alloc(k->c, n);
    k->kept = ctx_alloc(k->c, n);
    k->wanted_lower = ctx_alloc(k->c, n);
    k->done = ctx_alloc(k->c, n);
    k->uses = ctx_alloc(k->c, n * sizeof *k->uses);
    k->slot = ctx_alloc(k->c, n * sizeof *k->slot);
    k->low = ctx_alloc(k->c, n * sizeof *k->low);
    k->wide_of = ctx_alloc(k->c, n * sizeof *k->wide_of);
    k->fused = ctx_alloc(k->c, n * sizeof *k->fused);
    k->body = ctx_alloc(k->c, n * sizeof *k->body);
    for (int at = p->nkernels - 1; at >= 0; at--) {
        for (int i = 0; i < p->kernel[at].nnodes; i++)
            k->stored_kernel[p->kernel[at].node[i]] = at;
        for (int i = 0; i < k->g->nout; i++)
            if (lists(&p->kernel[at], k->g->out[i].node))
                k->out_kernel[i] = at;
    }
}

/* ---- a kernel ---- */

static bool elementwise(const Node *n)
{
    return op_info[n->op].traits & ELEMENTWISE;
}

/* The same for every chunk, whatever its length. */
static bool is_constant(const Compile *k, const Node *n)
{
    AxisSet tokens = AXIS(AX_I) | AXIS(AX_J);

    if (n->timed || n->states)
        return false;
    if (op_is(n->op, ONE_ROW) || n->flags & REVERSE || n->over & tokens)
        return false;
    for (int p = 0; p < 4; p++)
        if (n->a[p] && !k->pre[n->a[p]])
            return false;
    return true;
}

static void find_uses(Compile *k)
{
    for (Ref r = 1; r < k->g->len; r++) {
        for (int p = 0; k->has[r] && p < 4; p++)
            k->uses[k->g->n[r].a[p]]++;
        k->uses[r] += k->kept[r];
    }
    for (int i = 0; i < k->ncarry_wanted; i++)
        k->uses[k->g->st[k->carried[i]].next]++;
}

/* Scores of which only the lower triangle goes anywhere. */
static void find_lower(Compile *k)
{
    AxisSet both = AXIS(AX_I) | AXIS(AX_J);

    for (Ref r = 1; r < k->g->len; r++)
        k->wanted_lower[r] = k->has[r] && !k->kept[r]
                          && (k->g->n[r].axes & both) == both;
    for (Ref r = (Ref)k->g->len - 1; r > 0; r--) {
        const Node *n = &k->g->n[r];
        for (int p = 0; k->has[r] && p < 4; p++) {
            Ref x = n->a[p];
            bool masked = n->op == OP_mul && k->l.lower[n->a[!p]];
            if (!elementwise(n) || !(masked || k->wanted_lower[r]))
                k->wanted_lower[x] = 0;
        }
    }
    for (int i = 0; i < k->ncarry_wanted; i++)
        k->wanted_lower[k->g->st[k->carried[i]].next] = 0;
}

static bool can_fuse(const Compile *k, const Node *n, Ref d, Ref x)
{
    const Node *nd = &k->g->n[d];

    return k->has[d] && !k->pre[d] && is_plain_contraction(nd->op)
        && k->uses[d] == 1 && x != d && nd->axes == n->axes
        && k->g->n[x].axes == n->axes
        && lower_node(&k->l, d, 0).kind == DOT_GEMM;
}

static void find_fused(Compile *k)
{
    for (Ref r = 1; r < k->g->len; r++) {
        const Node *n = &k->g->n[r];
        if (!k->has[r] || k->pre[r] || (n->op != OP_add && n->op != OP_sub))
            continue;
        if (can_fuse(k, n, n->a[1], n->a[0]))
            k->fused[r] = n->a[1];
        else if (n->op == OP_add && can_fuse(k, n, n->a[0], n->a[1]))
            k->fused[r] = n->a[0];
        if (k->fused[r])
            k->done[k->fused[r]] = 1;
    }
}

/* A state that is a plain sum goes on in double from chunk to chunk. */
static void find_wide(Compile *k)
{
    int n = 0;

    for (int i = 0; i < k->ncarry_wanted; i++) {
        const State *s = &k->g->st[k->carried[i]];
        Ref sum = state_sum(k->g, k->carried[i]);
        if (sum && k->has[sum] && k->g->n[sum].axes
                                  == (k->g->n[s->node].axes | AXIS(AX_I)))
            k->wide_of[sum] = (int16_t)n++;
    }
}

static void clear_arrays(Compile *k)
{
    size_t n = k->g->len;

    memset(k->has, 0, n);
    memset(k->pre, 0, n);
    memset(k->kept, 0, n);
    memset(k->done, 0, n);
    memset(k->uses, 0, n * sizeof *k->uses);
    memset(k->fused, 0, n * sizeof *k->fused);
    for (Ref r = 0; r < n; r++) {
        k->slot[r] = k->low[r] = -1;
        k->wide_of[r] = -1;
    }
    k->nbody = k->ncarry_wanted = k->nchain = 0;
}

static bool is_leaf(int op)
{
    return op == OP_input || op == OP_state || op == OP_num || op == OP_size;
}

void analyse_kernel(Compile *k, const Kernel *kernel)
{
    clear_arrays(k);
    for (int i = 0; i < kernel->nnodes; i++)
        k->has[kernel->node[i]] = 1;
    for (int s = 0; s < k->g->nst; s++)
        if (kernel->states & STATE(s))
            k->carried[k->ncarry_wanted++] = s;
    for (Ref r = 1; r < k->g->len; r++) {
        const Node *n = &k->g->n[r];
        bool leaf = is_leaf(n->op) && n->op != OP_state;
        k->pre[r] = (k->has[r] || leaf) && is_constant(k, n);
        k->kept[r] = k->has[r] && k->p->stored[r]
                  && k->stored_kernel[r] == k->at;
    }
    for (int i = 0; i < k->g->nout; i++)
        if (k->out_kernel[i] == k->at)
            k->kept[k->g->out[i].node] = 1;
    find_uses(k);
    find_lower(k);
    find_fused(k);
    find_wide(k);
    for (int i = 0; i < kernel->nnodes; i++) {
        Ref r = kernel->node[i];
        if (!k->pre[r] && !k->done[r] && !is_leaf(k->g->n[r].op))
            k->body[k->nbody++] = r;
    }
}

/* ---- places ---- */

static void touch(TileKernel *k, int slot, int at)
{
    if (slot < 0)
        return;
    Slot *s = &k->slot[slot];
    if (s->first < 0)
        s->first = at;
    s->last = at;
}

/* Places taken now, by slot, in the order of memory. */
typedef struct Taken { int *slot; int n; int64_t base, top; } Taken;

static void take_place(TileKernel *k, Taken *t, int slot)
{
    Slot *s = &k->slot[slot];
    int64_t want = (s->floats + 15) / 16 * 16, at = t->base;
    int i = 0;

    for (; i < t->n; i++) {
        const Slot *o = &k->slot[t->slot[i]];
        if (o->at - at >= want)
            break;
        at = o->at + (o->floats + 15) / 16 * 16;
    }
    memmove(&t->slot[i + 1], &t->slot[i], (size_t)(t->n - i) * sizeof(int));
    t->slot[i] = slot;
    t->n++;
    s->at = at;
    if (at + want > t->top)
        t->top = at + want;
}

static void free_places(const TileKernel *k, Taken *t, int at, bool locals)
{
    int n = 0;

    for (int i = 0; i < t->n; i++) {
        const Slot *s = &k->slot[t->slot[i]];
        if (s->last > at || s->local != locals)
            t->slot[n++] = t->slot[i];
    }
    t->n = n;
}

/* Kept tiles first; then each for as long as it is needed. The tiles of a
 * chain live as long as the chain, its strips in turn. */
void place_tiles(TileKernel *k, Ctx *c)
{
    Taken taken = { 0 }, *t = &taken;
    const List *l = &k->body;

    t->slot = ctx_alloc(c, ((size_t)k->nslots + 1) * sizeof *t->slot);
    for (int i = 0; i < l->n; i++) {
        touch(k, l->in[i].y, i);
        for (int p = 0; p < OPERANDS; p++)
            touch(k, l->in[i].x[p], i);
    }
    for (int s = 0; s < k->nslots; s++) {
        if (!k->slot[s].pinned)
            continue;
        k->slot[s].at = t->base;
        t->base += (k->slot[s].floats + 15) / 16 * 16;
    }
    k->kept = t->top = t->base;
    for (int i = 0, end; i < l->n; i = end) {
        end = i + (l->in[i].code == I_ELEM ? l->in[i].chain : 1);
        for (int pass = 0; pass < 2; pass++)
            for (int j = i; j < end; j++) {
                const Slot *s = &k->slot[l->in[j].y < 0 ? 0 : l->in[j].y];
                if (l->in[j].y >= 0 && !s->pinned && s->first == j
                    && s->local == pass)
                    take_place(k, t, l->in[j].y);
                if (pass)
                    free_places(k, t, j, true);
            }
        free_places(k, t, end - 1, false);
    }
    k->floats = t->top;
}
