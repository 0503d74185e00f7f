/* select.h -- what the files share that make instructions of nodes. */
#ifndef FLIN_SELECT_H
#define FLIN_SELECT_H

#include "schedule.h"
#include "../cost.h"

/* HELD: a vector over a state's axis that the walk carries. MERGED: a product,
 * as a term of another node, or what leads from one to it. From VECTOR on:
 * computed; from PRODUCT on: by the matrix role. ACROSS: a vector over a
 * state's axis, found, or computed by each program that reads it; SCANNED: a
 * matrix's sums along the chunk, or what lies where they do, LAST: the last of
 * those; PAIRED: sums of neighbouring columns of a matrix, which lie as sums
 * do; SHIFTED: a matrix that does, of the next token. */
typedef enum Kind { NOT_HERE, NUMBER, VIEW, LOADED, HELD, MERGED, VECTOR,
                    ACROSS, PRODUCT, ELEMENT, CARRIED, SCANNED, PAIRED,
                    SHIFTED, REDUCED, LAST } Kind;

/* An operand of a node that, looked at through what shows it, is `of`. */
typedef struct Reader { Ref of, node; int operand; } Reader;

typedef struct Select {
    Schedule *s;
    const KernelWish *w;
    const Graph *g;
    Ctx *c;
    uint8_t *has, *kind, *row, *col;    /* per node */
    bool *needs;                        /* of the kernel: what it leaves is
                                           made of it */
    bool *again;                        /* computed by each program that reads
                                           it, from what is found in memory */
    int *level, *latest, *group, *part; /* part: of its group */
    Ref *term, *base;                   /* of a sum: the product in it, and
                                           what that is added to */
    bool *done;                         /* groups: there are instructions */
    const Reader *reader;               /* those of a node, by their number,
                                           and then of the next */
    const int *first_reader;            /* per node */
    int8_t *output;                     /* per node: the first that it is and
                                           that is wanted, or NOTHING */
    int deepest;
    StateSet left;                      /* what a walk leaves is in memory */
} Select;

static inline bool refuse(Select *x, Ref r, const char *why)
{
    x->s->why = ctx_format(x->c, "%%%u = %s: %s", (unsigned)r,
                           op_info[x->g->n[r].op].name, why);
    return false;
}

/* Who reads r: `for (const Reader *u = readers(x, r); u->of == r; u++)`. */
static inline const Reader *readers(const Select *x, Ref r)
{
    return x->reader + x->first_reader[r];
}

/* ---- axes ---- */

/* A node's axes with tokens as rows, where it has but one of them. */
static inline AxisSet plain_axes(const Graph *g, Ref r)
{
    AxisSet s = g->n[r].axes;
    return s & AXIS(AX_I) || !(s & AXIS(AX_J)) ? s
         : (s & ~AXIS(AX_J)) | AXIS(AX_I);
}

static inline int count_axes(AxisSet s)
{
    return __builtin_popcount(s);
}

static inline int32_t extent(const Select *x, int ax)
{
    return block_extent(x->s, ax);
}

static inline bool is_matrix(const Select *x, Ref r)
{
    return count_axes(x->g->n[r].axes) == 2;
}

/* A matrix whose rows are the schedule's row axis: its factors are packed. */
static inline bool has_row_axis(const Select *x, Ref r)
{
    return x->s->row_axis && x->row[r] == x->s->row_axis;
}

/* A matrix whose rows, where it is computed, are another axis than where it
 * lies in memory: of tokens by these. */
static inline bool is_transposed(const Select *x, Ref r)
{
    return has_row_axis(x, r)
        && (x->col[r] == AX_I
            || (x->col[r] >= AX_DIM && x->row[r] > x->col[r]));
}

static inline bool in_matrix_role(const Select *x, Ref r)
{
    return x->kind[r] >= PRODUCT;
}

/* A product with the inverse of one less the scores a[0]. */
static inline bool is_solve(const Select *x, const Node *n)
{
    const AxisSet scores = AXIS(AX_I) | AXIS(AX_J);
    return is_system(n->op) && !is_decayed_system(n->op)
        && count_axes(n->axes) == 2
        && n->axes & AXIS(AX_I) && n->axes & DIM_AXES
        && x->g->n[n->a[0]].axes == scores;
}

/* Scores that a solve of the graph has, where they are kept between kernels as
 * the inverse that it takes. */
static inline bool is_solved(const Select *x, Ref r)
{
    for (Ref u = r + 1; u < x->g->len && x->w->inverses; u++)
        if (is_solve(x, &x->g->n[u]) && x->g->n[u].a[0] == r)
            return true;
    return false;
}

/* Whether r is kept for other kernels, or a result that is wanted. */
static inline bool is_result(const Select *x, Ref r)
{
    return x->w->stores[r] || x->output[r] != NOTHING;
}

/* Whether a state that is carried becomes r. */
static inline bool is_next(const Select *x, Ref r)
{
    for (int i = 0; i < x->g->nst; i++)
        if (x->s->k->states & ~x->left & STATE(i)
            && shown_node(x->g, x->g->st[i].next) == r)
            return true;
    return false;
}

/* The ends of states that nobody carries. */
void end_left(Select *x);

/* Operands that instructions have of it: what a walk begins with is none. */
static inline int arity_here(const Graph *g, Ref r)
{
    return g->n[r].op == OP_opening ? 1 : 4;
}

/* A product under decays per key, or a sum of such that is one instruction. */
static inline bool is_under_decays(const Select *x, Ref r)
{
    int op = x->g->n[r].op;
    return x->kind[r] == PRODUCT && !x->term[r]
        && (is_decayed_contraction(op) || op_info[op].traits & ELEMENTWISE);
}

/* Whether a matrix of tokens lies in memory as whole pieces of 16 bytes, which
 * are what is copied; others go between memory and registers. */
static inline bool has_whole_rows(const Select *x, Ref r)
{
    enum { PIECE = 16 };
    AxisSet dims = x->g->n[r].axes & DIM_AXES;
    return !dims || (size_t)x->g->axis[highest(dims)].size
                    * dtype_size(x->w->memory) % PIECE == 0;
}

/* Its readers find a vector or a number of it in shared memory. */
static inline bool is_summed(const Select *x, Ref r)
{
    return x->kind[r] == REDUCED || x->kind[r] == LAST;
}

/* A vector over a state's axis: carried, or found in memory. */
static inline Layout found_layout(const Select *x, Ref r)
{
    return x->kind[r] == HELD ? LAY_VECTOR : LAY_GLOBAL;
}

/* Its readers find it among sums, in float32. */
static inline bool lies_as_sums(const Select *x, Ref r)
{
    return x->kind[r] >= SCANNED && x->kind[r] <= SHIFTED;
}

/* ---- reads.c: what nodes are to one another ---- */

/* Which nodes read which, and which outputs they are. */
void find_readers(Select *x);

/* Sums of a matrix along the chunk, with a gate a token or without. */
bool is_scan(const Select *x, Ref r);
/* Of one forwards what each token finds: it lies where the sums do. */
bool is_delayed_scan(const Select *x, Ref r);
/* What is added up. */
Ref scan_operand(const Graph *g, Ref r);
/* Whether the sums that r is have to be in place: r is added up. */
bool is_scanned(const Select *x, Ref r);
/* An input in float32 that nobody multiplies, of a matrix whose rows are the
 * row axis: its tile is of float32, where programs find it element by element.
 */
bool is_wide_input(const Select *x, Ref r);
/* An input that nobody multiplies: the matrix role finds it in memory. */
bool is_read_directly(const Select *x, Ref r);
/* Of a product; sums that decays are made of are none. */
bool is_factor(const Select *x, Ref r);
/* For solves. */
bool is_inverted(const Select *x, Ref r);
/* The number of the output that this node is here, or NOTHING. */
static inline int output_of(const Select *x, Ref r) { return x->output[r]; }
Layout vector_layout(const Select *x, Ref r);
/* A state as each chunk finds it, for kernels behind this one; where it is
 * found, in float32: it is kept so. */
bool is_kept(const Select *x, Ref r);
bool is_kept_wide(const Select *x, Ref r);
/* Whether the kernel leaves it as more than an operand of programs. */
bool is_left(const Select *x, Ref r);
/* Those that the group has instructions for. */
bool is_of_group(const Select *x, Ref r, int group, int level);
/* A vector over a state's axis that becomes another one of such, entry by
 * entry, in a walk without matrices: the lanes of a vector role have it in
 * registers. */
bool is_in_lanes(const Select *x, int state);

/* ---- classify.c: what each node is ---- */

/* What the kernel computes, and what it finds: stored by kernels before. */
bool select_classify(Select *x);

/* ---- levels.c: spaces, levels, groups ---- */

/* Requires kinds. */
void select_levels(Select *x);

/* ---- accumulate.c: products that are added to what is there ---- */

/* Whether r alone reads a. */
bool is_only_for(const Select *x, Ref a, Ref r);
/* Requires levels. */
void find_terms(Select *x);
/* Those that hold, given the groups; false: some did not, and groups are to be
 * found again. */
bool keep_terms(Select *x);
/* From now on a sum is the product. */
void merge_terms(Select *x);
/* Whether r is added to what is neither a product nor a sum with one. */
bool has_base(const Select *x, Ref r);
/* Whether a sum that is a product is written over it. */
bool is_base(const Select *x, Ref r);
/* Whether a group is there so that another of its level adds to it. */
bool is_base_group(const Select *x, int group, int level);

/* ---- across.c: vectors over a state's axis ---- */

/* Whether an instruction of its own makes the vector: it is kept, or what a
 * state becomes. */
bool is_computed_across(const Select *x, Ref r);
/* Whether that leaves it for programs of matrices. */
bool is_handed_across(const Select *x, Ref r);
/* Or r is a vector that goes on from such. */
bool is_after_across(const Select *x, Ref r);
bool select_across(Select *x, Ref r);

/* ---- parts.c: groups in parts ---- */

/* Numbers the group's nodes by the part that they are of; returns how many
 * parts there are. One part has the products that are made together, and then
 * what goes on from them. */
int select_parts(Select *x, int group, int level);

/* ---- values.c: values and instructions, as they are made ---- */

int value_of(Select *x, Ref node, Layout layout);
KInst *inst_new(Select *x, KOp op, KRole role);
/* The instruction is over the space of r: its rows and columns. */
void set_space(const Select *x, KInst *k, Ref r);
void reads(Select *x, KInst *k, int v);
void writes(Select *x, KInst *k, int v);
void program_add(Select *x, KInst *k, Ref r);
/* Loads the tile, if nobody has yet. */
void select_load(Select *x, Ref r);
/* Loads of what a node of the matrix role reads, also through what its program
 * computes by itself. */
void load_operands(Select *x, Ref r);

/* ---- decays.c: decays per key ---- */

/* Sums of a matrix along the chunk, whose operand is in place. */
bool select_scan(Select *x, Ref r);
/* A matrix of the next tokens, where those lie; zeros are behind the last. */
void select_shift(Select *x, Ref r);
/* A product under decays per key, or a sum of such. */
bool select_decayed(Select *x, Ref r);
/* Loads of what it is made of; or of the operands of another node. */
void load_factors(Select *x, Ref r);
/* Sums of such products, times numbers, that nobody reads otherwise: from now
 * on the sum is the product. Requires levels. */
void merge_decayed(Select *x);
bool is_decayed_factor(const Select *x, Ref r);
/* The value of sums, or of what they are to be of. */
int sums_of(Select *x, Ref r);

#endif
