/* tails.c -- rows behind a sequence's last token. The role that loads tiles
 * clears them where a chunk ends early, before it says that they are there: the
 * roles that find them have no branch for it, across which ptxas moves nothing.
 * Lean iterations have none: a block that goes on where another one ends has
 * more chunks before it.
 *
 * What is zero there stays zero in products, and in programs where it is
 * multiplied by numbers. Vectors of tokens are numbers there: their roles take
 * inputs as zero behind the end, and what sums of gates are at the last token
 * they are behind it, so that what is made of them is no less finite than the
 * last token's own.
 */
#include "tails.h"
#include "../eval.h"

#include <math.h>

/* Whether the instruction clears what another one loads, as it was loaded. */
static bool is_behind_load(const Schedule *s, const KInst *k, int *load)
{
    if (k->op != K_CLEAR || k->nout || k->nin != 1)
        return false;
    *load = value_writer(s, k->in[0]);
    Ref r = s->value[k->in[0]].node;
    return *load != NOTHING && s->inst[*load].op == K_LOAD
        && s->inst[*load].role == KR_LOAD && loaded_node(s, r) == r;
}

/* The copy engine brings such tiles of tokens. */
static bool may_clear(const Schedule *s, const KInst *k)
{
    const KValue *v = k->nout ? &s->value[k->out[0]] : NULL;
    return k->op == K_LOAD && k->role == KR_LOAD && s->kind != K_TOKEN
        && s->target->form[FORM_COPY]->waited && v && v->layout == LAY_TILE
        && v->row == AX_I && loaded_node(s, v->node) == v->node;
}

void schedule_clear_loaded(Schedule *s)
{
    int load;
    if (!walks_behind(s) || !s->target->form[FORM_COPY]->waited)
        return;
    for (int i = s->ninsts - 1; i >= 0; i--)
        if (is_behind_load(s, &s->inst[i], &load)
            && may_clear(s, &s->inst[load])) {
            s->inst[load].clears = true;
            inst_remove(s, i);
        }
}

const char *tails_fault(const Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].clears && !may_clear(s, &s->inst[i]))
            return ctx_format(s->c, "ends that are cleared where none are"
                              " (%d)", i);
    return NULL;
}

/* ---- what is zero there ---- */

/* Of a node what it is behind the last token: a CONSTANT; a NUMBER; or
 * ANYTHING. last: what it is for the last token, but for rounding. */
typedef struct Tail {
    enum { ANYTHING, NUMBER, CONSTANT } is;
    bool last;
    double x;
} Tail;

static const Tail any = { ANYTHING, false, 0 }, as_last = { NUMBER, true, 0 },
                  zero = { CONSTANT, false, 0 };

static bool is_zero(Tail t)
{
    return t.is == CONSTANT && t.x == 0;
}

static bool has_tokens_axis(const Graph *g, Ref r)
{
    return g->n[r].axes & (AXIS(AX_I) | AXIS(AX_J));
}

/* Of an operation element by element. */
static Tail computed(int op, const Tail x[3])
{
    double y, v[3] = { x[0].x, x[1].x, x[2].x };
    bool all = true, last = true, numbers = keeps_numbers(op);
    for (int i = 0; i < op_info[op].arity; i++) {
        all &= x[i].is == CONSTANT;
        last &= x[i].last;
        numbers &= x[i].is != ANYTHING;
    }
    if ((op == OP_mul || op_is(op, MULTIPLIES)) && x[0].is && x[1].is
        && (is_zero(x[0]) || is_zero(x[1])))
        return zero;
    if (!(op_info[op].traits & ELEMENTWISE))
        return any;
    if (all)
        elem_row(op, 1, &y, (Row){ v, 1 }, (Row){ v + 1, 1 },
                 (Row){ v + 2, 1 });
    if (all && isfinite(y))
        return (Tail){ CONSTANT, last, y };
    return last ? as_last : numbers ? (Tail){ NUMBER, false, 0 } : any;
}

/* ---- vectors of tokens ---- */

/* The program of a vector role that makes the node. */
static const KInst *vector_program(const Schedule *s, Ref r)
{
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_VECTOR && !s->inst[i].nrow
            && has_node(&s->inst[i], r))
            return &s->inst[i];
    return NULL;
}

static Tail vector_tail(const Schedule *s, Ref r);

/* Behind the end sums and scans along the chunk keep what they are at the last
 * token. */
static Tail vector_node_tail(const Schedule *s, const Node *n)
{
    Tail x[3] = { zero, zero, zero };
    if (n->op == OP_input)
        return n->timed ? zero : as_last;
    if (!n->axes || n->op == OP_state)
        return as_last;
    if (op_is(n->op, RECURS))
        return n->flags & REVERSE ? any : as_last;
    if (n->op == OP_after)              /* of what has a next token */
        return zero;
    for (int i = 0; i < 3 && i < op_info[n->op].arity; i++)
        x[i] = n->a[i] ? vector_tail(s, shown_node(s->g, n->a[i])) : any;
    if (op_is(n->op, SHIFTS))
        return x[0].is && !(n->flags & REVERSE)
             ? (Tail){ NUMBER, x[0].last, 0 } : any;
    return computed(n->op, x);
}

static Tail vector_tail(const Schedule *s, Ref r)
{
    const Node *n = &s->g->n[r];
    if (n->op == OP_num)
        return (Tail){ CONSTANT, true, n->num };
    if (!has_tokens_axis(s->g, r))
        return as_last;
    if (!vector_program(s, r))
        return any;
    return schedule_computes(s, r) ? vector_node_tail(s, n) : zero;
}

/* ---- matrices ---- */

static bool value_ends_in_zeros(const Schedule *s, const KInst *k, int value);
static Tail program_tail(const Schedule *s, const KInst *k, Ref r);

/* Of a fragment of another program, as that leaves it. */
static Tail fragment_tail(const Schedule *s, int value)
{
    const KValue *v = &s->value[value];
    int from = value_writer(s, value);
    return v->layout == LAY_FRAGMENT && from != NOTHING && clears_loaded(s)
        && s->inst[from].op == K_MAP && has_node(&s->inst[from], v->node)
         ? program_tail(s, &s->inst[from], v->node) : any;
}

/* What the instruction finds. */
static Tail found_tail(const Schedule *s, const KInst *k, Ref r)
{
    if (!has_tokens_axis(s->g, r) || counts_tokens(s->g, r))
        return as_last;
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = &s->value[k->in[i]];
        if (v->node != r)
            continue;
        if (v->layout == LAY_VECTOR)
            return clears_loaded(s) && v->parts == 1 ? vector_tail(s, r) : any;
        return value_ends_in_zeros(s, k, k->in[i]) ? zero
             : fragment_tail(s, k->in[i]);
    }
    return any;
}

/* Of earlier tokens, along columns, an operand has no end where rows end. */
static Tail operand_tail(const Schedule *s, const KInst *k, Ref o)
{
    const Graph *g = s->g;
    Ref r = shown_node(g, o);
    Tail t = g->n[r].op == OP_num ? (Tail){ CONSTANT, true, g->n[r].num }
           : has_node(k, r) ? program_tail(s, k, r) : found_tail(s, k, r);
    if (!(g->n[o].axes & AXIS(AX_I)) && g->n[o].axes & AXIS(AX_J) && !t.last
        && t.is == CONSTANT)
        t.is = NUMBER;
    return t;
}

/* A node of a program, which may be a sum of its elements. */
static Tail program_tail(const Schedule *s, const KInst *k, Ref r)
{
    const Node *n = &s->g->n[r];
    Tail x[3] = { zero, zero, zero };
    int arity = op_info[n->op].arity;
    bool last = true;
    for (int i = 0; i < 3 && i < arity; i++) {
        x[i] = n->a[i] ? operand_tail(s, k, n->a[i]) : as_last;
        last &= x[i].last;
    }
    if (is_mask(n->op))
        return last ? as_last : any;
    bool moves = op_is(n->op, PAIRS) ? !adds_pairs(n->op)
               : arity == 1 && op_is(n->op, FOLDS | MOVES | OF_RANKS);
    if (moves)
        return x[0].is == CONSTANT && !is_zero(x[0]) ? any : x[0];
    return arity > 3 ? any : computed(n->op, x);
}

/* Whether all that the program finds is cleared, or has no tokens, and it makes
 * the node element by element. */
static bool finds_cleared(const Schedule *s, const KInst *k, Ref made)
{
    bool all = k->row == AX_I && has_node(k, made);
    for (int i = 0; i < k->nnodes; i++) {
        int op = s->g->n[k->node[i]].op;
        all &= (op_info[op].traits & ELEMENTWISE) != 0
            || (op_is(op, PAIRS) && !adds_pairs(op));
    }
    for (int i = 0; i < k->nin; i++) {
        Ref r = s->value[k->in[i]].node;
        all &= value_ends_in_zeros(s, k, k->in[i]) || counts_tokens(s->g, r)
            || !has_tokens_axis(s->g, r);
    }
    return all;
}

/* Where roles of matrices clear tiles themselves a program that finds others,
 * too, is masked: ptxas makes less of some that are not (gdn2's kernel of all
 * chunks took 1,549 us so, and 1,466 with masks). */
bool ends_in_zeros(const Schedule *s, const KInst *k, Ref r)
{
    return (clears_loaded(s) ? !s->g->rows : finds_cleared(s, k, r))
        && is_zero(has_node(k, r) ? program_tail(s, k, r)
                                  : found_tail(s, k, r));
}

/* Whether a product finds the value as its left factor. */
static bool is_left_factor(const Schedule *s, int value)
{
    bool any_of = false;
    for (int i = 0; i < s->ninsts; i++)
        any_of |= s->inst[i].op == K_PRODUCT && s->inst[i].in[0] == value;
    return any_of;
}

/* A tile of tokens has zeros there, and so has a left factor: where it is not
 * made of such, they are cleared as it is left. */
static bool leaves_zeros(const Schedule *s, const KInst *k, int value)
{
    const KValue *v = &s->value[value];
    if (!k->nnodes && k->nin == 1 && s->value[k->in[0]].layout == LAY_TILE)
        return value_ends_in_zeros(s, k, k->in[0]);
    return (v->layout == LAY_TILE && k->row == AX_I && !deals_rows(s, k->role))
        || (v->layout == LAY_PACKED && k->col == AX_I
            && is_left_factor(s, value))
        || ends_in_zeros(s, k, v->node);
}

/* Of scores that are zero there the inverse leaves what it is multiplied with
 * as it is. */
static bool is_inverse_of_zeros(const Schedule *s, int value)
{
    int from = value_writer(s, value);
    return s->value[value].layout == LAY_INVERSE && from != NOTHING
        && s->inst[from].op == K_INVERSE
        && value_ends_in_zeros(s, &s->inst[from], s->inst[from].in[0]);
}

/* The factor that has the tokens, where its sum is over others; or, of an
 * inverse, the one that it is multiplied with. What it is added to. */
static bool product_leaves_zeros(const Schedule *s, const KInst *k)
{
    const KValue *d = &s->value[k->out[0]];
    int own = d->row == AX_I ? 0 : d->col == AX_I ? 1 : NOTHING;
    if (own == NOTHING)
        return false;
    own ^= is_inverse_of_zeros(s, k->in[own]);
    return value_ends_in_zeros(s, k, k->in[own])
        && (k->nin < 3 || value_ends_in_zeros(s, k, k->in[2]));
}

/* Whether the role has cleared it before the instruction. */
static bool is_cleared(const Schedule *s, const KInst *k, int value)
{
    const KValue *v = &s->value[value];
    bool all = v->layout == LAY_TILE && v->row == AX_I, cleared = false;
    for (const KInst *c = s->inst; c < k; c++)
        cleared |= c->op == K_CLEAR && c->role == k->role
                && c->in[0] == value;
    return all && cleared;
}

/* Of a value that has tokens, found by the instruction k. */
static bool value_ends_in_zeros(const Schedule *s, const KInst *k, int value)
{
    int from = value_writer(s, value);
    const KInst *w = from == NOTHING ? NULL : &s->inst[from];
    if (w && w->op == K_MAP)
        return clears_loaded(s) && leaves_zeros(s, w, value);
    if (w && w->op == K_PRODUCT)
        return clears_loaded(s) && product_leaves_zeros(s, w);
    return (w && w->clears) || is_cleared(s, k, value);
}
