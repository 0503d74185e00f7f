/* lanes.c -- vectors over a state's axis that roles of matrices find: a vector
 * role hands them over, chunk by chunk. It fetches those that lie in memory; it
 * carries those of which the next chunk's is made of inputs and numbers alone.
 */
#include "schedule.h"

#include <string.h>

/* Whether programs alone read it, a vector over a state's axis that lies in
 * memory. */
static bool is_found_vector(const Schedule *s, int value)
{
    const KValue *v = &s->value[value];
    AxisSet axes = s->g->n[v->node].axes;
    bool alone = v->layout == LAY_GLOBAL && axes && !(axes & (axes - 1))
              && !(axes & ~DIM_AXES) && s->g->n[v->node].op != OP_input;
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin + s->inst[i].nout; j++) {
            const KInst *k = &s->inst[i];
            int u = j < k->nin ? k->in[j] : k->out[j - k->nin];
            alone &= u != value || (k->op == K_MAP && k->role == KR_MATRIX
                                    && j < k->nin);
        }
    return alone;
}

/* Whoever carries states in registers would wait for memory once a chunk: a
 * vector role fetches such vectors for it, chunks before. */
void schedule_fetch_vectors(Schedule *s)
{
    int front = 0;
    while (s->inst[front].op == K_BEGIN)
        front++;
    for (int v = 0; v < s->nvalues; v++) {
        if (!is_found_vector(s, v))
            continue;
        KValue *x = &s->value[v];
        x->layout = LAY_VECTOR;
        x->row = (uint8_t)lowest(s->g->n[x->node].axes);
        x->nrow = block_extent(s, x->row);
        KInst k = { .op = K_VECTOR, .role = KR_VECTOR, .row = x->row,
                    .nrow = x->nrow, .ncol = 1, .nnodes = 1, .nout = 1,
                    .index = NOTHING };
        k.node = ctx_alloc(s->c, sizeof *k.node);
        k.node[0] = x->node;
        k.out[0] = (int16_t)v;
        inst_insert(s, front, k);
    }
}

/* ---- vectors that are carried ---- */

/* The instruction of those roles that begins, carries on or ends the vector. */
static int state_inst(const Schedule *s, KOp op, int value)
{
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        bool has = op == K_BEGIN ? has_value(k->out, k->nout, value)
                                 : has_value(k->in, k->nin, value);
        if (k->op == op && has_matrices(k->role) && has)
            return i;
    }
    return NOTHING;
}

/* Whether lanes of a vector role have it as the program that makes the next of
 * the vector finds it: the vector, an input, a number of that role's. */
static bool is_in_reach(const Schedule *s, int value, int vector)
{
    const KValue *v = &s->value[value];
    int from = value_writer(s, value);
    if (v->layout == LAY_SCALAR)
        return from != NOTHING && s->inst[from].op == K_VECTOR
            && s->inst[from].role == KR_VECTOR && !s->inst[from].nrow;
    return value == vector
        || (v->layout == LAY_GLOBAL && s->g->n[v->node].op == OP_input
            && s->g->n[v->node].axes == s->g->n[s->value[vector].node].axes);
}

/* The program that makes the next of the vector, if lanes may have it and
 * programs of matrices alone read the vector beside it; NOTHING: they may not.
 */
static int next_in_lanes(const Schedule *s, int vector)
{
    int carry = state_inst(s, K_CARRY, vector);
    int from = carry == NOTHING ? NOTHING
             : value_writer(s, s->inst[carry].in[0]);
    if (from == NOTHING || s->inst[from].op != K_ACROSS
        || s->stores[s->value[s->inst[carry].in[0]].node])
        return NOTHING;
    for (int i = 0; i < s->inst[from].nin; i++)
        if (!is_in_reach(s, s->inst[from].in[i], vector))
            return NOTHING;
    for (int i = 0; i < s->inst[from].nnodes; i++)
        if (!(op_info[s->g->n[s->inst[from].node[i]].op].traits & ELEMENTWISE))
            return NOTHING;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        bool own = i == from || k->op == K_CARRY || k->op == K_END;
        if (has_value(k->in, k->nin, vector) && !own && k->op != K_MAP)
            return NOTHING;
        if (has_value(k->in, k->nin, s->inst[carry].in[0]) && i != carry)
            return NOTHING;
    }
    return from;
}

/* Inputs are nodes of the program; numbers lanes have. */
static KInst lanes_of(const Schedule *s, const KInst *across, int vector)
{
    KInst k = { .op = K_VECTOR, .role = KR_VECTOR, .row = across->row,
                .nrow = across->nrow, .ncol = 1, .index = NOTHING, .nout = 1 };
    k.out[0] = (int16_t)vector;
    k.node = ctx_alloc(s->c, (size_t)(across->nin + across->nnodes)
                             * sizeof *k.node);
    for (int i = 0; i < across->nin; i++)
        if (s->value[across->in[i]].layout == LAY_GLOBAL)
            k.node[k.nnodes++] = s->value[across->in[i]].node;
    for (int i = 0; i < across->nnodes; i++)
        k.node[k.nnodes++] = across->node[i];
    return k;
}

void schedule_drop_unread(Schedule *s)
{
    for (int v = s->nvalues - 1; v >= 0; v--) {
        int from = value_writer(s, v);
        bool read = s->value[v].layout != LAY_VECTOR
                 && s->value[v].layout != LAY_SCALAR;
        for (int i = 0; i < s->ninsts; i++)
            read |= has_value(s->inst[i].in, s->inst[i].nin, v);
        if (read)
            continue;
        KInst *maker = from == NOTHING ? NULL : &s->inst[from];
        int left = 0;
        for (int j = 0; maker && j < maker->nout; j++)
            if (maker->out[j] != v)
                maker->out[left++] = maker->out[j];
        if (maker)
            maker->nout = (uint8_t)left;
        if (maker && !left && maker->op == K_ACROSS)
            inst_remove(s, from);
        value_remove(s, v);
    }
}

/* Whether the program, and nothing but inputs, makes r. */
static bool is_made_of_inputs(const Schedule *s, const KInst *k, Ref r)
{
    const Node *n = &s->g->n[r];
    bool all = has_node(k, r);
    if (n->op == OP_input || n->op == OP_num)
        return !n->timed;
    for (int i = 0; i < 4; i++)
        all &= !n->a[i]
            || is_made_of_inputs(s, k, shown_node(s->g, n->a[i]));
    return all;
}

static bool is_operand(const Schedule *s, const KInst *k, Ref r)
{
    bool any = false;
    for (int i = 0; i < k->nnodes; i++)
        for (int a = 0; a < 4; a++)
            any |= s->g->n[k->node[i]].a[a]
                && shown_node(s->g, s->g->n[k->node[i]].a[a]) == r;
    return any;
}

/* The program finds r, and no more what that is made of. */
static void find_handed(Schedule *s, KInst *k, Ref r, int value)
{
    int nodes = 0, in = 0;
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] != r)
            k->node[nodes++] = k->node[i];
    k->nnodes = nodes;
    for (int i = 0; i < k->nin; i++)
        if (s->value[k->in[i]].layout != LAY_GLOBAL
            || is_operand(s, k, s->value[k->in[i]].node))
            k->in[in++] = k->in[i];
    k->nin = (uint8_t)in;
    inst_reads(s, k, value);
}

/* What programs of matrices make of inputs as lanes do, these hand over, too:
 * a thread has many entries of it, and few registers. */
static void hand_over_constants(Schedule *s, int lanes, int like)
{
    for (int n = 0; n < s->inst[lanes].nnodes; n++) {
        Ref r = s->inst[lanes].node[n];
        int value = NOTHING;
        for (int i = 0; i < s->ninsts; i++) {
            if (s->inst[i].op != K_MAP || !has_node(&s->inst[i], r)
                || s->g->n[r].op == OP_input
                || !is_made_of_inputs(s, &s->inst[lanes], r))
                continue;
            if (value == NOTHING) {
                KValue v = s->value[like];
                v.node = r;
                value_add(s, v);
                value = s->nvalues - 1;
                inst_writes(s, &s->inst[lanes], value);
            }
            find_handed(s, &s->inst[i], r, value);
        }
    }
}

static void carry_in_lanes(Schedule *s, int vector, int from)
{
    const KInst across = s->inst[from];
    int carry = state_inst(s, K_CARRY, vector), behind = NOTHING;
    int begin = state_inst(s, K_BEGIN, vector);
    int end = state_inst(s, K_END, vector);
    int moved[] = { begin, carry, end };
    for (int i = 0; i < 3; i++) {
        s->inst[moved[i]].role = KR_VECTOR;
        s->inst[moved[i]].nin = s->inst[moved[i]].nout = 0;
    }
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < across.nin; j++)
            if (has_value(s->inst[i].out, s->inst[i].nout, across.in[j]))
                behind = i > behind ? i : behind;
    for (behind++; s->inst[behind].op == K_BEGIN; behind++)
        ;
    inst_remove(s, from);
    inst_insert(s, behind, lanes_of(s, &across, vector));
    hand_over_constants(s, behind, vector);
}

void schedule_carry_in_lanes(Schedule *s)
{
    for (int v = 0; v < s->nvalues; v++) {
        bool begun = s->value[v].layout == LAY_VECTOR
                  && state_inst(s, K_BEGIN, v) != NOTHING
                  && state_inst(s, K_END, v) != NOTHING;
        int from = begun ? next_in_lanes(s, v) : NOTHING;
        if (from != NOTHING)
            carry_in_lanes(s, v, from);
    }
}

bool leaves_carried(const Schedule *s, const KInst *k)
{
    bool any = false;
    for (int i = 0; i < s->ninsts && k->op == K_VECTOR && k->nrow && k->nout;
         i++)
        any |= s->inst[i].op == K_BEGIN && s->inst[i].role == k->role
            && s->g->st[s->inst[i].index].node == s->value[k->out[0]].node;
    return any;
}
