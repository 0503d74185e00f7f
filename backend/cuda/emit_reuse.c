/* emit_reuse.c -- shared memory that a delta rule with gates per key spares, so
 * that a chunk is loaded and begun while the last one is in hand.
 *
 * What is made for gdots is read again, rounded, by what is made after them,
 * and not worked out anew: the matrices it is made of are through. The scores
 * stay in registers until the gdots are through, and then take their
 * operands' place (emit_layout.c). And states of one axis that nothing reads
 * after the gdots' operands lend their place to the running sums.
 */
#include "ahead.h"

int computed_before(const Emit *e, Ref r)
{
    for (int i = 0; i < e->ntiles && e->reuses; i++) {
        const Tile *t = &e->tile[i];
        if (t->r == r && t->computed && t->gated && !t->anchor)
            return i;
    }
    return -1;
}

/* An inverse and at most one more: there are registers for their products. */
static bool inverts_gdots(const Emit *e)
{
    bool inverts = false;
    for (int i = 0; i < e->nscores; i++)
        inverts |= e->score[i].inverse && has_gdot(e, e->score[i].root);
    return inverts && e->nscores <= 2;
}

void find_reuse(Emit *e)
{
    e->reuses = e->groups == 1 && !e->out->split && inverts_gdots(e);
    for (int i = 0; i < e->ntiles && e->reuses; i++) {
        Tile *t = &e->tile[i];
        if (t->computed && !t->gated)
            t->sources = sources_of(e, t->r);
    }
}

/* ---- sums that share a place ---- */

static bool is_sum(const Emit *e, Ref r, bool chain)
{
    Ref sum = summed(e, r);
    return chain ? is_chain(e, sum)
                 : e->g->n[sum].op == OP_cumsum && is_matrix(e, sum);
}

bool reads_sum(const Emit *e, Ref r, bool chain)
{
    r = strip(e->g, r);
    const Node *n = &e->g->n[r];
    bool reads = is_sum(e, r, chain);
    for (int i = 0; i < 3 && (is_entrywise(n) || n->op == OP_rot90); i++)
        if (n->a[i] && computed_before(e, strip(e->g, n->a[i])) < 0)
            reads |= reads_sum(e, n->a[i], chain);
    return reads;
}

void find_overlay(Emit *e)
{
    bool can = e->reuses && e->ngates && e->nchains;
    for (int i = 0; i < e->ntiles && can; i++)
        if (e->tile[i].computed && !e->tile[i].anchor)
            can = !reads_sum(e, e->tile[i].r, !e->tile[i].gated);
    for (int i = 0; i < e->nkeys && can; i++)
        can = e->g->n[e->key[i]].op != OP_input
           && !reads_sum(e, e->key[i], true);
    for (int i = 0; i < e->ngates && can; i++)
        can = !reads_sum(e, e->gate[i].of, true);
    for (int i = 0; i < e->npub && can; i++)
        can = !e->pub[i].deferred;
    e->overlays = can;
}
