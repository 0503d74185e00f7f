/* layer_run.h -- a layer's call in progress: what the files lang/layer_*.c
 * share of it.
 */
#ifndef FLIN_LAYER_RUN_H
#define FLIN_LAYER_RUN_H

#include "../compiler/layer.h"
#include "../compiler/row.h"
#include "bind.h"

/* Beside the layer's axes: batch entries, tokens, and the columns of several
 * weights as one matrix. */
enum { AX_B = NAXES, AX_T, AX_COLUMNS };

/* Memory that several arrays share, until the last of them is dropped. */
typedef struct Shelf { void *at; int live; } Shelf;

/* A value of the layer in memory: its axes, in the order in which they lie
 * where it is ours. data NULL: not there yet. */
typedef struct Array {
    void *data;
    DType dtype;
    bool own;                           /* the call's: made by make_room */
    Shelf *shelf;                       /* that it lies on; or NULL */
    int rank;
    int ax[TENSOR_RANK];
    int64_t n[TENSOR_RANK], st[TENSOR_RANK];
} Array;

/* A list of axes, in order. */
typedef struct Axes { int n, ax[TENSOR_RANK]; } Axes;

/* c (m x n) = or, with `add`, += a (m x k) times b (k x n), `batch` times; by
 * the strides of rows, of columns (c's is 1), of the batch. plus: what that is
 * added to, with c's type and columns; or NULL. */
typedef struct Matmul {
    int64_t m, n, k, batch;
    const Array *a, *b, *c, *plus;      /* for their types */
    int64_t a0, b0, c0, plus0;          /* where in them they begin */
    int64_t ars, acs, abs, brs, bcs, bbs, crs, cbs, prs, pbs;
    bool add;
} Matmul;

enum { MAX_JOINT = 16, MAX_JOINTS = 64 };

/* Products of the same values that run as one, where the first of them is:
 * their weights as one matrix, whose columns these are. Those whose results are
 * wide (layer_wide) come last: forward they are a product of their own. */
typedef struct Joint {
    int n, part[MAX_JOINT];
    int at, narrow;                     /* the first of the layer's parts; how
                                           many are not wide */
    int64_t from[MAX_JOINT + 1];        /* where each begins; all */
    int64_t rows, over;                 /* of a token; what is summed */
} Joint;

typedef struct Joints {
    int n;
    Joint *joint;
    int *of;                            /* per part: its joint, from 1 on; or
                                           0 */
} Joints;

typedef struct Lay Lay;
typedef struct Sub Sub;

/* What a part's call runs of at a time (layer_pieces.c): batch entries, or
 * tokens, whose states lie between two pieces. */
enum { MOST_PIECES = 8 };
typedef struct Piece {
    int at, n;                          /* which of how many */
    int64_t b, nb, t, nt;               /* from where on, how many */
} Piece;

/* How a product and the program over rows that alone reads it run: at once, or
 * some tokens or some columns at a time. */
typedef enum TileWay { TILE_WHOLE, TILE_TOKENS, TILE_COLUMNS } TileWay;
typedef struct Tiling {
    TileWay way;
    int64_t at_once;                    /* tokens of a batch entry, or columns
                                           of a token */
    double tiles, bytes;                /* how many; of one */
} Tiling;

/* What it depends on. Bytes: of the product's values and weight, and of a
 * token's result, which has so many columns. */
typedef struct TileAsk {
    const Machine *m;
    double batch, tokens, flops, values, weight, result;
    int element;                        /* bytes of one of theirs */
    int32_t columns;                    /* 0: it cannot be cut so */
    bool backward;                      /* both ways */
    bool whole;                         /* it may be made at once */
    int64_t memory;                     /* bytes of the result at a time; 0:
                                           any */
} TileAsk;

/* Widths that columns may be cut in: halves of halves. For each the program of
 * such parts of rows, and of what is left. */
enum { COLUMN_WIDTHS = 16 };
typedef struct Columns {
    int axis, n;                        /* axis: the layer's */
    struct { int32_t wide; LayerProgram *all, *rest; } of[COLUMN_WIDTHS];
} Columns;

enum { OVER_RESULT = -1 };

/* Where values lie, and what computes them there. cheap: computing the part
 * again costs less than keeping its result. */
typedef struct Realm {
    bool joins;                                 /* products, where that pays */
    DType (*type)(const Lay *k, Ref r);         /* of a value of ours; 0: of
                                                   factors */
    /* Memory for a value; keep: until the way back has read it. */
    void *(*room)(Lay *k, int64_t bytes, bool keep);
    void (*drop)(Lay *k, void *at);
    void (*zero)(Lay *k, const Array *v);
    void (*number)(Lay *k, Array *v, double x, int which);
    /* Of the same axes in any order; what `to` has at a stride of 0 is
     * summed. */
    void (*move)(Lay *k, const Array *to, const Array *from, bool add);
    /* Several that do not meet, to[i] from from[i]. */
    void (*moves)(Lay *k, const Array *to, const Array *const *from, int n);
    /* Can it be a factor (second: the second), the result? */
    bool (*takes)(const Lay *k, const Array *v, int64_t rs, int64_t cs,
                  bool second);
    bool (*gives)(const Lay *k, const Array *v);
    void (*product)(Lay *k, const Matmul *m);
    bool (*cheap)(const Lay *k, int part);
    /* Can the part add the gradient of its input to what there is of it; can
     * its way back make its result again, too? */
    bool (*adds)(const Lay *k, int part, int input);
    bool (*remakes)(const Lay *k, int part);
    /* Can the gradient be written over the input, or what is made again over
     * its gradient (OVER_RESULT)? */
    bool (*over)(const Lay *k, int part, int input);
    /* The input's gradient over the result's? NULL: never. */
    bool (*over_dy)(const Lay *k, int part, int input);
    void (*forward)(Lay *k, Sub *s);            /* a part's call */
    void (*backward)(Lay *k, Sub *s);
    void (*before)(Lay *k, int part);           /* it is the next; or NULL */
} Realm;
extern const Realm realm_host, realm_gpu;

/* The first gap that is wide enough is taken; the bytes that there are, and
 * those of which some were taken. */
typedef struct Gaps {
    uintptr_t base;
    int64_t most, used;
    int n, max;
    struct Taken { int64_t at, bytes; } *taken;
} Gaps;

/* Memory of the call on the device: what is kept, where the way back puts what
 * has room between the parts of it that are left (what is small, too, if that
 * takes less); else what is small lies by itself, so that it does not take the
 * place of what is not. */
enum { KEPT, LARGE, SMALL, REGIONS };
typedef struct Arena {
    int64_t small;
    bool fills;                         /* with what is small, too */
    Gaps region[REGIONS];
} Arena;

/* What a dry walk does for kernels of programs over rows that are not there
 * yet: compiles each, nothing, or wishes for them, so that they are compiled
 * side by side. */
typedef enum Makes { MAKES_ALL, MAKES_NONE, MAKES_WISHES } Makes;

struct Lay {
    Ctx *c;
    Variant *v;
    const Graph *g, *step;              /* traced; the whole as one step */
    const Args *args;
    const Bound *b;
    LayerProgram *p;
    const Adjoint *d;                   /* backward; or NULL */
    const Realm *realm;
    bool dry;                           /* nothing runs: memory is counted, and
                                           kernels are made */
    Makes makes;                        /* then */
    bool keep;                          /* values stay for the way back */
    bool left;                          /* they are there: another call has
                                           left them */
    bool spends;                        /* the way back: what nobody reads any
                                           more is dropped, and written over */
    bool back;                          /* it is on */
    void *kept_at;                      /* outside of the call's workspace; or
                                           NULL */
    LayerCut cut;                       /* of its calls */
    bool weighs;                        /* what they take is added up: */
    double seconds;
    Piece piece;                        /* of the part that runs */
    Stored (*stored)[MOST_PIECES];      /* what parts have saved of each */
    Stored *carried;                    /* states behind each but the last */
    void *adjoint;                      /* and their gradients, of the part that
                                           goes back: two in turn */
    Sub *sub;                           /* the one part's that runs: large */
    struct Held *held;                  /* calls of programs over rows */
    Arena arena;
    uint64_t over[LAYER_CALLS], asked[LAYER_CALLS];     /* see LayerRoom; which
                                           of these are known */
    uint64_t ends;                      /* of sequences, on the device; or 0 */
    Array *value, *grad;                /* per node */
    int *readers, *last;                /* per node: inputs of parts; the last
                                           part that reads it */
    int *first;                         /* per node: the first that does */
    uint8_t *anew;                      /* the way back computes it again */
    int *owed;                          /* per node: the product, from 1 on,
                                           that waits for it so */
    uint8_t *wanted;                    /* its gradient */
    uint64_t chosen;                    /* joints that run as one */
    Shelf (*shelf)[2];                  /* of a joint's results, of wide ones */
    Array *dy;                          /* and of their gradients */
    int64_t columns;                    /* of the one that runs */
    int *tile;                          /* as the program's, of those that are
                                           made in tiles */
    Tiling *tiling;                     /* per part: of a product */
    RowSome some;                       /* of rows, where a part of them runs */
    void *carry;                        /* between such parts */
};

/* A part as a call of its own. */
struct Sub {
    const LayerPart *p;
    Variant *v;
    Args args;
    Bound bound;
    Adjoint d;
    Stored *saved;                      /* its place in Lay.stored */
    bool inplace[MAX_INPUTS];           /* gradients that lie where those did */
    bool add[MAX_INPUTS];               /* and that are added to what is there
                                           */
    bool again;                         /* the way back makes y, too */
};

/* ---- values (layer_value.c) ---- */

int64_t array_count(const Array *v);
int array_find(const Array *v, int ax);
int64_t lay_extent(const Lay *k, int ax);
void array_add(const Lay *k, Array *v, int ax);
void array_add_axes(const Lay *k, Array *v, AxisSet s);
void array_add_list(const Lay *k, Array *v, const Axes *l);
void array_add_tokens(const Lay *k, Array *v, Ref r);
/* Room for it, row-major in the order of its axes. */
void make_room(Lay *k, Array *v, DType d, bool keep);
/* It lies as if it had some. */
void make_no_room(Array *v, DType d);
void drop_array(Lay *k, Array *v);
/* Those of v's axes that are in s, in their order. */
Axes axes_of(const Array *v, AxisSet s);
/* The axes as one: how many, how far apart; false: they are none. */
bool collapse(const Array *v, const Axes *l, int64_t *n, int64_t *stride);
/* An argument's tensor, its gradient's, or y's. */
Array tensor_array(const Lay *k, bool timed, const uint8_t *order, int rank,
                   const View *t);
Array input_array(const Lay *k, int i, const View *t);

/* On a device: float32 whatever the call's tensors are, as what is a number a
 * head, or made from weights. */
bool layer_wide(const Graph *g, Ref r);

/* ---- calls (layer_run.c): those of layer_runs_by_parts ---- */

void layer_prepare(Ctx *c, Variant *v, const Args *a, const Bound *b);
void layer_release(Variant *v);
const PlanEntry *layer_plan(Ctx *c, Variant *v, const Args *a, const Bound *b);
int64_t layer_workspace(Ctx *c, Variant *v, const Args *a, const Bound *b,
                        const Adjoint *d);
void layer_run(Ctx *c, Variant *v, const Args *a, const Bound *b);
/* Where a forward call has left what this one would keep. */
void find_left(Lay *k);
int64_t layer_saved_bytes(Ctx *c, Variant *v, const Args *a, const Bound *b);
int64_t layer_run_saved(Ctx *c, Variant *v, const Args *a, const Bound *b,
                        Stored room);
uint64_t layer_mark(const Variant *v, const Args *a, const Bound *b);
void layer_backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                    const Adjoint *d);

/* ---- gradients of values (layer_step.c) ---- */

/* Adds to r's gradient; the first one is taken as it is. */
void add_grad(Lay *k, Ref r, Array *g);
/* And leaves it as it is; the first one is copied. */
void add_grad_copy(Lay *k, Ref r, const Array *g);
/* The caller's memory for r's gradient, where it may go there at once. */
bool direct_grad(const Lay *k, Ref r, Array *to);

/* ---- products (layer_product.c, layer_joint.c) ---- */

void run_product(Lay *k, const LayerPart *p);
/* to = what it is added to + it, if that can be made at once. */
bool run_product_onto(Lay *k, const LayerPart *p, const Array *plus,
                      const Array *to);
/* How its result lies by itself. */
Array product_array(const Lay *k, const LayerPart *p);
/* Is its result longer than its values, and made in no more time than these
 * are read and it is written? */
bool product_widens(const Lay *k, const LayerPart *p);
/* The gradients of the values, of the weight. */
void back_product(Lay *k, const LayerPart *p);
void back_weight(Lay *k, const LayerPart *p);
/* The same = or += `to`, wherever that lies. */
void back_product_into(Lay *k, const LayerPart *p, const Array *to, bool add);
void back_weight_into(Lay *k, const LayerPart *p, const Array *to, bool add);

/* What could run as one, for these sizes; in c. */
Joints *find_joints(Ctx *c, const Graph *g, const LayerParts *parts,
                    const int32_t size[NAXES]);
/* Does it cost less with a copy of the weights, forward and backward? each:
 * bytes of an entry. */
bool joint_pays(const Joint *j, const Machine *m, double tokens, int each);
/* Those of the call whose results lie beside one another, a bit each: by what a
 * call is without its data, as is what it keeps and the room that it takes. */
uint64_t joint_choice(const Lay *k);
/* Is the product one by a copy; are the weights, or their gradients, one matrix
 * as they lie? Else it is one for each weight. */
bool joint_copies(const Lay *k, const Joint *j);
void joint_weights(const Lay *k, const Joint *j, Array *w);
bool lie_beside(const Lay *k, const Joint *j, const Array *w);
/* Where memory is counted addresses are not known: might they? */
bool may_lie_beside(const Lay *k, const Joint *j, const Array *w);
/* The one that part i runs in; or NULL. */
const Joint *joint_of(const Lay *k, int i);
/* All of it, where its first part is. */
void run_joint(Lay *k, const Joint *j);
void back_joint(Lay *k, const Joint *j);
void back_weights(Lay *k, const Joint *j);
/* The place of r's gradient beside those of its joint, where it has none. */
bool joint_grad(Lay *k, Ref r, Array *to);

/* ---- sums with products (layer_sum.c) ---- */

/* How many inputs of parts r is; the last part that reads it. */
int layer_readers(const LayerParts *p, Ref r, int *last);

/* Per part: of a product that a part alone reads, which adds it to another
 * value and does no more (a residual), -1 - that part; of that one, 1 + the
 * product; else 0. The product adds. */
int *find_sums(Ctx *c, const Layer *l, const LayerParts *p, const Joints *j);
/* Both, and both back, where the part that adds is. */
void run_sum_part(Lay *k, int at);
void back_sum_part(Lay *k, int at);

/* ---- row programs (layer_rows.c) ---- */

/* Does part i run as a program over rows, if it can? What they alone compute,
 * rows longer than others hold, and a layer that is one step and nothing else.
 */
bool by_rows(const Graph *g, const LayerParts *p, int i, bool device);
/* Those of the program's parts, and over which values of theirs gradients may
 * be written. */
void find_rows(Ctx *c, const Layer *l, LayerProgram *p);
/* Is the call's own value written over by its gradient, all of a joint's?
 * Nobody reads it any more then. */
bool lies_over(const Lay *k, int i, Ref r);
bool joint_lies_over(const Lay *k, const Joint *j);
/* Is the gradient of a joint's part i moved to the others' place when all have
 * come? Where these lie over the results, one that cannot; else room for all is
 * not held from the first narrow one on. */
bool is_moved(const Lay *k, const Joint *j, int i);
/* Fails where an input that the caller gives up would be read after its
 * gradient has been written over it. */
void check_inplace(const Lay *k);

/* ---- pieces of a part's call (layer_pieces.c, layer_measure.c) ---- */

/* All of it. */
Piece whole_piece(const Lay *k);
/* Part i's, so many behind its first. */
Piece piece_of(const Lay *k, int i, int at);
/* May it have several; does its way back begin with its way forward? */
bool is_cut(const Lay *k, int i);
bool goes_again(const Lay *k, int i);
/* Room for the states between pieces, and for their gradients. */
void place_states(Lay *k, int i);
void place_adjoints(Lay *k, int i);
/* State j of the part before piece `at` (not the first), its gradient. */
Given state_before(const Lay *k, int i, int j, int at);
Given adjoint_before(const Lay *k, int i, int j, int at);
/* Does it begin from states of the piece before? */
bool hands_on(const Piece *p);
/* Where calls are weighed (Lay.weighs): what all pieces of this one take. */
void weigh_piece(Lay *k, Sub *s);
/* How many there may be: batch entries, or whole chunks of the one. */
int64_t count_units(const Lay *k);
/* Finds k->cut; by a call in progress, whole, and what goes through all of it.
 */
typedef struct LayerPass {
    Lay *(*lay)(Ctx *c, Variant *v, const Args *a, const Bound *b,
                const Adjoint *d);
    void (*run)(Lay *k);
} LayerPass;
void find_pieces(Lay *k, const LayerPass *pass);

/* ---- parts (layer_step.c), tiles of tokens (layer_tiles.c) ---- */

/* The layer's state that is, or has for a slice, state i of the part. */
int state_at(const LayerPart *p, int i);
/* The value's axes as they are to lie: as those of the first input that has
 * all of them, else heads first. */
Array step_array(const Lay *k, const LayerPart *p);
void run_step(Lay *k, int i);
/* The call that goes back, while another one may be on. */
Sub *see_sub(Lay *k, int i);
void back_step(Lay *k, int i, bool again);
/* Room for the result of step part i. */
void make_value(Lay *k, int i);

/* Per part: of a product that may be made in tiles, -1 - the program over rows
 * that reads it; of that one, 1 + the product; else 0. sum: find_sums's. */
int *find_tiles(Ctx *c, const Layer *l, const LayerParts *p, const Joints *j,
                const int *sum);
/* The layer's axis along which the product's columns may be cut, as the program
 * over rows goes along them part by part; 0: there is none. */
int column_axis(Ctx *c, const Graph *g, const LayerPart *product,
              const LayerPart *row, const RowStep *step);
/* For each program over rows of p, or NULL. */
Columns **find_column_parts(Ctx *c, const Graph *g, const LayerProgram *p);
/* Columns at once: width `at` of so many; 0: no more. */
int32_t column_width(int32_t columns, int at);
/* Which of them the call makes so, and how. */
void find_tiling(Lay *k);
/* Both, where the program over rows, `at`, is. */
void run_tiles(Lay *k, int at);
void back_tiles(Lay *k, int at);

/* ---- which tiles (layer_tiling.c) ---- */

/* The one that takes least time of those that fit. Fails where none does. */
Tiling choose_tiling(Ctx *c, const TileAsk *a);
/* The product's time and bytes so, and that of launching more programs. */
double tiling_seconds(const TileAsk *a, const Tiling *t, double *bytes);

#endif
