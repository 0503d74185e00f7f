/* check.c -- v:check: the chunk form, its gradients and the decode step
 * against the float64 step, on random input.
 *
 * Inputs are drawn from the domains that the variant names and rounded to the
 * call's dtype before anything reads them. Initial states are what a few
 * random tokens leave behind, more where the variant looks back further: not
 * zero, and of a kind that the variant meets.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../compiler/domain.h"
#include "bind.h"
#include "run.h"
#include "tensor.h"

enum { WARM_UP = 7, STEPS_MAX = 1024 };

/* What is asked for. */
typedef struct Check {
    Variant *v;
    int64_t B, T, H, HV, N;
    int32_t size[NAXES];
    DType dtype;
    Rng rng;
    const int64_t *cu;                  /* NULL: not packed */
} Check;

/* The stack of check_method. */
enum { A_VARIANT = 1, A_OPTIONS, A_CU, A_INPUT, A_STATE, A_Y, A_LEFT, A_TRUE_Y,
       A_TRUE_LEFT, A_DY, A_DSTATE, A_GRAD, A_TRUE_GRAD, A_RESULT };

/* ---- random input ---- */

/* One token and head: n entries, of norm 1 where the domain says so. */
static void draw_entries(Rng *r, const Domain *domain, double scale, View *to,
                         int64_t at, int64_t n)
{
    double norm = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = scale * domain->draw(domain->uniform ? rng_uniform(r)
                                                        : rng_normal(r));
        norm += x * x;
        view_set(to, at + i, x);
    }
    norm = sqrt(norm);
    if (domain->row && norm > 0)
        for (int64_t i = 0; i < n; i++)
            view_set(to, at + i, view_get(to, at + i) / norm);
}

/* Inputs that hold only axes of the keys have H heads, the others HV. */
static int64_t heads_of(const Check *k, const Input *in)
{
    AxisSet y = k->v->step->n[k->v->step->out[0].node].axes;
    bool key_like = in->timed && in->axes && !(in->axes & y);

    return key_like ? k->H : k->HV;
}

/* Of the entries over which products with a layer's weight sum, one by the root
 * of how many there are: the sums are then as large as what is summed. */
static double weight_scale(const Check *k, const Input *in)
{
    const Graph *g = k->v->step;
    double n = 1;

    for (Ref r = 1; g->layer && !in->timed && !*in->domain && r < g->len; r++) {
        const Node *by = &g->n[r];
        double all = 1;
        if (!op_is(by->op, MULTIPLIES)
            || (by->a[0] != in->node && by->a[1] != in->node))
            continue;
        for (AxisSet s = by->over; s; s &= s - 1)
            all *= k->size[lowest(s)];
        n = fmax(n, all);
    }
    return 1 / sqrt(n);
}

/* Pushes a random tensor for the input, of B x T tokens. */
static void push_random(lua_State *L, Check *k, const Input *in, int64_t B,
                        int64_t T)
{
    int64_t shape[TENSOR_RANK] = { 0 }, n = 1;
    double scale = weight_scale(k, in);
    int rank = 0, first;

    if (in->timed) {
        shape[rank++] = B;
        shape[rank++] = T;
    }
    if (!k->v->step->layer)
        shape[rank++] = heads_of(k, in);
    first = rank;
    for (int i = 0; i < in->rank; i++)
        shape[rank++] = k->size[in->order[i]];
    Tensor *t = tensor_push(L, in->index_of ? I64
                            : in->timed || in->rank > 1 ? k->dtype : F32,
                            rank, shape);
    for (int i = first; i < rank; i++)
        n *= shape[i];                  /* of a tensor that there is */
    View view = { .data = tensor_data(t), .dtype = t->dtype };
    for (Span s = span(L, tensor_count(t), DRAW_COST); in->index_of
         && span_next(&s);)
        for (int64_t i = s.from; i < s.to; i++)
            view_set(&view, i, floor(rng_uniform(&k->rng)
                                     * k->size[in->index_of]));
    for (Span s = span(L, n ? tensor_count(t) / n : 0, n * DRAW_COST);
         !in->index_of && span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++)
            draw_entries(&k->rng, domain_named(in->domain), scale, &view,
                         i * n, n);
}

/* Pushes a table of random inputs. Constants are taken from the table at
 * `constants`, where it is not 0. */
static void push_inputs(lua_State *L, Check *k, int64_t B, int64_t T,
                        int constants)
{
    const Graph *g = k->v->step;

    lua_newtable(L);
    for (int i = 0; i < g->nin; i++) {
        if (constants && !g->in[i].timed)
            lua_getfield(L, constants, g->in[i].name);
        else
            push_random(L, k, &g->in[i], B, T);
        lua_setfield(L, -2, g->in[i].name);
    }
}

/* ---- calls ---- */

/* Calls v:METHOD(table on top); its results replace the table. */
static void call_method(lua_State *L, const char *method, int results)
{
    lua_getfield(L, A_VARIANT, method);
    lua_insert(L, -2);
    lua_pushvalue(L, A_VARIANT);
    lua_insert(L, -2);
    lua_call(L, 2, results);
}

/* Pushes what is at `from`, a tensor as it is on `device`, of tables those in
 * them. */
static void push_moved(lua_State *L, int from, const char *device)
{
    from = lua_absindex(L, from);
    luaL_checkstack(L, 8, NULL);
    if (tensor_test(L, from)) {
        lua_getfield(L, from, "to");
        lua_pushvalue(L, from);
        lua_pushstring(L, device);
        lua_call(L, 2, 1);
    } else if (lua_istable(L, from)) {
        lua_newtable(L);
        for (lua_pushnil(L); lua_next(L, from); lua_pop(L, 1)) {
            lua_pushvalue(L, -2);
            push_moved(L, -2, device);
            lua_settable(L, -5);
        }
    } else {
        lua_pushvalue(L, from);
    }
}

/* Does the call run where its tensors are, and is that to be a GPU? Over all
 * pairs of tokens none are moved by themselves. */
static bool goes_to_gpu(lua_State *L, const Check *k)
{
    const char *backend = NULL;

    if (raw_field(L, A_OPTIONS, "backend") == LUA_TSTRING)
        backend = lua_tostring(L, -1);
    lua_pop(L, 1);
    return k->v->step->mask && !k->v->runs && backend
        && !strcmp(backend, "cuda");
}

/* As call_method, of a method that kernels run. */
static void call_kernels(lua_State *L, const Check *k, const char *method,
                         int results)
{
    bool there = goes_to_gpu(L, k);

    if (there) {
        push_moved(L, -1, "cuda");
        lua_replace(L, -2);
    }
    call_method(L, method, results);
    for (int i = 0; there && i < results; i++) {
        push_moved(L, -results, "cpu");
        lua_remove(L, -results - 1);
    }
}

/* Pushes a copy of the table at `from`. */
static void push_copy(lua_State *L, int from)
{
    lua_newtable(L);
    for (lua_pushnil(L); lua_next(L, from); ) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_settable(L, -4);
    }
}

static void copy_option(lua_State *L, const char *name)
{
    raw_field(L, A_OPTIONS, name);
    lua_setfield(L, -2, name);
}

/* Pushes the arguments of a whole call. */
static void push_arguments(lua_State *L)
{
    push_copy(L, A_INPUT);
    lua_pushvalue(L, A_STATE);
    lua_setfield(L, -2, "initial_state");
    copy_option(L, "cu_seqlens");
    copy_option(L, "chunk");
    copy_option(L, "backend");
    copy_option(L, "threads");
    copy_option(L, "plan");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "validate");
}

/* Pushes y and the states of a whole call, by kernels or by the reference. */
static void push_calls(lua_State *L, const Check *k)
{
    push_arguments(L);
    call_kernels(L, k, "forward", 2);
    push_arguments(L);
    call_method(L, "reference", 2);
}

/* So many that one has come to all states, at least: each state may pass on to
 * another what it had, and the places of a ring, an axis that no input has,
 * keep a token each. */
static int64_t warm_up(const Graph *g)
{
    int64_t n = g->nst;
    AxisSet of_inputs = 0, of_states = 0;

    for (int i = 0; i < g->nin; i++)
        of_inputs |= g->in[i].axes;
    for (int i = 0; i < g->nst; i++)
        of_states |= g->st[i].axes;
    for (AxisSet s = of_states & ~of_inputs; s; s &= s - 1)
        n += g->axis[lowest(s)].size;
    return n > WARM_UP ? n : WARM_UP;
}

/* Replaces the states on top by those that so many tokens leave of them. */
static void pass_tokens(lua_State *L, Check *k, int64_t n, const char *method)
{
    push_inputs(L, k, k->N, n, A_INPUT);
    lua_rotate(L, -2, 1);
    lua_setfield(L, -2, "initial_state");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "validate");
    call_method(L, method, 2);
    lua_remove(L, -2);
}

/* Pushes states, in float32, as random tokens leave them. Of many the first go
 * by kernels: what is checked begins with the same states as the truth,
 * whatever these are, and kernels' states are checked as all others. */
static void push_initial(lua_State *L, Check *k)
{
    const Graph *g = k->v->step;
    int top = lua_gettop(L);
    int64_t n = warm_up(g);

    lua_newtable(L);
    if (n > WARM_UP)
        pass_tokens(L, k, n - WARM_UP, "forward");
    pass_tokens(L, k, WARM_UP, "reference");
    lua_newtable(L);
    for (int i = 0; i < g->nst; i++) {
        lua_getfield(L, -2, g->st[i].name);
        Tensor *from = tensor_check(L, -1);
        Tensor *to = tensor_push(L, F32, from->rank, from->shape);
        View a = { .data = tensor_data(from), .dtype = F64 };
        View b = { .data = tensor_data(to), .dtype = F32 };
        for (Span p = span(L, tensor_count(from), 1); span_next(&p); )
            for (int64_t e = p.from; e < p.to; e++)
                view_set(&b, e, view_get(&a, e));
        lua_setfield(L, -3, g->st[i].name);
        lua_pop(L, 1);
    }
    lua_replace(L, top + 1);
    lua_settop(L, top + 1);
}

/* ---- errors ---- */

/* Sums of squares: of the error and of what is right. */
typedef struct Squares { double error, truth; int64_t count; } Squares;

/* Smaller errors are none: what has been through numbers that float32 holds
 * with fewer bits has lost as much, such as the gradient of a state of which
 * nothing is left. */
static const double least = FLT_MIN / FLT_EPSILON;

static void add_square(Squares *s, double error, double truth)
{
    s->error += fabs(error) < least ? 0 : error * error;
    s->truth += truth * truth;
    s->count++;
}

/* Adds `n` elements that lie one after another. */
static void add_squares(Squares *s, const View *got, int64_t at,
                        const View *want, int64_t from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double y = view_get(want, from + i);
        add_square(s, view_get(got, at + i) - y, y);
    }
}

/* RMS of the error over that of the truth; where that is 0, by itself. What
 * is not a number is wrong without bound. */
static double relative(const Squares *s)
{
    double e = s->truth > 0 ? sqrt(s->error / s->truth)
        : sqrt(s->error / (double)(s->count ? s->count : 1));

    return isfinite(e) && isfinite(s->truth) ? e : INFINITY;
}

/* Adds two tensors of the same elements, row-major; angles modulo 2 pi. */
static void add_tensors(lua_State *L, Squares *s, const Tensor *got,
                        const Tensor *want, bool angle)
{
    const double turn = 6.283185307179586;
    View a = { .data = tensor_data(got), .dtype = got->dtype };
    View b = { .data = tensor_data(want), .dtype = want->dtype };

    for (Span p = span(L, tensor_count(want), 1); span_next(&p); )
        for (int64_t i = p.from; i < p.to; i++) {
            double y = view_get(&b, i), e = view_get(&a, i) - y;
            e -= angle ? turn * floor(e / turn + 0.5) : 0;
            add_square(s, e, y);
        }
}

static double tensor_error(lua_State *L, const Tensor *got, const Tensor *want,
                           bool angle)
{
    Squares s = { 0 };

    add_tensors(L, &s, got, want, angle);
    return relative(&s);
}

/* Pushes result o of a call whose results are at index `at`. */
static Tensor *push_output(lua_State *L, const Graph *g, int at, int o)
{
    at = lua_absindex(L, at);
    if (g->nout > 1)
        lua_getfield(L, at, g->out[o].name);
    else
        lua_pushvalue(L, at);
    return tensor_check(L, -1);
}

/* The greatest over all results. */
static double results_error(lua_State *L, const Graph *g, int got, int want)
{
    double worst = 0;

    for (int o = 0; o < g->nout; o++) {
        const Tensor *a = push_output(L, g, got, o);
        double e = tensor_error(L, a, push_output(L, g, want, o), false);
        worst = e > worst ? e : worst;
        lua_pop(L, 2);
    }
    return worst;
}

/* The greatest over the states in two tables. */
static double states_error(lua_State *L, const Graph *g, int got, int want)
{
    double worst = 0;

    for (int i = 0; i < g->nst; i++) {
        lua_getfield(L, got, g->st[i].name);
        lua_getfield(L, want, g->st[i].name);
        double e = tensor_error(L, tensor_check(L, -2), tensor_check(L, -1),
                                g->st[i].angle);
        worst = e > worst ? e : worst;
        lua_pop(L, 2);
    }
    return worst;
}

/* The one input of tokens that the state is made of, those of all calls before;
 * -1: there are none, or several, or it is a layer's, made of what weights make
 * of that. */
static int kept_input(lua_State *L, const Graph *g, int state)
{
    uint8_t *live = memset(lua_newuserdatauv(L, g->len, 0), 0, g->len);
    StateSet had = 0, has = STATE(state);
    int found = -1, n = 0;

    while (had != has) {
        had = has;
        for (StateSet s = had; s; s &= s - 1) {
            Ref next = g->st[lowest(s)].next;
            graph_needs(g, live, next);
            has |= g->n[next].states;
        }
    }
    for (int i = 0; i < g->nin; i++)
        if (live[g->in[i].node] && g->in[i].timed) {
            found = i;
            n++;
        }
    lua_pop(L, 1);
    return n == 1 && !g->layer && !g->in[found].index_of ? found : -1;
}

/* The greatest over the gradients of states. One that keeps an input's tokens
 * is that input before the call, and of its gradient the first part: where that
 * is of gates, whose gradients are sums from the last token on, it is what is
 * left of numbers as large as those of later gates, and is measured with
 * these. */
static double state_gradients_error(lua_State *L, const Graph *g, int got,
                                    int want)
{
    double worst = 0;

    lua_getfield(L, got, "initial_state");
    lua_getfield(L, want, "initial_state");
    int state = lua_gettop(L);
    for (int i = 0; i < g->nst; i++) {
        Squares s = { 0 };
        int kept = kept_input(L, g, i);
        lua_getfield(L, state - 1, g->st[i].name);
        lua_getfield(L, state, g->st[i].name);
        add_tensors(L, &s, tensor_check(L, -2), tensor_check(L, -1), false);
        if (kept >= 0) {
            lua_getfield(L, got, g->in[kept].name);
            lua_getfield(L, want, g->in[kept].name);
            add_tensors(L, &s, tensor_check(L, -2), tensor_check(L, -1),
                        false);
        }
        worst = fmax(worst, relative(&s));
        lua_settop(L, state);
    }
    lua_settop(L, state - 2);
    return worst;
}

/* ---- the chain of steps ---- */

/* Replaces the tensor on top by entries start .. start + n - 1 of its
 * dimension dim. */
static void narrow_top(lua_State *L, int dim, int64_t start, int64_t n)
{
    Tensor *part = tensor_alias(L, tensor_check(L, -1));

    part->at += start * part->stride[dim];
    part->shape[dim] = n;
    lua_remove(L, -2);
}

/* Pushes the table of states for sequences first .. first + n - 1. */
static void push_part_of_states(lua_State *L, const Graph *g, int table,
                                int64_t first, int64_t n)
{
    lua_newtable(L);
    for (int i = 0; i < g->nst; i++) {
        lua_getfield(L, table, g->st[i].name);
        narrow_top(L, 0, first, n);
        lua_setfield(L, -2, g->st[i].name);
    }
}

/* Pushes one token's inputs. */
static void push_token(lua_State *L, const Graph *g, int64_t t)
{
    lua_newtable(L);
    for (int i = 0; i < g->nin; i++) {
        lua_getfield(L, A_INPUT, g->in[i].name);
        if (g->in[i].timed)
            narrow_top(L, 1, t, 1);
        lua_setfield(L, -2, g->in[i].name);
    }
    copy_option(L, "backend");
    copy_option(L, "threads");
    copy_option(L, "plan");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "validate");
}

/* The results of token t, on top, against the reference; pops them. */
static void add_token(lua_State *L, Check *k, int64_t t, Squares *s)
{
    const Graph *g = k->v->step;

    for (int o = 0; o < g->nout; o++) {
        const Tensor *y = push_output(L, g, -1, o);
        const Tensor *want = push_output(L, g, A_TRUE_Y, o);
        View a = { .data = tensor_data(y), .dtype = y->dtype };
        View b = { .data = tensor_data(want), .dtype = want->dtype };
        int64_t row = want->stride[1];
        for (int64_t i = 0; i < k->B; i++)
            add_squares(&s[o], &a, i * row, &b, (i * k->T + t) * row, row);
        lua_pop(L, 2);
    }
    lua_pop(L, 1);
}

/* Token by token from `start` to `end`, but STEPS_MAX at most (then the states
 * that are left count as right), for sequences first .. first + n - 1;
 * returns the error of the states left. */
static double step_through(lua_State *L, Check *k, int64_t first, int64_t n,
                           int64_t start, int64_t end, Squares *s)
{
    const Graph *g = k->v->step;
    int64_t stop = end - start > STEPS_MAX ? start + STEPS_MAX : end;
    int top = lua_gettop(L);
    double e = 0;

    push_part_of_states(L, g, A_STATE, first, n);
    for (int64_t t = start; t < stop; t++) {
        push_token(L, g, t);
        lua_insert(L, -2);
        lua_setfield(L, -2, "state");
        call_method(L, "step", 2);
        lua_insert(L, -2);
        add_token(L, k, t, s);
    }
    push_part_of_states(L, g, A_TRUE_LEFT, first, n);
    if (stop == end)
        e = states_error(L, g, top + 1, top + 2);
    lua_settop(L, top);
    return e;
}

/* Over all pairs of tokens some masks do, as far as they have room. */
static bool goes_by_tokens(const Check *k)
{
    const Variant *d = k->v->decoder;

    return !k->v->step->mask || (d && (!d->limit || k->T <= d->limit));
}

static double step_error(lua_State *L, Check *k)
{
    Squares s[MAX_RESULTS] = { { 0 } };
    double worst = 0;

    if (k->cu) {
        for (int64_t i = 0; i < k->N; i++) {
            double e = step_through(L, k, i, 1, k->cu[i], k->cu[i + 1], s);
            worst = e > worst ? e : worst;
        }
    } else {
        worst = step_through(L, k, 0, k->B, 0, k->T, s);
    }
    for (int o = 0; o < k->v->step->nout; o++)
        worst = fmax(worst, relative(&s[o]));
    return worst;
}

/* ---- gradients ---- */

/* Pushes a tensor of the shape, normal. */
static void push_normal(lua_State *L, Check *k, DType d, const Tensor *like)
{
    Tensor *t = tensor_push(L, d, like->rank, like->shape);
    View view = { .data = tensor_data(t), .dtype = d };

    for (Span s = span(L, tensor_count(t), DRAW_COST); span_next(&s); )
        for (int64_t i = s.from; i < s.to; i++)
            view_set(&view, i, rng_normal(&k->rng));
}

/* Pushes dy, of several results their table, and dstate. */
static void push_adjoints(lua_State *L, Check *k)
{
    const Graph *g = k->v->step;

    if (g->nout > 1)
        lua_newtable(L);
    for (int o = 0; o < g->nout; o++) {
        push_normal(L, k, k->dtype, push_output(L, g, A_TRUE_Y, o));
        lua_remove(L, -2);
        if (g->nout > 1)
            lua_setfield(L, A_DY, g->out[o].name);
    }
    lua_newtable(L);
    for (int i = 0; i < g->nst; i++) {
        lua_getfield(L, A_TRUE_LEFT, g->st[i].name);
        push_normal(L, k, F32, tensor_check(L, -1));
        lua_setfield(L, A_DSTATE, g->st[i].name);
        lua_pop(L, 1);
    }
}

/* Pushes the arguments of a whole call's way back. */
static void push_back_arguments(lua_State *L)
{
    push_arguments(L);
    lua_pushvalue(L, A_DY);
    lua_setfield(L, -2, "dy");
    lua_pushvalue(L, A_DSTATE);
    lua_setfield(L, -2, "dstate");
}

/* Sets d_NAME in the result; the greatest is returned. */
static double gradients_error(lua_State *L, Check *k)
{
    const Graph *g = k->v->step;
    double worst = 0;

    push_adjoints(L, k);
    push_back_arguments(L);
    call_kernels(L, k, "backward", 1);
    push_back_arguments(L);
    call_method(L, "reference_backward", 1);
    lua_newtable(L);
    for (int i = 0; i < g->nin; i++) {
        if (g->in[i].index_of)
            continue;
        lua_getfield(L, A_GRAD, g->in[i].name);
        lua_getfield(L, A_TRUE_GRAD, g->in[i].name);
        double e = tensor_error(L, tensor_check(L, -2), tensor_check(L, -1),
                                false);
        worst = e > worst ? e : worst;
        lua_settop(L, A_RESULT);
        lua_pushfstring(L, "d_%s", g->in[i].name);
        lua_pushnumber(L, e);
        lua_settable(L, A_RESULT);
    }
    double e = state_gradients_error(L, g, A_GRAD, A_TRUE_GRAD);
    set_number(L, "d_initial_state", e);
    return e > worst ? e : worst;
}

/* ---- v:check ---- */

/* Pushes the ends of the sequences, or nil. What is wrong with them, v:forward
 * will say. */
static void push_sequences(lua_State *L, Check *k)
{
    k->N = k->B;
    if (raw_field(L, A_OPTIONS, "cu_seqlens") == LUA_TNIL)
        return;
    if (!lua_istable(L, -1))
        lang_fail(L, "cu_seqlens = {0, 5, 12}", "check: cu_seqlens must be a "
                  "list of numbers, not %s", type_text(L, -1));
    lua_Integer n = list_length(L, -1, "cu_seqlens");
    int64_t *cu = lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *cu, 0);
    lua_createtable(L, (int)n, 0);      /* what the calls read is this */
    for (lua_Integer i = 0; i < n; i++) {
        lua_rawgeti(L, -3, i + 1);
        cu[i] = lua_tointeger(L, -1);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, A_OPTIONS, "cu_seqlens");
    lua_remove(L, -2);
    k->cu = cu;
    k->N = n > 0 ? n - 1 : 0;
    k->T = n > 0 && cu[n - 1] > 0 ? cu[n - 1] : 0;
    k->B = 1;
}

/* The options that say what to draw. */
static void take_sizes(lua_State *L, const char *what, Check *k)
{
    lua_Integer usual = option_int(L, what, A_OPTIONS, "size", 16);
    if (usual < 1 || usual > AXIS_MAX)
        lang_fail(L, NULL, "%s: size = %d: axes can be from 1 to %d long",
                  what, (int)usual, AXIS_MAX);
    sizes_arg(L, what, k->v->step, A_OPTIONS, (int32_t)usual, k->size);
    k->B = option_int(L, what, A_OPTIONS, "B", 2);
    k->T = option_int(L, what, A_OPTIONS, "T", 100);
    k->H = option_int(L, what, A_OPTIONS, "H", 2);
    k->HV = option_int(L, what, A_OPTIONS, "HV", k->H);
    rng_seed(&k->rng, (uint64_t)option_int(L, what, A_OPTIONS, "seed", 1));
    if (raw_field(L, A_OPTIONS, "dtype") != LUA_TNIL)
        k->dtype = dtype_check(L, -1);
    lua_pop(L, 1);
}

static void take_options(lua_State *L, Check *k)
{
    static const char *const known[] = { "B", "T", "H", "HV", "dtype", "chunk",
        "cu_seqlens", "seed", "backend", "threads", "backward", "size",
        "plan" };
    const Graph *g = k->v->step;

    check_options(L, "check", g, A_OPTIONS, known,
                  sizeof known / sizeof *known);
    push_copy(L, A_OPTIONS);
    lua_replace(L, A_OPTIONS);
    take_sizes(L, "check", k);
    push_sequences(L, k);
}

/* backward = false leaves them out. */
static bool wants_gradients(lua_State *L)
{
    bool given = raw_field(L, A_OPTIONS, "backward") != LUA_TNIL;

    lua_pop(L, 1);
    return !given || option_flag(L, "check", A_OPTIONS, "backward");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_error(lua_State *L, luaL_Buffer *b, const char *name)
{
    char line[96];

    if (lua_getfield(L, 1, name) != LUA_TNIL) {
        snprintf(line, sizeof line, "%-16s %.1e\n", name,
                 lua_tonumber(L, -1));
        lua_pop(L, 1);
        luaL_addstring(b, line);
    } else {
        lua_pop(L, 1);
    }
}

/* What v:check returned, a line an error: results, gradients, the worst. */
static int check_text(lua_State *L)
{
    const char *gradient[MAX_INPUTS + MAX_STATES];
    int n = 0;
    luaL_Buffer b;

    luaL_checktype(L, 1, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1))
        if (lua_type(L, -2) == LUA_TSTRING && lua_isnumber(L, -1)
            && !strncmp(lua_tostring(L, -2), "d_", 2)
            && n < MAX_INPUTS + MAX_STATES)
            gradient[n++] = lua_tostring(L, -2);
    qsort(gradient, (size_t)n, sizeof *gradient, by_name);
    luaL_buffinit(L, &b);
    add_error(L, &b, "y");
    add_error(L, &b, "state");
    add_error(L, &b, "step");
    for (int i = 0; i < n; i++)
        add_error(L, &b, gradient[i]);
    add_error(L, &b, "worst");
    if (lua_getfield(L, 1, "trouble") == LUA_TSTRING)
        luaL_addvalue(&b);
    else
        lua_pop(L, 1);
    luaL_pushresult(&b);
    return 1;
}

/* A result that is larger has grown from token to token. */
static bool is_huge(const Tensor *y)
{
    View view = { .data = tensor_data(y), .dtype = y->dtype };

    for (int64_t i = 0; i < tensor_count(y); i++)
        if (fabs(view_get(&view, i)) > 1e6)
            return true;
    return false;
}

/* What validation says of the call, where a result is wrong or huge: why it
 * is not a number, or why it grows. Sets `trouble` in the result on top. */
static void add_trouble(lua_State *L, const Check *k, double worst)
{
    double limit = k->dtype == F32 || k->dtype == F64 ? 1e-4 : 3e-2;

    bool huge = is_huge(push_output(L, k->v->step, A_TRUE_Y, 0));
    lua_pop(L, 1);
    if (worst <= limit && !huge)
        return;
    lua_pushcfunction(L, run_trouble);
    lua_pushvalue(L, A_VARIANT);
    push_arguments(L);
    lua_call(L, 2, 1);
    lua_setfield(L, -2, "trouble");
}

/* A mask's own function sums up whole sequences: y from no state, of both. */
static double whole_error(lua_State *L, Check *k)
{
    int top = lua_gettop(L);

    if (!k->v->masked)
        return 0;
    for (int n = 0; n < 2; n++) {
        push_arguments(L);
        lua_pushnil(L);
        lua_setfield(L, -2, "initial_state");
        if (n)
            call_method(L, "reference", 1);
        else
            call_kernels(L, k, "forward", 1);
    }
    double e = tensor_error(L, tensor_check(L, top + 1),
                            tensor_check(L, top + 2), false);
    lua_settop(L, top);
    return e;
}

static int check_method(lua_State *L)
{
    Check k = { .v = variant_check(L, A_VARIANT), .dtype = F32 };
    const Graph *g = k.v->step;

    lua_settop(L, A_OPTIONS);
    if (lua_isnil(L, A_OPTIONS)) {
        lua_newtable(L);
        lua_replace(L, A_OPTIONS);
    }
    take_options(L, &k);
    push_inputs(L, &k, k.B, k.T, 0);
    push_initial(L, &k);
    push_calls(L, &k);
    double y = results_error(L, g, A_Y, A_TRUE_Y);
    y = fmax(y, whole_error(L, &k));
    double state = states_error(L, g, A_LEFT, A_TRUE_LEFT);
    bool steps = goes_by_tokens(&k);
    double step = steps ? step_error(L, &k) : 0;
    double gradients = 0;
    if (wants_gradients(L))
        gradients = gradients_error(L, &k);
    else
        lua_newtable(L);
    set_number(L, "y", y);
    set_number(L, "state", state);
    if (steps)
        set_number(L, "step", step);
    double worst = fmax(fmax(y, state), fmax(step, gradients));
    set_number(L, "worst", worst);
    add_trouble(L, &k, worst);
    lua_getfield(L, A_VARIANT, "note");
    lua_setfield(L, -2, "note");
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, check_text);
    lua_setfield(L, -2, "__tostring");
    lua_setmetatable(L, -2);
    return 1;
}

/* v:random { B =, T =, H =, K = ..., dtype =, seed = }: inputs by name. */
static int random_method(lua_State *L)
{
    static const char *const known[] = { "B", "T", "H", "HV", "dtype",
                                         "seed", "size" };
    Check k = { .v = variant_check(L, A_VARIANT), .dtype = F32 };

    lua_settop(L, A_OPTIONS);
    check_options(L, "random", k.v->step, A_OPTIONS, known,
                  sizeof known / sizeof *known);
    if (lua_isnil(L, A_OPTIONS)) {
        lua_newtable(L);
        lua_replace(L, A_OPTIONS);
    }
    take_sizes(L, "random", &k);
    push_inputs(L, &k, k.B, k.T, 0);
    return 1;
}

void check_methods(lua_State *L)
{
    lua_pushcfunction(L, random_method);
    lua_setfield(L, -2, "random");
    lua_pushcfunction(L, check_method);
    lua_setfield(L, -2, "check");
}
