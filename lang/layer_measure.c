/* layer_measure.c -- in how many pieces a layer's calls run, whether their way
 * back begins with their way forward, and whether it works in the memory that
 * the way forward keeps: what takes the least of memory times time, the one
 * counted by going through the whole step, the other predicted, of all that
 * takes little more time; or, where a call says how much memory there is, the
 * least time in that. Of a layer among many the memory is what it keeps
 * between the two ways, as others go forward and back there.
 */
#include <stdlib.h>
#include <string.h>

#include "layer_gpu.h"
#include "../backend/cuda/gpu.h"
#include "layer_price.h"

/* Says how many there are, for tests: "4", "4again", "4againrows",
 * "4beside". */
#define PIECES_VARIABLE "FLIN_PIECES"

/* What a training step takes so, and its calls; how far values lie in what is
 * kept. */
typedef struct Measured {
    int64_t bytes, used;
    double seconds;
} Measured;

/* What rows make again for calls. */
static double rows_seconds(const Lay *k, const Lay *to)
{
    Pricing s = { .c = k->c, .g = k->g, .m = k->p->machine,
                  .size = k->b->call.size, .parts = k->p->parts, .B = k->b->B,
                  .T = k->b->T, .gpu = true };
    double seconds = 0;
    const char *by;

    for (int i = 0; i < k->p->parts->n; i++) {
        const LayerPart *p = &k->p->parts->part[i];
        if (p->step && to->cut.rows && to->anew[p->y]
            && is_cut(to, to->first[p->y]))
            seconds += price_part(&s, p, &by).seconds;
    }
    return seconds;
}

/* As of any call that has such tensors: y row-major, no states left. */
static Bound *usual_call(const Lay *k, const Given *dy)
{
    enum { SOMEWHERE = 1 << 12 };
    Bound *b = ctx_alloc(k->c, sizeof *b);
    Given y = *dy;

    *b = *k->b;
    y.data = (void *)SOMEWHERE;
    memset(b->call.out, 0, sizeof b->call.out);
    memset(b->call.s1, 0, sizeof b->call.s1);
    b->call.out[0] = result_view(k->step, 0, &y);
    return b;
}

static int64_t bytes_of(const Given *t)
{
    int64_t n = dtype_size(t->dtype);

    for (int i = 0; i < t->rank; i++)
        n *= t->shape[i];
    return n;
}

static Measured measure(const Lay *k, LayerCut cut, const LayerPass *pass)
{
    Args *a = ctx_alloc(k->c, 2 * sizeof *a);

    a[0] = a[1] = *k->args;
    a[0].mode = M_FORWARD;
    a[1].mode = M_BACKWARD;
    Adjoint *d = all_gradients(k->c, k->step, &a[1], k->b);
    Bound *b = usual_call(k, &d->dy[0]);
    Lay *to = pass->lay(k->c, k->v, &a[0], b, NULL);
    to->keep = to->weighs = true;
    to->cut = cut;
    LayerRoom forward = gpu_layer_count(to, pass->run);
    Lay *back = pass->lay(k->c, k->v, &a[1], b, d);
    back->left = back->spends = true;
    back->cut = cut;
    LayerRoom backward = gpu_layer_count(back, pass->run);
    int64_t rest = forward.rest > backward.rest ? forward.rest : backward.rest;
    int64_t alone = k->p->fusion == FUSE_STACK ? 0
                  : bytes_of(&d->dy[0]) + rest;

    return (Measured){ forward.kept + alone,
                       forward.used > backward.used ? forward.used
                                                    : backward.used,
                       to->seconds + rows_seconds(k, to) };
}

/* With so much kept that the way back works there. */
static LayerCut cut_beside(const Lay *k, LayerCut cut, const LayerPass *pass)
{
    cut.most = -1;
    cut.most = measure(k, cut, pass).used;
    return cut;
}

/* The same so, if it takes less than what was measured of the cut. */
static Measured measure_beside(const Lay *k, LayerCut *cut, Measured m,
                               const LayerPass *pass)
{
    LayerCut beside = cut_beside(k, *cut, pass);
    Measured other = measure(k, beside, pass);

    if (other.bytes >= m.bytes)
        return m;
    *cut = beside;
    return other;
}

/* Of the products with weights, both ways. */
static double products_seconds(const Lay *k)
{
    Pricing s = { .c = k->c, .g = k->g, .m = k->p->machine,
                  .size = k->b->call.size, .B = k->b->B, .T = k->b->T,
                  .backward = true, .gpu = true };
    double seconds = 0;
    const char *by;

    for (int i = 0; i < k->p->parts->n; i++)
        if (!k->p->parts->part[i].step)
            seconds += price_part(&s, &k->p->parts->part[i], &by).seconds;
    return seconds;
}

static double cost_of(const Measured *m)
{
    return (double)m->bytes * m->seconds;
}

/* memory: bytes that there are; 0: that is not said. What takes too much of it
 * is the worse the more it takes. */
static bool is_better(const Measured *m, const Measured *than, int64_t memory)
{
    bool fits = m->bytes <= memory;

    if (!memory)
        return cost_of(m) < cost_of(than);
    if (fits != (than->bytes <= memory))
        return fits;
    return fits ? m->seconds < than->seconds : m->bytes < than->bytes;
}

/* So many, where they are even. */
static LayerCut asked_cut(const Lay *k, const char *s, const LayerPass *pass)
{
    char *end;
    long n = strtol(s, &end, 10);
    bool even = n > 0 && n <= MOST_PIECES && count_units(k) % n == 0;
    LayerCut cut = { .n = even ? (int)n : 1, .again = strstr(end, "again"),
                     .rows = strstr(end, "rows") };

    return strstr(end, "beside") ? cut_beside(k, cut, pass) : cut;
}

static LayerCut choose_cut(Lay *k, const LayerPass *pass)
{
    /* Of the time without: a layer among many has others' memory beside it. */
    const double most = k->p->fusion == FUSE_STACK ? 1.2 : 1.05;
    const char *asked = getenv(PIECES_VARIABLE);
    int64_t memory = k->p->fusion == FUSE_PIECES ? k->args->memory : 0;
    LayerCut found = { .n = 1 };

    if (asked)
        return asked_cut(k, asked, pass);
    Measured least = { 0 };
    double products = products_seconds(k), limit = 0;

    for (int n = 1; n <= MOST_PIECES && count_units(k) % n == 0; n *= 2)
        for (int how = 0; how < 4; how++) {
            LayerCut cut = { .n = n, .again = how % 2, .rows = how / 2 };
            ctx_poll(k->c);
            Measured m = measure(k, cut, pass);
            limit = limit > 0 ? limit : most * (m.seconds + products);
            if (!memory && m.seconds + products > limit)
                continue;
            if (k->p->fusion == FUSE_PIECES)
                m = measure_beside(k, &cut, m, pass);
            m.seconds += products;
            if (least.seconds > 0 && !is_better(&m, &least, memory))
                continue;
            least = m;
            found = cut;
        }
    return found;
}

/* Of what the choice depends on. */
static uint64_t hash_of(const Lay *k)
{
    const int64_t x[] = { k->b->B, k->b->T, k->b->dtype, k->args->chunk,
                          k->args->serial, k->args->memory };

    return hash_bytes(4, x, sizeof x) | 1;
}

typedef struct Finding { Lay *k; LayerCut cut; bool found; } Finding;

static void find_known(Ctx *c, void *ud)
{
    Finding *f = ud;
    const LayerProgram *p = f->k->p;

    (void)c;
    for (int i = 0; i < LAYER_ROOMS && !f->found; i++)
        if (p->cut[i].call == f->cut.call) {
            f->cut = p->cut[i];
            f->found = true;
        }
}

static void note_known(Ctx *c, void *ud)
{
    Finding *f = ud;
    LayerProgram *p = f->k->p;

    (void)c;
    p->cut[p->ncuts++ % LAYER_ROOMS] = f->cut;
}

void find_pieces(Lay *k, const LayerPass *pass)
{
    Finding f = { .k = k, .cut = { .call = hash_of(k), .n = 1 } };
    bool may = k->p->fusion >= FUSE_PIECES && k->b->call.on_device
            && !k->args->cu && !k->args->device_cu && !k->args->index.given
            && k->b->N == k->b->B;

    k->cut = f.cut;
    if (!may || !k->keep)
        return;
    gpu_enter(k->c, k->v->shared.gpu);
    gpu_locked(k->c, k->v->shared.gpu, find_known, &f);
    if (!f.found) {
        uint64_t call = f.cut.call;
        f.cut = choose_cut(k, pass);
        f.cut.call = call;
        gpu_locked(k->c, k->v->shared.gpu, note_known, &f);
    }
    k->cut = f.cut;
}
