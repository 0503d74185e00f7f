/* rank_empty.c -- what is zero in a token's empty rows. */
#include "rank_empty.h"
#include "../eval.h"

#include <math.h>
#include <string.h>

/* UNSEEN: nobody asked. ANY: what other rows may have, too. CONSTANT: x. */
typedef struct EmptyRow {
    enum { UNSEEN, ANY, CONSTANT } is;
    double x;
} EmptyRow;

static EmptyRow row_of(Empty *e, Ref r, bool cols);

static bool is_zero(EmptyRow x)
{
    return x.is == CONSTANT && x.x == 0;
}

/* Of what has no finite value at a constant. */
static EmptyRow computed(Empty *e, int op, const EmptyRow x[3])
{
    double y, v[3] = { x[0].x, x[1].x, x[2].x };
    bool all = true;
    for (int i = 0; i < op_info[op].arity; i++)
        all &= x[i].is == CONSTANT;
    if (op == OP_mul && (is_zero(x[0]) || is_zero(x[1])))
        return (EmptyRow){ CONSTANT, 0 };
    if (op == OP_where && x[0].is == CONSTANT)
        return x[0].x != 0 ? x[1] : x[2];
    if (op == OP_where && is_zero(x[1]) && is_zero(x[2]))
        return x[1];
    if (!all) {
        e->fails |= (op == OP_div || op == OP_mod) && is_zero(x[1]);
        return (EmptyRow){ ANY, 0 };
    }
    elem_row(op, 1, &y, (Row){ v, 1 }, (Row){ v + 1, 1 }, (Row){ v + 2, 1 });
    e->fails |= !isfinite(y);
    return (EmptyRow){ CONSTANT, y };
}

/* Zero is a product of zero, summed over an axis, and what is linear in zeros
 * alone; what recurs goes through other rows. */
static EmptyRow structured(Empty *e, const Node *n, bool cols)
{
    bool product = op_is(n->op, MULTIPLIES) && n->over;
    bool any = false, all = op_is(n->op, ADDITIVE | MULTIPLIES)
                         && !op_is(n->op, RECURS);
    for (int i = 0; i < 2; i++)
        if (n->a[i]) {
            bool zero = is_zero(row_of(e, n->a[i], cols));
            any |= zero;
            all &= zero;
        }
    return (EmptyRow){ all || (product && any) ? CONSTANT : ANY, 0 };
}

/* Whether it is the row of that rank: one of several empty ones, or the one. */
static EmptyRow flag(const Empty *e, int rank)
{
    bool empty = rank >= e->g->ranks;
    return (EmptyRow){ empty && e->g->rows - e->g->ranks > 1 ? ANY : CONSTANT,
                       empty };
}

static EmptyRow found(Empty *e, const Node *n, bool cols)
{
    switch (n->op) {
    case OP_num:
        return (EmptyRow){ CONSTANT, n->num };
    case OP_input:
        return (EmptyRow){ !cols && e->g->in[n->index].ranked ? CONSTANT : ANY,
                           0 };
    default: break;
    }
    if (op_is(n->op, RENAMES) && !n->over)      /* rows to columns, or back */
        return row_of(e, n->a[0], !cols);
    if (op_is(n->op, OF_RANKS) && !op_info[n->op].arity && !cols)
        return flag(e, n->index);
    if (!(op_info[n->op].traits & ELEMENTWISE))
        return structured(e, n, cols);
    EmptyRow x[3] = { { ANY, 0 }, { ANY, 0 }, { ANY, 0 } };
    for (int i = 0; i < op_info[n->op].arity; i++)
        x[i] = row_of(e, n->a[i], cols);
    return computed(e, n->op, x);
}

static EmptyRow row_of(Empty *e, Ref r, bool cols)
{
    if (r >= e->len[cols]) {
        uint32_t len = 2 * e->g->len;
        EmptyRow *more = ctx_alloc(e->g->ctx, len * sizeof *more);
        if (e->len[cols])
            memcpy(more, e->row[cols], e->len[cols] * sizeof *more);
        e->row[cols] = more;
        e->len[cols] = len;
    }
    if (e->row[cols][r].is == UNSEEN) {
        EmptyRow x = found(e, &e->g->n[r], cols);
        e->row[cols][r] = x;
    }
    return e->row[cols][r];
}

bool is_empty_zero(Empty *e, Ref r, bool cols)
{
    return is_zero(row_of(e, r, cols));
}
