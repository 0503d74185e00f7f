/* pairs_hand.h -- a call over all pairs in hand: the shapes of its kernels, its
 * workspace, its way back (pairs_hand.c); and what kernels are passed. For
 * pairs.c.
 */
#ifndef FLIN_CUDA_PAIRS_HAND_H
#define FLIN_CUDA_PAIRS_HAND_H

#include "ends.h"
#include "pairs.h"

enum { PAIR_ALIGN = 256, OWN = 128 };   /* OWN: as in pairs.cuh */

/* A source's kernels. */
enum { FORWARD, KEYS, QUERIES, VALUES, SCORES, DELTA, LEAVES, SUMS, FIRST,
       NKERNELS };
typedef struct PairKernels {
    struct PairKernels *next;
    PairsShape shape;
    Module *module;
    Function *f[NKERNELS];
    bool judged[2];                     /* forward, backward */
} PairKernels;

/* Ends of packed sequences that the host knows. */
typedef struct PairEnds {
    struct PairEnds *next;
    DevicePtr at;
    int64_t n, *end;
} PairEnds;

/* How such calls go back. */
typedef struct PairRoad {
    struct PairRoad *next;
    PairAsk ask;
    int asked;                          /* Call.way */
    PairWay way;
} PairRoad;

struct PairPrograms {
    PairKernels *kernels;
    PairRoad *roads;
    PairEnds *ends;
    Ends left_out;
    bool plain;                         /* the compiler does not take those
                                           with wgmma */
};

/* ---- as the headers have them ---- */

typedef struct HostPlace {
    uint64_t p;
    int64_t sb, st, sh;
    int32_t group, type;
} HostPlace;
typedef struct HostLeaf {
    uint64_t p;
    int64_t sb, st, sh, se;
    int32_t group, type, back, sum;
} HostLeaf;
typedef struct HostPairs {
    uint64_t cu;
    int64_t nseq, tokens, rows, plane;
    int32_t heads, pad;
    HostPlace q, k, v, y, again, dy, dq, dk, dv;
    uint64_t leaf, number, lse, delta, dleaf, part;
    int64_t blocks;
    uint64_t scores, gains;
    int64_t wide;
    int32_t head, turn;
} HostPairs;
typedef struct HostSum {
    uint64_t to;
    int32_t n, plane[PAIR_LEAVES], number;
} HostSum;
typedef struct HostLeaves { HostPairs a; HostLeaf leaf[PAIR_LEAVES]; }
    HostLeaves;
typedef struct HostSums {
    HostPairs a;
    HostLeaf leaf[PAIR_LEAVES];
    HostSum sum[PAIR_LEAVES];
} HostSums;
typedef struct HostMaps {
    _Alignas(64) unsigned char map[4][128];
    HostPairs a;
} HostMaps;
_Static_assert(sizeof(HostSums) <= 4000, "what a kernel is passed");

/* ---- the call ---- */

/* What lies in the workspace, from its beginning; -1: nothing. */
typedef struct Scratch {
    int64_t leaf, number, lse, delta, dleaf, part, y, scores, gains, d[3],
            sum[PAIR_LEAVES], bytes;
} Scratch;

typedef struct Hand {
    Ctx *c;
    Gpu *g;
    const Driver *d;
    const PairsCall *p;
    Mask *m;
    PairLeaves leaves;
    PairFirst first;
    int in[3];                          /* q, k, v */
    int key, value, heads;
    int64_t tokens, rows;
    bool packed;
    PairsShape shape;
    Scratch scratch;
    DevicePtr room;
    const PairWay *way;                 /* back, without wgmma */
    int turn;                           /* heads whose scores are written at a
                                           time */
    PairKernels *fast;                  /* wgmma's, or plain */
    const PairKernels *plain, *back;
    const Ends *left_out;
    HostPairs a;
} Hand;

/* plain: without wgmma, whatever would fit. */
Hand hand_of(Ctx *c, Gpu *g, PairPrograms **all, const PairsCall *p,
             bool plain);
/* Has the compiler refused those with wgmma, or got them wrong? */
bool goes_plain(PairPrograms *const *all);
/* Of kernels without wgmma. */
PairsShape plain_shape(const Hand *h);
HostPlace place_of(const Call *call, const View *v);
/* The step's input that the leaf reads. */
int leaf_input(const Hand *h, int leaf);
int64_t lse_bytes(const Hand *h);
/* Pieces of so many rows that sequences may have: a slot for each. */
int64_t row_slots(const Hand *h, int64_t rows);
/* Bytes of a block's memory that a kernel with wgmma takes. */
int wgmma_shared(const Hand *h, int kernel);
/* The same of a kernel of weights for each entry, of so many tokens. */
int entries_shared(const Hand *h, int own);
/* Planes of leaf k: one, or one for each of its entries. */
int leaf_entries(const Hand *h, int k);
/* Numbers of a row of scores. */
int64_t score_width(const Hand *h);

#endif
