/* layer_weigh.c -- what parts of a layer cost in usual calls, each known once.
 */
#include <string.h>

#include "../backend/cuda/rows.h"
#include "layer_weigh.h"

bool part_has_chunks(Ctx *c, const LayerPart *p, const int32_t *sizes)
{
    int32_t size[NAXES] = { 0 };

    for (int ax = AX_DIM; ax < p->step->naxes; ax++)
        size[ax] = sizes[p->axis[ax]];
    return derive(graph_copy(c, p->step), size, CHUNK_DEFAULT);
}

static Rows *rows_of(Weights *w, const LayerPart *p)
{
    int32_t size[NAXES] = { 0 };

    for (int ax = AX_DIM; ax < p->step->naxes; ax++)
        size[ax] = w->size[p->axis[ax]];
    return w->m->arch ? rows_new(w->c, p->step, size) : NULL;
}

bool part_carries(Weights *w, const LayerPart *p)
{
    Rows *rows = rows_of(w, p);

    return rows && rows_carry(rows);
}

bool part_multiplies(Weights *w, const LayerPart *p)
{
    Rows *rows = rows_of(w, p);
    int32_t k, n;

    return rows && rows_multiply(rows, &k, &n);
}

static uint64_t step_hash(Ctx *c, const LayerPart *p, bool roads)
{
    Buf text = { .ctx = c };

    graph_print(p->step, &text);
    return hash_bytes(2 * p->y + roads, text.s, text.len);
}

enum { TOKENS = 2048 };

/* Of usual calls forward, and both ways: of one sequence, and of as many as
 * fill the machine; each sequence's share. */
static double part_seconds(const Weights *w, const LayerPart *p, bool roads)
{
    int heads = p->heads ? w->size[p->heads] : 1, units = w->m->units;
    PricedPlan plan = { 0 };
    Pricing s = { .c = w->c, .g = w->l->traced, .m = w->m, .size = w->size,
                  .T = TOKENS, .sketch = true, .roads = roads, .plan = &plan,
                  .gpu = w->m->arch > 0 };
    const int64_t full = (units + heads - 1) / heads;
    const char *by;
    double seconds = 0;

    for (int i = 0; i < 4; i++) {
        s.B = i % 2 ? full : 1;
        s.backward = i > 1;
        seconds += price_part(&s, p, &by).seconds / (double)s.B;
    }
    return seconds;
}

double weigh_part(Weights *w, const LayerPart *p, bool roads)
{
    if (!p->step)
        return part_seconds(w, p, roads);
    uint64_t hash = step_hash(w->c, p, roads);
    for (int i = 0; i < w->n; i++)
        if (w->memo[i].step == hash)
            return w->memo[i].seconds;
    ctx_poll(w->c);
    double seconds = part_seconds(w, p, roads);
    if (w->n < MEMOS)
        w->memo[w->n++] = (Memo){ hash, seconds };
    return seconds;
}

double weigh_moves(const Weights *w, const LayerPart *was,
                   const LayerPart *now)
{
    enum { PASSES = 8 };                /* of these calls: 1, 1, 3 and 3 */
    const Pricing s = { .g = w->l->traced, .size = w->size, .B = 1,
                        .T = TOKENS, .gpu = w->m->arch > 0 };
    double bytes = price_ends(&s, was) - price_ends(&s, now);

    return bytes > 0 ? PASSES * bytes / w->m->bandwidth : 0;
}
