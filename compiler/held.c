/* held.c -- what lies on chip while a kernel's atoms are worked off.
 *
 * A tile is there from the first atom that needs it to the last. Carried and
 * final states lie in registers, and so do the sums of a product, as far as
 * those suffice: a result takes its place when what ends with it has left. A
 * sum of tiles, each scaled as it may be, is made in one: every term is added
 * to what is there.
 */
#include "cost.h"

#include <math.h>
#include <string.h>

/* Tiles: the tensors of the choice and, behind them, the inputs. Those that
 * share a place have one that stands for all. */
typedef struct Held {
    const Atoms *a;
    const Set *atoms;
    int ntiles;
    double *bytes;                      /* of each tile */
    int *place, *there;                 /* whose it shares; tiles in it */
    int *uses;                          /* atoms that still need it */
    uint8_t *on, *done;                 /* tiles; atoms */
    int **needs, *nneeds;               /* per atom: tiles */
    double registers;                   /* bytes beside carried states */
    double now, most;
} Held;

static bool needs_tile(const Atoms *a, int atom, int t)
{
    const Atom *at = &a->atom[atom];

    return t < a->ntensors ? set_has(&at->needs, t)
                           : input_has(&at->inputs, t - a->ntensors);
}

static Ref tile_node(const Atoms *a, int t)
{
    return t < a->n ? a->atom[t].node
         : t < a->ntensors ? a->g->st[t - a->n].node
         : a->g->in[t - a->ntensors].node;
}

static void list_needs(Held *h, int atom)
{
    int *list = ctx_alloc(h->a->g->ctx, (size_t)h->ntiles * sizeof *list);

    h->needs[atom] = list;
    for (int t = 0; t < h->ntiles; t++)
        if (needs_tile(h->a, atom, t)) {
            list[h->nneeds[atom]++] = t;
            h->uses[t]++;
        }
}

/* The first tile that is a term of the same sum. */
static int place_of(const Atoms *a, int t)
{
    for (int i = 0; t < a->n && a->atom[t].sum && i < t; i++)
        if (a->atom[i].sum == a->atom[t].sum)
            return i;
    return t;
}

double carried_bytes(const Atoms *a, const Shape *s)
{
    double bytes = 0;

    for (int i = 0; i < a->g->nst; i++)
        if (s->states >> i & 1)
            bytes += 4 * (double)axes_size(a->g, a->g->st[i].axes);
    return bytes;
}

static void held_init(Held *h, const Shape *s)
{
    const Atoms *a = h->a;
    Ctx *c = a->g->ctx;

    h->ntiles = a->ntensors + a->g->nin;
    size_t n = (size_t)h->ntiles + 1;
    h->bytes = ctx_alloc(c, n * sizeof *h->bytes);
    h->place = ctx_alloc(c, n * sizeof *h->place);
    h->there = ctx_alloc(c, n * sizeof *h->there);
    h->uses = ctx_alloc(c, n * sizeof *h->uses);
    h->on = ctx_alloc(c, n);
    h->done = ctx_alloc(c, n);
    h->needs = ctx_alloc(c, n * sizeof *h->needs);
    h->nneeds = ctx_alloc(c, n * sizeof *h->nneeds);
    for (int t = 0; t < h->ntiles; t++) {
        bool held = t >= a->ntensors || set_has(&s->loads, t)
                 || (t < a->n && set_has(h->atoms, t)
                     && !a->atom[t].states);
        h->bytes[t] = held ? tile_bytes(a->g, a->m, tile_node(a, t)) : 0;
        h->place[t] = place_of(a, t);
    }
    for (int i = 0; i < a->n; i++)
        if (set_has(h->atoms, i))
            list_needs(h, i);
    h->registers = (double)a->m->registers - carried_bytes(a, s);
}

static bool ready(const Held *h, int atom)
{
    for (int k = 0; k < atom; k++)
        if (set_has(h->atoms, k) && !h->done[k]
            && set_has(&h->a->atom[atom].needs, k))
            return false;
    return true;
}

static double enter(Held *h, int t)
{
    return h->there[h->place[t]]++ ? 0 : h->bytes[t];
}

static double leave(Held *h, int t)
{
    return --h->there[h->place[t]] ? 0 : h->bytes[t];
}

/* Bytes of the atom's result that lie beside its operands while it is made:
 * of a product those that registers do not take; of others all, unless one
 * that ends has room for them. */
static double beside(const Held *h, int atom)
{
    const Atoms *a = h->a;
    Ref r = a->atom[atom].node;
    double bytes = h->bytes[atom];

    if (h->there[h->place[atom]])
        return 0;
    if (op_is(a->g->n[r].op, ADDS_UP) && node_is_product(a->g, &a->g->n[r])) {
        double sums = 4 * (double)axes_size(a->g, a->g->n[r].axes);
        return bytes * fmax(0, 1 - fmax(0, h->registers) / sums);
    }
    for (int i = 0; i < h->nneeds[atom]; i++) {
        int t = h->needs[atom][i];
        if (h->uses[t] == 1 && h->bytes[t] >= bytes)
            return 0;
    }
    return bytes;
}

/* How much more is held once the atom is done, were each tile by itself; a
 * little of what is held meanwhile tells equal ones apart. */
static double growth(const Held *h, int atom)
{
    double more = h->bytes[atom], freed = h->uses[atom] ? 0 : more;

    for (int i = 0; i < h->nneeds[atom]; i++) {
        int t = h->needs[atom][i];
        more += h->on[t] ? 0 : h->bytes[t];
        freed += h->uses[t] == 1 ? h->bytes[t] : 0;
    }
    return more - freed + 1e-3 * more;
}

/* Its operands come, its result takes its place, what ends with it goes. */
static void work_off(Held *h, int atom)
{
    double more = beside(h, atom);

    for (int i = 0; i < h->nneeds[atom]; i++) {
        int t = h->needs[atom][i];
        h->now += h->on[t] ? 0 : enter(h, t);
        h->on[t] = 1;
    }
    h->most = fmax(h->most, h->now + more);
    for (int i = 0; i < h->nneeds[atom]; i++) {
        int t = h->needs[atom][i];
        h->on[t] = --h->uses[t] > 0;
        h->now -= h->on[t] ? 0 : leave(h, t);
    }
    h->on[atom] = h->uses[atom] > 0;
    h->now += h->on[atom] ? enter(h, atom) : 0;
    h->most = fmax(h->most, h->now);
    h->done[atom] = 1;
}

/* Each atom in turn is the one that frees most, or takes least. */
size_t held_bytes(const Atoms *a, const Set *atoms, const Shape *s)
{
    Held h = { .a = a, .atoms = atoms };

    held_init(&h, s);
    for (;;) {
        int best = -1;
        double least = 0;
        for (int i = 0; i < a->n; i++) {
            if (!set_has(atoms, i) || h.done[i] || !ready(&h, i))
                continue;
            double more = growth(&h, i);
            if (best < 0 || more < least) {
                best = i;
                least = more;
            }
        }
        if (best < 0)
            return (size_t)h.most;
        work_off(&h, best);
    }
}
