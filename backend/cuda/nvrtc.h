/* nvrtc.h -- CUDA C++ text to a cubin. NVRTC is found at run time: nothing of
 * CUDA is needed to build, and no GPU to compile. */
#ifndef FLIN_CUDA_NVRTC_H
#define FLIN_CUDA_NVRTC_H

#include "../../compiler/base.h"

typedef struct Nvrtc {
    int major, minor;
    char path[256];                     /* where it was found */
    void *fn[11];                       /* entry points, see nvrtc.c */
} Nvrtc;

/* What ptxas says of a program: the largest of its kernels. */
typedef struct PtxasInfo {
    int registers, stack, spill_stores, spill_loads;
    int serialised;                     /* C7510 .. C7519: 0, or the number */
} PtxasInfo;

PtxasInfo ptxas_info(const char *log);  /* ptxas.c */

typedef struct Cubin {
    unsigned char *bytes;               /* arena of the context */
    size_t size;
    char *log;
    PtxasInfo info;
    int result;                         /* NVRTC's: 0 */
    int taken;                          /* which try it is */
} Cubin;

/* Looks for NVRTC: already in the process, a Python wheel, the loader's path,
 * CUDA_PATH, /usr/local/cuda. False, with c->err set, when there is none.
 * It stays loaded for the life of the process. */
bool nvrtc_open(Ctx *c, Nvrtc *n);

/* What a source begins with whose products are rounded before they are added:
 * values that two kernels make alike have the same bits. */
extern const char nvrtc_unfused[];

/* Compiles for `arch` ("sm_90a"). The source may include any of cuda_headers
 * by its name. Runs on a thread of its own with 8 MiB of stack; the context's
 * interrupt leaves that thread behind to end by itself, see nvrtc_settle.
 * Signals go to the host's handlers, whatever NVRTC sets up. Fails
 * (ERR_DEVICE) with the compiler's log, and when ptxas reports that it
 * serialised wgmma: such a kernel is correct and several times slow. */
Cubin *nvrtc_compile(Ctx *c, const Nvrtc *n, const char *source,
                     const char *arch);

/* Programs, and each in as many texts as there are tries: of which the first
 * that spills nothing is wanted, or else what spills least. NULL: no such
 * try; all have the first, text[program]. along: the last so many are nobody's
 * need: one that does not compile has no bytes. */
typedef struct Sources {
    int count, tries;
    const char *const *text;            /* try * count + program */
    int along;
} Sources;

/* The same for several programs, side by side on the cores there are: a cubin
 * each. A later try is made where those before it spill or are serialised; on
 * cores that have nothing else to do before that is known, and stopped when it
 * is not needed. Which is taken does not depend on that. */
Cubin *nvrtc_compile_all(Ctx *c, const Nvrtc *n, const Sources *s,
                         const char *arch);
/* NULL, and *why, where one does not compile as it should. */
Cubin *nvrtc_compile_if(Ctx *c, const Nvrtc *n, const Sources *s,
                        const char *arch, Error *why);

/* Programs that one job compiles at a time. */
int nvrtc_cores(void);

/* Waits for threads that were left behind: a second or two, as NVRTC asks
 * between its passes whether to go on (before CUDA 12.8: until it is done).
 * Whoever lets go of NVRTC calls it; the process's end waits for all threads
 * that compile, and asks them to stop. */
void nvrtc_settle(void);

/* The texts of the folder's *.cuh, embedded by the build; a NULL ends. */
enum { MOST_HEADERS = 40 };
typedef struct CudaHeader { const char *name, *text; } CudaHeader;
extern const CudaHeader cuda_headers[];

/* Beside the architecture; a NULL ends. */
extern const char *const nvrtc_options[];

#endif
