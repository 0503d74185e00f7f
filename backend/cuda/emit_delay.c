/* emit_delay.c -- inputs of the token before.
 *
 * Such a matrix is loaded like the input itself, from one token earlier on.
 * The first row of a sequence is a state; what that state becomes is the
 * input's last row, and comes from memory again.
 */
#include "ahead.h"

bool is_previous(const Emit *e, int state)
{
    const Graph *g = e->g;
    const Node *n = &g->n[g->st[state].next];
    return n->op == OP_last && g->n[n->a[0]].op == OP_input
        && is_matrix(e, n->a[0]);
}

static int state_arg(Emit *e, Ref r, CudaArgKind kind, int state)
{
    return ahead_tensor(e, r, cuda_arg(kind, state, F32));
}

void emit_first_rows(Emit *e, Buf *b)
{
    const Graph *g = e->g;
    int n = 0;
    for (int i = 0; i < e->ntiles; i++) {
        Ref r = e->tile[i].r;
        if (e->tile[i].computed || !is_delayed(e, r))
            continue;
        int axis = tile_axis(e, r);
        if (!n++)
            buf_printf(b, "if (c == 0) {\n");
        buf_printf(b, "first_row<%d>(stage + TILE_%u, a.tensor[%d], seq, "
                   "head, %s, %d, lane);\n", tile_count(e, r), (unsigned)r,
                   state_arg(e, r, ARG_STATE, g->n[g->n[r].a[1]].index),
                   axis == e->row_axis ? "row0" : "0",
                   (int)g->axis[axis].size);
    }
    if (n)
        buf_printf(b, "fence_async();\n}\n");
}

void end_previous(Emit *e)
{
    const Graph *g = e->g;
    for (int i = 0; i < g->nst; i++) {
        if (!(e->k->states >> i & 1) || !is_previous(e, i))
            continue;
        Ref r = g->n[g->st[i].next].a[0];
        if (e->ranks > 1)
            no_place(e, r, "the token before, beside rows that are ranks");
        int to = state_arg(e, r, ARG_NEXT, i);
        int from = state_arg(e, r, ARG_STATE, i);
        int in = ahead_tensor(e, r, cuda_arg(ARG_INPUT, g->n[r].index,
                                          e->o->tile));
        buf_printf(&e->end, "if (%s%s)\n"
                   "NO_UNROLL for (int k = at.thread; k < %d; k += 128)\n"
                   "end_previous(a.tensor[%d], a.tensor[%d], a.tensor[%d], "
                   "where, seq, head, k);\n", ends_here(e),
                   e->joint ? "" : " && threadIdx.x < 256",
                   (int)g->axis[tile_axis(e, r)].size, to, from, in);
    }
}
