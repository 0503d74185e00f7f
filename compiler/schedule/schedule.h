/* schedule.h -- a kernel as data: what stands between a plan and its text.
 *
 * A schedule is made of one kernel of a plan. Each **role** (the loading warp,
 * warps for vectors of tokens, the warpgroups of the matrix role, the storing
 * warp) does its instructions one after another for each item of the kernel's
 * loop: a chunk of a head. **Values** are graph nodes in a layout: a tile in
 * shared memory, a fragment in the registers of the matrix role, a vector or
 * a number in shared memory. A walk's item is a sequence of a head; its loop
 * goes over chunks, forwards or back, and carries states as fragments. What
 * one role writes and another reads lies in a **buffer**, a ring of `depth`
 * slots, each with a barrier that says full and one that says empty; what the
 * matrix role writes for itself is ordered by K_SYNC.
 *
 * The passes, in order; each has one entry:
 *   padding.c  axes as long as products need them
 *   slices.c   an axis that blocks of the grid share out
 *   select.c   nodes -> values and instructions, dealt to roles, by way of
 *              classify.c, levels.c, parts.c, decays.c, across.c; what
 *              these ask is in reads.c, what they make in values.c
 *   ahead.c    what a role does ahead of the one that carries states
 *   lanes.c    vectors over an axis that a vector role hands to matrix roles
 *   remake.c   programs of one role that become one
 *   pair.c     what two blocks of a walk share
 *   rotate.c   what an iteration does for the next, or leaves to it
 *   order.c    products early, what waits for them late
 *   late.c     what is found to be added up, right before that
 *   buffer.c   values -> buffers: bytes, depth, place
 *   together.c sums under decays that are one instruction
 *   length.c   long programs in parts
 *   lean.c     what of a walk's iteration its states alone need
 *   sync.c     waits, posts and K_SYNC from definitions and uses; how far some
 *              loads lag behind others
 *   tensor.c   products' sums -> columns of tensor memory
 *   tails.c    who clears rows behind a sequence's end
 *   rests.c    what rounding has cut off of the first rows of tiles
 *   play.c     roles that wait for one another, a few items long
 *   check.c    what must hold of any schedule; runs on every one
 *   price.c    the time it takes
 * A kernel of single tokens has no products of tiles: all its warps do the
 * same, one instruction after another, and matrices that it carries stay in
 * their registers. regtile.c deals those out, tokens.c makes its instructions.
 * What all of them ask is in queries.c. Before them scales.c, ranks.c,
 * constants.c and, of single tokens, found.c change the plan, as softmax.c does
 * for float16 and gate_sums.c for float32; range.c says what float16 may not
 * hold. forms.def has the instructions that an architecture has for it.
 * text.c prints a schedule (dump letter K) and reads it back. Nothing here
 * knows CUDA; backend/cuda/print.c prints instructions by template.
 */
#ifndef FLIN_SCHEDULE_H
#define FLIN_SCHEDULE_H

#include "../machine.h"
#include "../plan.h"
#include "plans.h"

/* ---- the machine ---- */

/* forms.def says what these are. */
typedef enum FormKind { FORM_PRODUCT, FORM_COPY, FORM_DEAL, FORM_SHARE,
                        NFORMS } FormKind;
typedef struct KForm {
    uint8_t kind;
    const char *name;
    int from, to;                       /* architectures; 0: to all since */
    int rows;                           /* of a chunk, at least */
    int element;                        /* bytes, of tiles; 0: any */
    int piece;                          /* bytes, of tensors' rows; 0: any */
    bool waited;                        /* goes on until it is waited for */
    bool packed;                        /* takes factors from registers */
    int times;                          /* a product of 16 bits */
    int bits;                           /* of a factor; 0: all of a tile's */
    int columns;                        /* of tensor memory, where sums lie; 0:
                                           they are in registers */
    const char *header;
} KForm;

/* form: of each kind; NULL: it has none. */
typedef struct Target {
    const char *name;
    int arch;
    int warp, group;                    /* lanes; warps of a warpgroup */
    int regs, reg_step;                 /* of a multiprocessor; dealt by */
    int most_regs;                      /* of a thread */
    int shared;                         /* bytes a block may have */
    int maps;                           /* of what its copy engine moves */
    double flops;                       /* in products of 16 bits, a cycle of a
                                           multiprocessor */
    const KForm *form[NFORMS];
} Target;
double machine_flops(int arch);         /* Target.flops */
/* Of an architecture, 90 being sm_90, for chunks of so many rows and tiles of
 * such elements, made of matrices that lie so in memory. whole: all rows of
 * tensors are pieces of ROW_PIECE bytes, and lie whole; else anywhere. */
enum { ROW_PIECE = 16 };
const Target *target_of(Ctx *c, int arch, int rows, DType tile, DType memory,
                        bool whole);

/* ---- values ---- */

/* TILE: rows in shared memory of 16-bit elements, 64 columns a piece, or of
 * float32, 32, one piece behind the other, swizzled by 128 bytes; a chunk's
 * rows, or blocks of 64 of a state's. FRAGMENT: float32 in the
 * matrix role's registers, 64 rows a block, each warpgroup its share of the
 * columns; of a schedule with a row axis its 64 rows and all columns. PACKED:
 * the same in pairs of 16 bits, a product's left factor. WIDE: scores of
 * float32 in shared memory, rows WIDE_PITCH apart;
 * INVERSE: a tile, not of the node itself but of the inverse of one less it.
 * SUMS: float32 in shared memory, a row a token, SUMS_MORE numbers wider than
 * the matrix, a token's rows before the first and behind the last. GLOBAL: a
 * tensor's, or what kernels keep for one another, where it lies. VECTOR:
 * float32 in shared memory, one a token, or one a column of a state; SCALAR:
 * one. Of single tokens: REGTILE: float32 in the registers of all threads;
 * LINE: what a thread's rows or columns of register tiles have of an input, in
 * its registers, in the input's own type; FLAT: in shared memory, in canonical
 * order, an input of its own type; PARTIAL: of sums, what warps have added up,
 * `parts` of them, float32 as FLAT. */
typedef enum Layout { LAY_TILE, LAY_FRAGMENT, LAY_PACKED, LAY_WIDE, LAY_INVERSE,
                      LAY_SUMS, LAY_GLOBAL, LAY_VECTOR, LAY_SCALAR, LAY_REGTILE,
                      LAY_LINE, LAY_FLAT, LAY_PARTIAL, NLAYOUTS } Layout;
extern const char *const layout_name[NLAYOUTS];

/* LEAST_ROWS: of a chunk. SLICE_COLS: of an axis that blocks share out.
 * LEAST_EXTENT: of any, and a divisor. */
enum { LEAST_EXTENT = 16, SLICE_COLS = 32, TILE_COLS = 64, TILE_ROWS = 64,
       LEAST_ROWS = 32, WIDE_PITCH = 72, SUMS_MORE = 8, SHARED_ALIGN = 1024,
       NOTHING = -1 };

/* element: its bytes, in a tile. Axes: AX_I is the token, AX_J the column token
 * beside it. parts: a vector
 * or scalar is the sum of so many that lie one behind the other. iteration: its
 * number among the values that go through its buffer in an item. alias: a
 * fragment in whose registers this one is written, element by element, what
 * sums are of and lie in the place of, or NOTHING. ahead: a fragment of that
 * role. spilled: FLAT, but in the block's part of the workspace. masked: the
 * program that leaves it makes zeros of it behind the ends of its axes. half: a
 * tile that is loaded, of whose columns two blocks have half each; given: one
 * of which each of two blocks makes half the columns, and leaves them to both.
 * rest: of a tile, where among such what rounding has cut off of a sequence's
 * first rows is kept, or NOTHING.
 */
typedef struct KValue {
    Ref node;
    uint8_t layout, row, col, parts, use, element;
    bool ahead, spilled, masked, half, given;
    int32_t nrow, ncol;
    int16_t buffer, alias;
    int32_t at;                         /* bytes into the buffer's slot; of a
                                           product's sums that lie in tensor
                                           memory, the first of its columns
                                           among the warpgroup's */
    int32_t rest;
} KValue;

/* ---- instructions ---- */

typedef enum KOp {
    K_BEGIN,                            /* a fragment, a vector, or what a
                                           vector role has in registers <- a
                                           state as the walk finds it; packed
                                           <- such a fragment */
    K_LOAD,                             /* tile <- an input, a stored value */
    K_VECTOR,                           /* vectors <- inputs, vectors: the
                                           program `node`, lane by lane; of
                                           tokens, or over `row`, an axis of
                                           the states */
    K_CLEAR,                            /* rows behind a sequence's end <- 0; of
                                           a tile that is a row off its first
                                           <- a vector, or its last <- 0; the
                                           row behind sums <- 0, for who reads
                                           them from one further on */
    K_PRODUCT,                          /* fragment <- a b, under way; a solve
                                           with a's inverse is one, too */
    K_SETTLE,                           /* products that are under way end */
    K_MAP,                              /* the program `node`, element by
                                           element of a fragment's space */
    K_INVERSE,                          /* inverse <- wide, strictly lower,
                                           which is lost */
    K_SCAN,                             /* sums <- what lies in their place,
                                           along the chunk, with a gate a token
                                           or without; vectors <- the last of
                                           them */
    K_ACROSS,                           /* vectors over a state's axis, element
                                           by element, also to where they are
                                           kept: the program `node` */
    K_DECAYED,                          /* fragment <- a b, under decays that
                                           are differences of sums; or the sum
                                           of several, each times a number;
                                           or some such sums at once */
    K_SYNC,                             /* the matrix role's warps meet */
    K_STORE,                            /* an output, or a state kept <- tile;
                                           this head's share of an output
                                           <- fragment */
    K_CARRY,                            /* a state, or what is packed of it <-
                                           what becomes of it */
    K_END,                              /* a state as the walk leaves it <- */
    K_PARTIAL,                          /* partial sums <- over rows or columns
                                           of what is regtile: the program
                                           `node`, of which the sum is the last
                                           */
    K_SOLVE,                            /* flat <- the solve `node`, of flat
                                           ones; and partial: inverses of
                                           blocks of its matrix */
    NKOPS
} KOp;
extern const char *const kop_name[NKOPS];

/* AHEAD: warpgroups that do what of a walk's matrices no carried state goes
 * into, so that the matrix role finds it. */
typedef enum KRole { KR_LOAD, KR_STORE, KR_VECTOR, KR_VECTOR2, KR_MATRIX,
                     KR_AHEAD, NKROLES } KRole;
extern const char *const krole_name[NKROLES];

enum { MOST_USES = 96, MOST_BUFFERS = 32, MOST_WARPGROUPS = 4,
       MOST_AHEAD = 2 };

/* PRODUCT: in[0] gives the rows of the result, in[1] its columns; `transposed`
 * says of each that its tile has the contracted axis along its rows. It is
 * added to in[2], if there is one, over which it is written; `minus`: taken
 * from it. DECAYED: in[0] and in[1] are tiles, scores first, in[2] and in[3]
 * the sums of the later and of the earlier token; so for each of its terms. */
typedef struct KInst {
    uint8_t op, role;
    bool transposed[2], minus;
    bool lean;                          /* the states need it: lean iterations
                                           of the loop have it, too */
    bool deferred;                      /* done in the iteration of the loop
                                           behind its own; of the last, behind
                                           it */
    bool early;                         /* MAP: its decays are made while the
                                           products before it are under way */
    bool columns;                       /* MAP of single tokens: of columns, by
                                           threads that have the first row */
    bool clears;                        /* LOAD: a sequence's end (tails.h) */
    uint8_t lag;                        /* LOAD: by so many iterations, behind
                                           those that lag less */
    uint8_t row, col;                   /* MAP: the space's axes */
    uint8_t parts;                      /* of its columns, one after another;
                                           0: all at once */
    int32_t nrow, ncol;
    int16_t in[MOST_USES], out[MOST_USES];
    uint8_t nin, nout;
    Ref *node;                          /* of the program, operands first */
    int nnodes;
    int16_t index;                      /* STORE: the output's number; BEGIN,
                                           CARRY, END: the state's */
    /* of buffers: waited for before, told after */
    uint32_t wait_full, wait_empty, post_full, post_empty;
    uint32_t lean_full;                 /* of a lean iteration: waited for */
    uint32_t lean_out;                  /* which results of a MAP it leaves */
} KInst;

/* ---- buffers, roles ---- */

/* `uses` values an iteration go through it in an item. bytes: of a slot. */
typedef struct KBuffer {
    int32_t bytes, at, depth, uses;
    int16_t writer;                     /* a role */
    uint16_t readers;                   /* a set of roles */
    bool tile;                          /* one, of 16 or of 32 bits; else
                                           vectors and numbers */
    bool copied;                        /* filled by the copy engine */
} KBuffer;

static inline bool is_internal(const KBuffer *b)
{
    return b->readers == 1u << b->writer;
}

/* Of kernels whose warps all do the same. threads: a block's; 0: it has roles.
 * rows: a chunk's, with those that fill blocks of ROW_BLOCK; 1: items are
 * single tokens. regtile: the axes of matrices in registers, or none; of these
 * `col` is the one along which a thread has REGTILE_PIECE neighbours of some
 * rows. A warp has so many columns. first: of the instructions that each item
 * has. single: a call has one token of each sequence. of_vectors: per node, a
 * sum of vectors that lie along rows or columns, of which each thread adds up
 * its own. */
enum { REGTILE_PIECE = 4, ROW_BLOCK = 16 };
typedef struct KTokens {
    int threads;
    bool single;
    const uint8_t *of_vectors;
    int32_t rows;
    AxisSet regtile;
    uint8_t row, col;
    int32_t warp_cols;
    int states;                         /* in regtile */
    int first;
} KTokens;

/* The instructions that know a value: the first and the last, the first that
 * leaves it, the roles that read it. */
typedef struct KUse {
    int32_t first, last, writer;
    uint16_t readers;
} KUse;

typedef struct Schedule {
    Ctx *c;
    const Plan *p;
    const Graph *g;
    const Kernel *k;
    const uint8_t *computes;            /* of each node whether k does */
    const Target *target;
    DType tile, memory;                 /* of tiles; of matrices where they
                                           lie, of which tiles are made */
    int32_t extent[NAXES];              /* of the states' axes: their sizes, and
                                           zeros behind the end */
    int slices, slice_axis;             /* of an axis: blocks have one each */
    int row_axis;                       /* 0, or the axis that all matrices of
                                           the matrix role have as rows, which
                                           its warpgroups share out: states are
                                           factors that stay in registers */
    bool carries;                       /* the one ahead carries vectors over an
                                           axis that no product goes into */
    int rotates;                        /* of a row axis, as registers allow:
                                           1: states are packed an iteration
                                           early; 2: results are left to the
                                           next, too */
    bool ordered;                       /* no row axis, but products of the
                                           matrix role are under way while it
                                           does what waits for others */
    int spare;                          /* as it is wished for */
    int summed;                         /* where ordered: registers that are
                                           left to sums over heads */
    bool may_split, splits;             /* blocks may share a sequence: each
                                           walks what comes before its part in
                                           lean iterations */
    bool paired;                        /* two blocks see each other's shared
                                           memory, and give each other tiles */
    int resident;                       /* blocks on a multiprocessor */
    int groups, ahead, interleave;      /* warpgroups of the matrix role, 1, 2
                                           or MOST_WARPGROUPS; of the one ahead
                                           of it, none, 1 or 2, and how many
                                           such take chunks round-robin */
    bool share, rings, direct, leave, sink;
                                        /* where memory is short: buffers of
                                           the matrix role one after another
                                           in one place; what is loaded
                                           through the ring of what is read no
                                           more; inputs that nobody multiplies
                                           not as tiles; nor results, which are
                                           made last */
    bool narrow;                        /* where registers are: groups in
                                           parts */
    int regs[3];                        /* a thread's: of the other roles, of
                                           the matrix role, of that ahead */
    KValue *value;
    int nvalues, cap_values;
    KInst *inst;
    int ninsts, cap_insts;
    KBuffer buffer[MOST_BUFFERS];
    int nbuffers, first_placed;         /* which lies first */
    const KUse *use;                    /* of each value, while buffers are
                                           found; else NULL */
    int32_t early;                      /* of a row axis: bytes of what is
                                           loaded first, in a ring of its own;
                                           0: all is in one */
    int32_t shared;                     /* bytes, barriers included */
    int tensor;                         /* columns of tensor memory that a
                                           warpgroup has; 0: none */
    int64_t spill;                      /* where all warps do the same: a
                                           block's bytes of the workspace */
    int32_t rests;                      /* bytes of rests of tiles */
    const bool *wants_out, *sum_out;    /* as wished */
    const uint8_t *stores, *stored16;
    const uint8_t *factor;              /* where all warps do the same: products
                                           alone read it, as they take it */
    const DType *in;
    const int32_t (*ext)[NAXES];        /* per node, where all warps do the
                                           same */
    KernelKind kind;                    /* of its loop */
    KTokens tokens;
    uint8_t warps[NKROLES];             /* of each role; 0: it has nothing
                                           to do */
    const char *why;                    /* there is none: what is missing */
    bool large;                         /* that is memory, or registers: there
                                           are instructions for all of it */
} Schedule;

/* What the kernel is to be made for. tile: of tiles, and of matrices between
 * kernels; memory: of tensors. stored16: per node, a stored value of 16 bits an
 * element, or as tiles are. sum_out: heads share the output, each leaves its
 * share in float32. few: blocks of one walk each leave half the machine idle.
 * inverses: scores that solves take lie as their inverses between
 * kernels, all of which come from schedules. Types: NDTYPES where there is no
 * tensor. */
typedef struct KernelWish {
    const Plan *p;
    int kernel;
    DType tile, memory;
    const DType *in, *out, *s0, *s1;
    const bool *wants_out, *sum_out;
    const uint8_t *stored16;
    const uint8_t *stores;              /* per node: kept for later kernels */
    bool few, inverses;
    bool waits;                         /* none that is ordered, but for a row
                                           axis */
    bool plainly;                       /* by warps that all do the same,
                                           whatever the items */
    bool roughly;                       /* what it takes, at the least: whether
                                           there is room, and how much it
                                           lacks */
    bool single;                        /* of single tokens: a call has one of
                                           each sequence */
    int spilled;                        /* attempts whose registers did not do
                                           */
    const Schedule *const *others;      /* another than these, which have been
                                           seen to spill */
    int nothers;
    int spare;                          /* registers beside what a thread of
                                           the matrix role is known to need */
    const char **fault;                 /* if there: what the checker says of
                                           the first attempt that has room, but
                                           that a pass has left wrong */
} KernelWish;

/* A schedule of the kernel; where there is none, `why` says what it would
 * take. */
Schedule *schedule_kernel(Ctx *c, const KernelWish *w, const Target *t);
/* How much more it takes than there is: of memory above 1, of registers alone
 * less than memory would be; 0: it has room. INFINITY: that is not what is
 * missing. */
double schedule_strain(const Schedule *s);

/* The first matrix of a plan that products, or later kernels, find in 16 bits
 * though float16 may not hold it: an exponential, or what is made of one. 0:
 * there is none. */
Ref leaves_float16(const Plan *p);
/* Per node, whether it is such, found so or not. */
const bool *find_far(Ctx *c, const Graph *g);

/* The plan in which exponentials are divided by their sum before products see
 * them, if float16 may hold all of it then; else p itself. */
const Plan *plan_softmax(Ctx *c, const Plan *p);
/* What tiles are of, and matrices that kernels keep for one another, where
 * tensors' are of that type: the same; of a plan that leaves float16's range
 * float32. */
DType schedule_tile(const Plan *p, DType memory);

/* ---- passes ---- */

/* One without values or instructions. */
Schedule *schedule_new(Ctx *c, const KernelWish *w, const Target *t);
/* It is to be of that kernel of its plan. */
void schedule_of_kernel(Schedule *s, int kernel);

/* The extents of the graph's axes, as products of so many rows and columns need
 * them. */
void schedule_extents(Schedule *s, int of);
/* What is wrong with them, or NULL. */
const char *extents_fault(const Schedule *s);
/* Whether one of the kernel's axes is no multiple of what two warpgroups share
 * out. */
bool may_be_longer(const Schedule *s);
/* Whether an axis of the kernel is taken as longer. */
bool has_padding(const Schedule *s);
/* Which values are to be masked. Requires instructions. */
void schedule_mask(Schedule *s);
/* Whether what the program leaves of node r is zero behind the end of the axis
 * without a mask, if all that it finds is. */
bool is_zero_behind(const Schedule *s, const KInst *k, Ref r, int axis);
/* The axes of a program's space along which what it leaves of r has such
 * entries. */
AxisSet padded_axes(const Schedule *s, const KInst *k, Ref r);

/* The axis that may best be cut into slices of so many columns; 0: there is
 * none. */
int schedule_slice_axis(const Schedule *s, int cols);
/* The axis that matrices of the matrix role may all have as rows; 0: none. */
int schedule_row_axis(const Schedule *s);
/* What is wrong with so many slices of it, or NULL. */
const char *schedule_slice_fault(const Schedule *s, int axis, int slices);
/* Of kernels whose warps all do the same: the axis that blocks share out into
 * most parts; each computes the rest by itself, which is little of a single
 * token, and more of a chunk. */
void schedule_token_slices(Schedule *s);

bool schedule_select(Schedule *s, const KernelWish *w);
/* Requires values and instructions, without buffers. False: there is nothing
 * for so many warpgroups ahead to do. */
bool schedule_ahead(Schedule *s, int warpgroups);
/* Whether the matrix role of a schedule with a row axis has what such can. */
bool schedule_rows_alone(Schedule *s);
/* Of such a schedule vectors over an axis that lie in memory come by way of a
 * vector role. */
void schedule_fetch_vectors(Schedule *s);
/* Vectors that roles of matrices carry, of which the next chunk's is made of
 * inputs and numbers alone, are carried by a vector role, which hands them
 * over as each chunk finds them. */
void schedule_carry_in_lanes(Schedule *s);
/* Vectors and numbers that nobody reads are left no more: lanes have them. */
void schedule_drop_unread(Schedule *s);
/* Whether the instruction, of a vector role, hands over such a vector. */
bool leaves_carried(const Schedule *s, const KInst *k);
/* Of a row axis: what is made of vectors is made where pairs of columns find
 * it; programs that make tiles of tiles are one. */
void schedule_remake(Schedule *s);
/* Of a row axis that two blocks share out: what of the role ahead they share,
 * too. */
void schedule_pair(Schedule *s);
/* Whether another block writes to the buffer, too. */
bool is_filled_by_both(const Schedule *s, int buffer);
/* Where the product there ends, if it is of the role ahead and may begin with
 * the half of its factors that the block has made itself: they are given along
 * what it sums over, and no other is under way. NOTHING: it may not. */
int halves_settle(const Schedule *s, int at);
/* NULL: what is given is handed over as it must be. */
const char *pair_fault(const Schedule *s);
/* NULL: every use that another role knows of lies between a wait and a post. */
const char *hands_fault(const Schedule *s);
/* A state is left as a tile from where it is packed as a factor: what it
 * becomes may be under way by then. */
void schedule_store_packed(Schedule *s);
/* Of a row axis: what an iteration does for the next, or leaves to it. */
void schedule_rotate(Schedule *s);
bool schedule_buffers(Schedule *s);
/* Of a row axis, where all that is loaded has one slot: of how many bytes of it
 * there is room for another; 0: it has more, or there is room for none. */
int32_t room_for_early(const Schedule *s);
/* Whether it is none of the first s->early bytes that are loaded. */
bool is_loaded_late(const Schedule *s, int value);
/* Of a role that is ordered: products early, what waits for them late. False:
 * what is left to the next iteration goes into products of this one; or,
 * without a row axis, registers, which it requires then, hold no sums more. */
bool schedule_order(Schedule *s, KRole role);
/* Walks whose states are rows: of a call that goes forward alone, behind a role
 * ahead; of training, by one warpgroup: while it waits nobody works. */
bool walks_behind(const Schedule *s);
bool walks_alone(const Schedule *s);
bool walks_alone_forward(const Schedule *s);
void schedule_overwrite(Schedule *s);
void schedule_late(Schedule *s);
/* What of the matrix role's factors is read again, not kept. */
void schedule_find_again(Schedule *s);
/* Of a row axis: which programs ahead make their decays early; the registers
 * that the decays take. */
void schedule_early(Schedule *s, bool may);
int registers_early(const Schedule *s);
/* Instructions of the machine, as estimated: within a fifth. A multiprocessor
 * has MOST_LENGTH at hand. Parts of programs are of PART_COLS columns, or a
 * multiple. */
enum { MOST_LENGTH = 7000, PART_COLS = 16 };
int schedule_length(const Schedule *s);
int inst_length(const Schedule *s, const KInst *k);
void schedule_shorten(Schedule *s);
/* Of a row axis: programs ahead in parts that few registers hold. */
void schedule_slim(Schedule *s);
void schedule_together(Schedule *s);
/* Whether columns of a program, or of sums, may be made one part after another.
 */
bool may_be_in_parts(const Schedule *s, const KInst *k);
/* What lean iterations have; sync.c asks. */
void schedule_lean(Schedule *s);
/* Whether an instruction goes on from what another one of its vector role has
 * in registers: a number that is carried, an operand. */
bool goes_on_from(const Schedule *s, const KInst *k, const KInst *maker);
/* The instruction, which is lean, as such an iteration has it: of a program's
 * tiles those that the states need, of what makes them. */
KInst lean_inst(const Schedule *s, const KInst *k);
/* Buffers that are filled in lean iterations; these, and what is handed over
 * as it is. */
uint32_t lean_fills(const Schedule *s);
uint32_t lean_buffers(const Schedule *s);
/* The time of one, of another iteration's, where all multiprocessors are busy;
 * the bytes that it moves, of another's. */
double lean_share(const Schedule *s, const Machine *m);
double lean_moves(const Schedule *s);
/* Whether the role has something to do in them. */
bool has_lean(const Schedule *s, int role);
void schedule_sync(Schedule *s);
/* Columns of tensor memory for what products leave, if their form has it.
 * Requires instructions, and nothing behind it may move them. */
void schedule_tensor(Schedule *s);
/* NULL: no sums lie where others do that are needed yet; what all blocks of a
 * multiprocessor ask for is there. */
const char *tensor_fault(const Schedule *s);
/* Columns that a block asks for: a power of two. Two warpgroups have both
 * halves of the lanes of the same. */
int tensor_columns(const Schedule *s);
/* Where the block's columns are told, and behind it a barrier for each
 * warpgroup of matrices; their bytes, or 0. */
int32_t tensor_place(const Schedule *s);
int32_t tensor_bytes(const Schedule *s);
/* Whether the product adds to what another one has left in tensor memory; else
 * it is written there before. */
bool adds_in_tensor(const Schedule *s, const KInst *k);
/* Whether other than such products read what this one leaves. */
bool leaves_tensor(const Schedule *s, const KInst *k);
/* Rests of the tiles that the way forward makes scores of. Requires buffers. */
void schedule_rests(Schedule *s);
/* Whether the instruction makes scores of tiles that have rests; of a product
 * where it ends, else NOTHING. */
bool has_rests(const Schedule *s, const KInst *k);
/* Whether the role leaves rests, or reads them. */
bool keeps_rests(const Schedule *s, KRole role);
/* Of a paired schedule where in shared memory rests begin. */
int32_t rests_place(const Schedule *s);
int rests_settle(const Schedule *s, int at);
/* Bytes of a rest; the iterations of a loop that have one each before the
 * first's place is taken again: whoever reads it has ended by then. */
enum { REST_ROWS = 16 };
static inline int32_t rest_bytes(const KValue *v)
{
    return 2 * REST_ROWS * v->ncol;
}
static inline int32_t rest_slots(const Schedule *s, const KValue *v)
{
    int32_t depth = s->buffer[v->buffer].depth;
    return depth > 2 ? depth : 2;
}
/* NULL: all roles come to the end of a few items (lean: of lean iterations);
 * else which one waits for ever. */
const char *schedule_stuck(const Schedule *s, bool lean);
/* NULL: it holds; else what does not. */
const char *schedule_check(Schedule *s);
/* The same of registers alone; of fragments of a role that live at one time. */
const char *registers_fault(const Schedule *s);
int registers_live(const Schedule *s, KRole role);
/* Of sums over the heads that a block has one after another, in the matrix
 * role, which leaves fragments of results that heads share: where there are
 * enough beside all else, so that these go to memory once, not head by head. 0:
 * none. */
int registers_summed(const Schedule *s);
/* What a program has in them that is no fragment; of a role's the most. */
int program_registers(const Schedule *s, const KInst *k);
int registers_left(const Schedule *s, KRole role);
/* The most of a program and of fragments beside it. */
int registers_taken(const Schedule *s, KRole role);
enum { ROWS_REGS = 16,                  /* of a row axis, beside either */
       OTHER_REGS = 64,                 /* beside fragments, without one */
       MOST_LEFT = 64 };                /* of those a program has, if it must */

/* ---- price.c ---- */

/* Cycles of a multiprocessor that a block takes for a chunk: of a schedule;
 * of nodes, whoever does them; of warps that all do the same. */
double schedule_cycles(const Schedule *s);
double nodes_cycles(const Graph *g, const Kernel *k);
double plain_cycles(const Graph *g, const Kernel *k);
/* What a call is priced by: however little it does, an iteration of a walk
 * whose states are factors takes what linear's does, 1850 of half the columns
 * (16 heads of 2 x 16384 tokens, an H200). */
double kernel_cycles(const Schedule *s);
/* Decays of the program that are exponentials of differences. */
int count_decays(const Schedule *s, const KInst *k);

/* ---- over.c ---- */

/* May the output lie where the input does, if no kernel behind this one reads
 * that? Requires waits. */
bool schedule_lies_over(const Schedule *s, int output, int input);

/* ---- tokens.c, regtile.c, places.c: all warps do the same ---- */

/* False: `why` says what is missing. Leaves values with places, instructions
 * with barriers; nothing else is needed. */
bool schedule_tokens(Schedule *s, const KernelWish *w);
/* The kernel, of whatever nodes, by warps that all do the same: all products by
 * mma.sync, values in shared memory or, where it has no room, the block's part
 * of the workspace. */
Schedule *schedule_plain(Ctx *c, const KernelWish *w, const Target *t);
/* Whether its items are chunks. */
static inline bool has_rows(const Schedule *s) { return s->tokens.rows > 1; }
/* Where values lie; then barriers between instructions. */
void flat_places(Schedule *s);
void flat_barriers(Schedule *s);
/* NULL: each value is written before it is read, and behind a barrier where it
 * is another thread's; no two that are needed at a time lie in one place. */
const char *schedule_check_tokens(const Schedule *s);
/* Which matrices stay in registers, the threads and slices that suit them, and
 * how many blocks. Requires a slice axis where there may be one. */
void schedule_regtile(Schedule *s, const KernelWish *w);
/* Of register tiles: registers of a thread; its rows; threads below one
 * another; warps side by side, and below one another; whether all have as many
 * rows. */
int regtile_count(const Schedule *s);
int32_t regtile_rows(const Schedule *s);
int regtile_threads_down(const Schedule *s);
int regtile_across(const Schedule *s);
int regtile_down(const Schedule *s);
bool regtile_whole(const Schedule *s);
static inline bool is_regtile(const Schedule *s, Ref r)
{
    return s->tokens.regtile && s->g->n[r].axes == s->tokens.regtile;
}
static inline bool token_sums(const Schedule *s, Ref r)
{
    return op_is(s->g->n[r].op, FOLDS) && !op_is(s->g->n[r].op, MOVES);
}
/* Of what threads have of rows and columns: warps have parts of it. */
static inline bool token_sums_vectors(const Schedule *s, Ref r)
{
    return s->tokens.of_vectors && s->tokens.of_vectors[r];
}
static inline bool token_sums_parts(const Schedule *s, Ref r)
{
    const Node *n = &s->g->n[r];
    return token_sums(s, r) && (is_regtile(s, n->a[0])
                                || is_regtile(s, n->a[1])
                                || token_sums_vectors(s, r));
}
/* ---- flat.c: values of which all warps have a share ---- */

enum { WARP_LANES = 32 };
/* Of an axis as one block has it; elements of some axes; their type. */
int32_t flat_extent(const Schedule *s, Ref r, int ax);
int32_t flat_count(const Schedule *s, Ref r, AxisSet axes);
DType flat_type(const Schedule *s, Ref r);
/* How far the elements of each axis lie apart; of how many. */
int32_t flat_strides(const Schedule *s, Ref r, int32_t st[NAXES]);
/* The same of what kernels keep for one another, of all slices, a chunk at full
 * length. */
int32_t kept_strides(const Schedule *s, Ref r, int32_t st[NAXES]);
/* Whether what an earlier kernel has kept is read where it lies: there is no
 * room for it. */
bool lies_where_kept(const Schedule *s, const KValue *v);
/* Whether all threads have a share of the sum: a single one, of many terms. It
 * has a place for each warp's. */
bool sums_by_block(const Schedule *s, Ref r);
/* Where a node's elements lie: `at`, and `tail` times one less than the tokens
 * in hand, in a value, or at places of it. */
typedef struct KSpot { int value; int32_t at, tail, st[NAXES]; } KSpot;
KSpot flat_spot(const Schedule *s, Ref r);
/* The operand of r that has the axis. */
Ref operand_along(const Schedule *s, Ref r, int ax);
/* Whether products must be as good as float32: of such tensors; of what a
 * running maximum keeps in range, whose common factors must cancel. */
bool is_exact(const Schedule *s);
/* The instruction that has the node for itself; K_MAP: none has. */
KOp flat_op(const Schedule *s, Ref r);
/* Why the kernel cannot be one whose warps all do the same; NULL: it can. */
const char *flat_fault(const Schedule *s, const KernelWish *w);

/* Consecutive axes that operands run through with one stride each. */
typedef struct KRun { AxisSet axes; int32_t size, st[2]; bool tokens; } KRun;
/* A sum of products as one of matrices, for each of `loops`: rows m are the
 * first factor's, columns n the second's, k is what it is over. */
typedef struct KFactors {
    Ref a[2];
    KSpot at[2];
    AxisSet loops;
    KRun m, n, k;
} KFactors;
bool flat_factors(const Schedule *s, Ref r, KFactors *p);
/* A sum under decays of each `key`: of keys, scores; or of tokens `other`,
 * which a[0] has as columns and a[1] as rows. */
typedef struct KDecayed {
    Ref a[2];
    int key, own, other;
    bool scores;
} KDecayed;
bool flat_decayed(const Schedule *s, Ref r, KDecayed *d);
/* Of a solve the axes of its rows: tokens, and ranks whose twins its matrix has
 * in its columns. Floats from row to row of the inverses of its blocks. */
AxisSet solve_rows(const Graph *g, const Node *n);
enum { INVERSE_PITCH = 20 };

/* A number, looked at through views; false if it is none. What views of axes
 * show. */
bool token_constant(const Schedule *s, Ref r, double *x);
Ref token_shown(const Schedule *s, Ref r);
/* Whether kernels before have kept it, token by token. */
bool token_found(const Schedule *s, Ref r);
/* Whether threads load what is theirs of an input themselves. */
static inline bool token_is_line(const Schedule *s, const KInst *k)
{
    return k->op == K_LOAD && s->value[k->out[0]].layout == LAY_LINE;
}
/* Whether it is loaded to a place for this token and one for the next, as what
 * is not large is; whether the instruction does so, ahead of the token. */
bool has_two_places(const Schedule *s, const KValue *v);
bool token_brings(const Schedule *s, const KInst *k);

/* ---- text.c ---- */

void schedule_print(const Schedule *s, Buf *out);
/* Fails on what it does not understand, with the line; it is not checked. */
Schedule *schedule_parse(Ctx *c, const Plan *p, const Target *t,
                         const char *text);

/* ---- what passes share ---- */

/* Whether it is what it is made of, seen as rows or as columns, or, of a matrix
 * of tokens, under another name of its other axis; a state, of what is opened.
 */
static inline bool is_seen_through(const Graph *g, Ref r)
{
    const Node *n = &g->n[r];
    AxisSet other = n->axes & ~AXIS(AX_I);
    return op_is(n->op, VIEWS) || n->op == OP_opening
        || (op_is(n->op, RENAMES) && n->axes & AXIS(AX_I)
            && other & DIM_AXES && !(other & (other - 1)));
}
/* The node that r shows, looked at through those. */
static inline Ref shown_node(const Graph *g, Ref r)
{
    while (is_seen_through(g, r))
        r = g->n[r].a[0];
    return r;
}

/* The scan that lies where r does. */
static inline Ref scan_of(const Graph *g, Ref r)
{
    return op_is(g->n[r].op, SHIFTS) ? g->n[r].a[0] : r;
}
/* What a tile of node r is loaded from: itself, as another kernel stored it, or
 * what it is delayed of here, some tokens before or after; how many; what its
 * first tokens are then, or 0. */
Ref loaded_node(const Schedule *s, Ref r);
int tokens_delayed(const Schedule *s, Ref r);
Ref first_row(const Graph *g, Ref r, int token);
/* Whether the kernel computes it; else it finds it. */
static inline bool schedule_computes(const Schedule *s, Ref node)
{
    return s->computes[node];
}
/* The value of the node in that layout; NOTHING: there is none. */
int schedule_value(const Schedule *s, Ref node, Layout layout);
/* The first instruction that writes the value; NOTHING: none does. */
int value_writer(const Schedule *s, int value);
/* The fragment in whose registers this one lies in the end. */
static inline int fragment_root(const Schedule *s, int v)
{
    while (s->value[v].alias != NOTHING)
        v = s->value[v].alias;
    return v;
}
/* The products under decays per key that r is a sum of, each times a number;
 * returns how many, or 0: it is no such sum. */
enum { MOST_TERMS = 4 };
typedef struct KTerm { Ref product; double scale; } KTerm;
int decayed_terms(const Graph *g, Ref r, KTerm t[MOST_TERMS]);
/* Whether the decays of both products' rows are the same, and what the earlier
 * tokens' are measured from. */
bool decay_alike(const Graph *g, Ref a, Ref b);
/* Of the buffers that its role, of matrices, writes for itself those that the
 * instruction reads, or writes. What a vector that is carried becomes is
 * written where it is: of that, its beginning and its end each number is one
 * thread's. */
uint32_t matrix_reads(const Schedule *s, const KInst *k);
uint32_t matrix_writes(const Schedule *s, const KInst *k);
/* Of those that it writes where other warps may be that have not yet met. */
uint32_t matrix_overwrites(const Schedule *s, const KInst *k);
/* The buffers in whose places an iteration finds what the one before did there:
 * of a ring it has the next slot, and comes to this one again when all warps
 * have met since. */
uint32_t places_again(const Schedule *s, int role);
/* Whether the value is made of a loaded tile, by the role ahead, and lies where
 * that did. */
bool lies_over_loaded(const Schedule *s, int value);
/* Of an axis as one block has it, with the zeros behind its end. */
int32_t block_extent(const Schedule *s, int axis);
/* Whether the axis has such zeros. */
static inline bool is_padded(const Schedule *s, int axis)
{
    return axis >= AX_DIM && s->extent[axis] > s->g->axis[axis].size;
}
/* Of shared memory a block may have. */
int32_t shared_room(const Schedule *s);
/* Whether the role says that the buffer is empty. */
bool tells_empty(const Schedule *s, int role, int buffer);
/* Whether the matrix role, when it says that the buffer is empty, has waited
 * for what the role ahead made when it had used it for the last time. */
bool is_told_by_way(const Schedule *s, int buffer);
/* The same buffers, and those that lie where they do. */
uint32_t places_of(const Schedule *s, uint32_t buffers);
/* Whether one of the two, both the matrix role's own, is needed no more before
 * the other is written. */
bool buffers_apart(const Schedule *s, int a, int b);
static inline bool lie_apart(const KBuffer *a, const KBuffer *b)
{
    return a->at >= b->at + b->bytes * b->depth
        || b->at >= a->at + a->bytes * a->depth;
}
/* Another value, the last one; an instruction, before the one that is there.
 * What is returned may move when others are added. */
KValue *value_add(Schedule *s, KValue v);
KInst *inst_insert(Schedule *s, int at, KInst k);
void inst_remove(Schedule *s, int at);
/* Nobody has the value any more: those behind it move up. */
void value_remove(Schedule *s, int value);
/* It is one of what the instruction reads, or leaves, from then on. */
void inst_reads(Schedule *s, KInst *k, int v);
void inst_writes(Schedule *s, KInst *k, int v);
/* Whether it is one of those; whether its program has the node. */
bool has_value(const int16_t *list, int n, int v);
bool has_node(const KInst *k, Ref r);
/* Whether a MAP finds among sums what it is not itself to compute. */
bool found_among_sums(const Schedule *s, const KInst *k, Ref r);
/* Whether a MAP leaves its i-th result as it finds it, before its elements are
 * computed: a matrix that is none of its nodes, nor a tile of what lies among
 * sums. How many it leaves so, which are its first: results are left in their
 * order. */
bool leaves_as_found(const Schedule *s, const KInst *k, int i);
int results_found(const Schedule *s, const KInst *k);
/* Of a value in a slot. */
int32_t value_bytes(const KValue *v);
/* Whether values of the layout have a buffer. */
static inline bool has_buffer(const KValue *v)
{
    return v->layout != LAY_FRAGMENT && v->layout != LAY_PACKED
        && v->layout != LAY_GLOBAL && v->layout < LAY_REGTILE;
}
/* Whether its rows are tokens. */
static inline bool has_tokens(const KValue *v) { return v->row < AX_DIM; }
/* Rows of a tile as it lies: a chunk may have few; else whole blocks. An
 * inverse is made in blocks. */
static inline int32_t rows_lying(const KValue *v)
{
    return v->layout == LAY_TILE && has_tokens(v) && v->nrow < TILE_ROWS
         ? v->nrow : (v->nrow + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
}
/* Bytes of an element of a tile, as products take them. */
static inline uint8_t tile_element(const Schedule *s)
{
    return (uint8_t)s->target->form[FORM_PRODUCT]->element;
}
/* Whether the tile is of float32 where products' are of 16 bits. */
static inline bool is_wide(const Schedule *s, const KValue *v)
{
    return v->layout == LAY_TILE && v->element > tile_element(s);
}
/* Whether sums of products lie in tensor memory. */
static inline bool has_tensor(const Schedule *s)
{
    return s->target->form[FORM_PRODUCT]->columns > 0;
}
/* Columns of a piece of a tile. */
static inline int32_t piece_cols(const KValue *v) { return 128 / v->element; }
/* Pieces of a tile; an inverse has all of its blocks. */
static inline int32_t tile_pieces(const KValue *v)
{
    int32_t cols = v->layout == LAY_INVERSE && v->ncol < TILE_COLS ? TILE_COLS
                                                                   : v->ncol;
    return (cols + piece_cols(v) - 1) / piece_cols(v);
}
/* Entries of a vector as it lies: a fragment's lanes find one for each row. */
static inline int32_t vector_size(const KValue *v)
{
    return (v->nrow + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
}
/* Bytes from row to row of sums. */
static inline int32_t sums_pitch(const KValue *v)
{
    return 4 * (v->ncol + SUMS_MORE);
}
/* The instructions from which to which a value is needed, with those that lie
 * in its place. */
void live_interval(const Schedule *s, int value, int *first, int *last);
/* Whether two values that the matrix role writes may lie in one place. */
bool live_apart(const Schedule *s, int a, int b);
static inline bool has_matrices(int role)
{
    return role == KR_MATRIX || role == KR_AHEAD;
}
static inline int warpgroups_of(const Schedule *s, int role)
{
    return role == KR_AHEAD ? s->ahead : s->groups;
}
/* Whether it packs a state that is carried as a factor. */
static inline bool packs_carried(const Schedule *s, const KInst *k)
{
    return k->op == K_CARRY && k->nin > 1
        && s->value[k->in[1]].layout == LAY_PACKED;
}
/* Whether the role's warpgroups share out rows, not columns. */
static inline bool deals_rows(const Schedule *s, int role)
{
    return s->row_axis && role == KR_MATRIX;
}
/* Whether products of the role are waited for one by one; where there is a row
 * axis, of the role ahead if it has the registers. */
static inline bool is_ordered(const Schedule *s, int role)
{
    return (s->row_axis || s->ordered)
        && (role == KR_MATRIX
            || (role == KR_AHEAD && s->groups == 1));
}
/* Columns, and rows, that a warpgroup has of what its role shares; registers
 * that a thread has of a fragment. */
static inline int share_of(const Schedule *s, int role, int ncol)
{
    return deals_rows(s, role) ? ncol : ncol / warpgroups_of(s, role);
}
static inline int rows_of_group(const Schedule *s, int role, int nrow)
{
    return deals_rows(s, role) ? nrow / s->groups : nrow;
}
static inline int fragment_regs(const Schedule *s, const KValue *v)
{
    int role = v->ahead ? KR_AHEAD : KR_MATRIX;
    return (rows_of_group(s, role, v->nrow) + TILE_ROWS - 1) / TILE_ROWS
         * share_of(s, role, v->ncol) / (v->layout == LAY_PACKED ? 4 : 2);
}
/* Barriers of a buffer: full and empty, one each a slot. */
int32_t barrier_at(const Schedule *s, int buffer);

#endif
