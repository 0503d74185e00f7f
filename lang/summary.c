/* summary.c -- what a run of tokens does to a state, whatever it starts from:
 * v:summary, flin_summary.
 *
 * Both parts are calls of the variant itself: the state that is left of one
 * that begins as zero; and the state that is left of the unit matrix (of ones,
 * where its entries along an axis stay apart) while what is written is zero.
 * Matrices that need one another begin as the rows of one unit matrix. Where
 * each entry goes its own way, one call leaves both: what it does to an entry
 * is a state of the stage's step.
 */
#include <math.h>
#include <string.h>

#include "../compiler/affine.h"
#include "../compiler/mask.h"
#include "bind.h"

enum { ALIGN = 256 };

/* A call in progress. */
typedef struct Summary {
    Ctx *c;
    Variant *v;
    const Args *args;
    const Bound *b;
    Transition t;
    PlanEntry *plan;                    /* of the transition's run */
    Call call;                          /* this run */
} Summary;

/* Where the inputs' axis nu would have to be another's, too. */
static void check_renamed(Ctx *c, const Graph *step, const Transition *t)
{
    for (Ref r = 1; r < step->len; r++) {
        const Node *n = &step->n[r];
        bool renames = op_has(n->op, TO_AXIS);
        if (renames && (n->index == t->nu || n->over >> t->nu & 1))
            fail(c, n->line, "summary: axis '%s' is another's, too, in %s: the"
                 " transition is found along it alone",
                 step->axis[t->nu].name, expr_text((Graph *)step, r));
    }
}

/* Of a stage's step whose states are known entry by entry. */
static void by_entries(const Graph *step, Transition *t)
{
    *t = (Transition){ .carry = step->carry, .of = step->stage, .n = 1,
                       .state = __builtin_ctzll(step->stage),
                       .moved = step->nst - 1 };
}

static const char *find_states(Ctx *c, const Graph *step, Transition *t)
{
    Strata all = { .n = 0 };

    if (step->stage)
        return transition_of(c, step, step->stage, t);
    if (step->nst > 1)
        strata(graph_copy(c, step), &all);
    return all.n == 1 ? transition_of(c, step, all.of[0], t)
                      : transition_find(c, step, t);
}

static const char *stateless(const Graph *step)
{
    return step->layer ? "a layer has its variants' states"
         : step->mask && step->mask->way[1] ? "a mask of both directions has "
                                              "no state to carry on"
         : step->mask ? "a mask of mode \"quadratic\" has no state" : NULL;
}

const char *stages_of(Ctx *c, const Graph *step, Stages *all)
{
    const char *why = stateless(step);

    return why ? why : stages_find(c, step, all);
}

void find_transition(Ctx *c, const Graph *step, Transition *t)
{
    Stages all;
    const char *help = NULL, *why = stateless(step);

    if (step->stage && step->carry <= CARRY_MAX) {
        by_entries(step, t);
        return;
    }
    if (!why)
        why = find_states(c, step, t);
    if (why && !stages_of(c, step, &all))
        help = all.n == 1 ? "v:stage(1):summary finds it"
             : ctx_format(c, "v:stage(1) to v:stage(%d): its states are found "
                          "one after another", all.n);
    if (why)
        fail_help(c, 0, help, "summary: %s has no transition: %s", step->name,
                  why);
}

int transition_shape(const Graph *step, const Transition *t, const Bound *b,
                     int64_t *shape)
{
    if (t->carry <= CARRY_MAX)
        return state_shape(step, b, t->state, shape);
    shape[0] = b->N;
    shape[1] = b->call.heads;
    shape[2] = b->call.size[t->kappa];
    shape[3] = (int64_t)t->n * shape[2];
    return t->mixes ? 4 : 3;
}

/* Where it is, the host lets all rows be one; kernels of a device want them one
 * behind the other. */
static int64_t zero_inputs(Summary *s, void *data)
{
    int64_t n = transition_zeros(&s->t, s->v->step, &s->call, s->b->B,
                                 s->call.on_device ? s->b->T : 0, data);

    return ((n ? n : 1) + ALIGN - 1) / ALIGN * ALIGN;
}

/* Rows along kappa? Else it is stored the other way round. */
static int row_of(const Summary *s, int state)
{
    return s->v->step->st[state].order[0] != s->t.kappa;
}

/* How far the one 1 is from the first of the numbers around it. */
static int64_t before_one(const Summary *s)
{
    return (int64_t)s->t.n * s->call.size[s->t.kappa] - 1;
}

/* The unit matrix, [n kappa, nu], as rows of zeros around one 1, each an entry
 * off the one before: each state has kappa of them. Or that one for all of
 * kappa. */
static void start_from(Summary *s, char *unit)
{
    int64_t i = 0;

    for (int st = 0; st < s->v->step->nst; st++) {
        View *v = &s->call.s0[st];
        if (s->v->step->st[st].axes >> s->t.nu & 1)
            *v = (View){ 0 };           /* of what is written: zero */
        if (!(s->t.of & STATE(st)))
            continue;
        *v = (View){ .dtype = F32, .heads = 1 };
        v->data = unit + 4 * (before_one(s)
                              + i++ * s->call.size[s->t.kappa]);
        v->sd[row_of(s, st)] = s->t.mixes;
        v->sd[1 - row_of(s, st)] = -(int64_t)s->t.mixes;
    }
}

static void end_in(Summary *s, const Given *to)
{
    memset(s->call.s1, 0, sizeof s->call.s1);
    for (int st = 0; st < s->v->step->nst; st++) {
        if (!(s->t.of & STATE(st)))
            continue;
        View *v = &s->call.s1[st];
        *v = (View){ .data = to->data, .dtype = to->dtype,
                     .heads = s->b->call.heads, .sb = to->stride[0],
                     .sh = to->stride[1] };
        v->sd[row_of(s, st)] = to->stride[2];
        v->sd[1 - row_of(s, st)] = s->t.mixes ? to->stride[3] : 0;
        to++;
    }
}

/* Room on the host or, before the kernels' workspace, on the device; there it
 * is zero. */
static char *take_room(Summary *s, int64_t room)
{
    const Backend *k = s->plan->backend;

    if (!s->call.on_device)
        return ctx_alloc(s->c, (size_t)room);
    int64_t need = room + k->workspace(s->c, s->plan->program, s->plan->plan,
                                       &s->call);
    char *p = s->call.workspace;
    if (p && s->call.workspace_size < need)
        fail(s->c, 0, "summary: workspace_size = %lld: this call takes %lld "
             "bytes", (long long)s->call.workspace_size, (long long)need);
    if (!p)
        p = k->keep(s->c, s->v->shared.gpu, &s->call, need);
    s->call.workspace = need > room ? p + room : NULL;  /* not its end */
    s->call.workspace_size = need - room;
    k->clear(s->c, s->v->shared.gpu, &s->call, p, room);
    return p;
}

static void put(Summary *s, char *to, const float *from, int n)
{
    if (s->call.on_device)
        s->plan->backend->put(s->c, s->v->shared.gpu, &s->call, to, from,
                              n * (int64_t)sizeof *from);
    else
        memcpy(to, from, (size_t)n * sizeof *from);
}

static void run_plan(const Summary *s)
{
    s->plan->backend->run(s->c, s->plan->program, s->plan->plan, &s->call);
}

static void run_transition(Summary *s, const Given *to)
{
    static const float one = 1;
    static _Alignas(ALIGN) char somewhere[ALIGN];   /* as all will be: which
                                                       kernels run asks that */
    const Backend *backend = call_backend(s->c, s->args, &s->b->call);
    int32_t nu = s->t.mixes ? s->t.n * s->b->call.size[s->t.kappa] : 1;
    s->call = s->b->call;
    if (!s->t.mixes && s->call.on_device)
        nu = s->call.size[s->t.nu];     /* whose kernels are the call's: as
                                           many columns, all of them alike */
    if (s->call.size[s->t.nu] != nu)
        check_renamed(s->c, s->v->step, &s->t);
    s->call.size[s->t.nu] = nu;
    s->plan = plan_for_ends(s->c, s->v, s->call.size, plan_chunk(s->args),
                            backend);
    memset(s->call.out, 0, sizeof s->call.out);
    end_in(s, to);
    start_from(s, somewhere);
    int64_t zeros = zero_inputs(s, somewhere);
    int64_t unit = (2 * before_one(s) + 1) * (int64_t)sizeof one;
    char *room = take_room(s, zeros + (unit + ALIGN - 1) / ALIGN * ALIGN);
    put(s, room + zeros + 4 * before_one(s), &one, 1);
    zero_inputs(s, room);
    start_from(s, room + zeros);
    run_plan(s);
}

/* What each entry starts from, of which it is found what becomes: of its own,
 * and of what it is multiplied by. */
static void run_entries(Summary *s, const Given *to)
{
    static const float neutral[2][2] = { { 0, 1 }, { -INFINITY, 0 } };
    const float *from = neutral[s->t.carry == CARRY_MAX];
    const int at[2] = { s->t.state, s->t.moved };

    s->call = s->b->call;
    s->plan = plan_for_ends(s->c, s->v, s->call.size, plan_chunk(s->args),
                            call_backend(s->c, s->args, &s->call));
    memset(s->call.out, 0, sizeof s->call.out);
    s->call.s1[s->t.moved] = state_view(s->v->step, s->t.moved, to);
    for (int i = 0; i < 2; i++)
        s->call.s0[at[i]] = (View){ .data = (void *)from, .dtype = F32,
                                    .heads = 1 };
    char *room = take_room(s, ALIGN);
    put(s, room, from, 2);
    for (int i = 0; i < 2; i++)
        s->call.s0[at[i]].data = room + i * sizeof *from;
    run_plan(s);
}

/* The variant's only state is what the summary is of. */
static bool is_of_all(const Summary *s)
{
    return s->t.n == 1 && s->t.moved < 0 && s->v->step->nst == 1;
}

bool run_beginning(Ctx *c, Variant *v, const Args *a, const Bound *b,
                   const Given *transition, Stored room)
{
    Summary s = { .c = c, .v = v, .args = a, .b = b, .call = b->call };
    find_transition(c, v->step, &s.t);
    if (!is_of_all(&s))
        return false;
    end_in(&s, transition);
    return begin_saved(c, v, a, b, room, s.t.state, s.call.s1[s.t.state]);
}

/* Both by one run of walks that leave ends alone: M is exact to what rounds 1,
 * where a run of its own has it exact to what rounds M. */
static bool run_ends(Summary *s, const Given *transition)
{
    s->call = s->b->call;
    end_in(s, transition);
    return s->b->call.in_parts && is_of_all(s) && !s->t.mixes
        && tell_ends(s->c, s->v, s->args, s->b, s->call.s1[s->t.state]);
}

void run_summary(Ctx *c, Variant *v, const Args *a, const Bound *b,
                 const Given *transition)
{
    Summary s = { .c = c, .v = v, .args = a, .b = b };
    find_transition(c, v->step, &s.t);
    for (int i = 0; i < v->step->nst; i++)
        if (b->call.s0[i].data && (s.t.of & STATE(i) || i == s.t.moved))
            fail_help(c, 0, "S = transition S + own", "summary: it knows of no"
                      " initial state %s", v->step->st[i].name);
    if (s.t.moved >= 0) {
        run_entries(&s, transition);
        return;
    }
    if (run_ends(&s, transition))
        return;
    run_transition(&s, transition);
    Args own = *a;
    own.ends = true;
    run_bound(c, v, &own, b);
}
