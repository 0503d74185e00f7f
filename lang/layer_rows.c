/* layer_rows.c -- which parts of a layer are programs over rows, and when the
 * gradient of what they read may be written over it: once its last reader is
 * through.
 */
#include <string.h>

#include "layer_run.h"

/* ---- which parts ---- */

/* Sums over rows of what several heads share and rows reduce, of several axes
 * or of pairs, are not on GPUs yet. */
static bool device_sums(const Graph *g, const LayerPart *p)
{
    bool folds = false, pairs = false;

    for (Ref r = 1; r < p->step->len; r++) {
        folds = folds || row_folds(p->step, r);
        pairs = pairs || op_is(p->step->n[r].op, SPREADS);
    }
    for (int j = 0; j < p->nin; j++) {
        const Input *in = &p->step->in[j];
        bool heads = p->heads && g->n[p->in[j]].axes & AXIS(p->heads);
        if (in->timed ? p->heads && !heads && folds
                      : heads || pairs || in->rank > 1)
            return false;
    }
    return true;
}

bool by_rows(const Graph *g, const LayerParts *p, int i, bool device)
{
    const LayerPart *part = &p->part[i];
    const Node *n = &g->n[part->y];

    if (!part->step || (n->op == OP_input && n->index >= g->layer->nin))
        return false;
    return row_wanted(part->step)
        || (p->n == 1 && !part->constant && !part->step->nst
            && (!device || device_sums(g, part)));
}

/* How the part's inputs are read there. */
static RowReads reads_of(const Graph *g, const LayerPart *p, bool device)
{
    RowReads how = { .columns = device };

    for (int j = 0; j < p->nin; j++)
        how.shared[j] = p->heads && !(g->n[p->in[j]].axes & AXIS(p->heads));
    return how;
}

/* Alone, and where all gradients are wanted. */
static uint8_t *find_over(Ctx *c, const Graph *g, const LayerPart *p,
                          const RowStep *row, bool device)
{
    const RowReads how = reads_of(g, p, device);
    uint8_t *over = ctx_alloc(c, (size_t)p->nin + 1);
    bool wanted[MAX_INPUTS];

    for (int j = 0; j < p->nin; j++)
        wanted[j] = true;
    for (int j = 0; j < p->nin; j++) {
        bool inplace[MAX_INPUTS] = { false };
        inplace[j] = true;
        over[j] = row->gradient[j] && !row_check(c, row_backward(c, row,
                                          wanted, inplace, false), &how);
    }
    return over;
}

void find_rows(Ctx *c, const Layer *l, LayerProgram *p)
{
    const Graph *g = l->traced;

    p->row = ctx_alloc(c, (size_t)p->parts->n * sizeof *p->row + 1);
    p->over = ctx_alloc(c, (size_t)p->parts->n * sizeof *p->over + 1);
    for (int i = 0; i < p->parts->n; i++) {
        const LayerPart *part = &p->parts->part[i];
        const char *why;
        if (!by_rows(g, p->parts, i, p->device))
            continue;
        p->row[i] = row_step(c, part->step, &why);
        if (p->row[i])
            p->over[i] = find_over(c, g, part, p->row[i], p->device);
        else if (row_needed(part->step))
            fail_help(c, g->n[part->y].line, "one axis alone is reduced over "
                      "between two products with weights, and entries stay "
                      "where they are", "%s: no program over rows: %s",
                      g->name, why);
    }
}

/* ---- memory that gradients take over ---- */

/* Is the call's own value r through once the part that is the first to read it
 * has gone back? That one's kernels write each entry when they have read it. */
static bool is_through(const Lay *k, Ref r)
{
    const LayerPart *p = &k->p->parts->part[k->first[r]];
    bool through = k->readers[r] && k->spends && k->g->n[r].timed
                && r != k->g->out[0].node
                && k->value[r].dtype == k->realm->type(k, r);
    int times = 0;

    for (int j = 0; j < p->nin; j++)
        times += p->in[j] == r;
    through = through && times == 1;

    for (int j = 0; through && j < p->nin; j++)
        through = p->in[j] != r || k->realm->over(k, k->first[r], j);
    return through;
}

bool lies_over(const Lay *k, int i, Ref r)
{
    return k->first[r] == i && is_through(k, r)
        && (k->value[r].own || k->value[r].shelf);
}

/* And no other part has to do with it. */
static bool is_through_at_once(const Lay *k, Ref r)
{
    return k->readers[r] == 1 && is_through(k, r);
}

/* Columns of little weight wait for the others' place. */
static bool is_little(const Joint *j, int i)
{
    enum { SHARE = 8 };

    return (j->from[i + 1] - j->from[i]) * SHARE < j->from[j->n];
}

bool joint_lies_over(const Lay *k, const Joint *j)
{
    int at = (int)(j - k->p->joints->joint);
    bool all = j->narrow == j->n && k->shelf[at][0].live;

    for (int i = 0; i < j->n; i++)
        all = all && (is_little(j, i) || is_through_at_once(k,
                                         k->p->parts->part[j->part[i]].y));
    return all;
}

bool is_moved(const Lay *k, const Joint *j, int i)
{
    Ref r = k->p->parts->part[j->part[i]].y;
    const Array *dy = &k->dy[j - k->p->joints->joint];
    bool over = dy->data ? dy->shelf != NULL : joint_lies_over(k, j);

    return over ? !is_through_at_once(k, r) : !dy->data && is_little(j, i);
}

/* The bytes from the first entry's to behind the last's. */
static int64_t span_bytes(const Given *t)
{
    int64_t last = 0;

    for (int i = 0; i < t->rank; i++) {
        if (!t->shape[i])
            return 0;
        last += (t->shape[i] - 1) * t->stride[i];
    }
    return (last + 1) * dtype_size(t->dtype);
}

/* Has any entry of one a byte of the other? Of the same strides they may lie
 * side by side, as the halves of rows do. */
static bool overlap(const Given *a, const Given *b)
{
    const char *x = a->data, *y = b->data;
    int64_t apart = y - x, least = 0, inner = 0;
    bool same = a->rank == b->rank && a->dtype == b->dtype;

    if (!x || !y || x + span_bytes(a) <= y || y + span_bytes(b) <= x)
        return false;
    apart = (apart < 0 ? -apart : apart) / (int64_t)dtype_size(a->dtype);
    for (int i = 0; same && i < a->rank; i++)
        same = a->stride[i] == b->stride[i] && a->shape[i] == b->shape[i];
    for (int i = 0; same && i < a->rank; i++)
        if (a->shape[i] > 1 && a->stride[i] <= apart)
            inner += (a->shape[i] - 1) * a->stride[i];
        else if (a->shape[i] > 1 && (!least || a->stride[i] < least))
            least = a->stride[i];
    return !same || inner >= apart || (least && apart + inner >= least);
}

static void refuse(const Lay *k, int i, const char *why)
{
    fail_help(k->c, k->step->in[i].line, "a tensor of its own for the gradient",
              "backward: %s cannot be written over by its gradient: %s",
              k->step->in[i].name, why);
}

static bool given_up(const Lay *k, int i)
{
    return overwrites(&k->d->dx[i], &k->args->in[i]);
}

static void check_apart(const Lay *k, int i)
{
    const Given *x = &k->args->in[i];

    for (int j = 0; j < k->step->nin; j++)
        if (j != i && overlap(x, &k->args->in[j]))
            refuse(k, i, ctx_format(k->c, "%s lies in the same memory",
                                    k->step->in[j].name));
    if (k->d->dy[0].given && overlap(x, &k->d->dy[0]))
        refuse(k, i, "dy lies in the same memory");
}

/* The one part that reads input i. */
static const LayerPart *only_reader(const Lay *k, int i)
{
    const Input *in = &k->step->in[i];
    Ref r = k->g->in[i].node;

    if (k->readers[r] != 1 || r == k->g->out[0].node)
        refuse(k, i, ctx_format(k->c, "%d parts of %s read it",
                                k->readers[r], k->step->name));
    if (!k->p->row[k->first[r]] || !in->timed)
        refuse(k, i, "what reads it is no program over rows");
    return &k->p->parts->part[k->first[r]];
}

/* The plan with which it would run. */
static void check_plan(const Lay *k, int i, const LayerPart *p)
{
    const RowStep *row = k->p->row[p - k->p->parts->part];
    RowReads how = reads_of(k->g, p, k->p->device);
    bool wanted[MAX_INPUTS] = { false }, inplace[MAX_INPUTS] = { false };

    for (int j = 0; j < p->nin; j++) {
        wanted[j] = k->wanted[p->in[j]];
        inplace[j] = p->in[j] == k->g->in[i].node;
    }
    const char *why = row_check(k->c, row_backward(k->c, row, wanted, inplace,
                                                   false), &how);
    if (why)
        refuse(k, i, why);
}

void check_inplace(const Lay *k)
{
    for (int i = 0; i < k->step->nin; i++) {
        const Given *x = &k->args->in[i], *d = &k->d->dx[i];
        if (!given_up(k, i))
            continue;
        bool same = x->dtype == d->dtype && !memcmp(x->stride, d->stride,
                                     (size_t)x->rank * sizeof *x->stride);
        if (!same)
            fail_help(k->c, k->step->in[i].line, "the same tensor", "backward: "
                      "%s: what its gradient is written over has another type "
                      "or other strides", k->step->in[i].name);
        const LayerPart *p = only_reader(k, i);
        check_plan(k, i, p);
        check_apart(k, i);
    }
}
