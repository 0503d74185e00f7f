/* angle.c -- states that are angles are kept modulo 2 pi. */
#include "affine.h"
#include "plan.h"

/* Whether sin, cos and the state's own sum are all that look at it. */
static bool only_turned(const Graph *s, int state)
{
    uint8_t *angle = ctx_alloc(s->ctx, s->len), *live;
    Ref next = s->st[state].next;

    live = ctx_alloc(s->ctx, s->len);
    graph_live(s, live);
    angle[s->st[state].node] = angle[next] = 1;
    for (Ref r = 1; r < s->len; r++) {
        const Node *n = &s->n[r];
        bool uses = false;
        for (int i = 0; i < 4; i++)
            uses |= n->a[i] && angle[n->a[i]];
        if (!live[r] || !uses || r == next || n->op == OP_sin
            || n->op == OP_cos)
            continue;
        if (n->op != OP_dup && n->op != OP_neg && n->op != OP_select
            && n->op != OP_relabel)
            return false;
        angle[r] = 1;
    }
    for (int i = 0; i < s->nout; i++)
        if (angle[s->out[i].node])
            return false;
    for (int i = 0; i < s->nst; i++)
        if (i != state && angle[s->st[i].next])
            return false;
    return true;
}

void find_angles(Graph *step)
{
    Graph *probe = graph_sized(step, (int32_t[NAXES]){ 0 });
    Universal *u = ctx_alloc(step->ctx, sizeof *u);

    for (int i = 0; i < step->nst; i++) {
        State *s = &step->st[i];
        if (s->rank > 1 || !s->next || !only_turned(step, i)
            || !universal(probe, i, u) || u->form != FORM_SCAN || u->d)
            continue;
        step->line = step->n[s->next].line;
        s->angle = true;
        s->next = op1(step, OP_wrap, s->next);
    }
}
