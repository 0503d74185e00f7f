/* machine.h -- what a plan is made for, and priced by: a struct of numbers.
 * The GPUs are rows of machines.def. */
#ifndef FLIN_MACHINE_H
#define FLIN_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

/* Rates are of the whole chip, as programs attain them. */
typedef struct Machine {
    const char *name;
    double bandwidth;                   /* bytes/s */
    double clock;                       /* cycles/s; of a GPU */
    double matrix, vector;              /* flop/s in products; elements/s */
    double step;                        /* s to begin an operation */
    double chain, link;                 /* s a chunk of a scan; s more for
                                           each product on the chain */
    double launch;                      /* s a kernel, spread over `spread` */
    double follow;                      /* s a small kernel that follows another
                                           one, beside what it moves */
    double spread;                      /* chunks and heads of a usual call */
    int units;                          /* that walk sequences side by side */
    int walks;                          /* sequences, times heads, of a usual
                                           call; of a GPU */
    size_t shared, registers;           /* bytes a kernel may hold */
    int tile_bytes;                     /* an element of a tile in memory */
    int arch;                           /* a GPU's: 90 is sm_90; 0: none */
    bool doubles;                       /* states that are sums go on in double
                                           from chunk to chunk */
    bool strict;                        /* gradients of gates leave out what
                                           cancels: kernels have room for it */
} Machine;

extern const Machine machine_cpu;
/* What kernels are planned for where no GPU is open. */
const Machine *machine_usual_gpu(void);
const Machine *machine_named(const char *name);     /* NULL: unknown */
/* The GPU that the driver calls so; any of its architecture, or of the latest
 * before that, where none is. */
const Machine *machine_of_device(int arch, const char *device);
/* The same of an architecture alone. */
const Machine *machine_of_arch(int arch);
const char *machine_names(void);        /* "machines: cpu, h200 ..." */

#endif
