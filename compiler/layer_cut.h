/* layer_cut.h -- what layer.c, which cuts a layer into parts, shares with
 * layer_fuse.c, which puts some of them together again.
 */
#ifndef FLIN_LAYER_CUT_H
#define FLIN_LAYER_CUT_H

#include "layer.h"

/* Nodes of one graph on their way into another. */
typedef struct LayerCopy {
    Graph *to;
    const Graph *from;
    const uint8_t *axis;                /* in `to`; NULL: the same */
    Ref *map;
} LayerCopy;

Ref layer_copy_node(LayerCopy *k, Ref r);

/* Is the node's index an axis? */
bool layer_names_axis(int op);
/* The axes as those of another graph. */
AxisSet layer_mapped(const uint8_t axis[NAXES], AxisSet s);
/* Them one after another; how many. */
int layer_order(AxisSet s, uint8_t *order);

/* The call whose result r is; NULL: r is none's. */
const LayerCall *layer_call_of(const Layer *l, Ref r);

#endif
