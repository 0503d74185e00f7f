/* tile.h -- what the files of the general emitter share. tile_emit.c holds the
 * design.
 */
#ifndef FLIN_CUDA_TILE_H
#define FLIN_CUDA_TILE_H

#include "cuda.h"
#include "../../compiler/machine.h"
#include "source.h"

enum { MAX_CHAIN = 96, WARP_SIZE = 32 };

/* Where a value lies: elements of a tile, `at`, and `tail` times one less than
 * the tokens in hand. */
typedef struct Spot {
    int tile;                           /* -1: nowhere */
    int32_t at, tail, st[NAXES];
    uint8_t transposed;                 /* an axis whose pairs lie swapped; or
                                           0 */
} Spot;

/* Acts from the one that makes a tile to the last that looks at it. */
typedef struct Life { int first, last; } Life;

enum { MAX_LIVES = 4 };

/* A place in shared memory, or where there is none left, in the block's part
 * of the workspace. */
typedef struct Tile {
    DType type;
    int32_t elements;
    bool pinned, spilled;               /* pinned: as long as the kernel */
    bool input;                         /* may be loaded a chunk ahead */
    bool solved;                        /* read or written by a solve */
    Life life[MAX_LIVES];               /* more than one where it is copied
                                           again */
    int lives, uses;                    /* 0: nobody uses it */
    int64_t at;                         /* bytes */
} Tile;

/* Before, in or after the walk over chunks. */
typedef enum When { BEFORE, WITHIN, AFTER } When;

/* A piece of the kernel's text, and the tiles that it reads and writes. */
typedef struct Act {
    Buf text;
    int *use, n, cap;                   /* tile * 2 + writes */
    When when;
    bool synced;                        /* ends with a barrier */
    bool loads;                         /* a tile that is an `input` */
    bool copies;                        /* may go on behind the threads' back:
                                           uses one tile alone */
    bool again;                         /* and not for the first time */
} Act;

/* The walk's text up to a barrier, and the tiles that it uses there. */
typedef struct Stretch { size_t end; uint8_t *uses; } Stretch;

/* Element-wise nodes of the same axes, computed in one loop, operands first.
 * from, also: computed before by other means, their elements are `x` and `z`;
 * 0: none. pairs: a value is of two neighbours along axis `along`. */
typedef struct Chain {
    Ref node[MAX_CHAIN], from, also;
    int n, along;
    bool pairs;
} Chain;

typedef struct Tiles {
    Ctx *c;
    const Plan *p;
    const Kernel *k;
    const Graph *g;
    const CudaOptions *o;
    CudaModule *m;
    CudaKernel *out;
    int at, chunk;                      /* the kernel's number; tokens a tile
                                           has room for */
    const int32_t (*ext)[NAXES];        /* per node */
    int slice_axis, slice;              /* a block's share of it; or -1 */
    bool waits;                         /* its schedule keeps no products under
                                           way that a program could wait for */
    uint8_t *has, *pre, *kept, *done, *deferred, *stored_here;
    bool out_here[MAX_OUTPUTS];
    Spot *spot;                         /* per node, once it is done */
    uint8_t *busy;                      /* per node: its act is being made */
    uint8_t *wide, *factor;             /* per node: read other than by
                                           products; by those (tile_narrow.c) */
    const uint8_t *stored_narrow;
    DType narrow;                       /* what those are of */
    const uint8_t *asked;               /* the same, as a schedule was asked
                                           for */
    Spot *twin;                         /* per node: as bf16, besides; tile -1
                                           until somebody wants it */
    uint8_t *precision;                 /* products: 1, in tf32; 2, as good as
                                           float32 */
    int *seen, stamp;                   /* per node: when last looked at */
    Tile *tile;
    int ntiles, cap_tiles;
    Act *act;
    int nacts, cap_acts;
    int parts;                          /* that the walk is cut in, at most */
    Stretch *stretch;
    int nstretches, cap_stretches;
    bool ahead;                         /* inputs have two places that
                                           alternate, and are loaded a chunk
                                           ahead */
    bool crowded;                       /* some tiles find no place */
    bool scratch;                       /* a float a warp is needed */
    const int64_t *stored_at;           /* bytes, per node */
    const uint8_t *stored_later;        /* among those of m->later */
    int state[MAX_STATES];              /* the tile of those carried, or -1 */
} Tiles;

/* ---- tile_emit.c: a kernel ---- */

Tiles *tiles_new(Ctx *c, const Plan *p, const CudaOptions *o, CudaModule *m,
                 int kernel);
/* What it has and leaves; needs t->ext. */
void tiles_analyse(Tiles *t);
/* Its text, where it has no schedule; a comment on what is in it. */
void tiles_print(Tiles *t, Buf *to);
void put_comment(const Tiles *t, Buf *b);

/* ---- tile_value.c: extents, places, text of an element ---- */

int32_t tile_extent(const Tiles *t, Ref r, int ax);
/* Whether r is a state, or what becomes of one, whose last axis is its rows' in
 * memory (o->rows). */
bool lies_transposed(const Tiles *t, Ref r);
/* Of these axes the one whose elements lie nearest to each other. */
int inner_axis(AxisSet left, bool transposed);
int32_t tile_strides(const Tiles *t, Ref r, int32_t st[NAXES]);
DType tile_type(const Tiles *t, Ref r);
int tile_new(Tiles *t, Ref r, bool pinned);
void tile_retype(Tiles *t, int tile, Ref r, DType d);   /* before it is used */
Spot tile_spot(const Tiles *t, Ref r, int tile);
/* A view's: its operand's under the names that it has for the axes. */
Spot view_spot(const Tiles *t, Ref r, const Spot *operand);
bool same_strides(const Tiles *t, Ref r, const Spot *a, const Spot *b);
bool is_token_axis(int ax);
bool is_view(int op);                   /* found in its operand's tile */
/* A number, looked at through views; false if it is none. */
bool constant_of(const Tiles *t, Ref r, double *x);

const char *axis_coord(int ax);         /* "i", "j", "d0" ... */
/* The index at the coordinates of `axes` (others: 0), axis `skip` at
 * `other`. */
void index_text(Buf *b, const Spot *s, AxisSet axes, int skip,
                const char *other);
/* Where x, rotated pair by pair, is read by the sum r alone, which has the
 * pairs, it needs no tile of its own, but a sign in the end: x has its spot
 * afterwards. */
void turn_inside(Tiles *t, Ref r, Ref x);
/* The element of r there, read by the act. */
void element_text(Tiles *t, Act *a, Buf *b, Ref r, AxisSet axes, int skip,
                  const char *other);
/* The same of a sum of gates, as exact as it lies there: one side of a
 * difference. */
void exact_text(Tiles *t, Act *a, Buf *b, Ref r, AxisSet axes);
/* Whether r is a difference of such sums. */
bool is_gate_difference(const Tiles *t, Ref r);
/* "pair_at<STEP, AS_ONE>(tile + index" or "put_pair...", left open: it and its
 * neighbour along the axis. */
void pair_text(Buf *b, const char *what, const Spot *s,
               AxisSet axes, int along);
void coords_text(const Tiles *t, Buf *b, const char *x, Ref r, AxisSet axes,
                 const char *next);
/* Before a loop of so many iterations: how often its body may be repeated,
 * which compilers would do more often, for loops of a single iteration, too. */
const char *unroll_text(const Tiles *t, int32_t trips);
/* A loop over the elements of these axes of r, "e" from `from`; left open. */
void loop_open(const Tiles *t, Buf *b, const char *from, const char *step,
               Ref r, AxisSet axes);

/* The same for all of r, two neighbours along an axis at a time; false where
 * they do not fit. */
bool pair_loop_open(const Tiles *t, Buf *b, Ref r, int *along);
/* The same by groups of `lanes` threads, an element each, which reach the end
 * together; `first`: the thread that ends it. */
void group_open(const Tiles *t, Buf *b, int lanes, Ref r, AxisSet axes);

/* ---- tile_chain.c: what is computed when, and element-wise work ---- */

bool is_pointwise(const Tiles *t, Ref r); /* element by element, or nearly */
bool is_elementwise(const Tiles *t, Ref r);
bool in_chain(const Chain *k, Ref r);
Act *act_begin(Tiles *t, Ref r);          /* BEFORE, if r is the same always */
void act_uses(Tiles *t, Act *a, int tile, bool writes);
void need(Tiles *t, Ref r);             /* r has its spot afterwards */
/* After product r, and `also` if it is not 0: what goes on from them element by
 * element. */
void chain_after(Tiles *t, Chain *k, Ref r, Ref also);
/* Whether anything does that needs both. */
bool chain_joins(Tiles *t, Ref r, Ref also);
/* Whether r can be had from what lies in tiles already, or in memory. */
bool at_hand(Tiles *t, Ref r);
/* The body of a loop: all values, then those that need a tile; of pairs, what
 * stores these. */
void chain_body(Tiles *t, Act *a, Buf *b, const Chain *k);
/* After the act: who else wants what the chain has made. */
void chain_done(Tiles *t, const Chain *k);

/* ---- tile_narrow.c ---- */

/* Marks what the kernel's products read, and what others read. */
void find_readers(const Tiles *t, uint8_t *wide, uint8_t *factor);
/* Whether r lies as bf16, nobody looking at it but products. */
bool is_narrow(const Tiles *t, Ref r);
/* Whether r is to have a twin of bf16, since not only products look at it. */
bool wants_twin(const Tiles *t, Ref r);
/* Where a factor of a product lies: r, or its twin, made if need be. */
Spot factor_spot(Tiles *t, Ref r);
/* An empty twin for r, to be filled by the act. */
int twin_new(Tiles *t, Act *a, Ref r);

/* ---- tile_dot.c, tile_token.c ---- */

/* Whether the node's factors are rounded as the tensor cores' are. */
bool rounds_factors(const Tiles *t, Ref r);

/* The operand of r that has the axis. */
Ref operand_with(const Tiles *t, Ref r, int ax);

void do_dot(Tiles *t, Ref r);         /* and sum */
void do_most(Tiles *t, Ref r);        /* amax */
void do_gdot(Tiles *t, Ref r);
void do_scan(Tiles *t, Ref r);
void do_matscan(Tiles *t, Ref r);
void do_solve(Tiles *t, Ref r);

/* ---- tile_sum.c ---- */

void emit_sum(Tiles *t, Ref r);
/* A term of the sum: r's operands, of gdot the exponential too. */
void summand_text(Tiles *t, Act *a, Buf *b, Ref r);

/* ---- tile_own.c ---- */

/* The tile that r gets when the chain has made it: that of an operand which
 * nobody else will look at, or a new one. */
int own_tile(Tiles *t, Act *a, const Chain *k, Ref r);

/* ---- tile_move.c: between tensors and tiles ---- */

void emit_load(Tiles *t, Ref r);        /* an input */
void emit_fetch(Tiles *t, Ref r);       /* what an earlier kernel stored */
void emit_keep(Tiles *t, Ref r);        /* for a later one */
void emit_out(Tiles *t, int output);
void emit_state_in(Tiles *t, int state);
void emit_state_out(Tiles *t, int state);
/* Behind each token, where each one's are kept. */
void emit_state_kept(Tiles *t, int state);
void emit_carry(Tiles *t);              /* states that lie elsewhere */
int64_t stored_bytes(const Tiles *t, Ref r);

/* ---- tile_precision.c ---- */

/* Whether both factors have axes of the result to themselves. */
bool is_matrix_product(const Tiles *t, const Node *n);
void find_precision(const Tiles *t, uint8_t *precision);

/* ---- tile_slice.c ---- */

/* The axis along which blocks can share a head's work, and a block's share:
 * in t->slice_axis and t->slice; -1 where there is none. */
void find_slice(Tiles *t);

/* ---- tile_split.c ---- */

/* deferred: adjoints that no matrix needs have a walk behind the kernels of all
 * chunks; ahead: scores that no state goes into are made before the walk;
 * apart: those that sums under decays take behind it, in a kernel before that
 * of the sums, as is what scans of scores on the way back do without; forward:
 * scores are made before walks forward, too, for all; ends: those alone that
 * what states become needs; solved: what those solve is kept for the way back;
 * none: kernels are left as they are; walks: states that do not need one
 * another have walks of their own; whole: walks back do all that is not
 * deferred; factors: what walks multiply, and is made of no product and no
 * state, is made ahead of them with the scores: 1, for all kernels behind; 2,
 * for walks alone; rest: what the states of walks forward do not need is made
 * behind those; bare: so are sums of what matrices of the walk become. */
typedef struct Split {
    bool deferred, ahead, apart, forward, ends, solved, none, walks, whole,
         rest, bare;
    int factors;
} Split;

/* The plan with what a scan need not do in kernels of all chunks at once; in
 * `of`, for each of its kernels, which of p's it is of. */
const Plan *tile_split(const Plan *p, Split how, int **of);

/* Whether there are sums of tokens under decays per key, or scans of scores on
 * the way back. */
bool may_stand_apart(const Graph *g);
/* Whether there are sums of what a matrix becomes on the way back. */
bool may_be_bare(const Graph *g);

/* ---- tile_cut.c ---- */

/* RESULT: a kernel of all chunks, the first half of which leaves that result.
 * FACTOR: a matrix that products take, and no state of the kernel goes into,
 * in a kernel of all chunks before it; CUT_ALL: all that its states go together
 * with. BEHIND: a result of a walk that its next states do not need in a kernel
 * of all chunks behind it; CUT_ALL: all of those. STATES: a walk of its own for
 * the state of that number, from one on, with those it needs. */
typedef enum CutHow { CUT_RESULT, CUT_FACTOR, CUT_BEHIND, CUT_STATES, NCUTS }
CutHow;
enum { CUT_ALL = 1 };                   /* the first node, which is a leaf, and
                                           so neither a factor nor a result */

/* The plan with a kernel as two, at the next node, or number, behind *with,
 * which is moved on to it; with that goes what needs no more matrices than it
 * does. NULL: there is none any more. `of` goes with the kernels. */
const Plan *tile_cut(const Plan *p, int kernel, CutHow how, Ref *with,
                     const int *of, int **of_halves);

/* ---- tile_share.c ---- */

/* Kernels behind the plan's own, for what heads share. */
void emit_shares(Ctx *c, const Plan *p, const CudaOptions *o, CudaModule *m,
                 Buf *b);

/* ---- tile_order.c ---- */

void tiles_order(Tiles *t);

/* ---- tile_reload.c ---- */

/* Whether this source is printed so; whether the item lies in shared memory.
 */
bool reloads(const Tiles *t);
bool puts_item(const Tiles *t);
int64_t reload_place(const Tiles *t);   /* in shared memory */
int64_t reload_bytes(const Tiles *t);
void put_lazy(Buf *b, const char *type, const char *name, const char *value);
void put_item(const Tiles *t, Buf *b);          /* opens a scope */
void put_known(const Tiles *t, Buf *b);
void put_reloaded_names(const Tiles *t, Buf *b);
void put_names_once(const Tiles *t, Buf *b);
void put_reloaded_chunk(const Tiles *t, Buf *b);
bool put_spilled(const Tiles *t, Buf *b, const Act *a);
void end_item(Buf *b);

/* ---- tile_place.c ---- */

/* Gives tiles their places; declares those that are used (NULL: all); prints
 * acts, with barriers where they are needed. */
void tiles_place(Tiles *t);
void declare_tiles(const Tiles *t, Buf *b, const uint8_t *uses);
/* A tile's name; place: which of its two places, or NULL. */
void put_tile(const Tiles *t, Buf *b, int tile, const char *place);
void put_clear(const Tiles *t, Buf *b); /* of tiles in the workspace */
void print_acts(Tiles *t, Buf *b, When when);
/* Declares the inputs' tiles of the walk's m-th chunk; loads them. */
void print_inputs(Tiles *t, Buf *b, const char *m, bool load);

/* ---- tile_part.c ---- */

/* How many parts suit the acts; whether the walk is cut; what the copy of its
 * arguments takes. */
int parts_of(const Tiles *t);
bool in_parts(const Tiles *t);
int64_t args_bytes(const Tiles *t);
/* Where the text stands now a walk may be cut; `uses`: what it has used since
 * the last such place, by tile. */
void stretch_end(Tiles *t, const Buf *b, const uint8_t *uses);
/* Moves a chunk's work, if its text is long, to functions, and leaves in
 * `acts` what calls them. Returns what the rest of the kernel uses of the
 * tiles; NULL: all. */
const uint8_t *put_parts(const Tiles *t, Buf *b, Buf *acts);
void put_args_copy(const Tiles *t, Buf *b);
void put_item_parts(const Tiles *t, Buf *b);    /* before a barrier */
/* The chunk in hand, of those of the walk's kind; m: how many are done. */
const char *chunk_text(const Tiles *t, const char *last, const char *m);
/* What a chunk's work has to know: the names that acts read. */
void put_chunk(const Tiles *t, Buf *b);

#endif
