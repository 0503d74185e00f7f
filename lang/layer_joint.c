/* layer_joint.c -- which matrix products of the same values run as one.
 *
 * One product reads the values once, and gives their gradient once. Its weights
 * are one matrix: where they lie beside one another as they are; else in a
 * copy, which is made where it costs less than it spares.
 */
#include <string.h>

#include "layer_run.h"

/* ---- what could ---- */

static int64_t entries(const int32_t size[NAXES], AxisSet s)
{
    int64_t n = 1;

    for (; s; s &= s - 1)
        n *= size[lowest(s)];
    return n;
}

/* The axes of the product's weight that its values lack. */
static AxisSet own_axes(const Graph *g, const LayerPart *p)
{
    return g->n[p->in[1]].axes & ~g->n[p->in[0]].axes;
}

/* Rows of each must begin where 16 bytes do. */
static bool may_join(const Graph *g, const LayerPart *p,
                     const int32_t size[NAXES])
{
    enum { EACH = 8 };
    const Node *x = &g->n[p->in[0]], *w = &g->n[p->in[1]];

    return !p->step && p->y != g->out[0].node && w->op == OP_input
        && w->index < g->layer->nin && (x->axes & w->axes) == p->over
        && entries(size, own_axes(g, p)) > 0
        && entries(size, own_axes(g, p)) % EACH == 0;
}

/* Does the part carry more from token to token than tokens before? */
static bool is_scan(const LayerPart *p)
{
    const Graph *g = p->step;

    for (int i = 0; g && !p->taps && i < g->nst; i++)
        if (g->n[g->st[i].next].op != OP_input
            && g->n[g->st[i].next].op != OP_state)
            return true;
    return false;
}

/* How many scans stand before the first part that reads part i's result; of
 * what another product reads, which is of low rank, 0. */
static int scans_before(const LayerParts *parts, int i)
{
    int n = 0;

    for (int at = 0; at < parts->n; at++) {
        const LayerPart *p = &parts->part[at];
        for (int j = 0; j < p->nin; j++)
            if (p->in[j] == parts->part[i].y)
                return p->step ? n : 0;
        n += is_scan(p);
    }
    return 0;
}

/* What a scan reads does not wait on the way back for a gradient that is there
 * before the scan goes back, nor this in memory for what comes behind it. */
static bool joins(const LayerParts *parts, const Joint *j, int i)
{
    const LayerPart *first = &parts->part[j->part[0]], *p = &parts->part[i];

    return j->n < MAX_JOINT && p->in[0] == first->in[0]
        && p->over == first->over
        && scans_before(parts, j->part[0]) == scans_before(parts, i);
}

static bool is_wide(const Graph *g, const LayerParts *parts, int i)
{
    return layer_wide(g, parts->part[i].y);
}

/* Behind the others of its kind. */
static void add_part(const Graph *g, const LayerParts *parts, Joint *j, int i)
{
    int at = is_wide(g, parts, i) ? j->n : j->narrow++;

    memmove(j->part + at + 1, j->part + at,
            (size_t)(j->n - at) * sizeof *j->part);
    j->part[at] = i;
    j->at = j->n++ ? j->at : i;
}

static void find_columns(const Graph *g, const LayerParts *parts,
                         const int32_t size[NAXES], Joint *j)
{
    const LayerPart *first = &parts->part[j->at];

    j->rows = entries(size, g->n[first->in[0]].axes & ~first->over);
    j->over = entries(size, first->over);
    for (int i = 0; i < j->n; i++)
        j->from[i + 1] = j->from[i]
                       + entries(size, own_axes(g, &parts->part[j->part[i]]));
}

Joints *find_joints(Ctx *c, const Graph *g, const LayerParts *parts,
                    const int32_t size[NAXES])
{
    Joints *all = ctx_alloc(c, sizeof *all);
    int n = 0;

    all->joint = ctx_alloc(c, MAX_JOINTS * sizeof *all->joint);
    all->of = ctx_alloc(c, (size_t)parts->n * sizeof *all->of + 1);
    for (int i = 0; i < parts->n; i++) {
        int at = 0;
        if (!may_join(g, &parts->part[i], size))
            continue;
        while (at < n && !joins(parts, &all->joint[at], i))
            at++;
        if (at == MAX_JOINTS)
            continue;
        n += at == n;
        add_part(g, parts, &all->joint[at], i);
    }
    for (int i = 0; i < n; i++) {
        if (all->joint[i].n < 2)
            continue;
        find_columns(g, parts, size, &all->joint[i]);
        all->joint[all->n++] = all->joint[i];
        for (int j = 0; j < all->joint[all->n - 1].n; j++)
            all->of[all->joint[all->n - 1].part[j]] = all->n;
    }
    return all;
}

/* ---- what does ---- */

/* Of x times n columns, with what more is moved. */
static double seconds(const Joint *j, const Machine *m, double tokens, int each,
                      double n, double more)
{
    double rows = tokens * (double)j->rows, k = (double)j->over;
    double bytes = (rows * k + k * n + rows * n + more) * each;
    double flops = 2 * rows * n * k / m->matrix;

    bytes /= m->bandwidth;
    return (flops > bytes ? flops : bytes) + m->launch;
}

/* Forward, and the gradient of x, to which each product but one adds; a copy
 * of the weights is made in both passes. */
bool joint_pays(const Joint *j, const Machine *m, double tokens, int each)
{
    double x = tokens * (double)(j->rows * j->over);
    double all = (double)j->from[j->n];
    double copy = j->n * m->launch
                + 2 * (double)j->over * all * each / m->bandwidth;
    double apart = 0;

    for (int i = 0; i < j->n; i++) {
        double n = (double)(j->from[i + 1] - j->from[i]);
        apart += seconds(j, m, tokens, each, n, 0)
               + seconds(j, m, tokens, each, n, i ? x : 0);
    }
    return 2 * seconds(j, m, tokens, each, all, 0) + 2 * copy < apart;
}

static const LayerPart *part_of(const Lay *k, const Joint *j, int i)
{
    return &k->p->parts->part[j->part[i]];
}

/* A weight's columns as one axis; false: they are none. */
static bool see_columns(const Lay *k, const LayerPart *p, const Array *w,
                        int64_t *n, int64_t *apart)
{
    Axes own = axes_of(w, own_axes(k->g, p));

    return collapse(w, &own, n, apart);
}

/* Are the strides those of parts of one matrix? */
bool may_lie_beside(const Lay *k, const Joint *j, const Array *w)
{
    int64_t columns, apart, before = 0, n, stride;
    Axes over = axes_of(w, part_of(k, j, 0)->over);

    if (!see_columns(k, part_of(k, j, 0), w, &columns, &apart)
        || !collapse(w, &over, &n, &stride)
        || !(apart == 1 ? stride == j->from[j->n] : stride == 1))
        return false;
    for (int i = 0; i < j->n; i++) {
        if (!see_columns(k, part_of(k, j, i), &w[i], &columns, &apart)
            || (i && apart != before) || w[i].dtype != w->dtype)
            return false;
        for (int d = 0; d < over.n; d++)
            if (w[i].st[array_find(&w[i], over.ax[d])]
                != w->st[array_find(w, over.ax[d])])
                return false;
        before = apart;
    }
    return true;
}

bool lie_beside(const Lay *k, const Joint *j, const Array *w)
{
    int64_t columns, apart;
    char *end = NULL;

    for (int i = 0; i < j->n; i++) {
        see_columns(k, part_of(k, j, i), &w[i], &columns, &apart);
        if (!w[i].data || (i && (char *)w[i].data != end))
            return false;
        end = (char *)w[i].data + columns * apart
            * (int64_t)dtype_size(w[i].dtype);
    }
    return may_lie_beside(k, j, w);
}

void joint_weights(const Lay *k, const Joint *j, Array *w)
{
    for (int i = 0; i < j->n; i++) {
        int in = k->g->n[part_of(k, j, i)->in[1]].index;
        w[i] = input_array(k, in, &k->b->call.in[in]);
    }
}

/* Is each brought into the call's type anyway? */
static bool are_copied(const Lay *k, const Joint *j)
{
    DType type = k->realm->type(k, 0);

    for (int i = 0; i < j->n; i++) {
        const LayerPart *p = part_of(k, j, i);
        if (k->b->call.in[k->g->n[p->in[1]].index].dtype == type)
            return false;
    }
    return true;
}

bool joint_copies(const Lay *k, const Joint *j)
{
    int each = (int)dtype_size(k->realm->type(k, 0));

    return are_copied(k, j)
        || joint_pays(j, k->p->machine, (double)k->b->B * (double)k->b->T,
                      each);
}

uint64_t joint_choice(const Lay *k)
{
    const Joints *all = k->p->joints;
    Array w[MAX_JOINT];
    uint64_t chosen = 0;

    for (int i = 0; k->realm->joins && i < all->n; i++) {
        joint_weights(k, &all->joint[i], w);
        if (joint_copies(k, &all->joint[i])
            || (w->dtype == k->realm->type(k, 0)
                && may_lie_beside(k, &all->joint[i], w)))
            chosen |= (uint64_t)1 << i;
    }
    return chosen;
}

const Joint *joint_of(const Lay *k, int i)
{
    int j = k->p->joints->of[i] - 1;

    return j >= 0 && k->chosen >> j & 1 ? &k->p->joints->joint[j] : NULL;
}
