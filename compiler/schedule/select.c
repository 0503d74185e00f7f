/* select.c -- nodes become values and instructions.
 *
 * A node is loaded (a tile), a vector of tokens (the vector roles), a product,
 * an element-wise matrix or a sum along one (the matrix role). Its **level**
 * counts the products whose factor was computed, and the sums that vectors go
 * on from, on the longest way to it; what is element by element sinks as late
 * as its readers allow. Matrices of one level that go on from one another
 * element by element form a **group**: its products, then one K_MAP.
 */
#include "select.h"

/* ---- who reads ---- */

/* Whether the matrix role leaves the output from its fragments: it is no copy
 * of a tile, but in float32, or narrower than that, or this head's share of
 * what heads have in common. */
static bool is_share(const Select *x, int out)
{
    return out != NOTHING && (x->w->sum_out[out] || x->w->out[out] == F32
                              || ((x->s->leave || x->s->tile == F32
                                   || !has_whole_rows(x, x->g->out[out].node))
                                  && x->w->out[out] == x->w->memory));
}

/* Whose vectors of that level are: the first are one role's, those that wait
 * for sums the other's. */
static KRole vector_role(const Select *x, int level)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (x->kind[r] == VECTOR && x->level[r] < level)
            return KR_VECTOR2;
    return KR_VECTOR;
}

/* Whether the matrix role, or another vector role, reads it. */
static bool is_read_elsewhere(const Select *x, Ref r)
{
    KRole role = vector_role(x, x->level[r]);
    for (const Reader *u = readers(x, r); u->of == r; u++)
        if (x->kind[u->node] >= VECTOR
            && (x->kind[u->node] >= ACROSS
                || vector_role(x, x->level[u->node]) != role))
            return true;
    return false;
}

/* ---- the vector roles ---- */

/* Whether the output that r is is one of tokens, of a type that there is. */
static bool is_vector_result(const Select *x, Ref r)
{
    int out = output_of(x, r);
    return x->g->n[r].axes == AXIS(AX_I)
        && (x->w->out[out] == F32 || x->w->out[out] == x->w->memory);
}

/* Whether the role has r from a program before. */
static bool has_vector(const Select *x, KRole role, Ref r)
{
    const Schedule *s = x->s;
    for (const KInst *k = s->inst; k < s->inst + s->ninsts; k++) {
        if (k->op != K_VECTOR || k->role != role)
            continue;
        if (has_node(k, r))
            return true;
        for (int i = 0; i < k->nin; i++)
            if (s->value[k->in[i]].node == r)
                return true;
    }
    return false;
}

static bool select_vectors(Select *x, int level, KRole role)
{
    const Graph *g = x->g;
    KInst *k = NULL;
    int at = 0;
    for (Ref r = 1; r < g->len; r++) {
        if (x->kind[r] != VECTOR || x->level[r] != level)
            continue;
        if (!k) {
            at = x->s->ninsts;
            k = inst_new(x, K_VECTOR, role);
        }
        k = &x->s->inst[at];
        program_add(x, k, r);
        for (int i = 0; i < 4; i++) {
            Ref a = shown_node(g, g->n[r].a[i]);
            if ((x->kind[a] == REDUCED
                 || (x->kind[a] == VECTOR && x->level[a] != level))
                && !has_vector(x, role, a))
                reads(x, k, value_of(x, a, vector_layout(x, a)));
        }
        if (is_read_elsewhere(x, r))
            writes(x, k, value_of(x, r, vector_layout(x, r)));
        if (output_of(x, r) != NOTHING && !is_vector_result(x, r))
            return refuse(x, r, "a result of another kind or type");
    }
    return true;
}

/* Sums that are kept for others, or a result. */
static bool is_sum_left(const Select *x, Ref r)
{
    return x->kind[r] == REDUCED
        && (x->w->stores[r] || output_of(x, r) != NOTHING);
}

/* The last program of vectors writes them; it is from instruction `from` on. */
static void store_sums(Select *x, KRole role, int from)
{
    KInst *k = NULL;
    for (int i = from; i < x->s->ninsts; i++)
        if (x->s->inst[i].op == K_VECTOR)
            k = &x->s->inst[i];
    for (Ref r = 1; r < x->g->len; r++)
        if (is_sum_left(x, r) && !has_vector(x, role, r)) {
            if (!k)
                k = inst_new(x, K_VECTOR, role);
            reads(x, k, value_of(x, r, vector_layout(x, r)));
        }
}

static bool select_all_vectors(Select *x, int level)
{
    KRole role = vector_role(x, level);
    int first = x->s->ninsts;
    bool any = false;
    for (Ref r = 1; r < x->g->len; r++)
        any |= (x->kind[r] == VECTOR && x->level[r] == level)
            || (is_sum_left(x, r) && level == x->deepest + 1);
    if (!any)
        return true;
    if (!select_vectors(x, level, role))
        return false;
    if (level == x->deepest + 1)
        store_sums(x, role, first);
    return true;
}

/* ---- the matrix role ---- */

/* Whether the contracted axis runs along the rows of the tile that the operand
 * shows. */
static bool contracts_rows(const Select *x, Ref operand, AxisSet over)
{
    Ref r = shown_node(x->g, operand);
    bool scores = x->col[r] == AX_J;
    int ax = lowest(over);
    if (ax >= AX_DIM)
        return x->row[r] == ax;
    return scores ? ax == x->row[r] : x->row[r] == AX_I;
}

/* What a solve's scores become is made with them, once. */
static void select_inverse(Select *x, Ref r)
{
    KInst *k = inst_new(x, K_INVERSE, KR_MATRIX);
    reads(x, k, value_of(x, r, LAY_WIDE));
    writes(x, k, value_of(x, r, LAY_INVERSE));
}

/* What products find of a factor that is computed here, or of the left one of
 * a row axis. */
static Layout factor_layout(const Select *x, Ref r)
{
    return has_row_axis(x, r) ? LAY_PACKED : LAY_TILE;
}

static bool select_solve(Select *x, KInst *k, const Node *n)
{
    Ref b = shown_node(x->g, n->a[1]);
    if (!in_matrix_role(x, n->a[0])
        && !(x->kind[n->a[0]] == LOADED && is_solved(x, n->a[0])))
        return refuse(x, n->a[0], "to be inverted, but not computed here");
    bool transposed = is_transposed(x, b);
    if (x->row[b] != AX_I && !transposed)
        return refuse(x, b, "a right side whose rows are not tokens");
    k->in[transposed] = (int16_t)value_of(x, n->a[0], LAY_INVERSE);
    k->in[!transposed] = (int16_t)value_of(x, b, factor_layout(x, b));
    k->nin = 2;
    k->transposed[transposed] = n->flags & TRANS;
    k->transposed[!transposed] = !transposed;
    return true;
}

static void select_factors(Select *x, KInst *k, Ref r)
{
    const Graph *g = x->g;
    const Node *n = &g->n[r];
    /* the result's rows, by the name that they have in it */
    int row = x->row[r];
    if (row == AX_I && !(n->axes & AXIS(AX_I)))
        row = AX_J;
    bool second = !(g->n[n->a[0]].axes & ~n->over & AXIS(row));
    Ref a = n->a[second], b = n->a[!second];
    Ref left = shown_node(g, a);
    int va = value_of(x, left, factor_layout(x, left));
    int vb = value_of(x, shown_node(g, b), LAY_TILE);
    k->in[0] = (int16_t)va;
    k->in[1] = (int16_t)vb;
    k->nin = 2;
    k->transposed[0] = factor_layout(x, left) == LAY_TILE
                && contracts_rows(x, a, n->over);
    k->transposed[1] = contracts_rows(x, b, n->over);
}

/* What it is added to becomes the result. */
static void accumulate(Select *x, KInst *k, Ref r)
{
    int to = value_of(x, x->base[r], LAY_FRAGMENT);
    int v = value_of(x, r, LAY_FRAGMENT);
    k->in[k->nin++] = (int16_t)to;
    k->minus = x->g->n[r].op == OP_sub;
    x->s->value[v].alias = (int16_t)to;
}

static bool select_product(Select *x, Ref r)
{
    Ref product = x->term[r] ? x->term[r] : r;
    const Node *n = &x->g->n[product];
    bool solves = is_solve(x, n);
    int over = solves ? AX_J : lowest(n->over);
    if (extent(x, over) % 16 || extent(x, x->row[r]) % 16
        || extent(x, x->col[r]) % 16)
        return refuse(x, r, "sizes that no product of the card has");
    for (int i = solves; i < 2; i++) {
        Ref a = shown_node(x->g, n->a[i]);
        if (is_read_directly(x, a))
            return refuse(x, r, "a factor of another type");
        if (x->kind[a] == LOADED && is_solved(x, a))
            return refuse(x, a, "kept as its inverse, and read as itself");
    }
    KInst *k = inst_new(x, K_PRODUCT, KR_MATRIX);
    if (!solves)
        select_factors(x, k, product);
    else if (!select_solve(x, k, n))
        return false;
    if (x->term[r])
        accumulate(x, k, r);
    set_space(x, k, r);
    writes(x, k, value_of(x, r, LAY_FRAGMENT));
    return true;
}

static bool map_computes(Select *x, KInst *k, Ref r);

/* Which axis the columns of a matrix of tokens are where r shows it. */
static int seen_column(const Select *x, Ref r)
{
    Ref shown = shown_node(x->g, r);
    AxisSet dims = x->g->n[r].axes & DIM_AXES;
    return x->row[shown] == AX_I && dims && x->col[shown] >= AX_DIM
         ? lowest(dims) : x->col[shown];
}

/* Whether a program of other columns computes it, too: entry by entry then. */
static bool has_other_columns(const Select *x, const KInst *k, Ref r)
{
    return x->again[r] && k->row == AX_I && k->col >= AX_DIM
        && x->row[r] == AX_I && x->col[r] >= AX_DIM && x->col[r] != k->col;
}

/* What K_MAP reads beside its own group's. */
static bool map_reads(Select *x, KInst *k, Ref r)
{
    const Node *n = &x->g->n[r];
    int col = has_other_columns(x, k, r) ? x->col[r] : k->col;
    if (col != k->col && !op_is(n->op, ELEMENTWISE))
        return refuse(x, r, "of columns that have another name");
    for (int i = 0; i < 4; i++) {
        Ref a = shown_node(x->g, n->a[i]);
        if (x->again[a] || x->kind[a] == ACROSS) {
            if (!map_computes(x, k, a))
                return false;
            continue;
        }
        switch (x->kind[a]) {
        case LOADED:
            if (is_solved(x, a))
                return refuse(x, a, "kept as its inverse, and read as itself");
            if (x->row[a] != k->row
                || (k->col != AX_J && seen_column(x, n->a[i]) != col))
                return refuse(x, r, "a tile that lies the other way round");
            reads(x, k, value_of(x, a, is_read_directly(x, a) ? LAY_GLOBAL
                                       : is_wide_input(x, a) ? LAY_TILE
                                       : factor_layout(x, a)));
            break;
        case SCANNED: case PAIRED: case SHIFTED:
            reads(x, k, sums_of(x, a));
            break;
        case HELD: case VECTOR: case REDUCED: case LAST:
            reads(x, k, value_of(x, a, vector_layout(x, a)));
            break;
        case PRODUCT: case CARRIED:
            reads(x, k, value_of(x, a, LAY_FRAGMENT));
            break;
        case ELEMENT:
            if (x->group[a] != x->group[r] || x->part[a] != x->part[r])
                reads(x, k, value_of(x, a, LAY_FRAGMENT));
            break;
        default: break;
        }
    }
    return true;
}

/* Whether r is made, element by element, of a scan with gates. */
static bool is_of_scan(const Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    bool any = false;
    for (int i = 0; i < 4; i++) {
        Ref a = shown_node(x->g, n->a[i]);
        any |= x->kind[a] == SCANNED ? !adds_tokens(x->g->n[a].op)
             : x->again[a] && is_of_scan(x, a);
    }
    return any;
}

/* The tile of a factor that a program before has left. Under decays: gradients
 * of those are differences of what must be of the same numbers; of a scan: that
 * need not stay where it is. */
static int rounded_tile(const Select *x, const KInst *k, Ref r)
{
    int v = schedule_value(x->s, r, LAY_TILE);
    for (const KInst *i = x->s->inst; i < k && v != NOTHING; i++)
        for (int j = 0; j < i->nout && i->op == K_MAP; j++)
            if (i->out[j] == v
                && (is_decayed_factor(x, r) || is_of_scan(x, r)))
                return v;
    return NOTHING;
}

/* Among sums, where a program before has left it and no scan has gone over it.
 */
static int left_as_sums(const Select *x, const KInst *k, Ref r)
{
    int v = schedule_value(x->s, r, LAY_SUMS), at = NOTHING;
    for (const KInst *i = x->s->inst; i < k && v != NOTHING; i++) {
        for (int j = 0; j < i->nout; j++)
            at = i->out[j] == v ? v : at;
        if (i->op == K_SCAN && i->in[0] == v)
            return NOTHING;
    }
    return x->kind[r] == ELEMENT ? at : NOTHING;
}

/* Node r of the program, and before it what it goes on from. */
static bool map_computes(Select *x, KInst *k, Ref r)
{
    int v = rounded_tile(x, k, r);
    if (has_node(k, r))
        return true;
    if (is_handed_across(x, r)) {
        reads(x, k, value_of(x, r, LAY_VECTOR));
        return true;
    }
    v = v != NOTHING ? v : left_as_sums(x, k, r);
    if (v != NOTHING) {
        reads(x, k, v);
        return true;
    }
    if (x->g->n[r].op == OP_input
        || (x->kind[r] == ACROSS && !schedule_computes(x->s, r)))
        reads(x, k, value_of(x, r, LAY_GLOBAL));
    else if (!map_reads(x, k, r))
        return false;
    else
        program_add(x, k, r);
    return true;
}

static bool is_read_later(const Select *x, Ref r)
{
    for (const Reader *e = readers(x, r); e->of == r; e++) {
        Ref u = e->node;
        if ((x->kind[u] == ELEMENT || x->kind[u] == REDUCED || x->term[u])
            && (x->group[u] != x->group[r] || x->part[u] != x->part[r]))
            return true;
    }
    return false;
}

static bool is_read_here(const Select *x, Ref r)
{
    for (const Reader *u = readers(x, r); u->of == r; u++)
        if (x->kind[u->node] >= VECTOR && schedule_computes(x->s, u->node))
            return true;
    return false;
}

/* A matrix of tokens that is kept in 16 bits, straight from registers. */
static bool is_kept_at_once(const Select *x, Ref r)
{
    return x->s->leave && is_kept(x, r) && !is_solved(x, r)
        && x->row[r] == AX_I && x->col[r] >= AX_DIM;
}

static bool map_writes(Select *x, KInst *k, Ref r)
{
    int out = output_of(x, r);
    if (x->kind[r] == REDUCED) {
        int v = value_of(x, r, vector_layout(x, r));
        KValue *to = &x->s->value[v];
        bool scores = k->col == AX_J, vector = to->layout == LAY_VECTOR;
        bool of_rows = scores ? x->g->n[r].axes & AXIS(AX_I)
                              : to->row == k->row;
        /* of each warpgroup's columns, of each warp's rows, or both */
        to->parts = (uint8_t)(!vector ? 4 * x->s->groups
                              : of_rows ? x->s->groups : 4);
        writes(x, k, v);
    } else {
        bool packed = factor_layout(x, r) == LAY_PACKED;
        if (is_factor(x, r) && packed)
            writes(x, k, value_of(x, r, LAY_PACKED));
        if ((is_factor(x, r) && !packed)
            || (out != NOTHING && !is_share(x, out))
            || (is_kept(x, r) && !is_solved(x, r) && !is_kept_at_once(x, r)))
            writes(x, k, value_of(x, r, LAY_TILE));
        if (is_inverted(x, r))
            writes(x, k, value_of(x, r, LAY_WIDE));
        if (is_scanned(x, r) || (x->kind[r] == PAIRED && is_read_here(x, r)))
            writes(x, k, sums_of(x, r));
        if (is_kept_wide(x, r))
            writes(x, k, value_of(x, r, LAY_GLOBAL));
        if (x->kind[r] == ELEMENT
            && (is_share(x, out) || is_kept_at_once(x, r) || is_next(x, r)
                || (!x->again[r] && is_read_later(x, r))))
            writes(x, k, value_of(x, r, LAY_FRAGMENT));
    }
    if (out == NOTHING || (x->kind[r] == REDUCED && is_vector_result(x, r)))
        return true;
    return (x->kind[r] < SCANNED
            && (is_share(x, out) || x->w->out[out] == x->w->memory)
            && (is_transposed(x, r) || (x->row[r] == AX_I
                                    && x->col[r] >= AX_DIM)))
        || refuse(x, r, "a result that is no matrix, or of another type");
}

/* Results of the group that the matrix role leaves itself. */
static void store_shares(Select *x, int group, int level, int part)
{
    for (Ref r = 1; r < x->g->len; r++) {
        int out = output_of(x, r);
        if (!in_matrix_role(x, r) || x->kind[r] == REDUCED
            || x->group[r] != group || x->level[r] != level
            || x->part[r] != part)
            continue;
        if (is_share(x, out)) {
            KInst *k = inst_new(x, K_STORE, KR_MATRIX);
            reads(x, k, value_of(x, r, LAY_FRAGMENT));
            k->index = (int16_t)out;
        }
        if (is_kept_at_once(x, r))
            reads(x, inst_new(x, K_STORE, KR_MATRIX),
                  value_of(x, r, LAY_FRAGMENT));
    }
}

/* What a group, or a part of it, has instructions for. */
typedef struct Part { int group, level, number; } Part;

static bool is_of_part(const Select *x, Ref r, const Part *of)
{
    return is_of_group(x, r, of->group, of->level)
        && x->part[r] == of->number;
}

/* All products of one kind: under decays per key, which are done at once, or
 * under way when those are done. Returns how many, or NOTHING. */
static int select_products(Select *x, const Part *of, bool decayed)
{
    int n = 0;
    for (Ref r = 1; r < x->g->len; r++) {
        if (!is_of_part(x, r, of) || x->kind[r] != PRODUCT
            || is_under_decays(x, r) != decayed)
            continue;
        if (decayed)                    /* done at once: what only later ones
                                           read may come behind it */
            load_factors(x, r);
        if (!(decayed ? select_decayed(x, r) : select_product(x, r)))
            return NOTHING;
        n++;
    }
    return n;
}

/* Products that are under way end. */
static void settle(Select *x, int first)
{
    KInst *k = inst_new(x, K_SETTLE, KR_MATRIX);
    for (int i = first; i < x->s->ninsts - 1; i++)
        for (int j = 0; j < 2; j++)
            reads(x, k, x->s->inst[i].in[j]);
}

/* Marks those of the program's nodes that r is made of, and what it reads. */
static void mark_made_of(const Select *x, const KInst *k, Ref r, bool *marked)
{
    bool computes = has_node(k, r) && !marked[r];
    marked[r] = true;
    for (int i = 0; i < 4 && computes; i++)
        mark_made_of(x, k, shown_node(x->g, x->g->n[r].a[i]), marked);
}

/* Of the program what leaves tiles, by itself. */
static KInst program_of_tiles(const Select *x, const KInst *k)
{
    bool *marked = ctx_alloc(x->c, x->g->len);
    KInst of = *k;
    of.node = ctx_alloc(x->c, ((size_t)k->nnodes + 1) * sizeof *of.node);
    of.nin = of.nout = 0;
    of.nnodes = 0;
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = &x->s->value[k->out[i]];
        if (v->layout != LAY_TILE)
            continue;
        of.out[of.nout++] = k->out[i];
        mark_made_of(x, k, v->node, marked);
    }
    for (int i = 0; i < k->nnodes; i++)
        if (marked[k->node[i]])
            of.node[of.nnodes++] = k->node[i];
    for (int i = 0; i < k->nin; i++)
        if (marked[x->s->value[k->in[i]].node])
            of.in[of.nin++] = k->in[i];
    return of;
}

/* Beside a product's factor a tile of what the program finds as a fragment, and
 * those that it makes of that, have a program of their own, of a row axis: the
 * product need not wait for them. Tiles alternate in the order in which they
 * are made, so that all of them have it.
 */
static void leave_tiles(Select *x, int at)
{
    const KInst k = x->s->inst[at];
    int packs = 0, tiles = 0;
    bool found = false;
    for (int i = 0; i < k.nout; i++) {
        const KValue *v = &x->s->value[k.out[i]];
        packs += v->layout == LAY_PACKED;
        tiles += v->layout == LAY_TILE;
        found |= v->layout == LAY_TILE && !has_node(&k, v->node)
              && schedule_value(x->s, v->node, LAY_FRAGMENT) != NOTHING;
    }
    if (!packs || !found || (tiles > 1 && packs + tiles < k.nout))
        return;
    KInst *first = &x->s->inst[at];
    first->nout = 0;
    for (int i = 0; i < k.nout; i++)
        if (x->s->value[k.out[i]].layout != LAY_TILE)
            first->out[first->nout++] = k.out[i];
    inst_insert(x->s, at + 1, program_of_tiles(x, &k));
}

/* Of a walk as rows what products left is packed by itself, as it is: the
 * product that takes it goes on while other factors are computed. */
static void leave_factor(Select *x, int at)
{
    KInst *k = &x->s->inst[at], packs = *k;
    int f = NOTHING;
    for (int i = 0; i < k->nout && f == NOTHING; i++) {
        const KValue *v = &x->s->value[k->out[i]];
        if (v->layout != LAY_PACKED || has_node(k, v->node))
            continue;
        f = schedule_value(x->s, v->node, LAY_FRAGMENT);
        packs.in[0] = (int16_t)f;
        packs.out[0] = k->out[i];
    }
    if (f == NOTHING || !k->nnodes || k->nout < 2
        || !has_value(k->in, k->nin, f))
        return;
    int n = 0;
    for (int i = 0; i < k->nout; i++)
        if (k->out[i] != packs.out[0])
            k->out[n++] = k->out[i];
    k->nout = (uint8_t)n;
    packs.nin = packs.nout = 1;
    packs.nnodes = 0;
    inst_insert(x->s, at, packs);
}

/* The program that goes on from products. */
static bool select_map(Select *x, const Part *of)
{
    bool same = true;
    int at = x->s->ninsts;
    KInst *k = inst_new(x, K_MAP, KR_MATRIX);
    for (Ref r = 1; r < x->g->len && same; r++) {
        if (!is_of_part(x, r, of))
            continue;
        k = &x->s->inst[at];
        if (!k->nnodes && !k->nrow)
            set_space(x, k, r);
        same = k->row == x->row[r] && k->col == x->col[r];
        if (x->kind[r] != PRODUCT && x->kind[r] != CARRIED) {
            if (!map_computes(x, k, r))
                return false;
        } else if (!is_base(x, r)) {
            reads(x, k, value_of(x, r, LAY_FRAGMENT));
        }
        if (!map_writes(x, k, r))
            return false;
    }
    k = &x->s->inst[at];
    if (k->nrow % 16 || k->ncol % 16
        || (k->row != x->s->row_axis && k->ncol % (16 * x->s->groups)))
        return refuse(x, (Ref)of->group, "sizes that no fragment has");
    if (!k->nnodes && !k->nout) {
        x->s->ninsts--;
    } else if (k->row == x->s->row_axis) {
        leave_tiles(x, at);
        if (walks_alone_forward(x->s))
            leave_factor(x, at);
    }
    return same || refuse(x, (Ref)of->group, "a group of several spaces");
}

static void load_part(Select *x, const Part *of)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (is_of_part(x, r, of)) {
            load_factors(x, r);
            load_operands(x, x->term[r]);
        }
}

static bool select_part(Select *x, const Part *of)
{
    bool any = false;
    for (Ref r = 1; r < x->g->len; r++)
        any |= is_of_part(x, r, of) && x->kind[r] != LAST;
    if (!x->s->rings)
        load_part(x, of);
    if (!any)
        return true;
    if (select_products(x, of, true) == NOTHING)
        return false;
    load_part(x, of);
    int first = x->s->ninsts;
    int products = select_products(x, of, false);
    if (products > 0)
        settle(x, first);
    if (products == NOTHING || !select_map(x, of))
        return false;
    for (Ref r = 1; r < x->g->len; r++)
        if (is_of_part(x, r, of) && is_inverted(x, r))
            select_inverse(x, r);
    store_shares(x, of->group, of->level, of->number);
    return true;
}

/* Sums that are a result, or kept, leave as all others do. */
static bool select_result(Select *x, Ref r)
{
    int out = output_of(x, r);
    bool keeps = is_kept(x, r), wide = is_kept_wide(x, r);
    if (out == NOTHING && !keeps && !wide)
        return true;
    KInst *k = inst_new(x, K_MAP, KR_MATRIX);
    set_space(x, k, r);
    reads(x, k, sums_of(x, r));
    bool share = out != NOTHING && is_share(x, out);
    if (wide)
        writes(x, k, value_of(x, r, LAY_GLOBAL));
    if (keeps || (out != NOTHING && !share))
        writes(x, k, value_of(x, r, LAY_TILE));
    if (share) {
        writes(x, k, value_of(x, r, LAY_FRAGMENT));
        store_shares(x, (int)r, x->level[r], x->part[r]);
    }
    return out == NOTHING || share || x->w->out[out] == x->w->memory
        || refuse(x, r, "a result of another type");
}

static bool select_group(Select *x, int group, int level)
{
    if (x->done[group])
        return true;
    x->done[group] = true;
    if (x->kind[group] == SCANNED)
        return select_scan(x, (Ref)group) && select_result(x, (Ref)group);
    for (Ref r = 1; r < x->g->len; r++)
        if (is_of_group(x, r, group, level) && x->term[r]
            && x->level[x->base[r]] == level
            && !select_group(x, x->group[x->base[r]], level))
            return false;
    if (x->kind[group] == SHIFTED) {
        select_shift(x, (Ref)group);
        return true;
    }
    int parts = select_parts(x, group, level);
    for (int i = 0; i < parts; i++)
        if (!select_part(x, &(Part){ group, level, i }))
            return false;
    return true;
}

static void select_store(Select *x, int value)
{
    Ref computed = x->s->value[value].node;
    if (is_kept(x, computed) && !is_kept_at_once(x, computed))
        reads(x, inst_new(x, K_STORE, KR_STORE), value);
    for (int i = 0; i < x->g->nout; i++) {
        if (!x->w->wants_out[i] || is_share(x, i)
            || shown_node(x->g, x->g->out[i].node) != computed)
            continue;
        KInst *k = inst_new(x, K_STORE, KR_STORE);
        reads(x, k, value);
        k->index = (int16_t)i;
    }
}

/* In the order in which they are made. */
static void select_stores(Select *x)
{
    int n = x->s->ninsts;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < x->s->inst[i].nout; j++) {
            int v = x->s->inst[i].out[j];
            bool tile = x->s->inst[i].op == K_MAP
                     && x->s->value[v].layout == LAY_TILE;
            if (tile || x->s->inst[i].op == K_INVERSE)
                select_store(x, v);
        }
}

/* Whether some instruction makes each result that is wanted. */
static bool makes_results(Select *x)
{
    for (int i = 0; i < x->g->nout; i++) {
        Ref r = shown_node(x->g, x->g->out[i].node);
        bool computed = x->kind[r] == PRODUCT || x->kind[r] == ELEMENT
                 || x->kind[r] == REDUCED || x->kind[r] == SCANNED
                 || (x->kind[r] == VECTOR && x->g->n[r].op != OP_input
                     && schedule_computes(x->s, r));
        if (x->w->wants_out[i] && !computed)
            return refuse(x, r, "a result that nothing computes");
    }
    return true;
}

/* A state's layout in the matrix role. */
static Layout state_layout(const Select *x, Ref r)
{
    return x->kind[r] == CARRIED ? LAY_FRAGMENT : LAY_VECTOR;
}

/* Vectors that are carried, as each chunk finds them, for kernels behind. */
static void keep_vectors(Select *x)
{
    for (int i = 0; i < x->g->nst; i++) {
        Ref r = x->g->st[i].node;
        if (x->s->k->states & STATE(i) && !is_in_lanes(x, i)
            && x->kind[r] == HELD && x->w->stores[r])
            reads(x, inst_new(x, K_STORE, KR_MATRIX),
                  value_of(x, r, LAY_VECTOR));
    }
}

/* The state's fragment or vector, from before the walk to behind it. */
static void begin_states(Select *x)
{
    for (int i = 0; i < x->g->nst; i++) {
        Ref r = x->g->st[i].node;
        if (x->s->k->states & ~x->left & STATE(i) && !is_in_lanes(x, i)
            && (x->kind[r] == CARRIED || x->kind[r] == HELD)) {
            KInst *k = inst_new(x, K_BEGIN, KR_MATRIX);
            writes(x, k, value_of(x, r, state_layout(x, r)));
            k->index = (int16_t)i;
        }
    }
}

/* What becomes of a state is written over it where nobody reads it later. */
static void write_over(Select *x, int state, int next)
{
    Schedule *s = x->s;
    int writer = NOTHING, last = NOTHING;
    for (int i = 0; i < s->ninsts; i++) {
        for (int j = 0; j < s->inst[i].nout; j++)
            writer = s->inst[i].out[j] == next ? i : writer;
        for (int j = 0; j < s->inst[i].nin; j++)
            last = s->inst[i].in[j] == state ? i : last;
    }
    if (next != state && writer != NOTHING && writer >= last
        && s->inst[writer].op == K_MAP)
        s->value[next].alias = (int16_t)state;
}

/* A number is the role's that computes what becomes of it. */
static bool number_state(Select *x, int state)
{
    static const KOp ops[] = { K_BEGIN, K_CARRY, K_END };
    Ref next = shown_node(x->g, x->g->st[state].next);
    for (int i = 0; i < x->s->ninsts; i++)
        for (int n = 0; n < x->s->inst[i].nnodes; n++)
            if (x->s->inst[i].op == K_VECTOR
                && x->s->inst[i].node[n] == next) {
                KRole role = (KRole)x->s->inst[i].role;
                for (int op = 0; op < 3; op++)
                    inst_new(x, ops[op], role)->index = (int16_t)state;
                return true;
            }
    return refuse(x, next, "a number that no vector role computes");
}

/* What the program of lanes makes r of, and r. */
static bool lanes_compute(Select *x, KInst *k, Ref r, Ref state)
{
    const Node *n = &x->g->n[r];
    bool numbers = x->kind[r] == NUMBER || (x->kind[r] == VECTOR && !n->axes
                                            && !x->level[r]);
    if (has_node(k, r) || r == state || numbers)
        return true;
    if (x->kind[r] != ACROSS || plain_axes(x->g, r) != x->g->n[state].axes)
        return refuse(x, r, "beside a vector in lanes, but not of its axis");
    for (int i = 0; i < 4 && schedule_computes(x->s, r); i++)
        if (n->a[i] && !lanes_compute(x, k, shown_node(x->g, n->a[i]), state))
            return false;
    program_add(x, k, r);
    return true;
}

/* A vector in lanes is theirs alone: others would have to be told. */
static bool lane_state(Select *x, int state)
{
    static const KOp ops[] = { K_BEGIN, K_VECTOR, K_CARRY, K_END };
    const State *st = &x->g->st[state];
    for (Ref u = 1; u < x->g->len; u++)
        for (int i = 0; i < 4; i++)
            if (shown_node(x->g, x->g->n[u].a[i]) == st->node
                && x->kind[u] >= VECTOR && x->kind[u] != ACROSS)
                return refuse(x, u, "reads a vector that lanes have");
    for (int op = 0; op < 4; op++) {
        KInst *k = inst_new(x, ops[op], KR_VECTOR);
        if (ops[op] != K_VECTOR) {
            k->index = (int16_t)state;
            continue;
        }
        k->row = (uint8_t)lowest(x->g->n[st->node].axes);
        k->nrow = extent(x, k->row);
        k->ncol = 1;
        if (x->w->stores[st->node])
            program_add(x, k, st->node);
        if (!lanes_compute(x, k, shown_node(x->g, st->next), st->node))
            return false;
    }
    return true;
}

static bool end_states(Select *x)
{
    static const KOp ops[] = { K_CARRY, K_END };
    if (walks_behind(x->s))
        schedule_store_packed(x->s);
    for (int op = 0; op < 2; op++)
        for (int i = 0; i < x->g->nst; i++) {
            Ref from = x->g->st[i].node;
            Ref to = shown_node(x->g, x->g->st[i].next);
            if (!(x->s->k->states & ~x->left & STATE(i)))
                continue;
            if (is_in_lanes(x, i)) {
                if (op == 0 && !lane_state(x, i))
                    return false;
                continue;
            }
            if (x->kind[from] == VECTOR) {
                if (op == 0 && !number_state(x, i))
                    return false;
                continue;
            }
            bool vector = x->kind[from] == HELD;
            if (vector && !is_summed(x, to) && !is_computed_across(x, to))
                return refuse(x, to, "a vector that becomes no sum");
            if (!vector && (x->kind[to] < PRODUCT || x->kind[to] >= SCANNED
                || x->row[to] != x->row[from] || x->col[to] != x->col[from]))
                return refuse(x, to, "a state that becomes no matrix");
            KInst *k = inst_new(x, ops[op], KR_MATRIX);
            k->index = (int16_t)i;
            int state = value_of(x, from, state_layout(x, from));
            if (op == 0) {
                int next = value_of(x, to, state_layout(x, from));
                if (!vector)
                    write_over(x, state, fragment_root(x->s, next));
                reads(x, k, next);
            }
            reads(x, k, state);
        }
    end_left(x);
    return true;
}

/* Scores first: they feed the other groups of their level and those behind.
 * What becomes of a state last: others read what it was. */
typedef enum Rank { FEEDS, LEAVES, CARRIES_ON, NRANKED } Rank;

/* By group of the level: its rank, and at its first node that it is the first.
 */
typedef struct Ranks { uint8_t *of; bool *seen, *first; } Ranks;

static Ranks find_ranks(const Select *x, int level)
{
    size_t n = x->g->len;
    Ranks y = { ctx_alloc(x->c, n), ctx_alloc(x->c, n * sizeof *y.seen),
                ctx_alloc(x->c, n * sizeof *y.first) };
    for (Ref r = 1; r < x->g->len; r++) {
        if (!in_matrix_role(x, r) || x->level[r] != level)
            continue;
        int group = x->group[r];
        y.first[r] = !y.seen[group];
        uint8_t *rank = &y.of[group];
        *rank = y.seen[group] ? *rank : LEAVES;
        y.seen[group] = true;
        if (is_next(x, r))
            *rank = CARRIES_ON;
        else if (*rank == LEAVES && (is_factor(x, r) || is_inverted(x, r)))
            *rank = FEEDS;
    }
    return y;
}

static bool select_level(Select *x, int level)
{
    if (!select_all_vectors(x, level))
        return false;
    Ranks ranks = find_ranks(x, level);
    for (int rank = 0; rank < NRANKED; rank++)
        for (Ref r = 1; r < x->g->len; r++)
            if (ranks.first[r] && ranks.of[x->group[r]] == rank
                && !is_base_group(x, x->group[r], level)
                && !select_group(x, x->group[r], level))
                return false;
    for (Ref r = 1; r < x->g->len; r++)
        if (is_computed_across(x, r) && x->level[r] == level
            && !select_across(x, r))
            return false;
    return true;
}

/* Warpgroups of the matrix role without a row axis: two where every fragment
 * can be dealt, none where there is none. Four where nothing is multiplied:
 * they hide each other's waits. */
static int find_groups_of_warps(const Select *x)
{
    enum { EACH = 32 };                 /* columns */
    bool any = false, multiplies = false, many = true;
    for (Ref r = 1; r < x->g->len; r++) {
        any |= in_matrix_role(x, r) || is_computed_across(x, r);
        multiplies |= x->kind[r] == PRODUCT || x->kind[r] == CARRIED;
        if (in_matrix_role(x, r) && extent(x, x->col[r]) % 32)
            return 1;
        many &= !in_matrix_role(x, r) || x->row[r] == x->col[r]
             || extent(x, x->col[r]) % (MOST_WARPGROUPS * EACH) == 0;
    }
    return !any ? 0 : multiplies || !many ? 2 : MOST_WARPGROUPS;
}

/* Inputs: a kernel's nodes, classified. Requires sizes. Leaves values without
 * buffers, instructions without waits. */
bool schedule_select(Schedule *s, const KernelWish *w)
{
    size_t n = s->g->len;
    Select x = { .s = s, .w = w, .g = s->g, .c = s->c };
    x.has = ctx_alloc(s->c, n);
    x.needs = ctx_alloc(s->c, n * sizeof *x.needs);
    x.kind = ctx_alloc(s->c, n);
    x.again = ctx_alloc(s->c, n * sizeof *x.again);
    x.row = ctx_alloc(s->c, n);
    x.col = ctx_alloc(s->c, n);
    x.level = ctx_alloc(s->c, n * sizeof *x.level);
    x.latest = ctx_alloc(s->c, n * sizeof *x.latest);
    x.group = ctx_alloc(s->c, n * sizeof *x.group);
    x.part = ctx_alloc(s->c, n * sizeof *x.part);
    x.term = ctx_alloc(s->c, n * sizeof *x.term);
    x.base = ctx_alloc(s->c, n * sizeof *x.base);
    x.done = ctx_alloc(s->c, n * sizeof *x.done);
    find_readers(&x);
    if (!select_classify(&x))
        return false;
    if (s->row_axis)
        s->groups = (int)extent(&x, s->row_axis) / TILE_ROWS;
    select_levels(&x);
    if (!s->row_axis)
        s->groups = find_groups_of_warps(&x);
    begin_states(&x);
    keep_vectors(&x);
    for (int level = 0; level <= x.deepest + 1; level++)
        if (!select_level(&x, level))
            return false;
    select_stores(&x);
    return makes_results(&x) && end_states(&x) && !s->why;
}
