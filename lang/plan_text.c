/* plan_text.c -- what is said of a plan, in the user's names. */
#include <math.h>

#include "../backend/cuda/cuda.h"
#include "../compiler/cost.h"
#include "plan_view.h"

const char *kernel_kind(const Kernel *k)
{
    return k->kind == K_FORWARD ? "forward" : k->kind == K_REVERSE ? "reverse"
                                                                   : "token";
}

static const char *label(const PlanView *w, Ref r)
{
    const Graph *g = w->p->g;
    Buf b = { .ctx = w->ctx };

    for (int i = 0; i < g->nout; i++)
        if (g->out[i].node == r)
            buf_printf(&b, "%s = ", g->out[i].name);
    for (int i = 0; i < g->nst; i++)
        if (g->st[i].next == r)
            buf_printf(&b, "next %s = ", g->st[i].name);
    buf_printf(&b, "%s", w->expr[r]);
    return b.s;
}

/* How many nodes of the plan use each node. */
static int *count_uses(const PlanView *w)
{
    const Graph *g = w->p->g;
    int *uses = ctx_alloc(w->ctx, g->len * sizeof *uses);

    for (Ref r = 1; r < g->len; r++)
        for (int i = 0; i < 4 && first_maker(w, r) < w->p->nkernels; i++)
            uses[g->n[r].a[i]]++;
    return uses;
}

/* A name for what is shown, and for what several nodes use: those of results,
 * else u1, u2 ... */
static void make_names(PlanView *w)
{
    const Graph *g = w->p->g;
    int *uses = count_uses(w), n = 0;

    w->name = ctx_alloc(w->ctx, g->len * sizeof *w->name);
    for (Ref r = 1; r < g->len; r++) {
        for (int i = 0; i < g->nout; i++)
            if (g->out[i].node == r)
                w->name[r] = g->out[i].name;
        for (int i = 0; i < g->nst; i++)
            if (g->st[i].next == r && !w->name[r])
                w->name[r] = ctx_format(w->ctx, "next %s", g->st[i].name);
        bool view = op_is(g->n[r].op, VIEWS);
        if (!w->name[r] && !node_is_leaf(&g->n[r]) && g->n[r].op != OP_state
            && (w->shown[r] || (uses[r] > 1 && !view)))
            w->name[r] = ctx_format(w->ctx, "u%d", ++n);
    }
    w->line = ctx_alloc(w->ctx, g->len * sizeof *w->line);
    w->axes = ctx_alloc(w->ctx, g->len * sizeof *w->axes);
    for (Ref r = 1; r < g->len; r++)
        if (w->name[r] || w->p->stored[r]) {
            w->line[r] = expr_named(g, r, w->name);
            w->axes[r] = axes_text(g, g->n[r].axes);
        }
}

static void make_labels(PlanView *w)
{
    uint32_t len = w->p->g->len;

    w->expr = ctx_alloc(w->ctx, len * sizeof *w->expr);
    w->label = ctx_alloc(w->ctx, len * sizeof *w->label);
    for (Ref r = 1; r < len; r++) {
        w->expr[r] = expr_text(w->p->g, r);
        w->label[r] = label(w, r);
    }
}

bool kernel_loads(const PlanView *w, int k, Ref r)
{
    int op = w->p->g->n[r].op;

    return w->loads[k][r] && (op == OP_input || op == OP_state
                              || !node_is_leaf(&w->p->g->n[r]));
}

double kernel_reads(const PlanView *w, int k)
{
    const Graph *g = w->p->g;
    double bytes = 0;

    for (Ref r = 1; r < g->len; r++)
        if (kernel_loads(w, k, r))
            bytes += tile_bytes(g, w->m, r);
    return bytes / w->span;
}

double kernel_written(const PlanView *w, int k)
{
    const Graph *g = w->p->g;
    double bytes = 0;

    for (Ref r = 1; r < g->len; r++)
        if (kernel_keeps(w, k, r) || kernel_writes(w, k, r))
            bytes += tile_bytes(g, w->m, r);
    return bytes / w->span;
}

/* The last kernel that reads what is stored. */
static int last_reader(const PlanView *w, Ref r)
{
    int last = -1;

    for (int k = 0; k < w->p->nkernels; k++)
        if (w->loads[k][r])
            last = k;
    return last;
}

int first_maker(const PlanView *w, Ref r)
{
    for (int k = 0; k < w->p->nkernels; k++)
        if (w->has[k][r])
            return k;
    return w->p->nkernels;
}

bool kernel_keeps(const PlanView *w, int k, Ref r)
{
    return plan_keeps(w->p, k, r);
}

bool kernel_writes(const PlanView *w, int k, Ref r)
{
    const Graph *g = w->p->g;
    bool result = false;

    for (int i = 0; i < g->nout && !result; i++)
        result = g->out[i].node == r;
    return result && first_maker(w, r) == k;
}

double launched_seconds(const PlanView *w, int i, bool cycles, bool bytes)
{
    const Launched *l = &w->launched->kernel[i];
    GpuWork work = { cycles ? l->cycles : 0, bytes ? l->moves : 0, l->blocks,
                     l->resident, w->p->kernel[i].kind != K_TOKEN };

    return gpu_seconds(w->m, &work);
}

double peak_bytes(const PlanView *w)
{
    double most = 0;

    for (int k = 0; k < w->p->nkernels; k++) {
        double bytes = 0;
        for (Ref r = 1; r < w->p->g->len; r++)
            if (w->p->stored[r] && w->p->keeper[r] <= k
                && last_reader(w, r) >= k)
                bytes += tile_bytes(w->p->g, w->m, r);
        most = bytes > most ? bytes : most;
    }
    return most / w->span;
}

const char *solver_name(const PlanView *w)
{
    static const char *const name[] = { "none", "greedy", "dp", "glpk" };

    return name[w->info.answer.solver];
}

bool recomputed(const PlanView *w, int k, Ref r)
{
    return w->has[k][r] && w->shown[r] && first_maker(w, r) < k;
}

static void text_nodes(const PlanView *w, int k, Buf *out)
{
    const Graph *g = w->p->g;

    for (Ref r = 1; r < g->len; r++) {
        bool kept = plan_keeps(w->p, k, r);
        if (!w->has[k][r] || !(w->shown[r] || kept))
            continue;
        buf_printf(out, "    %s", w->label[r]);
        if (g->n[r].line)
            buf_printf(out, "  @%d", (int)g->n[r].line);
        buf_printf(out, "  [%s]%s%s\n", axes_text(g, g->n[r].axes),
                   kept ? "  stored" : "",
                   recomputed(w, k, r) ? "  recomputed" : "");
    }
}

static const char *gap_text(const PlanView *w)
{
    double gap = answer_gap(&w->info.answer);

    if (w->info.answer.optimal)
        return "proved best of its columns";
    if (gap < 0)
        return "not proved best, gap unknown";
    return ctx_format(w->ctx, "at most %.2g %% dearer than the best of its "
                      "columns", 100 * gap);
}

/* ---- time ---- */

int ahead_groups(const PlanView *w, int i)
{
    const double *s = w->p->kernel[i].spent;
    double cover = fmax(s[R_SERIAL], s[R_LOAD]);

    if (w->m->units == 1 || w->p->kernel[i].kind == K_TOKEN
        || s[R_AHEAD] == 0)
        return 0;
    return 2 * s[R_AHEAD] <= cover ? 1 : s[R_AHEAD] <= cover ? 2 : 3;
}

/* Seconds as nanoseconds, with three figures. */
static const char *ns(const PlanView *w, double seconds)
{
    double x = 1e9 * seconds;

    return ctx_format(w->ctx, "%.*f", x < 10 ? 2 : x < 100 ? 1 : 0, x);
}

static void text_time(const PlanView *w, int i, Buf *out)
{
    static const char *const hides[] = { "",
        "; one warpgroup that runs ahead hides",
        "; two warpgroups that run ahead hide, one would not",
        "; what runs ahead does not hide, a smaller chunk has less of it" };
    const Kernel *k = &w->p->kernel[i];

    if (w->launched) {
        buf_printf(out, "  %s ns: memory %s, instructions %s\n",
                   ns(w, k->seconds / w->span),
                   ns(w, launched_seconds(w, i, false, true) / w->span),
                   ns(w, launched_seconds(w, i, true, false) / w->span));
        return;
    }
    buf_printf(out, "  %s ns: load %s, ahead %s, serial %s%s\n",
               ns(w, k->seconds / w->span),
               ns(w, k->spent[R_LOAD] / w->span),
               ns(w, k->spent[R_AHEAD] / w->span),
               ns(w, k->spent[R_SERIAL] / w->span),
               hides[ahead_groups(w, i)]);
}

static void text_weighed(const PlanView *w, Buf *out)
{
    for (int i = 0; i < CHUNKS_WEIGHED && w->weighed[i].chunk; i++) {
        const Weighed *d = &w->weighed[i];
        buf_printf(out, "%s %d: ", i ? ";" : "chunk sizes weighed:",
                   d->chunk);
        if (isinf(d->seconds))
            buf_printf(out, "no kernel can hold its parts");
        else
            buf_printf(out, "%s ns, %d kernel%s", ns(w, d->seconds),
                       d->kernels, d->kernels > 1 ? "s" : "");
        if (d->held > (double)w->m->shared)
            buf_printf(out, " (as one, a pass would hold %.0f KB of %zu)",
                       d->held / 1024, w->m->shared >> 10);
    }
    if (w->weighed[0].chunk)
        buf_printf(out, "\n");
}

/* ---- all of it ---- */

/* Whether a kernel has in memory what it cannot hold: one without roles may. */
static bool lacks_roles(const PlanView *w)
{
    for (int i = 0; w->launched && i < w->p->nkernels; i++)
        if (!w->launched->kernel[i].roles)
            return true;
    return !w->launched;
}

/* Of a decay of each key that may be 0 what two tokens leave of one another is
 * no quotient of two products: pairs are gone through, key by key. */
static void text_zero_decays(const PlanView *w, Buf *out)
{
    const Graph *g = w->p->g;

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r], *of = &g->n[n->a[0]];
        if (!op_is(n->op, RECURS) || of->op != OP_input
            || !(n->axes & DIM_AXES)
            || !(n->axes & AXIS(AX_I)) || !(n->axes & AXIS(AX_J)))
            continue;
        const char *name = g->in[of->index].name;
        buf_printf(out, "%s may be 0 at any key: pairs of tokens are gone "
                   "through key by key; one that is not is faster\n  as its "
                   "logarithm, exp(x.%s) with %s : log_decay\n", name, name,
                   name);
        return;
    }
}

static void text_head(const PlanView *w, Buf *out)
{
    buf_printf(out, "%s on %s: %s, chunk %d\n", w->p->g->name, w->m->name,
               w->backward ? "forward and backward" : "forward", w->chunk);
    if (w->note)
        buf_printf(out, "token by token: %s\n", w->note);
    buf_printf(out, "%.0f bytes a token and head", w->info.bytes / w->chunk);
    if (!w->note)
        buf_printf(out, "; %.0f with a kernel for each product (%.2f)",
                   w->info.unfused_bytes / w->chunk,
                   w->info.bytes / w->info.unfused_bytes);
    buf_printf(out, "\n%.0f bytes kept between kernels at most\n",
               peak_bytes(w));
    if (w->note)
        return;
    if (w->info.ncolumns)
        buf_printf(out, "%s: %s, %d columns, %.2f s; ", solver_name(w),
                   gap_text(w), w->info.ncolumns, w->seconds);
    else
        buf_printf(out, "one kernel a pass; %s; ",
                   lacks_roles(w)
                   ? "what it cannot hold lies in memory"
                   : "cut into those that it can hold");
    buf_printf(out, "predicted %s ns a token and head",
               ns(w, w->info.seconds / w->chunk));
    if (w->launched)
        buf_printf(out, ", of %d", w->m->walks);
    buf_printf(out, "\n");
    text_weighed(w, out);
    text_zero_decays(w, out);
}

/* What runs a kernel; where it is not wgmma, which limit is why. */
static void text_launched(const PlanView *w, int i, Buf *out)
{
    const Launched *l = &w->launched->kernel[i];

    buf_printf(out, "  %s; ", l->form);
    if (l->blocks > 1)
        buf_printf(out, "%d blocks a head; ", l->blocks);
    buf_printf(out, "%d warps%s%s", l->warps,
               l->roles ? ": " : "", l->roles ? l->roles : "");
    if (l->roles)
        buf_printf(out, "; %d and %d registers", l->regs[0], l->regs[1]);
    buf_printf(out, "; %d bytes shared", l->shared);
    if (l->roles)
        buf_printf(out, " in %d buffers; about %d instructions", l->buffers,
                   l->length);
    if (l->tensor)
        buf_printf(out, "; %d columns of tensor memory", l->tensor);
    buf_printf(out, "\n");
    if (l->why)
        buf_printf(out, "  without wgmma: %s\n", l->why);
}

static void text_kernel(const PlanView *w, int i, Buf *out)
{
    const Kernel *k = &w->p->kernel[i];
    double in = kernel_reads(w, i), all = k->bytes / w->span;

    buf_printf(out, "\nkernel %d: %s (%s), %.0f bytes in, %.0f out, "
               "%.0f flops\n", i + 1, k->name, kernel_kind(k), in,
               all > in ? all - in : 0, k->flops / w->span);
    if (w->launched)
        text_launched(w, i, out);
    text_time(w, i, out);
    buf_printf(out, "  reads");
    for (Ref r = 1; r < w->p->g->len; r++)
        if (kernel_loads(w, i, r))
            buf_printf(out, " %s;", w->expr[r]);
    buf_printf(out, "\n");
    text_nodes(w, i, out);
}

void plan_text(PlanView *w)
{
    Buf *out = &w->text;

    w->text.ctx = w->ctx;
    make_labels(w);
    make_names(w);
    text_head(w, out);
    for (int k = 0; k < w->p->nkernels; k++)
        text_kernel(w, k, out);
    if (w->refused)
        buf_printf(out, "\nnot launched: %s\n", w->refused);
    if (w->launched && !w->note)
        buf_printf(out, "\nfew long sequences: %s\n", w->launched->cutting);
}
