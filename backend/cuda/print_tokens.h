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
/* The coordinates that number `x` of the elements has. A loop over them, left
 * open. */
void put_coords(Walk *w, const char *x, Ref r, AxisSet axes);
void open_loop(Walk *w, Ref r, AxisSet axes);
/* How many terms a sum has; it, by one thread, or by a warp's lanes; done:
 * computed for a sum alone. */
int32_t terms_of(const Walk *w, Ref r);
void put_sum(Walk *w, Ref r, bool lanes, uint8_t *done);

/* print_memory.c. The place of an axis in an order; from an element to the next
 * along one: in calls that are single rows are whole, and states dense. */
int place_in(const uint8_t *order, int rank, int ax);
const char *step_text(const Walk *w, int tensor, const uint8_t *order,
                      int rank, int d, bool dense);
/* The first element of the block's slice; an element from there on. */
const char *slice_text(const Walk *w, int tensor, const uint8_t *order,
                       int rank, AxisSet axes, bool dense);
const char *strides_text(const Walk *w, int tensor, const uint8_t *order,
                         int rank, bool dense);
/* Whether all tensors have such rows, of so many elements; this one has, is
 * there; its own head's place. */
bool are_pieces(const Walk *w, DType d, int64_t row);
const char *wide_text(const Walk *w, int tensor, DType d, int64_t row);
const char *there_text(const Walk *w, int tensor);
const char *own_head_text(const Walk *w, int tensor, const char *head);
/* Of what all slices have alike: that the first leaves it. */
const char *first_text(const Walk *w, AxisSet axes);
/* Of a result the place of the element in hand; whether the program's loop
 * stores it; all that it does; one that no loop does. */
const char *output_place(Walk *w, int output);
bool leaves_result(const Walk *w, int output);
void put_outputs(Walk *w);
void put_stored(Walk *w);
/* Keeps a value of r. */
void put_kept(Walk *w, Ref r, const char *value);
/* A value's place; of those that have two that of token `place`; token m. */
void put_declared(Walk *w, int value, const char *place);
void put_places(Walk *w, const char *place);
void put_token(Walk *w, const char *m);
/* Token m's lines; what one warp loads. */
void put_lines(Walk *w, const char *m);
void put_load_of(Walk *w);

#endif
