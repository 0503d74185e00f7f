/* lower.c -- a kernel of a plan as it is cut: what it has, what it leaves, and
 * what that takes.
 */
#include "lower.h"
#include "../../compiler/schedule/schedule.h"

#include <stdio.h>

/* ---- what a kernel has ---- */

static bool lists(const Kernel *k, Ref r)
{
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i] == r)
            return true;
    return false;
}

static bool had_before(const Lowered *t, Ref r)
{
    for (int i = 0; i < t->at; i++)
        if (lists(&t->p->kernel[i], r))
            return true;
    return false;
}

void lowered_analyse(Lowered *t)
{
    const Plan *p = t->p;

    for (int i = 0; i < t->k->nnodes; i++)
        t->has[t->k->node[i]] = 1;
    for (Ref r = 1; r < t->g->len; r++) {
        t->stored_here[r] = plan_keeps(p, t->at, r);
        t->out->keeps |= t->stored_here[r];
    }
    for (int i = 0; i < t->g->nout; i++) {
        Ref r = t->g->out[i].node;
        t->out_here[i] = t->has[r] && !had_before(t, r);
    }
    find_wide(t, t->wide);
}

Lowered *lowered_new(Ctx *c, const Plan *p, const CudaOptions *o, CudaModule *m,
                     int kernel)
{
    static const char *const kind[] = { "token", "forward", "reverse" };
    Lowered *t = ctx_alloc(c, sizeof *t);
    size_t n = p->g->len;

    *t = (Lowered){ .c = c, .p = p, .k = &p->kernel[kernel], .g = p->g, .o = o,
                    .m = m, .out = &m->kernel[kernel], .at = kernel,
                    .chunk = m->chunk > 1 ? (m->chunk + 15) / 16 * 16 : 1 };
    t->has = ctx_alloc(c, n);
    t->stored_here = ctx_alloc(c, n);
    t->wide = ctx_alloc(c, n);
    snprintf(t->out->name, sizeof t->out->name, "k%d_%s", kernel,
             kind[t->k->kind]);
    t->out->threads = m->threads;
    t->out->walk = t->k->kind == K_TOKEN ? CUDA_CHUNKS : CUDA_SEQUENCES;
    return t;
}

int cuda_rank(const Graph *g)
{
    int most = 1;

    for (int i = 0; i < g->nin; i++)
        most = g->in[i].rank > most ? g->in[i].rank : most;
    for (int i = 0; i < g->nout; i++)
        most = g->out[i].rank > most ? g->out[i].rank : most;
    for (int i = 0; i < g->nst; i++)
        most = g->st[i].rank > most ? g->st[i].rank : most;
    return most;
}

void put_comment(const Lowered *t, Buf *b)
{
    static const char *const kind[] = { "token", "forward", "reverse" };
    size_t line = b->len;

    buf_printf(b, "// %s (%s), %.0f bytes a chunk and head predicted:",
               t->k->name, kind[t->k->kind], t->k->bytes);
    for (int i = 0; i < t->k->nnodes; i++) {
        if (b->len - line > 70) {
            line = b->len;
            buf_printf(b, "\n//");
        }
        buf_printf(b, " %%%u", (unsigned)t->k->node[i]);
    }
    buf_printf(b, "\n");
}

/* ---- what it keeps for others ---- */

static int32_t full_extent(const Lowered *t, Ref r, int ax)
{
    return ax == AX_I || ax == AX_J ? t->chunk : t->ext[r][ax];
}

static DType stored_type(const Lowered *t, Ref r)
{
    return t->stored_narrow[r] ? t->narrow : F32;
}

/* Whether schedules have the axis longer than it is; then all kernels are such.
 */
static bool is_taken_as_longer(const Lowered *t, int ax)
{
    bool any = false;

    for (int i = 0; i < t->p->nkernels; i++) {
        const Schedule *s = t->m->kernel[i].schedule;
        any |= s && !s->why && !s->tokens.threads && is_padded(s, ax);
    }
    return any;
}

int64_t stored_bytes(const Lowered *t, Ref r)
{
    int64_t n = dtype_size(stored_type(t, r));

    for (AxisSet s = t->g->n[r].axes; s; s &= s - 1)
        n *= !is_taken_as_longer(t, lowest(s)) ? full_extent(t, r, lowest(s))
           : cuda_kept_pitch(full_extent(t, r, lowest(s)));
    return (n + 15) / 16 * 16;
}
