/* opening.c -- states with what the token before has yet to write, before a
 * plan is cut. A chunk finds a state S, and all that it reads or goes on from
 * is S + X: what the token before the chunk adds to it under the chunk's first
 * decay (derive.c). X is the product of what the chunk before has in its last
 * row and of a number of this chunk's first token, so that the chunk before can
 * add it where it sums up its rows: its last row has that number as its weight,
 * and the walk carries S + X. What is left is X of a walk's first chunk, which
 * it begins with, and the weight of a sequence's last token, which is none:
 * S is what a walk leaves.
 *
 * So OP_after, the weights, goes on to the next chunk, and OP_opening is what
 * is carried. All of a plan's are taken so, or all as they are in a chunk.
 */
#include "opening.h"
#include "../cost.h"

/* ---- what a walk begins with ---- */

static bool is_of_tokens(const Graph *g, Ref r)
{
    return g->n[r].axes & AXIS(AX_I);
}

/* Whether r is made, element by element, of what there is at a sequence's first
 * token: of states, of inputs of numbers. */
static bool is_there_first(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    bool all = op_is(n->op, ELEMENTWISE)
            || (op_is(n->op, PAIRS) && !is_of_tokens(g, r));
    if (n->op == OP_num || n->op == OP_state)
        return true;
    if (n->op == OP_input)
        return !(n->axes & (n->axes - 1))
            && !(n->timed && (n->axes & ~AXIS(AX_I)
                              || g->in[n->index].ranked));
    if (op_is(n->op, ONE_ROW))
        return n->flags & REVERSE && is_there_first(g, n->a[0]);
    for (int i = 0; i < op_info[n->op].arity; i++)
        all &= n->a[i] && is_there_first(g, n->a[i]);
    return all && !(n->axes & (ROW_AXES | COL_AXES) & ~AXIS(AX_I));
}

Ref opened_state(const Graph *g, Ref r)
{
    while (g->n[r].op == OP_opening)
        r = g->n[r].a[0];
    return g->n[r].op == OP_state ? r : 0;
}

/* A matrix that nothing but its openings reads. */
static bool is_carried_open(const Graph *g, Ref opening)
{
    Ref state = opened_state(g, opening);
    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; i < 4 && state; i++)
            if (g->n[r].a[i] == state && g->n[r].op != OP_opening)
                return false;
    for (int i = 0; i < g->nout && state; i++)
        if (g->out[i].node == state)
            return false;
    return state && g->n[state].axes & (g->n[state].axes - 1)
        && !(g->n[state].axes & ~DIM_AXES);
}

/* ---- weights ---- */

/* Whether r is made, element by element, of what a token's inputs are. */
static bool is_of_inputs(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    bool all = op_is(n->op, ELEMENTWISE) && !(n->axes & ~AXIS(AX_I));
    if (n->op == OP_num)
        return true;
    if (n->op == OP_input)
        return !(n->axes & ~AXIS(AX_I)) && !g->in[n->index].ranked;
    for (int i = 0; i < op_info[n->op].arity; i++)
        all &= n->a[i] && is_of_inputs(g, n->a[i]);
    return all;
}

static Ref after(Graph *g, Ref r)
{
    const Node n = { .op = OP_after, .flags = REVERSE };
    return node_copy(g, &n, (Ref[4]){ r, num(g, 0) });
}

/* r, such a number, as the next token has it. */
static Ref of_next(Graph *g, Ref r)
{
    const Node n = g->n[r];
    Ref a[4] = { 0 };
    if (!is_of_tokens(g, r))
        return r;
    if (n.op == OP_input)
        return after(g, r);
    for (int i = 0; i < op_info[n.op].arity; i++)
        a[i] = of_next(g, n.a[i]);
    return node_copy(g, &n, a);
}

/* ---- the plan ---- */

Ref next_opening(const Plan *p, Ref state, Ref behind)
{
    for (Ref r = behind + 1; r < p->g->len; r++)
        for (int k = 0; k < p->nkernels && p->g->n[r].op == OP_opening; k++)
            for (int i = 0; i < p->kernel[k].nnodes; i++)
                if (p->kernel[k].node[i] == r
                    && (!state || opened_state(p->g, r) == state))
                    return r;
    return 0;
}

static bool may_look_ahead(const Plan *p)
{
    const Graph *g = p->g;
    bool all = !plan_is_joint(p) && g->chunk > 1, any = false;
    for (Ref r = 1; r < g->len && all; r++) {
        const Node *n = &g->n[r];
        any |= n->op == OP_opening;
        if (n->op == OP_opening)
            all = is_carried_open(g, r) && is_there_first(g, n->a[1]);
        else if (n->op == OP_after)
            all = is_of_inputs(g, n->a[0]);
    }
    return all && any;
}

static Ref looking_ahead(void *ud, Graph *g, const Node *n, const Ref a[4],
                         const Ref *image)
{
    (void)ud;
    (void)image;
    return n->op != OP_after ? 0
         : node_copy(g, &(Node){ .op = OP_where },
                     (Ref[4]){ after(g, num(g, 1)), of_next(g, a[0]),
                               num(g, 0) });
}

static Ref of_chunk(void *ud, Graph *g, const Node *n, const Ref a[4],
                    const Ref *image)
{
    (void)ud;
    (void)image;
    return n->op == OP_opening ? op2(g, OP_add, a[0], a[1])
         : n->op == OP_after ? delay(g, a[0], a[1], REVERSE) : 0;
}

const Plan *plan_openings(Ctx *c, const Plan *p, bool ahead)
{
    ahead = ahead && may_look_ahead(p);
    return plan_rewritten(c, p, ahead ? looking_ahead : of_chunk, NULL);
}
