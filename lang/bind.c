/* bind.c -- the arguments of a call, checked before anything is computed. */
#include <string.h>

#include "../compiler/layer.h"
#include "bind.h"

const char *const mode_name[] = { "forward", "reference", "step",
                                  "backward", "reference_backward",
                                  "verify" };

/* What has been learnt of the call's sizes, and from which argument. */
typedef struct Sizes {
    Ctx *ctx;
    const Graph *g;
    const char *what;                   /* "forward" */
    Bound *b;
    bool part;                          /* of a layer */
    const char *axis_from[NAXES], *batch_from, *tokens_from, *heads_from;
    const char *states_from;
    int64_t tokens_heads;               /* heads of that one */
} Sizes;

/* ---- texts ---- */

char *shape_text(Ctx *c, int rank, const int64_t *shape)
{
    Buf b = { .ctx = c };

    buf_printf(&b, "[");
    for (int i = 0; i < rank; i++)
        buf_printf(&b, "%s%lld", i ? ", " : "", (long long)shape[i]);
    buf_printf(&b, "]");
    return b.s;
}

void check_shape(Ctx *c, const char *what, const char *name, const Given *t,
                 int rank, const int64_t *shape)
{
    if (dtype_whole(t->dtype))
        fail_help(c, 0, "float32, bfloat16, float16 or float64", "%s: %s is"
                  " %s", what, name, dtype_name(t->dtype));
    if (t->rank != rank
        || memcmp(t->shape, shape, (size_t)rank * sizeof *shape))
        fail(c, 0, "%s: %s has shape %s, but %s is wanted", what, name,
             shape_text(c, t->rank, t->shape), shape_text(c, rank, shape));
}

static char *wanted_text(Ctx *c, const Graph *g, const char *first,
                         const uint8_t *order, int rank)
{
    Buf b = { .ctx = c };

    buf_printf(&b, "[%s", first);
    for (int i = 0; i < rank; i++)
        buf_printf(&b, "%s%s", i || *first ? ", " : "",
                   g->axis[order[i]].name);
    buf_printf(&b, "]");
    return b.s;
}

/* "[B, T, H, k]" as declared. */
static char *input_shape_text(Ctx *c, const Graph *g, const Input *in)
{
    const char *first = in->timed ? "B, T, H" : "H";

    if (g->layer)
        first = in->timed ? "B, T" : "";
    return wanted_text(c, g, first, in->order, in->rank);
}

/* ---- sizes ---- */

static void learn_axis(Sizes *s, int ax, int64_t n, const char *who)
{
    const char *axis = s->g->axis[ax].name, *from = s->axis_from[ax];
    int32_t *size = &s->b->call.size[ax];

    int most = s->g->layer || s->part ? LAYER_AXIS_MAX : AXIS_MAX;

    if (n < 1 || n > most)
        fail(s->ctx, 0, "%s: axis '%s' of %s is %lld: it must be from 1 to %d",
             s->what, axis, who, (long long)n, most);
    if (*size && *size != n && !from)
        fail(s->ctx, 0, "%s: axis '%s' of %s is %lld, but the variant fixes "
             "it at %d", s->what, axis, who, (long long)n, *size);
    if (*size && *size != n)
        fail_help(s->ctx, 0, ctx_format(s->ctx, "an axis has one size in all "
                  "tensors of a call: make '%s' %d in %s, or %lld in %s", axis,
                  *size, who, (long long)n, from),
                  "%s: axis '%s' is %d in %s, but %lld in %s", s->what, axis,
                  *size, from, (long long)n, who);
    if (!*size)
        s->axis_from[ax] = who;
    *size = (int32_t)n;
}

/* A size that all arguments share: batch or tokens. */
static void learn(Sizes *s, int64_t *size, const char **from, const char *of,
                  int64_t n, const char *who)
{
    if (*from && *size != n)
        fail(s->ctx, 0, "%s: %s has %lld %s, but %s has %lld", s->what, *from,
             (long long)*size, of, who, (long long)n);
    if (!*from)
        *from = who;
    *size = n;
}

/* Help where a tensor seems to have its heads before its tokens. */
static const char *layout_help(Sizes *s, const char *who)
{
    return ctx_format(s->ctx, "is %s [B, H, T, ...]? Tensors are [B, T, H, "
                      "...] here: exchange its second and third axes", who);
}

/* Of two inputs with each other's tokens for heads, the one with more heads
 * than tokens is asked about. */
static void learn_tokens(Sizes *s, int64_t tokens, int64_t heads,
                         const char *who)
{
    Bound *b = s->b;

    if (s->tokens_from && b->T != tokens && b->T == heads
        && s->tokens_heads == tokens)
        fail_help(s->ctx, 0, layout_help(s, heads > tokens ? who
                                                           : s->tokens_from),
                  "%s: %s has %lld tokens and %lld heads, but %s has %lld and "
                  "%lld", s->what, s->tokens_from, (long long)b->T,
                  (long long)s->tokens_heads, who, (long long)tokens,
                  (long long)heads);
    if (!s->tokens_from)
        s->tokens_heads = heads;
    learn(s, &b->T, &s->tokens_from, "tokens", tokens, who);
}

static _Noreturn void bad_rank(Sizes *s, const Given *t, const char *kind,
                               const char *name, const char *wanted)
{
    fail(s->ctx, 0, "%s: %s%s has shape %s, but %s is wanted", s->what, kind,
         name, shape_text(s->ctx, t->rank, t->shape), wanted);
}

/* Indices are whole numbers, and nothing else is. */
static void check_whole(Sizes *s, const Input *in, const Given *t)
{
    if (in->index_of && !dtype_whole(t->dtype))
        fail_help(s->ctx, in->line, "int64 or int32", "%s: %s is %s, but is "
                  "declared an index of axis '%s': a tensor of whole numbers "
                  "is wanted", s->what, in->name, dtype_name(t->dtype),
                  s->g->axis[in->index_of].name);
    if (!in->index_of && dtype_whole(t->dtype))
        fail_help(s->ctx, in->line, ctx_format(s->ctx,
                  !in->timed ? "%s:to \"float32\"" : "%s = \"t : index n\" "
                  "declares it the number of an entry of axis n", in->name),
                  "%s: %s is %s: float32, bfloat16, float16 or float64 is "
                  "wanted", s->what, in->name, dtype_name(t->dtype));
}

static void learn_input(Sizes *s, const Input *in, const Given *t)
{
    Bound *b = s->b;
    int skip = input_lead(s->g, in->timed);

    if (!t->given)
        fail(s->ctx, 0, "%s: tensor %s is missing; %s is wanted", s->what,
             in->name, input_shape_text(s->ctx, s->g, in));
    check_whole(s, in, t);
    if (t->rank != skip + in->rank && !(s->g->layer && t->number))
        bad_rank(s, t, "", in->name, input_shape_text(s->ctx, s->g, in));
    if (in->timed) {
        learn(s, &b->B, &s->batch_from, "batch entries", t->shape[0],
              in->name);
        learn_tokens(s, t->shape[1], s->g->layer ? 1 : t->shape[2], in->name);
    }
    int64_t heads = s->g->layer ? 1 : t->shape[skip - 1];
    if (heads < 1 || heads > 1 << 20)
        fail(s->ctx, 0, "%s: %s has %lld heads: from 1 to %d are possible",
             s->what, in->name, (long long)heads, 1 << 20);
    if (heads > b->call.heads) {
        b->call.heads = (int)heads;
        s->heads_from = in->name;
    }
    for (int i = 0; i < in->rank; i++)
        learn_axis(s, in->order[i], t->shape[skip + i], in->name);
}

/* Behind `lead` axes, of which the last one is heads, but of a layer. */
static View lead_view(const Graph *step, const Given *t, int lead, int rank)
{
    View v = { .data = t->data, .dtype = t->dtype, .heads = 1 };

    if (!step->layer) {
        v.heads = (int)t->shape[lead - 1];
        v.sh = t->stride[lead - 1];
    }
    for (int i = 0; i < rank; i++)
        v.sd[i] = t->stride[lead + i];
    return v;
}

View input_view(const Graph *step, int i, const Given *t)
{
    const Input *in = &step->in[i];
    View v = lead_view(step, t, input_lead(step, in->timed), in->rank);

    if (in->timed) {
        v.sb = t->stride[0];
        v.st = t->stride[1];
    }
    return v;
}

static void bind_inputs(Sizes *s, const Args *a)
{
    const Graph *g = s->g;
    Bound *b = s->b;

    for (int i = 0; i < g->nin; i++)
        learn_input(s, &g->in[i], &a->in[i]);
    for (int i = 0; i < g->nin; i++) {
        View v = input_view(g, i, &a->in[i]);
        if (b->call.heads % v.heads)
            fail_help(s->ctx, 0, "heads are shared in equal groups",
                      "%s: %s has %d heads, which do not divide the %d of %s",
                      s->what, g->in[i].name, v.heads, b->call.heads,
                      s->heads_from);
        b->call.in[i] = v;
    }
    if (!s->tokens_from)
        fail_help(s->ctx, 0, "give one input axis t", "%s: %s has no input of "
                  "axis t, so there are no tokens", s->what, g->name);
    if (a->mode == M_STEP && b->T != 1)
        fail_help(s->ctx, 0, "forward takes many, verify keeps the state "
                  "behind each", "%s: takes one token, but "
                  "%s has %lld", s->what, s->tokens_from, (long long)b->T);
}

/* ---- sequences ---- */

static void check_packed(Sizes *s, const Args *a)
{
    if (a->mode == M_STEP)
        fail(s->ctx, 0, "step: takes one token of each sequence, side by side "
             "in the batch, and no cu_seqlens");
    if (a->mode == M_VERIFY)
        fail(s->ctx, 0, "verify: takes as many tokens of each sequence, side "
             "by side in the batch, and no cu_seqlens");
    if (s->b->B != 1)
        fail_help(s->ctx, 0, "packed sequences follow each other in one row: "
                  "B = 1", "%s: with cu_seqlens, %s has %lld batch entries",
                  s->what, s->batch_from, (long long)s->b->B);
    if (a->device_cu && a->ncu < 1)
        fail(s->ctx, 0, "%s: cu_seqlens has no ends", s->what);
}

static void check_cu(Sizes *s, const Args *a)
{
    int64_t T = s->b->T;

    if (a->ncu < 1 || a->cu[0] != 0)
        fail_help(s->ctx, 0, "{0, end of the first, ..., T}",
                  "%s: cu_seqlens must start with 0", s->what);
    for (int64_t i = 1; i < a->ncu; i++)
        if (a->cu[i] < a->cu[i - 1])
            fail(s->ctx, 0, "%s: cu_seqlens decreases: %lld after %lld",
                 s->what, (long long)a->cu[i], (long long)a->cu[i - 1]);
    if (a->cu[a->ncu - 1] == s->tokens_heads && s->tokens_heads > T)
        fail_help(s->ctx, 0, layout_help(s, s->tokens_from),
                  "%s: cu_seqlens ends at %lld, but %s has %lld tokens",
                  s->what, (long long)a->cu[a->ncu - 1], s->tokens_from,
                  (long long)T);
    if (a->cu[a->ncu - 1] != T)
        fail(s->ctx, 0, "%s: cu_seqlens ends at %lld, but %s has %lld tokens",
             s->what, (long long)a->cu[a->ncu - 1], s->tokens_from,
             (long long)T);
}

static void bind_sequences(Sizes *s, const Args *a)
{
    Bound *b = s->b;

    if (a->cu || a->device_cu)
        check_packed(s, a);
    if (a->cu)
        check_cu(s, a);
    b->N = a->cu || a->device_cu ? a->ncu - 1 : b->B;
    if (b->N > INT32_MAX)
        fail(s->ctx, 0, "%s: %s has %lld batch entries: at most %d are "
             "possible", s->what, s->batch_from, (long long)b->N, INT32_MAX);
    b->call.nseq = b->N;
    b->call.device_cu = a->device_cu;
    if (a->device_cu)
        return;
    Seq *seq = ctx_alloc(s->ctx, (size_t)b->N * sizeof *seq);
    for (int64_t i = 0; i < b->N; i++) {
        if (a->cu)
            seq[i] = (Seq){ 0, a->cu[i], a->cu[i + 1] - a->cu[i] };
        else
            seq[i] = (Seq){ (int32_t)i, 0, b->T };
    }
    b->call.seq = seq;
}

/* ---- states ---- */

static void bind_state(Sizes *s, int i, const Args *a)
{
    const Given *t = &a->state[i];
    const State *st = &s->g->st[i];
    int lead = state_lead(s->g);

    if (!t->given && a->index.given)
        fail(s->ctx, 0, "%s: state_index: state %s is missing: there is no "
             "pool to find states in", s->what, st->name);
    if (!t->given)
        return;
    if (dtype_whole(t->dtype))
        fail_help(s->ctx, 0, "float32, bfloat16, float16 or float64", "%s: "
                  "state %s is %s", s->what, st->name, dtype_name(t->dtype));
    if (t->rank != lead + st->rank)
        bad_rank(s, t, "state ", st->name, wanted_text(s->ctx, s->g,
                 s->g->layer ? "N" : "N, H", st->order, st->rank));
    for (int k = 0; k < st->rank; k++)
        learn_axis(s, st->order[k], t->shape[lead + k], st->name);
    if (a->index.given)
        learn(s, &s->b->states, &s->states_from, "states", t->shape[0],
              st->name);
    else if (t->shape[0] != s->b->N)
        fail(s->ctx, 0, "%s: state %s is for %lld sequences, but the call "
             "has %lld", s->what, st->name, (long long)t->shape[0],
             (long long)s->b->N);
    s->b->call.s0[i] = state_view(s->g, i, t);
    if (s->g->layer)
        return;
    if (t->shape[1] != s->b->call.heads && t->shape[1] == s->b->T
        && s->b->T > 1 && s->b->T < s->b->call.heads)
        fail_help(s->ctx, 0, layout_help(s, s->heads_from),
                  "%s: state %s has %lld heads, but %s has %d", s->what,
                  st->name, (long long)t->shape[1], s->heads_from,
                  s->b->call.heads);
    if (t->shape[1] != s->b->call.heads)
        fail(s->ctx, 0, "%s: state %s has %lld heads, but %s has %d", s->what,
             st->name, (long long)t->shape[1], s->heads_from,
             s->b->call.heads);
}

/* ---- pools of states ---- */

/* What entry i of the index is, by rows. */
static int64_t index_entry(const Args *a, int64_t n, int64_t i)
{
    const Given *t = &a->index;
    View v = { .data = t->data, .dtype = t->dtype };

    return (int64_t)view_get(&v, n * t->stride[0]
                             + (t->rank > 1 ? i * t->stride[1] : 0));
}

/* That no state is two sequences', and none written twice. */
static void check_entries(Sizes *s, const Args *a, int64_t columns)
{
    int64_t most = s->b->states;
    int64_t *owner = ctx_alloc(s->ctx, (size_t)(most + 1) * sizeof *owner);

    for (int64_t n = 0; n < s->b->N; n++)
        for (int64_t i = columns - 1; i >= 0; i--) {
            int64_t x = index_entry(a, n, i);
            if (x < -1 || x >= most)
                fail_help(s->ctx, 0, most ? ctx_format(s->ctx, "from 0 to "
                          "%lld; -1 where there is no state", (long long)
                          most - 1) : NULL, "%s: state_index holds %lld for "
                          "sequence %lld (from 0), but %s has %lld states",
                          s->what, (long long)x, (long long)n,
                          s->states_from, (long long)most);
            if (x < 0 || (columns > 1 && !i && owner[x] == n + 1))
                continue;               /* read before it is written */
            if (owner[x])
                fail_help(s->ctx, 0, "a state of its own for each",
                          "%s: state_index holds %lld for sequence %lld and "
                          "for sequence %lld (from 0)", s->what, (long long)x,
                          (long long)owner[x] - 1, (long long)n);
            owner[x] = n + 1;
        }
}

/* A sequence without a state has no tokens, where that is known. */
static void leave_out(Sizes *s, const Args *a)
{
    Seq *seq = ctx_alloc(s->ctx, (size_t)(s->b->N + 1) * sizeof *seq);

    for (int64_t n = 0; n < s->b->N; n++) {
        seq[n] = s->b->call.seq[n];
        if (index_entry(a, n, 0) < 0)
            seq[n].len = 0;
    }
    s->b->call.seq = seq;
}

static void check_index_shape(Sizes *s, const Args *a, int64_t columns)
{
    const Given *t = &a->index;
    bool many = a->mode == M_VERIFY;
    int64_t wanted[2] = { s->b->N, columns };

    if (!dtype_whole(t->dtype))
        fail_help(s->ctx, 0, "int32 or int64", "%s: state_index is %s",
                  s->what, dtype_name(t->dtype));
    if (t->rank != 1 + many || memcmp(t->shape, wanted, (size_t)t->rank
                                                        * sizeof *wanted))
        fail(s->ctx, 0, "%s: state_index has shape %s, but %s is wanted: for "
             "each sequence %s", s->what, shape_text(s->ctx, t->rank,
             t->shape), shape_text(s->ctx, 1 + many, wanted), many
             ? "that of its state, then of the one behind each token"
             : "that of its state");
    if (t->device != s->b->call.on_device)
        fail(s->ctx, 0, "%s: state_index is on the %s, but %s on the %s",
             s->what, t->device ? "GPU" : "CPU", s->states_from,
             t->device ? "CPU" : "GPU");
}

static void bind_index(Sizes *s, const Args *a)
{
    const Given *t = &a->index;
    int64_t columns = a->mode == M_VERIFY ? s->b->T + 1 : 1;

    s->b->call.each = a->mode == M_VERIFY;
    if (!t->given)
        return;
    if (a->mode == M_BACKWARD || a->mode == M_REFERENCE_BACKWARD)
        fail(s->ctx, 0, "%s: state_index: gradients take states side by side, "
             "not from a pool", s->what);
    if (!s->g->nst || (s->g->mask && !mode_steps(a->mode)))
        fail(s->ctx, 0, "%s: state_index: %s has no states that a call takes "
             "from a pool", s->what, s->g->name);
    if (a->validate > 0)
        fail_help(s->ctx, 0, "states side by side, or no validation", "%s: "
                  "validate does not look into pools of states", s->what);
    check_index_shape(s, a, columns);
    s->b->call.pages = (Pages){ .at = t->data, .dtype = t->dtype,
        .sn = t->stride[0], .sc = columns > 1 ? t->stride[1] : 0,
        .states = s->b->states };
    if (a->unread || t->device || a->part)
        return;
    check_entries(s, a, columns);
    leave_out(s, a);
}

/* ---- sizes that follow from others ---- */

void sizes_complete(const Graph *g, int32_t size[NAXES], bool guess)
{
    bool more = true;

    while (more) {
        more = false;
        for (Ref r = 1; r < g->len; r++) {
            const Node *n = &g->n[r];
            if (!op_has(n->op, TO_AXIS))
                continue;
            int32_t *from = &size[lowest(n->over)];
            int32_t *to = &size[n->index], open = !*from + !*to;
            if (op_is(n->op, RENAMES) && !*from)
                *from = *to;
            if (op_is(n->op, RENAMES) && !*to)
                *to = *from;
            if (op_is(n->op, SPREADS) && guess && !*from && *to > 1)
                *from = *to / 2;
            more = more || !*from + !*to < open;
        }
    }
}

static void check_node(Sizes *s, const Node *n)
{
    const Axis *axis = s->g->axis;
    const int32_t *size = s->b->call.size;
    int from = n->over ? lowest(n->over) : 0;

    if (op_is(n->op, MOVES) && op_has(n->op, INDEX)
        && n->index >= size[from])
        fail(s->ctx, 0, "%s: axis '%s' is %d, but the step takes entry %d "
             "(line %d)", s->what, axis[from].name, size[from], n->index + 1,
             n->line);
    if (op_is(n->op, RENAMES) && size[from] != size[n->index])
        fail(s->ctx, 0, "%s: axes '%s' and '%s' are one, renamed (line %d), "
             "but %d and %d long", s->what, axis[from].name,
             axis[n->index].name, n->line, size[from], size[n->index]);
    if (op_is(n->op, SPREADS) && 2 * size[from] > size[n->index])
        fail(s->ctx, 0, "%s: rotate (line %d) turns pairs: axis '%s' is %d, "
             "more than half of the %d of '%s'", s->what, n->line,
             axis[from].name, size[from], size[n->index],
             axis[n->index].name);
}

static void check_sizes(Sizes *s)
{
    const Graph *g = s->g;
    AxisSet used = 0;

    sizes_complete(g, s->b->call.size, false);
    for (Ref r = 1; r < g->len; r++)
        used |= g->n[r].axes | g->n[r].over;
    for (int ax = AX_DIM; ax < g->naxes; ax++)
        if (!s->b->call.size[ax] && used & AXIS(ax))
            fail(s->ctx, 0, "%s: nothing says how long axis '%s' is: give "
                 "axes = { %s = ... } in the variant", s->what,
                 g->axis[ax].name, g->axis[ax].name);
    for (Ref r = 1; r < g->len && !s->part; r++)
        check_node(s, &g->n[r]);        /* a layer's have been, with it */
}

/* ---- results ---- */

static int shape_of(const Bound *b, int rank, const uint8_t *order, int at,
                    int64_t *shape)
{
    for (int i = 0; i < rank; i++)
        shape[at + i] = b->call.size[order[i]];
    return at + rank;
}

int result_shape(const Graph *step, const Bound *b, int o, int64_t *shape)
{
    const Output *y = &step->out[o];

    shape[0] = b->B;
    shape[1] = b->T;
    shape[2] = b->call.heads;
    return shape_of(b, y->rank, y->order, input_lead(step, true), shape);
}

int state_shape(const Graph *step, const Bound *b, int s, int64_t *shape)
{
    const State *st = &step->st[s];

    bool each = b->call.each && !b->call.pages.at;
    shape[0] = b->states;
    shape[1] = b->T;
    shape[1 + each] = b->call.heads;
    return shape_of(b, st->rank, st->order, state_lead(step) + each, shape);
}

DType state_dtype(const Graph *step, const Bound *b, int s)
{
    return step->st[s].sum && !b->call.on_device ? F64 : b->state_dtype;
}

DType y_dtype(const Graph *step, const Bound *b)
{
    bool narrow = b->dtype == BF16 || b->dtype == F16;

    return step->layer && !step->out[0].rank && narrow ? F32 : b->dtype;
}

View result_view(const Graph *step, int o, const Given *t)
{
    View v = lead_view(step, t, input_lead(step, true), step->out[o].rank);

    v.sb = t->stride[0];
    v.st = t->stride[1];
    return v;
}

View state_view(const Graph *step, int s, const Given *t)
{
    View v = lead_view(step, t, state_lead(step), step->st[s].rank);

    v.sb = t->stride[0];
    return v;
}

View final_view(const Graph *step, const Bound *b, int s, const Given *t)
{
    Given one = *t;

    if (!b->call.each || b->call.pages.at)
        return state_view(step, s, t);
    for (int i = 1; i + 1 < t->rank; i++) {
        one.shape[i] = t->shape[i + 1];
        one.stride[i] = t->stride[i + 1];
    }
    View v = state_view(step, s, &one);
    v.st = t->stride[1];
    return v;
}

/* ---- a call ---- */

/* Sizes of 0 aside: what is counted of others must be possible, too. */
static void check_count(Sizes *s, const char *kind, const char *name,
                        int rank, const int64_t *shape)
{
    int64_t n = 1, most = (int64_t)1 << 46;

    for (int i = 0; i < rank; i++) {
        int64_t size = shape[i] ? shape[i] : 1;
        if (size > most / n)
            fail_help(s->ctx, 0, ctx_format(s->ctx, "of its size %lld, %lld "
                      "would do", (long long)size, (long long)(most / n)),
                      "%s: %s%s would have shape %s: at most 2^46 numbers are "
                      "possible", s->what, kind, name,
                      shape_text(s->ctx, rank, shape));
        n *= size;
    }
}

static void check_results(Sizes *s)
{
    int64_t shape[TENSOR_RANK];

    for (int o = 0; o < s->g->nout; o++)
        check_count(s, "", s->g->out[o].name,
                    result_shape(s->g, s->b, o, shape), shape);
    for (int i = 0; i < s->g->nst; i++)
        check_count(s, "state ", s->g->st[i].name,
                    state_shape(s->g, s->b, i, shape), shape);
}

/* That of v where there is a v, else of the first tensor with tokens. */
static DType result_dtype(const Graph *g, const Args *a)
{
    int first = -1;

    for (int i = 0; i < g->nin; i++) {
        if (g->in[i].timed && first < 0 && !dtype_whole(a->in[i].dtype))
            first = i;
        if (g->in[i].timed && !strcmp(g->in[i].name, "v"))
            return a->in[i].dtype;
    }
    return first < 0 ? F32 : a->in[first].dtype;
}

/* ---- indices ---- */

/* The first entry that is none of the axis, of a host's tensor of a layer. */
static void check_index(Sizes *s, const Input *in, const View *v)
{
    enum { BETWEEN_POLLS = 1 << 16 };
    int32_t size = s->b->call.size[in->index_of], most = 1;
    int64_t tokens = s->b->B * s->b->T;

    for (int d = 0; d < in->rank; d++)
        most *= s->b->call.size[in->order[d]];
    for (int64_t i = 0; i < tokens * most; i++) {
        int64_t t = i / most, at = t / s->b->T * v->sb + t % s->b->T * v->st;
        int64_t rest = i % most;
        for (int d = in->rank - 1; d >= 0; d--) {
            at += rest % s->b->call.size[in->order[d]] * v->sd[d];
            rest /= s->b->call.size[in->order[d]];
        }
        double x = view_get(v, at);
        if (i % BETWEEN_POLLS == 0)
            ctx_poll(s->ctx);
        if (!(x >= 0 && x < size))
            fail_help(s->ctx, in->line, ctx_format(s->ctx, "from 0 to %d",
                      size - 1), "%s: %s is %.0f at token %lld of batch entry "
                      "%lld (both from 0): axis '%s' has %d entries", s->what,
                      in->name, x, (long long)(t % s->b->T),
                      (long long)(t / s->b->T),
                      s->g->axis[in->index_of].name, size);
    }
}

static void check_indices(Sizes *s)
{
    const Graph *g = s->g;

    for (int i = 0; i < g->nin; i++)
        if (g->layer && g->in[i].index_of && !s->b->call.on_device
            && s->b->call.in[i].data)
            check_index(s, &g->in[i], &s->b->call.in[i]);
}

static void check_numbers(Sizes *s, const Args *a)
{
    if (a->chunk < 0 || a->chunk > CHUNK_MAX)
        fail(s->ctx, 0, "%s: chunk = %d: it must be from 1 to %d", s->what,
             a->chunk, CHUNK_MAX);
    if (a->threads < 0 || a->threads > 1024)
        fail(s->ctx, 0, "%s: threads = %d: it must be from 1 to 1024, or 0 "
             "for all", s->what, a->threads);
}

/* All where the first is, but numbers. */
static void bind_device(Sizes *s, const Args *a)
{
    const Graph *g = s->g;
    const char *first = NULL;

    for (int i = 0; i < g->nin + g->nst; i++) {
        const Given *t = i < g->nin ? &a->in[i] : &a->state[i - g->nin];
        const char *name = i < g->nin ? g->in[i].name
                                      : g->st[i - g->nin].name;
        bool *on = &s->b->call.on_device;
        if (!t->given || t->number)
            continue;
        if (first && t->device != *on)
            fail_help(s->ctx, 0, ctx_format(s->ctx, "%s:to(\"%s\")",
                      name, *on ? "cuda" : "cpu"),
                      "%s: %s is on the %s, but %s on the %s", s->what,
                      first, *on ? "GPU" : "CPU", name, *on ? "CPU" : "GPU");
        first = first ? first : name;
        *on = t->device;
    }
}

void bind_call(Ctx *c, const Graph *step, const Args *a, Bound *b)
{
    Sizes s = { .ctx = c, .g = step, .what = mode_name[a->mode], .b = b,
                .part = a->part };

    memset(b, 0, sizeof *b);
    for (int ax = AX_DIM; ax < step->naxes; ax++)
        b->call.size[ax] = step->axis[ax].size;
    check_numbers(&s, a);
    b->call.cache = a->cache;
    b->call.way = a->way;
    bind_device(&s, a);
    bind_inputs(&s, a);
    bind_sequences(&s, a);
    for (int i = 0; i < step->nst; i++)
        bind_state(&s, i, a);
    if (!a->index.given)
        b->states = b->N;
    bind_index(&s, a);
    check_sizes(&s);
    check_results(&s);
    if (!a->unread)
        check_indices(&s);
    bool exact = a->mode == M_REFERENCE || a->mode == M_REFERENCE_BACKWARD;
    b->dtype = exact ? F64 : result_dtype(step, a);
    b->state_dtype = exact ? F64 : F32;
    b->call.tokens = b->T;
    b->call.threads = a->threads;
    b->call.interrupted = c->interrupted;
    b->call.interrupt_ud = c->interrupt_ud;
}

bool layer_checkpoints(const Variant *v, const Args *a)
{
    return a->checkpoint || v->step->layer->checkpoint;
}
