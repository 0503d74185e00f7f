/* driver.h -- CUDA's driver, found at run time, and launching a kernel. */
#ifndef FLIN_CUDA_DRIVER_H
#define FLIN_CUDA_DRIVER_H

#include "../../compiler/machine.h"
#include "cuda.h"

typedef uint64_t DevicePtr;

/* What is said of an error that ends the context: later calls repeat it.
 * `running` is the latest call that was launched, for its message. */
typedef struct Fault {
    char running[320], broken[640];     /* broken: "" while all is well */
} Fault;

enum { DRIVER_ENTRIES = 40 };
typedef struct Driver {
    void *fn[DRIVER_ENTRIES];
    int device, processors;
    int compiles, arch;                 /* 90 for compute 9.0: what it is, and
                                           what kernels are made for */
    int cache;                          /* bytes of the last one */
    int version;                        /* 13000 for CUDA 13.0 */
    bool pageable;                      /* kernels can read the host's memory,
                                           whatever it is */
    char name[64];
    const Machine *machine;             /* that plans are made for */
    void *context;
    Fault *fault;                       /* may be NULL */
} Driver;

/* Opens libcuda and the primary context of the thread's current device, else
 * of the first, and makes it current. False, with c->err set, where there is
 * no driver or no device. */
bool driver_open(Ctx *c, Driver *d);
void driver_close(Driver *d);
/* Makes the context current in this thread. Fails when it is broken. */
void driver_enter(Ctx *c, const Driver *d);

DevicePtr device_alloc(Ctx *c, const Driver *d, size_t bytes);
void device_free(const Driver *d, DevicePtr p);
void device_put(Ctx *c, const Driver *d, DevicePtr to, const void *from,
                size_t bytes);
void device_get(Ctx *c, const Driver *d, void *to, DevicePtr from,
                size_t bytes);
void device_fill(Ctx *c, const Driver *d, DevicePtr to, int byte,
                 size_t bytes);
void device_copy(Ctx *c, const Driver *d, DevicePtr to, DevicePtr from,
                 size_t bytes);
void device_sync(Ctx *c, const Driver *d);

/* The same in a stream's order, without waiting. The first may read `from`
 * until the stream has come there, unless it is ordinary memory. */
void stream_put(Ctx *c, const Driver *d, void *stream, DevicePtr to,
                const void *from, size_t bytes);
/* Rows of `width` bytes that lie so far apart. */
typedef struct DeviceRows {
    DevicePtr to, from;
    size_t width, rows, to_pitch, pitch;
} DeviceRows;
void stream_copy(Ctx *c, const Driver *d, void *stream, const DeviceRows *r);
void stream_fill(Ctx *c, const Driver *d, void *stream, DevicePtr to,
                 int byte, size_t bytes);
void stream_fill_floats(Ctx *c, const Driver *d, void *stream, DevicePtr to,
                        float x, size_t n);
/* The stream records a graph: nothing may wait on it. */
bool stream_capturing(Ctx *c, const Driver *d, void *stream);

typedef struct Event Event;             /* the driver's */
Event *event_new(Ctx *c, const Driver *d);
void event_free(const Driver *d, Event *e);
void event_record(Ctx *c, const Driver *d, Event *e, void *stream);
float event_ms(Ctx *c, const Driver *d, Event *from, Event *to);

/* A kernel on the device, and a call of it made ready: nothing is computed
 * when it is launched. */
typedef struct Function Function;       /* the driver's */
typedef struct Module Module;           /* the driver's */
Module *module_load(Ctx *c, const Driver *d, const void *cubin);
void module_unload(const Driver *d, Module *m);
Function *module_function(Ctx *c, const Driver *d, Module *m,
                          const char *name, int shared);
/* NULL, and *why, where the driver does not take it. */
Module *module_load_if(Ctx *c, const Driver *d, const void *cubin, Error *why);
Function *module_function_if(Ctx *c, const Driver *d, Module *m,
                             const char *name, int shared, Error *why);
/* Its blocks want the memory that multiprocessors share rather than a cache, so
 * that as many are there as it holds. */
void function_shares(Ctx *c, const Driver *d, Function *f);
/* Loads the cubin for one kernel. */
Function *kernel_load(Ctx *c, const Driver *d, const void *cubin,
                      const CudaKernel *k);
/* Queues it: so many blocks of so many threads, each with `shared` bytes.
 * follows: it waits by itself for those before it (warp.cuh's follow), and may
 * begin before they end. */
void kernel_queue(Ctx *c, const Driver *d, Function *f, unsigned grid,
                  unsigned threads, unsigned shared, void *stream,
                  void **params, bool follows);
typedef struct Launch {
    Function *f;
    const CudaKernel *k;
    unsigned char *args;
    unsigned grid;
    bool apart;                         /* its states are not the call's */
    double seconds;                     /* predicted; 0: that is not known */
} Launch;

/* The views of the call hold device addresses. `seq`: the sequences on the
 * device (as numbers.cuh's Sequence, in the order of batch entry and start),
 * or 0 when each is one batch entry from 0 to the same length. Where only the
 * device knows them, call->seq holds for each the whole of its batch entry.
 * `workspace`: cuda_workspace's bytes, the same for all kernels of a run. */
Launch *launch_new(Ctx *c, const Driver *d, Function *f, const CudaModule *m,
                   const CudaKernel *k, const Plan *p, const Call *call,
                   DevicePtr seq, DevicePtr workspace);
/* Several blocks may share each of the call's sequences, all of them from the
 * first token on. */
bool may_split(const CudaKernel *k, const Call *call);
/* Fails, by its name, where a tensor that it reads or writes is not in reach:
 * a kernel that went there would end the process's work on the device. */
void check_places(Ctx *c, const Driver *d, const Graph *g, const Launch *l,
                  const Call *call);
/* The same of one place; NULL is fine. */
void check_place(Ctx *c, const Driver *d, const char *name, const void *data);
void launch(Ctx *c, const Driver *d, const Launch *l, void *stream);
/* All of a call's, in order. Where c->timed listens, waits for them. */
void launch_all(Ctx *c, const Driver *d, Launch *const *l, int n,
                const Plan *p, const Call *call);

#endif
