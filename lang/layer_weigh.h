/* layer_weigh.h -- which parts of a layer are computed within others: by the
 * price of usual calls, one of them forward and one both ways.
 */
#ifndef FLIN_LAYER_WEIGH_H
#define FLIN_LAYER_WEIGH_H

#include "layer_price.h"

/* Prices of steps that have been made, by a hash of their text. */
enum { MEMOS = 512 };
typedef struct Memo { uint64_t step; double seconds; } Memo;

typedef struct Weights {
    Ctx *c;
    const Layer *l;
    const int32_t *size;
    const Machine *m;
    int n;
    Memo memo[MEMOS];
} Weights;

/* roads: as its kernels are; else as if all were on wgmma, which is found
 * sooner and is never more. */
double weigh_part(Weights *w, const LayerPart *p, bool roads);

/* By how much the step `now`, which does more, may be cheaper: by what it need
 * not move. */
double weigh_moves(const Weights *w, const LayerPart *was,
                   const LayerPart *now);

/* Are the part's states carried by kernels over rows; do these make a product
 * with a weight as well? */
bool part_carries(Weights *w, const LayerPart *p);
bool part_multiplies(Weights *w, const LayerPart *p);

/* Has the step a chunk form? */
bool part_has_chunks(Ctx *c, const LayerPart *p, const int32_t *sizes);

/* The integer program (layer_choose.c): of all that has been offered to it, the
 * groups that cost least, beginning with those of `walk`, which it never
 * exceeds. others: what else there was is priced, too. */
void layer_choose(Weights *w, const LayerParts *parts, const LayerGroups *walk,
                  bool others, LayerChoice *to);

#endif
