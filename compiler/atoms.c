/* atoms.c -- the pieces of a graph that are placed in kernels. */
#include "cost.h"

#include <math.h>
#include <string.h>

enum { MAX_CUTS = 12 };

bool node_is_product(const Graph *g, const Node *n)
{
    return op_is(n->op, MULTIPLIES)
        && (!op_is(n->op, FOLDS)
            || !(g->n[n->a[0]].axes & g->n[n->a[1]].axes & ~n->over));
}

bool node_is_leaf(const Node *n)
{
    return op_is(n->op, CONST | GIVEN);
}

double tile_bytes(const Graph *g, const Machine *m, Ref r)
{
    const Node *n = &g->n[r];
    bool tile = n->axes & DIM_AXES || (n->axes & AXIS(AX_J)
                                       && n->axes & AXIS(AX_I));

    if (n->op == OP_input && !(n->axes & AXIS(AX_I)))
        return 0;                       /* once a head */
    return (double)axes_size(g, n->axes) * (tile ? m->tile_bytes : 4);
}

/* Behind the loss: needs the gradient that comes in. */
static bool *late_nodes(const Graph *g)
{
    bool *late = ctx_alloc(g->ctx, g->len);

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        late[r] = (n->op == OP_state && g->st[n->index].reverse)
               || (n->op == OP_input && input_is_adjoint(&g->in[n->index]));
        for (int i = 0; i < 4; i++)
            late[r] |= n->a[i] && late[n->a[i]];
    }
    return late;
}

/* What stands right below r, through cheap nodes. */
static void below(Atoms *a, Atom *at, Ref r, uint8_t *seen)
{
    const Node *n = &a->g->n[r];

    for (int i = 0; i < 4; i++) {
        Ref x = n->a[i];
        if (!x || seen[x])
            continue;
        seen[x] = 1;
        const Node *m = &a->g->n[x];
        if (a->of[x] >= 0)
            set_add(&at->needs, a->of[x]);
        else if (m->op == OP_state)
            set_add(&at->needs, a->n + m->index);
        else if (m->op == OP_input)
            input_add(&at->inputs, m->index);
        else
            below(a, at, x, seen);
    }
}

/* The atoms on a way from the state to its next value. */
static void find_serial(Atoms *a, int s)
{
    Ref next = a->g->st[s].next;
    Set up = { 0 }, down = { 0 };

    if (!next || a->of[next] < 0)
        return;
    for (int i = 0; i < a->n; i++)      /* atoms are in node order */
        if (set_has(&a->atom[i].needs, a->n + s)
            || set_meets(&a->atom[i].needs, &up))
            set_add(&up, i);
    set_add(&down, a->of[next]);
    for (int i = a->n - 1; i >= 0; i--)
        if (set_has(&down, i))
            down = set_union(down, &a->atom[i].needs);
    for (int i = 0; i < a->n; i++)
        if ((set_has(&up, i) && set_has(&down, i)) || i == a->of[next])
            set_add(&a->serial[s], i);
}

static StateSet next_of(const Graph *g, Ref r)
{
    StateSet s = 0;

    for (int i = 0; i < g->nst; i++)
        s |= g->st[i].next == r ? STATE(i) : 0;
    return s;
}

static void store_prices(Atoms *a)
{
    a->store = ctx_alloc(a->g->ctx, (size_t)a->ntensors * sizeof *a->store);
    for (int t = 0; t < a->ntensors; t++) {
        bool state = t >= a->n;
        Ref r = state ? a->g->st[t - a->n].node : a->atom[t].node;
        if (!state && a->atom[t].states)
            continue;                   /* a final state: once a sequence */
        a->store[t] = llround(tile_bytes(a->g, a->m, r) / a->m->bandwidth
                              * 1e12);
    }
}

/* The atoms: products, roots, and what has been cut out. */
static void list_atoms(Atoms *a, const bool *late, const uint8_t *cut)
{
    const Graph *g = a->g;

    a->n = 0;
    for (Ref r = 0; r < g->len; r++) {
        const Node *n = &g->n[r];
        a->of[r] = -1;
        if (!a->live[r] || node_is_leaf(n)
            || !(node_is_product(g, n) || graph_is_root(g, r) || cut[r]))
            continue;
        a->of[r] = a->n;
        a->atom[a->n++] = (Atom){ .node = r, .late = late[r],
                                  .root = graph_is_root(g, r),
                                  .states = next_of(g, r) };
    }
    a->ntensors = a->n + g->nst;
}

/* Bytes of all that stands right below the node. */
static double bytes_below(Atoms *a, Ref r, uint8_t *seen)
{
    Atom at = { 0 };
    double bytes = 0;

    memset(seen, 0, a->g->len);
    below(a, &at, r, seen);
    for (int t = 0; t < a->ntensors; t++)
        if (set_has(&at.needs, t))
            bytes += tile_bytes(a->g, a->m, t < a->n ? a->atom[t].node
                                : a->g->st[t - a->n].node);
    for (int i = 0; i < a->g->nin; i++)
        if (input_has(&at.inputs, i))
            bytes += tile_bytes(a->g, a->m, a->g->in[i].node);
    return bytes;
}

/* What atoms are below. */
static uint8_t *above_atoms(const Atoms *a)
{
    uint8_t *above = ctx_alloc(a->g->ctx, a->g->len);

    for (Ref r = 1; r < a->g->len; r++)
        for (int i = 0; i < 4; i++) {
            Ref x = a->g->n[r].a[i];
            above[r] |= x && (above[x] || a->of[x] >= 0);
        }
    return above;
}

/* Whether scores that are no atom stand below both parts of a cut. What they
 * are made of may be rounded in memory for one kernel and not for another; a
 * gate's gradient takes the sums of their columns from those of their rows,
 * which cancel if all of them are of the same numbers. */
static bool parts_scores(const Atoms *a, const uint8_t *above,
                         const uint8_t *part, const uint8_t *rest)
{
    AxisSet scores = AXIS(AX_I) | AXIS(AX_J);

    for (Ref r = 1; r < a->g->len; r++)
        if (part[r] && rest[r] && above[r] && a->of[r] < 0
            && (a->g->n[r].axes & scores) == scores)
            return true;
    return false;
}

/* An atom that sums up more tiles than a machine holds at a time is worked
 * off in two: what is below it is cut where that is most even. */
static bool cut_atom(Atoms *a, Ref r, uint8_t *cut)
{
    uint8_t *tree = ctx_alloc(a->g->ctx, a->g->len);
    uint8_t *seen = ctx_alloc(a->g->ctx, a->g->len);
    uint8_t *left = ctx_alloc(a->g->ctx, a->g->len);
    const uint8_t *above = above_atoms(a);
    double all = bytes_below(a, r, tree), best[2] = { 0.8 * all, 0.8 * all };
    Ref at[2] = { 0 };                  /* of those that part no scores, and
                                           of all */

    if (all < (double)a->m->shared / 2)
        return false;
    for (Ref x = 1; x < r; x++) {
        const Node *n = &a->g->n[x];
        if (!tree[x] || a->of[x] >= 0 || node_is_leaf(n))
            continue;
        double part = bytes_below(a, x, seen);
        cut[x] = 1;
        a->of[x] = a->n;                /* as if it were one */
        a->atom[a->n].node = x;
        a->n++;
        a->ntensors++;
        double rest = bytes_below(a, r, left);
        bool parts = parts_scores(a, above, seen, left);
        a->n--;
        a->ntensors--;
        a->of[x] = -1;
        cut[x] = 0;
        part = part > rest ? part : rest;
        for (int i = parts; i < 2; i++)
            if (part < best[i]) {
                best[i] = part;
                at[i] = x;
            }
    }
    if (at[0] || at[1])
        cut[at[0] ? at[0] : at[1]] = 1;
    return at[0] || at[1];
}

/* ---- sums ---- */

/* The one live user of each node; UINT32_MAX where there are more. Roots are
 * used by the caller. */
static Ref *only_users(const Atoms *a)
{
    const Graph *g = a->g;
    Ref *user = ctx_alloc(g->ctx, g->len * sizeof *user);

    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; a->live[r] && i < 4; i++) {
            Ref x = g->n[r].a[i];
            user[x] = user[x] && user[x] != r ? UINT32_MAX : r;
        }
    for (Ref r = 1; r < g->len; r++)
        if (graph_is_root(g, r))
            user[r] = UINT32_MAX;
    return user;
}

/* What stands for a matrix state wherever that is read, itself but for what is
 * added to it: kept in its place. */
static void cut_found(const Atoms *a, uint8_t *cut)
{
    const Graph *g = a->g;
    const Ref *user = only_users(a);

    for (int s = 0; s < g->nst; s++) {
        Ref r = user[g->st[s].node];
        if (r && r != UINT32_MAX && g->st[s].rank > 1
            && tile_bytes(g, a->m, r) < (double)a->m->shared / 4
            && (g->n[r].op == OP_add || g->n[r].op == OP_sub)
            && g->n[r].axes == g->st[s].axes && !graph_is_root(g, r))
            cut[r] = 1;
    }
}

/* Whether a tile of the node's size stands below it. */
static bool has_tile(Atoms *a, Ref r, double bytes)
{
    uint8_t *seen = ctx_alloc(a->g->ctx, a->g->len);
    Atom at = { 0 };

    if (a->of[r] >= 0)
        return tile_bytes(a->g, a->m, r) >= bytes;
    if (node_is_leaf(&a->g->n[r]))
        return a->g->n[r].op == OP_input
            && tile_bytes(a->g, a->m, r) >= bytes;
    below(a, &at, r, seen);
    for (int t = 0; t < a->n; t++)
        if (set_has(&at.needs, t)
            && tile_bytes(a->g, a->m, a->atom[t].node) >= bytes)
            return true;
    return false;
}

/* Whether x reaches its user's entries one by one, as a term of a sum or
 * scaled by something smaller. */
static bool adds_up(Atoms *a, Ref x, Ref user)
{
    const Node *n = &a->g->n[user];
    double bytes = tile_bytes(a->g, a->m, x);

    if (tile_bytes(a->g, a->m, user) != bytes)
        return false;
    switch (n->op) {
    case OP_add: case OP_sub:
        return n->a[0] != n->a[1];
    case OP_neg:
        return true;
    case OP_mul:
        return !has_tile(a, n->a[0] == x ? n->a[1] : n->a[0], bytes);
    }
    return op_is(n->op, RENAMES);
}

/* The largest sum that the atom is but a term of. */
static void find_sums(Atoms *a)
{
    Ref *user = only_users(a);

    for (int i = 0; i < a->n; i++) {
        Ref x = a->atom[i].node, top = 0;
        while (user[x] != UINT32_MAX && user[x] && adds_up(a, x, user[x])) {
            x = user[x];
            if (a->g->n[x].op == OP_add || a->g->n[x].op == OP_sub)
                top = x;
            if (a->of[x] >= 0)
                break;
        }
        a->atom[i].sum = top;
    }
}

Atoms *atoms_find(Graph *g, const Machine *m)
{
    Atoms *a = ctx_alloc(g->ctx, sizeof *a);
    bool *late = late_nodes(g), again = true;
    uint8_t *cut = ctx_alloc(g->ctx, g->len);

    a->g = g;
    a->m = m;
    a->live = ctx_alloc(g->ctx, g->len);
    a->of = ctx_alloc(g->ctx, g->len * sizeof *a->of);
    a->atom = ctx_alloc(g->ctx, g->len * sizeof *a->atom);
    graph_live(g, a->live);
    cut_found(a, cut);
    for (int round = 0; again && round < MAX_CUTS; round++) {
        again = false;
        list_atoms(a, late, cut);
        if (a->ntensors > MAX_TENSORS)
            return a;
        for (int i = 0, n = a->n; i < n; i++)
            again |= cut_atom(a, a->atom[i].node, cut);
    }
    list_atoms(a, late, cut);
    if (a->ntensors > MAX_TENSORS)
        return a;
    for (int i = 0; i < a->n; i++)
        below(a, &a->atom[i], a->atom[i].node, ctx_alloc(g->ctx, g->len));
    find_sums(a);
    for (int s = 0; s < g->nst; s++)
        find_serial(a, s);
    for (int i = 0; i < a->n; i++)
        if (a->atom[i].root && !a->atom[i].late)
            set_add(&a->early_roots, i);
    store_prices(a);
    return a;
}
