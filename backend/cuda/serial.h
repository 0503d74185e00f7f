/* serial.h -- what the state's warpgroups do in a chunk: a list of acts over
 * fragments, built from the graph (emit_serial.c), then put in order
 * (emit_order.c).
 */
#ifndef FLIN_CUDA_SERIAL_H
#define FLIN_CUDA_SERIAL_H

#include "emit.h"

enum { MAX_VALUES = 160, MAX_ACTS = 160, MAX_ARRAYS = 80,
       MAX_FROM = 6, MAX_INNER = 24 };

/* An array of registers. A value lives in one; several may, one after the
 * other. carried: declared before the loop over chunks. */
typedef struct Array {
    char name[32];
    bool packed, carried;
    int cols;                           /* of the fragment */
    int holds;                          /* the value in it; ordering only */
} Array;

typedef struct Value { int array; bool ready; } Value;

typedef enum ActKind {
    ACT_READ,                           /* a tile's transpose, packed */
    ACT_SCALE,                          /* packed columns times a vector */
    ACT_PACK,
    ACT_PRODUCT,
    ACT_FACTOR,                         /* times vectors and one values */
    ACT_ELEMENT,                        /* element-wise nodes, one result */
    ACT_COPY
} ActKind;

typedef struct Act {
    ActKind kind;
    int to, from[MAX_FROM];             /* values; from: -1 where none */
    int base;                           /* product: the value added to, -1 */
    Ref node;                           /* read: the tile; element: root */
    Ref leaf[MAX_FROM], inner[MAX_INNER]; /* element: what `from` are; the */
    int nfrom, ninner;                  /* nodes below the root, in order */
    Ref b;                              /* product: the tile, or */
    int score;                          /* the score, -1 */
    bool across;
    int vector, one;                    /* published, -1: none */
    bool negative, last;                /* last: the packing of an output */
    bool issued, urgent;
} Act;

typedef struct Serial {
    Emit *e;
    Array array[MAX_ARRAYS];
    Value value[MAX_VALUES];
    Act act[MAX_ACTS];
    int narrays, nvalues, nacts;
    int *of;                            /* per node: its fragment, -1 */
    int snapshot[MAX_STATES];           /* packed state: value, -1 */
    int output[MAX_OUTPUTS];            /* packed, -1 */
    bool scan;                          /* the states alone */
    uint64_t ones;                      /* scalars already read */
    Buf *b;
    int flight[MAX_ACTS], nflight;
} Serial;

/* Puts the acts in order, each as soon as it can be, a wait only when nothing
 * else is left to do; prints them. */
void serial_order(Serial *s);

int value_new(Serial *s, int array);
int array_new(Serial *s, bool packed, int cols, const char *fmt, unsigned n);
Act *act_new(Serial *s, ActKind kind, int to, int from);

#endif
