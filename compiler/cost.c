/* cost.c -- what a kernel moves, computes, holds, and how long it takes. */
#include "cost.h"

#include <math.h>
#include <string.h>

static double elements(const Graph *g, AxisSet s)
{
    return (double)axes_size(g, s);
}

/* ---- shapes ---- */

/* Which states the kernel carries, and so which way it walks. */
static bool find_kind(const Atoms *a, const Set *atoms, Shape *s)
{
    bool forward = false, reverse = false, late = false, early = false;

    for (int i = 0; i < a->n; i++) {
        const Atom *at = &a->atom[i];
        if (!set_has(atoms, i))
            continue;
        late |= at->late;
        early |= at->root && !at->late;
        for (int k = 0; at->states && k < a->g->nst; k++) {
            if (!(at->states & STATE(k)))
                continue;
            if (!set_within(&a->serial[k], atoms))
                return false;
            forward |= !a->g->st[k].reverse;
            reverse |= a->g->st[k].reverse;
        }
        s->states |= at->states;
    }
    s->kind = forward ? K_FORWARD : reverse ? K_REVERSE : K_TOKEN;
    return !(forward && reverse) && !(late && early);
}

static double product_flops(const Graph *g, const Node *n)
{
    AxisSet all = g->n[n->a[0]].axes | g->n[n->a[1]].axes;

    return 2 * elements(g, all | n->axes) * (op_is(n->op, MASKS) ? 1.3 : 1);
}

static void add_work(const Graph *g, Ref r, Work *w)
{
    const Node *n = &g->n[r];

    if (node_is_leaf(n) || op_is(n->op, RENAMES))
        return;
    w->steps++;
    if (is_decayed_system(n->op))       /* a pair of tokens at a time */
        w->elements += elements(g, n->axes | g->n[n->a[0]].axes) / 2;
    else if (node_is_product(g, n))
        w->flops += product_flops(g, n);
    else
        w->elements += elements(g, n->axes | n->over);
}

/* Marks the node and the cheap ones below it; adds up what they cost. */
static void take_node(const Atoms *a, const Set *atoms, Shape *s, Ref r)
{
    const Node *n = &a->g->n[r];

    if (s->nodes[r] || node_is_leaf(n))
        return;
    if (a->of[r] >= 0 && !set_has(atoms, a->of[r]))
        return;
    s->nodes[r] = 1;
    add_work(a->g, r, &s->work);
    for (int i = 0; i < 4; i++)
        if (n->a[i])
            take_node(a, atoms, s, n->a[i]);
}

static double load_bytes(const Atoms *a, const Shape *s)
{
    double bytes = 0;

    for (int t = 0; t < a->ntensors; t++)
        if (set_has(&s->loads, t))
            bytes += tile_bytes(a->g, a->m, t < a->n ? a->atom[t].node
                                : a->g->st[t - a->n].node);
    for (int i = 0; i < a->g->nin; i++)
        if (input_has(&s->inputs, i))
            bytes += tile_bytes(a->g, a->m, a->g->in[i].node);
    return bytes;
}

/* Products one after another from a carried state to its next value. */
static int chain_links(const Atoms *a, const Set *atoms, const Shape *s)
{
    int *depth = ctx_alloc(a->g->ctx, (size_t)(a->n + 1) * sizeof *depth);
    int most = 0;

    for (int i = 0; i < a->n; i++) {
        bool serial = false;
        for (int k = 0; k < a->g->nst; k++)
            serial |= s->states >> k & 1 && set_has(&a->serial[k], i);
        if (!serial || !set_has(atoms, i))
            continue;
        for (int k = 0; k < i; k++)
            if (set_has(&a->atom[i].needs, k) && depth[k] > depth[i])
                depth[i] = depth[k];
        depth[i]++;
        most = depth[i] > most ? depth[i] : most;
    }
    return most;
}

/* ---- time ---- */

static double busy(const Machine *m, const Work *w)
{
    if (m->units == 1)                  /* one core does it all in turn */
        return w->flops / m->matrix + w->elements / m->vector
             + w->steps * m->step;
    return fmax(w->flops / m->matrix, w->elements / m->vector);
}

static double chain_seconds(const Machine *m, KernelKind kind, int links)
{
    return kind == K_TOKEN ? 0 : (m->chain + m->link * links) / m->units;
}

static double kernel_seconds(const Machine *m, KernelKind kind,
                             const Work *w, double bytes, int links)
{
    double memory = bytes / m->bandwidth, work = busy(m, w);

    work = m->units == 1 ? work + memory : fmax(work, memory);
    return fmax(work, chain_seconds(m, kind, links))
         + 0.02 * (w->flops / m->matrix + w->elements / m->vector)
         + m->launch / m->spread;
}

void price_kernel(const Graph *g, const Machine *m, Kernel *k, int links)
{
    Work all = { 0 }, of[NROLES] = { { 0 } };

    for (int i = 0; i < k->nnodes; i++) {
        add_work(g, k->node[i], &all);
        add_work(g, k->node[i], &of[k->role[i]]);
    }
    k->seconds = kernel_seconds(m, k->kind, &all, k->bytes, links);
    k->spent[R_LOAD] = k->bytes / m->bandwidth;
    k->spent[R_AHEAD] = busy(m, &of[R_AHEAD]);
    k->spent[R_SERIAL] = fmax(busy(m, &of[R_SERIAL]),
                              chain_seconds(m, k->kind, links));
}

static bool kernel_has(const Kernel *k, Ref r)
{
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] == r)
            return true;
    return false;
}

double kernel_moves(const Plan *p, int at, const Machine *m)
{
    const Graph *g = p->g;
    const Kernel *k = &p->kernel[at];
    uint8_t *has = ctx_alloc(g->ctx, g->len), *moved;
    double bytes = 0;

    moved = ctx_alloc(g->ctx, g->len);
    for (int i = 0; i < k->nnodes; i++)
        has[k->node[i]] = 1;
    for (int i = 0; i < k->nnodes; i++) {
        moved[k->node[i]] |= g->n[k->node[i]].op == OP_input;
        for (int a = 0; a < 4; a++) {
            Ref r = g->n[k->node[i]].a[a];
            moved[r] |= r && !has[r] && (g->n[r].op == OP_input
                        || g->n[r].op == OP_state || !node_is_leaf(&g->n[r]));
        }
    }
    for (int i = 0; i < g->nout; i++) {
        Ref r = g->out[i].node;
        int first = 0;
        while (first < at && !kernel_has(&p->kernel[first], r))
            first++;
        moved[r] |= has[r] && first == at;
    }
    for (Ref r = 1; r < g->len; r++)
        if (moved[r] || plan_keeps(p, at, r))
            bytes += tile_bytes(g, m, r);
    return bytes;
}

/* Of what a copy moves, a kernel. */
static const double copy_reached = 0.84;

/* Blocks there are at once. */
static double slots(const Machine *m, const GpuWork *w)
{
    return m->units * (w->resident ? w->resident : 1);
}

/* Of a kernel that computes for so long, and moves so many bytes. Who walks has
 * the next chunk under way; a block of one chunk waits for much of its own. */
static double seconds_of(const Machine *m, const GpuWork *w, double computing,
                         double bytes)
{
    const double waited = 0.915;
    double moving = bytes / m->bandwidth;

    return w->walks ? fmax(moving / copy_reached, computing)
         : fmax(moving, waited * moving + computing);
}

double gpu_seconds(const Machine *m, const GpuWork *w)
{
    double share = w->blocks / slots(m, w);

    if (w->walks)
        share = ceil(m->walks * share) / m->walks;
    return seconds_of(m, w, w->cycles / m->clock * share, w->bytes)
         + m->launch / m->spread;
}

double gpu_call_seconds(const Machine *m, const GpuWork *w, double walks,
                        double longest, double chunks)
{
    double blocks = w->blocks * (w->walks ? walks : chunks);
    double turns = ceil(blocks / slots(m, w)) * (w->walks ? longest : 1);

    return seconds_of(m, w, w->cycles / m->clock * turns, w->bytes * chunks)
         + m->launch;
}

/* Fitted to what the delta rule and the gated one take of 16 heads of 2 x 16384
 * tokens, K = V = 128 (an H200): 1.9 and 2.4 us a chunk, of all columns by
 * price 2.5 and 3.1. */
double half_columns(void) { return 0.75; }

double price_plan(Plan *p, const Machine *m)
{
    double seconds = 0;

    for (int i = 0; i < p->nkernels; i++) {
        price_kernel(p->g, m, &p->kernel[i], 0);
        seconds += p->kernel[i].seconds;
    }
    return seconds;
}

bool shape_of(const Atoms *a, const Set *atoms, Shape *s)
{
    Set needs = { 0 };

    memset(s, 0, sizeof *s);
    if (!find_kind(a, atoms, s))
        return false;
    for (int i = 0; i < a->n; i++)
        if (set_has(atoms, i)) {
            needs = set_union(needs, &a->atom[i].needs);
            for (int k = 0; k < a->g->nin; k++)
                if (input_has(&a->atom[i].inputs, k))
                    input_add(&s->inputs, k);
        }
    s->makes = *atoms;
    for (int i = 0; i < a->g->nst; i++)
        if (s->states >> i & 1)
            set_add(&s->makes, a->n + i);
    s->loads = set_minus(needs, &s->makes);
    s->nodes = ctx_alloc(a->g->ctx, a->g->len);
    for (int i = 0; i < a->n; i++)
        if (set_has(atoms, i))
            take_node(a, atoms, s, a->atom[i].node);
    s->bytes = load_bytes(a, s);
    s->held = held_bytes(a, atoms, s);
    s->links = chain_links(a, atoms, s);
    s->seconds = kernel_seconds(a->m, s->kind, &s->work, s->bytes, s->links);
    return s->held <= a->m->shared
        && carried_bytes(a, s) <= (double)a->m->registers;
}
