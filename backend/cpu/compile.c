/* compile.c -- a plan as tile programs: which instructions in which order,
 * and where each tile lies.
 */
#include "compile.h"
#include "../../compiler/eval.h"

#include <string.h>

/* ---- slots and lists ---- */

static int new_slot(Compile *k, int32_t floats, bool pinned)
{
    TileKernel *t = k->k;

    if (t->nslots == t->cap_slots) {
        size_t old = (size_t)t->cap_slots * sizeof *t->slot;
        t->cap_slots = t->cap_slots ? 2 * t->cap_slots : 64;
        t->slot = ctx_grow(k->c, t->slot, old,
                           (size_t)t->cap_slots * sizeof *t->slot);
    }
    t->slot[t->nslots] = (Slot){ .floats = floats, .pinned = pinned,
                                 .first = -1 };
    return t->nslots++;
}

/* The last instruction that computes a slot; a strip does not count. */
static const Instr *maker(const Compile *k, const List *l, int slot)
{
    for (int i = l->n - 1; i >= 0; i--)
        if (l->in[i].y == slot)
            return k->k->slot[slot].local ? NULL : &l->in[i];
    return NULL;
}

/* Whether `left` holds what is left behind each token of the gates whose sums
 * slot d holds. */
static bool is_left(const Compile *k, const List *l, int left, int d)
{
    const Instr *a = maker(k, l, left), *b = maker(k, l, d);

    return a && b && a->code == I_SCAN && a->kind == SCAN_RUNNING
        && a->flags == (REVERSE | EXCLUSIVE) && b->code == I_SCAN
        && b->kind == SCAN_RUNNING && a->x[0] == b->x[0];
}

/* Takes what the program has computed already: a e^c and b e^(l - d), of the
 * same gates, with l their last row. */
static void find_factors(const Compile *k, const List *l, Instr *in)
{
    int scaled = -1, decayed = -1, last = -1;

    for (int i = 0; i < l->n; i++) {
        const Instr *e = &l->in[i];
        if (e->y < 0 || maker(k, l, e->y) != e)
            continue;                   /* what it stores has no slot */
        if (e->code == I_MOVE && e->k.st[1] && e->x[0] == in->x[3])
            last = e->y;                /* it has the last row of that */
        if (e->code != I_ELEM || e->op != FUSED_SCALE)
            continue;
        if (e->x[0] == in->x[0] && e->x[1] == in->x[2])
            scaled = e->y;
        else if (e->x[0] == in->x[1] && is_left(k, l, e->x[1], in->x[3]))
            decayed = e->y;
    }
    if (scaled < 0 || decayed < 0 || last < 0)
        return;
    in->x[4] = scaled;
    in->x[5] = decayed;
    in->x[6] = last;
}

static void append(Compile *k, List *l, Instr in)
{
    bool more = in.increment || in.code == I_GDOT || in.code == I_GSOLVE;

    for (int p = 4; p < OPERANDS && !more; p++)
        in.x[p] = -1;
    if (in.code == I_GDOT && in.kind == GDOT_KEYS && !(in.flags & TRANS)
        && in.x[2] == in.x[3])
        find_factors(k, l, &in);
    if (l->n == l->cap) {
        size_t old = (size_t)l->cap * sizeof *l->in;
        l->cap = l->cap ? 2 * l->cap : 32;
        l->in = ctx_grow(k->c, l->in, old, (size_t)l->cap * sizeof *l->in);
    }
    l->in[l->n++] = in;
    int64_t scratch = instr_scratch(&k->l, &in);
    if (scratch > k->k->scratch)
        k->k->scratch = scratch;
}

static Instr bare(int code, int index)
{
    return (Instr){ .code = (uint8_t)code, .index = index, .chain = 1,
                    .wide = -1, .y = -1, .x = { -1, -1, -1, -1 } };
}

/* ---- tiles ---- */

/* Whether r is what is left of gates whose sums are made here. */
static bool is_left_here(const Compile *k, Ref r)
{
    Ref sum = gates_left(k->g, r);

    return sum && k->has[sum];
}

static List *list_of(Compile *k, Ref r)
{
    return k->pre[r] ? &k->k->pre : &k->k->body;
}

/* The slot of a value: what nobody has computed here is loaded now. */
static int tile_of(Compile *k, Ref r)
{
    const Node *n = &k->g->n[r];
    Instr in;

    if (k->slot[r] >= 0)
        return k->slot[r];
    if (n->op == OP_input || n->op == OP_num || n->op == OP_size)
        in = lower_node(&k->l, r, 0);
    else
        in = bare(I_FETCH, (int)r);
    if (n->op == OP_input)
        if (!k->loads[n->index])
            k->loads[n->index] = k->at + 1;
    in.all = tile_leading(&k->l, r);
    in.y = k->slot[r] = new_slot(k, tile_floats(&k->l, r), k->pre[r]);
    append(k, list_of(k, r), in);
    return in.y;
}

/* What becomes of a value besides its use here. */
static void keep_value(Compile *k, List *l, Ref r)
{
    const Plan *p = k->p;

    for (int i = 0; i < p->g->nout; i++) {
        if (p->g->out[i].node != r || k->out_kernel[i] != k->at)
            continue;
        Instr in = bare(I_OUT, i);
        in.x[0] = k->slot[r];
        append(k, l, in);
    }
    if (p->stored[r] && k->stored_kernel[r] == k->at) {
        Instr in = bare(I_KEEP, (int)r);
        in.x[0] = k->slot[r];
        in.all = tile_leading(&k->l, r);
        append(k, l, in);
    }
}

/* x, which lies in the slot, with all the axes in `need`, each as long as in
 * r. */
static int spread_slot(Compile *k, Ref r, Ref x, AxisSet need, int slot)
{
    int32_t floats;

    if (k->g->n[x].axes == need)
        return slot;
    Instr in = lower_spread(&k->l, r, need, x, &floats);
    in.y = new_slot(k, floats, k->pre[r]);
    in.x[0] = slot;
    append(k, list_of(k, r), in);
    return in.y;
}

static int spread_tile(Compile *k, Ref r, Ref x, AxisSet need)
{
    return spread_slot(k, r, x, need, tile_of(k, x));
}

/* Operand p with all the axes that the instruction expects. */
static int operand(Compile *k, Ref r, int p)
{
    Ref x = k->g->n[r].a[p];

    return x ? spread_tile(k, r, x, operand_axes(&k->l, r, p)) : -1;
}

/* An angle that goes on in double gets its increments in double. */
static void widen_increment(Compile *k, Ref r, Instr *in)
{
    const Node *n = &k->g->n[r];
    Ref leaf[INCREMENT_LEAVES];

    if (in->wide < 0 || !(n->flags & WRAP))
        return;
    in->increment = build_increment(k, n->a[1], leaf);
    for (int i = 0; in->increment && i < INCREMENT_LEAVES; i++)
        in->x[3 + i] = leaf[i] ? spread_tile(k, r, leaf[i], n->axes) : -1;
}

/* What the sums of gates that r shows lose in float: of -100, and of what is
 * added to it, a float keeps 4e-6. */
static int low_tile(Compile *k, Ref r)
{
    const Node *n = &k->g->n[r];

    if (k->low[r] >= 0)
        return k->low[r];
    Instr in = lower_node(&k->l, r, 0);
    in.x[1] = in.x[2] = in.x[3] = -1;
    if (op_is(n->op, MOVES)) {
        in.x[0] = low_tile(k, n->a[0]);
        if (tile_alias(&k->l, r))
            return k->low[r] = in.x[0];
    } else {
        in.x[0] = operand(k, r, 0);
        in.low = true;
    }
    in.y = k->low[r] = new_slot(k, tile_floats(&k->l, r), k->pre[r]);
    append(k, list_of(k, r), in);
    return in.y;
}

static int low_operand(Compile *k, Ref r, int p)
{
    Ref x = k->g->n[r].a[p];

    return gate_sum(k->g, x) && k->has[gate_sum(k->g, x)]
         ? spread_slot(k, r, x, operand_axes(&k->l, r, p), low_tile(k, x))
         : -1;
}

/* Decays are of differences of their gates' sums. */
static void add_lows(Compile *k, Ref r, Instr *in)
{
    int gates = in->code == I_GDOT ? 2 : 0, to = in->code == I_GDOT ? 7 : 2;

    if (in->code == I_GSOLVE)
        in->x[4] = low_operand(k, r, 3);
    if (in->code != I_GDOT && in->code != I_DMASK)
        return;
    for (int p = 0; p < 2; p++)
        in->x[to + p] = low_operand(k, r, gates + p);
}

/* Only the lower triangle of a product is looked at. */
static void want_lower(Instr *in)
{
    if (in->code != I_DOT || in->kind != DOT_GEMM || in->tri != TRI_NONE
        || !in->m.tokens || !in->n.tokens)
        return;
    in->tri = LOWER_C;
    in->row_rank = in->m.size;
    in->col_rank = in->n.size;
}

/* last(G) - G, summed from the other end. */
static void emit_left(Compile *k, Ref r)
{
    Ref sum = gates_left(k->g, r);
    Instr in = lower_node(&k->l, sum, 0);

    in.flags = REVERSE | EXCLUSIVE;
    in.x[0] = operand(k, sum, 0);
    in.x[1] = in.x[2] = in.x[3] = -1;
    in.y = k->slot[r] = new_slot(k, tile_floats(&k->l, r), k->pre[r]);
    append(k, list_of(k, r), in);
}

static void emit_node(Compile *k, Ref r)
{
    const Node *n = &k->g->n[r];
    int arity = op_info[n->op].arity;
    List *l = list_of(k, r);

    if (is_left_here(k, r)) {
        emit_left(k, r);
        return;
    }
    if (tile_alias(&k->l, r)) {
        k->slot[r] = tile_of(k, n->a[0]);
        return;
    }
    for (int part = 0; part < (op_is(n->op, JOINS) ? 2 : 1); part++) {
        Instr in = lower_node(&k->l, r, part);
        for (int p = 0; p < OPERANDS; p++)
            in.x[p] = p < arity ? operand(k, r, p) : -1;
        add_lows(k, r, &in);
        if (op_is(n->op, JOINS))
            in.x[0] = in.x[part];
        if (!part)
            k->slot[r] = new_slot(k, tile_floats(&k->l, r), k->pre[r]);
        in.y = k->slot[r];
        in.wide = k->wide_of[r];
        widen_increment(k, r, &in);
        if (k->wanted_lower[r])
            want_lower(&in);
        append(k, l, in);
    }
}

/* r = x + d or x - d with the product d computed on top of x, in its place if
 * nothing else needs it. */
static void emit_fused(Compile *k, Ref r)
{
    const Node *n = &k->g->n[r];
    Ref d = k->fused[r], x = n->a[0] == d ? n->a[1] : n->a[0];
    Instr in = lower_node(&k->l, d, 0);

    in.into = n->op == OP_sub ? GEMM_SUB : GEMM_ADD;
    for (int p = 0; p < 2; p++)
        in.x[p] = tile_of(k, k->g->n[d].a[p]);
    in.x[2] = tile_of(k, x);
    in.x[3] = -1;
    if (k->uses[x] == 1 && k->has[x] && !k->pre[x] && !tile_alias(&k->l, x)
        && k->g->n[x].op != OP_state && k->g->n[x].op != OP_input)
        k->slot[r] = in.x[2];
    else
        k->slot[r] = new_slot(k, tile_floats(&k->l, r), false);
    in.y = k->slot[r];
    append(k, &k->k->body, in);
}

/* ---- element-wise chains ---- */

/* A value that only the chain itself looks at needs but a strip. */
static bool stays_inside(const Compile *k, Ref r)
{
    int inside = 0;

    for (int i = 0; i < k->nchain; i++)
        for (int p = 0; p < 3; p++)
            inside += k->g->n[k->chain[i]].a[p] == r;
    return inside == k->uses[r];
}

/* A link of a chain: r of the values x; the nodes inside that its one pass
 * takes along. */
typedef struct Link {
    Ref r, x[3], inner[2];
    bool fused;
} Link;

/* x, if the chain computes it, by `op`, for one use; else 0. */
static Ref single_operand(const Compile *k, Ref x, int op)
{
    bool inside = false;

    for (int i = 0; i < k->nchain; i++)
        inside |= k->chain[i] == x;
    return inside && k->uses[x] == 1 && k->g->n[x].op == op ? x : 0;
}

/* r = a e^b or a e^(b - c), in one pass if nothing else needs the factor. */
static bool fuse_exp(const Compile *k, Ref r, Link *link)
{
    const Node *n = &k->g->n[r];

    for (int p = 0; p < 2 && n->op == OP_mul; p++) {
        Ref e = single_operand(k, n->a[p], OP_exp), a = n->a[1 - p];
        if (!e || k->l.lower[a] != k->l.lower[e])
            continue;
        Ref d = single_operand(k, k->g->n[e].a[0], OP_sub);
        *link = (Link){ .r = r, .fused = true, .inner = { e, d },
                        .x = { a, k->g->n[d ? d : e].a[0],
                               d ? k->g->n[d].a[1] : 0 } };
        return true;
    }
    return false;
}

/* What the chain computes, node by node, but for what is fused. */
static int link_chain(const Compile *k, Link *link)
{
    bool inner[MAX_CHAIN] = { false };
    int n = 0;

    for (int i = k->nchain - 1; i >= 0; i--) {
        Ref r = k->chain[i];
        const Ref *x = k->g->n[r].a;
        if (inner[i])
            continue;
        if (!fuse_exp(k, r, &link[n]))
            link[n] = (Link){ .r = r, .x = { x[0], x[1], x[2] } };
        for (int j = 0; j < i; j++)
            inner[j] |= k->chain[j] == link[n].inner[0]
                     || k->chain[j] == link[n].inner[1];
        n++;
    }
    return n;
}

static void append_link(Compile *k, const Link *link, int rows)
{
    Ref r = link->r;
    int32_t floats = tile_floats(&k->l, r);
    bool local = rows && stays_inside(k, r);
    Instr in = link->fused ? lower_fused(&k->l, r, link->x)
                           : lower_node(&k->l, r, 0);

    in.x[3] = -1;
    for (int p = 0; p < 3; p++) {
        Ref x = link->x[p];
        in.x[p] = x ? k->slot[x] : -1;
        if (x && k->k->slot[in.x[p]].local)
            in.local |= (uint16_t)(2 << p);
    }
    if (local)
        floats = rows * (in.m.tokens ? floats / k->l.chunk
                                     : floats / in.m.size);
    in.y = k->slot[r] = new_slot(k, floats, false);
    k->k->slot[in.y].local = local;
    in.local |= local;
    in.from = rows;
    append(k, &k->k->body, in);
}

/* Entries of the leading axis that a strip holds; 0: all at once. */
static int strip_rows(const Compile *k)
{
    Ref head = k->chain[0];
    AxisSet axes = k->g->n[head].axes;

    if (k->nchain < 2 || !axes)
        return 0;
    int ax = lowest(axes);
    int32_t lead = ax == AX_I || ax == AX_J ? k->l.chunk : k->l.ext[head][ax];
    int32_t each = tile_floats(&k->l, head) / lead;
    int rows = each < STRIP ? STRIP / each : 1;
    return rows < lead ? rows : 0;
}

static void flush_chain(Compile *k)
{
    List *l = &k->k->body;
    Link link[MAX_CHAIN];
    int rows, n, first = l->n;

    if (!k->nchain)
        return;
    rows = strip_rows(k);
    n = link_chain(k, link);
    for (int i = n - 1; i >= 0; i--)
        append_link(k, &link[i], rows);
    l->in[first].chain = (uint16_t)n;
    for (int i = 0; i < k->nchain; i++)
        keep_value(k, l, k->chain[i]);
    k->nchain = 0;
}

static bool joins_chain(const Compile *k, Ref r)
{
    const Node *n = &k->g->n[r];

    return op_info[n->op].traits & ELEMENTWISE && !k->fused[r] && !k->pre[r]
        && !is_left_here(k, r)
        && (!k->nchain || (n->axes == k->g->n[k->chain[0]].axes
                           && k->nchain < MAX_CHAIN));
}

/* ---- order ---- */

static bool is_leaf(int op)
{
    return op == OP_input || op == OP_state || op == OP_num || op == OP_size;
}

static bool ready_operand(const Compile *k, Ref x)
{
    return !x || !k->has[x] || k->pre[x] || k->done[x]
        || is_leaf(k->g->n[x].op);
}

static bool ready(const Compile *k, Ref r)
{
    Ref d = k->fused[r];

    for (int p = 0; p < 4; p++)
        if (!ready_operand(k, k->g->n[r].a[p]) && k->g->n[r].a[p] != d)
            return false;
    for (int p = 0; d && p < 4; p++)
        if (!ready_operand(k, k->g->n[d].a[p]))
            return false;
    return true;
}

static void emit(Compile *k, Ref r)
{
    k->done[r] = 1;
    if (joins_chain(k, r)) {
        for (int p = 0; p < 3; p++) {
            Ref x = k->g->n[r].a[p];
            bool inside = false;
            for (int i = 0; i < k->nchain; i++)
                inside |= k->chain[i] == x;
            if (x && !inside)
                tile_of(k, x);
        }
        k->chain[k->nchain++] = r;
        return;
    }
    flush_chain(k);
    if (k->fused[r])
        emit_fused(k, r);
    else
        emit_node(k, r);
    keep_value(k, &k->k->body, r);
}

/* In the order of the graph, but element-wise values of the same axes are
 * drawn together as far as they are ready. */
static void emit_body(Compile *k, const Ref *node, int n)
{
    enum { WINDOW = 64 };

    for (int at = 0; at < n;) {
        Ref next = 0;
        if (k->done[node[at]]) {
            at++;
            continue;
        }
        for (int i = at; i < n && i < at + WINDOW && k->nchain && !next; i++)
            if (!k->done[node[i]] && joins_chain(k, node[i])
                && ready(k, node[i]))
                next = node[i];
        if (!next && k->nchain)
            flush_chain(k);
        else
            emit(k, next ? next : node[at]);
    }
    flush_chain(k);
}

/* ---- a kernel ---- */

static void carry_states(Compile *k)
{
    for (int i = 0; i < k->ncarry_wanted; i++) {
        Carry *c = &k->k->carry[i];
        const State *s = &k->g->st[k->carried[i]];
        c->state = k->carried[i];
        c->floats = tile_floats(&k->l, s->node);
        c->slot = k->slot[s->node] = new_slot(k, c->floats, true);
        c->wide = -1;
        Ref scan = k->g->n[s->next].a[0];
        if (s->next && op_is(k->g->n[s->next].op, ONE_ROW)
            && (c->wide = k->wide_of[scan]) >= 0) {
            c->wrap = k->g->n[scan].flags & WRAP;
            k->k->wide_at[c->wide] = k->k->nwide;
            k->k->nwide += c->floats;
        }
    }
    k->k->ncarry = k->ncarry_wanted;
    for (int i = 0; i < k->k->ncarry; i++)
        keep_value(k, &k->k->body, k->g->st[k->carried[i]].node);
}

/* A next value that the program computes on a tile of its own is used where
 * it lies. */
static bool owns_tile(const Compile *k, int i, Ref next)
{
    const Node *n = &k->g->n[next];

    for (int j = 0; j < i; j++)
        if (k->k->carry[j].next == k->slot[next])
            return false;
    return k->has[next] && !k->pre[next] && !is_leaf(n->op)
        && !tile_alias(&k->l, next)
        && n->axes == k->g->n[k->g->st[k->carried[i]].node].axes;
}

static void leave_states(Compile *k)
{
    for (int i = 0; i < k->k->ncarry; i++) {
        Carry *c = &k->k->carry[i];
        const State *s = &k->g->st[c->state];
        int32_t floats;
        if (c->wide >= 0 || !s->next)
            continue;
        int next = tile_of(k, s->next);
        if (owns_tile(k, i, s->next)) {
            c->next = next;
            k->k->slot[next].pinned = true;
            continue;
        }
        c->copied = true;
        c->copy = lower_spread(&k->l, s->node, k->g->n[s->node].axes,
                               s->next, &floats);
        c->copy.x[0] = next;
        c->copy.y = c->next = new_slot(k, c->floats, true);
        k->k->slot[next].pinned = true;
    }
}

static void compile_kernel(Compile *k)
{
    const Kernel *kernel = &k->p->kernel[k->at];

    k->k->kind = kernel->kind;
    analyse_kernel(k, kernel);
    carry_states(k);
    for (int i = 0; i < kernel->nnodes; i++) {
        Ref r = kernel->node[i];
        if (k->pre[r] && !is_leaf(k->g->n[r].op))
            emit_node(k, r);
    }
    for (int i = 0; i < kernel->nnodes; i++) {
        Ref r = kernel->node[i];
        if (k->g->n[r].op == OP_state)
            continue;
        if (k->kept[r] && (k->pre[r] || is_leaf(k->g->n[r].op))) {
            tile_of(k, r);
            keep_value(k, &k->k->body, r);
        }
    }
    emit_body(k, k->body, k->nbody);
    leave_states(k);
    place_tiles(k->k, k->c);
}

static void place_stored(Compile *k, CpuProgram *prog)
{
    prog->stored_at = ctx_alloc(k->c, k->g->len * sizeof *prog->stored_at);
    for (Ref r = 1; r < k->g->len; r++) {
        if (!k->p->stored[r])
            continue;
        prog->stored_at[r] = prog->stored_floats;
        prog->stored_floats += (tile_floats(&k->l, r) + 15) / 16 * 16;
    }
}

CpuProgram *cpu_compile(Ctx *c, const Plan *p, const char *isa, Pool *pool)
{
    CpuProgram *prog = ctx_alloc(c, sizeof *prog);
    Compile k = { .c = c, .p = p, .g = p->g, .loads = prog->loads };

    prog->plan = p;
    prog->isa = isa_find(isa);
    if (!prog->isa)
        fail_code(c, ERR_DEVICE, "this machine has no %s", isa);
    prog->chunk = p->g->chunk ? p->g->chunk : 1;
    prog->ext = graph_extents(c, p->g);
    prog->kernel = ctx_alloc(c, ((size_t)p->nkernels + 1)
                                * sizeof *prog->kernel);
    k.l = (Lower){ .c = c, .g = p->g, .ext = prog->ext,
                   .chunk = prog->chunk };
    k.l.lower = lower_values(c, p->g);
    analyse_plan(&k);
    place_stored(&k, prog);
    for (k.at = 0; k.at < p->nkernels; k.at++) {
        k.k = &prog->kernel[k.at];
        compile_kernel(&k);
    }
    prog->pool = pool ? pool_retain(pool) : pool_new(&c->mem);
    if (!prog->pool)
        fail_code(c, ERR_MEMORY, "out of memory");
    return prog;
}

void cpu_free(CpuProgram *p)
{
    pool_release(p->pool);
    p->pool = NULL;
}

const char *cpu_isa(void)
{
    return isa_find(NULL)->name;
}
