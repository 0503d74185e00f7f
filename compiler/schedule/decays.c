/* decays.c -- decays per key: sums of a matrix along the chunk, and products
 * under them.
 */
#include "select.h"

/* They share a place. */
static bool same_scan(const Graph *g, Ref a, Ref b)
{
    return shown_node(g, g->n[a].a[0]) == shown_node(g, g->n[b].a[0])
        && !((g->n[a].flags ^ g->n[b].flags) & REVERSE);
}

bool is_scanned(const Select *x, Ref r)
{
    for (Ref u = r + 1; u < x->g->len; u++)
        if (x->kind[u] == SCANNED
            && shown_node(x->g, x->g->n[u].a[0]) == r)
            return true;
    return false;
}

bool is_decayed_factor(const Select *x, Ref r)
{
    for (Ref u = r + 1; u < x->g->len; u++)
        for (int i = 0; i < 2 && x->g->n[u].op == OP_gdot; i++)
            if (x->kind[u] == PRODUCT && shown_node(x->g, x->g->n[u].a[i])
                == r)
                return true;
    return false;
}

/* A row of zeros is before the first, and one behind the last: sums without
 * the token itself begin there. */
int sums_of(Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    int v = value_of(x, r, LAY_SUMS);
    KValue *to = &x->s->value[v];
    bool without = x->kind[r] == SCANNED && n->flags & EXCLUSIVE;
    to->at = sums_pitch(to) * (!without ? 1 : n->flags & REVERSE ? 2 : 0);
    return v;
}

static void scan_writes(Select *x, KInst *k, Ref r)
{
    int from = k->in[0], v = sums_of(x, r);
    x->s->value[v].alias = (int16_t)from;
    writes(x, k, v);
}

bool select_scan(Select *x, Ref r)
{
    Schedule *s = x->s;
    Ref a = shown_node(x->g, x->g->n[r].a[0]);
    KInst *k = NULL;
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_SCAN && s->value[s->inst[i].in[0]].node == a)
            k = &s->inst[i];
    if (k && !same_scan(x->g, s->value[k->out[0]].node, r))
        return refuse(x, r, "sums of one matrix both forwards and back");
    if (x->kind[a] != ELEMENT && x->kind[a] != PRODUCT)
        return refuse(x, a, "to be added up, but not computed here");
    if (!k) {
        int from = sums_of(x, a);
        k = inst_new(x, K_SCAN, KR_MATRIX);
        set_space(x, k, r);
        reads(x, k, from);
    }
    scan_writes(x, k, r);
    for (Ref q = r + 1; q < x->g->len; q++)
        if (x->kind[q] == LAST && x->g->n[q].a[0] == r)
            writes(x, k, value_of(x, q, LAY_VECTOR));
    return true;
}

bool select_decayed(Select *x, Ref r)
{
    const Graph *g = x->g;
    const Node *n = &g->n[r];
    Ref a = shown_node(g, n->a[0]), b = shown_node(g, n->a[1]);
    bool turned = x->col[b] == AX_J;
    if (x->row[a] != AX_I || x->row[b] != AX_I || is_read_directly(x, a)
        || is_read_directly(x, b))
        return refuse(x, r, "factors that are no tiles of tokens");
    KInst *k = inst_new(x, K_DECAYED, KR_MATRIX);
    k->in[0] = (int16_t)value_of(x, turned ? b : a, LAY_TILE);
    k->in[1] = (int16_t)value_of(x, turned ? a : b, LAY_TILE);
    k->in[2] = (int16_t)sums_of(x, shown_node(g, n->a[2]));
    k->in[3] = (int16_t)sums_of(x, shown_node(g, n->a[3]));
    k->nin = 4;
    set_space(x, k, r);
    writes(x, k, value_of(x, r, LAY_FRAGMENT));
    return true;
}
