/* ahead.h -- what the ahead warpgroup's files share. */
#ifndef FLIN_CUDA_AHEAD_H
#define FLIN_CUDA_AHEAD_H

#include "emit.h"

/* An expression over fragments, four elements at a time (el: row el / 2,
 * column el % 2); over `line` neighbours in row i0 (el: column k + el); or
 * over single entries of column k (scalar). step: of a fragment, columns k0 and
 * k0 + 1 alone are read; slim: a tile goes by 16 columns, s of 4. */
typedef struct Ahead {
    Emit *e;
    Buf *b;
    Ref order[256];                     /* operands first */
    int n;
    uint8_t *seen;
    bool computed, scalar, step, slim;  /* computed: a matrix, not a score */
    bool again;                         /* from what is made for gdots, too */
    int line;
    uint64_t row, col, one;             /* published vectors in use, by bit */
    Ref mask;                           /* worked out already: emit_mask.c */
} Ahead;

void ahead_visit(Ahead *a, Ref r);
void ahead_elements(Ahead *a);
/* Loads what the elements use: rows and single ones, or columns. */
void ahead_vectors(Ahead *a, Buf *b, bool cols);
int ahead_count(const Ahead *a);        /* of elements */

/* ---- emit_gate.c: gates per key ---- */

void find_gdots(Emit *e, Ref score);    /* their operands will be there */
/* What runs along the chunk: sums of gates, states of one axis. */
void emit_sums(Emit *e, Buf *b, Buf *gates);
void emit_keys(Emit *e, Buf *b);
void emit_anchors(Emit *e, Buf *b);     /* right operands of gdots, decayed */
/* The gdots of all scores, then the scores; those to be inverted go to `last`,
 * their products stay in registers until then. */
void emit_gdots(Emit *e, Buf *b, Buf *last);

/* ---- emit_joint.c: two warpgroups at one chunk ---- */

const char *ahead_sync(const Emit *e);  /* all that are at a chunk meet */
const char *tile_loop(const Emit *e);   /* a loop's head, over its own tiles t;
                                           a format: of how many */
int lane_columns(const Emit *e, int width); /* of a matrix, summed by a lane */
void begin_team(const Emit *e, Buf *b, int team); /* what one alone does */
void end_team(const Emit *e, Buf *b);

/* ---- emit_reuse.c ---- */

void find_reuse(Emit *e);               /* once the gdots are known */
void find_overlay(Emit *e);             /* once all is */
/* Whether r is worked out from a chain, or else from a gate's sums. */
bool reads_sum(const Emit *e, Ref r, bool chain);

/* ---- emit_first.c: the first rows of a sequence ---- */

void find_first(Emit *e);               /* once the scores are known */
int cut_of(const Emit *e, Ref r);       /* index, -1: nothing is cut off */
int first_of(const Emit *e, Ref dot);   /* index, -1 */
void emit_diagonals(Emit *e, Buf *b);   /* before the matrices are made: for */
void emit_cuts(Emit *e, Buf *b);        /* gdots, for other products; */
void emit_first(Emit *e, Buf *b);       /* after, and to a product */
void add_first(Emit *e, Buf *b, Ref dot);

/* ---- emit_rotation.c: angles that grow at one rate ---- */

void begin_rotations(Emit *e);          /* before the chunks, and behind them */
void advance_rotations(Emit *e, Buf *b); /* for the chunk after */
void turn_pair(Ahead *a, Ref r);        /* the dup of an angle */
void turn_text(Ahead *a, Ref r, int el);
bool is_rotated(const Ahead *a, const Node *n); /* of an angle in few turns */

/* ---- emit_chain.c: states of one axis ---- */

void begin_chains(Emit *e);             /* before the chunks, and behind them */
void one_chain(Emit *e, Buf *b, int i);
int ahead_tensor(Emit *e, Ref r, CudaArg arg); /* one more argument */
/* Where, and by which of a head's blocks, a state is stored that all have. */
const char *ends_here(const Emit *e);
CudaArg vector_arg(Emit *e, Ref r, int *bytes); /* of its type; an element's */
/* Opens a loop over 16 rows a warp, its text repeated so often, and their
 * elements of r, lines of them. */
void ahead_line(Ahead *a, Buf *b, const char *often, Ref r);

void key_text(Ahead *a, Ref r, int el);  /* an argument per column */
void gate_pair(Ahead *a, Ref r);         /* an entry of a sum or its last: */
void gate_text(Ahead *a, Ref r, int el); /* loads two columns, names one */
/* ---- emit_deferred.c ---- */

/* Dots first; then, for all, what is worked out of them. */
void emit_deferred(Emit *e, Buf *dots, Buf *rest);

/* x if r is x sigmoid(x), x loaded and r to be rounded; 0: it is not. */
Ref swish_of(const Ahead *a, Ref r);
bool is_there(const Ahead *a, Ref r);   /* read, though it was made */

/* ---- emit_mask.c ---- */

/* Whether the mask has the element; what it decays by. */
char *below(Ahead *a, const Node *mask, int el);
char *mask_decay(Ahead *a, const Node *mask, int el);
bool masked_product(const Emit *e, const Node *n, Ref *x, Ref *mask);
Ref early_mask(const Ahead *a, const Score *s); /* 0: with the product */
void emit_decays(Ahead *a);             /* of its mask: decay, kept */

/* ---- emit_computed.c ---- */

/* Expressions over matrices, tile by tile, with `first` before the columns of
 * a tile and `rest` behind. */
void ahead_tiles(Ahead *a, Buf *b, int tiles, const Buf *first,
                 const Buf *rest);
enum { EARLY, LATE, SCANNED };          /* for gdots; not; what a scan needs */
void make_matrices(Emit *e, Buf *b, int which);
void find_pair(Emit *e);                /* once all tiles are known */
void emit_remote(Emit *e, Buf *b, bool scan); /* of a pair, to the other */
const char *remote_wait(void);          /* until all tiles are there */

/* ---- emit_ahead.c ---- */

bool has_col(const Emit *e, Ref r);
char *vector_name(Ahead *a, Ref r, bool col, int el, bool log2);
/* Opens a loop over a score's columns, eight (n) at a time. */
void score_columns(Ahead *a, Buf *b, const char *first);
/* The rest of a score, its products being there. */
void finish_score(Emit *e, Buf *b, int score);

#endif
