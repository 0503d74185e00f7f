/* print_tokens.h -- what prints kernels of single tokens. */
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
    const int32_t (*ext)[NAXES];
    const StoredPlaces *stored;
    const uint8_t *stored16;
    const KInst *k;                     /* in hand */
} Walk;

/* Where a node's elements lie: in a value, or at places of it. */
typedef struct Spot { int value; int32_t at, st[NAXES]; } Spot;

/* print_terms.c. A coordinate's name; how many the block has of an axis of r,
 * and of some. */
const char *token_coord(const Walk *w, int ax);
int32_t token_extent(const Walk *w, Ref r, int ax);
int32_t token_count(const Walk *w, Ref r, AxisSet axes);
DType token_type(const Walk *w, const KValue *v);
Spot token_spot(const Walk *w, Ref r);
/* The place of an element, where axis `skip` is at `other`. */
const char *token_index(const Walk *w, const Spot *s, int skip,
                        const char *other);
const char *token_element(const Walk *w, Ref r);
/* What r is, as a number of its own; what a sum adds up. */
void put_token_value(Walk *w, Ref r);
const char *token_term(const Walk *w, Ref r);

#endif
