/* layer.h -- a layer: a step whose heads are axes, and the parts that compute
 * it for many tokens at once.
 *
 * A layer is traced into a graph like a step's, in which the result of a call
 * is a value of which nothing is known: an input that nobody gives. Put in
 * place of these, node by node, the called variants make a step of it that has
 * their states, with the axes of heads of the values that they were called on:
 * the float64 interpreter runs that token by token, and it is what the layer
 * means. For many tokens at once the traced graph is cut into parts: matrix
 * products with weights, calls, and steps without states between the two, each
 * of which the compiler derives and differentiates on its own.
 */
#ifndef FLIN_LAYER_H
#define FLIN_LAYER_H

#include "ir.h"

enum { MAX_CALLS = 64, MAX_TAPS = 32 };

/* A variant called on values, or a convolution. */
typedef struct LayerCall {
    const char *name;
    Graph *step;                        /* of the variant; NULL: convolution */
    uint8_t axis[NAXES];                /* the layer's for each of the step */
    AxisSet heads;                      /* what the values have beside these */
    int taps;                           /* of a convolution: their axis */
    int nargs;
    Ref *arg;                           /* for each input of the step */
    Ref y;
    const char *result;                 /* of several, that which the step gives
                                           here; NULL: it has one */
    int first;                          /* the call of the first of these, whose
                                           axes and states it has */
    int state;                          /* in the whole step: its first */
    int line;
} LayerCall;

typedef struct Layer {
    Graph *traced;
    int nin;                            /* its inputs and weights; behind these
                                           the results of calls */
    LayerCall call[MAX_CALLS];
    int ncalls;
    bool checkpoint;                    /* its calls keep their inputs alone for
                                           the way back, as it is defined */
} Layer;

/* Calls the step on arg[i] for its input i, which has that one's axes, and
 * perhaps one more for heads. Axes are those of the same names; what is no
 * input's axis is the step's own. The result. Fails, with the line. */
Ref layer_call(Graph *g, const Graph *step, const Ref *arg);
/* The same of a step of several results: each is a call of the step that has
 * it alone, and the states are those of all; y[o] for its output o. */
void layer_call_all(Graph *g, const Graph *step, const Ref *arg, Ref *y);

/* y_t = sum over w of c[w] x_{t - W + 1 + w}: a convolution of x, along tokens,
 * with the taps c. Its state is the last W of x, the latest
 * last. */
Ref layer_conv(Graph *g, Ref x, Ref c, int taps);

/* x of the token before, called after an input, if it is one. */
Ref layer_prev(Graph *g, Ref x);

/* The whole layer as one step. */
Graph *layer_step(const Layer *l);

/* A part. step NULL: the product of in[0] and the weight in[1], summed over
 * `over`. Else a step of its own; its axes as the layer's, and the one that its
 * values have for heads (0: none). Its state i is the layer's state + i; where
 * there are taps, all are slices of the one: entry W - 1 - i. A constant one is
 * computed from weights: a step of one token, for all. */
typedef struct LayerPart {
    Ref y;
    const char *name, *result;          /* result: as LayerCall's */
    Graph *step;
    uint8_t axis[NAXES];
    int nin;
    Ref *in;                            /* values of the traced graph */
    AxisSet over;
    int heads, state, taps;
    bool constant;
    bool borrows;                       /* its states are another's, too, which
                                           leaves them behind the last token */
} LayerPart;

typedef struct LayerParts { int n; LayerPart *part; } LayerParts;

/* The parts of a layer for these sizes of axes, in an order in which each is
 * made before it is read. Sizes of 0 are not yet known: to see whether there
 * are parts. In c. Fails, with the line, where something has none. */
LayerParts *layer_cut(Ctx *c, const Layer *l, const int32_t size[NAXES]);

/* Where a part is computed that is no call: on its own; behind the call whose
 * result it reads, in that one's step; or before those that read it, in theirs.
 * A product may be before. */
typedef enum RowPlace { PLACE_APART, PLACE_BEHIND,
                        PLACE_BEFORE } RowPlace;

/* May part i of layer_cut's be there, while the others are where `place` says,
 * one each? What is behind a call is to be placed first, and what reads a part
 * before that one. */
bool layer_may_fuse(Ctx *c, const Layer *l, const LayerParts *p,
                    const uint8_t *place, int i, RowPlace to);
/* Is it a variant that is called, or a convolution? */
bool layer_is_call(const Layer *l, const LayerPart *p);
/* The call that part i may be behind: it alone reads the result. -1: there is
 * none. */
int layer_call_before(Ctx *c, const Layer *l, const LayerParts *p, int i);

/* Can the step of the call, one of the parts, have the row part, or product, in
 * the place of what it reads? */
bool layer_takes(Ctx *c, const Layer *l, const LayerParts *p, int call,
                 int row);

/* A part that there is to be: one of layer_cut's; with the row part `behind`
 * (-1: none) it is that one's, in the step of the call `part`. before: per
 * part, is it computed in the call's step, where that reads it? NULL: none is.
 */
typedef struct LayerGroup {
    int part, behind;
    const uint8_t *before;
} LayerGroup;
typedef struct LayerGroups { int n; LayerGroup *group; } LayerGroups;

/* The groups of these places: the steps of calls are larger, what is in them is
 * no part any more. */
LayerGroups layer_groups(Ctx *c, const Layer *l, const LayerParts *p,
                         const uint8_t *place);
/* Their parts, in order. In c, but for what stays as it is. */
LayerPart layer_fused(Ctx *c, const Layer *l, const LayerParts *p,
                      const LayerGroup *g, const int32_t size[NAXES]);
LayerParts *layer_fuse(Ctx *c, const Layer *l, const LayerParts *p,
                       const LayerGroups *g, const int32_t size[NAXES]);

#endif
