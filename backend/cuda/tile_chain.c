/* tile_chain.c -- what is computed when. Products, sums, scans and solves come
 * in the graph's order; all else when it is needed. Element-wise values of
 * the same axes are computed in one loop, and so that those which only the
 * loop looks at stay in registers.
 */
#include "tile.h"

#include <string.h>

/* ---- acts ---- */

Act *act_begin(Tiles *t, Ref r)
{
    if (t->nacts == t->cap_acts) {
        size_t old = (size_t)t->cap_acts * sizeof *t->act;
        t->cap_acts = t->cap_acts ? 2 * t->cap_acts : 64;
        t->act = ctx_grow(t->c, t->act, old,
                          (size_t)t->cap_acts * sizeof *t->act);
    }
    Act *a = &t->act[t->nacts++];
    *a = (Act){ .text.ctx = t->c, .when = r && t->pre[r] ? BEFORE
                                                             : WITHIN };
    return a;
}

void act_uses(Tiles *t, Act *a, int tile, bool writes)
{
    int use = tile * 2 + writes;

    for (int i = 0; i < a->n; i++)
        if (a->use[i] == use)
            return;
    if (a->n == a->cap) {
        size_t old = (size_t)a->cap * sizeof *a->use;
        a->cap = a->cap ? 2 * a->cap : 8;
        a->use = ctx_grow(t->c, a->use, old, (size_t)a->cap * sizeof *a->use);
    }
    a->use[a->n++] = use;
}

/* ---- what a node is ---- */

bool is_elementwise(const Tiles *t, Ref r)
{
    return op_info[t->g->n[r].op].traits & ELEMENTWISE;
}

bool is_pointwise(const Tiles *t, Ref r)
{
    switch (t->g->n[r].op) {
    case OP_rot90: case OP_dup: case OP_pairsum: case OP_cat: case OP_unit:
    case OP_count:
    case OP_dmask: case OP_later: case OP_delay:
        return true;
    }
    return is_elementwise(t, r);
}

bool in_chain(const Chain *k, Ref r)
{
    for (int i = 0; i < k->n; i++)
        if (k->node[i] == r)
            return true;
    return r && (r == k->from || r == k->also);
}

/* Whether r can be had without one of the acts that have their own place in
 * the order, and without what the chain or an act at hand is to compute. */
static bool cheap_from(Tiles *t, const Chain *k, Ref r)
{
    const Node *n = &t->g->n[r];
    double x;

    if (!r || t->done[r] || t->seen[r] == t->stamp)
        return true;
    t->seen[r] = t->stamp;
    if (in_chain(k, r) || t->busy[r])
        return false;
    if (n->op == OP_input || !t->has[r] || constant_of(t, r, &x))
        return true;
    bool all = is_pointwise(t, r) || is_view(n->op);
    for (int i = 0; i < 4 && all; i++)
        all = cheap_from(t, k, n->a[i]);
    return all;
}

static bool cheap(Tiles *t, const Chain *k, Ref r)
{
    t->stamp++;
    return cheap_from(t, k, r);
}

/* ---- spots ---- */

Spot view_spot(const Tiles *t, Ref r, const Spot *s)
{
    const Node *n = &t->g->n[r];
    Spot v = *s;
    int ax = n->over ? lowest(n->over) : 0;

    switch (n->op) {
    case OP_select: case OP_part:
        v.at += n->index * s->st[ax];
        break;
    case OP_last:
        v.tail += n->flags & REVERSE ? 0 : s->st[AX_I];
        break;
    case OP_relabel:
        v.st[ax] = 0;
        v.st[n->index] = s->st[ax];
        break;
    case OP_col: case OP_row:
        for (int k = 0; k <= NRANKS; k++) {
            int from = n->op == OP_col ? k : AX_J + k;
            int to = n->op == OP_col ? AX_J + k : k;
            v.st[from] = 0;
            v.st[to] = s->st[from];
        }
        break;
    }
    for (ax = 0; ax < NAXES; ax++)
        if (!(n->axes & AXIS(ax)))
            v.st[ax] = 0;
    return v;
}

static void need_chain(Tiles *t, Ref r);

static void emit_node(Tiles *t, Ref r)
{
    if (op_is(t->g->n[r].op, OF_MOST)) {
        do_most(t, r);
        return;
    }
    switch (t->g->n[r].op) {
    case OP_dot: case OP_sum: do_dot(t, r); break;
    case OP_gdot: do_gdot(t, r); break;
    case OP_solve: do_solve(t, r); break;
    case OP_cumsum: case OP_scan: case OP_maxscan: do_scan(t, r); break;
    case OP_matscan: do_matscan(t, r); break;
    default: fail_code(t->c, ERR_INTERNAL, "no act for %s",
                       op_info[t->g->n[r].op].name);
    }
}

void need(Tiles *t, Ref r)
{
    const Node *n = &t->g->n[r];
    double x;

    if (!r || t->done[r] || constant_of(t, r, &x))
        return;
    if (n->op == OP_input) {
        emit_load(t, r);
    } else if (!t->has[r]) {
        emit_fetch(t, r);
    } else if (is_view(n->op)) {
        need(t, n->a[0]);
        if (t->done[r])                 /* a product under this name */
            return;
        t->spot[r] = view_spot(t, r, &t->spot[n->a[0]]);
    } else if (is_pointwise(t, r)) {
        need_chain(t, r);
        return;
    } else {
        t->busy[r] = 1;
        emit_node(t, r);
        t->busy[r] = 0;
        return;
    }
    t->done[r] = 1;
    if (t->kept[r])
        emit_keep(t, r);
}

/* ---- chains ---- */

/* Whether r looks at entries of x other than its own: x needs a tile. */
static bool reads_elsewhere(const Tiles *t, Ref r, Ref x)
{
    const Ref *a = t->g->n[r].a;

    return !is_elementwise(t, r) && (a[0] == x || a[1] == x);
}

/* What may end a product is printed once an element of its fragments: little
 * of it, or compiling takes minutes. */
static bool is_sum_or_product(int op)
{
    return op == OP_add || op == OP_sub || op == OP_mul || op == OP_neg;
}

static bool is_light(const Chain *k, int op)
{
    return k->n < 4 && is_sum_or_product(op);
}

static bool fits_chain(const Tiles *t, const Chain *k, Ref like, Ref r)
{
    const Node *n = &t->g->n[r];

    if (k->from && (!is_light(k, n->op) || is_gate_difference(t, r)))
        return false;
    if (!t->has[r] || t->done[r] || in_chain(k, r) || !is_pointwise(t, r)
        || (t->busy[r] && r != like)
        || n->axes != t->g->n[like].axes || t->pre[r] != t->pre[like])
        return false;
    for (int c = 0; c < k->n; c++)
        if (reads_elsewhere(t, k->node[c], r))
            return false;
    for (AxisSet s = n->axes; s; s &= s - 1) {
        int ax = lowest(s);
        if (tile_extent(t, r, ax) != tile_extent(t, like, ax))
            return false;
    }
    return true;
}

/* r, and before it those operands that join. False where the chain is full or
 * something else would have to be computed first. */
static bool collect(Tiles *t, Chain *k, Ref like, Ref r)
{
    const Node *n = &t->g->n[r];
    int before = k->n;

    for (int i = 0; i < op_info[n->op].arity; i++) {
        Ref a = n->a[i];
        bool ok = !a || in_chain(k, a);
        if (!ok && is_elementwise(t, r) && fits_chain(t, k, like, a))
            ok = collect(t, k, like, a);
        if (a && in_chain(k, a) && !is_elementwise(t, r))
            ok = false;
        if (!ok && !cheap(t, k, a)) {
            k->n = before;
            return false;
        }
    }
    if (k->n == MAX_CHAIN) {
        k->n = before;
        return false;
    }
    k->node[k->n++] = r;
    return true;
}

/* What the chain looks at from outside. */
static bool need_operands(Tiles *t, const Chain *k)
{
    bool all = true;

    for (int c = 0; c < k->n; c++) {
        const Node *n = &t->g->n[k->node[c]];
        for (int i = 0; i < op_info[n->op].arity; i++) {
            double x;
            if (!n->a[i] || in_chain(k, n->a[i]) || t->done[n->a[i]]
                || constant_of(t, n->a[i], &x))
                continue;
            need(t, n->a[i]);
            all = false;
        }
    }
    return all;
}

static bool uses_chain(const Tiles *t, const Chain *k, Ref r)
{
    for (int i = 0; i < 3 && is_elementwise(t, r); i++)
        if (t->g->n[r].a[i] && in_chain(k, t->g->n[r].a[i]))
            return true;
    return false;
}

static bool is_next(const Tiles *t, Ref r)
{
    for (int s = 0; s < t->g->nst; s++)
        if (t->state[s] >= 0 && t->g->st[s].next == r)
            return true;
    return false;
}

/* Values of few elements join whatever they are: a loop of their own would
 * cost a barrier. */
static bool is_small(const Tiles *t, Ref r)
{
    int32_t st[NAXES];

    return tile_strides(t, r, st) <= t->out->threads;
}

static void chain_gather(Tiles *t, Chain *k, Ref like)
{
    bool more = true;

    while (more) {
        more = false;
        for (Ref r = 1; r < t->g->len && k->n < MAX_CHAIN; r++)
            if (fits_chain(t, k, like, r)
                && (!k->from && is_small(t, r)
                    ? !is_next(t, r) || t->deferred[like]
                    : t->deferred[r] <= t->deferred[like]
                    && uses_chain(t, k, r)))
                more |= collect(t, k, like, r);
    }
}

/* Needing an operand may compute a part of the chain, so that it is collected
 * anew until nothing is left to be done first. */
static void need_chain(Tiles *t, Ref r)
{
    Chain k;

    t->busy[r] = 1;
    do {
        k = (Chain){ .n = 0 };
        if (collect(t, &k, r, r))
            chain_gather(t, &k, r);
        else
            k.node[k.n++] = r;
    } while (!need_operands(t, &k));
    t->busy[r] = 0;
    Act *a = act_begin(t, r);
    k.pairs = true;
    for (int c = 0; c < k.n; c++)
        k.pairs &= is_sum_or_product(t->g->n[k.node[c]].op)
                && !is_gate_difference(t, k.node[c]);
    k.pairs = k.pairs && pair_loop_open(t, &a->text, r, &k.along);
    if (!k.pairs)
        loop_open(t, &a->text, "TID", "THREADS", r, t->g->n[r].axes);
    chain_body(t, a, &a->text, &k);
    buf_printf(&a->text, "}\n");
    chain_done(t, &k);
}

/* A product's: what goes on from it, all that it needs at hand. */
void chain_after(Tiles *t, Chain *k, Ref r, Ref also)
{
    do {
        *k = (Chain){ .from = r, .also = also };
        chain_gather(t, k, r);
    } while (!need_operands(t, k));
}

bool chain_joins(Tiles *t, Ref r, Ref also)
{
    enum { FIRST = 1, SECOND = 2, BOTH = 3 };
    Chain k = { .from = r, .also = also };
    uint8_t *of = ctx_alloc(t->c, t->g->len);
    bool both = false;

    of[r] = FIRST;
    of[also] = SECOND;
    chain_gather(t, &k, r);
    for (int c = 0; c < k.n; c++) {
        for (int i = 0; i < 3; i++)
            of[k.node[c]] |= of[t->g->n[k.node[c]].a[i]];
        both |= of[k.node[c]] == BOTH;
    }
    return both;
}

/* ---- the body of a loop ---- */

static const char *operand_text(Tiles *t, Act *a, const Chain *k, Ref r,
                                AxisSet axes)
{
    Buf b = { .ctx = t->c };
    double x;

    if (r == k->from && r)
        return "x";
    if (r == k->also && r)
        return "z";
    if (in_chain(k, r))
        return ctx_format(t->c, "v%u", (unsigned)r);
    if (!k->pairs || constant_of(t, r, &x) || !t->spot[r].st[k->along]) {
        element_text(t, a, &b, r, axes, -1, NULL);
        return b.s;
    }
    act_uses(t, a, t->spot[r].tile, false);
    pair_text(&b, "pair_at", &t->spot[r], axes, k->along);
    buf_printf(&b, ")");
    return b.s;
}

/* An operand as a function of its axis `over`. */
static void lambda_text(Tiles *t, Act *a, Buf *b, const char *name, Ref r,
                        AxisSet axes, int over)
{
    int from = lowest(t->g->n[r].over);
    Ref x = t->g->n[r].a[0];

    buf_printf(b, "%s([&](int y) { return ", name);
    element_text(t, a, b, x, (axes & ~AXIS(over)) | AXIS(from), from, "y");
    buf_printf(b, "; }, %d, %s)", (int)tile_extent(t, x, from),
               axis_coord(over));
}

static void cat_text(Tiles *t, Act *a, Buf *b, Ref r)
{
    const Node *n = &t->g->n[r];
    int ax = lowest(n->over);
    bool has = t->g->n[n->a[0]].axes & n->over;
    int first = has ? tile_extent(t, n->a[0], ax) : 1;

    buf_printf(b, "%s < %d ? ", axis_coord(ax), first);
    element_text(t, a, b, n->a[0], n->axes, -1, NULL);
    buf_printf(b, " : ");
    element_text(t, a, b, n->a[1], n->axes, ax,
                 ctx_format(t->c, "(%s - %d)", axis_coord(ax), first));
}

static void delay_text(Tiles *t, Act *a, Buf *b, Ref r)
{
    const Node *n = &t->g->n[r];
    bool back = n->flags & REVERSE;

    buf_printf(b, "i == %s ? ", back ? "n - 1" : "0");
    element_text(t, a, b, n->a[1], n->axes, -1, NULL);
    buf_printf(b, " : ");
    element_text(t, a, b, n->a[0], n->axes, AX_I, back ? "(i + 1)"
                                                       : "(i - 1)");
}

static void dmask_text(Tiles *t, Act *a, Buf *b, Ref r)
{
    const Node *n = &t->g->n[r];

    buf_printf(b, "i %s j ? ", n->flags & STRICT ? ">" : ">=");
    if (n->a[0]) {
        buf_printf(b, "exp_(");
        exact_text(t, a, b, n->a[0], n->axes);
        buf_printf(b, " - ");
        exact_text(t, a, b, n->a[1], n->axes);
        buf_printf(b, ") : 0.f");
    } else {
        buf_printf(b, "1.f : 0.f");
    }
}

static void later_text(Tiles *t, Buf *b, Ref r)
{
    int rank = lowest(t->g->n[r].over);

    buf_printf(b, "i > j || (i == j && %s > ", axis_coord(rank));
    buf_printf(b, "%s) ? 1.f : 0.f", axis_coord(rank + AX_J));
}

static void elem_text(Tiles *t, Act *a, Buf *b, const Chain *k, Ref r)
{
    const Node *n = &t->g->n[r];
    const char *operand[3] = { "", "", "" };

    if (is_gate_difference(t, r)) {
        exact_text(t, a, b, n->a[0], n->axes);
        buf_printf(b, " - ");
        exact_text(t, a, b, n->a[1], n->axes);
        return;
    }
    for (int i = 0; i < op_info[n->op].arity; i++)
        operand[i] = operand_text(t, a, k, n->a[i], n->axes);
    if (n->op == OP_factor && (t->o->tile == F32 || t->precision[r] == 2))
        buf_printf(b, "%s", operand[0]);
    else
        value_text(b, n->op, operand);
}

static void node_text(Tiles *t, Act *a, Buf *b, const Chain *k, Ref r)
{
    const Node *n = &t->g->n[r];
    int ax = n->over ? lowest(n->over) : 0;

    switch (n->op) {
    case OP_rot90: lambda_text(t, a, b, "rot90", r, n->axes, ax); break;
    case OP_dup: lambda_text(t, a, b, "dup", r, n->axes, n->index); break;
    case OP_pairsum:
        lambda_text(t, a, b, "pairsum", r, n->axes, n->index);
        break;
    case OP_unit:
        buf_printf(b, "%s == %d ? 1.f : 0.f", axis_coord(ax), n->index);
        break;
    case OP_count: buf_printf(b, "(float)%s", axis_coord(ax)); break;
    case OP_cat: cat_text(t, a, b, r); break;
    case OP_delay: delay_text(t, a, b, r); break;
    case OP_dmask: dmask_text(t, a, b, r); break;
    case OP_later: later_text(t, b, r); break;
    default: elem_text(t, a, b, k, r); break;
    }
}

/* ---- what is left ---- */

/* Whether somebody outside of the chain wants r. */
static bool wanted(const Tiles *t, const Chain *k, Ref r)
{
    if (t->kept[r] || is_next(t, r))
        return true;
    for (Ref u = r + 1; u < t->g->len; u++)
        for (int i = 0; i < 4; i++)
            if (t->has[u] && t->g->n[u].a[i] == r && !in_chain(k, u))
                return true;
    return false;
}

static void put_text(Tiles *t, Buf *b, const Chain *k, Ref r, const Spot *s,
                     const char *value)
{
    bool plain = t->tile[s->tile].type == F32;

    if (k->pairs) {
        pair_text(b, "put_pair", s, t->g->n[r].axes, k->along);
        buf_printf(b, ", %s);\n", value);
        return;
    }
    buf_printf(b, plain ? "t%d[" : "put(&t%d[", s->tile);
    index_text(b, s, t->g->n[r].axes, -1, NULL);
    buf_printf(b, plain ? "] = %s;\n" : "], %s);\n", value);
}

static void store_text(Tiles *t, Act *a, Buf *b, const Chain *k, Ref r,
                       const char *value)
{
    if (!wanted(t, k, r))
        return;
    int tile = own_tile(t, a, k, r);
    t->spot[r] = tile_spot(t, r, tile);
    act_uses(t, a, tile, true);
    put_text(t, b, k, r, &t->spot[r], value);
    if (wants_twin(t, r)) {
        twin_new(t, a, r);
        put_text(t, b, k, r, &t->twin[r], value);
    }
}

void chain_body(Tiles *t, Act *a, Buf *b, const Chain *k)
{
    for (int c = 0; c < k->n; c++) {
        buf_printf(b, "const %s v%u = ", k->pairs ? "Pair" : "float",
                   (unsigned)k->node[c]);
        node_text(t, a, b, k, k->node[c]);
        buf_printf(b, ";\n");
    }
    if (k->pairs && k->from)
        buf_printf(b, "return [=] {\n");
    if (k->from)
        store_text(t, a, b, k, k->from, "x");
    if (k->also)
        store_text(t, a, b, k, k->also, "z");
    for (int c = 0; c < k->n; c++)
        store_text(t, a, b, k, k->node[c],
                   ctx_format(t->c, "v%u", (unsigned)k->node[c]));
    if (k->pairs && k->from)
        buf_printf(b, "};\n");
}

static void value_done(Tiles *t, Ref r)
{
    t->done[r] = 1;
    if (t->kept[r])
        emit_keep(t, r);
}

void chain_done(Tiles *t, const Chain *k)
{
    for (int c = 0; c < k->n; c++)
        t->done[k->node[c]] = 1;
    if (k->from)
        value_done(t, k->from);
    if (k->also)
        value_done(t, k->also);
    for (int c = 0; c < k->n; c++)
        value_done(t, k->node[c]);
}
