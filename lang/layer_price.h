/* layer_price.h -- what a layer's parts move and compute, and how long that
 * takes, for so many tokens on a machine.
 */
#ifndef FLIN_LAYER_PRICE_H
#define FLIN_LAYER_PRICE_H

#include "layer_run.h"

typedef struct Price { double flops, bytes, seconds; } Price;

typedef struct Pricing {
    Ctx *c;                             /* that texts are made in */
    const Graph *g;                     /* the layer, traced */
    const Machine *m;
    const int32_t *size;
    const LayerParts *parts;            /* all of the layer's; or NULL */
    int64_t B, T;
    bool backward;                      /* both ways */
    bool gpu, beside;                   /* beside: weights lie so */
    bool sketch;                        /* plans of less effort */
    bool roads;                         /* which of their kernels are not on
                                           wgmma is looked for */
} Pricing;

void price_add(Price *to, const Price *p);

/* A part's, of all tokens; *by: what runs it. */
Price price_part(const Pricing *s, const LayerPart *p, const char **by);

/* The same where it is made in tiles of tokens, by its price else: a product
 * once more on the way back; of a weight the gradient is added up tile by
 * tile. */
void price_tiles(const Pricing *s, const LayerPart *p, Price *price);

/* Of products that run as one. */
Price price_joint(const Pricing *s, const LayerParts *parts, const Joint *j,
                  const char **by);

/* layer_fuse.c: where each part of layer_cut's is computed, as asked. What is
 * cheapest is found by the price of a usual call forward and of one both ways.
 * Fails where products are to be in the steps of calls and cannot. */
uint8_t *fuse_places(Ctx *c, const Layer *l, const LayerParts *parts,
                     const int32_t size[NAXES], Fusion how, const Machine *m);

#endif
