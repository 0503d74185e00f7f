/* flat.c -- values of which all warps have a share: how they lie, and which
 * nodes of a chunk have an instruction of their own.
 *
 * A value lies in canonical order, tokens for whole blocks, so that strides are
 * known; a chunk of n tokens uses the first n rows. Rows of a matrix lie an odd
 * multiple of 16 bytes apart: eight of them then start in different banks of
 * shared memory.
 */
#include "ranks.h"

#include <string.h>

/* ---- what there is of a node ---- */

bool token_constant(const Schedule *s, Ref r, double *x)
{
    const Graph *g = s->g;
    while (op_is(g->n[r].op, MOVES))
        r = g->n[r].a[0];
    *x = g->n[r].op == OP_size ? g->axis[g->n[r].index].size : g->n[r].num;
    return g->n[r].op == OP_num || g->n[r].op == OP_size;
}

bool token_found(const Schedule *s, Ref r)
{
    const Node *n = &s->g->n[r];
    double x;
    return n->op == OP_state ? !(s->k->states & STATE(n->index))
         : n->op != OP_input && !schedule_computes(s, r)
           && !token_constant(s, r, &x);
}

Ref token_shown(const Schedule *s, Ref r)
{
    while (op_is(s->g->n[r].op, MOVES) && !token_found(s, r))
        r = s->g->n[r].a[0];
    return r;
}

bool has_two_places(const Schedule *s, const KValue *v)
{
    enum { MOST = 4096 };
    return v->layout == LAY_FLAT && v->element * v->nrow <= MOST
        && !has_rows(s) && s->kind != K_TOKEN
        && ((s->g->n[v->node].op == OP_input
             && (s->g->n[v->node].timed || s->tokens.single))
            || token_found(s, v->node));
}

bool token_brings(const Schedule *s, const KInst *k)
{
    return k->op == K_LOAD && k >= s->inst + s->tokens.first
        && has_two_places(s, &s->value[k->out[0]]);
}

/* ---- how values lie ---- */

int32_t flat_extent(const Schedule *s, Ref r, int ax)
{
    return ax == AX_I || ax == AX_J ? s->tokens.rows
         : ax == s->slice_axis ? block_extent(s, ax) : s->ext[r][ax];
}

int32_t flat_count(const Schedule *s, Ref r, AxisSet axes)
{
    int32_t n = 1;
    for (; axes; axes &= axes - 1)
        n *= flat_extent(s, r, lowest(axes));
    return n;
}

bool is_exact(const Schedule *s)
{
    bool ratio = s->memory == F32;
    for (Ref r = 1; r < s->g->len && !ratio; r++)
        ratio = is_running_most(s->g->n[r].op);
    return ratio;
}

DType flat_type(const Schedule *s, Ref r)
{
    const Node *n = &s->g->n[r];
    if (n->op == OP_input)
        return s->in[n->index] == F64 ? F32 : s->in[n->index];
    if (token_found(s, r))
        return s->stored16[r] ? s->tile : F32;
    if (s->factor && s->factor[r])
        return s->tile;
    return has_rows(s) && s->memory == F32 && adds_tokens(n->op)
        && gate_sum(s->g, r) ? F64 : F32;
}

/* Whether the rows of a matrix end with this axis, the inner ones done. */
static bool ends_row(AxisSet axes, int ax)
{
    AxisSet dims = axes & DIM_AXES;
    return axes & (AXIS(ax) - 1)
        && (dims ? ax == highest(dims) : ax == AX_J);
}

int32_t flat_strides(const Schedule *s, Ref r, int32_t st[NAXES])
{
    AxisSet axes = s->g->n[r].axes;
    int32_t size = (int32_t)dtype_size(flat_type(s, r)), step = 1;
    int32_t unit = size == 4 ? 8 : ROW_PIECE / size;
    memset(st, 0, NAXES * sizeof *st);
    for (AxisSet left = axes; left; left &= ~AXIS(highest(left))) {
        int ax = highest(left);
        st[ax] = step;
        step *= flat_extent(s, r, ax);
        if (has_rows(s) && ends_row(axes, ax) && step >= ROW_BLOCK)
            step = ((step + unit - 1) / unit | 1) * unit;
    }
    return step;
}

int32_t kept_strides(const Schedule *s, Ref r, int32_t st[NAXES])
{
    int32_t step = 1;

    memset(st, 0, NAXES * sizeof *st);
    for (AxisSet left = s->g->n[r].axes; left;) {
        int ax = highest(left);
        st[ax] = step;
        step *= ax == AX_I || ax == AX_J ? s->tokens.rows : s->ext[r][ax];
        left &= ~AXIS(ax);
    }
    return step;
}

bool lies_where_kept(const Schedule *s, const KValue *v)
{
    return v->spilled && has_rows(s) && token_found(s, v->node);
}

bool sums_by_block(const Schedule *s, Ref r)
{
    const Node *n = &s->g->n[r];
    int32_t terms = 1;

    for (AxisSet over = n->over; over; over &= over - 1)
        terms *= flat_extent(s, operand_along(s, r, lowest(over)),
                             lowest(over));
    return has_rows(s) && token_sums(s, r) && !op_is(n->op, OF_MOST)
        && flat_count(s, r, n->axes) == 1 && terms >= s->tokens.threads;
}

KSpot flat_spot(const Schedule *s, Ref r)
{
    const Node *n = &s->g->n[r];
    KSpot to = { .value = NOTHING };

    if (!op_is(n->op, MOVES) || token_found(s, r)) {
        int line = schedule_value(s, r, LAY_LINE);
        to.value = line != NOTHING ? line
                 : schedule_value(s, r, is_regtile(s, r) ? LAY_REGTILE
                                  : LAY_FLAT);
        if (to.value != NOTHING && lies_where_kept(s, &s->value[to.value]))
            kept_strides(s, r, to.st);
        else
            flat_strides(s, r, to.st);
        return to;
    }
    KSpot from = flat_spot(s, n->a[0]);
    int ax = n->over ? lowest(n->over) : 0;
    to = from;
    if (op_has(n->op, INDEX))
        to.at += n->index * from.st[ax];
    if (takes_last(n))
        to.tail += from.st[AX_I];
    for (ax = 0; ax < NAXES; ax++)
        to.st[ax] = n->axes & AXIS(ax) ? from.st[moved_axis(n, ax)] : 0;
    return to;
}

/* ---- products ---- */

Ref operand_along(const Schedule *s, Ref r, int ax)
{
    for (int i = 0; i < 4; i++)
        if (s->g->n[s->g->n[r].a[i]].axes & AXIS(ax))
            return s->g->n[r].a[i];
    return r;
}

/* The longest run of some axes, for up to two operands. */
static KRun longest_run(const Schedule *s, Ref r, AxisSet axes, const KSpot *p,
                        const KSpot *q)
{
    KRun best = { .size = 1 }, run = { .size = 0 };

    for (; axes; axes &= axes - 1) {
        int ax = lowest(axes);
        int32_t ext = flat_extent(s, operand_along(s, r, ax), ax);
        bool goes_on = run.size && ax != AX_I && ax != AX_J
                    && run.st[0] == p->st[ax] * ext
                    && run.st[1] == q->st[ax] * ext;
        if (!goes_on)
            run = (KRun){ .size = 1, .tokens = ax == AX_I || ax == AX_J };
        run.axes |= AXIS(ax);
        run.size *= ext;
        run.st[0] = p->st[ax];
        run.st[1] = q->st[ax];
        if (run.size > best.size || !best.axes)
            best = run;
    }
    return best;
}

static bool is_number(const Schedule *s, Ref r)
{
    double x;
    return token_constant(s, r, &x);
}

bool flat_factors(const Schedule *s, Ref r, KFactors *p)
{
    enum { LEAST = 8 };
    const Node *n = &s->g->n[r];

    if (!is_plain_contraction(n->op) || is_number(s, n->a[0])
        || is_number(s, n->a[1]))
        return false;
    AxisSet a = s->g->n[n->a[0]].axes, b = s->g->n[n->a[1]].axes;
    KSpot at_a = flat_spot(s, n->a[0]), at_b = flat_spot(s, n->a[1]);
    KRun m = longest_run(s, r, n->axes & a & ~b, &at_a, &at_a);
    KRun of = longest_run(s, r, n->axes & b & ~a, &at_b, &at_b);
    KRun k = longest_run(s, r, n->over, &at_a, &at_b);
    *p = (KFactors){ { n->a[0], n->a[1] }, { at_a, at_b },
                     n->axes & ~m.axes & ~of.axes, m, of, k };
    if (n->axes && m.axes & AXIS(highest(n->axes))) {
        *p = (KFactors){ { n->a[1], n->a[0] }, { at_b, at_a }, p->loops, of, m,
                         k };           /* neighbours in memory are columns */
        p->k.st[0] = k.st[1];
        p->k.st[1] = k.st[0];
    }
    return k.axes == n->over && m.size >= LEAST && of.size >= LEAST
        && k.size >= LEAST;
}

/* The one axis besides i and j, where each operand has what is expected of it;
 * or NOTHING. */
static int gate_axis(const Schedule *s, const Node *n)
{
    AxisSet used = n->axes | n->over, tokens = AXIS(AX_I) | AXIS(AX_J);
    AxisSet key = used & ~tokens;
    bool number = false;

    for (int i = 0; i < 4; i++)
        number |= is_number(s, n->a[i]);
    return (used & tokens) != tokens || !key || key & (key - 1)
        || !(key & DIM_AXES) || number
        || s->g->n[n->a[2]].axes & AXIS(AX_J)
        || s->g->n[n->a[3]].axes & AXIS(AX_I) ? NOTHING : lowest(key);
}

/* Puts the operand that has the axis first; false if the other has it too. */
static bool order_operands(const Schedule *s, Ref a[2], int has, int not)
{
    if (!(s->g->n[a[0]].axes & AXIS(has))) {
        Ref r = a[0];
        a[0] = a[1];
        a[1] = r;
    }
    return !(s->g->n[a[1]].axes & AXIS(has))
        && !(s->g->n[a[0]].axes & AXIS(not));
}

bool flat_decayed(const Schedule *s, Ref r, KDecayed *d)
{
    const Node *n = &s->g->n[r];
    int own = n->axes & AXIS(AX_I) ? AX_I : AX_J;

    if (!is_decayed_contraction(n->op))
        return false;
    *d = (KDecayed){ { n->a[0], n->a[1] }, gate_axis(s, n), own,
                     own == AX_I ? AX_J : AX_I, false };
    d->scores = d->key != NOTHING && n->over == AXIS(d->key);
    return d->key != NOTHING
        && (d->scores ? order_operands(s, d->a, AX_I, AX_J)
                      : n->over == AXIS(d->other)
                        && order_operands(s, d->a, own, d->key));
}

KOp flat_op(const Schedule *s, Ref r)
{
    KFactors p;
    KDecayed d;
    int op = s->g->n[r].op;

    return !has_rows(s) ? K_MAP
         : op_is(op, RECURS) ? K_SCAN
         : is_system(op) ? K_SOLVE
         : flat_factors(s, r, &p) ? K_PRODUCT
         : flat_decayed(s, r, &d) ? K_DECAYED : K_MAP;
}

AxisSet solve_rows(const Graph *g, const Node *n)
{
    AxisSet cols = g->n[n->a[0]].axes & COL_AXES;
    return (cols >> AX_J & ~AXIS(AX_I)) | AXIS(AX_I);
}

/* ---- what there is no kernel for ---- */

/* Neither what tokens have in a chunk, nor what passes over rows. */
static bool is_of_token(const Node *n)
{
    return !op_is(n->op, RECURS | OF_RANKS | WHOLE_ROW)
        && !(n->axes & (ROW_AXES | COL_AXES))
        && (!op_is(n->op, MOVES) || n->over);
}

const char *flat_fault(const Schedule *s, const KernelWish *w)
{
    if (s->kind == K_TOKEN && !w->plainly)
        return "all tokens at once, one by one";
    for (int i = 0; i < s->k->nnodes; i++) {
        Ref r = s->k->node[i];
        const Node *n = &s->g->n[r];
        bool row = op_is(n->op, OF_RANKS)
                || (op_is(n->op, WHOLE_ROW) && !op_is(n->op, OF_MOST));
        if (row || (!is_of_token(n) && !w->plainly)) {
            const char *ranks = ranks_fault(s->c, s->g);
            return ranks ? ranks
                 : ctx_format(s->c, row ? "%%%u = %s: of rows"
                              : "%%%u = %s: of a single token",
                              (unsigned)r, op_info[n->op].name);
        }
    }
    return NULL;
}
