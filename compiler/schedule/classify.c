/* classify.c -- what each node of a kernel is: found, a vector, a product. */
#include "ranks.h"
#include "select.h"

static bool is_elementwise(int op)
{
    return op_is(op, ELEMENTWISE | OF_RANKS) || is_mask(op);
}

/* A sum over an axis of products of two matrices that both have it, each with
 * an axis of the result to itself. */
static bool is_product(const Select *x, const Node *n)
{
    if (!is_plain_contraction(n->op) || count_axes(n->axes) != 2
        || count_axes(n->over) != 1)
        return false;
    AxisSet a = x->g->n[n->a[0]].axes, b = x->g->n[n->a[1]].axes;
    return count_axes(a) == 2 && count_axes(b) == 2 && a & b & n->over
        && (a ^ b) == n->axes;
}

static bool is_forward_scan(const Select *x, Ref r)
{
    return is_scan(x, r) && adds_tokens(x->g->n[r].op)
        && !(x->g->n[r].flags & REVERSE);
}

/* Whether its last row is that of sums forwards, each with its own token. */
static bool ends_scan(const Select *x, Ref r)
{
    return is_scan(x, r) && x->g->n[r].axes & DIM_AXES
        && !(x->g->n[r].flags & (REVERSE | EXCLUSIVE));
}

/* A product under the decays between tokens that sums of one matrix are. */
static bool is_decayed(const Select *x, const Node *n)
{
    if (!is_decayed_contraction(n->op) || count_axes(n->axes) != 2
        || count_axes(n->over) != 1)
        return false;
    Ref later = shown_node(x->g, n->a[2]), earlier = shown_node(x->g, n->a[3]);
    return is_forward_scan(x, later) && is_forward_scan(x, earlier)
        && !(x->g->n[earlier].flags & EXCLUSIVE)
        && shown_node(x->g, x->g->n[later].a[0])
           == shown_node(x->g, x->g->n[earlier].a[0]);
}

/* A vector of tokens that moves on by one, a vector over a state's axis at
 * its end. */
static bool is_delayed_vector(const Select *x, const Node *n)
{
    return op_is(n->op, SHIFTS) && count_axes(n->axes) == 2
        && x->g->n[n->a[0]].axes == AXIS(AX_I) && !(n->flags & ~REVERSE);
}

/* A sum over one of two axes, or both; the last row of a matrix of tokens. */
static bool is_reduction(const Select *x, const Node *n)
{
    if (op_is(n->op, ONE_ROW) && is_matrix(x, n->a[0]))
        return !(n->flags & ~REVERSE) && x->g->n[n->a[0]].axes & AXIS(AX_I);
    if (!op_is(n->op, ADDS_UP) || op_is(n->op, MASKS))
        return false;
    AxisSet space = n->axes | n->over;
    return count_axes(space) == 2 && (is_matrix(x, n->a[0])
           || (n->a[1] && is_matrix(x, n->a[1])));
}

/* Whether all columns are of pairs, but for the last of an odd number. */
static bool is_whole(const Select *x, const Node *n)
{
    const Axis *axis = x->g->axis;
    int32_t over = axis[lowest(n->over)].size;
    return op_is(n->op, SPREADS) ? axis[n->index].size / 2 == over
         : !adds_pairs(n->op) || over / 2 == axis[n->index].size;
}

/* What a program makes of pairs: of its own, or found among sums. */
static bool is_matrix_of_pairs(const Select *x, const Node *n)
{
    Ref a = shown_node(x->g, n->a[0]);
    bool dims = op_is(n->op, PAIRS) && count_axes(n->axes) == 2
             && !(n->axes & AXIS(AX_J)) && is_whole(x, n);
    if (op_is(n->op, SPREADS))
        return dims && n->axes & AXIS(AX_I) && lies_as_sums(x, a);
    return !op_has(n->op, TO_AXIS) && dims;
}

/* Angles, of which pairs of columns have one each: they find it among sums. */
static bool is_for_pairs(const Select *x, Ref r)
{
    const Graph *g = x->g;
    bool any = false;
    for (const Reader *u = readers(x, r); u->of == r; u++)
        any |= op_is(g->n[u->node].op, SPREADS) && u->operand == 0;
    return any && g->n[r].axes & AXIS(AX_I) && g->n[r].axes & DIM_AXES
        && count_axes(g->n[r].axes) == 2
        && op_info[g->n[r].op].traits & ELEMENTWISE;
}

static bool is_vector_op(const Node *n)
{
    if (op_is(n->op, RECURS | ONE_ROW | SHIFTS))
        return !(n->flags & ~(REVERSE | (adds_tokens(n->op) ? EXCLUSIVE : 0)));
    return op_is(n->op, ELEMENTWISE | OF_RANKS)
        || (op_is(n->op, ADDS_UP) && !op_is(n->op, MASKS));
}

/* A matrix that has rows of tokens, by either name, beside another axis. */
static bool is_of_tokens(const Select *x, Ref r)
{
    AxisSet s = plain_axes(x->g, r);
    return s & AXIS(AX_I) && s & DIM_AXES;
}

/* One of a head for all tokens. */
static bool is_constant_matrix(const Node *n, const Input *in)
{
    return !in->timed && in->rank == 2 && count_axes(n->axes) == 2
        && !(n->axes & ~DIM_AXES);
}

static bool loads(Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    if (n->op == OP_input) {
        const Input *in = &x->g->in[n->index];
        if (in->rank == 0) {
            DType d = x->w->in[n->index];
            x->kind[r] = VECTOR;
            return d == F32 || d == x->w->memory
                || refuse(x, r, "a vector of another type");
        }
        if (is_constant_matrix(n, in)) {
            x->kind[r] = LOADED;
            return ((x->w->in[n->index] == x->w->memory
                     || x->w->in[n->index] == F32)
                    && !(x->s->row_axis && n->axes & AXIS(x->s->row_axis)))
                || refuse(x, r, "a constant matrix of another type, or whose"
                          " axis the walk's blocks deal");
        }
        x->kind[r] = in->timed ? LOADED : ACROSS;
        return (in->rank == 1 && (x->w->in[n->index] == x->w->memory
                                  || x->w->in[n->index] == F32))
            || refuse(x, r, "an input that is no matrix, or of another type");
    }
    bool matrix = count_axes(n->axes) == 2, many = count_axes(n->axes) > 2;
    bool scores = n->axes == (AXIS(AX_I) | AXIS(AX_J));
    x->kind[r] = matrix ? LOADED : n->axes & DIM_AXES ? ACROSS : VECTOR;
    bool tokens = matrix && is_of_tokens(x, r);
    return ((x->w->stored16[r] == matrix || tokens) && !many
            && (scores || tokens || !matrix || !(n->axes & AXIS(AX_J))))
        || refuse(x, r, "a stored value that is no 16-bit matrix and no"
                        " vector in float32");
}

/* A matrix of tokens that is found, of the token before and first a vector that
 * is found or carried, or of the next one and last zeros: the load is a row
 * off; or of one that is such itself: some rows. */
static bool is_loaded_delayed(const Select *x, const Node *n)
{
    enum { MOST_DELAY = 4 };
    Ref delay = shown_node(x->g, n->a[0]), b = n->a[1];
    Ref a = loaded_node(x->s, delay);
    if (!op_is(n->op, SHIFTS) || count_axes(n->axes) != 2
        || !(n->axes & DIM_AXES) || x->kind[delay] != LOADED
        || tokens_delayed(x->s, delay) >= MOST_DELAY || n->flags & ~REVERSE
        || (delay != a && x->g->n[delay].flags != n->flags))
        return false;
    if (x->g->n[a].op == OP_input
        && x->w->in[x->g->n[a].index] != x->w->memory)
        return false;
    bool wide = x->g->n[a].op != OP_input && !x->w->stored16[a];
    if (wide && n->flags != REVERSE)
        return false;
    return is_num(x->g, b, 0) || (!n->flags && x->kind[b] == HELD)
        || (!n->flags && x->kind[b] == ACROSS && !schedule_computes(x->s, b));
}

/* The same of what is computed here; of scores, too. */
static bool is_shifted(const Select *x, const Node *n)
{
    Ref a = shown_node(x->g, n->a[0]);
    return op_is(n->op, SHIFTS) && n->flags == REVERSE
        && is_num(x->g, n->a[1], 0) && count_axes(n->axes) == 2
        && n->axes & AXIS(AX_I)
        && (x->kind[a] == ELEMENT || x->kind[a] == PAIRED);
}

static bool is_state_type(const Select *x, DType d)
{
    return d == F32 || d == x->w->memory || d == NDTYPES;
}

/* A state that the walk carries, in float32 or as the tiles are where it begins
 * and ends. Where each chunk's is kept matrices are of 16 bits, all else is of
 * float32. */
static bool carries(Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    int i = n->index;
    bool matrix = count_axes(n->axes) == 2;
    x->kind[r] = matrix ? CARRIED : n->axes ? HELD : VECTOR;
    if (count_axes(n->axes) > 2 || n->axes & ~DIM_AXES)
        return refuse(x, r, "a state of more than two axes");
    if (!is_state_type(x, x->w->s0[i]) || !is_state_type(x, x->w->s1[i]))
        return refuse(x, r, "a state of another type");
    return !x->w->stores[r] || x->w->stored16[r] == matrix
        || refuse(x, r, "a state that is kept in a type that is not its own");
}

static bool classify(Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    AxisSet strange = (ROW_AXES | COL_AXES) & ~(AXIS(AX_I) | AXIS(AX_J));
    if (n->axes & strange || count_axes(n->axes) > 2) {
        const char *ranks = ranks_fault(x->s->c, x->g);
        return refuse(x, r, ranks ? ranks : "more than two axes");
    }
    if (n->op == OP_num || n->op == OP_isrank)
        x->kind[r] = NUMBER;
    else if (is_seen_through(x->g, r))
        x->kind[r] = VIEW;
    else if (n->op == OP_state && x->s->k->states & STATE(n->index))
        return carries(x, r);
    else if (n->op == OP_input || n->op == OP_state)
        return loads(x, r);
    else if (is_product(x, n) || is_solve(x, n) || is_decayed(x, n))
        x->kind[r] = PRODUCT;
    else if (is_loaded_delayed(x, n))
        x->kind[r] = LOADED;
    else if (is_shifted(x, n))
        x->kind[r] = SHIFTED;
    else if (op_is(n->op, ONE_ROW) && !n->flags && ends_scan(x, n->a[0])
             && !x->w->stores[r])
        x->kind[r] = LAST;
    else if (is_reduction(x, n))
        x->kind[r] = REDUCED;
    else if (is_for_pairs(x, r)
             || (adds_pairs(n->op) && n->axes & AXIS(AX_I)
                 && is_matrix(x, r) && is_whole(x, n)))
        x->kind[r] = PAIRED;
    else if (is_scan(x, r) || is_delayed_scan(x, r))
        x->kind[r] = SCANNED;
    else if (count_axes(n->axes) == 2)
        x->kind[r] = is_elementwise(n->op) || is_delayed_vector(x, n)
                     || is_matrix_of_pairs(x, n) ? ELEMENT : NOT_HERE;
    else if (n->axes & DIM_AXES && (op_info[n->op].traits & ELEMENTWISE
                                    || (op_is(n->op, PAIRS)
                                        && is_whole(x, n))))
        x->kind[r] = ACROSS;
    else if (is_vector_op(n) && !((n->axes | n->over) & DIM_AXES))
        x->kind[r] = VECTOR;
    return x->kind[r] != NOT_HERE || refuse(x, r, "no such instruction yet");
}

/* Matrices are kept in 16 bits; of tokens also in float32, which is what all
 * else is kept in. */
static bool is_kept_so(const Select *x, Ref r)
{
    int axes = count_axes(x->g->n[r].axes);
    return x->w->stored16[r] ? axes == 2 && x->kind[r] != PAIRED
                             : axes < 2 || is_of_tokens(x, r);
}

/* A kernel may have nodes that nothing which it leaves is made of: what they
 * alone would read is not loaded. */
static void find_needed_of(Select *x)
{
    const Kernel *k = x->s->k;
    for (int i = k->nnodes - 1; i >= 0; i--) {
        Ref r = k->node[i];
        Ref shown = shown_node(x->g, r);
        x->needs[r] |= is_result(x, shown) || is_next(x, shown);
        for (int a = 0; a < arity_here(x->g, r) && x->needs[r]; a++)
            x->needs[x->g->n[r].a[a]] = true;
    }
}

/* Whether the state is what a sequence's last token has of an input in memory:
 * nobody carries it, if nobody reads it. */
static bool may_be_left(const Select *x, int state)
{
    const Graph *g = x->g;
    const State *st = &g->st[state];
    const Node *n = &g->n[st->next], *a = &g->n[n->a[0]];
    return x->s->k->states & STATE(state) && x->s->kind == K_FORWARD
        && takes_last(n) && a->op == OP_input && a->timed
        && count_axes(a->axes) == 2 && !g->in[a->index].ranked
        && st->axes == n->axes && count_axes(n->axes) == 1
        && is_state_type(x, x->w->s0[state])
        && is_state_type(x, x->w->s1[state])
        && !x->w->stores[st->node] && !x->w->stores[st->next];
}

void end_left(Select *x)
{
    for (int i = 0; i < x->g->nst; i++)
        if (x->left & STATE(i))
            inst_new(x, K_END, KR_STORE)->index = (int16_t)i;
}

static void find_needed(Select *x)
{
    for (int i = 0; i < x->g->nst; i++)
        x->left |= may_be_left(x, i) ? STATE(i) : 0;
    for (bool more = true; more;) {
        more = false;
        find_needed_of(x);
        for (int i = 0; i < x->g->nst; i++)
            if (x->left & STATE(i) && x->needs[x->g->st[i].node]) {
                x->left &= ~STATE(i);
                more = true;
            }
    }
}

/* Products alone find a constant matrix where it lies. */
static bool check_constants(Select *x)
{
    for (Ref u = 1; u < x->g->len; u++)
        for (int i = 0; i < 4 && x->kind[u] >= VECTOR; i++) {
            Ref a = shown_node(x->g, x->g->n[u].a[i]);
            a = x->g->n[a].op == OP_factor ? shown_node(x->g, x->g->n[a].a[0])
                                           : a;     /* rounded, or not */
            const Node *n = &x->g->n[a];
            if (x->kind[a] == LOADED && n->op == OP_input
                && is_constant_matrix(n, &x->g->in[n->index])
                && !(x->kind[u] == PRODUCT && is_product(x, &x->g->n[u]))
                && !(x->g->n[u].op == OP_factor
                     && x->w->in[n->index] != x->w->memory))
                return refuse(x, a, "a constant matrix that is more than a"
                              " factor of products");
        }
    return true;
}

/* States that nobody reads are carried all the same, to where the walk leaves
 * them. */
static bool carries_unread(Select *x)
{
    for (int i = 0; i < x->g->nst; i++) {
        Ref r = x->g->st[i].node;
        if (x->s->k->states & ~x->left & STATE(i) && x->kind[r] == NOT_HERE
            && !carries(x, r))
            return false;
    }
    return true;
}

bool select_classify(Select *x)
{
    const Kernel *k = x->s->k;
    find_needed(x);
    for (int i = 0; i < k->nnodes; i++)
        x->has[k->node[i]] = 1;
    for (int i = 0; i < k->nnodes; i++) {
        const Node *n = &x->g->n[k->node[i]];
        for (int a = 0; a < arity_here(x->g, k->node[i])
                        && x->needs[k->node[i]]; a++)
            if (n->a[a] && !x->has[n->a[a]]) {
                x->has[n->a[a]] = 1;
                if (!loads(x, n->a[a]))
                    return false;
            }
    }
    for (int i = 0; i < k->nnodes; i++) {
        Ref r = k->node[i];
        if (!x->needs[r])
            continue;
        if (!classify(x, r))
            return false;
        if (x->w->stores[r]
            && ((x->kind[r] == LOADED && op_is(x->g->n[r].op, SHIFTS))
                || x->kind[r] == SHIFTED || x->kind[r] == LAST))
            return refuse(x, r, "sums that are kept");
        if (x->w->stores[r] && x->kind[r] >= VECTOR && !is_kept_so(x, r))
            return refuse(x, r, "kept in a type that is not its own");
    }
    return carries_unread(x) && check_constants(x);
}
