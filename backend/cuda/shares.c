/* shares.c -- results that heads share: kernels that add up what each head
 * has left of them.
 */
#include "lower.h"

#include <stdio.h>

/* Adds up what the heads of a group (of a state: and all sequences, if they
 * have one place) have left in the workspace, in their order. */
static void emit_shared(Ctx *c, const Graph *g, const CudaOptions *o,
                        CudaModule *m, CudaArgKind kind, int index, Buf *to)
{
    CudaKernel *k = &m->kernel[m->nkernels];
    bool out = kind == ARG_OUTPUT;
    DType d = out ? o->out[index] : o->s1[index];
    const uint8_t *order = out ? g->out[index].order : g->st[index].order;
    int rank = out ? g->out[index].rank : g->st[index].rank;
    int64_t size = 1;
    int rows = sum_rows(m->chunk), parts = sum_parts(m->chunk);
    Buf at = { .ctx = c }, b = { .ctx = c };

    k->text = to->len;
    snprintf(k->name, sizeof k->name, "k%d_sum", m->nkernels);
    k->threads = m->threads;
    k->blocks = 1;
    k->walk = CUDA_SUM;
    k->ntensors = 2;
    k->tensor[0] = cuda_arg(kind, index, F32);
    k->part[0] = true;
    k->tensor[1] = cuda_arg(kind, index, d);
    for (int i = rank; i-- > 0; size *= g->axis[order[i]].size)
        buf_printf(&at, " + e / %lld %% %d * a.t[1].sd[%d]", (long long)size,
                   (int)g->axis[order[i]].size, i);
    buf_printf(&b, "// the sum of result %d over those that share it\n"
               "struct Args%d { Run run; Tensor t[2]; };\n"
               "extern \"C\" __global__ void %s(const __grid_constant__"
               " Args%d a)\n{\nconst int group = a.t[1].group / a.t[0].group,"
               " heads = a.run.heads / a.t[1].group;\n", index, m->nkernels,
               k->name, m->nkernels);
    buf_printf(&b, "for (i64 item = blockIdx.x; item < a.run.items; item +="
               " gridDim.x) {\nconst u32 all = (u32)item / (u32)heads;\n"
               "const int head = (int)((u32)item - all * (u32)heads);\n");
    if (out)
        buf_printf(&b, "const i64 slot = all / %d,"
                   " s = find_sequence(a.run, slot, %d);\n"
                   "const Sequence q = sequence(a.run, s);\n"
                   "const i64 at = slot - first_slot(a.run, s, %d);\n"
                   "const i64 from = at * %d + all %% %d * %d;\n"
                   "const i64 n = at < 0 ? 0 : min(q.len - from, (i64)%d);\n"
                   "const i64 row = q.start + from;\n"
                   "for (i64 f = TID; f < n * %lld; f += THREADS) {\n"
                   "const i64 e = f %% %lld, token = row + f / %lld;\n",
                   parts, m->chunk, m->chunk, m->chunk, parts, rows, rows,
                   (long long)size, (long long)size, (long long)size);
    else
        buf_printf(&b, "const i64 s = all;\n"
                   "const i64 end = a.t[1].sb ? s + 1 : a.run.nseq;\n"
                   "for (i64 e = TID; e < %lld; e += THREADS) {\n",
                   (long long)size);
    buf_printf(&b, "float x = 0;\n");
    if (!out)
        buf_printf(&b, "for (i64 y = s; y < end; y++)\n");
    buf_printf(&b, "for (int h = head * group; h < head * group + group;"
               " h++)\nx += ((const float *)a.t[0].p)[%s + h * a.t[0].sh"
               " + e];\n", out ? "q.b * a.t[0].sb + token * a.t[0].st"
                               : "y * a.t[0].sb");
    buf_printf(&b, "put((%s *)a.t[1].p + %s + head * a.t[1].sh%s, x);\n"
               "}\n}\n}\n", ctype_text(d),
               out ? "q.b * a.t[1].sb + token * a.t[1].st"
                   : "s * a.t[1].sb", at.s ? at.s : "");
    source_indent(to, b.s);
    m->nkernels++;
    k->end = to->len;
}

void emit_shares(Ctx *c, const Plan *p, const CudaOptions *o, CudaModule *m,
                 Buf *b)
{
    for (int i = 0; i < p->g->nout; i++)
        if (o->sum_out[i])
            emit_shared(c, p->g, o, m, ARG_OUTPUT, i, b);
    for (int i = 0; i < p->g->nst; i++)
        if (o->sum_s1[i])
            emit_shared(c, p->g, o, m, ARG_NEXT, i, b);
}
