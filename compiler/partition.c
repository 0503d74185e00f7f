/* partition.c -- group nodes into kernels, moving the fewest bytes.
 *
 * A pool of columns (convex or not: a circle is cut when it shows) is grown
 * from the two ends: each atom alone, and all that a walk can hold, with what
 * it needs of the forward pass loaded, or computed again. From there by one
 * atom more or less. The choice is made, the pool grows around what was
 * chosen, until that changes nothing. A small graph's pool is all columns.
 */
#include "cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_POOL = 900, ALL_UP_TO = 10, MAX_GROWTH = 8, MAX_PROOFS = 3 };

typedef struct Pool {
    Atoms *a;
    Column *column;
    Set *atoms;                         /* beside the columns */
    int n;
    int *hash, cap;
} Pool;

static Set set_below(Set s, int n)
{
    for (int i = 0; i < MAX_TENSORS / 64; i++) {
        int bits = n - 64 * i;
        s.w[i] = bits <= 0 ? 0 : bits >= 64 ? s.w[i]
               : s.w[i] & (((uint64_t)1 << bits) - 1);
    }
    return s;
}

static bool set_empty(const Set *s)
{
    return !(s->w[0] | s->w[1] | s->w[2]);
}

/* ---- the pool ---- */

static bool known(Pool *p, const Set *s)
{
    uint64_t h = s->w[0] * 0x9e3779b97f4a7c15u ^ s->w[1] * 0xc2b2ae3d27d4eb4fu
               ^ s->w[2] * 0x165667b19e3779f9u;

    for (h ^= h >> 29;; h++) {
        int *slot = &p->hash[h & (uint64_t)(p->cap - 1)];
        if (!*slot) {
            *slot = p->n + 1;
            return false;
        }
        if (*slot <= p->n && set_equal(&p->atoms[*slot - 1], s))
            return true;
    }
}

/* The serial atoms of every state whose next value is among them. */
static Set closed(const Atoms *a, Set s)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; set_has(&s, i) && k < a->g->nst; k++)
            if (a->atom[i].states & STATE(k))
                s = set_union(s, &a->serial[k]);
    return s;
}

/* Adds the column of these atoms, if one can hold them. */
static void offer(Pool *p, Set s)
{
    Atoms *a = p->a;
    Shape shape;

    s = closed(a, s);
    if (set_empty(&s) || p->n == MAX_POOL || !shape_of(a, &s, &shape)
        || known(p, &s))
        return;
    Column *c = &p->column[p->n];
    p->atoms[p->n++] = s;
    c->price = llround(shape.seconds * 1e12);
    c->makes = shape.makes;
    c->loads = shape.loads;
    for (int i = 0; i < a->n; i++)      /* kept beside what the caller gets */
        if (set_has(&shape.loads, i) && a->atom[i].root)
            c->price += llround(tile_bytes(a->g, a->m, a->atom[i].node)
                                / a->m->bandwidth * 1e12);
    c->after = (Set){ 0 };
    for (int i = 0; i < a->n; i++)
        if (set_has(&s, i) && a->atom[i].late)
            c->after = a->early_roots;
}

/* ---- where columns come from ---- */

/* Whether the value depends on a state that runs forwards, and so can be
 * known again elsewhere only where that state is stored. */
static Set early_atoms(const Atoms *a)
{
    Set s = { 0 };

    for (int i = 0; i < a->n; i++)
        if (!a->atom[i].late)
            set_add(&s, i);
    return s;
}

static Set late_atoms(const Atoms *a)
{
    Set s = { 0 };

    for (int i = 0; i < a->n; i++)
        if (a->atom[i].late)
            set_add(&s, i);
    return s;
}

/* Early atoms that s needs, at any depth, roots left out: what could be
 * computed again. */
static Set recomputable(const Atoms *a, Set s)
{
    Set again = { 0 };

    for (int i = a->n - 1; i >= 0; i--) {
        if (!set_has(&s, i) && !set_has(&again, i))
            continue;
        for (int k = 0; k < i; k++)
            if (set_has(&a->atom[i].needs, k) && !a->atom[k].late
                && !a->atom[k].states && !a->atom[k].root)
                set_add(&again, k);
    }
    return again;
}

static void offer_parts(Pool *p, Set base, Set again)
{
    Atoms *a = p->a;

    offer(p, base);
    offer(p, set_union(base, &again));
    for (int i = 0; i < a->n; i++) {
        Set one = { 0 };
        if (!set_has(&again, i))
            continue;
        set_add(&one, i);
        Set rest = set_minus(again, &one);
        offer(p, set_union(base, &rest));
        offer(p, set_union(base, &one));
    }
}

static void seed_pool(Pool *p)
{
    Atoms *a = p->a;
    Set early = early_atoms(a), late = late_atoms(a), walk = { 0 };

    if (a->n <= ALL_UP_TO) {
        for (uint64_t m = 1; m < (uint64_t)1 << a->n; m++)
            offer(p, (Set){ { m } });
        return;
    }
    for (int i = 0; i < a->n; i++) {
        Set s = { 0 };
        set_add(&s, i);
        offer(p, s);
    }
    offer(p, early);
    offer_parts(p, late, recomputable(a, late));
    for (int pass = 0; pass < 2; pass++) {      /* the walks alone */
        walk = (Set){ 0 };
        for (int i = 0; i < a->n; i++)
            if (a->atom[i].states && a->atom[i].late == pass)
                set_add(&walk, i);
        walk = closed(a, walk);
        offer_parts(p, walk, recomputable(a, walk));
        Set rest = set_minus(pass ? late : early, &walk);
        offer_parts(p, rest, recomputable(a, rest));
    }
}

/* One atom more, or less, than column i has. */
static void grow(Pool *p, int i)
{
    Atoms *a = p->a;
    Set s = p->atoms[i], loads = set_below(p->column[i].loads, a->n);

    for (int k = 0; k < a->n; k++) {
        Set more = s, less = s;
        bool above = set_meets(&a->atom[k].needs, &s);
        set_add(&more, k);
        if (set_has(&loads, k) || (above && !set_has(&s, k)))
            offer(p, more);
        less.w[k / 64] &= ~((uint64_t)1 << (k % 64));
        if (set_has(&s, k))
            offer(p, less);
    }
}

/* ---- the answer as a plan ---- */

static const char *kernel_name(const Pool *p, const Shape *s, const Set *atoms)
{
    bool late = false;

    for (int i = 0; i < p->a->n; i++)
        late |= set_has(atoms, i) && p->a->atom[i].late;
    if (s->kind == K_TOKEN)
        return late ? "token_backward" : "token_forward";
    return s->kind == K_REVERSE ? "backward" : "forward";
}

/* What a kernel writes: its roots and what others load, once each. */
static double written(const Pool *p, const Answer *w, const Shape *s,
                      Set *done)
{
    Atoms *a = p->a;
    Set loaded = { 0 };
    double bytes = 0;

    for (int i = 0; i < w->n; i++)
        loaded = set_union(loaded, &p->column[w->column[i]].loads);
    for (int t = 0; t < a->ntensors; t++) {
        if (!set_has(&s->makes, t) || !set_has(&w->stored, t)
            || set_has(done, t))
            continue;
        set_add(done, t);
        double tile = tile_bytes(a->g, a->m, t < a->n ? a->atom[t].node
                                 : a->g->st[t - a->n].node);
        bytes += a->store[t] ? tile : 0;
        if (t < a->n && a->atom[t].root && set_has(&loaded, t))
            bytes += tile;              /* beside the caller's */
    }
    return bytes;
}

static bool has_node(const Kernel *k, Ref r)
{
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] == r)
            return true;
    return false;
}

/* A state that becomes a leaf (itself: nothing is added to it; or another
 * state) is no atom's: a kernel that walks its way carries it, beside the
 * other one. */
static void carry_leaf(Plan *p, const State *s)
{
    const Graph *g = p->g;
    const Node *n = &g->n[s->next];
    Ref with = n->op == OP_state ? g->st[n->index].next : 0;

    for (int i = 0; i < p->nkernels; i++) {
        Kernel *k = &p->kernel[i];
        if (k->kind != (s->reverse ? K_REVERSE : K_FORWARD)
            || (with && with != s->next && !has_node(k, with)))
            continue;
        if (!has_node(k, s->next))
            k->node[k->nnodes++] = s->next;
        return;
    }
}

static Plan *make_plan(Pool *p, const Answer *w, PartitionInfo *info)
{
    Atoms *a = p->a;
    Ctx *c = a->g->ctx;
    Plan *plan = ctx_alloc(c, sizeof *plan);
    Set done = { 0 };

    plan->g = a->g;
    plan->kernel = ctx_alloc(c, (size_t)(w->n + 1) * sizeof(Kernel));
    double *bytes = ctx_alloc(c, (size_t)(w->n + 1) * sizeof *bytes);
    int *links = ctx_alloc(c, (size_t)(w->n + 1) * sizeof *links);
    for (int i = 0; i < w->n; i++) {
        Kernel *k = &plan->kernel[plan->nkernels++];
        Shape s;
        shape_of(a, &p->atoms[w->column[i]], &s);
        k->kind = s.kind;
        snprintf(k->name, sizeof k->name, "%s",
                 kernel_name(p, &s, &p->atoms[w->column[i]]));
        k->node = ctx_alloc(c, a->g->len * sizeof *k->node);
        for (Ref r = 1; r < a->g->len; r++)
            if (s.nodes[r])
                k->node[k->nnodes++] = r;
        bytes[i] = s.bytes + written(p, w, &s, &done);
        links[i] = s.links;
        info->bytes += bytes[i];
        info->seconds += s.seconds;
    }
    for (int i = 0; i < a->g->nst; i++)
        if (a->g->st[i].next && node_is_leaf(&a->g->n[a->g->st[i].next]))
            carry_leaf(plan, &a->g->st[i]);
    plan_finish(plan);
    for (int i = 0; i < plan->nkernels; i++) {
        plan->kernel[i].bytes = bytes[i];
        price_kernel(a->g, a->m, &plan->kernel[i], links[i]);
    }
    return plan;
}

/* Every product in a kernel of its own, cheap work fused behind it. */
static double unfused(Pool *p)
{
    Atoms *a = p->a;
    double bytes = 0;

    for (int i = 0; i < a->n; i++) {
        Shape s;
        Set one = { 0 };
        set_add(&one, i);
        one = closed(a, one);
        if (shape_of(a, &one, &s))
            bytes += s.bytes;
        if (a->store[i])
            bytes += tile_bytes(a->g, a->m, a->atom[i].node);
    }
    for (int i = a->n; i < a->ntensors; i++)
        bytes += tile_bytes(a->g, a->m, a->g->st[i - a->n].node);
    return bytes;
}

/* Kernels that were chosen side by side, as one. */
static void merge(Pool *p, const Answer *w)
{
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < i; k++)
            offer(p, set_union(p->atoms[w->column[i]],
                               &p->atoms[w->column[k]]));
}

/* The best of the pool as it is, w being an answer there is already, if any;
 * false if there is none. Without a proof, it is quick. */
static bool choose_best(Pool *p, Choice *c, bool proof, Answer *w)
{
    const Answer *start = w->n ? w : NULL;
    Ctx *ctx = p->a->g->ctx;
    Answer found;

    c->column = p->column;
    c->ncolumns = p->n;
    if (!(proof ? choose(ctx, c, start, &found)
                : choose_greedy(ctx, c, start, &found)))
        return false;
    *w = found;
    return true;
}

/* Grows the pool around the answer until that changes nothing. */
static void improve(Pool *p, Choice *c, Answer *w)
{
    int64_t price = INT64_MAX;

    for (int i = 0; i < MAX_GROWTH && w->price < price; i++) {
        price = w->price;
        merge(p, w);
        for (int k = 0; k < w->n; k++)
            grow(p, w->column[k]);
        choose_best(p, c, false, w);
    }
}

/* What each pass would hold on chip as one kernel; the larger of the two. */
static double pass_held(const Atoms *a)
{
    Set pass[2] = { early_atoms(a), late_atoms(a) };
    double most = 0;

    for (int i = 0; i < 2; i++) {
        Shape s = { 0 };
        if (!set_empty(&pass[i]))
            shape_of(a, &pass[i], &s);
        most = fmax(most, (double)s.held);
    }
    return most;
}

/* Some atom, even alone, is more than a kernel can hold: names the largest. */
static void too_large(const Atoms *a, Error *why)
{
    Graph *g = a->g;
    size_t most = 0;
    Ref at = 0;

    for (int i = 0; i < a->n; i++) {
        Shape s;
        Set one = { 0 };
        set_add(&one, i);
        one = closed(a, one);
        if (!shape_of(a, &one, &s) && s.held >= most) {
            most = s.held;
            at = a->atom[i].node;
        }
    }
    if (!at)
        error_set(g->ctx, why, 0, NULL, "%s: no kernels on %s hold the parts "
                  "of it together", g->name, a->m->name);
    else if (most <= a->m->shared)
        error_set(g->ctx, why, 0, NULL, "%s: its states take more than the "
                  "%zu KB of registers that a kernel on %s has", g->name,
                  a->m->registers / 1024, a->m->name);
    else
        error_set(g->ctx, why, g->n[at].line, "a smaller chunk", "%s: in "
                  "chunks of %d, %s [%s] and what it is made of take %zu KB; "
                  "a kernel on %s has %zu", g->name, g->chunk,
                  expr_text(g, at), axes_text(g, g->n[at].axes),
                  (most + 1023) / 1024, a->m->name, a->m->shared / 1024);
}

/* False: the machine cannot hold it. */
static bool decide(Pool *p, Effort effort, PartitionInfo *info)
{
    Atoms *a = p->a;
    Choice c = { .ntensors = a->ntensors, .store = a->store };
    Answer *w = &info->answer;
    bool whole = a->n <= ALL_UP_TO;

    for (int i = 0; i < a->n; i++)
        if (a->atom[i].root)
            set_add(&c.required, i);
    if (!choose_best(p, &c, whole, w) && !choose_best(p, &c, true, w))
        return false;
    if (!whole)
        improve(p, &c, w);
    for (int i = 0; !whole && effort == FULL && i < MAX_PROOFS; i++) {
        int64_t price = w->price;
        choose_best(p, &c, true, w);
        if (w->price == price)
            break;
        improve(p, &c, w);
    }
    info->ncolumns = p->n;
    return true;
}

typedef struct Search {
    Graph *g;
    const Machine *m;
    Effort effort;
    PartitionInfo *info;
    Pool pool;
    Plan *plan;
    Error *why;
    bool too_large;                     /* of every kernel that there is */
    bool simple;                        /* there is nothing to choose from: too
                                           many tensors, or none to compute */
} Search;

/* A result that is an input as it is, and that nobody reads beside: there is
 * nothing to compute of it, and so no column for it. */
static bool has_bare_result(const Graph *g)
{
    bool *read = ctx_alloc(g->ctx, g->len * sizeof *read);
    uint8_t *live = ctx_alloc(g->ctx, g->len);

    graph_live(g, live);
    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; live[r] && i < 4; i++)
            read[g->n[r].a[i]] = true;
    for (int i = 0; i < g->nout; i++)
        if (node_is_leaf(&g->n[g->out[i].node]) && !read[g->out[i].node])
            return true;
    return false;
}

/* In memory of its own: only the plan stays. */
static void search(Ctx *room, void *ud)
{
    Search *s = ud;
    Pool *p = &s->pool;
    Graph *g = ctx_alloc(room, sizeof *g);

    *g = *s->g;
    g->ctx = room;
    p->a = atoms_find(g, s->m);
    s->simple = p->a->ntensors > MAX_TENSORS || has_bare_result(g) || !p->a->n;
    if (s->simple)
        return;
    p->cap = 4096;
    p->column = ctx_alloc(room, MAX_POOL * sizeof *p->column);
    p->atoms = ctx_alloc(room, MAX_POOL * sizeof *p->atoms);
    p->hash = ctx_alloc(room, (size_t)p->cap * sizeof *p->hash);
    seed_pool(p);
    s->too_large = !decide(p, s->effort, s->info);
    if (s->too_large) {
        too_large(p->a, s->why);
        return;
    }
    s->info->unfused_bytes = unfused(p);
    s->info->held = pass_held(p->a);
}

static void finish(Ctx *c, void *ud)
{
    Search *s = ud;

    (void)c;
    if (s->too_large)
        return;
    if (s->simple) {
        s->plan = plan_simple(s->g);
        return;
    }
    s->pool.a->g = s->g;
    s->plan = make_plan(&s->pool, &s->info->answer, s->info);
    s->info->answer.column = NULL;
}

Plan *partition_if(Graph *g, const Machine *m, Effort e, PartitionInfo *info,
                   Error *why)
{
    Search s = { .g = g, .m = m, .effort = e, .info = info, .why = why };
    Ctx *c = g->ctx, *room = ctx_like(c);

    if (!room)
        fail_code(c, ERR_MEMORY, "out of memory");
    memset(s.info, 0, sizeof *s.info);
    room->file = c->file;
    room->doing = c->doing;
    room->done = c->done;
    bool ok = ctx_protect(room, search, &s);
    if (!ok)
        c->err = room->err;
    ok = ok && ctx_protect(c, finish, &s);
    ctx_free(room);
    if (!ok)
        ctx_rethrow(c);
    return s.plan;
}

Plan *partition(Graph *g, const Machine *m, Effort e, PartitionInfo *info)
{
    PartitionInfo own;
    Error why;
    Plan *p = partition_if(g, m, e, info ? info : &own, &why);

    if (!p)
        ctx_raise(g->ctx, &why);
    return p;
}
