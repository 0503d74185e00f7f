/* move.c -- between a call's tensors, of any type and strides, and tiles. */
#include "tile.h"

#include "../../compiler/elem.h"

#include <string.h>

enum { MAX_RANK = 9 };

/* A tile's axes in canonical order, tokens first, with their strides in the
 * tile and in memory. */
typedef struct Walk {
    const Isa *isa;
    const View *v;
    bool store;
    int n;
    int32_t ext[MAX_RANK];
    int64_t tile[MAX_RANK], mem[MAX_RANK];
} Walk;

/* The two innermost axes, where the last lies close in memory. */
static void move_rows(const Walk *k, int64_t at, float *p)
{
    const View *v = k->v;
    int32_t rows = k->n > 1 ? k->ext[k->n - 2] : 1;
    int32_t len = k->n ? k->ext[k->n - 1] : 1;
    int64_t ts = k->n > 1 ? k->tile[k->n - 2] : 0;
    int64_t ms = k->n > 1 ? k->mem[k->n - 2] : 0;
    char *data = (char *)v->data + at * dtype_size(v->dtype);

    if (k->store)
        k->isa->store[v->dtype](rows, len, p, ts, data, ms);
    else
        k->isa->load[v->dtype](rows, len, p, ts, data, ms);
}

/* The innermost axis, with gaps in memory. */
static void move_gaps(const Walk *k, int64_t at, float *p)
{
    const View *v = k->v;
    int32_t len = k->ext[k->n - 1];
    int64_t mem = k->mem[k->n - 1];

    if (v->dtype == F32 && k->store)
        for (int32_t i = 0; i < len; i++)
            ((float *)v->data)[at + i * mem] = p[i];
    else if (v->dtype == F32)
        for (int32_t i = 0; i < len; i++)
            p[i] = ((const float *)v->data)[at + i * mem];
    else if (k->store)
        for (int32_t i = 0; i < len; i++)
            view_set(v, at + i * mem, p[i]);
    else
        for (int32_t i = 0; i < len; i++)
            p[i] = (float)view_get(v, at + i * mem);
}

static void move(const Walk *k, int d, int64_t at, float *p)
{
    bool close = !k->n || k->mem[k->n - 1] == 1;

    if (close && d + 2 >= k->n)
        move_rows(k, at, p);
    else if (d + 1 >= k->n)
        move_gaps(k, at, p);
    else
        for (int32_t i = 0; i < k->ext[d]; i++)
            move(k, d + 1, at + i * k->mem[d], p + i * k->tile[d]);
}

static int64_t walk_bytes(const Walk *k)
{
    int64_t bytes = dtype_size(k->v->dtype);

    for (int d = 0; d < k->n; d++)
        bytes *= k->ext[d];
    return bytes;
}

static int64_t walk_run(const Walk *k, int64_t at, const float *p)
{
    move(k, 0, at, (float *)p);         /* a store only reads it */
    return walk_bytes(k);
}

static void add_axis(Walk *k, int32_t ext, int64_t mem)
{
    k->ext[k->n] = ext;
    k->mem[k->n++] = mem;
}

/* The variant's own axes of a tile; rows: its tokens, or 0. */
static Walk walk(const Work *w, const View *v, bool store, AxisSet axes,
                 const int32_t ext[NAXES], const uint8_t *order, int rank,
                 int rows)
{
    Walk k = { .isa = w->p->isa, .v = v, .store = store };
    int64_t step = 1;

    if (rows)
        add_axis(&k, rows, v->st);
    for (int ax = AX_I + 1; ax < NAXES; ax++) {
        int64_t mem = 0;
        if (!(axes & AXIS(ax)))
            continue;
        for (int d = 0; d < rank; d++)
            if (order[d] == ax)
                mem = v->sd[d];
        add_axis(&k, ext[ax], mem);
    }
    for (int d = k.n - 1; d >= 0; d--) {
        k.tile[d] = step;
        step *= k.ext[d];
    }
    while (k.n > 1 && k.ext[k.n - 1] == 1)
        k.n--;
    return k;
}

/* Whether the values lie in memory as in a tile, with as much of the sequence
 * behind them as vectors may read there. */
static bool in_place(const Work *w, const Walk *k)
{
    int64_t behind = w->seq->start + w->seq->len - w->token - w->n;

    if (k->v->dtype != F32 || k->n < 2 || k->mem[0] != k->v->st
        || behind * k->v->st < TILE_SLACK)
        return false;
    for (int d = 0; d < k->n; d++)
        if (k->mem[d] != k->tile[d])
            return false;
    return true;
}

void load_input(Work *w, int input, int slot)
{
    const Graph *g = w->p->plan->g;
    const Input *in = &g->in[input];
    const View *v = &w->call->in[input];
    AxisSet axes = g->n[in->node].axes;
    int64_t at = w->head / (w->call->heads / v->heads) * v->sh;

    if (in->timed)
        at += w->seq->b * v->sb + w->token * v->st;
    Walk k = walk(w, v, false, axes, w->p->ext[in->node], in->order, in->rank,
                  axes & AXIS(AX_I) ? w->n : 0);
    const Slot *s = &w->k->slot[slot];
    if (!s->pinned)
        w->tile[slot] = w->tiles + s->at;
    if (s->pinned || !in_place(w, &k)) {
        w->bytes += walk_run(&k, at, w->tile[slot]);
        return;
    }
    w->tile[slot] = (float *)v->data + at;
    w->bytes += walk_bytes(&k);
}

/* A value without rows is written for each token. */
void store_output(Work *w, int output, const float *tile)
{
    const Graph *g = w->p->plan->g;
    const Output *o = &g->out[output];
    const View *v = &w->call->out[output];
    AxisSet axes = g->n[o->node].axes;
    bool rows = axes & AXIS(AX_I);
    int64_t at = w->seq->b * v->sb + w->token * v->st + w->head * v->sh;

    if (!v->data)
        return;
    Walk k = walk(w, v, true, axes, w->p->ext[o->node], o->order, o->rank,
                  rows ? w->n : 0);
    for (int i = 0; i < (rows ? 1 : w->n); i++)
        w->bytes += walk_run(&k, at + i * v->st, tile);
}

/* As token `token` leaves it, where each one's is kept; else -1. */
static bool state_at(const Work *w, const View *v, int64_t token, int64_t *at)
{
    bool there = v->data && call_place(w->call, v, w->iseq, token, at);

    *at = there ? *at + w->head * v->sh : 0;
    return there;
}

static Walk state_walk(const Work *w, const Carry *c, const View *v,
                       bool store)
{
    const Graph *g = w->p->plan->g;
    const State *s = &g->st[c->state];

    return walk(w, v, store, g->n[s->node].axes, w->p->ext[s->node], s->order,
                s->rank, 0);
}

/* As a walk does it, in double: for what is carried so. */
static void move_wide(const Walk *k, int d, int64_t at, double *p)
{
    if (d == k->n) {
        if (k->store)
            view_set(k->v, at, *p);
        else
            *p = view_get(k->v, at);
        return;
    }
    for (int32_t i = 0; i < k->ext[d]; i++)
        move_wide(k, d + 1, at + i * k->mem[d], p + i * k->tile[d]);
}

/* The tile of a state that is carried in double. */
void narrow_state(const Work *w, const Carry *c, float *tile)
{
    const double *wide = w->wide + w->k->wide_at[c->wide];

    for (int32_t i = 0; i < c->floats; i++)
        tile[i] = (float)(c->wrap ? wrap_(wide[i]) : wide[i]);
}

void load_state(Work *w, const Carry *c, float *tile)
{
    const View *v = &w->call->s0[c->state];
    Walk k = state_walk(w, c, v, false);
    int64_t at;
    bool there = state_at(w, v, -1, &at);

    if (c->wide >= 0) {
        double *wide = w->wide + w->k->wide_at[c->wide];
        memset(wide, 0, (size_t)c->floats * sizeof *wide);
        if (there)
            move_wide(&k, 0, at, wide);
        narrow_state(w, c, tile);
    } else if (there) {
        walk_run(&k, at, tile);
    } else {
        memset(tile, 0, (size_t)c->floats * sizeof *tile);
    }
    if (there)
        w->bytes += (int64_t)c->floats * dtype_size(v->dtype);
}

void store_state(Work *w, const Carry *c, const float *tile, int64_t token)
{
    const View *v = &w->call->s1[c->state];
    Walk k = state_walk(w, c, v, true);
    int64_t at;

    if (!state_at(w, v, token, &at))
        return;
    if (c->wide >= 0 && !c->wrap)
        move_wide(&k, 0, at, w->wide + w->k->wide_at[c->wide]);
    else
        walk_run(&k, at, tile);
    w->bytes += (int64_t)c->floats * dtype_size(v->dtype);
}
