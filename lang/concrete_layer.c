/* concrete_layer.c -- what a layer's forward function calls, on numbers.
 *
 * A variant is its step's trace, which was compared with its function where it
 * was defined, for each head; its states are the run's.
 */
#include <string.h>

#include "bind.h"
#include "concrete.h"

void layer_room(Ctx *ctx, Concrete *c)
{
    const Layer *l = c->g->layer;

    for (int i = 0; i < l->ncalls; i++) {
        const LayerCall *k = &l->call[i];
        int32_t size[NAXES] = { 0 };
        if (k->taps)
            continue;
        for (int ax = AX_DIM; ax < k->step->naxes; ax++)
            size[ax] = c->size[k->axis[ax]];
        c->call[i] = eval_new(ctx, k->step, size, 1);
    }
}

bool layer_runs(lua_State *L)
{
    const Concrete *c = concrete_now(L);

    return c && c->g && c->g->layer;
}

/* The call that comes next in the trace. */
static const LayerCall *next_call(lua_State *L, Concrete *c, const char *name)
{
    const Layer *l = c->g->layer;
    const LayerCall *k = &l->call[c->at_call];

    if (c->at_call == l->ncalls || (name ? k->taps || strcmp(k->name, name)
                                         : !k->taps))
        lang_fail(L, "call variants and flin.conv in each token alike",
                  "%s: run on numbers, forward calls it where it does not in "
                  "its trace", name ? name : "conv");
    c->at_call++;
    return k;
}

void check_calls(lua_State *L, const Concrete *c)
{
    if (c->at_call < c->g->layer->ncalls)
        lang_fail(L, "call variants and flin.conv in each token alike",
                  "%s: run on numbers, forward calls it less often than in its "
                  "trace", c->g->layer->call[c->at_call].name);
}

/* ---- places ---- */

/* What one step along the axis is among these axes; 0 where they lack it. */
static int64_t stride(const Concrete *c, AxisSet axes, int ax)
{
    return axes & AXIS(ax) ? entry_count(c->size, axes & ~(AXIS(ax)
                                         | (AXIS(ax) - 1))) : 0;
}

/* Dense numbers of the layer's axes as a call's argument, result or state sees
 * them: by the step's axes. */
static View view_of(const Concrete *c, const LayerCall *k, AxisSet axes,
                    double *x, const uint8_t *order, int rank)
{
    View v = { .data = x, .dtype = F64, .heads = 1 };

    if (k->heads)
        v.sh = stride(c, axes, lowest(k->heads));
    for (int i = 0; i < rank; i++)
        v.sd[i] = stride(c, axes, k->axis[order[i]]);
    return v;
}

static AxisSet layer_axes(const LayerCall *k, AxisSet s)
{
    AxisSet to = k->heads;

    for (; s; s &= s - 1)
        to |= AXIS(k->axis[lowest(s)]);
    return to;
}

/* ---- a variant ---- */

/* Memory that the stack holds. */
static double *push_room(lua_State *L, int64_t n)
{
    work(L, (uint64_t)n);
    return lua_newuserdatauv(L, (size_t)n * sizeof(double) + 1, 0);
}

typedef struct Called {
    const LayerCall *k;
    Concrete *c;
    Eval *e;
    int32_t size[NAXES];                /* of the step's axes */
    View in[MAX_INPUTS], y;
    int heads;
} Called;

/* One head. */
static void run_head(Called *d, int head)
{
    const Graph *step = d->k->step;
    const Output *y = &step->out[0];

    for (int i = 0; i < step->nin; i++) {
        const Input *in = &step->in[i];
        if (d->e->live[in->node])
            view_entries(&d->in[i], in->order, in->rank, d->size, in->axes,
                         head * d->in[i].sh, d->e->val[in->node], false);
    }
    for (int i = 0; i < step->nst; i++) {
        const State *st = &step->st[i];
        View v = view_of(d->c, d->k, layer_axes(d->k, st->axes),
                         d->c->now[d->k->state + i], st->order, st->rank);
        if (d->e->live[st->node])
            view_entries(&v, st->order, st->rank, d->size, st->axes,
                         head * v.sh, d->e->val[st->node], false);
    }
    for (Ref r = 1; r < step->len; r++)
        if (d->e->live[r])
            eval_node(d->e, r);
    for (int i = 0; i < step->nst; i++) {
        const State *st = &step->st[i];
        View v = view_of(d->c, d->k, layer_axes(d->k, st->axes),
                         d->c->next[d->k->state + i], st->order, st->rank);
        view_entries(&v, st->order, st->rank, d->size, st->axes, head * v.sh,
                     d->e->val[st->next], true);
    }
    view_entries(&d->y, y->order, y->rank, d->size, step->n[y->node].axes,
                 head * d->y.sh, d->e->val[y->node], true);
}

static void run_heads(Ctx *ctx, void *ud)
{
    Called *d = ud;

    (void)ctx;
    for (int head = 0; head < d->heads; head++)
        run_head(d, head);
}

/* The arguments are in the table at 2; pushes the result. */
static int run_call(lua_State *L, const char *name)
{
    Concrete *c = concrete_now(L);
    Called *d = lua_newuserdatauv(L, sizeof *d, 0);

    memset(d, 0, sizeof *d);
    d->c = c;
    d->k = next_call(L, c, name);
    d->e = c->call[d->k - c->g->layer->call];
    const Graph *step = d->k->step;
    for (int ax = AX_DIM; ax < step->naxes; ax++)
        d->size[ax] = c->size[d->k->axis[ax]];
    d->heads = d->k->heads ? c->size[lowest(d->k->heads)] : 1;
    luaL_checkstack(L, step->nin + 8, NULL);
    for (int i = 0; i < step->nin; i++) {
        const Input *in = &step->in[i];
        AxisSet axes = layer_axes(d->k, in->axes);
        double *x = push_room(L, entry_count(c->size, axes));
        lua_getfield(L, 2, in->name);
        numbers_take(L, c, in->name, axes, x);
        d->in[i] = view_of(c, d->k, axes, x, in->order, in->rank);
    }
    const Output *y = &step->out[0];
    AxisSet axes = layer_axes(d->k, step->n[y->node].axes);
    double *result = push_room(L, entry_count(c->size, axes));
    d->y = view_of(c, d->k, axes, result, y->order, y->rank);
    protect(L, d->e->c, run_heads, d);
    numbers_push(L, c, axes, result);
    return 1;
}

/* Of several results each is a call in the trace. */
int concrete_call_variant(lua_State *L)
{
    const Graph *step = variant_check(L, 1)->step;

    if (step->nout == 1)
        return run_call(L, step->name);
    lua_createtable(L, 0, step->nout);
    int table = lua_gettop(L);
    for (int o = 0; o < step->nout; o++) {
        run_call(L, step->name);
        lua_setfield(L, table, step->out[o].name);
        lua_settop(L, table);
    }
    return 1;
}

/* flin.prev(x) is the call of a step, too: layer_prev. */
int concrete_layer_prev(lua_State *L)
{
    lua_settop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, 1);
    lua_setfield(L, 2, "x");
    return run_call(L, "prev");
}

/* ---- a convolution ---- */

int concrete_conv(lua_State *L)
{
    Concrete *c = concrete_now(L);
    const LayerCall *k = next_call(L, c, NULL);
    const State *st = &c->g->st[k->state];
    AxisSet axes = st->axes & ~AXIS(k->taps);
    int64_t n = entry_count(c->size, st->axes), len = c->size[k->taps];
    int64_t step = stride(c, st->axes, k->taps);
    double *taps = push_room(L, n), *x = push_room(L, n / len);
    double *y = push_room(L, n / len), *now = c->now[k->state];
    double *next = c->next[k->state];

    lua_pushvalue(L, 2);
    numbers_take(L, c, "taps", st->axes, taps);
    lua_pushvalue(L, 1);
    numbers_take(L, c, "x", axes, x);
    for (int64_t i = 0; i < n / len; i++) {
        int64_t at = i / step * step * len + i % step;
        y[i] = 0;
        for (int64_t w = 0; w < len; w++, at += step) {
            next[at] = w + 1 < len ? now[at + step] : x[i];
            y[i] += taps[at] * next[at];
        }
    }
    numbers_push(L, c, axes, y);
    return 1;
}
