/* reads.c -- what nodes are to one another in a kernel: who reads which, what
 * is left for others.
 */
#include "select.h"

#include <string.h>

static void find_outputs(Select *x)
{
    x->output = ctx_alloc(x->c, x->g->len);
    memset(x->output, NOTHING, x->g->len);
    for (int i = x->g->nout - 1; i >= 0; i--)
        if (x->w->wants_out[i])
            x->output[shown_node(x->g, x->g->out[i].node)] = (int8_t)i;
}

void find_readers(Select *x)
{
    const Graph *g = x->g;
    int *first = ctx_alloc(x->c, (g->len + 2) * sizeof *first);
    Reader *reader = ctx_alloc(x->c, (4 * g->len + 1) * sizeof *reader);
    for (Ref u = 1; u < g->len; u++)
        for (int i = 0; i < 4; i++)
            first[shown_node(g, g->n[u].a[i]) + 2]++;
    first[2] = 0;                       /* of no operand */
    for (Ref r = 1; r < g->len; r++)
        first[r + 2] += first[r + 1];
    for (Ref u = 1; u < g->len; u++)
        for (int i = 0; i < 4; i++) {
            Ref of = shown_node(g, g->n[u].a[i]);
            if (of)
                reader[first[of + 1]++] = (Reader){ of, u, i };
        }
    x->reader = reader;
    x->first_reader = first;
    find_outputs(x);
}

bool is_scan(const Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    bool scores = n->axes == (AXIS(AX_I) | AXIS(AX_J));
    if (!is_matrix(x, r) || !(n->axes & AXIS(AX_I))
        || !(n->axes & DIM_AXES || scores))
        return false;
    if (adds_tokens(n->op))
        return !(n->flags & ~(EXCLUSIVE | REVERSE));
    if (is_running_most(n->op) ? n->flags
        : n->op != OP_scan || n->flags & ~(REVERSE | WRAP))
        return false;
    AxisSet gate = n->a[0] ? x->g->n[n->a[0]].axes : 0;
    return n->flags & WRAP ? !n->a[0] && !(n->flags & REVERSE)
         : (!gate || gate == AXIS(AX_I) || gate == n->axes)
           && is_matrix(x, n->a[1]);
}

bool is_delayed_scan(const Select *x, Ref r)
{
    const Graph *g = x->g;
    const Node *n = &g->n[r], *of = &g->n[n->a[0]];
    return op_is(n->op, SHIFTS) && !n->flags && is_scan(x, n->a[0])
        && !(of->flags & ~WRAP) && of->a[2] && of->a[2] == n->a[1];
}

Ref scan_operand(const Graph *g, Ref r)
{
    const Node *n = &g->n[scan_of(g, r)];
    return shown_node(g, n->a[n->a[2] != 0]);
}

/* Of a scan those of each token and column. */
static Ref scan_gates(const Select *x, Ref r)
{
    const Node *n = &x->g->n[scan_of(x->g, r)];
    Ref gates = n->a[2] ? shown_node(x->g, n->a[0]) : 0;
    return gates && is_matrix(x, gates) ? gates : 0;
}

bool is_scanned(const Select *x, Ref r)
{
    for (const Reader *u = readers(x, r); u->of == r; u++)
        if ((x->kind[u->node] == SCANNED && (scan_operand(x->g, u->node) == r
                                             || scan_gates(x, u->node) == r))
            || (x->kind[u->node] == SHIFTED && u->operand == 0))
            return true;
    return false;
}

bool is_wide_input(const Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    return n->op == OP_input && has_row_axis(x, r) && x->col[r] == AX_I
        && is_matrix(x, r) && x->w->in[n->index] == F32
        && x->w->memory != F32 && x->s->tile != F32 && !x->s->direct
        && !x->g->rows && x->s->target->form[FORM_COPY]->waited
        && has_whole_rows(x, r) && !is_factor(x, r);
}

bool is_read_directly(const Select *x, Ref r)
{
    const Node *n = &x->g->n[r];
    Ref from = loaded_node(x->s, r);
    bool state = !(x->g->n[r].axes & ~DIM_AXES);
    if (x->g->n[from].op != OP_input)
        return is_matrix(x, r) && !schedule_computes(x->s, from)
            && (!x->w->stored16[from]
                || (state && x->s->direct && !is_factor(x, r)));
    if (n->op != OP_input)
        return false;
    return is_matrix(x, r) && !is_wide_input(x, r)
        && (x->w->in[n->index] != x->w->memory
            || ((x->s->direct || x->s->tile == F32 || !has_whole_rows(x, r))
                && !is_factor(x, r)));
}

static bool multiplies(const Select *x, Ref r)
{
    return (x->kind[r] == PRODUCT || x->kind[r] == MERGED)
        && !(op_info[x->g->n[r].op].traits & ELEMENTWISE);
}

bool is_factor(const Select *x, Ref r)
{
    for (const Reader *u = readers(x, r); u->of == r; u++)
        if (u->operand < 2 && multiplies(x, u->node)
            && (u->operand || !is_solve(x, &x->g->n[u->node])))
            return true;
    return false;
}

bool is_inverted(const Select *x, Ref r)
{
    for (const Reader *u = readers(x, r); u->of == r; u++)
        if (x->g->n[u->node].a[0] == r && multiplies(x, u->node)
            && is_solve(x, &x->g->n[u->node]))
            return true;
    return x->w->stores[r] && is_solved(x, r);
}

Layout vector_layout(const Select *x, Ref r)
{
    return x->g->n[r].axes ? LAY_VECTOR : LAY_SCALAR;
}

bool is_kept(const Select *x, Ref r)
{
    return in_matrix_role(x, r) && !is_summed(x, r) && x->w->stores[r]
        && x->w->stored16[r];
}

bool is_kept_wide(const Select *x, Ref r)
{
    return in_matrix_role(x, r) && !is_summed(x, r) && x->w->stores[r]
        && !x->w->stored16[r];
}

bool is_left(const Select *x, Ref r)
{
    return is_factor(x, r) || output_of(x, r) != NOTHING || is_kept(x, r)
        || is_kept_wide(x, r) || is_scanned(x, r) || is_inverted(x, r)
        || is_next(x, r);
}

bool is_of_group(const Select *x, Ref r, int group, int level)
{
    return x->group[r] == group && x->level[r] == level
        && in_matrix_role(x, r) && (!x->again[r] || is_left(x, r));
}

bool is_in_lanes(const Select *x, int state)
{
    const State *st = &x->g->st[state];
    for (Ref r = 1; r < x->g->len; r++)
        if (in_matrix_role(x, r))
            return false;
    return x->kind[st->node] == HELD
        && x->kind[shown_node(x->g, st->next)] == ACROSS;
}
