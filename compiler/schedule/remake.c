/* remake.c -- programs of one role that become one. What a program leaves as
 * sums for another, which has pairs of columns for each of theirs, is made
 * where it is found, if it is made of vectors and numbers alone: angles that
 * turn by the same for all tokens. Programs that make tiles of tiles read these
 * side by side, and tell of what they leave at once.
 */
#include "schedule.h"

#include <string.h>

/* Whether it is such a program, of vectors over an axis and of tokens. */
static bool is_of_vectors(const Schedule *s, const KInst *k)
{
    bool all = k->op == K_MAP && has_matrices(k->role) && k->row == AX_I
            && k->nout == 1 && s->value[k->out[0]].layout == LAY_SUMS;
    for (int i = 0; i < k->nin && all; i++) {
        const KValue *v = &s->value[k->in[i]];
        AxisSet axes = s->g->n[v->node].axes;
        bool found = v->layout == LAY_GLOBAL && !(axes & ~DIM_AXES)
                  && s->g->n[v->node].op == OP_input;
        all &= (v->layout == LAY_VECTOR || v->layout == LAY_SCALAR || found)
            && !(axes & (axes - 1));
    }
    for (int i = 0; i < k->nnodes && all; i++)
        all &= (op_info[s->g->n[k->node[i]].op].traits & ELEMENTWISE) != 0;
    return all;
}

/* The one program that finds the value, for pairs of columns; NOTHING: there is
 * none, or others do. */
static int only_reader(const Schedule *s, int value, int role)
{
    int found = NOTHING;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (!has_value(k->in, k->nin, value))
            continue;
        bool may = found == NOTHING && k->op == K_MAP && k->role == role
                && k->row == AX_I && k->col != s->value[value].col;
        if (!may)
            return NOTHING;
        found = i;
    }
    return found;
}

static void join(Schedule *s, KInst *to, const KInst *from)
{
    int value = from->out[0], n = 0;
    Ref *node = ctx_alloc(s->c, (size_t)(to->nnodes + from->nnodes)
                                * sizeof *node);
    memcpy(node, from->node, (size_t)from->nnodes * sizeof *node);
    memcpy(node + from->nnodes, to->node, (size_t)to->nnodes * sizeof *node);
    to->node = node;
    to->nnodes += from->nnodes;
    for (int i = 0; i < to->nin; i++)
        if (to->in[i] != value)
            to->in[n++] = to->in[i];
    to->nin = (uint8_t)n;
    for (int i = 0; i < from->nin; i++)
        inst_reads(s, to, from->in[i]);
}

static void remake_sums(Schedule *s)
{
    for (int i = 0; i < s->ninsts; i++) {
        KInst made = s->inst[i];
        int to = is_of_vectors(s, &made)
               ? only_reader(s, made.out[0], made.role) : NOTHING;
        if (to == NOTHING || to < i)
            continue;
        join(s, &s->inst[to], &made);
        memmove(s->inst + i, s->inst + i + 1,
                (size_t)(--s->ninsts - i) * sizeof *s->inst);
        value_remove(s, made.out[0]);
        i--;
    }
}

/* ---- tiles of tiles ---- */

/* Whether the program of the role ahead makes tiles of tokens by its own nodes,
 * of tiles, vectors and numbers. */
static bool makes_tiles(const Schedule *s, const KInst *k)
{
    bool all = k->op == K_MAP && k->role == KR_AHEAD && k->row == AX_I
            && k->col >= AX_DIM && k->nout > 0;
    for (int i = 0; i < k->nout && all; i++)
        all &= s->value[k->out[i]].layout == LAY_TILE
            && has_node(k, s->value[k->out[i]].node);
    for (int i = 0; i < k->nin && all; i++) {
        int lay = s->value[k->in[i]].layout;
        all &= lay == LAY_TILE || lay == LAY_VECTOR || lay == LAY_SCALAR;
    }
    for (int i = 0; i < k->nnodes && all; i++)
        all &= (op_info[s->g->n[k->node[i]].op].traits & ELEMENTWISE) != 0;
    return all;
}

static bool has_space_of(const KInst *a, const KInst *b)
{
    return a->row == b->row && a->col == b->col && a->nrow == b->nrow
        && a->ncol == b->ncol;
}

/* Whether the second one, at j, could as well come with the first: nothing
 * between makes what it finds, but loads and what clears their ends. */
static bool may_come_with(const Schedule *s, int i, int j)
{
    const KInst *k = &s->inst[j];
    bool may = makes_tiles(s, &s->inst[i]) && makes_tiles(s, k)
            && has_space_of(&s->inst[i], k)
            && s->inst[i].nout + k->nout <= 2
            && s->inst[i].nin + k->nin < MOST_USES;
    for (int n = i; n < j && may; n++)
        for (int v = 0; v < k->nin; v++)
            may &= !has_value(s->inst[n].out, s->inst[n].nout, k->in[v])
                || s->inst[n].op == K_LOAD || s->inst[n].op == K_VECTOR;
    return may;
}

/* The first comes with the second: nobody between reads what it leaves. */
static bool may_wait(const Schedule *s, int i, int j)
{
    bool may = true;
    for (int n = i + 1; n < j; n++)
        for (int v = 0; v < s->inst[i].nout; v++)
            may &= !has_value(s->inst[n].in, s->inst[n].nin,
                              s->inst[i].out[v]);
    return may;
}

static void add_program(Schedule *s, KInst *to, const KInst *from)
{
    Ref *node = ctx_alloc(s->c, (size_t)(to->nnodes + from->nnodes)
                                * sizeof *node);
    int n = 0;
    for (int i = 0; i < from->nnodes; i++)
        node[n++] = from->node[i];
    for (int i = 0; i < to->nnodes; i++)
        if (!has_node(from, to->node[i]))
            node[n++] = to->node[i];
    to->node = node;
    to->nnodes = n;
    for (int i = 0; i < from->nin; i++)
        inst_reads(s, to, from->in[i]);
    for (int i = 0; i < from->nout; i++)
        to->out[to->nout++] = from->out[i];
}

/* Two warpgroups have their columns in parts: there are registers for both. */
static void join_tiles(Schedule *s)
{
    for (int i = 0; i < s->ninsts && s->ahead * s->interleave > 1; i++)
        for (int j = i + 1; j < s->ninsts; j++) {
            if (!may_come_with(s, i, j) || !may_wait(s, i, j))
                continue;
            const KInst first = s->inst[i];
            add_program(s, &s->inst[j], &first);
            memmove(s->inst + i, s->inst + i + 1,
                    (size_t)(--s->ninsts - i) * sizeof *s->inst);
            i--;
            break;
        }
}

/* Requires a row axis, and roles; values have no buffers yet. */
void schedule_remake(Schedule *s)
{
    remake_sums(s);
    join_tiles(s);
}
