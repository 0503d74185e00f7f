/* remake.c -- what a program leaves as sums for another of its role, which has
 * pairs of columns for each of theirs, is made where it is found, if it is made
 * of vectors and numbers alone: angles that turn by the same for all tokens.
 */
#include "schedule.h"
#include "try.h"

#include <string.h>

/* Whether it is such a program, of vectors over an axis and of tokens. */
static bool is_of_vectors(const Schedule *s, const KInst *k)
{
    bool all = k->op == K_MAP && has_matrices(k->role) && k->row == AX_I
            && k->nout == 1 && s->value[k->out[0]].layout == LAY_SUMS;
    for (int i = 0; i < k->nin && all; i++) {
        const KValue *v = &s->value[k->in[i]];
        AxisSet axes = s->g->n[v->node].axes;
        all &= (v->layout == LAY_VECTOR || v->layout == LAY_SCALAR
                || v->layout == LAY_GLOBAL) && !(axes & (axes - 1));
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

/* Nobody has the value any more: those behind it move up. */
static void value_remove(Schedule *s, int value)
{
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin; j++)
            k->in[j] -= k->in[j] > value;
        for (int j = 0; j < k->nout; j++)
            k->out[j] -= k->out[j] > value;
    }
    for (int v = 0; v < s->nvalues; v++)
        s->value[v].alias -= s->value[v].alias > value;
    memmove(s->value + value, s->value + value + 1,
            (size_t)(--s->nvalues - value) * sizeof *s->value);
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

/* Requires a row axis, and roles; values have no buffers yet. */
void schedule_remake(Schedule *s)
{
    for (int i = 0; i < s->ninsts && tries("remake"); i++) {
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
