/* layer_sum.c -- a product with a weight that is added to another value, as to
 * what goes on beside a layer (a residual): the product adds. Its gradient is
 * the sum's.
 */
#include "layer_run.h"

/* ---- which parts ---- */

int layer_readers(const LayerParts *p, Ref r, int *last)
{
    int n = 0;

    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < p->part[i].nin; j++)
            if (p->part[i].in[j] == r) {
                n++;
                *last = i;
            }
    return n;
}

/* Does the part add two values, entry by entry, and nothing else? */
static bool adds_two(const Graph *g, const LayerPart *p)
{
    const Graph *step = p->step;
    bool all = step && !p->constant && step->nin == 2 && p->nin == 2
            && !step->nst && step->n[step->out[0].node].op == OP_add;

    for (int i = 0; all && i < 2; i++) {
        const Node *own = &g->n[p->in[i]], *y = &g->n[p->y];
        Ref a = step->n[step->out[0].node].a[i];
        all = step->n[a].op == OP_input && own->timed && y->timed
           && own->axes == y->axes;
    }
    return all;
}

int *find_sums(Ctx *c, const Layer *l, const LayerParts *p, const Joints *j)
{
    const Graph *g = l->traced;
    int *sum = ctx_alloc(c, (size_t)p->n * sizeof *sum + 1);

    for (int i = 0; i < p->n; i++) {
        Ref r = p->part[i].y;
        int by = 0;
        if (p->part[i].step || !g->n[r].timed || r == g->out[0].node
            || j->of[i] || layer_readers(p, r, &by) != 1 || sum[by]
            || layer_is_call(l, &p->part[by]) || !adds_two(g, &p->part[by]))
            continue;
        sum[i] = -(by + 1);
        sum[by] = i + 1;
    }
    return sum;
}

/* ---- both ways ---- */

static const LayerPart *product_of(const Lay *k, int at)
{
    return &k->p->parts->part[k->p->sum[at] - 1];
}

/* What the product is added to. */
static Ref added_to(const Lay *k, int at)
{
    const LayerPart *p = &k->p->parts->part[at];

    return p->in[p->in[0] == product_of(k, at)->y];
}

void run_sum_part(Lay *k, int at)
{
    const LayerPart *p = &k->p->parts->part[at], *product = product_of(k, at);
    bool keep = k->keep;

    if (!k->value[p->y].data)
        make_value(k, at);
    if (k->left || run_product_onto(k, product, &k->value[added_to(k, at)],
                                    &k->value[p->y]))
        return;
    k->keep = false;
    run_product(k, product);
    run_step(k, at);
    k->keep = keep;
    drop_array(k, &k->value[product->y]);
}

void back_sum_part(Lay *k, int at)
{
    Array *g = &k->grad[k->p->parts->part[at].y];
    Ref z = product_of(k, at)->y, x = added_to(k, at);

    if (g->data && k->wanted[x])
        add_grad_copy(k, x, g);
    if (g->data && k->wanted[z]) {
        k->grad[z] = *g;
        *g = (Array){ 0 };
    }
    drop_array(k, g);
}
