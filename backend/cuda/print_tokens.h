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
    bool dealt;                         /* rows are dealt over lanes: element j
                                           of a thread's */
} Walk;

/* print_terms.c. A coordinate's name; what a value's elements are. */
const char *token_coord(const Walk *w, int ax);
DType token_type(const Walk *w, const KValue *v);
/* The place of an element, where axis `skip` is at `other`. */
const char *token_index(const Walk *w, const KSpot *s, int skip,
                        const char *other);
const char *token_element(const Walk *w, Ref r);
/* The same of a sum of gates, of which differences are taken: as exact as it
 * lies there. */
const char *exact_element(const Walk *w, Ref r);
/* Whether threads have rows of it dealt over lanes; in how many registers. */
bool is_dealt_line(const Walk *w, Ref r);
int dealt_count(const Walk *w);
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

/* print_regtile.c. Where the tile of thread `of` lies; a loop over a tile, left
 * open; what stands before the loops of the program in hand, such a loop, in
 * rows and in these columns, and a value there; what warps have added up, and
 * the instruction that does. */
void put_regtile(Walk *w, const char *of);
void open_regtile(Walk *w);
void put_before_loop(Walk *w);
void open_tile(Walk *w);
void put_tile_value(Walk *w, Ref r, uint8_t *done);
void put_whole(Walk *w, Ref r);
void put_partial(Walk *w);

/* print_programs.c. The program in hand; what is kept that no program keeps. */
void put_token_program(Walk *w);
void put_kept_value(Walk *w);

/* print_memory.c. What block `of` has to do, in a call that is single. */
void put_single_item(Walk *w, const char *of);
/* The place of an axis in an order; from an element to the next
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
void put_result(Walk *w);
/* Keeps a value of r; zeros where the chunk has no tokens: rows, and columns of
 * scores, which products of kernels behind take as they are. */
void put_kept(Walk *w, Ref r, const char *value);
void put_no_tokens(Walk *w, Ref r);
/* A value's place; of those that have two that of token `place`; where kernels
 * keep what is of the token, or chunk, at `at`; token m. */
void put_declared(Walk *w, int value, const char *place);
void put_places(Walk *w, const char *place);
void put_stored(Walk *w);
void put_token(Walk *w, const char *m);
/* Token m's lines; what one warp loads, or all do of a chunk. */
void put_lines(Walk *w, const char *m);
void put_load_of(Walk *w);
void put_chunk_load(Walk *w);

/* print_flat.c: what has an instruction of its own, of a chunk. */
void put_product(Walk *w);
void put_under_decays(Walk *w);
void put_along(Walk *w);
void put_solve(Walk *w);

#endif
