/* driver_entry.h -- libcuda's entry points as C functions. */
#ifndef FLIN_CUDA_DRIVER_ENTRY_H
#define FLIN_CUDA_DRIVER_ENTRY_H

#include "driver.h"

#include <string.h>

/* libcuda's CUDA_MEMCPY2D, of its memory. */
typedef struct CopySide {
    size_t x, y;
    int kind;
    void *host;
    DevicePtr p;
    void *array;
    size_t pitch;
} CopySide;
typedef struct CopyRows { CopySide from, to; size_t width, rows; } CopyRows;

/* libcuda's CUlaunchConfig. */
typedef struct LaunchAttribute {
    int id, pad;
    union { int on; char all[64]; } value;
} LaunchAttribute;
typedef struct LaunchAs {
    unsigned grid[3], block[3], shared;
    void *stream;
    const LaunchAttribute *attribute;
    unsigned n;
} LaunchAs;

enum Entry {
#define ENTRY(name, symbol, args) ENTRY_##name,
#include "driver.def"
#undef ENTRY
    NENTRIES
};

#define ENTRY(name, symbol, args) typedef int name##_fn args;
#include "driver.def"
#undef ENTRY

/* Declares `f` as the entry; ISO C has no cast from an object's address. */
#define CALL(d, name, f) \
    name##_fn *f; memcpy(&f, &(d)->fn[ENTRY_##name], sizeof f)

/* Fails unless result is 0. The second answers what the driver refuses (false,
 * and *why); fails where memory is out, or the context has ended. */
void driver_check(Ctx *c, const Driver *d, int result, const char *what);
bool driver_takes(Ctx *c, const Driver *d, int result, const char *what,
                  Error *why);

#endif
