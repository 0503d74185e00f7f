/* pairs.h -- masks over all pairs of tokens on the device, by tiles: softmax
 * attention, and masks that do not factor, forward and backward.
 *
 * A mask's kernels are made for its sizes and types when a call first asks for
 * them: with wgmma for matrices of 16 bits of up to 128 columns on Hopper; else
 * plain ones forward, and back one of two ways in a block's memory, by price
 * (compiler/pair_ways.h). Gradients are sums in one order: the same bits each
 * time.
 */
#ifndef FLIN_CUDA_PAIRS_H
#define FLIN_CUDA_PAIRS_H

#include "../../compiler/pair_ways.h"
#include "gpu.h"

/* All that a mask has become on a device; NULL: nothing yet. */
typedef struct PairPrograms PairPrograms;
void pairs_free(Gpu *g, PairPrograms *p);

/* A call whose tensors are on the device. Backward: dy, and dx of each input,
 * of which those with data are wanted; with fewer heads than the call they take
 * the sum. kept: pairs_kept bytes that a forward call fills and a backward one
 * reads; NULL: that one goes forward, too. */
typedef struct PairsCall {
    const Graph *step;
    const Call *call;
    bool backward;
    View dy, dx[MAX_INPUTS];
    void *kept;
} PairsCall;

int64_t pairs_kept(const PairsCall *p);
/* Bytes of Call.workspace. */
int64_t pairs_workspace(Ctx *c, Gpu *g, PairPrograms **all, const PairsCall *p);
/* Compiles what is new; any thread. */
void pairs_prepare(Ctx *c, Gpu *g, PairPrograms **all, const PairsCall *p);
/* Queues it on the call's stream. */
void pairs_run(Ctx *c, Gpu *g, PairPrograms **all, const PairsCall *p);

/* pairs_verify.c: runs such a call, of a few tokens, and holds it against the
 * sum in double: what is wrong, or NULL. floats: as in PairsShape. Its memory
 * is its own, the workspace (of `room` bytes), too: the call that it is made
 * for may be part of one that has the stream's. */
typedef void PairsRun(Ctx *c, Gpu *g, PairPrograms **all, const PairsCall *p);
typedef int64_t PairsRoom(Ctx *c, Gpu *g, PairPrograms **all,
                          const PairsCall *p);
const char *pairs_verify(Ctx *c, Gpu *g, PairPrograms **all, PairsRun *run,
                         PairsRoom *room, const PairsCall *like,
                         const bool floats[3]);

/* ---- pairs_emit.c ---- */

enum { PAIR_LEAVES = 16 };              /* at most */

/* What a leaf has a number for. */
enum { PER_TOKEN, PER_KEY, PER_VALUE };

/* What a source depends on. */
typedef struct PairsShape {
    int key, value;                     /* entries of a key, of a value */
    DType type;                         /* of matrices */
    bool wgmma, back;                   /* back: of `way`, back alone */
    bool floats[3];                     /* dq, dk, dv are left as float32 */
    AttentionWay way;
    PairShape own[PAIR_KERNELS];
    uint8_t kind[PAIR_LEAVES];          /* of leaves, in the order of planes */
    int entries;                        /* pairs are weighed for each key or
                                           value: as many tokens a block owns,
                                           and stream past at once; or 0 */
} PairsShape;

/* Which of the mask's leaves are queries', keys' and numbers of a head, in the
 * order of planes. */
typedef struct PairLeaves {
    int n, rows, cols, numbers;
    int leaf[PAIR_LEAVES];              /* of the mask */
    int sum[PAIR_LEAVES];               /* 1: a sum of tokens; 2: which enters
                                           by differences alone */
    int base[PAIR_LEAVES];              /* the plane that these begin at */
} PairLeaves;

/* Fails where the mask reads too much. */
PairLeaves pair_leaves(const Mask *m);
/* The first plane of leaf k; behind the last, how many planes there are. */
int pair_plane(const PairsShape *s, int k);
/* Has a leaf a number for each key, or for each value? */
bool pair_has(const PairsShape *s, int kind);
/* Keys of a sequence that all rows behind have pairs with, and how many tiles
 * of 128 hold these; the first `span` rows have all other pairs of these tiles.
 * keys 0: there are none. */
typedef struct PairFirst { int keys, tiles, span; } PairFirst;
PairFirst pair_first(const Mask *m);
/* Kernels flin_forward, flin_keys, flin_queries with wgmma; of a way back
 * flin_keys and flin_queries, and for tiles flin_values and flin_scores; of
 * weights for each entry flin_forward, flin_keys, flin_queries, flin_leaves and
 * flin_sums; else plain ones: flin_forward, flin_delta, flin_leaves, flin_sums,
 * and, of first keys, flin_first. m is written to. */
char *pairs_source(Ctx *c, Mask *m, const PairsShape *s);

#endif
