/* api_call.c -- flin.h: the structs of a call become arguments, checked and
 * bound as a script's are.
 */
#include <string.h>

#include "api.h"
#include "truth.h"

bool runs_backwards(Mode m)
{
    return m == M_BACKWARD || m == M_REFERENCE_BACKWARD;
}

HostCall *host_call(Ctx *c, Mode mode, const flin_Call *call,
                    const flin_Grad *grad)
{
    HostCall *h = ctx_alloc(c, sizeof *h);

    h->args.mode = mode;
    if (!take_struct(&h->call, sizeof h->call, call)
        || !take_struct(&h->grad, sizeof h->grad, grad))
        fail_help(c, 0, "call.size = sizeof call, grad.size = sizeof grad",
                  "%s: the size of the flin_Call is %zu, that of the flin_Grad "
                  "%zu: no such structs are known", mode_name[mode],
                  h->call.size, h->grad.size);
    return h;
}

/* ---- tensors ---- */

static bool is_empty(const flin_Tensor *t)
{
    for (int i = 0; i < t->rank && i < TENSOR_RANK; i++)
        if (t->shape[i] == 0)
            return true;
    return false;
}

static bool is_given(const HostCall *h, const flin_Tensor *t)
{
    return t->data || is_empty(t) || (h->sizes && t->rank > 0);
}

/* Where no element lies. */
static const char nowhere[1];

static Given given(Ctx *c, const HostCall *h, const char *name,
                   const flin_Tensor *t)
{
    const char *what = mode_name[h->args.mode];
    Given g = { .given = true, .device = h->device, .data = t->data,
                .dtype = (DType)t->dtype, .rank = t->rank };

    if (t->rank < 0 || t->rank > TENSOR_RANK)
        fail(c, 0, "%s: %s has rank %d: at most %d is possible", what, name,
             t->rank, TENSOR_RANK);
    if ((unsigned)t->dtype >= NDTYPES)
        fail(c, 0, "%s: %s: there is no dtype %d", what, name, (int)t->dtype);
    place_tensor(c, what, name, t, &g);
    if (!h->sizes && (uintptr_t)g.data % (unsigned)dtype_size(g.dtype))
        fail(c, 0, "%s: %s is not aligned to its elements of %d bytes", what,
             name, dtype_size(g.dtype));
    if (!g.data && is_empty(t))
        g.data = (void *)nowhere;
    return g;
}

/* ---- arguments ---- */

/* What the names of a list are of. */
typedef enum Named { OF_STATES, OF_INPUTS, OF_RESULTS } Named;
static const char *const named[] = { "state", "input", "result" };

static int find_named(const Graph *g, Named what, const char *name)
{
    return what == OF_INPUTS ? graph_find_input(g, name)
         : what == OF_STATES ? graph_find_state(g, name)
         : graph_find_output(g, name);
}

/* A list of the call's: where its tensors go, by name. */
typedef struct Binds {
    const char *of;                     /* "dinput" or "", for messages */
    const char *field;                  /* of the struct */
    const flin_Bind *list;
    int n;
    Named named;
    Given *to;
} Binds;

static void take_binds(Ctx *c, const Graph *g, const HostCall *h, Binds b)
{
    const char *what = mode_name[h->args.mode];
    int most = b.named == OF_INPUTS ? g->nin
             : b.named == OF_STATES ? g->nst : g->nout;

    if (b.n < 0 || b.n > most)
        fail(c, 0, "%s: n%s = %d, but %s has %d %ss", what, b.field, b.n,
             g->name, most, named[b.named]);
    if (b.n && !b.list)
        fail(c, 0, "%s: n%s = %d, but %s is NULL", what, b.field, b.n,
             b.field);
    for (int i = 0; i < b.n; i++) {
        const char *name = b.list[i].name ? b.list[i].name : "(NULL)";
        int at = find_named(g, b.named, name);
        if (at < 0)
            fail(c, 0, "%s: %sthere is no %s '%s'", what, *b.of
                 ? ctx_format(c, "%s: ", b.of) : "",
                 named[b.named], name);
        if (b.to[at].given)
            fail(c, 0, "%s: %s is given twice", what, name);
        if (is_given(h, &b.list[i].tensor))
            b.to[at] = given(c, h, *b.of ? ctx_format(c, "%s.%s", b.of,
                             name) : name, &b.list[i].tensor);
    }
}

static void take_device(Ctx *c, HostCall *h)
{
    const flin_Call *k = &h->call;
    const char *what = mode_name[h->args.mode];

    h->args.backend = backend_named(k->backend ? k->backend : "cpu");
    if (!h->args.backend)
        fail_help(c, 0, ctx_format(c, "backends here: %s", backend_names()),
                  "%s: there is no backend '%s'", what, k->backend);
    h->device = h->args.backend == backend_named("cuda");
    h->args.device_cu = k->cu_seqlens_device;
    if (k->cu_seqlens_device && !h->device)
        fail_help(c, 0, "cu_seqlens", "%s: cu_seqlens_device is for backend "
                  "\"cuda\"", what);
    if ((uintptr_t)k->workspace % 256)
        fail(c, 0, "%s: the workspace is not aligned to 256 bytes", what);
    if (!k->workspace && k->workspace_size)
        fail(c, 0, "%s: workspace_size = %zu, but workspace is NULL", what,
             k->workspace_size);
}

static void check_saved(Ctx *c, const HostCall *h)
{
    const char *what = mode_name[h->args.mode];

    if (!h->call.saved)
        return;
    if (h->args.mode != M_FORWARD && h->args.mode != M_BACKWARD)
        fail_help(c, 0, "saved = NULL", "%s: neither leaves nor takes what is "
                  "saved: that is for forward and backward", what);
    if ((uintptr_t)h->call.saved->data % 256)
        fail(c, 0, "%s: saved.data is not aligned to 256 bytes", what);
    if (!h->sizes && !h->call.saved->data && h->call.saved->bytes)
        fail(c, 0, "%s: saved.bytes = %zu, but saved.data is NULL", what,
             h->call.saved->bytes);
}

static void take_sequences(Ctx *c, HostCall *h)
{
    const flin_Call *k = &h->call;
    const char *what = mode_name[h->args.mode];
    uintptr_t host = (uintptr_t)k->cu_seqlens;
    uintptr_t device = (uintptr_t)k->cu_seqlens_device;

    if (k->nseq < 0 || k->nseq > INT32_MAX)
        fail(c, 0, "%s: nseq = %lld: it must be from 0 to %d", what,
             (long long)k->nseq, INT32_MAX);
    if (k->nseq && !host && !device)
        fail(c, 0, "%s: nseq = %lld, but cu_seqlens is NULL", what,
             (long long)k->nseq);
    if ((host | device) % sizeof(int64_t))
        fail(c, 0, "%s: cu_seqlens is not aligned to its elements of 8 bytes",
             what);
    h->args.cu = k->cu_seqlens;
    h->args.ncu = k->nseq + 1;
}

static void take_index(Ctx *c, HostCall *h)
{
    const flin_Tensor *t = &h->call.state_index;

    if (is_given(h, t))
        h->args.index = given(c, h, "state_index", t);
    if (h->args.index.given && !h->args.index.data)
        h->args.index.data = (void *)nowhere;   /* it is not looked at */
}

static void take_arguments(Ctx *c, const Graph *g, HostCall *h)
{
    const flin_Call *k = &h->call;

    if (!k->size)
        fail_help(c, 0, "call.size = sizeof call", "%s: the size of the "
                  "flin_Call is 0", mode_name[h->args.mode]);
    take_device(c, h);
    check_saved(c, h);
    take_binds(c, g, h, (Binds){ "", "inputs", k->input, k->ninputs, OF_INPUTS,
                                 h->args.in });
    take_binds(c, g, h, (Binds){ "", "initial", k->initial, k->ninitial,
                                 OF_STATES,
                                 h->args.state });
    take_sequences(c, h);
    take_index(c, h);
    h->args.chunk = k->chunk;
    h->args.threads = k->threads;
    h->args.validate = k->validate;
    if (k->plan && !fusion_named(k->plan, &h->args.fusion))
        fail_help(c, 0, "\"separate\", \"fused\", \"whole\", "
                  "\"tiles\", \"pieces\", \"stack\", NULL",
                  "%s: there is no plan '%s'", mode_name[h->args.mode],
                  k->plan);
    if (k->memory < 0)
        fail(c, 0, "%s: memory = %lld: bytes, or 0 for any",
             mode_name[h->args.mode], (long long)k->memory);
    h->args.memory = k->memory;
    if (k->memory && !g->layer)
        fail(c, 0, "%s: memory: %s is no layer", mode_name[h->args.mode],
             g->name);
    h->args.spend = k->spend;
    h->args.checkpoint = k->checkpoint;
    if (k->checkpoint && !g->layer)
        fail(c, 0, "%s: checkpoint: %s is no layer", mode_name[h->args.mode],
             g->name);
    if (h->args.fusion != FUSE_CHEAPEST && !g->layer)
        fail(c, 0, "%s: plan: %s is no layer: there is nothing that it could "
             "be fused with", mode_name[h->args.mode], g->name);
}

/* ---- results ---- */

static void check_states(Ctx *c, const Graph *g, const HostCall *h,
                         const char *of, const Given *state)
{
    const char *what = mode_name[h->args.mode];
    int64_t shape[TENSOR_RANK];

    for (int i = 0; i < g->nst; i++) {
        int rank = state_shape(g, &h->bound, i, shape);
        if (state[i].given)
            check_shape(c, what, *of ? ctx_format(c, "%s.%s", of,
                        g->st[i].name) : g->st[i].name, &state[i], rank,
                        shape);
    }
}

static void take_results(Ctx *c, const Graph *g, HostCall *h)
{
    const flin_Call *k = &h->call;
    const char *what = mode_name[h->args.mode];
    int64_t shape[TENSOR_RANK];

    if (is_given(h, &k->y))
        h->result[0] = given(c, h, "y", &k->y);
    take_binds(c, g, h, (Binds){ "", "result", k->result, k->nresult,
                                 OF_RESULTS, h->result });
    for (int o = 0; o < g->nout; o++) {
        int rank = result_shape(g, &h->bound, o, shape);
        if (!h->result[o].given)
            continue;
        check_shape(c, what, g->out[o].name, &h->result[o], rank, shape);
        h->bound.call.out[o] = result_view(g, o, &h->result[o]);
    }
    h->final = ctx_alloc(c, MAX_STATES * sizeof *h->final);
    take_binds(c, g, h, (Binds){ "", "final", k->final, k->nfinal, OF_STATES,
                                 h->final });
    check_states(c, g, h, "", h->final);
    for (int i = 0; i < g->nst; i++)
        if (h->final[i].given)
            h->bound.call.s1[i] = final_view(g, &h->bound, i, &h->final[i]);
}

static void take_gradients(Ctx *c, const Graph *g, HostCall *h)
{
    const flin_Grad *k = &h->grad;
    const char *what = mode_name[h->args.mode];
    Adjoint *d = h->adjoint = ctx_alloc(c, sizeof *d);

    if (!k->size)
        fail_help(c, 0, "grad.size = sizeof grad", "%s: there is no flin_Grad, "
                  "or its size is 0", what);
    if (is_given(h, &k->dy))
        d->dy[0] = given(c, h, "dy", &k->dy);
    take_binds(c, g, h, (Binds){ "dfinal", "dfinal", k->dfinal, k->ndfinal,
                                 OF_STATES, d->dstate });
    take_binds(c, g, h, (Binds){ "dinput", "dinput", k->dinput, k->ndinput,
                                 OF_INPUTS, d->dx });
    take_binds(c, g, h, (Binds){ "dinitial", "dinitial", k->dinitial,
                                 k->ndinitial, OF_STATES, d->ds });
    for (int i = 0; i < g->nin; i++)
        d->add[i] = k->add && d->dx[i].given && !g->in[i].timed;
    take_binds(c, g, h, (Binds){ "dresult", "dresult", k->dresult,
                                 k->ndresult, OF_RESULTS, d->dy });
    bool any = k->ndfinal;
    for (int o = 0; o < g->nout; o++)
        any = any || d->dy[o].given;
    if (!any)
        fail_help(c, 0, "the gradient of y, those of final states",
                  "%s: neither dy nor dfinal is given", what);
    check_states(c, g, h, "dfinal", d->dstate);
    check_states(c, g, h, "dinitial", d->ds);
    for (int i = 0; i < g->nin; i++)
        if (d->dx[i].given)
            check_shape(c, what, ctx_format(c, "dinput.%s", g->in[i].name),
                        &d->dx[i], h->args.in[i].rank, h->args.in[i].shape);
}

void host_bind(Ctx *c, const Graph *step, HostCall *h)
{
    take_arguments(c, step, h);
    h->args.unread = h->sizes;
    bind_call(c, step, &h->args, &h->bound);
    h->bound.call.stream = h->call.stream;
    h->bound.call.in_parts = h->call.in_parts;
    h->bound.call.workspace = h->call.workspace;
    h->bound.call.workspace_size = (int64_t)h->call.workspace_size;
    h->args.leaves = h->sizes && h->call.spend && h->call.y.data;
    if (!runs_backwards(h->args.mode) || h->args.leaves)
        take_results(c, step, h);
    else if (!h->sizes)
        take_gradients(c, step, h);
    if (!h->sizes)
        check_overlaps(c, step, h);
}

/* ---- saved ---- */

/* Memory without a place has no room, but is asked for it. */
static Stored host_room(const HostCall *h)
{
    const flin_Saved *s = h->call.saved;
    Stored room = { .device = h->device };

    if (s) {
        room.at = s->data ? s->data : (void *)nowhere;
        room.bytes = s->data ? (int64_t)s->bytes : 0;
    }
    return room;
}

static void check_room(Ctx *c, const HostCall *h, Stored room, int64_t bytes)
{
    if (room.bytes < bytes)
        fail(c, 0, "%s: saved.bytes = %lld: this call saves %lld bytes",
             mode_name[h->args.mode], (long long)room.bytes,
             (long long)bytes);
}

/* Of a way back that has begun `call` is another, and `place` says with what
 * dy, and where. */
static const uint64_t went_back = 4;

static uint64_t place_back(const HostCall *h)
{
    const Adjoint *d = h->adjoint;
    const void *room = h->call.workspace;
    uint64_t found = hash_bytes(1, &room, sizeof room);

    for (int o = 0; o < MAX_RESULTS; o++) {
        const Given *t = &d->dy[o];
        if (!t->given)
            continue;
        const int64_t more[] = { o, (int64_t)(uintptr_t)t->data, t->dtype };
        found = hash_bytes(found, more, sizeof more);
        found = hash_bytes(found, t->stride, sizeof t->stride);
    }
    return found | 1;
}

/* What backward is to start from must be what forward has left for it. */
static void check_note(Ctx *c, const flin_Saved *s, const Note *now)
{
    const char *what = mode_name[M_BACKWARD];
    bool begun = s->call == (now->call ^ went_back);

    if (!s->plan)
        fail_help(c, 0, "flin_forward with the same flin_Saved", "%s: saved: "
                  "no forward call has left anything there", what);
    if (s->plan != now->plan)
        fail(c, 0, "%s: saved is of another variant or kernel, or of other "
             "sizes of axes, chunk or backend", what);
    if (s->call != now->call && !begun)
        fail(c, 0, "%s: saved is of a call with another B, T or number of "
             "heads, other sequences, types or initial states", what);
    if (!begun && s->place && s->place != now->place)
        fail_help(c, 0, "saved.place = 0, where they hold what they held",
                  "%s: saved is of a call whose inputs, initial states or "
                  "saved.data lay elsewhere", what);
}

Stored host_stored(Ctx *c, Variant *v, const HostCall *h)
{
    Stored room = host_room(h), s = room;

    s.bytes = room.at ? saved_bytes(c, v, &h->args, &h->bound) : 0;
    if (!s.bytes)
        return s;
    s.note = note_saved(c, v, &h->args, &h->bound, s.at);
    if (!h->sizes)
        check_room(c, h, room, s.bytes);
    if (!h->sizes && runs_backwards(h->args.mode))
        check_note(c, h->call.saved, &s.note);
    return s;
}

static void set_note(flin_Saved *s, Note note)
{
    if (!s)
        return;
    s->plan = note.plan;
    s->call = note.call;
    s->place = note.place;
}

/* Of a call that has begun: of the same, whatever it starts from, but no other
 * than of one that has ended. */
static Note note_begun(Ctx *c, Variant *v, const HostCall *h, const void *at)
{
    const uint64_t begun = 2;
    Bound b = h->bound;

    memset(b.call.s0, 0, sizeof b.call.s0);
    Note note = note_saved(c, v, &h->args, &b, at);
    note.call ^= begun;
    return note;
}

static void check_begun(Ctx *c, Variant *v, const HostCall *h, Stored room)
{
    const flin_Saved *s = h->call.saved;

    if (!s || !s->plan)
        fail_help(c, 0, "flin_summary with the same flin_Saved", "forward: "
                  "begun: nothing has been begun in `saved`");
    Note now = note_begun(c, v, h, room.at);
    if (s->plan != now.plan || s->call != now.call
        || (s->place && s->place != now.place))
        fail(c, 0, "forward: begun: what has been begun in `saved` is another "
             "call");
}

/* By the plan of both passes. An interrupted run has left nothing. */
static void run_first(Ctx *c, Variant *v, HostCall *h)
{
    Stored room = host_room(h);

    room.begun = h->call.begun;
    if (room.begun)
        check_begun(c, v, h, room);
    set_note(h->call.saved, (Note){ 0 });
    if (room.at)
        room.note = note_saved(c, v, &h->args, &h->bound, room.at);
    check_room(c, h, room, run_saved(c, v, &h->args, &h->bound, room));
    set_note(h->call.saved, room.note);
}

static void check_parts(Ctx *c, const HostCall *h)
{
    const Adjoint *d = h->adjoint;
    Mode mode = h->args.mode;
    bool back = mode == M_BACKWARD, starts = false, more = false;

    if (h->call.begun && (!h->call.saved || (runs_backwards(mode) && !back)))
        fail(c, 0, "%s: begun: that is for a call that saves, or goes back "
             "from what one has saved", mode_name[mode]);
    if (back && (h->call.begun || h->call.begins)
        && (!h->call.saved || !h->call.workspace))
        fail(c, 0, "backward: begun and begins: with `saved` and a workspace "
             "that is the same for both");
    for (int i = 0; back && i < MAX_INPUTS; i++)
        more |= d->dx[i].given;
    for (int i = 0; back && i < MAX_STATES; i++)
        starts |= d->ds[i].given;
    if (h->call.spend && h->call.begins)
        fail(c, 0, "%s: spend: another call goes on from what is saved",
             mode_name[mode]);
    if (h->call.begins && (!starts || more))
        fail(c, 0, "%s: begins: that is for a backward call that gives "
             "dinitial alone", mode_name[mode]);
}

/* From what is saved, and on from where another has begun it, or so that one
 * may. */
static void run_back(Ctx *c, Variant *v, HostCall *h)
{
    flin_Saved *s = h->call.saved;
    Stored *from = &h->adjoint->stored;

    *from = host_stored(c, v, h);
    from->begun = h->call.begun && from->bytes
               && s->call == (from->note.call ^ went_back);
    if (from->begun && s->place != place_back(h))
        fail(c, 0, "backward: begun: what has begun it had another dy or "
             "workspace");
    if (h->call.spend)
        set_note(s, (Note){ 0 });
    bool went = run_backward(c, v, &h->args, &h->bound, h->adjoint);
    if (h->call.begins && went)
        set_note(s, (Note){ from->note.plan, from->note.call ^ went_back,
                            place_back(h) });
}

void host_run(Ctx *c, Variant *v, HostCall *h)
{
    Mode mode = h->args.mode;

    check_parts(c, h);
    if (h->joint
        || (mode == M_FORWARD && host_stored(c, v, h).bytes > 0)) {
        run_first(c, v, h);
    } else if (runs_backwards(mode)) {
        if (mode == M_BACKWARD)
            run_back(c, v, h);
        else
            run_backward(c, v, &h->args, &h->bound, h->adjoint);
    } else {
        run_bound(c, v, &h->args, &h->bound);
    }
}

/* ---- calls of a variant ---- */

/* A call, in a context of its own; `shape` asks for a result's alone, `saved`
 * for what it saves. */
typedef struct Single {
    flin_Variant *v;
    Mode mode;
    const flin_Call *call;
    const flin_Grad *grad;
    flin_Tensor *shape;
    int arg;
    int64_t *saved;
    double *seconds;                    /* both ways, or forward alone */
    bool both_ways;
    const flin_Tensor *transition;      /* of a summary */
    flin_Transition *carried;           /* what it is like, alone */
    int *stages;                        /* how many there are, alone */
    HostCall *by_function;              /* bound; the variant's own function is
                                           to have its turn */
} Single;

static void find_shape(Ctx *c, const Single *s, HostCall *h)
{
    const Graph *g = states_graph(s->v->v);
    int o = s->arg - g->nin, state = o - g->nout;

    if (o < 0 || state >= g->nst)
        fail(c, 0, "flin_shape: argument %d is no result", s->arg);
    h->sizes = true;
    take_arguments(c, g, h);
    h->args.unread = true;
    bind_call(c, g, &h->args, &h->bound);
    memset(s->shape, 0, sizeof *s->shape);
    s->shape->dtype = (flin_DType)(state < 0 ? y_dtype(g, &h->bound)
                                             : h->bound.state_dtype);
    s->shape->rank = state < 0 ? result_shape(g, &h->bound, o,
                                                s->shape->shape)
        : state_shape(g, &h->bound, state, s->shape->shape);
}

static void find_saved(Ctx *c, const Single *s, HostCall *h)
{
    h->sizes = true;
    host_bind(c, s->v->v->step, h);
    *s->saved = saved_bytes(c, s->v->v, &h->args, &h->bound);
}

static void find_seconds(Ctx *c, const Single *s, HostCall *h)
{
    h->sizes = true;
    host_bind(c, s->v->v->step, h);
    *s->seconds = bound_seconds(c, s->v->v, &h->args, &h->bound,
                                s->both_ways);
}

static void summarize(Ctx *c, const Single *s, HostCall *h)
{
    const Graph *g = s->v->v->step;
    int64_t shape[TENSOR_RANK];
    Given to[MAX_STATES];
    Transition t;

    find_transition(c, g, &t);
    for (int i = 0; i < t.n; i++) {
        to[i] = given(c, h, "transition", &s->transition[i]);
        int rank = transition_shape(g, &t, &h->bound, shape);
        check_shape(c, "summary", "transition", &to[i], rank, shape);
    }
    for (int o = 0; o < g->nout; o++)
        if (h->bound.call.out[o].data)
            fail(c, 0, "summary: there is no y");
    Stored room = host_room(h);
    set_note(h->call.saved, (Note){ 0 });
    if (!h->call.saved
        || !run_beginning(c, s->v->v, &h->args, &h->bound, to, room))
        run_summary(c, s->v->v, &h->args, &h->bound, to);
    else
        set_note(h->call.saved, note_begun(c, s->v->v, h, room.at));
}

/* Where a host finds that state. */
static int argument_of(const Graph *g, int state)
{
    return g->nin + g->nout + state;
}

static void find_carried(Ctx *c, const Single *s)
{
    static const flin_Carry kind[] = {
        [CARRY_ENTRIES] = FLIN_CARRY_ENTRIES, [CARRY_MAX] = FLIN_CARRY_MAX,
        [CARRY_ROWS] = FLIN_CARRY_ROWS, [CARRY_MATRIX] = FLIN_CARRY_MATRIX,
    };
    const Graph *g = s->v->v->step;
    flin_Transition *to = s->carried;
    Transition t;

    find_transition(c, g, &t);
    if (t.n > FLIN_BLOCK)
        fail(c, 0, "%s: %d states are found together: at most %d are possible",
             g->name, t.n, FLIN_BLOCK);
    to->carry = kind[t.carry];
    to->axis = t.carry <= CARRY_MAX ? NULL : g->axis[t.kappa].name;
    to->rank = t.carry <= CARRY_MAX ? g->st[t.state].rank + state_lead(g)
             : t.mixes ? 4 : 3;
    to->nstates = 0;
    for (int i = 0; i < g->nst; i++)
        if (t.of & STATE(i))
            to->state[to->nstates++] = argument_of(g, i);
}

static void count_stages(Ctx *c, const Single *s)
{
    const Graph *g = s->v->v->step;
    Stages all;
    const char *why = stages_of(c, g, &all);

    if (why)
        fail(c, 0, "%s has no stages: %s", g->name, why);
    *s->stages = all.n;
}

/* With states, where all pairs are taken, what keeps them runs. */
static Variant *called_variant(const Single *s, const HostCall *h)
{
    bool whole = s->mode == M_FORWARD || s->mode == M_REFERENCE;
    bool states = h->call.ninitial || h->call.nfinal;

    return variant_of_call(s->v->v, mode_steps(s->mode)
                                    || (whole && states && !s->transition));
}

static void run_single(Ctx *c, void *ud)
{
    Single *s = ud;

    if (s->carried || s->stages) {
        (s->carried ? find_carried : count_stages)(c, s);
        return;
    }
    HostCall *h = host_call(c, s->mode, s->call, s->grad);

    if (s->shape) {
        find_shape(c, s, h);
        return;
    }
    if (s->saved) {
        find_saved(c, s, h);
        return;
    }
    if (s->seconds) {
        find_seconds(c, s, h);
        return;
    }
    Variant *v = called_variant(s, h);
    host_bind(c, v->step, h);
    if (s->transition) {
        summarize(c, s, h);
        return;
    }
    bool exact = s->mode == M_REFERENCE || s->mode == M_REFERENCE_BACKWARD;
    if (exact && v->has_function && !s->by_function) {
        s->by_function = h;
        return;
    }
    host_run(c, v, h);
    const char *line = road_taken(c, v, &h->args);
    if (line)
        host_say(s->v->s, line);
}

static void try_single(Ctx *c, void *ud)
{
    plans_try(c, ((Single *)ud)->v->v, run_single, ud);
}

typedef struct Asked { Single *s; Ctx *c; } Asked;

/* The reference, from the function on; or, before gradients, a look at it. */
static int run_function(lua_State *L)
{
    const Asked *a = lua_touserdata(L, 1);
    const HostCall *h = a->s->by_function;
    Run *r = lua_newuserdatauv(L, sizeof *r, 0);

    *r = (Run){ .ctx = a->c, .v = a->s->v->v, .args = h->args,
                .bound = h->bound };
    lua_rawgeti(L, LUA_REGISTRYINDEX, a->s->v->ref);
    lua_insert(L, 1);
    if (a->s->mode == M_REFERENCE)
        reference_call(L, r);
    else
        truth_hold(L, r);
    return 0;
}

/* Not of a script's budget: the host has asked for it. */
static bool call_function(Single *s, Ctx *c, flin_Error *e)
{
    flin_State *host = s->v->s;
    uint64_t budget = budget_suspend(host->L);
    Asked a = { s, c };

    lua_pushlightuserdata(host->L, &a);
    bool ok = api_protect(host, host->L, run_function, 1, 0, e);
    budget_resume(host->L, budget);
    return ok;
}

static int run(Single s, flin_Error *e)
{
    if (!not_null(s.v, "the flin_Variant", e))
        return FLIN_ERROR;
    Ctx *c = host_ctx(s.v->s);
    int code = FLIN_OK;
    flin_Error own = { .code = FLIN_OK };

    set_error(e, FLIN_OK, "");
    if (!c)
        return set_error(e, FLIN_ERROR_MEMORY, "out of memory");
    bool ok = ctx_protect(c, try_single, &s);
    if (ok && s.by_function) {
        flin_Error *to = e ? e : &own;
        if (!call_function(&s, c, to))
            code = to->code;
        else if (s.mode != M_REFERENCE)
            ok = ctx_protect(c, try_single, &s);
    }
    if (!ok)
        code = take_error(e, &c->err, NULL);
    ctx_free(c);
    return code;
}

int flin_forward(flin_Variant *v, const flin_Call *call, flin_Error *e)
{
    return run((Single){ .v = v, .mode = M_FORWARD, .call = call }, e);
}

int flin_summary(flin_Variant *v, const flin_Call *call,
                 const flin_Tensor *transition, flin_Error *e)
{
    if (!not_null(transition, "the flin_Tensor", e))
        return FLIN_ERROR;
    return run((Single){ .v = v, .mode = M_FORWARD, .call = call,
                         .transition = transition }, e);
}

int flin_transition(flin_Variant *v, flin_Transition *to, flin_Error *e)
{
    if (!not_null(to, "the flin_Transition", e))
        return FLIN_ERROR;
    return run((Single){ .v = v, .mode = M_FORWARD, .carried = to }, e);
}

int flin_stages(flin_Variant *v, flin_Error *e)
{
    int stages = -1;

    return run((Single){ .v = v, .mode = M_FORWARD, .stages = &stages }, e)
         ? -1 : stages;
}

int flin_reference(flin_Variant *v, const flin_Call *call, flin_Error *e)
{
    return run((Single){ .v = v, .mode = M_REFERENCE, .call = call }, e);
}

int flin_step(flin_Variant *v, const flin_Call *call, flin_Error *e)
{
    return run((Single){ .v = v, .mode = M_STEP, .call = call }, e);
}

int flin_verify(flin_Variant *v, const flin_Call *call, flin_Error *e)
{
    return run((Single){ .v = v, .mode = M_VERIFY, .call = call }, e);
}

int flin_backward(flin_Variant *v, const flin_Call *call,
                  const flin_Grad *grad, flin_Error *e)
{
    return run((Single){ .v = v, .mode = M_BACKWARD, .call = call,
                         .grad = grad }, e);
}

int flin_reference_backward(flin_Variant *v, const flin_Call *call,
                            const flin_Grad *grad, flin_Error *e)
{
    return run((Single){ .v = v, .mode = M_REFERENCE_BACKWARD, .call = call,
                         .grad = grad }, e);
}

int flin_shape(flin_Variant *v, const flin_Call *call, int i, flin_Tensor *t,
               flin_Error *e)
{
    if (!not_null(t, "the flin_Tensor", e))
        return FLIN_ERROR;
    return run((Single){ .v = v, .mode = M_FORWARD, .call = call, .shape = t,
                         .arg = i }, e);
}

int64_t flin_saved(flin_Variant *v, const flin_Call *call, flin_Error *e)
{
    int64_t bytes = 0;

    return run((Single){ .v = v, .mode = M_FORWARD, .call = call,
                         .saved = &bytes }, e) ? -1 : bytes;
}

double flin_seconds(flin_Variant *v, int both_ways, const flin_Call *call,
                    flin_Error *e)
{
    double seconds = 0;

    return run((Single){ .v = v, .mode = M_FORWARD, .call = call,
                         .seconds = &seconds, .both_ways = both_ways }, e)
        ? -1 : seconds;
}
