/* driver.c -- libcuda for tests on a machine without a GPU: its memory is the
 * host's, and a module is what fake/nvrtc.c made, a library whose kernels run
 * block after block.
 *
 * FAKE_MEMORY=N      no more than N bytes
 * FAKE_BROKEN=N      the N-th launch ends the context
 * FAKE_IDLE=N        launches behind the N-th do nothing
 * FAKE_ARCH=N        compute capability N.0 (8)
 * FAKE_PROCESSORS=N  multiprocessors (108)
 * FAKE_EMPTY=FILE    no kernel runs: a launch writes its name, its threads and
 *                    its shared memory there, a line each
 * FAKE_RECORDING=FILE  streams are said to record while there is that file;
 *                    launches run
 * FAKE_LATER=N       a launch takes N microseconds, and the host goes on
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK, INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500,
       ILLEGAL_ADDRESS = 700 };

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t Ptr;
typedef int KernelFn(void **params, long grid, int threads);
typedef struct Event { double at; } Event;
typedef struct Map {                    /* as tests/cuda/hopper.h has it */
    char *p;
    uint32_t rank, size;
    uint64_t dim[5], stride[4];
    uint32_t box[5];
} Map;

static int current;
static double busy_until;               /* the device; seconds */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct Piece { struct Piece *next; size_t size; } *pieces;
static size_t in_use;
static long launches;
static int broken;

/* Memory filled lately, in a ring: on the default stream, for which a stream
 * that waits for no other does not wait. */
static struct Fill { char *p; size_t n; unsigned char x; } fills[64];
static unsigned nfills;

static long option(const char *name, long usual)
{
    const char *s = getenv(name);
    return s ? atol(s) : usual;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* When the device has done what it was given so far. */
static double device_time(void)
{
    double t = now();
    return busy_until > t ? busy_until : t;
}

#define ENTRY(type, name, ...) EXPORT type name(__VA_ARGS__); \
    EXPORT type name(__VA_ARGS__)

ENTRY(int, cuInit, unsigned flags) { return (int)flags; }
ENTRY(int, cuDeviceGet, int *device, int ordinal)
{
    *device = ordinal;
    return OK;
}
ENTRY(int, cuDeviceGetAttribute, int *x, int which, int device)
{
    *x = which == 75 ? (int)option("FAKE_ARCH", 8) : which == 76 ? 0
       : which == 16 ? (int)option("FAKE_PROCESSORS", 108)
       : which == 88 ? (int)option("FAKE_PAGEABLE", 0) : 1 + device;
    return OK;
}
ENTRY(int, cuDevicePrimaryCtxRetain, void **context, int device)
{
    (void)device;
    *context = &current;
    return OK;
}
ENTRY(int, cuDevicePrimaryCtxRelease_v2, int device) { return device; }
ENTRY(int, cuCtxSetCurrent, void *context)
{
    current = context == &current;
    return OK;
}
ENTRY(int, cuCtxGetCurrent, void **context)
{
    *context = current ? &current : NULL;
    return OK;
}
ENTRY(int, cuCtxGetDevice, int *device)
{
    *device = 0;
    return current ? OK : INVALID;
}
ENTRY(int, cuDriverGetVersion, int *version)
{
    *version = 13000;
    return OK;
}
ENTRY(int, cuDeviceGetName, char *name, int size, int device)
{
    (void)device;
    snprintf(name, (size_t)size, "no GPU");
    return OK;
}

/* ---- memory ---- */

/* Before each piece lies what it is known by; around it as much as nobody
 * wrote, or may write. */
enum { HEAD = 1024, AROUND = 512 };

/* A NaN of any type that is not what arithmetic makes: tests/cuda/host.h tells
 * by it that nobody wrote there. */
static void make_new(unsigned char *p, size_t bytes)
{
    static const unsigned char nobody[2] = { 0xe5, 0xff };
    unsigned char piece[4096];
    for (size_t i = 0; i < sizeof piece; i++)
        piece[i] = nobody[i % 2];
    for (size_t at = 0; at < bytes; at += sizeof piece)
        memcpy(p + at, piece, bytes - at < sizeof piece ? bytes - at
                                                        : sizeof piece);
}

ENTRY(int, cuMemAlloc_v2, Ptr *p, size_t bytes)
{
    struct Piece *x;
    if (broken)
        return ILLEGAL_ADDRESS;
    if (in_use + bytes > (size_t)option("FAKE_MEMORY", (long)1 << 34))
        return OUT_OF_MEMORY;
    if (posix_memalign((void **)&x, HEAD, HEAD + bytes + AROUND))
        return OUT_OF_MEMORY;
    *p = (Ptr)(uintptr_t)x + HEAD;
    if (!getenv("FAKE_EMPTY"))
        make_new((unsigned char *)x + HEAD - AROUND, AROUND + bytes + AROUND);
    pthread_mutex_lock(&lock);
    *x = (struct Piece){ pieces, bytes };
    pieces = x;
    in_use += bytes;
    pthread_mutex_unlock(&lock);
    return OK;
}
/* Whether a kernel has written before a piece, or behind it. */
static bool is_overrun(void)
{
    unsigned char intact[AROUND + 1];
    bool any = false;
    make_new(intact, sizeof intact);
    pthread_mutex_lock(&lock);
    for (const struct Piece *x = pieces; x; x = x->next) {
        const char *p = (const char *)x + HEAD;
        any |= memcmp(p - AROUND, intact, AROUND)
            || memcmp(p + x->size, intact + x->size % 2, AROUND);
    }
    pthread_mutex_unlock(&lock);
    if (any)
        fputs("FAIL global memory was written behind its end\n", stderr);
    return any;
}
ENTRY(int, cuMemFree_v2, Ptr p)
{
    struct Piece **at = &pieces, *x = (void *)(uintptr_t)(p - HEAD);
    pthread_mutex_lock(&lock);
    memset(fills, 0, sizeof fills);     /* waits for all that is queued */
    while (*at && *at != x)
        at = &(*at)->next;
    if (*at) {
        *at = x->next;
        in_use -= x->size;
    }
    pthread_mutex_unlock(&lock);
    free(x);
    return OK;
}
ENTRY(int, cuPointerGetAttribute, void *type, int which, Ptr p)
{
    int code = INVALID;
    pthread_mutex_lock(&lock);
    for (struct Piece *x = pieces; x; x = x->next) {
        Ptr from = (Ptr)(uintptr_t)x + HEAD;
        if (p >= from && p < from + x->size)
            code = OK;
    }
    pthread_mutex_unlock(&lock);
    *(int *)type = which;               /* of the device */
    return code;
}
static int copy(void *to, const void *from, size_t n)
{
    if (broken)
        return ILLEGAL_ADDRESS;
    memmove(to, from, n);
    return OK;
}
ENTRY(int, cuMemcpyHtoD_v2, Ptr to, const void *from, size_t n)
{
    return copy((void *)(uintptr_t)to, from, n);
}
ENTRY(int, cuMemcpyHtoDAsync_v2, Ptr to, const void *from, size_t n,
      void *stream)
{
    char *at = (char *)(uintptr_t)to;
    int code = copy(at, from, n);

    pthread_mutex_lock(&lock);
    for (int i = 0; stream && i < 64; i++) {    /* comes behind, at worst */
        struct Fill *f = &fills[i];
        char *a = f->p > at ? f->p : at;
        char *z = f->p + f->n < at + n ? f->p + f->n : at + n;
        if (f->n && a < z)
            memset(a, f->x, (size_t)(z - a));
    }
    pthread_mutex_unlock(&lock);
    return code;
}
ENTRY(int, cuMemcpyDtoH_v2, void *to, Ptr from, size_t n)
{
    return copy(to, (void *)(uintptr_t)from, n);
}
ENTRY(int, cuMemcpyDtoD_v2, Ptr to, Ptr from, size_t n)
{
    return copy((void *)(uintptr_t)to, (void *)(uintptr_t)from, n);
}
typedef struct Side {
    size_t x, y;
    int kind;
    void *host;
    Ptr p;
    void *array;
    size_t pitch;
} Side;
typedef struct Rows { Side from, to; size_t width, rows; } Rows;
ENTRY(int, cuMemcpy2DAsync_v2, const Rows *r, void *stream)
{
    (void)stream;
    if (r->width > r->from.pitch || r->width > r->to.pitch)
        return INVALID;
    for (size_t i = 0; i < r->rows; i++)
        copy((void *)(uintptr_t)(r->to.p + i * r->to.pitch),
             (void *)(uintptr_t)(r->from.p + i * r->from.pitch), r->width);
    return broken ? ILLEGAL_ADDRESS : OK;
}
ENTRY(int, cuMemsetD8_v2, Ptr to, unsigned char x, size_t n)
{
    memset((void *)(uintptr_t)to, x, n);
    return broken ? ILLEGAL_ADDRESS : OK;
}
ENTRY(int, cuMemsetD8Async, Ptr to, unsigned char x, size_t n, void *stream)
{
    pthread_mutex_lock(&lock);
    if (!stream)
        fills[nfills++ % 64] = (struct Fill){ (char *)(uintptr_t)to, n, x };
    pthread_mutex_unlock(&lock);
    return cuMemsetD8_v2(to, x, n);
}

ENTRY(int, cuMemsetD32Async, Ptr to, unsigned x, size_t n, void *stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        memcpy((char *)(uintptr_t)to + i * sizeof x, &x, sizeof x);
    return broken ? ILLEGAL_ADDRESS : OK;
}

/* ---- streams, events ---- */

static int finish(void)
{
    double left = busy_until - now();
    if (left > 0)
        nanosleep(&(struct timespec){ (time_t)left,
                  (long)(1e9 * (left - (double)(time_t)left)) }, NULL);
    return broken ? ILLEGAL_ADDRESS : OK;
}
ENTRY(int, cuCtxSynchronize, void)
{
    pthread_mutex_lock(&lock);
    memset(fills, 0, sizeof fills);
    pthread_mutex_unlock(&lock);
    return finish();
}
ENTRY(int, cuStreamCreate, void **stream, unsigned flags)
{
    (void)flags;
    *stream = &launches;
    return OK;
}
ENTRY(int, cuStreamDestroy_v2, void *stream) { return stream ? OK : INVALID; }
ENTRY(int, cuStreamSynchronize, void *stream)
{
    return stream ? finish() : cuCtxSynchronize();
}
ENTRY(int, cuStreamIsCapturing, void *stream, int *status)
{
    (void)stream;
    const char *path = getenv("FAKE_RECORDING");
    *status = path && access(path, F_OK) == 0;
    return OK;
}
ENTRY(int, cuThreadExchangeStreamCaptureMode, int *mode)
{
    *mode = 0;
    return OK;
}
ENTRY(int, cuEventCreate, Event **e, unsigned flags)
{
    (void)flags;
    *e = calloc(1, sizeof **e);
    return *e ? OK : OUT_OF_MEMORY;
}
ENTRY(int, cuEventDestroy_v2, Event *e)
{
    free(e);
    return OK;
}
ENTRY(int, cuEventRecord, Event *e, void *stream)
{
    (void)stream;
    e->at = device_time();
    return OK;
}
ENTRY(int, cuEventElapsedTime, float *ms, Event *from, Event *to)
{
    *ms = (float)(1e3 * (to->at - from->at));
    return OK;
}

/* ---- modules ---- */

/* The image is fake/nvrtc.c's: its length, then the library, which finds
 * HOST_LIBRARY by its name, as it is there. */
ENTRY(int, cuModuleLoadData, void **module, const void *image)
{
    char path[] = "/tmp/flin-fake-XXXXXX";
    uint64_t size;
    if (getenv("FAKE_EMPTY")) {
        *module = malloc(1);
        return *module ? OK : OUT_OF_MEMORY;
    }
    int fd = mkstemp(path);
    memcpy(&size, image, sizeof size);
    if (fd < 0 || write(fd, (const char *)image + 8, size) != (ssize_t)size)
        return INVALID;
    close(fd);
    dlopen(HOST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    const char *why = *module ? NULL : dlerror();
    if (why && strstr(why, "undefined symbol")) {  /* nothing could run it */
        fprintf(stderr, "the driver of tests: %s\n", why);
        _exit(9);
    }
    return *module ? OK : INVALID;
}
ENTRY(int, cuModuleUnload, void *module)
{
    if (!getenv("FAKE_EMPTY"))
        return dlclose(module);
    free(module);
    return OK;
}
ENTRY(int, cuModuleGetFunction, void **f, void *module, const char *name)
{
    char wrapper[128];
    if (getenv("FAKE_EMPTY")) {         /* kept, as modules are */
        *f = strdup(name);
        return *f ? OK : OUT_OF_MEMORY;
    }
    snprintf(wrapper, sizeof wrapper, "fake_%s", name);
    *f = dlsym(module, wrapper);
    return *f ? OK : NOT_FOUND;
}
/* Shared memory that a kernel may be launched with, a slot for each address:
 * of two in one the latest. */
static struct Allowed { void *f; unsigned shared; } allowed[4096];
static struct Allowed *slot_of(void *f)
{
    return &allowed[(uintptr_t)f / 16 % 4096];
}
ENTRY(int, cuFuncSetAttribute, void *f, int which, int x)
{
    if (!f || x < 0 || x > 232448)
        return INVALID;
    if (which == 8)
        *slot_of(f) = (struct Allowed){ f, (unsigned)x };
    return OK;
}
/* Of a function that is but its name. */
static int launch_empty(const char *name, unsigned threads, unsigned shared)
{
    FILE *f = fopen(getenv("FAKE_EMPTY"), "a");
    if (!f)
        return INVALID;
    fprintf(f, "%s %u %u\n", name, threads, shared);
    return fclose(f) == 0 ? OK : INVALID;
}

ENTRY(int, cuLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz,
      unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
      void **params, void **extra)
{
    KernelFn *run;
    struct Allowed may = *slot_of(f);
    (void)stream;
    (void)extra;
    if (may.f == f && shared > may.shared)
        return INVALID;
    if (!gx || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1)
        return INVALID;
    if (broken)
        return ILLEGAL_ADDRESS;
    busy_until = device_time() + 1e-6 * (double)option("FAKE_LATER", 0);
    if (++launches == option("FAKE_BROKEN", -1))
        broken = 1;
    if (broken || launches > option("FAKE_IDLE", LONG_MAX))
        return OK;
    if (getenv("FAKE_EMPTY"))
        return launch_empty(f, bx, shared);
    memcpy(&run, &f, sizeof run);
    if (run(params, (long)gx, (int)bx) != 0) {
        Dl_info of = { 0 };
        dladdr(f, &of);
        fprintf(stderr, "FAIL in %s\n", of.dli_sname ? of.dli_sname : "?");
        broken = 1;
    }
    broken |= is_overrun();
    return OK;
}
/* A kernel that may follow closely waits for those before it by itself. */
typedef struct LaunchAttribute { int id, pad, on; char rest[60]; }
    LaunchAttribute;
typedef struct LaunchAs {
    unsigned grid[3], block[3], shared;
    void *stream;
    const LaunchAttribute *attribute;
    unsigned n;
} LaunchAs;
ENTRY(int, cuLaunchKernelEx, const LaunchAs *how, void *f, void **params,
      void **extra)
{
    if (how->n != 1 || how->attribute->id != 6)
        return INVALID;
    return cuLaunchKernel(f, how->grid[0], how->grid[1], how->grid[2],
                          how->block[0], how->block[1], how->block[2],
                          how->shared, how->stream, params, extra);
}
/* What the driver takes: places and steps of whole 16 bytes, sides of boxes up
 * to 256, rows of 128 bytes where they are swizzled. */
static bool map_is_sound(const Map *m)
{
    bool ok = m->size && (uintptr_t)m->p % 16 == 0
           && m->box[0] * m->size == 128;
    for (unsigned i = 0; i < m->rank; i++)
        ok = ok && m->dim[i] && m->dim[i] >> 32 == 0 && m->box[i]
          && m->box[i] <= 256;
    for (unsigned i = 0; i + 1 < m->rank; i++)
        ok = ok && m->stride[i] && m->stride[i] % 16 == 0
          && m->stride[i] >> 40 == 0;
    return ok;
}
ENTRY(int, cuTensorMapEncodeTiled, void *map, int dtype, unsigned rank,
      void *address, const uint64_t *dims, const uint64_t *strides,
      const uint32_t *box, const uint32_t *steps, int interleave, int swizzle,
      int promotion, int fill)
{
    static const struct { int dtype; uint32_t size; } types[] = {
        { 6, 2 }, { 7, 4 }, { 9, 2 } };
    Map m = { .p = address, .rank = rank };
    (void)steps, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    for (int i = 0; i < 3; i++)
        if (types[i].dtype == dtype)
            m.size = types[i].size;
    memcpy(m.dim, dims, rank * sizeof *dims);
    memcpy(m.stride, strides, (rank - 1) * sizeof *strides);
    memcpy(m.box, box, rank * sizeof *box);
    memcpy(map, &m, sizeof m);
    return map_is_sound(&m) ? OK : INVALID;
}
ENTRY(int, cuGetErrorName, int result, const char **name)
{
    *name = result == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : "CUDA_ERROR_OF_THE_FAKE";
    return OK;
}
