/* overwrite.c -- tiles that the role ahead makes of loaded ones, element by
 * element, lie where those lay: each warp writes what it has read itself, and
 * the ring of what is loaded has room for more chunks.
 */
#include "schedule.h"

bool lies_over_loaded(const Schedule *s, int value)
{
    const KValue *v = &s->value[value];
    return v->layout == LAY_TILE && v->alias != NOTHING
        && s->value[v->alias].layout == LAY_TILE;
}

/* Whether nobody else needs the tile as it was loaded. */
static bool is_only_read_by(const Schedule *s, int value, int at)
{
    bool only = true;
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++)
            only &= s->inst[i].in[j] != value || i == at
                 || (s->inst[i].op == K_CLEAR && s->inst[i].nin == 1
                     && s->inst[i].role == KR_AHEAD);
    return only;
}

static bool is_elementwise(const Schedule *s, const KInst *k)
{
    bool all = k->nnodes > 0;
    for (int i = 0; i < k->nnodes; i++) {
        const Node *n = &s->g->n[k->node[i]];
        all &= op_info[n->op].traits & ELEMENTWISE || op_is(n->op, PAIRS);
    }
    return all;
}

static bool is_left_to_roles(const Schedule *s, int value)
{
    bool all = true;
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++)
            all &= s->inst[i].in[j] != value || has_matrices(s->inst[i].role);
    return all;
}

static bool may_lie_over(const Schedule *s, int at, int to, int from)
{
    const KValue *v = &s->value[to], *u = &s->value[from];
    int loaded = value_writer(s, from);
    bool alike = v->layout == LAY_TILE && u->layout == LAY_TILE
              && v->row == u->row && v->col == u->col && v->nrow == u->nrow
              && v->ncol == u->ncol && v->element == u->element
              && v->row == AX_I && v->col == s->inst[at].col;
    return alike && from < to && u->alias == NOTHING && v->alias == NOTHING
        && loaded != NOTHING && s->inst[loaded].op == K_LOAD
        && is_only_read_by(s, from, at) && is_left_to_roles(s, to);
}

static bool is_read_by_matrix(const Schedule *s, int value)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++)
            any |= s->inst[i].in[j] == value && s->inst[i].role == KR_MATRIX;
    return any;
}

/* Whether the role of matrices waits for what the role ahead leaves in a place
 * of its own behind the instruction: it is told of the loaded tile by who loads
 * it, not of what becomes of that. */
static bool is_told_of_later(const Schedule *s, int at)
{
    bool any = false;
    for (int i = at + 1; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nout && s->inst[i].role == KR_AHEAD; j++)
            any |= s->value[s->inst[i].out[j]].layout == LAY_TILE
                && s->value[s->inst[i].out[j]].col == AX_J
                && is_read_by_matrix(s, s->inst[i].out[j]);
    return any;
}

static bool has_alias(const Schedule *s, int value)
{
    bool any = false;
    for (int v = 0; v < s->nvalues; v++)
        any |= s->value[v].alias == value;
    return any;
}

/* The role of matrices finds such tiles with what else is made ahead, behind
 * them: lean iterations make nothing else. Of loads that share a ring the next
 * would be told of by the wrong one. Requires the order of instructions; values
 * have no buffers yet. */
void schedule_overwrite(Schedule *s)
{
    bool may = s->row_axis && s->ahead && s->interleave == 1 && !s->may_split
            && !s->rings && s->target->form[FORM_COPY]->waited;
    for (int i = 0; i < s->ninsts && may; i++) {
        const KInst *k = &s->inst[i];
        if (k->op != K_MAP || k->role != KR_AHEAD || !is_elementwise(s, k)
            || !is_told_of_later(s, i))
            continue;
        for (int o = 0; o < k->nout; o++)
            for (int j = 0; j < k->nin; j++)
                if (may_lie_over(s, i, k->out[o], k->in[j])
                    && !has_alias(s, k->in[j]))
                    s->value[k->out[o]].alias = k->in[j];
    }
}
