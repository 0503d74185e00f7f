/* emit_turn.c -- angles that grow at one rate a column, in the ahead
 * warpgroups.
 *
 * Token i of a chunk stands at the angle before the chunk and i + 1 rates. So
 * two rows of shared memory are all there is to carry, this chunk's and the
 * next one's, and each ahead warpgroup carries its own.
 */
#include "ahead.h"

#include <stdio.h>

static int columns(const Emit *e, const Turn *t)
{
    return (int)e->g->axis[tile_axis(e, t->scan)].size;
}

static int tensor_arg(Emit *e, Ref r, CudaArg arg)
{
    CudaKernel *k = e->out;
    if (k->ntensors == CUDA_TENSORS)
        no_place(e, r, "too many arguments in one kernel");
    k->tensor[k->ntensors] = arg;
    return k->ntensors++;
}

static void begin_turn(Emit *e, int i)
{
    const Turn *t = &e->turn[i];
    int n = columns(e, t), row = 4 * padded(n);
    CudaArg from = { ARG_STATE, (uint8_t)t->state, F32 };
    CudaArg to = { ARG_NEXT, (uint8_t)t->state, F32 };
    CudaArg rate = { ARG_INPUT, (uint8_t)e->g->n[t->rate].index,
                     (uint8_t)e->o->tile };
    int in = tensor_arg(e, t->scan, from), by = tensor_arg(e, t->rate, rate);
    int out = tensor_arg(e, t->scan, to);
    buf_printf(&e->begin, "if (at.thread < %d)\n"
               "begin_turn(scratch + TURN_%d, %d, a.tensor[%d], a.tensor[%d],"
               " seq, head, at.thread, 64 * c);\n", n, i, row, in, by);
    buf_printf(&e->end, "if (last == chunks && threadIdx.x < 256 && at.thread"
               " < %d)\nend_turn(scratch + TURN_%d, %d, a.tensor[%d], seq, "
               "head, at.thread, now, (int)(where.len - 64ll * c));\n", n, i,
               row, out);
}

void begin_turns(Emit *e)
{
    if (!e->nturns)
        return;
    buf_printf(&e->begin, "u32 now = 0;\n");
    for (int i = 0; i < e->nturns; i++)
        begin_turn(e, i);
    buf_printf(&e->begin, "warpgroup_sync();\n");
}

void advance_turns(Emit *e, Buf *b)
{
    for (int i = 0; i < e->nturns; i++)
        buf_printf(b, "if (at.thread < %d)\n"
                   "advance_turn(scratch + TURN_%d, %d, at.thread, now, 64 * "
                   "AHEADS);\n", columns(e, &e->turn[i]), i,
                   4 * padded(columns(e, &e->turn[i])));
    if (e->nturns)
        buf_printf(b, "now ^= 1;\n");
}

static const Turn *turn_of(Ahead *a, Ref r, int *at)
{
    const Node *n = &a->e->g->n[r];
    if (n->op != OP_dup || !is_turn(a->e, n->a[0]))
        return NULL;
    *at = use_turn(a->e, n->a[0]);
    return &a->e->turn[*at];
}

void turn_pair(Ahead *a, Ref r)
{
    int i;
    const Turn *t = turn_of(a, r, &i);
    if (!t)
        return;
    int row = 4 * padded(columns(a->e, t));
    if (a->scalar || a->line)
        no_place(a->e, r, "a running sum of a rotated matrix");
    buf_printf(a->b, "const float rate%u = load1(scratch + TURN_%d + %d + "
               "2 * k0), from%u = load1(scratch + TURN_%d + now * %d + "
               "2 * k0);\n", (unsigned)r, i, 2 * row, (unsigned)r, i, row);
    for (int h = 0; h < 2; h++)
        buf_printf(a->b, "const float turn%u_%d = k0 < %d ? fmaf(rate%u, "
                   "(float)(i%d + 1), from%u) : 0.f;\n", (unsigned)r, h,
                   2 * columns(a->e, t), (unsigned)r, h, (unsigned)r);
}

void turn_text(Ahead *a, Ref r, int el)
{
    buf_printf(a->b, "turn%u_%d", (unsigned)r, el >> 1);
}
