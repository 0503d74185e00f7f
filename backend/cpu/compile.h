/* compile.h -- what compile.c and analyse.c share. */
#ifndef FLIN_CPU_COMPILE_H
#define FLIN_CPU_COMPILE_H

#include "tile.h"

enum { MAX_CHAIN = 64 };

/* A plan in compilation; the arrays have an entry a node. */
typedef struct Compile {
    Ctx *c;
    const Plan *p;
    const Graph *g;
    Lower l;
    int out_kernel[MAX_OUTPUTS];        /* who writes it */
    int *stored_kernel;
    int *loads;                         /* per input */
    /* of the kernel at hand */
    int at;
    TileKernel *k;
    uint8_t *has;                       /* computed here */
    uint8_t *pre;                       /* the same for every chunk */
    uint8_t *kept;                      /* an output, or stored, by us */
    uint8_t *wanted_lower;              /* only below the diagonal */
    uint8_t *done;
    int *uses, *slot;
    int *low;                           /* of a sum of gates: what it loses */
    int16_t *wide_of;                   /* scans that go on in double */
    Ref *fused;                         /* the product that r adds to a sum */
    Ref *body;
    int nbody;
    int carried[MAX_STATES], ncarry_wanted;
    Ref chain[MAX_CHAIN];
    int nchain;
} Compile;

/* angle.c: of node r, with its inputs, 0 where there are fewer; NULL: it is no
 * element-wise arithmetic on inputs. */
const Increment *build_increment(const Compile *k, Ref r,
                                 Ref leaf[INCREMENT_LEAVES]);

/* analyse.c */
uint8_t *lower_values(Ctx *c, const Graph *g);
void analyse_plan(Compile *k);
void analyse_kernel(Compile *k, const Kernel *kernel);
void place_tiles(TileKernel *k, Ctx *c);

#endif
