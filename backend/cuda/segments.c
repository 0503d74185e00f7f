/* segments.c -- few long sequences, cut in segments; see segments.h. */
#include "segments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../compiler/grad.h"
#include "driver_entry.h"
#include "run.h"

enum { ALIGN = 256 };
enum { THREADS = 256, COLS = 16, ROWS = 256, ROW_LANES = 32, PITCH = 36,
       STATE_PITCH = 20, AHEAD = 4, HELD_ROWS = 128 };   /* carry.cuh's */

/* ---- whether ---- */

static int rows_of(const Graph *g, const Transition *t)
{
    return t->kappa < 0 ? 1 : g->axis[t->kappa].size;
}

/* Whether each entry of a state goes on by itself. */
static bool is_diagonal(const Cutting *cut)
{
    return cut->moved >= 0 || cut->t.stays;
}

/* What stands in the way of cutting this plan's calls, or NULL. */
static const char *find_fault(Ctx *c, const Plan *p, Cutting *to)
{
    const Graph *g = p->g;
    const char *why = transition_of_rows(c, g, &to->t);
    if (!g->chunk)
        return "it goes token by token";
    if (why)
        return why;
    to->ends.plan = plan_ends(c, p);
    to->moved = moved_state(to->ends.plan->g);
    int rows = rows_of(g, &to->t), cols = g->axis[to->t.nu].size;
    if (!is_diagonal(to) && to->t.kappa >= 0 && (rows != cols || rows > ROWS))
        return ctx_format(c, "its state is %d x %d: the kernels that walk it"
                          " make transitions of %d x %d", rows, cols, rows,
                          rows);
    if (!plan_is_joint(p))
        return NULL;
    for (int i = p->split; i < p->nkernels; i++)
        if (p->kernel[i].states & STATE(to->t.state))
            return "the way back walks forward, too";
    return p->stored[g->st[to->t.state].node] ? NULL
         : "the way back reads no states of the way forward";
}

void cutting_find(Ctx *c, const Plan *p, Cutting *to)
{
    *to = (Cutting){ .adjoint = -1 };
    to->why = find_fault(c, p, to);
    if (to->why)
        return;
    if (plan_is_joint(p))
        to->adjoint = adjoint_of_state(p->g, to->t.state);
    to->walked = plan_moved(c, p);
}

static void unload(Ctx *c, void *ud)
{
    Cutting *cut = ud;
    module_unload(gpu_enter(c, cut->ends.gpu), cut->module);
}

/* Where the context has broken, the module went with it. */
void cutting_free(Gpu *g, Cutting *cut)
{
    Ctx *c = cut->module ? ctx_new() : NULL;
    cut->ends.gpu = g;
    if (c)
        ctx_protect(c, unload, cut);
    ctx_free(c);
    cut->module = NULL;
    if (cut->ends.plan)
        builds_free(&cut->ends);
}

/* ---- a call in segments ---- */

static const Seq *cut_sequences(Ctx *c, const Call *call, int n, int chunk)
{
    Seq *seq = ctx_alloc(c, (size_t)(call->nseq * n) * sizeof *seq);
    for (int64_t i = 0; i < call->nseq; i++) {
        const Seq *s = &call->seq[i];
        int64_t chunks = (s->len + chunk - 1) / chunk;
        int64_t each = (chunks + n - 1) / n * chunk;
        for (int k = 0; k < n; k++) {
            int64_t from = k * each < s->len ? k * each : s->len;
            int64_t left = s->len - from;
            seq[i * n + k] = (Seq){ s->b, s->start + from,
                                    left < each ? left : each };
        }
    }
    return seq;
}

/* Float32, [segment, head, its axes], at an address, or at none yet. */
static View view_at(const Segments *s, void *data)
{
    const State *st = &s->p->g->st[s->cut->t.state];
    View v = { .data = data, .dtype = F32, .heads = s->whole->heads,
               .sh = 1 };
    for (int d = st->rank; d-- > 0; v.sh *= s->p->g->axis[st->order[d]].size)
        v.sd[d] = v.sh;
    v.sb = v.sh * v.heads;
    return v;
}

/* Of a diagonal its entries, [segment, head, row]; else as a state. */
static View transitions_view(const Segments *s, void *data)
{
    const Graph *g = s->p->g;
    const Transition *t = &s->cut->t;
    View v = view_at(s, data);
    if (!is_diagonal(s->cut))
        return v;
    v.sd[0] = 1;
    v.sh = g->axis[t->kappa < 0 ? t->nu : t->kappa].size;
    v.sb = v.sh * v.heads;
    return v;
}

/* For types and sums: what is to have a place is not NULL, nor where another
 * is. */
static void bind_states(Segments *s)
{
    static char somewhere[4];
    int state = s->cut->t.state, back = s->cut->adjoint;
    s->call.s0[state] = view_at(s, &somewhere[0]);
    s->call.s1[state] = view_at(s, &somewhere[1]);
    if (back >= 0) {
        s->call.s0[back] = view_at(s, &somewhere[2]);
        s->call.s1[back] = view_at(s, &somewhere[3]);
    }
}

static bool goes_forward(const Segments *s)
{
    return s->cut->adjoint < 0 || s->whole->from < s->p->split;
}

static bool goes_back(const Segments *s)
{
    return s->cut->adjoint >= 0
        && (!s->whole->to || s->whole->to > s->p->split);
}

/* For ends of the way forward: the same inputs, but none of the way back. */
static Call ends_call(const Segments *s)
{
    const Graph *g = s->p->g;
    Call call = s->call;
    call.from = call.to = call.ends = 0;
    call.part = CALL_WHOLE;
    if (s->ends)
        call.kept = NULL;               /* its own are in the workspace */
    memset(call.out, 0, sizeof call.out);
    for (int i = 0; i < g->nin; i++)
        if (s->cut->adjoint >= 0 && input_is_adjoint(&g->in[i]))
            call.in[i] = (View){ .dtype = call.in[0].dtype };
    for (int i = 0; i < g->nst; i++)
        if (i != s->cut->t.state)
            call.s0[i] = call.s1[i] = (View){ .data = NULL };
    return call;
}

/* The state that shows transitions, of the plan that walks are made from. */
static int moved_of(const Segments *s)
{
    return moved_state(s->ends ? s->cut->ends.plan->g : s->cut->walked->g);
}

/* Of few rows transitions go by registers. */
static bool is_held(int rows)
{
    return rows % ROW_LANES == 0 && rows <= HELD_ROWS;
}

static const char source[] =
    "#include \"numbers.cuh\"\n#include \"warp.cuh\"\n"
    "#include \"dense.cuh\"\n#include \"carry.cuh\"\n"
    "extern \"C\" __global__ void\n"
    "flin_begin(const __grid_constant__ Carry a)\n"
    "{\n    carry_begin(a);\n}\n"
    "extern \"C\" __global__ void\n"
    "flin_end(const __grid_constant__ Carry a)\n"
    "{\n    carry_end(a);\n}\n"
    "extern \"C\" __global__ void\n"
    "flin_unit(const __grid_constant__ Carry a)\n"
    "{\n    carry_unit(a);\n}\n"
    "extern \"C\" __global__ void\n"
    "flin_carry(const __grid_constant__ Carry a)\n"
    "{\n    CARRY_ON(a);\n}\n"
    "extern \"C\" __global__ void\n"
    "flin_carry_rows(const __grid_constant__ Carry a)\n"
    "{\n    carry_rows<4>(a);\n}\n"
    "extern \"C\" __global__ void\n"
    "flin_carry_vector(const __grid_constant__ Carry a)\n"
    "{\n    carry_rows<16>(a);\n}\n"         /* CARRIED_AT_ONCE */
    "extern \"C\" __global__ void\n"
    "flin_moved(const __grid_constant__ Carry a)\n"
    "{\n    carry_moved(a);\n}\n";

static const CudaKernel
    begin_kernel = { .name = "flin_begin", .threads = THREADS },
    end_kernel = { .name = "flin_end", .threads = THREADS },
    unit_kernel = { .name = "flin_unit", .threads = THREADS },
    moved_kernel = { .name = "flin_moved", .threads = THREADS };

static CudaKernel carry_kernel(int rows)
{
    if (is_held(rows))
        return (CudaKernel){ .name = "flin_carry", .threads = THREADS,
                             .shared = rows * 4 * 2 * STATE_PITCH };
    return (CudaKernel){ .name = "flin_carry", .threads = THREADS,
                         .shared = rows * 4
                                 * (2 * STATE_PITCH + AHEAD * PITCH) };
}

static const CudaKernel
    rows_kernel = { .name = "flin_carry_rows", .threads = THREADS },
    vector_kernel = { .name = "flin_carry_vector", .threads = THREADS };

static bool walks_state(const CudaKernel *k, int state)
{
    for (int i = 0; i < k->ntensors; i++)
        if (k->tensor[i].kind == ARG_STATE && k->tensor[i].index == state)
            return true;
    return false;
}

/* The kernel among `walks` that has the state; NULL: none does. */
static const CudaKernel *ends_walk(const Segments *s, int state)
{
    const CudaModule *m = s->walks ? s->walks->m : NULL;
    for (int i = 0; m && i < m->nkernels; i++)
        if (walks_state(&m->kernel[i], state))
            return &m->kernel[i];
    return NULL;
}

static void compile_own(Ctx *c, Cutting *cut, const Plan *p, Gpu *g)
{
    const Driver *d = gpu_enter(c, g);
    if (cut->module)
        return;
    int rows = is_diagonal(cut) ? 1 : rows_of(p->g, &cut->t);
    Module *m = cut->module = build_module(c, g, ctx_format(c,
        "enum { CARRY_ROWS = %d };\n#define CARRY_ON %s\n%s",
        (rows + ROW_LANES - 1) / ROW_LANES * ROW_LANES,
        is_held(rows) ? "carry_held" : "carry_on", source));
    cut->begin = module_function(c, d, m, begin_kernel.name, 0);
    cut->end = module_function(c, d, m, end_kernel.name, 0);
    cut->unit = module_function(c, d, m, unit_kernel.name, 0);
    cut->moves = module_function(c, d, m, moved_kernel.name, 0);
    cut->carrying = !is_diagonal(cut)
                  ? carry_kernel(rows_of(p->g, &cut->t))
                  : cut->t.kappa < 0 ? vector_kernel : rows_kernel;
    cut->carry = module_function(c, d, m, cut->carrying.name,
                                 cut->carrying.shared);
}

/* NULL; or what keeps the call from being cut: all kernels for it are wrong. */
static const char *compile(Ctx *c, Segments *s, Builds *all)
{
    Cutting *cut = s->cut;
    const Build *own;
    Call call = ends_call(s);
    compile_own(c, cut, s->p, all->gpu);
    cut->ends.gpu = all->gpu;
    own = build_for_if(c, all, &s->call);
    if (!own->m)
        return build_fault(c, all, own);
    s->walks = build_ends(c, all, own);
    if (ends_walk(s, cut->t.state))
        return NULL;
    s->ends = build_for_if(c, &cut->ends, &call);
    return build_fault(c, &cut->ends, s->ends);
}

/* What the kernels before that walk leave for the others lies in Call.kept. */
static bool leaves_nothing_else(const CudaModule *m, int walk)
{
    bool none = true;
    for (int i = 0; i < walk; i++) {
        const CudaKernel *k = &m->kernel[i];
        for (int n = 0; n < k->nmaps; n++)
            none = none && !(k->map[n].kind == ARG_STORED
                             && k->stored_later[n]);
        for (int n = 0; n < k->ntensors; n++)
            none = none && k->tensor[n].kind != ARG_OUTPUT
                        && k->tensor[n].kind != ARG_NEXT;
    }
    return none;
}

bool segments_may_begin(Ctx *c, Builds *all, Segments *s, const Build *b)
{
    const Cutting *cut = s->cut;
    int state = cut->t.state, first = 0;
    if (cut->why || s->n > 1 || !s->call.seq || s->call.pages.at
        || is_diagonal(cut) == cut->t.mixes || !b->o.scheduled)
        return false;
    while (first < b->m->nkernels && !walks_state(&b->m->kernel[first], state))
        first++;
    if (first == b->m->nkernels || !leaves_nothing_else(b->m, first))
        return false;
    compile_own(c, s->cut, s->p, all->gpu);
    s->walks = build_ends(c, all, b);
    return ends_walk(s, state);
}

static bool walks_back(const Graph *g, const CudaKernel *k)
{
    for (int i = 0; i < k->ntensors; i++)
        if (k->tensor[i].kind == ARG_STATE && g->st[k->tensor[i].index].reverse)
            return true;
    return false;
}

/* The first kernel that a call goes back with where another has begun it: the
 * first that walks back, or, where one before that has results, that one. */
static int first_of_rest(const Segments *s, const Build *b)
{
    const CudaModule *m = b->m;
    for (int i = 0; i < m->nkernels; i++) {
        const CudaKernel *k = &m->kernel[i];
        bool writes = false;
        for (int n = 0; n < k->ntensors; n++)
            writes |= k->tensor[n].kind == ARG_OUTPUT
                   || k->tensor[n].kind == ARG_NEXT;
        if (k->of >= s->call.from && (writes || walks_back(s->p->g, k)))
            return i;
    }
    return m->nkernels;
}

bool segments_have(const Segments *s, const Build *b, int kernel)
{
    bool walked = false;
    if (s->call.part == CALL_WHOLE)
        return true;
    if (s->call.from)
        return kernel >= first_of_rest(s, b);
    for (int i = 0; i <= kernel; i++)
        walked = walked || walks_state(&b->m->kernel[i], s->cut->t.state);
    return walked == (s->call.part == CALL_REST);
}

int64_t segments_length(const Segments *s, SegmentTable t, int64_t i)
{
    bool first = i % s->n == 0, last = i % s->n == s->n - 1;
    bool out = (t == OF_OWN && last) || (t == OF_BACK && first)
            || (t == OF_TRANSITIONS && (first || last));
    return out ? 0 : s->call.seq[i].len;
}

/* With two segments what the first leaves is what the second begins from. */
static bool has_transitions(const Segments *s)
{
    return s->n > 2 && !s->cut->t.stays;
}

/* They come from a walk of their own. */
static bool walks_transitions(const Segments *s)
{
    return has_transitions(s) && s->cut->moved < 0;
}

/* ---- what it costs ---- */

/* The call, as long as that table has it. */
static Call call_of_table(Ctx *c, const Segments *s, SegmentTable t)
{
    Call call = s->call;
    Seq *seq = ctx_alloc(c, (size_t)call.nseq * sizeof *seq);
    for (int64_t i = 0; i < call.nseq; i++) {
        seq[i] = call.seq[i];
        seq[i].len = segments_length(s, t, i);
    }
    call.seq = seq;
    return call;
}

/* Of kernels that walk the state; of the way forward where they are whole. */
static double walks_seconds(Ctx *c, const Segments *s, const CudaModule *m,
                            int state, const Driver *d, SegmentTable t)
{
    Call call = call_of_table(c, s, t);
    double all = 0;
    for (int i = 0; i < m->nkernels; i++)
        if (walks_state(&m->kernel[i], state))
            all += cuda_kernel_seconds(s->p->g, &m->kernel[i], d->machine,
                                       d->processors, &call);
    return all;
}

/* What carries one way: by matrices a step waits for that before it, and the
 * first two segments take none (an H200's, of 128 rows: 13 us of 4 segments, 31
 * of 8); of diagonals all entries are under way at once (an H100's, of 16 heads
 * in 8 segments), of vectors many segments, too. */
static double carry_seconds(const Segments *s)
{
    const double first = 5e-6, step = 4.4e-6, began = 8e-6, each = 0.5e-6;
    double waits = s->cut->t.kappa < 0 ? 1. / CARRIED_AT_ONCE : 1;

    return is_diagonal(s->cut) ? began + each * waits * s->n
                               : first + step * (s->n - 2);
}

/* Of a call in parts all of them. */
static double call_seconds(Ctx *c, Builds *all, const Segments *s)
{
    const double others = 8e-6;
    const Driver *d = gpu_enter(c, all->gpu);
    Modelled m;
    if (!build_modelled(c, all, &s->call, &m))
        return INFINITY;
    int units = d->processors, state = s->cut->t.state;
    double sum = cuda_way_seconds(s->p, m.own, false, d->machine, units,
                                  &s->call)
               + cuda_way_seconds(s->p, m.own, true, d->machine, units,
                                  &s->call);
    if (!s->call.ends)
        return sum;
    const CudaModule *ends = m.ends ? m.ends : m.own;
    bool all_of = s->n == 1;
    sum += walks_seconds(c, s, ends, state, d, all_of ? OF_ALL : OF_OWN);
    sum += walks_seconds(c, s, ends, s->cut->adjoint, d,
                         all_of ? OF_ALL : OF_BACK);
    if (s->call.ends > 1)
        sum += others + walks_seconds(c, s, ends, state, d,
                                      all_of ? OF_ALL : OF_TRANSITIONS);
    int ways = goes_forward(s) + goes_back(s);
    return sum + (all_of ? 0 : ways * carry_seconds(s));
}

/* Of a call as it is, of its walks both ways. */
static double whole_walks(Ctx *c, Builds *all, const Segments *s)
{
    const Driver *d = gpu_enter(c, all->gpu);
    Modelled m;
    if (!build_modelled(c, all, &s->call, &m))
        return 0;
    return walks_seconds(c, s, m.own, s->cut->t.state, d, OF_ALL)
         + walks_seconds(c, s, m.own, s->cut->adjoint, d, OF_ALL);
}

/* In n segments; or as it is, where sums keep it from that. */
static Segments segments_in(Ctx *c, const Plan *p, Cutting *cut,
                            const Call *call, int n);

typedef struct Counting {
    Builds *all;
    Cutting *cut;
    const Call *call;
    int most, found;
} Counting;

static void count_by_price(Ctx *c, void *ud)
{
    /* both ways calls of 32 heads and 16384 tokens, and of 16 and 32768, of
     * five delta rules, in two to four segments take what prices say that
     * they save, less a fifth of what their walks take as they are: that much
     * is to be saved; forward alone such calls are told apart by a tenth */
    Counting *k = ud;
    bool joint = plan_is_joint(k->all->plan);
    const double saved = joint ? 0.22 : 0.1;
    double least = INFINITY;
    k->found = 1;
    for (int n = 1; n <= k->most; n++) {
        Segments s = segments_in(c, k->all->plan, k->cut, k->call, n);
        double seconds = call_seconds(c, k->all, &s);
        if (s.n != n)
            return;
        if (seconds < least) {
            double of = joint && n == 1 ? whole_walks(c, k->all, &s) : seconds;
            least = seconds - (n == 1 ? saved * of : 0);
            k->found = n;
        }
    }
}

/* Of what the price of a call depends on. */
static uint64_t hash_of(const Plan *p, const Call *call)
{
    uint64_t own = 2 * (uint64_t)call->heads + call->in_parts;
    uint64_t h = hash_bytes(own, call->seq,
                            (size_t)call->nseq * sizeof *call->seq);
    for (int i = 0; i < p->g->nin; i++)
        h = 31 * h + (uint64_t)call->in[i].dtype;
    return h ? h : 1;
}

/* Where kernels have prices, by those; `count` is what is known without. */
static int count_well(Ctx *c, Builds *all, Cutting *cut, const Call *call,
                      int count)
{
    int units = gpu_enter(c, all->gpu)->processors;
    int64_t heads = call->nseq * call->heads;
    uint64_t h = hash_of(all->plan, call);
    if (count == 1 || getenv(SEGMENTS_VARIABLE)
        || !build_may_have_ends(c, all, call))
        return count;
    if (cut->counted == h)
        return cut->count;
    Counting k = { all, cut, call, (int)(2 * units / heads), count };
    ctx_apart(c, count_by_price, &k);
    cut->counted = h;
    return cut->count = k.found;
}

/* Sums over tokens, as of constants' gradients: all segments add to one. A sum
 * for each of several sequences is not to be had of segments. */
static bool bind_sums(Segments *s)
{
    const Graph *g = s->p->g;
    for (int i = 0; i < g->nst; i++) {
        View *v = &s->call.s1[i];
        if (i == s->cut->t.state || i == s->cut->adjoint || !v->data)
            continue;
        if (v->sb && s->whole->nseq > 1)
            return false;
        v->sb = 0;
    }
    return true;
}

/* As it is; in parts its summary walks for ends, and for transitions. */
static Segments whole_of(const Plan *p, Cutting *cut, const Call *call)
{
    Segments s = { .cut = cut, .p = p, .whole = call, .n = 1, .call = *call };
    if (call->in_parts && !cut->why)
        s.call.ends = 1 + !is_diagonal(cut);
    return s;
}

static Segments segments_in(Ctx *c, const Plan *p, Cutting *cut,
                            const Call *call, int n)
{
    Segments s = whole_of(p, cut, call);
    if (n == 1 || !bind_sums(&s))
        return whole_of(p, cut, call);
    s.n = n;
    s.call.nseq *= n;
    s.call.ends = 1 + walks_transitions(&s);
    s.call.seq = cut_sequences(c, call, n, p->g->chunk);
    bind_states(&s);
    return s;
}

/* Of a call that goes no further. */
static double forward_seconds(Ctx *c, Builds *all, const Segments *s)
{
    const Driver *d = gpu_enter(c, all->gpu);
    Modelled m;

    if (!build_modelled(c, all, &s->call, &m))
        return INFINITY;
    return cuda_way_seconds(s->p, m.own, false, d->machine, d->processors,
                            &s->call);
}

/* In as many as pay. */
static Segments segments_counted(Ctx *c, Builds *all, Cutting *cut,
                                 const Call *call)
{
    const Plan *p = all->plan;
    Cuts k = { rows_of(p->g, &cut->t), plan_is_joint(p),
               build_may_have_ends(c, all, call), is_diagonal(cut) };
    int n = segments_count(call, p->g->chunk, &k,
                           gpu_enter(c, all->gpu)->processors);

    return segments_in(c, p, cut, call, count_well(c, all, cut, call, n));
}

/* What is cut by a rule, not by prices, is predicted as it is. */
double segments_seconds(Ctx *c, Builds *all, Cutting *cut, const Call *call)
{
    bool may = call->seq && !cut->why && !call->in_parts
            && build_may_have_ends(c, all, call);
    const Segments s = may ? segments_counted(c, all, cut, call)
                           : whole_of(all->plan, cut, call);
    double seconds = !call->seq ? INFINITY
                   : call->to && !goes_back(&s) ? forward_seconds(c, all, &s)
                   : call_seconds(c, all, &s);
    return isfinite(seconds) ? seconds : 0;
}

Segments segments_of(Ctx *c, Builds *all, Cutting *cut, const Call *call)
{
    const Plan *p = all->plan;
    if (cut->why || !call->seq)
        return whole_of(p, cut, call);
    Segments s = segments_counted(c, all, cut, call);
    const char *why = s.n == 1 ? NULL : compile(c, &s, all);
    if (!why)
        return s;
    cut->why = ctx_string(p->g->ctx, why);
    return whole_of(p, cut, call);
}

/* ---- places ---- */

static int64_t aligned(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t states_bytes(const Segments *s)
{
    View v = view_at(s, NULL);
    return aligned(4 * v.sb * s->call.nseq);
}

static int64_t transitions_bytes(const Segments *s)
{
    View v = transitions_view(s, NULL);
    return has_transitions(s) ? aligned(4 * v.sb * s->call.nseq) : 0;
}

int64_t segments_kept(const Segments *s)
{
    return transitions_bytes(s);
}

static int64_t zeros_bytes(const Segments *s)
{
    Call call = s->call;
    CudaExtent e = cuda_extent(&call);

    return aligned(transition_zeros(&s->cut->t, s->p->g, &call, e.batch,
                                    e.tokens, NULL));
}

static int64_t unit_bytes(const Segments *s)
{
    return aligned(4 * view_at(s, NULL).sh);
}

/* Of a call that is begun: what transitions that are matrices are from. */
static int64_t begun_bytes(const Segments *s)
{
    return is_diagonal(s->cut) ? 0 : unit_bytes(s) + zeros_bytes(s);
}

/* Places in the workspace, one behind the other; of a way that is not gone
 * they have no room. */
typedef struct Places {
    int64_t start, own, back, back_own, m, unit, zeros, end;
} Places;

static Places places_of(const Segments *s)
{
    int64_t states = states_bytes(s), back = goes_back(s) ? states : 0;
    int64_t forward = goes_forward(s) ? states : 0;
    Places p = { .own = forward };
    p.back = p.own + forward;
    p.back_own = p.back + back;
    p.m = p.back_own + back;
    bool makes = walks_transitions(s);
    p.unit = p.m + (s->whole->kept ? 0 : transitions_bytes(s));
    p.zeros = p.unit + (makes ? unit_bytes(s) : 0);
    p.end = p.zeros + (makes && goes_forward(s) ? zeros_bytes(s) : 0);
    return p;
}

int64_t segments_bytes(const Segments *s)
{
    if (s->call.part == CALL_BEGUN)
        return begun_bytes(s);
    if (s->n == 1)
        return 0;
    Call call = ends_call(s);
    if (!s->ends || !goes_forward(s))
        return places_of(s).end;
    return places_of(s).end
         + aligned(cuda_workspace(s->ends->m, s->cut->ends.plan, &call));
}

int segments_launches(const Segments *s, int kernels)
{
    enum { OWN = 5, BEFORE = 3 };       /* of the way forward, with both ends;
                                           before a walk back */
    int each = s->ends ? s->ends->m->nkernels : 1;
    if (s->call.part == CALL_BEGUN)
        return OWN;
    return s->n == 1 ? 0 : OWN + 2 * each + BEFORE * kernels;
}

static void *pointer(DevicePtr at, int64_t offset)
{
    return (void *)(uintptr_t)(at + (DevicePtr)offset);
}

static void *transitions_at(const Segments *s, const Steps *to)
{
    return s->whole->kept ? (char *)s->whole->kept + to->stored
                          : pointer(to->at, places_of(s).m);
}

/* What is written is zero while transitions are found. */
static void add_zeros(Steps *to, int64_t at, int64_t end)
{
    to->zeros.to = to->at + (DevicePtr)at;
    to->zeros.width = (size_t)(end - at);
}

void segments_place(Segments *s, Steps *to)
{
    if (s->call.part == CALL_BEGUN && begun_bytes(s))
        add_zeros(to, unit_bytes(s), begun_bytes(s));
    if (s->n == 1)
        return;
    Places p = places_of(s);
    int state = s->cut->t.state, back = s->cut->adjoint;
    s->call.s0[state].data = pointer(to->at, p.start);
    s->call.s1[state].data = pointer(to->at, p.own);
    if (back >= 0) {
        s->call.s0[back].data = pointer(to->at, p.back);
        s->call.s1[back].data = pointer(to->at, p.back_own);
    }
    if (walks_transitions(s) && goes_forward(s))
        add_zeros(to, p.zeros, p.end);
}

/* ---- steps ---- */

/* carry.cuh's. */
typedef struct Part {
    uint64_t p;
    int64_t ss, sh, sr, sc;
    int32_t group, type;
} Part;
typedef struct Carry {
    Part start, own, m, whole;
    int64_t nseq;
    int32_t segments, heads, rows, cols, back, pad;
} Carry;

static Part part_of(const Segments *s, const View *v)
{
    const State *st = &s->p->g->st[s->cut->t.state];
    int col = st->order[0] != s->cut->t.nu;
    return (Part){ (uint64_t)(uintptr_t)v->data, v->sb, v->sh,
                   st->rank > 1 ? v->sd[1 - col] : 0, v->sd[col],
                   v->heads ? s->whole->heads / v->heads : 1, v->dtype };
}

/* A diagonal's entries lie along rows, a vector's along its own. */
static Part transitions_part(const Segments *s, const Steps *to)
{
    View m = transitions_view(s, transitions_at(s, to));
    bool rows = s->cut->t.kappa >= 0;
    if (s->cut->t.stays)
        return (Part){ 0 };
    if (s->cut->moved < 0)
        return part_of(s, &m);
    return (Part){ (uint64_t)(uintptr_t)m.data, m.sb, m.sh, rows, !rows, 1,
                   F32 };
}

static Carry carry_of(const Segments *s, const Steps *to, bool back)
{
    int state = back ? s->cut->adjoint : s->cut->t.state;
    Carry a = { .nseq = s->whole->nseq, .segments = s->n,
                .heads = s->whole->heads, .back = back };
    a.start = part_of(s, &s->call.s0[state]);
    a.own = part_of(s, &s->call.s1[state]);
    a.m = transitions_part(s, to);
    a.whole = part_of(s, &s->whole->s0[state]);
    a.rows = rows_of(s->p->g, &s->cut->t);
    a.cols = s->p->g->axis[s->cut->t.nu].size;
    return a;
}

static void add_step(Steps *to, Function *f, const CudaKernel *k,
                     int64_t grid, const Carry *a)
{
    Launch *l = ctx_alloc(to->ctx, sizeof *l);
    *l = (Launch){ .f = f, .k = k, .grid = (unsigned)grid };
    l->args = ctx_alloc(to->ctx, sizeof *a);
    memcpy(l->args, a, sizeof *a);
    to->launch[to->n++] = l;
}

/* What segments' own ends are made from: nothing but the first's start, if the
 * call has one. */
static void add_begin(const Segments *s, Steps *to, bool back, Call *call)
{
    Carry a = carry_of(s, to, back);
    int state = back ? s->cut->adjoint : s->cut->t.state;
    if (!s->whole->s0[state].data) {
        call->s0[state].data = NULL;
        return;
    }
    add_step(to, s->cut->begin, &begin_kernel, s->call.nseq * a.heads, &a);
}

static void add_carry(const Segments *s, Steps *to, bool back)
{
    Carry a = carry_of(s, to, back);
    int64_t blocks = is_diagonal(s->cut)
        ? ((int64_t)a.rows * a.cols + THREADS - 1) / THREADS
        : (a.cols + COLS - 1) / COLS;
    add_step(to, s->cut->carry, &s->cut->carrying,
             a.nseq * a.heads * blocks, &a);
    to->launch[to->n - 1]->seconds = carry_seconds(s);
}

static DevicePtr table_at(const Segments *s, const Steps *to, SegmentTable t)
{
    return to->seq + (DevicePtr)(t * s->call.nseq) * sizeof(HostSequence);
}

/* With states in the workspace. */
static void add_apart(Ctx *c, const Segments *s, Steps *to, const Build *b,
                      int kernel, const Plan *p, const Call *call,
                      SegmentTable t, DevicePtr workspace)
{
    Launch *l = launch_new(c, to->d, b->f[kernel], b->m, &b->m->kernel[kernel],
                           p, call, table_at(s, to, t), workspace);
    l->apart = true;
    to->launch[to->n++] = l;
}

static void add_walk(Ctx *c, const Segments *s, Steps *to, int state,
                     const Call *call, SegmentTable t)
{
    const Build *b = s->walks;
    add_apart(c, s, to, b, (int)(ends_walk(s, state) - b->m->kernel),
              s->cut->walked, call, t, to->workspace);
}

static void add_ends(Ctx *c, const Segments *s, Steps *to, const Call *call,
                     SegmentTable t)
{
    DevicePtr workspace = to->at + (DevicePtr)places_of(s).end;
    if (!s->ends) {
        add_walk(c, s, to, s->cut->t.state, call, t);
        return;
    }
    for (int i = 0; i < s->ends->m->nkernels; i++)
        add_apart(c, s, to, s->ends, i, s->cut->ends.plan, call, t, workspace);
}

/* From the unit matrix, with nothing written: these are put in the workspace at
 * `one` and at `zeros`. */
static void add_transitions(Ctx *c, const Segments *s, Steps *to, int64_t one,
                            int64_t zeros, View moves, SegmentTable t)
{
    int state = s->cut->t.state;
    Call call = ends_call(s);
    View unit = view_at(s, pointer(to->at, one));
    Carry a = carry_of(s, to, false);
    CudaExtent e = cuda_extent(&s->call);
    a.start = part_of(s, &unit);
    add_step(to, s->cut->unit, &unit_kernel, a.rows, &a);
    unit.heads = 1;
    unit.sh = unit.sb = 0;
    call.s0[state] = unit;
    call.s1[state] = moves;
    transition_zeros(&s->cut->t, s->p->g, &call, e.batch, e.tokens,
                     pointer(to->at, zeros));
    add_ends(c, s, to, &call, t);
}

/* They come less one, or not at all, and are told as they are. */
static void add_moves(Ctx *c, const Segments *s, Steps *to, Call *own)
{
    Carry a = carry_of(s, to, false);
    a.start = a.m = part_of(s, &s->call.moves);
    if (s->cut->t.stays)
        a.m = (Part){ 0 };
    else
        own->s1[moved_of(s)] = (View){ .data = s->call.moves.data,
            .dtype = F32, .heads = s->call.moves.heads, .sb = a.m.ss,
            .sh = a.m.sh, .sd = { a.m.sr } };
    add_ends(c, s, to, own, OF_ALL);
    add_step(to, s->cut->moves, &moved_kernel, a.nseq * a.heads, &a);
}

void segments_begin(Ctx *c, const Segments *s, Steps *to)
{
    Call own = ends_call(s);
    own.s0[s->cut->t.state].data = NULL;
    if (is_diagonal(s->cut)) {
        add_moves(c, s, to, &own);
        return;
    }
    add_transitions(c, s, to, 0, unit_bytes(s), s->call.moves, OF_ALL);
    add_ends(c, s, to, &own, OF_ALL);
}

static void add_forward(Ctx *c, const Segments *s, Steps *to)
{
    Places p = places_of(s);
    Call call = ends_call(s);
    if (walks_transitions(s))
        add_transitions(c, s, to, p.unit, p.zeros,
                        view_at(s, transitions_at(s, to)), OF_TRANSITIONS);
    else if (has_transitions(s))
        call.s1[moved_of(s)] = transitions_view(s, transitions_at(s, to));
    add_begin(s, to, false, &call);
    add_ends(c, s, to, &call, OF_OWN);
    add_carry(s, to, false);
}

static void add_end(const Segments *s, Steps *to, bool back)
{
    int state = back ? s->cut->adjoint : s->cut->t.state;
    if (!s->whole->s1[state].data)
        return;
    Carry a = carry_of(s, to, back);
    a.whole = part_of(s, &s->whole->s1[state]);
    add_step(to, s->cut->end, &end_kernel, a.nseq * a.heads, &a);
}

void segments_after(const Segments *s, Steps *to)
{
    if (s->n > 1 && goes_forward(s))
        add_end(s, to, false);
    if (s->n > 1 && goes_back(s))
        add_end(s, to, true);
}

/* By its own walk, where there is one; or by the kernel as it is. */
static void add_back(Ctx *c, const Segments *s, Steps *to, const Build *b,
                     int kernel)
{
    int back = s->cut->adjoint;
    Call call = s->call;
    add_begin(s, to, true, &call);
    if (ends_walk(s, back)) {
        for (int i = 0; i < s->p->g->nst; i++)
            if (i != back)
                call.s1[i].data = NULL;
        add_walk(c, s, to, back, &call, OF_BACK);
    } else {
        to->launch[to->n++] = launch_new(c, to->d, b->f[kernel], b->m,
            &b->m->kernel[kernel], s->p, &call, table_at(s, to, OF_BACK),
            to->workspace);
    }
    add_carry(s, to, true);
}

void segments_before(Ctx *c, const Segments *s, Steps *to, const Build *b,
                     int kernel)
{
    const CudaKernel *k = &b->m->kernel[kernel];
    if (s->n == 1)
        return;
    if (goes_forward(s) && !to->begun && walks_state(k, s->cut->t.state)) {
        to->begun = true;
        add_forward(c, s, to);
    }
    if (s->cut->adjoint >= 0 && walks_state(k, s->cut->adjoint))
        add_back(c, s, to, b, kernel);
}
