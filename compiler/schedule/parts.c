/* parts.c -- a group in parts, where registers are short: its products in the
 * order in which they leave the fewest fragments to be held, and behind each
 * what can then be computed and need not be held as what it is made of.
 */
#include "select.h"

#include <string.h>

typedef struct Parts {
    const Select *x;
    int group, level;
    uint8_t *there;                     /* per node: made, or computed */
} Parts;

static bool is_member(const Parts *p, Ref r)
{
    return is_of_group(p->x, r, p->group, p->level)
        && p->x->kind[r] != CARRIED;
}

/* Read as a fragment, unless its reader's program computes it, too. */
static bool is_fragment(const Select *x, Ref r)
{
    return (x->kind[r] == PRODUCT || x->kind[r] == ELEMENT
            || x->kind[r] == CARRIED) && !x->again[r];
}

static bool has_operand(const Select *x, Ref u, Ref r)
{
    for (int i = 0; i < 4; i++)
        if (shown_node(x->g, x->g->n[u].a[i]) == r)
            return true;
    return false;
}

/* Whether somebody but `other` reads the fragment yet. */
static bool is_wanted(const Parts *p, Ref r, Ref other)
{
    const Select *x = p->x;
    for (Ref u = r + 1; u < x->g->len; u++)
        if (u != other && in_matrix_role(x, u) && has_operand(x, u, r)
            && (is_member(p, u) ? !p->there[u] : x->level[u] > p->level))
            return true;
    return false;
}

static bool can_be_computed(const Parts *p, Ref r)
{
    for (Ref a = 1; a < r; a++)
        if (is_member(p, a) && !p->there[a] && !p->x->again[a]
            && has_operand(p->x, r, a))
            return false;
    return p->x->kind[r] != PRODUCT;
}

/* What somebody needs at once, or what takes no more registers than what it is
 * made of, is not put off. */
static bool can_wait(const Parts *p, Ref r)
{
    const Select *x = p->x;
    if (is_left(x, r) || x->kind[r] == REDUCED)
        return false;
    for (Ref u = r + 1; u < x->g->len; u++)
        if (is_member(p, u) && p->there[u] && has_operand(x, u, r))
            return false;
    for (Ref a = 1; a < r; a++)
        if (is_fragment(x, a) && has_operand(x, r, a) && !is_wanted(p, a, r))
            return false;
    return true;
}

/* What can be computed is, but for what can wait while products are to come.
 * Returns how many there were. */
static int compute(Parts *p, bool last)
{
    size_t len = p->x->g->len;
    uint8_t *before = ctx_alloc(p->x->c, len);
    int n = 0;
    memcpy(before, p->there, len);
    for (Ref r = 1; r < len; r++)
        if (is_member(p, r) && !p->there[r] && can_be_computed(p, r))
            p->there[r] = 1;
    for (Ref r = (Ref)len - 1; r > 0; r--)
        if (p->there[r] && !before[r] && !last && can_wait(p, r))
            p->there[r] = 0;
    for (Ref r = 1; r < len; r++)
        n += p->there[r] && !before[r];
    return n;
}

/* Elements of the fragments that are held. */
static int64_t held(const Parts *p)
{
    const Select *x = p->x;
    int64_t n = 0;
    for (Ref r = 1; r < x->g->len; r++)
        if (is_fragment(x, r) && (!is_member(p, r) || p->there[r])
            && x->level[r] <= p->level && is_wanted(p, r, 0))
            n += (int64_t)extent(x, x->row[r]) * extent(x, x->col[r]);
    return n;
}

static int64_t held_after(const Parts *p, Ref one, Ref two)
{
    Parts after = *p;
    size_t len = p->x->g->len;
    after.there = ctx_alloc(p->x->c, len);
    memcpy(after.there, p->there, len);
    after.there[one] = 1;
    compute(&after, false);
    if (two) {
        after.there[two] = 1;
        compute(&after, false);
    }
    return held(&after);
}

/* Whether what the product is added to is there, or is `other`. */
static bool has_its_base(const Parts *p, Ref r, Ref other)
{
    Ref base = p->x->term[r] ? p->x->base[r] : 0;
    return !base || base == other || !is_member(p, base) || p->there[base];
}

/* The product that leaves the least to be held, with the one behind it. */
static Ref next_product(const Parts *p)
{
    const Select *x = p->x;
    int64_t least = INT64_MAX;
    Ref best = 0;
    for (Ref a = 1; a < x->g->len; a++)
        for (Ref b = 1; b < x->g->len && x->kind[a] == PRODUCT; b++) {
            bool alone = a == b;        /* what is last has none behind it */
            if (p->there[a] || p->there[b] || x->kind[b] != PRODUCT
                || !is_member(p, a) || !is_member(p, b)
                || !has_its_base(p, a, 0) || !has_its_base(p, b, a))
                continue;
            int64_t one = held_after(p, a, 0);
            int64_t all = alone ? one : held_after(p, a, b);
            if (2 * all + one < least) {
                least = 2 * all + one;
                best = a;
            }
        }
    return best;
}

/* Numbers what is there and was not before. */
static void number(const Parts *p, int *part, uint8_t *known, int n)
{
    for (Ref r = 1; r < p->x->g->len; r++)
        if (p->there[r] && !known[r]) {
            known[r] = 1;
            part[r] = n;
        }
}

int select_parts(Select *x, int group, int level)
{
    Parts p = { .x = x, .group = group, .level = level };
    uint8_t *known = ctx_alloc(x->c, x->g->len);
    int n = 0, left = 0;
    p.there = ctx_alloc(x->c, x->g->len);
    for (Ref r = 1; r < x->g->len; r++)
        left += is_member(&p, r) && x->kind[r] == PRODUCT;
    if (!x->s->narrow || left < 2)
        return 1;
    bool any = compute(&p, false);
    for (number(&p, x->part, known, n); left > 0; left--) {
        n += any;
        p.there[next_product(&p)] = 1;
        any = compute(&p, left == 1);
        number(&p, x->part, known, n);
    }
    return n + 1;
}
