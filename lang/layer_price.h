/* layer_price.h -- what a layer's parts move and compute, and how long that
 * takes, for so many tokens on a machine.
 */
#ifndef FLIN_LAYER_PRICE_H
#define FLIN_LAYER_PRICE_H

#include "layer_run.h"

typedef struct Price { double flops, bytes, seconds; } Price;

/* The plan of a step, which is the same for any B; kept for the next price. */
typedef struct PricedPlan {
    const Graph *step;                  /* NULL: there is none yet */
    bool backward;
    Plan *plan;
    const uint8_t *plain;
} PricedPlan;

typedef struct Pricing {
    Ctx *c;                             /* that texts are made in */
    const Graph *g;                     /* the layer, traced */
    const Machine *m;
    const int32_t *size;
    const LayerParts *parts;            /* all of the layer's; or NULL */
    int64_t B, T, memory;               /* memory: as Args.memory */
    bool backward;                      /* both ways */
    bool gpu, beside;                   /* beside: weights lie so */
    bool sketch;                        /* plans of less effort */
    bool roads;                         /* which of their kernels are not on
                                           wgmma is looked for */
    PricedPlan *plan;                   /* or NULL */
} Pricing;

void price_add(Price *to, const Price *p);

/* A part's, of all tokens; *by: what runs it. */
Price price_part(const Pricing *s, const LayerPart *p, const char **by);

/* Bytes of what the part reads and of its result, once. */
double price_ends(const Pricing *s, const LayerPart *p);

/* The same of a product that may be made in tiles, by its price else: as a call
 * chooses these. columns: of the axis along which it may be cut, or 0; whole:
 * it may be made at once. */
Tiling price_tiles(const Pricing *s, const LayerPart *p, int32_t columns,
                   bool whole, Price *price);

/* Of products that run as one. */
Price price_joint(const Pricing *s, const LayerParts *parts, const Joint *j,
                  const char **by);

/* A group that is not there, and by how much it would make usual calls dearer:
 * by that at least, where its kernels have not been looked at. */
typedef struct LayerOther {
    LayerGroup group;
    double more;
    bool least;
} LayerOther;

/* How the parts of layer_cut's are put together. */
typedef struct LayerChoice {
    LayerGroups groups;
    bool program;                       /* by the integer program */
    bool proved;                        /* nothing else offered is cheaper, as
                                           far as prices tell apart */
    int offered, nothers;
    double seconds, walk;               /* of usual calls; and of what trying
                                           part after part would come to */
    LayerOther *other;
} LayerChoice;

/* layer_fuse.c: them as asked. What is cheapest is found by the price of a
 * usual call forward and of one both ways. others: what is not chosen is
 * said, too. Fails where products are to be in the steps of calls and
 * cannot. */
LayerChoice fuse_choice(Ctx *c, const Layer *l, const LayerParts *parts,
                        const int32_t size[NAXES], Fusion how,
                        const Machine *m, bool others);

#endif
