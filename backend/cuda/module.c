/* module.c -- a plan as a module of kernels: the ways to cut it, of which
 * the cheapest is taken; the source, each kernel as its schedule has it: by
 * roles, or where none has room, or instructions for it, by warps that all do
 * the same.
 */
#include "print.h"
#include "prepare.h"
#include "../../compiler/cost.h"
#include "../../compiler/schedule/opening.h"
#include "../../compiler/eval.h"
#include "../../compiler/transition.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ways to cut a kernel that are tried for room, of a module: a trial takes some
 * milliseconds and 2 MB. */
enum { TRIALS = 1000 };

/* Whether all kernels from the first on have one. */
static bool is_scheduled(const Prepared *y, int first)
{
    for (int i = first; i < y->p->nkernels; i++)
        if (lacks_schedule(y, i))
            return false;
    return true;
}

/* Loads of a kernel over all chunks whose place is free within the item alone:
 * what they bring is late. */
static int count_waiting(const Schedule *s)
{
    int n = 0;

    for (int i = 0; i < s->ninsts && s->kind == K_TOKEN; i++)
        n += s->inst[i].op == K_LOAD && s->value[s->inst[i].out[0]].use;
    return n;
}

/* Seconds of a chunk of a head. wait: cycles of each load that waits. Where
 * blocks are few there are half as many heads as leave half the machine idle.
 */
static double kernel_price(const Lowered *t, int wait)
{
    const CudaKernel *k = t->out;
    const Schedule *s = k->schedule;
    Machine m = *options_machine(t->o);
    GpuWork w = { k->cycles, k->moves, 1, 1,
                  t->p->kernel[t->at].kind != K_TOKEN };

    if (s && !s->why) {
        w.blocks = s->slices;
        w.resident = s->resident;
        w.cycles += wait * count_waiting(s);
    }
    m.walks = t->o->few ? m.units / 4 : m.walks;
    return gpu_seconds(&m, &w);
}

/* Of what heads share a kernel leaves each head's part, which is read again to
 * be added up; but where a block of one kernel over all chunks has these heads
 * one after another. */
static double parts_price(const Lowered *t, const CudaOptions *o)
{
    const Schedule *s = t->out->schedule;
    double bytes = 0;

    for (int i = 0; s && !s->why && i < s->g->nout; i++) {
        bool part = o->sum_out[i]
                 && (s->kind != K_TOKEN || s->slices > 1)
                 && schedule_computes(s, shown_node(s->g, s->g->out[i].node));
        double n = 4 * t->p->g->chunk;
        for (int d = 0; d < s->g->out[i].rank; d++)
            n *= s->g->axis[s->g->out[i].order[d]].size;
        bytes += part ? n : 0;
    }
    return bytes / options_machine(t->o)->bandwidth;
}

/* Of all kernels. */
static double price_of(const Prepared *y, const CudaOptions *o, int wait)
{
    double seconds = 0;

    for (int i = 0; i < y->p->nkernels; i++)
        seconds += kernel_price(y->t[i], wait) + parts_price(y->t[i], o);
    return seconds;
}

/* Whether what solves take is kept by kernels of the way back alone. */
static bool keeps_inverses(const Plan *p)
{
    for (Ref r = 1; r < p->g->len; r++) {
        Ref scores = p->g->n[r].a[0];
        if (p->g->n[r].op == OP_solve && p->stored[scores]
            && p->keeper[scores] < p->split)
            return false;
    }
    return true;
}

/* Scores that are made ahead of a walk only schedules know to keep, as the
 * inverses of those that solves take. */
static bool may_be_ahead(const Prepared *y, Split how)
{
    return is_scheduled(y, 0)
        || (!how.forward && !how.entire && is_scheduled(y, y->p->split)
            && keeps_inverses(y->p));
}

/* Whether a walk forward has a role ahead, which makes its scores. */
static bool has_role_ahead(const Prepared *y)
{
    bool any = false;

    for (int i = 0; i < y->p->split; i++)
        any |= !lacks_schedule(y, i) && y->t[i]->out->schedule->ahead;
    return any;
}

/* ---- walks for their ends ---- */

/* What is known of each node, of a graph with more, of which that is zero. */
static void *of_more(Ctx *c, const void *known, size_t each, Ref n, Ref more)
{
    return known ? memcpy(ctx_alloc(c, more * each), known, n * each) : NULL;
}

/* Beside the kernels that are prepared, one more each that walks and has a
 * schedule: it keeps nothing, and finds what those keep where they do. */
static Lowered *ends_lowered(const Prepared *y, const Prepared *like,
                             int kernel, const int32_t (*ext)[NAXES])
{
    const Lowered *known = like->t[0];
    Ctx *c = known->c;
    Ref n = like->p->g->len, more = y->p->g->len;
    Lowered *t = lowered_new(c, y->p, known->o, y->m, kernel);

    t->ext = ext;
    t->stored_at = of_more(c, known->stored_at, sizeof *t->stored_at, n, more);
    t->stored_later = of_more(c, known->stored_later, 1, n, more);
    t->stored_narrow = of_more(c, known->stored_narrow, 1, n, more);
    t->narrow = known->narrow;
    t->asked = of_more(c, known->asked, 1, n, more);
    lowered_analyse(t);
    t->out->schedule = find_schedule(t, like->ahead, false);
    t->out->tokens = y->m->chunk;
    lowered_price(t);
    return t;
}

static Prepared prepare_ends(Ctx *c, const Prepared *like)
{
    Prepared y = { .ahead = like->ahead, .m = ctx_alloc(c, sizeof *y.m) };
    int own = like->p->nkernels;

    y.p = plan_walks_ends(like->p, &y.of);
    int n = y.p->nkernels - own;
    *y.m = *like->m;
    y.m->kernel = ctx_alloc(c, (size_t)y.p->nkernels * sizeof *y.m->kernel);
    y.t = ctx_alloc(c, (size_t)n * sizeof *y.t);
    const int32_t (*ext)[NAXES] = graph_extents(c, y.p->g);
    for (int i = 0; i < n; i++) {
        y.t[i] = ends_lowered(&y, like, own + i, ext);
        y.of[i] = like->of[y.of[i]];
    }
    y.m->kernel += own;
    return y;
}

/* What the plan's own kernels or those lack; NULL: nothing. */
static const char *ends_lack(Ctx *c, const Prepared *own, const Prepared *ends)
{
    int n = ends->p->nkernels - own->p->nkernels;

    for (int i = 0; i < own->p->nkernels; i++)
        if (lacks_schedule(own, i))
            return ctx_format(c, "%s has no schedule", own->m->kernel[i].name);
    if (!n || ends->p->g->chunk <= 1)
        return "nothing walks matrices of chunks";
    for (int i = 0; i < n; i++)
        if (lacks_schedule(ends, i))
            return ctx_format(c, "%s has no schedule for its ends: %s",
                              ends->m->kernel[i].name,
                              ends->t[i]->out->schedule->why);
    return NULL;
}

/* ---- the cheapest way ---- */

static void take_cheaper(const Prepared *y, const CudaOptions *o, int wait,
                         Prepared *best, double *least)
{
    double price = price_of(y, o, wait);

    if (price < *least) {
        *best = *y;
        *least = price;
    }
}

/* The kernel of all chunks that lacks a schedule for want of room, where it is
 * all that the way back lacks, or the way forward alone; or the first of such;
 * -1: there is another. */
static int find_large(const Prepared *y)
{
    int large = -1, first = plan_is_joint(y->p) ? y->p->split : 0;

    for (int i = y->p->nkernels - 1; i >= first; i--) {
        const Schedule *s = y->t[i]->out->schedule;
        if (!lacks_schedule(y, i))
            continue;
        if (!s || !s->large || s->kind != K_TOKEN)
            return -1;
        large = i;
    }
    return large;
}

static Prepared prepare(Search *search, const Plan *whole, Split how)
{
    int *of;
    how.bare = search->bare;
    const Plan *p = plan_split(whole, how, &of);
    return prepare_as_cut(search, p, of, how.ahead);
}

/* Whether kernels of the plan cut so have as many nodes as those of `cut`. */
static bool keeps_same(const Plan *whole, Split how, const Plan *cut)
{
    int *of;
    const Plan *p = plan_split(whole, how, &of);
    bool same = p->nkernels == cut->nkernels;

    for (int i = 0; i < p->nkernels && same; i++)
        same = p->kernel[i].nnodes == cut->kernel[i].nnodes;
    return same;
}

/* The kernel in two, of all ways to cut it; where none leaves two that have
 * schedules, that whose other half is the least too large. */
static bool prepare_halves(Search *search, int at, Prepared *y)
{
    Prepared best = *y, nearest = *y;
    double least = INFINITY;
    int32_t bytes = INT32_MAX;
    int *of;
    Ref with = 0;
    const Plan *p;

    while ((p = plan_cut(y->p, at, CUT_RESULT, &with, y->of, &of)) != NULL) {
        Prepared x = prepare_as_cut(search, p, of, true);
        bool lacks = lacks_schedule(&x, at);
        if (!lacks && !lacks_schedule(&x, at + 1)) {
            take_cheaper(&x, search->o, 0, &best, &least);
            continue;
        }
        int32_t shared = x.t[at + !lacks]->out->schedule->shared;
        if (lacks != lacks_schedule(&x, at + 1) && shared < bytes) {
            nearest = x;
            bytes = shared;
        }
    }
    bool any = !isinf(least) || bytes < INT32_MAX;
    *y = isinf(least) ? nearest : best;
    return any;
}

/* Kernels that are too large in two, each where it is cheapest. */
static Prepared prepare_parts(Search *search, const Plan *whole, Split how)
{
    enum { MOST = 3 };
    Prepared y = prepare(search, whole, how);

    for (int n = 0, at = 0; n < MOST && (at = find_large(&y)) >= 0; n++)
        if (!prepare_halves(search, at, &y))
            break;
    return y;
}

/* ---- until all has room ---- */

static double strain(const Prepared *y, int kernel)
{
    return lacks_schedule(y, kernel)
         ? schedule_strain(y->t[kernel]->out->schedule) : 0;
}

/* The kernel that lacks the most room; -1: none lacks that alone. */
static int find_strained(const Prepared *y)
{
    int most = -1;

    for (int i = 0; i < y->p->nkernels; i++) {
        double by = strain(y, i);
        if (by > 0 && !isinf(by) && (most < 0 || by > strain(y, most)))
            most = i;
    }
    return most;
}

/* What is left of a kernel in two: how much room the worse half lacks, and how
 * many nodes that has; seconds of all. */
typedef struct Left { double strain, seconds; int nodes; } Left;

static Left left_of(const Prepared *y, int at, const CudaOptions *o)
{
    double first = strain(y, at), second = strain(y, at + 1);
    int worse = second > first ? at + 1 : at;

    return (Left){ fmax(first, second), price_of(y, o, 0),
                   y->p->kernel[worse].nnodes };
}

static bool is_less(const Left *a, const Left *b)
{
    const double alike = 1.05;

    if (a->strain > alike * b->strain || alike * a->strain < b->strain)
        return a->strain < b->strain;
    return !a->strain || a->nodes == b->nodes ? a->seconds < b->seconds
                                              : a->nodes < b->nodes;
}

/* How a kernel is cut, and what is left of it then. */
typedef struct Trial {
    const Search *search;
    const Plan *p;
    int *of, at;
    bool ahead;
    Left left;
} Trial;

static void run_trial(Ctx *own, void *ud)
{
    Trial *t = ud;
    Search search = *t->search;

    search.c = own;
    Prepared x = prepare_as_cut(&search, t->p, t->of, t->ahead);
    t->left = left_of(&x, t->at, search.o);
}

/* In two, of all ways to cut it: the cheapest that leaves room, or that which
 * lacks least; false: none lacks less, or has less that lacks it. */
static bool cut_strained(Search *search, int at, Prepared *y)
{
    Trial least = { .left = { strain(y, at), 0, y->p->kernel[at].nnodes } };

    for (CutHow how = 0; how < NCUTS; how++) {
        Ref with = 0;
        Trial t = { .search = search, .at = at, .ahead = y->ahead };
        while (*search->trials > 0
               && (t.p = plan_cut(y->p, at, how, &with, y->of, &t.of))) {
            --*search->trials;
            ctx_apart(search->c, run_trial, &t);
            if (is_less(&t.left, &least.left))
                least = t;
        }
    }
    if (least.p)
        *y = prepare_as_cut(search, least.p, least.of, y->ahead);
    return least.p;
}

/* Kernels that lack room are cut until they have it. */
static Prepared prepare_room(Search *search, const Plan *whole, Split how)
{
    enum { MOST = 32 };
    Prepared y = prepare(search, whole, how);
    bool cut = false;

    search->roughly = true;
    for (int n = 0, at; n < MOST && (at = find_strained(&y)) >= 0; n++) {
        if (!cut_strained(search, at, &y))
            break;
        cut = true;
    }
    search->roughly = false;
    return cut ? prepare_as_cut(search, y.p, y.of, y.ahead) : y;
}

/* The same of a call in segments, whose own ends are found before, and their
 * transitions where those are no diagonals. */
static double price_in_segments(Ctx *c, const Prepared *y, const CudaOptions *o)
{
    Transition t;
    int walks = transition_of_rows(c, y->p->g, &t) || t.mixes ? 2 : 1;
    Prepared ends = prepare_ends(c, y);
    double seconds = price_of(y, o, 0);

    for (int i = 0; i < ends.p->nkernels - y->p->nkernels; i++)
        seconds += walks * kernel_price(ends.t[i], 0);
    return seconds;
}

/* Forward alone, in segments: with scores that what states become needs made
 * ahead, once for all walks, or without. By 16 heads of 32768 tokens on an H100
 * KDA then takes 0.81 of the time, as prices say, the gated delta rule 1.0 and
 * the delta rule 1.06 where they say 0.91 and 0.89. */
static Prepared prepare_segments(Search *search, const Plan *whole,
                                 Prepared best)
{
    const double worth = 0.85;
    Split how = { .ahead = true, .forward = true, .ends = true };
    Prepared y = prepare(search, whole, how);

    if (y.p->nkernels == best.p->nkernels || !is_scheduled(&y, 0))
        return best;
    return !is_scheduled(&best, 0)
        || price_in_segments(search->c, &y, search->o)
           < worth * price_in_segments(search->c, &best, search->o) ? y : best;
}

/* Forward alone: scores that the walk needs are made ahead, of all chunks, and
 * factors with them, or not, where the walk is too large for a schedule, or
 * that is worth another kernel; where it is too large then, too, what its
 * states do not need is made behind it. Blocks that are few wait for one
 * another: with half the chain kda takes 1.28 ms, not 1.76, of long sequences,
 * and precond_gdn .83, not 1.63, by price .85 of it; mamba3 takes 1.2 times as
 * long so, by price .93.
 * Of many the sums are the same, and what prices say less than that is not
 * there: rwkv7 takes 2.7 ms, not 2.1. What segments share prepare_segments
 * finds. */
static Prepared prepare_forward(Search *search, const Plan *whole,
                                Prepared best)
{
    const double worth = search->o->few ? 0.9 : 0.6;
    bool lacks = !is_scheduled(&best, 0);
    double least = lacks ? INFINITY : worth * price_of(&best, search->o, 0);

    for (int i = 0; i < 6 && (i < 3 || (lacks && isinf(least))); i++) {
        Split how = { .ahead = true, .forward = true, .factors = i % 3,
                      .rest = i > 2 };
        Prepared y = prepare_parts(search, whole, how);
        if (is_scheduled(&y, 0))
            take_cheaper(&y, search->o, 0, &best, &least);
    }
    return best;
}

/* The plan cut so, with factors kept for all kernels behind or for walks alone.
 */
static void take_factors(Search *search, const Plan *whole, Split how, int wait,
                         const Plan *cut, Prepared *best, double *least)
{
    how.bare = search->bare;
    for (how.factors = 1; how.factors < 3; how.factors++) {
        if (keeps_same(whole, how, cut))
            return;
        Prepared y = prepare(search, whole, how);
        if (may_be_ahead(&y, how))
            take_cheaper(&y, search->o, wait, best, least);
    }
}

/* Kernels that are to be printed without a schedule; of a joint plan, those of
 * the way back. */
static int count_lacking(const Prepared *y, bool all)
{
    int n = 0;

    all |= !plan_is_joint(y->p);
    for (int i = all ? 0 : y->p->split; i < y->p->nkernels; i++)
        n += lacks_schedule(y, i);
    return n;
}

/* Each way back, with each way forward; or with walks forward that are entire,
 * of the plan as it is. */
static void take_ways(Search *search, const Plan *whole, bool entire,
                      Prepared *best, double *least)
{
    enum { LATE = 1000 };               /* cycles: the latency of memory */
    const double worth = 0.9;           /* that factors take memory */
    const CudaOptions *o = search->o;
    Prepared kept = *best;              /* with factors */
    double least_kept = INFINITY;
    bool recomputes = whole->nkernels > whole->split + 1;
    bool sums = may_stand_apart(whole->g), walks = !o->few;
    int ways = entire ? 1 : 3;          /* forward */

    for (int i = 0; i < (entire ? 1 : 2) * (recomputes ? 2 : 1); i++) {
        bool alone = i >= (recomputes ? 2 : 1);
        const Plan *p = alone ? plan_keep_states(whole) : whole;
        if (recomputes && i % 2)
            p = plan_join_back(p);
        for (int n = 0; n < ways * (1 + sums + walks); n++) {
            bool walk = n / ways > sums;
            if (walk && !walks)
                continue;
            Split how = { .deferred = true, .ahead = true, .whole = walk,
                          .apart = !walk && n / ways, .forward = n % ways,
                          .solved = n % ways > 1, .entire = entire };
            Prepared y = prepare(search, p, how);
            bool may = may_be_ahead(&y, how)
                    && (!entire || has_role_ahead(&y));
            if (may)
                take_cheaper(&y, o, alone ? LATE : 0, best, least);
            walks &= !walk || may;      /* one too large is, each time */
            if (!walk && (may || !entire))
                take_factors(search, p, how, alone ? LATE : 0, y.p, &kept,
                             &least_kept);
        }
    }
    if (least_kept < worth * *least) {
        *best = kept;
        *least = least_kept;
    }
}

/* The ways to cut the plan's kernels, of which the cheapest is taken: none,
 * where there is but a walk back of blocks enough; with scores made ahead of
 * the walk back, or without; then sums under decays apart from the scores they
 * take, or not; or all of it in the walk, where there are enough of them; a way
 * back of several kernels also anew, in a walk and kernels over all chunks.
 * Forward, scores are made ahead of the walks, or not, and what these solve is
 * kept, or computed again; other than those, states alone are kept, or what the
 * plan says. Each with factors of the walks' products made ahead, too, or not.
 * Or a walk forward is entire, where it has a role ahead and prices tell that
 * apart: a kernel with such a role had simple_gla's training take .92 of the
 * time of 64 heads of 2,048 tokens, mamba2's .84, by price .88 and .91.
 * What is computed again then makes late loads dear: with one of them
 * precond_gdn's last kernel over all chunks takes 1.40 ms, as the plan says
 * 1.09, by equal prices. */
static Prepared prepare_cut(Ctx *c, const Plan *whole, const CudaOptions *o,
                            bool bare, bool drops)
{
    const double whole_walk = 0.95;     /* that prices tell apart */
    Search search = { c, o, graph_extents(c, whole->g), NULL, bare, drops,
                      false, NULL };
    Prepared best = prepare(&search, whole,
                            (Split){ .deferred = o->scheduled });
    double least = price_of(&best, o, 0);
    if (o->scheduled && whole->g->chunk > 1 && !plan_is_joint(best.p)
        && !(o->cut && is_scheduled(&best, 0)))
        best = prepare_forward(&search, whole, best);
    if (o->cut && !plan_is_joint(best.p))
        return prepare_segments(&search, whole, best);
    if (!o->scheduled || best.p->split == best.p->nkernels
        || whole->g->chunk <= 1)
        return best;
    if (!whole->split && !o->few) {
        Prepared y = prepare(&search, whole, (Split){ .none = true });
        if (is_scheduled(&y, 0))
            take_cheaper(&y, o, 0, &best, &least);
    }
    take_ways(&search, whole, false, &best, &least);
    if (is_scheduled(&best, 0)) {
        least *= whole_walk;
        take_ways(&search, whole, true, &best, &least);
    }
    if (is_scheduled(&best, best.p->split))
        return best;
    int lacking = INT_MAX;              /* what has none takes longer than its
                                           price */
    bool sums = may_stand_apart(whole->g);
    int all = sums ? 4 : 2;
    for (int i = 0; i < all && (lacking || i < all / 2); i++) {
        Split how = { .deferred = true, .ahead = true, .walks = i >= all / 2,
                      .apart = sums && i % 2 == 0 };
        Prepared y = prepare_parts(&search, whole, how);
        int n = count_lacking(&y, false);
        if (!may_be_ahead(&y, how) || n > lacking)
            continue;
        least = n < lacking ? INFINITY : least;
        lacking = n;
        take_cheaper(&y, o, 0, &best, &least);
    }
    return best;
}

/* Whether the kernel, which has no roles, keeps scores that a solve takes, or
 * finds them: it knows them alone, and not their inverses. */
static bool passes_scores(const Lowered *t, Ref solve)
{
    Ref scores = t->g->n[solve].a[0];
    return t->stored_here[scores] || (t->has[solve] && !t->has[scores]);
}

/* Whether what lies as inverses between kernels is theirs alone that know
 * them. */
static bool knows_inverses(const Prepared *y)
{
    bool knows = true;
    for (Ref r = 1; r < y->p->g->len && y->ahead; r++) {
        if (!is_system(y->p->g->n[r].op)
            || is_decayed_system(y->p->g->n[r].op)
            || !y->p->stored[y->p->g->n[r].a[0]])
            continue;
        for (int i = 0; i < y->p->nkernels; i++)
            knows &= !lacks_schedule(y, i) || !passes_scores(y->t[i], r);
    }
    return knows;
}

/* Of some ways to cut it, that of which the fewest kernels lack a schedule in
 * the end. */
static void make_room(Ctx *c, const Plan *whole, const CudaOptions *o,
                      int *trials, Prepared *best)
{
    bool joint = plan_is_joint(whole);

    for (int bare = 0; bare <= (joint && may_be_bare(whole->g)); bare++) {
        Search search = { c, o, graph_extents(c, whole->g), NULL, bare,
                          .trials = trials };
        for (int i = 0; i < 4 && *trials > 0 && count_lacking(best, true);
             i++) {
            Split how = { .deferred = true, .ahead = true,
                          .walks = joint && i & 1, .forward = i & 2,
                          .rest = !joint && i & 1 };
            Prepared y = prepare_room(&search, whole, how);
            if (count_lacking(&y, true) < count_lacking(best, true)
                && knows_inverses(&y))
                *best = y;
        }
    }
}

/* Slices of a state have no sums over what they are slices of: those are made
 * behind the walk where it has no schedule otherwise. */
static Prepared prepare_best(Ctx *c, const Plan *whole, const CudaOptions *o,
                             bool drops)
{
    Prepared y = prepare_cut(c, whole, o, false, drops);
    int lacks = count_lacking(&y, false);
    if (!o->scheduled || !lacks || !plan_is_joint(whole)
        || !may_be_bare(whole->g))
        return y;
    Prepared x = prepare_cut(c, whole, o, true, drops);
    return count_lacking(&x, false) < lacks ? x : y;
}

/* Schedules know no ranks: the plan without, rows scaled behind products; or
 * the plan itself. */
static const Plan *plan_apart(Ctx *c, const Plan *whole)
{
    const Plan *apart = plan_scales_out(c, plan_without_ranks(c, whole));

    return apart == whole ? whole : plan_as_printed(c, apart);
}

/* Where that helps them it is the one that is taken. */
static Prepared prepare_apart(Ctx *c, const Plan *whole, const CudaOptions *o,
                              bool drops)
{
    Prepared y = prepare_best(c, whole, o, drops);
    int lacks = count_lacking(&y, false);
    if (!o->scheduled || !lacks)
        return y;
    const Plan *apart = plan_apart(c, whole);
    if (apart == whole)
        return y;
    Prepared x = prepare_best(c, apart, o, drops);
    return count_lacking(&x, false) < lacks ? x : y;
}

/* Parts of a state, or of a constant, are passed as it is. */
static void pass_parts(const Graph *g, CudaOptions *o)
{
    for (int i = 0; i < g->nin; i++) {
        int of = g->in[i].part_of ? g->in[i].part_of - 1 : i;
        o->in[i] = o->in[of];
    }
    for (int i = 0; i < g->nst; i++) {
        int of = g->st[i].part_of ? g->st[i].part_of - 1 : i;
        o->s0[i] = o->s0[of];
        o->s1[i] = o->s1[of];
        o->sum_s1[i] = o->sum_s1[of];
    }
}

/* Or one whose ranks are rows: chunks have fewer tokens then, so that all of
 * its kernels are to come from schedules, those of the way forward, too;
 * `trials`: however they are cut. */
static bool prepare_rows(Ctx *c, const Plan *whole, const CudaOptions *o,
                         int *trials, Prepared *y)
{
    CudaOptions *own = ctx_alloc(c, sizeof *own);
    *own = *o;
    for (int chunk = TILE_ROWS; chunk >= LEAST_ROWS; chunk /= 2) {
        const Plan *rows = plan_ranks_as_rows(c, whole, chunk);
        pass_parts(rows->g, own);
        for (int joined = 0; rows != whole
             && joined < 1 + plan_is_joint(whole); joined++) {
            const Plan *p = joined ? plan_join_back(rows) : rows;
            p = plan_as_printed(c, p);
            *y = prepare_best(c, p, own, false);
            if (trials)
                make_room(c, p, own, trials, y);
            if (!count_lacking(y, true))
                return true;
        }
    }
    return false;
}

/* ---- the module ---- */

/* That by which the kernel is printed. */
static const Schedule *schedule_of(const Lowered *t)
{
    return t->plain ? t->plain : t->out->schedule;
}

/* That of single tokens; or NULL. */
static const Schedule *tokens_of(const Prepared *y)
{
    const Schedule *s = schedule_of(y->t[0]);

    return s->tokens.threads && !has_rows(s) ? s : NULL;
}

/* What lacks a schedule by roles has one by warps that all do the same; the
 * threads of those. */
static void find_plains(const Prepared *y)
{
    for (int i = 0; i < y->p->nkernels; i++) {
        CudaKernel *k = &y->m->kernel[i];
        if (lacks_schedule(y, i)) {
            y->t[i]->plain = find_plain(y->t[i]);
            k->moves += 2.0 * (double)y->t[i]->plain->spill;
        }
        const Schedule *s = schedule_of(y->t[i]);
        if (s->tokens.threads)
            y->m->threads = s->tokens.threads;
    }
}

/* What is kept, of how many bits and where, and how states lie; schedules keep
 * some of it as others do not. */
static uint64_t layout_of(Ctx *c, const Prepared *y)
{
    Buf text = { .ctx = c };

    plan_print(y->p, &text);
    uint64_t h = hash_bytes(0, text.s, text.len);
    h = hash_bytes(h, &y->m->kept, sizeof y->m->kept);
    h = hash_bytes(h, y->t[0]->stored_narrow, y->p->g->len);
    h = hash_bytes(h, y->t[0]->stored_later, y->p->g->len);
    h = hash_bytes(h, y->t[0]->stored_at,
                   y->p->g->len * sizeof *y->t[0]->stored_at);
    for (int i = 0; i < y->p->nkernels; i++)
        h = 31 * h + lacks_schedule(y, i);
    return h;
}

static void print_kernel(Lowered *t, Buf *to, Buf *schedules)
{
    const Schedule *asked = t->out->schedule, *s = schedule_of(t);

    buf_printf(schedules, "\n# %s\n", t->out->name);
    if (asked && asked->why) {
        schedule_print(asked, schedules);
        buf_printf(to, "// no schedule by roles: %s\n", asked->why);
    }
    schedule_print(s, schedules);
    put_comment(t, to);
    const StoredPlaces stored = { { t->m->kept, t->m->later },
                                  t->stored_at, t->stored_later };
    if (s->tokens.threads)
        tokens_text(s, t->o, &stored, t->out, to);
    else
        schedule_text(s, t->o, &stored, t->out, to);
}

/* Whether some schedule takes an axis as longer. */
static bool is_padded_plan(const Prepared *y)
{
    bool any = false;

    for (int i = 0; i < y->p->nkernels; i++)
        any |= !lacks_schedule(y, i) && has_padding(y->t[i]->out->schedule);
    return any;
}

/* What lacks schedules for want of room has them if it is cut further. */
static Prepared prepare_all(Ctx *c, const Plan *whole, const CudaOptions *o)
{
    Prepared y = prepare_apart(c, whole, o, false), by_rows;

    if (o->scheduled && count_lacking(&y, false)
        && prepare_rows(c, whole, o, NULL, &by_rows))
        return by_rows;
    if (o->scheduled && !o->wholly && whole->g->chunk > 1
        && count_lacking(&y, true)) {
        const Plan *apart = plan_apart(c, whole);
        int trials = TRIALS;
        make_room(c, whole, o, &trials, &y);
        if (apart != whole)
            make_room(c, apart, o, &trials, &y);
        if (count_lacking(&y, true)
            && prepare_rows(c, whole, o, &trials, &by_rows))
            return by_rows;
    }
    return count_lacking(&y, true) && is_padded_plan(&y)
         ? prepare_apart(c, whole, o, true) : y;
}

static void put_start(const Prepared *y, int rank, Buf *b)
{
    buf_printf(b, "#define THREADS %d\n#define RANK %d\n"
               "#include \"numbers.cuh\"\n#include \"warp.cuh\"\n"
               "#include \"run.cuh\"\n#include \"tile.cuh\"\n"
               "#include \"products.cuh\"\n"
               "#include \"scans.cuh\"\n"
               "%sextern __shared__ char arena[];\n",
               y->m->threads, rank, tokens_of(y) ? "alignas(16) " : "");
}

/* Another schedule than that which the attempt before had: ptxas may have
 * lacked registers for sums of products that are under way while programs run,
 * or for what a role does. */
static void find_another(const Prepared *y, Lowered *t)
{
    const Schedule *s = t->out->schedule;
    if (!s || s->why || s->tokens.threads)
        return;
    if (s->ordered && !t->waits)
        t->waits = true;
    else
        t->others[t->nothers++] = s;
    s = find_schedule(t, y->ahead, false);
    if (s->why)
        return;
    t->out->schedule = s;
    lowered_price(t);
}

/* Of another attempt. The cut stays as it is. */
static void find_others(const Prepared *y, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < y->t[i]->o->attempt; j++)
            find_another(y, y->t[i]);
}

static void put_kernels(const Prepared *y, int n, Buf *b, Buf *schedules)
{
    for (int i = 0; i < n; i++) {
        CudaKernel *k = &y->m->kernel[i];
        k->text = b->len;
        buf_printf(b, "\n");
        print_kernel(y->t[i], b, schedules);
        k->end = b->len;
    }
    y->m->plan = y->p;
    y->m->nkernels = n;
}

/* The plan as schedules have it best. */
static const Plan *plan_for_schedules(Ctx *c, const Plan *printed,
                                      const CudaOptions *o)
{
    if (o->scheduled && plan_is_joint(printed) && printed->g->chunk)
        printed = plan_scales_of_adjoints(c, plan_zeros_of_inputs(c, printed));
    if (o->scheduled && printed->g->chunk)
        printed = plan_scans_apart(c, printed);
    const Plan *whole = !o->scheduled ? printed : plan_scales_in(c, printed);
    if (o->scheduled && !plan_is_joint(whole))  /* gradients want the terms */
        whole = plan_ramps(c, plan_scales_joined(c, whole));
    if (o->scheduled && o->tile != F32 && whole->g->chunk)
        whole = plan_constants_rounded(c, whole, o->in);
    if (o->scheduled && o->tile == F32 && whole->g->chunk)
        whole = plan_gate_sums_apart(c, whole);
    if (o->scheduled && o->tile == F16 && leaves_float16(whole))
        whole = plan_softmax(c, whole);
    if (o->scheduled && !whole->g->chunk && !plan_is_joint(whole)) {
        const Plan *found = plan_sums_found(c, whole);
        whole = found == whole ? whole : plan_as_printed(c, found);
    }
    return whole;
}

CudaModule *cuda_tiles_if(Ctx *c, const Plan *plan, const CudaOptions *o,
                          Error *why)
{
    const Plan *printed = plan_as_printed(c, plan);
    const Plan *whole = plan_for_schedules(c, plan_openings(c, printed,
                                                            o->scheduled), o);
    Prepared y = prepare_all(c, whole, o);
    if (next_opening(whole, 0, 0) && count_lacking(&y, true)) {
        whole = plan_for_schedules(c, plan_openings(c, printed, false), o);
        y = prepare_all(c, whole, o);
    }
    Prepared own = y;
    Buf b = { .ctx = c }, schedules = { .ctx = c };

    find_plains(&own);
    if (o->ends) {
        y = prepare_ends(c, &own);
        const char *lack = ends_lack(c, &own, &y);
        if (lack) {
            error_set(c, why, 0, NULL, "%s", lack);
            return NULL;
        }
    }
    int kernels = y.p->nkernels - (o->ends ? own.p->nkernels : 0);
    find_others(&y, kernels);
    CudaModule *m = y.m;
    put_start(&y, cuda_rank(whole->g), &b);
    if (o->scheduled)
        plan_print(y.p, &schedules);
    put_kernels(&y, kernels, &b, &schedules);
    m->layout = layout_of(c, &own);
    int n = m->nkernels;
    if (!o->ends)
        emit_shares(c, whole, o, m, &b);    /* of tensors as they are */
    for (int i = 0; i < m->nkernels; i++)
        m->kernel[i].of = i < n ? y.of[i] : plan->nkernels - 1;
    m->source = b.s;
    m->schedules = schedules.s;
    return m;
}

CudaModule *cuda_tiles(Ctx *c, const Plan *plan, const CudaOptions *o)
{
    Error why;
    CudaModule *m = cuda_tiles_if(c, plan, o, &why);

    if (!m)
        ctx_raise(c, &why);
    return m;
}

void cuda_schedule_options(CudaOptions *o)
{
    enum { AMPERE = 80 };
    const char *s = getenv("FLIN_SCHEDULE");

    o->scheduled = o->arch >= AMPERE && (!s || strcmp(s, "0") != 0);
    o->without = s && *s == '-' ? atoi(s + 1) : 0;
}

void cuda_call_options(CudaOptions *o, const Graph *g, const Call *call)
{
    for (int i = 0; i < g->nin; i++)
        o->in[i] = call->in[i].dtype;
    for (int i = 0; i < g->nout; i++) {
        const View *v = &call->out[i];
        o->out[i] = v->dtype;
        o->sum_out[i] = v->data && v->heads && v->heads < call->heads;
    }
    for (int i = 0; i < g->nst; i++) {
        const View *v = &call->s1[i];
        o->s0[i] = call->s0[i].dtype;
        o->s1[i] = v->dtype;
        o->sum_s1[i] = v->data && ((v->heads && v->heads < call->heads)
                                   || (!v->sb && call->nseq > 1));
    }
}
