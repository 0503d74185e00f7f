/* print_opening.c -- what a walk begins with beside its states, and what it
 * leaves that nobody carries: both are read where they lie in memory.
 */
#include "print_parts.h"
#include "source.h"
#include "../../compiler/schedule/opening.h"

/* ---- at a sequence's first token ---- */

static const char *of_block(Print *p, Ref r, const char *at)
{
    int axis = p->s->slice_axis;
    return p->s->slices == 1 || !(p->s->g->n[r].axes & AXIS(axis)) ? at
         : ctx_format(p->c, "%s + %s", sliced_index(p, axis, 0), at);
}

static const char *first_state(Print *p, Ref r, const char *at)
{
    int i = p->s->g->n[r].index;
    const char *type = element_type(result_type(p, ARG_STATE, i));
    int t = result_tensor(p, ARG_STATE, i);
    bool wraps = is_angle_state(p->s->g, r);
    p->k->looked_up[t] = true;
    if (!p->s->g->n[r].axes)
        return ctx_format(p->c, "begin_number<%s>(a.tensor[%d], x)", type, t);
    return ctx_format(p->c, "%sbegin_entry<%s>(a.tensor[%d], x, %s)%s",
                      wraps ? "wrap_(" : "", type, t, of_block(p, r, at),
                      wraps ? ")" : "");
}

static const char *first_input(Print *p, Ref r, const char *at)
{
    const Node *n = &p->s->g->n[r];
    DType d = p->o->in[n->index];
    int t = tensor_for(p, ARG_INPUT, n->index, d);
    if (n->timed)
        return ctx_format(p->c, "token_number<%s>(a.tensor[%d], x,"
                          " x.where.start)", element_type(d), t);
    if (n->axes)
        return vector_text(p, r, of_block(p, r, at));
    return ctx_format(p->c, "constant<%d>(a.tensor[%d], x.head)",
                      (int)dtype_size(d), t);
}

/* What is made of an entry along the axis that the node is over, zero where
 * there is none. */
static const char *within(Print *p, const Node *n, const char *at,
                          const char *computed)
{
    int over = lowest(n->over);
    const char *inside = inside_text(p, over, at);
    return !inside ? computed
         : ctx_format(p->c, "(%s ? %s : 0.f)", inside, computed);
}

static const char *first_of_pairs(Print *p, const Node *n, const char *at);

/* Entry `at` of r, which has one axis or none. */
static const char *first_text(Print *p, Ref r, const char *at)
{
    const Node *n = &p->s->g->n[r];
    const char *x[3] = { "", "", "" };
    Buf b = { .ctx = p->c };
    if (n->op == OP_num)
        return number_name(p, r);
    if (n->op == OP_state)
        return first_state(p, r, at);
    if (n->op == OP_input)
        return first_input(p, r, at);
    if (op_is(n->op, ONE_ROW))
        return first_text(p, n->a[0], at);
    if (op_is(n->op, PAIRS))
        return first_of_pairs(p, n, at);
    for (int i = 0; i < op_info[n->op].arity; i++)
        x[i] = first_text(p, n->a[i], at);
    buf_printf(&b, "(float)(");
    value_text(&b, n->op, x);
    buf_printf(&b, ")");
    return b.s;
}

static const char *first_of_pairs(Print *p, const Node *n, const char *at)
{
    const char *half = ctx_format(p->c, "(%s) / 2", at);
    const char *other = ctx_format(p->c, "((%s) ^ 1)", at);
    if (op_is(n->op, SPREADS))
        return within(p, n, half, first_text(p, n->a[0], half));
    if (op_has(n->op, TO_AXIS))
        return ctx_format(p->c, "(%s + %s)",
            first_text(p, n->a[0], ctx_format(p->c, "2 * (%s)", at)),
            first_text(p, n->a[0], ctx_format(p->c, "2 * (%s) + 1", at)));
    return within(p, n, other, ctx_format(p->c, "((%s) & 1 ? 1.f : -1.f) *"
                  " %s", at, first_text(p, n->a[0], other)));
}

/* ---- what is opened ---- */

typedef struct Opening {
    const KValue *state;
    int rows, share;                    /* of a warpgroup */
    const char *row0;
    bool *done;                         /* nodes: there is a name for them */
} Opening;

/* What rows of the state, or columns, or none of them have, once. */
static void put_opening_part(Print *p, Opening *o, Ref r)
{
    AxisSet axes = p->s->g->n[r].axes;
    bool rows = axes & AXIS(o->state->row);
    int axis = rows ? o->state->row : o->state->col;
    unsigned u = (unsigned)r;
    if (o->done[r])
        return;
    o->done[r] = true;
    if (!axes) {
        buf_printf(p->b, "const float b%u = %s;\n", u, first_text(p, r, "0"));
        return;
    }
    const char *inside = inside_text(p, axis, "at");
    if (!inside && rows && o->state->nrow % TILE_ROWS)
        inside = ctx_format(p->c, "at < %d", (int)o->state->nrow);
    int n = rows ? (o->rows + TILE_ROWS - 1) / TILE_ROWS * 2 : o->share / 4;
    buf_printf(p->b, "float b%u[%d];\nUNROLL for (int i = 0; i < %d; i++) {\n",
               u, n, n);
    if (rows)
        buf_printf(p->b, "const int at = %sl.row + i / 2 * 64 + i %% 2 * 8;\n",
                   o->row0);
    else
        buf_printf(p->b, "const int at = col0(%d) + i / 2 * 8 + l.col + i %% 2;"
                   "\n", o->share);
    buf_printf(p->b, "b%u[i] = %s%s%s%s;\n}\n", u, inside ? inside : "",
               inside ? " ? " : "", first_text(p, r, "at"),
               inside ? " : 0.f" : "");
}

static bool is_part(const Print *p, Ref r)
{
    AxisSet axes = p->s->g->n[r].axes;
    return !(axes & (axes - 1));
}

static void put_opening_parts(Print *p, Opening *o, Ref r)
{
    const Node *n = &p->s->g->n[r];
    if (n->op == OP_num)
        return;
    if (is_part(p, r)) {
        put_opening_part(p, o, r);
        return;
    }
    for (int i = 0; i < op_info[n->op].arity; i++)
        put_opening_parts(p, o, n->a[i]);
}

/* An entry of what is opened. */
static const char *opening_text(Print *p, const Opening *o, Ref r)
{
    const Node *n = &p->s->g->n[r];
    const char *x[3] = { "", "", "" };
    int each = o->share / 2;
    Buf b = { .ctx = p->c };
    if (n->op == OP_num)
        return number_name(p, r);
    if (is_part(p, r))
        return ctx_format(p->c, !n->axes ? "b%u"
                          : n->axes & AXIS(o->state->row)
                          ? "b%u[e / 2 %% 2 + e / %d * 2]"
                          : "b%u[e %% %d / 4 * 2 + e %% 2]", (unsigned)r,
                          each);
    for (int i = 0; i < op_info[n->op].arity; i++)
        x[i] = opening_text(p, o, n->a[i]);
    buf_printf(&b, "(float)(");
    value_text(&b, n->op, x);
    buf_printf(&b, ")");
    return b.s;
}

void put_opening(Print *p, const KInst *k, const KValue *v)
{
    const Graph *g = p->s->g;
    Opening o = { v, rows_of_group(p->s, k->role, v->nrow),
                  share_of(p->s, k->role, v->ncol),
                  deals_rows(p->s, k->role) ? "row0 + " : "",
                  ctx_alloc(p->c, g->len * sizeof *o.done) };
    for (Ref r = next_opening(p->s->p, v->node, 0); r;
         r = next_opening(p->s->p, v->node, r)) {
        buf_printf(p->b, "if (chunks > 0) {\n");
        put_opening_parts(p, &o, g->n[r].a[1]);
        buf_printf(p->b, "UNROLL for (int e = 0; e < %d; e++)\nf%u[e] += %s;\n"
                   "}\n", fragment_regs(p->s, v), (unsigned)v->node,
                   opening_text(p, &o, g->n[r].a[1]));
    }
}

/* ---- what is left ---- */

void put_left_in_memory(Print *p, const KInst *k)
{
    const State *s = &p->s->g->st[k->index];
    const Node *in = &p->s->g->n[p->s->g->n[s->next].a[0]];
    int axis = s->order[0];
    DType d = p->o->in[in->index];
    const char *at = ctx_format(p->c, "%s + k", sliced_index(p, axis, 0));
    int to = result_tensor(p, ARG_NEXT, k->index);
    buf_printf(p->b, "%sfor (int k = lane; k < %s && a.tensor[%d].p; k += 32)\n"
               "end_entry<%s>(a.tensor[%d], x, %s, chunks > 0 ?"
               " token_entry<%s>(a.tensor[%d], x, x.where.start + x.where.len"
               " / RANKS - 1, %s) : begin_entry<%s>(a.tensor[%d], x, %s));\n",
               once_text(p, s->node), inside_extent(p, axis), to,
               element_type(result_type(p, ARG_NEXT, k->index)), to, at,
               element_type(d), tensor_for(p, ARG_INPUT, in->index, d), at,
               element_type(result_type(p, ARG_STATE, k->index)),
               result_tensor(p, ARG_STATE, k->index), at);
}
