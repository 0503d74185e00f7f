/* ways.c -- calls of masks of both directions: one scan from the first token
 * on, one from the last, and their results added up.
 *
 * Each is a variant of its own, as a layer's parts are. The second is run as
 * the transpose M^T v of a step's y = M v, to which it adds what the first has
 * made. Its gradient is that step's: with d for the result's gradient, M d is
 * v's, and M's, of which M^T v and d say the sum d^T M^T v = v^T M d, is what
 * the step has where d comes in for v and v for the gradient of y.
 */
#include <string.h>

#include "../compiler/mask.h"
#include "parts_call.h"

/* ---- programs ---- */

enum { AHEAD, BACK, WAYS };             /* directions */

/* One for all sizes: what depends on these is in the variants' plans. */
static LayerProgram *ways_program(Ctx *c, Variant *v)
{
    return parts_program(c, v, v->step->mask->way, WAYS);
}

static Variant *way_variant(Ctx *c, Variant *v, int way)
{
    return ways_program(c, v)->variant[way];
}

/* ---- a direction's call ---- */

static Sub *begin_way(Lay *k, int at, Mode mode)
{
    Sub *s = parts_begin(k, at, mode);

    for (int i = 0; i < s->p->step->nin; i++) {
        const Input *in = &s->p->step->in[i];
        s->args.in[i] = given_input(k, graph_find_input(k->step, in->name));
    }
    return s;
}

static void bind_way(Lay *k, Sub *s)
{
    parts_bind(k, s);
    if (s->bound.call.heads != k->b->call.heads)
        fail_help(k->c, 0, "give v as many heads as any other", "%s: %s has %d "
                  "heads, but one of its directions reads %d",
                  mode_name[k->args->mode], k->step->name, k->b->call.heads,
                  s->bound.call.heads);
}

/* What is kept is of the first direction's plan: that of the second one is not
 * what runs forward. */
static void run_way(Lay *k, int at)
{
    Sub *s = begin_way(k, at, M_FORWARD);
    const Graph *step = s->p->step;
    Given y = given_y(k);
    bool keep = k->keep;

    k->keep = keep && at == AHEAD;
    bind_way(k, s);
    s->bound.call.out[0] = result_view(step, 0, &y);
    if (step->transposed == TRANSPOSED_ADDED)
        s->bound.call.in[step->nin] = s->bound.call.out[0];
    k->realm->forward(k, s);
    k->keep = keep;
}

/* ---- gradients ---- */

/* What is added up is rounded once more where it is narrow. */
static DType part_type(const Lay *k, DType d)
{
    return k->b->call.on_device || d == F64 ? d : F32;
}

/* Room for what the last direction makes of the gradient of an input, which it
 * places there. */
static void take_gradient(Lay *k, Given *dx, Array *own)
{
    if (!dx->given || !dx->data)
        return;
    Array all = array_of(dx);
    *own = room_like(k, &all, part_type(k, dx->dtype));
    place_given(dx, own);
}

/* To what the first direction has made, if it takes that input. */
static void give_gradient(Lay *k, const char *name, Array *own)
{
    const Graph *first = k->p->parts->part[AHEAD].step;
    bool add = first && graph_find_input(first, name) >= 0;

    if (!own->data)
        return;
    Array all = array_of(&k->d->dx[graph_find_input(k->step, name)]);
    k->realm->move(k, &all, own, add);
    drop_array(k, own);
}

/* From what a forward call has left, if it has. */
static void back_ahead(Lay *k)
{
    if (k->left)
        run_way(k, AHEAD);

    Sub *s = begin_way(k, AHEAD, M_BACKWARD);
    const Graph *step = s->p->step;

    bind_way(k, s);
    s->d.dy[0] = k->d->dy[0];
    for (int i = 0; i < step->nin; i++)
        s->d.dx[i] = k->d->dx[graph_find_input(k->step, step->in[i].name)];
    k->realm->backward(k, s);
}

static void back_back(Lay *k)
{
    Sub *s = begin_way(k, BACK, M_BACKWARD);
    const Graph *step = s->p->step;
    Array *own = ctx_alloc(k->c, (size_t)step->nin * sizeof *own);
    Array values = { 0 }, sum = { 0 };
    int v = graph_find_input(step, "v");
    Given of = s->args.in[v];
    const Given *dv = &k->d->dx[graph_find_input(k->step, "v")];

    s->args.in[v] = k->d->dy[0];
    s->args.in[v].device = k->b->call.on_device;
    bind_way(k, s);
    s->d.dy[0] = spread_heads(k, &of, &values);
    for (int i = 0; i < step->nin; i++) {
        s->d.dx[i] = k->d->dx[graph_find_input(k->step, step->in[i].name)];
        if (i == v)
            s->d.dx[i] = (Given){ 0 };
        take_gradient(k, &s->d.dx[i], &own[i]);
    }
    if (dv->given && dv->data) {
        Given y = all_heads(k, dv, part_type(k, dv->dtype), &sum);
        s->bound.call.out[0] = result_view(step, 0, &y);
    }
    k->realm->backward(k, s);
    drop_array(k, &values);
    for (int i = 0; i < step->nin; i++)
        give_gradient(k, step->in[i].name, &own[i]);
    if (sum.data)
        gather_heads(k, dv, &sum, k->p->parts->part[AHEAD].step);
    drop_array(k, &sum);
}

/* That of what no direction reads. */
static void clear_unread(Lay *k)
{
    for (int i = 0; i < k->step->nin; i++) {
        const Given *dx = &k->d->dx[i];
        bool read = !dx->given || !dx->data;
        for (int at = 0; at < k->p->parts->n; at++) {
            const Graph *step = k->p->parts->part[at].step;
            read |= step && graph_find_input(step, k->step->in[i].name) >= 0;
        }
        Array v = array_of(dx);
        if (!read)
            k->realm->zero(k, &v);
    }
}

static void run_all(Lay *k)
{
    if (k->d)
        clear_unread(k);
    for (int at = 0; at < k->p->parts->n; at++) {
        ctx_poll(k->c);
        if (!k->p->variant[at])
            continue;
        if (!k->d)
            run_way(k, at);
        else if (at == BACK)
            back_back(k);
        else
            back_ahead(k);
    }
}

/* ---- calls ---- */

static const PartsCall both_ways = { ways_program, run_all };

static void refuse_steps(Ctx *c, const Variant *v, const Args *a)
{
    if (mode_steps(a->mode))
        fail_help(c, 0, "v:forward and v:reference take whole sequences", "%s: "
                  "%s weighs tokens that are still to come: there is no state "
                  "to step from", mode_name[a->mode], v->step->name);
}

static void prepare(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    refuse_steps(c, v, a);
    parts_prepare(c, &both_ways, v, a, b);
}

static void forward(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    refuse_steps(c, v, a);
    parts_forward(c, &both_ways, v, a, b);
}

static void backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                     const Adjoint *d)
{
    parts_backward(c, &both_ways, v, a, b, d);
}

static int64_t bytes_saved(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    return parts_saved(c, &both_ways, v, a, b);
}

static int64_t forward_saving(Ctx *c, Variant *v, const Args *a,
                              const Bound *b, Stored room)
{
    return parts_run_saved(c, &both_ways, v, a, b, room);
}

static int64_t workspace(Ctx *c, Variant *v, const Args *a, const Bound *b,
                         const Adjoint *d)
{
    refuse_steps(c, v, a);
    return parts_workspace(c, &both_ways, v, a, b, d);
}

const LayerRuns runs_both_ways = {
    .prepare = prepare, .release = parts_release, .plan = parts_plan,
    .workspace = workspace, .forward = forward, .backward = backward,
    .saved_bytes = bytes_saved, .run_saved = forward_saving,
    .mark = parts_mark, .part = way_variant,
};
