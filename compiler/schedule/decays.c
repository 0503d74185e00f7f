/* decays.c -- decays per key: sums of a matrix along the chunk, and products
 * under them.
 */
#include "select.h"

/* They share a place. */
static bool same_scan(const Graph *g, Ref a, Ref b)
{
    const Node *m = &g->n[scan_of(g, a)], *n = &g->n[scan_of(g, b)];
    return scan_operand(g, a) == scan_operand(g, b) && m->op == n->op
        && !((m->flags ^ n->flags) & REVERSE)
        && (adds_tokens(m->op) || m == n);
}

bool is_decayed_factor(const Select *x, Ref r)
{
    for (const Reader *u = readers(x, r); u->of == r; u++)
        if (u->operand < 2 && is_decayed_contraction(x->g->n[u->node].op)
            && (x->kind[u->node] == PRODUCT || x->kind[u->node] == MERGED))
            return true;
    return false;
}

/* As many rows as a token has are before the first, of zeros or of what a scan
 * begins with, and behind the last, of zeros: sums without the token itself
 * begin there. Those back do so a row on: of a token the first row counts. */
int sums_of(Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    int v = value_of(x, r, LAY_SUMS);
    KValue *to = &x->s->value[v];
    bool without = (x->kind[r] == SCANNED || x->kind[r] == SHIFTED)
                && (op_is(n->op, SHIFTS) || n->flags & EXCLUSIVE);
    int rows = rows_of_token(x->g);
    to->at = sums_pitch(to) * (!without ? rows : !(n->flags & REVERSE) ? 0
             : x->kind[r] == SHIFTED ? 2 * rows : rows + 1);
    return v;
}

static void scan_writes(Select *x, KInst *k, Ref r)
{
    int from = k->in[0], v = sums_of(x, r);
    x->s->value[v].alias = (int16_t)from;
    writes(x, k, v);
}

/* Of a token, or of all alike: a constant of the sums' axis, a number. */
static bool scan_gates(Select *x, KInst *k, Ref gate)
{
    const Node *n = &x->g->n[gate];
    if (is_matrix(x, gate)) {
        if (x->kind[gate] != ELEMENT && x->kind[gate] != SHIFTED
            && x->kind[gate] != LOADED)
            return refuse(x, gate, "gates that are no programs'");
        reads(x, k, sums_of(x, gate));
    } else if (x->kind[gate] == VECTOR) {
        reads(x, k, value_of(x, gate, vector_layout(x, gate)));
    } else if (n->op == OP_input && n->axes == AXIS(k->col)) {
        reads(x, k, value_of(x, gate, found_layout(x, gate)));
    } else if (n->op != OP_num) {
        return refuse(x, gate, "gates that no vector role computes");
    }
    return true;
}

/* A scan's gates, and what it begins with. */
static bool scan_begins(Select *x, KInst *k, const Node *n)
{
    Ref gate = shown_node(x->g, n->a[0]), before = n->a[2];
    if (gate && !scan_gates(x, k, gate))
        return false;
    if (x->g->n[before].op == OP_num)
        return x->g->n[before].num == 0
            || refuse(x, before, "a scan that does not begin with zeros");
    if (n->flags & REVERSE)
        return refuse(x, before, "a scan back that does not begin with zeros");
    if (x->kind[before] != HELD && schedule_computes(x->s, before))
        return refuse(x, before, "a scan that begins with what is computed");
    reads(x, k, value_of(x, before, found_layout(x, before)));
    return true;
}

/* What is found, in float32 where it is added up. */
static bool select_operand(Select *x, Ref space, Ref a)
{
    bool tile = x->kind[a] == LOADED && !is_read_directly(x, a);
    if (tile)
        select_load(x, a);
    KInst *k = inst_new(x, K_MAP, KR_MATRIX);
    set_space(x, k, space);
    if (schedule_value(x->s, a, LAY_SUMS) != NOTHING)
        return refuse(x, a, "two sums of what is found");
    reads(x, k, value_of(x, a, tile ? LAY_TILE : LAY_GLOBAL));
    int v = sums_of(x, a);
    KValue *to = &x->s->value[v];
    to->row = k->row;
    to->col = k->col;
    to->nrow = k->nrow;
    to->ncol = k->ncol;
    to->at = sums_pitch(to) * rows_of_token(x->g);
    writes(x, k, v);
    return true;
}

static bool is_scanned_here(const Schedule *s, int v)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        any |= s->inst[i].op == K_SCAN && s->inst[i].in[0] == v;
    return any;
}

/* Gates that are found lie as sums, too, once for all scans that they gate. */
static bool select_gates(Select *x, Ref space, Ref scan)
{
    const Node *n = &x->g->n[scan];
    Ref gate = n->a[2] ? shown_node(x->g, n->a[0]) : 0;
    if (!gate || !is_matrix(x, gate) || x->kind[gate] != LOADED)
        return true;
    int v = schedule_value(x->s, gate, LAY_SUMS);
    if (v != NOTHING && is_scanned_here(x->s, v))
        return refuse(x, gate, "gates that are added up, too");
    return v != NOTHING || select_operand(x, space, gate);
}

bool select_scan(Select *x, Ref r)
{
    Schedule *s = x->s;
    Ref a = scan_operand(x->g, r);
    const Node *n = &x->g->n[scan_of(x->g, r)];
    KInst *k = NULL;
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_SCAN && s->value[s->inst[i].in[0]].node == a)
            k = &s->inst[i];
    if (k && !same_scan(x->g, s->value[k->out[0]].node, r))
        return refuse(x, r, "sums of one matrix both forwards and back");
    bool found = x->kind[a] == LOADED
              || (x->kind[a] == ACROSS && (x->g->n[a].op == OP_input
                                           || !schedule_computes(x->s, a)));
    if (x->kind[a] != ELEMENT && x->kind[a] != PRODUCT && x->kind[a] != PAIRED
        && !found)
        return refuse(x, a, "to be added up, but not computed here");
    if (!k && found && !select_operand(x, r, a))
        return false;
    if (!k && !select_gates(x, r, scan_of(x->g, r)))
        return false;
    if (!k) {
        int from = sums_of(x, a);
        k = inst_new(x, K_SCAN, KR_MATRIX);
        set_space(x, k, r);
        reads(x, k, from);
        if (n->a[2] && !scan_begins(x, k, n))
            return false;
    }
    scan_writes(x, k, r);
    for (Ref q = r + 1; q < x->g->len; q++)
        if (x->kind[q] == LAST && x->g->n[q].a[0] == r)
            writes(x, k, value_of(x, q, LAY_VECTOR));
    return true;
}

void select_shift(Select *x, Ref r)
{
    KInst *k = inst_new(x, K_CLEAR, KR_MATRIX);
    reads(x, k, sums_of(x, shown_node(x->g, x->g->n[r].a[0])));
    scan_writes(x, k, r);
}

/* ---- products ---- */

static bool add_terms(const Graph *g, Ref r, double scale, KTerm *t, int *n)
{
    const Node *a = &g->n[r];
    Ref x = a->a[0], y = a->a[1];
    if (is_decayed_contraction(a->op)) {
        if (*n == MOST_TERMS)
            return false;
        t[(*n)++] = (KTerm){ r, scale };
        return true;
    }
    switch (a->op) {
    case OP_add: case OP_sub:
        return add_terms(g, x, scale, t, n)
            && add_terms(g, y, a->op == OP_sub ? -scale : scale, t, n);
    case OP_mul:
        return g->n[y].op == OP_num
             ? add_terms(g, x, scale * g->n[y].num, t, n)
             : g->n[x].op == OP_num
               && add_terms(g, y, scale * g->n[x].num, t, n);
    }
    return false;
}

int decayed_terms(const Graph *g, Ref r, KTerm t[MOST_TERMS])
{
    int n = 0;
    return add_terms(g, r, 1, t, &n) ? n : 0;
}

bool decay_alike(const Graph *g, Ref a, Ref b)
{
    const Node *m = &g->n[a], *n = &g->n[b];
    bool later = m->over & AXIS(AX_J);
    return m->axes == n->axes && m->over == n->over
        && shown_node(g, m->a[3]) == shown_node(g, n->a[3])
        && (!later || shown_node(g, m->a[2]) == shown_node(g, n->a[2]));
}

/* What leads from r to the products is for it alone. */
static bool is_own_tree(const Select *x, Ref r)
{
    for (int i = 0; i < 2; i++) {
        Ref a = x->g->n[r].a[i];
        if (x->kind[a] != NUMBER
            && (!is_only_for(x, a, r)
                || (x->kind[a] != PRODUCT
                    && (x->kind[a] != ELEMENT || !is_own_tree(x, a)))))
            return false;
    }
    return true;
}

static bool is_one_decayed(const Select *x, Ref r)
{
    static const double least = 1e-6, most = 1e6;
    KTerm t[MOST_TERMS];
    int op = x->g->n[r].op;
    bool sum = op == OP_add || op == OP_sub || op == OP_mul;
    if (x->kind[r] != ELEMENT || x->again[r] || x->col[r] < AX_DIM || !sum)
        return false;
    int n = decayed_terms(x->g, r, t);
    for (int i = 0; i < n; i++) {
        double size = t[i].scale < 0 ? -t[i].scale : t[i].scale;
        if (!(size > least && size < most)
            || x->kind[t[i].product] != PRODUCT
            || !decay_alike(x->g, t[0].product, t[i].product))
            return false;
    }
    return n && is_own_tree(x, r);
}

static void merge_tree(Select *x, Ref r)
{
    for (int i = 0; i < 2 && !is_decayed_contraction(x->g->n[r].op); i++) {
        Ref a = x->g->n[r].a[i];
        if (x->kind[a] == NUMBER)
            continue;
        merge_tree(x, a);
        x->kind[a] = MERGED;
    }
}

void merge_decayed(Select *x)
{
    for (Ref r = (Ref)x->g->len - 1; r > 0; r--)
        if (is_one_decayed(x, r)) {
            merge_tree(x, r);
            x->kind[r] = PRODUCT;
        }
}

void load_factors(Select *x, Ref r)
{
    KTerm t[MOST_TERMS];
    int n = is_under_decays(x, r) ? decayed_terms(x->g, r, t) : 0;
    for (int i = 0; i < n; i++)
        load_operands(x, t[i].product);
    if (!n)
        load_operands(x, r);
}

static bool reads_decayed(Select *x, KInst *k, Ref r)
{
    const Graph *g = x->g;
    const Node *n = &g->n[r];
    Ref a = shown_node(g, n->a[0]), b = shown_node(g, n->a[1]);
    bool transposed = x->col[b] == AX_J;
    if (x->row[a] != AX_I || x->row[b] != AX_I || is_read_directly(x, a)
        || is_read_directly(x, b))
        return refuse(x, r, "factors that are no tiles of tokens");
    int16_t *in = k->in + k->nin;
    in[0] = (int16_t)value_of(x, transposed ? b : a, LAY_TILE);
    in[1] = (int16_t)value_of(x, transposed ? a : b, LAY_TILE);
    in[2] = (int16_t)sums_of(x, shown_node(g, n->a[2]));
    in[3] = (int16_t)sums_of(x, shown_node(g, n->a[3]));
    k->nin += 4;
    return true;
}

bool select_decayed(Select *x, Ref r)
{
    KTerm t[MOST_TERMS];
    int n = decayed_terms(x->g, r, t);
    KInst *k = inst_new(x, K_DECAYED, KR_MATRIX);
    for (int i = 0; i < n; i++)
        if (!reads_decayed(x, k, t[i].product))
            return false;
    set_space(x, k, r);
    writes(x, k, value_of(x, r, LAY_FRAGMENT));
    return true;
}
