/* emit_serial.c -- the state's warpgroups: from the graph to a list of acts.
 *
 * Everything here is transposed: rows of a fragment are the state's row axis,
 * 64 of them a warpgroup; columns are tokens or the state's other axis.
 */
#include "serial.h"

#include <stdio.h>
#include <string.h>

static int fragment(Serial *s, Ref r);

static _Noreturn void too_many(Serial *s, const char *what)
{
    no_room(s->e, "too many %s", what);
}

int array_new(Serial *s, bool packed, int cols, const char *fmt, unsigned n)
{
    if (s->narrays == MAX_ARRAYS)
        too_many(s, "matrices in registers");
    Array *a = &s->array[s->narrays];
    memset(a, 0, sizeof *a);
    snprintf(a->name, sizeof a->name, fmt, n);
    a->packed = packed;
    a->cols = cols;
    a->holds = -1;
    return s->narrays++;
}

int value_new(Serial *s, int array)
{
    if (s->nvalues == MAX_VALUES)
        too_many(s, "matrices in registers");
    s->value[s->nvalues] = (Value){ .array = array };
    return s->nvalues++;
}

Act *act_new(Serial *s, ActKind kind, int to, int from)
{
    if (s->nacts == MAX_ACTS)
        too_many(s, "steps in one kernel");
    Act *a = &s->act[s->nacts++];
    memset(a, 0, sizeof *a);
    a->kind = kind;
    a->to = to;
    for (int i = 1; i < MAX_FROM; i++)
        a->from[i] = -1;
    a->from[0] = from;
    a->base = a->vector = a->one = -1;
    a->score = -1;
    return a;
}

static const Array *array_of(const Serial *s, int value)
{
    return &s->array[s->value[value].array];
}

/* The result of an act on `from` that may take its place. */
static int in_place(Serial *s, int from)
{
    return value_new(s, s->value[from].array);
}

/* ---- operands ---- */

/* The column axis of a fragment: what it has beside rows. */
static int column_axis(Serial *s, Ref r)
{
    AxisSet rest = s->e->g->n[r].axes & ~AXIS(s->e->row_axis) & ~RANK_AXES;
    if (!rest || rest & (rest - 1))
        no_place(s->e, r, "a value of other axes than the state's rows and"
                 " one more");
    return lowest(rest);
}

static int columns(Serial *s, Ref r)
{
    int ax = column_axis(s, r);
    return ax < AX_DIM ? ROWS : padded(s->e->g->axis[ax].size);
}

static int read_tile(Serial *s, Ref tile)
{
    Emit *e = s->e;
    tile = strip(e->g, tile);
    if (s->of[tile] >= 0)
        return s->of[tile];
    if (tile_axis(e, tile) != e->row_axis)
        no_place(e, tile, "the state's rows are not its axis");
    if (is_tile(e, tile) && !is_float(e, tile))
        use_loaded(e, tile);
    else
        use_tile(e, tile);
    int v = value_new(s, array_new(s, true, ROWS, "t%u", tile));
    act_new(s, ACT_READ, v, -1)->node = tile;
    return s->of[tile] = v;
}

/* The same for arithmetic: once a product is through with it, the tile is
 * read again rather than kept, four instructions for sixteen registers. */
static int read_again(Serial *s, Ref tile)
{
    tile = strip(s->e->g, tile);
    int first = s->of[tile];
    if (first < 0)
        return read_tile(s, tile);
    for (int i = 0; i < s->nacts; i++)
        if (s->act[i].kind == ACT_READ && s->act[i].node == tile
            && s->act[i].to != first)
            return s->act[i].to;
    int v = in_place(s, first);
    act_new(s, ACT_READ, v, -1)->node = tile;
    return v;
}

static int packed(Serial *s, int value, const char *fmt, unsigned n)
{
    for (int i = 0; i < s->nacts; i++)
        if (s->act[i].kind == ACT_PACK && s->act[i].from[0] == value)
            return s->act[i].to;
    int cols = array_of(s, value)->cols;
    int v = value_new(s, array_new(s, true, cols, fmt, n));
    act_new(s, ACT_PACK, v, value);
    return v;
}

static int scaled(Serial *s, int value, int vector)
{
    for (int i = 0; i < s->nacts; i++)
        if (s->act[i].kind == ACT_SCALE && s->act[i].from[0] == value
            && s->act[i].vector == vector)
            return s->act[i].to;
    int v = value_new(s, array_new(s, true, array_of(s, value)->cols,
                                   "scaled%u", (unsigned)s->nvalues));
    act_new(s, ACT_SCALE, v, value)->vector = vector;
    return v;
}

/* The register operand of a product, without its factors. */
static int register_operand(Serial *s, Ref core)
{
    const Node *n = &s->e->g->n[core];
    if (n->op == OP_state)
        return s->snapshot[n->index];
    if (is_matrix(s->e, core))
        return read_tile(s, core);
    return packed(s, fragment(s, core), "packed%u", core);
}

/* ---- products ---- */

typedef struct Parts { Product a, b, outer; int vector; } Parts;

static bool has_rows(const Serial *s, Ref r)
{
    return s->e->g->n[r].axes & AXIS(s->e->row_axis);
}

/* The factors of `from` that are, or are not, one a token; or all. */
static void append(Serial *s, Product *to, const Product *from, bool tokens,
                   bool others)
{
    for (int i = 0; i < from->n; i++) {
        if (!(is_token(s->e, from->f[i].v) ? tokens : others))
            continue;
        if (to->n == MAX_FACTORS)
            no_place(s->e, from->f[i].v, "too many factors in one product");
        to->f[to->n++] = from->f[i];
    }
}

/* Splits a product into operands, what scales the contracted tokens, and what
 * stays outside. */
static Parts parts(Serial *s, Ref r)
{
    Emit *e = s->e;
    const Node *n = &e->g->n[r];
    Parts p = { .vector = -1 };
    AxisSet over = n->over & ~RANK_AXES;
    int axis = over ? lowest(over) : 0;
    int a = has_rows(s, n->a[0]) ? 0 : 1;
    if (!over || over & (over - 1) || has_rows(s, n->a[1 - a])
        || !has_rows(s, n->a[a]))
        no_place(e, r, "a product that does not keep the state's rows");
    peel(e, n->a[a], &p.a);
    peel(e, n->a[1 - a], &p.b);
    if (!p.a.core || !p.b.core)
        no_place(e, r, "a product with a vector");
    p.outer.negative = p.a.negative != p.b.negative;
    bool contracted = axis < AX_DIM;    /* tokens are */
    Product inner = { .n = 0 };
    append(s, &inner, &p.a, contracted, false);
    append(s, &inner, &p.b, contracted, false);
    p.vector = publish(e, &inner, true, false);
    append(s, &p.outer, &p.a, !contracted, true);
    append(s, &p.outer, &p.b, !contracted, true);
    return p;
}

static bool is_bare(Serial *s, Ref r)
{
    if (s->e->g->n[r].op != OP_dot)
        return false;
    Parts p = parts(s, r);
    return !p.outer.n && !p.outer.negative;
}

/* B is stored [token][x]: along K when x is contracted, across it when the
 * tokens are. A score is [i][j]: along when j is; it takes what scales the
 * contracted tokens, so that the register operand need not. */
static void place_b(Serial *s, Act *act, Ref r, const Parts *p)
{
    Emit *e = s->e;
    int axis = lowest(e->g->n[r].over);
    if (is_score(e, p->b.core)) {
        act->score = use_score(e, (Score){ p->b.core, p->vector,
                                           axis != AX_J, false });
        act->across = axis != AX_J;
    } else {
        use_tile(e, p->b.core);
        act->b = strip(e->g, p->b.core);
        act->across = axis < AX_DIM;
    }
}

/* (1 - a)^{-1} b: the ahead warpgroup inverts; here it is a product. */
static int solved(Serial *s, Ref r)
{
    Emit *e = s->e;
    const Node *n = &e->g->n[r];
    if (!is_score(e, n->a[0]) || n->flags & TRANS)
        no_place(e, r, "a solve of other axes than tokens");
    int b = packed(s, fragment(s, n->a[1]), "packed%u", n->a[1]);
    int to = value_new(s, array_new(s, false, ROWS, "f%u", r));
    Act *act = act_new(s, ACT_PRODUCT, to, b);
    act->node = r;
    act->score = use_score(e, (Score){ n->a[0], -1, false, true });
    return to;
}

/* base: what to add it to, or -1. */
static int product(Serial *s, Ref r, int base)
{
    Parts p = parts(s, r);
    int a = register_operand(s, p.a.core);
    if (p.vector >= 0 && !is_score(s->e, p.b.core))
        a = scaled(s, a, p.vector);
    int to = base >= 0 ? in_place(s, base)
           : value_new(s, array_new(s, false, columns(s, r), "f%u", r));
    int cols = array_of(s, to)->cols;
    if (cols != 64 && cols != 128)
        no_place(s->e, r, "a state of more than 128 columns");
    Act *act = act_new(s, ACT_PRODUCT, to, a);
    act->base = base;
    act->node = r;
    place_b(s, act, r, &p);
    if (!p.outer.n && !p.outer.negative)
        return to;
    int out = in_place(s, to);
    act = act_new(s, ACT_FACTOR, out, to);
    act->vector = publish(s->e, &p.outer, true, false);
    act->one = publish(s->e, &p.outer, false, false);
    return out;
}

/* ---- element-wise nodes ---- */

/* How often r is read entry by entry: then its registers are not free. */
static int entry_uses(Serial *s, Ref r)
{
    const Graph *g = s->e->g;
    int n = 0;
    for (Ref u = r + 1; u < g->len; u++)
        if (s->e->mine[u] && s->e->uses[u]
            && is_entrywise(&g->n[u]))
            for (int i = 0; i < 3; i++)
                n += g->n[u].a[i] == r;
    return n;
}

static int copied(Serial *s, int value)
{
    const Array *a = array_of(s, value);
    int v = value_new(s, array_new(s, false, a->cols, "copy%u",
                                   (unsigned)s->nvalues));
    act_new(s, ACT_COPY, v, value);
    return v;
}

static int sum_with_product(Serial *s, Ref r)
{
    const Node *n = &s->e->g->n[r];
    int at = is_bare(s, n->a[1]) ? 1 : is_bare(s, n->a[0]) ? 0 : -1;
    if (n->op != OP_add || at < 0 || entry_uses(s, n->a[at]) > 1
        || is_tile(s->e, n->a[1 - at]))
        return -1;
    int base = fragment(s, n->a[1 - at]);
    if (entry_uses(s, n->a[1 - at]) > 1)
        base = copied(s, base);
    return product(s, n->a[at], base);
}

/* Nodes that nobody else reads are part of one act: what they are made of is
 * in registers anyway, they need none of their own. */
static bool is_inner(Serial *s, Ref r)
{
    const Node *n = &s->e->g->n[r];
    bool sum = n->op == OP_add
            && (is_bare(s, n->a[0]) || is_bare(s, n->a[1]));
    return is_entrywise(n) && !sum && s->of[r] < 0
        && entry_uses(s, r) == 1;
}

static void add_leaf(Serial *s, Act *act, Ref r)
{
    for (int i = 0; i < act->nfrom; i++)
        if (act->leaf[i] == r)
            return;
    if (act->nfrom == MAX_FROM)
        no_place(s->e, r, "too long an expression");
    act->leaf[act->nfrom] = r;
    act->from[act->nfrom++] = is_tile(s->e, r) ? read_again(s, r)
                                               : fragment(s, r);
}

/* Gathers leaves and inner nodes below r, operands first. */
static void gather(Serial *s, Act *act, Ref r)
{
    Emit *e = s->e;
    const Node *n = &e->g->n[r];
    for (int i = 0; i < 3; i++) {
        Ref x = n->a[i];
        if (!x || e->g->n[x].op == OP_num)
            continue;
        if (is_vector(e, x)) {
            publish_one(e, x, false);
        } else if (is_keyed(e, x)) {
            use_key(e, x);
        } else if (!is_tile(e, x) && is_inner(s, x)) {
            gather(s, act, x);
            if (act->ninner == MAX_INNER)
                no_place(e, x, "too long an expression");
            act->inner[act->ninner++] = x;
        } else {
            add_leaf(s, act, x);
        }
    }
}

static int element(Serial *s, Ref r)
{
    Act found = { .node = r };
    int place = -1;
    gather(s, &found, r);
    for (int i = 0; i < found.nfrom; i++)
        if (!array_of(s, found.from[i])->packed
            && entry_uses(s, found.leaf[i]) == 1)
            place = found.from[i];
    int to = place >= 0 ? in_place(s, place)
           : value_new(s, array_new(s, false, columns(s, r), "f%u", r));
    Act *act = act_new(s, ACT_ELEMENT, to, -1);
    act->node = r;
    act->nfrom = found.nfrom;
    act->ninner = found.ninner;
    memcpy(act->from, found.from, (size_t)found.nfrom * sizeof *act->from);
    memcpy(act->leaf, found.leaf, sizeof act->leaf);
    memcpy(act->inner, found.inner, sizeof act->inner);
    return to;
}

static int fragment(Serial *s, Ref r)
{
    Emit *e = s->e;
    const Node *n = &e->g->n[r];
    if (s->of[r] >= 0)
        return s->of[r];
    if (!has_rows(s, r) || is_vector(e, r))
        no_place(e, r, "a value without the state's rows, where one with"
                 " them is needed");
    columns(s, r);
    int v = -1;
    if (n->op == OP_dot)
        v = product(s, r, -1);
    else if (n->op == OP_solve)
        v = solved(s, r);
    else if (!is_entrywise(n))
        no_place(e, r, "this operation behind the state");
    else if ((v = sum_with_product(s, r)) < 0)
        v = element(s, r);
    return s->of[r] = v;
}

/* ---- the roots ---- */

static void carry_states(Serial *s)
{
    const Graph *g = s->e->g;
    for (int i = 0; i < g->nst; i++) {
        s->snapshot[i] = -1;
        if (!(s->e->serial >> i & 1))
            continue;
        int cols = columns(s, g->st[i].node);
        int f = array_new(s, false, cols, "s%u", (unsigned)i);
        int p = array_new(s, true, cols, "s%u_packed", (unsigned)i);
        s->array[f].carried = s->array[p].carried = true;
        s->of[g->st[i].node] = s->array[f].holds = value_new(s, f);
        s->snapshot[i] = s->array[p].holds = value_new(s, p);
        s->value[s->snapshot[i]].ready = true;
        s->value[s->of[g->st[i].node]].ready = true;
    }
}

static void output_roots(Serial *s)
{
    const Graph *g = s->e->g;
    for (int i = 0; i < g->nout; i++) {
        Ref r = g->out[i].node;
        s->output[i] = -1;
        if (!r || !s->e->mine[r])
            continue;
        if (column_axis(s, r) != AX_I || s->e->g->n[r].axes & RANK_AXES)
            no_place(s->e, r, "a result without tokens, or with ranks");
        s->output[i] = packed(s, fragment(s, r), "y%u", (unsigned)i);
        s->array[s->value[s->output[i]].array].carried = true;
        for (int k = 0; k < s->nacts; k++)
            if (s->act[k].to == s->output[i])
                s->act[k].last = true;
    }
}

static bool is_read(const Serial *s, int value)
{
    for (int i = 0; i < s->nacts; i++)
        if (s->act[i].from[0] == value)
            return true;                /* only products read a snapshot */
    return false;
}

/* The state as the chunk leaves it, in its registers, and packed for the
 * next chunk's products. */
static void state_roots(Serial *s)
{
    const Graph *g = s->e->g;
    int next[MAX_STATES];
    for (int i = 0; i < g->nst; i++)
        if (s->snapshot[i] >= 0)
            next[i] = fragment(s, g->st[i].next);
    for (int i = 0; i < g->nst; i++) {
        if (s->snapshot[i] < 0)
            continue;
        int home = s->value[s->of[g->st[i].node]].array;
        if (s->value[next[i]].array != home) {
            int v = value_new(s, home);
            act_new(s, ACT_COPY, v, next[i]);
            next[i] = v;
        }
        if (!is_read(s, s->snapshot[i]))
            continue;
        s->e->packed |= STATE(i);
        int again = value_new(s, s->value[s->snapshot[i]].array);
        act_new(s, ACT_PACK, again, next[i]);
    }
}

static Serial *serial_new(Emit *e, Buf *b)
{
    Serial *s = ctx_alloc(e->c, sizeof *s);
    s->e = e;
    s->b = b;
    s->of = ctx_alloc(e->c, e->g->len * sizeof *s->of);
    for (Ref r = 0; r < e->g->len; r++)
        s->of[r] = -1;
    carry_states(s);
    return s;
}

/* Where registers are few, or the ahead warpgroup takes longer anyway, several
 * scaled operands take the place of what they are made of, once the products
 * with that are done. */
static void share_scaled(Serial *s)
{
    int n = 0;
    for (int i = 0; i < s->nacts; i++)
        n += s->act[i].kind == ACT_SCALE;
    bool few = n > 1 && (s->e->groups > 1 || s->e->nchains);
    for (int i = 0; i < s->nacts && few; i++)
        if (s->act[i].kind == ACT_SCALE)
            s->value[s->act[i].to].array = s->value[s->act[i].from[0]].array;
}

void emit_serial(Emit *e)
{
    Serial *s = serial_new(e, &e->state);
    output_roots(s);
    state_roots(s);
    share_scaled(s);
    serial_order(s);
}

void scan_sources(Emit *e, uint32_t sources)
{
    for (int i = 0; i < e->ntiles; i++)
        e->tile[i].scanned |= sources >> i & 1;
}

static bool is_deferred_at(const Emit *e, int pub)
{
    return pub >= 0 && e->pub[pub].deferred;
}

/* Of what the ahead warpgroup makes of whole rows, a scan has nothing. */
static bool reads_deferred(const Serial *s, const Act *a)
{
    const Emit *e = s->e;
    bool deferred = is_deferred_at(e, a->vector) || is_deferred_at(e, a->one);
    for (int i = 0; a->kind == ACT_ELEMENT && i <= a->ninner; i++)
        deferred |= has_deferred(e, i < a->ninner ? a->inner[i] : a->node);
    return deferred;
}

/* Whether a scan has only matrices in it that are loaded, or made from such;
 * marks them. */
static bool mark_scanned(Serial *s)
{
    Emit *e = s->e;
    for (int i = 0; i < s->nacts; i++) {
        const Act *a = &s->act[i];
        Ref r = a->kind == ACT_READ ? a->node : a->b;
        if (a->score >= 0 || a->kind == ACT_PACK || reads_deferred(s, a))
            return false;
        for (int t = 0; t < e->ntiles && r; t++)
            if (e->tile[t].r == r && !e->tile[t].anchor) {
                e->tile[t].scanned = true;
                scan_sources(e, e->tile[t].sources);
                e->computed_scan |= e->tile[t].computed;
                if (e->tile[t].gated || has_deferred(e, r))
                    return false;
            }
    }
    for (int i = 0; i < e->ngates && e->computed_scan; i++)
        scan_sources(e, e->gate[i].sources);
    return true;
}

bool emit_scan(Emit *e)
{
    Serial *s = serial_new(e, &e->scan);
    s->scan = true;
    state_roots(s);
    if (!mark_scanned(s))
        return false;
    serial_order(s);
    return true;
}
