/* parts.c -- a group in parts, where registers are short: its products in the
 * order in which they leave the fewest fragments to stay live, and behind each
 * what can then be computed and need not stay live as what it is made of.
 */
#include "select.h"

#include <string.h>

typedef struct Parts {
    const Select *x;
    int group, level;
    const Ref *matrix;                  /* nodes of the matrix role, sorted */
    int n;
    /* per node of the matrix role, found once, as all is asked for each pair of
     * products */
    uint8_t *member, *left;
    Ref (*operand)[4];                  /* as they are shown */
    uint8_t *there;                     /* per node: made, or computed */
    uint8_t *before, *spare[2];         /* room for as many */
} Parts;

static bool is_member(const Parts *p, Ref r)
{
    return p->member[r];
}

/* Read as a fragment, unless its reader's program computes it, too. */
static bool is_fragment(const Select *x, Ref r)
{
    return (x->kind[r] == PRODUCT || x->kind[r] == ELEMENT
            || x->kind[r] == CARRIED) && !x->again[r];
}

static bool has_operand(const Parts *p, Ref u, Ref r)
{
    const Ref *a = p->operand[u];
    return a[0] == r || a[1] == r || a[2] == r || a[3] == r;
}

/* Whether somebody but `other` reads the fragment yet. */
static bool is_wanted(const Parts *p, Ref r, Ref other)
{
    const Select *x = p->x;
    for (int i = p->n - 1; i >= 0 && p->matrix[i] > r; i--) {
        Ref u = p->matrix[i];
        bool yet = is_member(p, u) ? !p->there[u] : x->level[u] > p->level;
        if (yet && u != other && has_operand(p, u, r))
            return true;
    }
    return false;
}

static bool can_be_computed(const Parts *p, Ref r)
{
    for (int i = 0; i < p->n && p->matrix[i] < r; i++) {
        Ref a = p->matrix[i];
        if (is_member(p, a) && !p->there[a] && !p->x->again[a]
            && has_operand(p, r, a))
            return false;
    }
    return p->x->kind[r] != PRODUCT;
}

/* What somebody needs at once, or what takes no more registers than what it is
 * made of, is not put off. */
static bool can_wait(const Parts *p, Ref r)
{
    const Select *x = p->x;
    if (p->left[r] || x->kind[r] == REDUCED)
        return false;
    for (int i = 0; i < p->n; i++) {
        Ref u = p->matrix[i];
        if (u > r && is_member(p, u) && p->there[u] && has_operand(p, u, r))
            return false;
        if (u < r && is_fragment(x, u) && has_operand(p, r, u)
            && !is_wanted(p, u, r))
            return false;
    }
    return true;
}

/* What can be computed is, but for what can wait while products are to come.
 * Returns how many there were. */
static int compute(Parts *p, bool last)
{
    size_t len = p->x->g->len;
    uint8_t *before = memcpy(p->before, p->there, len);
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        Ref r = p->matrix[i];
        if (is_member(p, r) && !p->there[r] && can_be_computed(p, r))
            p->there[r] = 1;
    }
    for (int i = p->n - 1; i >= 0; i--) {
        Ref r = p->matrix[i];
        if (p->there[r] && !before[r] && !last && can_wait(p, r))
            p->there[r] = 0;
    }
    for (int i = 0; i < p->n; i++)
        n += p->there[p->matrix[i]] && !before[p->matrix[i]];
    return n;
}

/* Elements of the fragments that are live. */
static int64_t live(const Parts *p)
{
    const Select *x = p->x;
    int64_t n = 0;
    for (int i = 0; i < p->n; i++) {
        Ref r = p->matrix[i];
        if (is_fragment(x, r) && (!is_member(p, r) || p->there[r])
            && x->level[r] <= p->level && is_wanted(p, r, 0))
            n += (int64_t)extent(x, x->row[r]) * extent(x, x->col[r]);
    }
    return n;
}

/* As it is behind the product, and what can be computed of it, in that room. */
static Parts after(const Parts *p, Ref product, uint8_t *there)
{
    Parts to = *p;
    to.there = memcpy(there, p->there, p->x->g->len);
    to.there[product] = 1;
    compute(&to, false);
    return to;
}

/* Whether what the product is added to is there, or is `other`. */
static bool has_its_base(const Parts *p, Ref r, Ref other)
{
    Ref base = p->x->term[r] ? p->x->base[r] : 0;
    return !base || base == other || !is_member(p, base) || p->there[base];
}

/* Whether it is a product that is yet to be made, and can be behind `other`. */
static bool can_follow(const Parts *p, Ref r, Ref other)
{
    return p->x->kind[r] == PRODUCT && is_member(p, r) && !p->there[r]
        && has_its_base(p, r, other);
}

/* The product that leaves the least to stay live, with the one behind it. */
static Ref next_product(const Parts *p)
{
    int64_t least = INT64_MAX;
    Ref best = 0;
    for (int i = 0; i < p->n; i++) {
        Ref a = p->matrix[i];
        if (!can_follow(p, a, 0))
            continue;
        Parts first = after(p, a, p->spare[0]);
        int64_t one = live(&first);
        for (int j = 0; j < p->n && one < least; j++) {
            Ref b = p->matrix[j];
            bool alone = a == b;        /* what is last has none behind it */
            if (!can_follow(p, b, a))
                continue;
            Parts second = alone ? first : after(&first, b, p->spare[1]);
            int64_t all = alone ? one : live(&second);
            if (2 * all + one < least) {
                least = 2 * all + one;
                best = a;
            }
        }
    }
    return best;
}

/* Numbers what is there and was not before. */
static void number(const Parts *p, int *part, uint8_t *known, int n)
{
    for (int i = 0; i < p->n; i++) {
        Ref r = p->matrix[i];
        if (p->there[r] && !known[r]) {
            known[r] = 1;
            part[r] = n;
        }
    }
}

static void list_matrices(Parts *p)
{
    const Select *x = p->x;
    size_t len = x->g->len;
    Ref *list = ctx_alloc(x->c, len * sizeof *list);
    p->member = ctx_alloc(x->c, len);
    p->left = ctx_alloc(x->c, len);
    p->operand = ctx_alloc(x->c, len * sizeof *p->operand);
    p->there = ctx_alloc(x->c, len);
    p->before = ctx_alloc(x->c, len);
    p->spare[0] = ctx_alloc(x->c, len);
    p->spare[1] = ctx_alloc(x->c, len);
    for (Ref r = 1; r < x->g->len; r++) {
        if (!in_matrix_role(x, r))
            continue;
        list[p->n++] = r;
        p->member[r] = is_of_group(x, r, p->group, p->level)
            && x->kind[r] != CARRIED;
        p->left[r] = is_left(x, r);
        for (int i = 0; i < 4; i++)
            p->operand[r][i] = shown_node(x->g, x->g->n[r].a[i]);
    }
    p->matrix = list;
}

int select_parts(Select *x, int group, int level)
{
    Parts p = { .x = x, .group = group, .level = level };
    int n = 0, left = 0;
    for (Ref r = 1; r < x->g->len && x->s->narrow; r++)
        left += x->kind[r] == PRODUCT && is_of_group(x, r, group, level);
    if (left < 2)
        return 1;
    uint8_t *known = ctx_alloc(x->c, x->g->len);
    list_matrices(&p);
    bool any = compute(&p, false);
    for (number(&p, x->part, known, n); left > 0; left--) {
        n += any;
        p.there[next_product(&p)] = 1;
        any = compute(&p, left == 1);
        number(&p, x->part, known, n);
    }
    return n + 1;
}
