/* shares.c -- results that heads share: kernels that add up what each head
 * has left of them.
 */
#include "lower.h"

#include <stdio.h>

static CudaKernel *new_sum(CudaModule *m, const Buf *to)
{
    CudaKernel *k = &m->kernel[m->nkernels];

    k->text = to->len;
    snprintf(k->name, sizeof k->name, "k%d_sum", m->nkernels);
    k->threads = m->threads;
    k->blocks = 1;
    k->walk = CUDA_SUM;
    return k;
}

/* What heads have left of the result, and the result; the place of its entry e
 * as text. */
static const char *add_result(Ctx *c, const Graph *g, const CudaOptions *o,
                              CudaKernel *k, CudaArgKind kind, int index,
                              int64_t *size)
{
    bool out = kind == ARG_OUTPUT;
    const uint8_t *order = out ? g->out[index].order : g->st[index].order;
    int rank = out ? g->out[index].rank : g->st[index].rank;
    Buf at = { .ctx = c };

    *size = 1;
    k->tensor[k->ntensors] = cuda_arg(kind, index, F32);
    k->part[k->ntensors++] = true;
    for (int i = rank; i-- > 0; *size *= g->axis[order[i]].size)
        buf_printf(&at, " + e / %lld %% %d * a.t[%d].sd[%d]", (long long)*size,
                   (int)g->axis[order[i]].size, k->ntensors, i);
    k->tensor[k->ntensors++] = cuda_arg(kind, index, out ? o->out[index]
                                                         : o->s1[index]);
    return at.s ? at.s : "";
}

static void begin_sum(const CudaModule *m, const CudaKernel *k, Buf *b)
{
    buf_printf(b, "struct Args%d { Run run; Tensor t[%d]; };\n"
               "extern \"C\" __global__ void %s(const __grid_constant__"
               " Args%d a)\n{\n", m->nkernels, k->ntensors, k->name,
               m->nkernels);
}

static void end_sum(CudaModule *m, CudaKernel *k, Buf *b, Buf *to)
{
    buf_printf(b, "}\n");
    source_indent(to, b->s);
    m->nkernels++;
    k->end = to->len;
}

/* Adds up what the heads of a group have left in the workspace, in their
 * order. */
static void emit_output(Ctx *c, const Graph *g, const CudaOptions *o,
                        CudaModule *m, int index, Buf *to)
{
    CudaKernel *k = new_sum(m, to);
    int64_t size;
    int rows = sum_rows(m->chunk), parts = sum_parts(m->chunk);
    const char *at = add_result(c, g, o, k, ARG_OUTPUT, index, &size);
    Buf b = { .ctx = c };

    buf_printf(&b, "// the sum of result %d over those that share it\n", index);
    begin_sum(m, k, &b);
    buf_printf(&b, "const int group = a.t[1].group / a.t[0].group,"
               " heads = a.run.heads / a.t[1].group;\n"
               "for (i64 item = blockIdx.x; item < a.run.items; item +="
               " gridDim.x) {\nconst u32 all = (u32)item / (u32)heads;\n"
               "const int head = (int)((u32)item - all * (u32)heads);\n"
               "const i64 slot = all / %d,"
               " s = find_sequence(a.run, slot, %d);\n"
               "const Sequence q = sequence(a.run, s);\n"
               "const i64 at = slot - first_slot(a.run, s, %d);\n"
               "const i64 from = at * %d + all %% %d * %d;\n"
               "const i64 n = at < 0 ? 0 : min(q.len - from, (i64)%d);\n"
               "const i64 row = q.start + from;\n"
               "for (i64 f = TID; f < n * %lld; f += THREADS) {\n"
               "const i64 e = f %% %lld, token = row + f / %lld;\n"
               "float x = 0;\n", parts, m->chunk, m->chunk, m->chunk, parts,
               rows, rows, (long long)size, (long long)size, (long long)size);
    buf_printf(&b, "for (int h = head * group; h < head * group + group;"
               " h++)\nx += ((const float *)a.t[0].p)[q.b * a.t[0].sb"
               " + token * a.t[0].st + h * a.t[0].sh + e];\n"
               "put((%s *)a.t[1].p + q.b * a.t[1].sb + token * a.t[1].st"
               " + head * a.t[1].sh%s, x);\n}\n}\n",
               ctype_text((DType)k->tensor[1].dtype), at);
    end_sum(m, k, &b, to);
}

/* The same of a state, of all sequences if they have one place. */
static void emit_state(Ctx *c, const Graph *g, const CudaOptions *o,
                       CudaKernel *k, int index, Buf *b)
{
    int from = k->ntensors, to = from + 1;
    int64_t size;
    const char *at = add_result(c, g, o, k, ARG_NEXT, index, &size);

    buf_printf(b, "{ // of state %d\n"
               "const int group = a.t[%d].group / a.t[%d].group,"
               " heads = a.run.heads / a.t[%d].group;\n"
               "const i64 items = !a.t[%d].p ? 0 : (a.t[%d].sb ? a.run.nseq"
               " : a.run.nseq > 0) * heads;\n"
               "for (i64 item = first; item < items; item += gridDim.x) {\n"
               "if (item < 0)\ncontinue;\n"
               "const u32 s = (u32)item / (u32)heads;\n"
               "const int head = (int)((u32)item - s * (u32)heads);\n"
               "const i64 end = a.t[%d].sb ? s + 1 : a.run.nseq;\n"
               "for (i64 e = TID; e < %lld; e += THREADS) {\n"
               "float x = 0;\nfor (i64 y = s; y < end; y++)\n"
               "for (int h = head * group; h < head * group + group; h++)\n"
               "x += ((const float *)a.t[%d].p)[y * a.t[%d].sb"
               " + h * a.t[%d].sh + e];\n", index, to, from, to, to, to, to,
               (long long)size, from, from, from);
    buf_printf(b, "put((%s *)a.t[%d].p + s * a.t[%d].sb + head * a.t[%d].sh%s,"
               " x);\n}\n}\nfirst -= items;\n}\n", ctype_text(o->s1[index]), to,
               to, to, at);
}

/* Of a few states, from one on: the first that is left. */
static int emit_states(Ctx *c, const Plan *p, const CudaOptions *o,
                       CudaModule *m, int first, Buf *to)
{
    enum { TENSORS = 16 };              /* a kernel's arguments are few */
    CudaKernel *k = new_sum(m, to);
    Buf b = { .ctx = c }, body = { .ctx = c };
    int i = first;

    for (; i < p->g->nst && k->ntensors < TENSORS; i++)
        if (o->sum_s1[i])
            emit_state(c, p->g, o, k, i, &body);
    buf_printf(&b, "// sums of states over those that share them\n");
    begin_sum(m, k, &b);
    buf_printf(&b, "i64 first = blockIdx.x;\n%s", body.s);
    end_sum(m, k, &b, to);
    return i;
}

/* What all of these write are results of their own. */
void emit_shares(Ctx *c, const Plan *p, const CudaOptions *o, CudaModule *m,
                 Buf *b)
{
    for (int i = 0; i < p->g->nout; i++)
        if (o->sum_out[i])
            emit_output(c, p->g, o, m, i, b);
    for (int i = 0; i < p->g->nst;)
        i = o->sum_s1[i] ? emit_states(c, p, o, m, i, b) : i + 1;
}
