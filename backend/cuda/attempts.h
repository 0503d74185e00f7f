/* attempts.h -- a plan's source in programs that compile side by side; those
 * that spill registers are printed again, with other room for them, or as roles
 * that are dealt otherwise, by price. No GPU. */
#ifndef FLIN_CUDA_ATTEMPTS_H
#define FLIN_CUDA_ATTEMPTS_H

#include "cuda.h"
#include "nvrtc.h"

/* A plan's source by that attempt (CudaOptions); NULL, and *why: there is
 * none. Kernels differ from one attempt to another in their text
 * and what a launch needs, not in what they do. */
typedef CudaModule *PrintFn(Ctx *c, void *ud, int attempt, Error *why);

typedef struct Attempts {
    Ctx *ctx;                           /* what is printed lives there */
    PrintFn *print;
    void *ud;
    CudaModule *m[CUDA_ATTEMPTS];       /* as far as they were wanted */
    CudaPrograms programs[CUDA_ATTEMPTS]; /* all cut as the first is */
    bool refused[CUDA_ATTEMPTS];
    Error why;                          /* of the attempt that was refused last
                                           */
} Attempts;

/* The program's text of that attempt, printed when it is first wanted; NULL:
 * there is none, or it is the same as for the first. Where there is none for
 * the first, r->why says why. */
const char *attempt_text(Ctx *c, Attempts *r, int attempt, int program);

/* n of the programs, and their cubins; with them so many other texts, and what
 * has become of them (no bytes: nothing), or NULL. */
typedef struct Along {
    int n;
    const char *const *text;
    const Cubin *cubin;
} Along;
/* What the text has been compiled to before it was wanted; NULL: nothing. */
typedef const Cubin *ReadyFn(Ctx *c, void *ud, const char *text);
typedef struct Wanted {
    Attempts *attempts;
    const int *program;
    int n;
    Cubin *cubin;
    Along *along;
    ReadyFn *ready;                     /* or NULL */
    void *ud;
} Wanted;

/* The text by which the program will be dealt otherwise if it spills so much
 * that it is dear; NULL: there is none. */
const char *attempt_dealt(Ctx *c, Attempts *r, int attempt, int program);

/* Compiles them; false, and *why: one does not compile. */
bool attempts_compile(Ctx *c, Wanted *w, const Nvrtc *nvrtc, const char *arch,
                      Error *why);

/* The module whose programs are those of these attempts, in r->ctx. */
CudaModule *attempts_join(const Attempts *r, const int *attempt);

/* All of it, compiled: its module, and a cubin for each program. Fails where
 * it is not printed, or does not compile. */
CudaModule *attempts_compile_all(Ctx *c, Attempts *r, const Nvrtc *nvrtc,
                              const char *arch, Cubin **cubin);

#endif
