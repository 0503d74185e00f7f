/* pebble.h -- the red-blue pebble game (Hong, Kung, STOC 1981): schedules
 * replayed move by move, their transfers counted.
 *
 * A vertex is a value. A red pebble on it says that fast memory holds it, a
 * blue one that slow memory does. Moves: load (blue: a red one too), store
 * (red: a blue one too), compute (all operands red: a red one), drop (the red
 * one goes). Fast memory holds `red` words; a vertex takes as many as it has
 * elements. What was dropped may be computed again. A move that the rules
 * forbid fails. Vertices carry numbers, so that what a schedule leaves in slow
 * memory can be compared with what it should have computed.
 */
#ifndef FLIN_PEBBLE_H
#define FLIN_PEBBLE_H

#include "plan.h"

typedef uint32_t Vertex;

typedef struct Game {
    Ctx *ctx;
    int64_t red;                        /* words of fast memory */
    int64_t now, peak;                  /* words that are red */
    int64_t loads, stores;              /* words moved */
    struct Pebble *v;
    uint32_t len, cap;
} Game;

Game *game_new(Ctx *c, int64_t red);
/* A value in slow memory, nowhere in fast memory. */
Vertex game_input(Game *g, int64_t words, double value);
void game_load(Game *g, Vertex v);
void game_store(Game *g, Vertex v);
void game_drop(Game *g, Vertex v);
Vertex game_compute(Game *g, int64_t words, double value, int n,
                    const Vertex *operand);
/* The same vertex again. */
void game_recompute(Game *g, Vertex v, int n, const Vertex *operand);
double game_value(const Game *g, Vertex v);
bool game_is_red(const Game *g, Vertex v);
bool game_is_blue(const Game *g, Vertex v);

/* ---- attention's backward pass (arXiv:2410.09397) ----
 *
 * From Q, K, V, dO (n x d), the rows' logsumexp L and D = sum(dO * O):
 *     S = Q K^T    P = exp(S - L)    dP = dO V^T    dS = P * (dP - D)
 *     dV = P^T dO    dK = dS^T Q    dQ = dS K
 * over the pairs with |i - j| < window. Two ways, each in the shape that moves
 * fewest words:
 *
 * BLOCKS is FlashAttention's way: nothing n x n leaves fast memory. For dK and
 * dV a part of the columns (k, v, dk, dv) stays while rows (q, dO) stream by,
 * then for dQ a part of the rows (q, dO, dq) while columns (k, v) stream by:
 * 8 + 6 times n^2 d^2 / M. Where it is less, one pass carries dQ along, for
 * 16 n^2 d^2 / M.
 *
 * TILES materialises P and dS (n x n) in slow memory; each of the five
 * products has all of fast memory for its tiles. From M = d^2 on all of d fits
 * beside a tile: 6 n^2 + 5 n^2 d^2 / M. Far below, tiles are sqrt(M) x
 * sqrt(M): 10 n^2 d / sqrt(M) + 3 n^2.
 *
 * Beside a part lie a row of d words and what its P and dP take; a row has L
 * and D. Leaving n and whole rows out of account, BLOCKS moves
 *     (2d + 2) (4d + 2) / m + 2d (3d + 4) / m
 * words a pair, m = M - d - 2, and TILES
 *     6 + 2 (d + 1) d / (m - 2) + 3 d^2 / m.
 * But for that 2 in the second they are equal at M = 3/2 (d + 4/3)^2: at
 * M = c d^2 with c = 3/2 for large d, and (1 + 4 / 3d)^2 times that for all. */
typedef enum AttentionWay { BLOCKS, TILES } AttentionWay;

typedef struct Attention {
    AttentionWay way;
    int64_t n, d, window, red;
} Attention;

typedef struct AttentionCount {
    int64_t loads, stores, peak;        /* peak: of a game that was played */
    double error;                       /* largest, of the gradients */
} AttentionCount;

/* The least fast memory in which the way works. */
int64_t attention_least(AttentionWay way, int64_t d);

/* About how many steps counting takes. */
double attention_steps(const Attention *a);

/* Counts what the schedule moves, in closed form. With `play`, every
 * multiplication is also a move of a game on random numbers, for small n, and
 * the game must move as much. Fails where fast memory is less than
 * attention_least. */
void attention_run(Ctx *c, const Attention *a, bool play,
                   AttentionCount *count);

/* ---- plans ---- */

typedef struct PlanCount {
    int64_t *loads, *stores;            /* elements per kernel of the plan */
    int64_t once;                       /* of them: states at both ends, and
                                           values without a token */
    int64_t peak;                       /* elements held at a time */
} PlanCount;

/* Replays a plan over `chunks` chunks of one head, tile by tile: each kernel
 * loads what it reads and does not compute, each tile once a chunk, stores
 * what later kernels read, results and final states, and drops each tile
 * after its last use. Counts elements; fails where the plan computes from
 * what is not there. red: words of fast memory, 0: as much as it takes. */
void plan_replay(const Plan *p, int chunks, int64_t red, PlanCount *count);

#endif
