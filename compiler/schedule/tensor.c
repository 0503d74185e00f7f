/* tensor.c -- products' sums in tensor memory: which columns of its warpgroup's
 * a fragment has while products are under way that leave it, or add to it.
 *
 * What a product leaves stays there until the last product that adds to it has
 * ended; in between it is read into registers if others need it. What other
 * instructions have made of it is written there anew.
 */
#include "schedule.h"

enum { LEAST = 32 };                    /* columns; a power of two */

/* The product whose sums this one goes on from; NULL: it begins, or adds to
 * what is in registers. */
static const KInst *product_before(const Schedule *s, const KInst *k)
{
    int w = k->nin > 2 ? value_writer(s, k->in[2]) : NOTHING;
    return w != NOTHING && s->inst[w].op == K_PRODUCT ? &s->inst[w] : NULL;
}

bool adds_in_tensor(const Schedule *s, const KInst *k)
{
    return product_before(s, k) != NULL;
}

bool leaves_tensor(const Schedule *s, const KInst *k)
{
    bool read = false, added = false;
    for (const KInst *u = s->inst; u < s->inst + s->ninsts; u++)
        for (int i = 0; i < u->nin; i++) {
            bool adds = u->op == K_PRODUCT && i == 2;
            read |= u->in[i] == k->out[0] && !adds;
            added |= u->in[i] == k->out[0] && adds;
        }
    return read || !added;
}

static int columns_of(const Schedule *s, const KInst *k)
{
    int n = 2 * fragment_regs(s, &s->value[k->out[0]]);
    return (n + LEAST - 1) / LEAST * LEAST;
}

/* Where a product's role has waited for it; behind all: nowhere. */
static int ends_at(const Schedule *s, int product)
{
    int i = product;
    while (i < s->ninsts && (s->inst[i].op != K_SETTLE
                             || s->inst[i].role != s->inst[product].role))
        i++;
    return i;
}

/* From its product on a fragment is in its columns as far as this: to the end
 * of the last product that adds to it. */
static int lives_until(const Schedule *s, int product)
{
    int end = ends_at(s, product);
    for (int i = product + 1; i < s->ninsts; i++)
        if (s->inst[i].op == K_PRODUCT
            && product_before(s, &s->inst[i]) == &s->inst[product])
            end = lives_until(s, i);
    return end;
}

/* Whether the later product of the role writes where the sums of the earlier
 * one are needed yet. */
static bool meets(const Schedule *s, int early, int later)
{
    const KInst *a = &s->inst[early], *b = &s->inst[later];
    int x = (int)s->value[a->out[0]].at, y = (int)s->value[b->out[0]].at;
    return a->op == K_PRODUCT && a->role == b->role
        && x < y + columns_of(s, b) && y < x + columns_of(s, a)
        && later <= lives_until(s, early);
}

/* Whether the product goes on, some products later, from the earlier one. */
static bool goes_on_in(const Schedule *s, int early, int later)
{
    const KInst *k = &s->inst[later];
    while (k && k != &s->inst[early])
        k = product_before(s, k);
    return k != NULL;
}

static bool is_free(const Schedule *s, int product)
{
    bool any = true;
    for (int i = 0; i < product; i++)
        any &= !meets(s, i, product);
    return any;
}

void schedule_tensor(Schedule *s)
{
    s->tensor = 0;
    for (int i = 0; i < s->ninsts && has_tensor(s); i++) {
        const KInst *k = &s->inst[i];
        if (k->op != K_PRODUCT)
            continue;
        const KInst *before = product_before(s, k);
        KValue *v = &s->value[k->out[0]];
        v->at = before ? s->value[before->out[0]].at : 0;
        while (!before && !is_free(s, i))
            v->at += LEAST;
        int end = (int)v->at + columns_of(s, k);
        s->tensor = end > s->tensor ? end : s->tensor;
    }
}

/* ---- what a block asks for ---- */

static int warpgroups(const Schedule *s)
{
    return s->groups + s->ahead * s->interleave;
}

int tensor_columns(const Schedule *s)
{
    int all = (warpgroups(s) + 1) / 2 * s->tensor, n = LEAST;
    while (n < all)
        n *= 2;
    return s->tensor ? n : 0;
}

int32_t tensor_bytes(const Schedule *s)
{
    enum { EACH = 8 };
    return has_tensor(s) ? EACH * (1 + warpgroups(s)) : 0;
}

/* ---- what must hold ---- */

static const char *product_fault(const Schedule *s, int i)
{
    const KInst *k = &s->inst[i], *before = product_before(s, k);
    int at = (int)s->value[k->out[0]].at;
    if (ends_at(s, i) == s->ninsts)
        return "a product that nobody waits for";
    if (at < 0 || at % LEAST || at + columns_of(s, k) > s->tensor)
        return "sums behind the end of tensor memory";
    if (before && at != (int)s->value[before->out[0]].at)
        return "sums that are not where they are added to";
    for (int j = 0; j < i; j++)
        if (meets(s, j, i) && !goes_on_in(s, j, i))
            return "sums that are written over in tensor memory";
    return NULL;
}

const char *tensor_fault(const Schedule *s)
{
    int has = has_tensor(s) ? s->target->form[FORM_PRODUCT]->columns : 0;
    if (s->resident * tensor_columns(s) > has)
        return ctx_format(s->c, "%d columns of tensor memory; %s has %d",
                          s->resident * tensor_columns(s), s->target->name,
                          has);
    for (int i = 0; i < s->ninsts && has; i++) {
        const char *why = s->inst[i].op == K_PRODUCT ? product_fault(s, i)
                                                     : NULL;
        if (why)
            return ctx_format(s->c, "%s (%d)", why, i);
    }
    return NULL;
}
