/* emit_chain.c -- states of one axis, in the ahead warpgroup.
 *
 * What is added is worked out for all tokens of the chunk and written row by
 * row; then a thread a column sums it up in its place. Such a kernel has one
 * ahead warpgroup: a chunk's sums begin where the last one's ended.
 */
#include "ahead.h"

static int size_of(const Emit *e, const Chain *c)
{
    return (int)e->g->axis[tile_axis(e, c->scan)].size;
}

int ahead_tensor(Emit *e, Ref r, CudaArg arg)
{
    CudaKernel *k = e->out;
    if (k->ntensors == CUDA_TENSORS)
        no_place(e, r, "too many arguments in one kernel");
    k->tensor[k->ntensors] = arg;
    return k->ntensors++;
}

const char *ends_here(const Emit *e)
{
    return e->out->blocks == 1 ? "last == chunks_of(where)"
         : "last == chunks_of(where) && fresh(blockIdx.x) % a.blocks == 0";
}

void begin_chains(Emit *e)
{
    for (int i = 0; i < e->nchains; i++) {
        const Chain *c = &e->chain[i];
        CudaArg from = cuda_arg(ARG_STATE, c->state, F32);
        CudaArg to = cuda_arg(ARG_NEXT, c->state, F32);
        int n = size_of(e, c);
        buf_printf(&e->begin, "if (at.thread < %d)\n"
                   "begin_chain(scratch + CARRY_%d, a.tensor[%d], seq, head, "
                   "at.thread, %d);\n", padded(n), i,
                   ahead_tensor(e, c->scan, from), n);
        buf_printf(&e->end, "if (%s && at.thread < %d)\n"
                   "end_chain(scratch + CARRY_%d, a.tensor[%d], seq, head, "
                   "at.thread);\n", ends_here(e), n, i,
                   ahead_tensor(e, c->scan, to));
    }
}

/* The decay's address and how far apart the tokens' are; 1 is added to none. */
static void decay_text(Emit *e, Buf *b, Ref decay)
{
    int at = decay ? publish_one(e, decay, false) : -1;
    if (at < 0)
        buf_printf(b, "0, 0");
    else
        buf_printf(b, "vectors + AT_%s, %d", e->pub[at].name,
                   e->pub[at].token ? 4 : 0);
}

void one_chain(Emit *e, Buf *b, int i)
{
    const Chain *c = &e->chain[i];
    const Node *n = &e->g->n[c->scan];
    int width = padded(size_of(e, c));
    Ref what = strip(e->g, n->a[1]);
    Buf body = { .ctx = e->c };
    Ahead a = { .e = e, .b = &body, .computed = true,
                .line = lane_columns(e, width) };
    buf_printf(b, "/* %%%u, summed up */\n{\n", (unsigned)c->scan);
    ahead_line(&a, b, "UNROLL_EIGHT", what);
    buf_printf(b, "const float x[%d] = { ", a.line);
    for (int el = 0; el < a.line; el++)
        buf_printf(b, "%sv%u_%d", el ? ", " : "", (unsigned)what, el);
    buf_printf(b, " };\nstore_line<%d>(gate_row<%d>(scratch + CHAIN_%d, "
               "i0 + 1) + 4 * k, x);\n}\nwarpgroup_sync();\n"
               "if (at.thread < %d)\n"
               "chain_rows<%d, %d>(scratch + CHAIN_%d, scratch + CARRY_%d,"
               " ", a.line, width, i, width, width,
               n->flags & WRAP ? 1 : 0, i, i);
    decay_text(e, b, n->a[0]);
    buf_printf(b, ", at.thread, rows);\n}\n");
}
