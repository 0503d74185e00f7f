/* gpu.h -- a GPU as the calls of one host share it: opened when it is first
 * wanted; memory that is kept for the next tensor, a workspace for each
 * stream, the compiler and its cache.
 */
#ifndef FLIN_CUDA_GPU_H
#define FLIN_CUDA_GPU_H

#include "cache.h"
#include "driver.h"
#include "nvrtc.h"

typedef struct Gpu Gpu;

/* Closed as yet; NULL when memory is out. Counted, by any thread. */
Gpu *gpu_new(void);
Gpu *gpu_retain(Gpu *g);
void gpu_release(Gpu *g);

/* Opens it, and makes it current in this thread. Fails (ERR_DEVICE) with the
 * reason where there is none, and once an error has ended its context. */
const Driver *gpu_enter(Ctx *c, Gpu *g);
const Driver *gpu_driver(const Gpu *g); /* of one that is open */
const Nvrtc *gpu_compiler(Ctx *c, Gpu *g);
const Cache *gpu_cache(const Gpu *g);
/* What plans for it are made for; it is opened if it can be. Where there is
 * none: machine_usual_gpu(). */
const Machine *gpu_machine(Ctx *c, Gpu *g);
/* "sm_90a": what its kernels are compiled for. */
const char *gpu_arch(const Gpu *g);

/* What a file keeps with the GPU, NULL at first; once given, `end` frees it
 * when the GPU closes. */
typedef enum GpuOwn { OWN_DENSE, OWN_POOLS, OWN_WISHES, NOWN } GpuOwn;
void *gpu_own(const Gpu *g, GpuOwn which);
void gpu_give(Gpu *g, GpuOwn which, void *p,
              void (*end)(const Driver *, void *));

/* Where it can be; c: NULL where memory is out. */
void gpu_unload(Ctx *c, Gpu *g, Module *m);

/* What stands in messages about errors that come later: the latest launch. */
void gpu_running(Gpu *g, const char *what);

/* f(c, ud) with the GPU to itself. */
void gpu_locked(Ctx *c, Gpu *g, void (*f)(Ctx *, void *), void *ud);

/* Memory, kept when it is freed. What is freed may be in use by work queued on
 * the default stream, where its next owner's work queues, too. */
DevicePtr gpu_alloc(Ctx *c, Gpu *g, size_t bytes);
void gpu_free(Gpu *g, DevicePtr p, size_t bytes);
/* Fresh memory is full of what is not a number from now on: for tests. */
void gpu_poison(Gpu *g);

/* Memory of the very size that is asked for, for tests; before there is any.
 */
void gpu_exact(Gpu *g);
/* Bytes of gpu_alloc in use; bytes kept; the most that there were of the first,
 * and of workspaces, at a time. */
typedef struct GpuUse { size_t used, kept, most; } GpuUse;
GpuUse gpu_use(const Gpu *g);

/* The stream's workspace, of these bytes at least. One that was too
 * small lives on: a recorded graph may know it. */
DevicePtr gpu_workspace(Ctx *c, Gpu *g, void *stream, size_t bytes);

/* Memory for gpu_free with these bytes in it at once, also while a stream
 * records a graph, which has no part in it: none that queued work may still
 * be using. Locked. */
DevicePtr gpu_put(Ctx *c, Gpu *g, const void *from, size_t bytes);

#endif
