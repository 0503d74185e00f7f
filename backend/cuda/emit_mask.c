/* emit_mask.c -- which tokens a score has, and how they decay.
 *
 * A score that is one masked product and nothing else: its decays are worked
 * out while the product is under way, and so are the words that leave of two
 * packed elements those that the mask has. A masked element is selected, not
 * multiplied by zero: a NaN of a later token stays where it is.
 */
#include "ahead.h"

char *below(Ahead *a, const Node *mask, int el)
{
    bool strict = mask->flags & STRICT;
    const char *text = strict ? "i%d > j%d" : "i%d >= j%d";
    if (a->e->ranks > 1)                /* by tokens, of all their rows */
        text = strict ? "i%d > 8 * n + (at.col | RANKS - 1)"
                      : "(i%d | RANKS - 1) >= j%d";
    return ctx_format(a->e->c, text, el >> 1, el & 1);
}

char *mask_decay(Ahead *a, const Node *mask, int el)
{
    if (!mask->a[0])
        return ctx_string(a->e->c, "1.f");
    return ctx_format(a->e->c, "exp2_(%s - %s)",
                      vector_name(a, mask->a[0], false, el, true),
                      vector_name(a, mask->a[1], true, el, true));
}

bool masked_product(const Emit *e, const Node *n, Ref *x, Ref *mask)
{
    if (n->op != OP_mul)
        return false;
    for (int i = 0; i < 2; i++)
        if (e->g->n[n->a[i]].op == OP_dmask) {
            *mask = n->a[i];
            *x = n->a[1 - i];
            return true;
        }
    return false;
}

Ref early_mask(const Ahead *a, const Score *s)
{
    const Emit *e = a->e;
    Ref x, mask = 0;
    bool crowded = e->groups == 2 && !e->team && count_rings(e) > 1;
    if (crowded || e->nscores > 1 || s->inverse || e->ranks > 1
        || !masked_product(e, &e->g->n[s->root], &x, &mask)
        || e->g->n[x].op != OP_dot || !e->g->n[mask].a[0])
        return 0;
    return mask;
}

void emit_decays(Ahead *a)
{
    Emit *e = a->e;
    const Node *mask = &e->g->n[a->mask];
    Buf body = { .ctx = e->c };
    Ahead own = { .e = e, .b = &body };
    int columns = e->team ? 4 : 8;
    for (int el = 0; el < 4; el++)
        buf_printf(&body, "decay[4 * n + %d] = %s;\n", el,
                   mask_decay(&own, mask, el));
    for (int h = 0; h < 2; h++)
        buf_printf(&body, "kept[2 * n + %d] = (%s ? 0xffffu : 0)"
                   " | (%s ? 0xffff0000u : 0);\n", h,
                   below(&own, mask, 2 * h), below(&own, mask, 2 * h + 1));
    buf_printf(a->b, "float decay[%d];\nu32 kept[%d];\n{\n", 4 * columns,
               2 * columns);
    ahead_vectors(&own, a->b, false);
    score_columns(&own, a->b, "");
    ahead_vectors(&own, a->b, true);
    buf_put(a->b, body.s, body.len);
    buf_printf(a->b, "}\nkeep(decay);\nkeep(kept);\n}\n");
}
