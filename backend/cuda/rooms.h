/* rooms.h -- a plan's source in programs that compile side by side; those that
 * spill registers are printed again, with other room for them. No GPU. */
#ifndef FLIN_CUDA_ROOMS_H
#define FLIN_CUDA_ROOMS_H

#include "cuda.h"
#include "nvrtc.h"

/* A plan's source with that room (CudaOptions); NULL, and *why: the emitter has
 * nothing for it. Kernels differ from one room to another in their text and
 * what a launch needs, not in what they do. */
typedef CudaModule *PrintFn(Ctx *c, void *ud, int room, Error *why);

typedef struct Rooms {
    Ctx *ctx;                           /* what is printed lives there */
    PrintFn *print;
    void *ud;
    CudaModule *m[CUDA_ROOMS];          /* as far as they were wanted */
    CudaPrograms programs[CUDA_ROOMS];  /* all cut as the first is */
    bool refused[CUDA_ROOMS];
    Error why;                          /* of the room that was refused last */
} Rooms;

/* The program's text in that room, printed when it is first wanted; NULL: the
 * emitter has nothing for such a room, or the same as for the first, as where
 * all kernels have schedules. Where it has none for the first, r->why says why.
 */
const char *rooms_text(Ctx *c, Rooms *r, int room, int program);

/* n of the programs, and their cubins. */
typedef struct Wanted {
    Rooms *rooms;
    const int *program;
    int n;
    Cubin *cubin;
} Wanted;

/* Compiles them, of so many plans side by side; those that do not compile have
 * no bytes then, but where it is one of the first plan's: false, and *why. */
bool rooms_compile(Ctx *c, Wanted *w, int plans, const Nvrtc *nvrtc,
                   const char *arch, Error *why);

/* The module whose programs are those of these rooms, in r->ctx. */
CudaModule *rooms_join(const Rooms *r, const int *room);

/* All of it, compiled: its module, and a cubin for each program. Fails where
 * it is not printed, or does not compile. */
CudaModule *rooms_compile_all(Ctx *c, Rooms *r, const Nvrtc *nvrtc,
                              const char *arch, Cubin **cubin);

#endif
