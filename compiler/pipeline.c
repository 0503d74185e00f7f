/* pipeline.c -- from a step to a plan: the passes in order.
 *
 * This table and the calls below it are the compiler from end to end; what a
 * pass does stands at the head of its file. The text of each that has a letter
 * is printed by `flin -d LETTERS`, and what text.c describes can be read back
 * in.
 */
#include "pipeline.h"

#include "grad.h"
#include "powers.h"

const Pass pipeline[NPASSES] = {
    { 'T', "trace", "lang/trace.c", "a definition", "the traced step" },
    { 0, "wrap_angles, mark_sums", "compiler/angle.c", "a whole step",
      "states that are angles modulo 2 pi; which are sums" },
    { 'C', "derive", "compiler/derive.c", "a step, sizes of axes, a chunk",
      "the chunk form" },
    { 0, "keep_chunk_sums, keep_sums", "compiler/angle.c",
      "a chunk graph, or a step, without gradients",
      "what sums lose in rounding, kept beside them" },
    { 'G', "grad", "compiler/grad.c", "either of them",
      "the chunk form joined with its gradient" },
    { 0, "shift_exponentials", "compiler/powers.c", "any of these",
      "exponentials that a sum divides, as large as float32 has them" },
    { 'P', "partition", "compiler/partition.c", "a joint graph, a machine",
      "the plan for training: kernels, and graph and kernels as text" },
    { 'K', "schedule_kernel", "compiler/schedule/schedule.c",
      "a plan's kernel, a GPU",
      "the schedules of its kernels on sm_90a, chunk 64 unless asked" },
    { 0, "compile", "backend/", "a plan, or a schedule",
      "a program of the CPU's, or CUDA C++" },
};

/* ---- graphs ---- */

/* A transpose's gradient is made of that of what it is the transpose of. */
static Graph *backwards(const Graph *step, const Graph *g, bool joint)
{
    Graph *both = grad(g);

    return joint ? both : transpose(step, both);
}

Graph *by_chunks(Graph *step, const int32_t size[NAXES], int chunk, bool joint,
                 const Machine *m)
{
    bool back = joint || step->transposed;
    Graph *g = back ? derive_joint(step, size, chunk)
                    : derive(step, size, chunk);

    if (g && !m->doubles)
        keep_chunk_sums(g);
    if (g)
        g->strict = m->strict;
    if (g && back)
        g = backwards(step, g, joint);
    return g ? shift_exponentials(g) : NULL;
}

Graph *by_tokens(const Graph *step, const int32_t size[NAXES], bool joint)
{
    Graph *g = graph_sized(step, size);

    keep_sums(g);
    if (joint || step->transposed)
        g = backwards(step, g, joint);
    return shift_exponentials(g);
}

/* ---- plans ---- */

/* The rows that a token has where its ranks are solved for one after another; a
 * power of 2. */
static int rows_in_sequence(const Graph *g)
{
    int rows = 1;

    for (Ref r = 1; r < g->len; r++) {
        const Node *n = &g->n[r];
        int ranks = n->flags & LATER && op_is(n->op, MULTIPLIES)
                  ? axis_extent(g, r, lowest(g->n[n->a[0]].axes & ROW_AXES
                                             & ~AXIS(AX_I))) : 1;
        while (rows < ranks)
            rows *= 2;
    }
    return rows;
}

/* Where a GPU has tokens' ranks as rows of a chunk it has fewer tokens. */
static Graph *wished_graph(const PlanWish *w)
{
    Graph *g = by_chunks(w->step, w->size, w->chunk, w->joint, w->m);
    int rows = g && w->larger ? rows_in_sequence(g) : 1;
    int tokens = w->chunk > rows ? w->chunk / rows : 1;

    return rows > 1 ? by_chunks(w->step, w->size, tokens, w->joint, w->m) : g;
}

/* With room for so many times as much. */
static Plan *partition_roomy(const PlanWish *w, PlanTry *t, size_t times)
{
    Machine roomy = *w->m;

    roomy.shared *= times;
    roomy.registers *= times;
    return w->cut ? partition_if(t->g, &roomy, w->effort, &t->info, &t->why)
                  : plan_simple(t->g);
}

/* Whether kernels of so large a plan are found soon. */
static bool is_soon_cut(const Graph *g)
{
    enum { MOST_NODES = 294 };          /* of more the search for cuts takes
                                           minutes, and a gigabyte or two */
    return g->len <= MOST_NODES;
}

/* Whether kernels that are too large are to be cut before chunks are: the usual
 * machine's products are of 64 rows, and of fewer it has slower ones. */
static bool are_cut_first(const PlanWish *w, const Graph *g)
{
    return w->cut && w->chunk == CHUNK_DEFAULT && is_soon_cut(g)
        && w->m->arch == machine_usual_gpu()->arch;
}

/* With room for twice as much, or for more: blocks may share a head, each with
 * columns of its own. Who is to run it says whether that will do. */
static Plan *try_larger(const PlanWish *w, PlanTry *t)
{
    enum { MOST = 8 };                  /* a matrix of 512 by 512 in float32 */
    PlanTry roomy = { .g = t->g };
    Plan *p = NULL;

    if (!w->larger || w->chunk < CHUNK_DEFAULT / 2)
        return NULL;
    for (size_t times = 2; !p && times <= MOST; times *= 2)
        p = partition_roomy(w, &roomy, times);
    if (!p || (!w->larger(t->g->ctx, p, w->m, false)
               && !(are_cut_first(w, t->g)
                    && w->larger(t->g->ctx, p, w->m, true))))
        return NULL;
    t->info = roomy.info;
    return p;
}

/* Whether pairs of a chunk's tokens have numbers along the step's axes: no
 * product makes these, and a token has the more of them the longer its chunk
 * is. */
static bool has_wide_pairs(const Graph *g)
{
    const AxisSet pairs = AXIS(AX_I) | AXIS(AX_J);

    for (Ref r = 1; r < g->len; r++)
        if ((g->n[r].axes & pairs) == pairs && g->n[r].axes & DIM_AXES)
            return true;
    return false;
}

/* Whether the plan has kernels that nothing fast runs there, and one with half
 * the tokens a chunk has none. Of training the usual machine was measured to do
 * better with the usual chunks: there it is the price that says so, of wide
 * pairs. */
static bool half_is_better(const PlanWish *w, PlanTry *t)
{
    const double worth = 1.25;          /* of what only a forecast says */
    bool usual = w->cut && w->m->arch == machine_usual_gpu()->arch;
    PlanWish half = *w;
    PlanTry other;

    if (!w->larger || w->chunk <= CHUNK_LEAST
        || (usual ? !has_wide_pairs(t->g) : w->chunk != CHUNK_DEFAULT)
        || w->larger(t->g->ctx, t->plan, w->m, false))
        return false;
    half.chunk /= 2;
    t->lacks = plan_try(&half, &other) != FITS
            || !w->larger(other.g->ctx, other.plan, w->m, false);
    if (usual)                          /* or half of that half is */
        return other.fit == TOO_LARGE
            || (other.fit == FITS && worth * other.info.seconds
                                     < t->info.seconds / 2);
    return !t->lacks;
}

/* Of so many kernels none has much to do: what is too much had better lie in
 * memory. */
static Plan *of_some_kernels(Plan *p)
{
    enum { MOST_KERNELS = 64 };

    return p && p->nkernels <= MOST_KERNELS ? p : NULL;
}

Fit plan_try(const PlanWish *w, PlanTry *out)
{
    *out = (PlanTry){ .fit = NO_CHUNKS };
    out->g = wished_graph(w);
    if (!out->g)
        return out->fit;
    out->plan = w->cut ? partition_if(out->g, w->m, w->effort, &out->info,
                                      &out->why)
                       : plan_simple(out->g);
    out->plan = of_some_kernels(out->plan);
    bool fits = out->plan;
    if (!fits)
        out->plan = try_larger(w, out);
    if (fits && half_is_better(w, out))
        return out->fit = TOO_LARGE;
    return out->fit = out->plan ? FITS : TOO_LARGE;
}

static bool is_usual(int chunk)
{
    return chunk == CHUNK_DEFAULT || chunk == CHUNK_DEFAULT / 2;
}

int chunk_taken(const PlanWish *w)
{
    PlanWish other = *w;
    PlanTry t;

    other.chunk = w->chunk > CHUNK_DEFAULT ? CHUNK_DEFAULT : CHUNK_DEFAULT / 2;
    return w->larger && w->chunk && !is_usual(w->chunk)
        && plan_try(&other, &t) == FITS
        && w->larger(t.g->ctx, t.plan, w->m, false) ? other.chunk : w->chunk;
}

bool plan_anyhow(const PlanWish *wish, PlanTry *out)
{
    enum { MOST = 16 };
    PlanWish w = *wish;

    for (w.chunk = CHUNK_DEFAULT / 2; w.chunk <= CHUNK_DEFAULT; w.chunk *= 2) {
        PlanTry t = { .g = wished_graph(&w) };
        bool soon = t.g && is_soon_cut(t.g);
        for (size_t n = 1; soon && n <= MOST && !t.plan; n *= 2)
            t.plan = partition_roomy(&w, &t, n);
        if (!t.plan || !w.larger(t.g->ctx, t.plan, w.m, true))
            continue;
        t.fit = FITS;
        *out = t;
        return true;
    }
    return false;
}

bool lacks_kernels(const PlanWish *w, const PlanTry *t)
{
    return w->larger && t->plan && (t->lacks || !is_usual(w->chunk));
}

/* Smaller chunks where the machine cannot hold the parts; and where it never
 * can, one kernel a pass: what is too much lies in memory. Chunks that are
 * smaller than usual are so for who has no kernels for the usual ones, however
 * they are cut. */
static Plan *largest_that_fits(PlanWish *w)
{
    PlanTry t;

    for (; w->chunk && plan_try(w, &t) != NO_CHUNKS; w->chunk /= 2) {
        if (t.fit != FITS && w->chunk >= 2 * CHUNK_LEAST)
            continue;
        t.plan = t.fit == FITS ? t.plan : plan_simple(t.g);
        if (lacks_kernels(w, &t))
            plan_anyhow(w, &t);
        return t.plan;
    }
    return plan_simple(by_tokens(w->step, w->size, w->joint));
}

Plan *plan_make(Graph *step, const int32_t size[NAXES], int chunk, bool joint,
                const Machine *m, PlanJudge *larger)
{
    bool cut = joint || step->transposed;
    PlanWish w = { step, size, chunk, joint, cut, m, FULL, larger };

    w.chunk = chunk_taken(&w);
    return largest_that_fits(&w);
}

Plan *plan_sketch(Graph *step, const int32_t size[NAXES], int chunk,
                  bool joint, const Machine *m)
{
    return largest_that_fits(&(PlanWish){ step, size, chunk, joint, joint, m,
                                          QUICK, NULL });
}
