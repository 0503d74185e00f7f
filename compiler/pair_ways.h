/* pair_ways.h -- the way back over all pairs of tokens in a block's memory of
 * so many bytes: two ways, as kernels of certain sizes, what they move between
 * that memory and what lies behind it, and what they take.
 *
 * BLOCKS forms scores anew: for dk and dv a block owns some keys, past which
 * queries stream; for dq some queries, past which keys do. TILES writes the
 * scores and the gradients of weights, n x n, and has all of a block's memory
 * for each product with them. pebble.h has both as games, and what is proved.
 */
#ifndef FLIN_PAIR_WAYS_H
#define FLIN_PAIR_WAYS_H

#include "machine.h"
#include "mask.h"
#include "pebble.h"

/* Bytes of scores, and of weights' gradients, that lie in memory at a time. */
#define PAIR_SCORES_MOST ((int64_t)4 << 30)

/* Kernels by what they make: dk (of BLOCKS dv, too), dq, dv, the scores. */
enum { PAIR_KEYS, PAIR_QUERIES, PAIR_VALUES, PAIR_SCORES, PAIR_KERNELS };

/* Of a kernel: tokens that a block owns; those that stream past it at once;
 * columns of a matrix at once, of gradients or (scores) of the terms of a
 * product. own 0: the way has no such kernel. */
typedef struct PairShape { int own, step, wide; } PairShape;

typedef struct PairWay {
    AttentionWay way;
    PairShape shape[PAIR_KERNELS];
    int room[PAIR_KERNELS];             /* bytes of a block's memory */
    double moved[PAIR_KERNELS];         /* bytes of a head's tokens */
    double seconds[PAIR_KERNELS];       /* of all of the call */
    double bytes, all;                  /* their sums */
} PairWay;

/* A call: sizes, tokens of a sequence, heads times sequences, bytes of an
 * element of q, k, v and their gradients, and a block's bytes. */
typedef struct PairAsk {
    int key, value;
    double tokens, heads;
    int element;
    int64_t memory;
} PairAsk;

/* Whether TILES' product with gradients reads the scores, too: a weight's
 * gradient is not the score's, or there are others. */
bool pair_reads_scores(Ctx *c, const Mask *m);
/* The way in the shapes that move least. False: not even one token fits. */
bool pair_way(Ctx *c, const Mask *m, const PairAsk *ask, const Machine *on,
              AttentionWay way, PairWay *out);
/* Of two, of which one may not fit (NULL). */
bool pair_takes_tiles(const PairWay *tiles, const PairWay *blocks);
/* TILES where they move less, else BLOCKS: n x n numbers are in memory for no
 * other reason. Fails where neither fits. */
PairWay pair_best_way(Ctx *c, const Mask *m, const PairAsk *ask,
                      const Machine *on);

/* Keys of a window that its rows have, and no others; 0: they have others. */
int64_t pair_band(const Mask *m);
/* Heads whose scores are written at a time, in as few turns as there is such
 * memory for: so many that processors have all the blocks that there is room
 * for, of the product that has fewest. memory: bytes of a head's; slots: of a
 * kernel's tokens owned, how many blocks a head has. */
int pair_heads(const PairWay *way, const Machine *on, int64_t heads,
               int64_t memory, const int64_t slots[PAIR_KERNELS]);

/* ---- pair_time.c ---- */

/* Blocks of a kernel that a multiprocessor has at a time. */
double pair_resident(const Machine *on, int room);
/* Blocks in the order in which they begin: so many parts of a sequence, and
 * for each so many beside one another, heads and slices of columns. Steps: of
 * n parts of these, from the first to the last. */
typedef struct PairBlocks {
    double parts, beside;
    int n;
    double steps[64];
} PairBlocks;
/* Of all of them, on the machine. */
double pair_seconds(Ctx *c, const PairAsk *ask, const Machine *on,
                    AttentionWay way, int kernel, PairShape s, int room,
                    const PairBlocks *b);

#endif
