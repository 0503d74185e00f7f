/* tile.h -- a kernel as a list of instructions over tiles.
 *
 * A tile holds a value in canonical order, axes i and j at full capacity (the
 * chunk size), so that strides are known when compiling; a chunk of n tokens
 * uses the first n entries of i and j. Tiles are named by slots; where a slot
 * lies may change from chunk to chunk, since a state and its next value trade
 * places.
 */
#ifndef FLIN_CPU_TILE_H
#define FLIN_CPU_TILE_H

#include "cpu.h"
#include "isa.h"
#include "pool.h"

enum { MAX_DIMS = NAXES, STRIP = 2048, OPERANDS = 9 };

/* Gates no further apart than this factor about their middle, with an error
 * of 1e-6 in the exponent. */
#define CLOSE_GATES 40.0f

/* A loop: size times, or size * n times if it counts tokens. st: how far
 * each step moves in y and the operands. At most one for each axis. */
typedef struct Dim {
    int32_t size;
    bool tokens;
    int32_t st[5];
} Dim;

typedef struct Loop { int n; Dim d[MAX_DIMS]; } Loop;

static inline int32_t dim_count(const Dim *d, int n)
{
    return d->tokens ? d->size * n : d->size;
}

enum Code {
    I_CONST,        /* y = num */
    I_ENTRIES,      /* unit, count: each by its number */
    I_LOAD,         /* y = input `index` */
    I_FETCH,        /* y = stored value of node `index` */
    I_KEEP,         /* stored value of node `index` = x[0] */
    I_OUT,          /* output `index` = x[0] */
    I_ELEM,         /* y = op(x...) in strips; `chain` of them together */
    I_MOVE,         /* y = x[0], loops over both */
    I_PAIRS,        /* rot90, dup, pairsum */
    I_SUM,
    I_MOST,         /* the largest */
    I_DOT,
    I_SCAN,         /* cumsum, scan, maxscan */
    I_MATSCAN,      /* by matrices */
    I_DELAY,
    I_DMASK,
    I_GDOT,
    I_SOLVE, I_GSOLVE
};

/* How I_DOT computes: a matrix product for each turn of the loop; sums of
 * rows; products added along lanes; or element by element. */
enum DotKind { DOT_GEMM, DOT_ROWS, DOT_LANES, DOT_ANY };

/* What I_SCAN does: sums, from zero on or from a state; sums under gates; what
 * its operation says of each token. */
enum ScanKind { SCAN_RUNNING, SCAN_SUM, SCAN_GATED, SCAN_ANY };

/* How I_GDOT contracts: keys, columns, rows; or element by element. */
enum GdotKind { GDOT_KEYS, GDOT_COLS, GDOT_ROWS, GDOT_ANY };

/* What a sum modulo 2 pi adds up, step by step: numbers, inputs (x[0]: which
 * leaf), and element-wise operations on earlier steps. */
enum { INCREMENT_STEPS = 24, INCREMENT_LEAVES = 4 };

typedef struct IncrementStep {
    uint8_t op;
    int8_t x[3];
    double num;
} IncrementStep;

typedef struct Increment {
    int n;
    IncrementStep step[INCREMENT_STEPS];
} Increment;

typedef struct Instr {
    uint8_t code, op, flags, kind;
    uint8_t tri;                /* of a matrix product, see isa.h */
    bool mask_upper;            /* zero what lies above the diagonal */
    bool adds;                  /* I_DOT: turns add up */
    bool low;                   /* I_SCAN: what the sums lose in float */
    uint8_t into;               /* I_DOT: GEMM_ADD, _SUB: on top of x[2] */
    uint16_t chain;
    uint8_t arity;              /* I_ELEM */
    uint8_t part;               /* of what joins: the operand */
    int16_t wide;               /* I_SCAN: carried in double; -1: no */
    uint16_t local;             /* I_ELEM: y and x that are a strip long */
    int index;
    /* Slots; -1: absent. I_GDOT may have, behind its a b c d, the values
     * a e^c, b e^(l - d) and l, which make it a plain product where gates lie
     * close, and then what c and d lose in float; I_DMASK behind its two,
     * too, and I_GSOLVE behind its four. I_SCAN may have the leaves of its
     * increment behind its three. */
    int y, x[OPERANDS];
    const Increment *increment;
    double num;
    Loop loop;
    Dim m, n, k;                /* I_DOT; I_ELEM: m is the leading axis */
    Dim all;                    /* of y, to clear it */
    int32_t row_rank, col_rank; /* rows a token, columns a token */
    int32_t cols;               /* elements behind a row (or a column) */
    int32_t from, to;           /* I_PAIRS, I_MOVE: a place; a length;
                                   I_MATSCAN: how many a row */
} Instr;

/* A state that a kernel carries: its tile, and what it becomes. When a chunk
 * ends the two trade places, after `copy` has filled the second one unless
 * the program has. One that is carried in double has its tile made anew. */
typedef struct Carry {
    int state, slot, next;
    bool copied, wrap;                  /* wrap: its tile is modulo 2 pi */
    int16_t wide;                       /* its place among the doubles, -1 */
    int32_t floats;
    Instr copy;
} Carry;

typedef struct Slot {
    int64_t at;                         /* floats into the arena */
    int32_t floats;
    int first, last;                    /* instructions of the body */
    bool pinned, local;                 /* kept; a strip long */
} Slot;

typedef struct List { Instr *in; int n, cap; } List;

typedef struct TileKernel {
    KernelKind kind;
    List pre, body;                     /* once a head, once a chunk */
    Carry carry[MAX_STATES];
    int ncarry;
    Slot *slot;
    int nslots, cap_slots;
    int64_t floats, scratch;            /* of the tiles, of the scratch */
    int64_t kept;                       /* of the tiles: pinned, they lead */
    int32_t wide_at[MAX_STATES], nwide;
} TileKernel;

struct CpuProgram {
    const Plan *plan;
    const Isa *isa;
    int chunk;                          /* tokens a tile holds */
    const int32_t (*ext)[NAXES];        /* per node: how long its axes are */
    TileKernel *kernel;
    int64_t *stored_at;                 /* per node, if it is stored */
    int64_t stored_floats;              /* of a chunk and head */
    int loads[MAX_INPUTS];              /* kernels up to the first one that
                                           reads the argument; 0: none does */
    Pool *pool;
};

/* One worker at one chunk. */
typedef struct Work {
    const CpuProgram *p;
    const TileKernel *k;
    const Call *call;
    float **tile;               /* by slot */
    float *tiles;               /* where those that are not kept lie */
    float *scratch;
    double *wide;
    float *stored;              /* this chunk's part */
    int n;                      /* tokens in hand */
    const Seq *seq;
    int64_t iseq, token;        /* token: the chunk's first */
    int head;
    int64_t bytes;
} Work;

/* lower.c: instructions from nodes, their slots left open. */
typedef struct Lower {
    Ctx *c;
    const Graph *g;
    const int32_t (*ext)[NAXES];        /* extents of each node's axes */
    int chunk;
    const uint8_t *lower;       /* nodes that are zero above the diagonal */
} Lower;

int32_t tile_floats(const Lower *l, Ref r);
Dim tile_leading(const Lower *l, Ref r);
/* Whether r lies in memory as its operand does. */
bool tile_alias(const Lower *l, Ref r);
/* part: 0, and 1 for cat's second operand. */
Instr lower_node(const Lower *l, Ref r, int part);
/* r = a e^b, or a e^(b - c): x holds the values, c is 0 if there is none. */
Instr lower_fused(const Lower *l, Ref r, const Ref x[3]);
/* The axes that operand p must have; those it lacks are filled in first. */
AxisSet operand_axes(const Lower *l, Ref r, int p);
Instr lower_spread(const Lower *l, Ref like, AxisSet axes, Ref from,
                   int32_t *floats);
int64_t instr_scratch(const Lower *l, const Instr *in);
int64_t gdot_scratch(const Instr *in, int chunk);
int64_t solve_scratch(const Instr *in, int chunk);
int64_t gsolve_scratch(const Instr *in, int chunk);

/* run.c, gdot.c, solve.c: execution. */
void run_list(Work *w, const Instr *in, int n);
void run_gdot(const Work *w, const Instr *in);
void run_solve(const Work *w, const Instr *in);
void run_gsolve(const Work *w, const Instr *in);
void cut_rows(const Work *w, const Instr *in, int from, int to, float *y);

/* angle.c: the increments of the n values of the row at `at` of the leaves;
 * scratch: n doubles a step. */
const double *run_increment(const Increment *inc, const float *const *leaf,
                            ptrdiff_t at, int n, double *scratch);

/* move.c: between tensors and tiles. */
void load_input(Work *w, int input, int slot);
void store_output(Work *w, int output, const float *tile);
void load_state(Work *w, const Carry *c, float *tile);
void store_state(Work *w, const Carry *c, const float *tile, int64_t token);
void narrow_state(const Work *w, const Carry *c, float *tile);

/* Over all turns of a loop but its last `inner` dims. */
typedef struct Turn {
    const Loop *loop;
    int nd;
    int32_t at[MAX_DIMS], count[MAX_DIMS];
    int64_t off[5];
} Turn;

static inline Turn turn_first(const Loop *l, int inner, int n)
{
    Turn t;

    t.loop = l;
    t.nd = l->n > inner ? l->n - inner : 0;
    for (int d = 0; d < l->n; d++) {
        t.at[d] = 0;
        t.count[d] = dim_count(&l->d[d], n);
    }
    for (int i = 0; i < 5; i++)
        t.off[i] = 0;
    return t;
}

static inline bool turn_next(Turn *t)
{
    for (int d = t->nd - 1; d >= 0; d--) {
        const int32_t *st = t->loop->d[d].st;
        if (++t->at[d] < t->count[d]) {
            for (int i = 0; i < 5; i++)
                t->off[i] += st[i];
            return true;
        }
        for (int i = 0; i < 5; i++)
            t->off[i] -= (int64_t)st[i] * (t->at[d] - 1);
        t->at[d] = 0;
    }
    return false;
}

#endif
