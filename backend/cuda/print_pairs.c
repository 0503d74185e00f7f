/* print_pairs.c -- programs that make values of pairs of neighbouring columns,
 * which are one thread's: they go through their registers by pairs, and through
 * a pair in phases. What a node makes of a pair is of the phase behind that of
 * its operand, of which both are there by then.
 */
#include "print_parts.h"
#include "source.h"

/* Operands of such nodes that the program finds, by a name of their own. */
static bool is_found_pair(const Print *p, const KInst *k, Ref r)
{
    for (int i = 0; i < k->nnodes && !has_node(k, r); i++)
        if (crosses(p, k, k->node[i])
            && shown_node(p->s->g, p->s->g->n[k->node[i]].a[0]) == r)
            return true;
    return false;
}

void put_pairs_begin(Print *p, const KInst *k, int regs)
{
    buf_printf(p->b, "UNROLL for (int m = 0; m < %d; m += 2) {\n", regs);
    for (int i = 0; i < k->nnodes; i++)
        buf_printf(p->b, "float x%u[2];\n", (unsigned)k->node[i]);
    for (Ref r = 1; r < p->s->g->len; r++)
        if (is_found_pair(p, k, r))
            buf_printf(p->b, "float w%u[2];\n", (unsigned)r);
}

void put_found_pairs(Print *p, const KInst *k)
{
    for (Ref r = 1; r < p->s->g->len; r++)
        if (is_found_pair(p, k, r))
            buf_printf(p->b, "w%u[e & 1] = %s;\n", (unsigned)r,
                       element_of(p, k, r));
}

/* Where the other one of a pair is, of an odd number of entries, of which the
 * last has none; NULL: each has one. */
static const char *other_text(Print *p, const Node *n, const char *at)
{
    int axis = lowest(n->over);
    return p->s->g->axis[axis].size % 2 == 0 ? NULL : inside_text(p, axis, at);
}

const char *pairs_text(Print *p, const KInst *k, Ref r)
{
    const Node *n = &p->s->g->n[r];
    Ref a = shown_node(p->s->g, n->a[0]);
    const char *x = ctx_format(p->c, "%c%u", has_node(k, a) ? 'x' : 'w',
                               (unsigned)a);
    if (op_is(n->op, SPREADS))          /* found, the same for both */
        return element_of(p, k, a);
    if (adds_pairs(n->op))
        return ctx_format(p->c, "%s[0] + %s[1]", x, x);
    const char *other = other_text(p, n, crosses(p, k, r) ? "col + 1"
                                                          : "row + 1");
    if (crosses(p, k, r))
        return ctx_format(p->c, "(e & 1 ? %s[0] : %s%s-%s[1])", x,
                          other ? ctx_format(p->c, "!(%s)", other) : "",
                          other ? " ? 0.f : " : "", x);
    /* pairs of rows: the other's lane is four away */
    return ctx_format(p->c, "%s%s%s(row & 1 ? 1.f : -1.f) * __shfl_xor_sync("
                      "~0u, %s, 4)%s", other ? "kept_(row & 1 || " : "",
                      other ? other : "", other ? ", " : "",
                      element_of(p, k, a), other ? ")" : "");
}

/* ---- vectors over a state's axis ---- */

/* Where in memory entry `at` of the block's slice is. */
static const char *of_slice(Print *p, Ref r, const char *at)
{
    int axis = p->s->slice_axis;
    return p->s->slices == 1 || !(p->s->g->n[r].axes & AXIS(axis)) ? at
         : ctx_format(p->c, "%s + %s", sliced_index(p, axis, 0), at);
}

/* What is made of entry `at` along the axis that the node is over: zero where
 * there is none, as the last one of an odd number has no other, and no pair. */
static const char *within(Print *p, const Node *n, const char *at,
                          const char *computed)
{
    const Axis *axis = p->s->g->axis;
    int over = lowest(n->over), entries = op_is(n->op, SPREADS) ? n->index
                                                               : over;
    return axis[entries].size % 2 == 0 ? computed
         : ctx_format(p->c, "(%s ? %s : 0.f)", inside_text(p, over, at),
                      computed);
}

/* Entry `at` of a vector, or a number. */
static const char *across_text(Print *p, const KInst *k, Ref r, const char *at)
{
    const Node *n = &p->s->g->n[r];
    const char *x[3] = { "", "", "" };
    Buf b = { .ctx = p->c };
    if (n->op == OP_num)
        return number_name(p, r);
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = value_at(p, k->in[i]);
        if (v->node != r)
            continue;
        return v->layout == LAY_GLOBAL
             ? vector_text(p, r, of_slice(p, r, at))
             : v->layout == LAY_SCALAR
             ? ctx_format(p->c, "parts_sum<%d>(%s, 1, 0)", v->parts,
                          place(p, v))
             : ctx_format(p->c, "parts_sum<%d>(%s, %d, %s)", v->parts,
                          place(p, v), (int)vector_size(v), at);
    }
    if (adds_pairs(n->op))
        return ctx_format(p->c, "(%s + %s)",
            across_text(p, k, n->a[0], ctx_format(p->c, "2 * (%s)", at)),
            across_text(p, k, n->a[0], ctx_format(p->c, "2 * (%s) + 1", at)));
    if (op_is(n->op, SPREADS))
        return within(p, n, ctx_format(p->c, "(%s) / 2", at), across_text(p, k,
                      n->a[0], ctx_format(p->c, "(%s) / 2", at)));
    if (op_is(n->op, PAIRS)) {
        const char *other = ctx_format(p->c, "((%s) ^ 1)", at);
        return within(p, n, other, ctx_format(p->c, "((%s) & 1 ? 1.f : -1.f) *"
                      " %s", at, across_text(p, k, n->a[0], other)));
    }
    for (int i = 0; i < op_info[n->op].arity; i++)
        x[i] = across_text(p, k, n->a[i], at);
    buf_printf(&b, "(float)(");
    value_text(&b, n->op, x);
    buf_printf(&b, ")");
    return b.s;
}

/* Slices of the axis are the blocks' own. */
void put_across(Print *p, const KInst *k)
{
    Ref r = k->node[k->nnodes - 1];
    const char *inside = inside_text(p, k->row, "k");
    each_bit(p, k, k->wait_empty, true, put_wait);
    buf_printf(p->b, "%sNO_UNROLL for (int k = thread; k < %d; k += %d) {\n"
               "const float y = %s%s%s%s;\n", k->nout ? "" : once_text(p, r),
               (int)k->nrow, GROUP_THREADS * warpgroups_of(p->s, k->role),
               inside ? inside : "", inside ? " ? " : "",
               across_text(p, k, r, "k"), inside ? " : 0.f" : "");
    if (k->nout)
        buf_printf(p->b, "store1(%s + 4 * k, y);\n",
                   place(p, value_at(p, k->out[0])));
    if (p->s->stores[r])
        buf_printf(p->b, "%s%s%s(%s + %s)[k] = y;\n", inside ? "if (" : "",
                   inside ? inside : "", inside ? ")\n" : "",
                   kept_place(p, r), sliced_index(p, k->row, 0));
    buf_printf(p->b, "}\n");
}
