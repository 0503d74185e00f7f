/* accumulate.c -- sums whose term is a product: the tensor cores add it to a
 * fragment that is there (select.c). Of r = o + p, or o - p, with a product p
 * that nobody else reads, no fragment of p is needed, and none of r if nobody
 * reads o later: r is written over o.
 */
#include "select.h"

/* Whether node u is computed here and reads r. */
static bool is_read_by(const Select *x, Ref r, Ref u)
{
    const Graph *g = x->g;
    for (int i = 0; i < 4 && x->kind[u] >= VECTOR; i++)
        if (shown_node(g, g->n[u].a[i]) == r)
            return true;
    return false;
}

static bool is_like(const Select *x, Ref a, Ref b)
{
    return in_matrix_role(x, a) && x->kind[a] < SCANNED && !x->again[a]
        && x->row[a] == x->row[b] && x->col[a] == x->col[b];
}

bool is_only_for(const Select *x, Ref a, Ref r)
{
    for (Ref u = 1; u < x->g->len; u++)
        if (u != r && is_read_by(x, a, u))
            return false;
    return !is_result(x, a) && !is_next(x, a);
}

/* r = o + p or o - p for its operand number i as p. */
static bool adds_product(Select *x, Ref r, int i)
{
    const Node *n = &x->g->n[r];
    Ref p = shown_node(x->g, n->a[i]), o = shown_node(x->g, n->a[!i]);
    if (x->kind[p] != PRODUCT || is_under_decays(x, p) || p == o
        || x->level[p] != x->level[r] || !is_like(x, p, r)
        || !is_only_for(x, p, r) || !is_like(x, o, r))
        return false;
    bool sum = x->kind[o] == PRODUCT || x->term[o];
    if (sum && !is_only_for(x, o, r))
        return false;
    x->term[r] = p;
    x->base[r] = o;
    return true;
}

/* Candidates: of sums with two products the second is added to the first.
 * Requires levels. */
void find_terms(Select *x)
{
    for (Ref r = 1; r < x->g->len; r++) {
        int op = x->g->n[r].op;
        if (x->kind[r] != ELEMENT || (op != OP_add && op != OP_sub))
            continue;
        if (!adds_product(x, r, 1) && op == OP_add)
            adds_product(x, r, 0);
    }
}

bool has_base(const Select *x, Ref r)
{
    return x->term[r] && !x->term[x->base[r]]
        && x->kind[x->base[r]] != PRODUCT;
}

static bool has_products(const Select *x, int group)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (x->kind[r] == PRODUCT && x->group[r] == group)
            return true;
    return false;
}

/* Whether o is there before r's products, and is not needed behind them; made
 * of products of the same level it would have them wait, which they do where
 * registers are short; behind a role ahead they go on one by one, and what a
 * product is added to is made while another one is under way; and nothing goes
 * on from results of walks of one warpgroup. */
static bool may_be_base(const Select *x, Ref o, Ref r)
{
    bool waits = !x->s->narrow && !walks_behind(x->s)
              && !(walks_alone_forward(x->s) && is_result(x, r));
    if (x->group[o] == x->group[r] || is_next(x, o)
        || (x->level[o] == x->level[r] && waits
            && has_products(x, x->group[o])))
        return false;
    for (Ref u = 1; u < x->g->len; u++)
        if (u != r && is_read_by(x, o, u) && x->kind[u] != PRODUCT
            && x->group[u] != x->group[o] && x->level[u] >= x->level[r])
            return false;
    return true;
}

/* Those that hold, given the groups; false: some did not, and groups are to be
 * found again. */
bool keep_terms(Select *x)
{
    bool all = true;
    for (Ref r = 1; r < x->g->len; r++)
        if (x->term[r] && x->kind[x->base[r]] != PRODUCT
            && !(x->term[x->base[r]]
                 ? x->group[x->base[r]] == x->group[r]
                 : may_be_base(x, x->base[r], r))) {
            x->term[r] = x->base[r] = 0;
            all = false;
        }
    return all;
}

/* From now on r is the product. */
void merge_terms(Select *x)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (x->term[r]) {
            x->kind[r] = PRODUCT;
            x->kind[x->term[r]] = MERGED;
        }
}

bool is_base(const Select *x, Ref r)
{
    for (Ref u = 1; u < x->g->len; u++)
        if (x->term[u] && x->base[u] == r && x->kind[r] == PRODUCT)
            return true;
    return false;
}

bool is_base_group(const Select *x, int group, int level)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (x->term[r] && x->level[r] == level
            && x->level[x->base[r]] == level
            && x->group[x->base[r]] == group && x->group[r] != group)
            return true;
    return false;
}
