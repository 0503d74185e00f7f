/* summary.c -- what a run of tokens does to a state, whatever it starts from:
 * v:summary, flin_summary.
 *
 * Both parts are calls of the variant itself: the state that is left of one
 * that begins as zero; and the state that is left of the unit matrix (of ones,
 * where its entries along an axis stay apart) while what is written is zero.
 */
#include <string.h>

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
        bool renames = n->op == OP_relabel || n->op == OP_dup;
        if (renames && (n->index == t->nu || n->over >> t->nu & 1))
            fail(c, n->line, "summary: axis '%s' is another's, too, in %s: the"
                 " transition is found along it alone",
                 step->axis[t->nu].name, expr_text((Graph *)step, r));
    }
}

void find_transition(Ctx *c, const Graph *step, Transition *t)
{
    const char *why = step->layer ? "a layer has its variants' states"
                    : step->mask ? "a mask of mode \"quadratic\" has no state"
                    : transition_find(c, step, t);
    if (why)
        fail(c, 0, "summary: %s has no transition: %s", step->name, why);
}

int transition_shape(const Transition *t, const Bound *b, int64_t *shape)
{
    shape[0] = b->N;
    shape[1] = b->call.heads;
    shape[2] = shape[3] = b->call.size[t->kappa];
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

/* The unit matrix, [kappa nu], as rows of zeros around one 1, each an entry off
 * the one before; or that one for all of kappa. */
static void start_from(Summary *s, char *unit)
{
    const State *st = &s->v->step->st[s->t.state];
    int row = st->order[0] != s->t.kappa;
    View *v = &s->call.s0[s->t.state];
    *v = (View){ .dtype = F32, .heads = 1 };
    v->data = unit + 4 * (s->call.size[s->t.kappa] - 1);
    v->sd[row] = s->t.mixes;
    v->sd[1 - row] = -(int64_t)s->t.mixes;
}

static void end_in(Summary *s, const Given *to)
{
    const State *st = &s->v->step->st[s->t.state];
    int row = st->order[0] != s->t.kappa;
    View *v = &s->call.s1[s->t.state];
    *v = (View){ .data = to->data, .dtype = to->dtype,
                 .heads = s->b->call.heads, .sb = to->stride[0],
                 .sh = to->stride[1] };
    v->sd[row] = to->stride[2];
    v->sd[1 - row] = s->t.mixes ? to->stride[3] : 0;
}

/* Zeros, and the unit matrix behind them; the kernels' workspace behind that,
 * on a device. */
static char *take_room(Summary *s, int64_t zeros)
{
    static const float one = 1;
    const Backend *k = s->plan->backend;
    int64_t at = 4 * (int64_t)(s->call.size[s->t.kappa] - 1);
    int64_t room = zeros + (2 * at + 4 + ALIGN - 1) / ALIGN * ALIGN;
    char *p;
    if (!s->call.on_device) {
        p = ctx_alloc(s->c, (size_t)room);
        memcpy(p + zeros + at, &one, sizeof one);
        return p;
    }
    int64_t need = room + k->workspace(s->c, s->plan->program, s->plan->plan,
                                       &s->call);
    p = s->call.workspace;
    if (p && s->call.workspace_size < need)
        fail(s->c, 0, "summary: workspace_size = %lld: this call takes %lld "
             "bytes", (long long)s->call.workspace_size, (long long)need);
    if (!p)
        p = k->keep(s->c, s->v->shared.gpu, &s->call, need);
    s->call.workspace = p + room;
    s->call.workspace_size = need - room;
    k->clear(s->c, s->v->shared.gpu, &s->call, p, room);
    k->put(s->c, s->v->shared.gpu, &s->call, p + zeros + at, &one,
           sizeof one);
    return p;
}

static void run_transition(Summary *s, const Given *to)
{
    static char somewhere;
    const Backend *backend = call_backend(s->c, s->args, &s->b->call);
    int32_t nu = s->t.mixes ? s->b->call.size[s->t.kappa] : 1;
    s->call = s->b->call;
    if (s->call.size[s->t.nu] != nu)
        check_renamed(s->c, s->v->step, &s->t);
    s->call.size[s->t.nu] = nu;
    s->plan = plan_for(s->c, s->v, s->call.size, plan_chunk(s->args), false,
                       backend);
    memset(s->call.out, 0, sizeof s->call.out);
    end_in(s, to);
    start_from(s, &somewhere);
    char *room = take_room(s, zero_inputs(s, &somewhere));
    start_from(s, room + zero_inputs(s, room));
    backend->run(s->c, s->plan->program, s->plan->plan, &s->call);
}

void run_summary(Ctx *c, Variant *v, const Args *a, const Bound *b,
                 const Given *transition)
{
    Summary s = { .c = c, .v = v, .args = a, .b = b };
    find_transition(c, v->step, &s.t);
    for (int i = 0; i < v->step->nst; i++)
        if (b->call.s0[i].data)
            fail_help(c, 0, "S = transition S + own", "summary: it knows of no"
                      " initial state");
    run_transition(&s, transition);
    run_bound(c, v, a, b);
}
