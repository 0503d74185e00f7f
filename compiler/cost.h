/* cost.h -- atoms, the pieces that are placed in kernels, and their price. */
#ifndef FLIN_COST_H
#define FLIN_COST_H

#include "partition.h"

/* Arguments, by number. */
typedef struct InputSet { uint64_t w[MAX_INPUTS / 64]; } InputSet;

static inline void input_add(InputSet *s, int i)
{
    s->w[i / 64] |= (uint64_t)1 << (i % 64);
}

static inline bool input_has(const InputSet *s, int i)
{
    return s->w[i / 64] >> (i % 64) & 1;
}

/* An **atom** is a node worth storing: a matrix product, a solve, or a root.
 * All else (element-wise work, sums along the chunk) is cheap: every kernel
 * that needs it computes it from the atoms below it. The tensors of the
 * choice are the atoms and, behind them, the states as each chunk finds them.
 */
typedef struct Atom {
    Ref node;
    Set needs;                          /* atoms and states right below */
    InputSet inputs;                    /* arguments right below */
    bool late;                          /* behind the loss */
    bool root;
    StateSet states;                    /* whose next value it is */
    Ref sum;                            /* that it is a term of, and no more
                                           than that; or 0 */
} Atom;

typedef struct Atoms {
    Graph *g;
    const Machine *m;
    int n, ntensors;                    /* atoms; atoms and states */
    Atom *atom;
    int *of;                            /* per node: its atom, or -1 */
    uint8_t *live;
    Set serial[MAX_STATES];             /* atoms from a state to its next */
    Set early_roots;
    int64_t *store;                     /* picoseconds, per tensor */
} Atoms;

Atoms *atoms_find(Graph *g, const Machine *m);

/* What operations take, their bytes aside. */
typedef struct Work { double flops, elements; int steps; } Work;

/* Sets the seconds of a kernel that has its nodes, roles and bytes. links:
 * products one after another from a carried state to its next value. */
void price_kernel(const Graph *g, const Machine *m, Kernel *k, int links);

/* Bytes that kernel `at` reads and writes, a chunk and head. */
double kernel_moves(const Plan *p, int at, const Machine *m);

/* What a kernel does for a chunk of a head: cycles of each of the blocks that
 * share a head; how many of these a multiprocessor has at once, 0: one. A walk
 * has all chunks of a sequence: a usual call's blocks fill the machine or do
 * not. */
typedef struct GpuWork {
    double cycles, bytes;
    int blocks, resident;
    bool walks;
} GpuWork;

/* Seconds that a chunk and head take in a usual call. */
double gpu_seconds(const Machine *m, const GpuWork *w);

/* Seconds of all of a call: so many sequences, times heads; chunks of the
 * longest of them; chunks, times heads, in all. */
double gpu_call_seconds(const Machine *m, const GpuWork *w, double walks,
                        double longest, double chunks);

/* What a turn of a walk takes whose blocks have half a head's columns, of one's
 * that has all. */
double half_columns(void);

/* Prices the kernels of a plan that does not come from partition; returns
 * the seconds of all, a chunk and head. */
double price_plan(Plan *p, const Machine *m);

/* What a kernel of these atoms is: false where there can be none. */
typedef struct Shape {
    KernelKind kind;
    StateSet states;                    /* carried */
    Set loads, makes;
    InputSet inputs;
    double bytes;                       /* read, and written to roots */
    Work work;
    int links;                          /* products on the chain */
    double seconds;
    size_t held;                        /* bytes on chip */
    uint8_t *nodes;                     /* per node: computed here */
} Shape;

bool shape_of(const Atoms *a, const Set *atoms, Shape *out);

/* held.c: bytes of the states that the kernel carries, in registers; of tiles
 * on chip at one time, beside those. */
double carried_bytes(const Atoms *a, const Shape *s);
size_t held_bytes(const Atoms *a, const Set *atoms, const Shape *s);

bool node_is_product(const Graph *g, const Node *n);
bool node_is_leaf(const Node *n);

/* Bytes of a node's tile in memory, one chunk of one head. */
double tile_bytes(const Graph *g, const Machine *m, Ref r);

#endif
