/* plan.h -- what a backend executes: kernels, in order, over one graph.
 *
 * A plan is a graph and, for each kernel, the nodes it computes. A node that
 * stands in two kernels is recomputed; one that a later kernel reads without
 * computing it is **stored** by the first that has it, in a workspace tensor
 * that has one tile a chunk. Loads and stores follow from that and are not
 * written down. A `state` node read by another kernel than the one that
 * carries it is stored as well: the state as each chunk finds it.
 *
 * Kinds: FORWARD walks a sequence's chunks carrying the states; REVERSE walks
 * them backwards, carrying the adjoint states; TOKEN does all chunks at once
 * and carries nothing. A step graph's plan has one FORWARD kernel with chunks
 * of one token: the serial kernel, and the decode step.
 */
#ifndef FLIN_PLAN_H
#define FLIN_PLAN_H

#include "call.h"

/* Of matrices that a GPU's copy engine moves for a kernel: at most so many, as
 * each takes a map among what a launch passes. */
enum { KERNEL_MAPS = 24 };

typedef enum KernelKind { K_TOKEN, K_FORWARD, K_REVERSE } KernelKind;

/* Who computes a node on a machine with roles: SERIAL depends on the carried
 * state and sits on the chain from chunk to chunk; AHEAD does not and may run
 * a chunk early; LOAD comes from memory as it is. */
typedef enum Role { R_LOAD, R_AHEAD, R_SERIAL, NROLES } Role;

typedef struct Kernel {
    char name[32];
    KernelKind kind;
    bool back;                          /* of the way back, whatever it has */
    StateSet states;                    /* carried */
    Ref *node;                          /* computed, operands first */
    int nnodes;
    uint8_t *role;                      /* Role, beside node */
    double bytes, flops;                /* per chunk and head, predicted */
    double seconds, spent[NROLES];      /* of them by role; by price_kernel */
} Kernel;

typedef struct Plan {
    Graph *g;                           /* chunk graph, sizes known */
    Kernel *kernel;
    int nkernels;
    uint8_t *stored;                    /* per node: kept between kernels */
    int *keeper, *again;                /* per node: by the last kernel that
                                           computes it before it is found; of
                                           the way back, where that does */
    int split;                          /* the first kernel that waits for the
                                           loss: before it, all results */
} Plan;

/* Whether the kernel keeps r for others. */
static inline bool plan_keeps(const Plan *p, int kernel, Ref r)
{
    return p->stored[r] && (p->keeper[r] == kernel || p->again[r] == kernel);
}

/* Whether it goes both ways: forward, and back from the loss. */
static inline bool plan_is_joint(const Plan *p)
{
    return p->split > 0 && p->split < p->nkernels;
}

/* derive.c: the chunk graph of a step graph for known sizes; or NULL, with
 * step->note saying which term, on which line, breaks the chunk form. */
Graph *derive(Graph *step, const int32_t size[NAXES], int chunk);
/* The same, of which a gradient is to be made: it is right where decays are
 * zero, too, and what a write takes of the token before is multiplied once. */
Graph *derive_joint(Graph *step, const int32_t size[NAXES], int chunk);

/* angle.c: has the states that are declared as angles kept modulo 2 pi; fails,
 * with the line, where the step tells whole turns apart. Called once, when the
 * step is whole. */
void wrap_angles(Graph *step);

/* Says of each state of a whole step whether it is a sum (State.sum). */
void mark_sums(Graph *step);

/* Gives each other state that is a sum, and that sin or cos look at, a twin
 * modulo 2 pi for them: a long sequence is then no worse than a short one.
 * derive does so with a copy of its own. */
void add_twins(Graph *step);

/* For a step with sizes that runs token by token: such twins, and beside each
 * sum what it loses in rounding. */
void keep_sums(Graph *step);

/* The same for a chunk graph without gradients: a chunk's own sum is added to
 * what its state was, and what that loses is kept beside the state. */
void keep_chunk_sums(Graph *chunk);

/* plan.c: the simplest plan: one forward kernel that holds everything. For a
 * step graph (sizes set), the serial one. */
Plan *plan_simple(Graph *g);

/* The same plan, but all behind the loss is one walk, however much it would
 * hold: for who cuts it anew. */
Plan *plan_join_back(const Plan *p);

/* The same plan, but between what is known before the loss and what comes
 * behind it states alone are stored; the rest is computed again. */
Plan *plan_keep_states(const Plan *p);

/* The plan over g, a copy of its graph with more nodes, in which node r has
 * become each of image[r * each ...] that is not 0: who computed r computes
 * those, and what they are made of that is nobody's image. */
Plan *plan_renewed(const Plan *p, Graph *g, const Ref *image, size_t each);

/* What node n becomes in g, a copy of its graph, where its operands have become
 * a, and nodes before it their images; 0: what it was, of these operands. */
typedef Ref NodeRewrite(void *ud, Graph *g, const Node *n, const Ref a[4],
                        const Ref *image);
/* The plan with each node rewritten; p itself, where none is. */
const Plan *plan_rewritten(Ctx *c, const Plan *p, NodeRewrite *rewrite,
                           void *ud);

/* A plan as text, and back: graph_print's text, then for each kernel
 *   kernel NAME forward|reverse|token : %3 %4 ...                      */
void plan_print(const Plan *p, Buf *out);
Plan *plan_parse(Ctx *c, const char *text);

/* Sets split, roles, states, stored, bytes and flops from nodes. Not of a
 * plan that cannot run (a node nobody computes, a reverse kernel that needs
 * what only later kernels make): *why, false. The second fails then. */
bool plan_finish_if(Plan *p, Error *why);
void plan_finish(Plan *p);

#endif
