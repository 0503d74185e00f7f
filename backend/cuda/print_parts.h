/* print_parts.h -- what the files share that print instructions. */
#ifndef FLIN_CUDA_PRINT_PARTS_H
#define FLIN_CUDA_PRINT_PARTS_H

#include "print.h"
#include "../../compiler/schedule/tails.h"

enum { GROUP_THREADS = 128 };

typedef struct Print {
    const Schedule *s;
    const CudaOptions *o;
    const StoredPlaces *stored;
    CudaKernel *k;
    Ctx *c;
    Buf *b;
    bool fence_due;                     /* for what is written of tiles */
    int at, fenced;                     /* of an iteration of a role's loop: the
                                           instruction in hand; the last to
                                           fence, whatever the chunk. NOTHING:
                                           none */
    bool deep;                          /* of what is below -8, too */
    bool lean;                          /* in iterations for the states alone */
    bool tails;                         /* while who loads is to clear what
                                           comes */
    bool first;                         /* in a sequence's first, whose tiles
                                           have rests */
    bool beside;                        /* while products are under way */
    const KInst *found;                 /* a program whose columns' vectors are
                                           in registers; NULL: none */
    bool sums;                          /* shares of results are added up in
                                           registers */
    const char *next;                   /* in an iteration of a vector role: the
                                           chunk of its next */
    bool asks;                          /* in which it asks for later chunks */
    bool slots;                         /* an iteration of a loop begins with
                                           the places of its rings' slots */
    KRole role;                         /* whose iteration it is, then */
    uint32_t waited[2], posted[2];      /* what the instruction in hand has
                                           printed, by buffers: of those that
                                           are full; that are empty */
} Print;

/* The form of that kind that the kernel is made of; whether what it asks for
 * goes on until it is waited for. */
static inline bool is_waited(const Print *p, FormKind kind)
{
    return p->s->target->form[kind]->waited;
}

/* What the role does with each of its rings: before its loop it begins; where
 * the loop's iteration ends it goes on, in an expression; it goes to the use
 * that the counter has come to. counter: of those that go by it, "it" or "own";
 * NULL: of all. */
typedef enum RingStep { RING_BEGINS, RING_GOES_ON, RING_GOES_TO } RingStep;
void put_rings(Print *p, KRole role, const char *counter, RingStep step);

const char *element_type(DType d);
/* Two neighbours of a tile. */
static inline const char *two_type(const Print *p)
{
    return p->s->tile == F32 ? "Two" : "u32";
}
/* A state as it is found; a result as it is left: for good, or to be summed
 * over those that share it. */
DType result_type(const Print *p, CudaArgKind kind, int i);
/* The number of the tensor among those that the launch passes. */
int result_tensor(Print *p, CudaArgKind kind, int i);
int tensor_for(Print *p, CudaArgKind kind, int index, DType d);
const char *number_name(Print *p, Ref r);
/* r of its operands, of vectors the part of that name. */
void elementwise_text(Print *p, Buf *b, Ref r, const char *part);
bool is_token_vector(const Print *p, Ref r);
/* An operand as one of the two tokens' number, ".a" or ".b". */
const char *part_text(Print *p, Ref r, const char *part);
/* Number `at` of a vector in memory: an input, or kept by kernels before. */
const char *vector_text(Print *p, Ref r, const char *at);
/* The block's slice of a vector that kernels keep, for who takes it entry by
 * entry as before_at does. */
const char *found_vector(Print *p, Ref r, int axis);
/* Row or column `at` of the block's slice among all of the axis. */
const char *sliced_index(Print *p, int axis, int at);
/* Of a cluster which of its two blocks this one is. */
const char *half_text(const Print *p);
/* What all slices have alike is left by the first. */
const char *once_text(const Print *p, Ref r);
const KValue *value_at(const Print *p, int v);
static inline const KBuffer *buffer_of(const Print *p, const KValue *v)
{
    return &p->s->buffer[v->buffer];
}
/* Waits for, or tells of, each buffer of the set. */
void each_bit(Print *p, const KInst *k, uint32_t set, bool empty,
              void put(Print *, int, int, bool));
/* The address of a value in shared memory. */
const char *place(Print *p, const KValue *v);
/* The place of a vector, or number, that kernels keep for one another. */
const char *kept_place(Print *p, Ref r);
const char *fragment_name(Print *p, Ref r);
/* Whether a vector runs along the rows of the program's space, by the name
 * that it has as operand o. */
bool runs_along_rows(const Print *p, const KInst *k, Ref o);
/* The element at (row half h, pair m, entry e) of operand o. */
const char *element_of(Print *p, const KInst *k, Ref o);
/* What a program that goes on from sums finds in an iteration of its loop, not
 * before it; its element, or that of a matrix in memory: else NULL. */
bool is_found_by_steps(const Print *p, const KInst *k, const KValue *v);
const char *found_element(Print *p, const KInst *k, Ref o);
/* Whether what a part of the program finds in tiles is read while the one
 * before is computed. */
bool loads_ahead(const Print *p, const KInst *k);
/* Whether it finds a vector along the columns in its loop, two at a time. */
bool is_found_by_columns(const Print *p, const KInst *k, const KValue *v);
/* Whether pairs of the program's columns have an entry of the vector each. */
bool is_spread(const Print *p, const KInst *k, const KValue *v);
const char *spread_name(const Print *p, const KInst *k, const KValue *v);
/* Whether the program has such a vector as angles within half a turn, and not
 * otherwise: it finds them so. */
bool is_wrapped_alone(const Print *p, const KInst *k, Ref r);
/* Whether it finds the matrix in 16 bits, a tensor's; a state's, kept. */
bool is_found_raw(const Print *p, const KInst *k, const KValue *v);
bool is_found_whole(const Print *p, const KInst *k, const KValue *v);
bool is_found_of_state(const Print *p, const KInst *k, const KValue *v);
/* Whether the node's value at a column is made of its operand's at both columns
 * of a pair; whether the program goes through its registers by pairs; the phase
 * of a node of it. */
bool crosses(const Print *p, const KInst *k, Ref r);
bool goes_by_pairs(const Print *p, const KInst *k);
int pair_phase(const Print *p, const KInst *k, Ref r);

/* Whether a tile's last piece has columns that are another slice's; where the
 * block's own end, in memory. */
bool is_cut_off(const Print *p, const KValue *v);
const char *columns_end(Print *p, int axis);
/* Of an axis, all slices of it, as it lies in memory. */
int full_extent(const Print *p, int axis);
/* From row to row of matrices of such columns that kernels keep. */
int kept_pitch(const Print *p, int axis);
/* Where an axis is longer than it is in memory: whether row or column `at` of
 * the block is none of the zeros behind its end, else NULL; that end, else 0,
 * which the texts of schedule.cuh take so. */
const char *inside_text(Print *p, int axis, const char *at);
int padded_end(const Print *p, int axis);
/* Of columns that begin with those of the block's slice and the warpgroup's
 * share of so many: another operand that says how far the first of them is from
 * the end, with a comma before it, or "". */
const char *end_text(Print *p, int axis, int share);
/* How many rows or columns of the axis the block has that are none of those. */
const char *inside_extent(Print *p, int axis);
/* Where what the program leaves of r is no such zero, if it has a mask; NULL:
 * it has none. */
const char *masked_text(Print *p, const KInst *k, Ref r);
/* The first of a role's warps, of matrices. */
int first_warp(const Schedule *s, KRole role);
/* The chunk that a walk comes to at its iteration `iteration`; no earlier one
 * than its first, of whatever a role asks for ahead. */
const char *walked_text(Print *p, const char *use);
/* The role's warps meet. */
void put_sync(Print *p, KRole role);
/* How many rows of the program's space a lane has: two of each piece. */
int thread_rows(const KInst *k);
/* What counts the iterations of a loop that use the buffer. */
const char *count_name(const Print *p, int buffer);
/* By which count warps, or groups, of a role take iterations in turn: one that
 * a ring of theirs has, over all that a block walks. So none is ahead of the
 * others by more than the ring, and a barrier's parity says which use it is. */
const char *turn_counter(const Schedule *s, KRole role);
/* The barrier of a buffer's slot at that use: that it is full, or empty;
 * waits for it; tells it by every lane. */
const char *barrier(Print *p, int buffer, int use, bool empty);
void put_wait(Print *p, int buffer, int use, bool empty);
void put_post(Print *p, int buffer, int use, bool empty);
void put_release(Print *p, const KInst *k);
/* What is written of tiles so far is there for products and the copy engine of
 * whoever is told of it next. */
void put_fence(Print *p);
bool is_fenced_by_store(const Print *p, const KValue *v);
/* The instruction's waits for what is full. */
void put_waits(Print *p, const KInst *k);
/* Of a vector over an axis: what a lane of a vector role has. */
static inline int lane_entries(int size) { return (size + 31) / 32; }

/* Columns that a warpgroup has in hand of the program's space. */
static inline int map_share(const Print *p, const KInst *k)
{
    return share_of(p->s, k->role, k->ncol) / (k->parts ? k->parts : 1);
}

/* Rows of it; the first of them, to be added to. */
static inline int map_rows(const Print *p, const KInst *k)
{
    return rows_of_group(p->s, k->role, k->nrow);
}
const char *row0_text(const Print *p, const KInst *k);

static inline bool is_scores(const KInst *k)
{
    return k->row == AX_I && k->col == AX_J;
}

/* ---- print_tensor.c: sums of products in tensor memory ---- */

/* Of the block: barriers that say that a warpgroup's products have ended; the
 * columns that it asks for, and gives back when all roles are through. Of a
 * role of matrices what its warpgroup has of them. Nothing, where sums are in
 * registers. */
void put_tensor_barriers(Print *p);
void put_tensor_alloc(Print *p);
void put_tensor_free(Print *p);
void put_tensor_of(Print *p, KRole role);
/* Column `at` of a fragment's. */
const char *tensor_place_of(Print *p, const KValue *v, int at);
/* Before a role's warps meet, and after: products may be asked for then. */
void put_tensor_fence(Print *p, bool after);
/* Before a product: what it adds to is there, if it is not yet; warps meet, if
 * that is written, or they have not met behind the last products. */
void put_tensor_begin(Print *p, const KInst *k);
/* Products end; what they leave for others is read. */
void put_tensor_end(Print *p, const KInst *settle);

/* ---- print_iterations.c: iterations of a walk's loop ---- */

typedef void PutInst(Print *p, const KInst *k);
/* What the role leaves to the next iteration: before the loop; in it, of the
 * iteration before; behind it. */
/* Of an iteration that begins, until `slots` is no more. */
void put_slots(Print *p, KRole role);
void put_deferred(Print *p, KRole role, PutInst put);
void put_deferred_before(Print *p, const KInst *k);
void put_last_deferred(Print *p, KRole role);
/* The role's instructions in a lean iteration; whether those make the value. */
void put_lean_insts(Print *p, KRole role, PutInst put);
/* Of its loads those that are so far behind. */
void put_lean_loads(Print *p, int lag, PutInst put);
bool is_computed_lean(const Print *p, int value);

/* ---- print_moves.c: loads and stores ---- */

void put_load(Print *p, const KInst *k);
/* Loads of a chunk that ends early, those that are `lag` behind. */
void put_tails(Print *p, int lag, PutInst put);
void put_heads(Print *p);
void put_cleared(Print *p, const KInst *k);
void put_store(Print *p, const KInst *k);
/* By the matrix role. */
void put_share(Print *p, const KInst *k);

/* ---- print_map.c: element-wise programs ---- */

void put_map(Print *p, const KInst *k);
void put_early(Print *p, const KInst *k);
/* The vectors over columns that a program finds, before the wait for products
 * that it goes on from. */
void put_columns_early(Print *p, const KInst *k);

/* ---- print_rests.c: what rounding cuts off of the first rows ---- */

/* A tile's, as it is written from `p`; "": it has none. */
const char *rest_text(Print *p, const KInst *k, const KValue *v);
/* To the other block of a cluster, with the half of a tile that it is given;
 * how much more its barrier is to expect. */
int put_given_rest(Print *p, const KValue *v, const char *full);
/* To the scores of tiles that have rests, where these are there: of products
 * that have ended, or under decays. */
void put_rests_of_ended(Print *p, const KInst *settle);
void put_decayed_rests(Print *p, const KInst *k);

/* ---- print_sums.c: sums of what a program has in its loop ---- */

/* Before the loop, and behind it: of columns, or of rows and of all. */
void put_sums_begin(Print *p, const KInst *k, bool columns);
void put_sum_node(Print *p, const KInst *k, const KValue *v);
void put_sums_end(Print *p, const KInst *k, bool columns);

/* ---- print_pairs.c: values of pairs of columns, vectors of a state's ---- */

void put_pairs_begin(Print *p, const KInst *k, int regs);
/* What the first phase finds for others. */
void put_found_pairs(Print *p, const KInst *k);
const char *pairs_text(Print *p, const KInst *k, Ref r);
void put_across(Print *p, const KInst *k);

/* ---- print_vectors.c: vector roles ---- */

/* Whether two warps have chunks round-robin: nothing is carried from one to the
 * next. */
bool vectors_in_turn(const Print *p);
/* Before a walk's loop: constants, and what the first iteration finds; what an
 * iteration finds for the next. */
void put_first_fetch(Print *p, KRole role);
void put_vector_turn(Print *p, KRole role);
void put_vectors(Print *p, const KInst *k);

/* ---- print_states.c: states that a walk carries ---- */

void put_state(Print *p, const KInst *k);
void put_carry(Print *p, const KInst *k);
/* A program over an axis of the states. */
void put_lanes(Print *p, const KInst *k);
void put_lanes_node(Print *p, const KInst *k, Ref r);
bool is_in_common(const Print *p, const KInst *k, Ref r);
void put_lanes_found(Print *p, const KInst *k, const char *name);
void put_kept_vector(Print *p, const KInst *k);

/* ---- print_opening.c: states that are carried with what is opened ---- */

/* To the state's fragment, as it begins. */
void put_opening(Print *p, const KInst *k, const KValue *v);
/* What nobody carries, of an input's last token. */
void put_left_in_memory(Print *p, const KInst *k);

/* ---- print_masks.c: decays between tokens, in programs ---- */

/* Whether decays alone read the vector; what it is found times. */
bool is_of_decays(const Print *p, const KInst *k, Ref o);
const char *factor_text(const Print *p, const KInst *k, Ref r);
/* Whether the program has made r before the products that it scales ended. */
bool is_computed_early(const Print *p, const KInst *k, Ref r);
/* Of a product with a number that its decays have already, the operand that is
 * left of it; -1: they have not. */
int left_of_factor(const Print *p, const KInst *k, Ref r);
/* Decays that are cleared in the tiles that the program leaves; 0: none are. */
Ref cleared_decays(const Print *p, const KInst *k);
/* An element's; whether any is compared with the diagonal. */
const char *masked_decay(Print *p, const KInst *k, const Node *n);
bool has_masks(const Print *p, const KInst *k);

/* ---- print_decays.c ---- */

void put_scan(Print *p, const KInst *k);
void put_decayed(Print *p, const KInst *k);
/* Where a thread stands; `fresh`: worked out anew. */
const char *lane_text(const Print *p, bool fresh);
/* What a program finds in memory, or among sums: before its loop, at the head
 * of an iteration of it. */
void put_item_lane(Print *p);
void put_lane(Print *p, const KInst *k);
void put_found_matrices(Print *p, const KInst *k, int regs);
/* Such vectors of the role's programs that are inputs, for all of a walk. */
void put_spread(Print *p, KRole role);
void put_found_sums(Print *p, const KInst *k);
/* Matrices of 16 bits that a program behind this instruction reads where they
 * lie: they are asked for as early as registers allow. */
void put_found_early(Print *p, const KInst *k);
/* What it leaves there, in an iteration of the loop. */
void put_left(Print *p, const KInst *k, const KValue *v);
/* A vector of tokens that moves on by one: before the loop, and in it. */
void put_neighbours(Print *p, const KInst *k);
const char *delayed_text(Print *p, const KInst *k, Ref r);

#endif
