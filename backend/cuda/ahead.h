/* ahead.h -- what the ahead warpgroup's files share. */
#ifndef FLIN_CUDA_AHEAD_H
#define FLIN_CUDA_AHEAD_H

#include "emit.h"

/* An expression over fragments, four elements at a time (el: row el / 2,
 * column el % 2), or over single entries (scalar: row i0, column k). */
typedef struct Ahead {
    Emit *e;
    Buf *b;
    Ref order[256];                     /* operands first */
    int n;
    uint8_t *seen;
    bool made, scalar;                  /* made: a matrix, not a score */
    uint64_t row, col, one;             /* published vectors in use, by bit */
} Ahead;

void ahead_visit(Ahead *a, Ref r);
void ahead_elements(Ahead *a);
/* Loads what the elements use: rows and single ones, or columns. */
void ahead_vectors(Ahead *a, Buf *b, bool cols);

/* ---- emit_gate.c: gates per key ---- */

void find_gdots(Emit *e, Ref score);    /* their operands will be there */
void emit_sums(Emit *e, Buf *b);        /* running sums along the chunk */
void emit_keys(Emit *e, Buf *b);
void emit_gdot(Emit *e, Buf *b, Ref r);
void key_text(Ahead *a, Ref r, int el);  /* an argument per column */
void gate_text(Ahead *a, Ref r, int el); /* an entry of a sum or its last */

#endif
