/* schedule.c -- the passes in order. */
#include "schedule.h"
#include "tails.h"

#include <math.h>
#include <string.h>

static bool has_op(const Schedule *s, KOp op)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        any |= s->inst[i].op == op;
    return any;
}

/* Whether the role ahead carries a state. */
static bool carries_ahead(const Schedule *s)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        any |= s->inst[i].op == K_CARRY && s->inst[i].role == KR_AHEAD;
    return any;
}

/* Whether the role ahead makes tiles of tokens, other than scores. */
static bool has_features(const Schedule *s)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        any |= k->role == KR_AHEAD && k->op == K_MAP && k->row == AX_I
            && k->col >= AX_DIM && k->nout
            && s->value[k->out[0]].layout == LAY_TILE;
    }
    return any;
}

/* Of a row axis: the matrix role has what it needs, but that the role ahead has
 * what ptxas has been seen to make do with, where that leaves the matrix role
 * the least it must have; all else is that role's. */
static void deal_rows_registers(Schedule *s, int all)
{
    enum { MATRIX = 28, AHEAD = 40, EARLY = 24, INVERSE = 16, MOST = 232 };
    int step = s->target->reg_step, live = registers_live(s, KR_MATRIX);
    int ahead = registers_live(s, KR_AHEAD) + has_op(s, K_INVERSE) * INVERSE;
    int left = registers_left(s, KR_AHEAD);
    left = left < MOST_LEFT ? left : MOST_LEFT;
    int early = registers_early(s) ? ahead + registers_early(s) + EARLY : 0;
    ahead = (ahead > left ? ahead : left) + AHEAD;
    ahead = ahead > early ? ahead : early;
    ahead = (ahead + step - 1) / step * step;
    int wide = s->interleave * (s->ahead ? s->ahead : 1);
    int most = (all - wide * ahead) / s->groups / step * step;
    int beside = ROWS_REGS + s->spare;
    int least = (live + beside + step - 1) / step * step;
    beside = beside > MATRIX ? beside : MATRIX;
    int n = (live + beside + step - 1) / step * step;
    most = most > least ? most : least;
    n = n < most ? n : most;
    s->regs[1] = n < MOST ? n : MOST;
    n = (all - s->groups * s->regs[1]) / wide;
    s->regs[2] = (n < MOST ? n : MOST) / step * step;
}

/* What registers there are for roles of matrices: as many more than those that
 * have numbers for a thread of each. */
static void deal_registers(Schedule *s, int all)
{
    enum { LEAST = 64, MUCH = 96, MOST = 232 };
    int live[2];
    for (int i = 0; i < 2; i++) {
        KRole role = i ? KR_AHEAD : KR_MATRIX;
        int fragments = registers_live(s, role);
        int others = registers_left(s, role);
        others = others < MUCH ? others : MUCH;
        live[i] = fragments > others ? fragments : others;
        live[i] = live[i] > LEAST ? live[i] : LEAST;
    }
    int more = (all - s->groups * live[0] - s->ahead * live[1])
             / (s->groups + s->ahead);
    for (int i = 0; i < 2; i++) {
        int n = (live[i] + more) / s->target->reg_step * s->target->reg_step;
        s->regs[1 + i] = n < MOST ? n : MOST;
    }
}

/* Whether a program of vectors has more numbers than few registers hold. */
static bool has_long_vectors(const Schedule *s)
{
    enum { LONG = 16 };
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        any |= s->inst[i].op == K_VECTOR && s->inst[i].nnodes > LONG;
    return any;
}

/* Of a role that is no matrix role. Vectors that are fetched ahead take more
 * than 40: ptxas spills up to 44 bytes of walks of training there, so that they
 * have 56 where two warpgroups leave it; and 4 bytes beside an inverse, whose
 * warpgroup makes do with 8 less. */
enum { MOST_VECTOR_REGS = 56 };
static int few_registers(const Schedule *s, bool rows)
{
    enum { FEW = 40, SOLVES = 48, LEFT = 224 };
    bool room = registers_live(s, KR_MATRIX) + ROWS_REGS + s->spare <= LEFT;
    return s->ahead > 1 && !has_long_vectors(s) ? 32
         : !rows ? s->resident > 1 ? SOLVES : MOST_VECTOR_REGS
         : s->ahead ? has_op(s, K_INVERSE) ? SOLVES : FEW
         : room ? MOST_VECTOR_REGS : FEW;
}

/* Those that no matrix role has been dealt are the others', as far as they use
 * them: of as many a thread of each warpgroup. */
static void deal_rest(Schedule *s, int all)
{
    int rest = all - s->regs[0] - s->groups * s->regs[1]
             - s->ahead * s->interleave * s->regs[2];
    int more = s->regs[0] + rest / s->target->reg_step * s->target->reg_step;
    if (rest > 0 && s->regs[0] < MOST_VECTOR_REGS)
        s->regs[0] = more < MOST_VECTOR_REGS ? more : MOST_VECTOR_REGS;
}

/* A warp each for the roles that are not the matrix role; those make up a
 * warpgroup, whose threads need few registers. */
static void deal_roles(Schedule *s)
{
    bool rows = s->row_axis
             && (s->groups > 1 || s->interleave > 1 || s->ahead > 1);
    int all = 1 + s->groups + s->ahead * s->interleave;
    int few = few_registers(s, rows);
    int threads = all * s->target->group * s->target->warp;
    int each = s->target->regs / s->resident / threads / s->target->reg_step
             * s->target->reg_step;
    for (int i = 0; i < s->ninsts; i++)
        s->warps[s->inst[i].role] = has_matrices(s->inst[i].role)
            ? (uint8_t)(warpgroups_of(s, s->inst[i].role) * s->target->group)
            : 1;
    if (!s->target->form[FORM_DEAL]) {
        each = each < s->target->most_regs ? each : s->target->most_regs;
        s->regs[0] = s->regs[1] = s->regs[2] = each;
        return;
    }
    s->regs[0] = few;
    s->regs[1] = s->groups < 2 ? each < 216 ? each : 216
               : each + (each - few) / s->groups / s->target->reg_step
                 * s->target->reg_step;
    if (s->ahead)
        (s->row_axis ? deal_rows_registers : deal_registers)
            (s, each * all - few);
    deal_rest(s, each * all);
}

static Schedule *attempt_once(Ctx *c, const KernelWish *w,
                              const Schedule *like);

/* Where what is loaded has no room for two slots as a whole, what is wanted
 * first has, and the rest comes while an iteration is at work on that. */
static Schedule *attempt_early(Ctx *c, const KernelWish *w,
                               const Schedule *like, const Schedule *whole)
{
    Schedule early = *like;
    early.early = room_for_early(whole);
    if (like->early || !early.early)
        return NULL;
    Schedule *s = attempt_once(c, w, &early);
    return s->why ? NULL : s;
}

enum { TRIES = 6 };

/* Try number *at of an attempt, in s: it, or another one, where no other try is
 * to follow; else NULL, and *at is the last of those that are of no use. */
static Schedule *try_less(Ctx *c, const KernelWish *w, const Schedule *like,
                          Schedule *s, int *at)
{
    /* ptxas serialises products of which four are under way at once beside an
     * inverse, where there are no more registers than are counted */
    enum { SOLVE_SPARE = 16 };
    int i = *at, less = i < 0 ? TRIES - 1 : i % TRIES;
    *s = *like;
    s->share = less > 0;
    s->rings = less > 1;
    s->direct = less > 2;
    s->leave = less > 3;
    s->sink = less > 4;
    s->narrow = i >= TRIES;
    if (!schedule_select(s, w))
        return s;
    s->ahead = 0;
    if (like->ahead && !schedule_ahead(s, like->ahead)) {
        s->why = s->why ? s->why
                        : "nothing that no carried state goes into";
        return s;
    }
    if (!like->ahead && !schedule_rows_alone(s))
        return s;
    schedule_clear_loaded(s);
    if (s->row_axis) {
        schedule_fetch_vectors(s);
        schedule_carry_in_lanes(s);
    }
    schedule_drop_unread(s);
    if (s->groups > 2 && s->resident > 1) {
        s->why = "one block of four warpgroups is as many as two";
        return s;
    }
    bool solves = has_op(s, K_INVERSE);
    s->interleave = s->row_axis && s->groups == 1
            && (solves || has_features(s)) && !carries_ahead(s)
            ? like->interleave : 1;
    if (s->row_axis && s->ahead == 1 && s->groups > 1 && solves)
        s->spare += SOLVE_SPARE;
    if (s->row_axis) {
        schedule_remake(s);
        schedule_pair(s);
    }
    if (s->row_axis && (s->ahead || walks_alone_forward(s)))
        schedule_rotate(s);
    if (s->ordered) {
        deal_roles(s);
        s->summed = registers_summed(s);
    }
    if ((is_ordered(s, KR_MATRIX) && !schedule_order(s, KR_MATRIX))
        || (is_ordered(s, KR_AHEAD) && !schedule_order(s, KR_AHEAD))) {
        s->why = s->ordered ? "sums of products under way in the registers"
                              " that there are"
               : "products that wait for what is left to the next"
                 " iteration";
        if (!s->ordered || s->narrow)
            return s;
        *at = TRIES - 1;
        return NULL;
    }
    if (s->row_axis)
        schedule_find_again(s);
    schedule_overwrite(s);
    if (s->kind == K_TOKEN && !s->ordered)
        schedule_late(s);
    s->large = true;
    bool fits = schedule_buffers(s);
    if (i < 0 && !fits)
        return s;
    if (i < 0 || !fits)
        return NULL;
    Schedule *early = attempt_early(c, w, like, s);
    if (early)
        return early;
    if (s->row_axis)
        schedule_slim(s);
    schedule_early(s, true);
    deal_roles(s);
    if (registers_fault(s)) {
        schedule_early(s, false);
        deal_roles(s);
    }
    schedule_together(s);
    schedule_shorten(s);
    schedule_mask(s);
    schedule_sync(s);
    schedule_tensor(s);
    schedule_rests(s);
    s->why = schedule_check(s);
    if (s->why && w->fault && !*w->fault && !registers_fault(s))
        *w->fault = s->why;
    if (!s->why || s->narrow)
        return s;
    *at = TRIES - 1;
    return NULL;
}

/* Of the shared memory that there is, what a try would take that did not fit
 * there; 0: that is not why. */
static double excess(const Schedule *s)
{
    return (double)s->shared / s->target->shared;
}

/* Each try takes less shared memory, and then fewer registers; where two
 * walks, or slices, are to be on a multiprocessor there is but one. Of two of
 * other kernels the least is tried first: mostly there is no room for it. Where
 * room is all that is asked, the last alone. What takes far too much at first
 * is tried at its least next: of 1,350 that take a third too much even so
 * none fits in between. */
static Schedule *attempt_once(Ctx *c, const KernelWish *w,
                              const Schedule *like)
{
    const double far = 1.4, least = 1.3;
    KernelWish ahead = *w;              /* of which nobody asks what is wrong */
    Schedule *s = ctx_alloc(c, sizeof *s);
    int tries = like->resident < 2 ? 2 * TRIES
              : like->kind == K_TOKEN && like->slices == 1 ? TRIES : 1;
    int first = w->roughly ? 2 * TRIES - 1 : tries == TRIES ? -1 : 0;

    ahead.fault = NULL;
    for (int i = first; i < tries; i++) {
        bool all = i == 0 && tries > TRIES;
        int last = tries - 1;
        Schedule *found = try_less(c, w, like, s, &i);
        if (found)
            return found;
        if (!all || i > 0 || excess(s) < far)
            continue;
        if (!try_less(c, &ahead, like, s, &last) && excess(s) > least)
            return s;
    }
    return s;
}

/* How little memory it has been made to do with. */
static int shortness(const Schedule *s)
{
    return s->share + s->rings + s->direct + s->leave + s->sink
         + MOST_BUFFERS * s->narrow;
}

/* Whether decays per key are in the graph: products under them are done at
 * once, in parts that have the registers. */
static bool has_decays_per_key(const Graph *g)
{
    bool any = false;
    for (Ref r = 1; r < g->len; r++)
        any |= is_decayed_contraction(g->n[r].op);
    return any;
}

/* Whether products may be under way while the matrix role does what waits for
 * others: in kernels of all chunks, and walks back that no row axis is for. */
static bool may_be_ordered(const Schedule *s)
{
    const KForm *product = s->target->form[FORM_PRODUCT];
    return product->waited && !product->columns && !has_decays_per_key(s->g)
        && (s->kind == K_TOKEN
            || (s->kind == K_REVERSE && !schedule_row_axis(s)));
}

/* Whether that takes no more room, and registers that ptxas finds: of programs
 * that have 96 more beside sums it spills four times as much. A walk has states
 * in registers, too: it is to save what prices tell apart. */
static bool pays_ordered(const Schedule *s, const Schedule *plain)
{
    enum { MORE = 32 };
    double worth = s->kind == K_TOKEN ? 1 : 1.2;
    int taken = s->why ? 0 : registers_taken(s, KR_MATRIX);
    if (s->why || taken > s->regs[1])
        return false;
    return plain->why
        || (shortness(plain) >= shortness(s)
            && taken <= registers_taken(plain, KR_MATRIX) + MORE
            && worth * schedule_cycles(s) <= schedule_cycles(plain));
}

/* Whether roles are dealt alike: what is done early or late is no other way. */
static bool is_dealt_alike(const Schedule *s, const Schedule *t)
{
    return s->row_axis == t->row_axis && s->ahead == t->ahead
        && s->slices == t->slices && s->slice_axis == t->slice_axis
        && s->resident == t->resident && s->interleave == t->interleave
        && s->ordered == t->ordered && s->carries == t->carries
        && !memcmp(s->extent, t->extent, sizeof s->extent);
}

static void pass_over(const KernelWish *w, Schedule *s)
{
    for (int i = 0; i < w->nothers && !s->why; i++)
        if (is_dealt_alike(s, w->others[i])
            || (w->few && s->slices > w->others[i]->slices))
            s->why = "registers, which ptxas has spilled";
}

static Schedule *attempt(Ctx *c, const KernelWish *w, const Schedule *like)
{
    Schedule *plain = attempt_once(c, w, like), ordered = *like, *s;
    pass_over(w, plain);
    if (w->waits || !may_be_ordered(like))
        return plain;
    ordered.ordered = true;
    s = attempt_once(c, w, &ordered);
    pass_over(w, s);
    return pays_ordered(s, plain) ? s : plain;
}

/* Whether states take so many registers that ptxas has been seen to spill. */
static bool is_heavy(const Schedule *s)
{
    enum { MANY = 64 };
    bool heavy = false;
    for (int i = 0; i < s->ninsts; i++)
        heavy |= s->inst[i].op == K_BEGIN && s->inst[i].nout
              && fragment_regs(s, &s->value[s->inst[i].out[0]]) > MANY;
    return heavy;
}

/* What is too large for a block that has whole pieces of a tile: in as few
 * slices as do, of columns that are no such pieces. Each block's stores are by
 * lanes then. */
static Schedule *narrow_attempt(Ctx *c, const KernelWish *w, Schedule *like,
                                Schedule *best)
{
    int axis = schedule_slice_axis(like, SLICE_COLS);
    int32_t size = axis ? like->extent[axis] : 0;
    like->resident = 1;
    for (int n = 2; n * SLICE_COLS <= size && best->why; n++) {
        like->slices = n;
        like->slice_axis = axis;
        if (size % (n * SLICE_COLS) || size / n % TILE_COLS == 0)
            continue;
        Schedule *s = attempt(c, w, like);
        best = s->why ? best : s;
    }
    return best;
}

/* A walk is a chain: many short ones at once fill the machine, two on a
 * multiprocessor hide each other's waits, as small kernels of all chunks do.
 * What does not fit otherwise is cut into as few slices as do. */
static Schedule *best_attempt(Ctx *c, const KernelWish *w, Schedule *like)
{
    int axis = schedule_slice_axis(like, TILE_COLS);
    int most = axis ? like->extent[axis] / TILE_COLS : 1;
    bool walk = like->kind != K_TOKEN;
    Schedule *plain = NULL;
    for (like->resident = 2; like->resident; like->resident--)
        for (int i = 1; i <= most; i++) {
            bool short_walks = walk && (like->resident > 1 || w->few);
            like->slices = short_walks ? most + 1 - i : i;
            like->slice_axis = like->slices > 1 ? axis : 0;
            if (most % like->slices)
                continue;
            Schedule *s = attempt(c, w, like);
            if (!s->why && !is_heavy(s))
                return s;
            if (!plain || (plain->why && (!s->why || s->slices == 1)))
                plain = s;
        }
    return plain->why && plain->large ? narrow_attempt(c, w, like, plain)
                                      : plain;
}

double schedule_strain(const Schedule *s)
{
    enum { CROWDED = 2 };
    double most = s->regs[1], live = registers_live(s, KR_MATRIX);
    double memory = (double)s->shared / s->target->shared;
    if (!s->why || !s->large)
        return s->why ? INFINITY : 0;
    if (s->nbuffers >= MOST_BUFFERS)
        return CROWDED;
    if (memory > 1)
        return memory;
    return most > 0 && registers_fault(s) ? 1 + live / most : INFINITY;
}

/* In as many slices as there may be, of whole pieces of a tile or not. */
static Schedule *attempt_roughly(Ctx *c, const KernelWish *w, Schedule *like)
{
    static const int cols[] = { TILE_COLS, SLICE_COLS };
    Schedule *best = NULL;
    like->resident = 1;
    for (int i = 0; i < 2 && (!best || best->why); i++) {
        int axis = schedule_slice_axis(like, cols[i]);
        int n = axis ? like->extent[axis] / cols[i] : 1;
        if (best && n <= best->slices)
            continue;
        like->slices = n;
        like->slice_axis = n > 1 ? axis : 0;
        Schedule *s = attempt(c, w, like);
        if (!best || schedule_strain(s) < schedule_strain(best))
            best = s;
    }
    return best;
}

/* More warpgroups are to save what prices tell apart: others have fewer
 * registers then, which some spill. But for a walk that has those it needs, and
 * whose states are rows, in the place of one whose are not: retnet takes .38 ms
 * so and .54 as the latter, by price .97 of it. */
static bool is_cheaper(const Schedule *s, const Schedule *than)
{
    bool rows = s->row_axis && !than->row_axis && s->regs[2] >= MOST_LEFT;
    double least = s->ahead > than->ahead && s->ahead > 1 && !rows ? 1.2 : 1;
    return !s->why && (than->why || least * schedule_cycles(s)
                                    < schedule_cycles(than));
}

/* Or with a warpgroup ahead, or two, where that is worth it: of walks forward
 * alone, by machines that deal registers. An A100's gated_deltanet spills with
 * 128 a thread, and takes .96 ms without such a warpgroup, 1.42 with it;
 * simple_gla .70 and .73. */
static Schedule *attempt_ahead(Ctx *c, const KernelWish *w, Schedule *like)
{
    Schedule *best = best_attempt(c, w, like);
    if (like->kind != K_FORWARD || plan_is_joint(w->p) || best->groups < 2
        || !like->target->form[FORM_DEAL])
        return best;
    like->resident = 1;
    like->slices = best->slices;
    like->slice_axis = best->slice_axis;
    /* beside an inverse two warpgroups leave so few registers that ptxas spills
     * some 400 bytes, as it does where vectors are carried by the other role:
     * kda takes 2.10 ms so and 1.29 without, precond_kda 3.0 and 1.64 */
    int first = has_op(best, K_INVERSE);
    for (int i = first; i < (first ? 2 : 2 * MOST_AHEAD); i++) {
        like->ahead = 1 + i / 2;
        like->carries = i % 2;
        Schedule *s = attempt(c, w, like);
        best = is_cheaper(s, best) ? s : best;
    }
    return best;
}

/* As much is done an iteration early, or late, as registers allow. Where those
 * are too few to leave results of training to the next one, ptxas spills 96
 * bytes of mamba2, and none if it has more than are counted. */
static Schedule *attempt_rotated(Ctx *c, const KernelWish *w, Schedule *like)
{
    enum { RESULTS = 2, SPARE = 8 };
    int spare = like->spare, more = plan_is_joint(w->p) ? SPARE : 0;
    Schedule *s = NULL;
    for (like->rotates = RESULTS; like->rotates >= 0; like->rotates--) {
        like->spare = spare + (like->rotates < RESULTS ? more : 0);
        if (!s || s->why)
            s = attempt(c, w, like);
    }
    like->spare = spare;
    return s;
}

/* Whether the kernel leaves a result: of training a walk that does makes its
 * scores, or finds them. */
static bool leaves_results(const KernelWish *w)
{
    bool any = false;
    for (int i = 0; i < w->p->g->nout; i++)
        any |= w->wants_out[i];
    return any;
}

/* Whether the role ahead makes scores of what is loaded. */
static bool makes_scores_ahead(const Schedule *s)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        any |= k->role == KR_AHEAD && k->row == AX_I && k->col == AX_J
            && (k->op == K_PRODUCT || k->op == K_DECAYED);
    }
    return any && !has_features(s);
}

/* With as many warpgroups ahead as are asked for. */
static Schedule *attempt_behind(Ctx *c, const KernelWish *w, Schedule *like)
{
    like->interleave = like->ahead > 1 ? 1 : 2;
    if (plan_is_joint(w->p) && !like->ahead)
        return attempt(c, w, like);
    Schedule *s = attempt_rotated(c, w, like);
    if (s->why && like->interleave > 1) {
        like->interleave = 1;
        s = attempt_rotated(c, w, like);
    }
    return s;
}

/* Or with states in registers as factors: as many rows of them to a block as
 * two warpgroups have; one where blocks are few. Two have what is done ahead
 * then: every other chunk each; where memory is short, or something is carried
 * ahead, half the columns each; or one has it, or none, where all of that is
 * found. Walks of training find it, too, or one warpgroup makes their scores,
 * but no features: beside states that are stored ptxas spills 744 bytes of
 * those of lightning, of two warpgroups 140. */
static Schedule *attempt_rows(Ctx *c, const KernelWish *w, Schedule *like)
{
    int axis = schedule_row_axis(like);
    int most = w->few ? TILE_ROWS : 2 * TILE_ROWS;
    Schedule *best = attempt_ahead(c, w, like);
    bool joint = plan_is_joint(w->p);
    if (like->kind == K_TOKEN || !axis || (like->kind == K_REVERSE && !joint)
        || !like->target->form[FORM_PRODUCT]->packed)
        return best;
    int size = like->extent[axis];
    int ahead = !joint ? MOST_AHEAD
              : like->kind == K_FORWARD && leaves_results(w);
    like->slices = (size + most - 1) / most;
    like->slice_axis = like->slices > 1 ? axis : 0;
    like->row_axis = axis;
    like->resident = 1;
    like->carries = true;
    if (size % (like->slices * TILE_ROWS)
        || schedule_slice_fault(like, axis, like->slices))
        return best;
    for (like->ahead = 0; like->ahead <= ahead; like->ahead++) {
        Schedule *s = attempt_behind(c, w, like);
        bool may = !joint || !like->ahead || makes_scores_ahead(s);
        best = may && is_cheaper(s, best) ? s : best;
    }
    return best;
}

/* A multiprocessor's cycles for a chunk of a head. */
static double head_cycles(const KernelWish *w, const Schedule *s)
{
    double cycles = schedule_cycles(s);
    return w->few ? cycles : cycles * s->slices / s->resident;
}

/* Axes that are no longer than they must be; or so long that two warpgroups
 * share them out, or that they are rows of a state in registers. */
static Schedule *attempt_extents(Ctx *c, const KernelWish *w,
                                 const Schedule *like)
{
    static const int multiples[] = { LEAST_EXTENT, SLICE_COLS, TILE_ROWS };
    Schedule *best = NULL, before = *like;
    for (int i = 0; i < (may_be_longer(like) ? 3 : 1); i++) {
        Schedule *own = ctx_alloc(c, sizeof *own);
        *own = *like;
        schedule_extents(own, multiples[i]);
        if (i && !memcmp(own->extent, before.extent, sizeof own->extent))
            continue;
        before = *own;
        Schedule *s = attempt_rows(c, w, own);
        if (!best || (!s->why && (best->why || head_cycles(w, s)
                                               < head_cycles(w, best))))
            best = s;
    }
    return best;
}

Schedule *schedule_kernel(Ctx *c, const KernelWish *w, const Target *t)
{
    Schedule *s = schedule_new(c, w, t);
    schedule_extents(s, s->g->chunk > 1 ? LEAST_EXTENT : 1);
    if (s->g->chunk <= 1) {
        schedule_tokens(s, w);
        return s;
    }
    s->may_split = w->few && s->kind == K_FORWARD && !plan_is_joint(w->p);
    if (s->g->chunk != TILE_ROWS && s->g->chunk != LEAST_ROWS)
        s->why = "chunks that are not of 64 tokens, or 32";
    else
        s->why = extents_fault(s);
    return s->why ? s : w->roughly ? attempt_roughly(c, w, s)
                                   : attempt_extents(c, w, s);
}
