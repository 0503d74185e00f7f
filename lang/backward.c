/* backward.c -- v:backward: gradients of sum(y * dy) + sum(state * dstate)
 * for a call's inputs and initial states.
 *
 * The joint graph of the chunk form runs in one call of its plan, or in two:
 * what the forward one stores for the other is then saved between them. The
 * serial one would keep the state of every token: it runs in segments, from
 * the last to the first, each from a checkpoint that a forward run has left.
 */
#include <math.h>
#include <string.h>

#include "../backend/cuda/pairs.h"
#include "../compiler/grad.h"
#include "../compiler/mask.h"
#include "window.h"

enum { SEGMENT_MIN = 64, ROOM_ALIGN = 256 };

/* A backward call in progress. */
typedef struct Back {
    Ctx *c;
    Variant *v;
    const Graph *step, *joint;
    const Args *args;
    const Bound *b;
    const Adjoint *d;
    PlanEntry *plan, *forward;          /* forward: the serial step's */
    bool stored;                        /* what the forward pass has saved is
                                           of this plan and call */
    DType dtype;                        /* of what is kept in between */
    Call call;
    View sums[MAX_INPUTS];              /* results still to be summed */
    int64_t segment;
    uintptr_t room;                     /* on the device */
    int64_t room_used;
} Back;

/* The joint graph's result d_NAME. */
static int result_of(const Back *k, const char *name)
{
    const Graph *g = k->joint;
    int i = k->step->nout;

    while (i < g->nout && strcmp(g->out[i].name + strlen("d_"), name))
        i++;
    ensure(g, i < g->nout, OP_input, 0);
    return i;
}

/* ---- what comes in ---- */

static void check_device(Back *k, const char *name, const Given *t)
{
    bool on = k->b->call.on_device;

    if (t->device != on)
        fail_help(k->c, 0, ctx_format(k->c, "%s:to(\"%s\")", name,
                  on ? "cuda" : "cpu"), "%s: %s is on the %s, but the inputs "
                  "on the %s", mode_name[k->args->mode], name,
                  on ? "CPU" : "GPU", on ? "GPU" : "CPU");
}

/* "dy", or, of another result, "dy.NAME". */
static const char *dy_name(const Back *k, int o)
{
    return o ? ctx_format(k->c, "dy.%s", k->step->out[o].name) : "dy";
}

static void check_float(const Back *k, const char *name, const Given *t)
{
    if (t->given && dtype_whole(t->dtype))
        fail_help(k->c, 0, "float32, bfloat16, float16 or float64",
                  "%s: %s is %s", mode_name[k->args->mode], name,
                  dtype_name(t->dtype));
}

/* Gradients and what they are made of are no whole numbers, and an index has
 * none. */
static void check_floats(const Back *k)
{
    for (int i = 0; i < k->step->nin; i++) {
        const Input *in = &k->step->in[i];
        if (in->index_of && k->d->dx[i].given)
            fail(k->c, in->line, "%s: %s is an index: it has no gradient",
                 mode_name[k->args->mode], in->name);
        check_float(k, in->name, &k->d->dx[i]);
    }
    for (int i = 0; i < k->step->nst; i++) {
        check_float(k, k->step->st[i].name, &k->d->dstate[i]);
        check_float(k, k->step->st[i].name, &k->d->ds[i]);
    }
    for (int o = 0; o < k->step->nout; o++)
        check_float(k, dy_name(k, o), &k->d->dy[o]);
}

static void check_adjoints(Back *k)
{
    const char *what = mode_name[k->args->mode];
    int64_t shape[TENSOR_RANK];
    bool any = false;

    for (int i = 0; i < k->step->nst; i++) {
        if (!k->d->dstate[i].given)
            continue;
        any = true;
        check_device(k, k->step->st[i].name, &k->d->dstate[i]);
        int rank = state_shape(k->step, k->b, i, shape);
        check_shape(k->c, what, ctx_format(k->c, "dstate.%s",
                                           k->step->st[i].name),
                    &k->d->dstate[i], rank, shape);
    }
    for (int o = 0; o < k->step->nout; o++) {
        if (!k->d->dy[o].given)
            continue;
        any = true;
        int rank = result_shape(k->step, k->b, o, shape);
        check_device(k, dy_name(k, o), &k->d->dy[o]);
        check_shape(k->c, what, dy_name(k, o), &k->d->dy[o], rank, shape);
    }
    if (!any)
        fail_help(k->c, 0, "dy = the gradient of y, dstate = { S = of the "
                  "final state S }", "%s: neither dy nor dstate is given",
                  what);
}

/* On the device it is not cleared. */
static void *take_room(Back *k, int64_t bytes)
{
    uintptr_t at = k->room + (uintptr_t)k->room_used;

    if (!k->b->call.on_device)
        return ctx_alloc(k->c, (size_t)bytes);
    k->room_used += (bytes + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
    return (void *)at;
}

/* Room for `rows` times n elements, as wide as the call's heads. */
static View make_view(Back *k, const uint8_t *order, int rank, int64_t rows,
                      bool timed)
{
    View v = { .dtype = k->dtype, .heads = k->b->call.heads };
    int64_t n = 1;

    for (int i = rank; i-- > 0;) {
        v.sd[i] = n;
        n *= k->call.size[order[i]];
    }
    v.sh = n;
    v.st = timed ? n * v.heads : 0;
    v.sb = timed ? v.st * k->b->T : n * v.heads;
    v.data = take_room(k, n * v.heads * rows * dtype_size(k->dtype) + 1);
    return v;
}

/* Without a dy it is zero, in the type that it would have. */
static void bind_dy(Back *k, int o)
{
    View *dy = &k->call.in[k->step->nin + o];
    const Output *y = &k->step->out[o];
    DType usual = k->dtype;

    if (k->d->dy[o].given) {
        *dy = result_view(k->step, o, &k->d->dy[o]);
        return;
    }
    k->dtype = k->call.on_device ? k->b->dtype : usual;
    *dy = make_view(k, y->order, y->rank, k->b->B * k->b->T, true);
    k->dtype = usual;
}

/* Straight to its tensor, or, with all heads, aside. */
static View gradient_view(Back *k, int i)
{
    const Input *in = &k->step->in[i];
    const Given *to = &k->d->dx[i];

    View v = input_view(k->step, i, to);

    if (in->timed && (k->call.on_device || v.heads == k->call.heads))
        return v;
    return k->sums[i] = make_view(k, in->order, in->rank,
                                  in->timed ? k->b->B * k->b->T : k->b->N,
                                  in->timed);
}

/* Where the gradient of input i goes: straight to its tensor, or, summed over
 * heads or sequences later, aside. On a device kernels add up what has one
 * place. */
static void bind_gradient(Back *k, int i)
{
    const Input *in = &k->step->in[i];
    const Given *to = &k->d->dx[i];

    if (!in->timed && k->call.on_device) {
        k->call.s1[adjoint_of_input(k->joint, i)] = input_view(k->step, i, to);
        return;
    }
    if (in->timed)
        k->call.out[result_of(k, in->name)] = gradient_view(k, i);
    else
        k->call.s1[adjoint_of_input(k->joint, i)] = gradient_view(k, i);
}

/* On a device kernels differ by the types of all results, wanted or not, those
 * included that only the forward pass writes. */
static void bind_types(Back *k)
{
    if (!k->call.on_device)
        return;
    for (int o = 0; o < k->step->nout; o++)
        if (!k->call.out[o].data)
            k->call.out[o].dtype = k->b->dtype;
    for (int i = 0; i < k->step->nst; i++) {
        int s = adjoint_of_state(k->joint, i);
        if (!k->call.s1[i].data)
            k->call.s1[i].dtype = k->b->state_dtype;
        k->call.s0[s].dtype = k->call.s1[s].dtype = k->b->state_dtype;
    }
    for (int i = 0; i < k->step->nin; i++) {
        const Input *in = &k->step->in[i];
        if (in->index_of)
            continue;
        View *to = in->timed ? &k->call.out[result_of(k, in->name)]
                             : &k->call.s1[adjoint_of_input(k->joint, i)];
        to->dtype = k->args->in[i].dtype;
    }
}

static void bind_back(Back *k)
{
    k->call = k->b->call;
    bind_types(k);
    if (k->stored) {
        k->call.from = k->plan->plan->split;
        k->call.kept = k->d->stored.at;
        k->call.part = k->d->stored.begun ? CALL_REST : CALL_WHOLE;
    }
    for (int o = 0; o < k->step->nout; o++)
        bind_dy(k, o);
    for (int i = 0; i < k->step->nst; i++) {
        int s = adjoint_of_state(k->joint, i);
        if (k->d->dstate[i].given)
            k->call.s0[s] = state_view(k->step, i, &k->d->dstate[i]);
        if (k->d->ds[i].given)
            k->call.s1[s] = state_view(k->step, i, &k->d->ds[i]);
    }
    for (int i = 0; i < k->step->nin; i++)
        if (k->d->dx[i].given)
            bind_gradient(k, i);
}

/* ---- sums ---- */

/* Adds n elements at `at`, of `count` rows that lie `gap` apart. */
static void add_rows(const View *from, int64_t at, int64_t gap, int64_t count,
                     int64_t n, double *sum)
{
    for (int64_t r = 0; r < count; r++)
        for (int64_t e = 0; e < n; e++)
            sum[e] += view_get(from, at + r * gap + e);
}

/* Where each of n elements of a head lies in the gradient, from its first. */
static int64_t *element_places(const Back *k, int i, int64_t n)
{
    const Given *to = &k->d->dx[i];
    int skip = input_lead(k->step, k->step->in[i].timed);
    int64_t *at = ctx_alloc(k->c, (size_t)n * sizeof *at);

    for (int64_t e = 0; e < n; e++)
        for (int64_t d = to->rank - 1, left = e; d >= skip; d--) {
            at[e] += left % to->shape[d] * to->stride[d];
            left /= to->shape[d];
        }
    return at;
}

/* Where row r of an input with tokens lies in its gradient. */
static int64_t row_place(const Back *k, const Given *to, int64_t r)
{
    return r / k->b->T * to->stride[0] + r % k->b->T * to->stride[1];
}

/* A shared head's gradient is the sum over those that share it; a constant's
 * over the sequences, too. */
static void sum_gradient(Back *k, int i)
{
    const View *from = &k->sums[i];
    const Given *to = &k->d->dx[i];
    bool timed = k->step->in[i].timed;
    View like = input_view(k->step, i, to);
    int64_t heads = like.heads, n = from->sh;
    int64_t group = k->call.heads / heads, all = k->call.heads * n;
    int64_t rows = timed ? k->b->B * k->b->T : 1;
    const int64_t *at = element_places(k, i, n);
    double *sum = ctx_alloc(k->c, (size_t)n * sizeof *sum);
    View result = { .data = to->data, .dtype = to->dtype };

    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t first = h * like.sh + (timed ? row_place(k, to, r) : 0);
            memset(sum, 0, (size_t)n * sizeof *sum);
            for (int64_t s = 0; s < (timed ? 1 : k->b->N); s++)
                add_rows(from, (timed ? r : s) * all + h * group * n, n,
                         group, n, sum);
            for (int64_t e = 0; e < n; e++)
                view_set(&result, first + at[e], sum[e]);
        }
}

/* ---- runs ---- */

static void run_entry(Back *k, PlanEntry *e, const Call *call)
{
    e->backend->run(k->c, e->program, e->plan, call);
}

static int64_t longest(const Back *k)
{
    int64_t most = 0;

    for (int64_t s = 0; s < k->call.nseq; s++)
        most = k->call.seq[s].len > most ? k->call.seq[s].len : most;
    return most;
}

/* The m-th segment of every sequence. */
static const Seq *segment_seqs(Back *k, int64_t m)
{
    Seq *seq = ctx_alloc(k->c, (size_t)k->call.nseq * sizeof *seq + 1);

    for (int64_t s = 0; s < k->call.nseq; s++) {
        Seq all = k->call.seq[s];
        int64_t from = m * k->segment, left = all.len - from;
        seq[s] = all;
        seq[s].start += left > 0 ? from : 0;
        seq[s].len = left < 0 ? 0 : left < k->segment ? left : k->segment;
    }
    return seq;
}

/* States as each segment finds them: [segment][state], from the second on. */
static View *checkpoints(Back *k, int64_t segments)
{
    int nst = k->step->nst;
    View *at = ctx_alloc(k->c, (size_t)(segments * nst + 1) * sizeof *at);
    Call call = k->b->call;

    call.workspace = k->call.workspace;
    call.workspace_size = k->call.workspace_size;
    memset(call.out, 0, sizeof call.out);
    for (int i = 0; i < nst; i++)
        at[i] = call.s0[i];
    for (int64_t m = 0; m + 1 < segments; m++) {
        call.seq = segment_seqs(k, m);
        for (int i = 0; i < nst; i++) {
            const State *st = &k->step->st[i];
            call.s0[i] = at[m * nst + i];
            call.s1[i] = at[(m + 1) * nst + i] =
                make_view(k, st->order, st->rank, k->b->N, false);
        }
        run_entry(k, k->forward, &call);
    }
    return at;
}

static void run_segments(Back *k, int64_t segments)
{
    int nst = k->step->nst, all = k->joint->nst;
    View *at = checkpoints(k, segments), carried[MAX_STATES] = { { 0 } };
    Call call = k->call;

    for (int i = nst; i < all; i++) {
        const State *st = &k->joint->st[i];
        carried[i] = make_view(k, st->order, st->rank, k->b->N, false);
    }
    for (int64_t m = segments - 1; m >= 0; m--) {
        call.seq = segment_seqs(k, m);
        for (int i = 0; i < nst; i++)
            call.s0[i] = at[m * nst + i];
        for (int i = nst; i < all; i++) {
            call.s0[i] = m + 1 < segments ? carried[i] : k->call.s0[i];
            call.s1[i] = m ? carried[i] : k->call.s1[i];
        }
        run_entry(k, k->plan, &call);
    }
}

/* Segments of about the square root of the length keep the least. */
static int64_t count_segments(Back *k)
{
    int64_t most = longest(k), segments;

    k->segment = (int64_t)ceil(sqrt((double)most));
    if (k->segment < SEGMENT_MIN)
        k->segment = SEGMENT_MIN;
    segments = (most + k->segment - 1) / k->segment;
    return segments ? segments : 1;
}

/* ---- on a device ---- */

/* What run_segments takes beside the call's own. */
static void take_segments(Back *k, int64_t segments)
{
    for (int i = 0; i < k->joint->nst; i++) {
        bool state = i < k->step->nst;
        const State *st = state ? &k->step->st[i] : &k->joint->st[i];
        for (int64_t m = state ? 1 : 0; m < (state ? segments : 1); m++)
            make_view(k, st->order, st->rank, k->b->N, false);
    }
}

/* The most that a segment's kernels take: the first is the longest, the last
 * is the farthest from where its batch entry starts. */
static int64_t kernels_need(Back *k, PlanEntry *e, int64_t segments)
{
    Call call = k->call;
    int64_t most = 0;

    for (int64_t m = 0; e && m < segments; m++) {
        if (segments > 1)
            call.seq = segment_seqs(k, m);
        int64_t n = e->backend->workspace(k->c, e->program, e->plan, &call);
        most = n > most ? n : most;
    }
    return most;
}

/* Binds the call, to count what it keeps beside its tensors: returns the bytes
 * of workspace that it takes with that. */
static int64_t count_room(Back *k)
{
    int64_t segments, need, more;

    k->room = ROOM_ALIGN;               /* of none, as yet */
    k->room_used = 0;
    bind_back(k);
    segments = k->forward ? count_segments(k) : 1;
    if (k->forward)
        take_segments(k, segments);
    need = kernels_need(k, k->plan, segments);
    more = kernels_need(k, k->forward, segments);
    return k->room_used + (more > need ? more : need);
}

/* Binds it with all of that in the workspace, before what kernels need. */
static void bind_device_back(Back *k)
{
    const Backend *backend = k->plan->backend;
    int64_t need = count_room(k), room = k->room_used;
    char *at = k->call.workspace;

    if (at && k->call.workspace_size < need)
        fail(k->c, 0, "backward: workspace_size = %lld: this call takes %lld "
             "bytes", (long long)k->call.workspace_size, (long long)need);
    if (!at)
        at = backend->keep(k->c, k->v->shared.gpu, &k->call, need);
    k->room = (uintptr_t)at;
    k->room_used = 0;
    bind_back(k);
    k->call.workspace = at + room;
    k->call.workspace_size = need - room;
    for (int o = 0; o < k->step->nout; o++) {
        const View *dy = &k->call.in[k->step->nin + o];
        if (k->d->dy[o].given)
            continue;
        backend->clear(k->c, k->v->shared.gpu, &k->call, dy->data,
                       dy->sb * k->b->B * dtype_size(dy->dtype));
    }
}

static void find_plans(Back *k)
{
    const Backend *backend = call_backend(k->c, k->args, &k->b->call);
    bool exact = k->args->mode == M_REFERENCE_BACKWARD;
    int chunk = exact ? 0 : plan_chunk(k->args);

    k->dtype = exact ? F64 : F32;
    k->plan = plan_for(k->c, k->v, k->b->call.size, chunk, true, backend);
    k->joint = k->plan->plan->g;
    if (!k->joint->chunk && k->b->call.device_cu)
        fail_help(k->c, 0, "cu_seqlens", "%s: goes token by token, in "
                  "segments of sequences whose ends must be known here",
                  mode_name[k->args->mode]);
    if (!k->joint->chunk)
        k->forward = plan_for(k->c, k->v, k->b->call.size, 0, false, backend);
}

/* Whether what was saved is what this call's kernels would store. */
static bool fits_stored(Back *k)
{
    const PlanEntry *e = k->plan;
    const Call *call = &k->b->call;
    const Stored *s = &k->d->stored;

    if (!s->bytes || k->args->mode != M_BACKWARD)
        return false;
    Note now = note_saved(k->c, k->v, k->args, k->b, s->at);
    if (!now.plan || now.plan != s->note.plan || now.call != s->note.call)
        return false;
    if (call->on_device) {
        k->room = ROOM_ALIGN;
        bind_back(k);
        call = &k->call;
        if (note_plan(k->c, e, call) != s->note.plan)
            return false;               /* another layout */
    }
    return e->backend->kept(k->c, e->program, e->plan, call) == s->bytes;
}

static Back *back_new(Ctx *c, Variant *v, const Args *a, const Bound *b,
                      const Adjoint *d)
{
    Back *k = ctx_alloc(c, sizeof *k);

    *k = (Back){ .c = c, .v = v, .step = v->step, .args = a, .b = b, .d = d };
    return k;
}

/* All pairs of tokens on a device: from what a forward call has kept. */
static PairsCall device_pairs(Back *k)
{
    const Stored *s = &k->d->stored;
    PairsCall p = { .step = k->step, .call = &k->call, .backward = true,
                    .dy = result_view(k->step, 0, &k->d->dy[0]) };

    k->call = k->b->call;
    k->call.out[0].dtype = k->b->dtype;
    for (int i = 0; i < k->step->nin; i++)
        if (k->d->dx[i].given)
            p.dx[i] = input_view(k->step, i, &k->d->dx[i]);
    if (s->bytes && s->bytes == pairs_kept(&p)) {
        Note now = note_saved(k->c, k->v, k->args, k->b, s->at);
        if (now.plan == s->note.plan && now.call == s->note.call)
            p.kept = s->at;
    }
    return p;
}

/* A mask over all pairs of tokens has neither a plan nor states. */
static void run_mask(Back *k)
{
    if (on_device_pairs(k->v, k->args, k->b)) {
        PairsCall p = device_pairs(k);
        pairs_run(k->c, k->v->shared.gpu, &k->v->pairs, &p);
        return;
    }
    View dx[MAX_INPUTS] = { { 0 } };
    View dy = result_view(k->step, 0, &k->d->dy[0]);

    k->dtype = k->args->mode == M_REFERENCE_BACKWARD ? F64 : F32;
    k->call = k->b->call;
    for (int i = 0; i < k->step->nin; i++)
        if (k->d->dx[i].given)
            dx[i] = gradient_view(k, i);
    mask_back(k->c, k->step, &k->call, &dy, dx);
}

static void run_window(Back *k, const WindowPlans *w)
{
    View dx[MAX_INPUTS] = { { 0 } };

    k->dtype = F32;
    k->call = k->b->call;
    for (int i = 0; i < k->step->nin; i++)
        if (k->d->dx[i].given)
            dx[i] = gradient_view(k, i);
    window_backward(k->c, k->v, w, k->b, k->d, dx);
}

/* By the joint plan, whole or from what has been stored on. */
static void run_joint(Back *k)
{
    find_plans(k);
    k->stored = fits_stored(k);
    if (k->b->call.on_device)
        bind_device_back(k);
    else
        bind_back(k);
    if (k->forward)
        run_segments(k, count_segments(k));
    else
        run_entry(k, k->plan, &k->call);
}

/* Kernels of plans write gradients; parts of layers can add to them. */
static void check_sums(Back *k)
{
    bool layer = k->step->layer && k->args->mode == M_BACKWARD;

    for (int i = 0; i < k->step->nin; i++) {
        const char *name = k->step->in[i].name;
        if (!k->d->add[i])
            continue;
        if (!layer)
            fail_help(k->c, 0, "add them up behind the call", "%s: %s: %s "
                      "gives gradients, and adds none up: layers do",
                      mode_name[k->args->mode], name, k->step->name);
        check_device(k, name, &k->d->dx[i]);
        check_shape(k->c, mode_name[k->args->mode], name, &k->d->dx[i],
                    k->args->in[i].rank, k->args->in[i].shape);
    }
}

/* Layers can write a gradient over what it is of, and know of which of their
 * parts' inputs. */
static void check_apart(const Back *k)
{
    for (int i = 0; i < k->step->nin; i++)
        if (overwrites(&k->d->dx[i], &k->args->in[i])
            && !(k->step->layer && k->args->mode == M_BACKWARD)
            && !k->args->part)
            fail_help(k->c, 0, "a tensor of its own for the gradient",
                      "%s: %s cannot be written over by its gradient: layers' "
                      "inputs can", mode_name[k->args->mode],
                      k->step->in[i].name);
}

bool run_backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                  const Adjoint *d)
{
    Back *k = back_new(c, v, a, b, d);

    check_floats(k);
    check_adjoints(k);
    check_apart(k);
    check_sums(k);
    const WindowPlans *w = window_plans(c, v, a, b, d);
    const LayerRuns *parts = runs_of(c, v, a, b, d);
    ctx_doing(c, mode_name[a->mode], v->step->name);
    if (parts)
        parts->backward(c, v, a, b, d);
    else if (v->step->mask)
        run_mask(k);
    else if (w)
        run_window(k, w);
    else
        run_joint(k);
    for (int i = 0; i < v->step->nin; i++)
        if (k->sums[i].data)
            sum_gradient(k, i);
    const PlanEntry *e = k->plan;
    if (parts && !e)
        e = parts->plan(c, v, a, b);
    if (e || !b->call.on_device)
        validate_gradients(c, v, a, b, e, d);
    return k->stored;
}

/* ---- without running ---- */

/* Row-major: a stride of 0 would say that rows are added up. */
static void lay_out(Given *t)
{
    for (int64_t i = t->rank, each = 1; i-- > 0; each *= t->shape[i])
        t->stride[i] = each;
}

Adjoint *all_gradients(Ctx *c, const Graph *step, const Args *a,
                       const Bound *b)
{
    Adjoint *d = ctx_alloc(c, sizeof *d);
    void *some = b->call.on_device ? (void *)ROOM_ALIGN : NULL;

    for (int o = 0; o < step->nout; o++) {
        Given *dy = &d->dy[o];
        *dy = (Given){ .given = true, .dtype = y_dtype(step, b) };
        dy->rank = result_shape(step, b, o, dy->shape);
        lay_out(dy);
    }
    for (int i = 0; i < step->nin; i++) {
        if (step->in[i].index_of)
            continue;
        d->dx[i] = a->in[i];
        d->dx[i].data = some;
    }
    for (int i = 0; i < step->nst; i++) {
        d->ds[i] = (Given){ .given = true, .data = some,
                            .dtype = b->state_dtype };
        d->ds[i].rank = state_shape(step, b, i, d->ds[i].shape);
        lay_out(&d->ds[i]);
        d->dstate[i] = d->ds[i];
    }
    return d;
}

Call joint_call(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    Adjoint *d = all_gradients(c, v->step, a, b);
    Back *k = back_new(c, v, a, b, d);

    for (int o = 0; o < v->step->nout; o++)
        d->dy[o].data = (void *)ROOM_ALIGN;
    k->room = ROOM_ALIGN;
    find_plans(k);
    bind_back(k);
    return k->call;
}

bool gradient_lies_over(Ctx *c, Variant *v, const Args *a, const Bound *b,
                        int i, int over)
{
    Adjoint *d = all_gradients(c, v->step, a, b);
    Back *k = back_new(c, v, a, b, d);

    if (v->step->mask || runs_of(c, v, a, b, NULL) || !b->call.on_device
        || window_plans(c, v, a, b, NULL) || !v->step->in[i].timed
        || b->call.in[i].heads != b->call.heads)
        return false;
    for (int o = 0; o < v->step->nout; o++)
        d->dy[o].data = (void *)ROOM_ALIGN;
    k->room = ROOM_ALIGN;
    find_plans(k);
    bind_back(k);
    return !k->forward && k->plan->backend->lies_over
        && k->plan->backend->lies_over(c, k->plan->program, &k->call,
                             result_of(k, v->step->in[i].name),
                             over == OVER_DY ? graph_find_input(k->joint, "dy")
                                             : over);
}

void prepare_backward(Ctx *c, Variant *v, const Args *a, const Bound *b)
{
    Back *k = back_new(c, v, a, b, all_gradients(c, v->step, a, b));
    const LayerRuns *parts = runs_of(c, v, a, b, NULL);
    PlanEntry *e;

    if (parts) {
        parts->prepare(c, v, a, b);
        return;
    }
    if (v->step->mask) {
        if (on_device_pairs(v, a, b)) {
            PairsCall p = device_pairs(k);
            pairs_prepare(c, v->shared.gpu, &v->pairs, &p);
        }
        return;
    }
    if (a->mode == M_BACKWARD)
        window_prepare(c, v, a, b, M_FORWARD);  /* alone */
    window_prepare(c, v, a, b, a->mode);
    find_plans(k);
    e = k->plan;
    if (e->backend->prepare) {
        bind_back(k);
        e->backend->prepare(c, e->program, e->plan, &k->call);
    }
}

int64_t room_backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                      const Adjoint *d)
{
    Back *k = back_new(c, v, a, b, d);

    if (v->step->mask) {
        PairsCall p = device_pairs(k);
        return pairs_workspace(c, v->shared.gpu, &v->pairs, &p);
    }
    find_plans(k);
    k->stored = fits_stored(k);
    return count_room(k);
}

int64_t workspace_backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                           Stored stored)
{
    Adjoint *d = all_gradients(c, v->step, a, b);
    Back *k = back_new(c, v, a, b, d);
    int64_t segments = 1, need, more;

    const LayerRuns *parts = runs_of(c, v, a, b, NULL);

    d->stored = stored;
    if (parts)
        return parts->workspace(c, v, a, b, d);
    if (v->step->mask && !on_device_pairs(v, a, b))
        return 0;
    if (v->step->mask) {
        PairsCall p = device_pairs(k);
        return pairs_workspace(c, v->shared.gpu, &v->pairs, &p);
    }
    if (window_plans(c, v, a, b, NULL))
        return 0;
    find_plans(k);
    k->stored = fits_stored(k);
    if (!k->plan->backend->workspace)
        return 0;
    if (b->call.on_device)
        return count_room(k);
    bind_back(k);
    if (k->forward)
        segments = count_segments(k);
    need = kernels_need(k, k->plan, segments);
    more = kernels_need(k, k->forward, segments);
    return more > need ? more : need;
}
