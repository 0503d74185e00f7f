/* layer_price.c -- prices of a layer's parts. */
#include "layer_price.h"

#include <math.h>

#include "../backend/cuda/cuda.h"
#include "../backend/cuda/rows.h"
#include "../backend/cuda/segments.h"
#include "../compiler/cost.h"
#include "../compiler/schedule/schedule.h"

static double count(const Pricing *s, AxisSet axes)
{
    double n = 1;

    for (; axes; axes &= axes - 1)
        n *= s->size[lowest(axes)];
    return n;
}

static double tokens(const Pricing *s)
{
    return (double)s->B * (double)s->T;
}

/* Bytes of a value as it lies between parts: bfloat16 on a GPU. */
static double bytes_of(const Pricing *s, Ref r)
{
    const Node *n = &s->g->n[r];
    double each = s->gpu && !layer_wide(s->g, r) ? 2 : 4;

    return n->op == OP_num ? 0
         : each * count(s, n->axes) * (n->timed ? tokens(s) : 1);
}

double price_ends(const Pricing *s, const LayerPart *p)
{
    double bytes = bytes_of(s, p->y);

    for (int i = 0; i < p->nin; i++)
        bytes += bytes_of(s, p->in[i]);
    return bytes;
}

void price_add(Price *to, const Price *p)
{
    to->flops += p->flops;
    to->bytes += p->bytes;
    to->seconds += p->seconds;
}

/* ---- products ---- */

/* "product 2048 x 192 x 64" */
static char *product_text(const Pricing *s, double m, double n, double k)
{
    return ctx_format(s->c, "product %.0f x %.0f x %.0f", m, n, k);
}

/* Its columns are all the weights'; of these, if they do not lie so, a copy is
 * made, and their gradients are products of their own. */
Price price_joint(const Pricing *s, const LayerParts *parts, const Joint *j,
                  const char **by)
{
    Price price = { 0 };
    double m = tokens(s) * (double)j->rows, k = (double)j->over;
    double n = (double)j->from[j->n], x = 2 * m * k, w = 2 * n * k, y = 0;
    double weights = !s->backward ? 0 : s->beside ? 1 : j->n;
    int apart = j->narrow && j->narrow < j->n;
    double copies = s->beside ? 0 : s->backward ? 2 : 1;

    for (int at = 0; at < j->n; at++)
        y += bytes_of(s, parts->part[j->part[at]].y);
    price.flops = (s->backward ? 3 : 1) * 2 * m * n * k;
    price.bytes = (s->backward ? 2 : 1) * (x + w + y) + copies * 2 * w
                + weights * x + (weights > 0 ? w + y : 0);
    price.seconds = fmax(price.flops / s->m->matrix,
                         price.bytes / s->m->bandwidth)
                  + ((s->backward ? 2 : 1) + apart + copies * j->n + weights)
                    * s->m->follow;
    *by = ctx_format(s->c, "%s, %d weights%s", product_text(s, m, n, k), j->n,
                     s->beside ? "" : " copied");
    return price;
}

/* Backward: two products more. What is written of weights is float32. */
static Price price_product(const Pricing *s, const LayerPart *p,
                           const char **by)
{
    Ref x = p->in[0], w = p->in[1];
    AxisSet xs = s->g->n[x].axes, ws = s->g->n[w].axes;
    double both = count(s, xs & ws & ~p->over), m = count(s, xs & ~ws);
    double n = count(s, ws & ~xs), k = count(s, p->over);
    double times = s->backward ? 3 : 1;
    Price price = { 0 };

    m *= tokens(s);
    price.flops = times * 2 * both * m * n * k;
    price.bytes = times * (bytes_of(s, x) + bytes_of(s, w)
                           + bytes_of(s, p->y));
    price.seconds = fmax(price.flops / s->m->matrix,
                         price.bytes / s->m->bandwidth)
                  + times * s->m->follow;
    *by = ctx_format(s->c, "%s%s", product_text(s, m, n, k),
                     both > 1 ? ctx_format(s->c, ", %.0f times", both) : "");
    return price;
}

/* ---- steps ---- */

/* Their product's result and its gradient lie in memory; it is kept for the way
 * back, whose last kernel makes x's gradient: a block reads, then multiplies,
 * at mma.sync's rate, or one instruction after another, where it has few rows
 * and nothing else to do meanwhile. The weight's gradient is a product of its
 * own. */
static void price_product_of_rows(const Pricing *s, const Rows *rows,
                                  Price *price)
{
    enum { PLAIN_RATE = 2 };            /* wgmma's to that of mma.sync */
    int64_t waits;
    int32_t k, n;
    double ways = s->backward ? 3 : 1;

    if (!rows_multiply(rows, &k, &n))
        return;
    int64_t links = rows_links(s->c, rows, s->B, s->T, s->m->units, &waits);
    double chain = (double)links * s->m->link + (double)waits * s->m->chain;
    price->flops += ways * tokens(s) * 2 * k * n;
    price->seconds += fmax(price->flops / (s->m->matrix / PLAIN_RATE),
                           (s->backward ? 2 : 1) * chain);
    price->bytes += tokens(s) * 2 * (s->backward ? 7 * n : 2 * n);
    price->seconds += (s->backward ? 1 : 0) * s->m->follow;
}

/* Each input is read and each result written once a pass. */
static Price price_rows(const Pricing *s, const LayerPart *p, const Rows *rows)
{
    Price price = { 0 };
    double kernels = s->backward ? 2 : 1;
    double launches = kernels * rows_kernels(rows);

    for (int j = 0; j < p->nin; j++)
        price.bytes += bytes_of(s, p->in[j]) * (s->backward ? 3 : 1);
    price.bytes += bytes_of(s, p->y) * kernels;
    price_product_of_rows(s, rows, &price);
    price.seconds += price.bytes / s->m->bandwidth + launches * s->m->follow;
    return price;
}

/* "2 kernels over rows, one product" */
static const char *rows_kernels_text(const Pricing *s, const Rows *rows)
{
    int32_t k, n;

    return !rows_carry(rows) ? "rows"
         : ctx_format(s->c, "%d kernels over rows%s",
                      (s->backward ? 2 : 1) * rows_kernels(rows),
                      rows_multiply(rows, &k, &n) ? ", a product in them" : "");
}

/* Seconds of a chunk of a head, by what its kernel computes, on a full machine.
 * The way back is cut, and its parts compute again what they need: measured of
 * gated_deltanet and kda. */
static double work_seconds(const Pricing *s, const Graph *g, const Kernel *k)
{
    const double again = k->back ? 2.75 : 1;

    return again * nodes_cycles(g, k) / s->m->clock / s->m->units;
}

/* A kernel without wgmma takes about so many times as long: a guess. */
static double slower(const uint8_t *plain, int kernel)
{
    enum { PLAIN = 4 };

    return plain && plain[kernel] ? PLAIN : 1;
}

/* Can several blocks share a head, each with some entries of y? The way back is
 * dealt out otherwise. */
static bool is_shared_out(const Graph *g, const Kernel *k)
{
    AxisSet own = g->n[g->out[0].node].axes & DIM_AXES;

    for (int i = 0; i < k->nnodes && !k->back; i++)
        own &= ~g->n[k->node[i]].over;
    return k->back || own;
}

/* Of so many chunks and heads: as if the machine were full, and no less than a
 * sequence's chunks take one after another, or cut in segments; where two
 * blocks share a head, a chunk takes about .6 of its time, measured. */
static double kernel_time(const Pricing *s, const Graph *g, const Kernel *k,
                          double each, double chunks)
{
    double work = s->gpu && g->chunk ? work_seconds(s, g, k) : 0;
    double full = each * fmax(k->seconds - s->m->launch / s->m->spread, work);
    double part = is_shared_out(g, k) ? 0.6 : 1;
    int64_t heads = (int64_t)(each / chunks);
    double gain = !s->gpu ? 1 : segments_gain(s->c, g, heads, (int64_t)chunks,
                                              s->backward, s->m->units);
    double walk = gain * chunks * s->m->units * fmax(part * work,
                  fmax(k->spent[R_AHEAD], k->spent[R_SERIAL]));

    return k->kind == K_TOKEN ? full : fmax(full, walk);
}

static Price price_plan_of(const Pricing *s, const LayerPart *p,
                           const Plan *plan, const uint8_t *plain)
{
    double chunks = p->constant ? 1
                  : ceil((double)s->T / CHUNK_DEFAULT) * CHUNK_DEFAULT
                    / (plan->g->chunk ? plan->g->chunk : 1);
    double each = chunks * (p->constant ? 1 : (double)s->B)
                * (p->heads ? s->size[p->heads] : 1);
    Price price = { 0 };

    for (int j = 0; j < plan->nkernels; j++) {
        const Kernel *k = &plan->kernel[j];
        price.bytes += each * k->bytes;
        price.flops += each * k->flops;
        price.seconds += s->m->launch + slower(plain, j)
                       * kernel_time(s, plan->g, k, each, chunks);
    }
    return price;
}

/* "2 kernels, chunks of 64, 1 without wgmma" */
static const char *plan_text(const Pricing *s, const Plan *plan,
                             const uint8_t *plain)
{
    int without = 0, n = plan->nkernels;
    const char *chunks = !plan->g->chunk ? "token by token"
                       : ctx_format(s->c, "chunks of %d", plan->g->chunk);

    for (int i = 0; plain && i < n; i++)
        without += plain[i];
    return ctx_format(s->c, "%d kernel%s, %s%s", n, n == 1 ? "" : "s", chunks,
                      without ? ctx_format(s->c, ", %d without wgmma", without)
                              : "");
}

/* Programs over rows: what all passes read of tensors, and write. */
static Price price_passes(const Pricing *s, const LayerPart *p,
                          const RowStep *row, const char **by)
{
    bool wanted[MAX_INPUTS];
    Price price = { 0 };
    int64_t most = 1;
    int passes = 0;

    for (int i = 0; i < row->nin; i++)
        wanted[i] = true;
    for (int back = 0; back <= s->backward; back++) {
        const RowProgram *r = back ? row_backward(s->c, row, wanted, NULL,
                                                  true)
                                   : row_forward(s->c, row, s->backward);
        RowTraffic t = row_traffic(r);
        double rows = p->constant ? 1 : tokens(s);
        for (AxisSet own = row_others(row); own; own &= own - 1)
            rows *= s->size[p->axis[lowest(own)]];
        rows *= p->heads ? s->size[p->heads] : 1;
        price.bytes += rows * (double)(t.read + t.again + t.written)
                     * (s->gpu ? 2 : 4);
        for (int i = 0; i < r->npasses; i++)
            passes += row_does(r, i);
    }
    for (AxisSet ax = row->along; ax; ax &= ax - 1)
        most = most > s->size[p->axis[lowest(ax)]]
             ? most : s->size[p->axis[lowest(ax)]];
    price.seconds = price.bytes / s->m->bandwidth
                  + (s->backward ? 2 : 1) * s->m->follow;
    *by = ctx_format(s->c, "rows of %lld, %d pass%s", (long long)most, passes,
                     passes == 1 ? "" : "es");
    return price;
}

static PricedPlan plan_of(const Pricing *s, const LayerPart *p,
                          const int32_t size[NAXES])
{
    PricedPlan k = { .step = p->step, .backward = s->backward };

    if (s->plan && s->plan->step == p->step
        && s->plan->backward == s->backward)
        return *s->plan;
    Graph *step = graph_copy(s->c, p->step);
    k.plan = s->sketch
           ? plan_sketch(step, size, CHUNK_DEFAULT, s->backward, s->m)
           : plan_make(step, size, CHUNK_DEFAULT, s->backward, s->m,
                       s->gpu ? backend_named("cuda")->larger : NULL);
    if (!s->backward || !k.plan->g->chunk)
        price_plan(k.plan, s->m);
    k.plain = s->gpu && s->roads ? cuda_plain(s->c, k.plan, s->m, true)
                                 : NULL;
    if (s->plan)
        *s->plan = k;
    return k;
}

static Price price_step(const Pricing *s, const LayerPart *p, const char **by)
{
    int32_t size[NAXES] = { 0 };
    const char *why;

    for (int ax = AX_DIM; ax < p->step->naxes; ax++)
        size[ax] = s->size[p->axis[ax]];
    const Graph *sized = graph_sized(p->step, size);
    bool wanted = !s->parts ? row_wanted(sized)
                : by_rows(s->g, s->parts, (int)(p - s->parts->part), s->gpu);
    const RowStep *row = wanted ? row_step(s->c, sized, &why) : NULL;
    if (row)
        return price_passes(s, p, row, by);
    Rows *rows = s->gpu ? rows_new(s->c, p->step, size) : NULL;
    if (rows) {
        *by = rows_kernels_text(s, rows);
        return price_rows(s, p, rows);
    }
    PricedPlan k = plan_of(s, p, size);
    *by = plan_text(s, k.plan, k.plain);
    return price_plan_of(s, p, k.plan, k.plain);
}

Tiling price_tiles(const Pricing *s, const LayerPart *p, int32_t columns,
                   bool whole, Price *price)
{
    const double each = s->gpu ? 2 : 4;
    const TileAsk ask = {
        .m = s->m, .batch = (double)s->B, .tokens = (double)s->T,
        .flops = price->flops / (s->backward ? 3 : 1),
        .values = bytes_of(s, p->in[0]), .weight = bytes_of(s, p->in[1]),
        .result = bytes_of(s, p->y) / tokens(s), .element = (int)each,
        .columns = columns, .backward = s->backward, .whole = whole,
        .memory = s->memory };
    Tiling t = choose_tiling(s->c, &ask);

    if (t.way != TILE_WHOLE) {
        price->seconds = tiling_seconds(&ask, &t, &price->bytes);
        price->flops *= s->backward ? 4. / 3 : 1;
    }
    return t;
}

Price price_part(const Pricing *s, const LayerPart *p, const char **by)
{
    return p->step ? price_step(s, p, by) : price_product(s, p, by);
}
