/* library.h -- finding one of CUDA's libraries at run time. */
#ifndef FLIN_CUDA_LIBRARY_H
#define FLIN_CUDA_LIBRARY_H

#include <stdbool.h>

/* "libnvrtc", the wheel's folder that has it before CUDA 13, and the names to
 * ask the loader for, the best first; a NULL ends. */
typedef struct Library {
    const char *stem, *wheel;
    const char *const *soname;
} Library;

/* Offers what is found to `take` until that is true: already in the process, a
 * Python wheel, the loader's path, CUDA_PATH, /usr/local/cuda. What is taken
 * stays loaded. */
typedef bool TakeFn(void *ud, void *lib, const char *path);
bool library_find(const Library *l, TakeFn *take, void *ud);

#endif
