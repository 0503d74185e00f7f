/* emit_keep.c -- the states before each chunk, left in memory for the way back
 * by whoever carries them: e->o->kept says where.
 */
#include "ahead.h"

static bool is_kept(const Emit *e, int state)
{
    return e->o->saves && e->o->kept.has[state];
}

static const char *type_of(const Emit *e, int state)
{
    return e->o->kept.narrow[state] ? "unsigned short" : "float";
}

static void place_text(const Emit *e, Buf *b, int state)
{
    buf_printf(b, "(%s *)(kept_chunk(a.kept, where, seq, c, a.tokens, a.heads,"
               " head, %lld) + %lld)", type_of(e, state),
               (long long)e->o->kept.bytes, (long long)e->o->kept.at[state]);
}

/* Before what the state warpgroups wait for: they have nothing else to do. */
void keep_serial(Emit *e, Buf *b)
{
    const Graph *g = e->g;
    for (int i = 0; i < g->nst; i++) {
        if (!(e->serial >> i & 1) || !is_kept(e, i))
            continue;
        if (!(e->packed >> i & 1))
            no_place(e, g->st[i].node, "a state that nobody reads, to be"
                     " stored");
        int cols = lowest(g->st[i].axes & ~AXIS(e->row_axis));
        buf_printf(b, "if (is_kept(c))\nkeep_state<%d>(",
                   (int)g->axis[cols].size);
        place_text(e, b, i);
        buf_printf(b, ", s%d%s, at, row0 + 64 * %s, %d);\n", i,
                   e->o->kept.narrow[i] ? "_packed" : "",
                   e->o->attempt ? "fresh(group)" : "group",
                   (int)g->axis[e->row_axis].size);
    }
}

static void keep_column(Emit *e, Buf *b, int state, int size, const char *x)
{
    buf_printf(b, "NO_UNROLL for (int k = at.thread; k < %d && block == 0 && "
               "is_kept(c)%s;\nk += 128)\nkeep_entry(", size, e->team
               ? " && member == 0" : "");
    place_text(e, b, state);
    buf_printf(b, " + k, %s);\n", x);
}

/* Entries of the last token before the chunk. */
static void keep_previous(Emit *e, Buf *b, int state)
{
    const Graph *g = e->g;
    Ref r = g->n[g->st[state].next].a[0];
    CudaArg from = cuda_arg(ARG_STATE, state, F32);
    CudaArg in = cuda_arg(ARG_INPUT, g->n[r].index, e->o->tile);
    keep_column(e, b, state, (int)g->axis[tile_axis(e, r)].size,
                ctx_format(e->c, "previous_entry(a.tensor[%d], a.tensor[%d], "
                           "where, seq, head, 64 * c - 1, k)",
                           ahead_tensor(e, r, from),
                           ahead_tensor(e, r, in)));
}

/* A thread finds here what it has left there itself. */
void keep_ahead(Emit *e, Buf *b)
{
    for (int i = 0; i < e->nrotations; i++) {
        const Rotation *t = &e->rotation[i];
        int n = (int)e->g->axis[tile_axis(e, t->scan)].size;
        if (is_kept(e, t->state))
            keep_column(e, b, t->state, n, ctx_format(e->c,
                        "load1(scratch + ANGLE_%d + now * %d + 4 * k)",
                        i, 4 * padded(n)));
    }
    for (int i = 0; i < e->nchains; i++) {
        const Chain *c = &e->chain[i];
        int n = (int)e->g->axis[tile_axis(e, c->scan)].size;
        if (is_kept(e, c->state))
            keep_column(e, b, c->state, n, ctx_format(e->c,
                        "load1(scratch + CARRY_%d + 4 * k)", i));
    }
    for (int i = 0; i < e->g->nst; i++)
        if (is_kept(e, i) && e->k->states >> i & 1 && is_previous(e, i))
            keep_previous(e, b, i);
}

void keep_scalar(Emit *e, Buf *b, int state)
{
    if (!is_kept(e, state))
        return;
    buf_printf(b, "if (c >= first && is_kept(c) && block == 0 && lane == 0)\n"
               "keep_entry(");
    place_text(e, b, state);
    buf_printf(b, ", v%u);\n", (unsigned)e->g->st[state].node);
}
