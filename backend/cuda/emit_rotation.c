/* emit_rotation.c -- angles that grow at one rate a column, in the ahead
 * warpgroups.
 *
 * Token i of a chunk stands at the angle before the chunk and i + 1 rates. So
 * two rows of shared memory are all there is to carry, this chunk's and the
 * next one's, and each ahead warpgroup carries its own.
 */
#include "ahead.h"

#include <stdio.h>

static int columns(const Emit *e, const Rotation *t)
{
    return (int)e->g->axis[tile_axis(e, t->scan)].size;
}

static void begin_turn(Emit *e, int i)
{
    const Rotation *t = &e->rotation[i];
    int n = columns(e, t), row = 4 * padded(n);
    CudaArg from = cuda_arg(ARG_STATE, t->state, F32);
    CudaArg to = cuda_arg(ARG_NEXT, t->state, F32);
    int bytes, in = ahead_tensor(e, t->scan, from);
    int by = ahead_tensor(e, t->rate, vector_arg(e, t->rate, &bytes));
    int out = ahead_tensor(e, t->scan, to);
    buf_printf(&e->begin, "if (at.thread < %d)\n"
               "begin_turn<%d>(scratch + ANGLE_%d, %d, a.tensor[%d], "
               "a.tensor[%d], seq, head, at.thread, 64 * c);\n", n, bytes, i,
               row, in, by);
    buf_printf(&e->end, "if (%s && threadIdx.x < 256 && at.thread < %d)\n"
               "end_turn(scratch + ANGLE_%d, %d, a.tensor[%d], seq, head, "
               "at.thread, now, where.len - 64 * c);\n", ends_here(e), n, i,
               row, out);
}

void begin_rotations(Emit *e)
{
    if (!e->nrotations)
        return;
    buf_printf(&e->begin, "u32 now = 0;\n");
    for (int i = 0; i < e->nrotations; i++)
        begin_turn(e, i);
    buf_printf(&e->begin, "warpgroup_sync();\n");
}

void advance_rotations(Emit *e, Buf *b)
{
    for (int i = 0; i < e->nrotations; i++)
        buf_printf(b, "if (at.thread < %d)\n"
                   "advance_turn(scratch + ANGLE_%d, %d, at.thread, now, 64 * "
                   "%s)"
                   ";\n", columns(e, &e->rotation[i]), i,
                   4 * padded(columns(e, &e->rotation[i])),
                   e->team ? "1" : "AHEADS");
    if (e->nrotations)
        buf_printf(b, "now ^= 1;\n");
}

/* The angle that r doubles: its columns k and k + 1 are one of them. */
static Ref angle_of(Ahead *a, Ref r)
{
    const Node *n = &a->e->g->n[r];
    Ref x = n->op == OP_dup ? summed(a->e, r) : 0;
    if (x && a->scalar)
        no_place(a->e, r, "a value a column of a rotated matrix");
    if (x && !is_rotation(a->e, x) && !is_chain(a->e, x))
        no_place(a->e, r, "this operation on a matrix");
    return x;
}

void turn_pair(Ahead *a, Ref r)
{
    Emit *e = a->e;
    Ref x = angle_of(a, r);
    unsigned n = r;
    if (!x)
        return;
    int size = (int)e->g->axis[tile_axis(e, x)].size, row = 4 * padded(size);
    bool steady = is_rotation(e, x), later = e->g->n[r].a[0] != x;
    int at = steady ? use_turn(e, x) : use_chain(e, x);
    if (steady && a->line)
        no_place(e, r, "a running sum of a rotated matrix");
    if (steady)
        buf_printf(a->b, "const float rate%u = load1(scratch + ANGLE_%d + %d + "
                   "2 * k0), from%u = load1(scratch + ANGLE_%d + now * %d + "
                   "2 * k0);\n", n, at, 2 * row, n, at, row);
    for (int h = 0; h < ahead_count(a) / 2; h++) {
        int i = a->line ? 0 : h;
        char *k = a->line ? ctx_format(e->c, "(k + %d)", 2 * h)
                          : ctx_string(e->c, "k0");
        buf_printf(a->b, "const float angle%u_%d = ", n, h);
        if (padded(2 * size) > 2 * size)
            buf_printf(a->b, "%s >= %d ? 0.f : ", k, 2 * size);
        if (steady)
            buf_printf(a->b, "fmaf(rate%u, (float)(i%d%s), from%u)", n, i,
                       later ? "" : " + 1", n);
        else
            buf_printf(a->b, "load1(gate_row<%d>(scratch + CHAIN_%d, i%d%s)"
                       " + 2 * %s)", padded(size), at, i,
                       later ? "" : " + 1", k);
        buf_printf(a->b, ";\n");
    }
}

void turn_text(Ahead *a, Ref r, int el)
{
    buf_printf(a->b, "angle%u_%d", (unsigned)r, el >> 1);
}

/* A steady angle is at most 65 half turns: sin and cos of the machine's own
 * take it as it is. */
bool is_rotated(const Ahead *a, const Node *n)
{
    const Graph *g = a->e->g;
    if ((n->op != OP_sin && n->op != OP_cos) || !a->computed)
        return false;
    const Node *wide = &g->n[strip(g, n->a[0])];
    return wide->op == OP_dup && is_rotation(a->e, wide->a[0]);
}
