/* layer_fuse.c -- which parts of a layer are computed within others: by price.
 *
 * Behind the call whose result it reads, or before those that read it, a row
 * part spares a kernel, and what lies between the two in memory; but the call's
 * own kernels do more, may need smaller chunks, and some become slower ones;
 * and where entries of y are summed, no two blocks can share a head, as they do
 * where there are few. That is weighed for calls of usual size: which parts
 * there are must not depend on how many tokens come, or a sequence that is cut
 * in two would be rounded otherwise.
 */
#include <math.h>
#include <string.h>

#include "layer_price.h"

/* ---- all that can be ---- */

static bool has_chunks(Ctx *c, const LayerPart *p, const int32_t *sizes)
{
    int32_t size[NAXES] = { 0 };

    for (int ax = AX_DIM; ax < p->step->naxes; ax++)
        size[ax] = sizes[p->axis[ax]];
    return derive(graph_copy(c, p->step), size, CHUNK_DEFAULT);
}

/* The part, or that which it has become, by its result. */
static const LayerPart *part_named(const LayerParts *p, Ref y)
{
    for (int i = 0; i < p->n; i++)
        if (p->part[i].y == y)
            return &p->part[i];
    return NULL;
}

typedef struct Fuse {
    Ctx *c;
    const Layer *l;
    const LayerParts *parts;
    const int32_t *size;
    const Machine *m;
    uint8_t *place;
} Fuse;

/* Do all calls that have a chunk form as they are still have one? */
static bool keeps_chunks(const Fuse *f)
{
    const LayerParts *to = layer_fuse(f->c, f->l, f->parts, f->place, f->size);

    for (int i = 0; i < f->parts->n; i++) {
        const LayerPart *was = &f->parts->part[i], *now;
        int behind = -1;
        if (!layer_is_call(f->l, was))
            continue;
        for (int j = i + 1; j < f->parts->n; j++)
            if (f->place[j] == PLACE_BEHIND
                && layer_call_before(f->c, f->l, f->parts, j) == i)
                behind = j;
        now = part_named(to, behind < 0 ? was->y : f->parts->part[behind].y);
        if (now->step != was->step && has_chunks(f->c, was, f->size)
            && !has_chunks(f->c, now, f->size))
            return false;
    }
    return true;
}

static bool try_place(const Fuse *f, int i, RowPlace to)
{
    uint8_t was = f->place[i];

    if (!layer_may_fuse(f->c, f->l, f->parts, f->place, i, to))
        return false;
    f->place[i] = (uint8_t)to;
    if (keeps_chunks(f))
        return true;
    f->place[i] = was;
    return false;
}

/* A convolution is one kernel over rows with what is behind it; a scan's
 * result spares more. */
static bool behind_scan(const Fuse *f, int i)
{
    return layer_may_fuse(f->c, f->l, f->parts, f->place, i, PLACE_BEHIND)
        && !f->parts->part[layer_call_before(f->c, f->l, f->parts, i)].taps;
}

static void fuse_most(const Fuse *f)
{
    const LayerParts *p = f->parts;

    for (int i = 0; i < p->n; i++)
        if (behind_scan(f, i))
            try_place(f, i, PLACE_BEHIND);
    for (int i = p->n - 1; i >= 0; i--)
        if (f->place[i] == PLACE_APART && p->part[i].step)
            try_place(f, i, PLACE_BEFORE);
    for (int i = 0; i < p->n; i++)
        if (f->place[i] == PLACE_APART)
            try_place(f, i, PLACE_BEHIND);
}

/* ---- products, too ---- */

/* Bytes of what is the same for all tokens, of a head. */
static double weight_bytes(const Fuse *f, const LayerPart *p)
{
    double bytes = 0;

    for (int i = 0; i < p->nin; i++) {
        const Input *in = &p->step->in[i];
        double n = f->m->tile_bytes;
        for (int d = 0; d < in->rank; d++)
            n *= f->size[p->axis[in->order[d]]];
        bytes += in->timed ? 0 : n;
    }
    return bytes;
}

/* A kernel that walks through the tokens has its weights beside them. */
static void check_weights(const Fuse *f)
{
    const LayerParts *to = layer_fuse(f->c, f->l, f->parts, f->place, f->size);
    double most = (double)f->m->shared;

    for (int i = 0; i < to->n; i++) {
        const LayerPart *p = &to->part[i];
        double bytes = p->step && !p->taps ? weight_bytes(f, p) : 0;
        if (bytes > most)
            fail_help(f->c, 0, "plan = \"fused\" leaves products to "
                      "themselves", "%s: plan \"whole\": the weights of a head "
                      "that would be in the kernel of %s take %.0f bytes, and "
                      "%s has %.0f on chip", f->l->traced->name, p->name,
                      bytes, f->m->name, most);
    }
}

/* As fuse_most, and products with weights. */
static void fuse_whole(const Fuse *f)
{
    bool any = false;

    fuse_most(f);
    for (int i = f->parts->n - 1; i >= 0; i--)
        if (!f->parts->part[i].step)
            any |= try_place(f, i, PLACE_BEFORE);
    if (!any)
        fail_help(f->c, 0, "plan = \"fused\"", "%s: plan \"whole\": no product "
                  "of one head is read by a rule alone", f->l->traced->name);
    check_weights(f);
}

/* ---- what is cheapest ---- */

/* Prices of steps that have been made, by a hash of their text. */
enum { MEMOS = 256 };
typedef struct Memo { uint64_t step; double seconds; } Memo;

/* What there is so far: as if all kernels were on wgmma, and as they are. */
typedef struct Weighing {
    Fuse f;
    double least[2];
    Memo memo[MEMOS];
    int n;
} Weighing;

static uint64_t step_hash(Ctx *c, const LayerPart *p, bool roads)
{
    Buf text = { .ctx = c };

    graph_print(p->step, &text);
    return hash_bytes(2 * p->y + roads, text.s, text.len);
}

/* Of usual calls forward, and both ways: of one sequence, and of as many as
 * fill the machine; each sequence's share. */
static double part_seconds(const Weighing *w, const LayerPart *p, bool roads)
{
    enum { TOKENS = 2048 };
    int heads = p->heads ? w->f.size[p->heads] : 1, units = w->f.m->units;
    Pricing s = { .c = w->f.c, .g = w->f.l->traced, .m = w->f.m,
                  .size = w->f.size, .T = TOKENS, .sketch = true,
                  .roads = roads, .gpu = w->f.m->arch > 0 };
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

static double known_seconds(Weighing *w, const LayerPart *p, bool roads)
{
    uint64_t hash = step_hash(w->f.c, p, roads);

    for (int i = 0; i < w->n; i++)
        if (w->memo[i].step == hash)
            return w->memo[i].seconds;
    double seconds = part_seconds(w, p, roads);
    if (w->n < MEMOS)
        w->memo[w->n++] = (Memo){ hash, seconds };
    return seconds;
}

/* Of all parts but products, which none of it changes. */
static double all_seconds(Weighing *w, bool roads)
{
    const Fuse *f = &w->f;
    const LayerParts *to = layer_fuse(f->c, f->l, f->parts, f->place, f->size);
    double seconds = 0;

    for (int i = 0; i < to->n; i++) {
        ctx_poll(f->c);
        if (to->part[i].step)
            seconds += known_seconds(w, &to->part[i], roads);
    }
    return seconds;
}

/* Is it cheaper so? Which kernels are made is looked for where that is left to
 * be known. */
static bool is_cheaper(Weighing *w)
{
    double seconds[2] = { all_seconds(w, false) };

    if (seconds[0] >= w->least[0])
        return false;
    seconds[1] = w->f.m->arch ? all_seconds(w, true) : seconds[0];
    if (seconds[1] >= w->least[1])
        return false;
    memcpy(w->least, seconds, sizeof seconds);
    return true;
}

/* There, if that is cheaper. */
static void weigh_place(Weighing *w, int i, RowPlace to)
{
    Fuse *f = &w->f;

    if (f->place[i] == PLACE_APART && f->parts->part[i].step
        && try_place(f, i, to) && !is_cheaper(w))
        f->place[i] = PLACE_APART;
}

typedef struct Cheapest { const Fuse *f; uint8_t *place; } Cheapest;

static void find_cheapest(Ctx *c, void *ud)
{
    Cheapest *k = ud;
    Weighing *w = ctx_alloc(c, sizeof *w);
    const LayerParts *parts = k->f->parts;

    w->f = *k->f;
    w->f.c = c;
    w->f.place = ctx_alloc(c, (size_t)parts->n + 1);
    w->least[0] = w->least[1] = INFINITY;
    is_cheaper(w);                      /* than nothing yet */
    for (int i = 0; i < parts->n; i++)
        weigh_place(w, i, PLACE_BEHIND);
    for (int i = parts->n - 1; i >= 0; i--)
        weigh_place(w, i, PLACE_BEFORE);
    memcpy(k->place, w->f.place, (size_t)parts->n);
}

static void fuse_cheapest(const Fuse *f)
{
    Cheapest k = { f, f->place };
    Ctx *c = f->c, *own = ctx_like(c);

    if (!own)
        fail_code(c, ERR_MEMORY, "out of memory");
    own->file = c->file;
    bool ok = ctx_protect(own, find_cheapest, &k);
    if (!ok)
        c->err = own->err;
    ctx_free(own);
    if (!ok)
        ctx_rethrow(c);
}

uint8_t *fuse_places(Ctx *c, const Layer *l, const LayerParts *parts,
                     const int32_t size[NAXES], Fusion how, const Machine *m)
{
    Fuse f = { .c = c, .l = l, .parts = parts, .size = size, .m = m,
               .place = ctx_alloc(c, (size_t)parts->n + 1) };

    if (how == FUSE_CHEAPEST || how == FUSE_TILES)
        fuse_cheapest(&f);
    else if (how == FUSE_MOST)
        fuse_most(&f);
    else if (how == FUSE_WHOLE)
        fuse_whole(&f);
    return f.place;
}
