/* emit.h -- what the files of the emitter share. emit.c holds the design. */
#ifndef FLIN_CUDA_EMIT_H
#define FLIN_CUDA_EMIT_H

#include "cuda.h"
#include "source.h"

enum { ROWS = 64, TILE_BYTES = 8192, STAGES_MAX = 4,
       SHARED_MAX = 232448, INVERSE_BYTES = 64 * 72 * 4,
       RING_BYTES = 8 * 256, MAX_FACTORS = 8,
       MAX_PUBLISHED = 48, MAX_TILES = 16, MAX_SCORES = 4, MAX_GATES = 2,
       MAX_KEYS = 8, MAX_ROTATIONS = 2,
       MAX_CHAINS = 2, MAX_CUTS = 2 * MAX_SCORES, MAX_FIRST = MAX_SCORES,
       FIRST_BYTES = 16 * 16 * 4 };

#define RANK_AXES (AXIS(AX_R) | AXIS(AX_RJ))

typedef struct Factor { Ref v; bool inverse; } Factor;

/* An operand as a product: vectors (one value a token, or a chunk), a sign,
 * and at most one core that is neither. */
typedef struct Product {
    Factor f[MAX_FACTORS];
    int n;
    bool negative;
    Ref core;
} Product;

/* A product of vectors that a stage holds for the other roles. log2: times
 * log2 e, for the exponents of a decay mask. */
typedef struct Published {
    Factor f[MAX_FACTORS];
    int n;
    bool negative, log2, token;
    bool deferred;                      /* by the ahead warpgroup */
    char name[64];
} Published;

/* A matrix of a stage: loaded, or made by the ahead warpgroup from others.
 * direct: another role reads it, or a product of the ahead warpgroup's; gated:
 * a gdot does; dotted: a deferred value does. What the ahead warpgroup alone
 * reads lends its place to what is made later. */
typedef struct Tile {
    Ref r;
    bool computed, direct, gated, dotted;
    bool scanned;                       /* needed by a mere scan */
    bool anchor;                        /* not r itself: its rows decayed by */
    int gate;                           /* a gate to the end of their block */
    uint32_t sources;                   /* of a computed one, a bit each */
} Tile;

/* The running sum of a matrix along the chunk's tokens, in float32, held by
 * the ahead warpgroup; of: what is summed. */
typedef struct Gate { Ref of; uint32_t sources; } Gate;

/* Angles that grow at one rate a column, an argument: a state, and what a
 * scan of it makes, without a place for each token. */
typedef struct Rotation { Ref scan, rate; int state; } Rotation;

/* Any other state of one axis: a sum over tokens, under a decay per token or
 * none; a place for each token of a chunk, as for a gate. */
typedef struct Chain { Ref scan; int state; uint32_t sources; } Chain;

/* A token by token matrix that a stage holds; its columns (j), or its rows,
 * times a published vector, -1: none. inverse: (1 - it)^{-1}. */
typedef struct Score { Ref root; int vector; bool rows, inverse; } Score;

/* A product of which an operand is rounded, or both; rows, columns. */
typedef struct First { Ref dot, side[2]; } First;

typedef struct Emit {
    Ctx *c;
    Refusal *no;                        /* cuda_emit_if's */
    const Plan *p;
    const Kernel *k;
    const Graph *g;
    const CudaOptions *o;
    CudaKernel *out;
    int ranks;                          /* rows a token */
    int groups, aheads;                 /* warpgroups: state, ahead */
    bool team;                          /* the two ahead share each chunk */
    int buffers;                        /* of an output */
    bool tight;                         /* the state waits for a buffer */
    bool computed_scan;                 /* a scan reads what is made ahead */
    bool paired;                        /* with another block: emit_computed.c
                                           */
    bool joint;                         /* both ahead warpgroups at each chunk:
                                           emit_joint.c */
    bool reuses, overlays;              /* shared memory: emit_reuse.c; chains
                                           lend theirs to gates */
    int row_axis;                       /* the state's, over the warpgroups */
    StateSet serial;                    /* states of two axes; the
                                           others are carried ahead */
    StateSet packed;                    /* those that are packed, too */
    uint8_t *mine, *vector;             /* computed here; by the vector warp */
    uint32_t *uses;
    Published pub[MAX_PUBLISHED];
    int npub;
    Tile tile[MAX_TILES];
    Score score[MAX_SCORES];
    int ntiles, nscores;
    bool inverse;                       /* one of the scores is inverted */
    Gate gate[MAX_GATES];
    Ref key[MAX_KEYS];                  /* a stage's values per column */
    int ngates, nkeys;
    Rotation rotation[MAX_ROTATIONS];
    Chain chain[MAX_CHAINS];
    int nrotations, nchains;
    Ref cut[MAX_CUTS];                  /* emit_first.c: rounded operands */
    First first[MAX_FIRST];
    int ncuts, nfirst;
    Buf load, vec, ahead, state, scan, store; /* the roles' bodies, */
    Buf begin, keep, both, skip, end;   /* the ahead one's before its chunks,
                                           before each of its own, of any, the
                                           rest of a mere scan's; behind them
                                           */
} Emit;

/* ---- emit_value.c: what a value is, and its text ---- */

bool is_vector(const Emit *e, Ref r);   /* one value a token, or a chunk */
bool is_token(const Emit *e, Ref r);    /* of these, one a token */
bool is_tile(const Emit *e, Ref r);     /* a matrix input, token by axis, or
                                           the same a token later */
bool is_delayed(const Emit *e, Ref r);  /* the latter */
Ref tile_input(const Emit *e, Ref tile);
Ref tile_base(const Emit *e, Ref r);    /* what is loaded, r being a rank */
bool is_compact(const Emit *e, Ref tile); /* loaded, one row a token of more */
bool is_entrywise(const Node *n);       /* element-wise, or ranks joined */
/* Of loaded tiles the address, and which of their rows are r's: as they are, or
 * else, after a comma, how far apart the tokens' are and where they begin. */
char *tile_place(const Emit *e, Ref r);
char *tile_rows(const Emit *e, Ref r);
int tile_bytes_of(const Emit *e, Ref r); /* 64 columns of it, loaded */
bool is_float(const Emit *e, Ref tile); /* loaded, in float32: two tiles of 32
                                           columns each; products take a copy */
const char *loaded_name(const Emit *e, Ref tile);
Ref summed(const Emit *e, Ref r);       /* the sum that r spreads, ends or
                                           delays; r */
bool is_matrix(const Emit *e, Ref r);   /* the same, or computed from them */
bool is_score(const Emit *e, Ref r);    /* token by token */
bool is_keyed(const Emit *e, Ref r);    /* one value a column of such */
bool has_gdot(const Emit *e, Ref r);    /* a score made of one */
Ref strip(const Graph *g, Ref r);       /* without row and col */
_Noreturn void no_place(Emit *e, Ref r, const char *why);
/* The same of a whole kernel: "no order for the steps of k0_forward". */
_Noreturn void no_room(Emit *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

void peel(Emit *e, Ref r, Product *p);
/* Publishes the product of p's factors that are (token) or are not one value
 * a token; its index, or -1 where there are none. */
int publish(Emit *e, const Product *p, bool token, bool log2);
int publish_one(Emit *e, Ref r, bool log2);
int use_tile(Emit *e, Ref r);           /* index; it will be in the stage */
int use_loaded(Emit *e, Ref r);         /* index of what r is a rank of */
int use_gated(Emit *e, Ref r);          /* the same, for a gdot */
void use_anchor(Emit *e, Ref r, int gate); /* r decayed, for a gdot */
int use_gate(Emit *e, Ref sum);         /* index; r is a cumsum */
void use_scalars(Emit *e);              /* states without axes */
int use_key(Emit *e, Ref r);            /* index; it will be in the stage */
bool is_rotation(const Emit *e, Ref r); /* such a scan */
int use_turn(Emit *e, Ref scan);        /* index */
bool is_chain(const Emit *e, Ref r);
int use_chain(Emit *e, Ref scan);       /* index */
int use_score(Emit *e, Score x);        /* index; it will be in memory */
void emit_comment(Emit *e, Buf *b);      /* the nodes, by role */

/* The loaded matrices that r is computed from, a bit each; running sums come
 * from elsewhere. */
uint32_t sources_of(Emit *e, Ref r);

int tile_axis(const Emit *e, Ref tile); /* the one that is not tokens */
int tile_count(const Emit *e, Ref tile); /* tiles of a stage that it fills */
int padded(int size);                   /* to whole tiles */

/* ---- the roles ---- */

void leave_stage(Buf *b);               /* the state: it has read all there */
void emit_loads(Emit *e);
void emit_stores(Emit *e);
void emit_vectors(Emit *e);             /* last: the others publish */
void emit_ahead(Emit *e);
void emit_serial(Emit *e);
bool emit_scan(Emit *e);                /* the state alone, if that can be */
void scan_sources(Emit *e, uint32_t sources); /* it needs these tiles */

/* ---- emit_deferred.c: values a token that come from matrices ---- */

bool is_deferred(const Emit *e, Ref r);
bool has_deferred(const Emit *e, Ref r); /* a matrix: made with one */
void use_deferred(Emit *e, Ref r);      /* its parts will be there */

/* ---- emit_delay.c: the token before ---- */

bool is_previous(const Emit *e, int state); /* an input's last row */
void emit_first_rows(Emit *e, Buf *b);  /* of delayed tiles, by the vector
                                           warp */
void end_previous(Emit *e);             /* writes such states */

/* ---- emit_keep.c: the states before a chunk, for the way back ---- */

void keep_serial(Emit *e, Buf *b);
void keep_ahead(Emit *e, Buf *b);
void keep_scalar(Emit *e, Buf *b, int state);

/* ---- emit_computed.c ---- */

bool is_half_loaded(const Emit *e, const Tile *t); /* tile `block` alone */
/* Two ahead are to share each chunk; not where that spilled. */
bool find_team(const Emit *e);

/* ---- emit_joint.c ---- */

bool can_join(const Emit *e);           /* last: all is known */
int alternates(const Emit *e);          /* chunks that are made at a time */

/* ---- emit_registers.c ---- */

/* Registers a thread. */
typedef struct Registers { int io, ahead, state; } Registers;

Registers registers_of(const Emit *e);
int registers_at_start(const Emit *e);  /* of all threads */
bool has_wide_state(const Emit *e);     /* of more than 64 columns */
/* One state warpgroup, without gates, where all else was tried. */
bool has_spilled_alone(const Emit *e);

/* ---- emit_reuse.c ---- */

/* The tile of r, made for a gdot, that what is made later reads; -1: none. */
int computed_before(const Emit *e, Ref r);

/* ---- emit_rank.c ---- */

/* The same plan where values of several ranks a token are values without, or
 * have `rows` rows a token, on AX_R, in chunks of so many tokens less; p itself
 * where there are none, or its chunks are others than Hopper's. Refuses
 * where ranks would stay. */
const Plan *plan_by_rows(Ctx *c, const Plan *p, int *rows, Refusal *no);

/* Gives everything its place; how many stages, and bytes, in e->out. Last: the
 * roles say what there is. */
void emit_layout(Emit *e, Buf *b);
int count_rings(const Emit *e);         /* values a token that are loaded */

#endif
