/* layer_choose.c -- the parts of a layer as one integer program (choose.h).
 *
 * Tensors are the values that layer_cut's parts give; a column is a kernel, or
 * a few, that one could have: a part alone; a call with row parts before it
 * and behind it in its step. It loads what its step reads, and makes the last
 * value. A row part may be in the steps of some of its readers and a part of
 * its own for others. The pool begins with each part alone, each row part
 * within each call, and what a walk has tried; it grows around what is chosen
 * by one row part more or less, until that changes nothing. A column's price
 * is first that of kernels that are all on wgmma, which is never more than it
 * is; one that is chosen so is looked at, and the choice made again. Where
 * that saves less than prices tell apart the walk's answer stays.
 */
#include <math.h>
#include <string.h>

#include "../compiler/choose.h"
#include "layer_weigh.h"

enum { MAX_OPTIONS = 512, MAX_OTHERS = 32 };

/* What prices tell apart. */
static const double ENOUGH = .99;

/* A column, and what it is. */
typedef struct Option {
    LayerGroup g;
    LayerPart p;
    double seconds;
    bool known;                         /* as its kernels are */
} Option;

typedef struct Choosing {
    Ctx *c;
    Weights *w;
    const LayerParts *parts;
    int *of;                            /* per node: the part that gives it,
                                           from 1 on */
    int *behind;                        /* per part: the call that it may be
                                           behind; or -1 */
    uint8_t *takes, *chunks;            /* per call and row part; per part */
    Option *option;
    Column *column;
    int n;
    int64_t *store;
    Choice choice;
    uint8_t *walk;                      /* per option */
    Answer start, best;                 /* the walk; what is chosen */
    bool proved;
} Choosing;

static bool reads(const LayerPart *p, Ref r)
{
    for (int i = 0; i < p->nin; i++)
        if (p->in[i] == r)
            return true;
    return false;
}

/* ---- columns ---- */

/* May row part r be in the step, with those that are? Something there reads it.
 */
static bool is_read(const Choosing *k, const LayerGroup *g, int r)
{
    Ref y = k->parts->part[r].y;
    bool any = reads(&k->parts->part[g->part], y)
            || (g->behind >= 0 && reads(&k->parts->part[g->behind], y));

    for (int i = 0; g->before && i < k->parts->n && !any; i++)
        any = g->before[i] && i != r && reads(&k->parts->part[i], y);
    return any;
}

/* The group without what nothing in it reads any more. */
static uint8_t *needed_rows(const Choosing *k, const LayerGroup *g)
{
    int n = k->parts->n;
    uint8_t *to = ctx_alloc(k->c, (size_t)n + 1);
    LayerGroup own = { g->part, g->behind, to };

    if (g->before)
        memcpy(to, g->before, (size_t)n);
    for (int i = n - 1; i >= 0; i--)    /* readers are behind what they read */
        to[i] = to[i] && is_read(k, &own, i);
    return to;
}

static int known_option(const Choosing *k, const LayerGroup *g)
{
    for (int i = 0; i < k->n; i++) {
        const LayerGroup *o = &k->option[i].g;
        if (o->part == g->part && o->behind == g->behind
            && !memcmp(o->before, g->before, (size_t)k->parts->n))
            return i;
    }
    return -1;
}

/* Can so many values enter one step? A part alone is as it is. */
static bool is_small(const Choosing *k, const LayerGroup *g)
{
    int own = k->parts->part[g->part].nin, n = own;

    n += g->behind >= 0 ? k->parts->part[g->behind].nin : 0;
    for (int i = 0; i < k->parts->n; i++)
        n += g->before[i] ? k->parts->part[i].nin : 0;
    return n == own || n < MAX_INPUTS - 1;
}

static Set values_read(const Choosing *k, const LayerPart *p)
{
    Set s = { 0 };

    for (int i = 0; i < p->nin; i++)
        if (k->of[p->in[i]])
            set_add(&s, k->of[p->in[i]] - 1);
    return s;
}

/* A step takes no less time for computing more: two plans that seem to say so
 * are two choices of what to keep and what to compute again. */
static void weigh(Choosing *k, Option *o, bool roads)
{
    const Option *call = &k->option[o->g.part];     /* first: alone */

    o->seconds = weigh_part(k->w, &o->p, roads);
    o->known = roads || !o->p.step || !k->w->m->arch;
    if (o->p.step == call->p.step)
        return;
    o->seconds = fmax(o->seconds, weigh_part(k->w, &call->p, roads)
                                  - weigh_moves(k->w, &call->p, &o->p));
}

static bool has_product(const Choosing *k, const uint8_t *before)
{
    for (int i = 0; i < k->parts->n; i++)
        if (before[i] && !k->parts->part[i].step)
            return true;
    return false;
}

/* Its place among the options; -1: it is none. */
static int offer(Choosing *k, int part, int behind, const uint8_t *before)
{
    LayerGroup g = { part, behind, before };
    Option *o = &k->option[k->n];

    g.before = needed_rows(k, &g);
    int at = known_option(k, &g);
    if (at >= 0 || k->n == MAX_OPTIONS || !is_small(k, &g))
        return at;
    *o = (Option){ .g = g, .p = layer_fused(k->c, k->w->l, k->parts, &g,
                                            k->w->size) };
    if (has_product(k, g.before) && !part_multiplies(k->w, &o->p))
        return -1;
    if (o->p.step != k->parts->part[part].step && k->chunks[part]
        && !part_has_chunks(k->c, &o->p, k->w->size))
        return -1;
    weigh(k, o, false);
    k->column[k->n] = (Column){ .loads = values_read(k, &o->p) };
    set_add(&k->column[k->n].makes, k->of[o->p.y] - 1);
    return k->n++;
}

static uint8_t *with_row(const Choosing *k, const uint8_t *before, int r)
{
    uint8_t *to = ctx_alloc(k->c, (size_t)k->parts->n + 1);

    if (before)
        memcpy(to, before, (size_t)k->parts->n);
    to[r] = !to[r];
    return to;
}

/* All that is one row part more, or less. */
static void offer_beside(Choosing *k, const LayerGroup *from)
{
    const LayerGroup g = *from;
    int n = k->parts->n;

    for (int r = 0; r < n; r++) {
        if (k->behind[r] == g.part)
            offer(k, g.part, g.behind == r ? -1 : r, g.before);
        if ((g.before && g.before[r])
            || (k->takes[g.part * n + r] && is_read(k, &g, r)))
            offer(k, g.part, g.behind, with_row(k, g.before, r));
    }
}

/* ---- the choice ---- */

static void find_prices(Choosing *k)
{
    for (int i = 0; i < k->n; i++)
        k->column[i].price = llround(k->option[i].seconds * 1e12);
    k->choice.ncolumns = k->n;
}

/* The walk stays where nothing is that much cheaper. */
static bool solve_choice(Choosing *k)
{
    if (!choice_check(k->c, &k->choice, k->walk, &k->start, NULL)
        || !choose(k->c, &k->choice, &k->start, &k->best))
        return false;
    k->proved = k->best.optimal;
    if ((double)k->best.price > ENOUGH * (double)k->start.price)
        k->best = k->start;
    return true;
}

/* Of what is chosen, what has not been looked at; false: nothing. */
static bool look(Choosing *k)
{
    bool any = false;

    for (int i = 0; i < k->best.n; i++) {
        Option *o = &k->option[k->best.column[i]];
        any |= !o->known;
        if (!o->known)
            weigh(k, o, true);
    }
    return any;
}

/* False: nothing new was there. */
static bool grow(Choosing *k)
{
    int before = k->n;

    for (int i = 0; i < k->best.n; i++)
        if (layer_is_call(k->w->l,
                          &k->parts->part[k->option[k->best.column[i]].g.part]))
            offer_beside(k, &k->option[k->best.column[i]].g);
    return k->n > before;
}

static bool make_choice(Choosing *k)
{
    do {
        do {
            find_prices(k);
            if (!solve_choice(k))
                return false;
        } while (look(k));
    } while (grow(k));
    return true;
}

/* ---- what is not chosen ---- */

static bool is_chosen(const Choosing *k, int option)
{
    for (int i = 0; i < k->best.n; i++)
        if (k->best.column[i] == option)
            return true;
    return false;
}

/* What all of it costs with the option: nothing else gives its value then. */
static bool price_with(Choosing *k, int option, int64_t *price)
{
    Choice c = k->choice;
    Column *column = ctx_alloc(k->c, (size_t)k->n * sizeof *column);
    Answer a;

    c.ncolumns = 0;
    for (int i = 0; i < k->n; i++)
        if (i == option
            || !set_meets(&k->column[i].makes, &k->column[option].makes))
            column[c.ncolumns++] = k->column[i];
    c.column = column;
    c.required = set_union(c.required, &k->column[option].makes);
    if (!choose(k->c, &c, NULL, &a))
        return false;
    *price = a.price;
    return true;
}

static void find_others(Choosing *k, LayerChoice *to)
{
    to->other = ctx_alloc(k->c, MAX_OTHERS * sizeof *to->other);
    for (int i = 0; i < k->n && to->nothers < MAX_OTHERS; i++) {
        const Option *o = &k->option[i];
        int64_t price;
        if (is_chosen(k, i) || !price_with(k, i, &price))
            continue;
        to->other[to->nothers++] = (LayerOther){
            o->g, (double)(price - k->best.price) * 1e-12, !o->known };
    }
}

/* ---- all of it ---- */

static int place_of(const LayerGroup *g)
{
    return g->behind >= 0 ? g->behind : g->part;
}

/* In the order of the values that they give. */
static LayerGroups chosen_groups(const Choosing *k)
{
    LayerGroups to = { .group = ctx_alloc(k->c, (size_t)k->best.n
                                                * sizeof *to.group + 1) };

    for (int i = 0; i < k->best.n; i++) {
        LayerGroup g = k->option[k->best.column[i]].g;
        int at = to.n++;
        for (; at && place_of(&to.group[at - 1]) > place_of(&g); at--)
            to.group[at] = to.group[at - 1];
        to.group[at] = g;
    }
    return to;
}

static void find_pairs(Choosing *k)
{
    const Layer *l = k->w->l;
    int n = k->parts->n;

    k->of = ctx_alloc(k->c, l->traced->len * sizeof *k->of);
    k->behind = ctx_alloc(k->c, (size_t)n * sizeof *k->behind + 1);
    k->takes = ctx_alloc(k->c, (size_t)n * (size_t)n + 1);
    k->chunks = ctx_alloc(k->c, (size_t)n + 1);
    for (int i = 0; i < n; i++) {
        const LayerPart *p = &k->parts->part[i];
        bool call = layer_is_call(l, p), row = p->step && !call;
        k->of[p->y] = i + 1;
        k->behind[i] = row && !p->constant
                     ? layer_call_before(k->c, l, k->parts, i) : -1;
        k->chunks[i] = call && part_has_chunks(k->c, p, k->w->size);
        bool carries = call && part_carries(k->w, p);
        for (int r = 0; call && r < i; r++)
            k->takes[i * n + r] = (k->parts->part[r].step ? !layer_is_call(l,
                                   &k->parts->part[r]) : carries)
                               && layer_takes(k->c, l, k->parts, i, r);
    }
}

static void offer_first(Choosing *k)
{
    for (int i = 0; i < k->parts->n; i++)
        offer(k, i, -1, NULL);
    for (int i = 0; i < k->parts->n; i++)
        if (layer_is_call(k->w->l, &k->parts->part[i]))
            offer_beside(k, &(LayerGroup){ i, -1, NULL });
}

void layer_choose(Weights *w, const LayerParts *parts, const LayerGroups *walk,
                  bool others, LayerChoice *to)
{
    Choosing k = { .c = w->c, .w = w, .parts = parts };

    *to = (LayerChoice){ .groups = *walk };
    if (parts->n > MAX_TENSORS)
        return;
    k.option = ctx_alloc(k.c, (MAX_OPTIONS + 1) * sizeof *k.option);
    k.column = ctx_alloc(k.c, MAX_OPTIONS * sizeof *k.column);
    k.walk = ctx_alloc(k.c, MAX_OPTIONS);
    k.store = ctx_alloc(k.c, (size_t)parts->n * sizeof *k.store + 1);
    find_pairs(&k);
    offer_first(&k);
    for (int i = 0; i < walk->n; i++) {
        const LayerGroup *g = &walk->group[i];
        int at = offer(&k, g->part, g->behind, g->before);
        if (at < 0)
            return;
        weigh(&k, &k.option[at], true);
        k.walk[at] = 1;
    }
    k.choice = (Choice){ .ntensors = parts->n, .store = k.store,
                         .column = k.column };
    set_add(&k.choice.required, k.of[w->l->traced->out[0].node] - 1);
    if (!make_choice(&k))
        return;
    to->groups = chosen_groups(&k);
    to->program = true;
    to->proved = k.proved;
    to->offered = k.n;
    to->seconds = (double)k.best.price * 1e-12;
    to->walk = (double)k.start.price * 1e-12;
    if (others)
        find_others(&k, to);
}
