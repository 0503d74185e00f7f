/* print_tokens.h -- what prints kernels whose warps all do the same. */
#ifndef FLIN_CUDA_PRINT_TOKENS_H
#define FLIN_CUDA_PRINT_TOKENS_H

#include "print_parts.h"

enum { LANES = 32 };

typedef struct Walk {
    Print p;
    const Schedule *s;
    const Graph *g;
    Ctx *c;
    Buf *b;
    const StoredPlaces *stored;
    const KInst *k;                     /* in hand */
} Walk;

/* print_terms.c. A coordinate's name; what a value's elements are. */
const char *token_coord(const Walk *w, int ax);
DType token_type(const Walk *w, const KValue *v);
/* The place of an element, where axis `skip` is at `other`. */
const char *token_index(const Walk *w, const KSpot *s, int skip,
                        const char *other);
const char *token_element(const Walk *w, Ref r);
/* What r is, as a number of its own; what a sum adds up. */
void put_token_value(Walk *w, Ref r);
const char *token_term(const Walk *w, Ref r);
/* Whether r adds up, or finds the largest of, what it does itself: by one
 * thread, or by a warp's lanes, as it wants to: those have what lies side by
 * side, or few. done: what has been computed for a sum alone. */
bool is_sum(const Walk *w, Ref r);
bool wants_lanes(const Walk *w, Ref r);
void put_sum(Walk *w, Ref r, bool lanes, uint8_t *done);
/* How many elements there are of those axes: of a chunk's first axis as many as
 * it has tokens. The coordinates that number `x` of them has; those that have
 * no token go on with `next`. A loop over them, left open. */
const char *count_text(const Walk *w, Ref r, AxisSet axes);
void put_coords(Walk *w, const char *x, Ref r, AxisSet axes, const char *next);
void open_loop(Walk *w, Ref r, AxisSet axes);

/* print_flat.c: what has an instruction of its own, of a chunk. */
void put_product(Walk *w);
void put_under_decays(Walk *w);
void put_along(Walk *w);
void put_solve(Walk *w);

#endif
