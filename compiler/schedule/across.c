/* across.c -- vectors over a state's axis that are made element by element, of
 * sums, of states, of what is found. Those that programs alone read they
 * compute themselves; one that is kept for other kernels, or that a state
 * becomes, is made by an instruction of its own, with all that it goes on
 * from.
 */
#include "select.h"

/* Whether a state becomes r that is not in the lanes of a vector role. */
static bool is_next_across(const Select *x, Ref r)
{
    for (int i = 0; i < x->g->nst; i++)
        if (x->s->k->states & STATE(i) && !is_in_lanes(x, i)
            && shown_node(x->g, x->g->st[i].next) == r)
            return true;
    return false;
}

/* Of pairs of another vector, for programs of matrices: they have no entry but
 * their own. */
static bool is_of_pairs(const Select *x, Ref r)
{
    return op_is(x->g->n[r].op, PAIRS);
}

/* Whether programs of matrices go on from r. */
static bool is_read_by_matrices(const Select *x, Ref r)
{
    for (const Reader *e = readers(x, r); e->of == r; e++) {
        Ref u = e->node;
        bool across = x->kind[u] == ACROSS && !is_of_pairs(x, u);
        if (schedule_computes(x->s, u)
            && (in_matrix_role(x, u)
                || (across && is_read_by_matrices(x, u))))
            return true;
    }
    return false;
}

/* Whether it scales columns of matrices that have a row axis: a thread has many
 * columns of these, which others have, too. */
static bool is_of_columns(const Select *x, Ref r)
{
    for (const Reader *u = readers(x, r); u->of == r && x->s->row_axis; u++)
        if (schedule_computes(x->s, u->node) && in_matrix_role(x, u->node)
            && x->g->n[u->node].axes & AXIS(x->s->row_axis))
            return true;
    return false;
}

bool is_handed_across(const Select *x, Ref r)
{
    return x->kind[r] == ACROSS && schedule_computes(x->s, r)
        && (is_of_columns(x, r)
            || (is_of_pairs(x, r) && is_read_by_matrices(x, r)));
}

bool is_after_across(const Select *x, Ref r)
{
    bool any = is_handed_across(x, r);
    for (int i = 0; i < 4 && x->kind[r] == ACROSS && !any; i++)
        any = x->g->n[r].a[i] && schedule_computes(x->s, r)
           && is_after_across(x, shown_node(x->g, x->g->n[r].a[i]));
    return any;
}

bool is_computed_across(const Select *x, Ref r)
{
    return x->kind[r] == ACROSS && schedule_computes(x->s, r)
        && (x->w->stores[r] || is_next_across(x, r)
            || is_handed_across(x, r));
}

static bool across_reads(Select *x, KInst *k, Ref r)
{
    if (has_node(k, r) || x->kind[r] == NUMBER)
        return true;
    if (x->kind[r] == ACROSS && schedule_computes(x->s, r)
        && x->g->n[r].op != OP_input) {
        for (int i = 0; i < 4; i++)
            if (x->g->n[r].a[i] && !across_reads(x, k, x->g->n[r].a[i]))
                return false;
        program_add(x, k, r);
        return true;
    }
    switch ((Kind)x->kind[r]) {
    case ACROSS:
        reads(x, k, value_of(x, r, LAY_GLOBAL));
        return true;
    case HELD: case VECTOR: case REDUCED: case LAST:
        reads(x, k, value_of(x, r, vector_layout(x, r)));
        return !(x->g->n[r].axes & ~DIM_AXES)
            || refuse(x, r, "a vector of tokens, beside one of a state");
    default:
        return refuse(x, r, "a vector that is made of a matrix");
    }
}

bool select_across(Select *x, Ref r)
{
    KInst *k = inst_new(x, K_ACROSS, KR_MATRIX);
    k->row = (uint8_t)lowest(x->g->n[r].axes);
    k->nrow = extent(x, k->row);
    k->ncol = 1;
    if (is_next(x, r) || is_handed_across(x, r))
        writes(x, k, value_of(x, r, LAY_VECTOR));
    return across_reads(x, k, r);
}
