/* levels.c -- which axis is the rows' of each matrix, its level and its
 * group (select.c).
 */
#include "select.h"

/* ---- spaces: which axis is the rows' ---- */

/* Tokens are rows; of two other axes, as states of both lie. */
static void find_space(Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    bool inner = op_is(n->op, ONE_ROW) || adds_pairs(n->op);
    AxisSet s = x->kind[r] != REDUCED && x->kind[r] != PAIRED
              ? plain_axes(x->g, r)
              : inner ? x->g->n[n->a[0]].axes : n->axes | n->over;
    if (count_axes(s) == 2 && s & AXIS(AX_J) && !(s & AXIS(AX_I)))
        s = (s & ~AXIS(AX_J)) | AXIS(AX_I);
    if (count_axes(s) != 2)
        return;
    if (n->op == OP_factor)             /* a constant, rounded */
        n = &x->g->n[n->a[0]];
    if (n->op == OP_input && !(n->axes & AXIS(AX_I))) {
        x->row[r] = x->g->in[n->index].order[0];    /* as it lies */
        x->col[r] = x->g->in[n->index].order[1];
        return;
    }
    x->row[r] = (uint8_t)lowest(s);
    x->col[r] = (uint8_t)highest(s);
    int rows = x->s->row_axis;
    if (rows && s & AXIS(rows)) {
        x->row[r] = (uint8_t)rows;
        x->col[r] = (uint8_t)lowest(s & ~AXIS(rows));
    }
}

static bool has_products(const Select *x)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (x->kind[r] == PRODUCT)
            return true;
    return false;
}

static bool is_exponential(int op)
{
    return op == OP_exp || op == OP_log || op == OP_tanh;
}

/* Element by element of what is found in memory, or cheap. Scores are few, and
 * their masks dear. */
static bool may_be_again(const Select *x, Ref r)
{
    bool may = x->kind[r] == ELEMENT && x->col[r] != AX_J;
    for (int i = 0; i < 4; i++) {
        Ref a = shown_node(x->g, x->g->n[r].a[i]);
        may &= x->again[a] || x->kind[a] < PRODUCT || lies_as_sums(x, a)
            || is_summed(x, a);
    }
    return may;
}

/* Better computed twice than kept in registers. A kernel without products has
 * enough of them for exponentials that no other one is made of. */
static void find_again(Select *x)
{
    const Graph *g = x->g;
    bool holds = !has_products(x) && !x->s->narrow;
    bool *within = ctx_alloc(x->c, g->len * sizeof *within);

    for (Ref r = 1; r < g->len; r++)
        x->again[r] = may_be_again(x, r);
    for (Ref r = (Ref)g->len - 1; r > 0 && holds; r--)
        for (int i = 0; i < 4; i++) {
            Ref a = shown_node(g, g->n[r].a[i]);
            within[a] |= x->again[r]
                      && (within[r] || is_exponential(g->n[r].op));
        }
    for (Ref r = 1; r < g->len; r++)
        x->again[r] = may_be_again(x, r)
                   && !(holds && is_exponential(g->n[r].op) && !within[r]);
}

/* Whether programs are all that reads it, and compute it themselves. */
static bool is_rematerialised(const Select *x, Ref r)
{
    return x->again[r] && !is_left(x, r);
}

/* ---- levels ---- */

/* Of tokens both, whose columns are two axes: one is a name of the other's. */
static bool has_other_name(const Select *x, Ref a, Ref u)
{
    return x->kind[a] == ELEMENT && x->kind[u] >= ELEMENT
        && x->row[a] == AX_I && x->row[u] == AX_I && x->col[a] >= AX_DIM
        && x->col[u] >= AX_DIM && x->col[a] != x->col[u];
}

/* Whether u must wait for all of a: as a factor, or for a sum's parts. The last
 * of sums come with them, and those before each token. */
static bool is_step(const Select *x, Ref a, Ref u)
{
    bool with = x->kind[u] == LAST || is_delayed_scan(x, u);
    if (has_other_name(x, a, u))
        return true;
    return is_summed(x, a) || x->kind[a] == PAIRED || x->kind[a] == SHIFTED
        || (x->kind[u] != ACROSS && is_after_across(x, a))
        || (x->kind[a] == SCANNED && !with)
        || (x->kind[u] == SCANNED && in_matrix_role(x, a) && !with)
        || (x->kind[u] == SHIFTED && in_matrix_role(x, a))
        || (x->kind[u] == PRODUCT && in_matrix_role(x, a));
}

static int least_level(const Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    int level = 0;
    for (int i = 0; i < 4; i++) {
        Ref a = shown_node(x->g, n->a[i]);
        int l = x->level[a] + is_step(x, a, r);
        level = l > level ? l : level;
    }
    return level;
}

/* Each matrix value as late as those who read it allow; results as early as
 * they can be, where there is memory for them. */
static void sink_levels(Select *x)
{
    const Graph *g = x->g;
    for (Ref r = 1; r < g->len; r++)
        x->latest[r] = x->kind[r] == ELEMENT && output_of(x, r) != NOTHING
                     && !x->s->sink
                   ? x->level[r] : x->deepest + !in_matrix_role(x, r);
    for (Ref u = (Ref)g->len - 1; u > 0; u--) {
        const Node *n = &g->n[u];
        for (int i = 0; i < 4 && x->kind[u] >= VECTOR; i++) {
            Ref a = shown_node(g, n->a[i]);
            int l = x->latest[u] - is_step(x, a, u);
            x->latest[a] = l < x->latest[a] ? l : x->latest[a];
        }
    }
    for (Ref r = 1; r < g->len; r++)
        if (in_matrix_role(x, r))
            x->level[r] = x->latest[r];
}

static bool has_scan(const Select *x)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (x->kind[r] == SCANNED)
            return true;
    return false;
}

/* The last at which those who read a vector still find it. */
static int last_level(const Select *x, Ref r)
{
    int level = x->deepest + 1;
    for (const Reader *u = readers(x, r); u->of == r; u++)
        if (x->kind[u->node] >= VECTOR) {
            int l = x->level[u->node] - is_step(x, r, u->node);
            level = l < level ? l : level;
        }
    return level;
}

/* The least level of r, given those before it, of what is again. */
static int early_level(const Select *x, Ref r, const int *early)
{
    int least = 0;
    for (int i = 0; i < 4; i++) {
        Ref a = shown_node(x->g, x->g->n[r].a[i]);
        int l = (x->again[a] || x->kind[a] == ACROSS ? early[a] : x->level[a])
              + is_step(x, a, r);
        least = l > least ? l : least;
    }
    return least;
}

/* What is made of products, element by element, as early as they are there:
 * they give up their registers, which they would hold while sums are made that
 * have levels of their own. Scores are few, and wait unless registers are
 * short. */
static void raise_levels(Select *x)
{
    const Graph *g = x->g;
    int *early = x->latest;
    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        bool of_fragments = false;
        int least = early[r] = early_level(x, r, early);
        for (int i = 0; i < 4; i++) {
            Ref a = shown_node(g, n->a[i]);
            of_fragments |= !x->again[a] && x->kind[a] >= PRODUCT
                         && x->kind[a] < SCANNED;
        }
        if (of_fragments && (x->col[r] != AX_J || x->s->narrow)
            && (x->kind[r] == ELEMENT || x->kind[r] == PAIRED
                || x->kind[r] == REDUCED))
            x->level[r] = least;
        if (x->kind[r] == VECTOR)       /* sums may be later now */
            x->level[r] = least_level(x, r);
    }
    for (Ref r = (Ref)g->len - 1; r > 0; r--)
        if (x->kind[r] == VECTOR && x->level[r])
            x->level[r] = last_level(x, r);
}

/* Whether r is made for sums alone: it is one, or they alone read it. */
static bool is_for_sums(const Select *x, Ref r)
{
    if (x->kind[r] != ELEMENT || is_result(x, r) || is_next(x, r))
        return x->kind[r] == REDUCED;
    for (const Reader *u = readers(x, r); u->of == r; u++)
        if (x->kind[u->node] >= VECTOR && !is_for_sums(x, u->node))
            return false;
    return true;
}

static bool reads_fragments(const Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    bool any = false;
    for (int i = 0; i < 4; i++)
        any |= in_matrix_role(x, shown_node(x->g, n->a[i]));
    return any;
}

/* Sums where their terms are in registers: fragments are not kept for them.
 * Vectors that wait for sums as late as those who read them allow: most of them
 * together. */
static void place_sums(Select *x)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (x->kind[r] == VECTOR
            || (is_for_sums(x, r) && reads_fragments(x, r)))
            x->level[r] = least_level(x, r);
    for (Ref r = (Ref)x->g->len - 1; r > 0; r--)
        if (x->kind[r] == VECTOR && x->level[r]) {
            int last = last_level(x, r);
            x->level[r] = last > x->level[r] ? last : x->level[r];
        }
}

/* Numbers that are carried are the role's that computes what becomes of them:
 * if that waits for sums, so does who reads them. */
static void place_numbers(Select *x)
{
    const Graph *g = x->g;
    int first = x->deepest + 2, waits = x->deepest + 2;
    for (Ref r = 1; r < g->len; r++)
        if (x->kind[r] == VECTOR && x->level[r] < first)
            first = x->level[r];
    for (Ref r = 1; r < g->len; r++)
        if (x->kind[r] == VECTOR && x->level[r] > first && x->level[r] < waits)
            waits = x->level[r];
    for (int i = 0; i < g->nst; i++)
        if (x->kind[g->st[i].node] == VECTOR && x->s->k->states & STATE(i))
            x->level[g->st[i].node] =
                x->level[shown_node(g, g->st[i].next)] > first ? waits : first;
    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; i < 4 && x->kind[r] == VECTOR; i++) {
            Ref a = shown_node(g, g->n[r].a[i]);
            if (x->kind[a] == VECTOR && x->level[r] == first
                && x->level[a] > first)
                x->level[r] = waits;
        }
}

static int group_root(const Select *x, int r)
{
    while (x->group[r] != r)
        r = x->group[r];
    return r;
}

static bool starts_program(const Select *x, Ref r)
{
    return in_matrix_role(x, r) && !is_rematerialised(x, r)
        && (x->kind[r] == ELEMENT || x->kind[r] == REDUCED
            || x->kind[r] == PAIRED);
}

/* Whether r is made of what lies in memory alone. */
static bool is_of_memory(const Select *x, Ref r)
{
    for (int i = 0; i < 4; i++) {
        Ref a = shown_node(x->g, x->g->n[r].a[i]);
        if (a && x->kind[a] >= PRODUCT && !x->again[a] && !lies_as_sums(x, a)
            && !is_summed(x, a))
            return false;
    }
    return true;
}

/* The programs that take s: sines of it, which are angles; or itself, an
 * exponential, if what they are made of lies in memory. */
static uint8_t *find_takers(const Select *x, Ref s)
{
    const Graph *g = x->g;
    bool angles = op_is(g->n[s].op, SPREADS);
    uint8_t *takes = ctx_alloc(x->c, g->len);
    takes[s] = !angles;
    for (Ref r = s + 1; r < g->len; r++) {
        takes[r] = angles && g->n[r].op == OP_sin && g->n[r].a[0] == s;
        for (int i = 0; i < 4; i++) {
            Ref a = shown_node(g, g->n[r].a[i]);
            takes[r] |= a && takes[a] && is_rematerialised(x, a);
        }
    }
    for (Ref r = s; r < g->len; r++)
        takes[r] = takes[r] && starts_program(x, r)
                && (angles || is_of_memory(x, r));
    return takes;
}

static void join_with(Select *x, Ref first, Ref r, bool groups)
{
    if (x->row[r] != x->row[first] || x->col[r] != x->col[first])
        return;
    if (groups && x->level[r] == x->level[first])
        x->group[group_root(x, (int)r)] = group_root(x, (int)first);
    if (!groups && x->level[r] > x->level[first]
        && x->latest[r] <= x->level[first])
        x->level[r] = x->level[first];
}

/* Programs that take sines of the same angles, or, in a kernel without
 * products, the same exponentials, are one, where they may be; what they leave
 * is then there at once, for which memory must not be short. */
static void join_takers(Select *x, bool groups)
{
    const Graph *g = x->g;
    bool products = has_products(x);
    for (Ref r = 1; r < g->len && !groups; r++)
        x->latest[r] = early_level(x, r, x->latest);
    for (Ref s = 1; s < g->len && !x->s->sink; s++) {
        bool angles = op_is(g->n[s].op, SPREADS) && x->kind[s] == ELEMENT;
        if (!angles
            && (products || !is_exponential(g->n[s].op)
                || !is_rematerialised(x, s)))
            continue;
        const uint8_t *takes = find_takers(x, s);
        for (Ref first = s + 1; first < g->len; first++)
            for (Ref r = s + 1; r < g->len && takes[first]; r++)
                if (takes[r])
                    join_with(x, first, r, groups);
    }
}

static void find_levels(Select *x)
{
    const Graph *g = x->g;
    for (Ref r = 1; r < g->len; r++)
        if (x->kind[r] >= VECTOR) {
            x->level[r] = least_level(x, r);
            if (in_matrix_role(x, r) && x->level[r] > x->deepest)
                x->deepest = x->level[r];
        }
    sink_levels(x);
    if (!has_scan(x))
        place_sums(x);
    else
        raise_levels(x);
    place_numbers(x);
    join_takers(x, false);
    for (Ref r = 1; r < g->len; r++)    /* sums may be later, or earlier */
        if (x->kind[r] == ACROSS)
            x->level[r] = least_level(x, r);
}

/* ---- groups ---- */

static void find_groups(Select *x)
{
    const Graph *g = x->g;
    for (Ref r = 1; r < g->len; r++)
        x->group[r] = (int)r;
    for (Ref r = 1; r < g->len; r++) {
        if ((x->kind[r] != ELEMENT && x->kind[r] != REDUCED
             && x->kind[r] != PAIRED) || is_rematerialised(x, r))
            continue;
        for (int i = 0; i < 4; i++) {
            Ref a = shown_node(g, g->n[r].a[i]);
            if (in_matrix_role(x, a) && !is_summed(x, a)
                && !is_rematerialised(x, a)
                && x->kind[a] != PAIRED
                && !(has_base(x, r) && x->base[r] == a)
                && x->level[a] == x->level[r]
                && x->row[a] == x->row[r] && x->col[a] == x->col[r])
                x->group[group_root(x, (int)r)] = group_root(x, (int)a);
        }
    }
    join_takers(x, true);
    for (Ref r = 1; r < g->len; r++)
        x->group[r] = group_root(x, (int)r);
}

void select_levels(Select *x)
{
    for (Ref r = 1; r < x->g->len; r++)
        if (x->kind[r] >= LOADED)
            find_space(x, r);
    find_again(x);
    find_levels(x);
    merge_decayed(x);
    find_terms(x);
    do
        find_groups(x);
    while (!keep_terms(x));
    merge_terms(x);
}
