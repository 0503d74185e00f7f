/* layer_value.c -- a layer's values in memory, and their axes. */
#include "layer_run.h"

#include "../backend/cpu/isa.h"

int64_t array_count(const Array *v)
{
    int64_t n = 1;

    for (int i = 0; i < v->rank; i++)
        n *= v->n[i];
    return n;
}

int array_find(const Array *v, int ax)
{
    for (int i = 0; i < v->rank; i++)
        if (v->ax[i] == ax)
            return i;
    return -1;
}

int64_t lay_extent(const Lay *k, int ax)
{
    return ax == AX_B ? k->b->B : ax == AX_T ? k->b->T
         : ax == AX_COLUMNS ? k->columns : k->b->call.size[ax];
}

void array_add(const Lay *k, Array *v, int ax)
{
    v->ax[v->rank] = ax;
    v->n[v->rank++] = lay_extent(k, ax);
}

void array_add_axes(const Lay *k, Array *v, AxisSet s)
{
    for (; s; s &= s - 1)
        array_add(k, v, lowest(s));
}

void array_add_list(const Lay *k, Array *v, const Axes *l)
{
    for (int i = 0; i < l->n; i++)
        array_add(k, v, l->ax[i]);
}

void array_add_tokens(const Lay *k, Array *v, Ref r)
{
    if (!k->g->n[r].timed)
        return;
    array_add(k, v, AX_B);
    array_add(k, v, AX_T);
}

/* How many entries. */
static int64_t lay_densely(Array *v, DType d)
{
    int64_t n = 1;

    for (int i = v->rank; i-- > 0; n *= v->n[i])
        v->st[i] = n;
    v->dtype = d;
    return n;
}

void make_no_room(Array *v, DType d)
{
    lay_densely(v, d);
}

void make_room(Lay *k, Array *v, DType d, bool keep)
{
    int64_t n = lay_densely(v, d);

    v->own = true;
    v->data = k->realm->room(k, (n + TILE_SLACK) * dtype_size(d), keep);
}

void drop_array(Lay *k, Array *v)
{
    if (v->own && v->data)
        k->realm->drop(k, v->data);
    if (v->shelf && v->data && --v->shelf->live == 0)
        k->realm->drop(k, v->shelf->at);
    v->data = NULL;
}

Axes axes_of(const Array *v, AxisSet s)
{
    Axes l = { 0 };

    for (int i = 0; i < v->rank; i++)
        if (v->ax[i] < NAXES && s & AXIS(v->ax[i]))
            l.ax[l.n++] = v->ax[i];
    return l;
}

bool collapse(const Array *v, const Axes *l, int64_t *n, int64_t *stride)
{
    *n = 1;
    *stride = 1;
    for (int i = l->n - 1; i >= 0; i--) {
        int d = array_find(v, l->ax[i]);
        if (v->n[d] == 1)
            continue;
        if (*n > 1 && v->st[d] != *n * *stride)
            return false;
        *stride = *n > 1 ? *stride : v->st[d];
        *n *= v->n[d];
    }
    return true;
}

static AxisSet head_axes(const Layer *l)
{
    AxisSet all = 0;

    for (int i = 0; i < l->ncalls; i++)
        all |= l->call[i].heads;
    return all;
}

bool layer_wide(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];

    return !n->timed || !(n->axes & ~head_axes(g->layer));
}

Array tensor_array(const Lay *k, bool timed, const uint8_t *order, int rank,
                   const View *t)
{
    Array v = { .data = t->data, .dtype = t->dtype };

    if (timed) {
        array_add(k, &v, AX_B);
        array_add(k, &v, AX_T);
        v.st[0] = t->sb;
        v.st[1] = t->st;
    }
    for (int i = 0; i < rank; i++) {
        array_add(k, &v, order[i]);
        v.st[v.rank - 1] = t->sd[i];
    }
    return v;
}

Array input_array(const Lay *k, int i, const View *t)
{
    const Input *in = &k->g->in[i];

    return tensor_array(k, in->timed, in->order, in->rank, t);
}
