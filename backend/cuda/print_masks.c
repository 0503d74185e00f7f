/* print_masks.c -- decays between tokens in element-wise programs: powers of 2,
 * where they are taken as zero, and a factor that goes into their exponents.
 */
#include "print_parts.h"
#include "source.h"

#include <math.h>

/* Whether decays alone read the vector. */
bool is_of_decays(const Print *p, const KInst *k, Ref o)
{
    const Graph *g = p->s->g;
    int v = schedule_value(p->s, shown_node(g, o), LAY_VECTOR);
    bool alone = v != NOTHING && has_value(k->in, k->nin, v)
              && !is_found_by_steps(p, k, value_at(p, v));
    for (int i = 0; i < k->nnodes; i++)
        for (int j = 0; j < 4; j++)
            alone &= shown_node(g, g->n[k->node[i]].a[j]) != shown_node(g, o)
                  || is_mask(g->n[k->node[i]].op);
    return alone;
}

/* Whether the program's decays are powers of 2: the sums that they are of are
 * taken times log2(e) as they are found, not each difference. Such a product is
 * fused with a difference and then no longer what it is alone: a token's own
 * decay is off by a rounding of its sum, which float32 would show. */
static bool has_powers(const Print *p, const KInst *k)
{
    bool any = false, all = true;
    for (int i = 0; i < k->nnodes; i++) {
        const Node *n = &p->s->g->n[k->node[i]];
        if (!is_mask(n->op) || !n->a[0])
            continue;
        any = true;
        all &= is_of_decays(p, k, n->a[0]) && is_of_decays(p, k, n->a[1]);
    }
    return any && all && p->s->tile != F32;
}

const char *factor_text(const Print *p, const KInst *k, Ref r)
{
    return has_powers(p, k) && is_of_decays(p, k, r) ? "LOG2E * " : "";
}

static const char *exponent_text(Print *p, const KInst *k, Ref o)
{
    int v = schedule_value(p->s, shown_node(p->s->g, o), LAY_VECTOR);
    bool times = has_powers(p, k) && !runs_along_rows(p, k, o)
              && is_found_by_columns(p, k, value_at(p, v));
    return ctx_format(p->c, "%s%s", times ? "LOG2E * " : "",
                      element_of(p, k, o));
}

/* Whether the program has made r before the products that it scales ended. */
bool is_computed_early(const Print *p, const KInst *k, Ref r)
{
    const Node *n = &p->s->g->n[r];
    return k->early && is_mask(n->op) && n->a[0];
}

/* The one node of the program that reads r, of which the program leaves
 * nothing; 0: there is none, or there are several. */
static Ref only_reader(const Print *p, const KInst *k, Ref r)
{
    const Graph *g = p->s->g;
    Ref reader = 0;
    int all = 0;
    for (int i = 0; i < k->nnodes; i++)
        for (int j = 0; j < op_info[g->n[k->node[i]].op].arity && j < 4; j++)
            if (shown_node(g, g->n[k->node[i]].a[j]) == r) {
                reader = k->node[i];
                all++;
            }
    for (int i = 0; i < k->nout; i++)
        all += value_at(p, k->out[i])->node == r;
    return all == 1 ? reader : 0;
}

/* The positive number that the product r is of; 0: it is of none. */
static double number_times(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    for (int i = 0; i < 2 && n->op == OP_mul; i++) {
        const Node *a = &g->n[shown_node(g, n->a[i])];
        if (a->op == OP_num && a->num > 0 && isfinite(a->num))
            return a->num;
    }
    return 0;
}

/* What a number scales that scores are scaled by, too, powers of 2 that are
 * made early in a forward walk: it goes into their exponents, of which a lane
 * adds it to those of its two rows. The number; 0: there is none. */
static double factor_in(const Print *p, const KInst *k, Ref decays)
{
    const Graph *g = p->s->g;
    Ref scaled = only_reader(p, k, decays);
    Ref all = scaled && g->n[scaled].op == OP_mul
            ? only_reader(p, k, scaled) : 0;
    bool may = all && walks_behind(p->s) && is_computed_early(p, k, decays)
            && has_powers(p, k) && k->nrow <= TILE_ROWS
            && runs_along_rows(p, k, g->n[decays].a[0]);
    return may ? number_times(g, all) : 0;
}

/* Whether such decays have its factor already: the operand that is left; -1:
 * they have not. */
int left_of_factor(const Print *p, const KInst *k, Ref r)
{
    const Graph *g = p->s->g;
    for (int i = 0; i < k->nnodes; i++) {
        Ref scaled = is_mask(g->n[k->node[i]].op) && factor_in(p, k, k->node[i])
                   ? only_reader(p, k, k->node[i]) : 0;
        for (int j = 0; j < 2 && scaled && only_reader(p, k, scaled) == r; j++)
            if (shown_node(g, g->n[r].a[j]) == scaled)
                return j;
    }
    return -1;
}

/* Whether the program's node is nothing where `factor` is. */
static bool is_multiple_of(const Graph *g, const KInst *k, Ref r, Ref factor)
{
    const Node *n = &g->n[r];
    int most = n->op == OP_mul ? 2 : n->op == OP_neg;
    bool any = r == factor;
    for (int i = 0; i < most && !any; i++)
        any = has_node(k, shown_node(g, n->a[i]))
           && is_multiple_of(g, k, shown_node(g, n->a[i]), factor);
    return any;
}

/* The decays of a program, made early, of which all that it leaves is a
 * multiple, as tiles of 16 bits: where they are taken as zero is cleared in
 * these, two elements at once. 0: there are none. */
Ref cleared_decays(const Print *p, const KInst *k)
{
    Ref found = 0;
    int decays = 0;
    for (int i = 0; i < k->nnodes; i++)
        if (is_mask(p->s->g->n[k->node[i]].op)) {
            found = k->node[i];
            decays++;
        }
    bool all = decays == 1 && is_computed_early(p, k, found)
            && p->s->tile != F32 && k->nrow <= TILE_ROWS;
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        all &= v->layout == LAY_TILE && has_node(k, v->node)
            && is_multiple_of(p->s->g, k, v->node, found);
    }
    return all ? found : 0;
}

/* Decays are computed above the diagonal, too, where some are no numbers, but
 * taken on one side of it. Which side an element is on is one comparison with
 * what a lane has of all; of rows that are ranks with rows, or with tokens. */
const char *masked_decay(Print *p, const KInst *k, const Node *n)
{
    bool rows = n->op == OP_later;
    bool cleared = n == &p->s->g->n[cleared_decays(p, k)];
    const char *at = n->flags & STRICT || rows ? ">" : ">=";
    const char *side = !p->s->g->rows ? "over %s past"
                     : rows ? "row %s col" : "token(row) %s token(col)";
    const char *from = n->a[0] ? exponent_text(p, k, n->a[0]) : "";
    double factor = factor_in(p, k, (Ref)(n - p->s->g->n));
    if (factor) {
        Buf number = { .ctx = p->c };
        number_text(&number, log2(factor));
        from = ctx_format(p->c, "(%s + %s)", from, number.s);
    }
    const char *y = n->a[0] ? ctx_format(p->c, "%s(%s - %s)",
                                         has_powers(p, k) ? "exp2_" : "exp_",
                                         from, exponent_text(p, k, n->a[1]))
                            : "1.f";
    side = ctx_format(p->c, side, at);
    return cleared ? y : ctx_format(p->c, "kept_(%s, %s)", side, y);
}

bool has_masks(const Print *p, const KInst *k)
{
    bool any = false;
    for (int i = 0; i < k->nnodes && !cleared_decays(p, k); i++)
        any |= is_mask(p->s->g->n[k->node[i]].op)
            && (p->beside || !is_computed_early(p, k, k->node[i]));
    return any && !p->s->g->rows;
}
