/* classify.c -- what each node of a kernel is: found, a vector, a product. */
#include "select.h"

static bool is_elementwise(int op)
{
    return op_info[op].traits & ELEMENTWISE || op == OP_dmask;
}

/* A sum over an axis of products of two matrices that both have it, each with
 * an axis of the result to itself. */
static bool is_product(const Select *x, const Node *n)
{
    if (n->op != OP_dot || count_axes(n->axes) != 2
        || count_axes(n->over) != 1)
        return false;
    AxisSet a = x->g->n[n->a[0]].axes, b = x->g->n[n->a[1]].axes;
    return count_axes(a) == 2 && count_axes(b) == 2 && a & b & n->over
        && (a ^ b) == n->axes;
}

static bool is_reduction(const Select *x, const Node *n)
{
    if (n->op != OP_dot && n->op != OP_sum)
        return false;
    AxisSet space = n->axes | n->over;
    return count_axes(space) == 2 && (is_matrix(x, n->a[0])
           || (n->op == OP_dot && is_matrix(x, n->a[1])));
}

static bool is_vector_op(const Node *n)
{
    switch (n->op) {
    case OP_cumsum: return !(n->flags & ~(EXCLUSIVE | REVERSE));
    case OP_last: case OP_delay: return !(n->flags & ~REVERSE);
    case OP_dot: case OP_sum: return true;
    }
    return op_info[n->op].traits & ELEMENTWISE;
}

static bool loads(Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    if (n->op == OP_input) {
        const Input *in = &x->g->in[n->index];
        if (in->rank == 0) {
            DType d = x->w->in[n->index];
            x->kind[r] = VECTOR;
            return d == F32 || d == x->w->tile
                || refuse(x, r, "a vector of another type");
        }
        x->kind[r] = LOADED;
        return (in->timed && in->rank == 1 && x->w->in[n->index] == x->w->tile
                && extent(x, in->order[0]) % 16 == 0)
            || refuse(x, r, "an input that is no matrix of the tiles' type");
    }
    bool matrix = count_axes(n->axes) == 2;
    x->kind[r] = matrix ? LOADED : VECTOR;
    return (x->w->stored16[r] == matrix
            && (matrix || !(n->axes & ~AXIS(AX_I))))
        || refuse(x, r, "a stored value that is no 16-bit matrix and no"
                        " vector of tokens in float32");
}

static bool is_state_type(const Select *x, DType d)
{
    return d == F32 || d == x->w->tile || d == NDTYPES;
}

/* A state that the walk carries: a matrix, in float32 or as the tiles are
 * where it begins and ends, of 16 bits where each chunk's is kept. */
static bool carries(Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    int i = n->index;
    x->kind[r] = n->axes ? CARRIED : VECTOR;
    if (n->axes && (count_axes(n->axes) != 2 || n->axes & ~DIM_AXES))
        return refuse(x, r, "a state that is no matrix and no number");
    if (!is_state_type(x, x->w->s0[i]) || !is_state_type(x, x->w->s1[i]))
        return refuse(x, r, "a state of another type");
    return !x->w->p->stored[r] || (n->axes && x->w->stored16[r])
        || refuse(x, r, "a state that is kept, but no 16-bit matrix");
}

static bool classify(Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    AxisSet strange = (ROW_AXES | COL_AXES) & ~(AXIS(AX_I) | AXIS(AX_J));
    if (n->axes & strange || count_axes(n->axes) > 2)
        return refuse(x, r, "more than two axes");
    if (n->op == OP_num)
        x->kind[r] = NUMBER;
    else if (n->op == OP_row || n->op == OP_col)
        x->kind[r] = VIEW;
    else if (n->op == OP_state && x->s->k->states & STATE(n->index))
        return carries(x, r);
    else if (n->op == OP_input || n->op == OP_state)
        return loads(x, r);
    else if (is_product(x, n) || is_solve(x, n))
        x->kind[r] = PRODUCT;
    else if (is_reduction(x, n))
        x->kind[r] = REDUCED;
    else if (count_axes(n->axes) == 2)
        x->kind[r] = is_elementwise(n->op) ? ELEMENT : NOT_HERE;
    else if (is_vector_op(n) && !((n->axes | n->over) & DIM_AXES))
        x->kind[r] = VECTOR;
    return x->kind[r] != NOT_HERE || refuse(x, r, "no such instruction yet");
}

bool select_classify(Select *x)
{
    const Kernel *k = x->s->k;
    for (int i = 0; i < k->nnodes; i++)
        x->has[k->node[i]] = 1;
    for (int i = 0; i < k->nnodes; i++) {
        const Node *n = &x->g->n[k->node[i]];
        for (int a = 0; a < 4 && n->a[a]; a++)
            if (!x->has[n->a[a]]) {
                x->has[n->a[a]] = 1;
                if (!loads(x, n->a[a]))
                    return false;
            }
    }
    for (int i = 0; i < k->nnodes; i++)
        if (!classify(x, k->node[i]))
            return false;
        else if (x->w->stores[k->node[i]] && x->kind[k->node[i]] >= VECTOR
                 && x->w->stored16[k->node[i]]
                    != (count_axes(x->g->n[k->node[i]].axes) == 2))
            return refuse(x, k->node[i], "kept in a type that is not its own");
    return true;
}
