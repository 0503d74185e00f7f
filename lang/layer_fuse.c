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

#include "layer_weigh.h"

/* ---- all that can be ---- */

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

static LayerParts *fuse_at(const Fuse *f)
{
    LayerGroups g = layer_groups(f->c, f->l, f->parts, f->place);

    return layer_fuse(f->c, f->l, f->parts, &g, f->size);
}

/* Do all calls that have a chunk form as they are still have one? */
static bool keeps_chunks(const Fuse *f)
{
    const LayerParts *to = fuse_at(f);

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
        if (now->step != was->step && part_has_chunks(f->c, was, f->size)
            && !part_has_chunks(f->c, now, f->size))
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
    const LayerParts *to = fuse_at(f);
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

/* What there is so far: as if all kernels were on wgmma, and as they are. */
typedef struct Weighing {
    Fuse f;
    Weights *w;
    double least[2];
} Weighing;

/* Of all parts but products, which none of it changes. */
static double all_seconds(Weighing *w, bool roads)
{
    const LayerParts *to = fuse_at(&w->f);
    double seconds = 0;

    for (int i = 0; i < to->n; i++)
        if (to->part[i].step)
            seconds += weigh_part(w->w, &to->part[i], roads);
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

/* Part after part: an answer for the integer program to beat. */
static LayerGroups walk(const Fuse *f, Weights *w)
{
    Weighing k = { .f = *f, .w = w, .least = { INFINITY, INFINITY } };
    const LayerParts *parts = f->parts;

    is_cheaper(&k);                     /* than nothing yet */
    for (int i = 0; i < parts->n; i++)
        weigh_place(&k, i, PLACE_BEHIND);
    for (int i = parts->n - 1; i >= 0; i--)
        weigh_place(&k, i, PLACE_BEFORE);
    return layer_groups(f->c, f->l, parts, f->place);
}

typedef struct Cheapest {
    const Fuse *f;
    bool others;
    LayerChoice *to;
} Cheapest;

/* In f's context. */
static LayerGroup kept_group(const Fuse *f, const LayerGroup *g)
{
    LayerGroup to = *g;

    if (g->before)
        to.before = memcpy(ctx_alloc(f->c, (size_t)f->parts->n + 1),
                           g->before, (size_t)f->parts->n);
    return to;
}

static void keep_choice(Ctx *c, void *ud)
{
    const Cheapest *k = ud;
    LayerChoice *to = k->to;
    LayerGroup *g = ctx_alloc(c, (size_t)to->groups.n * sizeof *g + 1);
    LayerOther *o = ctx_alloc(c, (size_t)to->nothers * sizeof *o + 1);

    for (int i = 0; i < to->groups.n; i++)
        g[i] = kept_group(k->f, &to->groups.group[i]);
    for (int i = 0; i < to->nothers; i++) {
        o[i] = to->other[i];
        o[i].group = kept_group(k->f, &to->other[i].group);
    }
    to->groups.group = g;
    to->other = o;
}

static void find_cheapest(Ctx *c, void *ud)
{
    Cheapest *k = ud;
    Weights *w = ctx_alloc(c, sizeof *w);
    Fuse f = *k->f;

    f.c = c;
    f.place = ctx_alloc(c, (size_t)f.parts->n + 1);
    *w = (Weights){ .c = c, .l = f.l, .size = f.size, .m = f.m };
    LayerGroups start = walk(&f, w);
    layer_choose(w, f.parts, &start, k->others, k->to);
}

static LayerChoice fuse_cheapest(const Fuse *f, bool others)
{
    LayerChoice to = { 0 };
    Cheapest k = { f, others, &to };
    Ctx *c = f->c, *own = ctx_like(c);

    if (!own)
        fail_code(c, ERR_MEMORY, "out of memory");
    own->file = c->file;
    bool ok = ctx_protect(own, find_cheapest, &k);
    if (!ok)
        c->err = own->err;
    if (ok && !ctx_protect(c, keep_choice, &k))
        ok = false;
    ctx_free(own);
    if (!ok)
        ctx_rethrow(c);
    return to;
}

LayerChoice fuse_choice(Ctx *c, const Layer *l, const LayerParts *parts,
                        const int32_t size[NAXES], Fusion how,
                        const Machine *m, bool others)
{
    Fuse f = { .c = c, .l = l, .parts = parts, .size = size, .m = m,
               .place = ctx_alloc(c, (size_t)parts->n + 1) };

    if (how == FUSE_CHEAPEST || how > FUSE_WHOLE)
        return fuse_cheapest(&f, others);
    if (how == FUSE_MOST)
        fuse_most(&f);
    else if (how == FUSE_WHOLE)
        fuse_whole(&f);
    return (LayerChoice){ .groups = layer_groups(c, l, parts, f.place) };
}
